//! Finds the escape sequences in a stream of bytes.
//!
//! [`Scanner`] cuts the stream into text and complete sequences, in whatever pieces it comes.
//! Invariant: all pieces and the held rest are the stream, byte for byte. A sequence longer than
//! [`limits::SEQUENCE`] is passed on as [`Piece::Opaque`], as is one that was broken off. The 8-bit
//! forms (C1) are not sequences here: in UTF-8 they are parts of characters.

use memchr::{memchr, memchr2, memchr3};

use crate::types::limits;

/// The byte that begins a sequence.
pub(crate) const ESC: u8 = 0x1b;
/// Queries a terminal's answerback.
pub(crate) const ENQ: u8 = 0x05;
/// Does nothing.
pub(crate) const DEL: u8 = 0x7f;
/// Selects the second character set.
pub(crate) const SHIFT_OUT: u8 = 0x0e;
/// Selects the first character set again.
pub(crate) const SHIFT_IN: u8 = 0x0f;

/// A part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text, and the control characters that move the cursor.
    Text(&'a [u8]),
    /// [`ENQ`] or [`SHIFT_OUT`].
    Control(u8),
    /// A complete sequence, from its [`ESC`] to its last byte.
    Sequence(&'a [u8]),
    /// A part of a sequence that is too long or broken off.
    Opaque(&'a [u8]),
}

/// The position in a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScanState {
    #[default]
    Text,
    /// After `ESC`.
    Escape,
    /// After `ESC` and a byte that needs a final byte.
    Intermediate,
    /// After `ESC [`.
    Control,
    /// After `ESC ]`.
    CommandStart,
    /// After `ESC ] P` and so many digits: the Linux console takes seven, and no end.
    Palette(u8),
    /// After `ESC ]` and more: ends with BEL, too.
    Command,
    /// After `ESC P`, `X`, `^` or `_`.
    String,
    /// After an `ESC` in one of these.
    StringEscape,
}

/// The effect of one more byte.
pub(crate) enum ScanStep {
    /// The sequence continues.
    On(ScanState),
    /// The sequence ends with it.
    End,
    /// The byte cancels the sequence.
    Cancel,
    /// The byte is text, and breaks the sequence off.
    Abort,
    /// The last `ESC` breaks the sequence off and begins another one.
    Restart,
}

/// See the module.
#[derive(Debug)]
pub struct Scanner {
    state: ScanState,
    kept: [u8; limits::SEQUENCE],
    len: usize,
    /// The sequence is longer than [`limits::SEQUENCE`].
    long: bool,
    /// A sequence has begun with the `ESC` that broke off the one before.
    restarted: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        let kept = [0; limits::SEQUENCE];
        Self { state: ScanState::Text, kept, len: 0, long: false, restarted: false }
    }
}

impl Scanner {
    /// The next piece of `bytes` from `at` on; `at` moves past it. `None` at the end; an incomplete
    /// sequence is then held.
    pub fn next<'a>(&'a mut self, bytes: &'a [u8], at: &mut usize) -> Option<Piece<'a>> {
        if self.restarted {
            self.restart();
        }
        let rest = bytes.get(*at..).filter(|rest| !rest.is_empty())?;
        let mut i = 0;
        if self.state == ScanState::Text {
            let text = text_len(rest);
            if text > 0 {
                *at += text;
                return Some(Piece::Text(&rest[..text]));
            }
            if rest[0] != ESC {
                *at += 1;
                return Some(Piece::Control(rest[0]));
            }
            if let Some(len) = control_len(rest) {
                *at += len;
                return Some(Piece::Sequence(&rest[..len]));
            }
            self.state = ScanState::Escape;
            i = 1;
        }
        let entered = self.state;
        while i < rest.len() {
            if !self.long && self.len + i == limits::SEQUENCE {
                self.long = true;
                if self.len > 0 {
                    self.state = entered;
                    return Some(Piece::Opaque(&self.kept[..std::mem::take(&mut self.len)]));
                }
            }
            match step(self.state, rest[i]) {
                ScanStep::On(place) => {
                    self.state = place;
                    i += 1;
                }
                ScanStep::End => return Some(self.end(rest, i + 1, at, true)),
                ScanStep::Cancel => return Some(self.end(rest, i + 1, at, false)),
                ScanStep::Abort => return Some(self.end(rest, i, at, false)),
                ScanStep::Restart if self.state != ScanState::StringEscape => {
                    return Some(self.end(rest, i, at, false));
                }
                ScanStep::Restart if i > 0 => return Some(self.end(rest, i - 1, at, false)),
                ScanStep::Restart if self.len > 1 => {
                    self.restarted = true;
                    return Some(Piece::Opaque(&self.kept[..self.len - 1]));
                }
                ScanStep::Restart => self.restart(),
            }
        }
        *at += i;
        if !self.long {
            self.kept[self.len..self.len + i].copy_from_slice(rest);
            self.len += i;
            return None;
        }
        // An ESC may begin another sequence.
        let held = usize::from(self.state == ScanState::StringEscape);
        self.kept[0] = ESC;
        self.len = held;
        (i > held).then_some(Piece::Opaque(&rest[..i - held]))
    }

