//! The loop and its clients: it accepts them, writes the hub's output to them, and releases them.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::Error;
use log::Level;

use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::core::hub::input::{Merge, Typing};
use crate::core::wire::{Begin, ClientEvent, FrameKind, NoRoom, Refusal, Rights, Want};
use crate::mux::client_log::{ATTACHING, DROPS, REFUSALS};
use crate::mux::clients::Departure;
use crate::mux::clients::client::{Client, Role};
use crate::mux::clients::session_side::SessionSide;
use crate::mux::clients::state::{Inbound, Outbound};
use crate::mux::peer::Peer;
use crate::mux::poll::{Interest, Readiness, Token};
use crate::sys::documents::container::NO_INPUT;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::stream::{Position, Stream};

impl Mux {
    /// Accepts up to `most` of those who wait at a listener: between two turns those who have gone
    /// already make room.
    pub(super) fn accept(&mut self, index: usize, most: usize, now: Instant) {
        for _ in 0..most {
            let Some((socket, stream)) = self.admission.accept(index, now) else { break };
            // Of a socket that is connected the kernel always knows.
            let Ok(peer) = Peer::of(&socket) else { continue };
            self.admit(socket, stream, peer);
        }
        self.admission.watch(index, &self.poller);
    }

    /// A new client, if it may stay; a raw one is served at once, a session after its hello.
    fn admit(&mut self, socket: UnixStream, stream: Option<Stream>, peer: Peer) {
        let (right, refusal) = self.admission.admit(&socket, stream, peer);
        let id = self.hub.join(self.admission.patience(right));
        if right < Right::Own {
            self.hub.share_patience(id, peer.uid);
        }
        let role = stream.map_or_else(|| Role::Session(SessionSide::default()), Role::Raw);
        self.clients.all.insert(id, Client::new(socket, role, peer, right));
        if let Some(why) = refusal {
            return self.refuse(id, &why);
        }
        let Some(stream) = stream else {
            // Its hello may have come with it.
            return self.on_client(id, Readiness::readable(Token::Client(id)));
        };
        let want = Want { stream, from: Position::Unseen };
        // A raw client that types at a terminal may well be a person.
        let types = (stream.is_input() && right >= Right::Write).then(|| self.merge(false).into());
        self.attach(id, &[want], types);
        self.expect_late_replies(id, false, (None, Instant::now()));
        if stream == Stream::Stdin && !self.input.is_open() {
            // Nothing will read what this client types.
            self.close_now(id);
        } else {
            self.touch(id);
        }
    }

    /// How a client's input is merged with that of others; at a terminal that is its own choice.
    pub(super) fn merge(&self, lines: bool) -> Merge {
        if lines || self.terminal.is_none() { Merge::Lines } else { Merge::AsTyped }
    }

    /// Puts a client on output streams and, if it `types`, among the writers; returns where its
    /// streams begin.
    pub(super) fn attach(
        &mut self,
        id: ClientId,
        wants: &[Want],
        types: Option<Typing>,
    ) -> Vec<Begin> {
        let begins: Vec<Begin> = wants
            .iter()
            .filter_map(|Want { stream, from }| {
                let offset = self.hub.subscribe(id, *stream, *from)?;
                Some(Begin { stream: *stream, offset })
            })
            .collect();
        let Some(client) = self.clients.get_mut(id) else { return begins };
        if let Some(session) = client.session_mut() {
            session.streams = begins.iter().map(|begin| begin.stream).collect();
        }
        client.inbound = match types {
            Some(how) if self.input.is_open() => {
                self.input.queue.join(id, how, client.peer.uid, client.right);
                Inbound::Typing
            }
            Some(_) => Inbound::Typed,
            None => Inbound::Watching,
        };
        let attachment = client.attachment();
        if !attachment.is_empty() {
            let (name, peer) = (self.files.name(), client.peer);
            let line = format_args!("app {name}: {peer} attached to {attachment}");
            ATTACHING.log(client.right, Level::Info, peer.did("attached"), line);
            let who = client.who(id);
            self.tell(&ClientEvent::Attached(who));
        }
        begins
    }

    /// Whether input of a client goes to the app now.
    pub(super) fn types(&self, id: ClientId) -> bool {
        let types = |client: &Client| {
            client.inbound == Inbound::Typing && self.input.queue.is_free_for(id, client.right)
        };
        self.clients.get(id).is_some_and(types)
    }

