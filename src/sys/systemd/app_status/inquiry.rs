//! Finds out how the app ended if no hook has reported it: from systemd, and in a rkt pod from the
//! file that a reaper writes.
//!
//! Invariant: nothing here blocks, and it ends within [`INQUIRY`]. Without a certain result
//! the status is unknown. systemd comes first: the reaper's number may be that of a signal, and at
//! a pod's halt the reaper may write 0 while the app still runs. So a number of the reaper causes a
//! second question to systemd, and [`is_doubtful`] numbers alone do not count.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use nix::unistd::Uid;

use super::{ASKED, MainProcess, main_process, reaped};
use crate::core::wire::AppStatus;
use crate::sys::files::read_plain;
use crate::sys::mailbox;
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::Manager;
use crate::sys::systemd::own_process;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// How long an ending mux waits for systemd's report of the app's exit: a busy system answers late.
/// Less than `DRAIN_READ`, since the app's stop may wait for the mux.
const INQUIRY: Duration = Duration::from_secs(4);
/// Pause between two looks for systemd's answer, which takes a millisecond or two.
const ANSWER_LOOK: Duration = Duration::from_millis(2);
/// Pause between two looks for the status that rkt's reaper writes at about the same time.
const REAPER_LOOK: Duration = Duration::from_millis(20);
/// Bytes of that status that are read: a number.
const REAPED: u64 = 64;

/// A question to systemd.
type Question = Receiver<Result<MainProcess>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inquiry {
    app: AppName,
    service: ServiceName,
    /// The question to systemd, until it is answered.
    asked: Option<Question>,
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
        let may_ask = Uid::effective().is_root() || own_process::is_of_user();
        if !own_process::is_of_unit() || !may_ask {
            return None;
        }
        let app = dir.name().clone();
        let asked =
            ask(service).with_context(|| format!("app {app}: cannot ask systemd how it ended"));
        let asked = asked.map_err(|e| log::warn!("{e:#}")).ok();
        let oldest = SystemTime::now().checked_sub(age + limits::CLOCK_TICK);
        let reaper = dir.rkt_status().zip(oldest);
        let until = now + INQUIRY;
        let (service, is_early, reaped) = (service.clone(), false, None);
        let has_begun = asked.is_some() || reaper.is_some();
        has_begun.then_some(Self { app, service, asked, reaper, is_early, reaped, until })
    }

    /// Waits until it is over.
    pub(crate) fn wait(mut self) -> Option<AppStatus> {
        loop {
            let now = Instant::now();
            if let Poll::Ready(found) = self.look(now) {
                return found;
            }
            thread::sleep(self.due(now).saturating_duration_since(now));
        }
    }

    /// The result, once there is one: the app's status, if known.
    pub(crate) fn look(&mut self, now: Instant) -> Poll<Option<AppStatus>> {
        if let Some(answer) = self.asked.as_ref().and_then(answer) {
            self.asked = None;
            match answer {
                Ok(MainProcess::Ended(status)) => return Poll::Ready(Some(status)),
                Ok(_) if self.reaped.is_some() => return Poll::Ready(self.reaped()),
                Ok(MainProcess::Runs) => return Poll::Ready(None),
                Ok(MainProcess::Unknown) => self.is_early = true,
                // systemd, which is shutting down, may answer nobody any more.
                Err(e) => log::info!("app {}: its end is unknown: {e:#}", self.app),
            }
        }
        let over = now >= self.until;
        if self.asked.is_none() || over {
            match self.reaper.as_ref().map(|(path, oldest)| read_reaped(path, *oldest)) {
                Some(Ok(Some(status))) => {
                    self.reaper = None;
                    self.reaped = Some(status);
                    // It has this number from systemd, which knows more.
                    if self.is_early && !over {
                        self.asked = ask(&self.service).ok();
                    }
                    if self.asked.is_none() {
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
        if over && self.asked.is_some() {
            log::warn!("app {}: systemd did not report in time how it ended", self.app);
        }
        if over || self.asked.is_none() && self.reaper.is_none() {
            return Poll::Ready(self.reaped());
        }
        Poll::Pending
    }

    /// The reaper's number, if it is certain.
    fn reaped(&self) -> Option<AppStatus> {
        self.reaped.filter(|status| !is_doubtful(*status))
    }

    /// When to look again.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        let pause = if self.asked.is_some() { ANSWER_LOOK } else { REAPER_LOOK };
        self.until.min(now + pause)
    }
}

/// Asks the manager that started this process, in a thread: a busy system answers late.
fn ask(service: &ServiceName) -> io::Result<Question> {
    let (tell, asked) = channel();
    let service = service.clone();
    let ask = move || {
        let values = Manager::of_this_process().properties(service.as_str(), &ASKED);
        // Nobody waits any more if this fails.
        let _ = tell.send(values.and_then(|values| main_process(&values)));
    };
    mailbox::spawn("inquiry".into(), ask)?;
    Ok(asked)
}

/// The answer, once it has come.
fn answer(asked: &Question) -> Option<Result<MainProcess>> {
    match asked.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Empty) => None,
        Err(e) => Some(Err(e.into())),
    }
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