    /// The incomplete sequence, as far as it was not passed on.
    pub(crate) fn held(&self) -> &[u8] {
        if self.restarted { &[ESC] } else { &self.kept[..self.len] }
    }

    /// What brings a terminal into the current sequence: its bytes so far. Of a long string, whose
    /// beginning is gone, that is the beginning of one that terminals ignore.
    pub(crate) fn reopened(&self) -> &[u8] {
        match self.state {
            ScanState::Command if self.long => b"\x1b]9999;",
            ScanState::String if self.long => b"\x1bX",
            ScanState::StringEscape if self.long => b"\x1bX\x1b",
            _ => self.held(),
        }
    }

    /// Whether the stream is outside of sequences.
    pub(crate) fn is_in_text(&self) -> bool {
        self.state == ScanState::Text && !self.restarted
    }

    /// Whether a character of several bytes would break off the current sequence, and be text.
    pub(crate) fn breaks_at_character(&self) -> bool {
        let state = if self.restarted { ScanState::Escape } else { self.state };
        matches!(state, ScanState::Escape | ScanState::Intermediate | ScanState::Control)
    }

    fn restart(&mut self) {
        self.kept[0] = ESC;
        (self.state, self.len, self.long, self.restarted) = (ScanState::Escape, 1, false, false);
    }

    /// The sequence ends after the first `len` bytes of `rest`.
    fn end<'a>(&'a mut self, rest: &'a [u8], len: usize, at: &mut usize, whole: bool) -> Piece<'a> {
        *at += len;
        self.state = ScanState::Text;
        let long = std::mem::take(&mut self.long);
        let raw = match std::mem::take(&mut self.len) {
            0 => &rest[..len],
            kept => {
                self.kept[kept..kept + len].copy_from_slice(&rest[..len]);
                &self.kept[..kept + len]
            }
        };
        if whole && !long { Piece::Sequence(raw) } else { Piece::Opaque(raw) }
    }
}

/// Bytes that are compared one by one before a vectorised search, whose start is slower.
const NEAR: usize = 16;

/// The length of the text at the beginning.
pub(crate) fn text_len(bytes: &[u8]) -> usize {
    let ends = |byte: &u8| matches!(*byte, ESC | SHIFT_OUT | ENQ);
    let near = &bytes[..bytes.len().min(NEAR)];
    near.iter().position(ends).unwrap_or_else(|| {
        let far = &bytes[near.len()..];
        near.len() + memchr3(ESC, SHIFT_OUT, ENQ, far).unwrap_or(far.len())
    })
}

/// The length of the beginning that is text, colours, moving the cursor and erasing. Most output is
/// of this kind.
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    run_len(bytes, |last| {
        matches!(last, b'@'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'`' | b'd' | b'f' | b'm')
    })
}

/// The length of the beginning that is text and sequences of numbers that end with such a byte.
pub(crate) fn run_len(bytes: &[u8], has: impl Fn(u8) -> bool) -> usize {
    let mut len = 0;
    loop {
        len += text_len(&bytes[len..]);
        match numbers(&bytes[len..]) {
            Some((numbers, last)) if has(last) => len += numbers.len() + 3,
            _ => return len,
        }
    }
}

/// The numbers and the final byte of a control sequence at the beginning, if it has nothing else.
pub(crate) fn numbers(bytes: &[u8]) -> Option<(&[u8], u8)> {
    let [ESC, b'[', body @ ..] = bytes else { return None };
    let body = &body[..body.len().min(limits::SEQUENCE - 2)];
    let end = body.iter().position(|byte| !matches!(byte, b'0'..=b';'))?;
    Some((&body[..end], body[end]))
}

/// The length of a complete control sequence at the beginning, without unusual bytes: a fast path
/// of the state machine.
fn control_len(bytes: &[u8]) -> Option<usize> {
    let [ESC, b'[', body @ ..] = bytes else { return None };
    let body = &body[..body.len().min(limits::SEQUENCE - 2)];
    let end = body.iter().position(|byte| !(0x20..=0x3f).contains(byte))?;
    (0x40..=0x7e).contains(&body[end]).then_some(end + 3)
}

