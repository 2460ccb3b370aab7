//! A log: what the app wrote, in a format that readers expect, on its way to one target.
//!
//! The log reads the hub in the order of reading, splits the bytes into entries, encodes these into
//! chunks, and hands the chunks to a writer. Only the writer touches the target and may wait for it.
//!
//! Invariants: what is logged depends only on the app's bytes and the clock. Nothing here blocks. While
//! the target works, the app waits for it and no line is lost (with [`LogPolicy::Drop`] the other way
//! round). While it fails, the newest lines are kept; the others are counted, and a marker in their place
//! says so.

mod losses;
mod notes;
pub(crate) mod number;
mod pauses;
mod queue;
mod target;

use std::time::{Duration, Instant};

use self::losses::Losses;
use self::notes::{Note, Notes};
use self::pauses::Pauses;
use self::queue::Queue;
use self::target::Target;
use super::file::Rotation;
use super::writer::{LogWriter, Reopened, WriterEvent};
use crate::core::hub::{Hub, LogId};
use crate::logfmt::chunk::{Chunk, Lost};
use crate::logfmt::encoder::Encoder;
use crate::logfmt::lines::{Entry, Splitter};
use crate::logfmt::stamp::StampText;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::{Now, Stamp};

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
    /// Its number in the hub.
    id: LogId,
    name: String,
    encoder: Box<dyn Encoder>,
    splitter: Splitter,
    /// The sizes and the input of a recorded terminal.
    notes: Notes,
    /// The time of the next entry. Times of a log never go back.
    stamp: StampText,
    /// The offset of the next byte of each stream.
    at: [u64; Stream::ALL.len()],
    /// The offset at which the app ended in each stream, until the log reaches it.
    app_ends: [Option<u64>; Stream::ALL.len()],
    pauses: Pauses,
    queue: Queue,
    target: Target,
    losses: Losses,
}

impl Log {
    /// A log that begins with the next byte, or continues where the log of an earlier mux stopped.
    /// `name` is for people, and tells the logs of an app apart.
    pub fn new(
        name: String,
        encoder: Box<dyn Encoder>,
        options: LogOptions,
        writer: LogWriter,
        hub: &mut Hub,
    ) -> Self {
        let now = Now::read().stamp;
        let number = number::number(&name);
        hub.renumber_log(number::old(&name), number);
        if !hub.is_followed(number) {
            writer.begin();
        }
        let (id, at, bytes) = hub.follow(number, now);
        let splitter = encoder.splitter(options.line_limit);
        let options = LogOptions { chunk: encoder.chunk(options.chunk), ..options };
        Self {
            id,
            name,
            notes: Notes::default(),
            stamp: StampText::new(Stamp::default()),
            at,
            app_ends: [None; Stream::ALL.len()],
            pauses: Pauses::new(encoder.flush(options.flush)),
            queue: Queue::new(&options, encoder.worst(splitter.limit())),
            target: Target::new(writer),
            losses: Losses::new(Lost { lines: 0, bytes }, now),
            splitter,
            encoder,
        }
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The thread that writes to its target.
    pub fn writer(&mut self) -> &mut LogWriter {
        &mut self.target.writer
    }

    /// The last result of reopening its target.
    pub(crate) fn reopened(&self) -> &Reopened {
        self.target.writer.reopened()
    }

    /// Why its target fails, while it does.
    pub(crate) fn failing(&self) -> Option<&str> {
        self.target.failing()
    }

    /// How much it lost.
    pub(crate) fn lost(&self) -> Lost {
        self.losses.total
    }

    /// Takes what is in the hub, as far as there is room for it, and hands it to the writer.
    pub fn advance(&mut self, hub: &mut Hub, now: Instant) {
        // A write that hangs is a failure, too.
        if self.target.stuck_at().is_some_and(|at| at <= now) {
            self.fail(format!("a write has not come back for {:?}", limits::LOG_STUCK));
        }
        while self.has_room(now) {
            if self.take_note() || self.end_line(now) {
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
            self.pauses.set_half(stream, self.splitter.waiting(stream) > 0, now);
        }
        for stream in Stream::ALL {
            if self.pauses.is_due(stream, now) && self.has_room(now) {
                self.flush(stream, false, now);
            }
        }
        self.hand_over(now);
    }

    /// The app's terminal has this size from here on.
    pub fn resized(&mut self, size: Size, hub: &mut Hub, now: Now) {
        if self.encoder.records_sizes() {
            let lost = self.notes.resized(end_of_terminal(hub), now.stamp, size);
            self.noted(lost, hub, now);
        }
    }

    /// The app's terminal was given this input.
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
            self.losses.count(Lost { lines: 0, bytes: lost as u64 }, now.stamp);
        }
        self.advance(hub, now.at);
    }

