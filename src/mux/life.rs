//! The app's life: that it was started, that it has ended and how, as far as anybody has told.

use std::task::Poll;
use std::time::Instant;

use super::sink::client::{Client, Ends, Outlet};
use super::source::Read;
use super::{Mux, Phase};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::wire::{AppStatus, LifecycleEvent, Started};

/// See the module. Of an app that nobody has told of nothing is known.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Its process, while it is known to run.
    pub(crate) pid: Option<u32>,
    /// How it ended last, even if it runs again.
    pub(crate) ended: Option<AppStatus>,
    /// How often it was started again.
    pub(crate) restarts: u64,
}

impl Life {
    pub(crate) fn turn(&mut self, turn: LifecycleEvent) {
        match turn {
            LifecycleEvent::Ended(status) => (self.pid, self.ended) = (None, Some(status)),
            LifecycleEvent::Started(Started { pid }) => {
                self.restarts += u64::from(self.status().is_some());
                self.pid = Some(pid);
            }
        }
    }

    /// How it ended, if it has and does not run again.
    pub(crate) fn status(&self) -> Option<AppStatus> {
        self.ended.filter(|_| self.pid.is_none())
    }
}

impl Mux {
    /// The app's unit has told of a turn in its life: each session learns it behind what the app
    /// wrote before.
    pub(crate) fn on_turn(&mut self, turn: LifecycleEvent) {
        let name = self.dir.name();
        match turn {
            LifecycleEvent::Ended(status) => log::info!("app {name}: it has ended {status}"),
            LifecycleEvent::Started(Started { pid }) => {
                log::info!("app {name}: it runs as pid={pid}");
            }
        }
        self.life.turn(turn);
        if let LifecycleEvent::Started(_) = turn {
            self.begin_input();
        }
        // Of an app that has ended everything is in the pipes by now.
        for index in 0..self.sources.len() {
            self.read_empty(index);
        }
        if let LifecycleEvent::Ended(_) = turn {
            self.reset_terminal();
            let now = Instant::now();
            for log in &mut self.logs {
                log.app_ended(&mut self.hub, now);
            }
        }
        let end = |stream: Stream| self.hub.extent(stream).map_or(0, |(end, _)| end);
        let ends: Ends = Stream::ALL.map(end);
        let ids: Vec<_> = self.clients.keys().copied().collect();
        for id in ids {
            // Nothing comes behind a farewell, and a welcome tells of what was before it.
            let told = |client: &&mut Client| client.greeted() && !client.farewell;
            if let Some(client) = self.clients.get_mut(&id).filter(told) {
                client.tell_turn(turn, ends);
                if client.outlet != Outlet::Full {
                    self.touch(id);
                }
            }
        }
    }

    /// Reads what is in a source now, unless a client holds it back; no more than a pipe can have, for
    /// somebody may still write.
    fn read_empty(&mut self, index: usize) {
        let Some(stream) = self.sources[index].as_ref().map(|source| source.stream) else { return };
        let end = |mux: &Self| mux.hub.extent(stream).map_or(0, |(end, _)| end);
        let enough = end(self) + u64::from(limits::PIPE.unsigned_abs());
        // What is wrong with it will be told when it is read again.
        while let Ok(Read::Bytes(_)) = self.pump(index, Instant::now())
            && self.held[index].is_none()
            && end(self) < enough
        {}
    }

    /// Learns how the app ended from those who were asked, unless its unit tells meanwhile.
    pub(crate) fn inquire(&mut self, now: Instant) {
        if self.life.status().is_some() {
            self.inquiry = None;
        }
        if let Some(Poll::Ready(found)) = self.inquiry.as_mut().map(|inquiry| inquiry.look(now)) {
            self.inquiry = None;
            if let Some(status) = found {
                log::info!("app {}: it had ended {status}", self.dir.name());
                self.life.turn(LifecycleEvent::Ended(status));
            }
        }
    }

    /// How the app ended, for one who comes now: told right behind its welcome.
    pub(crate) fn turn_for_newcomers(&self) -> Option<LifecycleEvent> {
        // One who comes at the end of all is told by EXIT.
        self.life.status().filter(|_| self.phase == Phase::Ready).map(LifecycleEvent::Ended)
    }
}
