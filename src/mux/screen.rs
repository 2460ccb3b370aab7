//! The mux and the app's terminal: its size, its screen for those who come, its queries.
//!
//! A query that the app prints has one answer: from the client that decides the size, if that is shown
//! the app's bytes, else from the model of the screen. What the terminals of others reply is dropped.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::unistd::Pid;

use super::poll::Token;
use super::sink::client::{Client, InputAccess, Outlet, Role, SessionSide, View};
use super::sink::kept::Kept;
use super::sink::painter::{ScreenEvent, ScreenWorker};
use super::source::{Source, pty};
use super::{Mux, Phase, log_watch, logs};
use crate::core::hub::size::Sizes;
use crate::core::hub::{ClientId, Hub};
use crate::core::screen::query::{Finder, Query, Strip};
use crate::os::sys;
use crate::systemd::notify::Notify;
use crate::systemd::store::Stored;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::wire::Redraw;

/// Name of the kept screen's memory in systemd's store.
const STORED: &str = "screen";

/// What a mux knows of the app's terminal, if the app has one.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Whose window it has.
    pub(crate) sizes: Sizes,
    /// Who knows its screen.
    painter: ScreenWorker,
    /// Finds the queries in what the app prints.
    finder: Finder,
    /// Those of one read, kept for its memory.
    queries: Vec<Query>,
    /// Whether somebody may be due a screen.
    pub(crate) due: bool,
    /// When somebody is, who is not now.
    next: Option<Instant>,
    /// Whether a screen is being drawn.
    drawing: bool,
    /// Whose was drawn last.
    drawn: ClientId,
    /// How many were drawn.
    draws: u64,
    /// For each user the number of the last one that a viewer of it got.
    served: BTreeMap<u32, u64>,
    /// Before this none is drawn.
    rests_until: Option<Instant>,
    /// When what somebody typed is held back no more for a reply that it may begin.
    held_until: Option<Instant>,
}

impl Terminal {
    /// One of this size, which shows what it has shown under the mux before this one, as far as that is
    /// known.
    pub(crate) fn open(
        size: Size,
        hub: &Hub,
        stored: &mut Stored,
        notify: &Notify,
    ) -> Result<Self> {
        let memory = match stored.remove(STORED) {
            Some(memory) => Some(memory),
            None if notify.keeps() => {
                let memory = sys::new_memory("iottymux-screen", Kept::LEN);
                let memory = memory.context("making memory for the screen")?;
                notify.replace(STORED, &memory);
                Some(memory)
            }
            None => None,
        };
        let (end, _) = hub.extent(Stream::Tty).unwrap_or_default();
        let start = hub.start(Stream::Tty).unwrap_or(end);
        let (kept, screen) = memory.map(|fd| Kept::open(fd.into(), hub.epoch())).unzip();
        // What was printed since must be there.
        let screen = screen.flatten().filter(|(at, _)| (start..=end).contains(at));
        let every = hub.capacity(Stream::Tty) / limits::SCREEN_KEPT_PART as u64;
        let painter = ScreenWorker::new(size, kept.map(|kept| (kept, every)));
        let mut painter = painter.context("a bell for the terminal's screen")?;
        let (from, drawn) = screen.unwrap_or_default();
        painter.restore(drawn, from);
        painter.show(hub.bytes(Stream::Tty, from..end), end, false);
        Ok(Self {
            sizes: Sizes::new(size),
            painter,
            finder: Finder::default(),
            queries: Vec::new(),
            due: false,
            next: None,
            drawing: false,
            drawn: ClientId(0),
            draws: 0,
            served: BTreeMap::new(),
            rests_until: None,
            held_until: None,
        })
    }

    /// Whether the app has to wait until more of its output was shown.
    pub(crate) fn is_full(&self) -> bool {
        self.painter.is_full()
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = self.next.filter(|_| self.due);
        [self.sizes.deadline(), next, self.held_until].into_iter().flatten().min()
    }
}

