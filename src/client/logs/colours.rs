//! The colours that an app has left on at a terminal: off at the end of each line, since they may hide
//! the next ones, and in the middle of one while nothing is printed. Pure, with constant memory.

use crate::screen::style::Style;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Colours {
    style: Style,
    /// Something was selected since everything was usual, if only what [`Style`] does not have.
    is_on: bool,
    /// Whether it is off for now.
    resting: bool,
}

impl Colours {
    /// Reads along: the numbers of a sequence that sets colours, or other attributes of text.
    pub(crate) fn read(&mut self, numbers: &[u8]) {
        self.style.select(numbers);
        self.is_on = !matches!(numbers, b"" | b"0");
    }

    /// Appends the sequence that switches off what is on, if there is something.
    pub(crate) fn rest(&mut self, out: &mut Vec<u8>) {
        if self.is_on && !self.resting {
            out.extend_from_slice(b"\x1b[m");
            self.resting = true;
        }
    }

    /// The line ends: appends what switches off what is on.
    pub(crate) fn end_line(&mut self, out: &mut Vec<u8>) {
        self.rest(out);
        *self = Self::default();
    }

    /// Appends what switches it on again.
    pub(crate) fn go_on(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.resting) {
            let mut selected = String::new();
            self.style.write(&mut selected);
            out.extend_from_slice(selected.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_goes_off_and_comes_back() {
        for (sequences, want) in [
            (&[][..], None),
            (&[""], None),
            (&["1;31"], Some("\x1b[0;1;31m")),
            (&["1;31", "0"], None),
            (&["1;31", "39"], Some("\x1b[0;1m")),
            (&["38;2;1;4;7"], Some("\x1b[0;38;2;1;4;7m")),
            (&["4:3"], Some("\x1b[0;4m\x1b[4:3m")),
            (&["0;7"], Some("\x1b[0;7m")),
            // Off again, or of a kind that no screen has, such as another font.
            (&["31", "39"], Some("\x1b[0m")),
            (&["11"], Some("\x1b[0m")),
        ] {
            let mut colours = Colours::default();
            for sequence in sequences {
                colours.read(sequence.as_bytes());
            }
            let (mut off, mut on) = (Vec::new(), Vec::new());
            colours.rest(&mut off);
            colours.rest(&mut off);
            colours.go_on(&mut on);
            colours.go_on(&mut on);
            let off_wanted = if want.is_some() { "\x1b[m" } else { "" };
            assert_eq!(String::from_utf8(off).unwrap(), off_wanted, "{sequences:?}");
            assert_eq!(String::from_utf8(on).unwrap(), want.unwrap_or_default(), "{sequences:?}");
        }
    }
}
