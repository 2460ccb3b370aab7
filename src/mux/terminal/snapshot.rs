//! Snapshots of the screen, in memory that the service manager keeps over a restart of the mux: the
//! backlog does not have everything that the app drew.

use std::sync::atomic::AtomicU64;

use crate::mux::kept_memory::MemoryPiece;
use crate::types::record::{Record, may_be_killed};
use crate::types::stream::Epoch;

/// Bytes of a redraw that is kept over a restart of the mux: a screen of ten thousand cells that
/// all look different takes less.
const SCREEN_KEPT: usize = 512 * 1024;
/// Words in front of the redraws: a page.
const WORDS: usize = 4096 / size_of::<AtomicU64>();

/// The last redraw, in one of two places that are used in turns.
#[derive(Debug)]
pub(crate) struct KeptScreen {
    /// The epoch of its offset, its number, its length, and the offset up to which it shows the
    /// stream.
    last: Record,
    places: [&'static mut [u8]; 2],
    epoch: Epoch,
}

impl KeptScreen {
    /// Words and bytes of memory that this needs; those that are never written cost nothing.
    pub(crate) const SIZE: (usize, usize) = (WORDS, 2 * SCREEN_KEPT);

    /// The content of this memory, if it has this epoch: the offset up to which it shows the stream,
    /// and the bytes that show the screen.
    pub(crate) fn open(
        MemoryPiece { words, bytes, .. }: MemoryPiece,
        epoch: Epoch,
    ) -> (Self, Option<(u64, Vec<u8>)>) {
        let last = Record::new(&words[..Record::words(4)]);
        let (first, second) = bytes.split_at_mut(SCREEN_KEPT);
        let kept = Self { last, places: [first, second], epoch };
        let [its, number, len, offset] = last.values();
        let screen =
            usize::try_from(len).ok().and_then(|len| kept.places[place(number)].get(..len));
        let screen = screen.filter(|_| Epoch(its) == epoch).map(|screen| (offset, screen.to_vec()));
        (kept, screen)
    }

    /// Keeps another screen, which shows the stream up to `offset`. Of a screen that is too large
    /// nothing is kept, nor of the one before.
    pub(crate) fn keep(&mut self, offset: u64, screen: &[u8]) {
        let [_, number] = self.last.values();
        let next = number.wrapping_add(1);
        let Some(to) = self.places[place(next)].get_mut(..screen.len()) else {
            return self.last.store([0; 4]);
        };
        to.copy_from_slice(screen);
        may_be_killed();
        self.last.store([self.epoch.0, next, screen.len() as u64, offset]);
    }
}

/// Where the redraw of this number is.
fn place(number: u64) -> usize {
    usize::from(number % 2 == 1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::types::record::kills;

    fn memory(words: &'static [AtomicU64], bytes: &[u8]) -> MemoryPiece {
        MemoryPiece { words, bytes: bytes.to_vec().leak(), was_stored: true }
    }

    /// As the next mux finds it.
    fn again(kept: &KeptScreen, words: &'static [AtomicU64]) -> MemoryPiece {
        memory(words, &[&*kept.places[0], &*kept.places[1]].concat())
    }

    #[test]
    fn the_last_screen_is_found_again_and_no_other() {
        let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let (mut kept, found) =
            KeptScreen::open(memory(words, &vec![0; KeptScreen::SIZE.1]), Epoch(7));
        assert_eq!(found, None);
        for (offset, screen) in [(5, "one"), (9, "another"), (12, "")] {
            kept.keep(offset, screen.as_bytes());
            let (next, found) = KeptScreen::open(again(&kept, words), Epoch(7));
            assert_eq!(found, Some((offset, screen.as_bytes().to_vec())));
            kept = next;
        }
        assert_eq!(KeptScreen::open(again(&kept, words), Epoch(8)).1, None);
        kept.keep(20, &vec![b'x'; SCREEN_KEPT + 1]);
        assert_eq!(KeptScreen::open(again(&kept, words), Epoch(7)).1, None);
        // Rubbish is nothing.
        for word in words.iter() {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(KeptScreen::open(again(&kept, words), Epoch(u64::MAX)).1, None);
    }

    #[test]
    fn a_mux_that_is_killed_leaves_the_old_screen_or_the_new_one() {
        for moments in 1..8 {
            let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            let (mut kept, _) =
                KeptScreen::open(memory(words, &vec![0; KeptScreen::SIZE.1]), Epoch(7));
            kept.keep(5, b"old");
            let ended = kills::run(moments, || kept.keep(9, b"new one"));
            assert_eq!(ended, (moments == 7).then_some(6));
            let (_, found) = KeptScreen::open(again(&kept, words), Epoch(7));
            let want: (u64, &[u8]) = if moments < 6 { (5, b"old") } else { (9, b"new one") };
            assert_eq!(found, Some((want.0, want.1.to_vec())), "{moments}");
        }
    }
}
