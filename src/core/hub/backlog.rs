//! The ring with the newest bytes of one stream.
//!
//! Invariant: `end - start <= capacity`, and the bytes `start..end` are those that were committed
//! at these offsets. At any instant this also holds for its memory, so that another process can
//! continue with it. It does no I/O: the edge reads directly into [`Backlog::space`] and writes
//! directly from [`Backlog::slices`].

use std::ops::Range;

use super::memory::{Part, StreamPosition};

/// The newest bytes of a stream, addressed by their offset since the stream began.
#[derive(Debug)]
pub(crate) struct Backlog {
    ring: &'static mut [u8],
    /// The words that the next mux goes by.
    place: StreamPosition,
    start: u64,
    end: u64,
    seen: u64,
}

impl Backlog {
    /// A ring with the content of its memory. Pages are not touched before they are used.
    pub(crate) fn new(Part { place, ring }: Part) -> Self {
        let (start, end, seen) = (place.start.get(), place.end.get(), place.seen.get());
        Self { ring, place, start, end, seen }
    }

    /// Bytes that fit: a power of two.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Offset of the oldest byte kept.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Offset that the next byte will get.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that may still come before the one at this offset is overwritten.
    pub(crate) fn free_behind(&self, at: u64) -> u64 {
        (self.capacity() as u64).saturating_sub(self.end - at)
    }

    /// The highest offset up to which some client has accepted bytes.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Some client has accepted the bytes before this offset.
    pub(crate) fn see(&mut self, offset: u64) {
        if offset > self.seen {
            self.seen = offset.min(self.end);
            self.place.seen.set(self.seen);
        }
    }

    /// The first offset that a client of an earlier mux may still need, as far as it is kept. A
    /// word that is out of date counts as what every client has seen.
    pub(crate) fn needed(&self) -> u64 {
        self.place.needed.get().min(self.seen).max(self.start)
    }

    /// From here on the next mux is to keep everything, for clients that return.
    pub(crate) fn need(&mut self, offset: u64) {
        if self.place.needed.get() != offset {
            self.place.needed.set(offset);
        }
    }

    /// A client needs what comes from this offset on, too.
    pub(crate) fn need_also(&mut self, offset: u64) {
        self.need(self.place.needed.get().min(offset));
    }

    /// See [`super::Hub::announce`].
    pub(crate) fn announce(&mut self, len: usize) {
        self.place.announced.set(self.end + len as u64);
    }

    /// See [`super::Hub::recover`].
    pub(crate) fn recover(&mut self, unread: Option<usize>) {
        let ahead = self.place.announced.get().checked_sub(self.end);
        // What is unread may not have been announced yet.
        let read = ahead.zip(unread).and_then(|(ahead, unread)| ahead.checked_sub(unread as u64));
        let read = read.and_then(|len| usize::try_from(len).ok());
        // More than the ring cannot be: then the memory is wrong.
        if let Some(len) = read.filter(|len| *len <= self.capacity()) {
            self.commit(len);
        }
        self.announce(0);
    }

    /// The memory for the next `len` bytes (at most the capacity): one piece, and a second one
    /// where the ring wraps. Bytes written there count only after [`Backlog::commit`], but the
    /// oldest bytes may be gone from now on: a client that still needs them takes them before.
    #[inline]
    pub(crate) fn space(&mut self, len: usize) -> [&mut [u8]; 2] {
        let len = len.min(self.capacity());
        // Before they are overwritten: the next mux must not go by them, should this one be killed.
        self.place.start.set(self.start_at(self.end + len as u64));
        let at = self.index(self.end);
        let first = len.min(self.capacity() - at);
        let (wrapped, tail) = self.ring.split_at_mut(at);
        [&mut tail[..first], &mut wrapped[..len - first]]
    }

    /// Counts `len` bytes (at most the capacity) that were written into [`Backlog::space`]; 0 when
    /// there were none.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end += len as u64;
        self.start = self.start_at(self.end);
        // In this order: the bytes between the old end and the start given up before are there.
        self.place.start.set(self.start);
        self.place.end.set(self.end);
    }

    /// The oldest byte kept when the stream has come to `end`.
    fn start_at(&self, end: u64) -> u64 {
        self.start.max(end.saturating_sub(self.capacity() as u64))
    }

    /// The bytes of `range`, in one piece or two; only those that are kept.
    pub(crate) fn slices(&self, range: Range<u64>) -> [&[u8]; 2] {
        let from = range.start.clamp(self.start, self.end);
        let to = range.end.clamp(from, self.end);
        // At most the capacity, by the invariant.
        let len = usize::try_from(to - from).unwrap_or(usize::MAX).min(self.capacity());
        let at = self.index(from);
        let first = len.min(self.capacity() - at);
        [&self.ring[at..at + first], &self.ring[..len - first]]
    }

    /// Position of an offset in the ring.
    fn index(&self, offset: u64) -> usize {
        // The capacity is a power of two, so the low bits are the position and fit a usize.
        let low = offset & (self.capacity() as u64 - 1);
        usize::try_from(low).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::hub::memory::Memory;
    use crate::types::stream::{Epoch, Stream};
    use proptest::prelude::*;

    fn ring(capacity: usize) -> Backlog {
        let streams = [Stream::Stdout];
        let mut kept = Memory::new(&streams, capacity).open(&streams, capacity, Epoch(1));
        Backlog::new(kept.parts[Stream::Stdout as usize].take().unwrap())
    }

    fn write(ring: &mut Backlog, bytes: &[u8]) {
        let [a, b] = ring.space(bytes.len());
        let (head, tail) = bytes.split_at(a.len());
        a.copy_from_slice(head);
        b.copy_from_slice(tail);
        ring.commit(bytes.len());
    }

    fn read(ring: &Backlog, range: Range<u64>) -> Vec<u8> {
        ring.slices(range).concat()
    }

    #[test]
    fn wraps_and_forgets_the_oldest() {
        let mut ring = ring(8);
        write(&mut ring, b"abcdef");
        write(&mut ring, b"ghij");
        assert_eq!((ring.start(), ring.end()), (2, 10));
        assert_eq!(read(&ring, 0..99), b"cdefghij");
        assert_eq!(read(&ring, 7..9), b"hi");
        assert_eq!(read(&ring, 10..10), b"");
    }

    proptest! {
        #[test]
        fn keeps_exactly_the_newest(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..16), 0..40)) {
            let mut ring = ring(16);
            let mut all = Vec::new();
            for piece in &pieces {
                write(&mut ring, piece);
                all.extend_from_slice(piece);
                let kept = all.len().min(16);
                prop_assert_eq!(ring.end(), all.len() as u64);
                prop_assert_eq!(read(&ring, 0..u64::MAX), &all[all.len() - kept..]);
            }
        }
    }
}
