//! A pipe between the app and a ring, so that no byte is lost or repeated when the mux is killed
//! while it reads or writes.
//!
//! Bytes that read(2) takes out of a FIFO or a terminal exist only in the reader's memory, and
//! their number is lost if the reader is killed on its way back from the kernel. So bytes are first
//! moved into this pipe: from a FIFO without a copy, from a terminal by a copy that no signal
//! interrupts. Nothing else comes into it: announced bytes that are missing there have been read.
//! It is used only if the service manager keeps it, since otherwise no other mux could look.
//!
//! Nor can a writer that is killed say how much a write(2) has put into a FIFO, from which the app
//! may have read it. So the bytes of the app's input are put into such a pipe first, and moved from
//! there: what is missing of them is with the app.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::libc::O_NONBLOCK;
use rustix::io::writev;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::Read;
use crate::sys::files::{open_again, resize_pipe};
use crate::sys::ready;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Both of its ends: a descriptor less for systemd to keep.
    pub(super) pipe: OwnedFd,
    /// Bytes in it.
    pub(crate) len: usize,
    /// Whether it comes from the mux before this one.
    pub(super) is_inherited: bool,
}

impl Stage {
    /// The pipe of the previous mux for the user of this name, or a new one of at most `size` bytes;
    /// `None` if it is not kept.
    pub(crate) fn open(
        user: &str,
        size: usize,
        stored: &mut Stored,
        notify: &Notify,
    ) -> io::Result<Option<Self>> {
        if !notify.keeps() {
            return Ok(None);
        }
        let name = format!("{user}-pipe");
        if let Some(pipe) = stored.remove(&name) {
            let len = usize::try_from(rustix::io::ioctl_fionread(&pipe)?).unwrap_or(usize::MAX);
            return Ok(Some(Self { pipe, len, is_inherited: true }));
        }
        let pipe = match new_pipe() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                log::warn!("there is no /proc: a mux that is killed may lose bytes of {user}");
                return Ok(None);
            }
            pipe => pipe?,
        };
        resize_pipe(&pipe, size);
        notify.store(&name, &pipe);
        Ok(Some(Self { pipe, len: 0, is_inherited: false }))
    }

    /// Moves at most `max` bytes into it, unless there are some; how many there are.
    ///
    /// Errors: Only those that a pipe does not have in normal life.
    pub(super) fn fill(&mut self, from: &OwnedFd, max: usize) -> io::Result<Read> {
        if self.len == 0 {
            let flags = SpliceFlags::NONBLOCK;
            match ready::at_once(|| splice(from, None, &self.pipe, None, max, flags))? {
                None => return Ok(Read::Empty),
                Some(0) => return Ok(Read::End),
                Some(len) => self.len = len,
            }
        }
        Ok(Read::Bytes(self.len))
    }

    /// Puts bytes into it, which is empty; how many it takes.
    pub(crate) fn put(&mut self, [a, b]: [&[u8]; 2]) -> io::Result<usize> {
        if self.len == 0 {
            let pieces = [IoSlice::new(a), IoSlice::new(b)];
            self.len = ready::at_once(|| writev(&self.pipe, &pieces))?.unwrap_or(0);
        }
        Ok(self.len)
    }

    /// Moves what is in it into a FIFO; how many bytes that takes now.
    pub(crate) fn give(&mut self, to: &OwnedFd) -> io::Result<usize> {
        if self.len == 0 {
            return Ok(0);
        }
        let (len, flags) = (self.len, SpliceFlags::NONBLOCK);
        let given = ready::at_once(|| splice(&self.pipe, None, to, None, len, flags))?;
        let given = given.unwrap_or(0);
        self.len = self.len.saturating_sub(given);
        Ok(given)
    }

    /// Throws away what is in it; how many bytes that were.
    pub(crate) fn clear(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 4096];
        let mut cleared = 0;
        while self.len > 0 {
            let len = rustix::io::read(&self.pipe, &mut buffer)?;
            self.len = self.len.saturating_sub(len);
            cleared += len;
        }
        Ok(cleared)
    }
}

/// A pipe with both ends in one descriptor, which does not block.
pub(super) fn new_pipe() -> io::Result<OwnedFd> {
    let (out, _into) = pipe_with(PipeFlags::CLOEXEC)?;
    open_again(out, OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK))
}
