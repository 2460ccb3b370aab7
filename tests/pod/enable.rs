//! `enable` and `disable` as an administrator uses them: the service's own file stays as it is.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use crate::pod::{Plan, Pod, rounds};
use crate::proc::Proc;
use crate::proc::eventually;
use crate::pty::Pty;

/// A service as somebody else has written it: what it prints goes to the journal.
const GAME: &str = "[Service]\nExecStart=/bin/sh -c 'echo up; cat; exec sleep 1000'\nExecReload=/bin/echo loading\nExecStop=/bin/echo saving\n";

fn pod(name: &str, text: &str) -> Option<Pod> {
    Some(Plan::new()?.unit(name, text).boot())
}

/// The files of units in the pod, but for those of the test itself.
fn written(pod: &Pod) -> Vec<String> {
    let mut names = pod.names("/etc/systemd/system");
    names.retain(|name| !["default.target", "game.service", "game@.service"].contains(&&**name));
    names
}

fn assert_nothing_is_left(pod: &Pod, app: &str) {
    assert_eq!(written(pod), Vec::<String>::new());
    assert!(!pod.path("/run/iottymux").join(app).exists());
    assert!(!pod.path("/var/log/iottymux").join(app).exists());
    for unit in ["iomux", "ttymux"] {
        let unit = format!("{unit}@{app}.service");
        assert_eq!(pod.property(&unit, "ActiveState"), "inactive", "{unit}");
    }
}

/// Whether nothing can be written where the units are.
fn read_only(pod: &Pod, on: bool) {
    let options = if on { "remount,bind,ro" } else { "remount,bind,rw" };
    pod.run(&["mount", "-o", options, "/etc/systemd/system"]);
}

#[test]
fn a_console_for_a_service_that_runs() {
    let Some(pod) = pod("game.service", GAME) else { return };
    // Which forgets what PID 1 was told by its command line.
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    let before = pod.property("game.service", "StandardOutput");
    let told = pod.run(&["iottymux", "enable", "game", "--tty"]);
    // Nor are its hooks, which systemd gives the new streams.
    pod.systemctl(&["reload", "game"]);
    assert!(told.contains("systemctl restart game.service"), "{told}");
    assert_eq!(pod.property("game.service", "MainPID"), pid, "it is not disturbed");
    // Again changes nothing.
    let again = pod.run(&["iottymux", "enable", "game.service", "--tty"]);
    assert!(!again.contains("wrote") && again.contains("kept"), "{again}");
    assert!(again.contains("after: systemctl restart game.service"), "{again}");

    pod.systemctl(&["restart", "game"]);
    let mut tty = pod.connect("game", "sock-tty");
    tty.line_ending("up");
    tty.say("hello\n");
    tty.line_ending("hello");

    // The mux that it has is not taken from under it.
    let other = ["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream"];
    let refused = pod.try_run(&other);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is running with other streams"));
    // Its options may be others, and are from now on.
    let told = pod.run(&["iottymux", "enable", "game", "--tty", "--env", "IOTTYMUX_BACKLOG=8K"]);
    assert!(told.ends_with("game.service can be attached: iottymux attach game\n"), "{told}");
    let mut tty = pod.connect("game", "sock-tty");
    tty.say("the same\n");
    tty.line_ending("the same");
    assert_eq!(pod.property("ttymux@game.service", "NRestarts"), "0");

    // Other streams take away what they do not need.
    let told = pod
        .run(&["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream", "--now"]);
    assert!(told.contains("removed"), "{told}");
    let mut stdout = pod.connect("game", "sock-stdout");
    assert_eq!(stdout.line(), "up");
    pod.connect("game", "sock-stdin").say("again\n");
    assert_eq!(stdout.line(), "again");

    // It runs: it keeps its streams.
    let why = "cannot disable game.service: it is running; stop it first, or restart it with --now";
    let output = pod.try_run(&["iottymux", "disable", "game"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    pod.connect("game", "sock-stdin").say("still\n");
    assert_eq!(stdout.line(), "still");
    pod.systemctl(&["stop", "game"]);
    assert_eq!(stdout.rest(), b"saving\n");
    pod.run(&["iottymux", "disable", "game"]);
    assert_nothing_is_left(&pod, "game");
    pod.systemctl(&["start", "game"]);
    assert_eq!(pod.property("game.service", "StandardOutput"), before);
    assert_eq!(fs::read_to_string(pod.path("/etc/systemd/system/game.service")).unwrap(), GAME);
}

/// systemd is asked: it runs, though its mux knows nothing of it.
#[test]
fn a_service_that_runs_is_pending_until_it_is_restarted() {
    const WHY: &str =
        "game.service runs, but can be attached only after: systemctl restart game.service\n";
    let Some(pod) = pod("game.service", GAME) else { return };
    let state = || {
        let status = pod.run(&["iottymux", "status", "--json", "game"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let listed: serde_json::Value =
            serde_json::from_str(&pod.run(&["iottymux", "list", "--json"])).unwrap();
        assert_eq!(status["app_state"], listed[0]["state"]);
        status["app_state"].as_str().unwrap().to_owned()
    };
    for modes in [&["--tty"][..], &["--stdin", "stream", "--stdout", "stream"]] {
        pod.systemctl(&["start", "game"]);
        pod.run(&[&["iottymux", "enable", "game"], modes].concat());
        assert_eq!(state(), "pending");
        let status = pod.run(&["iottymux", "status", "game"]);
        assert!(status.starts_with("app game: pending, mux "), "{status}");
        assert!(status.ends_with(WHY), "{status}");
        for command in [&["attach", "game"][..], &["send", "game", "x"]] {
            let said = refused(&pod, command);
            assert_eq!(said, format!("iottymux: {WHY}"));
        }
        let logs = pod.try_run(&["iottymux", "logs", "game"]);
        let said = String::from_utf8(logs.stderr).unwrap();
        assert!(said.starts_with(&format!("iottymux: warn: {WHY}")), "{said}");
        // A new mux knows it as well.
        pod.systemctl(&["restart", if modes.len() == 1 { "ttymux@game" } else { "iomux@game" }]);
        assert_eq!(state(), "pending");
        pod.systemctl(&["restart", "game"]);
        assert_eq!(state(), "running");
        assert!(!pod.run(&["iottymux", "status", "game"]).contains("restart"));
        pod.run(&["iottymux", "disable", "--now", "game"]);
        pod.systemctl(&["stop", "game"]);
    }
}

#[test]
fn enabled_again_now_it_is_not_restarted_for_nothing() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let enable = |more: &[&str]| {
        pod.run(&[&["iottymux", "enable", "game", "--now"], more].concat());
        pod.property("game.service", "MainPID")
    };
    let pid = enable(&["--tty"]);
    assert_eq!(enable(&[]), pid);
    // Only its mux gets new options.
    assert_eq!(enable(&["--env", "IOTTYMUX_BACKLOG=8K"]), pid);
    let status = pod.run(&["iottymux", "status", "game"]);
    assert!(!status.contains("restarts"), "{status}");
    // The directory that a mux sees is no other one.
    let listed = pod.run(&["iottymux", "list", "--all", "-q"]);
    assert_eq!(listed, "game\n");
    pod.systemctl(&["stop", "game"]);
    assert_ne!(enable(&[]), "0");
}

/// What a command that fails says.
fn refused(pod: &Pod, words: &[&str]) -> String {
    let output = pod.try_run(&[&["iottymux"], words].concat());
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_service_by_its_other_names() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", GAME).unit("game@.service", GAME).boot();
    pod.run(&["ln", "-s", "game.service", "/etc/systemd/system/console.service"]);
    pod.systemctl(&["daemon-reload"]);
    // It begins with the name of a service, which is not what is meant.
    pod.run(&["iottymux", "run", "--detach", "--name", "game2", "cat"]);
    for (words, service) in [
        (&["attach", "console"][..], "game"),
        (&["attach", "game"], "game"),
        (&["logs", "game"], "game"),
        (&["logs", "game.service"], "game"),
        (&["status", "game@eu"], "game@eu"),
        (&["send", "game@eu.service", "x"], "game@eu"),
    ] {
        let said = refused(&pod, words);
        let hint = format!("{service}.service is not attachable; try iottymux enable {service}\n");
        assert!(said.ends_with(&hint), "{words:?}: {said}");
    }
    assert!(refused(&pod, &["status", "nothing"]).contains("there is no app nothing in "));

    pod.run(&["iottymux", "enable", "game", "--app", "eu", "--now"]);
    for name in ["eu", "game", "game.service", "console"] {
        let status = pod.run(&["iottymux", "status", name]);
        assert!(status.starts_with("app eu: running"), "{name}: {status}");
        assert!(!status.contains("restarts"), "{status}");
    }
    // The journal has what it printed, and `logs` follows it.
    let mut logs = pod.command(&["iottymux", "logs", "-f", "console"]);
    logs.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut logs = Proc::spawn(logs);
    logs.stdout.wait_for("up\n");
    pod.run(&["iottymux", "send", "console", "hello"]);
    logs.stdout.wait_for("hello\n");
    pod.systemctl(&["stop", "game"]);
    assert_eq!(logs.ends(), 0, "{}", logs.stderr.text());
    let printed = logs.stdout.text();
    assert!(!printed.contains("Started"), "{printed}");
    assert!(pod.run(&["iottymux", "logs", "eu"]).starts_with("up\n"));
}

#[test]
fn all_instances_of_a_template() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game@.service", GAME).boot();
    let said = refused(&pod, &["enable", "game@"]);
    assert!(
        said.contains("systemd knows no instance of game@; try iottymux enable game@NAME"),
        "{said}"
    );
    // Of a target that the pod has been booted to: systemd knows what it wants.
    let wants = "/etc/systemd/system/default.target.wants";
    pod.run(&["mkdir", "-p", wants]);
    pod.run(&["ln", "-s", "../game@.service", &format!("{wants}/game@us.service")]);
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["start", "game@eu"]);
    assert!(refused(&pod, &["enable", "game@", "--app", "x"]).contains("only one service"));
    pod.run(&["iottymux", "enable", "game@.service", "--tty", "--now"]);
    for app in ["game@eu", "game@us"] {
        let status = pod.run(&["iottymux", "status", app]);
        assert!(status.starts_with(&format!("app {app}: running")), "{status}");
    }
    for pattern in ["game*", "game@*", "game@[eu]?.service"] {
        let list = pod.run(&["iottymux", "list", "-q", pattern]);
        assert_eq!(list, "game@eu\ngame@us\n", "{pattern}");
    }
    // These are not commands of `run`.
    assert!(refused(&pod, &["stop", "game*"]).contains("no app for this command fits game*"));
    let shown = pod.run(&["iottymux", "enable", "--list", "game@"]);
    let want = "iottymux enable game@eu.service --tty\niottymux enable game@us.service --tty\n";
    assert_eq!(shown, want);
    pod.run(&["iottymux", "disable", "--now", "game@"]);
    assert_eq!(pod.run(&["iottymux", "enable", "--list"]), "");
    assert!(refused(&pod, &["disable", "game@"]).contains("no instance of game@ is enabled"));
}

#[test]
fn several_services_at_once() {
    let Some(plan) = Plan::new() else { return };
    let units = ["web.service", "game@.service"];
    let pod = units.iter().fold(plan, |plan, unit| plan.unit(unit, GAME)).boot();
    pod.systemctl(&["start", "web", "game@eu"]);
    assert!(
        refused(&pod, &["enable", "web", "game@eu", "--app", "x"]).contains("only one service")
    );
    assert!(refused(&pod, &["enable", "game@*"]).contains("got a pattern"));
    // Those that can be enabled are.
    let said = refused(&pod, &["enable", "web", "nobody", "game@", "--streams", "--now"]);
    assert_eq!(
        said,
        "iottymux: error: cannot enable nobody.service: there is no such service\n\
         iottymux: enable failed for 1 of 3 services\n"
    );
    let list = |words: &[&str]| pod.run(&[&["iottymux", "enable", "--list"], words].concat());
    let modes = "--stdin stream --stdout stream --stderr stream\n";
    let line = |service: &str| format!("iottymux enable {service}.service {modes}");
    let both = line("game@eu") + &line("web");
    assert_eq!((list(&[]), list(&["web", "game@eu"])), (both.clone(), both));
    assert_eq!(list(&["web"]), line("web"));
    assert!(refused(&pod, &["enable", "--list", "web", "nobody"]).contains("not enabled"));
    assert!(pod.run(&["iottymux", "status", "web"]).starts_with("app web: running"));
    pod.run(&["iottymux", "disable", "--now", "web", "game@"]);
    assert_eq!(list(&[]), "");
}

/// What systemctl was called with, since the last time.
fn calls(pod: &Pod) -> Vec<String> {
    let calls = fs::read_to_string(pod.shared("calls")).unwrap_or_default();
    let _ = fs::remove_file(pod.shared("calls"));
    calls.lines().map(str::to_owned).collect()
}

/// systemd reads the units of the whole machine at each reload, which takes longer than all else.
#[test]
fn systemd_reads_the_files_of_several_services_at_once() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let Some(plan) = Plan::new() else { return };
    let systemctl = "#!/bin/sh\necho \"$*\" >>/shared/calls\nexec /usr/bin/systemctl \"$@\"";
    let units = NAMES.iter().map(|name| format!("{name}.service"));
    let pod = units.fold(plan, |plan, unit| plan.unit(&unit, GAME)).boot();
    pod.run(&["sh", "-c", &format!("echo '{systemctl}' >/shared/systemctl; chmod +x /shared/*")]);
    let iottymux = |words: &[&str]| {
        let path = ["env", "PATH=/shared:/usr/local/bin:/usr/bin:/bin", "iottymux"];
        pod.run(&[&path, words].concat())
    };
    let enable = |words: &[&str]| iottymux(&[&["enable", "--streams"], words].concat());
    let reloads = || calls(&pod).iter().filter(|call| *call == "daemon-reload").count();
    pod.systemctl(&["start", "b", "c"]);
    // It writes the template, which others may have.
    enable(&["a", "--now"]);
    reloads();
    enable(&NAMES);
    let calls = calls(&pod);
    let of = |verb: &str| calls.iter().filter(|call| call.starts_with(verb)).count();
    assert_eq!((of("daemon-reload"), of("restart"), of("start")), (1, 1, 1), "{calls:?}");
    for name in ["b", "c"] {
        let mux = format!("iomux@{name}.service");
        assert_eq!(pod.property(&mux, "ActiveState"), "active", "{mux}");
    }
    enable(&[&["--now"], &NAMES[..]].concat());
    assert_eq!(reloads(), 1);
    for name in NAMES {
        pod.connect(name, "sock-stdout").line_ending("up");
    }
    // Before and after they are restarted.
    let told = iottymux(&["disable", "--all", "--now"]);
    assert_eq!(reloads(), 2);
    for name in NAMES {
        assert!(told.contains(&format!("{name}.service has its own streams again\n")), "{told}");
        assert_eq!(pod.property(&format!("{name}.service"), "ActiveState"), "active", "{name}");
    }
    let is_left = |name: &String| name.contains("mux") || name.contains(".service.d");
    assert!(!pod.names("/etc/systemd/system").iter().any(is_left));
}

