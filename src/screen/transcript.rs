//! What an app prints as lines of text, without control sequences: those of a terminal as its
//! [`Screen`] has them, in the app's width, and those of a pipe as they are. No I/O, no clock.
//!
//! A line of a terminal is the rows over which it wraps. It is handed on when it scrolls off, or when the
//! cursor stands below it while the app is [quiet](Lines::settle): what an editor shows below the line
//! that is typed, and takes away again, never is. Nor is what is on the alternate screen.

use std::collections::VecDeque;
use std::ops::Range;

use super::Screen;
use super::extras::Extras;
use super::grid::{Cell, Row};
use super::scan::{ESC, Piece, Scanner};
use super::style::Attributes;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// Bytes of a line from which on it counts as several: an app may print without an end, and each
/// read looks at the whole line.
pub(super) const LINE: usize = 16 * 1024;
/// Cells that sequences have looked at in one read: some have three bytes, and a screen has 128 KiB.
const LOOKED: usize = 32 * limits::CELLS;
/// Lines that one read may scroll off the screen, and the screen itself.
const SCROLLED: usize = 128 * 1024;
/// The window in which output is read whose window is not known: what was wrapped is one row.
const WIDE: Size = Size { rows: 100, cols: 1000 };
/// How the marks of a shell begin (OSC 133).
const MARK: &[u8] = b"\x1b]133;";

/// Output as somebody reads it; at last a full screen, if it ends in one.
pub(crate) fn readable(stream: Stream, output: &str) -> String {
    let mut lines = Lines::of(stream, None);
    let mut parts = lines.feed(output.as_bytes(), 0);
    parts.extend(lines.settle());
    let whole = parts.into_iter().filter_map(|(part, _)| match part {
        LinePart::Line(line) => Some(line + "\n"),
        LinePart::Begun | LinePart::Ended(_) => None,
    });
    let whole = whole.collect::<String>() + &lines.open_line();
    match lines {
        Lines::Terminal(lines) if lines.screen.state.model.is_alternate => {
            whole + &lines.screen.shown().lines()
        }
        _ => whole,
    }
}

/// Parts of the output, each with the offset of its end.
pub(crate) type LineParts = Vec<(LinePart, u64)>;

/// A part of the output, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinePart {
    /// A line, without its end.
    Line(String),
    /// A shell begins to run a command.
    Begun,
    /// A command of a shell has ended, with this status if the shell tells.
    Ended(Option<u8>),
}

/// The lines of an output.
pub(crate) enum Lines {
    /// Of a terminal.
    Terminal(Box<Transcript>),
    /// Of a pipe.
    Pipe(Box<PipeLines>),
}

impl Lines {
    /// Takes bytes, of which the first one has this offset, and hands on the parts that are whole with them.
    /// The marks of a command end the line before them.
    pub(crate) fn feed(&mut self, bytes: &[u8], offset: u64) -> LineParts {
        match self {
            Self::Terminal(lines) => lines.feed(bytes, offset),
            Self::Pipe(lines) => lines.feed(bytes, offset),
        }
    }

    /// The app is quiet: hands on the lines above the cursor.
    pub(crate) fn settle(&mut self) -> LineParts {
        match self {
            Self::Terminal(lines) => lines.settle(),
            Self::Pipe(_) => Vec::new(),
        }
    }

