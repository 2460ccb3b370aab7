//! Connects to a mux by a session.

use anyhow::{Result, anyhow, bail};

use super::attach_mode::{AttachMode, WantedStreams};
use super::connection::Connection;
use super::{AttachRequest, circle, local_terminal};
use crate::core::wire::session_reader::SessionReader;
use crate::core::wire::{
    Hello, History, InputId, InputIdentity, InputPosition, Redraw, Want, Welcome,
};
use crate::sys::diagnostics;
use crate::sys::documents::container::{Container, NO_INPUT};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session::{self, OpenSession, Patience};
use crate::types::size::Window;
use crate::types::stream::Stream;

/// A connection that no thread reads yet.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) connection: Connection,
    /// The direction from the mux.
    pub(crate) downlink: OpenSession,
    /// The window in our hello.
    pub(crate) window: Option<Window>,
    /// The answer to that.
    pub(crate) welcome: Welcome,
    /// The name of our input, and how much of it the mux has, if it keeps that for the next one.
    pub(crate) input: Option<(InputId, InputPosition)>,
}

/// What an earlier connection leaves to the next one.
#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) reader: SessionReader,
    /// Our input, if it goes on.
    pub(crate) input: Option<InputIdentity>,
}

/// The streams of an app to attach, or why there are none.
fn wanted(request: &AttachRequest, endpoints: &Endpoints) -> Result<WantedStreams> {
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
    let types_here = wanted.input == Some(Stream::Tty) && local_terminal::terminals().stdin;
    if (types_here || wanted.outputs.contains(&Stream::Tty))
        && circle::is_own(&request.dir, types_here)
    {
        bail!("cannot attach to app {name}: this terminal is its own");
    }
    Ok(wanted)
}

/// Connects to the wanted streams of an app and to nothing else, `after` an earlier connection.
pub(crate) fn dial(
    request: &AttachRequest,
    endpoints: &Endpoints,
    after: Option<&Earlier>,
) -> Result<NewConnection> {
    let name = request.dir.name();
    let wanted = wanted(request, endpoints)?;
    let from = |stream| after.map_or(request.from, |after| after.reader.position(stream));
    let want = |stream: &Stream| Want { stream: *stream, from: from(*stream) };
    // A backlog that was shown is not shown again by the next mux.
    let redraws = wanted.outputs.contains(&Stream::Tty)
        && (request.redraw == Redraw::Screen || after.is_none());
    // A terminal that was attached before has these lines.
    let shows_history = request.history && request.redraw == Redraw::Screen && after.is_none();
    let new_input = || InputIdentity { id: session::random_input(), returns: false, once: false };
    let input = after.and_then(|after| after.input).unwrap_or_else(new_input);
    let hello = Hello {
        streams: wanted.outputs.iter().map(want).collect(),
        stdin: wanted.input.is_some(),
        stdin_once: request.stdin_once,
        // Lines of a program are kept whole; a person's keys must not wait for the end of a line.
        lines: wanted.input.is_some() && !local_terminal::terminals().stdin,
        exclusive: request.exclusive,
        patience_ms: only_terminals(&wanted).then_some(0),
        size: wanted.all().find(|s| *s == Stream::Tty).and_then(|_| local_terminal::window()),
        redraw: Some(request.redraw).filter(|redraw| redraws && *redraw != Redraw::None),
        history: shows_history.then_some(History::Before),
        epoch: after.and_then(|after| after.reader.epoch()),
        input: wanted.input.is_some().then_some(input),
        ..Hello::default()
    };
    let window = hello.size;
    let is_late = || {
        // On reconnecting the user knows already that the mux is gone.
        if after.is_none() {
            diagnostics::say(&format!("app {name}: its mux does not answer; waiting (^C leaves)"));
        }
    };
    let patience = Patience::Endless(&is_late);
    let (downlink, welcome) = session::open(&request.dir, endpoints.session(), &hello, patience)?;
    let connection = Connection::new(wanted, downlink.socket.try_clone()?, welcome.epoch);
    let input = welcome.input.map(|position| (input.id, position));
    Ok(NewConnection { connection, downlink, window, welcome, input })
}

/// Whether all output goes to terminals: there late bytes matter less than an app that is not held
/// back. In a pipe or a file every byte counts.
fn only_terminals(wanted: &WantedStreams) -> bool {
    wanted.outputs.iter().all(|stream| local_terminal::is_terminal(*stream))
}
