//! Input that the mux may not have: it is kept until the mux has queued it, and sent to the next
//! mux. No I/O, no clock.

use std::collections::VecDeque;

use crate::core::wire::{InputId, InputIdentity, InputPosition};

/// See the module.
#[derive(Debug)]
pub(crate) struct SentInput {
    id: InputId,
    /// How many bytes the mux has queued, as far as is known.
    queued: u64,
    /// Those behind them.
    bytes: VecDeque<u8>,
    /// How many bytes may not have arrived, as far as was reported.
    unknown: u64,
}

impl SentInput {
    /// The input with this name, of which a mux has this much.
    pub(crate) fn new(id: InputId, InputPosition { offset, unknown }: InputPosition) -> Self {
        Self { id, queued: offset, bytes: VecDeque::new(), unknown }
    }

    /// How it is named to the next mux; `once` if its end ends the app's.
    pub(crate) fn identity(&self, once: bool) -> InputIdentity {
        InputIdentity { id: self.id, returns: true, once }
    }

    /// These bytes are sent.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Bytes that the mux may not have.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The mux has queued this many bytes.
    pub(crate) fn on_queued(&mut self, offset: u64) {
        let len = usize::try_from(offset.saturating_sub(self.queued)).unwrap_or(usize::MAX);
        let len = len.min(self.bytes.len());
        self.bytes.drain(..len);
        self.queued += len as u64;
    }

    /// Goes on with another mux, which has this much. Returns how many bytes may not have arrived,
    /// besides those that were reported before; `None` if it does not know this input.
    pub(crate) fn resume(&mut self, position: InputPosition) -> Option<u64> {
        let ours = self.queued..=self.queued + self.bytes.len() as u64;
        if !ours.contains(&position.offset) {
            return None;
        }
        self.on_queued(position.offset);
        let before = std::mem::replace(&mut self.unknown, position.unknown);
        Some(position.unknown.saturating_sub(before))
    }

    /// The bytes that the mux does not have.
    pub(crate) fn rest(&mut self) -> &[u8] {
        self.bytes.make_contiguous()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Epoch;

    #[test]
    fn what_the_next_mux_does_not_have_is_sent_again() {
        let at = |offset, unknown| InputPosition { offset, unknown };
        let mut sent = SentInput::new(InputId(Epoch(7)), at(0, 0));
        sent.push(b"abcdef");
        sent.on_queued(2);
        assert_eq!((sent.len(), sent.rest()), (4, &b"cdef"[..]));
        assert_eq!(sent.resume(at(4, 0)), Some(0));
        assert_eq!(sent.rest(), b"ef");
        // Reported once.
        assert_eq!((sent.resume(at(5, 3)), sent.resume(at(5, 3))), (Some(3), Some(0)));
        assert_eq!(sent.rest(), b"f");
        // A mux that has less than was acknowledged, or more than was sent, does not know this
        // input.
        assert_eq!(sent.resume(at(4, 0)), None);
        assert_eq!(sent.resume(at(7, 0)), None);
        assert_eq!(sent.resume(at(6, 3)), Some(0));
        assert_eq!(sent.len(), 0);
    }
}
