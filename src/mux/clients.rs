//! The mux and its clients: accepting them, writing what the hub has, letting go of them.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use log::Level;

use super::poll::{Event, Interest, Token};
use super::sink::client::{Client, InputAccess, Outlet, Peer, Role, SessionSide};
use super::talk::{ATTACHING, DROPS, REFUSALS};
use super::{Mux, Phase, log_watch};
use crate::core::hub::ClientId;
use crate::core::hub::input::Merge;
use crate::os::sys;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::stream::{Position, Stream};
use crate::wire::{Begin, FrameKind, Refusal, Rights, Want};

impl Mux {
    /// Takes those who wait at a listener, `most` of them at the most: between two turns those who
    /// have gone already make room.
    pub(crate) fn accept(&mut self, index: usize, most: usize, now: Instant) {
        for _ in 0..most {
            let Some(socket) = self.listeners[index].accept(now) else { break };
            let stream = self.listeners[index].stream;
            if let Err(e) = self.admit(socket, stream) {
                let line = format_args!("a client of app {}: {e:#}", self.dir.name());
                DROPS.log(Right::View, Level::Warn, line);
            }
        }
        self.watch_listener(index);
    }

    /// A new client, if it may come; a raw one is served at once, a session after its hello.
    fn admit(&mut self, socket: UnixStream, stream: Option<Stream>) -> Result<()> {
        let role = stream.map_or_else(|| Role::Session(SessionSide::default()), Role::Raw);
        let peer = Peer::of(&socket)?;
        let right = self.right_of(&socket, peer);
        let may = *right.as_ref().unwrap_or(&Right::View);
        // The app does not wait for those who only look.
        let patience = if may < Right::Write { Duration::ZERO } else { self.patience };
        let id = self.hub.join(patience);
        let crowded = self.crowd.enter(peer.uid, may);
        self.clients.insert(id, Client::new(socket, role, peer, may));
        let refusal = match right.and_then(|may| crowded.map(|()| may)) {
            Err(why) => Some(why),
            Ok(may) if stream == Some(Stream::Stdin) && may < Right::Write => {
                Some(only_looks(peer))
            }
            Ok(_) => None,
        };
        if let Some(why) = refusal {
            self.refuse(id, &why);
            return Ok(());
        }
        let Some(stream) = stream else {
            self.silent.push_back((id, Instant::now() + limits::HELLO));
            // Its hello may have come with it.
            self.on_client(id, Event::readable(Token::Client(id)));
            return Ok(());
        };
        let want = Want { stream, from: Position::Unseen };
        // Of one who types at a terminal in this way nothing is known: it may well be a person.
        let types = (stream.is_input() && may >= Right::Write).then(|| self.merge(false));
        self.attach(id, &[want], types);
        match (stream, &self.inlet) {
            // The app's input is closed, and nobody will read what this client types.
            (Stream::Stdin, None) => self.drop_client(id),
            _ => self.touch(id),
        }
        Ok(())
    }

    /// What a peer may do.
    fn right_of(&self, socket: &UnixStream, peer: Peer) -> Result<Right> {
        if let Ok(Right::Own) = self.rules.of(peer.uid, &[]) {
            // Its groups are no matter.
            return Ok(Right::Own);
        }
        let mut gids = sys::peer_groups(socket)?;
        gids.push(peer.gid);
        Ok(self.rules.of(peer.uid, &gids)?)
    }

    /// How a client's input is put together with that of others; at a terminal that is its own choice.
    pub(crate) fn merge(&self, lines: bool) -> Merge {
        if lines || self.terminal.is_none() { Merge::Lines } else { Merge::AsTyped }
    }

    /// Puts a client on output streams and, if it `types`, among the writers; returns where its
    /// streams begin.
    pub(crate) fn attach(
        &mut self,
        id: ClientId,
        wants: &[Want],
        types: Option<Merge>,
    ) -> Vec<Begin> {
        let begins: Vec<Begin> = wants
            .iter()
            .filter_map(|Want { stream, from }| {
                let offset = self.hub.subscribe(id, *stream, *from)?;
                Some(Begin { stream: *stream, offset })
            })
            .collect();
        let Some(client) = self.clients.get_mut(&id) else { return begins };
        if let Role::Session(session) = &mut client.role {
            session.greeted = true;
            session.streams = begins.iter().map(|begin| begin.stream).collect();
        }
        match types {
            Some(merge) if self.inlet.is_some() => {
                client.typing = InputAccess::Open;
                self.input.join(id, merge, client.peer.uid);
            }
            Some(_) => client.typing = InputAccess::Ended,
            None => {}
        }
        let does = client.does();
        if !does.is_empty() {
            let line = format_args!("app {}: {} attached to {does}", self.dir.name(), client.peer);
            ATTACHING.log(client.right, Level::Info, line);
        }
        begins
    }

