//! What an app's terminal shows, and how to redraw it on any other terminal.
//!
//! ```text
//! bytes ─▶ scan ─┬▶ modes ──────────────▶┐
//!                ├▶ query ─▶ PendingQuery├▶ redraw
//!                └▶ model ─▶ draw ──────▶┘
//!                   model: text, grid, style, extras, tabs, reflow
//! ```
//!
//! [`known`] has all sequences. [`filter`] and [`restore`] are for a viewer's terminal: what of the bytes it gets, and how to undo that.
//!
//! No I/O, no clock. Invariant: for any bytes in any pieces, memory and time stay bounded, and
//! nothing panics.
//!
//! A redraw works on any xterm-like terminal, contains no query, and keeps the scrollback. It ends
//! with the incomplete sequence or character of the app, so that the app's next bytes continue it.

mod draw;
mod extras;
pub mod filter;
mod flood;
mod grid;
mod history;
mod known;
mod model;
pub mod modes;
mod palette;
pub mod query;
mod reflow;
pub mod replies;
pub mod restore;
pub mod scan;
pub mod shown;
pub(crate) mod style;
mod svg;
mod tabs;
mod text;
pub(crate) mod transcript;
pub mod viewer_events;

use std::fmt::Write;

use self::draw::{draw, put_cursor, set_tabs};
use self::filter::{RESTORE_TITLE, SAVE_TITLE, TITLES};
use self::flood::{FLOOD, Flood};
use self::model::{Model, StyledCursor};
use self::modes::{ScreenModes, is_closed};
use self::query::{PendingQuery, Query};
use self::scan::{Control, ESC, Piece, Scanner};
use crate::types::limits;
use crate::types::size::{Size, Window};

/// The screen of an app's terminal.
pub struct Screen {
    scanner: Scanner,
    state: State,
    /// The bytes of an incomplete character: the model takes complete ones only.
    begun: Vec<u8>,
}

/// The state that complete pieces change.
struct State {
    modes: ScreenModes,
    /// The app's window. The model may be smaller.
    window: Window,
    model: Model,
    /// The title of the window; empty until the app sets one.
    title: String,
    /// Titles that the app has saved.
    titles: Vec<String>,
    asked: Vec<PendingQuery>,
    /// Whether the app was told last that it has the focus, while it wants to know.
    told_focus: Option<bool>,
    /// Bytes of the app before the current ones.
    before: u64,
}

impl Screen {
    /// An empty screen of this size, or of the largest one that the model takes.
    pub fn new(size: Size) -> Self {
        let state = State {
            modes: ScreenModes::default(),
            window: size.into(),
            model: Model::new(size),
            title: String::new(),
            titles: Vec::new(),
            asked: Vec::new(),
            told_focus: None,
            before: 0,
        };
        Self { scanner: Scanner::default(), state, begun: Vec::new() }
    }

    /// Keeps the last lines that scroll off the main screen, this many at most.
    #[must_use]
    pub fn keeping(mut self, lines: usize) -> Self {
        self.state.model.history.keeps = lines;
        self
    }

    /// Keeps these rows that scroll off the main screen, to be [shown](Self::shown). A change of size
    /// ends that.
    #[must_use]
    pub fn showing_above(mut self, rows: usize) -> Self {
        self.state.model.keeps = rows;
        self
    }

    /// Processes output of the app.
    pub fn process(&mut self, bytes: &[u8]) {
        if !self.begun.is_empty() {
            let mut joined = std::mem::take(&mut self.begun);
            self.state.before -= joined.len() as u64;
            joined.extend_from_slice(bytes);
            return self.process(&joined);
        }
        let (whole, begun) = bytes.split_at(bytes.len() - scan::unfinished(bytes));
        self.pieces(whole);
        if self.scanner.is_in_text() || self.scanner.breaks_at_character() {
            self.begun.extend_from_slice(begun);
            self.state.before += begun.len() as u64;
        } else {
            self.pieces(begun);
        }
    }

    /// Processes bytes that do not end within a character, except inside a sequence.
    fn pieces(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while bytes.len() - at >= FLOOD {
            let mut end = at + FLOOD;
            if self.scanner.is_in_text() {
                let run = at + flood::run_len(&bytes[at..]);
                self.skip(&bytes[..run], &mut at);
                end = end.max(run);
            }
            self.scan(bytes, &mut at, end);
        }
        self.scan(bytes, &mut at, bytes.len());
        self.state.before += bytes.len() as u64;
    }

    /// Processes what scrolls away at the beginning of this run, from `at` on.
    fn skip(&mut self, run: &[u8], at: &mut usize) {
        let Some(flood) = self.state.flood(&run[*at..]) else { return };
        let (head, end) = (*at + flood.head, *at + flood.len);
        if self.state.model.keeps_history() {
            self.scan(&run[..head], at, head);
            self.state.model.keep_flood(&run[head..end]);
        }
        self.state.model.flooded(flood::looks(flood.skipped));
        *at = end;
    }

