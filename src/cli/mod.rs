//! The command line: commands, options and their variables. The doc comments are the help: the
//! first paragraph is that of `-h`, one line for each option.
//!
//! | module | is |
//! |---|---|
//! | [`dispatch`] | from the command line to the command |
//! | [`parse`] | from the words to what was typed, or to what is wrong with them |
//! | [`complete`] | the words that may come next, for a shell |
//! | [`containerd`] | the command line of a logger of containerd |
//! | [`container_mux`] | the mux of a container, as its keeper starts it |
//! | [`salvage`] | the valid options of a mux with a running app |
//! | [`rkt`] | rkt's spelling |
//! | [`habits`] | what people type out of habit, and the way here |
//! | [`resolve_units`], [`resolve`] | what the arguments mean, checked |
//! | [`enabled`] | what `enable` was asked before |
//! | [`remote`] | the same command on another machine |
//! | [`mux`] | the arguments of the commands that are a mux |
//! | [`running`] | the arguments of `send`, `stop`, `kill` and `rm` |
//! | [`examples`] | the ends of the long helps |
//! | [`named_app`] | the app that a person names |
//! | [`units`] | the arguments of the commands that write units |
//! | [`options`] | which options there are, and what sets them |
//! | [`rkt_variables`] | what rkt's units say in variables |
//! | [`values`] | the values of options |

mod complete;
mod container_mux;
mod containerd;
pub(crate) mod dispatch;
mod enabled;
mod examples;
mod habits;
mod mux;
mod named_app;
mod options;
mod parse;
mod remote;
pub(crate) mod resolve;
pub(crate) mod resolve_units;
pub(crate) mod rkt;
mod rkt_variables;
mod running;
mod salvage;
mod units;
pub(crate) mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};

pub(crate) use self::mux::{
    ContainerArgs, GuardArgs, LogArgs, MuxArgs, RunArgs, StreamArgs, TerminalArgs, TtyArgs,
};
use self::named_app::MatchPolicy;
pub(crate) use self::named_app::NamedAppArg;
pub(crate) use self::running::{
    AskArgs, EventsArgs, KillArgs, RemoveArgs, ScreenArgs, SendArgs, StopArgs, WaitArgs,
};
pub(crate) use self::units::{DisableArgs, EnableArgs, ModeArgs, NamedServices, UnitsArgs};

use self::values::LogTime;
use crate::client::attach::attach_mode::AttachMode;
use crate::client::attach::default_redraw;
use crate::client::attach::keys::Sequence;
use crate::client::list::{Extent, ListForm};
use crate::client::logs::Pattern;
use crate::core::wire::{ControlRequest, Redraw};
use crate::host::engine_config::ContainerEngine;
use crate::host::install::{self, Shell};
use crate::screen::filter::Pass;
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::{Position, Stream};

/// Attach any number of clients to a service's streams or terminal.
#[derive(Debug, Parser)]
#[command(
    name = "iottymux",
    version,
    after_long_help = examples::PROGRAM
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of all commands.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// State directory [default: /run/iottymux or $XDG_RUNTIME_DIR/iottymux]
    ///
    /// Each app has a directory there. The default depends on the user and the machine:
    /// in a rkt pod: /rkt/iottymux (not for `units` and --user).
    /// root: /run/iottymux.
    /// other users: $XDG_RUNTIME_DIR/iottymux, or /tmp/iottymux-UID without a session, and
    /// /run/iottymux for apps that are not there.
    /// `disable` finds the directory of its service by itself.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "IOTTYMUX_STATE_DIR",
        help_heading = GLOBAL,
        verbatim_doc_comment
    )]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log level: error, warn, info or debug [default: warn; mux: info].
    ///
    /// Messages go to standard error. A mux of a container begins with warn.
    #[arg(long, global = true, value_name = "LEVEL", env = "IOTTYMUX_LOG_LEVEL",
          value_parser = values::level, help_heading = GLOBAL)]
    pub(crate) log_level: Option<log::LevelFilter>,
    /// Run the command on HOST over ssh.
    #[arg(short = 'H', long, global = true, value_name = "HOST", help_heading = GLOBAL)]
    pub(crate) host: Option<String>,
}

