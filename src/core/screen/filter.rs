//! Keeps sequences of the app from a viewer's terminal that do more than draw, or that last: titles,
//! the clipboard, notifications, files, passthrough, and all that is not known.
//!
//! Pure, with constant memory. Invariant: of text only an incomplete character is held back, which no
//! terminal shows. A sequence is held back until its class is known, for at most
//! [`limits::SEQUENCE`] bytes. A refused string is dropped as a whole, in any length and in any
//! pieces. What is unknown is refused, and so are future extensions of terminals. The 8-bit forms
//! (C1) of introducers become U+FFFD.
//!
//! The filter runs the state machine of [`scan`](super::scan), but not its `Scanner`.
//! A `Scanner` cuts strings as terminals read them and holds them back whole. The filter decides at
//! their head, and drops strings as tmux and screen read them: with a doubled ESC, or after `ESC
//! k`.

use std::str::FromStr;

use super::known::{Class, class, known_modes};
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
            Class::Drawing | Class::SomeModes => true,
            Class::Title | Class::SaveTitle | Class::RestoreTitle => self.0[0],
            Class::Clipboard => self.0[1],
            Class::Notify => self.0[2],
            Class::Other => self.0[3],
            Class::Unknown => self.0[4],
        }
    }
}

/// The decision on the current sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its bytes are held back.
    Open,
    Shown,
    Refused,
}

/// See the module.
#[derive(Debug)]
pub struct Filter {
    pass: Pass,
    state: ScanState,
    verdict: Verdict,
    /// The sequence so far, while its verdict is open.
    head: Vec<u8>,
    /// The terminal has got the beginning of a sequence that the app then broke off with an ESC.
    is_broken: bool,
    /// The string is tmux's passthrough, in which each ESC is doubled.
    doubles: bool,
    character: Character,
    /// An incomplete character at the end of the output.
    begun: Vec<u8>,
    /// Titles on the terminal's stack: the one from before attach, then the app's.
    saved: u8,
    /// For a terminal that gets no sequences.
    scanner: Option<Box<Scanner>>,
}

/// The position in a UTF-8 character.
#[derive(Debug, Default)]
struct Character {
    /// Its first byte, until the next one comes.
    lead: u8,
    /// Bytes that are still to come.
    left: u8,
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

impl Filter {
    /// A filter for a terminal that has got no output of the app.
    pub const fn new(pass: Pass) -> Self {
        Self {
            pass,
            state: ScanState::Text,
            verdict: Verdict::Open,
            head: Vec::new(),
            is_broken: false,
            doubles: false,
            character: Character { lead: 0, left: 0 },
            begun: Vec::new(),
            saved: 0,
            scanner: None,
        }
    }

    /// A filter for a terminal that understands no sequences: it gets the text.
    pub(crate) fn of_text() -> Self {
        Self { scanner: Some(Box::default()), ..Self::new(Pass::default()) }
    }

    /// The bytes that the terminal gets; `out` is memory for them.
    pub fn read<'a>(&mut self, bytes: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
        out.clear();
        if let Some(mut scanner) = self.scanner.take() {
            let is_plain = |byte: &u8| *byte >= b' ' && *byte != DEL || PLAIN.contains(byte);
            let (mut plain, mut at) = (std::mem::take(&mut self.begun), 0);
            while let Some(piece) = scanner.next(bytes, &mut at) {
                if let Piece::Text(text) = piece {
                    plain.extend(text.iter().copied().filter(is_plain));
                }
            }
            self.scanner = Some(scanner);
            self.show(&plain, out);
            self.begun = out.split_off(out.len() - unfinished(out));
            return out;
        }
        if self.begun.is_empty()
            && self.state == ScanState::Text
            && bytes.is_ascii()
            && drawn_len(bytes) == bytes.len()
        {
            self.character = Character::default();
            return bytes;
        }
        let mut begun = std::mem::take(&mut self.begun);
        if begun.is_empty() {
            self.put(bytes, out);
        } else {
            begun.extend_from_slice(bytes);
            self.put(&begun, out);
        }
        if self.state == ScanState::Text {
            self.begun = out.split_off(out.len() - unfinished(out));
        }
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
                if self.state == ScanState::Text || self.verdict == Verdict::Shown {
                    self.show(&rest[..run], out);
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
        (self.state, self.is_broken) = (ScanState::Text, false);
    }

    /// An ESC begins a sequence.
    fn begin(&mut self) {
        self.head.clear();
        self.head.push(ESC);
        (self.state, self.verdict, self.doubles) = (ScanState::Escape, Verdict::Open, false);
    }

    /// The terminal is asked for its answerback, which is any text.
    fn enquire(&self, out: &mut Vec<u8>) {
        if self.pass.allows(Class::Unknown) {
            out.push(ENQ);
        }
    }

