//! The end of a mux: no connected client loses earlier output of the app.
//!
//! First the sources are read until the app's exit is known and they are empty; meanwhile clients
//! may still connect. Then `endpoints` is removed, so that no new client comes, and those in the
//! listen queues are accepted. Then each client gets the rest and its farewell, and all files of
//! the mux are removed. Every wait is bounded; a second signal changes nothing.
//!
//! Invariant: the mux reports the app's end to a client only if the sources were empty after it was
//! known. Otherwise the next mux reads their content.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::output::offset;
use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::core::wire::{AppStatus, End, FrameKind, Refusal};
use crate::mux::client_log::ClientLines;
use crate::mux::clients::state::Outbound;
use crate::sys::documents::last::{Last, StreamTail};
use crate::sys::state::{ENDPOINTS, LIFE, SESSION};
use crate::sys::systemd::own_process;
use crate::types::limits;
use crate::types::stream::Stream;

/// How long an ending mux reads from sources that do not become empty.
const DRAIN_READ: Duration = Duration::from_secs(5);
/// How long an ending mux writes to slow clients that make progress, after the sources are empty.
const DRAIN_DELIVER: Duration = Duration::from_secs(10);
/// How long `run` waits for output of the app's remaining children. Also how long a new mux of an
/// ended app waits for clients, if there is unseen output.
const LINGER: Duration = Duration::from_millis(500);

impl Mux {
    /// Begins to end; the second time it does nothing.
    pub(super) fn stop(&mut self) {
        if self.phase != Phase::Ready {
            return;
        }
        let now = Instant::now();
        self.files.notify.stopping();
        // Clients that have connected by now are there for everything that is still to be read.
        for index in 0..self.admission.listeners() {
            self.accept(index, limits::LISTEN_QUEUE, now);
        }
        self.hub.end();
        // A container in the host's PID namespace may leave children, too. A logger's pipes have no
        // end, and no engine.
        let leaves_children = self.life.leaves_children() || self.engine.is_some();
        let has_children = self.is_last() && leaves_children;
        let linger = if has_children { LINGER } else { Duration::ZERO };
        if self.is_last() {
            // An end of file is the end of the app's last child.
            self.sources.release(&self.files.notify);
        }
        self.life.inquire(&self.files.dir, now);
        self.phase = Phase::Draining { quiet: now + linger, until: now + DRAIN_READ };
    }

    /// Goes on to the next phase as soon as nothing is left to do in this one.
    pub(super) fn advance(&mut self, now: Instant) {
        if let Phase::Draining { quiet, until } = self.phase {
            if let Some(status) = self.life.look(now) {
                log::info!("app {}: it had ended {status}", self.files.name());
            }
            // An app that has ended now has written everything.
            for stream in Stream::ALL {
                self.on_source(stream, now);
            }
            if self.is_last() && self.sources.are_closed() {
                // Nothing more comes, and an engine may wait for the end.
                self.finish_engine();
            }
            if now >= until || self.is_drained(now, quiet) && !self.is_expected(now) {
                self.finish_sources();
                self.end_lines();
                self.close_listeners(now);
                self.input.release();
                let until = now + DRAIN_DELIVER;
                self.phase = Phase::Delivering { until, patience: None };
            }
        }
        if let Phase::Delivering { until, .. } = self.phase {
            let ids = self.clients.ids().into_iter();
            let patience = ids.filter_map(|id| self.say_farewell(id, now, until)).min();
            let next = (self.has_next(), self.life.pid.is_some());
            let logged = self.logs.finish(&mut self.hub, next, (now, until));
            let relayed = self.is_engine_finished(now, until);
            if logged && self.is_last() {
                // What is left to do is for those who are connected.
                self.leave();
            }
            self.phase = if self.clients.all.is_empty() && logged && relayed {
                self.logs.report_left(next.0);
                Phase::Done
            } else {
                Phase::Delivering { until, patience }
            };
        }
    }

