//! The emulator that judges redraws: the alacritty_terminal crate.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use alacritty_terminal::event::{Event, EventListener};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Config, Term, TermMode};
use alacritty_terminal::vte::ansi::{Color, Processor};
use iottymux::types::size::Size;

use crate::view::{Cursor, Seen, View};

/// A terminal.
pub struct Oracle {
    term: Term<Answers>,
    parser: Processor,
    answers: Answers,
}

/// Its answers to queries.
#[derive(Clone, Default)]
struct Answers(Rc<RefCell<Vec<u8>>>);

impl EventListener for Answers {
    fn send_event(&self, event: Event) {
        if let Event::PtyWrite(text) = event {
            self.0.borrow_mut().extend_from_slice(text.as_bytes());
        }
    }
}

struct Window(Size);

impl Dimensions for Window {
    fn total_lines(&self) -> usize {
        self.0.rows.into()
    }

    fn screen_lines(&self) -> usize {
        self.0.rows.into()
    }

    fn columns(&self) -> usize {
        self.0.cols.into()
    }
}

impl Oracle {
    pub fn new(size: Size) -> Self {
        let answers = Answers::default();
        let config = Config { kitty_keyboard: true, ..Config::default() };
        let term = Term::new(config, &Window(size), answers.clone());
        Self { term, parser: Processor::new(), answers }
    }

    pub fn process(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.term, bytes);
    }

    pub fn resize(&mut self, size: Size) {
        self.term.resize(Window(size));
    }

    pub fn size(&self) -> Size {
        let [rows, cols] = [self.term.screen_lines(), self.term.columns()];
        Size { rows: rows.try_into().unwrap(), cols: cols.try_into().unwrap() }
    }

    /// The answers to queries since the last call.
    pub fn answers(&mut self) -> Vec<u8> {
        mem::take(&mut self.answers.0.borrow_mut())
    }

    /// All that it shows, and its modes.
    pub fn view(&mut self) -> View {
        let mut view = self.part(true);
        let modes = *self.term.mode() - TermMode::URGENCY_HINTS;
        view.0.push(format!("{modes:?}"));
        view.0.push(format!("{:?}", self.term.cursor_style()));
        view
    }

    /// The part of the view that all judges of sequences know.
    pub fn common_view(&mut self) -> View {
        self.part(false)
    }

    fn part(&mut self, is_all: bool) -> View {
        // What an app holds back for a moment is shown in the end.
        self.parser.stop_sync(&mut self.term);
        let grid = self.term.grid();
        let row = |row: usize| {
            let at = Line(i32::try_from(row).unwrap());
            let cells = (0..grid.columns()).map(|col| &grid[at][Column(col)]);
            let cells = cells.filter(|cell| !cell.flags.contains(Flags::WIDE_CHAR_SPACER));
            cells.map(|cell| seen(cell, is_all)).collect()
        };
        let at = grid.cursor.point;
        let row_of_cursor = at.line.0.try_into().unwrap();
        let wraps = grid.cursor.input_needs_wrap;
        let cursor = Cursor { row: row_of_cursor, col: at.column.0, wraps };
        let modes = [
            TermMode::ALT_SCREEN,
            TermMode::INSERT,
            TermMode::ORIGIN,
            TermMode::LINE_WRAP,
            TermMode::APP_CURSOR,
            TermMode::APP_KEYPAD,
        ];
        let modes = modes.map(|mode| self.term.mode().contains(mode));
        View::new((0..grid.screen_lines()).map(row), &cursor, modes)
    }
}

fn seen(cell: &Cell, is_all: bool) -> Seen {
    let has = |flag| cell.flags.contains(flag);
    let underlined = if is_all { Flags::UNDERLINE } else { Flags::ALL_UNDERLINES };
    let flags = [
        (has(Flags::BOLD), "bold"),
        (has(Flags::DIM), "dim"),
        (has(Flags::ITALIC), "italic"),
        (cell.flags.intersects(underlined), "underline"),
        (has(Flags::INVERSE), "inverse"),
        (has(Flags::HIDDEN), "hidden"),
        (has(Flags::STRIKEOUT), "strike"),
        (is_all && has(Flags::DOUBLE_UNDERLINE), "underline-double"),
        (is_all && has(Flags::UNDERCURL), "underline-curly"),
        (is_all && has(Flags::DOTTED_UNDERLINE), "underline-dotted"),
        (is_all && has(Flags::DASHED_UNDERLINE), "underline-dashed"),
    ];
    let mut text = String::from(if cell.c == '\t' { ' ' } else { cell.c });
    text.extend(cell.zerowidth().unwrap_or_default());
    let mut fore = colour(cell.fg);
    if let Some(under) = cell.underline_color().filter(|_| is_all) {
        fore = fore + " under=" + &colour(under);
    }
    let link = cell.hyperlink().filter(|_| is_all);
    let link = link.map_or(String::new(), |link| link.uri().to_owned());
    Seen::new(&text, &flags, [&fore, &colour(cell.bg), &link])
}

fn colour(colour: Color) -> String {
    match colour {
        Color::Named(name) if name as usize >= 256 => String::new(),
        Color::Named(name) => (name as usize).to_string(),
        Color::Indexed(index) => index.to_string(),
        Color::Spec(rgb) => format!("#{:02x}{:02x}{:02x}", rgb.r, rgb.g, rgb.b),
    }
}
