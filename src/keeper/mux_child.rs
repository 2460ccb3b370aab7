//! The mux as a child of the keeper.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::keeper_store::{self, Store};
use super::{AWAIT_CLIENT, MuxUser, NAME};
use crate::sys::calls;
use crate::sys::systemd::notify;
use crate::sys::systemd::own_process::{KEEPER, PROGRAM};
use crate::sys::systemd::store::FIRST_FD;
use crate::types::name::AppName;

/// How long a keeper waits before it restarts a failed mux; twice as long after each further
/// failure, up to [`MUX_RESTART_MOST`].
const MUX_RESTART: Duration = Duration::from_millis(100);
/// See [`MUX_RESTART`]. An app that writes waits meanwhile.
const MUX_RESTART_MOST: Duration = Duration::from_secs(5);
/// How long a mux may take to end after its app: it needs at most `DRAIN_READ` and
/// `DRAIN_DELIVER`.
const MUX_STOP: Duration = Duration::from_secs(20);
/// Muxes that may fail in a row after the app's end, before `run` ends without one.
const MUX_ENDINGS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct MuxProcess {
    state: MuxState,
    pub(super) channel: OwnedFd,
    /// Whether one of them was ready once.
    was_ready: bool,
    /// Muxes in a row that have ended before they were ready, or while they were to end.
    failures: u32,
    command: MuxCommand,
}

/// How a mux is started.
#[derive(Debug)]
struct MuxCommand {
    app: AppName,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// See [`KeepRequest`](super::KeepRequest).
    user: Option<MuxUser>,
}

#[derive(Debug)]
enum MuxState {
    Running {
        child: Child,
        is_ready: bool,
        /// Whether it has learnt how the app ended.
        knows_end: bool,
        /// When it is killed, if it was asked to end.
        killed_at: Option<Instant>,
    },
    Ended {
        /// When it is started again.
        starts_at: Option<Instant>,
    },
}

impl MuxProcess {
    /// Starts the first mux.
    pub(super) fn start(
        app: &AppName,
        arguments: Vec<OsString>,
        user: Option<MuxUser>,
        store: &Store,
    ) -> Result<Self> {
        // The name of the file, not the running one: after an upgrade the next mux is the new
        // program.
        let program = env::current_exe().context("cannot find this program")?;
        let command = MuxCommand { app: app.clone(), program, arguments, user };
        let (child, channel) = command.start(store)?;
        let state = MuxState::Running { child, is_ready: false, knows_end: false, killed_at: None };
        Ok(Self { state, channel, was_ready: false, failures: 0, command })
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state, MuxState::Running { .. })
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, MuxState::Running { is_ready: true, .. })
    }

    pub(super) fn was_ready(&self) -> bool {
        self.was_ready
    }

    pub(super) fn has_failed_often(&self) -> bool {
        self.failures >= MUX_ENDINGS
    }

    /// It is ready; whether it is the first one.
    pub(super) fn on_ready(&mut self) -> bool {
        if let MuxState::Running { is_ready, .. } = &mut self.state {
            *is_ready = true;
        }
        !std::mem::replace(&mut self.was_ready, true)
    }

    /// It has learnt how the app ended.
    pub(super) fn on_told(&mut self) {
        if let MuxState::Running { knows_end, .. } = &mut self.state {
            *knows_end = true;
        }
    }

    pub(super) fn knows_end(&self) -> bool {
        matches!(self.state, MuxState::Running { knows_end: true, .. })
    }

    /// Asks it to end; kills it after a while.
    pub(super) fn end(&mut self, now: Instant) {
        if let MuxState::Running { killed_at, .. } = &mut self.state {
            *killed_at = Some(now + MUX_STOP);
        }
        self.signal(Signal::SIGTERM);
    }

    /// Its process. As long as that is not reaped the number is its own.
    pub(super) fn pid(&self) -> Option<Pid> {
        let MuxState::Running { child, .. } = &self.state else { return None };
        i32::try_from(child.id()).ok().map(Pid::from_raw)
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, signal);
        }
    }

    /// How it ended, if it has ended now.
    pub(super) fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        let MuxState::Running { child, is_ready, killed_at, .. } = &mut self.state else {
            return Ok(None);
        };
        let Some(status) = child.try_wait()? else { return Ok(None) };
        let has_failed = !*is_ready || killed_at.is_some();
        self.failures = if has_failed { self.failures + 1 } else { 0 };
        self.state = MuxState::Ended { starts_at: None };
        Ok(Some(status))
    }

    /// Starts another one: at once, or later if the last ones failed.
    pub(super) fn start_later(&mut self, now: Instant) {
        let pause = match self.failures {
            0 => Duration::ZERO,
            n => (MUX_RESTART * (1 << (n - 1).min(16))).min(MUX_RESTART_MOST),
        };
        self.state = MuxState::Ended { starts_at: Some(now + pause) };
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            MuxState::Running { killed_at, .. } => killed_at,
            MuxState::Ended { starts_at } => starts_at,
        }
    }

    pub(super) fn do_what_is_due(&mut self, now: Instant, store: &Store) -> Result<()> {
        if self.due().is_none_or(|at| now < at) {
            return Ok(());
        }
        match &mut self.state {
            MuxState::Running { child, killed_at, .. } => {
                *killed_at = None;
                log::error!("the mux has not ended in {MUX_STOP:?}, killing it");
                child.kill().context("cannot kill the mux")
            }
            MuxState::Ended { .. } => {
                match self.command.start(store) {
                    Ok((child, channel)) => {
                        self.channel = channel;
                        self.state = MuxState::Running {
                            child,
                            is_ready: false,
                            knows_end: false,
                            killed_at: None,
                        };
                    }
                    Err(e) => {
                        log::error!("{e:#}");
                        self.failures += 1;
                        self.start_later(now);
                    }
                }
                Ok(())
            }
        }
    }
}

impl MuxCommand {
    /// Starts a mux with the descriptors kept for it.
    fn start(&self, store: &Store) -> Result<(Child, OwnedFd)> {
        let (ours, theirs) = keeper_store::channel().context("cannot make a socket for the mux")?;
        let start = |program: &Path| -> io::Result<Child> {
            let kept = store.iter().chain([(notify::KEEPER, &theirs)]);
            let (names, fds): (Vec<&str>, Vec<&OwnedFd>) = kept.unzip();
            let mut command = Command::new(program);
            command.arg0(PROGRAM).args(&self.arguments).env_remove(AWAIT_CLIENT);
            command.env(NAME, self.app.as_str());
            command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_PID");
            command.env("LISTEN_FDS", fds.len().to_string());
            command.env("LISTEN_FDNAMES", names.join(":"));
            command.env(KEEPER, std::process::id().to_string());
            if let Some(user) = &self.user {
                // Without further groups.
                command.uid(user.uid).gid(user.gid);
            }
            // A key of the terminal from which `run` was started is for the keeper alone.
            calls::in_own_session(&mut command, false);
            calls::ending_with_parent(&mut command, Signal::SIGTERM);
            calls::passing(&mut command, &fds, FIRST_FD)?;
            command.spawn()
        };
        let child = start(&self.program).or_else(|_| start(Path::new("/proc/self/exe")));
        Ok((child.context("cannot start the mux")?, ours))
    }
}
