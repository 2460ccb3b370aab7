//! A terminal with several clients: whose size it has, what each is shown, and who answers for it.

use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use iottymux::core::wire::FrameKind;
use iottymux::types::limits;
use iottymux::types::size::Size;
use iottymux::types::stream::Stream;
use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use crate::at_terminal::size_of;
use crate::proc::eventually;
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::session::{Frame, Session};

/// A hello of one who types in a window of this size, and wants the screen.
pub fn hello(rows: u16, cols: u16) -> Value {
    json!({
        "version": 1,
        "streams": [{"stream": "tty"}],
        "stdin": true,
        "size": {"rows": rows, "cols": cols},
        "redraw": "screen",
    })
}

/// What the app reads, byte for byte and without an echo.
fn raw(slave: &File) {
    let mut modes = tcgetattr(slave).unwrap();
    cfmakeraw(&mut modes);
    tcsetattr(slave, SetArg::TCSANOW, &modes).unwrap();
}

pub fn resized(session: &mut Session, rows: u16, cols: u16) {
    let size = serde_json::to_vec(&Size { rows, cols }).unwrap();
    session.send(FrameKind::Resize, &size);
}

/// What a terminal of this size shows when it is given these frames, and where its cursor is.
fn picture<'a>(
    rows: u16,
    cols: u16,
    frames: impl IntoIterator<Item = &'a Frame>,
) -> (String, (u16, u16)) {
    let mut terminal = terminal(rows, cols);
    for frame in frames {
        match frame {
            Frame::Bytes(_, bytes) | Frame::Screen(bytes) => terminal.process(bytes),
            Frame::Told(..) => {}
        }
    }
    (terminal.screen().contents_formatted(), terminal.screen().cursor_position())
}

/// Another terminal, of this size.
pub fn terminal(rows: u16, cols: u16) -> vt100::Parser {
    vt100::Parser::new(rows.try_into().unwrap(), cols.try_into().unwrap(), 0)
}

fn is_screen(frame: &Frame) -> bool {
    matches!(frame, Frame::Screen(_))
}

#[test]
fn a_late_viewer_sees_the_screen_then_live_output() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let drawn =
        "\x1b[?1049h\x1b[2J\x1b[5;10H\x1b[1;31mhe\u{301}llo \u{4e16}\x1b[m\x1b[?2004h\x1b[?25l";
    slave.write_all(drawn.as_bytes()).unwrap();
    // Somebody has had all of it.
    expect(rig.client("tty"), drawn);
    let mut session = Session::new(&rig, &hello(24, 80));
    assert_eq!(session.wait_told(FrameKind::Redraw)["offset"], drawn.len());
    slave.write_all(b"\x1b[7;1Hlive").unwrap();
    let frames = session.rest_until(
        |frames| matches!(frames.last(), Some(Frame::Bytes(_, bytes)) if bytes.ends_with(b"live")),
    );
    assert_eq!(frames.iter().filter(|frame| is_screen(frame)).count(), 1, "{frames:?}");
    let all = [Frame::Bytes(Stream::Tty, [drawn.as_bytes(), b"\x1b[7;1Hlive"].concat())];
    assert_eq!(picture(24, 80, &frames), picture(24, 80, &all));
    let Some(Frame::Screen(screen)) = frames.iter().find(|frame| is_screen(frame)) else {
        unreachable!()
    };
    let screen = screen.escape_ascii().to_string();
    for mode in ["\\x1b[?1049h", "\\x1b[?2004h", "\\x1b[?25l"] {
        assert!(screen.contains(mode), "{mode} is not in {screen}");
    }
}

