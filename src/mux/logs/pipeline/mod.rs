//! A log: the app's output, in a format that readers expect, on its way to one target.
//!
//! The log reads the hub in the order of reading, splits the bytes into entries, encodes these into
//! chunks, and hands the chunks to a writer. Only the writer touches the target and may wait for
//! it.
//!
//! Invariants: the content depends only on the app's bytes and the clock. Nothing here blocks.
//! While the target works, the app waits for it and no line is lost (with [`LogPolicy::Drop`] the
//! other way round). While the target fails, the newest lines are kept; the others are counted, and
//! a marker in their place reports them.

mod chunk_queue;
mod log_losses;
pub mod log_memory;
pub(crate) mod number;
mod pauses;
mod target;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use self::chunk_queue::Queue;
use self::log_losses::Losses;
use self::log_memory::{LogMemory, Snapshot, StateKeeper};
use self::pauses::Pauses;
use self::target::Target;
use super::file::Rotation;
use super::writer::{LogWriter, Reopened, WriterEvent};
use crate::core::hub::{Hub, LogId};
use crate::core::logfmt::chunk::{Chunk, Lost};
use crate::core::logfmt::encoder::{Encoder, Note};
use crate::core::logfmt::lines::{Entry, Splitter};
use crate::core::logfmt::stamp::StampText;
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
    /// The policy for a slow target.
    pub policy: LogPolicy,
    /// How files are rotated; `None` if another program rotates them.
    pub rotation: Option<Rotation>,
}

/// The policy when a log is slower than the app.
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
    /// The size of the terminal.
    size: Option<Size>,
    /// The time of the next entry. Times of a log never go back.
    stamp: StampText,
    offsets: TakenOffsets,
    pauses: Pauses,
    queue: Queue,
    target: Target,
    losses: Losses,
    keeper: StateKeeper,
}

/// How far a log is, per stream.
#[derive(Debug)]
struct TakenOffsets {
    /// The next byte.
    at: [u64; Stream::ALL.len()],
    /// Where the app ended, until the log reaches that.
    app_ends: [Option<u64>; Stream::ALL.len()],
}

impl Log {
    /// A log that begins with the next byte, or continues where the log of an earlier mux stopped.
    /// `name` is for people, and distinguishes the logs of an app.
    pub fn new(
        name: String,
        encoder: Box<dyn Encoder>,
        options: LogOptions,
        (writer, memory): (LogWriter, LogMemory),
        hub: &mut Hub,
    ) -> Self {
        let now = Now::read();
        let worst = memory.layout().worst;
        let was_stored = memory.was_stored();
        let (keeper, spare, left) = memory.open(hub.epoch());
        if left.is_none() && was_stored {
            log::warn!(
                "log {name}: what was not written is lost: its memory or the backlog is a new one"
            );
        }
        let kept = left.as_ref().map(|left| left.snapshot.at);
        let left = left.unwrap_or_default();
        let Snapshot { unfinished, stamp, app_ends, lost, lost_at, .. } = left.snapshot;
        let (id, at, bytes) = hub.follow(now.stamp, kept);
        let mut splitter = encoder.splitter(options.line_limit);
        let mut pauses = Pauses::new(encoder.flush(options.flush));
        for (stream, (half, open)) in Stream::ALL.into_iter().zip(&left.halves) {
            splitter.resume(stream, half, *open);
            pauses.set_half(stream, !half.is_empty(), now.at);
        }
        left.full.iter().for_each(|chunk| keeper.seal(chunk));
        let losses = Losses::new(lost.plus(Lost { lines: 0, bytes }), now.stamp.max(lost_at));
        let mut log = Self {
            id,
            name,
            size: None,
            stamp: StampText::new(stamp),
            offsets: TakenOffsets { at, app_ends },
            pauses,
            queue: Queue::new(&options, worst, spare, (left.filling, left.full)),
            target: Target::new(writer, unfinished),
            losses,
            splitter,
            encoder,
            keeper,
        };
        // A part of the first one may be written: a marker comes behind it.
        let handed = (0..left.handed).map_while(|_| log.queue.full.pop_front()).collect::<Vec<_>>();
        for chunk in &handed {
            log.target.add(chunk, now.at);
        }
        log.save();
        for chunk in handed {
            log.target.writer.write(chunk);
        }
        log
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
        &self.target.writer.reopened
    }

    /// Why its target fails, while it does.
    pub(crate) fn failing(&self) -> Option<&str> {
        self.target.failing.as_deref()
    }

    /// How much it lost.
    pub(crate) fn lost(&self) -> Lost {
        self.losses.total
    }

