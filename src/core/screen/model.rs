//! The cells of a terminal: the only file that knows the emulator (the vt100 crate).
//!
//! It takes complete sequences and text. A panic inside it is caught and silent. It ends the model,
//! never the caller, and its reason is kept. Memory: see [`limits::CELLS`].

use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::num::NonZeroU16;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use vt100::{Color, Parser};

use super::reflow::{CellPosition, Glyph, Row, reflow};
use super::scan;
use crate::types::limits;
use crate::types::size::Size;

/// Most rows of that model: the emulator finds a row by counting from the first.
const MODEL_ROWS: u16 = 500;
/// Fewest columns of that model: a wide character takes two.
const MODEL_COLS: u16 = 2;

/// See the module.
pub(crate) struct Model {
    /// `None` after the emulator has panicked.
    parser: Option<Parser>,
    why: Option<String>,
    /// The last large window. While the window is smaller, rows that no longer fit are kept, so
    /// that they are there again when the client with the small window has gone.
    largest: Size,
    /// A copy from before the first resize on the alternate screen. The main screen is resized from
    /// this copy when it is shown again.
    unresized: Option<Box<Model>>,
    /// The screen is erased from here to its end, with this look.
    erased: Option<((u16, u16), Look)>,
    /// How often the emulator has erased a part of the screen.
    #[cfg(test)]
    pub(crate) erasures: usize,
}

/// The colours and attributes of text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    text: Color,
    back: Color,
    /// Bold, dim, italic, underline, inverse.
    flags: [bool; 5],
}

const PLAIN: Look = Look { text: Color::Default, back: Color::Default, flags: [false; 5] };
/// The look of a space that marks the end of a rewrapped line, where the line would seem to
/// continue ([`may_wrap`]). Programs do not print such a space in the last column.
const END: Look = Look { flags: [false, true, true, false, false], ..PLAIN };
/// The numbers that select these flags.
const FLAGS: [u8; 5] = [1, 2, 3, 4, 7];

impl Model {
    /// An empty screen.
    pub(crate) fn new(size: Size) -> Self {
        let (rows, cols) = bounded(size);
        let largest = Size { rows: rows.get(), cols: cols.get() };
        let mut model = Self {
            parser: None,
            why: None,
            largest,
            unresized: None,
            erased: None,
            #[cfg(test)]
            erasures: 0,
        };
        match contain(|| Parser::new(rows, cols, 0)) {
            Ok(parser) => model.parser = Some(parser),
            Err(why) => model.why = Some(why),
        }
        model
    }

    /// Processes bytes. An incomplete character at the end is dropped: of a character in two pieces
    /// the emulator sometimes loses what follows it.
    pub(crate) fn process(&mut self, bytes: &[u8]) {
        let (mut whole, mut end) = (bytes, usize::MAX);
        // Another incomplete character may be before the dropped one.
        while whole.len() < end {
            end = whole.len();
            whole = &whole[..end - scan::unfinished(whole)];
        }
        if whole.is_empty() {
            return;
        }
        if !moves_only(whole) {
            self.erased = None;
        }
        self.with(|parser| parser.process(whole));
        if !self.is_alternate()
            && let Some(mut main) = self.unresized.take()
        {
            main.process(whole);
            main.resize(self.size());
            *self = *main;
        }
    }

    /// Erases from the cursor to the end of the screen (`ED 0`), or all of it (`ED 2`). In a large
    /// window this is expensive, so an erased screen is not erased again.
    pub(crate) fn erase(&mut self, raw: &[u8], all: bool) {
        let Some(look) = self.parser.as_ref().map(|parser| current(parser.screen())) else {
            return;
        };
        let from = if all { (0, 0) } else { self.cursor() };
        let erased = self.erased.filter(|(_, with)| *with == look).map(|(at, _)| at);
        if erased.is_some_and(|at| at <= from) {
            return;
        }
        #[cfg(test)]
        {
            self.erasures += 1;
        }
        self.process(raw);
        self.erased = Some((from, look));
    }

