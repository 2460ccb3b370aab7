//! What a mux does not use up, and what it does when something is used up.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;

use iottymux::types::limits::OWN_DESCRIPTORS;
use iottymux::types::stream::{Position, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::termios::tcgetwinsize;

use crate::pattern::{self, volume};
use crate::peer::{Account, Asker, hello};
use crate::proc::{Proc, WATCHDOG, eventually};
use crate::rig::{APP, Rig, expect};
use crate::skip::skip;

#[test]
fn clients_that_go_leave_nothing_behind() {
    for (kind, sockets) in
        [("stream", &["stdin", "stdout", "stderr", "session"][..]), ("tty", &["tty", "session"])]
    {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        mux.rests();
        let before = mux.descriptors();
        for _ in 0..50 {
            for socket in sockets {
                rig.client(socket);
            }
        }
        // No byte of the app is needed to find out that they have gone.
        eventually("all of them are let go", || mux.descriptors() == before);
    }
}

#[test]
fn a_flood_of_clients_that_go_again_shuts_nobody_out() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let known = rig.client("stdout");
    mux.rests();
    let before = mux.descriptors();
    // More than there may be at a time.
    for _ in 0..10_000 {
        rig.client("stdout");
    }
    let new = rig.client("stdout");
    eventually("all of them are let go", || mux.descriptors() == before + 1);
    mux.rests();
    rig.writer("stdout").write_all(b"still here").unwrap();
    expect(known, "still here");
    expect(new, "still here");
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!mux.stderr.text().contains("there are 4096 already"));
}

/// Clients at once in [`a_thousand_clients_get_everything_for_two_kilobytes_each`].
const CROWD: usize = 1000;

#[test]
fn a_thousand_clients_get_everything_for_two_kilobytes_each() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if hard < CROWD as u64 + 100 {
        return skip("descriptors", &format!("not more than {hard} are allowed"));
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(CROWD as u64 + 100), hard).unwrap();
    for socket in ["stdout", "session"] {
        let rig = Rig::new();
        // A thousand readers share one thread of this test, so each may have to wait for long.
        let mux = rig.mux(["stream", "--app", APP, "--max-client-delay", "60"]);
        let mut app = rig.writer("stdout");
        // The ring is there before it is weighed.
        let early = 512 << 10;
        let first = rig.client("stdout");
        pattern::write(&mut app, early);
        assert_eq!(pattern::read(first.take(early as u64), 1 << 16), early);
        eventually("the first is let go", || Asker::new(&rig).report().clients.len() == 1);
        mux.rests();
        let (before, fds) = (mux.memory(), mux.descriptors());
        let each = |memory: usize| memory.saturating_sub(before) * 1024 / CROWD;
        let mut clients: Vec<_> = (0..CROWD).map(|_| Watched::new(&rig, socket, early)).collect();
        eventually("all are there", || mux.descriptors() == fds + CROWD);
        if socket == "session" {
            clients.iter_mut().for_each(Watched::is_welcome);
        }
        mux.rests();
        let idle = each(mux.memory());
        let len = early + volume(512 << 10, 16 << 20);
        let writing = thread::spawn(move || pattern::write_from(app, early, len));
        read_all(&mut clients, len);
        writing.join().unwrap();
        mux.rests();
        let report = Asker::new(&rig).report();
        assert_eq!(report.clients.len() + report.unlisted, CROWD + 1);
        let served = each(mux.memory());
        println!("{CROWD} clients of {socket}: {idle} bytes each, {served} after {len} bytes");
        assert!(idle < 2048 && served < 2048, "{idle}, then {served} bytes per client");
        drop(clients);
        eventually("all are let go", || mux.descriptors() == fds);
    }
}

/// A client of a crowd, and what it got.
struct Watched {
    socket: UnixStream,
    account: Account,
}

impl Watched {
    fn new(rig: &Rig, socket: &str, at: usize) -> Self {
        let account = Account::new(Stream::Stdout, at, socket != "session");
        let mut socket = rig.client(socket);
        if account.is_session() {
            socket.write_all(&hello(Stream::Stdout, Position::Unseen, None)).unwrap();
        }
        Self { socket, account }
    }

    fn is_welcome(&mut self) {
        while !self.account.is_welcome() {
            self.read(&mut [0; 4096]);
        }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let len = self.socket.read(buffer).unwrap();
        assert!(len > 0, "ended after {} bytes", self.account.at);
        self.account.take(&buffer[..len]);
    }
}

/// Reads from all of them, whoever has something, until each has got so far.
fn read_all(clients: &mut [Watched], len: usize) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut waits: Vec<_> = clients.iter_mut().filter(|c| c.account.at < len).collect();
        if waits.is_empty() {
            break;
        }
        let mut fds: Vec<_> =
            waits.iter().map(|c| PollFd::new(c.socket.as_fd(), PollFlags::POLLIN)).collect();
        let count = poll(&mut fds, PollTimeout::try_from(WATCHDOG).unwrap()).unwrap();
        assert!(count > 0, "{} clients wait in vain", waits.len());
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        for (client, _) in waits.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            client.read(&mut buffer);
        }
    }
    assert!(clients.iter().all(|client| client.account.at == len && client.account.lost == 0));
}