/// Those that can be disabled are, and one that is refused has its streams still.
#[test]
fn one_of_several_services_is_not_disabled() {
    let Some(plan) = Plan::new() else { return };
    let units = ["a.service", "b.service", "c.service"];
    let pod = units.iter().fold(plan, |plan, unit| plan.unit(unit, GAME)).boot();
    pod.run(&["iottymux", "enable", "a", "b", "c", "--streams"]);
    pod.systemctl(&["start", "b"]);
    let said = refused(&pod, &["disable", "a", "b", "nobody", "c"]);
    let why = [
        "iottymux: error: cannot disable b.service: it is running; stop it first",
        "iottymux: error: cannot disable nobody.service: it is not enabled",
        "iottymux: disable failed for 2 of 4 services\n",
    ];
    assert!(why.iter().all(|why| said.contains(why)), "{said}");
    let modes = "--stdin stream --stdout stream --stderr stream\n";
    let list = pod.run(&["iottymux", "enable", "--list"]);
    assert_eq!(list, format!("iottymux enable b.service {modes}"));
    pod.systemctl(&["restart", "b"]);
    pod.connect("b", "sock-stdout").line_ending("up");
}

/// What fails is as before, whichever of them it is; the others are enabled.
#[test]
fn one_of_several_services_fails() {
    let fails = "[Service]\nExecStart=/bin/sh -c 'test -t 1 && exit 3; exec sleep 1000'\n";
    for (bad, good) in [("a", ["b", "c"]), ("b", ["a", "c"]), ("c", ["a", "b"])] {
        let Some(plan) = Plan::new() else { return };
        let plan = plan.unit(&format!("{bad}.service"), fails);
        let pod = good.iter().fold(plan, |plan, name| plan.unit(&format!("{name}.service"), GAME));
        let pod = pod.boot();
        pod.systemctl(&["start", "a", "b", "c"]);
        let said = refused(&pod, &["enable", "a", "b", "c", "--tty", "--now"]);
        assert!(
            said.contains(&format!("cannot enable {bad}.service: with these streams")),
            "{said}"
        );
        assert!(said.contains(&format!("rolled back: {bad}.service runs as before")), "{said}");
        assert!(said.ends_with("enable failed for 1 of 3 services\n"), "{said}");
        for name in good {
            pod.connect(name, "sock-tty").line_ending("up");
        }
        assert!(!pod.path(&format!("/etc/systemd/system/{bad}.service.d")).exists());
        assert!(!pod.path(&format!("/etc/systemd/system/ttymux@{bad}.service.d")).exists());
        assert!(!pod.path(&format!("/run/iottymux/{bad}")).exists());
        assert_eq!(pod.property(&format!("{bad}.service"), "ActiveState"), "active");
        assert_eq!(pod.property(&format!("{bad}.service"), "StandardInput"), "null");
    }
}

