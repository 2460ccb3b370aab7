//! The client: this process's streams on an app's, until either side ends it.
//!
//! The main thread polls what it must not block on: this process's input, the way to the app, the
//! news from the [`pump`] threads. The threads may block, on a slow terminal as on a full pipe.
//! Inherited descriptors are shared with the shell and keep their flags. A mux that goes away is
//! looked for again, in a thread, too, and the session goes on where it was. Invariant: the local
//! terminal is as before on every way out.

pub(crate) mod filter;
mod hear;
pub(crate) mod keys;
mod link;
pub(crate) mod mode;
mod page;
mod pulse;
mod pump;
mod tell;
mod terminal;
mod typing;
mod undo;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::attach::filter::Pass;
use super::attach::keys::{Keys, Matcher, Sequence};
use super::attach::link::{Link, Uplink};
use super::attach::mode::{AttachMode, WantedStreams};
use super::attach::page::Presence;
use super::attach::pulse::Pulse;
use super::attach::pump::{Inbox, Outbox};
use super::attach::tell::NoticeLines;
use super::{find, list};
use crate::os::diagnostics;
use crate::os::state::AppDir;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::stream::{Epoch, Position, Stream};
use crate::wire::{AppStatus, Exclusive, Redraw, Rights};

/// What is to be attached, and how.
#[derive(Clone, Debug)]
pub(crate) struct AttachRequest {
    /// The app.
    pub(crate) dir: AppDir,
    /// Which of its streams.
    pub(crate) mode: AttachMode,
    /// How long to wait for the app: zero not at all, `None` for ever.
    pub(crate) wait: Option<Duration>,
    /// How long to look for a new mux when a session loses its own: zero not at all.
    pub(crate) reconnect: Duration,
    /// Where in its streams to begin.
    pub(crate) from: Position,
    /// What a terminal is to show first.
    pub(crate) redraw: Option<Redraw>,
    /// Which strings of the app reach a terminal.
    pub(crate) pass: Pass,
    /// Whether to look only, and to type nothing.
    pub(crate) read_only: bool,
    /// Whether the end of our input ends the app's.
    pub(crate) stdin_once: bool,
    /// Whether nobody else is to type meanwhile.
    pub(crate) exclusive: Option<Exclusive>,
    /// The keys that detach, when the input is a terminal.
    pub(crate) detach_keys: Sequence,
    /// Those that suspend this process.
    pub(crate) suspend_key: Sequence,
}

impl AttachRequest {
    /// The plain one, which looks for no other mux and cannot be suspended.
    pub(crate) fn new(dir: AppDir, mode: AttachMode) -> Self {
        Self {
            dir,
            mode,
            wait: Some(Duration::ZERO),
            reconnect: Duration::ZERO,
            from: Position::Unseen,
            redraw: usual_redraw(Position::Unseen),
            pass: Pass::default(),
            read_only: false,
            stdin_once: false,
            exclusive: None,
            detach_keys: Sequence::default(),
            suspend_key: Sequence::none(),
        }
    }
}

/// What a terminal shows first if nobody has said: the screen, unless an offset was asked for. In a
/// pipe or file the app's own bytes are wanted.
pub(crate) fn usual_redraw(from: Position) -> Option<Redraw> {
    (from == Position::Unseen && io::stdout().is_terminal()).then_some(Redraw::Screen)
}

/// How to be there before the app.
const WAITS: &str = " (--wait waits for it)";
/// Why a program's input does not go on with another mux.
const UNSURE: &str = ", and whether the app was given all of the input is not known";

/// How an attach goes on.
enum Step {
    Continue,
    Leave(Exit),
}

/// What has become of this process's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// It is read as fast as it is taken.
    Open,
    /// Somebody else types alone, or we may only look.
    Held,
    /// It has ended, and the mux is told so.
    Ended,
    /// Nobody wants it, or wants it any more: what is typed is thrown away.
    Closed,
}

/// What our terminal has to do with the app's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalInput {
    /// Nothing, or there is none.
    Apart,
    /// It shows what the app's shows.
    Shown,
    /// It is raw: what is typed on it is the app's, or nobody's.
    Raw,
}

/// How a connection ended, as far as the mux has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// The app ended.
    App(Exit),
    /// The mux did, and knows nothing of the app.
    Mux,
}

