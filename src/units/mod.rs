//! The units that make a service attachable: what is asked for in, texts of files out.
//!
//! `mode`, `manifest` and `text` are pure, and so is what is here: [`files`] cannot fail and reads
//! nothing. `place` is the directory that has the files, `write` fills it for any systemd, `host`
//! makes a service of this machine attachable, whose `manager` it asks. Why each line is in a unit: `docs/units.md`.

pub(crate) mod hooks;
pub(crate) mod journal;
pub(crate) mod manifest;
pub(crate) mod mode;
pub(crate) mod place;
pub(crate) mod text;
pub(crate) mod write;

use std::fmt::Write as _;
use std::path::PathBuf;

pub(crate) use crate::units::mode::{StreamMode, StreamModes};

use clap::ValueEnum;

use crate::mux::app;
use crate::os::state::split_end;
use crate::types::limits;
use crate::types::name::{AppName, NameError};
use crate::types::service::ServiceName;
use crate::types::stream::Stream;
use crate::units::journal::JournalPlan;
use crate::units::text::{UnitOwner, argument, env_value, program, value, with_checksum, word};

/// The name of each drop-in: before those that an administrator adds.
pub(crate) const DROP_IN: &str = "50-iottymux.conf";
/// The name of the file with the options of a mux, beside its drop-in.
pub(crate) const ENV: &str = "iottymux.env";
/// What systemd finds by its bare name.
const BINARY: &str = "iottymux";
/// Where the templates look for state if nobody says otherwise.
const STATE: &str = "/run/iottymux";
/// The same for a user's own services (`%t` is the directory of the session).
const USER_STATE: &str = "%t/iottymux";
/// Where the templates look for options of an app.
const OPTIONS: &str = "/etc/iottymux";
/// The same for a user's own services (`%E` is the directory of the user's configuration).
const USER_OPTIONS: &str = "%E/iottymux";
/// What the templates say of a mux that is not root, taken back: in a pod of rkt, or where its state is
/// in another place than usual, it stays what it is started as, and has one directory for all.
const AS_ROOT: [&str; 10] = [
    "User=root",
    "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_SYS_RESOURCE",
    "SystemCallFilter=@chown",
    "ProtectSystem=full",
    "PrivateDevices=no",
    "PrivateTmp=no",
    "TemporaryFileSystem=",
    "BindPaths=",
    "BindReadOnlyPaths=",
    "LogsDirectory=",
];

/// Where nothing is prepared it leads the names of the app's ends nowhere: systemd has closed what it kept for an
/// earlier mux, and the app must neither wait for ends that nobody has, nor take a terminal that is somebody
/// else's by now, nor write a plain file in the place of a name that is missing. Then a mux whose program is gone is
/// not tried; one under an app that runs is. The program is its argument. It is a shell since nothing of
/// ours may be there. Names of a mux of root (there is no `mux` beside them) are left to `prepare`.
const CONDITION: &str = concat!(
    "ExecCondition=+/bin/sh -c 'cd /proc/1/root/run/iottymux/%i || exit 0; test -d gate/prepared && exit 0; ",
    "for end in stage2-stdin stage2-stdout stage2-stderr stage2-pts; do ",
    "test -d mux && test -h $$end || test ! -e $$end && ln -sfn gone/$$end $$end; done; ",
    "command -v \"$$0\" >/dev/null || { echo \"there is no $$0\"; exit 1; }'"
);
/// The system manager's view of the files, where a mux is not to see them.
const ROOT: &str = "/proc/1/root";

/// The commands of a service that systemd runs beside its own, and which are not given the streams of socket
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

/// Which of the two muxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// The one with FIFOs.
    Streams,
    /// The one with a terminal.
    Terminal,
}

impl UnitKind {
    /// Its template, without `@` and what follows.
    const fn template(self) -> &'static str {
        match self {
            Self::Streams => "iomux",
            Self::Terminal => "ttymux",
        }
    }

    /// Its command.
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
    [UnitKind::Streams, UnitKind::Terminal].iter().any(|kind| template == Some(kind.template()))
}

