//! A session with an app that goes on under the next mux if this one is killed: the output behind the
//! last byte, and the line that was typed, which arrives once.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::super::find::{self, Hint};
use crate::core::wire::session_reader::{FromMux, MuxEvent, SessionReader};
use crate::core::wire::{
    AppStatus, ClientEvent, Enter, Exclusive, FrameKind, Gap, Hello, InputId, InputIdentity,
    InputPosition, InputTaken, Redrawn, Refusal, Report, Rights, Want, Welcome,
};
use crate::host::enable;
use crate::sys::session::{self, OpenSession, Patience};
use crate::sys::state::AppDir;
use crate::types::backoff::Backoff;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::{escape, limits};

/// How long to wait for a mux, and what a person may do if it does not come.
pub(crate) type MuxWait = (Duration, Hint);

/// For an app that runs now.
pub(crate) const AT_ONCE: MuxWait = (Duration::ZERO, Hint::Start);
/// For the mux that follows a killed one.
pub(crate) const NEXT_MUX: MuxWait = (limits::RECONNECT, Hint::Nothing);

/// What has happened.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Output, which ends at this offset.
    Output(Stream, Vec<u8>, u64),
    /// A screen, on a terminal of this size: it replaces what was shown.
    Screen(Vec<u8>, Size),
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
    reader: SessionReader,
    buffer: Vec<u8>,
    /// A screen that is not whole yet, and the size of its terminal.
    screen: (Vec<u8>, Size),
    /// Frames that are not sent yet.
    unsent: Vec<u8>,
    has_terminal: bool,
    typed: Option<TypedText>,
    /// What each hello of it has.
    hello: Hello,
    news: VecDeque<SessionEvent>,
    is_over: bool,
    backoff: Backoff,
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
        Self { what, id: session::random_input(), state: TypedState::Waiting }
    }
}

impl Session {
    /// Begins a session, which types something. With a position it reads all outputs of the app from
    /// there on.
    pub(crate) async fn open(
        dir: &AppDir,
        hello: Hello,
        from: Option<Position>,
        typing: Option<Typing>,
        wait: MuxWait,
    ) -> Result<Self> {
        if (from.is_some() || typing.is_some())
            && let Some(why) = enable::waits_for_restart(dir)
        {
            bail!("{why}");
        }
        let typed = typing.map(TypedText::new);
        let connected = connect(dir, (hello.clone(), from), typed.as_ref(), wait).await?;
        let (socket, reader, welcome, has_terminal) = connected;
        let mut session = Self {
            dir: dir.clone(),
            socket,
            reader,
            buffer: Vec::new(),
            screen: (Vec::new(), Size::DEFAULT),
            unsent: Vec::new(),
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
        self.reader.streams()
    }

    /// Where the output of a stream begins, before anything was read.
    pub(crate) fn offset(&self, stream: Stream) -> Option<u64> {
        self.reader.offset(stream)
    }

    /// What offsets belong to.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.reader.epoch()
    }

    /// The outputs come again from so many bytes earlier, once the session goes on.
    pub(crate) fn rewind(&mut self, bytes: u64) {
        self.reader.rewind(bytes);
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

    /// What happens next. A session is over with its mux if the app has ended meanwhile.
    pub(crate) async fn next_or_over(&mut self) -> Result<SessionEvent> {
        self.next().await.or_else(|e| {
            let find::Ended { last, .. } = e.downcast()?;
            Ok(SessionEvent::Over(last.status))
        })
    }

    /// The same, where that is an error with what the app has left.
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
        let from = |stream| from.unwrap_or_else(|| self.reader.position(stream));
        let want = |stream| Want { stream, from: from(stream) };
        let streams = self.outputs().map(want).collect();
        let hello = Hello { streams, epoch: self.epoch(), ..self.hello.clone() };
        let connected = connect(&self.dir, (hello, None), self.typed.as_ref(), NEXT_MUX).await?;
        let (socket, reader, welcome, _) = connected;
        let is_continued = reader.epoch() == self.epoch();
        (self.socket, self.reader) = (socket, reader);
        self.unsent.clear();
        self.news.push_back(SessionEvent::Restarted);
        self.news.extend((!is_continued).then_some(SessionEvent::Lost(None)));
        self.begin(welcome)
    }

