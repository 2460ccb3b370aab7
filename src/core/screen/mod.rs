//! What an app's terminal shows, and how to redraw it on any other terminal.
//!
//! ```text
//! bytes ─▶ scan ─┬▶ modes                    ─┐
//!                ├▶ query ─▶ Asked            ├▶ redraw
//!                └▶ dialect ─▶ model (vt100) ─┘   model ─▶ reflow
//! ```
//!
//! Pure. Invariant: for any bytes in any pieces, memory stays bounded and nothing panics. When the
//! emulator panics, it is dropped, and everything else goes on. Strings (titles, the clipboard,
//! pictures) never reach the emulator.
//!
//! A redraw works on any xterm-like terminal, contains no query, and keeps the scrollback. It ends
//! with the incomplete sequence or character of the app, so that the app's next bytes continue it.
//! Not redrawn, because the emulator does not know them: tab stops that the app has set, and
//! blinking, hidden and struck text.

mod dialect;
mod model;
pub mod modes;
pub mod query;
mod reflow;
pub mod replies;
pub mod scan;

use std::fmt::Write;

use super::screen::model::Model;
use super::screen::modes::{Saved, ScreenModes};
use super::screen::query::{PendingQuery, Query};
use super::screen::scan::{ESC, Piece, Scanner};
use crate::types::limits;
use crate::types::size::Size;

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
    model: Model,
    title: Option<String>,
    asked: Vec<PendingQuery>,
    /// Bytes of the app before the current ones.
    before: u64,
}

impl Screen {
    /// An empty screen of this size, or of the largest one that the model takes.
    pub fn new(size: Size) -> Self {
        let state = State {
            modes: ScreenModes::default(),
            model: Model::new(size),
            title: None,
            asked: Vec::new(),
            before: 0,
        };
        Self { scanner: Scanner::default(), state, begun: Vec::new() }
    }

    /// Processes output of the app.
    pub fn process(&mut self, bytes: &[u8]) {
        let rest = &bytes[self.finish_character(bytes)..];
        let (whole, begun) = rest.split_at(rest.len() - scan::unfinished(rest));
        self.pieces(whole);
        if self.scanner.is_in_text() {
            self.begun.extend_from_slice(begun);
            self.state.before += begun.len() as u64;
        } else {
            self.pieces(begun);
        }
    }

    /// Shows the incomplete character if these bytes complete it. Returns how many bytes belong to
    /// it.
    fn finish_character(&mut self, bytes: &[u8]) -> usize {
        if self.begun.is_empty() {
            return 0;
        }
        let mut used = 0;
        while scan::unfinished(&self.begun) > 0 {
            match bytes.get(used) {
                Some(byte @ 0x80..=0xbf) => self.begun.push(*byte),
                // Broken off: not a character.
                Some(_) => break,
                None => {
                    self.state.before += used as u64;
                    return used;
                }
            }
            used += 1;
        }
        self.state.piece(Piece::Text(&self.begun), 0);
        self.begun.clear();
        self.state.before += used as u64;
        used
    }

    /// Processes bytes that do not end within a character, except inside a sequence.
    fn pieces(&mut self, bytes: &[u8]) {
        let Self { scanner, state, .. } = self;
        // The emulator has got the bytes before `run`: it is fastest with large pieces.
        let (mut run, mut at) = (0, 0);
        let selectors = dialect::has_selector(bytes);
        loop {
            if !selectors && scanner.is_in_text() && !state.modes.has_special_text() {
                at += dialect::plain_len(&bytes[at..]);
            }
            let from = at;
            let Some(piece) = scanner.next(bytes, &mut at) else { break };
            let is_here = match piece {
                Piece::Sequence(raw) | Piece::Opaque(raw) => raw.len() == at - from,
                Piece::Text(_) | Piece::Control(_) => true,
            };
            if is_here && state.takes(piece, selectors) {
                continue;
            }
            state.model.process(&bytes[run..from]);
            run = at;
            state.piece(piece, at);
        }
        let held = self.scanner.held().len().min(bytes.len() - run);
        self.state.model.process(&bytes[run..bytes.len() - held]);
        self.state.before += bytes.len() as u64;
    }

