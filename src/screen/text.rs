//! Prints text on the screen.

use std::str::Utf8Chunk;

use unicode_width::UnicodeWidthChar;

use super::grid::Cell;
use super::model::Model;
use super::modes::ScreenModes;
use super::scan::SHIFT_IN;
use super::style::Attributes;

/// The line-drawing characters from `_` to `~`.
const LINES: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Where a word may be parted.
pub(super) const SOFT_HYPHEN: char = '\u{ad}';
/// Characters of one column that are printed at once.
const RUN: usize = 32;
/// Wide characters that one sequence repeats.
const WIDE_REPEATS: usize = 128;

impl Model {
    /// Prints text, and executes the control characters in it.
    pub(crate) fn print(&mut self, text: &[u8], modes: &mut ScreenModes) {
        let mut rest = text;
        while let Some(first) = rest.first() {
            let len = match first {
                b' '..=b'~' | 0x80.. => {
                    let len = printable_len(rest);
                    self.print_line(&rest[..len], modes);
                    len
                }
                b'\n' => {
                    let len = rest.iter().position(|byte| *byte != b'\n').unwrap_or(rest.len());
                    self.new_line(len, modes);
                    len
                }
                control => {
                    self.control_character(*control, modes);
                    1
                }
            };
            rest = &rest[len..];
        }
    }

    fn control_character(&mut self, control: u8, modes: &mut ScreenModes) {
        self.last = None;
        match control {
            b'\r' => self.return_carriage(modes),
            b'\x0b' | b'\x0c' => self.new_line(1, modes),
            b'\x08' => self.go_back(modes),
            b'\t' if !self.cursor.wraps => {
                let col = self.tabs.after(self.cursor.col).min(self.end(modes) - 1);
                self.go(self.cursor.row, col);
            }
            SHIFT_IN => modes.shift_in(),
            _ => {}
        }
    }

    fn new_line(&mut self, count: usize, modes: &ScreenModes) {
        self.last = None;
        self.line_feed(count, modes);
        if modes.returns_at_newline() {
            self.return_carriage(modes);
        }
    }

    fn go_back(&mut self, modes: &ScreenModes) {
        let (row, cols) = (self.cursor.row, self.cols);
        if ![0, self.margins(modes).start].contains(&self.cursor.col) {
            self.go(row, self.cursor.col - 1);
        } else if self.cursor.col == 0
            && row > 0
            && modes.goes_back_over_lines()
            && self.shown()[row - 1].wraps
        {
            self.go(row - 1, cols - 1);
        }
    }

    /// Prints text without control characters.
    fn print_line(&mut self, text: &[u8], modes: &ScreenModes) {
        let set = modes.charset();
        if set != b'B' {
            let mapped = |character| match (set, character) {
                (b'0', '_'..='~') => LINES[character as usize - '_' as usize],
                (b'A', '#') => '£',
                (_, other) => other,
            };
            let characters = text.utf8_chunks().flat_map(|chunk| characters(&chunk)).map(mapped);
            self.print_characters(characters, modes);
        } else if text.is_ascii() {
            let look = self.style.look;
            let cell = |at: usize| Cell { text: char::from(text[at]), look };
            self.print_run(text.len(), cell, modes);
            self.last = text.last().map(|byte| char::from(*byte));
        } else {
            self.print_characters(text.utf8_chunks().flat_map(|chunk| characters(&chunk)), modes);
        }
    }

    fn print_characters(&mut self, characters: impl Iterator<Item = char>, modes: &ScreenModes) {
        let look = self.style.look;
        let (mut run, mut len) = ([Cell::default(); RUN], 0);
        for text in characters {
            let width = width(text);
            if width == Some(1) && len < RUN {
                run[len] = Cell { text, look };
                len += 1;
                continue;
            }
            self.print_narrow(&run[..len], modes);
            len = 0;
            match width {
                // A control character.
                None => {}
                Some(0) => self.combine(text),
                Some(1) => (run[0], len) = (Cell { text, look }, 1),
                Some(_) => self.print_wide(text, modes),
            }
        }
        self.print_narrow(&run[..len], modes);
    }

    fn print_narrow(&mut self, cells: &[Cell], modes: &ScreenModes) {
        if let Some(last) = cells.last() {
            self.print_run(cells.len(), |at| cells[at], modes);
            self.last = Some(last.text);
        }
    }

