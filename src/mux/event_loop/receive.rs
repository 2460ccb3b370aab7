//! The loop and what clients send: input for the app, and the requests of sessions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use log::Level;

use super::{Mux, Phase};
use crate::core::hub::ClientId;
use crate::core::hub::input::{LineEditor, Typing};
use crate::core::wire::{
    Begin, ClientEvent, ControlRequest, Enter, Exclusive, FrameKind, HEADER, Hello, InputIdentity,
    InputPosition, InputTaken, Item, LifecycleEvent, RequestOutcome, VERSION, Want, Welcome,
};
use crate::mux::client_log::REQUESTS;
use crate::mux::clients::Departure;
use crate::mux::clients::client::{Client, Role};
use crate::mux::clients::state::Inbound;
use crate::mux::source::pty;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::stream::Stream;

impl Mux {
    /// Reads from a client as much as there is room for. Returns whether the client stays.
    pub(super) fn receive(&mut self, id: ClientId) -> Result<bool> {
        let is_others = self.clients.is_others(id);
        for _ in 0..if is_others { 1 } else { limits::READS_PER_TURN } {
            let room = self.reading_room(id).min(limits::READ);
            let Some(client) = self.clients.get(id) else { return Ok(false) };
            if room == 0 {
                break;
            }
            let is_gone = client.is_gone();
            // A frame of a full read fits with its header: the rest of it would be a read more.
            let room = room + client.session().map_or(0, |_| HEADER);
            match self.clients.receive(id, room)? {
                None => return Ok(!is_gone),
                Some(0) => return Ok(self.end_input(id, true)),
                Some(len) => {
                    self.take(id, len)?;
                    if len < room {
                        // epoll would report more. The received bytes should not wait for that.
                        break;
                    }
                    // What the app takes now makes room, and the client is watched all the time.
                    self.feed(Instant::now());
                }
            }
        }
        Ok(self.stays(id))
    }

    /// Whether a client is kept: one that has gone is done unless it can be read, or is a writer whose
    /// input waits.
    fn stays(&mut self, id: ClientId) -> bool {
        let can_be_read = self.reading_room(id) > 0;
        let Some(client) = self.clients.get(id) else { return false };
        !client.is_gone() || can_be_read || client.is_gone_writer() && self.keeps_gone(id)
    }

    /// Whether a disconnected writer is kept until there is room for its last input.
    fn keeps_gone(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        if client.is_drained() {
            self.end_input(id, false);
            return false;
        }
        let keeps = !self.clients.are_too_many_gone(client);
        if !keeps {
            self.log_forgotten(client.peer, client.right);
        }
        keeps
    }

    /// How many bytes of a client may be read now.
    pub(super) fn reading_room(&self, id: ClientId) -> usize {
        match self.clients.get(id) {
            Some(client) if client.inbound == Inbound::Typing => self.input.queue.room(id),
            // A session may still resize, or say hello.
            Some(Client { role: Role::Session(_), is_closed: false, .. }) => limits::READ,
            _ => 0,
        }
    }

    /// The first `len` bytes of the buffer came from a client.
    fn take(&mut self, id: ClientId, len: usize) -> Result<()> {
        // The buffer is lent out while its content is handled.
        let buffer = self.clients.lend_buffer();
        let result = self.take_bytes(id, &buffer[..len]);
        self.clients.return_buffer(buffer);
        result
    }

