//! How a mux begins: lock, leftovers, sources, listeners, document, READY. In this order everything
//! that is visible works.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Uid;

use super::admission::Admission;
use super::admission::listener::Listener;
use super::app::AppProcess;
use super::app::input::InputFeed;
use super::app::life::Lifecycle;
use super::app::sources::Sources;
use super::clients::Clients;
use super::files::AppFiles;
use super::logs::{self, LogPlan};
use super::poll::Poller;
use super::source::{AppInput, Source, fifo, pty};
use super::terminal::Terminal;
use super::{Mux, Phase, signals};
use crate::core::hub::Hub;
use crate::core::hub::memory::{self, Memory};
use crate::os::state::{AppDir, SESSION};
use crate::os::sys;
use crate::systemd::manager::Manager;
use crate::systemd::notify::Notify;
use crate::systemd::process;
use crate::systemd::store::Stored;
use crate::types::limits;
use crate::types::rights::{self, Lists, Rules};
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Stream};
use crate::wire::endpoints::Endpoints;

/// Name of the hub's memory in systemd's store.
const STORED: &str = "backlog";

/// The kind of the app's ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// FIFOs.
    Fifos {
        /// The streams that the app has.
        enabled: Vec<Stream>,
        /// Whether the mux owns them: it makes a missing one, and removes all of them in the end. Else
        /// the stream of a missing one is left out.
        make: bool,
    },
    /// A terminal.
    Terminal {
        /// Its first size.
        size: Size,
    },
}

/// The options of a mux.
#[derive(Debug)]
pub(crate) struct MuxPlan {
    /// The app's directory.
    pub(crate) dir: AppDir,
    /// The app's service, if systemd starts it.
    pub(crate) service: ServiceName,
    /// The app's ends.
    pub(crate) streams: Streams,
    /// Bytes kept per stream.
    pub(crate) backlog: usize,
    /// How long a client may hold the app back, at most.
    pub(crate) patience: Duration,
    /// The users that may connect besides root and this one.
    pub(crate) others: Lists,
    pub(crate) logs: LogPlan,
    /// Whether the service manager is to keep the app's ends over a restart of the mux: not under
    /// rkt's own units, which keep nothing, and not where the app is a child of the mux.
    pub(crate) keeps_ends: bool,
    /// The app, if this process starts it.
    pub(crate) app: Option<AppProcess>,
}

/// The app's ends, opened.
#[derive(Default)]
struct AppEnds {
    streams: Vec<Stream>,
    sources: Vec<Source>,
    input: Option<AppInput>,
    /// The input of the app's next start, if this one's was ended.
    next_input: Option<AppInput>,
    made: Vec<&'static str>,
    kept: Vec<Stream>,
    /// The size of the terminal, if there is one.
    size: Option<Size>,
}

impl Mux {
    /// Opens everything that is not in systemd's store; from READY on clients are accepted. Needs a
    /// runtime with I/O.
    pub(crate) fn open(plan: MuxPlan, mut stored: Stored) -> Result<Self> {
        let MuxPlan { dir, service, streams, backlog, patience, others, logs, keeps_ends, mut app } =
            plan;
        signals::outlive_file_limit().context("setting up signals")?;
        // All muxes of a host are one user. An app that is a child of this process is not to be refused anything.
        if app.is_none()
            && let Err(e) = sys::refuse_to_reach_others()
        {
            log::debug!("refusing calls that reach other processes: {e}");
        }
        let dir = dir.shared(others.let_others_in());
        let notify = Notify::from_env(keeps_ends)?;
        let owns_app = app.is_some();
        if owns_app && dir.is_split() {
            bail!(
                "app {}: {} belongs to the mux of a service; use another name, or disable the service",
                dir.name(),
                dir.dir().display()
            );
        }
        if !owns_app {
            dir.join()?;
        }
        dir.create()?;
        let lock = dir.lock()?;
        dir.arrange(&lock)?;
        dir.remove_leftovers()?;
        if !owns_app {
            raise_descriptor_limit();
        }
        let mut ends = if dir.is_split() {
            adopt_ends(&dir, &streams, &mut stored, &notify)?
        } else {
            open_ends(&dir, &streams, &mut stored, &notify)?
        };
        if owns_app {
            // The leftovers of a `run` that was killed are useless.
            ends.made = ends.streams.iter().map(|stream| stream.stage2()).collect();
        }
        if let Some(app) = &mut app {
            // Before a client can attach, and close an input that no other process has open.
            app.open(&dir)?;
        }
        let mut listeners = Vec::new();
        for stream in &ends.streams {
            listeners.push(Listener::new(Some(*stream), dir.listen(stream.socket())?));
        }
        listeners.push(Listener::new(None, dir.listen(SESSION)?));
        // A terminal's input has no end, and of a socket unit's FIFO systemd keeps a writer.
        let ours = matches!(streams, Streams::Fifos { make: true, .. });
        let can_end = ours && (owns_app || keeps_ends && dir.may_renew_input());
        let mut hub = open_hub(&dir, &ends, (backlog, patience), &mut stored, &notify)?;
        let terminal = ends.size.map(|size| Terminal::open(size, &hub, &mut stored, &notify));
        let terminal = terminal.transpose()?;
        let poller = Poller::new().context("making an epoll set")?;
        let since = Instant::now();
        let store = (&mut stored, &notify);
        let logs = logs::open(logs, (&service, &dir), store, &mut hub, ends.size)?;
        Endpoints::new(&dir, &ends.streams).publish(&dir)?;
        Ok(Self {
            phase: Phase::Ready,
            since,
            files: AppFiles { dir, notify, made: ends.made, kept: ends.kept, _lock: lock },
            poller,
            hub,
            sources: Sources::new(ends.sources),
            input: InputFeed::new(ends.input, ends.next_input, can_end),
            life: Lifecycle::new(service, app),
            admission: Admission::new(listeners, rules(others), patience),
            clients: Clients::new(),
            logs,
            terminal,
        })
    }

