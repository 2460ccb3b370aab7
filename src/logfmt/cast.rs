//! A recording of a terminal, asciicast v2: a header, then `[seconds, "o", "text"]` for each read,
//! `"i"` for what was typed, `"r"` for the terminal's size, `"m"` for what was lost.
//!
//! Pure. What the times of a file count from is known only when it is written. So in a chunk they
//! count from 1970, in fields of one width (JSON lets spaces stand there), and [`Cast`] sets them
//! when the chunk is written. Invariant: times in a file never go back.

use std::io::Write;
use std::time::Duration;

use memchr::{memchr, memrchr};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::chunk::Chunk;
use super::json;
use super::lines::Entry;
use crate::types::stream::Stream;
use crate::types::time::Stamp;
use crate::wire::Size;

/// Bytes around a text, at most.
pub(crate) const AROUND: usize = 40;
/// Where the time of an event is: behind its bracket.
const TIME: std::ops::Range<usize> = 1..1 + " 1475713029.669794".len();
/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

/// Appends what came from the app, or went to it, or what there is to say of the recording itself.
pub(crate) fn encode(out: &mut Vec<u8>, stamp: Stamp, entry: &Entry<'_>) {
    let kind = match entry.stream {
        Stream::Stdin => 'i',
        Stream::Stderr => 'm',
        Stream::Stdout | Stream::Tty => 'o',
    };
    begin(out, stamp, kind);
    json::text(out, entry.pieces);
    out.extend_from_slice(b"\"]\n");
}

/// Appends that the terminal has this size.
pub(crate) fn encode_size(out: &mut Vec<u8>, stamp: Stamp, size: Size) {
    begin(out, stamp, 'r');
    // Writing into memory does not fail.
    let _ = writeln!(out, "{}x{}\"]", size.cols, size.rows);
}

fn begin(out: &mut Vec<u8>, Stamp(nanos): Stamp, kind: char) {
    out.push(b'[');
    write_time(&mut *out, nanos / 1000);
    let _ = write!(out, ", \"{kind}\", \"");
}

/// Writes a time, in as many bytes for each.
fn write_time(mut to: impl Write, micros: u64) {
    // What it is written to has room for it.
    let _ = write!(to, "{:>11}.{:06}", micros / SECOND, micros % SECOND);
}

/// The time of an event that was encoded here, in microseconds.
fn time(event: &[u8]) -> Option<u64> {
    let digits = event.get(TIME)?.iter().filter(|byte| byte.is_ascii_digit());
    // Seventeen digits: it has room.
    Some(digits.fold(0, |time, digit| time * 10 + u64::from(digit - b'0')))
}

/// The size that an event tells of.
fn size(event: &[u8]) -> Option<Size> {
    let text = event.get(TIME.end..)?.strip_prefix(b", \"r\", \"")?.strip_suffix(b"\"]")?;
    let (cols, rows) = str::from_utf8(text).ok()?.split_once('x')?;
    Some(Size { rows: rows.parse().ok()?, cols: cols.parse().ok()? })
}

/// The last size that these events tell of.
pub(crate) fn last_size(events: &[u8]) -> Option<Size> {
    events.rsplit(|byte| *byte == b'\n').find_map(size)
}

#[derive(Serialize)]
struct Header<'a> {
    version: u64,
    width: u16,
    height: u16,
    timestamp: u64,
    env: Env<'a>,
}

#[derive(Serialize)]
struct Env<'a> {
    #[serde(rename = "TERM")]
    term: &'a str,
}

/// What is needed of a header that is there.
#[derive(Deserialize)]
struct Begun {
    version: u64,
    timestamp: u64,
}

/// What a file begins with, and how its times count.
#[derive(Debug)]
pub struct Cast {
    /// What kind of terminal the app takes it for.
    term: String,
    /// The size of the terminal, as far as it has been written.
    size: Size,
    /// What the times of the file count from, microseconds since 1970; whole seconds.
    zero: u64,
    /// The last time in the file, microseconds.
    last: u64,
}

impl Cast {
    /// The recording of a terminal of this kind (`TERM`) and size.
    pub fn new(term: String, size: Size) -> Self {
        Self { term, size, zero: 0, last: 0 }
    }

