//! A log: what the app wrote, in a format that readers expect, on its way to one target.
//!
//! The log reads the hub in the order of reading, splits what it reads into entries, encodes these
//! into chunks, and hands the chunks to a writer, which alone touches the target and may wait for
//! it. Invariants: what is logged depends on the app's bytes and the clock alone; nothing here
//! blocks; while the target works the app waits for it and no line is lost (or, if so asked, the
//! other way round); while it fails the newest lines are kept, and the others are counted and told
//! of in their place.

mod notes;
mod rest;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

pub(crate) use crate::logfmt::chunk::{Chunk, Lost};

use self::notes::{Note, Notes};
use self::rest::Rest;
use crate::core::hub::{Hub, LogId};
use crate::logfmt::encoder::Encoder;
use crate::logfmt::lines::{Entry, Splitter};
use crate::logfmt::stamp::StampText;
use crate::mux::logs::file::Rotation;
use crate::mux::logs::writer::{LogWriter, WriterEvent};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::{Now, Stamp};
use crate::wire::Size;

/// The options of all logs of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Longest text of an entry, bytes.
    pub line_limit: usize,
    /// Bytes handed to a target at once, unless one entry is longer.
    pub chunk: usize,
    /// Pause after which half a line is written as a part.
    pub flush: Duration,
    /// Bytes kept for a target that fails.
    pub buffer: usize,
    /// What gives way to a slow target.
    pub policy: LogPolicy,
    /// How files are rotated; `None` if another program rotates them.
    pub rotation: Option<Rotation>,
}

/// What gives way when a log is slower than the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPolicy {
    /// The app waits.
    Hold,
    /// Lines are lost.
    Drop,
}

impl LogPolicy {
    /// Parses a policy.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "hold" => Ok(Self::Hold),
            "drop" => Ok(Self::Drop),
            _ => Err("expected hold or drop".to_owned()),
        }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            line_limit: limits::LOG_LINE,
            chunk: limits::LOG_CHUNK,
            flush: limits::LOG_FLUSH,
            buffer: limits::LOG_BUFFER,
            policy: LogPolicy::Hold,
            rotation: None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Log {
    /// Where it stands in the hub.
    id: LogId,
    name: String,
    encoder: Box<dyn Encoder>,
    options: LogOptions,
    /// Bytes of an entry at most.
    worst: usize,
    splitter: Splitter,
    /// What a recording has beside the app's bytes, and has not come to.
    notes: Notes,
    writer: LogWriter,
    /// The time of the entries now: times of a log never go back.
    stamp: StampText,
    /// What is being filled.
    filling: Chunk,
    /// Full chunks that wait for the writer; none while it works.
    queue: VecDeque<Chunk>,
    /// Room for chunks, kept.
    spare: Vec<Vec<u8>>,
    /// What of the app is in the chunks that the writer has: the one that it writes, and the next.
    handed: VecDeque<Lost>,
    /// Since when it has had the first of them.
    writing: Option<Instant>,
    /// Whether the one that it was given last ends without a line end.
    handed_half: bool,
    /// Why the target does not work, while it does not.
    failing: Option<String>,
    /// What was lost and not told yet, and when the last of it was read.
    untold: (Lost, Stamp),
    /// The size of a recorded terminal after what was lost, if it changed there.
    untold_size: Option<Size>,
    /// What was lost, all in all.
    lost: Lost,
    /// Since when half a line waits, per stream.
    half: [Option<Instant>; Stream::ALL.len()],
    /// Since when another stream waits for the rest of a line that was split.
    other_waits: Option<Instant>,
    /// The other stream has waited for long enough: the parts of its lines come between.
    mixed: bool,
    /// There is no room before the writer has written.
    full: bool,
    /// Where the app has ended in the streams, before that was read so far.
    app_ends: [Option<u64>; Stream::ALL.len()],
    /// What is left with the writer, once the log is given up.
    rest: Option<Rest>,
    /// How far the streams have been read.
    at: [u64; Stream::ALL.len()],
}

