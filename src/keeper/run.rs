//! Being a mux; and `run`: the keeper of a command in the background, and an attach in front.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials,
    bind, recvmsg, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::scope::{self, ScopePolicy};
use super::{AWAIT_CLIENT, NAME, OUTPUT_CLOSED};
use crate::client::attach::{AttachRequest, attach, terminals};
use crate::core::wire::AppStatus;
use crate::host::enable;
use crate::mux::{Mux, MuxPlan};
use crate::sys::print::print;
use crate::sys::ready;
use crate::sys::state::{AppDir, ENDPOINTS};
use crate::sys::systemd::store::Stored;
use crate::sys::{calls, diagnostics};
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::name::AppName;

/// How long a mux may need to end, after clients know that its app has ended, on a machine under load.
const ENDING: Duration = Duration::from_secs(2);

/// Runs the mux of a plan until it ends.
pub(crate) fn mux(plan: MuxPlan) -> Result<Exit> {
    // First of all, while no other descriptor has been opened.
    let stored = Stored::take();
    if plan.dir.is_split() {
        // Muxes share a user: none may look into the memory and the descriptors of another.
        prctl::set_dumpable(false)
            .context("cannot protect this process from others of its user")?;
    }
    // Before anything else is allocated among what is left of the command line.
    calls::give_back_memory();
    Mux::open(plan, stored)?.serve()?;
    Ok(Exit::Done)
}

/// Reports why this command cannot be the app of this name, if that can be known before anything is
/// started.
pub(crate) fn refusal(dir: &AppDir, program: &OsStr) -> Option<Exit> {
    let name = dir.name();
    let (why, exit) = if let Some(service) = enable::service_of(dir) {
        let why = anyhow!(
            "{name} is the name of {service}; try iottymux attach {name}, or another --name"
        );
        (why, Exit::Failed)
    } else if is_running(dir) {
        let ways = if dir.is_of_service() {
            "another --name: it is a service".to_owned()
        } else {
            format!(
                "iottymux attach {name}, run -A, iottymux stop {name}, or iottymux rm --force {name}"
            )
        };
        (anyhow!("app {name} is running already; try {ways}"), Exit::Failed)
    } else {
        let exit = not_executable(program)?;
        let what = match exit {
            Exit::NotFound if is_path(program) => "there is no such file",
            Exit::NotFound => "command not found",
            _ => "it is not an executable file",
        };
        (anyhow!("cannot start {}: {what}", program.display()), exit)
    };
    Some(diagnostics::failed(&why, exit))
}

/// Whether an app has this name. One that has ended may still have it for a moment: scripts run a name
/// again and again.
pub(crate) fn is_running(dir: &AppDir) -> bool {
    let until = Instant::now() + ENDING;
    while dir.is_locked() {
        if dir.has(ENDPOINTS) || Instant::now() > until {
            return true;
        }
        thread::sleep(limits::LOOK_AGAIN);
    }
    false
}

fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

/// Why execvp(3) will not find a program, if it is so.
fn not_executable(program: &OsStr) -> Option<Exit> {
    let candidates: Vec<PathBuf> = if is_path(program) {
        vec![program.into()]
    } else {
        env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).collect()
    };
    let is_executable =
        |path: &Path| accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    if candidates.iter().any(|path| path.is_file() && is_executable(path)) {
        return None;
    }
    let is_there = |path: &PathBuf| path.is_file() || is_path(program) && path.exists();
    Some(if candidates.iter().any(is_there) { Exit::NotExecutable } else { Exit::NotFound })
}

/// Starts the keeper in the background, in a session of its own, and attaches to its mux. If the
/// output is closed, the command gets SIGPIPE, as if it had written there itself.
pub(crate) fn attached(mut request: AttachRequest) -> Result<Exit> {
    terminals();
    let keeper = start_in_background(request.dir.name(), true)?;
    request.keeper = Some(keeper);
    if std::process::id() == 1 {
        // As the first process of a container it gets all orphans there.
        calls::leave_children().context("cannot leave orphans to the kernel")?;
    }
    let exit = attach(&request)?;
    if exit != Exit::Unread {
        // Otherwise the app has ended.
        if exit == Exit::Done
            && let Some(line) = scope::on_leaving(&request.dir)
        {
            diagnostics::say(&line);
        }
        return Ok(exit);
    }
    // Its number is not used again before this process collects it.
    kill(keeper, OUTPUT_CLOSED).context("cannot end the command")?;
    let status = AppStatus::Signal(Signal::SIGPIPE as u8);
    Ok(Exit::App(status.code()))
}

/// Attaches to the app, which runs already; only prints its name if `detached`.
pub(crate) fn joined(request: AttachRequest, detached: bool) -> Result<Exit> {
    if detached {
        print(&format!("{}\n", request.dir.name()))?;
        return Ok(Exit::Done);
    }
    // It may just have been started.
    let wait = limits::RECONNECT;
    attach(&AttachRequest { passes_signals: false, stdin_once: false, wait, ..request })
}

