//! Printing lines on standard output and standard error, in the order in which they come.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};

use super::lines::{EntryPrinter, Wants};
use crate::logfmt::entry::LoggedEntry;
use crate::os::print::write_all;
use crate::types::limits;
use crate::types::stream::Stream;

/// Both outputs. Nothing is held back when [`Output::rest`] was called.
#[derive(Debug)]
pub(crate) struct Output {
    lines: EntryPrinter,
    buffer: Vec<u8>,
    /// Where the buffer belongs: the two may lead to the same place, where the order is seen.
    to: Stream,
}

impl Output {
    /// The outputs of this process, for what is wanted.
    pub(crate) fn new(wants: Wants) -> Self {
        let screens = [io::stdout().is_terminal(), io::stderr().is_terminal()];
        Self { lines: EntryPrinter::new(wants, screens), buffer: Vec::new(), to: Stream::Stdout }
    }

    /// Prints what is wanted of an entry.
    pub(crate) fn print(&mut self, entry: &LoggedEntry<'_>) -> Result<()> {
        self.turn_to(entry.stream)?;
        if self.buffer.len() >= limits::LOG_READ {
            self.flush()?;
        }
        self.lines.print(entry, &mut self.buffer);
        Ok(())
    }

    /// Writes what is waiting, and switches off what colours the app has left on at a terminal, for this
    /// may be the end.
    pub(crate) fn rest(&mut self) -> Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.turn_to(stream)?;
            self.lines.rest(stream, &mut self.buffer);
        }
        self.flush()
    }

    fn turn_to(&mut self, stream: Stream) -> Result<()> {
        if stream != self.to {
            self.flush()?;
            self.to = stream;
        }
        Ok(())
    }

    /// Writes what is waiting.
    fn flush(&mut self) -> Result<()> {
        let written = match self.to {
            Stream::Stderr => write_all(&io::stderr(), &self.buffer),
            _ => write_all(&io::stdout(), &self.buffer),
        };
        self.buffer.clear();
        written.with_context(|| format!("writing {}", self.to))
    }
}