impl Log {
    /// A log that begins with the next byte, or goes on where the mux before this one was.
    /// `name` is how people know it.
    pub fn new(
        name: String,
        encoder: Box<dyn Encoder>,
        options: LogOptions,
        writer: LogWriter,
        hub: &mut Hub,
    ) -> Self {
        let now = Now::read().stamp;
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let number = hasher.finish().max(1);
        if !hub.is_followed(number) {
            writer.begin();
        }
        let (id, at, bytes) = hub.follow(number, now);
        let lost = Lost { lines: 0, bytes };
        let splitter = encoder.splitter(options.line_limit);
        let options = LogOptions {
            flush: encoder.flush(options.flush),
            chunk: encoder.chunk(options.chunk),
            ..options
        };
        Self {
            id,
            at,
            name,
            worst: encoder.worst(splitter.limit()),
            splitter,
            notes: Notes::default(),
            encoder,
            options,
            writer,
            stamp: StampText::new(Stamp::default()),
            filling: Chunk::default(),
            queue: VecDeque::new(),
            spare: Vec::new(),
            handed: VecDeque::new(),
            writing: None,
            handed_half: false,
            failing: None,
            untold: (lost, now),
            untold_size: None,
            lost,
            half: [None; Stream::ALL.len()],
            other_waits: None,
            mixed: false,
            full: false,
            app_ends: [None; Stream::ALL.len()],
            rest: None,
        }
    }

    /// How people know it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Who has its target.
    pub fn writer(&mut self) -> &mut LogWriter {
        &mut self.writer
    }

    /// Why its target does not work, while it does not.
    pub(crate) fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    /// What was lost, all in all.
    pub(crate) fn lost(&self) -> Lost {
        self.lost
    }

    /// Takes what there is in the hub, as far as there is room for it, and hands it over.
    pub fn advance(&mut self, hub: &mut Hub, now: Instant) {
        self.watch(now);
        while self.has_room(now) {
            if self.take_note() || self.end_line() {
                continue;
            }
            let Some(stream) = self.next_stream(hub, now) else { break };
            let Some((stamp, mut range)) = hub.unread(self.id, stream) else { break };
            if let Some(end) = self.app_ends[stream as usize] {
                range.end = range.end.min(end);
            }
            self.set_stamp(stamp);
            let len = self.take(stream, hub.bytes(stream, range), now);
            hub.read_on(self.id, stream, len);
            self.half[stream as usize] = (self.splitter.waiting(stream) > 0).then_some(now);
        }
        for stream in Stream::ALL {
            if self.half[stream as usize].is_some_and(|since| since + self.options.flush <= now)
                && self.has_room(now)
            {
                self.half[stream as usize] = None;
                self.flush(stream, false);
            }
        }
        self.hand_over(now);
    }

    /// The app's terminal has this size from here on, or when the log begins: a recording has it.
    pub fn resized(&mut self, size: Size, hub: &mut Hub, now: Now) {
        if self.encoder.records_sizes() {
            let lost = self.notes.resized(end_of_terminal(hub), now.stamp, size);
            self.noted(lost, hub, now);
        }
    }

    /// The app's terminal was given this input: a recording has it, if it was asked for.
    pub fn typed(&mut self, pieces: [&[u8]; 2], hub: &mut Hub, now: Now) {
        if self.encoder.records_input() {
            let at = end_of_terminal(hub);
            let some = pieces.into_iter().filter(|piece| !piece.is_empty());
            let lost = some.map(|piece| self.notes.typed(at, now.stamp, piece)).sum();
            self.noted(lost, hub, now);
        }
    }

    fn noted(&mut self, lost: usize, hub: &mut Hub, now: Now) {
        if lost > 0 {
            self.count_lost(0, lost as u64, now.stamp);
        }
        self.advance(hub, now.at);
    }

