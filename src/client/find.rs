//! Finds the document of an app, or waits for it.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::Uid;

use crate::core::wire::{AppState, NoRoom};
use crate::host::enable::{self, account};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::documents::last::Last;
use crate::sys::ready;
use crate::sys::state::{AppDir, StateDir};
use crate::types::escape;
use crate::types::limits;
use crate::types::rights::Refused;

/// Calls `attempt` until it succeeds, `wait` is over, or it fails for a reason other than a missing
/// mux or no room for another client. With a `wait` of zero it tries once. It waits for the mux that
/// follows a killed one all the same, except for those who would start that ([`Hint::Nothing`]).
/// Sleeps until something changes. A missing mux is an [`Ended`] if the app's last mux left its
/// exit, else [`Unreachable::Absent`]; both name a `hint`.
pub(crate) fn retry<T>(
    dir: &AppDir,
    wait: Duration,
    hint: Hint,
    mut attempt: impl FnMut(&Endpoints) -> Result<T>,
) -> Result<T> {
    let mut until = Instant::now() + wait;
    let mut comes_until = (hint != Hint::Nothing).then(|| Instant::now() + limits::NEXT_MUX);
    // Most commands need none, and the kernel takes 10 ms to close it.
    let mut changes: Option<Inotify> = None;
    loop {
        // Watching begins before looking, so that nothing is missed in between.
        let watched =
            changes.as_ref().map(|changes| watch_anew(changes, &dir.dir())).transpose()?;
        let outcome = Endpoints::read(dir).and_then(|endpoints| attempt(&endpoints));
        let error = match outcome {
            Ok(found) => return Ok(found),
            Err(e) if is_absence(&e) || is_full(&e) => e,
            Err(e) if is_forbidden(&e) || is_unlisted(&e) => {
                log::debug!("{e:#}");
                return Err(Unreachable::Forbidden(forbid(dir)).into());
            }
            Err(e) => return Err(e),
        };
        if let Some(comes) = comes_until.take_if(|_| has_lost_its_mux(dir)) {
            until = until.max(comes);
        }
        let mut left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(if is_full(&error) { error } else { explain(&error, dir, wait, hint) });
        }
        let Some((changes, watched)) = changes.as_ref().zip(watched) else {
            changes = Some(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?);
            continue;
        };
        log::debug!("waiting for app {}", dir.name());
        if !watched || is_full(&error) {
            left = left.min(limits::LOOK_AGAIN);
        }
        ready::wait_for(changes, PollFlags::POLLIN, Some(left))
            .with_context(|| format!("cannot wait for app {}", dir.name()))?;
    }
}

/// Watches what there is of a directory now, for changes from now on. See [`watch_path`].
fn watch_anew(changes: &Inotify, dir: &Path) -> Result<bool> {
    // Before it is watched: an event that comes after that tells of something not looked at yet.
    while changes.read_events().is_ok() {}
    watch_path(changes, dir, AddWatchFlags::empty())
}

/// Watches a directory for what appears in it, or as long as it does not exist, the nearest one
/// above it that does. Whether it can be watched: that takes the right to list it, which a mux does
/// not give to other users. `also` are further events.
pub(crate) fn watch_path(changes: &Inotify, dir: &Path, also: AddWatchFlags) -> Result<bool> {
    let flags = also
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    let mut missing: Option<(&Path, Errno)> = None;
    let mut paths = dir.ancestors();
    while let Some(path) = paths.next() {
        match changes.add_watch(path, flags) {
            // It may have appeared just before its parent was watched.
            Ok(_) if missing.is_some_and(|(below, _)| below.exists()) => {
                (missing, paths) = (None, dir.ancestors());
            }
            Ok(_) => return Ok(true),
            Err(Errno::EACCES) => return Ok(false),
            Err(e @ (Errno::ENOENT | Errno::ENOTDIR)) => missing = Some((path, e)),
            Err(e) => {
                return Err(e).with_context(|| format!("cannot watch {}", path.display()));
            }
        }
    }
    let failure = missing.map_or(Errno::ENOENT, |(_, e)| e);
    Err(failure).with_context(|| format!("cannot watch {}", dir.display()))
}

