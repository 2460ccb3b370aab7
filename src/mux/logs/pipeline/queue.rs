//! The chunks of a log that the writer does not have: one that is filled, and full ones behind it. Pure.

use std::collections::VecDeque;

use super::{LogOptions, LogPolicy};
use crate::logfmt::chunk::{Chunk, Lost};
use crate::types::limits;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The chunk that is being filled.
    pub(crate) filling: Chunk,
    /// Full chunks, the oldest first.
    full: VecDeque<Chunk>,
    /// Memory of chunks that the writer has given back.
    spare: Vec<Vec<u8>>,
    /// The longest entry, bytes.
    worst: usize,
    /// Bytes of a chunk.
    capacity: usize,
    /// Bytes of full chunks that are kept, at most.
    buffer: usize,
    /// Whether the oldest chunks are dropped though the target works.
    pub(crate) drops: bool,
    /// Whether the log waits for the writer before it takes more.
    pub(crate) is_blocked: bool,
}

impl Queue {
    /// An empty queue of chunks of `options.chunk` bytes, or one entry of at most `worst` bytes.
    pub(crate) fn new(options: &LogOptions, worst: usize) -> Self {
        Self {
            filling: Chunk::default(),
            full: VecDeque::new(),
            spare: Vec::new(),
            worst,
            capacity: options.chunk.max(worst),
            buffer: options.buffer.max(limits::LOG_CHUNK),
            drops: options.policy == LogPolicy::Drop,
            is_blocked: false,
        }
    }

    /// Whether one more entry fits into the allocated memory.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        // Called for each line.
        let bytes = &self.filling.bytes;
        bytes.capacity() - bytes.len() >= self.worst
    }

    /// Whether one more entry exceeds the size of a chunk.
    pub(crate) fn is_filled(&self) -> bool {
        self.filling.bytes.len() + self.worst > self.capacity
    }

    /// Allocates a chunk, which is done only a few times: memory is reused. `cut` says whether a file can
    /// begin with it.
    pub(crate) fn begin(&mut self, cut: bool) {
        if self.filling.bytes.capacity() == 0 {
            self.filling.bytes = self.spare.pop().unwrap_or_default();
            self.filling.bytes.reserve(self.capacity);
            self.filling.cut = cut.then_some(0);
        }
    }

    /// The number of full chunks.
    pub(crate) fn len(&self) -> usize {
        self.full.len()
    }

    /// Whether nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.filling.bytes.is_empty()
    }

    /// Adds a full chunk.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.full.push_back(chunk);
    }

    /// Takes the oldest full chunk.
    pub(crate) fn pop(&mut self) -> Option<Chunk> {
        self.full.pop_front()
    }

    /// Takes the oldest chunk if the full ones are too many to be kept.
    pub(crate) fn pop_excess(&mut self) -> Option<Chunk> {
        let kept: usize = self.full.iter().map(|chunk| chunk.bytes.len()).sum();
        if kept > self.buffer { self.pop() } else { None }
    }

    /// Reuses the memory of a chunk.
    pub(crate) fn recycle(&mut self, mut chunk: Chunk) {
        chunk.bytes.clear();
        // As many as the writer has, and the one that is being filled.
        if chunk.bytes.capacity() >= self.capacity && self.spare.len() <= limits::LOG_AHEAD {
            self.spare.push(chunk.bytes);
        }
    }

    /// The app's output in here.
    pub(crate) fn text(&self) -> Lost {
        self.full.iter().chain([&self.filling]).map(Chunk::text).fold(Lost::default(), Lost::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_chunks_go_first_and_memory_is_reused() {
        let chunk = limits::LOG_CHUNK;
        let mut queue = Queue::new(&LogOptions { chunk, buffer: 0, ..LogOptions::default() }, 4);
        assert!(!queue.has_room() && queue.is_empty());
        queue.begin(true);
        assert!(queue.has_room() && queue.filling.cut == Some(0));
        queue.filling.bytes.resize(chunk - 3, b'x');
        queue.filling.count(1, chunk - 4, crate::types::time::Stamp(1));
        assert!(queue.is_filled() && !queue.is_empty());
        let full = std::mem::take(&mut queue.filling);
        let memory = full.bytes.as_ptr();
        queue.push(full);
        queue.push(Chunk { bytes: b"123".to_vec(), ..Chunk::default() });
        assert_eq!((queue.len(), queue.text()), (2, Lost { lines: 1, bytes: chunk as u64 - 4 }));
        assert!(queue.pop_excess().is_none());
        queue.push(Chunk { bytes: b"4".to_vec(), ..Chunk::default() });
        let oldest = queue.pop_excess().unwrap();
        assert!(oldest.bytes.len() == chunk - 3 && queue.pop_excess().is_none());
        queue.recycle(oldest);
        queue.begin(false);
        assert_eq!((queue.filling.bytes.as_ptr(), queue.filling.cut), (memory, None));
    }
}
