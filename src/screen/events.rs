//! What a client's terminal reports among typed bytes: its focus, and the mouse. No I/O, no clock.
//!
//! The app has one terminal and perhaps several clients, so it is not told of the focus of each; and
//! a window that shows a part of the screen counts its rows from there. Reports come in one piece:
//! the parts of one that is cut are input, so no key waits.

use memchr::memchr;

use super::scan::{Control, ESC};

/// How the positions of a mouse become those on the app's screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The window shows the screen from this row on, counted from 0.
    From(usize),
    /// They are in pixels of a window that shows the screen from another row on: they do not.
    Unknown,
}

impl Default for Pointer {
    fn default() -> Self {
        Self::From(0)
    }
}

/// What is typed, without reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Whether there are keys.
    pub(crate) has_keys: bool,
    /// The focus that was reported last.
    pub(crate) focus: Option<bool>,
}

/// Appends to `out` what the app gets of typed bytes.
pub(crate) fn separate(typed: &[u8], pointer: Pointer, out: &mut Vec<u8>) -> Typed {
    let mut found = Typed::default();
    let mut rest = typed;
    while let Some(at) = memchr(ESC, rest) {
        let (keys, sequence) = rest.split_at(at);
        let (len, report) = report(sequence);
        let is_key = report.is_none();
        found.has_keys |= is_key || !keys.is_empty();
        out.extend_from_slice(keys);
        match report {
            None => out.extend_from_slice(&sequence[..len]),
            Some(TerminalReport::Focus(focus)) => found.focus = Some(focus),
            Some(TerminalReport::Mouse(mouse)) => mouse.put(&sequence[..len], pointer, out),
        }
        rest = &sequence[len..];
    }
    found.has_keys |= !rest.is_empty();
    out.extend_from_slice(rest);
    found
}

enum TerminalReport {
    Focus(bool),
    Mouse(Mouse),
}

/// The encodings of a mouse's position.
enum Mouse {
    /// Three bytes (X10), of which the last is the row and 32.
    Bytes,
    /// Numbers behind this marker (SGR, or urxvt without one), before this end.
    Numbers { marker: &'static str, values: [u16; 3], last: char },
}

/// The report that begins here, and the length of that or of another sequence.
fn report(sequence: &[u8]) -> (usize, Option<TerminalReport>) {
    let body = match sequence {
        [ESC, b'[', b'I', ..] => return (3, Some(TerminalReport::Focus(true))),
        [ESC, b'[', b'O', ..] => return (3, Some(TerminalReport::Focus(false))),
        [ESC, b'[', b'M', _, _, _, ..] => return (6, Some(TerminalReport::Mouse(Mouse::Bytes))),
        [ESC, b'[', body @ ..] => body,
        _ => return (1, None),
    };
    let Some(len) = body.iter().position(|byte| !matches!(byte, 0x20..=0x3f)) else {
        return (1, None);
    };
    let whole = &sequence[..len + 3];
    let mouse = Control::parse(whole).and_then(|control| {
        let values = [control.value(0), control.value(1), control.value(2)];
        let (marker, last) = match (control.marker, control.mark, control.last) {
            (b'<', 0, b'M') => ("<", 'M'),
            (b'<', 0, b'm') => ("<", 'm'),
            (0, 0, b'M') if values[2] > 0 => ("", 'M'),
            _ => return None,
        };
        Some(TerminalReport::Mouse(Mouse::Numbers { marker, values, last }))
    });
    (if mouse.is_some() { whole.len() } else { 1 }, mouse)
}

impl Mouse {
    /// Puts a report where it belongs. One that cannot be moved is left out.
    fn put(&self, report: &[u8], pointer: Pointer, out: &mut Vec<u8>) {
        let from = match pointer {
            Pointer::From(0) => return out.extend_from_slice(report),
            Pointer::From(from) => from,
            Pointer::Unknown => return,
        };
        match self {
            Self::Bytes => {
                let row = report.last().and_then(|row| u8::try_from(from + usize::from(*row)).ok());
                if let (Some(row), [head @ .., _]) = (row, report) {
                    out.extend_from_slice(head);
                    out.push(row);
                }
            }
            Self::Numbers { marker, values: [button, column, row], last } => {
                let row = usize::from(*row) + from;
                let moved = format!("\x1b[{marker}{button};{column};{row}{last}");
                out.extend_from_slice(moved.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn separated(typed: &str, pointer: Pointer) -> (String, Typed) {
        let mut out = Vec::new();
        let found = separate(typed.as_bytes(), pointer, &mut out);
        (String::from_utf8_lossy(&out).into_owned(), found)
    }

    #[test]
    fn reports_are_moved_or_left_out() {
        const KEYS: &str = "a\x1b[A\x1b[3~\x1bOI\x1b\x1b[1;5I\x1b[97;5u\x1b[M";
        for (typed, from, want, has_keys, focus) in [
            (KEYS, 7, KEYS, true, None),
            ("", 7, "", false, None),
            ("\x1b[I", 0, "", false, Some(true)),
            ("x\x1b[I\x1b[Oy", 0, "xy", true, Some(false)),
            ("\x1b[<0;5;2M\x1b[<0;5;2m", 0, "\x1b[<0;5;2M\x1b[<0;5;2m", false, None),
            ("\x1b[<0;5;2M\x1b[<0;5;2m", 30, "\x1b[<0;5;32M\x1b[<0;5;32m", false, None),
            ("\x1b[32;5;2M", 30, "\x1b[32;5;32M", false, None),
            ("\x1b[M !\"z", 30, "\x1b[M !@z", true, None),
            ("\x1b[M !~", 200, "", false, None),
            // Delete a line: nothing that a mouse sends.
            ("\x1b[3M", 30, "\x1b[3M", true, None),
            ("\x1b", 30, "\x1b", true, None),
            ("\x1b[<0;5", 30, "\x1b[<0;5", true, None),
        ] {
            let (out, found) = separated(typed, Pointer::From(from));
            assert_eq!((out.as_str(), found), (want, Typed { has_keys, focus }), "{typed:?}");
        }
        let (out, found) = separated("a\x1b[<0;500;300Mb", Pointer::Unknown);
        assert_eq!((out.as_str(), found.has_keys), ("ab", true));
    }

    proptest! {
        #[test]
        fn nothing_but_the_focus_is_taken_out_of_a_whole_window(
            typed in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(&b"\x1b[]<;?0123RcMmIOu"[..])], 0..200)
        ) {
            let mut out = Vec::new();
            separate(&typed, Pointer::From(0), &mut out);
            let mut want = Vec::new();
            let mut rest = &typed[..];
            while let [first, after @ ..] = rest {
                rest = match rest {
                    [ESC, b'[', b'I' | b'O', after @ ..] => after,
                    // Any three bytes are a position.
                    [ESC, b'[', b'M', _, _, _, after @ ..] => {
                        want.extend_from_slice(&rest[..6]);
                        after
                    }
                    _ => {
                        want.push(*first);
                        after
                    }
                };
            }
            prop_assert_eq!(out, want);
        }
    }
}
