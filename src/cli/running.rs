//! The arguments of the commands that type into an app, wait for it, or end it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use nix::sys::signal::Signal;
use regex_lite::Regex;

use super::named_app::{ExactAppArg, ExactAppsArg, MatchPolicy, NamedAppArg, SomeAppsArg};
use super::values;
use crate::client::script::answer::{self, AnswerUntil, AskRequest};
use crate::client::script::events::EventsRequest;
use crate::client::script::screen::{ScreenForm, ScreenRequest};
use crate::client::script::send::{SendRequest, Sent};
use crate::client::script::wait::{WaitConditions, WaitRequest};
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::Position;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) app: ExactAppArg,
    /// Line to type; words are joined by blanks. -: lines from standard input
    #[arg(required_unless_present = "paste", allow_negative_numbers = true, value_name = "LINE")]
    line: Vec<String>,
    /// Type keys, named as in tmux (C-c, M-x, Up, F5, Enter), and text.
    ///
    /// Each is sent as the app expects it from its terminal. Names: Enter, Escape, Tab, BTab, Space,
    /// BSpace, Up, Down, Left, Right, Home, End, PgUp, PgDn, Insert, Delete, F1 to F12; with C-, M- or
    /// S- in front. Everything else is typed as it is.
    #[arg(long)]
    keys: bool,
    /// Do not press Enter.
    #[arg(short = 'n', long, conflicts_with = "keys")]
    no_enter: bool,
    /// Paste a file, or - for standard input.
    ///
    /// At a terminal, in brackets if the app has asked for that.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["line", "keys", "no_enter"])]
    paste: Option<PathBuf>,
    /// Also paste control characters.
    #[arg(long, requires = "paste")]
    raw: bool,
    /// Print JSON: the offset in each output at which the app took it.
    #[arg(long)]
    json: bool,
}

impl SendArgs {
    /// What is to be sent to this app.
    pub(crate) fn request(self, dir: AppDir) -> SendRequest {
        let Self { line, keys, no_enter, paste, raw, json, .. } = self;
        let sent = match (paste, &line[..]) {
            (Some(path), _) => Sent::Paste(path, raw),
            (None, _) if keys => Sent::Keys(line),
            (None, [word]) if word == "-" => Sent::Lines,
            (None, words) => Sent::Line(words.join(" "), !no_enter),
        };
        SendRequest { dir, sent, json }
    }
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) app: ExactAppArg,
    /// Line to type; words are joined by blanks.
    ///
    /// A line that somebody has left half-typed is emptied first.
    #[arg(required = true, allow_negative_numbers = true, value_name = "LINE",
          value_parser = values::words)]
    pub(crate) line: Vec<String>,
    /// End the answer with text that matches a regular expression.
    ///
    /// Each line of the answer is searched, without control sequences. The expression can have some
    /// 800 letters, or about .{0,370}.
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    until: Option<Regex>,
    /// Do not print the text that matches --until.
    #[arg(long, requires = "until")]
    omit_match: bool,
    /// End the answer with a pause of this length.
    ///
    /// What comes before the first output is no pause.
    #[arg(long, value_name = "DURATION", value_parser = values::duration,
          default_value = values::duration_text(answer::IDLE), conflicts_with = "until")]
    idle: Duration,
    /// Type a shell command; the answer ends when it ends.
    ///
    /// ask exits with its status. The shell must mark its commands (OSC 133), as fish 4 does; for
    /// bash and zsh see the end of this help.
    #[arg(long, conflicts_with_all = ["until", "idle"])]
    command: bool,
    /// Longest time for the whole answer.
    ///
    /// What the app prints later may be taken for the answer to the next line.
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "10s")]
    pub(crate) timeout: Duration,
    /// Let others type before the answer has ended.
    #[arg(long)]
    pub(crate) shared: bool,
    /// Print a JSON document for each line and for the end.
    #[arg(long)]
    pub(crate) json: bool,
}

