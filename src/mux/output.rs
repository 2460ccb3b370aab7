//! The loop and the app's output: from the sources into the hub, and on to clients, logs and screen.

use std::io;
use std::time::Instant;

use nix::poll::ppoll;

use super::Mux;
use super::clients::session::Ends;
use super::source::Read;
use super::terminal::Terminal;
use crate::core::hub::Room;
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Now;
use crate::wire::{LifecycleEvent, Started};

impl Mux {
    /// A source may have bytes.
    pub(crate) fn on_source(&mut self, index: usize, now: Instant) {
        match self.pump(index, now) {
            Ok(Read::Bytes(_) | Read::Empty) => {}
            Ok(Read::End) => self.sources.close(index, &self.poller),
            Err(e) => {
                let stream = self.sources.stream(index).map_or("a source", Stream::name);
                log::error!("reading {stream}: {e}");
                self.sources.close(index, &self.poller);
            }
        }
    }

    /// Reads from a source into the hub and hands on, for one turn. `Bytes` means that there may be
    /// more.
    pub(crate) fn pump(&mut self, index: usize, now: Instant) -> io::Result<Read> {
        for _ in 0..limits::READS_PER_TURN {
            let Some(stream) = self.sources.stream(index) else { return Ok(Read::End) };
            let want = match self.room(stream, now) {
                Room::Free(room) => room.min(limits::SOURCE_READ),
                Room::Held(until) => {
                    self.sources.hold(index, Some(until), &self.poller);
                    return Ok(Read::Bytes(0));
                }
            };
            self.rescue(stream, want);
            let read = self.sources.read(index, &mut self.hub, want);
            let len = if let Ok(Read::Bytes(len)) = read { len } else { 0 };
            let clock = Now::read();
            self.hub.commit(stream, len, clock);
            let read = read?;
            if len > 0 {
                self.show_on_screen(len, now);
                self.flush_all(stream);
                self.write_logs(now);
            }
            match read {
                Read::End => return Ok(Read::End),
                Read::Bytes(len) if len == want => {}
                // An echo: what is typed next does not wait until it is known that there is no more.
                Read::Bytes(len) if stream == Stream::Tty && len < limits::PTY_PIECE => {
                    return Ok(read);
                }
                Read::Bytes(_) | Read::Empty => {
                    let (gives_all, nap) = self.sources.rest(index, clock.at, &self.poller);
                    match nap {
                        // An app that writes small pieces without a break gets time to write some.
                        // Others may have waited for this.
                        Some(nap) => {
                            // A signal ends it: a sleep that goes on after signals may never end.
                            let _ = ppoll(&mut [], Some(nap.into()), None);
                            return Ok(Read::Bytes(0));
                        }
                        None if gives_all || read == Read::Empty => return Ok(Read::Empty),
                        None => {}
                    }
                }
            }
        }
        Ok(Read::Bytes(0))
    }

    /// Lets go on what is not held back any more.
    pub(crate) fn resume(&mut self, now: Instant) {
        for index in 0..self.sources.len() {
            if let Some(stream) = self.sources.stream(index)
                && self.sources.is_held(index)
            {
                let held = match self.room(stream, now) {
                    Room::Held(until) => Some(until),
                    Room::Free(_) => None,
                };
                self.sources.hold(index, held, &self.poller);
            }
        }
        self.admission.resume(now, &self.poller);
    }

    /// How much may be read from a source now.
    fn room(&mut self, stream: Stream, now: Instant) -> Room {
        let is_full = self.terminal.as_ref().is_some_and(Terminal::is_full);
        match self.hub.room(stream, now) {
            Room::Free(_) if is_full => Room::Held(now + limits::AGES),
            room => room,
        }
    }

    /// Hands new bytes of a stream to all clients that are ready for them.
    fn flush_all(&mut self, stream: Stream) {
        let mut ids = self.clients.lend_ids();
        ids.extend(self.hub.clients(stream));
        for id in &ids {
            if self.clients.get(*id).is_some_and(|client| !client.outbound.is_full()) {
                self.touch(*id);
            }
        }
        self.clients.return_ids(ids);
    }

    /// Copies what the next `len` bytes of a stream would overwrite in the middle of a frame.
    fn rescue(&mut self, stream: Stream, len: usize) {
        let ids: Vec<_> = self.hub.endangered(stream, len).collect();
        for id in ids {
            if let Some(client) = self.clients.get_mut(id) {
                client.rescue(id, &mut self.hub);
            }
        }
    }

    /// The app was started, or has ended: each session learns it behind what the app wrote before.
    pub(crate) fn on_lifecycle(&mut self, event: LifecycleEvent) {
        let name = self.files.name();
        match event {
            LifecycleEvent::Ended(status) => log::info!("app {name}: it has ended {status}"),
            LifecycleEvent::Started(Started { pid }) => {
                log::info!("app {name}: it runs as pid={pid}");
            }
        }
        self.life.record(event);
        if let LifecycleEvent::Started(_) = event {
            self.input.begin_next(&self.files.notify);
        }
        // Everything from an app that has ended is in the pipes by now.
        for index in 0..self.sources.len() {
            self.read_empty(index);
        }
        if let LifecycleEvent::Ended(_) = event {
            self.reset_terminal();
            self.logs.app_ended(&mut self.hub, Instant::now());
        }
        let end = |stream: Stream| self.hub.extent(stream).map_or(0, |(end, _)| end);
        let ends: Ends = Stream::ALL.map(end);
        for id in self.clients.ids() {
            let Some(client) = self.clients.get_mut(id) else { continue };
            // A welcome reports what was before it, and a farewell is the last message.
            if !client.inbound.has_greeted() || client.outbound.has_farewell() {
                continue;
            }
            if let Some(session) = client.session_mut() {
                session.queue_event(event, ends);
            }
            if !client.outbound.is_full() {
                self.touch(id);
            }
        }
    }

    /// Reads what is in a source now, unless a client holds it back; no more than a pipe can have,
    /// because the app may still write.
    fn read_empty(&mut self, index: usize) {
        let Some(stream) = self.sources.stream(index) else { return };
        let end = |mux: &Self| mux.hub.extent(stream).map_or(0, |(end, _)| end);
        let enough = end(self) + u64::from(limits::PIPE.unsigned_abs());
        // An error will be reported when the source is read again.
        while let Ok(Read::Bytes(_)) = self.pump(index, Instant::now())
            && !self.sources.is_held(index)
            && end(self) < enough
        {}
    }
}
