//! A pod with a systemd in it, and an app's streams in that pod as the test sees them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::proc::Proc;

const PODSD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/podsd");
const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
/// The iottymux under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_iottymux");
/// What podsd exits with when this machine cannot make a pod.
const SKIPPED: i32 = 77;
/// How long a stream may be silent before the test fails. It only bounds a failure: more than the
/// longest stop of a mux (`TimeoutStopSec=` of its unit).
const SILENCE: Duration = Duration::from_secs(30);
/// How long to wait for bytes before another try, in milliseconds.
const A_MOMENT: u8 = 100;

/// A drop-in by which a mux is root and has all in one directory, as in a pod of rkt.
pub const AS_ROOT: &str = "[Service]\nUser=root\nExecCondition=\nExecStartPre=\nExecStop=\nRuntimeDirectory=\n\
    CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_SYS_RESOURCE\nSystemCallFilter=@chown\nProtectSystem=full\nPrivateDevices=no\n\
    PrivateTmp=no\nTemporaryFileSystem=\nBindPaths=\nBindReadOnlyPaths=\nLogsDirectory=\n\
    EnvironmentFile=-/run/iottymux/%i/env\n";
/// The user of the muxes in a pod (see podsd).
pub const MUX_USER: u32 = 900;
/// Where the mux of demo.service may log.
pub const LOGS: &str = "/var/log/iottymux/demo";

/// How often a test repeats what must never fail: seldom for CI, often when asked.
pub fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("IOTTYMUX_LONG").is_some() { long } else { short }
}

/// The text of a file of the project.
pub fn project_file(path: &str) -> String {
    fs::read_to_string(Path::new(PROJECT).join(path)).unwrap()
}

/// Why this machine cannot make a pod; `None` when it can.
pub fn reason_to_skip(check: &mut Command) -> Option<String> {
    let output = check.output().unwrap();
    match output.status.code() {
        Some(0) => None,
        Some(SKIPPED) => Some(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        _ => panic!("podsd check: {output:?}"),
    }
}

/// The command that asks podsd.
pub fn check() -> Command {
    let mut command = Command::new(PODSD);
    command.arg("check");
    command
}

/// A pod that has not been booted.
pub struct Plan {
    dir: TempDir,
}

/// A pod that runs; it ends when this is dropped.
pub struct Pod {
    dir: TempDir,
    init: i32,
    /// A pidfd of its PID 1.
    end: OwnedFd,
}

impl Plan {
    /// An empty one, or `None` after telling why there can be none.
    pub fn new() -> Option<Self> {
        if let Some(reason) = reason_to_skip(&mut check()) {
            println!("skipped: {reason}");
            return None;
        }
        let plan = Self { dir: tempfile::Builder::new().prefix("pod").tempdir().unwrap() };
        fs::create_dir(plan.dir.path().join("shared")).unwrap();
        Some(plan)
    }

    /// A unit, or a drop-in (`NAME.service.d/x.conf`).
    pub fn unit(self, name: &str, text: &str) -> Self {
        self.write(&format!("units/{name}"), text)
    }

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

    /// A FIFO that is /shared/NAME inside.
    pub fn shared_fifo(self, name: &str) -> Self {
        make_fifo(&self.dir.path().join("shared").join(name));
        self
    }

    fn write(self, path: &str, text: &str) -> Self {
        write_below(self.dir.path(), path, text);
        self
    }

    /// The templates and the two examples, as they are delivered.
    pub fn with_delivered_units(mut self) -> Self {
        for path in [
            "units/iomux@.service",
            "units/ttymux@.service",
            "units/iojournal@.service",
            "docs/examples/demo.service",
            "docs/examples/shell.service",
        ] {
            let name = path.rsplit('/').next().unwrap();
            self = self.unit(name, &project_file(path));
        }
        self
    }

    pub fn boot(self) -> Pod {
        let output = Command::new(PODSD)
            .arg("up")
            .arg(self.dir.path())
            .env("PODSD_BINARY", BINARY)
            .env("PODSD_OWNER", std::process::id().to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "podsd up: {output:?}");
        let init = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(init).unwrap();
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        Pod { dir: self.dir, init, end }
    }
}

fn write_below(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn make_fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

impl Pod {
    /// A pod with the delivered units.
    pub fn delivered() -> Option<Self> {
        Some(Plan::new()?.with_delivered_units().boot())
    }

    /// A command inside.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PODSD);
        command.arg("exec").arg(self.dir.path()).args(words).stdin(Stdio::null());
        command
    }

    /// What a command inside printed; it must succeed.
    pub fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", self.console());
        String::from_utf8(output.stdout).unwrap()
    }

    /// How a command inside ended.
    pub fn try_run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub fn systemctl(&self, words: &[&str]) -> String {
        self.run(&[&["systemctl"], words].concat())
    }

    /// A property of a unit.
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", "--value", "-p", name, unit]).trim().to_owned()
    }

    /// Changes a unit or a drop-in.
    pub fn set_unit(&self, name: &str, text: &str) {
        write_below(&self.dir.path().join("units"), name, text);
        self.systemctl(&["daemon-reload"]);
    }

    /// A file that is /shared/NAME inside.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.dir.path().join("shared").join(name)
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

    /// A path of the pod's root, as seen from here.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// The names in a directory inside, sorted.
    pub fn names(&self, inside: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(inside)).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What PID 1 said, for the message of a failure.
    pub fn console(&self) -> String {
        fs::read_to_string(self.dir.path().join("console.log")).unwrap_or_default()
    }

    /// Waits until an app can be attached, and fails when it cannot. `mode` is one that only types:
    /// its input being at its end at once, it leaves as soon as it was attached.
    pub fn await_mux(&self, app: &str, mode: &str) {
        let attach = ["iottymux", "attach", "--wait=25", "--app", app, "--mode", mode];
        self.run(&[&["timeout", "30"], &attach[..]].concat());
    }

    /// Waits until the pod has ended by itself, for as long as a stream may be silent.
    pub fn await_end(&self) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let ended = poll(
            &mut [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)],
            PollTimeout::try_from(SILENCE).unwrap(),
        );
        assert_eq!(ended, Ok(1), "{}", self.console());
    }

    /// Where the mux of an app in `/run/iottymux` has its files.
    pub fn mux_dir(&self, app: &str) -> String {
        let dir = format!("/run/iottymux/{app}");
        let own = format!("{dir}/mux");
        if self.path(&own).is_dir() { own } else { dir }
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
}

impl Drop for Pod {
    fn drop(&mut self) {
        let done = Command::new(PODSD).arg("down").arg(self.dir.path()).status();
        if !std::thread::panicking() {
            assert!(done.unwrap().success());
        }
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
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        bytes
    }
}