    /// Begins to accept clients and reports that; starts the app, unless it waits for a client.
    pub(crate) fn begin(&mut self) -> Result<()> {
        for index in 0..self.sources.len() {
            self.sources.watch(index, &self.poller);
        }
        for index in 0..self.admission.listeners() {
            self.admission.watch(index, &self.poller);
        }
        self.begin_logs();
        if let Some(terminal) = &mut self.terminal {
            terminal.begin(&self.poller);
        }
        self.files.notify.ready();
        log::info!("app {}: ready at {}", self.files.name(), self.files.dir.dir().display());
        if self.life.waits_until().is_none() {
            self.life.start()?;
        }
        Ok(())
    }
}

/// Makes the ends of an app for a mux of another user, as root, and gives them to the service manager to keep
/// for it. A mux that is only started again finds its ends there, and here only their names are seen to.
///
/// `check` fails if the mux will not understand its options. Such a mux, if no app depends on it, is given
/// nothing, so that it fails, too.
pub(crate) fn prepare(
    dir: &AppDir,
    (streams, has_journal): (&Streams, bool),
    (unit, service): (&str, &ServiceName),
    check: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let notify = Notify::from_env(true)?;
    if !notify.keeps() {
        bail!("preparing app {}: this is a hook of a mux's unit", dir.name());
    }
    if !process::is_of_user() {
        process::enter_main_mount_namespace()?;
    }
    let kept = Manager::of_this_process().stored_descriptors(unit)?;
    if kept == 0 {
        check()?;
        dir.remove_own()?;
    }
    dir.split()?;
    if kept == 0 {
        let run = Manager::of_this_process().run_of(service.as_str());
        dir.note_earlier(run.as_deref())?;
    }
    let prepared = prepare_ends(dir, (streams, has_journal), kept, &notify);
    if prepared.is_err() && kept == 0 {
        // What has been made is closed with this process: the app must not open it.
        dir.lead_nowhere().context("taking away the names of the app's ends")?;
    }
    prepared?;
    dir.mark_prepared()
}

fn prepare_ends(
    dir: &AppDir,
    (streams, has_journal): (&Streams, bool),
    kept: usize,
    notify: &Notify,
) -> Result<()> {
    if kept == 0 {
        if matches!(streams, Streams::Fifos { make: true, .. }) {
            dir.remove_old_input()?;
        }
        open_ends(dir, streams, &mut Stored::default(), notify)?;
    } else {
        match streams {
            Streams::Terminal { .. } => pty::place(dir)?,
            Streams::Fifos { enabled, make } => {
                let made = enabled.iter().filter(|_| *make);
                made.map(|stream| fifo::make(dir, *stream)).collect::<Result<Vec<_>>>()?;
            }
        }
    }
    if matches!(streams, Streams::Fifos { enabled, make: true } if enabled.contains(&Stream::Stdin))
    {
        dir.give_input().context("giving the mux the FIFO of the app's input")?;
    }
    // A user's mux writes to the journal itself: nobody would read the FIFO.
    if has_journal && !process::is_of_user() {
        logs::prepare_journal(dir, notify)?;
    }
    notify.barrier()
}

