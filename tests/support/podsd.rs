//! A pod with a systemd in it: its units, commands inside, and files. `tests/pod/podsd` makes it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;

use crate::form;
use crate::skip::skip;

const PODSD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/podsd");
/// The program in the pod; beside it, as `.next`, is the one that takes its place in an upgrade.
pub const PROGRAM: &str = "/usr/local/bin/iottymux";
const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
/// The iottymux under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_iottymux");
/// What podsd exits with when this machine cannot make a pod.
const SKIPPED: i32 = 77;
/// How long a stream may be silent before the test fails. It only bounds a failure: more than the
/// longest stop of a mux (`TimeoutStopSec=` of its unit).
pub const SILENCE: Duration = Duration::from_secs(30);
/// The user of the muxes in a pod (see podsd).
pub const MUX_USER: u32 = 900;

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
    pub dir: TempDir,
}

/// A pod that runs; it ends when this is dropped.
pub struct Pod {
    pub dir: TempDir,
    pub init: i32,
    /// A pidfd of its PID 1.
    end: OwnedFd,
}

impl Plan {
    /// An empty one, or `None` after telling why there can be none.
    pub fn new() -> Option<Self> {
        if let Some(reason) = reason_to_skip(&mut check()) {
            skip("pod", &reason);
            return None;
        }
        let plan = Self { dir: form::directory("pod") };
        fs::create_dir(plan.dir.path().join("shared")).unwrap();
        Some(plan)
    }

    /// A unit, or a drop-in (`NAME.service.d/x.conf`).
    pub fn unit(self, name: &str, text: &str) -> Self {
        self.write(&format!("units/{name}"), text)
    }

    /// A file of the pod's directory.
    pub fn write(self, path: &str, text: &str) -> Self {
        write_below(self.dir.path(), path, text);
        self
    }

    /// The templates and the two examples, as they are delivered.
    pub fn with_delivered_units(mut self) -> Self {
        for path in [
            "units/iomux@.service",
            "units/ttymux@.service",
            "docs/examples/demo.service",
            "docs/examples/shell.service",
        ] {
            let name = path.rsplit('/').next().unwrap();
            self = self.unit(name, &project_file(path));
        }
        self
    }

    pub fn boot(self) -> Pod {
        self.boot_with("PODSD_BINARY", Path::new(BINARY))
    }

    /// With this variable of podsd: the program under test, or another system's root.
    pub fn boot_with(self, variable: &str, path: &Path) -> Pod {
        let output = Command::new(PODSD)
            .arg("up")
            .arg(self.dir.path())
            .env(variable, path)
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

impl Pod {
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

    /// A path of the pod's root, as seen from here.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// From now on the program alternates with another build of it.
    pub fn alternate_with(&self, other: &Path) {
        // A file that is mounted cannot be replaced.
        self.run(&["umount", PROGRAM]);
        fs::copy(BINARY, self.path(PROGRAM)).unwrap();
        fs::copy(other, self.path(&format!("{PROGRAM}.next"))).unwrap();
    }

    /// Upgrades a mux: what the program was becomes the next one.
    pub fn upgrade(&self, mux: &str) {
        let swap = "ln $0 $0.was; mv $0.next $0; mv $0.was $0.next";
        self.run(&["sh", "-c", swap, PROGRAM]);
        self.systemctl(&["restart", mux]);
    }

    /// What PID 1 said, for the message of a failure.
    pub fn console(&self) -> String {
        fs::read_to_string(self.dir.path().join("console.log")).unwrap_or_default()
    }

    /// Waits until PID 1 has ended, for as long as a stream may be silent; whether it has.
    pub fn has_ended(&self) -> bool {
        let mut end = [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)];
        poll(&mut end, PollTimeout::try_from(SILENCE).unwrap()) == Ok(1)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let done = Command::new(PODSD).arg("down").arg(self.dir.path()).status();
        if !std::thread::panicking() {
            assert!(done.unwrap().success());
            assert!(self.has_ended(), "its PID 1 runs on");
        }
    }
}
