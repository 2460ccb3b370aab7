//! What attach tells of itself, at a terminal that is the app's: on a line of its own, or for a while in
//! the place of something of the app's.

use std::time::Instant;

use super::{Attached, LocalInput, terminal};
use crate::os::diagnostics;
use crate::types::exit::Exit;
use crate::types::limits;

/// Lines of ours, and until when they are to be where they are.
#[derive(Debug)]
pub(crate) struct NoticeLines {
    pub(crate) lines: Vec<String>,
    pub(crate) until: Instant,
}

impl NoticeLines {
    /// None yet, for as long as a person takes to read some.
    fn none() -> Self {
        Self { lines: Vec::new(), until: Instant::now() + limits::NOTE }
    }
}

impl Attached<'_> {
    /// Tells the mux our window, if there is one; it answers with a screen. So this is how a screen is drawn
    /// again that was not the app's for a while.
    pub(crate) fn redraw(&mut self) {
        if let (Some(uplink), Some(size)) = (&mut self.uplink, terminal::size()) {
            uplink.resize(size);
            self.hold();
        }
    }

    /// A screen is to come, if screens do.
    pub(crate) fn hold(&mut self) {
        if self.is_drawn {
            self.held.get_or_insert_with(NoticeLines::none);
        }
    }

    /// No screen comes any more, or not soon.
    pub(crate) fn tell_held(&mut self) {
        let held = self.held.take();
        held.iter().flat_map(|held| &held.lines).for_each(|line| self.say(line));
    }

    /// A screen has been shown: there is now what was held back for it, and what was on the screen before.
    pub(crate) fn tell_on_screen(&mut self) {
        let held = self.held.take().map(|held| held.lines);
        self.note(held.unwrap_or_default());
    }

    /// Shows lines in the place of something of the app's, with those that are there already; whether the
    /// terminal takes them.
    fn note(&mut self, lines: Vec<String>) -> bool {
        if !lines.is_empty() {
            let noted = self.noted.get_or_insert_with(NoticeLines::none);
            *noted = NoticeLines {
                lines: [std::mem::take(&mut noted.lines), lines].concat(),
                ..NoticeLines::none()
            };
        }
        self.noted.as_ref().is_some_and(|noted| terminal::greet(&noted.lines))
    }

    /// Tells people something. On a terminal that is drawn again later it is in the place of something of the
    /// app's for a while; on another one, behind what the app has shown, or, where that is a full screen, on
    /// its last line.
    pub(crate) fn say(&mut self, text: &str) {
        if self.local == LocalInput::Apart {
            return diagnostics::say(text);
        }
        if self.page.is_some() {
            // A terminal that does not come back is not there to be told anything.
            let _ = self.come_back();
        }
        if let Some(held) = &mut self.held {
            held.lines.push(text.to_owned());
        } else if self.is_drawn && self.uplink.is_some() {
            if !self.note(vec![text.to_owned()]) {
                terminal::say(text);
            }
        } else if !terminal::note(&format!("iottymux: {text}")) {
            terminal::say(text);
        }
    }

    /// The end as it is told: bytes that were lost make it incomplete.
    pub(crate) fn complete(&mut self, exit: Exit) -> Exit {
        terminal::restore();
        self.tell_missing();
        if self.missing > 0 || self.uncertain { Exit::Incomplete } else { exit }
    }

    pub(crate) fn tell_missing(&mut self) {
        let name = self.name();
        if self.missing > 0 {
            let missing = self.missing;
            self.say(&format!(
                "attached to app {name}: {missing} bytes were lost: more came meanwhile than \
                 the mux keeps"
            ));
        }
        if self.uncertain {
            self.say(&format!(
                "attached to app {name}: what it wrote between two muxes may be missing"
            ));
        }
    }
}
