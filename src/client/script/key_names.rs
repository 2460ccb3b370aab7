//! The bytes that a terminal sends for a key, by the names of tmux. No I/O.

use crate::screen::shown::KeyModes;

/// Modifiers, as bits of the number that sequences name.
const SHIFT: u16 = 1;
const ALT: u16 = 2;
const CONTROL: u16 = 4;
/// Flags of kitty's keyboard protocol: keys with modifiers, and all keys, are sequences.
const DISAMBIGUATE: u16 = 1;
const ALL_AS_SEQUENCES: u16 = 8;

/// A key that no character stands for: its names in small letters, the final byte of its sequence, and
/// the number before that.
const NAMED: [(&[&str], char, u16); 22] = [
    (&["up"], 'A', 1),
    (&["down"], 'B', 1),
    (&["right"], 'C', 1),
    (&["left"], 'D', 1),
    (&["end"], 'F', 1),
    (&["home"], 'H', 1),
    (&["ic", "insert"], '~', 2),
    (&["dc", "del", "delete"], '~', 3),
    (&["ppage", "pageup", "pgup"], '~', 5),
    (&["npage", "pagedown", "pgdn"], '~', 6),
    (&["f1"], 'P', 1),
    (&["f2"], 'Q', 1),
    (&["f3"], 'R', 1),
    (&["f4"], 'S', 1),
    (&["f5"], '~', 15),
    (&["f6"], '~', 17),
    (&["f7"], '~', 18),
    (&["f8"], '~', 19),
    (&["f9"], '~', 20),
    (&["f10"], '~', 21),
    (&["f11"], '~', 23),
    (&["f12"], '~', 24),
];
/// A key that is a character, by its names.
const CHARACTERS: [(&[&str], char); 5] = [
    (&["enter", "return"], '\r'),
    (&["tab"], '\t'),
    (&["escape", "esc"], '\x1b'),
    (&["space"], ' '),
    (&["bspace", "backspace"], '\x7f'),
];

/// What is typed for a word: the key of that name, or the word itself. An error for modifiers of what is
/// no key.
pub(super) fn bytes(word: &str, modes: KeyModes) -> Result<Vec<u8>, String> {
    let (modifiers, name) = modifiers(word);
    let small = name.to_lowercase();
    let has = |names: &[&str]| names.contains(&small.as_str());
    if small == "btab" {
        return Ok(special('Z', 1, 0, modes));
    }
    if let Some((_, last, number)) = NAMED.iter().find(|(names, ..)| has(names)) {
        return Ok(special(*last, *number, modifiers, modes));
    }
    let named = CHARACTERS.iter().find(|(names, _)| has(names)).map(|(_, key)| *key);
    let mut characters = name.chars();
    match named.or_else(|| characters.next().filter(|_| characters.next().is_none())) {
        Some(key) => character(key, modifiers, modes)
            .ok_or_else(|| format!("no terminal sends a character for {word}")),
        None if modifiers == 0 => Ok(name.as_bytes().to_vec()),
        None => Err(format!("{name} in {word} is no key")),
    }
}

/// The modifiers in front of a key, such as `C-M-`, and the rest.
fn modifiers(word: &str) -> (u16, &str) {
    let (mut modifiers, mut name) = (0, word);
    loop {
        let (modifier, rest) = match name.split_once('-') {
            Some(("C" | "c" | "Ctrl" | "ctrl", rest)) => (CONTROL, rest),
            Some(("M" | "m" | "Alt" | "alt", rest)) => (ALT, rest),
            Some(("S" | "s" | "Shift" | "shift", rest)) => (SHIFT, rest),
            _ if name.starts_with('^') => (CONTROL, &name[1..]),
            _ => return (modifiers, name),
        };
        if rest.is_empty() {
            return (modifiers, name);
        }
        (modifiers, name) = (modifiers | modifier, rest);
    }
}

fn special(last: char, number: u16, modifiers: u16, modes: KeyModes) -> Vec<u8> {
    let sequence = match (number, modifiers) {
        (1, 0) if matches!(last, 'P'..='S') || modes.application_cursor && last != 'Z' => {
            format!("\x1bO{last}")
        }
        (1, 0) => format!("\x1b[{last}"),
        (_, 0) => format!("\x1b[{number}{last}"),
        _ => format!("\x1b[{number};{}{last}", 1 + modifiers),
    };
    sequence.into_bytes()
}

