//! What terminals that are not ours do with a stream: alacritty's, and a machine by DEC's VT500. For the
//! tests of the filter, and for fuzzing.

use alacritty_terminal::Term;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{CursorStyle, Processor, StdSyncHandler};

/// The first sequence of these bytes that is not to reach a viewer's terminal.
pub fn refused(shown: &[u8]) -> Option<String> {
    let mut terminal = Terminal::default();
    for chunk in shown.utf8_chunks() {
        chunk.valid().chars().for_each(|c| terminal.read(c));
        // Some terminals take such a byte for Latin-1.
        chunk.invalid().iter().for_each(|byte| terminal.read(char::from(*byte)));
    }
    terminal.refused().cloned().or_else(|| cut(shown))
}

/// A string that is left in another way than by its terminator: terminals differ in whether they leave it.
fn cut(shown: &[u8]) -> Option<String> {
    let begins = |pair: &[u8]| matches!(pair, [0x1b, b']' | b'P' | b'X' | b'^' | b'_']);
    let mut rest = shown;
    while let Some(at) = rest.windows(2).position(begins) {
        let (is_command, text) = (rest[at + 1] == b']', &rest[at + 2..]);
        let ends = |byte: &u8| matches!(byte, 0x18 | 0x1a | 0x1b) || is_command && *byte == 0x07;
        let end = text.iter().position(ends)?;
        let is_ended = text[end] == 0x07 || matches!(text[end..], [0x1b] | [0x1b, b'\\', ..]);
        let is_palette = is_command && text[0] == b'P';
        let is_colour = end == 8 && text[1..end].iter().all(u8::is_ascii_hexdigit);
        if !is_ended || is_palette && !is_colour || text[..end].contains(&0x05) {
            return Some(format!("cut: {}", rest[at..].escape_ascii()));
        }
        rest = &text[end..];
    }
    None
}

/// A real terminal.
pub struct Real {
    term: Term<Effects>,
    parser: Processor<StdSyncHandler>,
    effects: Effects,
    before: (TermMode, CursorStyle),
}

impl Real {
    pub fn new() -> Self {
        let config =
            alacritty_terminal::term::Config { kitty_keyboard: true, ..Default::default() };
        let effects = Effects::default();
        let term = Term::new(config, &Window, effects.clone());
        let before = modes(&term);
        Self { term, parser: Processor::default(), effects, before }
    }

    pub fn show(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.term, bytes);
    }

    /// What has happened beside drawing, and what is not as before.
    pub fn changes(&mut self) -> Vec<String> {
        self.parser.stop_sync(&mut self.term);
        let mut changes = self.effects.0.borrow().clone();
        let after = modes(&self.term);
        if format!("{after:?}") != format!("{:?}", self.before) {
            changes.push(format!("{:?} became {after:?}", self.before));
        }
        changes
    }
}

fn modes(term: &Term<Effects>) -> (TermMode, CursorStyle) {
    (*term.mode() - TermMode::URGENCY_HINTS, term.cursor_style())
}

/// What a real terminal does beside showing text.
#[derive(Clone, Default)]
struct Effects(std::rc::Rc<std::cell::RefCell<Vec<String>>>);

impl alacritty_terminal::event::EventListener for Effects {
    fn send_event(&self, event: alacritty_terminal::event::Event) {
        use alacritty_terminal::event::Event;
        if let Event::Title(_)
        | Event::ResetTitle
        | Event::ClipboardStore(..)
        | Event::ClipboardLoad(..)
        | Event::Exit = event
        {
            self.0.borrow_mut().push(format!("{event:?}"));
        }
    }
}

struct Window;

impl alacritty_terminal::grid::Dimensions for Window {
    fn total_lines(&self) -> usize {
        24
    }

    fn screen_lines(&self) -> usize {
        24
    }

    fn columns(&self) -> usize {
        80
    }
}

/// What a terminal does, by the parser of DEC's VT500 and with UTF-8, beside drawing: the
/// sequences that it executes. Nothing of it is this program's.
#[derive(Default)]
struct Terminal {
    /// `e`, `i`: after ESC and an intermediate; `c`: in CSI; `]`, `P`, `_`: in a string.
    state: Option<char>,
    text: String,
    done: Vec<String>,
}

impl Terminal {
    fn end(&mut self, kind: char) {
        self.done.push(format!("{kind}{}", std::mem::take(&mut self.text)));
        self.state = None;
    }

    fn begin(&mut self, state: char) {
        // A string that is broken off is executed by some terminals.
        if let Some(kind) = self.state.filter(|kind| "]P_".contains(*kind)) {
            self.end(kind);
        }
        self.text.clear();
        self.state = Some(state);
    }

