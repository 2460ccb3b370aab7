//! The command line: commands, options and their variables. The doc comments are the help: the
//! first paragraph is that of `-h`, one line for each option.
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
use clap::{Args, FromArgMatches, Parser, Subcommand};

pub(crate) use crate::cli::units::{DeferredStep, DisableArgs, EnableArgs, ModeArgs, UnitsArgs};

use crate::cli::values::{Since, Wait};
use crate::commands::attach::filter::Pass;
use crate::commands::attach::keys::Sequence;
use crate::commands::attach::mode::AttachMode;
use crate::logfmt::format;
use crate::logfmt::spec::{self, LogSpec};
use crate::logfmt::syslog;
use crate::mux::app::AWAIT_CLIENT;
use crate::mux::logs::pipeline::LogPolicy;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::rights::Lists;
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::{Position, Stream};
use crate::wire::Redraw;

const EXAMPLES: &str = "\
Examples:
  iottymux run --app demo --tty --attach -- bash   run a shell; ctrl-p ctrl-q detaches
  iottymux attach --app demo                       attach again, from any terminal
  iottymux attach --app demo --mode stdout | less  read the output of a service
  echo reload | iottymux attach --app demo --mode stdin
  iottymux list                                    list the apps
  systemctl start iomux@demo.service               start the mux of demo.service (see units/)

Exit status: 0 success, 1 failure, 2 usage error, 124 output incomplete, 125 connection lost.
Otherwise attach and run exit with the app's own status (128 + n for signal n).";

const LOGS_EXAMPLES: &str = "\
Examples:
  iottymux logs --app demo --tail 20 --follow      show the last lines and all new ones
  iottymux logs --app demo --since 10m             show the last ten minutes
  iottymux logs --app demo --stream stderr --since 2026-01-31T12:00:00+01:00 --timestamps
  iottymux logs --file /var/log/pods/x/0.log       read any log in the kubelet's or docker's format

The app's stdout and stderr go to stdout and stderr, byte for byte. On a terminal, control
sequences other than colours are escaped; to see the original bytes, pipe the output to cat.";

/// Attach any number of clients to the standard streams or terminal of a service.
#[derive(Debug, Parser)]
#[command(
    name = "iottymux",
    version,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    /// State directory [default: /run/iottymux or $XDG_RUNTIME_DIR/iottymux].
    ///
    /// It has one directory per app. Default: /rkt/iottymux in a rkt pod (not for `units` or
    /// --user), /run/iottymux for root, else $XDG_RUNTIME_DIR/iottymux; then /run/iottymux for apps
    /// that are not there. `disable` finds the directory of its service by itself.
    #[arg(long, global = true, value_name = "DIR", env = "IOTTYMUX_STATE_DIR", help_heading = GLOBAL)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log level: error, warn, info or debug [default: warn; mux: info].
    ///
    /// Messages go to standard error.
    #[arg(long, global = true, value_name = "LEVEL", env = "IOTTYMUX_LOG_LEVEL",
          value_parser = values::level, help_heading = GLOBAL)]
    pub(crate) log_level: Option<log::LevelFilter>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The title of the options that all commands have, in the help.
