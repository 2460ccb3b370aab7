//! The logs of a mux: how it starts, feeds, reopens and finishes them.

pub mod file;
pub(crate) mod journal_fifo;
pub(crate) mod journal_socket;
pub(crate) mod journal_writer;
pub mod pipeline;
pub mod writer;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use self::file::LogFile;
use self::journal_fifo::Fifo;
use self::journal_socket::JournalSocket;
use self::journal_writer::Identity;
use self::pipeline::log_memory::{LogMemory, MemoryLayout};
use self::pipeline::{Log, LogOptions, number};
use self::writer::{LogSink, LogWriter, Reopened, WriterEvent};
use super::kept_memory::KeptMemory;
use super::poll::{Interest, Poller, Registration, Token};
use crate::core::hub::{ClientId, Hub};
use crate::core::logfmt::encoder::{FormatOptions, LogTarget, Note};
use crate::core::logfmt::format::cast::Cast;
use crate::core::logfmt::path::LogPath;
use crate::core::logfmt::spec::LogSpec;
use crate::core::wire::{LogReport, RequestOutcome, Who};
use crate::sys::diagnostics::JOURNAL;
use crate::sys::documents::logged::{Logged, LoggedFile, UNREADABLE};
use crate::sys::state::AppDir;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::own_process;
use crate::sys::systemd::store::Stored;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::Now;

/// Requests to reopen the logs that may wait for a hanging target: each gets an answer, and a
/// rotation needs one.
const LOG_REOPENERS: usize = 64;
/// How long a request to reopen the logs waits. It is shorter than `ANSWER`, so that the client
/// still learns which log hangs.
const LOG_REOPEN: Duration = Duration::from_secs(3);

/// The name of the FIFO of the journal in systemd's store.
const STORED: &str = "journal";

/// The logs of an app.
#[derive(Clone, Debug)]
pub(crate) struct LogPlan {
    pub(crate) logs: Vec<LogSpec>,
    pub(crate) options: LogOptions,
    pub(crate) format_options: FormatOptions,
}

impl LogPlan {
    /// Whether the journal of the service is among the logs.
    pub(crate) fn writes_journal(&self) -> bool {
        self.logs.iter().any(|spec| matches!(spec.target, LogTarget::Journal(_)))
    }

    /// The files among the logs.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.logs.iter().filter_map(LogSpec::file).map(LogPath::path)
    }
}

/// A client that waits until the logs are reopened.
#[derive(Debug)]
pub(crate) struct Reopening {
    client: ClientId,
    /// Until when it waits.
    pub(crate) until: Instant,
    /// The generation that it waits for, per log.
    generations: Vec<u64>,
}

impl Reopening {
    /// The answer for the client; `None` while it waits.
    fn answer(&self, logs: &[Log], now: Instant) -> Option<RequestOutcome> {
        let (mut errors, mut is_over) = (Vec::new(), true);
        for (log, generation) in logs.iter().zip(&self.generations) {
            let name = log.name();
            match log.reopened() {
                reopened if reopened.generation < *generation => {
                    is_over = false;
                    let time = LOG_REOPEN;
                    errors.push(format!("log {name}: it hangs, and is not open after {time:?}"));
                }
                Reopened { result: Err(e), .. } => errors.push(format!("log {name}: {e}")),
                _ => {}
            }
        }
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        (is_over || self.until <= now).then_some(RequestOutcome { error })
    }
}

/// The logs of an app, and the clients that wait for them to be reopened, in this order.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    all: Vec<Log>,
    reopening: VecDeque<Reopening>,
    /// The FIFO of the journal writer, if there is one.
    journal: Option<(OwnedFd, Registration)>,
}

impl Logs {
    /// This happens at the terminal.
    pub(crate) fn note(&mut self, hub: &mut Hub, note: Note<'_>) {
        for log in &mut self.all {
            log.note(note, hub, Now::read());
        }
    }

    /// A client did this.
    pub(crate) fn client(&mut self, hub: &mut Hub, Who { client, uid, .. }: Who, did: &str) {
        let text = format!("iottymux: client {client} of user {uid} {did}");
        self.note(hub, Note::Client(&text));
    }

    /// The terminal was given the first `len` bytes of this.
    pub(crate) fn typed(&mut self, hub: &mut Hub, [a, b]: [&[u8]; 2], len: usize) {
        let (first, second) = (a.len().min(len), len.saturating_sub(a.len()));
        for piece in [&a[..first], &b[..second.min(b.len())]] {
            piece.chunks(Note::TYPED).for_each(|bytes| self.note(hub, Note::Typed(bytes)));
        }
    }

    /// The app has ended, and its last lines end at these offsets.
    pub(crate) fn app_ends_at(&mut self, ends: [Option<u64>; Stream::ALL.len()]) {
        for log in &mut self.all {
            log.app_ends_at(ends);
        }
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let reopening = self.reopening.front().map(|asked| asked.until);
        self.all.iter().filter_map(Log::deadline).chain(reopening).min()
    }

