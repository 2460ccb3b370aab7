//! The number under which a log has its piece of the memory that the service manager keeps. No I/O,
//! no clock.
//!
//! The number must not change with a new version of this program or of Rust: the next mux would not
//! find the piece, and would not know what it lost.

/// The start value and the factor of FNV-1a with 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The number of the log with this name; never 0.
pub(crate) fn number(name: &str) -> u64 {
    fnv_1a(name).max(1)
}

fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the authors of FNV.
    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv_1a(text), hash, "{text}");
        }
    }
}
