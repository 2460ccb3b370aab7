//! Whatever an app prints and a terminal replies: the screen stays, small, and the same however it is cut.
//!
//! The long form measures what an input costs, too. `IOTTYMUX_SEED` repeats a run.

use std::fs;
use std::time::{Duration, Instant};

use iottymux::screen::Screen;
use iottymux::screen::modes::ScreenModes;
use iottymux::screen::query::Strip;
use iottymux::screen::replies::Replies;
use iottymux::screen::scan::Scanner;
use iottymux::types::limits;
use iottymux::types::size::Size;
use nix::time::{ClockId, clock_gettime};

use crate::form::is_long;
use crate::pattern::volume;
use crate::random::{Random, seed};

/// Sequences that are printed between two looks at everything.
const ROUND: usize = 500;
/// Memory that may be added to what the first rounds have used, KiB: of both subjects a screen of the largest
/// size, what is kept for when the window is as large again, and what making that takes for a moment. And
/// the lines that scrolled off.
const GROWTH: usize = 2 * (4 * 64 * limits::CELLS + limits::SCROLLBACK) / 1024;
/// Rounds between two inputs whose cost is measured.
const MEASURED: usize = 16;
/// Bytes of such an input.
const INPUT: usize = 64 * 1024;
/// What it may cost: time of a processor, in a release build.
const COST: Duration = Duration::from_millis(50);
/// Kinds of input, see [`print_kind`].
const KINDS: [&str; 20] = [
    "text",
    "text",
    "text",
    "text",
    "text",
    "text",
    "odd characters",
    "odd characters",
    "controls",
    "controls",
    "control sequences",
    "control sequences",
    "control sequences",
    "control sequences",
    "modes",
    "modes",
    "escapes",
    "strings",
    "replies",
    "random bytes",
];

/// Everything that the bytes of one terminal go through.
struct Subject {
    screen: Screen,
    strip: Strip,
    scanner: Scanner,
    modes: ScreenModes,
    replies: Replies,
    now: Instant,
    /// The time of a processor that the screen has taken for the last bytes.
    cost: Duration,
}

impl Subject {
    fn new(size: Size, now: Instant) -> Self {
        Self {
            screen: Screen::new(size).keeping(limits::SCROLLBACK_LINES),
            strip: Strip::default(),
            scanner: Scanner::default(),
            modes: ScreenModes::default(),
            replies: Replies::default(),
            now,
            cost: Duration::ZERO,
        }
    }

    /// Shows and types bytes in these pieces; returns what is the same however they are cut.
    fn take(&mut self, pieces: &[&[u8]]) -> Outcome {
        let (mut asked, mut shown, mut typed) = (Vec::new(), Vec::new(), Vec::new());
        self.cost = Duration::ZERO;
        for piece in pieces {
            let before = processor_time();
            self.screen.process(piece);
            self.cost += processor_time().saturating_sub(before);
            asked.extend(self.screen.queries());
            self.strip.push(piece, &mut shown);
            self.replies.filter(piece, self.now, &mut typed);
            let mut at = 0;
            while let Some(piece) = self.scanner.next(piece, &mut at) {
                self.modes.read(piece);
            }
        }
        for asked in &asked {
            let answer = self.screen.answer(asked).unwrap_or_default();
            assert!(answer.len() <= 64, "{asked:?}");
        }
        let undo = self.modes.undo(80);
        assert_eq!(undo, self.screen.modes().undo(80));
        Outcome { asked: asked.len(), shown, typed, undo }
    }
}

#[derive(PartialEq, Debug)]
struct Outcome {
    asked: usize,
    shown: Vec<u8>,
    typed: Vec<u8>,
    undo: String,
}

#[test]
fn the_screen_is_above_it() {
    let seed = seed();
    let mut random = Random::new(seed);
    let rounds = volume(20_000, 10_000_000) / ROUND;
    let now = Instant::now();
    let mut size = Size { rows: 24, cols: 80 };
    let (mut whole, mut cut) = (Subject::new(size, now), Subject::new(size, now));
    let mut early = None;
    let began = Instant::now();
    let (mut longest, mut slowest) = (0, (Duration::ZERO, String::new()));
    for round in 0..rounds {
        if random.one_in(4) {
            let edge = [1, 2, 24, 80, 200, 1000, u16::MAX];
            size = Size { rows: random.pick(&edge), cols: random.pick(&edge) };
            // Most are small: the largest take their time.
            if random.one_in(2) {
                size = Size {
                    rows: 1 + u16::from(random.byte() % 50),
                    cols: 1 + u16::from(random.byte()),
                };
            }
            for subject in [&mut whole, &mut cut] {
                subject.screen.resize(size);
                subject.modes.resized();
            }
        }
        let mut bytes = Vec::new();
        let sequences = if usize::from(size.rows) * usize::from(size.cols) > 50_000 {
            ROUND / 50
        } else {
            ROUND
        };
        (0..sequences).for_each(|_| print(&mut random, &mut bytes));
        let outcome = whole.take(&[&bytes]);
        if outcome.asked < limits::QUERIES {
            let mut pieces = random.cut(&bytes);
            if random.one_in(8) {
                pieces = bytes.chunks(1 + random.below(7)).collect();
            }
            assert_eq!(cut.take(&pieces), outcome, "seed {seed} round {round}");
        } else {
            cut.take(&[&bytes]);
        }
        let window = Size { rows: u16::from(random.byte()), cols: u16::from(random.byte()) };
        let redraw = whole.screen.redraw(window);
        assert!(redraw == cut.screen.redraw(window), "seed {seed} round {round}");
        longest = longest.max(redraw.len());
        // Queries that this client is to answer, or another.
        for asked in whole.screen.queries().chain(cut.screen.queries()).take(4) {
            whole.replies.expect(asked.query, true, now);
        }
        if round == rounds / 20 {
            early = Some(memory());
        }
        if is_long() && round % MEASURED == 0 {
            let (kind, input) = input(&mut random);
            whole.take(&[&input]);
            cut.take(&[&input]);
            // The same work twice: what else this processor did is not in the faster one.
            let took = whole.cost.min(cut.cost);
            if took > slowest.0 {
                slowest = (took, format!("{kind} in {size}, round {round}"));
            }
        }
    }
    let (early, late) = (early.unwrap(), memory());
    println!(
        "{} sequences in {:.1?}, memory {early} KiB early, {late} KiB late, longest redraw {longest}",
        rounds * ROUND,
        began.elapsed()
    );
    let (took, input) = slowest;
    if is_long() {
        println!("slowest 64 KiB: {took:.1?} of a processor, {input}");
    }
    assert!(took <= COST || cfg!(debug_assertions), "seed {seed}: {took:.1?} for {input}");
    assert!(late <= early + GROWTH, "it grew from {early} to {late} KiB");
}

