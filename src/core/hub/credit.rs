//! The time for which the app has waited for clients that share a budget.
//!
//! All unproven clients share one, and all clients of an admitted user, so a client gains nothing by
//! connecting again or by bringing others. The time that the app waits for any of them is spent,
//! and refills slowly. Pure: the time is an argument.

use std::time::{Duration, Instant};

use super::STREAMS;
use crate::types::limits;

/// See the module.
#[derive(Debug)]
pub(crate) struct Credit {
    spent: Duration,
    /// Until when it has been counted.
    at: Instant,
    /// The streams whose source waits for such a client, by `Stream as usize`.
    pub(crate) waiting: [bool; STREAMS],
}

impl Credit {
    pub(crate) fn new(now: Instant) -> Self {
        Self { spent: Duration::ZERO, at: now, waiting: [false; STREAMS] }
    }

    /// Counts the time up to now.
    pub(crate) fn count(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.at = self.at.max(now);
        self.spent = if self.waiting.contains(&true) {
            self.spent.saturating_add(passed)
        } else {
            self.spent.saturating_sub(passed / limits::CREDIT_PART)
        };
    }

    /// Whether none of it is spent.
    pub(crate) fn is_whole(&self) -> bool {
        self.spent.is_zero()
    }

    /// How long the app may still wait, of this time in all.
    pub(crate) fn left(&self, all: Duration) -> Duration {
        all.saturating_sub(self.spent)
    }
}
