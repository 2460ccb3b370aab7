//! Being a mux; and `run`: the keeper of a command in the background, and an attach in front.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::scope::{self, ScopePolicy};
use super::{AWAIT_CLIENT, NAME, OUTPUT_CLOSED};
use crate::client::attach::{AttachRequest, attach, terminals};
use crate::core::wire::AppStatus;
use crate::host::enable;
use crate::mux::{Mux, MuxPlan};
use crate::sys::print::print;
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
        // As the first process of a container it gets all orphans there, and the kernel collects them.
        calls::ignore(&[Signal::SIGCHLD]).context("cannot leave orphans to the kernel")?;
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
/// The app starts then, or when it has a client. If the mux ends instead, fails with its last message.
fn start_in_background(app: &AppName, awaits_client: bool) -> Result<Pid> {
    let what = || format!("cannot start the mux of app {app}");
    let (mut ready, child) = spawn_keeper(app, awaits_client).with_context(what)?;
    let pid = i32::try_from(child.id()).with_context(what)?;
    if ready.read_exact(&mut [0]).is_ok() {
        return Ok(Pid::from_raw(pid));
    }
    let Output { status, stderr, .. } =
        child.wait_with_output().context("cannot wait for the mux")?;
    let said = String::from_utf8_lossy(&stderr);
    // The last line has the reason.
    let why = said.lines().last().and_then(|line| line.strip_prefix("iottymux: "));
    bail!("{}", why.map_or(format!("the mux ended ({status})"), str::to_owned));
}

/// This program, as the keeper alone, and what gets a byte from it when its mux is ready.
fn spawn_keeper(app: &AppName, awaits_client: bool) -> io::Result<(UnixStream, Child)> {
    let (ready, its_stdin) = UnixStream::pair()?;
    let mut command = Command::new(env::current_exe()?);
    // The same arguments again; AWAIT_CLIENT selects the keeper.
    command.args(env::args_os().skip(1)).env_remove("NOTIFY_SOCKET").env(NAME, app.as_str());
    command.env(AWAIT_CLIENT, if awaits_client { "1" } else { "0" });
    command.stdin(OwnedFd::from(its_stdin)).stdout(Stdio::null()).stderr(Stdio::piped());
    calls::in_own_session(&mut command, false);
    Ok((ready, command.spawn()?))
}

/// Reports that the mux of this keeper is ready, to whoever has started it in the background.
pub(crate) fn say_ready() {
    if let Err(e) = rustix::io::write(io::stdin(), b"\n") {
        log::warn!("cannot report that the mux is ready: {e}");
    }
}
