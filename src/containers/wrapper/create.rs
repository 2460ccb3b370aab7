//! `create` with a mux between the container and the engine.
//!
//! The mux starts while the runtime creates the container: on the container's pipes, or as soon as
//! the runtime has made the terminal. It is ready before the engine gets an answer, and so before
//! the engine can start the container. If there is no mux in time, the container is deleted and
//! created again, untouched, or the engine gets the container's own terminal.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use super::container_app::send_process;
use super::container_ends::{EngineTerminal, PipeEnds};
use super::exit_holder::{Held, exit_of};
use super::keeper::{KeeperStart, NewKeeper};
use super::runtime::{self, Runtime};
use crate::containers::console;
use crate::containers::oci::{Config, Create};
use crate::mux::{TERMINAL, engine_end};
use crate::sys::state::StateDir;
use crate::sys::{calls, fd_message};
use crate::types::exit::Exit;
use crate::types::stream::Stream;

/// What the engine expects besides a descriptor on its console socket: as runc sends it.
const PAYLOAD: &[u8] = b"/dev/ptmx";

/// The outcome of `create`.
pub(super) struct Created {
    /// The exit code of the runtime.
    pub(super) exit: Exit,
    /// The container, if its end is to be held.
    pub(super) held: Option<Held>,
}

/// Creates a container with a mux; an error means that there is none and no container.
pub(super) fn create(runtime: &Runtime, create: &Create, config: &Config) -> Result<Created> {
    if let Some(complaint) = &runtime.complaint {
        runtime::warn(&create.call, complaint);
    }
    let keeper = KeeperStart::new(runtime, &create.call, &create.id, config)?;
    let scratch = Scratch::new(&keeper.state)?;
    let starter = Starter { runtime, create, keeper, scratch };
    match &create.console_socket {
        Some(socket) if config.has_terminal() => starter.with_terminal(socket),
        Some(_) => bail!("its engine gives it a console socket and no terminal"),
        None if config.has_terminal() => bail!("its engine gives its terminal no console socket"),
        None => starter.with_pipes(),
    }
}

/// See the module.
struct Starter<'a> {
    runtime: &'a Runtime,
    create: &'a Create,
    keeper: KeeperStart<'a>,
    scratch: Scratch,
}

