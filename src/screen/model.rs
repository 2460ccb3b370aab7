//! The screen of a terminal: its cells, its cursor, and what control sequences do to them.
//!
//! It receives complete sequences and characters. [`text`](super::text) prints, and
//! [`ScreenModes`] has the modes. Memory: see [`limits::CELLS`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::extras::{Extra, Extras};
use super::grid::{Cell, Row, scroll, scroll_columns};
use super::history::Scrollback;
use super::modes::ScreenModes;
use super::reflow::{CellPosition, reflow};
use super::scan::{Control, ESC};
use super::style::Style;
use super::tabs::TabStops;
use crate::types::limits;
use crate::types::size::Size;

/// Most rows of that model. With it and [`MODEL_COLS`] no sequence takes more than some
/// microseconds.
const MODEL_ROWS: u16 = 500;
/// Fewest and most columns of that model: a wide character takes two.
const MODEL_COLS: std::ops::RangeInclusive<u16> = 2..=1000;
/// Characters that one sequence repeats (`CSI … b`): more than a row has.
const REPEATS: u16 = 1024;

/// Where the next character goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CursorPlace {
    pub(crate) row: usize,
    pub(crate) col: usize,
    /// The row is full: the next character goes to the next row.
    pub(crate) wraps: bool,
}

/// A cursor, and the look of what it prints.
#[derive(Clone, Debug, Default)]
pub(crate) struct StyledCursor {
    pub(crate) at: CursorPlace,
    pub(crate) style: Style,
}

/// See the module.
pub(crate) struct Model {
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// The main and the alternate screen.
    pub(super) screens: [Vec<Row>; 2],
    pub(super) is_alternate: bool,
    /// Rows above the main screen, see [`Model::keeps`].
    pub(super) above: VecDeque<Row>,
    /// The most rows above. While the window is smaller than it was, rows that no longer fit are
    /// kept, so that they are there again when the client with the small window has gone.
    pub(super) keeps: usize,
    pub(crate) history: Scrollback,
    /// Rows at the top of the main screen that a flood has replaced: it follows.
    pub(super) stale: usize,
    /// The last large window.
    largest: Size,
    pub(super) cursor: CursorPlace,
    pub(super) style: Style,
    /// For each screen.
    saved: [StyledCursor; 2],
    pub(crate) tabs: TabStops,
    pub(crate) extras: Extras,
    /// The character that can be repeated.
    pub(super) last: Option<char>,
}

impl Model {
    /// An empty screen.
    pub(crate) fn new(size: Size) -> Self {
        let size = bounded(size);
        let (rows, cols) = (usize::from(size.rows), usize::from(size.cols));
        Self {
            rows,
            cols,
            screens: [vec![Row::default(); rows], Vec::new()],
            is_alternate: false,
            above: VecDeque::new(),
            keeps: 0,
            history: Scrollback::default(),
            stale: 0,
            largest: size,
            cursor: CursorPlace::default(),
            style: Style::default(),
            saved: [StyledCursor::default(), StyledCursor::default()],
            tabs: TabStops::new(cols),
            extras: Extras::default(),
            last: None,
        }
    }

    /// The size of the model.
    pub(crate) fn size(&self) -> Size {
        let number = |n| u16::try_from(n).unwrap_or(u16::MAX);
        Size { rows: number(self.rows), cols: number(self.cols) }
    }

    /// The cursor and its look.
    pub(crate) fn cursor(&self) -> StyledCursor {
        StyledCursor { at: self.cursor, style: self.style.clone() }
    }

    /// The row and the column of the cursor, from 1.
    pub(crate) fn place(&self) -> (u16, u16) {
        let number = |n: usize| u16::try_from(n + 1).unwrap_or(u16::MAX);
        (number(self.cursor.row), number(self.cursor.col))
    }

    /// The saved cursor of this screen, or of the main screen.
    pub(crate) fn saved(&self, of_main: bool) -> &StyledCursor {
        &self.saved[usize::from(self.is_alternate && !of_main)]
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        self.is_alternate
    }

