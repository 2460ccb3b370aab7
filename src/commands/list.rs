//! Lists apps and their endpoints.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result};

use super::{find, status};
use crate::os::print::print;
use crate::os::state::{AppDir, StateDir};
use crate::types::name::AppName;
use crate::wire::AppState;
use crate::wire::container::Container;
use crate::wire::endpoints::Endpoints;
use crate::wire::last::Last;

/// Muxes that are queried for their status at the same time: enough that hanging ones do not add
/// up, and few beside the threads and descriptors of a user.
const ASKED: usize = 64;

/// Characters of a column with the streams of an app.
const STREAMS: usize = "stdin,stdout,stderr".len();

/// Prints the endpoints of an app, with a line end for people or as rkt does without one.
pub(crate) fn one(dir: &AppDir, line_end: &str) -> Result<()> {
    let endpoints =
        Endpoints::read(dir).with_context(|| format!("cannot list app {}", dir.name()))?;
    show(&endpoints, line_end)
}

/// Prints endpoints.
pub(crate) fn show(endpoints: &Endpoints, line_end: &str) -> Result<()> {
    print(&format!("{}{line_end}", endpoints.pretty()))
}

/// Prints a line for each app: its state (`refused` if its mux does not let us in), its streams, and
/// the container that it is.
/// `enabled` are the apps with units, which can be started. Of apps with the same name it shows
/// that of the first directory.
pub(crate) fn all(states: &[StateDir], enabled: &[AppName]) -> Result<()> {
    let line = |(name, state): (&AppName, &StateDir)| {
        let dir = state.app(name);
        let container = Container::read(&dir)
            .map_or(String::new(), |container| container.to_string().escape_debug().to_string());
        let endpoints = match Endpoints::read(&dir) {
            Ok(endpoints) => endpoints,
            Err(e) if find::is_forbidden(&e) => {
                return [name.to_string(), "refused".into(), String::new(), container];
            }
            Err(_) => {
                let state = without_endpoints(&dir, enabled.contains(name));
                return [name.to_string(), state.word().into(), String::new(), container];
            }
        };
        let streams: Vec<&str> = endpoints.streams().iter().map(|(s, _)| s.name()).collect();
        let state = match status::report(&dir) {
            Ok(report) => report.app_state().word(),
            Err(e) if find::is_absence(&e) || is_late(&e) => AppState::Unknown.word(),
            // It answers, but refuses this user.
            Err(_) => "refused",
        };
        [name.to_string(), state.into(), streams.join(","), container]
    };
    let mut names = BTreeMap::new();
    for state in states {
        for name in state.apps()? {
            names.entry(name).or_insert(state);
        }
    }
    if let Some(state) = states.first() {
        for name in enabled {
            names.entry(name.clone()).or_insert(state);
        }
    }
    let names: Vec<_> = names.iter().map(|(name, state)| (name, *state)).collect();
    // Wait for muxes that hang in parallel.
    let mut apps: Vec<[String; 4]> = Vec::new();
    for names in names.chunks(ASKED) {
        thread::scope(|scope| {
            let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| line(*name))).collect();
            let lines = asked.into_iter().map(ScopedJoinHandle::join);
            apps.extend(lines.map(|line| line.unwrap_or_else(|panic| resume_unwind(panic))));
        });
    }
    let width = apps.iter().map(|[name, ..]| name.len()).max().unwrap_or(0).max("APP".len());
    let has_container = apps.iter().any(|[.., container]| !container.is_empty());
    // Nothing that a script reads moves without one.
    let (room, title) = if has_container { (STREAMS, "  CONTAINER") } else { (0, "") };
    let mut text = format!("{:width$}  STATE      {:room$}{title}\n", "APP", "ENDPOINTS");
    for [name, state, streams, container] in apps {
        let line = format!("{name:width$}  {state:9}  {streams:room$}  {container}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    print(&text)
}

/// Whether a mux has not answered in time.
fn is_late(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == ErrorKind::TimedOut)
}

/// The state of an app that has no document.
fn without_endpoints(dir: &AppDir, is_enabled: bool) -> AppState {
    let has_ended = matches!(Last::read(dir), Ok(Some(_)));
    match (dir.is_locked(), has_ended) {
        (true, true) => AppState::Stopping,
        (true, false) => AppState::Preparing,
        (false, true) => AppState::Exited,
        (false, false) if is_enabled => AppState::Prepared,
        (false, false) => AppState::Unknown,
    }
}
