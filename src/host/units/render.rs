//! The texts of an app's unit files. Pure: [`files`] cannot fail and reads nothing.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::unit_text::{argument, backslashed, env_value, value, with_checksum, word};
use super::{
    AppUnits, DROP_IN, ENV, Layout, MuxUnit, STATE, Setup, StopLine, StreamMode, USER_STATE,
    UnitFile, UnitKind, drop_ins, has_sockets, words_in, words_line,
};
use crate::sys::state::split_end;
use crate::types::limits;
use crate::types::name::{AppName, NameError};
use crate::types::service::ServiceName;
use crate::types::stream::Stream;
use crate::types::terminal_identity::TERM;

/// The directory in which the templates look for options of an app.
pub(super) const OPTIONS: &str = "/etc/iottymux";
/// The same for a user's own services (`%E` is the user's configuration directory).
const USER_OPTIONS: &str = "%E/iottymux";
/// Lines of a mux that stays root: with another state directory than usual, the mux keeps the user
/// that starts it and has one directory for all files.
const AS_ROOT: [&str; 14] = [
    "User=root",
    "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_SYS_RESOURCE",
    "ProtectSystem=full",
    "ProtectHome=yes",
    "ProtectProc=invisible",
    "PrivateMounts=yes",
    // Of the machine's own files, most belong to root, whatever it is capable of.
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "DevicePolicy=auto",
    "LogsDirectory=",
];

/// Forgets the conditions of the templates.
const NO_CONDITIONS: &str = "ConditionFileIsExecutable=";

/// This exists as long as systemd keeps the ends of an app: its mux is tried then, whatever happens
/// to the program.
fn is_prepared(state: &str) -> String {
    format!("ConditionPathExists=|{state}/%i/gate/prepared")
}

/// All files of an app but the templates, in the order of writing. The last one makes the service
/// use the others.
pub(super) fn files(app: &AppUnits, setup: &Setup) -> Result<Vec<UnitFile>, NameError> {
    let muxes = app.muxes()?;
    let mut files = Vec::new();
    let mut file = |path: PathBuf, text: &str| {
        files.push(UnitFile { path, text: with_checksum(Some(app.owner()), text) });
    };
    // The mux that has stdout, or else stderr, writes the logs.
    let logging = [Stream::Stdout, Stream::Stderr]
        .into_iter()
        .find_map(|stream| muxes.iter().position(|mux| mux.streams.contains(&stream)));
    for (index, mux) in muxes.iter().enumerate() {
        let dir = drop_ins(&mux.unit());
        let logs = logging == Some(index);
        file(dir.join(ENV), &env(app, mux, logs, setup));
        file(dir.join(DROP_IN), &mux_drop_in(app, &muxes, mux, logs, setup));
        if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams {
            for stream in &mux.streams {
                file(socket_name(&mux.name, *stream).into(), &socket(app, mux, *stream, setup));
            }
        }
    }
    let text = words_line(&app.words) + &app_drop_in(app, &muxes, setup);
    file(drop_ins(app.service.as_str()).join(DROP_IN), &text);
    Ok(files)
}

/// The templates of an app's muxes, which differ in kind.
pub(super) fn templates(muxes: &[MuxUnit], user: bool) -> Vec<UnitFile> {
    muxes.iter().map(|mux| template(mux.kind, user)).collect()
}

fn template(kind: UnitKind, user: bool) -> UnitFile {
    let text = match kind {
        UnitKind::Streams => include_str!("../../../units/iomux@.service"),
        UnitKind::Terminal => include_str!("../../../units/ttymux@.service"),
    };
    let text = if user { for_user(text) } else { text.to_owned() };
    let path = format!("{}@.service", kind.template()).into();
    UnitFile { path, text: with_checksum(None, &text) }
}

