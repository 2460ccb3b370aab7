//! Memory that the service manager keeps over a restart of the mux.
//!
//! Each piece has a name of its own in systemd's store, and a header of its own that its owner
//! checks. So a mux of another version refuses one piece alone, and does not touch a piece that it
//! does not know.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};

use crate::sys::calls;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;

/// A piece of memory, mapped for the life of this process.
#[derive(Debug)]
pub(crate) struct KeptMemory {
    /// Its first words, in which single stores are atomic.
    pub(crate) words: &'static [AtomicU64],
    /// The bytes behind them.
    pub(crate) bytes: &'static mut [u8],
    /// Whether an earlier mux left a piece of this name, of any size. If the size differs, this
    /// piece is new and zero.
    pub(crate) was_stored: bool,
}

/// The piece `name` with this many words and bytes, from the store. If there is none, or one of another
/// size, a new one is stored there. An error leaves the store as it was, for the next mux.
pub(crate) fn open(
    name: &str,
    (words, bytes): (usize, usize),
    stored: &mut Stored,
    notify: &Notify,
) -> Result<KeptMemory> {
    let map = |fd: &OwnedFd| {
        calls::map_memory(fd, words, bytes)
            .with_context(|| format!("cannot map the memory of the {name}"))
    };
    let kept = stored.remove(name);
    let was_stored = kept.is_some();
    let (words, bytes) = match kept.as_ref().map(map).transpose()?.flatten() {
        Some(mapped) => mapped,
        None => {
            let what = || format!("cannot make memory for the {name}");
            let size = size_of::<AtomicU64>() * words + bytes;
            let fd = calls::new_memory(&format!("iottymux-{name}"), size).with_context(what)?;
            let mapped = map(&fd)?.with_context(what)?;
            notify.replace(name, &fd);
            mapped
        }
    };
    Ok(KeptMemory { words, bytes, was_stored })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::Ordering;

    use super::*;

    /// For want of memory, for example. Here it may not be written.
    #[test]
    fn what_cannot_be_mapped_now_is_left_for_the_next_mux() {
        let (keeper, mux) = UnixDatagram::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let notify = Notify::to_keeper(mux.into());
        let is_told = || keeper.recv(&mut [0; 100]).is_ok();
        let mut stored = Stored::default();
        let open = |stored: &mut Stored, bytes| open("backlog", (1, bytes), stored, &notify);
        assert!(!open(&mut stored, 8).unwrap().was_stored && is_told());
        while is_told() {}

        let kept = calls::new_memory("backlog", 16).unwrap();
        let path = format!("/proc/self/fd/{}", kept.as_raw_fd());
        stored.insert("backlog", File::open(path).unwrap().into());
        let failed = format!("{:#}", open(&mut stored, 8).unwrap_err());
        assert!(failed.starts_with("cannot map the memory of the backlog: "), "{failed}");
        assert!(!is_told(), "it was replaced");

        stored.insert("backlog", kept.try_clone().unwrap());
        let found = open(&mut stored, 8).unwrap();
        found.words[0].store(7, Ordering::Relaxed);
        assert!(found.was_stored && !is_told());
        stored.insert("backlog", kept);
        let other = open(&mut stored, 16).unwrap();
        assert!(other.was_stored && is_told());
        assert_eq!(other.words[0].load(Ordering::Relaxed), 0);
    }
}
