//! The signals that a mux handles.

use std::future::ready;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::signal::unix::{self, SignalKind};

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalRequest {
    /// To end (SIGTERM, SIGINT, SIGQUIT).
    Stop(Signal),
    /// To reopen the logs (SIGHUP).
    Reopen,
    /// The engine has resized its terminal (SIGWINCH).
    Window,
    /// A child has changed (SIGCHLD).
    Child,
}

/// See the module.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    hangup: unix::Signal,
    window: unix::Signal,
    child: unix::Signal,
}

/// Makes a write beyond the limit of a file's size (SIGXFSZ) fail instead of ending the process:
/// then that log fails. The handler needs no listener, and a child does not inherit it.
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
            window: unix::signal(SignalKind::window_change())?,
            child: unix::signal(SignalKind::child())?,
        })
    }

    /// Readable when a signal has come, for a loop that waits without the runtime. Call it after
    /// [`Signals::new`], so that the runtime learns of a signal first.
    pub(crate) fn waker() -> io::Result<UnixStream> {
        let (waker, ring) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD] {
            pipe::register(signal, ring.try_clone()?)?;
        }
        Ok(waker)
    }

    /// A signal that has come by now, once the runtime has had its turn.
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
            _ = self.window.recv() => SignalRequest::Window,
            _ = self.hangup.recv() => SignalRequest::Reopen,
        }
    }
}
