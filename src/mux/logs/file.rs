//! A log that is a file: opened for appending, made with its directories, rotated by renaming.
//!
//! Everything goes through a descriptor of the file's directory, and the file itself is opened without
//! following a link: an app that can write the directory could replace its log by a link to any file.
//! Where the mux is root, it also refuses directories that another user could exchange; each opening
//! and each rotation looks again. Invariants: no byte of a log is ever
//! overwritten or truncated, but for the half of an event that a mux which was killed has left at the
//! end of a recording; a rotation that is broken off at any step loses nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use memchr::{memchr, memrchr};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Uid;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::logfmt::cast::{self, Cast};
use crate::logfmt::chunk::Chunk;
use crate::logfmt::encoder::LogFormat;
use crate::logfmt::path::LogPath;
use crate::os::walk::{Links, Walk, is_proc, refusal};
use crate::types::limits;

/// Mode of a log.
const MODE: Mode = Mode::from_raw_mode(0o640);
/// Where a process finds its own descriptors: a link that leads there is one to what the mux has already.
const OWN: &[u8] = b"/proc/self/fd/";

/// How a log is rotated by ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file at most, but for the rest of a line that was split: that is kept together as
    /// long as the file does not become twice as large.
    pub(crate) size: u64,
    /// Files kept beside the one that is written: `NAME.1` is the newest.
    pub(crate) files: u32,
}

/// An open log.
#[derive(Debug)]
pub struct LogFile {
    path: LogPath,
    claims: Claims,
    rotation: Option<Rotation>,
    format: &'static LogFormat,
    recording: Option<Recording>,
    open: Option<Open>,
    /// The file may end with a line that an app before this one has begun.
    begins: bool,
    /// Files beyond the number that is kept have been removed.
    is_tidy: bool,
    /// The file that has the chunk up to where it is done.
    begun: Option<FileId>,
    /// Up to this size it is not tried to rotate it again: it could not be.
    unrotated: u64,
}

/// What a file that is a recording has more.
#[derive(Debug)]
struct Recording {
    cast: Cast,
    /// The file whose header is known: written, or read.
    of: Option<FileId>,
}

#[derive(Debug)]
struct Open {
    dir: OwnedFd,
    file: File,
    size: u64,
    /// Whether it ends amid an entry of which nothing is known here.
    is_torn: bool,
}

/// Device and inode.
type FileId = (u64, u64);

/// The files that the logs of an app have: no two may have the same one, by whatever names. That is found
/// out when it is open, and not at the start: looking may take as long as a target hangs.
#[derive(Clone, Debug, Default)]
pub struct Claims(Arc<Mutex<Vec<(LogPath, FileId)>>>);

impl Claims {
    /// Makes a file that of the log with this path, and of no other one from now on.
    fn claim(&self, path: &LogPath, file: FileId) -> io::Result<()> {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.iter().any(|(other, its)| other != path && *its == file) {
            return Err(io::Error::other("another log of this app has the same file"));
        }
        claims.retain(|(other, _)| other != path);
        claims.push((path.clone(), file));
        Ok(())
    }
}

impl LogPath {
    /// The directory of the file, made if it is not there.
    fn open_dir(&self) -> io::Result<OwnedFd> {
        let is_root = Uid::effective().is_root();
        let walk = Walk::new()?.making();
        let mut walk = if is_root { walk.guarded() } else { walk };
        let links = if self.links { Links::Trusted } else { Links::None };
        let mut reach = || {
            walk.go(&self.root, Links::Trusted)?;
            walk.go(&self.below.iter().collect::<PathBuf>(), links)?;
            if is_root { walk.check(false) } else { Ok(()) }
        };
        reach().map_err(|e| match e.kind() {
            ErrorKind::InvalidData if is_root => {
                refusal(format!("{e} (as root the mux writes logs only below directories of root)"))
            }
            _ => e,
        })?;
        Ok(walk.into_fd())
    }