/// All commands with their options, for the man pages.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// The title of the options that all commands have, in the help.
const GLOBAL: &str = "Global options";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Attach this terminal, or standard input and output, to an app.
    #[command(after_long_help = examples::ATTACH)]
    Attach(AttachArgs),
    /// List the apps, or one of them.
    #[command(visible_aliases = ["ls", "ps"], after_long_help = examples::LIST)]
    List(ListArgs),
    /// Show clients, offsets and lost bytes, or how the app ended.
    ///
    /// After the mux has exited, shows the app's exit status and its last output.
    #[command(after_long_help = examples::STATUS)]
    Status(StatusArgs),
    /// Print the state of all apps as metrics for Prometheus.
    ///
    /// In the text format, for the textfile collector of node_exporter.
    #[command(after_long_help = examples::METRICS)]
    Metrics,
    /// Show an app's log: a file, the journal, or what its mux keeps.
    #[command(after_long_help = examples::LOGS)]
    Logs(LogsArgs),
    /// Control an app's mux.
    #[command(after_long_help = examples::CONTROL)]
    Control(ControlArgs),
    /// Run a command that you can leave and attach again.
    ///
    /// Attaches to the command, which runs on in the background after a detach, or when this
    /// terminal closes. If its mux dies, another one takes over. Without --tty, SIGINT, SIGTERM and
    /// SIGQUIT are passed on to the command.
    #[command(after_long_help = examples::RUN)]
    Run(RunArgs),
    /// Type a line, keys or a paste into an app.
    ///
    /// Returns when the app's input has it; the app may read it later. A line that
    /// others have begun is emptied first.
    #[command(after_long_help = examples::SEND)]
    Send(SendArgs),
    /// Type a line into an app, and print the answer.
    ///
    /// The answer is what the app prints after it has taken the line; at a terminal, without the
    /// line and the next prompt. No other client can type until the answer has ended.
    #[command(after_long_help = examples::ASK)]
    Ask(AskArgs),
    /// Wait until apps are ready, print something, are quiet, or end.
    ///
    /// With several conditions, waits for the first one; without any, until the apps end.
    #[command(after_long_help = examples::WAIT)]
    Wait(WaitArgs),
    /// Print what an app's terminal shows now.
    ///
    /// Does not attach, and the terminal keeps its size.
    #[command(after_long_help = examples::SCREEN)]
    Screen(ScreenArgs),
    /// Print what happens to apps, as JSON, until they end.
    ///
    /// Output, losses, starts and ends, clients that attach, detach and type, sizes, and new muxes.
    #[command(after_long_help = examples::EVENTS)]
    Events(EventsArgs),
    /// Stop `run` apps: SIGTERM, and SIGKILL after a while.
    ///
    /// Returns when they have ended. For a service, use systemctl.
    #[command(after_long_help = examples::STOP)]
    Stop(StopArgs),
    /// Send a signal to `run` apps.
    #[command(after_long_help = examples::STOP)]
    Kill(KillArgs),
    /// Remove ended `run` apps.
    ///
    /// Removes their last output and their status. Log files stay.
    #[command(visible_alias = "forget", after_long_help = examples::STOP)]
    Rm(RemoveArgs),
    /// Make a service attachable.
    #[command(override_usage = examples::ENABLE_USAGE, after_long_help = examples::ENABLE)]
    Enable(EnableArgs),
    /// Undo `enable`: restore the service's own streams.
    #[command(override_usage = examples::DISABLE_USAGE, after_long_help = examples::DISABLE)]
    Disable(DisableArgs),
    /// Write the unit files that make services attachable.
    ///
    /// For each service: a drop-in, the options of its mux, and the units that both need.
    #[command(after_long_help = examples::UNITS)]
    Units(UnitsArgs),
    /// Install this program and its files.
    ///
    /// These are the templates of the units, the user of the muxes (sysusers.d), man pages, and
    /// completion for bash, zsh and fish. A package has all of them. Nothing is started or restarted;
    /// the last line is the command that comes next.
    #[command(after_long_help = examples::INSTALL)]
    Install {
        /// Directory to install below.
        ///
        /// systemd looks for units below /usr/local and /usr.
        #[arg(long, value_name = "DIR", default_value = install::PREFIX)]
        prefix: PathBuf,
        /// Restart the muxes of services that run another program.
        ///
        /// Such as an older one. Their services run on, and clients go on with the next mux.
        #[arg(long, conflicts_with_all = ["remove", "runtime"])]
        restart: bool,
        /// Remove what `install` has written there.
        ///
        /// Refused while a service is enabled that would not start without this program. The user of
        /// the muxes stays.
        #[arg(long)]
        remove: bool,
        /// Add its runtime to a container engine: containerd, docker.
        ///
        /// Changes the configuration of the engine, which is to read it again then. Installs the
        /// program first, if it is not installed, and makes the user of the muxes. With --remove it
        /// takes the runtime out again, and nothing else; refused while a container runs with it.
        #[arg(long, value_name = "ENGINE", value_enum, hide_possible_values = true)]
        runtime: Option<ContainerEngine>,
    },
    /// Print the completion script of a shell.
    #[command(after_long_help = examples::COMPLETION)]
    Completion {
        /// Shell that reads it.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Run an app's mux with FIFOs (started by iomux@.service).
    #[command(after_long_help = examples::STREAM)]
    Stream(StreamArgs),
    /// Run an app's mux with a terminal (started by ttymux@.service).
    #[command(after_long_help = examples::TTY)]
    Tty(TtyArgs),
    /// Run the mux of a container, for its keeper.
    #[command(hide = true)]
    Container(ContainerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AppArg {
    /// App name: letters, digits and :-_.\@.
    #[arg(long = "app", value_name = "NAME", env = "IOTTYMUX_APP")]
    pub(crate) name: AppName,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Streams to attach, such as tty-out or stdout,stderr
    ///
    /// auto: all streams of the app.
    /// tty, tty-in, tty-out: its terminal, or one direction of it.
    /// stdin,stdout,stderr: any of these, separated by commas.
    /// list: none; show the endpoints of the app.
    #[arg(
        long,
        value_name = "MODE",
        env = "IOTTYMUX_MODE",
        default_value = "auto",
        verbatim_doc_comment
    )]
    pub(crate) mode: AttachMode,
    /// First byte to show: now, unseen, start or an offset
    ///
    /// now: only new output.
    /// unseen: output that no client has received yet, then new output.
    /// start: the oldest byte that the mux keeps.
    /// A number: the byte with this offset.
    #[arg(
        long,
        value_name = "POSITION",
        env = "IOTTYMUX_FROM",
        default_value = "unseen",
        verbatim_doc_comment
    )]
    pub(crate) from: Position,
    /// Initial terminal content.
    ///
    /// Default: screen. With --from, or if the output is not a terminal: none.
    #[arg(long, hide_short_help = true, value_name = "WHAT", env = "IOTTYMUX_REDRAW", value_enum)]
    pub(crate) redraw: Option<Redraw>,
    /// Do not print the lines above the app's screen.
    ///
    /// By default, attach first prints the lines that have scrolled off that screen.
    #[arg(long, env = "IOTTYMUX_NO_HISTORY", value_parser = BoolishValueParser::new())]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Wait until the app appears, at most DURATION if given.
    #[arg(long, value_name = "DURATION", env = "IOTTYMUX_WAIT", num_args = 0..=1,
          require_equals = true, default_missing_value = "inf",
          value_parser = values::wait)]
    pub(crate) wait: Option<Duration>,
    /// Attach again when the app runs again, or the next container of its name.
    ///
    /// It ends when you detach, or by ^C while it waits. Only Kubernetes gives a name to one container after
    /// another.
    #[arg(long, hide_short_help = true, env = "IOTTYMUX_FOLLOW", value_parser = BoolishValueParser::new())]
    pub(crate) follow: bool,
    /// Time to reconnect if the mux goes away; 0 to disable.
    #[arg(long, hide_short_help = true, value_name = "DURATION", env = "IOTTYMUX_RECONNECT",
          default_value = values::duration_text(limits::RECONNECT), value_parser = values::duration)]
    pub(crate) reconnect: Duration,
    /// Do not type, and do not resize the terminal.
    ///
    /// Of the others, the window that attached, typed or was resized last decides the size.
    #[arg(short, long, env = "IOTTYMUX_READ_ONLY", value_parser = BoolishValueParser::new(), conflicts_with = "stdin_once")]
    pub(crate) read_only: bool,
    /// Close the app's input at the end of this input.
    ///
    /// Only for containers, and `run` apps without -t.
    #[arg(long, env = "IOTTYMUX_STDIN_ONCE", value_parser = BoolishValueParser::new())]
    pub(crate) stdin_once: bool,
    /// Take the input lock, so no other client can type; fails if it is taken.
    #[arg(long, env = "IOTTYMUX_EXCLUSIVE", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) exclusive: bool,
    /// Like --exclusive, and make the current holder read-only.
    #[arg(long, env = "IOTTYMUX_TAKE_OVER", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) quiet: QuietArgs,
}

