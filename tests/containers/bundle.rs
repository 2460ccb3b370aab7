//! Containers by hand: a bundle with busybox, a runtime, and this test in the place of the engine.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::fcntl::OFlag;
use nix::unistd::{Uid, pipe2};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::installed::is_installed;
use crate::proc::eventually;
use crate::proc::{Proc, Said};
use crate::skip::skip;

/// The programs of busybox that containers use.
const APPLETS: [&str; 14] = [
    "cat", "dd", "echo", "false", "head", "kill", "md5sum", "seq", "sh", "sleep", "stty", "tr",
    "tty", "yes",
];
const BUSYBOX: &str = "/bin/busybox";

/// A place for bundles, and the runtimes.
pub struct Rig {
    dir: TempDir,
    /// The state directory of the apps.
    pub state: PathBuf,
    /// The engine's namespace.
    pub namespace: &'static str,
}

impl Rig {
    /// None, and why is printed, where a container cannot be run.
    pub fn new() -> Option<Self> {
        if !Uid::effective().is_root() {
            skip("root", "only root runs containers here");
            return None;
        }
        for program in ["runc", "busybox"] {
            if !is_installed(program) {
                skip(program, "it is not installed");
                return None;
            }
        }
        let dir = tempfile::Builder::new().prefix("oci").tempdir().unwrap();
        let state = dir.path().join("state");
        let rig = Self { dir, state, namespace: "default" };
        make_root(&rig.path("root"));
        symlink(env!("CARGO_BIN_EXE_iottymux"), rig.wrapper()).unwrap();
        Some(rig)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// This program as a runtime.
    pub fn wrapper(&self) -> PathBuf {
        self.path("iottymux-runc")
    }

    /// A call of a runtime, with a place of its own for its containers.
    pub fn call(&self, runtime: impl AsRef<Path>) -> Command {
        let mut command = Command::new(runtime.as_ref());
        // The last part is the namespace.
        command
            .arg("--root")
            .arg(self.path("runtime").join(self.namespace))
            .current_dir(self.dir.path());
        command.env("IOTTYMUX_STATE_DIR", &self.state).env_remove("IOTTYMUX_LOG_LEVEL");
        command
    }

    /// This program as a client, without a terminal.
    pub fn client(&self, arguments: &[&str]) -> Proc {
        Proc::spawn(self.client_command(arguments))
    }

    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iottymux"));
        command.args(arguments).env("IOTTYMUX_STATE_DIR", &self.state);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What `status` knows of an app, as JSON; of one that has ended, too.
    pub fn status(&self, id: &str) -> Option<Value> {
        let mut command = self.client_command(&["status", "--json", "--app", id]);
        let output = command.output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The process of an app's mux.
    pub fn mux(&self, id: &str) -> i32 {
        let status = self.status(id).unwrap();
        status["mux_pid"].as_i64().unwrap_or_else(|| panic!("{status}")).try_into().unwrap()
    }

    /// Waits until the app has ended; what it wrote on a stream, as the mux has counted it.
    pub fn served(&self, id: &str, stream: &str) -> u64 {
        eventually("the mux has ended", || {
            self.status(id).is_some_and(|status| status.get("mux_pid").is_none())
        });
        let status = self.status(id).unwrap();
        let streams = status["streams"].as_array().unwrap();
        let found = streams.iter().find(|entry| entry["stream"] == stream);
        found.unwrap_or_else(|| panic!("{status}"))["bytes"].as_u64().unwrap()
    }

    /// A container of this script.
    pub fn bundle(&self, id: &str, script: &str) -> Bundle<'_> {
        Bundle::new(self, id, script)
    }

    /// The processes of this program for containers of this rig.
    pub fn processes(&self) -> Vec<String> {
        let ours = format!("IOTTYMUX_STATE_DIR={}", self.state.display());
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let of = |path: PathBuf| -> Option<String> {
            let environment = fs::read(path.join("environ")).ok()?;
            let has = environment.split(|b| *b == 0).any(|variable| variable == ours.as_bytes());
            let line = fs::read(path.join("cmdline")).ok().filter(|_| has)?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // The engine has this variable, too.
            [" oci-keeper ", " container "].iter().any(|word| line.contains(word)).then_some(line)
        };
        entries.filter_map(|entry| of(entry.path())).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            eventually("all processes have ended", || self.processes().is_empty());
        }
    }
}

/// A root directory with busybox.
pub fn make_root(root: &Path) {
    for dir in ["bin", "dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
}

/// A container that can be created.
pub struct Bundle<'a> {
    rig: &'a Rig,
    pub id: String,
    pub config: Value,
    pub runtime: PathBuf,
    /// Options between the runtime and `create`.
    pub globals: Vec<String>,
    /// Options of `create` beside the bundle.
    pub options: Vec<String>,
    /// The variables of the runtime.
    pub variables: Vec<(String, String)>,
}

