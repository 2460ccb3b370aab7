//! The mux of a container, as a keeper starts it that an engine has started: its command line, and
//! its user.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::salvage;
use crate::containers::wrapper::{self, KeptContainer};
use crate::core::logfmt::path::LogPath;
use crate::keeper::MuxUser;
use crate::mux::MuxPlan;
use crate::sys::diagnostics::{self, Speaker};
use crate::sys::files::set_mode;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::store::Stored;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::user;

/// Mode of a directory for logs, as under the units.
const LOGS_MODE: u32 = 0o750;

/// Prepares the directory of an app for its mux, which becomes the user of the muxes if this
/// machine has one. Returns that user.
pub(super) fn prepare(mux: &[OsString], state: &StateDir, dir: &AppDir) -> Option<MuxUser> {
    let is_own = |log: &LogPath| user::is_own_log(dir.name().as_str(), &log.path());
    let given = |logs: Vec<LogPath>| {
        let user = mux_user(state, dir)?;
        let given = dir.give_to(user.uid, user.gid);
        let has_own = logs.iter().any(is_own);
        let given = given.and_then(|()| if has_own { make_logs(dir, &user) } else { Ok(()) });
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

/// The user of a mux, if this process may choose one. A mux of the system that is root says why.
fn mux_user(state: &StateDir, dir: &AppDir) -> Option<MuxUser> {
    if !state.is_of_system() || !Uid::effective().is_root() {
        return None;
    }
    let is_root = |why: &str| log::warn!("app {}: its mux runs as root: {why}", dir.name());
    let Some((uid, gid)) = user_of_muxes() else {
        is_root("this machine has no user iottymux (useradd --system iottymux)");
        return None;
    };
    let program = fs::metadata(env::current_exe().ok()?).ok()?;
    if program.mode() & 0o001 == 0 {
        is_root("that user may not execute the program");
        return None;
    }
    Some(MuxUser { uid, gid })
}

fn user_of_muxes() -> Option<(u32, u32)> {
    user::mux_user(&fs::read_to_string(user::PASSWD).ok()?)
}

/// Leaves out the logs that the mux of a container may not write, since it is that user.
pub(super) fn leave_out_foreign(mut plan: MuxPlan) -> MuxPlan {
    if user_of_muxes().is_none_or(|(uid, _)| uid != Uid::effective().as_raw()) {
        return plan;
    }
    let app = plan.dir.name().as_str();
    plan.logs.logs.retain(|log| {
        let Some(path) = log.file() else { return true };
        let (path, own) = (path.path(), user::log_dir(app));
        let is_own = user::is_own_log(app, &path);
        if !is_own {
            let why = user::refused_log(app, &path, &own);
            log::error!("app {app}: this option is left out: {why}");
        }
        is_own
    });
    plan
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
    diagnostics::start(None, Speaker::Container);
    let kept = kept_container(arguments, stored).and_then(wrapper::keep);
    kept.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Failed))
}

fn kept_container(arguments: &[OsString], stored: Stored) -> Result<KeptContainer> {
    let [app, mux @ ..] = arguments else { bail!("this command is internal") };
    let name: AppName = app.to_str().unwrap_or_default().parse()?;
    let state = StateDir::resolve(env::var_os("IOTTYMUX_STATE_DIR").map(Into::into))?;
    let dir = state.app(&name);
    let user = prepare(mux, &state, &dir);
    Ok(KeptContainer { state, dir, mux: mux.to_vec(), user, stored })
}