    /// The rows that are shown, or those of the main screen.
    pub(crate) fn screen(&self, of_main: bool) -> &[Row] {
        &self.screens[usize::from(self.is_alternate && !of_main)]
    }

    pub(super) fn shown(&mut self) -> &mut [Row] {
        &mut self.screens[usize::from(self.is_alternate)]
    }

    pub(super) fn row(&mut self) -> &mut Row {
        let at = self.cursor.row;
        &mut self.shown()[at]
    }

    /// The first and the last row of the scroll region.
    pub(super) fn region(&self, modes: &ScreenModes) -> (usize, usize) {
        let whole = (0, self.rows - 1);
        let Some((first, last)) = modes.region else { return whole };
        let region = (usize::from(first) - 1, usize::from(last).min(self.rows) - 1);
        if region.0 < region.1 { region } else { whole }
    }

    /// The columns within the margins.
    pub(super) fn margins(&self, modes: &ScreenModes) -> Range<usize> {
        let whole = 0..self.cols;
        let Some((first, last)) = modes.margins else { return whole };
        let margins = usize::from(first) - 1..usize::from(last).min(self.cols);
        if margins.len() > 1 { margins } else { whole }
    }

    /// The column where text stops: behind the margins, or of a cursor behind them that of the screen.
    pub(super) fn end(&self, modes: &ScreenModes) -> usize {
        let margin = self.margins(modes).end;
        if self.cursor.col < margin { margin } else { self.cols }
    }

    /// The column that the cursor returns to: that of the margins, or before them the first one.
    fn begin(&self, modes: &ScreenModes) -> usize {
        let margin = self.margins(modes).start;
        if self.cursor.col >= margin || modes.counts_from_region() { margin } else { 0 }
    }

    pub(super) fn return_carriage(&mut self, modes: &ScreenModes) {
        self.go(self.cursor.row, self.begin(modes));
    }

    /// What erasing leaves.
    pub(super) fn blank(&self) -> Cell {
        Cell::erased(self.style.look)
    }

    /// Executes a sequence that begins with `ESC` and is neither a string nor a control sequence.
    pub(crate) fn escape(&mut self, raw: &[u8], modes: &ScreenModes) {
        self.last = None;
        match raw {
            [ESC, b'7'] => self.save(),
            [ESC, b'8'] => self.restore(),
            [ESC, b'D'] => self.line_feed(1, modes),
            [ESC, b'E'] => {
                self.line_feed(1, modes);
                self.return_carriage(modes);
            }
            [ESC, b'M'] => self.reverse_line_feed(modes),
            [ESC, b'H'] => self.tabs.set(self.cursor.col, true),
            [ESC, b'c'] => self.reset(),
            [ESC, b'#', b'8'] => {
                let cell = Cell { text: 'E', ..Cell::default() };
                self.shown().iter_mut().for_each(|row| row.fill(cell));
                self.go(0, 0);
            }
            _ => {}
        }
    }