/// Settings that a user's manager must not or cannot apply: it has no capabilities to drop, and
/// only root or a user namespace can hide file systems.
const ONLY_ROOT: [&str; 16] = [
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
    "User=",
    "RemoveIPC=",
    "LogsDirectory",
    "BindPaths=",
    "BindReadOnlyPaths=",
];

/// The template for a user's own services.
fn for_user(text: &str) -> String {
    let lines = text.lines().filter(|line| !ONLY_ROOT.iter().any(|key| line.starts_with(key)));
    let lines = lines.map(|line| line.replace("ExecStart=!", "ExecStart="));
    lines
        .map(|line| line.replace(STATE, USER_STATE).replace(OPTIONS, USER_OPTIONS) + "\n")
        .collect()
}

pub(super) fn socket_name(mux: &AppName, stream: Stream) -> String {
    format!("{mux}-{}.socket", stream.name())
}

/// The env file with the options of a mux.
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
    app.journal.add_to(&mut variables, mux);
    for variable in &variables {
        set(&variable.name, &variable.value);
    }
    out
}

/// The drop-in of a mux.
fn mux_drop_in(
    app: &AppUnits,
    muxes: &[MuxUnit],
    mux: &MuxUnit,
    logs: bool,
    setup: &Setup,
) -> String {
    let mut unit = vec![format!("Before={}", app.service)];
    if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams {
        // The socket units make the FIFOs.
        let sockets: Vec<String> = mux.streams.iter().map(|s| socket_name(&mux.name, *s)).collect();
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
    // With `-`, a running mux can still be stopped after the file was removed.
    let env = format!("{}/{}", value(&setup.seen_as), env.display());
    service.push(format!("EnvironmentFile=-{}", backslashed(&env)));
    service.extend(app.journal.limits(mux).iter().cloned());
    // A hook of the app reports how that has ended, and otherwise root asks.
    let asks = !can_have_hooks(app, muxes, setup);
    if !setup.is_split() {
        unit.push(NO_CONDITIONS.to_owned());
        let resets = ["ExecStop=", "RuntimeDirectory="];
        service.extend(resets.map(String::from));
        if !setup.user {
            service.extend(AS_ROOT.map(String::from));
        }
    } else if !asks {
        service.push("ExecStop=".to_owned());
    }
    if setup.layout == Layout::Sockets && mux.kind == UnitKind::Streams && !setup.user {
        // PID 1 reads these FIFOs, too.
        service.push(format!("Nice={}", limits::HURRY));
    }
    if let Some(binary) = &setup.binary {
        let program = setup.command();
        if setup.is_split() {
            let ask = format!("-+{program} control --app %i ask-end");
            let is_there = format!("ConditionFileIsExecutable=|{}", value(binary));
            unit.extend([NO_CONDITIONS.to_owned(), is_there, is_prepared(&setup.state())]);
            if asks {
                service.extend(["ExecStop=".to_owned(), format!("ExecStop={ask}")]);
            }
        }
        // Such a mux begins as root, in spite of `User=`.
        let root = if setup.is_split() && !setup.user { "!" } else { "" };
        let command = format!("{root}{program} {} --app %i", mux.kind.command());
        service.extend(["ExecStart=".to_owned(), format!("ExecStart={command}")]);
    }
    sections(&unit, &service)
}

/// The socket unit with the FIFO of a stream, as in rkt's design.
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

/// A drop-in of [`app_drop_in`] without the lines that give the service its streams. It still wants
/// its muxes, tells them of its end, and types its stop line.
pub(super) fn without_streams(drop_in: &str) -> String {
    let mut is_service = false;
    let stays = |line: &&str| {
        let is_stop = ["ExecStop=", "ExecStopPost="].iter().any(|key| line.starts_with(key));
        let stays = !is_service || is_stop;
        is_service |= *line == "[Service]";
        stays && !line.starts_with('#')
    };
    let lines: Vec<&str> = drop_in.lines().filter(stays).collect();
    words_line(&words_in(drop_in)) + &lines.join("\n") + "\n"
}

/// The drop-in that makes the service use its muxes.
fn app_drop_in(app: &AppUnits, muxes: &[MuxUnit], setup: &Setup) -> String {
    let (mut unit, mut service) = (Vec::new(), Vec::new());
    if !muxes.is_empty() {
        let names = muxes.iter().map(MuxUnit::unit).collect::<Vec<_>>().join(" ");
        unit.extend([format!("Wants={names}"), format!("After={names}")]);
        if !setup.is_split() {
            let found = |mux| format!("AssertPathExists={}", setup.path(mux, "endpoints"));
            unit.extend(muxes.iter().map(found));
        }
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
            // Plain `tty` would wait for a remaining process of the last start.
            (StreamMode::Tty, _) if is_input => "tty-force".to_owned(),
            (StreamMode::Tty | StreamMode::Interactive, _) => "tty".to_owned(),
            (_, Some(mux)) if setup.layout == Layout::Sockets => {
                service.push(format!("Sockets={}", backslashed(&socket_name(&mux.name, stream))));
                format!("fd:{}", stream.name())
            }
            (_, Some(mux)) => format!("file:{}", setup.path(mux, stream.stage2())),
            (StreamMode::Log, None) if setup.of_pod => "journal+console".to_owned(),
            (StreamMode::Log, None) => "journal".to_owned(),
            (StreamMode::Null | StreamMode::Stream, None) => "null".to_owned(),
        };
        service.push(format!("{key}={to}"));
    }
    if let Some(mux) = muxes.iter().find(|mux| mux.kind == UnitKind::Terminal) {
        service.push(format!("TTYPath={}", setup.path(mux, Stream::Tty.stage2())));
        // Each of these would discard the app's last output.
        service.extend(["TTYReset=no", "TTYVHangup=no", "TTYVTDisallocate=no"].map(String::from));
        if !app.sets_term {
            service.push(format!("Environment=TERM={TERM}"));
        }
    }
    if to_journal && !app.journal.is_settled() {
        service.push(format!("SyslogIdentifier={}", app.name));
    }
    let hook = |key: &str, mux: &MuxUnit, request: &str| {
        let (command, state) = (setup.command(), argument(&setup.state()));
        let app = argument(mux.name.as_str());
        format!("{key}=-+{command} --state-dir {state} control --app {app} {request}")
    };
    for mux in muxes.iter().filter(|_| can_have_hooks(app, muxes, setup)) {
        service.push(hook("ExecStartPost", mux, "started"));
        service.push(hook("ExecStopPost", mux, "ended"));
    }
    if let Some(StopLine { line, time }) = &app.stop_line
        && let Some(mux) = muxes.iter().find(|mux| mux.has_input())
    {
        // As root: nobody else may always type. A failure leaves the stop to systemd.
        let request =
            format!("stop-line --time {} -- {}", time.as_secs_f64(), argument(&value(line)));
        service.push(hook("ExecStop", mux, &request));
    } else if let Some(mux) = muxes.iter().find(|mux| mux.kind == UnitKind::Terminal)
        && can_have_hooks(app, muxes, setup)
    {
        // Somebody may have stopped the output by ^S.
        service.push(hook("ExecStop", mux, "stopping"));
    }
    sections(&unit, &service) + &app.journal.memory()
}

/// Whether the service reports each start and end to its muxes.
fn can_have_hooks(app: &AppUnits, muxes: &[MuxUnit], setup: &Setup) -> bool {
    app.has_hooks && !has_sockets(muxes, setup)
}

/// The text of a unit with these lines. An empty section is left out.
pub(super) fn sections(unit: &[String], service: &[String]) -> String {
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
            let line = format!("\n{}\n", is_prepared(STATE));
            assert!(template(kind, false).text.contains(&line), "{kind:?}");
            let user = template(kind, true).text;
            assert!(
                user.contains("\nConditionPathExists=|%t/iottymux/%i/gate/prepared\n"),
                "{user}"
            );
        }
    }
}
