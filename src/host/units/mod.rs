//! The units that make a service attachable, and their description.
//!
//! `mode`, `manifest`, `text` and `render` are pure. `unit_dir` is the directory of the files, and
//! `write` fills it for any systemd. docs/units-reference.md has the reason for each line of a unit.

pub(crate) mod hooks;
pub(crate) mod journal_plan;
pub(crate) mod manifest;
pub(crate) mod mode;
pub(crate) mod render;
pub(crate) mod unit_dir;
pub(crate) mod unit_text;
pub(crate) mod write;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::mode::{StreamMode, StreamModes};

use clap::ValueEnum;

use self::journal_plan::JournalPlan;
use self::unit_text::{UnitOwner, program, value};
use crate::types::name::{AppName, NameError};
use crate::types::service::ServiceName;
use crate::types::stream::Stream;

/// The name of each drop-in, which sorts before those of most administrators.
pub(crate) const DROP_IN: &str = "50-iottymux.conf";
/// The name of the file with the options of a mux, beside its drop-in.
pub(crate) const ENV: &str = "iottymux.env";
/// What ends the name of a terminal's mux beside another one.
const TERMINAL: &str = "-tty";
/// The name by which systemd finds the program.
const BINARY: &str = "iottymux";
/// The state directory of the templates.
const STATE: &str = "/run/iottymux";
/// The same for a user's own services (`%t` is the directory of the session).
const USER_STATE: &str = "%t/iottymux";
/// The commands that systemd runs besides the service's own. They do not get the streams of socket
/// units: they fail, and mostly the service with them.
pub(crate) const HOOKS: [&str; 6] =
    ["ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"];

/// How the app gets its streams; the comments are the help of `--layout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// The service opens the FIFOs or terminal of the mux by path.
    #[default]
    Direct,
    /// Socket units connect both, as in rkt; systemd itself loses output in this layout.
    Sockets,
}

/// The kinds of mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// With FIFOs.
    Streams,
    /// With a terminal.
    Terminal,
}

impl UnitKind {
    const ALL: [Self; 2] = [Self::Streams, Self::Terminal];

    /// The name of its template before the `@`.
    const fn template(self) -> &'static str {
        match self {
            Self::Streams => "iomux",
            Self::Terminal => "ttymux",
        }
    }

    /// The unit of a mux of this name.
    pub(crate) fn unit(self, name: &AppName) -> String {
        format!("{}@{name}.service", self.template())
    }

    /// The command that runs it.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Streams => "stream",
            Self::Terminal => "tty",
        }
    }
}

/// Whether a unit is a mux.
pub(crate) fn is_mux(unit: &str) -> bool {
    let template = unit.split_once('@').map(|(template, _)| template);
    UnitKind::ALL.iter().any(|kind| template == Some(kind.template()))
}

/// An environment variable that sets an option of a mux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// Without control characters.
    pub(crate) value: String,
    /// The muxes that have this option.
    pub(crate) kinds: Vec<UnitKind>,
    /// Whether only one mux may have it, since two would write the same log.
    pub(crate) is_log: bool,
}

/// An app to make attachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppUnits {
    pub(crate) name: AppName,
    /// The service that is the app.
    pub(crate) service: ServiceName,
    /// The words of the `enable` that has made it, for the next one; none for `units`.
    pub(crate) words: Vec<String>,
    /// The modes of its streams.
    pub(crate) modes: StreamModes,
    /// Whether streams of mode `log` go to a file of the mux instead of the journal.
    pub(crate) logs_to_file: bool,
    /// Options of its mux.
    pub(crate) variables: Vec<Variable>,
    /// The files of its logs.
    pub(crate) logs: Vec<String>,
    /// How its lines get into the journal.
    pub(crate) journal: JournalPlan,
    /// Whether its service reports each start and end to its mux, by commands of root.
    pub(crate) has_hooks: bool,
    /// What is typed when the service is stopped.
    pub(crate) stop_line: Option<StopLine>,
    /// Whether the service itself says what its terminal is (`TERM`).
    pub(crate) sets_term: bool,
}

/// A line that has a service save and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StopLine {
    /// The line, without its end.
    pub(crate) line: String,
    /// How long the service has.
    pub(crate) time: Duration,
}

/// Settings common to all apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// How the apps get their streams.
    pub(crate) layout: Layout,
    /// The state directory, if not the usual one.
    pub(crate) state: Option<String>,
    /// The path of the program, if systemd does not find it by its bare name.
    pub(crate) binary: Option<String>,
    /// The path at which systemd sees the directory of the files.
    pub(crate) seen_as: String,
    /// Whether the services are a user's own.
    pub(crate) user: bool,
    /// Whether the services are the apps of a rkt pod, whose console shows their logs.
    pub(crate) of_pod: bool,
}

