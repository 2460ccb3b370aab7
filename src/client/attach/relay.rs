//! An attach on another machine, by a program that reads the keys at this terminal itself: what its
//! output changes here is undone here. If the link dies, nobody else can.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread;

use anyhow::{Context, Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use signal_hook::low_level::emulate_default_handler;

use super::io_threads::{OUTPUT_READ, ending_signals};
use super::local_terminal;
use crate::sys::calls::ending_with_parent;
use crate::sys::pty_pair;
use crate::types::exit::Exit;
use crate::types::stream::Stream;

/// Reads of what a program that has ended may have left in the terminal: more than that holds.
const READS_AFTER_END: usize = 64;

/// Runs the program, and ends as it does. `lost` is for a person whose full screen it leaves behind,
/// with what the program has said of that.
pub(crate) fn relay(program: Command, lost: &str) -> Result<Exit> {
    local_terminal::restore_on_panic();
    local_terminal::watch_screen();
    local_terminal::save_modes();
    let status = run(program);
    let was_full = local_terminal::is_full_screen();
    local_terminal::restore();
    if was_full {
        local_terminal::print_line(lost);
    }
    let status = status?;
    status.signal().map(emulate_default_handler).transpose()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(Exit::Lost, Exit::App))
}

/// Runs the program to its end, with signals to this process as its own.
fn run(mut program: Command) -> Result<ExitStatus> {
    let mut signals = ending_signals(&[])?;
    let ours = signals.handle();
    // A terminal, not a pipe: ssh tells of a key to be touched only there.
    let (master, slave) = pty_pair::raw_pair().context("cannot make a terminal")?;
    if local_terminal::is_terminal(Stream::Stderr) {
        program.stderr(slave.try_clone()?);
    }
    program.stdout(slave);
    ending_with_parent(&mut program, Signal::SIGTERM);
    let name = program.get_program().to_string_lossy().into_owned();
    let mut child = program.spawn().with_context(|| format!("cannot execute {name}"))?;
    drop(program);
    let pid = Pid::from_raw(child.id().cast_signed());
    let output = thread::spawn(move || forward(master.into(), pid));
    thread::spawn(move || {
        let _ = output.join();
        // It may have closed its outputs before.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        ours.close();
    });
    for signal in signals.forever() {
        // After its end the terminal may take nothing more, and its output is given up.
        if child.try_wait()?.is_some() {
            break;
        }
        kill(pid, Signal::try_from(signal)?)?;
    }
    child.wait().map_err(Error::new)
}

/// Shows the output of a process until it has ended, and then what is there: others may keep its outputs
/// open, and write on.
fn forward(mut from: File, of: Pid) {
    let ended = rustix::process::Pid::from_raw(of.as_raw())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut buffer = vec![0; OUTPUT_READ];
    let mut left = READS_AFTER_END;
    while left > 0 {
        let mut fds = vec![PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        fds.extend(ended.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let is_ready = |fd: &PollFd<'_>| fd.any() == Some(true);
        left -= usize::from(fds[1..].iter().any(is_ready));
        if !is_ready(&fds[0]) {
            return;
        }
        let Ok(len @ 1..) = from.read(&mut buffer) else { return };
        if local_terminal::write_output(Stream::Tty, &buffer[..len]).is_err() {
            return;
        }
    }
}
