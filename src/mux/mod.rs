//! The mux: one loop that carries bytes between the app and its clients, and the app's life cycle.
//!
//! Data goes source → hub → clients, and clients → input → inlet. Everything that can happen is an
//! [`Event`] or an arm of [`Mux::serve`]; each is dealt with to the end before the next. The
//! phases only go forward: ready, draining (the sources are read empty), delivering (clients get
//! the rest), done. Nothing here blocks, save opening at the start, and a nap of a fraction of a
//! millisecond (`source/pace.rs`).

pub(crate) mod app;
mod clients;
mod crowd;
mod end;
mod hear;
mod life;
pub mod logs;
mod open;
pub(crate) mod poll;
mod screen;
mod signals;
pub mod sink;
pub(crate) mod source;
mod status;
mod talk;

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::ppoll;
use tokio::task::yield_now;
use tokio::time::sleep_until;

pub(crate) use crate::mux::logs::LogPlan;
pub(crate) use crate::mux::open::{MuxPlan, Streams, prepare};

use crate::core::hub::input::Input;
use crate::core::hub::{ClientId, Hub, Room};
use crate::mux::app::AppProcess;
use crate::mux::crowd::Crowd;
use crate::mux::life::Life;
use crate::mux::logs::Reopening;
use crate::mux::logs::pipeline::Log;
use crate::mux::poll::{Event, Interest, Poller, Registration, Token};
use crate::mux::screen::Terminal;
use crate::mux::signals::{SignalRequest, Signals};
use crate::mux::sink::client::Client;
use crate::mux::sink::listener::Listener;
use crate::mux::source::{AppInput, Read, Source, fifo};
use crate::os::state::{AppDir, Lock};
use crate::os::sys;
use crate::systemd::app_status::Inquiry;
use crate::systemd::notify::Notify;
use crate::types::limits;
use crate::types::rights::{Right, Rules};
use crate::types::service::ServiceName;
use crate::types::stream::Stream;
use crate::types::time::Now;
use crate::wire::{AppStatus, LifecycleEvent};

/// Where the mux is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything accepts.
    Ready,
    /// The sources are read until they are empty, at least until the first
    /// time where the app's last children may still write, at most until the second.
    Draining { quiet: Instant, until: Instant },
    /// The sources are closed, and nobody new comes. Clients get what is left, at most until this
    /// time; `patience` is when the first of them has been waited for long enough.
    Delivering { until: Instant, patience: Option<Instant> },
    /// Nothing is left to do.
    Done,
}

/// A running mux.
pub(crate) struct Mux {
    dir: AppDir,
    service: ServiceName,
    poller: Poller,
    hub: Hub,
    input: Input,
    /// `None` for a source that is closed.
    sources: Vec<Option<Source>>,
    /// Until when each source is held back by a client.
    held: Vec<Option<Instant>>,
    inlet: Option<AppInput>,
    /// The input of the app's next start, where this one's was ended.
    next_inlet: Option<AppInput>,
    listeners: Vec<Listener>,
    clients: BTreeMap<ClientId, Client>,
    logs: Vec<Log>,
    /// The app's terminal, if it has one.
    terminal: Option<Terminal>,
    /// Who wants the logs opened anew, in this order.
    reopening: VecDeque<Reopening>,
    /// Who may come, and do what.
    rules: Rules,
    /// How many clients there are, and of whom.
    crowd: Crowd,
    /// Sessions that have come, in this order, and until when they are to say hello.
    silent: VecDeque<(ClientId, Instant)>,
    phase: Phase,
    /// Since when everything accepts.
    since: Instant,
    /// How long a client may hold the app back.
    patience: Duration,
    /// The app, where it is a child of this process and has not ended.
    app: Option<AppProcess>,
    /// Whether the app is, or was, a child of this process.
    owns_app: bool,
    /// Whether the end of a client's input can end the app's.
    ends_input: bool,
    /// What is known of the app.
    life: Life,
    /// How the app ended, being asked.
    inquiry: Option<Inquiry>,
    /// What its unit has told of it, to be dealt with in this turn.
    turns: Vec<LifecycleEvent>,
    /// The client whose end of input ends the app's, once it has come.
    last_writer: Option<ClientId>,
    /// What clients send is read into here.
    buffer: Box<[u8]>,
    /// What one of them has typed, kept for its memory.
    typed: Vec<u8>,
    /// The client of another user that was served last.
    last_other: ClientId,
    /// The clients of a turn, kept for its memory.
    ids: Vec<ClientId>,
    notify: Notify,
    /// What this process made and takes away at the end.
    made: Vec<&'static str>,
    /// The FIFOs that it puts away then, for the next one.
    kept: Vec<Stream>,
    _lock: Lock,
}

