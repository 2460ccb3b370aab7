//! Encoded entries on their way to a target, and what of the app is in them. No I/O, no clock.

use super::buffer::Buffer;
use crate::types::record::Record;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Encoded entries on their way to a target. The writer does not change them.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The entries.
    pub(crate) bytes: Buffer<'static>,
    /// The place of its memory among those of its log.
    pub(crate) slot: usize,
    /// The number of bytes that the target has.
    pub(crate) done: usize,
    /// The first offset that is not amid a line: a new file can begin there.
    pub(crate) cut: Option<usize>,
    /// Lines that end in it, or that it reports as lost.
    pub(crate) lines: u64,
    /// Bytes of the app that are in it, or that it reports as lost.
    pub(crate) text: u64,
    /// When its last entry was read.
    pub(crate) last: Stamp,
    /// Per line of a reader ([`Encoder::line_of`](super::encoder::Encoder::line_of)), whether the
    /// last entry leaves it unfinished; `None` if there is no entry of it.
    pub(crate) unfinished: [Option<bool>; Stream::ALL.len()],
    /// Where its progress is kept for the next mux.
    pub(crate) kept: Record,
    /// The progress under an earlier mux, until the writer has looked how far that came.
    pub(crate) earlier: Option<Progress>,
}

/// How far the target had a chunk when its writer last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Device and inode of the file, 0 if the target is not a regular file.
    pub(crate) file: (u64, u64),
    /// The size of the file.
    pub(crate) size: u64,
    /// The bytes of the chunk that were in the target.
    pub(crate) done: u64,
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
        Self {
            lines: self.lines.saturating_add(more.lines),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    /// Adds more.
    pub(crate) fn add(&mut self, more: Self) {
        *self = self.plus(more);
    }
}

impl Progress {
    /// The number of its values.
    pub(crate) const LEN: usize = 4;

    fn load(from: Record) -> Option<Self> {
        let mut values = from.load();
        let mut next = || values.next();
        Some(Self { file: (next()?, next()?), size: next()?, done: next()? })
    }
}

impl Chunk {
    /// The number of values that describe it for the next mux.
    pub(crate) const HEADER: usize = 6;

    /// The app's output in it, or that it reports as lost.
    pub(crate) fn text(&self) -> Lost {
        Lost { lines: self.lines, bytes: self.text }
    }

    /// Counts an entry that was added.
    #[inline]
    pub(crate) fn count(&mut self, lines: u64, text: usize, stamp: Stamp) {
        self.lines += lines;
        self.text += text as u64;
        self.last = stamp;
    }

    /// Begins anew in the same memory.
    pub(crate) fn reset(&mut self) {
        let (mut bytes, slot, kept) = (std::mem::take(&mut self.bytes), self.slot, self.kept);
        bytes.clear();
        *self = Self { bytes, slot, kept, ..Self::default() };
        self.note_progress((0, 0), 0);
    }

    /// Notes for the next mux that the target has the bytes up to `done`, when the file has this
    /// size.
    pub(crate) fn note_progress(&self, file: (u64, u64), size: u64) {
        self.kept.store([file.0, file.1, size, self.done as u64]);
    }

    /// What describes it for the next mux.
    pub(crate) fn header(&self) -> [u64; Self::HEADER] {
        let cut = self.cut.map_or(0, |cut| cut as u64 + 1);
        let unfinished = self.unfinished.iter().rev().fold(0, |all, one| {
            all << 2 | one.map_or(0, |is_unfinished| 1 + u64::from(is_unfinished))
        });
        [self.bytes.len() as u64, cut, self.lines, self.text, self.last.0, unfinished]
    }

    /// Takes over the chunk of an earlier mux that is in this memory. Returns whether there can be
    /// one.
    pub(crate) fn resume(&mut self, header: [u64; Self::HEADER]) -> bool {
        let [len, cut, lines, text, last, unfinished] = header;
        let Ok(len) = usize::try_from(len) else { return false };
        let earlier = Progress::load(self.kept).unwrap_or_default();
        if len > self.bytes.capacity() || cut > len as u64 + 1 || earlier.done > len as u64 {
            return false;
        }
        self.bytes.adopt(len);
        self.cut = cut.checked_sub(1).and_then(|cut| usize::try_from(cut).ok());
        (self.lines, self.text, self.last) = (lines, text, Stamp(last));
        self.unfinished = std::array::from_fn(|line| {
            (unfinished >> (2 * line) & 3).checked_sub(1).map(|is_unfinished| is_unfinished > 0)
        });
        // At most the length.
        self.done = usize::try_from(earlier.done).unwrap_or(len);
        self.earlier = Some(earlier);
        true
    }
}
