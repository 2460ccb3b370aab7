//! The app's ends: which there are, and how a mux opens them, or takes over those that root has made.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, bail};
use nix::libc::O_NOCTTY;

use super::app::input_feed::InputEnding;
use super::origin::Origin;
use super::source::pty::Master;
use super::source::stage::Stage;
use super::source::{AppInput, Source, fifo, passed, pty};
use crate::sys::state::AppDir;
use crate::sys::systemd::notify::{self, Notify};
use crate::sys::systemd::store::Stored;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// The kind of the app's ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// FIFOs.
    Fifos {
        /// The streams that the app has.
        enabled: Vec<Stream>,
        /// Whether the mux owns them: it makes missing ones, and removes all of them at its end.
        /// Otherwise it leaves out the streams of missing ones.
        make: bool,
    },
    /// A terminal.
    Terminal {
        /// Its first size.
        size: Size,
    },
    /// The ends of a container, which its keeper was given.
    Passed {
        /// The streams that the app has.
        enabled: Vec<Stream>,
        /// The first size of a terminal that has none; it may be none.
        size: Size,
    },
}

/// The app's ends, opened.
#[derive(Default)]
pub(super) struct AppEnds {
    pub(super) streams: Vec<Stream>,
    pub(super) sources: Vec<Source>,
    pub(super) input: Option<AppInput>,
    /// Through this the input goes to its FIFO.
    pub(super) input_stage: Option<Stage>,
    pub(super) made: Vec<&'static str>,
    pub(super) kept: Vec<Stream>,
    /// The size of the terminal, if there is one.
    pub(super) size: Option<Size>,
}

impl Streams {
    /// A running app has each stream whose FIFO systemd keeps, for any options.
    pub(super) fn add_stored(&mut self, stored: &Stored) {
        let Self::Fifos { enabled, make: true } = self else { return };
        let is_missing =
            |stream: &Stream| !enabled.contains(stream) && fifo::is_stored(stored, *stream);
        let missing: Vec<Stream> = Stream::PLAIN.into_iter().filter(is_missing).collect();
        for stream in &missing {
            log::error!(
                "{stream} is not among the streams of the options, but the app that is running has it"
            );
        }
        enabled.extend(missing);
        enabled.sort_unstable();
    }

    /// How the input ends. That of a terminal has no end, and a service may be started again.
    pub(super) fn input_ending(&self, has_input: bool, origin: Origin) -> InputEnding {
        match self {
            Self::Fifos { .. } if origin == Origin::Run => InputEnding::Closes,
            Self::Passed { enabled, .. } if enabled.contains(&Stream::Stdin) => InputEnding::Closes,
            Self::Passed { .. } if !has_input => InputEnding::Missing,
            _ => InputEnding::Never,
        }
    }
}

/// The app's ends for a mux that has not made them as root.
pub(super) fn open(
    origin: Origin,
    (dir, wanted): (&AppDir, &Streams),
    takes_over: bool,
    (stored, notify): (&mut Stored, &Notify),
) -> Result<AppEnds> {
    match origin {
        Origin::Unit | Origin::Rkt if dir.is_split() => adopt_ends(dir, wanted, stored, notify),
        Origin::Unit | Origin::Rkt | Origin::Container => {
            open_ends(dir, wanted, takes_over, stored, notify)
        }
        Origin::Run => {
            let ends = open_ends(dir, wanted, takes_over, stored, notify)?;
            if !takes_over {
                // Before a client can attach, and close an input that no other process has open.
                open_app_ends(dir, &ends.streams, notify)?;
            }
            let made = ends.streams.iter().map(|stream| stream.stage2()).collect();
            Ok(AppEnds { made, kept: Vec::new(), ..ends })
        }
    }
}