/// Starts the keeper in the background, and prints the name of the app. What the keeper starts is in
/// the scope of this process.
pub(crate) fn detached(dir: &AppDir, command: &[OsString], policy: ScopePolicy) -> Result<Exit> {
    let name = dir.name();
    let lives = scope::settle(policy, dir, command)?;
    start_in_background(name, false)?;
    if let Some(line) = lives {
        diagnostics::say(&line);
    }
    print(&format!("{name}\n"))?;
    Ok(Exit::Done)
}

/// Starts this program again as the keeper, and returns its process when its mux accepts clients.
/// The app starts then, or when it has a client.
fn start_in_background(app: &AppName, awaits_client: bool) -> Result<Pid> {
    let what = || format!("cannot start the mux of app {app}");
    let ready = ready_socket().with_context(what)?;
    let command = background_command(&ready).and_then(|mut command| {
        command.env(NAME, app.as_str()).env(AWAIT_CLIENT, if awaits_client { "1" } else { "0" });
        command.spawn()
    });
    let mut child = command.with_context(what)?;
    let Some(stderr) = child.stderr.take() else { bail!("{}: no pipe", what()) };
    wait_until_ready(&ready, stderr.into(), &mut child)?;
    let pid = i32::try_from(child.id()).with_context(what)?;
    Ok(Pid::from_raw(pid))
}

/// A datagram socket for systemd's readiness protocol, with a name that the kernel chose.
fn ready_socket() -> io::Result<UnixDatagram> {
    let fd = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::PassCred, &true)?;
    bind(fd.as_raw_fd(), &UnixAddr::new_unnamed())?;
    Ok(fd.into())
}

/// This program, as the keeper alone.
fn background_command(ready: &UnixDatagram) -> io::Result<Command> {
    let address: SocketAddr = ready.local_addr()?;
    let name = address.as_abstract_name().ok_or_else(|| io::Error::other("no address"))?;
    let mut notify = OsString::from("@");
    notify.push(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
    let mut command = Command::new(env::current_exe()?);
    // The same arguments again; AWAIT_CLIENT selects the keeper.
    command.args(env::args_os().skip(1));
    command.env("NOTIFY_SOCKET", notify);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    calls::in_own_session(&mut command, false);
    Ok(command)
}

/// Whether the next message is READY and comes from that process. Any process can send here.
fn is_ready_from(ready: &UnixDatagram, pid: u32) -> nix::Result<bool> {
    let mut message = [0; 256];
    let mut parts = [io::IoSliceMut::new(&mut message)];
    let mut space = cmsg_space!(UnixCredentials);
    let got =
        recvmsg::<()>(ready.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
    let is_of = |part| match part {
        ControlMessageOwned::ScmCredentials(sender) => u32::try_from(sender.pid()) == Ok(pid),
        _ => false,
    };
    let is_its = got.cmsgs()?.any(is_of);
    let len = got.bytes;
    Ok(is_its && message[..len].starts_with(b"READY=1"))
}

/// Waits for READY. If the mux ends instead, fails with its last message.
fn wait_until_ready(ready: &UnixDatagram, stderr: OwnedFd, child: &mut Child) -> Result<()> {
    let mut stderr = std::fs::File::from(stderr);
    let mut said = Vec::new();
    loop {
        let mut fds = [
            PollFd::new(ready.as_fd(), PollFlags::POLLIN),
            PollFd::new(stderr.as_fd(), PollFlags::POLLIN),
        ];
        ready::wait(&mut fds, None).context("cannot wait for the mux")?;
        let some = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let (is_ready, has_said) = (some(&fds[0]), some(&fds[1]));
        if is_ready {
            if is_ready_from(ready, child.id()).context("cannot wait for the mux")? {
                return Ok(());
            }
        } else if has_said {
            let mut piece = [0; 4096];
            match stderr.read(&mut piece).context("cannot wait for the mux")? {
                0 => {
                    let status = child.wait().context("cannot wait for the mux")?;
                    let said = String::from_utf8_lossy(&said);
                    // The last line has the reason.
                    let why = said.lines().last().and_then(|line| line.strip_prefix("iottymux: "));
                    bail!("{}", why.map_or(format!("the mux ended ({status})"), str::to_owned));
                }
                len => said.extend_from_slice(&piece[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the socket is in /proc/net/unix, for everybody to read.
    #[test]
    fn only_the_mux_says_that_it_is_ready() {
        let ready = ready_socket().unwrap();
        let stranger = UnixDatagram::unbound().unwrap();
        stranger.send_to_addr(b"READY=1", &ready.local_addr().unwrap()).unwrap();
        let mut mux = Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
        let stderr = mux.stderr.take().unwrap();
        let error = wait_until_ready(&ready, stderr.into(), &mut mux).unwrap_err();
        assert!(error.to_string().contains("the mux ended (exit status: 0)"), "{error}");
    }
}