impl Mux {
    /// Listens to the painter.
    pub(crate) fn begin_terminal(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            log_watch(self.poller.listen(&terminal.painter.mailbox, Token::Painter));
        }
    }

    /// The app has printed the last `len` bytes of what the hub has. Comes before any client is given
    /// them, so that nobody can reply to what is not expected yet.
    pub(crate) fn show_on_screen(&mut self, len: usize, now: Instant) {
        let Some(terminal) = &mut self.terminal else { return };
        let (end, _) = self.hub.extent(Stream::Tty).unwrap_or_default();
        let pieces = self.hub.bytes(Stream::Tty, end - len as u64..end);
        let mut queries = std::mem::take(&mut terminal.queries);
        queries.clear();
        for piece in pieces {
            terminal.finder.find(piece, |query| queries.push(query));
        }
        let answers = !queries.is_empty() && {
            let asked = terminal
                .sizes
                .decider()
                .filter(|id| self.clients.get(id).is_some_and(Client::sees_bytes));
            for (id, client) in &mut self.clients {
                if client.typing == InputAccess::Open && client.sees_bytes() {
                    for query in &queries {
                        let passes = Some(*id) == asked;
                        client.replies.get_or_insert_default().expect(*query, passes, now);
                    }
                }
            }
            asked.is_none()
        };
        terminal.painter.show(pieces, end, answers);
        terminal.queries = queries;
    }

    /// The painter has something to tell.
    pub(crate) fn on_painter(&mut self, now: Instant) {
        if let Some(terminal) = &mut self.terminal {
            terminal.painter.mailbox.clear();
        }
        while let Some(word) = self.terminal.as_mut().and_then(|t| t.painter.mailbox.receive()) {
            match word {
                ScreenEvent::Shown(len, memory) => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.painter.shown(len, memory);
                    }
                }
                ScreenEvent::Answer(bytes) => {
                    self.input.insert(&bytes);
                    self.feed(now);
                }
                ScreenEvent::Drawn { id, screen, at, took } => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.drawing = false;
                        terminal.rests_until = Some(now + limits::SCREEN_REST * took);
                    }
                    self.show_screen(id, &screen, at, now);
                }
                ScreenEvent::Off(why) => log::error!(
                    "app {}: its screen is not known any more, and not redrawn for who attaches: {}",
                    self.dir.name(),
                    why.escape_debug()
                ),
            }
        }
    }

    /// A screen has been drawn for a client.
    fn show_screen(&mut self, id: ClientId, screen: &[u8], at: Option<u64>, now: Instant) {
        let size = self.terminal.as_ref().map(|terminal| terminal.sizes.size());
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Role::Session(session) = &mut client.role else { return };
        if session.view != Some(View::Asked) {
            return;
        }
        session.view = Some(if session.fits(size) { View::Bytes } else { View::Screens });
        session.shown = Some(now);
        if let Some(at) = at {
            self.hub.go_back(id, Stream::Tty, at);
        }
        client.show(id, &mut self.hub, screen);
        self.touch(id);
    }

    /// Has a screen drawn for the next one who waits for one: at once for who then follows the app's
    /// bytes, and for the others so often that it looks like motion. One at a time, and with pauses, so
    /// that the app does not wait for screens, however many want them; and only for who can take it.
    pub(crate) fn draw_screens(&mut self, now: Instant) {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.due) else { return };
        let rests = terminal.rests_until.filter(|until| now < *until);
        let ends = self.phase != Phase::Ready;
        if terminal.drawing || rests.is_some() && !ends {
            terminal.next = rests;
            return;
        }
        let room = make_room(&mut self.clients, now);
        if room.is_some() {
            terminal.next = room;
            return;
        }
        (terminal.due, terminal.next) = (false, None);
        let size = Some(terminal.sizes.size());
        let (before, behind) =
            (..=terminal.drawn, (Bound::Excluded(terminal.drawn), Bound::Unbounded));
        let mut ready = Vec::new();
        for (id, client) in self.clients.range(behind).chain(self.clients.range(before)) {
            let Role::Session(session) = &client.role else { continue };
            if session.view != Some(View::Due) {
                continue;
            }
            terminal.due = true;
            // Who takes nothing now is looked at again when it does.
            if !client.wants_screen() {
                continue;
            }
            let shown = session.shown.filter(|_| !session.fits(size) && !ends);
            match shown.map(|at| at + limits::SCREEN_PAUSE).filter(|next| now < *next) {
                Some(next) => terminal.next = Some(terminal.next.map_or(next, |at| at.min(next))),
                None => ready.push((terminal.served.get(&client.peer.uid).copied(), *id)),
            }
        }
        // Each user has its turn, however many viewers the others have; a stable sort.
        ready.sort_by_key(|(served, _)| *served);
        let Some(id) = ready.into_iter().map(|(_, id)| id).find(|id| self.takes_now(*id)) else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else { return };
        let uid = client.peer.uid;
        let Role::Session(session) = &mut client.role else { return };
        let Some(terminal) = &mut self.terminal else { return };
        session.view = Some(View::Asked);
        if terminal.served.len() >= limits::CLIENTS {
            terminal.served.clear();
        }
        terminal.draws += 1;
        terminal.served.insert(uid, terminal.draws);
        (terminal.drawing, terminal.drawn, terminal.next) = (true, id, None);
        self.hub.skip(id, Stream::Tty);
        terminal.painter.draw(id, session.window);
    }

    /// Whether a client takes something now; if not it is watched for that.
    fn takes_now(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        if client.can_take() {
            return true;
        }
        client.outlet = Outlet::Full;
        self.watch_client(id);
        false
    }

    /// A session has been greeted: it gets first what stands for what the terminal showed before, unless
    /// it `resumes`: then it still shows that, and goes on with the next byte.
    pub(crate) fn begin_view(
        &mut self,
        id: ClientId,
        redraw: Option<Redraw>,
        resumes: bool,
    ) -> Result<()> {
        let size = self.terminal.as_ref().map(|terminal| terminal.sizes.size());
        let Some(Client { role: Role::Session(session), .. }) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        if !session.streams.contains(&Stream::Tty) {
            return Ok(());
        }
        match redraw {
            None | Some(Redraw::None) => {}
            Some(Redraw::Screen) => {
                let goes_on = resumes && session.fits(size);
                session.view = Some(if goes_on { View::Bytes } else { View::Due });
                self.hub.set_patience(id, Duration::ZERO);
                if !goes_on {
                    self.refresh(id);
                }
            }
            Some(Redraw::Backlog) => {
                let (end, _) = self.hub.extent(Stream::Tty).unwrap_or_default();
                let (mut strip, mut kept) = (Strip::default(), Vec::new());
                for piece in self.hub.bytes(Stream::Tty, 0..end) {
                    strip.push(piece, &mut kept);
                }
                // The rest of that sequence comes with the app's next bytes.
                kept.extend_from_slice(strip.held());
                let uid = self.clients.get(&id).map(|client| client.peer.uid);
                let others = self.clients.values().filter(|client| Some(client.peer.uid) == uid);
                let waits: usize = others.map(Client::undrawn).sum();
                if waits > 0 && waits + kept.len() > limits::SCREENS {
                    return Err(anyhow!(
                        "other clients of its user take too long for their backlog"
                    ));
                }
                self.hub.skip(id, Stream::Tty);
                if let Some(client) = self.clients.get_mut(&id) {
                    client.show(id, &mut self.hub, &kept);
                }
            }
        }
        Ok(())
    }

    /// A session has told of its window: if it types, it is the terminal's.
    pub(crate) fn decide_window(&mut self, id: ClientId) {
        let types = self.types(id);
        let Some(Client { role: Role::Session(session), .. }) = self.clients.get(&id) else {
            return;
        };
        let Some(window) = session.window else { return };
        if let Some(terminal) = self.terminal.as_mut().filter(|_| types) {
            terminal.sizes.resized(id, window);
        }
    }

    /// Somebody without a window asks for a size of the terminal.
    pub(crate) fn ask_size(&mut self, size: Size) -> Result<()> {
        let Some(terminal) = &mut self.terminal else { bail!("the app has no terminal") };
        terminal.sizes.ask(size);
        Ok(())
    }

    /// A client is to be shown the screen, if it has asked for screens.
    pub(crate) fn refresh(&mut self, id: ClientId) {
        let Some(terminal) = &mut self.terminal else { return };
        if let Some(client) = self.clients.get_mut(&id) {
            terminal.due |= client.owe_screen();
        }
    }

    /// Gives the terminal the size that it is to have; then each client sees it anew.
    pub(crate) fn resize_terminal(&mut self, now: Instant) {
        let Some(size) = self.terminal.as_mut().and_then(|t| t.sizes.due(now)) else { return };
        let Some(source) = self.tty() else { return };
        if let Err(e) = pty::resize(&source.fd, size) {
            log::error!("app {}: the size of its terminal: {e}", self.dir.name());
        }
        logs::resized(&mut self.logs, &mut self.hub, size);
        let Some(terminal) = &mut self.terminal else { return };
        terminal.painter.resize(size);
        for client in self.clients.values_mut() {
            terminal.due |= client.owe_screen();
        }
    }

    /// The app's end of the terminal, if it is open.
    fn tty(&self) -> Option<&Source> {
        self.sources.iter().flatten().find(|source| source.stream == Stream::Tty)
    }

    /// The job in the foreground of the app's terminal.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        self.tty().and_then(|source| pty::foreground(&source.fd))
    }

    /// Hangs the app up at its terminal, if it was asked to end and has not for so long.
    pub(crate) fn hang_up(&mut self, now: Instant) {
        if self.app.as_ref().and_then(|app| app.hangs_up_at).is_none_or(|at| now < at) {
            return;
        }
        log::info!("app {}: it has not ended, its terminal hangs up", self.dir.name());
        let foreground = self.foreground();
        if let Some(app) = &mut self.app {
            app.hang_up(foreground);
        }
    }

    /// The app has ended: the next one begins with a terminal as it was at first.
    pub(crate) fn reset_terminal(&mut self) {
        let Some(terminal) = &mut self.terminal else { return };
        terminal.painter.reset();
        if let Some(source) = self.tty()
            && let Err(e) = pty::reset(&source.fd)
        {
            log::warn!("app {}: resetting its terminal: {e}", self.dir.name());
        }
    }

    /// What a client has typed, without what its terminal replied to queries that are not its to answer.
    pub(crate) fn type_in(&mut self, id: ClientId, bytes: &[u8], now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(replies) = &mut client.replies else {
            self.input.push(id, bytes, now);
            return self.decide_size(id, bytes);
        };
        let mut typed = std::mem::take(&mut self.typed);
        typed.clear();
        replies.filter(bytes, now, &mut typed);
        if let (Some(terminal), Some(until)) = (&mut self.terminal, replies.deadline()) {
            terminal.held_until = Some(terminal.held_until.map_or(until, |at| at.min(until)));
        }
        self.input.push(id, &typed, now);
        self.decide_size(id, &typed);
        self.typed = typed;
    }

    /// Who types has its window for the terminal.
    fn decide_size(&mut self, id: ClientId, typed: &[u8]) {
        if !typed.is_empty()
            && self.types(id)
            && let Some(terminal) = &mut self.terminal
        {
            terminal.sizes.typed(id);
        }
    }

    /// Passes on what was held back as the beginning of a reply, and was none.
    pub(crate) fn expire_replies(&mut self, now: Instant) {
        let Some(terminal) = &mut self.terminal else { return };
        if terminal.held_until.is_none_or(|until| now < until) {
            return;
        }
        terminal.held_until = None;
        let mut typed = std::mem::take(&mut self.typed);
        for (id, client) in &mut self.clients {
            let Some(replies) = &mut client.replies else { continue };
            match replies.deadline() {
                Some(at) if at <= now => {
                    typed.clear();
                    replies.expire(now, &mut typed);
                    self.input.push(*id, &typed, now);
                }
                later => {
                    terminal.held_until = terminal.held_until.into_iter().chain(later).min();
                }
            }
        }
        self.typed = typed;
    }
}

