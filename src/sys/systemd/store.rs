//! The descriptors that an earlier process has stored in systemd, see sd_listen_fds(3).

use std::collections::BTreeMap;
use std::env;
use std::os::fd::OwnedFd;

use super::own_process;
use crate::sys::calls;

/// The number of the first descriptor that systemd passes.
pub(crate) const FIRST_FD: i32 = 3;

/// The names of the descriptors that this process was passed, in their order.
pub(super) fn names() -> impl Iterator<Item = String> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    names.split(':').map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The stored descriptors, by name.
#[derive(Debug, Default)]
pub(crate) struct Stored(BTreeMap<String, OwnedFd>);

impl Stored {
    /// Adopts the descriptors. Call it once, before this process opens any other descriptor.
    pub(crate) fn take() -> Self {
        let fds = calls::adopt(FIRST_FD, own_process::passed_descriptors());
        Self(names().zip(fds).collect())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a descriptor of this name is left.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The descriptor of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&OwnedFd> {
        self.0.get(name)
    }

    /// Removes the descriptor of this name.
    pub(crate) fn remove(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }

    /// Adds a descriptor, which replaces one of this name.
    pub(crate) fn insert(&mut self, name: &str, fd: OwnedFd) {
        self.0.insert(name.to_owned(), fd);
    }

    /// All of them, with their names.
    pub(crate) fn into_all(self) -> impl Iterator<Item = (String, OwnedFd)> {
        self.0.into_iter()
    }
}
