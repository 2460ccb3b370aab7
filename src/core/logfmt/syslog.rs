//! The lines of a service as systemd's own journal stream reads them: the priority of a line, and
//! its message. No I/O, no clock.
//!
//! Observed with journald 252: it removes `<N>` from a line, trims white space at the end, makes no
//! entry for an empty line, and reads a zero byte as a line end. A line of a terminal is the text
//! that the terminal shows at its end.

use super::lines::Entry;
use crate::screen::scan::{Control, Piece, Scanner};
use crate::types::stream::Stream;

/// Longest name of a program in the journal, bytes: that of a file.
const SYSLOG_IDENTIFIER: usize = 255;

/// `LOG_INFO` of syslog(3): systemd's default of `SyslogLevel=`.
pub(crate) const INFO: u8 = 6;
/// `LOG_DAEMON`: systemd's default of `SyslogFacility=`.
pub(crate) const DAEMON: u8 = 3;
/// The highest level, `LOG_DEBUG`.
pub(crate) const DEBUG: u8 = 7;
/// The highest facility, `LOG_LOCAL7`.
pub(crate) const LOCAL7: u8 = 23;

/// Whether a text can be the name of a program in the journal.
pub(crate) fn is_identifier(text: &str) -> bool {
    (1..=SYSLOG_IDENTIFIER).contains(&text.len()) && !text.contains(char::is_control)
}

/// Most bytes of `<N>`, which systemd also takes with zeros before the digit.
const PREFIX: usize = 5;
/// A terminal's tabs stop at each column that this divides.
const TAB: usize = 8;

/// How the lines of a service become messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// The priority of a line without `<N>` (`SyslogLevel=`).
    pub(crate) level: u8,
    /// Whether `<N>` at the start of a line is its priority (`SyslogLevelPrefix=`).
    pub(crate) takes_prefix: bool,
    /// The one stream whose lines are taken; `None` for all.
    pub(crate) only: Option<Stream>,
    line: TerminalLine,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Where it came from.
    pub(crate) stream: Stream,
    /// Its priority, 0 to 7.
    pub(crate) priority: u8,
    /// Its bytes, one piece behind the other; never empty.
    pub(crate) pieces: [&'a [u8]; 2],
}

impl Message<'_> {
    /// Its length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Never: an empty line is not a message.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Syslog {
    /// Lines with this priority, unless they say another and that is asked for.
    pub(crate) fn new(level: u8, takes_prefix: bool, only: Option<Stream>) -> Self {
        Self { level, takes_prefix, only, line: TerminalLine::default() }
    }

    /// The terminal is so wide from here on.
    pub(crate) fn set_columns(&mut self, columns: u16) {
        self.line.columns = columns.into();
    }

    /// The stream that lines of our own belong to.
    pub(crate) fn own_stream(&self) -> Stream {
        self.only.unwrap_or(Stream::Stderr)
    }

    /// The message of an entry; `None` when nothing is left of it.
    pub(crate) fn message<'a>(&'a mut self, entry: &Entry<'a>) -> Option<Message<'a>> {
        let stream = entry.stream;
        if self.only.is_some_and(|only| only.logged_as() != stream.logged_as()) {
            return None;
        }
        let mut pieces = entry.pieces;
        if stream == Stream::Tty {
            self.line.show(pieces);
            pieces = [&self.line.text, &[]];
        }
        let prefix = if entry.first && self.takes_prefix { prefix(pieces) } else { None };
        let (priority, skip) = prefix.unwrap_or((self.level, 0));
        let [mut a, mut b] = pieces;
        let from_a = skip.min(a.len());
        (a, b) = (&a[from_a..], &b[(skip - from_a).min(b.len())..]);
        b = b.trim_ascii_end();
        if b.is_empty() {
            a = a.trim_ascii_end();
        }
        let message = Message { stream, priority, pieces: [a, b] };
        (!message.is_empty()).then_some(message)
    }
}

/// The syslog priority at the beginning of a line, and the length of its text: `<N>`, `<0N>` or
/// `<00N>`, as systemd reads it.
pub(crate) fn prefix(pieces: [&[u8]; 2]) -> Option<(u8, usize)> {
    let mut bytes = pieces[0].iter().chain(pieces[1]).take(PREFIX).enumerate();
    bytes.next().filter(|(_, byte)| **byte == b'<')?;
    let mut priority = None;
    for (at, byte) in bytes {
        match (byte, priority) {
            (b'>', Some(priority)) => return Some((priority, at + 1)),
            (b'0'..=b'7', None | Some(0)) => priority = Some(byte - b'0'),
            _ => return None,
        }
    }
    None
}

/// A line of a terminal as it looks at its end: without overwritten text and escape sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TerminalLine {
    /// How wide the terminal is; 0 if that is not known.
    columns: usize,
    /// What a shell has left above its prompt, see [`Self::leave_row`].
    above: Vec<char>,
    cells: Vec<char>,
    /// Where the next character goes: never behind the last cell.
    at: usize,
    text: Vec<u8>,
}

