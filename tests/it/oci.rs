//! Real containers, by real OCI runtimes, whose terminal a mux has.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::form::is_long;
use crate::installed::is_installed;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig};
use crate::skip::skip;

/// How a runtime is called. crun refuses two kinds of cgroups beside each other, so it sees one.
const RUNTIMES: [(&str, &str); 2] = [
    ("runc", r#"exec runc --root "$0" "$@""#),
    (
        "crun",
        r#"umount /sys/fs/cgroup/unified 2>/dev/null
           exec crun --root "$0" --cgroup-manager=disabled "$@""#,
    ),
];

/// Containers that end at once, in the short and in the long form.
const SHORT_ONES: (usize, usize) = (5, 50);

/// A container on a terminal; it is gone when this is dropped.
struct Container<'a> {
    rig: &'a Rig,
    script: &'static str,
    id: String,
}

impl<'a> Container<'a> {
    /// Creates it, with its terminal at the rig's console socket, and starts it.
    fn start(rig: &'a Rig, (runtime, script): (&str, &'static str), command: &[&str]) -> Self {
        make_bundle(rig, command);
        let id = format!("iottymux-{runtime}-{}", std::process::id());
        let this = Self { rig, script, id };
        let socket = rig.file("console.sock");
        let (bundle, socket) = (rig.file("bundle"), socket.to_str().unwrap());
        this.call(&["create", "--bundle", bundle.to_str().unwrap(), "--console-socket", socket]);
        this.call(&["start"]);
        this
    }

    fn try_call(&self, words: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", self.script]).arg(self.rig.file("run"));
        // Its output would be that of the container's first process.
        command.args(words).arg(&self.id).output().unwrap()
    }

    fn call(&self, words: &[&str]) -> String {
        let output = self.try_call(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let deleted = self.try_call(&["delete", "--force"]);
        if !std::thread::panicking() {
            assert!(deleted.status.success(), "{deleted:?}");
        }
    }
}

/// A bundle with busybox, which runs this command.
fn make_bundle(rig: &Rig, command: &[&str]) {
    let bin = rig.file("bundle/rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(busybox(), bin.join("busybox")).unwrap();
    for name in ["sh", "stty", "seq"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    let bundle = rig.file("bundle");
    let spec = Command::new("runc").arg("spec").current_dir(&bundle).output().unwrap();
    assert!(spec.status.success(), "{spec:?}");
    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["process"]["args"] = json!(command);
    config["process"]["env"] = json!(["PATH=/bin", "PS1=ready> ", "TERM=xterm"]);
    let without = |list: &mut Value, key: &str| {
        list.as_array_mut().unwrap().retain(|entry| entry[key] != "cgroup");
    };
    without(&mut config["linux"]["namespaces"], "type");
    without(&mut config["mounts"], "type");
    fs::write(path, config.to_string()).unwrap();
}

/// The static busybox of this machine.
fn busybox() -> &'static str {
    if is_installed("busybox") { "/usr/bin/busybox" } else { "/bin/busybox" }
}

/// Whether this machine can run the containers of a runtime.
fn can_run(runtime: &str) -> bool {
    for program in ["runc", runtime, "busybox", "unshare"] {
        if !is_installed(program) {
            skip(runtime, &format!("there is no {program}"));
            return false;
        }
    }
    if !Uid::effective().is_root() {
        skip(runtime, "only root can run such containers");
        return false;
    }
    true
}

#[test]
fn the_terminal_of_a_container_is_shared() {
    for runtime in RUNTIMES {
        if !can_run(runtime.0) {
            continue;
        }
        let rig = Rig::new();
        let socket = rig.file("console.sock");
        let mut mux = rig.mux(["tty", "--app", APP, "--console-socket", socket.to_str().unwrap()]);
        // The first client decides the size.
        let first = Pty::open(33, 99);
        let mut attach = first.spawn(rig.command(["attach", "--app", APP]));
        mux.stderr.wait_for("attached to tty");
        eventually("it may type", || first.is_raw());
        let container = Container::start(&rig, runtime, &["sh"]);
        assert!(!socket.exists());
        let asks = |keys: &str, answer: &str| {
            first.press(keys.as_bytes());
            first.shown.wait_for(answer);
        };
        asks("", "ready> ");
        asks("echo he''llo\r", "\r\nhello\r\n");
        asks("stty size\r", "\r\n33 99\r\n");
        first.resize(40, 120);
        eventually("the container sees the size", || {
            first.press(b"stty size\r");
            first.shown.so_far().contains("\r\n40 120\r\n")
        });
        // A second terminal has another size, is redrawn, and sees what the first one types.
        let second = Pty::open(20, 60);
        let mut other = second.spawn(rig.command(["attach", "--app", APP, "--read-only"]));
        second.shown.wait_for("40 120");
        asks("echo to''both\r", "\r\ntoboth\r\n");
        second.shown.wait_for("toboth");
        first.press(b"exit 3\r");
        for (client, local) in [(&mut attach, &first), (&mut other, &second)] {
            assert_eq!(client.ends(), 0);
            local.shown.wait_for("app demo has ended; its exit status is unknown");
            assert!(local.is_as_before());
        }
        assert_eq!(mux.ends(), 0);
        eventually("it has stopped", || container.call(&["state"]).contains("\"stopped\""));
    }
}

/// The mux ends first: the container's terminal hangs up, as that of any app whose mux nobody keeps.
#[test]
fn a_container_whose_mux_has_gone_is_hung_up() {
    let runtime = RUNTIMES[0];
    if !can_run(runtime.0) {
        return;
    }
    let rig = Rig::new();
    let socket = rig.file("console.sock");
    let mut mux = rig.mux(["tty", "--app", APP, "--console-socket", socket.to_str().unwrap()]);
    let container = Container::start(&rig, runtime, &["sh"]);
    let client: Proc = rig.attach(&["--mode", "tty-out"]);
    client.stdout.wait_for("ready> ");
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    eventually("it has stopped", || container.call(&["state"]).contains("\"stopped\""));
}

/// All that a container writes is read before its end.
#[test]
fn the_tail_of_a_short_container_is_complete() {
    let want: Vec<String> = (1..=2000).map(|n| n.to_string()).collect();
    let want = want.join("\r\n") + "\r\n";
    for runtime in RUNTIMES {
        if !can_run(runtime.0) {
            continue;
        }
        for _ in 0..rounds(SHORT_ONES) {
            let rig = Rig::new();
            let socket = rig.file("console.sock");
            let mut mux =
                rig.mux(["tty", "--app", APP, "--console-socket", socket.to_str().unwrap()]);
            let mut client = rig.attach(&["--mode", "tty-out"]);
            mux.stderr.wait_for("attached to tty");
            let _container = Container::start(&rig, runtime, &["seq", "1", "2000"]);
            assert_eq!(client.ends(), 0);
            assert!(client.stdout.text() == want, "{}", client.stdout.text().len());
            assert_eq!(mux.ends(), 0);
        }
    }
}

fn rounds((short, long): (usize, usize)) -> usize {
    if is_long() { long } else { short }
}
