//! The class of an escape sequence of the app: its effect beside drawing. Pure.

use crate::core::screen::scan::{Control, ESC};

/// The effect of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It only draws, or queries the terminal.
    Drawing,
    /// It sets the title of the window or its icon.
    Title,
    /// It saves the title on the terminal's stack.
    SaveTitle,
    /// It takes a title from that stack.
    RestoreTitle,
    Clipboard,
    Notify,
    /// Files, pictures in files, printers, function keys, passthrough, queries for titles, and
    /// anything unknown.
    Other,
}

/// The class of a sequence, given its beginning or all of it; `None` while that is undecided.
pub(super) fn class(head: &[u8], is_whole: bool) -> Option<Class> {
    match head {
        [ESC, b']', body @ ..] => command(body),
        [ESC, b'P', body @ ..] => device(body, is_whole),
        // SOS, PM, APC: pictures in files, commands of programs.
        [ESC, b'X' | b'^' | b'_', ..] => Some(Class::Other),
        _ if is_whole => Some(Control::parse(head).map_or(Class::Drawing, |c| control(&c))),
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
            // Colours, hyperlinks, pointer shapes, prompt marks.
            Some(4 | 5 | 8 | 10..=19 | 22 | 104 | 105 | 110..=119 | 133) => Class::Drawing,
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

fn control(control: &Control<'_>) -> Class {
    match (control.marker, control.mark, control.last) {
        (0, 0, b't') => match control.value(0) {
            22 => Class::SaveTitle,
            23 => Class::RestoreTitle,
            // The titles of the window and its icon: they are the user's.
            20 | 21 => Class::Other,
            _ => Class::Drawing,
        },
        // The encoding of titles.
        (b'>', _, b't' | b'T') => Class::Title,
        // The printer.
        (_, _, b'i') => Class::Other,
        _ => Class::Drawing,
    }
}
