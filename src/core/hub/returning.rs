//! Clients that return when a mux was killed or replaced: how many there are, and the wait for
//! them.
//!
//! The memory has their number, and the lowest offset that one of them needs. Both go on to count a
//! client of the previous mux until it is back or is waited for no more, so that a mux that is
//! killed meanwhile leaves the wait to the next one. At any moment both may cover too much, never
//! too little.

use std::time::{Duration, Instant};

use super::{ClientId, Hub, STREAMS};
use crate::types::record::Word;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(super) struct Returning {
    /// Those of the previous mux and of this one.
    count: Word,
    wait: Option<ClientWait>,
    /// Whether this mux ends: then a client that goes returns to the next one.
    is_ending: bool,
}

/// The wait for clients of the previous mux.
#[derive(Clone, Copy, Debug)]
struct ClientWait {
    /// How many are still to come.
    left: u64,
    /// The first byte of each stream that one of them may not have got.
    from: [u64; STREAMS],
    /// How long it lasts, and until when.
    time: Duration,
    until: Instant,
}

impl Returning {
    pub(super) fn new(count: Word) -> Self {
        Self { count, wait: None, is_ending: false }
    }

    /// The range of a stream that is kept for returning clients: its first offset, and the end of
    /// the wait.
    pub(super) fn wait(&mut self, stream: Stream, now: Instant) -> Option<(u64, Instant)> {
        let wait = self.wait?;
        if wait.until <= now {
            self.wait = None;
            self.count_down(wait.left);
            return None;
        }
        Some((wait.from[stream as usize], wait.until))
    }

    /// One that would have returned has gone by itself.
    pub(super) fn one_has_gone(&mut self) {
        if !self.is_ending {
            self.count_down(1);
        }
    }

    fn count_down(&mut self, clients: u64) {
        self.count.set(self.count.get().saturating_sub(clients));
    }
}

impl Hub {
    /// The clients of the previous mux may return for so long. Until all of them have, the first byte
    /// that one of them has not got is kept as if a client stood there.
    pub(crate) fn await_clients(&mut self, now: Instant, time: Duration) {
        let left = self.returning.count.get();
        let mut from = [0; STREAMS];
        for (from, ring) in from.iter_mut().zip(&mut self.rings) {
            if let Some(ring) = ring {
                *from = ring.needed();
                ring.need(*from);
            }
        }
        self.returning.wait =
            (left > 0).then_some(ClientWait { left, from, time, until: now + time });
    }

    /// Clients can come from now on, so the wait for them begins: a mux may take long to start.
    pub(crate) fn clients_can_come(&mut self, now: Instant) {
        if let Some(wait) = &mut self.returning.wait {
            wait.until = now + wait.time;
        }
    }

    /// Until when clients of the previous mux are awaited.
    pub(crate) fn awaits_clients_until(&self) -> Option<Instant> {
        self.returning.wait.map(|wait| wait.until)
    }

    /// This client will return, should this mux be killed, or be followed by another. The app does
    /// not wait for one without patience.
    pub(crate) fn will_return(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.patience.is_zero() || std::mem::replace(&mut client.returns, true) {
            return;
        }
        let count = self.returning.count;
        count.set(count.get().saturating_add(1));
        self.keep_for(id);
    }

    /// A client of the previous mux has returned, and will do so again. If it is in time it has its
    /// patience at once, though it may be behind: it was not slow, there was no mux to read from.
    /// And it has proven itself there.
    pub(crate) fn welcome_back(&mut self, id: ClientId, now: Instant) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.returns) else {
            return;
        };
        if self.returning.wait.is_none_or(|wait| wait.until <= now) {
            return;
        }
        client.unproven = 0;
        client.stall.caught_up();
        if let Some(wait) = &mut self.returning.wait {
            wait.left -= 1;
            self.returning.wait = Some(*wait).filter(|wait| wait.left > 0);
            self.returning.count_down(1);
        }
    }

    /// The mux ends: a client that goes now goes because of that, and returns to the next mux.
    pub(crate) fn end(&mut self) {
        self.returning.is_ending = true;
    }

    /// The next mux is to keep what this client has not got, if it will return and the app waits
    /// for it.
    pub(super) fn keep_for(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        if !client.returns || !client.stall.delays_app() {
            return;
        }
        for (cursor, ring) in client.cursors.iter().zip(&mut self.rings) {
            if let (Some(cursor), Some(ring)) = (cursor, ring) {
                ring.need_also(cursor.at);
            }
        }
    }
}
