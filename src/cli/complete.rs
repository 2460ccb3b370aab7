//! Completion of command lines: `iottymux complete-words WORDS` prints what may stand in the place
//! of the last word. The scripts in `packaging/completions` call it for their shell.
//!
//! Each line is a word, and for most words a tab and a description. The single line `:files` or
//! `:commands` leaves the word to the shell. Errors print nothing: the person is typing.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, CommandFactory};
use log::LevelFilter;

use super::named_app::{NameOrPattern, TypedName};
use super::{Cli, NamedServices, options};
use crate::client::attach::attach_mode::AttachMode;
use crate::host::enable;
use crate::sys::print::print;
use crate::sys::state::StateDir;
use crate::sys::systemd::manager::Manager;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::types::stream::{Position, Stream};

/// The first word of such a command line.
pub(crate) const COMPLETE: &str = "complete-words";

/// Values of options that clap does not know, by their types.
fn known_values() -> [(TypeId, &'static [&'static str]); 4] {
    [
        (
            TypeId::of::<AttachMode>(),
            &["auto", "tty", "tty-in", "tty-out", "stdin", "stdout", "stderr", "list"],
        ),
        (TypeId::of::<Position>(), &["unseen", "now", "start"]),
        (TypeId::of::<Stream>(), &["stdin", "stdout", "stderr"]),
        (TypeId::of::<LevelFilter>(), &["error", "warn", "info", "debug"]),
    ]
}

/// Prints the words for an incomplete command line, without the program's name.
pub(crate) fn main(words: &[OsString]) -> Exit {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into()).collect();
    let text: String = candidates(&words).into_iter().map(|line| line + "\n").collect();
    // There is nobody to tell of a closed pipe.
    let _ = print(&text);
    Exit::Done
}

/// The candidates for the last word.
fn candidates(words: &[String]) -> Vec<String> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let mut root = Cli::command();
    root.build();
    let mut line = Line::new(&root);
    for word in before {
        line.read(word);
    }
    let (found, prefix) = line.complete(current);
    let is_wanted = |word: &String| word.starts_with(':') || word.starts_with(current.as_str());
    let words = found.into_iter().map(|word| format!("{prefix}{word}"));
    let mut words: Vec<String> = words.filter(is_wanted).collect();
    words.sort();
    words.dedup();
    words
}

/// What the words before the last one mean.
struct Line<'a> {
    command: &'a Command,
    /// The option whose value comes next.
    pending: Option<&'a Arg>,
    /// Arguments so far that are not options.
    positionals: usize,
    /// Whether `--` stood there.
    is_trailing: bool,
    user: bool,
    state: Option<PathBuf>,
}

impl<'a> Line<'a> {
    fn new(command: &'a Command) -> Self {
        let state = std::env::var_os("IOTTYMUX_STATE_DIR").map(PathBuf::from);
        Self { command, pending: None, positionals: 0, is_trailing: false, user: false, state }
    }

    /// Takes a complete word.
    fn read(&mut self, word: &str) {
        if let Some(option) = self.pending.take() {
            self.take_value(option, word);
        } else if self.is_trailing {
            self.positionals += 1;
        } else if word == "--" {
            self.is_trailing = true;
        } else if let Some(name) = word.strip_prefix("--") {
            self.user |= name == "user";
            match name.split_once('=') {
                Some((name, value)) => {
                    if let Some(option) = self.option(name) {
                        self.take_value(option, value);
                    }
                }
                None => self.pending = self.option(name).filter(|option| wants_value(option)),
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let last = letters.chars().last();
            let is_last = |option: &&Arg| option.get_short() == last && wants_value(option);
            self.pending = self.command.get_arguments().find(is_last);
        } else if let Some(command) = self.command.find_subcommand(word) {
            (self.command, self.positionals) = (command, 0);
        } else {
            self.positionals += 1;
        }
    }

    fn option(&self, name: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|option| option.get_long() == Some(name))
    }

    fn take_value(&mut self, option: &Arg, value: &str) {
        if option.get_long() == Some("state-dir") {
            self.state = Some(value.into());
        }
    }

    /// The candidates for the last word, and what stands before each of them.
    fn complete(&self, word: &str) -> (Vec<String>, String) {
        if let Some(option) = self.pending {
            return (self.values(option), String::new());
        }
        if self.is_trailing {
            let is_rest =
                |argument: &&Arg| argument.is_last_set() || argument.is_trailing_var_arg_set();
            let rest = self.command.get_positionals().find(is_rest);
            return (rest.map_or(Vec::new(), |rest| self.values(rest)), String::new());
        }
        if let Some((name, _)) = word.split_once('=').filter(|_| word.starts_with("--")) {
            let option = self.option(&name[2..]);
            let values = option.map_or(Vec::new(), |option| self.values(option));
            let is_left_to_shell = values.iter().any(|value| value.starts_with(':'));
            let prefix = if is_left_to_shell { String::new() } else { format!("{name}=") };
            return (values, prefix);
        }
        if word.starts_with('-') {
            return (self.options(), String::new());
        }
        let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut found: Vec<String> =
            commands.map(|command| described(command.get_name(), command.get_about())).collect();
        let is_next = |argument: &&Arg| !argument.is_last_set();
        if let Some(next) = self.command.get_positionals().filter(is_next).nth(self.positionals) {
            found.extend(self.values(next));
        }
        (found, String::new())
    }

