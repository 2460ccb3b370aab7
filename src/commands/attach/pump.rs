//! The threads of an attach that may block: one for each connection, from the app to this
//! process's own outputs, one for signals, and one that connects again. They tell the main loop what
//! happened.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::link::{Carries, Link, Progress};
use super::terminal;
use crate::commands::find;
use crate::os::print::write_all;
use crate::types::limits;
use crate::types::stream::Stream;
use crate::wire::{Answer, AppStatus, Decoder, FrameKind, Gap, Item, Refusal, Report, Rights};

/// What the main loop has to know.
#[derive(Debug)]
pub(crate) enum News {
    /// Bytes of a stream are lost to this client.
    Gap(Gap),
    /// The app ended.
    Exit(AppStatus),
    /// The app ended, but its mux stays: it may be started again.
    AppEnded(AppStatus),
    /// The app was started, or started again.
    AppStarted,
    /// The mux ends, and does not know how the app does.
    Closing,
    /// Somebody asked the mux to let go of us.
    Detached,
    /// Who is attached, or why that is not known.
    Presence(Result<Report>),
    /// The mux has answered, if only by a refusal, or else is gone.
    Pulse(bool),
    /// What became of a request.
    Answer(Answer),
    /// Whether we may type has changed.
    Rights(Rights),
    /// All of a screen has been shown.
    Drawn,
    /// Our lines were wiped away, for the app's move.
    Wiped,
    /// All input is with the app.
    StdinDone,
    /// The mux refuses to go on.
    Refused(String),
    /// Nothing more comes from this connection; after `Ok` as it should be. A session, but not one
    /// that sent what it must not, could go on from here.
    Ended(io::Result<()>, Option<Progress>),
    /// What came out of connecting again.
    Dialled(Result<Link>),
    /// This process's output is closed by its reader.
    OutputClosed,
    /// This process's output cannot be written.
    OutputFailed(io::Error),
    /// A signal came.
    Signal(i32),
    /// A thread has panicked.
    Broken,
}

/// The receiving end: a queue, and a socket that can be polled for it.
pub(crate) struct Inbox {
    /// What has come.
    pub(crate) news: Receiver<News>,
    /// Readable when something has.
    pub(crate) bell: UnixStream,
}

/// The sending end; each thread has one.
#[derive(Debug)]
pub(crate) struct Outbox {
    news: Sender<News>,
    bell: UnixStream,
}

/// Both ends.
pub(crate) fn mailbox() -> io::Result<(Outbox, Inbox)> {
    let (news, inbox) = channel();
    let (ring, bell) = UnixStream::pair()?;
    // A bell that is full rings already.
    ring.set_nonblocking(true)?;
    bell.set_nonblocking(true)?;
    Ok((Outbox { news, bell: ring }, Inbox { news: inbox, bell }))
}

impl Outbox {
    /// Another one.
    pub(crate) fn another(&self) -> io::Result<Self> {
        Ok(Self { news: self.news.clone(), bell: self.bell.try_clone()? })
    }

    fn tell(&self, news: News) {
        // A main loop that has ended needs no news.
        let _ = self.news.send(news);
        let _ = (&self.bell).write(&[0]);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell(News::Broken);
        }
    }
}

/// Hands signals on, for as long as the process lives. Those of job control only with
/// `job_control`.
pub(crate) fn catch_signals(outbox: Outbox, job_control: bool) -> Result<()> {
    let mut wanted = vec![SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGWINCH];
    if job_control {
        wanted.extend([SIGTSTP, SIGCONT]);
    }
    let mut signals = Signals::new(wanted).context("catching signals")?;
    spawn("signals", move || {
        for signal in signals.forever() {
            outbox.tell(News::Signal(signal));
        }
    })
}

/// Connects, however long that takes.
pub(crate) fn dial(
    outbox: Outbox,
    connect: impl FnOnce() -> Result<Link> + Send + 'static,
) -> Result<()> {
    spawn("dial", move || outbox.tell(News::Dialled(connect())))
}

/// Asks the mux who is attached, however long it takes.
pub(crate) fn ask(
    outbox: Outbox,
    report: impl FnOnce() -> Result<Report> + Send + 'static,
) -> Result<()> {
    spawn("ask", move || outbox.tell(News::Presence(report())))
}

/// Asks the mux whether it answers, however long it takes.
pub(crate) fn probe(
    outbox: Outbox,
    hello: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    spawn("probe", move || {
        let answered = hello();
        if let Err(e) = &answered {
            log::debug!("asking whether the mux answers: {e:#}");
        }
        outbox.tell(News::Pulse(!answered.is_err_and(|e| find::is_absence(&e))));
    })
}

/// How many reads of all connections have given something.
static READS: AtomicU64 = AtomicU64::new(0);