    /// Changes the size: lines are rewrapped, and rows that do not fit are dropped at the top.
    pub(crate) fn resize(&mut self, size: Size) {
        let (rows, cols) = bounded(size);
        let size = Size { rows: rows.get(), cols: cols.get() };
        if size == self.size() {
            return;
        }
        self.erased = None;
        if self.is_alternate() {
            if self.unresized.is_none() {
                self.unresized = Some(Box::new(self.copy()));
            }
            return self.with(|parser| parser.set_size(rows, cols));
        }
        let mut above = 0;
        if rows.get() >= self.largest.rows && cols.get() >= self.largest.cols {
            self.largest = size;
        } else {
            // Wide characters may leave the last column empty.
            let pieces = self.largest.cols.div_ceil(cols.get() - 1);
            above = usize::from(self.largest.rows) * usize::from(pieces);
            // In a window that is wider than the large one, each row above takes more.
            above = above.min(limits::CELLS / usize::from(cols.get()));
        }
        self.with(|parser| *parser = resized(parser, (rows, cols), above));
    }

    /// Why the model does not work any more; returned once.
    pub(crate) fn why(&mut self) -> Option<String> {
        self.why.take()
    }

    /// Whether the emulator works.
    pub(crate) fn works(&self) -> bool {
        self.parser.is_some()
    }

    /// The size of the model.
    pub(crate) fn size(&self) -> Size {
        let size = self.parser.as_ref().map(|parser| parser.screen().size());
        size.map_or(Size { rows: 1, cols: 1 }, |(rows, cols)| Size {
            rows: rows.get(),
            cols: cols.get(),
        })
    }

    /// The row and column of the cursor, from 0. The column is after the last one when the next
    /// character wraps.
    pub(crate) fn cursor(&self) -> (u16, u16) {
        self.parser.as_ref().map_or((0, 0), |parser| parser.screen().cursor_position())
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        self.parser.as_ref().is_some_and(|parser| parser.screen().alternate_screen())
    }

    /// A copy that shows the main screen behind the alternate one, as it will be when the program
    /// leaves, with the saved cursor if `saved`.
    pub(crate) fn main(&self, saved: bool) -> Self {
        let mut main = self.unresized.as_deref().unwrap_or(self).copy();
        main.process(if saved { b"\x1b[?1049l" } else { b"\x1b[?47l" });
        main.resize(self.size());
        main
    }

    /// A copy of the screens that it shows: a large model is not to be copied twice.
    fn copy(&self) -> Self {
        let mut copy = Self::new(self.size());
        copy.largest = self.largest;
        copy.with(|parser| {
            if let Some(from) = &self.parser {
                *parser.screen_mut() = from.screen().clone();
            }
        });
        copy
    }

    /// A copy with the cursor that the program has saved on the current screen.
    pub(crate) fn restored(&self) -> Self {
        let mut restored = self.copy();
        restored.process(b"\x1b8");
        restored
    }

    /// The bytes that draw on a cleared screen of this size, from the row `top` on. They leave the
    /// cursor anywhere.
    pub(crate) fn draw(&self, window: Size, top: u16) -> String {
        let draw = |parser: &Parser| contain(|| draw(parser.screen(), window, top)).ok();
        self.parser.as_ref().and_then(draw).unwrap_or_default()
    }

    /// The bytes that move the cursor to this row of the window (from 1) and select its look.
    pub(crate) fn put_cursor(&self, window: Size, top: u16, row: u16) -> String {
        let put = |parser: &Parser| contain(|| put_cursor(parser.screen(), window, top, row)).ok();
        self.parser.as_ref().and_then(put).unwrap_or_default()
    }

