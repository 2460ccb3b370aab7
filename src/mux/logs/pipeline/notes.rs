//! Sizes, input and clients of a terminal, for a recording: each belongs to an offset of the app's
//! output.
//!
//! No I/O, no clock. A recording may be behind the app. So a note waits until the recording reaches
//! the byte that the app printed next, which always begins a read. Invariant: the notes and their
//! input have a limit each. The oldest notes are dropped, and their input is counted.

use std::collections::VecDeque;
use std::fmt;

use crate::core::wire::Who;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::time::Stamp;

/// Notes (sizes of the terminal, input, clients) that wait for a recording that is behind. At most
/// about thirty per second come while the app waits, if clients do not come and go without a pause,
/// and a hanging target fails after `LOG_STUCK`.
const RECORD_NOTES: usize = 1024;

/// A note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note<'a> {
    /// The terminal was given a size.
    Size(Size),
    /// The app was given input: these bytes, and perhaps more in the next note.
    Typed(&'a [u8]),
    /// A client did this.
    Client(ClientMark),
}

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMark {
    pub(crate) did: ClientDid,
    pub(crate) who: Who,
}

/// See [`ClientMark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientDid {
    Attached,
    Detached,
    /// It types, after another one or as the first.
    Types,
}

impl fmt::Display for ClientMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = match self.did {
            ClientDid::Attached => "attached",
            ClientDid::Detached => "detached",
            ClientDid::Types => "types",
        };
        let Who { client, uid, .. } = self.who;
        write!(f, "iottymux: client {client} of user {uid} {did}")
    }
}

#[derive(Clone, Copy, Debug)]
enum NoteKind {
    Size(Size),
    Client(ClientMark),
    /// This many bytes.
    Typed(usize),
}

/// A note that waits.
#[derive(Debug)]
struct PendingNote {
    /// The offset of the byte that the app printed next.
    at: u64,
    stamp: Stamp,
    what: NoteKind,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    list: VecDeque<PendingNote>,
    /// The input of all notes.
    typed: VecDeque<u8>,
}

impl Notes {
    /// The terminal was given a size. Returns the number of dropped bytes of input.
    pub(crate) fn resized(&mut self, at: u64, stamp: Stamp, size: Size) -> usize {
        self.push(PendingNote { at, stamp, what: NoteKind::Size(size) })
    }

    /// The app was given input. Returns the number of dropped bytes of input.
    pub(crate) fn typed(&mut self, at: u64, stamp: Stamp, bytes: &[u8]) -> usize {
        self.typed.extend(bytes);
        self.push(PendingNote { at, stamp, what: NoteKind::Typed(bytes.len()) })
    }

    /// A client did this. Returns the number of dropped bytes of input.
    pub(crate) fn client(&mut self, at: u64, stamp: Stamp, mark: ClientMark) -> usize {
        self.push(PendingNote { at, stamp, what: NoteKind::Client(mark) })
    }

    fn push(&mut self, note: PendingNote) -> usize {
        self.list.push_back(note);
        let mut lost = 0;
        while self.list.len() > RECORD_NOTES || self.typed.len() > limits::RECORD_TYPED {
            let Some(oldest) = self.list.pop_front() else { break };
            if let NoteKind::Typed(len) = oldest.what {
                self.typed.drain(..len);
                lost += len;
            }
        }
        lost
    }

    /// The offset and the time of the next note.
    pub(crate) fn next(&self) -> Option<(u64, Stamp)> {
        self.list.front().map(|note| (note.at, note.stamp))
    }

    /// The next note; of its input as much as lies in one piece.
    pub(crate) fn first(&self) -> Option<Note<'_>> {
        Some(match self.list.front()?.what {
            NoteKind::Size(size) => Note::Size(size),
            NoteKind::Client(mark) => Note::Client(mark),
            NoteKind::Typed(len) => {
                let (piece, _) = self.typed.as_slices();
                Note::Typed(&piece[..piece.len().min(len)])
            }
        })
    }

    /// Removes the next note, or this many bytes of its input.
    pub(crate) fn done(&mut self, bytes: usize) {
        if let Some(PendingNote { what: NoteKind::Typed(len), .. }) = self.list.front_mut() {
            self.typed.drain(..bytes.min(*len));
            *len = len.saturating_sub(bytes);
            if *len > 0 {
                return;
            }
        }
        self.list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size::DEFAULT;

    #[test]
    fn notes_come_in_their_order_whole_or_in_pieces() {
        let mut notes = Notes::default();
        assert_eq!((notes.next(), notes.first()), (None, None));
        notes.typed(5, Stamp(1), b"abc");
        notes.resized(5, Stamp(2), SIZE);
        notes.typed(9, Stamp(3), b"d");
        assert_eq!(notes.next(), Some((5, Stamp(1))));
        assert_eq!(notes.first(), Some(Note::Typed(b"abc")));
        notes.done(2);
        assert_eq!(notes.first(), Some(Note::Typed(b"c")));
        notes.done(1);
        assert_eq!((notes.next(), notes.first()), (Some((5, Stamp(2))), Some(Note::Size(SIZE))));
        notes.done(0);
        assert_eq!((notes.next(), notes.first()), (Some((9, Stamp(3))), Some(Note::Typed(b"d"))));
        notes.done(1);
        assert_eq!(notes.next(), None);
    }

    #[test]
    fn of_too_many_the_newest_are_kept() {
        let mut notes = Notes::default();
        let all = (0..RECORD_NOTES as u64 + 10).map(|at| notes.typed(at, Stamp(at), b"xy"));
        assert_eq!(all.sum::<usize>(), 20);
        assert_eq!(notes.next(), Some((10, Stamp(10))));
        // Input that is longer than the limit is dropped with all notes before it.
        let lost = notes.typed(0, Stamp(0), &vec![b'x'; limits::RECORD_TYPED + 1]);
        assert_eq!(lost, 2 * RECORD_NOTES + limits::RECORD_TYPED + 1);
        assert_eq!((notes.resized(7, Stamp(7), SIZE), notes.first()), (0, Some(Note::Size(SIZE))));
    }
}