/// The digits of a colour of the Linux console, but for the last one.
const PALETTE_DIGITS_BUT_ONE: u8 = 6;

/// The state machine of ECMA-48, as terminals have it. Not for [`ScanState::Text`].
pub(crate) fn step(place: ScanState, byte: u8) -> ScanStep {
    match (place, byte) {
        (_, 0x18 | 0x1a) => ScanStep::Cancel,
        (ScanState::CommandStart, b'R') => ScanStep::End,
        (ScanState::CommandStart, b'P') => ScanStep::On(ScanState::Palette(0)),
        (ScanState::Palette(PALETTE_DIGITS_BUT_ONE), byte) if byte.is_ascii_hexdigit() => {
            ScanStep::End
        }
        (ScanState::Palette(digits), byte) if byte.is_ascii_hexdigit() => {
            ScanStep::On(ScanState::Palette(digits + 1))
        }
        (ScanState::CommandStart | ScanState::Palette(_), byte) => step(ScanState::Command, byte),
        (ScanState::Command | ScanState::String, ESC) => ScanStep::On(ScanState::StringEscape),
        (_, ESC) => ScanStep::Restart,
        (ScanState::Escape, b'[') => ScanStep::On(ScanState::Control),
        (ScanState::Escape, b']') => ScanStep::On(ScanState::CommandStart),
        (ScanState::Escape, b'P' | b'X' | b'^' | b'_') => ScanStep::On(ScanState::String),
        (ScanState::Escape, 0x20..=0x2f) => ScanStep::On(ScanState::Intermediate),
        (ScanState::Escape | ScanState::Intermediate, 0x30..=0x7e) => ScanStep::End,
        (ScanState::Control, 0x40..=0x7e) => ScanStep::End,
        (ScanState::Command, 0x07) => ScanStep::End,
        (ScanState::StringEscape, b'\\') => ScanStep::End,
        (ScanState::StringEscape, _) => ScanStep::Restart,
        (ScanState::Escape | ScanState::Intermediate | ScanState::Control, 0x80..) => {
            ScanStep::Abort
        }
        // Control characters inside, which terminals execute, and unexpected bytes.
        (place, _) => ScanStep::On(place),
    }
}

/// A parsed control sequence: `CSI` marker numbers intermediate final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control<'a> {
    /// One of `<=>?`, or 0.
    pub(crate) marker: u8,
    /// Digits, `;` and `:`.
    pub(crate) numbers: &'a [u8],
    /// The intermediate byte (space to `/`), or 0.
    pub(crate) mark: u8,
    /// The final byte.
    pub(crate) last: u8,
}

impl<'a> Control<'a> {
    /// `None` if this is another kind of sequence.
    pub(crate) fn parse(raw: &'a [u8]) -> Option<Self> {
        let [ESC, b'[', body @ .., last] = raw else { return None };
        let (marker, body) = match body {
            [marker @ 0x3c..=0x3f, rest @ ..] => (*marker, rest),
            _ => (0, body),
        };
        let (mark, numbers) = match body {
            [rest @ .., mark @ 0x20..=0x2f] => (*mark, rest),
            _ => (0, body),
        };
        Some(Self { marker, numbers, mark, last: *last })
    }

    /// Its numbers, at most [`limits::NUMBERS`]: absent ones as 0, of those with parts the first
    /// part.
    pub(crate) fn values(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.numbers.split(|byte| *byte == b';').take(limits::NUMBERS).map(number)
    }

    /// The number at this index, 0 if it is absent.
    pub(crate) fn value(&self, at: usize) -> u16 {
        self.values().nth(at).unwrap_or(0)
    }
}

/// The number up to a `:`. Other characters than digits are skipped, as terminals do.
pub(crate) fn number(text: &[u8]) -> u16 {
    let digits = text.iter().take_while(|byte| **byte != b':').filter(|b| b.is_ascii_digit());
    digits.fold(0, |sum: u16, digit| sum.saturating_mul(10).saturating_add(u16::from(digit - b'0')))
}

/// The introducer of a string (one of `]PX^_`), and its text.
pub(crate) fn string(raw: &[u8]) -> Option<(u8, &[u8])> {
    let [ESC, kind @ (b']' | b'P' | b'X' | b'^' | b'_'), text @ ..] = raw else { return None };
    let end = if text.ends_with(b"\x07") { 1 } else { 2 };
    Some((*kind, text.get(..text.len().checked_sub(end)?)?))
}

