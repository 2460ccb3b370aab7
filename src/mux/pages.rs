//! The newest output of the app as the pages that the app has written: clients get these without a
//! copy.
//!
//! tee(2) gives a pipe of this module the pages of a large read, and then the ring reads and counts
//! the same bytes. So the ring has all that any client can get, and the pages only make it cheaper:
//! a client whose next bytes are among them gets these by splice(2), and all others by a copy from
//! the ring. Sessions get them with the headers of their frames between them: another pipe has the
//! pages in that form, made once for all sessions.
//!
//! A socket holds the pages until its peer reads them, and they count as the app's memory. So the
//! mux counts them ([`SocketPages`]), and shares no further ones while there are too many.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice, tee};

use crate::core::wire::{FrameKind, HEADER};
use crate::sys::files::resize_pipe;
use crate::sys::ready;
use crate::types::limits;
use crate::types::stream::Stream;

/// Reads of fewer bytes are cheaper to copy.
pub(crate) const SHARED_LEAST: usize = 64 * 1024;
/// A client gets a copy of fewer bytes at once.
pub(crate) const GIVEN_LEAST: usize = 32 * 1024;
/// Bytes per read whose pages are shared: as many as fit into the pipes. Each piece wakes a client,
/// which costs more than its pages.
pub(crate) const SHARED_READ: usize = limits::STAGE;
/// The same for a single client: its socket does not take a larger piece at once, and the rest costs
/// another wakeup of the mux.
pub(crate) const SINGLE_READ: usize = SHARED_READ / 2;
/// Bytes in the app's pages that sockets and this module hold at most. Pages may be half full: then
/// they take 4 MiB.
const SHARED_MOST: u64 = 2 * 1024 * 1024;

/// Size asked for the pipes of this module, bytes: pages that are not full, and headers, fit as well.
const PIPE: usize = 2 * limits::STAGE;

/// A pipe that only this module uses.
#[derive(Debug)]
struct PagePipe {
    out: OwnedFd,
    into: OwnedFd,
    len: usize,
}

/// A range of a stream, in a pipe.
#[derive(Debug)]
struct PagePiece {
    stream: Stream,
    range: Range<u64>,
    pipe: PagePipe,
    /// The same as frames of a session, once one has asked for that.
    frames: Option<PagePipe>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    newest: Option<PagePiece>,
    /// Empty pipes.
    idle: Vec<PagePipe>,
    /// The pages on their way to a socket, and where in which stream they begin, if they are not
    /// frames.
    hand: Option<(PagePipe, Option<(Stream, u64)>)>,
    /// What is left over goes there.
    null: Option<OwnedFd>,
    /// Bytes of pages in sockets that the mux has closed, and whose peers have not read them.
    orphaned: u64,
    /// Used for [`Pages::may_share`], kept for its memory.
    ranges: Vec<(Stream, Range<u64>)>,
    /// The kernel or the unit does not allow it.
    is_off: bool,
}

