//! Refuses to attach to an app whose terminal shows this one, which would loop.
//!
//! On a terminal, [`mark`](super::mark) sees later what shows this one through other programs. An output
//! elsewhere shows no mark, so there the terminals around this process are known before the attach.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::parent_id;

use rustix::fs::{FileType, fstat};

use super::local_terminal::{Terminals, terminals};
use crate::client::status;
use crate::sys::process;
use crate::sys::state::AppDir;
use crate::types::stream::Stream;
use crate::types::terminal_identity::TerminalId;

/// What a process has as one of these standard descriptors.
fn of_process(pid: u32, fds: &[u8]) -> impl Iterator<Item = TerminalId> {
    let files = fds.iter().map(move |fd| fs::metadata(format!("/proc/{pid}/fd/{fd}")));
    files.flatten().map(TerminalId::from)
}

/// The terminals that this process reads and writes; around a pipe or a file, those of the processes
/// that have started it, too. `types` if its input goes to the app.
fn around(types: bool) -> Vec<TerminalId> {
    let here = std::process::id();
    match terminals() {
        Terminals { stdout: true, .. } if types => of_process(here, &[0, 1]).collect(),
        Terminals { stdout: true, .. } => of_process(here, &[1]).collect(),
        Terminals { stdin: true, .. } if types || is_pipe() => {
            let parent = |pid: &u32| process::stat(*pid, process::PARENT).filter(|pid| *pid > 1);
            let all = std::iter::successors(Some(parent_id()), parent);
            all.chain([here]).flat_map(|pid| of_process(pid, &[0, 1, 2])).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether another program reads our output, and may show it here.
fn is_pipe() -> bool {
    fstat(io::stdout().as_fd())
        .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo)
}

/// Whether this terminal is the app's own. `types` if our input goes to the app.
pub(crate) fn is_own(dir: &AppDir, types: bool) -> bool {
    let linked = fs::metadata(dir.end(Stream::Tty.stage2())).map(TerminalId::from);
    // In a container the app's link may lead to another terminal there, so its mux is asked.
    linked.is_ok_and(|linked| {
        around(types).contains(&linked)
            && status::report(dir).is_ok_and(|report| report.terminal == Some(linked))
    })
}
