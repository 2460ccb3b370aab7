//! The colours of the terminal that a program has changed (`OSC 4`, and 10 to 19).

use std::collections::BTreeMap;
use std::fmt::Write;

use super::scan::number;

/// Longest name of a colour that is kept, bytes: `rgb:ffff/ffff/ffff`, and the like.
const COLOUR_NAME: usize = 32;
/// Text, background, cursor, and more.
const DYNAMIC: std::ops::RangeInclusive<u16> = 10..=19;
/// What is added to these numbers to reset the colours.
const RESET: u16 = 100;
/// The colours of the palette.
const PALETTE: u16 = 256;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Palette {
    /// The colours of the palette by their numbers, and the others by theirs after these.
    changed: BTreeMap<u16, Box<str>>,
    /// Whether colours of the palette, and others, were ever changed.
    used: [bool; 2],
}

impl Palette {
    /// Reads the text of a command to the terminal (`OSC`).
    pub(crate) fn read(&mut self, text: &[u8]) {
        let mut parts = text.split(|byte| *byte == b';');
        let code = parts.next().map_or(0, number);
        let is_reset = DYNAMIC.contains(&code.wrapping_sub(RESET));
        match code {
            4 => {
                while let (Some(index), Some(name)) = (parts.next(), parts.next()) {
                    self.set(Some(number(index)).filter(|index| *index < PALETTE), name);
                }
            }
            104 => {
                let mut all: Vec<u16> = parts.filter(|part| !part.is_empty()).map(number).collect();
                if all.is_empty() {
                    all.extend(0..PALETTE);
                }
                self.changed.retain(|index, _| !all.contains(index));
            }
            _ if DYNAMIC.contains(&code) => {
                for (code, name) in (code..=*DYNAMIC.end()).zip(parts) {
                    self.set(Some(PALETTE + code), name);
                }
            }
            _ if is_reset => {
                self.changed.remove(&(PALETTE + code - RESET));
            }
            _ => {}
        }
    }

    fn set(&mut self, index: Option<u16>, name: &[u8]) {
        // What has a question mark asks for the colour, or could be read so when it is repeated.
        let is_name = |name: &&str| {
            (1..=COLOUR_NAME).contains(&name.len())
                && !name.contains(|c: char| c.is_control() || c == '?')
        };
        if let Some((index, name)) = index.zip(str::from_utf8(name).ok().filter(is_name)) {
            self.used[usize::from(index >= PALETTE)] = true;
            self.changed.insert(index, name.into());
        }
    }

    /// A full reset of the terminal.
    pub(crate) fn reset(&mut self) {
        self.changed.clear();
    }

    /// The bytes that undo all changes.
    pub(crate) fn undo(&self) -> String {
        let mut out = String::new();
        if self.changed.range(..PALETTE).next().is_some() {
            out.push_str("\x1b]104\x1b\\");
        }
        for (index, _) in self.changed.range(PALETTE..) {
            let _ = write!(out, "\x1b]{}\x1b\\", index - PALETTE + RESET);
        }
        out
    }

    /// The bytes that make another terminal have these colours, whatever the program had changed
    /// there.
    pub(crate) fn repeat(&self) -> String {
        let mut out = String::new();
        if self.used[0] {
            out.push_str("\x1b]104\x1b\\");
        }
        if self.used[1] {
            for code in DYNAMIC {
                let _ = write!(out, "\x1b]{}\x1b\\", code + RESET);
            }
        }
        for (index, name) in &self.changed {
            let _ = match index.checked_sub(PALETTE) {
                None => write!(out, "\x1b]4;{index};{name}\x1b\\"),
                Some(code) => write!(out, "\x1b]{code};{name}\x1b\\"),
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_changed_and_reset() {
        for (texts, undo, repeat) in [
            (&["2;title", "4;1;?", "11;?", "12;=?"][..], "", ""),
            (&["4;1;red"], "104", "104 4;1;red"),
            (&["4;1;red;300;x;2;rgb:1/2/3"], "104", "104 4;1;red 4;2;rgb:1/2/3"),
            (&["4;1;red;2;blue", "104;1"], "104", "104 4;2;blue"),
            (&["4;1;red", "104"], "", "104"),
            (&["10;red;blue", "110"], "111", "110 111 112 113 114 115 116 117 118 119 11;blue"),
            (&["4;1;"], "", ""),
        ] {
            let mut palette = Palette::default();
            for text in texts {
                palette.read(text.as_bytes());
            }
            let plain = |out: String| {
                out.replace("\x1b\\\x1b]", " ").replace("\x1b\\", "").replace("\x1b]", "")
            };
            assert_eq!(
                (plain(palette.undo()), plain(palette.repeat())),
                (undo.into(), repeat.into())
            );
        }
    }
}
