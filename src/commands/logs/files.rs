//! The files of a log: the one that is written, and beside it those that were rotated away.
//!
//! `NAME.1`, `NAME.2`, … with the newest first, or `NAME.20060102-150405` with the oldest first.
//! Files are known by what they are and not by their names, which change under a reader. Invariants:
//! of one log each file is opened once, in the order in which they were written, and held open until
//! it has been read, whatever happens to its name. What is in them is not looked at here.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use memchr::memchr;
use rustix::fs::{Dir, Mode, OFlags, openat};

use crate::logfmt::encoder::Reader;
use crate::os::walk::{Links, Walk, refusal};
use crate::types::limits;
use crate::types::time::Stamp;

/// What a file is, for as long as somebody has it open; with the time at which it was made, where
/// the file system keeps that, also beyond: then the number goes to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    device: u64,
    number: u64,
    made: Option<SystemTime>,
}

impl From<&Metadata> for Id {
    fn from(of: &Metadata) -> Self {
        Self { device: of.dev(), number: of.ino(), made: of.created().ok() }
    }
}

/// How a file stands to the others of its log, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Dated(String),
    Numbered(Reverse<u32>),
    Written,
}

/// A file of the log as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundFile {
    age: Age,
    compressed: bool,
    path: PathBuf,
    id: Id,
}

/// Who has named a log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    /// The user of this program, who may name any file.
    ByUser,
    /// The document of a mux, which is another user's perhaps: the file must be a log in this format.
    ByMux(Reader),
}

/// An open file of the log.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The file.
    pub(crate) file: File,
    /// The name under which it was found.
    pub(crate) path: PathBuf,
    /// Its number among all that were opened.
    pub(crate) number: u64,
    id: Id,
}

impl Opened {
    /// Its size now, in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    named: Named,
    /// The path without links, once it has led to a file.
    real: Option<PathBuf>,
    /// Files that were not written at this time or later are not wanted.
    since: SystemTime,
    /// To be read, oldest first; the last one is the newest that is known.
    open: VecDeque<Opened>,
    /// Not all could be opened yet.
    cut: bool,
    /// Those that were there at the last look and are not still to be opened. Names do not tell it
    /// all: who rotates may change, and the names of one do not go with those of another.
    seen: Vec<Id>,
    /// The newest compressed file that was there at first.
    compressed: Option<PathBuf>,
    opened: u64,
}

impl Files {
    /// The files of the log that is written at this path, as far as they can have anything of this
    /// time or later. None is opened before [`Files::look`].
    pub(crate) fn new(path: PathBuf, named: Named, since: Stamp) -> Self {
        // The kernel's time of a file may be a little behind the clock.
        let since = Duration::from_nanos(since.0).saturating_sub(limits::CLOCK_TICK);
        Self {
            path,
            named,
            real: None,
            since: UNIX_EPOCH + since,
            open: VecDeque::new(),
            cut: false,
            seen: Vec::new(),
            compressed: None,
            opened: 0,
        }
    }

    /// The files to be read, oldest first.
    pub(crate) fn open(&self) -> &VecDeque<Opened> {
        &self.open
    }

    /// Whether the user of this program has named the log, and knows what is in it.
    pub(crate) fn are_named_by_user(&self) -> bool {
        matches!(self.named, Named::ByUser)
    }

    /// Whether there are more than may be open at once.
    pub(crate) fn are_cut(&self) -> bool {
        self.cut
    }

    /// The newest file that is left out because it is compressed.
    pub(crate) fn compressed(&self) -> Option<&Path> {
        self.compressed.as_deref()
    }

    /// Lets go of the oldest file.
    pub(crate) fn done(&mut self) {
        self.open.pop_front();
    }

    /// Whether a file after the oldest has something in it: then whoever writes has left that one.
    pub(crate) fn writer_is_past(&self) -> io::Result<bool> {
        for later in self.open.iter().skip(1) {
            if later.size()? > 0 {
                return Ok(true);
            }
        }
        Ok(self.cut)
    }

