//! A person knows how to leave: what attach says at its start and its end, and its keys at a terminal
//! that edits lines.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::at_terminal::{at_prompt, size_of};
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};

/// Three streams, at a terminal.
struct Scene {
    rig: Rig,
    local: Pty,
    mux: Proc,
    attach: Proc,
}

impl Scene {
    fn new(options: &[&str]) -> Self {
        let rig = Rig::new();
        let script = "echo up; while read x; do echo \"<$x>\"; printf 'no end'; done; exit 3";
        let mux = rig.mux(["run", "--foreground", "--name", APP, "--", "sh", "-c", script]);
        let local = Pty::open(24, 80);
        let attach = local.spawn(rig.command([&["attach", APP][..], options].concat()));
        local.shown.wait_for("up");
        Self { rig, local, mux, attach }
    }

    fn leaves(&mut self, code: i32) {
        assert_eq!(self.attach.ends(), code, "{}", self.local.shown.so_far());
        assert!(self.local.is_as_before());
    }
}

#[test]
fn it_says_how_to_leave_and_leaves_by_its_keys() {
    let mut scene = Scene::new(&[]);
    let greeting = "iottymux: stdin,stdout,stderr of app demo: ^C or ctrl-p ctrl-q leaves\r\n";
    scene.local.shown.wait_for(greeting);
    // Lines are edited.
    scene.local.press(b"onx\x7fe\r");
    scene.local.shown.wait_for("<one>\r\nno end");
    // No line end is needed, and what was typed before is not lost.
    scene.local.press(b"two\x10\x11");
    scene.leaves(0);
    scene.local.shown.wait_for("no endtwo\x10\x11\r\r\niottymux: detached from app demo\r");
    let mut again = scene.rig.attach(&["--stdin-once"]);
    again.stdin().write_all(b" three\n").unwrap();
    assert_eq!((again.ends(), scene.mux.ends()), (3, 3));
    assert!(again.stdout.text().contains("<two three>"), "{}", again.stdout.text());
}

/// What it types is not shown, and its keys are those of all.
#[test]
fn a_viewer_at_a_dumb_terminal_leaves_by_its_keys() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn_as("dumb", rig.command(["attach", APP, "--read-only"]));
    local.shown.wait_for("ctrl-p ctrl-q leaves");
    eventually("the terminal is raw", || !local.echoes());
    local.press(b"#\x10\x11");
    assert_eq!(attach.ends(), 0, "{}", local.shown.so_far());
    assert!(!local.shown.so_far().contains('#'), "{}", local.shown.so_far());
    assert!(local.is_as_before());
}

/// A serial line, or `ssh -tt` of a job, has a terminal without a size.
#[test]
fn a_terminal_without_a_size_is_told_how_to_leave() {
    let rig = Rig::new();
    let _mux = rig.tty();
    for (rows, cols) in [(0, 0), (0, 80), (24, 80)] {
        let local = Pty::open(rows, cols);
        let mut attach = local.spawn(rig.command(["attach", APP]));
        local.shown.wait_for("iottymux: demo: ctrl-p ctrl-q leaves");
        local.press(b"\x10\x11");
        assert_eq!(attach.ends(), 0);
    }
}

