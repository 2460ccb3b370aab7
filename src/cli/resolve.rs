//! The meaning of the arguments: resolved with rkt's variables and the machine, and checked. All
//! code after this module gets valid values only.

use std::env;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::values::{self, LogTime};
use super::{
    AttachArgs, ContainerArgs, ControlArgs, LogArgs, LogsArgs, MuxArgs, RequestArgs, RunArgs,
    StreamArgs, TerminalArgs, TtyArgs, rkt_variables,
};
use crate::client::attach::attach_mode::AttachMode;
use crate::client::{attach, logs, status};
use crate::core::logfmt::encoder::{FormatOptions, LogTarget};
use crate::core::logfmt::format::cri;
use crate::core::logfmt::spec::LogSpec;
use crate::core::logfmt::syslog::Syslog;
use crate::core::wire::{ControlRequest, Exclusive};
use crate::keeper::run::say_ready;
use crate::keeper::scope::{SCOPE, ScopePolicy};
use crate::keeper::{CommandApp, KeepRequest};
use crate::mux::logs::file::Rotation;
use crate::mux::logs::pipeline::LogOptions;
use crate::mux::{LogPlan, MuxPlan, Origin, Streams};
use crate::sys::documents::container::Container;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::app_status::{self, Inquiry};
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::own_process;
use crate::types::escape;
use crate::types::limits;
use crate::types::name::{AppName, NAMES};
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::terminal_identity::TERM;
use crate::types::time::Now;

/// Chunks that fit into a rotated file, at least: a file ends with a whole one, so a smaller part
/// of it stays empty.
const LOG_FILE_PART: usize = 8;

/// The plan of `stream`.
pub(crate) fn stream(args: &StreamArgs, state: &StateDir) -> MuxPlan {
    let enabled = enabled(args.streams.as_deref());
    fifos(state.app(&args.app.name), (enabled, args.foreign_fifos), &args.mux)
}

/// The streams that an app has.
fn enabled(asked: Option<&[Stream]>) -> Vec<Stream> {
    match (asked, rkt_variables::streams()) {
        (Some(streams), _) => in_order(streams),
        (None, Some(streams)) => streams,
        (None, None) => Stream::PLAIN.to_vec(),
    }
}

/// The plan of a mux for these FIFOs, which may belong to other units. In rkt's mixed modes (a
/// terminal for some of the streams) the mux makes no FIFOs: those of the terminal's streams must
/// not exist.
pub(crate) fn fifos(
    dir: AppDir,
    (enabled, foreign): (Vec<Stream>, bool),
    mux: &MuxArgs,
) -> MuxPlan {
    let make = !foreign && !rkt_variables::go_bool("STAGE2_TTY");
    plan(dir, Streams::Fifos { enabled, make }, mux, &TerminalArgs::default())
}

/// The plan of `tty`.
pub(crate) fn tty(args: &TtyArgs, state: &StateDir) -> MuxPlan {
    let streams = Streams::Terminal { size: args.size };
    let plan = plan(state.app(&args.app.name), streams, &args.mux, &args.terminal);
    // A command that somebody has started at a terminal gets its keys as there.
    MuxPlan { guards_keys: own_process::is_of_unit() && !args.guard.no_guard, ..plan }
}

/// The plan of the mux of a container.
pub(crate) fn container(args: &ContainerArgs, state: &StateDir) -> MuxPlan {
    let size = args.size.unwrap_or(Size { rows: 0, cols: 0 });
    let streams = Streams::Passed { enabled: args.streams.clone(), size };
    let mut terminal = args.terminal.clone();
    if !args.streams.contains(&Stream::Tty) && !terminal.record.is_empty() {
        log::error!("--record is left out: only a terminal can be recorded");
        terminal = TerminalArgs::default();
    }
    let container = args.container.clone();
    let names = container.as_ref().and_then(|container| container.kubernetes.as_ref()?.parts());
    let names = names.map(|names| names.map(str::to_owned));
    let mut plan = plan(state.app(&args.app.name), streams, &args.mux, &terminal);
    plan.logs.format_options.kubernetes = names;
    MuxPlan { container, origin: Origin::Container, ..plan }
}

/// The plan of a mux for a terminal.
pub(crate) fn terminal(dir: AppDir, size: Size, mux: &MuxArgs) -> MuxPlan {
    let terminal = TerminalArgs { scrollback: limits::SCROLLBACK_LINES, ..TerminalArgs::default() };
    plan(dir, Streams::Terminal { size }, mux, &terminal)
}

/// The plan of a mux that has no keeper.
fn plan(dir: AppDir, streams: Streams, mux: &MuxArgs, terminal: &TerminalArgs) -> MuxPlan {
    let service = mux.service.clone().unwrap_or_else(|| ServiceName::of(dir.name()));
    let mut logs = log_plan(&mux.logs);
    logs.logs.extend(terminal.record.iter().cloned());
    logs.logs = without_shared_targets(logs.logs);
    logs.format_options.record_input = terminal.record_input;
    let term = env::var("TERM").ok().filter(|term| !term.is_empty());
    logs.format_options.term = term.unwrap_or_else(|| TERM.to_owned());
    MuxPlan {
        origin: Origin::Unit,
        dir,
        service,
        streams,
        backlog: mux.backlog,
        scrollback: terminal.scrollback,
        guards_keys: false,
        leaves_nothing: false,
        is_awaited: false,
        patience: mux.max_client_delay,
        others: mux.others.lists(),
        logs,
        container: None,
    }
}

