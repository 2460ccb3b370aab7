//! Key sequences that attach handles itself: their syntax, which is docker's, and finding them in
//! the input.
//!
//! No I/O, no clock. Invariant: every typed byte comes out in order, except complete sequences. The
//! beginning of a sequence is held back for a moment. Then the app gets it, and the rest of the
//! sequence still completes it for as long again. Keys are found by what they mean, whatever their
//! bytes are.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use memchr::memchr2;

use super::key::{self, Key};
use crate::screen::scan::ESC;

/// How long the first key of attach's own sequences may be held back: a second key that is typed
/// without a pause comes 80 to 250 ms later.
const DETACH_HOLD: Duration = Duration::from_millis(250);
/// How long after that the sequence can still be completed.
const DETACH_WAIT: Duration = Duration::from_millis(250);
/// Longest sequence of attach's own keys.
const DETACH_KEYS: usize = 16;

/// A sequence of keys; may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(Vec<u8>);

impl Default for Sequence {
    /// docker's: ctrl-p, ctrl-q.
    fn default() -> Self {
        Self(vec![0x10, 0x11])
    }
}

impl Sequence {
    fn begins_with(&self, held: &[BegunKey]) -> bool {
        held.len() <= self.0.len() && held.iter().zip(&self.0).all(|(held, key)| held.is(*key))
    }
}

/// As in the option, but with blanks instead of commas.
impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.0.iter().enumerate() {
            let blank = if at > 0 { " " } else { "" };
            match key {
                1..=26 => write!(f, "{blank}ctrl-{}", char::from(key - 1 + b'a')),
                0 | 27..=31 => write!(f, "{blank}ctrl-{}", char::from(key + b'@')),
                _ => write!(f, "{blank}{}", char::from(*key).escape_debug()),
            }?;
        }
        Ok(())
    }
}

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let keys: Vec<u8> = text.split(',').map(key).collect::<Result<_, _>>()?;
        if keys.len() > DETACH_KEYS {
            return Err(format!("a sequence has at most {DETACH_KEYS} keys"));
        }
        Ok(Self(keys))
    }
}

/// The byte that a key sends.
fn key(text: &str) -> Result<u8, String> {
    // Messages write ^C, and ^ alone is a key.
    let caret = || text.strip_prefix('^').filter(|key| !key.is_empty());
    let control = text.strip_prefix("ctrl-").or_else(caret).map(str::to_ascii_lowercase);
    match (control.as_deref().unwrap_or(text).as_bytes(), control.is_some()) {
        ([byte], false) if byte.is_ascii() => Ok(*byte),
        ([byte @ b'a'..=b'z'], true) => Ok(byte - b'a' + 1),
        ([byte @ (b'@' | b'[' | b'\\' | b']' | b'^' | b'_')], true) => Ok(byte - b'@'),
        _ => Err(format!(
            "{text:?} is not a key: expected one character, or ctrl- or ^ and one of a-z @ [ \\ ] ^ _"
        )),
    }
}

/// A command to attach itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCommand {
    /// Leave the app.
    Detach,
    /// Say what the keys are.
    Help,
}

/// The sequences and their commands.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Vec<(Sequence, KeyCommand)>);

impl Keys {
    /// The keys of a person; `detach` may be empty. With `help`, the first key of `detach` and then
    /// `?` ask for the keys; a sequence of one key has no help, nor has one that goes on with `?`.
    pub(crate) fn new(detach: &Sequence, help: bool) -> Self {
        let mut keys = vec![(detach.clone(), KeyCommand::Detach)];
        if let [first, second, ..] = detach.0[..]
            && help
            && second != b'?'
        {
            keys.push((Sequence(vec![first, b'?']), KeyCommand::Help));
        }
        keys.retain(|(sequence, _)| !sequence.0.is_empty());
        Self(keys)
    }

    /// For the input of a program.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// The keys of a command, if it has any.
    pub(crate) fn of(&self, command: KeyCommand) -> Option<&Sequence> {
        self.0.iter().find(|(_, asks)| *asks == command).map(|(sequence, _)| sequence)
    }

