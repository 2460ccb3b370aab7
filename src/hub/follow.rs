//! Where a log stands: it reads all streams, knows when each byte was read, and the app waits for
//! it, for a log that loses lines while its target works is none.
//!
//! Pure. Invariant: no mark and no byte that a follower has still to read is overwritten.

use std::ops::Range;

use super::backlog::Backlog;
use super::marks::{Mark, Marks};
use super::{Hub, STREAMS};
use crate::stream::Stream;
use crate::time::Stamp;

/// A log, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub(super) usize);

/// The place of a log.
#[derive(Debug)]
pub(super) struct Follower {
    /// The next byte to read of each stream that the app has.
    at: [Option<u64>; STREAMS],
    /// The first mark in which it may be.
    mark: [u64; STREAMS],
}

impl Follower {
    /// Bytes of a stream that may be read from the app without taking any from this log; 0 when
    /// there is no more room for marks.
    pub fn room(&self, stream: Stream, backlog: &Backlog, marks: &Marks) -> u64 {
        let Some(at) = self.at[stream as usize] else { return u64::MAX };
        let oldest = self.mark.iter().zip(&self.at).filter(|(_, at)| at.is_some());
        let oldest = oldest.map(|(mark, _)| *mark).min().unwrap_or(u64::MAX);
        if marks.keeps(oldest) {
            (backlog.capacity() as u64).saturating_sub(backlog.end() - at)
        } else {
            0
        }
    }

    fn next_mark<'a>(&self, stream: Stream, marks: &'a Marks) -> Option<&'a Mark> {
        let at = self.at[stream as usize]?;
        let is_next = |mark: &&Mark| mark.stream == stream && at < mark.end();
        marks.from(self.mark[stream as usize]).find(is_next)
    }
}

impl Hub {
    /// A log that begins with the next byte of each stream.
    pub fn follow(&mut self) -> LogId {
        let at = self.lanes.each_ref().map(|lane| lane.as_ref().map(Backlog::end));
        self.followers.push(Follower { at, mark: [self.marks.next(); STREAMS] });
        LogId(self.followers.len() - 1)
    }

    /// The stream whose bytes were read before those of the others that a log has not read yet.
    #[must_use]
    pub fn unread_first(&self, log: LogId) -> Option<Stream> {
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
    #[must_use]
    pub fn unread(&self, log: LogId, stream: Stream) -> Option<(Stamp, Range<u64>)> {
        let follower = self.followers.get(log.0)?;
        let mark = follower.next_mark(stream, &self.marks)?;
        Some((mark.stamp, follower.at[stream as usize]?..mark.end()))
    }

    /// A log has read the next `len` bytes of a stream.
    pub fn read_on(&mut self, log: LogId, stream: Stream, len: usize) {
        let (Some(follower), Some(lane)) =
            (self.followers.get_mut(log.0), &self.lanes[stream as usize])
        else {
            return;
        };
        let Some(at) = &mut follower.at[stream as usize] else { return };
        *at = (*at + len as u64).min(lane.end());
        let next = follower.next_mark(stream, &self.marks).map(|mark| mark.sequence);
        if let Some(next) = next {
            follower.mark[stream as usize] = next;
        }
        // Of what is read to its end no mark so far is needed any more.
        for ((at, mark), lane) in follower.at.iter().zip(&mut follower.mark).zip(&self.lanes) {
            if *at == lane.as_ref().map(Backlog::end) {
                *mark = self.marks.next();
            }
        }
    }

    /// Whether a log is so far behind on a stream that the app may soon have to wait for it.
    #[must_use]
    pub fn is_pressed(&self, log: LogId, stream: Stream) -> bool {
        let (Some(follower), Some(lane)) =
            (self.followers.get(log.0), &self.lanes[stream as usize])
        else {
            return false;
        };
        follower.room(stream, lane, &self.marks) < lane.capacity() as u64 / 2
    }
}
