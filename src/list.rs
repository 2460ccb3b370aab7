//! Showing what can be attached.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::endpoints::Endpoints;
use crate::find;
use crate::last::Last;
use crate::name::AppName;
use crate::print::print;
use crate::state::{AppDir, StateDir};
use crate::status;

/// Prints the endpoints of an app, with a line end for people or as rkt does without one.
///
/// # Errors
/// When the app has none, or they cannot be printed.
pub fn one(dir: &AppDir, line_end: &str) -> Result<()> {
    let endpoints = Endpoints::read(dir).with_context(|| format!("listing app {}", dir.name()))?;
    show(&endpoints, line_end)
}

/// Prints endpoints.
///
/// # Errors
/// When they cannot be printed.
pub fn show(endpoints: &Endpoints, line_end: &str) -> Result<()> {
    print(&format!("{}{line_end}", endpoints.pretty()))
}

/// Prints a line for each app: the state of its mux (`gone` when it has died, `ended` when it has
/// ended, `refused` when it does not let us in, `-` when there was none), and what can be attached.
///
/// # Errors
/// When the state directory cannot be read, or the lines cannot be printed.
pub fn all(state: &StateDir) -> Result<()> {
    let line = |name: AppName| {
        let dir = state.app(&name);
        let Ok(endpoints) = Endpoints::read(&dir) else {
            let state = if matches!(Last::read(&dir), Ok(Some(_))) { "ended" } else { "-" };
            return [name.to_string(), state.into(), String::new()];
        };
        let streams: Vec<&str> = endpoints.streams().iter().map(|(s, _)| s.name()).collect();
        let state = match status::report(&dir) {
            Ok(report) => report.state,
            Err(e) if find::is_absence(&e) => "gone".into(),
            // It answers, but not us.
            Err(_) => "refused".into(),
        };
        [name.to_string(), state.escape_debug().to_string(), streams.join(",")]
    };
    let apps: Vec<[String; 3]> = state.apps()?.into_iter().map(line).collect();
    let width = apps.iter().map(|[name, ..]| name.len()).max().unwrap_or(0).max("APP".len());
    let mut text = format!("{:width$}  STATE       ENDPOINTS\n", "APP");
    for [name, state, streams] in apps {
        let line = format!("{name:width$}  {state:10}  {streams}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    print(&text)
}