    /// The first key of the sequences: the help has that of the detach keys.
    pub(crate) fn first(&self) -> Option<u8> {
        self.0.first()?.0.0.first().copied()
    }

    /// Whether a sequence has one of these keys.
    pub(crate) fn have(&self, keys: &[u8]) -> bool {
        self.0.iter().any(|(sequence, _)| sequence.0.iter().any(|key| keys.contains(key)))
    }

    fn complete(&self, held: &[BegunKey]) -> Option<KeyCommand> {
        let is_whole = |keys: &Sequence| keys.0.len() == held.len() && keys.begins_with(held);
        self.0.iter().find(|(sequence, _)| is_whole(sequence)).map(|(_, command)| *command)
    }

    /// Where the first byte is that may begin a sequence, or a key that is more than a byte.
    fn find_first(&self, typed: &[u8]) -> Option<usize> {
        memchr2(self.first()?, ESC, typed)
    }

    fn begins(&self, held: &[BegunKey]) -> bool {
        self.0.iter().any(|(sequence, _)| sequence.begins_with(held))
    }
}

/// A key of a sequence that has begun.
#[derive(Debug)]
struct BegunKey {
    key: Key,
    /// Its bytes, and those of silent keys behind it.
    raw: Vec<u8>,
}

impl BegunKey {
    fn is(&self, key: u8) -> bool {
        self.key == Key::Byte(key)
    }
}

/// Finds sequences in the input.
#[derive(Debug)]
pub(crate) struct Matcher {
    keys: Keys,
    /// The beginning of a sequence.
    begun: Vec<BegunKey>,
    /// How many of these keys were not held back any longer.
    released: usize,
    /// When the current hold or wait is over.
    until: Option<Instant>,
    /// The first bytes of a key whose others are to come.
    part: Vec<u8>,
}

