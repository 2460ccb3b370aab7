//! A socket on which clients connect.
//!
//! Accepting never blocks and never spins: after a failure it pauses.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::mux::poll::Registration;
use crate::types::stream::Stream;

/// Pause after a failed accept (most often: no file descriptor left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The stream of a raw socket; `None` for the session socket.
    pub(crate) stream: Option<Stream>,
    pub(crate) socket: UnixListener,
    pub(crate) watch: Registration,
    /// No client is accepted before this time.
    pub(crate) paused: Option<Instant>,
}

impl Listener {
    /// `socket` is bound, listening and non-blocking.
    pub(crate) fn new(stream: Option<Stream>, socket: OwnedFd) -> Self {
        Self { stream, socket: socket.into(), watch: Registration::default(), paused: None }
    }

    /// The next connection; `None` if there is none.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        loop {
            return match self.socket.accept() {
                Ok((stream, _)) => Ok(Some(stream)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(e) if is_the_peers(&e) => continue,
                Err(e) => Err(e),
            };
        }
    }

    /// Accepting has failed: no client is accepted for a while.
    pub(super) fn pause(&mut self, now: Instant, error: &io::Error) {
        log::warn!("accepting a client: {error}; trying again shortly");
        self.paused = Some(now + ACCEPT_PAUSE);
    }
}

/// Whether only this one connection failed.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}
