//! The mux hears its clients: their input for the app, and what sessions ask for.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use log::Level;

use super::Mux;
use super::clients::only_looks;
use super::sink::client::{Client, InputAccess, Role};
use super::talk::REQUESTS;
use crate::core::hub::ClientId;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::stream::Stream;
use crate::wire::{
    Answer, ControlRequest, Exclusive, FrameKind, Hello, Item, LifecycleEvent, VERSION, Want,
    Welcome,
};

impl Mux {
    /// Reads what a client sent, as far as there is room for it; whether the client stays.
    pub(crate) fn hear(&mut self, id: ClientId) -> Result<bool> {
        let is_own = self.clients.get(&id).is_some_and(|client| client.right == Right::Own);
        for _ in 0..if is_own { limits::READS_PER_TURN } else { 1 } {
            let room = self.reading_room(id);
            let Some(client) = self.clients.get_mut(&id) else { return Ok(false) };
            if room == 0 {
                // When one who cannot type is gone, that is all; a writer may have more to say.
                return Ok(
                    !client.is_gone() || client.typing == InputAccess::Open && self.keeps_gone(id)
                );
            }
            let room = room.min(self.buffer.len());
            match client.receive(&mut self.buffer[..room])? {
                None => return Ok(!client.is_gone()),
                Some(0) => {
                    client.mute = true;
                    return Ok(self.end_of(id));
                }
                Some(len) => {
                    self.take(id, len)?;
                    if len < room {
                        // That there is more would be told; what has come is not to wait for that.
                        return Ok(self.clients.contains_key(&id));
                    }
                }
            }
        }
        Ok(true)
    }

    /// Whether a writer that has gone is kept until there is room for what it wrote last.
    fn keeps_gone(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(&id) else { return false };
        if client.is_drained() {
            self.end_of(id);
            return false;
        }
        let (peer, right) = (client.peer, client.right);
        let most =
            if right == Right::Own { limits::GONE_WRITERS } else { limits::GONE_USER_WRITERS };
        let is_alike = |other: &&Client| match right {
            Right::Own => other.right == Right::Own,
            _ => other.peer.uid == peer.uid,
        };
        let gone = self.clients.values().filter(|c| c.is_gone() && c.typing == InputAccess::Open);
        let keeps = gone.filter(is_alike).count() <= most;
        if !keeps {
            self.tell_forgotten(peer, right);
        }
        keeps
    }

    /// How many bytes of a client may be read now.
    pub(crate) fn reading_room(&self, id: ClientId) -> usize {
        match self.clients.get(&id) {
            None => 0,
            Some(client) if client.mute => 0,
            Some(client) => match (&client.role, client.typing) {
                (_, InputAccess::Open) => self.input.room(id),
                // A session may still resize, or say hello.
                (Role::Session(_), _) => self.buffer.len(),
                (Role::Raw(_), _) => 0,
            },
        }
    }