#[derive(Debug, Args)]
pub(crate) struct QuietArgs {
    /// Show no messages except errors, and do not redraw, as for expect.
    #[arg(short, long, hide_short_help = true, env = "IOTTYMUX_QUIET", value_parser = BoolishValueParser::new())]
    pub(crate) quiet: bool,
}

impl QuietArgs {
    /// What a terminal gets first, unless that was said.
    fn redraw(&self, from: Position) -> Redraw {
        if self.quiet { Redraw::None } else { default_redraw(from) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// Escape sequences to pass to this terminal.
    ///
    /// One or more of title, clipboard, notify, other and unknown, separated by commas; or all, or
    /// none. Output to pipes and files is never filtered.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WORDS",
        env = "IOTTYMUX_PASS",
        default_value = "none"
    )]
    pub(crate) pass: Pass,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Keys that detach from a terminal.
    ///
    /// In docker's syntax; empty to disable. Press them within half a second. The first of these
    /// keys followed by ? says how to leave, and how to see the other clients. The app gets a lone first
    /// key after 250 ms. A single key is never held back: ctrl-] detaches at once, and shells do not use it.
    #[arg(
        long,
        value_name = "KEYS",
        env = "IOTTYMUX_DETACH_KEYS",
        default_value = "ctrl-p,ctrl-q"
    )]
    pub(crate) detach_keys: Sequence,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Print only the names of the apps.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also list ended containers, and when and how apps ended.
    ///
    /// The newest container comes first. Other apps that have ended are always listed.
    #[arg(long)]
    pub(crate) ended: bool,
    /// Also list the apps of all users and pods (for root).
    ///
    /// The last column is each app's --state-dir. Includes --ended.
    #[arg(short, long, conflicts_with_all = ["app", "name"])]
    pub(crate) all: bool,
}

