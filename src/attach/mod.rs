//! The client: this process's streams on an app's, until either side ends it.
//!
//! The main thread polls what it must not block on: this process's input, the way to the app, the
//! news from the [`pump`] threads. The threads may block, on a slow terminal as on a full pipe.
//! Inherited descriptors are shared with the shell and keep their flags. Invariant: the local
//! terminal is as before on every way out.

pub mod keys;
mod link;
pub mod mode;
mod pump;
mod terminal;
mod undo;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use self::keys::{Matcher, Sequence};
use self::link::{Link, Uplink};
use self::mode::{Mode, Wanted};
use self::pump::{Inbox, News};
use crate::diagnostics;
use crate::exit::Exit;
use crate::find;
use crate::limits;
use crate::list;
use crate::proto::{AppStatus, Exclusive, Rights};
use crate::state::AppDir;
use crate::stream::{Position, Stream};

/// What is to be attached, and how.
#[derive(Debug)]
pub struct Request {
    /// The app.
    pub dir: AppDir,
    /// Which of its streams.
    pub mode: Mode,
    /// How long to wait for the app: zero not at all, `None` for ever.
    pub wait: Option<Duration>,
    /// Where in its streams to begin.
    pub from: Position,
    /// Whether to look only, and to type nothing.
    pub read_only: bool,
    /// Whether the end of our input ends the app's.
    pub stdin_once: bool,
    /// Whether nobody else is to type meanwhile.
    pub exclusive: Option<Exclusive>,
    /// The keys that detach, when the input is a terminal.
    pub detach_keys: Sequence,
}

/// How an attach goes on.
enum Step {
    Continue,
    Leave(Exit),
}

/// What becomes of this process's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Typing {
    /// It goes to the app.
    Open,
    /// Somebody else types alone, or we may only look.
    Held,
    /// It has ended, or there never was one.
    Over,
}

/// An attach under way.
struct Attached {
    name: String,
    uplink: Option<Uplink>,
    typing: Typing,
    keys: Matcher,
    /// Whether our terminal is raw.
    raw: bool,
    /// Connections that have not ended.
    open: usize,
    /// What is attached.
    wanted: Wanted,
    stdin_once: bool,
    /// How it will end when the connections do.
    outcome: Option<Exit>,
    /// Bytes told missing.
    missing: u64,
    /// How the app ended, until it is started again.
    ended: Option<AppStatus>,
}

/// Attaches, and stays until it is over.
///
/// # Errors
/// When there is nothing to attach to, or something of this process fails.
pub fn attach(request: &Request) -> Result<Exit> {
    let Request { dir, mode, wait, stdin_once, detach_keys, .. } = request;
    if *mode == Mode::List {
        let endpoints = find::retry(dir, *wait, |endpoints| Ok(endpoints.clone()))?;
        return list::show(&endpoints, "\n").map(|()| Exit::Done);
    }
    let link = find::retry(dir, *wait, |endpoints| link::dial(request, endpoints))?;
    let Link { wanted, uplink, downlinks, rights } = link;
    let (outbox, inbox) = pump::mailbox().context("making a mailbox")?;
    let types = wanted.input.is_some();
    let on_tty = wanted.all().any(|s| s == Stream::Tty);
    terminal::restore_on_panic();
    let raw = types && on_tty && terminal::make_raw().context("the local terminal")?;
    let outcome = (|| {
        pump::catch_signals(outbox.another()?, raw)?;
        let open = downlinks.len();
        for (stream, socket) in downlinks {
            pump::carry(outbox.another()?, socket, stream, wanted.outputs.clone())?;
        }
        let mut attached = Attached {
            name: dir.name().to_string(),
            uplink,
            typing: if types { Typing::Open } else { Typing::Over },
            raw,
            keys: Matcher::new(detach_keys.clone().only_if(raw)),
            open,
            wanted,
            stdin_once: *stdin_once,
            outcome: None,
            missing: 0,
            ended: None,
        };
        if let Some(rights) = &rights {
            attached.on_rights(rights);
        }
        attached.stay(&inbox)
    })();
    terminal::restore();
    // From the connection on a failure has a code of its own: the app's status is then not known.
    Ok(outcome.unwrap_or_else(|e| diagnostics::failed(&e, Exit::Lost)))
}

