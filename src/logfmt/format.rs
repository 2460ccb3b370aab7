//! The formats of logs. Pure.

use memchr::memchr_iter;

use super::chunk::{Chunk, Lost};
use super::journal::{Fields, LENGTH, datagram};
use super::lines::{Entry, Splitter};
use super::stamp::StampText;
use super::syslog::Syslog;
use super::{cast, cri, frame, journal, json};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// How entries are written.
#[derive(Clone, Debug)]
pub enum Format {
    /// Kubernetes' CRI.
    Cri,
    /// docker's json-file.
    Json,
    /// journald's own, each entry behind its length (u32, native order).
    Journal(Fields),
    /// The same, with the lines of a service as systemd itself would have them.
    Service(Fields, Syslog),
    /// Such lines, for `iojournal@NAME.service`.
    Frames(Syslog),
    /// The app's bytes and nothing else.
    Raw,
    /// asciicast v2: a recording of a terminal.
    Cast {
        /// Whether it has what was typed.
        input: bool,
    },
}

impl Format {
    /// What makes entries for it, of lines no longer than that many bytes.
    pub fn splitter(&self, line_limit: usize) -> Splitter {
        match self {
            Self::Cast { .. } => Splitter::of_reads(limits::RECORD_EVENT),
            // As journald splits them.
            Self::Service(..) | Self::Frames(_) => Splitter::new(limits::JOURNAL_LINE).with_zeros(),
            _ => Splitter::new(line_limit),
        }
    }

    /// Bytes that an entry of so many bytes of text needs at most.
    pub fn worst(&self, text: usize) -> usize {
        match self {
            Self::Cri => cri::AROUND + text,
            Self::Json => json::AROUND + json::WIDEST * text,
            Self::Journal(fields) => LENGTH + journal::AROUND + fields.len() + text,
            // Of a terminal, each byte that is no text becomes three.
            Self::Service(fields, _) => LENGTH + journal::AROUND + fields.len() + 3 * text,
            Self::Frames(_) => frame::worst(3 * text),
            Self::Raw => text + 1,
            Self::Cast { .. } => cast::AROUND + json::WIDEST * text,
        }
    }

    /// Whether some readers cannot bear another stream between the parts of a line.
    pub(crate) fn keeps_lines_together(&self) -> bool {
        !matches!(self, Self::Service(..) | Self::Frames(_))
    }

    /// Whether an entry ends with a line end and has no other one, so that a file can be cut there.
    pub(crate) fn is_lines(&self) -> bool {
        matches!(self, Self::Cri | Self::Json | Self::Cast { .. })
    }

    /// What is to be appended to a file that ends so: the end of each line that has none and would
    /// get one of another app's.
    pub(crate) fn close(&mut self, tail: &[u8]) -> Vec<u8> {
        let part = match self {
            Self::Cri => cri::part,
            Self::Json => json::part,
            // A journal is no file, and the raw bytes are the app's alone.
            Self::Journal(_)
            | Self::Service(..)
            | Self::Frames(_)
            | Self::Raw
            | Self::Cast { .. } => return Vec::new(),
        };
        let (mut open, mut last) = ([false; Stream::ALL.len()], Stamp::default());
        for (stamp, stream, ends) in tail.split(|byte| *byte == b'\n').filter_map(part) {
            open[stream as usize] = !ends;
            last = stamp;
        }
        let mut out = Vec::new();
        for stream in Stream::ALL.into_iter().filter(|stream| open[*stream as usize]) {
            let end = Entry { stream, first: false, last: true, pieces: [&[]; 2] };
            self.encode(&mut out, &StampText::new(last), &end);
        }
        out
    }

    /// What of the app is in the beginning of a chunk, where that can be told: of an entry that is not
    /// whole nothing counts, but for the raw bytes.
    pub(crate) fn count(&self, begun: &[u8]) -> Option<Lost> {
        match self {
            _ if begun.is_empty() => Some(Lost::default()),
            Self::Cri => Some(cri::count(begun)),
            Self::Raw => {
                let lines = memchr_iter(b'\n', begun).count() as u64;
                Some(Lost { lines, bytes: begun.len() as u64 - lines })
            }
            Self::Json
            | Self::Journal(_)
            | Self::Service(..)
            | Self::Frames(_)
            | Self::Cast { .. } => None,
        }
    }

    /// Appends an entry to a chunk, and counts it there.
    pub(crate) fn put(&mut self, chunk: &mut Chunk, stamp: &StampText, entry: &Entry<'_>) {
        self.encode(&mut chunk.bytes, stamp, entry);
        let text = entry.pieces.iter().map(|piece| piece.len()).sum();
        chunk.count(u64::from(entry.last), text, stamp.stamp());
    }

    /// Appends an entry.
    pub fn encode(&mut self, out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
        match self {
            Self::Cri => cri::encode(out, stamp, entry),
            Self::Json => json::encode(out, stamp, entry),
            Self::Journal(fields) => datagram(out, |out| fields.encode(out, entry)),
            Self::Service(fields, syslog) => {
                if let Some(message) = syslog.message(entry) {
                    datagram(out, |out| fields.encode_message(out, &message));
                }
            }
            Self::Frames(syslog) => {
                if let Some(message) = syslog.message(entry) {
                    frame::encode(out, &message);
                }
            }
            Self::Cast { .. } => cast::encode(out, stamp.stamp(), entry),
            Self::Raw => {
                for piece in entry.pieces {
                    out.extend_from_slice(piece);
                }
                if entry.last {
                    out.push(b'\n');
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of these streams and texts, which end their lines or not.
    fn log(format: &Format, entries: &[(Stream, &str, bool)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (second, (stream, text, last)) in (1..).zip(entries) {
            let pieces = [text.as_bytes(), &[]];
            let entry = Entry { stream: *stream, first: true, last: *last, pieces };
            format.clone().encode(&mut out, &StampText::new(Stamp(second * 1_000_000_000)), &entry);
        }
        out
    }

    #[test]
    fn lines_without_an_end_get_one() {
        use Stream::{Stderr, Stdout};
        for format in [Format::Cri, Format::Json] {
            let half = log(&format, &[(Stderr, "x", true), (Stdout, "half", false)]);
            let end = log(&format, &[(Stdout, "", true)]);
            let at = |second: u8| {
                let text = String::from_utf8(end.clone()).unwrap();
                text.replace("00:00:01", &format!("00:00:0{second}"))
            };
            assert_eq!(String::from_utf8(format.clone().close(&half)).unwrap(), at(2));
            // From the middle of an entry on, and torn off.
            assert_eq!(format.clone().close(&half[9..half.len() - 1]), at(2).as_bytes());
            for entries in [
                &[][..],
                &[(Stdout, "half", false), (Stdout, "", true)],
                &[(Stdout, "a \\n\",\"stream\":\"stderr", true)],
            ] {
                assert_eq!(format.clone().close(&log(&format, entries)), b"", "{entries:?}");
            }
            // The text is no line end.
            assert!(!format.clone().close(&log(&format, &[(Stdout, "a\\n", false)])).is_empty());
            let both = log(&format, &[(Stdout, "a", false), (Stderr, "b", false)]);
            assert_eq!(memchr_iter(b'\n', &format.clone().close(&both)).count(), 2);
            assert!(
                format
                    .clone()
                    .close(&[both.clone(), format.clone().close(&both)].concat())
                    .is_empty()
            );
            assert_eq!(format.clone().close(b"no log\n\n{}\n"), b"");
        }
    }
}
