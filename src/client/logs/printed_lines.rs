//! Makes the printed text of entries: joins the parts of lines, and selects the wanted lines. No
//! I/O, no clock.
//!
//! Invariant: each line is printed whole, as the app wrote it, or not at all; only the last one may
//! be incomplete. A part is printed when it is read: a line can be very long, and a prompt has no
//! end.

use std::borrow::Cow;

use serde::Serialize;

use crate::core::logfmt::entry::LoggedEntry;
use crate::screen::scan;
use crate::types::escape::{self, is_unsafe};
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Which lines of a log are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// Only this stream.
    pub(crate) stream: Option<Stream>,
    /// Only lines that begin at this time or later.
    pub(crate) since: Stamp,
    /// Only lines that begin at this time or earlier.
    pub(crate) until: Option<Stamp>,
    /// Whether the time is printed before each line.
    pub(crate) stamps: bool,
    /// Whether each line is printed as a JSON document.
    pub(crate) json: bool,
}

impl Wants {
    /// Whether lines of this stream are wanted.
    pub(crate) fn includes(&self, stream: Stream) -> bool {
        self.stream.is_none_or(|only| only == stream)
    }

    /// Whether a line of this stream that begins at this time is wanted.
    pub(crate) fn includes_line(&self, stream: Stream, begins: Stamp) -> bool {
        let is_too_late = self.until.is_some_and(|until| begins > until);
        self.includes(stream) && begins >= self.since && !is_too_late
    }
}

/// The document of a line with `--json`.
#[derive(Serialize)]
struct JsonLine<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    time: &'a str,
    stream: Stream,
    text: Cow<'a, str>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EntryPrinter {
    wants: Wants,
    /// Whether standard output and standard error are terminals.
    screens: [bool; 2],
    /// Whether the app has left colours on there, which may hide what follows.
    has_colour: [bool; 2],
    /// Whether the current line of each stream is printed; `None` between lines.
    inside: [Option<bool>; 2],
}

impl EntryPrinter {
    /// Prints the wanted lines; `screens` says which output is a terminal.
    pub(crate) fn new(wants: Wants, screens: [bool; 2]) -> Self {
        Self { wants, screens, has_colour: [false; 2], inside: [None; 2] }
    }

    /// Appends the printed text of an entry.
    pub(crate) fn print(&mut self, entry: &LoggedEntry<'_>, out: &mut Vec<u8>) {
        let index = index(entry.stream);
        let begins = self.inside[index].is_none();
        let shown = *self.inside[index]
            .get_or_insert_with(|| self.wants.includes_line(entry.stream, entry.stamp));
        if entry.ends {
            self.inside[index] = None;
        }
        if !shown {
            return;
        }
        if self.wants.json {
            let (time, text) = (&*entry.written, String::from_utf8_lossy(&entry.text));
            let line = JsonLine { time, stream: entry.stream, text };
            // Strings cannot fail.
            let line = serde_json::to_string(&line).unwrap_or_default();
            out.extend_from_slice(escape::ascii_json(&line).as_bytes());
            out.push(b'\n');
            return;
        }
        if begins && self.wants.stamps {
            out.extend_from_slice(entry.written.as_bytes());
            out.push(b' ');
        }
        if self.screens[index] {
            // Of a line's end with \r it does no harm.
            let end = entry.text.strip_suffix(b"\r").filter(|_| entry.ends);
            let text = end.unwrap_or(&entry.text);
            escape_text(text, self.wants.stamps, &mut self.has_colour[index], out);
            if entry.ends {
                self.rest(entry.stream, out);
            }
        } else {
            out.extend_from_slice(&entry.text);
        }
        if entry.ends {
            out.push(b'\n');
        }
    }

    /// Appends what switches off the colours of a stream's terminal.
    pub(crate) fn rest(&mut self, stream: Stream, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_colour[index(stream)]) {
            out.extend_from_slice(b"\x1b[m");
        }
    }
}

/// The index of a stream: logs have two.
pub(crate) fn index(stream: Stream) -> usize {
    usize::from(stream == Stream::Stderr)
}

