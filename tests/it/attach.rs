//! `attach` as a program among others: what it gives and takes, and how it ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::pattern;
use crate::proc::Proc;
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect, rest};

#[test]
fn each_mode_gives_what_it_says() {
    for (mode, types, out, err) in [
        ("auto", true, "to stdout\n", "to stderr\n"),
        ("stdin,stdout,stderr", true, "to stdout\n", "to stderr\n"),
        ("stdout", false, "to stdout\n", ""),
        ("stderr", false, "", "to stderr\n"),
        ("stdout,stderr", false, "to stdout\n", "to stderr\n"),
        ("stdin,stdout", true, "to stdout\n", ""),
    ] {
        let rig = Rig::new();
        let mut mux = rig.stream();
        let app = rig.reader();
        rig.writer("stdout").write_all(b"to stdout\n").unwrap();
        rig.writer("stderr").write_all(b"to stderr\n").unwrap();
        let mut attach = rig.attach(&["--mode", mode]);
        attach.stdin().write_all(b"typed\n").unwrap();
        attach.stdout.wait_for(out);
        attach.stderr.wait_for(err);
        if types {
            app.wait_for("typed\n");
        }
        mux.signal(Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
        assert_eq!(attach.ends(), 0, "{mode}");
        assert_eq!(attach.stdout.text(), out, "{mode}");
        assert_eq!(attach.stderr.text(), err, "{mode}");
        if !types {
            assert_eq!(app.text(), "", "{mode}");
        }
    }
}

#[test]
fn each_mode_of_a_terminal_gives_what_it_says() {
    for (mode, types, out) in
        [("auto", true, "shown"), ("tty", true, "shown"), ("tty-out", false, "shown")]
    {
        let rig = Rig::new();
        let mut mux = rig.tty();
        let mut app = rig.slave();
        app.write_all(b"shown").unwrap();
        let mut attach = rig.attach(&["--mode", mode]);
        attach.stdin().write_all(b"typed").unwrap();
        attach.stdout.wait_for(out);
        if types {
            expect(&mut app, "typed");
        }
        mux.signal(Signal::SIGTERM);
        assert_eq!((mux.ends(), attach.ends()), (0, 0), "{mode}");
        // The terminal has ended; whatever else was typed would come before.
        assert_eq!(rest(app), "", "{mode}");
        assert_eq!(attach.stdout.text(), out, "{mode}");
    }
}

#[test]
fn input_alone_ends_when_all_of_it_is_with_the_app() {
    for (kind, mode) in [("stream", "stdin"), ("tty", "tty-in")] {
        let rig = Rig::new();
        let _mux = rig.mux([kind, "--app", APP]);
        let mut attach = rig.attach(&["--mode", mode]);
        attach.stdin().write_all(b"for the app\n").unwrap();
        assert_eq!(attach.ends(), 0);
        assert_eq!((attach.stdout.text(), attach.stderr.text()), (String::new(), String::new()));
        // Only now does the app look.
        if kind == "tty" {
            let mut got = [0; 12];
            rig.slave_as_it_is().read_exact(&mut got).unwrap();
            assert_eq!(&got, b"for the app\n");
        } else {
            rig.reader().wait_for("for the app\n");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut app = rig.writer("stdout");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = rig.command(["attach", "--app", APP]);
    command.stdin(Stdio::piped()).stdout(writer);
    let mut attach = Proc::spawn(command);
    app.write_all(b"one\ntwo\n").unwrap();
    expect(&mut reader, "one\n");
    // As `head -1` does. Nothing more is ever written, and its input stays open.
    drop(reader);
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stderr.text(), "");
}

#[test]
fn regular_files_on_both_sides() {
    let rig = Rig::new();
    let len = 3 << 20;
    let mut mux = rig.mux(["run", "--foreground", "--app", APP, "--", "cat"]);
    fs::write(rig.file("in"), pattern::bytes(len)).unwrap();
    let mut command = rig.command(["attach", "--app", APP, "--stdin-once"]);
    command.stdin(File::open(rig.file("in")).unwrap());
    command.stdout(File::create(rig.file("out")).unwrap());
    let mut attach = Proc::spawn(command);
    assert_eq!(attach.ends(), 0, "{}", attach.stderr.so_far());
    assert!(fs::read(rig.file("out")).unwrap() == pattern::bytes(len));
    assert_eq!(mux.ends(), 0);
}

#[test]
fn flags_of_inherited_descriptors_are_left_alone() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let (in_read, mut in_write) = std::io::pipe().unwrap();
    let (out_read, out_write) = std::io::pipe().unwrap();
    let (in_kept, out_kept): (OwnedFd, OwnedFd) =
        (in_read.try_clone().unwrap().into(), out_write.try_clone().unwrap().into());
    let flags = |fd: &OwnedFd| fcntl(fd.as_fd(), FcntlArg::F_GETFL).unwrap();
    let before = (flags(&in_kept), flags(&out_kept));
    assert!(!OFlag::from_bits_retain(before.0).contains(OFlag::O_NONBLOCK));
    let mut command = rig.command(["attach", "--app", APP]);
    command.stdin(in_read).stdout(out_write);
    let attach = Proc::spawn(command);
    let app = rig.reader();
    in_write.write_all(b"there\n").unwrap();
    app.wait_for("there\n");
    rig.writer("stdout").write_all(b"back\n").unwrap();
    expect(&out_read, "back\n");
    assert_eq!((flags(&in_kept), flags(&out_kept)), before, "while attached");
    drop(attach);
    assert_eq!((flags(&in_kept), flags(&out_kept)), before, "afterwards");
}

#[test]
fn the_end_of_its_input_can_end_the_apps() {
    let rig = Rig::new();
    let mut mux = rig.mux(["run", "--foreground", "--app", APP, "--", "cat"]);
    let mut attach = rig.attach(&["--stdin-once"]);
    attach.stdin().write_all(b"x").unwrap();
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "x");
    assert_eq!(mux.ends(), 0);
}

