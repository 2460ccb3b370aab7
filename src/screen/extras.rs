//! What few cells of a screen have: combining characters, a hyperlink, the colour of the underline.
//!
//! A cell has a number of this table, so it stays small. Memory is bounded: a table that is full
//! forgets what no cell has any more, and takes nothing while all of it is in use.

use std::collections::HashMap;
use std::sync::Arc;

use super::style::Colour;
use crate::types::limits;

/// Bytes that a table has before it first looks for unused entries.
const EXTRAS_FEW: usize = 64 * 1024;
/// Most bytes of a table: some ten thousand different entries.
const EXTRAS_MOST: usize = 1024 * 1024;
/// Bytes of an entry besides its texts, about.
const EXTRA: usize = 128;
/// Most bytes of an entry.
const EXTRA_MOST: usize = EXTRA + MARKS + limits::SEQUENCE;
/// Entries that a full table refuses before it looks for unused ones again, since that is
/// expensive.
const REFUSALS: usize = 1024;
/// Bytes of the combining characters of a cell: what is shown above and below a letter, and no
/// more.
const MARKS: usize = 48;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extra {
    /// The combining characters after the first one.
    pub(crate) marks: String,
    pub(crate) underline: Colour,
    /// See [`Style`](super::style::Style).
    pub(crate) link: Option<Arc<str>>,
}

impl Extra {
    /// Adds a combining character, if there is room.
    pub(crate) fn add(&mut self, mark: char) {
        if self.marks.len() + mark.len_utf8() <= MARKS {
            self.marks.push(mark);
        }
    }

    fn cost(&self) -> usize {
        EXTRA + self.marks.len() + self.link.as_ref().map_or(0, |link| link.len())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Extras {
    /// Entry `n` has the number `n + 1`.
    all: Vec<Arc<Extra>>,
    numbers: HashMap<Arc<Extra>, u16>,
    bytes: usize,
    allowed: usize,
    /// Entries refused since the last sweep.
    refused: usize,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::new(),
            bytes: 0,
            allowed: EXTRAS_FEW,
            refused: REFUSALS,
        }
    }
}

impl Extras {
    /// The entry with this number.
    pub(crate) fn get(&self, number: u16) -> Option<&Extra> {
        self.all.get(usize::from(number).checked_sub(1)?).map(|extra| &**extra)
    }

    /// The number of an entry: 0 for an empty one, and when the table is full.
    pub(crate) fn number(&mut self, extra: Extra) -> u16 {
        if extra == Extra::default() {
            return 0;
        }
        if let Some(number) = self.numbers.get(&extra) {
            return *number;
        }
        let Some(number) = u16::try_from(self.all.len() + 1).ok().filter(|_| self.has_room())
        else {
            self.refused += 1;
            return 0;
        };
        self.bytes += extra.cost();
        let extra = Arc::new(extra);
        self.all.push(Arc::clone(&extra));
        self.numbers.insert(extra, number);
        number
    }

    /// Whether [`Extras::sweep`] is due before another entry.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room() && self.refused >= REFUSALS
    }

    /// Forgets all entries but those in use, and returns the new number for each old one.
    pub(crate) fn sweep(&mut self, used: &[bool]) -> Vec<u16> {
        let old = std::mem::take(self);
        let mut moved = vec![0; old.all.len() + 1];
        for (index, extra) in old.all.into_iter().enumerate() {
            if used.get(index + 1) == Some(&true) {
                self.allowed = EXTRAS_MOST;
                moved[index + 1] = self.number(Arc::unwrap_or_clone(extra));
            }
        }
        self.allowed = (2 * self.bytes).clamp(EXTRAS_FEW, EXTRAS_MOST);
        // With little room the next sweep would come soon.
        self.refused = if self.bytes > EXTRAS_MOST / 8 * 7 { 0 } else { REFUSALS };
        moved
    }

    /// How many numbers there are, with 0.
    pub(crate) fn len(&self) -> usize {
        self.all.len() + 1
    }

    fn has_room(&self) -> bool {
        self.bytes + EXTRA_MOST <= self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> Extra {
        let mut extra = Extra::default();
        text.chars().for_each(|mark| extra.add(mark));
        extra
    }

    #[test]
    fn equal_entries_have_one_number_and_unused_ones_go() {
        let mut extras = Extras::default();
        assert_eq!(extras.number(Extra::default()), 0);
        let first = extras.number(marked("a"));
        assert_eq!((extras.number(marked("b")), extras.number(marked("a"))), (2, first));
        let moved = extras.sweep(&[true, false, true]);
        assert_eq!(moved, [0, 0, 1]);
        assert_eq!(extras.get(1), Some(&marked("b")));
        assert_eq!((extras.get(0), extras.get(2)), (None, None));
    }

    #[test]
    fn memory_is_bounded() {
        assert!(marked(&"\u{301}".repeat(1000)).marks.len() <= MARKS);
        let mut extras = Extras::default();
        let (mut sweeps, mut number) = (0, 0);
        let entries = 100_000;
        for _ in 0..entries {
            if extras.is_full() {
                sweeps += 1;
                // All of them are in use.
                extras.sweep(&vec![true; extras.len()]);
            }
            number += 1;
            let link = Some(format!(";{number}{}", "x".repeat(900)).into());
            extras.number(Extra { link, ..Extra::default() });
            assert!(extras.bytes <= EXTRAS_MOST);
        }
        assert!(sweeps <= 10 + entries / REFUSALS, "{sweeps}");
    }
}
