//! The changes of the app to the local terminal, and how to undo them.
//!
//! It observes everything that goes to the terminal. Pure, with constant memory.

use super::modes::ScreenModes;
use super::query::Query;
use super::scan::{Scanner, plain_len};

/// See the module.
#[derive(Debug, Default)]
pub struct Restorer {
    scanner: Scanner,
    modes: ScreenModes,
    /// Whether there was any output.
    used: bool,
    /// Whether there was a query, since [`Restorer::take_asked`].
    asked: bool,
}

impl Restorer {
    /// Observes bytes that go to the terminal.
    pub fn observe(&mut self, shown: &[u8]) {
        self.used |= !shown.is_empty();
        let mut at = 0;
        loop {
            if self.scanner.is_in_text() && !self.modes.is_shifted() {
                // Most output changes no modes; this skips it fast.
                at += plain_len(&shown[at..]);
            }
            let Some(piece) = self.scanner.next(shown, &mut at) else { return };
            self.modes.read(piece);
            self.asked |= Query::of(piece, |_| ());
        }
    }

    /// Whether the output does not end within a sequence. Our own text may then follow.
    pub(crate) fn is_between_sequences(&self) -> bool {
        self.scanner.is_in_text()
    }

    /// The incomplete sequence, as far as it is kept. It is repeated after our own text.
    pub(crate) fn unfinished(&self) -> &[u8] {
        self.scanner.held()
    }

