//! Asks systemd how the app ended if no hook has reported it.
//!
//! Invariant: nothing here blocks, and it ends within [`INQUIRY`]. Without a certain result the status
//! is unknown. The file that a reaper of rkt writes is none: its number may be that of a signal, and at
//! a pod's halt it is 0 while the app still runs.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::Uid;

use super::{ASKED, MainProcess, main_process};
use crate::core::wire::AppStatus;
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Inquiry {
    app: AppName,
    answer: Receiver<Result<MainProcess>>,
    until: Instant,
}

impl Inquiry {
    /// Begins; `None` if systemd did not start this process, or cannot be asked.
    pub(crate) fn begin(service: &ServiceName, dir: &AppDir, now: Instant) -> Option<Self> {
        // The system's manager answers an ordinary user over D-Bus only, which may not be there.
        let may_ask = Uid::effective().is_root() || own_process::is_of_user();
        if !own_process::is_of_unit() || !may_ask {
            return None;
        }
        let (app, until) = (dir.name().clone(), now + INQUIRY);
        // A pod of rkt stops the mux together with the app.
        let may_be_early = dir.rkt_status().is_some();
        let asked = ask(service.clone(), may_be_early, until)
            .with_context(|| format!("app {app}: cannot ask systemd how it ended"));
        let answer = asked.map_err(|e| log::warn!("{e:#}")).ok()?;
        Some(Self { app, answer, until })
    }

    /// Waits until it is over.
    pub(crate) fn wait(self) -> Option<AppStatus> {
        loop {
            let now = Instant::now();
            if let Poll::Ready(found) = self.look(now) {
                return found;
            }
            thread::sleep(self.due(now).saturating_duration_since(now));
        }
    }

    /// The result, once there is one: the app's status, if known.
    pub(crate) fn look(&self, now: Instant) -> Poll<Option<AppStatus>> {
        let found = match self.answer.try_recv() {
            Ok(Ok(MainProcess::Ended(status))) => Some(status),
            Ok(Ok(MainProcess::Runs | MainProcess::Unknown)) => None,
            // systemd, which is shutting down, may answer nobody any more.
            Ok(Err(e)) => {
                log::info!("app {}: its end is unknown: {e:#}", self.app);
                None
            }
            Err(TryRecvError::Empty) if now < self.until => return Poll::Pending,
            Err(_) => {
                log::warn!("app {}: systemd did not report in time how it ended", self.app);
                None
            }
        };
        Poll::Ready(found)
    }

    /// When to look again.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        self.until.min(now + ANSWER_LOOK)
    }
}

/// Asks the manager that started this process, in a thread: a busy system answers late. If it
/// `may_be_early`, it is asked until the app has ended.
fn ask(
    service: ServiceName,
    may_be_early: bool,
    until: Instant,
) -> io::Result<Receiver<Result<MainProcess>>> {
    let (tell, answer) = channel();
    let ask = move || {
        let found = loop {
            let values = Manager::of_this_process().properties(service.as_str(), &ASKED);
            let found = values.and_then(|values| main_process(&values));
            let is_early = may_be_early && matches!(found, Ok(MainProcess::Unknown));
            if !is_early || Instant::now() + limits::LOOK_AGAIN >= until {
                break found;
            }
            thread::sleep(limits::LOOK_AGAIN);
        };
        // Nobody waits any more if this fails.
        let _ = tell.send(found);
    };
    mailbox::spawn("inquiry".into(), ask)?;
    Ok(answer)
}