    /// Whether lines wait for the app to be quiet.
    pub(crate) fn settles(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Those of this output, from what this screen shows.
    pub(crate) fn of(stream: Stream, screen: Option<Screen>) -> Self {
        if stream != Stream::Tty {
            return Self::Pipe(Box::default());
        }
        Self::Terminal(Box::new(Transcript::new(screen.unwrap_or_else(|| Screen::new(WIDE)))))
    }

    /// The terminal has this size now.
    pub(crate) fn resize(&mut self, size: Size) {
        if let Self::Terminal(lines) = self {
            lines.screen.resize(size);
        }
    }

    /// The line that is not whole: that of the cursor, up to there at least.
    pub(crate) fn open_line(&self) -> String {
        match self {
            Self::Terminal(lines) => lines.open_line(),
            Self::Pipe(lines) => text_of(&lines.line),
        }
    }

    /// What of it stands before the cursor.
    pub(crate) fn before_cursor(&self) -> String {
        match self {
            Self::Terminal(lines) => lines.open_part(&lines.before_cursor()),
            Self::Pipe(lines) => text_of(&lines.line),
        }
    }

    /// What of it stands behind the cursor.
    pub(crate) fn behind_cursor(&self) -> String {
        match self {
            Self::Terminal(lines) => lines.behind_cursor(),
            Self::Pipe(_) => String::new(),
        }
    }
}

/// The lines of a terminal.
pub(crate) struct Transcript {
    screen: Screen,
    /// Finds the sequences at which lines are looked at.
    scanner: Scanner,
    /// The number of the first line that is not handed on.
    next: u64,
    /// The number of the first line that the cursor has not passed, and where it passed those before.
    passing: u64,
    passed: VecDeque<(u64, u64)>,
    /// The offset of the next byte.
    at: u64,
    /// The line that a mark has ended, and its text so far, which is handed on.
    marked: Option<(u64, String)>,
}

impl Transcript {
    /// Goes on from what this screen shows.
    pub(crate) fn new(screen: Screen) -> Self {
        let screen = screen.keeping(SCROLLED);
        let mut lines = Self {
            screen,
            scanner: Scanner::default(),
            next: 0,
            passing: 0,
            passed: VecDeque::new(),
            at: 0,
            marked: None,
        };
        lines.next = lines.cursor_line();
        lines.passing = lines.next;
        lines
    }

    fn feed(&mut self, bytes: &[u8], offset: u64) -> LineParts {
        let (mut parts, mut at, mut done) = (Vec::new(), 0, 0);
        self.at = offset;
        let size = self.screen.size();
        let mut looks = 0..LOOKED / (usize::from(size.rows) * usize::from(size.cols)).max(1);
        // The scanner lends a piece of itself.
        let mut scanner = std::mem::take(&mut self.scanner);
        while let Some(piece) = scanner.next(bytes, &mut at) {
            match piece {
                Piece::Text(text) => {
                    for end in memchr::memchr_iter(b'\n', text) {
                        let end = at - text.len() + end + 1;
                        self.process(&bytes[done..end]);
                        done = end;
                        let line = self.cursor_line();
                        while self.passing < line {
                            self.passed.push_back((self.passing, self.at));
                            self.passing += 1;
                        }
                    }
                }
                Piece::Sequence(sequence) => {
                    if let Some(mark) = sequence.strip_prefix(MARK).and_then(mark) {
                        self.process(&bytes[done..at]);
                        done = at;
                        if looks.next().is_some() {
                            parts.extend(self.settle());
                            parts.extend(self.end_line());
                        }
                        parts.push((mark, self.at));
                    } else if begins_anew(sequence) && looks.next().is_some() {
                        let begin = at.saturating_sub(sequence.len()).max(done);
                        self.process(&bytes[done..begin]);
                        parts.extend(self.settle());
                        self.process(&bytes[begin..at]);
                        done = at;
                        // What follows is new, though it may stand where something was.
                        self.next = self.next.min(self.cursor_line());
                        self.passing = self.next;
                    }
                }
                Piece::Control(_) | Piece::Opaque(_) => {}
            }
        }
        self.scanner = scanner;
        self.process(&bytes[done..]);
        parts.extend(self.hand_on(0));
        parts
    }

    /// Hands on the lines above the cursor.
    fn settle(&mut self) -> LineParts {
        let cursor = self.cursor_line();
        let parts = self.hand_on(cursor);
        // What the cursor has left again is not passed.
        self.passed.clear();
        self.passing = cursor.max(self.next);
        parts
    }

    fn process(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.at += bytes.len() as u64;
    }

