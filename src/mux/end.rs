//! How a mux ends: nothing that the app wrote before is lost to whoever was there.
//!
//! First the sources are read empty; meanwhile clients still come. Then the document goes, so that
//! nobody new does, and who waits to be accepted still is; then each client gets the rest and its
//! farewell, then everything that was made is taken away. Every wait has an end; a second signal
//! shortens none.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::sink::client::{Outlet, Role};
use super::source::{Read, fifo};
use super::talk::Talk;
use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::os::state::{ENDPOINTS, SESSION};
use crate::systemd::app_status::Inquiry;
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
        self.notify.stopping();
        // Who has come by now is there for everything that is still to be read.
        for index in 0..self.listeners.len() {
            self.accept(index, limits::LISTEN_QUEUE, now);
        }
        self.hub.end();
        let linger = if self.owns_app { limits::LINGER } else { Duration::ZERO };
        if self.owns_app {
            // With the app gone, an end of file is the end of its last child.
            for source in self.sources.iter_mut().flatten() {
                source.release();
            }
        }
        if !self.owns_app && self.life.status().is_none() {
            self.inquiry = Inquiry::begin(&self.service, &self.dir, self.since.elapsed(), now);
        }
        self.phase = Phase::Draining { quiet: now + linger, until: now + limits::DRAIN_READ };
    }

    /// Goes on to the next phase as soon as nothing is left to do in this one.
    pub(crate) fn advance(&mut self, now: Instant) {
        if let Phase::Draining { quiet, until } = self.phase {
            self.drain(now, quiet, until);
            self.inquire(now);
            let drained = self.sources.iter().all(Option::is_none);
            if drained && self.inquiry.is_none() && !self.is_expected(now) {
                self.close_doors(now);
                self.inlet = None;
                let until = now + limits::DRAIN_DELIVER;
                self.phase = Phase::Delivering { until, patience: None };
            }
        }
        if let Phase::Delivering { until, .. } = self.phase {
            let ids: Vec<_> = self.clients.keys().copied().collect();
            let patience = ids.into_iter().filter_map(|id| self.say_farewell(id, now, until)).min();
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
                let inquiry = self.inquiry.as_ref().map(|inquiry| inquiry.due(now));
                times.into_iter().chain(inquiry).filter(|time| *time > now).min().or(Some(until))
            }
            Phase::Delivering { until, patience } => {
                Some(patience.map_or(until, |patience| patience.min(until)))
            }
        }
    }

    /// Whether somebody may still be on the way who saw this app appear: as long as there is
    /// something that nobody has seen, the mux of a short-lived app lives for a moment.
    fn is_expected(&self, now: Instant) -> bool {
        let unseen = |s: Stream| self.hub.extent(s).is_some_and(|(_, unseen)| unseen > 0);
        now < self.since + limits::LINGER && Stream::ALL.into_iter().any(unseen)
    }

    /// From now on nobody comes any more; who waits to be accepted still is.
    fn close_doors(&mut self, now: Instant) {
        // First, so that who does not find the app any more finds how it ended.
        if let Err(e) = self.leave_last_words() {
            log::error!("{e:#}");
        }
        self.remove(ENDPOINTS);
        for index in 0..self.listeners.len() {
            self.accept(index, limits::LISTEN_QUEUE, now);
        }
        for listener in std::mem::take(&mut self.listeners) {
            self.remove(listener.stream.map_or(SESSION, |s| s.socket()));
        }
    }

    /// Writes down how the app ended and what it said last, unless it is known that it never began.
    fn leave_last_words(&self) -> Result<()> {
        let status = self.life.status();
        if self.owns_app && status.is_none() {
            return Ok(());
        }
        let tail = |stream: Stream| {
            let (bytes, _) = self.hub.extent(stream)?;
            let kept = self.hub.bytes(stream, bytes.saturating_sub(limits::TAIL as u64)..bytes);
            let tail = String::from_utf8_lossy(&kept.concat()).into_owned();
            Some(StreamTail { stream, bytes, tail })
        };
        let tails = Stream::ALL.into_iter().filter_map(tail).collect();
        Last::new(&self.dir, status, tails).publish(&self.dir)
    }

    /// Removes a file; that it stays is no reason not to end.
    fn remove(&self, file: &str) {
        if let Err(e) = self.dir.remove(file) {
            log::error!("{e:#}");
        }
    }

    /// Reads what is left. A source is done when it is empty, and while the app's last children may
    /// still write, when they have closed it.
    fn drain(&mut self, now: Instant, quiet: Instant, until: Instant) {
        for index in 0..self.sources.len() {
            match self.pump(index, now) {
                Ok(Read::Empty) if now < quiet => {}
                Ok(Read::Bytes(_)) if now < until => {}
                Ok(Read::Bytes(_)) => {
                    log::warn!("app {}: still writing; ending without the rest", self.dir.name());
                    self.close_source(index);
                }
                Ok(Read::Empty | Read::End) => self.close_source(index),
                Err(e) => {
                    log::error!("app {}: reading the rest: {e}", self.dir.name());
                    self.close_source(index);
                }
            }
        }
    }

    /// Delivers what is left for a client, then tells it how all ended, then lets go of it; or lets
    /// go of it because it takes nothing. Returns until when it is waited for, if it is.
    fn say_farewell(&mut self, id: ClientId, now: Instant, until: Instant) -> Option<Instant> {
        self.touch(id);
        let client = self.clients.get(&id)?;
        let served = client.greeted()
            && self.hub.is_caught_up(id)
            && client.outlet != Outlet::Full
            && !client.awaits_screen();
        if !served && !client.cut_off {
            let patience = self.hub.wait(id, now).filter(|_| now < until);
            if patience.is_some() {
                return patience;
            }
            self.cut_off(id);
        }
        // Behind its last bytes, and behind the gap that stands for the rest.
        let told = self.hub.is_caught_up(id);
        if told {
            self.tell_end(id);
        }
        let waits = self.clients.get(&id).is_some_and(|client| !told || !client.is_flushed());
        let patience = self.hub.wait(id, now).filter(|_| waits && now < until);
        if patience.is_none() {
            self.drop_client(id);
        }
        patience
    }

    /// Gives up on a client that takes nothing: it gets the rest of the frame that was begun, and is
    /// told what it misses of the rest, as far as the kernel keeps that for it.
    fn cut_off(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.cut_off = true;
            client.rescue(id, &mut self.hub);
            client.widen();
        }
        self.hub.cut(id);
        self.touch(id);
    }

    /// Tells a session, once, how all has ended.
    fn tell_end(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Role::Session(session) = &client.role else { return };
        if client.farewell {
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
        client.farewell = true;
        let _ = client.tell(&frames);
        self.touch(id);
    }

    /// Ends at once because of an error, of which the sessions are told.
    pub(crate) fn abandon(&mut self, why: &anyhow::Error) {
        self.stop();
        self.close_doors(Instant::now());
        let refusal = FrameKind::Error.message(&Refusal { error: format!("{why:#}") });
        for (id, mut client) in std::mem::take(&mut self.clients) {
            let told = client.tell(&refusal).and_then(|()| client.flush(id, &mut self.hub));
            if let Err(e) = told {
                log::debug!("telling {} of the end: {e}", client.peer);
            }
            client.close();
        }
    }

    /// Takes away what this process made, and puts away what the next one needs.
    pub(crate) fn clean_up(&self) {
        for file in &self.made {
            if let Err(e) = self.dir.remove_end(file) {
                log::error!("{e:#}");
            }
        }
        for stream in &self.kept {
            if let Err(e) = fifo::put_away(&self.dir, *stream) {
                log::error!("{e:#}");
            }
        }
        if self.owns_app {
            self.dir.remove_dir();
        }
        Talk::finish();
        log::info!("app {}: ended", self.dir.name());
    }
}
