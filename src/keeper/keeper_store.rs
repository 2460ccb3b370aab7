//! The channel between the keeper and its mux: the mux's messages, and the descriptors that it
//! stores.
//!
//! Format: sd_notify(3), with messages of our own: [`ATTACHED`], [`SIGNAL`], [`SIGNALLED`]. The
//! channel is a socket pair, so no other process can send.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use nix::sys::signal::Signal;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use crate::mux::engine_end;
use crate::sys::fd_message;
use crate::sys::systemd::notify::{ATTACHED, SIGNAL, SIGNALLED, app_end};
use crate::types::stream::Stream;

/// Descriptors that a keeper holds for its mux; systemd holds as many for one of a
/// service.
const KEPT_DESCRIPTORS: usize = 32;
/// Largest message of a mux to its keeper, bytes: a name, and two words of sd_notify(3).
const NOTIFY: usize = 512;

/// A message of the mux that is not about descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreMessage {
    /// Clients can attach.
    Ready,
    /// Its first client has attached.
    Attached,
    /// The app is to get this signal.
    Signal(Signal),
    /// It got a signal to end.
    Signalled,
    /// Any other.
    Other,
}

/// The keeper's end of a channel, and the mux's. Packets, so that a full one holds the mux back by
/// bytes instead of by ten messages.
pub(super) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The mux may wait, its keeper may not.
    rustix::io::ioctl_fionbio(&pair.1, false)?;
    Ok(pair)
}

/// Descriptors by name.
#[derive(Debug, Default)]
pub(super) struct Store(BTreeMap<String, OwnedFd>);

impl Store {
    /// Receives a message, and stores or drops the descriptors that it is about; `None` if there is
    /// none.
    pub(super) fn receive(&mut self, channel: &OwnedFd) -> io::Result<Option<StoreMessage>> {
        let mut text = [0; NOTIFY];
        let (len, fds) = match fd_message::receive(channel, &mut text, RecvFlags::DONTWAIT) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(None);
            }
            received => received?,
        };
        if len == 0 {
            // The mux has gone, which the keeper learns from wait(2).
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&text[..len]);
        Ok(Some(self.handle(&text, fds.into_iter().next())))
    }

    fn handle(&mut self, text: &str, fd: Option<OwnedFd>) -> StoreMessage {
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        // The next mux gets it in a variable, between colons.
        let name = name.filter(|name| !name.contains(|c: char| c == ':' || c.is_control()));
        match (text.lines().next(), name, fd) {
            (Some("FDSTORE=1"), Some(name), Some(fd)) => {
                if self.0.len() < KEPT_DESCRIPTORS || self.0.contains_key(name) {
                    self.0.insert(name.to_owned(), fd);
                } else {
                    log::error!("cannot keep another descriptor of the mux");
                }
            }
            (Some("FDSTOREREMOVE=1"), Some(name), _) => drop(self.0.remove(name)),
            (Some("READY=1"), ..) => return StoreMessage::Ready,
            (Some(ATTACHED), ..) => return StoreMessage::Attached,
            (Some(SIGNALLED), ..) => return StoreMessage::Signalled,
            (Some(line), ..) => {
                let number = line.strip_prefix(SIGNAL).and_then(|number| number.parse().ok());
                let signal = number.and_then(|number: i32| Signal::try_from(number).ok());
                return signal.map_or(StoreMessage::Other, StoreMessage::Signal);
            }
            _ => {}
        }
        StoreMessage::Other
    }

    /// Keeps descriptors for the first mux.
    pub(super) fn with(passed: Vec<(String, OwnedFd)>) -> Self {
        Self(passed.into_iter().collect())
    }

    /// Takes the ends that the mux has opened for the app: of its streams, in their order, or its
    /// terminal.
    pub(super) fn take_app_ends(&mut self) -> Vec<OwnedFd> {
        Stream::ALL.into_iter().filter_map(|stream| self.0.remove(&app_end(stream))).collect()
    }

    /// Whether the engine of the app is still to get output.
    pub(super) fn has_engine_output(&self) -> bool {
        let mut outputs = Stream::ALL.into_iter().filter(|stream| stream.is_output());
        outputs.any(|stream| self.0.contains_key(&engine_end(stream)))
    }

    /// The descriptor of a name.
    pub(super) fn get(&self, name: &str) -> Option<&OwnedFd> {
        self.0.get(name)
    }

    /// All of it, for the next mux.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &OwnedFd)> {
        self.0.iter().map(|(name, fd)| (&**name, fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn names(store: &Store) -> Vec<&str> {
        store.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn descriptors_are_kept_by_name_until_they_are_removed() {
        let mut store = Store::default();
        for name in ["stdout", "app-stdin", "stdout", "app-stderr"] {
            let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
            assert_eq!(store.handle(&text, Some(fd())), StoreMessage::Other);
        }
        assert_eq!(store.take_app_ends().len(), 2);
        assert_eq!(names(&store), ["stdout"]);
        store.handle("FDSTOREREMOVE=1\nFDNAME=stdout", None);
        assert!(store.get("stdout").is_none() && names(&store).is_empty());
    }

    #[test]
    fn messages_without_their_parts_change_nothing() {
        let mut store = Store::default();
        for text in ["", "FDSTORE=1", "FDSTORE=1\nFDNAME=x", "FDSTOREREMOVE=1", "X=1\nREADY=1"] {
            assert_eq!(store.handle(text, None), StoreMessage::Other, "{text}");
        }
        // No next mux could be started with these.
        for name in ["a\0b", "a:b", "a\x1bb"] {
            store.handle(&format!("FDSTORE=1\nFDNAME={name}"), Some(fd()));
        }
        store.handle("FDSTORE=1", Some(fd()));
        assert!(names(&store).is_empty());
        assert_eq!(store.handle("READY=1", None), StoreMessage::Ready);
    }

    #[test]
    fn it_keeps_only_so_many() {
        let mut store = Store::default();
        for n in 0..=KEPT_DESCRIPTORS {
            store.handle(&format!("FDSTORE=1\nFDNAME=x{n}"), Some(fd()));
        }
        assert_eq!(names(&store).len(), KEPT_DESCRIPTORS);
    }
}
