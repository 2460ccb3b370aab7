//! `stop`, `kill` and `rm`: ending an app of `run`, and removing what an app has left.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::find;
use crate::os::print::print;
use crate::os::state::AppDir;
use crate::types::limits;
use crate::wire::last::Last;
use crate::wire::session::{self, Patience};
use crate::wire::{Answer, ControlRequest, FrameKind, Hello};

/// How long an app may take to end after SIGKILL, with its mux, which delivers the last output.
const KILLED: Duration = Duration::from_secs(30);

/// Sends SIGTERM to an app, and SIGKILL after this time. Returns when its mux has ended.
pub(crate) fn stop(dir: &AppDir, time: Duration) -> Result<()> {
    let mut app = RunningApp::connect(dir)?;
    app.send(Signal::SIGTERM)?;
    if !app.ends_within(time) {
        app.send(Signal::SIGKILL)?;
    }
    app.report_end()
}

/// Sends a signal to an app. Returns when the signal was sent; after SIGKILL when the mux has ended.
pub(crate) fn kill(dir: &AppDir, signal: Signal) -> Result<()> {
    let mut app = RunningApp::connect(dir)?;
    app.send(signal)?;
    if signal == Signal::SIGKILL { app.report_end() } else { Ok(()) }
}

/// Removes what an app has left. With `force` a running one is killed first.
pub(crate) fn remove(dir: &AppDir, force: bool) -> Result<()> {
    let name = dir.name();
    if force && dir.is_locked() {
        kill(dir, Signal::SIGKILL)?;
    }
    if dir.is_split() {
        bail!("app {name} is a service; try iottymux disable {name}");
    }
    if !dir.dir().is_dir() {
        bail!("there is no app {name} in {}", dir.state().display());
    }
    if !dir.clear()? {
        bail!("app {name} is running; try iottymux stop {name}, or iottymux rm --force {name}");
    }
    print(&format!("removed app {name}\n"))
}

/// A session without streams, which ends with the mux.
struct RunningApp<'a> {
    dir: &'a AppDir,
    socket: UnixStream,
}

impl<'a> RunningApp<'a> {
    fn connect(dir: &'a AppDir) -> Result<Self> {
        let hello = Hello::default();
        let socket = find::retry(dir, Some(Duration::ZERO), "", |endpoints| {
            let file = endpoints.session().with_context(|| {
                format!("app {}: its mux does not support sessions (it is rkt's own)", dir.name())
            })?;
            Ok(session::open(dir, file, &hello, Patience::For(limits::ANSWER))?.0)
        })?;
        Ok(Self { dir, socket })
    }

    /// Has the keeper of the app send it a signal.
    fn send(&mut self, signal: Signal) -> Result<()> {
        let number = u8::try_from(signal as i32).unwrap_or_default();
        let request = FrameKind::Request.message(&ControlRequest::Signal { number });
        match self.socket.write_all(&request) {
            // It has ended meanwhile.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            sent => sent.context("cannot send the request")?,
        }
        let until = Some(Instant::now() + limits::ANSWER);
        loop {
            match session::next(&mut self.socket, self.dir, until) {
                Ok((FrameKind::Answer, body)) => {
                    let Some(error) = serde_json::from_slice::<Answer>(&body)?.error else {
                        return Ok(());
                    };
                    bail!("app {}: {}", self.dir.name(), error.escape_debug());
                }
                Ok(_) => {}
                Err(e) if find::is_absence(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether the mux, and so the app, ends within this time.
    fn ends_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match session::next(&mut self.socket, self.dir, Some(until)) {
                Ok(_) => {}
                Err(e) => return find::is_absence(&e),
            }
        }
    }

    /// Waits for the end, and prints how the app ended.
    fn report_end(mut self) -> Result<()> {
        let name = self.dir.name();
        if !self.ends_within(KILLED) {
            bail!("app {name} has not ended in {KILLED:?}");
        }
        self.dir.await_unlocked()?;
        let status = Last::read(self.dir)?.and_then(|last| last.status);
        let how = status.map_or(String::new(), |status| format!(" {status}"));
        print(&format!("app {name} ended{how}\n"))
    }
}
