//! A socket on which clients connect.
//!
//! Accepting never blocks and never spins: after a failure it pauses.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
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

    /// Accepting has failed: no client is accepted for a while.
    pub(super) fn pause(&mut self, now: Instant, error: &io::Error) {
        log::warn!("accepting a client: {error}; trying again shortly");
        self.paused = Some(now + ACCEPT_PAUSE);
    }
}