const GLOBAL: &str = "Global options";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the mux of an app with FIFOs (started by iomux@.service).
    Stream(StreamArgs),
    /// Run the mux of an app with a terminal (started by ttymux@.service).
    Tty(TtyArgs),
    /// Make the FIFOs or the terminal of an app as root, for a mux that is not root.
    ///
    /// For ExecStartPre= of the templates.
    #[command(hide = true)]
    Prepare(PrepareArgs),
    /// Attach standard input and output to an app.
    Attach(AttachArgs),
    /// List the apps, or show the endpoints of one.
    List(ListArgs),
    /// Show clients, stream offsets and lost bytes; or how the app ended.
    ///
    /// After the mux has exited, shows the app's exit status and its last output.
    Status(StatusArgs),
    /// Show the log of an app.
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(LogsArgs),
    /// Control the mux of an app.
    Control(ControlArgs),
    /// Run a command as an app, together with its mux.
    Run(RunArgs),
    /// Make a service attachable.
    #[command(after_help = units::ENABLE_EXAMPLES)]
    Enable(EnableArgs),
    /// Undo `enable`: restore the service's own streams.
    Disable(DisableArgs),
    /// Write the unit files that make services attachable.
    ///
    /// For each service: a drop-in, the options of its mux, and the units that both need.
    #[command(after_help = units::UNITS_EXAMPLES)]
    Units(UnitsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AppArg {
    /// App name: a-z, 0-9 and '-'.
    #[arg(long = "app", value_name = "NAME", env = "IOTTYMUX_APP")]
    pub(crate) name: AppName,
}

/// The options of every mux.
#[derive(Debug, Args)]
pub(crate) struct MuxArgs {
    /// Service that is the app [default: NAME.service].
    ///
    /// The mux asks systemd how this service ended, and `journalctl -u SERVICE` shows the lines
    /// that the mux logs with `--log journal`.
    #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Output kept per stream for slow and late clients.
    ///
    /// In bytes, from 4K to 1G; the suffixes K, M and G are allowed.
    // A reader that is merely not scheduled for a while never holds the app back, and a hundred apps
    // on a host are cheap.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_BACKLOG", default_value = "256K",
          value_parser = values::backlog)]
    pub(crate) backlog: usize,
    /// Longest time that a stalled client delays the app.
    ///
    /// In seconds. After this time the client loses output, and the mux reports the gap to it.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_CLIENT_PATIENCE", default_value = "1",
          value_parser = values::seconds)]
    pub(crate) client_patience: Duration,
    #[command(
        flatten,
        next_help_heading = "Access options (root and the mux's user have full access)"
    )]
    pub(crate) others: Lists,
    #[command(flatten, next_help_heading = "Log options")]
    pub(crate) logs: LogArgs,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct LogArgs {
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_LOG", value_delimiter = ',',
          value_parser = LogSpec::log, help = spec::help(false), long_help = spec::long_help(false))]
    pub(crate) log: Vec<LogSpec>,
    /// Longest log entry; longer lines are split.
    ///
    /// In bytes of text, up to 1M; 0 stands for 1M.
    // What the kubelet's readers are used to.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_LINE_LIMIT", default_value = "16K",
          value_parser = values::line_limit)]
    pub(crate) log_line_limit: usize,
    /// Time until an unfinished line is logged as a part.
    ///
    /// In seconds.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_LOG_FLUSH", default_value = "1",
          value_parser = values::seconds)]
    pub(crate) log_flush: Duration,
    /// Rotate a log file at this size [default: no rotation].
    ///
    /// In bytes, at least 4K; the suffixes K, M and G are allowed. An external tool may rotate the
    /// files instead, and then send SIGHUP or run `iottymux control reopen-logs`.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_MAX_SIZE", value_parser = values::log_size)]
    pub(crate) log_max_size: Option<u64>,
    /// Number of rotated files to keep.
    #[arg(long, value_name = "N", env = "IOTTYMUX_LOG_MAX_FILES", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::LOG_FILES_MAX)))]
    pub(crate) log_max_files: u32,
    /// Newest output kept while a log cannot be written.
    ///
    /// In bytes, from 256K to 1G.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_BUFFER", default_value = "1M",
          value_parser = values::log_buffer)]
    pub(crate) log_buffer: usize,
    /// Journal level of lines that do not begin with <N>.
    ///
    /// From 0 to 7, like SyslogLevel= of systemd.
    #[arg(long, value_name = "LEVEL", env = "IOTTYMUX_SYSLOG_LEVEL", default_value = "6",
          value_parser = |text: &str| values::syslog_number(text, syslog::DEBUG))]
    pub(crate) syslog_level: u8,
    /// Keep <N> at the start of lines in the journal.
    ///
    /// Like SyslogLevelPrefix=no of systemd.
    #[arg(long, env = "IOTTYMUX_SYSLOG_KEEP_PREFIX", value_parser = BoolishValueParser::new())]
    pub(crate) syslog_keep_prefix: bool,
    /// Journal facility, if the mux writes the journal.
    ///
    /// From 0 to 23, like SyslogFacility= of systemd.
    #[arg(long, value_name = "FACILITY", env = "IOTTYMUX_SYSLOG_FACILITY", default_value = "3",
          value_parser = |text: &str| values::syslog_number(text, syslog::LOCAL7))]
    pub(crate) syslog_facility: u8,
    /// Journal name, if the mux writes it [default: the app's].
    ///
    /// Like SyslogIdentifier= of systemd.
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_SYSLOG_IDENTIFIER",
          value_parser = values::syslog_identifier)]
    pub(crate) syslog_identifier: Option<String>,
    /// On a slow log: hold the app, or drop lines.
    ///
    /// hold: the app waits until the log has room. drop: the log loses lines, and reports how many.
    #[arg(long, value_name = "POLICY", env = "IOTTYMUX_LOG_POLICY", default_value = "hold",
          value_parser = LogPolicy::parse)]
    pub(crate) log_policy: LogPolicy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct RecordArgs {
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_RECORD", value_delimiter = ',',
          value_parser = LogSpec::recording, help = spec::help(true), long_help = spec::long_help(true))]
    pub(crate) record: Vec<LogSpec>,
    /// Also record the input, passwords included.
    #[arg(long, env = "IOTTYMUX_RECORD_INPUT", value_parser = BoolishValueParser::new())]
    pub(crate) record_input: bool,
}

