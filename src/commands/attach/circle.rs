//! Refuses to attach to an app whose terminal shows this one: the output would go round for ever.
//!
//! A terminal is shown by the clients of its app, or by those of tmux or screen. So a circle may be
//! long, and another program may close it later: `attach` looks again while there is much output.
//! Terminals that this user may not see are left out; [`mark`](super::mark) sees some more.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::commands::status;
use crate::os::state::AppDir;
use crate::types::stream::Stream;
use crate::types::terminal::TerminalId;
use crate::wire::Report;

/// Terminals that are looked at, one after another: nobody nests so many.
const TERMINALS: usize = 64;

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

/// The terminals of the clients that read the output of an app, if this is its terminal.
fn of_clients(dir: &AppDir, terminal: TerminalId) -> Vec<TerminalId> {
    let report = status::report(dir).ok().filter(|report| is_of(report, terminal));
    let clients = report.map(|report| report.clients).unwrap_or_default();
    let reading = clients.iter().filter(|client| !client.streams.is_empty());
    reading.filter_map(|client| at(format!("/proc/{}/fd/1", client.pid))).collect()
}

/// The terminals of the clients of the tmux in which this process runs.
fn of_tmux() -> Vec<TerminalId> {
    if std::env::var_os("TMUX").is_none() {
        return Vec::new();
    }
    let mut tmux = Command::new("tmux");
    tmux.args(["list-clients", "-F", "#{client_tty}"]).stdin(Stdio::null());
    let listed = tmux.stderr(Stdio::null()).output().map(|out| out.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listed).lines().filter_map(at).collect()
}

/// The files that the screen in which this process runs has open: among them the terminals of its
/// clients. Only root may see these.
fn of_screen() -> Vec<TerminalId> {
    let session = std::env::var("STY").unwrap_or_default();
    let Some(pid) = session.split('.').next().and_then(|pid| pid.parse::<u32>().ok()) else {
        return Vec::new();
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|file| at(file.path())).collect()
}

/// A circle that is not direct.
pub(crate) const CIRCLE: &str = "its terminal shows this one";

/// Why this terminal is not to show the app's: that one shows this one.
pub(crate) fn refusal(dir: &AppDir) -> Option<&'static str> {
    let (own, target) = (own()?, linked(dir)?);
    let is_target = || status::report(dir).is_ok_and(|report| is_of(&report, target));
    if own == target && is_target() {
        return Some("this terminal is its own");
    }
    let with_terminal = |app: AppDir| Some((linked(&app)?, app));
    let apps = dir.neighbours().into_iter().map(|name| dir.neighbour(&name));
    let apps: Vec<_> = apps.filter_map(with_terminal).collect();
    let mut seen = vec![own];
    let mut next = [of_tmux(), of_screen()].concat();
    for at in 0..TERMINALS {
        let terminal = *seen.get(at)?;
        for (_, app) in apps.iter().filter(|(its, _)| *its == terminal) {
            next.extend(of_clients(app, terminal));
        }
        if next.contains(&target) && is_target() {
            return Some(CIRCLE);
        }
        next.retain(|terminal| !seen.contains(terminal));
        seen.append(&mut next);
    }
    None
}
