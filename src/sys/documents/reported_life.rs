//! `life.json`: what hooks have reported of the app's life, for the next mux.
//!
//! Format: one line of JSON, version 1. Written whole at each report where systemd keeps the app's
//! ends, and removed when no other mux goes on.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::document;
use crate::core::wire::AppStatus;
use crate::sys::files::PRIVATE;
use crate::sys::state::{AppDir, LIFE};
use crate::types::limits;

/// The version that is written and understood.
const VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedLife {
    version: u32,
    /// The app's process, while it is known to run.
    pub(crate) pid: Option<u32>,
    /// How the app ended last, even if it runs again.
    pub(crate) ended: Option<AppStatus>,
    /// How often it was started again.
    pub(crate) restarts: u64,
}

impl ReportedLife {
    pub(crate) fn new(pid: Option<u32>, ended: Option<AppStatus>, restarts: u64) -> Self {
        Self { version: VERSION, pid, ended, restarts }
    }

    /// Writes the document, whole.
    pub(crate) fn publish(&self, dir: &AppDir) -> Result<()> {
        document::publish(dir, LIFE, PRIVATE, self)
    }

    /// What an earlier mux has left; `None` if that cannot be read.
    pub(crate) fn read(dir: &AppDir) -> Option<Self> {
        let text = dir.read(LIFE, limits::LAST).ok()?;
        document::parse(&text, VERSION)
            .inspect_err(|e| log::warn!("cannot read {}: {e:#}", dir.path(LIFE).display()))
            .ok()
    }
}
