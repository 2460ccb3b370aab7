//! A containerd of a test: its own daemon, state and containers, all gone with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::mount::{MntFlags, umount2};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::form;
use crate::installed::is_installed;
use crate::proc::{Proc, eventually};
use crate::skip::skip;

/// The programs of a container's root directory.
const PROGRAMS: [&str; 6] = ["sh", "cat", "seq", "sleep", "kill", "true"];

/// An option of `ctr run`: its default asks for a controller, which the cgroups of a pod may not have.
pub const NO_SHARES: &str = "--cpu-shares=0";

/// The user of the muxes.
pub const USER: u32 = 64_007;

pub struct Engine {
    dir: TempDir,
    daemon: Option<Proc>,
}

impl Engine {
    /// A containerd that answers, unless it cannot be had here.
    pub fn start() -> Option<Self> {
        Self::start_as(|engine| {
            let mut daemon = Command::new("containerd");
            daemon.arg("-c").arg(engine.path("config.toml"));
            // For the runtimes that it starts.
            daemon.env("IOTTYMUX_STATE_DIR", engine.state());
            daemon
        })
    }

    /// The same on a machine that has the user of the muxes. Its state directory is the usual one.
    /// The runtimes get these variables.
    pub fn start_with_user(variables: &[(&str, &str)]) -> Option<Self> {
        Self::start_as(|engine| {
            fs::create_dir(engine.path("apps")).unwrap();
            fs::create_dir(engine.path("logs")).unwrap();
            let users = fs::read_to_string("/etc/passwd").unwrap();
            let users = users + &format!("iottymux:x:{USER}:{USER}::/:/usr/sbin/nologin\n");
            fs::write(engine.path("passwd"), users).unwrap();
            let script = "mount --bind passwd /etc/passwd; mount -t tmpfs tmpfs /run; \
                mkdir /run/iottymux; mount --bind apps /run/iottymux; mount --bind logs /var/log; \
                exec containerd -c config.toml";
            let mut daemon = Command::new("unshare");
            daemon.args(["--mount", "--propagation=private", "sh", "-ec", script]);
            daemon.current_dir(engine.path("")).env_remove("IOTTYMUX_STATE_DIR");
            daemon.envs(variables.iter().copied());
            daemon
        })
    }