/// The ends that root has made for a mux of another user: those that the service manager keeps, and no
/// others.
fn adopt_ends(
    dir: &AppDir,
    wanted: &Streams,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<AppEnds> {
    let mut ends = AppEnds::default();
    match wanted {
        Streams::Terminal { size } if pty::is_stored(stored) => {
            ends.add_terminal(pty::open(*size, stored, notify)?)?;
        }
        Streams::Terminal { .. } => {}
        Streams::Fifos { enabled, .. } => {
            for stream in enabled {
                if fifo::is_stored(stored, *stream) {
                    ends.add_fifo(dir, *stream, stored, notify)?;
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
        bail!(
            "app {}: its ends were not prepared by ExecStartPre= of this mux's unit (its journal may say why)",
            dir.name()
        );
    }
    Ok(ends)
}

impl AppEnds {
    fn add_terminal(&mut self, pty: pty::Pty) -> Result<()> {
        self.size = Some(pty::size(&pty.source.fd).context("the size of the terminal")?);
        self.streams.push(Stream::Tty);
        self.sources.push(pty.source);
        self.input = Some(pty.input);
        Ok(())
    }

    fn add_fifo(
        &mut self,
        dir: &AppDir,
        stream: Stream,
        stored: &mut Stored,
        notify: &Notify,
    ) -> Result<()> {
        self.streams.push(stream);
        if stream == Stream::Stdin {
            self.next_input = fifo::next_input(dir, stored, notify)?;
            if self.next_input.is_none() {
                self.input = Some(fifo::input(dir, stored, notify)?);
            }
        } else {
            self.sources.push(fifo::source(dir, stream, stored, notify)?);
        }
        Ok(())
    }
}

/// The app's FIFOs or its terminal.
fn open_ends(
    dir: &AppDir,
    wanted: &Streams,
    stored: &mut Stored,
    notify: &Notify,
) -> Result<AppEnds> {
    match wanted {
        Streams::Terminal { size } => {
            let pty = pty::open(*size, stored, notify)?;
            pty::publish(dir, &pty.slave)?;
            let mut ends = AppEnds { made: vec![Stream::Tty.stage2()], ..AppEnds::default() };
            ends.add_terminal(pty)?;
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
                    log::warn!(
                        "app {}: {stream} is not served: there is no FIFO {}",
                        dir.name(),
                        fifo.display()
                    );
                    continue;
                }
                ends.add_fifo(dir, *stream, stored, notify)?;
            }
            Ok(ends)
        }
    }
}

/// The rules of admission on this system.
fn rules(lists: Lists) -> Rules {
    let overflow = |file: &str| {
        let number = std::fs::read_to_string(file).ok().and_then(|n| n.trim().parse().ok());
        number.unwrap_or(rights::OVERFLOW)
    };
    Rules {
        own_uid: Uid::effective().as_raw(),
        overflow_uid: overflow("/proc/sys/kernel/overflowuid"),
        overflow_gid: overflow("/proc/sys/kernel/overflowgid"),
        lists,
    }
}

/// A hub that goes on where the previous one was, as far as systemd has kept its memory.
fn open_hub(
    dir: &AppDir,
    AppEnds { streams, sources, .. }: &AppEnds,
    (backlog, patience): (usize, Duration),
    stored: &mut Stored,
    notify: &Notify,
) -> Result<Hub> {
    let len = memory::rings_len(streams, backlog);
    let map = |fd: &OwnedFd| sys::map_memory(fd, memory::WORDS, len);
    let fresh = new_epoch();
    let kept = stored.remove(STORED);
    let mapped = kept.as_ref().and_then(|fd| map(fd).ok());
    let (words, rings) = match mapped {
        Some(mapped) => mapped,
        None => {
            let fd = sys::new_memory("iottymux-backlog", size_of::<u64>() * memory::WORDS + len);
            let fd = fd.context("making memory for the backlog")?;
            notify.replace(STORED, &fd);
            map(&fd).context("mapping the memory of the backlog")?
        }
    };
    let mut hub = Hub::new(streams, backlog, Memory { words, rings }, fresh);
    for source in sources {
        if let Some(unread) = source.unread() {
            hub.recover(source.stream, unread);
        }
    }
    let (name, is_new) = (dir.name(), hub.epoch() == fresh);
    match kept {
        Some(_) if is_new => log::warn!(
            "app {name}: the backlog that was kept is not used: it is of other streams, of another \
             size or of another version"
        ),
        Some(_) => {
            log::info!("app {name}: continuing where the previous mux was");
            hub.await_clients(Instant::now() + patience.min(limits::PATIENCE));
        }
        None => {}
    }
    Ok(hub)
}

/// A number that no other mux has. It comes from the system's random source, with which std seeds its hash
/// maps, and never waits.
fn new_epoch() -> Epoch {
    Epoch(RandomState::new().build_hasher().finish())
}

/// As many descriptors as the system allows: each client needs one.
fn raise_descriptor_limit() {
    let raise = || {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    };
    if let Err(e) = raise() {
        log::debug!("raising the limit of descriptors: {e}");
    }
}