impl PagePipe {
    fn new() -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        resize_pipe(&into, PIPE);
        Ok(Self { out, into, len: 0 })
    }

    /// Moves at most `len` bytes; how many.
    fn give(&mut self, to: impl AsFd, len: usize) -> rustix::io::Result<usize> {
        let len = len.min(self.len);
        if len == 0 {
            return Ok(0);
        }
        let flags = SpliceFlags::NONBLOCK;
        let given = ready::at_once(|| splice(&self.out, None, &to, None, len, flags))?.unwrap_or(0);
        self.len -= given;
        Ok(given)
    }

    /// Lets go of the first `len` bytes.
    fn skip(&mut self, null: &OwnedFd, len: usize) -> rustix::io::Result<()> {
        let left = self.len.saturating_sub(len);
        while self.len > left {
            if self.give(null, self.len - left)? == 0 {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }

    /// Puts bytes into it, unless it is full.
    fn put(&mut self, bytes: &[u8]) -> rustix::io::Result<()> {
        let put = ready::at_once(|| rustix::io::write(&self.into, bytes))?;
        self.len += put.unwrap_or(0);
        Ok(())
    }

    /// Shows the first `len` bytes of another pipe in this one, which is empty; how many.
    fn show(&mut self, from: &OwnedFd, len: usize) -> rustix::io::Result<usize> {
        let shown = ready::at_once(|| tee(from, &self.into, len, SpliceFlags::NONBLOCK))?;
        self.len = shown.unwrap_or(0);
        Ok(self.len)
    }
}

impl Pages {
    /// Whether the pages of the next read may be shared while sockets may hold these.
    pub(crate) fn may_share(&mut self, held: impl Iterator<Item = (Stream, Range<u64>)>) -> bool {
        if self.is_off {
            return false;
        }
        self.ranges.clear();
        self.ranges.extend(held);
        covered(&mut self.ranges) + self.orphaned + SHARED_READ as u64 <= SHARED_MOST
    }

    /// Takes the pages of the next bytes of a pipe, at most `max`, before they are read from there.
    pub(crate) fn take(&mut self, from: &OwnedFd, max: usize) -> Option<TakenPages> {
        match self.try_take(from, max) {
            Ok(taken) => taken,
            Err(e) => {
                self.give_up(&e);
                None
            }
        }
    }

    fn try_take(&mut self, from: &OwnedFd, max: usize) -> io::Result<Option<TakenPages>> {
        if self.null.is_none() {
            self.null = Some(OpenOptions::new().write(true).open("/dev/null")?.into());
            // All at once, so that a mux that has shared a read needs no further descriptors.
            self.idle = vec![PagePipe::new()?, PagePipe::new()?];
            self.hand = Some((PagePipe::new()?, None));
        }
        self.drop_newest()?;
        let mut pipe = self.idle.pop().map_or_else(PagePipe::new, Ok)?;
        let len = pipe.show(from, max)?;
        if len < SHARED_LEAST {
            self.put_back(pipe)?;
            return Ok(None);
        }
        Ok(Some(TakenPages(pipe)))
    }

    /// The next `len` bytes of a stream, from `at` on, were read. If that is not all that was
    /// taken, another process reads there, too.
    pub(crate) fn keep(
        &mut self,
        TakenPages(pipe): TakenPages,
        stream: Stream,
        at: u64,
        len: usize,
    ) {
        if pipe.len == len {
            let range = at..at + len as u64;
            self.newest = Some(PagePiece { stream, range, pipe, frames: None });
        } else if let Err(e) = self.put_back(pipe) {
            self.give_up(&e);
        }
    }

    /// Where the piece ends that has the pages of this offset.
    pub(crate) fn end_of_piece(&self, stream: Stream, at: u64) -> Option<u64> {
        self.piece(stream, at).map(|piece| piece.range.end)
    }

    /// Whether these bytes are a whole piece.
    pub(crate) fn is_piece(&self, stream: Stream, range: &Range<u64>) -> bool {
        self.piece(stream, range.start).is_some_and(|piece| piece.range == *range)
    }

    fn piece(&self, stream: Stream, at: u64) -> Option<&PagePiece> {
        self.newest.as_ref().filter(|piece| piece.stream == stream && piece.range.contains(&at))
    }

    /// Gives a socket, which does not block, the pages of a range within a piece. Returns how many
    /// bytes it has accepted, or `None` if they are to be copied.
    pub(crate) fn give(
        &mut self,
        stream: Stream,
        range: &Range<u64>,
        socket: impl AsFd,
    ) -> io::Result<Option<usize>> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let handed = self.hand_out(stream, range.start, len);
        let given = self.give_hand(handed, socket)?;
        if let (Some((_, Some((_, at)))), Some(given)) = (&mut self.hand, given) {
            *at += given as u64;
        }
        Ok(given)
    }

    /// The same with a whole piece, as frames of a session; how many bytes of these.
    pub(crate) fn give_frames(
        &mut self,
        stream: Stream,
        range: &Range<u64>,
        socket: impl AsFd,
    ) -> io::Result<Option<usize>> {
        let handed = self.hand_out_frames(stream, range);
        self.give_hand(handed, socket)
    }

    /// Gives a socket what was handed out, which may be nothing.
    fn give_hand(
        &mut self,
        handed: io::Result<Option<usize>>,
        socket: impl AsFd,
    ) -> io::Result<Option<usize>> {
        let len = handed.unwrap_or_else(|e| {
            self.give_up(&e);
            None
        });
        let (Some(len), Some((pipe, _))) = (len, &mut self.hand) else { return Ok(None) };
        match pipe.give(socket, len) {
            Ok(given) => Ok(Some(given)),
            Err(e @ (Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)) => Err(e.into()),
            Err(e) => {
                self.give_up(&e.into());
                Ok(None)
            }
        }
    }

    /// Takes pages from this offset on in hand, unless they are there from the range before; `len` if
    /// there are so many.
    fn hand_out(&mut self, stream: Stream, at: u64, len: usize) -> io::Result<Option<usize>> {
        let is_next = |(pipe, from): &(PagePipe, Option<(Stream, u64)>)| {
            *from == Some((stream, at)) && pipe.len >= len
        };
        if self.hand.as_ref().is_some_and(is_next) {
            return Ok(Some(len));
        }
        let mut pipe = self.empty_hand()?;
        if let (Some(piece), Some(null)) = (self.piece(stream, at), &self.null) {
            pipe.show(&piece.pipe.out, piece.pipe.len)?;
            pipe.skip(null, usize::try_from(at - piece.range.start).unwrap_or(usize::MAX))?;
        }
        let has_all = pipe.len >= len;
        self.hand = Some((pipe, Some((stream, at))));
        Ok(has_all.then_some(len))
    }

    /// Takes a whole piece in hand, as frames; how many bytes that are.
    fn hand_out_frames(&mut self, stream: Stream, range: &Range<u64>) -> io::Result<Option<usize>> {
        let is_asked = |piece: &mut PagePiece| piece.stream == stream && piece.range == *range;
        let Some(mut piece) = self.newest.take_if(is_asked) else { return Ok(None) };
        let mut pipe = self.empty_hand()?;
        if piece.frames.is_none() {
            let mut frames = self.idle.pop().map_or_else(PagePipe::new, Ok)?;
            pipe.show(&piece.pipe.out, piece.pipe.len)?;
            while pipe.len > 0 {
                let len = pipe.len.min(limits::FRAME);
                frames.put(&FrameKind::of(stream).header(len))?;
                let moved = pipe.give(&frames.into, len)?;
                frames.len += moved;
                if moved < len {
                    // It is full.
                    break;
                }
            }
            piece.frames = Some(frames);
        }
        let whole = piece.pipe.len + piece.pipe.len.div_ceil(limits::FRAME) * HEADER;
        if let Some(frames) = piece.frames.as_ref().filter(|frames| frames.len == whole) {
            pipe.show(&frames.out, whole)?;
        }
        let has_all = pipe.len == whole;
        (self.newest, self.hand) = (Some(piece), Some((pipe, None)));
        Ok(has_all.then_some(whole))
    }

    /// The pipe that was in hand, empty.
    fn empty_hand(&mut self) -> io::Result<PagePipe> {
        let mut pipe = self.hand.take().map_or_else(PagePipe::new, |(pipe, _)| Ok(pipe))?;
        if let Some(null) = &self.null {
            pipe.skip(null, pipe.len)?;
        }
        Ok(pipe)
    }

    /// Lets go of the pages if no client needs what comes before this offset of their stream.
    pub(crate) fn release(&mut self, needed: impl Fn(Stream) -> u64) {
        let is_done = |piece: &PagePiece| piece.range.end <= needed(piece.stream);
        if self.newest.as_ref().is_some_and(is_done)
            && let Err(e) = self.drop_newest()
        {
            self.give_up(&e);
        }
    }

    fn drop_newest(&mut self) -> io::Result<()> {
        let Some(piece) = self.newest.take() else { return Ok(()) };
        piece.frames.map_or(Ok(()), |frames| self.put_back(frames))?;
        self.put_back(piece.pipe)
    }

    fn put_back(&mut self, mut pipe: PagePipe) -> io::Result<()> {
        if let Some(null) = &self.null {
            pipe.skip(null, pipe.len)?;
            self.idle.push(pipe);
        }
        Ok(())
    }

    /// From now on all clients get copies.
    fn give_up(&mut self, why: &io::Error) {
        log::debug!("sharing the app's pages: {why}");
        *self = Self { is_off: true, ..Self::default() };
    }

    /// A client goes, and its peer has still so many bytes of pages to read. It may never do so, and
    /// the mux cannot see it any more: so these count for ever.
    pub(crate) fn orphan(&mut self, bytes: u64) {
        self.orphaned += bytes;
    }
}

