//! The lines of a service for the journal, as systemd itself would write them. No I/O, no clock.
//!
//! The mux of a user's manager sends them to journald itself. A system's mux writes them as frames
//! for the journal writer, since only root may send in the name of another unit.

use std::fmt::Write as _;
use std::time::Duration;

use super::journald::{AROUND, LENGTH, begin, datagram};
use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::{Encoder, FormatOptions, LogFormat, LogTarget, Note};
use crate::core::logfmt::lines::{Entry, Splitter};
use crate::core::logfmt::stamp::StampText;
use crate::core::logfmt::syslog::{Message, Syslog};
use crate::core::logfmt::{entry, frame};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "journal",
    argument: "",
    help: "lines of the service itself, for `journalctl -u SERVICE`",
    target: |stream| {
        let stream = stream.map(|name| entry::stream(name.as_bytes())).transpose();
        stream.map(LogTarget::Journal).map_err(|_| "expected stdout or stderr".to_owned())
    },
    records_terminal: false,
    is_lines: false,
    encoder: |options| Box::new(JournalEncoder::new(options)),
    reader: None,
};

/// Bytes that a byte of a terminal becomes, at most: one that is not UTF-8 becomes U+FFFD.
const WIDEST: usize = 3;

/// The encoder.
#[derive(Debug)]
struct JournalEncoder {
    syslog: Syslog,
    /// The fields of each datagram; `None` for frames.
    fields: Option<String>,
}

impl JournalEncoder {
    fn new(options: &FormatOptions) -> Self {
        let syslog = options.syslog.clone();
        if options.uses_journal_writer {
            return Self { syslog, fields: None };
        }
        let identifier = options.identifier.as_ref().unwrap_or(&options.app);
        let facility = options.facility;
        let mut fields = format!("SYSLOG_IDENTIFIER={identifier}\nSYSLOG_FACILITY={facility}\n");
        if let Some(unit) = &options.unit {
            // Writing into a string does not fail.
            let _ = writeln!(fields, "OBJECT_SYSTEMD_USER_UNIT={unit}");
        }
        Self { syslog, fields: Some(fields) }
    }
}

/// Appends the fields of a message, which may have any bytes.
fn encode_message(out: &mut Buffer<'_>, fields: &str, message: &Message<'_>) {
    begin(out, fields, message.stream, message.priority);
    out.extend_from_slice(b"MESSAGE\n");
    out.extend_from_slice(&(message.len() as u64).to_le_bytes());
    message.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out.push(b'\n');
}

impl Encoder for JournalEncoder {
    fn encode(&mut self, out: &mut Buffer<'_>, _: &StampText, entry: &Entry<'_>) {
        match (self.syslog.message(entry), &self.fields) {
            (Some(message), Some(fields)) => {
                datagram(out, |out| encode_message(out, fields, &message));
            }
            (Some(message), None) => frame::encode(out, &message),
            (None, _) => {}
        }
    }

    fn worst(&self, text: usize) -> usize {
        match &self.fields {
            Some(fields) => LENGTH + AROUND + fields.len() + WIDEST * text,
            None => frame::worst(WIDEST * text),
        }
    }

    /// Splits lines as journald does.
    fn splitter(&self, _: usize) -> Splitter {
        Splitter::new(limits::JOURNAL_LINE).with_zeros()
    }

    /// Half a line waits for its end, as with systemd's own streams.
    fn flush(&self, _: Duration) -> Duration {
        limits::AGES
    }

    fn note(&mut self, _: Stamp, note: Note<'_>) -> Vec<u8> {
        if let Note::Size(size) = note {
            self.syslog.set_columns(size.cols);
        }
        Vec::new()
    }

    fn may_mix_lines(&self) -> bool {
        true
    }

    fn own_stream(&self) -> Stream {
        self.syslog.own_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::time::Stamp;

    #[test]
    fn a_line_as_a_datagram_and_as_a_frame() {
        let stamp = StampText::new(Stamp(1));
        let pieces = [&b"<3>a"[..], b"b"];
        let entry = Entry { stream: Stream::Stdout, first: true, last: true, pieces };
        let unit = Some("demo.service".to_owned());
        let options = FormatOptions { app: "demo".into(), unit, ..FormatOptions::default() };
        let (mut memory, mut journal) = ([0; 1024], JournalEncoder::new(&options));
        let mut out = Buffer::new(&mut memory);
        journal.encode(&mut out, &stamp, &entry);
        let fields = "SYSLOG_IDENTIFIER=demo\nSYSLOG_FACILITY=3\nOBJECT_SYSTEMD_USER_UNIT=demo.service\n\
                      IOTTYMUX_STREAM=stdout\nPRIORITY=3\nMESSAGE\n\x02\0\0\0\0\0\0\0ab\n";
        let len = u32::try_from(fields.len()).unwrap().to_ne_bytes();
        assert_eq!(&*out, [&len, fields.as_bytes()].concat());
        assert!(out.len() <= journal.worst(5));
        let options = FormatOptions { uses_journal_writer: true, ..options };
        let (mut memory, mut journal) = ([0; 1024], JournalEncoder::new(&options));
        let mut out = Buffer::new(&mut memory);
        journal.encode(&mut out, &stamp, &entry);
        assert_eq!(frame::next(&mut &out[..]).unwrap().text, b"ab");
    }
}