/// How many reads of all connections have given something so far.
pub(crate) fn reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// Carries one connection to this process's outputs until it ends. `shows` tells which streams are
/// wanted; the others are read and thrown away.
pub(crate) fn carry(
    outbox: Outbox,
    mut from: UnixStream,
    mut carries: Carries,
    shows: Vec<Stream>,
) -> Result<()> {
    spawn("output", move || {
        let mut buffer = vec![0; limits::READ];
        let mut decoder = Decoder::default();
        let ended = loop {
            let bytes = match from.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    READS.fetch_add(1, Ordering::Relaxed);
                    &buffer[..len]
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => break Err(e),
            };
            let shown = match &mut carries {
                Carries::Raw(stream) => show(*stream, bytes, &shows).map(drop),
                Carries::Session(progress) => {
                    unpack(&mut decoder, bytes, &shows, progress, &outbox)
                }
            };
            match shown {
                Ok(()) => {}
                Err(Trouble::Output(e)) if e.kind() == ErrorKind::BrokenPipe => {
                    return outbox.tell(News::OutputClosed);
                }
                Err(Trouble::Output(e)) => return outbox.tell(News::OutputFailed(e)),
                Err(Trouble::Frames(e)) => return outbox.tell(News::Ended(Err(e), None)),
            }
        };
        outbox.tell(match carries {
            Carries::Raw(_) => News::Ended(ended, None),
            Carries::Session(progress) => News::Ended(ended, Some(progress)),
        });
    })
}

/// Why carrying stopped.
enum Trouble {
    /// Our own output.
    Output(io::Error),
    /// What the mux sent.
    Frames(io::Error),
}

/// Takes frames apart and deals with each.
fn unpack(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    shows: &[Stream],
    progress: &mut Progress,
    outbox: &Outbox,
) -> Result<(), Trouble> {
    let bad = |e: Box<dyn std::error::Error + Send + Sync>| Trouble::Frames(io::Error::other(e));
    while let Some(item) = decoder.next(&mut bytes).map_err(|e| bad(e.into()))? {
        let news = match item {
            Item::Data(stream, bytes) => {
                let wiped = show(stream, bytes, shows)?;
                progress.advance(stream, bytes.len());
                if !wiped {
                    continue;
                }
                News::Wiped
            }
            Item::Screen(bytes) => {
                show(Stream::Tty, bytes, shows)?;
                if !progress.is_drawn_with(bytes.len()) {
                    continue;
                }
                News::Drawn
            }
            Item::Control(FrameKind::Redraw, body) => {
                let redrawn = serde_json::from_slice(&body).map_err(|e| bad(e.into()))?;
                progress.redraw(redrawn);
                continue;
            }
            Item::Control(FrameKind::Gap, body) => {
                let gap: Gap = serde_json::from_slice(&body).map_err(|e| bad(e.into()))?;
                progress.skip(gap);
                News::Gap(gap)
            }
            Item::Control(FrameKind::Exit, body) => {
                News::Exit(serde_json::from_slice(&body).map_err(|e| bad(e.into()))?)
            }
            Item::Control(FrameKind::Error, body) => {
                let refusal: Refusal = serde_json::from_slice(&body).map_err(|e| bad(e.into()))?;
                News::Refused(refusal.error)
            }
            Item::Control(FrameKind::Answer, body) => {
                News::Answer(serde_json::from_slice(&body).map_err(|e| bad(e.into()))?)
            }
            Item::Control(FrameKind::Rights, body) => {
                News::Rights(serde_json::from_slice(&body).map_err(|e| bad(e.into()))?)
            }
            Item::Control(FrameKind::Ended, body) => {
                // The next one begins with a terminal as it was at first.
                terminal::undo_modes();
                News::AppEnded(serde_json::from_slice(&body).map_err(|e| bad(e.into()))?)
            }
            Item::Control(FrameKind::Started, _) => News::AppStarted,
            Item::Control(FrameKind::Closing, _) => News::Closing,
            Item::Control(FrameKind::Detached, _) => News::Detached,
            Item::Control(FrameKind::StdinDone, _) => News::StdinDone,
            Item::Control(_, _) => continue,
        };
        outbox.tell(news);
    }
    Ok(())
}

/// Writes bytes of a stream where they belong; whether lines of ours were wiped away for them.
fn show(stream: Stream, bytes: &[u8], shows: &[Stream]) -> Result<bool, Trouble> {
    if !shows.contains(&stream) {
        return Ok(false);
    }
    let write = |bytes: &[u8]| match stream {
        Stream::Stderr => write_all(&io::stderr(), bytes),
        _ => write_all(&io::stdout(), bytes),
    };
    let written = if stream == Stream::Tty || terminal::shows(stream) {
        terminal::show(stream, bytes, write)
    } else {
        write(bytes).map(|()| false)
    };
    written.map_err(Trouble::Output)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).context("starting a thread").map(drop)
}
