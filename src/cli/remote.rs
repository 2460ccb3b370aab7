//! `--host`: the same command on another machine, by ssh.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process;

use anyhow::{Context, Error, Result};
use clap::CommandFactory;

use super::{Cli, Command, options};
use crate::client::attach::{relay, terminals};
use crate::types::exit::Exit;

/// The variable with the host that a command has been sent to, which is not to send it on.
const AT: &str = "IOTTYMUX_AT";

/// Whether this is the machine of this name, since the command comes from another.
pub(super) fn is_here(host: &str) -> bool {
    env::var(AT).is_ok_and(|at| at == host)
}

/// Has ssh run these arguments of this program: in this process's place, unless that may leave a
/// terminal behind that is to be restored.
pub(super) fn exec(host: &str, command: &Command, arguments: &[OsString]) -> Result<Exit> {
    let mut ssh = process::Command::new("ssh");
    let local = terminals();
    let shows_app = matches!(command, Command::Attach(_) | Command::Run(_)) && local.stdout;
    if shows_app && local.stdin {
        // Without an escape character: each key is the app's.
        ssh.args(["-t", "-e", "none"]);
    }
    ssh.args(["--", host]);
    let settings = settings(arguments).into_iter().chain([format!("{AT}={host}").into()]);
    ssh.arg("env").args(settings.map(|setting| quoted(&setting)));
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
        let keys = ["plain", "it's", "\x03it's \\"].map(String::from);
        assert_eq!(line(&keys), r"plain 'it'\''s' $'\x03it\'s \\'");
        let bytes = quoted(OsStr::from_bytes(b"\xff'x"));
        assert_eq!(bytes.as_bytes(), b"'\xff'\\''x'");
    }
}
