//! What was typed: commands, options, and their variables. What it means is decided in `config`.
//!
//! | module | is |
//! |---|---|
//! | [`dispatch`] | from the command line to the command |
//! | [`rkt`] | rkt's spelling |
//! | [`resolve_units`], [`resolve`] | what the arguments mean, checked |
//! | [`units`] | the arguments of the commands that write units |
//! | [`values`] | the values of options |

pub(crate) mod dispatch;
pub(crate) mod resolve;
pub(crate) mod resolve_units;
pub(crate) mod rkt;
mod units;
pub(crate) mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use crate::cli::units::{
    DeferredStep, DisableArgs, EnableArgs, LayoutArg, ModeArgs, UnitsArgs,
};

use crate::cli::values::{Since, Wait};
use crate::commands::attach::filter::Pass;
use crate::commands::attach::keys::Sequence;
use crate::commands::attach::mode::AttachMode;
use crate::logfmt::spec::{self, LogSpec};
use crate::logfmt::syslog;
use crate::mux::app::AWAIT_CLIENT;
use crate::mux::logs::pipeline::LogPolicy;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::types::stream::{Position, Stream};
use crate::wire::Size;

const EXAMPLES: &str = "\
Examples:
  iottymux run --app demo --tty --attach -- bash   a shell that can be detached (ctrl-p ctrl-q)
  iottymux attach --app demo                       come back to it, from anywhere
  iottymux attach --app demo --mode stdout | less  read what a service prints
  echo reload | iottymux attach --app demo --mode stdin
  iottymux list                                    the apps that can be attached
  systemctl start iomux@demo.service               the mux of demo.service (see units/)

Exit status: 0 done, 1 failed, 2 usage, 124 output incomplete, 125 connection lost;
attach and run otherwise end with the app's own status (128 + n for signal n).";

const LOGS_EXAMPLES: &str = "\
Examples:
  iottymux logs --app demo --tail 20 --follow      the last lines, and what comes, until it ends
  iottymux logs --app demo --since 10m             what it said in the last ten minutes
  iottymux logs --app demo --stream stderr --since 2026-01-31T12:00:00+01:00 --timestamps
  iottymux logs --file /var/log/pods/x/0.log       any log in the kubelet's or docker's format

stdout and stderr of the app come out at stdout and stderr, byte for byte. On a terminal, what
would be more to it than text and colours is escaped; `| cat` shows it as it is.";

/// Reach the stdin, stdout, stderr or terminal of a service, with any number of clients.
#[derive(Debug, Parser)]
#[command(
    name = "iottymux",
    version,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    /// Directory with one directory per app [default: /rkt/iottymux in a pod of rkt (`units` and
    /// --user do not look for one), else /run/iottymux for root, else $XDG_RUNTIME_DIR/iottymux, and
    /// /run/iottymux for apps that are not there; `disable` finds that of its service by itself].
    #[arg(long, global = true, value_name = "DIR", env = "IOTTYMUX_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// What to tell on standard error: error, warn, info or debug [default: info for a mux, warn
    /// for everything else].
    #[arg(long, global = true, value_name = "LEVEL", env = "IOTTYMUX_LOG_LEVEL", value_parser = values::level)]
    pub(crate) log_level: Option<log::LevelFilter>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Be the mux of an app with FIFOs (started by iomux@.service).
    Stream(StreamArgs),
    /// Be the mux of an app with a terminal (started by ttymux@.service).
    Tty(TtyArgs),
    /// Make the FIFOs or the terminal of an app as root, for a mux that is not (ExecStartPre= of the templates).
    #[command(hide = true)]
    Prepare(PrepareArgs),
    /// Attach this process's input and output to an app.
    Attach(AttachArgs),
    /// Show the endpoints of one app, or all apps.
    List(ListArgs),
    /// Show what the mux of an app knows: clients, positions, lost bytes; or how the app ended, and
    /// the last that it said.
    Status(StatusArgs),
    /// Read the log of an app.
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(LogsArgs),
    /// Have the mux of an app do something.
    Control(ControlArgs),
    /// Start a command as an app, and be its mux.
    Run(RunArgs),
    /// Make a service of this machine attachable.
    #[command(after_help = units::ENABLE_EXAMPLES)]
    Enable(EnableArgs),
    /// Undo `enable`: give a service its own streams again.
    Disable(DisableArgs),
    /// Write the units that make services attachable: a drop-in of each, its mux's options, and what
    /// both need.
    #[command(after_help = units::UNITS_EXAMPLES)]
    Units(UnitsArgs),
}