/// These logs without those that have the target of an earlier one.
fn without_shared_targets(logs: Vec<LogSpec>) -> Vec<LogSpec> {
    let mut kept: Vec<LogSpec> = Vec::new();
    for log in logs {
        if kept.iter().any(|other| other.shares_target(&log)) {
            let target = log.target();
            log::error!("one of two logs with the same target is left out: {target}");
        } else {
            kept.push(log);
        }
    }
    kept
}

/// The logs that were asked for, and the one that rkt asks for.
fn log_plan(args: &LogArgs) -> LogPlan {
    let mut logs = args.log.clone();
    let cri = |path| LogSpec { format: &cri::FORMAT, target: LogTarget::File(path) };
    // A pod that rkt has made runs on without its log, as with rkt's own mux: without a mux, its app
    // would hang at a full pipe.
    let rkts = rkt_variables::log().unwrap_or_else(|e| {
        log::warn!("the app has no Kubernetes log: {e:#}");
        None
    });
    logs.extend(rkts.map(cri));
    let (size, files) = (args.log_max_size, args.log_max_files);
    let most = *values::LOG_LINE.end();
    LogPlan {
        logs,
        options: LogOptions {
            line_limit: if args.log_line_limit == 0 { most } else { args.log_line_limit },
            chunk: size.map_or(usize::MAX, |size| size / LOG_FILE_PART).min(limits::LOG_CHUNK),
            flush: args.log_flush,
            buffer: args.log_buffer,
            policy: args.log_policy,
            rotation: size.map(|size| Rotation { size: size as u64, files }),
        },
        format_options: FormatOptions {
            syslog: Syslog::new(args.syslog_level, !args.syslog_keep_prefix, None),
            facility: args.syslog_facility,
            identifier: args.syslog_identifier.clone(),
            ..FormatOptions::default()
        },
    }
}

/// Whether the options of `run` make sense together.
fn check_run(args: &RunArgs) -> Result<()> {
    if args.scope == ScopePolicy::Always && !args.detach && env::var_os(SCOPE).is_none() {
        bail!("--scope requires --detach: what is attached lives where it was started");
    }
    if !args.tty && !args.terminal.record.is_empty() {
        bail!("--record requires --tty: only a terminal can be recorded");
    }
    if !args.tty && args.size.is_some() {
        bail!("--size requires --tty: only a terminal has a size");
    }
    Ok(())
}

/// The directory of the app of `run`: that of the name, or of the first free name after the command.
fn run_dir(args: &RunArgs, state: &StateDir) -> Result<AppDir> {
    if let Some(name) = &args.name {
        return Ok(state.own_app(name));
    }
    let file = args.command.first().and_then(|program| Path::new(program).file_name());
    let file = file.unwrap_or_default().to_string_lossy();
    let name = AppName::derived(&file).with_context(|| {
        format!("cannot derive an app name from {}: pass --name", escape::line(&file))
    })?;
    if args.or_attach {
        return Ok(state.own_app(&name));
    }
    // A directory that is split is that of a service, unless a container had it.
    let is_free =
        |dir: &AppDir| !dir.is_locked() && (!dir.is_split() || Container::read(dir).is_some());
    let mut dirs = name.numbered().map(|name| state.app(&name));
    dirs.find(is_free).with_context(|| format!("{NAMES} apps are called {name}: pass --name"))
}

/// The request of `run` for its mux.
pub(crate) fn run_attached(args: &RunArgs, state: &StateDir) -> Result<attach::AttachRequest> {
    check_run(args)?;
    let plain = attach::AttachRequest::new(run_dir(args, state)?, AttachMode::Auto);
    Ok(attach::AttachRequest {
        passes_signals: !args.tty,
        stdin_once: !args.tty,
        reconnect: limits::RECONNECT,
        pass: args.pass.pass,
        detach_keys: args.keys.detach_keys.clone(),
        redraw: args.quiet.redraw(plain.from),
        quiet: args.quiet.quiet,
        ..plain
    })
}

/// The plan of `run`.
pub(crate) fn run(args: &RunArgs, state: &StateDir) -> Result<MuxPlan> {
    check_run(args)?;
    let streams = if args.tty {
        Streams::Terminal { size: args.size.unwrap_or(Size::DEFAULT) }
    } else {
        Streams::Fifos { enabled: Stream::PLAIN.to_vec(), make: true }
    };
    let plan = plan(run_dir(args, state)?, streams, &args.mux, &args.terminal);
    let (leaves_nothing, is_awaited) = (args.rm, args.foreground);
    Ok(MuxPlan { origin: Origin::Run, leaves_nothing, is_awaited, ..plan })
}