impl Mux {
    /// Serves until the app or a signal ends it; returns the app's status where it is a child of this
    /// process and has ended.
    pub(crate) async fn serve(mut self) -> Result<Option<AppStatus>> {
        let outcome = self.work().await;
        if let Err(e) = &outcome {
            self.abandon(e);
        }
        self.clean_up();
        outcome.map(|()| self.life.status().filter(|_| self.owns_app))
    }

    async fn work(&mut self) -> Result<()> {
        let mut signals = Signals::new().context("setting up signals")?;
        let mut events = Vec::with_capacity(limits::EVENTS);
        let mut lingered = 0;
        let mut overdue = Overdue::default();
        self.begin()?;
        let bell = self.hurry()?;
        while self.phase != Phase::Done {
            let deadline = overdue.put_off(self.deadline());
            let mut is_due = false;
            if lingered < limits::LINGERS && self.linger(&mut events, deadline, bell.is_some())? {
                lingered += 1;
            } else {
                // Signals come by the runtime, which has to get its turn.
                let is_busy = lingered == limits::LINGERS || self.is_any_paced();
                lingered = 0;
                events.clear();
                tokio::select! {
                    biased;
                    asked = signals.next() => self.on_signal(asked)?,
                    ready = self.poller.wait(&mut events) => ready.context("waiting for events")?,
                    () = at(deadline) => is_due = true,
                    () = yield_now(), if is_busy => {}
                }
            }
            if let Some(bell) = bell.as_ref()
                && events.iter().any(|event| event.token == Token::Signals)
            {
                while matches!((&mut &*bell).read(&mut self.buffer), Ok(1..)) {}
                // Here the runtime learns of them.
                yield_now().await;
                while let Some(asked) = signals.now().await {
                    self.on_signal(asked)?;
                }
            }
            // Who has connected before the app wrote is there for what it wrote, even when somebody
            // else has been attached all along.
            events.sort_unstable_by_key(|event| self.turn_of(*event));
            let doors = events.partition_point(|e| matches!(e.token, Token::Listener(_)));
            for event in &events[..doors] {
                self.on_event(*event);
            }
            // Before anybody is answered: what the app writes behind that answer comes behind it.
            for index in 0..self.sources.len() {
                if self.is_paced(index) {
                    self.on_source(index, Instant::now());
                }
            }
            let until = Instant::now() + limits::OTHERS_TURN;
            for event in &events[doors..] {
                if let Some(id) = self.other(*event) {
                    // What is left of them is told again, for it is there still.
                    if Instant::now() > until {
                        break;
                    }
                    self.last_other = id;
                }
                self.on_event(*event);
            }
            let began = Instant::now();
            self.settle()?;
            // What was due then has been dealt with, or is due later: else the clock would wake the loop for ever.
            let is_late = is_due && self.deadline().is_some_and(|at| at <= began);
            if overdue.count(is_late) {
                log::error!("app {}: what is due is not dealt with", self.dir.name());
                debug_assert!(false, "the loop is woken by the clock, and nothing comes of it");
            }
        }
        Ok(())
    }

    /// The client of an event, where it is one of another user than root and the mux's own.
    fn other(&self, event: Event) -> Option<ClientId> {
        let Token::Client(id) = event.token else { return None };
        self.clients.get(&id).filter(|client| client.right < Right::Own).map(|_| id)
    }

    /// When it is an event's turn: other users come last, beginning behind the one that was served last.
    fn turn_of(&self, event: Event) -> (bool, Option<(bool, ClientId)>) {
        let other = self.other(event).map(|id| (id <= self.last_other, id));
        (!matches!(event.token, Token::Listener(_)), other)
    }

    /// Whether somebody else has made the app's FIFOs, and has them open.
    fn is_foreign(&self) -> bool {
        !self.ends_input && !self.owns_app && self.terminal.is_none()
    }

