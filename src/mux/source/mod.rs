//! The sources of the app's output and the target of its input: FIFOs, a pty pair, or ends that
//! another program made.
//!
//! A [`Source`] is read, an [`AppInput`] is written; neither blocks. A source holds the app's end
//! open as well where there is a way to it, so it never reads an end of file. systemd, wait(2) or a
//! container engine report that the app has ended. Only the terminal of a container that sends it
//! itself has no such end, and its end is that of the container.

pub(crate) mod fifo;
mod pace;
pub(crate) mod passed;
pub(crate) mod pty;
pub(crate) mod stage;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::{Errno, readv, writev};

use self::pace::Pace;
use self::stage::Stage;
use super::poll::Registration;
use crate::sys::ready;
use crate::sys::systemd::notify::Notify;
use crate::types::stream::Stream;

/// The name in systemd's store of the app's end that a mux holds open beside a source.
fn held_name(stream: Stream) -> String {
    format!("{stream}-hold")
}

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
    /// The app's end, held open where there is a way to it.
    held: Option<OwnedFd>,
    stage: Option<Stage>,
    /// Bytes of the last read.
    last: usize,
    /// How fast it is written, where it is a pipe.
    pace: Option<Pace>,
    pub(crate) watch: Registration,
    /// Whether it is read without being watched, because it has something all the time: while it is
    /// watched each write of the app also costs a wakeup.
    pub(crate) paced: bool,
    /// Until when a client holds it back.
    pub(crate) held_until: Option<Instant>,
}

impl Source {
    fn new(stream: Stream, fd: OwnedFd, held: Option<OwnedFd>) -> Self {
        Self {
            stream,
            fd,
            held,
            stage: None,
            last: 0,
            pace: None,
            watch: Registration::default(),
            paced: false,
            held_until: None,
        }
    }

    /// Sends its bytes through a pipe. Bytes that the previous mux left there are read without an
    /// event.
    fn staged(self, stage: Option<Stage>) -> Self {
        let paced = stage.as_ref().is_some_and(|stage| stage.len > 0);
        Self { stage, paced, ..self }
    }

    /// Bytes that the previous mux had announced, or was to announce next, and did not read; `None`
    /// if that cannot be known.
    pub(crate) fn unread(&self) -> Option<usize> {
        self.stage.as_ref().filter(|stage| stage.is_inherited).map(|stage| stage.len)
    }

    /// Bytes that are to be read now; `None` of a terminal, which does not know all of them.
    pub(crate) fn pending(&self) -> Option<u64> {
        (self.stream != Stream::Tty).then(|| self.written())
    }

    /// Bytes that the app has written and nobody has read, as far as the kernel tells.
    pub(crate) fn written(&self) -> u64 {
        let staged = self.stage.as_ref().map_or(0, |stage| stage.len as u64);
        staged + rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    /// Whether a short read means that the source is empty: a pipe returns all that it has, a
    /// terminal any part of it, and a stage the content of its pages.
    pub(crate) fn gives_all(&self) -> bool {
        self.stage.is_none() && self.stream != Stream::Tty
    }

    /// Prepares the next [`Source::read`]. If its bytes must survive this process, `Bytes` is the
    /// number that this and further reads will return; announce it first. Otherwise `None`.
    pub(crate) fn prepare(&mut self, max: usize) -> io::Result<Option<Read>> {
        match self.stage.as_mut().map(|stage| stage.fill(&self.fd, max)).transpose() {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                // Some kernels before 5.11 read terminals only directly.
                log::debug!("reading {} directly: {e}", self.stream);
                self.stage = None;
                Ok(None)
            }
            Err(e) if is_hangup(self.stream, &e) => Ok(Some(Read::End)),
            filled => filled,
        }
    }

    /// It was read empty: how long to leave it alone, so that further reads are worth their cost.
    pub(crate) fn nap(&mut self, now: Instant) -> Option<Duration> {
        let nap = self.pace.as_mut().and_then(|pace| pace.empty(now));
        self.paced = nap.is_some();
        nap
    }

