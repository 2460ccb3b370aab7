//! In the direct layout no byte is lost, however short the app lives and however it ends.
//!
//! The clients are there before the app: a gate unit, ordered between the mux and the app, waits
//! for the test to open a FIFO and lets the app start when the test closes it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::pod::{Pod, Raw, rounds};

const GATE: &str = "\
[Unit]
After=iomux@demo.service
StartLimitIntervalSec=0
[Service]
Type=oneshot
ExecStart=/bin/cat /shared/gate
";
const GATED: &str = "\
[Unit]
Wants=gate.service
After=gate.service
[Service]
ExecStart=
ExecStart=/bin/sh /shared/app.sh
Restart=no
";
/// Runs of each case in CI, and when asked for certainty.
const RUNS: (usize, usize) = (5, 30);

/// A pod whose demo.service runs a script behind a gate.
struct Stage {
    pod: Pod,
    mux_log: BufReader<File>,
}

/// One start of the app, with all its clients.
struct Run {
    stdout: Raw,
    stderr: Raw,
    attach: Child,
}

impl Stage {
    fn new(script: &str, more: &str) -> Option<Self> {
        let pod = Pod::delivered()?;
        fs::write(pod.shared("app.sh"), script).unwrap();
        pod.shared_fifo("gate");
        // Read-write, so that the mux never lacks a reader nor this end a writer.
        let log = pod.shared_fifo("mux-log");
        let log = OpenOptions::new().read(true).write(true).open(log).unwrap();
        pod.set_unit("gate.service", GATE);
        pod.set_unit(
            "iomux@.service.d/log.conf",
            "[Service]\nStandardError=file:/shared/mux-log\n",
        );
        pod.set_unit("demo.service.d/gate.conf", &format!("{GATED}{more}"));
        Some(Self { pod, mux_log: BufReader::new(log) })
    }

    fn start(&mut self) -> Run {
        self.pod.systemctl(&["start", "--no-block", "demo.service"]);
        // Opens when the gate reads, which it does when the mux is ready.
        let gate = OpenOptions::new().write(true).open(self.pod.shared("gate")).unwrap();
        let stdout = self.pod.connect("demo", "sock-stdout");
        let stderr = self.pod.connect("demo", "sock-stderr");
        let attach = self
            .pod
            .command(&["iottymux", "attach", "--app", "demo", "--mode", "stdout,stderr"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.await_log("attached to stdout,stderr");
        drop(gate);
        Run { stdout, stderr, attach }
    }

    fn await_log(&mut self, end: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(end) {
            line.clear();
            self.mux_log.read_line(&mut line).unwrap();
        }
    }
}

impl Run {
    /// Everything came to everybody, to the last byte and nothing more.
    fn assert_whole(mut self, stdout: &[u8], stderr: &[u8]) {
        // The attached process first, whose pipes would fill up; the sockets' clients are kept by
        // the mux's ring meanwhile.
        let out = self.stdout.rest();
        let err = self.stderr.rest();
        let attached = self.attach.wait_with_output().unwrap();
        assert!(attached.status.success(), "{attached:?}");
        for (what, got, want) in [
            ("stdout", &out, stdout),
            ("stderr", &err, stderr),
            ("stdout of attach", &attached.stdout, stdout),
            ("stderr of attach", &attached.stderr, stderr),
        ] {
            assert!(
                got == want,
                "{what}: {} of {} bytes, ending in {:?}",
                got.len(),
                want.len(),
                String::from_utf8_lossy(&got[got.len().saturating_sub(80)..])
            );
        }
    }
}

/// Runs a script that ends by itself.
fn check(script: &str, more: &str, stdout: &str, stderr: &str) {
    let Some(mut stage) = Stage::new(script, more) else { return };
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        stage.start().assert_whole(stdout.as_bytes(), stderr.as_bytes());
    }
}

/// The numbers up to one, as seq(1) prints them.
pub fn numbers(last: u32) -> String {
    (1..=last).flat_map(|n| [n.to_string(), "\n".to_owned()]).collect()
}

#[test]
fn a_word() {
    check("echo hi", "", "hi\n", "");
}

/// Nothing holds the app back here: it may have ended before its client has come, which waits for
/// it to appear.
#[test]
fn a_word_to_a_client_that_waits() {
    let Some(pod) = Pod::delivered() else { return };
    let short = "[Service]\nExecStart=\nExecStart=/bin/echo hi\nRestart=no\n";
    pod.set_unit("demo.service.d/short.conf", short);
    let words = ["iottymux", "--log-level=debug", "attach", "--wait=25", "--app=demo"];
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        let mut attach =
            pod.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(attach.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "iottymux: debug: waiting for app demo\n");
        pod.systemctl(&["start", "demo.service"]);
        let attached = attach.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&attached.stdout), "hi\n", "{attached:?}");
    }
}

#[test]
fn nearly_a_pipe_full() {
    let text = numbers(20_000)[..60_000].to_owned();
    check("seq 20000 2>/dev/null | head -c 60000", "", &text, "");
}

#[test]
fn more_than_a_pipe_on_both_streams() {
    let text = numbers(20_000);
    check("seq 20000; seq 20000 >&2", "", &text, &text);
}

#[test]
fn hooks_print_too() {
    check(
        "echo main; echo main-error >&2",
        "ExecStartPre=/bin/echo before\nExecStopPost=/bin/echo after\n",
        "before\nmain\nafter\n",
        "main-error\n",
    );
}

/// A child that outlives the main process still has the stream, and the mux waits for it.
#[test]
fn a_child_prints_after_its_parent() {
    // The child ignores systemd's SIGTERM and reads until the last writer, its parent, is dead.
    let script = "(trap '' TERM; cat /shared/parent; echo from the child) & \
                  exec 3>/shared/parent; echo main";
    let Some(mut stage) = Stage::new(script, "") else { return };
    stage.pod.shared_fifo("parent");
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        stage.start().assert_whole(b"main\nfrom the child\n", b"");
    }
}

#[test]
fn a_farewell_at_stop() {
    let script = "trap 'seq 20000; echo farewell; exit' TERM; sleep 1000 & echo up >&2; wait";
    // Only the shell is to hear of the stop.
    let Some(mut stage) = Stage::new(script, "KillMode=mixed\n") else { return };
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        let mut run = stage.start();
        assert_eq!(run.stderr.line(), "up");
        stage.pod.systemctl(&["stop", "demo.service"]);
        let rest = format!("{}farewell\n", numbers(20_000));
        assert_eq!(run.stderr.rest(), b"");
        let attached = run.attach.wait_with_output().unwrap();
        assert!(run.stdout.rest() == rest.as_bytes());
        assert!(attached.stdout == rest.as_bytes());
        assert_eq!(attached.stderr, b"up\n");
    }
}
