//! The queue of the app's input, in memory that may outlive its mux.
//!
//! Every byte of it has an offset. Beside the bytes the memory has, for each client that names its
//! input, how many of its bytes are in the queue. A mux acknowledges those: the next one has them,
//! and the client sends it the rest.
//!
//! Invariant: whatever instruction was the last one of a process that is killed, the next one finds
//! each byte that was appended, and the position of its client behind it. That takes several words,
//! so an append is first described and then made true. What was on its way to the app at that time
//! is counted in a stage, or is unknown (see [`InputQueue::announce`]).
//!
//! Pure: where the memory comes from, and what keeps it, is not known here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::wire::{InputId, InputPosition};
use crate::types::limits;

/// Clients whose position in their input is kept for the next mux.
const INPUT_RECORDS: usize = 256;

/// Says that these words are ours.
const MAGIC: u64 = u64::from_le_bytes(*b"iottyinp");
/// To be raised with every change of what the words mean.
const VERSION: u64 = 1;
/// An offset that no input reaches: sums of those below it do not overflow.
const END_OF_OFFSETS: u64 = 1 << 62;

/// Bytes of the ring. One client may append all that waits of its input while the queue is not
/// full.
pub(crate) const RING: usize = 2 * limits::INPUT;
/// Words in front of the ring: whole pages, so that it begins on one.
pub(crate) const WORDS: usize = (HEAD + INPUT_RECORDS * RECORD).next_multiple_of(PAGE);
/// Words of a page.
const PAGE: usize = 4096 / size_of::<AtomicU64>();

/// Words of the head: [`InputMemory::facts`], and then these.
const HEAD: usize = 16;
/// Offset behind the newest byte.
const END: usize = 4;
/// The same as END, or where END will be after the append that is described by the next two words.
const APPENDED: usize = 5;
/// The number of the record whose client appends, or [`NOBODY`].
const APPENDER: usize = 6;
/// The position of that client behind the append.
const APPENDER_AT: usize = 7;
/// Offset behind the newest byte that is on its way to the app.
const ANNOUNCED: usize = 8;
/// Offset behind the newest byte that was known to be with the app when none was on its way.
const DELIVERED: usize = 9;
/// The number of the record whose client is in a line, or [`NOBODY`]: a hint for whose turn it is.
const TURN: usize = 10;
const NOBODY: u64 = u64::MAX;

/// Words of a record: the id of the input, the user, the position (bytes of the client that are in
/// the queue), the offset in the queue behind its last byte, and how many bytes may not have
/// arrived.
const RECORD: usize = 5;
const ID: usize = 0;
const UID: usize = 1;
const POSITION: usize = 2;
const LAST: usize = 3;
const UNKNOWN: usize = 4;
/// The id of a record that was never used: the last one is in front of it.
const UNUSED: u64 = 0;
/// The id of a record that changes hands.
const CHANGING: u64 = u64::MAX;

/// Memory that may outlive this process, all zero when it is new.
#[derive(Debug)]
pub(crate) struct InputMemory {
    /// [`WORDS`] of them.
    pub(crate) words: &'static [AtomicU64],
    /// [`RING`] bytes.
    pub(crate) ring: &'static mut [u8],
}

impl InputMemory {
    /// What the first words state.
    fn facts(&self) -> [u64; 4] {
        [MAGIC, VERSION, self.ring.len() as u64, self.records() as u64]
    }

    /// How many records it has room for.
    fn records(&self) -> usize {
        (self.words.len() - HEAD) / RECORD
    }

    /// Where in the ring so many bytes are.
    fn split(&self, from: u64, len: usize) -> [Range<usize>; 2] {
        let capacity = self.ring.len();
        let from = usize::try_from(from % capacity as u64).unwrap_or(0);
        let first = len.min(capacity - from);
        [from..from + first, 0..len - first]
    }
}

