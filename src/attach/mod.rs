//! The client: this process's streams on an app's, until either side ends it.
//!
//! The main thread polls what it must not block on: this process's input, the way to the app, the
//! news from the [`pump`] threads. The threads may block, on a slow terminal as on a full pipe.
//! Inherited descriptors are shared with the shell and keep their flags. A mux that goes away is
//! looked for again, in a thread, too, and the session goes on where it was. Invariant: the local
//! terminal is as before on every way out.

pub mod keys;
mod link;
pub mod mode;
mod pump;
mod terminal;
mod undo;

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use self::keys::{Matcher, Sequence};
use self::link::{Link, Progress, Uplink};
use self::mode::{Mode, Wanted};
use self::pump::{Inbox, News, Outbox};
use crate::diagnostics;
use crate::exit::Exit;
use crate::find;
use crate::limits;
use crate::list;
use crate::name::AppName;
use crate::proto::{AppStatus, Exclusive, Redraw, Rights};
use crate::state::AppDir;
use crate::stream::{Epoch, Position, Stream};

/// What is to be attached, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The app.
    pub dir: AppDir,
    /// Which of its streams.
    pub mode: Mode,
    /// How long to wait for the app: zero not at all, `None` for ever.
    pub wait: Option<Duration>,
    /// How long to look for a new mux when a session loses its own: zero not at all.
    pub reconnect: Duration,
    /// Where in its streams to begin.
    pub from: Position,
    /// What a terminal is to show first.
    pub redraw: Option<Redraw>,
    /// Whether to look only, and to type nothing.
    pub read_only: bool,
    /// Whether the end of our input ends the app's.
    pub stdin_once: bool,
    /// Whether nobody else is to type meanwhile.
    pub exclusive: Option<Exclusive>,
    /// The keys that detach, when the input is a terminal.
    pub detach_keys: Sequence,
}

/// What a terminal shows first if nobody has said: the screen, unless an offset was asked for. In a
/// pipe or file the app's own bytes are wanted.
#[must_use]
pub fn usual_redraw(from: Position) -> Option<Redraw> {
    (from == Position::Unseen && io::stdout().is_terminal()).then_some(Redraw::Screen)
}

/// Why a program's input does not go on with another mux.
const UNSURE: &str = ", and whether the app was given all of the input is not known";

/// How an attach goes on.
enum Step {
    Continue,
    Leave(Exit),
}

/// What has become of this process's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// It is read as fast as it is taken.
    Open,
    /// Somebody else types alone, or we may only look.
    Held,
    /// It has ended, and the mux is told so.
    Ended,
    /// Nobody wants it, or wants it any more.
    Closed,
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
    request: &'a Request,
    outbox: Outbox,
    /// The way to the app, while there is one.
    uplink: Option<Uplink>,
    input: Input,
    /// Whether some of a program's input was sent, and is not known to be with the app.
    unconfirmed: bool,
    keys: Matcher,
    /// Whether our terminal is raw.
    raw: bool,
    /// Connections that have not ended.
    open: usize,
    /// What is attached.
    wanted: Wanted,
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
}

/// Attaches, and stays until it is over.
///
/// # Errors
/// When there is nothing to attach to, or something of this process fails.
pub fn attach(request: &Request) -> Result<Exit> {
    let Request { dir, mode, wait, detach_keys, .. } = request;
    if *mode == Mode::List {
        let endpoints = find::retry(dir, *wait, |endpoints| Ok(endpoints.clone()))?;
        return list::show(&endpoints, "\n").map(|()| Exit::Done);
    }
    let link = find::retry(dir, *wait, |endpoints| link::dial(request, endpoints, None))?;
    let (outbox, inbox) = pump::mailbox().context("making a mailbox")?;
    let types = link.wanted.input.is_some();
    let on_tty = link.wanted.all().any(|s| s == Stream::Tty);
    terminal::restore_on_panic();
    let raw = types && on_tty && terminal::make_raw().context("the local terminal")?;
    let outcome = (|| {
        pump::catch_signals(outbox.another()?, raw)?;
        let mut attached = Attached {
            request,
            outbox,
            uplink: None,
            input: if types { Input::Open } else { Input::Closed },
            unconfirmed: false,
            raw,
            keys: Matcher::new(detach_keys.clone().only_if(raw)),
            open: 0,
            wanted: link.wanted.clone(),
            epoch: link.epoch,
            farewell: None,
            missing: 0,
            gap: None,
            uncertain: false,
            ended: None,
        };
        attached.begin(link)?;
        attached.stay(&inbox)
    })();
    terminal::restore();
    // From the connection on a failure has a code of its own: the app's status is then not known.
    Ok(outcome.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Lost)))
}