    /// Processes whole pieces from `at` on, until `end` is reached.
    fn scan(&mut self, bytes: &[u8], at: &mut usize, end: usize) {
        while *at < end
            && let Some(piece) = self.scanner.next(bytes, at)
        {
            self.state.piece(piece, *at);
        }
    }

    /// The size of the model.
    pub(crate) fn size(&self) -> Size {
        self.state.model.size()
    }

    /// Changes the size of the app's window.
    pub fn resize(&mut self, size: Size) {
        self.state.window = size.into();
        self.state.model.resize(size);
        self.state.modes.resized();
    }

    /// The app's window has its size, and these pixels until the next change.
    pub(crate) fn set_pixels(&mut self, window: Window) {
        self.state.window = window;
    }

    /// The app's queries since the last call, at most [`limits::QUERIES`].
    pub fn queries(&mut self) -> impl Iterator<Item = PendingQuery> + use<> {
        std::mem::take(&mut self.state.asked).into_iter()
    }

    /// The answer of a plain terminal, if it has one.
    pub fn answer(&self, asked: &PendingQuery) -> Option<Vec<u8>> {
        asked.answer(self.state.window, &self.state.modes)
    }

    /// The report of the app's new window, if the app wants it in its input.
    pub fn size_report(&self) -> Option<Vec<u8>> {
        let State { modes, window, .. } = &self.state;
        // Without pixels, a program that takes the mouse in pixels divides by 0.
        let is_safe = window.has_pixels() || !modes.points_in_pixels();
        (modes.reports_size() && is_safe).then(|| query::size_report(*window).into_bytes())
    }

    /// The report of the focus, if the app wants to know of it and was told something else.
    pub fn focus_report(&mut self, has_focus: bool) -> Option<&'static [u8]> {
        let State { modes, told_focus, .. } = &mut self.state;
        if !modes.reports_focus() {
            *told_focus = None;
            return None;
        }
        // A program that begins believes that it has the focus.
        let told = told_focus.replace(has_focus).unwrap_or(true);
        (told != has_focus).then_some(if has_focus { b"\x1b[I" } else { b"\x1b[O" })
    }

    /// The modes that the app has set.
    pub fn modes(&self) -> &ScreenModes {
        &self.state.modes
    }

    /// The bytes that print the lines above the screen, so that they scroll off a terminal with
    /// this window. [`Screen::redraw`] follows them.
    pub fn scrollback(&self, window: Size) -> Vec<u8> {
        let (model, window) = (&self.state.model, self.window(window));
        let cursor = if model.is_alternate() { model.saved(true) } else { &model.cursor() };
        let lines = model.lines_above(top_row(cursor, window));
        if lines.is_empty() {
            return lines;
        }
        let down = "\n".repeat(usize::from(window.rows) - 1);
        let parts: [&[u8]; 4] =
            [b"\x18\x1b[?7h", DEFAULT_CURSOR.as_bytes(), CLEAR.as_bytes(), &lines];
        [&parts.concat(), down.as_bytes()].concat()
    }

    /// The lines above the main screen and on it, as text with colours.
    pub fn text(&self) -> Vec<u8> {
        let model = &self.state.model;
        history::plain_lines(&model.lines_above(model.used_rows()))
    }

    /// A window for which zeros mean the app's own.
    fn window(&self, window: Size) -> Size {
        let size = self.state.model.size();
        let some = |wanted: u16, else_: u16| if wanted == 0 { else_ } else { wanted };
        Size { rows: some(window.rows, size.rows), cols: some(window.cols, size.cols) }
    }

    /// The bytes that draw the screen on a terminal with this window.
    ///
    /// In a larger window the screen is at the top left. A smaller window cuts columns on the
    /// right. It cuts rows of the main screen at the top, so that the cursor is visible, and rows
    /// of the alternate screen at the bottom.
    pub fn redraw(&self, window: Size) -> Vec<u8> {
        self.drawn(window, false)
    }

    /// The bytes that make another model equal to this one.
    pub fn copy(&self) -> Vec<u8> {
        self.drawn(Size { rows: 0, cols: 0 }, true)
    }

    /// See [`Screen::redraw`]. For a model it has also what a viewer's terminal must not do.
    fn drawn(&self, window: Size, for_model: bool) -> Vec<u8> {
        let State { modes, model, title, titles, .. } = &self.state;
        let window = self.window(window);
        // CAN breaks off a sequence that the terminal may be in.
        let mut out = String::from("\x18\x1b[?1049l");
        out.push_str(&modes.reset());
        out.push_str("\x1b[?25l");
        out.push_str(CLEAR);
        out.push_str(&set_tabs(model, window.cols));
        if !titles.is_empty() {
            // Those of the redraw before. The filter keeps the title from before attach.
            out.push_str(&RESTORE_TITLE.repeat(TITLES.into()));
        }
        // Until the app sets one, the window has its own: programs with full screens save that.
        let mut has_title = false;
        for (at, title) in titles.iter().chain([title]).enumerate() {
            has_title |= !title.is_empty();
            if has_title {
                let _ = write!(out, "\x1b]2;{title}\x1b\\");
            }
            if at < titles.len() {
                out.push_str(SAVE_TITLE);
            }
        }
        let mut top = 0;
        if model.is_alternate() {
            // Showing the alternate screen saves the cursor of the main one.
            let saved = model.saved(true);
            let top = top_row(saved, window);
            out.push_str(&draw(model, true, window, top));
            out.push_str(&self.state.put_saved(true, None, window, top));
            out.push_str(&modes.set_main_keyboard());
            // Some terminals have a hidden cursor for each screen.
            out.push_str("\x1b[?1049h\x1b[?25l");
            out.push_str(DEFAULT_CURSOR);
            out.push_str(modes.forget_keyboard());
            out.push_str("\x1b[H\x1b[2J");
        } else {
            top = top_row(&model.cursor(), window);
        }
        out.push_str(&draw(model, false, window, top));
        let region = self.state.region().filter(|(_, last)| top == 0 && *last <= window.rows);
        let margins = self.state.margins().filter(|(_, last)| *last <= window.cols);
        out.push_str(&self.state.put_saved(false, region, window, top));
        out.push_str("\x1b7");
        out.push_str(DEFAULT_CURSOR);
        if let Some((first, last)) = region {
            let _ = write!(out, "\x1b[{first};{last}r");
        }
        out.push_str(&modes.set_changed(for_model));
        if let Some((first, last)) = margins {
            let _ = write!(out, "\x1b[{first};{last}s");
        }
        let counted = modes.counts_from_region();
        let from = [region, margins].map(|limits| limits.filter(|_| counted));
        out.push_str(&self.state.put(false, &model.cursor(), from, window, top));
        out.push_str(&modes.charsets.select());
        if modes.shows_cursor() {
            out.push_str("\x1b[?25h");
        }
        let mut out = out.into_bytes();
        out.extend_from_slice(self.scanner.reopened());
        out.extend_from_slice(&self.begun);
        out
    }
}