    /// Whether it is the master of a terminal: the output of one may come in a pipe.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stream == Stream::Tty && pty::size(&self.fd).is_ok()
    }

    /// Whether there is nothing to read now. If the kernel cannot answer, there may be something.
    pub(crate) fn is_empty(&self) -> bool {
        let ends = std::iter::once(&self.fd).chain(self.stage.iter().map(|stage| &stage.pipe));
        let mut fds: Vec<_> = ends.map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && !fds.iter().any(|fd| fd.revents().is_some_and(|is| is.contains(PollFlags::POLLIN)))
    }

    /// Lets go of the app's end, so that the end of the last writer can be seen.
    pub(crate) fn release(&mut self, notify: &Notify) {
        self.held = None;
        notify.forget(&held_name(self.stream));
    }

    /// Where it is read.
    pub(crate) fn end(&self) -> &OwnedFd {
        self.stage.as_ref().map_or(&self.fd, |stage| &stage.pipe)
    }

    /// Whether it is a pipe that gave at least so much the last time.
    pub(crate) fn gave(&self, least: usize) -> bool {
        self.stream != Stream::Tty && self.last >= least
    }

    /// Reads what there is, into one piece and then the other.
    pub(crate) fn read(&mut self, [a, b]: [&mut [u8]; 2]) -> io::Result<Read> {
        let from = self.stage.as_ref().map_or(&self.fd, |stage| &stage.pipe);
        let read = ready::at_once(|| readv(from, &mut [IoSliceMut::new(a), IoSliceMut::new(b)]));
        self.last = 0;
        match read {
            Ok(None) => Ok(Read::Empty),
            Ok(Some(0)) => Ok(Read::End),
            Ok(Some(len)) => {
                self.last = len;
                if let Some(stage) = &mut self.stage {
                    stage.len = stage.len.saturating_sub(len);
                }
                if let Some(pace) = &mut self.pace {
                    pace.read(len);
                }
                Ok(Read::Bytes(len))
            }
            Err(e) if is_hangup(self.stream, &e.into()) => Ok(Read::End),
            Err(e) => Err(e.into()),
        }
    }
}

/// Whether an error means that the last slave of a terminal was closed; while we hold one it cannot
/// be.
fn is_hangup(stream: Stream, error: &io::Error) -> bool {
    stream == Stream::Tty && error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// The app's input.
#[derive(Debug)]
pub(crate) struct AppInput {
    pub(crate) fd: OwnedFd,
    pub(crate) watch: Registration,
    /// The most that is written at once.
    pub(crate) most: usize,
}

impl AppInput {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, watch: Registration::default(), most: usize::MAX }
    }

    /// Throws away what is in it: a FIFO is open for both.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut read = || ready::at_once(|| rustix::io::read(&self.fd, &mut buffer));
        while read()?.is_some_and(|len| len > 0) {}
        Ok(())
    }

    /// Writes as much as is accepted at once; 0 if the app's side is full.
    pub(crate) fn write(&self, [a, b]: [&[u8]; 2]) -> io::Result<usize> {
        let pieces = [IoSlice::new(a), IoSlice::new(b)];
        Ok(ready::at_once(|| writev(&self.fd, &pieces))?.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::write;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// A source with a stage in which an earlier mux has left these bytes.
    fn staged(fd: OwnedFd, left: &[u8]) -> Source {
        let pipe = stage::new_pipe().unwrap();
        write(&pipe, left).unwrap();
        let stage = Stage { pipe, len: left.len(), is_inherited: true };
        Source::new(Stream::Tty, fd, None).staged(Some(stage))
    }

    #[test]
    fn what_an_earlier_mux_left_is_read_though_the_app_writes_nothing() {
        let (empty, _writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut source = staged(empty, b"left");
        assert!(source.paced);
        assert_eq!(source.prepare(99).unwrap(), Some(Read::Bytes(4)));
        let mut bytes = [0; 9];
        assert_eq!(source.read([&mut bytes, &mut []]).unwrap(), Read::Bytes(4));
        assert_eq!(&bytes[..4], b"left");
        assert_eq!(source.prepare(99).unwrap(), Some(Read::Empty));
        let (empty, _writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        assert!(!staged(empty, b"").paced);
    }

    /// An event counter stands for a terminal of an old kernel.
    #[test]
    fn a_source_that_cannot_be_moved_into_a_pipe_is_read_directly() {
        use nix::sys::eventfd::EventFd;
        let mut source = staged(EventFd::from_value(7).unwrap().into(), b"");
        assert_eq!(source.prepare(99).unwrap(), None);
        let mut count = [0; 8];
        assert_eq!(source.read([&mut count, &mut []]).unwrap(), Read::Bytes(8));
        assert_eq!(u64::from_ne_bytes(count), 7);
    }
}
