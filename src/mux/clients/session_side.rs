//! A session's side of the protocol: its frames, its view of the terminal, and where in the streams
//! it learns of the app's life.

use std::collections::VecDeque;
use std::time::Instant;

use crate::core::hub::{ClientId, Hub};
use crate::core::wire::{Decoder, History, InputId, LifecycleEvent};
use crate::types::size::{Size, Window};
use crate::types::stream::{Offsets, Stream};

/// Lifecycle events that may wait for one slow session. The oldest are dropped first: an app that
/// fails again and again repeats the same events.
const TURNS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct SessionSide {
    /// Takes the client's frames apart.
    pub(crate) decoder: Decoder,
    /// Whether the end of its input ends the app's.
    pub(crate) stdin_once: bool,
    /// Input that the app does not get is an error.
    pub(crate) must_type: bool,
    /// It types alone only until it has an answer.
    pub(crate) is_brief: bool,
    /// The name of its input, if the next mux is to know of that.
    pub(crate) input: Option<InputId>,
    /// Of a program that types lines: the bytes of its last one so far.
    pub(crate) line: Option<usize>,
    /// The streams it reads.
    pub(crate) streams: Vec<Stream>,
    /// The size of its window, once it has sent one.
    pub(crate) window: Option<Window>,
    /// How it is shown the app's terminal, if it asked for the screen.
    pub(crate) view: Option<ShownAs>,
    /// Whether its terminal has lost the focus: who attaches has it.
    pub(crate) is_unfocused: bool,
    /// The lines above the screen that come with the next one.
    pub(crate) history: Option<History>,
    /// When it was last shown a screen.
    pub(crate) shown: Option<Instant>,
    /// Whether it is to be shown a screen because it was too slow for the app's bytes.
    is_slow: bool,
    /// Bytes that it got only in such screens.
    pub(crate) skipped: u64,
    /// Events of the app's life, each with the ends of the streams at that time.
    events: VecDeque<(LifecycleEvent, Offsets)>,
}

/// How a session that asked for the screen is shown the app's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownAs {
    /// By the app's bytes, as they come.
    Bytes,
    /// By screens, because its window is not the terminal's; it has the latest one.
    Screens,
    /// By a screen that is still to be drawn, and then in one of the other ways.
    Due,
    /// By a screen that is being drawn.
    Asked,
}

impl SessionSide {
    /// Counts typed lines. Returns the length of the longest one now, if a program types them.
    pub(crate) fn longest_line(&mut self, typed: &[u8]) -> Option<usize> {
        let line = self.line.as_mut()?;
        let mut longest = 0;
        for piece in typed.split_inclusive(|byte| b"\r\n".contains(byte)) {
            *line += piece.len();
            longest = longest.max(*line);
            if piece.ends_with(b"\r") || piece.ends_with(b"\n") {
                *line = 0;
            }
        }
        Some(longest)
    }

    /// Whether its window has the terminal's size, so that it can show the app's bytes unchanged.
    pub(crate) fn fits(&self, size: Option<Size>) -> bool {
        self.window.is_none() || self.window.map(Window::size) == size
    }

    /// Queues an event after the app's earlier output; the oldest one is dropped if there are too
    /// many.
    pub(crate) fn queue_event(&mut self, event: LifecycleEvent, ends: Offsets) {
        if self.events.len() == TURNS {
            self.events.pop_front();
        }
        self.events.push_back((event, ends));
    }

    /// The next event, once everything before it has been given to the client.
    pub(crate) fn due_event(&mut self, id: ClientId, hub: &Hub) -> Option<LifecycleEvent> {
        let (_, ends) = self.events.front()?;
        let given = |s: &Stream| hub.at(id, *s).is_none_or(|at| at >= ends[*s as usize]);
        let is_due = self.streams.iter().all(given);
        is_due.then(|| self.events.pop_front().map(|(event, _)| event))?
    }

    /// How far a stream at offset `at` may be given: up to the place of the next event.
    pub(crate) fn fence(&self, stream: Stream, at: u64) -> u64 {
        let ends = self.events.front().map(|(_, ends)| ends[stream as usize]);
        ends.filter(|end| *end > at).unwrap_or(u64::MAX)
    }

    /// Moves on to a screen where the view's bytes cannot be given. Whether bytes may follow.
    pub(crate) fn view_bytes(&mut self, id: ClientId, hub: &mut Hub) -> bool {
        let Some(view) = &mut self.view else { return true };
        match view {
            ShownAs::Bytes if hub.missed(id, Stream::Tty) => {
                (*view, self.is_slow) = (ShownAs::Due, true);
            }
            ShownAs::Screens if !hub.is_caught_up(id) => *view = ShownAs::Due,
            _ => {}
        }
        match view {
            ShownAs::Bytes => true,
            // Where it stands is where its next bytes come from.
            ShownAs::Asked => false,
            ShownAs::Screens | ShownAs::Due => {
                self.skip(id, hub);
                true
            }
        }
    }

    /// The rest of the terminal's bytes comes in a screen.
    pub(crate) fn skip(&mut self, id: ClientId, hub: &mut Hub) {
        let skipped = hub.skip(id, Stream::Tty);
        if self.is_slow {
            self.skipped += skipped;
        }
    }

    /// A screen has come that shows the terminal up to an offset, or all of it.
    pub(crate) fn continue_at(&mut self, id: ClientId, hub: &mut Hub, at: Option<u64>) {
        let Some((from, at)) = hub.at(id, Stream::Tty).zip(at).filter(|(from, at)| at < from)
        else {
            self.is_slow = false;
            return;
        };
        hub.go_back(id, Stream::Tty, at);
        if std::mem::take(&mut self.is_slow) {
            self.skipped = self.skipped.saturating_sub(from - at);
        }
    }
}
