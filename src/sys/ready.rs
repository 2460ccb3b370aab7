//! Waiting for descriptors by poll(2), and using them without a wait.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::retry_on_intr;

/// Waits until one of these is ready, for ever or for this long. How many are ready: after a signal
/// none, too.
pub(crate) fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) -> nix::Result<i32> {
    // Rounded up, so that the last wait is not a busy one.
    let millis = time.map(|time| time.as_nanos().div_ceil(1_000_000));
    let timeout = millis.map(|millis| PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX));
    match poll(fds, timeout) {
        Err(Errno::EINTR) => Ok(0),
        ready => ready,
    }
}

/// Does a system call that does not wait; `None` if it would have to. A signal does not end it.
pub(crate) fn at_once<T>(
    does: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<Option<T>> {
    match retry_on_intr(does) {
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        done => done.map(Some),
    }
}

/// Waits for one. Whether it is ready.
pub(crate) fn wait_for(
    fd: impl AsFd,
    flags: PollFlags,
    time: Option<Duration>,
) -> nix::Result<bool> {
    wait(&mut [PollFd::new(fd.as_fd(), flags)], time).map(|ready| ready > 0)
}

/// Whether one is ready now.
pub(crate) fn is(fd: impl AsFd, flags: PollFlags) -> bool {
    wait_for(fd, flags, Some(Duration::ZERO)) == Ok(true)
}
