//! Signals as events of a loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
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
        hold_while(|| SignalDelivery::with_pipe(read, write, SignalOnly, numbers)).map(Self)
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

/// Has signals wait while `catch` begins to catch them: one that came while signal-hook has its
/// handler in place, but not yet what the handler is to do, would be lost.
pub(crate) fn hold_while<T>(catch: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let caught = catch();
    before.thread_set_mask()?;
    caught
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_too_early_is_caught() {
        let caught = hold_while(|| {
            nix::sys::signal::raise(Signal::SIGUSR1)?;
            CaughtSignals::new(&[Signal::SIGUSR1])
        });
        assert_eq!(caught.unwrap().take(), [Signal::SIGUSR1]);
    }
}
