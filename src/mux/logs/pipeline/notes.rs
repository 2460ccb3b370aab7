//! Notes of a recording: what happened at the terminal besides its output.
//!
//! No I/O, no clock. A recording may be behind the app. So a note waits until the recording reaches
//! the byte that the app printed next, which always begins a read. Invariant: the notes and their
//! input have a limit each. The oldest notes are dropped, and their input is counted.

use std::collections::VecDeque;

use crate::types::limits;
use crate::types::time::Stamp;

/// Notes that wait for a recording that is behind. At most about thirty per second come while the
/// app waits, if clients do not come and go without a pause, and a hanging target fails after
/// `LOG_STUCK`.
const RECORD_NOTES: usize = 1024;

/// A note that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingNote {
    /// The offset of the byte that the app printed next.
    pub(crate) at: u64,
    pub(crate) stamp: Stamp,
    /// Bytes of input in it.
    pub(crate) typed: usize,
    /// The note, encoded.
    pub(crate) event: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    list: VecDeque<PendingNote>,
    /// Bytes of input in all of them.
    typed: usize,
}

impl Notes {
    /// Adds a note. Returns the number of dropped bytes of input.
    pub(crate) fn push(&mut self, note: PendingNote) -> usize {
        self.typed += note.typed;
        self.list.push_back(note);
        let mut lost = 0;
        while self.list.len() > RECORD_NOTES || self.typed > limits::RECORD_TYPED {
            lost += self.take(u64::MAX).map_or(0, |oldest| oldest.typed);
        }
        lost
    }

    /// Takes the next note, if the recording has reached it.
    pub(crate) fn take(&mut self, reached: u64) -> Option<PendingNote> {
        self.list.front().filter(|note| note.at <= reached)?;
        let note = self.list.pop_front()?;
        self.typed -= note.typed;
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(at: u64, typed: usize) -> PendingNote {
        PendingNote { at, stamp: Stamp(at), typed, event: vec![b'x'] }
    }

    #[test]
    fn notes_come_in_their_order_when_they_are_reached() {
        let mut notes = Notes::default();
        assert_eq!(notes.take(9), None);
        for (at, typed) in [(5, 3), (5, 0), (9, 1)] {
            assert_eq!(notes.push(note(at, typed)), 0);
        }
        assert_eq!(notes.take(4), None);
        assert_eq!(notes.take(5), Some(note(5, 3)));
        assert_eq!(notes.take(6), Some(note(5, 0)));
        assert_eq!(notes.take(8), None);
        assert_eq!((notes.take(9), notes.take(9)), (Some(note(9, 1)), None));
    }

    #[test]
    fn of_too_many_the_newest_are_kept() {
        let mut notes = Notes::default();
        let all = (0..RECORD_NOTES as u64 + 10).map(|at| notes.push(note(at, 2)));
        assert_eq!(all.sum::<usize>(), 20);
        assert_eq!(notes.take(10), Some(note(10, 2)));
        // Input that is longer than the limit is dropped with all notes before it.
        let lost = notes.push(note(0, limits::RECORD_TYPED + 1));
        assert_eq!(lost, 2 * (RECORD_NOTES - 1) + limits::RECORD_TYPED + 1);
        assert_eq!((notes.push(note(7, 0)), notes.take(7)), (0, Some(note(7, 0))));
    }
}
