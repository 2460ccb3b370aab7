//! How a mux begins: lock, leftovers, sources, listeners, document, READY. In this order everything
//! that is visible works.
//!
//! Any error ends the process. Then systemd, or the keeper, has the descriptors of a running app, and
//! starts the mux again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::Uid;

use super::{Mux, Phase, SIGNALS};
use crate::core::hub::Hub;
use crate::core::hub::input::Input;
use crate::core::hub::input::queue::{self, InputMemory, InputQueue};
use crate::core::hub::memory::{self, Memory};
use crate::mux::admission::Admission;
use crate::mux::admission::listener::Listener;
use crate::mux::app::input_feed::{InputEnding, InputFeed};
use crate::mux::app::life::Lifecycle;
use crate::mux::app::sources::Sources;
use crate::mux::app_ends::{self, AppEnds, Streams};
use crate::mux::app_files::AppFiles;
use crate::mux::clients::Clients;
use crate::mux::engine::Engine;
use crate::mux::kept_memory::{BACKLOG, INPUT, KeptMemory, MemoryPiece};
use crate::mux::logs::{self, LogPlan};
use crate::mux::origin::Origin;
use crate::mux::pages::Pages;
use crate::mux::poll::{Poller, Token};
use crate::mux::prepare::{prepare, shut_in};
use crate::mux::terminal::Terminal;
use crate::sys::documents::container::Container;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::documents::reported_life::ReportedLife;
use crate::sys::files::raise_descriptor_limit;
use crate::sys::signals::CaughtSignals;
use crate::sys::state::{AppDir, LIFE, Lock, SESSION};
use crate::sys::systemd::own_process;
use crate::sys::systemd::store::Stored;
use crate::sys::{call_filter, confine};
use crate::types::limits;
use crate::types::rights::{Lists, Rules};
use crate::types::service::ServiceName;
use crate::types::stream::{Epoch, Stream};

/// The options of a mux.
#[derive(Debug)]
pub(crate) struct MuxPlan {
    pub(crate) origin: Origin,
    /// The app's directory.
    pub(crate) dir: AppDir,
    /// The app's service, if systemd starts it.
    pub(crate) service: ServiceName,
    /// The app's ends.
    pub(crate) streams: Streams,
    /// Bytes kept per stream.
    pub(crate) backlog: usize,
    /// Lines kept when they scroll off the terminal's screen.
    pub(crate) scrollback: usize,
    /// Whether clients ask again before they send a key that may end the app.
    pub(crate) guards_keys: bool,
    /// Whether nothing of the app is to stay in the state directory after its end.
    pub(crate) leaves_nothing: bool,
    /// Whether somebody waits for the end of the mux: slow clients are to delay it little.
    pub(crate) is_awaited: bool,
    /// How long a client may hold the app back, at most.
    pub(crate) patience: Duration,
    /// The users that may connect besides root and this one.
    pub(crate) others: Lists,
    pub(crate) logs: LogPlan,
    /// The container that the app is.
    pub(crate) container: Option<Container>,
}

impl MuxPlan {
    /// Whether this mux makes the ends of its app for a unit, and keeps them from its own user.
    pub(crate) fn prepares(&self) -> bool {
        !self.origin.is_kept() && own_process::is_of_unit() && self.dir.has_gate()
    }
}

