//! The arguments of the commands that are a mux or prepare one.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, FromArgMatches, value_parser};

use super::{AppArg, KeyArgs, PassArgs, QuietArgs, values};
use crate::core::logfmt::spec::{self, LogSpec};
use crate::core::logfmt::syslog;
use crate::keeper::scope::{SCOPE, ScopePolicy};
use crate::keeper::{AWAIT_CLIENT, NAME};
use crate::mux::logs::pipeline::LogPolicy;
use crate::sys::documents::container::Container;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::rights::Lists;
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// The options of every mux.
#[derive(Debug, Args)]
pub(crate) struct MuxArgs {
    /// Service of the app [default: NAME.service].
    ///
    /// The mux asks systemd how this service ended, and `journalctl -u SERVICE` shows the lines
    /// that the mux logs with `--log journal`.
    #[arg(long, hide_short_help = true, value_name = "SERVICE", env = "IOTTYMUX_SERVICE")]
    pub(crate) service: Option<ServiceName>,
    /// Output kept per stream for slow and late clients.
    ///
    /// In bytes, from 4K to 1G; the suffixes K, M and G are allowed.
    // With this size, an ordinary scheduling delay of a reader does not delay the app, and a
    // hundred apps on a host are cheap.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_BACKLOG", default_value = "512K",
          value_parser = values::bytes_in(values::BACKLOG))]
    pub(crate) backlog: usize,
    /// Longest time that a stalled client delays the app.
    ///
    /// After this time the client loses output, and the mux reports the gap to it.
    #[arg(long, hide_short_help = true, value_name = "DURATION", env = "IOTTYMUX_MAX_CLIENT_DELAY",
          default_value = values::duration_text(limits::PATIENCE), value_parser = values::duration)]
    pub(crate) max_client_delay: Duration,
    #[command(
        flatten,
        next_help_heading = "Access options (root and the mux's user have full access)"
    )]
    pub(crate) others: PeerArgs,
    #[command(flatten, next_help_heading = "Log options")]
    pub(crate) logs: LogArgs,
}

/// The users and groups with access to an app.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct PeerArgs {
    /// Users that may attach and type, separated by commas.
    ///
    /// By name or number, as in each of these lists.
    #[arg(long, value_name = "USERS", env = "IOTTYMUX_ALLOW_UID", value_delimiter = ',',
          value_parser = values::user)]
    allow_uid: Vec<u32>,
    /// Groups whose members may attach and type.
    #[arg(long, value_name = "GROUPS", env = "IOTTYMUX_ALLOW_GID", value_delimiter = ',',
          value_parser = values::group)]
    allow_gid: Vec<u32>,
    /// Users that may attach read-only.
    #[arg(long, value_name = "USERS", env = "IOTTYMUX_VIEW_UID", value_delimiter = ',',
          value_parser = values::user)]
    view_uid: Vec<u32>,
    /// Groups whose members may attach read-only.
    #[arg(long, value_name = "GROUPS", env = "IOTTYMUX_VIEW_GID", value_delimiter = ',',
          value_parser = values::group)]
    view_gid: Vec<u32>,
}

