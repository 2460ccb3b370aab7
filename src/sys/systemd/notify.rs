//! Messages to systemd: readiness, and descriptors that systemd stores.
//!
//! Format: sd_notify(3). No message contains bytes of an app or a client. A stored descriptor
//! survives this process, so the app does not notice its death. FDPOLL=0 is always set: without it
//! systemd drops a descriptor, with its unread bytes, as soon as it polls a hangup.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};

use super::store;
use crate::types::stream::Stream;

/// Name of the socket to the keeper of `run` among the descriptors that it passes.
pub(crate) const KEEPER: &str = "keeper";
/// Reports to the keeper of `run` that the first client has attached. Not in sd_notify(3): systemd
/// would ignore it.
pub(crate) const ATTACHED: &str = "X_IOTTYMUX_ATTACHED=1";

/// Begins the number of the signal that the keeper of `run` is to send its app.
pub(crate) const SIGNAL: &str = "X_IOTTYMUX_SIGNAL=";

/// Reports to a keeper that its mux got a signal to end: then the app may have got it, too.
pub(crate) const SIGNALLED: &str = "X_IOTTYMUX_SIGNALLED=1";

/// Name under which the keeper of `run` gets the app's end of a stream.
pub(crate) fn app_end(stream: Stream) -> String {
    format!("app-{stream}")
}

/// The connection to the service manager, if there is one, or to the keeper of `run`.
#[derive(Debug)]
pub(crate) struct Notify {
    /// The socket, and the address that it sends to unless it is connected.
    socket: Option<(OwnedFd, Option<UnixAddr>)>,
    keeps: bool,
    /// The names under which descriptors are stored.
    stored: RefCell<BTreeSet<String>>,
}

impl Notify {
    /// A notifier for `$NOTIFY_SOCKET`, a path or `@` and an abstract name; silent when the
    /// variable is unset or empty. `keeps` is false for a unit without a descriptor store, where
    /// systemd would warn about each descriptor.
    pub(crate) fn from_env(keeps: bool) -> Result<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let what = |name: &OsString| format!("NOTIFY_SOCKET={}", name.display());
        let open = |name: OsString| Self::open(&name).with_context(|| what(&name));
        let stored = RefCell::new(store::names().collect());
        Ok(Self { socket: name.map(open).transpose()?, keeps, stored })
    }

    /// A notifier for the keeper of `run`, which keeps descriptors.
    pub(crate) fn to_keeper(socket: OwnedFd) -> Self {
        let stored = RefCell::new(store::names().collect());
        Self { socket: Some((socket, None)), keeps: true, stored }
    }

    fn open(name: &OsString) -> Result<(OwnedFd, Option<UnixAddr>)> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => UnixAddr::new_abstract(rest)?,
            path => UnixAddr::new(OsStr::from_bytes(path))?,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok((fd, Some(address)))
    }

    /// Whether systemd stores descriptors.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.socket.is_some()
    }

    /// Reports that the app can start and clients can attach.
    pub(crate) fn ready(&self) {
        self.send("READY=1", None);
    }

    /// Reports that the first client has attached.
    pub(crate) fn attached(&self) {
        self.send(ATTACHED, None);
    }

    /// Asks the keeper of `run` to send its app a signal.
    pub(crate) fn signal(&self, number: u8) {
        self.send(&format!("{SIGNAL}{number}"), None);
    }

    /// Reports to the keeper that this process got a signal to end.
    pub(crate) fn signalled(&self) {
        self.send(SIGNALLED, None);
    }

    /// Reports that the mux is stopping.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1", None);
    }

    /// Has systemd kill this process if it is silent for this time; `None` ends that. Returns
    /// whether it was sent: it does not wait for a systemd that reads nothing.
    pub(crate) fn watch(&self, time: Option<Duration>) -> bool {
        let time = time.unwrap_or_default().as_micros();
        let message = format!("WATCHDOG=1\nWATCHDOG_USEC={time}");
        self.try_send(&message, None, MsgFlags::MSG_DONTWAIT).is_ok()
    }

    /// Reports that this process does not hang, as [`Notify::watch`].
    pub(crate) fn alive(&self) -> bool {
        self.try_send("WATCHDOG=1", None, MsgFlags::MSG_DONTWAIT).is_ok()
    }

    /// Stores a copy of a descriptor for the next process, unless one of this name is stored: systemd would
    /// compare it with all. `name` has letters, digits and `-`.
    pub(crate) fn store(&self, name: &str, fd: impl AsFd) {
        if self.keeps && self.stored.borrow_mut().insert(name.to_owned()) {
            let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
            self.send(&message, Some(fd.as_fd().as_raw_fd()));
        }
    }

    /// Like [`Notify::store`], but replaces the descriptors of this name: names are not unique.
    pub(crate) fn replace(&self, name: &str, fd: impl AsFd) {
        self.forget(name);
        self.store(name, fd);
    }

    /// Removes the stored descriptors of this name.
    pub(crate) fn forget(&self, name: &str) {
        // Each message costs systemd a look at the process.
        if self.keeps && self.stored.borrow_mut().remove(name) {
            self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
        }
    }

    /// Logs failures only: a manager that is gone or slow must not fail the app. It is gone while
    /// the system shuts down.
    fn send(&self, message: &str, fd: Option<i32>) {
        if let Err(e) = self.try_send(message, fd, MsgFlags::empty()) {
            let what = message.lines().next().unwrap_or_default();
            let is_gone = matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
            let level = if is_gone { log::Level::Info } else { log::Level::Warn };
            log::log!(level, "cannot report {what}: {e}");
        }
    }

    fn try_send(&self, message: &str, fd: Option<i32>, flags: MsgFlags) -> io::Result<()> {
        let Some((socket, address)) = &self.socket else { return Ok(()) };
        let fds = fd.as_slice();
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let body = [IoSlice::new(message.as_bytes())];
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        sendmsg(socket.as_raw_fd(), &body, control, flags, address.as_ref())?;
        Ok(())
    }
}
