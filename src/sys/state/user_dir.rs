//! The state directory of a user without `--state-dir`: in the directory of the user's session, or
//! below /tmp outside of a session (cron, sudo -u, `User=`).
//!
//! logind removes the directory of the session at the last logout, so it is only for what is in one, or
//! for a user who lingers.
//!
//! A client trusts the muxes of the directory's owner. So the owner must be this user: in /tmp
//! another user may have made it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::sys::walk::refusal;

/// Where the muxes of a user have their directories, below that of the session.
pub(super) const NAME: &str = "iottymux";

/// Where a user without a session has one named by the user's number.
pub(super) const TMP: &str = "/tmp";

/// Where the sessions of all users have their directories, each named by the user's number.
pub(super) const USERS: &str = "/run/user";

/// What logind knows of each user, by number.
const LOGINS: &str = "/run/systemd/users";

/// The names of the users who linger.
const LINGERING: &str = "/var/lib/systemd/linger";

/// The directory of the user's session. Without the variable (cron, runuser), or with that of another
/// user (su), it is where the system makes it.
pub(crate) fn session() -> Result<PathBuf> {
    if let Some(dir) = entered() {
        return Ok(dir);
    }
    let own = Uid::effective();
    let usual = Path::new(USERS).join(own.to_string());
    if fs::symlink_metadata(&usual).is_ok_and(|dir| dir.is_dir() && dir.uid() == own.as_raw()) {
        return Ok(usual);
    }
    let why = named().map_or("XDG_RUNTIME_DIR is not set".to_owned(), |dir| {
        format!("XDG_RUNTIME_DIR={} is closed to user {own}", dir.display())
    });
    bail!("{why}, and {} is not there", usual.display())
}

/// The directory of the session that this process has been told of.
fn named() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// The same, unless it is that of another user.
fn entered() -> Option<PathBuf> {
    let is_closed = |dir: &PathBuf| {
        fs::metadata(dir.join(".")).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    named().filter(|dir| !is_closed(dir))
}

/// Whether the user's session and manager stay after the last logout. Where logind keeps that is what
/// sd_uid_get_login_name(3) and loginctl(1) read.
pub(crate) fn lingers() -> bool {
    let user = fs::read_to_string(Path::new(LOGINS).join(Uid::effective().to_string()));
    let user = user.unwrap_or_default();
    let name = user.lines().find_map(|line| line.strip_prefix("NAME="));
    name.is_some_and(|name| Path::new(LINGERING).join(name).exists())
}

/// The state directory of a user without a session.
pub(super) fn in_tmp(uid: Uid) -> PathBuf {
    Path::new(TMP).join(format!("{NAME}-{uid}"))
}

/// Whether a directory is that of a user without a session, of any user.
pub(super) fn is_in_tmp(state: &Path) -> bool {
    let name = state.strip_prefix(TMP).ok().and_then(Path::to_str);
    let number = name.and_then(|name| name.strip_prefix(NAME)?.strip_prefix('-'));
    number.is_some_and(|uid| uid.parse::<u32>().is_ok())
}

/// Makes the directory of this user without a session, closed to others.
pub(super) fn make_in_tmp(state: &Path) -> io::Result<()> {
    match mkdirat(CWD, state, Mode::RWXU) {
        Err(Errno::EXIST) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            check(state, &fstat(openat(CWD, state, flags, Mode::empty())?)?)
        }
        made => Ok(made?),
    }
}

/// Whether this process has been told of a session. A service and a job of cron have none.
pub(super) fn is_named() -> bool {
    std::env::var_os("XDG_RUNTIME_DIR").is_some()
}

/// Where this user's state directory is.
fn place() -> PathBuf {
    let session = session().ok().filter(|_| entered().is_some() || lingers());
    session.map_or_else(|| in_tmp(Uid::effective()), |session| session.join(NAME))
}

/// All directories that may be this user's.
pub(super) fn places() -> impl Iterator<Item = PathBuf> {
    let of_session = session().ok().map(|session| session.join(NAME));
    of_session.into_iter().chain([in_tmp(Uid::effective())])
}

/// The user's state directory, if it is this user's or does not exist yet.
pub(super) fn state() -> Result<PathBuf> {
    let path = place();
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

/// Refuses a state directory of a session, or of a user without one, that another user has made.
pub(super) fn check(path: &Path, there: &Stat) -> io::Result<()> {
    let own = Uid::effective();
    let is_default = || places().any(|place| place == path);
    if own.is_root() || own.as_raw() == there.st_uid || !is_default() {
        return Ok(());
    }
    Err(refusal(format!("{} belongs to user {}", path.display(), there.st_uid)))
}
