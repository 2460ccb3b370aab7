//! How a mux ends: no client that was there loses what the app wrote before.
//!
//! First the sources are read empty; meanwhile clients may still connect. Then `endpoints` goes, so
//! that no new client comes, and those in the listen queues are accepted. Then each client gets the
//! rest and its farewell, and everything that was made is removed. Every wait has an end; a second
//! signal shortens none.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::client_log::ClientLines;
use super::source::Read;
use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::os::state::{ENDPOINTS, SESSION};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::wire::last::{Last, StreamTail};
use crate::wire::{End, FrameKind, Refusal};

impl Mux {
    /// Begins to end; the second time it does nothing.
    pub(crate) fn stop(&mut self) {
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
        let linger = if self.life.owns_app() { limits::LINGER } else { Duration::ZERO };
        if self.life.owns_app() {
            // With the app gone, an end of file is the end of its last child.
            self.sources.release();
        }
        self.life.inquire(&self.files.dir, self.since.elapsed(), now);
        self.phase = Phase::Draining { quiet: now + linger, until: now + limits::DRAIN_READ };
    }

    /// Goes on to the next phase as soon as nothing is left to do in this one.
    pub(crate) fn advance(&mut self, now: Instant) {
        if let Phase::Draining { quiet, until } = self.phase {
            self.drain(now, quiet, until);
            if let Some(status) = self.life.look(now) {
                log::info!("app {}: it had ended {status}", self.files.name());
            }
            let drained = self.sources.are_closed() && !self.life.is_inquiring();
            if drained && !self.is_expected(now) {
                self.close_listeners(now);
                self.input.release();
                let until = now + limits::DRAIN_DELIVER;
                self.phase = Phase::Delivering { until, patience: None };
            }
        }
        if let Phase::Delivering { until, .. } = self.phase {
            let ids = self.clients.ids().into_iter();
            let patience = ids.filter_map(|id| self.say_farewell(id, now, until)).min();
            let logged = self.finish_logs(now, until);
            self.phase = if self.clients.is_empty() && logged {
                Phase::Done
            } else {
                Phase::Delivering { until, patience }
            };
        }
    }

    /// When the current phase has to go on though nothing happens.
    pub(crate) fn end_due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ready | Phase::Done => None,
            Phase::Draining { quiet, until } => {
                let now = Instant::now();
                let times = [quiet, self.since + limits::LINGER, until];
                let inquiry = self.life.inquiry_due(now);
                times.into_iter().chain(inquiry).filter(|time| *time > now).min().or(Some(until))
            }
            Phase::Delivering { until, patience } => {
                Some(patience.map_or(until, |patience| patience.min(until)))
            }
        }
    }

    /// Whether a client that saw this app appear may still be on its way: as long as there is output
    /// that no client has seen, the mux of a short-lived app lives for a moment.
    fn is_expected(&self, now: Instant) -> bool {
        let unseen = |s: Stream| self.hub.extent(s).is_some_and(|(_, unseen)| unseen > 0);
        now < self.since + limits::LINGER && Stream::ALL.into_iter().any(unseen)
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

    /// Writes how the app ended and its last output, unless it is known that it never began.
    fn publish_last(&self) -> Result<()> {
        let status = self.life.status();
        if self.life.owns_app() && status.is_none() {
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

    /// Reads what is left. A source is done when it is empty, and while the app's last children may
    /// still write, when they have closed it.
    fn drain(&mut self, now: Instant, quiet: Instant, until: Instant) {
        for index in 0..self.sources.len() {
            match self.pump(index, now) {
                Ok(Read::Empty) if now < quiet => {}
                Ok(Read::Bytes(_)) if now < until => {}
                Ok(Read::Bytes(_)) => {
                    log::warn!("app {}: still writing; ending without the rest", self.files.name());
                    self.sources.close(index, &self.poller);
                }
                Ok(Read::Empty | Read::End) => self.sources.close(index, &self.poller),
                Err(e) => {
                    log::error!("app {}: reading the rest: {e}", self.files.name());
                    self.sources.close(index, &self.poller);
                }
            }
        }
    }

    /// Delivers what is left for a client, then its farewell, then lets go of it; or lets go of it
    /// because it takes nothing. Returns until when it is waited for, if it is.
    fn say_farewell(&mut self, id: ClientId, now: Instant, until: Instant) -> Option<Instant> {
        self.touch(id);
        let client = self.clients.get(id)?;
        let served = client.inbound.has_greeted()
            && self.hub.is_caught_up(id)
            && !client.outbound.is_full()
            && !client.awaits_screen();
        if !served && !client.outbound.is_cut_off() {
            let patience = self.hub.wait(id, now).filter(|_| now < until);
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
        let patience = self.hub.wait(id, now).filter(|_| waits && now < until);
        if patience.is_none() {
            self.drop_client(id);
        }
        patience
    }

    /// Gives up on a client that takes nothing: it gets the rest of the frame that was begun, and the
    /// gap that stands for the rest, as far as the kernel keeps that for it.
    fn cut_off(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.outbound.cut_off();
            client.rescue(id, &mut self.hub);
            client.widen();
        }
        self.hub.cut(id);
        self.touch(id);
    }

    /// Sends a session, once, how all has ended.
    fn send_end(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(session) = client.session() else { return };
        if client.outbound.has_farewell() {
            return;
        }
        let end = |stream: &Stream| FrameKind::End.message(&End { stream: *stream });
        let frames = match self.life.status() {
            Some(status) => {
                [session.streams.iter().flat_map(end).collect(), FrameKind::Exit.message(&status)]
                    .concat()
            }
            None => FrameKind::Closing.frame(b""),
        };
        client.outbound.bid_farewell();
        let _ = client.notify(&frames);
        self.touch(id);
    }

    /// Ends at once because of an error, which the sessions are sent.
    pub(crate) fn abandon(&mut self, why: &anyhow::Error) {
        self.stop();
        self.close_listeners(Instant::now());
        let refusal = FrameKind::Error.message(&Refusal { error: format!("{why:#}") });
        for (id, mut client) in self.clients.take_all() {
            let sent = client.notify(&refusal).and_then(|()| client.flush(id, &mut self.hub));
            if let Err(e) = sent {
                log::debug!("telling {} of the end: {e}", client.peer);
            }
            client.close();
        }
    }

    /// Removes what this process made, and puts away what the next one needs.
    pub(crate) fn clean_up(&self) {
        self.files.clean_up(self.life.owns_app());
        ClientLines::finish();
        log::info!("app {}: ended", self.files.name());
    }
}
