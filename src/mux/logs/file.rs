//! A log that is a file: opened for appending, made with its directories, rotated by renaming.
//!
//! The file is opened through a descriptor of its directory, without following a link: an app that
//! can write the directory could replace its log by a link to any file. A mux that is root also
//! refuses directories that another user could exchange. Each opening and each rotation checks that
//! again.
//!
//! Before each write the chunk's memory notes the file and its size. So the size tells the next mux
//! how much of a chunk a killed mux has written, and it continues with the next byte.
//!
//! Invariants: no byte of a log is overwritten or truncated, except half an event that a killed mux
//! left at the end of a recording. A rotation that is interrupted at any step loses nothing.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Instant;

use memchr::memrchr;
use nix::unistd::Uid;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::journal_fifo::wait_for_reader;
use crate::core::logfmt::chunk::{Chunk, Progress};
use crate::core::logfmt::encoder::LogFormat;
use crate::core::logfmt::format::cast::Cast;
use crate::core::logfmt::path::LogPath;
use crate::sys::files::open_again;
use crate::sys::walk::{Links, Walk, is_proc, refusal};
use crate::types::limits;
use crate::types::record::{may_be_killed, until_killed};

/// Bytes per write to a log: large pieces cost a sixth less in the page cache. A disk that takes
/// this much in `LOG_STUCK` is slow, but does not hang.
const LOG_WRITE: usize = 256 * 1024;
/// Bytes of a recording in which its header is searched: it may have a title and colours.
const RECORD_HEAD: u64 = 64 * 1024;
/// Bytes at the end of a recording in which its last event is searched: `RECORD_EVENT` with each
/// byte escaped as six, and the rest.
const RECORD_TAIL: u64 = 128 * 1024;

/// Mode of a log.
const MODE: Mode = Mode::from_raw_mode(0o640);
/// The directory of a process's own descriptors. A link to it leads to a file that the mux has
/// open.
const OWN: &[u8] = b"/proc/self/fd/";

/// How the mux rotates a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file at most. A line that was split is kept together as long as the file does not
    /// become twice as large.
    pub(crate) size: u64,
    /// Rotated files that are kept: `NAME.1` is the newest.
    pub(crate) files: u32,
}

/// An open log.
#[derive(Debug)]
pub struct LogFile {
    path: LogPath,
    rotation: Option<Rotation>,
    format: &'static LogFormat,
    /// The header and the times of a recording.
    recording: Option<Cast>,
    open: Option<OpenedLog>,
    /// Whether rotated files beyond the number that is kept are removed.
    is_tidy: bool,
    /// The file that has the written part of the chunk.
    begun: Option<FileId>,
    /// What the file gets before the rest of the chunk: the end of a torn entry, or a header.
    lead: Vec<u8>,
    /// Up to this size, rotation is not tried again after a failure.
    unrotated: u64,
    /// When the file is looked for by its name again, after a failure.
    reopen_at: Option<Instant>,
}

#[derive(Debug)]
struct OpenedLog {
    dir: OwnedFd,
    file: File,
    size: u64,
    /// Whether it ends amid an entry of an earlier mux.
    is_torn: bool,
}

/// Device and inode.
type FileId = (u64, u64);

