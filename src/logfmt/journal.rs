//! Entries for journald in its native protocol (systemd's "Journal Native Protocol"): fields as
//! `KEY=value` lines, one datagram each. Pure. A text has no line end in it, so the short form of a field always
//! does.

use std::fmt::Write as _;

use super::lines::Entry;
use super::syslog::{self, Message};
use crate::types::stream::Stream;

/// Where journald listens.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// Bytes before each entry: its length, native order, for the writer sends each by itself.
pub(crate) const LENGTH: usize = size_of::<u32>();

/// Appends what is to be one datagram behind its length.
pub(crate) fn datagram(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    encode(out);
    // An entry is far below 4 GiB: its text has a limit.
    let len = u32::try_from(out.len() - at - LENGTH).unwrap_or(u32::MAX);
    out[at..at + LENGTH].copy_from_slice(&len.to_ne_bytes());
}

/// What every entry of a log says: made once.
#[derive(Clone, Debug)]
pub struct Fields(String);

/// Bytes of an entry beside its text and [`Fields`], at most.
pub(crate) const AROUND: usize = 96;

impl Fields {
    /// The fields of an app's entries: `app` is a checked name; `unit` is the app's own unit, under
    /// which `journalctl -u` shows them (root's senders only).
    pub fn new(app: &str, unit: Option<&str>) -> Self {
        let mut fields = format!("SYSLOG_IDENTIFIER={app}\nCONTAINER_NAME={app}\n");
        if let Some(unit) = unit {
            // Writing into a string does not fail.
            let _ = writeln!(fields, "OBJECT_SYSTEMD_UNIT={unit}");
        }
        Self(fields)
    }

    /// The fields that systemd itself gives the lines of a service; `user_unit` is that of a user's own manager,
    /// under which `journalctl --user -u` shows them.
    pub(crate) fn service(identifier: &str, facility: u8, user_unit: Option<&str>) -> Self {
        let mut fields = format!("SYSLOG_IDENTIFIER={identifier}\nSYSLOG_FACILITY={facility}\n");
        if let Some(unit) = user_unit {
            // Writing into a string does not fail.
            let _ = writeln!(fields, "OBJECT_SYSTEMD_USER_UNIT={unit}");
        }
        Self(fields)
    }

    /// Appends a message, which may have any bytes.
    pub(crate) fn encode_message(&self, out: &mut Vec<u8>, message: &Message<'_>) {
        out.extend_from_slice(self.0.as_bytes());
        out.extend_from_slice(b"IOTTYMUX_STREAM=");
        out.extend_from_slice(message.stream.logged_as().as_bytes());
        out.extend_from_slice(b"\nPRIORITY=");
        out.extend_from_slice(&[b'0' + message.priority]);
        out.extend_from_slice(b"\nMESSAGE\n");
        out.extend_from_slice(&(message.len() as u64).to_le_bytes());
        message.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        out.push(b'\n');
    }

    /// Their length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: every entry has a name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends an entry. A priority at the start of a line (`<0>` to `<7>`) is taken from it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, entry: &Entry<'_>) {
        let usual = if entry.stream == Stream::Stderr { 3 } else { 6 };
        let prefix = if entry.first { syslog::prefix(entry.pieces) } else { None };
        let (priority, skip) = prefix.unwrap_or((usual, 0));
        out.extend_from_slice(self.0.as_bytes());
        out.extend_from_slice(b"IOTTYMUX_STREAM=");
        out.extend_from_slice(entry.stream.logged_as().as_bytes());
        out.extend_from_slice(b"\nPRIORITY=");
        out.extend_from_slice(&[b'0' + priority, b'\n']);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(stream: Stream, first: bool, last: bool, pieces: [&[u8]; 2]) -> String {
        let mut out = Vec::new();
        let fields = Fields::new("demo", Some("demo.service"));
        fields.encode(&mut out, &Entry { stream, first, last, pieces });
        assert!(out.len() <= AROUND + fields.len() + pieces.concat().len());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_of_an_entry() {
        assert_eq!(
            encoded(Stream::Stdout, true, true, [b"te", b"xt"]),
            "SYSLOG_IDENTIFIER=demo\nCONTAINER_NAME=demo\nOBJECT_SYSTEMD_UNIT=demo.service\n\
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
