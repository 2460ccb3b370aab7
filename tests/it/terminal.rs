//! `attach` at a person's terminal: keys, size, and the terminal as it was on every way out.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use rustix::termios::tcgetwinsize;

use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::views::terminal;

const DETACH: &[u8] = b"\x10\x11";

/// A mux with a terminal, and somebody attached to it who has seen the app's first words.
struct Desk {
    rig: Rig,
    mux: Proc,
    app: fs::File,
    local: Pty,
    attach: Proc,
}

impl Desk {
    fn new(arguments: &[&str]) -> Self {
        let desk = Self::sit_down(arguments);
        assert!(desk.local.is_raw());
        desk
    }

    /// As [`Desk::new`], with hands off the keys.
    fn looking() -> Self {
        let desk = Self::sit_down(&["--read-only"]);
        assert!(!desk.local.echoes());
        desk
    }

    fn sit_down(arguments: &[&str]) -> Self {
        let rig = Rig::new();
        let mux = rig.tty();
        let mut app = rig.slave();
        let local = Pty::open(33, 99);
        let command = rig.command(["attach", "--app", APP].iter().chain(arguments));
        let attach = local.spawn(command);
        app.write_all(b"$ ").unwrap();
        local.shown.wait_for("$ ");
        Self { rig, mux, app, local, attach }
    }

    /// What the app reads next must be this.
    fn assert_typed(&mut self, keys: &[u8]) {
        let mut got = vec![0; keys.len()];
        self.app.read_exact(&mut got).unwrap();
        assert_eq!(got, keys);
    }
}

#[test]
fn keys_go_to_the_app_one_by_one() {
    let mut desk = Desk::new(&[]);
    // Those that a terminal that is not raw would keep are among them.
    for key in b"a\x03\x04\x1a\x1c\r\x13\x11\x7f\x16" {
        desk.local.press(&[*key]);
        desk.assert_typed(&[*key]);
    }
    desk.local.press("ä\x1b[A".as_bytes());
    desk.assert_typed("ä\x1b[A".as_bytes());
}

#[test]
fn it_detaches_by_its_keys_which_swallow_nothing_else() {
    let mut desk = Desk::new(&[]);
    // A first key that does not go on, twice, and one that has waited long enough.
    desk.local.press(b"\x10x\x10\x10");
    desk.assert_typed(b"\x10x\x10");
    desk.assert_typed(b"\x10");
    desk.local.press(b"last");
    desk.local.press(DETACH);
    assert_eq!(desk.attach.ends(), 0);
    desk.assert_typed(b"last");
    desk.local.shown.wait_for("detached from app demo");
    assert!(desk.local.is_as_before());
    assert!(desk.mux.runs());
    // And comes back, to what it has not seen.
    desk.app.write_all(b"meanwhile").unwrap();
    let _again = desk.local.spawn(desk.rig.command(["attach", "--app", APP]));
    desk.local.shown.wait_for("meanwhile");
}

/// The app reads nothing: what was pasted waits, and the keys behind it are found all the same. Who has gone
/// then is nobody, though the mux keeps what it typed.
#[test]
fn it_detaches_behind_a_paste_that_nobody_takes() {
    let paste = vec![b'x'; 1_000_000];
    let mut desk = Desk::new(&["--exclusive"]);
    let other = desk.rig.attach(&["--mode", "tty-in"]);
    other.stderr.wait_for("you cannot type");
    desk.local.press(&paste);
    desk.local.press(b"\x10?");
    desk.local.shown.wait_for("ctrl-p ctrl-q leaves; iottymux status demo shows the clients");
    desk.local.press(DETACH);
    assert_eq!(desk.attach.ends(), 0);
    assert!(desk.local.is_as_before());
    assert_eq!(desk.local.unread(), 0);
    desk.local.shown.wait_for("detached from app demo; some input was not sent");
    other.stderr.wait_for("you can type again");
    let clients = desk.rig.status()["clients"].clone();
    let listed = |pid: i32| clients.as_array().unwrap().iter().any(|client| client["pid"] == pid);
    assert!(!listed(desk.attach.pid().as_raw()) && listed(other.pid().as_raw()), "{clients}");
    // All that is given to an app that does read.
    let mut desk = Desk::new(&[]);
    desk.local.press(&paste);
    desk.local.press(b"y");
    desk.assert_typed(&paste);
    desk.assert_typed(b"y");
}

