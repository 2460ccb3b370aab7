//! The log format of Kubernetes' container runtimes (CRI): `STAMP stdout F text`. Pure.
//!
//! Writing: podman's reader needs exactly nine digits behind the point of the stamp, and the kubelet
//! needs the space before an empty text. Reading follows the kubelet: a stamp with any number of digits,
//! tags of which only the first counts, and a text only behind its space.

use crate::logfmt::chunk::Lost;
use crate::logfmt::encoder::{self, Encoder, FormatReader, LogFormat};
use crate::logfmt::entry::{self, LoggedEntry};
use crate::logfmt::lines::Entry;
use crate::logfmt::stamp::StampText;
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
/// How an entry begins: the part of its stamp that always has the same length.
const BEGIN: &str = "2006-01-02T15:04:05";

#[derive(Debug)]
struct Cri;

impl Encoder for Cri {
    fn encode(&mut self, out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
        // Copies whose length is known are a few instructions each.
        out.extend_from_slice(stamp.as_bytes());
        out.extend_from_slice(match (entry.stream, entry.last) {
            (Stream::Stderr, true) => b" stderr F ",
            (Stream::Stderr, false) => b" stderr P ",
            (_, true) => b" stdout F ",
            (_, false) => b" stdout P ",
        });
        for piece in entry.pieces {
            out.extend_from_slice(piece);
        }
        out.push(b'\n');
    }

    fn worst(&self, text: usize) -> usize {
        AROUND + text
    }

    fn count(&self, begun: &[u8]) -> Option<Lost> {
        let whole = begun.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
            let entry = parse(line.strip_suffix(b"\n")?).ok()?;
            Some(Lost { lines: u64::from(entry.ends), bytes: entry.text.len() as u64 })
        });
        Some(whole.fold(Lost::default(), Lost::plus))
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
            let mut out = Vec::new();
            Cri.encode(&mut out, &stamp, &Entry { stream, first: true, last, pieces });
            let want = format!("2016-10-06T00:17:09.669794202Z {want}");
            assert_eq!(String::from_utf8_lossy(&out), want);
            assert!(out.len() <= AROUND + pieces.concat().len());
            let text = Lost { lines: u64::from(last), bytes: pieces.concat().len() as u64 };
            let written = if stream == Stream::Stderr { stream } else { Stream::Stdout };
            let read = parse(out.strip_suffix(b"\n").unwrap()).unwrap();
            assert_eq!((read.stamp, read.stream, read.ends), (stamp.stamp(), written, last));
            assert_eq!(Cri.count(&out), Some(text));
            assert_eq!(Cri.count(&out[..out.len() - 1]), Some(Lost::default()));
        }
    }
}
