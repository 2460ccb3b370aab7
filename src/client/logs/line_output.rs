//! Printing lines on standard output and standard error, in the order in which they come.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};

use super::printed_lines::{EntryPrinter, Wants};
use super::whole::WholeLines;
use crate::core::logfmt::entry::LoggedEntry;
use crate::sys::print::write_all;
use crate::types::limits;
use crate::types::stream::Stream;

/// Both outputs. After [`Output::rest`] nothing waits in the buffer.
#[derive(Debug)]
pub(crate) struct Output {
    lines: EntryPrinter,
    wants: Wants,
    /// Joins parts, for options that need whole lines.
    whole: Option<WholeLines>,
    buffer: Vec<u8>,
    /// The output of the buffer. Both may be one terminal or file, so their order matters.
    to: Stream,
    /// Whether a line was wanted.
    has_lines: bool,
}

impl Output {
    /// The outputs of this process.
    pub(crate) fn new(wants: Wants, whole: Option<WholeLines>) -> Self {
        let screens = [io::stdout().is_terminal(), io::stderr().is_terminal()];
        let lines = EntryPrinter::new(wants, screens);
        Self { lines, wants, whole, buffer: Vec::new(), to: Stream::Stdout, has_lines: false }
    }

    /// Prints an entry, if it is wanted.
    pub(crate) fn print(&mut self, entry: &LoggedEntry<'_>) -> Result<()> {
        match &mut self.whole {
            None => self.show(entry),
            Some(whole) => whole.add(entry, &self.wants).map_or(Ok(()), |line| self.show(&line)),
        }
    }

    fn show(&mut self, entry: &LoggedEntry<'_>) -> Result<()> {
        self.has_lines = true;
        self.turn_to(if self.wants.json { Stream::Stdout } else { entry.stream })?;
        if self.buffer.len() >= limits::LOG_READ {
            self.flush()?;
        }
        self.lines.print(entry, &mut self.buffer);
        Ok(())
    }

    /// Writes the buffer, and switches off the colours that the app left on at a terminal: more
    /// output may never come.
    pub(crate) fn rest(&mut self) -> Result<()> {
        let last = self.whole.as_mut().map(WholeLines::take_last).unwrap_or_default();
        last.iter().try_for_each(|line| self.show(line))?;
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.turn_to(stream)?;
            self.lines.rest(stream, &mut self.buffer);
        }
        self.flush()
    }

    /// Like [`Output::rest`], at the end of the log. Returns whether there was a line.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let wants = self.wants;
        let open = self.whole.as_mut().map(|whole| whole.finish(&wants)).unwrap_or_default();
        open.iter().try_for_each(|line| self.show(line))?;
        self.rest()?;
        Ok(self.has_lines)
    }

    fn turn_to(&mut self, stream: Stream) -> Result<()> {
        if stream != self.to {
            self.flush()?;
            self.to = stream;
        }
        Ok(())
    }

    /// Writes the buffer.
    fn flush(&mut self) -> Result<()> {
        let written = match self.to {
            Stream::Stderr => write_all(&io::stderr(), &self.buffer),
            _ => write_all(&io::stdout(), &self.buffer),
        };
        self.buffer.clear();
        written.with_context(|| format!("cannot write {}", self.to))
    }
}