/// Which app.
#[derive(Debug, Args)]
pub(crate) struct AppArg {
    /// Name of the app: a-z, 0-9 and '-'.
    #[arg(long = "app", value_name = "NAME", env = "IOTTYMUX_APP")]
    pub(crate) name: AppName,
}

/// What every mux has.
#[derive(Debug, Args)]
pub(crate) struct MuxArgs {
    /// The service that is the app: systemd is asked how it ended, and journalctl -u shows what it says
    /// [default: NAME.service].
    #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Bytes of output kept per stream for clients that are behind or come late; K, M and G are
    /// understood (4K to 1G).
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_BACKLOG", default_value = "256K",
          value_parser = values::backlog)]
    pub(crate) backlog: usize,
    /// How many seconds a client that stalls may hold the app back, before it is passed over.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_CLIENT_PATIENCE", default_value = "1",
          value_parser = values::seconds)]
    pub(crate) client_patience: Duration,
    /// Who may come beside root and this user.
    #[command(flatten)]
    pub(crate) others: OthersArgs,
    /// What is logged.
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct LogArgs {
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_LOG", value_delimiter = ',',
          value_parser = LogSpec::log, help = spec::help(false), long_help = spec::long_help(false))]
    pub(crate) log: Vec<LogSpec>,
    /// Longest text of a log entry in bytes; a longer line is split (0: 1M).
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_LINE_LIMIT", default_value = "16384",
          value_parser = values::line_limit)]
    pub(crate) log_line_limit: usize,
    /// How many seconds half a line waits for its end before it is logged as a part.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_LOG_FLUSH", default_value = "1",
          value_parser = values::seconds)]
    pub(crate) log_flush: Duration,
    /// Rename a log file before it grows beyond this (K, M and G are understood); never, unless
    /// given: then somebody else does, and says so by SIGHUP or `control reopen-logs`.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_MAX_SIZE", value_parser = values::log_size)]
    pub(crate) log_max_size: Option<u64>,
    /// How many renamed files are kept.
    #[arg(long, value_name = "N", env = "IOTTYMUX_LOG_MAX_FILES", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::LOG_FILES_MAX)))]
    pub(crate) log_max_files: u32,
    /// Bytes of the newest lines that are kept for a log that cannot be written.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_BUFFER", default_value = "1M",
          value_parser = values::log_buffer)]
    pub(crate) log_buffer: usize,
    /// Level of a line in the journal that does not begin with <N> (systemd's SyslogLevel=, 0 to 7).
    #[arg(long, value_name = "LEVEL", env = "IOTTYMUX_SYSLOG_LEVEL", default_value = "6",
          value_parser = |text: &str| values::syslog_number(text, syslog::DEBUG))]
    pub(crate) syslog_level: u8,
    /// Keep <N> at the start of a line in the journal (systemd's SyslogLevelPrefix=no).
    #[arg(long, env = "IOTTYMUX_SYSLOG_KEEP_PREFIX", value_parser = BoolishValueParser::new())]
    pub(crate) syslog_keep_prefix: bool,
    /// Facility of the lines in the journal, where the mux itself writes them (SyslogFacility=, 0 to
    /// 23).
    #[arg(long, value_name = "FACILITY", env = "IOTTYMUX_SYSLOG_FACILITY", default_value = "3",
          value_parser = |text: &str| values::syslog_number(text, syslog::LOCAL7))]
    pub(crate) syslog_facility: u8,
    /// Name of the program in the journal, where the mux itself writes it [default: the app's].
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_SYSLOG_IDENTIFIER",
          value_parser = values::syslog_identifier)]
    pub(crate) syslog_identifier: Option<String>,
    /// What gives way when a log is slower than the app: hold (the app waits) or drop (lines are
    /// lost, and counted).
    #[arg(long, value_name = "POLICY", env = "IOTTYMUX_LOG_POLICY", default_value = "hold",
          value_parser = LogPolicy::parse)]
    pub(crate) log_policy: LogPolicy,
}

