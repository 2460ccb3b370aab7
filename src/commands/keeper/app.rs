//! The app as a child of the keeper.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::AWAIT_CLIENT;
use crate::mux::app::TERM;
use crate::os::sys;
use crate::systemd::process;
use crate::wire::AppStatus;

/// How long a command at a terminal has after SIGTERM before `run` hangs up its terminal: as with
/// container engines.
const HANG_UP: Duration = Duration::from_secs(10);

/// A command that is, or will be, the app.
#[derive(Debug)]
pub(super) struct App {
    command: Command,
    terminal: bool,
    child: Option<Child>,
    pub(super) status: Option<AppStatus>,
    /// When its terminal hangs up, once it has been asked to end.
    hangs_up_at: Option<Instant>,
}

impl App {
    /// The command and its arguments, at least one word; on a terminal it leads a session of its
    /// own.
    pub(super) fn new(words: &[OsString], terminal: bool) -> Self {
        let (program, arguments) =
            words.split_first().map_or((None, &[][..]), |(p, rest)| (Some(p), rest));
        let mut command = Command::new(program.map_or("".as_ref(), |p| p.as_os_str()));
        command.args(arguments);
        for name in process::PRIVATE_ENV.into_iter().chain([AWAIT_CLIENT]) {
            command.env_remove(name);
        }
        sys::in_own_session(&mut command, terminal);
        sys::ending_with_parent(&mut command);
        Self { command, terminal, child: None, status: None, hangs_up_at: None }
    }

    /// Starts it on its ends: of stdin, stdout and stderr, or of its terminal.
    pub(super) fn start(&mut self, ends: Vec<OwnedFd>) -> Result<()> {
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
        let program = self.command.get_program().to_owned();
        let child = self.command.spawn();
        // The command would keep the app's ends open in this process.
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Collects its status, if it has ended; whether it has ended now.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        let Some(ended) = child.try_wait()? else { return Ok(false) };
        self.child = None;
        self.hangs_up_at = None;
        self.status = Some(status(ended));
        Ok(true)
    }

    /// Passes a signal on; whether there is a process to take it. A signal of a key goes to the job
    /// in the terminal's `foreground`, as there. Interactive shells ignore SIGTERM: after
    /// [`HANG_UP`], or when that signal comes again, the terminal hangs up.
    pub(super) fn signal(&mut self, signal: Signal, foreground: Option<Pid>, now: Instant) -> bool {
        let Some(pid) = self.pid() else { return false };
        if let (Signal::SIGINT | Signal::SIGQUIT, Some(group)) = (signal, foreground) {
            return killpg(group, signal).is_ok();
        }
        if self.terminal && signal == Signal::SIGTERM {
            let again = self.hangs_up_at.is_some();
            self.hangs_up_at = Some(if again { now } else { now + HANG_UP });
        }
        kill(pid, signal).is_ok()
    }

    /// When its terminal hangs up, if it was asked to end and has not.
    pub(super) fn hangs_up_at(&self) -> Option<Instant> {
        self.hangs_up_at
    }

    /// Acts like a closed terminal: the process and its foreground job get SIGHUP.
    pub(super) fn hang_up(&mut self, foreground: Option<Pid>) {
        self.hangs_up_at = None;
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGHUP);
            let _ = kill(pid, Signal::SIGCONT);
        }
        if let Some(group) = foreground {
            let _ = killpg(group, Signal::SIGHUP);
            let _ = killpg(group, Signal::SIGCONT);
        }
    }

    /// Its process while it runs. The number is not used again before [`App::reap`].
    pub(super) fn pid(&self) -> Option<Pid> {
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
