//! In the direct layout no byte is lost, neither to a client nor to the log, however short the app lives
//! and however it ends. What is lost with socket units is counted.
//!
//! The clients are there before the app: a gate unit, ordered between the mux and the app, waits
//! for the test to open a FIFO and lets the app start when the test closes it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::pod::{LOGS, Plan, Pod, Raw, rounds};
use crate::proc::eventually;

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
const RUNS: (usize, usize) = (5, 50);
const MUX: &str = "iomux@demo.service";

/// A pod whose demo.service runs a script behind a gate.
struct Stage {
    pod: Pod,
    mux_log: BufReader<File>,
}

/// One start of the app, with all its clients.
struct Run {
    stdout: Raw,
    stderr: Raw,
    /// What has been read of that.
    said: Vec<u8>,
    attach: Child,
}

impl Stage {
    fn new(script: &str, more: &str) -> Option<Self> {
        Some(Self::of(Pod::delivered()?, script, more))
    }

    fn of(pod: Pod, script: &str, more: &str) -> Self {
        fs::write(pod.shared("app.sh"), script).unwrap();
        pod.shared_fifo("gate");
        // Read-write, so that the mux never lacks a reader nor this end a writer.
        let log = pod.shared_fifo("mux-log");
        let log = OpenOptions::new().read(true).write(true).open(log).unwrap();
        pod.set_unit("gate.service", GATE);
        pod.set_unit(
            "iomux@.service.d/log.conf",
            "[Service]\nStandardError=file:/shared/mux-log\n\
             Environment=IOTTYMUX_LOG=cri:/var/log/iottymux/demo/app-log\n",
        );
        pod.set_unit("demo.service.d/gate.conf", &format!("{GATED}{more}"));
        Self { pod, mux_log: BufReader::new(log) }
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
        Run { stdout, stderr, said: Vec::new(), attach }
    }

    fn await_log(&mut self, end: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(end) {
            line.clear();
            self.mux_log.read_line(&mut line).unwrap();
        }
    }

    /// Waits for the end of a run; returns what came of stdout and stderr. It was the same for everybody.
    fn end(&self, mut run: Run) -> [Vec<u8>; 2] {
        // The attached process first, whose pipes would fill up; the sockets' clients are kept by
        // the mux's ring meanwhile.
        let rest = |raw: &mut Raw| {
            raw.try_rest().unwrap_or_else(|e| {
                let units = self.pod.systemctl(&["list-units", "--all", "--no-pager"]);
                panic!("{e}\n{units}\n{}", self.pod.console())
            })
        };
        let ends = [rest(&mut run.stdout), [run.said, rest(&mut run.stderr)].concat()];
        let attached = run.attach.wait_with_output().unwrap();
        assert!(attached.status.success(), "{attached:?}");
        // The log is whole when the mux has ended.
        self.pod.systemctl(&["stop", MUX]);
        let log = fs::read_to_string(self.pod.path(&format!("{LOGS}/app-log"))).unwrap();
        fs::remove_file(self.pod.path(&format!("{LOGS}/app-log"))).unwrap();
        let logged = ["stdout", "stderr"].map(|stream| {
            let (whole, part) = (format!(" {stream} F "), format!(" {stream} P "));
            let text = |line: &str| match line.split_once(&whole) {
                Some((_, text)) => Some(format!("{text}\n")),
                None => line.split_once(&part).map(|(_, text)| text.to_owned()),
            };
            log.split_terminator('\n').filter_map(text).collect::<String>()
        });
        for (end, (attached, logged)) in
            ends.iter().zip([attached.stdout, attached.stderr].iter().zip(logged))
        {
            assert_same("attach", attached, end);
            // A line that systemd has cut off is ended there.
            let is_cut = end.last().is_some_and(|last| *last != b'\n');
            let cut = logged.strip_suffix('\n').filter(|_| is_cut);
            assert_same("the log", cut.unwrap_or(&logged).as_bytes(), end);
        }
        ends
    }

    /// Everything came to everybody, to the last byte and nothing more.
    fn assert_whole(&self, run: Run, stdout: &[u8], stderr: &[u8]) {
        let [out, err] = self.end(run);
        assert_same("stdout", &out, stdout);
        assert_same("stderr", &err, stderr);
    }
}

fn assert_same(what: &str, got: &[u8], want: &[u8]) {
    assert!(
        got == want,
        "{what}: {} of {} bytes, ending in {:?}",
        got.len(),
        want.len(),
        String::from_utf8_lossy(&got[got.len().saturating_sub(80)..])
    );
}

/// Runs a script that ends by itself.
fn check(script: &str, more: &str, stdout: &str, stderr: &str) {
    let Some(mut stage) = Stage::new(script, more) else { return };
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        let run = stage.start();
        stage.assert_whole(run, stdout.as_bytes(), stderr.as_bytes());
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
fn a_message_to_a_waiting_client() {
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
        let run = stage.start();
        stage.assert_whole(run, b"main\nfrom the child\n", b"");
    }
}

#[test]
fn a_farewell_at_stop() {
    let script = "trap 'seq 20000; echo farewell; exit 0' TERM; sleep 1000 & echo up >&2; wait";
    // Only the shell is to hear of the stop.
    let Some(mut stage) = Stage::new(script, "KillMode=mixed\n") else { return };
    for _ in 0..rounds(RUNS.0, RUNS.1) {
        let mut run = stage.start();
        run.said = (run.stderr.line() + "\n").into_bytes();
        stage.pod.systemctl(&["stop", "demo.service"]);
        let rest = format!("{}farewell\n", numbers(20_000));
        stage.assert_whole(run, rest.as_bytes(), b"up\n");
    }
}

/// With socket units systemd itself throws away what the mux has not read when the app dies. How much
/// that is depends on the machine and its mood: it is told, and what is asked for is that everybody gets
/// all that the mux has got.
#[test]
fn output_that_socket_units_lose() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("demo.service", "[Service]\nExecStart=/bin/true\n").boot();
    let streams = ["--stdin", "stream", "--stdout", "stream", "--stderr", "stream"];
    let units = ["iottymux", "units", "--app", "demo", "--layout", "sockets"];
    pod.run(&[&units[..], &streams, &["--output", "/etc/systemd/system"]].concat());
    pod.systemctl(&["daemon-reload"]);
    let mut stage = Stage::of(pod, "", "");
    let runs = rounds(RUNS.0, RUNS.1);
    for (what, script, len) in [
        ("echo hi", "echo hi", 3),
        ("60,000 bytes, then exit", "seq 20000 2>/dev/null | head -c 60000", 60_000),
    ] {
        let over = stage.pod.shared("over");
        fs::write(stage.pod.shared("app.sh"), format!("{script}; touch /shared/over")).unwrap();
        let (mut less, mut got) = (0, 0);
        for _ in 0..runs {
            let run = stage.start();
            eventually("the app has written all", || fs::remove_file(&over).is_ok());
            // Output that the mux has not read yet makes systemd start the service again.
            eventually("the mux has ended", || {
                stage.pod.systemctl(&["stop", "demo.service"]);
                stage.pod.property(MUX, "ActiveState") == "inactive"
            });
            let [out, err] = stage.end(run);
            assert!(out.len() <= len && err.is_empty(), "{} of {len} bytes", out.len());
            less += usize::from(out.len() < len);
            got += out.len();
        }
        let lost = (runs * len - got) * 100 / (runs * len);
        println!("socket units, {what}: less in {less} of {runs} runs, {lost} % of all bytes lost");
    }
}
