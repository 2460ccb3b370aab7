//! The bytes that draw a screen on any terminal.

use std::fmt::Write;

use super::extras::{Extra, Extras};
use super::grid::{Cell, Row};
use super::model::{CursorPlace, Model, StyledCursor};
use super::style::{Attributes, Colour, Look, Style};
use super::text::SOFT_HYPHEN;
use crate::types::size::Size;

/// The bytes that draw a screen of a model on a cleared one of this size, from the row `top` on.
/// They leave the cursor anywhere.
pub(crate) fn draw(model: &Model, of_main: bool, window: Size, top: usize) -> String {
    let (cols, screen) = (usize::from(model.size().cols), model.screen(of_main));
    let shown = cols.min(usize::from(window.cols));
    // A wrapped line is drawn so that the terminal wraps it, too.
    let same = shown == cols && cols == usize::from(window.cols);
    let mut pen = Pen::new(&model.extras);
    let end = screen.len().min(top + usize::from(window.rows));
    for row in top..end {
        let wraps = same && row > top && screen[row - 1].wraps;
        // Behind the last column of the row above.
        let goes_on = wraps && pen.at == Some((row - top).wrapping_sub(1)).map(|row| (row, cols));
        pen.row(&screen[row], row - top, shown, goes_on);
    }
    pen.plain();
    pen.out
}

/// The bytes that move the cursor to a row of the window (from 1) and select its look. On the screen
/// `top` is the first row that is shown, and columns count from behind this many.
pub(crate) fn put_cursor(
    model: &Model,
    of_main: bool,
    cursor: &StyledCursor,
    (window, top): (Size, usize),
    (row, before): (usize, usize),
) -> String {
    let cols = usize::from(model.size().cols);
    let mut pen = Pen::new(&model.extras);
    let CursorPlace { row: from, col, wraps } = cursor.at;
    let is_shown = from >= top && from - top < usize::from(window.rows);
    if wraps && is_shown && cols == usize::from(window.cols) {
        // After the last column: only drawing a character there moves the cursor to it.
        let shown = &model.screen(of_main)[from];
        let tail = shown.cell(col).has(Attributes::TAIL);
        let at = col - usize::from(tail);
        let _ = write!(pen.out, "\x1b[{row};{}H", (at + 1).saturating_sub(before).max(1));
        let cell = shown.cell(at);
        pen.print(Cell { text: if cell.is_erased() { ' ' } else { cell.text }, ..cell });
    } else {
        let col = col.min(usize::from(window.cols).saturating_sub(1));
        let _ = write!(pen.out, "\x1b[{row};{}H", (col + 1).saturating_sub(before).max(1));
    }
    pen.select(cursor.style.clone());
    pen.out
}

/// The bytes that set these tab stops, where a terminal of this width has them.
pub(crate) fn set_tabs(model: &Model, cols: u16) -> String {
    let mut out = String::new();
    if model.tabs.changed {
        out.push_str("\x1b[3g");
        for col in model.tabs.all().take_while(|col| *col < usize::from(cols)) {
            let _ = write!(out, "\x1b[{}G\x1bH", col + 1);
        }
    }
    out
}

/// Draws on a terminal, whose cursor and look it knows.
pub(crate) struct Pen<'a> {
    out: String,
    extras: &'a Extras,
    at: Option<(usize, usize)>,
    /// Without [`Look::extra`].
    style: Style,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(extras: &'a Extras) -> Self {
        Self::reusing(String::new(), extras)
    }

    /// With this memory for its bytes.
    pub(crate) fn reusing(mut out: String, extras: &'a Extras) -> Self {
        out.clear();
        Self { out, extras, at: None, style: Style::default() }
    }

    /// The bytes.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Selects the look of a cursor.
    pub(crate) fn choose(&mut self, style: &Style) {
        self.select(style.clone());
    }

    /// Prints a row on a line of its own, or the part of a line that it has. After it the look is
    /// the usual one.
    pub(crate) fn line(&mut self, row: &Row) {
        let is_blank = |cell: &&Cell| cell.is_erased() && (row.wraps || **cell == row.rest);
        let blank = row.cells.iter().rev().take_while(is_blank).count();
        for cell in &row.cells[..row.cells.len() - blank] {
            if cell.look == self.style.look && !cell.is_erased() {
                // The usual case. A look with extras differs from that of the pen.
                self.out.push(cell.text);
            } else if cell.is_erased() {
                self.select_look(Look { back: cell.look.back, ..Look::default() });
                self.out.push(' ');
            } else if !cell.has(Attributes::TAIL) {
                self.print(*cell);
            }
        }
        if !row.wraps && row.rest.is_erased() && row.rest.look != Look::default() {
            self.select_look(row.rest.look);
            self.out.push_str("\x1b[K");
        }
        self.plain();
        if !row.wraps {
            self.out.push_str("\r\n");
        }
    }

    /// Draws the first columns of a row. If it `goes_on`, the cursor is where printing wraps to it.
    fn row(&mut self, row: &Row, to: usize, shown: usize, goes_on: bool) {
        let mut col = 0;
        while col < shown {
            let cell = row.cell(col);
            if cell.is_erased() {
                let back = cell.look.back;
                let end = (col + 1..shown.min(row.cells.len())).find(|at| row.cells[*at] != cell);
                let same = col >= row.cells.len() || row.rest == cell;
                let end = end.unwrap_or(if same { shown } else { shown.min(row.cells.len()) });
                if back != Colour::DEFAULT {
                    self.go(to, col);
                    self.select_look(Look { back, ..Look::default() });
                    let _ = write!(self.out, "\x1b[{}X", end - col);
                }
                col = end;
                continue;
            }
            let width = if cell.has(Attributes::WIDE) { 2 } else { 1 };
            if col + width > shown {
                break;
            }
            if !(goes_on && col == 0) {
                self.go(to, col);
            }
            // Terminals disagree on the width of combined characters, and of soft hyphens.
            let is_clear = !self.print(cell) && cell.text != SOFT_HYPHEN;
            self.at = is_clear.then_some((to, col + width));
            col += width;
        }
    }

    /// Prints what is in a cell. Whether it has combining characters.
    fn print(&mut self, cell: Cell) -> bool {
        let nothing = Extra::default();
        let extra = self.extras.get(cell.look.extra).unwrap_or(&nothing);
        let (underline, link) = (extra.underline, extra.link.clone());
        self.select(Style { look: cell.look, underline, link });
        self.out.push(cell.text);
        self.out.push_str(&extra.marks);
        !extra.marks.is_empty()
    }

    fn go(&mut self, row: usize, col: usize) {
        if self.at != Some((row, col)) {
            let _ = write!(self.out, "\x1b[{};{}H", row + 1, col + 1);
            self.at = Some((row, col));
        }
    }

    fn plain(&mut self) {
        // Mostly it is.
        if self.style != Style::default() {
            self.select_look(Look::default());
        }
    }

    fn select_look(&mut self, look: Look) {
        self.select(Style { look, ..Style::default() });
    }

    fn select(&mut self, mut style: Style) {
        style.look.flags = style.look.flags.without(Attributes::WIDE | Attributes::TAIL);
        style.look.extra = 0;
        if self.style.link != style.link {
            let _ = write!(self.out, "\x1b]8;{}\x1b\\", style.link.as_deref().unwrap_or(";"));
        }
        let before = std::mem::replace(&mut self.style, style);
        let shown = |style: &Style| (style.look, style.underline);
        if shown(&before) == shown(&self.style) {
            return;
        }
        self.style.write(&mut self.out);
    }
}
