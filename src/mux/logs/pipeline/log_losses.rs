//! The app's output that a log lost: in total, and for its next marker. No I/O, no clock.

use crate::core::logfmt::chunk::Lost;
use crate::types::time::Stamp;

/// See the module.
#[derive(Debug)]
pub(crate) struct Losses {
    /// In all.
    pub(crate) total: Lost,
    /// Not yet reported by a marker.
    pub(crate) pending: Lost,
    /// When the last pending byte was read.
    pub(crate) at: Stamp,
}

impl Losses {
    /// Begins with the output that was lost before this log, which ended then.
    pub(crate) fn new(before: Lost, at: Stamp) -> Self {
        Self { total: before, pending: before, at }
    }

    /// Counts lost output, the last of which was read then.
    pub(crate) fn count(&mut self, lost: Lost, at: Stamp) {
        self.total.add(lost);
        self.pending.add(lost);
        self.at = at;
    }

    /// Takes the losses for the next marker, and its time.
    pub(crate) fn take(&mut self) -> Option<(Lost, Stamp)> {
        let pending = std::mem::take(&mut self.pending);
        (pending != Lost::default()).then_some((pending, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_reports_each_loss_once() {
        let lost = |lines, bytes| Lost { lines, bytes };
        let mut losses = Losses::new(lost(0, 5), Stamp(1));
        losses.count(lost(1, 2), Stamp(3));
        assert_eq!(losses.take(), Some((lost(1, 7), Stamp(3))));
        assert_eq!(losses.take(), None);
        assert_eq!(losses.total, lost(1, 7));
    }
}