    /// From now on only this client may type, and root and the mux's own user, unless it is one of
    /// theirs. `None` is for the next one that waits for the lock, or for all. Clients whose right to
    /// type changes are notified, unless the mux ends and reads no input any more.
    pub(super) fn reserve(&mut self, only: Option<ClientId>) {
        let could: Vec<(ClientId, bool)> =
            self.clients.writers().into_iter().map(|id| (id, self.types(id))).collect();
        let only = only.or_else(|| self.next_waiting());
        let only = only.and_then(|only| Some((only, self.clients.get(only)?.right)));
        self.input.queue.reserve(only, Instant::now());
        for (id, could) in could {
            let rights = self.rights(id);
            if rights.types != could && self.phase == Phase::Ready {
                self.notify(id, &FrameKind::Rights.message(&rights));
            }
        }
    }

    /// The next client that waits for the lock and is still there.
    fn next_waiting(&mut self) -> Option<ClientId> {
        while let Some(id) = self.input.queue.next_waiting() {
            if self.clients.get(id).is_some_and(|client| !client.is_gone()) {
                return Some(id);
            }
        }
        None
    }

    /// Tells those who listen what a client did.
    pub(super) fn tell(&mut self, event: &ClientEvent) {
        let did = match event {
            ClientEvent::Attached(who) => Some((*who, "attached")),
            ClientEvent::Detached(who) => Some((*who, "detached")),
            ClientEvent::Typed { .. } | ClientEvent::Resized(_) => None,
        };
        // A recording ends with its app, before the clients that are left.
        if let Some((who, did)) = did.filter(|_| self.phase == Phase::Ready) {
            self.logs.client(&mut self.hub, who, did);
        }
        if self.clients.listeners.is_empty() {
            return;
        }
        let frame = FrameKind::Client.message(event);
        for id in self.clients.listeners.clone() {
            self.notify(id, &frame);
        }
    }

    /// Sends a client a control frame. A client that does not read its control frames is lost.
    pub(super) fn notify(&mut self, id: ClientId, frame: &[u8]) {
        match self.clients.get_mut(id).map(|client| client.notify(frame)) {
            Some(Err(e)) => self.clients.close(id, Departure::Lost(e.into())),
            _ => self.touch(id),
        }
    }

    /// Lets go of the clients that are to go; whether there were any. Only at the end of an event,
    /// since this changes what others may do.
    pub(super) fn reap(&mut self) -> bool {
        let mut were_any = false;
        while let Some((id, why)) = self.clients.closing.pop_front() {
            were_any = true;
            match why {
                Departure::Lost(e) => self.close_with_reason(id, &e),
                Departure::Done => self.close_now(id),
                Departure::Unreachable => {
                    self.mark_gone(id);
                    // Its input may still wait to be read.
                    if self.receive(id).unwrap_or(false) {
                        self.watch_client(id);
                    } else {
                        self.close_now(id);
                    }
                }
            }
        }
        were_any
    }

    /// Whether a client can type, and if not, why.
    pub(super) fn rights(&self, id: ClientId) -> Rights {
        let types = self.types(id);
        let other = self.input.queue.only().filter(|only| *only != id);
        let other = other.and_then(|only| Some((only, self.clients.get(only)?)));
        let why = match (self.clients.get(id), other) {
            _ if types => String::new(),
            (Some(client), _) if client.right < Right::Write => {
                client.peer.may_only_look().to_string()
            }
            (_, Some((only, other))) => {
                format!("client {} ({}) holds the input lock", only.0, other.peer)
            }
            _ => self.why_no_input().to_owned(),
        };
        let is_brief =
            |(_, other): (ClientId, &Client)| other.session().is_some_and(|it| it.is_brief);
        Rights { types, why, brief: !types && other.is_some_and(is_brief) }
    }