    /// When the current phase has to go on though nothing happens.
    pub(super) fn end_due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ready | Phase::Done => None,
            Phase::Draining { quiet, until } => {
                let now = Instant::now();
                let times = [quiet, self.since + LINGER, until];
                let inquiry = self.life.inquiry_due(now);
                let clients = self.hub.awaits_clients_until();
                times
                    .into_iter()
                    .chain(inquiry)
                    .chain(clients)
                    .filter(|time| *time > now)
                    .min()
                    .or(Some(until))
            }
            Phase::Delivering { until, patience } => {
                Some(patience.map_or(until, |patience| patience.min(until)))
            }
        }
    }

    /// Whether everything is read, and the app's exit is known, if it can be known. While the app's
    /// last children may still write, the sources must be closed, too.
    fn is_drained(&self, now: Instant, quiet: Instant) -> bool {
        !self.life.awaits_news()
            && (self.sources.are_closed() || now >= quiet && self.sources.are_empty())
    }

    /// From now on nothing is read.
    fn finish_sources(&mut self) {
        if !self.sources.are_empty() {
            log::warn!("app {}: still writing; ending without the rest", self.files.name());
        }
        if self.is_last() {
            // The status is from wait(2), and no other mux will read later output of the children.
            for stream in Stream::ALL {
                self.sources.close(stream, &self.poller);
            }
        } else {
            self.sources.finish(&self.poller);
        }
    }

    /// The logs learn that a last line without an end is whole, since nothing continues it.
    fn end_lines(&mut self) {
        if !self.has_next() {
            self.logs.app_ends_at(Stream::ALL.map(|stream| Some(offset(&self.hub, stream))));
        }
    }

    /// The app's exit, if all of its output is read.
    fn end_status(&self) -> Option<AppStatus> {
        self.life.status().filter(|_| self.sources.are_empty())
    }

    /// Whether this is the last mux of a kept app, which has ended or never began.
    pub(super) fn is_last(&self) -> bool {
        self.life.is_kept() && self.life.pid.is_none()
    }

    /// Whether another mux continues with the app's streams: systemd keeps them, and the app is
    /// known to run or has left something in them. Without such knowledge there may be no other
    /// mux.
    pub(super) fn has_next(&self) -> bool {
        let is_needed = self.life.pid.is_some() || !self.sources.are_empty();
        self.files.notify.keeps() && is_needed && !self.is_last()
    }

    /// Whether a client that saw this app appear may still be on its way: as long as there is
    /// output that no client has seen, the mux of a short-lived app lives for a moment. An engine
    /// has seen it, and may start the app again at once. Clients of a killed mux are on their way, too.
    fn is_expected(&self, now: Instant) -> bool {
        if self.hub.awaits_clients_until().is_some_and(|until| now < until) {
            return true;
        }
        if self.engine.is_some() {
            return false;
        }
        let unseen = |s: Stream| self.hub.extent(s).is_some_and(|(_, unseen)| unseen > 0);
        now < self.since + LINGER && Stream::ALL.into_iter().any(unseen)
    }

    /// From now on no client comes any more; those in the listen queues are accepted.
    fn close_listeners(&mut self, now: Instant) {
        // First, so that a client that does not find the app any more finds how it ended.
        if let Err(e) = self.publish_last() {
            log::error!("{e:#}");
        }
        self.files.remove(ENDPOINTS);
        for index in 0..self.admission.listeners() {
            self.accept(index, limits::LISTEN_QUEUE, now);
        }
        for stream in self.admission.close() {
            self.files.remove(stream.map_or(SESSION, Stream::socket));
        }
    }

    /// Writes how the app ended and its last output, unless `run` never started it.
    fn publish_last(&self) -> Result<()> {
        let status = self.end_status();
        if self.life.leaves_children() && status.is_none() {
            return Ok(());
        }
        let tail = |stream: Stream| {
            let (bytes, _) = self.hub.extent(stream)?;
            let kept = self.hub.bytes(stream, bytes.saturating_sub(limits::TAIL as u64)..bytes);
            let tail = String::from_utf8_lossy(&kept.concat()).into_owned();
            Some(StreamTail { stream, bytes, tail })
        };
        let tails = Stream::ALL.into_iter().filter_map(tail).collect();
        Last::new(&self.files.dir, status, tails).publish(&self.files.dir)
    }

    /// Delivers the rest to a client, then its farewell, and releases it; also releases a client
    /// that accepts nothing. Returns the end of the wait for it, if it waits.
    fn say_farewell(&mut self, id: ClientId, now: Instant, until: Instant) -> Option<Instant> {
        self.touch(id);
        let client = self.clients.get(id)?;
        let served = client.inbound.has_greeted()
            && self.hub.is_caught_up(id)
            && !client.is_full
            && !client.awaits_screen();
        if !served && client.outbound != Outbound::CutOff {
            let patience = self.waits_for(id, now, until);
            if patience.is_some() {
                return patience;
            }
            self.cut_off(id);
        }
        // Behind its last bytes, and behind the gap that stands for the rest.
        let has_all = self.hub.is_caught_up(id);
        if has_all {
            self.send_end(id);
        }
        let waits = self.clients.get(id).is_some_and(|client| !has_all || !client.is_flushed());
        let patience = self.waits_for(id, now, until).filter(|_| waits);
        if patience.is_none() {
            self.close_now(id);
        }
        patience
    }

    /// Until when a client is waited for, if it still is: for its patience, or as long as any if nothing
    /// waits for this mux.
    fn waits_for(&mut self, id: ClientId, now: Instant, until: Instant) -> Option<Instant> {
        let is_alone = self.is_last() && !self.files.is_awaited;
        let due = if is_alone { Some(until) } else { self.hub.wait(id, now) };
        due.filter(|_| now < until)
    }

    /// Gives up on a client that accepts nothing.
    fn cut_off(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.cut_off(id, &mut self.hub);
        }
        self.hub.cut(id);
        self.touch(id);
    }

    /// Sends a session, once, how all has ended.
    fn send_end(&mut self, id: ClientId) {
        let status = self.end_status();
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(session) = client.session() else { return };
        if client.has_farewell {
            return;
        }
        let end = |stream: &Stream| FrameKind::End.message(&End { stream: *stream });
        let mut frames = Vec::new();
        if status.is_some() {
            frames.extend(session.streams.iter().flat_map(end));
        }
        frames.extend(match status {
            Some(status) => FrameKind::Exit.message(&status),
            None => FrameKind::Closing.frame(b""),
        });
        client.has_farewell = true;
        let _ = client.notify(&frames);
        self.touch(id);
    }

    /// Ends at once because of an error, which the sessions are sent.
    pub(super) fn abandon(&mut self, why: &anyhow::Error) {
        self.stop();
        self.close_listeners(Instant::now());
        let refusal = FrameKind::Error.message(&Refusal { error: format!("{why:#}"), full: false });
        for (id, mut client) in std::mem::take(&mut self.clients.all) {
            let sent = client
                .notify(&refusal)
                .and_then(|()| client.flush(id, &mut self.hub, &mut self.pages));
            if let Err(e) = sent {
                log::debug!("telling {} of the end: {e}", client.peer);
            }
            client.close();
        }
    }

    /// Ends for good.
    pub(super) fn finish(&mut self) {
        self.leave();
        self.logs.end_journal_writer();
        ClientLines::finish();
        log::info!("app {}: the mux has ended", self.files.name());
    }

    /// Removes the files that this process made, and hides those that the next one needs. From then
    /// on another mux may have the name.
    fn leave(&mut self) {
        if self.files.lock.is_none() {
            return;
        }
        if !self.has_next() {
            self.files.remove(LIFE);
        }
        // While the app of a living keeper runs, its ends stay for the next mux.
        if self.life.pid.is_none() || !own_process::is_kept() {
            self.files.clean_up(self.life.is_kept());
        }
        if self.is_last() && self.files.leaves_nothing {
            self.files.leave_nothing();
        }
        self.files.lock = None;
    }
}
