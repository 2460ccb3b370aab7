//! Rows of cells.
//!
//! A row has cells up to the last one that was written; all cells after it are equal. So erasing
//! costs nothing, in a window of any size. Invariant: both halves of a wide character are there, or
//! none.

use std::ops::Range;

use super::style::{Attributes, Look};

/// One place of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// `\0` where nothing was printed, or in the second half of a wide character.
    pub(crate) text: char,
    pub(crate) look: Look,
}

impl Cell {
    /// An erased cell: it keeps the background colour of what erased it.
    pub(crate) fn erased(look: Look) -> Self {
        Self { text: '\0', look: Look { back: look.back, ..Look::default() } }
    }

    pub(crate) fn has(self, flag: u16) -> bool {
        self.look.flags.has(flag)
    }

    /// Whether nothing was printed in it.
    pub(crate) fn is_erased(self) -> bool {
        self.text == '\0' && !self.has(Attributes::TAIL)
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    /// All cells after these.
    pub(crate) rest: Cell,
    /// Whether the line continues in the next row.
    pub(crate) wraps: bool,
}

impl Row {
    pub(crate) fn cell(&self, col: usize) -> Cell {
        self.cells.get(col).copied().unwrap_or(self.rest)
    }

    /// Whether it is as new.
    pub(crate) fn is_blank(&self) -> bool {
        self.cells.iter().all(|cell| *cell == Cell::default()) && self.rest == Cell::default()
    }

    /// Makes all cells equal.
    pub(crate) fn fill(&mut self, cell: Cell) {
        self.cells.clear();
        self.rest = cell;
        self.wraps = false;
    }

    /// Has cells up to this column.
    fn reach(&mut self, col: usize) {
        if self.cells.len() < col {
            self.make_room(col);
            self.cells.resize(col, self.rest);
        }
    }

    /// Room for this many cells. A row has few sizes, and never much more than it needs.
    fn make_room(&mut self, len: usize) {
        if self.cells.capacity() < len {
            let wanted = len.max(self.cells.capacity() * 3 / 2).next_multiple_of(16);
            self.cells.reserve_exact(wanted - self.cells.len());
        }
    }

    /// The cells before and from this column become independent: a wide character over both is
    /// erased.
    fn split(&mut self, col: usize) {
        if let Some(tail) = self.cells.get(col).filter(|cell| cell.has(Attributes::TAIL)).copied() {
            self.cells[col - 1..=col].fill(Cell::erased(tail.look));
        }
    }

    /// Prints characters of one column, which fit in the row.
    pub(crate) fn print(
        &mut self,
        col: usize,
        mut cells: impl ExactSizeIterator<Item = Cell>,
        cols: usize,
    ) {
        let end = col + cells.len();
        self.overwrite(col, end, cols);
        for (old, new) in self.cells[col..].iter_mut().take(end - col).zip(&mut cells) {
            *old = new;
        }
        self.make_room(end);
        self.cells.extend(cells);
    }

    /// Prints a character of two columns, which fits in the row.
    pub(crate) fn put_wide(&mut self, col: usize, cell: Cell, cols: usize) {
        self.overwrite(col, col + 2, cols);
        self.reach(col + 2);
        for (at, text, flag) in
            [(col, cell.text, Attributes::WIDE), (col + 1, '\0', Attributes::TAIL)]
        {
            let flags = cell.look.flags.with(flag);
            self.cells[at] = Cell { text, look: Look { flags, ..cell.look } };
        }
    }

    /// Changes the [`Extras`](super::extras::Extras) of a cell.
    pub(crate) fn set_extra(&mut self, col: usize, number: u16) {
        self.reach(col + 1);
        self.cells[col].look.extra = number;
    }

    fn overwrite(&mut self, from: usize, to: usize, cols: usize) {
        self.reach(from);
        self.split(from);
        self.split(to);
        self.wraps &= to < cols;
    }

    /// Makes the cells from one column to before another equal.
    pub(crate) fn erase(&mut self, from: usize, to: usize, cell: Cell, cols: usize) {
        if from == 0 && to >= cols {
            return self.fill(cell);
        }
        self.split(from);
        self.split(to);
        if to < cols {
            if from < self.cells.len() || cell != self.rest {
                self.reach(to);
                self.cells[from..to].fill(cell);
            }
            return;
        }
        self.wraps = false;
        if cell != self.rest {
            self.reach(from);
        }
        self.cells.truncate(from);
        self.rest = cell;
    }

