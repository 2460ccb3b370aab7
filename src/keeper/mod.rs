//! A keeper: the parent of a mux, and of its app, unless that is a container.
//!
//! It does for one mux what systemd does for a unit: it keeps the mux's descriptors, starts a mux
//! that has died again, and reports how the app began and ended. So a mux has one way to continue
//! (sd_listen_fds(3), sd_notify(3), the requests of the unit's hooks). The keeper reads no data of
//! the app or of a client.

mod app;
mod keeper_store;
mod mux_child;
pub(crate) mod run;
pub(crate) mod scope;
pub(crate) mod stop;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};

pub(crate) use self::app::{AppEvent, CommandApp, KeptApp};
use self::keeper_store::{Store, StoreMessage};
use self::mux_child::MuxProcess;
use crate::client::status;
use crate::core::wire::{AppStatus, ControlRequest, Started};
use crate::mux::TERMINAL;
use crate::sys::ready;
use crate::sys::signals::CaughtSignals;
use crate::sys::state::{AppDir, LAST};
use crate::sys::{calls, diagnostics};
use crate::types::exit::Exit;
use crate::types::limits;

/// Messages of the mux that are handled before signals and the app have their turn: a mux stores a few
/// dozen descriptors when it starts.
const MESSAGES_PER_TURN: usize = 128;

/// How long `run` waits for its own client before it gives up starting the app.
const FIRST_CLIENT: Duration = Duration::from_secs(30);

/// How long SIGTERM for the app waits for the word of the mux that it got one, too: what ends a control
/// group signals all of its processes within microseconds, and has signalled the app then.
const GROUP_WAIT: Duration = Duration::from_millis(100);

/// The variable with the name of the app of `run`, for its keeper and its mux.
pub(crate) const NAME: &str = "IOTTYMUX_APP";
/// The variable with the name of the app, for the command itself.
pub(crate) const OWN_NAME: &str = "IOTTYMUX_NAME";

/// The variable by which `run` has its keeper in the background: whether the app starts only when
/// `run` has attached.
pub(crate) const AWAIT_CLIENT: &str = "IOTTYMUX_AWAIT_CLIENT";

/// The signal by which `run --attach` tells its keeper that its output was closed. The app gets
/// SIGPIPE. That cannot be passed on itself: the keeper may get it for its own messages.
pub(crate) const OUTPUT_CLOSED: Signal = Signal::SIGUSR1;
const CAUGHT: [Signal; 6] = [
    Signal::SIGCHLD,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    OUTPUT_CLOSED,
];

/// An app to be kept.
pub(crate) struct KeepRequest {
    pub(crate) dir: AppDir,
    pub(crate) app: Box<dyn KeptApp>,
    /// The arguments of this program that make it the mux.
    pub(crate) mux: Vec<OsString>,
    /// The user of the mux, if it is not this one.
    pub(crate) user: Option<MuxUser>,
    /// The ends of the app that exist already, by the names in the mux's store.
    pub(crate) passed: Vec<(String, OwnedFd)>,
    /// Whether the app waits for its first client, for [`FIRST_CLIENT`].
    pub(crate) awaits_client: bool,
    /// Whether the app needs a mux whatever happens: it starts though none can be had, and has one
    /// as soon as that is possible.
    pub(crate) insists: bool,
    /// Whether nothing of the app is to stay in the state directory after its end.
    pub(crate) removes: bool,
    /// Reports, once, that the app can start and clients can attach.
    pub(crate) on_ready: OnReady,
    /// How long the keeper stays after a signal to end, at most. The mux then ends alone.
    pub(crate) stays: Option<Duration>,
}

/// The user of a mux, which its keeper is not.
#[derive(Clone, Debug)]
pub(crate) struct MuxUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// See [`KeepRequest::on_ready`].
pub(crate) type OnReady = Box<dyn FnOnce()>;

/// See the module.
struct Keeper {
    dir: AppDir,
    on_ready: Option<OnReady>,
    app: Box<dyn KeptApp>,
    /// How far the app is.
    stage: AppStage,
    insists: bool,
    stays: Option<Duration>,
    /// When the keeper leaves its mux alone, if it was asked to end.
    leaves_at: Option<Instant>,
    /// When SIGTERM is passed on to the app, if this process has got one.
    terminates_at: Option<Instant>,
    /// When the mux said last that it has got a signal to end.
    mux_signalled: Option<Instant>,
    /// How often it has said so though this process had got none.
    lone_signals: u32,
    /// Whether the mux, once it is ready, is to reopen its logs: a signal would end one that starts.
    reopens_logs: bool,
    mux: MuxProcess,
    store: Store,
}

