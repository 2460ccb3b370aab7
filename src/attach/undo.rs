//! Which modes of the local terminal the app has changed, and how to take them back.
//!
//! Reads along with what goes to the terminal. Pure, with constant memory: it knows the modes of
//! `CSI ? … h` and `l` that outlive a program and hurt a shell, the keypad, the colours and the
//! cursor. It is no terminal: it does not know what is on the screen.

/// Private modes that are off in a shell's terminal. The alternate screens come last, so that what
/// is undone before is undone on the screen on which it was done.
const OFF: [u16; 15] =
    [1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 47, 1047, 1049];
/// Private modes that are on in a shell's terminal: wrapping lines, and showing the cursor.
const ON: [u16; 2] = [7, 25];
/// Most numbers in one sequence that are looked at, and most digits of each that count.
const NUMBERS: usize = 16;

/// Where in a sequence the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Text,
    Escape,
    /// After `CSI`, before anything else.
    Control,
    /// After `CSI ?`.
    Private,
    /// In a sequence of no interest.
    Other,
}

/// See the module.
#[derive(Debug)]
pub struct Undo {
    place: Place,
    numbers: [u16; NUMBERS],
    count: usize,
    set: [bool; OFF.len()],
    reset: [bool; ON.len()],
    keypad: bool,
    /// Whether anything at all was shown.
    used: bool,
}

impl Default for Undo {
    fn default() -> Self {
        Self {
            place: Place::Text,
            numbers: [0; NUMBERS],
            count: 0,
            set: [false; OFF.len()],
            reset: [false; ON.len()],
            keypad: false,
            used: false,
        }
    }
}

impl Undo {
    /// Reads along.
    pub fn read(&mut self, shown: &[u8]) {
        self.used |= !shown.is_empty();
        for byte in shown {
            self.byte(*byte);
        }
    }

    /// What takes everything back.
    #[must_use]
    pub fn sequence(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (mode, reset) in ON.iter().zip(self.reset) {
            if reset {
                out.extend_from_slice(format!("\x1b[?{mode}h").as_bytes());
            }
        }
        for (mode, set) in OFF.iter().zip(self.set) {
            if set {
                out.extend_from_slice(format!("\x1b[?{mode}l").as_bytes());
            }
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b>");
        }
        if self.used {
            // Colours back to normal, and the usual character set.
            out.extend_from_slice(b"\x1b[0m\x0f");
        }
        out
    }

    fn byte(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (_, 0x1b) => Place::Escape,
            // CAN and SUB end any sequence.
            (_, 0x18 | 0x1a) | (Place::Text, _) => Place::Text,
            (Place::Escape, b'[') => Place::Control,
            (Place::Escape, b'=') => self.keypad(true),
            (Place::Escape, b'>') => self.keypad(false),
            (Place::Escape, b'c') => {
                *self = Self { used: true, ..Self::default() };
                Place::Text
            }
            (Place::Escape, _) => Place::Text,
            (Place::Control, b'?') => {
                self.numbers = [0; NUMBERS];
                self.count = 0;
                Place::Private
            }
            (Place::Private, b'0'..=b'9') => {
                let number = &mut self.numbers[self.count];
                *number = number.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                Place::Private
            }
            (Place::Private, b';') if self.count + 1 < NUMBERS => {
                self.count += 1;
                Place::Private
            }
            (Place::Private, b'h' | b'l') => {
                self.switch(byte == b'h');
                Place::Text
            }
            (_, 0x40..=0x7e) => Place::Text,
            (place @ (Place::Private | Place::Control), 0x00..=0x17) => place,
            _ => Place::Other,
        };
    }

    fn keypad(&mut self, application: bool) -> Place {
        self.keypad = application;
        Place::Text
    }

    fn switch(&mut self, on: bool) {
        for number in &self.numbers[..=self.count] {
            for (mode, set) in OFF.iter().zip(&mut self.set) {
                if mode == number {
                    *set = on;
                }
            }
            for (mode, reset) in ON.iter().zip(&mut self.reset) {
                if mode == number {
                    *reset = !on;
                }
            }
        }
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
