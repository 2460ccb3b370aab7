//! The mux and its logs: opening them, giving them what there is, having them opened anew.

pub(crate) mod fifo;
pub mod file;
pub(crate) mod journald;
pub mod pipeline;
pub mod writer;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use self::fifo::Fifo;
use self::file::{Claims, LogFile, LogPath, Rotation};
use self::journald::JournalSocket;
use self::pipeline::{Log, Policy};
use self::writer::{LogSink, LogWriter, WriterEvent};
use super::poll::Token;
use super::{Mux, log_watch, source};
use crate::core::hub::{ClientId, Hub};
use crate::logfmt::cast::Cast;
use crate::logfmt::format::Format;
use crate::logfmt::journal::{self, Fields};
use crate::logfmt::syslog::Syslog;
use crate::os::state::{AppDir, LOGS};
use crate::systemd::notify::{Notify, Stored};
use crate::systemd::unit;
use crate::types::limits;
use crate::types::service::ServiceName;
use crate::types::time::Now;
use crate::wire::logged::{self, Logged};
use crate::wire::{Answer, FrameKind, LogReport, Size};

/// Name of the FIFO of the journal in systemd's store.
const STORED: &str = "journal";

/// What is to be logged, and how.
#[derive(Clone, Debug)]
pub(crate) struct LogPlan {
    /// Each log.
    pub(crate) targets: Vec<LogTarget>,
    /// Whether files are rotated by ourselves.
    pub(crate) rotation: Option<Rotation>,
    /// What holds for all.
    pub(crate) policy: Policy,
}

impl LogPlan {
    /// The target that two of the logs have, for people: they would spoil each other's.
    pub(crate) fn shared(&self) -> Option<String> {
        let shares = |(at, target): &(usize, &LogTarget)| {
            let others = &self.targets[..*at];
            others.iter().any(|other| match (other.path(), target.path()) {
                (None, None) => std::mem::discriminant(other) == std::mem::discriminant(target),
                (one, two) => one == two,
            })
        };
        let (_, target) = self.targets.iter().enumerate().find(shares)?;
        Some(match target {
            LogTarget::Journal(_) => "journal".to_owned(),
            _ => target.path().map_or("journald".into(), |path| path.display().to_string()),
        })
    }
}

impl LogTarget {
    /// Its file.
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File(_, path) | Self::Recording { path, .. } => Some(path.path()),
            Self::Journald | Self::Journal(_) => None,
        }
    }
}

/// Where one log goes.
#[derive(Clone, Debug)]
pub(crate) enum LogTarget {
    /// To a file.
    File(FileFormat, LogPath),
    /// To journald.
    Journald,
    /// To the journal, as systemd itself would write the lines of the service.
    Journal(JournalTarget),
    /// A recording of the terminal, to a file.
    Recording {
        /// The file.
        path: LogPath,
        /// What kind of terminal the app takes it for.
        term: String,
        /// Whether what is typed is recorded.
        input: bool,
    },
}

/// How the lines of a service come into the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalTarget {
    /// What of them is a message.
    pub(crate) syslog: Syslog,
    /// The name of the program, if not the app's; where the mux itself writes.
    pub(crate) identifier: Option<String>,
    /// The facility; where the mux itself writes.
    pub(crate) facility: u8,
}

/// How a log file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// Kubernetes' CRI.
    Cri,
    /// docker's json-file.
    Json,
    /// The app's bytes alone.
    Raw,
}

/// A client that waits until the logs are opened anew.
#[derive(Debug)]
pub(crate) struct Reopening {
    client: ClientId,
    /// Until when it waits.
    pub(crate) until: Instant,
    /// For each log how many times it is still to be opened, the last of them for this client.
    waits: Vec<usize>,
    errors: Vec<String>,
}

