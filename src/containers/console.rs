//! The console socket of an OCI runtime: the runtime makes the terminal of a container, and sends
//! its master here, in one message with one descriptor.
//!
//! The terminal is not opened: its slave may not be open in the container yet, and a slave that is
//! opened and closed would look like the end of the container.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use crate::sys::{fd_message, ready};

/// Bytes of a message that are read: runc sends a path, crun a space.
const PAYLOAD: usize = 4096;

/// Listens on a path, in a directory that only this user enters.
pub(crate) fn listen(path: &Path) -> Result<UnixListener> {
    let what = || format!("cannot listen on console socket {}", path.display());
    UnixListener::bind(path).with_context(what)
}

/// Waits for the master from a runtime with this pidfd; `None` if it ends without.
pub(crate) fn receive(listener: &UnixListener, runtime: &OwnedFd) -> Result<Option<OwnedFd>> {
    if !comes(listener, runtime)? {
        return Ok(None);
    }
    let (sender, _) = listener.accept().context("it cannot be accepted")?;
    if comes(&sender, runtime)? { take(&sender).map(Some) } else { Ok(None) }
}

/// Waits until something comes, or the runtime has ended without.
fn comes(from: impl AsFd, runtime: &OwnedFd) -> Result<bool> {
    let awaited = [from.as_fd(), runtime.as_fd()];
    let mut fds = awaited.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    while !fds.iter().any(|fd| fd.any() == Some(true)) {
        ready::wait(&mut fds, None).context("cannot wait for the runtime")?;
    }
    Ok(fds[0].any() == Some(true))
}

/// The master in a sender's message.
fn take(sender: &UnixStream) -> Result<OwnedFd> {
    let (_, fds) = fd_message::receive(sender, &mut [0; PAYLOAD], RecvFlags::DONTWAIT)?;
    fds.into_iter().next().context("it sent no descriptor")
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use rustix::pty::OpenptFlags;

    use super::*;
    use crate::sys::fd_message::send;

    /// Sends a message to a new socket; returns what is made of it.
    fn received(payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let listener = listen(&path).unwrap();
        let sender = UnixStream::connect(&path).unwrap();
        send(&sender, payload, fds).unwrap();
        let runtime = rustix::process::getpid();
        receive(&listener, &pidfd_open(runtime, PidfdFlags::empty()).unwrap())
    }

    fn master() -> OwnedFd {
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap()
    }

    #[test]
    fn the_master_is_taken_with_any_words() {
        let master = master();
        for payload in [&b"/dev/ptmx"[..], b" ", b"\x1b[2J\n\xff", &[0xff; 10_000]] {
            let received = received(payload, &[master.as_fd()]).unwrap().unwrap();
            let name = |fd| rustix::pty::ptsname(fd, Vec::new()).unwrap();
            assert_eq!(name(&received), name(&master));
        }
        let none = received(b"/dev/ptmx", &[]).unwrap_err();
        assert_eq!(none.to_string(), "it sent no descriptor");
    }

    #[test]
    fn a_runtime_that_ends_without_is_not_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let listener = listen(&dir.path().join("console")).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let runtime = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(receive(&listener, &runtime).unwrap().is_none());
        child.wait().unwrap();
    }
}
