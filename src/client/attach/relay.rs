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
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use signal_hook::low_level::emulate_default_handler;

use super::io_threads::{OUTPUT_READ, ending_signals};
use super::terminal;
use crate::sys::calls::ending_with_parent;
use crate::sys::pty;
use crate::types::exit::Exit;
use crate::types::stream::Stream;

/// Reads of what a program that has ended may have left in the terminal: more than that holds.
const READS_AFTER_END: usize = 64;

/// Runs the program, and ends as it does. `lost` is for a person whose full screen it leaves behind,
/// with what the program has said of that.
pub(crate) fn relay(program: Command, lost: &str) -> Result<Exit> {
    terminal::restore_on_panic();
    terminal::watch_screen();
    terminal::save_modes();
    let status = run(program);
    let was_full = terminal::is_full_screen();
    terminal::restore();
    if was_full {
        terminal::print_line(lost);
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
    let (master, slave) = pty::raw_pair().context("cannot make a terminal")?;
    if terminal::is_terminal(Stream::Stderr) {
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
fn forward(from: File, of: Pid) {
    let ended = rustix::process::Pid::from_raw(of.as_raw())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (mut from, mut left) = (Some(from), READS_AFTER_END);
    let mut buffer = vec![0; OUTPUT_READ];
    while from.is_some() || ended.is_some() {
        let mut fds =
            Vec::from_iter(from.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        fds.extend(ended.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        if let Err(e) = poll(&mut fds, PollTimeout::NONE)
            && e != Errno::EINTR
        {
            return;
        }
        let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| fd.any() == Some(true));
        let has_more = from.is_some() && is_ready(fds.first());
        if ended.is_some() && is_ready(fds.last()) {
            left -= 1;
            if left == 0 || !has_more {
                return;
            }
        }
        let Some(file) = from.as_mut().filter(|_| has_more) else { continue };
        let is_shown = match file.read(&mut buffer) {
            Ok(len @ 1..) => terminal::write_output(Stream::Tty, &buffer[..len]).is_ok(),
            _ => false,
        };
        if !is_shown {
            from = None;
        }
    }
}
