//! The share of one user in a mux: connections, memory, lines of its log.
//!
//! The users are real: where this process is root, it runs itself as another one through setpriv.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;

use iottymux::core::wire::{FrameKind, Hello, Redraw, Want};
use iottymux::types::limits;
use iottymux::types::size::Size;
use iottymux::types::stream::{Position, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};

use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig, expect};
use crate::users::{as_user, shared_rig};

/// Users that no system gives to anybody.
const MANY: &str = "54321";
const ONE: &str = "54324";
const BOTH: &str = "54321,54324";

/// Descriptors of a mux that may have few.
const DESCRIPTORS: usize = 100;
/// Viewers who read nothing.
const VIEWERS: usize = 200;

/// Connections of another user, which are there until this is dropped.
struct Crowd {
    process: Proc,
    stdin: Option<ChildStdin>,
}

impl Crowd {
    /// So many, each of which says this and reads nothing; and those before them that went at once.
    fn come(
        rig: &Rig,
        uid: &str,
        socket: &str,
        (passing, count): (usize, usize),
        says: &[u8],
    ) -> Self {
        Self::come_and_say(rig, uid, socket, (passing, count), (says, b""))
    }

    /// The same, where each says something more before it goes.
    fn come_and_say(
        rig: &Rig,
        uid: &str,
        socket: &str,
        (passing, count): (usize, usize),
        (says, last): (&[u8], &[u8]),
    ) -> Self {
        let [words, last_words] = [("says", says), ("last", last)].map(|(name, text)| {
            let file = rig.file(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            file
        });
        let tests = rig.file("tests");
        if !tests.exists() {
            fs::copy(env::current_exe().unwrap(), &tests).unwrap();
        }
        let mut command = as_user(rig, uid, "", &tests);
        command.args(["--exact", "quota::be_a_crowd", "--ignored", "--nocapture"]);
        command.env("CROWD_SOCKET", rig.path(&format!("sock-{socket}")));
        command.env("CROWD_SAYS", words).env("CROWD_LAST", last_words);
        command.env("CROWD", format!("{passing} {count}"));
        let mut process = Proc::spawn(command);
        let stdin = Some(process.stdin());
        process.stdout.wait_for("all there");
        Self { process, stdin }
    }

    /// All go, with their last words.
    fn go(mut self) {
        self.stdin = None;
        assert_eq!(self.process.ends(), 0);
    }

    /// How many connections the mux has ended.
    fn ended(&self) -> usize {
        let said = self.process.stdout.so_far();
        let told = said.lines().filter_map(|line| line.strip_prefix("ended ")).next_back();
        told.map_or(0, |number| number.parse().unwrap())
    }
}

/// Not a test: what [`Crowd`] runs as another user.
#[test]
#[ignore = "run by other tests as another user"]
fn be_a_crowd() {
    let Some(socket) = env::var_os("CROWD_SOCKET") else { return };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let says = fs::read(env::var_os("CROWD_SAYS").unwrap()).unwrap();
    let numbers = env::var("CROWD").unwrap();
    let (passing, count) = numbers.split_once(' ').unwrap();
    let connect = || {
        let client = UnixStream::connect(&socket).unwrap();
        client.set_nonblocking(true).unwrap();
        // As far as it is taken.
        let _ = (&client).write(&says);
        client
    };
    for _ in 0..passing.parse().unwrap() {
        connect();
    }
    let crowd: Vec<_> = (0..count.parse().unwrap()).map(|_| connect()).collect();
    println!("all there");
    // Until the test has seen enough; whoever is let go is told.
    let mut ended = vec![false; crowd.len()];
    let stdin = std::io::stdin();
    loop {
        let mut fds = vec![PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let there = crowd.iter().zip(&ended).filter(|(_, ended)| !**ended);
        fds.extend(there.map(|(client, _)| PollFd::new(client.as_fd(), PollFlags::empty())));
        poll(&mut fds, PollTimeout::NONE).unwrap();
        if fds[0].any() == Some(true) {
            let last = fs::read(env::var_os("CROWD_LAST").unwrap()).unwrap();
            return crowd.iter().for_each(|mut client| drop(client.write(&last)));
        }
        let mut gone = fds[1..].iter().map(|fd| fd.any() == Some(true));
        for ended in ended.iter_mut().filter(|ended| !**ended) {
            *ended = gone.next().unwrap();
        }
        println!("ended {}", ended.iter().filter(|ended| **ended).count());
    }
}

/// A client of root's that has typed as much as an app that reads nothing can have waiting.
fn fill_input(rig: &Rig, mux: &Proc) -> UnixStream {
    let root = rig.client("stdin");
    root.set_nonblocking(true).unwrap();
    eventually("no more is taken", || {
        while (&root).write(&[b'r'; 4096]).is_ok() {}
        mux.rests();
        (&root).write(b"r").is_err()
    });
    root
}

fn hello(stream: Stream) -> Vec<u8> {
    let streams = vec![Want { stream, from: Position::Now }];
    FrameKind::Hello.message(&Hello { streams, ..Hello::default() })
}

#[test]
fn one_user_does_not_take_the_connections_of_others() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--view-uid", BOTH]);
    for socket in ["session", "stdout"] {
        let says = if socket == "session" { hello(Stream::Stdout) } else { Vec::new() };
        let crowd = Crowd::come(&rig, MANY, socket, (0, limits::USER_CLIENTS + 100), &says);
        eventually("those who are too many are let go", || crowd.ended() == 100);
        mux.stderr.wait_for("refused at ");
        mux.stderr.wait_for(": user 54321 has 256 clients already");
        let mut other = as_user(&rig, ONE, "", &rig.file("iottymux"));
        other.args(["attach", "--app", APP, "--mode", "stdout"]);
        let other = Proc::spawn(other);
        let pid = other.pid();
        eventually("another user is there", || {
            rig.writer("stdout").write_all(b"x").unwrap();
            other.stdout.so_far().contains('x')
        });
        let there = rig.status();
        let listed = there["clients"].as_array().unwrap().len() as u64;
        assert!(listed + there["unlisted"].as_u64().unwrap_or(0) >= 257, "{there} {pid}");
        drop((crowd, other));
        eventually("all are gone", || rig.status()["clients"].as_array().unwrap().is_empty());
    }
}

/// Each answer takes time in which nobody else is served.
#[test]
fn one_user_does_not_ask_for_ever() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--view-uid", MANY]);
    let nonsense = FrameKind::Request.message(&serde_json::json!({"request": "nonsense"}));
    for question in [FrameKind::Status.frame(b""), nonsense] {
        let ask = |times| [hello(Stream::Stdout), question.repeat(times)].concat();
        let modest = Crowd::come(&rig, MANY, "session", (0, 20), &ask(limits::QUESTIONS));
        let crowd = Crowd::come(&rig, MANY, "session", (0, 20), &ask(limits::QUESTIONS + 1));
        eventually("those who ask too much are let go", || crowd.ended() == 20);
        mux.stderr.wait_for("it asks more than 16 questions at once");
        assert_eq!(modest.ended(), 0);
        drop((modest, crowd));
    }
    // Root may.
    let mut root = rig.client("session");
    root.write_all(&[hello(Stream::Stdout), FrameKind::Status.frame(b"").repeat(100)].concat())
        .unwrap();
    let mut answer = [0];
    root.read_exact(&mut answer).unwrap();
    assert_eq!(rig.status()["state"], "ready");
}

