//! A mux among hostile clients: it lives, serves the others, and keeps nothing of them.
//!
//! `IOTTYMUX_SEED` repeats a run, `IOTTYMUX_FRAMES` says how long it is.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use iottymux::core::wire::{Decoder, FrameKind, Item};
use iottymux::types::limits;
use iottymux::types::stream::{Position, Stream};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};

use crate::hostile::{Script, decode, typed};
use crate::pattern::{self, volume};
use crate::peer::{Account, Asker, hello};
use crate::proc::{Proc, eventually};
use crate::random::{Random, seed};
use crate::rig::{APP, Rig};

/// Hostile clients at the same time, beside those that each keeps open.
const WORKERS: usize = 4;
/// Connections that a worker leaves open for a while.
const KEPT: usize = 8;
/// Bytes that the app writes, and frames that are sent, before anything is weighed: with so many all
/// that is kept is full.
const EARLY: usize = 300_000;
/// Bytes that the app then writes at once.
const FLOOD: usize = 8 << 20;
/// Bytes that the app writes for each hostile client.
const PIECE: usize = 1024;
/// Memory that a storm may leave behind, KiB, whatever the number of frames: what an allocator may
/// find no use for.
const GROWTH: usize = 1024;
/// The same where the app takes its input slowly, as a terminal does: all that may wait for it at a
/// time, in queues that double when they grow.
const GROWTH_OF_INPUT: usize =
    (limits::GONE_WRITERS + WORKERS * (KEPT + 1)) * 2 * limits::INPUT / 1024;

/// The most memory that the mux of a terminal may take at any time, KiB: screens that wait, input, and
/// models of the largest screen while they are laid out again.
const PEAK: usize = 64 * 1024;

/// Frames that hostile clients send in all tests together.
fn frames() -> u64 {
    std::env::var("IOTTYMUX_FRAMES").ok().map_or_else(
        || volume(100_000, 10_000_000) as u64,
        |text| text.parse().expect("IOTTYMUX_FRAMES is a number"),
    )
}

#[test]
fn any_split_of_hostile_bytes_means_the_same() {
    let mut random = Random::new(seed());
    let mut left = frames() / 2;
    while left > 0 {
        let script = Script::session(&mut random, &[1, 2]);
        let whole = decode([&script.bytes[..]]);
        assert!(decode(random.cut(&script.bytes)) == whole);
        assert!(decode(script.bytes.chunks(1)) == whole);
        left = left.saturating_sub(script.frames);
    }
}

#[test]
fn a_mux_of_streams_is_above_it() {
    survives("stream", Stream::Stdout, &["stdin", "stdout", "stderr"]);
}

#[test]
fn a_mux_of_a_terminal_is_above_it() {
    survives("tty", Stream::Tty, &["tty"]);
}

