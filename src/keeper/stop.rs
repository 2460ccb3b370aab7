//! `stop`, `kill` and `rm`: ending an app of `run`, and removing what an app has left.

use std::collections::BTreeMap;
use std::env;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::client::each::{self, Asked};
use crate::client::find::{self, Hint};
use crate::client::script::send;
use crate::client::status;
use crate::core::wire::{ControlRequest, Hello};
use crate::host::enable;
use crate::sys::documents::last::Last;
use crate::sys::print::print;
use crate::sys::ready;
use crate::sys::session::{self, Patience};
use crate::sys::state::{AppDir, StateDir};
use crate::types::backoff::Backoff;
use crate::types::limits;

/// How long an app may take to end after SIGKILL, with its mux, which delivers the last output.
const KILLED: Duration = Duration::from_secs(30);
/// Bytes per read of what a mux sends while it is waited for: a few small frames.
const FRAME: usize = 4096;

/// Sends SIGTERM to an app, and SIGKILL after this time. With a line, types that first, and waits for
/// the same time. Returns when its mux has ended.
pub(crate) fn stop(dir: &AppDir, line: Option<&str>, time: Duration) -> Result<()> {
    let mut app = RunningApp::connect(dir, Hint::Nothing)?;
    if let Some(line) = line {
        let until = Instant::now() + time;
        if let Err(e) = type_first(dir, line, until) {
            log::warn!("{e:#}");
        }
        if app.ends_before(until)? {
            return app.report_end();
        }
    }
    app.signal(Signal::SIGTERM)?;
    if !app.ends_before(Instant::now() + time)? {
        app.signal(Signal::SIGKILL)?;
    }
    app.report_end()
}

/// As a command of a service that systemd stops: types a line, and waits until the main process of the
/// service has ended, for this time.
pub(crate) fn service_by_line(dir: &AppDir, line: &str, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    // Systemd sets it while there is such a process.
    let Some(main) = env::var("MAINPID").ok().and_then(|pid| pid.parse().ok()) else {
        return Ok(());
    };
    let main = rustix::process::Pid::from_raw(main).context("MAINPID is no process")?;
    let main = match pidfd_open(main, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        main => main.context("cannot watch the service")?,
    };
    if enable::with_earlier_streams(dir).is_some() {
        return Ok(());
    }
    let kept = dir.clone();
    thread::spawn(move || keep_muxes(&kept));
    type_first(dir, line, until)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let what = "cannot wait for the service";
        if ready::wait_for(&main, PollFlags::POLLIN, Some(left)).context(what)? {
            return Ok(());
        }
        if left.is_zero() {
            bail!("the service has not ended in {time:?}");
        }
    }
}

/// Types a line before everybody else's input. Of a mux that is killed meanwhile nobody knows whether
/// the app has the line: it is typed again, for an app that was told twice ends, too.
fn type_first(dir: &AppDir, line: &str, until: Instant) -> Result<()> {
    send::type_first(dir, line, until).or_else(|e| {
        log::warn!("{e:#}; trying again");
        send::type_first(dir, line, until)
    })
}

/// Starts the muxes of a service that stops whenever they are gone: until it has stopped, systemd
/// itself starts no unit that is ordered before it.
fn keep_muxes(dir: &AppDir) {
    let mut backoff = Backoff::default();
    loop {
        if let Ok(mut mux) = RunningApp::connect(dir, Hint::Nothing) {
            // However it ends. The service ends first, and this process with it.
            let _ = mux.mux_ends_before(Instant::now() + limits::AGES);
        }
        if let Err(e) = enable::start_muxes(dir) {
            log::warn!("{e:#}");
        }
        thread::sleep(backoff.after_end(Instant::now()));
    }
}

/// Sends a signal to an app. Returns when the signal was sent; after SIGKILL when the mux has ended.
pub(crate) fn kill(dir: &AppDir, signal: Signal) -> Result<()> {
    let mut app = RunningApp::connect(dir, Hint::Nothing)?;
    app.signal(signal)?;
    if signal == Signal::SIGKILL { app.report_end() } else { Ok(()) }
}

/// Has the keeper of an app start its mux again. Returns when the next mux can be reached.
pub(crate) fn restart(dir: &AppDir) -> Result<()> {
    let mut before = RunningApp::connect(dir, Hint::Start)?;
    status::control(dir, &ControlRequest::Restart)?;
    if !before.mux_ends_before(Instant::now() + limits::ANSWER)? {
        bail!("app {}: its mux has not ended in {:?}", dir.name(), limits::ANSWER);
    }
    status::report_within(dir, limits::ANSWER).map(drop)
}