    /// The path of the file that is written, without links as far as that is known.
    pub(crate) fn path(&mut self) -> &Path {
        if self.real.is_none() {
            let reached = self.reach().ok();
            let there = reached.filter(|(walk, name)| open(walk, name, OFlags::PATH).is_ok());
            self.real = there.map(|(walk, name)| walk.path().join(name));
        }
        self.real.as_ref().unwrap_or(&self.path)
    }

    /// The way to the directory of the file that is written, and its name there.
    fn reach(&self) -> io::Result<(Walk, OsString)> {
        let links = if matches!(self.named, Named::ByUser) { Links::All } else { Links::Trusted };
        let mut walk = Walk::new()?;
        let name = walk.find(self.real.as_ref().unwrap_or(&self.path), links)?;
        Ok((walk, name))
    }

    /// Opens what has come. At the first time all that there is; with `newest`, where these are too
    /// many, the newest of them instead of the oldest.
    pub(crate) fn look(&mut self, newest: bool) -> Result<()> {
        for _ in 0..limits::LOG_LOOKS {
            // Names only move on, and none comes back: what has not changed between two looks was
            // all there at one time.
            let found = self.list()?;
            if found == self.list()? && self.take(found, newest)? {
                return Ok(());
            }
        }
        // Who rotates has told of a change, and another look will come.
        Ok(())
    }

    /// Opens those of the files that are new; not if one of them has changed its name meanwhile.
    fn take(&mut self, mut found: Vec<FoundFile>, newest: bool) -> Result<bool> {
        if self.open.is_empty() && self.opened == 0 {
            self.compressed = found.iter().rfind(|f| f.compressed).map(|f| f.path.clone());
        }
        found.retain(|file| !file.compressed);
        let known = self.open.back().map(|newest| newest.id);
        let after = found.iter().rposition(|file| Some(file.id) == known).map_or(0, |at| at + 1);
        let new: Vec<&FoundFile> =
            found[after..].iter().filter(|file| !self.seen.contains(&file.id)).collect();
        let room = limits::LOG_READ_FILES.saturating_sub(self.open.len());
        let skipped = if newest { new.len().saturating_sub(room) } else { 0 };
        let wanted = &new[skipped..new.len().min(skipped + room)];
        if let (Some(first), Some(known)) = (wanted.first(), self.open.back())
            && after == 0
        {
            log::warn!(
                "{} is gone: what was written between it and {} may be missing",
                known.path.display(),
                first.path.display()
            );
        }
        for file in wanted {
            if !self.open_one(file)? {
                return Ok(false);
            }
        }
        self.cut = skipped == 0 && wanted.len() < new.len();
        let unopened = &new[skipped + wanted.len()..];
        let is_seen = |file: &&FoundFile| !unopened.iter().any(|other| other.id == file.id);
        self.seen = found.iter().filter(is_seen).map(|file| file.id).collect();
        Ok(true)
    }

    fn open_one(&mut self, found: &FoundFile) -> Result<bool> {
        let what = || format!("opening {}", found.path.display());
        let name = found.path.file_name().unwrap_or_default();
        let (walk, _) = self.reach().with_context(what)?;
        let file = match open(&walk, name, OFlags::RDONLY) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            file => file.with_context(what)?,
        };
        let id = Id::from(&file.metadata().with_context(what)?);
        if id != found.id {
            return Ok(false);
        }
        if let Named::ByMux(reader) = self.named
            && !is_log(&file, reader).with_context(what)?
        {
            let why = "it is not a log in the format that the mux names; nothing of it is printed";
            return Err(refusal(why.into())).with_context(what);
        }
        self.opened += 1;
        self.open.push_back(Opened { file, path: found.path.clone(), number: self.opened, id });
        Ok(true)
    }

    /// The files that are there, oldest first.
    fn list(&mut self) -> Result<Vec<FoundFile>> {
        let (since, at_first) = (self.since, self.opened == 0);
        let path = self.path().to_owned();
        let dir = path.parent().unwrap_or(Path::new("/"));
        let what = || format!("reading directory {}", dir.display());
        let (walk, name) = match self.reach() {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            reached => reached.with_context(what)?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let read = || Dir::new(openat(walk.fd(), ".", flags, Mode::empty())?);
        let mut found = Vec::new();
        for entry in read().map_err(io::Error::from).with_context(what)? {
            let entry = entry.map_err(io::Error::from).with_context(what)?;
            let file = OsStr::from_bytes(entry.file_name().to_bytes());
            let Some((age, compressed)) = age(&name, file) else { continue };
            let path = walk.path().join(file);
            let metadata = open(&walk, file, OFlags::PATH).and_then(|file| file.metadata());
            let metadata = match metadata {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
            };
            if !metadata.is_file() {
                if age == Age::Written {
                    return Err(io::Error::new(ErrorKind::InvalidData, "it is no plain file"))
                        .with_context(|| format!("reading {}", path.display()));
                }
                continue;
            }
            let is_old = metadata.modified().is_ok_and(|written| written < since);
            if at_first && is_old && age != Age::Written {
                continue;
            }
            found.push(FoundFile { age, compressed, path, id: Id::from(&metadata) });
        }
        found.sort_by(|a, b| a.age.cmp(&b.age));
        Ok(found)
    }
}

