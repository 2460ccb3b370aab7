//! The last lines that scrolled off the main screen, as bytes that print them on any terminal.
//!
//! A row is drawn when it scrolls off. Text that scrolls away at once is kept as the app wrote it,
//! which costs a copy. Invariant: at most [`limits::SCROLLBACK`] bytes and some chunks, and each
//! chunk begins and ends with the usual look.

use std::collections::VecDeque;

use memchr::{memchr, memchr_iter, memrchr};

use super::draw::Pen;
use super::extras::Extras;
use super::flood;
use super::grid::Row;
use super::model::Model;
use super::modes::ScreenModes;
use super::scan::{ESC, Piece, Scanner};
use super::style::Style;
use super::transcript::LINE;
use crate::types::limits;

/// Bytes after which a chunk is full: lines are forgotten in chunks, and their memory is reused.
const CHUNK: usize = 16 * 1024;
/// A control character that is not repeated.
const BELL: u8 = 0x07;

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Lines that end in it.
    lines: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scrollback {
    /// Oldest first.
    chunks: VecDeque<Block>,
    /// Sums over all chunks.
    lines: usize,
    bytes: usize,
    /// The most lines.
    pub(crate) keeps: usize,
    /// Memory for drawing a row.
    drawn: String,
    /// Lines that have ever ended in it.
    pub(crate) ended: u64,
}

impl Scrollback {
    /// Adds a row of the screen, without the end of a line if that continues.
    pub(crate) fn push(&mut self, row: &Row, extras: &Extras) {
        if self.keeps == 0 {
            return;
        }
        let mut pen = Pen::reusing(std::mem::take(&mut self.drawn), extras);
        pen.line(row);
        let drawn = pen.finish();
        self.add(&[drawn.as_bytes()], usize::from(!row.wraps));
        self.drawn = drawn;
    }

    /// Adds text, new lines and looks, which begin with this style.
    pub(crate) fn push_text(&mut self, text: &[u8], style: &Style, extras: &Extras) {
        if self.keeps == 0 {
            return;
        }
        let mut pen = Pen::reusing(std::mem::take(&mut self.drawn), extras);
        pen.choose(style);
        let drawn = pen.finish();
        let is_plain = drawn.is_empty() && memchr(ESC, text).is_none();
        let end: &[u8] = if is_plain { b"" } else { b"\x1b[m" };
        self.add(&[drawn.as_bytes(), text, end], memchr_iter(b'\n', text).count());
        self.drawn = drawn;
    }

    /// Adds bytes that end so many lines.
    fn add(&mut self, parts: &[&[u8]], lines: usize) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.chunks.back().is_none_or(|last| last.bytes.len() + len > CHUNK) {
            let next = self.forget().unwrap_or_default();
            self.chunks.push_back(next);
        }
        let Some(last) = self.chunks.back_mut() else { return };
        if last.bytes.capacity() < last.bytes.len() + len {
            let wanted = (last.bytes.len() + len).max(2 * last.bytes.capacity().min(CHUNK / 2));
            last.bytes.reserve_exact(wanted - last.bytes.len());
        }
        for part in parts {
            last.bytes.extend_from_slice(part);
        }
        last.lines += lines;
        self.lines += lines;
        self.ended += lines as u64;
        self.bytes += len;
    }

    /// Drops the oldest chunks that are not needed. Returns an empty one of these.
    fn forget(&mut self) -> Option<Block> {
        let mut free = None;
        while let Some(first) = self.chunks.front()
            && (self.lines - first.lines >= self.keeps || self.bytes > limits::SCROLLBACK)
        {
            self.lines -= first.lines;
            self.bytes -= first.bytes.len();
            free = self.chunks.pop_front();
        }
        let Block { mut bytes, .. } = free?;
        bytes.clear();
        bytes.shrink_to(CHUNK);
        Some(Block { bytes, lines: 0 })
    }

    /// Takes the lines that have ended: the number of the first one, and their text. A line without an
    /// end stays, unless it is very long.
    pub(crate) fn take(&mut self) -> (u64, String) {
        let mut all: Vec<u8> = Vec::with_capacity(self.bytes);
        self.chunks.iter().for_each(|chunk| all.extend_from_slice(&chunk.bytes));
        let first = self.ended - self.lines as u64;
        let begun = memrchr(b'\n', &all).map_or(0, |at| at + 1);
        let rest = if all.len() - begun < LINE { all.split_off(begun) } else { Vec::new() };
        if all.last().is_some_and(|last| *last != b'\n') {
            all.push(b'\n');
            self.ended += 1;
        }
        self.clear();
        if !rest.is_empty() {
            self.add(&[&rest], 0);
        }
        (first, plain_text(&all))
    }

    /// The text of the line that has no end.
    pub(crate) fn begun(&self) -> String {
        let last = self.chunks.iter().flat_map(|chunk| &chunk.bytes).copied().collect::<Vec<u8>>();
        plain_text(&last[memrchr(b'\n', &last).map_or(0, |at| at + 1)..])
    }

    /// Forgets all lines.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        (self.lines, self.bytes) = (0, 0);
    }

    /// The bytes that print the lines and then these rows. The last line ends.
    pub(crate) fn print<'a>(
        &self,
        rows: impl Iterator<Item = &'a Row>,
        extras: &Extras,
    ) -> Vec<u8> {
        let mut pen = Pen::new(extras);
        rows.for_each(|row| pen.line(row));
        let rows = pen.finish();
        let mut out = Vec::with_capacity(self.bytes + rows.len());
        self.chunks.iter().for_each(|chunk| out.extend_from_slice(&chunk.bytes));
        out.extend_from_slice(rows.as_bytes());
        let mut ends = memchr_iter(b'\n', &out).rev().skip(self.keeps);
        if let Some(end) = ends.next() {
            let gone: Vec<u8> = out.drain(..=end).collect();
            let looks = flood::looks(&gone).flat_map(|numbers| [b"\x1b[", numbers, b"m"].concat());
            out.splice(..0, looks);
        }
        out.retain(|byte| *byte != BELL);
        let last = memrchr(b'\n', &out).map_or(0, |at| at + 1);
        if !is_plain_end(&out[last..]) {
            out.extend_from_slice(b"\r\n");
        }
        out
    }
}

