//! Checks whether the mux still answers. A stopped mux keeps its sockets and accepts input.
//!
//! Without input nothing is checked. When the mux has sent nothing for half of [`limits::ANSWER`]
//! after some input, a second connection opens a session: the first session may wait behind input
//! that the app does not read. That connection has no timeout, so its answer also shows that the
//! mux goes on.

use std::time::Instant;

use anyhow::{Result, bail};

use super::Attached;
use super::io_threads::{self, AttachEvent};
use crate::commands::find;
use crate::os::state::AppDir;
use crate::types::limits;
use crate::wire::Hello;
use crate::wire::endpoints::Endpoints;
use crate::wire::session::{self, Patience};

/// See the module. `reads` is how many reads had returned output when the input was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// The mux answers, or nothing was typed.
    Answering,
    /// Input was sent.
    Typed { at: Instant, reads: u64 },
    /// The second connection waits for its answer.
    Probing { at: Instant, reads: u64 },
    /// The user was notified that the mux does not answer.
    Late,
}

impl Liveness {
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Typed { at, .. } => Some(at + limits::ANSWER / 2),
            Self::Probing { at, .. } => Some(at + limits::ANSWER),
            Self::Answering | Self::Late => None,
        }
    }

    /// Input was sent to a session.
    fn on_input(&mut self, at: Instant, reads: u64) {
        if *self == Self::Answering {
            *self = Self::Typed { at, reads };
        }
    }

    /// Changes the state when the deadline has passed. Whether it has.
    fn check(&mut self, now: Instant, reads_now: u64) -> bool {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        if is_due {
            *self = match *self {
                Self::Typed { reads, .. } | Self::Probing { reads, .. } if reads != reads_now => {
                    Self::Answering
                }
                Self::Typed { at, reads } => Self::Probing { at, reads },
                _ => Self::Late,
            };
        }
        is_due
    }
}

impl Attached<'_> {
    /// Input was sent, and a living mux will mostly send something.
    pub(crate) fn expect_answer(&mut self) {
        if self.connection.is_session() {
            self.liveness.on_input(Instant::now(), io_threads::reads());
        }
    }

    pub(crate) fn check_liveness(&mut self, now: Instant) -> Result<()> {
        if self.liveness.check(now, io_threads::reads()) {
            if let Liveness::Probing { .. } = self.liveness {
                let dir = self.request.dir.clone();
                self.sender.spawn("probe", move || AttachEvent::ProbeDone(probe(&dir)))?;
            } else if self.liveness == Liveness::Late {
                self.say(&format!("attached to app {}: the mux does not answer", self.name()));
            }
        }
        Ok(())
    }

    /// The second connection has got its answer, or has found no mux.
    pub(crate) fn on_probe_done(&mut self, answers: bool) {
        let was = std::mem::replace(&mut self.liveness, Liveness::Answering);
        if was == Liveness::Late && answers {
            self.say(&format!("attached to app {}: the mux answers again", self.name()));
        }
    }
}

/// Whether a mux answers, be it by a refusal. Waits for as long as that takes.
fn probe(dir: &AppDir) -> bool {
    let hello = || -> Result<()> {
        let endpoints = Endpoints::read(dir)?;
        let Some(file) = endpoints.session() else { bail!("it has no sessions") };
        session::open(dir, file, &Hello::default(), Patience::Endless(&|| {}))?;
        Ok(())
    };
    let answered = hello();
    if let Err(e) = &answered {
        log::debug!("probing the mux: {e:#}");
    }
    !answered.is_err_and(|e| find::is_absence(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mux_is_probed_then_reported() {
        let now = Instant::now();
        let mut liveness = Liveness::Answering;
        assert!(liveness.deadline().is_none() && !liveness.check(now, 0));
        liveness.on_input(now, 5);
        liveness.on_input(now + limits::ANSWER, 6);
        let due = now + limits::ANSWER / 2;
        assert_eq!(liveness.deadline(), Some(due));
        assert!(!liveness.check(now, 5));
        assert!(liveness.check(due, 5) && !liveness.check(due, 5));
        assert_eq!(liveness, Liveness::Probing { at: now, reads: 5 });
        assert!(liveness.check(now + limits::ANSWER, 5));
        assert_eq!((liveness, liveness.deadline()), (Liveness::Late, None));
    }

    #[test]
    fn output_is_an_answer() {
        let now = Instant::now();
        let mut liveness = Liveness::Answering;
        liveness.on_input(now, 5);
        assert!(liveness.check(now + limits::ANSWER, 6));
        assert_eq!(liveness, Liveness::Answering);
    }
}