/// What a terminal shows of this, by its first rows.
fn seen_on(shown: &str, rows: u16) -> Vec<String> {
    let mut seen = terminal(rows, 99);
    seen.process(shown.as_bytes());
    seen.screen().rows(0, 99).collect()
}

/// Who attaches in the middle of a character sees it whole when its rest comes.
#[test]
fn a_line_of_attach_cuts_no_character() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave();
    app.write_all(b"price: 5\xe2\x82").unwrap();
    eventually("it is read", || rig.status()["streams"][0]["bytes"] == 10);
    let local = Pty::open(24, 99);
    let _attach = local.spawn(rig.command(["attach", "--app", APP]));
    local.shown.wait_for("ctrl-p ctrl-q leaves");
    app.write_all(b"\xac, or 6").unwrap();
    local.shown.wait_for(", or 6");
    let shown = local.shown_before_mark();
    assert_eq!(seen_on(&shown, 24)[0], "price: 5\u{20ac}, or 6");
    // Terminals show a part of a character, too.
    assert!(!shown.contains('\u{fffd}'), "{shown:?}");
}

/// The line on the last row of a full screen is not mixed with what the app draws there.
#[test]
fn a_line_over_a_full_screen_stays_whole() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave();
    app.write_all(b"\x1b[?1049h\x1b[24Hstatus").unwrap();
    let local = Pty::open(24, 99);
    let _attach = local.spawn(rig.command(["attach", "--app", APP]));
    local.shown.wait_for("ctrl-p ctrl-q leaves");
    // As a program draws its status again in the new size, or each second.
    app.write_all(b"\x1b[24;5Hanother one\x1b[H").unwrap();
    local.shown.wait_for("another one");
    let line = "iottymux: demo: ctrl-p ctrl-q leaves, ^C or ^D may end it";
    eventually("the line is whole again", || {
        seen_on(&local.shown.so_far(), 24)[23].trim_end() == line
    });
    eventually("and has gone", || seen_on(&local.shown.so_far(), 24)[23] == "statanother one");
}

/// The app has one terminal, whose focus is that of its clients together.
#[test]
fn the_focus_is_that_of_any_client() {
    let mut desk = Desk::new(&[]);
    desk.app.write_all(b"\x1b[?1004hready").unwrap();
    desk.local.shown.wait_for("ready");
    desk.local.press(b"\x1b[I1\x1b[O");
    desk.assert_typed(b"1\x1b[O");
    // Who attaches has it. The first one's is not the app's then.
    let second = Pty::open(33, 99);
    let mut attach = second.spawn(desk.rig.command(["attach", "--app", APP]));
    desk.assert_typed(b"\x1b[I");
    second.shown.wait_for("ready");
    desk.local.press(b"\x1b[I2\x1b[O3");
    desk.assert_typed(b"23");
    second.press(DETACH);
    assert_eq!(attach.ends(), 0);
    desk.assert_typed(b"\x1b[O");
    desk.local.press(b"\x1b[I");
    desk.assert_typed(b"\x1b[I");
    desk.local.press(DETACH);
    assert_eq!(desk.attach.ends(), 0);
    desk.assert_typed(b"\x1b[O");
    let _back = desk.local.spawn(desk.rig.command(["attach", "--app", APP]));
    desk.assert_typed(b"\x1b[I");
}

/// A smaller window shows the last rows of the main screen: there its mouse is.
#[test]
fn other_detach_keys_and_none() {
    let mut desk = Desk::new(&["--detach-keys", "ctrl-],q"]);
    desk.local.press(DETACH);
    desk.assert_typed(DETACH);
    desk.local.press(b"\x1dq");
    assert_eq!(desk.attach.ends(), 0);
    assert!(desk.local.is_as_before());

    let mut desk = Desk::new(&["--detach-keys", ""]);
    desk.local.press(DETACH);
    desk.local.press(b".");
    desk.assert_typed(b"\x10\x11.");
    assert!(desk.attach.runs());
}

