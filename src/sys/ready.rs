//! Waiting for descriptors, by poll(2).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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