/// The ends that root has made for a mux of another user: only those that the service manager
/// keeps.
fn adopt_ends(
    dir: &AppDir,
    wanted: &Streams,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<AppEnds> {
    let mut ends = AppEnds::default();
    match wanted {
        Streams::Terminal { size } if pty::is_stored(stored) => {
            ends.add_terminal(pty::open(*size, stored, notify)?.master)?;
        }
        // Those of a container are not prepared.
        Streams::Terminal { .. } | Streams::Passed { .. } => {}
        Streams::Fifos { enabled, .. } => {
            for stream in enabled {
                if fifo::is_stored(stored, *stream) {
                    ends.add_fifo((dir, *stream), true, stored, notify)?;
                } else {
                    log::error!(
                        "app {}: {stream} is not served before the app is stopped and started again: its \
                         FIFO was not prepared",
                        dir.name()
                    );
                }
            }
        }
    }
    if ends.streams.is_empty() {
        bail!("app {}: its ends were not prepared (earlier messages may say why)", dir.name());
    }
    Ok(ends)
}

impl AppEnds {
    fn add_terminal(&mut self, master: Master) -> Result<()> {
        self.size =
            Some(pty::size(&master.source.fd).context("cannot read the size of the terminal")?);
        self.streams.push(Stream::Tty);
        self.sources.push(master.source);
        self.input = Some(master.input);
        Ok(())
    }

    /// An end of a container.
    fn add_passed(
        &mut self,
        (stream, size): (Stream, Size),
        stored: &mut Stored,
        notify: &Notify,
    ) -> Result<()> {
        match stream {
            Stream::Tty if passed::is_terminal(stored) => {
                return self.add_terminal(passed::terminal(size, stored, notify)?);
            }
            Stream::Stdin => {
                self.input = passed::input(stored)?;
                self.input_stage = fifo::input_stage(stored, notify)?;
            }
            _ => self.sources.push(passed::source(stream, stored, notify)?),
        }
        // The output of a terminal in a pipe says nothing of its size.
        self.size = (stream == Stream::Tty).then_some(size);
        self.streams.push(stream);
        Ok(())
    }

    fn add_fifo(
        &mut self,
        (dir, stream): (&AppDir, Stream),
        takes_over: bool,
        stored: &mut Stored,
        notify: &Notify,
    ) -> Result<()> {
        if stream == Stream::Stdin {
            // That of a command that runs is stored until it is ended.
            let has_ended = takes_over && !fifo::is_stored(stored, stream);
            if !has_ended {
                self.input = Some(fifo::input(dir, stored, notify)?);
            }
            self.input_stage = fifo::input_stage(stored, notify)?;
        } else {
            self.sources.push(fifo::source(dir, stream, stored, notify)?);
        }
        self.streams.push(stream);
        Ok(())
    }
}

/// The app's FIFOs, its terminal, or the ends that were passed.
pub(super) fn open_ends(
    dir: &AppDir,
    wanted: &Streams,
    takes_over: bool,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<AppEnds> {
    match wanted {
        Streams::Terminal { size } => {
            let pty = pty::open(*size, stored, notify)?;
            pty::publish(dir, &pty.slave)?;
            let mut ends = AppEnds { made: vec![Stream::Tty.stage2()], ..AppEnds::default() };
            ends.add_terminal(pty.master)?;
            Ok(ends)
        }
        Streams::Passed { enabled, size } => {
            let mut ends = AppEnds::default();
            for stream in enabled {
                ends.add_passed((*stream, *size), stored, notify)?;
            }
            Ok(ends)
        }
        Streams::Fifos { enabled, make } => {
            let mut ends = AppEnds::default();
            for stream in enabled {
                if *make && fifo::is_stored(stored, *stream) && !fifo::is_there(dir, *stream) {
                    // A new one would be of no use: the app and this mux have the old one open.
                    log::error!(
                        "app {}: the FIFO {} was removed; stop the app and this mux before the \
                         app is started again",
                        dir.name(),
                        dir.end(stream.stage2()).display()
                    );
                } else if *make {
                    let ours = fifo::make(dir, *stream)? || fifo::is_stored(stored, *stream);
                    // Under systemd they stay: it keeps the ends over a restart of this service,
                    // and an app that is started again after it must find the same FIFOs.
                    if ours && notify.keeps() {
                        ends.kept.push(*stream);
                    } else if ours {
                        ends.made.push(stream.stage2());
                    }
                } else if !fifo::exists(dir, *stream) {
                    let fifo = dir.end(stream.stage2());
                    // rkt asks for all three, and makes those that the app has.
                    log::info!(
                        "app {}: {stream} is not served: there is no FIFO {}",
                        dir.name(),
                        fifo.display()
                    );
                    continue;
                } else if fifo::is_stored(stored, *stream) {
                    fifo::renew_foreign(dir, *stream, stored, notify)?;
                }
                ends.add_fifo((dir, *stream), takes_over, stored, notify)?;
            }
            Ok(ends)
        }
    }
}

/// Opens the app's ends of its streams, and gives them to the keeper, which starts the app on them.
fn open_app_ends(dir: &AppDir, streams: &[Stream], notify: &Notify) -> Result<()> {
    for stream in streams {
        let path = dir.end(stream.stage2());
        // A terminal becomes the app's controlling terminal, not ours.
        let mut how = OpenOptions::new();
        how.read(!stream.is_output() || *stream == Stream::Tty).custom_flags(O_NOCTTY);
        how.write(stream.is_output());
        let end = how.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        notify.store(&notify::app_end(*stream), &end);
    }
    Ok(())
}