#[test]
fn the_terminal_is_as_before_on_every_way_out() {
    type Way = fn(&Desk);
    let ways: [(&str, Way, i32); 7] = [
        ("detached", |desk| desk.local.press(DETACH), 0),
        ("the mux ends", |desk| desk.mux.signal(Signal::SIGTERM), 0),
        ("the mux is killed", |desk| desk.mux.signal(Signal::SIGKILL), 125),
        ("SIGTERM", |desk| desk.attach.signal(Signal::SIGTERM), -15),
        ("SIGHUP", |desk| desk.attach.signal(Signal::SIGHUP), -1),
        ("SIGINT", |desk| desk.attach.signal(Signal::SIGINT), -2),
        ("SIGQUIT", |desk| desk.attach.signal(Signal::SIGQUIT), -3),
    ];
    for (name, way, code) in ways {
        let mut desk = Desk::new(&[]);
        desk.app.write_all(b"\x1b[?1049h\x1b[?25l\x1b[?1000hfull screen").unwrap();
        desk.local.shown.wait_for("full screen");
        way(&desk);
        assert_eq!(desk.attach.ends(), code, "{name}");
        assert!(desk.local.is_as_before(), "{name}");
        // The modes that the app has set are undone, too.
        for undone in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"] {
            desk.local.shown.wait_for(undone);
        }
    }
}

#[test]
fn nothing_of_the_app_comes_after_the_terminal_was_put_back() {
    for _ in 0..10 {
        let mut desk = Desk::new(&[]);
        let mut app = desk.app.try_clone().unwrap();
        // Until the mux is gone, and its terminal with it.
        let flood = std::thread::spawn(move || while app.write_all(b"\x1b[?1049hx").is_ok() {});
        desk.local.shown.wait_for("x\x1b[?1049hx");
        desk.local.press(DETACH);
        assert_eq!(desk.attach.ends(), 0);
        let shown = desk.local.shown_before_mark();
        let (on, off) = (shown.rfind("\x1b[?1049h"), shown.rfind("\x1b[?1049l"));
        assert!(on < off, "the alternate screen stays: on at {on:?}, off at {off:?}");
        desk.mux.signal(Signal::SIGKILL);
        desk.mux.ends();
        drop(desk);
        flood.join().unwrap();
    }
}

/// As by `kill -STOP %1` and `fg`: meanwhile the shell has set its own modes, and has shown its lines.
#[test]
fn a_terminal_that_the_shell_has_had_is_raw_again_and_redrawn() {
    let mut desk = Desk::new(&[]);
    let screens = || desk.local.shown.so_far().matches("\x1b[2H\x1b[J").count();
    let before = screens();
    desk.attach.signal(Signal::SIGSTOP);
    desk.attach.wait_stopped();
    let mut modes = tcgetattr(&desk.local.slave).unwrap();
    modes.local_flags |= LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
    tcsetattr(&desk.local.slave, SetArg::TCSANOW, &modes).unwrap();
    assert!(!desk.local.is_raw());
    desk.attach.signal(Signal::SIGCONT);
    eventually("the screen is drawn again", || screens() > before);
    eventually("the terminal is raw", || desk.local.is_raw());
    desk.local.press(b"a\x1ab");
    desk.assert_typed(b"a\x1ab");
}

/// A line says what the keys are; the app gets its answers meanwhile, and the keys behind.
#[test]
fn the_keys_are_a_line_over_the_app() {
    let mut desk = Desk::new(&["--detach-keys", "ctrl-],q"]);
    desk.local.press(b"a\x1d?");
    let line = "iottymux: ctrl-] q leaves; iottymux status demo shows the clients";
    desk.local.shown.wait_for(line);
    desk.app.write_all(b"\x1b[6n").unwrap();
    desk.local.shown.wait_for("\x1b[6n");
    desk.local.press(b"\x1b[1;1Rb");
    desk.assert_typed(b"a\x1b[1;1Rb");
    desk.local.press(b"\x1dq");
    assert_eq!(desk.attach.ends(), 0);
    assert!(desk.local.is_as_before());
}

#[test]
fn a_new_client_learns_about_others() {
    let desk = Desk::new(&[]);
    assert!(!desk.local.shown_before_mark().contains("attached"));
    // Those who only ask are nobody.
    let asked = desk.rig.status();
    assert_eq!(asked["clients"].as_array().unwrap().len(), 1);
    let second = Pty::open(24, 80);
    let _second = second.spawn(desk.rig.command(["attach", "--app", APP]));
    second
        .shown
        .wait_for("iottymux: app demo: 1 other is attached (iottymux status demo shows them)");
    // It is gone when it leaves, and cut where the window is too narrow.
    let leaves = Pty::open(24, 50);
    let mut left = leaves.spawn(desk.rig.command(["attach", "--app", APP, "--read-only"]));
    let others = "\x1b[12;1Hiottymux: app demo: 2 others are attached (iottym\x1b[13;1H";
    leaves.shown.wait_for(others);
    leaves.press(DETACH);
    assert_eq!(left.ends(), 0);
    let mut seen = terminal(24, 50);
    seen.process(leaves.shown_before_mark().as_bytes());
    let seen = seen.screen().contents();
    assert!(
        !seen.contains("others")
            && !seen.contains("leaves")
            && seen.contains("detached from app demo"),
        "{seen}"
    );
    let _raw = desk.rig.client("tty");
    desk.mux.rests();
    let third = Pty::open(24, 80);
    let _third = third.spawn(desk.rig.command(["attach", "--app", APP, "--read-only"]));
    third.shown.wait_for("iottymux: app demo: 3 others are attached");
}