impl Model {
    /// The first rows of the main screen leave it.
    pub(super) fn scroll_off(&mut self, count: usize) {
        let Self { screens, above, history, extras, keeps, stale, .. } = self;
        let replaced = count.min(*stale);
        *stale -= replaced;
        let gone = &mut screens[0][replaced..count];
        if *keeps == 0 {
            for row in gone {
                history.push(row, extras);
            }
            return;
        }
        above.extend(gone.iter_mut().map(std::mem::take));
        let surplus = above.len().saturating_sub(*keeps);
        above.drain(..surplus).for_each(|row| history.push(&row, extras));
    }

    /// Whether text that scrolls away becomes history.
    pub(crate) fn keeps_history(&self) -> bool {
        self.history.keeps > 0 && !self.is_alternate
    }

    /// Whether the terminal shows text as another one would that has the usual modes.
    pub(crate) fn is_usual(&self, modes: &ScreenModes) -> bool {
        let is_other = modes.charset() != b'B' || modes.inserts() || modes.returns_at_newline();
        !is_other && self.style.link.is_none()
    }

    /// This text scrolls away. The cursor is at the beginning of the last row.
    pub(crate) fn keep_flood(&mut self, text: &[u8]) {
        let Self { screens, above, history, extras, style, stale, rows, .. } = self;
        let shown = &mut screens[0][..*rows - 1];
        above.drain(..).for_each(|row| history.push(&row, extras));
        for row in &shown[*stale..] {
            history.push(row, extras);
        }
        *stale = shown.len();
        history.push_text(text, style, extras);
    }

    /// The bytes that print the lines above this row of the main screen.
    pub(crate) fn lines_above(&self, row: usize) -> Vec<u8> {
        let rows = self.above.iter().chain(&self.screens[0][..row]);
        self.history.print(rows, &self.extras)
    }

    /// The rows of the main screen with text.
    pub(crate) fn used_rows(&self) -> usize {
        self.screens[0].iter().rposition(|row| !row.is_blank()).map_or(0, |last| last + 1)
    }
}

/// Whether nothing is printed after the last line.
fn is_plain_end(rest: &[u8]) -> bool {
    rest.is_empty() || rest == b"\x1b[m"
}

/// What is left of printed lines for a reader of text: the text, and the colours.
pub(crate) fn plain_lines(printed: &[u8]) -> Vec<u8> {
    let (mut out, mut scanner, mut at) = (Vec::new(), Scanner::default(), 0);
    while let Some(piece) = scanner.next(printed, &mut at) {
        match piece {
            Piece::Text(text) => out.extend(text.iter().filter(|byte| **byte != b'\r')),
            Piece::Sequence(raw @ [ESC, b'[', .., b'm']) => out.extend_from_slice(raw),
            _ => {}
        }
    }
    out
}

/// What is left of printed lines for a program: the text.
fn plain_text(printed: &[u8]) -> String {
    let (mut out, mut scanner, mut at) = (Vec::new(), Scanner::default(), 0);
    while let Some(piece) = scanner.next(printed, &mut at) {
        if let Piece::Text(text) = piece {
            out.extend(text.iter().filter(|byte| **byte == b'\n' || !byte.is_ascii_control()));
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