    /// Goes on in a file of which these are the first line and the last; whether it is a recording
    /// that times can be added to.
    pub(crate) fn resume(&mut self, first: &[u8], last: &[u8]) -> bool {
        let Ok(Begun { version: 2, timestamp }) = serde_json::from_slice(first) else {
            return false;
        };
        let end = if first == last {
            Some(0)
        } else {
            let event = serde_json::from_slice::<(f64, IgnoredAny, IgnoredAny)>(last).ok();
            let time = event.and_then(|(time, ..)| Duration::try_from_secs_f64(time).ok());
            time.and_then(|time| u64::try_from(time.as_micros()).ok())
        };
        let Some((end, zero)) = end.zip(timestamp.checked_mul(SECOND)) else { return false };
        (self.zero, self.last) = (zero, end);
        true
    }

    /// Has a new file begin with what is left of a chunk, with a header before it; its times count
    /// from there.
    pub(crate) fn begin(&mut self, chunk: &mut Chunk) {
        let left = &chunk.bytes[chunk.done..];
        // A header that another file was to begin with.
        if left.first() == Some(&b'{') {
            let len = memchr(b'\n', left).map_or(left.len(), |at| at + 1);
            chunk.bytes.drain(chunk.done..chunk.done + len);
        }
        let first = time(&chunk.bytes[chunk.done..]).unwrap_or_default() + chunk.zero;
        let timestamp = first / SECOND;
        (self.zero, self.last) = (timestamp * SECOND, 0);
        let (Size { rows: height, cols: width }, env) = (self.size, Env { term: &self.term });
        let header = Header { version: 2, width, height, timestamp, env };
        // A header that is only numbers and a text is always JSON.
        let mut header = serde_json::to_vec(&header).unwrap_or_default();
        header.push(b'\n');
        chunk.bytes.splice(chunk.done..chunk.done, header);
    }

    /// Sets the times of what is left of a chunk, which begins with an event, if that has not been
    /// done for this file.
    pub(crate) fn place(&mut self, chunk: &mut Chunk) {
        if chunk.zero == self.zero {
            return;
        }
        for event in chunk.bytes[chunk.done..].split_mut(|byte| *byte == b'\n') {
            let Some(time) = time(event).filter(|_| event[0] == b'[') else { continue };
            self.last = self.last.max((time + chunk.zero).saturating_sub(self.zero));
            write_time(&mut event[TIME], self.last);
            self.size = size(event).unwrap_or(self.size);
        }
        chunk.zero = self.zero;
    }
}

