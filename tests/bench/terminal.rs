//! Apps on a terminal, each with its mux or without one.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

use super::pair::pair;
use super::process::{Bench, Killed, Mux, conmon, conmon_serves, quiet, wait_for};
use super::tools::Tool;

/// An app on a terminal.
pub struct Terminal {
    /// The other end, without a mux.
    pub master: Option<File>,
    /// The socket of its clients; empty without a mux.
    pub socket: PathBuf,
    /// The process whose CPU time counts.
    pub pid: u32,
    _mux: Option<Mux>,
    _children: Vec<Killed>,
}

/// Starts the app, these words, on a terminal of this tool.
pub fn start(bench: &Bench, tool: Tool, dir: &Path, words: &[String]) -> Terminal {
    match tool {
        Tool::Iottymux | Tool::Session | Tool::Other => ours(bench, tool, words),
        Tool::Conmon => {
            let child = quiet(&mut conmon(bench, dir, words, "off:", true));
            of_child(child, conmon_serves(dir))
        }
        Tool::Dtach => {
            let socket = dir.join("socket");
            let (_, slave) = pair();
            let mut dtach = Command::new("dtach");
            // In front, so that it can be killed.
            dtach.arg("-N").arg(&socket).args(words);
            dtach.stdin(slave.try_clone().unwrap()).stdout(slave).stderr(Stdio::null());
            let child = Killed(dtach.spawn().unwrap());
            wait_for("dtach serves", || socket.exists());
            of_child(child, socket)
        }
        Tool::Tmux => tmux(dir, words),
        _ => {
            let (master, slave) = pair();
            let app = on(slave, words);
            Terminal {
                master: Some(master),
                socket: PathBuf::new(),
                pid: app.id(),
                _mux: None,
                _children: vec![app],
            }
        }
    }
}

fn of_child(child: Killed, socket: PathBuf) -> Terminal {
    Terminal { master: None, socket, pid: child.id(), _mux: None, _children: vec![child] }
}

/// An app whose terminal this is.
fn on(slave: File, words: &[String]) -> Killed {
    let mut app = Command::new(&words[0]);
    app.args(&words[1..]).stdin(slave.try_clone().unwrap()).stdout(slave).stderr(Stdio::null());
    Killed(app.process_group(0).spawn().unwrap())
}

fn ours(bench: &Bench, tool: Tool, words: &[String]) -> Terminal {
    let mux = bench.mux(tool, "tty", &[]);
    let socket = if tool == Tool::Session { "sock-session" } else { "sock-tty" };
    let slave = File::options().read(true).write(true).open(mux.file("stage2-pts")).unwrap();
    Terminal {
        master: None,
        socket: mux.file(socket),
        pid: mux.child.id(),
        _children: vec![on(slave, words)],
        _mux: Some(mux),
    }
}

/// tmux with one window, which no client shows.
fn tmux(dir: &Path, words: &[String]) -> Terminal {
    let socket = dir.join("tmux");
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let mut server = Command::new("tmux");
    // In front, so that it can be killed.
    let server = quiet(server.args(["-D", "-f", "/dev/null", "-S"]).arg(&socket));
    wait_for("tmux serves", || UnixStream::connect(&socket).is_ok());
    let mut client = Command::new("tmux");
    client.arg("-S").arg(&socket).args(["new-session", "-d", "-x", "80", "-y", "24"]);
    assert!(client.arg(quoted.join(" ")).status().unwrap().success(), "tmux failed");
    of_child(server, socket)
}

/// conmon's runtime: starts the app on a new terminal, and hands that over.
#[expect(clippy::zombie_processes, reason = "conmon waits for the app")]
pub fn give(console: &str, pid: &str, words: &[String]) {
    let (master, slave) = pair();
    let mut app = Command::new("setsid");
    app.arg("--ctty").args(words).stdin(slave.try_clone().unwrap());
    let app = app.stdout(slave.try_clone().unwrap()).stderr(slave).spawn().unwrap();
    let to = UnixStream::connect(console).unwrap();
    let fds = [master.as_raw_fd()];
    let (name, rights) = ([IoSlice::new(b"/dev/pts/bench")], [ControlMessage::ScmRights(&fds)]);
    sendmsg::<UnixAddr>(to.as_raw_fd(), &name, &rights, MsgFlags::empty(), None).unwrap();
    fs::write(pid, app.id().to_string()).unwrap();
}
