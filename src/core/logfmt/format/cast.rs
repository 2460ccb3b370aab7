//! A recording of a terminal, asciicast v2. No I/O, no clock.
//!
//! A file is a header, then `[seconds, "o", "text"]` for each read. `"i"` is input, `"r"` the size
//! of the terminal, `"m"` a note about lost output or a client. The time at which a file begins is
//! known only when it is written. So the times of a chunk count from 1970, in fields of one width (JSON allows
//! spaces there), and [`Cast`] sets them in a copy when they are written. Invariant: times in a
//! file never go back.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use memchr::{memchr, memrchr};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::chunk::Lost;
use crate::core::logfmt::encoder::{self, Encoder, LogFormat, Note};
use crate::core::logfmt::json;
use crate::core::logfmt::lines::{Entry, Splitter};
use crate::core::logfmt::stamp::StampText;
use crate::screen::scan::unfinished;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Longest text of an event of a recording, bytes: a read from a terminal is mostly shorter.
const RECORD_EVENT: usize = 16 * 1024;

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
    encoder: |options| Box::new(CastEncoder { input: options.record_input.then(Vec::new) }),
    reader: None,
};

/// The encoder.
#[derive(Debug)]
struct CastEncoder {
    /// The beginning of a character of the input; `None` if the input is not recorded.
    input: Option<Vec<u8>>,
}

impl Encoder for CastEncoder {
    fn encode(&mut self, out: &mut Buffer<'_>, stamp: &StampText, entry: &Entry<'_>) {
        let kind = if entry.stream == self.own_stream() { 'm' } else { 'o' };
        event(out, stamp.stamp(), kind, entry.pieces);
    }

    fn worst(&self, text: usize) -> usize {
        AROUND + json::WIDEST * text
    }

    /// An event is one read from the terminal.
    fn splitter(&self, _: usize) -> Splitter {
        Splitter::of_reads(RECORD_EVENT)
    }

    fn ends_lines_with_app(&self) -> bool {
        false
    }

    /// Each event is by itself.
    fn line_of(&self, _: Stream) -> Option<Stream> {
        None
    }

    fn marker(&self, Lost { bytes, .. }: Lost) -> String {
        format!("iottymux: {bytes} bytes were lost here")
    }

    fn note(&mut self, stamp: Stamp, note: Note<'_>) -> Vec<u8> {
        let (kind, text) = match note {
            Note::Size(Size { rows, cols }) => ('r', format!("{cols}x{rows}").into_bytes()),
            Note::Client(text) => ('m', text.as_bytes().to_vec()),
            Note::Typed(more) => {
                let Some(mut text) = self.input.take() else { return Vec::new() };
                text.extend_from_slice(more);
                self.input = Some(text.split_off(text.len() - unfinished(&text)));
                ('i', text)
            }
        };
        if text.is_empty() {
            return text;
        }
        let mut memory = vec![0; self.worst(text.len())];
        let mut out = Buffer::new(&mut memory);
        event(&mut out, stamp, kind, [&text, &[]]);
        out.to_vec()
    }
}

fn event(out: &mut Buffer<'_>, Stamp(nanos): Stamp, kind: char, text: [&[u8]; 2]) {
    out.push(b'[');
    out.extend_from_slice(&time_text(nanos / 1000));
    // Writing into memory does not fail.
    let _ = write!(out, ", \"{kind}\", \"");
    json::text(out, text);
    out.extend_from_slice(b"\"]\n");
}

