//! A line that has a service save and end when systemd stops it.

use std::fs;

use crate::pod::{Plan, Pod};
use crate::proc::eventually;
use crate::status::Attach;

/// A server that saves its world only if it is told to by the line in a file.
const SERVER: &str = "\
trap 'exit 1' TERM; echo up
read -r wanted </shared/wanted
while read -r line; do [ \"$line\" = \"$wanted\" ] && { sleep 0.3; echo saved >/shared/world; exit 0; }; done
exec sleep 1000
";
/// Everything that a unit or a shell could take for something else.
const LINE: &str = "-save $HOME ${x} 100% \"now\" 'it' \\ ; & %n é";

fn pod() -> Option<Pod> {
    let unit = "[Service]\nExecStart=/bin/sh /shared/server\n";
    let pod = Plan::new()?.unit("game.service", unit).boot();
    fs::write(pod.shared("server"), SERVER).unwrap();
    fs::write(pod.shared("wanted"), format!("{LINE}\n")).unwrap();
    Some(pod)
}

fn enable(pod: &Pod, options: &[&str]) -> String {
    let line = format!("--stop-line={LINE}");
    pod.run(&[&["iottymux", "enable", "game", &line], options].concat())
}

fn assert_saved(pod: &Pod) {
    assert_eq!(fs::read_to_string(pod.shared("world")).unwrap(), "saved\n");
    assert_eq!(pod.property("game.service", "Result"), "success", "{}", pod.console());
    fs::remove_file(pod.shared("world")).unwrap();
}

#[test]
fn a_service_saves_before_it_is_stopped() {
    let Some(pod) = pod() else { return };
    for streams in [&["--stdin", "stream", "--stdout", "stream"][..], &["--tty"]] {
        enable(&pod, &[&["--reset"], streams].concat());
        pod.systemctl(&["start", "game"]);
        // Whoever types alone.
        let alone = Attach::with(&pod, "game", &["--exclusive", "--from", "start"]);
        pod.run(&["iottymux", "wait", "game", "--for", "up", "--from", "start"]);
        pod.systemctl(&["restart", "game"]);
        assert_saved(&pod);
        pod.systemctl(&["stop", "game"]);
        assert_saved(&pod);
        drop(alone);
    }
    // Also when it gets its own streams back.
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "wait", "game", "--for", "up", "--from", "start"]);
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_saved(&pod);
    pod.systemctl(&["stop", "game"]);
    enable(&pod, &["--tty"]);
    // It holds until it is named again, and is shown.
    pod.run(&["iottymux", "enable", "game", "--stop-timeout", "30"]);
    let shown = pod.run(&["iottymux", "enable", "--list", "game"]);
    assert!(shown.contains("--stop-line=") && shown.contains("--stop-timeout=30"), "{shown}");
    let drop_in = || pod.run(&["systemctl", "cat", "game.service"]);
    assert!(drop_in().contains("stop-line --time 30"), "{}", drop_in());
    pod.run(&["iottymux", "enable", "game", "--stop-line="]);
    assert!(!drop_in().contains("stop-line"), "{}", drop_in());
    let output = pod.try_run(&["iottymux", "enable", "game", "--stop-timeout", "30"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--stop-timeout is the time for --stop-line, and game.service has none"));
}

/// systemd goes on as without it.
#[test]
fn a_service_that_does_not_end_is_ended() {
    let Some(pod) = pod() else { return };
    // It does not read yet what it is enabled for.
    pod.systemctl(&["start", "game"]);
    enable(&pod, &["--tty", "--stop-timeout", "1000"]);
    pod.systemctl(&["stop", "game"]);
    assert!(!pod.shared("world").exists());
    // It reads another line.
    enable(&pod, &["--stop-timeout", "1"]);
    fs::write(pod.shared("wanted"), "another\n").unwrap();
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "wait", "game", "--for", "up", "--from", "start"]);
    pod.systemctl(&["stop", "game"]);
    assert_eq!(pod.property("game.service", "ActiveState"), "failed");
    assert!(!pod.shared("world").exists());
    // It has no input at all.
    let refused = pod.try_run(&[
        "iottymux",
        "enable",
        "game",
        "--reset",
        "--stdout",
        "stream",
        "--stop-line",
        "stop",
    ]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("--stop-line requires an input of game.service"), "{said}");
}

/// Saves on `stop`, slowly and with more output than a terminal holds; `$1` are options of `read`.
const WORLD: &str = "\
trap '' TERM; echo up
while read -r $1 -p '> ' line; do case $line in
stop) for i in 1 2 3 4 5; do sleep 0.1; head -c 80000 /dev/zero | tr '\\0' x; echo; done; echo saved >/shared/world; exit 0;;
menu) printf '\\033[?1049hMENU'; until [ \"$key\" = q ]; do read -r -N 1 key; done; printf '\\033[?1049l';;
*) echo \"unknown: $line\"; echo \"$line\" >>/shared/unknown;;
esac; done
";