/// `None` if there are no bytes for it.
fn character(key: char, modifiers: u16, modes: KeyModes) -> Option<Vec<u8>> {
    let is_sequence = modes.kitty & ALL_AS_SEQUENCES != 0
        || modes.kitty & DISAMBIGUATE != 0 && (modifiers & !SHIFT != 0 || key == '\x1b');
    if is_sequence {
        let code = u32::from(key.to_ascii_lowercase());
        let modifiers = modifiers | if key.is_ascii_uppercase() { SHIFT } else { 0 };
        let end = if modifiers == 0 { String::new() } else { format!(";{}", 1 + modifiers) };
        return Some(format!("\x1b[{code}{end}u").into_bytes());
    }
    let mut text = String::new();
    if modifiers & ALT != 0 {
        text.push('\x1b');
    }
    text.push(match key {
        key if modifiers & CONTROL != 0 => control(key)?,
        key if modifiers & SHIFT != 0 => key.to_uppercase().next()?,
        key => key,
    });
    Some(text.into_bytes())
}

/// The control character of a key.
fn control(key: char) -> Option<char> {
    match key {
        ' ' | '@' | '2' => Some('\0'),
        '?' => Some('\x7f'),
        '/' => Some('\x1f'),
        'a'..='z' | 'A'..='Z' | '['..='_' => {
            Some(char::from(u8::try_from(key).ok()?.to_ascii_uppercase() & 0x1f))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sent_as_terminals_send_them() {
        let usual = KeyModes::default();
        let application = KeyModes { application_cursor: true, ..usual };
        let kitty = |flags| KeyModes { kitty: flags, ..usual };
        for (word, modes, want) in [
            ("C-c", usual, "\x03"),
            ("^C", usual, "\x03"),
            ("c-C", usual, "\x03"),
            ("C-Space", usual, "\0"),
            ("Ctrl-c", usual, "\x03"),
            ("-", usual, "-"),
            ("C-[", usual, "\x1b"),
            ("^", usual, "^"),
            ("M-x", usual, "\x1bx"),
            ("C-M-a", usual, "\x1b\x01"),
            ("S-a", usual, "A"),
            ("Enter", usual, "\r"),
            ("escape", usual, "\x1b"),
            ("BSpace", usual, "\x7f"),
            ("Tab", usual, "\t"),
            ("BTab", usual, "\x1b[Z"),
            ("BTab", application, "\x1b[Z"),
            ("Up", usual, "\x1b[A"),
            ("Up", application, "\x1bOA"),
            ("C-Up", application, "\x1b[1;5A"),
            ("M-S-Left", usual, "\x1b[1;4D"),
            ("F1", usual, "\x1bOP"),
            ("S-F1", usual, "\x1b[1;2P"),
            ("F5", usual, "\x1b[15~"),
            ("C-F5", usual, "\x1b[15;5~"),
            ("PgUp", usual, "\x1b[5~"),
            ("DC", usual, "\x1b[3~"),
            (":wq", usual, ":wq"),
            ("grün", usual, "grün"),
            ("ü", usual, "ü"),
            ("x", kitty(1), "x"),
            ("Enter", kitty(1), "\r"),
            ("C-c", kitty(1), "\x1b[99;5u"),
            ("M-X", kitty(1), "\x1b[120;4u"),
            ("Escape", kitty(1), "\x1b[27u"),
            ("C-Enter", kitty(1), "\x1b[13;5u"),
            ("x", kitty(8), "\x1b[120u"),
            ("Up", kitty(1), "\x1b[A"),
        ] {
            assert_eq!(
                bytes(word, modes).map(|it| String::from_utf8(it).unwrap()),
                Ok(want.into())
            );
        }
        assert_eq!(bytes("C-Entr", usual).unwrap_err(), "Entr in C-Entr is no key");
        assert_eq!(
            bytes("C-Enter", usual).unwrap_err(),
            "no terminal sends a character for C-Enter"
        );
    }
}
