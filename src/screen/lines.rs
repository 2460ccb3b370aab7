//! Output as lines of text, as a terminal of any width shows them: without control sequences, and
//! with the last text where a line was written over. No I/O, no clock.

use super::scan::{Piece, Scanner};

/// Bytes of a line from which on it counts as several: an app may print without an end, and each
/// read looks at the whole line.
const LINE: usize = 16 * 1024;
/// How the marks of a shell begin (OSC 133).
const MARK: &[u8] = b"\x1b]133;";
const BACKSPACE: u8 = 8;

/// Output as somebody reads it.
pub(crate) fn readable(output: &str) -> String {
    let mut lines = PlainLines::default();
    let whole = lines.parts(output.as_bytes()).into_iter().filter_map(|(part, _)| match part {
        LinePart::Line(line) => Some(line + "\n"),
        LinePart::Begun | LinePart::Ended(_) => None,
    });
    whole.collect::<String>() + &lines.open_line()
}

/// A part of the output, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinePart {
    /// A line, without its end.
    Line(String),
    /// A shell begins to run a command.
    Begun,
    /// A command of a shell has ended, with this status if the shell tells.
    Ended(Option<u8>),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PlainLines {
    scanner: Scanner,
    line: Vec<u8>,
    /// Where the next byte of the line goes: behind whole characters, except within one.
    at: usize,
}

impl PlainLines {
    /// The parts that end in these bytes, each with the number of bytes up to its end. The marks of a
    /// command end the line before them.
    pub(crate) fn parts(&mut self, bytes: &[u8]) -> Vec<(LinePart, usize)> {
        let (mut parts, mut at) = (Vec::new(), 0);
        // The scanner lends a piece of itself.
        let mut scanner = std::mem::take(&mut self.scanner);
        while let Some(piece) = scanner.next(bytes, &mut at) {
            match piece {
                Piece::Text(text) => {
                    let begin = at - text.len();
                    for (i, byte) in text.iter().enumerate() {
                        if self.put(*byte) {
                            parts.push((LinePart::Line(self.take_line()), begin + i + 1));
                        }
                    }
                }
                Piece::Sequence(sequence) => {
                    let Some(mark) = sequence.strip_prefix(MARK).and_then(mark) else {
                        self.edit(sequence);
                        continue;
                    };
                    if !self.line.is_empty() {
                        parts.push((LinePart::Line(self.take_line()), at));
                    }
                    parts.push((mark, at));
                }
                Piece::Control(_) | Piece::Opaque(_) => {}
            }
        }
        self.scanner = scanner;
        parts
    }

    /// The line that has no end yet.
    pub(crate) fn open_line(&self) -> String {
        text_of(&self.line)
    }

    fn take_line(&mut self) -> String {
        self.at = 0;
        text_of(&std::mem::take(&mut self.line))
    }

    /// Takes a byte; whether it ends the line.
    fn put(&mut self, byte: u8) -> bool {
        match byte {
            b'\n' => return true,
            b'\r' => self.at = 0,
            BACKSPACE => self.left(1),
            b'\t' | 0x20..=0x7e | 0x80.. => {
                if !is_inner(byte) {
                    self.erase(1);
                }
                self.line.insert(self.at, byte);
                self.at += 1;
            }
            _ => {}
        }
        self.line.len() >= LINE
    }

    /// Moves within the line, and erases of it.
    fn edit(&mut self, sequence: &[u8]) {
        let Some([parameter @ .., last]) = sequence.strip_prefix(b"\x1b[") else { return };
        let Ok(parameter) = std::str::from_utf8(parameter) else { return };
        let number = match parameter {
            "" => None,
            digits => match digits.parse::<usize>() {
                Ok(number) => Some(number.min(LINE)),
                Err(_) => return,
            },
        };
        let count = number.unwrap_or(1).max(1);
        match last {
            b'C' => self.right(count),
            b'D' => self.left(count),
            b'G' => {
                self.at = 0;
                self.right(count - 1);
            }
            b'K' if number.unwrap_or_default() == 0 => self.line.truncate(self.at),
            b'P' => self.erase(count),
            b'@' => {
                self.line.splice(self.at..self.at, std::iter::repeat_n(b' ', count));
            }
            _ => {}
        }
    }

    fn left(&mut self, count: usize) {
        for _ in 0..count {
            self.at = self.line[..self.at].iter().rposition(|byte| !is_inner(*byte)).unwrap_or(0);
        }
    }

    fn right(&mut self, count: usize) {
        for _ in 0..count {
            match self.character_ends() {
                Some(end) => self.at = end,
                None => {
                    self.line.push(b' ');
                    self.at = self.line.len();
                }
            }
        }
    }

    fn erase(&mut self, count: usize) {
        for _ in 0..count {
            let Some(end) = self.character_ends() else { return };
            self.line.drain(self.at..end);
        }
    }

    /// Where the character ends that stands where the next one goes, if there is one.
    fn character_ends(&self) -> Option<usize> {
        let rest = self.line.get(self.at + 1..)?;
        Some(self.at + 1 + rest.iter().take_while(|byte| is_inner(**byte)).count())
    }
}