fn survives(kind: &str, stream: Stream, raw: &'static [&'static str]) {
    let (seed, frames) = (seed(), frames() / 2);
    let rig = Rig::new();
    // Nobody is passed over here, however slow this machine is.
    let mut mux = rig.mux([kind, "--app", APP, "--max-client-delay", "60"]);
    let app = if stream == Stream::Tty { rig.slave() } else { rig.writer(stream.name()) };
    let typed = if stream == Stream::Tty {
        app.try_clone().unwrap()
    } else {
        File::open(rig.path("stage2-stdin")).unwrap()
    };
    // The app takes whatever comes, until the mux is gone.
    let reading = thread::spawn(move || std::io::copy(&mut { typed }, &mut std::io::sink()));
    // Everything has been in use once before it is weighed.
    let mut written = Written::new(app);
    written.write(EARLY);
    storm(&Storm::new(&rig, raw, EARLY as u64, 0), &mut written, seed ^ u64::MAX);
    let asker = Asker::new(&rig);
    let alone = || {
        let report = asker.report();
        report.clients.len() == 1 && report.streams[0].bytes == written.len as u64
    };
    eventually("the first are let go", alone);
    let mut honest = rig.client("session");
    honest.write_all(&hello(stream, Position::Now, None)).unwrap();
    let mut account = Account::new(stream, written.len, false);
    let following = thread::spawn(move || {
        account.read_to_end(&honest);
        account
    });
    eventually("the honest one is there", || asker.report().clients.len() == 2);
    if stream != Stream::Tty {
        // Clients of pipes get large pieces in a way of their own, which needs descriptors.
        written.write(FLOOD);
    }
    let ids = || asker.report().clients.iter().map(|c| c.client).collect::<Vec<_>>();
    let before = ids();
    // The model of a screen weighs what its window does, and the last one of a storm is chance.
    let settle = |mux: &mut Proc| {
        if stream == Stream::Tty {
            let resized = rig.run(&["control", "--app", APP, "resize", "24x80"]).ends();
            assert_eq!(resized, 0);
        }
        mux.rests();
    };
    settle(&mut mux);
    let (memory, descriptors, began) = (mux.memory(), mux.descriptors(), Instant::now());
    storm(&Storm::new(&rig, raw, frames, before[1] + 1), &mut written, seed);
    let took = began.elapsed();
    // Which have gone is found out without a byte of the app.
    eventually("all are let go", || mux.descriptors() == descriptors);
    // What the mux has not read yet is no lag.
    let all = written.len as u64;
    eventually("the honest one has all", || {
        let report = asker.report();
        let at = &report.clients[1].streams[0];
        (at.position, at.lag) == (all, 0)
    });
    settle(&mut mux);
    let growth = if stream == Stream::Tty { GROWTH_OF_INPUT } else { GROWTH };
    // The thread of the screen gives its part back when it comes to that.
    eventually("the memory is given back", || mux.memory() <= memory + growth);
    let after = mux.memory();
    println!(
        "{kind}: {frames} frames in {took:.1?}, memory {memory} KiB before, {after} KiB after"
    );
    if stream == Stream::Tty {
        assert!(mux.peak() <= PEAK, "it took {} KiB", mux.peak());
    }
    assert_eq!(ids(), before);
    mux.signal(Signal::SIGTERM);
    let account = following.join().unwrap();
    assert_eq!(
        (account.at, account.lost, account.last),
        (written.len, 0, Some(FrameKind::Closing))
    );
    assert_eq!(mux.ends(), 0);
    assert_clean(&mux);
    drop(written);
    let _ = reading.join().unwrap();
}

/// What it said has no control characters, and nothing of it is about itself.
fn assert_clean(mux: &Proc) {
    let said = mux.stderr.text();
    for line in said.lines() {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(!line.contains("panicked") && !line.contains(": error: "), "{line}");
    }
}

/// The app's output so far.
struct Written {
    app: File,
    len: usize,
}

impl Written {
    fn new(app: File) -> Self {
        Self { app, len: 0 }
    }

    fn write(&mut self, len: usize) {
        pattern::write_from(&self.app, self.len, self.len + len);
        self.len += len;
    }
}

/// A number of frames from hostile clients, while the app writes on.
struct Storm<'a> {
    rig: &'a Rig,
    raw: &'static [&'static str],
    frames: u64,
    sent: AtomicU64,
    /// About the number of the next client; none below the first may be detached.
    first: u64,
    next: AtomicU64,
}

fn storm(storm: &Storm<'_>, written: &mut Written, seed: u64) {
    thread::scope(|scope| {
        let (pulse, pulses) = channel();
        for worker in 0..WORKERS {
            let pulse = pulse.clone();
            scope.spawn(move || storm.work(Random::new(seed ^ ((worker as u64) << 32)), &pulse));
        }
        drop(pulse);
        for () in pulses {
            written.write(PIECE);
        }
    });
}