    fn with(&mut self, work: impl FnOnce(&mut Parser)) {
        let Some(parser) = &mut self.parser else { return };
        // A parser that has panicked is not used again.
        if let Err(why) = contain(|| work(parser)) {
            self.parser = None;
            self.why = Some(why);
        }
    }
}

/// Whether these bytes only move the cursor and select a look.
fn moves_only(mut bytes: &[u8]) -> bool {
    while let [scan::ESC, b'[', body @ ..] = bytes {
        let Some(end) = body.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';')) else {
            return false;
        };
        if !matches!(body[end], b'A'..=b'H' | b'd' | b'f' | b'm') {
            return false;
        }
        bytes = &body[end + 1..];
    }
    bytes.is_empty()
}

/// The size clamped to the limits of the emulator and of our memory.
fn bounded(size: Size) -> (NonZeroU16, NonZeroU16) {
    let most = u16::try_from(limits::CELLS / usize::from(MODEL_COLS)).unwrap_or(u16::MAX);
    let cols = size.cols.clamp(MODEL_COLS, most);
    let rows = u16::try_from(limits::CELLS / usize::from(cols)).unwrap_or(u16::MAX);
    let rows = size.rows.min(rows).min(MODEL_ROWS);
    (
        NonZeroU16::new(rows).unwrap_or(NonZeroU16::MIN),
        NonZeroU16::new(cols).unwrap_or(NonZeroU16::MIN),
    )
}

thread_local! {
    /// Whether this thread runs the emulator.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs something that may panic, silently.
fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                report(info);
            }
        }));
    });
    CONTAINED.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(false);
    done.map_err(|panic| reason(&*panic))
}

/// The message of a panic, as a part of a line.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").escape_debug().take(limits::REASON).collect()
}

/// A screen in another size, which keeps this many rows `above` it. Empty rows below the cursor are
/// dropped first, then rows at the top.
fn resized(parser: &mut Parser, size: (NonZeroU16, NonZeroU16), above: usize) -> Parser {
    let mut old = all_rows(parser.screen_mut());
    let now = take_cursor(parser);
    parser.process(b"\x1b8");
    let saved = take_cursor(parser);
    while old.len() > now.at.row + 1 && old.last().is_some_and(|row| row.glyphs.is_empty()) {
        old.pop();
    }
    let (rows, [at, saved_at]) = reflow(old, size.1.get(), [now.at, saved.at]);
    let height = usize::from(size.0.get());
    let top = rows.len().saturating_sub(height).min(at.row);
    let kept = &rows[top.saturating_sub(above)..rows.len().min(top + height)];
    let mut pen = Pen { out: String::new(), at: None, look: PLAIN };
    for (number, row) in kept.iter().enumerate() {
        for glyph in &row.glyphs {
            pen.glyph(glyph);
        }
        let Some(next) = kept.get(number + 1) else { continue };
        if !row.wraps && may_wrap(row, next, size.1.get()) {
            pen.look(END);
            pen.out.push(' ');
        }
        if !row.wraps || row.len() < size.1.get() {
            pen.out.push_str("\r\n");
        }
    }
    pen.origin(saved.counts_from_region);
    pen.move_to(saved_at, top);
    pen.look(saved.look);
    pen.out.push_str("\x1b7");
    pen.origin(now.counts_from_region);
    pen.move_to(at, top);
    if let Some(last) = rows.get(at.row).and_then(|row| row.glyphs.last())
        && at.col == size.1.get()
    {
        // After the last column: only printing a character there moves the cursor to it.
        pen.move_to(CellPosition { col: at.col - last.cols, ..at }, top);
        pen.glyph(last);
    }
    pen.look(now.look);
    let mut parser = Parser::new(size.0, size.1, above);
    parser.process(pen.out.as_bytes());
    parser
}

/// A cursor and its state, with its position in all rows.
struct ScreenCursor {
    at: CellPosition,
    look: Look,
    /// Origin mode.
    counts_from_region: bool,
}

