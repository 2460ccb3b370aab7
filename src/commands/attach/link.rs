//! The connections of an attach: one session, or, where the mux has none, a raw socket for each
//! stream that is wanted.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::mode::{AttachMode, WantedStreams};
use super::{AttachRequest, terminal};
use crate::os::diagnostics;
use crate::types::limits;
use crate::types::stream::{Epoch, Position, Stream};
use crate::wire::endpoints::Endpoints;
use crate::wire::session::{self, Patience};
use crate::wire::{
    Begin, ControlRequest as ForMux, FrameKind, Gap, Hello, Redraw, Redrawn, Rights, Size, VERSION,
    Want, Welcome,
};

/// What came out of dialling.
#[derive(Debug)]
pub(crate) struct Link {
    /// What is attached.
    pub(crate) wanted: WantedStreams,
    /// The way to the app.
    pub(crate) uplink: Option<Uplink>,
    /// The ways from the app; for a session just one.
    pub(crate) downlinks: Vec<(Carries, UnixStream)>,
    /// What a session's offsets belong to.
    pub(crate) epoch: Option<Epoch>,
    /// The window that a session's mux was told of.
    pub(crate) size: Option<Size>,
    /// How many others are attached, as far as is known.
    pub(crate) others: usize,
    /// Why we do not type now, though we want to.
    pub(crate) rights: Option<Rights>,
}

impl Link {
    /// Whether it is a session: raw sockets know no screens.
    pub(crate) fn is_session(&self) -> bool {
        self.downlinks.iter().any(|(carries, _)| matches!(carries, Carries::Session(_)))
    }
}

/// What comes over a connection.
#[derive(Debug)]
pub(crate) enum Carries {
    /// The bytes of this stream, and nothing else.
    Raw(Stream),
    /// A session's frames, from here on.
    Session(Progress),
}

/// How far a session has got: the offsets of the next bytes.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    epoch: Option<Epoch>,
    places: Vec<Begin>,
    /// Bytes of a screen that are still to come.
    undrawn: u64,
}

impl Progress {
    /// So many bytes of a stream were shown.
    pub(crate) fn advance(&mut self, stream: Stream, len: usize) {
        self.change(stream, |offset| offset.saturating_add(len as u64));
    }

    /// A screen comes, which stands for everything before it.
    pub(crate) fn redraw(&mut self, redrawn: Redrawn) {
        self.change(redrawn.stream, |_| redrawn.offset);
        self.undrawn = redrawn.bytes;
    }

    /// So many bytes of it were shown; whether that was all.
    pub(crate) fn is_drawn_with(&mut self, len: usize) -> bool {
        self.undrawn = self.undrawn.saturating_sub(len as u64);
        self.undrawn == 0
    }

    /// What is missing is known, and goes up to this offset.
    pub(crate) fn skip(&mut self, gap: Gap) {
        self.change(gap.stream, |offset| offset.max(gap.to));
    }

    fn change(&mut self, stream: Stream, to: impl Fn(u64) -> u64) {
        if let Some(place) = self.places.iter_mut().find(|place| place.stream == stream) {
            place.offset = to(place.offset);
        }
    }

    /// Where to go on: without an epoch offsets mean nothing to anybody else.
    fn position(&self, stream: Stream) -> Position {
        let place = self.places.iter().find(|place| place.stream == stream);
        match (place, self.epoch) {
            (Some(place), Some(_)) => Position::Offset(place.offset),
            _ => Position::Start,
        }
    }
}

/// The way to the app: bytes that wait to be sent.
#[derive(Debug)]
pub(crate) struct Uplink {
    socket: UnixStream,
    session: bool,
    waiting: Vec<u8>,
    /// The writing side is to be closed when everything is sent (raw only).
    closing: bool,
    /// The writing side stays open after the end of the input (raw only).
    stays_open: bool,
}

