//! Admission: the sockets on which clients connect, the rights of each peer, and the number of clients
//! per user.
//!
//! It knows clients by their peer only.

mod crowd;
pub(crate) mod listener;

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use self::crowd::Crowd;
use self::listener::Listener;
use crate::mux::peer::Peer;
use crate::mux::poll::{Interest, Poller, Token};
use crate::sys::calls;
use crate::types::rights::{Right, Rules};
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Admission {
    listeners: Vec<Listener>,
    rules: Rules,
    crowd: Crowd,
    /// How long a client that types may hold the app back.
    patience: Duration,
}

impl Admission {
    pub(crate) fn new(listeners: Vec<Listener>, rules: Rules, patience: Duration) -> Self {
        Self { listeners, rules, crowd: Crowd::new(), patience }
    }

    // ---- listeners ----

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    pub(crate) fn watch(&mut self, index: usize, poller: &Poller) {
        let listener = &mut self.listeners[index];
        let wanted = listener.paused.is_none().then_some(Interest { read: true, write: false });
        let token = Token::Listener(index);
        poller.watch(&mut listener.watch, &listener.socket, token, wanted);
    }

    /// The next connection at a listener, and the stream of a raw client; `None` if there is none, or
    /// none for a while after a failure.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        now: Instant,
    ) -> Option<(UnixStream, Option<Stream>)> {
        let listener = &mut self.listeners[index];
        match listener.socket.accept() {
            Ok((socket, _)) => return Some((socket, listener.stream)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => listener.pause(now, &e),
        }
        None
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

    /// Decides on a new client and counts it, whether it may stay or not. Returns its right, and why it
    /// may not stay.
    pub(crate) fn admit(
        &mut self,
        socket: &UnixStream,
        stream: Option<Stream>,
        peer: Peer,
    ) -> (Right, Option<Error>) {
        let allowed = self.right_of(socket, peer);
        let right = *allowed.as_ref().unwrap_or(&Right::View);
        let crowded = self.crowd.enter(peer.uid, right);
        let refusal = allowed.and(crowded).err().or_else(|| {
            let may_not_type = stream == Some(Stream::Stdin) && right < Right::Write;
            may_not_type.then(|| peer.may_only_look())
        });
        (right, refusal)
    }

    fn right_of(&self, socket: &UnixStream, peer: Peer) -> Result<Right> {
        if let Ok(Right::Own) = self.rules.of(peer.uid, &[]) {
            // Its groups do not matter.
            return Ok(Right::Own);
        }
        let mut gids = calls::peer_groups(socket)?;
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

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.listeners.iter().filter_map(|listener| listener.paused).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::limits;
    use crate::types::rights::Lists;

    fn admission(own_uid: u32, lists: Lists) -> Admission {
        let rules = Rules { own_uid, hides_others: true, lists };
        Admission::new(Vec::new(), rules, limits::PATIENCE)
    }

    #[test]
    fn a_peer_gets_its_right_or_a_reason() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let stranger = Peer { uid: 4711, gid: 4711, pid: 1 };
        let mut nobody = admission(1, Lists::default());
        assert!(nobody.admit(&socket, None, stranger).1.is_some());
        let lists = Lists { view_uid: vec![4711], ..Lists::default() };
        let mut viewers = admission(1, lists);
        let admitted = viewers.admit(&socket, None, stranger);
        assert!(matches!(admitted, (Right::View, None)));
        assert!(viewers.admit(&socket, Some(Stream::Stdin), stranger).1.is_some());
        assert_eq!(viewers.patience(Right::View), Duration::ZERO);
        let root = Peer { uid: 0, ..stranger };
        assert_eq!(viewers.admit(&socket, None, root).0, Right::Own);
    }
}