    /// Hands on the lines that have scrolled off, and those before this one.
    fn hand_on(&mut self, end: u64) -> LineParts {
        let mut parts = Vec::new();
        let (first, scrolled) = self.screen.state.model.history.take();
        for (number, line) in (first..).zip(scrolled.split_terminator('\n')) {
            if number == self.next {
                parts.push(self.passed(number, line));
            }
        }
        self.next = self.next.max(self.screen.state.model.history.ended);
        while self.next < end {
            let line = self.line(self.next);
            parts.push(self.passed(self.next, &line));
        }
        parts
    }

    /// The next line, which is handed on.
    fn passed(&mut self, number: u64, line: &str) -> (LinePart, u64) {
        while self.passed.front().is_some_and(|(passed, _)| *passed < number) {
            self.passed.pop_front();
        }
        let passed = self.passed.front().filter(|(passed, _)| *passed == number);
        let end = passed.map_or(self.at, |(_, at)| *at);
        self.next = number + 1;
        (LinePart::Line(self.unmarked(number, line).trim_end().to_owned()), end)
    }

    /// A mark ends the line of the cursor.
    fn end_line(&mut self) -> Option<(LinePart, u64)> {
        let (number, open) = (self.cursor_line(), self.open_line());
        if open.trim_end().is_empty() {
            return None;
        }
        self.marked = Some((number, self.line(number)));
        Some((LinePart::Line(open), self.at))
    }

    /// The part of a line that no mark has ended.
    fn unmarked<'l>(&self, number: u64, line: &'l str) -> &'l str {
        let before = self.marked.as_ref().filter(|(marked, _)| *marked == number);
        let rest = before.and_then(|(_, before)| line.strip_prefix(before.as_str()));
        rest.unwrap_or(line)
    }

    /// The rows of the main screen, and the number of that of its cursor.
    fn rows(&self) -> (impl Iterator<Item = &Row>, usize) {
        let model = &self.screen.state.model;
        let at = if model.is_alternate { model.saved(true).at } else { model.cursor };
        (model.above.iter().chain(&model.screens[0]), model.above.len() + at.row)
    }

    /// The number of the line of the cursor.
    fn cursor_line(&self) -> u64 {
        let (rows, cursor) = self.rows();
        let above = rows.take(cursor).filter(|row| !row.wraps).count();
        self.screen.state.model.history.ended + above as u64
    }

    /// The rows of a line on the screen: the number of the first one, and of that behind the last one.
    fn rows_of(&self, number: u64) -> Range<usize> {
        let mut line = self.screen.state.model.history.ended;
        let mut range = 0..0;
        for (row, at) in self.rows().0.zip(0..) {
            range.end = at + 1;
            if !row.wraps {
                if line == number {
                    break;
                }
                line += 1;
                range.start = at + 1;
            }
        }
        range
    }

    /// The text of a line on the screen.
    fn line(&self, number: u64) -> String {
        self.text(number, None).trim_end().to_owned()
    }

    /// The text of the cursor's line up to the cursor.
    fn before_cursor(&self) -> String {
        let at = self.screen.state.model.cursor;
        self.text(self.cursor_line(), Some(at.col + usize::from(at.wraps)))
    }

    /// The text of a line, or of that of the cursor up to this column in the cursor's row.
    fn text(&self, number: u64, until: Option<usize>) -> String {
        let model = &self.screen.state.model;
        let Range { start, mut end } = self.rows_of(number);
        let (rows, cursor) = self.rows();
        if until.is_some() {
            end = cursor + 1;
        }
        let mut text = String::new();
        if number == model.history.ended {
            text += &model.history.begun();
        }
        for (row, at) in rows.zip(0..).take(end).skip(start) {
            let col = until.filter(|_| at == cursor).unwrap_or(row.cells.len());
            add_text(&mut text, row, col, &model.extras);
        }
        text
    }

    fn open_line(&self) -> String {
        let (line, before) = (self.line(self.cursor_line()), self.before_cursor());
        self.open_part(if line.len() < before.len() { &before } else { &line })
    }

    /// What of the text of the cursor's line is not handed on.
    fn open_part(&self, text: &str) -> String {
        let number = self.cursor_line();
        if self.screen.state.model.is_alternate || number < self.next {
            return String::new();
        }
        self.unmarked(number, text).to_owned()
    }

    fn behind_cursor(&self) -> String {
        let line = self.line(self.cursor_line());
        line.strip_prefix(self.before_cursor().as_str()).unwrap_or_default().trim().to_owned()
    }
}

