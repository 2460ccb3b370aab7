//! The queries of programs to their terminal, and the answers of a plain one.

use super::known::{Class, class};
use super::modes::{SIZE_REPORTS, ScreenModes};
use super::scan::{Control, ENQ, ESC, Piece, Scanner, inner_controls, number, plain_len, string};
use crate::types::refused::RefusedReport;
use crate::types::size::Window;

/// A query to the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Its type (DA1).
    Attributes,
    /// Its version (DA2).
    Attributes2,
    /// Its serial number (DA3).
    Attributes3,
    /// Its health (DSR 5).
    Status,
    /// The cursor position (DSR 6).
    Cursor,
    /// The cursor position (6) and more (`CSI ? … n`).
    PrivateStatus(u16),
    /// The window: its size in characters (18), in pixels (14), and more.
    Window(u16),
    /// Its name (XTVERSION).
    Name,
    /// Whether a mode is set (DECRQM). The flag is for private modes.
    Mode(bool, u16),
    /// Colours and other values of strings (`OSC … ?`).
    Value(u16),
    /// A setting (DECRQSS).
    Setting,
    /// A capability (XTGETTCAP).
    Capability,
    /// The keyboard modes (`CSI ? u`).
    Keyboard,
    /// The key encoding (`CSI ? … m`).
    Keys,
    /// Graphics attributes (`CSI ? … S`).
    Graphics,
    /// Whether it shows pictures (`APC G`).
    Picture,
    /// Reports of the size from now on, with one at once (mode 2048 is set).
    Sizes,
    /// Its answerback, which is any text (ENQ).
    Enquiry,
}

/// First number of a report of the size in mode [`SIZE_REPORTS`].
const SIZE_REPORT: u16 = 48;

/// The report of a terminal's size in mode [`SIZE_REPORTS`]; pixels that are not known are 0.
pub(crate) fn size_report(Window { rows, cols, width, height }: Window) -> String {
    format!("\x1b[{SIZE_REPORT};{rows};{cols};{height};{width}t")
}

/// A query, and the state in which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingQuery {
    /// The query.
    pub query: Query,
    /// Bytes of the app up to the end of the query.
    pub(crate) end: u64,
    /// Row and column of the cursor, from 1.
    pub(crate) cursor: (u16, u16),
}

/// The head of a reply, by which it is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyPattern {
    /// One of `[]P_`.
    pub(crate) kind: u8,
    /// See [`Control`].
    pub(crate) marker: u8,
    /// See [`Control`].
    pub(crate) mark: u8,
    /// See [`Control`]. For other strings the first letter, or 0.
    pub(crate) last: u8,
    /// The first number; `None` matches any.
    pub(crate) first: Option<u16>,
}

impl ReplyPattern {
    const fn new(kind: u8, marker: u8, mark: u8, last: u8) -> Self {
        Self { kind, marker, mark, last, first: None }
    }

    const fn first(self, first: u16) -> Self {
        Self { first: Some(first), ..self }
    }

    /// Whether a reply with the head `other`, which has a number, matches.
    pub(crate) fn fits(self, other: Self) -> bool {
        self.first.is_none_or(|first| other.first == Some(first))
            && self == Self { first: self.first, ..other }
    }
}

impl Query {
    /// Calls `found` for each query in a piece of the stream. Whether there was one.
    pub(crate) fn of(piece: Piece<'_>, mut found: impl FnMut(Self)) -> bool {
        match piece {
            Piece::Control(ENQ) => {
                found(Self::Enquiry);
                true
            }
            Piece::Sequence(raw) => match inner_controls(raw) {
                Some((_, raw)) => Self::read(&raw, found),
                None => Self::read(raw, found),
            },
            Piece::Control(_) | Piece::Text(_) | Piece::Opaque(_) => false,
        }
    }