/// Makes room for one more screen, if too many wait for their viewers. Those that have had their time lose the
/// rest; if these are too few, returns when the next one has had its.
fn make_room(clients: &mut BTreeMap<ClientId, Client>, now: Instant) -> Option<Instant> {
    let mut waits: usize =
        clients.values().filter_map(Client::waiting_screen).map(|(len, _)| len).sum();
    if waits < limits::SCREENS {
        return None;
    }
    let mut next = None;
    for client in clients.values_mut() {
        let Some((len, shown)) = client.waiting_screen() else { continue };
        let until = shown + limits::SCREEN_PATIENCE;
        if until <= now {
            client.forget_screen();
            waits -= len;
        } else {
            next = Some(next.map_or(until, |at: Instant| at.min(until)));
        }
    }
    next.filter(|_| waits >= limits::SCREENS)
}

impl Client {
    /// The bytes of a screen that it has not taken, and when that was drawn.
    fn waiting_screen(&self) -> Option<(usize, Instant)> {
        let Role::Session(SessionSide { view: Some(_), shown: Some(shown), .. }) = &self.role
        else {
            return None;
        };
        Some((self.undrawn(), *shown)).filter(|(len, _)| *len > 0)
    }

    /// Whether its terminal sees what the app prints, queries among it.
    fn sees_bytes(&self) -> bool {
        match &self.role {
            Role::Session(SessionSide { view: Some(view), .. }) => *view == View::Bytes,
            Role::Session(session) => session.streams.contains(&Stream::Tty),
            Role::Raw(stream) => *stream == Stream::Tty,
        }
    }

