//! A session with an app that goes on under the next mux if this one is killed: the output behind the
//! last byte, and the line that was typed, which arrives once.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::super::find::{self, Hint};
use crate::core::wire::{
    AppStatus, Begin, ClientEvent, Decoder, Enter, Exclusive, FrameKind, Gap, Hello, History,
    InputId, InputIdentity, InputPosition, InputTaken, Item, Redraw, Redrawn, Refusal, Report,
    Rights, Want, Welcome,
};
use crate::host::enable;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session::{self, Patience};
use crate::sys::state::AppDir;
use crate::types::backoff::Backoff;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::{escape, limits};

/// How long to wait for a mux, and what a person may do if it does not come.
pub(crate) type MuxWait = (Option<Duration>, Hint);

/// For an app that runs now.
pub(crate) const AT_ONCE: MuxWait = (Some(Duration::ZERO), Hint::Start);
/// For the mux that follows a killed one.
pub(crate) const NEXT_MUX: MuxWait = (Some(limits::RECONNECT), Hint::Nothing);

/// What has happened.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Output, which ends at this offset.
    Output(Stream, Vec<u8>, u64),
    /// A screen of so many bytes follows, on a terminal of this size: it replaces what was shown.
    Redraw(u64, Option<Size>),
    /// Bytes of that screen.
    Screen(Vec<u8>),
    /// This output is lost; an unknown amount if the backlog is another one.
    Lost(Option<Gap>),
    /// The line waits until it may be typed, and why.
    Waits(String),
    /// The line is on its way.
    Types,
    /// The app has the line.
    Taken(InputTaken),
    /// What another client did.
    Client(ClientEvent),
    /// The mux was another one until here.
    Restarted,
    /// The app runs, or runs again.
    Started,
    /// The app has ended; it may be started again.
    Ended(AppStatus),
    /// The answer to a request for the status.
    Report(Box<Report>),
    /// Nothing more comes: the mux has ended after its app, if it knows how.
    Over(Option<AppStatus>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    dir: AppDir,
    socket: UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Frames that are not sent yet.
    unsent: Vec<u8>,
    epoch: Option<Epoch>,
    /// The next byte of each output.
    at: Vec<Begin>,
    has_terminal: bool,
    typed: Option<TypedText>,
    /// What each hello of it has.
    hello: Hello,
    news: VecDeque<SessionEvent>,
    is_over: bool,
    backoff: Backoff,
}

/// What a session is for.
#[derive(Debug, Default)]
pub(crate) struct Purpose {
    /// Read all outputs of the app from here on.
    pub(crate) from: Option<Position>,
    /// Begin with the screen of its terminal.
    pub(crate) shows_screen: bool,
    /// With the lines above that.
    pub(crate) has_history: bool,
    /// Tell what other clients do.
    pub(crate) has_events: bool,
    pub(crate) typing: Option<Typing>,
}

/// What is to be typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typing {
    pub(crate) text: Vec<u8>,
    /// It is a line, and its end follows: at a terminal it goes behind what others have typed of theirs.
    pub(crate) is_line: bool,
    /// It is for this run of the app, and a raw terminal gets a return at its end by itself.
    pub(crate) is_apart: bool,
    /// How no other client of this right may type until the session ends.
    pub(crate) alone: Option<Exclusive>,
}

/// What is typed.
#[derive(Clone, Debug)]
struct TypedText {
    what: Typing,
    id: InputId,
    state: TypedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypedState {
    /// Nothing of it is sent.
    Waiting,
    Sent,
    Taken,
}

impl TypedText {
    fn new(what: Typing) -> Self {
        let id = InputId(RandomState::new().build_hasher().finish());
        Self { what, id, state: TypedState::Waiting }
    }
}

impl Session {
    /// Begins a session.
    pub(crate) async fn open(dir: &AppDir, purpose: Purpose, wait: MuxWait) -> Result<Self> {
        let Purpose { from, shows_screen, has_history, has_events, typing } = purpose;
        if (from.is_some() || typing.is_some())
            && let Some(why) = enable::waits_for_restart(dir)
        {
            bail!("{why}");
        }
        let typed = typing.map(TypedText::new);
        let redraw = shows_screen.then_some(Redraw::Screen);
        let history = has_history.then_some(History::Before);
        let hello = Hello { redraw, history, events: has_events, ..Hello::default() };
        let first = with_typing(hello.clone(), typed.as_ref());
        let first = move |endpoints: &Endpoints| {
            let outputs = endpoints.streams().into_iter().map(|(stream, _)| stream);
            let outputs = outputs.filter(|stream| stream.is_output());
            let want = |stream| from.map(|from| Want { stream, from });
            Hello { streams: outputs.filter_map(want).collect(), ..first.clone() }
        };
        let connected = connect(dir, first, wait).await;
        let (socket, welcome, has_terminal) =
            connected.map_err(|e| refused(dir, typed.as_ref(), e))?;
        let mut session = Self {
            dir: dir.clone(),
            socket,
            decoder: Decoder::default(),
            buffer: Vec::new(),
            unsent: Vec::new(),
            epoch: welcome.epoch,
            at: Vec::new(),
            has_terminal,
            typed,
            hello,
            news: VecDeque::new(),
            is_over: false,
            backoff: Backoff::default(),
        };
        session.begin(welcome)?;
        Ok(session)
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// The app's outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = Stream> {
        self.at.iter().map(|begin| begin.stream)
    }

