//! Joins the parts of lines, for options that need a whole line: --grep, --json, and --tail with
//! conditions on lines. No I/O, no clock.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::pattern::Pattern;
use super::printed_lines::{Wants, index};
use crate::core::logfmt::entry::LoggedEntry;
use crate::types::limits;

/// See the module.
#[derive(Debug)]
pub(super) struct WholeLines {
    grep: Option<Pattern>,
    /// The line of each stream that has no end yet.
    open: [Option<LoggedEntry<'static>>; 2],
    /// The last matching lines, this many at most, until the end of what is there was reached.
    last: Option<(VecDeque<LoggedEntry<'static>>, usize)>,
}

impl WholeLines {
    /// The matching lines, or the last `tail` of them.
    pub(super) fn new(grep: Option<Pattern>, tail: Option<usize>) -> Self {
        Self { grep, open: [None, None], last: tail.map(|count| (VecDeque::new(), count)) }
    }

    /// Adds an entry. Returns the line that it completes, if that is to be printed now.
    pub(super) fn add(
        &mut self,
        entry: &LoggedEntry<'_>,
        wants: &Wants,
    ) -> Option<LoggedEntry<'static>> {
        let open = &mut self.open[index(entry.stream)];
        let Some(line) = open else {
            if entry.ends || entry.text.len() >= limits::LOG_ENTRY {
                return self.pick(entry, wants);
            }
            *open = Some(owned(entry));
            return None;
        };
        line.text.to_mut().extend_from_slice(&entry.text);
        line.ends = entry.ends;
        if !line.ends && line.text.len() < limits::LOG_ENTRY {
            return None;
        }
        let line = open.take()?;
        self.pick(&line, wants)
    }

    /// A line, if it is to be printed now.
    fn pick(&mut self, line: &LoggedEntry<'_>, wants: &Wants) -> Option<LoggedEntry<'static>> {
        let matches = |grep: &Pattern| grep.matches(&line.text);
        if !wants.includes_line(line.stream, line.stamp) || !self.grep.as_ref().is_none_or(matches)
        {
            return None;
        }
        let line = owned(line);
        let Some((last, count)) = &mut self.last else { return Some(line) };
        last.push_back(line);
        if last.len() > *count {
            last.pop_front();
        }
        None
    }

    /// The last lines; later ones are printed as they come.
    pub(super) fn take_last(&mut self) -> VecDeque<LoggedEntry<'static>> {
        self.last.take().map(|(lines, _)| lines).unwrap_or_default()
    }

    /// Ends the lines without an end. Returns those that are to be printed now.
    pub(super) fn finish(&mut self, wants: &Wants) -> Vec<LoggedEntry<'static>> {
        let mut open: Vec<_> = self.open.iter_mut().filter_map(Option::take).collect();
        open.sort_by_key(|line| line.stamp);
        open.into_iter().filter_map(|line| self.pick(&line, wants)).collect()
    }
}

/// A copy that outlives the buffer of the entry.
fn owned(entry: &LoggedEntry<'_>) -> LoggedEntry<'static> {
    LoggedEntry {
        written: Cow::Owned(entry.written.to_string()),
        text: Cow::Owned(entry.text.to_vec()),
        ..*entry
    }
}
