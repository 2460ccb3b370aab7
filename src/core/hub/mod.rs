//! The hub: the app's output, and the position of each client.
//!
//! One backlog ring per stream, one cursor per client and stream, one stall clock per connection,
//! one list of marks. The hub hands out ranges, never copies. Invariants: a client never delays the
//! app beyond its patience; every committed byte is handed to each client of the stream, or counted
//! as lost to it and reported by a gap. Pure: no I/O, no clock, no failure.

mod backlog;
mod credit;
mod cursor;
pub(crate) mod follower;
pub(crate) mod input;
mod marks;
pub mod memory;
mod returning;
pub(crate) mod sizes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

pub(crate) use self::follower::LogId;
pub(crate) use self::marks::Mark;

use self::backlog::Backlog;
use self::credit::Credit;
use self::cursor::{Cursor, Stall};
use self::follower::Follower;
use self::marks::Marks;
use self::memory::{KeptHub, Memory};
use self::returning::Returning;
use crate::types::limits;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::time::Now;

/// The app waits when less than one part in this many of the ring is free: reading a few bytes at a
/// time would cost more than it frees.
const ROOM_PART: u64 = 8;
/// A client makes progress if it accepts one part in this many of the ring within its patience.
const PROGRESS_PART: usize = 4;

/// A connection, for as long as the mux lives; numbers are not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The admitted user with whose other clients it shares that.
    user: Option<u32>,
    /// Bytes that it has still to accept before it is *proven*: before it is known to read.
    unproven: u64,
    stall: Stall,
    cursors: [Option<Cursor>; STREAMS],
    /// The mark in which its next byte may be found.
    mark: u64,
    /// Whether it is counted among the clients that will return.
    returns: bool,
}

impl Subscriber {
    /// Its next byte of a stream, if it reads that.
    fn at(&self, stream: Stream) -> Option<u64> {
        self.cursors[stream as usize].as_ref().map(|cursor| cursor.at)
    }

    /// It is too far behind on a stream. Until when the app waits for it; `None`: not at all, since
    /// its patience is spent or that which it shares with others.
    fn wait(
        &mut self,
        stream: Stream,
        now: Instant,
        credits: &mut BTreeMap<Option<u32>, Credit>,
    ) -> Option<Instant> {
        let mut until = self.stall.wait(now, self.patience)?;
        let unproven = self.patience / limits::UNPROVEN_PART;
        let shared = [
            (self.unproven > 0).then_some((None, unproven)),
            self.user.map(|user| (Some(user), self.patience)),
        ];
        let shared = shared.into_iter().flatten();
        for (who, all) in shared.clone() {
            let left = credits.get(&who).map_or(all, |credit| credit.left(all));
            until = now.checked_add(left).map_or(until, |end| until.min(end));
        }
        if until <= now {
            self.stall.pass_over();
            return None;
        }
        for (who, _) in shared {
            let credit = credits.entry(who).or_insert_with(|| Credit::new(now));
            credit.waiting[stream as usize] = true;
        }
        Some(until)
    }
}

/// How much may be read, by what each of those needs for whom the app waits.
struct Readable {
    /// With less the app waits.
    enough: u64,
    bytes: u64,
    /// Until when it waits.
    held: Option<Instant>,
}

impl Readable {
    fn new(capacity: usize) -> Self {
        let capacity = capacity as u64;
        Self { enough: (capacity / ROOM_PART).max(1), bytes: capacity, held: None }
    }

    /// One of them leaves so many bytes free: if that is too little, the app waits until this time,
    /// if it waits for that one. Whether it counts.
    fn leave(&mut self, free: u64, until: impl FnOnce() -> Option<Instant>) -> bool {
        if free >= self.enough {
            self.bytes = self.bytes.min(free);
            return true;
        }
        let until = until();
        self.held = self.held.max(until);
        until.is_some()
    }