#[test]
fn what_clients_do_wrong_does_not_displace_the_errors_of_the_mux() {
    let Some(rig) = shared_rig() else { return };
    let log = format!("cri:{}/in/all", rig.file("says").display());
    fs::write(rig.file("says"), "").unwrap();
    let mux = rig.mux(["stream", "--app", APP, "--view-uid", MANY, "--log", &log]);
    rig.writer("stdout").write_all(b"a line\n").unwrap();
    mux.stderr.wait_for("Not a directory");
    let crowd = Crowd::come(&rig, MANY, "session", (0, 12), b"\xff\xff\xff\xff\xff\xff\xff\xff");
    eventually("they are let go", || crowd.ended() == 12);
    let errors = rig.status()["errors"].to_string();
    assert!(errors.contains("Not a directory") && !errors.contains("uid="), "{errors}");
}

#[test]
fn some_places_are_reserved_for_root() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.few_descriptors(DESCRIPTORS, &["--view-uid", MANY]);
    let crowd = Crowd::come(&rig, MANY, "session", (0, 200), &hello(Stream::Stdout));
    let places = DESCRIPTORS - limits::OWN_DESCRIPTORS;
    let others = places - places.div_ceil(4);
    eventually("the rest is let go", || crowd.ended() == 200 - others);
    mux.stderr.wait_for("the other places are reserved");
    // The administrator attaches, and asks.
    let client = rig.client("stdout");
    assert_eq!(rig.status()["state"], "ready");
    rig.writer("stdout").write_all(b"here").unwrap();
    expect(client, "here");
    assert!(!mux.stderr.so_far().contains("trying again shortly"));
}

