//! What clients are given: everything, in order, at once, and whatever the others do.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::pattern::{self, volume};
use crate::rig::{APP, Rig, expect};

#[test]
fn unseen_bytes_go_to_the_next_client() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut app = rig.writer("stdout");
    app.write_all(b"before anybody\n").unwrap();
    let mut first = rig.client("stdout");
    expect(&mut first, "before anybody\n");
    // Shut down, for a process that another test starts just now may have a copy for a moment.
    first.shutdown(Shutdown::Both).unwrap();
    app.write_all(b"between\n").unwrap();
    let mut second = rig.client("stdout");
    expect(&mut second, "between\n");
    // Seen is seen: a third one begins with what comes.
    mux.rests();
    let mut third = rig.client("stdout");
    app.write_all(b"now\n").unwrap();
    expect(&mut second, "now\n");
    expect(&mut third, "now\n");
}

#[test]
fn with_nobody_there_the_newest_bytes_are_kept() {
    let rig = Rig::new();
    let mut mux = rig.mux(["stream", "--app", APP, "--backlog", "64K"]);
    let len = 1 << 20;
    // Nobody holds the app back.
    pattern::write(rig.writer("stdout"), len);
    mux.rests();
    let mut late = rig.client("stdout");
    mux.signal(Signal::SIGTERM);
    let mut got = Vec::new();
    late.read_to_end(&mut got).unwrap();
    assert_eq!(mux.ends(), 0);
    let all = pattern::bytes(len);
    assert!(got.len() >= 60 << 10 && all.ends_with(&got), "{} bytes", got.len());
}

#[test]
fn a_connected_client_gets_all_later_output() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut app = rig.writer("stdout");
    let mut known = rig.client("stdout");
    app.write_all(b"begin ").unwrap();
    expect(&mut known, "begin ");
    // A busy mux finds all of this at once: bytes, a client, more bytes.
    mux.stop();
    app.write_all(b"be").unwrap();
    let mut new = rig.client("stdout");
    app.write_all(b"fore").unwrap();
    mux.go_on();
    expect(&mut known, "before");
    app.write_all(b" after").unwrap();
    expect(&mut known, " after");
    expect(&mut new, "before after");
}

#[test]
fn a_prompt_needs_no_newline() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut app = rig.writer("stdout");
    let mut client = rig.client("stdout");
    for _ in 0..10 {
        app.write_all(b"$ ").unwrap();
        expect(&mut client, "$ ");
    }
}

/// The app writes `len` bytes; `reader` must get them all. Returns how long the app took.
fn flow(rig: &Rig, reader: UnixStream, len: usize) -> Duration {
    let reading = thread::spawn(move || pattern::read(reader.take(len as u64), 1 << 16));
    let began = Instant::now();
    pattern::write(rig.writer("stdout"), len);
    let took = began.elapsed();
    assert_eq!(reading.join().unwrap(), len);
    took
}

#[test]
fn a_client_that_never_reads_takes_nothing_from_the_others() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let lazy = rig.client("stdout");
    let took = flow(&rig, rig.client("stdout"), volume(16 << 20, 1 << 30));
    // It holds the app back once, for half its patience of a second; the rest is the machine's.
    assert!(took > Duration::from_millis(450), "nobody waited for it at all: {took:?}");
    assert!(took < Duration::from_secs(8 + volume(0, 60) as u64), "{took:?}");
    // What it was given before it was passed over is right, and it may still go on reading.
    let mut begin = vec![0; 4096];
    (&lazy).read_exact(&mut begin).unwrap();
    assert!(begin == pattern::bytes(4096));
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(mux.stderr.text().contains("it missed"), "{}", mux.stderr.text());
}

#[test]
fn a_stopped_attach_takes_nothing_from_the_others() {
    let rig = Rig::new();
    let mux = rig.stream();
    let stopped = rig.attach(&["--mode", "stdout"]);
    rig.writer("stdout").write_all(b"hello\n").unwrap();
    stopped.stdout.wait_for("hello\n");
    stopped.stop();
    mux.rests();
    let took = flow(&rig, rig.client("stdout"), 8 << 20);
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn clients_of_different_speed_all_get_everything() {
    let rig = Rig::new();
    let len = volume(64 << 20, 1 << 30);
    let mut mux = rig.stream();
    let readers = [1 << 16, 4096, 1000, 333].map(|piece| {
        let client = rig.client("stdout");
        thread::spawn(move || pattern::read(client, piece))
    });
    pattern::write(rig.writer("stdout"), len);
    mux.signal(Signal::SIGTERM);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), len);
    }
    assert_eq!(mux.ends(), 0);
}

#[test]
fn random_bytes_there_and_back_are_the_same() {
    let rig = Rig::new();
    let len = volume(8 << 20, 100 << 20);
    let mut mux = rig.mux(["run", "--foreground", "--app", APP, "--", "cat"]);
    let mut attach = rig.attach(&["--mode", "stdin,stdout", "--stdin-once"]);
    let mut stdin = attach.stdin();
    let typing = thread::spawn(move || pattern::write(&mut stdin, len));
    assert_eq!(attach.ends(), 0);
    typing.join().unwrap();
    assert_eq!(pattern::read(&attach.stdout.bytes()[..], 1 << 16), len);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn one_typist_passes_byte_for_byte() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let app = rig.reader();
    let len = 1 << 20;
    pattern::write(rig.client("stdin"), len);
    assert_eq!(pattern::read(&app.wait_len(len)[..], 1 << 16), len);
    // And without a line end, at once.
    let mut typist = rig.client("stdin");
    typist.write_all(b"y").unwrap();
    assert_eq!(app.wait_len(len + 1).len(), len + 1);
}

#[test]
fn several_typists_are_merged_at_line_ends() {
    const LINES: usize = 300;
    let rig = Rig::new();
    let _mux = rig.stream();
    let app = rig.reader();
    let line = |who: usize, n: usize| format!("{who} {n} {}\n", "x".repeat(n % 97));
    let text = |who: usize| (0..LINES).map(|n| line(who, n)).collect::<String>();
    let typists: Vec<_> = (0..4)
        .map(|who| {
            let (mut client, text) = (rig.client("stdin"), text(who));
            thread::spawn(move || {
                // Pieces that end anywhere but at line ends.
                for piece in text.as_bytes().chunks(37 + who) {
                    client.write_all(piece).unwrap();
                }
            })
        })
        .collect();
    for typist in typists {
        typist.join().unwrap();
    }
    let total = (0..4).map(|who| text(who).len()).sum();
    let got = String::from_utf8(app.wait_len(total)).unwrap();
    for who in 0..4 {
        let begin = format!("{who} ");
        let his: String = got.split_inclusive('\n').filter(|l| l.starts_with(&begin)).collect();
        assert!(his == text(who), "the lines of {who} are not whole, or not in order");
    }
}
