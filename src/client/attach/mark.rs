//! Marks the lines of this process on the screen, to notice when they come back as the app's output:
//! then the app's terminal shows this one through programs that pass bytes on, such as ssh, sudo and
//! script.
//!
//! The mark is in the numbers of a look. No terminal knows them, and each ignores them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem;

/// Reads in which a line is looked for after it was shown. In a circle it comes back at once, if
/// behind output that waits.
const READS: u32 = 1024;
/// The marks are numbers from this one on. Terminals take five digits at least, up to 32767.
const FIRST: u64 = 10_000;

/// This process's mark.
static MARK: OnceLock<String> = OnceLock::new();
/// Reads in which it is still looked for.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// The mark: numbers that follow those of a look. It is looked for from now on.
pub(crate) fn mark() -> &'static str {
    LEFT.store(READS, Ordering::Relaxed);
    MARK.get_or_init(|| {
        let random = RandomState::new().build_hasher().finish();
        let numbers = [random, random >> 16, random >> 32].map(|part| FIRST + part % FIRST);
        numbers.map(|number| format!(";{number}")).concat()
    })
}

/// Whether this output of the app has the mark.
pub(crate) fn has_come_back(output: &[u8]) -> bool {
    let left = LEFT.load(Ordering::Relaxed);
    if left == 0 {
        return false;
    }
    LEFT.store(left - 1, Ordering::Relaxed);
    MARK.get().is_some_and(|mark| memmem::find(output, mark.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nextest runs each test in a process of its own.
    #[test]
    fn it_is_looked_for_after_a_line_was_shown() {
        assert!(!has_come_back(b"nothing was shown"));
        let line = format!("text \x1b[0;7{}mline", mark());
        assert_eq!(mark(), mark());
        assert!(has_come_back(line.as_bytes()) && !has_come_back(b"\x1b[0;7;10000;10000;10000m"));
        for _ in 0..READS {
            has_come_back(b"output");
        }
        assert!(!has_come_back(line.as_bytes()));
    }
}