    /// Ends an incomplete sequence; empty if there is none.
    pub(crate) fn terminator(&self) -> &'static str {
        if self.scanner.is_in_text() { "" } else { "\x1b\\" }
    }

    /// Forgets the incomplete sequence.
    pub(crate) fn cancel(&mut self) {
        self.observe(b"\x18");
    }

    /// Our own text for the terminal, with the app's sequence ended before it and repeated after
    /// it.
    pub(crate) fn insert(&self, text: &[u8]) -> Vec<u8> {
        [self.terminator().as_bytes(), text, self.unfinished()].concat()
    }

    /// Whether the terminal got a query since this was asked last: its reply may be on its way.
    pub(crate) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Everything was undone. Doing that twice would move the cursor back to where it was then.
    pub(crate) fn forget(&mut self) {
        (self.modes, self.used) = (ScreenModes::default(), false);
    }

    /// Whether the app uses the alternate screen.
    pub(crate) fn is_full_screen(&self) -> bool {
        self.modes.is_alternate()
    }

    /// Undoes all changes, on a terminal of this width.
    pub fn sequence(&self, cols: u16) -> Vec<u8> {
        let mut out = self.terminator().to_owned() + &self.modes.undo(cols);
        if self.used {
            // Default colours and character set.
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
        let mut undo = Restorer::default();
        for piece in shown {
            undo.observe(piece.as_bytes());
        }
        String::from_utf8(undo.sequence(20)).unwrap()
    }

    #[test]
    fn changes_are_undone_once() {
        let mut undo = Restorer::default();
        undo.observe(b"\x1b[?1049h\x1b[?25l\x1b[");
        assert!(undo.is_full_screen());
        undo.forget();
        assert!(!undo.is_full_screen());
        assert_eq!(undo.sequence(20), b"\x1b\\");
        undo.observe(b"?1049h");
        assert_eq!(undo.sequence(20), b"\x1b[?1049l\x1b[0m\x0f");
    }

    #[test]
    fn exactly_the_changes_are_undone() {
        const CALM: &str = "\x1b[0m\x0f";
        const STOPS: &str = "\x1b7\x1b[3g\x1b[9G\x1bH\x1b[17G\x1bH\x1b8\x1b[?5W\x1b[0m\x0f";
        for (shown, want) in [
            (&[][..], ""),
            (&["plain"], CALM),
            (&["\x1b[?1049h"], "\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1b[?1049l"], CALM),
            (&["\x1b[?10", "49;25", "h"], "\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[?25l"], "\x1b[?25h\x1b[0m\x0f"),
            (&["\x1b[?2\n5l"], "\x1b[?25h\x1b[0m\x0f"),
            (&["\x1b[?25l\x1b\nc"], CALM),
            (&["\x1b[?1000;1006h\x1b="], "\x1b[?1000l\x1b[?1006l\x1b>\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1bc"], CALM),
            (&["\x1b[1049h"], CALM),
            (&["\x1b[?99999999999999999999h"], CALM),
            (&["\x1b[4h\x1b[4l\x1b[?7l"], "\x1b[?7h\x1b[0m\x0f"),
            (&["\x1b[4h\x1b[?6h\x1b[!p"], "\x1b[4l\x1b[?6l\x1b[0m\x0f"),
            (&["\x1b[5 q"], "\x1b[0 q\x1b[0m\x0f"),
            (&["\x1b[5 q\x1b[0 q"], CALM),
            (&["\x1b[>4;2m"], "\x1b[>4m\x1b[0m\x0f"),
            (&["\x1b[>4;2m\x1b[>4m"], CALM),
            (&["\x1b[>1u\x1b[>5u"], "\x1b[<2u\x1b[0m\x0f"),
            (&["\x1b[>1u\x1b[<u"], CALM),
            (&[&"\x1b[>1u".repeat(20)], "\x1b[<20u\x1b[0m\x0f"),
            (&[&"\x1b[>1u".repeat(20), "\x1b[<12u\x1b[>1u"], "\x1b[<9u\x1b[0m\x0f"),
            (&[&"\x1b[>1u".repeat(20), "\x1b[<99u"], CALM),
            (&["\x1b[=5;1u"], "\x1b[=0u\x1b[0m\x0f"),
            (&["\x1b[?1049h\x1b[>1u"], "\x1b[<1u\x1b[?1049l\x1b[0m\x0f"),
            (&["\x1b[>1u\x1b[?1049h"], "\x1b[?1049l\x1b[<1u\x1b[0m\x0f"),
            (&["\x1b[2;20r"], "\x1b7\x1b[r\x1b8\x1b[0m\x0f"),
            (&["\x1b[2;20r\x1b[r"], CALM),
            (&["\x1b[3g"], STOPS),
            // Not all terminals reset the stops.
            (&["\x1b[3g\x1b[?5W"], STOPS),
            (&["\x1b[?1007l"], "\x1b[?1007h\x1b[0m\x0f"),
            (&["\x1b[?1007l\x1b[?1007h"], CALM),
            (&["\x1b]4;1;red\x07\x1b]11;blue\x07"], "\x1b]104\x1b\\\x1b]111\x1b\\\x1b[0m\x0f"),
            (&["\x1b]8;;http://x\x07"], "\x1b]8;;\x1b\\\x1b[0m\x0f"),
            (&["\x1b]9;4;1;50\x07"], "\x1b]9;4;0\x1b\\\x1b[0m\x0f"),
            (&["\x1b]9;4;1;50\x07", "\x1b]9;4;0\x07", "\x1b]9;a message\x07"], CALM),
            (&["\x1b]P1ff", "00e5text"], "\x1b]R\x1b\\\x1b[0m\x0f"),
            (&["\x1b]P1ff00e5text\x1b]R"], CALM),
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
    fn an_incomplete_sequence_is_repeated() {
        for (shown, begun) in [
            (&[&b"text"[..]][..], &b""[..]),
            (&[b"\x1b[3", b"8;5"], b"\x1b[38;5"),
            (&[b"\x1b[3", b"1m"], b""),
            (&[b"\x1b]2;tit", b"le\x1b"], b"\x1b]2;title\x1b"),
        ] {
            let mut undo = Restorer::default();
            for piece in shown {
                undo.observe(piece);
            }
            assert_eq!(undo.unfinished(), begun, "{shown:?}");
            assert_eq!(undo.is_between_sequences(), begun.is_empty(), "{shown:?}");
            undo.cancel();
            assert!(undo.is_between_sequences() && undo.terminator().is_empty(), "{shown:?}");
        }
        // The beginning of a long sequence is not kept.
        let mut undo = Restorer::default();
        undo.observe(&[b"\x1bPq", &[b'#'; 4000][..]].concat());
        assert_eq!((undo.unfinished().len(), undo.is_between_sequences()), (0, false));
    }

    /// Parts of the output of an app.
    const PARTS: &[&[u8]] = &[
        b"text",
        b"\xc3",
        b"\xa9",
        "\u{6f22}".as_bytes(),
        b"\xe6\xbc",
        b"\r\n",
        b"\x1b[1;31m",
        b"\x1b[m",
        b"\x1b[K",
        b"\x1b[3;4H",
        b"\x0e",
        b"\x0f",
        b"\x05",
        b"\x1b)0",
        b"\x1b[?25l",
        b"\x1b[",
        b"\x1b",
        b"\x1b]2;",
        b"\x07",
        b"\x1b\\",
        b"\x18",
        b"m",
        b"1;2",
    ];

    proptest! {
        #[test]
        fn any_bytes_and_any_split(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let (mut whole, mut split) = (Restorer::default(), Restorer::default());
            whole.observe(&bytes);
            split.observe(a);
            split.observe(b);
            prop_assert_eq!(whole.sequence(20), split.sequence(20));
        }

        #[test]
        fn any_output_and_any_split(
            parts in prop::collection::vec(prop::sample::select(PARTS), 0..20),
            size in 2usize..40,
        ) {
            let shown: Vec<u8> = parts.concat();
            let (mut whole, mut cut, mut single) =
                (Restorer::default(), Restorer::default(), Restorer::default());
            whole.observe(&shown);
            shown.chunks(size).for_each(|piece| cut.observe(piece));
            shown.chunks(1).for_each(|byte| single.observe(byte));
            let state = |undo: &Restorer| (undo.sequence(20), undo.unfinished().to_vec());
            prop_assert_eq!(state(&whole), state(&single));
            prop_assert_eq!(state(&cut), state(&single));
        }
    }
}
