//! The loop, which carries between the parts: what arrives at one is handed to the others here.
//!
//! | module | is |
//! |---|---|
//! | [`start`], [`shutdown`] | how a mux begins and ends |
//! | [`output`], [`terminal`] | the loop and the app: its output, its terminal |
//! | [`clients`], [`receive`], [`status`] | the loop and its clients: connecting, input and requests, the report |
//! | [`engine`] | the loop and the engine of a container |

mod clients;
mod engine;
mod output;
mod receive;
mod shutdown;
mod start;
mod status;
mod terminal;

pub(crate) use self::start::MuxPlan;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;

use crate::core::hub::{ClientId, Hub};
use crate::core::wire::FrameKind;
use crate::mux::admission::Admission;
use crate::mux::app::input_feed::InputFeed;
use crate::mux::app::life::Lifecycle;
use crate::mux::app::sources::Sources;
use crate::mux::app_files::AppFiles;
use crate::mux::clients::Clients;
use crate::mux::engine::Engine;
use crate::mux::logs::Logs;
use crate::mux::pages::Pages;
use crate::mux::poll::{Poller, Readiness, Token};
use crate::mux::terminal::Terminal;
use crate::sys::calls;
use crate::sys::signals::CaughtSignals;
use crate::sys::systemd::watchdog::Watchdog;
use crate::types::limits;
use crate::types::stream::Stream;

/// Time per turn of the loop for input from clients of other users than root and the mux's own. The
/// rest waits for the next turn, so the app's output and root's input are not delayed. One client
/// may exceed it.
const OTHERS_TURN: Duration = Duration::from_millis(2);
/// Connections accepted before the existing clients have their turn.
const ACCEPTS_PER_TURN: usize = 32;
/// Timer wake-ups in a row after which something may still be due, since it may have several parts.
const OVERDUE: u32 = 8;

/// The signals that a mux handles: to end, to reopen the logs, and that a terminal was resized.
const SIGNALS: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGWINCH];

/// The phase of a mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything accepts.
    Ready,
    /// The sources are read until they are empty: at least until `quiet`, since the app's last
    /// children may still write, and at most until `until`.
    Draining { quiet: Instant, until: Instant },
    /// The sources are closed, and no new client can connect. Clients get the rest, at most until
    /// `until`; the patience with the first of them ends at `patience`.
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
    /// The app's output, and the position of each client.
    hub: Hub,
    sources: Sources,
    /// The newest output, for clients that get it without a copy.
    pages: Pages,
    input: InputFeed,
    life: Lifecycle,
    admission: Admission,
    clients: Clients,
    logs: Logs,
    /// The app's terminal, if it has one.
    terminal: Option<Terminal>,
    /// The engine that started the app as a container, if it has an end.
    engine: Option<Engine>,
    signals: CaughtSignals,
}

impl Mux {
    /// Serves until a signal ends it.
    pub(crate) fn serve(mut self: Box<Self>) -> Result<()> {
        let outcome = self.work();
        if let Err(e) = &outcome {
            self.abandon(e);
        }
        self.finish();
        outcome
    }

    fn work(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(limits::EVENTS);
        let mut overdue = 0u32;
        let mut watchdog = Watchdog::new(&self.files.notify);
        self.begin();
        if self.files.is_foreign && self.terminal.is_none() {
            hurry();
        }
        // Just before the first wait, since the memory of the start is not needed again. A failure costs
        // only memory.
        let _ = calls::forget_startup();
        while self.phase != Phase::Done {
            let due = self.deadline();
            // A paced source is read in each turn.
            let now = self.sources.is_any_paced().then(Instant::now);
            let until = [due, watchdog.due(), now].into_iter().flatten().min();
            self.poller.wait(&mut events, until).context("cannot wait for events")?;
            self.report_alive(&mut watchdog, !events.is_empty(), due);
            let is_idle = events.is_empty();
            self.on_events(&mut events);
            let began = Instant::now();
            self.run_due();
            // Everything that was due has been done, or is due later. Otherwise the clock would
            // wake the loop for ever.
            let is_late = is_idle && self.deadline().is_some_and(|at| at <= began);
            overdue = if is_late { overdue.saturating_add(1) } else { 0 };
            debug_assert!(overdue < OVERDUE, "the clock wakes the loop, and nothing comes of it");
        }
        Ok(())
    }

    /// The loop has woken up, because of events, of what was due, or for the watchdog only.
    fn report_alive(&self, watchdog: &mut Watchdog, has_events: bool, due: Option<Instant>) {
        let is_due = || due.is_some_and(|at| at <= Instant::now());
        let is_busy = has_events || self.sources.is_any_paced() || is_due();
        let worker = self.terminal.as_ref().map(|terminal| &terminal.worker);
        let awaited = worker.filter(|worker| worker.is_full).map(|worker| worker.done);
        watchdog.wake(is_busy, awaited, &self.files.notify);
    }