    /// The options of the command.
    fn options(&self) -> Vec<String> {
        let options = self.command.get_arguments().filter(|option| !option.is_hide_set());
        let long =
            |option: &Arg| Some(described(&format!("--{}", option.get_long()?), option.get_help()));
        options.filter_map(long).collect()
    }

    /// The values of an argument.
    fn values(&self, argument: &Arg) -> Vec<String> {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let visible = possible.iter().filter(|value| !value.is_hide_set());
            return visible.map(|value| described(value.get_name(), value.get_help())).collect();
        }
        let kind = argument.get_value_parser().type_id();
        if kind == TypeId::of::<AppName>()
            || kind == TypeId::of::<TypedName>()
            || kind == TypeId::of::<NameOrPattern>()
        {
            return self.apps();
        } else if kind == TypeId::of::<ServiceName>() || kind == TypeId::of::<NamedServices>() {
            return self.services();
        } else if kind == TypeId::of::<PathBuf>() {
            return vec![":files".to_owned()];
        } else if kind == TypeId::of::<OsString>() {
            return vec![":commands".to_owned()];
        }
        if kind == TypeId::of::<(String, String)>() {
            let variables = options::of_muxes().into_iter();
            return variables
                .map(|(name, _, it)| described(&(name + "="), it.get_help()))
                .collect();
        }
        let known = known_values().into_iter().find(|(of, _)| kind == *of);
        known.into_iter().flat_map(|(_, words)| words).map(|word| (*word).to_owned()).collect()
    }

    /// The apps that this user may attach to, and those that can be started.
    fn apps(&self) -> Vec<String> {
        let states = StateDir::all(self.state.clone()).unwrap_or_default();
        let mut apps: Vec<_> =
            states.iter().filter_map(|state| state.apps().ok()).flatten().collect();
        if self.state.is_none() {
            apps.extend(enable::enabled_for_all().into_keys());
        }
        apps.iter().map(ToString::to_string).collect()
    }

    /// The services that are enabled, or for other commands than `disable` those that can be.
    fn services(&self) -> Vec<String> {
        if self.command.get_name() == "disable" {
            let enabled = enable::enabled_by(self.user).unwrap_or_default();
            return enabled.iter().map(|one| one.service.to_string()).collect();
        }
        enable::services(Manager { user: self.user }).iter().map(ToString::to_string).collect()
    }
}

/// Whether the word after an option is its value.
fn wants_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
        && !option.is_require_equals_set()
}

/// A word with its short help, whose lines are joined.
fn described(word: &str, help: Option<&clap::builder::StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if help.is_empty() { word.to_owned() } else { format!("{word}\t{help}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let word = |line: String| line.split('\t').next().unwrap_or_default().to_owned();
        candidates(&words).into_iter().map(word).collect()
    }

    #[test]
    fn commands_options_and_values() {
        assert_eq!(words("at"), ["attach"]);
        assert!(words("").contains(&"enable".to_owned()));
        assert!(!words("").contains(&"prepare".to_owned()));
        assert_eq!(words("attach --detach"), ["--detach-keys"]);
        assert_eq!(words("attach --mode std"), ["stderr", "stdin", "stdout"]);
        assert_eq!(words("attach --mode=tty-"), ["--mode=tty-in", "--mode=tty-out"]);
        assert_eq!(words("attach --redraw s"), ["screen"]);
        assert_eq!(words("logs --file /var/l"), [":files"]);
        assert_eq!(words("logs --file=/var/l"), [":files"]);
        assert_eq!(words("--log-level d"), ["debug"]);
        assert_eq!(words("enable --stdin=t"), ["--stdin=tty"]);
        let groups = ["IOTTYMUX_ALLOW_GID=", "IOTTYMUX_ALLOW_UID="];
        assert_eq!(words("enable --env IOTTYMUX_AL"), groups);
        assert_eq!(words("enable --env IOTTYMUX_STREAM"), [""; 0]);
        assert_eq!(words("run --app x -- ba"), [":commands"]);
        // The value of --wait follows a `=`.
        assert_eq!(words("attach --wait --read"), ["--read-only"]);
    }

    #[test]
    fn apps_of_the_directory_that_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["game-eu", "game-us", "web"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let state = format!("--state-dir {}", dir.path().display());
        assert_eq!(words(&format!("{state} attach ga")), ["game-eu", "game-us"]);
        assert_eq!(words(&format!("attach {state} --app w")), ["web"]);
        assert_eq!(words(&format!("attach {state} web g")), [""; 0]);
        assert_eq!(words(&format!("control {state} web re")), ["reopen-logs", "resize", "restart"]);
        assert_eq!(words(&format!("control {state} w")), ["web"]);
        assert_eq!(words(&format!("logs {state} -n 3 w")), ["web"]);
        assert_eq!(words(&format!("logs {state} -fn w")), [""; 0]);
    }

    #[test]
    fn each_word_has_one_line() {
        for line in ["", "-", "attach -", "enable -", "run -", "stream -", "logs -"] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            for candidate in candidates(&words) {
                let (_, help) = candidate.split_once('\t').unwrap();
                assert!(!help.contains(['\t', '\n']) && help.len() < 100, "{candidate}");
            }
        }
    }
}