/// The memory of this process, KiB.
fn memory() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// An input of one kind, or of all kinds, or of two things in turns.
fn input(random: &mut Random) -> (&'static str, Vec<u8>) {
    let (name, mut bytes) = match random.below(3) {
        0 => {
            let kind = random.below(KINDS.len());
            let mut bytes = Vec::new();
            while bytes.len() < INPUT {
                print_kind(kind, random, &mut bytes);
            }
            (KINDS[kind], bytes)
        }
        1 => {
            let mut bytes = Vec::new();
            while bytes.len() < INPUT {
                print(random, &mut bytes);
            }
            ("all kinds", bytes)
        }
        _ => {
            let mut turn = Vec::new();
            let kind = 10 + random.below(7);
            print_kind(kind, random, &mut turn);
            print(random, &mut turn);
            let times = INPUT.div_ceil(turn.len().max(1));
            ("one sequence in turns with another input", turn.repeat(times))
        }
    };
    bytes.truncate(INPUT);
    (name, bytes)
}

/// How long this thread has had a processor.
fn processor_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

/// Something that an app prints, or nearly so.
fn print(random: &mut Random, out: &mut Vec<u8>) {
    print_kind(random.below(KINDS.len()), random, out);
}

/// See [`KINDS`].
fn print_kind(kind: usize, random: &mut Random, out: &mut Vec<u8>) {
    match kind {
        0..=5 => {
            let text = b"the quick brown fox jumps over the lazy dog, again and again and again";
            out.extend_from_slice(&text[random.below(text.len())..]);
        }
        6..=7 => {
            let odd = [
                "漢",
                "字",
                "e\u{301}",
                "\u{301}",
                "é",
                "👩\u{200d}🚀",
                "❤\u{fe0f}",
                "\u{ad}",
                "\u{9b}",
                "\u{fffd}",
            ];
            out.extend_from_slice(random.pick(&odd).as_bytes());
        }
        8..=9 => out.push(random.pick(b"\r\n\n\n\t\x08\x0e\x0f\x07\x05\x0b\x0c\x00\x7f")),
        10..=13 => {
            out.extend_from_slice(b"\x1b[");
            if random.one_in(3) {
                out.push(random.pick(b"?><="));
            }
            for _ in 0..random.below(4) {
                let number = match random.below(8) {
                    0 => usize::from(u16::from(random.byte()) << 8 | u16::from(random.byte())),
                    1 => random.pick(&[38, 48, 58, 2, 5, 4]),
                    _ => random.below(60),
                };
                out.extend_from_slice(number.to_string().as_bytes());
                out.push(random.pick(b";;;;;;:"));
            }
            if random.one_in(10) {
                out.push(random.pick(b" !$*'"));
            }
            out.push(random.pick(b"@ABCDEFGHIJKLMPSTXZ`abcdefghlmmmmnpqrstuxy"));
        }
        14..=15 => {
            let modes = [
                1, 5, 6, 7, 9, 12, 25, 47, 66, 69, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1047,
                1048, 1049, 2004, 2026, 2048,
            ];
            let (mode, on) = (random.pick(&modes), random.pick(&['h', 'l']));
            out.extend_from_slice(format!("\x1b[?{mode}{on}").as_bytes());
        }
        16 => {
            let escapes =
                ["7", "8", "M", "D", "E", "c", "=", ">", "(0", "(B", ")0", "Z", "\\", "#8"];
            out.push(0x1b);
            out.extend_from_slice(random.pick(&escapes).as_bytes());
        }
        17 => {
            let begin = ["]2;", "]0;", "]11;?", "]52;c;", "P$q", "P+q", "_Ga=q", "^", "X", "Pq"];
            out.push(0x1b);
            out.extend_from_slice(random.pick(&begin).as_bytes());
            let len = if random.one_in(50) { 5000 } else { 20 };
            out.extend((0..random.below(len)).map(|_| b'x'));
            out.extend_from_slice(random.pick(&["\x07", "\x1b\\", "", "\x18"]).as_bytes());
        }
        18 => {
            let replies = [
                "\x1b[?62;22c",
                "\x1b[12;40R",
                "\x1b[0n",
                "\x1b]11;rgb:0/0/0\x07",
                "\x1bP1$r0m\x1b\\",
            ];
            out.extend_from_slice(random.pick(&replies).as_bytes());
        }
        _ => {
            let len = random.below(12);
            out.extend(random.bytes(len));
        }
    }
}
