//! The signals of the keeper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::OUTPUT_CLOSED;

/// Readable when a signal has come.
pub(super) struct KeeperSignals(SignalDelivery<UnixStream, SignalOnly>);

impl KeeperSignals {
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, OUTPUT_CLOSED as i32];
        SignalDelivery::with_pipe(read, write, SignalOnly, signals).map(Self)
    }

    /// The signals that have come.
    pub(super) fn pending(&mut self) -> impl Iterator<Item = Signal> {
        self.0.pending().filter_map(|number| Signal::try_from(number).ok())
    }
}

impl AsFd for KeeperSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
