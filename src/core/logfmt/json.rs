//! Text as the inside of a JSON string, with the escapes that docker uses. No I/O, no clock.
//!
//! A byte that is not UTF-8 becomes U+FFFD.

use super::buffer::Buffer;
use crate::screen::scan::unfinished;

/// Bytes that one byte of a text becomes, at most: `\u0000`.
pub(crate) const WIDEST: usize = 6;

/// Appends text, one piece behind the other, as the inside of a JSON string.
pub(crate) fn text(out: &mut Buffer<'_>, [a, b]: [&[u8]; 2]) {
    // A character may lie across the two pieces.
    let (whole, begun) = a.split_at(a.len() - unfinished(a));
    escape(out, whole);
    let rest =
        b.iter().take(4 - begun.len()).take_while(|byte| (0x80..=0xbf).contains(*byte)).count();
    if begun.is_empty() {
        escape(out, b);
    } else {
        let mut character = [0; 4];
        let len = begun.len() + rest;
        character[..begun.len()].copy_from_slice(begun);
        character[begun.len()..len].copy_from_slice(&b[..rest]);
        escape(out, &character[..len]);
        escape(out, &b[rest..]);
    }
}

/// Appends one piece: no character goes on behind it.
fn escape(out: &mut Buffer<'_>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid().as_bytes();
        let mut done = 0;
        for (at, byte) in valid.iter().enumerate() {
            let end = match byte {
                b'"' | b'\\' | b'<' | b'>' | b'&' | 0..0x20 => at + 1,
                // U+2028 and U+2029, which JavaScript takes for line ends.
                0xe2 if matches!(valid[at..], [_, 0x80, 0xa8 | 0xa9, ..]) => at + 3,
                _ => continue,
            };
            out.extend_from_slice(&valid[done..at]);
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                0xe2 if valid[at + 2] == 0xa8 => out.extend_from_slice(b"\\u2028"),
                0xe2 => out.extend_from_slice(b"\\u2029"),
                byte => {
                    out.extend_from_slice(b"\\u00");
                    for digit in [byte >> 4, byte & 15] {
                        out.push(b"0123456789abcdef"[usize::from(digit)]);
                    }
                }
            }
            done = end;
        }
        out.extend_from_slice(&valid[done..]);
        for _ in chunk.invalid() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
}
