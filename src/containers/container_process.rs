//! The first process of a container, which is no child of this one: that it has ended, and how.
//!
//! A process that its parent has not collected yet has its status in `/proc`. Of one that was
//! collected the kernel knows the status as long as somebody has a pidfd (Linux 6.15 and later).

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;

use crate::core::wire::AppStatus;
use crate::keeper::AppEvent;
use crate::sys::ready;
use crate::sys::{calls, process};

/// How long the status of a process may be unknown after its end: its parent is just collecting it.
const COLLECTING: Duration = Duration::from_millis(500);
/// Pause between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// The number of the field of `/proc/PID/stat` with the status (proc_pid_stat(5)).
const STATUS: usize = 52;

/// See the module.
#[derive(Debug)]
pub(crate) struct ContainerProcess {
    pid: Pid,
    fd: OwnedFd,
    /// When it was noticed that it has ended.
    ended: Option<Instant>,
}

impl ContainerProcess {
    /// A process and its pidfd.
    pub(crate) fn new(pid: Pid, fd: OwnedFd) -> Self {
        Self { pid, fd, ended: None }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// What to poll for its end, until that has come.
    pub(crate) fn watched(&self) -> Option<PollFd<'_>> {
        self.ended.is_none().then(|| PollFd::new(self.fd.as_fd(), PollFlags::POLLIN))
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.ended.map(|_| Instant::now() + LOOK)
    }

    /// How it has ended, if it has: that may be unknown, and soon be known.
    pub(crate) fn look(&mut self, now: Instant) -> Result<Option<AppEvent>> {
        // Its caller gets signals, and looks again.
        let looked = ready::wait_for(&self.fd, PollFlags::POLLIN, Some(Duration::ZERO));
        if !looked.context("cannot look at the container")? {
            return Ok(None);
        }
        let ended = *self.ended.get_or_insert(now);
        let status = self.uncollected().or_else(|| self.collected());
        let is_over = status.is_some() || now >= ended + COLLECTING;
        Ok(is_over.then_some(AppEvent::Ended(status)))
    }

    /// The status of a process that nobody has collected.
    fn uncollected(&self) -> Option<AppStatus> {
        let status = process::stat(u32::try_from(self.pid.as_raw()).ok()?, STATUS)?;
        // If it was collected meanwhile, this may be another process of that number.
        calls::is_uncollected(&self.fd).then(|| status_of(status))
    }

    /// The status of one that somebody has collected.
    fn collected(&self) -> Option<AppStatus> {
        calls::exit_status(&self.fd).ok().flatten().map(status_of)
    }
}

/// A status as wait(2) has it.
fn status_of(status: i32) -> AppStatus {
    let low = |n: i32| u8::try_from(n & 0xff).unwrap_or(u8::MAX);
    match status & 0x7f {
        0 => AppStatus::Status(low(status >> 8)),
        signal => AppStatus::Signal(low(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::process::Command;

    #[test]
    fn the_status_is_known_before_and_after_it_was_collected() {
        for (script, want) in
            [("read x; exit 7", AppStatus::Status(7)), ("read x; kill -9 $$", AppStatus::Signal(9))]
        {
            let stdin = std::process::Stdio::piped();
            let mut child = Command::new("sh").args(["-c", script]).stdin(stdin).spawn().unwrap();
            let pid = Pid::from_raw(child.id().try_into().unwrap());
            let of_rustix = rustix::process::Pid::from_raw(pid.as_raw()).unwrap();
            let fd = pidfd_open(of_rustix, PidfdFlags::empty()).unwrap();
            let mut process = ContainerProcess::new(pid, fd);
            assert_eq!(process.look(Instant::now()).unwrap(), None);
            drop(child.stdin.take());
            ready::wait(&mut [process.watched().unwrap()], None).unwrap();
            let ended = Some(AppEvent::Ended(Some(want)));
            assert_eq!(process.look(Instant::now()).unwrap(), ended);
            child.wait().unwrap();
            assert_eq!(process.uncollected(), None);
            // Only new kernels remember it.
            let later = Instant::now() + COLLECTING;
            let known = process.look(later).unwrap();
            assert!(known == ended || known == Some(AppEvent::Ended(None)), "{known:?}");
        }
    }
}