    /// What offsets belong to.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// The outputs come again from so many bytes earlier, once the session goes on.
    pub(crate) fn rewind(&mut self, bytes: u64) {
        for begin in &mut self.at {
            begin.offset = begin.offset.saturating_sub(bytes);
        }
    }

    /// Goes on without screens, from where it is or from another position, and types this, too.
    pub(crate) async fn again(
        mut self,
        from: Option<Position>,
        what: Option<Typing>,
    ) -> Result<Self> {
        (self.hello.redraw, self.hello.history) = (None, None);
        self.typed = what.map(TypedText::new);
        self.go_on(from).await?;
        Ok(self)
    }

    /// Asks the mux for its report, which comes among the news.
    pub(crate) fn ask_status(&mut self) {
        self.unsent.extend(FrameKind::Status.frame(b""));
    }

    /// What happens next.
    pub(crate) async fn next(&mut self) -> Result<SessionEvent> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            if self.is_over {
                return Ok(SessionEvent::Over(None));
            }
            let sends =
                if self.unsent.is_empty() { Interest::READABLE } else { Interest::WRITABLE };
            let ready = self.socket.ready(Interest::READABLE | sends).await?;
            if ready.is_writable() && !self.unsent.is_empty() {
                // That the mux is gone is seen when it is read.
                match self.socket.try_write(&self.unsent) {
                    Ok(len) => drop(self.unsent.drain(..len)),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => self.unsent.clear(),
                }
            }
            if ready.is_readable() {
                self.buffer.resize(limits::READ, 0);
                match self.socket.try_read(&mut self.buffer) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => self.go_on(None).await?,
                    Ok(len) => self.take(len)?,
                }
            }
        }
    }

    /// Goes on with the next mux, or in another session.
    async fn go_on(&mut self, from: Option<Position>) -> Result<()> {
        tokio::time::sleep(self.backoff.after_end(Instant::now())).await;
        let want = |begin: &Begin| Want {
            stream: begin.stream,
            from: from.unwrap_or(Position::Offset(begin.offset)),
        };
        let streams = self.at.iter().map(want).collect();
        let hello = Hello { streams, epoch: self.epoch, ..self.hello.clone() };
        let hello = with_typing(hello, self.typed.as_ref());
        let connected = connect(&self.dir, move |_| hello.clone(), NEXT_MUX).await;
        let (socket, welcome, _) =
            connected.map_err(|e| refused(&self.dir, self.typed.as_ref(), e))?;
        (self.socket, self.decoder) = (socket, Decoder::default());
        self.unsent.clear();
        self.news.push_back(SessionEvent::Restarted);
        self.begin(welcome)
    }

    fn begin(&mut self, welcome: Welcome) -> Result<()> {
        if welcome.epoch != self.epoch {
            self.news.push_back(SessionEvent::Lost(None));
        }
        (self.epoch, self.at) = (welcome.epoch, welcome.streams);
        match self.typed.as_ref().map(|typed| typed.state) {
            None | Some(TypedState::Taken) => {}
            Some(TypedState::Waiting) => self.type_or_wait(welcome.rights),
            Some(TypedState::Sent) => self.type_rest(welcome.input)?,
        }
        Ok(())
    }

    /// Types, unless others keep it from that.
    fn type_or_wait(&mut self, rights: Option<Rights>) {
        match rights.filter(|rights| !rights.types) {
            Some(rights) => {
                self.news.push_back(SessionEvent::Waits(escape::line(&rights.why).into()));
            }
            None => {
                self.news.push_back(SessionEvent::Types);
                self.send_from(0);
            }
        }
    }

    /// Types what the app does not have.
    fn type_rest(&mut self, position: Option<InputPosition>) -> Result<()> {
        let known = position.filter(|position| position.unknown == 0);
        let Some(from) = known.and_then(|known| usize::try_from(known.offset).ok()) else {
            let name = self.dir.name();
            bail!("app {name}: its mux was killed, and the app may have read the line or not");
        };
        self.send_from(from);
        Ok(())
    }

    fn send_from(&mut self, from: usize) {
        let Some(typed) = &mut self.typed else { return };
        typed.state = TypedState::Sent;
        // The key of a terminal, which may be raw.
        let end: &[u8] = if self.has_terminal { b"\r" } else { b"\n" };
        let end = if typed.what.is_line { end } else { b"" };
        let text = [&typed.what.text, end].concat();
        for part in text.get(from..).unwrap_or_default().chunks(limits::FRAME) {
            self.unsent.extend(FrameKind::Stdin.frame(part));
        }
        self.unsent.extend(FrameKind::StdinEof.frame(b""));
    }

    fn take(&mut self, len: usize) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut bytes = &buffer[..len];
        while let Some(item) = self.decoder.next(&mut bytes)? {
            match item {
                Item::Data(stream, bytes) => {
                    let at = self.at.iter_mut().find(|begin| begin.stream == stream);
                    let Some(at) = at else { continue };
                    at.offset += bytes.len() as u64;
                    self.news.push_back(SessionEvent::Output(stream, bytes.to_vec(), at.offset));
                }
                Item::Screen(bytes) => self.news.push_back(SessionEvent::Screen(bytes.to_vec())),
                Item::Control(kind, body) => self.on_control(kind, &body)?,
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    fn on_control(&mut self, kind: FrameKind, body: &[u8]) -> Result<()> {
        let news = match kind {
            FrameKind::Gap => {
                let gap: Gap = serde_json::from_slice(body)?;
                for begin in self.at.iter_mut().filter(|begin| begin.stream == gap.stream) {
                    begin.offset = gap.to;
                }
                SessionEvent::Lost(Some(gap))
            }
            FrameKind::Redraw => {
                let Redrawn { stream, offset, bytes, size } = serde_json::from_slice(body)?;
                if bytes > limits::REDRAW {
                    bail!("app {}: its mux announces a screen of {bytes} bytes", self.dir.name());
                }
                for begin in self.at.iter_mut().filter(|begin| begin.stream == stream) {
                    begin.offset = offset;
                }
                SessionEvent::Redraw(bytes, size)
            }
            FrameKind::Rights => {
                if self.typed.as_ref().is_some_and(|it| it.state == TypedState::Waiting) {
                    self.type_or_wait(Some(serde_json::from_slice(body)?));
                }
                return Ok(());
            }
            FrameKind::StdinDone => {
                let typed = self.typed.as_mut().filter(|it| it.state != TypedState::Taken);
                let Some(typed) = typed else { return Ok(()) };
                typed.state = TypedState::Taken;
                SessionEvent::Taken(serde_json::from_slice(body)?)
            }
            FrameKind::Client => SessionEvent::Client(serde_json::from_slice(body)?),
            FrameKind::Started => SessionEvent::Started,
            FrameKind::Ended => SessionEvent::Ended(serde_json::from_slice(body)?),
            FrameKind::Report => SessionEvent::Report(serde_json::from_slice(body)?),
            FrameKind::Exit => {
                self.is_over = true;
                SessionEvent::Over(Some(serde_json::from_slice(body)?))
            }
            FrameKind::Error => {
                let Refusal { error, .. } = serde_json::from_slice(body)?;
                let why = anyhow!("app {}: {}", self.dir.name(), escape::line(&error));
                return Err(refused(&self.dir, self.typed.as_ref(), why));
            }
            FrameKind::Detached => bail!("detached from app {} by request", self.dir.name()),
            _ => return Ok(()),
        };
        self.news.push_back(news);
        Ok(())
    }
}

/// A hello, of a client that types if there is something to type.
fn with_typing(hello: Hello, typed: Option<&TypedText>) -> Hello {
    let Some(TypedText { what, id, state }) = typed else { return hello };
    let returns = *state != TypedState::Waiting;
    Hello {
        stdin: true,
        lines: what.is_line,
        enter: what.is_apart.then_some(Enter::Apart),
        exclusive: what.alone,
        input: Some(InputIdentity { id: *id, returns, once: false }),
        ..hello
    }
}

/// Why a mux refuses: the line, as long as the app does not have that.
fn refused(dir: &AppDir, typed: Option<&TypedText>, why: anyhow::Error) -> anyhow::Error {
    let is_typed = typed.is_some_and(|typed| typed.state != TypedState::Taken);
    if !is_typed || find::is_absence(&why) || find::is_forbidden(&why) {
        return why;
    }
    let (name, why) = (dir.name(), format!("{why:#}"));
    let why = why.strip_prefix(&format!("app {name}: ")).unwrap_or(&why);
    anyhow!("app {name} did not take the line: {why}")
}

/// Opens a session with the mux of an app, which may have to start first. Whether that has a terminal
/// is the last part.
async fn connect(
    dir: &AppDir,
    hello: impl Fn(&Endpoints) -> Hello + Send + 'static,
    (wait, hint): MuxWait,
) -> Result<(UnixStream, Welcome, bool)> {
    let dir = dir.clone();
    let connect = move || {
        find::retry(&dir, wait, hint, |endpoints| {
            let Some(file) = endpoints.session() else {
                bail!("app {}: its mux has no sessions (it is rkt's own)", dir.name())
            };
            let opened =
                session::open(&dir, file, &hello(endpoints), Patience::For(limits::ANSWER));
            let mut streams = endpoints.streams().into_iter();
            Ok((opened?, streams.any(|(stream, _)| stream == Stream::Tty)))
        })
    };
    let ((socket, welcome), has_terminal) = tokio::task::spawn_blocking(connect).await??;
    socket.set_nonblocking(true)?;
    Ok((UnixStream::from_std(socket)?, welcome, has_terminal))
}