/// Clears the screen. Some terminals keep a screen that is cleared from its first row on, and a
/// redraw is no news.
const CLEAR: &str = "\x1b[H\x1b[K\x1b[2H\x1b[J\x1b[H";
/// Undoes what [`State::put_saved`] sets.
const DEFAULT_CURSOR: &str = "\x1b(B\x1b)B\x0f\x1b[?6l\x1b[r\x1b[m";

/// The first row of a main screen that is shown.
fn top_row(cursor: &StyledCursor, window: Size) -> usize {
    (cursor.at.row + 1).saturating_sub(usize::from(window.rows))
}

impl State {
    /// The first and the last row of the scroll region, from 1, if it is not the whole screen.
    fn region(&self) -> Option<(u16, u16)> {
        let rows = self.model.size().rows;
        let (first, last) = self.modes.region?;
        let region = (first, last.min(rows));
        (first < region.1 && region != (1, rows)).then_some(region)
    }

    /// The first and the last column within the margins, from 1, if these are not the whole screen.
    fn margins(&self) -> Option<(u16, u16)> {
        let margins = self.model.margins(&self.modes);
        let number = |n| u16::try_from(n).unwrap_or(u16::MAX);
        let is_part = margins.len() < usize::from(self.model.size().cols);
        is_part.then(|| (number(margins.start + 1), number(margins.end)))
    }

    /// Puts a cursor where it is in a window that shows the screen from the row `top` on, and where
    /// rows and columns count from this region and these margins.
    fn put(
        &self,
        of_main: bool,
        cursor: &StyledCursor,
        [region, margins]: [Option<(u16, u16)>; 2],
        window: Size,
        top: usize,
    ) -> String {
        let last = usize::from(window.rows) - 1;
        let row = cursor.at.row.saturating_sub(top).min(last) + 1;
        let before =
            |limits: Option<(u16, u16)>| limits.map_or(0, |(first, _)| usize::from(first) - 1);
        let row = row.saturating_sub(before(region)).max(1);
        put_cursor(&self.model, of_main, cursor, (window, top), (row, before(margins)))
    }