    fn take_bytes(&mut self, id: ClientId, mut bytes: &[u8]) -> Result<()> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        let Some(session) = client.session_mut() else {
            self.type_in(id, bytes, Instant::now());
            return Ok(());
        };
        let mut decoder = std::mem::take(&mut session.decoder);
        let (mut result, mut questions) = (Ok(()), 0);
        let most = if client.right == Right::Own { usize::MAX } else { limits::QUESTIONS };
        while result.is_ok() {
            match decoder.next(&mut bytes) {
                Ok(Some(item)) => {
                    let asks =
                        matches!(item, Item::Control(FrameKind::Status | FrameKind::Request, _));
                    questions += usize::from(asks);
                    result = if asks && questions > most {
                        Err(anyhow!("it asks more than {most} questions at once"))
                    } else {
                        self.on_item(id, item)
                    };
                }
                Ok(None) => break,
                Err(e) => result = Err(e.into()),
            }
        }
        if let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) {
            session.decoder = decoder;
        }
        result
    }

    /// One item of a session.
    fn on_item(&mut self, id: ClientId, item: Item<'_>) -> Result<()> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        let inbound = client.inbound;
        let Some(session) = client.session_mut() else { return Ok(()) };
        match item {
            Item::Control(FrameKind::Hello, body) if !inbound.has_greeted() => {
                self.greet(id, &body)?;
            }
            _ if !inbound.has_greeted() => bail!("its first frame is not a hello"),
            Item::Data(Stream::Stdin, bytes) if inbound == Inbound::Typing => {
                if let Some(longest) = session.longest_line(bytes) {
                    let editor = self.line_editor();
                    let most = limits::TERMINAL_LINE;
                    if matches!(editor, LineEditor::Terminal(_)) && longest > most {
                        bail!("the app's terminal cuts lines of more than {most} bytes");
                    }
                    self.input.queue.set_editor(editor);
                }
                self.type_in(id, bytes, Instant::now());
            }
            Item::Control(FrameKind::Status, _) => {
                let report = FrameKind::Report.message(&self.report());
                self.answer(id, &report)?;
            }
            Item::Control(FrameKind::Request, body) => self.serve_request(id, &body)?,
            Item::Control(FrameKind::StdinEof, _) => {
                // A client that only goes ends nothing: its terminal may have gone, or its line.
                if session.stdin_once && inbound == Inbound::Typing {
                    self.input.end_with(id);
                }
                self.end_input(id, false);
            }
            Item::Control(FrameKind::Resize, body) => {
                let window = serde_json::from_slice(&body)?;
                // The same again asks for the screen, and decides nothing.
                if session.window.replace(window) != Some(window) {
                    self.decide_window(id);
                }
                self.refresh(id);
            }
            // Input of a client that may not type, or may not any more, is not refused, since it
            // may have been under way. The client has got STDIN_DONE.
            Item::Data(Stream::Stdin, _) => {}
            Item::Data(stream, _) => bail!("a client does not send data of {stream}"),
            Item::Screen(_) => bail!("a client does not send a screen"),
            Item::Control(kind, _) => {
                bail!("a client does not send frames of kind {} here", kind as u8)
            }
        }
        Ok(())
    }

    /// Who edits the app's lines.
    fn line_editor(&self) -> LineEditor {
        let (Some(tty), Some(terminal)) = (self.sources.tty(), &self.terminal) else {
            return LineEditor::Nobody;
        };
        match pty::kill_key(tty) {
            Some(key) => LineEditor::Terminal(key),
            None if terminal.is_full_screen() => LineEditor::Screen,
            None => LineEditor::App,
        }
    }

    /// A client has typed. Only a terminal's replies to queries are taken out of that.
    fn type_in(&mut self, id: ClientId, bytes: &[u8], now: Instant) {
        if !self.clients.listeners.is_empty()
            && let Some(who) = self.clients.get(id).map(|client| client.who(id))
        {
            self.tell(&ClientEvent::Typed { who, bytes: bytes.len() as u64 });
        }
        if self.terminal.is_some() {
            self.type_at_terminal(id, bytes, now);
        } else {
            self.input.queue.receive(id, bytes.len(), 0);
            self.input.queue.push(id, bytes, now);
        }
    }

    /// Answers a hello and begins to serve.
    fn greet(&mut self, id: ClientId, body: &[u8]) -> Result<()> {
        let hello: Hello = serde_json::from_slice(body)?;
        let Some(client) = self.clients.get(id) else { return Ok(()) };
        let types = hello.stdin && client.right >= Right::Write;
        self.check_hello(client, &hello, types)?;
        if let Some(asked) = hello.patience_ms {
            let asked = Duration::from_millis(asked.into());
            let patience = asked.min(self.admission.patience(client.right));
            self.hub.set_patience(id, patience);
        }
        let is_locked = self.check_lock(client, Exclusive::Ask).is_err();
        if let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) {
            // Before others are told of its lock.
            session.is_brief = hello.exclusive == Some(Exclusive::Wait);
        }
        match hello.exclusive {
            Some(Exclusive::Wait) if is_locked => {
                self.input.queue.await_lock(id);
            }
            Some(_) => self.reserve(Some(id)),
            None => {}
        }
        if hello.lines && hello.exclusive == Some(Exclusive::Take) {
            // The app is to save and end, whoever has stopped its output.
            self.start_output();
        }
        let others = self.clients.attached();
        // A client that comes at the end of all is sent EXIT.
        let ended = self.life.status().filter(|_| self.phase == Phase::Ready);
        let epoch = self.hub.epoch();
        let types = types.then(|| Typing {
            merge: self.merge(hello.lines),
            enter_apart: hello.enter == Some(Enter::Apart) && self.terminal.is_some(),
            // `attach` with a pipe types lines, too, but goes on with what it has begun.
            is_program: hello.lines && hello.enter.is_some(),
            // A person sees it on the screen, and types key by key.
            learns_place: hello.redraw.is_none(),
        });
        let streams = self.attach(id, &hello.wants(epoch), types);
        if !streams.is_empty() {
            self.hub.will_return(id);
        }
        if hello.epoch == Some(epoch) {
            self.hub.welcome_back(id, Instant::now());
        }
        let input = hello.input.filter(|_| types.is_some() && self.files.notify.keeps());
        let position = input.and_then(|identity| self.recognise(id, identity));
        let rights = (hello.stdin && !self.types(id)).then(|| self.rights(id));
        let is_stopped = self.is_output_stopped();
        // Only a client that comes too late is told.
        let taken = if self.input.is_open() { InputTaken::default() } else { self.taken() };
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        if let Some(session) = client.session_mut() {
            let once = input.is_some_and(|input| position.is_some() && input.once);
            session.line = hello.lines.then_some(0);
            session.stdin_once = hello.stdin_once || once && self.input.can_end();
            session.input = input.filter(|_| position.is_some()).map(|input| input.id);
            session.window = hello.size;
            session.history = hello.history;
            session.must_type = hello.must_type();
        }
        let welcome = Welcome {
            version: VERSION,
            epoch: Some(epoch),
            streams,
            others,
            rights,
            input: position,
            history: hello.history.is_some() && self.terminal.is_some(),
            is_stopped,
            is_guarded: self.terminal.as_ref().is_some_and(|terminal| terminal.is_guarded),
        };
        client.notify(&FrameKind::Welcome.message(&welcome))?;
        if let Some(status) = ended {
            client.notify(&LifecycleEvent::Ended(status).frame())?;
        }
        // A mux that ends has let go of the input; the next one takes it.
        let takes_none = !matches!(self.phase, Phase::Delivering { .. });
        if client.inbound == Inbound::Typed && takes_none {
            client.notify(&FrameKind::StdinDone.message(&taken))?;
        }
        if hello.events {
            self.clients.listeners.push(id);
        }
        self.decide_window(id);
        self.begin_view(id, hello.redraw, hello.epoch == Some(epoch))
    }

    /// From where on the input of a client is to be sent. An earlier connection of that client
    /// goes.
    fn recognise(&mut self, id: ClientId, identity: InputIdentity) -> Option<InputPosition> {
        let uid = self.clients.get(id)?.peer.uid;
        if let Some(earlier) = self.clients.with_input(uid, identity.id) {
            self.close_now(earlier);
        }
        self.input.queue.identify(id, uid, identity)
    }

    /// Whether a hello can be granted to a client, which can type if it `types`.
    fn check_hello(&self, client: &Client, hello: &Hello, types: bool) -> Result<()> {
        if hello.version.0 != VERSION {
            bail!(
                "it speaks version {} of the protocol, this mux speaks {VERSION}",
                hello.version.0
            );
        }
        let repeated = |(at, want): (usize, &Want)| {
            hello.streams[..at].iter().any(|other| other.stream == want.stream)
        };
        if hello.streams.iter().enumerate().any(repeated) {
            bail!("its hello names a stream twice");
        }
        if hello.stdin_once && !self.input.can_end() {
            bail!("the input of this app cannot be ended, only that of `run` and of containers");
        }
        let must_type = hello.must_type();
        if must_type && !types {
            return Err(client.peer.may_only_look());
        }
        let returns = hello.input.is_some_and(|input| input.returns);
        if must_type && !self.input.is_open() && !returns {
            bail!("{}", self.why_no_input());
        }
        // The next run may be another one than the sender of a line means.
        if hello.enter.is_some() && !returns && self.life.status().is_some() {
            bail!("it has ended, and does not run");
        }
        if hello.exclusive.is_some() && !types {
            bail!("only a client that types can take the input lock");
        }
        hello.exclusive.map_or(Ok(()), |exclusive| self.check_lock(client, exclusive))
    }

    /// Whether a client may take the input lock from its holder.
    fn check_lock(&self, client: &Client, exclusive: Exclusive) -> Result<()> {
        let Some(only) = self.input.queue.only().filter(|_| exclusive != Exclusive::Wait) else {
            return Ok(());
        };
        let Some(Client { peer, right, .. }) = self.clients.get(only) else { return Ok(()) };
        if client.right < *right {
            bail!(
                "client {} ({peer}) holds the input lock, and only root may take it over",
                only.0
            );
        }
        if exclusive == Exclusive::Ask && client.right == *right {
            bail!("client {} ({peer}) holds the input lock; try --take-over", only.0);
        }
        Ok(())
    }

    /// Handles a client's request, and answers it.
    fn serve_request(&mut self, id: ClientId, body: &[u8]) -> Result<()> {
        let request: ControlRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            // Perhaps one of a later version.
            Err(e) => {
                let error = format!("no such request: {e}");
                let error = Some(error.chars().take(limits::REASON).collect());
                return self.answer(id, &FrameKind::Answer.message(&RequestOutcome { error }));
            }
        };
        // When it is done.
        let is_answered_later =
            matches!(request, ControlRequest::ReopenLogs | ControlRequest::Resize(_));
        let served = self.may_ask(id, &request).and_then(|()| self.do_request(id, request));
        if served.is_ok() && is_answered_later {
            return Ok(());
        }
        let answer = RequestOutcome { error: served.err().map(|e| format!("{e:#}")) };
        self.answer(id, &FrameKind::Answer.message(&answer))
    }

    /// Does what a client may ask for.
    fn do_request(&mut self, id: ClientId, request: ControlRequest) -> Result<()> {
        match request {
            ControlRequest::Detach { client } => self.detach(ClientId(client))?,
            ControlRequest::DetachTypist => {
                let typist = self.typist().context("nobody types at its terminal")?;
                self.detach(typist)?;
            }
            ControlRequest::Resize(size) => self.ask_size(id, size)?,
            ControlRequest::Ended(status) => self.report_event(LifecycleEvent::Ended(status)),
            ControlRequest::Started(started) => self.report_event(LifecycleEvent::Started(started)),
            ControlRequest::ReopenLogs => {
                let size = self.terminal_size();
                self.logs.reopen_for(id, &mut self.hub, size)?;
            }
            ControlRequest::Stopping => self.start_output(),
            ControlRequest::Vanished => self.life.pid = None,
            ControlRequest::NotStarted { error } => self.life.failed = Some(error),
            ControlRequest::Restart if !self.life.is_kept() => bail!(
                "this mux does not belong to `run`; try systemctl restart with its own unit, as in: \
                 systemctl restart {}@{}",
                if self.terminal.is_some() { "ttymux" } else { "iomux" },
                self.files.name()
            ),
            // The ends of an app that does not run are not kept for another mux.
            ControlRequest::Restart if self.life.pid.is_none() => bail!("the app does not run"),
            ControlRequest::Restart => self.stop(),
            ControlRequest::Signal { number } => self.files.notify.signal(number),
        }
        Ok(())
    }

    /// Answers at once: several requests together could each have a long answer, and only a client
    /// that does not read may have too many of them waiting.
    pub(super) fn answer(&mut self, id: ClientId, frame: &[u8]) -> Result<()> {
        match self.clients.get_mut(id) {
            Some(client) => {
                client.notify(frame)?;
                // That it has gone is noticed when it is read to the end.
                let _ = client.flush(id, &mut self.hub, &mut self.pages);
                Ok(())
            }
            // It has detached itself.
            None => Ok(()),
        }
    }

    /// Whether a client may ask for this; it is logged that it did.
    fn may_ask(&self, id: ClientId, request: &ControlRequest) -> Result<()> {
        let Some(Client { peer, right, .. }) = self.clients.get(id) else { return Ok(()) };
        if *right < Right::Write {
            return Err(peer.may_only_look());
        }
        if *right < Right::Own {
            let other = |id| self.clients.get(id).filter(|other| other.peer.uid != peer.uid);
            match request {
                ControlRequest::Detach { client } if other(ClientId(*client)).is_some() => {
                    bail!("user {} may only detach its own clients", peer.uid);
                }
                ControlRequest::DetachTypist if self.typist().and_then(other).is_some() => {
                    bail!("user {} may only detach its own clients", peer.uid);
                }
                ControlRequest::Resize(_) if self.input.queue.only().and_then(other).is_some() => {
                    bail!("another user's client holds the input lock");
                }
                _ if request.is_report()
                    || matches!(
                        request,
                        ControlRequest::Restart | ControlRequest::Signal { .. }
                    ) =>
                {
                    bail!("only root and the mux's own user may do that");
                }
                _ => {}
            }
        }
        if let ControlRequest::Signal { number } = request {
            self.life.check_signal(*number)?;
        }
        let is_report = request.is_report();
        if is_report {
            self.life.check_reporter(peer.pid)?;
            if self.life.is_kept() && matches!(self.phase, Phase::Delivering { .. } | Phase::Done) {
                bail!("this mux is ending; the next one is to know");
            }
        }
        // What a keeper reports the mux itself says, too.
        let level = if is_report && self.life.is_kept() { Level::Debug } else { Level::Info };
        let line = format_args!("app {}: {peer} {request}", self.files.name());
        REQUESTS.log(*right, level, peer.did("requested"), line);
        Ok(())
    }

    /// The client that typed last at the terminal.
    fn typist(&self) -> Option<ClientId> {
        let typist = self.terminal.as_ref()?.typist;
        typist.filter(|id| self.clients.get(*id).is_some())
    }

    fn detach(&mut self, id: ClientId) -> Result<()> {
        let Some(client) = self.clients.get_mut(id) else { bail!("there is no client {}", id.0) };
        client.notify(&FrameKind::Detached.frame(b""))?;
        // As far as it takes it now: it is not waited for.
        let _ = client.flush(id, &mut self.hub, &mut self.pages);
        self.close_now(id);
        Ok(())
    }

    // ---- input ----

    /// A client types no more; whether it stays. If it `is_closed`, it sends nothing more.
    fn end_input(&mut self, id: ClientId, is_closed: bool) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        let typed = client.inbound == Inbound::Typing;
        client.end_input(is_closed);
        let (is_gone, session) = (client.is_gone(), client.session());
        if !typed {
            // A session that sends no more still reads, unless it is gone.
            return !is_gone && session.is_some();
        }
        self.input.queue.end(id, Instant::now());
        // It stays until the app has its input, to be notified of that; if it has gone, only its
        // input stays.
        !is_gone
    }

    /// Where the app is given input now.
    fn taken(&self) -> InputTaken {
        let begin = |(stream, written)| {
            let (end, _) = self.hub.extent(stream)?;
            Some(Begin { stream, offset: end + written })
        };
        InputTaken {
            outputs: self.sources.written().filter_map(begin).collect(),
            hidden: self.sources.tty().is_some_and(pty::hides_lines),
        }
    }

    /// All that a client typed before its end is with the app, which took the last of it there.
    fn input_delivered(&mut self, id: ClientId, taken: &InputTaken) {
        // First: a client that knows of this does not tell the next mux that the input ends.
        if self.input.ends_with(id) {
            self.close_input();
        }
        if let Some(client) = self.clients.get(id) {
            if client.is_gone() || matches!(client.role, Role::Raw(Stream::Stdin)) {
                self.clients.close(id, Departure::Done);
            } else {
                self.notify(id, &FrameKind::StdinDone.message(taken));
            }
        }
    }

    /// The app ended before it had all that a client typed before its end. A client that came to type
    /// learns that it failed.
    pub(super) fn input_lost(&mut self, id: ClientId) {
        let session = self.clients.get(id).and_then(Client::session);
        if session.is_some_and(|session| session.must_type) {
            let why = anyhow!("the app ended before it read all of this input");
            self.clients.close(id, Departure::Lost(why));
        } else {
            self.input_delivered(id, &self.taken());
        }
    }

    /// Gives the app as much of the input as it accepts.
    pub(super) fn feed(&mut self, now: Instant) {
        if !self.input.is_open() {
            return;
        }
        // Before it: the app may answer at once.
        let needs_place = self.input.queue.needs_place();
        let now_taken = if needs_place { self.taken() } else { InputTaken::default() };
        let from = self.input.queue.queue.delivered();
        let (logs, hub) = (&mut self.logs, &mut self.hub);
        let accepted = |given: [&[u8]; 2], len: usize| logs.typed(hub, given, len);
        let tty = self.sources.tty();
        let is_read = || match tty {
            Some(tty) if pty::kill_key(tty).is_none() => Some(pty::unread(tty) == 0),
            _ => None,
        };
        match self.input.write(&self.poller, now, is_read, accepted) {
            Ok(moved) => {
                while let Some((id, offset)) = self.input.queue.next_acknowledged() {
                    let position = InputPosition { offset, unknown: 0 };
                    self.notify(id, &FrameKind::StdinQueued.message(&position));
                }
                if moved {
                    self.input.queue.given(from, &now_taken);
                }
                while let Some((id, taken)) = self.input.queue.delivered() {
                    self.input_delivered(id, taken.as_ref().unwrap_or(&now_taken));
                }
                if moved {
                    self.resume_typing();
                }
            }
            Err(e) => {
                log::error!("cannot write the app's input: {e}");
                self.close_input();
            }
        }
    }

    /// The app's input has ended, for everybody.
    fn close_input(&mut self) {
        let undelivered = self.input.queue.undelivered();
        self.input.close(&self.poller, &self.files.notify);
        if let Some(engine) = &mut self.engine {
            engine.close_input(&self.poller, &self.files.notify);
        }
        let taken = self.taken();
        for id in undelivered {
            if let Some(client) = self.clients.get_mut(id) {
                client.end_input(false);
            }
            self.input_delivered(id, &taken);
        }
    }

    /// There is room for input again.
    pub(super) fn resume_typing(&mut self) {
        for id in self.clients.writers() {
            self.watch_client(id);
        }
        self.watch_engine();
    }
}
