//! Admission: the sockets on which clients connect, the rights of each peer, the number of clients
//! per user, and the time that a session may take for its hello.
//!
//! It knows clients by their id and peer only.

mod crowd;
pub(crate) mod listener;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use nix::errno::Errno;

use crate::core::hub::ClientId;
use crate::mux::admission::crowd::Crowd;
use crate::mux::admission::listener::Listener;
use crate::mux::peer::Peer;
use crate::mux::poll::{Interest, Poller, Token, log_watch};
use crate::os::sys;
use crate::types::limits;
use crate::types::rights::{Right, Rules};
use crate::types::stream::Stream;
use crate::wire::NoRoom;

/// How long a session may take to send its first message.
const HELLO: Duration = Duration::from_secs(10);
/// How long a session may be silent, before its hello or with the last descriptor, while others wait
/// for a descriptor: longer than a client on a busy machine takes between two messages, and short
/// enough that a hook of the app's unit ([`limits::HOOK`]) gets its turn behind others.
const SCARCE_TURN: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Admission {
    listeners: Vec<Listener>,
    rules: Rules,
    crowd: Crowd,
    /// How long a client that types may hold the app back.
    patience: Duration,
    /// Sessions that may not have sent their hello, and when each came, in this order.
    silent: VecDeque<(ClientId, Instant)>,
    /// A descriptor that is closed to accept a session of root or the mux's own user when no other
    /// is free: it can ask what is wrong.
    reserve: Option<OwnedFd>,
    /// The session that was accepted in its place, and until when it need not give way.
    on_reserve: Option<(ClientId, Instant)>,
}

/// What waits at a listener.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A new connection.
    Client(NewClient),
    /// A session for which no descriptor is left, and the failure to accept it.
    Surplus(io::Error),
    /// No connection, or none for a while after a failure.
    Nobody,
}

/// A new connection.
#[derive(Debug)]
pub(crate) struct NewClient {
    pub(crate) socket: UnixStream,
    /// The stream of a raw client.
    pub(crate) stream: Option<Stream>,
    /// Whether it has the last descriptor.
    pub(crate) is_last: bool,
}

/// The decision on a new client. It is counted, whether it may stay or not.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) right: Right,
    /// Why it may not stay.
    pub(crate) refusal: Option<Error>,
}

impl Admission {
    pub(crate) fn new(listeners: Vec<Listener>, rules: Rules, patience: Duration) -> Self {
        let (crowd, silent) = (Crowd::new(), VecDeque::new());
        let mut this =
            Self { listeners, rules, crowd, patience, silent, reserve: None, on_reserve: None };
        this.refill();
        this
    }

    // ---- listeners ----

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    pub(crate) fn watch(&mut self, index: usize, poller: &Poller) {
        let listener = &mut self.listeners[index];
        let wanted = listener.paused.is_none().then_some(Interest { read: true, write: false });
        let token = Token::Listener(index);
        log_watch(poller.watch(&mut listener.watch, &listener.socket, token, wanted));
    }

    /// The next connection at a listener.
    pub(crate) fn accept(&mut self, index: usize, now: Instant) -> Arrival {
        self.refill();
        let listener = &mut self.listeners[index];
        let stream = listener.stream;
        let mut accepted = listener.accept();
        let mut is_last = false;
        let is_scarce = stream.is_none() && accepted.as_ref().is_err_and(is_without_descriptor);
        if is_scarce && let Some(reserve) = self.reserve.take() {
            drop(reserve);
            accepted = listener.accept();
            is_last = true;
        }
        match accepted {
            Ok(Some(socket)) => Arrival::Client(NewClient { socket, stream, is_last }),
            Ok(None) => Arrival::Nobody,
            Err(e) if is_scarce => Arrival::Surplus(e),
            Err(e) => {
                listener.pause(now, &e);
                Arrival::Nobody
            }
        }
    }

    /// A session that gives way to one for which no descriptor is left: it `is_silent` and has not
    /// sent its hello, or it has the last descriptor and its turn is over. Otherwise that one waits.
    pub(crate) fn give_way(
        &mut self,
        index: usize,
        error: &io::Error,
        now: Instant,
        is_silent: impl Fn(ClientId) -> bool,
    ) -> Option<ClientId> {
        let silent = self.next_silent(SCARCE_TURN, now, is_silent);
        let idle = || self.on_reserve.take_if(|(_, until)| *until <= now).map(|(id, _)| id);
        let gives_way = silent.or_else(idle);
        if gives_way.is_none() {
            let listener = &mut self.listeners[index];
            match self.on_reserve {
                Some((_, until)) => listener.paused = Some(until),
                None => listener.pause(now, error),
            }
        }
        gives_way
    }

    /// Has a descriptor in reserve again, as soon as one is free.
    pub(crate) fn refill(&mut self) {
        if self.reserve.is_none()
            && let Some(listener) = self.listeners.first()
        {
            self.reserve = listener.socket.as_fd().try_clone_to_owned().ok();
            self.on_reserve = self.on_reserve.filter(|_| self.reserve.is_none());
        }
    }

    /// Whether a session has the last descriptor: it may ask, and not stay.
    pub(crate) fn is_on_reserve(&self, id: ClientId) -> bool {
        self.on_reserve.is_some_and(|(last, _)| last == id)
    }

    /// A session has sent something: if it has the last descriptor, its turn begins again.
    pub(crate) fn extend_turn(&mut self, id: ClientId, now: Instant) {
        if self.is_on_reserve(id) {
            self.on_reserve = Some((id, now + SCARCE_TURN));
        }
    }

    /// Accepts again where accepting had failed, after a pause.
    pub(crate) fn resume(&mut self, now: Instant, poller: &Poller) {
        for index in 0..self.listeners.len() {
            let paused = &mut self.listeners[index].paused;
            if paused.is_some_and(|until| until <= now) {
                *paused = None;
                self.watch(index, poller);
            }
        }
    }