    fn room(&self) -> Room {
        // At most the capacity, which was a usize.
        let free = || usize::try_from(self.bytes).unwrap_or(limits::READ);
        self.held.map_or_else(|| Room::Free(free()), Room::Held)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Hub {
    epoch: Epoch,
    returning: Returning,
    rings: [Option<Backlog>; STREAMS],
    clients: BTreeMap<ClientId, Subscriber>,
    followers: Vec<Follower>,
    /// Up to which offset the engine of a container has each stream that it reads.
    engine: [Option<u64>; STREAMS],
    /// What is spent of the shared patience: of each admitted user, and of all clients that are not
    /// proven.
    credits: BTreeMap<Option<u32>, Credit>,
    marks: Marks,
    next_id: u64,
}

impl Hub {
    /// A hub for the output streams among `streams`, each with a ring of `backlog` bytes. It
    /// continues with the content of `memory`, which is of these streams and sizes; if that has none,
    /// it begins with the epoch `fresh`.
    pub fn new(streams: &[Stream], backlog: usize, memory: Memory, fresh: Epoch) -> Self {
        let KeptHub { epoch, parts, returning } = memory.open(streams, backlog, fresh);
        Self {
            epoch,
            returning: Returning::new(returning),
            rings: parts.map(|part| part.map(Backlog::new)),
            clients: BTreeMap::new(),
            followers: Vec::new(),
            engine: [None; STREAMS],
            credits: BTreeMap::new(),
            marks: Marks::new(limits::MARKS),
            next_id: 0,
        }
    }

    /// The counting that its offsets belong to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    // ---- from the source ----

    /// How many bytes may be read from `stream` without taking bytes from one that the app waits for.
    /// The stall clock of a client that is too far behind starts here, and a client whose patience
    /// is spent is passed over, or the patience that it shares with others.
    pub fn make_room(&mut self, stream: Stream, now: Instant) -> Room {
        let Some(ring) = &mut self.rings[stream as usize] else { return Room::Free(limits::READ) };
        let mut readable = Readable::new(ring.capacity());
        self.credits.retain(|_, credit| {
            credit.count(now);
            credit.waiting[stream as usize] = false;
            credit.waiting.contains(&true) || !credit.is_whole()
        });
        let mut needed = ring.end();
        if let Some((from, until)) = self.returning.wait(stream, now) {
            readable.leave(ring.free_behind(from), || Some(until));
            needed = from;
        }
        for client in self.clients.values_mut().filter(|client| client.stall.delays_app()) {
            let Some(at) = client.at(stream) else { continue };
            let until = || client.wait(stream, now, &mut self.credits);
            if readable.leave(ring.free_behind(at), until) && client.returns {
                needed = needed.min(at);
            }
        }
        ring.need(needed);
        let for_ever = || Some(now + limits::AGES);
        if let Some(at) = self.engine[stream as usize] {
            readable.leave(ring.free_behind(at), for_ever);
        }
        for follower in &self.followers {
            readable.leave(follower.room(stream, ring, &self.marks), for_ever);
        }
        readable.room()
    }

    /// The clients whose next bytes would be overwritten by `len` more bytes of `stream`.
    pub(crate) fn endangered(&self, stream: Stream, len: usize) -> impl Iterator<Item = ClientId> {
        let limit = self.rings[stream as usize]
            .as_ref()
            .map_or(0, |ring| (ring.end() + len as u64).saturating_sub(ring.capacity() as u64));
        self.clients
            .iter()
            .filter(move |(_, c)| {
                c.cursors[stream as usize].is_some_and(|cursor| cursor.at < limit)
            })
            .map(|(id, _)| *id)
    }

    /// Announces that the next `len` bytes of `stream` will be read from a pipe whose content can
    /// be counted. Bytes that the next mux does not find there are in the ring, even if this mux
    /// did not reach [`Hub::commit`].
    pub(crate) fn announce(&mut self, stream: Stream, len: usize) {
        if let Some(ring) = &mut self.rings[stream as usize] {
            ring.announce(len);
        }
    }

    /// Counts the bytes that the previous mux read and did not commit: all announced bytes but the
    /// `unread` ones, if their number is known. Call it before anything else.
    pub(crate) fn recover(&mut self, stream: Stream, unread: Option<usize>) {
        if let Some(ring) = &mut self.rings[stream as usize] {
            ring.recover(unread);
        }
    }

    /// Where the next `len` bytes of `stream` are to be read to; see [`Hub::commit`].
    pub fn space(&mut self, stream: Stream, len: usize) -> [&mut [u8]; 2] {
        match &mut self.rings[stream as usize] {
            Some(ring) => ring.space(len),
            None => [&mut [], &mut []],
        }
    }

    /// Counts `len` bytes read into [`Hub::space`] and notes their mark. Clients at overwritten
    /// bytes are moved to the oldest byte kept, and will get a gap. Call it after each
    /// [`Hub::space`], with 0 if nothing was read, which makes no mark.
    pub fn commit(&mut self, stream: Stream, len: usize, now: Now) -> Option<Mark> {
        let ring = self.rings[stream as usize].as_mut()?;
        let end = ring.end();
        ring.commit(len);
        if len == 0 {
            return None;
        }
        let mark = self.marks.push(stream, end, len as u64, now.stamp);
        let start = ring.start();
        for client in self.clients.values_mut() {
            if let Some(cursor) = &mut client.cursors[stream as usize]
                && cursor.overrun(start)
            {
                client.stall.pass_over();
            }
        }
        Some(mark)
    }

    /// The engine of a container has a stream up to this offset. The app waits for it without an
    /// end. `None`: it does not read the stream, or no more.
    pub(crate) fn set_engine(&mut self, stream: Stream, at: Option<u64>) {
        let end = self.rings[stream as usize].as_ref().map_or(0, Backlog::end);
        self.engine[stream as usize] = at.map(|at| at.min(end));
    }

    // ---- to the clients ----

    /// Adds a connection that may delay the app for `patience` once it has caught up. Before it is
    /// proven, it shares a part of that time with all other unproven connections.
    pub(crate) fn join(&mut self, patience: Duration) -> ClientId {
        let id = ClientId(self.next_id);
        self.next_id += 1;
        let client = Subscriber {
            patience,
            user: None,
            unproven: limits::PROOF,
            stall: Stall::default(),
            cursors: [None; STREAMS],
            mark: 0,
            returns: false,
        };
        self.clients.insert(id, client);
        id
    }

    /// A connection is that of an admitted user: the app waits for all of these as for one.
    pub(crate) fn share_patience(&mut self, id: ClientId, user: u32) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.user = Some(user);
        }
    }