impl AskArgs {
    /// The question, for this app. Refuses a command that its shell would not get as it is.
    pub(crate) fn request(self, dir: AppDir) -> Result<AskRequest> {
        let line = self.line.join(" ");
        let end = match self.until {
            _ if self.command => AnswerUntil::Command,
            Some(regex) => AnswerUntil::Until(regex, !self.omit_match),
            None => AnswerUntil::Idle(self.idle),
        };
        if self.command && line.contains('\t') {
            bail!(
                "a tab is the Tab key of a shell, which completes names; try $'\\t' within the command"
            );
        }
        let Self { timeout, shared: is_shared, json, .. } = self;
        Ok(AskRequest { dir, line, end, timeout, is_shared, json })
    }
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Wait for output that matches a regular expression.
    ///
    /// Each line is searched, without control sequences. The expression can have some 800 letters, or
    /// about .{0,370}.
    #[arg(long = "for", id = "text", value_name = "REGEX", value_parser = values::regex)]
    text: Option<Regex>,
    /// Where the search begins: now, unseen, start or an offset.
    #[arg(long, value_name = "POSITION", default_value = "now", requires = "text")]
    from: Position,
    /// Wait until a row of the terminal's screen matches a regular expression.
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    screen: Option<Regex>,
    /// Wait for a pause in the output.
    ///
    /// It counts from now on, though nothing may be printed at all.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    idle: Option<Duration>,
    /// Wait until the app runs and can be attached.
    #[arg(long)]
    ready: bool,
    /// Wait until the app ends (the default).
    #[arg(long)]
    exit: bool,
    /// Longest time to wait [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl WaitArgs {
    /// The wait. An app that is to be ready may still have to be made.
    pub(crate) fn request(self, given: Option<&PathBuf>) -> Result<WaitRequest> {
        let Self { apps, text, from, screen, idle, ready, exit, timeout, json } = self;
        let guess = if ready { MatchPolicy::Nothing } else { MatchPolicy::Service };
        let apps = apps.resolve(given, guess)?;
        let has_other = text.is_some() || screen.is_some() || idle.is_some() || ready;
        let exit = exit || !has_other;
        let conditions = WaitConditions { text, from, screen, idle, ready, exit };
        Ok(WaitRequest { apps, conditions, timeout, json })
    }
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct ScreenArgs {
    #[command(flatten)]
    pub(crate) app: NamedAppArg,
    /// Also print colours and links.
    #[arg(long, group = "form")]
    ansi: bool,
    /// Print JSON: size, cursor, title, modes that change keys, rows with styles.
    #[arg(long, group = "form")]
    json: bool,
    /// Print a picture, as SVG.
    #[arg(long, group = "form", conflicts_with = "follow")]
    svg: bool,
    /// Also print this many rows above the screen, or all.
    #[arg(long, value_name = "ROWS", default_value = "0", hide_default_value = true,
          value_parser = values::tail, conflicts_with = "follow")]
    history: usize,
    /// Print it again when it has changed: after 0.1 s of quiet, or 1 s.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

impl ScreenArgs {
    /// The screen that is wanted, of this app.
    pub(crate) fn request(&self, dir: AppDir) -> ScreenRequest {
        let form = match self {
            Self { ansi: true, .. } => ScreenForm::Ansi,
            Self { json: true, .. } => ScreenForm::Json,
            Self { svg: true, .. } => ScreenForm::Svg,
            _ => ScreenForm::Text,
        };
        let above = self.history.min(limits::SCROLLBACK_MOST);
        ScreenRequest { dir, form, above, follow: self.follow }
    }
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    apps: SomeAppsArg,
    /// Where the output begins: now, unseen, start or an offset.
    #[arg(long, value_name = "POSITION", default_value = "now")]
    from: Position,
    /// Leave out the output itself.
    #[arg(long)]
    no_data: bool,
}

impl EventsArgs {
    /// The events that are wanted.
    pub(crate) fn request(&self, given: Option<&PathBuf>) -> Result<EventsRequest> {
        let apps = self.apps.resolve(given, MatchPolicy::Service)?;
        Ok(EventsRequest { apps, from: (!self.no_data).then_some(self.from) })
    }
}

/// Time until SIGKILL, as docker has it.
const STOP_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Line that makes the app save and end, typed first.
    ///
    /// It is typed before everybody else's input. The app gets SIGTERM only if it has not ended after
    /// --time, and SIGKILL after the same time again.
    #[arg(short, long, value_name = "LINE", value_parser = values::stop_line,
          allow_hyphen_values = true)]
    pub(crate) line: Option<String>,
    /// Time until SIGKILL [default: 10s; with --line 60s].
    #[arg(short, long, value_name = "DURATION", value_parser = values::duration)]
    time: Option<Duration>,
}

impl StopArgs {
    /// How long the app has to end.
    pub(crate) fn time(&self) -> Duration {
        let usual = || match self.line {
            Some(_) => values::STOP_TIMEOUT,
            None => STOP_TIME,
        };
        self.time.unwrap_or_else(usual)
    }
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
    /// Kill a running app first.
    #[arg(short, long)]
    pub(crate) force: bool,
}