/// How far the app is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppStage {
    /// It starts when the mux is ready, or has a client.
    Waiting {
        /// Until when the first client must have come, if it waits for one.
        client_until: Option<Instant>,
    },
    Running,
    /// It has ended, or never began: the mux has to end as well.
    Over {
        /// How it ended, if that is known.
        status: Option<AppStatus>,
        /// The exit code of `run`.
        exit: Exit,
    },
}

/// Keeps an app and its mux until both have ended.
pub(crate) fn keep(request: KeepRequest) -> Result<Exit> {
    let client_until = request.awaits_client.then(|| Instant::now() + FIRST_CLIENT);
    let signals = CaughtSignals::new(&CAUGHT).context("cannot catch signals")?;
    let store = Store::with(request.passed);
    let keeper = Keeper {
        on_ready: Some(request.on_ready),
        app: request.app,
        stage: AppStage::Waiting { client_until },
        insists: request.insists,
        stays: request.stays,
        leaves_at: None,
        terminates_at: None,
        mux_signalled: None,
        lone_signals: 0,
        reopens_logs: false,
        mux: MuxProcess::start(request.dir.name(), request.mux, request.user, &store)?,
        store,
        dir: request.dir.clone(),
    };
    let done = keeper.work(signals);
    // What is there of the app's end is that of the next one with this name: its mux has left nothing.
    if request.removes
        && !request.dir.has(LAST)
        && let Err(e) = request.dir.clear()
    {
        log::warn!("cannot remove app {}: {e:#}", request.dir.name());
    }
    done
}

impl Keeper {
    fn work(mut self, mut signals: CaughtSignals) -> Result<Exit> {
        loop {
            self.receive()?;
            // Before the app is looked at: SIGCHLD says that there is something to see.
            let pending = signals.take();
            self.look_at_app()?;
            for signal in pending {
                self.on_signal(signal);
            }
            if let Some(exit) = self.reap()? {
                return Ok(exit);
            }
            self.collect_orphans();
            self.do_what_is_due(Instant::now())?;
            if matches!(self.stage, AppStage::Over { .. }) && !self.store.has_engine_output() {
                self.app.let_go();
            }
            if let AppStage::Over { exit, .. } = self.stage
                && self.leaves_at.is_some_and(|at| at <= Instant::now())
            {
                return Ok(exit);
            }
            self.wait(&signals)?;
        }
    }

