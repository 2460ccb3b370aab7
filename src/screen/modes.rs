//! The terminal modes that a program has changed: how to undo them, and how to set them again.
//!
//! Constant memory. It knows the modes that outlive a program and that a fresh terminal lacks. It
//! does not know the content of the screen.

use std::fmt::Write;

use memchr::memchr;

use super::known::{MODES, ModeNumber, SAVED_CURSOR, shown_set};
use super::palette::Palette;
use super::scan::{Control, ESC, Piece, SHIFT_IN, SHIFT_OUT, inner_controls, string};
use super::tabs::TAB;

/// Keyboard modes that a program may push and pop.
const KEYBOARDS: usize = 8;

const WRAP: usize = index_of(true, 7);
const INSERT: usize = index_of(false, 4);
const NEWLINE: usize = index_of(false, 20);
const ORIGIN: usize = index_of(true, 6);
const REVERSE_WRAP: usize = index_of(true, 45);
/// The index of the first alternate screen.
const ALTERNATE: usize = MODES.len() - 3;

/// The index of a known mode.
const fn index_of(private: bool, number: u16) -> usize {
    let mut at = 0;
    while MODES[at].private != private || MODES[at].number != number {
        at += 1;
    }
    at
}

/// Reports of the terminal's size in its input. Not set again on a viewer's terminal: each redraw
/// would report the size of that window, and the mux reports the size of the app's.
pub(crate) const SIZE_REPORTS: u16 = 2048;
/// Reports of the focus in the input. Each client's terminal gets it, and the mux knows who has it.
const FOCUS: u16 = 1004;
/// The mouse in pixels.
const PIXELS: u16 = 1016;
/// Margins at the left and right.
const MARGINS: u16 = 69;
/// What few viewers' terminals have is reported as missing by the mux, so that no program uses it:
/// margins, and grapheme clusters, which are not drawn.
const RARE: [u16; 2] = [MARGINS, 2027];
/// Synchronized update. Not set again: the terminal would freeze until the update ends.
const UPDATE: u16 = 2026;
/// On the alternate screen the wheel sends cursor keys. On in most terminals, but not in all.
const WHEEL: u16 = 1007;
/// Cursor shown.
const CURSOR: u16 = 25;
/// Modes in which the mouse is reported.
const MOUSE_MODES: [u16; 5] = [9, 1000, 1001, 1002, 1003];
/// Modes in which a terminal reports pixels.
const IN_PIXELS: [u16; 2] = [PIXELS, SIZE_REPORTS];

/// The keyboard modes that a program has stacked on one screen (`CSI > … u`).
#[derive(Clone, Copy, Debug, Default)]
struct Keyboard {
    /// Set without a stack.
    base: u16,
    stack: [u16; KEYBOARDS],
    depth: usize,
    /// Those below that are no longer known: terminals differ in how many they keep.
    below: usize,
}

/// The state that `ESC 7` saves, apart from position and colours of the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Origin mode.
    pub(crate) origin: bool,
    pub(crate) charsets: Charsets,
}

/// The character sets G0 and G1, by their final bytes, and whether the second one is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charsets {
    sets: [u8; 2],
    shifted: bool,
}

impl Default for Charsets {
    fn default() -> Self {
        Self { sets: *b"BB", shifted: false }
    }
}

