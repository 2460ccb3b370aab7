//! A guard before keys that end a service by habit: ^C, ^\\, and ^D on an empty line. Pure: no I/O, no
//! clock.
//!
//! Invariant: every other byte passes at once and in order. A guarded key passes when it is typed
//! again in time; from then on all do, since the user knows.

use std::time::{Duration, Instant};

use super::key::{self, Key};

/// How long a key that was held can be confirmed by typing it again: time to read the line.
pub(crate) const CONFIRM: Duration = Duration::from_secs(2);

/// ^C.
pub(super) const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
/// ^\.
const QUIT: u8 = 0x1c;
/// Keys after which a line is empty: return, ^C, ^D, ^\, ^U.
const ENDS: [u8; 6] = [b'\r', b'\n', INTERRUPT, END_OF_INPUT, QUIT, 0x15];

/// A key that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldKey(u8);

impl HeldKey {
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            INTERRUPT => "^C",
            QUIT => "^\\",
            _ => "^D",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Guard {
    is_on: bool,
    held: Option<(HeldKey, Instant)>,
    /// Nothing was typed since the last line ended, as far as the keys tell.
    is_line_empty: bool,
}

impl Guard {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, held: None, is_line_empty: true }
    }

    /// The part of `typed` that passes now, the key behind it that is held, if there is one, and
    /// what was typed after that key.
    pub(crate) fn pass<'a>(
        &mut self,
        typed: &'a [u8],
        now: Instant,
    ) -> (&'a [u8], Option<HeldKey>, &'a [u8]) {
        if !self.is_on {
            return (typed, None, &[]);
        }
        let mut at = 0;
        while at < typed.len() {
            // What is not whole is not guarded.
            let (len, key) = key::read(&typed[at..]).unwrap_or((typed.len() - at, Key::Other));
            let behind = at + len;
            let begins = std::mem::replace(&mut at, behind);
            let Key::Byte(key) = key else {
                self.is_line_empty &= key == Key::Silent;
                continue;
            };
            let is_guarded =
                [INTERRUPT, QUIT].contains(&key) || key == END_OF_INPUT && self.is_line_empty;
            self.is_line_empty = ENDS.contains(&key);
            if !is_guarded {
                continue;
            }
            let key = HeldKey(key);
            if self.held.take().is_some_and(|(held, until)| held == key && now < until) {
                self.is_on = false;
                return (typed, None, &[]);
            }
            self.held = Some((key, now + CONFIRM));
            return (&typed[..begins], Some(key), &typed[behind..]);
        }
        (typed, None, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes of keys that are typed in one go each, at these times in milliseconds, and what
    /// is held; a held key is in brackets.
    fn typed(keys: &[(u64, &str)]) -> String {
        let start = Instant::now();
        let mut guard = Guard::new(true);
        let mut out = String::new();
        for (at, keys) in keys {
            let mut rest = keys.as_bytes();
            while !rest.is_empty() {
                let (passed, held, behind) = guard.pass(rest, start + Duration::from_millis(*at));
                out += &passed.escape_ascii().to_string();
                out += &held.map_or(String::new(), |key| format!("[{}]", key.name()));
                rest = behind;
            }
        }
        out
    }

    #[test]
    fn a_key_by_habit_is_held_and_a_confirmed_one_passes() {
        for (keys, want) in [
            (&[(0, "ab\x03c")][..], "ab[^C]c"),
            (&[(0, "\x03"), (1999, "\x03"), (9000, "\x03\x04")], r"[^C]\x03\x03\x04"),
            (&[(0, "\x03"), (2000, "\x03")], "[^C][^C]"),
            (&[(0, "\x03\x03")], r"[^C]\x03"),
            (&[(0, "x\x1c\x04")], r"x[^\][^D]"),
            // On a line with text ^D ends nothing.
            (&[(0, "x\x04\x04")], r"x\x04[^D]"),
            (&[(0, "x\r\x04")], r"x\r[^D]"),
            (&[(0, "\x04"), (1, "\x03"), (2, "\x04")], "[^D][^C][^D]"),
            // As sequences, with the keys that are let go.
            (
                &[(0, "\x1b[99;5u\x1b[99;5:3u"), (5, "\x1b[27;5;99~x")],
                r"[^C]\x1b[99;5:3u\x1b[27;5;99~x",
            ),
            (&[(0, "x\x1b[100;5u"), (9, "\x1b[13u\x1b[100;5u")], r"x\x1b[100;5u\x1b[13u[^D]"),
        ] {
            assert_eq!(typed(keys), want, "{keys:?}");
        }
    }
}