impl Mux {
    /// Opens everything that is not in systemd's store; from READY on clients are accepted.
    pub(crate) fn open(mut plan: MuxPlan, mut stored: Stored) -> Result<Box<Self>> {
        let (prepares, origin) = (plan.prepares(), plan.origin);
        // A write beyond the limit of a file's size fails then, and does not end this process.
        CaughtSignals::new(&[Signal::SIGXFSZ]).context("cannot set up signals")?;
        let notify = origin.notify(&mut stored)?;
        let takes_over = origin.takes_over(&stored);
        plan.streams.add_stored(&stored);
        let (service, streams) = (plan.service, plan.streams);
        let prepared = if prepares {
            prepare(&plan.dir, &streams, &service, (&mut stored, &notify))?
        } else {
            None
        };
        let names = (&service, plan.dir.name());
        logs::reach_journal_writer(&plan.logs, names, (&mut stored, &notify))?;
        let is_shut_in = prepares && shut_in(&plan.dir, &plan.logs)?;
        give_up_rights(origin == Origin::Container || is_shut_in);
        let dir = plan.dir.shared(plan.others.let_others_in());
        claim(&dir, origin)?;
        let (lock, reported) = enter(&dir, takes_over)?;
        if let Some(container) = plan.container {
            container.publish(&dir)?;
        }
        raise_descriptor_limit();
        let mut ends = match prepared {
            Some(ends) => ends,
            None => app_ends::open(origin, (&dir, &streams), takes_over, (&mut stored, &notify))?,
        };
        let listeners = listen(&dir, &ends.streams)?;
        let life = Lifecycle::new(service.clone(), origin).taking_over(reported.as_ref());
        let ending = streams.input_ending(ends.input.is_some(), origin);
        let is_foreign =
            origin == Origin::Rkt || matches!(streams, Streams::Fifos { make: false, .. });
        let mut memory = KeptMemory::open(&mut stored, &notify)?;
        let mut hub = open_hub(&dir, &mut ends, (plan.backlog, plan.patience), &mut memory)?;
        let how = (plan.scrollback, plan.guards_keys);
        let kept = notify.keeps().then_some(&mut memory);
        let open = |size| Terminal::open((size, how), &hub, kept);
        let terminal = ends.size.map(open).transpose()?;
        let input = open_input(&mut ends, ending, plan.others.let_others_type(), &mut memory)?;
        let engine = Engine::open(&mut hub, &mut memory, &mut stored, &notify)?;
        let poller = Poller::new().context("cannot make an epoll set")?;
        let since = Instant::now();
        let store = (&mut memory, &mut stored, &notify);
        let size = terminal.as_ref().map(|terminal| terminal.sizes.size());
        let (logs, logged) = logs::open(plan.logs, (&service, &dir), store, &mut hub, size)?;
        memory.finish();
        if !origin.is_kept() {
            // An earlier version has stored more, and no mux takes it any more.
            stored.into_all().for_each(|(name, _)| notify.forget(&name));
        }
        logged.publish(&dir)?;
        Endpoints::new(&dir, &ends.streams).publish(&dir)?;
        Ok(Box::new(Self {
            phase: Phase::Ready,
            since,
            files: AppFiles {
                dir,
                notify,
                made: ends.made,
                kept: ends.kept,
                is_foreign,
                leaves_nothing: plan.leaves_nothing,
                is_awaited: plan.is_awaited,
                lock: Some(lock),
            },
            poller,
            hub,
            sources: Sources::new(ends.sources),
            input,
            life,
            admission: Admission::new(listeners, rules(plan.others), plan.patience),
            clients: Clients::default(),
            pages: Pages::default(),
            logs,
            terminal,
            engine,
            // Until here a signal ends the process, also if opening waits.
            signals: CaughtSignals::new(&SIGNALS).context("cannot set up signals")?,
        }))
    }

    /// Begins to accept clients and reports that.
    pub(super) fn begin(&mut self) {
        self.sources.watch(&self.poller);
        for index in 0..self.admission.listeners() {
            self.admission.watch(index, &self.poller);
        }
        self.poller.listen(&self.signals, Token::Signals);
        let size = self.terminal_size();
        self.logs.begin(&self.poller, &mut self.hub, size);
        if let Some(terminal) = &mut self.terminal {
            self.poller.listen(&terminal.worker.mailbox, Token::Screen);
        }
        self.begin_engine();
        // The client that stopped it by ^S may not come back.
        self.start_output();
        self.hub.clients_can_come(Instant::now());
        self.files.notify.ready();
        log::info!("app {}: ready at {}", self.files.name(), self.files.dir.dir().display());
    }
}

/// Refuses itself what no mux does. `has_files`: whether all that only root can do to its files is
/// done.
fn give_up_rights(has_files: bool) {
    let give_up = || {
        if has_files {
            confine::keep_capabilities(confine::ROOT_MUX)?;
        } else {
            // Its unit says which capabilities it has, if any does.
            prctl::set_no_new_privs()?;
        }
        call_filter::refuse_harmful_uses()?;
        call_filter::refuse_other_calls(!has_files && Uid::effective().is_root())
    };
    if let Err(e) = give_up() {
        log::warn!("cannot give up rights: {e}");
    }
}

