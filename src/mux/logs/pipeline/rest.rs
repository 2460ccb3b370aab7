//! A log that is given up: what of it is lost, as narrowly as that can be known.

use std::time::Instant;

use super::{Chunk, Log, Lost};
use crate::core::hub::Hub;

/// What has become of a log that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The writer is asked what is left of what it was given.
    Asked,
    /// That is at least this, and at most that.
    Known(Lost, Lost),
}

impl Log {
    /// The time for it is over: what is not written counts as lost. The writer is asked how much it has
    /// still, and tells so by a word.
    pub(crate) fn give_up(&mut self, hub: &mut Hub, now: Instant) {
        let why = "it has not taken everything in time";
        self.failing.get_or_insert_with(|| why.to_owned());
        if !self.finish(hub, now) {
            self.rest = Some(Rest::Asked);
            self.writer.give_up();
        }
    }

    /// Whether it is given up, and the writer has not told what it has still.
    pub(crate) fn awaits_rest(&self) -> bool {
        self.rest == Some(Rest::Asked)
    }

    /// Tells what is lost of a log that was given up, as narrowly as it is known.
    pub(crate) fn tell_lost(&mut self) {
        let (mut least, mut most) = match self.rest {
            None => return,
            Some(Rest::Known(least, most)) => (least, most),
            // A write that does not come back: the target may have some of what it was given, or all.
            Some(Rest::Asked) => {
                let mut most = Lost::default();
                self.handed.iter().for_each(|lost| most.add(*lost));
                (Lost::default(), most)
            }
        };
        let certain = self.queue.iter().chain([&self.filling]).map(Chunk::text);
        for lost in certain.chain([self.untold.0]) {
            least.add(lost);
            most.add(lost);
        }
        let range = |least: u64, most: u64| {
            if least == most { most.to_string() } else { format!("{least} to {most}") }
        };
        if most != Lost::default() {
            let (name, lines) = (&self.name, range(least.lines, most.lines));
            let bytes = range(least.bytes, most.bytes);
            let why = self.failing.as_deref().unwrap_or_default();
            log::error!("log {name}: {lines} lines ({bytes} bytes) are lost: {why}");
        }
    }

    /// What the writer has given back: all of it is lost but what the target has of the first.
    pub(crate) fn left(&mut self, chunks: &[Chunk]) {
        self.handed.clear();
        let (mut least, mut most) = (Lost::default(), Lost::default());
        for chunk in chunks {
            let (chunk_least, chunk_most) = self.rest_of(chunk);
            least.add(chunk_least);
            most.add(chunk_most);
        }
        self.rest = Some(Rest::Known(least, most));
    }

    /// What of a chunk the target has not, at least and at most: that of a format whose entries are not counted
    /// is known only as a whole.
    pub(crate) fn rest_of(&self, chunk: &Chunk) -> (Lost, Lost) {
        let all = chunk.text();
        // A marker stands for what it tells, as a whole.
        let begun = if chunk.is_marker() { &[] } else { &chunk.bytes[..chunk.done] };
        let count = || self.encoder.count(begun);
        let written = if begun.is_empty() { Some(Lost::default()) } else { count() };
        let Some(Lost { lines, bytes }) = written else {
            return (Lost::default(), all);
        };
        let lines = all.lines.saturating_sub(lines);
        let rest = Lost { lines, bytes: all.bytes.saturating_sub(bytes) };
        (rest, rest)
    }
}
