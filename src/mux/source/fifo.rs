//! The FIFOs of an app without a terminal.
//!
//! Opening never blocks: outputs are opened non-blocking beside a writer of our own, the input
//! read-write. Missing FIFOs are made; those of systemd or of an earlier mux are used, since a
//! running app may have them open. A file that is not a FIFO is moved aside, not written into.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::pace::Pace;
use super::stage::Stage;
use super::{AppInput, Source};
use crate::sys::files::{open_again, resize_pipe, set_mode};
use crate::sys::state::{AppDir, KEPT};
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;
use crate::types::limits;
use crate::types::stream::Stream;

/// Size asked for the pipe between the queue of input and the app's FIFO, bytes: what it gets
/// without asking.
const INPUT_STAGE: usize = 64 * 1024;

/// Size asked for the FIFO of the app's input, bytes: the mux goes on while the app reads.
const INPUT_PIPE: usize = 256 * 1024;

/// The app opens its FIFOs itself, as its own user, when it opens /dev/stdout again; the directory
/// decides which users can reach them.
const MODE: u32 = 0o666;

/// Makes the FIFO of a stream unless there is one; whether it was made, or was one of [`put_away`].
pub(crate) fn make(dir: &AppDir, stream: Stream) -> Result<bool> {
    let what = || format!("cannot make FIFO {}", dir.end(stream.stage2()).display());
    let path = dir.place_end(stream.stage2()).with_context(what)?;
    dir.lead_to_end(stream.stage2()).with_context(what)?;
    match fs::symlink_metadata(&path) {
        Ok(there) if there.file_type().is_fifo() => return Ok(false),
        Ok(_) => {
            let aside = move_aside(&path).with_context(what)?;
            log::warn!("{} was no FIFO; it is now {}", path.display(), aside.display());
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(what),
    }
    match fs::rename(dir.place_end(&kept(stream)).with_context(what)?, &path) {
        Ok(()) => return Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(what),
    }
    new_fifo(&path).with_context(what)?;
    Ok(true)
}

/// Whether systemd keeps the FIFO of a stream.
pub(crate) fn is_stored(stored: &Stored, stream: Stream) -> bool {
    stored.has(stream.name())
}

/// Hides a FIFO from processes until [`make`] puts it back. It must continue to exist, since the
/// app may have it open and systemd may keep its ends. But without a mux, a process that opened it
/// would wait, and systemd opens it for each hook of the app's unit.
pub(crate) fn put_away(dir: &AppDir, stream: Stream) -> Result<()> {
    let what = || format!("cannot put away FIFO {}", dir.end(stream.stage2()).display());
    let end = dir.end(stream.stage2());
    fs::rename(&end, end.with_file_name(kept(stream))).with_context(what)?;
    // The links to it.
    dir.remove_end(stream.stage2())
}

/// The name of a FIFO that was put away.
fn kept(stream: Stream) -> String {
    format!("{KEPT}{stream}")
}

/// Whether there is a FIFO of a stream, or one that was put away.
pub(crate) fn is_there(dir: &AppDir, stream: Stream) -> bool {
    dir.has_end(stream.stage2()) || dir.has_end(&kept(stream))
}

/// Makes a FIFO with its mode, independent of the umask.
fn new_fifo(path: &Path) -> io::Result<()> {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(MODE), 0)?;
    set_mode(path, MODE)
}

/// Whether a stream has a FIFO now.
pub(crate) fn exists(dir: &AppDir, stream: Stream) -> bool {
    fs::metadata(dir.end(stream.stage2())).is_ok_and(|m| m.file_type().is_fifo())
}

/// Has systemd keep the FIFO that is there now. Socket units make another one for each of their
/// starts, which systemd refuses under a running app: so nobody has the old one open.
pub(crate) fn renew_foreign(
    dir: &AppDir,
    stream: Stream,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<()> {
    let fd = open(dir, stream, OpenOptions::new().read(true).write(!stream.is_output()))?;
    notify.replace(stream.name(), &fd);
    stored.insert(stream.name(), fd);
    Ok(())
}

/// An output: from systemd's store, else from its FIFO.
pub(crate) fn source(
    dir: &AppDir,
    stream: Stream,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<Source> {
    let read = take_or_open(stored, dir, stream)?;
    let mut write = OpenOptions::new();
    write.write(true);
    // By its path a mux that is not root cannot open it, and by the descriptor none that has no /proc.
    let held = open_again(&read, &write).or_else(|_| open(dir, stream, &mut write))?;
    // A larger pipe halves the cost of fast output.
    let size = resize_pipe(&read, limits::PIPE);
    notify.store(stream.name(), &read);
    let mut source = Source::new(stream, read, Some(held));
    source.pace = Some(Pace::new(size));
    let stage =
        Stage::open(stream.name(), limits::STAGE, stored, notify).context("cannot make a pipe")?;
    Ok(source.staged(stage))
}

/// The input: from systemd's store, else from its FIFO, opened for both so that it never lacks a
/// reader.
pub(crate) fn input(dir: &AppDir, stored: &mut Stored, notify: &Notify) -> Result<AppInput> {
    let stream = Stream::Stdin;
    let fd = take_or_open(stored, dir, stream)?;
    resize_pipe(&fd, INPUT_PIPE);
    notify.store(stream.name(), &fd);
    Ok(AppInput::new(fd))
}

/// The stage of the input.
pub(crate) fn input_stage(stored: &mut Stored, notify: &Notify) -> Result<Option<Stage>> {
    let size = INPUT_STAGE;
    Stage::open(Stream::Stdin.name(), size, stored, notify).context("cannot make a pipe")
}

/// A stored end, else that of the path.
fn take_or_open(stored: &mut Stored, dir: &AppDir, stream: Stream) -> Result<OwnedFd> {
    let mut how = OpenOptions::new();
    how.read(true).write(!stream.is_output());
    stored.remove(stream.name()).map_or_else(|| open(dir, stream, &mut how), Ok)
}

/// Opens a FIFO.
fn open(dir: &AppDir, stream: Stream, how: &mut OpenOptions) -> Result<OwnedFd> {
    let path = dir.end(stream.stage2());
    let what = || format!("cannot open FIFO {}", path.display());
    // Root opens it for a mux that is not, which could replace that of the input.
    let file: File = how.custom_flags(O_NONBLOCK | O_NOFOLLOW).open(&path).with_context(what)?;
    if !file.metadata().with_context(what)?.file_type().is_fifo() {
        bail!("{}: not a FIFO", what());
    }
    Ok(file.into())
}

/// Renames a file to the first free `NAME.moved`, `NAME.moved.2`, ….
fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 1 { ".moved".into() } else { format!(".moved.{n}") });
        PathBuf::from(name)
    };
    let free = (1..u32::MAX).map(name).find(|p| fs::symlink_metadata(p).is_err());
    let aside = free.ok_or_else(|| io::Error::other("no name is free"))?;
    fs::rename(path, &aside)?;
    Ok(aside)
}
