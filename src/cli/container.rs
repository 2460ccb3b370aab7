//! The mux of a container, as a keeper starts it that an engine has started: its command line, and
//! its user.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::salvage;
use crate::commands::keeper::MuxUser;
use crate::commands::oci::{self, KeptContainer};
use crate::containers::user;
use crate::logfmt::path::LogPath;
use crate::os::diagnostics;
use crate::os::files::set_mode;
use crate::os::state::{AppDir, StateDir};
use crate::systemd::store::Stored;
use crate::types::exit::Exit;
use crate::types::name::AppName;

/// Mode of a directory for logs, as under the units.
const LOGS_MODE: u32 = 0o750;

/// The command line of the mux of a container.
pub(super) fn mux_words(options: &[(&str, &OsStr)]) -> Vec<OsString> {
    let option = |(name, value): &(&str, &OsStr)| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    [OsString::from("container")].into_iter().chain(options.iter().map(option)).collect()
}

/// Prepares the directory of an app for its mux, which becomes the user of the muxes if this
/// machine has one. Returns that user.
pub(super) fn prepare(mux: &[OsString], state: &StateDir, dir: &AppDir) -> Option<MuxUser> {
    let is_own = |log: &LogPath| user::is_own_log(dir.name().as_str(), &log.path());
    let given = |logs: Vec<LogPath>| {
        let (own, foreign): (Vec<_>, Vec<_>) = logs.into_iter().partition(is_own);
        let user = mux_user(state, foreign)?;
        let given = dir.give_to(user.uid, user.gid);
        let given =
            given.and_then(|()| if own.is_empty() { Ok(()) } else { make_logs(dir, &user) });
        given.inspect_err(|e| log::warn!("{e:#}")).ok().map(|()| user)
    };
    let user = salvage::log_files(mux).and_then(given);
    if user.is_none()
        && let Err(e) = dir.join()
    {
        log::warn!("{e:#}");
    }
    user
}

/// The user of a mux, if this process may choose one. The keeper opens these logs for it.
fn mux_user(state: &StateDir, logs: Vec<LogPath>) -> Option<MuxUser> {
    if !state.is_of_system() || !Uid::effective().is_root() {
        return None;
    }
    let passwd = fs::read_to_string(user::PASSWD).ok()?;
    let (uid, gid) = user::mux_user(&passwd)?;
    let program = fs::metadata(env::current_exe().ok()?).ok()?;
    let may_execute = program.mode() & 0o001 != 0;
    may_execute.then_some(MuxUser { uid, gid, logs })
}

/// Makes the directory for the logs of an app, which its mux itself writes.
fn make_logs(dir: &AppDir, user: &MuxUser) -> Result<()> {
    let logs = user::log_dir(dir.name().as_str());
    let make = || {
        fs::create_dir_all(&logs)?;
        set_mode(&logs, LOGS_MODE)?;
        lchown(&logs, Some(user.uid), Some(user.gid))
    };
    make().with_context(|| format!("cannot make {}", logs.display()))
}

/// The keeper of a container that `iottymux-runc` creates.
pub(super) fn oci_keeper(arguments: &[OsString]) -> Exit {
    // First of all, while no other descriptor has been opened.
    let stored = Stored::take();
    diagnostics::start(None, true);
    let kept = kept_container(arguments, stored).and_then(oci::keep);
    kept.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Failed))
}

fn kept_container(arguments: &[OsString], stored: Stored) -> Result<KeptContainer> {
    let [app, namespace, id, streams, bundle] = arguments else {
        bail!("this command is internal")
    };
    let name: AppName = app.to_str().unwrap_or_default().parse()?;
    let state = StateDir::resolve(env::var_os("IOTTYMUX_STATE_DIR").map(Into::into))?;
    let options = [
        ("app", app),
        ("namespace", namespace),
        ("id", id),
        ("streams", streams),
        // A mux of another user would choose that of its session.
        ("state-dir", &state.path().as_os_str().to_owned()),
    ];
    let mux = mux_words(&options.map(|(name, value)| (name, value.as_os_str())));
    let dir = state.app(&name);
    let user = prepare(&mux, &state, &dir);
    Ok(KeptContainer { state, dir, mux, user, bundle: PathBuf::from(bundle), stored })
}
