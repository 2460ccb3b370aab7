//! How to take back what the app has changed on the local terminal.
//!
//! Reads along with what goes to the terminal. Pure, with constant memory.

use crate::core::screen::modes::ScreenModes;
use crate::core::screen::scan::{Piece, Scanner, unfinished};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    scanner: Scanner,
    modes: ScreenModes,
    /// The beginning of a character at the end of what was shown.
    begun: Vec<u8>,
    /// Whether anything at all was shown.
    used: bool,
}

impl Undo {
    /// Reads along.
    pub(crate) fn read(&mut self, shown: &[u8]) {
        self.used |= !shown.is_empty();
        let mut at = 0;
        while let Some(piece) = self.scanner.next(shown, &mut at) {
            self.modes.read(piece);
            if let Piece::Text(text) = piece {
                // With the last three bytes a character ends that was begun before them.
                self.begun.extend_from_slice(&text[text.len().saturating_sub(3)..]);
                let whole = self.begun.len() - unfinished(&self.begun);
                self.begun.drain(..whole);
            } else {
                self.begun.clear();
            }
        }
    }

    /// Whether what was shown ends with a whole character or sequence: then something of ours may come.
    pub(crate) fn is_whole(&self) -> bool {
        self.scanner.is_in_text() && self.begun.is_empty()
    }

    /// What has begun and goes on with the next byte, as far as it is kept: behind something of ours it is
    /// to be shown once more.
    pub(crate) fn begun(&self) -> Vec<u8> {
        [&self.begun, self.scanner.held()].concat()
    }

    /// What ends a sequence that has begun, and does nothing where none has.
    pub(crate) fn end(&self) -> &'static str {
        if self.scanner.is_in_text() { "" } else { "\x1b\\" }
    }

    /// The app goes on with nothing that has begun.
    pub(crate) fn break_off(&mut self) {
        self.read(b"\x18");
    }

    /// All was taken back: to do that twice would put the cursor where it was then.
    pub(crate) fn forget(&mut self) {
        (self.modes, self.used) = (ScreenModes::default(), false);
    }

    /// Whether the app has the alternate screen.
    pub(crate) fn is_full_screen(&self) -> bool {
        [47, 1047, 1049].into_iter().any(|mode| self.modes.is_set(true, mode) == Some(true))
    }

    /// What takes everything back.
    pub(crate) fn sequence(&self) -> Vec<u8> {
        let mut out = self.end().to_owned() + &self.modes.undo();
        if self.used {
            // Colours back to normal, and the usual character set.
            out.push_str("\x1b[0m\x0f");
        }
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn undo(shown: &[&str]) -> String {
        let mut undo = Undo::default();
        for piece in shown {
            undo.read(piece.as_bytes());
        }
        String::from_utf8(undo.sequence()).unwrap()
    }

    #[test]
    fn what_was_taken_back_is_not_taken_back_again() {
        let mut undo = Undo::default();
        undo.read(b"\x1b[?1049h\x1b[?25l\x1b[");
        assert!(undo.is_full_screen());
        undo.forget();
        assert!(!undo.is_full_screen());
        assert_eq!(undo.sequence(), b"\x1b\\");
        undo.read(b"?1049h");
        assert_eq!(undo.sequence(), b"\x1b[?1049l\x1b[0m\x0f");
    }

    #[test]
    fn exactly_what_was_changed() {
        const CALM: &str = "\x1b[0m\x0f";
        for (shown, want) in [
            (&[][..], ""),
            (&["plain"], CALM),
            (&["\x1b[?1049h"], "\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1b[?1049l"], CALM),
            (&["\x1b[?10", "49;25", "h"], "\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[?25l"], "\x1b[?25h\x1b[0m\x0f"),
            (&["\x1b[?1000;1006h\x1b="], "\x1b[?1000l\x1b[?1006l\x1b>\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1bc"], CALM),
            (&["\x1b[1049h"], CALM),
            (&["\x1b[?99999999999999999999h"], CALM),
            (&["\x1b[4h\x1b[4l\x1b[?7l"], "\x1b[?7h\x1b[0m\x0f"),
            (&["\x1b[4h\x1b[?6h\x1b[!p"], CALM),
            (&["\x1b[5 q"], "\x1b[0 q\x1b[0m\x0f"),
            (&["\x1b[5 q\x1b[0 q"], CALM),
            (&["\x1b[>4;2m"], "\x1b[>4m\x1b[0m\x0f"),
            (&["\x1b[>4;2m\x1b[>4m"], CALM),
            (&["\x1b[>1u\x1b[>5u"], "\x1b[<2u\x1b[0m\x0f"),
            (&["\x1b[>1u\x1b[<u"], CALM),
            (&["\x1b[=5;1u"], "\x1b[=0u\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1b[>1u"], "\x1b[<1u\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[>1u\x1b[?1049h"], "\x1b[?1049l\x1b[<1u\x1b[0m\x0f"),
            (&["\x1b[2;20r"], "\x1b7\x1b[r\x1b8\x1b[0m\x0f"),
            (&["\x1b[2;20r\x1b[r"], CALM),
            (&["\x1b(0"], "\x1b(B\x1b[0m\x0f"),
            (&["\x1b(0\x1b(B"], CALM),
            (&["\x1b[?2026h\x1b[?1004h"], "\x1b[?1004l\x1b[?2026l\x1b[0m\x0f"),
            (&["\x1b]2;\x1b[?25l\x1b\\"], "\x1b[?25h\x1b[0m\x0f"),
            (&["\x1b]2;tit"], "\x1b\\\x1b[0m\x0f"),
            (&["\x1b[?25l\x1b[?10"], "\x1b\\\x1b[?25h\x1b[0m\x0f"),
        ] {
            assert_eq!(undo(shown), want, "{shown:?}");
        }
    }

    #[test]
    fn what_has_begun_is_known() {
        for (shown, begun) in [
            (&[&b"text"[..]][..], &b""[..]),
            (&[b"a\xc3", b"\xa9"], b""),
            (&[b"a\xf0", b"\x9f", b"\x98"], b"\xf0\x9f\x98"),
            (&[b"a\xf0", b"\x9f", b"\x98", b"\x80"], b""),
            (&[b"abcd\xe2\x82"], b"\xe2\x82"),
            (&[b"\xe2\x82", b"abcd"], b""),
            (&[b"\xe2\x82", b"\x1b[m"], b""),
            (&[b"\x1b[3", b"8;5"], b"\x1b[38;5"),
            (&[b"\x1b[3", b"1m"], b""),
            (&[b"\x1b]2;tit", b"le\x1b"], b"\x1b]2;title\x1b"),
        ] {
            let mut undo = Undo::default();
            for piece in shown {
                undo.read(piece);
            }
            assert_eq!(undo.begun(), begun, "{shown:?}");
            assert_eq!(undo.is_whole(), begun.is_empty(), "{shown:?}");
            undo.break_off();
            assert!(undo.is_whole() && undo.end().is_empty(), "{shown:?}");
        }
        // Of what is too long the beginning is not kept.
        let mut undo = Undo::default();
        undo.read(&[b"\x1bPq", &[b'#'; 4000][..]].concat());
        assert_eq!((undo.begun().len(), undo.is_whole()), (0, false));
    }

    proptest! {
        #[test]
        fn any_bytes_and_any_split(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let (mut whole, mut split) = (Undo::default(), Undo::default());
            whole.read(&bytes);
            split.read(a);
            split.read(b);
            prop_assert_eq!(whole.sequence(), split.sequence());
        }
    }
}
