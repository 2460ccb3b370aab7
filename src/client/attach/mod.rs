//! `attach`: connects this process's input and outputs to an app until either side ends it.
//!
//! | module | is |
//! |---|---|
//! | [`event_loop`] | the main thread: waits for input, events and deadlines |
//! | [`receive`], [`local_input`] | what it does with the mux's messages; with keys and a program's input |
//! | [`notices`], [`losses`] | lines for the user; lost output |
//! | [`banner`] | the text of some of these lines |
//! | [`sent`] | input that the next mux may need |
//! | [`relay`] | an attach on another machine |
//! | [`io_threads`] | the threads that may block: output, signals, connecting |
//! | [`event`] | the events that these threads send |
//! | [`dial`], [`connection`] | connecting to the mux; the connection |
//! | [`circle`] | no attach to an app that shows this terminal |
//! | [`local_terminal`] | the local terminal: raw while attached, restored on every way out |
//! | [`mark`] | a mark on our lines, to notice when they come back |
//! | [`keys`], [`key_guard`], [`attach_mode`] | detach keys; keys that end a service; `--mode` |
//! | [`key`] | the keys in what a terminal sends |
//!
//! Invariant: the local terminal is as before on every way out.

pub(crate) mod attach_mode;
mod banner;
mod circle;
mod connection;
mod dial;
mod event;
mod event_loop;
mod io_threads;
mod key;
pub(crate) mod key_guard;
pub(crate) mod keys;
mod local_input;
mod local_terminal;
mod losses;
mod mark;
mod notices;
mod receive;
mod relay;
pub(crate) mod sent;

use anyhow::{Context, Result, bail};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use self::attach_mode::AttachMode;
use self::connection::Connection;
use self::event::AttachEvent;
use self::key_guard::Guard;
use self::keys::{Keys, Sequence};
use self::local_input::LocalInput;
pub(crate) use self::local_terminal::terminals;
use self::losses::SessionLosses;
use self::notices::{LocalTerminal, Notices};
pub(crate) use self::relay::relay;
use super::find::{self, Hint};
use super::list;
use crate::core::wire::{AppStatus, Exclusive, Redraw, Rights};
use crate::host::enable;
use crate::screen::filter::Pass;
use crate::sys::files::enlarge_pipe;
use crate::sys::mailbox::{self, Sender};
use crate::sys::state::AppDir;
use crate::sys::{agent, diagnostics};
use crate::types::backoff::Backoff;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::stream::{Position, Stream};

/// Most events that wait for the main loop: it may wait for a slow terminal, and a mux may send many.
const EVENTS: usize = 64;

/// The app to attach to, and the options.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct AttachRequest {
    pub(crate) dir: AppDir,
    pub(crate) mode: AttachMode,
    /// How long to wait for the app: zero not at all.
    pub(crate) wait: Duration,
    /// How long to look for a new mux after the connection is lost: zero not at all.
    pub(crate) reconnect: Duration,
    /// Where in its streams to begin.
    pub(crate) from: Position,
    /// The first view of a terminal.
    pub(crate) redraw: Redraw,
    /// Whether the first screen comes with the lines that scrolled off it.
    pub(crate) history: bool,
    /// Which control strings of the app reach a terminal.
    pub(crate) pass: Pass,
    /// Send no input.
    pub(crate) read_only: bool,
    /// The end of our input ends the app's.
    pub(crate) stdin_once: bool,
    /// Keep the input of other clients back.
    pub(crate) exclusive: Option<Exclusive>,
    /// The keys that detach, when the input is a terminal.
    pub(crate) detach_keys: Sequence,
    /// Ask again before sending a key that may end a service.
    pub(crate) guard: bool,
    /// Say only what has gone wrong.
    pub(crate) quiet: bool,
    /// Whether signals to this process are for the app.
    pub(crate) passes_signals: bool,
    /// The keeper of the app, which passes signals on.
    pub(crate) keeper: Option<Pid>,
}

impl AttachRequest {
    /// The defaults of a client that does not reconnect.
    pub(crate) fn new(dir: AppDir, mode: AttachMode) -> Self {
        Self {
            dir,
            mode,
            wait: Duration::ZERO,
            reconnect: Duration::ZERO,
            from: Position::Unseen,
            redraw: default_redraw(Position::Unseen),
            history: true,
            pass: Pass::default(),
            read_only: false,
            stdin_once: false,
            exclusive: None,
            detach_keys: Sequence::default(),
            guard: true,
            quiet: false,
            passes_signals: false,
            keeper: None,
        }
    }
}

/// An attach in progress.
pub(crate) struct Attached<'a> {
    pub(crate) request: &'a AttachRequest,
    pub(crate) sender: Sender<AttachEvent>,
    pub(crate) connection: Connection,
    pub(crate) input: LocalInput,
    pub(crate) notices: Notices,
    pub(crate) losses: SessionLosses,
    pub(crate) backoff: Backoff,
    /// How the app ended, until it is started again.
    pub(crate) app_ended: Option<AppStatus>,
    /// A person uses it, and is told how it ends.
    pub(crate) by_person: bool,
    /// What a script's lock means for us, and when a person is told of it.
    pub(crate) locked: Option<(Instant, Rights)>,
}

