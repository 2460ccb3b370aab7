//! The chunks of a log that the writer does not have: the one being filled, and full ones that
//! wait.

use std::collections::VecDeque;

use super::{LogOptions, LogPolicy};
use crate::core::logfmt::chunk::{Chunk, Lost};
use crate::types::limits;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The chunk that is being filled.
    pub(crate) filling: Chunk,
    /// Full chunks, the oldest first.
    pub(super) full: VecDeque<Chunk>,
    /// Unused chunks, the last used one at the end: it has memory already.
    spare: Vec<Chunk>,
    /// The longest entry, bytes.
    worst: usize,
    /// Bytes of full chunks that are kept, at most.
    buffer: usize,
    /// Whether the oldest chunks are dropped though the target works.
    pub(crate) drops: bool,
    /// Whether the log waits for the writer before it takes more.
    pub(crate) is_blocked: bool,
}

impl Queue {
    /// A queue of these unused chunks, which continues with those of an earlier mux. An entry has
    /// at most `worst` bytes.
    pub(crate) fn new(
        options: &LogOptions,
        worst: usize,
        spare: Vec<Chunk>,
        (filling, full): (Chunk, Vec<Chunk>),
    ) -> Self {
        Self {
            filling,
            full: full.into(),
            spare: spare.into_iter().rev().collect(),
            worst,
            buffer: options.buffer.max(limits::LOG_CHUNK),
            drops: options.policy == LogPolicy::Drop,
            is_blocked: false,
        }
    }

    /// Whether one more entry fits into the chunk.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        // Called for each line.
        self.filling.bytes.room() >= self.worst
    }

    /// Whether a chunk is there, and one more entry does not fit into it.
    pub(crate) fn is_filled(&self) -> bool {
        self.filling.bytes.capacity() > 0 && !self.has_room()
    }

    /// Begins a chunk, if none is being filled. `cut` says whether a file can begin with it.
    /// Returns whether there is one.
    pub(crate) fn begin(&mut self, cut: bool) -> bool {
        if self.filling.bytes.capacity() > 0 {
            return true;
        }
        let Some(chunk) = self.take_spare() else { return false };
        self.filling = Chunk { cut: cut.then_some(0), ..chunk };
        true
    }

    /// Takes an unused chunk.
    pub(crate) fn take_spare(&mut self) -> Option<Chunk> {
        self.spare.pop()
    }

    /// Whether nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.filling.bytes.is_empty()
    }

    /// Takes the oldest chunk if the full ones are too many to be kept.
    pub(crate) fn pop_excess(&mut self) -> Option<Chunk> {
        let kept: usize = self.full.iter().map(|chunk| chunk.bytes.len()).sum();
        if kept > self.buffer || self.spare.is_empty() { self.full.pop_front() } else { None }
    }

    /// Takes back a chunk that is not in the memory's snapshot any more.
    pub(crate) fn recycle(&mut self, mut chunk: Chunk) {
        chunk.reset();
        self.spare.push(chunk);
    }

    /// Whether there is an entry of this line of a reader.
    pub(crate) fn has_line(&self, line: Stream) -> bool {
        self.full.iter().chain([&self.filling]).any(|c| c.unfinished[line as usize].is_some())
    }

    /// The app's output in here.
    pub(crate) fn text(&self) -> Lost {
        self.full.iter().chain([&self.filling]).map(Chunk::text).fold(Lost::default(), Lost::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::logfmt::buffer::Buffer;

    #[test]
    fn the_oldest_chunks_go_first_and_memory_is_reused() {
        let len = limits::LOG_CHUNK;
        let options = LogOptions { buffer: 0, ..LogOptions::default() };
        let chunk =
            |slot| Chunk { bytes: Buffer::new(vec![0; len].leak()), slot, ..Chunk::default() };
        let mut queue = Queue::new(&options, 4, (0..4).map(chunk).collect(), Default::default());
        assert!(!queue.has_room() && !queue.is_filled() && queue.is_empty());
        assert!(queue.begin(true));
        assert!(queue.has_room() && queue.filling.cut == Some(0) && queue.filling.slot == 0);
        queue.filling.bytes.extend_from_slice(&vec![b'x'; len - 3]);
        queue.filling.count(1, len - 4, crate::types::time::Stamp(1));
        assert!(queue.is_filled() && !queue.is_empty());
        let full = std::mem::take(&mut queue.filling);
        queue.full.push_back(full);
        let mut small = |slot: usize| {
            let mut chunk = queue.take_spare().unwrap();
            assert_eq!(chunk.slot, slot);
            chunk.bytes.extend_from_slice(&[b'y'; 4][..if slot == 1 { 3 } else { 1 }]);
            queue.full.push_back(chunk);
            queue.pop_excess()
        };
        assert!(small(1).is_none());
        let oldest = small(2).unwrap();
        assert!(oldest.slot == 0 && queue.pop_excess().is_none());
        assert_eq!(queue.full.iter().map(|chunk| chunk.slot).collect::<Vec<_>>(), [1, 2]);
        let unused = queue.take_spare().unwrap();
        assert!(unused.slot == 3 && !queue.begin(false));
        queue.recycle(oldest);
        assert!(queue.begin(false));
        assert_eq!(
            (queue.filling.slot, queue.filling.cut, queue.text()),
            (0, None, Lost::default())
        );
    }
}
