//! The keys that detach: their syntax, which is docker's, and finding them in what is typed.
//!
//! Pure. Invariant: every byte typed comes out, in order, but for the complete sequence; the
//! beginning of one is held back for a bounded time only.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use crate::limits;

/// A sequence of keys; empty when nothing detaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence(Vec<u8>);

impl Default for Sequence {
    /// docker's: ctrl-p, ctrl-q.
    fn default() -> Self {
        Self(vec![0x10, 0x11])
    }
}

impl Sequence {
    /// This one, or none at all where nobody can press keys.
    #[must_use]
    pub fn only_if(self, keyboard: bool) -> Self {
        if keyboard { self } else { Self(Vec::new()) }
    }
}

/// Why a text is no sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceError {
    /// Not a character, and not `ctrl-` with one of those that have a control code.
    Key(String),
    /// More than [`limits::DETACH_KEYS`] keys.
    TooLong,
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(
                f,
                "{key:?} is no key; a key is one character, or ctrl- and one of a-z @ [ \\ ] ^ _"
            ),
            Self::TooLong => write!(f, "at most {} keys can detach", limits::DETACH_KEYS),
        }
    }
}

impl std::error::Error for SequenceError {}

impl FromStr for Sequence {
    type Err = SequenceError;

    fn from_str(text: &str) -> Result<Self, SequenceError> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let keys: Vec<u8> = text.split(',').map(key).collect::<Result<_, _>>()?;
        if keys.len() > limits::DETACH_KEYS {
            return Err(SequenceError::TooLong);
        }
        Ok(Self(keys))
    }
}

/// The byte that a key sends.
fn key(text: &str) -> Result<u8, SequenceError> {
    let bad = || SequenceError::Key(text.to_owned());
    let control = text.strip_prefix("ctrl-");
    match (control.unwrap_or(text).as_bytes(), control.is_some()) {
        ([byte], false) if byte.is_ascii() => Ok(*byte),
        ([byte @ b'a'..=b'z'], true) => Ok(byte - b'a' + 1),
        ([byte @ (b'@' | b'[' | b'\\' | b']' | b'^' | b'_')], true) => Ok(byte - b'@'),
        _ => Err(bad()),
    }
}

/// Looks for the sequence in what is typed.
#[derive(Debug)]
pub struct Matcher {
    keys: Vec<u8>,
    matched: usize,
    held_since: Option<Instant>,
}

impl Matcher {
    /// Nothing typed yet.
    #[must_use]
    pub fn new(sequence: Sequence) -> Self {
        Self { keys: sequence.0, matched: 0, held_since: None }
    }

    /// Takes what was typed; puts out what is for the app. Whether the sequence is complete: then
    /// what was typed after it is gone.
    pub fn push(&mut self, typed: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
        for byte in typed {
            self.push_byte(*byte, out);
            if !self.keys.is_empty() && self.matched == self.keys.len() {
                self.matched = 0;
                self.held_since = None;
                return true;
            }
        }
        self.held_since = match self.matched {
            0 => None,
            _ => Some(now),
        };
        false
    }

    /// Until when keys are held back, if any are.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.held_since.map(|since| since + limits::DETACH_HOLD)
    }

    /// Puts out what has been held back for too long.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            out.extend_from_slice(&self.keys[..self.matched]);
            self.matched = 0;
            self.held_since = None;
        }
    }

    fn push_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        loop {
            if self.keys.get(self.matched) == Some(&byte) {
                self.matched += 1;
                return;
            }
            if self.matched == 0 {
                out.push(byte);
                return;
            }
            // The longest shorter beginning that what is held back still ends with.
            let held = &self.keys[..self.matched];
            let keep =
                (0..self.matched).rev().find(|n| held.ends_with(&self.keys[..*n])).unwrap_or(0);
            out.extend_from_slice(&held[..self.matched - keep]);
            self.matched = keep;
        }
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
            ("ctrl-P", Err(SequenceError::Key("ctrl-P".into()))),
            ("ctrl-", Err(SequenceError::Key("ctrl-".into()))),
            ("ab", Err(SequenceError::Key("ab".into()))),
            ("a,,b", Err(SequenceError::Key(String::new()))),
            ("é", Err(SequenceError::Key("é".into()))),
        ] {
            assert_eq!(text.parse::<Sequence>(), want.map(Sequence), "{text}");
        }
        let long = ["a"; limits::DETACH_KEYS + 1].join(",");
        assert_eq!(long.parse::<Sequence>(), Err(SequenceError::TooLong));
    }

    fn matcher(keys: &str) -> Matcher {
        Matcher::new(keys.parse().unwrap())
    }

    #[test]
    fn the_sequence_detaches_and_a_beginning_of_it_is_passed_on() {
        let now = Instant::now();
        for (keys, typed, out, detached) in [
            ("ctrl-p,ctrl-q", &["ab\x10\x11cd"][..], "ab", true),
            ("ctrl-p,ctrl-q", &["a\x10", "\x11"], "a", true),
            ("ctrl-p,ctrl-q", &["\x10\x10", "\x11"], "\x10", true),
            ("ctrl-p,ctrl-q", &["\x10", "x\x11"], "\x10x\x11", false),
            ("a,a,b", &["aaaab"], "aa", true),
            ("a,b,a,c", &["ababac"], "ab", true),
            ("", &["\x10\x11"], "\x10\x11", false),
        ] {
            let mut matcher = matcher(keys);
            let mut got = Vec::new();
            let hit = typed.iter().any(|piece| matcher.push(piece.as_bytes(), now, &mut got));
            assert_eq!(
                (String::from_utf8(got).unwrap().as_str(), hit),
                (out, detached),
                "{typed:?}"
            );
        }
    }

    #[test]
    fn a_held_key_is_passed_on_after_a_pause() {
        let now = Instant::now();
        let mut matcher = matcher("ctrl-p,ctrl-q");
        let mut out = Vec::new();
        matcher.push(b"\x10", now, &mut out);
        let due = matcher.deadline().unwrap();
        assert_eq!(due, now + limits::DETACH_HOLD);
        matcher.expire(due, &mut out);
        assert_eq!((out.as_slice(), matcher.deadline()), (&b"\x10"[..], None));
        assert!(!matcher.push(b"\x11", due, &mut out));
    }

    proptest! {
        #[test]
        fn no_key_is_swallowed(pieces in prop::collection::vec("[abc]{0,5}", 0..10)) {
            let mut matcher = matcher("a,b,a,z");
            let now = Instant::now();
            let mut out = Vec::new();
            for piece in &pieces {
                prop_assert!(!matcher.push(piece.as_bytes(), now, &mut out));
            }
            matcher.expire(now + limits::DETACH_HOLD, &mut out);
            prop_assert_eq!(out, pieces.concat().into_bytes());
        }
    }
}
