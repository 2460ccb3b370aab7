//! All apps that a user can see, each asked for its report, in one thread: the muxes are many, and
//! some may hang.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::unistd::getpid;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout_at};

use super::tokio_runtime::block_on;
use crate::core::wire::session_reader::{MuxEvent, SessionReader};
use crate::core::wire::{FrameKind, Hello, Report};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::files::raise_descriptor_limit;
use crate::sys::session;
use crate::sys::state::{AppDir, StateDir};
use crate::types::limits;
use crate::types::name::AppName;

/// What the mux of an app has answered.
pub(crate) struct Asked {
    pub(crate) dir: AppDir,
    /// The app has units, by which it can be started.
    pub(crate) is_enabled: bool,
    /// The document of its mux, if that can be read.
    pub(crate) endpoints: Option<Endpoints>,
    /// Its report, or why there is none: as it was, without advice.
    pub(crate) answer: Result<Report>,
}

/// The apps of these directories, by their names. Of apps with the same name that of the first directory,
/// or `all` of them.
pub(crate) fn dirs(states: &[StateDir], all: bool) -> Result<Vec<AppDir>> {
    let mut apps = Vec::new();
    for state in states {
        apps.extend(state.apps()?.iter().map(|name| state.app(name)));
    }
    // Those with the same name stay in the order of the directories.
    apps.sort_by(|one, other| one.name().cmp(other.name()));
    apps.dedup_by(|later, app| !all && later.name() == app.name());
    Ok(apps)
}

/// Asks each app, and returns the answers in the order of the names. `enabled` are the apps with
/// units. Of apps with the same name it asks that of the first directory, or `all` of them.
pub(crate) fn app(
    states: &[StateDir],
    enabled: &BTreeMap<AppName, String>,
    all: bool,
) -> Result<Vec<Asked>> {
    let mut apps = dirs(states, all)?;
    for name in enabled.keys() {
        let at = apps.binary_search_by(|app| app.name().cmp(name));
        if let (Err(at), Some(state)) = (at, states.first()) {
            apps.insert(at, state.app(name));
        }
    }
    // The mux of a service has a view of its own of the directory with its app.
    let mut seen = HashSet::new();
    apps.retain(|app| app.id().is_none_or(|id| seen.insert(id)));
    these(apps, enabled)
}

/// Asks the muxes of these apps at the same time: those that hang delay the others in nothing, and
/// all together for [`limits::ANSWER`]. `enabled` are the apps with units.
pub(crate) fn these(apps: Vec<AppDir>, enabled: &BTreeMap<AppName, String>) -> Result<Vec<Asked>> {
    // A socket for each.
    raise_descriptor_limit();
    block_on(async {
        let until = Instant::now() + limits::ANSWER;
        let start = |dir: AppDir| {
            let is_enabled = enabled.contains_key(dir.name());
            tokio::spawn(ask_one(dir, is_enabled, until))
        };
        let asked: Vec<_> = apps.into_iter().map(start).collect();
        let mut answered = Vec::new();
        for asked in asked {
            answered.push(asked.await?);
        }
        Ok(answered)
    })
}

async fn ask_one(dir: AppDir, is_enabled: bool, until: Instant) -> Asked {
    let (endpoints, answer) = match Endpoints::read(&dir) {
        Ok(endpoints) => {
            let answer = timeout_at(until, report(&dir, &endpoints)).await;
            let late = || session::ended(io::Error::from(ErrorKind::WouldBlock));
            let answer = answer.unwrap_or_else(|_| Err(late().into()));
            (Some(endpoints), answer)
        }
        Err(e) => (None, Err(e)),
    };
    Asked { dir, is_enabled, endpoints, answer }
}

/// Asks the mux of an app for its report. The answer is not older than the question.
async fn report(dir: &AppDir, endpoints: &Endpoints) -> Result<Report> {
    let file = endpoints.session().context("its mux has no sessions (it is rkt's own)")?;
    let mut socket = loop {
        match dir.connect_now(file) {
            Err(e) if e.kind() == ErrorKind::TimedOut => sleep(limits::LOOK_AGAIN).await,
            connected => break UnixStream::from(connected?),
        }
    };
    let question =
        [FrameKind::Hello.message(&Hello::default()), FrameKind::Status.frame(b"")].concat();
    // At once, so that the mux wakes once for the client and its question: a new socket has room.
    match socket.write_all(&question) {
        // The mux has refused; its reason is still to be read.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    let (mut reader, mut buffer) = (SessionReader::default(), Vec::new());
    loop {
        buffer.resize(reader.wants(), 0);
        socket.read_exact(&mut buffer).await.map_err(session::ended)?;
        let message = session::message(&mut reader, &buffer, dir)?;
        if let Some(MuxEvent::Report(report)) = message {
            return Ok(without_asker(*report));
        }
    }
}

/// The report of a mux, without the client that has asked for it.
pub(crate) fn without_asker(mut report: Report) -> Report {
    // The mux of another pid namespace does not see this process.
    let own = [0, getpid().as_raw()];
    report.clients.retain(|client| client.is_attached() || !own.contains(&client.pid));
    report
}