/// The mux of one does not start: no other is without its own for that.
#[test]
fn the_mux_of_one_of_several_services_does_not_start() {
    let Some(plan) = Plan::new() else { return };
    let breaks = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 1'\n";
    let plan = plan.unit("iomux@b.service.d/x.conf", breaks);
    let units = ["a.service", "b.service", "c.service", "d.service"];
    let pod = units.iter().fold(plan, |plan, unit| plan.unit(unit, GAME)).boot();
    pod.systemctl(&["start", "a", "b", "c"]);
    pod.run(&["iottymux", "enable", "d", "--streams"]);
    let said = refused(&pod, &["enable", "a", "b", "c", "--streams"]);
    assert!(said.contains("cannot enable b.service: iomux@b.service does not start"), "{said}");
    assert!(said.contains("rolled back: b.service runs as before"), "{said}");
    assert!(!pod.path("/etc/systemd/system/b.service.d").exists());
    for (name, state) in [("a", "active"), ("b", "inactive"), ("c", "active")] {
        let mux = format!("iomux@{name}.service");
        assert_eq!(pod.property(&mux, "ActiveState"), state, "{mux}");
    }
}

/// Those that are done stay, and the others are as before.
#[test]
fn interrupted_among_several_services() {
    let waits = "[Service]\nType=notify\nNotifyAccess=all\n\
                 ExecStart=/bin/sh -c '[ -t 0 ] || systemd-notify --ready; exec sleep 1000'\n";
    let Some(plan) = Plan::new() else { return };
    let plan = plan.unit("a.service", GAME).unit("b.service", waits).unit("c.service", GAME);
    let pod = plan.boot();
    pod.systemctl(&["start", "a", "b", "c"]);
    let pid = pod.property("c.service", "MainPID");
    let script = "setsid iottymux enable a b c --tty --now & \
        until systemctl show b -P ActiveState | grep -q activating; do sleep 0.02; done; \
        kill -HUP -$!; wait $!";
    let output = pod.try_run(&["sh", "-c", script]);
    let said = String::from_utf8(output.stderr).unwrap();
    for (name, why) in [("b", "systemctl restart b.service: interrupted"), ("c", "interrupted")] {
        let back = format!("{why}; rolled back: {name}.service runs as before\n");
        assert!(said.contains(&format!("cannot enable {name}.service: {back}")), "{said}");
    }
    assert!(said.ends_with("enable failed for 2 of 3 services\n"), "{said}");
    pod.connect("a", "sock-tty").line_ending("up");
    assert_eq!(pod.run(&["iottymux", "enable", "--list"]), "iottymux enable a.service --tty\n");
    assert_eq!(pod.property("b.service", "ActiveState"), "active");
    assert_eq!(pod.property("c.service", "MainPID"), pid);
    assert_eq!(pod.property("c.service", "Wants"), "");
    assert!(!pod.path("/etc/systemd/system/c.service.d").exists());
}

/// The terminal of one would have the name of another.
/// Those that are done have their own streams, and the others still those of their muxes.
#[test]
fn interrupted_while_several_services_are_disabled() {
    let slow = "[Service]\nExecStart=/bin/sh -c 'trap \"sleep 2; exit\" TERM; while :; do sleep 0.1; done'\n";
    let Some(plan) = Plan::new() else { return };
    let plan = plan.unit("a.service", GAME).unit("b.service", slow).unit("c.service", GAME);
    let pod = plan.boot();
    for signal in ["TERM", "HUP"] {
        pod.run(&["iottymux", "enable", "a", "b", "c", "--tty", "--now"]);
        let pid = pod.property("c.service", "MainPID");
        let script = format!(
            "setsid iottymux disable a b c --now & \
             until systemctl show b -P ActiveState | grep -q deactivating; do sleep 0.02; done; \
             kill -{signal} -$!; wait $!"
        );
        let output = pod.try_run(&["sh", "-c", &script]);
        let said = String::from_utf8(output.stderr).unwrap();
        let why = "iottymux: error: cannot disable c.service: interrupted\n";
        assert_eq!(said, format!("{why}iottymux: disable failed for 1 of 3 services\n"));
        let list = pod.run(&["iottymux", "enable", "--list"]);
        assert_eq!(list, "iottymux enable c.service --tty\n");
        assert_eq!(pod.run(&["iottymux", "list", "-q"]), "c\n");
        for name in ["a", "b"] {
            let service = format!("{name}.service");
            assert_eq!(pod.property(&service, "ActiveState"), "active");
            assert_eq!(pod.property(&service, "StandardInput"), "null");
            assert!(!pod.path(&format!("/run/iottymux/{name}")).exists());
            assert_eq!(pod.property(&format!("ttymux@{name}.service"), "ActiveState"), "inactive");
        }
        assert_eq!(pod.property("c.service", "MainPID"), pid);
        pod.systemctl(&["restart", "c"]);
        pod.connect("c", "sock-tty").line_ending("up");
        pod.run(&["iottymux", "disable", "--all", "--now"]);
        assert!(written(&pod).iter().all(|name| name.ends_with(".service")), "{:?}", written(&pod));
        assert!(!pod.path("/run/iottymux/c").exists());
    }
}

/// One of two could remove the template that the other needs.
#[test]
fn two_commands_take_their_turns() {
    let Some(pod) = pod("a.service", GAME) else { return };
    let script = "flock /run/iottymux-enable.lock sleep 1000 & holder=$!; \
        until grep -q FLOCK /proc/locks; do sleep 0.02; done; \
        iottymux enable a --tty & \
        until grep -q -e '-> FLOCK' /proc/locks; do sleep 0.02; done; \
        ls /etc/systemd/system/*.d >/dev/null 2>&1 && echo written; \
        pkill -P $holder; wait";
    let told = pod.run(&["sh", "-c", script]);
    assert!(!told.contains("written\n"), "{told}");
    assert!(told.contains("a.service can be attached after"), "{told}");
}

#[test]
fn a_name_for_two_of_several_services() {
    let Some(plan) = Plan::new() else { return };
    let units = ["x.service", "a.service", "a-tty.service"];
    let pod = units.iter().fold(plan, |plan, unit| plan.unit(unit, GAME)).boot();
    pod.run(&["iottymux", "enable", "x"]);
    let modes = ["--stdin", "tty", "--stdout", "stream"];
    let said = refused(&pod, &[&["enable", "a", "a-tty"], &modes[..]].concat());
    assert!(said.contains("the name a-tty is that of a-tty.service; give a.service"), "{said}");
    let list = pod.run(&["iottymux", "enable", "--list"]);
    let want = "iottymux enable a-tty.service --stdin tty --stdout stream\n\
                iottymux enable x.service --tty\n";
    assert_eq!(list, want);
}

/// A person sees for what `enable` waits, and how far it is.
#[test]
fn progress_on_a_terminal() {
    let Some(plan) = Plan::new() else { return };
    let text = "[Service]\nExecStartPre=/bin/sh -c 'read x </shared/go'\nExecStart=/bin/cat\n";
    let pod = plan.unit("game.service", text).unit("web.service", GAME).shared_fifo("go").boot();
    let local = Pty::open(24, 80);
    let mut enable = local.spawn(pod.command(&["iottymux", "enable", "game", "web", "--now"]));
    local.shown.wait_for("iottymux: waiting for systemctl restart game.service\r\n");
    fs::write(pod.shared("go"), "\n").unwrap();
    local.shown.wait_for("iottymux: 1/2 enabled\r");
    assert_eq!(enable.ends(), 0);
    assert_eq!(pod.try_run(&["iottymux", "disable", "game", "web", "--now"]).stderr, b"");
}