/// Pages of bytes that are still to be read.
#[derive(Debug)]
pub(crate) struct TakenPages(PagePipe);

impl TakenPages {
    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }
}

/// How many bytes are in at least one of these ranges.
fn covered(ranges: &mut [(Stream, Range<u64>)]) -> u64 {
    ranges.sort_unstable_by_key(|(stream, range)| (*stream as usize, range.start));
    let (mut sum, mut before) = (0, None::<(Stream, u64)>);
    for (stream, range) in ranges {
        let end = before.filter(|(of, _)| of == stream).map_or(0, |(_, end)| end);
        sum += range.end.saturating_sub(range.start.max(end));
        before = Some((*stream, range.end.max(end)));
    }
    sum
}

/// The pages that a client's socket may hold: those of one range of a stream.
#[derive(Debug, Default)]
pub(crate) struct SocketPages {
    /// Bytes that the socket holds at most; 0 before it is ready for pages.
    room: u64,
    range: Option<(Stream, Range<u64>)>,
    /// The offset in that stream behind what the socket has accepted without a gap.
    next: u64,
    /// Bytes that it has accepted since the last pages.
    since: u64,
}

impl SocketPages {
    /// The socket takes pages from now on, and holds at most so many bytes.
    pub(crate) fn begin(&mut self, room: u64) {
        self.room = room;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.room > 0
    }

