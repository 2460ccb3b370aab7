//! The app's life cycle: its reported starts and ends, and the query to systemd for its exit.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Instant;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::core::wire::{AppStatus, LifecycleEvent, Started};
use crate::mux::origin::Origin;
use crate::sys::documents::reported_life::ReportedLife;
use crate::sys::state::AppDir;
use crate::sys::systemd::app_status::Inquiry;
use crate::sys::systemd::manager::Manager;
use crate::sys::systemd::own_process;
use crate::types::service::ServiceName;
use crate::types::stream::Offsets;

/// See the module. Until something is reported nothing is known of the app.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// The service that is the app, unless a keeper has started it.
    service: ServiceName,
    origin: Origin,
    /// The app's process, while it is known to run.
    pub(crate) pid: Option<u32>,
    /// How the app ended last, even if it runs again.
    pub(crate) ended: Option<AppStatus>,
    /// How often it was started again.
    pub(crate) restarts: u64,
    inquiry: Option<Inquiry>,
    /// Reported events that the loop has still to handle, each with the offsets in the streams at
    /// which it counts.
    events: VecDeque<(LifecycleEvent, Offsets)>,
    /// Why the app cannot be started, if that was reported.
    pub(crate) failed: Option<String>,
    /// Whether the keeper knows that a client has attached.
    has_reported_client: bool,
    /// Whether the keeper has died while its container ran.
    is_alone: bool,
    /// Whether this mux was signalled to end while the app ran.
    ends_with_app: bool,
}

impl Lifecycle {
    pub(crate) fn new(service: ServiceName, origin: Origin) -> Self {
        Self {
            service,
            origin,
            pid: None,
            ended: None,
            restarts: 0,
            inquiry: None,
            events: VecDeque::new(),
            failed: None,
            has_reported_client: false,
            is_alone: false,
            ends_with_app: false,
        }
    }

    /// Continues with what the mux before this one knew of a running app. The end of the app is not
    /// believed, because it may have been started again while there was no mux.
    pub(crate) fn taking_over(mut self, reported: Option<&ReportedLife>) -> Self {
        if let Some(reported) = reported {
            let ended = reported.ended.filter(|_| reported.pid.is_some());
            (self.pid, self.ended, self.restarts) = (reported.pid, ended, reported.restarts);
        }
        self
    }

    /// What the next mux is to know.
    pub(crate) fn reported(&self) -> ReportedLife {
        ReportedLife::new(self.pid, self.ended, self.restarts)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.origin.is_kept()
    }

    /// The service that is the app.
    pub(crate) fn service(&self) -> Option<&ServiceName> {
        Some(&self.service).filter(|_| !self.is_kept())
    }

    /// Whether children of an ended app may go on writing.
    pub(crate) fn leaves_children(&self) -> bool {
        self.origin == Origin::Run
    }

    /// Whether the keeper has died, which this mux learns by a signal, while its container runs. The
    /// mux then goes on alone: without it the container would die of SIGPIPE. True once: the next
    /// signal is to end the mux.
    pub(crate) fn outlive_keeper(&mut self) -> bool {
        let runs = self.origin == Origin::Container && self.pid.is_some();
        runs && !own_process::is_kept() && !std::mem::replace(&mut self.is_alone, true)
    }

    /// Whether a signal to end does not count as long as the app runs. What ends a whole control group
    /// signals app, keeper and mux at once: the app may still write, and the keeper tells how it ended.
    pub(crate) fn puts_off_end(&mut self) -> bool {
        let puts_off = self.is_kept() && own_process::is_kept() && self.pid.is_some();
        self.ends_with_app |= puts_off;
        puts_off
    }

    /// Whether such a signal counts now.
    pub(crate) fn ends_now(&self) -> bool {
        self.ends_with_app && self.pid.is_none()
    }

    /// Whether nobody will report that the app has ended.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone && self.pid.is_some()
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

    /// Whether the process with this PID may report events: of a kept app the keeper alone knows
    /// them.
    pub(crate) fn check_reporter(&self, pid: i32) -> Result<()> {
        if self.is_kept() && pid != getppid().as_raw() {
            bail!("only the keeper of its app reports the life cycle");
        }
        Ok(())
    }

    /// Whether the keeper can send the app signals.
    pub(crate) fn check_signal(&self, number: u8) -> Result<()> {
        match self.origin {
            Origin::Run => Ok(()),
            Origin::Container => bail!("it is a container, which its engine stops"),
            Origin::Unit | Origin::Rkt => {
                let verb = match Signal::try_from(i32::from(number)) {
                    Ok(Signal::SIGTERM) | Err(_) => "stop".to_owned(),
                    // Sent to all processes it also kills the hook that reports the end.
                    Ok(Signal::SIGKILL) => "kill --kill-whom=main --signal=SIGKILL".to_owned(),
                    Ok(signal) => format!("kill --signal={signal}"),
                };
                let user = Manager::of_this_process().option();
                bail!("it is a service; try systemctl{user} {verb} {}", self.service)
            }
        }
    }

