//! rkt's spelling: the same words, codes and texts as its own mux.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::proc::Proc;
use crate::pty::Pty;
use crate::rig::{Rig, expect};

#[test]
fn the_list_is_byte_for_byte_rkts() {
    let rig = Rig::new();
    rig.make_app_dir();
    fs::write(
        rig.path("endpoints"),
        r#"{"version":1,"targets":[{"name":"stdin","domain":"unix","address":"/rkt/iottymux/demo/sock-stdin"},{"name":"stdout","domain":"unix","address":"/rkt/iottymux/demo/sock-stdout"}]}"#,
    )
    .unwrap();
    let want = r#"{
    "version": 1,
    "targets": [
        {
            "name": "stdin",
            "domain": "unix",
            "address": "/rkt/iottymux/demo/sock-stdin"
        },
        {
            "name": "stdout",
            "domain": "unix",
            "address": "/rkt/iottymux/demo/sock-stdout"
        }
    ]
}"#;
    for spelling in [
        &["--action=list", "--app=demo"][..],
        &["-action=list", "-app=demo"],
        &["--action", "list", "--app", "demo"],
        &["-app", "demo"],
    ] {
        let mut list = rig.run(spelling);
        assert_eq!(list.ends(), 0, "{spelling:?}: {}", list.stderr.so_far());
        assert_eq!(list.stdout.text(), want, "{spelling:?}");
        assert_eq!(list.stderr.text(), "", "{spelling:?}");
    }
}

/// It ends with this code and says one line, with this text in it, and nothing else.
fn assert_refused(rig: &Rig, arguments: &[&str], code: i32, why: &str) {
    let mut process = rig.run(arguments);
    assert_eq!(process.ends(), code, "{arguments:?}: {}", process.stderr.so_far());
    let said = process.stderr.text();
    assert!(said.starts_with("iottymux: ") && said.contains(why), "{arguments:?}: {said:?}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said:?}");
    assert_eq!(process.stdout.text(), "", "{arguments:?}");
}

#[test]
fn names_that_rkt_refuses() {
    let rig = Rig::new();
    let names =
        ["", "foo#", "example.com", "EXAMPLE", "a/b", "-app", "app-", ".app", "a_b", "../x", "a\n"];
    for name in names {
        for action in ["iomux", "ttymux", "auto-attach", "custom-attach", "list"] {
            let app = format!("--app={name}");
            assert_refused(&rig, &[&format!("--action={action}"), &app], 254, "invalid app name");
        }
        // Some are names of units.
        if !["example.com", "EXAMPLE", "a_b"].contains(&name) {
            assert_refused(&rig, &["stream", &format!("--app={name}")], 2, "an app name");
        }
    }
    assert!(!rig.state().exists(), "a refused name has made something");
}

#[test]
fn flags_and_failures_have_rkts_codes() {
    let rig = Rig::new();
    assert_refused(&rig, &["--action=list", "--foo"], 2, "flag provided but not defined: -foo");
    assert_refused(&rig, &["--app=demo", "--action"], 2, "flag needs an argument: -action");
    assert_refused(&rig, &["--action=fly", "--app=demo"], 254, "unknown action \"fly\"");
    assert_refused(&rig, &["--action=list", "--app=demo"], 254, "there is no app demo in ");
    assert_refused(&rig, &["--action=auto-attach", "--app=demo"], 254, "there is no app demo in ");
    assert_refused(&rig, &["--action=custom-attach", "--app=demo"], 254, "STAGE2_ATTACH_");
    let _mux = rig.stream();
    assert_refused(&rig, &["--action=ttymux", "--app=demo"], 254, "another mux");
}