/// See the module.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a change of its own")]
pub struct ScreenModes {
    changed: [bool; MODES.len()],
    /// Modes that may be changed: also those that were changed back in a way that not all terminals
    /// know, by a soft reset or with the saved cursor.
    maybe_changed: [bool; MODES.len()],
    /// Whether a soft reset has changed the keypad, the region or the character sets.
    reset_more: bool,
    keypad: bool,
    /// The cursor shape, if it was ever set.
    cursor: Option<u16>,
    /// The encoding of keys with modifiers (`CSI > 4 … m`), if it was ever set.
    modified_keys: Option<u16>,
    /// For the main and the alternate screen.
    keyboards: [Keyboard; 2],
    keyboards_used: bool,
    /// Whether [`WHEEL`] is set, if it ever was switched.
    wheel: Option<bool>,
    pub(crate) charsets: Charsets,
    /// The saved state of the main and of the alternate screen.
    saved: [Saved; 2],
    /// The first and the last row of the scroll region, from 1, if it is not the whole screen.
    pub(crate) region: Option<(u16, u16)>,
    /// The first and the last column within the margins, from 1, while there can be any.
    pub(crate) margins: Option<(u16, u16)>,
    palette: Palette,
    /// Whether a hyperlink is open, if there ever was one.
    link: Option<bool>,
    /// Whether the window shows a progress (`OSC 9;4`). An attach passes it on only if it is allowed,
    /// and programs repeat it themselves, so a redraw does not.
    has_progress: bool,
    /// Whether the palette of the Linux console was changed (`OSC P`). A redraw does not repeat it.
    has_palette: bool,
    /// Whether tab stops were changed. Few terminals know the sequence that resets them.
    tabs: bool,
}