impl LogPath {
    /// Opens the directory of the file, and makes it if it is missing.
    fn open_dir(&self) -> io::Result<OwnedFd> {
        let is_root = Uid::effective().is_root();
        // Where no link is followed, other users of the directory can only replace the log: the
        // owner of rkt's host chose who they are.
        let is_guarded = is_root && self.links;
        let walk = Walk::new()?.making();
        let mut walk = if is_guarded { walk.guarded() } else { walk };
        let links = if self.links { Links::Trusted } else { Links::None };
        let mut reach = || {
            walk.go(&self.root, Links::Trusted)?;
            walk.go(&self.below.iter().collect::<PathBuf>(), links)?;
            if is_guarded { walk.check(false) } else { Ok(()) }
        };
        reach().map_err(|e| match e.kind() {
            ErrorKind::InvalidData if is_guarded => {
                refusal(format!("{e} (as root the mux writes logs only below directories of root)"))
            }
            _ => e,
        })?;
        if is_root && let Err(e) = walk.check(false) {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| log::warn!("{}: {e}", self.path().display()));
        }
        Ok(walk.into_fd())
    }

    /// Opens the file, but not through a link: the app's user may have made it.
    fn open_name(&self, dir: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        match openat(dir, &self.name, flags | OFlags::NOFOLLOW, MODE) {
            Err(Errno::LOOP) => {}
            opened => return Ok(opened?),
        }
        if is_proc(dir) {
            // A link of the kernel.
            return Ok(openat(dir, &self.name, flags, MODE)?);
        }
        let target = readlinkat(dir, &self.name, Vec::new())?.into_bytes();
        let owner = statat(dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if let Some(own) = own_output(dir, &target)
            && Walk::new()?.owners().trust(&owner)
        {
            return Ok(openat(CWD, own, flags, MODE)?);
        }
        let (path, target) = (self.path(), Path::new(std::ffi::OsStr::from_bytes(&target)));
        Err(refusal(format!(
            "{} is a symbolic link to {}, and a log does not follow links; remove it, or name the \
             file itself",
            path.display(),
            target.display()
        )))
    }

    /// Opens the file for appending. A FIFO without a reader is an error, not a wait.
    fn open(&self) -> io::Result<OpenedLog> {
        let dir = self.open_dir()?;
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = match create(&dir, &self.name) {
            Ok(new) => new,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => self.open_name(&dir, flags)?,
            Err(e) => return Err(e),
        };
        let stat = fstat(&file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let is_torn =
            is_plain(&stat) && size > 0 && read_end(&file, size, 1).is_ok_and(|last| last != b"\n");
        Ok(OpenedLog { dir, file: file.into(), size, is_torn })
    }

    /// Renames the file, unless its path leads to another directory now: then the next file is
    /// there.
    fn rotate(&self, dir: &OwnedFd, files: u32) -> io::Result<()> {
        let now = self.open_dir()?;
        if id(&fstat(&now)?) != id(&fstat(dir)?) {
            return Ok(());
        }
        rotate(dir, &self.name, files).inspect(|()| may_be_killed())
    }
}

/// Reads the last `len` bytes of a file of this size, or all of it.
fn read_end(file: impl AsFd, size: u64, len: u64) -> io::Result<Vec<u8>> {
    read(file, size.saturating_sub(len)..size)
}

/// Reads a part of a file, which may be open only for writing.
fn read(file: impl AsFd, part: Range<u64>) -> io::Result<Vec<u8>> {
    let file = File::from(open_again(file, OpenOptions::new().read(true))?);
    let mut bytes = vec![0; usize::try_from(part.end - part.start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, part.start)?;
    Ok(bytes)
}

impl LogFile {
    /// A log that is opened at the first write, or by [`LogFile::reopen`].
    pub fn new(
        path: LogPath,
        format: &'static LogFormat,
        rotation: Option<Rotation>,
        recording: Option<Cast>,
    ) -> Self {
        Self {
            path,
            rotation,
            format,
            recording,
            open: None,
            is_tidy: false,
            begun: None,
            lead: Vec::new(),
            unrotated: 0,
            reopen_at: None,
        }
    }

    /// Reopens the file by its name; on failure the old one is kept, until the name leads to a
    /// file.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        let opened = self.open_by_name().map(drop);
        self.reopen_at = opened.is_err().then(|| Instant::now() + limits::LOG_RETRY);
        opened
    }

    fn open_by_name(&mut self) -> io::Result<&mut OpenedLog> {
        let mut open = self.path.open()?;
        let stat = fstat(&open.file)?;
        if let Some(cast) = self.recording.as_mut().filter(|_| is_plain(&stat))
            && open.size > 0
            && self.begun != Some(id(&stat))
        {
            continue_recording(&mut open, cast)?;
        }
        if let Some(rotation) = self.rotation.filter(|_| !self.is_tidy) {
            remove_beyond(&open.dir, &self.path.name, rotation.files);
            self.is_tidy = true;
        }
        // What is to come first depends on the file.
        self.lead.clear();
        Ok(self.open.insert(open))
    }

    /// Appends some of the rest of a chunk, or of what comes before it.
    pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let stat = self.be_open()?;
        self.resume(chunk, &stat);
        if chunk.done == chunk.bytes.len() {
            return Ok(());
        }
        self.go_back(chunk, &stat);
        self.set_lead(chunk, &stat);
        if !self.lead.is_empty() {
            let lead = std::mem::take(&mut self.lead);
            let written = self.append(&lead);
            self.lead = lead[*written.as_ref().unwrap_or(&0)..].to_vec();
            if self.lead.is_empty() {
                self.begun = Some(id(&stat));
            }
            return written.map(drop);
        }
        let is_file = is_plain(&stat);
        let size = if is_file { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        let mut end = chunk.bytes.len().min(chunk.done + LOG_WRITE);
        if let Some(rotation) = self.rotation.filter(|_| is_file && size > self.unrotated) {
            let later = size + (chunk.bytes.len() - chunk.done) as u64;
            let cut = chunk.cut.filter(|cut| *cut >= chunk.done && later > rotation.size);
            // Between two entries of a line that may never end.
            let is_endless = later > 2 * rotation.size && begins_entry(chunk);
            if (cut == Some(chunk.done) || is_endless) && self.rotate(rotation, size) {
                return Ok(());
            }
            // The rest of the split line comes first.
            end = cut.filter(|cut| *cut > chunk.done).map_or(end, |cut| end.min(cut));
        }
        // Whole entries: a file that is truncated meanwhile begins with one.
        end = memrchr(b'\n', &chunk.bytes[chunk.done..end]).map_or(end, |at| chunk.done + at + 1);
        let file = if is_file { id(&stat) } else { FileId::default() };
        chunk.note_progress(file, size);
        let len = self.append_rest(chunk, end)?;
        chunk.done += len;
        if len > 0 {
            self.begun = Some(id(&stat));
        }
        chunk.note_progress(file, size + len as u64);
        Ok(())
    }

    /// Appends what is left of a chunk up to `end`, or less; of a recording, with the times of the
    /// file.
    fn append_rest(&mut self, chunk: &Chunk, end: usize) -> io::Result<usize> {
        let Some(cast) = &self.recording else {
            return self.append(&chunk.bytes[chunk.done..end]);
        };
        // The whole of an event that was begun: its time may be among what is left.
        let begin = memrchr(b'\n', &chunk.bytes[..chunk.done]).map_or(0, |at| at + 1);
        let mut events = chunk.bytes[begin..end].to_vec();
        cast.place(&mut events);
        let done = chunk.done - begin;
        let len = self.append(&events[done..])?;
        self.recording.iter_mut().for_each(|cast| cast.written(&events[..done + len]));
        Ok(len)
    }

    /// Appends some bytes, or none after a wait.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(open) = &mut self.open else { return Ok(0) };
        let written = open.file.write(until_killed(bytes));
        may_be_killed();
        match written {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                open.size += len as u64;
                Ok(len)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(0),
            // The reader of a FIFO is slow.
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait_for_reader(&open.file).map(|()| 0),
            Err(e) => {
                let (kind, size) = (e.kind(), open.size);
                if kind == ErrorKind::FileTooLarge
                    && let Some(rotation) = self.rotation.filter(|_| size > 0)
                    && self.rotate(rotation, size)
                {
                    return Ok(0);
                }
                if is_full(&e) || kind == ErrorKind::FileTooLarge {
                    // There may be room later, or another file of this name.
                    self.reopen_at = Some(Instant::now());
                } else {
                    self.open = None;
                }
                if kind == ErrorKind::BrokenPipe {
                    // The next reader begins with a whole entry.
                    self.begun = None;
                }
                Err(e)
            }
        }
    }

    /// Begins another file, if that works. A larger file is better than lost lines.
    fn rotate(&mut self, rotation: Rotation, size: u64) -> bool {
        let Some(open) = &self.open else { return false };
        match self.path.rotate(&open.dir, rotation.files) {
            Ok(()) => (self.open, self.unrotated) = (None, 0),
            Err(e) => {
                log::error!("log {}: cannot rotate it: {e}", self.path.path().display());
                self.unrotated = size.saturating_add(rotation.size);
            }
        }
        self.open.is_none()
    }

    /// Sets what the file gets before the rest of the chunk.
    fn set_lead(&mut self, chunk: &Chunk, stat: &Stat) {
        let Some(open) = &mut self.open else { return };
        if let Some(cast) = &mut self.recording {
            // Each reader of a FIFO gets one, too.
            let is_new = !is_plain(stat) && self.begun != Some(id(stat)) && self.lead.is_empty();
            if is_empty(stat) || is_new {
                self.lead = cast.begin(&chunk.bytes[chunk.done..]);
            }
            return;
        }
        if !self.lead.is_empty() {
            return;
        }
        let is_torn = std::mem::take(&mut open.is_torn);
        if self.format.is_lines && is_torn && self.begun != Some(id(stat)) {
            // An earlier mux could not end its entry.
            self.lead = b"\n".to_vec();
        }
    }

    /// Looks how far an earlier mux came with a chunk: it may have written more than it has noted.
    fn resume(&mut self, chunk: &mut Chunk, stat: &Stat) {
        let Some(Progress { file, size, .. }) = chunk.earlier.take() else { return };
        let Some(open) = self.open.as_ref().filter(|_| file != FileId::default()) else { return };
        let now = if file == id(stat) {
            u64::try_from(stat.st_size).ok()
        } else {
            // It was renamed.
            size_of(&open.dir, file)
        };
        let more = now.and_then(|now| usize::try_from(now.saturating_sub(size)).ok()).unwrap_or(0);
        chunk.done = chunk.bytes.len().min(chunk.done.saturating_add(more));
        // Half an event was cut off from a recording, which gets all of it.
        self.begun = Some(file).filter(|_| self.recording.is_none());
    }

    /// Opens the file if it is not open, or was removed.
    fn be_open(&mut self) -> io::Result<Stat> {
        if self.reopen_at.is_some_and(|at| at <= Instant::now()) {
            // On failure the old one may work again.
            let _ = self.reopen();
        }
        if let Some(open) = &self.open {
            let stat = fstat(&open.file)?;
            if stat.st_nlink > 0 {
                return Ok(stat);
            }
        }
        let open = self.open_by_name()?;
        Ok(fstat(&open.file)?)
    }

    /// Goes back to the beginning of an entry if the rest of it would go to another file, or to one
    /// that was truncated: a file begins with an entry.
    fn go_back(&self, chunk: &mut Chunk, stat: &Stat) {
        if self.format.is_lines && (self.begun != Some(id(stat)) || is_empty(stat)) {
            let end = memrchr(b'\n', &chunk.bytes[..chunk.done]);
            chunk.done = end.map_or(0, |at| at + 1);
        }
    }
}

