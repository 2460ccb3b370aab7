//! A crowd at one app: readers, laggards, sleepers and passers-by, each with its due and none in the
//! way of another. It also prints how long the app took with and without them. The app writes text,
//! for of other bytes attach shows on a terminal more or fewer than have come.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iottymux::core::wire::{FrameKind, PlaceReport};
use iottymux::types::stream::{Position, Stream};
use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};

use crate::pair::pair;
use crate::pattern::{self, TEXT, volume};
use crate::peer::{Account, Asker, hello};
use crate::proc::{Proc, eventually};
use crate::random::{Random, seed};
use crate::rig::{APP, Rig};

/// Bytes that the app writes between two reads of the slow viewer, and how many it reads then.
const STEP: usize = 256 << 10;
const SIP: usize = 4096;
/// Bytes that the app writes before anything is weighed: more than a ring, and whole periods, so that
/// the pattern begins anew behind them.
const EARLY: usize = 32 * pattern::PERIOD;
/// Memory that a crowd may leave behind in the mux, KiB.
const GROWTH: usize = 1024;
/// How long the app may be held back by all of the crowd: the sleeper, the viewer and the two that
/// never read for a patience of one second each, and those that pass by, together, for one more.
const HELD_BACK: Duration = Duration::from_secs(5);
/// How many times slower the mux may be with the crowd, beside that: it also reads for the passers-by,
/// and the machine may be busier than it was with one reader. A mux that waits for a client at each of
/// the app's writes takes a hundred times as long.
const SLOWER: u32 = 10;

/// An attach into a pipe that a thread reads, checking every byte.
fn counted(rig: &Rig) -> (Proc, JoinHandle<usize>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let attach = attach_to(rig, writer.into());
    (attach, thread::spawn(move || TEXT.read(reader, 1 << 16)))
}

/// An attach into a pipe that a thread counts.
fn tallied(
    rig: &Rig,
    reader: impl Read + Send + 'static,
    to: OwnedFd,
) -> (Proc, JoinHandle<usize>) {
    let attach = attach_to(rig, to);
    let tally = || {
        let mut reader = reader;
        let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
        // A terminal ends with an error.
        while let Ok(len @ 1..) = reader.read(&mut buffer) {
            got += len;
        }
        got
    };
    (attach, thread::spawn(tally))
}

fn attach_to(rig: &Rig, to: OwnedFd) -> Proc {
    let mut command = rig.command(["attach", "--app", APP, "--mode", "stdout"]);
    command.stdout(to).stdin(Stdio::null());
    Proc::spawn(command)
}

/// A terminal behind a slow link: of what comes it takes a sip at each pulse, and all at the end.
struct Slow {
    master: File,
    pulses: Receiver<()>,
}

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = if self.pulses.recv().is_ok() { SIP } else { buffer.len() };
        self.master.read(&mut buffer[..len])
    }
}