/// Takes the cursor of a screen that is not needed any more: origin mode shows only by moving the
/// cursor.
fn take_cursor(parser: &mut Parser) -> ScreenCursor {
    let screen = parser.screen();
    let (row, col) = screen.cursor_position();
    let at = CellPosition { row: screen.scrollback_len() + usize::from(row), col };
    let look = current(screen);
    parser.process(b"\x1b[2r\x1b[H");
    ScreenCursor { at, look, counts_from_region: parser.screen().cursor_position().0 > 0 }
}

/// The rows above the screen, and its own.
fn all_rows(screen: &mut vt100::Screen) -> Vec<Row<Look>> {
    let height = screen.size().0.get();
    let mut above = screen.scrollback_len();
    let mut rows: Vec<Row<Look>> = Vec::new();
    loop {
        screen.set_scrollback(above);
        let seen = u16::try_from(above).unwrap_or(u16::MAX).min(height);
        let seen = if seen == 0 { height } else { seen };
        rows.extend((0..seen).map(|row| one_row(screen, row)));
        if above == 0 {
            break;
        }
        above -= usize::from(seen);
    }
    // Where a wide character did not fit, the emulator does not know that the line wraps. This is a
    // guess that is mostly right.
    let cols = screen.size().1.get();
    for at in 1..rows.len() {
        let [row, next] = &mut rows[at - 1..=at] else { break };
        let ends = row.glyphs.pop_if(|glyph| glyph.text == " " && glyph.look == END).is_some();
        row.wraps |= !ends && may_wrap(row, next, cols);
    }
    rows
}

/// Whether a row may end before its last column because the next row begins with a wide character.
fn may_wrap(row: &Row<Look>, next: &Row<Look>, cols: u16) -> bool {
    row.len() == cols - 1 && next.glyphs.first().is_some_and(|glyph| glyph.cols == 2)
}

fn one_row(screen: &vt100::Screen, row: u16) -> Row<Look> {
    let wraps = screen.row_wrapped(row);
    let (mut glyphs, mut blanks, mut col) = (Vec::new(), 0, 0);
    while let Some(cell) = screen.cell(row, col) {
        let whole = is_whole(screen, row, col);
        let text = if whole { cell.contents().to_owned() } else { String::new() };
        let cols = if whole && cell.is_wide() { 2 } else { 1 };
        let look = if whole { look(cell) } else { Look { back: cell.bgcolor(), ..PLAIN } };
        col += cols;
        if !wraps && text.is_empty() && look == PLAIN {
            // A wide window is mostly empty, and each glyph takes more than its cell.
            blanks += 1;
            continue;
        }
        let blank = || Glyph { text: String::new(), cols: 1, look: PLAIN };
        glyphs.extend(std::iter::repeat_with(blank).take(std::mem::take(&mut blanks)));
        glyphs.push(Glyph { text, cols, look });
    }
    Row { glyphs, wraps }
}

fn draw(screen: &vt100::Screen, window: Size, top: u16) -> String {
    let (rows, cols) = screen.size();
    let mut pen = Pen { out: String::new(), at: None, look: PLAIN };
    // A wrapped line is drawn so that the terminal wraps it, too.
    let same = cols.get() == window.cols;
    for row in top..rows.get().min(top.saturating_add(window.rows)) {
        let wraps = same && row > top && screen.row_wrapped(row - 1);
        draw_row(screen, &mut pen, row, row - top, window.cols, wraps);
    }
    pen.look(PLAIN);
    pen.out
}