/// Makes the directory of an app one for a mux of this user, where it may. A container that had the
/// name has left what its mux wrote.
fn claim(dir: &AppDir, origin: Origin) -> Result<()> {
    let is_command = origin == Origin::Run;
    if !origin.is_kept() || is_command && Container::read(dir).is_some() {
        dir.join()?;
    }
    if is_command && dir.is_split() {
        bail!(
            "app {}: {} belongs to the mux of a service; use another name, or disable the service",
            dir.name(),
            dir.dir().display()
        );
    }
    Ok(())
}

/// Takes the app's directory, without what a dead mux has left there; also returns what that knew
/// of the app.
fn enter(dir: &AppDir, takes_over: bool) -> Result<(Lock, Option<ReportedLife>)> {
    dir.create()?;
    let lock = dir.lock()?;
    dir.arrange(&lock)?;
    let reported = takes_over.then(|| ReportedLife::read(dir)).flatten();
    dir.remove_leftovers()?;
    match &reported {
        // With this mux's rights. It is replaced: a mux that starts after a failure needs it, too.
        Some(reported) => reported.publish(dir)?,
        None => dir.remove(LIFE)?,
    }
    Ok((lock, reported))
}

/// The sockets for these streams, and the one for sessions.
fn listen(dir: &AppDir, streams: &[Stream]) -> Result<Vec<Listener>> {
    let listener = |stream: Option<Stream>| {
        let socket = dir.listen(stream.map_or(SESSION, Stream::socket))?;
        Ok(Listener::new(stream, socket))
    };
    streams.iter().copied().map(Some).chain([None]).map(listener).collect()
}

/// The rules of admission on this system.
fn rules(lists: Lists) -> Rules {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // Outside of user namespaces all users are seen, and the last one is a user as others.
    let hides_others = !map.split_whitespace().eq(["0", "0", "4294967295"]);
    Rules { own_uid: Uid::effective().as_raw(), hides_others, lists }
}

/// A hub that goes on where the previous one was, as far as systemd has kept its memory.
fn open_hub(
    dir: &AppDir,
    AppEnds { streams, sources, .. }: &mut AppEnds,
    (backlog, patience): (usize, Duration),
    memory: &mut KeptMemory,
) -> Result<Hub> {
    let len = memory::rings_len(streams, backlog);
    let fresh = new_epoch();
    let MemoryPiece { words, bytes: rings, was_stored } =
        memory.piece(BACKLOG, (memory::WORDS, len), memory::layout(streams, backlog))?;
    let mut hub = Hub::new(streams, backlog, Memory { words, rings }, fresh);
    for source in sources {
        hub.recover(source.stream, source.unread());
    }
    let (name, is_new) = (dir.name(), hub.epoch() == fresh);
    match was_stored {
        true if is_new => log::warn!(
            "app {name}: the backlog that was kept is not used: it is of other streams or of another \
             size"
        ),
        true => {
            log::info!("app {name}: continuing where the previous mux was");
            hub.await_clients(Instant::now(), patience.min(limits::PATIENCE));
        }
        false => {}
    }
    Ok(hub)
}

/// The app's input, with what an earlier mux has left in its queue.
fn open_input(
    ends: &mut AppEnds,
    ending: InputEnding,
    is_shared: bool,
    memory: &mut KeptMemory,
) -> Result<InputFeed> {
    let MemoryPiece { words, bytes: ring, .. } =
        memory.piece(INPUT, (queue::WORDS, queue::RING), [])?;
    let stage = ends.input_stage.take();
    let staged = stage.as_ref().map(|stage| stage.len);
    let input = Input::new(InputQueue::open(InputMemory { words, ring }, staged), Instant::now());
    Ok(InputFeed::new(input, ends.input.take(), stage, ending, is_shared))
}

/// A number that no other mux has. It comes from the system's random source, with which std seeds
/// its hash maps, and never waits.
fn new_epoch() -> Epoch {
    Epoch(RandomState::new().build_hasher().finish())
}