/// Marks a case in which nobody can save.
const MENU: &str = ":";

/// How somebody has left the console: bytes that they typed, whether they are still there, and what happens
/// to the mux.
const LEFT: [(&str, bool, &str); 8] = [
    ("say hel", false, ""),
    ("say hel", true, ""),
    ("\x13", true, ""),
    ("say \x16", false, ""),
    ("x", true, "kill -9 $mux"),
    ("", false, "systemctl restart --no-block ttymux@game"),
    ("", false, "(sleep 0.3; kill -9 $mux) &"),
    // Only who knows it knows the way out: then it is said what is there.
    ("menu\r", false, MENU),
];

#[test]
fn a_service_saves_however_its_console_was_left() {
    let unit = "[Service]\nExecStart=/bin/bash /shared/world.sh\nTimeoutStopSec=10\n";
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", unit).boot();
    for options in ["", "-e"] {
        let script = format!("set -- {options}\n{WORLD}");
        fs::write(pod.shared("world.sh"), script).unwrap();
        pod.run(&["iottymux", "enable", "game", "--tty", "--stop-line=stop", "--stop-timeout=6"]);
        for (typed, stays, before) in LEFT {
            let case = format!("read {options}: {typed:?} {before}");
            println!("{case}");
            pod.systemctl(&["start", "game"]);
            pod.run(&["iottymux", "wait", "game", "--screen", "> ", "--timeout", "30"]);
            let who = if stays {
                let mut who = Attach::with(&pod, "game", &["--mode", "tty-in"]);
                who.say(typed);
                let is_stopped = || {
                    pod.run(&["iottymux", "status", "game", "--json"]).contains("\"stopped\":true")
                };
                if typed == "\x13" {
                    eventually("the output is stopped", is_stopped);
                }
                Some(who)
            } else {
                let script = "printf %s \"$1\" | iottymux attach game --mode tty-in";
                pod.run(&["bash", "-c", script, "bash", typed]);
                None
            };
            let is_menu = before == MENU;
            if is_menu {
                pod.run(&["iottymux", "wait", "game", "--screen", "MENU", "--timeout", "30"]);
                pod.run(&["iottymux", "enable", "game", "--stop-timeout=1"]);
            }
            let mux = "mux=$(systemctl show -P MainPID ttymux@game)";
            let script =
                format!("{mux}; {before}\nsystemctl stop game; systemctl reset-failed game");
            pod.try_run(&["bash", "-c", &script]);
            // What a command of the unit says goes where the service's own words go.
            let said = pod.run(&["iottymux", "status", "game"]);
            if is_menu {
                assert!(said.contains("the service has not ended in 1s"), "{case}: {said}");
            } else {
                assert!(fs::remove_file(pod.shared("world")).is_ok(), "{case}: {said}");
            }
            drop(who);
        }
        let unknown = fs::read_to_string(pod.shared("unknown")).unwrap_or_default();
        assert_eq!(unknown, "", "read {options}");
    }
}

/// Others know what theirs needs.
#[test]
fn a_stop_line_may_hold_keys() {
    let unit = "[Service]\nExecStart=/bin/bash /shared/world.sh\n";
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", unit).boot();
    fs::write(pod.shared("world.sh"), format!("set -- -e\n{WORLD}")).unwrap();
    // Away from the letter in front of it.
    let line = "--stop-line=\x01\x0b\"\\\x15stop";
    pod.run(&["iottymux", "enable", "game", "--tty", line, "--stop-timeout=6"]);
    let shown = pod.run(&["iottymux", "enable", "--list", "game"]);
    assert!(!shown.contains('\x01'), "{shown:?}");
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "wait", "game", "--screen", "> ", "--timeout", "30"]);
    pod.systemctl(&["stop", "game"]);
    assert_saved(&pod);
    let output = pod.try_run(&["iottymux", "enable", "game", "--stop-timeout=1000"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("its TimeoutStopSec=90s is shorter than --stop-timeout 1000"), "{said}");
}

/// ^S must not keep a service that ends by itself from that.
#[test]
fn a_stop_resumes_the_output() {
    let unit = "[Service]\nExecStart=/bin/bash -c \"trap 'echo bye; exit 0' TERM; echo up; \
                while read -r x; do echo $$x; done\"\nTimeoutStopSec=10\n";
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", unit).boot();
    pod.run(&["iottymux", "enable", "game", "--tty"]);
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "wait", "game", "--screen", "up", "--timeout", "30"]);
    let mut who = Attach::with(&pod, "game", &["--mode", "tty-in"]);
    who.say("\x13line\r");
    eventually("the output is stopped", || pod.run(&["iottymux", "status", "game"]).contains("^S"));
    pod.systemctl(&["stop", "game"]);
    assert_eq!(pod.property("game.service", "Result"), "success", "{}", pod.console());
}
