//! The loop and the app's terminal: its output, its window, and the viewers of its screen.

use std::io;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};

use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::core::logfmt::encoder::Note;
use crate::core::wire::{ClientEvent, FrameKind, History, Redraw, RequestOutcome};
use crate::mux::clients::Departure;
use crate::mux::clients::client::Client;
use crate::mux::clients::session_side::ShownAs;
use crate::mux::source::{Source, pty};
use crate::mux::terminal::Terminal;
use crate::mux::terminal::turns::Viewer;
use crate::mux::terminal::worker::ScreenEvent;
use crate::screen::query::{Finder, Strip};
use crate::screen::replies::REPLY_LATE;
use crate::screen::scan;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::size::{Size, Window};
use crate::types::stream::Stream;

impl Mux {
    /// The app has printed the last `len` bytes in the hub. This is called before any client gets
    /// them, so that no reply comes before it is expected.
    pub(super) fn show_on_screen(&mut self, len: usize, now: Instant) {
        let Some(terminal) = &mut self.terminal else { return };
        terminal.last_output = Some(now);
        let (end, _) = self.hub.extent(Stream::Tty).unwrap_or_default();
        let pieces = self.hub.bytes(Stream::Tty, end - len as u64..end);
        let (decider, size) = (terminal.sizes.decider(), terminal.sizes.size());
        let queries = terminal.find_queries(pieces);
        let engine = self.engine.as_mut();
        let by_engine = engine.is_some_and(|engine| engine.expect_replies(queries, decider, now));
        let by_client = self.clients.expect_replies(queries, (decider, size), now);
        let are_there = !queries.is_empty();
        if are_there && by_client {
            terminal.hold(now + REPLY_LATE);
        }
        terminal.worker.show(pieces, end, are_there && !by_client && !by_engine);
    }

    /// The screen's thread has sent messages.
    pub(super) fn on_screen_events(&mut self, now: Instant) {
        if let Some(terminal) = &mut self.terminal {
            terminal.worker.mailbox.clear();
        }
        while let Some(terminal) = &mut self.terminal
            && let Some(event) = terminal.worker.mailbox.receive()
        {
            match event {
                ScreenEvent::Shown(len, memory) => terminal.worker.shown(len, memory),
                ScreenEvent::Answer(bytes) if self.input.is_open() => {
                    self.input.queue.insert(&bytes);
                    self.feed(now);
                }
                ScreenEvent::Answer(_) => {}
                ScreenEvent::Drawn { id, screen, at, took } => {
                    terminal.turns.finish(now, took);
                    let size = terminal.sizes.size();
                    self.show_screen(id, &screen, at, (size, now));
                }
                ScreenEvent::Off(why) => log::error!(
                    "app {}: its screen is no longer known and not redrawn for new viewers: {}",
                    self.files.name(),
                    why.escape_debug()
                ),
            }
        }
    }

    /// A screen has been drawn for a client.
    fn show_screen(
        &mut self,
        id: ClientId,
        screen: &[u8],
        at: Option<u64>,
        (size, now): (Size, Instant),
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let asked = client.session_mut().filter(|session| session.view == Some(ShownAs::Asked));
        let Some(session) = asked else { return };
        let is_only = session.history == Some(History::Only);
        if !is_only {
            session.view =
                Some(if session.fits(Some(size)) { ShownAs::Bytes } else { ShownAs::Screens });
            session.history = None;
        }
        session.shown = Some(now);
        let asked_at = self.hub.at(id, Stream::Tty);
        session.continue_at(id, &mut self.hub, at);
        self.expect_late_replies(id, false, (asked_at, now));
        let Some(client) = self.clients.get_mut(id) else { return };
        client.show(id, &mut self.hub, (screen, Some(size)));
        self.touch(id);
    }