#[test]
fn the_bytes_that_are_kept_are_replayed_without_their_questions() {
    let rig = Rig::new();
    let _mux = rig.tty();
    rig.slave().write_all(b"one\x1b[6ntwo\x1b[c\x05three").unwrap();
    expect(rig.client("tty"), "one\x1b[6ntwo\x1b[c\x05three");
    let mut hello = hello(24, 80);
    hello["redraw"] = "backlog".into();
    let frames = Session::new(&rig, &hello).rest_until(|frames| frames.iter().any(is_screen));
    assert!(frames.contains(&Frame::Screen(b"onetwothree".to_vec())), "{frames:?}");
}

#[test]
fn the_last_typist_or_resizer_decides_the_size() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let slave = rig.slave();
    raw(&slave);
    let has = |rows, cols| {
        let what = format!("a terminal of {rows}x{cols}, not {:?}", size_of(&slave));
        eventually(&what, || size_of(&slave) == (rows, cols));
    };
    let mut first = Session::new(&rig, &hello(30, 100));
    first.wait_told(FrameKind::Welcome);
    has(30, 100);
    let mut second = Session::new(&rig, &hello(20, 60));
    second.wait_told(FrameKind::Welcome);
    has(20, 60);
    first.send(FrameKind::Stdin, b"x");
    has(30, 100);
    resized(&mut second, 21, 61);
    has(21, 61);
    // Who only looks has no say, and no size is none.
    let mut viewer = hello(5, 5);
    viewer["stdin"] = false.into();
    let mut viewer = Session::new(&rig, &viewer);
    viewer.wait_told(FrameKind::Redraw);
    resized(&mut viewer, 6, 6);
    resized(&mut first, 0, 0);
    // It is asked for the status behind these, and so has dealt with them.
    viewer.send(FrameKind::Status, b"");
    viewer.wait_told(FrameKind::Report);
    first.send(FrameKind::Status, b"");
    first.wait_told(FrameKind::Report);
    // Nor later: between two screens for a viewer is more time than between two sizes.
    const { assert!(limits::SCREEN_PAUSE.as_millis() > limits::RESIZE_PAUSE.as_millis()) };
    for text in ["one", "two"] {
        write!(&slave, "\x1b[1;1H{text}").unwrap();
        viewer.read_until(|frames| picture(6, 6, frames).0.contains(text));
    }
    assert_eq!(size_of(&slave), (21, 61));
    let mut control = rig.run(&["control", "--app", APP, "resize", "40x90"]);
    assert_eq!(control.ends(), 0, "{}", control.stderr.text());
    has(40, 90);
    drop(second);
    has(30, 100);
}

#[test]
fn a_window_of_another_size_sees_the_screen_change() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    raw(&slave);
    let mut small = hello(10, 30);
    small["stdin"] = false.into();
    let small = Session::new(&rig, &small);
    let mut types = Session::new(&rig, &hello(24, 80));
    types.wait_told(FrameKind::Redraw);
    eventually("the terminal's size", || size_of(&slave) == (24, 80));
    let line = "0123456789".repeat(8);
    for row in 1..=24 {
        write!(slave, "\x1b[{row};1H{row:02}{}", &line[2..]).unwrap();
    }
    slave.write_all(b"\x1b[3;5H").unwrap();
    let shown = |frames: &[Frame]| {
        let (text, cursor) = picture(10, 30, frames);
        // The row with the cursor is seen, cut at the window's edge.
        text.contains("03234567890123456789") && cursor == (2, 4)
    };
    let frames = small.rest_until(shown);
    assert!(!frames.iter().any(|frame| matches!(frame, Frame::Bytes(..))), "{frames:?}");
}