/// Connects to what is wanted of an app and to nothing else; `after` is how far an earlier
/// connection got.
pub(crate) fn dial(
    request: &AttachRequest,
    endpoints: &Endpoints,
    after: Option<&Progress>,
) -> Result<Link> {
    let AttachRequest { dir, mode, from, stdin_once, .. } = request;
    let name = dir.name();
    let targets = endpoints.streams();
    let has: Vec<Stream> = targets.iter().map(|(stream, _)| *stream).collect();
    let mut wanted = match mode {
        AttachMode::Only(wanted) => wanted.clone(),
        _ => WantedStreams::everything(&has),
    };
    if let Some(missing) = wanted.all().find(|s| !has.contains(s)) {
        let has: Vec<&str> = has.iter().map(|s| s.name()).collect();
        bail!("attaching to app {name}: it has no {missing}, only {}", has.join(","));
    }
    if wanted.all().next().is_none() {
        bail!("attaching to app {name}: it has no stream that can be attached");
    }
    if request.read_only {
        wanted.input = None;
        if wanted.outputs.is_empty() {
            bail!("attaching to app {name}: --read-only leaves nothing to attach");
        }
    }
    let connect = |file: &str| -> Result<UnixStream> {
        let connected = dir.connect(file).map(UnixStream::from);
        connected.with_context(|| format!("connecting to {}", dir.path(file).display()))
    };
    if let Some(file) = endpoints.session() {
        let from = |stream| after.map_or(*from, |progress| progress.position(stream));
        let want = |stream: &Stream| Want { stream: *stream, from: from(*stream) };
        let hello = Hello {
            version: VERSION,
            streams: wanted.outputs.iter().map(want).collect(),
            stdin: wanted.input.is_some(),
            stdin_once: *stdin_once,
            // Those of a program; a person's keys are not to wait.
            lines: wanted.input.is_some() && !io::stdin().is_terminal(),
            exclusive: request.exclusive,
            patience_ms: all_shown(&wanted).then_some(0),
            size: wanted.all().find(|s| *s == Stream::Tty).and_then(|_| terminal::size()),
            redraw: request.redraw.filter(|redraw| {
                // What was shown of the backlog is not shown again by the next mux.
                wanted.outputs.contains(&Stream::Tty)
                    && (*redraw == Redraw::Screen || after.is_none())
            }),
            epoch: after.and_then(|progress| progress.epoch),
        };
        let size = hello.size;
        let was_late = Cell::new(false);
        let is_late = || {
            // Who had one before has been told that it is gone.
            if after.is_none() {
                diagnostics::say(&format!(
                    "app {name}: its mux does not answer; waiting (^C leaves)"
                ));
                was_late.set(true);
            }
        };
        let (socket, welcome) = session::open(dir, file, &hello, Patience::Endless(&is_late))?;
        if was_late.get() {
            diagnostics::say(&format!("app {name}: its mux answers now"));
        }
        let Welcome { epoch, streams, others, rights, .. } = welcome;
        let uplink = Some(Uplink::new(socket.try_clone()?, true));
        let carries = Carries::Session(Progress { epoch, places: streams, undrawn: 0 });
        let downlinks = vec![(carries, socket)];
        return Ok(Link { wanted, uplink, downlinks, epoch, size, others, rights });
    }
    if after.is_some() {
        bail!("attaching to app {name}: its mux has no sessions any more");
    }
    if *stdin_once {
        bail!("attaching to app {name}: its mux has no sessions, so --stdin-once is not possible");
    }
    if request.exclusive.is_some() {
        bail!("attaching to app {name}: its mux has no sessions, so --exclusive is not possible");
    }
    if *from != Position::Unseen {
        bail!("attaching to app {name}: its mux has no sessions, so --from is not possible");
    }
    let (uplink, downlinks) = (None, Vec::new());
    let mut link =
        Link { wanted, uplink, downlinks, epoch: None, size: None, others: 0, rights: None };
    for (stream, file) in targets {
        let types = link.wanted.input == Some(stream);
        let reads = link.wanted.outputs.contains(&stream);
        if types || reads {
            let socket = connect(file)?;
            if types {
                let mut uplink = Uplink::new(socket.try_clone()?, false);
                // rkt's mux ends a terminal's connection as soon as its input has ended.
                uplink.stays_open = reads;
                link.uplink = Some(uplink);
            }
            // Beside outputs the end of a socket that is only typed to tells nothing. Alone it
            // tells that all was taken; and what rkt's mux sends on a terminal must be read.
            if reads || link.wanted.outputs.is_empty() {
                link.downlinks.push((Carries::Raw(stream), socket));
            }
        }
    }
    Ok(link)
}

/// Whether all that comes goes to terminals: there a byte that comes late is worth less than an app
/// that is not held back. In a pipe or a file every byte counts.
fn all_shown(wanted: &WantedStreams) -> bool {
    let shown = |stream: &Stream| match stream {
        Stream::Stderr => io::stderr().is_terminal(),
        _ => io::stdout().is_terminal(),
    };
    wanted.outputs.iter().all(shown)
}

impl Uplink {
    fn new(socket: UnixStream, session: bool) -> Self {
        Self { socket, session, waiting: Vec::new(), closing: false, stays_open: false }
    }

    /// How many bytes wait for the socket to take them.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it is one of a session.
    pub(crate) fn is_session(&self) -> bool {
        self.session
    }

    /// Input for the app.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(limits::FRAME) {
            if self.session {
                self.waiting.extend_from_slice(&FrameKind::Stdin.header(part.len()));
            }
            self.waiting.extend_from_slice(part);
        }
    }

    /// No more input will come.
    pub(crate) fn end(&mut self) {
        if self.session {
            self.waiting.extend_from_slice(&FrameKind::StdinEof.frame(b""));
        } else {
            self.closing = !self.stays_open;
        }
    }

    /// The window has this size now; a raw socket cannot tell.
    pub(crate) fn resize(&mut self, size: Size) {
        if self.session {
            self.waiting.extend_from_slice(&FrameKind::Resize.message(&size));
        }
    }

    /// Asks the mux for something; whether it can be asked: a raw socket cannot.
    pub(crate) fn ask(&mut self, request: ForMux) -> bool {
        if self.session {
            self.waiting.extend_from_slice(&FrameKind::Request.message(&request));
        }
        self.session
    }

    /// Sends what the socket takes without waiting.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.socket.as_raw_fd(), &self.waiting, flags) {
                Ok(len) => drop(self.waiting.drain(..len)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => {
                    self.waiting.clear();
                    return Err(e.into());
                }
            }
        }
        if self.closing {
            self.closing = false;
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
