//! `--host`: the same command on another machine, by ssh.

use std::ffi::{OsStr, OsString};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process;

use anyhow::{Context, Error, Result};
use clap::{CommandFactory, Parser};
use memchr::memchr;

use super::{Cli, Command, options};
use crate::client::attach::{relay, terminals};
use crate::types::exit::Exit;

/// The options that name the host.
const SHORT: u8 = b'H';
const LONG: &[u8] = b"--host";

/// Has ssh run these arguments of this program: in this process's place, unless that may leave a
/// terminal behind that is to be restored.
pub(super) fn exec(host: &str, command: &Command, arguments: &[OsString]) -> Result<Exit> {
    let arguments = without_host(arguments).with_context(|| {
        format!("cannot pass the command to {host:?}: try iottymux --host={host} COMMAND")
    })?;
    let mut ssh = process::Command::new("ssh");
    let local = terminals();
    let shows_app = matches!(command, Command::Attach(_) | Command::Run(_)) && local.stdout;
    if shows_app && local.stdin {
        // Without an escape character: each key is the app's.
        ssh.args(["-t", "-e", "none"]);
    }
    ssh.args(["--", host]);
    let settings = settings(&arguments);
    if !settings.is_empty() {
        ssh.arg("env").args(settings.iter().map(|setting| quoted(setting)));
    }
    ssh.arg("iottymux").args(arguments.iter().map(|word| quoted(word)));
    if shows_app {
        return relay(ssh, &format!("lost the connection to {host}"));
    }
    Err(Error::new(ssh.exec())).context("cannot execute ssh")
}

/// The variables here that set options of the command, which the other machine does not know. The
/// state directory is one of this machine.
fn settings(arguments: &[OsString]) -> Vec<OsString> {
    let cli = Cli::command();
    let set = |option| {
        let (name, value) = options::set_here(option)?;
        let setting = [name.as_bytes(), b"=", value.as_bytes()].concat();
        (name != "IOTTYMUX_STATE_DIR").then(|| OsString::from_vec(setting))
    };
    options::of(&cli, options::command_in(&cli, arguments)).filter_map(set).collect()
}

/// The arguments without the option for the host: the first way to leave it out after which clap
/// finds none. `None` if there is no such way: the other machine would go on to itself without end.
fn without_host(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let has_none = |rest: &Vec<OsString>| {
        let words = iter::once(OsString::from("iottymux")).chain(rest.iter().cloned());
        Cli::try_parse_from(words).is_ok_and(|cli| cli.global.host.is_none())
    };
    (0..arguments.len()).filter_map(|at| left_out(arguments, at)).find(has_none)
}

/// The arguments without the option for the host in the word at this place, and without its value,
/// if this word may have it. Short options may be in one word, as in `-rH`.
fn left_out(arguments: &[OsString], at: usize) -> Option<Vec<OsString>> {
    let word = arguments.get(at)?.as_bytes();
    let (before, is_value_next) = if word.starts_with(b"--") {
        word.starts_with(LONG).then(|| (&b""[..], word == LONG))?
    } else {
        let short = memchr(SHORT, word).filter(|_| word.starts_with(b"-"))?;
        (if short > 1 { &word[..short] } else { b"" }, short + 1 == word.len())
    };
    let mut rest = arguments[..at].to_vec();
    rest.extend((!before.is_empty()).then(|| OsStr::from_bytes(before).to_owned()));
    rest.extend(arguments.iter().skip(at + 1 + usize::from(is_value_next)).cloned());
    Some(rest)
}

/// Words as a person types them into bash or zsh.
pub(super) fn line(words: &[String]) -> String {
    let words = words.iter().map(|word| {
        if word.contains(char::is_control) {
            return format!("$'{}'", word.chars().map(key).collect::<String>());
        }
        quoted(word.as_ref()).to_string_lossy().into_owned()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A character within `$'…'`.
fn key(c: char) -> String {
    match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// A word for the shell of the other machine, with the same bytes.
fn quoted(word: &OsStr) -> OsString {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(b);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return word.to_owned();
    }
    let parts: Vec<&[u8]> = bytes.split(|b| *b == b'\'').collect();
    OsString::from_vec([b"'", &parts.join(&b"'\\''"[..])[..], b"'"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_another_shell() {
        for (line, want) in [
            (&["-H", "me@there", "attach", "demo"][..], "attach demo"),
            (&["attach", "-Hthere", "demo"], "attach demo"),
            (&["attach", "-rH", "there", "demo"], "attach -r demo"),
            (&["logs", "-fHthere", "demo"], "logs -f demo"),
            (&["run", "-itH", "there", "--", "sh", "-H", "x"], "run -it -- sh -H x"),
            (&["logs", "--host=there", "--since", "1 h"], "logs --since '1 h'"),
            (&["--host", "there", "run", "ls", "-H", ""], "run ls -H ''"),
            (&["send", "-H", "there", "demo", "it's $x"], "send demo 'it'\\''s $x'"),
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let rest = without_host(&line).unwrap();
            let words: Vec<_> = rest.iter().map(|word| quoted(word)).collect();
            assert_eq!(words.join(OsStr::new(" ")), want);
        }
        let keys = ["plain", "it's", "\x03it's \\"].map(String::from);
        assert_eq!(line(&keys), r"plain 'it'\''s' $'\x03it\'s \\'");
        let bytes = quoted(OsStr::from_bytes(b"\xff'x"));
        assert_eq!(bytes.as_bytes(), b"'\xff'\\''x'");
    }
}
