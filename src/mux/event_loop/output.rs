//! The loop and the app's output: from the sources into the hub, and on to clients, logs and
//! screen.

use std::io;
use std::time::Instant;

use nix::poll::ppoll;

use super::Mux;
use crate::core::hub::{Hub, Room};
use crate::core::wire::{LifecycleEvent, Started};
use crate::mux::pages::{SHARED_READ, SINGLE_READ};
use crate::mux::source::{Read, pty};
use crate::types::limits;
use crate::types::stream::{Offsets, Stream};
use crate::types::time::Now;

/// Bytes per read from a source. Each read of a full pipe wakes the app, which costs as much as
/// copying about ten KiB. The size is small enough to stay in the cache until the clients get it.
const SOURCE_READ: usize = 128 * 1024;
/// A read below this size, in bytes, is an echo or a few lines, not a flood: then a further read
/// would find nothing. Of a terminal's flood all that a turn reads is passed on at once: a terminal
/// gives 4 KiB at most, and sending these costs more than reading them.
const SMALL_READ: usize = 1024;

impl Mux {
    /// A source may have bytes.
    pub(super) fn on_source(&mut self, stream: Stream, now: Instant) {
        if !self.sources.is_open(stream) {
            return;
        }
        match self.pump(stream, now) {
            Ok(Read::Bytes(_) | Read::Empty) => {}
            Ok(Read::End) => {
                self.sources.close(stream, &self.poller);
                self.end_engine_stream(stream);
            }
            Err(e) => {
                log::error!("cannot read {stream}: {e}");
                self.sources.close(stream, &self.poller);
            }
        }
    }

    /// Reads from a source into the hub for one turn, and passes the output on. `Bytes` means that
    /// there may be more.
    pub(super) fn pump(&mut self, stream: Stream, now: Instant) -> io::Result<Read> {
        let mut unsent = 0;
        for _ in 0..limits::READS_PER_TURN {
            let shared = self.shared_read(stream);
            let want = match self.make_room(stream, now) {
                Room::Free(room) => room.min(shared.unwrap_or(SOURCE_READ)),
                Room::Held(_) if unsent > 0 => break,
                Room::Held(until) => {
                    self.sources.hold(stream, Some(until), &self.poller);
                    return Ok(Read::Bytes(0));
                }
            };
            self.rescue(stream, want);
            let pages = shared.map(|_| &mut self.pages);
            let read = self.sources.read(stream, &mut self.hub, want, pages);
            let len = if let Ok(Read::Bytes(len)) = read { len } else { 0 };
            let clock = Now::read();
            self.hub.commit(stream, len, clock);
            if len > 0 {
                self.show_on_screen(len, now);
                unsent += len;
            }
            // With less room, clients that got nothing yet would be judged as slow.
            if stream == Stream::Tty && len >= SMALL_READ && want == SOURCE_READ {
                continue;
            }
            let sent = std::mem::take(&mut unsent);
            if sent > 0 {
                self.pass_on(stream, now);
            }
            let read = read?;
            match read {
                Read::End => return Ok(Read::End),
                // There may be more by now.
                Read::Empty if sent > 0 => {}
                Read::Bytes(len) if len == want => {}
                // The pages were not full.
                Read::Bytes(_) if shared.is_some() && self.sources.has_pages(stream) => {}
                Read::Bytes(_) | Read::Empty => {
                    let (gives_all, nap) = self.sources.rest(stream, clock.at, &self.poller);
                    match nap {
                        // An app that writes small pieces without a break gets time to write some.
                        // Others may have waited for this.
                        Some(nap) => {
                            // A signal ends it: a sleep that goes on after signals may never end.
                            let _ = ppoll(&mut [], Some(nap.into()), None);
                            return Ok(Read::Bytes(0));
                        }
                        None if gives_all || read == Read::Empty => return Ok(Read::Empty),
                        // If there is more after all, epoll reports it.
                        None if len < SMALL_READ => return Ok(read),
                        None => {}
                    }
                }
            }
        }
        if unsent > 0 {
            self.pass_on(stream, now);
        }
        Ok(Read::Bytes(0))
    }

    /// Passes new bytes of a stream on to all but the screen.
    fn pass_on(&mut self, stream: Stream, now: Instant) {
        self.flush_all(stream);
        self.serve_engine(stream);
        self.logs.write(&mut self.hub, now);
    }

    /// Reads again from sources that no client delays any more.
    pub(super) fn resume(&mut self, now: Instant) {
        for stream in Stream::ALL {
            if self.sources.is_held(stream) {
                let held = match self.make_room(stream, now) {
                    Room::Held(until) => Some(until),
                    Room::Free(_) => None,
                };
                self.sources.hold(stream, held, &self.poller);
            }
        }
        self.admission.resume(now, &self.poller);
    }

    /// How much may be read from a source now.
    fn make_room(&mut self, stream: Stream, now: Instant) -> Room {
        let is_full = self.terminal.as_ref().is_some_and(|it| it.worker.is_full);
        match self.hub.make_room(stream, now) {
            Room::Free(_) if is_full => Room::Held(now + limits::AGES),
            room => room,
        }
    }

    /// Hands new bytes of a stream to all clients that are ready for them.
    fn flush_all(&mut self, stream: Stream) {
        let mut ids = std::mem::take(&mut self.clients.ids);
        ids.clear();
        ids.extend(self.hub.clients(stream));
        for id in &ids {
            if self.clients.get(*id).is_some_and(|client| !client.is_full) {
                self.touch(*id);
            }
        }
        self.clients.ids = ids;
    }