/// What is not named stays as it was asked for before.
#[test]
fn enable_again_keeps_the_options() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let enable = |words: &[&str]| pod.run(&[&["iottymux", "enable"], words].concat());
    let attach = pod.try_run(&["iottymux", "attach", "game"]);
    let said = String::from_utf8_lossy(&attach.stderr).into_owned();
    let hint = "game.service is not attachable; try iottymux enable game";
    assert!(said.contains(hint), "{said}");
    let stop = pod.try_run(&["iottymux", "stop", "game"]);
    let said = String::from_utf8_lossy(&stop.stderr).into_owned();
    assert_eq!(said, "iottymux: game.service is not an app of iottymux; try systemctl\n");
    assert_eq!(enable(&["--list"]), "");

    let said = enable(&["game", "--now"]);
    assert!(
        said.starts_with("game.service gets a terminal (--tty); for FIFOs instead, "),
        "{said}"
    );
    assert_eq!(enable(&["--list", "game"]), "iottymux enable game.service --tty\n");
    let said = enable(&["game", "--env", "IOTTYMUX_BACKLOG=8K"]);
    let told = "before  iottymux enable game.service --tty\n\
                now     iottymux enable game.service --tty --env IOTTYMUX_BACKLOG=8K\n";
    assert!(said.starts_with(told), "{said}");
    let said = enable(&["game", "--env", "IOTTYMUX_ALLOW_GID=games,1234"]);
    let now = "--tty --env IOTTYMUX_ALLOW_GID=games,1234 --env IOTTYMUX_BACKLOG=8K\n";
    assert!(said.contains(&format!("now     iottymux enable game.service {now}")), "{said}");
    let env =
        fs::read_to_string(pod.path("/etc/systemd/system/ttymux@game.service.d/iottymux.env"));
    assert!(env.as_ref().is_ok_and(|env| env.contains("60,1234")), "{env:?}");
    let said =
        enable(&["game", "--stdin", "stream", "--stdout", "stream", "--stderr", "log", "--now"]);
    let now = "now     iottymux enable game.service --stdin stream --stdout stream --stderr log ";
    assert!(said.contains(now), "{said}");
    let all = enable(&["--list"]);
    assert_eq!(
        all,
        "iottymux enable game.service --stdin stream --stdout stream --stderr log \
         --env IOTTYMUX_ALLOW_GID=games,1234 --env IOTTYMUX_BACKLOG=8K\n"
    );
    let said = enable(&["game", "--env", "IOTTYMUX_ALLOW_GID="]);
    let kept = "--stderr log --env IOTTYMUX_BACKLOG=8K\n";
    assert!(said.contains(kept), "{said}");
    assert!(enable(&["--list"]).ends_with(kept));
    let said = enable(&["game", "--reset", "--tty", "--now"]);
    assert!(said.contains("now     iottymux enable game.service --tty\n"), "{said}");
    assert_eq!(enable(&["--list"]), "iottymux enable game.service --tty\n");
    let list = pod.run(&["iottymux", "list"]);
    assert!(list.contains("game.service"), "{list}");
    pod.run(&["iottymux", "disable", "--now", "game"]);
    assert_eq!(enable(&["--list"]), "");
}

/// Nobody needs to know where files are to start what does not run.
#[test]
fn a_service_that_does_not_run_is_named_with_its_cure() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let fails = |words: &[&str]| {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        assert!(!output.status.success(), "{words:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    pod.run(&["iottymux", "enable", "game", "--app", "bot"]);
    let cure = "iottymux: app bot is not running; try systemctl start game.service\n";
    for words in [&["status", "bot"][..], &["status", "game"], &["list", "bot"]] {
        assert_eq!(fails(words), cure);
    }
    for words in [&["send", "bot", "x"][..], &["control", "bot", "restart"]] {
        assert_eq!(fails(words), cure);
    }
    assert_eq!(fails(&["attach", "bot"]), cure);
    let unknown = "iottymux: there is no app bto in /run/iottymux; try iottymux list\n";
    for command in ["logs", "attach"] {
        assert_eq!(fails(&[command, "bto"]), unknown);
    }

    pod.systemctl(&["start", "game"]);
    pod.systemctl(&["stop", "game"]);
    let status = || pod.run(&["iottymux", "status", "bot"]);
    eventually("its mux has ended", || status().starts_with("app bot: ended"));
    let said = fails(&["send", "bot", "x"]);
    let cure = "; try systemctl start game.service\n";
    assert!(said.starts_with("iottymux: app bot is not running: it ended "), "{said}");
    assert!(said.ends_with(cure), "{said}");
}

/// What is refused changes nothing, so no change is told of.
#[test]
fn a_refused_enable_says_only_why() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game"]);
    for (words, why) in [
        (
            &["game", "--env", "IOTTYMUX_BACKLOG=8K", "--log", "cri:/root/x/log"][..],
            "cannot create",
        ),
        (&["other", "--env", "IOTTYMUX_BACKLOG=8K"], "there is no such service"),
        (&["game", "--env", "IOTTYMUX_ALLOW_GID=nobodies"], "there is no group 'nobodies'"),
    ] {
        let output = pod.try_run(&[&["iottymux", "enable"], words].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{words:?}");
    }
    assert_eq!(pod.run(&["iottymux", "enable", "--list"]), "iottymux enable game.service --tty\n");
}

/// The run of a service that ends when it is enabled had no mux: its end is not the app's.
#[test]
fn the_first_start_is_no_restart() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let life = || {
        let status = pod.run(&["iottymux", "status", "--app", "game", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        (status["restarts"].as_u64().unwrap_or(0), status["app_pid"].is_u64())
    };
    let streams = ["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream"];
    for (words, restart) in [
        (&["iottymux", "enable", "game", "--tty", "--now"][..], false),
        (&[&streams[..], &["--now"]].concat(), false),
        (&streams, true),
    ] {
        pod.systemctl(&["start", "game"]);
        pod.run(words);
        if restart {
            pod.systemctl(&["restart", "game"]);
        }
        assert_eq!(life(), (0, true), "{words:?}");
        pod.systemctl(&["restart", "game"]);
        assert_eq!(life(), (1, true), "{words:?}");
        pod.run(&["iottymux", "disable", "game", "--now"]);
        assert_nothing_is_left(&pod, "game");
    }
}

/// `systemctl kill --signal=KILL` also kills the hook that reports the end, since systemd 257.
#[test]
fn whose_end_no_hook_reports() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream"]);
    pod.set_unit("game.service.d/99-hook.conf", "[Service]\nExecStopPost=\n");
    pod.systemctl(&["start", "game"]);
    pod.await_mux("game", "stdin");
    let mut attach = pod.command(&["iottymux", "attach", "game"]);
    attach.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attach = Proc::spawn(attach);
    eventually("it is attached", || pod.run(&["iottymux", "status", "game"]).contains("types"));
    pod.systemctl(&["kill", "--signal=KILL", "game"]);
    assert_eq!(attach.ends(), 128 + 9, "{}", attach.stderr.so_far());
    eventually("its end is known", || {
        pod.run(&["iottymux", "status", "game"]).contains("ended by signal 9")
    });
}

/// Who looks for an app whose mux could not start is sent to the journal, where the mistake is told.
#[test]
fn with_a_wrong_option_in_its_env_file() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream"]);
    fs::create_dir(pod.path("/etc/iottymux")).unwrap();
    fs::write(pod.path("/etc/iottymux/game.env"), "IOTTYMUX_BACKLOG=abc\n").unwrap();
    // Which may succeed: the app's process can open its streams after its hook has ended.
    pod.try_run(&["systemctl", "start", "game"]);
    eventually("it has failed", || pod.property("game", "ActiveState") == "failed");
    for words in [&["attach", "game"][..], &["status", "game"], &["send", "game", "x"]] {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        let way = "app game is not running: at the last start iomux@game.service refused its options \
                   (journalctl -u iomux@game.service -t iottymux); try \
                   systemctl start game.service";
        assert!(said.contains(way), "{words:?}: {said}");
    }
    fs::write(pod.path("/etc/iottymux/game.env"), "IOTTYMUX_BACKLOGS=1M\nIOTTYMUX_BACKLOG=1M\n")
        .unwrap();
    pod.systemctl(&["start", "game"]);
    pod.await_mux("game", "stdin");
    pod.run(&["journalctl", "--sync"]);
    let said = pod.run(&["journalctl", "-u", "iomux@game", "-o", "cat"]);
    assert_eq!(
        said.matches("there is no option for IOTTYMUX_BACKLOGS, see iottymux.env(5)").count(),
        1
    );
    assert!(!said.contains("there is no option for IOTTYMUX_BACKLOG,"), "{said}");
    pod.systemctl(&["stop", "game"]);
    let output = pod.try_run(&["iottymux", "send", "game", "x"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("refused its options"), "{said}");
}

/// What is enabled is looked for where it is: a directory `/rkt` alone makes no pod of rkt.
#[test]
fn where_there_is_a_directory_rkt() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", GAME).root_file("rkt/.keep", "").boot();
    for (dir, state) in
        [("/rkt/kubernetes", "/run/iottymux/game/mux"), ("/rkt/status", "/rkt/iottymux/game")]
    {
        fs::create_dir(pod.path(dir)).unwrap();
        pod.run(&["iottymux", "enable", "game", "--stdin", "stream", "--stdout", "stream"]);
        pod.systemctl(&["start", "game"]);
        pod.connect_at(&format!("{state}/sock-stdout")).line_ending("up");
        pod.await_mux("game", "stdin");
        assert!(pod.run(&["iottymux", "list"]).contains("game  running"), "{dir}");
        assert_eq!(pod.property("iomux@game.service", "NRestarts"), "0");
        pod.run(&["iottymux", "disable", "game", "--now"]);
        assert_nothing_is_left(&pod, "game");
        assert!(!pod.path(state).exists());
        pod.systemctl(&["stop", "game"]);
    }
}