    /// Reads one more byte of a sequence. Whether it was used.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        let was = self.state;
        if was == ScanState::StringEscape && self.doubles && byte == ESC {
            self.state = ScanState::String;
            if self.verdict == Verdict::Shown {
                out.extend_from_slice(&[ESC, ESC]);
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
                out.push(byte);
            }
            return true;
        }
        match step(was, byte) {
            ScanStep::Abort => {
                // Terminals differ in what becomes of such a sequence.
                self.cancel(out);
                self.head.clear();
                self.state = ScanState::Text;
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
                    Verdict::Shown if state != ScanState::StringEscape => self.show(&[byte], out),
                    _ => {}
                }
            }
            ScanStep::End => {
                match self.verdict {
                    Verdict::Open => {
                        self.head.push(byte);
                        self.look(true, out);
                    }
                    Verdict::Shown => Self::end(was, byte, out),
                    Verdict::Refused => {}
                }
                if matches!(was, ScanState::CommandStart | ScanState::Palette(_)) && byte != 0x07 {
                    // Other terminals wait for the end of a string.
                    out.extend_from_slice(b"\x1b\\");
                }
                self.state = ScanState::Text;
            }
            ScanStep::Cancel => {
                match self.verdict {
                    Verdict::Open if is_string(&self.head) => self.cancel(out),
                    Verdict::Open => {
                        self.show_head(out);
                        out.push(byte);
                    }
                    Verdict::Shown => Self::end(was, byte, out),
                    Verdict::Refused => {}
                }
                self.state = ScanState::Text;
            }
            ScanStep::Restart => {
                self.is_broken |= match self.verdict {
                    Verdict::Open if !is_string(&self.head) => {
                        self.show_head(out);
                        true
                    }
                    verdict => verdict == Verdict::Shown,
                };
                self.begin();
                // The ESC of a string that was broken off has been read.
                return was != ScanState::StringEscape;
            }
        }
        true
    }

    /// Shows the last byte of a sequence, with the ESC before it that was held back.
    fn end(was: ScanState, byte: u8, out: &mut Vec<u8>) {
        if was == ScanState::StringEscape {
            out.push(ESC);
        }
        out.push(byte);
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
                self.cancel(out);
                out.extend_from_slice(SAVE_TITLE.as_bytes());
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
            if class == Class::SomeModes && !self.pass.allows(Class::Unknown) {
                self.head = known_modes(&self.head);
            }
            // Terminals without it execute what is in a passthrough.
            self.doubles = is_passthrough && self.pass == Pass([true; WORDS.len()]);
            self.show_head(out);
            self.verdict = Verdict::Shown;
        } else {
            self.cancel(out);
            self.verdict = Verdict::Refused;
            self.doubles = is_passthrough;
        }
        self.is_broken = false;
    }

    /// Cancels a sequence that the app broke off with one that is not shown.
    fn cancel(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_broken) {
            out.push(CANCEL);
        }
    }

    fn show_head(&mut self, out: &mut Vec<u8>) {
        let head = std::mem::take(&mut self.head);
        self.show(&head, out);
        self.head = head;
        self.head.clear();
    }

    /// Appends bytes; 8-bit introducers are replaced unless `other` is allowed.
    fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_ascii() {
            self.character = Character::default();
            return out.extend_from_slice(bytes);
        }
        for byte in bytes {
            let introduces = self.character.introduces(*byte);
            if !introduces || self.pass.allows(Class::Other) {
                out.push(*byte);
                continue;
            }
            // Removes the first byte of a two-byte introducer.
            out.pop_if(|last| *last == 0xc2);
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

impl Character {
    /// Reads the next byte. Whether it completes an introducer of a sequence or string.
    fn introduces(&mut self, byte: u8) -> bool {
        let is_introducer = matches!(byte, 0x90 | 0x98 | 0x9b | 0x9d..=0x9f);
        let lead = std::mem::take(&mut self.lead);
        match byte {
            // UTF-8 has no character in more bytes than it needs.
            0x80..=0xbf
                if self.left > 0 && !matches!((lead, byte), (0xe0, ..=0x9f) | (0xf0, ..=0x8f)) =>
            {
                self.left -= 1;
                is_introducer && lead == 0xc2
            }
            0x80..=0xbf => {
                self.left = 0;
                is_introducer
            }
            _ => {
                self.lead = byte;
                self.left = match byte {
                    0xc2..=0xdf => 1,
                    0xe0..=0xef => 2,
                    0xf0..=0xf4 => 3,
                    _ => 0,
                };
                false
            }
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

fn is_string(head: &[u8]) -> bool {
    matches!(head, [ESC, b']' | b'P' | b'X' | b'^' | b'_', ..])
}

#[cfg(test)]
mod tests;