#[test]
fn a_new_client_learns_that_the_output_is_stopped() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let _slave = rig.slave_as_it_is();
    let mut typist = rig.client("tty");
    typist.write_all(b"\x13").unwrap();
    eventually("its output is stopped", || rig.status()["stopped"] == true);
    let local = Pty::open(24, 80);
    let _attach = local.spawn(rig.command(["attach", "--app", APP]));
    local.shown.wait_for("iottymux: app demo: output stopped by ^S: ^Q continues it");
}

/// There is nobody any more to type to.
#[test]
fn a_viewer_gets_no_right_to_type_at_the_end() {
    let desk = Desk::new(&["--exclusive"]);
    let mut others = [(); 3].map(|()| desk.rig.attach(&[]));
    for other in &others {
        other.stderr.wait_for("you cannot type");
    }
    desk.mux.signal(Signal::SIGTERM);
    for other in &mut others {
        other.ends();
        assert!(!other.stderr.text().contains("again"), "{}", other.stderr.text());
    }
}

/// A mux that does not go on for the one before has a screen of its own; what is told of that is not wiped
/// away by it.
#[test]
fn messages_about_another_mux_are_on_its_screen() {
    let rig = Rig::new();
    let mux = rig.tty();
    let local = Pty::open(24, 90);
    let mut command = rig.command(["attach", "--app", APP]);
    command.env("IOTTYMUX_RECONNECT", "30");
    let _attach = local.spawn(command);
    rig.slave().write_all(b"the first").unwrap();
    local.shown.wait_for("the first");
    drop(mux);
    local.shown.wait_for("trying again");
    let _mux = rig.tty();
    let told = "app demo: attached again; output written meanwhile may be missing";
    local.shown.wait_for(told);
    let shown = local.shown_before_mark();
    assert!(shown.rfind(told) > shown.rfind("\x1b[2H\x1b[J"), "{shown:?}");
}

/// In a full screen a line of ours has a place of its own, and moves nothing.
#[test]
fn messages_in_a_full_screen_are_on_its_last_line() {
    let mut desk = Desk::new(&[]);
    let alone = desk.rig.attach(&["--exclusive"]);
    desk.local.shown.wait_for("Hiottymux: you cannot type: client");
    desk.app.write_all(b"\x1b[?1049hfull screen").unwrap();
    desk.local.shown.wait_for("full screen");
    drop(alone);
    let line = "\x1b[33;1Hiottymux: you can type again\x1b[0m";
    desk.local.shown.wait_for(line);
    assert!(!desk.local.shown_before_mark().contains("\r\niottymux: you can type"));
}

/// Who only looks has a terminal, too.
#[test]
fn the_screen_is_as_before_where_nothing_is_typed() {
    for (way, code) in [(Signal::SIGTERM, -15), (Signal::SIGINT, -2)] {
        let mut desk = Desk::looking();
        desk.app.write_all(b"\x1b[?1049h\x1b[?25lfull screen").unwrap();
        desk.local.shown.wait_for("full screen");
        desk.attach.signal(way);
        assert_eq!(desk.attach.ends(), code);
        desk.local.shown.wait_for("\x1b[?25h\x1b[?1049l");
        assert!(desk.local.is_as_before());
    }
}

