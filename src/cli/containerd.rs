//! The command line of a logger, as containerd writes it: pairs of a key and a value, in any order,
//! from the query of a `binary://` address.
//!
//! A logger never fails because of what was asked for: its container would die of SIGPIPE. It
//! serves with the rest, and says so in the log of containerd.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::poll::PollFlags;

use super::container_mux;
use crate::containers::logger::{self, LoggerRequest};
use crate::containers::mux_words;
use crate::containers::task::{self, Task, TaskId};
use crate::sys::calls;
use crate::sys::diagnostics::{self, Speaker};
use crate::sys::documents::container::Container;
use crate::sys::files::read_plain;
use crate::sys::ready;
use crate::sys::state::StateDir;
use crate::sys::systemd::own_process;
use crate::sys::systemd::store::FIRST_FD;
use crate::types::container_id::app_name;
use crate::types::escape;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// The key that makes this program a logger. Its value is a file with variables, or empty.
const KEY: &str = "containerd-logger";
/// The variables of a logger.
const ID: &str = "CONTAINER_ID";
const NAMESPACE: &str = "CONTAINER_NAMESPACE";
/// The options of the mux that the logger itself sets.
const OWN: [&str; 3] = ["app", "streams", "container"];
/// Pipes of the shim: stdout, stderr, and that by which it waits for the logger.
const PIPES: usize = 3;
/// Longest file with variables, bytes.
const ENV_FILE: u64 = 64 << 10;
/// Whether this is the command line of a logger. Without its variables only the first word counts:
/// the others are those of a user, such as of an app that `run` starts.
pub(crate) fn is_logger(arguments: &[OsString]) -> bool {
    let words = if has_variables() { arguments } else { arguments.get(..1).unwrap_or_default() };
    words.iter().any(|word| word == KEY) && !own_process::is_kept()
}

/// Whether containerd has started this process, whatever the command line is: its container ends
/// with a logger that refuses to serve.
pub(crate) fn is_started_by_containerd() -> bool {
    let is_pipe = |fd: i32| {
        let file = fs::metadata(format!("/proc/self/fd/{fd}"));
        file.is_ok_and(|file| file.file_type().is_fifo())
    };
    has_variables() && (FIRST_FD..).take(PIPES).all(is_pipe)
}

/// Whether the variables of a logger are set.
fn has_variables() -> bool {
    [ID, NAMESPACE].iter().all(|name| env::var_os(name).is_some())
}

/// Runs a logger.
pub(crate) fn main(arguments: &[OsString]) -> Exit {
    let words = Words::new(arguments);
    // It does not come back if the file has something new.
    let mistake = words.env_file.as_deref().and_then(|file| read_env_file(file).err());
    // From here on the descriptors of the shim are ours.
    let fds = calls::adopt(FIRST_FD, PIPES);
    let is_pipe = |fd: &OwnedFd| {
        let file = fd.try_clone().map(File::from).and_then(|file| file.metadata());
        file.is_ok_and(|file| file.file_type().is_fifo())
    };
    let (Ok(id), Ok(namespace)) = (env::var(ID), env::var(NAMESPACE)) else {
        return usage();
    };
    let Ok([stdout, stderr, ready]) = <[OwnedFd; 3]>::try_from(fds) else { return usage() };
    if ![&stdout, &stderr, &ready].into_iter().all(is_pipe) {
        return usage();
    }
    let bundle = env::current_dir().unwrap_or_default();
    let engine_log = logger::write_to_engine(&bundle);
    diagnostics::start(None, Speaker::Container);
    if let Err(e) = engine_log {
        log::debug!("cannot write to the log of containerd: {e}");
    }
    if let Some(mistake) = mistake {
        log::error!("container {}: {mistake:#}", escape::line(&id));
    }
    if !is_logger(arguments) {
        let id = escape::line(&id);
        log::error!("container {id}: the address has no key {KEY}; the logger goes on without it");
    }
    for option in &words.refused {
        let option = escape::line(option);
        log::error!("this option is left out, since the logger sets it: {option}");
    }
    let started = StartedTask { id, namespace, bundle };
    let outcome = started.request(words, [stdout, stderr], ready);
    let outcome = outcome.and_then(logger::serve);
    outcome.unwrap_or_else(|e| {
        log::error!("{e:#}");
        Exit::Failed
    })
}

fn usage() -> Exit {
    diagnostics::say(
        "containerd starts its logger, with pipes as descriptors 3 to 5; try a container with \
         --log-uri 'binary:///usr/local/bin/iottymux?containerd-logger='",
    );
    Exit::Usage
}

/// The pairs of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    env_file: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    /// Other options that the logger itself sets.
    refused: Vec<String>,
    /// The options of the mux.
    options: Vec<OsString>,
}

