//! Connects to a mux: by one session, or by a raw socket for each wanted stream if the mux has no
//! sessions.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, anyhow, bail};

use super::connection::{Connection, EndOfInput, Uplink};
use super::mode::{AttachMode, WantedStreams};
use super::{AttachRequest, circle, terminal};
use crate::core::wire::{
    Begin, Gap, Hello, History, InputId, InputIdentity, InputPosition, Redraw, Redrawn, Rights,
    VERSION, Want, Welcome,
};
use crate::sys::diagnostics;
use crate::sys::documents::container::{Container, NO_INPUT};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session::{self, Patience};
use crate::types::size::Window;
use crate::types::stream::{Epoch, Position, Stream};

/// A connection that no thread reads yet.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) connection: Connection,
    /// One for a session.
    pub(crate) downlinks: Vec<(Downlink, UnixStream)>,
    /// The window in our hello.
    pub(crate) window: Option<Window>,
    /// How many other clients are attached, as far as is known.
    pub(crate) others: usize,
    /// Whether a key has stopped the terminal's output.
    pub(crate) is_stopped: bool,
    /// Whether keys that may end the app are to be asked for twice.
    pub(crate) is_guarded: bool,
    /// Why we cannot type now, though we asked to.
    pub(crate) rights: Option<Rights>,
    /// The name of our input, and how much of it the mux has, if it keeps that for the next one.
    pub(crate) input: Option<(InputId, InputPosition)>,
}

/// What an earlier connection leaves to the next one.
#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) progress: SessionProgress,
    /// Our input, if it goes on.
    pub(crate) input: Option<InputIdentity>,
}

/// The content of a connection.
#[derive(Debug)]
pub(crate) enum Downlink {
    /// The bytes of this stream.
    Raw(Stream),
    /// The frames of a session.
    Session(SessionProgress),
}

/// How far a session has got: the offsets of the next bytes.
#[derive(Clone, Debug)]
pub(crate) struct SessionProgress {
    epoch: Option<Epoch>,
    offsets: Vec<Begin>,
    /// Bytes of a screen that are still to come.
    screen_left: u64,
}

impl SessionProgress {
    /// This many bytes of a stream were shown.
    pub(crate) fn advance(&mut self, stream: Stream, len: usize) {
        self.change(stream, |offset| offset.saturating_add(len as u64));
    }

    /// A screen comes, which replaces everything before its offset.
    pub(crate) fn begin_screen(&mut self, redrawn: Redrawn) {
        self.change(redrawn.stream, |_| redrawn.offset);
        self.screen_left = redrawn.bytes;
    }

    /// This many bytes of the screen were shown. Whether that was all.
    pub(crate) fn advance_screen(&mut self, len: usize) -> bool {
        self.screen_left = self.screen_left.saturating_sub(len as u64);
        self.screen_left == 0
    }

    /// The mux has skipped bytes.
    pub(crate) fn skip(&mut self, gap: Gap) {
        self.change(gap.stream, |offset| offset.max(gap.to));
    }

    fn change(&mut self, stream: Stream, to: impl Fn(u64) -> u64) {
        if let Some(begin) = self.offsets.iter_mut().find(|begin| begin.stream == stream) {
            begin.offset = to(begin.offset);
        }
    }

    /// Where the next session begins. Without an epoch no other mux understands the offsets.
    fn position(&self, stream: Stream) -> Position {
        let begin = self.offsets.iter().find(|begin| begin.stream == stream);
        match (begin, self.epoch) {
            (Some(begin), Some(_)) => Position::Offset(begin.offset),
            _ => Position::Start,
        }
    }
}

/// Connects to the wanted streams of an app and to nothing else, `after` an earlier connection.
pub(crate) fn dial(
    request: &AttachRequest,
    endpoints: &Endpoints,
    after: Option<&Earlier>,
) -> Result<NewConnection> {
    let name = request.dir.name();
    let has: Vec<Stream> = endpoints.streams().iter().map(|(stream, _)| *stream).collect();
    let wanted = request.mode.resolve(&has);
    let hint = || {
        let wants_input = matches!(&request.mode, AttachMode::Only(only) if only.input.is_some());
        let is_logged = wants_input && Container::read(&request.dir).is_some();
        if is_logged { format!("; {NO_INPUT}") } else { String::new() }
    };
    let mut wanted =
        wanted.map_err(|why| anyhow!("cannot attach to app {name}: {why}{}", hint()))?;
    if request.read_only {
        wanted.input = None;
        if wanted.outputs.is_empty() {
            bail!("cannot attach to app {name}: --read-only leaves nothing to attach");
        }
    }
    let types_here = wanted.input == Some(Stream::Tty) && terminal::terminals().stdin;
    if (types_here || wanted.outputs.contains(&Stream::Tty))
        && let Some(why) = circle::refusal(&request.dir, types_here)
    {
        bail!("cannot attach to app {name}: {why}");
    }
    match endpoints.session() {
        Some(file) => open_session(request, file, wanted, after),
        None if after.is_some() => {
            bail!("cannot attach to app {name}: its mux has no sessions any more")
        }
        None => open_sockets(request, endpoints, wanted),
    }
}

