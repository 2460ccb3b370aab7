//! The threads of an attach that may block: output of the app, signals, connecting, requests to the
//! mux. They send events to the main loop.

use std::io::{self, ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCONT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::event::AttachEvent;
use super::{local_terminal, mark};
use crate::core::wire::session_reader::{FromMux, MuxEvent, SessionReader};
use crate::sys::mailbox::Sender;
use crate::sys::session::OpenSession;
use crate::sys::{calls, signals};
use crate::types::exit::Exit;
use crate::types::stream::Stream;

/// Does something in a thread, for as long as it takes. A panic in it, which restores the terminal and is
/// reported, ends this process.
///
/// The thread blocks no signals: under `stty tostop` the kernel must be able to stop it when it
/// writes to the terminal in the background.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let work = || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            process::exit(Exit::Lost.code());
        }
    };
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.context("cannot start a thread").map(drop)
}

/// Catches the signals that end a process, and `more`. Signals that it was started to ignore stay
/// ignored.
pub(crate) fn ending_signals(more: &[i32]) -> Result<Signals> {
    let keyboard = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];
    let is_wanted = |signal: &Signal| !calls::is_ignored(*signal);
    let keyboard = keyboard.into_iter().filter(is_wanted).map(|signal| signal as i32);
    let wanted: Vec<_> = more.iter().copied().chain([SIGTERM]).chain(keyboard).collect();
    signals::hold_while(|| Signals::new(wanted)).context("cannot catch signals")
}

/// Sends signals as events for as long as the process lives.
pub(crate) fn catch_signals(sender: Sender<AttachEvent>) -> Result<()> {
    let mut signals = ending_signals(&[SIGWINCH, SIGCONT])?;
    spawn("signals", move || {
        for signal in signals.forever() {
            // A main loop that has ended needs no events.
            let _ = sender.send(AttachEvent::Signal(signal));
        }
    })
}

/// Bytes per read of output: several frames of an app that prints without a pause.
pub(crate) const OUTPUT_READ: usize = 256 * 1024;
/// Bytes of a piece at most: a busy machine makes few large reads of a flood.
const PIECE: usize = 4096;
/// What all connections have read, in pieces: each read is one, or more.
static PIECES: AtomicU64 = AtomicU64::new(0);

/// How many pieces all connections have read so far.
pub(crate) fn pieces() -> u64 {
    PIECES.load(Ordering::Relaxed)
}

/// Forwards what a session says to this process's outputs until it ends. Streams that are not in
/// `shown` are read and dropped.
pub(crate) fn forward_output(
    sender: Sender<AttachEvent>,
    session: OpenSession,
    shown: Vec<Stream>,
) -> Result<()> {
    spawn("output", move || {
        let end = forward(&sender, session, &shown);
        let _ = sender.send(end);
    })
}

/// Returns the event that says how it ended.
fn forward(sender: &Sender<AttachEvent>, session: OpenSession, shown: &[Stream]) -> AttachEvent {
    let OpenSession { mut socket, mut reader } = session;
    let mut buffer = vec![0; OUTPUT_READ];
    let ended = loop {
        let bytes = match socket.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(len) => &buffer[..len],
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => break Err(e),
        };
        PIECES.fetch_add(bytes.len().div_ceil(PIECE) as u64, Ordering::Relaxed);
        if mark::has_come_back(bytes) {
            return AttachEvent::Circle;
        }
        if let Err(event) = handle_frames(&mut reader, bytes, shown, sender) {
            return event;
        }
    };
    AttachEvent::SessionEnded(ended, Some(reader))
}

/// Returns the event that says why it cannot go on.
fn handle_frames(
    reader: &mut SessionReader,
    mut bytes: &[u8],
    shown: &[Stream],
    sender: &Sender<AttachEvent>,
) -> Result<(), AttachEvent> {
    let broken = |e| AttachEvent::SessionEnded(Err(io::Error::other(e)), None);
    while let Some(part) = reader.next(&mut bytes).map_err(broken)? {
        let event = match part {
            FromMux::Output(stream, bytes, _) => {
                write(stream, bytes, shown)?.then_some(AttachEvent::LinesWiped)
            }
            FromMux::Screen(bytes, is_whole) => {
                if shown.contains(&Stream::Tty) {
                    local_terminal::keep_text().map_err(output_ended)?;
                }
                write(Stream::Tty, bytes, shown)?;
                is_whole.then_some(AttachEvent::ScreenDrawn)
            }
            FromMux::Event(message) => {
                if let MuxEvent::Ended(_) = message {
                    // The next start of the app expects a terminal in its initial modes.
                    local_terminal::undo_app_changes();
                }
                Some(AttachEvent::Mux(message))
            }
        };
        if let Some(event) = event {
            let _ = sender.send(event);
        }
    }
    Ok(())
}

/// Writes output of a stream that is shown. Whether lines of ours were wiped away for it.
fn write(stream: Stream, bytes: &[u8], shown: &[Stream]) -> Result<bool, AttachEvent> {
    if !shown.contains(&stream) {
        return Ok(false);
    }
    local_terminal::write_output(stream, bytes).map_err(output_ended)
}

fn output_ended(error: io::Error) -> AttachEvent {
    match error.kind() {
        ErrorKind::BrokenPipe => AttachEvent::OutputClosed,
        _ => AttachEvent::OutputFailed(error),
    }
}