/// Why the attach ends.
pub(crate) enum Leave {
    With(Exit),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Leave {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// The default of `--redraw`: the screen, or from the start on the backlog, unless the output is not a
/// terminal, where the app's own bytes are wanted, or is one that cannot be redrawn.
pub(crate) fn default_redraw(from: Position) -> Redraw {
    match from {
        _ if !terminals().stdout || local_terminal::is_dumb() => Redraw::None,
        Position::Unseen => Redraw::Screen,
        Position::Start => Redraw::Backlog,
        Position::Now | Position::Offset(_) => Redraw::None,
    }
}

/// Attaches until the app, the mux or the user ends it.
pub(crate) fn attach(request: &AttachRequest) -> Result<Exit> {
    let local = terminals();
    let AttachRequest { dir, wait, .. } = request;
    if wait.is_zero()
        && request.mode != AttachMode::List
        && let Some(why) = enable::waits_for_restart(dir)
    {
        bail!("{why}");
    }
    if request.mode == AttachMode::List {
        return list::endpoints(dir, *wait, "\n").map(|()| Exit::Done);
    }
    let dial = |endpoints: &_| dial::dial(request, endpoints, None);
    let new = find::retry(dir, *wait, Hint::Start, dial)?;
    let (sender, mut events) =
        mailbox::bounded(EVENTS).context("cannot create the event mailbox")?;
    let wanted = &new.connection.wanted;
    let types = wanted.input.is_some();
    let on_tty = wanted.all().any(|stream| stream == Stream::Tty);
    local_terminal::restore_on_panic();
    local_terminal::filter(request.pass);
    let shows_tty = wanted.outputs.contains(&Stream::Tty);
    let on_screen = shows_tty && local_terminal::watch_screen();
    // A read-only client has detach keys, too, and a terminal that replies to the app's queries.
    let has_keyboard = (types && on_tty || shows_tty && local.stdout) && local.stdin;
    let by_person = local.stdin && local.stdout;
    let edits_lines = types && !on_tty && by_person;
    let keys = if has_keyboard || edits_lines {
        Keys::new(&request.detach_keys, on_screen || edits_lines)
    } else {
        Keys::none()
    };
    if types {
        agent::renew(dir);
    }
    let redraws = on_screen && request.redraw == Redraw::Screen;
    let others = (on_screen && new.welcome.others > 0)
        .then(|| banner::others(dir.name(), new.welcome.others));
    // The output of `run` is that of its command, if that has no terminal.
    let greets = by_person && (on_tty || request.keeper.is_none());
    let greeting = || {
        let is_other = |service: &String| *service != format!("{}.service", dir.name());
        let service = enable::service_of(dir).filter(is_other);
        let names = (dir.name(), service.as_deref());
        banner::greeting(names, wanted, (&keys, has_keyboard && types))
    };
    let stopped = (on_screen && new.welcome.is_stopped).then(|| banner::stopped(dir.name()));
    // Else `attach` and the reader of its output would wait for each other in turn.
    for output in [io::stdout().as_fd(), io::stderr().as_fd()] {
        enlarge_pipe(output, limits::PIPE);
    }
    let lines = others.into_iter().chain(stopped).chain(greets.then(greeting));
    let lines = lines.filter(|_| !request.quiet);
    // The first screen would wipe these lines away: they are then shown after that screen.
    let (first, later): (Vec<_>, Vec<_>) = lines.partition(|_| !redraws);
    for line in &first {
        diagnostics::say(line);
    }
    let what = "cannot set up the local terminal";
    let before = if has_keyboard { local_terminal::make_raw(types).context(what)? } else { None };
    let is_raw = before.is_some();
    if edits_lines {
        local_terminal::watch_keys(&keys).context(what)?;
    }
    let local = match (is_raw, on_screen, edits_lines) {
        (true, ..) => LocalTerminal::Raw,
        (false, true, _) => LocalTerminal::ShowsOutput,
        (false, false, true) => LocalTerminal::Lines,
        (false, false, false) => LocalTerminal::Unused,
    };
    let outcome = io_threads::catch_signals(sender.clone()).and_then(|()| {
        let guard = Guard::new(request.guard && is_raw && new.welcome.is_guarded);
        let mut input = LocalInput::new(types, keys, (guard, request.exclusive));
        input.before_raw = before.unwrap_or(0);
        let mut attached = Attached {
            request,
            sender,
            connection: Connection::default(),
            input,
            notices: Notices::new(local, redraws),
            losses: SessionLosses::default(),
            backoff: Backoff::default(),
            app_ended: None,
            by_person,
            locked: None,
        };
        for line in &later {
            attached.say(line);
        }
        attached.run(new, &mut events)
    });
    local_terminal::restore();
    // After the connection was made a failure has its own exit code: the app's status is unknown.
    Ok(outcome.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Lost)))
}
