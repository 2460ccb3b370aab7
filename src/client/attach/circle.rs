//! Refuses to attach to an app whose terminal shows this one, which would loop.
//!
//! Before the attach only the app's own terminal is known; [`mark`](super::mark) sees what shows this
//! one through other programs.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use crate::client::status;
use crate::sys::state::AppDir;
use crate::types::stream::Stream;
use crate::types::terminal::TerminalId;

/// This process's output, if it is a terminal.
fn own() -> Option<TerminalId> {
    let file = io::stdout().is_terminal().then(|| io::stdout().as_fd().try_clone_to_owned())?;
    File::from(file.ok()?).metadata().ok().map(TerminalId::from)
}

/// Why this terminal is not to show the app's: that one shows this one.
pub(crate) fn refusal(dir: &AppDir) -> Option<&'static str> {
    let own = own()?;
    // In a container the app's link may lead to another terminal there, so its mux is asked. A mux of
    // an earlier release does not tell.
    let linked = fs::metadata(dir.end(Stream::Tty.stage2())).ok().map(TerminalId::from);
    let is_own =
        || status::report(dir).is_ok_and(|report| report.terminal.is_none_or(|its| its == own));
    (linked == Some(own) && is_own()).then_some("this terminal is its own")
}
