//! The console socket of an OCI runtime: the runtime makes the terminal of a container, and sends
//! its master here, in one message with one descriptor.
//!
//! The terminal is not opened: its slave may not be open in the container yet, and a slave that is
//! opened and closed would look like the end of the container.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use rustix::fs::OFlags;
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
    let (_, mut fds) = fd_message::receive(sender, &mut [0; PAYLOAD], RecvFlags::DONTWAIT)?;
    match (fds.pop(), fds.is_empty()) {
        (None, _) => bail!("it sent no descriptor"),
        (Some(_), false) => bail!("it sent more than one descriptor"),
        (Some(fd), true) => check(&fd).map(|()| fd),
    }
}

/// Whether a descriptor is the master of a terminal, open for both directions.
fn check(fd: &OwnedFd) -> Result<()> {
    // Only a master has a slave. Its name is of the container's mount namespace.
    if rustix::pty::ptsname(fd, Vec::new()).is_err() {
        bail!("it sent a descriptor that is not the master of a terminal");
    }
    if rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE != OFlags::RDWR {
        bail!("it sent a master that is not open for reading and writing");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::BorrowedFd;
    use std::os::unix::fs::OpenOptionsExt;
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
    fn only_the_master_of_a_terminal_is_taken() {
        let master = master();
        for payload in [&b"/dev/ptmx"[..], b" ", b"\x1b[2J\n\xff"] {
            let received = received(payload, &[master.as_fd()]).unwrap().unwrap();
            let name = |fd| rustix::pty::ptsname(fd, Vec::new()).unwrap();
            assert_eq!(name(&received), name(&master));
        }
        let device = File::open("/dev/null").unwrap();
        let regular = tempfile::tempfile().unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        rustix::pty::unlockpt(&master).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
        let no_terminal = "it sent a descriptor that is not the master of a terminal";
        let (more, none) = ("it sent more than one descriptor", "it sent no descriptor");
        let read_only = File::options()
            .read(true)
            .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
            .open("/dev/ptmx")
            .unwrap();
        let (one_way, m) =
            ("it sent a master that is not open for reading and writing", master.as_fd());
        for (fds, why) in [
            (&[][..], none),
            (&[m, m], more),
            (&[m, device.as_fd()], more),
            (&[regular.as_fd()], no_terminal),
            (&[device.as_fd()], no_terminal),
            (&[slave.as_fd()], no_terminal),
            (&[read_only.as_fd()], one_way),
        ] {
            assert_eq!(received(&[0xff; 10_000], fds).unwrap_err().to_string(), why);
        }
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
