//! Encoded entries on their way to a target, and what of the app is in them. Pure.

use super::format::Format;
use super::line::Entry;
use super::stamp::StampText;
use crate::stream::Stream;
use crate::time::Stamp;

/// Encoded entries on their way to a target.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The entries.
    pub bytes: Vec<u8>,
    /// How many of the bytes the target has.
    pub done: usize,
    /// Where no line is split for the first time: a new file can begin there.
    pub cut: Option<usize>,
    /// What the times of a recording's events that are not done count from, microseconds since 1970.
    pub(super) zero: u64,
    /// Lines that end in it, or that it tells of as lost.
    pub(super) lines: u64,
    /// Bytes of the app in it, likewise.
    pub(super) text: u64,
    /// When its last entry was read.
    pub(super) last: Stamp,
    /// Offsets in the streams after what is in it.
    pub(super) ends: [u64; Stream::ALL.len()],
}

/// Lines and bytes of the app that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Lines.
    pub lines: u64,
    /// Bytes, without those of line ends.
    pub bytes: u64,
}

impl Lost {
    /// Adds what was lost besides.
    pub fn add(&mut self, more: Self) {
        self.lines += more.lines;
        self.bytes += more.bytes;
    }
}

impl Chunk {
    /// Appends an entry and counts it.
    pub(super) fn put(&mut self, format: &mut Format, stamp: &StampText, entry: &Entry<'_>) {
        format.encode(&mut self.bytes, stamp, entry);
        let text = entry.pieces.iter().map(|piece| piece.len()).sum();
        self.count(u64::from(entry.last), text, stamp.stamp());
    }

    /// Whether it has nothing of the app, but tells what was lost.
    pub(super) fn is_marker(&self) -> bool {
        self.ends == [0; Stream::ALL.len()]
    }

    /// What of the app it stands for.
    pub(super) fn text(&self) -> Lost {
        Lost { lines: self.lines, bytes: self.text }
    }

    pub(super) fn count(&mut self, lines: u64, text: usize, stamp: Stamp) {
        self.lines += lines;
        self.text += text as u64;
        self.last = stamp;
    }
}
