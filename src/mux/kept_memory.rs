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

/// The piece `name` with this many words and bytes, from the store, or a new one that is stored
/// there.
pub(crate) fn open(
    name: &str,
    (words, bytes): (usize, usize),
    stored: &mut Stored,
    notify: &Notify,
) -> Result<KeptMemory> {
    let map = |fd: &OwnedFd| calls::map_memory(fd, words, bytes);
    let kept = stored.remove(name);
    let was_stored = kept.is_some();
    let mapped = kept.as_ref().and_then(|fd| map(fd).ok());
    let (words, bytes) = match mapped {
        Some(mapped) => mapped,
        None => {
            let size = size_of::<AtomicU64>() * words + bytes;
            let fd = calls::new_memory(&format!("iottymux-{name}"), size)
                .with_context(|| format!("cannot make memory for the {name}"))?;
            notify.replace(name, &fd);
            map(&fd).with_context(|| format!("cannot map the memory of the {name}"))?
        }
    };
    Ok(KeptMemory { words, bytes, was_stored })
}
