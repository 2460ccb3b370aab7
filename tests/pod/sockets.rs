//! The layout with socket units as `enable` writes it: its FIFOs are systemd's, and stay so.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::pod::{Plan, Pod, rounds};
use crate::proc::eventually;

const MUX: &str = "iomux@demo.service";
const UNIT: &str = "[Service]\nExecStart=/bin/sh -c 'echo up; echo error >&2; exec cat'\n";
const STREAMS: [&str; 9] =
    ["iottymux", "enable", "demo", "--stdin", "stream", "--stdout", "stream", "--stderr", "stream"];
const SOCKETS: [&str; 2] = ["--layout", "sockets"];

fn pod() -> Option<Pod> {
    let mux = "[Service]\nStandardError=append:/shared/mux-log\n";
    let plan = Plan::new()?.unit("demo.service", UNIT).unit("iomux@.service.d/log.conf", mux);
    Some(plan.boot())
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
    pod.run(&[&STREAMS[..], &SOCKETS].concat());
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
    pod.run(&[&STREAMS[..], &SOCKETS].concat());
    pod.systemctl(&["start", "demo"]);
    let attach = ["iottymux", "attach", "--app", "demo", "--stdin-once"];
    let refused = pod.command(&attach).stdin(Stdio::null()).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("input") && said.lines().count() == 1, "{said}");
}

/// From one layout, and from one mode, to the other, while the service does not run; while it does,
/// it is refused, and the service goes on.
#[test]
fn other_streams() {
    let Some(pod) = pod() else { return };
    let to_streams = [&STREAMS[..], &["--reset"]].concat();
    let to_sockets = [&STREAMS[..], &SOCKETS].concat();
    let to_tty = ["iottymux", "enable", "demo", "--reset", "--tty"];
    pod.run(&STREAMS);
    for round in 0..2 {
        for (words, fifos) in [(&to_streams[..], true), (&to_sockets, true), (&to_tty, false)] {
            pod.run(words);
            pod.systemctl(&["start", "demo"]);
            if fifos {
                assert_echo(&pod, &format!("round {round}"));
            } else {
                let mut tty = pod.connect("demo", "sock-tty");
                tty.say("typed\n");
                tty.line_ending("typed");
            }
            for other in [&to_streams[..], &to_sockets, &to_tty] {
                let output = pod.try_run(other);
                let said = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.success(), other == words, "{words:?} {other:?}: {said}");
                assert_eq!(
                    said.contains("is running with other streams"),
                    other != words,
                    "{said}"
                );
            }
            pod.run(words);
            let mux = if fifos { MUX } else { "ttymux@demo.service" };
            assert_eq!(pod.property(mux, "NRestarts"), "0");
            pod.systemctl(&["stop", "demo"]);
            pod.systemctl(&["stop", mux]);
        }
    }
    // At once, by stopping and starting it.
    for words in [&to_sockets[..], &to_streams, &to_tty, &to_sockets] {
        pod.run(&[words, &["--now"]].concat());
        assert_eq!(pod.property("demo.service", "ActiveState"), "active");
    }
    assert_echo(&pod, "at last");
    pod.run(&["iottymux", "disable", "demo", "--now"]);
    assert!(!pod.path("/run/iottymux/demo").exists());
    assert_eq!(
        pod.names("/etc/systemd/system"),
        ["default.target", "demo.service", "iomux@.service.d"]
    );
}

/// The FIFOs and the mux stay over restarts of the service, by itself and by hand.
#[test]
fn the_service_is_started_again() {
    let Some(pod) = pod() else { return };
    pod.set_unit(
        "demo.service.d/x.conf",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=0\n",
    );
    pod.run(&[&STREAMS[..], &SOCKETS].concat());
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
    pod.run(&[&STREAMS[..], &SOCKETS].concat());
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

/// At the moment when systemd has given the service up, and its mux is about to end.
fn enable_while_the_mux_ends(words: &[&str]) {
    let Some(pod) = pod() else { return };
    for _ in 0..rounds(2, 10) {
        let fails =
            "[Service]\nRestart=always\nRestartSec=0\nExecStart=/bin/sh -c 'echo up; exit 3'\n";
        pod.set_unit("demo.service", fails);
        // It may have failed by the time at which that is told.
        pod.try_run(&[&STREAMS[..], &SOCKETS, &["--now"]].concat());
        eventually("it is not started again", || {
            pod.property("demo.service", "ActiveState") == "failed"
        });
        // What nobody has seen keeps the mux for a moment.
        fs::write(pod.path("/etc/systemd/system/demo.service"), UNIT).unwrap();
        pod.run(&[&STREAMS[..], words, &["--now"]].concat());
        assert_echo(&pod, "it runs");
        pod.run(&["iottymux", "disable", "demo", "--now"]);
        pod.systemctl(&["stop", "demo"]);
        pod.systemctl(&["reset-failed"]);
    }
}

#[test]
fn to_the_other_layout_while_the_mux_ends() {
    enable_while_the_mux_ends(&["--reset"]);
}

#[test]
fn to_the_same_layout_while_the_mux_ends() {
    enable_while_the_mux_ends(&SOCKETS);
}

/// A service with hooks is warned of, in one line, and only in this layout.
#[test]
fn hooks_are_warned_of() {
    let Some(pod) = pod() else { return };
    let enable = |more: &[&str]| {
        let output = pod.try_run(&[&["iottymux", "enable", "demo", "--reset"], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let streams = ["--stdout", "stream"];
    // Those of the direct layout are ours, and go.
    assert_eq!(enable(&streams), "");
    assert_eq!(enable(&[&streams[..], &SOCKETS].concat()), "");
    let hooks = "[Service]\nExecStop=/bin/true\nExecStartPre=/bin/true\nExecReload=\n";
    pod.set_unit("demo.service.d/hooks.conf", hooks);
    let warning = "iottymux: warn: demo.service has ExecStartPre=, ExecStop=: systemd does not run";
    let units = ["iottymux", "units", "--app", "demo", "--output", "/etc/systemd/system"];
    let units = pod.try_run(&[&units[..], &streams, &SOCKETS].concat());
    for said in
        [enable(&[&streams[..], &SOCKETS].concat()), String::from_utf8(units.stderr).unwrap()]
    {
        assert!(said.starts_with(warning) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(enable(&[&["--tty"][..], &SOCKETS].concat()), "");
    assert_eq!(enable(&streams), "");
}

/// Those of a service that runs are not broken under it; `--now` stops it with its hooks.
#[test]
fn hooks_of_a_service_that_runs() {
    let Some(pod) = pod() else { return };
    let hooks = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'cat; exec sleep 1000'\nExecReload=/bin/true\nExecStop=/bin/sh -c 'echo x >>/shared/stops'\n";
    pod.set_unit("demo.service.d/hooks.conf", hooks);
    pod.systemctl(&["start", "demo"]);
    let sockets = [&STREAMS[..], &SOCKETS].concat();
    let refused = pod.try_run(&sockets);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("its ExecReload=, ExecStop= with") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(1));
    pod.systemctl(&["reload", "demo"]);
    pod.run(&[&sockets[..], &["--now"]].concat());
    assert_eq!(fs::read_to_string(pod.shared("stops")).unwrap(), "x\n");
    assert_echo(&pod, "it runs");
    // Nothing more is to be broken.
    pod.run(&sockets);
}