/// An input that nobody reads, and typists who come, type and go.
#[test]
fn typists_who_have_gone_leave_little() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--allow-uid", MANY]);
    let root = fill_input(&rig, &mux);
    let (before, memory) = (mux.descriptors(), mux.memory());
    for _ in 0..3 {
        let crowd = Crowd::come(&rig, MANY, "stdin", (300, 200), &vec![b'x'; 150_000]);
        drop(crowd);
        // Each that has said all can go, and of the others only a few are kept.
        eventually("they are let go", || mux.descriptors() <= before + limits::GONE_USER_WRITERS);
        // Half a line each, in frames: it is in the mux's own memory then.
        let input = Hello { stdin: true, ..Hello::default() };
        let says = [FrameKind::Hello.message(&input), FrameKind::Stdin.frame(&vec![b'y'; 60_000])]
            .concat();
        drop(Crowd::come(&rig, MANY, "session", (300, 200), &says));
        eventually("they are let go", || mux.descriptors() <= before + limits::GONE_USER_WRITERS);
    }
    mux.rests();
    let grown = mux.memory().saturating_sub(memory);
    // The frames of one crowd are 12 MB, and the allocator may keep as much where something small
    // lies behind it; three crowds left would be 36 MB.
    assert!(grown < 16 << 10, "{grown} KiB");
    // The app reads again: the others' input is all there, behind what was typed before.
    let app = rig.reader();
    root.set_nonblocking(false).unwrap();
    (&root).write_all(b"\nby root\n").unwrap();
    app.wait_for("by root\n");
    eventually("all that was left is gone", || mux.descriptors() == before);
}

/// The mux is busy, and then finds what they have typed together with their end.
#[test]
fn typists_who_go_at_once_leave_little() {
    const COUNT: usize = 100;
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--allow-uid", MANY]);
    let _root = fill_input(&rig, &mux);
    let before = mux.descriptors();
    let are_few = || mux.descriptors() <= before + limits::GONE_USER_WRITERS;
    drop(Crowd::come(&rig, MANY, "stdin", (0, COUNT), &vec![b'x'; 150_000]));
    eventually("they are let go", are_few);
    let kept = mux.descriptors();
    let input = FrameKind::Hello.message(&Hello { stdin: true, ..Hello::default() });
    let says = [input, FrameKind::Stdin.frame(&vec![b'y'; 60_000])].concat();
    let crowd = Crowd::come_and_say(&rig, MANY, "session", (0, COUNT), (b"", &says));
    eventually("all are there", || mux.descriptors() == kept + COUNT);
    mux.rests();
    kill(mux.pid(), Signal::SIGSTOP).unwrap();
    crowd.go();
    kill(mux.pid(), Signal::SIGCONT).unwrap();
    eventually("they are let go, too", are_few);
}

