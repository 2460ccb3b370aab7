//! The colours that an app has left on at a terminal: off at the end of each line, since they may hide
//! the next ones, and in the middle of one while nothing is printed. Pure, with constant memory.

/// Bytes of colour sequences that are repeated when the terminal is written to again: an app mostly
/// leaves one or two on.
const LOG_COLOURS: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Colours {
    /// The active attributes, one bit each.
    on: u32,
    /// The sequences since nothing was on.
    set: Vec<u8>,
    /// Whether they are off for now.
    resting: bool,
}

impl Colours {
    /// Reads along: a sequence that sets colours (`ESC [ … m`), or other attributes of text.
    pub(crate) fn read(&mut self, sequence: &[u8]) {
        let numbers = sequence.get(2..sequence.len().saturating_sub(1)).unwrap_or_default();
        let mut numbers = numbers.split(|byte| *byte == b';');
        while let Some(number) = numbers.next() {
            let mut parts = number.split(|byte| *byte == b':').map(value);
            let (number, part) = (parts.next().unwrap_or(0), parts.next());
            if matches!(number, 38 | 48 | 58) && part.is_none() {
                // An index, or three values.
                let values = if numbers.next().map(value) == Some(2) { 3 } else { 1 };
                for _ in 0..values {
                    numbers.next();
                }
            }
            self.on = match (attribute(number), part) {
                (Attribute::All, _) => 0,
                (Attribute::Off(bits), _) | (Attribute::On(bits), Some(0)) => self.on & !bits,
                (Attribute::On(bits), _) => self.on | bits,
                (Attribute::Unknown, _) => self.on,
            };
        }
        if self.on == 0 {
            self.set.clear();
        } else if self.set.len() + sequence.len() <= LOG_COLOURS {
            self.set.extend_from_slice(sequence);
        }
    }

    /// Appends the sequence that switches off the active attributes, if there are any.
    pub(crate) fn rest(&mut self, out: &mut Vec<u8>) {
        if self.on != 0 && !self.resting {
            out.extend_from_slice(b"\x1b[m");
            self.resting = true;
        }
    }

    /// The line ends: appends what switches the active attributes off.
    pub(crate) fn end_line(&mut self, out: &mut Vec<u8>) {
        self.rest(out);
        *self = Self::default();
    }

    /// Appends what switches it on again.
    pub(crate) fn go_on(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.resting) {
            out.extend_from_slice(&self.set);
        }
    }
}

/// The effect of a number in such a sequence.
enum Attribute {
    /// Switches off everything.
    All,
    On(u32),
    Off(u32),
    Unknown,
}

/// By ECMA-48, and what terminals have besides it.
fn attribute(number: u32) -> Attribute {
    use Attribute::{All, Off, On, Unknown};
    match number {
        0 => All,
        1 | 2 => On(1),
        22 => Off(1),
        3 | 20 => On(1 << 1),
        23 => Off(1 << 1),
        4 | 21 => On(1 << 2),
        24 => Off(1 << 2),
        5 | 6 => On(1 << 3),
        25 => Off(1 << 3),
        7 => On(1 << 4),
        27 => Off(1 << 4),
        8 => On(1 << 5),
        28 => Off(1 << 5),
        9 => On(1 << 6),
        29 => Off(1 << 6),
        11..=19 => On(1 << 7),
        10 => Off(1 << 7),
        30..=38 | 90..=97 => On(1 << 8),
        39 => Off(1 << 8),
        40..=48 | 100..=107 => On(1 << 9),
        49 => Off(1 << 9),
        26 => On(1 << 10),
        50 => Off(1 << 10),
        51 | 52 => On(1 << 11),
        54 => Off(1 << 11),
        53 => On(1 << 12),
        55 => Off(1 << 12),
        58 => On(1 << 13),
        59 => Off(1 << 13),
        60..=64 => On(1 << 14),
        65 => Off(1 << 14),
        73 | 74 => On(1 << 15),
        75 => Off(1 << 15),
        _ => Unknown,
    }
}

/// A number, 0 where there is none, as terminals have it.
fn value(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |value: u32, digit| {
        value.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_goes_off_and_comes_back() {
        for (sequences, is_on) in [
            (&[][..], false),
            (&["\x1b[m"], false),
            (&["\x1b[1;31m"], true),
            (&["\x1b[1;31m", "\x1b[0m"], false),
            (&["\x1b[1;31m", "\x1b[39m"], true),
            (&["\x1b[1;31m", "\x1b[39;22m"], false),
            (&["\x1b[1;;31m", "\x1b[39m"], false),
            (&["\x1b[38;5;1m", "\x1b[39m"], false),
            (&["\x1b[38;2;1;4;7m", "\x1b[39m"], false),
            (&["\x1b[38:2::1:4:7;4m", "\x1b[39m"], true),
            (&["\x1b[4:3m", "\x1b[4:0m"], false),
            (&["\x1b[0;7m"], true),
            (&["\x1b[38;5m"], true),
            (&["\x1b[99999999999m"], false),
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
            let want =
                if is_on { ("\x1b[m".into(), sequences.concat()) } else { Default::default() };
            let text = |bytes| String::from_utf8(bytes).unwrap();
            assert_eq!((text(off), text(on)), want, "{sequences:?}");
        }
        // However much there is of it.
        let mut colours = Colours::default();
        for _ in 0..LOG_COLOURS {
            colours.read(b"\x1b[31m");
        }
        assert!(colours.set.len() <= LOG_COLOURS);
    }
}
