//! Commands in the background outlive the service that started them.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::pod::{Plan, Pod, rounds};
use crate::proc::eventually;

/// A daemon that starts commands, and notes what `run` says.
fn daemon(options: &str, runs: &str) -> String {
    format!("[Service]\n{options}\nExecStart=/bin/sh -c '{runs}; exec sleep inf'\n")
}

/// Starts the daemon, and returns what its commands said, once all of them have.
fn said(pod: &Pod, unit: &str, lines: usize) -> String {
    pod.systemctl(&["start", unit]);
    let read = || fs::read_to_string(pod.path("/shared/said")).unwrap_or_default();
    eventually("the daemon has started its commands", || read().lines().count() >= lines);
    read()
}

fn pid(pod: &Pod, app: &str) -> String {
    let status = pod.run(&["iottymux", "status", "--json", app]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["app_pid"].to_string()
}

#[test]
fn it_outlives_the_restart_of_a_daemon_and_ends_with_its_scope() {
    let Some(plan) = Plan::new() else { return };
    let runs = "iottymux run -A -dt --name a@1 cat >>/shared/said 2>&1";
    let pod = plan.unit("agentd.service", &daemon("Slice=agents.slice", runs)).boot();
    let text = said(&pod, "agentd", 2);
    let scope = text.split_whitespace().find(|word| word.starts_with("iottymux-a-1-")).unwrap();
    assert_eq!(text, format!("iottymux: a@1 is in {scope} and outlives agentd.service\na@1\n"));
    let before = pid(&pod, "a@1");
    pod.systemctl(&["restart", "agentd"]);
    eventually("the next daemon has looked for it", || {
        fs::read_to_string(pod.path("/shared/said")).unwrap().lines().count() == 3
    });
    assert_eq!(pid(&pod, "a@1"), before, "-A finds it again");
    pod.run(&["iottymux", "send", "a@1", "hello"]);
    let shown = pod.run(&["systemctl", "show", "-p", "Description,Slice", scope]);
    assert_eq!(shown, "Slice=agents.slice\nDescription=iottymux run: cat\n");
    // All of its processes get SIGTERM at once, and how it ended is known.
    pod.systemctl(&["stop", "agentd", scope]);
    let ended = pod.run(&["iottymux", "list", "--json"]);
    let ended: serde_json::Value = serde_json::from_str(&ended).unwrap();
    assert_eq!(ended[0]["app_ended"]["signal"], 15, "{ended}");
}

#[test]
fn what_ends_with_the_daemon_is_told() {
    let Some(plan) = Plan::new() else { return };
    let run = |options: &str, name: &str| {
        format!("iottymux {options} run -dt --name {name} cat >>/shared/said 2>&1")
    };
    // Each but the last has a reason not to move.
    let never = format!("IOTTYMUX_SCOPE=never {}", run("", "n"));
    let in_tmp = run("--state-dir /tmp/x", "t");
    let of_unit = run("--state-dir /var/run/agentd/x", "r");
    let own_tmp = run("", "p");
    let runs = [never, in_tmp, of_unit, own_tmp].join("; ");
    let options = "PrivateTmp=yes\nRuntimeDirectory=agentd";
    let by = |uid, name| {
        let ids = format!("--reuid={uid} --regid={uid} --clear-groups");
        format!("setpriv {ids} {}", run("", name))
    };
    let pod = plan
        .unit("agentd.service", &daemon(options, &runs))
        .unit("userd.service", &daemon("", &format!("{}; {}", by(1, "u"), by(61_200, "d"))))
        .unit("strays.service", &daemon("KillMode=process", &run("", "s")))
        // What a unit starts by itself is what it is for.
        .unit(
            "app.service",
            "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=iottymux run -dt --name x cat\n",
        )
        .boot();
    let text = said(&pod, "agentd", 7);
    let why = "its state directory";
    let try_it = "does; try export IOTTYMUX_STATE_DIR=DIR";
    assert!(text.starts_with("n\niottymux: t "), "{text}");
    assert!(text.contains(&format!("t ends with agentd.service: {why} /tmp/x {try_it}\nt\n")));
    assert!(
        text.contains(&format!("r ends with agentd.service: {why} /run/agentd/x {try_it}\nr\n"))
    );
    let own = "outlives agentd.service; the private /tmp of agentd.service does not\np\n";
    assert!(text.ends_with(own), "{text}");
    let text = said(&pod, "userd", 11);
    let hint = "u ends with userd.service: its user has no systemd that runs; try loginctl enable-linger daemon\n";
    assert!(text.contains(hint), "{text}");
    let dynamic =
        "d ends with userd.service: a dynamic user has no systemd; try User= in the unit\n";
    assert!(text.contains(dynamic), "{text}");
    assert!(said(&pod, "strays", 12).ends_with("\ns\n"));
    pod.systemctl(&["start", "app"]);
    pod.systemctl(&["stop", "agentd", "userd", "strays", "app"]);
    let running = || -> Vec<String> {
        let list = pod.run(&["iottymux", "list"]);
        let running = list.lines().filter(|line| line.contains(" running "));
        running.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    };
    eventually("only what was told to outlive them runs", || running() == ["p", "s"]);
}

/// It lives where it was started.
#[test]
fn who_leaves_an_attached_command_is_told_what_ends_it() {
    let Some(plan) = Plan::new() else { return };
    let runs = "sleep inf | iottymux run --name w cat >/shared/said 2>&1";
    let pod = plan.unit("webd.service", &daemon("", runs)).boot();
    pod.systemctl(&["start", "webd"]);
    let is_there = || pod.path("/run/iottymux/w/endpoints").exists();
    let clients = || if is_there() { pod.clients("w") } else { Vec::new() };
    eventually("it is attached", || clients().len() == 1);
    pod.run(&["iottymux", "control", "w", "detach", &clients()[0]]);
    let said = || fs::read_to_string(pod.shared("said")).unwrap();
    let told = "iottymux: w ends with webd.service; what iottymux run -d starts there does not\n";
    eventually("it is told", || said().ends_with(told));
}

#[test]
fn a_systemd_that_hangs_holds_it_for_a_moment_only() {
    let Some(plan) = Plan::new() else { return };
    let runs = "until [ -e /shared/go ]; do sleep 0.01; done; \
        iottymux run -dt --name h cat >/shared/said 2>&1";
    let pod = plan.unit("agentd.service", &daemon("", runs)).boot();
    pod.systemctl(&["start", "agentd"]);
    pod.signal_init(Signal::SIGSTOP);
    fs::write(pod.shared("go"), "").unwrap();
    let from = Instant::now();
    let said = || fs::read_to_string(pod.shared("said")).unwrap_or_default();
    eventually("the command runs", || said().ends_with("\nh\n"));
    let took = from.elapsed();
    pod.signal_init(Signal::SIGCONT);
    assert!(said().starts_with("iottymux: h ends with agentd.service: "), "{}", said());
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// Starts and ends commands, each in another way than the one before.
const LOOP: &str = "for n in $(seq ROUNDS); do
  iottymux run -dt --name l$n cat
  case $((n % 3)) in
    0) iottymux stop l$n ;;
    1) iottymux kill l$n ;;
    2) systemctl stop \"iottymux-l$n-*.scope\" ;;
  esac >/dev/null 2>&1
  iottymux wait l$n
  iottymux rm l$n
done >/shared/said 2>&1
exec sleep inf
";

#[test]
fn nothing_is_left_of_many_scopes() {
    let Some(plan) = Plan::new() else { return };
    let rounds = rounds(9, 200);
    let script = LOOP.replace("ROUNDS", &rounds.to_string());
    let pod = plan
        .unit("agentd.service", &daemon("", "sh /shared/loop"))
        .write("shared/loop", &script)
        .boot();
    pod.systemctl(&["start", "agentd"]);
    let said = || fs::read_to_string(pod.shared("said")).unwrap_or_default();
    for n in 1..=rounds {
        eventually("the next one has ended", || said().contains(&format!("removed app l{n}\n")));
    }
    let said = said();
    let count = |words| said.matches(words).count();
    assert_eq!(count(" outlives agentd.service\n"), rounds, "{said}");
    assert_eq!(count("ended by signal 15\n") + count("ended by signal 9\n"), rounds, "{said}");
    assert_eq!(pod.names("/run/iottymux"), [""; 0]);
    let units = ["list-units", "--all", "--no-legend", "iottymux-*"];
    eventually("systemd has forgotten the last one", || pod.systemctl(&units).is_empty());
}
