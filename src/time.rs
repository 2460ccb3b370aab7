//! Reading the clocks, in one place. The core is given what was read and never reads itself.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    /// The same in whole milliseconds.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For waits and patience.
    pub at: Instant,
    /// For stamps in logs.
    pub stamp: Stamp,
}

impl Now {
    /// Reads both clocks. A clock before 1970 reads as 1970, one after 2554 as 2554.
    #[must_use]
    pub fn read() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        Self { at: Instant::now(), stamp }
    }
}