    /// Opens the file, but not by a link: the app's user may have put it there.
    fn open_name(&self, dir: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        match openat(dir, &self.name, flags | OFlags::NOFOLLOW, MODE) {
            Err(Errno::LOOP) => {}
            opened => return Ok(opened?),
        }
        if is_proc(dir) {
            // One of the kernel's, which nobody else can make.
            return Ok(openat(dir, &self.name, flags, MODE)?);
        }
        let target = readlinkat(dir, &self.name, Vec::new())?.into_bytes();
        let is_own = target.strip_prefix(OWN).is_some_and(|fd| fd.iter().all(u8::is_ascii_digit));
        let owner = statat(dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_own && Walk::new()?.owners().trust(&owner) {
            // /dev/stdout, which leads to what this mux was started with.
            return Ok(openat(CWD, target, flags, MODE)?);
        }
        let (path, target) = (self.path(), Path::new(std::ffi::OsStr::from_bytes(&target)));
        Err(refusal(format!(
            "{} is a symbolic link to {}, and a log does not follow links; remove it, or name the \
             file itself",
            path.display(),
            target.display()
        )))
    }

    /// The file, for appending. A FIFO that nobody reads is an error, and never a wait.
    fn open(&self) -> io::Result<Open> {
        let dir = self.open_dir()?;
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = match self.open_name(&dir, flags | OFlags::CREATE | OFlags::EXCL) {
            Ok(new) => {
                // Whatever the umask is.
                rustix::fs::fchmod(&new, MODE)?;
                new
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => self.open_name(&dir, flags)?,
            Err(e) => return Err(e),
        };
        let stat = fstat(&file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let is_torn = is_plain(&stat) && size > 0 && self.is_torn(&dir, size);
        Ok(Open { dir, file: file.into(), size, is_torn })
    }

    /// Renames the file, unless its path leads to another directory by now: then that has the next one.
    fn rotate(&self, dir: &OwnedFd, files: u32) -> io::Result<()> {
        let now = self.open_dir()?;
        if id(&fstat(&now)?) == id(&fstat(dir)?) { rotate(dir, &self.name, files) } else { Ok(()) }
    }

    /// Whether a file ends amid a line, as far as it can be read.
    fn is_torn(&self, dir: &OwnedFd, size: u64) -> bool {
        self.read_end(dir, size, 1).is_ok_and(|last| last != b"\n")
    }

    /// The last bytes of a file of this size, as many as there are of these.
    fn read_end(&self, dir: &OwnedFd, size: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = File::from(self.open_name(dir, OFlags::RDONLY)?);
        let mut end = vec![0; usize::try_from(size).map_or(len, |size| size.min(len))];
        let at = size - end.len() as u64;
        file.read_exact_at(&mut end, at)?;
        Ok(end)
    }
}

impl LogFile {
    /// A log that is opened when something is written, or by [`LogFile::reopen`]. `claims` are those of
    /// all logs of its app.
    pub fn new(
        path: LogPath,
        claims: &Claims,
        rotation: Option<Rotation>,
        format: &'static LogFormat,
    ) -> Self {
        let (claims, recording, open, begun) = (claims.clone(), None, None, None);
        let (begins, is_tidy, unrotated) = (false, false, 0);
        Self { path, claims, rotation, format, recording, open, begins, is_tidy, begun, unrotated }
    }

    /// A recording, which has a header and is one file always.
    pub fn recording(
        path: LogPath,
        claims: &Claims,
        cast: Cast,
        format: &'static LogFormat,
    ) -> Self {
        let recording = Some(Recording { cast, of: None });
        Self { recording, ..Self::new(path, claims, None, format) }
    }

    /// What is written next is of another app than what is there.
    pub(crate) fn begin(&mut self) {
        self.begins = true;
    }

    /// Opens the file anew, as it is found by its name now; on failure the old one is kept.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.open_anew()?;
        Ok(())
    }

    fn open_anew(&mut self) -> io::Result<&mut Open> {
        let mut open = self.path.open()?;
        let stat = fstat(&open.file)?;
        if is_plain(&stat) {
            self.claims.claim(&self.path, id(&stat))?;
        }
        if let Some(recording) = &mut self.recording {
            recording.meet(&self.path, &mut open, self.begun)?;
        }
        if let Some(rotation) = self.rotation.filter(|_| !self.is_tidy) {
            remove_beyond(&open.dir, &self.path.name, rotation.files);
            self.is_tidy = true;
        }
        Ok(self.open.insert(open))
    }

    /// Appends some of what is left of a chunk.
    pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let stat = self.be_open()?;
        self.go_back(chunk, &stat);
        let is_file = is_plain(&stat);
        if std::mem::take(&mut self.begins) && is_file && chunk.done == 0 {
            self.close_lines(chunk);
        }
        if let Some(recording) = &mut self.recording {
            recording.place(chunk, &stat);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut end = chunk.bytes.len().min(chunk.done + limits::LOG_WRITE);
        let knows_it = self.begun == Some(id(&stat)) || self.recording.is_some();
        if self.format.is_lines && open.is_torn && !knows_it {
            // An entry that a mux before this one could not end.
            open.file.write_all(b"\n")?;
            (open.size, self.begun) = (open.size + 1, Some(id(&stat)));
        }
        open.is_torn = false;
        let may_rotate = is_file && open.size > self.unrotated;
        if let Some(rotation) = self.rotation.filter(|_| may_rotate) {
            let size = open.size + (chunk.bytes.len() - chunk.done) as u64;
            let cut = chunk.cut.filter(|cut| *cut >= chunk.done && size > rotation.size);
            // Between two entries of a line that may never end.
            let is_endless = size > 2 * rotation.size && begins_entry(chunk);
            if cut == Some(chunk.done) || is_endless {
                match self.path.rotate(&open.dir, rotation.files) {
                    Ok(()) => {
                        (self.open, self.unrotated) = (None, 0);
                        return Ok(());
                    }
                    Err(e) => {
                        let path = self.path.path();
                        log::error!("log {}: it is not rotated: {e}", path.display());
                        // The file grows meanwhile, for that is better than to lose lines.
                        self.unrotated = open.size.saturating_add(rotation.size);
                    }
                }
            }
            // First the rest of the line that is split.
            end = end.min(cut.unwrap_or(end));
        }
        // Whole entries, so that a file that is truncated meanwhile begins with one.
        end = memrchr(b'\n', &chunk.bytes[chunk.done..end]).map_or(end, |at| chunk.done + at + 1);
        match open.file.write(&chunk.bytes[chunk.done..end]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                chunk.done += len;
                open.size += len as u64;
                self.begun = Some(id(&stat));
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // A FIFO whose reader is slow.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(open.file.as_fd(), PollFlags::POLLOUT)];
                let wait = PollTimeout::try_from(limits::LOG_STUCK).unwrap_or(PollTimeout::MAX);
                if poll(&mut fds, wait)? == 0 {
                    return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
                }
            }
            Err(e) => {
                match e.kind() {
                    // There may be room again.
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    }
                    // The next reader begins with a whole entry.
                    ErrorKind::BrokenPipe => {
                        (self.open, self.begun) = (None, None);
                        if let Some(recording) = &mut self.recording {
                            recording.of = None;
                        }
                    }
                    _ => self.open = None,
                }
                return Err(e);
            }
        }
        Ok(())
    }