/// The last line of the end of a file, and how many bytes there are behind it, of one that has no end;
/// `None` when there is no line that is there as a whole. `is_all` when this is all of the file.
pub(crate) fn last_line(end: &[u8], is_all: bool) -> Option<(&[u8], usize)> {
    let at = memrchr(b'\n', end)?;
    let begin = match memrchr(b'\n', &end[..at]) {
        Some(before) => before + 1,
        None if is_all => 0,
        None => return None,
    };
    Some((&end[begin..at], end.len() - at - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size { rows: 24, cols: 80 };
    /// 1475713029.669794 s.
    const AT: Stamp = Stamp(1_475_713_029_669_794_202);

    fn event(stream: Stream, pieces: [&[u8]; 2], at: Stamp) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, at, &Entry { stream, first: false, last: false, pieces });
        assert!(out.len() <= AROUND + json::WIDEST * pieces.concat().len());
        out
    }

    fn chunk(events: &[&[u8]]) -> Chunk {
        Chunk { bytes: events.concat(), ..Chunk::default() }
    }

    fn later(seconds: u64) -> Stamp {
        Stamp(AT.0 + seconds * 1_000_000_000)
    }

    #[test]
    fn a_file_begins_with_a_header_and_its_times_with_it() {
        let mut sized = Vec::new();
        encode_size(&mut sized, later(2), Size { rows: 10, cols: 300 });
        assert!(sized.len() <= AROUND);
        let events = [
            event(Stream::Tty, [b"a\xc3", b"\xa4\x1b[0m\r\n"], AT),
            event(Stream::Stdin, [b"\"", b"\xff"], later(1)),
            sized,
            event(Stream::Stderr, [b"", b"lost"], later(100)),
        ];
        let mut chunk = chunk(&events.each_ref().map(Vec::as_slice));
        let mut cast = Cast::new("xterm".into(), SIZE);
        cast.begin(&mut chunk);
        // Tried again: there is one header all the same.
        cast.begin(&mut chunk);
        cast.place(&mut chunk);
        cast.place(&mut chunk);
        let want = [
            r#"{"version":2,"width":80,"height":24,"timestamp":1475713029,"env":{"TERM":"xterm"}}"#,
            "\n[          0.669794, \"o\", \"a\u{e4}\\u001b[0m\\r\\n\"]",
            "\n[          1.669794, \"i\", \"\\\"\\ufffd\"]",
            "\n[          2.669794, \"r\", \"300x10\"]",
            "\n[        100.669794, \"m\", \"lost\"]\n",
        ];
        assert_eq!(String::from_utf8(chunk.bytes.clone()).unwrap(), want.concat());
        assert_eq!(last_size(&chunk.bytes), Some(Size { rows: 10, cols: 300 }));
        // What was not written goes to another file, whose times begin anew.
        chunk.done = want[..4].concat().len() + 1;
        cast.begin(&mut chunk);
        cast.place(&mut chunk);
        let rest = String::from_utf8(chunk.bytes.split_off(chunk.done)).unwrap();
        assert!(
            rest.starts_with(r#"{"version":2,"width":300,"height":10,"timestamp":1475713129,"#)
        );
        assert!(rest.ends_with("}}\n[          0.669794, \"m\", \"lost\"]\n"), "{rest}");
    }

    #[test]
    fn a_file_goes_on_with_its_own_times() {
        let head =
            br#"{"version": 2, "width": 1, "height": 1, "timestamp": 1475713000, "title": "x"}"#;
        for (last, want) in [
            (&head[..], "         29.669794"),
            (br#"[1, "o", "x"]"#, "         29.669794"),
            (br#"[29.75, "m", ""]"#, "         29.750000"),
            (br#"[ 1e3,"i","x"]"#, "       1000.000000"),
        ] {
            let mut cast = Cast::new("xterm".into(), SIZE);
            assert!(cast.resume(head, last));
            let mut chunk = chunk(&[&event(Stream::Tty, [b"", b"x"], AT)]);
            cast.place(&mut chunk);
            assert_eq!(String::from_utf8_lossy(&chunk.bytes[TIME]), want);
        }
        let event = br#"[1, "o", "x"]"#;
        for (first, last) in [
            (&b"hello"[..], &event[..]),
            (br#"{"version":1,"timestamp":1}"#, event),
            (br#"{"version":2,"width":1,"height":1}"#, event),
            (br#"{"version":2,"timestamp":18446744073709551615}"#, event),
            (head, b"x"),
            (head, b"[1]"),
            (head, br#"[-1, "o", "x"]"#),
        ] {
            let resumed = Cast::new("xterm".into(), SIZE).resume(first, last);
            assert!(!resumed, "{} {}", first.escape_ascii(), last.escape_ascii());
        }
    }

    #[test]
    fn the_last_whole_line() {
        for (end, is_all, want) in [
            (&b"head\n"[..], true, Some((&b"head"[..], 0))),
            (b"head\nlast\nhal", true, Some((b"last", 3))),
            (b"st\nlast\n", false, Some((b"last", 0))),
            (b"st\nhalf", false, None),
            (b"half", true, None),
            (b"", true, None),
        ] {
            assert_eq!(last_line(end, is_all), want, "{}", end.escape_ascii());
        }
    }

    proptest! {
        /// Whatever the app prints, and whenever by the system's clock: each line is an event, and times
        /// do not go back.
        #[test]
        fn any_bytes_at_any_time(
            reads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<u64>()), 1..20),
        ) {
            let all: Vec<_> = reads
                .iter()
                .map(|(bytes, at)| event(Stream::Tty, [b"", bytes], Stamp(*at)))
                .collect();
            let mut chunk = chunk(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let mut cast = Cast::new("\"".into(), SIZE);
            cast.begin(&mut chunk);
            cast.place(&mut chunk);
            let text = String::from_utf8(chunk.bytes).unwrap();
            let mut lines = text.lines();
            let header: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            prop_assert_eq!(&header["env"]["TERM"], "\"");
            let mut last = 0.0;
            for (line, (bytes, _)) in lines.by_ref().zip(&reads) {
                let (time, kind, text): (f64, char, String) = serde_json::from_str(line).unwrap();
                prop_assert!(time >= last && kind == 'o');
                let want: String = bytes
                    .utf8_chunks()
                    .map(|c| c.valid().to_owned() + &"\u{fffd}".repeat(c.invalid().len()))
                    .collect();
                prop_assert_eq!(text, want);
                last = time;
            }
            prop_assert_eq!(lines.next(), None);
        }
    }
}