    /// Whether the pages from this offset on make one range with those that it may hold.
    pub(crate) fn may_take(&self, stream: Stream, at: u64) -> bool {
        self.held().is_none_or(|(of, _)| (of, self.next) == (stream, at))
    }

    /// It has accepted these pages.
    pub(crate) fn took(&mut self, stream: Stream, at: u64, len: usize) {
        let from = self.held().map_or(at, |(_, range)| range.start);
        self.next = at + len as u64;
        self.range = Some((stream, from..self.next));
        self.since = 0;
    }

    /// It has accepted copies of these bytes.
    pub(crate) fn copied(&mut self, stream: Stream, at: u64, len: usize) {
        self.since = self.since.saturating_add(len as u64);
        if self.range.as_ref().is_some_and(|(of, _)| (*of, self.next) == (stream, at)) {
            self.next += len as u64;
        }
    }

    /// The bytes whose pages it may hold.
    pub(crate) fn held(&self) -> Option<(Stream, Range<u64>)> {
        let (stream, range) = self.range.clone()?;
        let from = range.end.saturating_sub(self.room.saturating_sub(self.since));
        let range = range.start.max(from)..range.end;
        (!range.is_empty()).then_some((stream, range))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const LEN: usize = 200 * 1024;

    /// The pages of these bytes, which are read from their pipe as the ring does.
    fn shared(bytes: &[u8], at: u64) -> Pages {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        resize_pipe(&write, limits::STAGE);
        assert_eq!(rustix::io::write(&write, bytes), Ok(bytes.len()));
        let mut pages = Pages::default();
        let taken = pages.take(&read, SHARED_READ).unwrap();
        let mut copy = vec![0; bytes.len()];
        assert_eq!(rustix::io::read(&read, &mut copy), Ok(taken.len()));
        assert_eq!(copy, bytes);
        pages.keep(taken, Stream::Stdout, at, copy.len());
        pages
    }

    fn bytes() -> Vec<u8> {
        (0..LEN).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
    }

    #[test]
    fn sockets_get_the_pages_from_where_they_are_as_far_as_they_take_them() {
        let bytes = bytes();
        let mut pages = shared(&bytes, 1000);
        let mut got = Vec::new();
        for from in [0, 1, 4096, 70_000, LEN - 1] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            // Two ranges one after the other, as two frames, and then the socket may be full.
            let ends = [from + (LEN - from) / 3, LEN];
            let (mut at, mut buffer) = (from, vec![0; 50_000]);
            got.clear();
            while at < LEN {
                let end = if at < ends[0] { ends[0] } else { ends[1] };
                let range = 1000 + at as u64..1000 + end as u64;
                let given = pages.give(Stream::Stdout, &range, &ours).unwrap().unwrap();
                at += given;
                if given == 0 {
                    // Another client has its turn.
                    let (other, _peer) = UnixStream::pair().unwrap();
                    other.set_nonblocking(true).unwrap();
                    assert!(pages.give(Stream::Stdout, &(1007..2000), &other).unwrap() > Some(0));
                    let len = theirs.read(&mut buffer).unwrap();
                    got.extend_from_slice(&buffer[..len]);
                }
            }
            drop(ours);
            theirs.read_to_end(&mut got).unwrap();
            assert!(got == bytes[from..], "from {from}");
        }
    }

