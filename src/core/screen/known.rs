//! The class of an escape sequence of the app: its effect beside drawing. Pure.
//!
//! What is here as [`Class::Drawing`] draws, queries, or sets what is undone when attach leaves. A
//! sequence that is not here is unknown: terminals have many that last.

use super::modes;
use super::scan::{Control, ESC};

/// The effect of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It draws, queries the terminal, or sets what is undone.
    Drawing,
    /// It switches modes that are undone, and others; see [`known_modes`].
    SomeModes,
    /// It sets the title of the window or its icon.
    Title,
    /// It saves the title on the terminal's stack.
    SaveTitle,
    /// It takes a title from that stack.
    RestoreTitle,
    Clipboard,
    Notify,
    /// Files, pictures in files, printers, function keys, passthrough, queries for titles, and
    /// unknown strings.
    Other,
    /// Anything else.
    Unknown,
}

/// The class of a sequence, given its beginning or all of it; `None` while that is undecided.
pub(super) fn class(head: &[u8], is_whole: bool) -> Option<Class> {
    match head {
        [ESC, b']', body @ ..] => command(body),
        [ESC, b'P', body @ ..] => device(body, is_whole),
        // SOS, PM, APC: pictures in files, commands of programs.
        [ESC, b'X' | b'^' | b'_', ..] => Some(Class::Other),
        _ if is_whole => Some(Control::parse(head).map_or_else(|| escape(head), |c| control(&c))),
        _ => None,
    }
}

/// `OSC number ; …`; the body includes its terminator, if that has come.
fn command(body: &[u8]) -> Option<Class> {
    let digits = body.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = || std::str::from_utf8(&body[..digits]).ok()?.parse().ok();
    Some(match (*body.get(digits)?, digits) {
        // The palette of the Linux console has no terminator.
        (b'P' | b'R', 0) => Class::Drawing,
        // Titles of Sun and dtterm; no number means 0.
        (b'l' | b'L' | b'I' | b';', 0) => Class::Title,
        (b';' | 0x07 | ESC, 1..) => match number() {
            Some(0..=2) => Class::Title,
            Some(52 | 5522) => Class::Clipboard,
            Some(9 | 99 | 777) => Class::Notify,
            // Colours, hyperlinks.
            Some(4 | 8 | 10..=19 | 104 | 110..=119) => Class::Drawing,
            // Special colours, shapes of the pointer, prompt marks: they stay.
            Some(5 | 22 | 105 | 133) => Class::Unknown,
            _ => Class::Other,
        },
        _ => Class::Other,
    })
}

/// `DCS parameters final …`.
fn device(body: &[u8], is_whole: bool) -> Option<Class> {
    let end = body.iter().position(|byte| !(0x20..=0x3f).contains(byte));
    let Some(end) = end else { return is_whole.then_some(Class::Other) };
    let numbers = |text: &[u8]| text.iter().all(|b| b.is_ascii_digit() || *b == b';');
    Some(match (&body[..end], body[end]) {
        // Queries for settings and capabilities; synchronized updates.
        (b"$" | b"+", b'q') | (b"=1" | b"=2", b's') => Class::Drawing,
        // Sixels.
        (parameters, b'q') if numbers(parameters) => Class::Drawing,
        _ => Class::Other,
    })
}

/// A sequence without a string that is no control sequence.
fn escape(raw: &[u8]) -> Class {
    match &raw[1..] {
        // Cursor, keypad, tab stops, type, full reset, the end of a string.
        [b'6'..=b'9' | b'=' | b'>' | b'D' | b'E' | b'H' | b'M' | b'Z' | b'c' | b'\\'] => {
            Class::Drawing
        }
        // Character sets, large letters and the test pattern, 7-bit controls, UTF-8.
        [b'(' | b')', _] | [b'#', b'3'..=b'6' | b'8'] | [b' ', b'F'] | [b'%', b'G'] => {
            Class::Drawing
        }
        _ => Class::Unknown,
    }
}

fn control(control: &Control<'_>) -> Class {
    if !control.numbers.iter().all(|byte| matches!(byte, b'0'..=b';')) {
        return Class::Unknown;
    }
    let first = control.value(0);
    let is_known = match (control.marker, control.mark, control.last) {
        (0 | b'?', 0, b'h' | b'l') => return modes_class(control),
        (0, 0, b't') => match first {
            22 => return Class::SaveTitle,
            23 => return Class::RestoreTitle,
            // The titles of the window and its icon: they are the user's.
            20 | 21 => return Class::Other,
            // Queries for the state and the size. All others change the window.
            _ => matches!(first, 11 | 13..=16 | 18 | 19),
        },
        // The encoding of titles.
        (b'>', _, b't' | b'T') => return Class::Title,
        // The printer.
        (_, _, b'i') => return Class::Other,
        // Moving, erasing, inserting, deleting, repeating; looks; tab stops; queries; the region; the
        // saved cursor.
        (0, 0, last) => {
            matches!(last, b'@'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a'..=b'g')
                || b"mnrsux".contains(&last)
        }
        // Erasing what is not protected; tab stops; queries.
        (b'?', 0, last) => b"JKWmnuS".contains(&last),
        // Queries; keyboards, and the encoding of keys.
        (b'>', 0, b'c' | b'q' | b'u') | (b'<', 0, b'u') | (b'=', 0, b'c' | b'u') => true,
        (b'>', 0, b'm') => first == 4 || control.numbers.is_empty(),
        (b'>', 0, b'n') => first == 4,
        // The cursor's shape, and columns.
        (0, b' ', b'q' | b'@' | b'A') | (0, b'\'', b'}' | b'~') => true,
        // A soft reset; protection.
        (0, b'!', b'p') | (0, b'"', b'q') => true,
        // Queries; rectangles.
        (0 | b'?', b'$', b'p') | (0, b'*', b'y') => true,
        (0, b'$', last) => b"rtvwxz{".contains(&last),
        // The stack of looks.
        (0, b'#', b'p' | b'q' | b'{' | b'}') => true,
        _ => false,
    };
    if is_known { Class::Drawing } else { Class::Unknown }
}

fn modes_class(control: &Control<'_>) -> Class {
    let numbers = || control.numbers.split(|byte| *byte == b';');
    let known = numbers().filter(|number| is_mode(control.marker == b'?', number)).count();
    match known {
        0 => Class::Unknown,
        _ if known == numbers().count() => Class::Drawing,
        _ => Class::SomeModes,
    }
}

/// Whether this is the number of a mode that is undone. Nobody is to lock the viewer's keyboard.
fn is_mode(is_private: bool, number: &[u8]) -> bool {
    const KEYBOARD_LOCK: u16 = 2;
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    number.is_some_and(|number| {
        modes::is_undone(is_private, number) && (is_private || number != KEYBOARD_LOCK)
    })
}

/// The same switch of only those modes that are undone.
pub(super) fn known_modes(raw: &[u8]) -> Vec<u8> {
    let Some(control) = Control::parse(raw) else { return Vec::new() };
    let is_private = control.marker == b'?';
    let numbers = control.numbers.split(|byte| *byte == b';');
    let known: Vec<&[u8]> = numbers.filter(|number| is_mode(is_private, number)).collect();
    let marker: &[u8] = if is_private { b"?" } else { b"" };
    [b"\x1b[", marker, &known.join(&b';'), &[control.last]].concat()
}