impl Words {
    fn new(arguments: &[OsString]) -> Self {
        let mut words = Self::default();
        for pair in arguments.chunks(2) {
            let key = pair[0].to_string_lossy();
            let key = key.trim_start_matches('-');
            let value = pair.get(1).filter(|value| !value.is_empty());
            match key {
                KEY => words.env_file = value.map(PathBuf::from),
                "state-dir" => words.state_dir = value.map(PathBuf::from),
                _ if OWN.contains(&key) => words.refused.push(key.to_owned()),
                _ => {
                    let mut option = OsString::from(format!("--{key}"));
                    if let Some(value) = value {
                        option.push("=");
                        option.push(value);
                    }
                    words.options.push(option);
                }
            }
        }
        words
    }
}

/// Executes this program again with the variables of a file, unless they are set.
fn read_env_file(file: &Path) -> Result<()> {
    let what = || format!("cannot read {}; the logger goes on without it", file.display());
    let text = read_plain(file, ENV_FILE).with_context(what)?;
    let text = String::from_utf8(text).with_context(what)?;
    own_process::restart_with(&text, "IOTTYMUX_");
    Ok(())
}

/// What containerd says of the container.
struct StartedTask {
    id: String,
    namespace: String,
    bundle: PathBuf,
}

impl StartedTask {
    fn request(
        self,
        words: Words,
        [stdout, stderr]: [OwnedFd; 2],
        ready: OwnedFd,
    ) -> Result<LoggerRequest> {
        let task = TaskId::of_logger(&self.bundle, &self.id);
        let is_terminal = match &task.exec {
            // The shim makes this pipe for a terminal, too, and closes it.
            Some(_) => has_no_writer(&stderr),
            None => task::has_terminal(&self.bundle),
        };
        let outputs = if is_terminal {
            vec![(Stream::Tty, stdout)]
        } else {
            vec![(Stream::Stdout, stdout), (Stream::Stderr, stderr)]
        };
        let of_variable = || env::var_os("IOTTYMUX_STATE_DIR").map(PathBuf::from);
        let state = usable_state(words.state_dir.or_else(of_variable))?;
        if let Err(e) = logger::forget_ended(&state) {
            log::warn!("cannot forget containers that have ended: {e:#}");
        }
        let dir = state.app(&free_name(&state, &app_name(&self.namespace, &self.id)));
        let streams: Vec<Stream> = outputs.iter().map(|(stream, _)| *stream).collect();
        let mut container = Container::new((self.namespace, task.id.clone()));
        container.exec.clone_from(&task.exec);
        let mut mux = mux_words(&dir, &streams, &container)?;
        mux.extend(words.options);
        let user = container_mux::prepare(&mux, &state, &dir);
        let task = Task::new(self.bundle, task, Instant::now());
        Ok(LoggerRequest { dir, mux, user, outputs, ready, task })
    }
}

/// The state directory that is asked for, or the usual one if no directory can be made there.
fn usable_state(given: Option<PathBuf>) -> Result<StateDir> {
    let is_given = given.is_some();
    let asked = StateDir::resolve(given)?;
    match asked.scratch(std::process::id()) {
        Ok(scratch) => {
            let _ = fs::remove_dir(scratch);
            Ok(asked)
        }
        Err(e) if is_given => {
            let usual = StateDir::resolve(None)?;
            log::error!("the state directory is {usual}: {e:#}");
            Ok(usual)
        }
        Err(_) => Ok(asked),
    }
}

/// The name, or a numbered one while another mux has it.
fn free_name(state: &StateDir, name: &AppName) -> AppName {
    let is_free = |name: &AppName| {
        let dir = state.app(name);
        !dir.is_locked() && !dir.is_of_service()
    };
    let free = name.numbered().find(is_free).unwrap_or_else(|| name.clone());
    if free != *name {
        log::warn!("there is another app {name}; this one is {free}");
    }
    free
}

/// Whether a pipe has ended.
fn has_no_writer(pipe: &OwnedFd) -> bool {
    ready::is(pipe, PollFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Words {
        Words::new(&line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn pairs_come_in_any_order_and_are_options_with_or_without_dashes() {
        let file = |file: &str| Some(PathBuf::from(file));
        for (line, env_file, options) in [
            (&["containerd-logger", ""][..], None, &[][..]),
            (&["containerd-logger", "/e"], file("/e"), &[]),
            (
                &["--log", "cri:/a,raw:/b", "containerd-logger", "", "backlog", "8K"],
                None,
                &["--log=cri:/a,raw:/b", "--backlog=8K"],
            ),
            (&["syslog-keep-prefix", "", "containerd-logger", ""], None, &["--syslog-keep-prefix"]),
            // Odd numbers of words.
            (&["containerd-logger"], None, &[]),
            (&["backlog", "8K", "containerd-logger"], None, &["--backlog=8K"]),
            (&["containerd-logger", "", "backlog"], None, &["--backlog"]),
        ] {
            let options = options.iter().map(OsString::from).collect();
            let want = Words { env_file, options, ..Words::default() };
            assert_eq!(words(line), want, "{line:?}");
        }
        let of_logger = words(&["--app", "x", "state-dir", "/s", "streams", ""]);
        let want = Words {
            state_dir: Some("/s".into()),
            refused: ["app", "streams"].map(String::from).to_vec(),
            ..Words::default()
        };
        assert_eq!(of_logger, want);
    }
}
