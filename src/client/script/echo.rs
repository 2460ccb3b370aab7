//! What a terminal shows of a line that is typed, and of a prompt.

use std::ops::Range;

/// What a terminal shows of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Echo {
    /// Its lines.
    pub(super) lines: Range<usize>,
    /// What stands before it.
    pub(super) prompt: String,
    /// What stands behind it, in the last line.
    pub(super) rest: String,
}

impl Echo {
    /// Finds it in the first lines since the question: with what an editor has `shown` of it before its return, and what
    /// stood there before the question.
    pub(super) fn of(
        lines: &[String],
        question: &str,
        shown: Option<&str>,
        prompt: &str,
    ) -> Option<Self> {
        let mut echo = Self::find(&lines[..lines.len().min(1)], question)
            .or_else(|| Self::shown(lines, shown?))
            .or_else(|| Self::find(lines, question))?;
        // The kernel shows it as well while an editor leaves the raw mode, over the prompt or behind it.
        while let Some(again) = Self::find(&lines[echo.lines.end..], question)
            && again.lines.start == 0
            && begins(prompt, &again.prompt)
        {
            echo.lines.end += again.lines.end;
            (echo.prompt, echo.rest) = (again.prompt, again.rest);
        }
        Some(echo)
    }

    /// The line that an editor has shown before its return: it may have other text between, or only the
    /// end of the question.
    fn shown(lines: &[String], shown: &str) -> Option<Self> {
        let line = lines.first()?;
        let shown = Some(shown.trim_end()).filter(|shown| !shown.is_empty())?;
        let rest = line.strip_prefix(shown)?.trim().to_owned();
        Some(Self { lines: 0..1, prompt: String::new(), rest })
    }

    /// Finds the first one. Blanks do not count: an editor may break the line.
    pub(super) fn find(lines: &[String], question: &str) -> Option<Self> {
        let places = lines
            .iter()
            .enumerate()
            .flat_map(|(number, line)| line.char_indices().map(move |(at, c)| (number, at, c)));
        let shown: Vec<(usize, usize, char)> =
            places.filter(|(.., c)| !c.is_whitespace()).collect();
        let want: Vec<char> = question.chars().filter(|c| !c.is_whitespace()).collect();
        let is_it = |at: &usize| {
            let there = shown.get(*at..at + want.len());
            there.is_some_and(|there| there.iter().map(|(.., c)| c).eq(&want))
        };
        let Some(last) = want.len().checked_sub(1) else {
            return Some(Self { lines: 0..1, prompt: lines.first()?.clone(), rest: String::new() });
        };
        let at = (0..shown.len()).find(is_it)?;
        let ((line, begin, _), (end_line, end, c)) = (shown[at], shown[at + last]);
        Some(Self {
            lines: line..end_line + 1,
            prompt: lines[line][..begin].to_owned(),
            rest: lines[end_line][end + c.len_utf8()..].trim().to_owned(),
        })
    }
}

/// Whether a line is the prompt, behind which somebody may have left a half line.
pub(super) fn begins(prompt: &str, line: &str) -> bool {
    !line.trim().is_empty() && prompt.starts_with(line.trim_end())
}

/// The first and the last character, digits being alike, and the blanks behind it. A letter ends no
/// prompt.
pub(super) fn ends(prompt: &str) -> Option<(char, char, usize)> {
    let text = prompt.trim();
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let last = text.chars().next_back().filter(|c| !c.is_alphanumeric())?;
    let first = text.chars().next().map(shape)?;
    Some((first, last, prompt.len() - prompt.trim_end().len()))
}