    /// A client reports an event, which the loop handles after the client's message. `ends` is
    /// where all is read that the app wrote before.
    pub(crate) fn report(&mut self, event: LifecycleEvent, ends: Offsets) {
        // The hooks of the app's unit and of the mux's report the same end.
        let is_end = |event: &LifecycleEvent| matches!(event, LifecycleEvent::Ended(_));
        if !is_end(&event) || !self.events.back().is_some_and(|(last, _)| is_end(last)) {
            self.events.push_back((event, ends));
        }
    }

    /// Whether the keeper is to learn now that a client has attached, since the app may wait for
    /// one.
    pub(crate) fn must_report_client(&mut self, has_client: bool) -> bool {
        self.is_kept() && has_client && !std::mem::replace(&mut self.has_reported_client, true)
    }

    /// The offsets at which the next event counts, if there is one.
    pub(crate) fn next_counts_at(&self) -> Option<Offsets> {
        self.events.front().map(|(_, ends)| *ends)
    }

    /// The next event. That the app has ended waits until all is read that it wrote before, unless
    /// the mux is of `run`: then its keeper ends it at once.
    pub(crate) fn next_event(&mut self, is_read: bool) -> Option<LifecycleEvent> {
        let waits = matches!(self.events.front()?, (LifecycleEvent::Ended(_), _));
        if waits && !is_read && !self.is_kept() {
            return None;
        }
        self.events.pop_front().map(|(event, _)| event)
    }

    // ---- the inquiry ----

    /// Asks systemd how the app ended, unless that is known or the keeper reports it.
    pub(crate) fn inquire(&mut self, dir: &AppDir, now: Instant) {
        if !self.is_kept() && self.status().is_none() {
            self.inquiry = Inquiry::begin(&self.service, dir, now);
        }
    }

    /// Records how the app ended if the inquiry has found that, and returns it. A report that came
    /// meanwhile ends the inquiry.
    pub(crate) fn look(&mut self, now: Instant) -> Option<AppStatus> {
        if self.status().is_some() {
            self.inquiry = None;
        }
        let Poll::Ready(found) = self.inquiry.as_ref()?.look(now) else { return None };
        self.inquiry = None;
        self.record(LifecycleEvent::Ended(found?));
        found
    }

    /// Whether it may soon be known how the app ended.
    pub(crate) fn awaits_news(&self) -> bool {
        self.inquiry.is_some() || !self.events.is_empty()
    }

    /// When the inquiry is to be looked at.
    pub(crate) fn inquiry_due(&self, now: Instant) -> Option<Instant> {
        self.inquiry.as_ref().map(|inquiry| inquiry.due(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Stream;

    fn life(origin: Origin) -> Lifecycle {
        Lifecycle::new(ServiceName::of(&"web".parse().unwrap()), origin)
    }

    #[test]
    fn an_app_has_a_status_until_it_is_started_again() {
        let mut life = life(Origin::Unit);
        assert_eq!((life.status(), life.restarts), (None, 0));
        life.report(LifecycleEvent::Started(Started { pid: 7 }), Offsets::default());
        life.report(LifecycleEvent::Ended(AppStatus::Status(3)), Offsets::default());
        assert_eq!(life.pid, None);
        while let Some(event) = life.next_event(true) {
            life.record(event);
        }
        assert_eq!((life.status(), life.restarts), (Some(AppStatus::Status(3)), 0));
        life.record(LifecycleEvent::Started(Started { pid: 8 }));
        assert_eq!((life.status(), life.restarts), (None, 1));
        assert_eq!((life.pid, life.ended), (Some(8), Some(AppStatus::Status(3))));
    }

    #[test]
    fn of_an_app_of_run_only_the_keeper_reports() {
        let of_run = life(Origin::Run);
        assert!(of_run.check_reporter(i32::try_from(std::process::id()).unwrap()).is_err());
        assert!(of_run.check_reporter(getppid().as_raw()).is_ok());
        assert!(life(Origin::Unit).check_reporter(1).is_ok());
    }

    #[test]
    fn the_first_client_is_reported_once() {
        let mut life = life(Origin::Run);
        let reported = [false, true, true].map(|has_client| life.must_report_client(has_client));
        assert_eq!(reported, [false, true, false]);
    }

    #[test]
    fn an_end_waits_until_all_is_read() {
        let mut life = life(Origin::Unit);
        let ended = LifecycleEvent::Ended(AppStatus::Status(3));
        let started = LifecycleEvent::Started(Started { pid: 7 });
        let at = |offset| [offset; Stream::ALL.len()];
        life.report(started, at(0));
        assert_eq!(life.next_event(false), Some(started));
        life.report(ended, at(1));
        // Once more, by the hook of the mux's unit.
        life.report(ended, at(2));
        life.report(started, at(3));
        assert!(life.awaits_news());
        assert_eq!((life.next_event(false), life.next_counts_at()), (None, Some(at(1))));
        assert_eq!((life.next_event(true), life.next_counts_at()), (Some(ended), Some(at(3))));
        assert_eq!(life.next_event(false), Some(started));
        assert!(!life.awaits_news());
    }
}
