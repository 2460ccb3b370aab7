//! A container whose mux and keeper were both killed gets others when its runtime is called again.
//!
//! The container holds its ends of the pipes, and a pipe can be opened again through them. Its input
//! has ended, and its engine has given up the output. A terminal was closed with its mux.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use super::container::{KEEPER, send_process};
use super::keeper::KeeperStart;
use super::read_config;
use super::runtime::{self, Runtime};
use crate::containers::oci::{Call, ContainerState};
use crate::sys::documents::container::Container;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::documents::last::Last;
use crate::sys::state::{AppDir, ENDPOINTS, StateDir};
use crate::types::container as name;
use crate::types::stream::Stream;

/// The calls about a container that runs on.
const CALLS: [&str; 5] = ["exec", "kill", "ps", "state", "update"];

/// Looks whether a call is about a container without its mux, and reports what was done then.
pub(super) fn look(runtime: &Runtime, call: &Call) {
    if !CALLS.iter().any(|known| call.name() == *known) {
        return;
    }
    let Ok(apps) = runtime.state() else { return };
    let mut ids = call.words().iter().filter_map(|word| word.to_str());
    let lost = ids.find_map(|id| Some((id, lost(&apps, call.namespace(), id)?)));
    let Some((id, app)) = lost else { return };
    let state = runtime.container_state(call, id);
    let Some(state) = state.filter(ContainerState::is_alive) else { return };
    let what = match revive(runtime, call, id, &state) {
        Ok(()) => "they were started again, without its input and without the engine".to_owned(),
        Err(e) => {
            // So it is said once.
            let _ = app.remove(ENDPOINTS);
            format!("it goes on without: {e:#}")
        }
    };
    runtime::warn(call, &format!("container {id}: its mux and its keeper were killed; {what}"));
}

/// The app of this container, if it has lost its mux: one that has ended says so.
fn lost(apps: &StateDir, namespace: &str, id: &str) -> Option<AppDir> {
    let app = apps.app(&name::app_name(namespace, id));
    let container = Container::read(&app)?;
    let is_it = container.namespace == namespace && container.id == id && container.exec.is_none();
    let is_lost = || {
        let has_begun = || Endpoints::read(&app).is_ok() && matches!(Last::read(&app), Ok(None));
        !app.is_locked() && has_begun() && !has_keeper(&app)
    };
    (is_it && is_lost()).then_some(app)
}

/// Whether the keeper of an app runs, which starts a mux again that was killed.
fn has_keeper(app: &AppDir) -> bool {
    let is_keeper = |process: PathBuf| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(KEEPER.as_bytes())
            && words.next() == Some(app.name().as_str().as_bytes())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    processes.map(|process| process.path()).any(is_keeper)
}

fn revive(runtime: &Runtime, call: &Call, id: &str, state: &ContainerState) -> Result<()> {
    let config = read_config(&state.bundle)?.unwrap_or_default();
    if config.has_terminal() {
        bail!("its terminal is closed");
    }
    let process = rustix::process::Pid::from_raw(state.pid).context("it has no process")?;
    let process = pidfd_open(process, PidfdFlags::empty()).context("it has no process")?;
    let mut kept = Vec::new();
    for (stream, number) in [(Stream::Stdout, 1), (Stream::Stderr, 2)] {
        let path = PathBuf::from(format!("/proc/{}/fd/{number}", state.pid));
        let end = open_again(&path).with_context(|| format!("cannot open its {stream}"))?;
        kept.extend(end.map(|end| (stream, end)));
    }
    let streams: Vec<Stream> = kept.iter().map(|(stream, _)| *stream).collect();
    if streams.is_empty() {
        bail!("it has its output no more");
    }
    let kept = kept.into_iter().map(|(stream, end)| (stream.name().to_owned(), end)).collect();
    let (keeper, _) = KeeperStart::new(runtime, call, (id, &state.bundle), &config)?;
    let keeper = keeper.start(&streams, kept)?.ready()?;
    send_process(&keeper.socket, Pid::from_raw(state.pid), &process)
}

/// Opens the pipe of an output that nothing reads. One with a reader is not the one of the mux that
/// was killed.
fn open_again(path: &Path) -> io::Result<Option<OwnedFd>> {
    let is_pipe = fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo())
        && fs::read_link(path).is_ok_and(|it| it.to_string_lossy().starts_with("pipe:"));
    if !is_pipe {
        return Ok(None);
    }
    let open = |how: &mut OpenOptions| how.custom_flags(O_NONBLOCK).open(path);
    let writing = open(OpenOptions::new().write(true))?;
    let mut fds = [PollFd::new(writing.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    if fds[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR)) {
        return Ok(Some(open(OpenOptions::new().read(true))?.into()));
    }
    Ok(None)
}
