//! A mux that has nothing to do does nothing: whatever has come and gone before.

use std::fs::{self, File};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use iottymux::core::wire::{Exclusive, FrameKind, Hello, Redraw, Want};
use iottymux::types::size::Size;
use iottymux::types::stream::{Position, Stream};
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::peer::hello;
use crate::proc::{Proc, eventually};
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

/// It wakes up now and then at the most: what is blocked for long is looked at by the clock.
fn assert_is_calm(mux: &Proc, silent: impl AsFd) {
    let wakes = assert_is_lazy(mux, silent);
    assert!(wakes <= 20, "it woke up {wakes} times");
}

/// Writes until the mux takes no more; what is written to does not block.
fn fill<W>(mux: &Proc, to: &W, bytes: &[u8])
where
    for<'a> &'a W: Write,
{
    let takes = || {
        let mut to = to;
        to.write(bytes).is_ok()
    };
    eventually("no more is taken", || {
        while takes() {}
        mux.rests();
        !takes()
    });
}

/// The app's end of an output, which does not block, filled until the mux reads no more.
pub fn held_back(rig: &Rig, mux: &Proc) -> File {
    let path = rig.path("stage2-stdout");
    let app = File::options().write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    fill(mux, &app, &[b'x'; 4096]);
    app
}

/// A session that has said this hello.
fn session(rig: &Rig, hello: &Hello) -> UnixStream {
    let session = rig.client("session");
    (&session).write_all(&FrameKind::Hello.message(hello)).unwrap();
    session
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
    let writing = thread::spawn(move || {
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
        fill(&mux, &typist, &[b'x'; 4096]);
        assert_sleeps(&mux, output.as_ref().unwrap_or(&typist));
    }
}

/// It looks again now and then; a loop without sleep would be seen.
#[test]
fn without_a_descriptor_for_those_who_wait() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut client = rig.client("stderr");
    rig.writer("stderr").write_all(b"x").unwrap();
    expect(&mut client, "x");
    mux.limit_descriptors(40);
    let _crowd = [(); 60].map(|()| rig.client("stdout"));
    mux.stderr.wait_for("trying again shortly");
    assert_is_lazy(&mux, &client);
}

/// Half a line, more than the mux keeps, and somebody else: the first one's turn ends, and no more can go on.
#[test]
fn with_an_expired_half_line_and_an_app_that_does_not_read() {
    let rig = Rig::new();
    let mux = rig.stream();
    let output = rig.client("stdout");
    let first = rig.client("stdin");
    (&first).write_all(b"half").unwrap();
    first.set_nonblocking(true).unwrap();
    fill(&mux, &first, &[b'x'; 4096]);
    // It has said all that it wanted, which was nothing.
    let second = rig.client("stdin");
    second.shutdown(Shutdown::Both).unwrap();
    // Longer than a turn.
    for _ in 0..4 {
        assert_is_calm(&mux, &output);
    }
}

#[test]
fn with_writers_that_have_gone_and_an_app_that_does_not_read() {
    let rig = Rig::new();
    let mux = rig.stream();
    let output = rig.client("stdout");
    let typist = rig.client("stdin");
    typist.set_nonblocking(true).unwrap();
    fill(&mux, &typist, &[b'x'; 4096]);
    drop(typist);
    for _ in 0..10 {
        rig.client("stdin").write_all(&[b'y'; 1000]).unwrap();
    }
    mux.rests();
    assert_sleeps(&mux, &output);
}

#[test]
fn with_writers_who_wait_for_one_that_types_alone() {
    let rig = Rig::new();
    let mux = rig.stream();
    let output = rig.client("stdout");
    let alone = Hello { stdin: true, exclusive: Some(Exclusive::Ask), ..Hello::default() };
    let _alone = session(&rig, &alone);
    mux.rests();
    let other = rig.client("stdin");
    other.set_nonblocking(true).unwrap();
    fill(&mux, &other, &[b'y'; 4096]);
    assert_sleeps(&mux, &output);
}

#[test]
fn with_an_app_that_a_client_holds_back() {
    let rig = Rig::new();
    let arguments = ["stream", "--app", APP, "--max-client-delay", "3600"];
    let mut mux = rig.mux(arguments);
    let silent = rig.client("stderr");
    let _lazy = rig.client("stdout");
    mux.rests();
    let _app = held_back(&rig, &mux);
    assert_sleeps(&mux, &silent);
    // And while it drains: that ends after five seconds.
    let asked = rig.client("session");
    mux.signal(Signal::SIGTERM);
    mux.stderr.wait_for("ending on");
    assert_is_calm(&mux, &silent);
    drop(asked);
    mux.stderr.wait_for("still writing");
    // And while it delivers: the lazy one has an hour's patience, of which it gets ten seconds. The others
    // have gone by now.
    let (never, _open) = std::io::pipe().unwrap();
    assert_is_calm(&mux, &never);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn with_an_app_that_a_log_holds_back() {
    let rig = Rig::new();
    let fifo = rig.file("log");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    // A reader that reads nothing.
    let _reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let log = format!("raw:{}", fifo.display());
    let mux = rig.mux(["stream", "--app", APP, "--log", &log]);
    let silent = rig.client("stderr");
    let _app = held_back(&rig, &mux);
    assert_is_calm(&mux, &silent);
}

/// The loop waits for the thread that knows the screen, and does nothing meanwhile.
#[test]
fn with_an_app_that_waits_for_the_model_of_its_screen() {
    let rig = Rig::new();
    let mux = rig.tty();
    assert_eq!(rig.run(&["control", "--app", APP, "resize", "500x260"]).ends(), 0);
    let silent = session(&rig, &Hello::default());
    expect_welcome(&silent);
    let mut app = rig.slave();
    // The dearest that a few bytes can ask for: a character, and all below it erased.
    thread::spawn(move || while app.write_all(&b"\x1b[Hx\x1b[J".repeat(4096)).is_ok() {});
    let size = Some(Size { rows: 50, cols: 100 }.into());
    let tty = Want { stream: Stream::Tty, from: Position::Now };
    let watch =
        Hello { streams: vec![tty], size, redraw: Some(Redraw::Screen), ..Hello::default() };
    let _viewer = session(&rig, &watch);
    mux.stderr.wait_for("attached to tty");
    let (sleeps, _) = work_of(&mux);
    thread::sleep(WATCHED);
    let (after, _) = work_of(&mux);
    assert!(after - sleeps < 4000, "it woke up {} times", after - sleeps);
}

fn expect_welcome(mut session: &UnixStream) {
    let mut header = [0; 8];
    std::io::Read::read_exact(&mut session, &mut header).unwrap();
    let len = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    std::io::Read::read_exact(&mut session, &mut vec![0; len as usize]).unwrap();
}

/// Each of them is told by the clock that its time is over.
#[test]
fn with_sessions_that_do_not_say_hello() {
    let rig = Rig::new();
    let mux = rig.stream();
    let silent = rig.client("stderr");
    let _sessions = [(); 20].map(|()| rig.client("session"));
    mux.rests();
    assert_sleeps(&mux, &silent);
    let mut one = rig.client("session");
    one.write_all(&hello(Stream::Stdout, Position::Now, None)).unwrap();
    expect_welcome(&one);
    assert_sleeps(&mux, &silent);
}
