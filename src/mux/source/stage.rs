//! A pipe between a FIFO and the ring, so that no byte is lost when the mux is killed while it reads.
//!
//! What a read(2) has taken out of a FIFO is nowhere but in the reader's memory, and a reader that is
//! killed on the way back from the kernel cannot say how much it was. So bytes are moved into this
//! pipe first, without a copy. Nothing else comes into it: what is missing of what was announced has
//! been read. It is used only if the service manager keeps it, since else no mux could look.

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, SpliceFFlags, splice};
use nix::unistd::pipe2;

use super::Read;
use crate::systemd::notify::Notify;
use crate::systemd::store::Stored;
use crate::types::limits;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stage {
    /// What is read.
    pub(crate) out: OwnedFd,
    into: OwnedFd,
    /// Bytes in it.
    pub(crate) len: usize,
    /// Whether it comes from the mux before this one.
    pub(crate) is_inherited: bool,
}

impl Stage {
    /// The pipe of the previous mux, or a new one; `None` if it is not kept.
    pub(crate) fn open(
        stream: Stream,
        stored: &mut Stored,
        notify: &Notify,
    ) -> io::Result<Option<Self>> {
        if !notify.keeps() {
            return Ok(None);
        }
        let (name, name_into) = (format!("{stream}-stage"), format!("{stream}-stage-into"));
        if let (Some(out), Some(into)) = (stored.remove(&name), stored.remove(&name_into)) {
            let len = usize::try_from(rustix::io::ioctl_fionread(&out)?).unwrap_or(usize::MAX);
            return Ok(Some(Self { out, into, len, is_inherited: true }));
        }
        let (out, into) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        super::enlarge(&into, limits::STAGE);
        for (name, fd) in [(&name, &out), (&name_into, &into)] {
            notify.replace(name, fd);
        }
        Ok(Some(Self { out, into, len: 0, is_inherited: false }))
    }

    /// Moves at most `max` bytes into it, unless there are some; how many there are.
    ///
    /// Errors: Only those that a pipe does not have in normal life.
    pub(crate) fn fill(&mut self, from: &OwnedFd, max: usize) -> io::Result<Read> {
        while self.len == 0 {
            match splice(from, None, &self.into, None, max, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => return Ok(Read::End),
                Ok(len) => self.len = len,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(Read::Empty),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Read::Bytes(self.len))
    }
}