/// An attach under way.
struct Attached<'a> {
    request: &'a AttachRequest,
    outbox: Outbox,
    /// The way to the app, while there is one.
    uplink: Option<Uplink>,
    input: InputState,
    /// Whether some of a program's input was sent, and is not known to be with the app.
    unconfirmed: bool,
    keys: Matcher,
    local: LocalInput,
    /// What our page tells of others, while it is shown.
    page: Option<Presence>,
    /// Lines of ours that are in the place of the app's, and until when.
    noted: Option<NoticeLines>,
    /// When these lines are to be shown again, after the app's have wiped them away.
    wiped: Option<Instant>,
    /// Whether a session with a new mux begins with a screen.
    is_drawn: bool,
    /// What is to be told when the screen has been shown that is to come, which would wipe it away; or at
    /// that time, for a mux may hang. `None` when no screen comes.
    held: Option<NoticeLines>,
    /// Whether we type alone, or wish to: the next mux is asked for it again.
    exclusive: Option<Exclusive>,
    /// What the mux was asked for, and has not answered.
    asked: VecDeque<Option<Exclusive>>,
    /// Connections that have not ended.
    open: usize,
    /// What is attached.
    wanted: WantedStreams,
    /// What the session's offsets belong to.
    epoch: Option<Epoch>,
    farewell: Option<Farewell>,
    /// Bytes told missing.
    missing: u64,
    /// Those that the user has not been told of, and when that is due.
    gap: Option<(u64, Instant)>,
    /// Whether more may be missing than was told.
    uncertain: bool,
    /// How the app ended, until it is started again.
    ended: Option<AppStatus>,
    /// Whether the mux answers.
    pulse: Pulse,
}

/// Attaches, and stays until it is over.
pub(crate) fn attach(request: &AttachRequest) -> Result<Exit> {
    let AttachRequest { dir, mode, wait, detach_keys, suspend_key, .. } = request;
    let keys = |page| Keys::new(detach_keys, suspend_key, page).map_err(|why| anyhow!(why));
    keys(true)?;
    if *mode == AttachMode::List {
        let endpoints = find::retry(dir, *wait, WAITS, |endpoints| Ok(endpoints.clone()))?;
        return list::show(&endpoints, "\n").map(|()| Exit::Done);
    }
    let link = find::retry(dir, *wait, WAITS, |endpoints| link::dial(request, endpoints, None))?;
    let (outbox, inbox) = pump::mailbox().context("making a mailbox")?;
    let types = link.wanted.input.is_some();
    let on_tty = link.wanted.all().any(|s| s == Stream::Tty);
    terminal::restore_on_panic();
    terminal::filter(request.pass);
    let on_screen = link.wanted.outputs.contains(&Stream::Tty) && terminal::watch_screen();
    // Who only looks has keys, too, and a terminal that replies to what the app asks.
    let keyboard = (types && on_tty || on_screen) && io::stdin().is_terminal();
    let keys = if keyboard { keys(on_screen)? } else { Keys::none() };
    // A screen would wipe away what is told before it.
    let is_drawn = on_screen && link.is_session() && request.redraw == Some(Redraw::Screen);
    let others =
        (on_screen && link.others > 0).then(|| page::others(dir.name(), link.others, &keys));
    if let Some(line) = others.as_ref().filter(|_| !is_drawn) {
        diagnostics::say(line);
    }
    let local = match keyboard && terminal::make_raw(types).context("the local terminal")? {
        true => LocalInput::Raw,
        false if on_screen => LocalInput::Shown,
        false => LocalInput::Apart,
    };
    let outcome = (|| {
        pump::catch_signals(outbox.another()?, local != LocalInput::Apart)?;
        let mut attached = Attached {
            request,
            outbox,
            uplink: None,
            input: if types { InputState::Open } else { InputState::Closed },
            unconfirmed: false,
            local,
            keys: Matcher::new(keys),
            page: None,
            noted: None,
            wiped: None,
            is_drawn,
            held: None,
            exclusive: request.exclusive,
            asked: VecDeque::new(),
            open: 0,
            wanted: link.wanted.clone(),
            epoch: link.epoch,
            farewell: None,
            missing: 0,
            gap: None,
            uncertain: false,
            ended: None,
            pulse: Pulse::Well,
        };
        attached.hold();
        others.filter(|_| is_drawn).iter().for_each(|line| attached.say(line));
        let outcome = attached.begin(link).and_then(|()| attached.stay(&inbox));
        terminal::restore();
        attached.tell_held();
        outcome
    })();
    terminal::restore();
    // From the connection on a failure has a code of its own: the app's status is then not known.
    Ok(outcome.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Lost)))
}

impl<'a> Attached<'a> {
    /// Carries what comes over new connections.
    fn begin(&mut self, link: Link) -> Result<()> {
        self.farewell = None;
        self.pulse = Pulse::Well;
        self.asked.clear();
        self.uplink = link.uplink;
        self.open = link.downlinks.len();
        for (carries, socket) in link.downlinks {
            pump::carry(self.outbox.another()?, socket, carries, self.wanted.outputs.clone())?;
        }
        self.on_rights(&link.rights.unwrap_or(Rights { types: true, why: String::new() }));
        Ok(())
    }

