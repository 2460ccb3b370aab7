//! A mux that goes away, and what `attach` does until there is another.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::termios::tcgetwinsize;

use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig};

/// Longer than any test: what ends the wait is an event.
const LONG: &str = "--reconnect=60";
const AWAY: &str = "iottymux: app demo: the mux is gone; trying again for 60s";
const BACK: &str = "iottymux: app demo: attached again";

fn kill(mux: &mut Proc) {
    mux.signal(Signal::SIGKILL);
    assert_eq!(mux.ends(), -9);
}

/// The app writes a word, and an attach has shown it: so it is attached.
fn see(rig: &Rig, attach: &Proc, word: &str) {
    rig.writer("stdout").write_all(word.as_bytes()).unwrap();
    attach.stdout.wait_for(word);
}

#[test]
fn another_mux_cannot_count_the_missed_bytes() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut attach = rig.attach(&["--mode", "stdout", LONG]);
    see(&rig, &attach, "before\n");
    kill(&mut mux);
    attach.stderr.wait_for(AWAY);
    attach.waits();
    let mut mux = rig.mux([
        "run",
        "--foreground",
        "--app",
        APP,
        "--",
        "sh",
        "-c",
        "echo after; read x; exit 3",
    ]);
    attach.stdout.wait_for("before\nafter\n");
    rig.client("stdin").write_all(b"\n").unwrap();
    assert_eq!(mux.ends(), 3);
    assert_eq!(attach.ends(), 124);
    assert_eq!(
        attach.stderr.text(),
        format!(
            "{AWAY}\n{BACK}; output written meanwhile may be missing\n\
             iottymux: attached to app demo: output written between two muxes may be missing\n"
        )
    );
}

#[test]
fn without_a_new_mux_in_time_attach_ends_as_the_mux_did() {
    for (signal, code, said) in [
        (Signal::SIGKILL, 125, "the mux is gone; trying again for 50ms\n"),
        (Signal::SIGTERM, 0, "the mux has ended; trying again for 50ms\n"),
    ] {
        let rig = Rig::new();
        let mux = rig.stream();
        let mut attach = rig.attach(&["--mode", "stdout", "--reconnect", "0.05"]);
        see(&rig, &attach, "x\n");
        mux.signal(signal);
        assert_eq!(attach.ends(), code);
        let told = attach.stderr.text();
        assert!(told.starts_with(&format!("iottymux: app demo: {said}")), "{told}");
        let lost = told.contains("attached to app demo: the mux is gone\n");
        assert_eq!(lost, code == 125, "{told}");
    }
}

#[test]
fn input_of_a_program_waits_for_the_next_mux() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut attach = rig.attach(&["--mode", "stdin,stdout", LONG]);
    see(&rig, &attach, "x");
    kill(&mut mux);
    attach.stderr.wait_for(AWAY);
    // Nobody can take it now.
    let mut input = attach.stdin();
    input.write_all(b"meanwhile\n").unwrap();
    attach.waits();
    let _mux = rig.stream();
    attach.stderr.wait_for(BACK);
    rig.reader().wait_for("meanwhile\n");
}

#[test]
fn input_that_nobody_knows_of_is_no_success() {
    const UNSURE: &str = "the app may not have received all of the input";
    let rig = Rig::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut mux = rig.stream();
        let app = rig.reader();
        let mut attach = rig.attach(&[LONG]);
        let mut input = attach.stdin();
        input.write_all(b"typed\n").unwrap();
        app.wait_for("typed\n");
        mux.signal(signal);
        mux.ends();
        // The next mux may know, and the app may have ended as well: only another mux tells.
        attach.stderr.wait_for("trying again");
        attach.waits();
        let _mux = rig.stream();
        assert_eq!(attach.ends(), 125);
        let said = attach.stderr.text();
        assert!(said.contains(UNSURE), "{said}");
    }
}

#[test]
fn input_of_which_no_mux_tells_is_no_success() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let app = rig.reader();
    let mut attach = rig.attach(&["--reconnect", "0.05"]);
    // Its end would be confirmed.
    let mut input = attach.stdin();
    input.write_all(b"typed\n").unwrap();
    app.wait_for("typed\n");
    kill(&mut mux);
    assert_eq!(attach.ends(), 125);
    let said = attach.stderr.text();
    assert!(said.contains("is gone, and the app may not have received all of the input"), "{said}");
}

