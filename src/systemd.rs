//! What systemd and a service say to each other: readiness, and descriptors that it keeps.
//!
//! Formats: sd_notify(3) and sd_listen_fds(3). Nothing that an app or a client said is ever put
//! into a message. A stored descriptor survives the death of this process, so that the app does
//! not notice it; it is always stored with FDPOLL=0, without which systemd drops a descriptor as
//! soon as it polls a hangup, unread bytes and all.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};

use crate::sys;

/// The number of the first descriptor that systemd passes.
const FIRST_FD: i32 = 3;
/// The variables by which systemd speaks to one process, and which are not for its children.
pub const PRIVATE_ENV: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The way to ask the system's manager something, or a user's; without what that has told this process
/// alone.
#[must_use]
pub fn systemctl(user: bool) -> Command {
    let mut command = Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    for name in PRIVATE_ENV {
        command.env_remove(name);
    }
    command
}

/// Descriptors that came from systemd's store, by name.
#[derive(Debug, Default)]
pub struct Stored(BTreeMap<String, OwnedFd>);

impl Stored {
    /// Takes over what was passed to this process. To be called once, first of all.
    #[must_use]
    pub fn take() -> Self {
        let fds = sys::adopt(FIRST_FD, passed());
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self(names.split(':').map(str::to_owned).zip(fds).collect())
    }

    /// Whether there is a descriptor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The descriptor of this name, if it was stored.
    pub fn remove(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }
}

/// Begins this program anew, in the same process, without the variables that begin with these, but for some:
/// where it has been given the ends of an app that runs, a mistake in its environment is no reason to
/// let them go, for the app would die of it. Returns when it has not, or when there is nothing to leave
/// out.
pub fn take_over_without(prefixes: &[&str], but: &[&str]) {
    let left_out = |name: &OsString| {
        let begins = |prefix: &&str| name.as_bytes().starts_with(prefix.as_bytes());
        prefixes.iter().any(begins) && !but.iter().any(|but| name == *but)
    };
    let names: Vec<OsString> = env::vars_os().map(|(name, _)| name).filter(left_out).collect();
    if passed() == 0 || names.is_empty() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1));
    for name in names {
        again.env_remove(name);
    }
    eprintln!(
        "iottymux: error: the app runs: going on with the defaults of all {} variables",
        prefixes.join(" and ")
    );
    // The descriptors stay open, and the process the one that they were passed to.
    let _ = again.exec();
}

/// How many descriptors were passed to this process.
fn passed() -> usize {
    let number = |name| env::var(name).ok()?.parse::<usize>().ok();
    let is_ours = number("LISTEN_PID") == Some(std::process::id() as usize);
    number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0)
}

/// The way to the service manager, where there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<(OwnedFd, UnixAddr)>,
    keeps: bool,
}

impl Notify {
    /// A notifier for `$NOTIFY_SOCKET`, a path or `@` and an abstract name; silent when the
    /// variable is unset or empty. `keeps` tells whether the unit is one that keeps descriptors;
    /// under another systemd would complain of each.
    ///
    /// # Errors
    /// When the variable is set, and is no address of a socket.
    pub fn from_env(keeps: bool) -> Result<Self> {
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

    /// Whether descriptors that are stored are kept.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keeps && self.socket.is_some()
    }

    /// The app can be started and attached now.
    pub fn ready(&self) {
        self.tell("READY=1", None);
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1", None);
    }

    /// Gives systemd a copy of a descriptor to keep for the next process. `name` is ours: letters,
    /// digits and `-`.
    pub fn store(&self, name: &str, fd: impl AsFd) {
        if !self.keeps {
            return;
        }
        self.tell(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(fd.as_fd().as_raw_fd()));
    }

    /// As [`Notify::store`], in place of what it keeps under this name: names in the store are not unique.
    pub fn store_anew(&self, name: &str, fd: impl AsFd) {
        self.forget(name);
        self.store(name, fd);
    }

    /// Has systemd close the copies that it keeps under this name.
    pub fn forget(&self, name: &str) {
        if self.keeps {
            self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
        }
    }

    /// A manager that is gone or slow is no reason to fail the app: what cannot be told is logged.
    fn tell(&self, message: &str, fd: Option<i32>) {
        let Some((socket, address)) = &self.socket else { return };
        let fds = fd.as_slice();
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let body = [IoSlice::new(message.as_bytes())];
        let sent =
            sendmsg(socket.as_raw_fd(), &body, control, MsgFlags::MSG_NOSIGNAL, Some(address));
        if let Err(e) = sent.map_err(io::Error::from) {
            let what = message.lines().next().unwrap_or_default();
            log::warn!("telling systemd {what}: {e}");
        }
    }
}
