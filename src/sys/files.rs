//! Reading, replacing and removing files, without following links of others.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, accessat, fchmod, fstat, fsync, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use super::walk::{Walk, refusal};

/// Mode of a file that only its owner may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a directory that only its owner may enter.
pub(crate) const CLOSED: u32 = 0o700;

/// Whether this user has no right to read a file or a directory.
pub(crate) fn is_closed_to_user(path: &Path) -> bool {
    accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
}

/// Whether a descriptor is that of a pipe.
pub(crate) fn is_fifo(fd: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode).is_fifo())
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_plain(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = O_NOFOLLOW | O_NONBLOCK;
    read_open(OpenOptions::new().read(true).custom_flags(flags).open(path)?, limit)
}

pub(crate) fn read_open(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let len = usize::try_from(metadata.len().min(limit)).unwrap_or_default();
    // One more, to see the end of file.
    let mut content = Vec::with_capacity(len + 1);
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

/// Replaces a file atomically: readers see the old content or the new one, with the new mode.
pub(crate) fn replace_in(walk: &Walk, file: &OsStr, content: &[u8], mode: u32) -> io::Result<()> {
    replace_with(walk, file, content, mode, |_| Ok(()))
}

/// As [`replace_in`], and a power failure leaves neither half of it nor a later change without it.
pub(crate) fn replace_safely(
    walk: &Walk,
    file: &OsStr,
    content: &[u8],
    mode: u32,
) -> io::Result<()> {
    replace_with(walk, file, content, mode, File::sync_all)?;
    let dir = openat(walk.fd(), ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fsync(dir)?)
}

fn replace_with(
    walk: &Walk,
    file: &OsStr,
    content: &[u8],
    mode: u32,
    settle: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = temporary(&file.to_string_lossy());
    let remove = || remove_in(walk, new.as_ref());
    let write = || -> io::Result<()> {
        remove()?;
        let mut out = open_in(walk, new.as_ref(), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        out.write_all(content)?;
        fchmod(&out, Mode::from_raw_mode(mode))?;
        settle(&out)?;
        Ok(renameat(walk.fd(), &new, walk.fd(), file)?)
    };
    write().inspect_err(|_| drop(remove()))
}

/// Removes a file of a directory, if it exists.
pub(crate) fn remove_in(walk: &Walk, file: &OsStr) -> io::Result<()> {
    match unlinkat(walk.fd(), file, AtFlags::empty()) {
        Err(e) if e != Errno::NOENT => Err(e.into()),
        _ => Ok(()),
    }
}

/// Reads a regular file of a directory, of at most `limit` bytes.
pub(crate) fn read_in(walk: &Walk, file: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
    read_open(open_plain(walk, file)?, limit)
}

/// Opens a regular file of a directory for reading. Any other file is only looked at: to open a
/// device can start a watchdog, and the directory may be that of a pod.
pub(crate) fn open_plain(walk: &Walk, file: &OsStr) -> io::Result<File> {
    let there = open_in(walk, file, OFlags::PATH)?;
    let metadata = there.metadata()?;
    if metadata.is_symlink() {
        return Err(is_a_link());
    }
    if !metadata.is_file() {
        return Err(refusal("it is not a regular file".into()));
    }
    // The file that was looked at, even if another one has its name now.
    let opened = format!("/proc/self/fd/{}", there.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(CWD, opened, flags, Mode::empty()) {
        // There is no /proc.
        Err(Errno::NOENT) => open_in(walk, file, OFlags::RDONLY),
        opened => Ok(opened?.into()),
    }
}

/// Opens the file behind a descriptor once more, in another way: also a pipe, which has no name.
pub(crate) fn open_again(fd: impl AsFd, how: &OpenOptions) -> io::Result<OwnedFd> {
    Ok(how.open(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))?.into())
}

fn is_a_link() -> io::Error {
    refusal("it is a symbolic link".into())
}

/// Opens a file of a directory without following a link and without blocking. A new file has mode
/// 0600.
pub(crate) fn open_in(walk: &Walk, file: &OsStr, flags: OFlags) -> io::Result<File> {
    let always = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match openat(walk.fd(), file, flags | always, Mode::from_raw_mode(PRIVATE)) {
        Err(Errno::LOOP) => Err(is_a_link()),
        opened => Ok(File::from(opened?)),
    }
}

/// The names in a directory, as far as they are text.
pub(crate) fn names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(openat(dir, ".", flags, Mode::empty())?)? {
        if let Ok(name) = entry?.file_name().to_str()
            && ![".", ".."].contains(&name)
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes all that is in a directory.
pub(crate) fn empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes a directory, if it does not exist, below one where only root can make files.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(CLOSED).create(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_dir = fs::symlink_metadata(path)?.is_dir();
            if is_dir { Ok(()) } else { Err(e) }
        }
        made => made,
    }
}

/// The temporary name of a file that is being written.
pub(crate) fn temporary(file: &str) -> String {
    format!(".{file}.new")
}

/// Whether a path still leads to an open file.
pub(crate) fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Makes `path` a symbolic link to `to`, atomically.
pub(crate) fn replace_link(path: &Path, to: &Path) -> io::Result<()> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(temporary(&file));
    remove(&temporary)?;
    std::os::unix::fs::symlink(to, &temporary)?;
    fs::rename(&temporary, path)
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Sets the mode of a file.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Gives a pipe another size, as far as the user's limit allows. Returns its size in bytes.
pub(crate) fn resize_pipe(pipe: impl AsFd, size: usize) -> usize {
    if let Err(e) = fcntl_setpipe_size(&pipe, size) {
        log::debug!("the size of a pipe: {e}");
    }
    fcntl_getpipe_size(&pipe).unwrap_or(0)
}

/// Allows this process as many descriptors as the system does.
pub(crate) fn raise_descriptor_limit() {
    let raise = || {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    };
    if let Err(e) = raise() {
        log::debug!("raising the limit of descriptors: {e}");
    }
}

/// Gives a pipe of somebody else this size, if it has less.
pub(crate) fn enlarge_pipe(pipe: impl AsFd, size: usize) {
    if fcntl_getpipe_size(&pipe).is_ok_and(|has| has < size) {
        resize_pipe(pipe, size);
    }
}
