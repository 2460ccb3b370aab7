//! The app as a child of this process, under `run`. Under systemd the mux has no child.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::libc::O_NOCTTY;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::os::state::AppDir;
use crate::os::sys;
use crate::systemd::process;
use crate::types::limits;
use crate::types::stream::Stream;
use crate::wire::{AppStatus, LifecycleEvent, Started};

/// The variable by which `run --attach` makes its mux start the app only when it has attached.
pub(crate) const AWAIT_CLIENT: &str = "IOTTYMUX_AWAIT_CLIENT";

/// The `TERM` of an app that is given none; most emulators understand it.
pub(crate) const TERM: &str = "xterm-256color";

/// A command that is, or will be, the app.
#[derive(Debug)]
pub(crate) struct AppProcess {
    command: Command,
    terminal: bool,
    child: Option<Child>,
    /// Until when it waits for a client before it starts.
    pub(crate) waits_until: Option<Instant>,
    /// When its terminal hangs up, once it has been asked to end.
    pub(crate) hangs_up_at: Option<Instant>,
}

impl AppProcess {
    /// The command and its arguments; with a terminal it becomes the leader of its session.
    ///
    /// `command` is not empty.
    pub(crate) fn new(
        command: &[std::ffi::OsString],
        terminal: bool,
        waits_until: Option<Instant>,
    ) -> Self {
        let (program, arguments) =
            command.split_first().map_or((None, &[][..]), |(p, a)| (Some(p), a));
        let mut command = Command::new(program.map_or("".as_ref(), |p| p.as_os_str()));
        command.args(arguments);
        for name in process::PRIVATE_ENV.into_iter().chain([AWAIT_CLIENT]) {
            command.env_remove(name);
        }
        sys::in_own_session(&mut command, terminal);
        Self { command, terminal, child: None, waits_until, hangs_up_at: None }
    }

    /// Opens its ends of the streams, which this process has opened on its side.
    pub(crate) fn open(&mut self, dir: &AppDir) -> Result<()> {
        let open = |stream: Stream, read: bool, write: bool| -> Result<OwnedFd> {
            let path = dir.end(stream.stage2());
            // It becomes the app's controlling terminal, not ours.
            let flags = O_NOCTTY;
            let file = OpenOptions::new().read(read).write(write).custom_flags(flags).open(&path);
            Ok(file.with_context(|| format!("opening {}", path.display()))?.into())
        };
        let (stdin, stdout, stderr) = if self.terminal {
            let tty = open(Stream::Tty, true, true)?;
            (tty.try_clone()?, tty.try_clone()?, tty)
        } else {
            (
                open(Stream::Stdin, true, false)?,
                open(Stream::Stdout, false, true)?,
                open(Stream::Stderr, false, true)?,
            )
        };
        self.command.stdin(stdin).stdout(stdout).stderr(stderr);
        Ok(())
    }

    /// Starts it, and returns the event of that.
    pub(crate) fn start(&mut self) -> Result<LifecycleEvent> {
        self.waits_until = None;
        if self.terminal && std::env::var_os("TERM").is_none() {
            self.command.env("TERM", TERM);
        }
        let program = self.command.get_program().to_owned();
        let child = self.command.spawn();
        // The command would keep the app's ends open in this process.
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.with_context(|| format!("starting {}", program.display()))?;
        let started = Started { pid: child.id() };
        self.child = Some(child);
        Ok(LifecycleEvent::Started(started))
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<AppStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        Ok(child.try_wait()?.map(status))
    }

    /// Passes a signal on; whether there is a process to take it. Those of keys go to the job in its
    /// terminal's `foreground`, as there. One at a terminal that has not ended a while after SIGTERM, or when
    /// that comes again, is to be hung up: interactive shells ignore it.
    pub(crate) fn signal(&mut self, signal: Signal, foreground: Option<Pid>, now: Instant) -> bool {
        let Some(pid) = self.pid() else { return false };
        if let (Signal::SIGINT | Signal::SIGQUIT, Some(group)) = (signal, foreground) {
            return killpg(group, signal).is_ok();
        }
        if self.terminal && signal == Signal::SIGTERM {
            let again = self.hangs_up_at.is_some();
            self.hangs_up_at = Some(if again { now } else { now + limits::HANG_UP });
        }
        kill(pid, signal).is_ok()
    }

    /// Does to it what a terminal that is closed does: it and the job in its foreground get SIGHUP.
    pub(crate) fn hang_up(&mut self, foreground: Option<Pid>) {
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

    /// Its process, until [`AppProcess::try_wait`] has returned its end: until then the number is not used again.
    fn pid(&self) -> Option<Pid> {
        let child = self.child.as_ref()?;
        i32::try_from(child.id()).ok().map(Pid::from_raw)
    }
}

/// The status as it is reported to clients.
fn status(status: ExitStatus) -> AppStatus {
    let small = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    match (status.code(), status.signal()) {
        (Some(code), _) => AppStatus::Status(small(code)),
        (None, signal) => AppStatus::Signal(signal.map_or(u8::MAX, small)),
    }
}
