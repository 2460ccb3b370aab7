//! The direct layout as it is delivered: the examples start, are attached, stop and start again.

use std::io::Write;
use std::process::Stdio;

use crate::pod::Pod;
use crate::proc::eventually;

#[test]
fn a_service_with_streams() {
    let Some(pod) = Pod::delivered() else { return };
    for round in 0..2 {
        pod.systemctl(&["start", "demo.service"]);
        assert_eq!(
            pod.names("/run/iottymux/demo"),
            ["endpoints", "ends", "gate", "mux", "stage2-stderr", "stage2-stdin", "stage2-stdout"]
        );
        let sockets = ["sock-session", "sock-stderr", "sock-stdin", "sock-stdout"];
        let all = [&["endpoints", "life.json", "lock"][..], &sockets].concat();
        // The hook that the app has started is answered before that is written down.
        eventually("all files are there", || pod.names("/run/iottymux/demo/mux") == all);
        let mut stdin = pod.connect("demo", "sock-stdin");
        let mut stdout = pod.connect("demo", "sock-stdout");
        let mut stderr = pod.connect("demo", "sock-stderr");
        assert_eq!(stderr.line(), "demo: tell me something");
        stdin.say("from here\n");
        assert_eq!(stdout.line(), "from here");

        let mut attach = pod
            .command(&["iottymux", "attach", "--app", "demo", "--mode", "stdin"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        attach.stdin.take().unwrap().write_all(b"from inside\n").unwrap();
        assert!(attach.wait().unwrap().success());
        assert_eq!(stdout.line(), "from inside");

        pod.systemctl(&["stop", "demo.service"]);
        assert_eq!(stdout.rest(), b"", "round {round}");
        assert_eq!(stderr.rest(), b"", "round {round}");
    }
}

#[test]
fn the_binary_attaches_from_outside() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "demo.service"]);
    let mut attach = std::process::Command::new(env!("CARGO_BIN_EXE_iottymux"))
        .arg("--state-dir")
        .arg(pod.path("/run/iottymux"))
        .args(["attach", "--app", "demo", "--reconnect", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    attach.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
    let mut echo = [0; 6];
    std::io::Read::read_exact(attach.stdout.as_mut().unwrap(), &mut echo).unwrap();
    assert_eq!(&echo, b"hello\n");
    pod.systemctl(&["stop", "demo.service"]);
    let output = attach.wait_with_output().unwrap();
    // cat ended by SIGTERM.
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "demo: tell me something\n");
}

#[test]
fn a_service_with_a_terminal() {
    let Some(pod) = Pod::delivered() else { return };
    for _ in 0..2 {
        pod.systemctl(&["start", "shell.service"]);
        let mut tty = pod.connect("shell", "sock-tty");
        tty.say("stty size; echo $TERM $((6*7)); tty </dev/tty >/dev/null && echo own-$?\n");
        tty.line_ending("24 80");
        tty.line_ending("xterm-256color 42");
        tty.line_ending("own-0");
        // It is the shell's controlling terminal: ^C reaches what runs in front.
        tty.say("sh -c 'echo be\"\"gun; exec sleep 1000'\n");
        tty.line_ending("begun");
        tty.say("\x03");
        tty.say("echo interrupted-$?\n");
        tty.line_ending("interrupted-130");
        pod.systemctl(&["stop", "shell.service"]);
        tty.rest();
        pod.systemctl(&["stop", "ttymux@shell.service"]);
        assert_eq!(pod.names("/run/iottymux/shell/mux"), ["last.json", "lock"]);
    }
}

/// An app that must not start without its mux does not: it says why.
#[test]
fn no_app_without_a_mux() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit(
        "iomux@demo.service.d/x.conf",
        "[Service]\nEnvironment=IOTTYMUX_BACKLOG=none\nRestart=no\n",
    );
    pod.set_unit("demo.service.d/x.conf", "[Service]\nRestart=no\n");
    pod.try_run(&["timeout", "20", "systemctl", "start", "demo.service"]);
    let has_failed = || pod.property("demo.service", "ActiveState") == "failed";
    eventually("it has failed", has_failed);
    // As every service that has failed: 209 is its stdout, 208 its stdin (systemd.exec(5)).
    assert_eq!(pod.property("demo.service", "ExecMainStatus"), "208");
    assert!(pod.systemctl(&["list-units", "--failed"]).contains("iomux@demo.service"));
    // An app that only prints would make plain files of the names of its FIFOs.
    pod.set_unit("demo.service.d/x.conf", "[Service]\nStandardInput=null\nRestart=no\n");
    pod.systemctl(&["reset-failed"]);
    pod.try_run(&["systemctl", "start", "demo.service"]);
    eventually("it has failed again", has_failed);
    assert_eq!(pod.property("demo.service", "ExecMainStatus"), "209");
}

/// A mistake in the env file is told once, not every 100 ms for ever.
#[test]
fn a_usage_error_is_not_tried_again() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit("iomux@demo.service.d/x.conf", "[Service]\nEnvironment=IOTTYMUX_BACKLOG=none\n");
    pod.set_unit("demo.service.d/x.conf", "[Service]\nRestart=no\n");
    pod.try_run(&["systemctl", "start", "demo.service"]);
    let has_failed = || pod.property("demo.service", "ActiveState") == "failed";
    eventually("the app has not been started", has_failed);
    assert_eq!(pod.property("demo.service", "ExecMainStatus"), "208");
    assert_eq!(pod.property("iomux@demo.service", "NRestarts"), "0");
    assert_eq!(pod.property("iomux@demo.service", "ExecMainStatus"), "78");
}
