//! Fixed work for the pure parts, so that a program can count its instructions. Nothing of the
//! binary uses it, so the binary does not contain it.
//!
//! Pure, apart from one look at the clock per piece of work, whose value changes nothing.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::client::attach::key_guard::Guard;
use crate::client::attach::keys::{Keys, Matcher, Sequence};
use crate::client::attach::sent::SentInput;
use crate::core::hub::input::queue::{self, InputMemory, InputQueue};
use crate::core::hub::input::{Input, Merge};
use crate::core::hub::memory::{self, Memory};
use crate::core::hub::{ClientId, Hub, Next, Room};
use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::FormatOptions;
use crate::core::logfmt::format;
use crate::core::logfmt::stamp::StampText;
use crate::core::wire::{Decoder, FrameKind, InputId, InputPosition};
use crate::screen::Screen;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Position, Stream};
use crate::types::time::{Now, Stamp};

/// The names of the pieces of work, and what they do.
pub const ALL: [(&str, fn()); 12] = [
    ("hub-fan-out-16", hub_fan_out),
    ("input-queue", input_queue),
    ("log-cri", || log("cri")),
    ("log-json-file", || log("json-file")),
    ("log-raw", || log("raw")),
    ("session-frames", session_frames),
    ("screen-plain", || screen(&lines(false), PRINTED)),
    ("screen-coloured", || screen(&lines(true), PRINTED)),
    ("screen-flood", || screen(&[&lines(true)[..], b"\x1b[?25h"].concat().repeat(8), FLOOD)),
    ("keys-typed", || keys(b"ls -l /tmp\r", 1)),
    ("keys-pasted", || keys(&lines(false), 4096)),
    ("input-piped", input_piped),
];

/// Turns of each piece of work: some ten million instructions.
const TURNS: usize = 100;
const CLIENTS: u64 = 16;
const BACKLOG: usize = 256 * 1024;
/// Bytes that an app writes at once, and a terminal passes on at once.
const WRITTEN: usize = 16 * 1024;
const PRINTED: usize = 4096;
/// Bytes that a screen gets at once while an app prints without a pause.
const FLOOD: usize = 60 * 1024;
const FRAMES: usize = 1000;
const LINE_LIMIT: usize = 16 * 1024;
const SIZE: Size = Size { rows: 24, cols: 80 };

/// Lines of a program, about 50 KiB.
fn lines(coloured: bool) -> Vec<u8> {
    let rest = "the quick brown fox jumps over the lazy dog";
    let line = |n: usize| {
        if coloured {
            format!("\x1b[1;{}m{n:06}\x1b[0m {rest}\r\n", 30 + n % 8)
        } else {
            format!("{n:06} {rest}\r\n")
        }
    };
    (0..1000).map(line).collect::<String>().into_bytes()
}

fn words(count: usize) -> &'static [AtomicU64] {
    (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
}

fn hub_fan_out() {
    let streams = [Stream::Stdout];
    let rings = vec![0; memory::rings_len(&streams, BACKLOG)].leak();
    let memory = Memory { words: words(memory::WORDS), rings };
    let mut hub = Hub::new(&streams, BACKLOG, memory, Epoch(1));
    let clients: Vec<ClientId> = (0..CLIENTS).map(|_| hub.join(Duration::from_secs(1))).collect();
    for id in &clients {
        hub.subscribe(*id, Stream::Stdout, Position::Now);
    }
    let now = Now { at: Instant::now(), stamp: Stamp(1) };
    for _ in 0..20 * TURNS {
        let Room::Free(room) = hub.make_room(Stream::Stdout, now.at) else { return };
        hub.commit(Stream::Stdout, room.min(WRITTEN), now);
        for id in &clients {
            while let Some(Next::Bytes(stream, range)) = hub.next(*id, limits::FRAME) {
                let len = hub.bytes(stream, range).iter().map(|part| part.len()).sum();
                hub.accepted(*id, stream, len);
            }
        }
    }
    black_box(hub.slowest(Stream::Stdout));
}

fn input_queue() {
    let memory = InputMemory { words: words(queue::WORDS), ring: vec![0; queue::RING].leak() };
    let now = Instant::now();
    let mut input = Input::new(InputQueue::open(memory, None), now);
    let clients = [ClientId(1), ClientId(2)];
    for id in clients {
        input.join(id, Merge::Lines, 0, Right::Own);
    }
    let text = lines(false);
    for _ in 0..TURNS / 4 {
        // Both in turns, each with lines and a half one.
        for (at, piece) in text.chunks(100).enumerate() {
            input.push(clients[at % 2], piece, now);
            let rest = input.queue.rest();
            let len = input.queue.bytes(rest).iter().map(|part| part.len()).sum();
            input.queue.announce(len);
            input.queue.deliver(len);
            input.advance(now);
        }
    }
    black_box(input.queue.end());
}

fn log(name: &str) {
    let Some(format) = format::find(name) else { return };
    let mut encoder = format.encoder(&FormatOptions::default());
    let mut splitter = encoder.splitter(LINE_LIMIT);
    let text = lines(true);
    let mut memory = vec![0; text.len() * 8];
    let mut out = Buffer::new(&mut memory);
    for _ in 0..TURNS {
        out.clear();
        for piece in text.chunks(WRITTEN) {
            let stamp = StampText::new(Stamp(1_500_000_000_000_000_000));
            let mut rest = piece;
            while let Some(entry) = splitter.next(Stream::Stdout, &mut rest) {
                encoder.encode(&mut out, &stamp, &entry);
            }
        }
        black_box(&out[..]);
    }
}

fn session_frames() {
    let mut bytes = Vec::new();
    for n in 0..FRAMES {
        bytes.extend(FrameKind::of(Stream::Stdout).frame(&vec![b'x'; n]));
    }
    let mut decoder = Decoder::default();
    for _ in 0..TURNS / 4 {
        for mut rest in bytes.chunks(PRINTED) {
            while let Ok(Some(item)) = decoder.next(&mut rest) {
                black_box(&item);
            }
        }
        for n in 0..FRAMES {
            black_box(FrameKind::of(Stream::Stdout).header(black_box(n)));
        }
    }
}

fn screen(text: &[u8], at_once: usize) {
    let mut screen = Screen::new(SIZE).keeping(limits::SCROLLBACK_LINES);
    for _ in 0..TURNS / 10 {
        text.chunks(at_once).for_each(|piece| screen.process(black_box(piece)));
    }
    black_box(screen.redraw(SIZE));
}

/// Input of a person, or pasted, and now and then the first detach key, which goes on.
fn keys(typed: &[u8], at_once: usize) {
    let mut matcher = Matcher::new(Keys::new(&Sequence::default(), true));
    let now = Instant::now();
    let mut out = Vec::new();
    let turns = TURNS * 64 * 1024 / typed.len() / if at_once == 1 { 16 } else { 1 };
    for _ in 0..turns {
        out.clear();
        for piece in typed.chunks(at_once).chain([&b"\x10x"[..]]) {
            matcher.push(black_box(piece), now, &mut out);
        }
        black_box(&out);
    }
}

/// What `attach` does with the input of a program: no byte of it is looked at.
fn input_piped() {
    let (mut guard, now) = (Guard::new(false), Instant::now());
    let mut sent = SentInput::new(InputId(Epoch(1)), InputPosition { offset: 0, unknown: 0 });
    let piece = lines(false);
    for turn in 1..=TURNS as u64 * 64 {
        let (passed, ..) = guard.pass(black_box(&piece), now);
        sent.push(passed);
        sent.on_queued(turn * piece.len() as u64);
    }
    black_box(sent.len());
}