/// Appends text for a terminal: all control sequences other than colours are escaped. Behind a stamp
/// that includes what would go back to it.
fn escape_text(text: &[u8], has_stamp: bool, has_colour: &mut bool, out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        let mut colour_ends = 0;
        for (at, c) in valid.char_indices() {
            if let Some((numbers, b'm')) = scan::numbers(&valid.as_bytes()[at..]) {
                *has_colour = !matches!(numbers, b"" | b"0");
                colour_ends = at + numbers.len() + 3;
            }
            let is_kept = matches!(c, '\t' | '\n') || c == '\r' && !has_stamp;
            if at < colour_ends || !is_unsafe(c) || is_kept {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                out.extend(c.escape_debug().map(|c| c as u8));
            }
        }
        out.extend_from_slice(chunk.invalid().escape_ascii().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::logfmt::format;

    fn printed(wants: Wants, log: &str) -> String {
        let mut lines = EntryPrinter::new(wants, [false; 2]);
        let mut out = Vec::new();
        for line in log.split_inclusive('\n') {
            lines.print(&format::parse(line.as_bytes()).unwrap(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    const LOG: &str = "\
        2020-01-01T00:00:01Z stdout P a1\n\
        2020-01-01T00:00:02Z stderr F b\n\
        2020-01-01T00:00:03Z stdout P \n\
        2020-01-01T00:00:04Z stdout F a2\n\
        2020-01-01T00:00:05Z stderr P c\n\
        2020-01-01T00:00:06Z stdout F \n\
        2020-01-01T00:00:07Z stdout P d";

    #[test]
    fn parts_become_lines_of_the_streams_that_are_wanted() {
        let only = |stream| Wants { stream: Some(stream), ..Wants::default() };
        assert_eq!(printed(only(Stream::Stdout), LOG), "a1a2\n\nd");
        assert_eq!(printed(only(Stream::Stderr), LOG), "b\nc");
        assert_eq!(printed(Wants::default(), LOG), "a1b\na2\nc\nd");
    }

    #[test]
    fn a_line_has_the_time_of_its_beginning() {
        let stdout = Wants { stream: Some(Stream::Stdout), stamps: true, ..Wants::default() };
        let want = "2020-01-01T00:00:01Z a1a2\n2020-01-01T00:00:06Z \n2020-01-01T00:00:07Z d";
        assert_eq!(printed(stdout, LOG), want);
        let since = |text| Wants { since: Stamp::parse(text).unwrap(), ..stdout };
        assert_eq!(printed(since("2020-01-01T00:00:01Z"), LOG), want);
        assert_eq!(printed(since("2020-01-01T00:00:02Z"), LOG), want[26..].to_owned());
        assert_eq!(printed(since("2020-01-01T00:00:08Z"), LOG), "");
    }

    #[test]
    fn a_terminal_is_told_nothing_but_colours() {
        for (text, want) in [
            (&b"a\tb\r\x1b[1;31mred\x1b[m \xc3\xa9"[..], "a\tb\r\x1b[1;31mred\x1b[m é"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            (b"\x1b[2J\x1b[31", "\\u{1b}[2J\\u{1b}[31"),
            (b"\x1b\x1b[0m", "\\u{1b}\x1b[0m"),
            (b"\x1b[3\xff1m\x9b2J\0\x7f\xc2\x9b", "\\u{1b}[3\\xff1m\\x9b2J\\0\\u{7f}\\u{9b}"),
            ("\u{202e}a\u{2066}\u{61c}\u{2028}".as_bytes(), "\\u{202e}a\\u{2066}\\u{61c}\\u{2028}"),
        ] {
            let mut out = Vec::new();
            escape_text(text, false, &mut false, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn no_line_hides_its_stamp_or_the_next_line() {
        let wants = Wants { stamps: true, ..Wants::default() };
        let mut lines = EntryPrinter::new(wants, [true; 2]);
        let mut out = Vec::new();
        for line in [
            "2020-01-01T00:00:01Z stdout F a\r2019 b\r\n",
            "2020-01-01T00:00:02Z stdout F \x1b[8mhidden\n",
            "2020-01-01T00:00:03Z stdout F seen\n",
        ] {
            lines.print(&format::parse(line.as_bytes()).unwrap(), &mut out);
        }
        let want = "2020-01-01T00:00:01Z a\\r2019 b\n\
                    2020-01-01T00:00:02Z \x1b[8mhidden\x1b[m\n\
                    2020-01-01T00:00:03Z seen\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
