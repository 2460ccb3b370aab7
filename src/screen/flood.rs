//! Skips text that scrolls away.
//!
//! Of text, new lines and colours that scroll the whole screen, only the last screenful is ever
//! seen, and of what comes before it only the colours that are selected at its beginning.

use memchr::{memchr_iter, memmem, memrchr};

use super::scan::{self, ESC, numbers};

/// Bytes of a run below which skipping saves nothing.
pub(crate) const FLOOD: usize = 1024;
/// The final bytes of the sequences that select a look, and that erase in their row.
const SELECT: u8 = b'm';
const ERASE: u8 = b'K';
/// The end of a line after which the cursor is in the first column.
const NEWLINE: &[u8] = b"\r\n";

/// A part of the stream that leaves nothing but the look that it selects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flood<'a> {
    /// Bytes of it.
    pub(crate) len: usize,
    /// After these bytes the cursor is at the beginning of the last row.
    pub(crate) head: usize,
    pub(crate) skipped: &'a [u8],
}

impl<'a> Flood<'a> {
    /// The flood at the beginning of a run ([`run_len`]). After `below` new lines the cursor is in
    /// the last row, and after `rows` more nothing is left of the screen. The flood ends at the
    /// beginning of a row.
    pub(crate) fn find(bytes: &'a [u8], below: usize, rows: usize) -> Option<Self> {
        if bytes.len() < FLOOD {
            return None;
        }
        // The row in which the flood ends scrolls away, too.
        let last = memchr_iter(b'\n', bytes).rev().nth(rows)? + 1;
        let len = memmem::rfind(&bytes[..last], NEWLINE)? + NEWLINE.len();
        let at_bottom = memchr_iter(b'\n', &bytes[..len]).nth(below)?;
        // A line feed alone leaves the column.
        let from = at_bottom.saturating_sub(1);
        let head = from + memmem::find(&bytes[from..len], NEWLINE)? + NEWLINE.len();
        Some(Self { len, head, skipped: &bytes[..len] })
    }
}

/// The numbers of the sequences that select the look after these bytes, in their order.
pub(crate) fn looks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // A sequence that resets the look hides those before it.
    let mut from = bytes.len();
    while let Some(at) = memrchr(ESC, &bytes[..from]) {
        from = at;
        if matches!(numbers(&bytes[at..]), Some((b"" | b"0", SELECT))) {
            break;
        }
    }
    let bytes = &bytes[from..];
    let sequences = memchr_iter(ESC, bytes).filter_map(|at| numbers(&bytes[at..]));
    sequences.filter(|(_, last)| *last == SELECT).map(|(numbers, _)| numbers)
}

/// The length of the beginning that changes nothing but its own rows and the look.
pub(crate) fn run_len(bytes: &[u8]) -> usize {
    scan::run_len(bytes, |last| matches!(last, SELECT | ERASE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scrolls_away_is_found() {
        let lines = |line: &str, count| line.repeat(count).into_bytes();
        let flood = |bytes: &[u8]| {
            let flood = Flood::find(&bytes[..run_len(bytes)], 2, 4)?;
            let looks =
                looks(flood.skipped).map(|looks| String::from_utf8_lossy(looks).into_owned());
            Some((flood.len, looks.collect::<Vec<_>>().join(" ")))
        };
        let found = |len, looks: &str| Some((len, looks.to_owned()));
        let plain = lines("0123456789\r\n", 100);
        assert_eq!(flood(&plain), found(12 * 96, ""));
        assert_eq!(flood(&plain[..1020]), None, "it is short");
        assert_eq!(flood(&lines("0123456789\n", 100)), None, "the column is not known");
        assert_eq!(
            flood(&lines("\x1b[31m012345\x1b[K\r\n", 100)),
            found(16 * 96, &"31 ".repeat(96)[..287])
        );
        assert_eq!(flood(&lines("\x1b[m\x1b[1;31m0123\r\n", 100)), found(16 * 96, " 1;31"));
        // The last lines are after another sequence, or the first ones are too few.
        assert_eq!(flood(&[&plain[..], b"\x1b[H", &plain[..]].concat()), found(12 * 96, ""));
        assert_eq!(flood(&[&lines("x", 2000)[..], &lines("\r\n", 6)].concat()), None);
        assert_eq!(flood(&[&lines("x", 2000)[..], &lines("\r\n", 7)].concat()), found(2006, ""));
    }
}