/// A file of an app's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitFile {
    /// Relative to the directory of units.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The mux of an app, or one of its two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MuxUnit {
    pub(crate) kind: UnitKind,
    /// The name for attaching: that of the app, with [`TERMINAL`] if the app has another mux.
    pub(crate) name: AppName,
    streams: Vec<Stream>,
}

impl MuxUnit {
    /// Whether the app writes to it.
    pub(crate) fn has_output(&self) -> bool {
        self.streams.iter().any(|stream| *stream != Stream::Stdin)
    }

    /// Whether the app reads from it.
    pub(crate) fn has_input(&self) -> bool {
        self.streams.contains(&Stream::Stdin)
    }

    /// The name of its unit.
    pub(crate) fn unit(&self) -> String {
        self.kind.unit(&self.name)
    }
}

impl AppUnits {
    /// The muxes of the app. A terminal beside other streams has a mux and a name of its own.
    pub(crate) fn muxes(&self) -> Result<Vec<MuxUnit>, NameError> {
        let of = |kind| -> Vec<Stream> {
            self.modes.each().filter(|(_, m)| self.kind(*m) == Some(kind)).map(|(s, _)| s).collect()
        };
        let (streams, terminal) = (of(UnitKind::Streams), of(UnitKind::Terminal));
        let mut muxes = Vec::new();
        if !terminal.is_empty() {
            let alone = streams.is_empty();
            let name = if alone { self.name.clone() } else { beside(&self.name)? };
            muxes.push(MuxUnit { kind: UnitKind::Terminal, name, streams: terminal });
        }
        if !streams.is_empty() {
            muxes.push(MuxUnit { kind: UnitKind::Streams, name: self.name.clone(), streams });
        }
        Ok(muxes)
    }

    /// The kind of mux that has a stream of this mode.
    fn kind(&self, mode: StreamMode) -> Option<UnitKind> {
        match mode {
            StreamMode::Tty => Some(UnitKind::Terminal),
            StreamMode::Stream => Some(UnitKind::Streams),
            StreamMode::Log if self.logs_to_file => Some(UnitKind::Streams),
            StreamMode::Interactive | StreamMode::Log | StreamMode::Null => None,
        }
    }

    /// The owner of its files.
    pub(crate) fn owner(&self) -> UnitOwner<'_> {
        (&self.name, &self.service)
    }
}

/// The name of a terminal's mux beside another one of the app.
fn beside(app: &AppName) -> Result<AppName, NameError> {
    format!("{app}{TERMINAL}").parse()
}

/// The names that muxes of an app can have.
fn names_of(app: &AppName) -> impl Iterator<Item = AppName> {
    [Some(app.clone()), beside(app).ok()].into_iter().flatten()
}

impl Setup {
    /// The state directory as written in units.
    fn state(&self) -> String {
        match &self.state {
            Some(path) => value(path),
            None if self.user => USER_STATE.to_owned(),
            None => STATE.to_owned(),
        }
    }

    /// Whether the muxes run as a user of their own.
    pub(crate) fn has_account(&self) -> bool {
        self.is_split() && !self.user
    }

    /// Whether the layout is that of the templates, in which root or the user's manager makes the
    /// ends.
    fn is_split(&self) -> bool {
        self.state.is_none()
    }

    /// The path of a file of a mux as written in units.
    fn path(&self, mux: &MuxUnit, file: &str) -> String {
        format!("{}/{}/{file}", self.state(), mux.name)
    }

    /// The first word of a command line of iottymux.
    fn command(&self) -> String {
        program(self.binary.as_deref().unwrap_or(BINARY))
    }
}

/// The beginning of the line of a service's drop-in with the words of its `enable`, in JSON.
const WORDS: &str = "# iottymux enable ";

/// That line.
fn words_line(words: &[String]) -> String {
    match serde_json::to_string(words) {
        Ok(text) if !words.is_empty() => format!("{WORDS}{text}\n"),
        _ => String::new(),
    }
}

/// The words in a drop-in; none if `units` has written it.
pub(crate) fn words_in(drop_in: &str) -> Vec<String> {
    let text = drop_in.lines().find_map(|line| line.strip_prefix(WORDS));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The directory of a unit's drop-ins.
pub(crate) fn drop_ins(unit: &str) -> PathBuf {
    PathBuf::from(format!("{unit}.d"))
}

/// Whether one of these muxes has streams of socket units. Then the service cannot have [`HOOKS`].
pub(crate) fn has_sockets(muxes: &[MuxUnit], setup: &Setup) -> bool {
    setup.layout == Layout::Sockets && muxes.iter().any(|mux| mux.kind == UnitKind::Streams)
}