    /// Whether what a client types goes to the app now.
    pub(crate) fn types(&self, id: ClientId) -> bool {
        let open = self.clients.get(&id).is_some_and(|client| client.typing == InputAccess::Open);
        open && self.input.only().is_none_or(|only| only == id)
    }

    /// From now on only this client types, or again all; those who can type no more, or again, are
    /// told, unless the mux ends and nothing is taken any more.
    pub(crate) fn reserve(&mut self, only: Option<ClientId>) {
        let could: Vec<(ClientId, bool)> =
            self.writers().into_iter().map(|id| (id, self.types(id))).collect();
        self.input.reserve(only, Instant::now());
        for (id, could) in could {
            let rights = self.rights(id);
            if rights.types == could || self.phase != Phase::Ready {
                continue;
            }
            let told =
                self.clients.get_mut(&id).map(|c| c.tell(&FrameKind::Rights.message(&rights)));
            match told {
                Some(Err(e)) => self.lose(id, &e.into()),
                _ => self.touch(id),
            }
        }
        self.feed(Instant::now());
    }

    /// Whether a client can type, and if not, why.
    pub(crate) fn rights(&self, id: ClientId) -> Rights {
        let types = self.types(id);
        let other = self.input.only().filter(|only| *only != id);
        let other = other.and_then(|only| Some((only, self.clients.get(&only)?)));
        let why = match (self.clients.get(&id), other) {
            _ if types => String::new(),
            (Some(client), _) if client.right < Right::Write => only_looks(client.peer).to_string(),
            (_, Some((only, other))) => format!("client {} ({}) types alone", only.0, other.peer),
            _ => "its input has ended".to_owned(),
        };
        Rights { types, why }
    }

    /// Something happened at a client's socket.
    pub(crate) fn on_client(&mut self, id: ClientId, event: Event) {
        if event.hangup {
            self.depart(id);
        }
        if event.readable || event.hangup {
            match self.hear(id) {
                Ok(true) => {}
                Ok(false) => return self.drop_client(id),
                Err(e) => return self.lose(id, &e),
            }
        }
        self.touch(id);
    }

