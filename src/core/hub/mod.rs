//! The hub: what the app wrote, and how far each client has got.
//!
//! One backlog ring per stream, one cursor per client and stream, one stall clock per connection,
//! one list of marks. The hub hands out ranges, never copies. Invariants: a client never delays the
//! app beyond its patience; every byte committed is handed to each client that is on the stream, or
//! counted as lost to it and reported by a gap. Pure: no I/O, no clock, no failure.

mod backlog;
mod credit;
mod cursor;
mod follow;
pub(crate) mod input;
mod marks;
pub mod memory;
pub(crate) mod size;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use super::hub::follow::LogId;
pub(crate) use super::hub::marks::Mark;

use super::hub::backlog::Backlog;
use super::hub::credit::Credit;
use super::hub::cursor::{Cursor, Stall};
use super::hub::follow::Follower;
use super::hub::marks::Marks;
use super::hub::memory::{LogCheckpoint, Memory};
use crate::types::limits;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::time::Now;

/// A connection, for as long as the mux lives; numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u64);

/// How much may be read from a source now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// This many bytes, at least one.
    Free(usize),
    /// Nothing before some client makes progress, or until this time.
    Held(Instant),
}

/// The next part of a client's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// These bytes of the stream are lost to it.
    Gap(Stream, Range<u64>),
    /// These bytes of the stream; [`Hub::bytes`] has them.
    Bytes(Stream, Range<u64>),
}

/// Number of streams, for arrays indexed by `Stream as usize`.
const STREAMS: usize = Stream::ALL.len();

/// One connection.
#[derive(Debug)]
struct Subscriber {
    patience: Duration,
    /// Bytes that it has still to accept before it is *proven*: before it is known to read.
    unproven: u64,
    stall: Stall,
    cursors: [Option<Cursor>; STREAMS],
    /// The mark in which its next byte may be found.
    mark: u64,
    /// Whether it is counted among the clients that will return.
    returns: bool,
}

/// Clients of the previous mux that may return.
#[derive(Clone, Copy, Debug)]
struct Returning {
    /// How many are still to come.
    left: u64,
    /// The first byte of each stream that none of them has got.
    from: [u64; STREAMS],
    /// When they are waited for no more.
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Hub {
    epoch: Epoch,
    /// Clients of the previous mux that may return.
    returning: Option<Returning>,
    /// How many will return, should this mux be killed: kept for the next one.
    count: Option<&'static AtomicU64>,
    lanes: [Option<Backlog>; STREAMS],
    clients: BTreeMap<ClientId, Subscriber>,
    followers: Vec<Follower>,
    log_places: Vec<LogCheckpoint>,
    /// For clients that are not proven.
    credit: Credit,
    marks: Marks,
    next_id: u64,
}

impl Hub {
    /// A hub for the output streams among `streams`, each with a ring of `backlog` bytes. It goes on
    /// with what `memory` holds, if that was for the same streams and sizes; else it begins with the epoch
    /// `fresh`.
    pub fn new(streams: &[Stream], backlog: usize, memory: Memory, fresh: Epoch) -> Self {
        let (epoch, parts, log_places, count) = memory.open(streams, backlog, fresh);
        Self {
            epoch,
            returning: None,
            count,
            lanes: parts.map(|part| part.map(Backlog::new)),
            clients: BTreeMap::new(),
            followers: Vec::new(),
            log_places,
            credit: Credit::default(),
            marks: Marks::new(limits::MARKS),
            next_id: 0,
        }
    }

    /// The counting that its offsets belong to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The clients of the previous mux may return until this time. Until all of them have, the first byte
    /// that none of them has got is kept as if a client stood there.
    pub(crate) fn await_clients(&mut self, until: Instant) {
        let left = self.count.map_or(0, |count| count.swap(0, Ordering::AcqRel));
        let from = self
            .lanes
            .each_ref()
            .map(|lane| lane.as_ref().map_or(0, |lane| lane.seen().max(lane.start())));
        self.returning = (left > 0).then_some(Returning { left, from, until });
    }

