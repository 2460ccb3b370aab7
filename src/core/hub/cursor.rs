//! The offset of one client on one stream, and how long its connection may keep the app waiting.
//!
//! Pure: the time is an argument, nothing is read or written.

use std::time::{Duration, Instant};

use crate::types::limits;

/// A client's offset on one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The next byte to deliver.
    pub(crate) at: u64,
    /// First byte of a gap that is still to be reported; it ends at `at`.
    pub(crate) gap: Option<u64>,
    /// Bytes that this client missed on this stream, all in all.
    pub(crate) lost: u64,
}

impl Cursor {
    /// A cursor for a client that asked for `wanted` where `start` is the oldest byte kept.
    pub(crate) fn new(wanted: u64, start: u64) -> Self {
        let mut cursor = Self { at: wanted, gap: None, lost: 0 };
        cursor.overrun(start);
        cursor
    }

    /// The bytes before `start` are gone. Returns whether this cursor was on them.
    pub(crate) fn overrun(&mut self, start: u64) -> bool {
        let behind = self.at < start;
        if behind {
            self.gap.get_or_insert(self.at);
            self.lost += start - self.at;
            self.at = start;
        }
        behind
    }
}

/// The stall clock of one connection, over all of its streams.
///
/// A connection delays the app only after it has caught up once, and then as long as it makes
/// progress: a given number of bytes within each patience. A trickle does not count as progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    delays_app: bool,
    waiting: Option<WaitingSince>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSince {
    since: Instant,
    progress: u64,
}

impl Stall {
    /// Whether the app waits for this connection when it is a whole ring behind.
    pub(crate) fn delays_app(&self) -> bool {
        self.delays_app
    }

    /// Something waits for this connection now. The time until which it may, or `None` when its
    /// patience has ended: then it does not hold the app back before it has caught up again.
    /// A patience too long for the clock never ends; its end is then a year from now.
    pub(crate) fn wait(&mut self, now: Instant, patience: Duration) -> Option<Instant> {
        let since = self.waiting.get_or_insert(WaitingSince { since: now, progress: 0 }).since;
        if now.saturating_duration_since(since) >= patience {
            self.pass_over();
            return None;
        }
        Some(since.checked_add(patience).unwrap_or(now + limits::AGES))
    }

    /// The connection took `len` bytes; `enough` of them are progress and restart the clock.
    pub(crate) fn progress(&mut self, len: u64, enough: u64) {
        if let Some(waiting) = &mut self.waiting {
            waiting.progress += len;
            if waiting.progress >= enough {
                self.waiting = None;
            }
        }
    }

    /// Nothing is left to deliver: patience is earned.
    pub(crate) fn caught_up(&mut self) {
        *self = Self { delays_app: true, waiting: None };
    }

    /// The connection lost bytes or has been waited for in vain.
    pub(crate) fn pass_over(&mut self) {
        *self = Self { delays_app: false, waiting: None };
    }
}
