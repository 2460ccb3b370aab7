//! The signals that a mux hears.

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// To end (SIGTERM, SIGINT, SIGQUIT).
    Stop(Signal),
    /// To open the logs anew (SIGHUP).
    Reopen,
    /// A child has changed (SIGCHLD).
    Child,
}

/// See the module.
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    hangup: unix::Signal,
    child: unix::Signal,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        // A log at the limit of a file's size is a log that fails, and not the end of the mux. A
        // handler stays, though nobody listens, and a child does not inherit it.
        let _ = unix::signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?;
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            quit: unix::signal(SignalKind::quit())?,
            hangup: unix::signal(SignalKind::hangup())?,
            child: unix::signal(SignalKind::child())?,
        })
    }

    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.child.recv() => Asked::Child,
            _ = self.terminate.recv() => Asked::Stop(Signal::SIGTERM),
            _ = self.interrupt.recv() => Asked::Stop(Signal::SIGINT),
            _ = self.quit.recv() => Asked::Stop(Signal::SIGQUIT),
            _ = self.hangup.recv() => Asked::Reopen,
        }
    }
}