impl Matcher {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, begun: Vec::new(), released: 0, until: None, part: Vec::new() }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Reads input up to the end of the first complete sequence, and appends the input of the app
    /// to `out`. Returns the number of bytes read, and the command of the sequence.
    pub(crate) fn push(
        &mut self,
        typed: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> (usize, Option<KeyCommand>) {
        if self.part.is_empty() && self.begun.is_empty() && self.keys.find_first(typed).is_none() {
            out.extend_from_slice(typed);
            return (typed.len(), None);
        }
        let before = std::mem::take(&mut self.part);
        let kept = before.len();
        let all = if kept == 0 { typed.into() } else { Cow::Owned([&before, typed].concat()) };
        let mut read = 0;
        while read < all.len() {
            if self.begun.is_empty() {
                let plain = self.keys.find_first(&all[read..]).unwrap_or(all.len() - read);
                out.extend_from_slice(&all[read..read + plain]);
                read += plain;
            }
            let rest = &all[read..];
            let may_go_on = rest == [ESC] && !self.begun.is_empty() && !self.keys.have(&[ESC]);
            if rest.is_empty() {
                break;
            }
            let Some((len, key)) = key::read(rest).filter(|_| !may_go_on) else {
                self.part = rest.to_vec();
                self.until.get_or_insert(now + DETACH_HOLD);
                break;
            };
            read += len;
            if let Some(command) = self.add(key, &rest[..len], now, out) {
                out.extend_from_slice(&all[read..kept.max(read)]);
                return (read.saturating_sub(kept), Some(command));
            }
        }
        (typed.len(), None)
    }

    /// Adds a key. Returns the command of the sequence that it completes.
    fn add(&mut self, key: Key, raw: &[u8], now: Instant, out: &mut Vec<u8>) -> Option<KeyCommand> {
        if key == Key::Silent {
            match self.begun[self.released..].last_mut() {
                Some(last) => last.raw.extend(raw),
                None => out.extend(raw),
            }
            return None;
        }
        if self.released == self.begun.len() {
            self.until = Some(now + DETACH_HOLD);
        }
        self.begun.push(BegunKey { key, raw: raw.to_vec() });
        self.settle(now, out)
    }

    /// Whether all input is the app's: there are no keys to look for.
    pub(crate) fn is_idle(&self) -> bool {
        self.keys.0.is_empty() && self.begun.is_empty()
    }

    /// When to call [`Matcher::expire`] if nothing is typed before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// After the deadline: releases keys that are held back, or forgets those that were.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        let held = self.begun.len() - self.released;
        out.extend(self.begun[self.released..].iter().flat_map(|key| &key.raw));
        out.append(&mut self.part);
        if held > 0 {
            self.released = self.begun.len();
            self.until = Some(now + DETACH_WAIT);
        } else {
            self.forget();
        }
    }

    /// Releases keys that begin no sequence.
    fn settle(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<KeyCommand> {
        while !self.begun.is_empty() {
            if let Some(command) = self.keys.complete(&self.begun) {
                self.forget();
                return Some(command);
            }
            if self.keys.begins(&self.begun) {
                return None;
            }
            let key = self.begun.remove(0);
            match self.released.checked_sub(1) {
                Some(released) => self.released = released,
                None => out.extend(key.raw),
            }
            self.until = Some(now + DETACH_HOLD);
        }
        self.forget();
        None
    }

    fn forget(&mut self) {
        self.begun.clear();
        (self.released, self.until) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dockers_syntax() {
        for (text, want) in [
            ("ctrl-p,ctrl-q", Ok(vec![16, 17])),
            ("", Ok(vec![])),
            ("a,b", Ok(b"ab".to_vec())),
            ("ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", Ok(vec![0, 27, 28, 29, 30, 31])),
            ("^P,^],^^,^", Ok(vec![16, 29, 30, b'^'])),
            ("ctrl-P", Ok(vec![16])),
            ("^1", Err("^1")),
            ("ctrl-", Err("ctrl-")),
            ("ab", Err("ab")),
            ("a,,b", Err("")),
            ("é", Err("é")),
        ] {
            let error = |key| {
                let expected = "expected one character, or ctrl- or ^ and one of a-z @ [ \\ ] ^ _";
                format!("{key:?} is not a key: {expected}")
            };
            assert_eq!(text.parse(), want.map(Sequence).map_err(error), "{text}");
        }
        let long = ["a"; DETACH_KEYS + 1].join(",");
        let most = DETACH_KEYS;
        assert_eq!(long.parse::<Sequence>(), Err(format!("a sequence has at most {most} keys")));
    }

    #[test]
    fn sequences_are_shown_as_they_are_typed() {
        for text in
            ["ctrl-p,ctrl-q", "a,b", "ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", "ctrl-z,?"]
        {
            let sequence: Sequence = text.parse().unwrap();
            assert_eq!(sequence.to_string(), text.replace(',', " "));
        }
    }

    fn matcher(detach: &str) -> Matcher {
        Matcher::new(Keys::new(&detach.parse().unwrap(), true))
    }

    /// The app's input and the commands in these reads.
    fn typed(matcher: &mut Matcher, reads: &[&[u8]]) -> (Vec<u8>, Vec<KeyCommand>) {
        let (mut out, mut commands) = (Vec::new(), Vec::new());
        for read in reads {
            let mut rest = *read;
            while !rest.is_empty() {
                let (len, command) = matcher.push(rest, Instant::now(), &mut out);
                commands.extend(command);
                rest = &rest[len..];
            }
        }
        (out, commands)
    }

    #[test]
    fn sequences_are_found_and_their_beginnings_released() {
        use KeyCommand::{Detach, Help};
        for (detach, reads, out, commands) in [
            ("ctrl-p,ctrl-q", &["ab\x10\x11cd"][..], "abcd", &[Detach][..]),
            ("ctrl-p,ctrl-q", &["a\x10", "\x11"], "a", &[Detach]),
            ("ctrl-p,ctrl-q", &["\x10\x10", "\x11"], "\x10", &[Detach]),
            ("ctrl-p,ctrl-q", &["\x10", "x\x11"], "\x10x\x11", &[]),
            ("a,a,b", &["aaaab"], "aa", &[Detach]),
            ("a,b,a,c", &["ababac"], "ab", &[Detach]),
            ("", &["\x10\x11\x10?"], "\x10\x11\x10?", &[]),
            // The help has the first key, whichever that is; a single key has none.
            ("ctrl-p,ctrl-q", &["?\x10", "?x"], "?x", &[Help]),
            ("ctrl-p,ctrl-q", &["\x10\x10?"], "\x10", &[Help]),
            ("a,b", &["\x10?a?"], "\x10?", &[Help]),
            ("a", &["?a?"], "??", &[Detach]),
            ("a,?", &["a?"], "", &[Detach]),
            // A beginning of the one that is held behind a beginning of the other.
            ("a,b,c", &["aba?"], "ab", &[Help]),
        ] {
            let reads: Vec<&[u8]> = reads.iter().map(|read| read.as_bytes()).collect();
            let (got, found) = typed(&mut matcher(detach), &reads);
            assert_eq!(
                (String::from_utf8(got).unwrap().as_str(), &found[..]),
                (out, commands),
                "{reads:?}"
            );
        }
    }

    /// Whether the keys that follow a pause complete the sequence, and what the app gets.
    #[test]
    fn a_key_is_held_back_for_a_moment_and_the_sequence_waits_longer() {
        let (hold, both) = (DETACH_HOLD, DETACH_HOLD + DETACH_WAIT);
        let soon = Duration::from_millis(1);
        for (detach, keys, app, detaches) in [
            ("ctrl-p,ctrl-q", &[(b'\x10', soon), (b'\x11', soon)][..], "", true),
            ("ctrl-p,ctrl-q", &[(b'\x10', hold), (b'\x11', soon)], "\x10", true),
            ("ctrl-p,ctrl-q", &[(b'\x10', hold), (b'x', soon)], "\x10x", false),
            ("ctrl-p,ctrl-q", &[(b'\x10', hold), (b'\x10', soon), (b'\x11', soon)], "\x10", true),
            ("ctrl-p,ctrl-q", &[(b'\x10', both), (b'\x11', soon)], "\x10\x11", false),
            ("ctrl-p,ctrl-q", &[(b'\x10', both), (b'\x10', soon), (b'\x11', soon)], "\x10", true),
            ("a,b,c", &[(b'a', hold), (b'b', hold), (b'c', soon)], "ab", true),
            ("a,b,c", &[(b'a', hold), (b'b', soon), (b'x', soon)], "abx", false),
            ("a,b,c", &[(b'a', hold), (b'b', soon), (b'a', hold), (b'b', soon)], "aba", false),
            ("a,a,b", &[(b'a', hold), (b'a', soon), (b'a', soon), (b'b', soon)], "a", true),
            // One key is never held back.
            ("ctrl-]", &[(b'a', soon), (b'\x1d', soon)], "a", true),
        ] {
            let (mut matcher, mut out, mut found) = (matcher(detach), Vec::new(), None);
            let mut now = Instant::now();
            for (key, pause) in keys {
                found = found.or(matcher.push(&[*key], now, &mut out).1);
                // As the loop does it: at each deadline.
                let next = now + *pause;
                while let Some(due) = matcher.deadline().filter(|due| *due <= next) {
                    matcher.expire(due, &mut out);
                }
                now = next;
            }
            let got = (String::from_utf8(out).unwrap(), found == Some(KeyCommand::Detach));
            assert_eq!(got, (app.to_owned(), detaches), "{detach} {keys:?}");
        }
    }

    #[test]
    fn the_first_key_does_not_wait_longer_for_the_third() {
        let now = Instant::now();
        let mut matcher = matcher("ctrl-p,ctrl-q,x");
        let mut out = Vec::new();
        matcher.push(b"\x10", now, &mut out);
        let due = matcher.deadline().unwrap();
        assert_eq!(due, now + DETACH_HOLD);
        matcher.push(b"\x11", due, &mut out);
        assert_eq!(matcher.deadline(), Some(due));
        matcher.expire(due, &mut out);
        assert_eq!(out, b"\x10\x11");
    }

    /// As an app gets them that has asked for more, and however they are cut.
    #[test]
    fn keys_in_sequences_are_found_and_what_is_not_for_attach_is_unchanged() {
        use KeyCommand::{Detach, Help};
        for (typed_keys, out, commands) in [
            ("\x1b[112;5u\x1b[113;5u", "", &[Detach][..]),
            ("\x1b[27;5;112~\x1b[27;5;113~", "", &[Detach]),
            // With modifiers as keys, and keys that are let go.
            ("\x1b[57442;5u\x1b[112;5u\x1b[112;5:3u\x1b[113;133:1u", "\x1b[57442;5u", &[Detach]),
            ("\x10\x1b[113;5u", "", &[Detach]),
            ("\x1b[112;5u\x1b[47:63;2u", "", &[Help]),
            ("\x1b[112;5ux", "\x1b[112;5ux", &[]),
            ("\x1b[112;5u\x1b[112;5:3u\x1b[120u", "\x1b[112;5u\x1b[112;5:3u\x1b[120u", &[]),
            ("\x1b[A\x1b[<0;1;1M\x1b\x1b[120;5u", "\x1b[A\x1b[<0;1;1M\x1b\x1b[120;5u", &[]),
            ("\x1b[1\x1b[112;5u\x1b[113;5u", "\x1b[1", &[Detach]),
        ] {
            let mut whole = matcher("ctrl-p,ctrl-q");
            let (got, found) = typed(&mut whole, &[typed_keys.as_bytes()]);
            let got = got.escape_ascii().to_string();
            let want = out.as_bytes().escape_ascii().to_string();
            assert_eq!((got, &found[..]), (want, commands), "{typed_keys:?}");
            for at in 1..typed_keys.len() {
                let (first, second) = typed_keys.as_bytes().split_at(at);
                let mut matcher = matcher("ctrl-p,ctrl-q");
                let (mut got, mut found) = typed(&mut matcher, &[first]);
                // An Escape by itself is not held back.
                if first.ends_with(b"\x1b") && got.ends_with(b"\x1b") {
                    continue;
                }
                let (more, commands_more) = typed(&mut matcher, &[second]);
                got.extend(more);
                found.extend(commands_more);
                assert_eq!(found, commands, "{typed_keys:?} at {at}");
                assert_eq!(String::from_utf8(got).unwrap(), out, "{typed_keys:?} at {at}");
            }
        }
    }

    #[test]
    fn help_takes_no_key_of_the_sequence_away() {
        for detach in ["a,?", "a,?,x"] {
            let mut matcher = matcher(detach);
            let keys = detach.replace(',', "");
            assert_eq!(typed(&mut matcher, &[keys.as_bytes()]).1, [KeyCommand::Detach], "{detach}");
        }
    }

    /// All that is typed, with pauses in milliseconds, comes out: it completes no sequence.
    fn comes_out(pieces: &[(impl AsRef<str>, u32)]) -> Result<(), TestCaseError> {
        let mut matcher = matcher("a,b,a,z");
        let (mut out, mut now) = (Vec::new(), Instant::now());
        for (piece, pause) in pieces {
            let piece = piece.as_ref().as_bytes();
            prop_assert_eq!(matcher.push(piece, now, &mut out), (piece.len(), None));
            now += Duration::from_millis(u64::from(*pause));
            matcher.expire(now, &mut out);
        }
        matcher.expire(now + DETACH_HOLD, &mut out);
        let typed: String = pieces.iter().map(|(piece, _)| piece.as_ref()).collect();
        prop_assert_eq!(String::from_utf8(out).unwrap(), typed);
        Ok(())
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_of_keys_in_sequences(
            pieces in prop::collection::vec((
                prop::sample::select(vec![
                    "a", "b", "c", "\x1b[97u", "\x1b[98;1:3u", "\x1b[98;1:1u", "\x1b", "[", "9", "7",
                    "u", "\x1b[", ";5", "\x1b[A", "\x1b[57442;5u",
                ]),
                0u32..300,
            ), 0..30),
        ) {
            comes_out(&pieces)?;
        }

        #[test]
        fn no_key_is_lost(
            pieces in prop::collection::vec(("[abc]{0,5}", 0u32..600), 0..10),
        ) {
            comes_out(&pieces)?;
        }
    }
}
