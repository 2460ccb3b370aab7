//! `last.json`: how an app ended, and its last output, for clients after the end of its mux.
//!
//! Format: one line of JSON, version 1. Written whole when the mux ends, removed when the next one
//! begins; read as `endpoints` is. It quotes the app's output as text, which is never trusted.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::document;
use crate::core::wire::AppStatus;
use crate::sys::files::PRIVATE;
use crate::sys::state::{AppDir, LAST};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Now;

/// The version that is written and understood.
const VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Last {
    version: u32,
    /// The app's name.
    pub(crate) app: String,
    /// When the mux had read everything, in milliseconds since 1970-01-01 UTC.
    pub(crate) ended_ms: u64,
    /// How the app ended; `None` if its mux did not know.
    pub(crate) status: Option<AppStatus>,
    /// Its output streams.
    pub(crate) streams: Vec<StreamTail>,
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamTail {
    /// Its name.
    pub(crate) stream: Stream,
    /// Bytes that the app wrote.
    pub(crate) bytes: u64,
    /// The last of them, at most [`limits::TAIL`] bytes; invalid UTF-8 is replaced.
    pub(crate) tail: String,
}

impl Last {
    /// The document of an app that ends now.
    pub(crate) fn new(dir: &AppDir, status: Option<AppStatus>, streams: Vec<StreamTail>) -> Self {
        let app = dir.name().to_string();
        Self { version: VERSION, app, ended_ms: now_ms(), status, streams }
    }

    /// Writes the document, whole.
    pub(crate) fn publish(&self, dir: &AppDir) -> Result<()> {
        document::publish(dir, LAST, PRIVATE, self)
    }

    /// Reads the document of an app; `None` if it does not exist or this user cannot read it.
    pub(crate) fn read(dir: &AppDir) -> Result<Option<Self>> {
        let what = || format!("cannot read {}", dir.path(LAST).display());
        match dir.read(LAST, limits::LAST) {
            Ok(text) => document::parse(&text, VERSION).map(Some).with_context(what),
            // Users with access through the mux only must not see the output without it.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                Ok(None)
            }
            Err(e) => Err(e).with_context(what),
        }
    }

    /// How long ago it was; a clock that was set back makes it now.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.ended_ms))
    }
}

/// To be put behind the name of the app or "it".
impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "ended {status}")?,
            None => write!(f, "ended or lost its mux, with an unknown exit status")?,
        }
        write!(f, ", {} s ago", self.age().as_secs())
    }
}

fn now_ms() -> u64 {
    Now::read().stamp.millis()
}
