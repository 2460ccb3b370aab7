//! What programs ask their terminal while nobody is attached: the mux answers as a plain terminal does.

use std::fs::{self, File};
use std::io::Write;

use iottymux::core::wire::FrameKind;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::at_terminal::size_of;
use crate::installed::is_installed;
use crate::proc::eventually;
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::session::{Frame, Session};
use crate::skip::skip;
use crate::views::{hello, resized};

#[test]
fn each_query_has_the_answer_of_a_plain_terminal() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let name = concat!("\x1bP>|iottymux(", env!("CARGO_PKG_VERSION"), ")\x1b\\");
    for (query, answer) in [
        ("\x1b[>0q", name),
        ("\x1b[?u", "\x1b[?0u"),
        ("\x1b[>1u\x1b[?u", "\x1b[?1u"),
        ("\x1b[?2026$p", "\x1b[?2026;2$y"),
        ("\x1b[?2048$p", "\x1b[?2048;0$y"),
        ("\x1b[?2027$p", "\x1b[?2027;0$y"),
        ("\x1b[?31337$p", "\x1b[?31337;0$y"),
        ("\x1b[?2048h", "\x1b[48;24;80;0;0t"),
        ("\x1b[?2048$p", "\x1b[?2048;1$y"),
        ("\x1b[18t", "\x1b[8;24;80t"),
        // The colours of a terminal that is not there are not known: programs ask for its type, too,
        // and do not wait.
        ("\x1b]10;?\x1b\\\x1b]11;?\x07\x1b[c", "\x1b[?62;22c"),
    ] {
        slave.write_all(query.as_bytes()).unwrap();
        expect(&mut slave, answer);
    }
}

/// A program that asked for this does not look at its window any more.
#[test]
fn a_new_size_is_reported_in_the_input() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    slave.write_all(b"\x1b[?2048h").unwrap();
    expect(&mut slave, "\x1b[48;24;80;0;0t");
    let mut session = Session::new(&rig, &hello(33, 99));
    expect(&mut slave, "\x1b[48;33;99;0;0t");
    // The client's terminal is not to report its own with each screen that it gets.
    slave.write_all(b"shown").unwrap();
    let shown = |frames: &[Frame]| {
        let bytes = frames.iter().flat_map(|frame| match frame {
            Frame::Bytes(_, bytes) | Frame::Screen(bytes) => &bytes[..],
            Frame::Told(..) => &[],
        });
        String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
    };
    session.read_until(|frames| {
        assert!(!shown(frames).contains("2048h"), "{frames:?}");
        shown(frames).contains("shown")
    });
    slave.write_all(b"\x1b[?2048l").unwrap();
    resized(&mut session, 20, 70);
    eventually("it has that size", || size_of(&slave) == (20, 70));
    session.send(FrameKind::Stdin, b"key");
    expect(&mut slave, "key");
}

/// Programs that show pictures read the size in pixels from their terminal; those that take the mouse in
/// pixels divide by it.
#[test]
fn the_size_in_pixels_is_that_of_the_client_that_decides() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let pixels = |slave: &File| {
        let size = tcgetwinsize(slave).unwrap();
        (size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel)
    };
    slave.write_all(b"\x1b[?2048h").unwrap();
    expect(&mut slave, "\x1b[48;24;80;0;0t");
    // It has the app's size already, and tells more.
    let local = Pty::open(24, 80);
    local.resize_in_pixels((24, 80), (800, 480));
    let mut client = local.spawn(rig.command(["attach", "--app", APP]));
    eventually("it has pixels", || pixels(&slave) == (24, 80, 800, 480));
    expect(&mut slave, "\x1b[48;24;80;480;800t");
    local.resize_in_pixels((30, 100), (1000, 600));
    expect(&mut slave, "\x1b[48;30;100;600;1000t");
    assert_eq!(pixels(&slave), (30, 100, 1000, 600));
    // The mux answers for the terminal that has gone.
    local.press(b"\x10\x11");
    assert_eq!(client.ends(), 0);
    let reads = |client: &Value| client["streams"] != json!([]);
    eventually("it is alone", || !rig.status()["clients"].as_array().unwrap().iter().any(reads));
    for (query, answer) in [
        ("\x1b[14t", "\x1b[4;600;1000t"),
        ("\x1b[16t", "\x1b[6;20;10t"),
        ("\x1b[?1016$p", "\x1b[?1016;2$y"),
    ] {
        slave.write_all(query.as_bytes()).unwrap();
        expect(&mut slave, answer);
    }
    // Of a client without pixels no report comes while the mouse is in pixels, else with zeros.
    slave.write_all(b"\x1b[?1016h\x1b[?1016$p").unwrap();
    expect(&mut slave, "\x1b[?1016;1$y");
    let mut session = Session::new(&rig, &hello(20, 70));
    eventually("it has that size", || size_of(&slave) == (20, 70));
    session.send(FrameKind::Stdin, b"key");
    expect(&mut slave, "key");
}

