//! The app of a keeper: a child of it, or a container that an engine starts.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::poll::PollFd;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::{AWAIT_CLIENT, NAME, OWN_NAME};
use crate::core::wire::AppStatus;
use crate::mux::foreground;
use crate::sys::state::AppDir;
use crate::sys::systemd::own_process;
use crate::sys::{agent, calls, process};
use crate::types::terminal_identity::TERM;

/// Signals that whoever started `run` may ignore, and its command does not: those of job control, and
/// those that programs give themselves. The keeper catches the others.
const FRESH: [Signal; 6] = [
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// An app, as its keeper sees it.
pub(crate) trait KeptApp {
    /// Starts it on its ends (of stdin, stdout and stderr, or of its terminal), unless that is done
    /// elsewhere.
    fn start(&mut self, _ends: Vec<OwnedFd>) -> Result<()> {
        Ok(())
    }

    /// What the keeper is to poll for it.
    fn watched(&self) -> Vec<PollFd<'_>> {
        Vec::new()
    }

    /// When it is to be looked at though nothing happens.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does what is due, and returns what has become of it since.
    fn look(&mut self, now: Instant) -> Result<Option<AppEvent>>;

    /// Passes a signal on; whether there is a process to take it. Otherwise SIGTERM ends the mux.
    /// `terminal` is the master of its terminal, if the keeper has that.
    fn signal(&mut self, signal: Signal, terminal: Option<&OwnedFd>, now: Instant) -> bool;

    /// It has got SIGTERM, from elsewhere.
    fn on_terminated(&mut self, _terminal: Option<&OwnedFd>) {}

    /// Its process, where the keeper knows it, until it is known how that ended.
    fn pid(&self) -> Option<Pid>;

    /// It has ended, and its engine has all output: the engine may learn of the end.
    fn let_go(&mut self) {}
}

/// What has become of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppEvent {
    /// It runs, and [`KeptApp::pid`] is known.
    Started,
    /// It has ended, if it is known how.
    Ended(Option<AppStatus>),
}

/// A command that is, or will be, the app.
#[derive(Debug)]
pub(crate) struct CommandApp {
    command: Command,
    terminal: bool,
    /// Where it finds the ssh agent of whoever attached last.
    agent_in: Option<AppDir>,
    child: Option<Child>,
    /// Whether it got SIGTERM before.
    is_asked_to_end: bool,
}

impl CommandApp {
    /// The command and its arguments, at least one word; on a terminal it leads a session of its
    /// own.
    pub(crate) fn new(words: &[OsString], terminal: bool, dir: &AppDir) -> Self {
        let (program, arguments) =
            words.split_first().map_or((None, &[][..]), |(p, rest)| (Some(p), rest));
        let mut command = Command::new(program.map_or("".as_ref(), |p| p.as_os_str()));
        command.args(arguments);
        for private in own_process::PRIVATE_ENV.into_iter().chain([AWAIT_CLIENT, NAME]) {
            command.env_remove(private);
        }
        command.env(OWN_NAME, dir.name().as_str());
        calls::in_own_session(&mut command, terminal);
        calls::ending_with_parent(&mut command, Signal::SIGTERM);
        calls::with_default_signals(&mut command, &FRESH);
        Self { command, terminal, agent_in: None, child: None, is_asked_to_end: false }
    }

    /// It has the ssh agent of whoever attached last.
    pub(crate) fn with_agent(self, dir: AppDir) -> Self {
        Self { agent_in: Some(dir), ..self }
    }

    /// Acts like a closed terminal: the process and its foreground job get SIGHUP.
    fn hang_up(pid: Pid, foreground: Option<Pid>) {
        let _ = kill(pid, Signal::SIGHUP);
        let _ = kill(pid, Signal::SIGCONT);
        if let Some(group) = foreground {
            let _ = killpg(group, Signal::SIGHUP);
            let _ = killpg(group, Signal::SIGCONT);
        }
    }
}

impl KeptApp for CommandApp {
    fn start(&mut self, ends: Vec<OwnedFd>) -> Result<()> {
        let mut ends = ends.into_iter();
        let (stdin, stdout, stderr) = match (ends.next(), ends.next(), ends.next()) {
            (Some(tty), None, _) => (tty.try_clone()?, tty.try_clone()?, tty),
            (Some(stdin), Some(stdout), Some(stderr)) => (stdin, stdout, stderr),
            _ => bail!("cannot start the command: its mux has not made its streams"),
        };
        self.command.stdin(stdin).stdout(stdout).stderr(stderr);
        if self.terminal && std::env::var_os("TERM").is_none() {
            self.command.env("TERM", TERM);
        }
        if let Some(agent) = self.agent_in.as_ref().and_then(agent::offer) {
            self.command.env(agent::VARIABLE, agent);
        }
        let program = self.command.get_program().to_owned();
        let child = self.command.spawn();
        // The command would keep the app's ends open in this process.
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    fn look(&mut self, _: Instant) -> Result<Option<AppEvent>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(ended) = child.try_wait().context("cannot wait for the app")? {
            self.child = None;
            return Ok(Some(AppEvent::Ended(Some(status(ended)))));
        }
        Ok(None)
    }

    /// A signal of a key goes to the job in the terminal's foreground, as there. Interactive shells
    /// ignore SIGTERM: their terminal hangs up at once. That of any other command hangs up when
    /// SIGTERM comes again.
    fn signal(&mut self, signal: Signal, terminal: Option<&OwnedFd>, _: Instant) -> bool {
        let Some(pid) = self.pid() else { return false };
        if let Signal::SIGINT | Signal::SIGQUIT = signal
            && let Some(group) = terminal.and_then(foreground)
        {
            return killpg(group, signal).is_ok();
        }
        let is_taken = kill(pid, signal).is_ok();
        if signal == Signal::SIGTERM {
            self.on_terminated(terminal);
        }
        is_taken
    }

    fn on_terminated(&mut self, terminal: Option<&OwnedFd>) {
        let Some(pid) = self.pid().filter(|_| self.terminal) else { return };
        let again = std::mem::replace(&mut self.is_asked_to_end, true);
        if again || process::ignores(pid.as_raw().unsigned_abs(), Signal::SIGTERM) {
            log::info!("the command does not end on SIGTERM, its terminal hangs up");
            Self::hang_up(pid, terminal.and_then(foreground));
        }
    }

    /// The number is not used again before [`KeptApp::look`].
    fn pid(&self) -> Option<Pid> {
        let child = self.child.as_ref()?;
        i32::try_from(child.id()).ok().map(Pid::from_raw)
    }
}

/// The status as clients get it.
fn status(status: ExitStatus) -> AppStatus {
    let small = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => AppStatus::Status(small(code)),
        (None, signal) => AppStatus::Signal(signal.map_or(u8::MAX, small)),
    }
}
