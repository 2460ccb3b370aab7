//! Finds out how the app ended if no hook has reported it: from systemd, and in a rkt pod from the
//! file that a reaper writes.
//!
//! Invariant: nothing here blocks, and it ends within [`INQUIRY`]. Without a certain result
//! the status is unknown. systemd comes first: the reaper's number may be that of a signal, and at
//! a pod's halt the reaper may write 0 while the app still runs. So a number of the reaper causes a
//! second question to systemd, and [`is_doubtful`] numbers alone do not count.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::Uid;

use super::{MainProcess, reaped, shown};
use crate::os::files::read_plain;
use crate::os::state::AppDir;
use crate::os::sys;
use crate::systemd::manager::Manager;
use crate::systemd::process;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::wire::AppStatus;

/// How long an ending mux waits for systemd's report of the app's exit: a busy system answers late.
/// Less than `DRAIN_READ`, since the app's stop may wait for the mux.
const INQUIRY: Duration = Duration::from_secs(4);
/// Bytes of that report that are read: three short lines.
const SHOWN: u64 = 256;
/// Pause between two looks for the status that rkt's reaper writes at about the same time.
const REAPER_LOOK: Duration = Duration::from_millis(20);
/// Bytes of that status that are read: a number.
const REAPED: u64 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inquiry {
    app: AppName,
    service: ServiceName,
    /// `systemctl`, until it has ended.
    systemctl: Option<Child>,
    /// Where the reaper writes, until something is there, and how old that may be.
    reaper: Option<(PathBuf, SystemTime)>,
    /// PID 1 has answered that the app has not ended.
    is_early: bool,
    /// The reaper's report, for which PID 1 is asked once more.
    reaped: Option<AppStatus>,
    until: Instant,
}

impl Inquiry {
    /// Begins for a service whose mux has run for `age`; `None` if systemd did not start this
    /// process, or if no source is available.
    pub(crate) fn begin(
        service: &ServiceName,
        dir: &AppDir,
        age: Duration,
        now: Instant,
    ) -> Option<Self> {
        // The system's manager answers an ordinary user over D-Bus only, which may not be there.
        let may_ask = Uid::effective().is_root() || process::is_of_user();
        if !process::is_of_unit() || !may_ask {
            return None;
        }
        let app = dir.name().clone();
        let asked =
            ask(service).with_context(|| format!("app {app}: cannot ask systemd how it ended"));
        let systemctl = asked.map_err(|e| log::warn!("{e:#}")).ok();
        let oldest = SystemTime::now().checked_sub(age + limits::CLOCK_TICK);
        let reaper = dir.rkt_status().zip(oldest);
        let until = now + INQUIRY;
        let (service, is_early, reaped) = (service.clone(), false, None);
        let has_begun = systemctl.is_some() || reaper.is_some();
        has_begun.then_some(Self { app, service, systemctl, reaper, is_early, reaped, until })
    }

    /// Waits until it is over.
    pub(crate) fn wait(mut self) -> Option<AppStatus> {
        loop {
            let now = Instant::now();
            if let Poll::Ready(found) = self.look(now) {
                return found;
            }
            let looks_again = self.due(now).min(now + REAPER_LOOK);
            thread::sleep(looks_again.saturating_duration_since(now));
        }
    }

    /// The result, once there is one: the app's status, if known.
    pub(crate) fn look(&mut self, now: Instant) -> Poll<Option<AppStatus>> {
        if let Some(answered) = self.systemctl.as_mut().and_then(|child| answer(child).transpose())
        {
            self.systemctl = None;
            match answered.and_then(|text| shown(&text)) {
                Ok(MainProcess::Ended(status)) => return Poll::Ready(Some(status)),
                Ok(_) if self.reaped.is_some() => return Poll::Ready(self.reaped()),
                Ok(MainProcess::Runs) => return Poll::Ready(None),
                Ok(MainProcess::Unknown) => self.is_early = true,
                // systemd, which is shutting down, may answer nobody any more.
                Err(e) => log::info!("app {}: cannot ask systemd how it ended: {e:#}", self.app),
            }
        }
        let over = now >= self.until;
        if self.systemctl.is_none() || over {
            match self.reaper.as_ref().map(|(path, oldest)| read_reaped(path, *oldest)) {
                Some(Ok(Some(status))) => {
                    self.reaper = None;
                    self.reaped = Some(status);
                    // It has this number from systemd, which knows more.
                    if self.is_early && !over {
                        self.systemctl = ask(&self.service).ok();
                    }
                    if self.systemctl.is_none() {
                        return Poll::Ready(self.reaped());
                    }
                }
                Some(Ok(None)) => {}
                Some(Err(e)) => {
                    log::warn!("app {}: {e:#}", self.app);
                    self.reaper = None;
                }
                None => {}
            }
        }
        if over && let Some(child) = &mut self.systemctl {
            log::warn!("app {}: systemctl did not report in time how it ended", self.app);
            let _ = child.kill();
        }
        if over || self.systemctl.is_none() && self.reaper.is_none() {
            return Poll::Ready(self.reaped());
        }
        Poll::Pending
    }

    /// The reaper's number, if it is certain.
    fn reaped(&self) -> Option<AppStatus> {
        self.reaped.filter(|status| !is_doubtful(*status))
    }

    /// When to look again without an event. A signal reports the end of `systemctl`.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        match self.systemctl {
            Some(_) => self.until,
            None => self.until.min(now + REAPER_LOOK),
        }
    }
}

/// Starts `systemctl show` for the manager that started this process.
fn ask(service: &ServiceName) -> io::Result<Child> {
    let mut command = Manager::of_this_process().command();
    command.args(["show", "--property=ActiveState,ExecMainCode,ExecMainStatus"]);
    // A name may begin with what looks like an option.
    command.args(["--", service.as_str()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // systemd is stopping this unit, and sends SIGTERM to newly started processes, too.
    sys::ignoring_sigterm(&mut command);
    let child = command.spawn()?;
    if let Some(pipe) = &child.stdout {
        // Another process may still have it open when the child has ended.
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    Ok(child)
}

/// Its output, once it has ended; the output fits into the pipe.
fn answer(child: &mut Child) -> Result<Option<String>> {
    let Some(status) = child.try_wait()? else { return Ok(None) };
    if !status.success() {
        bail!("systemctl: {status}");
    }
    let mut text = Vec::new();
    if let Some(pipe) = &mut child.stdout {
        match pipe.take(SHOWN).read_to_end(&mut text) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e.into()),
            _ => {}
        }
    }
    let text = String::from_utf8(text).context("systemctl")?;
    log::debug!("systemctl: {text:?}");
    Ok(Some(text))
}

/// Whether the reaper may also write this number for an app that still ran (0), or that systemd
/// stopped with SIGTERM or SIGKILL.
fn is_doubtful(reaped: AppStatus) -> bool {
    matches!(reaped, AppStatus::Status(0 | 9 | 15))
}

/// The number that the reaper has written since `oldest`, if any.
fn read_reaped(path: &Path, oldest: SystemTime) -> Result<Option<AppStatus>> {
    let what = || format!("cannot read {}", path.display());
    match read_plain(path, REAPED) {
        // That of an earlier run, or one that is being written.
        Ok((written, text)) if written < oldest || text.is_empty() => Ok(None),
        Ok((_, text)) => reaped(&text).map(Some).with_context(what),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(what),
    }
}
