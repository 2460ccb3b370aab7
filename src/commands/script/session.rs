//! A session with an app that goes on under the next mux if this one is killed: the output behind the
//! last byte, and the line that was typed, which arrives once.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::super::find::{self, Cure};
use crate::os::state::AppDir;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::{escape, limits};
use crate::wire::endpoints::Endpoints;
use crate::wire::session::{self, Patience};
use crate::wire::{
    AppStatus, Begin, Decoder, Enter, Exclusive, FrameKind, Gap, Hello, InputId, InputIdentity,
    InputPosition, InputTaken, Item, Redraw, Redrawn, Refusal, Report, Rights, Want, Welcome,
};

/// How long to wait for a mux, and what a person may do if it does not come.
pub(super) type Wait = (Option<Duration>, Cure);

/// For the mux that follows a killed one.
const NEXT_MUX: Wait = (Some(limits::RECONNECT), Cure::Nothing);

/// What has happened.
#[derive(Debug)]
pub(super) enum News {
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
    /// The app has the line.
    Taken(InputTaken),
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
pub(super) struct Session {
    dir: AppDir,
    socket: UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Frames that are not sent yet.
    unsent: Vec<u8>,
    epoch: Option<Epoch>,
    /// The next byte of each output.
    at: Vec<Begin>,
    line: Option<Line>,
    /// Whether the terminal's screen comes first.
    shows_screen: bool,
    news: VecDeque<News>,
    is_over: bool,
}

/// A line that is typed.
#[derive(Clone, Debug)]
struct Line {
    text: Vec<u8>,
    /// Whether no other client of this right may type until the session ends.
    is_alone: bool,
    id: InputId,
    state: LineState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// Nothing of it is sent.
    Waiting,
    Sent,
    Taken,
}

impl Session {
    /// Begins a session. With a position it reads all outputs of the app from there on, or the
    /// screen of its terminal and what changes it.
    pub(super) async fn open(
        dir: &AppDir,
        from: Option<Position>,
        shows_screen: bool,
        wait: Wait,
    ) -> Result<Self> {
        let hello = move |endpoints: &Endpoints| {
            let outputs = endpoints.streams().into_iter().map(|(stream, _)| stream);
            let outputs = outputs.filter(|stream| stream.is_output());
            let want = |stream| from.map(|from| Want { stream, from });
            let streams = outputs.filter_map(want).collect();
            Hello { streams, redraw: shows_screen.then_some(Redraw::Screen), ..Hello::default() }
        };
        let (socket, welcome) = connect(dir, hello, wait).await?;
        Ok(Self {
            dir: dir.clone(),
            socket,
            decoder: Decoder::default(),
            buffer: Vec::new(),
            unsent: Vec::new(),
            epoch: welcome.epoch,
            at: welcome.streams,
            line: None,
            shows_screen,
            news: VecDeque::new(),
            is_over: false,
        })
    }

    /// The app's outputs.
    pub(super) fn outputs(&self) -> impl Iterator<Item = Stream> {
        self.at.iter().map(|begin| begin.stream)
    }

    /// Types a line, with its end. Output comes from up to `before` bytes earlier.
    pub(super) async fn type_line(
        mut self,
        text: Vec<u8>,
        is_alone: bool,
        before: u64,
    ) -> Result<Self> {
        let id = InputId(RandomState::new().build_hasher().finish());
        self.line = Some(Line { text, is_alone, id, state: LineState::Waiting });
        for begin in &mut self.at {
            begin.offset = begin.offset.saturating_sub(before);
        }
        self.go_on().await?;
        Ok(self)
    }

    /// Asks the mux for its report, which comes among the news.
    pub(super) fn ask_status(&mut self) {
        self.unsent.extend(FrameKind::Status.frame(b""));
    }