    /// Executes a control sequence that is no query. The modes are those after it.
    pub(crate) fn control(&mut self, control: &Control<'_>, modes: &ScreenModes) {
        let last_printed = self.last.take();
        let count = usize::from(control.value(0).max(1));
        match (control.marker, control.mark, control.last) {
            (0, 0, b'm') => self.select(control.numbers),
            (0, 0, last @ (b'@' | b'P')) => {
                self.cursor.wraps = false;
                self.shift(count, last == b'@', modes);
            }
            (0, 0, b'K' | b'X') | (b'?', 0, b'K') => self.edit_row(control, count),
            (0, 0, b'L' | b'M' | b'S' | b'T' | b'^') => self.scroll(control, count, modes),
            (0 | b'?', 0, b'J') => self.erase(control.value(0)),
            (0, 0, b'b') => {
                if let Some(character) = last_printed {
                    self.repeat(character, count.min(usize::from(REPEATS)), modes);
                }
            }
            (0, 0, b'g') if control.value(0) == 0 => self.tabs.set(self.cursor.col, false),
            (0, 0, b'g') if control.value(0) == 3 => self.tabs.clear(),
            (b'?', 0, b'W') if control.value(0) == 5 => self.tabs.reset(),
            // Limits that do not fit are ignored.
            (0, 0, b's') if modes.has_margins() && fits(control, self.cols) => self.go_home(modes),
            (0, 0, b's') if !modes.has_margins() => self.save(),
            (0, 0, b'u') => self.restore(),
            (0, 0, b'r') if fits(control, self.rows) => self.go_home(modes),
            (0, b'$', b'x') => self.fill(control, modes),
            (0, b'!', b'p') => {
                self.select(b"");
                self.saved[usize::from(self.is_alternate)] = StyledCursor::default();
            }
            (b'?', 0, last @ (b'h' | b'l')) => {
                control.values().for_each(|mode| self.switch(mode, last == b'h', modes));
            }
            (0, 0, _) => self.move_cursor(control, count, modes),
            _ => {}
        }
    }

    /// Sequences that only move the cursor.
    fn move_cursor(&mut self, control: &Control<'_>, count: usize, modes: &ScreenModes) {
        let CursorPlace { row, col, .. } = self.cursor;
        let (top, bottom) = self.region(modes);
        let up = row.saturating_sub(count).max(if row >= top { top } else { 0 });
        let down = (row + count).min(if row <= bottom { bottom } else { self.rows - 1 });
        match control.last {
            b'A' => self.go(up, col),
            b'B' => self.go(down, col),
            b'e' if modes.counts_from_region() => self.go(down, col),
            b'e' => self.go(row + count, col),
            b'a' if modes.counts_from_region() => {
                self.go(row, (col + count).min(self.end(modes) - 1));
            }
            b'a' => self.go(row, col + count),
            b'C' => self.go(row, (col + count).min(self.end(modes) - 1)),
            b'D' => {
                let margin = self.margins(modes).start;
                let first = if col < margin { 0 } else { margin };
                self.go(row, col.saturating_sub(count).max(first));
            }
            b'E' => self.go(down, self.begin(modes)),
            b'F' => self.go(up, self.begin(modes)),
            b'G' | b'`' => {
                self.go_to(1, count - 1, modes);
                self.cursor.row = row;
            }
            b'd' => {
                self.go_to(count, 0, modes);
                self.cursor.col = col;
            }
            b'H' | b'f' => {
                let col = usize::from(control.value(1).max(1)) - 1;
                self.go_to(count, col, modes);
            }
            // There is no tab stop behind the last column.
            b'I' if self.cursor.wraps => {}
            b'I' => {
                let last = self.end(modes) - 1;
                self.go(row, tab_by(count, col, |col| self.tabs.after(col)).min(last));
            }
            b'Z' => self.go(row, tab_by(count, col, |col| self.tabs.before(col))),
            _ => {}
        }
    }

    /// Moves the cursor, within the screen.
    pub(super) fn go(&mut self, row: usize, col: usize) {
        let (row, col) = (row.min(self.rows - 1), col.min(self.cols - 1));
        self.cursor = CursorPlace { row, col, wraps: false };
    }

    /// Moves the cursor to a row from 1 and a column from 0. In origin mode these count from the
    /// scroll region and the margins.
    fn go_to(&mut self, row: usize, col: usize, modes: &ScreenModes) {
        if modes.counts_from_region() {
            let ((top, bottom), margins) = (self.region(modes), self.margins(modes));
            self.go((top + row - 1).min(bottom), (margins.start + col).min(margins.end - 1));
        } else {
            self.go(row - 1, col);
        }
    }

    fn go_home(&mut self, modes: &ScreenModes) {
        self.go_to(1, 0, modes);
    }