/// An option of a mux, by its variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: String,
    /// Its value, without control characters.
    pub(crate) value: String,
    /// The muxes that know it.
    pub(crate) kinds: Vec<UnitKind>,
    /// Whether only one mux is to have it: two would write the same log.
    pub(crate) is_log: bool,
}

/// An app that is to be attachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppUnits {
    /// Its name.
    pub(crate) name: AppName,
    /// The service that is the app.
    pub(crate) service: ServiceName,
    /// What its streams are.
    pub(crate) modes: StreamModes,
    /// Whether what it logs goes to a file of the mux instead of the journal.
    pub(crate) logs_to_file: bool,
    /// Options of its mux.
    pub(crate) variables: Vec<Variable>,
    /// The files of its logs.
    pub(crate) logs: Vec<String>,
    /// How its lines come into the journal.
    pub(crate) journal: JournalPlan,
    /// Whether its service tells its mux of each start and end, by commands of root.
    pub(crate) has_hooks: bool,
}

/// What is the same for all apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// How the apps get their streams.
    pub(crate) layout: Layout,
    /// The state directory, if not the usual one.
    pub(crate) state: Option<String>,
    /// The program, if not found by its bare name.
    pub(crate) binary: Option<String>,
    /// Where systemd sees the directory that the files are written to.
    pub(crate) seen_as: String,
    /// Whether they are for a user's own services.
    pub(crate) user: bool,
}

/// A file of an app's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitFile {
    /// Its path below the directory of units.
    pub(crate) path: PathBuf,
    /// All that is in it.
    pub(crate) text: String,
}

/// The mux of an app, or one of its two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MuxUnit {
    /// Which it is.
    pub(crate) kind: UnitKind,
    /// The name by which it is attached to: that of the app, with `-tty` for the second.
    pub(crate) name: AppName,
    streams: Vec<Stream>,
}

impl MuxUnit {
    /// Whether the app prints to it.
    pub(crate) fn has_output(&self) -> bool {
        self.streams.iter().any(|stream| *stream != Stream::Stdin)
    }

    /// Its unit.
    pub(crate) fn unit(&self) -> String {
        format!("{}@{}.service", self.kind.template(), self.name)
    }
}

impl AppUnits {
    /// Its muxes. A terminal beside streams has a mux, and a name, of its own.
    pub(crate) fn muxes(&self) -> Result<Vec<MuxUnit>, NameError> {
        let of = |kind| -> Vec<Stream> {
            self.modes.each().filter(|(_, m)| self.kind(*m) == Some(kind)).map(|(s, _)| s).collect()
        };
        let (streams, terminal) = (of(UnitKind::Streams), of(UnitKind::Terminal));
        let mut muxes = Vec::new();
        if !terminal.is_empty() {
            let alone = streams.is_empty();
            let name =
                if alone { self.name.clone() } else { format!("{}-tty", self.name).parse()? };
            muxes.push(MuxUnit { kind: UnitKind::Terminal, name, streams: terminal });
        }
        if !streams.is_empty() {
            muxes.push(MuxUnit { kind: UnitKind::Streams, name: self.name.clone(), streams });
        }
        Ok(muxes)
    }

    /// Which mux has a stream of this mode.
    fn kind(&self, mode: StreamMode) -> Option<UnitKind> {
        match mode {
            StreamMode::Tty => Some(UnitKind::Terminal),
            StreamMode::Stream => Some(UnitKind::Streams),
            StreamMode::Log if self.logs_to_file => Some(UnitKind::Streams),
            StreamMode::Interactive | StreamMode::Log | StreamMode::Null => None,
        }
    }

    /// Whose its files are.
    pub(crate) fn owner(&self) -> UnitOwner<'_> {
        (&self.name, &self.service)
    }
}

impl Setup {
    /// The state directory as units have it.
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

    /// Whether root, or the user's manager, makes the ends for the mux, which is where they are by the
    /// templates.
    fn is_split(&self) -> bool {
        self.state.is_none()
    }

    /// The path of a file of a mux as units have it.
    fn path(&self, mux: &MuxUnit, file: &str) -> String {
        format!("{}/{}/{file}", self.state(), mux.name)
    }

