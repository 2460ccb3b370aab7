//! Reads the keys that a terminal sends: bytes, and the sequences of an app that asked for more.
//!
//! Those are `CSI code:shifted:base;modifiers:event;text u` (kitty's protocol, and xterm's
//! formatOtherKeys) and `CSI 27;modifiers;code~` (xterm's modifyOtherKeys). No I/O, no clock.

use crate::screen::scan::ESC;

/// Modifiers in a sequence, which has one more: shift and control. Caps lock and num lock are locks;
/// the others make another key.
const SHIFT: u32 = 1;
const CONTROL: u32 = 4;
const LOCKS: u32 = 64 | 128;
/// Codes of kitty's protocol for keys that do nothing by themselves: the locks, and left shift to level
/// 5.
const SILENT: [std::ops::RangeInclusive<u32>; 2] = [57358..=57360, 57441..=57454];
/// The event of a key that is let go.
const RELEASE: u32 = 3;
/// Longest sequence of a key, bytes: a few numbers, and some text.
pub(super) const LONGEST: usize = 64;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The byte that it sends to an app that asked for nothing else.
    Byte(u8),
    /// It types nothing: a key that is let go, or a modifier.
    Silent,
    /// Another key in such a sequence.
    Other,
}

/// The key that begins these bytes, which are not empty, and its length. `None` if more of it may be
/// to come. What is no sequence of a key comes byte by byte.
pub(super) fn read(typed: &[u8]) -> Option<(usize, Key)> {
    let byte = Some((1, Key::Byte(typed[0])));
    let [ESC, b'[', body @ ..] = typed else { return byte };
    let head = &body[..body.len().min(LONGEST)];
    match head.iter().position(|byte| !matches!(byte, b'0'..=b';')) {
        None if head.len() < LONGEST => None,
        Some(end) if end > 0 => {
            key(&body[..end], body[end]).map_or(byte, |key| Some((end + 3, key)))
        }
        _ => byte,
    }
}

/// Whether one of these keys came as a sequence that stands for this byte.
pub(super) fn has_sequence(mut typed: &[u8], byte: u8) -> bool {
    while let Some((len, key)) = (!typed.is_empty()).then(|| read(typed)).flatten() {
        if len > 1 && key == Key::Byte(byte) {
            return true;
        }
        typed = &typed[len..];
    }
    false
}

/// The key in the numbers and the last byte of a sequence; `None` if it is another sequence.
fn key(numbers: &[u8], last: u8) -> Option<Key> {
    // Absent numbers are `None`.
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    let fields: Vec<Vec<Option<u32>>> = numbers
        .split(|b| *b == b';')
        .map(|f| f.split(|b| *b == b':').map(number).collect())
        .collect();
    let at = |field: usize, part: usize| *fields.get(field)?.get(part)?;
    let (code, modifiers, text) = match last {
        b'u' => (at(0, 0)?, at(1, 0), at(2, 0)),
        b'~' if at(0, 0) == Some(27) => (at(2, 0)?, at(1, 0), None),
        _ => return None,
    };
    let is_silent = SILENT.iter().any(|codes| codes.contains(&code));
    if is_silent || last == b'u' && at(1, 1) == Some(RELEASE) {
        return Some(Key::Silent);
    }
    let modifiers = modifiers.unwrap_or(1).saturating_sub(1) & !LOCKS;
    let ascii = |code: u32| u8::try_from(code).ok().filter(u8::is_ascii);
    let (shifted, base) = if last == b'u' { (at(0, 1), at(0, 2)) } else { (None, None) };
    // Of another keyboard layout, the key in the same place.
    let plain = ascii(code).or_else(|| ascii(base?));
    let with_shift = shifted.and_then(ascii).or(plain);
    let byte = match modifiers {
        0 => text.and_then(ascii).or(ascii(code)),
        SHIFT => text.or(shifted).and_then(ascii),
        CONTROL => plain.and_then(control),
        _ if modifiers == CONTROL | SHIFT => with_shift.and_then(control),
        _ => None,
    };
    Some(byte.map_or(Key::Other, Key::Byte))
}

/// The byte of a key with control.
fn control(key: u8) -> Option<u8> {
    match key {
        b'a'..=b'z' => Some(key - b'a' + 1),
        b'@'..=b'_' => Some(key - b'@'),
        b' ' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_encodings() {
        use Key::{Byte, Other, Silent};
        for (typed, want) in [
            ("a", Some((1, Byte(b'a')))),
            ("\x10\x11", Some((1, Byte(16)))),
            ("\x1b", Some((1, Byte(27)))),
            ("\x1bp", Some((1, Byte(27)))),
            ("\x1b[", None),
            ("\x1b[112;5", None),
            // Keys of old, mice and pastes are not for attach.
            ("\x1b[A", Some((1, Byte(27)))),
            ("\x1b[1;5A", Some((1, Byte(27)))),
            ("\x1b[<0;1;1M", Some((1, Byte(27)))),
            ("\x1b[200~", Some((1, Byte(27)))),
            ("\x1b[3~", Some((1, Byte(27)))),
            ("\x1b[u", Some((1, Byte(27)))),
            // kitty: plain, num lock, caps lock, press, repeat, release, alternate codes, text.
            ("\x1b[112;5ux", Some((8, Byte(16)))),
            ("\x1b[112;133u", Some((10, Byte(16)))),
            ("\x1b[112;69u", Some((9, Byte(16)))),
            ("\x1b[112;5:1u", Some((10, Byte(16)))),
            ("\x1b[112;5:2u", Some((10, Byte(16)))),
            ("\x1b[112;5:3u", Some((10, Silent))),
            ("\x1b[112:80;5u", Some((11, Byte(16)))),
            ("\x1b[1079::112;5u", Some((14, Byte(16)))),
            ("\x1b[1079;5u", Some((9, Other))),
            ("\x1b[112;5;16u", Some((11, Byte(16)))),
            ("\x1b[54:94;6u", Some((10, Byte(30)))),
            ("\x1b[47:63;2u", Some((10, Byte(b'?')))),
            ("\x1b[47;2;63u", Some((10, Byte(b'?')))),
            ("\x1b[97;;97u", Some((9, Byte(b'a')))),
            ("\x1b[97u", Some((5, Byte(b'a')))),
            ("\x1b[32;5u", Some((7, Byte(0)))),
            ("\x1b[13u", Some((5, Byte(13)))),
            // With alt or super it is another key.
            ("\x1b[112;7u", Some((8, Other))),
            ("\x1b[112;13u", Some((9, Other))),
            ("\x1b[57442;5u", Some((10, Silent))),
            ("\x1b[57358u", Some((8, Silent))),
            // xterm's modifyOtherKeys, in both formats.
            ("\x1b[27;5;112~", Some((11, Byte(16)))),
            ("\x1b[27;6;94~", Some((10, Byte(30)))),
            ("\x1b[27;7;112~", Some((11, Other))),
            ("\x1b[99999999999;5u", Some((1, Byte(27)))),
        ] {
            assert_eq!(read(typed.as_bytes()), want, "{typed:?}");
        }
        let long = [&b"\x1b["[..], &[b'1'; LONGEST]].concat();
        assert_eq!(read(&long), Some((1, Byte(27))));
    }
}