    /// Moves the cells from this column on to the right, over the end.
    pub(crate) fn insert(&mut self, col: usize, count: usize, cell: Cell, cols: usize) {
        let count = count.min(cols - col);
        self.wraps = false;
        self.split(col);
        if col < self.cells.len() || cell != self.rest {
            self.reach(col);
            let (end, moved) = (self.cells.len(), (self.cells.len() + count).min(cols));
            self.make_room(moved);
            self.cells.resize(moved, cell);
            self.cells.copy_within(col..end.min(moved - count), col + count);
            self.cells[col..col + count].fill(cell);
        }
        self.cut(cols);
    }

    /// Removes cells from this column on, and moves those after them to the left.
    pub(crate) fn delete(&mut self, col: usize, count: usize, cell: Cell, cols: usize) {
        let count = count.min(cols - col);
        self.wraps = false;
        self.split(col);
        self.split(col + count);
        if cell != self.rest {
            self.reach(cols);
        }
        let end = self.cells.len();
        if col < end {
            self.cells.drain(col..(col + count).min(end));
        }
        if cell != self.rest {
            self.cells.resize(cols, cell);
        }
    }

    /// Moves the cells of these columns, and no others: to the right as [`Row::insert`], or to the left
    /// as [`Row::delete`].
    pub(crate) fn shift(
        &mut self,
        columns: Range<usize>,
        count: usize,
        right: bool,
        (cell, cols): (Cell, usize),
    ) {
        let mut cells = self.copy(columns.clone());
        let count = count.min(cells.len());
        if right {
            cells.rotate_right(count);
            cells[..count].fill(cell);
        } else {
            let kept = cells.len() - count;
            cells.rotate_left(count);
            cells[kept..].fill(cell);
        }
        self.paste(columns.start, &cells, cols);
    }

    /// The cells of these columns.
    fn copy(&self, columns: Range<usize>) -> Vec<Cell> {
        columns.map(|col| self.cell(col)).collect()
    }

    /// Overwrites cells with these. Of halves of wide characters nothing is left.
    fn paste(&mut self, col: usize, cells: &[Cell], cols: usize) {
        let is_half = |at: usize| {
            let has = |at: Option<usize>, flag| {
                at.and_then(|at| cells.get(at)).is_some_and(|it| it.has(flag))
            };
            has(Some(at), Attributes::WIDE) && !has(Some(at + 1), Attributes::TAIL)
                || has(Some(at), Attributes::TAIL) && !has(at.checked_sub(1), Attributes::WIDE)
        };
        let whole = |at: usize| if is_half(at) { Cell::erased(cells[at].look) } else { cells[at] };
        self.print(col, (0..cells.len()).map(whole), cols);
    }

    /// Cells after this many are as new, which those are that a larger window adds.
    pub(crate) fn end_at(&mut self, cols: usize) {
        if self.rest != Cell::default() {
            self.reach(cols);
            self.rest = Cell::default();
        }
    }

    /// Has no cells after the last column, and no half of a character in it.
    pub(crate) fn cut(&mut self, cols: usize) {
        self.cells.truncate(cols);
        if let Some(last) = self.cells.get_mut(cols - 1).filter(|last| last.has(Attributes::WIDE)) {
            *last = Cell::erased(last.look);
        }
    }
}

/// Scrolls these rows up, or down.
pub(crate) fn scroll(rows: &mut [Row], count: usize, up: bool, cell: Cell) {
    let count = count.min(rows.len());
    let blank = if up {
        rows.rotate_left(count);
        rows.len() - count..rows.len()
    } else {
        rows.rotate_right(count);
        0..count
    };
    rows[blank].iter_mut().for_each(|row| row.fill(cell));
    if let Some(last) = rows.last_mut().filter(|_| !up) {
        last.wraps = false;
    }
}

/// Scrolls these columns of the rows up, or down.
pub(crate) fn scroll_columns(
    rows: &mut [Row],
    columns: &Range<usize>,
    (count, up): (usize, bool),
    (cell, cols): (Cell, usize),
) {
    let count = count.min(rows.len());
    let mut parts: Vec<_> = rows.iter().map(|row| row.copy(columns.clone())).collect();
    let blank = if up {
        parts.rotate_left(count);
        rows.len() - count..rows.len()
    } else {
        parts.rotate_right(count);
        0..count
    };
    parts[blank].iter_mut().for_each(|part| part.fill(cell));
    for (row, part) in rows.iter_mut().zip(&parts) {
        row.paste(columns.start, part, cols);
    }
}
