//! Rewraps the rows of a screen for another width.
//!
//! Pure. Invariant: no character is added or lost, and each row fits.

/// The content of a cell, or of two neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glyph<L> {
    /// Empty in an erased cell.
    pub(crate) text: String,
    /// 1 or 2.
    pub(crate) cols: u16,
    pub(crate) look: L,
}

/// A row up to its last glyph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row<L> {
    pub(crate) glyphs: Vec<Glyph<L>>,
    /// Whether the line continues in the next row.
    pub(crate) wraps: bool,
}

impl<L> Row<L> {
    /// The width of its glyphs.
    pub(crate) fn len(&self) -> u16 {
        self.glyphs.iter().map(|glyph| glyph.cols).sum()
    }
}

/// A row, and a column from 0; the column after the last one is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellPosition {
    pub(crate) row: usize,
    pub(crate) col: u16,
}

/// The same text in rows of this many columns, at least 2, and where these positions are then.
pub(crate) fn reflow<L, const N: usize>(
    rows: Vec<Row<L>>,
    cols: u16,
    positions: [CellPosition; N],
) -> (Vec<Row<L>>, [CellPosition; N]) {
    let mut out = Vec::with_capacity(rows.len());
    let mut moved = [None; N];
    let mut row = Row { glyphs: Vec::new(), wraps: false };
    let mut at = 0;
    for (index, Row { glyphs, wraps }) in rows.into_iter().enumerate() {
        let mut from = 0;
        for glyph in glyphs {
            if at + glyph.cols > cols {
                out.push(Row { wraps: true, ..row });
                (row, at) = (Row { glyphs: Vec::new(), wraps: false }, 0);
            }
            for (position, to) in positions.iter().zip(&mut moved) {
                if position.row == index && (from..from + glyph.cols).contains(&position.col) {
                    *to = Some(CellPosition { row: out.len(), col: at + position.col - from });
                }
            }
            at += glyph.cols;
            from += glyph.cols;
            row.glyphs.push(glyph);
        }
        for (position, to) in positions.iter().zip(&mut moved) {
            if position.row == index && to.is_none() {
                // Only a cursor after printed text may be after the last column.
                let most = if position.col > from { cols - 1 } else { cols };
                let col = at.saturating_add(position.col.saturating_sub(from)).min(most);
                *to = Some(CellPosition { row: out.len(), col });
            }
        }
        if !wraps {
            out.push(row);
            (row, at) = (Row { glyphs: Vec::new(), wraps: false }, 0);
        }
    }
    if at > 0 {
        out.push(row);
    }
    let end = CellPosition { row: out.len().saturating_sub(1), col: 0 };
    (out, moved.map(|position| position.unwrap_or(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows as text: `>` ends rows that wrap, capitals are two columns wide.
    fn rows(text: &str) -> Vec<Row<()>> {
        let row = |line: &str| {
            let glyph = |c: char| Glyph {
                text: c.into(),
                cols: if c.is_uppercase() { 2 } else { 1 },
                look: (),
            };
            let glyphs = line.trim_end_matches('>').chars().map(glyph).collect();
            Row { glyphs, wraps: line.ends_with('>') }
        };
        text.split('\n').map(row).collect()
    }

    fn text(rows: &[Row<()>]) -> String {
        let line = |row: &Row<()>| {
            let text: String = row.glyphs.iter().map(|glyph| glyph.text.as_str()).collect();
            text + if row.wraps { ">" } else { "" }
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_are_rewrapped() {
        for (before, cols, after) in [
            ("abcdef\n\ngh", 3, "abc>\ndef\n\ngh"),
            ("abc>\ndef\n\ngh", 6, "abcdef\n\ngh"),
            ("abc>\ndef\n\ngh", 4, "abcd>\nef\n\ngh"),
            ("aXbY", 2, "a>\nX>\nb>\nY"),
            ("a>\nX>\nb>\nY", 6, "aXbY"),
            ("aXbY", 3, "aX>\nbY"),
            ("ab>", 2, "ab"),
            ("", 5, ""),
        ] {
            assert_eq!(text(&reflow(rows(before), cols, []).0), after, "{before:?} in {cols}");
        }
    }

    #[test]
    fn positions_move_with_the_text() {
        let at = |row, col| CellPosition { row, col };
        for (before, cols, from, to) in [
            ("abcdef", 3, at(0, 0), at(0, 0)),
            ("abcdef", 3, at(0, 4), at(1, 1)),
            // After the last character, and after the last column.
            ("abcdef", 3, at(0, 6), at(1, 3)),
            ("abcde", 3, at(0, 5), at(1, 2)),
            ("abc>\ndef", 8, at(1, 3), at(0, 6)),
            // Where nothing was printed.
            ("ab", 3, at(0, 7), at(0, 2)),
            ("ab", 12, at(0, 7), at(0, 7)),
            ("x\n", 3, at(1, 0), at(1, 0)),
            // In the second half of a character.
            ("abX", 3, at(0, 3), at(1, 1)),
            ("x", 3, at(7, 7), at(0, 0)),
        ] {
            let (_, [position]) = reflow(rows(before), cols, [from]);
            assert_eq!(position, to, "{before:?} in {cols} at {from:?}");
        }
    }

    proptest! {
        /// A smaller window that comes and goes changes nothing.
        #[test]
        fn there_and_back(lines in prop::collection::vec("[a-dXY]{0,12}", 1..6), cols in 2u16..20,
                          line in 0usize..6, col in 0u16..12) {
            let (wide, [position]) = reflow(rows(&lines.join("\n")), 40, [CellPosition { row: line.min(lines.len() - 1), col }]);
            let (narrow, [moved]) = reflow(wide.clone(), cols, [position]);
            for row in &narrow {
                prop_assert!(row.len() <= cols);
            }
            let len = wide[position.row].len();
            let (back, [again]) = reflow(narrow, 40, [moved]);
            prop_assert_eq!(text(&back), text(&wide));
            prop_assert_eq!(again.row, position.row);
            if position.col <= len {
                prop_assert_eq!(again.col, position.col);
            }
        }
    }
}
