//! Words and records in memory that outlives this process. A store takes effect at once, and not
//! before those that were made before it: a process that is killed at any instruction leaves the old
//! value or the new one, and nothing newer.
//!
//! Memory that is new is zero: so zeros are an empty state of whatever is kept.

use std::sync::atomic::{AtomicU64, Ordering};

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word(&'static AtomicU64);

impl Word {
    pub(crate) fn new(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    pub(crate) fn get(self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(self, value: u64) {
        self.0.store(value, Ordering::Release);
        may_be_killed();
    }
}

/// Makes them words of new memory, the first one first.
pub(crate) fn clear(words: &'static [AtomicU64]) {
    let words = words.iter().map(Word);
    words.filter(|word| word.get() != 0).for_each(|word| word.set(0));
}

/// Values that change together: two copies, and a word that says which one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record(&'static [AtomicU64]);

impl Record {
    /// The words that a record of `len` values takes.
    pub(crate) const fn words(len: usize) -> usize {
        1 + 2 * len
    }

    /// The record in these words: of zeros if they are zeros.
    pub(crate) fn new(words: &'static [AtomicU64]) -> Self {
        Self(words)
    }

    /// Stores these values; of more than fit, the first ones.
    pub(crate) fn store(&self, values: impl IntoIterator<Item = u64>) {
        let Some((which, copies)) = self.0.split_first() else { return };
        let other = 1 - (which.load(Ordering::Relaxed) & 1);
        for (word, value) in half(copies, other).iter().zip(values) {
            word.store(value, Ordering::Relaxed);
            may_be_killed();
        }
        // Nothing that is stored before moves behind this, and nothing behind it moves before it.
        which.swap(other, Ordering::AcqRel);
        may_be_killed();
    }

    /// The first values; 0 for each that it does not have.
    pub(crate) fn values<const N: usize>(&self) -> [u64; N] {
        let mut values = self.load();
        std::array::from_fn(|_| values.next().unwrap_or_default())
    }

    /// The values.
    pub(crate) fn load(&self) -> impl Iterator<Item = u64> {
        let (which, copies) = match self.0.split_first() {
            Some((which, copies)) => (which.load(Ordering::Acquire) & 1, copies),
            None => (0, &[][..]),
        };
        half(copies, which).iter().map(|word| word.load(Ordering::Acquire))
    }
}

fn half(copies: &[AtomicU64], which: u64) -> &[AtomicU64] {
    let (first, second) = copies.split_at(copies.len() / 2);
    if which == 0 { first } else { second }
}

/// A moment at which a test may end this process, so to say: what comes next is not done any more.
#[inline]
pub(crate) fn may_be_killed() {
    #[cfg(test)]
    kills::moment();
}

/// The bytes that a system call writes before that moment.
#[inline]
pub(crate) fn until_killed(bytes: &[u8]) -> &[u8] {
    #[cfg(test)]
    return kills::part(bytes);
    #[cfg(not(test))]
    bytes
}

/// Kills at a chosen moment, in tests.
#[cfg(test)]
pub(crate) mod kills {
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Killed;

    thread_local! {
        /// The moments that this thread still survives.
        static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
        /// The words that are recorded, and what they were at each moment.
        static RECORDED: RefCell<Recorded> = const { RefCell::new((&[], Vec::new())) };
    }

    type Recorded = (&'static [AtomicU64], Vec<Vec<u64>>);

    /// Records from now on what these words of this thread are after each store.
    pub(crate) fn record(words: &'static [AtomicU64]) {
        RECORDED.set((words, Vec::new()));
    }

    /// What has been recorded since the last call.
    pub(crate) fn recorded() -> Vec<Vec<u64>> {
        RECORDED.with_borrow_mut(|(_, stores)| std::mem::take(stores))
    }

    pub(crate) fn values(words: &[AtomicU64]) -> Vec<u64> {
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Does something that is killed after so many moments. Returns how many it has had, if it has
    /// come to its end.
    pub(crate) fn run(moments: u64, does: impl FnOnce()) -> Option<u64> {
        LEFT.set(moments);
        let ended = catch_unwind(AssertUnwindSafe(does));
        let left = LEFT.replace(u64::MAX);
        match ended {
            Ok(()) => Some(moments - left),
            Err(killed) if killed.is::<Killed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    pub(super) fn moment() {
        RECORDED.with_borrow_mut(|(words, stores)| {
            if !words.is_empty() {
                stores.push(values(words));
            }
        });
        LEFT.set(LEFT.get() - 1);
        if LEFT.get() == 0 {
            resume_unwind(Box::new(Killed));
        }
    }

    pub(super) fn part(bytes: &[u8]) -> &[u8] {
        if LEFT.get() == 1 { &bytes[..bytes.len().div_ceil(2)] } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_store_counts() {
        let words = (0..Record::words(3)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let record = Record::new(words);
        assert_eq!(record.load().collect::<Vec<_>>(), [0; 3]);
        for value in 1..5 {
            record.store([value, value + 1, value + 2, 99]);
            assert!(record.load().eq([value, value + 1, value + 2]));
        }
        Record::default().store([1]);
        assert_eq!(Record::default().load().count(), 0);
    }

    #[test]
    fn a_kill_leaves_the_old_one_or_the_new_one() {
        for moments in 1..6 {
            let words = (0..Record::words(3)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            let record = Record::new(words);
            record.store([1, 2, 3]);
            let ended = kills::run(moments, || record.store([4, 5, 6]));
            assert_eq!(ended, (moments == 5).then_some(4));
            let want = if moments < 4 { [1, 2, 3] } else { [4, 5, 6] };
            assert!(record.load().eq(want), "{moments}");
        }
    }
}
