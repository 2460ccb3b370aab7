//! `iottymux-runc`: an OCI runtime that wraps another one.
//!
//! Only `create` is touched, and only of a container that is to have a mux: the container gets
//! pipes or a terminal that a keeper holds, and the engine becomes a client of the mux. Everything
//! else is executed untouched, with its arguments, descriptors and environment. So is a `create`
//! for which no mux can be had. A call about a container that runs on without its mux is noticed.
//!
//! | module | is |
//! |---|---|
//! | [`create`] | `create` with a mux |
//! | [`container_ends`] | pipes and terminals between the container, the mux and the engine |
//! | [`keeper`] | the start of a keeper |
//! | [`container_app`] | the container as the app of its keeper |
//! | [`exit_holder`] | the engine learns of the container's end when it has the output |
//! | [`runtime`] | the real runtime, the settings, and messages for the engine |

mod container_app;
mod container_ends;
mod create;
mod exit_holder;
mod keeper;
mod runtime;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use self::create::Created;
use self::runtime::Runtime;
use crate::containers::oci::{Call, Config, Create};
use crate::sys::calls;
use crate::sys::files::read_plain;
use crate::sys::signals::CaughtSignals;
use crate::types::exit::Exit;

pub(crate) use self::container_app::{KEEPER, KeptContainer, keep};
pub(crate) use self::exit_holder::HOLDER;

/// The name of this program as a runtime.
pub(crate) const PROGRAM: &str = "iottymux-runc";
/// The command that is the same.
pub(crate) const COMMAND: &str = "oci-runtime";

/// Parents of a runtime that do not wait for a container's last output, by the beginnings of their
/// names: conmon of podman and CRI-O, and the process of buildah and `podman build`.
const HASTY: [&str; 2] = ["conmon", "buildah-"];
/// containerd's shims.
const SHIM: &str = "containerd-shim";

/// The configuration in a bundle.
const CONFIG: &str = "config.json";
/// Its largest size, bytes: engines write some 10 KiB.
const CONFIG_LIMIT: u64 = 16 * 1024 * 1024;

/// The arguments for a runtime, if this process is one: by the name of its program or by the
/// command.
pub(crate) fn arguments(program: Option<&OsStr>, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let name = program.and_then(|program| Path::new(program).file_name());
    if name == Some(PROGRAM.as_ref()) {
        return Some(arguments.to_vec());
    }
    let (first, rest) = arguments.split_first()?;
    (first == COMMAND).then(|| rest.to_vec())
}

/// Does what an engine asks of a runtime.
pub(crate) fn main(arguments: &[OsString]) -> Exit {
    let runtime = match Runtime::find() {
        Ok(runtime) => runtime,
        Err(e) => return runtime::failed(Call::parse(arguments).as_ref(), &format!("{e:#}")),
    };
    let Some(create) = Create::parse(arguments) else {
        return execute(&runtime, arguments);
    };
    let config = match read_config(&create.bundle) {
        Ok(config) => config.filter(|config| !config.is_left_alone() && !exists(&runtime, &create)),
        // The runtime would read on without an end, or wait for a writer.
        Err(e) => {
            let path = create.bundle.join(CONFIG);
            return runtime::failed(
                Some(&create.call),
                &format!("cannot read {}: {e}", path.display()),
            );
        }
    };
    let Some(config) = config else { return execute(&runtime, arguments) };
    with_mux(&runtime, &create, &config, arguments)
        .unwrap_or_else(|e| without_mux(&runtime, &create, arguments, &e))
}

/// Creates a container with a mux; an error means that there is none and no container.
fn with_mux(
    runtime: &Runtime,
    create: &Create,
    config: &Config,
    arguments: &[OsString],
) -> Result<Exit> {
    if HASTY.iter().any(|engine| is_under(engine)) {
        bail!("its engine does not wait for its last output");
    }
    let is_under_shim = is_under(SHIM);
    if !is_under_shim && !config.has_own_processes() {
        bail!("without a PID namespace of its own, processes may outlive its first one");
    }
    outlive_signals();
    if is_under_shim {
        return exit_holder::create(arguments);
    }
    create::create(runtime, create, config).map(|created| created.exit)
}

