//! What people type out of habit from other programs, and the command that does it here. Pure.
//!
//! docs/habits.md has the same table for people, and a test runs each line of it.

use clap::error::{ContextKind, ContextValue};

/// A word of another program: the command before it (empty: it is a command itself), the words,
/// and what to try here.
type Habit = (&'static str, &'static [&'static str], &'static str);

const HABITS: &[Habit] = &[
    ("", &["exec", "shell", "login", "enter", "console", "a", "at"], "iottymux attach NAME"),
    ("", &["-r", "-x", "-dr", "-d", "-R"], "iottymux attach NAME"),
    ("", &["-ls", "-l", "get", "list-units", "list-sessions"], "iottymux list"),
    ("", &["inspect", "describe", "show", "top", "stats"], "iottymux status NAME"),
    ("", &["is-active", "list-clients"], "iottymux status NAME"),
    ("", &["new", "new-session", "create", "-S", "-dmS"], "iottymux run --tty NAME"),
    ("", &["detach", "detach-client"], "ctrl-p ctrl-q in attach, or iottymux control NAME detach"),
    ("", &["journalctl", "capture-pane", "tail", "log"], "iottymux logs NAME"),
    ("", &["send-keys", "type", "write"], "iottymux send NAME LINE"),
    ("", &["kill-session", "terminate", "poweroff", "delete"], "iottymux stop NAME"),
    ("run", &["--rm"], "iottymux rm NAME afterwards"),
    ("", &["cat", "edit"], "iottymux enable --show SERVICE"),
    ("", &["start", "restart", "reload"], "systemctl restart SERVICE"),
    ("attach", &["-t", "-it", "-i", "--tty", "--target"], "iottymux attach NAME without it"),
    ("attach", &["--no-stdin"], "iottymux attach --read-only NAME"),
    ("attach", &["--sig-proxy", "-d"], "iottymux attach NAME; ^C goes to a terminal's app"),
    ("logs", &["-o", "--output"], "iottymux logs --timestamps NAME"),
    ("logs", &["-r", "--reverse", "-e", "--pager-end"], "iottymux logs NAME | tac"),
    ("logs", &["-p", "--priority", "-b", "--boot", "-k"], "journalctl --unit SERVICE"),
    ("enable", &["-t", "-it"], "iottymux enable SERVICE --tty"),
];

/// What to try instead of the word at which clap stopped.
pub(super) fn way(error: &clap::Error, command: Option<&str>) -> Option<&'static str> {
    let word = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg].into_iter();
    let word = word.filter_map(|kind| error.get(kind)).find_map(|value| match value {
        ContextValue::String(word) => Some(word.as_str()),
        _ => None,
    })?;
    let command = command.unwrap_or_default();
    let is_it = |habit: &&Habit| habit.0 == command && habit.1.contains(&word);
    HABITS.iter().find(is_it).map(|(_, _, way)| *way)
}
