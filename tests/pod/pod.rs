//! What the tests here do with a pod beside what all tests do, and an app's streams in that pod.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::form::is_long;
use crate::podsd::SILENCE;
pub use crate::podsd::{BINARY, MUX_USER, PROGRAM, Plan, Pod, check, project_file, reason_to_skip};
use crate::proc::Proc;
use crate::proc::eventually;
use crate::skip::skip;

/// How long to wait for bytes before another try, in milliseconds.
const A_MOMENT: u8 = 100;

/// A drop-in by which a mux is root and has all in one directory, as in a pod of rkt.
pub const AS_ROOT: &str = "[Service]\nUser=root\nExecStop=\nRuntimeDirectory=\n\
    CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_SYS_RESOURCE\nProtectSystem=full\nLogsDirectory=\n\
    EnvironmentFile=-/run/iottymux/%i/env\n";
/// Where the mux of demo.service may log.
pub const LOGS: &str = "/var/log/iottymux/demo";

/// How often a test repeats what must never fail: seldom for CI, often when asked.
pub fn rounds(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// The program of an older release, or `None` after telling that none is named.
pub fn other_release() -> Option<PathBuf> {
    let other = std::env::var_os("IOTTYMUX_OTHER").map(PathBuf::from);
    if other.is_none() {
        skip("other-release", "IOTTYMUX_OTHER names no other release");
    }
    other
}

impl Plan {
    /// A file of the pod's root.
    pub fn root_file(self, path: &str, text: &str) -> Self {
        self.write(&format!("tree/{path}"), text)
    }

    /// A program in the pod's root.
    pub fn root_program(self, path: &str, text: &str) -> Self {
        self.root_file(path, text).root_mode(path, 0o755)
    }

    /// The mode of a file or directory of the pod's root.
    pub fn root_mode(self, path: &str, mode: u32) -> Self {
        let path = self.dir.path().join("tree").join(path.trim_start_matches('/'));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// Boots in another system, which gets the program under test and its user.
    pub fn boot_in(self, root: &Path) -> Pod {
        let sysusers = project_file("units/iottymux.sysusers");
        let plan = self.root_file("etc/sysusers.d/iottymux.conf", &sysusers);
        let pod = plan.boot_with("PODSD_ROOT", root);
        fs::copy(BINARY, pod.path(PROGRAM)).unwrap();
        pod.run(&["systemd-sysusers"]);
        pod
    }

    /// A FIFO that is /shared/NAME inside.
    pub fn shared_fifo(self, name: &str) -> Self {
        make_fifo(&self.dir.path().join("shared").join(name));
        self
    }
}

fn make_fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

impl Pod {
    /// A pod with the delivered units.
    pub fn delivered() -> Option<Self> {
        Some(Plan::new()?.with_delivered_units().boot())
    }

    /// A FIFO that is /shared/NAME inside.
    pub fn shared_fifo(&self, name: &str) -> PathBuf {
        let path = self.shared(name);
        make_fifo(&path);
        path
    }

    /// Makes /shared/log, which the muxes may write to.
    pub fn make_log_dir(&self) {
        let dir = self.shared("log");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(dir, Some(MUX_USER), Some(MUX_USER)).unwrap();
    }

    /// The names in a directory inside, sorted.
    pub fn names(&self, inside: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(inside)).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Waits until an app can be attached, and fails when it cannot. `mode` is one that only types:
    /// its input being at its end at once, it leaves as soon as it was attached.
    pub fn await_mux(&self, app: &str, mode: &str) {
        let attach = ["iottymux", "attach", "--wait=25", "--app", app, "--mode", mode];
        self.run(&[&["timeout", "30"], &attach[..]].concat());
    }

    /// Sends PID 1 a signal, from outside: SIGSTOP stops it.
    pub fn signal_init(&self, signal: Signal) {
        kill(Pid::from_raw(self.init), signal).unwrap();
    }

    /// Waits until the pod has ended by itself.
    pub fn await_end(&self) {
        assert!(self.has_ended(), "{}", self.console());
    }

    /// Where the mux of an app in `/run/iottymux` has its files.
    pub fn mux_dir(&self, app: &str) -> String {
        let dir = format!("/run/iottymux/{app}");
        let own = format!("{dir}/mux");
        if self.path(&own).is_dir() { own } else { dir }
    }

    /// Has an app get another mux by `does`, and waits until all of its clients are back.
    pub fn await_next_mux<T>(&self, app: &str, unit: &str, does: impl FnOnce() -> T) {
        let mux = || self.property(unit, "MainPID");
        let clients = || {
            let asked = self.try_run(&["iottymux", "status", "--app", app]);
            String::from_utf8_lossy(&asked.stdout).matches("\nclient ").count()
        };
        let before = (mux(), clients());
        does();
        eventually("there is another mux", || ![&*before.0, "0"].contains(&&*mux()));
        eventually("all are back", || clients() == before.1);
    }

    /// The numbers of the clients that are attached.
    pub fn clients(&self, app: &str) -> Vec<String> {
        let status = self.run(&["iottymux", "status", "--app", app]);
        let number = |line: &str| Some(line.strip_prefix("client ")?.split(' ').next()?.to_owned());
        status.lines().filter_map(number).collect()
    }

    /// Attaches to a socket of an app in `/run/iottymux`.
    pub fn connect(&self, app: &str, socket: &str) -> Raw {
        self.connect_at(&format!("{}/{socket}", self.mux_dir(app)))
    }

    /// Attaches to a socket.
    pub fn connect_at(&self, inside: &str) -> Raw {
        let path = self.path(inside);
        let stream = UnixStream::connect(&path)
            .unwrap_or_else(|e| panic!("{inside}: {e}\n{}", self.console()));
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        Raw(BufReader::new(stream))
    }

    /// Starts a command inside that a test talks to.
    pub fn talk(&self, words: &[&str]) -> Proc {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Proc::spawn(command)
    }
}

/// A connection to a raw socket, as socat or rkt would make it, or to the input and output of a client.
pub struct Raw(BufReader<UnixStream>);

impl Raw {
    /// Starts a client with this as its input and output.
    pub fn of(mut client: Command) -> (Proc, Self) {
        let (stream, inside) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        client.stdin(OwnedFd::from(inside.try_clone().unwrap())).stdout(OwnedFd::from(inside));
        (Proc::spawn(client), Self(BufReader::new(stream)))
    }

    pub fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Whether bytes arrive within a moment.
    pub fn has_bytes(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let readable = &mut [PollFd::new(self.0.get_ref().as_fd(), PollFlags::POLLIN)];
        !self.0.buffer().is_empty() || poll(readable, PollTimeout::from(A_MOMENT)) == Ok(1)
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the stream ended after {line:?}");
        line.trim_end().to_owned()
    }

    /// Reads lines up to one that ends so, and returns it.
    pub fn line_ending(&mut self, end: &str) -> String {
        loop {
            let line = self.line();
            if line.ends_with(end) {
                return line;
            }
        }
    }

    /// Everything up to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        self.try_rest().unwrap()
    }

    /// The same, or why it does not end.
    pub fn try_rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Whether a person who was told that the mux is gone, in what was shown since, is attached again. Lines over
/// the screen come again with later ones, in their order.
pub fn is_back(shown: &str) -> bool {
    let gone = shown.rfind("trying again");
    gone.is_some() && shown.rfind("attached again") > gone
}
