//! `enable` and `disable` leave no service frozen or dead: what cannot work is refused before anything is
//! written, and what fails is rolled back.

use std::fs;
use std::path::Path;

use crate::pod::{Plan, Pod, project_file};
use crate::proc::eventually;

const GAME: &str = "[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\n";

fn pod(text: &str) -> Option<Pod> {
    Some(Plan::new()?.unit("game.service", text).boot())
}

/// The files in the directory of units, but for those of the test itself.
fn written(pod: &Pod) -> Vec<String> {
    let mut names = pod.names("/etc/systemd/system");
    names.retain(|name| !["default.target", "game.service"].contains(&&**name));
    names
}

/// What a command said that exited with 1.
fn refused(pod: &Pod, words: &[&str]) -> String {
    let output = pod.try_run(words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
    said
}

fn enable<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["iottymux", "enable", "game"], more].concat()
}

/// Nothing of `enable` is left, and the service has the process that it had.
fn assert_untouched(pod: &Pod, pid: &str) {
    assert_eq!(written(pod), Vec::<String>::new());
    assert_eq!(pod.property("game.service", "MainPID"), pid);
    assert_eq!(pod.property("game.service", "Wants"), "");
    assert_eq!(pod.names("/run/systemd/system"), Vec::<String>::new());
    assert!(!pod.path("/run/iottymux/game").exists());
    assert!(!pod.path("/var/log/iottymux").exists());
    assert_eq!(pod.systemctl(&["list-units", "--failed", "--no-legend"]), "");
}

/// The mux would go on without one of the two pipes that the service has, which then fills up.
#[test]
fn a_running_service_keeps_each_of_its_streams() {
    let chatty =
        "[Service]\nExecStart=/bin/sh -c 'while :; do echo x; echo y >&2; sleep 0.01; done'\n";
    let Some(pod) = pod(chatty) else { return };
    let both = ["--stdout", "stream", "--stderr", "stream"];
    pod.run(&enable(&[&both[..], &["--now"]].concat()));
    let pid = pod.property("game.service", "MainPID");
    for other in [
        &["--reset", "--stdout", "stream"][..],
        &["--reset", "--stderr", "stream"],
        &["--stdin", "stream"],
    ] {
        let said = refused(&pod, &enable(other));
        assert!(said.contains("is running with other streams"), "{said}");
    }
    let elsewhere = ["iottymux", "--state-dir", "/run/else", "enable", "game"];
    let said = refused(&pod, &[&elsewhere[..], &both].concat());
    assert!(said.contains("is running with other streams"), "{said}");
    // Its mux has both still.
    pod.connect("game", "sock-stderr").line_ending("y");
    pod.connect("game", "sock-stdout").line_ending("x");
    // What is not named stays.
    pod.run(&enable(&["--stdout", "stream"]));
    assert_eq!(pod.property("game.service", "MainPID"), pid);
    pod.run(&enable(&["--reset", "--stdout", "stream", "--now"]));
    assert_ne!(pod.property("game.service", "MainPID"), pid);
    pod.connect("game", "sock-stdout").line_ending("x");
    assert!(!pod.path("/run/iottymux/game/sock-stderr").exists());
}

/// A service by units of one's own has a mux, too.
#[test]
fn the_mux_of_another_service_is_not_taken() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.with_delivered_units().unit("game.service", GAME).boot();
    let before = pod.names("/etc/systemd/system");
    pod.systemctl(&["start", "demo", "game"]);
    let pid = pod.property("iomux@demo.service", "MainPID");
    let said = refused(&pod, &enable(&["--app", "demo", "--stdout", "stream", "--now"]));
    assert!(
        said.contains("demo.service has the mux demo already; give game.service another"),
        "{said}"
    );
    assert_eq!(pod.names("/etc/systemd/system"), before);
    assert_eq!(pod.property("iomux@demo.service", "MainPID"), pid);
    pod.connect("demo", "sock-stderr").line_ending("tell me something");
    pod.run(&enable(&["--stdout", "stream", "--now"]));
    pod.connect("game", "sock-stdout").line_ending("up");
}