    /// Closes the listeners and returns their streams; `None` stands for the session socket.
    pub(crate) fn close(&mut self) -> Vec<Option<Stream>> {
        self.listeners.drain(..).map(|listener| listener.stream).collect()
    }

    // ---- clients ----

    /// Decides on a new client and counts it.
    pub(crate) fn admit(
        &mut self,
        NewClient { socket, stream, is_last }: &NewClient,
        peer: Peer,
    ) -> Admitted {
        let allowed = self.right_of(socket, peer);
        let right = *allowed.as_ref().unwrap_or(&Right::View);
        let crowded = self.crowd.enter(peer.uid, right);
        let refusal = allowed.and(crowded).err().or_else(|| {
            let may_not_type = *stream == Some(Stream::Stdin) && right < Right::Write;
            let is_too_much = *is_last && right < Right::Own;
            let no_descriptor = || NoRoom("the mux has no descriptor left for it".to_owned());
            may_not_type
                .then(|| peer.may_only_look())
                .or_else(|| is_too_much.then(|| no_descriptor().into()))
        });
        Admitted { right, refusal }
    }

    fn right_of(&self, socket: &UnixStream, peer: Peer) -> Result<Right> {
        if let Ok(Right::Own) = self.rules.of(peer.uid, &[]) {
            // Its groups do not matter.
            return Ok(Right::Own);
        }
        let mut gids = sys::peer_groups(socket)?;
        gids.push(peer.gid);
        Ok(self.rules.of(peer.uid, &gids)?)
    }

    /// How long a client with this right may hold the app back: the app does not wait for viewers.
    pub(crate) fn patience(&self, right: Right) -> Duration {
        if right < Right::Write { Duration::ZERO } else { self.patience }
    }

    pub(crate) fn leave(&mut self, peer: Peer, right: Right) {
        self.crowd.leave(peer.uid, right);
    }

    /// A new session is to send its hello. Until there is another descriptor in reserve, it has
    /// that if it has the last one.
    pub(crate) fn await_hello(&mut self, id: ClientId, is_last: bool, now: Instant) {
        if is_last {
            self.on_reserve = Some((id, now + SCARCE_TURN));
        }
        self.silent.push_back((id, now));
    }

    /// A session that `is_silent` and has not sent its hello in time, if there is one. Each is
    /// returned once.
    pub(crate) fn next_overdue(
        &mut self,
        now: Instant,
        is_silent: impl Fn(ClientId) -> bool,
    ) -> Option<ClientId> {
        self.next_silent(HELLO, now, is_silent)
    }

    /// The same for another time than [`HELLO`].
    fn next_silent(
        &mut self,
        time: Duration,
        now: Instant,
        is_silent: impl Fn(ClientId) -> bool,
    ) -> Option<ClientId> {
        if self.silent.len() > 2 * limits::CLIENTS {
            // Most of them have sent their hello, or gone.
            self.silent.retain(|(id, _)| is_silent(*id));
        }
        while let Some((id, since)) = self.silent.front().copied() {
            let is_silent = is_silent(id);
            if is_silent && now < since + time {
                break;
            }
            self.silent.pop_front();
            if is_silent {
                return Some(id);
            }
        }
        None
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let paused = self.listeners.iter().filter_map(|listener| listener.paused);
        paused.chain(self.silent.front().map(|(_, since)| *since + HELLO)).min()
    }
}

/// Whether a connection cannot be accepted because no descriptor is free, here or in the whole
/// system.
fn is_without_descriptor(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::rights::{Lists, OVERFLOW};

    fn admission(own_uid: u32, lists: Lists) -> Admission {
        let rules = Rules { own_uid, overflow_uid: OVERFLOW, overflow_gid: OVERFLOW, lists };
        Admission::new(Vec::new(), rules, limits::PATIENCE)
    }

    #[test]
    fn a_peer_gets_its_right_or_a_reason() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let mut ours = NewClient { socket, stream: None, is_last: false };
        let stranger = Peer { uid: 4711, gid: 4711, pid: 1 };
        let mut nobody = admission(1, Lists::default());
        assert!(nobody.admit(&ours, stranger).refusal.is_some());
        let lists = Lists { view_uid: vec![4711], ..Lists::default() };
        let mut viewers = admission(1, lists);
        let admitted = viewers.admit(&ours, stranger);
        assert!(admitted.right == Right::View && admitted.refusal.is_none());
        ours.is_last = true;
        assert!(viewers.admit(&ours, stranger).refusal.is_some());
        ours = NewClient { stream: Some(Stream::Stdin), is_last: false, ..ours };
        assert!(viewers.admit(&ours, stranger).refusal.is_some());
        assert_eq!(viewers.patience(Right::View), Duration::ZERO);
        let root = Peer { uid: 0, ..stranger };
        assert_eq!(viewers.admit(&ours, root).right, Right::Own);
    }

    #[test]
    fn a_session_without_a_hello_is_named_once_and_one_with_a_hello_never() {
        let mut admission = admission(1, Lists::default());
        let now = Instant::now();
        let ids = [ClientId(1), ClientId(2)];
        for id in ids {
            admission.await_hello(id, false, now);
        }
        let is_silent = |id| id == ids[1];
        assert_eq!(admission.next_overdue(now, is_silent), None);
        assert_eq!(admission.deadline(), Some(now + HELLO));
        assert_eq!(admission.next_overdue(now + HELLO, is_silent), Some(ids[1]));
        assert_eq!(admission.next_overdue(now + HELLO, is_silent), None);
        assert_eq!(admission.deadline(), None);
    }
}
