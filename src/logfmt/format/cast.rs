//! A recording of a terminal, asciicast v2. Pure.
//!
//! A file is a header, then `[seconds, "o", "text"]` for each read. `"i"` is input, `"r"` the size of the
//! terminal, `"m"` a note about lost output. The time at which a file begins is known only when it is
//! written. So the times of a chunk count from 1970, in fields of one width (JSON allows spaces there),
//! and [`Cast`] sets them when the chunk is written. Invariant: times in a file never go back.

use std::io::Write;
use std::time::Duration;

use memchr::{memchr, memrchr};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::logfmt::chunk::{Chunk, Lost};
use crate::logfmt::encoder::{self, Encoder, LogFormat};
use crate::logfmt::json;
use crate::logfmt::lines::{Entry, Splitter};
use crate::logfmt::stamp::StampText;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Bytes around a text, at most.
const AROUND: usize = 40;
/// Where the time of an event is: behind its bracket.
const TIME: std::ops::Range<usize> = 1..1 + " 1475713029.669794".len();
/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "cast",
    argument: ":PATH",
    help: "asciicast v2, for `asciinema play`",
    target: encoder::file,
    records_terminal: true,
    is_lines: true,
    encoder: |options| Box::new(Events { input: options.record_input }),
    reader: None,
};

/// The encoder.
#[derive(Debug)]
struct Events {
    /// Whether they include what is typed.
    input: bool,
}

impl Encoder for Events {
    fn encode(&mut self, out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
        let kind = match entry.stream {
            Stream::Stdin => 'i',
            Stream::Stderr => 'm',
            Stream::Stdout | Stream::Tty => 'o',
        };
        begin(out, stamp.stamp(), kind);
        json::text(out, entry.pieces);
        out.extend_from_slice(b"\"]\n");
    }

    fn worst(&self, text: usize) -> usize {
        AROUND + json::WIDEST * text
    }

    /// An event is what was read at once.
    fn splitter(&self, _: usize) -> Splitter {
        Splitter::of_reads(limits::RECORD_EVENT)
    }

    fn ends_lines_with_app(&self) -> bool {
        false
    }

    fn marker(&self, Lost { bytes, .. }: Lost) -> String {
        format!("iottymux: {bytes} bytes were lost here")
    }

    fn records_sizes(&self) -> bool {
        true
    }

    fn records_input(&self) -> bool {
        self.input
    }

    fn encode_size(&mut self, out: &mut Vec<u8>, stamp: Stamp, size: Size) {
        begin(out, stamp, 'r');
        // Writing into memory does not fail.
        let _ = writeln!(out, "{}x{}\"]", size.cols, size.rows);
    }

    fn last_size(&self, events: &[u8]) -> Option<Size> {
        events.rsplit(|byte| *byte == b'\n').find_map(size)
    }
}

fn begin(out: &mut Vec<u8>, Stamp(nanos): Stamp, kind: char) {
    out.push(b'[');
    write_time(&mut *out, nanos / 1000);
    let _ = write!(out, ", \"{kind}\", \"");
}

/// Writes a time; each has the same length.
fn write_time(mut to: impl Write, micros: u64) {
    // The target has room for it.
    let _ = write!(to, "{:>11}.{:06}", micros / SECOND, micros % SECOND);
}

/// The time of an event of this encoder, microseconds.
fn time(event: &[u8]) -> Option<u64> {
    let digits = event.get(TIME)?.iter().filter(|byte| byte.is_ascii_digit());
    // Seventeen digits fit.
    Some(digits.fold(0, |time, digit| time * 10 + u64::from(digit - b'0')))
}

/// The size in an event.
fn size(event: &[u8]) -> Option<Size> {
    let text = event.get(TIME.end..)?.strip_prefix(b", \"r\", \"")?.strip_suffix(b"\"]")?;
    let (cols, rows) = str::from_utf8(text).ok()?.split_once('x')?;
    Some(Size { rows: rows.parse().ok()?, cols: cols.parse().ok()? })
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

/// What a recording that goes on needs of its header.
#[derive(Deserialize)]
struct Begun {
    version: u64,
    timestamp: u64,
}

/// The header of a file, and the times in it.
#[derive(Debug)]
pub struct Cast {
    /// The kind of terminal that the app sees (`TERM`).
    term: String,
    /// The size of the terminal, as last written.
    size: Size,
    /// The time that the times of the file count from, microseconds since 1970; whole seconds.
    zero: u64,
    /// The last time in the file, microseconds.
    last: u64,
}

impl Cast {
    /// The recording of a terminal of this kind (`TERM`) and size.
    pub fn new(term: String, size: Size) -> Self {
        Self { term, size, zero: 0, last: 0 }
    }

    /// Continues a file with this first and last line. Returns whether it is a recording that can go
    /// on.
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

    /// Begins a new file with the rest of a chunk: puts a header before it, and counts times from
    /// there.
    pub(crate) fn begin(&mut self, chunk: &mut Chunk) {
        let left = &chunk.bytes[chunk.done..];
        // The header for another file, which was not written.
        if left.first() == Some(&b'{') {
            let len = memchr(b'\n', left).map_or(left.len(), |at| at + 1);
            chunk.bytes.drain(chunk.done..chunk.done + len);
        }
        let first = time(&chunk.bytes[chunk.done..]).unwrap_or_default() + chunk.zero;
        let timestamp = first / SECOND;
        (self.zero, self.last) = (timestamp * SECOND, 0);
        let (Size { rows: height, cols: width }, env) = (self.size, Env { term: &self.term });
        let header = Header { version: 2, width, height, timestamp, env };
        // Numbers and a text are always JSON.
        let mut header = serde_json::to_vec(&header).unwrap_or_default();
        header.push(b'\n');
        chunk.bytes.splice(chunk.done..chunk.done, header);
    }

    /// Sets the times of the rest of a chunk, which begins with an event, unless they are set for this
    /// file already.
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

/// The last whole line in the end of a file, and the number of bytes behind it; `None` without a whole
/// line. `is_all` says whether this is the whole file.
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

    fn encoder() -> Events {
        Events { input: true }
    }

    fn event(stream: Stream, pieces: [&[u8]; 2], at: Stamp) -> Vec<u8> {
        let mut out = Vec::new();
        encoder().encode(
            &mut out,
            &StampText::new(at),
            &Entry { stream, first: false, last: false, pieces },
        );
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
        encoder().encode_size(&mut sized, later(2), Size { rows: 10, cols: 300 });
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
        // A second attempt adds no second header.
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
        assert_eq!(encoder().last_size(&chunk.bytes), Some(Size { rows: 10, cols: 300 }));
        // The rest goes to another file, with times of its own.
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
