//! The queue of the app's input, in memory that may outlive its mux.
//!
//! Every byte of it has an offset. Beside the bytes the memory has, for each client that names its
//! input, how many of its bytes are in the queue. A mux acknowledges those: the next one has them,
//! and the client sends it the rest.
//!
//! Invariant: whatever instruction was the last one of a process that is killed, the next one finds
//! each byte that was appended, and the position of its client behind it. What was on its way to the
//! app at that time is counted in a stage, or is unknown (see [`InputQueue::announce`]).
//!
//! Pure: where the memory comes from, and what keeps it, is not known here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use crate::core::wire::{InputId, InputPosition};
use crate::types::limits;
use crate::types::record::{Record, Word, clear};
use crate::types::stream::Epoch;

/// Clients whose position in their input is kept for the next mux.
const INPUT_RECORDS: usize = 256;
/// An offset that no input reaches: sums of those below it do not overflow.
const END_OF_OFFSETS: u64 = 1 << 62;

/// Bytes of the ring. One client may append all that waits of its input while the queue is not
/// full.
pub(crate) const RING: usize = 2 * limits::INPUT;
/// Words in front of the ring: whole pages, so that it begins on one.
pub(crate) const WORDS: usize = (HEAD + INPUT_RECORDS * RECORD).next_multiple_of(PAGE);
/// Words of a page.
const PAGE: usize = 4096 / size_of::<AtomicU64>();

/// The word with the offset behind the newest byte that is on its way to the app.
const ANNOUNCED: usize = 0;
/// That behind the newest byte that was known to be with the app when none was on its way.
const DELIVERED: usize = 1;
/// The id of the client that is in a line, or [`UNUSED`]: a hint for whose turn it is.
const TURN: usize = 2;
/// The first word of [`LastAppend`].
const LAST: usize = 3;
/// The first word of the clients.
const HEAD: usize = LAST + Record::words(LastAppend::LEN);
/// Words of a client.
const RECORD: usize = Record::words(KeptClient::LEN);
/// The id of a record that was never used: the last one is in front of it.
const UNUSED: InputId = InputId(Epoch(0));

/// Memory that may outlive this process, all zero when it is new.
#[derive(Debug)]
pub(crate) struct InputMemory {
    /// [`WORDS`] of them.
    pub(crate) words: &'static [AtomicU64],
    /// [`RING`] bytes.
    pub(crate) ring: &'static mut [u8],
}

impl InputMemory {
    /// Where in the ring so many bytes are.
    fn split(&self, from: u64, len: usize) -> [Range<usize>; 2] {
        let capacity = self.ring.len();
        let from = usize::try_from(from % capacity as u64).unwrap_or(0);
        let first = len.min(capacity - from);
        [from..from + first, 0..len - first]
    }
}

/// The end of the queue, and who made it: the bytes and the position of their client count at the
/// same moment.
#[derive(Clone, Copy, Debug)]
struct LastAppend {
    /// Offset behind the newest byte.
    end: u64,
    /// Whose they were, and where that client is behind them; [`UNUSED`]: of none.
    id: InputId,
    position: u64,
}

impl LastAppend {
    const LEN: usize = 3;
}

/// What is kept of a client.
#[derive(Clone, Copy, Debug)]
struct KeptClient {
    id: InputId,
    uid: u64,
    /// How many of its bytes are in the queue.
    position: u64,
    /// Offset in the queue behind its last byte.
    last: u64,
    /// How many bytes may not have arrived.
    unknown: u64,
}

impl KeptClient {
    const LEN: usize = 5;
}

/// The number of a client's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputRecord(usize);

/// See the module.
#[derive(Debug)]
pub(crate) struct InputQueue {
    memory: InputMemory,
    end: u64,
    announced: u64,
    delivered: u64,
    /// The records that were ever used, by their ids.
    records: BTreeMap<InputId, InputRecord>,
    used: usize,
}

impl InputQueue {
    /// The queue of an earlier mux, or an empty one if this memory has none. `staged` is how many
    /// bytes are in the stage, if there is one.
    pub(crate) fn open(memory: InputMemory, staged: Option<usize>) -> Self {
        let records = BTreeMap::new();
        let mut queue = Self { memory, end: 0, announced: 0, delivered: 0, records, used: 0 };
        if !queue.is_consistent() {
            clear(queue.memory.words);
        }
        let last = queue.last();
        queue.end = last.end;
        (queue.announced, queue.delivered) =
            (queue.word(ANNOUNCED).get(), queue.word(DELIVERED).get());
        queue.find_records();
        if let Some(record) = queue.records.get(&last.id) {
            queue.note_append(*record, last);
        }
        match staged {
            Some(len) => queue.count_staged(len as u64),
            None => queue.report_unknown(),
        }
        queue
    }