    /// The first `len` bytes of the buffer came from a client.
    fn take(&mut self, id: ClientId, len: usize) -> Result<()> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let Role::Session(session) = &mut client.role else {
            let buffer = std::mem::take(&mut self.buffer);
            self.type_in(id, &buffer[..len], Instant::now());
            self.buffer = buffer;
            return Ok(());
        };
        let mut decoder = std::mem::take(&mut session.decoder);
        // The buffer is lent out while its frames are dealt with.
        let buffer = std::mem::take(&mut self.buffer);
        let mut bytes = &buffer[..len];
        let (mut result, mut questions) = (Ok(()), 0);
        let most = if client.right == Right::Own { usize::MAX } else { limits::QUESTIONS };
        while result.is_ok() {
            match decoder.next(&mut bytes) {
                Ok(Some(Item::Control(FrameKind::Status | FrameKind::Request, _)))
                    if questions == most =>
                {
                    result = Err(anyhow!("it asks more than {most} questions at once"));
                }
                Ok(Some(item)) => {
                    questions += usize::from(matches!(
                        item,
                        Item::Control(FrameKind::Status | FrameKind::Request, _)
                    ));
                    result = self.on_item(id, item);
                }
                Ok(None) => break,
                Err(e) => result = Err(e.into()),
            }
        }
        self.buffer = buffer;
        if let Some(Client { role: Role::Session(session), .. }) = self.clients.get_mut(&id) {
            session.decoder = decoder;
        }
        result
    }

    /// One item of a session.
    fn on_item(&mut self, id: ClientId, item: Item<'_>) -> Result<()> {
        let Some(Client { role: Role::Session(session), typing, .. }) = self.clients.get_mut(&id)
        else {
            return Ok(());
        };
        let typing = *typing;
        match item {
            Item::Control(FrameKind::Hello, body) if !session.greeted => self.greet(id, &body)?,
            _ if !session.greeted => bail!("its first frame is not a hello"),
            Item::Data(Stream::Stdin, bytes) if typing == InputAccess::Open => {
                self.type_in(id, bytes, Instant::now());
            }
            Item::Control(FrameKind::Status, _) => {
                let report = FrameKind::Report.message(&self.report());
                self.answer(id, &report)?;
            }
            Item::Control(FrameKind::Request, body) => self.serve_request(id, &body)?,
            Item::Control(FrameKind::StdinEof, _) => {
                self.end_of(id);
            }
            Item::Control(FrameKind::Resize, body) => {
                let window = serde_json::from_slice(&body)?;
                // The same again asks for the screen, and decides nothing.
                if session.window.replace(window) != Some(window) {
                    self.decide_window(id);
                }
                self.refresh(id);
            }
            // Input of one who may not type, or no longer: it is told by STDIN_DONE, not refused,
            // for it may have been under way.
            Item::Data(Stream::Stdin, _) => {}
            Item::Data(stream, _) => bail!("a client does not send data of {stream}"),
            Item::Screen(_) => bail!("a client does not send a screen"),
            Item::Control(kind, _) => bail!("a client does not send {kind:?} here"),
        }
        Ok(())
    }

    /// Answers a hello and begins to serve.
    fn greet(&mut self, id: ClientId, body: &[u8]) -> Result<()> {
        let hello: Hello = serde_json::from_slice(body)?;
        if hello.version != VERSION {
            bail!("it speaks version {} of the protocol, this mux speaks {VERSION}", hello.version);
        }
        let repeated = |(at, want): (usize, &Want)| {
            hello.streams[..at].iter().any(|other| other.stream == want.stream)
        };
        if hello.streams.iter().enumerate().any(repeated) {
            bail!("its hello names a stream twice");
        }
        if hello.stdin_once && !self.ends_input {
            bail!("the input of this app cannot be ended");
        }
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let types = hello.stdin && client.right >= Right::Write;
        if hello.stdin && !types && hello.streams.is_empty() {
            return Err(only_looks(client.peer));
        }
        if hello.stdin && self.inlet.is_none() && hello.streams.is_empty() {
            bail!("its input has ended");
        }
        if hello.exclusive.is_some() && !types {
            bail!("only one who types can type alone");
        }
        if let (Some(Exclusive::Ask), Some(only)) = (hello.exclusive, self.input.only()) {
            let peer = self.clients.get(&only).map_or(String::new(), |c| c.peer.to_string());
            bail!("client {} ({peer}) types alone (--take-over takes that from it)", only.0);
        }
        if let Some(asked) = hello.patience_ms {
            let asked = Duration::from_millis(asked.into());
            let may_wait = client.right >= Right::Write;
            let most = if may_wait { self.patience } else { Duration::ZERO };
            self.hub.set_patience(id, asked.min(most));
        }
        if hello.exclusive.is_some() {
            self.reserve(Some(id));
        }
        let others = self.clients.values().filter(|client| client.is_attached()).count();
        let turn = self.turn_for_newcomers();
        let epoch = self.hub.epoch();
        let types = types.then(|| self.merge(hello.lines));
        let streams = self.attach(id, &hello.wants(epoch), types);
        if !streams.is_empty() {
            self.hub.will_return(id);
        }
        if hello.epoch == Some(epoch) {
            self.hub.welcome_back(id, Instant::now());
        }
        let rights = (hello.stdin && !self.types(id)).then(|| self.rights(id));
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        if let Role::Session(session) = &mut client.role {
            session.stdin_once = hello.stdin_once;
            session.window = hello.size;
        }
        let welcome = Welcome { version: VERSION, epoch: Some(epoch), streams, others, rights };
        client.tell(&FrameKind::Welcome.message(&welcome))?;
        if let Some(turn) = turn {
            client.tell(&turn.frame())?;
        }
        if client.typing == InputAccess::Ended {
            client.tell(&FrameKind::StdinDone.frame(b""))?;
        }
        self.decide_window(id);
        self.begin_view(id, hello.redraw, hello.epoch == Some(epoch))
    }

    /// Does what a client asks for, and answers.
    fn serve_request(&mut self, id: ClientId, body: &[u8]) -> Result<()> {
        let request = match serde_json::from_slice(body) {
            Ok(request) => request,
            // Perhaps one of a later version.
            Err(e) => {
                let error = format!("this mux knows no such request: {e}");
                let error = Some(error.chars().take(limits::REASON).collect());
                return self.answer(id, &FrameKind::Answer.message(&Answer { error }));
            }
        };
        let error = self.may_ask(id, request).and_then(|()| match request {
            ControlRequest::Detach { client } => self.detach(ClientId(client)),
            ControlRequest::Resize(size) => self.ask_size(size),
            ControlRequest::TakeOver => self.take_over(id),
            ControlRequest::LetGo if self.input.only() != Some(id) => {
                Err(anyhow!("it does not type alone"))
            }
            ControlRequest::LetGo => {
                self.reserve(None);
                Ok(())
            }
            ControlRequest::Ended(status) => self.hear_of(LifecycleEvent::Ended(status)),
            ControlRequest::Started(started) => self.hear_of(LifecycleEvent::Started(started)),
            ControlRequest::ReopenLogs => self.reopen_logs_for(id),
        });
        if error.is_ok() && request == ControlRequest::ReopenLogs {
            // Answered when it is done.
            return Ok(());
        }
        let error = error.err();
        let answer = Answer { error: error.map(|e| format!("{e:#}")) };
        self.answer(id, &FrameKind::Answer.message(&answer))
    }

    /// Answers at once: of questions that come together each could have a long answer, and only who
    /// does not read is to have too many of them waiting.
    fn answer(&mut self, id: ClientId, frame: &[u8]) -> Result<()> {
        match self.clients.get_mut(&id) {
            Some(client) => {
                client.tell(frame)?;
                // That it has gone is found out by whoever hears it to the end.
                let _ = client.flush(id, &mut self.hub);
                Ok(())
            }
            // It has detached itself.
            None => Ok(()),
        }
    }

    /// Whether a client may ask for this; it is logged that it did.
    fn may_ask(&self, id: ClientId, request: ControlRequest) -> Result<()> {
        let Some(Client { peer, right, .. }) = self.clients.get(&id) else { return Ok(()) };
        if *right < Right::Write {
            return Err(only_looks(*peer));
        }
        if *right < Right::Own {
            let other = |id| self.clients.get(&id).filter(|other| other.peer.uid != peer.uid);
            match request {
                ControlRequest::Detach { client } if other(ClientId(client)).is_some() => {
                    bail!("user {} may only detach its own clients", peer.uid);
                }
                ControlRequest::Resize(_) if self.input.only().and_then(other).is_some() => {
                    bail!("somebody types alone");
                }
                ControlRequest::Ended(_) | ControlRequest::Started(_) => {
                    bail!("only root and the mux's own user can tell how the app fares");
                }
                _ => {}
            }
        }
        let line = format_args!("app {}: {peer} {request}", self.dir.name());
        REQUESTS.log(*right, Level::Info, line);
        Ok(())
    }

    fn take_over(&mut self, id: ClientId) -> Result<()> {
        if self.clients.get(&id).is_none_or(|client| client.typing != InputAccess::Open) {
            bail!("only one who types can type alone");
        }
        self.reserve(Some(id));
        Ok(())
    }

    fn detach(&mut self, id: ClientId) -> Result<()> {
        let Some(client) = self.clients.get_mut(&id) else { bail!("there is no client {}", id.0) };
        client.tell(&FrameKind::Detached.frame(b""))?;
        // As far as it takes it now: it is not waited for.
        let _ = client.flush(id, &mut self.hub);
        self.drop_client(id);
        Ok(())
    }

    /// Somebody tells of the app; believed is only who could end it and start it himself.
    fn hear_of(&mut self, turn: LifecycleEvent) -> Result<()> {
        if self.owns_app {
            bail!("the app is a child of its mux, which knows by itself how it fares");
        }
        // Dealt with behind this message, which lies in the buffer that all clients share.
        self.turns.push(turn);
        Ok(())
    }

    /// A client types no more; whether it stays.
    fn end_of(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        if client.typing == InputAccess::Open {
            client.typing = InputAccess::Ended;
            let is_gone = client.is_gone();
            if matches!(&client.role, Role::Session(session) if session.stdin_once) {
                self.last_writer = Some(id);
            }
            self.input.end(id, Instant::now());
            // Until its input is with the app it stays, to be told so; if it has gone, its input alone stays.
            return !is_gone;
        }
        // A session that sends no more still reads, unless it is gone.
        !client.is_gone() && !matches!(client.role, Role::Raw(_))
    }

    /// All that a client typed before its end is with the app.
    pub(crate) fn input_delivered(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            let goes = client.is_gone() || matches!(client.role, Role::Raw(Stream::Stdin));
            match client.tell(&FrameKind::StdinDone.frame(b"")) {
                _ if goes => self.drop_client(id),
                Ok(()) => self.touch(id),
                Err(e) => self.lose(id, &e.into()),
            }
        }
        if self.last_writer == Some(id) {
            self.close_inlet();
        }
    }

    /// Those who have not ended their input.
    pub(crate) fn writers(&self) -> Vec<ClientId> {
        let open = |(id, c): (&ClientId, &Client)| (c.typing == InputAccess::Open).then_some(*id);
        self.clients.iter().filter_map(open).collect()
    }

    /// The app's input is closed: nobody types any more.
    pub(crate) fn end_typing(&mut self) {
        for id in self.writers() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.typing = InputAccess::Ended;
            }
            self.input_delivered(id);
        }
    }

    /// There is room for input again.
    pub(crate) fn resume_typing(&mut self) {
        for id in self.writers() {
            self.watch_client(id);
        }
    }
}