    /// Why no client can type.
    pub(super) fn why_no_input(&self) -> &'static str {
        if self.input.is_missing() { NO_INPUT } else { "its input has ended" }
    }

    /// Something happened at a client's socket.
    pub(super) fn on_client(&mut self, id: ClientId, event: Readiness) {
        if event.hangup {
            self.mark_gone(id);
        }
        if event.readable || event.hangup {
            match self.receive(id) {
                Ok(true) => {}
                Ok(false) => return self.close_now(id),
                Err(e) => return self.close_with_reason(id, &e),
            }
        }
        self.touch(id);
    }

    /// The client gets nothing any more and decides nothing, but its earlier input still counts.
    fn mark_gone(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id).filter(|client| !client.is_gone()) else {
            return;
        };
        (client.outbound, client.is_full) = (Outbound::Gone, false);
        self.hub.leave(id);
        self.lose_control(id);
    }

    /// A client decides nothing any more: neither the terminal's size nor who types.
    fn lose_control(&mut self, id: ClientId) {
        if let Some(terminal) = &mut self.terminal {
            terminal.sizes.leave(id);
        }
        self.follow_focus();
        if self.input.queue.only() == Some(id) {
            self.reserve(None);
        }
    }

    /// Writes the waiting output for a client, and watches the client for its next need.
    pub(super) fn touch(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        match client.flush(id, &mut self.hub, &mut self.pages) {
            Ok(()) => {
                if let Some(terminal) = self.terminal.as_mut().filter(|_| client.wants_screen()) {
                    terminal.turns.owe();
                }
                self.watch_client(id);
            }
            Err(e) => {
                log::debug!("app {}: writing to {}: {e}", self.files.name(), client.peer);
                self.clients.close(id, Departure::Unreachable);
            }
        }
    }

    pub(super) fn watch_client(&mut self, id: ClientId) {
        let room = self.reading_room(id);
        let delivering = matches!(self.phase, Phase::Delivering { .. });
        let Some(client) = self.clients.get_mut(id) else { return };
        // In the end only a late client is still listened to, for its hello.
        let read = room > 0 && !(delivering && client.inbound.has_greeted());
        let interest = Interest { read, write: client.is_full };
        // A client that is gone hangs up for ever: it is watched only while it can be read.
        let wanted = (!client.is_gone() || read).then_some(interest);
        let mut watch = std::mem::take(&mut client.watch);
        self.poller.watch(&mut watch, &*client, Token::Client(id), wanted);
        client.watch = watch;
    }

    /// A client may not stay: a session is sent the reason.
    fn refuse(&mut self, id: ClientId, why: &Error) {
        if let Some(client) = self.clients.get(id) {
            let at = match &client.role {
                Role::Raw(stream) => stream.name(),
                Role::Session(_) => "a session",
            };
            let name = self.files.name();
            // Not a complaint of the mux: `status` shows those.
            let line = format_args!("app {name}: {} refused at {at}: {why:#}", client.peer);
            REFUSALS.log(client.right, Level::Info, client.peer.did("refused"), line);
        }
        self.send_reason(id, why);
        self.release(id);
    }

    /// A client broke the protocol or its connection: it gets the reason if possible, and is
    /// dropped.
    fn close_with_reason(&mut self, id: ClientId, why: &Error) {
        if why.downcast_ref::<io::Error>().is_none()
            && let Some(client) = self.clients.get(id)
        {
            let (name, error) = (self.files.name(), reason(why));
            let done = if client.inbound.has_greeted() { "dropped" } else { "refused" };
            let error = error.escape_debug();
            let line = format_args!("app {name}: {} {done}: {error}", client.peer);
            DROPS.log(client.right, Level::Warn, client.peer.did(done), line);
            self.send_reason(id, why);
        }
        self.close_now(id);
    }

    /// A client has gone, and not all that it typed goes on.
    pub(super) fn log_forgotten(&self, peer: Peer, right: Right) {
        let name = self.files.name();
        let line = format_args!("app {name}: {peer} has gone, its last input is lost");
        DROPS.log(right, Level::Warn, peer.did("dropped"), line);
    }

    fn send_reason(&mut self, id: ClientId, why: &Error) {
        if let Some(client) = self.clients.get_mut(id) {
            let refusal = Refusal { error: reason(why), full: why.is::<NoRoom>() };
            let _ = client.notify(&FrameKind::Error.message(&refusal));
            let _ = client.flush(id, &mut self.hub, &mut self.pages);
        }
    }

    /// Lets go of a client, and logs that.
    pub(super) fn close_now(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        let (attachment, lost) = (client.attachment(), self.hub.lost(id));
        let missed = if lost > 0 { format!(", it missed {lost} bytes") } else { String::new() };
        if client.inbound.has_greeted() && !attachment.is_empty() {
            let (name, peer) = (self.files.name(), client.peer);
            let line = format_args!("app {name}: {peer} detached from {attachment}{missed}");
            ATTACHING.log(client.right, Level::Info, peer.did("detached"), line);
            let who = client.who(id);
            self.tell(&ClientEvent::Detached(who));
        }
        self.release(id);
    }

    fn release(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(id) else { return };
        let typed = client.inbound.is_writer();
        let now = Instant::now();
        if let (Some(terminal), Some(replies)) = (&mut self.terminal, &client.replies) {
            terminal.worker.answer(replies.unanswered(now));
        }
        self.admission.leave(client.peer, client.right);
        self.hub.leave(id);
        let forgotten = self.input.queue.leave(id, now);
        if forgotten > 0 {
            self.log_forgotten(client.peer, client.right);
            // Others of its user have room again.
            self.resume_typing();
        }
        self.pages.orphan(client.unread_pages());
        client.close();
        self.lose_control(id);
        if typed && self.clients.writers().is_empty() {
            self.start_output();
        }
    }
}

/// The beginning of a reason in words, part of which may come from a peer.
fn reason(why: &Error) -> String {
    format!("{why:#}").chars().take(limits::REASON).collect()
}
