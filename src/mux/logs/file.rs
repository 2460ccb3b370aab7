//! A log that is a file: opened for appending, made with its directories, rotated by renaming.
//!
//! The file is opened through a descriptor of its directory, without following a link: an app that can
//! write the directory could replace its log by a link to any file. A mux that is root also refuses
//! directories that another user could exchange. Each opening and each rotation checks that again.
//!
//! Invariants: no byte of a log is overwritten or truncated, except half an event that a killed mux left
//! at the end of a recording. A rotation that is interrupted at any step loses nothing.

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

use crate::logfmt::chunk::Chunk;
use crate::logfmt::encoder::LogFormat;
use crate::logfmt::format::cast::{self, Cast};
use crate::logfmt::path::LogPath;
use crate::os::walk::{Links, Walk, is_proc, refusal};
use crate::types::limits;

/// Mode of a log.
const MODE: Mode = Mode::from_raw_mode(0o640);
/// The directory of a process's own descriptors. A link to it leads to a file that the mux has open.
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
    claims: Claims,
    rotation: Option<Rotation>,
    format: &'static LogFormat,
    recording: Option<Recording>,
    open: Option<Open>,
    /// Whether the file may end with an unfinished line of an earlier app.
    begins: bool,
    /// Whether rotated files beyond the number that is kept are removed.
    is_tidy: bool,
    /// The file that has the written part of the chunk.
    begun: Option<FileId>,
    /// Up to this size, rotation is not tried again after a failure.
    unrotated: u64,
}

/// The state of a file that is a recording.
#[derive(Debug)]
struct Recording {
    cast: Cast,
    /// The file whose header was written or read.
    of: Option<FileId>,
}

#[derive(Debug)]
struct Open {
    dir: OwnedFd,
    file: File,
    size: u64,
    /// Whether it ends amid an entry of an earlier mux.
    is_torn: bool,
}

/// Device and inode.
type FileId = (u64, u64);

/// The files of the logs of an app. No two logs may have the same file, whatever its names. It is checked
/// when a log opens its file, not at the start: a target may hang.
#[derive(Clone, Debug, Default)]
pub struct Claims(Arc<Mutex<Vec<(LogPath, FileId)>>>);