    #[test]
    fn sessions_get_a_piece_with_the_headers_of_its_frames() {
        let bytes = bytes();
        let mut pages = shared(&bytes, 1000);
        let piece = 1000..1000 + LEN as u64;
        let frames: Vec<u8> =
            bytes.chunks(limits::FRAME).flat_map(|part| FrameKind::Stdout.frame(part)).collect();
        assert!(pages.is_piece(Stream::Stdout, &piece));
        for (stream, range) in [(Stream::Stderr, piece.clone()), (Stream::Stdout, 1000..1001)] {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            assert!(!pages.is_piece(stream, &range));
            assert_eq!(pages.give_frames(stream, &range, &ours).unwrap(), None);
        }
        for _ in 0..3 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let given = pages.give_frames(Stream::Stdout, &piece, &ours).unwrap().unwrap();
            // The rest of one client is not that of the next, nor of one without frames.
            let (other, mut raw) = UnixStream::pair().unwrap();
            other.set_nonblocking(true).unwrap();
            assert_eq!(pages.give(Stream::Stdout, &(1000..1010), &other).unwrap(), Some(10));
            drop((ours, other));
            let (mut got, mut got_raw) = (Vec::new(), Vec::new());
            theirs.read_to_end(&mut got).unwrap();
            raw.read_to_end(&mut got_raw).unwrap();
            assert!(got == frames[..given] && given > 0, "{given}");
            assert_eq!(got_raw, bytes[..10]);
        }
    }

    #[test]
    fn what_is_not_there_is_copied_and_a_peer_that_has_gone_is_an_error() {
        let mut pages = shared(&bytes(), 0);
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let end = LEN as u64;
        assert_eq!(pages.end_of_piece(Stream::Stdout, end - 1), Some(end));
        for (stream, at) in [(Stream::Stderr, 0), (Stream::Stdout, end)] {
            assert_eq!(pages.end_of_piece(stream, at), None);
            assert_eq!(pages.give(stream, &(at..at + 10), &ours).unwrap(), None);
        }
        drop(theirs);
        let error = pages.give(Stream::Stdout, &(0..10), &ours).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        pages.release(|_| end - 1);
        assert!(pages.end_of_piece(Stream::Stdout, 0).is_some());
        pages.release(|_| end);
        assert!(pages.end_of_piece(Stream::Stdout, 0).is_none());
    }

    #[test]
    fn small_reads_and_bytes_that_another_process_has_taken_are_not_shared() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut write: std::fs::File = write.into();
        let mut pages = Pages::default();
        assert!(pages.take(&read, SHARED_READ).is_none());
        write.write_all(&vec![1; SHARED_LEAST - 1]).unwrap();
        assert!(pages.take(&read, SHARED_READ).is_none());
        write.write_all(&[1]).unwrap();
        let taken = pages.take(&read, SHARED_READ).unwrap();
        pages.keep(taken, Stream::Stdout, 0, SHARED_LEAST - 1);
        assert_eq!(pages.end_of_piece(Stream::Stdout, 0), None);
        assert!(pages.take(&read, SHARED_READ).is_some());
    }

    /// Each socket holds another part of the output, as of clients that stop to read one by one.
    #[test]
    fn pages_in_sockets_are_bounded() {
        let mut pages = Pages::default();
        let held = |sockets: u64, len: u64, apart: u64| {
            (0..sockets).map(move |n| (Stream::Stdout, n * apart..n * apart + len))
        };
        // The same pages in all of them.
        assert!(pages.may_share(held(100, 500_000, 0)));
        let at_once = SHARED_MOST - SHARED_READ as u64;
        assert!(pages.may_share(held(1, at_once, 0)));
        assert!(!pages.may_share(held(1, at_once + 1, 0)));
        assert!(!pages.may_share(held(100, 500_000, 1_000_000)));
        pages.orphan(at_once);
        assert!(pages.may_share(held(0, 0, 0)));
        pages.orphan(1);
        assert!(!pages.may_share(held(0, 0, 0)));
    }

    #[test]
    fn ranges_that_overlap_count_once() {
        let mut ranges = [
            (Stream::Stdout, 10..20),
            (Stream::Stderr, 12..14),
            (Stream::Stdout, 0..5),
            (Stream::Stdout, 12..15),
            (Stream::Stdout, 19..22),
        ];
        assert_eq!(covered(&mut ranges), 5 + 12 + 2);
        assert_eq!(covered(&mut []), 0);
    }

    #[test]
    fn a_socket_holds_the_last_pages_until_as_many_bytes_as_it_takes_came_after_them() {
        let mut socket = SocketPages::default();
        assert!(!socket.is_ready());
        socket.begin(100);
        socket.took(Stream::Stdout, 1000, 60);
        socket.took(Stream::Stdout, 1060, 60);
        assert_eq!(socket.held(), Some((Stream::Stdout, 1020..1120)));
        socket.copied(Stream::Stdout, 1120, 30);
        assert_eq!(socket.held(), Some((Stream::Stdout, 1050..1120)));
        // No others meanwhile but the next ones.
        assert!(socket.may_take(Stream::Stdout, 1150));
        for (stream, at) in [(Stream::Stdout, 1151), (Stream::Stderr, 1150)] {
            assert!(!socket.may_take(stream, at));
        }
        socket.copied(Stream::Stderr, 0, 69);
        assert_eq!(socket.held(), Some((Stream::Stdout, 1119..1120)));
        socket.copied(Stream::Stderr, 69, 1);
        assert_eq!(socket.held(), None);
        assert!(socket.may_take(Stream::Stderr, 7));
    }
}