/// A hello of a client that types, and gets what was printed before it came.
fn from_start() -> Value {
    json!({
        "version": 1,
        "streams": [{"stream": "tty", "from": "start"}],
        "stdin": true,
        "size": {"rows": 24, "cols": 80},
    })
}

fn has_got(session: &mut Session, text: &str) {
    session.read_until(|frames| {
        matches!(frames.last(), Some(Frame::Bytes(_, bytes)) if bytes.ends_with(text.as_bytes()))
    });
}

/// The terminal of a late client replies to queries that have their answer.
#[test]
fn a_query_that_is_shown_again_has_no_second_answer() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    slave.write_all(b"\x1b[6n\x1b[cshown").unwrap();
    expect(&mut slave, "\x1b[1;1R\x1b[?62;22c");
    let mut session = Session::new(&rig, &from_start());
    has_got(&mut session, "shown");
    session.send(FrameKind::Stdin, b"\x1b[9;9R\x1b[?64;1ckey");
    expect(&mut slave, "key");
    // It replies to a new one.
    slave.write_all(b"\x1b[cnew").unwrap();
    has_got(&mut session, "new");
    session.send(FrameKind::Stdin, b"\x1b[?64;1c");
    expect(&mut slave, "\x1b[?64;1c");
}

/// Its terminal has no time left to reply, and the app would wait for ever.
#[test]
fn the_queries_of_a_client_that_leaves_are_answered() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let mut session = Session::new(&rig, &hello(24, 80));
    session.wait_told(FrameKind::Redraw);
    // A terminal that does not know the first one replies to the next ones only.
    slave.write_all(b"\x1b[>q\x1b[5n\x1b[3;4H\x1b[6n\x1b[H\x1b[cshown").unwrap();
    has_got(&mut session, "shown");
    session.send(FrameKind::Stdin, b"\x1b[0n");
    expect(&mut slave, "\x1b[0n");
    drop(session);
    expect(&mut slave, "\x1b[3;4R\x1b[?62;22c");
}

/// A program asks when its window changes, while its screen is drawn for the client that has changed it.
#[test]
fn the_client_that_has_changed_the_size_answers() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let mut session = Session::new(&rig, &hello(24, 80));
    session.wait_told(FrameKind::Redraw);
    // The screen takes its time.
    let cells: Vec<_> = (0..24 * 80).map(|at| format!("\x1b[38;5;{}mx", at % 256)).collect();
    slave.write_all(cells.concat().as_bytes()).unwrap();
    has_got(&mut session, "127mx");
    for round in 0..20 {
        let (rows, cols) = (200 + round, 400);
        resized(&mut session, rows, cols);
        while size_of(&slave) != (rows, cols) {
            std::hint::spin_loop();
        }
        // Their answers are not those of the mux: it knows no colours.
        let asked = format!("\x1b]11;?\x07\x1b[6n\x1b[cround {round}");
        slave.write_all(asked.as_bytes()).unwrap();
        has_got(&mut session, &asked);
        let answer = format!("\x1b]11;rgb:1/1/{round:x}\x07\x1b[{round};9R\x1b[?64;1c");
        session.send(FrameKind::Stdin, format!("{answer}key").as_bytes());
        expect(&mut slave, &format!("{answer}key"));
    }
}

/// As many as the app can read.
#[test]
fn all_queries_at_once_are_answered() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    slave.write_all(&b"\x1b[5n".repeat(2000)).unwrap();
    expect(&mut slave, &"\x1b[0n".repeat(2000));
    let mut sessions = [hello(24, 80), hello(24, 80)].map(|hello| {
        let mut session = Session::new(&rig, &hello);
        session.wait_told(FrameKind::Redraw);
        session
    });
    slave.write_all(&[&b"\x1b[5n".repeat(2000)[..], b"shown"].concat()).unwrap();
    for session in &mut sessions {
        has_got(session, "shown");
        session.send(FrameKind::Stdin, &b"\x1b[0n".repeat(2000));
    }
    expect(&mut slave, &"\x1b[0n".repeat(2000));
    sessions[0].send(FrameKind::Stdin, b"key");
    expect(&mut slave, "key");
}

#[test]
fn vim_learns_its_terminal_while_nobody_is_attached() {
    if !is_installed("vim") {
        return skip("vim", "it is not installed");
    }
    let rig = Rig::new();
    let got = rig.file("got");
    let write =
        format!("au TermResponse * call writefile([v:termresponse], '{}') | qa!", got.display());
    let mut run = rig.command(["run", "--foreground", "--app", APP, "--tty", "--"]);
    run.args(["vim", "-u", "NONE", "-i", "NONE", "-n", "-N", "-c", &write]);
    run.env("TERM", "xterm-256color");
    let mut mux = rig.start(run);
    assert_eq!(mux.ends(), 0);
    assert_eq!(fs::read_to_string(got).unwrap(), "\x1b[>0;0;0c\n");
}