/// An app that reads little, and many clients of an admitted user that write all they can.
#[test]
fn what_root_types_does_not_stand_behind_a_flood() {
    const LINE: &[u8] = b"flood\n";
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--allow-uid", MANY]);
    let app = fs::OpenOptions::new().read(true).write(true).open(rig.path("stage2-stdin")).unwrap();
    let crowd = Crowd::come(&rig, MANY, "stdin", (0, 40), &LINE.repeat(25_000));
    mux.rests();
    let mut stop = rig.run(&["send", APP, "stop"]);
    stop.stderr.wait_for("has not taken the line yet");
    mux.rests();
    let (mut before, mut byte) = (Vec::new(), [0]);
    while !before.ends_with(b"stop\n") {
        (&app).read_exact(&mut byte).unwrap();
        before.extend(byte);
    }
    assert!(before.len() <= 2 * 4096, "{} bytes came first", before.len());
    assert_eq!(stop.ends(), 0);
    drop(crowd);
}

/// Viewers who read nothing of a large and colourful screen. (How much memory their screens may take is tested
/// where that is decided: drawing enough of them takes a test build minutes.)
#[test]
fn viewers_who_do_not_read_keep_nobody_from_seeing_the_screen() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["tty", "--app", APP, "--view-uid", BOTH]);
    assert_eq!(rig.run(&["control", "--app", APP, "resize", "50x300"]).ends(), 0);
    let mut screen = Vec::new();
    for row in 1..=50 {
        write!(screen, "\x1b[{row};1H").unwrap();
        for col in 0..300 {
            write!(screen, "\x1b[38;2;{row};{};{}m#", col % 256, (row + col) % 256).unwrap();
        }
    }
    rig.slave().write_all(&screen).unwrap();
    let size = Some(Size { rows: 50, cols: 299 }.into());
    let streams = vec![Want { stream: Stream::Tty, from: Position::Now }];
    let watch = Hello { streams, size, redraw: Some(Redraw::Screen), ..Hello::default() };
    let watch = FrameKind::Hello.message(&watch);
    let see = || {
        let mut one = rig.client("session");
        one.write_all(&watch).unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\x1b[?25h") {
            let mut piece = vec![0; 1 << 16];
            let len = one.read(&mut piece).unwrap();
            assert!(len > 0);
            got.extend_from_slice(&piece[..len]);
        }
        got.len()
    };
    // A screen may come before all that was printed is on it.
    eventually("the screen is seen", || see() > screen.len() / 2);
    let crowd = Crowd::come(&rig, MANY, "session", (0, VIEWERS), &watch);
    for _ in 0..3 {
        rig.slave().write_all(b"\x1b[Hagain").unwrap();
        eventually("the screen is seen", || see() > screen.len() / 2);
    }
    // All of them are there still.
    let clients = rig.status()["clients"].as_array().unwrap().len() as u64;
    assert!(clients + rig.status()["unlisted"].as_u64().unwrap_or(0) >= VIEWERS as u64);
    drop(crowd);
    drop(mux);
}

#[test]
fn lines_that_clients_cause_do_not_fill_the_log() {
    let Some(rig) = shared_rig() else { return };
    let mut mux = rig.mux(["stream", "--app", APP, "--allow-uid", MANY]);
    let request = FrameKind::Request
        .message(&serde_json::json!({"request": "detach", "client": 1_000_000_000_u64}));
    let says = [hello(Stream::Stdout), request.repeat(20)].concat();
    // Attached, asking, detached; refused; and what is no hello.
    Crowd::come(&rig, MANY, "session", (1000, 0), &says);
    Crowd::come(&rig, MANY, "stdout", (1000, 0), b"");
    Crowd::come(&rig, ONE, "session", (1000, 0), &says);
    Crowd::come(&rig, MANY, "session", (1000, 0), &FrameKind::StdinEof.frame(b""));
    eventually("all have gone", || rig.status()["clients"].as_array().unwrap().is_empty());
    // What root does is logged all the same.
    let client = rig.client("stdout");
    mux.stderr.wait_for("uid=0 ");
    drop(client);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    let said = mux.stderr.text();
    let lines = said.lines().count();
    assert!(said.contains("lines about "), "{said}");
    // Four kinds, and as long as that may take.
    assert!(lines < 400, "{lines} lines");
}