    /// It is to be shown the screen, if it asked for screens at all; whether it did.
    fn owe_screen(&mut self) -> bool {
        if let Role::Session(SessionSide { view: Some(view), .. }) = &mut self.role {
            *view = View::Due;
            return true;
        }
        false
    }
}

impl SessionSide {
    /// Whether its window is the terminal's, so that the app's bytes show there what they should.
    fn fits(&self, size: Option<Size>) -> bool {
        self.window.is_none() || self.window == size
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::core::hub::memory::Memory;
    use crate::mux::sink::client::Peer;
    use crate::types::rights::Right;
    use crate::types::stream::{Epoch, Position};
    use crate::wire::{Decoder, Item};

    /// Clients whose sockets take nothing more, each with a screen of its own.
    #[test]
    fn screens_that_nobody_takes_are_bounded_and_what_was_sent_of_them_is_whole_frames() {
        let streams = [Stream::Tty];
        let mut hub = Hub::new(&streams, 4096, Memory::new(&streams, 4096), Epoch(1));
        let (mut clients, mut peers) = (BTreeMap::new(), Vec::new());
        let now = Instant::now();
        let screen = vec![b's'; 2_000_000];
        let mut next = None;
        for number in 0..40u64 {
            let at = now + limits::SCREEN_PAUSE * u32::try_from(number).unwrap();
            next = make_room(&mut clients, at);
            if next.is_some() {
                break;
            }
            let (ours, theirs) = UnixStream::pair().unwrap();
            let peer = Peer::of(&ours).unwrap();
            let role = Role::Session(SessionSide::default());
            let mut client = Client::new(ours, role, peer, Right::View);
            if let Role::Session(session) = &mut client.role {
                (session.view, session.shown) = (Some(View::Screens), Some(at));
            }
            let id = hub.join(Duration::ZERO);
            hub.subscribe(id, Stream::Tty, Position::Now);
            client.show(id, &mut hub, &screen);
            client.flush(id, &mut hub).unwrap();
            clients.insert(id, client);
            peers.push((id, theirs));
        }
        let waits =
            |clients: &BTreeMap<_, Client>| clients.values().map(Client::undrawn).sum::<usize>();
        let all = waits(&clients);
        assert!((limits::SCREENS..limits::SCREENS + screen.len()).contains(&all), "{all}");
        // The first has had its time then, and another can be drawn.
        assert_eq!(next, Some(now + limits::SCREEN_PATIENCE));
        assert_eq!(make_room(&mut clients, now + limits::SCREEN_PATIENCE), None);
        assert!(waits(&clients) < limits::SCREENS);
        // When it reads again it gets the rest of the frame that had begun, and nothing that is broken off.
        let (id, mut theirs) = peers.remove(0);
        let mut client = clients.remove(&id).unwrap();
        assert!(!client.wants_screen() && client.awaits_screen());
        let (mut decoder, mut shown) = (Decoder::default(), 0);
        theirs.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len) = theirs.read(&mut buffer) {
            let mut bytes = &buffer[..len];
            while let Some(item) = decoder.next(&mut bytes).unwrap() {
                if let Item::Screen(bytes) = item {
                    shown += bytes.len();
                }
            }
            client.flush(id, &mut hub).unwrap();
        }
        assert!(shown > 0 && shown < screen.len() && shown % limits::SCREEN_FRAME == 0, "{shown}");
        assert!(client.wants_screen() && client.can_take());
    }
}
