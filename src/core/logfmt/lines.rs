//! Splits the bytes of streams into entries: lines, or parts of lines that are too long or wait too
//! long; or, for a recording, single reads.
//!
//! No I/O, no clock. Invariants: for any pieces of input, the joined parts of a stream, with a line
//! end after each last one, are its bytes. At most the limit's bytes are kept per stream.

use memchr::{memchr, memchr2, memrchr};

use crate::screen::scan::{is_complete, unfinished};
use crate::types::stream::Stream;

/// Bytes of an escape sequence that a log entry does not split: colours are shorter, titles may be
/// longer.
const ESCAPE: usize = 32;

/// A line, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it came from.
    pub(crate) stream: Stream,
    /// Whether it begins a line.
    pub(crate) first: bool,
    /// Whether it ends a line: the line end itself is not among its bytes.
    pub(crate) last: bool,
    /// Its bytes, one piece behind the other.
    pub(crate) pieces: [&'a [u8]; 2],
}

/// The unfinished line of a stream.
#[derive(Debug, Default)]
struct Half {
    bytes: Vec<u8>,
    /// How many of the bytes have been given with the last entry, and go.
    given: usize,
    /// Whether a part of this line has been given, and its last one has not.
    open: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// Whether line ends are nothing special.
    of_reads: bool,
    /// Whether a zero byte is a line end.
    zeros: bool,
    halves: [Half; Stream::ALL.len()],
}

impl Splitter {
    /// Entries of at most `limit` bytes, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), of_reads: false, zeros: false, halves: Default::default() }
    }

    /// Entries that a zero byte ends as well.
    pub(crate) fn with_zeros(self) -> Self {
        Self { zeros: true, ..self }
    }

    /// Entries that are single reads, of at most `limit` bytes, but at least one character: they do
    /// not begin or end a line, and do not split a character.
    pub(crate) fn of_reads(limit: usize) -> Self {
        Self { of_reads: true, ..Self::new(limit.max(4)) }
    }

    /// Most bytes of an entry.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The next entry of `bytes` of a stream, which are moved behind it; `None` when all that is
    /// left of them waits for more.
    pub fn next<'e, 'b: 'e>(
        &'e mut self,
        stream: Stream,
        bytes: &mut &'b [u8],
    ) -> Option<Entry<'e>> {
        let half = &mut self.halves[stream as usize];
        half.forget_given();
        let first = !half.open;
        // Never negative: no more than the limit is kept.
        let room = self.limit - half.bytes.len();
        if self.of_reads {
            let (part, rest) = bytes.split_at(bytes.len().min(room));
            half.bytes.extend_from_slice(part);
            half.given = half.bytes.len() - unfinished(&half.bytes);
            *bytes = rest;
            let whole = &half.bytes[..half.given];
            let entry = Entry { stream, first: false, last: false, pieces: [whole, &[]] };
            return (!whole.is_empty()).then_some(entry);
        }
        let window = &bytes[..bytes.len().min(room + 1)];
        let end = if self.zeros { memchr2(b'\n', 0, window) } else { memchr(b'\n', window) };
        if let Some(at) = end {
            let rest = &bytes[..at];
            *bytes = &bytes[at + 1..];
            half.given = half.bytes.len();
            half.open = false;
            return Some(Entry { stream, first, last: true, pieces: [&half.bytes, rest] });
        }
        if bytes.len() <= room {
            half.bytes.extend_from_slice(bytes);
            *bytes = &[];
            return None;
        }
        half.open = true;
        // A character or sequence that fills a whole entry is split all the same.
        let back = Some(cut_back(&half.bytes, &bytes[..room])).filter(|back| *back < self.limit);
        let back = back.unwrap_or(0);
        if back <= room {
            let (part, rest) = bytes.split_at(room - back);
            *bytes = rest;
            half.given = half.bytes.len();
            return Some(Entry { stream, first, last: false, pieces: [&half.bytes, part] });
        }
        // The split is inside the kept bytes: the rest of them stays kept.
        half.given = self.limit - back;
        let part = &half.bytes[..half.given];
        Some(Entry { stream, first, last: false, pieces: [part, &[]] })
    }

    /// Returns the unfinished line as a part, and all of it at the `end` of the stream; before
    /// that, an incomplete character or sequence keeps waiting.
    pub fn flush(&mut self, stream: Stream, end: bool) -> Option<Entry<'_>> {
        let half = &mut self.halves[stream as usize];
        half.forget_given();
        let back = if end { 0 } else { cut_back(&half.bytes, &[]) };
        half.given = half.bytes.len() - back;
        if half.given == 0 {
            return None;
        }
        let first = !half.open;
        half.open = true;
        Some(Entry { stream, first, last: false, pieces: [&half.bytes[..half.given], &[]] })
    }

    /// Ends the unfinished line, if there is one: its writer has ended.
    pub(crate) fn end(&mut self, stream: Stream) -> Option<Entry<'_>> {
        let half = &mut self.halves[stream as usize];
        half.forget_given();
        if half.bytes.is_empty() && !half.open {
            return None;
        }
        let first = !half.open;
        half.open = false;
        half.given = half.bytes.len();
        Some(Entry { stream, first, last: true, pieces: [&half.bytes, &[]] })
    }

    /// What follows continues a line of which a part was given, or begins another one.
    pub(crate) fn set_open(&mut self, stream: Stream, open: bool) {
        self.halves[stream as usize].open = open;
    }

    /// What waits for its line end, and whether a part of that line was given.
    pub(crate) fn half(&self, stream: Stream) -> (&[u8], bool) {
        let half = &self.halves[stream as usize];
        (&half.bytes[half.given..], half.open)
    }

    /// Continues with a half line of another splitter.
    pub(crate) fn resume(&mut self, stream: Stream, half: &[u8], open: bool) {
        let bytes = half[..half.len().min(self.limit)].to_vec();
        self.halves[stream as usize] = Half { bytes, given: 0, open };
    }

    /// Bytes that wait for their line end.
    pub(crate) fn waiting(&self, stream: Stream) -> usize {
        self.half(stream).0.len()
    }

    /// The stream of which a part was given, and its last part was not yet.
    pub(crate) fn open(&self) -> Option<Stream> {
        Stream::ALL.into_iter().find(|stream| self.halves[*stream as usize].open)
    }
}

