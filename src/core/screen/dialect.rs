//! Translates sequences that the emulator does not know into ones that it knows.
//!
//! Each translation is for something that real programs do and that would spoil their screen.

use memchr::memmem;
use unicode_width::UnicodeWidthChar;

use super::model::Model;
use super::modes::ScreenModes;
use super::scan::{Control, ESC, number, text_len};
use crate::types::limits;

/// The replacement of a complete sequence that is not a string; `None` if the emulator knows it.
/// `modes` are those before it.
pub(crate) fn translate(raw: &[u8], modes: &ScreenModes, model: &Model) -> Option<Vec<u8>> {
    match raw {
        [ESC, b'D'] => return Some(b"\n".to_vec()),
        [ESC, b'E'] => return Some(b"\r\n".to_vec()),
        [ESC, b'[', ..] => {}
        _ => return None,
    }
    let control = Control::parse(raw)?;
    let count = control.value(0).max(1);
    match (control.marker, control.mark, control.last) {
        (0, 0, b'm') => colours(control.numbers),
        (0, 0, b's') if modes.is_set(true, 69) != Some(true) => Some(b"\x1b7".to_vec()),
        (0, 0, b'u') => Some(b"\x1b8".to_vec()),
        (0, 0, b'a') => Some(format!("\x1b[{count}C").into_bytes()),
        (0, 0, b'e') => Some(format!("\x1b[{count}B").into_bytes()),
        (0, 0, b'I') => {
            let most = model.size().cols / TAB + 1;
            Some(vec![b'\t'; usize::from(count.min(most))])
        }
        (0, 0, b'Z') => {
            let (_, col) = model.cursor();
            let stops = col.min(model.size().cols - 1).div_ceil(TAB);
            Some(format!("\x1b[{}G", stops.saturating_sub(count) * TAB + 1).into_bytes())
        }
        // Repeating beyond the size of the screen changes nothing and takes long.
        (0, 0, b'b') => {
            let most = u16::try_from(cells(model)).unwrap_or(u16::MAX);
            (most < count).then(|| format!("\x1b[{most}b").into_bytes())
        }
        (0, 0, b'r') => {
            // An invalid region is ignored. The cursor goes home in any mode.
            let last = Some(control.value(1)).filter(|last| *last != 0).unwrap_or(u16::MAX);
            let holds = count < last.min(model.size().rows);
            Some(if holds { [raw, b"\x1b[H"].concat() } else { Vec::new() })
        }
        (0, b'!', b'p') => Some(b"\x1b[m\x1b7\x1b[r\x1b8".to_vec()),
        (b'?', 0, b'h' | b'l') => {
            let known = alternate(&control);
            // Without wrapping the cursor was in the last column, never after it.
            let size = model.size();
            if model.cursor().1 < size.cols || modes.wraps() || !control.values().any(|n| n == 7) {
                return known;
            }
            let back = format!("\x1b[{}G", size.cols).into_bytes();
            Some([&back, known.as_deref().unwrap_or(raw)].concat())
        }
        _ => None,
    }
}

/// Columns from one tab stop to the next.
const TAB: u16 = 8;

fn cells(model: &Model) -> usize {
    let size = model.size();
    usize::from(size.rows) * usize::from(size.cols)
}

/// Alternate screens and saved cursors with other mode numbers.
fn alternate(control: &Control<'_>) -> Option<Vec<u8>> {
    if !control.values().any(|n| matches!(n, 1047 | 1048)) {
        return None;
    }
    let on = control.last == b'h';
    let one = |n| match (n, on) {
        (1047, true) => "\x1b[?47h".to_owned(),
        (1047, false) => "\x1b[?47l".to_owned(),
        (1048, true) => "\x1b7".to_owned(),
        (1048, false) => "\x1b8".to_owned(),
        (n, _) => format!("\x1b[?{n}{}", char::from(control.last)),
    };
    Some(control.values().map(one).collect::<String>().into_bytes())
}