/// An app may ask for keys in sequences, as fish 4, vim 9 and the programs of agents do.
#[test]
fn its_keys_leave_however_the_terminal_encodes_them() {
    for keys in [
        // kitty's protocol, with num lock, with keys that are let go, and of a Russian keyboard.
        &["\x1b[112;5u", "\x1b[113;5u"][..],
        &["\x1b[112;133u\x1b[113;133u"],
        &["\x1b[57442;5:1u", "\x1b[112;5:1u", "\x1b[112;5:3u", "\x1b[113;5:1u"],
        &["\x1b[1079::112;5u", "\x1b[1081::113;5u"],
        // xterm's modifyOtherKeys, and a key that comes in two reads.
        &["\x1b[27;5;112~\x1b[27;5;113~"],
        &["\x1b[112;", "5u", "\x1b[113;5u"],
    ] {
        let rig = Rig::new();
        let _mux = rig.tty();
        let (local, mut attach, _app) = at_prompt(&rig, 80, &[]);
        for key in keys {
            local.press(key.as_bytes());
        }
        assert_eq!(attach.ends(), 0, "{keys:?}: {}", local.shown.so_far());
        assert!(local.is_as_before());
    }
    // Who may not type leaves by ^C.
    let rig = Rig::new();
    let _mux = rig.tty();
    let local = Pty::open(24, 80);
    let mut viewer = local.spawn(rig.command(["attach", APP, "--read-only"]));
    local.shown.wait_for("read-only");
    local.press(b"\x1b[99;5u");
    assert_eq!(viewer.ends(), -2, "{}", local.shown.so_far());
    assert!(local.is_as_before());
}

#[test]
fn its_first_key_alone_is_the_apps() {
    let mut scene = Scene::new(&["--detach-keys", "a,b"]);
    scene.local.press(b"xa");
    // It waits for the second key, and then the terminal edits lines again.
    let edits_lines = || {
        use nix::sys::termios::{LocalFlags, tcgetattr};
        tcgetattr(&scene.local.slave).unwrap().local_flags.contains(LocalFlags::ICANON)
    };
    eventually("it waits for a key", || !edits_lines());
    eventually("it edits lines", edits_lines);
    scene.local.press(b"ay\r");
    scene.local.shown.wait_for("<xaay>");
    scene.local.press(b"ab");
    scene.leaves(0);
}

#[test]
fn the_keys_are_said_between_streams_too() {
    let mut scene = Scene::new(&[]);
    scene.local.press(b"\x10?");
    scene.local.shown.wait_for("iottymux: ctrl-p ctrl-q leaves; iottymux status demo shows");
    scene.local.press(b"one\r");
    scene.local.shown.wait_for("<one>");
    scene.local.press(b"\x10\x11");
    scene.leaves(0);
}

#[test]
fn the_end_of_the_app_is_a_line_of_its_own() {
    let mut scene = Scene::new(&[]);
    scene.local.press(b"one\r");
    scene.local.shown.wait_for("<one>\r\nno end");
    let mut end = scene.rig.attach(&["--mode", "stdin", "--stdin-once"]);
    drop(end.stdin());
    scene.leaves(3);
    scene.local.shown.wait_for("no end\r\r\niottymux: app demo ended with status 3\r");
    assert_eq!((end.ends(), scene.mux.ends()), (3, 3));
    // Without a blank line if the last line has an end.
    let rig = Rig::new();
    let mut mux = rig.mux(["run", "--foreground", "--name", APP, "sh", "-c", "read x; echo end"]);
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach", APP]));
    local.shown.wait_for("leaves\r\n");
    local.press(b"x\r");
    assert_eq!((attach.ends(), mux.ends()), (0, 0));
    local.shown.wait_for("end\r\n\riottymux: app demo ended with status 0\r");
}

/// After the local terminal is restored it writes `\r\n` for `\n`, also for that of `\r\n`.
#[test]
fn the_end_of_an_app_with_a_terminal_is_a_line_of_its_own() {
    for (last, shown) in [
        ("printf end", "end\x1b[0m\x0f\r\r\niottymux: app demo ended with status 4\r"),
        ("echo end", "end\r\n\x1b[0m\x0f\riottymux: app demo ended with status 4\r"),
        // The cursor returns to where it was on the main screen.
        (
            "printf '>\\033[?1049hend\\n'",
            "end\r\n\x1b[?1049l\x1b[0m\x0f\r\r\niottymux: app demo ended with status 4\r",
        ),
    ] {
        let rig = Rig::new();
        let script = format!("read x; {last}; exit 4");
        let mut mux = rig.mux(["run", "--foreground", "--name", APP, "-t", "sh", "-c", &script]);
        let local = Pty::open(24, 80);
        let mut attach = local.spawn(rig.command(["attach", APP]));
        local.shown.wait_for("demo: ctrl-p ctrl-q leaves, ^C or ^D may end it");
        local.press(b"x\r");
        assert_eq!((attach.ends(), mux.ends()), (4, 4));
        local.shown.wait_for(shown);
        assert!(local.is_as_before());
    }
}

