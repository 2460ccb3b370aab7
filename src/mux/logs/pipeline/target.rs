//! The target of a log as the log sees it: the writer, its chunks, and whether it works.

use std::collections::VecDeque;
use std::time::Instant;

use crate::core::logfmt::chunk::{Chunk, Lost};
use crate::mux::logs::writer::LogWriter;
use crate::types::limits;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) writer: LogWriter,
    /// The slots of the writer's chunks and the app's output in them: the one that it writes, and
    /// the next.
    pub(super) handed: VecDeque<(usize, Lost)>,
    /// Since when the writer has the first of them.
    since: Option<Instant>,
    /// The lines of a reader that are unfinished behind the last chunk.
    pub(crate) unfinished: [bool; Stream::ALL.len()],
    /// Why the target fails, while it does.
    pub(super) failing: Option<String>,
}

impl Target {
    pub(crate) fn new(writer: LogWriter, unfinished: [bool; Stream::ALL.len()]) -> Self {
        Self { writer, handed: VecDeque::new(), since: None, unfinished, failing: None }
    }

    /// Whether the writer takes another chunk: one more than it writes, unless its target fails.
    pub(crate) fn takes_more(&self) -> bool {
        self.handed.len() < limits::LOG_AHEAD && (self.handed.is_empty() || self.failing.is_none())
    }

    /// The writer is given a chunk next.
    pub(crate) fn add(&mut self, chunk: &Chunk, now: Instant) {
        self.handed.push_back((chunk.slot, chunk.text()));
        for (line, chunk) in self.unfinished.iter_mut().zip(chunk.unfinished) {
            *line = chunk.unwrap_or(*line);
        }
        self.since.get_or_insert(now);
    }

    /// The writer is done with its first chunk.
    pub(crate) fn done(&mut self, now: Instant) {
        self.handed.pop_front();
        self.since = (!self.handed.is_empty()).then_some(now);
    }

    /// When the target counts as failing if it takes nothing until then.
    pub(crate) fn stuck_at(&self) -> Option<Instant> {
        let since = self.since.filter(|_| self.failing.is_none())?;
        Some(since.max(self.writer.moved()) + limits::LOG_STUCK)
    }

    /// The app's output in the writer's chunks.
    pub(crate) fn text(&self) -> Lost {
        self.handed.iter().map(|(_, text)| *text).fold(Lost::default(), Lost::plus)
    }
}
