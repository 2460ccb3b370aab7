//! What the main thread of an attach waits for, besides input and deadlines.

use std::io;

use anyhow::Result;

use super::dial::{NewConnection, SessionProgress};
use crate::core::wire::{AppStatus, Gap, InputPosition, Rights};

/// An event for the main loop.
#[derive(Debug)]
pub(crate) enum AttachEvent {
    /// The mux has skipped bytes of a stream.
    Gap(Gap),
    /// The app ended, and its mux ends.
    Exit(AppStatus),
    /// The app ended, but its mux stays: the app may be started again.
    AppEnded(AppStatus),
    AppStarted,
    /// The mux ends and does not know how the app does.
    Closing,
    /// Another user has asked the mux to detach us.
    Detached,
    /// Our right to type has changed.
    Rights(Rights),
    /// All of a screen has been shown.
    ScreenDrawn,
    /// Our lines were wiped away because the app's output moved.
    LinesWiped,
    /// The mux has queued this much of the input.
    InputQueued(InputPosition),
    /// The app has all input.
    StdinDone,
    /// The mux refuses to go on.
    Refused(String),
    /// A downlink has ended. With [`SessionProgress`] a session can be continued from there; a
    /// session that broke the protocol cannot.
    DownlinkEnded(io::Result<()>, Option<SessionProgress>),
    /// The result of connecting again.
    Reconnected(Result<NewConnection>),
    /// The reader of this process's output has closed it.
    OutputClosed,
    /// This process's output cannot be written.
    OutputFailed(io::Error),
    Signal(i32),
    /// A thread has panicked.
    Panicked,
}
