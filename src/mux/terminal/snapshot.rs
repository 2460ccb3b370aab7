//! Snapshots of the screen, in memory that the service manager keeps over a restart of the mux: the
//! backlog does not have everything that the app drew.
//!
//! Two slots are written in turns, and a header says which one counts, since a mux may be killed at
//! any moment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::types::stream::Epoch;

/// Bytes of a redraw that is kept over a restart of the mux: a screen of ten thousand cells that
/// all look different takes less.
const SCREEN_KEPT: usize = 512 * 1024;

/// Words of the header: the slot (1 or 2; 0 for none), its length, the offset up to which it shows
/// the stream, and the epoch of that offset.
const WORDS: usize = 4;
/// Where the first slot begins, bytes.
const FIRST: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Kept {
    file: File,
    /// Where it begins in the file.
    at: u64,
    epoch: Epoch,
    /// The slot that counts.
    slot: u64,
}

impl Kept {
    /// Bytes of memory that this needs; those that are never written cost nothing.
    pub(crate) const LEN: usize = 4096 + 2 * SCREEN_KEPT;

    /// The content of this memory, if it has this epoch: the offset up to which it shows the
    /// stream, and the bytes that show the screen. It is a piece of a file.
    pub(crate) fn open((memory, at): (File, u64), epoch: Epoch) -> (Self, Option<(u64, Vec<u8>)>) {
        let read = || -> io::Result<_> {
            let mut header = [0; WORDS * 8];
            memory.read_exact_at(&mut header, at)?;
            let word =
                |at: usize| header[at * 8..].first_chunk().map_or(0, |w| u64::from_ne_bytes(*w));
            let (slot, len, offset) = (word(0), word(1), word(2));
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if !(1..=2).contains(&slot) || len > SCREEN_KEPT || Epoch(word(3)) != epoch {
                return Ok((0, None));
            }
            let mut screen = vec![0; len];
            memory.read_exact_at(&mut screen, at + begin(slot))?;
            Ok((slot, Some((offset, screen))))
        };
        let (slot, screen) = read().unwrap_or((0, None));
        (Self { file: memory, at, epoch, slot }, screen)
    }

    /// Keeps another screen, which shows the stream up to `offset`. A screen that is too large is
    /// not kept.
    pub(crate) fn keep(&mut self, offset: u64, screen: &[u8]) -> io::Result<()> {
        let slot = if self.slot == 1 { 2 } else { 1 };
        let fits = screen.len() <= SCREEN_KEPT;
        if fits {
            self.file.write_all_at(screen, self.at + begin(slot))?;
        }
        let words = [if fits { slot } else { 0 }, screen.len() as u64, offset, self.epoch.0];
        self.file.write_all_at(words.map(u64::to_ne_bytes).as_flattened(), self.at)?;
        self.slot = slot;
        Ok(())
    }
}

fn begin(slot: u64) -> u64 {
    FIRST + (slot - 1) * SCREEN_KEPT as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_screen_is_found_again_and_no_other() {
        let memory = || tempfile::tempfile().unwrap();
        let file = memory();
        let again = || (file.try_clone().unwrap(), 8192);
        let (mut kept, found) = Kept::open(again(), Epoch(7));
        assert_eq!(found, None);
        for (offset, screen) in [(5, "one"), (9, "another"), (12, "")] {
            kept.keep(offset, screen.as_bytes()).unwrap();
            let (next, found) = Kept::open(again(), Epoch(7));
            assert_eq!(found, Some((offset, screen.as_bytes().to_vec())));
            kept = next;
        }
        assert_eq!(Kept::open(again(), Epoch(8)).1, None);
        kept.keep(20, &vec![b'x'; SCREEN_KEPT + 1]).unwrap();
        assert_eq!(Kept::open(again(), Epoch(7)).1, None);
        // Rubbish is nothing.
        let file = memory();
        file.write_all_at(&[0xff; 64], 0).unwrap();
        assert_eq!(Kept::open((file, 0), Epoch(u64::MAX)).1, None);
    }
}