impl PeerArgs {
    pub(crate) fn lists(&self) -> Lists {
        let Self { allow_uid, allow_gid, view_uid, view_gid } = self.clone();
        Lists { allow_uid, allow_gid, view_uid, view_gid }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct LogArgs {
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_LOG", value_delimiter = ',',
          value_parser = LogSpec::log, help = spec::help(false), long_help = spec::long_help(false))]
    pub(crate) log: Vec<LogSpec>,
    /// Longest log entry; longer lines are split.
    ///
    /// In bytes of text, up to 1M; 0 means 1M.
    // The kubelet's readers expect this size.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_LINE_LIMIT",
          default_value = values::bytes_text(limits::LOG_LINE),
          value_parser = values::bytes_in(values::LOG_LINE))]
    pub(crate) log_line_limit: usize,
    /// Time until an unfinished line is logged as a part.
    #[arg(long, value_name = "DURATION", env = "IOTTYMUX_LOG_FLUSH",
          default_value = values::duration_text(limits::LOG_FLUSH), value_parser = values::duration)]
    pub(crate) log_flush: Duration,
    /// Rotate a log file at this size [default: no rotation].
    ///
    /// In bytes, at least 4K; the suffixes K, M and G are allowed. An external tool may rotate the
    /// files instead, and then send SIGHUP or run `iottymux control reopen-logs`.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_MAX_SIZE",
          value_parser = values::bytes_in(values::LOG_SIZE))]
    pub(crate) log_max_size: Option<usize>,
    /// Number of rotated files to keep.
    #[arg(long, value_name = "N", env = "IOTTYMUX_LOG_MAX_FILES", default_value = "5",
          value_parser = value_parser!(u32).range(1..=i64::from(limits::LOG_FILES_MAX)))]
    pub(crate) log_max_files: u32,
    /// Newest output kept while a log cannot be written.
    ///
    /// In bytes, from 256K to 1G.
    #[arg(long, value_name = "BYTES", env = "IOTTYMUX_LOG_BUFFER",
          default_value = values::bytes_text(limits::LOG_BUFFER),
          value_parser = values::bytes_in(values::LOG_BUFFER))]
    pub(crate) log_buffer: usize,
    /// Journal level of lines that do not begin with <N>.
    ///
    /// From 0 to 7, like SyslogLevel= of systemd.
    #[arg(long, value_name = "LEVEL", env = "IOTTYMUX_SYSLOG_LEVEL", default_value_t = syslog::INFO,
          value_parser = value_parser!(u8).range(..=i64::from(syslog::DEBUG)))]
    pub(crate) syslog_level: u8,
    /// Keep <N> at the start of lines in the journal.
    ///
    /// Like SyslogLevelPrefix=no of systemd.
    #[arg(long, env = "IOTTYMUX_SYSLOG_KEEP_PREFIX", value_parser = BoolishValueParser::new())]
    pub(crate) syslog_keep_prefix: bool,
    /// Journal facility, if the mux writes the journal.
    ///
    /// From 0 to 23, like SyslogFacility= of systemd.
    #[arg(long, value_name = "FACILITY", env = "IOTTYMUX_SYSLOG_FACILITY", default_value_t = syslog::DAEMON,
          value_parser = value_parser!(u8).range(..=i64::from(syslog::LOCAL7)))]
    pub(crate) syslog_facility: u8,
    /// Journal name, if the mux writes it [default: the app's].
    ///
    /// Like SyslogIdentifier= of systemd.
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_SYSLOG_IDENTIFIER",
          value_parser = values::syslog_identifier)]
    pub(crate) syslog_identifier: Option<String>,
    /// Slow log: hold the app, or drop lines.
    ///
    /// hold: the app waits until the log has room. drop: the log loses lines, and reports how many.
    #[arg(long, value_name = "POLICY", env = "IOTTYMUX_LOG_POLICY", default_value = "hold",
          value_parser = LogPolicy::parse)]
    pub(crate) log_policy: LogPolicy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TerminalArgs {
    /// Lines to keep when they scroll off the screen.
    ///
    /// 0 keeps none. `attach` prints them before the screen, and `logs` prints them if the app has no log.
    #[arg(long, value_name = "LINES", env = "IOTTYMUX_SCROLLBACK",
          default_value_t = limits::SCROLLBACK_LINES, value_parser = values::scrollback)]
    pub(crate) scrollback: usize,
    #[arg(long, value_name = "SPEC", env = "IOTTYMUX_RECORD", value_delimiter = ',',
          value_parser = LogSpec::recording, help = spec::help(true), long_help = spec::long_help(true))]
    pub(crate) record: Vec<LogSpec>,
    /// Also record the input, passwords included.
    #[arg(long, hide_short_help = true, env = "IOTTYMUX_RECORD_INPUT",
          value_parser = BoolishValueParser::new())]
    pub(crate) record_input: bool,
}

impl MuxArgs {
    /// The defaults, without the environment: rkt's spelling has none of these options.
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
    /// A rkt pod may set STAGE2_STDIN, STAGE2_STDOUT and STAGE2_STDERR. Then the default is each
    /// stream whose variable is true.
    #[arg(long, value_name = "STREAMS", env = "IOTTYMUX_STREAMS", value_delimiter = ',',
          value_parser = values::stream_of(&Stream::PLAIN))]
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
pub(crate) struct GuardArgs {
    /// Send ^C and ^D to a service at once.
    ///
    /// At a service's terminal, attach holds the first ^C, or ^D on an empty line, until you type
    /// it again within 2 s.
    #[arg(long, hide_short_help = true, env = "IOTTYMUX_NO_GUARD",
          value_parser = BoolishValueParser::new())]
    pub(crate) no_guard: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TtyArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Initial size of the terminal.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE", default_value_t = Size::DEFAULT)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