/// Whether an error only means that no mux is running.
pub(crate) fn is_absence(error: &anyhow::Error) -> bool {
    let is_gone = |e: &std::io::Error| {
        use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
        // The last three: a mux that is ending.
        matches!(
            e.kind(),
            NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
        )
    };
    error.is::<Ended>()
        || matches!(error.downcast_ref(), Some(Unreachable::Absent(_)))
        || error.downcast_ref().is_some_and(is_gone)
}

/// Whether an error means that the mux has no room for another client now.
fn is_full(error: &anyhow::Error) -> bool {
    error.is::<NoRoom>()
}

/// Whether an error means that the mux lets no user but its own and root in.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    let is_denied = |e: &std::io::Error| e.kind() == ErrorKind::PermissionDenied;
    matches!(error.downcast_ref(), Some(Unreachable::Forbidden(_)))
        || error.downcast_ref().is_some_and(is_denied)
}

/// Whether a mux refuses this user, whose name it does not know.
pub(crate) fn is_unlisted(error: &anyhow::Error) -> bool {
    let why = Refused::Unlisted(Uid::effective().as_raw()).to_string();
    error.to_string().ends_with(&why)
}

/// Whether a mux has not answered in time.
pub(crate) fn is_late(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|e: &std::io::Error| e.kind() == ErrorKind::TimedOut)
}

/// Whether the mux of an app was killed, or is starting: one that ends leaves its last document.
fn has_lost_its_mux(dir: &AppDir) -> bool {
    let is_begun = dir.is_locked() || Endpoints::read(dir).is_ok();
    is_begun && matches!(Last::read(dir), Ok(None))
}

/// The state of an app whose mux is not there. One that was killed leaves its document.
pub(crate) fn state_without_mux(dir: &AppDir, is_enabled: bool) -> AppState {
    let has_ended = matches!(Last::read(dir), Ok(Some(_)));
    match (dir.is_locked(), has_ended) {
        (true, true) => AppState::Stopping,
        (true, false) => AppState::Preparing,
        (false, true) => AppState::Exited,
        (false, false) if Endpoints::read(dir).is_ok() => AppState::Unknown,
        // rkt makes the directory with the app.
        (false, false) if is_enabled || dir.rkt_status().is_some() => AppState::Prepared,
        (false, false) => AppState::Unknown,
    }
}

/// What a person may do about a missing mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing: the command is about an app that runs.
    Nothing,
    /// Start the app.
    Start,
}

/// The mux is gone because the app has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    what: String,
    advice: String,
    /// The document that its mux has left.
    pub(crate) last: Last,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, advice, last } = self;
        write!(f, "{what}: it {last}{advice}")
    }
}

impl std::error::Error for Ended {}

/// A mux is out of reach, in one line for a person.
#[derive(Debug)]
enum Unreachable {
    /// It does not run, or there is no such app.
    Absent(String),
    /// It does not let this user in.
    Forbidden(String),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Absent(line) | Self::Forbidden(line)) = self;
        f.write_str(line)
    }
}

impl std::error::Error for Unreachable {}

fn forbid(dir: &AppDir) -> String {
    let (uid, name) = (Uid::effective(), dir.name());
    let user = account::name(uid.as_raw()).map(|user| escape::line(&user).into_owned());
    let word = user.clone().unwrap_or_else(|| uid.to_string());
    let advice = match enable::service_of(dir) {
        Some(service) => {
            // Those who are admitted stay.
            let list = |list: &str| match enable::admitted(&service, list) {
                Some(others) => format!("{list}={others},{word}"),
                None => format!("{list}={word}"),
            };
            let [views, types] = ["IOTTYMUX_VIEW_UID", "IOTTYMUX_ALLOW_UID"].map(list);
            format!(
                "sudo iottymux enable {service} --env {views} to watch, or {types} to type, too"
            )
        }
        None => format!("to start its mux with --allow-uid {word}"),
    };
    let user = user.map_or(word, |user| format!("{user} ({uid})"));
    format!("user {user} may not attach to app {name}; try {advice}")
}

