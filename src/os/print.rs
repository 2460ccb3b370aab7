//! Printing on standard output, and on descriptors that are shared with others. A reader that has seen enough is no error.
//!
//! Invariant: on a terminal no character is printed that a terminal obeys or that moves other text:
//! names, paths and errors may come from an app or a peer.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::types::escape;

/// Prints text, all of it unless its reader goes. On a terminal unsafe characters are escaped.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() { escape::lines(text) } else { Cow::Borrowed(text) };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(e).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes everything to a descriptor that may be shared with other programs, and so may be
/// non-blocking though nobody here made it so.
pub(crate) fn write_all(to: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(to, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
                poll(&mut fds, PollTimeout::NONE).map(drop).or_else(|e| match e {
                    Errno::EINTR => Ok(()),
                    e => Err(e),
                })?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
