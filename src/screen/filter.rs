//! Keeps sequences of the app from a viewer's terminal that do more than draw, or that last: titles,
//! the clipboard, notifications, files, passthrough, and all that is not known.
//!
//! Pure, with constant memory. Invariant: of text only an incomplete character is held back, which no
//! terminal shows. A sequence is held back until its class is known, for at most
//! [`limits::SEQUENCE`] bytes. A refused string is dropped as a whole, in any length and in any
//! pieces. What is unknown is refused, and so are future extensions of terminals. The 8-bit forms
//! (C1) of introducers become U+FFFD.
//!
//! Terminals differ in what ends a string: in tmux an ESC or CAN is a part of some, in xterm eight
//! bytes after `ESC ] P` are enough. So a string that the app breaks off gets its terminator, any
//! other sequence of that kind is dropped, and of the palette of the Linux console only whole ones
//! are shown.
//!
//! The filter runs the state machine of [`scan`](super::scan), but not its `Scanner`.
//! A `Scanner` cuts strings as terminals read them and holds them back whole. The filter decides at
//! their head, and drops strings as tmux and screen read them: with a doubled ESC, or after `ESC
//! k`.

use std::str::FromStr;

use super::known::{Class, class, known_part};
use super::scan::{
    DEL, ENQ, ESC, Piece, ScanState, ScanStep, Scanner, is_inner_control, plain_len, step,
    unfinished,
};
use crate::types::limits;

/// Which strings of the app reach a terminal that attach writes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass([bool; WORDS.len()]);

/// The words of `--pass`, in the order of [`Pass`].
const WORDS: [&str; 5] = ["title", "clipboard", "notify", "other", "unknown"];

impl FromStr for Pass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pass = Self::default();
        for word in text.split(',') {
            match (word, WORDS.iter().position(|known| *known == word)) {
                (_, Some(at)) => pass.0[at] = true,
                ("none" | "", _) => pass = Self::default(),
                ("all", _) => pass = Self([true; WORDS.len()]),
                _ => {
                    return Err(format!(
                        "unknown word {word:?}: expected none, all, title, clipboard, notify, other or unknown"
                    ));
                }
            }
        }
        Ok(pass)
    }
}

impl Pass {
    fn allows(self, class: Class) -> bool {
        match class {
            Class::Drawing | Class::Part => true,
            Class::Title | Class::SaveTitle | Class::RestoreTitle => self.0[0],
            Class::Clipboard => self.0[1],
            Class::Notify => self.0[2],
            Class::Other => self.0[3],
            Class::Unknown => self.0[4],
        }
    }
}

/// The decision on the current sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    /// Its bytes are held back.
    #[default]
    Open,
    Shown,
    Refused,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Filter {
    pass: Pass,
    state: ScanState,
    verdict: Verdict,
    /// The sequence so far, while its verdict is open.
    head: Vec<u8>,
    /// The string is tmux's passthrough, in which each ESC is doubled.
    doubles: bool,
    /// An incomplete character at the end of the output.
    begun: Vec<u8>,
    /// Titles on the terminal's stack: the one from before attach, then the app's.
    saved: u8,
    /// For a terminal that gets no sequences.
    scanner: Option<Box<Scanner>>,
}

