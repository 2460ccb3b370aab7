//! Docker's name of a container. Its runtime is told only the id, and Docker answers no questions while
//! it starts the containers of a machine that boots: so the name is read where Docker keeps it.

use serde::Deserialize;

use super::oci::Config;
use crate::sys::files::read_plain;
use crate::types::name::{NAME_MAX, is_of_units};

/// The namespace of Docker.
pub(crate) const NAMESPACE: &str = "moby";
/// What Docker keeps of a container, in a directory with its id, and the bytes of it that are read.
const KEPT: &str = "config.v2.json";
const MOST: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Name")]
    name: String,
}

/// The name of a container of Docker, if that says it.
pub(crate) fn name(config: &Config, id: &str) -> Option<String> {
    // One in the network of another container has the other's file.
    let all = config.hostname_file()?.parent()?.parent()?;
    let text = read_plain(&all.join(id).join(KEPT).canonicalize().ok()?, MOST).ok()?;
    let kept: DockerConfig = serde_json::from_slice(&text).ok()?;
    let name = kept.name.strip_prefix('/')?;
    let is_name = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_of_units);
    is_name.then(|| name.to_owned())
}