    /// Changes the size of the app's window.
    pub fn resize(&mut self, size: Size) {
        self.state.model.resize(size);
        self.state.modes.resized();
    }

    /// Why the screen cannot be redrawn any more; returned once.
    pub fn why_off(&mut self) -> Option<String> {
        self.state.model.why()
    }

    /// The app's queries since the last call, at most [`limits::QUERIES`].
    pub fn queries(&mut self) -> impl Iterator<Item = PendingQuery> + '_ {
        self.state.asked.drain(..)
    }

    /// The answer of a plain terminal, if it has one.
    pub fn answer(&self, asked: &PendingQuery) -> Option<Vec<u8>> {
        asked.answer(self.state.model.size(), &self.state.modes)
    }

    /// The modes that the app has set.
    pub fn modes(&self) -> &ScreenModes {
        &self.state.modes
    }

    /// The bytes that draw the screen on a terminal with this window; `None` without a working
    /// model.
    ///
    /// In a larger window the screen is at the top left. A smaller window cuts columns on the
    /// right. It cuts rows of the main screen at the top, so that the cursor is visible, and rows
    /// of the alternate screen at the bottom.
    pub fn redraw(&self, window: Size) -> Option<Vec<u8>> {
        let State { modes, model, title, .. } = &self.state;
        if !model.works() {
            return None;
        }
        let size = model.size();
        let some = |wanted: u16, else_: u16| if wanted == 0 { else_ } else { wanted };
        let window =
            Size { rows: some(window.rows, size.rows), cols: some(window.cols, size.cols) };
        // CAN breaks off a sequence that the terminal may be in.
        let mut out = String::from("\x18\x1b[?1049l");
        out.push_str(&modes.reset());
        out.push_str("\x1b[?25l\x1b[H\x1b[J");
        if let Some(title) = title {
            let _ = write!(out, "\x1b]2;{title}\x1b\\");
        }
        let mut top = 0;
        if model.is_alternate() {
            let saved = modes.is_set(true, 1049) == Some(true);
            let main = model.main(saved);
            let top = top_row(&main, window);
            out.push_str(&main.draw(window, top));
            out.push_str(&main.put_cursor(window, top, main.cursor().0 - top + 1));
            out.push_str(&modes.set_main_keyboard());
            out.push_str("\x1b[?1049h");
            out.push_str(modes.forget_keyboard());
            out.push_str("\x1b[m\x1b[H\x1b[2J");
        } else {
            top = top_row(model, window);
        }
        out.push_str(&model.draw(window, top));
        let region = self.state.region().filter(|(_, last)| top == 0 && *last <= window.rows);
        if let Some(saved) = modes.saved() {
            out.push_str(&repeat_saved(model, saved, region, window, top));
        }
        if let Some((first, last)) = region {
            let _ = write!(out, "\x1b[{first};{last}r");
        }
        out.push_str(&modes.set_changed());
        let row = model.cursor().0.saturating_sub(top).min(window.rows - 1) + 1;
        let first = region.filter(|_| modes.counts_from_region()).map_or(1, |(first, _)| first);
        out.push_str(&model.put_cursor(window, top, row.saturating_sub(first - 1).max(1)));
        out.push_str(&modes.select_charsets());
        if modes.shows_cursor() {
            out.push_str("\x1b[?25h");
        }
        let mut out = out.into_bytes();
        out.extend_from_slice(&self.begun);
        out.extend_from_slice(self.scanner.held());
        Some(out)
    }
}

