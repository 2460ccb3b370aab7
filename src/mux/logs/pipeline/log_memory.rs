//! The memory of a log that may outlive its mux: the chunks that the target does not have, half
//! lines, and a snapshot of the log's state.
//!
//! The next mux continues exactly there: it has the bytes of each chunk, and the writer has noted
//! in which file a chunk goes on, and where. So nothing is encoded twice, and the backlog is free
//! as soon as a line is encoded. Invariant: whatever instruction was the last one of a process that
//! is killed, the snapshot describes memory that is there. A chunk is in the snapshot before the
//! writer has it, and its memory is used again only when it is not in the snapshot any more.

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::chunk::{Chunk, Lost, Progress};
use crate::core::logfmt::encoder::Encoder;
use crate::mux::kept_memory::MemoryPiece;
use crate::mux::logs::pipeline::LogOptions;
use crate::types::limits;
use crate::types::record::{Record, may_be_killed};
use crate::types::stream::{Epoch, Stream};
use crate::types::time::Stamp;

const STREAMS: usize = Stream::ALL.len();
/// Values of a snapshot before the list of chunks.
const FIXED: usize = 3 + 3 * STREAMS + 3 + 1 + Chunk::HEADER;
/// Words of one chunk: what describes it, and how far the target has it.
const CHUNK: usize = HEADER + Record::words(Progress::LEN);
const HEADER: usize = Record::words(Chunk::HEADER);
/// Offsets and sums are below this: sums of some do not overflow.
const LARGE: u64 = 1 << 62;

/// How large the parts of the memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLayout {
    /// Bytes of a chunk.
    pub(crate) chunk: usize,
    /// The number of chunks.
    pub(crate) slots: usize,
    /// The longest half line, bytes.
    half: usize,
    /// The longest entry, bytes.
    pub(crate) worst: usize,
}

impl MemoryLayout {
    /// Room for all that a log of these options keeps.
    pub(crate) fn new(encoder: &dyn Encoder, options: &LogOptions) -> Self {
        let half = encoder.splitter(options.line_limit).limit();
        let worst = encoder.worst(half);
        // A full chunk has at least half of what is asked for.
        let least = (options.chunk / 2).max(1);
        let chunk = options.chunk.max(worst + least);
        // What is kept for a failing target, one more before the oldest is dropped, those of the
        // writer, and the one that is filled. A marker takes the place of a chunk of the writer.
        let slots = options.buffer.max(limits::LOG_CHUNK) / least + 2 + limits::LOG_AHEAD + 1;
        Self { chunk, slots, half, worst }
    }

    /// Words and bytes in all.
    pub(crate) fn size(&self) -> (usize, usize) {
        let words = Record::words(self.snapshot()) + self.slots * CHUNK;
        (words, self.slots * self.chunk + 2 * STREAMS * self.half)
    }

    /// Values of a snapshot: the list of chunks ends with 0.
    fn snapshot(&self) -> usize {
        FIXED + self.slots + 1
    }

    /// What the content depends on.
    pub(crate) fn content(&self) -> [u64; 3] {
        [self.chunk as u64, self.slots as u64, self.half as u64]
    }
}

/// The memory of a log, as it is mapped.
#[derive(Debug)]
pub struct LogMemory {
    layout: MemoryLayout,
    piece: MemoryPiece,
}

/// The state of a log besides its chunks and half lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The lines of a reader that are unfinished behind the last chunk of the writer.
    pub(crate) unfinished: [bool; STREAMS],
    /// The time of the last entry.
    pub(crate) stamp: Stamp,
    /// The offsets up to which the log has taken them.
    pub(crate) at: [u64; STREAMS],
    /// Where the app ended in each stream, until the log reaches that.
    pub(crate) app_ends: [Option<u64>; STREAMS],
    /// What the next marker reports.
    pub(crate) lost: Lost,
    /// When the last lost byte was read.
    pub(crate) lost_at: Stamp,
}

/// Where a half line is kept: in one of two places, so that the one that counts is not overwritten.
#[derive(Clone, Copy, Debug, Default)]
struct KeptHalf {
    /// The offset at which it begins.
    begin: u64,
    place: usize,
    len: usize,
    /// Whether a part of its line is in a chunk.
    open: bool,
}