#[test]
fn no_notice_follows_what_was_typed_on_its_line() {
    let rig = Rig::new();
    let _mux = rig.mux(["run", "--foreground", "--name", APP, "sh", "-c", "echo up; read x"]);
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach", APP]));
    local.shown.wait_for("up\r\n");
    local.press(b"two\x10\x11");
    assert_eq!(attach.ends(), 0);
    local.shown.wait_for("two\x10\x11\r\r\niottymux: detached from app demo\r");
}

/// Neither says more than the command, in a pipe.
#[test]
fn only_a_person_is_told() {
    let rig = Rig::new();
    let mut mux = rig.mux(["run", "--foreground", "--name", APP, "sh", "-c", "read x; exit 4"]);
    let mut attach = rig.attach(&[]);
    attach.stdin().write_all(b"x\n").unwrap();
    assert_eq!((attach.ends(), mux.ends()), (4, 4));
    assert_eq!(attach.stderr.text(), "");
    let local = Pty::open(24, 80);
    let mut run = local.spawn(rig.command(["run", "sh", "-c", "echo $((6*7)); read x; exit 5"]));
    local.shown.wait_for("42");
    local.press(b"x\r");
    assert_eq!(run.ends(), 5);
    assert!(!local.shown.so_far().contains("iottymux"), "{}", local.shown.so_far());
    assert!(local.is_as_before());
}

/// A terminal that is far away replies late.
#[test]
fn replies_to_the_app_are_not_typed_into_the_shell() {
    const REPLIES: &[u8] = b"\x1b[0n\x1b[24;80R\x1b[?62;22c";
    let rig = Rig::new();
    let _mux = rig.tty();
    for is_typing in [true, false] {
        let options: &[&str] = if is_typing { &[] } else { &["--read-only"] };
        let (local, mut attach, mut app) = at_prompt(&rig, 80, options);
        app.write_all(b"\x1b[5n\x1b[6n\x1b[c").unwrap();
        local.shown.wait_for("\x1b[c");
        local.press(b"\x10\x11");
        // The app's, and then its own.
        eventually("it has asked", || local.shown.so_far().matches("\x1b[5n").count() == 2);
        // The way there and back.
        thread::sleep(Duration::from_millis(700));
        local.press(&[REPLIES, b"\x1b[0n"].concat());
        assert_eq!(attach.ends(), 0);
        assert!(local.is_as_before());
        assert_eq!(local.unread_keys(), 0);
        // Its echo comes behind that of replies.
        local.press(b"next");
        local.shown.wait_for("next");
        assert!(!local.shown.so_far().contains("24;80R"), "{}", local.shown.so_far());
    }
}

/// A program at the terminal, as expect is one, gets what the app prints, and nothing else.
#[test]
fn without_messages_there_are_only_the_apps_bytes() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let (local, mut attach, mut app) = at_prompt(&rig, 80, &["--quiet"]);
    local.press(b"x");
    expect(&mut app, "x");
    local.resize(30, 100);
    eventually("it has the size", || size_of(&app) == (30, 100));
    app.write_all(b"done").unwrap();
    local.shown.wait_for("done");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    assert_eq!(local.shown_before_mark(), "$ done\x1b[0m\x0f");
    let (local, rig) = (Pty::open(24, 80), Rig::new());
    let line = ["run", "-tq", "--name", APP, "--", "sh", "-c", "echo hi; kill -9 $$"];
    assert_eq!(local.spawn(rig.command(line)).ends(), 137);
    assert_eq!(local.shown_before_mark(), "hi\r\n\x1b[0m\x0f");
}