    /// This client will return, should this mux be killed, or be followed by another.
    pub(crate) fn will_return(&mut self, id: ClientId) {
        if let (Some(client), Some(count)) = (self.clients.get_mut(&id), self.count) {
            client.returns = true;
            count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The mux ends: a client that goes now goes because of that, and returns to the next mux.
    pub(crate) fn end(&mut self) {
        for client in self.clients.values_mut() {
            client.returns = false;
        }
    }

    // ---- from the source ----

    /// How much may be read from `stream` without taking bytes from a client that the app waits for.
    /// The stall clock of a client that is too far behind starts here. Skips clients whose patience is
    /// spent, and unproven clients once their shared credit is spent.
    pub fn room(&mut self, stream: Stream, now: Instant) -> Room {
        let Some(lane) = &self.lanes[stream as usize] else { return Room::Free(limits::READ) };
        let capacity = lane.capacity();
        let enough = (capacity / limits::ROOM_PART).max(1) as u64;
        let mut room = capacity as u64;
        let mut held: Option<Instant> = None;
        self.credit.count(now);
        let mut waits_for_unproven = false;
        if let Some(Returning { from, until, .. }) = self.returning.filter(|r| now < r.until)
            && from[stream as usize] >= lane.start()
        {
            let free = capacity as u64 - (lane.end() - from[stream as usize]);
            if free >= enough {
                room = free;
            } else {
                held = Some(until);
            }
        }
        for client in self.clients.values_mut() {
            let Some(cursor) = client.cursors[stream as usize] else { continue };
            if !client.stall.holds() {
                continue;
            }
            let free = (capacity as u64).saturating_sub(lane.end() - cursor.at);
            if free >= enough {
                room = room.min(free);
            } else if let Some(mut until) = client.stall.wait(now, client.patience) {
                if client.unproven > 0 {
                    let left = self.credit.left(client.patience);
                    if left.is_zero() {
                        client.stall.pass_over();
                        continue;
                    }
                    waits_for_unproven = true;
                    until = now.checked_add(left).map_or(until, |end| until.min(end));
                }
                held = held.max(Some(until));
            }
        }
        self.credit.waiting[stream as usize] = waits_for_unproven;
        for follower in &self.followers {
            let free = follower.room(stream, lane, &self.marks);
            if free < enough {
                held = Some(now + limits::AGES);
            }
            room = room.min(free);
        }
        // At most the capacity, which is a usize.
        held.map_or(Room::Free(usize::try_from(room).unwrap_or(capacity)), Room::Held)
    }

    /// The clients whose next bytes would be overwritten by `len` more bytes of `stream`.
    pub(crate) fn endangered(&self, stream: Stream, len: usize) -> impl Iterator<Item = ClientId> {
        let limit = self.lanes[stream as usize]
            .as_ref()
            .map_or(0, |lane| (lane.end() + len as u64).saturating_sub(lane.capacity() as u64));
        self.clients
            .iter()
            .filter(move |(_, c)| {
                c.cursors[stream as usize].is_some_and(|cursor| cursor.at < limit)
            })
            .map(|(id, _)| *id)
    }

    /// The next `len` bytes of `stream` are where they can be counted, and will be read from there:
    /// what the next mux does not find there is in the ring, even if this one has not come to
    /// [`Hub::commit`].
    pub(crate) fn announce(&mut self, stream: Stream, len: usize) {
        if let Some(lane) = &mut self.lanes[stream as usize] {
            lane.announce(len);
        }
    }

    /// Counts what the mux before this one has read and not committed: all that it has announced but
    /// `unread` bytes. To be called before anything else.
    pub(crate) fn recover(&mut self, stream: Stream, unread: usize) {
        if let Some(lane) = &mut self.lanes[stream as usize] {
            lane.recover(unread);
        }
    }

    /// Where the next `len` bytes of `stream` are to be read to; see [`Hub::commit`].
    pub fn space(&mut self, stream: Stream, len: usize) -> [&mut [u8]; 2] {
        match &mut self.lanes[stream as usize] {
            Some(lane) => lane.space(len),
            None => [&mut [], &mut []],
        }
    }

    /// Counts `len` bytes read into [`Hub::space`] and notes their mark. Clients that stood on
    /// what was overwritten are moved to the oldest byte kept, and will get a gap. To be
    /// called after each [`Hub::space`], with 0 when nothing was read, which is no mark.
    pub fn commit(&mut self, stream: Stream, len: usize, now: Now) -> Option<Mark> {
        let lane = self.lanes[stream as usize].as_mut()?;
        let end = lane.end();
        lane.commit(len);
        if len == 0 {
            return None;
        }
        let mark = self.marks.push(stream, end, len as u64, now.stamp);
        let start = lane.start();
        for client in self.clients.values_mut() {
            if let Some(cursor) = &mut client.cursors[stream as usize]
                && cursor.overrun(start)
            {
                client.stall.pass_over();
            }
        }
        Some(mark)
    }

    // ---- to the clients ----

    /// A new connection that may hold the app back for `patience` once it has earned that; before it
    /// is proven, for a part of that and only together with all others that are not.
    pub(crate) fn join(&mut self, patience: Duration) -> ClientId {
        let id = ClientId(self.next_id);
        self.next_id += 1;
        let client = Subscriber {
            patience,
            unproven: limits::PROOF,
            stall: Stall::default(),
            cursors: [None; STREAMS],
            mark: 0,
            returns: false,
        };
        self.clients.insert(id, client);
        id
    }

    /// A connection asks for another patience than it came with.
    pub(crate) fn set_patience(&mut self, id: ClientId, patience: Duration) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.patience = patience;
        }
    }

