//! Signals as events of a loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals that this process catches. Readable when one has come. From its first value on,
/// they no longer end the process, also when the value is dropped.
pub(crate) struct CaughtSignals(SignalDelivery<UnixStream, SignalOnly>);

impl CaughtSignals {
    /// Catches these signals.
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let numbers = signals.iter().map(|signal| *signal as i32);
        SignalDelivery::with_pipe(read, write, SignalOnly, numbers).map(Self)
    }

    /// The signals that have come, each once.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        self.0.pending().filter_map(|number| Signal::try_from(number).ok()).collect()
    }
}

impl AsFd for CaughtSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