    fn start_as(daemon: impl FnOnce(&Self) -> Command) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("containerd", "only root runs containerd");
            return None;
        }
        let needed = ["containerd", "ctr", "runc", "busybox"];
        if let Some(missing) = needed.into_iter().find(|program| !is_installed(program)) {
            skip("containerd", &format!("there is no {missing}"));
            return None;
        }
        // Shims leave their parent: so they come here, and are waited for.
        prctl::set_child_subreaper(true).unwrap();
        let mut engine = Self { dir: form::directory("containerd"), daemon: None };
        engine.make_root();
        let config = engine.path("config.toml");
        let at = |name: &str| engine.path(name).display().to_string();
        let text = format!(
            "version = 2\nroot = '{}'\nstate = '{}'\n\
             disabled_plugins = ['io.containerd.grpc.v1.cri']\n\
             [grpc]\naddress = '{}'\n[ttrpc]\naddress = '{}'\n",
            at("root"),
            at("state"),
            at("socket"),
            at("socket.ttrpc")
        );
        fs::write(config, text).unwrap();
        let mut daemon = daemon(&engine);
        daemon.env_remove("IOTTYMUX_LOG_LEVEL");
        daemon.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        engine.daemon = Some(Proc::spawn(daemon));
        eventually("containerd answers", || engine.ctr(&["version"]).status.success());
        Some(engine)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make_root(&self) {
        let bin = self.path("tree/bin");
        fs::create_dir_all(&bin).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let busybox = std::env::split_paths(&path).map(|dir| dir.join("busybox"));
        let busybox = busybox.filter(|file| file.is_file()).last().unwrap();
        fs::copy(busybox, bin.join("busybox")).unwrap();
        fs::set_permissions(bin.join("busybox"), fs::Permissions::from_mode(0o755)).unwrap();
        for name in PROGRAMS {
            symlink("busybox", bin.join(name)).unwrap();
        }
    }

    /// What containerd has logged.
    pub fn log(&self) -> String {
        self.daemon.as_ref().unwrap().stderr.so_far()
    }

    /// Waits for a line in containerd's log.
    pub fn wait_for_log(&self, text: &str) {
        self.daemon.as_ref().unwrap().stderr.wait_for(text);
    }

    pub fn ctr(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "30"]).arg("ctr").args(self.ctr_words(arguments));
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The arguments of ctr.
    pub fn ctr_words(&self, arguments: &[&str]) -> Vec<String> {
        let socket = self.path("socket").display().to_string();
        ["-a", &socket].iter().chain(arguments).map(|word| (*word).to_owned()).collect()
    }

    /// Runs ctr, which succeeds.
    pub fn do_ctr(&self, arguments: &[&str]) -> String {
        let output = self.ctr(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctr {arguments:?}: {said}\n{}", self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The address of our logger, with these keys besides.
    pub fn uri(&self, query: &str) -> String {
        let program = env!("CARGO_BIN_EXE_iottymux");
        let state = self.state();
        format!("binary://{program}?containerd-logger=&--state-dir={}{query}", state.display())
    }

    /// The same with the usual state directory.
    pub fn plain_uri(query: &str) -> String {
        format!("binary://{}?containerd-logger={query}", env!("CARGO_BIN_EXE_iottymux"))
    }

    /// Starts a container in the background, which runs a shell script.
    pub fn run(&self, id: &str, uri: &str, script: &str) {
        let (tree, runc) = (self.path("tree"), self.path("runc"));
        // Tests at the same time have containers with the same ids, which runc and the kernel
        // would take for one.
        let cgroup = format!("/iottymux-{}-{id}", std::process::id());
        self.do_ctr(&[
            "run",
            "-d",
            NO_SHARES,
            "--rootfs",
            "--runc-root",
            runc.to_str().unwrap(),
            "--cgroup",
            &cgroup,
            "--log-uri",
            uri,
            tree.to_str().unwrap(),
            id,
            "/bin/sh",
            "-c",
            script,
        ]);
    }

    /// Removes a container that has ended.
    pub fn delete(&self, id: &str) {
        // It exits like the container.
        let output = self.ctr(&["tasks", "delete", id]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("ctr: "), "{said}");
        self.do_ctr(&["containers", "delete", id]);
    }

    // ---- iottymux ----

    pub fn state(&self) -> PathBuf {
        self.path("apps")
    }

    pub fn iottymux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iottymux"));
        command.args(arguments).env("IOTTYMUX_STATE_DIR", self.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn attach(&self, app: &str) -> Proc {
        let options = ["attach", "--wait=20", "--reconnect=20", "--from=start", "--app", app];
        Proc::spawn(self.iottymux(&options))
    }

    /// The output of a command of iottymux, which succeeds.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let mut asked = Proc::spawn(self.iottymux(arguments));
        assert_eq!(asked.ends(), 0, "{arguments:?}: {}", asked.stderr.text());
        asked.stdout.text()
    }

    /// The processes of a container's mux, or what this name finds.
    pub fn mux(&self, app: &str) -> Option<Pid> {
        let mut asked = Proc::spawn(self.iottymux(&["status", "--json", "--app", app]));
        if asked.ends() != 0 {
            return None;
        }
        let status: serde_json::Value = serde_json::from_str(&asked.stdout.text()).unwrap();
        Some(Pid::from_raw(i32::try_from(status["mux_pid"].as_i64()?).unwrap()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Also of a test that failed.
        let tasks = self.ctr(&["tasks", "ls", "-q"]).stdout;
        for id in String::from_utf8_lossy(&tasks).lines() {
            self.ctr(&["tasks", "delete", "-f", id]);
        }
        if let Some(daemon) = &mut self.daemon {
            let _ = kill(daemon.pid(), Signal::SIGTERM);
            let _ = daemon.child.wait();
        }
        for process in processes_of(self.dir.path()) {
            let _ = kill(process, Signal::SIGKILL);
        }
        // Shims and loggers, which have no other parent any more.
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(Pid::from_raw(-1), Some(WaitPidFlag::empty()))
        {}
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        for place in places.filter(|place| place.starts_with(self.dir.path())) {
            let _ = umount2(place, MntFlags::MNT_DETACH);
        }
    }
}

/// A mux is the user of the muxes, and can do little.
pub fn assert_user(mux: Pid) {
    let status = fs::read_to_string(format!("/proc/{mux}/status")).unwrap();
    for line in [
        format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}"),
        format!("Gid:\t{USER}\t{USER}\t{USER}\t{USER}"),
        "Groups:\t ".to_owned(),
        "CapPrm:\t0000000000000000".to_owned(),
        "NoNewPrivs:\t1".to_owned(),
        "Seccomp:\t2".to_owned(),
    ] {
        assert!(status.lines().any(|l| l == line), "{line:?}: {status}");
    }
}

/// The processes whose command line names a directory.
fn processes_of(dir: &Path) -> Vec<Pid> {
    let dir = dir.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let names_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(dir)
    };
    numbers.filter(names_it).map(Pid::from_raw).collect()
}
