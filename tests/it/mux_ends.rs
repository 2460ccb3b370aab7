//! How a mux ends and begins again.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use iottymux::core::wire::FrameKind;
use nix::sys::signal::Signal;

use crate::pattern;
use crate::rig::{APP, Rig, expect, rest};

const ALL: [&str; 7] = [
    "endpoints",
    "sock-stdin",
    "sock-stdout",
    "sock-stderr",
    "sock-session",
    "sock-tty",
    "stage2-pts",
];

#[test]
fn the_end_delivers_everything_even_to_those_not_yet_accepted() {
    for signals in [&[Signal::SIGTERM][..], &[Signal::SIGINT], &[Signal::SIGTERM; 3]] {
        let rig = Rig::new();
        let mut mux = rig.stream();
        let mut known = rig.client("stdout");
        let mut app = rig.writer("stdout");
        app.write_all(b"begin ").unwrap();
        expect(&mut known, "begin ");
        mux.stop();
        // It finds these bytes, then the clients, then more bytes, all at once.
        app.write_all(b"last ").unwrap();
        let waiting = rig.client("stdout");
        // A session too, and its hello; an attach would first have to find the document.
        let mut session = rig.client("session");
        let hello = serde_json::json!({"version": 1, "streams": [{"stream": "stdout"}]});
        session.write_all(&FrameKind::Hello.message(&hello)).unwrap();
        app.write_all(b"words\n").unwrap();
        drop(app);
        for signal in signals {
            mux.signal(*signal);
        }
        mux.go_on();
        assert_eq!(rest(known), "last words\n");
        assert_eq!(rest(waiting), "last words\n");
        let told = rest(session);
        assert!(told.contains("last words\n"), "{told:?}");
        assert_eq!(mux.ends(), 0);
        let left: Vec<_> = ALL.into_iter().filter(|name| rig.exists(name)).collect();
        assert!(left.is_empty(), "left: {left:?}");
    }
}

#[test]
fn a_second_sigterm_shortens_nothing() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let client = rig.client("stdout");
    // What fits into the pipe, which the mux has made large where it may.
    let len = 48 << 10;
    mux.stop();
    pattern::write(rig.writer("stdout"), len);
    mux.signal(Signal::SIGTERM);
    mux.go_on();
    let reading = thread::spawn(move || pattern::read(client, 10));
    while mux.runs() {
        mux.signal(Signal::SIGTERM);
        thread::yield_now();
    }
    assert_eq!(reading.join().unwrap(), len);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn a_client_that_never_reads_does_not_keep_it() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let lazy = rig.client("stdout");
    pattern::write(rig.writer("stdout"), 1 << 20);
    let began = Instant::now();
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(began.elapsed() < Duration::from_secs(8));
    drop(lazy);
}

#[test]
fn a_hangup_ends_nothing() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        mux.signal(Signal::SIGHUP);
        // It is delivered before the mux can do what follows.
        let out = if kind == "tty" { "tty" } else { "stdout" };
        let mut client = rig.client(out);
        if kind == "tty" { rig.slave() } else { rig.writer("stdout") }.write_all(b"on").unwrap();
        expect(&mut client, "on");
    }
}

#[test]
fn after_a_kill_it_starts_again_at_once() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        for _ in 0..5 {
            let mut mux = rig.mux([kind, "--app", APP]);
            let out = if kind == "tty" { "tty" } else { "stdout" };
            let mut client = rig.client(out);
            if kind == "tty" { rig.slave() } else { rig.writer("stdout") }
                .write_all(b"up")
                .unwrap();
            expect(&mut client, "up");
            mux.signal(Signal::SIGKILL);
            assert_eq!(mux.ends(), -9);
            assert!(rig.exists("endpoints") && rig.exists(&format!("sock-{out}")));
        }
    }
}

#[test]
fn a_second_mux_of_an_app_is_refused() {
    let rig = Rig::new();
    let _first = rig.stream();
    for kind in ["stream", "tty"] {
        let mut second = rig.run(&[kind, "--app", APP]);
        assert_eq!(second.ends(), 1);
        let said = second.stderr.text();
        let lines: Vec<_> = said.lines().collect();
        let [line] = lines[..] else { panic!("{said}") };
        assert!(line.starts_with("iottymux: cannot start app demo: another mux"), "{line}");
    }
    let mut client = rig.client("stdout");
    rig.writer("stdout").write_all(b"unharmed").unwrap();
    expect(&mut client, "unharmed");
}