/// What the mux of an app has left that has ended. How the app has ended may be known to systemd alone.
pub(crate) fn last(dir: &AppDir) -> Result<Option<Last>> {
    let mut last = Last::read(dir)?;
    if let Some(last) = &mut last {
        last.status = last.status.or_else(|| enable::status_of(dir));
    }
    Ok(last)
}

fn explain(error: &anyhow::Error, dir: &AppDir, wait: Duration, hint: Hint) -> anyhow::Error {
    log::debug!("{error:#}");
    let name = dir.name();
    let is_known = is_known(dir);
    let waited = Some(wait).filter(|wait| !wait.is_zero());
    // Hooks of units are no people.
    let service = enable::service_of(dir).filter(|_| waited.is_none() && hint != Hint::Nothing);
    let trouble = service.as_ref().and_then(|_| enable::mux_trouble(dir));
    let refusal = trouble.map_or(String::new(), |why| format!(": {why}"));
    let what = match waited {
        Some(wait) => format!("app {name} did not start within {wait:?}"),
        None if !dir.is_locked() && has_lost_its_mux(dir) => {
            format!("app {name}: its mux was killed{refusal}")
        }
        None if is_known => format!("app {name} is not running{refusal}"),
        None => unknown(dir),
    };
    let last = match last(dir) {
        Ok(last) => last,
        Err(unreadable) => return unreadable.context(what),
    };
    let advice = match service {
        Some(service) => {
            format!("; try systemctl{} start {service}", enable::manager_of(dir).option())
        }
        None if !is_known => "; try iottymux list".to_owned(),
        None => String::new(),
    };
    match last {
        Some(last) => Ended { what, advice, last }.into(),
        None => Unreachable::Absent(what + &advice).into(),
    }
}

/// Whether the app runs, has run, or is a service that may.
fn is_known(dir: &AppDir) -> bool {
    dir.dir().is_dir() || enable::service_of(dir).is_some()
}

/// Says that there is no such app, and where it was looked for. Root is told where another user has it.
pub(crate) fn unknown(dir: &AppDir) -> String {
    let mut text = format!("there is no app {} in {}", dir.name(), dir.state().display());
    if !dir.is_default() {
        return text;
    }
    let states = StateDir::all(None).unwrap_or_default();
    let others = states.iter().filter(|state| state.path() != dir.state());
    text.extend(others.map(|state| format!(" or {state}")));
    let hidden = if Uid::effective().is_root() { StateDir::of_others() } else { Vec::new() };
    match hidden.into_iter().find(|state| state.app(dir.name()).dir().is_dir()) {
        Some(state) => format!("{text} (there is one in {state}: pass --state-dir {state})"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn what_appears_below_a_new_directory_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let changes = Inotify::init(flags).unwrap();
        for round in 0..5000_u32 {
            let dir = root.path().join(round.to_string()).join("app");
            let file = dir.join("endpoints");
            let begins = AtomicBool::new(false);
            let make = || {
                while !begins.load(Ordering::Acquire) {
                    spin_loop();
                }
                // So that each step falls between any two of the other side, some time.
                let pause = |by: u32| (0..round * by % 301).for_each(|_| spin_loop());
                pause(7);
                fs::create_dir(dir.parent().unwrap()).unwrap();
                pause(11);
                fs::create_dir(&dir).unwrap();
                pause(13);
                fs::write(&file, "").unwrap();
            };
            thread::scope(|scope| {
                scope.spawn(make);
                begins.store(true, Ordering::Release);
                loop {
                    assert!(watch_anew(&changes, &dir).unwrap());
                    if file.exists() {
                        break;
                    }
                    let most = Some(Duration::from_secs(2));
                    let has_event = ready::wait_for(&changes, PollFlags::POLLIN, most).unwrap();
                    assert!(has_event, "round {round}");
                }
            });
        }
    }
}
