//! Refuses to attach to an app whose terminal shows this one, which would loop.
//!
//! On a terminal, [`mark`](super::mark) sees later what shows this one through other programs. An output
//! elsewhere shows no mark, so there the terminals around this process are known before the attach.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::parent_id;

use rustix::fs::{FileType, fstat};

use super::mark::CIRCLE;
use super::terminal::{Terminals, terminals};
use crate::client::status;
use crate::sys::process;
use crate::sys::state::{AppDir, StateDir};
use crate::types::stream::Stream;
use crate::types::terminal::TerminalId;

/// The terminals of processes.
type Around = BTreeSet<TerminalId>;

/// The terminal of an app.
fn of_app(dir: &AppDir) -> Option<TerminalId> {
    fs::metadata(dir.end(Stream::Tty.stage2())).ok().map(TerminalId::from)
}

/// What a process has as one of these standard descriptors.
fn of_process(pid: u32, fds: &[u8]) -> impl Iterator<Item = TerminalId> {
    let files = fds.iter().map(move |fd| fs::metadata(format!("/proc/{pid}/fd/{fd}")));
    files.flatten().map(TerminalId::from)
}

/// The terminals that this process reads and writes; around a pipe or a file, those of the processes
/// that have started it, too. `types` if its input goes to the app.
fn around(types: bool) -> Around {
    let here = std::process::id();
    match terminals() {
        Terminals { stdout: true, .. } if types => of_process(here, &[0, 1]).collect(),
        Terminals { stdout: true, .. } => of_process(here, &[1]).collect(),
        Terminals { stdin: true, .. } if types || is_pipe() => {
            let parent = |pid: &u32| process::stat(*pid, process::PARENT).filter(|pid| *pid > 1);
            let all = std::iter::successors(Some(parent_id()), parent);
            all.chain([here]).flat_map(|pid| of_process(pid, &[0, 1, 2])).collect()
        }
        _ => Around::new(),
    }
}

/// Whether another program reads our output, and may show it here.
fn is_pipe() -> bool {
    fstat(io::stdout().as_fd())
        .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Fifo)
}

/// Adds the terminals that show an app whose terminal is one of these.
fn add_viewers(around: &mut Around, dir: &AppDir) {
    let state = StateDir::resolve(Some(dir.state().into()));
    let names = dir.neighbours();
    let mut apps: Vec<_> =
        state.iter().flat_map(|it| names.iter().map(|name| it.app(name))).collect();
    while let Some(at) =
        apps.iter().position(|app| of_app(app).is_some_and(|it| around.contains(&it)))
    {
        let clients =
            status::report(&apps.swap_remove(at)).map(|it| it.clients).unwrap_or_default();
        let pids = clients.iter().filter_map(|client| u32::try_from(client.pid).ok());
        around.extend(pids.flat_map(|pid| of_process(pid, &[0, 1, 2])));
    }
}

/// Why this terminal is not to show the app's: that one shows this one. `types` if our input goes to
/// the app.
pub(crate) fn refusal(dir: &AppDir, types: bool) -> Option<&'static str> {
    let linked = of_app(dir)?;
    let mut around = around(types);
    let why = if around.contains(&linked) {
        "this terminal is its own"
    } else if !terminals().stdout && !around.is_empty() {
        add_viewers(&mut around, dir);
        around.contains(&linked).then_some(CIRCLE)?
    } else {
        return None;
    };
    // In a container the app's link may lead to another terminal there, so its mux is asked. A mux of
    // an earlier release does not tell.
    let is_own =
        || status::report(dir).is_ok_and(|report| report.terminal.is_none_or(|its| its == linked));
    is_own().then_some(why)
}