    fn read(&mut self, c: char) {
        match (self.state, c) {
            (_, '\x18' | '\x1a') => (self.state, self.text) = (None, String::new()),
            (_, '\x1b') => self.begin('e'),
            (_, '\u{9b}') => self.begin('c'),
            (_, '\u{9d}') => self.begin(']'),
            (_, '\u{90}') => self.begin('P'),
            (_, '\u{98}' | '\u{9e}' | '\u{9f}') => self.begin('_'),
            (Some(']'), '\x07') => self.end(']'),
            (Some(kind @ (']' | 'P' | '_')), '\u{9c}') => self.end(kind),
            (Some(']' | 'P' | '_'), '\0'..='\x1f' | '\x7f') => {}
            (Some(']' | 'P' | '_'), c) => self.text.push(c),
            (Some(_), '\0'..='\x1f' | '\x7f') => {}
            (Some(_), '\u{80}'..) => (self.state, self.text) = (None, String::new()),
            (Some('e'), '[') => self.state = Some('c'),
            (Some('e'), ']') => self.state = Some(']'),
            (Some('e'), 'P') => self.state = Some('P'),
            (Some('e'), 'X' | '^' | '_') => self.state = Some('_'),
            (Some('e' | 'i'), ' '..='/') => {
                self.text.push(c);
                self.state = Some('i');
            }
            (Some(kind @ ('e' | 'i')), c) => {
                self.text.push(c);
                self.end(kind);
            }
            (Some(kind), '@'..='~') => {
                self.text.push(c);
                self.end(kind);
            }
            (Some(_), c) => self.text.push(c),
            (None, _) => {}
        }
    }

    /// What is not to reach a terminal.
    fn refused(&self) -> Option<&String> {
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..digits].parse::<u64>().ok()
        };
        let is_colour = |text: &str| text.starts_with(['P', 'R']);
        self.done.iter().find(|done| {
            let (kind, text) = done.split_at(1);
            match kind {
                "]" if text.is_empty() || is_colour(text) => false,
                "]" => !matches!(number(text), Some(4 | 8 | 10..=19 | 104 | 110..=119)),
                // Sixels, and queries for settings.
                "P" if text.is_empty() => false,
                "P" => {
                    let body = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
                    let is_query = ["q", "$q", "+q"].iter().any(|head| body.starts_with(head));
                    !(is_query || text.starts_with("=1s") || text.starts_with("=2s"))
                }
                "_" => !text.is_empty(),
                "e" => {
                    !matches!(
                        text.as_bytes(),
                        [b'7'
                            | b'8'
                            | b'='
                            | b'>'
                            | b'D'
                            | b'E'
                            | b'H'
                            | b'M'
                            | b'Z'
                            | b'c'
                            | b'\\']
                            | [b'(' | b')', b'0' | b'A' | b'B']
                            | [b'#', b'3'..=b'6' | b'8']
                    ) && ![" F", "%G"].contains(&text)
                }
                "c" => {
                    // The first parameter, and the sequence without all of them.
                    let form = text.replace(|c: char| matches!(c, '0'..=';'), "");
                    let first = number(text.trim_start_matches(['?', '>', '<', '=']));
                    match form.as_str() {
                        "t" => !matches!(first, Some(11..=19)),
                        "?h" | "?l" => text[1..text.len() - 1].split(';').any(|mode| {
                            !"1 5 6 7 9 12 25 45 47 66 69 1000 1001 1002 1003 1004 1005 1006 1007 \
                                  1015 1016 1047 1048 1049 2004 2026 2027 2031 2048"
                                .split(' ')
                                .any(|known| known == mode.trim_start_matches('0'))
                        }),
                        "h" | "l" => text[..text.len() - 1]
                            .split(';')
                            .any(|mode| !["4", "12", "20"].contains(&mode.trim_start_matches('0'))),
                        ">m" => text != ">m" && first != Some(4),
                        ">n" => first != Some(4),
                        form => {
                            let plain = form.len() == 1
                                && "@ABCDEFGHIJKLMPSTXZ`abcdefgmnrsu".contains(form);
                            let other = "?J ?K ?W ?m ?n ?u ?S >c >q >u <u =c =u 'SPq !p $p ?$p $x"
                                .replace("'SP", "_");
                            let is_other =
                                other.split(' ').any(|known| known == form.replace(' ', "_"));
                            // Parts of parameters are for looks.
                            !(plain || is_other || form.ends_with('m') && !form.starts_with('>'))
                        }
                    }
                }
                _ => false,
            }
        })
    }
}
