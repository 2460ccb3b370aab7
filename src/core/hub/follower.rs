//! The offsets of a log: it reads all streams and knows when each byte was read. The app waits for
//! it, so that it loses no line while its target works.
//!
//! No I/O, no clock. Invariant: no mark and no byte that a follower has still to read is
//! overwritten.

use std::ops::Range;

use super::backlog::Backlog;
use super::marks::{Mark, Marks};
use super::{Hub, STREAMS};
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// A log, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogId(pub(crate) usize);

/// The offsets of a log.
#[derive(Debug)]
pub(crate) struct Follower {
    /// The next byte to read of each stream that the app has.
    at: [Option<u64>; STREAMS],
    /// The first mark in which it may be.
    mark: [u64; STREAMS],
}

impl Follower {
    /// Bytes of a stream that may be read from the app without overwriting any that this log needs;
    /// 0 if there is no room for marks.
    pub(crate) fn room(&self, stream: Stream, backlog: &Backlog, marks: &Marks) -> u64 {
        let Some(at) = self.at[stream as usize] else { return u64::MAX };
        let oldest = self.mark.iter().zip(&self.at).filter(|(_, at)| at.is_some());
        let oldest = oldest.map(|(mark, _)| *mark).min().unwrap_or(u64::MAX);
        if marks.keeps(oldest) { backlog.free_behind(at) } else { 0 }
    }

    fn next_mark<'a>(&self, stream: Stream, marks: &'a Marks) -> Option<&'a Mark> {
        let at = self.at[stream as usize]?;
        let is_next = |mark: &&Mark| mark.stream == stream && at < mark.end();
        marks.from(self.mark[stream as usize]).find(is_next)
    }
}

impl Hub {
    /// A log. It continues at the offsets up to which it had read the streams, or begins with their
    /// next bytes. Returns the offsets where it begins, and the number of bytes that it lost because they
    /// are not kept any more.
    pub(crate) fn follow(
        &mut self,
        now: Stamp,
        kept: Option<[u64; STREAMS]>,
    ) -> (LogId, [u64; STREAMS], u64) {
        let (mut begins, mut lost) = ([0; STREAMS], 0);
        let mut at = [None; STREAMS];
        for stream in Stream::ALL {
            let Some(ring) = &self.rings[stream as usize] else { continue };
            let kept = kept.map_or(ring.end(), |kept| kept[stream as usize].min(ring.end()));
            let begin = kept.max(ring.start());
            lost += begin - kept;
            begins[stream as usize] = begin;
            at[stream as usize] = Some(begin);
        }
        let mark = [self.marks.next(); STREAMS];
        for stream in Stream::ALL {
            // When they were read is not known any more: not later than now.
            if let (Some(at), Some(ring)) = (at[stream as usize], &self.rings[stream as usize])
                && at < ring.end()
            {
                self.marks.push(stream, at, ring.end() - at, now);
            }
        }
        self.followers.push(Follower { at, mark });
        (LogId(self.followers.len() - 1), begins, lost)
    }

    /// The stream whose bytes were read before those of the others that a log has not read yet.
    pub(crate) fn unread_first(&self, log: LogId) -> Option<Stream> {
        let follower = self.followers.get(log.0)?;
        let first =
            |stream: Stream| Some((follower.next_mark(stream, &self.marks)?.sequence, stream));
        Stream::ALL
            .into_iter()
            .filter_map(first)
            .min_by_key(|(sequence, _)| *sequence)
            .map(|(_, s)| s)
    }

    /// The next bytes of a stream that a log has not read, those of one read from the app, and when
    /// that was.
    pub(crate) fn unread(&self, log: LogId, stream: Stream) -> Option<(Stamp, Range<u64>)> {
        let follower = self.followers.get(log.0)?;
        let mark = follower.next_mark(stream, &self.marks)?;
        Some((mark.stamp, follower.at[stream as usize]?..mark.end()))
    }

    /// A log has read the next `len` bytes of a stream.
    pub(crate) fn read_on(&mut self, log: LogId, stream: Stream, len: usize) {
        let (Some(follower), Some(ring)) =
            (self.followers.get_mut(log.0), &self.rings[stream as usize])
        else {
            return;
        };
        let Some(at) = &mut follower.at[stream as usize] else { return };
        *at = (*at + len as u64).min(ring.end());
        let next = follower.next_mark(stream, &self.marks).map(|mark| mark.sequence);
        if let Some(next) = next {
            follower.mark[stream as usize] = next;
        }
        // For streams that are read to their ends, no mark so far is needed any more.
        for ((at, mark), ring) in follower.at.iter().zip(&mut follower.mark).zip(&self.rings) {
            if *at == ring.as_ref().map(Backlog::end) {
                *mark = self.marks.next();
            }
        }
    }

    /// Whether a log is so far behind on a stream that the app may soon have to wait for it.
    pub(crate) fn is_pressed(&self, log: LogId, stream: Stream) -> bool {
        let (Some(follower), Some(ring)) =
            (self.followers.get(log.0), &self.rings[stream as usize])
        else {
            return false;
        };
        follower.room(stream, ring, &self.marks) < ring.capacity() as u64 / 2
    }
}
