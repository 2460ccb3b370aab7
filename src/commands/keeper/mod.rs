//! The keeper of `run`: the parent of the app and of its mux.
//!
//! It does for one mux what systemd does for a unit: it keeps the mux's descriptors, starts a mux
//! that has died again, and reports how the app began and ended. So a mux has one way to continue
//! (sd_listen_fds(3), sd_notify(3), the requests of the unit's hooks). The keeper reads no data of
//! the app or of a client.

mod app;
mod mux;
mod signals;
mod store;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use self::app::App;
use self::mux::MuxProcess;
use self::signals::KeeperSignals;
use self::store::{MuxMessage, Store};
use crate::commands::status;
use crate::mux::TERMINAL;
use crate::os::state::AppDir;
use crate::os::{diagnostics, sys};
use crate::systemd::notify::Notify;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::wire::{ControlRequest, Started};

/// How long `run --attach` waits for its own client before it gives up starting the app.
const FIRST_CLIENT: Duration = Duration::from_secs(30);

/// The variable by which `run --attach` has the app start only when it has attached.
pub(crate) const AWAIT_CLIENT: &str = "IOTTYMUX_AWAIT_CLIENT";

/// An app to be kept.
#[derive(Debug)]
pub(crate) struct KeepRequest {
    pub(crate) dir: AppDir,
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Whether the app has a terminal.
    pub(crate) terminal: bool,
    /// Whether the app waits for its first client, for [`FIRST_CLIENT`].
    pub(crate) awaits_client: bool,
}

/// See the module.
struct Keeper {
    dir: AppDir,
    /// Reports to the process that started this one.
    notify: Notify,
    app: App,
    /// How far the app is.
    stage: AppStage,
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
    /// It has ended, or never began: the mux has to end as well. The exit code of `run`.
    Over(Exit),
}

/// Runs an app and its mux until both have ended.
pub(crate) fn keep(request: KeepRequest) -> Result<Exit> {
    let KeepRequest { dir, command, terminal, awaits_client } = request;
    let client_until = awaits_client.then(|| Instant::now() + FIRST_CLIENT);
    let signals = KeeperSignals::new().context("cannot catch signals")?;
    let store = Store::default();
    let keeper = Keeper {
        notify: Notify::from_env(false)?,
        app: App::new(&command, terminal),
        stage: AppStage::Waiting { client_until },
        mux: MuxProcess::start(&store)?,
        store,
        dir,
    };
    keeper.work(signals)
}

impl Keeper {
    fn work(mut self, mut signals: KeeperSignals) -> Result<Exit> {
        loop {
            self.receive()?;
            for signal in signals.pending() {
                self.on_signal(signal);
            }
            if let Some(exit) = self.reap()? {
                return Ok(exit);
            }
            self.do_what_is_due(Instant::now())?;
            self.wait(&signals)?;
        }
    }

    /// Handles the messages of the mux that have come.
    fn receive(&mut self) -> Result<()> {
        let what = "cannot read from the mux";
        while let Some(message) = self.store.receive(&self.mux.channel).context(what)? {
            self.handle(message);
        }
        Ok(())
    }

