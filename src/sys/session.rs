//! Opens a session for a client: connect, send a hello, receive the welcome.
//!
//! Invariant: a live mux serves an opened session, and nothing after the welcome has been read.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::core::wire::{Decoder, FrameKind, Hello, Item, NoRoom, Refusal, Welcome};
use crate::sys::state::AppDir;
use crate::types::{escape, limits};

/// How long to wait for a mux that does not answer.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// This long in total, until the session is open.
    For(Duration),
    /// Without a limit; after [`limits::ANSWER`] without a welcome this is called once.
    Endless(&'a dyn Fn()),
}

/// Opens a session at a socket of an app's directory, and returns the mux's welcome.
pub fn open(
    dir: &AppDir,
    file: &str,
    hello: &Hello,
    patience: Patience<'_>,
) -> Result<(UnixStream, Welcome)> {
    let what = || format!("cannot connect to {}", dir.path(file).display());
    let mut socket = dir.connect(file).map(UnixStream::from).with_context(what)?;
    let until = match patience {
        Patience::For(time) => Some(Instant::now() + time),
        Patience::Endless(_) => None,
    };
    match socket.write_all(&FrameKind::Hello.message(hello)) {
        // The mux has refused; its reason is still to be read.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        sent => sent.with_context(what)?,
    }
    if let Patience::Endless(is_late) = patience {
        let wait = PollTimeout::try_from(limits::ANSWER).unwrap_or(PollTimeout::MAX);
        if poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], wait) == Ok(0) {
            is_late();
        }
    }
    match next(&mut socket, dir, until)? {
        (FrameKind::Welcome, body) => Ok((socket, serde_json::from_slice(&body)?)),
        (FrameKind::Closing, _) => {
            Err(io::Error::from(ErrorKind::ConnectionReset)).with_context(what)
        }
        _ => bail!("app {}: unexpected first message from the mux", dir.name()),
    }
}

/// Reads the next control message of a session without streams, and nothing after it.
pub(crate) fn next(
    socket: &mut UnixStream,
    dir: &AppDir,
    until: Option<Instant>,
) -> Result<(FrameKind, Vec<u8>)> {
    let mut decoder = Decoder::default();
    let what = || format!("no answer from the mux of app {}", dir.name());
    loop {
        let mut buffer = vec![0; decoder.wants()];
        fill(socket, &mut buffer, until).map_err(ended).with_context(what)?;
        if let Some(item) = decoder.next(&mut &buffer[..])? {
            return control(item, dir);
        }
    }
}

/// The control message that an item of a session without streams is. A refusal is an error.
pub(crate) fn control(item: Item<'_>, dir: &AppDir) -> Result<(FrameKind, Vec<u8>)> {
    let name = dir.name();
    match item {
        Item::Control(FrameKind::Error, body) => {
            let Refusal { error, full } = serde_json::from_slice(&body)?;
            let error = format!("app {name}: the mux refused: {}", escape::line(&error));
            Err(if full { NoRoom(error).into() } else { anyhow!(error) })
        }
        Item::Control(kind, body) => Ok((kind, body)),
        Item::Data(stream, _) => bail!("app {name}: unexpected {stream} data from the mux"),
        Item::Screen(_) => bail!("app {name}: unexpected screen from the mux"),
    }
}

/// Fills the buffer until `until`, however slowly the bytes arrive.
fn fill(socket: &mut UnixStream, mut buffer: &mut [u8], until: Option<Instant>) -> io::Result<()> {
    while !buffer.is_empty() {
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            // A timeout of zero would mean none.
            socket.set_read_timeout(Some(left.max(limits::CLOCK_TICK)))?;
            if left.is_zero() {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        match socket.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => buffer = &mut buffer[len..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A clearer error for an early end and for a timeout.
pub(crate) fn ended(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ ErrorKind::UnexpectedEof => io::Error::new(kind, "the mux closed the connection"),
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the mux does not answer"),
        _ => error,
    }
}
