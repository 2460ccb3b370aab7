//! Rewraps the rows of a screen for another width.
//!
//! Pure. Invariant: no character is added or lost, and each row fits.

use super::grid::{Cell, Row};
use super::style::Flags;

/// A row, and a column from 0; the column after the last one is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellPosition {
    pub(crate) row: usize,
    pub(crate) col: usize,
}

/// The same text in rows of `cols` columns, at least 2, and where these positions are then.
pub(crate) fn reflow<const N: usize>(
    rows: Vec<Row>,
    old_cols: usize,
    cols: usize,
    positions: [CellPosition; N],
) -> (Vec<Row>, [CellPosition; N]) {
    let mut out = Vec::with_capacity(rows.len());
    let mut moved = [None; N];
    let mut line: Vec<Cell> = Vec::new();
    let mut rows = rows.into_iter().enumerate().peekable();
    while let Some((index, row)) = rows.next() {
        let (wraps, rest) = (row.wraps && rows.peek().is_some(), row.rest);
        let next = rows.peek().map(|(_, next)| next.cell(0)).filter(|_| wraps);
        let cells = content(row, old_cols, next);
        let mut from = 0;
        while let Some(cell) = cells.get(from) {
            let width = if cell.has(Flags::WIDE) { 2 } else { 1 };
            if line.len() + width > cols {
                let cells = std::mem::take(&mut line);
                out.push(Row { cells, wraps: true, ..Row::default() });
            }
            for (position, to) in positions.iter().zip(&mut moved) {
                if position.row == index && (from..from + width).contains(&position.col) {
                    let col = line.len() + position.col - from;
                    *to = Some(CellPosition { row: out.len(), col });
                }
            }
            line.extend_from_slice(&cells[from..from + width]);
            from += width;
        }
        for (position, to) in positions.iter().zip(&mut moved) {
            if position.row == index && to.is_none() {
                // Only a cursor after printed text may be after the last column.
                let most = if position.col > from { cols - 1 } else { cols };
                let col = (line.len() + position.col.saturating_sub(from)).min(most);
                *to = Some(CellPosition { row: out.len(), col });
            }
        }
        if !wraps {
            let cells = std::mem::take(&mut line);
            out.push(Row { cells, rest, ..Row::default() });
        }
    }
    for row in &mut out {
        row.is_protected = row.cells.iter().any(|cell| cell.has(Flags::PROTECTED));
    }
    let end = CellPosition { row: out.len().saturating_sub(1), col: 0 };
    (out, moved.map(|position| position.unwrap_or(end)))
}

/// The cells of a row that are a part of its line. `next` is the first cell of the next row if the
/// line continues there.
fn content(row: Row, cols: usize, next: Option<Cell>) -> Vec<Cell> {
    let Row { mut cells, rest, .. } = row;
    let Some(next) = next else {
        while cells.pop_if(|last| *last == rest).is_some() {}
        return cells;
    };
    cells.resize(cols, rest);
    if next.has(Flags::WIDE) {
        // It did not fit in the last column.
        cells.pop_if(|last| last.is_erased());
    }
    cells
}
