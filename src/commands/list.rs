//! Lists apps and their endpoints.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::{each, find, status};
use crate::os::print::print;
use crate::os::state::{AppDir, StateDir};
use crate::types::name::AppName;
use crate::wire::AppState;
use crate::wire::container::Container;
use crate::wire::endpoints::Endpoints;

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
    let apps = each::app(states, enabled, |dir, is_enabled| line(&dir, is_enabled))?;
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

/// The columns of an app.
fn line(dir: &AppDir, is_enabled: bool) -> [String; 4] {
    let name = dir.name().to_string();
    let container = Container::read(dir)
        .map_or(String::new(), |container| container.to_string().escape_debug().to_string());
    let endpoints = match Endpoints::read(dir) {
        Ok(endpoints) => endpoints,
        Err(e) if find::is_forbidden(&e) => {
            return [name, "refused".into(), String::new(), container];
        }
        Err(_) => {
            let state = find::state_without_mux(dir, is_enabled);
            return [name, state.word().into(), String::new(), container];
        }
    };
    let streams: Vec<&str> = endpoints.streams().iter().map(|(s, _)| s.name()).collect();
    let state = match status::report(dir) {
        Ok(report) => report.app_state().word(),
        Err(e) if find::is_absence(&e) || find::is_late(&e) => AppState::Unknown.word(),
        // It answers, but refuses this user.
        Err(_) => "refused",
    };
    [name, state.into(), streams.join(","), container]
}
