//! Numbered records: what the app writes, and what a sink has of them.

use std::fmt::Write as _;

/// Every record begins with this, which stands nowhere else in one: so a record is found behind what
/// is left of another.
const BEGIN: char = '[';
/// The text that records are filled up with.
const FILLER: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-*=";
/// One record of so many is longer than an entry of a log may be.
const LONG_EVERY: u64 = 500;
/// The filler of such a record, bytes: more than `--log-line-limit`.
const LONG: u64 = 20_000;
/// A prime, so that the lengths of the others vary.
const STEP: u64 = 37;
/// Usual records have less filler than this, bytes.
const USUAL: u64 = 150;

/// An output of the app, or what a program types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Stdout,
    Stderr,
    Terminal,
    Input,
}

/// Which record: that of a source, a start of the app, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub source: Source,
    /// Starts of the app before.
    pub run: usize,
    pub number: u64,
}

/// A part of what a sink has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A whole record with the right checksum.
    Record(Id),
    /// Anything else: the part of a record.
    Torn(Vec<u8>),
    /// A message that so many lines with so many bytes are lost.
    Told { lines: u64, bytes: u64 },
}

impl Source {
    pub const ALL: [Self; 4] = [Self::Stdout, Self::Stderr, Self::Terminal, Self::Input];

    pub fn letter(self) -> char {
        match self {
            Self::Stdout => 'o',
            Self::Stderr => 'e',
            Self::Terminal => 't',
            Self::Input => 'i',
        }
    }

    fn of(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| letter.starts_with(source.letter()))
    }
}

impl Id {
    /// The record, without its line end.
    pub fn text(self) -> String {
        let Self { source, run, number } = self;
        let len = if number % LONG_EVERY == LONG_EVERY - 1 { LONG } else { number * STEP % USUAL };
        let mut text = format!("{BEGIN}{} {run} {number} ", source.letter());
        let mut left = usize::try_from(len).unwrap();
        while left > 0 {
            let piece = &FILLER[..left.min(FILLER.len())];
            text.push_str(piece);
            left -= piece.len();
        }
        let sum = checksum(text.as_bytes());
        write!(text, " {sum:016x}").unwrap();
        text
    }

    /// Which record this is, if it is a whole one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (body, sum) = text.rsplit_once(' ')?;
        if u64::from_str_radix(sum, 16).ok()? != checksum(body.as_bytes()) || sum.len() != 16 {
            return None;
        }
        let mut words = body.strip_prefix(BEGIN)?.split(' ');
        let source = Source::of(words.next()?)?;
        Some(Self { source, run: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? })
    }
}

/// FNV-1a, by eight bytes at once.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What the message of a log begins with.
const MESSAGE: &str = "iottymux: ";

/// What is in a line: most often one record.
pub fn items(line: &[u8]) -> Vec<Item> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let Some(id) = Id::parse(line) {
        return vec![Item::Record(id)];
    }
    let is_begin =
        |at: &usize| line[*at] == BEGIN as u8 || line[*at..].starts_with(MESSAGE.as_bytes());
    let mut begins: Vec<_> = (0..line.len()).filter(is_begin).collect();
    begins.extend([0, line.len()]);
    begins.sort_unstable();
    begins.dedup();
    let pieces = begins.windows(2).map(|pair| &line[pair[0]..pair[1]]);
    let item = |piece: &[u8]| {
        if let Some((lines, bytes)) = told(piece) {
            return Item::Told { lines, bytes };
        }
        Id::parse(piece).map_or_else(|| Item::Torn(piece.to_vec()), Item::Record)
    };
    pieces.map(item).collect()
}

/// Lines and bytes of a log's message that some are lost.
fn told(line: &[u8]) -> Option<(u64, u64)> {
    let rest = str::from_utf8(line).ok()?.strip_prefix(MESSAGE)?;
    let (lines, rest) = rest.split_once(" lines (").or_else(|| rest.split_once(" line ("))?;
    let (bytes, end) = rest.split_once(" bytes)")?;
    (end == " were lost here").then_some(())?;
    Some((lines.parse().ok()?, bytes.parse().ok()?))
}

#[test]
fn a_record_is_found_behind_a_part_of_another() {
    let id = |number| Id { source: Source::Stdout, run: 2, number };
    for number in [0, 1, LONG_EVERY - 1, 1_000_000] {
        let text = id(number).text();
        assert_eq!(items(text.as_bytes()), [Item::Record(id(number))]);
        let part = &text[..text.len() - 1];
        let want = vec![Item::Torn(part.into()), Item::Record(id(7))];
        assert_eq!(items(format!("{part}{}\r", id(7).text()).as_bytes()), want);
        let other = text.replacen(&number.to_string(), &(number + 1).to_string(), 1);
        assert_eq!(items(other.as_bytes()), [Item::Torn(other.into())]);
    }
    let lost = b"iottymux: 12 lines (1234 bytes) were lost here";
    let told = Item::Told { lines: 12, bytes: 1234 };
    let part = b"[e 0 7 0123";
    assert_eq!(items(&[&part[..], lost].concat()), [Item::Torn(part.into()), told.clone()]);
    assert_eq!(items(lost), vec![told]);
    let other = b"iottymux: no answer from the mux";
    assert_eq!(items(other), [Item::Torn(other.to_vec())]);
}
