//! The control messages of the session protocol: their JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FrameKind, VERSION};
pub use crate::types::refused::RefusedReport;
use crate::types::size::{Size, Window};
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::terminal_identity::TerminalId;

/// Why a terminal shows nothing, if a key has stopped its output.
pub(crate) const STOPPED: &str = "output stopped by ^S: ^Q continues it";

/// The protocol version that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version(pub u32);

impl Default for Version {
    fn default() -> Self {
        Self(VERSION)
    }
}

/// The first message of a client: its options. By default it has none, in the current version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Hello {
    /// The client's protocol version.
    pub version: Version,
    /// The output streams to read.
    #[serde(default)]
    pub streams: Vec<Want>,
    /// Whether it asks to type.
    #[serde(default)]
    pub stdin: bool,
    /// Whether the end of its input ends the app's.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether its input is lines, which the mux must not mix with other lines; else the mux
    /// chooses.
    #[serde(default)]
    pub lines: bool,
    /// How a return behind a line comes to a raw terminal; as it is sent if it is left out. A client that
    /// says so types one line, and is refused if the app has ended and does not run.
    pub enter: Option<Enter>,
    /// Whether it asks for the lock: then no other client can type.
    pub exclusive: Option<Exclusive>,
    /// Whether it is told what other clients do.
    #[serde(default)]
    pub events: bool,
    /// Its window, if it has one.
    pub size: Option<Window>,
    /// The first view of a terminal; without it, output starts at `from`.
    pub redraw: Option<Redraw>,
    /// Which lines that scrolled off the terminal's screen it gets with the first screen; none if
    /// it is left out.
    pub history: Option<History>,
    /// How long it may hold the app back, in milliseconds; the mux's own limit if it is left out,
    /// and never more.
    pub patience_ms: Option<u32>,
    /// The epoch that its offsets are of; the mux's own if it is left out.
    pub epoch: Option<Epoch>,
    /// The name of its input, if that is to go on with another mux.
    pub input: Option<InputIdentity>,
}

impl Hello {
    /// Whether the client comes to type: it only types, or one line.
    pub(crate) fn must_type(&self) -> bool {
        self.stdin && (self.streams.is_empty() || self.enter.is_some())
    }

    /// Its streams for a mux of this epoch. An offset of another epoch becomes the oldest byte
    /// kept.
    pub(crate) fn wants(&self, epoch: Epoch) -> Vec<Want> {
        let is_other = self.epoch.is_some_and(|its| its != epoch);
        let here = |want: &Want| match want.from {
            Position::Offset(_) if is_other => Want { from: Position::Start, ..*want },
            _ => *want,
        };
        self.streams.iter().map(here).collect()
    }
}

/// Names the input of one client, over all of its connections: a random number, in JSON as an
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputId(pub Epoch);

/// The input of a client that may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputIdentity {
    /// Its name.
    pub id: InputId,
    /// Whether it was sent to a mux before: it goes on only if the mux knows of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// If it goes on, its end ends the app's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// How much of a client's input is queued for the app. The next mux has that, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPosition {
    /// Bytes that are queued, or with the app: the rest is to be sent.
    pub offset: u64,
    /// Bytes of these that may not have arrived, all in all: a mux was killed while it wrote them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

/// What another client did, or happened by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ClientEvent {
    /// It reads or types.
    Attached(Who),
    /// It has gone.
    Detached(Who),
    /// It typed so many bytes.
    Typed {
        /// It.
        #[serde(flatten)]
        who: Who,
        /// Their number.
        bytes: u64,
    },
    /// The terminal has this size.
    Resized(Size),
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Its number, as in a [`Report`].
    pub client: u64,
    /// Its user.
    pub uid: u32,
    /// Its process, as its own machine counts.
    pub pid: i32,
}

/// Where the app was given the last input of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputTaken {
    /// What the app had written before, for each output: none of that is an answer.
    pub outputs: Vec<Begin>,
    /// Whether the terminal edits lines and does not show them, as for passwords.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// How a return comes to a raw terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enter {
    /// In a read of its own, a while behind the line: some programs take both in one read for a paste.
    Apart,
}

/// How a client asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exclusive {
    /// Fail if another client has the lock.
    Ask,
    /// Take the lock, and make its holder read-only.
    Take,
    /// Wait until no other client of this right has the lock, and take it then.
    Wait,
}

/// A stream that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Its name.
    pub stream: Stream,
    /// Where to begin.
    #[serde(default)]
    pub from: Position,
}

