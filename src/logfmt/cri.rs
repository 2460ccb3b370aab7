//! The log format of Kubernetes' container runtimes (CRI): `STAMP stdout F text`.
//!
//! Pure. The stamp has exactly nine digits behind the point, and the space before an empty text
//! stands: podman's reader takes no other width, the kubelet's none without the space.

use super::chunk::Lost;
use super::lines::Entry;
use super::stamp::StampText;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Bytes around a text, at most: stamp, stream, tag, spaces, line end.
pub(crate) const AROUND: usize = 48;

/// Appends an entry.
pub(crate) fn encode(out: &mut Vec<u8>, stamp: &StampText, entry: &Entry<'_>) {
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

/// The time and the stream of an entry, and whether a line ends with it.
pub(crate) fn part(entry: &[u8]) -> Option<(Stamp, Stream, bool)> {
    let mut fields = entry.splitn(4, |byte| *byte == b' ');
    let stamp = Stamp::parse(str::from_utf8(fields.next()?).ok()?)?;
    let stream = match fields.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let ends = fields.next()?.split(|byte| *byte == b':').next() != Some(b"P");
    fields.next().map(|_| (stamp, stream, ends))
}

/// What of the app is in the entries that are whole in these bytes.
pub(crate) fn count(bytes: &[u8]) -> Lost {
    let entries = bytes.split_inclusive(|byte| *byte == b'\n').filter(|e| e.ends_with(b"\n"));
    entries.fold(Lost::default(), |Lost { lines, bytes }, entry| {
        let mut fields = entry.splitn(4, |byte| *byte == b' ').skip(2);
        let is_last = fields.next() == Some(b"F");
        let text = fields.next().map_or(0, |text| text.len() - 1);
        Lost { lines: lines + u64::from(is_last), bytes: bytes + text as u64 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            encode(&mut out, &stamp, &Entry { stream, first: true, last, pieces });
            let want = format!("2016-10-06T00:17:09.669794202Z {want}");
            assert_eq!(String::from_utf8_lossy(&out), want);
            assert!(out.len() <= AROUND + pieces.concat().len());
            let text = Lost { lines: u64::from(last), bytes: pieces.concat().len() as u64 };
            let written = if stream == Stream::Stderr { stream } else { Stream::Stdout };
            assert_eq!(part(&out), Some((stamp.stamp(), written, last)));
            assert_eq!((count(&out), count(&out[..out.len() - 1])), (text, Lost::default()));
        }
    }
}