    /// Nothing can reach a client any more, and it decides nothing, but what it typed before it went still
    /// counts.
    fn depart(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| !client.is_gone()) else {
            return;
        };
        client.outlet = Outlet::Gone;
        self.hub.leave(id);
        if let Some(terminal) = &mut self.terminal {
            terminal.sizes.leave(id);
        }
        if self.input.only() == Some(id) {
            self.reserve(None);
        }
    }

    /// Copies what the next `len` bytes of a stream would overwrite in the middle of a frame.
    pub(crate) fn rescue(&mut self, stream: Stream, len: usize) {
        let ids: Vec<_> = self.hub.endangered(stream, len).collect();
        for id in ids {
            if let Some(client) = self.clients.get_mut(&id) {
                client.rescue(id, &mut self.hub);
            }
        }
    }

    /// Lets go of sessions that do not say what they want.
    pub(crate) fn drop_silent(&mut self, now: Instant) {
        if self.silent.len() > 2 * limits::CLIENTS {
            // Most of them have said what they want, or gone.
            let clients = &self.clients;
            self.silent.retain(|(id, _)| clients.get(id).is_some_and(|client| !client.greeted()));
        }
        while let Some((id, until)) = self.silent.front().copied() {
            let waits = self.clients.get(&id).is_some_and(|client| !client.greeted());
            if waits && now < until {
                break;
            }
            self.silent.pop_front();
            if waits {
                self.lose(id, &anyhow!("it has not said hello in time"));
            }
        }
    }

    /// Hands new bytes of a stream to everybody who is ready for them.
    pub(crate) fn flush_all(&mut self, stream: Stream) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(self.hub.clients(stream));
        for id in &ids {
            if self.clients.get(id).is_some_and(|client| client.outlet != Outlet::Full) {
                self.touch(*id);
            }
        }
        self.ids = ids;
    }

    /// Writes what there is for a client, and watches it for what it needs next.
    pub(crate) fn touch(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.flush(id, &mut self.hub) {
            Ok(()) => {
                if let Some(terminal) = self.terminal.as_mut().filter(|_| client.wants_screen()) {
                    terminal.due = true;
                }
                self.watch_client(id);
            }
            Err(e) => {
                // What it typed may still wait to be read.
                log::debug!("app {}: writing to {}: {e}", self.dir.name(), client.peer);
                self.depart(id);
                if self.hear(id).unwrap_or(false) {
                    self.watch_client(id);
                } else {
                    self.drop_client(id);
                }
            }
        }
    }

    pub(crate) fn watch_client(&mut self, id: ClientId) {
        let room = self.reading_room(id);
        let delivering = matches!(self.phase, Phase::Delivering { .. });
        let Some(client) = self.clients.get_mut(&id) else { return };
        // In the end only what a late client wants is still listened to.
        let read = room > 0 && !(delivering && client.greeted());
        let interest = Interest { read, write: client.outlet == Outlet::Full };
        // A client that is gone hangs up for ever: it is watched only while it can be read.
        let wanted = (!client.is_gone() || read).then_some(interest);
        let mut watch = std::mem::take(&mut client.watch);
        log_watch(self.poller.watch(&mut watch, &*client, Token::Client(id), wanted));
        client.watch = watch;
    }

    /// Somebody may not come: a session is told why.
    fn refuse(&mut self, id: ClientId, why: &Error) {
        if let Some(client) = self.clients.get(&id) {
            let what = match &client.role {
                Role::Raw(stream) => stream.name(),
                Role::Session(_) => "a session",
            };
            let name = self.dir.name();
            // No complaint of ours: `status` shows those.
            let line = format_args!("app {name}: {} refused at {what}: {why:#}", client.peer);
            REFUSALS.log(client.right, Level::Info, line);
        }
        self.tell_reason(id, why);
        self.let_go(id);
    }

    /// A client broke the protocol or its connection: it is told if it can be, and dropped.
    pub(crate) fn lose(&mut self, id: ClientId, why: &Error) {
        if why.downcast_ref::<io::Error>().is_none()
            && let Some(client) = self.clients.get(&id)
        {
            let (name, error) = (self.dir.name(), reason(why));
            let done = if client.greeted() { "dropped" } else { "refused" };
            let error = error.escape_debug();
            let line = format_args!("app {name}: {} {done}: {error}", client.peer);
            DROPS.log(client.right, Level::Warn, line);
            self.tell_reason(id, why);
        }
        self.drop_client(id);
    }

    /// A client has gone, and not all that it typed goes on.
    pub(crate) fn tell_forgotten(&self, peer: Peer, right: Right) {
        let name = self.dir.name();
        let line = format_args!("app {name}: {peer} has gone, its last input is lost");
        DROPS.log(right, Level::Warn, line);
    }

    fn tell_reason(&mut self, id: ClientId, why: &Error) {
        if let Some(client) = self.clients.get_mut(&id) {
            let _ = client.tell(&FrameKind::Error.message(&Refusal { error: reason(why) }));
            let _ = client.flush(id, &mut self.hub);
        }
    }

    /// Lets go of a client.
    pub(crate) fn drop_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        let (does, lost) = (client.does(), self.hub.lost(id));
        let missed = if lost > 0 { format!(", it missed {lost} bytes") } else { String::new() };
        if client.greeted() && !does.is_empty() {
            let name = self.dir.name();
            let line = format_args!("app {name}: {} detached from {does}{missed}", client.peer);
            ATTACHING.log(client.right, Level::Info, line);
        }
        self.let_go(id);
    }

    fn let_go(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.crowd.leave(client.peer.uid, client.right);
        self.hub.leave(id);
        let forgotten = self.input.leave(id, Instant::now());
        if let Some(terminal) = &mut self.terminal {
            terminal.sizes.leave(id);
        }
        if forgotten > 0 {
            self.tell_forgotten(client.peer, client.right);
            // Others of its user have room again.
            self.resume_typing();
        }
        client.close();
        if self.input.only() == Some(id) {
            self.reserve(None);
        }
    }
}

/// A reason in words: not all of what a peer has made of it.
fn reason(why: &Error) -> String {
    format!("{why:#}").chars().take(limits::REASON).collect()
}

/// Why one who may only look does not type.
pub(crate) fn only_looks(peer: Peer) -> Error {
    anyhow!("user {} may only look", peer.uid)
}