impl MuxArgs {
    /// The defaults, whatever the environment says: rkt's spelling has none of these options.
    pub(crate) fn defaults() -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("mux")).no_binary_name(true);
        let command = command.mut_args(|option| option.env(None::<&str>));
        Self::from_arg_matches(&command.try_get_matches_from(None::<OsString>)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Streams of the app, separated by commas [default: all].
    ///
    /// In a rkt pod, the default is each stream whose variable (STAGE2_STDIN, STAGE2_STDOUT,
    /// STAGE2_STDERR) is true, if one of these variables is set.
    #[arg(long, value_name = "STREAMS", env = "IOTTYMUX_STREAMS", value_delimiter = ',',
          value_parser = values::plain_stream)]
    pub(crate) streams: Option<Vec<Stream>>,
    /// Use FIFOs of another owner, such as socket units.
    ///
    /// The mux does not make, move or remove these FIFOs, and cannot end the app's input.
    #[arg(long, env = "IOTTYMUX_FOREIGN_FIFOS", value_parser = BoolishValueParser::new())]
    pub(crate) foreign_fifos: bool,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TtyArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Initial size of the terminal.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE", default_value = "24x80",
          value_parser = values::size)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

/// The options of `stream` and `tty` that `prepare` needs. It is an internal command.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Unit of the mux; systemd keeps the descriptors for it.
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: String,
    /// Make a terminal instead of FIFOs.
    #[arg(long)]
    pub(crate) tty: bool,
    /// Like --service of `stream`.
    #[arg(long, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Like --streams of `stream`.
    #[arg(long, value_name = "STREAMS", env = "IOTTYMUX_STREAMS", value_delimiter = ',',
          value_parser = values::plain_stream)]
    pub(crate) streams: Option<Vec<Stream>>,
    /// Like --foreign-fifos of `stream`.
    #[arg(long, env = "IOTTYMUX_FOREIGN_FIFOS", value_parser = BoolishValueParser::new())]
    pub(crate) foreign_fifos: bool,
    /// Like --size of `tty`.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE", default_value = "24x80",
          value_parser = values::size)]
    pub(crate) size: Size,
    /// Like --log of `stream`; `prepare` only looks for the journal in it.
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_LOG", value_delimiter = ',')]
    pub(crate) log: Vec<String>,
}

impl PrepareArgs {
    /// Whether the mux logs to the journal of the service.
    pub(crate) fn has_journal(&self) -> bool {
        self.log.iter().any(|spec| spec.split(':').next() == Some("journal"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
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
    /// First view of a terminal.
    ///
    /// The default is screen, unless --from is given or the output is not a terminal.
    #[arg(long, value_name = "WHAT", env = "IOTTYMUX_REDRAW", value_enum)]
    pub(crate) redraw: Option<Redraw>,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// Wait until the app appears, at most SECONDS if given.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_WAIT", num_args = 0..=1,
          require_equals = true, default_missing_value = "inf",
          value_parser = values::wait)]
    pub(crate) wait: Option<Wait>,
    /// Time to reconnect if the mux goes away; 0 to disable.
    ///
    /// In seconds.
    #[arg(long, value_name = "SECONDS", env = "IOTTYMUX_RECONNECT", default_value = "5",
          value_parser = values::seconds)]
    pub(crate) reconnect: Duration,
    /// Do not type, and do not resize the terminal.
    #[arg(long, env = "IOTTYMUX_READ_ONLY", value_parser = BoolishValueParser::new(), conflicts_with = "stdin_once")]
    pub(crate) read_only: bool,
    /// Close the app's input at the end of this input.
    #[arg(long, env = "IOTTYMUX_STDIN_ONCE", value_parser = BoolishValueParser::new())]
    pub(crate) stdin_once: bool,
    #[command(flatten)]
    pub(crate) alone: AloneArgs,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// Escape sequences to pass to this terminal.
    ///
    /// Those of the app: title, clipboard, notify and other, separated by commas; or all, or none. Pipes and files
    /// always receive the output unfiltered.
    #[arg(long, value_name = "WORDS", env = "IOTTYMUX_PASS", default_value = "none")]
    pub(crate) pass: Pass,
}

