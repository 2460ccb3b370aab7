//! Encoded entries on their way to a target, and what of the app is in them. Pure.

use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Encoded entries on their way to a target.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The entries.
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes that the target has.
    pub(crate) done: usize,
    /// The first offset that is not amid a line: a new file can begin there.
    pub(crate) cut: Option<usize>,
    /// The time that the times of a recording's unwritten events count from, microseconds since 1970.
    pub(crate) zero: u64,
    /// Lines that end in it, or that it reports as lost.
    pub(crate) lines: u64,
    /// Bytes of the app that are in it, or that it reports as lost.
    pub(crate) text: u64,
    /// When its last entry was read.
    pub(crate) last: Stamp,
    /// The offsets in the streams up to which it has them; all 0 for a marker.
    pub(crate) ends: [u64; Stream::ALL.len()],
}

/// Lines and bytes of the app that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Lines.
    pub(crate) lines: u64,
    /// Bytes, without those of line ends.
    pub(crate) bytes: u64,
}

impl Lost {
    /// The sum of both.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self { lines: self.lines + more.lines, bytes: self.bytes + more.bytes }
    }

    /// Adds more.
    pub(crate) fn add(&mut self, more: Self) {
        *self = self.plus(more);
    }
}

impl Chunk {
    /// Whether it only reports lost output.
    pub(crate) fn is_marker(&self) -> bool {
        self.ends == [0; Stream::ALL.len()]
    }

    /// The app's output in it, or that it reports as lost.
    pub(crate) fn text(&self) -> Lost {
        Lost { lines: self.lines, bytes: self.text }
    }

    /// Counts an entry that was added.
    pub(crate) fn count(&mut self, lines: u64, text: usize, stamp: Stamp) {
        self.lines += lines;
        self.text += text as u64;
        self.last = stamp;
    }
}
