//! `--host`: the same command on another machine, by ssh.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process;

use anyhow::{Context, Error, Result};

use super::Command;
use crate::types::exit::Exit;

/// The options that name the host.
const SHORT: &str = "-H";
const LONG: &str = "--host";

/// Executes ssh, with these arguments of this program. Returns on failure.
pub(super) fn exec(host: &str, command: &Command, arguments: &[OsString]) -> Result<Exit> {
    let mut ssh = process::Command::new("ssh");
    let is_attach = matches!(command, Command::Attach(_) | Command::Run(_));
    if is_attach && io::stdin().is_terminal() && io::stdout().is_terminal() {
        // Without an escape character: each key is the app's.
        ssh.args(["-t", "-e", "none"]);
    }
    ssh.args(["--", host, "iottymux"]);
    ssh.args(without_host(arguments).map(|word| quoted(&word.to_string_lossy())));
    Err(Error::new(ssh.exec())).context("cannot execute ssh")
}

/// The arguments without the option for the host, which is the first one of its name.
fn without_host(arguments: &[OsString]) -> impl Iterator<Item = &OsString> {
    let is_host = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word.starts_with(SHORT.as_bytes())
            || word == LONG.as_bytes()
            || word.starts_with(b"--host=")
    };
    let at = arguments.iter().position(is_host).unwrap_or(arguments.len());
    let has_value = arguments.get(at).is_some_and(|word| word == SHORT || word == LONG);
    let skipped = at..at + 1 + usize::from(has_value);
    let rest = arguments.iter().enumerate().filter(move |(number, _)| !skipped.contains(number));
    rest.map(|(_, word)| word)
}

/// Words as a shell takes them.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word for the shell of the other machine.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_another_shell() {
        for (line, want) in [
            (&["-H", "me@there", "attach", "demo"][..], "attach demo"),
            (&["attach", "-Hthere", "demo"], "attach demo"),
            (&["logs", "--host=there", "--since", "1 h"], "logs --since '1 h'"),
            (&["--host", "there", "run", "ls", "-H", ""], "run ls -H ''"),
            (&["send", "-H", "there", "demo", "it's $x"], "send demo 'it'\\''s $x'"),
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let words: Vec<_> =
                without_host(&line).map(|word| quoted(word.to_str().unwrap())).collect();
            assert_eq!(words.join(" "), want);
        }
    }
}