impl Attached {
    fn stay(&mut self, inbox: &Inbox) -> Result<Exit> {
        loop {
            if let Some(uplink) = &mut self.uplink
                && uplink.flush().is_err()
            {
                // What the mux has still to say comes by the other direction.
                self.typing = Typing::Over;
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
        // Who may not type now can still detach by keys; a pipe waits.
        let listens = match self.typing {
            Typing::Open => true,
            Typing::Held => self.raw,
            Typing::Over => false,
        };
        let reads = listens && uplink.is_some_and(|uplink| uplink.room() > 0);
        let input = add(reads, stdin.as_fd(), PollFlags::POLLIN);
        // No event is asked for: that a reader has gone is told as an error.
        let shows = self.wanted.outputs.iter().any(|s| *s != Stream::Stderr);
        let output = add(shows, stdout.as_fd(), PollFlags::empty());
        if let Some(uplink) = uplink {
            add(uplink.is_waiting(), uplink.as_fd(), PollFlags::POLLOUT);
        }
        let timeout = self.keys.deadline().map_or(PollTimeout::NONE, |deadline| {
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
        let Some(uplink) = &mut self.uplink else { return Ok(Step::Continue) };
        let mut buffer = vec![0; uplink.room().min(limits::READ)];
        let len = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(len) => len,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(Step::Continue),
            // The terminal is gone: that is the end of what is typed on it.
            Err(Errno::EIO) => 0,
            Err(e) => return Err(e).context("reading standard input"),
        };
        if len == 0 {
            uplink.end();
            self.typing = Typing::Over;
            return Ok(Step::Continue);
        }
        let mut out = Vec::new();
        let detached = self.keys.push(&buffer[..len], Instant::now(), &mut out);
        if self.typing == Typing::Open {
            uplink.input(&out);
        }
        if detached {
            // What was typed before goes first, as far as it is taken.
            let _ = uplink.flush();
            terminal::restore();
            self.say(&format!("detached from app {}", self.name));
            return Ok(Step::Leave(Exit::Done));
        }
        Ok(Step::Continue)
    }

    fn pass_on_held_keys(&mut self) {
        let mut out = Vec::new();
        self.keys.expire(Instant::now(), &mut out);
        if let Some(uplink) = self.uplink.as_mut().filter(|_| self.typing == Typing::Open) {
            uplink.input(&out);
        }
    }

    fn on_news(&mut self, news: News) -> Result<Step> {
        match news {
            News::Gap(gap) => self.missing += gap.to.saturating_sub(gap.from),
            News::Exit(status) => self.outcome = Some(Exit::App(status.code())),
            News::AppEnded(status) => self.ended = Some(status),
            News::AppStarted => {
                if let Some(status) = self.ended.take() {
                    self.say(&format!("app {} ended {status} and was started again", self.name));
                }
            }
            News::Closing => self.outcome = Some(Exit::Done),
            News::Detached => {
                terminal::restore();
                self.say(&format!("detached from app {} by request", self.name));
                return Ok(Step::Leave(Exit::Done));
            }
            News::Rights(rights) => self.on_rights(&rights),
            News::StdinDone => {
                self.typing = Typing::Over;
                if self.wanted.outputs.is_empty() && !self.stdin_once {
                    return Ok(Step::Leave(self.complete(Exit::Done)));
                }
            }
            News::Refused(why) => {
                terminal::restore();
                bail!("attached to app {}: {}", self.name, why.escape_debug());
            }
            News::OutputClosed => return Ok(Step::Leave(Exit::Done)),
            News::OutputFailed(e) => {
                terminal::restore();
                return Err(e).context("writing standard output");
            }
            News::Signal(SIGWINCH) => self.tell_size(),
            News::Signal(SIGTSTP) => {
                terminal::suspend();
                emulate_default_handler(SIGTSTP).context("suspending")?;
            }
            News::Signal(SIGCONT) => {
                terminal::resume().context("the local terminal")?;
                self.tell_size();
            }
            News::Signal(signal) => {
                terminal::restore();
                // Ends this process as the signal would have done, so that a shell can tell.
                emulate_default_handler(signal).context("ending on a signal")?;
            }
            News::Broken => {
                terminal::restore();
                bail!("attached to app {}: an internal error, see above", self.name);
            }
            News::Ended(end) => return Ok(self.on_end(end)),
        }
        Ok(Step::Continue)
    }

    /// Whether we type has changed.
    fn on_rights(&mut self, rights: &Rights) {
        let (name, why) = (&self.name, rights.why.escape_debug());
        match (self.typing, rights.types) {
            (Typing::Held, true) => {
                self.say(&format!("attached to app {name}: you type again"));
                self.typing = Typing::Open;
                self.tell_size();
            }
            (Typing::Open, false) => {
                self.say(&format!("attached to app {name}: you only look: {why}"));
                self.typing = Typing::Held;
            }
            _ => {}
        }
    }

    /// Tells the mux of the local window.
    fn tell_size(&mut self) {
        if let (Some(uplink), Some(size)) = (&mut self.uplink, terminal::size()) {
            uplink.resize(size);
        }
    }

    /// A connection has ended; the attach ends with the last one.
    fn on_end(&mut self, end: io::Result<()>) -> Step {
        self.open -= 1;
        let session = self.uplink.as_ref().is_some_and(Uplink::is_session);
        let exit = match (self.outcome, end) {
            _ if self.open > 0 => return Step::Continue,
            (Some(exit), _) => exit,
            // The end of a raw socket is all that it has to tell.
            (None, Ok(())) if !session => Exit::Done,
            (None, end) => {
                terminal::restore();
                let why = end.err().map_or(String::new(), |e| format!(" ({e})"));
                self.say(&format!("attached to app {}: the mux is gone{why}", self.name));
                return Step::Leave(Exit::Lost);
            }
        };
        Step::Leave(self.complete(exit))
    }

    /// Tells people something, on a line of its own: behind what the app has shown on the terminal.
    fn say(&self, text: &str) {
        diagnostics::say(self.raw, text);
    }

    /// The end as it is told: bytes that were lost make it incomplete.
    fn complete(&self, exit: Exit) -> Exit {
        terminal::restore();
        if self.missing == 0 {
            return exit;
        }
        self.say(&format!(
            "attached to app {}: {} bytes were lost, this output was too slow",
            self.name, self.missing
        ));
        Exit::Incomplete
    }
}

/// What [`Attached::wait`] found.
struct Heard {
    news: bool,
    output_closed: bool,
    input: bool,
}
