//! A mutable pod: apps are added while it runs, started, stopped, started again, and removed, as
//! `rkt app` does it; nothing of them stays.

use std::fs;

use crate::pod::{Plan, Pod, rounds};
use crate::proc::eventually;

const UNITS: &str = "/etc/systemd/system";

/// A pod that stays when it has no apps.
fn sandbox() -> Option<Pod> {
    Some(Plan::new()?.boot())
}

/// Adds an app to the pod, as a stage1 does: its own unit, then those that `units` writes.
fn add(pod: &Pod, app: &str, command: &str, modes: &[&str]) {
    let unit = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={command}\nTimeoutStopSec=2s\n"
    );
    fs::write(pod.path(&format!("{UNITS}/{app}.service")), unit).unwrap();
    pod.run(&[&["iottymux", "units", "--app", app, "--output", UNITS], modes].concat());
    pod.systemctl(&["daemon-reload"]);
}

/// Removes it, running or stopped.
fn remove(pod: &Pod, app: &str) {
    pod.systemctl(&["stop", app]);
    for mux in ["iomux", "ttymux"] {
        // One of them was never loaded.
        pod.try_run(&["systemctl", "stop", &format!("{mux}@{app}.service")]);
    }
    pod.run(&["iottymux", "units", "--app", app, "--remove", "--output", UNITS]);
    fs::remove_file(pod.path(&format!("{UNITS}/{app}.service"))).unwrap();
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["reset-failed"]);
}

/// What `list` says of an app.
fn state(pod: &Pod, app: &str) -> String {
    let list = pod.run(&["iottymux", "list"]);
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(app));
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("-").to_owned()
}

#[test]
fn an_app_from_its_adding_to_its_removal() {
    let Some(pod) = sandbox() else { return };
    // It takes no SIGTERM: only SIGKILL ends it.
    let stubborn = "/bin/sh -c 'trap \"\" TERM; echo up $$$$; while read line; do echo got $line; done; exec sleep 1000'";
    assert_eq!(state(&pod, "one"), "-");
    add(&pod, "one", stubborn, &["--stdin", "stream", "--stdout", "stream"]);
    assert_eq!(state(&pod, "one"), "prepared");

    for _ in 0..2 {
        // Starting what runs has no effect.
        pod.systemctl(&["start", "one"]);
        let pid = pod.property("one.service", "MainPID");
        pod.systemctl(&["start", "one"]);
        assert_eq!(pod.property("one.service", "MainPID"), pid);
        assert_eq!(state(&pod, "one"), "running");
        let mut stdout = pod.connect("one", "sock-stdout");
        assert_eq!(stdout.line(), format!("up {pid}"));

        // The mux alone is started again: the app goes on.
        pod.systemctl(&["restart", "iomux@one"]);
        let mut stdout = pod.connect("one", "sock-stdout");
        pod.connect("one", "sock-stdin").say("hello\n");
        assert_eq!(stdout.line(), "got hello");
        assert_eq!(pod.property("one.service", "MainPID"), pid);

        pod.systemctl(&["stop", "one"]);
        assert_eq!(stdout.rest(), b"");
        assert_eq!(pod.property("one.service", "Result"), "timeout");
        // It ends with its app, which nobody waits for.
        eventually("its mux has ended", || state(&pod, "one") == "exited");
        let status = pod.run(&["iottymux", "status", "--app", "one"]);
        assert!(status.starts_with("app one: ended by signal 9"), "{status}");
        pod.systemctl(&["reset-failed"]);
    }
    let dir = pod.path("/run/iottymux/one");
    assert!(dir.exists());
    remove(&pod, "one");
    assert_eq!(state(&pod, "one"), "-");
    assert!(!dir.exists());
    assert_eq!(pod.names(UNITS), ["default.target"]);
}