    /// Has the writers report to the loop, and opens the logs, so that they are there before the app
    /// writes anything.
    pub(crate) fn begin(&mut self, poller: &Poller, hub: &mut Hub, size: Option<Size>) {
        for (index, log) in self.all.iter_mut().enumerate() {
            poller.listen(&log.writer().mailbox, Token::Log(index));
        }
        if let Some((fifo, watch)) = &mut self.journal {
            poller.watch(watch, fifo, Token::JournalWriter, Some(Interest::default()));
        }
        self.reopen(hub, size);
        // A target that hangs does not keep the app from starting.
        for log in &mut self.all {
            log.writer().mailbox.wait(limits::LOG_RETRY);
        }
    }

    /// Gives the logs the new output in the hub.
    pub(crate) fn write(&mut self, hub: &mut Hub, now: Instant) {
        for log in &mut self.all {
            log.advance(hub, now);
        }
    }

    /// The writer of a log has events.
    pub(crate) fn on_events(&mut self, index: usize, hub: &mut Hub, now: Instant) {
        let Some(log) = self.all.get_mut(index) else { return };
        log.writer().mailbox.clear();
        while let Some(event) = log.writer().receive() {
            if let WriterEvent::Reopened(Reopened { result: Err(e), .. }) = &event {
                log::error!("log {}: cannot open it: {e}", log.name());
            }
            log.on_event(event, now);
        }
        log.advance(hub, now);
    }

    /// Reopens all logs. `size` is that of the terminal. Returns the generation of the request per
    /// log.
    pub(crate) fn reopen(&mut self, hub: &mut Hub, size: Option<Size>) -> Vec<u64> {
        let generations = self.all.iter_mut().map(|log| log.writer().reopen()).collect();
        // A new recording begins with the size, and one that goes on may end with another one.
        if let Some(size) = size {
            self.note(hub, Note::Size(size));
        }
        generations
    }

    /// Reopens all logs for a client, which gets the [`Logs::next_answer`] when that is done.
    pub(crate) fn reopen_for(
        &mut self,
        client: ClientId,
        hub: &mut Hub,
        size: Option<Size>,
    ) -> Result<()> {
        if !self.all.iter_mut().any(|log| log.writer().is_file) {
            bail!("it has no log in a file");
        }
        let waiting = self.reopening.len();
        if waiting >= LOG_REOPENERS {
            bail!("{waiting} requests wait for the logs already (see its status)");
        }
        let generations = self.reopen(hub, size);
        let until = Instant::now() + LOG_REOPEN;
        self.reopening.push_back(Reopening { client, until, generations });
        Ok(())
    }

    /// The next client whose logs are reopened, or who has waited for too long.
    pub(crate) fn next_answer(&mut self, now: Instant) -> Option<(ClientId, RequestOutcome)> {
        let first = self.reopening.front()?;
        let answer = (first.client, first.answer(&self.all, now)?);
        self.reopening.pop_front();
        Some(answer)
    }

    /// Returns whether the logs are finished. What a log does not take in time is lost, unless the
    /// app runs on and the next mux gets it. Then this one does not wait for a failing target, since
    /// the app would wait, too.
    pub(crate) fn finish(
        &mut self,
        hub: &mut Hub,
        (has_next, app_runs): (bool, bool),
        (now, until): (Instant, Instant),
    ) -> bool {
        let (is_left, is_late) = (has_next && app_runs, now >= until);
        let mut done = true;
        for log in &mut self.all {
            if is_late && !is_left {
                log.give_up();
            }
            let is_written = log.finish(hub, has_next, now);
            done &= is_written || is_left && log.failing().is_some();
        }
        done || is_late
    }

    /// The journal writer was killed. What it has not read is for the next one, which only another
    /// mux can start; an ending mux has none.
    pub(crate) fn on_journal_writer_ended(&mut self, poller: &Poller, is_ending: bool) {
        let Some((fifo, watch)) = &mut self.journal else { return };
        if !is_ending {
            journal_fifo::start_again();
        }
        poller.watch(watch, fifo, Token::JournalWriter, None);
    }

    /// Ends the journal writer, when the logs are finished.
    pub(crate) fn end_journal_writer(&self) {
        self.journal.iter().for_each(|(fifo, _)| journal_fifo::end_reader(fifo));
    }

    /// Reports what the logs have not taken.
    pub(crate) fn report_left(&self, has_next: bool) {
        self.all.iter().for_each(|log| log.report_left(has_next));
    }

    /// The state of the logs, for a report.
    pub(crate) fn reports(&self) -> Vec<LogReport> {
        let report = |log: &Log| LogReport {
            log: log.name().to_owned(),
            failing: log.failing().map(str::to_owned),
            lost_lines: log.lost().lines,
            lost_bytes: log.lost().bytes,
        };
        self.all.iter().map(report).collect()
    }
}

