//! Entries for journald, with the fields of a container. No I/O, no clock.
//!
//! The native protocol of journald ("Journal Native Protocol" of systemd) takes one datagram per
//! entry, of `KEY=value` lines. A text without a line end fits this short form of a field.

use std::fmt::Write as _;

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::{Encoder, FormatOptions, LogFormat, LogTarget};
use crate::core::logfmt::lines::Entry;
use crate::core::logfmt::stamp::StampText;
use crate::core::logfmt::syslog;
use crate::types::stream::Stream;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "container-journal",
    argument: "",
    help: "lines with container fields, for `journalctl -u APP`",
    target: |argument| match argument {
        None => Ok(LogTarget::Journald),
        Some(_) => Err("it takes no argument".to_owned()),
    },
    records_terminal: false,
    is_lines: false,
    encoder: |options| Box::new(Journald::new(options)),
    reader: None,
};

/// Bytes before each entry: its length in native order. The writer sends each entry by itself.
pub(crate) const LENGTH: usize = size_of::<u32>();

/// Appends what becomes one datagram behind its length.
pub(crate) fn datagram(out: &mut Buffer<'_>, encode: impl FnOnce(&mut Buffer<'_>)) {
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    encode(out);
    // An entry is far below 4 GiB: its text has a limit.
    let len = u32::try_from(out.len() - at - LENGTH).unwrap_or(u32::MAX);
    out[at..at + LENGTH].copy_from_slice(&len.to_ne_bytes());
}

/// Appends the fields that both formats for journald have, up to `PRIORITY=`.
pub(crate) fn begin(out: &mut Buffer<'_>, fields: &str, stream: Stream, priority: u8) {
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(b"IOTTYMUX_STREAM=");
    out.extend_from_slice(stream.logged_as().as_bytes());
    out.extend_from_slice(b"\nPRIORITY=");
    out.extend_from_slice(&[b'0' + priority, b'\n']);
}

/// Bytes of an entry besides its text and its own fields, at most.
pub(crate) const AROUND: usize = 96;

/// The encoder: the fields that all entries have.
#[derive(Debug)]
struct Journald(String);

impl Journald {
    /// `unit` is the app's own unit, under which `journalctl -u` shows the entries (only for what
    /// root sends).
    fn new(FormatOptions { app, unit, kubernetes, .. }: &FormatOptions) -> Self {
        let mut fields = format!("SYSLOG_IDENTIFIER={app}\nCONTAINER_NAME={app}\n");
        // Writing into a string does not fail.
        if let Some(unit) = unit {
            let _ = writeln!(fields, "OBJECT_SYSTEMD_UNIT={unit}");
        }
        if let Some([namespace, pod, container]) = kubernetes {
            let _ = write!(fields, "K8S_NAMESPACE={namespace}\nK8S_POD={pod}\n");
            let _ = writeln!(fields, "K8S_CONTAINER={container}");
        }
        Self(fields)
    }

    /// A priority at the start of a line (`<0>` to `<7>`) is removed from its text.
    fn fields(&self, out: &mut Buffer<'_>, entry: &Entry<'_>) {
        let usual = if entry.stream == Stream::Stderr { 3 } else { 6 };
        let prefix = if entry.first { syslog::prefix(entry.pieces) } else { None };
        let (priority, skip) = prefix.unwrap_or((usual, 0));
        begin(out, &self.0, entry.stream, priority);
        if !entry.last {
            out.extend_from_slice(b"CONTAINER_PARTIAL_MESSAGE=true\n");
        }
        out.extend_from_slice(b"MESSAGE=");
        let [a, b] = entry.pieces;
        let from_a = skip.min(a.len());
        out.extend_from_slice(&a[from_a..]);
        out.extend_from_slice(&b[skip - from_a..]);
        out.push(b'\n');
    }
}

impl Encoder for Journald {
    fn encode(&mut self, out: &mut Buffer<'_>, _: &StampText, entry: &Entry<'_>) {
        datagram(out, |out| self.fields(out, entry));
    }

    fn worst(&self, text: usize) -> usize {
        LENGTH + AROUND + self.0.len() + text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(stream: Stream, first: bool, last: bool, pieces: [&[u8]; 2]) -> String {
        let mut memory = [0; 1024];
        let mut out = Buffer::new(&mut memory);
        let journald = Journald::new(&FormatOptions {
            app: "demo".to_owned(),
            unit: Some("demo.service".to_owned()),
            kubernetes: Some(["default", "web-0", "nginx"].map(str::to_owned)),
            ..FormatOptions::default()
        });
        journald.fields(&mut out, &Entry { stream, first, last, pieces });
        assert!(out.len() <= AROUND + journald.0.len() + pieces.concat().len());
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn fields_of_an_entry() {
        assert_eq!(
            encoded(Stream::Stdout, true, true, [b"te", b"xt"]),
            "SYSLOG_IDENTIFIER=demo\nCONTAINER_NAME=demo\nOBJECT_SYSTEMD_UNIT=demo.service\n\
             K8S_NAMESPACE=default\nK8S_POD=web-0\nK8S_CONTAINER=nginx\n\
             IOTTYMUX_STREAM=stdout\nPRIORITY=6\nMESSAGE=text\n"
        );
        let part = encoded(Stream::Stderr, true, false, [b"part", b""]);
        assert!(
            part.ends_with("PRIORITY=3\nCONTAINER_PARTIAL_MESSAGE=true\nMESSAGE=part\n"),
            "{part}"
        );
    }

    #[test]
    fn priorities_at_the_start_of_a_line() {
        for (text, priority, message) in [
            ("<0>x", 0, "x"),
            ("<7>", 7, ""),
            ("<8>x", 6, "<8>x"),
            ("<>x", 6, "<>x"),
            ("<a>x", 6, "<a>x"),
            ("< 0>x", 6, "< 0>x"),
            ("<<0>>x", 6, "<<0>>x"),
            ("<4", 6, "<4"),
        ] {
            for cut in 0..=text.len() {
                let (a, b) = text.split_at(cut);
                let entry = encoded(Stream::Stdout, true, true, [a.as_bytes(), b.as_bytes()]);
                let want = format!("PRIORITY={priority}\nMESSAGE={message}\n");
                assert!(entry.ends_with(&want), "{text} at {cut}: {entry}");
            }
        }
        let rest = encoded(Stream::Stdout, false, true, [b"<3>not at the start", b""]);
        assert!(rest.ends_with("PRIORITY=6\nMESSAGE=<3>not at the start\n"), "{rest}");
    }
}
