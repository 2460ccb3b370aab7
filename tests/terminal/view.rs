//! What a terminal shows, as text that can be compared.

use std::fmt::Write;

/// A line for each row with the look of its pieces, then the cursor, and maybe the modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View(pub Vec<String>);

/// A cell, and its look as words.
pub struct Seen {
    text: String,
    look: String,
}

/// Stands before and after a look.
const LOOK: char = '\u{1}';
/// Attributes that blank cells show, too.
const LINES: [&str; 3] = ["underline", "inverse", "strike"];

impl View {
    /// `modes` are those of [`MODES`] that are on.
    pub fn new(rows: impl Iterator<Item = Vec<Seen>>, cursor: &Cursor, modes: [bool; 6]) -> Self {
        let mut lines: Vec<String> = rows.map(line).collect();
        let Cursor { row, col, wraps } = cursor;
        lines.push(format!("cursor {row} {col} wraps {wraps}"));
        let on = MODES.into_iter().zip(modes).filter(|(_, on)| *on);
        lines.push(on.fold("modes".to_owned(), |line, (name, _)| line + " " + name));
        Self(lines)
    }

    /// The first line that differs, for the report of a failure.
    pub fn difference(&self, want: &Self) -> Option<String> {
        let lines = self.0.iter().zip(&want.0);
        let (at, (got, want)) = lines.enumerate().find(|(_, (got, want))| got != want)?;
        Some(format!("line {at}:\n    is   {got:?}\n    want {want:?}"))
    }

    /// As [`View::difference`], for a window of another size than before. On the main screen
    /// emulators show more or less of the lines above there, and wrap blanks or cut them. So only the
    /// text that both show counts, from the cursor's row on up and down.
    pub fn difference_of_lines(&self, want: &Self) -> Option<String> {
        let difference = self.difference(want)?;
        let is_alternate =
            |view: &Self| view.0.iter().any(|line| line.starts_with("modes alternate"));
        let (Some(got), Some(want)) = (self.around_cursor(), want.around_cursor()) else {
            return Some(difference);
        };
        let is_same =
            |got: &[&str], want: &[&str]| got.iter().zip(want).all(|(got, want)| got == want);
        let is_right = is_same(&got.0, &want.0) && is_same(&got.1, &want.1) && got.2 == want.2;
        (is_alternate(self) || !is_right).then_some(difference)
    }

    /// The rows with text from the cursor's row up, those below it down, and all but the rows,
    /// without the cursor's row.
    fn around_cursor(&self) -> Option<(Vec<&str>, Vec<&str>, Vec<&str>)> {
        let cursor = self.0.iter().position(|line| line.starts_with("cursor "))?;
        let mut words = self.0[cursor].splitn(3, ' ').skip(1);
        let row = words.next()?.parse::<usize>().ok()?;
        let with_text = |line: &&str| *line != "|";
        let rows: Vec<&str> = self.0[..cursor].iter().map(String::as_str).collect();
        let above = rows[..=row].iter().copied().rev().filter(with_text).collect();
        let below = rows[row + 1..].iter().copied().filter(with_text).collect();
        let rest = words.chain(self.0[cursor + 1..].iter().map(String::as_str)).collect();
        Some((above, below, rest))
    }

    /// The text without looks.
    pub fn text(&self) -> String {
        let rows = self.0.iter().filter_map(|line| {
            let pieces = line.strip_prefix('|')?.split(LOOK).step_by(2);
            Some(pieces.collect::<String>())
        });
        rows.collect::<Vec<_>>().join("\n")
    }
}

/// The modes that all judges know.
pub const MODES: [&str; 6] = ["alternate", "insert", "origin", "wrap", "cursor-keys", "keypad"];

/// Where the next character goes, from 0, and whether the row is full.
pub struct Cursor {
    pub row: usize,
    pub col: usize,
    pub wraps: bool,
}

impl Cursor {
    /// The cursor of an emulator for which a full row is one column more.
    pub fn after(row: usize, col: usize, cols: usize) -> Self {
        Self { row, col: col.min(cols - 1), wraps: col >= cols }
    }
}

impl Seen {
    /// A cell with these attributes, colours, and a link. Of a blank one only what can be seen
    /// counts.
    pub fn new(text: &str, flags: &[(bool, &str)], [fore, back, link]: [&str; 3]) -> Self {
        let is_blank = matches!(text, "" | " " | "\0");
        let is_seen = |flag: &str| !is_blank || LINES.iter().any(|line| flag.starts_with(line));
        let seen = flags.iter().filter(|(on, flag)| *on && is_seen(flag));
        let mut look = seen.fold(String::new(), |look, (_, flag)| look + flag + " ");
        let has_fore = !fore.is_empty() && (!is_blank || !look.is_empty());
        for (name, value, is_on) in
            [("text", fore, has_fore), ("back", back, true), ("link", link, true)]
        {
            if is_on && !value.is_empty() {
                let _ = write!(look, "{name}={value} ");
            }
        }
        Self { text: if is_blank { " " } else { text }.to_owned(), look }
    }
}

/// A row as a line of a view, without the blanks at its end.
fn line(mut cells: Vec<Seen>) -> String {
    while cells.pop_if(|cell| cell.text == " " && cell.look.is_empty()).is_some() {}
    let (mut out, mut look) = (String::from("|"), String::new());
    for cell in cells {
        if cell.look != look {
            let _ = write!(out, "{LOOK}{}{LOOK}", cell.look);
            look = cell.look;
        }
        out.push_str(&cell.text);
    }
    out
}
