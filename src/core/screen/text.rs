//! Prints text on the screen.

use unicode_width::UnicodeWidthChar;

use super::grid::Cell;
use super::model::Model;
use super::modes::ScreenModes;
use super::scan::SHIFT_IN;
use super::style::Flags;

/// The line-drawing characters from `_` to `~`.
const LINES: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Wide characters that one sequence repeats.
const WIDE_REPEATS: usize = 256;

impl Model {
    /// Prints text, and executes the control characters in it.
    pub(crate) fn print(&mut self, text: &[u8], modes: &mut ScreenModes) {
        let mut rest = text;
        while let Some(first) = rest.first() {
            let len = match first {
                b' '..=b'~' => {
                    let len = ascii_len(rest);
                    self.print_ascii(&rest[..len], modes);
                    len
                }
                0x80.. => {
                    let len = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
                    for chunk in rest[..len].utf8_chunks() {
                        chunk.valid().chars().for_each(|c| self.print_character(c, modes));
                        if !chunk.invalid().is_empty() {
                            self.print_character(char::REPLACEMENT_CHARACTER, modes);
                        }
                    }
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
            b'\r' => self.go(self.cursor.row, 0),
            b'\n' | b'\x0b' | b'\x0c' => {
                self.line_feed(modes);
                if modes.returns_at_newline() {
                    self.go(self.cursor.row, 0);
                }
            }
            b'\x08' => self.go_back(modes),
            b'\t' if !self.cursor.wraps => {
                self.go(self.cursor.row, self.tabs.after(self.cursor.col));
            }
            SHIFT_IN => modes.shift_in(),
            _ => {}
        }
    }

    fn go_back(&mut self, modes: &ScreenModes) {
        let (row, cols) = (self.cursor.row, self.cols);
        if self.cursor.col > 0 {
            self.go(row, self.cursor.col - 1);
        } else if row > 0 && modes.goes_back_over_lines() && self.shown()[row - 1].wraps {
            self.go(row - 1, cols - 1);
        }
    }

    fn print_ascii(&mut self, text: &[u8], modes: &ScreenModes) {
        let mapped = |byte: &u8| modes.draws_lines() && (b'_'..=b'~').contains(byte);
        if text.iter().any(mapped) {
            for byte in text {
                let line = LINES.get(usize::from(*byte).wrapping_sub(usize::from(b'_')));
                self.print_character(line.copied().unwrap_or(char::from(*byte)), modes);
            }
            return;
        }
        let look = self.style.look;
        let as_cell = |byte: &u8| Cell { text: char::from(*byte), look };
        let mut rest = text;
        while !rest.is_empty() {
            let room = self.room(modes);
            if rest.len() > room && !modes.wraps() {
                // The last column is overwritten again and again.
                let (now, last) = (&rest[..room - 1], &rest[rest.len() - 1..]);
                self.print_cells(now.iter().map(as_cell), modes);
                self.print_cells(last.iter().map(as_cell), modes);
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            self.print_cells(now.iter().map(as_cell), modes);
            rest = later;
        }
        self.last = text.last().map(|byte| char::from(*byte));
    }

    /// Prints a character again and again.
    pub(super) fn repeat(&mut self, character: char, count: usize, modes: &ScreenModes) {
        if character.width() != Some(1) {
            (0..count.min(WIDE_REPEATS)).for_each(|_| self.print_character(character, modes));
            return;
        }
        let cell = Cell { text: character, look: self.style.look };
        let mut left = count;
        while left > 0 {
            let now = left.min(self.room(modes));
            self.print_cells(std::iter::repeat_n(cell, now), modes);
            left -= now;
        }
    }

    /// Columns after the cursor, in the next row if this one is full.
    fn room(&mut self, modes: &ScreenModes) -> usize {
        if self.cursor.wraps && modes.wraps() {
            self.wrap(modes);
        }
        self.cursor.wraps = false;
        self.cols - self.cursor.col
    }

    fn wrap(&mut self, modes: &ScreenModes) {
        self.row().wraps = true;
        self.line_feed(modes);
        self.go(self.cursor.row, 0);
    }

    /// Prints cells that fit.
    fn print_cells(&mut self, cells: impl ExactSizeIterator<Item = Cell>, modes: &ScreenModes) {
        let (col, cols, len) = (self.cursor.col, self.cols, cells.len());
        let (blank, inserts) = (self.blank(), modes.inserts());
        let protected = self.style.look.flags.has(Flags::PROTECTED);
        let row = self.row();
        if inserts {
            row.insert(col, len, blank, cols);
        }
        row.print(col, cells, cols);
        row.is_protected |= protected;
        self.advance(len, modes);
    }

    fn advance(&mut self, len: usize, modes: &ScreenModes) {
        let col = self.cursor.col + len;
        self.cursor.col = col.min(self.cols - 1);
        self.cursor.wraps = col == self.cols && modes.wraps();
    }

    fn print_character(&mut self, character: char, modes: &ScreenModes) {
        let width = match character.width() {
            // A control character.
            None => return,
            Some(0) => return self.combine(character),
            Some(width) => width,
        };
        let look = self.style.look;
        let cell = Cell { text: character, look };
        self.last = Some(character);
        let room = self.room(modes);
        if width == 1 {
            return self.print_cells(std::iter::once(cell), modes);
        }
        let (blank, cols) = (self.blank(), self.cols);
        if room < width {
            if !modes.wraps() {
                return;
            }
            self.row().erase(cols - 1, cols, blank, cols);
            self.wrap(modes);
        }
        let col = self.cursor.col;
        let row = self.row();
        if modes.inserts() {
            row.insert(col, width, blank, cols);
        }
        row.put_wide(col, cell, cols);
        row.is_protected |= look.flags.has(Flags::PROTECTED);
        self.advance(width, modes);
    }

    /// Adds a combining character to the one before the cursor.
    fn combine(&mut self, mark: char) {
        let wraps = usize::from(self.cursor.wraps);
        let Some(mut col) = (self.cursor.col + wraps).checked_sub(1) else { return };
        if self.row().cell(col).has(Flags::TAIL) {
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

/// The length of the printable ASCII characters at the beginning.
fn ascii_len(text: &[u8]) -> usize {
    let is_printable = |byte: &u8| byte.wrapping_sub(b' ') < b'\x7f' - b' ';
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