/// The control characters within a sequence, which terminals execute before it, and the sequence
/// without them; `None` if it has none. In the text of a string they are a part of it.
pub(crate) fn inner_controls(raw: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let is_control = |byte: &u8| is_inner_control(*byte);
    let text = string(raw).map_or(raw.len(), |_| 1);
    if !raw[1..text].iter().any(is_control) {
        return None;
    }
    let begins = raw[1..].iter().position(|byte| !is_control(byte)).map_or(raw.len(), |at| at + 1);
    let is_string = raw.get(begins).is_some_and(|byte| b"]PX^_".contains(byte));
    let (head, text) = raw.split_at(if is_string { begins } else { raw.len() });
    let (mut inner, rest): (Vec<u8>, Vec<u8>) = head[1..].iter().partition(|b| is_control(b));
    inner.retain(|byte| *byte != DEL);
    Some((inner, [&[ESC], &rest[..], text].concat()))
}

/// Whether a terminal executes this byte within a sequence that is no string, and goes on. DEL does
/// nothing. ESC and what cancels are steps of the sequence.
pub(crate) fn is_inner_control(byte: u8) -> bool {
    matches!(byte, 0..=0x17 | 0x19 | 0x1c..=0x1f | DEL)
}

/// Whether the sequence that begins these bytes also ends in them.
pub(crate) fn is_complete(sequence: &[u8]) -> bool {
    let mut state = ScanState::Escape;
    sequence.iter().skip(1).any(|byte| match step(state, *byte) {
        ScanStep::On(next) => {
            state = next;
            false
        }
        ScanStep::End | ScanStep::Cancel | ScanStep::Abort | ScanStep::Restart => true,
    })
}

/// The length of an incomplete UTF-8 character at the end, 0 to 3.
pub(crate) fn unfinished(text: &[u8]) -> usize {
    for (back, byte) in text.iter().rev().take(3).enumerate() {
        let len = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if len > back + 1 { back + 1 } else { 0 };
    }
    0
}

