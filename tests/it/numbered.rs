//! An app whose lines are numbered, and the account of those that a log has.

use std::fmt::Write as _;
use std::io::Write;

/// Bytes of a numbered line, with its end.
pub const LINE: usize = 100;

/// Writes the lines with these numbers.
pub fn write_numbered(mut to: impl Write, from: u64, until: u64) {
    let mut text = String::new();
    for number in from..until {
        writeln!(text, "{number:099}").unwrap();
        if text.len() > 60_000 || number + 1 == until {
            to.write_all(text.as_bytes()).unwrap();
            text.clear();
        }
    }
}

/// Fails unless the lines are numbered from `from` up to `until`, those that a marker tells of not
/// being there, and no other; returns how many markers there are.
pub fn account<'a>(lines: impl IntoIterator<Item = &'a [u8]>, from: u64, until: u64) -> usize {
    let (mut next, mut markers) = (from, 0);
    for line in lines {
        let line = str::from_utf8(line).unwrap_or_else(|_| panic!("{}", line.escape_ascii()));
        if let Some(lost) = line.strip_prefix("iottymux: ") {
            let mut numbers = lost.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
            let mut number = || numbers.next().unwrap().parse::<u64>().unwrap();
            let (lines, bytes) = (number(), number());
            assert_eq!(bytes, lines * (LINE as u64 - 1), "{line}");
            assert!(lines > 0, "{line}");
            next += lines;
            markers += 1;
        } else {
            assert_eq!(line, format!("{next:099}"), "after {markers} markers");
            next += 1;
        }
    }
    assert_eq!(next, until, "after {markers} markers");
    markers
}