/// What it prints until its end reaches its clients, who see that end, and what depends on it runs
/// again.
#[test]
fn disabled_by_a_restart() {
    let script = "trap \"seq 2000; exit 0\" TERM; echo up; sleep 1000 & wait";
    let unit = format!("[Service]\nKillMode=mixed\nExecStart=/bin/sh -c '{script}'\n");
    let Some(pod) = pod("game.service", &unit) else { return };
    pod.set_unit(
        "needs.service",
        "[Unit]\nRequires=game.service\nAfter=game.service\n[Service]\nExecStart=/bin/sleep 1000\n",
    );
    for mode in ["--stdout=stream", "--tty"] {
        pod.run(&["iottymux", "enable", "game", mode, "--now"]);
        pod.systemctl(&["start", "needs"]);
        let mut command = pod.command(&["iottymux", "attach", "game"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = Proc::spawn(command);
        client.stdout.wait_for("up");
        let pid = pod.property("game.service", "MainPID");
        pod.run(&["iottymux", "disable", "game", "--now"]);
        assert_eq!(client.ends(), 0, "{}", client.stderr.text());
        let all = client.stdout.text().replace('\r', "");
        assert!(all.trim_end().ends_with("\n1999\n2000"), "{mode}");
        assert_ne!(pod.property("game.service", "MainPID"), pid);
        for service in ["game.service", "needs.service"] {
            assert_eq!(pod.property(service, "ActiveState"), "active", "{service}");
        }
        let mut left = written(&pod);
        left.retain(|name| name != "needs.service");
        assert_eq!(left, Vec::<String>::new());
        pod.systemctl(&["stop", "game"]);
    }
}

/// Killed at any moment, it is done by the next one, and the service has never been without streams.
#[test]
fn disabled_again_where_the_first_was_killed() {
    let Some(pod) = pod("game.service", GAME) else { return };
    for pause in (0..rounds(4, 20)).map(|round| format!("0.{:02}", round * 80 / rounds(4, 20))) {
        pod.run(&["iottymux", "enable", "game", "--stdout", "stream", "--now"]);
        pod.connect("game", "sock-stdout").line_ending("up");
        pod.try_run(&["timeout", "-s", "KILL", &pause, "iottymux", "disable", "game", "--now"]);
        eventually("it runs", || pod.property("game.service", "ActiveState") == "active");
        let again = pod.try_run(&["iottymux", "disable", "game", "--now"]);
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success() || said.contains("it is not enabled"), "{pause}: {said}");
        assert_eq!(pod.property("game.service", "ActiveState"), "active", "{pause}");
        assert_eq!(written(&pod), Vec::<String>::new(), "{pause}");
        pod.systemctl(&["stop", "game"]);
        for unit in ["iomux@game.service", "game.service"] {
            pod.try_run(&["systemctl", "stop", unit]);
        }
    }
}

/// `--now` reports the state of the restarted service.
#[test]
fn the_state_of_the_restarted_service() {
    const ENABLED: &str =
        "iottymux: game.service is enabled, but has failed (exit-code); iottymux status game";
    const RESTS: &str = "game.service does not run (success); it can be attached from";
    let unit = |how: &str| format!("[Unit]\nStartLimitIntervalSec=0\n[Service]\n{how}\n");
    let Some(pod) = pod("game.service", &unit("ExecStart=/bin/true")) else { return };
    let ends = |how: &str| unit(&format!("ExecStart=/bin/sh -c 'echo up; {how}'"));
    let enable = ["enable", "game", "--stdout", "stream", "--now"];
    let disable = ["disable", "game", "--now"];
    let check = |words: &[&str], unit: &str, succeeds: bool, want: &str| {
        pod.set_unit("game.service", unit);
        let output = pod.try_run(&[&["iottymux"], words].concat());
        assert_eq!(output.status.success(), succeeds, "{unit}: {output:?}");
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(told.contains(want), "{unit}: {want}: {told}");
    };
    let runs = ends("exec sleep 1000");
    let fails = ends("exit 3");
    let oneshot = "Type=oneshot\nExecStart=/bin/true";
    let again = "ExecStart=/bin/false\nType=oneshot\nRestart=on-failure\nRestartSec=1000";
    let never = unit("ExecCondition=/bin/true\nExecStart=/bin/true")
        .replace("[Service]", "ConditionPathExists=/none\n[Service]");
    for (unit, succeeds, want) in [
        (&*runs, true, "game.service can be attached: iottymux"),
        (&fails, false, ENABLED),
        (&unit(oneshot), true, RESTS),
        (&never, true, RESTS),
        (&unit(again), true, "has ended (exit-code) and is started again; it can be"),
    ] {
        check(&enable, unit, succeeds, want);
        pod.systemctl(&["stop", "game"]);
    }
    check(&enable, &unit(again), true, "is started again");
    check(&["disable", "game"], &unit(again), false, "it has not stopped yet; stop it first");
    pod.systemctl(&["stop", "game"]);
    pod.run(&["iottymux", "disable", "game"]);
    assert_nothing_is_left(&pod, "game");
    for (unit, succeeds, want) in [
        (&*fails, true, "game.service has its own streams again, but it has failed (exit-code)"),
        (&unit(oneshot), true, "has its own streams again, but it does not run (success)"),
        (&never, true, "has its own streams again, but it does not run (success)"),
        (&runs, true, "game.service has its own streams again\n"),
    ] {
        check(&enable, &runs, true, "can be attached");
        // One that fails is told of when it has: not while it runs for a moment.
        let unit = unit.replace("[Service]", "[Service]\nExecStartPost=/bin/sleep 0.1");
        check(&disable, &unit, succeeds, want);
        assert_nothing_is_left(&pod, "game");
    }
}

/// Where a mux does not start that is told, and nothing is left of it.
#[test]
fn a_mux_that_does_not_start() {
    let Some(pod) = pod("game.service", GAME) else { return };
    // It is tried again, or not.
    for status in [1, 2] {
        let fails = format!("[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit {status}'\n");
        pod.set_unit("ttymux@game.service.d/x.conf", &fails);
        let output = pod.try_run(&["iottymux", "enable", "game", "--tty", "--now"]);
        let said = String::from_utf8(output.stderr).unwrap();
        let want =
            "ttymux@game.service does not start (journalctl -u ttymux@game.service); rolled back";
        assert!(!output.status.success() && said.contains(want), "{said}");
        fs::remove_dir_all(pod.path("/etc/systemd/system/ttymux@game.service.d")).unwrap();
        assert_nothing_is_left(&pod, "game");
        assert_eq!(pod.property("ttymux@game.service", "LoadState"), "not-found");
    }
}

/// What cannot be started again is not stopped for it.
#[test]
fn a_masked_service_that_runs() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--stdout", "stream", "--now"]);
    let pid = pod.property("game.service", "MainPID");
    // `systemctl mask` has no place for it beside the unit's own file; this one comes before that.
    let mask = pod.path("/etc/systemd/system.control/game.service");
    fs::create_dir_all(mask.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", &mask).unwrap();
    pod.systemctl(&["daemon-reload"]);
    let output = pod.try_run(&["iottymux", "disable", "game", "--now"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it is masked") && said.contains("stop it first"), "{said}");
    assert_eq!(pod.property("game.service", "MainPID"), pid);
    pod.systemctl(&["stop", "game"]);
    pod.run(&["iottymux", "disable", "game"]);
    assert_nothing_is_left(&pod, "game");
}

/// Somebody who restarts it all the time does not keep it from being disabled at once.
#[test]
fn disabled_between_the_restarts_of_somebody_else() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let unit = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 1000\n";
    pod.set_unit("game.service", unit);
    for _ in 0..rounds(3, 20) {
        pod.run(&["iottymux", "enable", "game", "--stdout", "stream", "--now"]);
        let stop = pod.shared("stop");
        let restarts = "until [ -e /shared/stop ]; do systemctl restart game; done";
        let mut somebody = pod.command(&["sh", "-c", restarts]).spawn().unwrap();
        let told = pod.run(&["iottymux", "disable", "game", "--now"]);
        assert!(told.ends_with("game.service has its own streams again\n"), "{told}");
        fs::write(&stop, "").unwrap();
        assert!(somebody.wait().unwrap().success());
        assert_nothing_is_left(&pod, "game");
        fs::remove_file(&stop).unwrap();
    }
}

#[test]
fn an_instance_has_a_name_of_its_own() {
    let text = "[Service]\nExecStart=/bin/sh -c 'echo %i; exec cat'\n";
    let Some(pod) = pod("game@.service", text) else { return };
    for (instance, app) in
        [("game@Eu_1", "game@Eu_1"), (r"game@a\x2db:c", "game@a-x2db:c"), ("game@b", "game-b")]
    {
        pod.run(&[
            "iottymux", "enable", instance, "--app", app, "--stdin", "stream", "--stdout",
            "stream", "--now",
        ]);
    }
    assert_eq!(pod.connect("game@Eu_1", "sock-stdout").line(), "Eu_1");
    // What systemd takes for its own in some settings is a part of the name in all.
    let escaped = r"game@a\x2db:c";
    assert_eq!(pod.connect("game@a-x2db:c", "sock-stdout").line(), "ax2db:c");
    assert!(pod.run(&["iottymux", "list", escaped]).contains(" stdin,stdout "));
    // How it ends is asked of the service, whose name is not the app's.
    let attach = ["timeout", "30", "iottymux", "attach", "--app", "game-b", "--mode", "stdout"];
    let mut attached = pod.command(&attach).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 2];
    attached.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"b\n");
    // Without its hooks, which a newer systemd would kill, too.
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "game@b"]);
    assert_eq!(attached.wait_with_output().unwrap().status.code(), Some(128 + 9));
    for instance in ["game@Eu_1", escaped, "game@b"] {
        pod.run(&["iottymux", "disable", instance, "--now"]);
    }
    assert_nothing_is_left(&pod, "game-b");
}