impl TerminalLine {
    fn show(&mut self, pieces: [&[u8]; 2]) {
        self.above.clear();
        self.cells.clear();
        self.text.clear();
        self.at = 0;
        self.text.extend_from_slice(pieces[0]);
        self.text.extend_from_slice(pieces[1]);
        let bytes = std::mem::take(&mut self.text);
        let (mut scanner, mut at) = (Scanner::default(), 0);
        while let Some(piece) = scanner.next(&bytes, &mut at) {
            match piece {
                Piece::Text(text) => self.print(text),
                Piece::Sequence(raw) => self.sequence(raw),
                Piece::Control(_) | Piece::Opaque(_) => {}
            }
        }
        self.text = bytes;
        self.text.clear();
        let mut utf8 = [0; 4];
        for cell in self.above.iter().chain(&self.cells) {
            self.text.extend_from_slice(cell.encode_utf8(&mut utf8).as_bytes());
        }
    }

    fn print(&mut self, text: &[u8]) {
        for chunk in text.utf8_chunks() {
            chunk.valid().chars().for_each(|c| self.put(c));
            if !chunk.invalid().is_empty() {
                self.put(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => {
                self.leave_row();
                self.at = 0;
            }
            '\u{8}' => self.at = self.at.saturating_sub(1),
            '\t' => match self.cells.get(self.at) {
                None => {
                    self.cells.push('\t');
                    self.at += 1;
                }
                Some('\t') => self.at += 1,
                // Over existing text a tab only moves.
                Some(_) => self.at = ((self.at / TAB + 1) * TAB).min(self.cells.len()),
            },
            c if c.is_control() => {}
            c => {
                match self.cells.get_mut(self.at) {
                    Some(cell) => *cell = c,
                    None => self.cells.push(c),
                }
                self.at += 1;
            }
        }
    }

    /// zsh and fish print blanks beyond the end of a row behind output that has no line end, so that
    /// their prompt begins in the next row.
    fn leave_row(&mut self) {
        let is_wrapped = self.columns > 0 && self.at > self.columns;
        if !is_wrapped || self.at < self.cells.len() {
            return;
        }
        let text = self.cells.iter().rposition(|cell| *cell != ' ').map_or(0, |last| last + 1);
        if text <= self.columns {
            self.above.extend(self.cells.drain(..text));
            self.above.push(' ');
            self.cells.clear();
        }
    }

    /// Applies a control sequence that edits this line; others change nothing here.
    fn sequence(&mut self, raw: &[u8]) {
        let Some(control) = Control::parse(raw).filter(|control| control.mark == 0) else { return };
        let number = usize::from(control.value(0));
        let count = number.max(1);
        match control.last {
            b'K' | b'J' => match number {
                0 => self.cells.truncate(self.at),
                1 => {
                    let end = self.cells.len().min(self.at + 1);
                    self.cells[..end].fill(' ');
                }
                _ if control.last == b'J' => {
                    self.cells.clear();
                    self.at = 0;
                }
                _ => {
                    self.cells.truncate(self.at);
                    self.cells.fill(' ');
                }
            },
            b'G' | b'`' => self.at = (count - 1).min(self.cells.len()),
            b'C' => self.at = self.at.saturating_add(count).min(self.cells.len()),
            b'D' => self.at = self.at.saturating_sub(count),
            b'P' => {
                let end = self.at.saturating_add(count).min(self.cells.len());
                self.cells.drain(self.at..end);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(stream: Stream, first: bool, text: &[u8], cut: usize) -> Option<(u8, Vec<u8>)> {
        let (a, b) = text.split_at(cut.min(text.len()));
        let mut syslog = Syslog::new(INFO, true, None);
        let entry = Entry { stream, first, last: true, pieces: [a, b] };
        syslog.message(&entry).map(|message| (message.priority, message.pieces.concat()))
    }

    #[test]
    fn a_shell_leaves_output_without_an_end_above_its_prompt() {
        let blanks = " ".repeat(79);
        let zsh = format!(
            "\x1b[1m\x1b[7m%\x1b[27m\x1b[1m\x1b[0m{blanks}\r \r\r\x1b[0m\x1b[27m\x1b[24m\x1b[J"
        );
        let fish = format!("\x1b[2m\u{23ce}\x1b[m{blanks}\r\u{23ce} \r\x1b[K");
        let wide = "x".repeat(100);
        for (columns, line, want) in [
            (80, format!("abc{zsh}host% echo hi\r"), "abc% host% echo hi".to_owned()),
            (80, format!("{zsh}host% echo hi\r"), "host% echo hi".to_owned()),
            (80, format!("abc{fish}host> ls\r"), "abc\u{23ce} host> ls".to_owned()),
            // Not known how wide it is.
            (0, format!("abc{zsh}host%\r"), "host%".to_owned()),
            (80, format!("10%{}\r20%\r", &blanks[3..]), "20%".to_owned()),
            (60, format!("{wide}\r{wide}!\r"), format!("{wide}!")),
        ] {
            let mut syslog = Syslog::new(INFO, true, None);
            syslog.set_columns(columns);
            let pieces = [line.as_bytes(), b""];
            let entry = Entry { stream: Stream::Tty, first: true, last: true, pieces };
            let message = syslog.message(&entry).unwrap();
            assert_eq!(
                String::from_utf8(message.pieces.concat()).unwrap(),
                want,
                "{columns} {line}"
            );
        }
    }

    /// As systemd 252 was seen to do it.
    #[test]
    fn lines_as_journald_takes_them() {
        for (line, want) in [
            ("out", Some((6, "out"))),
            ("<4>warn", Some((4, "warn"))),
            ("<04>four", Some((4, "four"))),
            ("<004>four", Some((4, "four"))),
            ("<0004>x", Some((6, "<0004>x"))),
            ("<31>x", Some((6, "<31>x"))),
            ("<14>x", Some((6, "<14>x"))),
            ("<8>x", Some((6, "<8>x"))),
            ("<>x", Some((6, "<>x"))),
            ("< 0>x", Some((6, "< 0>x"))),
            ("<<0>>x", Some((6, "<<0>>x"))),
            ("<4", Some((6, "<4"))),
            ("<3>", None),
            ("", None),
            ("  sp  ", Some((6, "  sp"))),
            ("cr\r", Some((6, "cr"))),
            (" \t", None),
        ] {
            for cut in 0..=line.len() {
                let got = message(Stream::Stdout, true, line.as_bytes(), cut);
                let want = want.map(|(priority, text)| (priority, text.as_bytes().to_vec()));
                assert_eq!(got, want, "{line:?} at {cut}");
            }
        }
        // The rest of a line that was split has the usual priority.
        let rest = message(Stream::Stdout, false, b"<3>rest", 0);
        assert_eq!(rest, Some((6, b"<3>rest".to_vec())));
    }

    #[test]
    fn what_is_asked_for() {
        let entry = |stream, text| Entry { stream, first: true, last: true, pieces: [text, b""] };
        let mut notice = Syslog::new(5, false, Some(Stream::Stdout));
        let got = notice.message(&entry(Stream::Stdout, b"<3>x")).unwrap();
        assert_eq!((got.priority, got.pieces[0]), (5, &b"<3>x"[..]));
        assert_eq!(notice.message(&entry(Stream::Stderr, b"x")), None);
        assert!(notice.message(&entry(Stream::Tty, b"x")).is_some());
        assert_eq!(notice.own_stream(), Stream::Stdout);
    }

    #[test]
    fn a_terminals_line_is_what_it_shows_at_the_end() {
        for (printed, shown) in [
            ("plain\r", "plain"),
            ("\x1b[1;31mred\x1b[0m text\r", "red text"),
            ("10%\r20%\r100%\r", "100%"),
            ("downloading\rdone\x1b[K\r", "done"),
            ("longer text\rshort\r", "shortr text"),
            ("abc\u{8}\u{8}X", "aXc"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]0;title\x1b\\text", "text"),
            ("\x1b(Btext\x1b=", "text"),
            ("a\x1b[2Kb", " b"),
            ("a\x1b[2J\x1b[Hb", "b"),
            ("abcdef\x1b[3GX\x1b[DY\x1b[2CZ", "abYdeZ"),
            ("abc\r\x1b[Px", "xc"),
            ("gr\u{fc}ne\rgr\u{e4}u", "gr\u{e4}ue"),
            ("a\tb\rc\td", "c\td"),
            ("bell\x07 \x0e\x0f\u{9b}x", "bell x"),
            ("torn \x1b[1", "torn"),
            ("torn \x1b", "torn"),
            ("<3>bad\r", "bad"),
        ] {
            for cut in 0..=printed.len() {
                let got = message(Stream::Tty, true, printed.as_bytes(), cut).unwrap().1;
                assert_eq!(String::from_utf8(got).unwrap(), shown, "{printed:?}");
            }
        }
        assert_eq!(message(Stream::Tty, true, b"\x1b[?25h\r", 0), None);
        let invalid = message(Stream::Tty, true, b"a\xffb", 0).unwrap().1;
        assert_eq!(invalid, "a\u{fffd}b".as_bytes());
    }

    proptest! {
        /// For any output of an app, no control characters but tabs are left, and the result is not
        /// much longer.
        #[test]
        fn a_terminals_line_is_plain(bytes in prop::collection::vec(
            prop_oneof![Just(0x1b), Just(b'['), Just(b'\r'), Just(b'K'), Just(8), Just(b'C'), Just(b'9'), any::<u8>()],
            0..300,
        )) {
            if let Some((_, text)) = message(Stream::Tty, false, &bytes, 7) {
                prop_assert!(text.len() <= WIDEST_TEXT * bytes.len());
                let text = String::from_utf8(text).unwrap();
                prop_assert!(!text.chars().any(|c| c.is_control() && c != '\t'));
            }
        }
    }
    /// An invalid byte becomes U+FFFD.
    const WIDEST_TEXT: usize = 3;
}
