//! Where the app's bytes come from and go to: FIFOs, or a pty pair.
//!
//! A [`Source`] is read, an [`AppInput`] is written; neither blocks. A source holds the app's end open as
//! well, so that it has no end of its own: systemd or wait(2) report that the app has ended, and no end
//! of file is taken for that.

pub(crate) mod fifo;
mod pace;
pub(crate) mod pty;
mod stage;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::uio::{readv, writev};

use super::poll::Registration;
use super::source::pace::Pace;
use super::source::stage::Stage;
use crate::types::stream::Stream;

/// The result of a read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// This many bytes.
    Bytes(usize),
    /// Nothing now.
    Empty,
    /// Nothing ever: no process has the other end open, not even this one.
    End,
}

/// One output of the app.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stream: Stream,
    pub(crate) fd: OwnedFd,
    /// The app's end, held open.
    held: Option<OwnedFd>,
    stage: Option<Stage>,
    /// How fast it is written, where it is a pipe.
    pace: Option<Pace>,
    pub(crate) watch: Registration,
    /// Whether it is read without being watched, because it has something all the time: while it is
    /// watched each write of the app also costs a wakeup.
    pub(crate) paced: bool,
}

impl Source {
    fn new(stream: Stream, fd: OwnedFd, held: OwnedFd) -> Self {
        Self {
            stream,
            fd,
            held: Some(held),
            stage: None,
            pace: None,
            watch: Registration::default(),
            paced: false,
        }
    }

    /// Bytes that the previous mux had announced, or was to announce next, and did not read; `None` if
    /// that cannot be known.
    pub(crate) fn unread(&self) -> Option<usize> {
        self.stage.as_ref().filter(|stage| stage.is_inherited).map(|stage| stage.len)
    }

    /// Whether a short read means that the source is empty: a pipe gives all that it has, a terminal what
    /// it likes, and a stage what fits its pages.
    pub(crate) fn gives_all(&self) -> bool {
        self.stage.is_none() && self.stream != Stream::Tty
    }

    /// Prepares the next [`Source::read`]. If its bytes are to survive this process, `Bytes` is the number
    /// that will come by this and further reads, to be announced before; else `None`.
    pub(crate) fn prepare(&mut self, max: usize) -> io::Result<Option<Read>> {
        self.stage.as_mut().map(|stage| stage.fill(&self.fd, max)).transpose()
    }

    /// It was read empty: how long to leave it alone, so that further reads are worth their cost.
    pub(crate) fn nap(&mut self, now: Instant) -> Option<Duration> {
        let nap = self.pace.as_mut().and_then(|pace| pace.empty(now));
        self.paced = nap.is_some();
        nap
    }

    /// Lets go of the app's end, so that the end of the last writer can be seen.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    /// Reads what there is, into one piece and then the other.
    pub(crate) fn read(&mut self, [a, b]: [&mut [u8]; 2]) -> io::Result<Read> {
        let from = self.stage.as_ref().map_or(&self.fd, |stage| &stage.out);
        loop {
            return match readv(from, &mut [IoSliceMut::new(a), IoSliceMut::new(b)]) {
                Ok(0) => Ok(Read::End),
                Ok(len) => {
                    if let Some(stage) = &mut self.stage {
                        stage.len = stage.len.saturating_sub(len);
                    }
                    if let Some(pace) = &mut self.pace {
                        pace.read(len);
                    }
                    Ok(Read::Bytes(len))
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Ok(Read::Empty),
                // A terminal whose last slave was closed; while we hold one it cannot be.
                Err(Errno::EIO) if self.stream == Stream::Tty => Ok(Read::End),
                Err(e) => Err(e.into()),
            };
        }
    }
}

/// Enlarges a pipe, which halves the cost of fast output, as far as the user's limit allows. Returns its
/// size in bytes.
pub(crate) fn enlarge(pipe: &OwnedFd, size: i32) -> usize {
    if let Err(e) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(size)) {
        log::debug!("enlarging a pipe: {e}");
    }
    fcntl(pipe, FcntlArg::F_GETPIPE_SZ).ok().and_then(|size| size.try_into().ok()).unwrap_or(0)
}

/// The app's input.
#[derive(Debug)]
pub(crate) struct AppInput {
    pub(crate) fd: OwnedFd,
    pub(crate) watch: Registration,
}

impl AppInput {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, watch: Registration::default() }
    }

    /// Writes what is taken at once; 0 when the app's side is full.
    pub(crate) fn write(&self, [a, b]: [&[u8]; 2]) -> io::Result<usize> {
        loop {
            return match writev(&self.fd, &[IoSlice::new(a), IoSlice::new(b)]) {
                Ok(len) => Ok(len),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Ok(0),
                Err(e) => Err(e.into()),
            };
        }
    }
}
