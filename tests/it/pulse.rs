//! A mux that hangs while somebody is attached.

use std::io::Write;

use crate::person::at_prompt;
use crate::rig::Rig;

/// attach reports it to a typist after five seconds, and reports when the mux goes on.
#[test]
fn a_stopped_mux_is_reported_at_a_terminal() {
    for redraw in ["none", "screen"] {
        let rig = Rig::new();
        let mux = rig.tty();
        let (local, _attach, mut app) = at_prompt(&rig, 80, &["--redraw", redraw]);
        mux.stop();
        local.press(b"x");
        local.shown.wait_for("attached to app demo: the mux does not answer");
        mux.go_on();
        local.shown.wait_for("attached to app demo: the mux answers again");
        app.write_all(b"<on>").unwrap();
        local.shown.wait_for("<on>");
    }
}

/// A mux whose app writes and reads nothing still answers.
#[test]
fn a_silent_app_is_not_reported() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut attach = rig.attach(&["--mode", "stdin,stdout"]);
    let mut stdin = attach.stdin();
    // More than fits anywhere on the way.
    let waits = std::thread::spawn(move || stdin.write_all(&vec![b'x'; 1 << 20]));
    let mut others = rig.attach(&["--mode", "stdin,stdout"]);
    others.stdin().write_all(b"y\n").unwrap();
    std::thread::sleep(iottymux::types::limits::ANSWER + iottymux::types::limits::ANSWER / 4);
    assert_eq!(attach.stderr.so_far() + &others.stderr.so_far(), "");
    drop(attach);
    assert!(waits.join().unwrap().is_err());
}