/// Titles that the app may save: terminals keep ten.
pub(super) const TITLES: u8 = 8;
/// Saves the titles of window and icon.
pub(super) const SAVE_TITLE: &str = "\x1b[22;0t";
/// Restores them.
pub(super) const RESTORE_TITLE: &str = "\x1b[23;0t";
/// Control characters of text.
const PLAIN: &[u8] = b"\n\r\t\x08\x07";
/// Cancels a sequence.
const CANCEL: u8 = 0x18;
/// Ends a string.
const TERMINATOR: &[u8] = b"\x1b\\";
/// Stands for what is not shown.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl Filter {
    /// A filter for a terminal that has got no output of the app.
    pub fn new(pass: Pass) -> Self {
        Self { pass, ..Self::default() }
    }

    /// A filter for a terminal that understands no sequences: it gets the text.
    pub(crate) fn of_text() -> Self {
        Self { scanner: Some(Box::default()), ..Self::default() }
    }

    /// The bytes that the terminal gets; `out` is memory for them.
    pub fn read<'a>(&mut self, bytes: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
        out.clear();
        if let Some(mut scanner) = self.scanner.take() {
            let is_plain = |byte: &u8| *byte >= b' ' && *byte != DEL || PLAIN.contains(byte);
            let (mut plain, mut at) = (Vec::new(), 0);
            while let Some(piece) = scanner.next(bytes, &mut at) {
                if let Piece::Text(text) = piece {
                    plain.extend(text.iter().copied().filter(is_plain));
                }
            }
            self.scanner = Some(scanner);
            self.show(&plain, out);
            return out;
        }
        if self.begun.is_empty()
            && self.state == ScanState::Text
            && bytes.is_ascii()
            && drawn_len(bytes) == bytes.len()
        {
            return bytes;
        }
        self.put(bytes, out);
        out
    }

    /// Appends what the terminal gets of these bytes.
    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let run = match (self.state, self.verdict) {
                (ScanState::Text, _) => drawn_len(rest),
                (ScanState::Command | ScanState::String, Verdict::Shown | Verdict::Refused) => {
                    let ends = |byte: &u8| matches!(*byte, ESC | 0x07 | CANCEL | 0x1a);
                    rest.iter().position(ends).unwrap_or(rest.len())
                }
                _ => 0,
            };
            if run > 0 {
                if self.state == ScanState::Text {
                    self.show(&rest[..run], out);
                } else if self.verdict == Verdict::Shown {
                    self.show_in_string(&rest[..run], out);
                }
                at += run;
            } else if self.state == ScanState::Text {
                if rest[0] == ESC {
                    self.begin();
                } else {
                    self.enquire(out);
                }
                at += 1;
            } else {
                at += usize::from(self.step(rest[0], out));
            }
        }
    }

    /// The sequence that restores the title from before attach, if the app has set one.
    pub(crate) fn restore_title(&self) -> String {
        let end = if self.state == ScanState::Text { "" } else { "\x1b\\" };
        match self.saved {
            0 => String::new(),
            saved => end.to_owned() + &RESTORE_TITLE.repeat(saved.into()),
        }
    }

    /// The title was restored.
    pub(crate) fn forget_title(&mut self) {
        self.saved = 0;
    }

    /// The app does not complete the current sequence.
    pub(crate) fn cancel_sequence(&mut self) {
        self.head.clear();
        self.begun.clear();
        self.state = ScanState::Text;
    }

    /// An ESC begins a sequence.
    fn begin(&mut self) {
        self.head.clear();
        self.head.push(ESC);
        (self.state, self.verdict, self.doubles) = (ScanState::Escape, Verdict::Open, false);
    }

    /// The terminal is asked for its answerback, which is any text.
    fn enquire(&mut self, out: &mut Vec<u8>) {
        if self.pass.allows(Class::Unknown) {
            self.emit(&[ENQ], out);
        }
    }

    /// Reads one more byte of a sequence. Whether it was used.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        let was = self.state;
        if was == ScanState::StringEscape && self.doubles && byte == ESC {
            self.state = ScanState::String;
            if self.verdict == Verdict::Shown {
                self.emit(&[ESC, ESC], out);
            }
            return true;
        }
        if was == ScanState::Escape && byte == b'k' && !self.pass.allows(Class::Title) {
            // The window title of screen and tmux, up to a string terminator.
            self.state = ScanState::String;
            self.judge(Class::Title, out);
            return true;
        }
        let is_text = matches!(
            was,
            ScanState::CommandStart
                | ScanState::Palette(_)
                | ScanState::Command
                | ScanState::String
                | ScanState::StringEscape
        );
        if !is_text && is_inner_control(byte) {
            // A terminal executes it at once.
            if byte == ENQ {
                self.enquire(out);
            } else {
                self.emit(&[byte], out);
            }
            return true;
        }
        match step(was, byte) {
            ScanStep::Abort => {
                // Terminals differ in what becomes of such a sequence.
                self.break_off(was, out);
                return false;
            }
            ScanStep::On(state) => {
                self.state = state;
                match self.verdict {
                    Verdict::Open => {
                        self.head.push(byte);
                        // An ESC in a string ends it, or begins something else.
                        if state != ScanState::StringEscape {
                            self.look(false, out);
                        }
                    }
                    Verdict::Shown if state != ScanState::StringEscape => {
                        self.show_in_string(&[byte], out);
                    }
                    _ => {}
                }
            }
            ScanStep::End => {
                match self.verdict {
                    Verdict::Open => {
                        self.head.push(byte);
                        self.look(true, out);
                    }
                    Verdict::Shown if was == ScanState::StringEscape => {
                        self.emit(&[ESC, byte], out);
                    }
                    Verdict::Shown => self.emit(&[byte], out),
                    Verdict::Refused => {}
                }
                let ends_itself = matches!(was, ScanState::CommandStart | ScanState::Palette(_));
                if ends_itself && self.verdict == Verdict::Shown {
                    // Other terminals wait for the end of a string.
                    self.emit(TERMINATOR, out);
                }
                self.state = ScanState::Text;
            }
            ScanStep::Cancel => self.break_off(was, out),
            ScanStep::Restart => {
                self.break_off(was, out);
                self.begin();
                // The ESC of a string that was broken off has been read.
                return was != ScanState::StringEscape;
            }
        }
        true
    }

    /// The app does not go on with a sequence.
    fn break_off(&mut self, was: ScanState, out: &mut Vec<u8>) {
        self.head.clear();
        self.state = ScanState::Text;
        if self.verdict == Verdict::Shown {
            let is_control = was == ScanState::Control || was == ScanState::Intermediate;
            self.emit(if is_control { &[CANCEL] } else { TERMINATOR }, out);
        }
    }

    /// Decides on the sequence as soon as its class is known.
    fn look(&mut self, is_whole: bool, out: &mut Vec<u8>) {
        match class(&self.head, is_whole) {
            Some(class) => self.judge(class, out),
            None if self.head.len() >= limits::SEQUENCE => self.judge(Class::Unknown, out),
            None => {}
        }
    }

    fn judge(&mut self, class: Class, out: &mut Vec<u8>) {
        let mut is_shown = self.pass.allows(class);
        let is_passthrough = self.head.starts_with(b"\x1bPt");
        if is_shown && matches!(class, Class::Title | Class::SaveTitle | Class::RestoreTitle) {
            if self.saved == 0 {
                self.emit(SAVE_TITLE.as_bytes(), out);
                self.saved = 1;
            }
            match class {
                Class::SaveTitle if self.saved <= TITLES => self.saved += 1,
                // The first title is not the app's.
                Class::RestoreTitle if self.saved > 1 => self.saved -= 1,
                Class::SaveTitle | Class::RestoreTitle => is_shown = false,
                _ => {}
            }
        }
        if is_shown {
            if class == Class::Part && !self.pass.allows(Class::Unknown) {
                self.head = known_part(&self.head);
            }
            // Terminals without it execute what is in a passthrough.
            self.doubles = is_passthrough && self.pass == Pass([true; WORDS.len()]);
            self.show_head(out);
            self.verdict = Verdict::Shown;
        } else {
            self.verdict = Verdict::Refused;
            self.doubles = is_passthrough;
        }
    }

    fn show_head(&mut self, out: &mut Vec<u8>) {
        let head = std::mem::take(&mut self.head);
        self.show(&head, out);
        self.head = head;
        self.head.clear();
    }

    /// Appends a part of the text of a string. Its control characters do nothing in most terminals,
    /// and are executed in others.
    fn show_in_string(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if self.pass.allows(Class::Unknown) {
            return self.show(text, out);
        }
        let is_dropped = |byte: &u8| is_inner_control(*byte) && !PLAIN.contains(byte);
        for part in text.split(is_dropped).filter(|part| !part.is_empty()) {
            self.show(part, out);
        }
    }

    /// Appends bytes; 8-bit introducers are replaced unless `other` is allowed.
    fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_ascii() || self.pass.allows(Class::Other) {
            return self.emit(bytes, out);
        }
        let mut begun = std::mem::take(&mut self.begun);
        let bytes = if begun.is_empty() {
            bytes
        } else {
            begun.extend_from_slice(bytes);
            &begun
        };
        let (whole, rest) = bytes.split_at(bytes.len() - unfinished(bytes));
        replace_introducers(whole, out);
        self.begun = rest.to_vec();
    }

    /// Appends ASCII, before which an incomplete character is broken off.
    fn emit(&mut self, ascii: &[u8], out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            replace_introducers(&std::mem::take(&mut self.begun), out);
        }
        out.extend_from_slice(ascii);
    }
}