#[derive(Debug, Args)]
pub(crate) struct AloneArgs {
    /// Let no other client type; fails if one already has this lock.
    #[arg(long, env = "IOTTYMUX_EXCLUSIVE", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) exclusive: bool,
    /// Like --exclusive, and make the current holder read-only.
    #[arg(long, env = "IOTTYMUX_TAKE_OVER", value_parser = BoolishValueParser::new(), conflicts_with = "read_only")]
    pub(crate) take_over: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Keys that detach from a terminal.
    ///
    /// In docker's syntax; empty to disable. The first of these keys followed by ? shows the keys
    /// and the other clients.
    #[arg(
        long,
        value_name = "KEYS",
        env = "IOTTYMUX_DETACH_KEYS",
        default_value = "ctrl-p,ctrl-q"
    )]
    pub(crate) detach_keys: Sequence,
    /// Keys that suspend attach, like ^Z in a shell.
    ///
    /// In the syntax of --detach-keys. Default: no keys. `fg` resumes attach.
    #[arg(
        long,
        value_name = "KEYS",
        env = "IOTTYMUX_SUSPEND_KEY",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) suspend_key: Sequence,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show the endpoints document of this app.
    #[arg(long = "app", value_name = "NAME", env = "IOTTYMUX_APP")]
    pub(crate) app: Option<AppName>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_APP", required_unless_present = "file",
          help = format!("App whose log to show ({})", format::readable()))]
    pub(crate) app: Option<AppName>,
    /// Show new lines too, until the app ends.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show lines since a time (RFC 3339) or for the last 10m, 1h30m.
    #[arg(long, value_name = "TIME|DURATION", value_parser = values::since)]
    pub(crate) since: Option<Since>,
    /// Show the last N matching lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Show the time of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Show one stream only: stdout or stderr.
    #[arg(long, value_name = "STREAM", value_parser = values::logged_stream)]
    pub(crate) stream: Option<Stream>,
    /// Read this log file and its rotated files.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    #[command(subcommand)]
    pub(crate) request: RequestArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestArgs {
    /// Detach a client.
    Detach {
        /// Number of the client, as shown by `status`.
        #[arg(value_name = "CLIENT")]
        client: u64,
    },
    /// Reopen the log files after an external tool has renamed them.
    ///
    /// Returns when the new files are open. Fails if the app has no log files.
    ReopenLogs,
    /// Resize the terminal, until the window of a client changes.
    Resize {
        /// New size.
        #[arg(value_name = "ROWSxCOLS", value_parser = values::size)]
        size: Size,
    },
    /// Report the app's exit to the mux (for ExecStopPost=).
    ///
    /// Reads $EXIT_CODE and $EXIT_STATUS, which systemd sets.
    Ended,
    /// Report the app's start to the mux (for ExecStartPost=).
    ///
    /// Reads $MAINPID, which systemd sets.
    Started,
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

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Run the command on a terminal instead of FIFOs.
    #[arg(long, env = "IOTTYMUX_TTY", value_parser = BoolishValueParser::new())]
    pub(crate) tty: bool,
    /// Attach to the app; after a detach the mux runs on.
    ///
    /// Without --tty, the end of this input closes the command's input.
    #[arg(long, env = "IOTTYMUX_ATTACH", value_parser = BoolishValueParser::new())]
    pub(crate) attach: bool,
    /// Initial size of the terminal [default: the first client's].
    ///
    /// Default: the window of the first client that has one, else 24x80.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE",
          value_parser = values::size)]
    pub(crate) size: Option<Size>,
    /// Start the command when the first client attaches (used by --attach).
    #[arg(long, hide = true, env = AWAIT_CLIENT, value_parser = BoolishValueParser::new())]
    pub(crate) await_client: bool,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "CMD", help_heading = None::<&str>)]
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
                assert_eq!((mux.backlog, mux.client_patience), (256 * 1024, limits::PATIENCE));
                let defaults = MuxArgs::defaults().unwrap();
                assert_eq!((defaults.backlog, defaults.others), (mux.backlog, mux.others));
                assert_eq!(defaults.logs, mux.logs);
            }
            other => panic!("{other:?}"),
        }
    }
}
