//! rkt's own units as they stand: the app starts, is attached, stops, starts again, and nothing
//! hangs or stays. What systemd itself loses in this layout is not asked for (docs/units.md).

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::pod::{Plan, Pod};
use crate::proc::eventually;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/fixtures/rkt");
const STATE: &str = "/rkt/iottymux/demo";
/// The image's command, of which rkt's capture has `/bin/sleep 600`. It tells its process, so that
/// a line of the last start is not taken for one of this.
const COMMAND: &str = "\
[Service]
ExecStart=
ExecStart=/bin/sh -c 'echo up $$$$; echo error >&2; exec cat'
";
/// An immutable pod ends with its app; with this it does not.
const STAY: &str = "[Service]\nExecStop=\nExecStop=/bin/true\n";
/// More starts in a row than systemd allows by itself.
const OFTEN: &str = "[Unit]\nStartLimitIntervalSec=0\n";
/// More than any stop that does not hang takes, and less than systemd's patience of 90 s.
const NO_HANG: &str = "40";

/// What differs between the kinds of pod.
struct Kind {
    fixture: &'static str,
    tty: bool,
    /// Whether the app starts with the pod, and the pod ends with the app.
    immutable: bool,
}

const IMMUTABLE_STREAM: Kind = Kind { fixture: "immutable-stream", tty: false, immutable: true };
const IMMUTABLE_TTY: Kind = Kind { fixture: "immutable-tty", tty: true, immutable: true };
const MUTABLE_STREAM: Kind = Kind { fixture: "mutable-stream", tty: false, immutable: false };

fn plan(kind: &Kind) -> Option<Plan> {
    let mut plan = Plan::new()?;
    for dir in [kind.fixture, "both"] {
        for entry in fs::read_dir(Path::new(FIXTURES).join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            plan = match name.as_str() {
                "prepare-app" | "reaper.sh" => plan.root_program(&name, &text),
                _ => plan.unit(&name, &text),
            };
        }
    }
    let env = format!(
        "STAGE2_TTY={}\nSTAGE1_DEBUG=false\nSTAGE2_STDIN=true\nSTAGE2_STDOUT=true\n\
         STAGE2_STDERR=true\nSTAGE1_LOGMODE=k8s-plain\nKUBERNETES_LOG_PATH=hello/0.log\n",
        kind.tty
    );
    let plan = plan
        .unit("demo.service.d/command.conf", COMMAND)
        .unit("service.d/often.conf", OFTEN)
        .unit("socket.d/often.conf", OFTEN)
        .root_file("rkt/iottymux/demo/env", &env)
        .root_file("rkt/env/demo", "PATH=/bin\n")
        .root_file("rkt/status/.keep", "")
        .root_file("opt/stage2/demo/rootfs/.keep", "");
    Some(plan)
}

fn start(pod: &Pod) {
    pod.run(&["timeout", NO_HANG, "systemctl", "start", "demo.service"]);
}