/// The pages that are its own, with nobody attached.
#[test]
fn an_idle_mux_takes_about_a_megabyte() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        mux.rests();
        let memory = mux.memory();
        assert!(memory < 2 << 10, "{kind}: {memory} KiB");
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
    assert!(mux.peak() < 32 << 10, "{} KiB", mux.peak());
    drop(lazy);
}

#[test]
fn without_a_free_descriptor_it_serves_on_and_accepts_later() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut first = rig.client("stdout");
    let mut app = rig.writer("stdout");
    app.write_all(b"a").unwrap();
    expect(&mut first, "a");
    mux.limit_descriptors(40);
    let mut crowd: Vec<UnixStream> = (0..60).map(|_| rig.client("stdout")).collect();
    mux.stderr.wait_for("trying again shortly");
    app.write_all(b"b").unwrap();
    expect(&mut first, "b");
    // Room again: who still waits is let in.
    let last = crowd.pop().unwrap();
    crowd.clear();
    eventually("the crowd is gone", || mux.descriptors() < 39);
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

/// Each line that a small window does not show is kept, but not for as many columns as a wide one has.
#[test]
fn windows_of_any_shape_take_little_memory() {
    let rig = Rig::new();
    let mux = rig.mux(["tty", "--app", APP]);
    let mut app = rig.slave();
    let mut peak_at = |rows: u16, cols: u16, text: &[u8]| {
        let size = format!("{rows}x{cols}");
        assert_eq!(rig.run(&["control", "--app", APP, "resize", &size]).ends(), 0);
        let has_size = || tcgetwinsize(&app).is_ok_and(|s| (s.ws_row, s.ws_col) == (rows, cols));
        eventually("it is resized", has_size);
        // What the model answers, it does after all before.
        app.write_all(text).unwrap();
        app.write_all(b"\x1b[5n").unwrap();
        app.read_exact(&mut [0; 4]).unwrap();
        mux.peak()
    };
    peak_at(500, 262, &b"a line\r\n".repeat(600));
    for (rows, cols) in [(2, 65535), (24, 80), (2, 65535), (500, 262), (500, 2), (1, 65535)] {
        let peak = peak_at(rows, cols, b"");
        assert!(peak < 48 << 10, "{rows}x{cols}: {peak} KiB");
    }
}

/// One that may wait does, also one that comes back after its mux has died.
#[test]
fn a_client_that_waits_gets_the_next_free_place() {
    const PLACES: usize = 8;
    let rig = Rig::new();
    let mux = rig.few_descriptors(OWN_DESCRIPTORS + PLACES, &[]);
    let crowd: Vec<UnixStream> = (0..PLACES).map(|_| rig.client("stdout")).collect();
    let mut app = rig.writer("stdout");
    app.write_all(b"all are there").unwrap();
    for client in &crowd {
        expect(client, "all are there");
    }
    let mut refused = rig.run(&["attach", "--app", APP, "--mode", "stdout"]);
    assert_eq!(refused.ends(), 1);
    let said = refused.stderr.text();
    assert!(said.contains("there are 8 clients already"), "{said}");
    let attach = rig.attach(&["--mode", "stdout", "--wait=60"]);
    // Until it runs it has the sockets of the crowd, too.
    let refused = format!("pid={} refused", attach.pid());
    eventually("the next one was refused, too", || mux.stderr.so_far().contains(&refused));
    drop(crowd);
    app.write_all(b"for all who wait\n").unwrap();
    attach.stdout.wait_for("for all who wait\n");
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
    assert!(mux.peak() < 32 << 10, "{} KiB", mux.peak());
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
    assert!(said.starts_with("iottymux: cannot write standard output: No space left"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn help_whose_output_is_full_says_so() {
    let rig = Rig::new();
    for option in ["--help", "-h", "--version"] {
        let mut command = rig.command([option]);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let mut help = Proc::spawn(command);
        assert_eq!(help.ends(), 1, "{option}");
        let said = help.stderr.text();
        assert!(said.starts_with("iottymux: cannot write to standard output: No space"), "{said}");
    }
}

/// As where a service, whose hooks they are, has as many as it may. Here there is no memory for one.
#[test]
fn commands_do_without_threads() {
    let rig = Rig::new();
    let _mux = rig.stream();
    for (arguments, said) in
        [(&["list"][..], "stdin,stdout,stderr"), (&["status", APP], "app demo: ")]
    {
        let inner = rig.command(arguments);
        let mut command = Command::new("prlimit");
        command.arg("--data=1500000").arg(inner.get_program()).args(inner.get_args());
        command.env("IOTTYMUX_STATE_DIR", rig.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Proc::spawn(command);
        assert_eq!(process.ends(), 0, "{arguments:?}: {}", process.stderr.text());
        assert!(process.stdout.text().contains(said), "{}", process.stdout.text());
    }
}
