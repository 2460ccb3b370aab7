//! How to take back what the app has changed on the local terminal.
//!
//! Reads along with what goes to the terminal. Pure, with constant memory.

use crate::screen::modes::Modes;
use crate::screen::scan::Scanner;

/// See the module.
#[derive(Debug, Default)]
pub struct Undo {
    scanner: Scanner,
    modes: Modes,
    /// Whether anything at all was shown.
    used: bool,
}

impl Undo {
    /// Reads along.
    pub fn read(&mut self, shown: &[u8]) {
        self.used |= !shown.is_empty();
        let mut at = 0;
        while let Some(piece) = self.scanner.next(shown, &mut at) {
            self.modes.read(piece);
        }
    }

    /// Whether the app has the alternate screen.
    #[must_use]
    pub fn is_full_screen(&self) -> bool {
        [47, 1047, 1049].into_iter().any(|mode| self.modes.is_set(true, mode) == Some(true))
    }

    /// What takes everything back.
    #[must_use]
    pub fn sequence(&self) -> Vec<u8> {
        let mut out = self.modes.undo();
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
        ] {
            assert_eq!(undo(shown), want, "{shown:?}");
        }
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