impl ScreenModes {
    /// Reads the modes that a piece changes.
    pub fn read(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Sequence(raw) => self.sequence(raw),
            Piece::Text(text) if self.charsets.shifted && memchr(SHIFT_IN, text).is_some() => {
                self.shift_in();
            }
            Piece::Control(SHIFT_OUT) => self.charsets.shifted = true,
            _ => {}
        }
    }

    /// Selects the first character set.
    pub(crate) fn shift_in(&mut self) {
        self.charsets.shifted = false;
    }

    /// The window has changed: the scroll region is the whole screen again.
    pub fn resized(&mut self) {
        (self.region, self.margins) = (None, None);
    }

    /// The bytes that undo all changes, on a terminal of this width.
    pub fn undo(&self, cols: u16) -> String {
        let mut out = self.palette.undo();
        if self.link == Some(true) {
            out.push_str(CLOSE_LINK);
        }
        if self.has_progress {
            out.push_str(NO_PROGRESS);
        }
        if self.has_palette {
            out.push_str(CONSOLE_PALETTE);
        }
        let (modes, alternates) = MODES.split_at(ALTERNATE);
        let undo = |out: &mut String, modes: &[ModeNumber], changed: &[bool]| {
            for (mode, _) in modes.iter().zip(changed).filter(|(_, changed)| **changed) {
                switch(out, mode, mode.usual);
            }
        };
        undo(&mut out, modes, &self.maybe_changed);
        if self.region.is_some() || self.reset_more {
            // This moves the cursor.
            out.push_str("\x1b7\x1b[r\x1b8");
        }
        if self.cursor.is_some_and(|style| style != 0) {
            out.push_str("\x1b[0 q");
        }
        if self.modified_keys.is_some_and(|value| value != 0) {
            out.push_str("\x1b[>4m");
        }
        if self.is_alternate() {
            self.keyboards[1].undo(&mut out);
        }
        undo(&mut out, alternates, &self.changed[ALTERNATE..]);
        if self.tabs {
            // Some terminals have stops for each screen.
            reset_tabs(&mut out, cols);
        }
        self.keyboards[0].undo(&mut out);
        if self.keypad || self.reset_more {
            out.push_str("\x1b>");
        }
        for (at, name) in ['(', ')'].into_iter().enumerate() {
            if self.charsets.sets[at] != b'B' || self.reset_more {
                let _ = write!(out, "\x1b{name}B");
            }
        }
        out
    }

    /// The bytes that set any terminal to default modes, and to the program's palette. The screen
    /// stays.
    pub(crate) fn reset(&self) -> String {
        let mut out = String::from("\x1b[r\x1b(B\x1b)B\x0f\x1b>\x1b[m");
        // Some terminals take at most 16 numbers.
        for modes in MODES[..ALTERNATE].chunks(16) {
            for (private, usual) in [(true, true), (true, false), (false, true), (false, false)] {
                let numbers: Vec<String> = modes
                    .iter()
                    .filter(|m| (m.private, m.usual) == (private, usual))
                    .filter(|m| self.wheel.is_some() || m.number != WHEEL)
                    .map(|m| m.number.to_string())
                    .collect();
                if !numbers.is_empty() {
                    let marker = if private { "?" } else { "" };
                    let last = if usual { 'h' } else { 'l' };
                    let _ = write!(out, "\x1b[{marker}{}{last}", numbers.join(";"));
                }
            }
        }
        // Few terminals know these: only if the program has used them.
        if self.cursor.is_some() {
            out.push_str("\x1b[0 q");
        }
        if self.modified_keys.is_some() {
            out.push_str("\x1b[>4m");
        }
        if self.link.is_some() {
            out.push_str(CLOSE_LINK);
        }
        out.push_str(&self.palette.repeat());
        out.push_str(self.forget_keyboard());
        out
    }

    /// The bytes that set all changed modes after [`ScreenModes::reset`], on the current screen.
    /// They move the cursor. With `reports` these include [`SIZE_REPORTS`].
    pub(crate) fn set_changed(&self, reports: bool) -> String {
        let mut out = String::new();
        for (mode, _) in MODES[..ALTERNATE].iter().zip(self.changed).filter(|(_, changed)| *changed)
        {
            let passed_over = mode.private
                && (matches!(mode.number, UPDATE | CURSOR)
                    || mode.number == SIZE_REPORTS && !reports);
            if !passed_over {
                switch(&mut out, mode, !mode.usual);
            }
        }
        if self.keypad {
            out.push_str("\x1b=");
        }
        if let Some(style) = self.cursor.filter(|style| *style != 0) {
            let _ = write!(out, "\x1b[{style} q");
        }
        if let Some(value) = self.modified_keys.filter(|value| *value != 0) {
            let _ = write!(out, "\x1b[>4;{value}m");
        }
        self.keyboards[usize::from(self.is_alternate())].set_changed(&mut out);
        out
    }

    /// The bytes that set the keyboard modes of the main screen, before the alternate one is shown.
    pub(crate) fn set_main_keyboard(&self) -> String {
        let mut out = String::new();
        self.keyboards[0].set_changed(&mut out);
        out
    }

    /// The bytes that reset the keyboard modes of the current screen.
    pub(crate) fn forget_keyboard(&self) -> &'static str {
        if self.keyboards_used { FORGET_KEYBOARDS } else { "" }
    }

    /// The state that was saved on the current screen, or on the main screen.
    pub(crate) fn saved(&self, of_main: bool) -> Saved {
        self.saved[usize::from(self.is_alternate() && !of_main)]
    }

    /// Whether a mode is set; `None` if it is unknown.
    pub(crate) fn is_set(&self, private: bool, number: u16) -> Option<bool> {
        let known = |mode: &ModeNumber| mode.private == private && mode.number == number;
        MODES.iter().position(known).map(|at| self.changed[at] != MODES[at].usual)
    }

    /// What a program learns about a mode; `None` if the screen does not have it.
    /// Whether the size in pixels is known is `has_pixels`.
    pub(crate) fn reported(&self, private: bool, number: u16, has_pixels: bool) -> Option<bool> {
        let is_missing = |is_set: bool| {
            private
                && (RARE.contains(&number) || IN_PIXELS.contains(&number) && !is_set && !has_pixels)
        };
        self.is_set(private, number).filter(|is_set| !is_missing(*is_set))
    }

    /// Whether the program wants reports of the terminal's size.
    pub(crate) fn reports_size(&self) -> bool {
        self.is_set(true, SIZE_REPORTS) == Some(true)
    }

    /// Whether the focus is to be reported.
    pub(crate) fn reports_focus(&self) -> bool {
        self.is_set(true, FOCUS) == Some(true)
    }

    /// Whether the mouse is reported.
    pub(crate) fn reports_mouse(&self) -> bool {
        MOUSE_MODES.iter().any(|number| self.is_set(true, *number) == Some(true))
    }

    /// Whether the mouse reports pixels.
    pub(crate) fn points_in_pixels(&self) -> bool {
        self.is_set(true, PIXELS) == Some(true)
    }

    /// The keyboard modes of the current screen.
    pub(crate) fn keyboard(&self) -> u16 {
        let Keyboard { base, stack, depth, .. } = self.keyboards[usize::from(self.is_alternate())];
        stack[..depth].last().copied().unwrap_or(base)
    }

    #[cfg(test)]
    pub(crate) fn undo_colours(&self) -> String {
        self.palette.undo()
    }

    /// Whether the cursor is shown.
    pub(crate) fn shows_cursor(&self) -> bool {
        self.is_set(true, CURSOR) == Some(true)
    }

    /// Whether origin mode is set: rows count from the scroll region.
    pub(crate) fn counts_from_region(&self) -> bool {
        self.changed[ORIGIN]
    }

    /// Whether text wraps.
    pub(crate) fn wraps(&self) -> bool {
        !self.changed[WRAP]
    }

    /// Whether text moves what is after it.
    pub(crate) fn inserts(&self) -> bool {
        self.changed[INSERT]
    }

    /// Whether the next line begins at its first column.
    pub(crate) fn returns_at_newline(&self) -> bool {
        self.changed[NEWLINE]
    }

    /// Whether a backspace at the beginning of a row goes back to the row before.
    pub(crate) fn goes_back_over_lines(&self) -> bool {
        self.changed[REVERSE_WRAP]
    }

    /// The final byte of the selected character set, of those that are drawn.
    pub(crate) fn charset(&self) -> u8 {
        self.charsets.sets[usize::from(self.charsets.shifted)]
    }

    /// Whether the second character set is selected.
    pub(crate) fn is_shifted(&self) -> bool {
        self.charsets.shifted
    }

    /// Whether `CSI … s` sets margins instead of saving the cursor.
    pub(crate) fn has_margins(&self) -> bool {
        self.is_set(true, MARGINS) == Some(true)
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        self.changed[ALTERNATE..].contains(&true)
    }

    fn sequence(&mut self, raw: &[u8]) {
        // Most sequences are colours.
        if matches!(raw, [ESC, b'[', b'0'..=b';', .., b'm'] | [ESC, b'[', b'm']) {
            return;
        }
        if let Some((inner, raw)) = inner_controls(raw) {
            if inner.contains(&SHIFT_IN) {
                self.shift_in();
            }
            return self.sequence(&raw);
        }
        match raw {
            [ESC, b'[', ..] => {
                if let Some(control) = Control::parse(raw) {
                    self.control(&control);
                }
            }
            [ESC, b'='] => self.keypad = true,
            [ESC, b'>'] => self.keypad = false,
            [ESC, b'7'] => self.save(),
            [ESC, b'8'] => self.restore(),
            [ESC, b'c'] => self.reset_all(),
            [ESC, b'(', set] => self.charsets.sets[0] = shown_set(*set),
            [ESC, b')', set] => self.charsets.sets[1] = shown_set(*set),
            [ESC, b'H'] => self.tabs = true,
            [ESC, b'#', b'8'] => (self.region, self.margins) = (None, None),
            [ESC, b']', b'P', ..] => self.has_palette = true,
            [ESC, b']', b'R', ..] => self.has_palette = false,
            [ESC, b']', ..] => self.command(string(raw).map_or(b"", |(_, text)| text)),
            _ => {}
        }
    }

    fn command(&mut self, text: &[u8]) {
        match text {
            [b'8', b';', link @ ..] => self.link = Some(!is_closed(link)),
            [b'9', b';', b'4', b';', state, ..] => self.has_progress = *state != b'0',
            _ => self.palette.read(text),
        }
    }

    /// Reads the modes that a control sequence changes.
    pub(crate) fn control(&mut self, control: &Control<'_>) {
        match (control.marker, control.mark, control.last) {
            (b'?' | 0, 0, last @ (b'h' | b'l')) => {
                control.values().for_each(|n| self.change(control.marker == b'?', n, last == b'h'));
            }
            (0, 0, b's') if self.has_margins() => limit(&mut self.margins, control),
            (0, 0, b's') => self.save(),
            (0, 0, b'u') => self.restore(),
            (0, 0, b'r') => limit(&mut self.region, control),
            (0, 0, b'g') => self.tabs = true,
            (0, b' ', b'q') => self.cursor = Some(control.value(0)),
            (0, b'!', b'p') => self.reset_softly(),
            (b'>', 0, b'm') if control.value(0) == 4 => self.modified_keys = Some(control.value(1)),
            (b'>', 0, b'm') if control.numbers.is_empty() => self.modified_keys = Some(0),
            (b'>', 0, b'n') if control.value(0) == 4 => self.modified_keys = Some(0),
            (b'>' | b'<' | b'=', 0, b'u') => {
                self.keyboards_used = true;
                self.keyboards[usize::from(self.is_alternate())].change(control);
            }
            _ => {}
        }
    }

    /// Switches a mode; some modes also save or restore the cursor.
    fn change(&mut self, private: bool, number: u16, on: bool) {
        match (private, number, on) {
            (true, SAVED_CURSOR, true) => self.save(),
            (true, SAVED_CURSOR, false) => self.restore(),
            (true, 1049, true) => {
                self.save();
                self.switch(private, number, on);
            }
            (true, 1049, false) => {
                self.switch(private, number, on);
                self.restore();
            }
            _ => self.switch(private, number, on),
        }
    }

    fn save(&mut self) {
        let saved = Saved { origin: self.counts_from_region(), charsets: self.charsets };
        self.saved[usize::from(self.is_alternate())] = saved;
    }

    fn restore(&mut self) {
        let Saved { origin, charsets } = self.saved(false);
        self.switch_perhaps(true, 6, origin);
        self.charsets = charsets;
    }

    /// Switches a mode in a way that not all terminals know.
    fn switch_perhaps(&mut self, private: bool, number: u16, on: bool) {
        let before = self.maybe_changed;
        self.switch(private, number, on);
        self.maybe_changed.iter_mut().zip(before).for_each(|(maybe, before)| *maybe |= before);
    }

    fn switch(&mut self, private: bool, number: u16, on: bool) {
        let known = |mode: &ModeNumber| mode.private == private && mode.number == number;
        let Some(at) = MODES.iter().position(known) else { return };
        self.changed[at] = on != MODES[at].usual;
        self.maybe_changed[at] = self.changed[at];
        if at >= ALTERNATE && !on {
            // Each of these numbers shows the main screen.
            self.changed[ALTERNATE..].fill(false);
        }
        if private && number == MARGINS && !on {
            self.margins = None;
        }
        if private && number == WHEEL {
            self.wheel = Some(on);
        }
    }

    fn reset_all(&mut self) {
        let mut palette = std::mem::take(&mut self.palette);
        palette.reset();
        *self = Self {
            cursor: self.cursor.map(|_| 0),
            modified_keys: self.modified_keys.map(|_| 0),
            keyboards_used: self.keyboards_used,
            wheel: self.wheel.map(|_| true),
            link: self.link.map(|_| false),
            palette,
            ..Self::default()
        };
    }

    fn reset_softly(&mut self) {
        self.reset_more |=
            self.keypad || self.region.is_some() || self.charsets != Charsets::default();
        for (private, number, on) in [
            (true, 1, false),
            (true, 6, false),
            (true, 7, true),
            (true, CURSOR, true),
            (true, MARGINS, false),
            (false, 2, false),
            (false, 4, false),
        ] {
            self.switch_perhaps(private, number, on);
        }
        (self.keypad, self.region, self.charsets) = (false, None, Charsets::default());
        self.saved[usize::from(self.is_alternate())] = Saved::default();
    }
}

