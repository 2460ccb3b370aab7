//! Messages to systemd: readiness, and descriptors that systemd stores.
//!
//! Format: sd_notify(3). No message contains bytes of an app or a client. A stored descriptor
//! survives this process, so the app does not notice its death. FDPOLL=0 is always set: without it
//! systemd drops a descriptor, with its unread bytes, as soon as it polls a hangup.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::unistd::pipe2;

use crate::types::limits;

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<(OwnedFd, UnixAddr)>,
    keeps: bool,
}

impl Notify {
    /// A notifier for `$NOTIFY_SOCKET`, a path or `@` and an abstract name; silent when the
    /// variable is unset or empty. `keeps` is false for a unit without a descriptor store, where
    /// systemd would warn about each descriptor.
    pub(crate) fn from_env(keeps: bool) -> Result<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let what = |name: &OsString| format!("NOTIFY_SOCKET={}", name.display());
        let open = |name: OsString| Self::open(&name).with_context(|| what(&name));
        Ok(Self { socket: name.map(open).transpose()?, keeps })
    }

    fn open(name: &OsString) -> Result<(OwnedFd, UnixAddr)> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => UnixAddr::new_abstract(rest)?,
            path => UnixAddr::new(OsStr::from_bytes(path))?,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok((fd, address))
    }

    /// Whether systemd stores descriptors.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.socket.is_some()
    }

    /// Reports that the app can start and clients can attach.
    pub(crate) fn ready(&self) {
        self.send("READY=1", None);
    }

    /// Reports that the mux is stopping.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1", None);
    }

    /// Stores a copy of a descriptor for the next process. `name` has letters, digits and `-`.
    pub(crate) fn store(&self, name: &str, fd: impl AsFd) {
        if !self.keeps {
            return;
        }
        self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(fd.as_fd().as_raw_fd()));
    }

    /// Like [`Notify::store`], but replaces the descriptors of this name: names are not unique.
    pub(crate) fn replace(&self, name: &str, fd: impl AsFd) {
        self.forget(name);
        self.store(name, fd);
    }

    /// Removes the stored descriptors of this name.
    pub(crate) fn forget(&self, name: &str) {
        if self.keeps {
            self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
        }
    }

    /// Waits until systemd has processed all messages: it ignores those of a process that has exited.
    pub(crate) fn barrier(&self) -> Result<()> {
        let what = "cannot wait for systemd";
        let (done, token) = pipe2(OFlag::O_CLOEXEC).context(what)?;
        self.send("BARRIER=1", Some(token.as_raw_fd()));
        drop(token);
        let time = PollTimeout::try_from(limits::BARRIER).unwrap_or(PollTimeout::MAX);
        // systemd then closes its copy.
        match poll(&mut [PollFd::new(done.as_fd(), PollFlags::POLLIN)], time).context(what)? {
            0 => bail!("{what}: no answer"),
            _ => Ok(()),
        }
    }

    /// Logs failures only: a manager that is gone or slow must not fail the app.
    fn send(&self, message: &str, fd: Option<i32>) {
        let Some((socket, address)) = &self.socket else { return };
        let fds = fd.as_slice();
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let body = [IoSlice::new(message.as_bytes())];
        let sent =
            sendmsg(socket.as_raw_fd(), &body, control, MsgFlags::MSG_NOSIGNAL, Some(address));
        if let Err(e) = sent.map_err(io::Error::from) {
            let what = message.lines().next().unwrap_or_default();
            log::warn!("cannot report to systemd {what}: {e}");
        }
    }
}