/// A refusal is one line, and changes nothing.
#[test]
fn refused_services_and_options() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let refused = |words: &[&str], code: i32, why: &str| {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(written(&pod), Vec::<String>::new());
    };
    refused(&["enable"], 2, "<SERVICE>");
    refused(&["enable", "--list", "game"], 1, "game.service is not enabled");
    refused(&["enable", "game", "--stdin", "log"], 2, "stdin cannot be log");
    let modes = "[possible values: interactive, tty, stream, log, null]";
    refused(&["enable", "game", "--stdin", "logg"], 2, modes);
    refused(&["enable", "game", "--stdout", "log"], 2, "nothing to attach in game.service");
    refused(&["enable", "game", "--stdin", "interactive"], 2, "cannot be combined");
    refused(&["enable", "nobody", "--tty"], 1, "there is no such service");
    refused(&["enable", "game.socket", "--tty"], 1, "there is no such service");
    refused(&["enable", "game@", "--tty"], 1, "systemd knows no instance of game@");
    refused(&["enable", "game", "--tty", "--env", "IOTTYMUX_BACKLOG=lots"], 2, "from 4K to 1G");
    refused(&["enable", "game", "--tty", "--env", "PATH=/"], 2, "unknown option of a mux");
    refused(&["enable", "game", "--tty", "--log", "cri:a"], 2, "absolute");
    refused(&["disable", "game"], 1, "it is not enabled");
    pod.set_unit("game@.service", GAME);
    let long = format!("game@{}.service", "x".repeat(190));
    pod.run(&["iottymux", "enable", &long, "--tty", "--app", "short"]);
    pod.run(&["iottymux", "disable", &long]);

    // Nor is what somebody else has written overwritten or taken away.
    let own = "/etc/systemd/system/game.service.d/50-iottymux.conf";
    pod.set_unit("game.service.d/50-iottymux.conf", "[Unit]\nDescription=mine\n");
    for words in [
        &["enable", "game", "--tty"][..],
        &["units", "--app", "game", "--remove", "--output", "/etc/systemd/system"],
    ] {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("was not written by iottymux"), "{said}");
        assert_eq!(fs::read_to_string(pod.path(own)).unwrap(), "[Unit]\nDescription=mine\n");
        assert_eq!(written(&pod), ["game.service.d"]);
    }
    fs::remove_file(pod.path(own)).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", pod.path(own)).unwrap();
    let output = pod.try_run(&["iottymux", "enable", "game", "--tty"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("50-iottymux.conf: a symbolic link is in the way"), "{said}");
    fs::remove_file(pod.path(own)).unwrap();
    pod.run(&["iottymux", "enable", "game", "--tty"]);
    let env = pod.path("/etc/systemd/system/ttymux@game.service.d/iottymux.env");
    let text = fs::read_to_string(&env).unwrap();
    fs::write(&env, text.clone() + "IOTTYMUX_BACKLOG=1M\n").unwrap();
    for words in [&["enable", "game", "--stdout", "stream"][..], &["disable", "game"]] {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("was changed after"), "{said}");
    }
    fs::write(&env, text).unwrap();
    let other = pod.try_run(&["iottymux", "enable", "game", "--app", "other", "--tty"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("is app game already"), "{other:?}");
    pod.run(&["iottymux", "disable", "game"]);
    assert_nothing_is_left(&pod, "game");
}

/// One that is stopping is not disabled before it has stopped: neither is it started again.
#[test]
fn disabled_while_it_stops() {
    // It stops when it is allowed to.
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo x >>/shared/runs; \
                trap \"until [ -e /shared/may-stop ]; do sleep 0.01; done; exit 0\" TERM; sleep 1000 & wait'\n";
    let Some(pod) = pod("game.service", unit) else { return };
    pod.run(&["iottymux", "enable", "game", "--stdout", "stream", "--now"]);
    let mut stop = pod.command(&["systemctl", "stop", "game"]).spawn().unwrap();
    eventually("it stops", || pod.property("game.service", "ActiveState") == "deactivating");
    assert!(refused(&pod, &["disable", "game"]).contains("it has not stopped yet; stop it first"));
    let mut disable = pod.command(&["iottymux", "disable", "game", "--now"]).spawn().unwrap();
    fs::write(pod.shared("may-stop"), "").unwrap();
    assert!(stop.wait().unwrap().success());
    assert!(disable.wait().unwrap().success());
    assert_nothing_is_left(&pod, "game");
    assert_eq!(pod.property("game.service", "Result"), "success");
    assert_ne!(pod.property("game.service", "ActiveState"), "active");
    assert_eq!(fs::read_to_string(pod.shared("runs")).unwrap(), "x\n", "it ran once");
}

/// Who starts it at the moment when it is disabled starts it, with the one streams or the other.
#[test]
fn started_while_it_is_disabled() {
    let unit = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\n";
    let Some(pod) = pod("game.service", unit) else { return };
    let number = rounds(6, 40);
    for round in 0..number {
        let pause = format!("0.{:03}", round * 160 / number);
        pod.run(&["iottymux", "enable", "game", "--stdout", "stream"]);
        let start = format!("sleep {pause}; systemctl start game");
        let mut start = pod.command(&["sh", "-c", &start]).spawn().unwrap();
        let disabled = pod.try_run(&["iottymux", "disable", "game"]);
        assert!(start.wait().unwrap().success(), "round {round}: {}", pod.console());
        assert_eq!(pod.property("game.service", "ActiveState"), "active");
        let said = String::from_utf8_lossy(&disabled.stderr).into_owned();
        assert!(disabled.status.success() || said.contains("it is running; stop it"), "{said}");
        if !disabled.status.success() {
            pod.run(&["iottymux", "disable", "game", "--now"]);
        }
        assert_nothing_is_left(&pod, "game");
        pod.systemctl(&["stop", "game"]);
    }
}

/// A restart that cannot be prepared leaves the service as it was: running.
#[test]
fn a_service_runs_on_where_nothing_can_be_written() {
    let unit = "[Service]\nExecStart=/bin/sleep 1000\n";
    let Some(pod) = pod("game.service", unit) else { return };
    pod.systemctl(&["start", "game"]);
    let pid = || pod.property("game.service", "MainPID");
    let before = pid();
    read_only(&pod, true);
    let refused = |words: &[&str]| {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(pod.property("game.service", "ActiveState"), "active", "{output:?}");
    };
    refused(&["enable", "game", "--tty", "--now"]);
    assert_eq!(pid(), before);
    read_only(&pod, false);
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    read_only(&pod, true);
    refused(&["enable", "game", "--stdout", "stream", "--now"]);
    let before = pid();
    for words in [&["disable", "game", "--now"][..], &["disable", "game"]] {
        refused(words);
    }
    assert_eq!(pid(), before, "it was not restarted for nothing");
    read_only(&pod, false);
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_eq!(pod.property("game.service", "ActiveState"), "active");
    assert_nothing_is_left(&pod, "game");
}

