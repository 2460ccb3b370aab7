//! The files of a log: the current one and the rotated ones next to it.
//!
//! `NAME.1`, `NAME.2`, … with the newest first, or `NAME.20060102-150405` and logrotate's
//! `NAME-20060102` with the oldest first.
//! Files are identified by their inodes, because their names change while they are read. Invariant:
//! each file of a log is opened once, in the order of writing, and stays open until it has been
//! read, even if it is renamed or removed.

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

use crate::core::logfmt::encoder::FormatReader;
use crate::sys::files::{open_in, open_plain};
use crate::sys::walk::{Links, Walk, refusal};
use crate::types::limits;
use crate::types::time::Stamp;

/// Looks at a directory that rotations keep changing, before the last one has to do.
const LOG_LOOKS: usize = 1000;

/// The identity of a file. The inode number of a deleted file is reused, so the time of creation
/// distinguishes the two, if the file system keeps it.
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

/// The order of the files of a log, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Dated(String),
    Numbered(Reverse<u32>),
    Written,
}

/// A file of the log in its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundFile {
    age: Age,
    compressed: bool,
    path: PathBuf,
    id: Id,
}

/// The source of the log's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    /// The user of this program: any file.
    ByUser,
    /// The document of a mux, perhaps of another user: only a log of this format.
    ByMux(FormatReader),
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
    /// The path without links, once a file was found.
    real: Option<PathBuf>,
    /// Only files that were written at this time or later are read.
    since: SystemTime,
    /// Files to be read, oldest first.
    open: VecDeque<Opened>,
    /// The files of the last look. Names are not enough: another program may rotate now, with other
    /// names.
    seen: Vec<Id>,
    /// The newest compressed file at the first look.
    compressed: Option<PathBuf>,
    opened: u64,
}

impl Files {
    /// The files of the log at this path that may have entries of this time or later.
    /// [`Files::look`] opens them.
    pub(crate) fn new(path: PathBuf, named: Named, since: Stamp) -> Self {
        // The times of files may be a little behind the clock.
        let since = Duration::from_nanos(since.0).saturating_sub(limits::CLOCK_TICK);
        Self {
            path,
            named,
            real: None,
            since: UNIX_EPOCH + since,
            open: VecDeque::new(),
            seen: Vec::new(),
            compressed: None,
            opened: 0,
        }
    }

    /// The files to be read, oldest first.
    pub(crate) fn open(&self) -> &VecDeque<Opened> {
        &self.open
    }

    /// Whether the user of this program named the log.
    pub(crate) fn are_named_by_user(&self) -> bool {
        matches!(self.named, Named::ByUser)
    }

    /// The newest file that is skipped because it is compressed.
    pub(crate) fn compressed(&self) -> Option<&Path> {
        self.compressed.as_deref()
    }

    /// Closes the oldest file.
    pub(crate) fn done(&mut self) {
        self.open.pop_front();
    }