    /// Where systemd has the app's FIFOs open as well it throws away what we have not read when the app ends.
    /// There this thread takes a higher priority, as far as it may (logs and screens have no hurry), and waits
    /// without the runtime, which wakes up later; what is returned tells it of signals.
    fn hurry(&self) -> Result<Option<UnixStream>> {
        if !self.is_foreign() {
            return Ok(None);
        }
        if let Err(e) = sys::run_first() {
            log::debug!("running before others: {e}");
            if let Err(e) = rustix::process::setpriority_process(None, limits::HURRY) {
                log::debug!("raising the priority: {e}");
            }
        }
        let bell = Signals::bell().context("setting up signals")?;
        let wanted = Some(Interest { read: true, write: false });
        // It stays in the set for as long as that lives.
        let watched =
            self.poller.watch(&mut Registration::default(), &bell, Token::Signals, wanted);
        watched.context("watching signals")?;
        Ok(Some(bell))
    }

    /// Waits for events for a moment, right behind others, without going through the runtime: what a
    /// person types has its echo, and who asks for one thing asks for another. For ever, with a `bell` for
    /// signals. Whether there were any.
    fn linger(
        &self,
        events: &mut Vec<Event>,
        deadline: Option<Instant>,
        has_bell: bool,
    ) -> Result<bool> {
        if events.is_empty() && !has_bell || self.is_any_paced() {
            return Ok(false);
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let most = (!has_bell).then_some(limits::LINGER_EVENTS);
        let time = left.into_iter().chain(most).min();
        self.poller.take(events, time).context("waiting for events")
    }

    fn on_signal(&mut self, asked: SignalRequest) -> Result<()> {
        match asked {
            SignalRequest::Stop(signal) => {
                let foreground = self.foreground();
                let app = self.app.as_mut().filter(|_| self.phase == Phase::Ready);
                if app.is_some_and(|app| app.signal(signal, foreground, Instant::now())) {
                    log::info!("app {}: passed {signal} on to it", self.dir.name());
                } else {
                    log::info!("app {}: ending on {signal}", self.dir.name());
                    self.stop();
                }
            }
            SignalRequest::Reopen => {
                self.reopen_logs();
            }
            SignalRequest::Child => {
                let ended = self.app.as_mut().map_or(Ok(None), AppProcess::try_wait);
                if let Some(status) = ended.context("waiting for the app")? {
                    self.app = None;
                    self.life.turn(LifecycleEvent::Ended(status));
                    self.stop();
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            // The end of the last writer is told as a hangup.
            Token::Source(index) => self.on_source(index, Instant::now()),
            Token::Input => self.feed(Instant::now()),
            Token::Listener(index) => self.accept(index, limits::ACCEPTS_PER_TURN, Instant::now()),
            Token::Log(index) => self.on_log(index, Instant::now()),
            Token::Painter => self.on_painter(Instant::now()),
            // Dealt with before.
            Token::Signals => {}
            Token::Client(id) => self.on_client(id, event),
        }
    }

    /// Whatever depends on the time, or on what the events changed.
    fn settle(&mut self) -> Result<()> {
        let now = Instant::now();
        self.write_logs(now);
        self.answer_reopened(now);
        self.resume(now);
        self.drop_silent(now);
        self.resize_terminal(now);
        self.draw_screens(now);
        self.expire_replies(now);
        self.input.advance(now);
        self.feed(now);
        for turn in std::mem::take(&mut self.turns) {
            self.on_turn(turn);
        }
        self.start_when_attached(now)?;
        self.hang_up(now);
        self.advance(now);
        Ok(())
    }

    /// When something is due though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let held = self.held.iter().flatten().copied();
        let paused = self.listeners.iter().filter_map(|l| l.paused);
        let starts = self.app.as_ref().and_then(|app| app.waits_until);
        let hangs_up = self.app.as_ref().and_then(|app| app.hangs_up_at);
        let hello = self.silent.front().map(|(_, until)| *until);
        let terminal = self.terminal.as_ref().and_then(Terminal::deadline);
        let due = [self.input.deadline(), self.end_due(), starts, hangs_up, hello, terminal];
        let logs = self.logs.iter().filter_map(Log::deadline);
        let reopening = self.reopening.front().map(|asked| asked.until);
        let due = due.into_iter().flatten().chain(reopening);
        held.chain(paused).chain(due).chain(logs).min()
    }

    // ---- app to clients ----

    /// A source has bytes.
    fn on_source(&mut self, index: usize, now: Instant) {
        match self.pump(index, now) {
            Ok(Read::Bytes(_) | Read::Empty) => {}
            Ok(Read::End) => self.close_source(index),
            Err(e) => {
                let stream = self.sources[index].as_ref().map(|s| s.stream.name());
                log::error!("reading {}: {e}", stream.unwrap_or("a source"));
                self.close_source(index);
            }
        }
    }

    /// Reads from a source into the hub and hands on, for one turn. `Bytes` means that there may
    /// be more.
    fn pump(&mut self, index: usize, now: Instant) -> io::Result<Read> {
        for _ in 0..limits::READS_PER_TURN {
            let Some(source) = &self.sources[index] else { return Ok(Read::End) };
            let stream = source.stream;
            let want = match self.room(stream, now) {
                Room::Free(room) => room.min(limits::SOURCE_READ),
                Room::Held(until) => {
                    self.held[index] = Some(until);
                    self.watch_source(index);
                    return Ok(Read::Bytes(0));
                }
            };
            self.rescue(stream, want);
            let read = source_read(&mut self.hub, self.sources[index].as_mut(), want);
            let len = if let Ok(Read::Bytes(len)) = read { len } else { 0 };
            let clock = Now::read();
            self.hub.commit(stream, len, clock);
            let read = read?;
            if len > 0 {
                self.show_on_screen(len, now);
                self.flush_all(stream);
                self.write_logs(now);
            }
            let Some(source) = &mut self.sources[index] else { return Ok(Read::End) };
            match read {
                Read::End => return Ok(Read::End),
                Read::Bytes(len) if len == want => {}
                // An echo: what is typed next does not wait until it is known that there is no more.
                Read::Bytes(len) if stream == Stream::Tty && len < limits::PTY_PIECE => {
                    return Ok(read);
                }
                Read::Bytes(_) | Read::Empty => {
                    let is_empty = read == Read::Empty || source.gives_all();
                    let nap = source.nap(clock.at);
                    self.watch_source(index);
                    match nap {
                        // An app that writes small pieces without a break is let write some.
                        // Others may have waited for this.
                        Some(nap) => {
                            // A signal ends it: a sleep that goes on after signals may never end.
                            let _ = ppoll(&mut [], Some(nap.into()), None);
                            return Ok(Read::Bytes(0));
                        }
                        None if is_empty => return Ok(Read::Empty),
                        None => {}
                    }
                }
            }
        }
        Ok(Read::Bytes(0))
    }

    /// Lets go on what is not held back any more.
    fn resume(&mut self, now: Instant) {
        for index in 0..self.sources.len() {
            let Some(source) = self.sources[index].as_ref().filter(|_| self.held[index].is_some())
            else {
                continue;
            };
            let stream = source.stream;
            self.held[index] = match self.room(stream, now) {
                Room::Held(until) => Some(until),
                Room::Free(_) => None,
            };
            self.watch_source(index);
        }
        for index in 0..self.listeners.len() {
            if self.listeners[index].paused.is_some_and(|until| until <= now) {
                self.listeners[index].paused = None;
                self.watch_listener(index);
            }
        }
    }

    /// How much may be read from a source now.
    fn room(&mut self, stream: Stream, now: Instant) -> Room {
        let is_full = self.terminal.as_ref().is_some_and(Terminal::is_full);
        match self.hub.room(stream, now) {
            Room::Free(_) if is_full => Room::Held(now + limits::AGES),
            room => room,
        }
    }

    fn close_source(&mut self, index: usize) {
        if let Some(mut source) = self.sources[index].take() {
            self.held[index] = None;
            let gone = self.poller.watch(&mut source.watch, &source.fd, Token::Source(index), None);
            log_watch(gone);
        }
    }

    // ---- clients to app ----

    /// Gives the app what was typed, as far as it takes it.
    fn feed(&mut self, now: Instant) {
        let Some(inlet) = &mut self.inlet else { return };
        let mut moved = false;
        let mut full = false;
        let mut failed = None;
        while !full && self.input.next().iter().any(|part| !part.is_empty()) {
            match inlet.write(self.input.next()) {
                Ok(0) => full = true,
                Ok(len) => {
                    let given = self.input.next();
                    logs::typed(&mut self.logs, &mut self.hub, given, len);
                    self.input.written(len, now);
                    moved = true;
                }
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        if let Some(e) = failed {
            log::error!("writing the app's input: {e}");
            self.close_inlet();
            return;
        }
        let wanted = full.then_some(Interest { read: false, write: true });
        log_watch(self.poller.watch(&mut inlet.watch, &inlet.fd, Token::Input, wanted));
        while let Some(id) = self.input.delivered() {
            self.input_delivered(id);
        }
        if moved {
            self.resume_typing();
        }
    }

    /// The app's input has ended, for everybody.
    fn close_inlet(&mut self) {
        if let Some(mut inlet) = self.inlet.take() {
            log_watch(self.poller.watch(&mut inlet.watch, &inlet.fd, Token::Input, None));
            if self.ends_input && !self.owns_app {
                match fifo::renew_inlet(&self.dir, &self.notify) {
                    Ok(inlet) => self.next_inlet = Some(inlet),
                    Err(e) => log::error!("app {}: {e:#}", self.dir.name()),
                }
            }
        }
        self.input.close();
        self.end_typing();
    }

    /// The app was started again: if its input had been ended, it has a new one.
    fn begin_input(&mut self) {
        if let Some(inlet) = self.next_inlet.take() {
            fifo::begin_inlet(&inlet, &self.notify);
            self.inlet = Some(inlet);
        }
    }

    // ---- watching ----

    /// Whether a source is read without being watched.
    fn is_paced(&self, index: usize) -> bool {
        self.held[index].is_none() && self.sources[index].as_ref().is_some_and(|s| s.paced)
    }

    fn is_any_paced(&self) -> bool {
        (0..self.sources.len()).any(|index| self.is_paced(index))
    }

    fn watch_source(&mut self, index: usize) {
        let is_held = self.held[index].is_some();
        if let Some(source) = &mut self.sources[index] {
            let wanted =
                (!is_held && !source.paced).then_some(Interest { read: true, write: false });
            let done =
                self.poller.watch(&mut source.watch, &source.fd, Token::Source(index), wanted);
            log_watch(done);
        }
    }

    fn watch_listener(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        let wanted = listener.paused.is_none().then_some(Interest { read: true, write: false });
        let token = Token::Listener(index);
        log_watch(self.poller.watch(&mut listener.watch, &listener.socket, token, wanted));
    }
}

/// How often in a row the clock has woken the loop, and nothing has come of it.
#[derive(Debug, Default)]
struct Overdue {
    turns: u32,
    /// It was logged: once is enough.
    is_told: bool,
}

impl Overdue {
    /// Counts a turn; whether the loop is stuck for the first time.
    fn count(&mut self, is_late: bool) -> bool {
        self.turns = if is_late { self.turns.saturating_add(1) } else { 0 };
        let is_stuck = self.turns >= limits::OVERDUE;
        is_stuck && !std::mem::replace(&mut self.is_told, true)
    }

    /// A loop that is stuck looks now and then.
    fn put_off(&self, deadline: Option<Instant>) -> Option<Instant> {
        if self.turns < limits::OVERDUE {
            return deadline;
        }
        deadline.map(|at| at.max(Instant::now() + limits::OVERDUE_PAUSE))
    }
}

/// One read into the hub's free space.
fn source_read(hub: &mut Hub, source: Option<&mut Source>, want: usize) -> io::Result<Read> {
    let Some(source) = source else { return Ok(Read::End) };
    match source.prepare(want)? {
        None => {}
        Some(Read::Bytes(len)) => hub.announce(source.stream, len),
        Some(nothing) => return Ok(nothing),
    }
    source.read(hub.space(source.stream, want))
}

/// The kernel refuses to watch only for want of memory; then the loop goes on without.
fn log_watch(done: io::Result<()>) {
    if let Err(e) = done {
        log::error!("watching a descriptor: {e}");
    }
}

/// Waits for a time, or for ever.
async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}
