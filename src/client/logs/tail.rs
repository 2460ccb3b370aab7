//! Finds where the last lines of a log begin, from its end backwards.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use memchr::memrchr;

use super::log_files::Opened;
use super::printed_lines::{Wants, index};
use crate::core::logfmt::format;
use crate::types::limits;

/// Bytes that are searched backwards for the next part of the oldest line of `--tail`: parts of
/// other lines may lie between.
const LOG_PARTS: u64 = 1024 * 1024;

/// A position in a log: the number of a file, and an offset in it.
pub(crate) type FilePosition = (u64, u64);

/// Where to begin reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// The first wanted entry; `None` for the beginning of the log.
    pub(crate) at: Option<FilePosition>,
    /// Entries of a stream before this position belong to unwanted lines.
    pub(crate) streams: [FilePosition; 2],
}

/// The search's state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing.
    Nothing,
    /// The first of its wanted lines, which may begin further back.
    Line,
    /// Where the first of its lines begins.
    Beginning,
}

/// The start of the last `count` lines of the wanted streams, in the order of their ends.
pub(crate) fn find(files: &VecDeque<Opened>, count: usize, wants: &Wants) -> io::Result<Start> {
    let mut start = Start::default();
    if let (Some(newest), 0) = (files.back(), count) {
        let mut entries = Backwards::new(&newest.file)?;
        let end = entries.offset();
        // An entry without a line end is still to come.
        let unfinished = entries.previous()?.filter(|(_, line)| !line.ends_with(b"\n"));
        start.at = Some((newest.number, unfinished.map_or(end, |(offset, _)| offset)));
        return Ok(start);
    }
    let mut seen = [Seen::Nothing; 2];
    // The lines without an end come last: their ends are still to come.
    let mut unfinished = unfinished(files, wants)?;
    let mut lines = 0;
    for is_unfinished in unfinished.iter_mut().rev() {
        *is_unfinished &= lines < count;
        lines += usize::from(*is_unfinished);
    }
    // Bytes searched since there are enough lines, or since the last part of one of them.
    let mut beyond = 0;
    for opened in files.iter().rev() {
        let mut entries = Backwards::new(&opened.file)?;
        start.at.get_or_insert((opened.number, entries.offset()));
        while lines < count
            || (seen.contains(&Seen::Line) || unfinished.contains(&true)) && beyond < LOG_PARTS
        {
            let Some((offset, line)) = entries.previous()? else { break };
            if lines == count {
                beyond += line.len() as u64;
            }
            let Ok(entry) = format::parse(line) else { continue };
            if !wants.includes(entry.stream) {
                continue;
            }
            let stream = index(entry.stream);
            let begins_line = entry.ends || seen[stream] == Seen::Nothing;
            let is_counted = std::mem::take(&mut unfinished[stream]);
            seen[stream] = match (begins_line, seen[stream]) {
                _ if is_counted => Seen::Line,
                // Backwards, a line begins with its end.
                (true, Seen::Nothing | Seen::Line) if lines < count => {
                    lines += 1;
                    Seen::Line
                }
                (true, Seen::Nothing) => {
                    start.streams[stream] = (opened.number, offset + line.len() as u64);
                    Seen::Beginning
                }
                (true, _) => Seen::Beginning,
                (false, seen) => seen,
            };
            if seen[stream] == Seen::Line && !entry.ends {
                beyond = 0;
            }
            if seen[stream] == Seen::Line {
                start.at = Some((opened.number, offset));
                start.streams[stream] = (opened.number, offset);
            }
        }
        let is_found = !seen.contains(&Seen::Line) && !unfinished.contains(&true);
        if lines == count && (is_found || beyond >= LOG_PARTS) {
            return Ok(start);
        }
    }
    // The whole log was searched.
    Ok(Start { at: if lines < count { None } else { start.at }, ..start })
}

/// Whether the last line of each wanted stream has no end yet.
fn unfinished(files: &VecDeque<Opened>, wants: &Wants) -> io::Result<[bool; 2]> {
    let mut last = [None; 2];
    let mut searched = 0;
    for opened in files.iter().rev() {
        let mut entries = Backwards::new(&opened.file)?;
        while last.contains(&None) && searched < LOG_PARTS {
            let Some((_, line)) = entries.previous()? else { break };
            searched += line.len() as u64;
            let Ok(entry) = format::parse(line) else { continue };
            if wants.includes(entry.stream) {
                last[index(entry.stream)].get_or_insert(entry.ends);
            }
        }
    }
    Ok(last.map(|ends| ends == Some(false)))
}

/// The entries of a file, the last one first.
struct Backwards<'a> {
    file: &'a File,
    /// The file from `from` on; the bytes from `end` on are done.
    buffer: Vec<u8>,
    from: u64,
    end: usize,
}

impl<'a> Backwards<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        Ok(Self { file, buffer: Vec::new(), from: file.metadata()?.len(), end: 0 })
    }

    /// The offset behind the last entry.
    fn offset(&self) -> u64 {
        self.from + self.end as u64
    }

    /// The previous entry with its line end, and its offset. An entry that is far too long comes in
    /// pieces.
    fn previous(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let start = loop {
            let before = &self.buffer[..self.end.saturating_sub(1)];
            match memrchr(b'\n', before) {
                Some(at) => break at + 1,
                None if self.from == 0 || self.end > limits::LOG_ENTRY => break 0,
                None => self.extend()?,
            }
        };
        let line = start..self.end;
        self.end = start;
        Ok((!line.is_empty()).then(|| (self.from + start as u64, &self.buffer[line])))
    }

    /// Reads more before the buffer; twice as much each time, so that a long entry is not moved
    /// often.
    fn extend(&mut self) -> io::Result<()> {
        self.buffer.truncate(self.end);
        let len = self.buffer.len().max(limits::LOG_READ);
        let len = usize::try_from(self.from).map_or(len, |from| from.min(len));
        // Memory for both, so that it does not grow twice.
        let mut block = Vec::with_capacity(len + self.end);
        block.resize(len, 0);
        match self.file.read_exact_at(&mut block, self.from - len as u64) {
            // The file has just been truncated: nothing is before.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                (self.from, self.end) = (0, 0);
                self.buffer.clear();
                return Ok(());
            }
            read => read?,
        }
        self.from -= len as u64;
        self.end += len;
        block.append(&mut self.buffer);
        self.buffer = block;
        Ok(())
    }
}