/// An app whose mux cannot start does not hang, and writes into no plain file.
#[test]
fn a_mux_that_cannot_start() {
    let Some(pod) = sandbox() else { return };
    add(
        &pod,
        "one",
        "/bin/sh -c 'echo lost; exec cat'",
        &["--stdout", "stream", "--stdin", "stream"],
    );
    let state_dir = pod.path("/run/iottymux");
    let place = state_dir.join("one");
    fs::create_dir(&state_dir).unwrap();
    // Its directory cannot be made.
    fs::write(&place, "in the way").unwrap();
    // The start may count as done before systemd's child opens the streams, so its status says nothing.
    let start = || {
        let output = pod.try_run(&["timeout", "20", "systemctl", "start", "one"]);
        assert_ne!(output.status.code(), Some(124), "{output:?}");
        eventually("it has failed", || pod.property("one.service", "ActiveState") == "failed");
        assert_eq!(pod.property("one.service", "ExecMainStatus"), "208");
    };
    start();
    assert_eq!(fs::read_to_string(&place).unwrap(), "in the way");

    // Nor one whose options make no sense.
    fs::remove_file(&place).unwrap();
    let wrong = "[Service]\nEnvironment=IOTTYMUX_MAX_CLIENT_DELAY=none\n";
    pod.set_unit("iomux@one.service.d/x.conf", wrong);
    pod.systemctl(&["stop", "iomux@one"]);
    start();

    // A plain file in the place of a FIFO is moved aside, and what is in it stays.
    fs::remove_dir_all(pod.path(&format!("{UNITS}/iomux@one.service.d"))).unwrap();
    pod.run(&[
        "iottymux", "units", "--app", "one", "--output", UNITS, "--stdout", "stream", "--stdin",
        "stream",
    ]);
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["stop", "iomux@one"]);
    fs::create_dir_all(&place).unwrap();
    // A link that leads nowhere without a mux.
    let _ = fs::remove_file(place.join("stage2-stdout"));
    fs::write(place.join("stage2-stdout"), "kept").unwrap();
    pod.systemctl(&["start", "one"]);
    assert_eq!(pod.connect("one", "sock-stdout").line(), "lost");
    let kept = fs::read_dir(place.join("ends")).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|p| p.is_file() && fs::read(p).unwrap() == b"kept").collect();
    assert_eq!(kept.len(), 1, "{:?}", pod.names("/run/iottymux/one/ends"));
}

/// What is left of processes, units and files, so that more than before is found.
fn rest(pod: &Pod) -> Vec<String> {
    let mut rest = pod.names(UNITS);
    rest.extend(pod.names("/run/iottymux"));
    let units = pod.systemctl(&["list-units", "--all", "--plain", "--no-legend"]);
    let ours = |line: &&str| line.contains("app-") || line.contains("mux@");
    rest.extend(units.lines().filter(ours).map(str::to_owned));
    let fds = pod.run(&["sh", "-c", "ls /proc/1/fd | wc -l"]);
    rest.push(format!("{} descriptors of PID 1", fds.trim()));
    let processes = pod.run(&["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null"]);
    rest.extend(processes.lines().filter(|name| *name == "iottymux").map(str::to_owned));
    rest
}

#[test]
fn ten_apps_come_and_go_and_leave_nothing() {
    let Some(pod) = sandbox() else { return };
    let apps: Vec<String> = (0..10).map(|n| format!("app-{n}")).collect();
    let modes = [
        &["--stdin", "stream", "--stdout", "stream", "--stderr", "stream"][..],
        &["--tty"],
        &["--stdout", "stream", "--layout", "sockets"],
    ];
    let mut before = None;
    for round in 0..rounds(3, 50) {
        for (n, app) in apps.iter().enumerate() {
            add(&pod, app, "/bin/sh -c 'echo up; exec sleep 1000'", modes[n % modes.len()]);
        }
        let names: Vec<&str> = apps.iter().map(String::as_str).collect();
        pod.systemctl(&[&["start"], &names[..]].concat());
        for (n, app) in apps.iter().enumerate() {
            let socket = if n % modes.len() == 1 { "sock-tty" } else { "sock-stdout" };
            assert_eq!(pod.connect(app, socket).line(), "up", "{app}");
        }
        let list = pod.run(&["iottymux", "list"]);
        assert_eq!(list.lines().filter(|line| line.contains(" running ")).count(), 10, "{list}");
        for app in &apps {
            remove(&pod, app);
        }
        // The first round has made what stays as long as the pod.
        let now = rest(&pod);
        assert_eq!(&now, before.get_or_insert(now.clone()), "round {round}");
    }
}