/// Appends bytes, with U+FFFD in the place of 8-bit introducers. These are a character of their own,
/// or a byte that is no part of one: a terminal may take such a byte for Latin-1.
fn replace_introducers(bytes: &[u8], out: &mut Vec<u8>) {
    let is_introducer = |code| matches!(code, 0x90 | 0x98 | 0x9b | 0x9d..=0x9f);
    for chunk in bytes.utf8_chunks() {
        let mut text = chunk.valid();
        while let Some(at) = text.find(|c| is_introducer(u32::from(c))) {
            out.extend_from_slice(&text.as_bytes()[..at]);
            out.extend_from_slice(REPLACEMENT);
            // Two bytes long.
            text = &text[at + 2..];
        }
        out.extend_from_slice(text.as_bytes());
        for byte in chunk.invalid() {
            let replaced = is_introducer(u32::from(*byte));
            out.extend_from_slice(if replaced { REPLACEMENT } else { std::slice::from_ref(byte) });
        }
    }
}

/// The length of the beginning that only draws: text and usual control sequences. Most output is of
/// this kind.
fn drawn_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    loop {
        len += plain_len(&bytes[len..]);
        match bytes.get(len) {
            None | Some(&(ESC | ENQ)) => return len,
            // A control character.
            Some(_) => len += 1,
        }
    }
}

#[cfg(test)]
mod tests;
