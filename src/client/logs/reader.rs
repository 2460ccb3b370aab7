//! Reads a log forward, entry by entry, over all its files.
//!
//! Invariant: each entry is given once, in the order of writing. A broken entry is reported and
//! skipped. The reader leaves a file after its writer has left it: then it is complete.

use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use memchr::memchr;

use super::log_files::Files;
use super::printed_lines::index;
use super::tail::Start;
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::logfmt::format;
use crate::types::limits;

/// Broken entries that are reported: a file that is not a log consists of them.
const LOG_BROKEN: usize = 8;
/// Characters of a broken entry that are shown.
const LOG_EXCERPT: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The files.
    pub(crate) files: Files,
    start: Start,
    /// The number of the file that is being read.
    number: u64,
    /// The beginning of an entry, which was read and not given yet.
    buffer: Vec<u8>,
    /// The number of bytes of the buffer without a line end.
    searched: usize,
    /// The offset in the file at which the buffer begins.
    offset: u64,
    /// In the middle of an entry that is too long.
    skipping: bool,
    /// Broken entries so far.
    broken: usize,
    /// Whether the file has a valid entry: then it is a log.
    is_log: bool,
}

impl Reader {
    /// Reads from this start on.
    pub(crate) fn new(files: Files, start: Start) -> Self {
        Self {
            files,
            start,
            number: 0,
            buffer: Vec::new(),
            searched: 0,
            offset: 0,
            skipping: false,
            broken: 0,
            is_log: false,
        }
    }

    /// Reads a piece and gives its entries. Returns whether there was any, or another file is next.
    pub(crate) fn read(
        &mut self,
        give: &mut impl FnMut(&LoggedEntry<'_>) -> Result<()>,
    ) -> Result<bool> {
        // Checked before reading: after the writer has left, nothing is added.
        let is_left = self.files.writer_is_past().context("cannot read a log")?;
        let Some(number) = self.files.open().front().map(|opened| opened.number) else {
            return Ok(false);
        };
        let (first, offset) = self.start.at.unwrap_or_default();
        if number < first {
            self.files.done();
            return Ok(true);
        }
        if number != self.number {
            self.number = number;
            self.restart(if number == first { offset } else { 0 });
        }
        let Some(opened) = self.files.open().front() else { return Ok(false) };
        let what = || format!("cannot read {}", opened.path.display());
        let filled = self.buffer.len();
        self.buffer.resize(filled + limits::LOG_READ, 0);
        let at = self.offset + filled as u64;
        let len = opened.file.read_at(&mut self.buffer[filled..], at);
        self.buffer.truncate(filled + len.as_ref().unwrap_or(&0));
        if len.with_context(what)? > 0 {
            self.give_entries(give)?;
            return Ok(true);
        }
        if opened.size().with_context(what)? < at {
            // The file was copied and truncated: all that comes is new.
            self.start = Start::default();
            self.restart(0);
            return Ok(true);
        }
        if is_left {
            self.finish(true, give)?;
            self.files.done();
        }
        Ok(is_left)
    }

    /// Gives the last entry if it has no line end. If it is broken and `complete`, reports it.
    pub(crate) fn finish(
        &mut self,
        complete: bool,
        give: &mut impl FnMut(&LoggedEntry<'_>) -> Result<()>,
    ) -> Result<()> {
        let rest = std::mem::take(&mut self.buffer);
        self.searched = 0;
        if rest.is_empty() || self.skipping {
            return Ok(());
        }
        match format::parse(&rest) {
            Ok(entry) if self.is_wanted(&entry, self.offset) => give(&entry),
            Err(why) if complete => {
                self.report_broken(self.offset, &rest, why);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn restart(&mut self, offset: u64) {
        self.buffer.clear();
        (self.searched, self.offset, self.skipping) = (0, offset, false);
        self.is_log = self.files.are_named_by_user();
    }

    fn give_entries(
        &mut self,
        give: &mut impl FnMut(&LoggedEntry<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut done, mut from) = (0, self.searched);
        while let Some(at) = memchr(b'\n', &buffer[from..]) {
            let line = &buffer[done..=from + at];
            let offset = self.offset + done as u64;
            if !std::mem::take(&mut self.skipping) {
                match format::parse(line) {
                    Ok(entry) => {
                        self.is_log = true;
                        if self.is_wanted(&entry, offset) {
                            give(&entry)?;
                        }
                    }
                    Err(why) => self.report_broken(offset, line, why),
                }
            }
            done += line.len();
            from = done;
        }
        buffer.drain(..done);
        self.offset += done as u64;
        if buffer.len() > limits::LOG_ENTRY {
            if !self.skipping {
                self.report_broken(self.offset, &buffer, "it is too long");
            }
            self.skipping = true;
            self.offset += buffer.len() as u64;
            buffer.clear();
        }
        self.searched = buffer.len();
        self.buffer = buffer;
        Ok(())
    }

    fn is_wanted(&self, entry: &LoggedEntry<'_>, offset: u64) -> bool {
        (self.number, offset) >= self.start.streams[index(entry.stream)]
    }

    /// Reports a broken entry, up to a number of them.
    fn report_broken(&mut self, offset: u64, line: &[u8], why: &str) {
        self.broken += 1;
        if self.broken > LOG_BROKEN {
            if self.broken == LOG_BROKEN + 1 {
                log::warn!("more broken entries are skipped without a message");
            }
            return;
        }
        let path = self.files.open().front().map(|opened| opened.path.display().to_string());
        // The text of a file that may not be a log is not shown.
        let line =
            if self.is_log { line.strip_suffix(b"\n").unwrap_or(line) } else { b"\xe2\x80\xa6" };
        let excerpt = &line[..line.len().min(LOG_EXCERPT)];
        let more = if excerpt.len() < line.len() { "…" } else { "" };
        let excerpt = String::from_utf8_lossy(excerpt);
        log::warn!(
            "{}: byte {offset} is not an entry: {why}; skipped: \"{}{more}\"",
            path.unwrap_or_default().escape_debug(),
            excerpt.escape_debug()
        );
    }
}
