//! What is on a screen, for those who read it in place of a terminal.

use std::fmt::Write;

use serde::Serialize;

use super::Screen;
use super::grid::{Cell, Row};
use super::style::{Attributes, Look, Style};
use crate::types::escape;
use crate::types::size::Size;

/// What a screen shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The size of the screen.
    pub size: Size,
    /// The row and the column of the cursor, from 1.
    pub cursor: (u16, u16),
    /// Whether the cursor is shown.
    pub shows_cursor: bool,
    /// The title of the window, if the app has set one.
    pub title: Option<String>,
    /// Whether it is the alternate screen, which full-screen programs use.
    pub is_alternate: bool,
    /// What the app makes of keys.
    pub keys: KeyModes,
    /// The rows that scrolled off the main screen, as many as the screen keeps.
    pub above: Vec<Vec<Run>>,
    /// The rows, from the top. Blanks at their ends are left out.
    pub rows: Vec<Vec<Run>>,
}

/// The modes that change what a terminal sends for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyModes {
    /// Cursor keys are sent as `ESC O` (DECCKM).
    pub application_cursor: bool,
    /// A paste is put in brackets (mode 2004).
    pub bracketed_paste: bool,
    /// The mouse is reported.
    pub mouse: bool,
    /// The flags of kitty's keyboard protocol.
    pub kitty: u16,
}

/// Neighbouring characters that look alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The characters.
    pub text: String,
    /// The columns that they take.
    pub(crate) cols: u16,
    pub(crate) style: Style,
}

impl Run {
    /// Whether it looks like text without any style.
    pub(crate) fn is_plain(&self) -> bool {
        self.style == Style::default()
    }

    /// The numbers of a `CSI … m` that selects its look from the usual one.
    pub(crate) fn numbers(&self) -> String {
        let mut out = String::new();
        self.style.numbers(&mut out);
        (out + &self.style.parts()).trim_start_matches(';').to_owned()
    }
}

impl Shown {
    /// The text of a row, without blanks at its end.
    pub fn text(row: &[Run]) -> String {
        let text: String = row.iter().map(|run| run.text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// The texts of the rows, that of the cursor up to there: a prompt ends with a blank.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let (row, col) = self.cursor;
        self.rows.iter().zip(1..).map(move |(runs, number)| {
            let text = Self::text(runs);
            let missing = usize::from(col - 1).saturating_sub(text.chars().count());
            if number == row { text + &" ".repeat(missing) } else { text }
        })
    }

    /// The text of all rows up to the last one that has any, each with a line end.
    pub fn lines(&self) -> String {
        let rows = self.above.iter().chain(&self.rows);
        let mut rows: Vec<String> = rows.map(|row| Self::text(row) + "\n").collect();
        while rows.pop_if(|row| *row == "\n").is_some() {}
        rows.concat()
    }

    /// The same with the looks of the characters, as sequences for a terminal. What else it obeys is escaped.
    pub fn ansi(&self) -> String {
        let mut out = String::new();
        for row in self.above.iter().chain(self.used()) {
            let mut link: Option<&str> = None;
            for run in row {
                if run.style.link.as_deref() != link {
                    link = run.style.link.as_deref();
                    let _ = write!(out, "\x1b]8;{}\x1b\\", escape::line(link.unwrap_or(";")));
                }
                let is_usual = run.numbers().is_empty();
                if !is_usual {
                    run.style.write(&mut out);
                }
                out.push_str(&escape::line(&run.text));
                out.push_str(if is_usual { "" } else { "\x1b[m" });
            }
            out.push_str(if link.is_some() { "\x1b]8;;\x1b\\\n" } else { "\n" });
        }
        out
    }

    /// The rows up to the last one that is not blank.
    fn used(&self) -> &[Vec<Run>] {
        let is_used =
            |row: &Vec<Run>| row.iter().any(|run| !run.is_plain() || !run.text.is_empty());
        let last = self.rows.iter().rposition(is_used);
        &self.rows[..last.map_or(0, |last| last + 1)]
    }
}

impl Screen {
    /// What is shown now.
    pub fn shown(&self) -> Shown {
        let model = &self.state.model;
        let modes = self.modes();
        let is_set = |number| modes.is_set(true, number) == Some(true);
        Shown {
            size: model.size(),
            cursor: model.place(),
            shows_cursor: modes.shows_cursor(),
            title: Some(&self.state.title).filter(|title| !title.is_empty()).cloned(),
            is_alternate: model.is_alternate(),
            keys: KeyModes {
                application_cursor: is_set(1),
                bracketed_paste: is_set(2004),
                mouse: modes.reports_mouse(),
                kitty: modes.keyboard(),
            },
            above: model.above.iter().map(|row| self.runs(row)).collect(),
            rows: model.screen(false).iter().map(|row| self.runs(row)).collect(),
        }
    }

    fn runs(&self, row: &Row) -> Vec<Run> {
        let cols = usize::from(self.state.model.size().cols);
        let mut runs: Vec<Run> = Vec::new();
        for cell in (0..cols).map(|col| row.cell(col)).filter(|cell| !cell.has(Attributes::TAIL)) {
            self.add(&mut runs, cell);
        }
        if let Some(last) = runs.last_mut().filter(|last| last.is_plain()) {
            let len = last.text.trim_end_matches(' ').len();
            let blanks = u16::try_from(last.text.len() - len).unwrap_or(u16::MAX);
            last.cols = last.cols.saturating_sub(blanks);
            last.text.truncate(len);
        }
        runs.retain(|run| !run.text.is_empty());
        runs
    }

    fn add(&self, runs: &mut Vec<Run>, cell: Cell) {
        let extra = self.state.model.extras.get(cell.look.extra).cloned().unwrap_or_default();
        let flags = cell.look.flags.without(Attributes::WIDE);
        let look = Look { extra: 0, flags, ..cell.look };
        let style = Style { look, underline: extra.underline, link: extra.link };
        let text = if cell.text == '\0' { ' ' } else { cell.text };
        let wide = 1 + u16::from(cell.has(Attributes::WIDE));
        match runs.last_mut().filter(|run| run.style == style) {
            Some(run) => {
                run.text.push(text);
                run.cols += wide;
            }
            None => runs.push(Run { text: text.into(), cols: wide, style }),
        }
        if let Some(run) = runs.last_mut() {
            run.text.push_str(&extra.marks);
        }
    }
}
