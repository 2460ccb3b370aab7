//! Whether the mux still answers: a stopped one keeps its sockets, and takes what is typed.
//!
//! Nothing is asked while nothing is typed. When typing has brought nothing from the mux for half of
//! [`limits::ANSWER`], a connection of its own says hello: the session itself may wait behind input that
//! the app does not read. That connection waits for as long as it takes, so it also tells when the mux goes on.

use std::time::Instant;

use anyhow::{Result, bail};

use super::link::Uplink;
use super::{Attached, pump};
use crate::types::limits;
use crate::wire::Hello;
use crate::wire::endpoints::Endpoints;
use crate::wire::session::{self, Patience};

/// What is known of the mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// It answers, or nothing was typed.
    Well,
    /// Something was typed then, when so many reads had given something.
    Typed { at: Instant, reads: u64 },
    /// It was asked.
    Asked { at: Instant, reads: u64 },
    /// The user was told that it does not answer.
    Late,
}

impl Pulse {
    /// When to look again though nothing happens.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Typed { at, .. } => Some(at + limits::ANSWER / 2),
            Self::Asked { at, .. } => Some(at + limits::ANSWER),
            Self::Well | Self::Late => None,
        }
    }
}

impl Attached<'_> {
    /// Something was typed, and a mux would mostly have something to say.
    pub(crate) fn await_pulse(&mut self) {
        if self.pulse == Pulse::Well && self.uplink.as_ref().is_some_and(Uplink::is_session) {
            self.pulse = Pulse::Typed { at: Instant::now(), reads: pump::reads() };
        }
    }

    /// The time for an answer may be over.
    pub(crate) fn check_pulse(&mut self, now: Instant) -> Result<()> {
        if self.pulse.deadline().is_none_or(|due| now < due) {
            return Ok(());
        }
        self.pulse = match self.pulse {
            Pulse::Typed { reads, .. } | Pulse::Asked { reads, .. } if reads != pump::reads() => {
                Pulse::Well
            }
            Pulse::Typed { at, reads } => {
                let dir = self.request.dir.clone();
                pump::probe(self.outbox.another()?, move || {
                    let endpoints = Endpoints::read(&dir)?;
                    let Some(file) = endpoints.session() else { bail!("it has no sessions") };
                    session::open(&dir, file, &Hello::default(), Patience::Endless(&|| {}))?;
                    Ok(())
                })?;
                Pulse::Asked { at, reads }
            }
            _ => {
                self.say(&format!("attached to app {}: the mux does not answer", self.name()));
                Pulse::Late
            }
        };
        Ok(())
    }

    /// The mux has answered, or there is no such mux any more.
    pub(crate) fn on_pulse(&mut self, answers: bool) {
        if std::mem::replace(&mut self.pulse, Pulse::Well) == Pulse::Late && answers {
            self.say(&format!("attached to app {}: the mux answers again", self.name()));
        }
    }
}