    fn read(raw: &[u8], mut found: impl FnMut(Self)) -> bool {
        let mut any = false;
        let mut found = |query| {
            any = true;
            found(query);
        };
        if let Some(control) = Control::parse(raw) {
            Self::control(&control).into_iter().for_each(&mut found);
        } else if let Some((kind, text)) = string(raw) {
            Self::text(kind, text, &mut found);
        } else if raw == [ESC, b'Z'] {
            found(Self::Attributes);
        }
        any
    }

    /// The query that a control sequence is.
    pub(crate) fn control(control: &Control<'_>) -> Option<Self> {
        let value = control.value(0);
        Some(match (control.marker, control.mark, control.last) {
            (0, 0, b'c') if value == 0 => Self::Attributes,
            (b'>', 0, b'c') if value == 0 => Self::Attributes2,
            (b'=', 0, b'c') if value == 0 => Self::Attributes3,
            (0, 0, b'n') if value == 5 => Self::Status,
            (0, 0, b'n') if value == 6 => Self::Cursor,
            (b'?', 0, b'n') => Self::PrivateStatus(value),
            (0, 0, b't') if matches!(value, 11 | 13..=16 | 18..=21) => Self::Window(value),
            (b'>', 0, b'q') => Self::Name,
            (0, b'$', b'p') => Self::Mode(false, value),
            (b'?', b'$', b'p') => Self::Mode(true, value),
            (b'?', 0, b'u') => Self::Keyboard,
            (b'?', 0, b'h') if control.values().any(|mode| mode == SIZE_REPORTS) => Self::Sizes,
            (b'?', 0, b'm') => Self::Keys,
            (b'?', 0, b'S') => Self::Graphics,
            _ => return None,
        })
    }

    fn text(kind: u8, text: &[u8], found: &mut impl FnMut(Self)) {
        match (kind, text) {
            (b'P', [b'$', b'q', ..]) => found(Self::Setting),
            (b'P', [b'+', b'q', ..]) => found(Self::Capability),
            (b'_', [b'G', ..]) if text.windows(3).any(|part| part == b"a=q") => {
                found(Self::Picture);
            }
            (b']', _) => {
                let code = text.split(|byte| *byte == b';').next().map_or(0, number);
                // A title, or a link.
                if matches!(code, 0..=2 | 8) {
                    return;
                }
                let parts = text.split(|byte| *byte == b';').skip(1);
                for (at, part) in (0u16..).zip(parts) {
                    if part == b"?" || part.ends_with(b"=?") {
                        // The colours from 10 on have consecutive numbers.
                        let next = if (10..20).contains(&code) { at } else { 0 };
                        found(Self::Value(code.saturating_add(next)));
                    }
                }
            }
            _ => {}
        }
    }

    /// The head of the reply; `None` if it is any text.
    pub(crate) fn reply(self) -> Option<ReplyPattern> {
        let control = |marker, mark, last| ReplyPattern::new(b'[', marker, mark, last);
        let device = |marker, mark, last| ReplyPattern::new(b'P', marker, mark, last);
        let title = |letter| ReplyPattern::new(b']', 0, 0, letter);
        Some(match self {
            Self::Attributes => control(b'?', 0, b'c'),
            Self::Attributes2 => control(b'>', 0, b'c'),
            Self::Attributes3 => device(0, b'!', b'|'),
            Self::Status => control(0, 0, b'n'),
            Self::Cursor => control(0, 0, b'R'),
            Self::PrivateStatus(6) => control(b'?', 0, b'R'),
            Self::PrivateStatus(_) => control(b'?', 0, b'n'),
            Self::Window(20) => title(b'L'),
            Self::Window(21) => title(b'l'),
            Self::Window(11) => control(0, 0, b't'),
            Self::Window(what) => control(0, 0, b't').first(what.saturating_sub(10)),
            Self::Name => device(b'>', 0, b'|'),
            Self::Mode(true, number) => control(b'?', b'$', b'y').first(number),
            Self::Mode(false, number) => control(0, b'$', b'y').first(number),
            Self::Value(code) => ReplyPattern::new(b']', 0, 0, 0).first(code),
            Self::Setting => device(0, b'$', b'r'),
            Self::Capability => device(0, b'+', b'r'),
            Self::Keyboard => control(b'?', 0, b'u'),
            Self::Keys => control(b'>', 0, b'm'),
            Self::Graphics => control(b'?', 0, b'S'),
            Self::Picture => ReplyPattern::new(b'_', 0, 0, b'G'),
            Self::Sizes => control(0, 0, b't').first(SIZE_REPORT),
            Self::Enquiry => return None,
        })
    }
}