    /// Makes room for characters at the cursor, or else removes some, if that is within the margins.
    pub(super) fn shift(&mut self, count: usize, right: bool, modes: &ScreenModes) {
        let (cell, cols, col) = (self.blank(), self.cols, self.cursor.col);
        let margins = self.margins(modes);
        match (margins == (0..cols), right) {
            (true, true) => self.row().insert(col, count, cell, cols),
            (true, false) => self.row().delete(col, count, cell, cols),
            (false, _) if margins.contains(&col) => {
                self.row().shift(col..margins.end, count, right, (cell, cols));
            }
            (false, _) => {}
        }
    }

    /// Fills a rectangle with a character: its code, the first row and column, and the last ones.
    fn fill(&mut self, control: &Control<'_>, modes: &ScreenModes) {
        let (rows, columns) = if modes.counts_from_region() {
            (self.region(modes), self.margins(modes))
        } else {
            ((0, self.rows - 1), 0..self.cols)
        };
        let number = |at: usize| Some(usize::from(control.value(at))).filter(|n| *n > 0);
        let (top, left) =
            (rows.0 + number(1).unwrap_or(1) - 1, columns.start + number(2).unwrap_or(1) - 1);
        let bottom = number(3).map_or(rows.1, |last| (rows.0 + last - 1).min(rows.1));
        let end = number(4).map_or(columns.end, |last| (columns.start + last).min(columns.end));
        let (look, cols) = (self.style.look, self.cols);
        let text = char::from(u8::try_from(control.value(0)).unwrap_or_default());
        if text.is_control() || top > bottom || left >= end {
            return;
        }
        let cell = Cell { text, look };
        for row in &mut self.shown()[top..=bottom] {
            row.print(left, (left..end).map(|_| cell), cols);
        }
    }

    /// Erases cells of the cursor's row.
    fn edit_row(&mut self, control: &Control<'_>, count: usize) {
        let (cell, cols, CursorPlace { col, wraps, .. }) = (self.blank(), self.cols, self.cursor);
        if control.last != b'K' {
            self.cursor.wraps = false;
        }
        let (from, to) = match (control.last, control.value(0)) {
            (b'X', _) => (col, (col + count).min(cols)),
            // After the last column is nothing to erase.
            (_, 0) if wraps => return,
            (_, 0) => (col, cols),
            (_, 1) => (0, col + 1),
            (_, 2) => (0, cols),
            _ => return,
        };
        self.row().erase(from, to, cell, cols);
    }

    /// Erases the screen after the cursor (0), before it (1), or all of it (2).
    fn erase(&mut self, what: u16) {
        let (cell, cols, CursorPlace { row, col, wraps }) = (self.blank(), self.cols, self.cursor);
        let (whole, range) = match what {
            0 if wraps => (row + 1..self.rows, 0..0),
            0 => (row + 1..self.rows, col..cols),
            1 => (0..row, 0..col + 1),
            2 => (0..self.rows, 0..0),
            3 => {
                self.history.clear();
                return self.above.clear();
            }
            _ => return,
        };
        let rows = self.shown();
        for row in &mut rows[whole] {
            row.erase(0, cols, cell, cols);
        }
        if !range.is_empty() {
            rows[row].erase(range.start, range.end, cell, cols);
        }
        // What is written there now begins a line. Shells do so before a prompt; editors that break a
        // line erase only the rest of the row.
        if what == 0 && col == 0 && !wraps {
            self.end_line_above(row);
        }
    }

    /// Scrolls the region, or the part of it after the cursor.
    fn scroll(&mut self, control: &Control<'_>, count: usize, modes: &ScreenModes) {
        let (top, bottom) = self.region(modes);
        let (margins, CursorPlace { row, col, .. }) = (self.margins(modes), self.cursor);
        match control.last {
            b'S' => self.scroll_region(count, true, modes),
            // With more numbers it is a request to track the mouse.
            b'T' if control.numbers.contains(&b';') => {}
            b'L' | b'M' if !(top..=bottom).contains(&row) || !margins.contains(&col) => {}
            b'L' | b'M' => {
                self.move_rows((row, bottom), count, control.last == b'M', modes);
                self.go(row, margins.start);
            }
            _ => self.move_rows((top, bottom), count, false, modes),
        }
    }