/// Sets limits: the first and the last row or column. Those of the whole screen are none.
fn limit(limits: &mut Option<(u16, u16)>, control: &Control<'_>) {
    let first = control.value(0).max(1);
    let last = Some(control.value(1)).filter(|last| *last != 0).unwrap_or(u16::MAX);
    if first < last {
        *limits = Some((first, last)).filter(|limits| *limits != (1, u16::MAX));
    }
}

/// Whether the parameters and the address of a hyperlink (`OSC 8`) end it: it has no address.
pub(crate) fn is_closed(link: &[u8]) -> bool {
    memchr(b';', link).is_none_or(|at| at + 1 == link.len())
}

/// Takes the progress off the window.
const NO_PROGRESS: &str = "\x1b]9;4;0\x1b\\";
/// Resets the palette of the Linux console. Others see an unknown string.
const CONSOLE_PALETTE: &str = "\x1b]R\x1b\\";
/// Ends a hyperlink.
const CLOSE_LINK: &str = "\x1b]8;;\x1b\\";
/// Pops more than any program has pushed, which empties the stack and resets the modes.
const FORGET_KEYBOARDS: &str = "\x1b[<99u";

impl Keyboard {
    fn change(&mut self, control: &Control<'_>) {
        let value = control.value(0);
        match control.marker {
            b'>' => {
                if self.depth == KEYBOARDS {
                    self.stack.rotate_left(1);
                    self.depth -= 1;
                    self.below += 1;
                }
                self.stack[self.depth] = value;
                self.depth += 1;
            }
            b'<' => {
                let pops = usize::from(value.max(1));
                match self.below.checked_sub(pops.saturating_sub(self.depth)) {
                    Some(below) => {
                        (self.depth, self.below) = (self.depth.saturating_sub(pops), below);
                    }
                    None => *self = Self::default(),
                }
            }
            _ => {
                let top = match self.depth {
                    0 => &mut self.base,
                    depth => &mut self.stack[depth - 1],
                };
                *top = match control.value(1) {
                    2 => *top | value,
                    3 => *top & !value,
                    _ => value,
                };
            }
        }
    }

