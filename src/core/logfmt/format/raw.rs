//! The app's bytes and nothing else: the lines of both streams, one after the other. No I/O, no
//! clock.

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::{self, Encoder, LogFormat};
use crate::core::logfmt::lines::Entry;
use crate::core::logfmt::stamp::StampText;
use crate::types::stream::Stream;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "raw",
    argument: ":PATH",
    help: "the bytes only",
    target: encoder::file,
    records_terminal: false,
    is_lines: false,
    encoder: |_| Box::new(Raw),
    reader: None,
};

#[derive(Debug)]
struct Raw;

impl Encoder for Raw {
    fn encode(&mut self, out: &mut Buffer<'_>, _: &StampText, entry: &Entry<'_>) {
        for piece in entry.pieces {
            out.extend_from_slice(piece);
        }
        if entry.last {
            out.push(b'\n');
        }
    }

    fn worst(&self, text: usize) -> usize {
        text + 1
    }

    /// A line end that the app did not write is not added.
    fn ends_lines_with_app(&self) -> bool {
        false
    }

    fn line_of(&self, _: Stream) -> Option<Stream> {
        Some(Stream::Stdout)
    }

    fn runs_lines_together(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::time::Stamp;

    #[test]
    fn the_bytes_of_the_app_and_its_line_ends() {
        let mut memory = [0; 5];
        let mut out = Buffer::new(&mut memory);
        for (last, pieces) in [(true, [&b"a"[..], b"b"]), (false, [b"c", b""])] {
            let entry = Entry { stream: Stream::Stderr, first: true, last, pieces };
            Raw.encode(&mut out, &StampText::new(Stamp(1)), &entry);
        }
        assert_eq!(&*out, b"ab\nc");
    }
}
