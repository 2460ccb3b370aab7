//! A state directory of its own for each test, the binary in it, and the app's and clients' ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc::O_NOCTTY;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use serde_json::Value;
use tempfile::TempDir;

use crate::form;
use crate::proc::{Proc, Said, WATCHDOG};

/// The app of all tests.
pub const APP: &str = "demo";

pub struct Rig {
    dir: TempDir,
}

impl Rig {
    pub fn new() -> Self {
        Self { dir: form::directory("it") }
    }

    /// A place for files of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.file("state")
    }

    /// A file in the app's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.state().join(APP).join(name)
    }

    pub fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    /// The app's directory, made by the test instead of the mux.
    pub fn make_app_dir(&self) {
        fs::create_dir_all(self.path("")).unwrap();
    }

    /// One of the app's FIFOs, made by the test instead of the mux.
    pub fn make_fifo(&self, name: &str) {
        nix::unistd::mkfifo(&self.path(name), Mode::from_bits_truncate(0o600)).unwrap();
    }

    /// The binary, without anything of the environment that could change what it does.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_iottymux")), arguments)
    }

    /// The same with this copy of the binary.
    pub fn command_of<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("IOTTYMUX_STATE_DIR", self.state());
        // Tests that end a mux wait for what attach then does, unless they are about just that.
        command.env("IOTTYMUX_RECONNECT", "0");
        // Not the one of this machine.
        for kept in ["PATH", "LLVM_PROFILE_FILE", "IOTTYMUX_LOG_LEVEL"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, arguments: &[&str]) -> Proc {
        Proc::spawn(self.command(arguments))
    }

    /// The mux for FIFOs, ready.
    pub fn stream(&self) -> Proc {
        self.mux(["stream", "--app", APP])
    }

    /// The mux for a terminal, ready.
    pub fn tty(&self) -> Proc {
        self.mux(["tty", "--app", APP])
    }

    /// A mux, ready.
    pub fn mux<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Proc {
        self.start(self.command(arguments))
    }

    /// A mux, ready, from a command that was prepared.
    pub fn start(&self, mut command: Command) -> Proc {
        let path = self.file("notify");
        let _ = fs::remove_file(&path);
        let ready = UnixDatagram::bind(&path).unwrap();
        // The mux may be another user.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        command.env("NOTIFY_SOCKET", &path);
        let mux = Proc::spawn(command);
        wait_until_ready(&ready, &mux);
        mux
    }

    /// The mux for FIFOs, ready, which may have so many descriptors.
    pub fn few_descriptors(&self, most: usize, options: &[&str]) -> Proc {
        let inner = self.command([&["stream", "--app", APP], options].concat());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {most}; exec \"$@\""), "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env("IOTTYMUX_STATE_DIR", self.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.start(command)
    }

    /// A raw client; to be read to its end within the watchdog's time.
    pub fn client(&self, stream: &str) -> UnixStream {
        dial(&self.path(&format!("sock-{stream}")))
    }

    /// The app's end of an output.
    pub fn writer(&self, stream: &str) -> File {
        File::options().write(true).open(self.path(&format!("stage2-{stream}"))).unwrap()
    }

    /// The app's end of its input, read.
    pub fn reader(&self) -> Said {
        Said::follow(File::open(self.path("stage2-stdin")).unwrap())
    }

    /// The app's terminal, opened as an app does, and made raw so that bytes are what they were.
    pub fn slave(&self) -> File {
        let slave = self.slave_as_it_is();
        let mut modes = nix::sys::termios::tcgetattr(&slave).unwrap();
        nix::sys::termios::cfmakeraw(&mut modes);
        nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &modes).unwrap();
        slave
    }

    pub fn slave_as_it_is(&self) -> File {
        let path = self.path("stage2-pts");
        File::options().read(true).write(true).custom_flags(O_NOCTTY).open(path).unwrap()
    }

    /// What the mux tells of itself.
    pub fn status(&self) -> Value {
        self.try_status().expect("the mux does not answer")
    }

    /// What the mux tells of itself, if there is one that answers.
    pub fn try_status(&self) -> Option<Value> {
        let mut asked = self.run(&["status", "--app", APP, "--json"]);
        let has_answered = asked.ends() == 0;
        has_answered.then(|| serde_json::from_str(&asked.stdout.text()).unwrap())
    }

    /// `attach` with these further arguments, its input open.
    pub fn attach(&self, arguments: &[&str]) -> Proc {
        let mut command = self.command(["attach", "--app", APP].iter().chain(arguments));
        command.stdin(Stdio::piped());
        Proc::spawn(command)
    }
}

/// A connection that gives up reading when the watchdog would.
pub fn dial(path: &Path) -> UnixStream {
    let socket = UnixStream::connect(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    socket.set_write_timeout(Some(WATCHDOG)).unwrap();
    socket
}

/// Reads exactly these bytes.
pub fn expect(mut from: impl Read, want: &str) {
    let mut got = vec![0; want.len()];
    from.read_exact(&mut got).unwrap_or_else(|e| panic!("waiting for {want:?}: {e}"));
    assert_eq!(String::from_utf8_lossy(&got), want);
}

/// Reads to the end.
pub fn rest(mut from: impl Read) -> String {
    let mut got = Vec::new();
    from.read_to_end(&mut got).unwrap();
    String::from_utf8_lossy(&got).into_owned()
}

/// An abstract datagram socket, and its name as `NOTIFY_SOCKET` has it.
pub fn abstract_ready() -> (UnixDatagram, String) {
    let name = format!("iottymux-it-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
}

/// Waits for READY=1, or fails when the mux ends instead.
pub fn wait_until_ready(ready: &UnixDatagram, mux: &Proc) {
    let pid = rustix::process::Pid::from_raw(mux.pid().as_raw()).unwrap();
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut message = [0; 4096];
    loop {
        let mut fds = [
            PollFd::new(ready.as_fd(), PollFlags::POLLIN),
            PollFd::new(ended.as_fd(), PollFlags::POLLIN),
        ];
        let count = poll(&mut fds, PollTimeout::try_from(WATCHDOG).unwrap()).unwrap();
        assert!(count > 0, "the mux is not ready: {}", mux.stderr.so_far());
        let told = fds[0].revents().is_some_and(|events| !events.is_empty());
        assert!(told, "the mux ended instead of being ready: {}", mux.stderr.text());
        let len = ready.recv(&mut message).unwrap();
        if String::from_utf8_lossy(&message[..len]).lines().any(|line| line == "READY=1") {
            return;
        }
    }
}