    /// Starts drawing the next screen that a client waits for: at once for a client that then
    /// follows the app's bytes, and for the others often enough to look like motion.
    pub(super) fn draw_screens(&mut self, now: Instant) {
        let Some(terminal) = &mut self.terminal else { return };
        let is_ending = self.phase != Phase::Ready;
        if !terminal.turns.may_draw(now, is_ending) {
            return;
        }
        if let Some(until) = self.clients.make_room_for_screen(now) {
            return terminal.turns.put_off(until);
        }
        let size = terminal.sizes.size();
        let viewers = self.clients.iter();
        let viewers = viewers.filter_map(|(id, client)| viewer(id, client, size, is_ending));
        let ready = terminal.turns.order(viewers, now);
        let Some(id) = ready.into_iter().find(|id| self.takes_now(*id)) else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        let (uid, Some(session)) = (client.peer.uid, client.session_mut()) else { return };
        let Some(terminal) = &mut self.terminal else { return };
        session.view = Some(ShownAs::Asked);
        terminal.turns.begin(id, uid);
        session.skip(id, &mut self.hub);
        let window = session.window.map(Window::size);
        terminal.worker.draw(id, window, session.history);
    }

    /// Whether a client takes something now; if not it is watched for that.
    fn takes_now(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if client.can_take() {
            return true;
        }
        client.wait_until_writable();
        self.watch_client(id);
        false
    }

    /// Begins a new session: first it gets a view of the terminal's earlier output, unless it
    /// `resumes`. A resumed session still shows that, and continues with the next byte.
    pub(super) fn begin_view(
        &mut self,
        id: ClientId,
        redraw: Option<Redraw>,
        resumes: bool,
    ) -> Result<()> {
        let size = self.terminal_size();
        let session = self.clients.get_mut(id).and_then(Client::session_mut);
        let Some(session) = session.filter(|session| session.streams.contains(&Stream::Tty)) else {
            return Ok(());
        };
        match redraw {
            None | Some(Redraw::None) => {}
            Some(Redraw::Screen) => {
                let goes_on = resumes && session.fits(size);
                session.view = Some(if goes_on { ShownAs::Bytes } else { ShownAs::Due });
                if let Some(right) = self.clients.get(id).map(|client| client.right) {
                    let patience = self.admission.patience(right) / limits::SCREEN_PATIENCE_PART;
                    self.hub.set_patience(id, patience);
                }
                if !goes_on {
                    self.refresh(id);
                }
            }
            Some(Redraw::Backlog) => self.show_backlog(id)?,
        }
        self.expect_late_replies(id, resumes, (None, Instant::now()));
        self.follow_focus();
        Ok(())
    }

    /// A client has still to get some output, and its terminal replies to the queries in that, `until`
    /// an offset from which on its replies are expected. They were answered before, unless by a client
    /// that `resumes` after an earlier mux has ended.
    pub(super) fn expect_late_replies(
        &mut self,
        id: ClientId,
        resumes: bool,
        (until, now): (Option<u64>, Instant),
    ) {
        let Some(terminal) = &self.terminal else { return };
        let Some(client) = self.clients.get_mut(id).filter(|client| client.can_reply()) else {
            return;
        };
        let (end, _) = self.hub.extent(Stream::Tty).unwrap_or_default();
        let at = self.hub.at(id, Stream::Tty).unwrap_or(end);
        let from = if resumes { at.max(terminal.began_at) } else { at };
        let mut finder = Finder::default();
        for piece in self.hub.bytes(Stream::Tty, from..until.unwrap_or(end)) {
            finder.find(piece, |query| {
                client.replies.get_or_insert_default().expect(query, false, now);
            });
        }
    }