/// Starts the logs of an app, and writes down where they are. `size` is that of its terminal.
pub(crate) fn open(
    plan: LogPlan,
    (service, dir): (&ServiceName, &AppDir),
    (stored, notify): (&mut Stored, &Notify),
    hub: &mut Hub,
    size: Option<Size>,
) -> Result<Vec<Log>> {
    let LogPlan { targets, rotation, policy } = plan;
    let app = dir.name();
    let (mut logs, mut files) = (Vec::new(), Vec::new());
    let claims = Claims::default();
    for target in targets {
        let mut policy = policy;
        let (name, format, target) = match target {
            LogTarget::File(format, path) => {
                let (word, format, logged) = match format {
                    FileFormat::Cri => ("cri", Format::Cri, logged::LoggedFormat::Cri),
                    FileFormat::Json => ("json-file", Format::Json, logged::LoggedFormat::JsonFile),
                    FileFormat::Raw => ("raw", Format::Raw, logged::LoggedFormat::Other),
                };
                let name = format!("{word}:{}", path.path().display());
                files.push(logged::LoggedFile { format: logged, path: path.path() });
                let file = LogFile::new(path, &claims, rotation, format.clone());
                (name, format, LogSink::File(Box::new(file)))
            }
            LogTarget::Journald => {
                // Only root may write in the name of another unit.
                let may = unit::is_ours() && Uid::effective().is_root();
                let unit = may.then_some(service.as_str());
                let format = Format::Journal(Fields::new(app.as_str(), unit));
                let journal =
                    JournalSocket::new(PathBuf::from(journal::SOCKET)).context("journald")?;
                ("journald".to_owned(), format, LogSink::Journal(journal))
            }
            LogTarget::Journal(journal) => {
                // A line waits for its end there, as systemd's own do.
                policy.flush = limits::AGES;
                let (format, target) = open_journal(journal, (service, dir), (stored, notify))?;
                policy.chunk = limits::JOURNAL_CHUNK + format.worst(limits::JOURNAL_LINE);
                ("journal".to_owned(), format, target)
            }
            LogTarget::Recording { path, term, input } => {
                let Some(size) = size else { bail!("only a terminal can be recorded") };
                let name = format!("cast:{}", path.path().display());
                files.push(logged::LoggedFile {
                    format: logged::LoggedFormat::Other,
                    path: path.path(),
                });
                let (cast, format) = (Cast::new(term, size), Format::Cast { input });
                let file = LogFile::recording(path, &claims, cast, format.clone());
                (name, format, LogSink::File(Box::new(file)))
            }
        };
        let writer = LogWriter::start(&name, target).with_context(|| format!("log {name}"))?;
        logs.push(Log::new(name, format, policy, writer, hub));
    }
    if files.is_empty() {
        dir.remove(LOGS)?;
    } else {
        Logged::new(files).publish(dir)?;
    }
    Ok(logs)
}

/// The way to the journal: by `iojournal@NAME.service`, since only root may write in the name of another
/// unit; under a user's manager by ourselves.
fn open_journal(
    JournalTarget { syslog, identifier, facility }: JournalTarget,
    (service, dir): (&ServiceName, &AppDir),
    (stored, notify): (&mut Stored, &Notify),
) -> Result<(Format, LogSink)> {
    let of_user = unit::is_of_user();
    let by_writer = !of_user && notify.keeps() && Uid::effective().is_root();
    let fifo = match stored.remove(STORED) {
        Some(fifo) => Some(fifo),
        None if by_writer => Some(open_fifo(dir).context("making the FIFO of the journal")?),
        None => None,
    };
    if let Some(fifo) = fifo {
        notify.store(STORED, &fifo);
        let target = LogSink::Fifo(Fifo::new(fifo).context("the FIFO of the journal")?);
        return Ok((Format::Frames(syslog), target));
    }
    if !of_user && notify.keeps() {
        log::warn!(
            "app {}: systemd keeps no FIFO of the journal: the lines of {service} are shown as those of this mux",
            dir.name()
        );
    }
    let unit = (of_user && unit::is_ours()).then_some(service.as_str());
    let identifier = identifier.as_deref().unwrap_or(dir.name().as_str());
    let fields = Fields::service(identifier, facility, unit);
    let journal = JournalSocket::new(PathBuf::from(journal::SOCKET)).context("journald")?;
    Ok((Format::Service(fields, syslog), LogSink::Journal(journal)))
}

/// Makes the FIFO of the journal for a mux that is not root, and has systemd keep it.
pub(crate) fn prepare_journal(dir: &AppDir, notify: &Notify) -> Result<()> {
    let fifo = open_fifo(dir).context("making the FIFO of the journal")?;
    // In place of the one that a mux before has had: what is in the FIFO stays while this one is open.
    notify.store_anew(STORED, &fifo);
    Ok(())
}

fn open_fifo(dir: &AppDir) -> io::Result<OwnedFd> {
    let fifo = fifo::open(&dir.journal()?)?;
    source::enlarge(&fifo, limits::PIPE);
    Ok(fifo)
}

/// The terminal has another size, which recordings have in its place.
pub(crate) fn resized(logs: &mut [Log], hub: &mut Hub, size: Size) {
    for log in logs {
        log.resized(size, hub, Now::read());
    }
}

/// The terminal was given the first `len` bytes of this, which recordings may be to have.
pub(crate) fn typed(logs: &mut [Log], hub: &mut Hub, [a, b]: [&[u8]; 2], len: usize) {
    let (first, second) = (a.len().min(len), len.saturating_sub(a.len()));
    for log in logs {
        log.typed([&a[..first], &b[..second.min(b.len())]], hub, Now::read());
    }
}

impl Mux {
    /// Opens the logs, so that they are there before the app says anything, and listens to them.
    pub(crate) fn begin_logs(&mut self) {
        for (index, log) in self.logs.iter_mut().enumerate() {
            log_watch(log.writer().mailbox.listen(&self.poller, Token::Log(index)));
        }
        self.reopen_logs();
        // A target that hangs does not keep the app from starting.
        for log in &mut self.logs {
            log.writer().mailbox.await_word(limits::LOG_RETRY);
        }
    }