    /// Takes as much output from the hub as there is room for, and hands it to the writer.
    pub fn advance(&mut self, hub: &mut Hub, now: Instant) {
        // A write that hangs is a failure, too.
        if self.target.stuck_at().is_some_and(|at| at <= now) {
            self.fail(format!("a write has not come back for {:?}", limits::LOG_STUCK));
        }
        while self.has_room(now) {
            if self.end_line(now) {
                continue;
            }
            let Some(stream) = self.next_stream(hub, now) else { break };
            let Some((stamp, mut range)) = hub.unread(self.id, stream) else { break };
            if let Some(end) = self.offsets.app_ends[stream as usize] {
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
        self.save();
        self.hand_over(now);
    }

    /// This happens at the app's terminal.
    pub fn note(&mut self, note: Note<'_>, hub: &mut Hub, now: Now) {
        if let Note::Size(size) = note {
            self.size = Some(size);
        }
        let event = self.encoder.note(now.stamp, note);
        if event.is_empty() {
            return;
        }
        // Behind the output that is there, unless the target is slower than the app.
        self.advance(hub, now.at);
        self.set_stamp(now.stamp);
        let typed = if let Note::Typed(bytes) = note { bytes.len() } else { 0 };
        if self.has_room(now.at) || self.queue.filling.bytes.room() >= event.len() {
            self.queue.filling.bytes.extend_from_slice(&event);
            self.queue.filling.count(0, typed, self.stamp.stamp());
        } else {
            self.losses.count(Lost { lines: 0, bytes: typed as u64 }, now.stamp);
        }
        self.advance(hub, now.at);
    }

    /// The app ended, and may be started again: its unfinished lines end at these offsets, which
    /// may be still to come.
    pub(crate) fn app_ends_at(&mut self, ends: [Option<u64>; Stream::ALL.len()]) {
        if self.encoder.ends_lines_with_app() {
            for (known, end) in self.offsets.app_ends.iter_mut().zip(ends) {
                *known = end.or(*known);
            }
            self.save();
        }
    }

    /// When something is due though nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let pause = self.pauses.deadline().filter(|_| !self.queue.is_blocked);
        pause.into_iter().chain(self.target.stuck_at()).min()
    }

    /// Takes the rest, when everything that this mux reads is in the hub. Returns whether the
    /// target has all of it. If another mux continues the log, that one finishes the unfinished
    /// lines.
    pub fn finish(&mut self, hub: &mut Hub, next_goes_on: bool, now: Instant) -> bool {
        // What waits for the end of another stream's line waits for the next mux, too.
        if !next_goes_on {
            self.pauses.mix();
        }
        self.advance(hub, now);
        if !next_goes_on && hub.unread_first(self.id).is_none() && self.has_room(now) {
            for stream in Stream::ALL {
                self.flush(stream, true, now);
            }
            self.hand_over(now);
        }
        self.is_written()
    }

    fn is_written(&self) -> bool {
        self.target.handed.is_empty() && self.queue.is_empty()
    }

    /// Handles an event of the writer.
    pub fn on_event(&mut self, event: WriterEvent, now: Instant) {
        match event {
            WriterEvent::Written(chunk) => {
                self.target.done(now);
                if let Some(why) = self.target.failing.take() {
                    log::warn!("log {}: works again after: {why}", self.name);
                }
                self.save();
                self.queue.recycle(chunk);
                self.hand_over(now);
            }
            WriterEvent::Failing(why) => self.fail(why),
            WriterEvent::Reopened(_) => {}
        }
    }

    /// The time is over: the log takes the rest as behind a failing target, and counts what is lost.
    pub(crate) fn give_up(&mut self) {
        self.target.failing.get_or_insert_with(|| "the target is too slow".to_owned());
    }

    /// Reports what the target lacks when the mux ends, which the next mux gets, if there is one.
    pub(crate) fn report_left(&self, has_next: bool) {
        if self.is_written() {
            return;
        }
        let left = self.target.text().plus(self.queue.text()).plus(self.losses.pending);
        let (name, Lost { lines, bytes }) = (&self.name, left);
        let fate = if has_next { "wait for the next mux" } else { "are lost" };
        let why = self.failing().unwrap_or("the target is too slow");
        log::error!("log {name}: up to {lines} lines ({bytes} bytes) {fate}: {why}");
    }

    // ---- from the hub to chunks ----

    /// The next stream: that of the bytes that were read first, unless they would split a line of
    /// another stream, which some readers do not accept.
    fn next_stream(&mut self, hub: &Hub, now: Instant) -> Option<Stream> {
        let first = hub.unread_first(self.id)?;
        match self.splitter.open() {
            Some(open) if open != first && !self.encoder.may_mix_lines() => {
                // Where nothing marks a part of a line, the app waits rather than that lines mix.
                let may_mix = !self.encoder.runs_lines_together();
                if self.pauses.holds_other(may_mix && hub.is_pressed(self.id, first), now) {
                    return hub.unread(self.id, open).map(|_| open);
                }
            }
            open => self.pauses.release_other(open.is_none()),
        }
        Some(first)
    }

    /// Ends the next unfinished line of an app that ended there. Returns whether there was one.
    fn end_line(&mut self, now: Instant) -> bool {
        for stream in Stream::ALL {
            let (end, at) =
                (self.offsets.app_ends[stream as usize], self.offsets.at[stream as usize]);
            if end.is_some_and(|end| end <= at) {
                self.offsets.app_ends[stream as usize] = None;
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
                self.offsets.at[stream as usize] += (before - rest.len()) as u64;
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
            let keeps = self.target.failing.is_some() || self.queue.drops;
            if self.target.handed.len() + self.queue.full.len() >= limits::LOG_AHEAD && !keeps {
                self.queue.is_blocked = true;
                return false;
            }
            let full = self.take_filling();
            self.queue.full.push_back(full);
            // Output that the target can accept is not dropped.
            self.hand_over(now);
            while let Some(oldest) = self.queue.pop_excess() {
                self.losses.count(oldest.text(), oldest.last);
                self.save();
                self.queue.recycle(oldest);
            }
        }
        self.queue.is_blocked = !self.queue.begin(self.splitter.open().is_none());
        !self.queue.is_blocked
    }

    /// Takes the chunk that is being filled.
    fn take_filling(&mut self) -> Chunk {
        let chunk = std::mem::take(&mut self.queue.filling);
        self.keeper.seal(&chunk);
        chunk
    }

    /// Keeps the state for the next mux. What is reported as lost stays in it: systemd may start
    /// another mux even if this one does not expect that.
    fn save(&mut self) {
        let TakenOffsets { at, app_ends } = self.offsets;
        let Losses { pending: lost, at: lost_at, .. } = self.losses;
        for stream in Stream::ALL {
            let (half, open) = self.splitter.half(stream);
            let begin = at[stream as usize].saturating_sub(half.len() as u64);
            self.keeper.keep_half(stream, begin, half, open);
        }
        let (unfinished, stamp) = (self.target.unfinished, self.stamp.stamp());
        let snapshot = Snapshot { unfinished, stamp, at, app_ends, lost, lost_at };
        let full = self.queue.full.iter().map(|chunk| chunk.slot);
        let full = self.target.handed.iter().map(|(slot, _)| *slot).chain(full);
        self.keeper.save(&snapshot, &self.queue.filling, (self.target.handed.len(), full));
    }

    // ---- from chunks to the writer ----

    /// Hands the writer a chunk if it has none, and the next full one, so that it need not wait.
    fn hand_over(&mut self, now: Instant) {
        while self.target.takes_more() {
            let next = self.marker().or_else(|| self.queue.full.pop_front()).or_else(|| {
                let some = self.target.handed.is_empty() && !self.queue.filling.bytes.is_empty();
                some.then(|| self.take_filling())
            });
            let Some(chunk) = next else { return };
            self.target.add(&chunk, now);
            // Before the target can have any of it.
            self.save();
            self.target.writer.write(chunk);
        }
    }

    /// An entry that stands for lost output. A reader would add it to an unfinished line, so it
    /// begins with the ends of those.
    fn marker(&mut self) -> Option<Chunk> {
        if self.losses.pending == Lost::default() {
            return None;
        }
        let mut chunk = self.queue.take_spare()?;
        let (lost, stamp) = self.losses.take()?;
        let (text, stamp_text) = (self.encoder.marker(lost), StampText::new(stamp));
        for line in Stream::ALL.into_iter().filter(|line| self.target.unfinished[*line as usize]) {
            self.encoder.end_line(&mut chunk.bytes, &stamp_text, line);
            chunk.unfinished[line as usize] = Some(false);
            if !self.queue.has_line(line) {
                self.splitter.set_open(line, false);
            }
        }
        let pieces = [text.as_bytes(), &[]];
        let entry = Entry { stream: self.encoder.own_stream(), first: true, last: true, pieces };
        (chunk.cut, chunk.lines, chunk.text) = (Some(chunk.bytes.len()), lost.lines, lost.bytes);
        self.encoder.encode(&mut chunk.bytes, &stamp_text, &entry);
        if let Some(size) = self.size {
            chunk.bytes.extend_from_slice(&self.encoder.note(stamp, Note::Size(size)));
        }
        self.keeper.seal(&chunk);
        Some(chunk)
    }

    fn fail(&mut self, why: String) {
        let text = format!("log {}: {why}; trying again", self.name);
        if self.target.failing.replace(why).is_none() {
            log::error!("{text}");
        }
    }
}
