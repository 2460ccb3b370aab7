//! Consoles of apps, for programs in Rust: what `ask`, `send`, `wait`, `screen` and `events` do.
//!
//! This module is the library; what the crate has besides is the program, and may change. All of it
//! is async and needs a runtime of tokio with its drivers (`enable_all`). What waits ends when its
//! future is dropped: use `tokio::time::timeout`. A session goes on under the next mux when its mux
//! is killed, as that of the commands does. `examples/` has two whole programs.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use iottymux::client::{AnswerEnd, App, Condition};
//!
//! # async fn save() -> anyhow::Result<()> {
//! let game = App::find("game")?;
//! let end = AnswerEnd::Until("[Ss]aved".to_owned());
//! let answer = game.ask("save-all", end, Duration::from_secs(60)).await?;
//! println!("{}", answer.text());
//! game.send("say saved").await?;
//! game.wait(Condition::Idle(Duration::from_secs(1))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A program that waits for several apps has a task for each of them:
//!
//! ```no_run
//! use iottymux::client::{App, Event};
//!
//! # async fn watch() -> anyhow::Result<()> {
//! let follow = |name| async move {
//!     let mut events = App::find(name)?.events(None).await?;
//!     while let Some(event) = events.next().await? {
//!         if let Event::Ended(status) = event {
//!             println!("{name} ended: {status:?}");
//!         }
//!     }
//!     anyhow::Ok(())
//! };
//! let mut apps: tokio::task::JoinSet<_> = ["game", "bot"].map(follow).into_iter().collect();
//! while let Some(done) = apps.join_next().await {
//!     done??;
//! }
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::client::containers;
use crate::client::script::answer::{self, AskRequest, Outcome};
use crate::client::script::script_session::{AT_ONCE, Session, SessionEvent};
use crate::client::script::wait::{Wait, WaitConditions};
use crate::client::script::{self, send, view};
use crate::core::wire::Hello;
use crate::sys::state::{AppDir, StateDir};
use crate::types::container_id;
use crate::types::limits;

pub use crate::client::script::answer::AnswerLine;
pub use crate::client::script::wait::Met;
pub use crate::core::wire::{AppStatus, ClientEvent, Gap, InputTaken};
pub use crate::types::stream::{Position, Stream};

/// An app with a mux, on this machine.
#[derive(Clone, Debug)]
pub struct App {
    dir: AppDir,
}

/// What ends an answer, besides the end of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// Text that matches this regular expression (of the crate regex-lite), in one line. The answer
    /// has the match.
    Until(String),
    /// A pause of this length after some output.
    Idle(Duration),
    /// The mark of a shell that its command has ended (OSC 133;D).
    Command,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its lines, without control sequences. The last one may have no end.
    pub lines: Vec<AnswerLine>,
    /// The exit status of the shell's command, if the shell told it.
    pub status: Option<u8>,
    /// Whether a part of it is lost: this client or the mux was too slow, or the mux was killed.
    pub is_incomplete: bool,
}

/// What can be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Text that matches this regular expression, in one line of the output from this position on.
    Output(String, Position),
    /// The same in a row of the terminal's screen.
    Screen(String),
    /// A pause of the output of this length.
    Idle(Duration),
    /// The app runs and can be attached; it may have to start first.
    Ready,
    /// The app ends.
    Ended,
}

/// What happened to an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Output, and the offset behind its last byte.
    Output {
        /// Of this stream.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
        /// What [`Position::Offset`] takes to go on behind them.
        end: u64,
    },
    /// This output is lost; an unknown amount if the mux has begun anew.
    Lost(Option<Gap>),
    /// The app was started again.
    Started,
    /// The app has ended, and how, if that is known. It may be started again.
    Ended(Option<AppStatus>),
    /// The mux was restarted; nothing is lost by that alone.
    Restarted,
    /// What another client did.
    Client(ClientEvent),
}

/// The events of an app.
#[derive(Debug)]
pub struct Events {
    session: Session,
    is_over: bool,
}

impl App {
    /// The app of this name, or of this service or container, as commands take it. It need not run.
    ///
    /// # Errors
    ///
    /// If this is no name, or this user has no directory for apps.
    pub fn find(name: &str) -> Result<Self> {
        Self::found(None, name)
    }

    /// The same with this state directory, as `--state-dir` has it.
    ///
    /// # Errors
    ///
    /// As [`App::find`].
    pub fn in_directory(state: &Path, name: &str) -> Result<Self> {
        Self::found(Some(state.to_owned()), name)
    }

