//! docker's json-file log: `{"log":"text\n","stream":"stdout","time":"…"}`, keys in this order.
//!
//! Pure. Escapes as docker's own: bytes that are no UTF-8 become U+FFFD, one for each byte; only
//! the last part of a line has its line end.

use memchr::memmem;

use super::lines::Entry;
use super::stamp::StampText;
use crate::core::screen::scan::unfinished;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Bytes around a text, at most.
pub(crate) const AROUND: usize = 80;
/// Bytes that one byte of a text becomes, at most: `\u0000`.
pub(crate) const WIDEST: usize = 6;

/// Appends an entry.
pub(crate) fn encode(out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
    out.extend_from_slice(b"{\"log\":\"");
    text(out, entry.pieces);
    out.extend_from_slice(if entry.last { b"\\n\",\"stream\":\"" } else { b"\",\"stream\":\"" });
    out.extend_from_slice(entry.stream.logged_as().as_bytes());
    out.extend_from_slice(b"\",\"time\":\"");
    out.extend_from_slice(stamp.as_bytes());
    out.extend_from_slice(b"\"}\n");
}

/// The time and the stream of an entry, and whether a line ends with it; of one that is written as here.
pub(crate) fn part(entry: &[u8]) -> Option<(Stamp, Stream, bool)> {
    let at = memmem::rfind(entry, b"\",\"stream\":\"std")?;
    let (text, rest) = entry.split_at(at);
    let rest = rest.strip_prefix(b"\",\"stream\":\"")?;
    let (stream, rest) = match rest.strip_prefix(b"stderr\"") {
        Some(rest) => (Stream::Stderr, rest),
        None => (Stream::Stdout, rest.strip_prefix(b"stdout\"")?),
    };
    let at = memmem::find(rest, b"\"time\":\"")? + b"\"time\":\"".len();
    let stamp = rest[at..].split(|byte| *byte == b'"').next()?;
    let stamp = Stamp::parse(str::from_utf8(stamp).ok()?)?;
    // A backslash that another one stands before is one of the text.
    let escapes = text
        .strip_suffix(b"n")
        .map_or(0, |text| text.iter().rev().take_while(|byte| **byte == b'\\').count());
    text.starts_with(b"{\"log\":\"").then_some((stamp, stream, escapes % 2 == 1))
}

/// Appends text, one piece behind the other, as the inside of a JSON string.
pub(crate) fn text(out: &mut Vec<u8>, [a, b]: [&[u8]; 2]) {
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
fn escape(out: &mut Vec<u8>, text: &[u8]) {
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
                    out.extend(
                        [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]),
                    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Stream;
    use crate::types::time::Stamp;
    use proptest::prelude::*;

    fn encoded(last: bool, pieces: [&[u8]; 2]) -> String {
        let mut out = Vec::new();
        let stamp = StampText::new(Stamp(1_475_713_029_669_794_202));
        encode(&mut out, &stamp, &Entry { stream: Stream::Stderr, first: true, last, pieces });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_as_docker_writes_it() {
        assert_eq!(
            encoded(true, [b"a \"b\" <c> & \\\t\x7f", "\r\u{e9}\u{2028}".as_bytes()]),
            "{\"log\":\"a \\\"b\\\" \\u003cc\\u003e \\u0026 \\\\\\u0009\x7f\\r\u{e9}\\u2028\\n\",\"stream\":\"stderr\",\"time\":\"2016-10-06T00:17:09.669794202Z\"}\n"
        );
        assert!(encoded(false, [b"part", b""]).starts_with("{\"log\":\"part\",\"stream\""));
        assert!(encoded(false, [b"\xff\xfe", b"\x80"]).contains("\"\\ufffd\\ufffd\\ufffd\""));
    }

    proptest! {
        /// Any bytes give JSON that says what they say, wherever they were cut in two.
        #[test]
        fn it_is_read_back(
            bytes in prop::collection::vec(
                prop_oneof![Just(0xe2), Just(0x80), Just(0xa8), Just(0xf0), any::<u8>()], 0..80),
            cut in 0usize..80,
        ) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let line = encoded(true, [a, b]);
            prop_assert!(line.len() <= AROUND + WIDEST * bytes.len());
            let ends = line.find('\n');
            prop_assert_eq!(ends, Some(line.len() - 1));
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            let want: String = bytes
                .utf8_chunks()
                .map(|c| c.valid().to_owned() + &"\u{fffd}".repeat(c.invalid().len()))
                .collect();
            prop_assert_eq!(value["log"].as_str().unwrap(), want + "\n");
        }
    }
}