    fn begin(&mut self, welcome: Welcome) -> Result<()> {
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
        while let Some(part) = self.reader.next(&mut bytes)? {
            let news = match part {
                FromMux::Output(stream, bytes, end) => {
                    Some(SessionEvent::Output(stream, bytes.to_vec(), end))
                }
                FromMux::Screen(bytes, is_whole) => {
                    self.screen.0.extend_from_slice(bytes);
                    is_whole.then(|| self.take_screen())
                }
                FromMux::Event(message) => self.on_message(message)?,
            };
            self.news.extend(news);
        }
        self.buffer = buffer;
        Ok(())
    }

    fn take_screen(&mut self) -> SessionEvent {
        let (bytes, size) = &mut self.screen;
        SessionEvent::Screen(std::mem::take(bytes), *size)
    }

    fn on_message(&mut self, message: MuxEvent) -> Result<Option<SessionEvent>> {
        Ok(Some(match message {
            MuxEvent::Gap(gap) => SessionEvent::Lost(Some(gap)),
            MuxEvent::Redraw(Redrawn { bytes, .. }) if bytes > limits::REDRAW => {
                bail!("app {}: its mux announces a screen of {bytes} bytes", self.dir.name());
            }
            MuxEvent::Redraw(Redrawn { bytes, size, .. }) => {
                self.screen = (Vec::new(), size.unwrap_or(Size::DEFAULT));
                return Ok((bytes == 0).then(|| self.take_screen()));
            }
            MuxEvent::Rights(rights) => {
                if self.typed.as_ref().is_some_and(|it| it.state == TypedState::Waiting) {
                    self.type_or_wait(Some(rights));
                }
                return Ok(None);
            }
            MuxEvent::StdinDone(taken) => {
                let typed = self.typed.as_mut().filter(|it| it.state != TypedState::Taken);
                let Some(typed) = typed else { return Ok(None) };
                typed.state = TypedState::Taken;
                SessionEvent::Taken(taken)
            }
            MuxEvent::Client(event) => SessionEvent::Client(event),
            MuxEvent::Started => SessionEvent::Started,
            MuxEvent::Ended(status) => SessionEvent::Ended(status),
            MuxEvent::Report(report) => SessionEvent::Report(report),
            MuxEvent::Exit(status) => {
                self.is_over = true;
                SessionEvent::Over(Some(status))
            }
            MuxEvent::Error(Refusal { error, .. }) => {
                let why = anyhow!("app {}: {}", self.dir.name(), escape::line(&error));
                return Err(refused(&self.dir, self.typed.as_ref(), why));
            }
            MuxEvent::Detached => bail!("detached from app {} by request", self.dir.name()),
            _ => return Ok(None),
        }))
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

/// Opens a session with the mux of an app, which may have to start first. With a position it reads all
/// outputs of the app from there on. Whether that has a terminal is the last part.
async fn connect(
    dir: &AppDir,
    (hello, from): (Hello, Option<Position>),
    typed: Option<&TypedText>,
    (wait, hint): MuxWait,
) -> Result<(UnixStream, SessionReader, Welcome, bool)> {
    let (mut hello, of) = (with_typing(hello, typed), dir.clone());
    let connect = move || {
        find::retry(&of, wait, hint, |endpoints| {
            let streams: Vec<_> = endpoints.streams().iter().map(|(stream, _)| *stream).collect();
            if let Some(from) = from {
                let outputs = streams.iter().filter(|stream| stream.is_output());
                hello.streams = outputs.map(|stream| Want { stream: *stream, from }).collect();
            }
            let patience = Patience::For(limits::ANSWER);
            let opened = session::open(&of, endpoints.session(), &hello, patience)?;
            Ok((opened, streams.contains(&Stream::Tty)))
        })
    };
    let opened = tokio::task::spawn_blocking(connect).await?;
    let ((OpenSession { socket, reader }, welcome), has_terminal) =
        opened.map_err(|e| refused(dir, typed, e))?;
    socket.set_nonblocking(true)?;
    Ok((UnixStream::from_std(socket)?, reader, welcome, has_terminal))
}
