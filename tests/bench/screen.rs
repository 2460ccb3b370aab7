//! What the screen of a terminal costs, beside another emulator (the vt100 crate) with the same bytes, in turns.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use iottymux::core::screen::Screen;
use iottymux::core::screen::modes::ScreenModes;
use iottymux::core::screen::scan::Scanner;
use iottymux::types::size::Size;

use super::table::median;

const SIZE: Size = Size { rows: 24, cols: 80 };
/// Bytes of one piece, as the mux passes them on.
const PIECE: usize = 16 * 1024;
/// Bytes that are shown in one turn.
const TURN: usize = 4 << 20;
const ROUNDS: usize = 15;

/// Measures these recordings of programs, after some that are made here.
pub fn bench(recordings: &[&str]) {
    let lines = |line: fn(usize) -> String| (0..1000).map(line).collect::<String>().into_bytes();
    let plain = lines(|n| {
        format!("{n:06} the quick brown fox jumps over the lazy dog, again and again\r\n")
    });
    let coloured = lines(|n| {
        let colour = 30 + n % 8;
        format!(
            "\x1b[1;{colour}m{n:06}\x1b[0m the \x1b[38;5;{}mquick\x1b[m brown \x1b[4mfox\x1b[24m jumps\r\n",
            n % 256
        )
    });
    let unicode = lines(|n| {
        format!(
            "{n:06} Gr\u{f6}\u{df}e \u{fc}ber \u{d6}l, \u{6f22}\u{5b57}\u{304b}\u{306a} \u{438} \u{43f}\u{440}\u{43e}\u{447}\u{435}\u{435}\r\n"
        )
    });
    let full = lines(|n| {
        format!("\x1b[{};{}H\x1b[38;5;{}mword {n}\x1b[K", n % 24 + 1, n * 7 % 60, n % 256)
    });
    // Nothing of it is skipped.
    let region = |lines: &[u8]| [b"\x1b[1;23r", lines].concat();
    measure("plain lines", &plain);
    measure("coloured lines", &coloured);
    measure("unicode lines", &unicode);
    measure("plain lines in a region", &region(&plain));
    measure("coloured lines in a region", &region(&coloured));
    measure("unicode lines in a region", &region(&unicode));
    measure("a full-screen program", &full);
    for path in recordings {
        measure(path, &fs::read(path).unwrap());
    }
}

fn measure(name: &str, bytes: &[u8]) {
    let bytes = bytes.repeat(TURN.div_ceil(bytes.len()));
    let mut times = [const { Vec::new() }; 3];
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let turn = [emulator(&bytes), screen(&bytes), modes(&bytes)];
        ratios.push(turn[0].as_secs_f64() / turn[1].as_secs_f64());
        for (times, time) in times.iter_mut().zip(turn) {
            times.push(f64::from(u32::try_from(bytes.len()).unwrap()) / time.as_secs_f64() / 1e6);
        }
    }
    let [emulator, screen, modes] = times.map(median);
    println!(
        "{name}: vt100 {emulator:.0} MB/s, screen {screen:.0} MB/s ({:.2}x), modes alone {modes:.0} MB/s",
        median(ratios)
    );
}

fn emulator(bytes: &[u8]) -> Duration {
    let number = |n| std::num::NonZeroU16::new(n).unwrap();
    let mut parser = vt100::Parser::new(number(SIZE.rows), number(SIZE.cols), 0);
    let began = Instant::now();
    bytes.chunks(PIECE).for_each(|piece| parser.process(black_box(piece)));
    began.elapsed()
}

fn screen(bytes: &[u8]) -> Duration {
    let mut screen = Screen::new(SIZE);
    let began = Instant::now();
    for piece in bytes.chunks(PIECE) {
        screen.process(black_box(piece));
        black_box(screen.queries().count());
    }
    began.elapsed()
}

fn modes(bytes: &[u8]) -> Duration {
    let (mut scanner, mut modes) = (Scanner::default(), ScreenModes::default());
    let began = Instant::now();
    for piece in bytes.chunks(PIECE) {
        let mut at = 0;
        while let Some(piece) = scanner.next(black_box(piece), &mut at) {
            modes.read(piece);
        }
    }
    black_box(modes.undo());
    began.elapsed()
}
