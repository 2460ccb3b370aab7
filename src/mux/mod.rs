//! The mux: one loop that carries bytes between the app and its clients, and the app's life cycle.
//!
//! Data goes source → hub → clients, and clients → input queue → app. Everything that can happen is
//! an [`Event`] or an arm of [`Mux::work`]; each is handled to the end before the next. The phases
//! only go forward: ready, draining (the sources are read empty), delivering (clients get the rest),
//! done. Nothing here blocks, except opening at the start, and a nap of a fraction of a millisecond
//! (`source/pace.rs`).
//!
//! The code map. A module uses only modules below it; the parts of a mux (from `admission` to `files`)
//! do not use each other.
//!
//! | module | is |
//! |---|---|
//! | [`start`], [`shutdown`] | how a mux begins and ends |
//! | [`output`], [`show`] | the loop and the app: its output, its terminal |
//! | [`serve`], [`receive`], [`status`] | the loop and its clients: connecting, input and requests, the report |
//! | [`logs`] | the logs |
//! | [`admission`] | which clients may connect, and how many |
//! | [`app`] | the app's streams, input, process and life cycle |
//! | [`clients`] | the registry of clients, and their connections |
//! | [`terminal`] | size, screen and queries of the app's terminal |
//! | [`files`] | the app's directory, and what the mux made there |
//! | [`client_log`] | the log lines that clients can cause |
//! | [`source`] | FIFOs and pty pairs |
//! | [`peer`], [`poll`], [`signals`] | peers, readiness, signals |

mod admission;
pub(crate) mod app;
mod client_log;
mod clients;
mod files;
pub mod logs;
mod output;
mod peer;
pub(crate) mod poll;
mod receive;
mod serve;
mod show;
mod shutdown;
mod signals;
pub(crate) mod source;
mod start;
mod status;
mod terminal;

use std::future::pending;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio::task::yield_now;
use tokio::time::sleep_until;

pub(crate) use crate::mux::logs::LogPlan;
pub(crate) use crate::mux::start::{MuxPlan, Streams, prepare};

use crate::core::hub::{ClientId, Hub};
use crate::mux::admission::Admission;
use crate::mux::app::input::InputFeed;
use crate::mux::app::life::Lifecycle;
use crate::mux::app::sources::Sources;
use crate::mux::clients::Clients;
use crate::mux::files::AppFiles;
use crate::mux::logs::Logs;
use crate::mux::poll::{Event, Interest, Poller, Registration, Token};
use crate::mux::signals::{SignalRequest, Signals};
use crate::mux::terminal::Terminal;
use crate::os::sys;
use crate::types::limits;
use crate::wire::AppStatus;

/// The phase of a mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything accepts.
    Ready,
    /// The sources are read until they are empty: at least until `quiet`, since the app's last children
    /// may still write, and at most until `until`.
    Draining { quiet: Instant, until: Instant },
    /// The sources are closed, and no new client comes. Clients get what is left, at most until `until`;
    /// the patience with the first of them ends at `patience`.
    Delivering { until: Instant, patience: Option<Instant> },
    /// Nothing is left to do.
    Done,
}