    /// Handles messages of the mux that have come. The rest waits for the next turn.
    fn receive(&mut self) -> Result<()> {
        let what = "cannot read from the mux";
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = self.store.receive(&self.mux.channel).context(what)? else { break };
            self.handle(message);
        }
        Ok(())
    }

    /// Waits for a signal, a message or the app, or until something is due.
    fn wait(&self, signals: &CaughtSignals) -> Result<()> {
        let mut fds = self.app.watched();
        fds.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        // The channel of a mux that has died stays readable.
        if self.mux.is_alive() {
            fds.push(PollFd::new(self.mux.channel.as_fd(), PollFlags::POLLIN));
        }
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        ready::wait(&mut fds, left).map(drop).context("cannot wait for signals")
    }

    fn deadline(&self) -> Option<Instant> {
        let waits_until = match self.stage {
            AppStage::Waiting { client_until } => client_until,
            AppStage::Running | AppStage::Over { .. } => None,
        };
        let due = [waits_until, self.app.due(), self.mux.due(), self.leaves_at, self.terminates_at];
        due.into_iter().flatten().min()
    }

    // ---- the mux ----

    fn handle(&mut self, message: StoreMessage) {
        match (message, self.stage) {
            // It is once. The reports that follow wait for the mux, and signals for these.
            (StoreMessage::Ready, _) if self.mux.is_ready() => {}
            (StoreMessage::Ready, stage) => {
                let is_first = self.mux.on_ready();
                self.lone_signals = 0;
                if std::mem::take(&mut self.reopens_logs) {
                    self.mux.signal(Signal::SIGHUP);
                }
                match stage {
                    AppStage::Waiting { client_until: None } => self.start_app(),
                    AppStage::Waiting { .. } => {}
                    AppStage::Running => self.report_start(),
                    AppStage::Over { .. } => self.end_mux(),
                }
                self.report_ready();
                if is_first && let Err(e) = calls::forget_startup() {
                    log::debug!("cannot give back the memory of starting up: {e}");
                }
            }
            (StoreMessage::Attached, AppStage::Waiting { .. }) => self.start_app(),
            (StoreMessage::Signal(signal), _) => self.pass_on(signal, Instant::now()),
            (StoreMessage::Signalled, _) => self.on_group_signal(Instant::now()),
            (StoreMessage::Attached | StoreMessage::Other, _) => {}
        }
    }

    fn report_ready(&mut self) {
        if let Some(report) = self.on_ready.take() {
            report();
        }
    }

    /// Reports the app's exit to the mux, if the app was started, and ends the mux.
    fn end_mux(&mut self) {
        if !self.mux.is_ready() {
            // The mux gets the report when it is ready.
            return;
        }
        let is_told = match self.stage {
            AppStage::Over { status: Some(status), .. } => {
                self.report(&ControlRequest::Ended(status))
            }
            AppStage::Over { status: None, .. } if self.app.pid().is_some() => {
                self.report(&ControlRequest::Vanished)
            }
            _ => true,
        };
        if is_told {
            self.mux.on_told();
        }
        self.mux.end(Instant::now());
    }

    fn report_start(&mut self) {
        let pid = self.app.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok());
        if let Some(pid) = pid {
            self.report(&ControlRequest::Started(Started { pid }));
        }
    }

    /// Reports to a mux that is ready, and returns whether it took that. A later one gets the report when
    /// it is ready.
    fn report(&self, request: &ControlRequest) -> bool {
        if !self.mux.is_ready() {
            return false;
        }
        let told = status::tell(&self.dir, request, (Duration::ZERO, limits::HOOK));
        told.inspect_err(|e| log::info!("{e:#}")).is_ok()
    }

    // ---- the app ----

    fn look_at_app(&mut self) -> Result<()> {
        while let Some(event) = self.app.look(Instant::now())? {
            match event {
                AppEvent::Started => self.report_start(),
                AppEvent::Ended(status) => {
                    let exit = status.map_or(Exit::Lost, |status| Exit::App(status.code()));
                    self.stage = AppStage::Over { status, exit };
                    self.end_mux();
                }
            }
        }
        Ok(())
    }

    fn start_app(&mut self) {
        match self.app.start(self.store.take_app_ends()) {
            Ok(()) => {
                self.stage = AppStage::Running;
                self.report_start();
            }
            Err(e) => {
                self.report(&ControlRequest::NotStarted { error: format!("{e:#}") });
                self.give_up(&e);
            }
        }
    }

    /// The app will not be started.
    fn give_up(&mut self, why: &anyhow::Error) {
        let exit = diagnostics::failed(why, Exit::Lost);
        self.on_ready = None;
        self.stage = AppStage::Over { status: None, exit };
        self.end_mux();
    }

    /// Collects a mux that has ended. Returns the exit code when nothing is left to do.
    fn reap(&mut self) -> Result<Option<Exit>> {
        let knows_end = self.mux.knows_end();
        let Some(status) = self.mux.reap().context("cannot wait for the mux")? else {
            return Ok(None);
        };
        // The last messages of the mux.
        self.receive()?;
        match (self.stage, status.code()) {
            (AppStage::Over { exit, .. }, Some(0)) if knows_end => Ok(Some(exit)),
            // It had no client yet.
            (AppStage::Over { exit, .. }, _) if !self.mux.was_ready() => Ok(Some(exit)),
            // It has said why, unless a signal has ended it, and would say it again.
            (AppStage::Waiting { .. }, code) if !self.mux.was_ready() && !self.insists => {
                if code.is_none() {
                    let name = self.dir.name();
                    let why = if status.signal() == Some(Signal::SIGSYS as i32) {
                        "; a unit with SystemCallFilter= needs SystemCallErrorNumber=EPERM, too"
                    } else {
                        ""
                    };
                    log::error!("app {name}: its mux ended before it was ready ({status}){why}");
                }
                let exit =
                    if code == Some(Exit::Usage.code()) { Exit::Usage } else { Exit::Failed };
                Ok(Some(exit))
            }
            (AppStage::Over { exit, .. }, _) if self.mux.has_failed_often() => Ok(Some(exit)),
            _ => {
                let level = if status.success() { log::Level::Info } else { log::Level::Warn };
                let name = self.dir.name();
                log::log!(level, "app {name}: its mux ended ({status}), starting it again");
                self.mux.start_later(Instant::now());
                // Its app starts without it.
                self.report_ready();
                Ok(None)
            }
        }
    }

    /// As the first process of a container this one gets all orphans there.
    fn collect_orphans(&self) {
        if std::process::id() != 1 {
            return;
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Some(pid) = waitid(Id::All, flags).ok().and_then(|ended| ended.pid()) {
            // What has just ended of ours is looked at in the next turn.
            if self.app.pid() == Some(pid) || self.mux.pid() == Some(pid) {
                return;
            }
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }

    fn do_what_is_due(&mut self, now: Instant) -> Result<()> {
        if let AppStage::Waiting { client_until: Some(until) } = self.stage
            && until <= now
        {
            let name = self.dir.name();
            self.give_up(&anyhow!("app {name}: not started, because no client has attached"));
        }
        let is_due = self.terminates_at.take_if(|at| *at <= now).is_some();
        if is_due && self.stage == AppStage::Running {
            self.pass_on(Signal::SIGTERM, now);
        }
        self.mux.do_what_is_due(now, &self.store)
    }

    fn on_signal(&mut self, signal: Signal) {
        let now = Instant::now();
        match signal {
            // Both are looked at in each turn.
            Signal::SIGCHLD => {}
            Signal::SIGHUP if self.mux.is_ready() => self.mux.signal(signal),
            Signal::SIGHUP => self.reopens_logs = true,
            _ => {
                if let Some(stays) = self.stays {
                    self.leaves_at.get_or_insert(now + stays);
                }
                match signal {
                    OUTPUT_CLOSED => self.pass_on(Signal::SIGPIPE, now),
                    Signal::SIGTERM if self.stage == AppStage::Running && self.mux.is_ready() => {
                        self.terminates_at.get_or_insert(now + GROUP_WAIT);
                        let is_recent = |at: &mut Instant| now.duration_since(*at) < GROUP_WAIT;
                        if self.mux_signalled.take_if(is_recent).is_some() {
                            self.on_group_signal(now);
                        }
                    }
                    _ => self.pass_on(signal, now),
                }
            }
        }
    }

    /// The mux has got a signal to end. If this process has got one as well, the app has. A mux that says so
    /// again and again may have been taken over, and is not believed: the app may get SIGTERM twice then.
    fn on_group_signal(&mut self, now: Instant) {
        if self.terminates_at.is_some() && self.lone_signals <= 1 {
            (self.terminates_at, self.lone_signals) = (None, 0);
            log::info!("app {}: all of its processes got SIGTERM", self.dir.name());
            self.app.on_terminated(self.store.get(TERMINAL));
        } else {
            self.mux_signalled = Some(now);
            self.lone_signals = self.lone_signals.saturating_add(1);
        }
    }

    /// Passes a signal on to the app. One without a process ends.
    fn pass_on(&mut self, signal: Signal, now: Instant) {
        if self.app.signal(signal, self.store.get(TERMINAL), now) {
            log::info!("app {}: passed {signal} on to it", self.dir.name());
        } else {
            self.end(signal, now);
        }
    }

    /// Ends without the app.
    fn end(&mut self, signal: Signal, now: Instant) {
        log::info!("app {}: ending on {signal}", self.dir.name());
        // An app that has ended has its exit code already.
        if !matches!(self.stage, AppStage::Over { .. }) {
            self.stage = AppStage::Over { status: None, exit: Exit::Lost };
            // There is nothing to tell.
            self.mux.on_told();
        }
        // One that starts reads what is there first, and ends when it is ready.
        if self.mux.is_ready() || !self.insists {
            self.mux.end(now);
        }
    }
}
