//! The app's life cycle: its process under `run`, its starts and ends as they were reported, and the
//! question to systemd how it ended.

use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::mux::app::AppProcess;
use crate::os::state::AppDir;
use crate::systemd::app_status::Inquiry;
use crate::types::service::ServiceName;
use crate::wire::{AppStatus, LifecycleEvent, Started};

/// See the module. Until something is reported nothing is known of the app.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    service: ServiceName,
    /// The app, if it is a child of this process and has not ended.
    process: Option<AppProcess>,
    /// Whether the app is, or was, a child of this process.
    owns_app: bool,
    /// The app's process, while it is known to run.
    pub(crate) pid: Option<u32>,
    /// How the app ended last, even if it runs again.
    pub(crate) ended: Option<AppStatus>,
    /// How often it was started again.
    pub(crate) restarts: u64,
    inquiry: Option<Inquiry>,
    /// Reported events that the loop has still to handle.
    events: Vec<LifecycleEvent>,
}

impl Lifecycle {
    pub(crate) fn new(service: ServiceName, process: Option<AppProcess>) -> Self {
        Self {
            service,
            owns_app: process.is_some(),
            process,
            pid: None,
            ended: None,
            restarts: 0,
            inquiry: None,
            events: Vec::new(),
        }
    }

    pub(crate) fn owns_app(&self) -> bool {
        self.owns_app
    }

    /// How the app ended, if it has and does not run again.
    pub(crate) fn status(&self) -> Option<AppStatus> {
        self.ended.filter(|_| self.pid.is_none())
    }

    pub(crate) fn record(&mut self, event: LifecycleEvent) {
        match event {
            LifecycleEvent::Ended(status) => (self.pid, self.ended) = (None, Some(status)),
            LifecycleEvent::Started(Started { pid }) => {
                self.restarts += u64::from(self.status().is_some());
                self.pid = Some(pid);
            }
        }
    }

    // ---- reports ----

    /// A client reports an event, which the loop handles after the client's message.
    pub(crate) fn report(&mut self, event: LifecycleEvent) -> Result<()> {
        if self.owns_app {
            bail!("the app is a child of its mux, which needs no reports of its life cycle");
        }
        self.events.push(event);
        Ok(())
    }

    pub(crate) fn take_events(&mut self) -> Vec<LifecycleEvent> {
        std::mem::take(&mut self.events)
    }

    // ---- the process under `run` ----

    /// Starts the app, if it is this process's to start.
    pub(crate) fn start(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let started = process.start()?;
        self.record(started);
        Ok(())
    }

    /// Until when the app waits for its first client, if it does.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.process.as_ref()?.waits_until
    }

    /// Passes a signal on to the app; whether there was a process to take it.
    pub(crate) fn signal(&mut self, signal: Signal, foreground: Option<Pid>, now: Instant) -> bool {
        self.process.as_mut().is_some_and(|process| process.signal(signal, foreground, now))
    }

    /// Collects the app's status if it has ended; whether it has.
    pub(crate) fn reap(&mut self) -> Result<bool> {
        let Some(process) = &mut self.process else { return Ok(false) };
        let Some(status) = process.try_wait()? else { return Ok(false) };
        self.process = None;
        self.record(LifecycleEvent::Ended(status));
        Ok(true)
    }

    /// Whether the app was asked to end and has taken too long, so that its terminal is to hang up.
    pub(crate) fn must_hang_up(&self, now: Instant) -> bool {
        let at = self.process.as_ref().and_then(|process| process.hangs_up_at);
        at.is_some_and(|at| at <= now)
    }

    pub(crate) fn hang_up(&mut self, foreground: Option<Pid>) {
        if let Some(process) = &mut self.process {
            process.hang_up(foreground);
        }
    }

    // ---- the inquiry ----

    /// Asks systemd how the app ended, unless that is known or will be known from wait(2).
    pub(crate) fn inquire(&mut self, dir: &AppDir, age: Duration, now: Instant) {
        if !self.owns_app && self.status().is_none() {
            self.inquiry = Inquiry::begin(&self.service, dir, age, now);
        }
    }

    /// Records how the app ended if the inquiry has found that, and returns it. A report that came
    /// meanwhile ends the inquiry.
    pub(crate) fn look(&mut self, now: Instant) -> Option<AppStatus> {
        if self.status().is_some() {
            self.inquiry = None;
        }
        let Poll::Ready(found) = self.inquiry.as_mut()?.look(now) else { return None };
        self.inquiry = None;
        self.record(LifecycleEvent::Ended(found?));
        found
    }

    pub(crate) fn is_inquiring(&self) -> bool {
        self.inquiry.is_some()
    }

    /// When the inquiry is to be looked at.
    pub(crate) fn inquiry_due(&self, now: Instant) -> Option<Instant> {
        self.inquiry.as_ref().map(|inquiry| inquiry.due(now))
    }

    /// When something is due with the process though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        process.waits_until.into_iter().chain(process.hangs_up_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_has_a_status_until_it_is_started_again() {
        let service = ServiceName::of(&"web".parse().unwrap());
        let mut life = Lifecycle::new(service, None);
        assert_eq!((life.status(), life.restarts), (None, 0));
        life.report(LifecycleEvent::Started(Started { pid: 7 })).unwrap();
        life.report(LifecycleEvent::Ended(AppStatus::Status(3))).unwrap();
        assert_eq!(life.pid, None);
        for event in life.take_events() {
            life.record(event);
        }
        assert_eq!((life.status(), life.restarts), (Some(AppStatus::Status(3)), 0));
        life.record(LifecycleEvent::Started(Started { pid: 8 }));
        assert_eq!((life.status(), life.restarts), (None, 1));
        assert_eq!((life.pid, life.ended), (Some(8), Some(AppStatus::Status(3))));
    }

    #[test]
    fn a_mux_that_owns_its_app_believes_no_report() {
        let service = ServiceName::of(&"web".parse().unwrap());
        let process = AppProcess::new(&["true".into()], false, None);
        let mut life = Lifecycle::new(service, Some(process));
        assert!(life.report(LifecycleEvent::Ended(AppStatus::Status(0))).is_err());
        assert!(life.take_events().is_empty());
    }
}