impl Starter<'_> {
    fn with_pipes(self) -> Result<Created> {
        let ends = PipeEnds::new().context("cannot make its pipes")?;
        let PipeEnds { for_container, streams, kept } = ends;
        let keeper = self.keeper.start(&streams, kept)?;
        let [stdin, stdout, stderr] = for_container;
        let mut command = self.command(None);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        // From here on the container exists, or its runtime has said why not.
        let created = command.status();
        drop(command);
        match keeper.ready() {
            Ok(keeper) => self.finish(created, Some(keeper)),
            Err(e) if is_success(&created) => self.delete().and(Err(e)),
            // What the runtime has said is lost. It says it again, to the engine.
            Err(e) => Err(e),
        }
    }

    /// Deletes the container, which nothing has been started in.
    fn delete(&self) -> Result<()> {
        let mut command = Command::new(&self.runtime.program);
        command.args(self.create.deletion()).stdout(Stdio::null()).stderr(Stdio::null());
        let deleted = command.stdin(Stdio::null()).status().context("cannot delete it")?;
        if !deleted.success() {
            bail!("its runtime cannot delete it ({deleted})");
        }
        Ok(())
    }

    fn with_terminal(self, engine: &Path) -> Result<Created> {
        let path = self.scratch.0.join("console");
        let console = console::listen(&path)?;
        let child = self.command(Some(path.as_os_str())).spawn();
        let master = match &child {
            Ok(child) => receive_master(&console, child),
            Err(_) => Ok(None),
        };
        let master = master.inspect_err(|e| self.complain(e)).ok().flatten();
        let between = master.as_ref().map(|master| self.put_terminal_between(master));
        // The runtime waits until it was received, so this says how the rest went.
        let created = child.and_then(|mut child| child.wait());
        let (Some(master), Some(between)) = (master, between) else {
            return self.finish(created, None);
        };
        if !is_success(&created) {
            return self.finish(created, between.ok().map(|(_, keeper)| keeper));
        }
        let between = between.and_then(|(terminal, keeper)| Ok((terminal, keeper.ready()?)));
        let (for_engine, keeper) = match between {
            Ok((terminal, keeper)) => (terminal, Some(keeper)),
            Err(e) => {
                self.complain(&e);
                (master, None)
            }
        };
        if let Err(e) = send_master(engine, &for_engine) {
            if let Some(keeper) = keeper {
                keeper.end(&self.keeper.app);
            }
            return self.delete().and(Err(e));
        }
        self.finish(created, keeper)
    }

    /// Gives the container's terminal to a mux; returns the one for the engine.
    fn put_terminal_between(&self, master: &OwnedFd) -> Result<(OwnedFd, NewKeeper)> {
        let terminal =
            EngineTerminal::new(master).context("cannot make a terminal for the engine")?;
        let kept = vec![
            (TERMINAL.to_owned(), master.try_clone()?),
            (engine_end(Stream::Tty), terminal.kept),
        ];
        let keeper = self.keeper.start(&[Stream::Tty], kept)?;
        Ok((terminal.master, keeper))
    }

    fn complain(&self, why: &anyhow::Error) {
        let what = format!("container {}: it has no mux: {why:#}", self.create.id);
        runtime::warn(&self.create.call, &what);
    }

    /// The real `create`.
    fn command(&self, console: Option<&OsStr>) -> Command {
        let mut command = Command::new(&self.runtime.program);
        command.args(self.create.with(console, self.scratch.pid_file().as_os_str()));
        // As the runtime itself would end with this process.
        calls::ending_with_parent(&mut command, Signal::SIGKILL);
        command
    }

    /// Tells the keeper how the runtime ended, and returns that.
    fn finish(
        &self,
        created: io::Result<ExitStatus>,
        keeper: Option<NewKeeper>,
    ) -> Result<Created> {
        let status = created
            .with_context(|| format!("cannot execute {}", self.runtime.program.display()))?;
        let held = match keeper {
            Some(keeper) if status.success() => match self.hand_over(&keeper) {
                Ok(process) => Some(Held { process, keeper: keeper.socket }),
                // Nothing would read its output.
                Err(e) => {
                    keeper.end(&self.keeper.app);
                    return self.delete().and(Err(e));
                }
            },
            Some(keeper) => {
                keeper.end(&self.keeper.app);
                None
            }
            None => None,
        };
        Ok(Created { exit: exit_of(status), held })
    }

    /// Gives the keeper the container's process, and returns that.
    fn hand_over(&self, keeper: &NewKeeper) -> Result<OwnedFd> {
        let pid = self.pid().context("its PID is not known")?;
        let process = rustix::process::Pid::from_raw(pid).context("it has no process")?;
        let fd = pidfd_open(process, PidfdFlags::empty()).context("its process has ended")?;
        send_process(&keeper.socket, Pid::from_raw(pid), &fd)?;
        Ok(fd)
    }

    /// The PID in the file that the runtime has written. The engine may have moved that already, and runtimes
    /// take a relative path from different directories: then the runtime is asked.
    fn pid(&self) -> Option<i32> {
        let own = self.scratch.pid_file();
        let path = self.create.pid_file.as_ref().unwrap_or(&own);
        let text = path.is_absolute().then(|| fs::read_to_string(path).ok()).flatten();
        text.and_then(|text| text.trim().parse().ok()).or_else(|| {
            let state = self.runtime.container_state(&self.create.call, &self.create.id)?;
            state.is_alive().then_some(state.pid)
        })
    }
}

/// Whether a runtime has done its work.
fn is_success(created: &io::Result<ExitStatus>) -> bool {
    created.as_ref().is_ok_and(ExitStatus::success)
}

/// Files for the runtime, gone with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(state: &StateDir) -> Result<Self> {
        let path = state.scratch(std::process::id())?;
        Ok(Self(path))
    }

    fn pid_file(&self) -> PathBuf {
        self.0.join("pid")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits for the terminal that the runtime makes; `None` if it ends without.
fn receive_master(console: &UnixListener, child: &Child) -> Result<Option<OwnedFd>> {
    let pid = rustix::process::Pid::from_child(child);
    let runtime = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the runtime")?;
    console::receive(console, &runtime)
}

/// Sends a terminal to the engine, as the runtime would.
fn send_master(socket: &Path, master: &OwnedFd) -> Result<()> {
    let what = || format!("cannot send the terminal to {}", socket.display());
    let engine = UnixStream::connect(socket).with_context(what)?;
    fd_message::send(&engine, PAYLOAD, &[master.as_fd()]).with_context(what)
}