/// What an earlier mux left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) snapshot: Snapshot,
    /// Full chunks, in their order.
    pub(crate) full: Vec<Chunk>,
    /// How many of them the writer had: the target may have a part of the first one.
    pub(crate) handed: usize,
    pub(crate) filling: Chunk,
    /// What waits for its line end, and whether a part of the line is in a chunk, per stream.
    pub(crate) halves: [(Vec<u8>, bool); STREAMS],
}

/// Where a log keeps its state.
#[derive(Debug)]
pub(crate) struct StateKeeper {
    /// The counting of the offsets.
    epoch: Epoch,
    snapshot: Record,
    /// What describes each full chunk.
    headers: Vec<Record>,
    halves: [[&'static mut [u8]; 2]; STREAMS],
    kept: [KeptHalf; STREAMS],
}

impl LogMemory {
    /// This memory, which has the size that the layout asks for.
    pub(crate) fn new(layout: MemoryLayout, piece: MemoryPiece) -> Self {
        Self { layout, piece }
    }

    /// Memory for the life of this process.
    #[cfg(any(test, feature = "rooms"))]
    pub fn unkept(encoder: &dyn Encoder, options: &LogOptions) -> Self {
        let layout = MemoryLayout::new(encoder, options);
        let (words, bytes) = layout.size();
        let words: Vec<_> = (0..words).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
        let bytes = vec![0; bytes].leak();
        Self::new(layout, MemoryPiece { words: words.leak(), bytes, was_stored: false })
    }

    pub(crate) fn layout(&self) -> MemoryLayout {
        self.layout
    }

    /// Whether an earlier mux kept this log in memory of any layout.
    pub(crate) fn was_stored(&self) -> bool {
        self.piece.was_stored
    }

    /// Takes the memory apart: where to keep the state, the unused chunks, and what an earlier mux
    /// left, if the backlog still has this epoch.
    pub(crate) fn open(self, epoch: Epoch) -> (StateKeeper, Vec<Chunk>, Option<Left>) {
        let Self { layout, piece: MemoryPiece { words, bytes, .. } } = self;
        let (snapshot, chunks) = words.split_at(Record::words(layout.snapshot()));
        let snapshot = Record::new(snapshot);
        let (buffers, halves) = bytes.split_at_mut(layout.slots * layout.chunk);
        let mut halves = halves.chunks_exact_mut(layout.half);
        let mut half = || halves.next().unwrap_or_default();
        let halves = std::array::from_fn(|_| [half(), half()]);
        let (mut headers, mut slots) = (Vec::new(), Vec::new());
        let buffers = buffers.chunks_exact_mut(layout.chunk);
        for (slot, (words, memory)) in chunks.chunks_exact(CHUNK).zip(buffers).enumerate() {
            let (header, progress) = words.split_at(HEADER);
            headers.push(Record::new(header));
            let (bytes, kept) = (Buffer::new(memory), Record::new(progress));
            slots.push(Some(Chunk { bytes, slot, kept, ..Chunk::default() }));
        }
        let mut keeper = StateKeeper { epoch, snapshot, headers, halves, kept: Default::default() };
        let left = keeper.find(&mut slots);
        let spare = slots.into_iter().flatten().map(|mut chunk| {
            chunk.reset();
            chunk
        });
        (keeper, spare.collect(), left)
    }
}

impl StateKeeper {
    /// Stores the state of the log, with its chunks in their order, the first ones of which the
    /// writer has.
    pub(crate) fn save(
        &self,
        snapshot: &Snapshot,
        filling: &Chunk,
        (handed, full): (usize, impl Iterator<Item = usize>),
    ) {
        let Snapshot { unfinished, stamp, lost, lost_at, .. } = *snapshot;
        let unfinished = unfinished.iter().rev().fold(0, |all, one| all << 1 | u64::from(*one));
        let flags = 1 | unfinished << 1 | (handed as u64) << 8;
        let is_filling = filling.bytes.capacity() > 0;
        let halves = self.kept.map(|KeptHalf { place, len, open, .. }| {
            (len as u64) << 2 | (place as u64) << 1 | u64::from(open)
        });
        let values = [flags, self.epoch.0, stamp.0]
            .into_iter()
            .chain(snapshot.at)
            .chain(snapshot.app_ends.map(|end| end.map_or(0, |end| end + 1)))
            .chain(halves)
            .chain([lost.lines, lost.bytes, lost_at.0])
            .chain([if is_filling { filling.slot as u64 + 1 } else { 0 }])
            .chain(filling.header())
            .chain(full.map(|slot| slot as u64 + 1))
            .chain([0]);
        self.snapshot.store(values);
    }

    /// Stores what describes a full chunk, before it is in a snapshot.
    pub(crate) fn seal(&self, chunk: &Chunk) {
        if let Some(header) = self.headers.get(chunk.slot) {
            header.store(chunk.header());
        }
    }

    /// Keeps a half line that begins at this offset of its stream, for the next snapshot.
    pub(crate) fn keep_half(&mut self, stream: Stream, begin: u64, half: &[u8], open: bool) {
        let kept = &mut self.kept[stream as usize];
        let continues = begin == kept.begin && half.len() >= kept.len;
        if !half.is_empty() || kept.len > 0 {
            let from = if continues { kept.len } else { 0 };
            kept.place = if continues { kept.place } else { 1 - kept.place };
            let place = &mut self.halves[stream as usize][kept.place];
            if let (Some(place), Some(new)) = (place.get_mut(from..half.len()), half.get(from..)) {
                place.copy_from_slice(new);
                may_be_killed();
            }
        }
        *kept = KeptHalf { begin, len: half.len(), open, ..*kept };
    }

    /// Finds what an earlier mux left, and takes its chunks out of the slots. Memory that cannot be
    /// its is not used.
    fn find(&mut self, slots: &mut [Option<Chunk>]) -> Option<Left> {
        let record = self.snapshot;
        let mut values = record.load();
        let mut next = || values.next().unwrap_or_default();
        let flags = next();
        // Offsets of another backlog mean nothing.
        if flags & 1 == 0 || Epoch(next()) != self.epoch {
            return None;
        }
        let stamp = Stamp(next());
        let mut each = || std::array::from_fn(|_| next());
        let (at, app_ends, halves) = (each(), each(), each());
        let lost = Lost { lines: next(), bytes: next() };
        let lost_at = Stamp(next());
        let snapshot = Snapshot {
            unfinished: std::array::from_fn(|line| flags >> (1 + line) & 1 != 0),
            stamp,
            at,
            app_ends: app_ends.map(|end: u64| end.checked_sub(1)),
            lost,
            lost_at,
        };
        let is_wrong = |values: &[u64]| values.iter().any(|value| *value >= LARGE);
        if [&at[..], &app_ends, &[lost.lines, lost.bytes]].into_iter().any(is_wrong) {
            return None;
        }
        let (slot, header) = (next(), std::array::from_fn(|_| next()));
        // Memory that is damaged leaves no chunk in two places.
        let mut taken: Vec<(u64, [u64; Chunk::HEADER])> = Vec::new();
        if slot > 0 {
            taken.push((slot, header));
        }
        for slot in values.take_while(|slot| *slot > 0) {
            let header = self.headers.get(usize::try_from(slot - 1).ok()?)?;
            taken.push((slot, header.values()));
        }
        let mut full = Vec::new();
        let is_damaged = taken.into_iter().any(|(slot, header)| {
            let at = usize::try_from(slot - 1).unwrap_or(usize::MAX);
            let Some(mut chunk) = slots.get_mut(at).and_then(Option::take) else { return true };
            let is_chunk = chunk.resume(header) && chunk.lines < LARGE && chunk.text < LARGE;
            full.push(chunk);
            !is_chunk
        });
        let halves = if is_damaged { None } else { self.find_halves(halves) };
        let Some(halves) = halves else {
            for chunk in full {
                let at = chunk.slot;
                slots[at] = Some(chunk);
            }
            return None;
        };
        let filling = if slot > 0 { full.remove(0) } else { Chunk::default() };
        let handed = usize::try_from(flags >> 8).unwrap_or(0).min(limits::LOG_AHEAD);
        Some(Left { snapshot, full, handed, filling, halves })
    }

    fn find_halves(&mut self, words: [u64; STREAMS]) -> Option<[(Vec<u8>, bool); STREAMS]> {
        let mut found: [(Vec<u8>, bool); STREAMS] = Default::default();
        for (at, word) in words.into_iter().enumerate() {
            let (len, place) = (usize::try_from(word >> 2).ok()?, usize::from(word & 2 != 0));
            found[at] = (self.halves[at][place].get(..len)?.to_vec(), word & 1 != 0);
            // The next one goes to the other place.
            self.kept[at] = KeptHalf { begin: u64::MAX, place, len, open: word & 1 != 0 };
        }
        Some(found)
    }
}