impl PendingQuery {
    /// The answer of a plain terminal of this size in these modes. `None` where programs do without
    /// one, or where the truth is unknown (colours, pixels, names).
    pub(crate) fn answer(&self, window: Window, modes: &ScreenModes) -> Option<Vec<u8>> {
        let (row, col) = self.cursor;
        let (Window { rows, cols, width, height }, has_pixels) = (window, window.has_pixels());
        let text = match self.query {
            // A VT220 with colours. Programs know no quirks of this version.
            Query::Attributes => "\x1b[?62;22c".to_owned(),
            Query::Attributes2 => "\x1b[>0;0;0c".to_owned(),
            Query::Attributes3 => "\x1bP!|00000000\x1b\\".to_owned(),
            Query::Status => "\x1b[0n".to_owned(),
            Query::Cursor => format!("\x1b[{row};{col}R"),
            Query::PrivateStatus(6) => format!("\x1b[?{row};{col}R"),
            Query::Window(what @ (18 | 19)) => {
                format!("\x1b[{};{};{}t", what - 10, rows, cols)
            }
            Query::Mode(private, number) => {
                let state = match modes.reported(private, number, has_pixels) {
                    None => 0,
                    Some(true) => 1,
                    Some(false) => 2,
                };
                format!("\x1b[{}{number};{state}$y", if private { "?" } else { "" })
            }
            Query::Setting => "\x1bP0$r\x1b\\".to_owned(),
            Query::Capability => "\x1bP0+r\x1b\\".to_owned(),
            Query::Name => {
                concat!("\x1bP>|iottymux(", env!("CARGO_PKG_VERSION"), ")\x1b\\").to_owned()
            }
            Query::Keyboard => format!("\x1b[?{}u", modes.keyboard()),
            // Of the window, and of a character.
            Query::Window(14) if has_pixels => format!("\x1b[4;{height};{width}t"),
            Query::Window(16) if has_pixels => {
                format!("\x1b[6;{};{}t", height / rows, width / cols)
            }
            Query::Sizes => size_report(window),
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

/// Finds the queries in the output of an app, and counts what reaches no viewer's terminal.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    scanner: Scanner,
    refused: RefusedReport,
    modes: ScreenModes,
}

impl Finder {
    /// One that goes on behind this output, of which it counts nothing.
    pub(crate) fn behind<'a>(output: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut finder = Self::default();
        output.into_iter().for_each(|piece| finder.find(piece, |_| {}));
        Self { refused: RefusedReport::default(), ..finder }
    }

    /// Calls `found` for each query that ends in these bytes.
    pub(crate) fn find(&mut self, bytes: &[u8], mut found: impl FnMut(Query)) {
        let mut at = 0;
        loop {
            if self.scanner.is_in_text() {
                // Most output has no query; this skips it fast.
                at += plain_len(&bytes[at..]);
            }
            let Some(piece) = self.scanner.next(bytes, &mut at) else { return };
            Query::of(piece, &mut found);
            count(piece, &mut self.refused);
            self.modes.read(piece);
        }
    }

    /// Whether a program has a screen of its own by now: the alternate one.
    pub(crate) fn is_alternate(&self) -> bool {
        self.modes.is_alternate()
    }

    /// The sequences so far that a viewer's terminal does not get by default.
    pub(crate) fn refused(&self) -> RefusedReport {
        self.refused
    }
}

fn count(piece: Piece<'_>, refused: &mut RefusedReport) {
    let class = match piece {
        Piece::Text(_) => return,
        Piece::Control(control) => (control == ENQ).then_some(Class::Unknown),
        Piece::Sequence(raw) => match inner_controls(raw) {
            Some((_, raw)) => class(&raw, true),
            None => class(raw, true),
        },
        // The beginning of a long string is enough.
        Piece::Opaque(raw) => class(raw, false),
    };
    *match class {
        None | Some(Class::Drawing) => return,
        Some(Class::Title | Class::SaveTitle | Class::RestoreTitle) => &mut refused.title,
        Some(Class::Clipboard) => &mut refused.clipboard,
        Some(Class::Notify) => &mut refused.notify,
        Some(Class::Other) => &mut refused.other,
        Some(Class::Unknown | Class::Part) => &mut refused.unknown,
    } += 1;
}

/// Removes the queries from output that is shown again, so that no terminal answers them twice.
#[derive(Debug, Default)]
pub struct Strip {
    scanner: Scanner,
}

impl Strip {
    /// Appends `bytes` to `out`, without queries and without an incomplete sequence at the end.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(piece) = self.scanner.next(bytes, &mut at) {
            match piece {
                _ if Query::of(piece, |_| ()) => {}
                Piece::Text(raw) | Piece::Sequence(raw) | Piece::Opaque(raw) => out.extend(raw),
                Piece::Control(byte) => out.push(byte),
            }
        }
    }

    /// The incomplete sequence at the end.
    pub fn held(&self) -> &[u8] {
        self.scanner.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::size::Size;

    fn queries(raw: &str) -> Vec<Query> {
        let mut all = Vec::new();
        let any = Query::read(raw.as_bytes(), |query| all.push(query));
        assert_eq!(any, !all.is_empty());
        all
    }

    #[test]
    fn queries_are_recognised() {
        use Query as Q;
        for (raw, want) in [
            ("\x1b[c", &[Q::Attributes][..]),
            ("\x1b[0c", &[Q::Attributes]),
            ("\x1b[?1c", &[]),
            ("\x1b[>c", &[Q::Attributes2]),
            ("\x1b[=c", &[Q::Attributes3]),
            ("\x1bZ", &[Q::Attributes]),
            ("\x1b[5n", &[Q::Status]),
            ("\x1b[6n", &[Q::Cursor]),
            ("\x1b[?6n", &[Q::PrivateStatus(6)]),
            ("\x1b[?996n", &[Q::PrivateStatus(996)]),
            ("\x1b[18t", &[Q::Window(18)]),
            ("\x1b[22;2t", &[]),
            ("\x1b[8;24;80t", &[]),
            ("\x1b[>q", &[Q::Name]),
            ("\x1b[2 q", &[]),
            ("\x1b[?2026$p", &[Q::Mode(true, 2026)]),
            ("\x1b[4$p", &[Q::Mode(false, 4)]),
            ("\x1b]11;?\x07", &[Q::Value(11)]),
            ("\x1b]10;?;?\x1b\\", &[Q::Value(10), Q::Value(11)]),
            ("\x1b]4;1;?;2;?\x07", &[Q::Value(4), Q::Value(4)]),
            ("\x1b]52;c;?\x07", &[Q::Value(52)]),
            ("\x1b]2;really?\x07", &[]),
            ("\x1b]2;?\x07", &[]),
            ("\x1b]8;;?\x07", &[]),
            ("\x1bP$qm\x1b\\", &[Q::Setting]),
            ("\x1bP+q544e\x1b\\", &[Q::Capability]),
            ("\x1b[?u", &[Q::Keyboard]),
            ("\x1b[>1u", &[]),
            ("\x1b[?2004;2048h", &[Q::Sizes]),
            ("\x1b[?2048l", &[]),
            ("\x1b[?2004h", &[]),
            ("\x1b[?4m", &[Q::Keys]),
            ("\x1b[m", &[]),
            ("\x1b_Gi=1,a=q;AAAA\x1b\\", &[Q::Picture]),
        ] {
            assert_eq!(queries(raw), want, "{raw:?}");
        }
    }

    #[test]
    fn answers_of_a_plain_terminal() {
        let mut modes = ScreenModes::default();
        for set in ["\x1b[?2004h", "\x1b[=1u", "\x1b[>5u"] {
            modes.read(Piece::Sequence(set.as_bytes()));
        }
        let window = Size::DEFAULT.into();
        for (query, want) in [
            ("\x1b[c", "\x1b[?62;22c"),
            ("\x1b[>c", "\x1b[>0;0;0c"),
            ("\x1b[5n", "\x1b[0n"),
            ("\x1b[6n", "\x1b[3;7R"),
            ("\x1b[?6n", "\x1b[?3;7R"),
            ("\x1b[18t", "\x1b[8;24;80t"),
            ("\x1b[14t", ""),
            ("\x1b[>q", concat!("\x1bP>|iottymux(", env!("CARGO_PKG_VERSION"), ")\x1b\\")),
            ("\x1b[?2004$p", "\x1b[?2004;1$y"),
            ("\x1b[?1000$p", "\x1b[?1000;2$y"),
            ("\x1b[?25$p", "\x1b[?25;1$y"),
            ("\x1b[?1007$p", "\x1b[?1007;1$y"),
            ("\x1b[?7777$p", "\x1b[?7777;0$y"),
            ("\x1b[4$p", "\x1b[4;2$y"),
            ("\x1b[?2026$p", "\x1b[?2026;2$y"),
            // Without pixels: Textual divides by the 0 of a report.
            ("\x1b[?2048$p", "\x1b[?2048;0$y"),
            ("\x1b[?1016$p", "\x1b[?1016;0$y"),
            ("\x1b[?1006$p", "\x1b[?1006;2$y"),
            // These change what the screen shows, and the model does not have them.
            ("\x1b[?69$p", "\x1b[?69;0$y"),
            ("\x1b[?2027$p", "\x1b[?2027;0$y"),
            ("\x1b[?2048h", "\x1b[48;24;80;0;0t"),
            ("\x1b]11;?\x07", ""),
            ("\x1bP$q q\x1b\\", "\x1bP0$r\x1b\\"),
            ("\x1bP+q544e\x1b\\", "\x1bP0+r\x1b\\"),
            ("\x1b[?u", "\x1b[?5u"),
        ] {
            let asked = PendingQuery { query: queries(query)[0], end: 0, cursor: (3, 7) };
            let answer = asked.answer(window, &modes).unwrap_or_default();
            assert_eq!(
                answer.escape_ascii().to_string(),
                want.as_bytes().escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn all_modes_of_the_mouse_are_set_again() {
        for (set, want) in [
            ("\x1b[?1003;1006;1016h", "\x1b[?1003h\x1b[?1006h\x1b[?1016h"),
            ("\x1b[?1003;1016;1006h", "\x1b[?1003h\x1b[?1006h\x1b[?1016h"),
            ("\x1b[?1000;1002;1003h", "\x1b[?1000h\x1b[?1002h\x1b[?1003h"),
            ("\x1b[?1006h", "\x1b[?1006h"),
            ("\x1b[?1006;1016h\x1b[?1016l", "\x1b[?1006h"),
        ] {
            let mut modes = ScreenModes::default();
            for piece in set.split_inclusive(['h', 'l']) {
                modes.read(Piece::Sequence(piece.as_bytes()));
            }
            assert_eq!(modes.set_changed(false), want, "{set:?}");
        }
    }

    #[test]
    fn shown_again_without_queries() {
        let stream = b"a\x1b[cb\x1b[1m\x05c\x1b]11;?\x1b\\\x1b]2;x\x07\xc3\xa9\x1b[6n\x1b[3";
        let want = b"ab\x1b[1mc\x1b]2;x\x07\xc3\xa9";
        for size in 1..=stream.len() {
            let (mut strip, mut out) = (Strip::default(), Vec::new());
            stream.chunks(size).for_each(|piece| strip.push(piece, &mut out));
            assert_eq!(out.escape_ascii().to_string(), want.escape_ascii().to_string());
            assert_eq!(strip.held(), b"\x1b[3");
        }
    }
}