/// The app can be attached, by the sockets and in rkt's spelling.
fn assert_works(pod: &Pod, kind: &Kind) {
    // The mux of a stream app starts after the app.
    pod.await_mux("demo", if kind.tty { "tty-in" } else { "stdin" });
    let (input, output) =
        if kind.tty { ("sock-tty", "sock-tty") } else { ("sock-stdin", "sock-stdout") };
    let pid = pod.property("demo.service", "MainPID");
    let mut output = pod.connect_at(&format!("{STATE}/{output}"));
    output.line_ending(&format!("up {pid}"));
    // Without names the app's stderr is its stdout: systemd, not the mux, mixes them.
    output.line_ending("error");
    pod.connect_at(&format!("{STATE}/{input}")).say("hello\n");
    output.line_ending("hello");

    let variable = if kind.tty { "STAGE2_ATTACH_TTYIN=true" } else { "STAGE2_ATTACH_STDIN=true" };
    let mut attach = pod
        .command(&["env", variable, "/iottymux", "--action=custom-attach", "--app=demo"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    attach.stdin.take().unwrap().write_all(b"as rkt does\n").unwrap();
    assert!(attach.wait().unwrap().success());
    output.line_ending("as rkt does");
    eventually("it is in the kubelet's log", || {
        let log = fs::read_to_string(pod.path("/rkt/kubernetes/log/hello/0.log")).unwrap();
        log.lines().any(|line| line.trim_end().ends_with("Z stdout F as rkt does"))
    });

    let list = pod.run(&["/iottymux", "--app=demo"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let targets = list["targets"].as_array().unwrap();
    let names: Vec<_> = targets.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, if kind.tty { &["tty"][..] } else { &["stdin", "stdout", "stderr"] });
}

fn stop(pod: &Pod, mux: &str) {
    pod.run(&["timeout", NO_HANG, "systemctl", "stop", "demo.service"]);
    // It is bound to the app; this waits for its end.
    pod.run(&["timeout", NO_HANG, "systemctl", "stop", mux]);
    assert_eq!(pod.names(STATE), ["env", "last.json", "lock", "logs"]);
    assert_eq!(pod.property(mux, "Result"), "success", "{}", pod.console());
}

fn cycles(kind: &Kind) {
    let Some(mut plan) = plan(kind) else { return };
    if kind.immutable {
        plan = plan.unit("shutdown.service.d/stay.conf", STAY);
    }
    let pod = plan.boot();
    let mux = if kind.tty { "ttymux@demo.service" } else { "iomux@demo.service" };
    if !kind.immutable {
        start(&pod);
    }
    for _ in 0..8 {
        assert_works(&pod, kind);
        stop(&pod, mux);
        start(&pod);
    }
    for _ in 0..4 {
        pod.run(&["timeout", NO_HANG, "systemctl", "restart", "demo.service"]);
        assert_works(&pod, kind);
    }
    // A mux that is killed takes the app with it, for rkt's units say Requires=; both come again.
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", mux]);
    stop_dead(&pod, mux);
    start(&pod);
    assert_works(&pod, kind);
    stop(&pod, mux);
}

/// Ends what a killed mux has left running.
fn stop_dead(pod: &Pod, mux: &str) {
    pod.run(&["timeout", NO_HANG, "systemctl", "stop", "demo.service", mux]);
    pod.systemctl(&["reset-failed"]);
}

#[test]
fn an_immutable_pod_with_streams() {
    cycles(&IMMUTABLE_STREAM);
}

#[test]
fn an_immutable_pod_with_a_terminal() {
    cycles(&IMMUTABLE_TTY);
}

#[test]
fn a_mutable_pod_with_streams() {
    cycles(&MUTABLE_STREAM);
}

/// The chain from the app's end to the pod's is not held up by the mux.
#[test]
fn an_immutable_pod_ends_with_its_app() {
    for kind in [&IMMUTABLE_STREAM, &IMMUTABLE_TTY] {
        let Some(plan) = plan(kind) else { return };
        let pod = plan.boot();
        assert_works(&pod, kind);
        pod.systemctl(&["stop", "--no-block", "demo.service"]);
        pod.await_end();
    }
}

/// The mux of these units finds out how the app has ended: from PID 1, which also tells a signal, or
/// where it cannot be asked from what the reaper writes at the same time.
#[test]
fn the_status_without_hooks() {
    let Some(plan) = plan(&MUTABLE_STREAM) else { return };
    let pod = plan.boot();
    let cannot_ask = "[Service]\nEnvironment=PATH=/nowhere\n";
    let reaper = fs::read_to_string(pod.path("/reaper.sh")).unwrap();
    let nonsense = "#!/bin/sh\nprintf '\\033[2J' >/rkt/status/\"$1\"\n";
    for (more, reaper, end, code) in [
        ("", &*reaper, "exit 0", 0),
        ("", &*reaper, "exit 3", 3),
        ("", nonsense, "kill -KILL $$$$", 128 + 9),
        (cannot_ask, &*reaper, "exit 4", 4),
        (cannot_ask, &*reaper, "exit 0", 0),
        // Not known.
        (cannot_ask, nonsense, "exit 5", 0),
    ] {
        fs::write(pod.path("/reaper.sh"), reaper).unwrap();
        // That of another time is not believed.
        fs::write(pod.path("/rkt/status/demo"), "77\n").unwrap();
        pod.set_unit("iomux@demo.service.d/more.conf", more);
        let command = format!("[Service]\nExecStart=\nExecStart=/bin/sh -c 'read x; {end}'\n");
        pod.set_unit("demo.service.d/command.conf", &command);
        start(&pod);
        pod.await_mux("demo", "stdin");
        let mut attach = pod
            .command(&["iottymux", "attach", "--app", "demo"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        attach.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(attach.wait().unwrap().code(), Some(code), "{more}{end}\n{}", pod.console());
        stop_dead(&pod, "iomux@demo.service");
    }
    let said = pod.console();
    let warning = "reading /rkt/status/demo: \"\\x1b[2J\" is no status of an app";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
}