impl Default for LogArgs {
    fn default() -> Self {
        Self {
            log: Vec::new(),
            log_line_limit: limits::LOG_LINE,
            log_flush: limits::LOG_FLUSH,
            log_max_size: None,
            log_max_files: limits::LOG_FILES,
            log_buffer: limits::LOG_BUFFER,
            syslog_level: syslog::INFO,
            syslog_keep_prefix: false,
            syslog_facility: syslog::DAEMON,
            syslog_identifier: None,
            log_policy: LogPolicy::Hold,
        }
    }
}

/// What is recorded of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct RecordArgs {
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_RECORD", value_delimiter = ',',
          value_parser = LogSpec::recording, help = spec::help(true), long_help = spec::long_help(true))]
    pub(crate) record: Vec<LogSpec>,
    /// Record what is typed as well, passwords among it.
    #[arg(long, env = "IOTTYMUX_RECORD_INPUT", value_parser = BoolishValueParser::new())]
    pub(crate) record_input: bool,
}

/// Who may come beside root and the mux's own user: numbers, with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct OthersArgs {
    /// Users that may attach and type.
    #[arg(long, value_name = "UIDS", env = "IOTTYMUX_ALLOW_UID", value_delimiter = ',',
          value_parser = values::id)]
    pub(crate) allow_uid: Vec<u32>,
    /// Groups whose members may attach and type.
    #[arg(long, value_name = "GIDS", env = "IOTTYMUX_ALLOW_GID", value_delimiter = ',',
          value_parser = values::id)]
    pub(crate) allow_gid: Vec<u32>,
    /// Users that may attach and only look.
    #[arg(long, value_name = "UIDS", env = "IOTTYMUX_VIEW_UID", value_delimiter = ',',
          value_parser = values::id)]
    pub(crate) view_uid: Vec<u32>,
    /// Groups whose members may attach and only look.
    #[arg(long, value_name = "GIDS", env = "IOTTYMUX_VIEW_GID", value_delimiter = ',',
          value_parser = values::id)]
    pub(crate) view_gid: Vec<u32>,
}

impl Default for MuxArgs {
    fn default() -> Self {
        Self {
            service: None,
            backlog: limits::BACKLOG,
            client_patience: limits::PATIENCE,
            others: OthersArgs::default(),
            logs: LogArgs::default(),
        }
    }
}

/// Arguments of `stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// The streams of the app, with commas [default: those that are true of STAGE2_STDIN,
    /// STAGE2_STDOUT and STAGE2_STDERR, or all when none of these is set].
    #[arg(long, value_name = "STREAMS", env = "IOTTYMUX_STREAMS", value_delimiter = ',',
          value_parser = values::plain_stream)]
    pub(crate) streams: Option<Vec<Stream>>,
    /// The FIFOs are somebody else's, as those of socket units: none is made, put away or removed, and
    /// the app's input cannot be ended.
    #[arg(long, env = "IOTTYMUX_FOREIGN_FIFOS", value_parser = BoolishValueParser::new())]
    pub(crate) foreign_fifos: bool,
    /// What every mux has.
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

/// Arguments of `tty`.
#[derive(Debug, Args)]
pub(crate) struct TtyArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Size of the terminal at first, in rows and columns.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE", default_value = "24x80",
          value_parser = values::size)]
    pub(crate) size: Size,
    /// What is recorded.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// What every mux has.
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

