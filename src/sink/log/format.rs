//! The formats of logs. Pure.

use memchr::memchr_iter;

use super::journal::Fields;
use super::line::{Entry, Splitter};
use super::stamp::StampText;
use super::{Lost, cast, cri, journal, json};
use crate::limits;

/// Bytes before each entry for journald: its length, for the writer sends each by itself.
pub const LENGTH: usize = size_of::<u32>();

/// How entries are written.
#[derive(Clone, Debug)]
pub enum Format {
    /// Kubernetes' CRI.
    Cri,
    /// docker's json-file.
    Json,
    /// journald's own, each entry behind its length (u32, native order).
    Journal(Fields),
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
    #[must_use]
    pub fn splitter(&self, line_limit: usize) -> Splitter {
        match self {
            Self::Cast { .. } => Splitter::of_reads(limits::RECORD_EVENT),
            _ => Splitter::new(line_limit),
        }
    }

    /// Bytes that an entry of so many bytes of text needs at most.
    #[must_use]
    pub fn worst(&self, text: usize) -> usize {
        match self {
            Self::Cri => cri::AROUND + text,
            Self::Json => json::AROUND + json::WIDEST * text,
            Self::Journal(fields) => LENGTH + journal::AROUND + fields.len() + text,
            Self::Raw => text + 1,
            Self::Cast { .. } => cast::AROUND + json::WIDEST * text,
        }
    }

    /// Whether an entry ends with a line end and has no other one, so that a file can be cut there.
    #[must_use]
    pub fn is_lines(&self) -> bool {
        matches!(self, Self::Cri | Self::Json | Self::Cast { .. })
    }

    /// What of the app is in the beginning of a chunk, where that can be told: of an entry that is not
    /// whole nothing counts, but for the raw bytes.
    #[must_use]
    pub fn count(&self, begun: &[u8]) -> Option<Lost> {
        match self {
            _ if begun.is_empty() => Some(Lost::default()),
            Self::Cri => Some(cri::count(begun)),
            Self::Raw => {
                let lines = memchr_iter(b'\n', begun).count() as u64;
                Some(Lost { lines, bytes: begun.len() as u64 - lines })
            }
            Self::Json | Self::Journal(_) | Self::Cast { .. } => None,
        }
    }

    /// Appends an entry.
    pub fn encode(&self, out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
        match self {
            Self::Cri => cri::encode(out, stamp, entry),
            Self::Json => json::encode(out, stamp, entry),
            Self::Journal(fields) => {
                let at = out.len();
                out.extend_from_slice(&[0; LENGTH]);
                fields.encode(out, entry);
                // An entry is far below 4 GiB: its text has a limit.
                let len = u32::try_from(out.len() - at - LENGTH).unwrap_or(u32::MAX);
                out[at..at + LENGTH].copy_from_slice(&len.to_ne_bytes());
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
