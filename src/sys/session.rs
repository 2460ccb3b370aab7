//! Opens a session for a client: connect, send a hello, receive the welcome.
//!
//! Invariant: a live mux serves an opened session, and nothing after the welcome has been read.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::core::wire::session_reader::{FromMux, MuxEvent, SessionReader};
use crate::core::wire::{FrameKind, Hello, InputId, NoRoom, Refusal, Welcome};
use crate::sys::state::AppDir;
use crate::types::stream::Epoch;
use crate::types::{escape, limits};

/// How long to wait for a mux that does not answer.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// This long in total, until the session is open.
    For(Duration),
    /// Without a limit; after [`limits::ANSWER`] without a welcome this is called once.
    Endless(&'a dyn Fn()),
}

/// A session, of which nothing was read behind the welcome.
#[derive(Debug)]
pub struct OpenSession {
    /// It blocks.
    pub socket: UnixStream,
    pub(crate) reader: SessionReader,
}

/// Opens a session at a socket of an app's directory, if its mux has one, and returns the mux's
/// welcome.
pub fn open(
    dir: &AppDir,
    file: Option<&str>,
    hello: &Hello,
    patience: Patience<'_>,
) -> Result<(OpenSession, Welcome)> {
    let name = dir.name();
    let file =
        file.with_context(|| format!("app {name}: its mux has no sessions (it is rkt's own)"))?;
    let what = || format!("cannot connect to {}", dir.path(file).display());
    let socket = dir.connect(file).map(UnixStream::from).with_context(what)?;
    let mut session = OpenSession { socket, reader: SessionReader::default() };
    let until = match patience {
        Patience::For(time) => Some(Instant::now() + time),
        Patience::Endless(_) => None,
    };
    match session.socket.write_all(&FrameKind::Hello.message(hello)) {
        // The mux has refused; its reason is still to be read.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        sent => sent.with_context(what)?,
    }
    if let Patience::Endless(is_late) = patience {
        let wait = PollTimeout::try_from(limits::ANSWER).unwrap_or(PollTimeout::MAX);
        if poll(&mut [PollFd::new(session.socket.as_fd(), PollFlags::POLLIN)], wait) == Ok(0) {
            is_late();
        }
    }
    match session.next(dir, until)? {
        MuxEvent::Welcome(welcome) => Ok((session, welcome)),
        MuxEvent::Closing => Err(io::Error::from(ErrorKind::ConnectionReset)).with_context(what),
        _ => bail!("app {name}: unexpected first message from the mux"),
    }
}

impl OpenSession {
    /// Reads the next message, and nothing after it, if no stream is read.
    pub(crate) fn next(&mut self, dir: &AppDir, until: Option<Instant>) -> Result<MuxEvent> {
        let what = || format!("no answer from the mux of app {}", dir.name());
        loop {
            let mut buffer = vec![0; self.reader.wants()];
            fill(&mut self.socket, &mut buffer, until).map_err(ended).with_context(what)?;
            if let Some(message) = message(&mut self.reader, &buffer, dir)? {
                return Ok(message);
            }
        }
    }
}

/// The message that ends with these bytes, in a session without streams. A refusal is an error.
pub(crate) fn message(
    reader: &mut SessionReader,
    mut bytes: &[u8],
    dir: &AppDir,
) -> Result<Option<MuxEvent>> {
    match reader.next(&mut bytes)? {
        Some(FromMux::Event(MuxEvent::Error(why))) => Err(refusal(dir, why)),
        Some(FromMux::Event(message)) => Ok(Some(message)),
        _ => Ok(None),
    }
}

/// Why a mux ends a session.
pub(crate) fn refusal(dir: &AppDir, Refusal { error, full }: Refusal) -> anyhow::Error {
    let error = format!("app {}: the mux refused: {}", dir.name(), escape::line(&error));
    if full { NoRoom(error).into() } else { anyhow!(error) }
}

/// A name that no other input has: from the system's random source, with which std seeds its hash
/// maps.
pub(crate) fn random_input() -> InputId {
    InputId(Epoch(RandomState::new().build_hasher().finish()))
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
