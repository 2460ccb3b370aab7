//! The two directions of a client's connection: reading and sending.

/// Whether a client may still send something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    Open,
    /// The client has shut down its side.
    Closed,
}

/// The kind of bytes that the mux reads from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// The hello of a session.
    Greeting(Sending),
    /// No input. A session may send requests.
    Watching(Sending),
    /// Input for the app. A session may send requests, too.
    Typing,
    /// No more input. A session may send requests.
    Typed(Sending),
}

impl Inbound {
    /// The client ends its input, or, with [`Sending::Closed`], sends nothing more at all.
    pub(crate) fn end(&mut self, sending: Sending) {
        *self = match (*self, sending) {
            (Self::Typing | Self::Typed(_), Sending::Closed) => Self::Typed(sending),
            (Self::Typing, Sending::Open) => Self::Typed(sending),
            (Self::Watching(_), Sending::Closed) => Self::Watching(sending),
            (Self::Greeting(_), Sending::Closed) => Self::Greeting(sending),
            (other, Sending::Open) => other,
        };
    }

    /// Whether the client may type, or could type before its input ended.
    pub(crate) fn is_writer(self) -> bool {
        matches!(self, Self::Typing | Self::Typed(_))
    }

    /// Whether a session's hello has arrived. A raw client needs none.
    pub(crate) fn has_greeted(self) -> bool {
        !matches!(self, Self::Greeting(_))
    }

    pub(crate) fn is_closed(self) -> bool {
        use Inbound::{Greeting, Typed, Watching};
        matches!(self, Greeting(side) | Watching(side) | Typed(side) if side == Sending::Closed)
    }
}

/// The output for a client that is still connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// All output.
    Everything,
    /// No more output: it was too slow while the mux ended.
    CutOff,
    /// Nothing after its farewell, which is queued.
    Farewell { is_cut_off: bool },
}

/// The kind of bytes that the mux sends to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outbound {
    Open {
        /// The socket has not taken all of the last write: wait until it is writable.
        is_full: bool,
        delivery: Delivery,
    },
    /// Nothing: the client has gone. Its earlier bytes may still be read.
    Gone,
}

impl Outbound {
    pub(crate) const NEW: Self = Self::Open { is_full: false, delivery: Delivery::Everything };

    pub(crate) fn is_full(self) -> bool {
        matches!(self, Self::Open { is_full: true, .. })
    }

    pub(crate) fn set_full(&mut self, full: bool) {
        if let Self::Open { is_full, .. } = self {
            *is_full = full;
        }
    }

    pub(crate) fn is_cut_off(self) -> bool {
        use Delivery::{CutOff, Farewell};
        let cut_off = |delivery| matches!(delivery, CutOff | Farewell { is_cut_off: true });
        matches!(self, Self::Open { delivery, .. } if cut_off(delivery))
    }

    pub(crate) fn cut_off(&mut self) {
        if let Self::Open { delivery, .. } = self {
            *delivery = match delivery {
                Delivery::Farewell { .. } => Delivery::Farewell { is_cut_off: true },
                Delivery::Everything | Delivery::CutOff => Delivery::CutOff,
            };
        }
    }

    pub(crate) fn has_farewell(self) -> bool {
        matches!(self, Self::Open { delivery: Delivery::Farewell { .. }, .. })
    }

    /// The farewell is queued. A client that has gone gets none.
    pub(crate) fn bid_farewell(&mut self) {
        let is_cut_off = self.is_cut_off();
        if let Self::Open { delivery, .. } = self {
            *delivery = Delivery::Farewell { is_cut_off };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_input_leaves_requests_and_a_closed_side_leaves_nothing() {
        let mut inbound = Inbound::Typing;
        inbound.end(Sending::Open);
        assert_eq!(inbound, Inbound::Typed(Sending::Open));
        assert!(inbound.is_writer() && !inbound.is_closed());
        inbound.end(Sending::Closed);
        inbound.end(Sending::Open);
        assert!(inbound.is_closed());
        for mut never_typed in [Inbound::Greeting(Sending::Open), Inbound::Watching(Sending::Open)]
        {
            let before = never_typed;
            never_typed.end(Sending::Open);
            assert_eq!(never_typed, before);
            never_typed.end(Sending::Closed);
            assert!(never_typed.is_closed() && !never_typed.is_writer());
            assert_eq!(never_typed.has_greeted(), before.has_greeted());
        }
    }

    #[test]
    fn a_client_is_cut_off_before_or_after_its_farewell_and_is_gone_for_good() {
        let mut outbound = Outbound::NEW;
        outbound.cut_off();
        outbound.bid_farewell();
        assert!(outbound.is_cut_off() && outbound.has_farewell());
        let mut outbound = Outbound::NEW;
        outbound.bid_farewell();
        assert!(!outbound.is_cut_off() && outbound.has_farewell());
        outbound.cut_off();
        assert!(outbound.is_cut_off() && outbound.has_farewell());
        outbound = Outbound::Gone;
        outbound.set_full(true);
        outbound.cut_off();
        outbound.bid_farewell();
        assert_eq!(outbound, Outbound::Gone);
    }
}
