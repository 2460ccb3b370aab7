//! Measures how fast an app fills its pipe, and how long a nap pays.
//!
//! An app that writes single lines without a break would be read a few lines at a time: most of the
//! work would be reading, and the app would wait for the reads at the pipe's lock. After a nap, the
//! mux reads large pieces. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// The loop naps if the app writes this fast, in bytes per microsecond, and each read empties the
/// pipe: 16 MB/s are far more lines than anybody reads.
const NAP_RATE: usize = 16;
/// Time over which [`NAP_RATE`] is measured: a few lines at once do not count.
const NAP_WATCH: Duration = Duration::from_micros(100);
/// Longest nap: a hundredth of a delay that a person notices.
const NAP: Duration = Duration::from_micros(200);
/// Shortest nap: the kernel's timers are late by as much.
const NAP_LEAST: Duration = Duration::from_micros(50);
/// A nap ends before the pipe can fill to one part in this many, so the app does not wait.
const NAP_PART: usize = 4;

/// The bytes read from a pipe since a moment at which it was empty.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes that may come during a nap: then the app does not notice it.
    room: usize,
    since: Option<Instant>,
    bytes: usize,
}

impl Pace {
    /// For a pipe of this size in bytes.
    pub(crate) fn new(pipe: usize) -> Self {
        Self { room: pipe / NAP_PART, since: None, bytes: 0 }
    }

    /// This many bytes were read.
    pub(crate) fn read(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len);
    }

    /// It is empty: how long to leave it alone. `None` for an app that writes now and then.
    pub(crate) fn empty(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < NAP_WATCH {
            return None;
        }
        self.since = Some(now);
        let bytes = std::mem::take(&mut self.bytes);
        let micros = usize::try_from(passed.as_micros()).unwrap_or(usize::MAX);
        let rate = bytes / micros.max(1);
        if rate < NAP_RATE {
            return None;
        }
        let full = u64::try_from(self.room / rate).unwrap_or(u64::MAX);
        let nap = NAP.min(Duration::from_micros(full));
        (nap >= NAP_LEAST).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last nap if each read, `micros` microseconds apart, returns `bytes`.
    fn naps(pipe: usize, bytes: usize, micros: u64) -> Option<Duration> {
        let (start, mut pace) = (Instant::now(), Pace::new(pipe));
        let mut nap = None;
        for round in 0..1000 {
            pace.read(bytes);
            // Most of the looks in between decide nothing.
            nap = pace.empty(start + Duration::from_micros(round * micros)).or(nap);
        }
        nap
    }

    #[test]
    fn only_who_writes_without_a_break_is_left_alone() {
        const PIPE: usize = 1 << 20;
        for (pipe, bytes, micros, want) in [
            // A line each millisecond, and each 10 µs.
            (PIPE, 100, 1000, None),
            (PIPE, 100, 10, None),
            // 200 MB/s, as small writes give it.
            (PIPE, 600, 3, Some(NAP)),
            // So fast that even the large pipe would be full.
            (PIPE, 1 << 20, 200, Some(Duration::from_micros(50))),
            (PIPE, 1 << 20, 100, None),
            // A small pipe.
            (1 << 16, 600, 3, Some(Duration::from_micros(81))),
            (1 << 16, 1200, 3, None),
        ] {
            assert_eq!(naps(pipe, bytes, micros), want, "{bytes} bytes in {micros} µs");
        }
    }

    #[test]
    fn a_burst_after_a_silence_is_no_pace() {
        let (start, mut pace) = (Instant::now(), Pace::new(1 << 20));
        assert_eq!(pace.empty(start), None);
        pace.read(64 * 1024);
        assert_eq!(pace.empty(start + Duration::from_secs(1)), None);
        pace.read(100);
        assert_eq!(pace.empty(start + Duration::from_secs(2)), None);
    }
}
