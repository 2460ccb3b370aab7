//! The identity of a terminal.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// The `TERM` of an app that is given none; most emulators understand it.
pub(crate) const TERM: &str = "xterm-256color";

/// The identity of a terminal. A name is none: each container numbers its own terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TerminalId {
    /// The number of its file system.
    pub file_system: u64,
    /// The number of its file there.
    pub inode: u64,
    /// The number of its device.
    pub device: u64,
}

impl From<Metadata> for TerminalId {
    fn from(file: Metadata) -> Self {
        Self { file_system: file.dev(), inode: file.ino(), device: file.rdev() }
    }
}
