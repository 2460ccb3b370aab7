//! The files of the app's directory that a mux makes at its start, and those that it could not make
//! because the directory had no room.
//!
//! Only a mux whose app runs goes on without them. It tries again until all of them are there; a mux
//! that misses nothing does not wake up for this.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Mux;
use super::admission::listener::Listener;
use crate::os::state::{AppDir, SESSION};
use crate::types::stream::Stream;
use crate::wire::container::Container;
use crate::wire::endpoints::Endpoints;
use crate::wire::life::ReportedLife;
use crate::wire::logged::Logged;

/// Pause between two attempts: short for a client that looks for the next mux (5 s,
/// `attach --reconnect`), and as long as that of a log without room.
const RETRY: Duration = Duration::from_secs(1);

/// What a mux makes in the app's directory.
#[derive(Debug)]
pub(crate) enum MuxFile {
    /// The socket of a stream; `None` for the one of sessions.
    Socket(Option<Stream>),
    Endpoints(Endpoints),
    Logs(Logged),
    Container(Container),
    Life(ReportedLife),
}

impl MuxFile {
    /// Makes it. Only a socket has a listener.
    fn make(&self, dir: &AppDir) -> Result<Option<Listener>> {
        match self {
            Self::Socket(stream) => {
                let socket = dir.listen(stream.map_or(SESSION, Stream::socket))?;
                return Ok(Some(Listener::new(*stream, socket)));
            }
            Self::Endpoints(endpoints) => endpoints.publish(dir)?,
            Self::Logs(logged) => logged.publish(dir)?,
            Self::Container(container) => container.publish(dir)?,
            Self::Life(life) => life.publish(dir)?,
        }
        Ok(None)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// In the order in which they are made: a socket before the document that names it.
    files: Vec<MuxFile>,
    /// The next attempt; `None` if nothing is missing.
    due: Option<Instant>,
}

impl Missing {
    /// Makes a file. It is missing if that fails.
    pub(crate) fn make(&mut self, file: MuxFile, dir: &AppDir) -> Result<Option<Listener>> {
        let made = file.make(dir);
        if made.is_err() {
            self.files.push(file);
            self.due = Some(Instant::now() + RETRY);
        }
        made
    }

    /// Nothing is made any more.
    pub(crate) fn give_up(&mut self) {
        *self = Self::default();
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Mux {
    /// Tries again to make what is missing, if it is time for that.
    pub(crate) fn make_missing(&mut self, now: Instant) {
        if self.missing.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        for mut file in std::mem::take(&mut self.missing.files) {
            if let MuxFile::Life(life) = &mut file {
                // The app may have ended or started since.
                *life = self.life.reported();
            }
            match self.missing.make(file, &self.files.dir) {
                Ok(Some(listener)) => self.admission.add(listener, &self.poller),
                Ok(None) => {}
                Err(e) => log::debug!("app {}: still missing: {e:#}", self.files.name()),
            }
        }
        if self.missing.due.is_none() {
            log::info!("app {}: everything that was missing is there now", self.files.name());
        }
    }
}
