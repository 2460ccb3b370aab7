//! The container as the app of its keeper: another process starts it and says which one it is.

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::commands::containerd_logger::forget_ended;
use crate::commands::keeper::{App, AppEvent, KeepRequest, keep};
use crate::containers::process::{ContainerProcess, ProcessState};
use crate::os::diagnostics;
use crate::os::state::StateDir;
use crate::systemd::store::Stored;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// The command of the keeper of a container. Its arguments: the app, the namespace and the id of
/// the container, and its streams.
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
    let fds = [pidfd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let number = pid.to_string();
    sendmsg(starter, &[IoSlice::new(number.as_bytes())], &mut control, SendFlags::NOSIGNAL)
        .context("cannot reach its keeper")?;
    Ok(())
}

/// Whether the keeper has said that clients can attach; it may have ended instead.
pub(super) fn is_ready(starter: &OwnedFd) -> bool {
    let mut message = [0; 16];
    let received = rustix::net::recv(starter, &mut message, RecvFlags::DONTWAIT);
    received.is_ok_and(|(len, _)| message.get(..len) == Some(READY))
}

/// See the module.
#[derive(Debug)]
enum Container {
    /// The starter has not said yet.
    Awaited(OwnedFd),
    Runs(ContainerProcess),
    /// It has ended, or was not started.
    Over(Option<Pid>),
}

impl App for Container {
    fn watched(&self) -> Vec<PollFd<'_>> {
        match self {
            Self::Awaited(starter) => vec![PollFd::new(starter.as_fd(), PollFlags::POLLIN)],
            Self::Runs(process) => process.watched().into_iter().collect(),
            Self::Over(_) => Vec::new(),
        }
    }

    fn due(&self) -> Option<Instant> {
        match self {
            Self::Runs(process) => process.due(),
            Self::Awaited(_) | Self::Over(_) => None,
        }
    }

    fn look(&mut self, _terminal: Option<&OwnedFd>, now: Instant) -> Result<Option<AppEvent>> {
        match self {
            Self::Awaited(starter) => match receive_process(starter) {
                Ok(None) => Ok(None),
                Ok(Some(process)) => {
                    *self = Self::Runs(process);
                    Ok(Some(AppEvent::Started))
                }
                Err(e) => {
                    log::info!("the container was not created: {e:#}");
                    *self = Self::Over(None);
                    Ok(Some(AppEvent::Ended(None)))
                }
            },
            Self::Runs(process) => {
                let ProcessState::Ended(status) = process.look(now)? else { return Ok(None) };
                *self = Self::Over(Some(process.pid()));
                Ok(Some(AppEvent::Ended(status)))
            }
            Self::Over(_) => Ok(None),
        }
    }

    /// The engine stops a container, and its keeper ends after it.
    fn signal(&mut self, _: Signal, _: Option<&OwnedFd>, _: Instant) -> bool {
        !matches!(self, Self::Over(_))
    }

    fn pid(&self) -> Option<Pid> {
        match self {
            Self::Awaited(_) => None,
            Self::Runs(process) => Some(process.pid()),
            Self::Over(pid) => *pid,
        }
    }
}

/// The process that the starter has sent, if it has.
fn receive_process(starter: &OwnedFd) -> Result<Option<ContainerProcess>> {
    let mut number = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut number)];
    let len = match recvmsg(starter, &mut parts, &mut control, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        received => received?.bytes,
    };
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let pid = std::str::from_utf8(&number[..len]).ok().and_then(|number| number.parse().ok());
    match (pid, fd) {
        (Some(pid), Some(fd)) => Ok(Some(ContainerProcess::new(Pid::from_raw(pid), fd))),
        _ => bail!("its runtime has failed"),
    }
}

/// Keeps the mux of a container until that has ended.
pub(crate) fn keeper(arguments: &[OsString]) -> Exit {
    // First of all, while no other descriptor has been opened.
    let stored = Stored::take();
    diagnostics::start(None, true);
    keep_container(arguments, stored).unwrap_or_else(|e| diagnostics::failed(&e, Exit::Failed))
}

fn keep_container(arguments: &[OsString], mut stored: Stored) -> Result<Exit> {
    let [app, namespace, id, streams] = arguments else { bail!("this command is internal") };
    let starter = stored.remove(STARTER).context("the runtime starts this command")?;
    let name: AppName = app.to_str().unwrap_or_default().parse()?;
    let state = StateDir::resolve(std::env::var_os("IOTTYMUX_STATE_DIR").map(Into::into))?;
    let reader = starter.try_clone()?;
    let mut mux: Vec<OsString> = vec!["container".into()];
    let option = |name: &str, value: &OsStr| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    mux.push(option("app", app));
    mux.push(option("namespace", namespace));
    mux.push(option("id", id));
    mux.push(option("streams", streams));
    let exit = keep(KeepRequest {
        dir: state.app(&name),
        app: Box::new(Container::Awaited(reader)),
        mux,
        user: None,
        passed: stored.into_all().collect(),
        awaits_client: false,
        insists: false,
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

/// Streams as an argument.
pub(super) fn stream_names(streams: &[Stream]) -> OsString {
    streams.iter().map(|stream| stream.name()).collect::<Vec<_>>().join(",").into()
}
