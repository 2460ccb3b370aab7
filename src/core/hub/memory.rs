//! The memory of a hub that may outlive its mux: the rings, and words that describe their content.
//!
//! A hub continues with the content that an earlier one left, if the streams and sizes are the
//! same. Invariant: if the process is killed after any instruction, the words describe only bytes
//! that exist. Memory with any other content is either consistent or not used. This module does not
//! know where the memory comes from, and what keeps it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::STREAMS;
use crate::types::stream::{Epoch, Stream};

/// Words at the beginning of the memory: a page, so that the rings begin on one.
pub const WORDS: usize = 4096 / size_of::<AtomicU64>();

/// Says that these words are ours.
const MAGIC: u64 = u64::from_le_bytes(*b"iottymux");
/// Raise this with every change of the words' meaning.
const VERSION: u64 = 3;
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
/// Words of the head.
const HEAD: usize = 5;
/// The first word of the offsets that clients still need, one for each output.
const NEEDED: usize = HEAD + 4 * OUTPUTS;
/// The word that counts the clients that will return if this mux is killed. It is behind the head
/// and the places of all streams.
const RETURNING: usize = HEAD + 4 * STREAMS;
/// The first word of the logs.
const LOGS: usize = RETURNING + 1;

/// One stream's part of the memory.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) place: StreamPosition,
    pub(crate) ring: &'static mut [u8],
}

impl Memory {
    /// The parts of the outputs among `streams`, as an earlier hub has left them, and its epoch; or
    /// empty ones, and the epoch `fresh`. A stream for which the memory has no room has no part.
    pub(crate) fn open(
        self,
        streams: &[Stream],
        backlog: usize,
        fresh: Epoch,
    ) -> (Epoch, [Option<Part>; STREAMS], Vec<LogCheckpoint>, Option<ReturnCount>) {
        let mut parts = [const { None }; STREAMS];
        let none = (fresh, [const { None }; STREAMS], Vec::new(), None);
        let Some((head, places)) = self.words.split_first_chunk::<HEAD>() else { return none };
        let (places, _) = places.as_chunks();
        let needed = self.words.iter().skip(NEEDED).take(OUTPUTS);
        let (logs, _) = self.words.get(LOGS..).unwrap_or_default().as_chunks();
        let logs: Vec<LogCheckpoint> = logs.iter().map(LogCheckpoint).collect();
        let returning = self.words.get(RETURNING).map(ReturnCount);
        let (head, capacity) = (MemoryHeader(head), capacity(backlog));
        for ((stream, place), ring) in outputs(streams)
            .zip(places.iter().zip(needed))
            .zip(self.rings.chunks_exact_mut(capacity))
        {
            let place = StreamPosition { words: place.0, needed: place.1 };
            parts[stream as usize] = Some(Part { place, ring });
        }
        let facts = [MAGIC, VERSION, mask(streams), capacity as u64];
        let places = || parts.iter().flatten();
        if !head.states(facts) || !places().all(|part| part.place.is_consistent(capacity)) {
            head.state([0; 4]);
            places().for_each(|part| part.place.reset());
            logs.iter().for_each(LogCheckpoint::reset);
            if let Some(count) = &returning {
                count.set(0);
            }
            head.set_epoch(fresh);
            head.state(facts);
        }
        (head.epoch(), parts, logs, returning)
    }
}

/// Every store of a word. A process may be killed before and after each.
fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
    #[cfg(test)]
    super::kill_model::stored();
}

/// The outputs as bits: which parts there are, and in which order.
fn mask(streams: &[Stream]) -> u64 {
    outputs(streams).map(|stream| 1 << (stream as u64)).sum()
}

