//! Rewraps the rows of a screen for another width.
//!
//! No I/O, no clock. Invariant: no character is added or lost, and each row fits.

use super::grid::{Cell, Row};
use super::style::Attributes;

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
            let width = if cell.has(Attributes::WIDE) { 2 } else { 1 };
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
    if next.has(Attributes::WIDE) {
        // It did not fit in the last column.
        cells.pop_if(|last| last.is_erased());
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows as text: `>` ends rows that wrap, capitals are two columns wide.
    fn rows(text: &str, cols: usize) -> Vec<Row> {
        let row = |line: &str| {
            let mut row = Row { wraps: line.ends_with('>'), ..Row::default() };
            for text in line.trim_end_matches('>').chars() {
                let (col, cell) = (row.cells.len(), Cell { text, ..Cell::default() });
                if text.is_uppercase() {
                    row.put_wide(col, cell, usize::MAX);
                } else {
                    row.print(col, std::iter::once(cell), usize::MAX);
                }
            }
            assert!(row.cells.len() <= cols);
            row
        };
        text.split('\n').map(row).collect()
    }

    fn text(rows: &[Row]) -> String {
        let line = |row: &Row| {
            let cells = row.cells.iter().filter(|cell| !cell.has(Attributes::TAIL));
            cells.map(|cell| cell.text).chain(row.wraps.then_some('>')).collect::<String>()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_are_rewrapped() {
        for (before, old_cols, cols, after) in [
            ("abcdef\n\ngh", 6, 3, "abc>\ndef\n\ngh"),
            ("abc>\ndef\n\ngh", 3, 6, "abcdef\n\ngh"),
            ("abc>\ndef\n\ngh", 3, 4, "abcd>\nef\n\ngh"),
            ("aXbY", 6, 2, "a>\nX>\nb>\nY"),
            ("a>\nX>\nb>\nY", 2, 6, "aXbY"),
            ("aXbY", 6, 3, "aX>\nbY"),
            ("ab>", 2, 2, "ab"),
            ("", 3, 5, ""),
        ] {
            let (after_, []) = reflow(rows(before, old_cols), old_cols, cols, []);
            assert_eq!(text(&after_), after, "{before:?} in {cols}");
        }
    }

    #[test]
    fn positions_move_with_the_text() {
        let at = |row, col| CellPosition { row, col };
        for (before, old_cols, cols, from, to) in [
            ("abcdef", 8, 3, at(0, 0), at(0, 0)),
            ("abcdef", 8, 3, at(0, 4), at(1, 1)),
            // After the last character, and after the last column.
            ("abcdef", 8, 3, at(0, 6), at(1, 3)),
            ("abcde", 5, 3, at(0, 5), at(1, 2)),
            ("abc>\ndef", 3, 8, at(1, 3), at(0, 6)),
            // Where nothing was printed.
            ("ab", 12, 3, at(0, 7), at(0, 2)),
            ("ab", 12, 14, at(0, 7), at(0, 7)),
            ("x\n", 9, 3, at(1, 0), at(1, 0)),
            // In the second half of a character.
            ("abX", 9, 3, at(0, 3), at(1, 1)),
            ("x", 9, 3, at(7, 7), at(0, 0)),
        ] {
            let (_, [position]) = reflow(rows(before, old_cols), old_cols, cols, [from]);
            assert_eq!(position, to, "{before:?} in {cols} at {from:?}");
        }
    }

    proptest! {
        /// A smaller window that comes and goes changes nothing.
        #[test]
        fn there_and_back(lines in prop::collection::vec("[a-dXY]{0,12}", 1..6), cols in 2usize..20,
                          line in 0usize..6, col in 0usize..12) {
            let position = CellPosition { row: line.min(lines.len() - 1), col };
            let (wide, [position]) = reflow(rows(&lines.join("\n"), 40), 40, 40, [position]);
            let (narrow, [moved]) = reflow(wide.clone(), 40, cols, [position]);
            for row in &narrow {
                prop_assert!(row.cells.len() <= cols);
            }
            let len = wide[position.row].cells.len();
            let (back, [again]) = reflow(narrow, cols, 40, [moved]);
            prop_assert_eq!(text(&back), text(&wide));
            prop_assert_eq!(again.row, position.row);
            if position.col <= len {
                prop_assert_eq!(again.col, position.col);
            }
        }
    }
}