#[test]
fn without_that_the_end_of_its_input_ends_nothing() {
    let rig = Rig::new();
    let _mux = rig.mux(["run", "--foreground", "--app", APP, "--", "cat"]);
    let attach = rig.attach(&[]);
    rig.client("stdin").write_all(b"a\n").unwrap();
    attach.stdout.wait_for("a\n");
    let mut attach = attach;
    drop(attach.stdin());
    rig.client("stdin").write_all(b"b\n").unwrap();
    attach.stdout.wait_for("a\nb\n");
    assert!(attach.runs());
}

#[test]
fn a_vanished_mux_is_reported() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut attach = rig.attach(&["--mode", "stdout"]);
    rig.writer("stdout").write_all(b"x\n").unwrap();
    attach.stdout.wait_for("x\n");
    mux.signal(Signal::SIGKILL);
    mux.ends();
    assert_eq!(attach.ends(), 125);
    assert!(attach.stderr.text().contains("attached to app demo: the mux is gone"));
}

#[test]
fn clients_of_other_makes_are_served() {
    // As rkt's Go client: dials every target, copies stdout, never reads what its input socket or
    // stderr has to say.
    let rig = Rig::new();
    let mut mux = rig.stream();
    let app = rig.reader();
    let (mut stdin, stdout, stderr) =
        (rig.client("stdin"), rig.client("stdout"), rig.client("stderr"));
    let len = 4 << 20;
    let reading = thread::spawn(move || pattern::read(stdout, 1 << 15));
    pattern::write(rig.writer("stdout"), len);
    pattern::write(rig.writer("stderr"), 1000);
    stdin.write_all(b"typed\n").unwrap();
    app.wait_for("typed\n");
    // Its input's half-close is its end, and no other client's.
    stdin.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&stdin), "");
    rig.client("stdin").write_all(b"somebody else\n").unwrap();
    app.wait_for("somebody else\n");
    mux.signal(Signal::SIGTERM);
    assert_eq!(reading.join().unwrap(), len);
    assert_eq!(pattern::read(stderr, 1 << 15), 1000);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn the_mode_list_shows_the_document() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut attach = rig.attach(&["--mode", "list"]);
    assert_eq!(attach.ends(), 0);
    let shown: Value = serde_json::from_str(&attach.stdout.text()).unwrap();
    let document = fs::read_to_string(rig.path("endpoints")).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(&document).unwrap());
}

/// A mux that is stuck is waited for, but not in silence.
#[test]
fn a_mux_that_does_not_answer_is_reported() {
    let rig = Rig::new();
    let mux = rig.stream();
    mux.stop();
    let mut attach = rig.attach(&["--mode", "stdout"]);
    attach.stderr.wait_for("iottymux: app demo: its mux does not answer; waiting (^C leaves)\n");
    mux.go_on();
    rig.writer("stdout").write_all(b"here").unwrap();
    attach.stdout.wait_for("here");
    mux.signal(Signal::SIGTERM);
    assert_eq!(attach.ends(), 0);
}

/// A mux that hangs while somebody is attached holds what is typed.
#[test]
fn what_is_typed_to_a_mux_that_hangs_waits() {
    let rig = Rig::new();
    let mux = rig.stream();
    let input = rig.reader();
    let mut attach = rig.attach(&["--mode", "stdin,stdout"]);
    rig.writer("stdout").write_all(b"up").unwrap();
    attach.stdout.wait_for("up");
    mux.stop();
    attach.stdin().write_all(b"a line\n").unwrap();
    let mut status = rig.run(&["status", APP]);
    assert_eq!(status.ends(), 1);
    assert!(status.stderr.text().ends_with("the mux does not answer\n"));
    assert_eq!(attach.stderr.so_far(), "");
    mux.go_on();
    input.wait_for("a line\n");
}

/// Nothing has changed at the terminal of somebody who waits for such a mux.
#[test]
fn a_person_leaves_a_mux_that_does_not_answer() {
    let rig = Rig::new();
    let mux = rig.tty();
    mux.stop();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach", APP]));
    local.shown.wait_for("its mux does not answer; waiting (^C leaves)");
    assert!(local.is_as_before());
    local.press(b"\x03");
    assert_eq!(attach.ends(), -2);
    mux.go_on();
}

/// What `attach` gets from a pipe is for the app: who has none says so, as `send` does.
#[test]
fn input_for_an_app_without_one_is_refused() {
    let rig = Rig::new();
    let _mux = rig.mux(["stream", "--app", APP, "--streams", "stdout"]);
    let mut refused = rig.attach(&[]);
    refused.stdin().write_all(b"stop\n").unwrap();
    assert_eq!(refused.ends(), 1);
    let said = refused.stderr.text();
    assert!(said.contains("app demo has no input, and got nothing of this one"), "{said}");
    // An input that has nothing to say, or who only reads.
    for options in [&[][..], &["--read-only"]] {
        let mut reader = rig.attach(options);
        if options.is_empty() {
            drop(reader.stdin());
        } else {
            reader.stdin().write_all(b"stop\n").unwrap();
        }
        writeln!(rig.writer("stdout"), "hello").unwrap();
        reader.stdout.wait_for("hello\n");
    }
}