impl Half {
    fn forget_given(&mut self) {
        if self.given > 0 {
            self.bytes.drain(..self.given);
            self.given = 0;
        }
    }
}

/// The number of bytes before a split that belong to a character or an escape sequence that
/// continues after it: it is better to split before them. 0 if there is none, or if it is too long.
/// Few lines are so long: apart from the others it does not slow these down.
#[cold]
fn cut_back(kept: &[u8], more: &[u8]) -> usize {
    let mut tail = [0; ESCAPE];
    let new = more.len().min(ESCAPE);
    let old = kept.len().min(ESCAPE - new);
    tail[..old].copy_from_slice(&kept[kept.len() - old..]);
    tail[old..old + new].copy_from_slice(&more[more.len() - new..]);
    let tail = &tail[..old + new];
    match memrchr(0x1b, tail) {
        Some(at) if !is_complete(&tail[at..]) => tail.len() - at,
        _ => unfinished(tail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OUT: Stream = Stream::Stdout;

    /// The entries of these pieces, with a part for the unfinished line at the end: `F` and `P`
    /// with lengths.
    fn split(limit: usize, pieces: &[&[u8]]) -> Vec<(bool, bool, Vec<u8>)> {
        let mut splitter = Splitter::new(limit);
        let mut entries = Vec::new();
        let owned = |e: Entry<'_>| (e.first, e.last, e.pieces.concat());
        for piece in pieces {
            let mut rest = *piece;
            while let Some(entry) = splitter.next(OUT, &mut rest) {
                entries.push(owned(entry));
            }
        }
        entries.extend(splitter.flush(OUT, true).map(owned));
        assert_eq!(splitter.flush(OUT, true), None);
        entries
    }

    fn shape(limit: usize, line: &[u8]) -> String {
        let entries = split(limit, &[line]);
        let tag = |last| if last { 'F' } else { 'P' };
        let words: Vec<_> =
            entries.iter().map(|(_, last, text)| format!("{}{}", tag(*last), text.len())).collect();
        words.join(" ")
    }

    #[test]
    fn long_lines_as_the_kubelets_table_has_them() {
        for (limit, len, want) in [
            (16384, 16384, "F16384"),
            (16384, 16385, "P16384 F1"),
            (16384, 32768, "P16384 F16384"),
            (16384, 32769, "P16384 P16384 F1"),
            (2048, 6154, "P2048 P2048 P2048 F10"),
            (6144, 8202, "P6144 F2058"),
            (16384, 0, "F0"),
        ] {
            let line = [vec![b'x'; len], vec![b'\n']].concat();
            assert_eq!(shape(limit, &line), want, "limit {limit}, line {len}");
        }
        assert_eq!(shape(16384, b"l1\nl2"), "F2 P2");
        assert_eq!(shape(16384, b"a\r\n\n"), "F2 F0");
        assert_eq!(shape(16384, b""), "");
    }

    #[test]
    fn nothing_is_cut_in_the_middle_where_a_few_bytes_help() {
        for (limit, text, want) in [
            (4, "abcdé\n".as_bytes(), "P4 F2"),
            (4, "abcéx\n".as_bytes(), "P3 F3"),
            (4, "ab€x\n".as_bytes(), "P2 F4"),
            (4, "a😀x\n".as_bytes(), "P1 P4 F1"),
            // No character at all.
            (4, b"\x80\x80\x80\x80\x80\n", "P4 F1"),
            (4, b"abc\xffx\n", "P4 F1"),
            (8, b"abcd\x1b[31mx\n", "P4 F6"),
            (8, b"ab\x1b[31mxy\n", "P8 F1"),
            (8, b"abcd\x1b]0;title\x07\n", "P4 P8 F2"),
            (8, b"abcd\x1b(Bxyz\n", "P8 F2"),
            // One that is longer than an entry.
            (4, b"\x1b[1;2;3;4m\n", "P4 P4 F2"),
        ] {
            assert_eq!(shape(limit, text), want, "{}", text.escape_ascii());
        }
        // The split is inside bytes that were kept from an earlier read.
        let entries = split(4, &["ab\u{20ac}".as_bytes().split_at(4).0, b"\xacx\n"]);
        let texts: Vec<_> = entries.into_iter().map(|(_, _, text)| text).collect();
        assert_eq!(texts, [b"ab".to_vec(), "\u{20ac}x".into()]);
    }

    #[test]
    fn half_lines_wait_or_are_given_and_streams_do_not_mix() {
        let mut splitter = Splitter::new(100);
        let mut bytes = "prompt \u{e9}".as_bytes();
        let (mut some, rest) = bytes.split_at(bytes.len() - 1);
        bytes = rest;
        assert_eq!(splitter.next(OUT, &mut some), None);
        assert_eq!(splitter.next(Stream::Stderr, &mut &b"err"[..]), None);
        assert!(splitter.waiting(OUT) > 0 && splitter.open().is_none());
        let part = splitter.flush(OUT, false).unwrap();
        assert_eq!((part.first, part.last, part.pieces[0]), (true, false, &b"prompt "[..]));
        // Half of a character waits on; then there is nothing new to give.
        assert_eq!(splitter.open(), Some(OUT));
        assert_eq!(splitter.waiting(OUT), 1);
        assert_eq!(splitter.flush(OUT, false), None);
        assert_eq!(splitter.next(OUT, &mut bytes), None);
        let end = splitter.next(OUT, &mut &b"\n"[..]).unwrap();
        assert_eq!((end.first, end.last, end.pieces.concat()), (false, true, "\u{e9}".into()));
        assert!(splitter.waiting(OUT) == 0 && splitter.open().is_none());
        let end = splitter.next(Stream::Stderr, &mut &b"or\n"[..]).unwrap();
        assert_eq!((end.first, end.pieces.concat()), (true, b"error".to_vec()));
        // An unfinished line is ended, even if a part of it was returned before.
        assert_eq!(splitter.end(OUT), None);
        assert_eq!(splitter.next(OUT, &mut &b"half"[..]), None);
        let end = splitter.end(OUT).unwrap();
        assert_eq!((end.first, end.last, end.pieces.concat()), (true, true, b"half".to_vec()));
        assert_eq!(splitter.next(OUT, &mut &b"part"[..]), None);
        assert!(splitter.flush(OUT, false).is_some());
        let end = splitter.end(OUT).unwrap();
        assert_eq!((end.first, end.last, end.pieces.concat()), (false, true, Vec::new()));
        assert_eq!(splitter.end(OUT), None);
        assert_eq!((splitter.open(), splitter.waiting(OUT)), (None, 0));
    }

    #[test]
    fn what_is_read_at_once_is_an_entry_but_for_half_a_character() {
        let mut splitter = Splitter::of_reads(10);
        let mut entries = Vec::new();
        let reads = [
            &b"a\nb\x1b["[..],
            b"\xe2",
            b"\x82",
            b"\xac\xc3",
            b"\xe2\x82",
            b"x",
            b"0123456789012345678\xe2\x82\xac",
            b"\xff\xf0",
        ];
        for read in reads {
            let mut rest = read;
            while !rest.is_empty() {
                if let Some(entry) = splitter.next(OUT, &mut rest) {
                    assert!(!entry.first && !entry.last);
                    entries.push(entry.pieces.concat());
                }
            }
            assert!(splitter.open().is_none() && splitter.waiting(OUT) < 4);
        }
        let want = [
            &b"a\nb\x1b["[..],
            "\u{20ac}".as_bytes(),
            b"\xc3",
            b"\xe2\x82x",
            b"0123456789",
            b"012345678",
            "\u{20ac}".as_bytes(),
            b"\xff",
        ];
        assert_eq!(entries, want);
        assert_eq!(splitter.flush(OUT, false), None);
        assert_eq!(splitter.flush(OUT, true).unwrap().pieces[0], b"\xf0");
    }

    proptest! {
        /// The same for single reads; a character is never split.
        #[test]
        fn reads_give_the_bytes_back(
            reads in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![Just(b'\n'), Just(0xe2), Just(0x82), Just(0xf0), Just(0x9f), any::<u8>()],
                    1..12,
                ),
                0..30,
            ),
            limit in 4usize..20,
        ) {
            let mut splitter = Splitter::of_reads(limit);
            let (mut joined, mut given) = (Vec::new(), String::new());
            let mut take = |entry: Entry<'_>| {
                let text = entry.pieces.concat();
                assert!(!text.is_empty() && text.len() <= limit);
                given.push_str(&String::from_utf8_lossy(&text));
                joined.extend(text);
            };
            for read in &reads {
                let mut rest = &read[..];
                while !rest.is_empty() {
                    if let Some(entry) = splitter.next(OUT, &mut rest) {
                        take(entry);
                    }
                }
            }
            if let Some(entry) = splitter.flush(OUT, true) {
                take(entry);
            }
            prop_assert_eq!(&joined, &reads.concat());
            prop_assert!(!joined.is_empty() || given.is_empty());
            // Each valid character is in one piece.
            let valid = |text: &str| text.chars().filter(|c| *c != '\u{fffd}').collect::<String>();
            prop_assert_eq!(valid(&given), valid(&String::from_utf8_lossy(&joined)));
        }

        /// For any bytes in any pieces, the parts give them back, none is over the limit, and only
        /// the last line may lack its end.
        #[test]
        fn the_parts_give_the_bytes_back(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\n'), Just(0x1b), Just(b'['), Just(0xe2), Just(0x82), any::<u8>()],
                0..300,
            ),
            cuts in prop::collection::vec(0usize..300, 0..20),
            limit in 1usize..40,
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            let mut joined = Vec::new();
            let mut first = true;
            for (begins, last, text) in split(limit, &pieces) {
                prop_assert!(text.len() <= limit && !text.contains(&b'\n'));
                prop_assert_eq!(begins, first);
                first = last;
                joined.extend(text);
                joined.extend(last.then_some(b'\n'));
            }
            prop_assert_eq!(joined, bytes);
        }
    }
}