/// A mark of a command, for example `D;0` with the end of its sequence.
fn mark(text: &[u8]) -> Option<LinePart> {
    let text = text.split(u8::is_ascii_control).next()?;
    let mut fields = text.split(|byte| *byte == b';');
    match fields.next()? {
        b"C" => Some(LinePart::Begun),
        b"D" => {
            let status = fields.next().map(String::from_utf8_lossy);
            Some(LinePart::Ended(status.and_then(|status| status.parse().ok())))
        }
        _ => None,
    }
}

/// Whether a byte goes on with a character of UTF-8.
fn is_inner(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Without the control characters that are two bytes in UTF-8.
fn text_of(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().filter(|c| *c == '\t' || !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<String>, String) {
        let mut plain = PlainLines::default();
        let mut all = Vec::new();
        for piece in pieces {
            for (part, _) in plain.parts(piece) {
                let LinePart::Line(line) = part else { panic!("{part:?}") };
                all.push(line);
            }
        }
        (all, plain.open_line())
    }

    #[test]
    fn lines_as_somebody_reads_them() {
        for (output, want, open) in [
            (&b"one\r\ntwo\nthr"[..], &["one", "two"][..], "thr"),
            (b"\x1b[?2004h\x1b[1mbold\x1b[0m\r\n$ ", &["bold"], "$ "),
            (b"10%\r20%\rdone\n", &["done"], ""),
            (b"100%\rok\x1b[K\n", &["ok"], ""),
            (b"10%\r", &[], "10%"),
            (b"axe\x08\x08bc\x07\n", &["abc"], ""),
            // As fish and readline edit a line.
            (b"> ecno\x1b[2Dh\x1b[C x\r\n", &["> echo x"], ""),
            (b"acd\x1b[2D\x1b[@b\x1b[99C!\x1b[3G\x1b[P", &[], "abd                    !"),
            (b"\x1b]0;title\x07> \x1b[38;5;1mx", &[], "> x"),
            ("grün\x1b[2Dx\r\n".as_bytes(), &["grxn"], ""),
            ("\u{9b}2J\u{85}a\x00\x7fb".as_bytes(), &[], "2Jab"),
            (b"", &[], ""),
        ] {
            let want: Vec<String> = want.iter().map(ToString::to_string).collect();
            let shown = String::from_utf8_lossy(output);
            let (lines, line) = lines(&[output]);
            assert_eq!(lines, want, "{shown:?}");
            assert_eq!(line.replace(' ', ""), open.replace(' ', ""), "{shown:?}");
        }
    }

    #[test]
    fn output_is_read_without_sequences_and_returns() {
        for (output, want) in [
            ("a\x1b[31mb\x1b[m\r\nc\r\r\n", "ab\nc\n"),
            ("\x1b[?2004l\rhello\r\n> ", "hello\n> "),
            ("10%\r20%\r100%\n", "100%\n"),
            ("\x1b]2;title\x07é\x1b[", "é"),
            ("", ""),
        ] {
            assert_eq!(readable(output), want, "{output:?}");
        }
    }

    #[test]
    fn the_marks_of_a_command_stand_between_lines() {
        let output = b"$ \x1b]133;B\x07x\r\n\x1b]133;C;x\x07out\r\nno end\x1b]133;D;3;y\x1b\\\
            \x1b]133;D\x07\x1b]133;A\x07$ ";
        let mut plain = PlainLines::default();
        let line = |text: &str| LinePart::Line(text.into());
        let parts: Vec<LinePart> = plain.parts(output).into_iter().map(|(part, _)| part).collect();
        let (out, no_end) = (line("out"), line("no end"));
        let (ended, unknown) = (LinePart::Ended(Some(3)), LinePart::Ended(None));
        let want = [line("$ x"), LinePart::Begun, out, no_end, ended, unknown];
        assert_eq!(parts, want);
        assert_eq!(plain.open_line(), "$ ");
    }

    #[test]
    fn a_part_says_where_it_ends_and_a_line_is_bounded() {
        let mut plain = PlainLines::default();
        let ends: Vec<usize> =
            plain.parts(b"a\r\n\x1b[1mb\nc").into_iter().map(|(_, end)| end).collect();
        assert_eq!(ends, [3, 9]);
        let many = vec![b'x'; LINE + 1];
        assert_eq!(plain.parts(&many).len(), 1);
        for hostile in [&b"\x1b[999999999C"[..], b"\x1b[999999999@"] {
            let mut plain = PlainLines::default();
            for _ in 0..10 {
                plain.parts(hostile);
                plain.parts(b"x");
                assert!(plain.line.len() <= 2 * LINE);
            }
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            bytes in proptest::collection::vec(prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(0x1b), Just(b'['), Just(b'm'), Just(b'a'), Just(8u8),
                Just(b'C'), Just(b'D'), Just(b'K'), Just(b'P'), Just(b'2'), Just(0xc3), Just(0xbc),
            ], 0..60),
            cut in 0usize..60,
        ) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(lines(&[a, b]), lines(&[&bytes]));
        }
    }
}
