//! The threads of an attach that may block: output of the app, signals, connecting, requests to the
//! mux. They send events to the main loop.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGCONT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::dial::{Downlink, SessionProgress};
use super::event::AttachEvent;
use super::{mark, terminal};
use crate::core::wire::{Decoder, FrameKind, Item, Refusal};
use crate::sys::mailbox::{self, Mailbox, Sender};
use crate::sys::{calls, signals};
use crate::types::stream::Stream;

/// Most events that wait for the main loop: it may wait for a slow terminal, and a mux may send many.
const EVENTS: usize = 64;

/// The sender of a thread. It reports a panic of the thread.
#[derive(Debug)]
pub(crate) struct EventSender(Sender<AttachEvent>);

/// The sender for the main loop's own threads, and the loop's mailbox.
pub(crate) fn mailbox() -> io::Result<(EventSender, Mailbox<AttachEvent>)> {
    let (sender, mailbox) = mailbox::bounded(EVENTS)?;
    Ok((EventSender(sender), mailbox))
}

impl EventSender {
    fn send(&self, event: AttachEvent) {
        // A main loop that has ended needs no events.
        let _ = self.0.send(event);
    }

    /// Does something in a thread, for as long as it takes, and sends the result.
    pub(crate) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> AttachEvent + Send + 'static,
    ) -> Result<()> {
        self.spawn_with(name, move |sender| sender.send(work()))
    }

    /// The thread blocks no signals: under `stty tostop` the kernel must be able to stop it when it
    /// writes to the terminal in the background.
    fn spawn_with(&self, name: &str, work: impl FnOnce(&Self) + Send + 'static) -> Result<()> {
        let sender = Self(self.0.clone());
        let thread = thread::Builder::new().name(name.into()).spawn(move || work(&sender));
        thread.context("cannot start a thread").map(drop)
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        if thread::panicking() {
            self.send(AttachEvent::Panicked);
        }
    }
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
pub(crate) fn catch_signals(sender: &EventSender) -> Result<()> {
    let mut signals = ending_signals(&[SIGWINCH, SIGCONT])?;
    sender.spawn_with("signals", move |sender| {
        signals.forever().for_each(|signal| sender.send(AttachEvent::Signal(signal)));
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

/// Forwards one downlink of an app to this process's outputs until it ends. Streams that are not in `shown`
/// are read and dropped.
pub(crate) fn forward_output(
    sender: &EventSender,
    from: UnixStream,
    downlink: Downlink,
    shown: Vec<Stream>,
) -> Result<()> {
    sender.spawn_with("output", move |sender| {
        sender.send(forward(sender, from, downlink, &shown));
    })
}

/// Returns the event that says how it ended.
fn forward(
    sender: &EventSender,
    mut from: UnixStream,
    mut downlink: Downlink,
    shown: &[Stream],
) -> AttachEvent {
    let mut buffer = vec![0; OUTPUT_READ];
    let mut decoder = Decoder::default();
    let ended = loop {
        let bytes = match from.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(len) => &buffer[..len],
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => break Err(e),
        };
        PIECES.fetch_add(bytes.len().div_ceil(PIECE) as u64, Ordering::Relaxed);
        if mark::has_come_back(bytes) {
            return AttachEvent::Refused(mark::CIRCLE.to_owned());
        }
        let forwarded = match &mut downlink {
            Downlink::Raw(stream) => write(*stream, bytes, shown).map(drop),
            Downlink::Session(progress) => {
                handle_frames(&mut decoder, bytes, shown, progress, sender)
            }
        };
        match forwarded {
            Ok(()) => {}
            Err(Failure::Output(e)) if e.kind() == ErrorKind::BrokenPipe => {
                return AttachEvent::OutputClosed;
            }
            Err(Failure::Output(e)) => return AttachEvent::OutputFailed(e),
            Err(Failure::Protocol(e)) => return AttachEvent::DownlinkEnded(Err(e), None),
        }
    };
    let progress = match downlink {
        Downlink::Raw(_) => None,
        Downlink::Session(progress) => Some(progress),
    };
    AttachEvent::DownlinkEnded(ended, progress)
}

/// Why forwarding stops.
enum Failure {
    /// Our output cannot be written.
    Output(io::Error),
    /// The mux has broken the protocol.
    Protocol(io::Error),
}

fn protocol_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::Protocol(io::Error::other(error))
}

fn handle_frames(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    shown: &[Stream],
    progress: &mut SessionProgress,
    sender: &EventSender,
) -> Result<(), Failure> {
    while let Some(item) = decoder.next(&mut bytes).map_err(protocol_error)? {
        let event = match item {
            Item::Data(stream, bytes) => {
                let wiped = write(stream, bytes, shown)?;
                progress.advance(stream, bytes.len());
                wiped.then_some(AttachEvent::LinesWiped)
            }
            Item::Screen(bytes) => {
                if shown.contains(&Stream::Tty) {
                    terminal::keep_text().map_err(Failure::Output)?;
                }
                write(Stream::Tty, bytes, shown)?;
                progress.advance_screen(bytes.len()).then_some(AttachEvent::ScreenDrawn)
            }
            Item::Control(kind, body) => control_event(kind, &body, progress)?,
        };
        if let Some(event) = event {
            sender.send(event);
        }
    }
    Ok(())
}

/// The event for a control message, if the main loop needs it.
fn control_event(
    kind: FrameKind,
    body: &[u8],
    progress: &mut SessionProgress,
) -> Result<Option<AttachEvent>, Failure> {
    Ok(Some(match kind {
        FrameKind::Redraw => {
            progress.begin_screen(parse(body)?);
            return Ok(None);
        }
        FrameKind::Gap => {
            let gap = parse(body)?;
            progress.skip(gap);
            AttachEvent::Gap(gap)
        }
        FrameKind::Exit => AttachEvent::Exit(parse(body)?),
        FrameKind::Error => AttachEvent::Refused(parse::<Refusal>(body)?.error),
        FrameKind::Rights => AttachEvent::Rights(parse(body)?),
        FrameKind::Ended => {
            // The next start of the app expects a terminal in its initial modes.
            terminal::undo_app_changes();
            AttachEvent::AppEnded(parse(body)?)
        }
        FrameKind::Started => AttachEvent::AppStarted,
        FrameKind::Closing => AttachEvent::Closing,
        FrameKind::Detached => AttachEvent::Detached,
        FrameKind::StdinQueued => AttachEvent::InputQueued(parse(body)?),
        FrameKind::StdinDone => AttachEvent::StdinDone,
        _ => return Ok(None),
    }))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(protocol_error)
}

/// Writes output of a stream that is shown. Whether lines of ours were wiped away for it.
fn write(stream: Stream, bytes: &[u8], shown: &[Stream]) -> Result<bool, Failure> {
    if !shown.contains(&stream) {
        return Ok(false);
    }
    terminal::write_output(stream, bytes).map_err(Failure::Output)
}