/// What is kept of a client: the number of its record.
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
        if !queue.is_valid() {
            queue.begin();
        }
        queue.finish_append();
        queue.end = queue.word(END);
        (queue.announced, queue.delivered) = (queue.word(ANNOUNCED), queue.word(DELIVERED));
        queue.find_records();
        match staged {
            Some(len) => queue.count_staged(len as u64),
            None => queue.report_unknown(),
        }
        queue
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.words[at].load(Ordering::Acquire)
    }

    /// One store: with those before it, in this order, it is true at any moment.
    fn set(&self, at: usize, value: u64) {
        #[cfg(test)]
        tests::on_store(&self.memory);
        self.memory.words[at].store(value, Ordering::Release);
    }

    fn of(&self, InputRecord(number): InputRecord, word: usize) -> u64 {
        self.word(HEAD + number * RECORD + word)
    }

    fn set_of(&self, InputRecord(number): InputRecord, word: usize, value: u64) {
        self.set(HEAD + number * RECORD + word, value);
    }

    // ---- what an earlier mux has left ----

    fn is_valid(&self) -> bool {
        let [end, appended, appender, _, announced, delivered] =
            [END, APPENDED, APPENDER, APPENDER_AT, ANNOUNCED, DELIVERED].map(|at| self.word(at));
        let facts = self.memory.facts();
        facts.iter().enumerate().all(|(at, fact)| self.word(at) == *fact)
            && appended < END_OF_OFFSETS
            && [delivered, announced, end, appended].is_sorted()
            && appended - announced <= self.memory.ring.len() as u64
            && (appended == end || appender == NOBODY || appender < self.memory.records() as u64)
    }

    /// Makes the memory that of an empty queue.
    fn begin(&self) {
        let was_used = self.memory.words[..HEAD].iter().any(|w| w.load(Ordering::Acquire) != 0);
        self.set(0, 0);
        // New memory has no records, and is not touched.
        for number in (0..self.memory.records()).filter(|_| was_used) {
            self.set_of(InputRecord(number), ID, UNUSED);
        }
        for at in [END, APPENDED, ANNOUNCED, DELIVERED] {
            self.set(at, 0);
        }
        self.set(TURN, NOBODY);
        for (at, fact) in self.memory.facts().iter().enumerate().rev() {
            self.set(at, *fact);
        }
    }

    /// Finishes the append that is described.
    fn finish_append(&self) {
        let appended = self.word(APPENDED);
        if appended == self.word(END) {
            return;
        }
        let appender = self.word(APPENDER);
        if appender != NOBODY {
            let record = InputRecord(usize::try_from(appender).unwrap_or(0));
            self.set_of(record, POSITION, self.word(APPENDER_AT));
            self.set_of(record, LAST, appended);
        }
        self.set(END, appended);
    }

    fn find_records(&mut self) {
        for number in 0..self.memory.records() {
            let (record, id) = (InputRecord(number), self.of(InputRecord(number), ID));
            if id == UNUSED {
                break;
            }
            self.used = number + 1;
            if id != CHANGING && self.of(record, LAST) <= self.end {
                self.records.insert(InputId(id), record);
            }
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
                self.set(APPENDER, NOBODY);
                self.set(APPENDED, self.end);
                self.set(END, self.end);
            }
            self.set(ANNOUNCED, self.announced);
        }
        self.settle();
    }

    /// The earlier mux was writing what was on its way: the app may have it or not. It is not sent
    /// again, and each client that may have typed it is told.
    fn report_unknown(&mut self) {
        let unknown = self.announced - self.delivered;
        for record in self.records.values().filter(|_| unknown > 0) {
            if self.of(*record, LAST) > self.delivered {
                self.set_of(*record, UNKNOWN, self.of(*record, UNKNOWN) + unknown);
            }
        }
        self.delivered = self.announced;
        self.settle();
    }

    // ---- the clients ----

    /// The record of an input that a user's client has named before.
    pub(crate) fn find(&self, id: InputId, uid: u32) -> Option<InputRecord> {
        let record = self.records.get(&id).copied();
        record.filter(|record| self.of(*record, UID) == u64::from(uid))
    }

    /// A record for an input that is named for the first time. It may take the place of one that
    /// `is_idle`: of a user that has many, of that user's oldest; else of the oldest of all.
    pub(crate) fn add(
        &mut self,
        id: InputId,
        uid: u32,
        is_idle: impl Fn(InputRecord) -> bool,
    ) -> Option<InputRecord> {
        if [UNUSED, CHANGING].contains(&id.0) || self.records.contains_key(&id) {
            // Nobody draws such a number by chance.
            return None;
        }
        let is_own = |record: &InputRecord| self.of(*record, UID) == u64::from(uid);
        let has_many = self.records.values().filter(|r| is_own(r)).count() >= limits::USER_RECORDS;
        let record = if self.used < self.memory.records() && !has_many {
            self.used += 1;
            InputRecord(self.used - 1)
        } else {
            let old = self.records.iter().map(|(id, record)| (*id, *record));
            let old = old.filter(|(_, r)| is_idle(*r) && (!has_many || is_own(r)));
            let (old, record) = old.min_by_key(|(_, record)| self.of(*record, LAST))?;
            self.records.remove(&old);
            self.set_of(record, ID, CHANGING);
            record
        };
        for (word, value) in
            [(UID, u64::from(uid)), (POSITION, 0), (LAST, 0), (UNKNOWN, 0), (ID, id.0)]
        {
            self.set_of(record, word, value);
        }
        self.records.insert(id, record);
        Some(record)
    }

    pub(crate) fn position(&self, record: InputRecord) -> InputPosition {
        let (offset, unknown) = (self.of(record, POSITION), self.of(record, UNKNOWN));
        InputPosition { offset, unknown }
    }

    /// The client that is in a line.
    pub(crate) fn turn(&self) -> Option<InputRecord> {
        let number = usize::try_from(self.word(TURN)).ok()?;
        self.records.values().copied().find(|record| *record == InputRecord(number))
    }

    pub(crate) fn set_turn(&self, record: Option<InputRecord>) {
        let number = record.map_or(NOBODY, |InputRecord(number)| number as u64);
        if self.word(TURN) != number {
            self.set(TURN, number);
        }
    }

    /// A client has got further without a byte for the app.
    pub(crate) fn skip(&self, record: InputRecord, position: u64) {
        self.set_of(record, POSITION, position);
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
        self.set(APPENDER, client.map_or(NOBODY, |(InputRecord(number), _)| number as u64));
        self.set(APPENDER_AT, client.map_or(0, |(_, position)| position));
        // From here on it counts.
        self.set(APPENDED, at);
        self.finish_append();
        self.end = at;
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
        self.set(ANNOUNCED, self.announced);
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
        self.set(ANNOUNCED, self.announced);
        self.deliver(len);
    }

    /// Nothing of it goes to the app any more.
    pub(crate) fn discard(&mut self) {
        (self.announced, self.delivered) = (self.end, self.end);
        self.set(ANNOUNCED, self.end);
        self.settle();
    }

    fn settle(&self) {
        if self.delivered == self.announced {
            self.set(DELIVERED, self.delivered);
        }
    }
}

#[cfg(test)]
mod tests;
