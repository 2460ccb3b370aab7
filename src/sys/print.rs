//! Printing on standard output and on shared descriptors. A reader that closes its end is not an
//! error.
//!
//! Invariant: on a terminal, control and bidirectional characters are escaped, since names, paths
//! and errors may come from an app or a peer.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nix::poll::PollFlags;
use rustix::io::Errno;

use crate::sys::ready;
use crate::types::escape;

/// Prints text, all of it unless its reader goes. On a terminal unsafe characters are escaped.
pub(crate) fn print(text: &str) -> Result<()> {
    unless_unread(print_on(text))
}

/// The same, of a command that goes on printing: fails with [`Unread`] if the reader has gone.
pub(crate) fn print_on(text: &str) -> Result<()> {
    let is_seen = io::stdout().is_terminal();
    print_raw(&if is_seen { escape::lines(text) } else { Cow::Borrowed(text) })
}

/// The same of sequences that a terminal may have.
pub(crate) fn print_raw(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        done => done.context("cannot write to standard output"),
    }
}

/// The outcome of a command: it is done when its reader has gone.
pub(crate) fn unless_unread<T: Default>(outcome: Result<T>) -> Result<T> {
    outcome.or_else(|e| if e.is::<Unread>() { Ok(T::default()) } else { Err(e) })
}

/// The reader of standard output has gone.
#[derive(Debug)]
pub(crate) struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output")
    }
}

impl std::error::Error for Unread {}

/// Writes everything to a descriptor that other programs share and may have made non-blocking.
pub(crate) fn write_all(to: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => ready::wait_for(to, PollFlags::POLLOUT, None).map(drop)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
