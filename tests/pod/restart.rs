//! Stop, start and the death of the mux: the app can always be attached, and nothing stale stays.

use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;

use crate::pod::{MUX_USER, Pod, rounds};
use crate::wait::eventually;

/// What an ended mux may leave: its lock and the app's last words. Every name in the directory is in
/// one list or the other.
const STALE: [&str; 6] =
    ["endpoints", "sock-session", "sock-stderr", "sock-stdin", "sock-stdout", "sock-tty"];

fn assert_nothing_stale(pod: &Pod, app: &str) {
    let names = pod.names(&pod.mux_dir(app));
    assert!(names.iter().all(|n| !STALE.contains(&n.as_str()) && !n.starts_with('.')), "{names:?}");
}

fn assert_echo(pod: &Pod, word: &str) {
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    assert_eq!(stdout.line(), word);
}

fn assert_shell(pod: &Pod, word: &str) {
    let mut tty = pod.connect("shell", "sock-tty");
    tty.say(&format!("echo answer'-'{word}\n"));
    tty.line_ending(&format!("answer-{word}"));
}

/// What differs between the two kinds of app.
struct Kind {
    app: &'static str,
    mux: &'static str,
    /// The mode that attaches its input.
    input: &'static str,
    assert_works: fn(&Pod, &str),
}

const KINDS: [Kind; 2] = [
    Kind { app: "demo", mux: "iomux@demo.service", input: "stdin", assert_works: assert_echo },
    Kind { app: "shell", mux: "ttymux@shell.service", input: "tty-in", assert_works: assert_shell },
];

fn main_pid(pod: &Pod, unit: &str) -> String {
    let pid = pod.property(unit, "MainPID");
    assert_ne!(pid, "0", "{unit} does not run\n{}", pod.console());
    pid
}

fn kill_mux(pod: &Pod, kind: &Kind) {
    let before = main_pid(pod, kind.mux);
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", kind.mux]);
    pod.await_mux(kind.app, kind.input);
    assert_ne!(main_pid(pod, kind.mux), before);
}

fn stop_and_look(pod: &Pod, kind: &Kind) {
    pod.systemctl(&["stop", kind.app]);
    // Its mux is being stopped by then; this waits for it.
    pod.systemctl(&["stop", kind.mux]);
    assert_nothing_stale(pod, kind.app);
}

fn cycles(kind: &Kind) {
    let Some(pod) = Pod::delivered() else { return };
    for round in 0..8 {
        pod.systemctl(&["start", kind.app]);
        (kind.assert_works)(&pod, &format!("w{round}"));
        stop_and_look(&pod, kind);
    }
    for round in 0..8 {
        pod.systemctl(&["start", kind.app]);
        let app = main_pid(&pod, kind.app);
        kill_mux(&pod, kind);
        (kind.assert_works)(&pod, &format!("k{round}"));
        assert_eq!(main_pid(&pod, kind.app), app, "the app noticed");
        assert_eq!(pod.property(kind.app, "NRestarts"), "0");
        stop_and_look(&pod, kind);
    }
}

#[test]
fn cycles_of_streams() {
    cycles(&KINDS[0]);
}

#[test]
fn cycles_of_a_terminal() {
    cycles(&KINDS[1]);
}

/// Stop and start without waiting in between: the start overtakes the end of the old mux.
#[test]
fn restarting_the_app() {
    let Some(pod) = Pod::delivered() else { return };
    for kind in &KINDS {
        pod.systemctl(&["start", kind.app]);
        for round in 0..rounds(8, 30) {
            pod.systemctl(&["restart", kind.app]);
            pod.await_mux(kind.app, kind.input);
            (kind.assert_works)(&pod, &format!("r{round}"));
        }
        for round in 0..rounds(8, 30) {
            pod.systemctl(&["stop", kind.app]);
            pod.systemctl(&["start", kind.app]);
            pod.await_mux(kind.app, kind.input);
            (kind.assert_works)(&pod, &format!("s{round}"));
        }
    }
}

/// As an upgrade does it: the app runs on, and can itself be restarted afterwards.
#[test]
fn restarting_the_mux() {
    let Some(pod) = Pod::delivered() else { return };
    for kind in &KINDS {
        pod.systemctl(&["start", kind.app]);
        let app = main_pid(&pod, kind.app);
        pod.systemctl(&["restart", kind.mux]);
        (kind.assert_works)(&pod, "upgraded");
        assert_eq!(main_pid(&pod, kind.app), app, "the app noticed");
        pod.run(&["timeout", "20", "systemctl", "restart", kind.app]);
        assert_ne!(main_pid(&pod, kind.app), app);
        (kind.assert_works)(&pod, "restarted");
        stop_and_look(&pod, kind);
    }
}