/// What an attach has told missing in its last words, and that it was all it said.
fn told_missing(attach: &Proc) -> usize {
    let said = attach.stderr.text();
    // Before it each gap was told when it was over.
    let mut lines = said.lines();
    let last = lines.next_back().unwrap_or_default();
    assert!(lines.all(|line| line.ends_with("were lost here: this output is slow")), "{said}");
    let told = last.strip_prefix("iottymux: attached to app demo: ");
    let told = told.and_then(|t| t.strip_suffix(" bytes were lost: this client was too slow"));
    told.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

/// Where the client of this number stands on stdout.
fn place(asker: &Asker, id: u64) -> PlaceReport {
    let report = asker.report();
    report.clients.iter().find(|client| client.client == id).unwrap().streams[0]
}

/// The number of the client that came last, which reads stdout.
fn newest(asker: &Asker, count: usize) -> u64 {
    let ids = || {
        let reads = asker.report().clients;
        reads.into_iter().filter(|c| !c.streams.is_empty()).map(|c| c.client).collect::<Vec<_>>()
    };
    eventually("it is attached", || ids().len() == count);
    *ids().last().unwrap()
}

/// A mux whose ring is full, and everything in it seen; the app's output.
fn warm(rig: &Rig) -> (Proc, File, Asker) {
    let (mux, app, asker) = (rig.stream(), rig.writer("stdout"), Asker::new(rig));
    let client = rig.client("stdout");
    let reading = thread::spawn(move || TEXT.read(client.take(EARLY as u64), 1 << 16));
    TEXT.write(&app, EARLY);
    assert_eq!(reading.join().unwrap(), EARLY);
    eventually("the first is let go", || asker.report().clients.len() == 1);
    (mux, app, asker)
}

/// Clients that come and go again, by raw sockets and by the other one.
fn pass_by(rig: &Rig, count: usize) {
    for number in 0..count {
        match number % 3 {
            0 => drop(rig.client("stdout")),
            1 => drop(rig.client("session")),
            _ => {
                let mut session = rig.client("session");
                session.write_all(&hello(Stream::Stdout, Position::Start, None)).unwrap();
            }
        }
    }
}

/// Reads what a raw client gets until it has caught up; how many bytes.
fn read_all_of(mut socket: &UnixStream, asker: &Asker, id: u64) -> usize {
    let mut got = 0;
    loop {
        let place = place(asker, id);
        let sent = usize::try_from(place.position - place.lost).unwrap() - EARLY;
        if place.lag == 0 && got == sent {
            return got;
        }
        socket.read_exact(&mut vec![0; sent - got]).unwrap();
        got = sent;
    }
}

/// How long the app takes for `len` bytes with one good reader alone.
fn alone(len: usize) -> Duration {
    let rig = Rig::new();
    let (mut mux, app, asker) = warm(&rig);
    let (mut attach, reading) = counted(&rig);
    newest(&asker, 1);
    let began = Instant::now();
    TEXT.write(app, len);
    let took = began.elapsed();
    mux.signal(Signal::SIGTERM);
    assert_eq!((attach.ends(), reading.join().unwrap(), mux.ends()), (0, len, 0));
    took
}

#[test]
fn a_crowd_gets_its_due_and_delays_the_app_only_for_its_patience() {
    let len = volume(64 << 20, 1 << 30);
    let passing = volume(1000, 10_000);
    let asleep = Duration::from_secs(volume(0, 10) as u64);
    let alone = alone(len);

    let rig = Rig::new();
    let (mut mux, app, asker) = warm(&rig);
    let (mut whole, whole_reads) = counted(&rig);
    newest(&asker, 1);
    let (reader, writer) = std::io::pipe().unwrap();
    let (mut sleeper, sleeper_reads) = tallied(&rig, reader, writer.into());
    let sleeper_id = newest(&asker, 2);
    let (master, slave) = pair();
    let mut modes = tcgetattr(&slave).unwrap();
    cfmakeraw(&mut modes);
    tcsetattr(&slave, SetArg::TCSANOW, &modes).unwrap();
    let (pulse, pulses) = channel();
    let (mut viewer, viewer_reads) = tallied(&rig, Slow { master, pulses }, slave.into());
    let viewer_id = newest(&asker, 3);
    let lazy_raw = rig.client("stdout");
    let lazy_id = newest(&asker, 4);
    let mut lazy = rig.client("session");
    lazy.write_all(&hello(Stream::Stdout, Position::Unseen, None)).unwrap();
    newest(&asker, 5);
    mux.rests();
    let (memory, descriptors) = (mux.memory(), mux.descriptors());

    let took = thread::scope(|scope| {
        let passers = scope.spawn(|| pass_by(&rig, passing));
        let began = Instant::now();
        let mut done = 0;
        while done < len {
            if done == len / 4 / STEP * STEP {
                sleeper.signal(Signal::SIGSTOP);
                sleeper.wait_stopped();
            }
            let next = len.min(done + STEP);
            TEXT.write_from(&app, EARLY + done, EARLY + next);
            done = next;
            pulse.send(()).unwrap();
        }
        let took = began.elapsed();
        // The sleeper has been passed over long ago; nobody waits while it sleeps on.
        assert!(place(&asker, sleeper_id).lost > 0);
        thread::sleep(asleep.saturating_sub(began.elapsed()));
        sleeper.go_on();
        passers.join().unwrap();
        took
    });
    println!("{len} bytes: {alone:.2?} with one reader alone, {took:.2?} with the crowd");
    assert!(took <= alone * SLOWER + HELD_BACK, "{took:.2?} instead of {alone:.2?}");

    // They catch up: the viewer as soon as its link is a fast one.
    drop(pulse);
    for id in [sleeper_id, viewer_id] {
        eventually("it has caught up", || place(&asker, id).lag == 0);
        assert!(place(&asker, id).lost > 0);
    }
    // Those who never read have got as much as their sockets hold, and are told of the rest.
    let mut account = Account::new(Stream::Stdout, EARLY, false);
    account.pattern = &TEXT;
    account.read_until(&lazy, EARLY + len);
    assert_eq!(account.at, EARLY + len);
    assert!(account.lost > 0);
    let got = read_all_of(&lazy_raw, &asker, lazy_id);
    assert_eq!(got + usize::try_from(place(&asker, lazy_id).lost).unwrap(), len);
    assert!(got < len);
    drop((lazy, lazy_raw));

    eventually("all others are gone", || mux.descriptors() == descriptors - 2);
    mux.rests();
    let after = mux.memory();
    println!("memory of the mux: {memory} KiB before, {after} KiB after");
    drop(app);
    mux.signal(Signal::SIGTERM);
    assert_eq!((whole.ends(), whole_reads.join().unwrap()), (0, len));
    assert_eq!(whole.stderr.text(), "");
    for (attach, reads) in [(&mut sleeper, sleeper_reads), (&mut viewer, viewer_reads)] {
        assert_eq!(attach.ends(), 124);
        assert_eq!(reads.join().unwrap() + told_missing(attach), len);
    }
    assert_eq!(mux.ends(), 0);
    assert!(after <= memory + GROWTH, "it grew from {memory} to {after} KiB");
}

#[test]
fn a_viewer_that_is_killed_is_noticed_by_nobody() {
    let mut random = Random::new(seed());
    let rig = Rig::new();
    let (mut mux, app, asker) = warm(&rig);
    let mut honest = rig.client("session");
    honest.write_all(&hello(Stream::Stdout, Position::Now, None)).unwrap();
    newest(&asker, 1);
    let follow = move || {
        let mut account = Account::new(Stream::Stdout, EARLY, false);
        account.pattern = &TEXT;
        account.read_to_end(&honest);
        account
    };
    let following = thread::spawn(follow);
    let heard = rig.reader();
    let mut typist = rig.client("stdin");
    mux.rests();
    let (memory, descriptors) = (mux.memory(), mux.descriptors());

    let (over, is_over) = channel::<()>();
    let writing = thread::spawn(move || {
        let mut at = EARLY;
        while is_over.try_recv() != Err(TryRecvError::Disconnected) {
            TEXT.write_from(&app, at, at + SIP);
            at += SIP;
        }
        at
    });
    let mut typed = String::new();
    for round in 0..volume(30, 300) {
        let mut viewer = rig.attach(&["--mode", "stdin,stdout"]);
        let mut keys = viewer.stdin();
        // It types as long as it lives, and is at no line's end in particular.
        let typing = thread::spawn(move || while keys.write_all(b"vvvv\nvvv").is_ok() {});
        viewer.stdout.wait_len(random.below(1 << 18));
        let line = format!("{round};");
        typist.write_all(line.as_bytes()).unwrap();
        typist.write_all(b"\n").unwrap();
        typed.push_str(&line);
        viewer.signal(Signal::SIGKILL);
        assert_eq!(viewer.ends(), -9);
        typing.join().unwrap();
    }
    drop(over);
    let written = writing.join().unwrap();
    eventually("the killed are let go", || mux.descriptors() == descriptors);
    let own =
        || -> String { heard.so_far().chars().filter(|c| !matches!(c, 'v' | '\n')).collect() };
    eventually("all that was typed has come", || own().len() >= typed.len());
    assert_eq!(own(), typed);
    mux.rests();
    let after = mux.memory();
    mux.signal(Signal::SIGTERM);
    let account = following.join().unwrap();
    assert_eq!((account.at, account.lost, account.last), (written, 0, Some(FrameKind::Closing)));
    assert_eq!(mux.ends(), 0);
    assert!(after <= memory + GROWTH, "it grew from {memory} to {after} KiB");
}
