//! What the mux of a service does first, in most cases as root: it makes the app's ends, and has
//! systemd keep them. Then it becomes the user that owns its directory, and serves.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::app_ends::{AppEnds, Streams, open_ends};
use super::logs::LogPlan;
use super::source::{fifo, pty};
use crate::sys::confine;
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::Manager;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;
use crate::types::service::ServiceName;

/// Directories in which a mux needs nothing but its logs: those of users, and for any user to write.
const OF_OTHERS: [&str; 8] =
    ["/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];
/// The variable with the directories that systemd makes for the logs of this mux, see
/// systemd.exec(5).
const LOGS_DIRECTORY: &str = "LOGS_DIRECTORY";

/// Makes the ends of an app, as its unit has them, and returns them. A restarted mux has its ends
/// already; then this only checks their names.
pub(super) fn prepare(
    dir: &AppDir,
    streams: &Streams,
    service: &ServiceName,
    (stored, notify): (&mut Stored, &Notify),
) -> Result<Option<AppEnds>> {
    if !stored.is_empty() {
        let mut check = || {
            dir.split()?;
            check_names(dir, streams, (stored, notify))?;
            dir.mark_prepared()
        };
        // Its app may run, and has its ends.
        if let Err(e) = check() {
            log::error!("app {}: {e:#}", dir.name());
        }
        return Ok(None);
    }
    if !notify.keeps() {
        bail!("app {}: this is the mux of a unit, but there is no systemd", dir.name());
    }
    // Whatever fails after that: the app must not open what has no peer.
    dir.lead_nowhere()?;
    let mut make = || {
        dir.remove_own()?;
        dir.split()?;
        let run = Manager::of_this_process().run_of(service.as_str());
        dir.note_earlier(run.as_deref())?;
        let ends = open_ends(dir, streams, false, stored, notify)?;
        dir.mark_prepared()?;
        Ok(ends)
    };
    match make() {
        // They stay root's when this mux ends.
        Ok(ends) => Ok(Some(AppEnds { made: Vec::new(), kept: Vec::new(), ..ends })),
        Err(e) => {
            // These ends are closed with this process, so the app must not open them.
            dir.lead_nowhere()?;
            Err(e)
        }
    }
}

/// Checks the names of ends that systemd keeps.
fn check_names(
    dir: &AppDir,
    streams: &Streams,
    (stored, notify): (&mut Stored, &Notify),
) -> Result<()> {
    match streams {
        Streams::Terminal { .. } => pty::place(dir)?,
        Streams::Passed { .. } => {}
        Streams::Fifos { enabled, make } => {
            for stream in enabled {
                if *make {
                    fifo::make(dir, *stream)?;
                } else if fifo::exists(dir, *stream) {
                    fifo::renew_foreign(dir, *stream, stored, notify)?;
                }
            }
        }
    }
    Ok(())
}

/// Makes sure that no app is started on what an earlier mux has left: this one cannot begin.
pub(crate) fn give_up(dir: &AppDir) {
    if dir.has_gate()
        && let Err(e) = dir.lead_nowhere()
    {
        log::error!("{e:#}");
    }
}

/// Becomes the user of the mux, if this is root, with a view of the files that has nothing of other
/// muxes. Whether it did.
pub(super) fn shut_in(dir: &AppDir, plan: &LogPlan) -> Result<bool> {
    let (uid, gid) = dir.owner()?;
    if uid.is_root() || !Uid::effective().is_root() {
        return Ok(false);
    }
    let (hidden, shown) = view(dir, plan);
    if let Err(e) = confine::hide(&hidden, &shown) {
        log::warn!("app {}: its mux can see the files of other muxes: {e}", dir.name());
    }
    confine::become_user(uid, gid).context("cannot become the user of the mux")?;
    Ok(true)
}

/// The directories that the mux does not see, and those in them that it sees nevertheless. No path
/// here leads through a directory that the mux can write: a link there would widen its view.
fn view(dir: &AppDir, plan: &LogPlan) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // All of it stays: what is shown alone would be held, and so its place could not be replaced.
    let has_log = |dir: &&str| plan.files().any(|log| log.starts_with(dir));
    let others = OF_OTHERS.iter().filter(|dir| !has_log(dir));
    let mut hidden: Vec<PathBuf> = others.map(PathBuf::from).collect();
    let mut shown = vec![dir.of_mux()];
    hidden.push(dir.state().to_owned());
    if let Some(own) = env::var_os(LOGS_DIRECTORY) {
        // `/var/log/iottymux/NAME`
        for logs in env::split_paths(&own) {
            hidden.extend(logs.parent().map(Path::to_owned));
            shown.push(logs);
        }
    }
    (hidden, shown)
}
