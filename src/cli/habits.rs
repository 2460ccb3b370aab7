//! What people type out of habit from other programs, and the command that does it here. No I/O, no
//! clock.
//!
//! A test runs each line of `tests/habits.txt`; docs/habits.md shows those that work.

use clap::error::{ContextKind, ContextValue};

/// A word of another program: the command before it (empty: it is a command itself), the words,
/// and what to try here.
type Habit = (&'static str, &'static [&'static str], &'static str);

const KILL: &str = "iottymux kill --signal SIGNAL NAME";

const HABITS: &[Habit] = &[
    ("", &["exec", "shell", "login", "enter", "console", "a", "at"], "iottymux attach NAME"),
    ("", &["-r", "-x", "-dr", "-d", "-R"], "iottymux attach NAME"),
    ("", &["-dm", "-dmS", "-dmLS", "-dmLSU"], "iottymux run -dt --name NAME COMMAND"),
    ("", &["has-session"], "iottymux status NAME"),
    ("", &["-X"], "iottymux send NAME LINE, or iottymux stop NAME"),
    ("", &["-ls", "-l", "get", "list-units", "list-sessions"], "iottymux list"),
    ("", &["inspect", "describe", "show", "info", "top", "stats"], "iottymux status NAME"),
    ("", &["is-active", "list-clients", "clients", "who"], "iottymux status NAME"),
    ("", &["is-enabled"], "iottymux enable --list"),
    ("", &["version", "-v"], "iottymux --version"),
    ("", &["completions"], "iottymux completion bash, zsh or fish"),
    ("", &["new", "new-session", "create", "-S"], "iottymux run -A -it --name NAME COMMAND"),
    ("", &["detach", "detach-client"], "ctrl-p ctrl-q in attach, or iottymux control NAME detach"),
    ("", &["kick", "unattach"], "iottymux control NAME detach"),
    ("", &["prune"], "iottymux rm NAME"),
    ("", &["mask"], "iottymux disable SERVICE"),
    ("", &["uninstall"], "iottymux install --remove"),
    ("", &["journalctl", "tail", "log"], "iottymux logs NAME"),
    ("", &["capture-pane", "hardcopy"], "iottymux screen NAME, or iottymux logs NAME"),
    ("", &["send-keys", "type", "write"], "iottymux send NAME LINE"),
    ("", &["kill-session", "terminate", "poweroff", "delete"], "iottymux stop NAME"),
    ("run", &["--restart"], "iottymux enable SERVICE, for a service with Restart="),
    ("run", &["-u", "--user"], "sudo -u USER iottymux run COMMAND"),
    ("run", &["-e", "--env"], "iottymux run env VARIABLE=VALUE COMMAND"),
    ("run", &["-w", "--workdir"], "iottymux run env --chdir=DIR COMMAND"),
    ("kill", &["-9", "-1", "-2", "-15"], KILL),
    ("kill", &["-KILL", "-TERM", "-HUP", "-INT", "-USR1", "-USR2"], KILL),
    ("kill", &["-SIGKILL", "-SIGTERM", "-SIGHUP", "-SIGINT", "-SIGUSR1", "-SIGUSR2"], KILL),
    ("", &["cat", "edit"], "iottymux enable --list SERVICE"),
    ("", &["start"], "systemctl start SERVICE"),
    ("", &["restart"], "systemctl restart SERVICE, or iottymux stop and run for a command"),
    ("", &["reload"], "systemctl restart SERVICE"),
];

/// The word at which clap stopped.
pub(super) fn word(error: &clap::Error) -> Option<&str> {
    let word = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg].into_iter();
    word.filter_map(|kind| error.get(kind)).find_map(|value| match value {
        ContextValue::String(word) => Some(word.as_str()),
        _ => None,
    })
}

/// What to try instead of this word, of which clap knows only the first letter if it is options in a
/// row.
pub(super) fn way(word: &str, typed: &[&str], command: Option<&str>) -> Option<&'static str> {
    let command = command.unwrap_or_default();
    let whole = typed.iter().find(|typed| typed.starts_with(word));
    let find = |word: &str| {
        let is_it = |habit: &&Habit| habit.0 == command && habit.1.contains(&word);
        HABITS.iter().find(is_it).map(|(_, _, way)| *way)
    };
    whole.and_then(|whole| find(whole)).or_else(|| find(word))
}