    /// The first word of a command line of iottymux.
    fn command(&self) -> String {
        program(self.binary.as_deref().unwrap_or(BINARY))
    }
}

/// All files of an app but the templates, in the order in which they are written: the one that makes
/// the service use the others is the last.
pub(crate) fn files(app: &AppUnits, setup: &Setup) -> Result<Vec<UnitFile>, NameError> {
    let muxes = app.muxes()?;
    let mut files = Vec::new();
    let mut file = |path: PathBuf, text: &str| {
        files.push(UnitFile { path, text: with_checksum(Some(app.owner()), text) });
    };
    // The one that has stdout, or else stderr.
    let logging = [Stream::Stdout, Stream::Stderr]
        .into_iter()
        .find_map(|stream| muxes.iter().position(|mux| mux.streams.contains(&stream)));
    for (index, mux) in muxes.iter().enumerate() {
        let dir = drop_ins(&mux.unit());
        let logs = logging == Some(index);
        file(dir.join(ENV), &env(app, mux, logs, setup));
        file(dir.join(DROP_IN), &mux_drop_in(app, mux, logs, setup));
        if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams {
            for stream in &mux.streams {
                file(socket_name(mux, *stream).into(), &socket(app, mux, *stream, setup));
            }
        }
    }
    files.extend(muxes.iter().filter_map(|mux| journal::file(app, mux, setup)));
    let mut file = |path: PathBuf, text: &str| {
        files.push(UnitFile { path, text: with_checksum(Some(app.owner()), text) });
    };
    file(drop_ins(app.service.as_str()).join(DROP_IN), &app_drop_in(app, &muxes, setup));
    Ok(files)
}

/// The templates of an app's muxes, which are not of one kind.
pub(crate) fn templates(muxes: &[MuxUnit], user: bool) -> Vec<UnitFile> {
    muxes.iter().map(|mux| template(mux.kind, user)).collect()
}

fn template(kind: UnitKind, user: bool) -> UnitFile {
    let text = match kind {
        UnitKind::Streams => include_str!("../../units/iomux@.service"),
        UnitKind::Terminal => include_str!("../../units/ttymux@.service"),
    };
    let text = if user { for_user(text) } else { text.to_owned() };
    let path = format!("{}@.service", kind.template()).into();
    UnitFile { path, text: with_checksum(None, &text) }
}

/// What a user's manager has no right to do for a service of its own: capabilities are not its to
/// take, and file systems can be hidden only by root or in a user namespace.
const ONLY_ROOT: [&str; 17] = [
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "Protect",
    "Private",
    "ReadOnlyPaths=",
    "ReadWritePaths=",
    "InaccessiblePaths=",
    "TemporaryFileSystem=",
    "ProcSubset=",
    "DevicePolicy=",
    "DeviceAllow=",
    "IPAddressDeny=",
    "User=",
    "RemoveIPC=",
    "LogsDirectory",
    "BindPaths=",
    "BindReadOnlyPaths=",
];

/// The template for a user's own services.
fn for_user(text: &str) -> String {
    let lines = text.lines().filter(|line| !ONLY_ROOT.iter().any(|key| line.starts_with(key)));
    lines
        .map(|line| {
            line.replace(ROOT, "").replace(STATE, USER_STATE).replace(OPTIONS, USER_OPTIONS) + "\n"
        })
        .collect()
}

/// The directory of a unit's drop-ins.
pub(crate) fn drop_ins(unit: &str) -> PathBuf {
    PathBuf::from(format!("{unit}.d"))
}

fn socket_name(mux: &MuxUnit, stream: Stream) -> String {
    format!("{}-{}.socket", mux.name, stream.name())
}

