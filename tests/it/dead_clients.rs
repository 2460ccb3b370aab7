//! Ends that are nobody's wish: clients that take nothing, and writers that have gone.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};

use iottymux::core::wire::{AppStatus, Decoder, FrameKind, Gap, Item};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::termios::tcgetattr;

use crate::pair::pair;
use crate::proc::{Proc, eventually};
use crate::rig::Rig;

#[test]
fn a_client_cut_off_at_the_end_learns_exactly_what_it_missed() {
    const WROTE: u64 = 2_000_000;
    let rig = Rig::new();
    let script = format!("read x; head -c {WROTE} /dev/zero; exit 5");
    let mut run = rig.run(&["run", "--foreground", "--app", "demo", "--", "sh", "-c", &script]);
    run.stderr.wait_for("ready at");
    let mut lazy = rig.client("session");
    let hello = serde_json::json!({"version": 1, "stdin": true, "streams": [{"stream": "stdout"}]});
    lazy.write_all(&FrameKind::Hello.message(&hello)).unwrap();
    lazy.write_all(&FrameKind::Stdin.frame(b"go\n")).unwrap();
    // It reads nothing before all is over.
    assert_eq!(run.ends(), 5);
    let mut bytes = Vec::new();
    lazy.read_to_end(&mut bytes).unwrap();
    let (mut got, mut missed, mut last) = (0, 0, Vec::new());
    let (mut decoder, mut rest) = (Decoder::default(), &bytes[..]);
    while let Some(item) = decoder.next(&mut rest).unwrap() {
        match item {
            Item::Data(_, bytes) => got += bytes.len() as u64,
            Item::Control(FrameKind::Gap, body) => {
                let gap: Gap = serde_json::from_slice(&body).unwrap();
                assert_eq!(gap.from, got + missed);
                missed += gap.to - gap.from;
            }
            Item::Screen(_) => panic!("a screen, which was not asked for"),
            Item::Control(kind, body) => last.push((kind, body)),
        }
    }
    assert!(missed > 0, "nothing was missed: the test is too small");
    assert_eq!(got + missed, WROTE);
    let status = serde_json::to_vec(&AppStatus::Status(5)).unwrap();
    assert_eq!(last.last(), Some(&(FrameKind::Exit, status)));
}

#[test]
fn writers_that_have_gone_are_let_go_though_the_app_reads_nothing() {
    let rig = Rig::new();
    let mux = rig.stream();
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", mux.pid())).unwrap().count();
    let mut typist = rig.client("stdin");
    typist.set_nonblocking(true).unwrap();
    // Until the pipe, the queue and the socket are full, and the mux has looked at them all.
    let mut full = 0;
    while full < 2 {
        full = match typist.write(&[b'x'; 4096]) {
            Ok(_) => 0,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                mux.rests();
                full + 1
            }
        };
    }
    let before = fds();
    for _ in 0..200 {
        rig.client("stdin");
    }
    eventually("all of them are let go", || fds() == before);
    // Of those that left something unread a few are kept, until the app takes it.
    for _ in 0..200 {
        rig.client("stdin").write_all(b"last words\n").unwrap();
    }
    eventually("no more than a few are kept", || fds() <= before + 64);
    mux.stderr.wait_for("has gone, its last input is lost");
}

/// A terminal that nobody reads, full to the brim, with an attach at it.
fn stuck(rig: &Rig) -> (File, File, Proc) {
    let (master, slave) = pair();
    let mut command = rig.command(["attach", "--app", "demo"]);
    let end = || slave.try_clone().unwrap();
    command.stdin(end()).stdout(end()).stderr(end());
    iottymux::sys::calls::in_own_session(&mut command, true);
    let attach = Proc::spawn(command);
    eventually("the terminal is full", || {
        let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&slave), PollFlags::POLLOUT)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 0
    });
    (master, slave, attach)
}

#[test]
fn a_stuck_terminal_keeps_nobody_from_leaving() {
    let rig = Rig::new();
    let _run = {
        let run = rig.run(&["run", "--foreground", "--app", "demo", "--tty", "--", "yes"]);
        run.stderr.wait_for("ready at");
        run
    };
    for way in [Some(Signal::SIGTERM), Some(Signal::SIGHUP), None] {
        let (mut master, slave, mut attach) = stuck(&rig);
        let canonical = nix::sys::termios::LocalFlags::ICANON;
        assert!(!tcgetattr(&slave).unwrap().local_flags.contains(canonical), "it is not raw");
        match way {
            Some(signal) => attach.signal(signal),
            None => master.write_all(b"\x10\x11").unwrap(),
        }
        assert_eq!(attach.ends(), way.map_or(0, |signal| -(signal as i32)));
        assert!(tcgetattr(&slave).unwrap().local_flags.contains(canonical), "it stayed raw");
    }
}
