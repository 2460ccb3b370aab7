//! The mux's resources outside of itself: the app's directory with its lock, the ends that it made,
//! and the connection to the service manager.

use crate::mux::source::fifo;
use crate::sys::state::{AppDir, Lock};
use crate::sys::systemd::notify::Notify;
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct AppFiles {
    pub(crate) dir: AppDir,
    pub(crate) notify: Notify,
    /// Ends that this process made and removes at the end.
    pub(crate) made: Vec<&'static str>,
    /// The FIFOs that it hides at its end, for the next mux.
    pub(crate) kept: Vec<Stream>,
    /// Another process may have made the app's FIFOs, and have them open.
    pub(crate) is_foreign: bool,
    /// Whether nothing of the app is to stay in the directory (`run --rm`).
    pub(crate) leaves_nothing: bool,
    /// Whether somebody waits for the end of this mux (`run --foreground`).
    pub(crate) is_awaited: bool,
    /// Held as long as the name is this mux's.
    pub(crate) lock: Option<Lock>,
}

impl AppFiles {
    pub(crate) fn name(&self) -> &AppName {
        self.dir.name()
    }

    /// Removes a file of the directory. A file that stays does not keep the mux from ending.
    pub(crate) fn remove(&self, file: &str) {
        if let Err(e) = self.dir.remove(file) {
            log::error!("{e:#}");
        }
    }

    /// Removes everything of the app.
    pub(crate) fn leave_nothing(&self) {
        let cleared = self.lock.as_ref().map_or(Ok(()), |lock| self.dir.clear_locked(lock));
        if let Err(e) = cleared {
            log::error!("{e:#}");
        }
    }

    /// Removes the files that this process made, and hides those that the next mux needs.
    pub(crate) fn clean_up(&self, removes_dir: bool) {
        for file in &self.made {
            if let Err(e) = self.dir.remove_end(file) {
                log::error!("{e:#}");
            }
        }
        for stream in &self.kept {
            if let Err(e) = fifo::put_away(&self.dir, *stream) {
                log::error!("{e:#}");
            }
        }
        if removes_dir {
            self.dir.remove_dir();
        }
    }
}