/// Arguments of `prepare`: those that matter to it of `stream` and `tty`.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// The mux's unit, which the descriptors are kept for.
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: String,
    /// The app has a terminal.
    #[arg(long)]
    pub(crate) tty: bool,
    /// As of `stream`.
    #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
    pub service: Option<ServiceName>,
    /// As of `stream`.
    #[arg(long, value_name = "STREAMS", env = "IOTTYMUX_STREAMS", value_delimiter = ',',
          value_parser = values::plain_stream)]
    pub(crate) streams: Option<Vec<Stream>>,
    /// As of `stream`.
    #[arg(long, env = "IOTTYMUX_FOREIGN_FIFOS", value_parser = BoolishValueParser::new())]
    pub(crate) foreign_fifos: bool,
    /// As of `tty`.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE", default_value = "24x80",
          value_parser = values::size)]
    pub(crate) size: Size,
    /// As of `stream`; only whether the journal is among them.
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_LOG", value_delimiter = ',')]
    pub(crate) log: Vec<String>,
}

impl PrepareArgs {
    /// Whether the mux logs by the writer of the journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.log.iter().any(|spec| spec.split(':').next() == Some("journal"))
    }
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// What to attach: auto (all there is), list, tty, tty-in, tty-out, or any of
    /// stdin,stdout,stderr.
    #[arg(long, value_name = "MODE", env = "IOTTYMUX_MODE", default_value = "auto")]
    pub(crate) mode: AttachMode,
    /// Where to begin: now, unseen (what no client was given yet), start (the oldest byte kept), or
    /// the offset of a byte.
    #[arg(long, value_name = "POSITION", env = "IOTTYMUX_FROM", default_value = "unseen")]
    pub(crate) from: Position,
    /// What a terminal shows first: the screen as it is, the bytes that are kept, or none [default: the
    /// screen, unless --from is given or the output is no terminal]
    #[arg(long, value_name = "WHAT", env = "IOTTYMUX_REDRAW", value_enum)]
    pub(crate) redraw: Option<Picture>,
    /// Which strings of the app reach this terminal.
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Wait for the app to appear, for ever or this many seconds.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_WAIT", num_args = 0..=1,
          require_equals = true, default_missing_value = "inf",
          value_parser = values::wait)]
    pub(crate) wait: Option<Wait>,
    /// How many seconds to try again when the mux goes away; 0 is not at all.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_RECONNECT", default_value = "5",
          value_parser = values::seconds)]
    pub(crate) reconnect: Duration,
    /// Only look: nothing is typed, no window is followed.
    #[arg(long, env = "IOTTYMUX_READ_ONLY", value_parser = BoolishValueParser::new(), conflicts_with = "stdin_once")]
    pub(crate) read_only: bool,
    /// The end of this input ends the app's.
    #[arg(long, env = "IOTTYMUX_STDIN_ONCE", value_parser = BoolishValueParser::new())]
    pub(crate) stdin_once: bool,
    /// Whether others type.
    #[command(flatten)]
    pub(crate) alone: AloneArgs,
    /// The keys of a person who is attached.
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

/// What of the app reaches a terminal beside what it draws.
#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// Escape sequences of the app that a terminal may obey: title, clipboard, notify, other, with
    /// commas; all or none. Output to a pipe or file is never filtered.
    #[arg(long, value_name = "WORDS", env = "IOTTYMUX_PASS", default_value = "none")]
    pub(crate) pass: Pass,
}

/// What a terminal shows first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// The screen as it is.
    Screen,
    /// The bytes that are kept.
    Backlog,
    /// Where --from begins.
    None,
}

/// Whether others type meanwhile.
#[derive(Debug, Args)]
pub(crate) struct AloneArgs {
    /// Nobody else types while this is attached; refused while somebody else has asked for that.
    #[arg(long, env = "IOTTYMUX_EXCLUSIVE", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) exclusive: bool,
    /// As --exclusive, and whoever has asked for that before only looks from now on.
    #[arg(long, env = "IOTTYMUX_TAKE_OVER", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) take_over: bool,
}