    /// What happens next.
    pub(super) async fn next(&mut self) -> Result<News> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            if self.is_over {
                return Ok(News::Over(None));
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
                    Ok(0) | Err(_) => self.go_on().await?,
                    Ok(len) => self.take(len)?,
                }
            }
        }
    }

    /// Goes on with the next mux, or in another session.
    async fn go_on(&mut self) -> Result<()> {
        let want =
            |begin: &Begin| Want { stream: begin.stream, from: Position::Offset(begin.offset) };
        let streams = self.at.iter().map(want).collect();
        let redraw = self.shows_screen.then_some(Redraw::Screen);
        let hello = Hello { streams, epoch: self.epoch, redraw, ..Hello::default() };
        let hello = match &self.line {
            None => hello,
            Some(Line { is_alone, id, state, .. }) => Hello {
                stdin: true,
                lines: true,
                enter: Some(Enter::Apart),
                exclusive: is_alone.then_some(Exclusive::Wait),
                input: Some(InputIdentity {
                    id: *id,
                    returns: *state != LineState::Waiting,
                    once: false,
                }),
                ..hello
            },
        };
        let (socket, welcome) = connect(&self.dir, move |_| hello.clone(), NEXT_MUX).await?;
        (self.socket, self.decoder) = (socket, Decoder::default());
        self.unsent.clear();
        self.begin(welcome)
    }

    fn begin(&mut self, welcome: Welcome) -> Result<()> {
        if welcome.epoch != self.epoch {
            self.news.push_back(News::Lost(None));
        }
        (self.epoch, self.at) = (welcome.epoch, welcome.streams);
        match self.line.as_ref().map(|line| line.state) {
            None | Some(LineState::Taken) => {}
            Some(LineState::Waiting) => self.type_or_wait(welcome.rights),
            Some(LineState::Sent) => self.type_rest(welcome.input)?,
        }
        Ok(())
    }

    /// Types the line, unless others keep it from that.
    fn type_or_wait(&mut self, rights: Option<Rights>) {
        match rights.filter(|rights| !rights.types) {
            Some(rights) => self.news.push_back(News::Waits(escape::line(&rights.why).into())),
            None => self.send_from(0),
        }
    }

    /// Types what the app does not have of the line.
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
        let Some(line) = &mut self.line else { return };
        line.state = LineState::Sent;
        for part in line.text.get(from..).unwrap_or_default().chunks(limits::FRAME) {
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
                    self.news.push_back(News::Output(stream, bytes.to_vec(), at.offset));
                }
                Item::Screen(bytes) => self.news.push_back(News::Screen(bytes.to_vec())),
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
                News::Lost(Some(gap))
            }
            FrameKind::Redraw => {
                let Redrawn { stream, offset, bytes, size } = serde_json::from_slice(body)?;
                for begin in self.at.iter_mut().filter(|begin| begin.stream == stream) {
                    begin.offset = offset;
                }
                News::Redraw(bytes, size)
            }
            FrameKind::Rights => {
                if self.line.as_ref().is_some_and(|line| line.state == LineState::Waiting) {
                    self.type_or_wait(Some(serde_json::from_slice(body)?));
                }
                return Ok(());
            }
            FrameKind::StdinDone => {
                let Some(line) = self.line.as_mut().filter(|it| it.state != LineState::Taken)
                else {
                    return Ok(());
                };
                line.state = LineState::Taken;
                News::Taken(serde_json::from_slice(body)?)
            }
            FrameKind::Started => News::Started,
            FrameKind::Ended => News::Ended(serde_json::from_slice(body)?),
            FrameKind::Report => News::Report(serde_json::from_slice(body)?),
            FrameKind::Exit => {
                self.is_over = true;
                News::Over(Some(serde_json::from_slice(body)?))
            }
            FrameKind::Error => {
                let Refusal { error, .. } = serde_json::from_slice(body)?;
                bail!("app {}: {}", self.dir.name(), escape::line(&error));
            }
            FrameKind::Detached => bail!("detached from app {} by request", self.dir.name()),
            _ => return Ok(()),
        };
        self.news.push_back(news);
        Ok(())
    }
}

/// Opens a session with the mux of an app, which may have to start first.
async fn connect(
    dir: &AppDir,
    hello: impl Fn(&Endpoints) -> Hello + Send + 'static,
    (wait, cure): Wait,
) -> Result<(UnixStream, Welcome)> {
    let dir = dir.clone();
    let connect = move || {
        find::retry(&dir, wait, cure, |endpoints| {
            let Some(file) = endpoints.session() else {
                bail!("app {}: its mux has no sessions (it is rkt's own)", dir.name())
            };
            session::open(&dir, file, &hello(endpoints), Patience::For(limits::ANSWER))
        })
    };
    let (socket, welcome) = tokio::task::spawn_blocking(connect).await??;
    socket.set_nonblocking(true)?;
    Ok((UnixStream::from_std(socket)?, welcome))
}