/// The options of a mux.
fn env(app: &AppUnits, mux: &MuxUnit, logs: bool, setup: &Setup) -> String {
    let mut out = String::new();
    let mut set = |name: &str, value: &str| {
        // Writing into a string does not fail.
        let _ = writeln!(out, "{name}={}", env_value(value));
    };
    if mux.kind == UnitKind::Streams {
        let names: Vec<&str> = mux.streams.iter().map(|stream| stream.name()).collect();
        set("IOTTYMUX_STREAMS", &names.join(","));
        if setup.layout == Layout::Sockets {
            set("IOTTYMUX_FOREIGN_FIFOS", "true");
        }
    }
    if ServiceName::of(&mux.name) != app.service {
        set("IOTTYMUX_SERVICE", app.service.as_str());
    }
    let mut variables = app.variables.clone();
    variables.retain(|v| v.kinds.contains(&mux.kind) && (logs || !v.is_log));
    app.journal.add_to(&mut variables, mux, setup);
    for variable in &variables {
        set(&variable.name, &variable.value);
    }
    out
}

/// What the template of a mux does not say.
fn mux_drop_in(app: &AppUnits, mux: &MuxUnit, logs: bool, setup: &Setup) -> String {
    let mut unit = vec![format!("Before={}", app.service)];
    unit.extend(app.journal.wants(mux, setup));
    if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams {
        // They make the FIFOs.
        let sockets: Vec<String> = mux.streams.iter().map(|s| socket_name(mux, *s)).collect();
        unit.push(format!("After={}", sockets.join(" ")));
    }
    if logs && !app.logs.is_empty() {
        let paths: Vec<String> = app.logs.iter().map(|path| word(&value(path))).collect();
        unit.push(format!("RequiresMountsFor={}", paths.join(" ")));
    }
    let env = drop_ins(&mux.unit()).join(ENV);
    let state = format!("IOTTYMUX_STATE_DIR={}", setup.state());
    let mut service = vec![format!("Environment={}", word(&state))];
    if !setup.is_split() {
        service.push(format!("EnvironmentFile=-{}/%i/env", setup.state()));
    }
    // Where it has been taken away a mux that still runs is stopped all the same.
    service.push(format!("EnvironmentFile=-{}/{}", value(&setup.seen_as), env.display()));
    if !setup.is_split() {
        let resets = ["ExecCondition=", "ExecStartPre=", "ExecStop=", "RuntimeDirectory="];
        service.extend(resets.map(String::from));
        if !setup.user {
            service.extend(AS_ROOT.map(String::from));
        }
    }
    if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams && !setup.user {
        // PID 1 reads these FIFOs, too.
        service.push(format!("Nice={}", limits::HURRY));
    }
    if setup.binary.is_some() {
        let program = setup.command();
        if setup.is_split() {
            let tty = if mux.kind == UnitKind::Terminal { " --tty" } else { "" };
            let prepare = format!("-+{program} prepare --app %i --unit %n{tty}");
            let ask = format!("-+{program} control --app %i ask-end");
            let condition = if setup.user { for_user(CONDITION) } else { CONDITION.to_owned() };
            let condition = format!("{} {program}", condition.trim_end());
            service.extend(["ExecCondition=".to_owned(), condition]);
            for (key, command) in [("ExecStartPre", prepare), ("ExecStop", ask)] {
                service.extend([format!("{key}="), format!("{key}={command}")]);
            }
        }
        let command = format!("{program} {} --app %i", mux.kind.command());
        service.extend(["ExecStart=".to_owned(), format!("ExecStart={command}")]);
    }
    sections(&unit, &service)
}

/// The FIFO of a stream, as rkt's design has it.
fn socket(app: &AppUnits, mux: &MuxUnit, stream: Stream, setup: &Setup) -> String {
    let name = stream.name();
    let file = if setup.is_split() { split_end(stream) } else { stream.stage2().to_owned() };
    format!(
        "[Unit]\n\
         Description={name} of {}\n\
         DefaultDependencies=no\n\
         StopWhenUnneeded=yes\n\
         RefuseManualStart=yes\n\
         RefuseManualStop=yes\n\
         \n\
         [Socket]\n\
         RemoveOnStop=yes\n\
         Service={service}\n\
         FileDescriptorName={name}\n\
         DirectoryMode=0700\n\
         ListenFIFO={}\n",
        mux.name,
        setup.path(mux, &file),
        service = app.service,
    )
}