/// A time as text: each has the same length.
fn time_text(micros: u64) -> [u8; TIME.end - TIME.start] {
    let mut text = [b' '; TIME.end - TIME.start];
    // It has room for all times up to the year 5138.
    let _ = write!(&mut text[..], "{:>11}.{:06}", micros / SECOND, micros % SECOND);
    text
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

/// The part of its header that a continued recording needs.
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

    /// Continues a file with this beginning and this end. Returns the number of bytes behind its last
    /// whole event; `None` if it is no recording that can go on.
    pub(crate) fn resume(&mut self, head: &[u8], end: &[u8]) -> Option<usize> {
        let Some(at) = memrchr(b'\n', end) else {
            // Half a header and nothing else.
            return (head == end && head.starts_with(b"{\"version\":2,")).then_some(end.len());
        };
        let first = &head[..memchr(b'\n', head)?];
        let last = &end[memrchr(b'\n', &end[..at]).map_or(0, |before| before + 1)..at];
        let Ok(Begun { version: 2, timestamp }) = serde_json::from_slice(first) else {
            return None;
        };
        let mut time = Duration::ZERO;
        if first != last {
            let (seconds, ..) = serde_json::from_slice::<(_, IgnoredAny, IgnoredAny)>(last).ok()?;
            time = Duration::try_from_secs_f64(seconds).ok()?;
        }
        self.last = time.as_micros().try_into().ok()?;
        self.zero = timestamp.checked_mul(SECOND)?;
        Some(end.len() - at - 1)
    }

    /// Begins a new file, whose first event this is: returns its header. Times count from there.
    pub(crate) fn begin(&mut self, event: &[u8]) -> Vec<u8> {
        let timestamp = time(event).unwrap_or_default() / SECOND;
        (self.zero, self.last) = (timestamp * SECOND, 0);
        let (Size { rows: height, cols: width }, env) = (self.size, Env { term: &self.term });
        let header = Header { version: 2, width, height, timestamp, env };
        // Numbers and a text are always JSON.
        let mut header = serde_json::to_vec(&header).unwrap_or_default();
        header.push(b'\n');
        header
    }

    /// Sets the times of these events, the first of which is whole, for the file.
    pub(crate) fn place(&self, events: &mut [u8]) {
        let mut last = self.last;
        for event in events.split_mut(|byte| *byte == b'\n') {
            let Some(time) = time(event) else { continue };
            last = last.max(time.saturating_sub(self.zero));
            event[TIME].copy_from_slice(&time_text(last));
        }
    }

    /// The file has these events, in which the times are set.
    pub(crate) fn written(&mut self, events: &[u8]) {
        for event in events.split_inclusive(|byte| *byte == b'\n') {
            let Some(event) = event.strip_suffix(b"\n") else { continue };
            self.last = time(event).unwrap_or(self.last);
            self.size = size(event).unwrap_or(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size::DEFAULT;
    /// 1475713029.669794 s.
    const AT: Stamp = Stamp(1_475_713_029_669_794_202);

    fn encoder() -> CastEncoder {
        CastEncoder { input: Some(Vec::new()) }
    }

    fn event(stream: Stream, pieces: [&[u8]; 2], at: Stamp) -> Vec<u8> {
        let mut memory = vec![0; encoder().worst(pieces.concat().len())];
        let mut out = Buffer::new(&mut memory);
        encoder().encode(
            &mut out,
            &StampText::new(at),
            &Entry { stream, first: false, last: false, pieces },
        );
        out.to_vec()
    }

    /// The events as they are written to the file of a recording, which has them then.
    fn written(cast: &mut Cast, events: &[Vec<u8>]) -> String {
        let mut events = events.concat();
        cast.place(&mut events);
        cast.written(&events);
        String::from_utf8(events).unwrap()
    }

    fn later(seconds: u64) -> Stamp {
        Stamp(AT.0 + seconds * 1_000_000_000)
    }

    #[test]
    fn a_file_begins_with_a_header_and_its_times_with_it() {
        let events = [
            event(Stream::Tty, [b"a\xc3", b"\xa4\x1b[0m\r\n"], AT),
            encoder().note(later(1), Note::Typed(b"\"\xff")),
            encoder().note(later(2), Note::Size(Size { rows: 10, cols: 300 })),
            event(Stream::Stderr, [b"", b"lost"], later(100)),
        ];
        let mut cast = Cast::new("xterm".into(), SIZE);
        let header = String::from_utf8(cast.begin(&events[0])).unwrap();
        let want = [
            r#"{"version":2,"width":80,"height":24,"timestamp":1475713029,"env":{"TERM":"xterm"}}"#,
            "\n[          0.669794, \"o\", \"a\u{e4}\\u001b[0m\\r\\n\"]",
            "\n[          1.669794, \"i\", \"\\\"\\ufffd\"]",
            "\n[          2.669794, \"r\", \"300x10\"]",
            "\n[        100.669794, \"m\", \"lost\"]\n",
        ];
        // A second attempt is like the first one.
        let mut attempt = events.concat();
        cast.place(&mut attempt);
        assert_eq!(header + &written(&mut cast, &events), want.concat());
        assert_eq!(String::from_utf8(attempt).unwrap(), want.concat().split_once('\n').unwrap().1);
        // The rest goes to another file, with times of its own.
        let header = String::from_utf8(cast.begin(&events[3])).unwrap();
        assert!(
            header.starts_with(r#"{"version":2,"width":300,"height":10,"timestamp":1475713129,"#)
        );
        assert!(header.ends_with("}}\n"), "{header}");
        assert_eq!(written(&mut cast, &events[3..]), "[          0.669794, \"m\", \"lost\"]\n");
        let half = &header.as_bytes()[..20];
        assert_eq!(cast.resume(half, half), Some(20));
        assert_eq!(cast.resume(b"hello", b"hello"), None);
    }

    #[test]
    fn input_is_recorded_on_request_and_in_whole_characters() {
        let mut encoder = encoder();
        let mut typed = |bytes| String::from_utf8(encoder.note(AT, Note::Typed(bytes))).unwrap();
        assert!(typed(b"a\xe2").ends_with(", \"i\", \"a\"]\n"));
        assert_eq!(typed(b"\x82"), "");
        assert!(typed(b"\xac\xffb").ends_with(", \"i\", \"\u{20ac}\\ufffdb\"]\n"));
        assert!(CastEncoder { input: None }.note(AT, Note::Typed(b"a")).is_empty());
        let most = [0; Note::TYPED];
        assert!(encoder.note(AT, Note::Typed(&most)).len() <= encoder.worst(RECORD_EVENT));
    }

    /// Half an event is completed with the same time, whatever comes behind it.
    #[test]
    fn the_rest_of_an_event_has_its_time() {
        let events =
            [event(Stream::Tty, [b"", b"a"], AT), event(Stream::Tty, [b"", b"b"], later(9))];
        let mut cast = Cast::new("xterm".into(), SIZE);
        cast.begin(&events[0]);
        let mut all = events.concat();
        cast.place(&mut all);
        for cut in 0..all.len() {
            let mut cast = Cast { term: String::new(), ..cast };
            cast.written(&all[..cut]);
            let begin = if cut < events[0].len() { 0 } else { events[0].len() };
            let mut rest = events.concat()[begin..].to_vec();
            cast.place(&mut rest);
            assert_eq!(rest, all[begin..], "{cut}");
        }
    }

    #[test]
    fn a_file_goes_on_with_its_own_times() {
        let head =
            r#"{"version": 2, "width": 1, "height": 1, "timestamp": 1475713000, "title": "x"}"#;
        for (events, half, want) in [
            ("", "", "         29.669794"),
            ("[1, \"o\", \"x\"]\n", "[2, ", "         29.669794"),
            ("[29.75, \"m\", \"\"]\n", "", "         29.750000"),
            ("[9]\n[ 1e3,\"i\",\"x\"]\n", "[", "       1000.000000"),
        ] {
            let mut cast = Cast::new("xterm".into(), SIZE);
            let all = format!("{head}\n{events}{half}");
            assert_eq!(cast.resume(all.as_bytes(), all.as_bytes()), Some(half.len()));
            let event = written(&mut cast, &[event(Stream::Tty, [b"", b"x"], AT)]);
            assert_eq!(&event[TIME], want);
        }
        let event = r#"[1, "o", "x"]"#;
        for (first, last) in [
            ("hello", event),
            (r#"{"version":1,"timestamp":1}"#, event),
            (r#"{"version":2,"width":1,"height":1}"#, event),
            (r#"{"version":2,"timestamp":18446744073709551615}"#, event),
            (head, "x"),
            (head, "[1]"),
            (head, r#"[-1, "o", "x"]"#),
        ] {
            let all = format!("{first}\n{last}\n");
            let resumed = Cast::new("xterm".into(), SIZE).resume(all.as_bytes(), all.as_bytes());
            assert_eq!(resumed, None, "{all}");
        }
        // The end of a large file has the end of a line that is too long, or no line end.
        let head = format!("{head}\n[0,");
        for end in ["\"o\", \"x\"]\n[1", "xx"] {
            let resumed = Cast::new(String::new(), SIZE).resume(head.as_bytes(), end.as_bytes());
            assert_eq!(resumed, None, "{end}");
        }
    }

    proptest! {
        /// For any output of the app, and any jumps of the system's clock: each line is an event,
        /// and times do not go back.
        #[test]
        fn any_bytes_at_any_time(
            reads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<u64>()), 1..20),
        ) {
            let all: Vec<_> = reads
                .iter()
                .map(|(bytes, at)| event(Stream::Tty, [b"", bytes], Stamp(*at)))
                .collect();
            let mut cast = Cast::new("\"".into(), SIZE);
            let header = String::from_utf8(cast.begin(&all[0])).unwrap();
            let text = header + &written(&mut cast, &all);
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