    /// Puts the app's saved cursor on a drawn screen with default modes.
    fn put_saved(
        &self,
        of_main: bool,
        region: Option<(u16, u16)>,
        window: Size,
        top: usize,
    ) -> String {
        let (cursor, saved) = (self.model.saved(of_main), self.modes.saved(of_main));
        let row = cursor.at.row.saturating_sub(top) + 1;
        let is_in = |(first, last): &(u16, u16)| {
            saved.origin && (usize::from(*first)..=usize::from(*last)).contains(&row)
        };
        let region = region.filter(is_in);
        let mut out = String::new();
        if let Some((first, last)) = region {
            let _ = write!(out, "\x1b[{first};{last}r");
        }
        if saved.origin {
            out.push_str("\x1b[?6h");
        }
        out.push_str(&self.put(of_main, cursor, [region, None], window, top));
        out.push_str(&saved.charsets.select());
        out
    }

    /// What scrolls away at the beginning of this run.
    fn flood<'a>(&self, run: &'a [u8]) -> Option<Flood<'a>> {
        let is_odd = self.model.keeps_history() && !self.model.is_usual(&self.modes);
        if self.modes.is_shifted() || !self.modes.wraps() || is_odd {
            return None;
        }
        let (below, rows) = self.model.rows_until_scrolled(&self.modes)?;
        Flood::find(run, below, rows)
    }

    /// Processes a piece that ends `end` bytes after `before`.
    fn piece(&mut self, piece: Piece<'_>, end: usize) {
        match piece {
            Piece::Text(text) => self.model.print(text, &mut self.modes),
            Piece::Sequence(raw) => self.sequence(raw, end),
            Piece::Control(_) => {
                Query::of(piece, |query| self.ask(query, end));
                self.modes.read(piece);
            }
            Piece::Opaque(_) => {}
        }
    }

    fn sequence(&mut self, raw: &[u8], end: usize) {
        if let [ESC, b'[', numbers @ .., b'm'] = raw
            && numbers.first().is_none_or(|first| matches!(first, b'0'..=b';'))
        {
            return self.control(&Control { marker: 0, numbers, mark: 0, last: b'm' });
        }
        if let Some(text) = scan::string(raw) {
            Query::of(Piece::Sequence(raw), |query| self.ask(query, end));
            self.string(text);
            return self.modes.read(Piece::Sequence(raw));
        }
        if let Some((inner, raw)) = scan::inner_controls(raw) {
            self.model.print(&inner, &mut self.modes);
            return self.sequence(&raw, end);
        }
        if let Some(control) = Control::parse(raw) {
            match Query::control(&control) {
                Some(query) => {
                    self.ask(query, end);
                    if query == Query::Sizes {
                        self.control(&control);
                    }
                }
                None => self.control(&control),
            }
        } else {
            Query::of(Piece::Sequence(raw), |query| self.ask(query, end));
            self.modes.read(Piece::Sequence(raw));
            self.model.escape(raw, &self.modes);
            if raw == [ESC, b'c'] {
                (self.title, self.titles) = Default::default();
            }
        }
    }

    fn control(&mut self, control: &Control<'_>) {
        let is_plain = (control.marker, control.mark) == (0, 0);
        if !(is_plain && matches!(control.last, b'@'..=b'M' | b'P' | b'X' | b'm')) {
            self.modes.control(control);
        }
        if is_plain && control.last == b't' {
            self.stack_title(control.value(0), control.value(1));
        }
        self.model.control(control, &self.modes);
    }

    /// Saves the title (22) or restores it (23). One of the icon (1) is not modelled.
    fn stack_title(&mut self, action: u16, which: u16) {
        match (action, which) {
            (22, 0 | 2) => {
                if self.titles.len() == usize::from(TITLES) {
                    self.titles.remove(0);
                }
                self.titles.push(self.title.clone());
            }
            (23, 0 | 2) => {
                if let Some(title) = self.titles.pop() {
                    self.title = title;
                }
            }
            _ => {}
        }
    }

    /// Reads a string: a title, or a hyperlink.
    fn string(&mut self, (kind, text): (u8, &[u8])) {
        let clean = |text: &[u8]| -> String {
            String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect()
        };
        match text {
            [b'0' | b'2', b';', title @ ..] if kind == b']' => self.title = clean(title),
            [b'8', b';', link @ ..] if kind == b']' => {
                self.model.link((!is_closed(link)).then(|| clean(link).into()));
            }
            _ => {}
        }
    }

    fn ask(&mut self, query: Query, end: usize) {
        if self.asked.len() == limits::QUERIES {
            return;
        }
        let counted = self.modes.counts_from_region();
        let from = [self.region(), self.margins()].map(|limits| limits.filter(|_| counted));
        let [row, col] = from.map(|limits| limits.map_or(0, |(first, _)| first - 1));
        let place = self.model.place();
        let cursor = (place.0.saturating_sub(row).max(1), place.1.saturating_sub(col).max(1));
        self.asked.push(PendingQuery { query, end: self.before + end as u64, cursor });
    }
}

#[cfg(test)]
mod tests;