    /// A connection asks for another patience than it came with.
    pub(crate) fn set_patience(&mut self, id: ClientId, patience: Duration) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.patience = patience;
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
        let ring = self.rings[stream as usize].as_ref()?;
        let client = self.clients.get_mut(&id)?;
        let (start, end) = (ring.start(), ring.end());
        let wanted = match from {
            Position::Now => end,
            Position::Unseen => ring.seen().max(start),
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
        if self.clients.remove(&id).is_some_and(|client| client.returns) {
            self.returning.one_has_gone();
        }
    }

    /// The connections on a stream, in the order in which they came.
    pub(crate) fn clients(&self, stream: Stream) -> impl Iterator<Item = ClientId> {
        self.clients
            .iter()
            .filter(move |(_, c)| c.cursors[stream as usize].is_some())
            .map(|(id, _)| *id)
    }

    /// The connection's next part: at most `max` bytes of the stream that comes next in the order
    /// of reading; `None` if it has everything.
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
            let end = self.rings[stream as usize].as_ref()?.end();
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
        match &self.rings[stream as usize] {
            Some(ring) => ring.slices(range),
            None => [&[], &[]],
        }
    }

    /// Where the connection stands on a stream.
    pub(crate) fn at(&self, id: ClientId, stream: Stream) -> Option<u64> {
        self.clients.get(&id)?.at(stream)
    }

    /// The connection's socket has accepted the next `len` bytes of `stream`.
    pub(crate) fn accepted(&mut self, id: ClientId, stream: Stream, len: usize) {
        let (Some(ring), Some(client)) =
            (&mut self.rings[stream as usize], self.clients.get_mut(&id))
        else {
            return;
        };
        let Some(cursor) = &mut client.cursors[stream as usize] else { return };
        cursor.at = (cursor.at + len as u64).min(ring.end());
        ring.see(cursor.at);
        let enough = (ring.capacity() / PROGRESS_PART).max(1);
        client.unproven = client.unproven.saturating_sub(len as u64);
        client.stall.progress(len as u64, enough as u64);
        self.earn(id);
    }

    /// Whether the connection is known to read.
    pub(crate) fn is_proven(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.unproven == 0)
    }

    /// Where the connections are that the app would wait for on a stream.
    fn readers(&self, stream: Stream) -> impl Iterator<Item = u64> {
        let holds = self.clients.values().filter(|client| client.stall.delays_app());
        holds.filter_map(move |client| client.at(stream))
    }

    /// Whether there are so many connections on a stream that the app would wait for.
    pub(crate) fn has_readers(&self, stream: Stream, least: usize) -> bool {
        self.readers(stream).take(least).count() == least
    }

    /// The lowest offset at which such a connection is: the end if there is none.
    pub(crate) fn slowest(&self, stream: Stream) -> u64 {
        let end = self.rings[stream as usize].as_ref().map_or(0, Backlog::end);
        self.readers(stream).min().unwrap_or(end)
    }

    /// Whether a gap of a stream waits to be reported to the connection.
    pub(crate) fn missed(&self, id: ClientId, stream: Stream) -> bool {
        let cursor = self.clients.get(&id).and_then(|client| client.cursors[stream as usize]);
        cursor.is_some_and(|cursor| cursor.gap.is_some())
    }

    /// The connection is shown the rest of a stream in another way: nothing of that is lost to it.
    /// Returns how many bytes that is.
    pub(crate) fn skip(&mut self, id: ClientId, stream: Stream) -> u64 {
        let (Some(ring), Some(client)) = (&self.rings[stream as usize], self.clients.get_mut(&id))
        else {
            return 0;
        };
        let mut skipped = 0;
        if let Some(cursor) = &mut client.cursors[stream as usize] {
            let gap = cursor.gap.take().map_or(0, |from| cursor.at - from);
            cursor.lost = cursor.lost.saturating_sub(gap);
            skipped = gap + ring.end() - cursor.at;
            cursor.at = ring.end();
        }
        self.earn(id);
        skipped
    }

    /// Moves the connection to another offset of a stream, up to which it has seen the stream in
    /// another way.
    pub(crate) fn go_back(&mut self, id: ClientId, stream: Stream, to: u64) {
        let (Some(ring), Some(client)) = (&self.rings[stream as usize], self.clients.get_mut(&id))
        else {
            return;
        };
        if let Some(cursor) = &mut client.cursors[stream as usize]
            && to < cursor.at
        {
            cursor.at = to;
            cursor.overrun(ring.start());
        }
        self.keep_for(id);
    }

    /// The connection gets nothing more: the rest counts as lost to it, and is reported as a gap.
    pub(crate) fn cut(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        for (cursor, ring) in client.cursors.iter_mut().zip(&self.rings) {
            if let (Some(cursor), Some(ring)) = (cursor, ring) {
                cursor.overrun(ring.end());
            }
        }
        client.stall.pass_over();
    }

    /// The mux ends and waits until this connection has everything. Returns the end of this wait,
    /// or `None` when the patience is spent. No app waits, so clients need not be proven.
    pub(crate) fn wait(&mut self, id: ClientId, now: Instant) -> Option<Instant> {
        let client = self.clients.get_mut(&id)?;
        client.stall.wait(now, client.patience.max(limits::PATIENCE))
    }

    /// Whether the connection has been given everything.
    pub(crate) fn is_caught_up(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_none_or(|client| {
            client.cursors.iter().zip(&self.rings).all(|(cursor, ring)| match (cursor, ring) {
                (Some(cursor), Some(ring)) => cursor.at == ring.end() && cursor.gap.is_none(),
                _ => true,
            })
        })
    }

    /// Offset of the oldest byte of a stream that is kept.
    pub(crate) fn start(&self, stream: Stream) -> Option<u64> {
        self.rings[stream as usize].as_ref().map(Backlog::start)
    }

    /// How many bytes of a stream are kept at the most.
    pub(crate) fn capacity(&self, stream: Stream) -> u64 {
        self.rings[stream as usize].as_ref().map_or(0, |ring| ring.capacity() as u64)
    }

    /// Bytes of a stream so far, and how many of those kept no client has been given.
    pub(crate) fn extent(&self, stream: Stream) -> Option<(u64, u64)> {
        let ring = self.rings[stream as usize].as_ref()?;
        let end = ring.end();
        Some((end, end - ring.seen().max(ring.start())))
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
mod kill_model;
#[cfg(test)]
mod restart_model;
#[cfg(test)]
mod tests;