/// Units that are part of an image cannot be changed, but what is below /run can.
#[test]
fn until_the_next_boot_where_the_units_cannot_be_changed() {
    let Some(pod) = pod("game.service", GAME) else { return };
    read_only(&pod, true);
    let fails = |words: &[&str], why: &str| {
        let output = pod.try_run(&[&["iottymux"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{words:?}: {said}");
    };
    let hint = "/etc/systemd/system is read-only; with --runtime it is enabled until the next boot";
    fails(&["enable", "game", "--tty"], hint);
    let written = || pod.names("/run/systemd/system");
    let before = written();
    let told = pod.run(&["iottymux", "enable", "game", "--tty", "--runtime", "--now"]);
    assert!(told.contains("wrote   /run/systemd/system/game.service.d/50-iottymux.conf"), "{told}");
    let mut tty = pod.connect("game", "sock-tty");
    tty.say("hello\n");
    tty.line_ending("hello");
    assert!(pod.run(&["iottymux", "list"]).contains("game.service"));
    // It holds for a later enable, and is told.
    let told = pod.run(&["iottymux", "enable", "game", "--env", "IOTTYMUX_BACKLOG=8K"]);
    assert!(told.contains("--tty --env IOTTYMUX_BACKLOG=8K --runtime\n"), "{told}");
    let shown = pod.run(&["iottymux", "enable", "--list"]);
    assert!(shown.starts_with("iottymux enable game.service --tty") && shown.contains("--runtime"));

    // The two ways do not mix: the next boot would take a part away.
    read_only(&pod, false);
    fails(
        &["enable", "game", "--tty", "--reset"],
        "has files in /run/systemd/system; disable it first",
    );
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_eq!(written(), before);
    assert_nothing_is_left(&pod, "game");
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    let refused = ["enable", "game", "--runtime"];
    fails(&refused, "has files in /etc/systemd/system; disable it first");
    fs::write(pod.path("/run/systemd/system/other.service"), GAME).unwrap();
    pod.systemctl(&["daemon-reload"]);
    pod.run(&["iottymux", "enable", "other", "--tty", "--runtime"]);
    // Neither needs the template of the other.
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_eq!(self::written(&pod), Vec::<String>::new());
    pod.systemctl(&["start", "other"]);
    let mut tty = pod.connect("other", "sock-tty");
    tty.say("hello\n");
    tty.line_ending("hello");
    pod.run(&["iottymux", "disable", "--all", "--now"]);
    fs::remove_file(pod.path("/run/systemd/system/other.service")).unwrap();
    assert_eq!(written(), before);
}

/// What else can be wrong with a service or its names.
#[test]
fn services_that_cannot_be_enabled() {
    let Some(plan) = Plan::new() else { return };
    let by_hand = "[Unit]\nWants=iomux@game.service\n[Service]\nExecStart=/bin/sleep 1000\n";
    let other = "[Service]\nExecStart=/bin/sleep 1000\n";
    let pod = plan
        .unit("game.service", by_hand)
        .unit("w.service", other)
        .unit("w-tty.service", other)
        .unit("broken.service", "[Service]\nType=simple\n")
        .boot();
    std::os::unix::fs::symlink("w.service", pod.path("/etc/systemd/system/alias.service")).unwrap();
    pod.systemctl(&["daemon-reload"]);
    let refused = |words: &[&str], why: &str| {
        let output = pod.try_run(&[&["iottymux", "enable"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    };
    refused(
        &["game", "--tty"],
        "lines that iottymux did not write make it want iomux@game.service",
    );
    refused(&["broken", "--tty"], "systemd cannot load it (systemctl status broken.service)");
    // What is enabled is not said to be refused where nothing can be printed.
    let full = "iottymux enable w --tty >/dev/full";
    let said = String::from_utf8(pod.try_run(&["sh", "-c", full]).stderr).unwrap();
    assert!(said.contains("w.service is enabled: cannot write to standard output"), "{said}");
    let full = "iottymux disable w >/dev/full";
    let said = String::from_utf8(pod.try_run(&["sh", "-c", full]).stderr).unwrap();
    assert!(said.contains("w.service is disabled: cannot write to standard output"), "{said}");
    refused(&["alias", "--tty"], "it is another name of w.service");
    refused(&["iomux@w", "--tty"], "is a mux, not an app");
    refused(&["w-", "--tty"], "its drop-ins apply to other services too");
    refused(
        &["w", "--stdin", "stream", "--log", "raw:/a"],
        "--log requires an output of w.service",
    );
    pod.run(&["iottymux", "enable", "w-tty", "--stdout", "stream"]);
    refused(
        &["w", "--stdin", "tty", "--stdout", "stream"],
        "the name w-tty is that of w-tty.service",
    );

    // `enable` reports a later drop-in. A file where the directory of drop-ins should be is an error.
    pod.set_unit("w.service.d/zz.conf", "[Service]\nStandardOutput=null\n");
    let output = pod.try_run(&["iottymux", "enable", "w", "--tty"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("StandardOutput=null"), "{said}");
    // A template that is gone keeps nobody from disabling.
    fs::remove_file(pod.path("/etc/systemd/system/ttymux@.service")).unwrap();
    pod.systemctl(&["daemon-reload"]);
    pod.run(&["iottymux", "disable", "w"]);
    fs::remove_dir_all(pod.path("/etc/systemd/system/w.service.d")).unwrap();
    fs::write(pod.path("/etc/systemd/system/w.service.d"), "").unwrap();
    refused(&["w", "--tty"], "is not a directory; nothing was changed");
    assert!(!pod.path("/etc/systemd/system/ttymux@w.service.d").exists());
}

/// It is a service, and not an app of `run`.
#[test]
fn rm_of_a_service_names_disable() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--now"]);
    let output = pod.try_run(&["iottymux", "rm", "-f", "game"]);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "iottymux: app game is a service; try systemctl stop game.service to stop it, or iottymux \
         disable game.service to give it its own streams back\n"
    );
    // As a `disable` leaves it that is killed behind its last file.
    let files = "cd /etc/systemd/system; rm -r game.service.d ttymux@*; systemctl daemon-reload; \
        systemctl stop game ttymux@game";
    pod.run(&["sh", "-c", files]);
    assert_eq!(pod.run(&["iottymux", "list", "-q"]), "game\n");
    assert_eq!(pod.run(&["iottymux", "rm", "game"]), "removed app game\n");
    assert_eq!(pod.run(&["iottymux", "list", "-q"]), "");
}

/// systemd forgets it when it stops, so the service would be gone.
#[test]
fn a_transient_service_is_refused() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["systemd-run", "-q", "--unit=job", "sh", "-c", "exec sleep 1000"]);
    for words in [&["enable", "job", "--now"][..], &["enable", "job", "--stdout", "stream"]] {
        let told = refused(&pod, words);
        assert!(told.contains("systemd-run made it"), "{told}");
    }
    assert_eq!(pod.property("job.service", "ActiveState"), "active");
    assert_eq!(written(&pod), Vec::<String>::new());
}

/// Nobody would read it, and `send` would say that a line is in the input.
#[test]
fn a_service_that_reads_no_console_is_refused() {
    let screen = "[Service]\nType=forking\nExecStart=/usr/bin/screen -dmS bot cat\n";
    let Some(pod) = pod("bot.service", screen) else { return };
    let told = refused(&pod, &["enable", "bot", "--stdout", "stream"]);
    assert!(told.contains("its program is screen") && told.contains("ExecStart="), "{told}");
    pod.set_unit("bot.service", "[Service]\nType=forking\nExecStart=/bin/daemon\n");
    pod.systemctl(&["daemon-reload"]);
    assert!(refused(&pod, &["enable", "bot"]).contains("it is a daemon (Type=forking)"));
    pod.run(&["iottymux", "enable", "bot", "--force"]);
}

/// A service that systemd does not restart runs on, and nobody is told that it can be attached.
#[test]
fn a_refused_restart_is_no_success() {
    for refuses in ["RefuseManualStop=yes", "RefuseManualStart=yes"] {
        let game = format!("[Unit]\n{refuses}\n{GAME}");
        let Some(pod) = pod("game.service", &game) else { return };
        pod.set_unit("starter.service", "[Unit]\nWants=game.service\n[Service]\nExecStart=true\n");
        pod.systemctl(&["start", "starter"]);
        eventually("it runs", || pod.property("game.service", "SubState") == "running");
        let pid = pod.property("game.service", "MainPID");
        let told = refused(&pod, &["enable", "game", "--now"]);
        assert!(told.contains("Operation refused") && told.contains("rolled back"), "{told}");
        assert_eq!(pod.property("game.service", "MainPID"), pid);
        let mut left = written(&pod);
        left.retain(|name| name != "starter.service");
        assert_eq!(left, Vec::<String>::new());
    }
}

/// Many a command reads its options, or asks somebody, before it fails.
#[test]
fn a_service_that_fails_a_moment_later_does_not_run() {
    let fails = "[ ! -t 0 ] || { sleep 0.2; exit 125; }";
    let game = format!("[Service]\nExecStart=/bin/sh -c '{fails}; exec sleep 1000'\n");
    let Some(pod) = pod("game.service", &game) else { return };
    pod.systemctl(&["start", "game"]);
    let told = refused(&pod, &["enable", "game", "--now"]);
    let wants = ["with these streams it has failed", "rolled back: game.service runs as before"];
    assert!(wants.iter().all(|want| told.contains(want)), "{told}");
    assert_eq!(pod.property("game.service", "ActiveState"), "active");
    // And one that fails with any streams does not run as before.
    pod.set_unit("game.service", "[Service]\nExecStart=/bin/sh -c 'sleep 0.2; exit 125'\n");
    pod.systemctl(&["daemon-reload"]);
    let told = refused(&pod, &["enable", "game", "--now"]);
    assert!(told.contains("rolling back failed: game.service has failed"), "{told}");
}

/// What requires a service is stopped with it, and runs again after a rollback, too.
#[test]
fn a_rollback_starts_what_stopped_with_the_service() {
    let fails = "[ ! -t 0 ] || { sleep 0.2; exit 125; }";
    let game = format!("[Service]\nExecStart=/bin/sh -c '{fails}; exec sleep 1000'\n");
    let needs = |how: &str| {
        format!(
            "[Unit]\n{how}=game.service\nAfter=game.service\n[Service]\nExecStart=/bin/sleep 1000\n"
        )
    };
    let Some(plan) = Plan::new() else { return };
    let pod = plan
        .unit("game.service", &game)
        .unit("map.service", &needs("Requires"))
        .unit("web.service", &needs("BindsTo"))
        .unit("rests.service", &needs("Requires"))
        .boot();
    pod.systemctl(&["start", "map", "web"]);
    let told = refused(&pod, &["enable", "game", "--now"]);
    assert!(told.contains("rolled back: game.service runs as before"), "{told}");
    for (unit, state) in [("map", "active"), ("web", "active"), ("rests", "inactive")] {
        assert_eq!(pod.property(&format!("{unit}.service"), "ActiveState"), state, "{unit}");
    }
}

/// A program that has nothing more to read ends with success, and runs no more all the same.
#[test]
fn a_service_that_reads_the_end_of_its_input_is_rolled_back() {
    let Some(pod) = pod("game.service", "[Service]\nExecStart=/bin/cat\n") else { return };
    pod.run(&["iottymux", "enable", "game", "--now"]);
    let told = refused(&pod, &["enable", "game", "--stdin", "null", "--now"]);
    let wants = ["with these streams it does not run (success)", "game.service runs as before"];
    assert!(wants.iter().all(|want| told.contains(want)), "{told}");
    assert_eq!(pod.property("game.service", "ActiveState"), "active");
    assert_eq!(pod.run(&["iottymux", "enable", "--list"]), "iottymux enable game.service --tty\n");
}

/// The console goes, whatever the service does without it, and its start is not waited for.
#[test]
fn removing_all_consoles_depends_on_no_service() {
    let Some(plan) = Plan::new() else { return };
    let without = "[ -t 0 ] || exit 3";
    let pod = plan
        .unit("game.service", &format!("[Service]\nExecStart=/bin/sh -c '{without}; exec cat'\n"))
        .unit(
            "slow.service",
            "[Service]\nType=notify\nNotifyAccess=all\nTimeoutStartSec=300\n\
             ExecStart=/bin/sh -c '[ ! -t 0 ] || systemd-notify --ready; exec sleep 1000'\n",
        )
        .boot();
    for service in ["game", "slow"] {
        pod.run(&["iottymux", "enable", service, "--now"]);
    }
    // The time limit stands for the patience of somebody who removes a package.
    let done = pod.try_run(&["timeout", "60", "iottymux", "disable", "--all", "--now"]);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    assert!(told.contains("game.service has its own streams again, but it has failed"), "{told}");
    assert_eq!(pod.property("slow.service", "ActiveState"), "activating");
    let left: Vec<_> = written(&pod).into_iter().filter(|name| *name != "slow.service").collect();
    assert_eq!(left, Vec::<String>::new());
}

/// As in the image of a machine, or when it was booted for a rescue: the files go, since a service
/// would not start with them.
#[test]
fn consoles_are_removed_without_systemd() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game"]);
    let hidden = "mount -t tmpfs tmpfs /run/systemd && iottymux disable --all --now";
    let told = pod.run(&["unshare", "-m", "sh", "-c", hidden]);
    assert!(told.contains("removed"), "{told}");
    assert_eq!(written(&pod), Vec::<String>::new());
}

/// Its starts are counted anew.
#[test]
fn a_service_that_has_spent_its_starts_gets_one_more() {
    let game =
        "[Service]\nExecStart=/bin/sh -c '[ -t 0 ] && exec cat'\nRestart=always\nRestartSec=10ms\n";
    let Some(pod) = pod("game.service", game) else { return };
    pod.systemctl(&["start", "game"]);
    eventually("it has spent them", || pod.property("game.service", "ActiveState") == "failed");
    let told = pod.run(&["iottymux", "enable", "game", "--now"]);
    assert!(told.ends_with("game.service can be attached: iottymux attach game\n"), "{told}");
}

#[test]
fn enabled_again_without_a_change_its_mux_runs_on() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--now"]);
    let mux = || pod.property("ttymux@game.service", "MainPID");
    let before = mux();
    pod.run(&["iottymux", "enable", "game"]);
    assert_eq!(mux(), before);
    pod.run(&["iottymux", "enable", "game", "--env", "IOTTYMUX_BACKLOG=8K"]);
    assert_ne!(mux(), before);
}

/// As somebody types it after an upgrade. A hook prints to the console that it reports to.
#[test]
fn restarted_together_the_hooks_say_nothing() {
    let Some(pod) = pod("game.service", "[Service]\nExecStart=/bin/sh -c 'echo up; exec cat'\n")
    else {
        return;
    };
    pod.run(&["iottymux", "enable", "game", "--now"]);
    for _ in 0..2 {
        pod.systemctl(&["restart", "ttymux@game", "game"]);
    }
    let out = pod.run(&["iottymux", "logs", "game"]);
    assert!(out.contains("up") && !out.contains("iottymux:"), "{out}");
}

/// A command of `run` and a service of one name: whoever comes second is refused, and a name that ends in
/// `.service` means the service.
#[test]
fn a_name_belongs_to_one_thing() {
    let Some(pod) = pod("game.service", GAME) else { return };
    let fails = |words: &[&str], why: &str| {
        let output = pod.try_run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    };
    pod.run(&["iottymux", "run", "-dt", "--name", "game", "cat"]);
    fails(&["iottymux", "enable", "game", "--tty"], "app game is a command of `run`");
    pod.run(&["iottymux", "enable", "game", "--tty", "--app", "other"]);
    pod.systemctl(&["start", "game"]);
    // Each by its own name.
    pod.run(&["iottymux", "send", "game", "to the command"]);
    pod.run(&["iottymux", "send", "game.service", "to the service"]);
    pod.run(&["iottymux", "wait", "game", "--screen", "to the command"]);
    pod.run(&["iottymux", "wait", "other", "--screen", "to the service"]);
    pod.systemctl(&["stop", "game"]);
    pod.run(&["iottymux", "disable", "game"]);
    fails(&["iottymux", "send", "game.service", "x"], "game.service is not attachable");
    pod.run(&["iottymux", "run", "-d", "--name", "none", "cat"]);
    fails(&["iottymux", "send", "none.service", "x"], "there is no service none.service; app none");
    pod.run(&["iottymux", "rm", "--force", "game"]);
    pod.run(&["iottymux", "enable", "game", "--tty"]);
    // It does not run yet.
    let why = "game is the name of game.service; try iottymux attach game, or another --name";
    fails(&["iottymux", "run", "-d", "--name", "game", "cat"], why);
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "send", "game", "it is"]);
    fails(&["iottymux", "run", "-d", "--name", "game", "cat"], why);
}

