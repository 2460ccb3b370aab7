//! Lines for the user, on a terminal that shows the app's output.
//!
//! If the mux redraws the screen, a line lies over the app's output for [`NOTE`], or until the user
//! types, and the redraw then removes it. Otherwise a line follows the output, or is on the last row
//! of a full screen.

use std::time::{Duration, Instant};

use super::local_terminal;
use crate::sys::diagnostics;

/// How long a line of ours stays on an app's full screen before a redraw: long enough to be read
/// twice.
const NOTE: Duration = Duration::from_secs(5);
/// The same once the user types: what it hides is needed now.
const NOTE_TYPING: Duration = Duration::from_millis(500);
/// Most lines over the app's output, the newest ones: a mux that comes and goes causes two each time.
const LINES: usize = 16;
/// Pause before a line of `attach` is shown again after the app wiped it away: each time the screen
/// is redrawn.
const NOTE_PAUSE: Duration = Duration::from_millis(300);
/// Pieces from the mux between two looks that are a flood: more than progress bars and keys cause.
const FLOOD: u64 = 16;

/// How this attach uses the local terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalTerminal {
    /// Not at all, or there is none.
    Unused,
    /// It edits lines, which are input of a stream.
    Lines,
    /// It shows the output of the app's terminal.
    ShowsOutput,
    /// It is raw as well: keys belong to the app or are dropped.
    Raw,
}

/// Lines, and until when they are shown or held back.
#[derive(Debug)]
struct NoticeLines {
    lines: Vec<String>,
    until: Instant,
}

impl NoticeLines {
    fn new(lines: Vec<String>) -> Self {
        Self { lines, until: Instant::now() + NOTE }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Notices {
    terminal: LocalTerminal,
    /// The mux redraws the screen.
    redraws: bool,
    /// Lines that lie over the app's output.
    shown: Option<NoticeLines>,
    /// Pieces from the mux until the last look.
    pieces: u64,
    /// When to show these again after the app's output has moved.
    repeat_at: Option<Instant>,
    /// Lines that wait for the requested screen, which would wipe them away. A mux may hang, so
    /// they wait for a limited time. `None` if no screen was requested.
    pending: Option<NoticeLines>,
}

impl Notices {
    /// A terminal that shows nothing yet.
    pub(crate) fn new(terminal: LocalTerminal, redraws: bool) -> Self {
        let mut notices =
            Self { terminal, redraws, shown: None, pieces: 0, repeat_at: None, pending: None };
        notices.expect_screen();
        notices
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.terminal == LocalTerminal::Raw
    }

    pub(crate) fn edits_lines(&self) -> bool {
        self.terminal == LocalTerminal::Lines
    }

    /// A screen was asked for, if the mux sends screens.
    pub(crate) fn expect_screen(&mut self) {
        if self.redraws {
            self.pending.get_or_insert_with(|| NoticeLines::new(Vec::new()));
        }
    }

    /// All of a screen has been shown: shows the lines that waited, and those that lay there
    /// before.
    pub(crate) fn on_screen_drawn(&mut self) {
        let lines = self.take_pending();
        self.show_over(lines);
    }

    /// The lines were wiped away before the app's output moved.
    pub(crate) fn on_wiped(&mut self) {
        self.repeat_at = Some(Instant::now() + NOTE_PAUSE);
    }

    /// The user types at the app.
    pub(crate) fn on_typed(&mut self, now: Instant) {
        if let Some(shown) = &mut self.shown {
            shown.until = shown.until.min(now + NOTE_TYPING);
        }
    }

    /// Whether the screen is to be redrawn: to remove lines, or to show them again.
    /// Without a mux that can redraw it waits, and in a flood: a screen stands for the output before it,
    /// whose lines would be missing.
    pub(crate) fn needs_redraw(&mut self, now: Instant, pieces: u64, is_connected: bool) -> bool {
        if !is_connected {
            return false;
        }
        let is_over = self.shown.take_if(|lines| lines.until <= now).is_some();
        let is_due = is_over | self.repeat_at.take_if(|at| *at <= now).is_some();
        let is_flood = is_due && pieces - std::mem::replace(&mut self.pieces, pieces) > FLOOD;
        if is_flood {
            self.repeat_at = Some(now + NOTE_PAUSE);
        }
        is_due && !is_flood
    }

    /// Whether the expected screen is late.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.pending.as_ref().is_some_and(|lines| lines.until <= now)
    }

    /// The lines that wait for a screen; none waits any more.
    pub(crate) fn take_pending(&mut self) -> Vec<String> {
        self.pending.take().map_or(Vec::new(), |pending| pending.lines)
    }

    pub(crate) fn deadline(&self, is_connected: bool) -> Option<Instant> {
        let until = |lines: &Option<NoticeLines>| lines.as_ref().map(|lines| lines.until);
        let redraw = [until(&self.shown), self.repeat_at].into_iter().flatten();
        redraw.filter(|_| is_connected).chain(until(&self.pending)).min()
    }

    /// Shows a line. The next mux can redraw the screen, too.
    pub(crate) fn say(&mut self, text: &str) {
        if self.terminal == LocalTerminal::Unused {
            diagnostics::say(text);
        } else if let Some(pending) = &mut self.pending {
            pending.lines.push(text.to_owned());
            let surplus = pending.lines.len().saturating_sub(LINES);
            pending.lines.drain(..surplus);
        } else {
            let is_shown = if self.redraws {
                self.show_over(vec![text.to_owned()])
            } else {
                local_terminal::show_on_last_row(&format!("iottymux: {text}"))
            };
            if !is_shown {
                local_terminal::print_line(text);
            }
        }
    }

    /// Shows lines over the app's output, below the existing ones. Returns whether the terminal
    /// accepts them.
    fn show_over(&mut self, lines: Vec<String>) -> bool {
        if !lines.is_empty() {
            let mut all = self.shown.take().map_or(Vec::new(), |shown| shown.lines);
            all.extend(lines);
            self.shown = Some(NoticeLines::new(all.split_off(all.len().saturating_sub(LINES))));
        }
        self.shown.as_ref().is_some_and(|shown| local_terminal::show_over_output(&shown.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_removes_a_line() {
        let now = Instant::now();
        let lines = |until| Some(NoticeLines { lines: vec!["a line".to_owned()], until });
        let mut notices = Notices::new(LocalTerminal::Raw, true);
        notices.pending = None;
        notices.shown = lines(now + NOTE);
        assert!(!notices.needs_redraw(now + NOTE_TYPING, 0, true));
        // No mux could redraw it.
        assert!(!notices.needs_redraw(now + NOTE, 0, false));
        assert_eq!(notices.deadline(false), None);
        // Further keys do not keep it.
        notices.on_typed(now);
        notices.on_typed(now + NOTE_TYPING);
        assert_eq!(notices.deadline(true), Some(now + NOTE_TYPING));
        assert!(notices.needs_redraw(now + NOTE_TYPING, 0, true));
        assert_eq!(notices.deadline(true), None);
        // It never stays for longer.
        notices.shown = lines(now);
        notices.on_typed(now);
        assert!(notices.needs_redraw(now, 0, true));
    }
}