    fn undo(&self, out: &mut String) {
        let pushed = self.depth + self.below;
        if pushed > 0 {
            let _ = write!(out, "\x1b[<{pushed}u");
        }
        if self.base != 0 {
            out.push_str("\x1b[=0u");
        }
    }

    fn set_changed(&self, out: &mut String) {
        if self.base != 0 {
            let _ = write!(out, "\x1b[={}u", self.base);
        }
        for value in &self.stack[..self.depth] {
            let _ = write!(out, "\x1b[>{value}u");
        }
    }
}

impl Charsets {
    /// The bytes that select these, after the default ones.
    pub(crate) fn select(self) -> String {
        let mut out = String::new();
        for (name, set) in ['(', ')'].into_iter().zip(self.sets).filter(|(_, set)| *set != b'B') {
            let _ = write!(out, "\x1b{name}{}", char::from(set));
        }
        if self.shifted {
            out.push(char::from(SHIFT_OUT));
        }
        out
    }
}

/// Sets the usual tab stops. The one sequence for that comes last.
fn reset_tabs(out: &mut String, cols: u16) {
    out.push_str("\x1b7\x1b[3g");
    for col in (0..cols).step_by(TAB).skip(1) {
        let _ = write!(out, "\x1b[{}G\x1bH", col + 1);
    }
    out.push_str("\x1b8\x1b[?5W");
}

fn switch(out: &mut String, mode: &ModeNumber, on: bool) {
    let marker = if mode.private { "?" } else { "" };
    let _ = write!(out, "\x1b[{marker}{}{}", mode.number, if on { 'h' } else { 'l' });
}
