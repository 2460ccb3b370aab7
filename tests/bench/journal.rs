//! A service whose lines go to the journal, in a pod with a systemd and a journald of its own
//! (`tests/pod/podsd`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::process::{Bench, cpu_of, open_directory, release, wait_for};
use super::roles::{self, ROLE};
use super::sample::{Metric, Values};
use super::tools::Tool;

const PODSD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/podsd");
/// Bytes of each line, with its end, and of each write(2) of the app.
const LINE: usize = 100;
const PIECE: usize = 4 * 1024;
const TARGET: &str = "\
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
";
/// A journald that keeps to itself and drops nothing.
const JOURNALD: &str = "\
[Journal]
Audit=no
ReadKMsg=no
Storage=volatile
RuntimeMaxUse=2G
RateLimitIntervalSec=0
";
/// The names of the processes that count, as the kernel cuts them: the mux with its journal writer, and
/// journald.
const PROCESSES: [&str; 2] = ["iottymux", "systemd-journal"];

/// One run: until the journal has the last line, without a mux or by way of one. The CPU time is
/// that of journald and the mux with its journal writer.
pub fn run(bench: &Bench, tool: Tool) -> Values {
    let pod = Pod::boot(bench, tool);
    if tool == Tool::NoMux {
        pod.inside(&["systemctl", "start", "app"]);
    } else {
        let streams = ["--stdout", "stream", "--stderr", "stream"];
        pod.inside(&[&["iottymux", "enable", "app", "--now"][..], &streams].concat());
    }
    let (go, told) = (pod.shared("go"), pod.shared("told"));
    let all = PROCESSES.map(|name| pod.inside(&["sh", "-c", &format!("pgrep {name} || :")]));
    let processes: Vec<PathBuf> = all
        .iter()
        .flat_map(|pids| pids.lines())
        .map(|pid| pod.path(&format!("proc/{pid}")))
        .collect();
    let used = || processes.iter().map(|process| cpu_of(process)).sum::<Duration>();
    let before = used();
    let since = Instant::now();
    release(&go);
    sleep(bench.seconds);
    wait_for("the app has written all", || told.exists());
    let last = std::str::from_utf8(roles::LAST).unwrap();
    let newest = ["journalctl", "--unit=app", "--output=cat", "--lines=1", "--quiet"];
    wait_for("the journal has all", || pod.inside(&newest) == last.trim_end());
    let took = since.elapsed();
    let used = used().saturating_sub(before).as_secs_f64();
    let bytes: f64 = fs::read_to_string(&told).unwrap().parse().unwrap();
    let count =
        pod.inside(&["sh", "-c", "journalctl -u app -o cat -q | grep -c '^[a-z ]\\{32,\\}$'"]);
    let lines = (bytes / f64::from(u32::try_from(LINE).unwrap())).ceil();
    assert!(count.parse::<f64>().unwrap() >= lines, "the journal has {count} of {lines} lines");
    let gib = bytes / f64::from(1 << 30);
    vec![(Metric::Speed, bytes / took.as_secs_f64() / 1e6), (Metric::Cpu, used / gib)]
}

/// A pod whose `app.service` writes lines to the journal, as root has written it.
struct Pod {
    dir: TempDir,
    init: String,
}

impl Pod {
    fn boot(bench: &Bench, tool: Tool) -> Self {
        let dir = open_directory();
        let at = |path: &str| dir.path().join(path);
        for path in ["units", "shared", "tree/etc/systemd"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::copy(&bench.program, at("shared/bench")).unwrap();
        mkfifo(&at("shared/go"), Mode::S_IRWXU).unwrap();
        let seconds = bench.seconds.as_secs_f64();
        let service = format!(
            "[Service]\nStandardOutput=journal\nLogRateLimitIntervalSec=0\n\
             ExecStart=/shared/bench {ROLE} app {PIECE} {LINE} {seconds} /shared/go /shared/told\n"
        );
        for (path, text) in [
            ("units/app.service", &*service),
            ("units/default.target", TARGET),
            ("units/systemd-journald-audit.socket", ""),
            ("tree/etc/systemd/journald.conf", JOURNALD),
        ] {
            fs::write(at(path), text).unwrap();
        }
        let mut up = Command::new(PODSD);
        up.arg("up").arg(dir.path()).env("PODSD_BINARY", bench.release(tool));
        let up = up.env("PODSD_OWNER", std::process::id().to_string()).output().unwrap();
        assert!(up.status.success(), "podsd up: {up:?}");
        let pod = Self { init: text(up.stdout), dir };
        // Which forgets what PID 1 was told by its command line.
        pod.inside(&["systemctl", "daemon-reload"]);
        pod
    }

    /// What a command inside prints.
    fn inside(&self, words: &[&str]) -> String {
        let ran = Command::new(PODSD).arg("exec").arg(self.dir.path()).args(words).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{words:?}: {ran:?}");
        text(ran.stdout)
    }

    fn shared(&self, name: &str) -> PathBuf {
        self.dir.path().join("shared").join(name)
    }

    /// A path of the pod's root, as seen from here.
    fn path(&self, inside: &str) -> PathBuf {
        Path::new("/proc").join(&self.init).join("root").join(inside)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = Command::new(PODSD).arg("down").arg(self.dir.path()).status();
    }
}

/// A line of output.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim_end().to_owned()
}
