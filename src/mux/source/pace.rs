//! How fast an app fills its pipe, and how long that is better left alone.
//!
//! An app that writes line by line, and without a break, would be read a few lines at a time: most of
//! the work would be the reading's, and the app would wait for it at the pipe's lock. Left alone for a
//! moment it is read in large pieces. Pure: the time is an argument.

use std::time::{Duration, Instant};

use crate::types::limits;

/// What came out of a pipe since a moment at which it was empty.
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
        Self { room: pipe / limits::NAP_PART, since: None, bytes: 0 }
    }

    /// So many bytes were read.
    pub(crate) fn read(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len);
    }

    /// It is empty: how long to leave it alone. `None` for an app that writes now and then.
    pub(crate) fn empty(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < limits::NAP_WATCH {
            return None;
        }
        self.since = Some(now);
        let bytes = std::mem::take(&mut self.bytes);
        let micros = usize::try_from(passed.as_micros()).unwrap_or(usize::MAX);
        let rate = bytes / micros.max(1);
        if rate < limits::NAP_RATE {
            return None;
        }
        let full = u64::try_from(self.room / rate).unwrap_or(u64::MAX);
        let nap = limits::NAP.min(Duration::from_micros(full));
        (nap >= limits::NAP_LEAST).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of reading `bytes` each so many microseconds for a while.
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
            (PIPE, 600, 3, Some(limits::NAP)),
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
