//! The start of a container's keeper.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::PollFlags;

use super::container_app::{KEEPER, STARTER, is_ready, starter_socket};
use super::runtime::{self, Runtime};
use crate::containers::oci::{Call, Config};
use crate::containers::{docker, mux_words};
use crate::sys::calls;
use crate::sys::documents::container::Container;
use crate::sys::ready;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::own_process;
use crate::sys::systemd::store::FIRST_FD;
use crate::types::container_id::{KUBERNETES, app_name};
use crate::types::stream::Stream;

/// How long a container waits for its mux.
const MUX_READY: Duration = Duration::from_secs(2);
/// How long it waits for the mux of an earlier container of the same id, which gives its last
/// output to slow clients.
const MUX_ENDS: Duration = Duration::from_secs(1);
/// Pause between two looks whether that mux has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What a keeper is to know of its container.
pub(super) struct KeeperStart<'a> {
    pub(super) state: StateDir,
    pub(super) app: AppDir,
    container: Container,
    /// The variables for the mux.
    settings: &'a [(String, String)],
}

impl<'a> KeeperStart<'a> {
    /// For a container of this id.
    pub(super) fn new(
        runtime: &'a Runtime,
        call: &Call,
        id: &str,
        config: &Config,
    ) -> Result<Self> {
        let state = runtime.state()?;
        let namespace = call.namespace();
        let app = state.app(&app_name(namespace, id));
        let mut container = Container::new((namespace.to_owned(), id.to_owned()));
        match namespace {
            // In another namespace the author of the container may have chosen these names.
            KUBERNETES => container.kubernetes = config.kubernetes(),
            docker::NAMESPACE => container.docker = docker::name(config, id),
            _ => {}
        }
        Ok(Self { state, app, container, settings: &runtime.settings })
    }

    /// Starts it in the background.
    pub(super) fn start(
        &self,
        streams: &[Stream],
        kept: Vec<(String, OwnedFd)>,
    ) -> Result<NewKeeper> {
        self.await_earlier()?;
        let (ours, theirs) = starter_socket()?;
        let passed = kept.into_iter().chain([(STARTER.to_owned(), theirs)]);
        let (names, fds): (Vec<String>, Vec<OwnedFd>) = passed.unzip();
        let what = "cannot start its keeper";
        let mut command = Command::new(std::env::current_exe().context(what)?);
        // Its name may be that of the runtime.
        command.arg0(own_process::PROGRAM).arg(KEEPER).arg(self.app.name().as_str());
        command.args(mux_words(&self.app, streams, &self.container)?);
        command.env_clear().envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.env("IOTTYMUX_STATE_DIR", self.app.state());
        command.env("LISTEN_FDS", fds.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        command.env(own_process::KEEPER, std::process::id().to_string());
        let errors = runtime::journal().map_or_else(Stdio::null, Stdio::from);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).current_dir("/");
        calls::in_own_session(&mut command, false);
        calls::closing_from(&mut command, FIRST_FD);
        calls::passing(&mut command, &fds.iter().collect::<Vec<_>>(), FIRST_FD).context(what)?;
        let until = Instant::now() + MUX_READY;
        Ok(NewKeeper { child: command.spawn().context(what)?, socket: ours, until })
    }

    /// Waits until the mux of an earlier container of this name has ended. A service whose mux does
    /// not run just now keeps its name.
    fn await_earlier(&self) -> Result<()> {
        if self.app.is_of_service() {
            bail!("app {} is a service", self.app.name());
        }
        let until = Instant::now() + MUX_ENDS;
        while self.app.is_locked() {
            if Instant::now() >= until {
                bail!("the mux of app {} is another container's", self.app.name());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// The keeper of the container, as long as this process lives.
pub(super) struct NewKeeper {
    child: Child,
    pub(super) socket: OwnedFd,
    /// Until when the container waits for its mux.
    until: Instant,
}

impl NewKeeper {
    /// Waits until clients can attach; without a mux in time there is no keeper any more.
    pub(super) fn ready(mut self) -> Result<Self> {
        let awaited = self.await_ready();
        if awaited.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        awaited.map(|()| self)
    }

    fn await_ready(&self) -> Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let has_said = ready::wait_for(&self.socket, PollFlags::POLLIN, Some(left));
            if has_said.context("cannot wait for its mux")? {
                break;
            }
            if left.is_zero() {
                bail!("its mux was not ready in {MUX_READY:?}");
            }
        }
        if !is_ready(&self.socket) {
            bail!("its mux has failed, the journal says why");
        }
        Ok(())
    }

    /// There is no container: waits until nothing is left of its mux, which has nothing to deliver.
    pub(super) fn end(mut self, app: &AppDir) {
        drop(self.socket);
        let until = Instant::now() + MUX_READY;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        if !app.is_locked() {
            let _ = app.remove_leftovers().inspect_err(|e| log::debug!("{e:#}"));
            app.remove_dir();
        }
    }
}
