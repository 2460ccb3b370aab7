//! The logger of a container of containerd: the keeper of its mux, which learns from the shim how
//! the container ends.
//!
//! The shim holds the container's pipes open as well, so they do not show its end: that comes from
//! the shim's socket. A terminal's output comes by way of the shim, and is complete when its pipe
//! has ended.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::containers::task::{Task, TaskEvent};
use crate::core::wire::AppStatus;
use crate::keeper::{self, AppEvent, KeepRequest, KeptApp, MuxUser};
use crate::sys::documents::container::Container;
use crate::sys::documents::last::Last;
use crate::sys::ready;
use crate::sys::state::{AppDir, LOGS, StateDir};
use crate::types::exit::Exit;
use crate::types::stream::Stream;

/// How long a logger that is to end, or whose pipes have ended, waits for the status: the shim
/// sends that before it ends a logger. And how long one that has the status waits for the end of a
/// terminal's output, which is on its way then.
const LAST_WORD: Duration = Duration::from_millis(500);
/// How long a logger stays after SIGTERM, at most: the shim kills it after 12 s, and users wait for
/// it meanwhile.
const STAYS: Duration = Duration::from_millis(1500);
/// Containers that have ended and are still listed: each has a few small files in memory.
const ENDED_MOST: usize = 128;
/// The FIFO in a bundle that containerd copies to its own log.
const LOG: &str = "log";

/// A logger to be run.
pub(crate) struct LoggerRequest {
    pub(crate) dir: AppDir,
    /// The arguments of this program that make it the mux.
    pub(crate) mux: Vec<OsString>,
    /// The user of the mux, if it is not this one.
    pub(crate) user: Option<MuxUser>,
    /// The outputs of the container, by their streams.
    pub(crate) outputs: Vec<(Stream, OwnedFd)>,
    /// The shim learns by this that the logger is ready.
    pub(crate) ready: OwnedFd,
    pub(crate) task: Task,
}

/// Serves until the container has ended.
pub(crate) fn serve(request: LoggerRequest) -> Result<Exit> {
    let LoggerRequest { dir, mux, user, outputs, ready, task } = request;
    let mut passed = Vec::new();
    let mut open = Vec::new();
    let is_terminal = outputs.iter().any(|(stream, _)| *stream == Stream::Tty);
    for (stream, output) in outputs {
        open.push(output.try_clone()?);
        passed.push((stream.name().to_owned(), output));
    }
    let app = TaskApp { task, open, is_terminal, status: None, ends_at: None, is_over: false };
    keeper::keep(KeepRequest {
        dir,
        app: Box::new(app),
        mux,
        user,
        passed,
        awaits_client: false,
        // Without this process the container could not write.
        insists: true,
        removes: false,
        on_ready: Box::new(move || report_ready(ready)),
        stays: Some(STAYS),
    })
    .map(|_| Exit::Done)
}

/// Removes what is left of containers that have ended, but the last ones.
pub(crate) fn forget_ended(state: &StateDir) -> Result<()> {
    let apps = state.apps()?;
    if apps.len() <= ENDED_MOST {
        return Ok(());
    }
    let ended_at = |dir: &AppDir| {
        Container::read(dir)?;
        let last = Last::read(dir).ok().flatten().map(|last| last.ended_ms);
        // A mux that was killed with its keeper has not noted its end.
        last.or_else(|| (!dir.is_locked()).then_some(0))
    };
    let dirs = apps.iter().map(|app| state.app(app));
    let mut ended: Vec<(u64, AppDir)> =
        dirs.filter_map(|dir| ended_at(&dir).map(|at| (at, dir))).collect();
    ended.sort_by_key(|(at, _)| *at);
    let count = ended.len().saturating_sub(ENDED_MOST);
    for (_, dir) in ended.iter().take(count) {
        // One that is starting again has the lock.
        if let Ok(_lock) = dir.lock() {
            dir.remove_leftovers().and_then(|()| dir.remove(LOGS))?;
            dir.remove_dir();
        }
    }
    Ok(())
}

/// Reports to the shim: earlier ones wait for a byte or the end of the pipe, later ones for both.
fn report_ready(ready: OwnedFd) {
    if let Err(e) = std::fs::File::from(ready).write_all(b"\n") {
        log::warn!("cannot report to the shim that the logger is ready: {e}");
    }
}

/// Makes the log of containerd the standard error of this process and its mux, if there is one.
pub(crate) fn write_to_engine(bundle: &Path) -> io::Result<()> {
    let path = bundle.join(LOG);
    if !std::fs::symlink_metadata(&path)?.file_type().is_fifo() {
        return Err(io::Error::other("it is not a FIFO"));
    }
    // It fails without a reader.
    let log = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path)?;
    Ok(rustix::stdio::dup2_stderr(&log)?)
}

/// The container as its keeper sees it.
struct TaskApp {
    task: Task,
    /// The pipes of its output that have not ended.
    open: Vec<OwnedFd>,
    is_terminal: bool,
    status: Option<AppStatus>,
    /// When it counts as ended, whatever is missing.
    ends_at: Option<Instant>,
    is_over: bool,
}

impl TaskApp {
    fn end_soon(&mut self, now: Instant) {
        self.ends_at.get_or_insert(now + LAST_WORD);
    }

    /// Whether all is known and written.
    fn is_complete(&self) -> bool {
        self.status.is_some() && (!self.is_terminal || self.open.is_empty())
    }
}

impl KeptApp for TaskApp {
    fn watched(&self) -> Vec<PollFd<'_>> {
        if self.is_over {
            return Vec::new();
        }
        // Hangups are always reported.
        let pipes = self.open.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::empty()));
        let socket = self.task.socket().map(|socket| PollFd::new(socket, PollFlags::POLLIN));
        pipes.chain(socket).collect()
    }

    fn due(&self) -> Option<Instant> {
        let due = [self.task.due(), self.ends_at].into_iter().flatten().min();
        due.filter(|_| !self.is_over)
    }

    fn look(&mut self, now: Instant) -> Result<Option<AppEvent>> {
        if self.is_over {
            return Ok(None);
        }
        match self.task.look(now) {
            None => {}
            Some(TaskEvent::Started(_)) => return Ok(Some(AppEvent::Started)),
            Some(TaskEvent::Ended(status)) => {
                self.status = status;
                self.end_soon(now);
            }
        }
        self.open.retain(|pipe| !has_ended(pipe));
        if self.open.is_empty() {
            self.end_soon(now);
        }
        self.is_over = self.is_complete() || self.ends_at.is_some_and(|at| at <= now);
        Ok(self.is_over.then_some(AppEvent::Ended(self.status)))
    }

    /// The shim ends a logger after its container.
    fn signal(&mut self, _: Signal, _: Option<&OwnedFd>, now: Instant) -> bool {
        self.end_soon(now);
        !self.is_over
    }

    fn pid(&self) -> Option<Pid> {
        self.task.pid()
    }
}

/// Whether no process has the other end of a pipe open. It may still have something.
fn has_ended(pipe: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    ready::wait(&mut fds, Some(Duration::ZERO)).is_ok()
        && fds[0].revents().is_some_and(|is| is.contains(PollFlags::POLLHUP))
}