/// Reduces underline styles to underline, drops underline colours, and splits colours with `:`.
fn colours(numbers: &[u8]) -> Option<Vec<u8>> {
    if knows_colours(numbers) {
        return None;
    }
    let mut out = Vec::new();
    let mut parts = numbers.split(|byte| *byte == b';');
    while let Some(part) = parts.next() {
        let values: Vec<u16> =
            part.split(|byte| *byte == b':').map(number).take(limits::NUMBERS).collect();
        let (first, colour) = (values[0], matches!(values[0], 38 | 48 | 58));
        let values = match (&values[..], colour) {
            ([4, 0, ..], _) => vec![24],
            ([4, _, ..] | [21], _) => vec![4],
            ([n], true) => {
                // The colour is in the following numbers.
                let kind = parts.next().map_or(0, number);
                let more = if kind == 2 { 3 } else { 1 };
                let rest = parts.by_ref().take(more).map(number);
                [*n, kind].into_iter().chain(rest).collect()
            }
            // With or without a colour space.
            ([n, 2, _, r, g, b, ..] | [n, 2, r, g, b], true) => vec![*n, 2, *r, *g, *b],
            ([n, 5, i, ..], true) => vec![*n, 5, *i],
            (_, true) => Vec::new(),
            _ => values,
        };
        if first != 58 {
            for value in values {
                out.extend_from_slice(value.to_string().as_bytes());
                out.push(b';');
            }
        }
    }
    let all = [b"\x1b[", out.strip_suffix(b";").unwrap_or(&out), b"m"].concat();
    // An empty sequence would be a reset.
    Some(if out.is_empty() { Vec::new() } else { all })
}

/// The line-drawing characters from `_` to `~`.
const LINES: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Makes the character before it a wide emoji. The emulator may panic when that does not fit into
/// its line any more.
const SELECTOR: &[u8] = "\u{fe0f}".as_bytes();

/// Whether these bytes need [`show_text`] in any mode.
pub(crate) fn has_selector(bytes: &[u8]) -> bool {
    memmem::find(bytes, SELECTOR).is_some()
}

/// Bytes of a control sequence that [`plain_len`] reads: longer ones are unusual.
const USUAL: usize = 64;

/// The length of the beginning that only the emulator needs, unchanged: text, colours, moving the
/// cursor and erasing. Most output is of this kind.
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    loop {
        len += text_len(&bytes[len..]);
        let [ESC, b'[', body @ ..] = &bytes[len..] else { return len };
        let (mut value, mut known) = (0u32, true);
        let mut end = 0;
        let last = loop {
            match body.get(end) {
                Some(byte @ b'0'..=b'9') => {
                    value = value.wrapping_mul(10).wrapping_add(u32::from(byte - b'0'));
                }
                Some(b';') => {
                    known &= value != 58 && value != 21;
                    value = 0;
                }
                Some(last) if end <= USUAL => break last,
                _ => return len,
            }
            end += 1;
        };
        let plain = match last {
            b'm' => known && value != 58 && value != 21,
            // Not `J`: the screen may be erased already.
            b'@'..=b'H' | b'K'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'`' | b'd' | b'f' => true,
            _ => false,
        };
        if !plain {
            return len;
        }
        len += end + 3;
    }
}

/// Whether the emulator knows all of these numbers of a `CSI … m`.
pub(crate) fn knows_colours(numbers: &[u8]) -> bool {
    let foreign = |value: u32| value == 58 || value == 21;
    let mut value: u32 = 0;
    for byte in numbers {
        value = match byte {
            b'0'..=b'9' => value.wrapping_mul(10).wrapping_add(u32::from(byte - b'0')),
            b';' if !foreign(value) => 0,
            _ => return false,
        };
    }
    !foreign(value)
}

/// Shows text that the emulator alone would show wrong.
pub(crate) fn show_text(text: &[u8], modes: &mut ScreenModes, model: &mut Model) {
    let mut rest = text;
    while !rest.is_empty() {
        let len = memmem::find(rest, SELECTOR).unwrap_or(rest.len());
        if modes.has_special_text() {
            show_slowly(&rest[..len], modes, model);
        } else {
            model.process(&rest[..len]);
        }
        rest = &rest[len..];
        if let Some(after) = rest.strip_prefix(SELECTOR) {
            if model.cursor().1 < model.size().cols {
                model.process(SELECTOR);
            }
            rest = after;
        }
    }
}

/// Shows text character by character, in modes that the emulator does not know.
fn show_slowly(text: &[u8], modes: &mut ScreenModes, model: &mut Model) {
    for character in text.utf8_chunks().flat_map(|chunk| chunk.valid().chars()) {
        let cols = model.size().cols;
        // Without wrapping the last column is overwritten.
        let takes_place = character.width().is_some_and(|width| width > 0);
        if takes_place && !modes.wraps() && model.cursor().1 >= cols {
            model.process(format!("\x1b[{cols}G").as_bytes());
        }
        let drawn = match character {
            '\x0f' => {
                modes.shift_in();
                continue;
            }
            '_'..='~' if modes.draws_lines() => LINES[character as usize - '_' as usize],
            other => other,
        };
        model.process(drawn.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