/// The first message of the mux to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that will be spoken.
    pub version: u32,
    /// The epoch of all offsets; a mux that cannot go on for another one leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The streams that follow.
    pub streams: Vec<Begin>,
    /// How many others are attached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: usize,
    /// Why it does not type now, though it asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<Rights>,
    /// From where on its input is to be sent, if its name was given and the mux keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputPosition>,
    /// Whether it gets the history that it asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub history: bool,
    /// As in [`Report`].
    #[serde(default, rename = "stopped", skip_serializing_if = "is_zero")]
    pub is_stopped: bool,
    /// The app is a service: a client asks again before it sends a key that may end it.
    #[serde(default, rename = "guarded", skip_serializing_if = "is_zero")]
    pub is_guarded: bool,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Its name.
    pub stream: Stream,
    /// Offset of the first byte that will come.
    pub offset: u64,
}

/// A screen follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Redrawn {
    /// It replaces everything of this stream…
    pub stream: Stream,
    /// …before this offset.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The size of the terminal, if it is a screen of that.
    pub size: Option<Size>,
}

/// The first view of a terminal. A hello leaves out `None`; a backlog comes without queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Redraw {
    /// The current screen.
    Screen,
    /// All output that the mux keeps.
    Backlog,
    /// Output from the position of --from on.
    #[serde(skip)]
    None,
}

/// Lines that scrolled off the screen of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// They are printed before the first screen, so that they scroll off the client's screen.
    Before,
    /// They come instead of a screen, with the lines on it, as text with colours. Nothing follows.
    Only,
}

/// Bytes that this client lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The stream.
    pub stream: Stream,
    /// Offset of the first byte lost.
    pub from: u64,
    /// Offset of the next byte that will come.
    pub to: u64,
}

/// A stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The stream.
    pub stream: Stream,
}

/// Whether a client that wants to type may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Whether its input goes to the app. Otherwise typed input waits.
    pub types: bool,
    /// One line for people: why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Whether that is only until a script has its answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One line for people.
    pub error: String,
    /// Whether only room is missing, so that a later connection may be accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
}

/// There is no room for a client now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom(pub String);

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoRoom {}

/// How an app ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppStatus {
    /// It exited with this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
}

impl AppStatus {
    /// The status as a shell would give it: 128 + n for signal n.
    pub fn code(self) -> u8 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// To be put behind "ended".
impl fmt::Display for AppStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "with status {status}"),
            Self::Signal(signal) => write!(f, "by signal {signal}"),
        }
    }
}

/// An app runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its main process.
    pub pid: u32,
}

/// A turn in an app's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifecycleEvent {
    /// It has ended so.
    Ended(AppStatus),
    /// It runs.
    Started(Started),
}

impl LifecycleEvent {
    /// The frame that reports it to a session.
    pub(crate) fn frame(self) -> Vec<u8> {
        match self {
            Self::Ended(status) => FrameKind::Ended.message(&status),
            Self::Started(started) => FrameKind::Started.message(&started),
        }
    }
}

/// The status of a mux, its app and its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The app's name.
    pub app: String,
    /// Where the mux is in its life: `ready`, `draining` or `delivering`.
    pub state: String,
    /// The mux's process.
    pub mux_pid: u32,
    /// The version of its program.
    pub version: String,
    /// Milliseconds since the mux was ready.
    pub uptime_ms: u64,
    /// The app's process, where it is known and has not ended.
    pub app_pid: Option<u32>,
    /// How the app ended last, where that is known; with an `app_pid` it runs again.
    pub app_ended: Option<AppStatus>,
    /// The service that is the app, unless `run` or an engine has started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How often the app was started again, also under earlier muxes of this run.
    pub restarts: u64,
    /// The app's terminal, as long as that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalId>,
    /// Whether a client has stopped the output of the terminal by a key (^S).
    #[serde(default, rename = "stopped", skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
    /// What of the app's output no viewer's terminal gets by default.
    #[serde(default, skip_serializing_if = "RefusedReport::is_empty")]
    pub refused: RefusedReport,
    /// Bytes of input that the app has not read.
    pub unread: u64,
    /// The app's output streams.
    pub streams: Vec<StreamReport>,
    /// The connected clients, oldest first, the one that asks included; at most a frame holds.
    pub clients: Vec<ClientReport>,
    /// Clients that are connected and not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: usize,
    /// The logs.
    pub logs: Vec<LogReport>,
    /// The last errors of the mux, oldest first.
    pub errors: Vec<ErrorReport>,
}

/// Where an app is in its life, in the words of rkt's app-level API, as far as its mux knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AppState {
    /// No mux reports it.
    Unknown,
    /// Its mux is being started.
    Preparing,
    /// It can be started and attached; no hook has reported that it runs.
    Prepared,
    /// It runs with other streams than those of its mux, until it is restarted.
    Pending,
    /// It runs, or has said something.
    Running,
    /// Its mux delivers the last output.
    Stopping,
    /// It has ended.
    Exited,
}

impl AppState {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Preparing => "preparing",
            Self::Prepared => "prepared",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
        }
    }
}

impl Report {
    /// The clients that read or type.
    pub(crate) fn attached(&self) -> usize {
        let is_person = |client: &&ClientReport| !client.engine && client.is_attached();
        self.clients.iter().filter(is_person).count() + self.unlisted
    }

