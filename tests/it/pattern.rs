//! Bytes that can be checked wherever they arrive, without keeping them.

use std::io::{ErrorKind, Read, Write};
use std::sync::LazyLock;

use crate::form::is_long;

/// A prime, so that a piece of any usual size that is lost, doubled or moved breaks the pattern.
pub const PERIOD: usize = 65_537;

/// A pattern, one period twice, so that any window of it is one slice.
pub struct Pattern(LazyLock<Vec<u8>>);

/// All bytes there are.
pub static ANY: Pattern = Pattern(LazyLock::new(|| periods(|byte| byte)));

/// Without those by which sequences begin, and the query for the answerback: what attach shows on a
/// terminal is these bytes, one for one.
pub static TEXT: Pattern = Pattern(LazyLock::new(|| {
    periods(|byte| if matches!(byte, 0x05 | 0x1b | 0x80..=0x9f) { byte ^ 0x40 } else { byte })
}));

fn periods(as_byte: fn(u8) -> u8) -> Vec<u8> {
    let mut state: u32 = 1;
    let mut next = || {
        // Numerical Recipes' generator; the high bits are the random ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        as_byte(state.to_be_bytes()[0])
    };
    let period: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
    [&period[..], &period].concat()
}

impl Pattern {
    /// The bytes from an offset on, as many as one piece has.
    fn at(&self, offset: usize, max: usize) -> &[u8] {
        let begin = offset % PERIOD;
        &self.0[begin..begin + max.min(PERIOD)]
    }

    /// Writes the first `len` bytes.
    pub fn write(&self, to: impl Write, len: usize) {
        self.write_from(to, 0, len);
    }

    /// Writes the bytes from one offset to another.
    pub fn write_from(&self, mut to: impl Write, from: usize, until: usize) {
        let mut done = from;
        while done < until {
            let piece = self.at(done, until - done);
            to.write_all(piece).unwrap();
            done += piece.len();
        }
    }

    /// Fails unless these are the bytes from an offset on.
    pub fn check(&self, offset: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let piece = self.at(offset + done, bytes.len() - done);
            assert!(bytes[done..].starts_with(piece), "wrong bytes after {}", offset + done);
            done += piece.len();
        }
    }

    /// Reads to the end in pieces of at most `piece` bytes; fails at the first wrong one. Returns how
    /// many came.
    pub fn read(&self, mut from: impl Read, piece: usize) -> usize {
        let mut buffer = vec![0; piece.min(PERIOD)];
        let mut done = 0;
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return done,
                Ok(len) => {
                    self.check(done, &buffer[..len]);
                    done += len;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("after {done} bytes: {e}"),
            }
        }
    }
}

/// The first `len` bytes of [`ANY`].
pub fn bytes(len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    ANY.write(&mut out, len);
    out
}

/// Writes the first `len` bytes of [`ANY`].
pub fn write(to: impl Write, len: usize) {
    ANY.write(to, len);
}

/// Writes the bytes of [`ANY`] from one offset to another.
pub fn write_from(to: impl Write, from: usize, until: usize) {
    ANY.write_from(to, from, until);
}

/// Reads [`ANY`] to the end: see [`Pattern::read`].
pub fn read(from: impl Read, piece: usize) -> usize {
    ANY.read(from, piece)
}

/// How much data a test of volume moves: the first number, or the second under `IOTTYMUX_LONG=1`.
pub fn volume(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}
