//! The watchdog of systemd, armed only while this process has something to do.
//!
//! A mux that hangs blocks its app: systemd then kills it, and starts another one. The
//! watchdog is armed when the loop wakes up, and disarmed when the loop had nothing to do for a
//! while. So it costs two messages for each time of activity, and nothing while nothing happens.

use std::env;
use std::time::{Duration, Instant};

use super::notify::Notify;
use super::own_process;

/// How long a mux may be silent while it has something to do, before systemd kills it. No machine
/// is that slow, and the app waits no longer.
const WATCHDOG: Duration = Duration::from_secs(30);
/// The mux reports after one part in this many of that time that it does not hang, or is idle.
const WATCHDOG_PART: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// How long the process may be silent while it is armed; `None` without systemd.
    time: Option<Duration>,
    /// When it is reset or disarmed next, if it is armed.
    next: Option<Instant>,
    /// Whether there was something to do since it was reset.
    was_busy: bool,
    /// How far a thread had come then that the loop waited for.
    awaited: Option<u64>,
}

/// A message to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    Arm(Duration),
    Reset,
    Disarm,
}

impl Watchdog {
    /// That of a unit that keeps descriptors: without them a restart would not help the app.
    /// `WatchdogSec=` of the unit sets its time; then systemd arms it.
    pub(crate) fn new(notify: &Notify) -> Self {
        if !notify.keeps() || !own_process::is_of_unit() || own_process::is_kept() {
            return Self::default();
        }
        let set = env::var("WATCHDOG_USEC").ok().and_then(|time| time.parse().ok());
        let time = set.map_or(WATCHDOG, Duration::from_micros);
        let next = set.map(|_| Instant::now() + time / WATCHDOG_PART);
        Self { time: Some(time), next, ..Self::default() }
    }

    /// When it is to be reset or disarmed.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// The loop has woken up. `is_busy`: not only for this. `awaited` is how far a thread has come,
    /// if the loop cannot go on without it.
    pub(crate) fn wake(&mut self, is_busy: bool, awaited: Option<u64>, notify: &Notify) {
        let now = Instant::now();
        let Some(beat) = self.beat(is_busy, awaited, now) else { return };
        let is_sent = match beat {
            Beat::Arm(time) => notify.watch(Some(time)),
            Beat::Reset => notify.alive(),
            Beat::Disarm => notify.watch(None),
        };
        if !is_sent {
            self.repeat(beat, now);
        }
    }

    /// A message could not be sent: one that disarms is repeated later, and the others come anyway.
    fn repeat(&mut self, beat: Beat, now: Instant) {
        match beat {
            Beat::Arm(_) => self.next = None,
            Beat::Reset => {}
            Beat::Disarm => self.next = self.time.map(|time| now + time / WATCHDOG_PART),
        }
    }

    fn beat(&mut self, is_busy: bool, awaited: Option<u64>, now: Instant) -> Option<Beat> {
        let time = self.time?;
        self.was_busy |= is_busy;
        let next = now + time / WATCHDOG_PART;
        let beat = match self.next {
            None if is_busy => Beat::Arm(time),
            Some(due) if due <= now && awaited.is_some() => {
                self.next = Some(next);
                // A thread that does not come on is what hangs.
                if awaited == self.awaited {
                    return None;
                }
                self.awaited = awaited;
                return Some(Beat::Reset);
            }
            Some(due) if due <= now && self.was_busy => Beat::Reset,
            Some(due) if due <= now => Beat::Disarm,
            _ => return None,
        };
        self.next = (beat != Beat::Disarm).then_some(next);
        (self.was_busy, self.awaited) = (false, None);
        Some(beat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_armed_while_there_is_something_to_do() {
        let time = Duration::from_secs(30);
        let mut watchdog = Watchdog { time: Some(time), ..Watchdog::default() };
        let mut now = Instant::now();
        let third = time / 3;
        assert_eq!((watchdog.beat(false, None, now), watchdog.due()), (None, None));
        assert_eq!(watchdog.beat(true, None, now), Some(Beat::Arm(time)));
        assert_eq!(watchdog.due(), Some(now + third));
        assert_eq!(watchdog.beat(true, None, now + third / 2), None);
        now += third;
        assert_eq!(watchdog.beat(false, None, now), Some(Beat::Reset));
        now += third;
        assert_eq!((watchdog.beat(false, None, now), watchdog.due()), (Some(Beat::Disarm), None));
        // One that could not be disarmed is disarmed later.
        watchdog.repeat(Beat::Disarm, now);
        now += third;
        assert_eq!(watchdog.beat(false, None, now), Some(Beat::Disarm));
        // A thread that the loop waits for has to come on.
        assert_eq!(watchdog.beat(true, Some(1), now), Some(Beat::Arm(time)));
        for (awaited, beat) in
            [(1, Some(Beat::Reset)), (2, Some(Beat::Reset)), (2, None), (2, None)]
        {
            now += third;
            assert_eq!(watchdog.beat(true, Some(awaited), now), beat);
            assert_eq!(watchdog.due(), Some(now + third));
        }
        now += third;
        assert_eq!(watchdog.beat(true, None, now), Some(Beat::Reset));
        // Without systemd there is none.
        assert_eq!(Watchdog::default().beat(true, None, now), None);
    }
}
