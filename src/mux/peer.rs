//! The process at the other end of a connection, as the kernel reports it.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

use anyhow::{Error, anyhow};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::sys::diagnostics::EventFields;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 when its pid namespace cannot be seen from here.
    pub(crate) pid: i32,
}

impl Peer {
    pub(crate) fn of(socket: &UnixStream) -> io::Result<Self> {
        let peer = getsockopt(socket, PeerCredentials)?;
        Ok(Self { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
    }

    /// For the fields of a line in the journal.
    pub(crate) fn did(self, name: &'static str) -> EventFields {
        EventFields { name, uid: self.uid, pid: self.pid }
    }

    /// The reason why a viewer may not type.
    pub(crate) fn may_only_look(self) -> Error {
        anyhow!("user {} may only look", self.uid)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid={} pid={}", self.uid, self.pid)
    }
}
