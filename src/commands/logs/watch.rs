//! Waiting for more of a log, or for the end of its app, or of whoever reads.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::lines::Wants;
use crate::commands::find;
use crate::os::state::{AppDir, ENDPOINTS};
use crate::types::limits;
use crate::types::stream::Stream;
use crate::wire::last::Last;

/// Why waiting is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Something was written, or the time is over.
    Writing,
    /// Files have come, gone, or changed their names or who may read them.
    Names,
    /// An output is closed: nobody reads any more.
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileWatch(Inotify);

impl FileWatch {
    /// Watches nothing yet.
    pub(crate) fn new() -> Result<Self> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        Inotify::init(flags).map(Self).context("watching files")
    }

    /// Watches a directory, and as long as there is none, the nearest above it. To be called before
    /// each look, which then misses nothing.
    pub(crate) fn dir(&self, dir: &Path) -> Result<()> {
        // A directory and not the file: a file goes by several names, and others take its place.
        let also =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE;
        if find::watch_path(&self.0, dir, also)? {
            return Ok(());
        }
        Err(io::Error::from(Errno::EACCES)).with_context(|| format!("watching {}", dir.display()))
    }

    /// Whether files have come, gone, changed their names or who may read them since this was asked
    /// last, or waiting was over.
    pub(crate) fn names_changed(&self) -> Result<bool> {
        let content = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let mut changed = false;
        loop {
            match self.0.read_events() {
                Ok(events) => changed |= events.iter().any(|event| !content.contains(event.mask)),
                Err(Errno::EAGAIN) => return Ok(changed),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("watching files"),
            }
        }
    }

    /// Waits for a change, for ever or this long.
    pub(crate) fn wait(&self, wants: &Wants, time: Option<Duration>) -> Result<Woken> {
        let timeout = time.map_or(PollTimeout::NONE, |time| {
            // Rounded up, so that the last wait is not a busy one.
            PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let mut fds = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // Of these it is told only when their other end is gone.
        if wants.includes(Stream::Stdout) {
            fds.push(PollFd::new(stdout.as_fd(), PollFlags::empty()));
        }
        if wants.includes(Stream::Stderr) {
            fds.push(PollFd::new(stderr.as_fd(), PollFlags::empty()));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e).context("waiting for more of a log"),
        }
        if fds[1..].iter().any(|fd| fd.any() == Some(true)) {
            return Ok(Woken::Closed);
        }
        Ok(if self.names_changed()? { Woken::Names } else { Woken::Writing })
    }
}

/// In how long an app counts as ended: at once when its mux is gone and says so, after a while when
/// the mux may be one that is just restarted; `None` when there is a mux, or nothing is known. To be
/// asked again after that time.
pub(crate) fn ends_in(dir: &AppDir) -> Option<Duration> {
    if dir.has(ENDPOINTS) {
        return None;
    }
    if dir.is_locked() {
        // The lock goes without an event: a file is told closed before its lock is let go.
        return Some(limits::LOOK_AGAIN);
    }
    let last = Last::read(dir).ok()??;
    let wait = if last.status.is_some() { Duration::ZERO } else { limits::RECONNECT };
    Some(wait.saturating_sub(last.age()))
}