    /// Waits for a signal or a message, or until something is due.
    fn wait(&self, signals: &KeeperSignals) -> Result<()> {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.mux.channel.as_fd(), PollFlags::POLLIN),
        ];
        // The channel of a mux that has died stays readable.
        let used = if self.mux.is_alive() { 2 } else { 1 };
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, so that it is due then.
        let left = left.map(|left| left + Duration::from_millis(1));
        let time = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds[..used], time) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait for signals"),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let waits_until = match self.stage {
            AppStage::Waiting { client_until } => client_until,
            AppStage::Running | AppStage::Over(_) => None,
        };
        [waits_until, self.app.hangs_up_at(), self.mux.due()].into_iter().flatten().min()
    }

    // ---- the mux ----

    fn handle(&mut self, message: MuxMessage) {
        match (message, self.stage) {
            (MuxMessage::Ready, stage) => {
                let is_first = self.mux.on_ready();
                match stage {
                    AppStage::Waiting { client_until: None } => self.start_app(),
                    AppStage::Waiting { .. } => {}
                    AppStage::Running => self.report_start(),
                    AppStage::Over(_) => self.end_mux(),
                }
                if is_first {
                    self.notify.ready();
                    if let Err(e) = sys::forget_startup() {
                        log::debug!("cannot give back the memory of starting up: {e}");
                    }
                }
            }
            (MuxMessage::Attached, AppStage::Waiting { .. }) => self.start_app(),
            (MuxMessage::Attached | MuxMessage::Other, _) => {}
        }
    }

    /// Reports the app's exit to the mux, if the app was started, and ends the mux.
    fn end_mux(&mut self) {
        if !self.mux.is_ready() {
            // The mux gets the report when it is ready.
            return;
        }
        if let Some(status) = self.app.status {
            self.report(&ControlRequest::Ended(status));
        }
        self.mux.end(Instant::now());
    }

    fn report_start(&mut self) {
        let pid = self.app.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok());
        if let Some(pid) = pid {
            self.report(&ControlRequest::Started(Started { pid }));
        }
    }

    /// Reports to a mux that is ready. A later one gets the report when it is ready.
    fn report(&self, request: &ControlRequest) {
        if self.mux.is_ready()
            && let Err(e) = status::tell(&self.dir, request, (Duration::ZERO, limits::HOOK))
        {
            log::warn!("{e:#}");
        }
    }

    // ---- the app ----

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
        self.stage = AppStage::Over(diagnostics::failed(why, Exit::Lost));
        self.end_mux();
    }

    /// Collects children that have ended. Returns the exit code when nothing is left to do.
    fn reap(&mut self) -> Result<Option<Exit>> {
        if self.app.reap().context("cannot wait for the app")?
            && let Some(status) = self.app.status
        {
            self.stage = AppStage::Over(Exit::App(status.code()));
            self.end_mux();
        }
        let Some(status) = self.mux.reap().context("cannot wait for the mux")? else {
            return Ok(None);
        };
        // The last messages of the mux.
        self.receive()?;
        match (self.stage, status.code()) {
            (AppStage::Over(exit), Some(0)) => Ok(Some(exit)),
            // It had no client yet.
            (AppStage::Over(exit), _) if !self.mux.was_ready() => Ok(Some(exit)),
            // It has said why, and would say it again.
            (AppStage::Waiting { .. }, code) if !self.mux.was_ready() => {
                let exit =
                    if code == Some(Exit::Usage.code()) { Exit::Usage } else { Exit::Failed };
                Ok(Some(exit))
            }
            (AppStage::Over(exit), _) if self.mux.has_failed_often() => Ok(Some(exit)),
            _ => {
                let level = if status.success() { log::Level::Info } else { log::Level::Warn };
                let name = self.dir.name();
                log::log!(level, "app {name}: its mux ended ({status}), starting it again");
                self.mux.start_later(Instant::now());
                Ok(None)
            }
        }
    }

    fn do_what_is_due(&mut self, now: Instant) -> Result<()> {
        if let AppStage::Waiting { client_until: Some(until) } = self.stage
            && until <= now
        {
            let name = self.dir.name();
            self.give_up(&anyhow!("app {name}: not started, because no client has attached"));
        }
        if self.app.hangs_up_at().is_some_and(|at| at <= now) {
            log::info!("app {}: it has not ended, its terminal hangs up", self.dir.name());
            self.app.hang_up(self.foreground());
        }
        self.mux.do_what_is_due(now, &self.store)
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            // Both are looked at in each turn.
            Signal::SIGCHLD => {}
            Signal::SIGHUP => self.mux.signal(signal),
            _ if self.app.signal(signal, self.foreground(), Instant::now()) => {
                log::info!("app {}: passed {signal} on to it", self.dir.name());
            }
            _ => {
                log::info!("app {}: ending on {signal}", self.dir.name());
                // An app that has ended has its exit code already.
                if let AppStage::Waiting { .. } = self.stage {
                    self.stage = AppStage::Over(Exit::Lost);
                }
                self.mux.end(Instant::now());
            }
        }
    }

    /// The job in the foreground of the app's terminal.
    fn foreground(&self) -> Option<Pid> {
        self.store.get(TERMINAL).and_then(crate::mux::foreground)
    }
}