/// A mux begins as root: the program may be where only root can run it, but it must be one.
#[test]
fn a_program_that_only_root_can_run() {
    let Some(pod) = pod(GAME) else { return };
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    pod.run(&["umount", "/usr/local/bin/iottymux"]);
    pod.run(&["install", "-m", "600", "/iottymux", "/usr/local/bin/iottymux"]);
    for more in [&["--tty"][..], &["--tty", "--now"], &["--stdout", "stream"]] {
        let words = [&["/iottymux", "enable", "game"], more].concat();
        let said = refused(&pod, &words);
        let wrong = "iottymux cannot be executed (203/EXEC). Try: chmod 711 $(command -v iottymux)";
        assert!(said.contains(wrong), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_untouched(&pod, &pid);
    }
    pod.run(&["rm", "/usr/local/bin/iottymux"]);
    pod.run(&["install", "-m", "711", "/iottymux", "/usr/local/bin/iottymux"]);
    pod.run(&["iottymux", "enable", "game", "--tty"]);
    let said = refused(&pod, &["iottymux", "install", "--remove"]);
    assert_eq!(
        said,
        "iottymux: game.service would not start without it; first: iottymux disable --all --now\n"
    );
    pod.systemctl(&["stop", "game"]);
    pod.run(&["iottymux", "disable", "game"]);
    pod.run(&["rm", "/usr/local/bin/iottymux"]);
    pod.run(&["install", "-D", "-m", "700", "/iottymux", "/root/.cargo/bin/iottymux"]);
    pod.run(&["/root/.cargo/bin/iottymux", "enable", "game", "--tty", "--now"]);
    pod.connect("game", "sock-tty").line_ending("up");
}

/// A copy goes while a service is enabled, if another program, such as that of a package, takes its place.
#[test]
fn a_copy_that_another_program_replaces() {
    let Some(pod) = pod(GAME) else { return };
    pod.run(&["umount", "/usr/local/bin/iottymux"]);
    pod.run(&["install", "-m", "711", "/iottymux", "/usr/local/bin/iottymux"]);
    pod.run(&enable(&["--tty", "--now"]));
    let app = pod.property("game.service", "MainPID");
    let remove = ["/usr/local/bin/iottymux", "install", "--remove"];
    pod.run(&["mount", "-t", "tmpfs", "tmpfs", "/usr/local/sbin"]);
    pod.run(&["install", "-m", "711", "/iottymux", "/usr/local/sbin/iottymux"]);
    // Without the templates it is no other one.
    let template = pod.path("/etc/systemd/system/iomux@.service");
    assert!(!template.exists());
    assert!(refused(&pod, &remove).contains("would not start without it"));
    for template in ["iomux@.service", "ttymux@.service"] {
        pod.set_unit(template, &project_file(&format!("units/{template}")));
    }
    let said = pod.run(&remove);
    let (_, next) = said.rsplit_once("next: ").unwrap();
    assert!(!next.contains("userdel"), "{said}");
    pod.run(&["sh", "-c", next]);
    let mux = pod.property("ttymux@game.service", "MainPID");
    assert_eq!(pod.run(&["readlink", &format!("/proc/{mux}/exe")]), "/usr/local/sbin/iottymux\n");
    assert_eq!(pod.property("game.service", "MainPID"), app);
}

#[test]
fn a_template_with_a_user_that_does_not_exist() {
    let Some(pod) = pod(GAME) else { return };
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    let template = project_file("units/ttymux@.service");
    pod.set_unit("ttymux@.service", &template.replace("User=iottymux", "User=nosuchuser"));
    let said = refused(&pod, &enable(&["--tty", "--now"]));
    assert!(said.contains("its user does not exist (217/USER)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    fs::remove_file(pod.path("/etc/systemd/system/ttymux@.service")).unwrap();
    assert_untouched(&pod, &pid);
}

/// A mux that does not start for another reason, found only when it is started: the service runs as before.
#[test]
fn a_failed_enable_is_rolled_back() {
    let Some(pod) = pod(GAME) else { return };
    let breaks = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 1'\n";
    let mux = "iomux@game.service.d/x.conf";
    let break_it = |is_broken: bool| {
        if is_broken {
            pod.set_unit(mux, breaks);
        } else {
            fs::remove_dir_all(pod.path("/etc/systemd/system/iomux@game.service.d")).unwrap();
            pod.systemctl(&["daemon-reload"]);
        }
    };
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    for more in [&["--stdout", "stream"][..], &["--stdout", "stream", "--now"]] {
        break_it(true);
        let said = refused(&pod, &enable(more));
        assert!(said.contains("iomux@game.service does not start"), "{said}");
        assert!(said.contains("rolled back: game.service runs as before"), "{said}");
        break_it(false);
        assert_untouched(&pod, &pid);
    }

    // One that has other streams by an earlier enable gets these again.
    pod.run(&enable(&["--tty", "--now"]));
    let files = written(&pod);
    pod.set_unit(mux, breaks);
    let said = refused(&pod, &enable(&["--stdout", "stream", "--now"]));
    assert!(said.contains("rolled back: game.service runs as before"), "{said}");
    fs::remove_dir_all(pod.path("/etc/systemd/system/iomux@game.service.d")).unwrap();
    assert_eq!(written(&pod), files);
    pod.connect("game", "sock-tty").line_ending("up");
    assert_eq!(pod.property("game.service", "ActiveState"), "active");
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_eq!(written(&pod), Vec::<String>::new());

    // Under a service that runs its mux has its options of before again, and the ends that systemd keeps.
    pod.run(&enable(&["--tty", "--now"]));
    let pid = pod.property("game.service", "MainPID");
    let some = "[Service]\nExecStartPre=/bin/sh -c 'test \"$IOTTYMUX_BACKLOG\" != 8K'\n";
    pod.set_unit("ttymux@game.service.d/x.conf", some);
    let said = refused(&pod, &enable(&["--tty", "--env", "IOTTYMUX_BACKLOG=8K"]));
    assert!(said.contains("ttymux@game.service does not start"), "{said}");
    assert!(said.contains("rolled back: game.service runs as before"), "{said}");
    pod.connect("game", "sock-tty").line_ending("up");
    assert_eq!(pod.property("game.service", "MainPID"), pid);
    fs::remove_file(pod.path("/etc/systemd/system/ttymux@game.service.d/x.conf")).unwrap();
    pod.run(&["iottymux", "disable", "game", "--now"]);
    assert_eq!(written(&pod), Vec::<String>::new());

    // Nor does one that was stopped run afterwards, or count as failed.
    pod.systemctl(&["stop", "game"]);
    break_it(true);
    let said = refused(&pod, &enable(&["--stdout", "stream", "--now"]));
    assert!(said.contains("rolled back: nothing has changed"), "{said}");
    break_it(false);
    assert_untouched(&pod, "0");
}

/// A service that runs on its own streams and fails with ours runs on its own again.
#[test]
fn a_service_that_fails_with_a_terminal_runs_as_before() {
    let unit = "[Service]\nExecStart=/bin/sh -c 'test -t 1 && exit 3; exec sleep 1000'\n";
    let Some(pod) = pod(unit) else { return };
    pod.systemctl(&["start", "game"]);
    let said = refused(&pod, &enable(&["--tty", "--now"]));
    assert!(said.contains("has failed (exit-code)"), "{said}");
    assert!(said.contains("rolled back: game.service runs as before"), "{said}");
    let pid = pod.property("game.service", "MainPID");
    assert_ne!(pid, "0");
    assert_untouched(&pod, &pid);
}

/// A signal in the middle of the restart, as when the terminal of the administrator is closed.
#[test]
fn an_enable_that_is_interrupted_is_rolled_back() {
    let unit = "[Service]\nType=notify\nNotifyAccess=all\nTimeoutStartSec=3s\n\
                ExecStart=/bin/sh -c 'test -p /dev/stdout || { systemd-notify --ready; exec sleep 1000; }; \
                touch /shared/waits; exec sleep 1000'\n";
    let Some(pod) = pod(unit) else { return };
    pod.systemctl(&["start", "game"]);
    // To it alone, and as a terminal does, to all that it has started.
    for (whom, why) in [
        ("TERM $!", "has failed (timeout), see journalctl -u game.service"),
        ("HUP -$!", "interrupted"),
    ] {
        let script = format!(
            "rm -f /shared/waits; setsid iottymux enable game --stdout stream --now & \
             until test -e /shared/waits; do sleep 0.02; done; kill -{whom}; wait $!"
        );
        let output = pod.try_run(&["sh", "-c", &script]);
        let said = String::from_utf8(output.stderr).unwrap();
        let back = format!("{why}; rolled back: game.service runs as before");
        assert!(said.contains(&back), "{whom}: {said}");
        assert_untouched(&pod, &pod.property("game.service", "MainPID"));
        assert_eq!(pod.property("game.service", "ActiveState"), "active");
    }
}

/// Before the package is removed.
#[test]
fn all_services_are_disabled() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("a.service", GAME).unit("b.service", GAME).unit("c.service", GAME).boot();
    let disable = ["iottymux", "disable", "--all", "--now"];
    assert_eq!(pod.run(&disable), "no service is enabled\n");
    pod.run(&["iottymux", "enable", "a", "--tty", "--now"]);
    pod.run(&["iottymux", "enable", "b", "--stdout", "stream", "--now"]);
    pod.run(&["iottymux", "enable", "c", "--stdout", "stream"]);
    // One that cannot be is told of, and keeps no other from it.
    let env = pod.path("/etc/systemd/system/ttymux@a.service.d/iottymux.env");
    let text = fs::read_to_string(&env).unwrap();
    fs::write(&env, text.clone() + "X=1\n").unwrap();
    let output = pod.try_run(&disable);
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot disable a.service: ") && said.contains("was changed after"),
        "{said}"
    );
    for name in ["b", "c"] {
        assert!(told.contains(&format!("{name}.service has its own streams again")), "{told}");
    }
    fs::write(&env, text).unwrap();
    let told = pod.run(&disable);
    assert!(told.ends_with("a.service has its own streams again\n"), "{told}");
    let mut units = written(&pod);
    units.retain(|name| !["a.service", "b.service", "c.service"].contains(&&**name));
    assert_eq!(units, Vec::<String>::new());
    for (name, state) in [("a", "active"), ("b", "active"), ("c", "inactive")] {
        assert_eq!(pod.property(&format!("{name}.service"), "ActiveState"), state, "{name}");
    }
    let usage = |words: &[&str]| {
        let output = pod.try_run(&[&["iottymux", "disable"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    };
    usage(&[]);
    usage(&["a", "--all"]);
}

/// What an `enable` that was killed has left: files that were not whole yet, a template without an app.
#[test]
fn what_a_killed_enable_has_left() {
    let Some(pod) = pod(GAME) else { return };
    pod.run(&enable(&["--tty"]));
    let etc = pod.path("/etc/systemd/system");
    let drop_in = fs::read(etc.join("game.service.d/50-iottymux.conf")).unwrap();
    let template = fs::read(etc.join("ttymux@.service")).unwrap();
    pod.run(&["iottymux", "disable", "game"]);
    assert_untouched(&pod, "0");
    fs::create_dir(etc.join("game.service.d")).unwrap();
    fs::write(etc.join("game.service.d/.50-iottymux.conf.new"), &drop_in[..9]).unwrap();
    fs::write(etc.join(".iomux@.service.new"), &template[..9]).unwrap();
    fs::write(etc.join("ttymux@.service"), &template).unwrap();
    fs::write(etc.join("other.service"), GAME).unwrap();
    let told = pod.run(&["iottymux", "disable", "--all"]);
    assert_eq!(told.matches("removed ").count(), 3, "{told}");
    fs::remove_file(etc.join("other.service")).unwrap();
    assert_untouched(&pod, "0");
}

/// The way that docs/units.md has for a machine from which the program is gone already. Until then the
/// service fails visibly: it does not wait for FIFOs that nobody reads, nor take a terminal that is not its own.
#[test]
fn taken_away_without_the_program() {
    const PROGRAM: &str = "/usr/local/bin/iottymux";
    let Some(pod) = pod(GAME) else { return };
    pod.run(&["umount", "--lazy", PROGRAM]);
    for (modes, is_stopped_before, is_booted_anew, status) in [
        (&["--tty"][..], true, false, "208"),
        (&["--tty"], false, false, "208"),
        (&["--stdout", "stream"], true, false, "209"),
        (&["--stdout", "stream"], false, true, "209"),
        (&["--stdin", "stream", "--stdout", "stream"], false, false, "208"),
    ] {
        pod.run(&["install", "-m", "755", "/iottymux", PROGRAM]);
        pod.run(&enable(&[modes, &["--reset", "--now"]].concat()));
        if is_stopped_before {
            pod.systemctl(&["stop", "game"]);
        }
        pod.run(&["rm", PROGRAM]);
        pod.systemctl(&["stop", "game"]);
        let mux = if modes == ["--tty"] { "ttymux@game" } else { "iomux@game" };
        eventually("its mux has ended", || pod.property(mux, "ActiveState") == "inactive");
        // Which systemd 257 sometimes leaves. It tries a mux that has a gate and no program again and again.
        pod.run(&["rm", "-rf", "/run/iottymux/game/gate"]);
        if is_booted_anew {
            pod.run(&["rm", "-r", "/run/iottymux/game"]);
        }
        pod.try_run(&["systemctl", "start", "game"]);
        eventually("it has failed", || pod.property("game.service", "ActiveState") == "failed");
        assert_eq!(pod.property("game.service", "ExecMainStatus"), status, "{modes:?}");
        let failed = pod.systemctl(&["list-units", "--failed", "--no-legend", "--plain"]);
        assert!(failed.contains("game.service"), "{failed}");
        assert!(!pod.path("/run/iottymux/game/stage2-stdout").is_file(), "{modes:?}");
        // Nobody needs the mux any more, and it is not tried for ever.
        let rests = || ["inactive", "failed"].contains(&&*pod.property(mux, "ActiveState"));
        eventually("it is not tried any more", rests);
        pod.systemctl(&["reset-failed", "game"]);
    }
    let docs = project_file("docs/units.md");
    let command = docs.split('`').find(|text| text.starts_with("grep -rl ")).unwrap();
    pod.run(&["sh", "-c", command]);
    pod.systemctl(&["start", "game"]);
    let left = "find /etc/systemd/system -name '*iottymux*' -o -name '*mux@.service' -o -name '*.service.d' -empty";
    assert_eq!(pod.run(&["sh", "-c", left]), "");
}

/// A package is upgraded slowly, and its mux dies in the middle of that: the app goes on, and so does the mux when the
/// program is there again.
#[test]
fn the_program_is_missing_for_a_while() {
    const PROGRAM: &str = "/usr/local/bin/iottymux";
    let unit = "[Service]\nExecStart=/bin/sh -c 'while :; do echo up; sleep 0.1; done'\n";
    let Some(pod) = pod(unit) else { return };
    pod.run(&["umount", "--lazy", PROGRAM]);
    for (modes, mux, socket) in [
        (&["--tty"][..], "ttymux@game", "sock-tty"),
        (&["--stdout", "stream"], "iomux@game", "sock-stdout"),
    ] {
        pod.run(&["install", "-m", "755", "/iottymux", PROGRAM]);
        pod.run(&enable(&[modes, &["--now"]].concat()));
        pod.connect("game", socket).line_ending("up");
        let pid = pod.property("game.service", "MainPID");
        pod.run(&["rm", PROGRAM]);
        pod.systemctl(&["kill", "--signal=KILL", mux]);
        let is_tried = || pod.property(mux, "NRestarts").parse::<u32>().unwrap() >= 3;
        eventually("it is tried again and again", is_tried);
        pod.run(&["install", "-m", "755", "/iottymux", PROGRAM]);
        eventually("it is back", || pod.property(mux, "ActiveState") == "active");
        pod.connect("game", socket).line_ending("up");
        assert_eq!(pod.property("game.service", "MainPID"), pid);
    }
}

/// Services without which nobody gets in any more, by all of their names.
#[test]
fn services_that_the_machine_needs_are_refused() {
    let Some(plan) = Plan::new() else { return };
    let names = [
        "dbus-broker.service",
        "systemd-journald.service",
        "systemd-logind.service",
        "systemd-udevd.service",
        "systemd-mine.service",
        "getty@.service",
        "serial-getty@.service",
        "console-getty.service",
        "user@.service",
        "emergency.service",
        "rescue.service",
    ];
    let pod = names.iter().fold(plan, |plan, name| plan.unit(name, GAME)).boot();
    let alias = |name: &str, of: &str| {
        std::os::unix::fs::symlink(of, pod.path("/etc/systemd/system").join(name)).unwrap();
    };
    alias("dbus.service", "dbus-broker.service");
    fs::write(pod.path("/etc/systemd/system/mine.service"), GAME).unwrap();
    alias("dbus-org.freedesktop.login1.service", "mine.service");
    alias("systemd-else.service", "mine.service");
    pod.systemctl(&["daemon-reload"]);
    let before = pod.names("/etc/systemd/system");
    for name in names.iter().chain(&["dbus.service", "mine.service"]) {
        let name = name.replace("@.", "@tty1.");
        let said = refused(&pod, &["iottymux", "enable", &name, "--tty", "--app", "x"]);
        assert!(said.contains("the machine") && said.contains("--force"), "{name}: {said}");
        assert_eq!(pod.names("/etc/systemd/system"), before, "{name}");
    }
    pod.run(&["iottymux", "enable", "rescue", "--tty", "--force"]);
    pod.run(&["iottymux", "disable", "rescue"]);
    assert_eq!(pod.names("/etc/systemd/system"), before);
}

/// What a service's own files say of its streams is not overridden without a word.
#[test]
fn streams_of_its_own_are_named() {
    let Some(pod) = pod(GAME) else { return };
    let with = |lines: &str| GAME.replace("[Service]\n", &format!("[Service]\n{lines}\n"));
    for (lines, more, named) in [
        (
            "StandardOutput=append:/shared/out",
            &["--stdout", "stream"][..],
            &["append:/shared/out"][..],
        ),
        (
            "StandardError=file:/shared/err",
            &["--stdout", "stream"],
            &["StandardError=file:/shared/err"],
        ),
        (
            "StandardOutput=truncate:/shared/out\nStandardError=journal+console",
            &["--tty"],
            &["StandardOutput=truncate:/shared/out", "StandardError=journal+console"],
        ),
        ("StandardInput=tty-force\nTTYPath=/dev/tty9", &["--tty"], &["StandardInput=tty-force"]),
        ("StandardInputText=hello", &["--tty"], &["StandardInputText=hello"]),
        ("StandardOutput=kmsg", &["--tty"], &["StandardOutput=kmsg"]),
    ] {
        pod.set_unit("game.service", &with(lines));
        let said = refused(&pod, &enable(more));
        assert!(named.iter().all(|name| said.contains(name)), "{lines}: {said}");
        assert!(said.contains("--force") && said.contains("/etc/systemd/system/game.service"));
        assert_eq!(written(&pod), Vec::<String>::new());
    }
    pod.set_unit("game.service", &with("StandardOutput=append:/shared/out"));
    pod.run(&enable(&["--stdout", "stream", "--force", "--now"]));
    pod.connect("game", "sock-stdout").line_ending("up");
    // What was forced is not asked for again.
    let output = pod.try_run(&enable(&["--stdout", "stream", "--env", "IOTTYMUX_BACKLOG=8K"]));
    assert!(output.status.success(), "{output:?}");
    pod.run(&["iottymux", "disable", "game", "--now"]);
    pod.systemctl(&["stop", "game"]);
    for lines in [
        "StandardInput=null\nStandardOutput=journal\nStandardError=inherit",
        "StandardOutput=null\nStandardError=null",
        "StandardOutput=append:/shared/out\nStandardOutput=journal",
        "StandardOutput=append:/shared/out\nStandardOutput=",
        "#StandardOutput=append:/shared/out",
    ] {
        pod.set_unit("game.service", &with(lines));
        pod.run(&enable(&["--tty"]));
        pod.run(&["iottymux", "disable", "game"]);
    }
}

/// A stock pod of rkt has templates of rkt's, with which our lines of a service would never let it start.
#[test]
fn in_a_stock_pod_of_rkt_nothing_is_written() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pod/fixtures/rkt");
    let template = |name: &str| fs::read_to_string(fixtures.join("both").join(name)).unwrap();
    let Some(plan) = Plan::new() else { return };
    let pod = plan
        .unit("game.service", GAME)
        .unit("iomux@.service", &template("iomux@.service"))
        .unit("ttymux@.service", &template("ttymux@.service"))
        .root_file("rkt/status/.keep", "")
        .boot();
    pod.systemctl(&["start", "game"]);
    let pid = pod.property("game.service", "MainPID");
    let before = pod.names("/etc/systemd/system");
    for more in
        [&["--tty"][..], &["--stdout", "stream", "--now"], &["--stdout", "stream", "--force"]]
    {
        let said = refused(&pod, &enable(more));
        assert!(said.contains("@.service is not a template of iottymux"), "{said}");
        assert!(said.contains("rkt run --stdout=stream"), "{said}");
        assert_eq!(pod.names("/etc/systemd/system"), before);
        assert_eq!(pod.property("game.service", "MainPID"), pid);
    }
}