impl Attached<'_> {
    /// Carries what comes over new connections.
    fn begin(&mut self, link: Link) -> Result<()> {
        self.farewell = None;
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
            self.pass_on_held_keys();
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
        // With nobody there, or while we may not type, a person's keys are still looked at; a
        // program's input waits.
        let reads = match (self.input, uplink) {
            (Input::Open, Some(uplink)) => uplink.room() > 0,
            (Input::Open, None) | (Input::Held, _) => self.raw,
            (Input::Ended | Input::Closed, _) => false,
        };
        let input = add(reads, stdin.as_fd(), PollFlags::POLLIN);
        // No event is asked for: that a reader has gone is told as an error.
        let shows = self.wanted.outputs.iter().any(|s| *s != Stream::Stderr);
        let output = add(shows, stdout.as_fd(), PollFlags::empty());
        if let Some(uplink) = uplink {
            add(uplink.is_waiting(), uplink.as_fd(), PollFlags::POLLOUT);
        }
        let gap = self.gap.map(|(_, due)| due);
        let deadline = self.keys.deadline().into_iter().chain(gap).min();
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
        })
    }

    /// This process's input has something, or its end.
    fn read_input(&mut self) -> Result<Step> {
        let room = match (self.input, &self.uplink) {
            (Input::Open, Some(uplink)) => uplink.room(),
            // What is typed now goes nowhere.
            _ => limits::READ,
        };
        let mut buffer = vec![0; room.min(limits::READ)];
        let len = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(len) => len,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(Step::Continue),
            // The terminal is gone: that is the end of what is typed on it.
            Err(Errno::EIO) => 0,
            Err(e) => return Err(e).context("reading standard input"),
        };
        if len == 0 {
            self.input = Input::Ended;
            if let Some(uplink) = &mut self.uplink {
                uplink.end();
            }
            return Ok(Step::Continue);
        }
        let mut out = Vec::new();
        let detached = self.keys.push(&buffer[..len], Instant::now(), &mut out);
        self.send(&out);
        if detached {
            // What was typed before goes first, as far as it is taken.
            let _ = self.uplink.as_mut().map_or(Ok(()), Uplink::flush);
            terminal::restore();
            self.say(&format!("detached from app {}", self.name()));
            return Ok(Step::Leave(self.complete(Exit::Done)));
        }
        Ok(Step::Continue)
    }

    /// Input for the app, if there is a way to it.
    fn send(&mut self, bytes: &[u8]) {
        if let Some(uplink) = self.uplink.as_mut().filter(|_| self.input != Input::Held) {
            uplink.input(bytes);
            self.unconfirmed |= !bytes.is_empty() && !io::stdin().is_terminal();
        }
    }

    fn pass_on_held_keys(&mut self) {
        let mut out = Vec::new();
        self.keys.expire(Instant::now(), &mut out);
        self.send(&out);
    }

    fn on_news(&mut self, news: News) -> Result<Step> {
        match news {
            News::Gap(gap) => {
                let len = gap.to.saturating_sub(gap.from);
                self.missing += len;
                // Told when it is over: gaps come in flocks.
                let so_far = self.gap.map_or(0, |(so_far, _)| so_far);
                self.gap = Some((so_far + len, Instant::now() + limits::GAP_QUIET));
            }
            News::Exit(status) => self.farewell = Some(Farewell::App(Exit::App(status.code()))),
            News::AppEnded(status) => self.ended = Some(status),
            News::AppStarted => {
                if let Some(status) = self.ended.take() {
                    let name = self.name();
                    self.say(&format!("app {name} ended {status} and was started again"));
                }
            }
            News::Closing => self.farewell = Some(Farewell::Mux),
            News::Rights(rights) => self.on_rights(&rights),
            News::Detached => {
                terminal::restore();
                self.say(&format!("detached from app {} by request", self.name()));
                return Ok(Step::Leave(self.complete(Exit::Done)));
            }
            News::StdinDone => {
                self.input = Input::Closed;
                self.unconfirmed = false;
                if self.wanted.outputs.is_empty() && !self.request.stdin_once {
                    return Ok(Step::Leave(self.complete(Exit::Done)));
                }
            }
            News::Refused(why) => {
                terminal::restore();
                bail!("attached to app {}: {}", self.name(), why.escape_debug());
            }
            News::OutputClosed => return Ok(Step::Leave(Exit::Done)),
            News::OutputFailed(e) => {
                terminal::restore();
                return Err(e).context("writing standard output");
            }
            News::Signal(SIGWINCH) => self.send_size(),
            News::Signal(SIGTSTP) => {
                terminal::suspend();
                emulate_default_handler(SIGTSTP).context("suspending")?;
            }
            News::Signal(SIGCONT) => {
                terminal::resume().context("the local terminal")?;
                self.send_size();
            }
            News::Signal(signal) => {
                terminal::restore();
                self.tell_missing();
                // Ends this process as the signal would have done, so that a shell can tell.
                emulate_default_handler(signal).context("ending on a signal")?;
            }
            News::Broken => {
                terminal::restore();
                bail!("attached to app {}: an internal error, see above", self.name());
            }
            News::Ended(end, progress) => return self.on_end(end, progress),
            News::Dialled(Ok(link)) => self.go_on(link)?,
            News::Dialled(Err(e)) => return Ok(self.give_up(&e)),
        }
        Ok(Step::Continue)
    }

    /// Whether we type has changed, or a new mux has told.
    fn on_rights(&mut self, rights: &Rights) {
        let (name, why) = (self.name(), rights.why.escape_debug());
        match (self.input, rights.types) {
            (Input::Held, true) => {
                self.say(&format!("attached to app {name}: you type again"));
                self.input = Input::Open;
                self.send_size();
            }
            (Input::Open, false) => {
                self.say(&format!("attached to app {name}: you only look: {why}"));
                self.input = Input::Held;
            }
            _ => {}
        }
    }

    /// A connection has ended; the attach ends with the last one, unless it can be made again.
    fn on_end(&mut self, end: io::Result<()>, progress: Option<Progress>) -> Result<Step> {
        self.open -= 1;
        if self.open > 0 {
            return Ok(Step::Continue);
        }
        self.uplink = None;
        let reconnects = !self.request.reconnect.is_zero();
        match (self.farewell, progress, end) {
            (Some(Farewell::App(exit)), _, _) => Ok(Step::Leave(self.complete(exit))),
            (_, Some(progress), _) if reconnects => self.reconnect(progress),
            (Some(Farewell::Mux), _, _) => Ok(Step::Leave(self.complete(Exit::Done))),
            // The end of a raw socket is all that it has to tell.
            (None, None, Ok(())) => Ok(Step::Leave(self.complete(Exit::Done))),
            (None, _, Ok(())) => Ok(self.lost("")),
            (None, _, Err(e)) => Ok(self.lost(&format!(" ({e})"))),
        }
    }

    /// The mux is gone, for good as far as it matters here.
    fn lost(&self, more: &str) -> Step {
        terminal::restore();
        self.say(&format!("attached to app {}: the mux is gone{more}", self.name()));
        self.tell_missing();
        Step::Leave(Exit::Lost)
    }

    /// Looks for a new mux, in another thread.
    fn reconnect(&self, progress: Progress) -> Result<Step> {
        // What was sent may be with the app, or not: to go on could only hide that.
        let unsure = self.unconfirmed;
        let what = match self.farewell {
            None if unsure => return Ok(self.lost(UNSURE)),
            None => "is gone",
            Some(_) => "has ended",
        };
        let wait = self.request.reconnect;
        self.say(&format!("app {}: the mux {what}; trying again for {wait:?}", self.name()));
        let request = Request {
            mode: Mode::Only(self.wanted.clone()),
            wait: Some(wait),
            // Another app's input is not to be ended by the end of what this one was given.
            stdin_once: self.request.stdin_once && matches!(self.input, Input::Open | Input::Held),
            ..self.request.clone()
        };
        pump::dial(self.outbox.another()?, move || {
            find::retry(&request.dir, request.wait, |endpoints| {
                if unsure {
                    bail!("there is a new mux{UNSURE}");
                }
                link::dial(&request, endpoints, Some(&progress))
            })
        })?;
        Ok(Step::Continue)
    }

    /// There is a new mux, and it has welcomed us.
    fn go_on(&mut self, link: Link) -> Result<()> {
        let reads = !self.wanted.outputs.is_empty();
        let knows = self.epoch.is_some() && self.epoch == link.epoch || !reads;
        let but = if knows { "" } else { "; what it wrote meanwhile may be missing" };
        self.say(&format!("app {}: attached again{but}", self.name()));
        self.uncertain |= !knows;
        self.epoch = link.epoch;
        self.begin(link)?;
        let over = matches!(self.input, Input::Ended | Input::Closed);
        if let Some(uplink) = self.uplink.as_mut().filter(|_| over) {
            uplink.end();
        }
        // The window may have changed since it was sent.
        self.send_size();
        Ok(())
    }

    /// There is no new mux, or it does not take us.
    fn give_up(&self, why: &anyhow::Error) -> Step {
        match self.farewell {
            Some(_) if find::is_absence(why) => Step::Leave(self.complete(Exit::Done)),
            None if find::is_absence(why) => self.lost(""),
            _ => self.lost(&format!("; {why:#}")),
        }
    }

    fn send_size(&mut self) {
        if let (Some(uplink), Some(size)) = (&mut self.uplink, terminal::size()) {
            uplink.resize(size);
        }
    }

    fn name(&self) -> &AppName {
        self.request.dir.name()
    }

    /// Tells people something, on a line of its own: behind what the app has shown on the terminal.
    fn say(&self, text: &str) {
        if self.raw { diagnostics::say_on_screen(text) } else { diagnostics::say(text) }
    }

    /// The end as it is told: bytes that were lost make it incomplete.
    fn complete(&self, exit: Exit) -> Exit {
        terminal::restore();
        self.tell_missing();
        if self.missing > 0 || self.uncertain { Exit::Incomplete } else { exit }
    }

    fn tell_missing(&self) {
        let name = self.name();
        if self.missing > 0 {
            let missing = self.missing;
            self.say(&format!(
                "attached to app {name}: {missing} bytes were lost: more came meanwhile than \
                 the mux keeps"
            ));
        }
        if self.uncertain {
            self.say(&format!(
                "attached to app {name}: what it wrote between two muxes may be missing"
            ));
        }
    }
}

/// What [`Attached::wait`] found.
struct Heard {
    news: bool,
    output_closed: bool,
    input: bool,
}