    fn found(state: Option<PathBuf>, name: &str) -> Result<Self> {
        let app = container_id::app(name).context("expected the name of an app")?;
        let state = StateDir::with_app(state, &app)?;
        Ok(Self { dir: state.app(&containers::app(&state, &app, name)?) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.dir.name().as_str()
    }

    /// Types a line and Enter. Returns when the app has taken it, and where its outputs were then.
    ///
    /// # Errors
    ///
    /// If the app does not run, this user may not type, or the app ends before it has the line.
    pub async fn send(&self, line: &str) -> Result<InputTaken> {
        send::type_line(&self.dir, line.as_bytes(), true).await
    }

    /// Presses keys by their names, as `send --keys` takes them: `C-c`, `Up`, `F5`. Other words are
    /// typed as they are.
    ///
    /// # Errors
    ///
    /// As [`App::send`], and for a key that no terminal sends.
    pub async fn press(&self, keys: &[&str]) -> Result<InputTaken> {
        send::type_keys(&self.dir, keys).await
    }

    /// Types a line, and returns what the app prints in answer. Nobody else types meanwhile.
    ///
    /// # Errors
    ///
    /// If the answer has not ended after `timeout` or takes more than 64 MiB, the app ends first or has not
    /// taken the line, or as [`App::send`].
    pub async fn ask(&self, line: &str, end: AnswerEnd, timeout: Duration) -> Result<Answer> {
        let end = match end {
            AnswerEnd::Until(regex) => answer::AnswerUntil::Until(script::regex(&regex)?, true),
            AnswerEnd::Idle(pause) => answer::AnswerUntil::Idle(pause),
            AnswerEnd::Command => answer::AnswerUntil::Command,
        };
        let (dir, line) = (self.dir.clone(), line.to_owned());
        let request = AskRequest { dir, line, end, timeout, is_shared: false, json: false };
        let mut lines = Vec::new();
        let mut room = limits::ANSWER_BYTES;
        let mut keep = |more: Vec<AnswerLine>| {
            for line in &more {
                room = room.saturating_sub(size_of::<AnswerLine>() + line.text.len());
            }
            if room == 0 {
                bail!(
                    "app {}: the answer takes more than {} bytes",
                    self.name(),
                    limits::ANSWER_BYTES
                );
            }
            lines.extend(more);
            Ok(())
        };
        let (outcome, is_incomplete) = answer::answer(&request, &mut keep).await?;
        if let Some(what) = outcome.what(timeout) {
            bail!("app {}{what}", self.name());
        }
        let status = if let Outcome::Command(status) = outcome { status } else { None };
        Ok(Answer { lines, status, is_incomplete })
    }

    /// Waits until this has come about.
    ///
    /// # Errors
    ///
    /// If it cannot come about any more, since the app has ended or has no terminal.
    pub async fn wait(&self, condition: Condition) -> Result<Met> {
        let mut wanted = WaitConditions::default();
        match condition {
            Condition::Output(regex, from) => {
                (wanted.text, wanted.from) = (Some(script::regex(&regex)?), from);
            }
            Condition::Screen(regex) => wanted.screen = Some(script::regex(&regex)?),
            Condition::Idle(pause) => wanted.idle = Some(pause),
            Condition::Ready => wanted.ready = true,
            Condition::Ended => wanted.exit = true,
        }
        Wait::new(&self.dir, &wanted).run().await
    }

    /// The rows of the terminal's screen, without blanks at their ends; `None` without a terminal.
    ///
    /// # Errors
    ///
    /// If the app does not run, or this user may not attach.
    pub async fn screen(&self) -> Result<Option<Vec<String>>> {
        let (_, view) = view::open(&self.dir, 0, AT_ONCE).await?;
        Ok(view.shown().map(|shown| shown.texts().collect()))
    }

    /// What happens to the app from now on; with `output`, also its output from that position on.
    ///
    /// # Errors
    ///
    /// As [`App::screen`].
    pub async fn events(&self, output: Option<Position>) -> Result<Events> {
        let hello = Hello { events: true, ..Hello::default() };
        let session = Session::open(&self.dir, hello, output, None, AT_ONCE).await?;
        Ok(Events { session, is_over: false })
    }
}

impl Answer {
    /// All of it, with a line end behind each line.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| line.text.clone() + "\n").collect()
    }
}

impl Events {
    /// The next event. `None` when the mux has ended with its app.
    ///
    /// # Errors
    ///
    /// If no other mux follows one that was killed, or an administrator detaches this client.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while !self.is_over {
            let news = self.session.next_or_over().await?;
            self.is_over = matches!(news, SessionEvent::Over(_));
            return Ok(Some(match news {
                SessionEvent::Output(stream, bytes, end) => Event::Output { stream, bytes, end },
                SessionEvent::Lost(gap) => Event::Lost(gap),
                SessionEvent::Started => Event::Started,
                SessionEvent::Ended(status) => Event::Ended(Some(status)),
                SessionEvent::Over(status) => Event::Ended(status),
                SessionEvent::Restarted => Event::Restarted,
                SessionEvent::Client(event) => Event::Client(event),
                _ => continue,
            }));
        }
        Ok(None)
    }
}