    /// Scrolls these rows up or down, within the margins.
    fn move_rows(
        &mut self,
        (top, bottom): (usize, usize),
        count: usize,
        up: bool,
        modes: &ScreenModes,
    ) {
        let (cell, cols, margins) = (self.blank(), self.cols, self.margins(modes));
        self.end_line_above(top);
        let rows = &mut self.shown()[top..=bottom];
        if margins == (0..cols) {
            scroll(rows, count, up, cell);
        } else {
            scroll_columns(rows, &margins, (count, up), (cell, cols));
        }
    }

    /// Scrolls the region up. At the top of the main screen whole rows become history, without blank
    /// rows at their end if these were scrolled at once.
    fn scroll_region(&mut self, count: usize, at_once: bool, modes: &ScreenModes) {
        let (top, bottom) = self.region(modes);
        if top == 0 && !self.is_alternate && self.margins(modes) == (0..self.cols) {
            let count = count.min(bottom + 1);
            let is_kept = |row: &Row| !at_once || !row.is_blank();
            let kept = self.screens[0][..count].iter().rposition(is_kept);
            self.scroll_off(kept.map_or(0, |last| last + 1));
        }
        self.move_rows((top, bottom), count, true, modes);
    }

    /// The row above this one is no longer followed by the one that continues its line.
    fn end_line_above(&mut self, row: usize) {
        if row > 0 {
            self.shown()[row - 1].wraps = false;
        }
    }

    /// Moves down, and scrolls at the end of the region.
    pub(super) fn line_feed(&mut self, count: usize, modes: &ScreenModes) {
        let ((top, bottom), row) = (self.region(modes), self.cursor.row);
        if row > bottom {
            self.cursor.row = (row + count).min(self.rows - 1);
            return;
        }
        self.cursor.row = (row + count).min(bottom);
        if !self.margins(modes).contains(&self.cursor.col) {
            return;
        }
        let mut more = count - (self.cursor.row - row);
        // Each of these rows is kept, also if there are more than the region has.
        while more > 0 {
            let rows = more.min(bottom + 1 - top);
            self.scroll_region(rows, false, modes);
            more -= rows;
        }
    }

    fn reverse_line_feed(&mut self, modes: &ScreenModes) {
        let (top, bottom) = self.region(modes);
        self.cursor.wraps = false;
        if self.cursor.row == top {
            if self.margins(modes).contains(&self.cursor.col) {
                self.move_rows((top, bottom), 1, false, modes);
            }
        } else {
            self.cursor.row = self.cursor.row.saturating_sub(1);
        }
    }

    /// After how many new lines the cursor is in the last row, and after how many more nothing of
    /// the screen is left. `None` if not the whole screen scrolls.
    pub(crate) fn rows_until_scrolled(&self, modes: &ScreenModes) -> Option<(usize, usize)> {
        let above = if self.is_alternate { 0 } else { self.keeps };
        let whole = self.region(modes) == (0, self.rows - 1) && modes.margins.is_none();
        whole.then(|| (self.rows - 1 - self.cursor.row, self.rows + above))
    }

