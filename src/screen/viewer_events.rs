//! What a client's terminal reports among typed bytes: its focus, and the mouse. No I/O, no clock.
//!
//! The app has one terminal and perhaps several clients, so it is not told of the focus of each. Who
//! moves a mouse types nothing. Reports come in one piece: the parts of one that is cut are input, so no
//! key waits.

use memchr::memchr;

use super::scan::{Control, ESC};

/// What is typed, without reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Whether there are keys.
    pub(crate) has_keys: bool,
    /// The focus that was reported last.
    pub(crate) focus: Option<bool>,
}

/// Appends to `out` what the app gets of typed bytes.
pub(crate) fn separate(typed: &[u8], out: &mut Vec<u8>) -> Typed {
    let mut found = Typed::default();
    let mut rest = typed;
    while let Some(at) = memchr(ESC, rest) {
        let (keys, sequence) = rest.split_at(at);
        let report = report(sequence);
        found.has_keys |= report.is_none() || !keys.is_empty();
        out.extend_from_slice(keys);
        let (len, focus) = report.unwrap_or((1, None));
        if focus.is_some() {
            found.focus = focus;
        } else {
            out.extend_from_slice(&sequence[..len]);
        }
        rest = &sequence[len..];
    }
    found.has_keys |= !rest.is_empty();
    out.extend_from_slice(rest);
    found
}

/// The length of the report that begins here, and the focus that it tells; else it is of a mouse.
fn report(sequence: &[u8]) -> Option<(usize, Option<bool>)> {
    match sequence {
        [ESC, b'[', b'I', ..] => Some((3, Some(true))),
        [ESC, b'[', b'O', ..] => Some((3, Some(false))),
        // The encoding of X10.
        [ESC, b'[', b'M', _, _, _, ..] => Some((6, None)),
        [ESC, b'[', body @ ..] => {
            let len = body.iter().position(|byte| !matches!(byte, 0x20..=0x3f))? + 3;
            let control = Control::parse(&sequence[..len])?;
            let is_mouse = match (control.marker, control.mark, control.last) {
                // In numbers: SGR, or urxvt.
                (b'<', 0, b'M' | b'm') => true,
                (0, 0, b'M') => control.value(2) > 0,
                _ => false,
            };
            is_mouse.then_some((len, None))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_focus_is_taken_out_and_a_mouse_is_no_key() {
        const KEYS: &str = "a\x1b[A\x1b[3~\x1bOI\x1b\x1b[1;5I\x1b[97;5u\x1b[M";
        for (typed, want, has_keys, focus) in [
            (KEYS, KEYS, true, None),
            ("", "", false, None),
            ("\x1b[I", "", false, Some(true)),
            ("x\x1b[I\x1b[Oy", "xy", true, Some(false)),
            ("\x1b[<0;5;2M\x1b[<0;5;2m", "\x1b[<0;5;2M\x1b[<0;5;2m", false, None),
            ("\x1b[32;5;2M", "\x1b[32;5;2M", false, None),
            ("\x1b[M !\"", "\x1b[M !\"", false, None),
            ("\x1b[M !\"z", "\x1b[M !\"z", true, None),
            // Delete a line: nothing that a mouse sends.
            ("\x1b[3M", "\x1b[3M", true, None),
            ("\x1b", "\x1b", true, None),
            ("\x1b[<0;5", "\x1b[<0;5", true, None),
        ] {
            let mut out = Vec::new();
            let found = separate(typed.as_bytes(), &mut out);
            let out = String::from_utf8(out).unwrap();
            assert_eq!((out.as_str(), found), (want, Typed { has_keys, focus }), "{typed:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_the_focus_is_taken_out(
            typed in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(&b"\x1b[]<;?0123RcMmIOu"[..])], 0..200)
        ) {
            let mut out = Vec::new();
            separate(&typed, &mut out);
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