/// Where a link such as /dev/stdout leads, if it is to the standard output of this mux: on some systems
/// by way of the link /dev/fd beside it.
fn own_output(dir: &OwnedFd, target: &[u8]) -> Option<Vec<u8>> {
    let by_fd = || {
        let fd = readlinkat(dir, "fd", Vec::new()).ok()?.into_bytes();
        target.strip_prefix(b"fd/").filter(|_| fd == OWN[..OWN.len() - 1])
    };
    let number = target.strip_prefix(OWN).or_else(by_fd)?;
    number.iter().all(u8::is_ascii_digit).then(|| [OWN, number].concat())
}

/// Reads an existing file, which must be a recording, and continues it after its last whole event.
fn continue_recording(open: &mut OpenedLog, cast: &mut Cast) -> io::Result<()> {
    let head = read(&open.file, 0..open.size.min(RECORD_HEAD))?;
    let end = read_end(&open.file, open.size, RECORD_TAIL)?;
    let half = cast.resume(&head, &end).ok_or_else(|| {
        let why = "the file exists and is not a recording (asciicast v2 with a timestamp)";
        io::Error::new(ErrorKind::InvalidData, why)
    })?;
    if half > 0 {
        open.size -= half as u64;
        rustix::fs::ftruncate(&open.file, open.size)?;
    }
    Ok(())
}

fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

fn is_empty(stat: &Stat) -> bool {
    is_plain(stat) && stat.st_size == 0
}

/// Makes a file that is not there.
fn create(dir: &OwnedFd, name: &OsString) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let new = openat(dir, name, flags, MODE)?;
    // The umask does not apply.
    rustix::fs::fchmod(&new, MODE)?;
    Ok(new)
}

/// Whether there is no room on the disk.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The size of the file in this directory that was renamed.
fn size_of(dir: &OwnedFd, file: FileId) -> Option<u64> {
    let entries = Dir::read_from(dir).ok()?.filter_map(Result::ok);
    let mut named = entries.filter(|entry| entry.ino() == file.1);
    named.find_map(|entry| {
        let stat = statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let size = u64::try_from(stat.st_size).ok()?;
        (is_plain(&stat) && id(&stat) == file).then_some(size)
    })
}

/// Whether the rest of a chunk begins with an entry.
fn begins_entry(chunk: &Chunk) -> bool {
    chunk.done.checked_sub(1).is_none_or(|at| chunk.bytes[at] == b'\n')
}

fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// Renames `NAME` to `NAME.1`, after `NAME.1` to `NAME.2`, and so on up to the first number that is
/// free, or the last that is kept. It begins with the highest: if it is interrupted, each file has
/// one name, and the next rotation continues. A link is not renamed: its target would be lost from
/// sight.
fn rotate(dir: &OwnedFd, name: &OsString, files: u32) -> io::Result<()> {
    if statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| !is_plain(&stat)) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let last = files.max(1);
    let is_free =
        |number: &u32| statat(dir, numbered(name, *number), AtFlags::SYMLINK_NOFOLLOW).is_err();
    let free = (1..last).find(is_free).unwrap_or(last);
    for number in (0..free).rev() {
        may_be_killed();
        match renameat(dir, numbered(name, number), dir, numbered(name, number + 1)) {
            // Another program has moved it.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

/// Removes the rotated files of an earlier mux that kept more of them. It begins with the highest:
/// if it is interrupted, the newest files are left.
fn remove_beyond(dir: &OwnedFd, name: &OsString, files: u32) {
    for number in (files.saturating_add(1)..=limits::LOG_FILES_MAX).rev() {
        let name = numbered(name, number);
        let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| is_plain(&stat)) {
            // A file that cannot be removed only takes space.
            let _ = unlinkat(dir, &name, AtFlags::empty());
        }
    }
}

/// `NAME.1` and so on; `NAME` for 0.
fn numbered(name: &OsString, number: u32) -> OsString {
    let mut numbered = name.clone();
    if number > 0 {
        numbered.push(format!(".{number}"));
    }
    numbered
}
