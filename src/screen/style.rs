//! How characters look: colours, attributes, and the sequences that select them (`CSI … m`).

use std::fmt::Write;
use std::sync::Arc;

use super::scan::number;
use crate::types::limits;

/// A colour: the default one, one of a palette of 256, or red, green and blue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Colour(u32);

const INDEXED: u32 = 1 << 24;
const RGB: u32 = 2 << 24;

impl Colour {
    /// What a terminal uses where nothing is selected.
    pub(crate) const DEFAULT: Self = Self(0);

    const fn indexed(index: u8) -> Self {
        Self(INDEXED | index as u32)
    }

    /// The colour with this number, if there is one.
    fn of_palette(index: u16) -> Option<Self> {
        u8::try_from(index).ok().map(Self::indexed)
    }

    const fn rgb(red: u8, green: u8, blue: u8) -> Self {
        Self(RGB | (red as u32) << 16 | (green as u32) << 8 | blue as u32)
    }

    /// The number in the palette, if it has one.
    pub(crate) fn index(self) -> Option<u8> {
        (self.0 & !0xff == INDEXED).then_some(self.0.to_le_bytes()[0])
    }

    /// Red, green and blue, if it has them.
    pub(crate) fn parts(self) -> Option<[u8; 3]> {
        let [blue, green, red, _] = self.0.to_le_bytes();
        (self.0 & RGB != 0).then_some([red, green, blue])
    }
}

/// The attributes of a cell that are on or off, and the kind of its underline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(u16);

impl Attributes {
    pub(crate) const BOLD: u16 = 1;
    pub(crate) const DIM: u16 = 1 << 1;
    pub(crate) const ITALIC: u16 = 1 << 2;
    pub(crate) const BLINK: u16 = 1 << 3;
    pub(crate) const INVERSE: u16 = 1 << 4;
    pub(crate) const HIDDEN: u16 = 1 << 5;
    pub(crate) const STRIKE: u16 = 1 << 6;
    pub(crate) const OVERLINE: u16 = 1 << 7;
    /// The first half of a character that is two columns wide.
    pub(crate) const WIDE: u16 = 1 << 8;
    /// Its second half.
    pub(crate) const TAIL: u16 = 1 << 9;
    /// The first bit of the kind of underline, 0 to [`UNDERLINES`].
    const UNDERLINE: u32 = 10;

    pub(crate) fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn with(self, flag: u16) -> Self {
        Self(self.0 | flag)
    }

    pub(crate) fn without(self, flags: u16) -> Self {
        Self(self.0 & !flags)
    }

    /// 0 is none, 1 is a single one.
    pub(crate) fn underline(self) -> u16 {
        self.0 >> Self::UNDERLINE & 7
    }

    fn set_underline(&mut self, kind: u16) {
        let kind = if kind > UNDERLINES { 1 } else { kind };
        self.0 = self.0 & !(7 << Self::UNDERLINE) | kind << Self::UNDERLINE;
    }
}

/// Kinds of underline: single, double, curly, dotted, dashed.
const UNDERLINES: u16 = 5;

/// The numbers that select a flag, and the opposite.
pub(crate) const SELECTED: [(u16, u16, u16); 8] = [
    (1, 22, Attributes::BOLD),
    (2, 22, Attributes::DIM),
    (3, 23, Attributes::ITALIC),
    (5, 25, Attributes::BLINK),
    (7, 27, Attributes::INVERSE),
    (8, 28, Attributes::HIDDEN),
    (9, 29, Attributes::STRIKE),
    (53, 55, Attributes::OVERLINE),
];

/// How a cell looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) text: Colour,
    pub(crate) back: Colour,
    pub(crate) flags: Attributes,
    /// What few cells have: see [`Extras`](super::extras::Extras). 0 is nothing.
    pub(crate) extra: u16,
}

/// What the next characters look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) look: Look,
    /// The colour of the underline, if it is not that of the text.
    pub(crate) underline: Colour,
    /// The hyperlink: its parameters and its address, as in `OSC 8`.
    pub(crate) link: Option<Arc<str>>,
}