#[test]
fn the_end_of_input_is_sent_again() {
    let rig = Rig::new();
    let nobody_types = || {
        let mut status = rig.run(&["status", "--app", APP, "--json"]);
        status.ends() == 0 && !status.stdout.text().contains("\"types\":true")
    };
    let mut mux = rig.stream();
    let mut attach = rig.attach(&[LONG]);
    see(&rig, &attach, "x");
    drop(attach.stdin());
    eventually("the end of input is told", nobody_types);
    kill(&mut mux);
    attach.stderr.wait_for(AWAY);
    let _mux = rig.stream();
    attach.stderr.wait_for(BACK);
    eventually("the end of input is told again", nobody_types);
    see(&rig, &attach, "y");
    assert!(attach.runs());
}

/// A person at a terminal whose mux has just been killed.
fn desk() -> (Rig, Pty, Proc) {
    let rig = Rig::new();
    let mut mux = rig.tty();
    let local = Pty::open(33, 99);
    let attach = local.spawn(rig.command(["attach", "--app", APP, LONG]));
    rig.slave().write_all(b"\x1b[?1049h$ ").unwrap();
    local.shown.wait_for("$ ");
    kill(&mut mux);
    local.shown.wait_for(AWAY);
    (rig, local, attach)
}

#[test]
fn a_person_without_a_mux_can_leave_in_every_way() {
    type Way = fn(&Pty, &Proc);
    let ways: [(Way, i32); 3] = [
        (|local, _| local.press(b"lost\x10\x11"), 0),
        (|_, attach| attach.signal(Signal::SIGTERM), -15),
        (|_, attach| attach.signal(Signal::SIGHUP), -1),
    ];
    for (way, code) in ways {
        let (_rig, local, mut attach) = desk();
        assert!(local.is_raw());
        way(&local, &attach);
        assert_eq!(attach.ends(), code);
        assert!(local.is_as_before());
        local.shown.wait_for("\x1b[?1049l");
    }
}

#[test]
fn a_terminal_goes_on_with_another_mux() {
    let (rig, local, attach) = desk();
    local.resize(44, 88);
    local.press(b"for nobody");
    // It is read, and thrown away.
    eventually("the keys are read", || local.unread() == 0);
    attach.waits();
    let _mux = rig.tty();
    local.shown.wait_for(BACK);
    let mut app = rig.slave();
    eventually("the window is the app's", || {
        let size = tcgetwinsize(&app).unwrap();
        (size.ws_row, size.ws_col) == (44, 88)
    });
    local.press(b"k");
    let mut got = [0];
    app.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"k");
    app.write_all(b"shown again").unwrap();
    local.shown.wait_for("shown again");
}

/// The next one is about to come: a line from a script is not lost, and nobody is told that the app
/// does not run.
#[test]
fn commands_wait_for_the_mux_after_a_killed_one() {
    for words in
        [&["send", APP, "hello"][..], &["status", APP], &["attach", APP, "--mode", "stdin"]]
    {
        let rig = Rig::new();
        let script = "read x; echo $x; exit 7";
        let keeper = rig.mux(["run", "--foreground", "--name", APP, "--", "sh", "-c", script]);
        let pid = rig.status()["mux_pid"].as_i64().unwrap();
        // It cannot start the next one yet.
        keeper.stop();
        let mux = Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(mux, Signal::SIGKILL).unwrap();
        let socket = rig.path("sock-session");
        eventually("the mux is dead", || UnixStream::connect(&socket).is_err());
        let mut command = rig.run(words);
        eventually("it waits", || {
            let wait = std::fs::read_to_string(format!("/proc/{}/wchan", command.pid()));
            wait.is_ok_and(|wait| wait.contains("poll"))
        });
        keeper.signal(Signal::SIGCONT);
        assert_eq!(command.ends(), 0, "{words:?}: {}", command.stderr.text());
    }
}
