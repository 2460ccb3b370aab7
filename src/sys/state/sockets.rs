//! The unix sockets in an app's directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen,
    socket, sockopt,
};
use nix::unistd::Uid;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat};

use super::AppDir;
use crate::sys::files::{PRIVATE, open_in, remove, set_mode, temporary};
use crate::sys::walk::refusal;
use crate::types::limits;

/// How long to wait for a mux whose listen queue is full: a running one accepts in milliseconds,
/// and a hook of the app's unit waits here.
const CONNECT: Duration = Duration::from_secs(2);

/// Longest path of a unix socket, bytes without the closing zero (`sun_path` of unix(7)).
const SUN_PATH: usize = 107;

impl AppDir {
    /// A non-blocking listening socket. Its name appears when it accepts connections.
    pub(crate) fn listen(&self, file: &str) -> Result<OwnedFd> {
        let make = || -> io::Result<OwnedFd> {
            let temporary = temporary(file);
            remove(&self.path(&temporary))?;
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
            // The file that bind(2) makes has this mode, less the umask.
            fchmod(&fd, Mode::from_raw_mode(PRIVATE))?;
            self.with_address(&temporary, |address| bind(fd.as_raw_fd(), address))?;
            set_mode(&self.path(&temporary), self.mode(0o666))?;
            listen(&fd, Backlog::new(i32::try_from(limits::LISTEN_QUEUE).unwrap_or(i32::MAX))?)?;
            fs::rename(self.path(&temporary), self.path(file))?;
            Ok(fd)
        };
        make().with_context(|| format!("cannot listen on {}", self.path(file).display()))
    }

    /// Connects a blocking stream socket to a socket of this directory. Its server must be root,
    /// this process's user, or the owner of the directory.
    pub(crate) fn connect(&self, file: &str) -> io::Result<OwnedFd> {
        self.connect_with(file, SockFlag::empty())
    }

    /// The same with a socket that does not block, also not for a mux whose listen queue is full:
    /// that is [`ErrorKind::TimedOut`].
    pub(crate) fn connect_now(&self, file: &str) -> io::Result<OwnedFd> {
        self.connect_with(file, SockFlag::SOCK_NONBLOCK)
    }

    fn connect_with(&self, file: &str, flags: SockFlag) -> io::Result<OwnedFd> {
        let walk = self.walk()?;
        let there = open_in(&walk, file.as_ref(), OFlags::PATH)?;
        if !FileType::from_raw_mode(fstat(&there)?.st_mode).is_socket() {
            return Err(refusal("it is not a socket".into()));
        }
        let flags = flags | SockFlag::SOCK_CLOEXEC;
        let fd = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
        // A mux with a full listen queue must not block this process.
        fd.set_write_timeout(Some(CONNECT))?;
        // Connect to the checked file, even if another one has its name now.
        let opened = PathBuf::from(format!("/proc/self/fd/{}", there.as_raw_fd()));
        match connect(fd.as_raw_fd(), &UnixAddr::new(&opened)?) {
            Err(Errno::ENOENT) => self.with_address(file, |at| connect(fd.as_raw_fd(), at))?,
            Err(Errno::EAGAIN) => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "the mux does not accept connections",
                ));
            }
            connected => connected?,
        }
        fd.set_write_timeout(None)?;
        let peer = getsockopt(&fd, sockopt::PeerCredentials)?.uid();
        let owner = fstat(walk.fd())?.st_uid;
        if ![0, Uid::effective().as_raw(), owner].contains(&peer) {
            return Err(refusal(format!(
                "user {peer} serves it; expected root, user {owner} or your own user"
            )));
        }
        Ok(fd.into())
    }

    /// Calls `call` with the address of a socket of this directory. A path that is too long for an
    /// address goes through a descriptor of the directory, which needs /proc.
    fn with_address(
        &self,
        file: &str,
        call: impl Fn(&UnixAddr) -> nix::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(file);
        if path.as_os_str().as_bytes().len() <= SUN_PATH {
            return Ok(call(&UnixAddr::new(&path)?)?);
        }
        let dir = File::open(self.dir())?;
        let short = PathBuf::from(format!("/proc/self/fd/{}/{file}", dir.as_raw_fd()));
        Ok(call(&UnixAddr::new(&short)?)?)
    }
}