    /// The app has ended, and will be started again perhaps: what it has printed so far ends with a line
    /// end, whether it had one or not.
    pub(crate) fn app_ended(&mut self, hub: &mut Hub, now: Instant) {
        if self.encoder.ends_lines_with_app() {
            self.app_ends = Stream::ALL.map(|stream| hub.extent(stream).map(|(end, _)| end));
            self.advance(hub, now);
        }
    }

    /// When something is due though nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let halves = self.half.iter().flatten().chain(&self.other_waits);
        let pause = halves.min().filter(|_| !self.full).map(|since| *since + self.options.flush);
        let stuck = self.stuck_at().filter(|_| self.failing.is_none());
        pause.into_iter().chain(stuck).min()
    }

    /// The app has ended, and everything is in the hub: takes the rest; whether the target has all
    /// of it.
    pub fn finish(&mut self, hub: &mut Hub, now: Instant) -> bool {
        self.mixed = true;
        self.advance(hub, now);
        if hub.unread_first(self.id).is_none() && self.has_room(now) {
            for stream in Stream::ALL {
                self.half[stream as usize] = None;
                self.flush(stream, true);
            }
            self.hand_over(now);
        }
        self.writing.is_none() && self.filling.bytes.is_empty() && self.queue.is_empty()
    }

    /// The writer has something to tell.
    pub fn on_word(&mut self, word: WriterEvent, hub: &mut Hub, now: Instant) {
        match word {
            WriterEvent::Written(chunk) => {
                self.handed.pop_front();
                self.writing = (!self.handed.is_empty()).then_some(now);
                if chunk.ends != [0; Stream::ALL.len()] {
                    hub.log_written(self.id, chunk.ends);
                }
                if let Some(why) = self.failing.take() {
                    log::warn!("log {}: works again after: {why}", self.name);
                }
                self.recycle(chunk);
                self.hand_over(now);
            }
            WriterEvent::Lost(chunk) => {
                self.handed.pop_front();
                self.writing = (!self.handed.is_empty()).then_some(now);
                // Where it is not known how much the target has, all counts as lost.
                let (_, lost) = self.rest_of(&chunk);
                let Lost { lines, bytes } = lost;
                let name = &self.name;
                log::error!(
                    "log {name}: {lines} lines ({bytes} bytes) are lost: its writer panicked over them \
                     twice, and goes on"
                );
                if chunk.is_marker() {
                    // That much is counted already, and is to be told still.
                    self.untold.0.add(lost);
                    self.untold.1 = chunk.last.max(self.untold.1);
                } else {
                    self.lose(&Chunk { lines, text: bytes, ..chunk });
                }
                self.hand_over(now);
            }
            WriterEvent::Failing(why) => self.fail(why),
            WriterEvent::Reopened(_) => {}
            WriterEvent::Left(chunks) => self.left(&chunks),
        }
    }

    // ---- from the hub to chunks ----

    /// The stream whose turn it is: that of the bytes that were read first, unless these would come
    /// into the middle of another one's line, which some readers cannot bear.
    fn next_stream(&mut self, hub: &Hub, now: Instant) -> Option<Stream> {
        let first = hub.unread_first(self.id)?;
        match self.splitter.open() {
            None => self.mixed = false,
            Some(open) if open != first && !self.mixed && !self.encoder.may_mix_lines() => {
                let since = *self.other_waits.get_or_insert(now);
                if now < since + self.options.flush && !hub.is_pressed(self.id, first) {
                    return hub.unread(self.id, open).map(|_| open);
                }
                self.mixed = true;
            }
            Some(_) => {}
        }
        self.other_waits = None;
        Some(first)
    }

    /// Takes the next note, or a piece of it, if its place has come; whether it had.
    fn take_note(&mut self) -> bool {
        let Some((at, stamp)) = self.notes.next() else { return false };
        if at > self.at[Stream::Tty as usize] {
            return false;
        }
        self.set_stamp(stamp);
        let mut len = 0;
        match self.notes.first() {
            Some(Note::Typed(bytes)) => {
                let mut rest = bytes;
                if let Some(entry) = self.splitter.next(Stream::Stdin, &mut rest) {
                    self.encoder.put(&mut self.filling, &self.stamp, &entry);
                }
                len = bytes.len() - rest.len();
            }
            Some(Note::Size(size)) => {
                let stamp = self.stamp.stamp();
                self.encoder.encode_size(&mut self.filling.bytes, stamp, size);
                self.filling.count(0, 0, stamp);
            }
            None => {}
        }
        self.notes.done(len);
        true
    }

    /// Ends the next line whose app has ended there; whether there was one.
    fn end_line(&mut self) -> bool {
        for stream in Stream::ALL {
            let (end, at) = (self.app_ends[stream as usize], self.at[stream as usize]);
            if end.is_some_and(|end| end <= at) {
                self.app_ends[stream as usize] = None;
                self.half[stream as usize] = None;
                if let Some(entry) = self.splitter.end(stream) {
                    self.encoder.put(&mut self.filling, &self.stamp, &entry);
                    self.note_cut();
                    return true;
                }
            }
        }
        false
    }

    /// Times of a log do not go back, whatever the clock does.
    fn set_stamp(&mut self, stamp: Stamp) {
        if stamp > self.stamp.stamp() {
            self.stamp = StampText::new(stamp);
        }
    }

    /// Takes bytes of a stream; how many, for the room may end.
    fn take(&mut self, stream: Stream, pieces: [&[u8]; 2], now: Instant) -> usize {
        let mut taken = 0;
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() && self.has_room(now) {
                let before = rest.len();
                if let Some(entry) = self.splitter.next(stream, &mut rest) {
                    self.encoder.put(&mut self.filling, &self.stamp, &entry);
                    self.note_cut();
                }
                self.at[stream as usize] += (before - rest.len()) as u64;
            }
            taken += piece.len() - rest.len();
        }
        taken
    }

    /// Where the file can be cut, if it could not before.
    fn note_cut(&mut self) {
        if self.filling.cut.is_none() && self.splitter.open().is_none() {
            self.filling.cut = Some(self.filling.bytes.len());
        }
    }

    /// Gives what waits for its line end as a part.
    fn flush(&mut self, stream: Stream, end: bool) {
        if let Some(entry) = self.splitter.flush(stream, end) {
            self.encoder.put(&mut self.filling, &self.stamp, &entry);
        }
    }

    /// Whether one more entry fits, after making room for it if that may be.
    #[inline]
    fn has_room(&mut self, now: Instant) -> bool {
        // Asked for each line.
        let bytes = &self.filling.bytes;
        bytes.capacity() - bytes.len() >= self.worst || self.make_room(now)
    }

    fn make_room(&mut self, now: Instant) -> bool {
        let worst = self.worst;
        let capacity = self.options.chunk.max(worst);
        self.full = false;
        if self.filling.bytes.len() + worst > capacity {
            let keeps = self.failing.is_some() || self.options.policy == LogPolicy::Drop;
            if self.handed.len() + self.queue.len() >= limits::LOG_AHEAD && !keeps {
                self.full = true;
                return false;
            }
            let full = self.take_filling();
            self.queue.push_back(full);
            // What a target that works can have is not kept, and so not forgotten.
            self.hand_over(now);
            self.forget_oldest();
        }
        if self.filling.bytes.capacity() == 0 {
            // Room for a chunk is made once, and then goes round.
            self.filling.bytes = self.spare.pop().unwrap_or_default();
            self.filling.bytes.reserve(capacity);
            self.filling.cut = self.splitter.open().is_none().then_some(0);
        }
        true
    }

    /// What is being filled, as it is; what of the streams waits for its line end is not in it.
    fn take_filling(&mut self) -> Chunk {
        let mut chunk = std::mem::take(&mut self.filling);
        // What was typed is counted nowhere.
        let written =
            |s: Stream| self.at[s as usize].saturating_sub(self.splitter.waiting(s) as u64);
        chunk.ends = Stream::ALL.map(written);
        chunk
    }

    // ---- from chunks to the writer ----

    /// Gives the writer what there is, if it waits for something, and the next full chunk, so that it
    /// need not wait.
    fn hand_over(&mut self, now: Instant) {
        while self.rest.is_none()
            && self.handed.len() < limits::LOG_AHEAD
            && (self.handed.is_empty() || self.failing.is_none())
        {
            let next = self.marker().or_else(|| self.queue.pop_front()).or_else(|| {
                let some = self.handed.is_empty() && !self.filling.bytes.is_empty();
                some.then(|| self.take_filling())
            });
            let Some(chunk) = next else { return };
            self.handed.push_back(chunk.text());
            self.handed_half = chunk.bytes.last().is_some_and(|byte| *byte != b'\n');
            self.writer.write(chunk);
            self.writing.get_or_insert(now);
        }
    }

    /// A line that tells what was lost, in the place of what was lost.
    fn marker(&mut self) -> Option<Chunk> {
        let (Lost { lines, bytes }, stamp) = std::mem::take(&mut self.untold);
        if bytes == 0 && lines == 0 {
            return None;
        }
        let text = self.encoder.marker(Lost { lines, bytes });
        let breaks = self.encoder.runs_lines_together() && self.handed_half;
        let pieces = [if breaks { b"\n" } else { &b""[..] }, text.as_bytes()];
        let stream = self.encoder.own_stream();
        let entry = Entry { stream, first: true, last: true, pieces };
        let mut chunk = Chunk { cut: Some(0), lines, text: bytes, ..Chunk::default() };
        self.encoder.encode(&mut chunk.bytes, &StampText::new(stamp), &entry);
        if let Some(size) = self.untold_size.take() {
            self.encoder.encode_size(&mut chunk.bytes, stamp, size);
        }
        Some(chunk)
    }

    /// Keeps no more for a target that does not take it than was asked for.
    fn forget_oldest(&mut self) {
        let mut kept: usize = self.queue.iter().map(|chunk| chunk.bytes.len()).sum();
        while kept > self.options.buffer.max(limits::LOG_CHUNK)
            && let Some(oldest) = self.queue.pop_front()
        {
            kept -= oldest.bytes.len();
            self.lose(&oldest);
            self.recycle(oldest);
        }
    }

    fn lose(&mut self, chunk: &Chunk) {
        self.count_lost(chunk.lines, chunk.text, chunk.last);
        if self.encoder.records_sizes() {
            self.untold_size = self.encoder.last_size(&chunk.bytes).or(self.untold_size);
        }
    }

    fn count_lost(&mut self, lines: u64, bytes: u64, at: Stamp) {
        let (untold, stamp) = &mut self.untold;
        for lost in [untold, &mut self.lost] {
            lost.lines += lines;
            lost.bytes += bytes;
        }
        *stamp = at;
    }

    fn recycle(&mut self, mut chunk: Chunk) {
        chunk.bytes.clear();
        // The writer's, and the one that is filled meanwhile.
        if chunk.bytes.capacity() >= self.options.chunk && self.spare.len() <= limits::LOG_AHEAD {
            self.spare.push(chunk.bytes);
        }
    }

    /// When the target counts as failing if it has taken nothing by then.
    fn stuck_at(&self) -> Option<Instant> {
        self.writing.map(|since| since.max(self.writer.moved()) + limits::LOG_STUCK)
    }

    /// A write that does not come back is a failure, too.
    fn watch(&mut self, now: Instant) {
        if self.failing.is_none() && self.stuck_at().is_some_and(|at| at <= now) {
            self.fail(format!("a write has not come back for {:?}", limits::LOG_STUCK));
        }
    }

    fn fail(&mut self, why: String) {
        if self.failing.is_none() {
            log::error!("log {}: {why}; trying again", self.name);
        }
        self.failing = Some(why);
    }
}

/// The offset of what the app will print next.
fn end_of_terminal(hub: &Hub) -> u64 {
    hub.extent(Stream::Tty).map_or(0, |(end, _)| end)
}
