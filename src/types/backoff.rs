//! Pauses between connections to a mux that welcomes and drops.

use std::time::{Duration, Instant};

/// A connection that lasts so long was one.
const LASTS: Duration = Duration::from_secs(1);
/// The pause after the second connection that did not last; then it doubles.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause: less than a mux waits for clients of a killed one.
const MOST: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    pause: Duration,
    /// When the last pause was over.
    since: Option<Instant>,
}

impl Backoff {
    /// A connection has ended: how long to wait before the next one. Nothing, unless this one and the
    /// one before did not last.
    pub(crate) fn after_end(&mut self, now: Instant) -> Duration {
        let lasted = self.since.is_none_or(|since| now.saturating_duration_since(since) >= LASTS);
        let longer = (2 * self.pause).clamp(FIRST, MOST);
        self.pause = if lasted { Duration::ZERO } else { longer };
        self.since = Some(now + self.pause);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_lasts() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut end_after = |lasts: u64| {
            now += Duration::from_millis(lasts);
            let pause = backoff.after_end(now);
            now += pause;
            pause.as_millis()
        };
        let pauses = [0, 0, 0, 0, 0, 0, 0, 999, 1000, 0].map(&mut end_after);
        assert_eq!(pauses, [0, 50, 100, 200, 400, 500, 500, 500, 0, 50]);
    }
}