    // ---- its words ----

    fn word(&self, at: usize) -> Word {
        Word::new(&self.memory.words[at])
    }

    fn last_record(&self) -> Record {
        Record::new(&self.memory.words[LAST..HEAD])
    }

    fn last(&self) -> LastAppend {
        let [end, id, position] = self.last_record().values();
        LastAppend { end, id: InputId(Epoch(id)), position }
    }

    fn set_last(&self, LastAppend { end, id, position }: LastAppend) {
        self.last_record().store([end, id.0.0, position]);
    }

    fn record(&self, InputRecord(number): InputRecord) -> Record {
        Record::new(&self.memory.words[HEAD + number * RECORD..][..RECORD])
    }

    fn client(&self, record: InputRecord) -> KeptClient {
        let [id, uid, position, last, unknown] = self.record(record).values();
        KeptClient { id: InputId(Epoch(id)), uid, position, last, unknown }
    }

    fn set_client(&self, record: InputRecord, client: KeptClient) {
        let KeptClient { id, uid, position, last, unknown } = client;
        self.record(record).store([id.0.0, uid, position, last, unknown]);
    }

    // ---- what an earlier mux has left ----

    fn is_consistent(&self) -> bool {
        let [delivered, announced] = [self.word(DELIVERED), self.word(ANNOUNCED)].map(Word::get);
        let end = self.last().end;
        end < END_OF_OFFSETS
            && [delivered, announced, end].is_sorted()
            && end - announced <= self.memory.ring.len() as u64
    }

    /// How many records it has room for.
    fn room(&self) -> usize {
        (self.memory.words.len() - HEAD) / RECORD
    }

    fn find_records(&mut self) {
        for record in (0..self.room()).map(InputRecord) {
            let client = self.client(record);
            if client.id == UNUSED {
                break;
            }
            self.used += 1;
            if client.last <= self.end {
                self.records.insert(client.id, record);
            }
        }
    }

    /// The bytes count already, and with them the position of their client.
    fn note_append(&self, record: InputRecord, LastAppend { end, position, .. }: LastAppend) {
        let client = self.client(record);
        if client.last < end {
            self.set_client(record, KeptClient { position, last: end, ..client });
        }
    }

    /// The earlier mux had moved into the stage what was on its way.
    fn count_staged(&mut self, len: u64) {
        if self.delivered < self.announced {
            self.delivered = self.delivered.max(self.announced.saturating_sub(len));
        } else {
            // Nothing had left it: these are the next bytes.
            self.announced += len;
            if self.announced > self.end {
                // They are of a queue that is not this one.
                self.end = self.announced;
                self.set_last(LastAppend { end: self.end, id: UNUSED, position: 0 });
            }
            self.word(ANNOUNCED).set(self.announced);
        }
        self.settle();
    }

    /// The earlier mux was writing what was on its way: the app may have it or not. It is not sent
    /// again, and each client that may have typed it is told.
    fn report_unknown(&mut self) {
        let more = self.announced - self.delivered;
        for record in self.records.values().filter(|_| more > 0) {
            let client = self.client(*record);
            if client.last > self.delivered {
                let unknown = client.unknown.saturating_add(more);
                self.set_client(*record, KeptClient { unknown, ..client });
            }
        }
        self.delivered = self.announced;
        self.settle();
    }

    // ---- the clients ----

    /// The record of an input that a user's client has named before.
    pub(crate) fn find(&self, id: InputId, uid: u32) -> Option<InputRecord> {
        let record = self.records.get(&id).copied();
        record.filter(|record| self.client(*record).uid == u64::from(uid))
    }

    /// A record for an input that is named for the first time. It may take the place of one that
    /// `is_idle`: of a user that has many, of that user's oldest; else of the oldest of all.
    pub(crate) fn add(
        &mut self,
        id: InputId,
        uid: u32,
        is_idle: impl Fn(InputRecord) -> bool,
    ) -> Option<InputRecord> {
        if id == UNUSED || self.records.contains_key(&id) {
            // Nobody draws such a number by chance.
            return None;
        }
        let uid = u64::from(uid);
        let is_own = |record: &InputRecord| self.client(*record).uid == uid;
        let has_many = self.records.values().filter(|r| is_own(r)).count() >= limits::USER_RECORDS;
        let record = if self.used < self.room() && !has_many {
            self.used += 1;
            InputRecord(self.used - 1)
        } else {
            let old = self.records.iter().map(|(id, record)| (*id, *record));
            let old = old.filter(|(_, r)| is_idle(*r) && (!has_many || is_own(r)));
            let (old, record) = old.min_by_key(|(_, record)| self.client(*record).last)?;
            self.records.remove(&old);
            record
        };
        // An earlier input of this id is another one.
        self.set_last(LastAppend { end: self.end, id: UNUSED, position: 0 });
        self.set_client(record, KeptClient { id, uid, position: 0, last: 0, unknown: 0 });
        self.records.insert(id, record);
        Some(record)
    }

