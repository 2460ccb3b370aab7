//! Memory that the service manager keeps over a restart of the mux: pieces in one file, since each
//! descriptor costs it something.
//!
//! The file begins with a table of the pieces. A mux with other options gets a new piece where they
//! matter, and the others stay. The file only grows: a new piece goes to its end, and the memory of the
//! one before is given back. Invariant: whatever instruction was the last one of a process that is
//! killed, the table leads to pieces that exist.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};

use crate::sys::calls;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;

/// Its name in the store of systemd or of a keeper. Only a mux stores that, so it is there if another
/// one was before. Earlier versions had a piece under this name.
pub(super) const MEMORY: &str = "backlog";
/// Says that this is such a table, with pieces as this version has them: to be changed with every
/// change of what a word means, in any piece.
const MAGIC: u64 = u64::from_le_bytes(*b"iotmxkp4");
/// Words of the table: the one above, and entries.
const TABLE: usize = 4096 / size_of::<AtomicU64>();
/// An entry: the name of a piece, or 0, where it begins, its size, and its layout.
type Entry = [AtomicU64; 3 + LAYOUT];
/// Numbers of a layout.
const LAYOUT: usize = 3;

/// Names of pieces. That of a log is a number.
pub(crate) const BACKLOG: u64 = u64::from_le_bytes(*b"backlog\0");
pub(crate) const INPUT: u64 = u64::from_le_bytes(*b"input\0\0\0");
pub(crate) const SCREEN: u64 = u64::from_le_bytes(*b"screen\0\0");
pub(crate) const ENGINE: u64 = u64::from_le_bytes(*b"engine\0\0");

/// A piece of memory, mapped for the life of this process.
#[derive(Debug)]
pub(crate) struct MemoryPiece {
    /// Its first words, in which single stores are atomic.
    pub(crate) words: &'static [AtomicU64],
    /// The bytes behind them.
    pub(crate) bytes: &'static mut [u8],
    /// Whether an earlier mux left a piece of this name, of any layout. If that differs, this piece is
    /// new and zero.
    pub(crate) was_stored: bool,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct KeptMemory {
    file: OwnedFd,
    table: &'static [AtomicU64],
    opened: Vec<u64>,
}

impl KeptMemory {
    /// That of the mux before this one, or a new one. An error leaves the store as it was, for the
    /// next mux.
    pub(crate) fn open(stored: &mut Stored, notify: &Notify) -> Result<Self> {
        let map = |file: &OwnedFd| {
            calls::map_memory(file, 0, TABLE, 0).context("cannot map the memory that is kept")
        };
        if let Some(file) = stored.remove(MEMORY) {
            match map(&file)? {
                Some((table, _)) if table[0].load(Ordering::Acquire) == MAGIC => {
                    return Ok(Self { file, table, opened: Vec::new() });
                }
                _ => log::warn!(
                    "the memory that was kept is of another version, and is not used: output, input \
                     and log lines in it are lost"
                ),
            }
        }
        let what = "cannot make memory to be kept";
        let file = calls::new_memory("iottymux", TABLE * size_of::<AtomicU64>()).context(what)?;
        let (table, _) = map(&file)?.context(what)?;
        table[0].store(MAGIC, Ordering::Release);
        notify.replace(MEMORY, &file);
        Ok(Self { file, table, opened: Vec::new() })
    }

    /// The piece `name` with this many words and bytes; a new one if there is none of this size and
    /// layout. The layout is what the meaning of the content depends on.
    pub(crate) fn piece<const N: usize>(
        &mut self,
        name: u64,
        (words, bytes): (usize, usize),
        layout: [u64; N],
    ) -> Result<MemoryPiece> {
        let what = "cannot map a piece of the memory that is kept";
        let mut facts = [0; 1 + LAYOUT];
        facts[0] = (size_of::<AtomicU64>() * words + bytes) as u64;
        facts[1..=N].copy_from_slice(&layout);
        let (at, was_stored) = self.find(name, facts)?;
        let mapped = calls::map_memory(&self.file, at, words, bytes).context(what)?;
        let (words, bytes) = mapped.context(what)?;
        Ok(MemoryPiece { words, bytes, was_stored })
    }

    /// Gives back the pieces that this mux has not opened, such as those of logs that the app has no
    /// more.
    pub(crate) fn finish(self) {
        let is_known = |name: u64| name == 0 || self.opened.contains(&name);
        for entry in
            self.entries().iter().filter(|[name, ..]| !is_known(name.load(Ordering::Acquire)))
        {
            self.give_back(entry);
        }
    }

    fn entries(&self) -> &'static [Entry] {
        self.table[1..].as_chunks().0
    }

