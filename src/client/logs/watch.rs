//! Waits for new entries, for the end of the app, or for a closed output.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::printed_lines::Wants;
use crate::client::find;
use crate::sys::documents::last::Last;
use crate::sys::ready;
use crate::sys::state::{AppDir, ENDPOINTS};
use crate::types::limits;
use crate::types::stream::Stream;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A file was written, or the time is over.
    Writing,
    /// Files were created, removed or renamed, or their modes changed.
    Names,
    /// What was named besides can be read.
    Readable,
    /// An output is closed.
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileWatch(Inotify);

impl FileWatch {
    /// Watches nothing yet.
    pub(crate) fn new() -> Result<Self> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        Inotify::init(flags).map(Self).context("cannot watch files")
    }

    /// Watches a directory, or the nearest existing one above it. Called before each look, so that
    /// no change is missed.
    pub(crate) fn dir(&self, dir: &Path) -> Result<()> {
        // The directory and not the file, because files are renamed and replaced.
        let also =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE;
        if find::watch_path(&self.0, dir, also)? {
            return Ok(());
        }
        Err(io::Error::from(Errno::EACCES))
            .with_context(|| format!("cannot watch {}", dir.display()))
    }

    /// Whether files were created, removed or renamed, or their modes changed, since the last call
    /// or wait.
    pub(crate) fn names_changed(&self) -> Result<bool> {
        let mut changed = false;
        loop {
            match self.0.read_events() {
                Ok(events) => {
                    changed |= events.iter().any(|event| event.mask != AddWatchFlags::IN_MODIFY);
                }
                Err(Errno::EAGAIN) => return Ok(changed),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("cannot watch files"),
            }
        }
    }

    /// Waits for a change, for ever or this long, or until `also` can be read.
    pub(crate) fn wait(
        &self,
        wants: &Wants,
        time: Option<Duration>,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<Woken> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let mut fds = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // These report only that their other end is closed.
        if wants.includes(Stream::Stdout) {
            fds.push(PollFd::new(stdout.as_fd(), PollFlags::empty()));
        }
        if wants.includes(Stream::Stderr) {
            fds.push(PollFd::new(stderr.as_fd(), PollFlags::empty()));
        }
        let outputs = 1..fds.len();
        fds.extend(also.map(|also| PollFd::new(also, PollFlags::POLLIN)));
        ready::wait(&mut fds, time).context("cannot wait for more of a log")?;
        let is_ready = |fd: &PollFd| fd.any() == Some(true);
        if fds[outputs.clone()].iter().any(is_ready) {
            return Ok(Woken::Closed);
        }
        Ok(match self.names_changed()? {
            _ if fds[outputs.end..].iter().any(is_ready) => Woken::Readable,
            true => Woken::Names,
            false => Woken::Writing,
        })
    }
}

/// The time until an app counts as ended: zero if its mux reported the end, some time if the mux
/// may be restarting; `None` if there is a mux, or nothing is known. Call it again after that time.
pub(crate) fn ends_in(dir: &AppDir) -> Option<Duration> {
    if dir.has(ENDPOINTS) {
        return None;
    }
    if dir.is_locked() {
        // A lock is released without an event.
        return Some(limits::LOOK_AGAIN);
    }
    let last = Last::read(dir).ok()??;
    let wait = if last.status.is_some() { Duration::ZERO } else { limits::RECONNECT };
    Some(wait.saturating_sub(last.age()))
}