/// The keys of a person who is attached.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Keys that detach from a terminal, in docker's syntax; empty for none. The first of them and ?
    /// shows these keys, and who else is attached.
    #[arg(
        long,
        value_name = "KEYS",
        env = "IOTTYMUX_DETACH_KEYS",
        default_value = "ctrl-p,ctrl-q"
    )]
    pub(crate) detach_keys: Sequence,
    /// Keys that suspend attach as ^Z does a command (fg goes on), in the same syntax; none unless given.
    #[arg(
        long,
        value_name = "KEYS",
        env = "IOTTYMUX_SUSPEND_KEY",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) suspend_key: Sequence,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show the endpoints document of this app.
    #[arg(long = "app", value_name = "NAME", env = "IOTTYMUX_APP")]
    pub(crate) app: Option<AppName>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name of the app whose log (cri or json-file) is read.
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_APP", required_unless_present = "file")]
    pub(crate) app: Option<AppName>,
    /// Go on with what is written, until the app ends.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Only lines of this time or later (RFC 3339), or of the time that is past (10m, 1h30m).
    #[arg(long, value_name = "TIME|DURATION", value_parser = values::since)]
    pub(crate) since: Option<Since>,
    /// Only the last lines, so many of what is asked for.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Put the time before each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Only this stream: stdout or stderr.
    #[arg(long, value_name = "STREAM", value_parser = values::logged_stream)]
    pub(crate) stream: Option<Stream>,
    /// Read this file, and what was rotated away from it, instead of the app's own log.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// Arguments of `control`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// What to do.
    #[command(subcommand)]
    pub(crate) request: RequestArgs,
}

/// What a mux can be asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum RequestArgs {
    /// Let go of a client.
    Detach {
        /// Its number, as `status` shows it.
        #[arg(value_name = "CLIENT")]
        client: u64,
    },
    /// Open the log files anew, after somebody has renamed them; ends when the new ones are there,
    /// and fails where the app has none.
    ReopenLogs,
    /// Give the terminal a size, until a client's window changes.
    Resize {
        /// The size.
        #[arg(value_name = "ROWSxCOLS", value_parser = values::size)]
        size: Size,
    },
    /// Know that the app has ended, and how: for ExecStopPost= of its unit, whose $EXIT_CODE and
    /// $EXIT_STATUS it takes.
    Ended,
    /// Know that the app runs: for ExecStartPost= of its unit, whose $MAINPID it takes.
    Started,
    /// Know what systemd knows of the app's end, unless its unit has reported it: for ExecStop= of the mux's
    /// own unit, where the mux itself may not ask.
    #[command(hide = true)]
    AskEnd {
        /// As of `stream`.
        #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
        service: Option<ServiceName>,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Which app.
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Give the command a terminal instead of FIFOs.
    #[arg(long, env = "IOTTYMUX_TTY", value_parser = BoolishValueParser::new())]
    pub(crate) tty: bool,
    /// Attach to it; the mux goes on in the background when this is detached. Without --tty the end
    /// of this input ends the command's.
    #[arg(long, env = "IOTTYMUX_ATTACH", value_parser = BoolishValueParser::new())]
    pub(crate) attach: bool,
    /// Size of the terminal at first [default: that of the first client that has one, else 24x80].
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE",
          value_parser = values::size)]
    pub(crate) size: Option<Size>,
    /// Start the command only when somebody has attached (used by --attach).
    #[arg(long, hide = true, env = AWAIT_CLIENT, value_parser = BoolishValueParser::new())]
    pub(crate) await_client: bool,
    /// Which strings of the app reach this terminal.
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// The keys of a person who is attached.
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    /// What is recorded, with --tty.
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// What every mux has.
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_what_the_limits_say() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["iottymux"], words].concat());
        match parse(&["attach", "--app", "x"]).unwrap().command {
            Command::Attach(args) => assert_eq!(args.reconnect, limits::RECONNECT),
            other => panic!("{other:?}"),
        }
        match parse(&["stream", "--app", "x"]).unwrap().command {
            Command::Stream(StreamArgs { mux, .. }) => {
                assert_eq!((mux.backlog, mux.client_patience), (limits::BACKLOG, limits::PATIENCE));
            }
            other => panic!("{other:?}"),
        }
    }
}
