//! Whatever an app prints and a terminal replies: the screen stays, small, and the same however it is cut.
//!
//! `IOTTYMUX_SEED` repeats a run.

use std::fs;
use std::time::Instant;

use iottymux::core::screen::Screen;
use iottymux::core::screen::modes::ScreenModes;
use iottymux::core::screen::query::Strip;
use iottymux::core::screen::replies::Replies;
use iottymux::core::screen::scan::Scanner;
use iottymux::types::limits;
use iottymux::types::size::Size;

use crate::dice::{Dice, seed};
use crate::pattern::volume;

/// Sequences that are printed between two looks at everything.
const ROUND: usize = 500;
/// Memory that may be added to what the first rounds have used, KiB: of both subjects a screen of the largest
/// size, what is kept for when the window is as large again, and what making that takes for a moment. And
/// the lines that scrolled off.
const GROWTH: usize = 2 * (4 * 64 * limits::CELLS + limits::SCROLLBACK) / 1024;

/// Everything that the bytes of one terminal go through.
struct Subject {
    screen: Screen,
    strip: Strip,
    scanner: Scanner,
    modes: ScreenModes,
    replies: Replies,
    now: Instant,
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
        }
    }

    /// Shows and types bytes in these pieces; returns what is the same however they are cut.
    fn take(&mut self, pieces: &[&[u8]]) -> Outcome {
        let (mut asked, mut shown, mut typed) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            self.screen.process(piece);
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
    let mut dice = Dice::new(seed);
    let rounds = volume(20_000, 10_000_000) / ROUND;
    let now = Instant::now();
    let mut size = Size { rows: 24, cols: 80 };
    let (mut whole, mut cut) = (Subject::new(size, now), Subject::new(size, now));
    let mut early = None;
    let began = Instant::now();
    let mut longest = 0;
    for round in 0..rounds {
        if dice.one_in(4) {
            let edge = [1, 2, 24, 80, 200, 1000, u16::MAX];
            size = Size { rows: dice.pick(&edge), cols: dice.pick(&edge) };
            // Most are small: the largest take their time.
            if dice.one_in(2) {
                size = Size {
                    rows: 1 + u16::from(dice.byte() % 50),
                    cols: 1 + u16::from(dice.byte()),
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
        (0..sequences).for_each(|_| print(&mut dice, &mut bytes));
        let outcome = whole.take(&[&bytes]);
        if outcome.asked < limits::QUERIES {
            let mut pieces = dice.cut(&bytes);
            if dice.one_in(8) {
                pieces = bytes.chunks(1 + dice.below(7)).collect();
            }
            assert_eq!(cut.take(&pieces), outcome, "seed {seed} round {round}");
        } else {
            cut.take(&[&bytes]);
        }
        let window = Size { rows: u16::from(dice.byte()), cols: u16::from(dice.byte()) };
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
    }
    let (early, late) = (early.unwrap(), memory());
    println!(
        "{} sequences in {:.1?}, memory {early} KiB early, {late} KiB late, longest redraw {longest}",
        rounds * ROUND,
        began.elapsed()
    );
    assert!(late <= early + GROWTH, "it grew from {early} to {late} KiB");
}

/// The memory of this process, KiB.
fn memory() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Something that an app prints, or nearly so.
fn print(dice: &mut Dice, out: &mut Vec<u8>) {
    match dice.below(20) {
        0..=5 => {
            let text = b"the quick brown fox jumps over the lazy dog, again and again and again";
            out.extend_from_slice(&text[dice.below(text.len())..]);
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
            out.extend_from_slice(dice.pick(&odd).as_bytes());
        }
        8..=9 => out.push(dice.pick(b"\r\n\n\n\t\x08\x0e\x0f\x07\x05\x0b\x0c\x00\x7f")),
        10..=13 => {
            out.extend_from_slice(b"\x1b[");
            if dice.one_in(3) {
                out.push(dice.pick(b"?><="));
            }
            for _ in 0..dice.below(4) {
                let number = match dice.below(8) {
                    0 => usize::from(u16::from(dice.byte()) << 8 | u16::from(dice.byte())),
                    1 => dice.pick(&[38, 48, 58, 2, 5, 4]),
                    _ => dice.below(60),
                };
                out.extend_from_slice(number.to_string().as_bytes());
                out.push(dice.pick(b";;;;;;:"));
            }
            if dice.one_in(10) {
                out.push(dice.pick(b" !$*'"));
            }
            out.push(dice.pick(b"@ABCDEFGHIJKLMPSTXZ`abcdefghlmmmmnpqrstuxy"));
        }
        14..=15 => {
            let modes = [
                1, 5, 6, 7, 9, 12, 25, 47, 66, 69, 1000, 1002, 1003, 1004, 1005, 1006, 1047, 1048,
                1049, 2004, 2026,
            ];
            let (mode, on) = (dice.pick(&modes), dice.pick(&['h', 'l']));
            out.extend_from_slice(format!("\x1b[?{mode}{on}").as_bytes());
        }
        16 => {
            let escapes =
                ["7", "8", "M", "D", "E", "c", "=", ">", "(0", "(B", ")0", "Z", "\\", "#8"];
            out.push(0x1b);
            out.extend_from_slice(dice.pick(&escapes).as_bytes());
        }
        17 => {
            let begin = ["]2;", "]0;", "]11;?", "]52;c;", "P$q", "P+q", "_Ga=q", "^", "X", "Pq"];
            out.push(0x1b);
            out.extend_from_slice(dice.pick(&begin).as_bytes());
            let len = if dice.one_in(50) { 5000 } else { 20 };
            out.extend((0..dice.below(len)).map(|_| b'x'));
            out.extend_from_slice(dice.pick(&["\x07", "\x1b\\", "", "\x18"]).as_bytes());
        }
        18 => {
            let replies = [
                "\x1b[?62;22c",
                "\x1b[12;40R",
                "\x1b[0n",
                "\x1b]11;rgb:0/0/0\x07",
                "\x1bP1$r0m\x1b\\",
            ];
            out.extend_from_slice(dice.pick(&replies).as_bytes());
        }
        _ => {
            let len = dice.below(12);
            out.extend(dice.bytes(len));
        }
    }
}
