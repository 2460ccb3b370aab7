//! The console socket of an OCI runtime: the runtime makes the terminal of a container, and sends
//! its master here, in one message with one descriptor.
//!
//! Only the master of a terminal is taken. Any other sender is refused, and the wait goes on.
//! Senders are served one after the other, and one that sends nothing is dropped after
//! [`SENDING`]. Nothing here blocks, or opens the terminal: its slave may not be open in the
//! container yet, and a slave that is opened and closed would look like the end of the container.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use rustix::fs::OFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

/// How long a sender may take for its message. runc and crun send at once.
const SENDING: Duration = Duration::from_secs(2);
/// Pause after a failed accept (most often: no file descriptor left).
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of a message that are read: runc sends a path, crun a space.
const PAYLOAD: usize = 4096;

/// A console socket. As a descriptor it is readable when [`ConsoleSocket::receive`] has something
/// to do.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    awaited: Awaited,
    /// Watches what is awaited.
    epoll: Epoll,
}

#[derive(Debug)]
enum Awaited {
    Sender,
    /// Of this sender, until this time. Meanwhile no other is accepted.
    Message(UnixStream, Instant),
    /// Nothing before this time.
    Pause(Instant),
}

impl ConsoleSocket {
    /// Listens on a path, in a directory that only this user enters.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let bind = || -> io::Result<Self> {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let this = Self { listener, awaited: Awaited::Sender, epoll };
            this.watch(&this.listener)?;
            Ok(this)
        };
        bind().with_context(|| format!("cannot listen on console socket {}", path.display()))
    }

    fn watch(&self, fd: impl AsFd) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
    }

    /// The master that has come, if one has. An error is why a sender was refused: then the wait
    /// goes on.
    pub(crate) fn receive(&mut self, now: Instant) -> Result<Option<OwnedFd>> {
        let (sender, until) = match std::mem::replace(&mut self.awaited, Awaited::Sender) {
            Awaited::Message(sender, until) => (sender, until),
            Awaited::Pause(until) if now < until => {
                self.awaited = Awaited::Pause(until);
                return Ok(None);
            }
            Awaited::Pause(_) => {
                self.watch(&self.listener)?;
                return Ok(None);
            }
            Awaited::Sender => match self.accept(now)? {
                Some(sender) => (sender, now + SENDING),
                None => return Ok(None),
            },
        };
        let received = take(&sender);
        if matches!(received, Ok(None)) && now < until {
            self.awaited = Awaited::Message(sender, until);
            return Ok(None);
        }
        drop(sender);
        self.watch(&self.listener)?;
        match received? {
            Some(master) => Ok(Some(master)),
            None => bail!("it sent nothing for {SENDING:?}"),
        }
    }

    /// The next sender. From now on it is watched, instead of the listener.
    fn accept(&mut self, now: Instant) -> Result<Option<UnixStream>> {
        let sender = match self.listener.accept() {
            Ok((sender, _)) => sender,
            Err(e) if is_nothing(&e) => return Ok(None),
            Err(e) => {
                self.epoll.delete(&self.listener)?;
                self.awaited = Awaited::Pause(now + PAUSE);
                return Err(e).context("it cannot be accepted");
            }
        };
        self.epoll.delete(&self.listener)?;
        self.watch(&sender)?;
        Ok(Some(sender))
    }

    /// When [`ConsoleSocket::receive`] has something to do though it is not readable.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.awaited {
            Awaited::Sender => None,
            Awaited::Message(_, until) | Awaited::Pause(until) => Some(until),
        }
    }
}

impl AsFd for ConsoleSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// The master in a sender's message; `None` if there is no message yet.
fn take(sender: &UnixStream) -> Result<Option<OwnedFd>> {
    let mut payload = [0; PAYLOAD];
    // With room for two, more than one is noticed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(sender, &mut [IoSliceMut::new(&mut payload)], &mut control, flags)
    {
        Err(e) if is_nothing(&e.into()) => return Ok(None),
        received => received?,
    };
    let parts = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds: Vec<OwnedFd> = parts.flatten().collect();
    match (fds.pop(), fds.is_empty() && !received.flags.contains(ReturnFlags::CTRUNC)) {
        (None, _) => bail!("it sent no descriptor"),
        (Some(_), false) => bail!("it sent more than one descriptor"),
        (Some(fd), true) => check(&fd).map(|()| Some(fd)),
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

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::pty::OpenptFlags;

    use super::*;
    use crate::sys::fd_message::send;

    /// Sends a message to a new socket; returns what is made of it.
    fn receive(payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let mut console = ConsoleSocket::bind(&path).unwrap();
        assert!(console.receive(Instant::now()).unwrap().is_none());
        let sender = UnixStream::connect(&path).unwrap();
        send(&sender, payload, fds).unwrap();
        console.receive(Instant::now())
    }

    fn master() -> OwnedFd {
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap()
    }

    #[test]
    fn only_the_master_of_a_terminal_is_taken() {
        let master = master();
        for payload in [&b"/dev/ptmx"[..], b" ", b"\x1b[2J\n\xff"] {
            let received = receive(payload, &[master.as_fd()]).unwrap().unwrap();
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
            assert_eq!(receive(&[0xff; 10_000], fds).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_sender_that_says_nothing_is_dropped_for_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let mut console = ConsoleSocket::bind(&path).unwrap();
        let _silent = UnixStream::connect(&path).unwrap();
        let began = Instant::now();
        assert!(console.receive(began).unwrap().is_none());
        let next = UnixStream::connect(&path).unwrap();
        send(&next, b" ", &[master().as_fd()]).unwrap();
        assert!(console.receive(began).unwrap().is_none());
        let due = console.deadline().unwrap();
        assert_eq!(console.receive(due).unwrap_err().to_string(), "it sent nothing for 2s");
        assert_eq!(console.deadline(), None);
        assert!(console.receive(due).unwrap().is_some());
    }
}