/// Opens a file of a directory, without following a link and without waiting for anybody.
fn open(walk: &Walk, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let always = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(openat(walk.fd(), name, flags | always, Mode::empty())?.into())
}

/// Whether a file begins with an entry of this format, as far as there is anything in it.
fn is_log(file: &File, reader: Reader) -> io::Result<bool> {
    let mut head = vec![0; limits::LOG_READ];
    let len = file.read_at(&mut head, 0)?;
    let head = &head[..len];
    let parses = match memchr(b'\n', head) {
        Some(end) => (reader.parse)(&head[..end]).is_ok(),
        // Its end is not there yet, or further on.
        None => true,
    };
    Ok(head.is_empty() || (reader.begins)(head) && parses)
}

/// Whether an error means that something is in the way of a log, or it may not be read: both may be
/// so for a moment only.
pub(crate) fn is_hidden(error: &anyhow::Error) -> bool {
    use ErrorKind::{InvalidData, NotADirectory, PermissionDenied};
    let is_hidden =
        |e: &io::Error| matches!(e.kind(), PermissionDenied | NotADirectory | InvalidData);
    error.downcast_ref().is_some_and(is_hidden)
}

/// How a file of this name stands to the log of that name, if it belongs to it; and whether it is
/// compressed.
fn age(log: &OsStr, name: &OsStr) -> Option<(Age, bool)> {
    let rest = name.as_bytes().strip_prefix(log.as_bytes())?;
    if rest.is_empty() {
        return Some((Age::Written, false));
    }
    let rest = std::str::from_utf8(rest).ok()?.strip_prefix('.')?;
    let (rest, compressed) = rest.strip_suffix(".gz").map_or((rest, false), |rest| (rest, true));
    let is_digits = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let age = match rest.split_once('-') {
        Some((day, time)) if is_digits(day, 8) && is_digits(time, 6) => Age::Dated(rest.to_owned()),
        None if is_digits(rest, rest.len()) => Age::Numbered(Reverse(rest.parse().ok()?)),
        _ => return None,
    };
    Some((age, compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_log_and_their_order() {
        let dated = |text: &str| Age::Dated(text.into());
        for (name, want) in [
            ("x.log", Some((Age::Written, false))),
            ("x.log.1", Some((Age::Numbered(Reverse(1)), false))),
            ("x.log.12.gz", Some((Age::Numbered(Reverse(12)), true))),
            ("x.log.20060102-150405", Some((dated("20060102-150405"), false))),
            ("x.log.20060102-150405.gz", Some((dated("20060102-150405"), true))),
            ("x.log.20060102-150405.tmp", None),
            ("x.log.2006010-150405", None),
            ("x.log.", None),
            ("x.log1", None),
            ("x.log.1.1", None),
            ("x.log.99999999999", None),
            ("x.lo", None),
            ("y.log", None),
        ] {
            assert_eq!(age("x.log".as_ref(), name.as_ref()), want, "{name}");
        }
        let numbered = |number| Age::Numbered(Reverse(number));
        let order = [dated("20060102-150405"), dated("20070102-150405"), numbered(10), numbered(9)];
        assert!(order.is_sorted() && numbered(1) < Age::Written);
    }
}
