//! The FIFO that the journal writer reads. A packet is written as a whole.
//!
//! The mux and systemd's store have the writing end only, so its contents stay when the reader is
//! killed, and the mux learns that there is none.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::core::logfmt::chunk::Chunk;
use crate::core::logfmt::frame;
use crate::sys::files::{is_fifo, open_again, resize_pipe};
use crate::sys::ready;
use crate::types::exit::Exit;
use crate::types::limits;

/// How long an ending mux waits for the end of the journal writer, which has to send a full FIFO to
/// journald at most.
const READER_ENDS: Duration = Duration::from_secs(2);

/// The writing end.
#[derive(Debug)]
pub struct Fifo(OwnedFd);

impl Fifo {
    /// Writes to this FIFO.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK | OFlags::DIRECT)?;
        Ok(Self(fd))
    }

    /// Writes the next packet of a chunk.
    pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let rest = &chunk.bytes[chunk.done..];
        match rustix::io::write(&self.0, &rest[..frame::packet(rest)]) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                chunk.done += len;
                chunk.note_progress(Default::default(), 0);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => wait_for_reader(&self.0),
            Err(Errno::PIPE) => start_again(),
            Err(e) => Err(e.into()),
        }
    }
}

/// Waits until a full FIFO has room again.
pub(super) fn wait_for_reader(fifo: impl AsFd) -> io::Result<()> {
    if ready::wait_for(fifo, PollFlags::POLLOUT, Some(limits::LOG_STUCK))? {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::TimedOut, "no process reads it"))
}

/// Ends this process, so that systemd starts the next one, which is root first and so can start a
/// journal writer: nobody reads the FIFO. Nothing is lost, as with a mux that is killed.
pub(super) fn start_again() -> ! {
    log::error!("the journal writer has ended; starting again with another one");
    std::process::exit(Exit::Failed.code())
}

/// Ends the journal writer, which has everything then, and waits for its end: systemd would report
/// it as left over.
pub(super) fn end_reader(fifo: impl AsFd) {
    match rustix::io::write(&fifo, &[frame::END]) {
        Ok(_) => {
            // It has an error as soon as nobody reads it.
            let _ = ready::wait_for(&fifo, PollFlags::empty(), Some(READER_ENDS));
        }
        Err(Errno::PIPE) => {
            let len = rustix::io::ioctl_fionread(&fifo).unwrap_or(0);
            log::error!("the journal writer was killed, and the last lines ({len} bytes) with it");
        }
        // A full FIFO has no room: then journald hangs, and the writer goes on for the next mux.
        Err(_) => {}
    }
}

/// Makes a FIFO, and returns its reading and its writing end.
pub(super) fn new() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, fifo) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
    resize_pipe(&fifo, limits::PIPE);
    Ok((reader, fifo))
}

/// The reading end of a FIFO that nobody reads. Another file, which only a mux that was taken over
/// stores, is none.
pub(super) fn unread(fifo: impl AsFd) -> io::Result<Option<OwnedFd>> {
    // Without a reader it has an error.
    if !is_fifo(fifo.as_fd())? || !ready::is(&fifo, PollFlags::empty()) {
        return Ok(None);
    }
    Ok(Some(open_again(fifo, OpenOptions::new().read(true))?))
}