/// The options of the mux of a container. It is an internal command.
#[derive(Debug, Args)]
pub(crate) struct ContainerArgs {
    #[command(flatten)]
    pub(crate) app: AppArg,
    /// Streams of the container, separated by commas.
    #[arg(long, value_name = "STREAMS", value_delimiter = ',', required = true,
          value_parser = values::stream_of(&Stream::ALL))]
    pub(crate) streams: Vec<Stream>,
    /// What its engine calls it.
    #[arg(long, value_name = "JSON", value_parser = |text: &str| serde_json::from_str::<Container>(text))]
    pub(crate) container: Option<Container>,
    /// Initial size of a terminal that has none.
    #[arg(long, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE")]
    pub(crate) size: Option<Size>,
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct RunArgs {
    /// App name [default: from the name of the command].
    ///
    /// The app of /usr/bin/bash is bash, or bash-2 while there is another one.
    #[arg(long, alias = "app", value_name = "NAME", env = NAME)]
    pub(crate) name: Option<AppName>,
    /// Run the command on a terminal instead of FIFOs.
    #[arg(short, long, env = "IOTTYMUX_TTY", value_parser = BoolishValueParser::new())]
    pub(crate) tty: bool,
    /// Attach to the command (the default).
    ///
    /// For -it as in docker. The end of this input closes the command's input; with --tty only ^D does.
    #[arg(short, long, alias = "attach", conflicts_with = "foreground")]
    pub(crate) interactive: bool,
    /// Run the command in the background, and print the app's name.
    #[arg(short, long, conflicts_with = "foreground")]
    pub(crate) detach: bool,
    /// With --detach: a scope of systemd of its own, so that the command outlives a service or login.
    ///
    /// auto: where the service or the login in which it is started would end it. Standard error says
    /// where it lives, or what ends it.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHEN",
        env = SCOPE,
        value_enum,
        default_value_t
    )]
    pub(crate) scope: ScopePolicy,
    /// Attach to the app of this name if it runs; otherwise start it.
    ///
    /// As tmux new -A does. With --detach it only makes sure that the app runs.
    #[arg(short = 'A', long, conflicts_with = "foreground")]
    pub(crate) or_attach: bool,
    /// Remove the app once it has ended, as `iottymux rm` does.
    ///
    /// `logs` and `status` then no longer know it. Files of --log and --record stay.
    #[arg(long)]
    pub(crate) rm: bool,
    /// Leave $SSH_AUTH_SOCK of the command as it is.
    ///
    /// Otherwise the command has the ssh agent of whoever attached last, if that is the same user.
    #[arg(long, hide_short_help = true, env = "IOTTYMUX_NO_SSH_AGENT",
          value_parser = BoolishValueParser::new())]
    pub(crate) no_ssh_agent: bool,
    /// For supervisors: stay in the foreground, and do not attach.
    ///
    /// Passes SIGINT, SIGTERM and SIGQUIT on to the command, reports readiness to $NOTIFY_SOCKET,
    /// and exits with the status of the command.
    #[arg(long, hide_short_help = true)]
    pub(crate) foreground: bool,
    /// Initial size of the terminal [default: the first client's].
    ///
    /// Default: the size of the first client with a window, else 24x80.
    #[arg(long, hide_short_help = true, value_name = "ROWSxCOLS", env = "IOTTYMUX_SIZE")]
    pub(crate) size: Option<Size>,
    /// Keep the command, and start it when the first client attaches, if that is true.
    #[arg(long, hide = true, env = AWAIT_CLIENT, value_parser = BoolishValueParser::new())]
    pub(crate) await_client: Option<bool>,
    #[command(flatten)]
    pub(crate) quiet: QuietArgs,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    #[command(flatten)]
    pub(crate) mux: MuxArgs,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", help_heading = None::<&str>)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Whether this process is the keeper of the command.
    pub(crate) fn keeps(&self) -> bool {
        self.foreground || self.await_client.is_some()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    #[test]
    fn the_defaults_are_those_of_an_empty_command_line() {
        match Cli::try_parse_from(["iottymux", "stream", "--app", "x"]).unwrap().command {
            Command::Stream(StreamArgs { mux, .. }) => {
                assert_eq!((mux.backlog, mux.max_client_delay), (512 * 1024, limits::PATIENCE));
                assert_eq!(mux.logs.log_line_limit, limits::LOG_LINE);
                let defaults = MuxArgs::defaults().unwrap();
                assert_eq!((defaults.backlog, defaults.others), (mux.backlog, mux.others));
                assert_eq!(defaults.logs, mux.logs);
            }
            other => panic!("{other:?}"),
        }
    }
}