impl<'a> Bundle<'a> {
    fn new(rig: &'a Rig, id: &str, script: &str) -> Self {
        let dir = rig.path(&format!("bundle-{id}"));
        fs::create_dir_all(&dir).unwrap();
        let _ = fs::remove_file(dir.join("config.json"));
        let made = Command::new("runc").arg("spec").current_dir(&dir).status().unwrap();
        assert!(made.success());
        let text = fs::read(dir.join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
        config["root"] = json!({ "path": rig.path("root"), "readonly": false });
        let options = vec!["--pid-file".to_owned(), dir.join("pid").display().to_string()];
        let runtime = rig.wrapper();
        let (globals, variables) = (Vec::new(), Vec::new());
        Self { rig, id: id.to_owned(), config, runtime, globals, options, variables }
    }

    pub fn dir(&self) -> PathBuf {
        self.rig.path(&format!("bundle-{}", self.id))
    }

    pub fn terminal(mut self) -> Self {
        self.config["process"]["terminal"] = json!(true);
        self
    }

    pub fn plain(mut self) -> Self {
        self.runtime = "runc".into();
        self
    }

    /// The call of `create`, without its descriptors.
    pub fn create(&self) -> Command {
        let text = serde_json::to_vec(&self.config).unwrap();
        fs::write(self.dir().join("config.json"), text).unwrap();
        let mut command = self.rig.call(&self.runtime);
        command.args(&self.globals).arg("create").args(&self.options);
        command.arg("--bundle").arg(self.dir()).arg(&self.id);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Creates it with pipes for its output, and what the runtime itself printed.
    pub fn output(&self) -> Output {
        self.create().output().unwrap()
    }

    /// Creates it on pipes, of which this test has the engine's ends.
    pub fn engine(self) -> Container<'a> {
        let (stdin, for_stdin) = pipe();
        let mut container = self.engine_with(Stdio::from(stdin));
        container.stdin = Some(File::from(for_stdin));
        container
    }

    /// As [`Bundle::engine`], with this in the place of the input.
    pub fn engine_with(self, stdin: Stdio) -> Container<'a> {
        let [(stdout, to_stdout), (stderr, to_stderr)] = [pipe(), pipe()];
        let mut command = self.create();
        command.stdin(stdin).stdout(to_stdout).stderr(to_stderr);
        let status = command.status().unwrap();
        drop(command);
        assert!(status.success(), "{status}: {:?}", Said::follow(File::from(stderr)).text());
        let [stdout, stderr] = [stdout, stderr].map(|fd| Some(File::from(fd)));
        Container { bundle: self, stdin: None, stdout, stderr }
    }

    /// It was created on this pipe: starts it, and returns all that the engine gets.
    pub fn run_on(self, stdout: OwnedFd) -> String {
        let container = Container { bundle: self, stdin: None, stdout: None, stderr: None };
        container.start();
        Said::follow(File::from(stdout)).text()
    }

    /// Creates it with a console socket; returns the engine's terminal.
    pub fn engine_terminal(mut self) -> (Container<'a>, File) {
        let path = self.dir().join("console");
        let listener = UnixListener::bind(&path).unwrap();
        self.options.extend(["--console-socket".to_owned(), path.display().to_string()]);
        let output = self.create().stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (sender, _) = listener.accept().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut payload = [0; 64];
        let mut parts = [std::io::IoSliceMut::new(&mut payload)];
        recvmsg(&sender, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let master: Option<OwnedFd> = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let container = Container { bundle: self, stdin: None, stdout: None, stderr: None };
        (container, master.unwrap().into())
    }
}

/// A container that was created; it is deleted with this.
pub struct Container<'a> {
    pub bundle: Bundle<'a>,
    /// What the engine types.
    pub stdin: Option<File>,
    pub stdout: Option<File>,
    pub stderr: Option<File>,
}

impl Container<'_> {
    pub fn start(&self) {
        self.call(&["start"]);
    }

    /// What the runtime prints.
    pub fn call(&self, words: &[&str]) -> Vec<u8> {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        output.stdout
    }

    fn output(&self, words: &[&str]) -> Output {
        let rig = self.bundle.rig;
        let mut command = rig.call(rig.wrapper());
        command.envs(self.bundle.variables.iter().map(|(name, value)| (name, value)));
        command.args(words).arg(&self.bundle.id).output().unwrap()
    }

    /// Reads what the engine gets.
    pub fn read(&mut self) -> [Said; 2] {
        [self.stdout.take(), self.stderr.take()].map(|end| Said::follow(end.unwrap()))
    }

    /// Starts it, and returns all that the engine gets.
    pub fn run(mut self) -> [Vec<u8>; 2] {
        let said = self.read();
        drop(self.stdin.take());
        self.start();
        said.map(|said| said.bytes())
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.output(&["delete", "--force"]);
    }
}

/// Has this test be what containerd's shim is for a runtime, which looks at the name of its parent.
pub fn be_a_shim() {
    fs::write("/proc/self/comm", "containerd-shim").unwrap();
}

/// A pipe that no other process gets by accident.
pub fn pipe() -> (OwnedFd, OwnedFd) {
    pipe2(OFlag::O_CLOEXEC).unwrap()
}

/// The size of a terminal: rows and columns.
pub fn size_of(terminal: impl AsFd) -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(terminal).unwrap();
    (size.ws_row, size.ws_col)
}