impl Style {
    /// Appends the sequences that select it, without its link.
    pub(crate) fn write(&self, out: &mut String) {
        out.push_str("\x1b[0");
        self.numbers(out);
        out.push('m');
        // Terminals that do not know parts ignore such a sequence.
        if let Some(parts) = self.parts().strip_prefix(';') {
            // Writing into a string does not fail.
            let _ = write!(out, "\x1b[{parts}m");
        }
    }

    /// Appends the numbers of a `CSI … m` that selects it from the usual one, each behind a `;`.
    pub(crate) fn numbers(&self, out: &mut String) {
        let Look { text, back, flags, .. } = self.look;
        for (number, ..) in SELECTED.iter().filter(|(.., flag)| flags.has(*flag)) {
            let _ = write!(out, ";{number}");
        }
        if flags.underline() > 0 {
            out.push_str(";4");
        }
        for (colour, first) in [(text, 30), (back, 40)] {
            let _ = match (colour.index(), colour.parts()) {
                (Some(n @ 0..=7), _) => write!(out, ";{}", first + n),
                (Some(n @ 8..=15), _) => write!(out, ";{}", first + 52 + n),
                (Some(n), _) => write!(out, ";{};5;{n}", first + 8),
                (_, Some([r, g, b])) => write!(out, ";{};2;{r};{g};{b}", first + 8),
                _ => Ok(()),
            };
        }
    }

    /// The same numbers that have parts.
    pub(crate) fn parts(&self) -> String {
        let mut out = String::new();
        if self.look.flags.underline() > 1 {
            let _ = write!(out, ";4:{}", self.look.flags.underline());
        }
        let _ = match (self.underline.index(), self.underline.parts()) {
            (Some(index), _) => write!(out, ";58:5:{index}"),
            (_, Some([r, g, b])) => write!(out, ";58:2::{r}:{g}:{b}"),
            _ => Ok(()),
        };
        out
    }

    /// Selects what the numbers of a `CSI … m` mean. Whether the colour of the underline changes.
    pub(crate) fn select(&mut self, numbers: &[u8]) -> bool {
        let before = self.underline;
        let mut groups = numbers.split(|byte| *byte == b';').take(limits::NUMBERS);
        while let Some(group) = groups.next() {
            self.select_one(group, &mut groups);
        }
        self.underline != before
    }

    /// Selects what a number means with its parts, which are behind a `:`, or with the next numbers.
    fn select_one<'a>(&mut self, group: &[u8], next: &mut impl Iterator<Item = &'a [u8]>) {
        let flags = &mut self.look.flags;
        match number(group) {
            0 => {
                self.look = Look { extra: self.look.extra, ..Look::default() };
                self.underline = Colour::DEFAULT;
            }
            4 => flags.set_underline(parts(group).nth(1).unwrap_or(1)),
            6 => *flags = flags.with(Attributes::BLINK),
            21 => flags.set_underline(2),
            24 => flags.set_underline(0),
            number @ 30..=37 => self.look.text = Colour::indexed(low_byte(number - 30)),
            number @ 40..=47 => self.look.back = Colour::indexed(low_byte(number - 40)),
            number @ 90..=97 => self.look.text = Colour::indexed(low_byte(number - 90 + 8)),
            number @ 100..=107 => self.look.back = Colour::indexed(low_byte(number - 100 + 8)),
            39 => self.look.text = Colour::DEFAULT,
            49 => self.look.back = Colour::DEFAULT,
            59 => self.underline = Colour::DEFAULT,
            number @ (38 | 48 | 58) => {
                let Some(colour) = colour(group, next) else { return };
                match number {
                    38 => self.look.text = colour,
                    48 => self.look.back = colour,
                    _ => self.underline = colour,
                }
            }
            number => {
                for (on, off, flag) in SELECTED {
                    if on == number {
                        *flags = flags.with(flag);
                    } else if off == number {
                        *flags = flags.without(flag);
                    }
                }
            }
        }
    }
}

