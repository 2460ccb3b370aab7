//! The signals that a mux hears.

use std::future::ready;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalRequest {
    /// To end (SIGTERM, SIGINT, SIGQUIT).
    Stop(Signal),
    /// To open the logs anew (SIGHUP).
    Reopen,
    /// A child has changed (SIGCHLD).
    Child,
}

/// See the module.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    hangup: unix::Signal,
    child: unix::Signal,
}

/// Has what is too large for the limit of a file's size (SIGXFSZ) fail, and not end the process: a log is
/// then one that fails. A handler stays, though nobody listens, and a child does not inherit it.
pub(crate) fn outlive_file_limit() -> io::Result<()> {
    unix::signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map(drop)
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            quit: unix::signal(SignalKind::quit())?,
            hangup: unix::signal(SignalKind::hangup())?,
            child: unix::signal(SignalKind::child())?,
        })
    }

    /// Readable when one has come, for who waits without the runtime; to be made after [`Signals::new`],
    /// so that the runtime knows of one first.
    pub(crate) fn bell() -> io::Result<UnixStream> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD] {
            pipe::register(signal, ring.try_clone()?)?;
        }
        Ok(bell)
    }

    /// What has come by now, where the runtime has had its turn.
    pub(crate) async fn now(&mut self) -> Option<SignalRequest> {
        tokio::select! {
            biased;
            asked = self.next() => Some(asked),
            () = ready(()) => None,
        }
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.child.recv() => SignalRequest::Child,
            _ = self.terminate.recv() => SignalRequest::Stop(Signal::SIGTERM),
            _ = self.interrupt.recv() => SignalRequest::Stop(Signal::SIGINT),
            _ = self.quit.recv() => SignalRequest::Stop(Signal::SIGQUIT),
            _ = self.hangup.recv() => SignalRequest::Reopen,
        }
    }
}
