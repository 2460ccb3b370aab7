//! A document of an app's directory: one line of JSON with a `version`, written whole. The users of
//! this module decide its content and its readers.

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sys::state::AppDir;

/// The part that is read first: another version may have a different rest.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Writes a document, whole, with this mode.
pub(crate) fn publish(
    dir: &AppDir,
    file: &str,
    mode: u32,
    document: &impl Serialize,
) -> Result<()> {
    let what = || format!("cannot write {}", dir.path(file).display());
    let mut text = serde_json::to_vec(document).with_context(what)?;
    text.push(b'\n');
    dir.replace(file, &text, mode)
}

/// The document that a text is.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8], version: u32) -> Result<T> {
    let Version { version: found } = serde_json::from_slice(text)?;
    if found != version {
        bail!("unknown version {found} of this document; expected version {version}");
    }
    Ok(serde_json::from_slice(text)?)
}
