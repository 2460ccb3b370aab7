//! Output that this client has missed. No I/O, no clock.

use std::time::{Duration, Instant};

/// Pause after which a gap counts as over and `attach` reports it.
const GAP_QUIET: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SessionLosses {
    bytes: u64,
    /// Those that the user has not been notified of, and when that is due.
    recent: Option<(u64, Instant)>,
    /// Output may be missing that no mux has counted.
    uncounted: bool,
}

impl SessionLosses {
    /// The mux has skipped this many bytes. Gaps come in bursts, so the user is notified after one.
    pub(crate) fn add(&mut self, len: u64, now: Instant) {
        self.bytes += len;
        let recent = self.recent.map_or(0, |(recent, _)| recent);
        self.recent = Some((recent + len, now + GAP_QUIET));
    }

    /// A new mux does not know the position of the old one.
    pub(crate) fn add_uncounted(&mut self) {
        self.uncounted = true;
    }

    /// The bytes of a burst that is over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.recent.take_if(|(_, due)| *due <= now).map(|(len, _)| len)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.recent.map(|(_, due)| due)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.bytes == 0 && !self.uncounted
    }

    /// The summary at the end.
    pub(crate) fn lines(&self) -> Vec<String> {
        let counted = || format!("{} bytes were lost: this client was too slow", self.bytes);
        let uncounted = || "output written between two muxes may be missing".to_owned();
        let lines = [(self.bytes > 0).then(counted), self.uncounted.then(uncounted)];
        lines.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_gaps_is_one_notice() {
        let now = Instant::now();
        let mut losses = SessionLosses::default();
        assert!(losses.is_none() && losses.lines().is_empty());
        losses.add(3, now);
        losses.add(4, now + GAP_QUIET / 2);
        assert_eq!(losses.take_due(now + GAP_QUIET), None);
        let due = losses.deadline().unwrap();
        assert_eq!(losses.take_due(due), Some(7));
        assert_eq!((losses.take_due(due), losses.deadline()), (None, None));
        assert!(!losses.is_none());
        assert_eq!(losses.lines(), ["7 bytes were lost: this client was too slow"]);
        losses.add_uncounted();
        assert_eq!(losses.lines().len(), 2);
    }
}