impl ListArgs {
    /// Which apps are printed.
    pub(crate) fn extent(&self) -> Extent {
        Extent { all: self.all, ended: self.ended || self.all }
    }

    /// What is printed of each app.
    pub(crate) fn form(&self) -> ListForm {
        match self {
            Self { quiet: true, .. } => ListForm::Names,
            Self { json: true, .. } => ListForm::Json,
            _ => ListForm::Table,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Show the status of all apps.
    ///
    /// With --json, an array. An app without a mux has only its name and state there.
    #[arg(short, long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Show new lines too, until the app ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show lines since a time, such as yesterday or 10m.
    ///
    /// As in journalctl: "2026-11-21 21:00", 21:00, today, yesterday, now, -1h, @1795000000.
    /// As in docker: 10m or 1h30m ago, and RFC 3339.
    #[arg(short = 'S', long, value_name = "TIME", value_parser = values::log_time,
          allow_hyphen_values = true)]
    pub(crate) since: Option<LogTime>,
    /// Show lines until a time, as in --since.
    #[arg(short = 'U', long, value_name = "TIME", value_parser = values::log_time,
          allow_hyphen_values = true, conflicts_with = "follow")]
    pub(crate) until: Option<LogTime>,
    /// Show lines that match a regular expression.
    ///
    /// As in journalctl, a pattern without capital letters ignores case.
    #[arg(short, long, value_name = "PATTERN", value_parser = Pattern::parse)]
    pub(crate) grep: Option<Pattern>,
    /// Show the last N matching lines [default: all].
    #[arg(short = 'n', long, alias = "lines", value_name = "N", value_parser = values::tail)]
    pub(crate) tail: Option<usize>,
    /// Show the time of each line.
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    /// Print JSON for each line: stream, text, time if known.
    #[arg(long, conflicts_with = "timestamps")]
    pub(crate) json: bool,
    /// Show one stream only: stdout or stderr.
    #[arg(long, value_name = "STREAM", value_parser = values::stream_of(&[Stream::Stdout, Stream::Stderr]))]
    pub(crate) stream: Option<Stream>,
    /// Read this log file and its rotated files.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Restart the muxes of all `run` apps and containers.
    #[arg(long, conflicts_with_all = ["name", "app"])]
    pub(crate) all: bool,
    #[command(subcommand)]
    pub(crate) request: RequestArgs,
}