/// The holder, see [`exit_holder`].
pub(crate) fn hold(words: &[OsString]) -> Exit {
    let number = words.first().and_then(|word| word.to_str()?.parse::<i32>().ok());
    match (number, words) {
        (Some(code), [_]) => exit_holder::wait(u8::try_from(code).unwrap_or(u8::MAX)),
        (Some(number), [_, arguments @ ..]) => hold_new(number, arguments),
        _ => Exit::Usage,
    }
}

/// Creates a container, and holds its end.
fn hold_new(number: i32, arguments: &[OsString]) -> Exit {
    let (Ok(runtime), Some(create)) = (Runtime::find(), Create::parse(arguments)) else {
        return Exit::Usage;
    };
    outlive_signals();
    let created = exit_holder::begin(number).and_then(|report| {
        let config = read_config(&create.bundle)?.unwrap_or_default();
        Ok((report, create::create(&runtime, &create, &config)?))
    });
    match created {
        Ok((report, Created { exit, held: Some(held) })) => {
            let error = exit_holder::hold(&report, &held, exit);
            runtime::warn(
                &create.call,
                &format!("container {}: nobody holds its end: {error}", create.id),
            );
            exit
        }
        Ok((_, Created { exit, held: None })) => exit,
        Err(e) => without_mux(&runtime, &create, arguments, &e),
    }
}

/// As the real runtime does while it creates a container, which is there then. It gets the signals that go to
/// this process's group, and no other process does after exec(2).
fn outlive_signals() {
    let taken = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let taken = taken.into_iter().filter(|signal| !calls::is_ignored(*signal));
    let _ = CaughtSignals::new(&taken.collect::<Vec<_>>());
}

/// Has the real runtime create a container untouched.
fn without_mux(
    runtime: &Runtime,
    create: &Create,
    arguments: &[OsString],
    why: &anyhow::Error,
) -> Exit {
    runtime::warn(&create.call, &format!("container {}: it has no mux: {why:#}", create.id));
    execute(runtime, arguments)
}

/// The configuration of a bundle, if there is a valid one: of another the runtime says what is wrong.
fn read_config(bundle: &Path) -> io::Result<Option<Config>> {
    let path = bundle.join(CONFIG).canonicalize();
    match path.and_then(|path| read_plain(&path, CONFIG_LIMIT)) {
        Ok(text) => Ok(Config::parse(&text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Becomes the real runtime.
fn execute(runtime: &Runtime, arguments: &[OsString]) -> Exit {
    let error = Command::new(&runtime.program).args(arguments).exec();
    let why = format!("cannot execute {}: {error}", runtime.program.display());
    runtime::failed(Call::parse(arguments).as_ref(), &why)
}

/// Whether there is a container of this id already, which the runtime has the words for.
fn exists(runtime: &Runtime, create: &Create) -> bool {
    match &create.call.root {
        Some(root) => root.join(&create.id).exists(),
        None => runtime.container_state(&create.call, &create.id).is_some(),
    }
}

/// Whether the parent of this process has this name, as its program or in its command line.
fn is_under(engine: &str) -> bool {
    let parent = |file| fs::read(format!("/proc/{}/{file}", getppid())).unwrap_or_default();
    [parent("comm"), parent("cmdline")].iter().any(|name| name.starts_with(engine.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_its_name_or_by_the_command() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(Into::into).collect() };
        let of = |program: &str, line: &str| arguments(Some(program.as_ref()), &words(line));
        assert_eq!(of("/usr/bin/iottymux-runc", "state x"), Some(words("state x")));
        assert_eq!(of("iottymux", "oci-runtime state x"), Some(words("state x")));
        assert_eq!(of("iottymux", "attach --app x"), None);
    }
}