#[test]
fn custom_attach_takes_what_the_variables_say() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let app = rig.reader();
    let attach = |set: &[(&str, &str)]| {
        let mut command = rig.command(["--action=custom-attach", "--app=demo"]);
        command.envs(set.iter().copied()).stdin(Stdio::piped());
        Proc::spawn(command)
    };
    rig.writer("stdout").write_all(b"to stdout").unwrap();
    rig.writer("stderr").write_all(b"to stderr").unwrap();
    let mut out = attach(&[("STAGE2_ATTACH_STDOUT", "true"), ("STAGE2_ATTACH_STDIN", "false")]);
    out.stdout.wait_for("to stdout");
    let mut both = attach(&[("STAGE2_ATTACH_STDERR", "1"), ("STAGE2_ATTACH_STDIN", "t")]);
    both.stderr.wait_for("to stderr");
    both.stdin().write_all(b"typed\n").unwrap();
    app.wait_for("typed\n");
    let mut mixed = attach(&[("STAGE2_ATTACH_TTYOUT", "true"), ("STAGE2_ATTACH_STDOUT", "true")]);
    assert_eq!(mixed.ends(), 254);
    assert!(mixed.stderr.text().contains("incompatible endpoints"));
    mux.signal(Signal::SIGTERM);
    assert_eq!((mux.ends(), out.ends(), both.ends()), (0, 0, 0));
    assert_eq!((out.stderr.text(), both.stdout.text()), (String::new(), String::new()));
}

#[test]
fn both_muxes_and_auto_attach_in_rkts_words() {
    let rig = Rig::new();
    let mut command = rig.command(["--action=iomux", "--app=demo"]);
    command.envs([("STAGE2_STDOUT", "true"), ("STAGE2_STDIN", "false")]);
    let mut mux = rig.start(command);
    assert!(!rig.exists("sock-stdin") && !rig.exists("sock-stderr"));
    let mut attach = rig.run(&["--action=auto-attach", "--app=demo"]);
    rig.writer("stdout").write_all(b"hello\n").unwrap();
    attach.stdout.wait_for("hello\n");
    mux.signal(Signal::SIGTERM);
    assert_eq!((mux.ends(), attach.ends()), (0, 0));

    let mut mux = rig.mux(["--action=ttymux", "--app=demo"]);
    let mut client = rig.client("tty");
    rig.slave().write_all(b"shown").unwrap();
    expect(&mut client, "shown");
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// As `rkt attach` at a person's terminal: keys go to the app one by one and are not echoed twice, ^C is
/// the app's, and the usual keys leave.
#[test]
fn auto_attach_at_a_terminal() {
    let rig = Rig::new();
    let mut mux = rig.mux(["--action=ttymux", "--app=demo"]);
    let app = rig.slave_as_it_is();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["--action=auto-attach", "--app=demo"]));
    (&app).write_all(b"$ ").unwrap();
    local.shown.wait_for("$ ");
    assert!(local.is_raw());
    local.press(b"half\x15whole\r");
    let mut line = String::new();
    BufReader::new(&app).read_line(&mut line).unwrap();
    assert_eq!(line, "whole\n");
    (&app).write_all(b"done").unwrap();
    local.shown.wait_for("done");
    assert_eq!(local.shown.so_far().matches("whole").count(), 1, "{}", local.shown.so_far());
    local.press(b"\x03");
    local.shown.wait_for("^C");
    assert!(attach.runs());
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    assert!(local.is_as_before());
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// Each fault of rkt's own mux has tests that would fail on it.
#[test]
fn the_tests_that_would_fail_on_rkts_mux_exist() {
    let read = |path: &str| {
        fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap_or_default()
    };
    let table = read("tests/rkt.txt");
    let faults = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tests = faults.flat_map(|line| line.rsplit_once(" | ").unwrap().1.split(", "));
    let named: Vec<_> = tests.map(|test| test.split_once("::").unwrap()).collect();
    assert!(named.len() > 30, "{named:?}");
    for (module, test) in named {
        let sources = ["it", "pod"].map(|dir| read(&format!("tests/{dir}/{module}.rs")));
        let there = sources.concat().contains(&format!("#[test]\nfn {test}()"));
        assert!(there, "{module}::{test}");
    }
}
