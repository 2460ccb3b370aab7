//! What the main thread of an attach waits for, besides input and deadlines.

use std::io;

use anyhow::Result;

use super::dial::NewConnection;
use crate::core::wire::session_reader::{MuxEvent, SessionReader};

/// An event for the main loop.
#[derive(Debug)]
pub(crate) enum AttachEvent {
    Mux(MuxEvent),
    /// All of a screen has been shown.
    ScreenDrawn,
    /// Our lines were wiped away because the app's output moved.
    LinesWiped,
    /// The terminal of the app shows this one.
    Circle,
    /// The session has ended. It can be continued from where it was read to, unless it broke the
    /// protocol.
    SessionEnded(io::Result<()>, Option<SessionReader>),
    /// The result of connecting again.
    Reconnected(Result<Box<NewConnection>>),
    /// The reader of this process's output has closed it.
    OutputClosed,
    /// This process's output cannot be written.
    OutputFailed(io::Error),
    Signal(i32),
}
