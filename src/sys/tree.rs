//! Removing directories that another user has filled: their depth has no limit, that of descriptors
//! and of the stack has.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::files::all_names;

/// Removes a directory with all that is in it.
///
/// # Errors
///
/// The path is not a directory, or something in it cannot be removed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    empty(path)?;
    fs::remove_dir(path)
}

/// Removes all that is in a directory. What a directory in it holds moves up before that is
/// removed, so two descriptors are open at most.
///
/// # Errors
///
/// The path is not a directory, or something in it cannot be removed.
pub(crate) fn empty(path: &Path) -> io::Result<()> {
    let top = open(CWD, path)?;
    let mut moved = 0_u64;
    loop {
        let names = all_names(&top)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if remove_one(&top, &name)? {
                continue;
            }
            let dir = open(&top, &name)?;
            for inner in all_names(&dir)? {
                while !remove_one(&dir, &inner)? {
                    moved += 1;
                    match renameat(&dir, &inner, &top, format!(".{moved}")) {
                        Ok(()) => break,
                        // The name is taken.
                        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
        }
    }
}

/// Removes a file or an empty directory. Returns whether it has gone.
fn remove_one(dir: &OwnedFd, name: &CString) -> io::Result<bool> {
    let removed = match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(dir, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Opens a directory, not through a link.
fn open(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_any_depth_is_removed() {
        let holder = tempfile::tempdir().unwrap();
        let path = holder.path().join("tree");
        fs::create_dir(&path).unwrap();
        fs::write(holder.path().join("outside"), "").unwrap();
        let mut at = open(CWD, &path).unwrap();
        for level in 0..5_000 {
            let name = if level % 3 == 0 { ".1" } else { "directory" };
            let mode = Mode::from_raw_mode(0o700);
            rustix::fs::mkdirat(&at, name, mode).unwrap();
            rustix::fs::mkdirat(&at, "empty", mode).unwrap();
            rustix::fs::symlinkat("../../outside", &at, "link").unwrap();
            at = open(&at, name).unwrap();
        }
        drop(at);
        remove_tree(&path).unwrap();
        assert_eq!(fs::read_dir(holder.path()).unwrap().count(), 1);
        assert!(remove_tree(&path).is_err());
    }
}
