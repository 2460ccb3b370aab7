//! The app's terminal: its size, its screen for viewers, the queries of the app.
//!
//! A query has one answer: from the client that decides the size, if it gets the app's bytes,
//! otherwise from the model of the screen. Replies of other terminals are dropped. This module
//! knows clients by their id only.

mod snapshot;
pub(crate) mod turns;
pub(crate) mod worker;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::snapshot::KeptScreen;
use self::turns::DrawTurns;
use self::worker::ScreenWorker;
use crate::core::hub::sizes::Sizes;
use crate::core::hub::{ClientId, Hub};
use crate::core::wire::RefusedReport;
use crate::mux::kept_memory::{KeptMemory, SCREEN};
use crate::screen::query::{Finder, Query};
use crate::screen::replies::Replies;
use crate::screen::viewer_events::{self, Typed};
use crate::types::size::Size;
use crate::types::stream::Stream;

/// A screen is kept after each part in this many of the backlog. So the output since then is still
/// in the backlog.
const SCREEN_KEPT_PART: usize = 8;

/// How long an app has written nothing if its output may be stopped.
const SILENCE: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The windows of those who type; one of them is the terminal's.
    pub(crate) sizes: Sizes,
    /// The client that typed last.
    pub(crate) typist: Option<ClientId>,
    /// The thread that knows the screen.
    pub(crate) worker: ScreenWorker,
    pub(crate) turns: DrawTurns,
    /// Clients whose request for a size is to be answered when the terminal has it.
    pub(crate) asked: Vec<ClientId>,
    /// Clients ask again before they send a key that may end the app.
    pub(crate) is_guarded: bool,
    /// The offset at which this mux began.
    pub(crate) began_at: u64,
    /// When the app wrote last.
    pub(crate) last_output: Option<Instant>,
    finder: Finder,
    /// The queries of one read, kept for their memory.
    queries: Vec<Query>,
    /// Until when typed bytes are held back because they may be the beginning of a reply.
    pub(crate) held_until: Option<Instant>,
    /// Input of a client without replies, and without reports; kept for their memory.
    typed: Vec<u8>,
    keys: Vec<u8>,
    /// Whether a client has the focus.
    has_focus: bool,
}

impl Terminal {
    /// A terminal of this size, which keeps this many lines that scroll off its screen. It shows the
    /// screen of the previous mux, as far as that is known, and has the lines of the backlog.
    pub(crate) fn open(
        (size, (scrollback, is_guarded)): (Size, (usize, bool)),
        hub: &Hub,
        memory: Option<&mut KeptMemory>,
    ) -> Result<Self> {
        let memory = memory.map(|memory| memory.piece(SCREEN, KeptScreen::SIZE, [])).transpose()?;
        let (end, _) = hub.extent(Stream::Tty).unwrap_or_default();
        let start = hub.start(Stream::Tty).unwrap_or(end);
        let (kept, screen) = memory.map(|piece| KeptScreen::open(piece, hub.epoch())).unzip();
        // The output since then must be in the backlog.
        let screen = screen.flatten().filter(|(at, _)| (start..=end).contains(at));
        let every = hub.capacity(Stream::Tty) / SCREEN_KEPT_PART as u64;
        let sizes = Sizes::new(size);
        let worker = ScreenWorker::new((sizes.size(), scrollback), kept.map(|kept| (kept, every)));
        let mut worker = worker.context("cannot make a waker for the screen")?;
        let (from, drawn) = screen.unwrap_or((start, Vec::new()));
        // What scrolled off before is in no redraw, and the redraw hides all that was drawn here.
        let before =
            if scrollback > 0 { hub.bytes(Stream::Tty, start..from) } else { [&[][..]; 2] };
        worker.restore([&before.concat(), &drawn[..]].concat(), from);
        worker.show(hub.bytes(Stream::Tty, from..end), end, false);
        // What was asked before has been answered.
        let before = [&drawn[..]].into_iter().chain(hub.bytes(Stream::Tty, from..end));
        let finder = Finder::behind(before);
        Ok(Self {
            sizes,
            typist: None,
            worker,
            turns: DrawTurns::default(),
            asked: Vec::new(),
            is_guarded,
            began_at: end,
            last_output: None,
            finder,
            queries: Vec::new(),
            held_until: None,
            typed: Vec::new(),
            keys: Vec::new(),
            has_focus: false,
        })
    }

    /// Whether the app has written nothing for a while.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.last_output.is_none_or(|at| now.saturating_duration_since(at) >= SILENCE)
    }

    /// The queries in the app's last output.
    pub(crate) fn find_queries(&mut self, pieces: [&[u8]; 2]) -> &[Query] {
        self.queries.clear();
        for piece in pieces {
            self.finder.find(piece, |query| self.queries.push(query));
        }
        &self.queries
    }

    /// Whether a program has a screen of its own.
    pub(crate) fn is_full_screen(&self) -> bool {
        self.finder.is_alternate()
    }

    /// What of the app's output no viewer's terminal gets by default.
    pub(crate) fn refused(&self) -> RefusedReport {
        self.finder.refused()
    }

    /// Separates replies to queries from a client's input, and the reports of its terminal if that
    /// shows the screen.
    pub(crate) fn separate<'a>(
        &'a mut self,
        (replies, is_shown): (Option<&mut Replies>, bool),
        bytes: &'a [u8],
        now: Instant,
    ) -> (&'a [u8], Typed) {
        let mut typed = bytes;
        if let Some(replies) = replies {
            self.typed.clear();
            replies.filter(bytes, now, &mut self.typed);
            if let Some(until) = replies.deadline() {
                self.hold(until);
            }
            typed = &self.typed;
        }
        if !is_shown {
            return (typed, Typed { has_keys: !typed.is_empty(), focus: None });
        }
        self.keys.clear();
        let found = viewer_events::separate(typed, &mut self.keys);
        (&self.keys, found)
    }

    /// Whether a client has the focus now.
    pub(crate) fn focus(&mut self, is_there: bool) {
        if std::mem::replace(&mut self.has_focus, is_there) != is_there {
            self.worker.focus(is_there);
        }
    }

    /// Bytes are held back, or an answer is awaited, until then.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.held_until = Some(self.held_until.map_or(until, |at| at.min(until)));
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = [self.sizes.deadline(), self.turns.deadline(), self.held_until];
        due.into_iter().flatten().min()
    }
}
