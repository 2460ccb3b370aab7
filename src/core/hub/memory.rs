//! The memory of a hub that may outlive its mux: the rings, and words that describe their content.
//!
//! A hub continues with the content that an earlier one left for the same streams and sizes.
//! Invariant: if the process is killed after any instruction, the words describe only bytes that
//! exist. This module does not know where the memory comes from, and what keeps it.

use std::sync::atomic::AtomicU64;

use super::STREAMS;
use crate::types::record::{Word, clear};
use crate::types::stream::{Epoch, Stream};

/// Words at the beginning of the memory: a page, so that the rings begin on one.
pub const WORDS: usize = 4096 / size_of::<AtomicU64>();

/// An offset that no app reaches: sums of those below it do not overflow.
const END_OF_OFFSETS: u64 = 1 << 62;

/// Memory that may outlive this process, all zero when it is new.
#[derive(Debug)]
pub struct Memory {
    /// The words about the rings: [`WORDS`] of them.
    pub words: &'static [AtomicU64],
    /// The rings: [`rings_len`] bytes.
    pub rings: &'static mut [u8],
}

/// What the content of the memory depends on besides its size: the streams, and the size of a ring.
pub(crate) fn layout(streams: &[Stream], backlog: usize) -> [u64; 2] {
    [outputs(streams).map(|stream| 1 << (stream as u64)).sum(), capacity(backlog) as u64]
}

/// Bytes of the rings of the outputs among `streams`, with `backlog` bytes each.
pub fn rings_len(streams: &[Stream], backlog: usize) -> usize {
    outputs(streams).count() * capacity(backlog)
}

/// Bytes of one ring: a power of two.
fn capacity(backlog: usize) -> usize {
    backlog.max(1).next_power_of_two()
}

fn outputs(streams: &[Stream]) -> impl Iterator<Item = Stream> {
    Stream::ALL.into_iter().filter(|s| s.is_output() && streams.contains(s))
}

/// Outputs of one app: stdout and stderr, or a terminal.
const OUTPUTS: usize = 2;
/// Words of the position of one of them.
const POSITION: usize = 5;
/// The word that has the epoch. It is stored last, and no epoch is 0.
const EPOCH: usize = 0;
/// The word that counts the clients that will return if this mux is killed.
const RETURNING: usize = 1;
/// The first word of the positions.
const POSITIONS: usize = 2;
/// Words that are used.
pub(super) const USED: usize = POSITIONS + OUTPUTS * POSITION;

/// One stream's part of the memory.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) place: StreamPosition,
    pub(crate) ring: &'static mut [u8],
}

/// What an earlier hub has left, or an empty state.
#[derive(Debug)]
pub(crate) struct KeptHub {
    pub(crate) epoch: Epoch,
    /// Those of the outputs of the app.
    pub(crate) parts: [Option<Part>; STREAMS],
    /// How many clients will return, should this mux be killed.
    pub(crate) returning: Word,
}

impl Memory {
    /// The content for these streams. If there is none, or none that can be true, it is empty and
    /// has the epoch `fresh`.
    pub(crate) fn open(self, streams: &[Stream], backlog: usize, fresh: Epoch) -> KeptHub {
        let (epoch, capacity) = (Word::new(&self.words[EPOCH]), capacity(backlog));
        let (positions, _) = self.words[POSITIONS..USED].as_chunks();
        let mut parts = [const { None }; STREAMS];
        let mut is_used = epoch.get() > 0;
        for ((stream, words), ring) in
            outputs(streams).zip(positions).zip(self.rings.chunks_exact_mut(capacity))
        {
            let place = StreamPosition::new(words);
            is_used &= place.is_consistent(capacity);
            parts[stream as usize] = Some(Part { place, ring });
        }
        if !is_used {
            clear(self.words);
            epoch.set(fresh.0);
        }
        KeptHub { epoch: Epoch(epoch.get()), parts, returning: Word::new(&self.words[RETURNING]) }
    }
}

/// Offsets of a stream. Each is stored at once; together they are right at any moment as long
/// as they are stored in the right order, which is their user's business.
#[derive(Debug)]
pub(crate) struct StreamPosition {
    /// Offset of the oldest byte that is certainly there.
    pub(crate) start: Word,
    /// Offset after the newest byte.
    pub(crate) end: Word,
    /// The highest offset up to which some client has accepted bytes.
    pub(crate) seen: Word,
    /// Offset after the newest byte that is to be read next, or was.
    pub(crate) announced: Word,
    /// The lowest offset that a client which will return may still need. Too low is harmless: then
    /// the next mux keeps more for a moment. It is not checked, but believed only between start and
    /// seen.
    pub(crate) needed: Word,
}

impl StreamPosition {
    fn new(words: &'static [AtomicU64; POSITION]) -> Self {
        let [start, end, seen, announced, needed] = words.each_ref().map(Word::new);
        Self { start, end, seen, announced, needed }
    }

    /// Whether the first three can be true of a ring; the fourth is believed only where it fits.
    fn is_consistent(&self, capacity: usize) -> bool {
        let (start, end, seen) = (self.start.get(), self.end.get(), self.seen.get());
        end < END_OF_OFFSETS
            && seen <= end
            && end.checked_sub(start).is_some_and(|len| len <= capacity as u64)
    }
}

#[cfg(test)]
impl Memory {
    /// Memory that is not kept.
    pub(crate) fn new(streams: &[Stream], backlog: usize) -> Self {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { words: words.leak(), rings: vec![0; rings_len(streams, backlog)].leak() }
    }

    /// The same memory, as the next process finds it: the bytes of the rings are a copy.
    pub(crate) fn again(words: &'static [AtomicU64], rings: &[u8]) -> Self {
        Self { words, rings: rings.to_vec().leak() }
    }
}