/// The terminal still edits lines when it is typed at so early: Enter is a line end, and ^D no byte.
#[test]
fn keys_that_come_before_the_terminal_is_raw_are_keys() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave();
    let local = Pty::open(24, 80);
    local.press(b"line\r\x04");
    let attach = local.spawn(rig.command(["attach", APP]));
    expect(&mut app, "line\r\x04");
    // Later a NUL is one.
    local.press(b"\0\n");
    expect(&mut app, "\0\n");
    drop(attach);
}

#[test]
fn a_terminal_without_replies_keeps_nobody_long() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let (local, mut attach, mut app) = at_prompt(&rig, 80, &[]);
    app.write_all(b"\x1b[c").unwrap();
    local.shown.wait_for("\x1b[c");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    assert!(local.is_as_before());
}

/// A mux for a terminal, as systemd starts it.
fn service_mux(rig: &Rig, options: &[&str]) -> Proc {
    let mut command = rig.command([&["tty", "--app", APP], options].concat());
    command.env("INVOCATION_ID", "0".repeat(32));
    rig.start(command)
}

/// Who leaves by habit does not end a service.
#[test]
fn a_service_gets_an_interrupt_only_when_it_is_confirmed() {
    let rig = Rig::new();
    let _mux = service_mux(&rig, &[]);
    let (local, mut attach, mut app) = at_prompt(&rig, 80, &[]);
    local.press(b"a\x03b");
    local.shown.wait_for("ctrl-p ctrl-q leaves; ^C again within 2 s goes to app demo");
    expect(&mut app, "ab");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    let (local, mut attach, mut app) = at_prompt(&rig, 80, &[]);
    local.press(b"\x03\x03c");
    expect(&mut app, "\x03c");
    // Who has confirmed one knows.
    local.press(b"\x03\r\x04d");
    expect(&mut app, "\x03\r\x04d");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    let (local, _attach, mut app) = at_prompt(&rig, 80, &[]);
    local.press(b"\x04e");
    local.shown.wait_for("^D again within 2 s goes to app demo");
    expect(&mut app, "e");
}

#[test]
fn the_guard_is_off_where_nobody_wants_it() {
    for (mux, attach) in [(&["--no-guard"][..], &[][..]), (&[], &["--no-guard"])] {
        let rig = Rig::new();
        let _mux = service_mux(&rig, mux);
        let (local, _attach, mut app) = at_prompt(&rig, 80, attach);
        local.press(b"\x03\x04");
        expect(&mut app, "\x03\x04");
    }
}

/// From then on no key leaves but ^C, whatever the first line said.
#[test]
fn a_person_who_ends_the_input_of_streams_is_told_how_to_leave() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach", APP]));
    local.shown.wait_for("^C or ctrl-p ctrl-q leaves");
    local.press(b"\x04");
    local.shown.wait_for("attached to app demo: your input has ended; ^C leaves");
    rig.writer("stdout").write_all(b"goes on\n").unwrap();
    local.shown.wait_for("goes on");
    local.press(b"\x03");
    assert_eq!(attach.ends(), -2);
}

/// Where one of them is a key that leaves, as ^Q is by default.
#[test]
fn the_keys_that_stop_the_output_do_not_beside_such_a_sequence() {
    for (options, is_stopped) in [(&[][..], false), (&["--detach-keys", "a,b"], true)] {
        let mut scene = Scene::new(options);
        let stops = || {
            use nix::sys::termios::{InputFlags, tcgetattr};
            tcgetattr(&scene.local.slave).unwrap().input_flags.contains(InputFlags::IXON)
        };
        eventually("the terminal has its modes", || stops() == is_stopped);
        if is_stopped {
            scene.local.press(b"ab");
        } else {
            scene.local.press(b"\x13one\r");
            scene.local.shown.wait_for("one>\r\nno end");
            scene.local.press(b"\x10\x11");
        }
        scene.leaves(0);
    }
}