/// It still has its own streams.
#[test]
fn a_service_that_was_not_restarted_is_disabled_as_it_runs() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    pod.run(&["iottymux", "enable", "game", "--tty"]);
    let told = pod.run(&["iottymux", "disable", "game"]);
    assert!(told.ends_with("game.service has its own streams again\n"), "{told}");
    assert_eq!(pod.property("game.service", "MainPID"), pid);
    pod.systemctl(&["restart", "game"]);
    assert_eq!(pod.property("game.service", "StandardInput"), "null");
}

/// Such as for want of descriptors: who asks is told which unit fails, and where it says why.
#[test]
fn a_mux_that_fails_at_each_start_is_named() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--streams"]);
    pod.set_unit("iomux@game.service.d/x.conf", "[Service]\nLimitNOFILE=14\n");
    let _ = pod.try_run(&["systemctl", "start", "game"]);
    let fails = || pod.property("iomux@game.service", "SubState") == "auto-restart";
    eventually("it is tried again", fails);
    let says = || {
        let output = pod.try_run(&["iottymux", "status", "game"]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let why =
        ": iomux@game.service fails at each start (journalctl -u iomux@game.service -t iottymux)";
    eventually("it is told", || says().contains(why));
}

/// Its streams are in use.
#[test]
fn a_service_at_the_broker_of_systemd_is_refused() {
    let unit = "[Service]\nExecStart=/bin/cat\nStandardInput=broker\n";
    let Some(pod) = pod("game.service", unit) else { return };
    let said = refused(&pod, &["enable", "game", "--tty"]);
    assert!(said.contains("its own files set its streams: StandardInput=broker (/"), "{said}");
}

/// However the option comes.
#[test]
fn a_log_that_the_mux_cannot_write_is_refused() {
    let Some(pod) = pod("game.service", GAME) else { return };
    for option in ["IOTTYMUX_RECORD=cast:/root/x.cast", "IOTTYMUX_LOG=cri:/root/x.log"] {
        let said = refused(&pod, &["enable", "game", "--tty", "--env", option]);
        assert!(said.contains("as which the mux runs, cannot create files in /root"), "{said}");
    }
    let said = refused(&pod, &["enable", "game", "--tty", "--log", "cri:/root/x.log"]);
    assert!(said.contains("as which the mux runs, cannot create files in /root"), "{said}");
}

/// `TERM=dumb` switches the line editor of many a program off.
#[test]
fn a_service_keeps_the_terminal_that_it_names() {
    let unit =
        "[Service]\nEnvironment=A=b \"TERM=dumb\"\nExecStart=/bin/sh -c 'echo $TERM; exec cat'\n";
    let Some(pod) = pod("game.service", unit) else { return };
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    pod.run(&["iottymux", "wait", "game", "--screen", "^dumb$", "--timeout", "30"]);
}

/// A mux says only what it does.
#[test]
fn a_signal_for_a_service_is_refused_without_a_trace() {
    let Some(pod) = pod("game.service", GAME) else { return };
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    let said = refused(&pod, &["kill", "game"]);
    assert!(said.contains("it is a service; try systemctl kill"), "{said}");
    assert!(!pod.console().contains("sends the app signal"), "{}", pod.console());
}
