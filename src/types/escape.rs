//! Escapes control and bidirectional characters for terminals, since names, paths and errors may
//! come from an app or a peer. No I/O, no clock.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal obeys this character (C0, DEL, C1), or reorders or breaks the text around it
/// (bidirectional marks, line and paragraph separators).
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with each unsafe character but those in `kept` escaped as in Rust (`\n`, `\u{9b}`).
fn escaped<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_escaped = |c: char| is_unsafe(c) && !kept.contains(&c);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// One line of text for a terminal or a log.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

/// Lines of text for a terminal, with their ends and tabs.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

/// The same JSON document in ASCII, so that output of the app cannot control a terminal.
pub(crate) fn ascii_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\x7f' {
            out.push(c);
        } else {
            // Only strings have other characters.
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let unsafe_ones = ('\0'..='\x1f').chain('\x7f'..='\u{9f}').chain(['\u{61c}']);
        let unsafe_ones = unsafe_ones.chain('\u{200e}'..='\u{200f}').chain('\u{2028}'..='\u{202e}');
        for c in unsafe_ones.chain('\u{2066}'..='\u{2069}') {
            let text = format!("a{c}b");
            assert!(!line(&text).contains(c), "{c:?}");
            // Other modules escape single values so.
            assert!(!text.escape_debug().to_string().contains(c), "{c:?}");
            let document = serde_json::to_string(&text).unwrap();
            let escaped = ascii_json(&document);
            assert!(!escaped.contains(c), "{c:?}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
        for text in ["", "plain \"text\" \\ é ‐ 你好 \u{1f600} \u{200d}"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
        assert_eq!(line("a\n\u{9b}2J\u{202e}"), "a\\n\\u{9b}2J\\u{202e}");
    }
}
