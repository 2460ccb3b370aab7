//! The arguments of the commands that type into an app, wait for it, or end it.

use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;
use regex_lite::Regex;

use super::name::{ExactAppArg, ExactAppsArg};
use super::values;
use crate::commands::script::ask::{self, AnswerEnd};
use crate::commands::script::wait::WaitConditions;
use crate::types::stream::Position;

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) app: ExactAppArg,
    /// The line; several words are joined by blanks.
    #[arg(required = true, trailing_var_arg = true, value_name = "LINE")]
    pub(crate) line: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) app: ExactAppArg,
    /// The line; several words are joined by blanks.
    #[arg(required = true, value_name = "LINE", value_parser = values::words)]
    pub(crate) line: Vec<String>,
    #[command(flatten)]
    end: AnswerEndArgs,
    /// Time for the whole, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, default_value = "10")]
    pub(crate) timeout: Duration,
    /// Let others type before the answer has ended.
    #[arg(long)]
    pub(crate) shared: bool,
    /// Print a JSON document for each line, and one for the end.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
struct AnswerEndArgs {
    /// The answer ends with text that matches a regular expression.
    ///
    /// It is looked for in each line of the answer, without control sequences.
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    until: Option<Regex>,
    /// Do not print the text that matches --until.
    #[arg(long, requires = "until")]
    omit_match: bool,
    /// The answer ends with a pause, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          default_value = values::seconds_text(ask::IDLE), conflicts_with = "until")]
    idle: Duration,
    /// The line is a command of a shell: the answer ends with it.
    ///
    /// Its status is that of ask. The shell must mark its commands (OSC 133), as fish does.
    #[arg(long, conflicts_with_all = ["until", "idle"])]
    command: bool,
}

impl AskArgs {
    /// What ends the answer.
    pub(crate) fn end(&self) -> AnswerEnd {
        let AnswerEndArgs { until, omit_match, idle, command } = &self.end;
        match until {
            _ if *command => AnswerEnd::Command,
            Some(regex) => AnswerEnd::Until(regex.clone(), !omit_match),
            None => AnswerEnd::Idle(*idle),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Wait for output that matches a regular expression.
    ///
    /// It is looked for in each line, without control sequences.
    #[arg(long = "for", id = "text", value_name = "REGEX", value_parser = values::regex)]
    text: Option<Regex>,
    /// Where to look for it from: now, unseen, start or an offset.
    #[arg(long, value_name = "POSITION", default_value = "now", requires = "text")]
    from: Position,
    /// Wait for a pause of the output, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    idle: Option<Duration>,
    /// Wait until the app runs and can be attached.
    #[arg(long)]
    ready: bool,
    /// Wait until the app ends; also without any condition.
    #[arg(long)]
    exit: bool,
    /// Longest time to wait, in seconds [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl WaitArgs {
    /// What is waited for.
    pub(crate) fn conditions(&self) -> WaitConditions {
        let Self { text, idle, ready, .. } = self;
        let exit = self.exit || text.is_none() && idle.is_none() && !ready;
        WaitConditions { text: text.clone(), from: self.from, idle: *idle, ready: *ready, exit }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Time until SIGKILL, in seconds.
    #[arg(short, long, value_name = "SECONDS", default_value = "10",
          value_parser = values::seconds)]
    pub(crate) time: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Signal: a name such as HUP, or a number.
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL",
          value_parser = values::signal)]
    pub(crate) signal: Signal,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Kill an app first, if it is running.
    #[arg(short, long)]
    pub(crate) force: bool,
}