    /// Gives the logs what there is.
    pub(crate) fn write_logs(&mut self, now: Instant) {
        for log in &mut self.logs {
            log.advance(&mut self.hub, now);
        }
    }

    /// The writer of a log has something to tell.
    pub(crate) fn on_log(&mut self, index: usize, now: Instant) {
        let Some(log) = self.logs.get_mut(index) else { return };
        log.writer().mailbox.hear();
        while let Some(word) = self.logs[index].writer().word() {
            if let WriterEvent::Reopened(done) = &word {
                self.reopened(index, done.as_ref().err(), now);
            }
            self.logs[index].on_word(word, &mut self.hub, now);
        }
        self.logs[index].advance(&mut self.hub, now);
    }

    /// Has all logs opened anew.
    pub(crate) fn reopen_logs(&mut self) -> Vec<usize> {
        let waits = self.logs.iter_mut().map(|log| log.writer().reopen()).collect();
        // A new recording has its header then, and one that goes on may have been left with another size.
        if let Some(terminal) = &self.terminal {
            resized(&mut self.logs, &mut self.hub, terminal.sizes.size());
        }
        waits
    }

    /// Has all logs opened anew; the client is answered when they are.
    pub(crate) fn reopen_logs_for(&mut self, client: ClientId) -> Result<()> {
        if !self.logs.iter().any(Log::is_file) {
            bail!("it has no log in a file");
        }
        self.reopening.retain(|asked| self.clients.contains_key(&asked.client));
        let waiting = self.reopening.len();
        if waiting >= limits::LOG_REOPENERS {
            bail!("{waiting} requests wait for the logs already (see its status)");
        }
        let (waits, now) = (self.reopen_logs(), Instant::now());
        let until = now + limits::LOG_REOPEN;
        self.reopening.push_back(Reopening { client, until, waits, errors: Vec::new() });
        self.answer_reopened(now);
        Ok(())
    }

    /// A log was opened anew, or not.
    fn reopened(&mut self, index: usize, error: Option<&String>, now: Instant) {
        let name = self.logs[index].name();
        if let Some(error) = error {
            log::error!("log {name}: opening it: {error}");
        }
        for asked in &mut self.reopening {
            // Those who came later wait for the next time.
            let waits = asked.waits[index];
            asked.waits[index] = waits.saturating_sub(1);
            asked.errors.extend(error.filter(|_| waits == 1).map(|e| format!("log {name}: {e}")));
        }
        self.answer_reopened(now);
    }

    /// Answers those who need not wait any longer, or not for a target that hangs.
    pub(crate) fn answer_reopened(&mut self, now: Instant) {
        let is_over =
            |asked: &Reopening| asked.until <= now || asked.waits.iter().all(|waits| *waits == 0);
        while self.reopening.front().is_some_and(is_over) {
            let Some(mut done) = self.reopening.pop_front() else { return };
            for (log, _) in self.logs.iter().zip(&done.waits).filter(|(_, waits)| **waits > 0) {
                let (name, time) = (log.name(), limits::LOG_REOPEN);
                done.errors.push(format!("log {name}: it hangs, and is not open after {time:?}"));
            }
            let error = (!done.errors.is_empty()).then(|| done.errors.join("; "));
            let id = done.client;
            if let Some(client) = self.clients.get_mut(&id) {
                match client.tell(&FrameKind::Answer.message(&Answer { error })) {
                    Ok(()) => self.touch(id),
                    Err(e) => self.lose(id, &e.into()),
                }
            }
        }
    }

    /// Whether the logs have everything; what they do not take in time is lost.
    pub(crate) fn finish_logs(&mut self, now: Instant, until: Instant) -> bool {
        let mut done = true;
        for log in &mut self.logs {
            done &= log.finish(&mut self.hub, now);
        }
        if !done && now >= until {
            self.give_up_logs(now);
            return true;
        }
        done
    }

    /// Gives up what the logs have not taken, and tells how much that is.
    fn give_up_logs(&mut self, now: Instant) {
        for log in &mut self.logs {
            log.give_up(&mut self.hub, now);
        }
        let until = Instant::now() + limits::LOG_LEFT;
        for index in 0..self.logs.len() {
            while self.logs[index].awaits_rest() && Instant::now() < until {
                let left = until.saturating_duration_since(Instant::now());
                self.logs[index].writer().mailbox.await_word(left);
                self.on_log(index, now);
            }
            self.logs[index].tell_lost();
        }
    }

    /// What the logs have to tell of themselves.
    pub(crate) fn log_reports(&self) -> Vec<LogReport> {
        let report = |log: &Log| LogReport {
            log: log.name().to_owned(),
            failing: log.failing().map(str::to_owned),
            lost_lines: log.lost().lines,
            lost_bytes: log.lost().bytes,
        };
        self.logs.iter().map(report).collect()
    }
}
