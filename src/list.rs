//! Showing what can be attached.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Context, Result};

use crate::endpoints::Endpoints;
use crate::state::{AppDir, StateDir};

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

/// Prints a line for each app that has a mux.
///
/// # Errors
/// When the state directory cannot be read, or the lines cannot be printed.
pub fn all(state: &StateDir) -> Result<()> {
    let apps: Vec<(String, String)> = state
        .apps()?
        .into_iter()
        .filter_map(|name| {
            let endpoints = Endpoints::read(&state.app(&name)).ok()?;
            let streams: Vec<&str> = endpoints.streams().iter().map(|(s, _)| s.name()).collect();
            Some((name.to_string(), streams.join(",")))
        })
        .collect();
    let width = apps.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("APP".len());
    let mut text = format!("{:width$}  ENDPOINTS\n", "APP");
    for (name, streams) in apps {
        let _ = writeln!(text, "{name:width$}  {streams}");
    }
    print(&text)
}

/// Prints text. A reader that has seen enough is no error.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(e).context("writing standard output")
        }
        _ => Ok(()),
    }
}
