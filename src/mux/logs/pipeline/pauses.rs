//! The times at which a log writes an unfinished line, or lets lines of another stream interrupt
//! it. No I/O, no clock.

use std::time::{Duration, Instant};

use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// How long half a line waits for its end.
    pause: Duration,
    /// Since when half a line waits, per stream.
    half: [Option<Instant>; Stream::ALL.len()],
    /// Since when another stream waits for the rest of a line that was split.
    other: Option<Instant>,
    /// Whether the other stream has waited for long enough.
    is_mixed: bool,
}

impl Pauses {
    /// An unfinished line waits this long.
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, half: [None; Stream::ALL.len()], other: None, is_mixed: false }
    }

    /// Half a line of a stream waits from now on, or none.
    pub(crate) fn set_half(&mut self, stream: Stream, waits: bool, now: Instant) {
        self.half[stream as usize] = waits.then_some(now);
    }

    /// Whether half a line of a stream has waited for long enough.
    pub(crate) fn is_due(&self, stream: Stream, now: Instant) -> bool {
        self.half[stream as usize].is_some_and(|since| since + self.pause <= now)
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.half.iter().flatten().chain(&self.other).min();
        since.map(|since| *since + self.pause)
    }

    /// Whether another stream still has to wait for the end of a line; `is_pressed` ends the wait.
    pub(crate) fn holds_other(&mut self, is_pressed: bool, now: Instant) -> bool {
        let since = *self.other.get_or_insert(now);
        self.is_mixed |= since + self.pause <= now || is_pressed;
        if self.is_mixed {
            self.other = None;
        }
        !self.is_mixed
    }

    /// No other stream waits. With `is_whole`, no line is unfinished.
    pub(crate) fn release_other(&mut self, is_whole: bool) {
        self.other = None;
        self.is_mixed &= !is_whole;
    }

    /// The lines of the streams may mix from now on.
    pub(crate) fn mix(&mut self) {
        self.is_mixed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_and_the_other_stream_wait_for_the_pause() {
        let (pause, now) = (Duration::from_secs(1), Instant::now());
        let mut pauses = Pauses::new(pause);
        assert_eq!(pauses.deadline(), None);
        pauses.set_half(Stream::Stdout, true, now);
        assert_eq!(pauses.deadline(), Some(now + pause));
        assert!(!pauses.is_due(Stream::Stdout, now) && pauses.is_due(Stream::Stdout, now + pause));
        pauses.set_half(Stream::Stdout, false, now);
        assert!(pauses.holds_other(false, now) && pauses.holds_other(false, now + pause / 2));
        assert_eq!(pauses.deadline(), Some(now + pause));
        assert!(!pauses.holds_other(false, now + pause) && !pauses.holds_other(false, now));
        pauses.release_other(true);
        assert!(pauses.holds_other(false, now) && !pauses.holds_other(true, now));
    }
}