impl ControlArgs {
    /// The app. Within `run` the client that types can be detached without naming it.
    fn dir(&self, given: Option<PathBuf>) -> anyhow::Result<AppDir> {
        if let RequestArgs::Detach { client: ControlRequest::DetachTypist } = self.request
            && let Some(own) = self.app.own(given.clone())?
        {
            return Ok(own);
        }
        self.app.require()?;
        self.app.resolve(given, MatchPolicy::Service)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestArgs {
    /// Detach a client.
    #[command(override_usage = "iottymux control NAME detach [OPTIONS] CLIENT")]
    Detach {
        /// Number of the client in `status`; self: the one that typed last.
        ///
        /// Within `run`, `iottymux control detach self` needs no name of an app.
        #[arg(value_name = "CLIENT", value_parser = values::detached)]
        client: ControlRequest,
    },
    /// Reopen the log files after an external tool has renamed them.
    ///
    /// Returns when the new files are open. Fails if the app has no log files.
    #[command(override_usage = "iottymux control NAME reopen-logs [OPTIONS]")]
    ReopenLogs,
    /// Restart the mux of a `run` app or container, as after an upgrade.
    ///
    /// The app runs on, and clients attach again by themselves. With --all instead of a name, all of
    /// these muxes, one after the other. For a service, restart the unit of its mux instead: iomux@NAME
    /// or ttymux@NAME.
    #[command(override_usage = "iottymux control NAME|--all restart [OPTIONS]")]
    Restart,
    /// Resize the terminal, until a client's window changes.
    #[command(override_usage = "iottymux control NAME resize [OPTIONS] ROWSxCOLS")]
    Resize {
        /// New size.
        #[arg(value_name = "ROWSxCOLS")]
        size: Size,
    },
    /// Report the app's exit to the mux (for ExecStopPost=).
    ///
    /// Reads $EXIT_CODE and $EXIT_STATUS, which systemd sets.
    #[command(hide = true)]
    Ended,
    /// Report the app's start to the mux (for ExecStartPost=).
    ///
    /// Reads $MAINPID, which systemd sets.
    #[command(hide = true)]
    Started,
    /// Report to the mux that the service is being stopped (for ExecStop=).
    #[command(hide = true)]
    Stopping,
    /// Type the line that stops the service, and wait for its end (for ExecStop=).
    ///
    /// Does nothing if the service has ended, or still has the streams from before `enable`.
    #[command(hide = true)]
    StopLine {
        /// Longest time until the service ends.
        #[arg(long, value_name = "DURATION", value_parser = values::duration)]
        time: Duration,
        /// The line.
        #[arg(value_name = "LINE", value_parser = values::stop_line)]
        line: String,
    },
    /// Ask systemd how the app ended, and report it to the mux.
    ///
    /// For ExecStop= of the mux's own unit, where the mux itself may not ask. Does nothing if the
    /// app's unit has reported the exit.
    #[command(hide = true)]
    AskEnd {
        /// Like --service of `stream`.
        #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
        service: Option<ServiceName>,
    },
}
