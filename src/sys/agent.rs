//! The ssh agent of whoever has attached last, for an app of `run`, which outlives logins.
//!
//! The app has a link in its directory as its agent. An attach of the same user that has an agent
//! leads the link there. Nobody else can: the directory is the user's.

use std::env;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use nix::unistd::Uid;

use super::files::replace_link;
use super::state::{AGENT, AppDir};

/// The variable with the socket of an agent, see ssh-agent(1).
pub(crate) const VARIABLE: &str = "SSH_AUTH_SOCK";

/// Leads the app to the agent of this process, and returns the path that it is to have instead;
/// `None` if this process has none that is there.
pub(crate) fn offer(app: &AppDir) -> Option<PathBuf> {
    let link = app.path(AGENT);
    // Not a name that depends on this process, nor a link of another app.
    let agent = fs::canonicalize(env::var_os(VARIABLE)?).ok()?;
    replace_link(&link, &agent).ok().map(|()| link)
}

/// Leads the app to the agent of this process, if it has offered one to the app before.
pub(crate) fn renew(app: &AppDir) {
    let own = Uid::effective().as_raw();
    let link = app.path(AGENT);
    let is_offered = fs::symlink_metadata(&link).is_ok_and(|it| it.is_symlink() && it.uid() == own);
    let is_agent = |agent: &PathBuf| {
        let socket = fs::metadata(agent).ok();
        socket.is_some_and(|it| it.file_type().is_socket() && it.uid() == own)
    };
    // From within the app that is where the link leads already.
    let agent = || fs::canonicalize(env::var_os(VARIABLE)?).ok().filter(is_agent);
    if is_offered
        && !app.is_split()
        && let Some(agent) = agent()
        && let Err(e) = replace_link(&link, &agent)
    {
        log::debug!("cannot lead {} to {}: {e}", link.display(), agent.display());
    }
}
