//! Chance that can be repeated: the same seed throws the same.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::pattern::volume;

/// A generator of random numbers (splitmix64).
pub struct Dice(u64);

/// The seed of this run, printed: that of `IOTTYMUX_SEED`; else always the same, and in the long form
/// always another one.
pub fn seed() -> u64 {
    let given = std::env::var("IOTTYMUX_SEED").ok();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = given.map_or_else(
        || if volume(0, 1) == 0 { 1 } else { now() },
        |text| text.parse().expect("IOTTYMUX_SEED is a number"),
    );
    println!("IOTTYMUX_SEED={seed} repeats this");
    seed
}

impl Dice {
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

    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
    }

    /// True once in so many throws.
    pub fn one_in(&mut self, throws: usize) -> bool {
        self.below(throws) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// Cuts at random places into a few pieces, or into single bytes.
    pub fn cut<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        if bytes.len() < 100 && self.one_in(8) {
            return bytes.chunks(1).collect();
        }
        let mut places: Vec<_> = (0..self.below(5)).map(|_| self.below(bytes.len())).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }
}
