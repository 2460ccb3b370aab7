//! The mux and its clients: accepting them, writing what the hub has, letting go of them.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::{Mux, Phase, log_watch};
use crate::hub::ClientId;
use crate::limits;
use crate::poll::{Event, Interest, Token};
use crate::proto::{Begin, Kind, Refusal, Want};
use crate::sink::client::{Client, Peer, Role, Session, Typing};
use crate::stream::{Position, Stream};

impl Mux {
    /// Takes those who wait at a listener, `most` of them at the most: between two turns those who
    /// have gone already make room.
    pub(super) fn accept(&mut self, index: usize, most: usize, now: Instant) {
        for _ in 0..most {
            let Some(socket) = self.listeners[index].accept(now) else { break };
            let stream = self.listeners[index].stream;
            if let Err(e) = self.admit(socket, stream) {
                log::warn!("a client of app {}: {e:#}", self.dir.name());
            }
        }
        self.watch_listener(index);
    }

    /// A new client; a raw one is served at once, a session after its hello.
    fn admit(&mut self, socket: UnixStream, stream: Option<Stream>) -> Result<()> {
        let role = stream.map_or_else(|| Role::Session(Session::default()), Role::Raw);
        let client = Client::new(socket, role)?;
        let id = self.hub.join(self.patience);
        let full = self.clients.len() >= limits::CLIENTS;
        self.clients.insert(id, client);
        if full {
            self.lose(id, &anyhow!("there are {} clients already", limits::CLIENTS));
            return Ok(());
        }
        if stream.is_none() {
            self.silent.push_back((id, Instant::now() + limits::HELLO));
        }
        match stream {
            Some(stream) => {
                let want = Want { stream, from: Position::Unseen };
                self.attach(id, &[want], stream.is_input());
                match (stream, &self.inlet) {
                    // The app's input is closed, and nobody will read what this client types.
                    (Stream::Stdin, None) => self.drop_client(id),
                    _ => self.touch(id),
                }
            }
            // Its hello may have come with it.
            None => self.on_client(id, Event::readable(Token::Client(id))),
        }
        Ok(())
    }

    /// Puts a client on output streams and, if it may type, among the writers; returns where its
    /// streams begin.
    pub(super) fn attach(&mut self, id: ClientId, wants: &[Want], types: bool) -> Vec<Begin> {
        let begins = wants
            .iter()
            .filter_map(|Want { stream, from }| {
                let offset = self.hub.subscribe(id, *stream, *from)?;
                Some(Begin { stream: *stream, offset })
            })
            .collect();
        if let Some(client) = self.clients.get_mut(&id) {
            if types && self.inlet.is_some() {
                client.typing = Typing::Open;
                self.input.join(id);
            } else if types {
                client.typing = Typing::Ended;
            }
            let mut does: Vec<&str> = wants.iter().map(|want| want.stream.name()).collect();
            if types {
                does.push("typing");
            }
            let (Peer { uid, pid }, name) = (client.peer, self.dir.name());
            log::info!("app {name}: uid={uid} pid={pid} attached to {}", does.join(","));
        }
        begins
    }

    /// Something happened at a client's socket.
    pub(super) fn on_client(&mut self, id: ClientId, event: Event) {
        if event.hangup
            && let Some(client) = self.clients.get_mut(&id)
        {
            // Nothing can reach it any more, but what it typed before it went still counts.
            client.deaf = true;
            self.hub.leave(id);
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

    /// Copies what the next `len` bytes of a stream would overwrite in the middle of a frame.
    pub(super) fn rescue(&mut self, stream: Stream, len: usize) {
        let ids: Vec<_> = self.hub.endangered(stream, len).collect();
        for id in ids {
            if let Some(client) = self.clients.get_mut(&id) {
                client.rescue(id, &mut self.hub);
            }
        }
    }

    /// Lets go of sessions that do not say what they want.
    pub(super) fn drop_silent(&mut self, now: Instant) {
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
    pub(super) fn flush_all(&mut self, stream: Stream) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(self.hub.clients(stream));
        for id in &ids {
            if self.clients.get(id).is_some_and(|client| !client.blocked) {
                self.touch(*id);
            }
        }
        self.ids = ids;
    }

    /// Writes what there is for a client, and watches it for what it needs next.
    pub(super) fn touch(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.flush(id, &mut self.hub) {
            Ok(()) => self.watch_client(id),
            Err(e) => {
                // What it typed may still wait to be read.
                log::debug!("app {}: writing to pid={}: {e}", self.dir.name(), client.peer.pid);
                client.deaf = true;
                self.hub.leave(id);
                if self.hear(id).unwrap_or(false) {
                    self.watch_client(id);
                } else {
                    self.drop_client(id);
                }
            }
        }
    }

    pub(super) fn watch_client(&mut self, id: ClientId) {
        let room = self.reading_room(id);
        let delivering = matches!(self.phase, Phase::Delivering { .. });
        let Some(client) = self.clients.get_mut(&id) else { return };
        // In the end only what a late client wants is still listened to.
        let read = room > 0 && !(delivering && client.greeted());
        let interest = Interest { read, write: client.blocked };
        // A client that is gone hangs up for ever: it is watched only while it can be read.
        let wanted = (!client.deaf || read).then_some(interest);
        let mut watch = std::mem::take(&mut client.watch);
        log_watch(self.poller.watch(&mut watch, &*client, Token::Client(id), wanted));
        client.watch = watch;
    }

    /// A client broke the protocol or its connection: it is told if it can be, and dropped.
    pub(super) fn lose(&mut self, id: ClientId, why: &anyhow::Error) {
        if let Some(client) = self.clients.get_mut(&id) {
            if why.downcast_ref::<io::Error>().is_none() {
                let error = format!("{why:#}");
                log::warn!("app {}: dropping pid={}: {error:?}", self.dir.name(), client.peer.pid);
                let _ = client.tell(&Kind::Error.message(&Refusal { error }));
                let _ = client.flush(id, &mut self.hub);
            }
            self.drop_client(id);
        }
    }

    /// Lets go of a client.
    pub(super) fn drop_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.remove(&id) {
            let lost = self.hub.lost(id);
            log::info!(
                "app {}: uid={} pid={} detached{}",
                self.dir.name(),
                client.peer.uid,
                client.peer.pid,
                if lost > 0 { format!(", it missed {lost} bytes") } else { String::new() }
            );
            self.hub.leave(id);
            self.input.end(id, Instant::now());
            client.close(&mut self.buffer);
        }
    }
}