    /// All text has scrolled away, and the cursor is at the beginning of the last row. These are the
    /// numbers of the looks that were selected meanwhile.
    pub(crate) fn flooded<'a>(&mut self, looks: impl Iterator<Item = &'a [u8]>) {
        looks.for_each(|numbers| self.select(numbers));
        self.last = None;
        self.go(self.rows - 1, 0);
    }

    fn switch(&mut self, mode: u16, on: bool, modes: &ScreenModes) {
        match (mode, on) {
            (6, _) => self.go_home(modes),
            // Without wrapping no row is full.
            (7, false) => self.cursor.wraps = false,
            (47 | 1047, _) => self.show(on),
            (1048, true) => self.save(),
            (1048, false) => self.restore(),
            (1049, true) => {
                self.save();
                self.show(true);
            }
            (1049, false) => {
                self.show(false);
                self.restore();
            }
            _ => {}
        }
    }

    /// Shows the alternate or the main screen. The alternate screen is empty when it appears.
    fn show(&mut self, alternate: bool) {
        if alternate == self.is_alternate {
            return;
        }
        self.is_alternate = alternate;
        self.screens[1].clear();
        if alternate {
            let blank = Row { rest: self.blank(), ..Row::default() };
            self.screens[1].resize(self.rows, blank);
        } else {
            self.screens[1].shrink_to_fit();
        }
    }

    fn save(&mut self) {
        let style = Style { link: None, ..self.style.clone() };
        // At a margin no redraw can make the row of a saved cursor full.
        let wraps = self.cursor.wraps && self.cursor.col == self.cols - 1;
        let at = CursorPlace { wraps, ..self.cursor };
        self.saved[usize::from(self.is_alternate)] = StyledCursor { at, style };
    }

    fn restore(&mut self) {
        let StyledCursor { at, style } = self.saved[usize::from(self.is_alternate)].clone();
        let link = self.style.link.take();
        self.style = Style { link, ..style };
        self.number_style();
        self.go(at.row, at.col);
        self.cursor.wraps = at.wraps && self.cursor.col == self.cols - 1;
    }

    fn reset(&mut self) {
        self.show(false);
        self.screens[0].iter_mut().for_each(|row| row.fill(Cell::default()));
        self.above.clear();
        self.history.clear();
        self.cursor = CursorPlace::default();
        self.style = Style::default();
        self.saved = [StyledCursor::default(), StyledCursor::default()];
        self.tabs.reset();
    }

    fn select(&mut self, numbers: &[u8]) {
        if self.style.select(numbers) {
            self.number_style();
        }
    }

    /// Opens or closes a hyperlink.
    pub(crate) fn link(&mut self, link: Option<Arc<str>>) {
        self.style.link = link;
        self.number_style();
    }

    fn number_style(&mut self) {
        let Style { underline, link, .. } = &self.style;
        let extra = Extra { marks: String::new(), underline: *underline, link: link.clone() };
        self.style.look.extra = self.number(extra);
    }

    /// The number of what a cell has besides its look.
    pub(super) fn number(&mut self, extra: Extra) -> u16 {
        if self.extras.is_full() {
            self.sweep();
        }
        self.extras.number(extra)
    }

    /// Forgets extras that no cell has any more.
    fn sweep(&mut self) {
        let Self { screens, above, extras, style, .. } = self;
        let mut used = vec![false; extras.len()];
        used[usize::from(style.look.extra)] = true;
        let rows = || screens.iter().flatten().chain(above.iter());
        rows().flat_map(|row| &row.cells).for_each(|c| used[usize::from(c.look.extra)] = true);
        let moved = extras.sweep(&used);
        let rows = screens.iter_mut().flatten().chain(above.iter_mut());
        for extra in rows.flat_map(|row| &mut row.cells).map(|cell| &mut cell.look.extra) {
            *extra = moved[usize::from(*extra)];
        }
        style.look.extra = moved[usize::from(style.look.extra)];
    }

    /// Changes the size: lines of the main screen are rewrapped, and rows that do not fit are
    /// dropped at the top. Rows of the alternate screen are cut.
    pub(crate) fn resize(&mut self, size: Size) {
        let size = bounded(size);
        if size == self.size() {
            return;
        }
        (self.keeps, self.stale) = (0, 0);
        if size.rows >= self.largest.rows && size.cols >= self.largest.cols {
            self.largest = size;
        } else {
            // Wide characters may leave the last column empty.
            let pieces = self.largest.cols.div_ceil(size.cols - 1);
            let keeps = usize::from(self.largest.rows) * usize::from(pieces);
            // In a window that is wider than the large one, each row above takes more.
            self.keeps = keeps.min(limits::CELLS / usize::from(size.cols));
        }
        let (rows, cols) = (usize::from(size.rows), usize::from(size.cols));
        self.resize_main(rows, cols);
        if self.is_alternate {
            let screen = &mut self.screens[1];
            // As on the main screen, the cursor's row stays.
            let top = (self.cursor.row + 1).saturating_sub(rows);
            screen.drain(..top);
            screen.resize(rows, Row::default());
            for row in screen.iter_mut() {
                if cols < self.cols { row.cut(cols) } else { row.end_at(self.cols) }
            }
            // A full row in a larger window has room.
            let CursorPlace { row, col, wraps } = self.cursor;
            let col = if wraps && cols > self.cols { col + 1 } else { col };
            self.cursor = within(CellPosition { row: row - top, col }, rows, cols);
            let saved = &mut self.saved[1].at;
            saved.row = saved.row.saturating_sub(top);
        }
        (self.rows, self.cols) = (rows, cols);
        self.tabs.resize(cols);
    }

    /// Empty rows below the cursor are dropped first, then rows at the top.
    fn resize_main(&mut self, rows: usize, cols: usize) {
        let above = self.above.len();
        let mut old: Vec<Row> = self.above.drain(..).chain(self.screens[0].drain(..)).collect();
        let position = |at: CursorPlace| CellPosition {
            row: above + at.row,
            col: at.col + usize::from(at.wraps),
        };
        // Behind the alternate screen the saved cursor is the one that counts.
        let saved = position(self.saved[0].at);
        let now = if self.is_alternate { saved } else { position(self.cursor) };
        while old.len() > now.row + 1 && old.last().is_some_and(Row::is_blank) {
            old.pop();
        }
        let (mut all, [now, saved]) = reflow(old, self.cols, cols, [now, saved]);
        let top = all.len().saturating_sub(rows).min(now.row);
        all.truncate(top + rows);
        let mut screen = all.split_off(top);
        screen.resize(rows, Row::default());
        self.screens[0] = screen;
        let from = top.saturating_sub(self.keeps);
        self.above = all.split_off(from).into();
        for row in &all {
            self.history.push(row, &self.extras);
        }
        let here = |at: CellPosition| CellPosition { row: at.row.saturating_sub(top), col: at.col };
        self.saved[0].at = within(here(saved), rows, cols);
        if !self.is_alternate {
            self.cursor = within(here(now), rows, cols);
        }
    }
}

/// Whether the limits that a sequence sets have at least two rows or columns of so many.
fn fits(control: &Control<'_>, len: usize) -> bool {
    let [first, last] = [0, 1].map(|at| usize::from(control.value(at)));
    let last = if last == 0 { len } else { last.min(len) };
    first.max(1) < last
}

/// The column after so many tabs.
fn tab_by(count: usize, mut col: usize, tab: impl Fn(usize) -> usize) -> usize {
    for _ in 0..count {
        let next = tab(col);
        if next == col {
            break;
        }
        col = next;
    }
    col
}

/// The cursor at this position, in a screen of this size.
fn within(CellPosition { row, col }: CellPosition, rows: usize, cols: usize) -> CursorPlace {
    CursorPlace { row: row.min(rows - 1), col: col.min(cols - 1), wraps: col >= cols }
}

/// The size clamped to the limits of the model.
fn bounded(size: Size) -> Size {
    let cols = size.cols.clamp(*MODEL_COLS.start(), *MODEL_COLS.end());
    let most = u16::try_from(limits::CELLS / usize::from(cols)).unwrap_or(u16::MAX);
    Size { rows: size.rows.min(most).clamp(1, MODEL_ROWS), cols }
}