/// Starts the logs of an app, and returns where they are. `size` is that of its terminal.
pub(crate) fn open(
    plan: LogPlan,
    (service, dir): (&ServiceName, &AppDir),
    (memory, stored, notify): (&mut KeptMemory, &mut Stored, &Notify),
    hub: &mut Hub,
    size: Option<Size>,
) -> Result<(Logs, Logged)> {
    let LogPlan { logs: specs, options, format_options } = plan;
    let (mut logs, mut files, mut journal) = (Vec::new(), Vec::new(), None);
    for spec in specs {
        let name = spec.name();
        let app = dir.name().as_str().to_owned();
        let mut format_options = FormatOptions { app, ..format_options.clone() };
        let sink = match spec.target {
            LogTarget::File(path) => {
                let format = spec.format.reader.map_or(UNREADABLE, |_| spec.format.name);
                files.push(LoggedFile { format: format.to_owned(), path: path.path() });
                let (mut rotation, mut cast) = (options.rotation, None);
                if spec.format.records_terminal {
                    let size = size.context("only a terminal can be recorded")?;
                    (rotation, cast) = (None, Some(Cast::new(format_options.term.clone(), size)));
                }
                let file = LogFile::new(path, spec.format, rotation, cast);
                LogSink::File(Box::new(file))
            }
            LogTarget::Journald => {
                // Only root may send in the name of another unit.
                let may = own_process::is_of_unit() && Uid::effective().is_root();
                format_options.unit = may.then(|| service.as_str().to_owned());
                LogSink::Journal(journal_socket()?)
            }
            LogTarget::Journal(only) => {
                format_options.syslog.only = only;
                let fifo = open_journal(&mut format_options, (service, dir), (stored, notify));
                match fifo {
                    Some(fifo) => {
                        let end = fifo.try_clone().context("cannot duplicate a descriptor")?;
                        journal = Some((end, Registration::default()));
                        let fifo = Fifo::new(fifo).context("cannot use the FIFO of the journal")?;
                        LogSink::Fifo(fifo)
                    }
                    None => LogSink::Journal(journal_socket()?),
                }
            }
        };
        let writer = LogWriter::start(&name, sink).with_context(|| format!("log {name}"))?;
        let encoder = spec.format.encoder(&format_options);
        let layout = MemoryLayout::new(&*encoder, &options);
        let piece = memory.piece(number::number(&name), layout.size(), layout.content())?;
        let memory = LogMemory::new(layout, piece);
        logs.push(Log::new(name, encoder, options, (writer, memory), hub));
    }
    Ok((Logs { all: logs, journal, ..Logs::default() }, Logged::new(files)))
}

fn journal_socket() -> Result<JournalSocket> {
    JournalSocket::new(PathBuf::from(JOURNAL)).context("cannot connect to journald")
}

/// Chooses the way to the journal: the FIFO of the journal writer, since only root may send in the
/// name of another unit, or `None` for the mux's own socket, under a user's manager.
fn open_journal(
    options: &mut FormatOptions,
    (service, dir): (&ServiceName, &AppDir),
    (stored, notify): (&mut Stored, &Notify),
) -> Option<OwnedFd> {
    let fifo = stored.remove(STORED);
    options.uses_journal_writer = fifo.is_some();
    if fifo.is_some() {
        return fifo;
    }
    if is_of_system(notify) {
        log::warn!(
            "app {}: systemd keeps no FIFO for the journal: journalctl shows the lines of {service} \
             as lines of this mux",
            dir.name()
        );
    }
    options.unit = (own_process::is_of_user() && own_process::is_of_unit())
        .then(|| service.as_str().to_owned());
    None
}

/// Whether this is the mux of a unit of the system. Beside the mux of a keeper there is no unit of an
/// app, and a user's mux writes to journald itself.
fn is_of_system(notify: &Notify) -> bool {
    !own_process::is_of_user() && notify.keeps() && !own_process::is_kept()
}

/// Starts the journal writer of a mux of a unit that is still root, if its lines go there and the
/// writer of an earlier mux does not live.
pub(crate) fn reach_journal_writer(
    plan: &LogPlan,
    (service, app): (&ServiceName, &AppName),
    (stored, notify): (&mut Stored, &Notify),
) -> Result<()> {
    if !plan.writes_journal() || !is_of_system(notify) || !Uid::effective().is_root() {
        return Ok(());
    }
    let identifier = plan.format_options.identifier.clone();
    let identity = Identity {
        unit: service.clone(),
        identifier: identifier.unwrap_or_else(|| app.to_string()),
        facility: plan.format_options.facility,
    };
    let mut reach = || -> io::Result<()> {
        let reader = match stored.get(STORED) {
            Some(fifo) => journal_fifo::unread(fifo)?,
            None => {
                let (reader, fifo) = journal_fifo::new()?;
                notify.store(STORED, &fifo);
                stored.insert(STORED, fifo);
                Some(reader)
            }
        };
        reader.map_or(Ok(()), |reader| journal_writer::start(reader, &identity))
    };
    reach().context("cannot start the journal writer")
}