#[test]
fn queries_have_one_answer() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    raw(&slave);
    // Nobody is there but one without a window, whose terminal answers, too.
    let mut bare = rig.client("tty");
    slave.write_all(b"\x1b[4;7H\x1b[6n").unwrap();
    expect(&mut bare, "\x1b[4;7H\x1b[6n");
    expect(&mut slave, "\x1b[4;7R");
    bare.write_all(b"\x1b[9;9Rbare").unwrap();
    expect(&mut slave, "bare");
    // The first is shown the app's bytes, as it decides the size; the second, too.
    let mut first = Session::new(&rig, &hello(24, 80));
    first.wait_told(FrameKind::Redraw);
    let mut second = Session::new(&rig, &hello(24, 80));
    second.wait_told(FrameKind::Redraw);
    for (round, decides) in [1, 0, 1].into_iter().enumerate() {
        let sessions = [&mut first, &mut second];
        let key = [b'a' + u8::try_from(round).unwrap()];
        let [a, b] = sessions;
        let (decider, other) = if decides == 0 { (a, b) } else { (b, a) };
        decider.send(FrameKind::Stdin, &key);
        expect(&mut slave, std::str::from_utf8(&key).unwrap());
        let asked = format!("{round}\x1b[6n");
        slave.write_all(asked.as_bytes()).unwrap();
        let has = |frames: &[Frame]| {
            let all: Vec<u8> = frames
                .iter()
                .flat_map(|f| match f {
                    Frame::Bytes(_, bytes) => bytes.clone(),
                    _ => vec![],
                })
                .collect();
            all.windows(asked.len()).any(|part| part == asked.as_bytes())
        };
        other.read_until(has);
        decider.read_until(has);
        // One byte at a time, the other's first.
        for byte in b"\x1b[1;1R" {
            other.send(FrameKind::Stdin, &[*byte]);
        }
        decider.send(FrameKind::Stdin, b"\x1b[2;2R");
        expect(&mut slave, "\x1b[2;2R");
        // Keys that look like replies are keys when nothing was asked.
        other.send(FrameKind::Stdin, b"\x1b[1;2R");
        expect(&mut slave, "\x1b[1;2R");
    }
}

#[test]
fn after_a_flood_a_slow_terminal_has_the_last_screen() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach", "--app", APP]));
    eventually("an attach", || rig.status()["clients"][0]["types"] == true);
    // A terminal that takes nothing for a while has not lost a screen, only pictures between.
    attach.stop();
    for round in 0..20_000 {
        writeln!(slave, "line {round} \x1b[32mgreen\x1b[m").unwrap();
    }
    slave.write_all(b"the end\r\n$ ").unwrap();
    attach.go_on();
    local.shown.wait_for("the end");
    let mut want = terminal(24, 80);
    for round in 0..20_000 {
        want.process(format!("line {round} \x1b[32mgreen\x1b[m\n").as_bytes());
    }
    want.process(b"the end\r\n$ ");
    eventually("the last screen", || {
        let mut seen = terminal(24, 80);
        seen.process(local.shown.so_far().as_bytes());
        seen.screen().contents_formatted() == want.screen().contents_formatted()
    });
    attach.signal(Signal::SIGTERM);
    attach.ends();
    assert!(local.is_as_before());
}

/// However much the app draws.
#[test]
fn a_window_of_another_size_is_drawn_25_times_a_second_at_most() {
    const SCREENS: u32 = 11;
    let rig = Rig::new();
    let mux = rig.mux(["tty", "--app", APP, "--size", "24x80"]);
    let mut slave = rig.slave();
    let began = Instant::now();
    let mut viewer = hello(10, 30);
    viewer["stdin"] = false.into();
    let mut viewer = Session::new(&rig, &viewer);
    // Until the mux is gone, and its terminal with it.
    let flood = thread::spawn(move || while slave.write_all(b"a line\r\n").is_ok() {});
    viewer.read_until(|frames| {
        let is_drawn = |f: &&Frame| matches!(f, Frame::Told(FrameKind::Redraw, _));
        frames.iter().filter(is_drawn).count() >= SCREENS as usize
    });
    // The first one comes at once.
    let least = Duration::from_secs(1) / 25 * (SCREENS - 1);
    assert!(began.elapsed() >= least, "{SCREENS} screens in {:?}", began.elapsed());
    drop(mux);
    flood.join().unwrap();
}
