//! What the tests here throw beside numbers.

use crate::random::Random;

impl Random {
    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
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