    /// Shows a session the backlog without the queries in it, since the app does not wait for
    /// replies.
    fn show_backlog(&mut self, id: ClientId) -> Result<()> {
        let (end, _) = self.hub.extent(Stream::Tty).unwrap_or_default();
        let (mut strip, mut kept) = (Strip::default(), Vec::new());
        let mut bytes = self.hub.bytes(Stream::Tty, 0..end).concat();
        if self.hub.start(Stream::Tty).is_some_and(|start| start > 0) {
            bytes.drain(..scan::cut_len(&bytes));
        }
        strip.push(&bytes, &mut kept);
        // The rest of that sequence comes with the app's next bytes.
        kept.extend_from_slice(strip.held());
        let Some(uid) = self.clients.get(id).map(|client| client.peer.uid) else { return Ok(()) };
        let waits = self.clients.undrawn_of(uid);
        if waits > 0 && waits + kept.len() > limits::SCREENS {
            return Err(anyhow!("other clients of its user take too long for their backlog"));
        }
        self.hub.skip(id, Stream::Tty);
        if let Some(client) = self.clients.get_mut(id) {
            client.show(id, &mut self.hub, (&kept, None));
        }
        Ok(())
    }

    /// A session has sent its window: if it types, the terminal gets that size.
    pub(super) fn decide_window(&mut self, id: ClientId) {
        // Of a terminal without an input each client decides that may type.
        let may_type = || self.clients.get(id).is_some_and(|client| client.right >= Right::Write);
        if !self.types(id) && (self.input.is_open() || !may_type()) {
            return;
        }
        let session = self.clients.get(id).and_then(Client::session);
        if let Some(window) = session.and_then(|session| session.window)
            && let Some(terminal) = &mut self.terminal
        {
            terminal.sizes.resized(id, window);
        }
    }

    /// A client without a window asks for a size of the terminal.
    pub(super) fn ask_size(&mut self, id: ClientId, size: Size) -> Result<()> {
        let Some(terminal) = &mut self.terminal else { bail!("the app has no terminal") };
        terminal.sizes.ask(size);
        terminal.asked.push(id);
        self.resize_terminal(Instant::now());
        Ok(())
    }

    /// A client is to be shown the screen, if it has asked for screens.
    pub(super) fn refresh(&mut self, id: ClientId) {
        if let Some(terminal) = &mut self.terminal
            && self.clients.get_mut(id).is_some_and(Client::owe_screen)
        {
            terminal.turns.owe();
        }
    }

    /// Gives the terminal the size that it is to have, and answers those who have asked for it.
    pub(super) fn resize_terminal(&mut self, now: Instant) {
        self.set_size(now);
        let done = |terminal: &&mut Terminal| !terminal.sizes.is_changing();
        let asked = self.terminal.as_mut().filter(done).map(|t| std::mem::take(&mut t.asked));
        for id in asked.into_iter().flatten() {
            let answered =
                self.answer(id, &FrameKind::Answer.message(&RequestOutcome { error: None }));
            if let Err(e) = answered {
                self.clients.close(id, Departure::Lost(e));
            }
        }
    }

    /// Each client is shown the terminal again when it has another size.
    fn set_size(&mut self, now: Instant) {
        if self.terminal.as_ref().is_some_and(|terminal| terminal.sizes.is_changing()) {
            // What the engine has given its terminal just now is not to be overwritten.
            self.follow_engine_window();
        }
        let Some(terminal) = &mut self.terminal else { return };
        let before = terminal.sizes.size();
        let Some(window) = terminal.sizes.due(now) else { return };
        let size = window.size();
        // One that is awaited gets this size when it comes, and one behind a pipe keeps its own.
        if let Some(tty) = self.sources.tty().filter(|tty| tty.is_terminal())
            && let Err(e) = pty::resize(&tty.fd, window)
        {
            log::error!("app {}: the size of its terminal: {e}", self.files.name());
        }
        if let Some(engine) = &mut self.engine {
            engine.resize(size);
        }
        terminal.worker.resize(window);
        if size == before {
            return;
        }
        self.logs.note(&mut self.hub, Note::Size(size));
        if self.clients.owe_screens() {
            terminal.turns.owe_at_once();
        }
        self.tell(&ClientEvent::Resized(size));
    }

    /// The size of the app's terminal, if it has one.
    pub(super) fn terminal_size(&self) -> Option<Size> {
        self.terminal.as_ref().map(|terminal| terminal.sizes.size())
    }