/// Repeats the app's saved cursor, on a drawn screen with default modes.
fn repeat_saved(
    model: &Model,
    saved: Saved,
    region: Option<(u16, u16)>,
    window: Size,
    top: u16,
) -> String {
    let model = model.restored();
    let row = model.cursor().0.saturating_sub(top).min(window.rows - 1) + 1;
    let region = region.filter(|(first, last)| saved.origin && (*first..=*last).contains(&row));
    let mut out = String::new();
    if let Some((first, last)) = region {
        let _ = write!(out, "\x1b[{first};{last}r");
    }
    if saved.origin {
        out.push_str("\x1b[?6h");
    }
    out.push_str(&model.put_cursor(window, top, row - region.map_or(0, |(first, _)| first - 1)));
    out.push_str(&saved.select_charsets());
    out.push_str("\x1b7\x1b(B\x1b)B\x0f\x1b[?6l\x1b[r\x1b[m");
    out
}

/// The first row of a main screen that is shown.
fn top_row(model: &Model, window: Size) -> u16 {
    model.cursor().0.saturating_sub(window.rows - 1)
}

impl State {
    /// The first and the last row of the scroll region, from 1, if it is not the whole screen.
    fn region(&self) -> Option<(u16, u16)> {
        let rows = self.model.size().rows;
        let (first, last) = self.modes.region()?;
        let region = (first, last.min(rows));
        (first < region.1 && region != (1, rows)).then_some(region)
    }

    /// Whether the emulator can process a piece unchanged, together with its neighbours; its modes
    /// are then read. Most of a stream is of this kind.
    fn takes(&mut self, piece: Piece<'_>, selectors: bool) -> bool {
        let Piece::Sequence(raw) = piece else {
            return match piece {
                Piece::Text(text) => {
                    !(self.modes.has_special_text() || selectors && dialect::has_selector(text))
                }
                _ => false,
            };
        };
        match raw {
            _ if dialect::plain_len(raw) == raw.len() => true,
            [ESC, b'M'] => true,
            [ESC, b'(' | b')', _] | [ESC, b'7' | b'8' | b'=' | b'>'] => {
                self.modes.read(piece);
                true
            }
            // Alternate screens, saved cursors and the end of no-wrap are translated elsewhere.
            [ESC, b'[', b'?', numbers @ .., b'h' | b'l']
                if self.modes.wraps()
                    && !numbers.windows(3).any(|part| part == b"104")
                    && !numbers.ends_with(b"47") =>
            {
                self.modes.read(piece);
                true
            }
            _ => false,
        }
    }

    /// Processes a piece that ends `end` bytes after `before`. The emulator has everything before
    /// it.
    fn piece(&mut self, piece: Piece<'_>, end: usize) {
        match piece {
            Piece::Text(text) => dialect::show_text(text, &mut self.modes, &mut self.model),
            _ if Query::of(piece, |query| self.ask(query, end)) => {}
            Piece::Control(_) => {}
            Piece::Sequence(raw) => self.sequence(raw),
            Piece::Opaque(_) => return,
        }
        self.modes.read(piece);
    }

    fn sequence(&mut self, raw: &[u8]) {
        if let Some((kind, text)) = scan::string(raw) {
            if kind == b']' && (text.starts_with(b"0;") || text.starts_with(b"2;")) {
                let text = String::from_utf8_lossy(&text[2..]);
                self.title = Some(text.chars().filter(|c| !c.is_control()).collect());
            }
            return;
        }
        if let [ESC, b'[', b'J'] | [ESC, b'[', b'0' | b'2', b'J'] = raw {
            return self.model.erase(raw, raw[2] == b'2');
        }
        match dialect::translate(raw, &self.modes, &self.model) {
            Some(known) => self.model.process(&known),
            None => self.model.process(raw),
        }
        if raw == b"\x1bc" {
            self.title = None;
        }
    }

    fn ask(&mut self, query: Query, end: usize) {
        if self.asked.len() == limits::QUERIES {
            return;
        }
        let (row, col) = self.model.cursor();
        let size = self.model.size();
        let (row, col) = (row.min(size.rows - 1) + 1, col.min(size.cols - 1) + 1);
        let region = self.region().filter(|_| self.modes.counts_from_region());
        let first = region.map_or(1, |(first, _)| first);
        let cursor = (row.saturating_sub(first - 1).max(1), col);
        self.asked.push(PendingQuery { query, end: self.before + end as u64, cursor });
    }
}

#[cfg(test)]
mod tests;
