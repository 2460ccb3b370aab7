//! A mux that has nothing to do does nothing: whatever has come and gone before.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::proc::Proc;
use crate::rig::{APP, Rig, expect};

/// How long a mux is watched: a loop without sleep would use most of it, a timer show itself.
const WATCHED: Duration = Duration::from_millis(400);

/// Times it went to sleep, and nanoseconds it ran.
fn work_of(mux: &Proc) -> (u64, u64) {
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", mux.pid())).unwrap();
    let status = proc("status");
    let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    let ran = proc("schedstat");
    let ran = ran.split_whitespace().next();
    (sleeps.unwrap().trim().parse().unwrap(), ran.unwrap().parse().unwrap())
}

/// `silent` is where nothing may come from meanwhile.
fn assert_sleeps(mux: &Proc, silent: impl AsFd) {
    let sleeps = assert_is_lazy(mux, silent);
    // What was under way at the first look may take two more turns.
    assert!(sleeps <= 3, "it woke up {sleeps} times");
}

/// It does next to nothing; returns how often it went to sleep.
fn assert_is_lazy(mux: &Proc, silent: impl AsFd) -> u64 {
    let (sleeps, ran) = work_of(mux);
    let timeout = PollTimeout::try_from(WATCHED).unwrap();
    let heard = poll(&mut [PollFd::new(silent.as_fd(), PollFlags::POLLIN)], timeout).unwrap();
    assert_eq!(heard, 0, "it was not idle");
    let (sleeps_after, ran_after) = work_of(mux);
    let ran = Duration::from_nanos(ran_after - ran);
    assert!(ran < WATCHED / 10, "it ran for {ran:?} of {WATCHED:?}");
    sleeps_after - sleeps
}

#[test]
fn after_the_app_opened_and_closed_its_outputs() {
    let rig = Rig::new();
    let mux = rig.stream();
    let (mut stdout, mut stderr) = (rig.client("stdout"), rig.client("stderr"));
    rig.writer("stdout").write_all(b"x").unwrap();
    expect(&mut stdout, "x");
    let mut app = rig.writer("stderr");
    for _ in 0..20 {
        app.write_all(b"y").unwrap();
        expect(&mut stderr, "y");
    }
    assert_sleeps(&mux, &stderr);
    drop(app);
    assert_sleeps(&mux, &stderr);
}

#[test]
fn after_the_app_opened_and_closed_its_input() {
    let rig = Rig::new();
    let mux = rig.stream();
    let app = rig.reader();
    let mut typist = rig.client("stdin");
    typist.write_all(b"x").unwrap();
    app.wait_len(1);
    assert_sleeps(&mux, &typist);
}

#[test]
fn after_the_app_opened_and_closed_its_terminal() {
    let rig = Rig::new();
    let mux = rig.tty();
    let mut client = rig.client("tty");
    assert_sleeps(&mux, &client);
    rig.slave().write_all(b"x").unwrap();
    expect(&mut client, "x");
    assert_sleeps(&mux, &client);
}

#[test]
fn with_clients_that_closed_half_went_or_never_read() {
    let rig = Rig::new();
    let mux = rig.stream();
    let (half, gone, lazy) = (rig.client("stdout"), rig.client("stdout"), rig.client("stdout"));
    let mut reader = rig.client("stdout");
    half.shutdown(Shutdown::Write).unwrap();
    drop(gone);
    let half_in = rig.client("stdin");
    half_in.shutdown(Shutdown::Write).unwrap();
    let mut app = rig.writer("stdout");
    // More than a ring, which the lazy one holds back until its patience has ended.
    let writing = std::thread::spawn(move || {
        crate::pattern::write(&mut app, 2 << 20);
        app
    });
    let mut left = 2 << 20;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        left -= std::io::Read::read(&mut reader, &mut buffer).unwrap();
    }
    let app = writing.join().unwrap();
    assert_sleeps(&mux, &reader);
    drop((app, lazy, half));
}

#[test]
fn with_input_that_the_app_does_not_take() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        let (typist, output) = if kind == "tty" {
            (rig.client("tty"), None)
        } else {
            (rig.client("stdin"), Some(rig.client("stdout")))
        };
        // An app that is there, and does not read; a raw terminal echoes nothing.
        let _app = if kind == "tty" { rig.slave() } else { rig.writer("stdout") };
        typist.set_nonblocking(true).unwrap();
        let full = || {
            while (&typist).write(&[b'x'; 4096]).is_ok() {}
            mux.rests();
            (&typist).write(b"x").is_err()
        };
        crate::proc::eventually("no more is taken", full);
        assert_sleeps(&mux, output.as_ref().unwrap_or(&typist));
    }
}

/// It looks again now and then; a loop without sleep would be seen.
#[test]
fn without_a_descriptor_for_those_who_wait() {
    let rig = Rig::new();
    let mux = rig.few_descriptors(40);
    let mut client = rig.client("stderr");
    rig.writer("stderr").write_all(b"x").unwrap();
    expect(&mut client, "x");
    let _crowd = [(); 60].map(|()| rig.client("stdout"));
    mux.stderr.wait_for("trying again shortly");
    assert_is_lazy(&mux, &client);
}