    /// How many bytes to read if clients are to get the pages of the next read of a source.
    fn shared_read(&mut self, stream: Stream) -> Option<usize> {
        let shares = self.sources.gives_pages(stream)
            && self.hub.has_readers(stream, 1)
            && self.pages.may_share(self.clients.held_pages());
        let others = shares && self.hub.has_readers(stream, 2);
        shares.then_some(if others { SHARED_READ } else { SINGLE_READ })
    }

    /// Copies the rest of each current frame that the next `len` bytes of a stream would overwrite.
    fn rescue(&mut self, stream: Stream, len: usize) {
        let ids: Vec<_> = self.hub.endangered(stream, len).collect();
        for id in ids {
            if let Some(client) = self.clients.get_mut(id) {
                client.rescue(id, &mut self.hub);
            }
        }
    }

    /// An event of the app was reported. What it wrote before is in the pipes by now.
    pub(super) fn report_event(&mut self, event: LifecycleEvent) {
        let at = Stream::ALL.map(|stream| offset(&self.hub, stream));
        let pending = Stream::ALL.map(|stream| self.sources.pending(stream));
        if let LifecycleEvent::Ended(_) = event
            && !self.life.is_kept()
        {
            let end = |stream: Stream| Some(at[stream as usize] + pending[stream as usize]?);
            self.logs.app_ends_at(Stream::ALL.map(end));
            if self.life.status().is_none() {
                // Before the hook that reports it ends, and so before the next run begins.
                self.forget_input(Instant::now());
            }
        }
        let most = (limits::PIPE + limits::STAGE) as u64;
        let end = |stream| at[stream as usize] + pending[stream as usize].unwrap_or(most);
        self.life.report(event, Stream::ALL.map(end));
    }

    /// The app has ended: its next run gets nothing that was typed for this one, and a terminal
    /// whose output goes on.
    fn forget_input(&mut self, now: Instant) {
        let done = match self.sources.tty() {
            Some(tty) => pty::forget_input(tty),
            None => self.input.clear_fifo(),
        };
        self.start_output();
        if let Err(e) = done {
            log::warn!("app {}: clearing its input: {e}", self.files.name());
        }
        for id in self.input.forget_queued(now) {
            self.input_lost(id);
        }
        self.resume_typing();
    }

    /// Handles reported events. The output of an ended app is read first; a client may delay that.
    pub(super) fn on_lifecycle_events(&mut self) {
        while let Some(enough) = self.life.next_counts_at() {
            let mut is_read = true;
            for stream in Stream::ALL {
                is_read &= self.read_up(stream, enough);
            }
            let Some(event) = self.life.next_event(is_read) else { break };
            self.on_lifecycle(event, enough);
        }
    }

    /// The app started or ended, when its output had got as far as `ends`, or not as far as that.
    fn on_lifecycle(&mut self, event: LifecycleEvent, ends: Offsets) {
        let name = self.files.name();
        match event {
            LifecycleEvent::Ended(status) => log::info!("app {name}: it has ended {status}"),
            LifecycleEvent::Started(Started { pid }) => {
                log::info!("app {name}: it runs as pid={pid}");
            }
        }
        self.life.record(event);
        if self.life.is_kept() {
            // An app of `run` is not started again, and its children may still write after its end.
            if let LifecycleEvent::Started(_) = event {
                self.announce(event, ends);
            }
            return;
        }
        if self.files.notify.keeps()
            && let Err(e) = self.life.reported().publish(&self.files.dir)
        {
            log::warn!("{e:#}");
        }
        if let LifecycleEvent::Ended(_) = event {
            self.reset_terminal();
            // Of pipes it was known before what is to be read. What is left for the next mux may be
            // the rest of a line.
            if self.sources.tty().is_some() {
                let end = |stream| (stream == Stream::Tty).then(|| offset(&self.hub, stream));
                self.logs.app_ends_at(Stream::ALL.map(end));
            }
            self.logs.write(&mut self.hub, Instant::now());
        }
        self.announce(event, ends);
    }

    /// Each session gets this event after the app's earlier output. What the next run has written
    /// since the report may have been read with it.
    fn announce(&mut self, event: LifecycleEvent, ends: Offsets) {
        let ends = Stream::ALL.map(|stream| offset(&self.hub, stream).min(ends[stream as usize]));
        for id in self.clients.ids() {
            let Some(client) = self.clients.get_mut(id) else { continue };
            // A welcome describes the time before it, and a farewell is the last message.
            if !client.inbound.has_greeted() || client.has_farewell {
                continue;
            }
            if let Some(session) = client.session_mut() {
                session.queue_event(event, ends);
            }
            if !client.is_full {
                self.touch(id);
            }
        }
    }

    /// Reads until a source is empty, or until its stream has reached its offset in `enough`, since
    /// the app may still write. Returns whether it has; a client may delay the source.
    fn read_up(&mut self, stream: Stream, enough: Offsets) -> bool {
        if !self.sources.is_open(stream) {
            return true;
        }
        let has_enough = |mux: &Self| offset(&mux.hub, stream) >= enough[stream as usize];
        // An error will be reported when the source is read again.
        while !has_enough(self)
            && let Ok(Read::Bytes(_)) = self.pump(stream, Instant::now())
            && !self.sources.is_held(stream)
        {}
        self.sources.is_empty(stream) || has_enough(self)
    }
}

/// The offset of the next byte of a stream.
pub(super) fn offset(hub: &Hub, stream: Stream) -> u64 {
    hub.extent(stream).map_or(0, |(end, _)| end)
}