    /// Undoes a stop of the output by a key: the client that typed it is not there to do so.
    pub(super) fn start_output(&self) {
        self.change_tty("starting its output", pty::start_output);
    }

    /// Does something with the app's terminal, if it has one.
    pub(super) fn change_tty(&self, what: &str, does: impl FnOnce(&Source) -> io::Result<()>) {
        if let Some(Err(e)) = self.sources.tty().map(does) {
            log::warn!("app {}: {what}: {e}", self.files.name());
        }
    }

    /// Whether a key has stopped the output. An app that writes all the time may look so for a
    /// moment.
    pub(super) fn is_output_stopped(&self) -> bool {
        let is_silent =
            self.terminal.as_ref().is_some_and(|terminal| terminal.is_silent(Instant::now()));
        is_silent && self.sources.tty().is_some_and(|tty| pty::is_stopped(tty).unwrap_or(false))
    }

    /// The app has ended: the next one begins with a terminal in its first state.
    pub(super) fn reset_terminal(&mut self) {
        let Some(terminal) = &mut self.terminal else { return };
        terminal.worker.reset();
        self.change_tty("resetting its terminal", |tty| pty::reset(&tty.fd));
    }

    /// A client has typed at the app's terminal. Replies of its own terminal are dropped unless
    /// this client has to answer, and the app's terminal gets its window.
    pub(super) fn type_at_terminal(&mut self, id: ClientId, bytes: &[u8], now: Instant) {
        let may_type = self.types(id);
        let (Some(terminal), Some(client)) = (&mut self.terminal, self.clients.get_mut(id)) else {
            return;
        };
        let is_shown = client.session().is_some_and(|session| session.view.is_some());
        let replies = client.replies.as_deref_mut();
        let (typed, found) = terminal.separate((replies, is_shown), bytes, now);
        let held = client.replies.as_ref().map_or(0, |replies| replies.held());
        self.input.queue.receive(id, bytes.len(), held);
        self.input.queue.push(id, typed, now);
        if may_type && found.has_keys {
            terminal.sizes.typed(id);
            if terminal.typist.replace(id) != Some(id) {
                self.logs.client(&mut self.hub, client.who(id), "types");
            }
        }
        if let Some(has_focus) = found.focus
            && let Some(session) = client.session_mut()
        {
            session.is_unfocused = !has_focus;
            self.follow_focus();
        }
    }

    /// The app's terminal has the focus while a client has it that may type.
    pub(super) fn follow_focus(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.focus(self.clients.iter().any(|(_, client)| client.has_focus()));
        }
    }

    /// Passes on input that was held back as the possible beginning of a reply.
    pub(super) fn expire_replies(&mut self, now: Instant) {
        let Some(terminal) = &mut self.terminal else { return };
        if terminal.held_until.is_none_or(|until| now < until) {
            return;
        }
        let queue = &mut self.input.queue;
        let (next, late) = self.clients.expire_replies(now, |id, typed| {
            queue.receive(id, 0, 0);
            queue.push(id, typed, now);
        });
        terminal.worker.answer(late.into_iter().rev());
        let engine = self.engine.as_mut().and_then(|engine| Some((engine.id, engine.replies()?)));
        let of_engine = engine.and_then(|(id, replies)| {
            if replies.deadline().is_some_and(|at| at <= now) {
                let mut typed = Vec::new();
                replies.expire(now, &mut typed);
                queue.push(id, &typed, now);
            }
            replies.deadline()
        });
        terminal.held_until = next.into_iter().chain(of_engine).min();
    }
}

/// A client that is due a screen, as the terminal's turns see it.
fn viewer(id: ClientId, client: &Client, size: Size, is_ending: bool) -> Option<Viewer> {
    let session = client.session().filter(|session| session.view == Some(ShownAs::Due))?;
    let shown = session.shown.filter(|_| !session.fits(Some(size)) && !is_ending);
    let not_before = shown.map(|at| at + limits::SCREEN_PAUSE);
    Some(Viewer { id, uid: client.peer.uid, takes: client.wants_screen(), not_before })
}
