//! The container as the app of its keeper: another process starts it and says which one it is.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use crate::containers::container_process::ContainerProcess;
use crate::containers::logger::forget_ended;
use crate::keeper::{self, AppEvent, KeepRequest, KeptApp, MuxUser};
use crate::sys::fd_message;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::store::Stored;
use crate::types::exit::Exit;

/// The command of the keeper of a container. Its arguments: the app, and those of its mux.
pub(crate) const KEEPER: &str = "oci-keeper";
/// The name of the socket between the process that starts the container and the keeper.
pub(super) const STARTER: &str = "starter";
/// What the keeper sends when clients can attach.
const READY: &[u8] = b"ready";

/// The socket between the process that starts a container and its keeper; the first end is that of
/// the starter.
pub(super) fn starter_socket() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    pair.context("cannot make a socket for its keeper")
}

/// Hands over the container's process.
pub(super) fn send_process(starter: &OwnedFd, pid: Pid, pidfd: &OwnedFd) -> Result<()> {
    fd_message::send(starter, pid.to_string().as_bytes(), &[pidfd.as_fd()])
        .context("cannot reach its keeper")
}

/// Whether the keeper has said that clients can attach; it may have ended instead.
pub(super) fn is_ready(starter: &OwnedFd) -> bool {
    let mut message = [0; 16];
    let received = rustix::net::recv(starter, &mut message, RecvFlags::DONTWAIT);
    received.is_ok_and(|(len, _)| message.get(..len) == Some(READY))
}

/// See the module.
#[derive(Debug)]
enum ContainerStage {
    /// The starter has not said yet.
    Awaited {
        starter: OwnedFd,
    },
    Runs {
        process: ContainerProcess,
        holder: Option<OwnedFd>,
    },
    /// It has ended, or was not started. Its end is held as long as the socket to the starter, who
    /// has become its holder, is open.
    Over {
        pid: Option<Pid>,
        holder: Option<OwnedFd>,
    },
}

impl KeptApp for ContainerStage {
    fn watched(&self) -> Vec<PollFd<'_>> {
        match self {
            Self::Awaited { starter, .. } => {
                vec![PollFd::new(starter.as_fd(), PollFlags::POLLIN)]
            }
            Self::Runs { process, .. } => process.watched().into_iter().collect(),
            Self::Over { .. } => Vec::new(),
        }
    }

    fn due(&self) -> Option<Instant> {
        match self {
            Self::Runs { process, .. } => process.due(),
            Self::Awaited { .. } | Self::Over { .. } => None,
        }
    }

    fn look(&mut self, now: Instant) -> Result<Option<AppEvent>> {
        match self {
            Self::Awaited { starter } => match receive_process(starter) {
                Ok(None) => Ok(None),
                Ok(Some(process)) => {
                    *self = Self::Runs { process, holder: starter.try_clone().ok() };
                    Ok(Some(AppEvent::Started))
                }
                Err(e) => {
                    log::info!("the container was not created: {e:#}");
                    *self = Self::Over { pid: None, holder: None };
                    Ok(Some(AppEvent::Ended(None)))
                }
            },
            Self::Runs { process, holder } => {
                let Some(ended) = process.look(now)? else { return Ok(None) };
                *self = Self::Over { pid: Some(process.pid()), holder: holder.take() };
                Ok(Some(ended))
            }
            Self::Over { .. } => Ok(None),
        }
    }

    /// The engine stops a container, and its keeper ends after it.
    fn signal(&mut self, _: Signal, _: Option<&OwnedFd>, _: Instant) -> bool {
        !matches!(self, Self::Over { .. })
    }

    fn let_go(&mut self) {
        if let Self::Over { holder, .. } = self {
            *holder = None;
        }
    }

    fn pid(&self) -> Option<Pid> {
        match self {
            Self::Awaited { .. } => None,
            Self::Runs { process, .. } => Some(process.pid()),
            Self::Over { pid, .. } => *pid,
        }
    }
}

/// The process that the starter has sent, if it has.
fn receive_process(starter: &OwnedFd) -> Result<Option<ContainerProcess>> {
    let mut number = [0; 16];
    let (len, fds) = match fd_message::receive(starter, &mut number, RecvFlags::DONTWAIT) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            return Ok(None);
        }
        received => received?,
    };
    let pid = std::str::from_utf8(&number[..len]).ok().and_then(|number| number.parse().ok());
    match (pid, fds.into_iter().next()) {
        (Some(pid), Some(fd)) => Ok(Some(ContainerProcess::new(Pid::from_raw(pid), fd))),
        _ => bail!("its runtime has failed"),
    }
}

/// A container whose mux is to be kept.
pub(crate) struct KeptContainer {
    pub(crate) state: StateDir,
    pub(crate) dir: AppDir,
    /// The arguments of this program that make it the mux.
    pub(crate) mux: Vec<OsString>,
    /// The user of the mux, if it is not this one.
    pub(crate) user: Option<MuxUser>,
    /// The ends of the container and of the engine, and the socket to the starter.
    pub(crate) stored: Stored,
}

/// Keeps the mux of a container until that has ended.
pub(crate) fn keep(kept: KeptContainer) -> Result<Exit> {
    let KeptContainer { state, dir, mux, user, mut stored } = kept;
    let starter = stored.remove(STARTER).context("the runtime starts this command")?;
    let reader = starter.try_clone()?;
    let exit = keeper::keep(KeepRequest {
        dir,
        app: Box::new(ContainerStage::Awaited { starter: reader }),
        mux,
        user,
        passed: stored.into_all().collect(),
        awaits_client: false,
        insists: false,
        removes: false,
        on_ready: Box::new(move || {
            if let Err(e) = rustix::net::send(&starter, READY, SendFlags::NOSIGNAL) {
                log::debug!("the process that starts the container has gone: {e}");
            }
        }),
        stays: None,
    });
    if let Err(e) = forget_ended(&state) {
        log::warn!("cannot forget containers that have ended: {e:#}");
    }
    exit
}
