//! This program as a container engine's runtime and logger, and what it asks engines.
//!
//! | module | is |
//! |---|---|
//! | [`wrapper`] | being the runtime of a container engine |
//! | [`logger`] | logging a container of containerd |
//! | [`console`] | the socket on which a runtime sends the terminal of a container |
//! | [`container_process`] | the first process of a container: that it has ended, and how |
//! | [`task`] | a task of containerd: how it ends, the size of its terminal |
//! | [`ttrpc`] | requests to a shim of containerd |
//! | [`protobuf`] | the messages in them (pure) |
//! | [`docker`] | Docker's name of a container |
//! | [`oci`] | the command line of a runtime, and a config.json (pure) |

pub(crate) mod console;
pub(crate) mod container_process;
mod docker;
pub(crate) mod logger;
pub(crate) mod oci;
mod protobuf;
pub(crate) mod task;
mod ttrpc;
pub(crate) mod wrapper;

use std::ffi::{OsStr, OsString};

/// The command line of the mux of a container.
pub(crate) fn mux_words(options: &[(&str, &OsStr)]) -> Vec<OsString> {
    let option = |(name, value): &(&str, &OsStr)| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    [OsString::from("container")].into_iter().chain(options.iter().map(option)).collect()
}
