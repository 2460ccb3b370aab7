//! The holder of a container's end: the process that the container's first process is a child of,
//! until the engine has the last output.
//!
//! An engine gives up a container's output soon after it learns that the container has ended, and the
//! output comes through one process more with a mux. So the end is reported after the output. An
//! engine learns of the end as the parent of the container's process, which it is because it collects
//! orphans (`PR_SET_CHILD_SUBREAPER`). The holder does so first. When the keeper lets go of it, it
//! ends, and the kernel hands the ended process over to the engine.
//!
//! ```text
//! engine ── the runtime that it calls ── holder ── real runtime ── container
//! ```
//!
//! Whatever ends the holder early has the effect that it is not there: the engine is the parent.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::Signal;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::sys::calls;
use crate::sys::systemd::own_process;
use crate::sys::systemd::store::FIRST_FD;
use crate::types::exit::Exit;

/// How long the end is held from an engine that does not take the output: engines wait 10 s for the
/// end of a container that they have killed.
const ENGINE_TAKES: Duration = Duration::from_secs(5);

/// The command of the holder. Its arguments: the number of its descriptor for the exit code of
/// `create`, and the arguments of `create`; or, when the container is there, only the exit code.
pub(crate) const HOLDER: &str = "oci-holder";

/// Has a holder create the container, and returns the exit code of `create`.
pub(super) fn create(arguments: &[OsString]) -> Result<Exit> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // Behind those that the engine passes to the container.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(own_process::PROGRAM);
    command.arg(HOLDER).arg(theirs.as_raw_fd().to_string()).args(arguments);
    // As the runtime itself would end with this process.
    calls::ending_with_parent(&mut command, Signal::SIGKILL);
    let mut holder = command.spawn().context("cannot start the holder of its end")?;
    drop(theirs);
    let mut code = [0];
    match ours.read_exact(&mut code) {
        Ok(()) => Ok(Exit::App(code[0])),
        // It has become the real runtime, or has ended.
        Err(_) => holder.wait().map(exit_of).context("cannot wait for the holder of its end"),
    }
}

/// The exit code of a runtime, for its engine.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    Exit::App(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// Takes the descriptor for the exit code, and is the parent of the container from now on.
pub(super) fn begin(number: RawFd) -> Result<OwnedFd> {
    set_child_subreaper(true).context("cannot become the holder of its end")?;
    let report = calls::adopt(number, 1).into_iter().next();
    report.context("this command is internal")
}

/// A container whose end is to be held.
pub(super) struct Held {
    /// The pidfd of its first process.
    pub(super) process: OwnedFd,
    /// The socket to the keeper, which closes when the engine has all output.
    pub(super) keeper: OwnedFd,
}

/// Reports the exit code of `create`, and holds the container's end until the keeper has closed its
/// end of the socket. Becomes another process for that, with little memory and without the
/// descriptors that the engine waits for. Returns if that is not possible.
pub(super) fn hold(report: &OwnedFd, held: &Held, exit: Exit) -> io::Error {
    let become_another = || -> io::Result<io::Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(own_process::PROGRAM);
        command.arg(HOLDER).arg(exit.code().to_string()).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        calls::in_own_session(&mut command, false);
        calls::closing_from(&mut command, FIRST_FD);
        calls::passing(&mut command, &[report, &held.keeper, &held.process], FIRST_FD)?;
        set_pdeathsig(None)?;
        Ok(command.exec())
    };
    become_another().unwrap_or_else(|e| e)
}

/// The process that [`hold`] becomes.
pub(super) fn wait(code: u8) -> Exit {
    let Ok([report, keeper, process]) = <[OwnedFd; 3]>::try_from(calls::adopt(FIRST_FD, 3)) else {
        return Exit::Usage;
    };
    // One that was killed gets nothing.
    let _ = UnixStream::from(report).write_all(&[code]);
    // Without an effect it only has more memory.
    let _ = calls::forget_startup();
    // First, since the mux of a keeper that was killed would take the end of this process, its new
    // parent, for its own.
    wait_for(&process, PollTimeout::NONE);
    let most = PollTimeout::try_from(ENGINE_TAKES).unwrap_or(PollTimeout::MAX);
    wait_for(&keeper, most);
    Exit::Done
}

/// Waits until a process has ended or a socket is closed.
fn wait_for(fd: &OwnedFd, time: PollTimeout) {
    while poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], time) == Err(Errno::EINTR) {}
}