/// Adds the text of a row up to this cell.
fn add_text(text: &mut String, row: &Row, end: usize, extras: &Extras) {
    let shown = |cell: &Cell| !cell.has(Attributes::TAIL);
    let mut last = None;
    for cell in (0..end).map(|col| row.cell(col)).filter(shown) {
        text.push(if cell.text == '\0' { ' ' } else { cell.text });
        if let Some(extra) = extras.get(cell.look.extra) {
            text.push_str(&extra.marks);
        }
        last = Some(cell).filter(|cell| cell.text != ' ').or(last);
    }
    // Shells mark output without a line end, and fill the row: zsh by % or #, fish by an arrow.
    let is_full = end == row.cells.len() && row.cells.last().is_some_and(|cell| cell.text == ' ');
    let is_mark = |cell: &Cell| match cell.text {
        '%' | '#' => cell.has(Attributes::INVERSE),
        '\u{23ce}' => true,
        _ => false,
    };
    if let Some(mark) = last.filter(is_mark).filter(|_| is_full) {
        let whole = text.trim_end();
        text.truncate(whole.strip_suffix(mark.text).map_or(whole.len(), str::len));
    }
}

/// Whether a sequence begins a page: it goes to the top left, erases the screen, or resets the terminal.
fn begins_anew(sequence: &[u8]) -> bool {
    let Some(control) = sequence.strip_prefix(b"\x1b[") else { return sequence == [ESC, b'c'] };
    match control {
        b"2J" | b"3J" => true,
        [row @ .., b'H' | b'f'] => {
            let row = row.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(row, b"" | b"0" | b"1")
        }
        // A scroll region goes home, too.
        [numbers @ .., b'r'] => numbers.iter().all(|byte| b"0123456789;".contains(byte)),
        _ => false,
    }
}

/// A mark of a command, for example `D;0` with the end of its sequence.
fn mark(text: &[u8]) -> Option<LinePart> {
    let text = text.split(u8::is_ascii_control).next()?;
    let mut fields = text.split(|byte| *byte == b';');
    match fields.next()? {
        b"C" => Some(LinePart::Begun),
        b"D" => {
            let status = fields.next().map(String::from_utf8_lossy);
            Some(LinePart::Ended(status.and_then(|status| status.parse().ok())))
        }
        _ => None,
    }
}

/// The lines of a pipe.
#[derive(Debug, Default)]
pub(crate) struct PipeLines {
    scanner: Scanner,
    line: Vec<u8>,
    /// A return was the last byte: what follows replaces the line.
    returned: bool,
}

impl PipeLines {
    fn feed(&mut self, bytes: &[u8], offset: u64) -> LineParts {
        let Self { scanner, line, returned } = self;
        let (mut parts, mut end) = (Vec::new(), offset);
        let pieces = bytes.split_inclusive(|byte| *byte == b'\n');
        for piece in pieces.flat_map(|piece| piece.chunks(LINE)) {
            end += piece.len() as u64;
            let whole = piece.strip_suffix(b"\n");
            let mut at = 0;
            while let Some(found) = scanner.next(whole.unwrap_or(piece), &mut at) {
                let Piece::Text(text) = found else { continue };
                for byte in text {
                    if *byte == b'\r' {
                        *returned = true;
                        continue;
                    }
                    if std::mem::take(returned) {
                        line.clear();
                    }
                    line.push(*byte);
                }
            }
            if whole.is_some() {
                *returned = false;
                // A sequence without an end does not hide the next lines.
                if !scanner.is_in_text() {
                    *scanner = Scanner::default();
                }
            }
            if whole.is_some() || line.len() >= LINE {
                parts.push((LinePart::Line(text_of(&std::mem::take(line))), end));
            }
        }
        parts
    }
}

/// Without control characters.
fn text_of(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().filter(|c| *c == '\t' || !c.is_control()).collect()
}

#[cfg(test)]
mod tests;
