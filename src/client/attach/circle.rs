//! Refuses to attach to an app whose terminal shows this one, which would loop.
//!
//! On a terminal, [`mark`](super::mark) sees later what shows this one through other programs.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat};

use super::local_terminal::{Terminals, terminals};
use crate::client::status;
use crate::sys::state::AppDir;
use crate::types::stream::Stream;
use crate::types::terminal_identity::TerminalId;

/// Whether this terminal is the app's own. `types` if our input goes to the app.
pub(crate) fn is_own(dir: &AppDir, types: bool) -> bool {
    let Ok(linked) = fs::metadata(dir.end(Stream::Tty.stage2())).map(TerminalId::from) else {
        return false;
    };
    // The descriptors by which the app would show itself or type into itself.
    let here: &[u8] = match terminals() {
        Terminals { stdout: true, .. } if types => &[0, 1],
        Terminals { stdout: true, .. } => &[1],
        Terminals { stdin: true, .. } if types || is_pipe() => &[0, 2],
        _ => &[],
    };
    let is_it = |fd: &u8| {
        let file = fs::metadata(format!("/proc/self/fd/{fd}"));
        file.is_ok_and(|file| TerminalId::from(file) == linked)
    };
    // In a container the app's link may lead to another terminal there, so its mux is asked.
    here.iter().any(is_it)
        && status::report(dir).is_ok_and(|report| report.terminal == Some(linked))
}

/// Whether another program reads our output, and may show it here.
fn is_pipe() -> bool {
    fstat(io::stdout().as_fd())
        .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo)
}