    /// Puts the ends of lines that an app before this one has begun before the first entry. A file that may
    /// not be read is written on as it is.
    fn close_lines(&mut self, chunk: &mut Chunk) {
        let Some(open) = &self.open else { return };
        let tail = self.path.read_end(&open.dir, open.size, limits::LOG_OPEN_TAIL);
        let ends = self.format.end_lines(&tail.unwrap_or_default());
        chunk.cut = chunk.cut.map(|cut| cut + ends.len());
        chunk.bytes.splice(0..0, ends);
    }

    /// Opens the file if there is none that is open, or if it was removed.
    fn be_open(&mut self) -> io::Result<Stat> {
        if let Some(open) = &self.open {
            let stat = fstat(&open.file)?;
            if stat.st_nlink > 0 {
                return Ok(stat);
            }
        }
        let open = self.open_anew()?;
        Ok(fstat(&open.file)?)
    }

    /// What a file has of an entry is completed in that file. In another one, or where somebody has
    /// truncated it, the entry is written whole: a file begins with an entry.
    fn go_back(&self, chunk: &mut Chunk, stat: &Stat) {
        if self.format.is_lines && (self.begun != Some(id(stat)) || is_empty(stat)) {
            let end = memrchr(b'\n', &chunk.bytes[..chunk.done]);
            chunk.done = end.map_or(0, |at| at + 1);
        }
    }
}