impl Claims {
    /// Reserves a file for the log with this path, and releases its earlier one.
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
    /// Opens the directory of the file, and makes it if it is missing.
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
        let is_own = target.strip_prefix(OWN).is_some_and(|fd| fd.iter().all(u8::is_ascii_digit));
        let owner = statat(dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_own && Walk::new()?.owners().trust(&owner) {
            // /dev/stdout: what this mux was started with.
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

    /// Opens the file for appending. A FIFO without a reader is an error, not a wait.
    fn open(&self) -> io::Result<Open> {
        let dir = self.open_dir()?;
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = match self.open_name(&dir, flags | OFlags::CREATE | OFlags::EXCL) {
            Ok(new) => {
                // The umask does not apply.
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

    /// Renames the file, unless its path leads to another directory now: then the next file is there.
    fn rotate(&self, dir: &OwnedFd, files: u32) -> io::Result<()> {
        let now = self.open_dir()?;
        if id(&fstat(&now)?) == id(&fstat(dir)?) { rotate(dir, &self.name, files) } else { Ok(()) }
    }

    /// Whether a file ends amid a line, if it can be read.
    fn is_torn(&self, dir: &OwnedFd, size: u64) -> bool {
        self.read_end(dir, size, 1).is_ok_and(|last| last != b"\n")
    }

    /// Reads the last `len` bytes of a file of this size, or all of it.
    fn read_end(&self, dir: &OwnedFd, size: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = File::from(self.open_name(dir, OFlags::RDONLY)?);
        let mut end = vec![0; usize::try_from(size).map_or(len, |size| size.min(len))];
        let at = size - end.len() as u64;
        file.read_exact_at(&mut end, at)?;
        Ok(end)
    }
}

impl LogFile {
    /// A log that is opened at the first write, or by [`LogFile::reopen`]. All logs of an app share
    /// `claims`.
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

    /// A recording, which has a header and is never rotated.
    pub fn recording(
        path: LogPath,
        claims: &Claims,
        cast: Cast,
        format: &'static LogFormat,
    ) -> Self {
        let recording = Some(Recording { cast, of: None });
        Self { recording, ..Self::new(path, claims, None, format) }
    }

    /// The next chunk does not continue the file.
    pub(crate) fn begin(&mut self) {
        self.begins = true;
    }

    /// Reopens the file by its name; on failure the old one is kept.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.open_by_name()?;
        Ok(())
    }

    fn open_by_name(&mut self) -> io::Result<&mut Open> {
        let mut open = self.path.open()?;
        let stat = fstat(&open.file)?;
        if is_plain(&stat) {
            self.claims.claim(&self.path, id(&stat))?;
        }
        if let Some(recording) = &mut self.recording {
            recording.resume(&self.path, &mut open, self.begun)?;
        }
        if let Some(rotation) = self.rotation.filter(|_| !self.is_tidy) {
            remove_beyond(&open.dir, &self.path.name, rotation.files);
            self.is_tidy = true;
        }
        Ok(self.open.insert(open))
    }

    /// Appends some of the rest of a chunk.
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
            // An earlier mux could not end its entry.
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
                        log::error!("log {}: cannot rotate it: {e}", path.display());
                        // A larger file is better than lost lines.
                        self.unrotated = open.size.saturating_add(rotation.size);
                    }
                }
            }
            // The rest of the split line comes first.
            end = end.min(cut.unwrap_or(end));
        }
        // Whole entries: a file that is truncated meanwhile begins with one.
        end = memrchr(b'\n', &chunk.bytes[chunk.done..end]).map_or(end, |at| chunk.done + at + 1);
        match open.file.write(&chunk.bytes[chunk.done..end]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                chunk.done += len;
                open.size += len as u64;
                self.begun = Some(id(&stat));
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The reader of a FIFO is slow.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(open.file.as_fd(), PollFlags::POLLOUT)];
                let wait = PollTimeout::try_from(limits::LOG_STUCK).unwrap_or(PollTimeout::MAX);
                if poll(&mut fds, wait)? == 0 {
                    return Err(io::Error::new(ErrorKind::TimedOut, "no process reads it"));
                }
            }
            Err(e) => {
                match e.kind() {
                    // There may be room later.
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

    /// Ends the unfinished lines of an earlier app before the first entry, if the file can be read.
    fn close_lines(&mut self, chunk: &mut Chunk) {
        let Some(open) = &self.open else { return };
        let tail = self.path.read_end(&open.dir, open.size, limits::LOG_OPEN_TAIL);
        let ends = self.format.end_lines(&tail.unwrap_or_default());
        chunk.cut = chunk.cut.map(|cut| cut + ends.len());
        chunk.bytes.splice(0..0, ends);
    }

    /// Opens the file if it is not open, or was removed.
    fn be_open(&mut self) -> io::Result<Stat> {
        if let Some(open) = &self.open {
            let stat = fstat(&open.file)?;
            if stat.st_nlink > 0 {
                return Ok(stat);
            }
        }
        let open = self.open_by_name()?;
        Ok(fstat(&open.file)?)
    }

    /// Goes back to the beginning of an entry if the rest of it would go to another file, or to one that
    /// was truncated: a file begins with an entry.
    fn go_back(&self, chunk: &mut Chunk, stat: &Stat) {
        if self.format.is_lines && (self.begun != Some(id(stat)) || is_empty(stat)) {
            let end = memrchr(b'\n', &chunk.bytes[..chunk.done]);
            chunk.done = end.map_or(0, |at| at + 1);
        }
    }
}

impl Recording {
    /// Reads an existing file, unless it is the one that was written last. It must be a recording, which
    /// continues behind its last whole event.
    fn resume(&mut self, path: &LogPath, open: &mut Open, begun: Option<FileId>) -> io::Result<()> {
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
            return Err(io::Error::other("it has just been replaced"));
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
            let why = "the file exists and is not a recording (asciicast v2 with a timestamp)";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        };
        if half > 0 {
            open.size -= half as u64;
            rustix::fs::ftruncate(&open.file, open.size)?;
        }
        self.of = Some(id(&stat));
        Ok(())
    }

    /// Sets the times of a chunk for a file, and adds the header to a new one.
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
/// free, or the last that is kept. It begins with the highest: if it is interrupted, each file has one
/// name, and the next rotation continues. A link is not renamed: its target would be lost from sight.
fn rotate(dir: &OwnedFd, name: &OsString, files: u32) -> io::Result<()> {
    if statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| !is_plain(&stat)) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let last = files.max(1);
    let is_free =
        |number: &u32| statat(dir, numbered(name, *number), AtFlags::SYMLINK_NOFOLLOW).is_err();
    let free = (1..last).find(is_free).unwrap_or(last);
    for number in (0..free).rev() {
        match renameat(dir, numbered(name, number), dir, numbered(name, number + 1)) {
            // Another program has moved it.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

/// Removes the rotated files of an earlier mux that kept more of them. It begins with the highest: if it
/// is interrupted, the newest files are left.
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
