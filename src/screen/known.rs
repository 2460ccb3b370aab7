//! The escape sequences that are known: what each does, and whether it reaches a viewer's terminal.
//!
//! One table, of which docs/sequences.md is a copy. What is not in it is unknown, and is refused:
//! terminals have many sequences that last. What a row changes is undone by
//! [`ScreenModes`](super::modes::ScreenModes), and what it asks is in [`Query`](super::query::Query).

use std::ops::RangeInclusive;

use super::scan::{Control, ESC};

/// The effect of a sequence besides drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It draws, queries the terminal, or sets what is undone.
    Drawing,
    /// A part of it draws, or sets what is undone; see [`known_part`].
    Part,
    /// It sets the title of the window or its icon.
    Title,
    /// It saves the title on the terminal's stack.
    SaveTitle,
    /// It takes a title from that stack.
    RestoreTitle,
    Clipboard,
    Notify,
    /// Files, pictures in files, function keys, passthrough, queries for titles, and unknown strings.
    Other,
    /// Anything else.
    Unknown,
}

/// Sequences of one form with one effect.
struct KnownSequence {
    form: Form,
    /// What they do, for docs/sequences.md.
    #[cfg(test)]
    effect: &'static str,
    class: Class,
}

/// What is compared of a sequence.
enum Form {
    /// `CSI`, a marker, numbers, an intermediate byte, and one of these final bytes. 0 is none.
    Control(u8, NumberPattern, u8, &'static [u8]),
    /// `ESC`, an intermediate byte or 0, and one of these final bytes; none means any.
    Escape(u8, &'static [u8]),
    /// `OSC` and a number.
    Command(&'static [RangeInclusive<u16>]),
    /// `OSC` and one of these bytes.
    CommandLetter(&'static [u8]),
    /// `DCS`, this beginning (or any numbers if there is none), and a final byte.
    Device(&'static [u8], u8),
}

/// The numbers of a control sequence.
#[derive(Debug)]
enum NumberPattern {
    Any,
    None,
    First(RangeInclusive<u16>),
}

const fn row(
    form: Form,
    #[cfg_attr(not(test), expect(unused_variables))] effect: &'static str,
    class: Class,
) -> KnownSequence {
    #[cfg(test)]
    return KnownSequence { form, effect, class };
    #[cfg(not(test))]
    KnownSequence { form, class }
}

use Class::{Clipboard, Drawing, Notify, Other, RestoreTitle, SaveTitle, Title, Unknown};
use Form::{Command, CommandLetter, Device, Escape};
use NumberPattern::{Any, First};

/// All known sequences but those of [`MODES`].
const KNOWN: &[KnownSequence] = &[
    row(Form::Control(0, Any, 0, b"ABCDEFGHIZ`adef"), "moves the cursor", Drawing),
    row(Form::Control(0, Any, 0, b"JK"), "erases", Drawing),
    row(Form::Control(0, Any, 0, b"@LMPSTX"), "inserts, deletes, erases, scrolls", Drawing),
    row(Form::Control(0, Any, 0, b"m"), "selects colours and looks", Drawing),
    row(Form::Control(0, Any, 0, b"b"), "repeats a character", Drawing),
    row(Form::Control(0, Any, 0, b"r"), "sets the scroll region", Drawing),
    row(Form::Control(0, Any, 0, b"su"), "saves and restores the cursor; sets margins", Drawing),
    row(Form::Control(0, Any, 0, b"g"), "clears tab stops", Drawing),
    row(Form::Control(b'?', Any, 0, b"W"), "resets tab stops", Drawing),
    row(Form::Control(b'?', Any, 0, b"JK"), "erases selectively: no text is protected", Drawing),
    row(Form::Control(0, Any, b'$', b"x"), "fills a rectangle", Drawing),
    row(Form::Control(0, Any, b' ', b"q"), "sets the shape of the cursor", Drawing),
    row(Form::Control(0, Any, b'!', b"p"), "resets softly", Drawing),
    row(Form::Control(b'>', Any, 0, b"u"), "pushes modes of the keyboard", Drawing),
    row(Form::Control(b'=', Any, 0, b"u"), "sets modes of the keyboard", Drawing),
    row(Form::Control(b'<', Any, 0, b"u"), "pops modes of the keyboard", Drawing),
    row(Form::Control(b'>', First(4..=4), 0, b"mn"), "encodes keys with modifiers", Drawing),
    row(Form::Control(b'>', NumberPattern::None, 0, b"m"), "encodes no keys", Drawing),
    row(Form::Control(0, Any, 0, b"c"), "asks for the type (DA1)", Drawing),
    row(Form::Control(b'>', Any, 0, b"c"), "asks for the version (DA2)", Drawing),
    row(Form::Control(b'=', Any, 0, b"c"), "asks for the serial number (DA3)", Drawing),
    row(Form::Control(b'>', Any, 0, b"q"), "asks for the name (XTVERSION)", Drawing),
    row(Form::Control(0, Any, 0, b"n"), "asks for the state and the cursor (DSR)", Drawing),
    row(Form::Control(b'?', Any, 0, b"n"), "asks for the cursor and more", Drawing),
    row(Form::Control(0, Any, b'$', b"p"), "asks for a mode (DECRQM)", Drawing),
    row(Form::Control(b'?', Any, b'$', b"p"), "asks for a private mode (DECRQM)", Drawing),
    row(Form::Control(b'?', Any, 0, b"u"), "asks for modes of the keyboard", Drawing),
    row(Form::Control(b'?', Any, 0, b"m"), "asks for the encoding of keys", Drawing),
    row(Form::Control(b'?', Any, 0, b"S"), "asks for the limits of pictures", Drawing),
    row(
        Form::Control(0, First(11..=19), 0, b"t"),
        "asks for the window, its size and place",
        Drawing,
    ),
    row(Form::Control(0, First(20..=21), 0, b"t"), "asks for titles", Other),
    row(Form::Control(0, First(22..=22), 0, b"t"), "saves titles", SaveTitle),
    row(Form::Control(0, First(23..=23), 0, b"t"), "restores titles", RestoreTitle),
    row(Escape(0, b"DEM"), "moves the cursor, scrolls", Drawing),
    row(Escape(0, b"78"), "saves and restores the cursor", Drawing),
    row(Escape(0, b"H"), "sets a tab stop", Drawing),
    row(Escape(0, b"=>"), "sets the keypad", Drawing),
    row(Escape(0, b"c"), "resets all", Drawing),
    row(Escape(0, b"Z"), "asks for the type", Drawing),
    row(Escape(0, b"\\"), "ends a string", Drawing),
    row(Escape(b'(', SETS), "selects the character set G0", Drawing),
    row(Escape(b')', SETS), "selects the character set G1", Drawing),
    row(Escape(b'(', b""), "selects another set as G0: ASCII is shown", Class::Part),
    row(Escape(b')', b""), "selects another set as G1: ASCII is shown", Class::Part),
    row(Escape(b'#', b"34568"), "prints large letters, a test pattern", Drawing),
    row(Escape(b' ', b"F"), "selects 7-bit controls", Drawing),
    row(Escape(b'%', b"G"), "selects UTF-8", Drawing),
    row(Escape(0, b"k"), "sets the title of screen and tmux", Title),
    row(Command(&[4..=4, 104..=104]), "changes the palette, asks for it", Drawing),
    row(Command(&[8..=8]), "opens and closes a hyperlink", Drawing),
    row(Command(&[10..=19, 110..=119]), "changes other colours, asks for them", Drawing),
    row(CommandLetter(b"PR"), "changes the palette of the Linux console", Drawing),
    row(Command(&[0..=2]), "sets titles", Title),
    row(CommandLetter(b"lLI;"), "sets titles", Title),
    row(Command(&[52..=52, 5522..=5522]), "sets and reads the clipboard", Clipboard),
    row(Command(&[9..=9, 99..=99, 777..=777]), "notifies, shows a progress", Notify),
    row(Command(&[5..=5, 105..=105]), "changes special colours", Unknown),
    row(Command(&[22..=22]), "sets the shape of the pointer", Unknown),
    row(Command(&[133..=133]), "marks prompts", Unknown),
    row(Command(&[1337..=1337]), "files and pictures of iTerm2", Other),
    row(Device(b"", b'q'), "shows a picture (sixel)", Drawing),
    row(Device(b"$", b'q'), "asks for a setting (DECRQSS)", Drawing),
    row(Device(b"+", b'q'), "asks for a capability (XTGETTCAP)", Drawing),
    row(Device(b"=1", b's'), "begins a synchronized update", Drawing),
    row(Device(b"=2", b's'), "ends it", Drawing),
    row(Device(b"", b't'), "passes sequences through tmux", Other),
];

/// A mode of `CSI ? … h` and `l`, or of `CSI … h` and `l`.
pub(super) struct ModeNumber {
    pub(super) private: bool,
    pub(super) number: u16,
    /// The value in a shell's terminal.
    pub(super) usual: bool,
    #[cfg(test)]
    effect: &'static str,
}

const fn mode(
    (private, usual): (bool, bool),
    number: u16,
    #[cfg_attr(not(test), expect(unused_variables))] effect: &'static str,
) -> ModeNumber {
    #[cfg(test)]
    return ModeNumber { private, number, usual, effect };
    #[cfg(not(test))]
    ModeNumber { private, number, usual }
}

const fn private(number: u16, effect: &'static str) -> ModeNumber {
    mode((true, false), number, effect)
}

const fn usual(is_private: bool, number: u16, effect: &'static str) -> ModeNumber {
    mode((is_private, true), number, effect)
}

const fn public(number: u16, effect: &'static str) -> ModeNumber {
    mode((false, false), number, effect)
}

/// All known modes, in the order in which they are undone, and set again: in a group of which one
/// counts, such as the reports of the mouse, the richer one comes later.
pub(super) const MODES: [ModeNumber; 32] = [
    usual(true, 7, "text wraps"),
    usual(true, 25, "the cursor is shown"),
    usual(false, 12, "no local echo"),
    public(KEYBOARD_LOCK, "the keyboard is locked"),
    public(4, "text moves what is after it"),
    public(20, "a new line begins at its first column"),
    private(1, "cursor keys for programs"),
    private(5, "inverse screen"),
    private(6, "rows count from the scroll region"),
    private(12, "the cursor blinks"),
    private(45, "a backspace goes back over lines"),
    private(66, "keypad for programs"),
    private(69, "margins at the left and right"),
    private(9, "reports of the mouse (X10)"),
    private(1000, "reports of the mouse"),
    private(1001, "reports of the mouse, with highlighting"),
    private(1002, "reports of the mouse, with drags"),
    private(1003, "reports of the mouse, with moves"),
    private(1004, "reports of the focus"),
    private(1005, "the mouse in UTF-8"),
    private(1015, "the mouse in numbers (urxvt)"),
    private(1006, "the mouse in numbers (SGR)"),
    private(1016, "the mouse in pixels"),
    usual(true, 1007, "the wheel sends cursor keys"),
    private(2004, "bracketed paste"),
    private(2026, "a synchronized update"),
    private(2027, "grapheme clusters"),
    private(2031, "reports of colours"),
    private(2048, "reports of the size"),
    // The alternate screens come last: the other modes are undone on the screen on which they were
    // set.
    private(47, "the alternate screen"),
    private(1047, "the alternate screen"),
    private(1049, "the alternate screen, saves the cursor"),
];
/// The character sets that are drawn: lines, the British one, ASCII.
const SETS: &[u8] = b"0AB";

/// The character set that is drawn in place of this one: terminals differ in the others.
pub(super) fn shown_set(set: u8) -> u8 {
    if SETS.contains(&set) { set } else { b'B' }
}

/// Nobody is to lock the viewer's keyboard.
const KEYBOARD_LOCK: u16 = 2;
/// Saves the cursor, or restores it; it is no mode.
pub(super) const SAVED_CURSOR: u16 = 1048;

/// The class of a sequence, given its beginning or all of it; `None` while that is undecided.
pub(crate) fn class(head: &[u8], is_whole: bool) -> Option<Class> {
    match head {
        [ESC, b']', body @ ..] => command(body, is_whole),
        [ESC, b'P', body @ ..] => device(body, is_whole),
        // SOS, PM, APC: pictures in files, commands of programs.
        [ESC, b'X' | b'^' | b'_', ..] => Some(Other),
        _ if is_whole => Some(Control::parse(head).map_or_else(|| escape(head), |c| control(&c))),
        _ => None,
    }
}

/// The class of the first form that fits.
fn find(fits: impl Fn(&Form) -> bool) -> Option<Class> {
    KNOWN.iter().find(|known| fits(&known.form)).map(|known| known.class)
}

/// `OSC number ; …`; the body includes its terminator, if that has come.
fn command(body: &[u8], is_whole: bool) -> Option<Class> {
    let digits = body.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&body[..digits]).ok().and_then(|text| text.parse().ok());
    let next = body.get(digits)?;
    // Terminals differ in where a palette ends that is none.
    let is_palette = body[1..].iter().all(u8::is_ascii_hexdigit);
    if *next == b'P' && is_palette && !is_whole {
        return None;
    }
    let known = find(|form| match (form, digits) {
        (CommandLetter(letters), 0) => letters.contains(next) && (*next != b'P' || is_palette),
        (Command(ranges), 1..) if matches!(next, b';' | 0x07 | &ESC) => {
            number.is_some_and(|number| ranges.iter().any(|range| range.contains(&number)))
        }
        _ => false,
    });
    Some(known.unwrap_or(Other))
}

/// `DCS parameters final …`.
fn device(body: &[u8], is_whole: bool) -> Option<Class> {
    let end = body.iter().position(|byte| !(0x20..=0x3f).contains(byte));
    let Some(end) = end else { return is_whole.then_some(Other) };
    let is_numbers = body[..end].iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
    let known = find(|form| match form {
        Device(b"", last) => is_numbers && body[end] == *last,
        Device(head, last) => body[..end] == **head && body[end] == *last,
        _ => false,
    });
    Some(known.unwrap_or(Other))
}

/// A sequence without a string that is no control sequence.
fn escape(raw: &[u8]) -> Class {
    let (mark, last) = match raw {
        [_, last] => (0, last),
        [_, mark, last] => (*mark, last),
        _ => return Unknown,
    };
    let fits = |lasts: &[u8]| lasts.is_empty() || lasts.contains(last);
    find(|form| matches!(form, Escape(known, lasts) if *known == mark && fits(lasts)))
        .unwrap_or(Unknown)
}

fn control(control: &Control<'_>) -> Class {
    if !control.numbers.iter().all(|byte| matches!(byte, b'0'..=b';')) {
        return Unknown;
    }
    if matches!((control.marker, control.mark, control.last), (0 | b'?', 0, b'h' | b'l')) {
        return modes_class(control);
    }
    let known = find(|form| {
        let Form::Control(marker, numbers, mark, last) = form else { return false };
        (*marker, *mark) == (control.marker, control.mark)
            && last.contains(&control.last)
            && match numbers {
                Any => true,
                NumberPattern::None => control.numbers.is_empty(),
                First(range) => range.contains(&control.value(0)),
            }
    });
    known.unwrap_or(Unknown)
}

fn modes_class(control: &Control<'_>) -> Class {
    let numbers = || control.numbers.split(|byte| *byte == b';');
    let known = numbers().filter(|number| is_mode(control.marker == b'?', number)).count();
    match known {
        0 => Unknown,
        _ if known == numbers().count() => Drawing,
        _ => Class::Part,
    }
}

/// Whether this is the number of a mode that may reach a terminal, and is undone there.
fn is_mode(is_private: bool, number: &[u8]) -> bool {
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    number.is_some_and(|number| match (is_private, number) {
        (true, SAVED_CURSOR) => true,
        (false, KEYBOARD_LOCK) => false,
        _ => MODES.iter().any(|mode| (mode.private, mode.number) == (is_private, number)),
    })
}

/// The same sequence without what is refused: other modes than those that are undone, or sets.
pub(super) fn known_part(raw: &[u8]) -> Vec<u8> {
    if let [ESC, mark, set] = raw {
        return vec![ESC, *mark, shown_set(*set)];
    }
    let Some(control) = Control::parse(raw) else { return Vec::new() };
    let is_private = control.marker == b'?';
    let numbers = control.numbers.split(|byte| *byte == b';');
    let known: Vec<&[u8]> = numbers.filter(|number| is_mode(is_private, number)).collect();
    let marker: &[u8] = if is_private { b"?" } else { b"" };
    [b"\x1b[", marker, &known.join(&b';'), &[control.last]].concat()
}

#[cfg(test)]
mod tests;