    /// A client of the previous mux has returned. If it is in time it has its patience at once, though it
    /// may be behind: it was not slow, there was no mux to read from. And it has proven itself there.
    pub(crate) fn welcome_back(&mut self, id: ClientId, now: Instant) {
        let Some(returning) = self.returning.as_mut().filter(|r| now < r.until) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.unproven = 0;
        client.stall.caught_up();
        returning.left -= 1;
        if returning.left == 0 {
            self.returning = None;
        }
    }

    /// Puts a connection on an output stream; returns the offset from which it begins, or `None`
    /// when the app has no such stream. A position that is not kept any more begins with a gap;
    /// one beyond the end begins at the end.
    pub(crate) fn subscribe(
        &mut self,
        id: ClientId,
        stream: Stream,
        from: Position,
    ) -> Option<u64> {
        let lane = self.lanes[stream as usize].as_ref()?;
        let client = self.clients.get_mut(&id)?;
        let (start, end) = (lane.start(), lane.end());
        let wanted = match from {
            Position::Now => end,
            Position::Unseen => lane.seen().max(start),
            Position::Start => start,
            Position::Offset(offset) => offset.min(end),
        };
        let cursor = Cursor::new(wanted, start);
        client.cursors[stream as usize] = Some(cursor);
        self.earn(id);
        Some(cursor.at)
    }