    /// The app ended, and may be started again: its unfinished lines end here.
    pub(crate) fn app_ended(&mut self, hub: &mut Hub, now: Instant) {
        if self.encoder.ends_lines_with_app() {
            self.app_ends = Stream::ALL.map(|stream| hub.extent(stream).map(|(end, _)| end));
            self.advance(hub, now);
        }
    }

    /// When something is due though nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let pause = self.pauses.deadline().filter(|_| !self.queue.is_blocked);
        pause.into_iter().chain(self.target.stuck_at()).min()
    }

    /// The app ended, and everything is in the hub: takes the rest. Returns whether the target has all
    /// of it.
    pub fn finish(&mut self, hub: &mut Hub, now: Instant) -> bool {
        self.pauses.mix();
        self.advance(hub, now);
        if hub.unread_first(self.id).is_none() && self.has_room(now) {
            for stream in Stream::ALL {
                self.flush(stream, true, now);
            }
            self.hand_over(now);
        }
        self.target.is_idle() && self.queue.is_empty()
    }

    /// Handles an event of the writer.
    pub fn on_event(&mut self, event: WriterEvent, hub: &mut Hub, now: Instant) {
        match event {
            WriterEvent::Written(chunk) => {
                self.target.done(now);
                if !chunk.is_marker() {
                    hub.log_written(self.id, chunk.ends);
                }
                if let Some(why) = self.target.recover() {
                    log::warn!("log {}: works again after: {why}", self.name);
                }
                self.queue.recycle(chunk);
                self.hand_over(now);
            }
            WriterEvent::Lost(chunk) => {
                self.target.done(now);
                // If the format cannot tell how much the target has, all counts as lost.
                let (_, lost) = self.lost_of(&chunk);
                let Lost { lines, bytes } = lost;
                let name = &self.name;
                log::error!(
                    "log {name}: lost {lines} lines ({bytes} bytes): the writer panicked twice while \
                     writing them; it continues with the next lines"
                );
                if chunk.is_marker() {
                    self.losses.put_back(lost, chunk.last);
                } else {
                    self.lose(&chunk, lost);
                }
                self.hand_over(now);
            }
            WriterEvent::Failing(why) => self.fail(why),
            WriterEvent::Reopened(_) => {}
            WriterEvent::Left(chunks) => {
                let (mut least, mut most) = (Lost::default(), Lost::default());
                for chunk in &chunks {
                    let (chunk_least, chunk_most) = self.lost_of(chunk);
                    least.add(chunk_least);
                    most.add(chunk_most);
                }
                self.target.given_up(least, most);
            }
        }
    }

    // ---- giving up ----

    /// Time is over: what is not written counts as lost. The writer is asked how much it has.
    pub(crate) fn give_up(&mut self, hub: &mut Hub, now: Instant) {
        if self.target.failing().is_none() {
            self.target.fail("the target was too slow".to_owned());
        }
        if !self.finish(hub, now) {
            self.target.give_up();
        }
    }

    /// Whether it is given up, and the writer has not reported how much it has.
    pub(crate) fn is_giving_up(&self) -> bool {
        self.target.is_giving_up()
    }

    /// Reports how much is lost after the log was given up, as narrowly as it is known.
    pub(crate) fn report_lost(&mut self) {
        let Some((least, most)) = self.target.lost() else { return };
        let certain = self.queue.text().plus(self.losses.pending);
        let (least, most) = (least.plus(certain), most.plus(certain));
        let range = |least: u64, most: u64| {
            if least == most { most.to_string() } else { format!("{least} to {most}") }
        };
        if most != Lost::default() {
            let (name, lines) = (&self.name, range(least.lines, most.lines));
            let bytes = range(least.bytes, most.bytes);
            let why = self.target.failing().unwrap_or_default();
            log::error!("log {name}: lost {lines} lines ({bytes} bytes): {why}");
        }
    }

    /// How much of a chunk the target lacks, at least and at most. They differ if the format cannot
    /// count its entries.
    fn lost_of(&self, chunk: &Chunk) -> (Lost, Lost) {
        let all = chunk.text();
        if chunk.is_marker() || chunk.done == 0 {
            return (all, all);
        }
        let Some(Lost { lines, bytes }) = self.encoder.count(&chunk.bytes[..chunk.done]) else {
            return (Lost::default(), all);
        };
        let lines = all.lines.saturating_sub(lines);
        let rest = Lost { lines, bytes: all.bytes.saturating_sub(bytes) };
        (rest, rest)
    }

    // ---- from the hub to chunks ----

    /// The next stream: that of the bytes that were read first, unless they would split a line of
    /// another stream, which some readers do not accept.
    fn next_stream(&mut self, hub: &Hub, now: Instant) -> Option<Stream> {
        let first = hub.unread_first(self.id)?;
        match self.splitter.open() {
            Some(open) if open != first && !self.encoder.may_mix_lines() => {
                if self.pauses.holds_other(hub.is_pressed(self.id, first), now) {
                    return hub.unread(self.id, open).map(|_| open);
                }
            }
            open => self.pauses.release_other(open.is_none()),
        }
        Some(first)
    }

    /// Takes the next note, or a piece of it, if the log has reached it. Returns whether it has.
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
                    self.encoder.put(&mut self.queue.filling, &self.stamp, &entry);
                }
                len = bytes.len() - rest.len();
            }
            Some(Note::Size(size)) => {
                let stamp = self.stamp.stamp();
                self.encoder.encode_size(&mut self.queue.filling.bytes, stamp, size);
                self.queue.filling.count(0, 0, stamp);
            }
            None => {}
        }
        self.notes.done(len);
        true
    }

    /// Ends the next unfinished line of an app that ended there. Returns whether there was one.
    fn end_line(&mut self, now: Instant) -> bool {
        for stream in Stream::ALL {
            let (end, at) = (self.app_ends[stream as usize], self.at[stream as usize]);
            if end.is_some_and(|end| end <= at) {
                self.app_ends[stream as usize] = None;
                self.pauses.set_half(stream, false, now);
                if let Some(entry) = self.splitter.end(stream) {
                    self.encoder.put(&mut self.queue.filling, &self.stamp, &entry);
                    self.note_cut();
                    return true;
                }
            }
        }
        false
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        if stamp > self.stamp.stamp() {
            self.stamp = StampText::new(stamp);
        }
    }

    /// Takes bytes of a stream. Returns how many, because the room may end.
    fn take(&mut self, stream: Stream, pieces: [&[u8]; 2], now: Instant) -> usize {
        let mut taken = 0;
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() && self.has_room(now) {
                let before = rest.len();
                if let Some(entry) = self.splitter.next(stream, &mut rest) {
                    self.encoder.put(&mut self.queue.filling, &self.stamp, &entry);
                    self.note_cut();
                }
                self.at[stream as usize] += (before - rest.len()) as u64;
            }
            taken += piece.len() - rest.len();
        }
        taken
    }

    /// Notes where the file can be cut first.
    fn note_cut(&mut self) {
        let filling = &mut self.queue.filling;
        if filling.cut.is_none() && self.splitter.open().is_none() {
            filling.cut = Some(filling.bytes.len());
        }
    }

    /// Writes half a line as a part.
    fn flush(&mut self, stream: Stream, end: bool, now: Instant) {
        self.pauses.set_half(stream, false, now);
        if let Some(entry) = self.splitter.flush(stream, end) {
            self.encoder.put(&mut self.queue.filling, &self.stamp, &entry);
        }
    }

    /// Whether one more entry fits, after making room for it if that is allowed.
    #[inline]
    fn has_room(&mut self, now: Instant) -> bool {
        self.queue.has_room() || self.make_room(now)
    }

    fn make_room(&mut self, now: Instant) -> bool {
        self.queue.is_blocked = false;
        if self.queue.is_filled() {
            let keeps = self.target.failing().is_some() || self.queue.drops;
            if self.target.len() + self.queue.len() >= limits::LOG_AHEAD && !keeps {
                self.queue.is_blocked = true;
                return false;
            }
            let full = self.take_filling();
            self.queue.push(full);
            // What the target can take is not dropped.
            self.hand_over(now);
            while let Some(oldest) = self.queue.pop_excess() {
                self.lose(&oldest, oldest.text());
                self.queue.recycle(oldest);
            }
        }
        self.queue.begin(self.splitter.open().is_none());
        true
    }

    /// Takes the chunk that is being filled, with the offsets up to which it has the streams.
    fn take_filling(&mut self) -> Chunk {
        let mut chunk = std::mem::take(&mut self.queue.filling);
        // The stream of the input has no offsets.
        let written =
            |s: Stream| self.at[s as usize].saturating_sub(self.splitter.waiting(s) as u64);
        chunk.ends = Stream::ALL.map(written);
        chunk
    }

    // ---- from chunks to the writer ----

    /// Hands the writer what there is, if it has nothing, and the next full chunk, so that it need not
    /// wait.
    fn hand_over(&mut self, now: Instant) {
        while self.target.takes_more() {
            let next = self.marker().or_else(|| self.queue.pop()).or_else(|| {
                let some = self.target.is_idle() && !self.queue.filling.bytes.is_empty();
                some.then(|| self.take_filling())
            });
            let Some(chunk) = next else { return };
            self.target.write(chunk, now);
        }
    }

    /// An entry that stands for lost output.
    fn marker(&mut self) -> Option<Chunk> {
        let (lost, stamp) = self.losses.take()?;
        let text = self.encoder.marker(lost);
        let breaks = self.encoder.runs_lines_together() && self.target.ends_amid_line;
        let pieces = [if breaks { b"\n" } else { &b""[..] }, text.as_bytes()];
        let entry = Entry { stream: self.encoder.own_stream(), first: true, last: true, pieces };
        let Lost { lines, bytes: text } = lost;
        let mut chunk = Chunk { cut: Some(0), lines, text, ..Chunk::default() };
        self.encoder.encode(&mut chunk.bytes, &StampText::new(stamp), &entry);
        if let Some(size) = self.losses.size.take() {
            self.encoder.encode_size(&mut chunk.bytes, stamp, size);
        }
        Some(chunk)
    }

    /// Counts so much of a chunk as lost.
    fn lose(&mut self, chunk: &Chunk, lost: Lost) {
        self.losses.count(lost, chunk.last);
        self.losses.size = self.encoder.last_size(&chunk.bytes).or(self.losses.size);
    }

    fn fail(&mut self, why: String) {
        let text = format!("log {}: {why}; trying again", self.name);
        if self.target.fail(why) {
            log::error!("{text}");
        }
    }
}

/// The offset of what the app will print next.
fn end_of_terminal(hub: &Hub) -> u64 {
    hub.extent(Stream::Tty).map_or(0, |(end, _)| end)
}