    /// Prints characters of one column.
    fn print_run(&mut self, len: usize, cell: impl Fn(usize) -> Cell, modes: &ScreenModes) {
        let mut at = 0;
        while at < len {
            let room = self.room(modes);
            if len - at > room && !modes.wraps() {
                // The last column is overwritten again and again.
                self.print_cells((at..at + room - 1).map(&cell), modes);
                return self.print_cells((len - 1..len).map(&cell), modes);
            }
            let now = room.min(len - at);
            self.print_cells((at..at + now).map(&cell), modes);
            at += now;
        }
    }

    /// Prints a character again and again.
    pub(super) fn repeat(&mut self, character: char, count: usize, modes: &ScreenModes) {
        if width(character) == Some(1) {
            let cell = Cell { text: character, look: self.style.look };
            self.print_run(count, |_| cell, modes);
        } else {
            (0..count.min(WIDE_REPEATS)).for_each(|_| self.print_wide(character, modes));
        }
    }

    /// Columns after the cursor, in the next row if this one is full.
    fn room(&mut self, modes: &ScreenModes) -> usize {
        if self.cursor.wraps && modes.wraps() {
            self.wrap(modes);
        }
        self.cursor.wraps = false;
        self.end(modes) - self.cursor.col
    }

    fn wrap(&mut self, modes: &ScreenModes) {
        let margins = self.margins(modes);
        self.row().wraps = margins == (0..self.cols);
        self.line_feed(1, modes);
        self.go(self.cursor.row, margins.start);
    }

    /// Prints cells that fit.
    fn print_cells(&mut self, cells: impl ExactSizeIterator<Item = Cell>, modes: &ScreenModes) {
        let (col, cols, len) = (self.cursor.col, self.cols, cells.len());
        if modes.inserts() {
            self.shift(len, true, modes);
        }
        self.row().print(col, cells, cols);
        self.advance(len, modes);
    }

    /// A full row is full also without wrapping, which may be set before the next character.
    fn advance(&mut self, len: usize, modes: &ScreenModes) {
        let (col, end) = (self.cursor.col + len, self.end(modes));
        self.cursor.col = col.min(end - 1);
        self.cursor.wraps = col == end;
    }

    /// Prints a character of two columns.
    fn print_wide(&mut self, text: char, modes: &ScreenModes) {
        const WIDTH: usize = 2;
        let cell = Cell { text, look: self.style.look };
        self.last = Some(text);
        let room = self.room(modes);
        let (blank, cols) = (self.blank(), self.cols);
        if room < WIDTH {
            if !modes.wraps() {
                return;
            }
            let end = self.end(modes);
            self.row().erase(end - 1, end, blank, cols);
            self.wrap(modes);
        }
        let col = self.cursor.col;
        if modes.inserts() {
            self.shift(WIDTH, true, modes);
        }
        self.row().put_wide(col, cell, cols);
        self.advance(WIDTH, modes);
    }

    /// Adds a combining character to the one before the cursor.
    fn combine(&mut self, mark: char) {
        let wraps = usize::from(self.cursor.wraps);
        let Some(mut col) = (self.cursor.col + wraps).checked_sub(1) else { return };
        if self.row().cell(col).has(Attributes::TAIL) {
            col -= 1;
        }
        let cell = self.row().cell(col);
        if cell.is_erased() {
            return;
        }
        let mut extra = self.extras.get(cell.look.extra).cloned().unwrap_or_default();
        extra.add(mark);
        let number = self.number(extra);
        // It may be full, and what the cell has remains.
        if number != 0 {
            self.row().set_extra(col, number);
        }
    }
}

/// The columns of a character. Programs and most terminals give a soft hyphen one.
fn width(character: char) -> Option<usize> {
    if character == SOFT_HYPHEN { Some(1) } else { character.width() }
}

/// The characters of a part of the text, and the replacement of what is invalid after them.
fn characters<'a>(chunk: &Utf8Chunk<'a>) -> impl Iterator<Item = char> + use<'a> {
    let invalid = !chunk.invalid().is_empty();
    chunk.valid().chars().chain(invalid.then_some(char::REPLACEMENT_CHARACTER))
}

/// The length of the beginning without control characters.
fn printable_len(text: &[u8]) -> usize {
    let is_printable = |byte: &u8| *byte >= b' ' && *byte != 0x7f;
    let mut len = 0;
    for piece in text.chunks_exact(16) {
        // Without a branch for each byte.
        if !piece.iter().fold(true, |all, byte| all & is_printable(byte)) {
            break;
        }
        len += 16;
    }
    let rest = &text[len..];
    len + rest.iter().position(|byte| !is_printable(byte)).unwrap_or(rest.len())
}
