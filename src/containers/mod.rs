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

use std::ffi::OsString;

use anyhow::Result;

use crate::sys::documents::container::Container;
use crate::sys::state::AppDir;
use crate::types::stream::Stream;

/// The command line of the mux of a container.
pub(crate) fn mux_words(
    app: &AppDir,
    streams: &[Stream],
    container: &Container,
) -> Result<Vec<OsString>> {
    let streams: Vec<&str> = streams.iter().map(|stream| stream.name()).collect();
    let options = [
        "container".to_owned(),
        format!("--app={}", app.name()),
        format!("--streams={}", streams.join(",")),
        format!("--container={}", serde_json::to_string(container)?),
    ];
    // A mux of another user would choose that of its session.
    let mut state = OsString::from("--state-dir=");
    state.push(app.state());
    Ok(options.into_iter().map(OsString::from).chain([state]).collect())
}
