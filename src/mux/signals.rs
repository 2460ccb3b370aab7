//! The signals that a mux handles.

use std::io;

use nix::sys::signal::Signal;

use crate::sys::signals::CaughtSignals;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalRequest {
    /// To end (SIGTERM, SIGINT, SIGQUIT).
    Stop(Signal),
    /// To reopen the logs (SIGHUP).
    Reopen,
    /// The engine has resized its terminal (SIGWINCH).
    Window,
}

const CAUGHT: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGWINCH];

/// Makes a write beyond the limit of a file's size (SIGXFSZ) fail instead of ending the process:
/// then that log fails.
pub(crate) fn outlive_file_limit() -> io::Result<()> {
    CaughtSignals::new(&[Signal::SIGXFSZ]).map(drop)
}

/// Catches the signals of a mux.
pub(crate) fn catch() -> io::Result<CaughtSignals> {
    CaughtSignals::new(&CAUGHT)
}

impl SignalRequest {
    /// The request of a signal.
    pub(crate) fn of(signal: Signal) -> Option<Self> {
        match signal {
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT => Some(Self::Stop(signal)),
            Signal::SIGHUP => Some(Self::Reopen),
            Signal::SIGWINCH => Some(Self::Window),
            _ => None,
        }
    }
}