/// What makes the service use its muxes.
fn app_drop_in(app: &AppUnits, muxes: &[MuxUnit], setup: &Setup) -> String {
    let (mut unit, mut service) = (Vec::new(), Vec::new());
    if !muxes.is_empty() {
        let names = muxes.iter().map(MuxUnit::unit).collect::<Vec<_>>().join(" ");
        unit.extend([format!("Wants={names}"), format!("After={names}")]);
        if !setup.is_split() {
            let found = |mux| format!("AssertPathExists={}", setup.path(mux, "endpoints"));
            unit.extend(muxes.iter().map(found));
        }
        unit.extend(muxes.iter().filter_map(|mux| app.journal.wants(mux, setup)));
    }
    let logs =
        |(_, mode): (Stream, StreamMode)| mode == StreamMode::Log && app.kind(mode).is_none();
    let to_journal = app.modes.each().any(logs);
    if to_journal {
        let journald = "systemd-journald.service";
        unit.extend([format!("Wants={journald}"), format!("After={journald}")]);
    }
    for (stream, mode) in app.modes.each() {
        let mux = muxes.iter().find(|mux| mux.streams.contains(&stream));
        let is_input = stream == Stream::Stdin;
        let key = match stream {
            Stream::Stdin => "StandardInput",
            Stream::Stdout => "StandardOutput",
            _ => "StandardError",
        };
        let to = match (mode, mux) {
            // A process of its last start that is still there would otherwise be waited for.
            (StreamMode::Tty, _) if is_input => "tty-force".to_owned(),
            (StreamMode::Tty | StreamMode::Interactive, _) => "tty".to_owned(),
            (_, Some(mux)) if setup.layout == Layout::Sockets => {
                service.push(format!("Sockets={}", socket_name(mux, stream)));
                format!("fd:{}", stream.name())
            }
            (_, Some(mux)) => format!("file:{}", setup.path(mux, stream.stage2())),
            (StreamMode::Log, None) => "journal".to_owned(),
            (StreamMode::Null | StreamMode::Stream, None) => "null".to_owned(),
        };
        service.push(format!("{key}={to}"));
    }
    if let Some(mux) = muxes.iter().find(|mux| mux.kind == UnitKind::Terminal) {
        service.push(format!("TTYPath={}", setup.path(mux, Stream::Tty.stage2())));
        // Each would throw away what was printed last.
        service.extend(["TTYReset=no", "TTYVHangup=no", "TTYVTDisallocate=no"].map(String::from));
        service.push(format!("Environment=TERM={}", app::TERM));
    }
    if to_journal && !app.journal.is_settled() {
        service.push(format!("SyslogIdentifier={}", app.name));
    }
    let can_have_hooks = app.has_hooks && !has_sockets(muxes, setup);
    for mux in muxes.iter().filter(|_| can_have_hooks) {
        for (key, request) in [("ExecStartPost", "started"), ("ExecStopPost", "ended")] {
            let state = argument(&setup.state());
            service.push(format!(
                "{key}=-+{} --state-dir {state} control --app {} {request}",
                setup.command(),
                mux.name
            ));
        }
    }
    sections(&unit, &service) + &app.journal.memory()
}

/// Whether one of these muxes has streams of socket units. Then the service can have no [`HOOKS`].
pub(crate) fn has_sockets(muxes: &[MuxUnit], setup: &Setup) -> bool {
    setup.layout == Layout::Sockets && muxes.iter().any(|mux| mux.kind == UnitKind::Streams)
}

fn sections(unit: &[String], service: &[String]) -> String {
    let section = |(name, lines): (&str, &[String])| {
        (!lines.is_empty()).then(|| format!("[{name}]\n{}\n", lines.join("\n")))
    };
    let both = [("Unit", unit), ("Service", service)];
    both.into_iter().filter_map(section).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_of_the_templates_is_ours() {
        for kind in [UnitKind::Streams, UnitKind::Terminal] {
            let line = format!("\n{CONDITION} iottymux\n");
            assert!(template(kind, false).text.contains(&line), "{kind:?}");
            let user = template(kind, true).text;
            assert!(user.contains("'cd %t/iottymux/%i || exit 0; "), "{user}");
        }
    }
}
