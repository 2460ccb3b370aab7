//! Refuses to attach to an app whose terminal shows this one: the output would go round for ever.
//!
//! A terminal is shown by the clients of its app, or by those of tmux. So a circle may be long, and
//! another program may close it later: `attach` looks again while there is much output. Terminals
//! that this user may not see are left out.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use rustix::fs::fstat;

use crate::commands::status;
use crate::os::state::AppDir;
use crate::types::stream::Stream;

/// Terminals that are looked at, one after another: nobody nests so many.
const TERMINALS: usize = 32;

/// The identity of a terminal: its file system, its file, and its device. Each container numbers
/// its own terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TerminalId(u64, u64, u64);

impl TerminalId {
    /// This process's output, if it is a terminal.
    fn own() -> Option<Self> {
        let stat = fstat(io::stdout().as_fd()).ok().filter(|_| io::stdout().is_terminal())?;
        Some(Self(stat.st_dev, stat.st_ino, stat.st_rdev))
    }

    fn at(path: impl AsRef<Path>) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self(found.dev(), found.ino(), found.rdev()))
    }

    fn of_app(dir: &AppDir) -> Option<Self> {
        Self::at(dir.end(Stream::Tty.stage2().as_ref()))
    }

    /// The terminals of the clients that read the app's output.
    fn of_clients(dir: &AppDir) -> Vec<Self> {
        let clients = status::report(dir).map(|report| report.clients).unwrap_or_default();
        let reading = clients.iter().filter(|client| !client.streams.is_empty());
        reading.filter_map(|client| Self::at(format!("/proc/{}/fd/1", client.pid))).collect()
    }

    /// The terminals of the clients of the tmux in which this process runs.
    fn of_tmux() -> Vec<Self> {
        if std::env::var_os("TMUX").is_none() {
            return Vec::new();
        }
        let mut tmux = Command::new("tmux");
        tmux.args(["list-clients", "-F", "#{client_tty}"]).stdin(Stdio::null());
        let listed = tmux.stderr(Stdio::null()).output().map(|out| out.stdout).unwrap_or_default();
        String::from_utf8_lossy(&listed).lines().filter_map(Self::at).collect()
    }
}

/// Fails if the app's terminal shows this one.
pub(crate) fn check(dir: &AppDir) -> Result<()> {
    let (Some(own), Some(target)) = (TerminalId::own(), TerminalId::of_app(dir)) else {
        return Ok(());
    };
    let name = dir.name();
    if own == target {
        bail!("cannot attach to app {name}: this terminal is its own");
    }
    let with_terminal = |app: AppDir| Some((TerminalId::of_app(&app)?, app));
    let apps = dir.neighbours().into_iter().map(|name| dir.neighbour(&name));
    let apps: Vec<_> = apps.filter_map(with_terminal).collect();
    let mut seen = vec![own];
    let mut next = TerminalId::of_tmux();
    for at in 0..TERMINALS {
        let Some(terminal) = seen.get(at).copied() else { return Ok(()) };
        for (_, app) in apps.iter().filter(|(its, _)| *its == terminal) {
            next.extend(TerminalId::of_clients(app));
        }
        if next.contains(&target) {
            bail!("cannot attach to app {name}: its terminal shows this one");
        }
        next.retain(|terminal| !seen.contains(terminal));
        seen.append(&mut next);
    }
    Ok(())
}