/// What is typed there, and what that terminal replies, is neither shown nor anybody's, now or later.
#[test]
fn input_of_a_viewer_is_discarded() {
    type Way = fn(&mut Desk);
    let ways: [(Way, i32); 3] = [
        (|desk| desk.local.press(DETACH), 0),
        (|desk| desk.local.press(b"\x03"), -2),
        (|desk| desk.mux.signal(Signal::SIGTERM), 0),
    ];
    for (way, code) in ways {
        let mut desk = Desk::looking();
        desk.local.press(b"touch typed\r\x1b[?1;2c");
        eventually("it is read", || desk.local.unread() == 0);
        desk.local.press(b"\x10?");
        desk.local.shown.wait_for("iottymux: ctrl-p ctrl-q leaves; ");
        desk.app.write_all(b"seen").unwrap();
        desk.local.shown.wait_for("seen");
        way(&mut desk);
        assert_eq!(desk.attach.ends(), code);
        assert!(desk.local.is_as_before());
        assert_eq!(desk.local.unread(), 0);
        assert!(!desk.local.shown_before_mark().contains("touch"));
    }
    // What has not been read when it leaves is not left to the shell either.
    let mut desk = Desk::looking();
    desk.attach.stop();
    desk.local.press(b"touch typed\r");
    desk.attach.signal(Signal::SIGTERM);
    desk.attach.go_on();
    assert_eq!(desk.attach.ends(), -15);
    assert_eq!(desk.local.unread(), 0);
}

#[test]
fn with_a_program_at_the_other_end_the_terminal_is_left_alone() {
    // `something | attach`: the input is no terminal, the output is.
    let rig = Rig::new();
    let _mux = rig.tty();
    let local = Pty::open(24, 80);
    let (read, mut write) = std::io::pipe().unwrap();
    let attach = local.spawn_with_input(rig.command(["attach", "--app", APP]), read.into());
    let mut app = rig.slave();
    app.write_all(b"hello").unwrap();
    local.shown.wait_for("hello");
    assert!(local.is_as_before());
    write.write_all(DETACH).unwrap();
    let mut got = [0; 2];
    app.read_exact(&mut got).unwrap();
    assert_eq!(got, DETACH, "keys of a program were taken for a person's");
    drop(attach);
}

/// What such a terminal cannot read would be shown as it is.
#[test]
fn a_terminal_without_escape_sequences_gets_text() {
    let rig = Rig::new();
    let mut mux = rig.tty();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn_as("dumb", rig.command(["attach", "--app", APP]));
    local.shown.wait_for("ctrl-p ctrl-q leaves");
    let mut app = rig.slave();
    app.write_all(b"\x1b]0;title\x07\x1b[?1049h\x1b[1;31mred\x1b[m\x0f text\r\n$ ").unwrap();
    local.shown.wait_for("red text\r\n$ ");
    local.press(b"key");
    expect(&mut app, "key");
    local.press(DETACH);
    assert_eq!(attach.ends(), 0);
    assert!(local.is_as_before());
    local.shown.wait_for("\r\niottymux: detached from app demo\r");
    let shown = local.shown_before_mark();
    assert!(!shown.contains('\x1b') && !shown.contains("title"), "{shown:?}");
    mux.signal(Signal::SIGTERM);
    mux.ends();
}

#[test]
fn the_app_has_the_size_of_the_window_and_follows_it() {
    let desk = Desk::new(&[]);
    let has = |rows, cols| {
        let size = tcgetwinsize(&desk.app).unwrap();
        (size.ws_row, size.ws_col) == (rows, cols)
    };
    assert!(has(33, 99), "the size is there before the first output");
    desk.local.resize(50, 120);
    eventually("the size has followed", || has(50, 120));
    // A window that has no size changes nothing.
    desk.local.resize(0, 0);
    desk.local.resize(51, 121);
    eventually("the size has followed", || has(51, 121));
}

/// A job of a shell, which is told to continue it.
#[test]
fn in_the_background_it_stops_instead_of_using_the_terminal() {
    let rig = Rig::new();
    let _mux = rig.tty();
    rig.slave().write_all(b"the app").unwrap();
    let local = Pty::open(24, 80);
    let (inner, pid) = (rig.command(["attach", APP]), rig.file("pid"));
    let script = format!("set -m; \"$@\" & echo $! >{}; read go; fg", pid.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    shell.env("IOTTYMUX_STATE_DIR", rig.state());
    let mut shell = local.spawn(shell);
    eventually("it has stopped", || {
        let pid = fs::read_to_string(&pid).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    });
    assert!(local.is_as_before());
    assert_eq!(local.shown_before_mark(), "");
    local.press(b"\r");
    local.shown.wait_for("the app");
    assert!(local.is_raw());
    local.press(DETACH);
    assert_eq!(shell.ends(), 0);
    assert!(local.is_as_before());
}
