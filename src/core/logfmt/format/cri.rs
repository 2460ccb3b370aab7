//! The log format of Kubernetes' container runtimes (CRI): `STAMP stdout F text`. No I/O, no clock.
//!
//! Writing: podman's reader needs exactly nine digits after the point of the stamp, and the kubelet
//! needs the space before an empty text. Reading follows the kubelet: a stamp with any number of
//! digits, several tags of which only the first counts, and a text only after a space.

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::{self, Encoder, FormatReader, LogFormat};
use crate::core::logfmt::entry::{self, LoggedEntry};
use crate::core::logfmt::lines::Entry;
use crate::core::logfmt::stamp::{self, StampText};
use crate::types::stream::Stream;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "cri",
    argument: ":PATH",
    help: "the format of the kubelet and podman",
    target: encoder::file,
    records_terminal: false,
    is_lines: true,
    encoder: |_| Box::new(Cri),
    reader: Some(FormatReader { begins, parse }),
};

/// Bytes around a text, at most: stamp, stream, tag, spaces, line end.
const AROUND: usize = 48;
/// Bytes of a stamp, and of a stream and tag with the spaces around them.
const STAMP: usize = stamp::LEN;
const TAG: usize = " stdout F ".len();
/// How an entry begins: the part of its stamp that always has the same length.
const BEGIN: &str = "2006-01-02T15:04:05";

#[derive(Debug)]
struct Cri;

impl Encoder for Cri {
    fn encode(&mut self, out: &mut Buffer<'_>, stamp: &StampText, entry: &Entry<'_>) {
        let [a, b] = entry.pieces;
        let tag: &[u8; TAG] = match (entry.stream, entry.last) {
            (Stream::Stderr, true) => b" stderr F ",
            (Stream::Stderr, false) => b" stderr P ",
            (_, true) => b" stdout F ",
            (_, false) => b" stdout P ",
        };
        // One check of the room, and copies of a known length, which are a few instructions each.
        let to = out.grow(STAMP + TAG + a.len() + b.len() + 1);
        let (head, text) = to.split_at_mut(STAMP + TAG);
        head[..STAMP].copy_from_slice(stamp.as_bytes());
        head[STAMP..].copy_from_slice(tag);
        let (first, rest) = text.split_at_mut(a.len());
        // Mostly nothing was kept of the line.
        if !a.is_empty() {
            first.copy_from_slice(a);
        }
        rest[..b.len()].copy_from_slice(b);
        rest[b.len()] = b'\n';
    }

    fn worst(&self, text: usize) -> usize {
        AROUND + text
    }
}

fn begins(head: &[u8]) -> bool {
    head.iter().take(BEGIN.len()).all(|b| b.is_ascii_digit() || b"-T:".contains(b))
}

fn parse(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut field = || fields.next().ok_or("it has too few fields");
    let (stamp, written) = entry::stamp(field()?)?;
    let stream = entry::stream(field()?)?;
    let tags = field()?;
    let text = field()?;
    let ends = tags.split(|byte| *byte == b':').next() != Some(b"P");
    Ok(LoggedEntry { stamp, written: written.into(), stream, text: text.into(), ends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::time::Stamp;

    #[test]
    fn entries_as_the_readers_want_them() {
        // 2016-10-06T00:17:09.669794202Z
        let stamp = StampText::new(Stamp(1_475_713_029_669_794_202));
        for (stream, last, pieces, want) in [
            (Stream::Stdout, true, [&b"a li"[..], b"ne\r"], "stdout F a line\r\n"),
            (Stream::Stderr, false, [b"part", b""], "stderr P part\n"),
            (Stream::Tty, true, [b"", b""], "stdout F \n"),
        ] {
            let mut memory = vec![0; Cri.worst(pieces.concat().len())];
            let mut out = Buffer::new(&mut memory);
            Cri.encode(&mut out, &stamp, &Entry { stream, first: true, last, pieces });
            let want = format!("2016-10-06T00:17:09.669794202Z {want}");
            assert_eq!(String::from_utf8_lossy(&out), want);
            let written = if stream == Stream::Stderr { stream } else { Stream::Stdout };
            let read = parse(out.strip_suffix(b"\n").unwrap()).unwrap();
            assert_eq!((read.stamp, read.stream, read.ends), (stamp.stamp(), written, last));
        }
    }
}
