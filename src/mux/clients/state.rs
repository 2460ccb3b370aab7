//! The two directions of a client's connection: reading and sending.

/// What the mux reads from a client that has not shut down its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// The hello of a session.
    Greeting,
    /// No input. A session may send requests.
    Watching,
    /// Input for the app. A session may send requests, too.
    Typing,
    /// No more input. A session may send requests.
    Typed,
}

impl Inbound {
    /// Whether the client may type, or could type before its input ended.
    pub(crate) fn is_writer(self) -> bool {
        matches!(self, Self::Typing | Self::Typed)
    }

    /// Whether a session's hello has arrived. A raw client needs none.
    pub(crate) fn has_greeted(self) -> bool {
        self != Self::Greeting
    }
}

/// What the mux sends to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outbound {
    /// All output.
    Everything,
    /// No more output: it was too slow while the mux ended.
    CutOff,
    /// Nothing: the client has gone. Its earlier bytes may still be read.
    Gone,
}