    /// Whether a file after the oldest is not empty: then the writer has left the oldest.
    pub(crate) fn writer_is_past(&self) -> io::Result<bool> {
        for later in self.open.iter().skip(1) {
            if later.size()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The path of the current file, without links if it was found.
    pub(crate) fn path(&mut self) -> &Path {
        if self.real.is_none() {
            let reached = self.reach().ok();
            let there = reached.filter(|(walk, name)| open_in(walk, name, OFlags::PATH).is_ok());
            self.real = there.map(|(walk, name)| walk.path().join(name));
        }
        self.real.as_ref().unwrap_or(&self.path)
    }

    /// Opens the directory of the current file; also returns its name there.
    fn reach(&self) -> io::Result<(Walk, OsString)> {
        let links = if matches!(self.named, Named::ByUser) { Links::All } else { Links::Trusted };
        let mut walk = Walk::new()?;
        let name = walk.find(self.real.as_ref().unwrap_or(&self.path), links)?;
        Ok((walk, name))
    }

    /// Opens new files.
    pub(crate) fn look(&mut self) -> Result<()> {
        for _ in 0..LOG_LOOKS {
            // No name comes back: if two lists are equal, all files existed at one time.
            let found = self.list()?;
            if found == self.list()? && self.take(found)? {
                return Ok(());
            }
        }
        // The rotation causes another event, and another look.
        Ok(())
    }

    /// Opens the new ones of these files. Returns false if one of them was renamed meanwhile.
    fn take(&mut self, mut found: Vec<FoundFile>) -> Result<bool> {
        if self.open.is_empty() && self.opened == 0 {
            self.compressed = found.iter().rfind(|f| f.compressed).map(|f| f.path.clone());
        }
        found.retain(|file| !file.compressed);
        let known = self.open.back().map(|newest| newest.id);
        let after = found.iter().rposition(|file| Some(file.id) == known).map_or(0, |at| at + 1);
        let new: Vec<&FoundFile> =
            found[after..].iter().filter(|file| !self.seen.contains(&file.id)).collect();
        if let (Some(first), Some(known)) = (new.first(), self.open.back())
            && after == 0
        {
            log::warn!(
                "{} is gone: entries between it and {} may be missing",
                known.path.display(),
                first.path.display()
            );
        }
        for file in new {
            if !self.open_one(file)? {
                return Ok(false);
            }
        }
        self.seen = found.iter().map(|file| file.id).collect();
        Ok(true)
    }

    fn open_one(&mut self, found: &FoundFile) -> Result<bool> {
        let what = || format!("cannot open {}", found.path.display());
        let name = found.path.file_name().unwrap_or_default();
        let (walk, _) = self.reach().with_context(what)?;
        let file = match open_plain(&walk, name) {
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
            let why = "it is not a log in the format that the mux names, and is not printed";
            return Err(refusal(why.into())).with_context(what);
        }
        self.opened += 1;
        self.open.push_back(Opened { file, path: found.path.clone(), number: self.opened, id });
        Ok(true)
    }

    /// Lists the files, oldest first.
    fn list(&mut self) -> Result<Vec<FoundFile>> {
        let (since, at_first) = (self.since, self.opened == 0);
        let path = self.path().to_owned();
        let dir = path.parent().unwrap_or(Path::new("/"));
        let what = || format!("cannot read directory {}", dir.display());
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
            let metadata = open_in(&walk, file, OFlags::PATH).and_then(|file| file.metadata());
            let metadata = match metadata {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
            };
            if !metadata.is_file() {
                if age == Age::Written {
                    return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"))
                        .with_context(|| format!("cannot read {}", path.display()));
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

/// Whether a file is empty or begins with an entry of this format.
fn is_log(file: &File, reader: FormatReader) -> io::Result<bool> {
    let mut head = vec![0; limits::LOG_READ];
    let len = file.read_at(&mut head, 0)?;
    let head = &head[..len];
    let parses = match memchr(b'\n', head) {
        Some(end) => (reader.parse)(&head[..end]).is_ok(),
        // The entry has no end yet, or is longer.
        None => true,
    };
    Ok(head.is_empty() || (reader.begins)(head) && parses)
}

/// Whether an error may be temporary: another file has replaced the log, or it is unreadable.
pub(crate) fn is_hidden(error: &anyhow::Error) -> bool {
    use ErrorKind::{InvalidData, NotADirectory, PermissionDenied};
    let is_hidden =
        |e: &io::Error| matches!(e.kind(), PermissionDenied | NotADirectory | InvalidData);
    error.downcast_ref().is_some_and(is_hidden)
}

/// The ends of the names of compressed files, which are not read.
const COMPRESSED: [&str; 4] = [".gz", ".zst", ".xz", ".bz2"];
/// Digits of a day in a name: 20060102.
const DAY_DIGITS: usize = 8;
/// Digits of a time behind it at most: seconds since the epoch.
const EPOCH_DIGITS: usize = 10;

/// The order of a file among those of a log, by both names, and whether it is compressed; `None` if
/// it does not belong to the log.
fn age(log: &OsStr, name: &OsStr) -> Option<(Age, bool)> {
    let rest = name.as_bytes().strip_prefix(log.as_bytes())?;
    if rest.is_empty() {
        return Some((Age::Written, false));
    }
    let rest = std::str::from_utf8(rest).ok()?;
    let plain = COMPRESSED.iter().find_map(|suffix| rest.strip_suffix(suffix));
    let (rest, compressed) = (plain.unwrap_or(rest), plain.is_some());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_time = |text: &str| is_number(text) && text.len() <= EPOCH_DIGITS;
    // A day, or with what logrotate's `dateformat` adds to it: an hour, or a time.
    let is_date = |text: &str| {
        text.split_at_checked(DAY_DIGITS).is_some_and(|(day, time)| {
            is_number(day) && (time.is_empty() || is_time(time.strip_prefix('-').unwrap_or(time)))
        })
    };
    let age = match rest.split_at_checked(1)? {
        ("-", date) if is_date(date) => Age::Dated(date.into()),
        (".", date) if is_date(date) && date.contains('-') => Age::Dated(date.into()),
        (".", number) if is_number(number) => Age::Numbered(Reverse(number.parse().ok()?)),
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
            ("x.log-20060102", Some((dated("20060102"), false))),
            ("x.log-20060102.zst", Some((dated("20060102"), true))),
            ("x.log-2006010215.xz", Some((dated("2006010215"), true))),
            ("x.log-20060102-1136214245", Some((dated("20060102-1136214245"), false))),
            ("x.log-2006010", None),
            ("x.log-20060102-", None),
            ("x.log-20060102.tmp", None),
            ("x.log-old", None),
            ("x.log.20060102", Some((Age::Numbered(Reverse(20_060_102)), false))),
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
        let order = [
            dated("20060102"),
            dated("20060102-150405"),
            dated("20060103"),
            dated("20070102-150405"),
            numbered(10),
            numbered(9),
        ];
        assert!(order.is_sorted() && numbered(1) < Age::Written);
    }
}
