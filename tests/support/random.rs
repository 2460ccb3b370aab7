//! Random numbers that can be repeated: the same seed gives the same.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::form::is_long;

/// A generator of random numbers (splitmix64).
pub struct Random(u64);

/// The seed of this run, printed: that of `IOTTYMUX_SEED`; else always the same, and in the long form
/// always another one.
pub fn seed() -> u64 {
    let given = std::env::var("IOTTYMUX_SEED").ok();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = given.map_or_else(
        || if is_long() { now() } else { 1 },
        |text| text.parse().expect("IOTTYMUX_SEED is a number"),
    );
    println!("IOTTYMUX_SEED={seed} repeats this");
    seed
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end.max(1) as u64).unwrap()
    }

    /// True once in so many throws.
    pub fn one_in(&mut self, throws: usize) -> bool {
        self.below(throws) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}
