//! Refuses to attach to an app whose terminal shows this one: the output would go round for ever.
//!
//! Before the attach only the app's own terminal is known; [`mark`](super::mark) sees what shows this
//! one through other programs.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

use crate::commands::status;
use crate::os::state::AppDir;
use crate::types::stream::Stream;
use crate::types::terminal::TerminalId;
use crate::wire::Report;

/// This process's output, if it is a terminal.
fn own() -> Option<TerminalId> {
    let file = io::stdout().is_terminal().then(|| io::stdout().as_fd().try_clone_to_owned())?;
    File::from(file.ok()?).metadata().ok().map(TerminalId::from)
}

fn at(path: impl AsRef<Path>) -> Option<TerminalId> {
    fs::metadata(path).ok().map(TerminalId::from)
}

/// The terminal that an app's link leads to here. In a container it may lead to another one there.
fn linked(dir: &AppDir) -> Option<TerminalId> {
    at(dir.end(Stream::Tty.stage2()))
}

/// Whether this is the app's terminal, as its mux sees it. A mux of an earlier release does not tell.
fn is_of(report: &Report, terminal: TerminalId) -> bool {
    report.terminal.is_none_or(|its| its == terminal)
}

/// A circle that is not direct.
pub(crate) const CIRCLE: &str = "its terminal shows this one";

/// Why this terminal is not to show the app's: that one shows this one.
pub(crate) fn refusal(dir: &AppDir) -> Option<&'static str> {
    let (own, target) = (own()?, linked(dir)?);
    let is_target = || status::report(dir).is_ok_and(|report| is_of(&report, target));
    (own == target && is_target()).then_some("this terminal is its own")
}