fn draw_row(
    screen: &vt100::Screen,
    pen: &mut Pen,
    row: u16,
    to: u16,
    window_cols: u16,
    wraps: bool,
) {
    let cols = screen.size().1.get();
    let shown = cols.min(window_cols);
    let cell = |col: u16| screen.cell(row, col);
    let mut col = 0;
    while col < shown {
        let Some(this) = cell(col) else { break };
        let width = if this.is_wide() { 2 } else { 1 };
        if is_whole(screen, row, col) && col + width <= shown {
            let behind_the_last = pen.at == Some((to.wrapping_sub(1), cols));
            if !(wraps && col == 0 && behind_the_last) {
                pen.go(to, col);
            }
            pen.look(look(this));
            pen.out.push_str(this.contents());
            // Terminals disagree on the width of combined characters.
            pen.at = (this.contents().chars().nth(1).is_none()).then_some((to, col + width));
            col += width;
            continue;
        }
        let back = this.bgcolor();
        let is_same = |col: u16| {
            !is_whole(screen, row, col) && cell(col).is_some_and(|cell| cell.bgcolor() == back)
        };
        let end = (col + 1..shown).find(|col| !is_same(*col)).unwrap_or(shown);
        if back != Color::Default {
            pen.go(to, col);
            pen.look(Look { back, ..PLAIN });
            let _ = write!(pen.out, "\x1b[{}X", end - col);
        }
        col = end;
    }
}

/// Whether this cell holds a complete character.
fn is_whole(screen: &vt100::Screen, row: u16, col: u16) -> bool {
    screen.cell(row, col).is_some_and(|cell| {
        let other_half =
            || screen.cell(row, col + 1).is_some_and(vt100::Cell::is_wide_continuation);
        cell.has_contents() && (!cell.is_wide() || other_half())
    })
}

fn put_cursor(screen: &vt100::Screen, window: Size, top: u16, row: u16) -> String {
    let (rows, cols) = screen.size();
    let mut pen = Pen { out: String::new(), at: None, look: PLAIN };
    let (from, col) = screen.cursor_position();
    let fits = from >= top && from - top < window.rows && cols.get() == window.cols;
    let last = cols.get() - 1;
    if col > last && fits && from < rows.get() {
        // After the last column: only drawing a character there moves the cursor to it.
        let wide = screen.cell(from, last).is_some_and(vt100::Cell::is_wide_continuation);
        let at = if wide { last - 1 } else { last };
        let cell = screen.cell(from, at);
        let whole = is_whole(screen, from, at);
        let contents = cell.filter(|_| whole).map_or(" ", vt100::Cell::contents);
        let _ = write!(pen.out, "\x1b[{row};{}H", at + 1);
        pen.look(cell.map_or(PLAIN, look));
        pen.out.push_str(contents);
    } else {
        let _ = write!(pen.out, "\x1b[{row};{}H", col.min(window.cols.saturating_sub(1)) + 1);
    }
    pen.look(current(screen));
    pen.out
}

/// The look of the next character.
fn current(screen: &vt100::Screen) -> Look {
    Look {
        text: screen.fgcolor(),
        back: screen.bgcolor(),
        flags: [screen.bold(), screen.dim(), screen.italic(), screen.underline(), screen.inverse()],
    }
}

fn look(cell: &vt100::Cell) -> Look {
    if !cell.has_contents() {
        // Erased cells have only a background colour.
        return Look { back: cell.bgcolor(), ..PLAIN };
    }
    Look {
        text: cell.fgcolor(),
        back: cell.bgcolor(),
        flags: [cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse()],
    }
}

/// Draws on a terminal, whose cursor and look it knows.
struct Pen {
    out: String,
    at: Option<(u16, u16)>,
    look: Look,
}

impl Pen {
    /// Prints a glyph at the cursor.
    fn glyph(&mut self, glyph: &Glyph<Look>) {
        self.look(glyph.look);
        self.at = None;
        self.out.push_str(if glyph.text.is_empty() { " " } else { &glyph.text });
    }

    /// Moves the cursor to a position in rows of which `top` is the first one on the screen.
    fn move_to(&mut self, position: CellPosition, top: usize) {
        let row = u16::try_from(position.row.saturating_sub(top)).unwrap_or(u16::MAX);
        self.go(row, position.col);
    }