    /// Why a terminal shows nothing, if a key has stopped its output.
    pub(crate) fn stopped(&self) -> Option<&'static str> {
        self.is_stopped.then_some(STOPPED)
    }

    /// Where the app is in its life.
    pub(crate) fn app_state(&self) -> AppState {
        let has_spoken = self.streams.iter().any(|stream| stream.bytes > 0);
        match (self.state.as_str(), self.app_pid, self.app_ended) {
            ("ready", Some(_), _) => AppState::Running,
            ("ready", None, Some(_)) => AppState::Exited,
            ("ready", None, None) if has_spoken => AppState::Running,
            ("ready", None, None) => AppState::Prepared,
            _ => AppState::Stopping,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// The log's specification, as given.
    pub log: String,
    /// Why it cannot be written, while it cannot.
    pub failing: Option<String>,
    /// Lines that were lost to it.
    pub lost_lines: u64,
    /// Bytes of the app that were lost to it.
    pub lost_bytes: u64,
}

/// A complaint of a mux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// When: milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// One line for people.
    pub error: String,
}

/// Something that a mux is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum ControlRequest {
    /// To let go of a client.
    Detach {
        /// Its number in the report.
        client: u64,
    },
    /// To let go of the client that typed last at the terminal.
    #[serde(rename = "detach-typist")]
    DetachTypist,
    /// To give the terminal a size.
    Resize(Size),
    /// Reopen the log files; the answer comes when the new ones are open.
    #[serde(rename = "reopen-logs")]
    ReopenLogs,
    /// To know that the app has ended so; from the app's unit.
    Ended(AppStatus),
    /// To know that the app has been started; from the app's unit.
    Started(Started),
    /// To know that the app is being stopped: nothing may keep it from writing; from the app's unit.
    Stopping,
    /// To know that the app has ended, nobody knows how; from the keeper of a container.
    Vanished,
    /// End, because the app cannot be started; from the keeper of `run`.
    #[serde(rename = "not-started")]
    NotStarted {
        /// One line for people.
        error: String,
    },
    /// End, so that the keeper starts the mux again.
    Restart,
    /// Have the keeper send the app a signal.
    Signal {
        /// The signal's number.
        number: u8,
    },
}

impl ControlRequest {
    /// Whether it is about the app's life cycle.
    pub(crate) fn is_report(&self) -> bool {
        use ControlRequest::{Ended, NotStarted, Started, Stopping, Vanished};
        matches!(self, Ended(_) | Started(_) | Stopping | Vanished | NotStarted { .. })
    }
}

/// The client's action, for the log.
impl fmt::Display for ControlRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Detach { client } => write!(f, "asks to detach client {client}"),
            Self::DetachTypist => f.write_str("asks to detach the client that typed last"),
            Self::Resize(Size { rows, cols }) => write!(f, "asks for a terminal of {rows}x{cols}"),
            Self::ReopenLogs => f.write_str("asks to reopen the logs"),
            Self::Ended(status) => write!(f, "reports that the app has ended {status}"),
            Self::Started(Started { pid }) => write!(f, "reports that the app runs as pid={pid}"),
            Self::Stopping => f.write_str("reports that the app is being stopped"),
            Self::Vanished => f.write_str("reports that the app has ended, nobody knows how"),
            Self::NotStarted { .. } => f.write_str("reports that the app cannot be started"),
            Self::Restart => f.write_str("asks for a restart of the mux"),
            Self::Signal { number } => write!(f, "sends the app signal {number}"),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// Why it was not done; nothing when it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One output stream of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its name.
    pub stream: Stream,
    /// Bytes that the app has written.
    pub bytes: u64,
    /// Bytes kept that no client has been given yet.
    pub unseen: u64,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Its number, as long as this mux lives.
    pub client: u64,
    /// Its user.
    pub uid: u32,
    /// Its process; 0 if the mux cannot see its pid namespace.
    pub pid: i32,
    /// Milliseconds since it connected.
    pub connected_ms: u64,
    /// Milliseconds in which it has taken nothing, though output waits for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stalled_ms: u64,
    /// Whether its input goes to the app now.
    pub types: bool,
    /// Whether it is the only one that types.
    pub exclusive: bool,
    /// Whether it is the engine of a container; then user and process are those of the mux.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub engine: bool,
    /// The streams that it reads.
    pub streams: Vec<PlaceReport>,
}

impl ClientReport {
    /// Whether it reads or types.
    pub(crate) fn is_attached(&self) -> bool {
        self.types || !self.streams.is_empty()
    }
}

/// A client's place on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceReport {
    /// The stream.
    pub stream: Stream,
    /// Offset of the next byte that it will be given.
    pub position: u64,
    /// Bytes that it has still to be given.
    pub lag: u64,
    /// Bytes that it has lost.
    pub lost: u64,
    /// Bytes of a terminal in whose place it was shown the screen, since it was too slow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
}