/// The command for the keeper of `run`. It checks the options of the mux, which reads them again.
pub(crate) fn keep(args: &RunArgs, state: &StateDir) -> Result<KeepRequest> {
    let dir = run(args, state)?.dir;
    let notify = Notify::from_env(false)?;
    let is_in_background = args.await_client.is_some();
    let on_ready = move || {
        notify.ready();
        if is_in_background {
            say_ready();
        }
    };
    let app = CommandApp::new(&args.command, args.tty, &dir);
    Ok(KeepRequest {
        app: Box::new(if args.no_ssh_agent { app } else { app.with_agent(dir.clone()) }),
        dir,
        mux: env::args_os().skip(1).collect(),
        user: None,
        passed: Vec::new(),
        awaits_client: args.await_client == Some(true),
        insists: false,
        removes: args.rm,
        on_ready: Box::new(on_ready),
        stays: None,
    })
}

/// The request of `logs`.
pub(crate) fn logs(args: &LogsArgs, app: Option<AppDir>) -> Result<logs::LogsRequest> {
    let now = Now::read().stamp;
    let at = |time: &LogTime| time.stamp(now).context("cannot tell when that was");
    let since = args.since.as_ref().map(at).transpose()?.unwrap_or_default();
    let until = args.until.as_ref().map(at).transpose()?;
    let (stream, stamps, json) = (args.stream, args.timestamps, args.json);
    Ok(logs::LogsRequest {
        app,
        file: args.file.clone(),
        follow: args.follow,
        tail: args.tail.filter(|count| *count < usize::MAX),
        wants: logs::Wants { stream, since, until, stamps, json },
        grep: args.grep.clone(),
    })
}

/// The request of `control`; `None` for a hook of a unit that has nothing to report.
pub(crate) fn request(args: &ControlArgs, dir: &AppDir) -> Result<Option<ControlRequest>> {
    let what = |hook: &str| format!("cannot report {hook} to app {}", dir.name());
    Ok(match &args.request {
        RequestArgs::Detach { client } => Some(client.clone()),
        RequestArgs::Resize { size } => Some(ControlRequest::Resize(*size)),
        RequestArgs::ReopenLogs => Some(ControlRequest::ReopenLogs),
        // It is more than a request.
        RequestArgs::StopLine { .. } => None,
        RequestArgs::Restart => Some(ControlRequest::Restart),
        RequestArgs::Stopping => Some(ControlRequest::Stopping),
        RequestArgs::Ended => {
            // A run that has other streams than those of this mux is not the app.
            let is_other =
                own_process::invocation().is_some_and(|run| dir.earlier_run() == Some(run));
            let ended = app_status::ended().with_context(|| what("ended"))?;
            ended.filter(|_| !is_other).map(ControlRequest::Ended)
        }
        RequestArgs::Started => {
            app_status::started().with_context(|| what("started"))?.map(ControlRequest::Started)
        }
        RequestArgs::AskEnd { service } => {
            let service = service.clone().unwrap_or_else(|| ServiceName::of(dir.name()));
            let report = status::report(dir)?;
            let asks = || Inquiry::begin(&service, dir, Instant::now());
            let is_known = report.app_ended.is_some() && report.app_pid.is_none();
            (!is_known).then(asks).flatten().and_then(Inquiry::wait).map(ControlRequest::Ended)
        }
    })
}

/// The request of `attach`.
pub(crate) fn attach(args: &AttachArgs, dir: AppDir) -> Result<attach::AttachRequest> {
    if matches!(&args.mode, AttachMode::Only(wanted) if wanted.input.is_none()) {
        let needs_input = [
            ("--exclusive", args.exclusive),
            ("--take-over", args.take_over),
            ("--stdin-once", args.stdin_once),
        ];
        if let Some((option, _)) = needs_input.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} needs an input stream, and this mode has none");
        }
    }
    Ok(attach::AttachRequest {
        dir,
        mode: args.mode.clone(),
        wait: args.wait.unwrap_or_default(),
        reconnect: args.reconnect,
        read_only: args.read_only,
        stdin_once: args.stdin_once,
        exclusive: match args {
            AttachArgs { take_over: true, .. } => Some(Exclusive::Take),
            AttachArgs { exclusive: true, .. } => Some(Exclusive::Ask),
            _ => None,
        },
        from: args.from,
        redraw: args.redraw.unwrap_or_else(|| args.quiet.redraw(args.from)),
        history: !args.no_history,
        pass: args.pass.pass,
        detach_keys: args.keys.detach_keys.clone(),
        guard: !args.guard.no_guard,
        quiet: args.quiet.quiet,
        passes_signals: false,
        keeper: None,
    })
}

/// Each stream once, in the order of `endpoints`.
fn in_order(streams: &[Stream]) -> Vec<Stream> {
    Stream::PLAIN.into_iter().filter(|s| streams.contains(s)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_in_order() {
        let streams = in_order(&[Stream::Stderr, Stream::Stdin, Stream::Stderr]);
        assert_eq!(streams, [Stream::Stdin, Stream::Stderr]);
    }
}
