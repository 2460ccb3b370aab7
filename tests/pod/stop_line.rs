//! A line that has a service save and end when systemd stops it.

use std::fs;

use crate::pod::{Plan, Pod};
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
