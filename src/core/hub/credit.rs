//! The time for which the app has waited for unproven clients.
//!
//! There is one budget for all of them, so a client gains nothing by connecting again. The time
//! that the app waits for any of them is spent, and refills slowly. Pure: the time is an argument.

use std::time::{Duration, Instant};

use super::STREAMS;
use crate::types::limits;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    spent: Duration,
    /// Until when it has been counted.
    at: Option<Instant>,
    /// The streams whose source waits for such a client, by `Stream as usize`.
    pub(crate) waiting: [bool; STREAMS],
}

impl Credit {
    /// Counts the time up to now.
    pub(crate) fn count(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = self.at.max(Some(now));
        self.spent = if self.waiting.contains(&true) {
            self.spent.saturating_add(passed)
        } else {
            self.spent.saturating_sub(passed / limits::CREDIT_PART)
        };
    }

    /// How long the app may still wait for one that has this patience.
    pub(crate) fn left(&self, patience: Duration) -> Duration {
        (patience / limits::UNPROVEN_PART).saturating_sub(self.spent)
    }
}