    /// Sets origin mode, which moves the cursor.
    fn origin(&mut self, counts_from_region: bool) {
        self.at = None;
        self.out.push_str(if counts_from_region { "\x1b[?6h" } else { "\x1b[?6l" });
    }

    fn go(&mut self, row: u16, col: u16) {
        if self.at != Some((row, col)) {
            let _ = write!(self.out, "\x1b[{};{}H", row + 1, col + 1);
            self.at = Some((row, col));
        }
    }

    fn look(&mut self, look: Look) {
        if self.look == look {
            return;
        }
        self.look = look;
        self.out.push_str("\x1b[0");
        for (number, _) in FLAGS.iter().zip(look.flags).filter(|(_, on)| *on) {
            let _ = write!(self.out, ";{number}");
        }
        self.colour(look.text, 30);
        self.colour(look.back, 40);
        self.out.push('m');
    }

    fn colour(&mut self, colour: Color, first: u8) {
        let _ = match colour {
            Color::Default => Ok(()),
            Color::Idx(n @ 0..=7) => write!(self.out, ";{}", first + n),
            Color::Idx(n @ 8..=15) => write!(self.out, ";{}", first + 52 + n),
            Color::Idx(n) => write!(self.out, ";{};5;{n}", first + 8),
            Color::Rgb(r, g, b) => write!(self.out, ";{};2;{r};{g};{b}", first + 8),
        };
    }
}

#[cfg(test)]
impl Model {
    /// Everything visible, row by row; spaces count as erased cells.
    pub(crate) fn seen(&self) -> Vec<String> {
        let Some(parser) = &self.parser else { return Vec::new() };
        let screen = parser.screen();
        let (rows, cols) = screen.size();
        let mut seen =
            vec![format!("{:?} {}", screen.cursor_position(), screen.alternate_screen())];
        for row in 0..rows.get() {
            let mut line = String::new();
            for (col, cell) in (0..cols.get()).filter_map(|col| Some((col, screen.cell(row, col)?)))
            {
                let mut look = look(cell);
                let empty = cell.contents() == " " && !look.flags[3] && !look.flags[4];
                let blank = empty || !is_whole(screen, row, col);
                if blank {
                    look = Look { back: look.back, ..PLAIN };
                }
                let mut pen = Pen { out: String::new(), at: None, look: PLAIN };
                pen.look(look);
                line += &pen.out;
                line += if blank { "." } else { cell.contents() };
            }
            seen.push(line);
        }
        let mut pen = Pen { out: String::new(), at: None, look: PLAIN };
        pen.look(current(screen));
        seen.push(pen.out);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_ends_the_model_only() {
        let mut model = Model::new(Size { rows: 3, cols: 10 });
        model.process(b"text");
        assert!(model.works() && model.why().is_none());
        model.with(|_| panic!("an index\n\x1b is wrong"));
        assert!(!model.works());
        assert_eq!(model.why().as_deref(), Some("an index\\n\\u{1b} is wrong"));
        assert_eq!(model.why(), None);
        model.process(b"text");
        model.resize(Size { rows: 1, cols: 1 });
        assert_eq!(model.draw(Size { rows: 3, cols: 10 }, 0), "");
        // Other panics are still reported.
        assert!(!CONTAINED.get());
    }

    #[test]
    fn sizes_are_bounded() {
        for (rows, cols) in [(0, 0), (1, 1), (24, 80), (65535, 65535), (65535, 1), (1, 65535)] {
            let size = Model::new(Size { rows, cols }).size();
            assert!((1..=MODEL_ROWS).contains(&size.rows) && size.cols >= MODEL_COLS, "{size:?}");
            assert!(usize::from(size.rows) * usize::from(size.cols) <= limits::CELLS, "{size:?}");
        }
        let usual = Size::DEFAULT;
        assert_eq!(Model::new(usual).size(), usual);
    }
}
