//! The layout with socket units as `units` writes it: its FIFOs are systemd's, and stay so.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::pod::{Plan, Pod};
use crate::proc::eventually;

const MUX: &str = "iomux@demo.service";
const UNIT: &str = "[Service]\nExecStart=/bin/sh -c 'echo up; echo error >&2; exec cat'\n";
const UNITS: [&str; 8] = [
    "iottymux",
    "units",
    "--app",
    "demo",
    "--layout",
    "sockets",
    "--output",
    "/etc/systemd/system",
];

fn pod() -> Option<Pod> {
    let mux = "[Service]\nStandardError=append:/shared/mux-log\n";
    let plan = Plan::new()?.unit("demo.service", UNIT).unit("iomux@.service.d/log.conf", mux);
    let pod = plan.boot();
    let streams = ["--stdin", "stream", "--stdout", "stream", "--stderr", "stream"];
    pod.run(&[&UNITS[..], &streams].concat());
    pod.systemctl(&["daemon-reload"]);
    Some(pod)
}

fn assert_echo(pod: &Pod, word: &str) {
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    stdout.line_ending(word);
}

fn kill_mux(pod: &Pod) {
    let before = pod.property(MUX, "MainPID");
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
    pod.await_mux("demo", "stdin");
    assert_ne!(pod.property(MUX, "MainPID"), before);
}

/// Stops the app and waits for its mux; returns what is left.
fn stop(pod: &Pod) -> Vec<String> {
    pod.systemctl(&["stop", "demo"]);
    pod.systemctl(&["stop", MUX]);
    for stream in ["stdin", "stdout", "stderr"] {
        let socket = format!("demo-{stream}.socket");
        assert_eq!(pod.property(&socket, "ActiveState"), "inactive", "{socket}");
    }
    pod.names(&pod.mux_dir("demo"))
}

/// Whatever becomes of the mux: no FIFO is left, moved, or complained of.
#[test]
fn nothing_is_left() {
    let Some(pod) = pod() else { return };
    for round in 0..5 {
        pod.systemctl(&["start", "demo"]);
        let app = pod.property("demo.service", "MainPID");
        assert_echo(&pod, "first");
        for kill in 0..round % 3 {
            kill_mux(&pod);
            assert_echo(&pod, &format!("after kill {kill}"));
        }
        if round % 2 == 1 {
            pod.systemctl(&["restart", MUX]);
            assert_echo(&pod, "after a restart");
        }
        assert_eq!(pod.property("demo.service", "MainPID"), app, "it has noticed");
        assert_eq!(stop(&pod), ["last.json", "lock"], "round {round}");
    }
    let said = fs::read_to_string(pod.shared("mux-log")).unwrap();
    assert!(!said.contains("error:") && !said.contains("warning:"), "{said}");
}

/// systemd keeps a writer of the app's input, so the mux does not promise that it ends.
#[test]
fn the_input_has_no_end() {
    let Some(pod) = pod() else { return };
    pod.systemctl(&["start", "demo"]);
    let attach = ["iottymux", "attach", "--app", "demo", "--stdin-once"];
    let refused = pod.command(&attach).stdin(Stdio::null()).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("input") && said.lines().count() == 1, "{said}");
}

/// The FIFOs and the mux stay over restarts of the service, by itself and by hand.
#[test]
fn the_service_is_started_again() {
    let Some(pod) = pod() else { return };
    pod.set_unit(
        "demo.service.d/x.conf",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=0\n",
    );
    pod.systemctl(&["start", "demo"]);
    let mut stdout = pod.connect("demo", "sock-stdout");
    stdout.line_ending("up");
    for round in 0..4 {
        pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "demo"]);
        stdout.line_ending("up");
        assert_echo(&pod, &format!("killed {round}"));
        stdout.line_ending(&format!("killed {round}"));
    }
    for round in 0..4 {
        pod.run(&["timeout", "40", "systemctl", "restart", "demo"]);
        pod.await_mux("demo", "stdin");
        assert_echo(&pod, &format!("restarted {round}"));
    }
    assert_eq!(stop(&pod), ["last.json", "lock"]);
}

/// systemd does not start the service for input that nobody has read when it ends.
#[test]
fn leftover_input_starts_nothing() {
    let Some(pod) = pod() else { return };
    pod.set_unit("demo.service.d/x.conf", "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo start >>/shared/starts; exec sleep 1000'\n");
    for (starts, signal) in ["--signal=KILL", "--signal=TERM"].into_iter().enumerate() {
        pod.systemctl(&["start", "demo"]);
        pod.await_mux("demo", "stdin");
        // Ends when it is in the FIFO.
        let attach = ["iottymux", "attach", "--app", "demo", "--mode", "stdin"];
        let mut attach = pod.command(&attach).stdin(Stdio::piped()).spawn().unwrap();
        attach.stdin.take().unwrap().write_all(b"nobody reads this\n").unwrap();
        assert!(attach.wait().unwrap().success());
        pod.systemctl(&["kill", "--kill-who=main", signal, "demo"]);
        eventually("its FIFOs are gone", || {
            pod.property("demo-stdin.socket", "ActiveState") == "inactive"
        });
        assert_ne!(pod.property("demo.service", "ActiveState"), "active");
        let told = fs::read_to_string(pod.shared("starts")).unwrap();
        assert_eq!(told.lines().count(), starts + 1, "{}", pod.console());
    }
}

/// A service with hooks is warned of, in one line.
#[test]
fn hooks_are_warned_of() {
    let Some(pod) = pod() else { return };
    let said = |mode: &[&str]| {
        let output = pod.try_run(&[&UNITS[..], mode].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let stream = ["--stdout", "stream"];
    assert_eq!(said(&stream), "");
    let hooks = "[Service]\nExecStop=/bin/true\nExecStartPre=/bin/true\nExecReload=\n";
    pod.set_unit("demo.service.d/hooks.conf", hooks);
    let warning = "iottymux: warn: demo.service has ExecStartPre=, ExecStop=: systemd does not run";
    let warned = said(&stream);
    assert!(warned.starts_with(warning) && warned.lines().count() == 1, "{warned}");
    assert_eq!(said(&["--tty"]), "");
}
