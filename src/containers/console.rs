//! The console socket of an OCI runtime: the runtime makes the terminal of a container, and sends
//! its master here, in one message with one descriptor.
//!
//! Only root and the own user may send, and only the master of a terminal is taken. Any other
//! sender is refused, and the wait goes on. Senders are served one after the other, and one that
//! sends nothing is dropped after [`SENDING`]. Nothing here blocks, or opens the terminal: its
//! slave may not be open in the container yet, and a slave that is opened and closed would look
//! like the end of the container.

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::Uid;
use rustix::fs::OFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::os::files::{PRIVATE, remove, set_mode, temporary};
use crate::os::walk::{Links, Walk};

/// How long a sender may take for its message. runc and crun send at once.
const SENDING: Duration = Duration::from_secs(2);
/// Pause after a failed accept (most often: no file descriptor left).
const PAUSE: Duration = Duration::from_millis(200);
/// Senders in the listen queue: there is one runtime, and others are mistakes.
const SENDERS: i32 = 4;
/// Bytes of a message that are read: runc sends a path, crun a space.
const PAYLOAD: usize = 4096;
/// Longest path, bytes: that of a unix socket (`sun_path` of unix(7)) without the closing zero, less
/// what [`temporary`] adds.
const LONGEST_PATH: usize = 107 - ".".len() - ".new".len();

/// A console socket. As a descriptor it is readable when [`ConsoleSocket::receive`] has something
/// to do. Its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    awaited: Awaited,
    /// Watches what is awaited.
    epoll: Epoll,
    path: PathBuf,
    /// Device and inode of its file.
    file: (u64, u64),
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
    /// Listens on a path, with mode 0600. The socket of a process that is gone is replaced, if it
    /// is root's or the own user's. Anything else that is there is an error.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let what = || format!("cannot listen on console socket {}", shown(path));
        Self::open(path).with_context(what)
    }

    fn open(path: &Path) -> Result<Self> {
        let mut walk = Walk::new()?.guarded();
        let name = walk.find(&std::path::absolute(path)?, Links::Trusted)?;
        walk.check(true)?;
        let path = walk.path().join(&name);
        if path.as_os_str().as_bytes().len() > LONGEST_PATH {
            bail!("the path is longer than {LONGEST_PATH} bytes");
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // The file that bind(2) makes has this mode, less the umask.
        fchmod(&fd, Mode::from_bits_truncate(PRIVATE))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let new = path.with_file_name(temporary(&name.to_string_lossy()));
        remove(&new)?;
        bind(fd.as_raw_fd(), &UnixAddr::new(&new)?)?;
        let placed = place(&fd, &new, &path);
        remove(&new)?;
        let (awaited, file) = (Awaited::Sender, placed?);
        let this = Self { listener: fd.into(), awaited, epoll, path, file };
        this.watch(&this.listener)?;
        Ok(this)
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
        let uid = getsockopt(&sender, PeerCredentials)?.uid();
        let own = Uid::effective().as_raw();
        if ![0, own].contains(&uid) {
            bail!("it belongs to user {uid}; expected root or user {own}");
        }
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

    /// Where it listens.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for ConsoleSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let is_ours = |there: fs::Metadata| (there.dev(), there.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours)
            && let Err(e) = remove(&self.path)
        {
            log::error!("cannot remove console socket {}: {e}", shown(&self.path));
        }
    }
}

/// Gives a bound socket its name, which appears when it listens; returns device and inode.
fn place(fd: &OwnedFd, new: &Path, path: &Path) -> Result<(u64, u64)> {
    set_mode(new, PRIVATE)?;
    listen(fd, Backlog::new(SENDERS)?)?;
    let file = fs::symlink_metadata(new)?;
    // A link replaces nothing.
    match fs::hard_link(new, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            remove_stale(path)?;
            fs::hard_link(new, path)?;
        }
        linked => linked?,
    }
    Ok((file.dev(), file.ino()))
}

/// Removes the socket of a process that is gone.
fn remove_stale(path: &Path) -> Result<()> {
    let there = fs::symlink_metadata(path)?;
    let own = Uid::effective().as_raw();
    if !there.file_type().is_socket() {
        bail!("there is another file");
    }
    if ![0, own].contains(&there.uid()) {
        bail!("there is a socket of user {}", there.uid());
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(remove(path)?),
        Err(e) => Err(e).context("there is another socket"),
        Ok(_) => bail!("another process listens there"),
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

fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}
