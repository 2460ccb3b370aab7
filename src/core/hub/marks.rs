//! The order in which the app's bytes were read, over all of its streams.
//!
//! Invariant: sequence numbers are contiguous, the list is bounded, and a mark is dropped only when
//! the list is full. A follower that is behind the oldest mark first takes the bytes before it, in
//! any order.

use std::collections::VecDeque;

use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// One read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Place among all reads of this mux, from 0.
    pub(crate) sequence: u64,
    /// The stream that was read.
    pub(crate) stream: Stream,
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Bytes read.
    pub(crate) len: u64,
    /// When.
    pub(crate) stamp: Stamp,
}

impl Mark {
    /// Offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A bounded list of the newest marks.
#[derive(Debug)]
pub(crate) struct Marks {
    list: VecDeque<Mark>,
    next: u64,
    limit: usize,
}

impl Marks {
    pub(crate) fn new(limit: usize) -> Self {
        Self { list: VecDeque::new(), next: 0, limit: limit.max(1) }
    }

    /// Notes a read and returns its mark.
    pub(crate) fn push(&mut self, stream: Stream, offset: u64, len: u64, stamp: Stamp) -> Mark {
        if self.list.len() == self.limit {
            self.list.pop_front();
        }
        let mark = Mark { sequence: self.next, stream, offset, len, stamp };
        self.next += 1;
        self.list.push_back(mark);
        mark
    }

    /// Sequence number of the next read.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the mark of this number will still be kept after the next one.
    pub(crate) fn keeps(&self, sequence: u64) -> bool {
        self.next - sequence.min(self.next) < self.limit as u64
    }

    /// The marks from number `sequence` on, or from the oldest kept.
    pub(crate) fn from(&self, sequence: u64) -> impl Iterator<Item = &Mark> {
        let oldest = self.next - self.list.len() as u64;
        // Never more than the length of the list, which is a usize.
        let skip = sequence.clamp(oldest, self.next) - oldest;
        self.list.range(usize::try_from(skip).unwrap_or(usize::MAX).min(self.list.len())..)
    }
}