    /// The connection is gone.
    pub(crate) fn leave(&mut self, id: ClientId) {
        let gone = self.clients.remove(&id);
        if let (true, Some(count)) = (gone.is_some_and(|client| client.returns), self.count) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The connections on a stream, in the order in which they came.
    pub(crate) fn clients(&self, stream: Stream) -> impl Iterator<Item = ClientId> {
        self.clients
            .iter()
            .filter(move |(_, c)| c.cursors[stream as usize].is_some())
            .map(|(id, _)| *id)
    }

    /// The connection's next part: at most `max` bytes of the stream whose turn it is by the order of
    /// reading; `None` when it has everything.
    pub(crate) fn next(&mut self, id: ClientId, max: usize) -> Option<Next> {
        let client = self.clients.get_mut(&id)?;
        for stream in Stream::ALL {
            if let Some(cursor) = &mut client.cursors[stream as usize]
                && let Some(from) = cursor.gap.take()
            {
                return Some(Next::Gap(stream, from..cursor.at));
            }
        }
        let owed = |stream: Stream| -> Option<Range<u64>> {
            let cursor = client.cursors[stream as usize].as_ref()?;
            let end = self.lanes[stream as usize].as_ref()?.end();
            (cursor.at < end).then_some(cursor.at..end)
        };
        let mut streams = Stream::ALL.into_iter().filter(|s| owed(*s).is_some());
        let first = streams.next()?;
        let (stream, range) = if streams.next().is_none() {
            // Without a second stream there is no order to keep, and the marks are not needed.
            (first, owed(first)?)
        } else {
            in_order(&self.marks, &mut client.mark, max, owed).unwrap_or((first, owed(first)?))
        };
        Some(Next::Bytes(
            stream,
            range.start..range.end.min(range.start.saturating_add(max as u64)),
        ))
    }

    /// The bytes of a range that [`Hub::next`] named, in one piece or two.
    pub(crate) fn bytes(&self, stream: Stream, range: Range<u64>) -> [&[u8]; 2] {
        match &self.lanes[stream as usize] {
            Some(lane) => lane.slices(range),
            None => [&[], &[]],
        }
    }

    /// Where the connection stands on a stream.
    pub(crate) fn at(&self, id: ClientId, stream: Stream) -> Option<u64> {
        Some(self.clients.get(&id)?.cursors[stream as usize]?.at)
    }

    /// The connection's socket has accepted the next `len` bytes of `stream`.
    pub(crate) fn accepted(&mut self, id: ClientId, stream: Stream, len: usize) {
        let (Some(lane), Some(client)) =
            (&mut self.lanes[stream as usize], self.clients.get_mut(&id))
        else {
            return;
        };
        let Some(cursor) = &mut client.cursors[stream as usize] else { return };
        cursor.at = (cursor.at + len as u64).min(lane.end());
        lane.see(cursor.at);
        let enough = (lane.capacity() / limits::PROGRESS_PART).max(1);
        client.unproven = client.unproven.saturating_sub(len as u64);
        client.stall.progress(len as u64, enough as u64);
        self.earn(id);
    }

    /// Whether a gap of a stream waits to be reported to the connection.
    pub(crate) fn missed(&self, id: ClientId, stream: Stream) -> bool {
        let cursor = self.clients.get(&id).and_then(|client| client.cursors[stream as usize]);
        cursor.is_some_and(|cursor| cursor.gap.is_some())
    }

    /// The connection is shown the rest of a stream in another way: nothing of that is lost to it.
    pub(crate) fn skip(&mut self, id: ClientId, stream: Stream) {
        let (Some(lane), Some(client)) = (&self.lanes[stream as usize], self.clients.get_mut(&id))
        else {
            return;
        };
        if let Some(cursor) = &mut client.cursors[stream as usize] {
            if let Some(from) = cursor.gap.take() {
                cursor.lost = cursor.lost.saturating_sub(cursor.at - from);
            }
            cursor.at = lane.end();
        }
        self.earn(id);
    }

    /// The connection goes on at an earlier offset of a stream, up to which it was shown the stream in
    /// another way.
    pub(crate) fn go_back(&mut self, id: ClientId, stream: Stream, to: u64) {
        let (Some(lane), Some(client)) = (&self.lanes[stream as usize], self.clients.get_mut(&id))
        else {
            return;
        };
        if let Some(cursor) = &mut client.cursors[stream as usize]
            && to < cursor.at
        {
            cursor.at = to;
            cursor.overrun(lane.start());
        }
    }

    /// The connection gets nothing more: the rest counts as lost to it, and is reported as a gap.
    pub(crate) fn cut(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        for (cursor, lane) in client.cursors.iter_mut().zip(&self.lanes) {
            if let (Some(cursor), Some(lane)) = (cursor, lane) {
                cursor.overrun(lane.end());
            }
        }
        client.stall.pass_over();
    }

    /// The mux waits until this connection has everything, because it ends. Returns until when it may
    /// wait, or `None` when the patience has ended. No app waits, so clients need not be proven.
    pub(crate) fn wait(&mut self, id: ClientId, now: Instant) -> Option<Instant> {
        let client = self.clients.get_mut(&id)?;
        client.stall.wait(now, client.patience.max(limits::PATIENCE))
    }

    /// Whether the connection has been given everything.
    pub(crate) fn is_caught_up(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_none_or(|client| {
            client.cursors.iter().zip(&self.lanes).all(|(cursor, lane)| match (cursor, lane) {
                (Some(cursor), Some(lane)) => cursor.at == lane.end() && cursor.gap.is_none(),
                _ => true,
            })
        })
    }

    /// Offset of the oldest byte of a stream that is kept.
    pub(crate) fn start(&self, stream: Stream) -> Option<u64> {
        self.lanes[stream as usize].as_ref().map(Backlog::start)
    }

    /// How many bytes of a stream are kept at the most.
    pub(crate) fn capacity(&self, stream: Stream) -> u64 {
        self.lanes[stream as usize].as_ref().map_or(0, |lane| lane.capacity() as u64)
    }

    /// Bytes of a stream so far, and how many of those kept no client has been given.
    pub(crate) fn extent(&self, stream: Stream) -> Option<(u64, u64)> {
        let lane = self.lanes[stream as usize].as_ref()?;
        let end = lane.end();
        Some((end, end - lane.seen().max(lane.start())))
    }

    /// Where the connection stands on a stream: its position, how far behind the end that is, and
    /// the bytes that it lost.
    pub(crate) fn place(&self, id: ClientId, stream: Stream) -> Option<(u64, u64, u64)> {
        let cursor = self.clients.get(&id)?.cursors[stream as usize]?;
        let (end, _) = self.extent(stream)?;
        Some((cursor.at, end - cursor.at, cursor.lost))
    }

    /// Bytes that the connection missed, over all of its streams.
    pub(crate) fn lost(&self, id: ClientId) -> u64 {
        let cursors = self.clients.get(&id).map_or(&[] as &[_], |c| &c.cursors);
        cursors.iter().flatten().map(|cursor| cursor.lost).sum()
    }

    /// The marks from number `sequence` on, as far as they are kept, for readers that follow all streams
    /// in the order of reading.
    pub fn marks(&self, sequence: u64) -> impl Iterator<Item = &Mark> {
        self.marks.from(sequence)
    }

    /// Gives patience to a connection that has everything.
    fn earn(&mut self, id: ClientId) {
        if self.is_caught_up(id)
            && let Some(client) = self.clients.get_mut(&id)
        {
            client.stall.caught_up();
            client.mark = self.marks.next();
        }
    }
}

/// The next bytes by the order of the marks: those of the first mark that the client has not
/// wholly got, and of the marks of the same stream that follow without another one between.
/// Bytes older than the oldest mark come with the first mark of their stream.
fn in_order(
    marks: &Marks,
    from: &mut u64,
    max: usize,
    owed: impl Fn(Stream) -> Option<Range<u64>>,
) -> Option<(Stream, Range<u64>)> {
    let mut found: Option<(Stream, Range<u64>)> = None;
    for mark in marks.from(*from) {
        let Some(rest) = owed(mark.stream).filter(|rest| rest.start < mark.end()) else {
            if found.is_none() {
                *from = mark.sequence + 1;
            }
            continue;
        };
        match &mut found {
            None => found = Some((mark.stream, rest.start..mark.end())),
            Some((stream, range))
                if *stream == mark.stream && range.end - range.start < max as u64 =>
            {
                range.end = mark.end();
            }
            Some(_) => break,
        }
    }
    found
}

#[cfg(test)]
mod tests;