/// The length of the beginning of a stream that was cut anywhere, up to where no sequence, string or
/// character can be incomplete: behind the first end of a string or line, or at the first sequence.
pub(crate) fn cut_len(bytes: &[u8]) -> usize {
    let escape = memchr(ESC, bytes);
    if let Some(at) = escape.filter(|at| bytes.get(at + 1) == Some(&b'\\')) {
        return at + 2;
    }
    let head = &bytes[..escape.unwrap_or(bytes.len())];
    match (memchr2(b'\n', 0x07, head), escape) {
        (Some(end), _) => end + 1,
        (None, Some(at)) => at,
        (None, None) => bytes.iter().take_while(|byte| matches!(byte, 0x80..=0xbf)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stream_begins_with_something_whole() {
        for (cut, rest) in [
            (&b"2;3mred\x1b[mx"[..], &b"\x1b[mx"[..]),
            (b"2;3mred\r\nnext\x1b[m", b"next\x1b[m"),
            (b"title\x07text", b"text"),
            (b"http://a\x1b\\text\x1b]8;;\x1b\\", b"text\x1b]8;;\x1b\\"),
            (b"\xa5\xe6\x9c\xac text", b"\xe6\x9c\xac text"),
            (b"", b""),
        ] {
            assert_eq!(&cut[cut_len(cut)..], rest, "{}", cut.escape_ascii());
        }
    }
    use proptest::prelude::*;

    /// The pieces, neighbours of a kind joined, and the whole stream.
    fn scan(pieces: &[&[u8]]) -> (Vec<(char, Vec<u8>)>, Vec<u8>) {
        let mut scanner = Scanner::default();
        let (mut all, mut found) = (Vec::new(), Vec::<(char, Vec<u8>)>::new());
        for bytes in pieces {
            let mut at = 0;
            while let Some(piece) = scanner.next(bytes, &mut at) {
                let (kind, raw) = match piece {
                    Piece::Text(raw) => ('t', raw.to_vec()),
                    Piece::Control(byte) => ('c', vec![byte]),
                    Piece::Sequence(raw) => ('s', raw.to_vec()),
                    Piece::Opaque(raw) => ('o', raw.to_vec()),
                };
                all.extend_from_slice(&raw);
                match found.last_mut() {
                    Some((last, joined)) if *last == kind && "to".contains(kind) => {
                        joined.extend(raw);
                    }
                    _ => found.push((kind, raw)),
                }
            }
            assert_eq!(at, bytes.len());
        }
        all.extend_from_slice(scanner.held());
        (found, all)
    }

    #[test]
    fn text_and_sequences() {
        for (stream, want) in [
            ("plain\r\n", "t"),
            ("a\x1b[1mb", "tst"),
            ("\x1b[1;2H\x1b7\x1b(0", "sss"),
            ("\x1b]2;title\x07x\x1b]2;title\x1b\\", "sts"),
            ("\x1bPq\x07\x1b\\", "s"),
            // The Linux console.
            ("\x1b]P1ff00e5text\x1b]R$ \x1b]Pno\x07\x1b]\x07x", "ststsst"),
            ("\x1b[1\x1b[2m", "os"),
            ("\x1b]2;title\x1b[m", "os"),
            ("\x1b[1\x18x", "ot"),
            ("\x1b[1é1m", "ot"),
            ("\x1b\0[1\x7f\nm", "s"),
            ("\x05\x0e\x0f", "cct"),
            ("\x1b[1", ""),
            ("\x1b\x1b\x1b[m", "os"),
        ] {
            let kinds: String =
                scan(&[stream.as_bytes()]).0.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, want, "{stream:?}");
        }
    }

    #[test]
    fn long_sequences_are_passed_on() {
        let fits = format!("\x1b]2;{}\x07", "x".repeat(limits::SEQUENCE - 5));
        let long = format!("\x1b]2;{}\x07", "x".repeat(limits::SEQUENCE - 4));
        assert_eq!(scan(&[fits.as_bytes()]).0, [('s', fits.clone().into_bytes())]);
        assert_eq!(scan(&[long.as_bytes()]).0, [('o', long.clone().into_bytes())]);
        let cut: Vec<_> = long.as_bytes().chunks(1).collect();
        assert_eq!(scan(&cut).0, [('o', long.clone().into_bytes())]);
        let then = format!("{}\x1b[m", &long[..long.len() - 1]);
        let cut: Vec<_> = then.as_bytes().chunks(1).collect();
        assert_eq!(scan(&cut), scan(&[then.as_bytes()]));
        assert_eq!(scan(&cut).0[1], ('s', b"\x1b[m".to_vec()));
    }

    #[test]
    fn sequences_are_parsed() {
        let control = Control::parse(b"\x1b[?1;25$p").unwrap();
        assert_eq!((control.marker, control.mark, control.last), (b'?', b'$', b'p'));
        assert_eq!(control.values().collect::<Vec<_>>(), [1, 25]);
        assert_eq!(Control::parse(b"\x1b[4:3;99999999m").unwrap().value(1), u16::MAX);
        assert_eq!(Control::parse(b"\x1b[m").unwrap().values().collect::<Vec<_>>(), [0]);
        assert_eq!(Control::parse(b"\x1b7"), None);
        assert_eq!(string(b"\x1b]11;?\x1b\\"), Some((b']', &b"11;?"[..])));
        assert_eq!(string(b"\x1bP\x1b\\"), Some((b'P', &b""[..])));
    }

    #[test]
    fn control_characters_are_taken_out() {
        for (raw, want) in [
            ("\x1b[1m", None),
            ("\x1b]2;a\x07", None),
            ("\x1b[\n1m", Some(("\n", "\x1b[1m"))),
            ("\x1b\0(\x7f0", Some(("\0", "\x1b(0"))),
            ("\x1b\0]2;\x01a\x07", Some(("\0", "\x1b]2;\x01a\x07"))),
            ("\x1b\r\nP\rq\x1b\\", Some(("\r\n", "\x1bP\rq\x1b\\"))),
        ] {
            let want = want.map(|(inner, rest)| (inner.into(), rest.into()));
            assert_eq!(inner_controls(raw.as_bytes()), want, "{raw:?}");
        }
    }

    #[test]
    fn incomplete_characters_are_found() {
        for (text, want) in [
            (&b"abc"[..], 0),
            ("é".as_bytes(), 0),
            (&b"x\xc3"[..], 1),
            (&b"x\xf0\x9f\x98"[..], 3),
            (&b"\xe2\x82"[..], 2),
            (&b"\xff"[..], 0),
            (&b"\xc3\xa9\xa9"[..], 0),
        ] {
            assert_eq!(unfinished(text), want, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_it_is_cut(
            bytes in prop::collection::vec(prop_oneof![
                3 => any::<u8>(),
                5 => prop::sample::select(&b"\x1b[]P\\\x07;?0m\x18"[..]),
            ], 0..1500),
            cuts in prop::collection::vec(0usize..1500, 0..5),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (found, all) = scan(&[&bytes]);
            prop_assert_eq!(&all, &bytes);
            let (split, all) = scan(&pieces);
            prop_assert_eq!(&all, &bytes);
            prop_assert_eq!(split, found);
        }
    }
}
