//! The tab stops of a terminal.

use memchr::{memchr, memrchr};

/// Columns from one usual stop to the next.
pub(super) const TAB: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct TabStops {
    /// 1 at each stop.
    stops: Vec<u8>,
    /// Whether they were ever changed.
    pub(crate) changed: bool,
}

impl TabStops {
    pub(crate) fn new(cols: usize) -> Self {
        let mut tabs = Self { stops: Vec::new(), changed: false };
        tabs.resize(cols);
        tabs
    }

    /// Stops in new columns are the usual ones.
    pub(crate) fn resize(&mut self, cols: usize) {
        self.stops.truncate(cols);
        let usual = |col: usize| u8::from(col.is_multiple_of(TAB));
        self.stops.extend((self.stops.len()..cols).map(usual));
    }

    /// Sets or clears a stop.
    pub(crate) fn set(&mut self, col: usize, on: bool) {
        self.changed = true;
        if let Some(stop) = self.stops.get_mut(col) {
            *stop = u8::from(on);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.changed = true;
        self.stops.fill(0);
    }

    /// The usual stops again.
    pub(crate) fn reset(&mut self) {
        if self.changed {
            let cols = self.stops.len();
            self.stops.clear();
            self.resize(cols);
        }
    }

    /// The column of the next stop, or the last column.
    pub(crate) fn after(&self, col: usize) -> usize {
        let last = self.stops.len() - 1;
        let next = self.stops.get(col + 1..).and_then(|rest| memchr(1, rest));
        next.map_or(last, |next| col + 1 + next)
    }

    /// The column of the stop before, or the first column.
    pub(crate) fn before(&self, col: usize) -> usize {
        self.stops.get(..col).and_then(|rest| memrchr(1, rest)).unwrap_or(0)
    }

    /// All stops.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.stops.iter().enumerate().filter(|(_, stop)| **stop == 1).map(|(col, _)| col)
    }
}
