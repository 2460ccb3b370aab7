//! Encoded entries on their way to a target, and what of the app is in them. Pure.

use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Encoded entries on their way to a target.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The entries.
    pub(crate) bytes: Vec<u8>,
    /// How many of the bytes the target has.
    pub(crate) done: usize,
    /// Where no line is split for the first time: a new file can begin there.
    pub(crate) cut: Option<usize>,
    /// What the times of a recording's events that are not done count from, microseconds since 1970.
    pub(crate) zero: u64,
    /// Lines that end in it, or that it tells of as lost.
    pub(crate) lines: u64,
    /// Bytes of the app in it, likewise.
    pub(crate) text: u64,
    /// When its last entry was read.
    pub(crate) last: Stamp,
    /// Offsets in the streams after what is in it.
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
    /// Whether it has nothing of the app, but tells what was lost.
    pub(crate) fn is_marker(&self) -> bool {
        self.ends == [0; Stream::ALL.len()]
    }

    /// What of the app it stands for.
    pub(crate) fn text(&self) -> Lost {
        Lost { lines: self.lines, bytes: self.text }
    }

    pub(crate) fn count(&mut self, lines: u64, text: usize, stamp: Stamp) {
        self.lines += lines;
        self.text += text as u64;
        self.last = stamp;
    }
}