fn open_session(
    request: &AttachRequest,
    file: &str,
    wanted: WantedStreams,
    after: Option<&Earlier>,
) -> Result<NewConnection> {
    let name = request.dir.name();
    let from = |stream| after.map_or(request.from, |after| after.progress.position(stream));
    let want = |stream: &Stream| Want { stream: *stream, from: from(*stream) };
    // A backlog that was shown is not shown again by the next mux.
    let redraws = wanted.outputs.contains(&Stream::Tty)
        && (request.redraw == Redraw::Screen || after.is_none());
    // A terminal that was attached before has these lines.
    let shows_history = request.history && request.redraw == Redraw::Screen && after.is_none();
    let new_input = || InputIdentity { id: random_input(), returns: false, once: false };
    let input = after.and_then(|after| after.input).unwrap_or_else(new_input);
    let hello = Hello {
        version: VERSION,
        streams: wanted.outputs.iter().map(want).collect(),
        stdin: wanted.input.is_some(),
        stdin_once: request.stdin_once,
        // Lines of a program are kept whole; a person's keys must not wait for the end of a line.
        lines: wanted.input.is_some() && !terminal::terminals().stdin,
        enter: None,
        events: false,
        exclusive: request.exclusive,
        patience_ms: only_terminals(&wanted).then_some(0),
        size: wanted.all().find(|s| *s == Stream::Tty).and_then(|_| terminal::window()),
        redraw: Some(request.redraw).filter(|redraw| redraws && *redraw != Redraw::None),
        history: shows_history.then_some(History::Before),
        epoch: after.and_then(|after| after.progress.epoch),
        input: wanted.input.is_some().then_some(input),
    };
    let window = hello.size;
    let was_late = Cell::new(false);
    let is_late = || {
        // On reconnecting the user knows already that the mux is gone.
        if after.is_none() {
            diagnostics::say(&format!("app {name}: its mux does not answer; waiting (^C leaves)"));
            was_late.set(true);
        }
    };
    let patience = Patience::Endless(&is_late);
    let (socket, welcome) = session::open(&request.dir, file, &hello, patience)?;
    if was_late.get() {
        diagnostics::say(&format!("app {name}: its mux answers now"));
    }
    let Welcome { epoch, streams: offsets, others, is_stopped, is_guarded, rights, .. } = welcome;
    let uplink = Some(Uplink::new(socket.try_clone()?, EndOfInput::Frame));
    let downlink = Downlink::Session(SessionProgress { epoch, offsets, screen_left: 0 });
    let connection = Connection::new(wanted, uplink, 1, epoch);
    let input = welcome.input.map(|position| (input.id, position));
    let downlinks = vec![(downlink, socket)];
    Ok(NewConnection {
        connection,
        downlinks,
        window,
        others,
        is_stopped,
        is_guarded,
        rights,
        input,
    })
}

/// A name that no other input has: from the system's random source, with which std seeds its hash
/// maps.
fn random_input() -> InputId {
    InputId(RandomState::new().build_hasher().finish())
}

fn open_sockets(
    request: &AttachRequest,
    endpoints: &Endpoints,
    wanted: WantedStreams,
) -> Result<NewConnection> {
    let dir = &request.dir;
    for (option, is_given) in [
        ("--stdin-once", request.stdin_once),
        ("--exclusive", request.exclusive.is_some()),
        ("--from", request.from != Position::Unseen),
    ] {
        if is_given {
            bail!("cannot use {option} with app {}: its mux has no sessions", dir.name());
        }
    }
    let (mut uplink, mut downlinks) = (None, Vec::new());
    for (stream, file) in endpoints.streams() {
        let types = wanted.input == Some(stream);
        let reads = wanted.outputs.contains(&stream);
        if !types && !reads {
            continue;
        }
        let socket = dir.connect(file).map(UnixStream::from);
        let socket =
            socket.with_context(|| format!("cannot connect to {}", dir.path(file).display()))?;
        if types {
            // rkt's mux ends a terminal's connection as soon as its input has ended.
            let end = if reads { EndOfInput::Ignored } else { EndOfInput::Shutdown };
            uplink = Some(Uplink::new(socket.try_clone()?, end));
        }
        // With outputs, the end of an input socket means nothing. Without outputs, it means that
        // the mux has taken all input. Output that rkt's mux sends there must be read.
        if reads || wanted.outputs.is_empty() {
            downlinks.push((Downlink::Raw(stream), socket));
        }
    }
    let connection = Connection::new(wanted, uplink, downlinks.len(), None);
    Ok(NewConnection {
        connection,
        downlinks,
        window: None,
        others: 0,
        is_stopped: false,
        is_guarded: false,
        rights: None,
        input: None,
    })
}

/// Whether all output goes to terminals: there late bytes matter less than an app that is not held
/// back. In a pipe or a file every byte counts.
fn only_terminals(wanted: &WantedStreams) -> bool {
    wanted.outputs.iter().all(|stream| terminal::is_terminal(*stream))
}
