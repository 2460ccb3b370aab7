//! The state directory of a user without `--state-dir`: in the directory of the user's session.
//!
//! A client trusts the muxes of the directory's owner. So the owner must be this user: with
//! `XDG_RUNTIME_DIR=/tmp` another user may have made it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use rustix::fs::{AtFlags, CWD, Stat, statat};
use rustix::io::Errno;

use crate::sys::walk::refusal;

/// Where the muxes of a user have their directories, below that of the session.
pub(super) const NAME: &str = "iottymux";

/// Where the sessions of all users have their directories, each named by the user's number.
pub(super) const USERS: &str = "/run/user";

/// The directory of the user's session. Without the variable (cron, runuser), or with that of another
/// user (su), it is where the system makes it.
pub(crate) fn session() -> Result<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let named = named.filter(|dir| dir.is_absolute());
    let is_closed = |dir: &PathBuf| {
        fs::metadata(dir.join(".")).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    if let Some(dir) = named.as_ref().filter(|dir| !is_closed(dir)) {
        return Ok(dir.clone());
    }
    let own = Uid::effective();
    let usual = Path::new(USERS).join(own.to_string());
    if fs::symlink_metadata(&usual).is_ok_and(|dir| dir.is_dir() && dir.uid() == own.as_raw()) {
        return Ok(usual);
    }
    let why = named.map_or("XDG_RUNTIME_DIR is not set".to_owned(), |dir| {
        format!("XDG_RUNTIME_DIR={} is closed to user {own}", dir.display())
    });
    bail!("{why}, and {} is not there", usual.display())
}

/// Whether this process has been told of a session. A service and a job of cron have none.
pub(super) fn is_named() -> bool {
    std::env::var_os("XDG_RUNTIME_DIR").is_some()
}

/// The state directory in it, if it is this user's or does not exist yet.
pub(super) fn state() -> Result<PathBuf> {
    let path = session()?.join(NAME);
    match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => check(&path, &there)?,
        // After su(1): it is that of another user's session.
        Err(Errno::ACCESS) => {
            return Err(Errno::ACCESS).with_context(|| path.display().to_string());
        }
        Err(_) => {}
    }
    Ok(path)
}

/// Refuses a state directory that is the session's and that another user has made.
pub(super) fn check(path: &Path, there: &Stat) -> io::Result<()> {
    let own = Uid::effective();
    let is_sessions = session().is_ok_and(|session| session.join(NAME) == path);
    if !is_sessions || own.is_root() || own.as_raw() == there.st_uid {
        return Ok(());
    }
    Err(refusal(format!("{} belongs to user {}", path.display(), there.st_uid)))
}