fn low_byte(number: u16) -> u8 {
    number.to_le_bytes()[0]
}

/// A number and its parts.
fn parts(group: &[u8]) -> impl Iterator<Item = u16> {
    group.split(|byte| *byte == b':').map(number)
}

/// The colour of a 38, 48 or 58: in its parts, or in the next numbers, which are 0 if they are absent.
fn colour<'a>(group: &[u8], next: &mut impl Iterator<Item = &'a [u8]>) -> Option<Colour> {
    let rgb = |parts: [u16; 3]| {
        let [red, green, blue] = parts.map(low_byte);
        Some(Colour::rgb(red, green, blue))
    };
    let mut has = [0; 6];
    has.iter_mut().zip(parts(group)).for_each(|(has, part)| *has = part);
    match (parts(group).count(), has) {
        (1, _) => match next.next().map_or(0, number) {
            2 => rgb([(); 3].map(|()| next.next().map_or(0, number))),
            5 => next.next().map(number).and_then(Colour::of_palette),
            _ => None,
        },
        // With or without a colour space.
        (6.., [_, 2, _, red, green, blue]) | (5, [_, 2, red, green, blue, _]) => {
            rgb([red, green, blue])
        }
        (3.., [_, 5, index, ..]) => Colour::of_palette(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(numbers: &str) -> Style {
        let mut style = Style::default();
        style.select(numbers.as_bytes());
        style
    }

    #[test]
    fn colours_in_all_spellings() {
        let (indexed, rgb) = (Colour::indexed(200), Colour::rgb(1, 2, 3));
        for (numbers, text, back) in [
            ("38;5;200", indexed, Colour::DEFAULT),
            ("38:5:200;48;2;1;2;3", indexed, rgb),
            ("38:2::1:2:3", rgb, Colour::DEFAULT),
            ("38:2:1:2:3;48:5:200", rgb, indexed),
            ("31;97;104", Colour::indexed(15), Colour::indexed(12)),
            ("38;9;1", Colour::DEFAULT, Colour::DEFAULT),
            ("38;5;200;39", Colour::DEFAULT, Colour::DEFAULT),
            ("38;2;1;2;3;48;5", rgb, Colour::DEFAULT),
            ("38;2;1;2;3;48;5;", rgb, Colour::indexed(0)),
            ("38;5;300;48:5:256", Colour::DEFAULT, Colour::DEFAULT),
            ("38", Colour::DEFAULT, Colour::DEFAULT),
        ] {
            let Look { text: is, back: is_back, .. } = selected(numbers).look;
            assert_eq!((is, is_back), (text, back), "{numbers}");
        }
        assert_eq!(indexed.index().zip(rgb.parts()), Some((200, [1, 2, 3])));
        assert_eq!((rgb.index(), indexed.parts(), Colour::DEFAULT.parts()), (None, None, None));
    }

    #[test]
    fn attributes_are_selected_and_undone() {
        let on = selected("1;2;3;4:3;5;7;8;9;53").look.flags;
        assert!(SELECTED.iter().all(|(.., flag)| on.has(*flag)) && on.underline() == 3);
        for off in ["0", "", "22;23;24;25;27;28;29;55"] {
            let mut style = selected("1;2;3;4:3;5;7;8;9;53");
            style.select(off.as_bytes());
            assert_eq!(style.look, Look::default(), "{off}");
        }
        for (numbers, underline) in [("4", 1), ("21", 2), ("4:0", 0), ("4:5", 5), ("4:9", 1)] {
            assert_eq!(selected(numbers).look.flags.underline(), underline, "{numbers}");
        }
        assert_eq!(selected("58;2;1;2;3").underline, Colour::rgb(1, 2, 3));
        assert_eq!(selected("58:5:9;59").underline, Colour::DEFAULT);
        // More numbers than are read.
        selected(&"38;5;".repeat(100));
        selected(&"4:".repeat(100));
    }
}