impl<'a> Storm<'a> {
    fn new(rig: &'a Rig, raw: &'static [&'static str], frames: u64, first: u64) -> Self {
        Self { rig, raw, frames, sent: AtomicU64::new(0), first, next: AtomicU64::new(first) }
    }

    fn work(&self, mut random: Random, pulse: &Sender<()>) {
        let mut kept = Vec::new();
        while self.sent.load(Ordering::Relaxed) < self.frames {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let socket = if random.one_in(8) {
                self.raw_client(&mut random)
            } else {
                let detach: Vec<_> = (next.saturating_sub(8).max(self.first)..next + 8).collect();
                self.session(&mut random, &detach)
            };
            if random.one_in(4) {
                // The rest of the line that it may have begun is not waited for.
                let _ = socket.shutdown(Shutdown::Write);
                if kept.len() == KEPT {
                    kept.swap_remove(random.below(KEPT));
                }
                kept.push(socket);
            }
            pulse.send(()).unwrap();
        }
    }

    /// A raw client that sends what it likes, to whom it likes.
    fn raw_client(&self, random: &mut Random) -> UnixStream {
        let name = random.pick(self.raw);
        let mut socket = self.rig.client(name);
        let bytes = typed(random);
        // What outputs are sent is never read, so it must not fill the socket.
        let most = if name == "stdin" || name == "tty" { bytes.len() } else { 100 };
        let sent = send(random, &mut socket, &bytes[..bytes.len().min(most)]);
        if sent == Sent::All && name == "stdin" && random.one_in(2) {
            // Its end is answered when all is with the app.
            socket.shutdown(Shutdown::Write).unwrap();
            assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        }
        socket
    }

    fn session(&self, random: &mut Random, detach: &[u64]) -> UnixStream {
        let script = Script::session(random, detach);
        let mut socket = self.rig.client("session");
        let sent = send(random, &mut socket, &script.bytes);
        if matches!(sent, Sent::All | Sent::AndRead) {
            self.sent.fetch_add(script.frames, Ordering::Relaxed);
        }
        if matches!(sent, Sent::All | Sent::Refused) && random.one_in(2) {
            be_refused(&socket, &script.bytes);
        }
        socket
    }
}

/// What became of what a client wanted to send.
#[derive(PartialEq)]
enum Sent {
    All,
    /// All, and something of the answers has been read.
    AndRead,
    /// The mux has closed the connection before.
    Refused,
    /// The client has left in the middle.
    Left,
}

/// Sends in pieces.
fn send(random: &mut Random, socket: &mut UnixStream, bytes: &[u8]) -> Sent {
    let mut sent = Sent::All;
    for piece in random.cut(bytes) {
        if random.one_in(64) {
            let _ =
                socket.shutdown(random.pick(&[Shutdown::Write, Shutdown::Read, Shutdown::Both]));
            return Sent::Left;
        }
        if random.one_in(32) {
            let mut some = vec![0; random.below(10_000)];
            let _ = recv(socket.as_raw_fd(), &mut some, MsgFlags::MSG_DONTWAIT);
            sent = Sent::AndRead;
        }
        match socket.write_all(piece) {
            Ok(()) => {}
            // What it was told may be among what was read.
            Err(e) if e.kind() == ErrorKind::BrokenPipe && sent == Sent::AndRead => {
                return Sent::Left;
            }
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Sent::Refused,
            Err(e) => panic!("the mux does not read: {e}"),
        }
    }
    sent
}

/// Does what every mux refuses, and reads what it says to that or has said before.
fn be_refused(mut socket: &UnixStream, script: &[u8]) {
    let refused = FrameKind::Closing.frame(b"");
    let (items, end) = decode([script, &refused]);
    if end.is_ok() && items.last() != Some(&(FrameKind::Closing, Vec::new())) {
        // In the middle of a frame nothing more can be said.
        return;
    }
    // The door may be closed already.
    let _ = socket.write_all(&refused);
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 1 << 16];
    let mut last = None;
    let mut data = 0;
    loop {
        let len = match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => panic!("no answer to {}: {e}", script.escape_ascii()),
        };
        let mut bytes = &buffer[..len];
        while let Some(item) = decoder.next(&mut bytes).unwrap() {
            match item {
                Item::Data(_, bytes) | Item::Screen(bytes) => data += bytes.len(),
                Item::Control(kind, _) => last = Some(kind),
            }
        }
    }
    // Unless more waited for it than a socket holds.
    let told = matches!(last, Some(FrameKind::Error | FrameKind::Detached));
    assert!(
        told || data > 1 << 16,
        "told {last:?} and {data} bytes after {}",
        script.escape_ascii()
    );
}