/// A running mux. Its parts do not know each other; the methods of the mux carry between them.
pub(crate) struct Mux {
    phase: Phase,
    /// Since when everything accepts.
    since: Instant,
    files: AppFiles,
    poller: Poller,
    /// What the app wrote, and how far each client is.
    hub: Hub,
    sources: Sources,
    input: InputFeed,
    life: Lifecycle,
    admission: Admission,
    clients: Clients,
    logs: Logs,
    /// The app's terminal, if it has one.
    terminal: Option<Terminal>,
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
        outcome.map(|()| self.life.status().filter(|_| self.life.owns_app()))
    }

    async fn work(&mut self) -> Result<()> {
        let mut signals = Signals::new().context("setting up signals")?;
        let mut events = Vec::with_capacity(limits::EVENTS);
        let mut lingered = 0;
        let mut overdue = Overdue::default();
        self.begin()?;
        let waker = self.hurry()?;
        let mut starts = true;
        while self.phase != Phase::Done {
            let deadline = overdue.put_off(self.deadline());
            let mut is_due = false;
            // At the last moment before it waits: what runs once is not needed again.
            if std::mem::take(&mut starts)
                && let Err(e) = sys::forget_startup_code()
            {
                log::debug!("cannot give back the memory of starting up: {e}");
            }
            if lingered < limits::LINGERS && self.linger(&mut events, deadline, waker.is_some())? {
                lingered += 1;
            } else {
                // Signals come by the runtime, which has to get its turn.
                let is_busy = lingered == limits::LINGERS || self.sources.is_any_paced();
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
            if let Some(waker) = waker.as_ref()
                && events.iter().any(|event| event.token == Token::Signals)
            {
                while matches!((&mut &*waker).read(&mut [0; 64]), Ok(1..)) {}
                // Here the runtime learns of them.
                yield_now().await;
                while let Some(asked) = signals.now().await {
                    self.on_signal(asked)?;
                }
            }
            self.on_events(&mut events);
            let began = Instant::now();
            self.settle()?;
            // What was due then has been done, or is due later: else the clock would wake the loop for ever.
            let is_late = is_due && self.deadline().is_some_and(|at| at <= began);
            if overdue.count(is_late) {
                log::error!("app {}: a deadline has passed and does not move", self.files.name());
                debug_assert!(false, "the loop is woken by the clock, and nothing comes of it");
            }
        }
        Ok(())
    }

    /// Another process may have made the app's FIFOs, and have them open.
    fn is_foreign(&self) -> bool {
        !self.input.can_end && !self.life.owns_app() && self.terminal.is_none()
    }

    /// If systemd has the app's FIFOs open as well, it throws away what we have not read when the app
    /// ends. Then this thread takes a higher priority, as far as it may (logs and screens do not), and waits
    /// without the runtime, which wakes up later; the returned waker reports signals.
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
        let waker = Signals::waker().context("setting up signals")?;
        let wanted = Some(Interest { read: true, write: false });
        // It stays in the set for as long as the waker lives.
        let watched =
            self.poller.watch(&mut Registration::default(), &waker, Token::Signals, wanted);
        watched.context("watching signals")?;
        Ok(Some(waker))
    }

    /// Waits for events for a moment, right behind others, without the runtime: what a person types has
    /// its echo, and a client that asks for one thing asks for another. With a waker for signals it waits
    /// without an end. Whether there were any events.
    fn linger(
        &self,
        events: &mut Vec<Event>,
        deadline: Option<Instant>,
        has_waker: bool,
    ) -> Result<bool> {
        if events.is_empty() && !has_waker || self.sources.is_any_paced() {
            return Ok(false);
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let most = (!has_waker).then_some(limits::LINGER_EVENTS);
        let time = left.into_iter().chain(most).min();
        self.poller.take(events, time).context("waiting for events")
    }

    fn on_signal(&mut self, asked: SignalRequest) -> Result<()> {
        match asked {
            SignalRequest::Stop(signal) => self.on_stop_signal(signal),
            SignalRequest::Reopen => {
                self.reopen_logs();
            }
            SignalRequest::Child => {
                if self.life.reap().context("waiting for the app")? {
                    self.stop();
                }
            }
        }
        Ok(())
    }

    /// The app gets the signal if it is a child of this process; else the mux ends.
    fn on_stop_signal(&mut self, signal: Signal) {
        let foreground = self.sources.foreground();
        if self.phase == Phase::Ready && self.life.signal(signal, foreground, Instant::now()) {
            log::info!("app {}: passed {signal} on to it", self.files.name());
        } else {
            log::info!("app {}: ending on {signal}", self.files.name());
            self.stop();
        }
    }

    fn on_events(&mut self, events: &mut [Event]) {
        // A client that connected before the app wrote is there for what it wrote, even when another one
        // has been attached all along.
        events.sort_unstable_by_key(|event| self.turn_of(*event));
        let listeners = events.partition_point(|e| matches!(e.token, Token::Listener(_)));
        let (connections, others) = events.split_at(listeners);
        for event in connections {
            self.on_event(*event);
        }
        // Before any client is answered: what the app writes behind that answer comes behind it.
        for index in 0..self.sources.len() {
            if self.sources.is_paced(index) {
                self.on_source(index, Instant::now());
            }
        }
        let until = Instant::now() + limits::OTHERS_TURN;
        for event in others {
            if let Token::Client(id) = event.token
                && self.clients.is_others(id)
            {
                // The events that are left are reported again.
                if Instant::now() > until {
                    break;
                }
                self.clients.begin_other(id);
            }
            self.on_event(*event);
        }
    }

    /// The order of events: connections first, clients of other users last.
    fn turn_of(&self, event: Event) -> (bool, Option<(bool, ClientId)>) {
        let turn = match event.token {
            Token::Client(id) => self.clients.turn_of_other(id),
            _ => None,
        };
        (!matches!(event.token, Token::Listener(_)), turn)
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            // The end of the last writer is reported as a hangup.
            Token::Source(index) => self.on_source(index, Instant::now()),
            Token::Input => self.feed(Instant::now()),
            Token::Listener(index) => self.accept(index, limits::ACCEPTS_PER_TURN, Instant::now()),
            Token::Log(index) => self.on_log(index, Instant::now()),
            Token::Screen => self.on_screen_events(Instant::now()),
            // Handled before.
            Token::Signals => {}
            Token::Client(id) => self.on_client(id, event),
        }
    }

    /// Does whatever depends on the time, or on what the events changed.
    fn settle(&mut self) -> Result<()> {
        let now = Instant::now();
        self.write_logs(now);
        self.answer_reopened(now);
        self.resume(now);
        self.drop_silent(now);
        self.resize_terminal(now);
        self.draw_screens(now);
        self.expire_replies(now);
        self.input.queue.advance(now);
        self.feed(now);
        for event in self.life.take_events() {
            self.on_lifecycle(event);
        }
        self.start_when_attached(now)?;
        self.hang_up(now);
        self.advance(now);
        Ok(())
    }

    /// When something is due though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let due = [
            self.sources.deadline(),
            self.admission.deadline(),
            self.input.queue.deadline(),
            self.life.deadline(),
            self.terminal.as_ref().and_then(Terminal::deadline),
            self.logs.deadline(),
            self.end_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Starts the app as soon as its first client is there, if it was asked to wait for one.
    fn start_when_attached(&mut self, now: Instant) -> Result<()> {
        let Some(until) = self.life.waits_until() else { return Ok(()) };
        if self.clients.has_session() {
            self.life.start()?;
        } else if until <= now {
            bail!("app {}: not started, nobody attached", self.files.name());
        }
        Ok(())
    }
}

/// How often in a row the clock has woken the loop, and nothing has come of it.
#[derive(Debug, Default)]
struct Overdue {
    turns: u32,
    /// Once is enough.
    is_logged: bool,
}

impl Overdue {
    /// Counts a turn; whether the loop is stuck for the first time.
    fn count(&mut self, is_late: bool) -> bool {
        self.turns = if is_late { self.turns.saturating_add(1) } else { 0 };
        let is_stuck = self.turns >= limits::OVERDUE;
        is_stuck && !std::mem::replace(&mut self.is_logged, true)
    }

    /// A loop that is stuck looks now and then.
    fn put_off(&self, deadline: Option<Instant>) -> Option<Instant> {
        if self.turns < limits::OVERDUE {
            return deadline;
        }
        deadline.map(|at| at.max(Instant::now() + limits::OVERDUE_PAUSE))
    }
}

/// Waits for a time, or for ever.
async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}