    /// Where a piece of this size and layout begins, and whether there was one of this name.
    fn find(&mut self, name: u64, facts: [u64; 1 + LAYOUT]) -> Result<(u64, bool)> {
        self.opened.push(name);
        let (size, page) = (facts[0], calls::page() as u64);
        let end = fstat(&self.file).context("cannot look at the memory that is kept")?.st_size;
        let end = end.cast_unsigned();
        let of =
            |name| self.entries().iter().find(|entry| entry[0].load(Ordering::Acquire) == name);
        let found = of(name);
        if let Some(entry) = found {
            let [_, at, its @ ..] = entry.each_ref().map(|word| word.load(Ordering::Acquire));
            let is_there = at > 0 && at.is_multiple_of(page) && at <= end && end - at >= size;
            if its == facts && is_there {
                return Ok((at, true));
            }
            self.give_back(entry);
        }
        let [its_name, at, its @ ..] =
            of(0).context("the memory that is kept has too many pieces")?;
        let begin = end.next_multiple_of(page);
        ftruncate(&self.file, begin + size).context("cannot make memory to be kept")?;
        at.store(begin, Ordering::Release);
        its.iter().zip(facts).for_each(|(word, fact)| word.store(fact, Ordering::Release));
        // This says that the others are true.
        its_name.store(name, Ordering::Release);
        Ok((begin, found.is_some()))
    }

    /// Forgets a piece, and gives its memory back.
    fn give_back(&self, [name, at, size, ..]: &Entry) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let range = [at, size].map(|word| word.load(Ordering::Acquire));
        // First, since a kill behind it leaves zeros, an empty state. If it fails, the memory is
        // given back with the rest.
        let _ = fallocate(&self.file, how, range[0], range[1]);
        name.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A mux's memory: that of the one before, if there was one.
    fn memory(kept: Option<&OwnedFd>) -> (KeptMemory, bool) {
        let (keeper, mux) = UnixDatagram::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let mut stored = Stored::default();
        if let Some(kept) = kept {
            stored.insert(MEMORY, kept.try_clone().unwrap());
        }
        let memory = KeptMemory::open(&mut stored, &Notify::to_keeper(mux.into())).unwrap();
        (memory, keeper.recv(&mut [0; 100]).is_ok())
    }

    /// For want of memory, for example. Here it may not be written.
    #[test]
    fn what_cannot_be_mapped_now_is_left_for_the_next_mux() {
        let (keeper, mux) = UnixDatagram::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let kept = calls::new_memory("kept", 4096).unwrap();
        let path = format!("/proc/self/fd/{}", kept.as_raw_fd());
        let mut stored = Stored::default();
        stored.insert(MEMORY, File::open(path).unwrap().into());
        let failed = KeptMemory::open(&mut stored, &Notify::to_keeper(mux.into())).unwrap_err();
        let failed = format!("{failed:#}");
        assert!(failed.starts_with("cannot map the memory that is kept: "), "{failed}");
        assert!(keeper.recv(&mut [0; 100]).is_err(), "it was replaced");
    }

    #[test]
    fn the_next_mux_finds_each_piece_and_no_other() {
        let (mut first, is_told) = memory(None);
        assert!(is_told);
        let one = first.piece(BACKLOG, (1, 5000), [1, 2]).unwrap();
        let two = first.piece(INPUT, (2, 0), []).unwrap();
        let three = first.piece(SCREEN, (0, 100), []).unwrap();
        assert!(!one.was_stored && !two.was_stored);
        one.words[0].store(7, Ordering::Relaxed);
        one.bytes[4999] = 7;
        two.words[1].store(8, Ordering::Relaxed);
        three.bytes[..4].copy_from_slice(b"seen");

        // Another size or layout is another piece, and the others stay.
        let (mut next, is_told) = memory(Some(&first.file));
        assert!(!is_told);
        let other = next.piece(BACKLOG, (1, 5000), [1, 3]).unwrap();
        assert!(other.was_stored && other.words[0].load(Ordering::Relaxed) == 0);
        assert_eq!((one.words[0].load(Ordering::Relaxed), one.bytes[4999]), (0, 0), "it is kept");
        other.words[0].store(7, Ordering::Relaxed);
        let other = next.piece(BACKLOG, (1, 6000), [1, 3]).unwrap();
        assert!(other.was_stored && other.words[0].load(Ordering::Relaxed) == 0);
        let same = next.piece(INPUT, (2, 0), []).unwrap();
        assert!(same.was_stored && same.words[1].load(Ordering::Relaxed) == 8);
        next.finish();

        // What no mux has opened is gone.
        assert_eq!(three.bytes[..4], [0; 4]);
        let (mut last, _) = memory(Some(&first.file));
        assert!(last.piece(BACKLOG, (1, 6000), [1, 3]).unwrap().was_stored);
        assert!(!last.piece(SCREEN, (0, 100), []).unwrap().was_stored);
        // An entry that leads to nothing.
        last.entries()[0][1].store(u64::MAX, Ordering::Relaxed);
        last.piece(BACKLOG, (1, 6000), [1, 3]).unwrap();
    }

    /// Of earlier versions, which stored the pieces themselves.
    #[test]
    fn other_memory_is_replaced() {
        let other = calls::new_memory("backlog", 1 << 20).unwrap();
        assert!(memory(Some(&other)).1);
        assert!(memory(Some(&calls::new_memory("backlog", 16).unwrap())).1);
    }
}