impl Recording {
    /// Reads a file that is there, and was not written last: it must be a recording, which then goes on
    /// behind its last whole event.
    fn meet(&mut self, path: &LogPath, open: &mut Open, begun: Option<FileId>) -> io::Result<()> {
        let stat = fstat(&open.file)?;
        if !is_plain(&stat) || begun == Some(id(&stat)) {
            return Ok(());
        }
        self.of = None;
        if open.size == 0 {
            return Ok(());
        }
        let mut file = File::from(path.open_name(&open.dir, OFlags::RDONLY)?);
        if id(&fstat(&file)?) != id(&stat) {
            return Err(io::Error::other("it was replaced just now"));
        }
        let (mut head, mut end) = (Vec::new(), Vec::new());
        Read::by_ref(&mut file).take(limits::RECORD_HEAD as u64).read_to_end(&mut head)?;
        let skipped = open.size.saturating_sub(limits::RECORD_TAIL as u64);
        file.seek(SeekFrom::Start(skipped))?;
        file.take(limits::RECORD_TAIL as u64).read_to_end(&mut end)?;
        let first = memchr(b'\n', &head).map(|at| &head[..at]);
        let last = cast::last_line(&end, skipped == 0);
        let resumed =
            first.zip(last).is_some_and(|(first, (last, _))| self.cast.resume(first, last));
        let Some((_, half)) = last.filter(|_| resumed) else {
            let why = "there is a file that is no recording (asciicast v2 with a timestamp)";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        };
        if half > 0 {
            open.size -= half as u64;
            rustix::fs::ftruncate(&open.file, open.size)?;
        }
        self.of = Some(id(&stat));
        Ok(())
    }

    /// Sets the times of a chunk for a file, with the header before it if that begins with it.
    fn place(&mut self, chunk: &mut Chunk, stat: &Stat) {
        if self.of != Some(id(stat)) || is_empty(stat) {
            self.cast.begin(chunk);
            self.of = Some(id(stat));
        }
        self.cast.place(chunk);
    }
}

fn is_plain(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

fn is_empty(stat: &Stat) -> bool {
    is_plain(stat) && stat.st_size == 0
}

/// Whether what is left of a chunk begins with an entry.
fn begins_entry(chunk: &Chunk) -> bool {
    chunk.done.checked_sub(1).is_none_or(|at| chunk.bytes[at] == b'\n')
}

fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// Renames `NAME` to `NAME.1`, after `NAME.1` to `NAME.2`, and so on up to the first number that is
/// free, or the last that is kept. From the highest down: whatever step is the last, no file has
/// two names or none, and the next rotation goes on from there.
///
/// A link stays: what it leads to would be found by nobody.
fn rotate(dir: &OwnedFd, name: &OsString, files: u32) -> io::Result<()> {
    if statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| !is_plain(&stat)) {
        return Err(io::Error::other("it is a link"));
    }
    let last = files.max(1);
    let is_free =
        |number: &u32| statat(dir, numbered(name, *number), AtFlags::SYMLINK_NOFOLLOW).is_err();
    let free = (1..last).find(is_free).unwrap_or(last);
    for number in (0..free).rev() {
        match renameat(dir, numbered(name, number), dir, numbered(name, number + 1)) {
            // Somebody has put it elsewhere.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

/// Removes the files that an earlier mux has rotated away and kept, which was to keep more of them.
/// From the highest down, so that those that are left are the newest whatever step is the last.
fn remove_beyond(dir: &OwnedFd, name: &OsString, files: u32) {
    for number in (files.saturating_add(1)..=limits::LOG_FILES_MAX).rev() {
        let name = numbered(name, number);
        let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| is_plain(&stat)) {
            // One that cannot be removed is kept, which harms nothing but the disk.
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
