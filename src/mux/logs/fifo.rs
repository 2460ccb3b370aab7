//! The FIFO that `iojournal@NAME.service` reads. A packet is written as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::core::logfmt::chunk::Chunk;
use crate::core::logfmt::frame;
use crate::types::limits;

/// The writing end.
#[derive(Debug)]
pub struct Fifo(OwnedFd);

impl Fifo {
    /// Writes to this FIFO.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK | OFlag::O_DIRECT))?;
        Ok(Self(fd))
    }

    /// Writes the next packet of a chunk.
    pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let rest = &chunk.bytes[chunk.done..];
        match nix::unistd::write(&self.0, &rest[..frame::packet(rest)]) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                chunk.done += len;
                chunk.note_progress(Default::default(), 0);
                Ok(())
            }
            Err(Errno::EINTR) => Ok(()),
            Err(Errno::EAGAIN) => wait_for_reader(&self.0),
            Err(e) => Err(e.into()),
        }
    }
}

/// Waits until a full FIFO has room again, or a signal comes.
pub(super) fn wait_for_reader(fifo: impl AsFd) -> io::Result<()> {
    let wait = PollTimeout::try_from(limits::LOG_STUCK).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(fifo.as_fd(), PollFlags::POLLOUT)], wait) {
        Ok(0) => Err(io::Error::new(ErrorKind::TimedOut, "no process reads it")),
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Opens a FIFO, and makes it if it is missing. It is open in both directions, so that it always
/// has a reader: bytes that a killed reader did not read wait for the next one.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    match mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
        Err(e) if e != Errno::EEXIST => return Err(e.into()),
        _ => {}
    }
    let flags = O_NONBLOCK | O_NOFOLLOW;
    let fifo = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if !fifo.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is not a FIFO"));
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(fifo.into())
}