/// Only systemd ends a mux: after a signal by hand there is one again, and the app runs on. systemd
/// takes the death by most of these for a wanted end.
#[test]
fn a_signal_by_hand_leaves_no_app_without_a_mux() {
    let Some(pod) = Pod::delivered() else { return };
    let [pid, go] = ["pid", "go"].map(|name| {
        let fifo = pod.shared_fifo(name);
        // The mux is not root.
        chown(&fifo, Some(MUX_USER), None).unwrap();
        fifo
    });
    for kind in &KINDS {
        pod.systemctl(&["start", kind.app]);
        let app = main_pid(&pod, kind.app);
        let argv = pod.property(kind.mux, "ExecStart");
        let argv = argv.split_once("argv[]=").unwrap().1.split_once(" ;").unwrap().0;
        // Each next mux has a first moment without handlers, in which it waits.
        let waits = "echo $$$$ >/shared/pid; read -r x </shared/go";
        let unit = format!("[Service]\nExecStart=\nExecStart=/bin/sh -c '{waits}; exec {argv}'\n");
        pod.set_unit(&format!("{}.d/wait.conf", kind.mux), &unit);
        let send = |signal: &str| {
            println!("{signal} to {}", kind.mux);
            let before = main_pid(&pod, kind.mux);
            pod.systemctl(&["kill", "--kill-who=main", "--signal", signal, kind.mux]);
            before
        };
        let is_there_after = |before: &str| {
            eventually("there is a next mux", || {
                let now = pod.property(kind.mux, "MainPID");
                now != "0" && now != before
            });
            fs::read_to_string(&pid).unwrap()
        };
        for signal in ["PIPE", "HUP", "INT", "QUIT", "TERM"] {
            let mut before = send(signal);
            if ["PIPE", "HUP"].contains(&signal) {
                // systemd has its services ignore SIGPIPE from their start on.
                (kind.assert_works)(&pod, signal);
                before = send("KILL");
            }
            let mut now = is_there_after(&before);
            if signal != "PIPE" {
                assert_eq!(send(signal), now.trim());
                now = is_there_after(now.trim());
            }
            fs::write(&go, "go\n").unwrap();
            pod.await_mux(kind.app, kind.input);
            (kind.assert_works)(&pod, "again");
            assert_eq!(main_pid(&pod, kind.mux), now.trim());
            assert_eq!(main_pid(&pod, kind.app), app, "the app noticed");
        }
        stop_and_look(&pod, kind);
    }
}

/// What the app writes while there is no mux waits in the FIFO, which systemd keeps open.
#[test]
fn output_written_while_the_mux_is_dead() {
    let Some(pod) = Pod::delivered() else { return };
    // Tells on a way of its own that it has written, since the mux cannot.
    let script = "trap 'echo tick; echo written >/shared/told' USR1; echo up; \
                  while :; do sleep 1000 & wait $!; done";
    fs::write(pod.shared("app.sh"), script).unwrap();
    let told = pod.shared_fifo("told");
    pod.set_unit(
        "demo.service.d/x.conf",
        "[Service]\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n",
    );
    pod.systemctl(&["start", "demo.service"]);
    assert_eq!(pod.connect("demo", "sock-stdout").line(), "up");
    for _ in 0..rounds(3, 30) {
        // What it has sent it has also noted when it answers; killed between the two it sends it once more.
        pod.run(&["iottymux", "status", "--app", "demo"]);
        pod.systemctl(&["kill", "--kill-who=main", "--signal=STOP", "iomux@demo.service"]);
        pod.systemctl(&["kill", "--kill-who=main", "--signal=USR1", "demo.service"]);
        let mut word = String::new();
        fs::File::open(&told).unwrap().read_to_string(&mut word).unwrap();
        assert_eq!(word, "written\n");
        kill_mux(&pod, &KINDS[0]);
        assert_eq!(pod.connect("demo", "sock-stdout").line(), "tick");
    }
}

/// A mux that is stopped has not failed, in whichever step of its start that happens.
#[test]
fn a_mux_may_be_stopped_while_it_starts() {
    for kind in &KINDS {
        let Some(pod) = Pod::delivered() else { return };
        let script = format!(
            "for step in $(seq {}); do \
               systemctl start --no-block {mux}; sleep 0.0$((step % 30 / 10))$((step % 10)); \
               systemctl stop {mux}; systemctl show -p ActiveState --value {mux}; \
             done | sort | uniq -c",
            rounds(60, 600),
            mux = kind.mux,
        );
        let states = pod.run(&["sh", "-c", &script]);
        assert!(!states.contains("failed"), "{states}\n{}", pod.console());
    }
}

/// What the app did not read when it ended is for no other process: it may be half a command. Nor does a
/// terminal stay stopped by ^S.
#[test]
fn the_next_run_reads_nothing_that_was_for_the_last_one() {
    for kind in &KINDS {
        let Some(pod) = Pod::delivered() else { return };
        let script = "[ -e /shared/again ] && exec $1; touch /shared/again; exec sleep 1000";
        fs::write(pod.shared("app.sh"), script).unwrap();
        let runs = if kind.app == "shell" { "sh" } else { "cat" };
        let unit = format!("[Service]\nExecStart=\nExecStart=/bin/sh /shared/app.sh {runs}\n");
        pod.set_unit(&format!("{}.service.d/x.conf", kind.app), &unit);
        pod.systemctl(&["start", kind.app]);
        eventually("it runs", || pod.shared("again").exists());
        pod.run(&["iottymux", "send", kind.app, "touch /shared/stale"]);
        let is_tty = kind.app == "shell";
        let _typist = is_tty.then(|| {
            let mut tty = pod.connect("shell", "sock-tty");
            tty.line_ending("touch /shared/stale");
            tty.say("half\x13");
            let status = || pod.run(&["iottymux", "status", "shell"]);
            eventually("its output is stopped", || status().contains("stopped by ^S"));
            tty
        });
        pod.systemctl(&["restart", kind.app]);
        pod.await_mux(kind.app, kind.input);
        (kind.assert_works)(&pod, "fresh");
        assert!(!pod.shared("stale").exists());
    }
}

#[test]
fn a_stop_of_the_output_ends_with_the_mux() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "shell"]);
    let mut typist = pod.connect("shell", "sock-tty");
    typist.say("\x13");
    let status = || {
        let shown = pod.try_run(&["iottymux", "status", "shell"]);
        String::from_utf8(shown.stdout).unwrap()
    };
    eventually("its output is stopped", || status().contains("stopped by ^S"));
    pod.systemctl(&["kill", "--signal=KILL", "ttymux@shell"]);
    eventually("another mux has started it", || {
        let status = status();
        status.contains(": running") && !status.contains("stopped by ^S")
    });
}