    pub(crate) fn position(&self, record: InputRecord) -> InputPosition {
        let KeptClient { position: offset, unknown, .. } = self.client(record);
        InputPosition { offset, unknown }
    }

    /// The client that is in a line.
    pub(crate) fn turn(&self) -> Option<InputRecord> {
        self.records.get(&InputId(Epoch(self.word(TURN).get()))).copied()
    }

    pub(crate) fn set_turn(&self, record: Option<InputRecord>) {
        let InputId(Epoch(id)) = record.map_or(UNUSED, |record| self.client(record).id);
        if self.word(TURN).get() != id {
            self.word(TURN).set(id);
        }
    }

    /// A client has got further without a byte for the app.
    pub(crate) fn skip(&self, record: InputRecord, position: u64) {
        self.set_client(record, KeptClient { position, ..self.client(record) });
    }

    // ---- bytes ----

    /// Bytes that are not known to be with the app.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.end - self.delivered).unwrap_or(usize::MAX)
    }

    /// How many more bytes it takes.
    pub(crate) fn free(&self) -> usize {
        let taken = usize::try_from(self.end - self.announced).unwrap_or(usize::MAX);
        self.memory.ring.len().saturating_sub(taken)
    }

    /// Offset behind the newest byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Offset behind the newest byte that is with the app.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Appends bytes, at most [`InputQueue::free`]. With them the client has got to this position.
    pub(crate) fn append(&mut self, pieces: [&[u8]; 2], client: Option<(InputRecord, u64)>) {
        let mut at = self.end;
        for piece in pieces {
            let [a, b] = self.memory.split(at, piece.len());
            let (first, second) = piece.split_at(a.len());
            self.memory.ring[a].copy_from_slice(first);
            self.memory.ring[b].copy_from_slice(second);
            at += piece.len() as u64;
        }
        self.end = at;
        let (id, position) =
            client.map_or((UNUSED, 0), |(record, position)| (self.client(record).id, position));
        let last = LastAppend { end: at, id, position };
        // From here on it counts.
        self.set_last(last);
        if let Some((record, _)) = client {
            self.note_append(record, last);
        }
    }

    /// The bytes that are to be on their way next.
    pub(crate) fn rest(&self) -> Range<u64> {
        self.announced..self.end
    }

    /// Bytes of [`InputQueue::rest`], in one piece or two.
    pub(crate) fn bytes(&self, range: Range<u64>) -> [&[u8]; 2] {
        let len = usize::try_from(range.end - range.start).unwrap_or(0).min(self.memory.ring.len());
        self.memory.split(range.start, len).map(|part| &self.memory.ring[part])
    }

    /// The next bytes are on their way to the app. With a stage they are in it, and nothing has
    /// left it since the last ones were delivered. Without one they are about to be written.
    pub(crate) fn announce(&mut self, len: usize) {
        self.announced = self.announced.saturating_add(len as u64).min(self.end);
        self.word(ANNOUNCED).set(self.announced);
    }

    /// The app has got so many of the bytes on their way.
    pub(crate) fn deliver(&mut self, len: usize) {
        self.delivered = (self.delivered + len as u64).min(self.announced);
        self.settle();
    }

    /// The app has got so many of the bytes that were about to be written, and the others are not
    /// on their way any more.
    pub(crate) fn deliver_only(&mut self, len: usize) {
        self.announced = (self.delivered + len as u64).min(self.announced);
        self.word(ANNOUNCED).set(self.announced);
        self.deliver(len);
    }

    /// Nothing of it goes to the app any more.
    pub(crate) fn discard(&mut self) {
        (self.announced, self.delivered) = (self.end, self.end);
        self.word(ANNOUNCED).set(self.end);
        self.settle();
    }

    fn settle(&self) {
        if self.delivered == self.announced {
            self.word(DELIVERED).set(self.delivered);
        }
    }
}

#[cfg(test)]
mod tests;