    fn on_signals(&mut self) {
        for signal in self.signals.take() {
            let name = self.files.name();
            match signal {
                Signal::SIGHUP => {
                    let size = self.terminal_size();
                    self.logs.reopen(&mut self.hub, size);
                }
                // The engine has resized its terminal.
                Signal::SIGWINCH => self.follow_engine_window(),
                // The kernel sends it, whatever the keeper has died of.
                _ if self.life.outlive_keeper() => {
                    log::error!("app {name}: its keeper has died, going on without it");
                    // Then a terminal has an end, too.
                    self.sources.release(&self.files.notify);
                }
                _ if self.phase == Phase::Ready && self.life.puts_off_end() => {
                    log::info!("app {name}: ending on {signal} as soon as it has");
                    self.files.notify.signalled();
                }
                _ => {
                    log::info!("app {name}: ending on {signal}");
                    self.stop();
                }
            }
        }
    }

    fn on_events(&mut self, events: &mut [Readiness]) {
        // A client that connected before the app wrote gets that output, even if another client has
        // been attached all along.
        events.sort_unstable_by_key(|event| self.turn_of(*event));
        let listeners = events.partition_point(|e| matches!(e.token, Token::Listener(_)));
        let (connections, others) = events.split_at(listeners);
        for event in connections {
            self.on_event(*event);
        }
        // Before any client gets an answer: later output of the app comes after that answer.
        for stream in Stream::ALL {
            if self.sources.is_paced(stream) {
                self.on_source(stream, Instant::now());
            }
        }
        let until = Instant::now() + OTHERS_TURN;
        for event in others {
            if let Token::Client(id) = event.token
                && self.clients.is_others(id)
            {
                // The events that are left are reported again.
                if Instant::now() > until {
                    break;
                }
                self.clients.last_other = id;
            }
            self.on_event(*event);
        }
    }

    /// The order of events: connections first, clients of other users last.
    fn turn_of(&self, event: Readiness) -> (bool, Option<(bool, ClientId)>) {
        let turn = match event.token {
            Token::Client(id) => self.clients.turn_of_other(id),
            _ => None,
        };
        (!matches!(event.token, Token::Listener(_)), turn)
    }

    fn on_event(&mut self, event: Readiness) {
        match event.token {
            // The end of the last writer is reported as a hangup.
            Token::Source(stream) => self.on_source(stream, Instant::now()),
            Token::Input => self.feed(Instant::now()),
            Token::Listener(index) => self.accept(index, ACCEPTS_PER_TURN, Instant::now()),
            Token::Log(index) => self.logs.on_events(index, &mut self.hub, Instant::now()),
            Token::Screen => self.on_screen_events(Instant::now()),
            Token::Signals => self.on_signals(),
            Token::JournalWriter => {
                self.logs.on_journal_writer_ended(&self.poller, self.phase != Phase::Ready);
            }
            Token::Engine(stream) => self.on_engine(stream, Instant::now()),
            Token::Client(id) => self.on_client(id, event),
        }
        self.reap();
    }

    /// Does everything that depends on the time, or on the changes of the events, until no client
    /// fails by that.
    fn run_due(&mut self) {
        loop {
            self.run_due_once(Instant::now());
            if !self.reap() {
                break;
            }
        }
    }

    fn run_due_once(&mut self, now: Instant) {
        self.logs.write(&mut self.hub, now);
        while let Some((client, answer)) = self.logs.next_answer(now) {
            self.notify(client, &FrameKind::Answer.message(&answer));
        }
        self.resume(now);
        self.pages.release(|stream| self.hub.slowest(stream));
        self.clients.drop_silent(now);
        self.resize_terminal(now);
        self.draw_screens(now);
        self.expire_replies(now);
        self.input.queue.advance(now);
        self.feed(now);
        self.on_lifecycle_events();
        if self.life.is_alone() && self.sources.are_closed() {
            self.life.pid = None;
            self.stop();
        }
        if self.life.ends_now() {
            self.stop();
        }
        if let Some(error) = self.life.failed.take() {
            self.abandon(&anyhow!(error));
            self.phase = Phase::Done;
            return;
        }
        if self.life.must_report_client(self.clients.has_attached()) {
            self.files.notify.attached();
        }
        self.advance(now);
    }

    /// When something is due though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let due = [
            self.sources.deadline(),
            self.admission.deadline(),
            self.clients.hello_due(),
            self.input.queue.deadline(),
            self.input.deadline(),
            self.terminal.as_ref().and_then(Terminal::deadline),
            self.logs.deadline(),
            self.end_due(),
        ];
        due.into_iter().flatten().min()
    }
}

/// Systemd has the app's FIFOs open as well, and discards unread output when the app ends: the loop
/// runs before others, as far as it may (logs and screens do not).
fn hurry() {
    if let Err(e) = calls::run_first() {
        log::debug!("running before others: {e}");
        if let Err(e) = rustix::process::setpriority_process(None, limits::HURRY) {
            log::debug!("raising the priority: {e}");
        }
    }
}