/// Does the same to all apps that have a keeper: commands of `run` and containers. One that fails does
/// not keep the others from it.
pub(crate) fn restart_all(states: &[StateDir]) -> Result<()> {
    let has_keeper = |asked: &Asked| {
        asked
            .answer
            .as_ref()
            .is_ok_and(|report| report.service.is_none() && report.app_pid.is_some())
    };
    let is_late = |asked: &Asked| asked.answer.as_ref().is_err_and(find::is_late);
    let apps = each::app(states, &BTreeMap::new(), true)?.into_iter();
    let (late, mut apps): (Vec<_>, Vec<_>) = apps.partition(is_late);
    apps.retain(has_keeper);
    let mut failed = late.len();
    for Asked { dir, .. } in &late {
        log::error!("app {}: the mux does not answer", dir.name());
    }
    for Asked { dir, .. } in &apps {
        match restart(dir) {
            Ok(()) => print(&format!("restarted the mux of app {}\n", dir.name()))?,
            Err(e) => {
                log::error!("{e:#}");
                failed += 1;
            }
        }
    }
    if failed > 0 {
        bail!("cannot restart the muxes of {failed} of {} apps", late.len() + apps.len());
    }
    Ok(())
}

/// Removes what an app has left. With `force` a running one is killed first.
pub(crate) fn remove(dir: &AppDir, force: bool) -> Result<()> {
    let name = dir.name();
    let service = enable::service_of(dir);
    // What a `disable` that was killed has left goes.
    if service.is_some() || dir.is_split() && dir.is_locked() {
        let service = service.unwrap_or_else(|| format!("{name}.service"));
        let user = enable::manager_of(dir).option();
        bail!(
            "app {name} is a service; try systemctl{user} stop {service} to stop it, or \
             iottymux disable{user} {service} to give it its own streams back"
        );
    }
    if force && dir.is_locked() {
        kill(dir, Signal::SIGKILL)?;
    }
    if !dir.dir().is_dir() {
        bail!("{}; try iottymux list", find::unknown(dir));
    }
    if !dir.clear()? {
        bail!("app {name} is running; try iottymux stop {name}, or iottymux rm --force {name}");
    }
    print(&format!("removed app {name}\n"))
}

/// A session without streams, whose end is that of the mux. Nothing else in it is looked at, so a
/// wait may end in the middle of a frame.
struct RunningApp<'a> {
    dir: &'a AppDir,
    socket: UnixStream,
    backoff: Backoff,
}

impl<'a> RunningApp<'a> {
    fn connect(dir: &'a AppDir, hint: Hint) -> Result<Self> {
        let socket = Self::open(dir, Duration::ZERO, hint)?;
        Ok(Self { dir, socket, backoff: Backoff::default() })
    }

    fn open(dir: &AppDir, wait: Duration, hint: Hint) -> Result<UnixStream> {
        find::retry(dir, wait, hint, |endpoints| {
            let patience = Patience::For(limits::ANSWER);
            Ok(session::open(dir, endpoints.session(), &Hello::default(), patience)?.0.socket)
        })
    }

    /// Has the keeper send the app a signal, unless the app has ended meanwhile.
    fn signal(&mut self, signal: Signal) -> Result<()> {
        let number = u8::try_from(signal as i32).unwrap_or_default();
        let until = Instant::now() + limits::RECONNECT;
        loop {
            match status::control(self.dir, &ControlRequest::Signal { number }) {
                Err(e) if find::is_absence(&e) && Instant::now() < until => {
                    if self.is_over()? {
                        return Ok(());
                    }
                }
                sent => return sent,
            }
        }
    }

    /// Whether the app ends before this time, under whichever mux.
    fn ends_before(&mut self, until: Instant) -> Result<bool> {
        while self.mux_ends_before(until)? {
            if self.is_over()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the app has ended with the mux that is gone. Otherwise it waits for the next one.
    fn is_over(&mut self) -> Result<bool> {
        thread::sleep(self.backoff.after_end(Instant::now()));
        if Last::read(self.dir)?.is_some_and(|last| last.status.is_some()) {
            return Ok(true);
        }
        match Self::open(self.dir, limits::RECONNECT, Hint::Nothing) {
            Ok(socket) => {
                self.socket = socket;
                Ok(false)
            }
            Err(e) if find::is_absence(&e) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Whether the mux ends before this time.
    fn mux_ends_before(&mut self, until: Instant) -> Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.read(&mut [0; FRAME]) {
                Ok(0) => return Ok(true),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(true),
                Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    let name = self.dir.name();
                    return Err(e)
                        .with_context(|| format!("cannot wait for the end of app {name}"));
                }
                _ => {}
            }
        }
    }

    /// Waits for the end, and prints how the app ended.
    fn report_end(mut self) -> Result<()> {
        let name = self.dir.name();
        if !self.ends_before(Instant::now() + KILLED)? {
            bail!("app {name} has not ended in {KILLED:?}");
        }
        self.dir.await_unlocked()?;
        let status = Last::read(self.dir)?.and_then(|last| last.status);
        let how = status.map_or(String::new(), |status| format!(" {status}"));
        print(&format!("app {name} ended{how}\n"))
    }
}