    fn stay(&mut self, inbox: &Inbox) -> Result<Exit> {
        loop {
            if let Some(uplink) = &mut self.uplink
                && uplink.flush().is_err()
            {
                // What the mux has still to say comes by the other direction.
                self.uplink = None;
            }
            let heard = self.wait(inbox)?;
            if heard.mux_gone {
                // What it has said last waits behind the page.
                self.come_back()?;
            }
            if heard.news {
                let mut bell = [0; 64];
                while matches!((&inbox.bell).read(&mut bell), Ok(1..)) {}
                while let Ok(news) = inbox.news.try_recv() {
                    if let Step::Leave(exit) = self.on_news(news)? {
                        return Ok(exit);
                    }
                }
            }
            if heard.output_closed {
                // Our reader wants no more: that is no error.
                return Ok(Exit::Done);
            }
            if heard.input
                && let Step::Leave(exit) = self.read_input()?
            {
                return Ok(exit);
            }
            if let Step::Leave(exit) = self.pass_on_held_keys()? {
                return Ok(exit);
            }
            let now = Instant::now();
            let is_over = self.noted.take_if(|lines| lines.until <= now).is_some();
            if is_over | self.wiped.take_if(|again| *again <= now).is_some() {
                self.redraw();
            }
            self.check_pulse(now)?;
            if self.held.as_ref().is_some_and(|lines| lines.until <= now) {
                self.tell_held();
            }
            if let Some((len, _)) = self.gap.take_if(|(_, due)| *due <= Instant::now()) {
                let name = self.name();
                self.say(&format!("app {name}: {len} bytes were lost here: this output is slow"));
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, inbox: &Inbox) -> Result<Heard> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let uplink = self.uplink.as_ref();
        let mut fds = vec![PollFd::new(inbox.bell.as_fd(), PollFlags::POLLIN)];
        let mut add = |wanted: bool, fd, flags| {
            wanted.then(|| {
                fds.push(PollFd::new(fd, flags));
                fds.len() - 1
            })
        };
        let input = add(self.room() > 0, stdin.as_fd(), PollFlags::POLLIN);
        // No event is asked for: that a reader has gone is told as an error.
        let shows = self.wanted.outputs.iter().any(|s| *s != Stream::Stderr);
        let output = add(shows, stdout.as_fd(), PollFlags::empty());
        // While our page is shown nobody reads what comes, and its end neither: that is told as an error.
        let mux = uplink.filter(|uplink| uplink.waiting() > 0 || self.page.is_some());
        let mux = mux.and_then(|uplink| {
            let is_waiting = uplink.waiting() > 0;
            let wanted = if is_waiting { PollFlags::POLLOUT } else { PollFlags::empty() };
            add(true, uplink.as_fd(), wanted)
        });
        let gap = self.gap.map(|(_, due)| due);
        let lines = [&self.noted, &self.held].into_iter().flatten().map(|lines| lines.until);
        let lines = lines.chain(self.wiped).chain(self.pulse.deadline());
        let deadline = self.keys.deadline().into_iter().chain(gap).chain(lines).min();
        let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => bail!("waiting: {e}"),
        }
        let events =
            |at: Option<usize>| at.and_then(|at| fds[at].revents()).unwrap_or(PollFlags::empty());
        Ok(Heard {
            news: events(Some(0)).contains(PollFlags::POLLIN),
            output_closed: events(output).contains(PollFlags::POLLERR),
            input: !events(input).is_empty(),
            mux_gone: self.page.is_some() && events(mux).contains(PollFlags::POLLHUP),
        })
    }

    /// How many bytes of this process's input may be read now. With nobody there, or while we may not
    /// type, a person's keys are still looked at; a program's input waits.
    fn room(&self) -> usize {
        let most = if self.local == LocalInput::Raw { limits::TYPED } else { limits::INPUT };
        match (self.input, &self.uplink) {
            (InputState::Open, Some(uplink)) => {
                most.saturating_sub(uplink.waiting()).min(limits::READ)
            }
            (InputState::Ended, _) => 0,
            // What is typed now goes nowhere.
            _ if self.local == LocalInput::Raw => limits::READ,
            _ => 0,
        }
    }

    fn name(&self) -> &'a AppName {
        self.request.dir.name()
    }
}

/// What [`Attached::wait`] found.
#[allow(clippy::struct_excessive_bools, reason = "any of them may come with any other")]
struct Heard {
    news: bool,
    output_closed: bool,
    input: bool,
    /// It has closed the connection, and our page is shown.
    mux_gone: bool,
}
