//! What a mux does not use up, and what it does when something is used up.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;

use crate::pattern::{self, volume};
use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig, expect};

fn descriptors(mux: &Proc) -> usize {
    fs::read_dir(format!("/proc/{}/fd", mux.pid())).unwrap().count()
}

/// The most memory it ever had, KiB.
fn peak(mux: &Proc) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", mux.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn clients_that_go_leave_nothing_behind() {
    for (kind, sockets) in
        [("stream", &["stdin", "stdout", "stderr", "session"][..]), ("tty", &["tty", "session"])]
    {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        mux.rests();
        let before = descriptors(&mux);
        for _ in 0..50 {
            for socket in sockets {
                rig.client(socket);
            }
        }
        // No byte of the app is needed to find out that they have gone.
        eventually("all of them are let go", || descriptors(&mux) == before);
    }
}

#[test]
fn a_flood_of_clients_that_go_again_shuts_nobody_out() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let known = rig.client("stdout");
    mux.rests();
    let before = descriptors(&mux);
    // More than there may be at a time.
    for _ in 0..10_000 {
        rig.client("stdout");
    }
    let new = rig.client("stdout");
    eventually("all of them are let go", || descriptors(&mux) == before + 1);
    mux.rests();
    rig.writer("stdout").write_all(b"still here").unwrap();
    expect(known, "still here");
    expect(new, "still here");
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!mux.stderr.text().contains("there are 4096 already"));
}

#[test]
fn hundreds_of_clients_get_everything_for_two_kilobytes_each() {
    let rig = Rig::new();
    let mux = rig.stream();
    mux.rests();
    // What it keeps for itself, KiB: pages of code come and go as they are needed.
    let kept = || {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", mux.pid())).unwrap();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let (before, fds) = (kept(), descriptors(&mux));
    let clients: Vec<_> = (0..300).map(|_| rig.client("stdout")).collect();
    eventually("all of them are served", || descriptors(&mux) == fds + clients.len());
    let each = (kept() - before) * 1024 / clients.len();
    assert!(each < 2048, "{each} bytes per client");
    let reading: Vec<_> = clients
        .into_iter()
        .map(|client| thread::spawn(move || pattern::read(client.take(1 << 20), 1 << 16)))
        .collect();
    pattern::write(rig.writer("stdout"), 1 << 20);
    for client in reading {
        assert_eq!(client.join().unwrap(), 1 << 20);
    }
}

#[test]
fn memory_does_not_grow_with_clients_or_bytes() {
    let rig = Rig::new();
    let mux = rig.stream();
    // Never a newline, slow and lazy clients, clients that come and go.
    let lazy = [(); 20].map(|()| rig.client("stdout"));
    let len = volume(32 << 20, 1 << 30);
    let client = rig.client("stdout");
    let reading = thread::spawn(move || pattern::read(client.take(len as u64), 1 << 16));
    pattern::write(rig.writer("stdout"), len);
    assert_eq!(reading.join().unwrap(), len);
    for _ in 0..200 {
        rig.client("stderr");
    }
    assert!(peak(&mux) < 32 << 10, "{} KiB", peak(&mux));
    drop(lazy);
}

#[test]
fn without_a_free_descriptor_it_serves_on_and_accepts_later() {
    let rig = Rig::new();
    let inner = rig.command(["stream", "--app", APP]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$@\"", "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env("IOTTYMUX_STATE_DIR", rig.state());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mux = rig.start(command);
    let mut first = rig.client("stdout");
    let mut app = rig.writer("stdout");
    app.write_all(b"a").unwrap();
    expect(&mut first, "a");
    let mut crowd: Vec<UnixStream> = (0..60).map(|_| rig.client("stdout")).collect();
    mux.stderr.wait_for("trying again shortly");
    app.write_all(b"b").unwrap();
    expect(&mut first, "b");
    // Room again: who still waits is let in.
    let last = crowd.pop().unwrap();
    crowd.clear();
    eventually("the crowd is gone", || descriptors(&mux) < 39);
    let new = rig.client("stdin");
    rig.client("stdin").write_all(b"in\n").unwrap();
    rig.reader().wait_for("in\n");
    // It sees what comes after it was let in, of which nobody is told.
    last.set_nonblocking(true).unwrap();
    eventually("the last one is served", || {
        (&app).write_all(b"c").unwrap();
        expect(&first, "c");
        (&last).read(&mut [0]).is_ok_and(|len| len == 1)
    });
    drop(new);
}

#[test]
fn an_app_that_does_not_read_stops_only_those_who_type() {
    let rig = Rig::new();
    let mux = rig.stream();
    let len = 4 << 20;
    let mut typist = rig.client("stdin");
    // As far as it goes: then the pipe, the mux's queue and the socket are full.
    typist.set_nonblocking(true).unwrap();
    let all = pattern::bytes(len);
    let mut done = 0;
    // Until the mux has been full for one round trip on another stream.
    let (mut app, mut client) = (rig.writer("stdout"), rig.client("stdout"));
    let mut full = 0;
    while full < 2 {
        match typist.write(&all[done..]) {
            Ok(len) => {
                done += len;
                full = 0;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                full += 1;
                app.write_all(b"x").unwrap();
                expect(&mut client, "x");
            }
        }
    }
    assert!(done < len, "all of {len} bytes went somewhere");
    assert!(peak(&mux) < 32 << 10, "{} KiB", peak(&mux));
    typist.set_nonblocking(false).unwrap();
    let reader = rig.reader();
    typist.write_all(&all[done..]).unwrap();
    assert!(reader.wait_len(len) == all);
}

#[test]
fn an_attach_whose_output_is_full_says_so() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut command = rig.command(["attach", "--app", APP, "--mode", "stdout"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let mut attach = Proc::spawn(command);
    rig.writer("stdout").write_all(b"x").unwrap();
    assert_eq!(attach.ends(), 125);
    let said = attach.stderr.text();
    assert!(said.starts_with("iottymux: writing standard output: No space left"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