/// The words that decide whether all others are valid: the first of them is written last and
/// cleared first. Then the epoch.
struct MemoryHeader(&'static [AtomicU64; HEAD]);

impl MemoryHeader {
    fn states(&self, facts: [u64; 4]) -> bool {
        self.0.iter().zip(facts).all(|(word, fact)| word.load(Ordering::Acquire) == fact)
    }

    fn state(&self, facts: [u64; 4]) {
        let [magic, rest @ ..] = facts;
        if magic == 0 {
            store(&self.0[0], 0);
        }
        for (word, fact) in self.0[1..].iter().zip(rest) {
            store(word, fact);
        }
        store(&self.0[0], magic);
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.0[4].load(Ordering::Acquire))
    }

    fn set_epoch(&self, Epoch(number): Epoch) {
        store(&self.0[4], number);
    }
}

/// Offsets of a stream. Each is stored at once; together they are right at any moment as long
/// as they are stored in the right order, which is their user's business. Stores that release keep
/// that order.
#[derive(Debug)]
pub(crate) struct StreamPosition {
    words: &'static [AtomicU64; 4],
    needed: &'static AtomicU64,
}

impl StreamPosition {
    /// Offset of the oldest byte that is certainly there.
    pub(crate) fn start(&self) -> u64 {
        self.words[0].load(Ordering::Acquire)
    }

    /// Offset after the newest byte.
    pub(crate) fn end(&self) -> u64 {
        self.words[1].load(Ordering::Acquire)
    }

    /// The highest offset up to which some client has accepted bytes.
    pub(crate) fn seen(&self) -> u64 {
        self.words[2].load(Ordering::Acquire)
    }

    /// Offset after the newest byte that is to be read next, or was.
    pub(crate) fn announced(&self) -> u64 {
        self.words[3].load(Ordering::Acquire)
    }

    pub(crate) fn set_start(&self, offset: u64) {
        store(&self.words[0], offset);
    }

    pub(crate) fn set_end(&self, offset: u64) {
        store(&self.words[1], offset);
    }

    pub(crate) fn set_seen(&self, offset: u64) {
        store(&self.words[2], offset);
    }

    pub(crate) fn set_announced(&self, offset: u64) {
        store(&self.words[3], offset);
    }

    /// The lowest offset that a client which will return may still need. Too low is harmless: then
    /// the next mux keeps more for a moment. It is not checked, but believed only between start and
    /// seen.
    pub(crate) fn needed(&self) -> u64 {
        self.needed.load(Ordering::Acquire)
    }

    pub(crate) fn set_needed(&self, offset: u64) {
        store(self.needed, offset);
    }

    /// Whether the first three can be true of a ring; the fourth is believed only where it fits.
    fn is_consistent(&self, capacity: usize) -> bool {
        let (start, end, seen) = (self.start(), self.end(), self.seen());
        end < END_OF_OFFSETS
            && seen <= end
            && end.checked_sub(start).is_some_and(|len| len <= capacity as u64)
    }

    fn reset(&self) {
        self.words.iter().chain([self.needed]).for_each(|word| store(word, 0));
    }
}

/// How many clients will return, should this mux be killed. Only this process stores it.
#[derive(Debug)]
pub(crate) struct ReturnCount(&'static AtomicU64);

impl ReturnCount {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, clients: u64) {
        store(self.0, clients);
    }
}

/// The position of a log: its number, and an offset for each output.
#[derive(Debug)]
pub(crate) struct LogCheckpoint(&'static [AtomicU64; 4]);

impl LogCheckpoint {
    /// Whether it is this log's: a number made of its name, not 0.
    pub(crate) fn is_of(&self, log: u64) -> bool {
        self.0[0].load(Ordering::Acquire) == log
    }

    /// Makes it this log's.
    pub(crate) fn set_log(&self, log: u64) {
        store(&self.0[0], log);
    }

    /// Offset after the last byte that was written.
    pub(crate) fn written(&self, stream: Stream) -> u64 {
        self.word(stream).load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, stream: Stream, offset: u64) {
        store(self.word(stream), offset);
    }

    /// The input has no word: its number is that of the name.
    fn word(&self, stream: Stream) -> &AtomicU64 {
        &self.0[stream as usize]
    }

    fn reset(&self) {
        self.0.iter().for_each(|word| store(word, 0));
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
