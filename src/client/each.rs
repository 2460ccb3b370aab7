//! All apps that a user can see, each asked for its report, in one thread: the muxes are many, and
//! some may hang.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, ErrorKind};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::getpid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout_at};

use crate::core::wire::{Decoder, FrameKind, Hello, Report};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session;
use crate::sys::state::{AppDir, StateDir};
use crate::types::limits;
use crate::types::name::AppName;

/// What the mux of an app has answered.
pub(crate) struct Asked {
    pub(crate) dir: AppDir,
    /// The app has units, by which it can be started.
    pub(crate) is_enabled: bool,
    /// Its report, or why there is none: as it was, without advice.
    pub(crate) answer: Result<Report>,
}

/// Asks each app, and returns the answers in the order of the names. `enabled` are the apps with
/// units. Of apps with the same name it asks that of the first directory, or `all` of them.
pub(crate) fn app(
    states: &[StateDir],
    enabled: &BTreeMap<AppName, String>,
    all: bool,
) -> Result<Vec<Asked>> {
    let mut names: BTreeSet<(AppName, usize)> = BTreeSet::new();
    for (number, state) in states.iter().enumerate() {
        for name in state.apps()? {
            let is_other = names.range((name.clone(), 0)..(name.clone(), number)).next().is_some();
            if all || !is_other {
                names.insert((name, number));
            }
        }
    }
    for name in enabled.keys().filter(|_| !states.is_empty()) {
        if names.range((name.clone(), 0)..=(name.clone(), states.len())).next().is_none() {
            names.insert((name.clone(), 0));
        }
    }
    // The mux of a service has a view of its own of the directory with its app.
    let mut seen = HashSet::new();
    let is_new = |(name, number): &(AppName, usize)| {
        states[*number].app(name).id().is_none_or(|id| seen.insert(id))
    };
    let dirs: Vec<_> = names
        .into_iter()
        .filter(is_new)
        .map(|(name, number)| (states[number].app(&name), enabled.contains_key(&name)))
        .collect();
    let answers = ask(dirs.iter().map(|(dir, _)| dir))?;
    let asked = dirs.into_iter().zip(answers);
    Ok(asked.map(|((dir, is_enabled), answer)| Asked { dir, is_enabled, answer }).collect())
}

/// Asks the muxes of these apps at the same time: those that hang delay the others in nothing, and
/// all together for [`limits::ANSWER`].
fn ask<'a>(dirs: impl Iterator<Item = &'a AppDir>) -> Result<Vec<Result<Report>>> {
    // A socket for each. Without this right the last ones are not reached.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(async {
        let until = Instant::now() + limits::ANSWER;
        let start = |dir: &AppDir| tokio::spawn(timeout_at(until, report(dir.clone())));
        let asked: Vec<_> = dirs.map(start).collect();
        let mut answers = Vec::new();
        for answer in asked {
            let late = || io::Error::from(ErrorKind::WouldBlock);
            answers.push(answer.await?.unwrap_or_else(|_| Err(session::ended(late()).into())));
        }
        Ok(answers)
    })
}

/// Asks the mux of an app for its report. The answer is not older than the question.
async fn report(dir: AppDir) -> Result<Report> {
    let endpoints = Endpoints::read(&dir)?;
    let file =
        endpoints.session().context("its mux does not support sessions (it is rkt's own)")?;
    let socket = std::os::unix::net::UnixStream::from(dir.connect(file)?);
    socket.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(socket)?;
    let question =
        [FrameKind::Hello.message(&Hello::default()), FrameKind::Status.frame(b"")].concat();
    match socket.write_all(&question).await {
        // The mux has refused; its reason is still to be read.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    let (mut decoder, mut buffer) = (Decoder::default(), Vec::new());
    loop {
        buffer.resize(decoder.wants(), 0);
        socket.read_exact(&mut buffer).await.map_err(session::ended)?;
        let Some(item) = decoder.next(&mut &buffer[..])? else { continue };
        if let (FrameKind::Report, body) = session::control(item, &dir)? {
            return without_asker(&body);
        }
    }
}

/// The report of a mux, without the client that has asked for it.
pub(crate) fn without_asker(body: &[u8]) -> Result<Report> {
    let mut report: Report = serde_json::from_slice(body)?;
    // The mux of another pid namespace does not see this process.
    let own = [0, getpid().as_raw()];
    report.clients.retain(|client| client.is_attached() || !own.contains(&client.pid));
    Ok(report)
}
