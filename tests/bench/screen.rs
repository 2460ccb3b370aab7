//! What the screen of a terminal costs, beside another emulator (the vt100 crate) with the same bytes, in turns.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use iottymux::screen::Screen;
use iottymux::screen::modes::ScreenModes;
use iottymux::screen::scan::Scanner;
use iottymux::types::limits;
use iottymux::types::size::Size;

use super::sample::median;

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
    worst();
    for path in recordings {
        measure(path, &fs::read(path).unwrap());
    }
}

/// What the most expensive input costs: no 64 KiB of it may take more than 50 ms.
fn worst() {
    const INPUT: usize = 64 * 1024;
    let distinct = |form: fn(usize) -> String| (0..INPUT / 8).map(form).collect::<String>();
    let inputs = [
        ("erase", "\x1b[J".to_owned()),
        ("print and erase", "x\x1b[2J".to_owned()),
        ("erase before", "\x1b[500;1H\x1b[41m\x1b[1J\x1b[42m\x1b[1J".to_owned()),
        ("erase lines", "\x1b[999G\x1b[41m\x1b[1K\x1b[42m\x1b[K".to_owned()),
        ("insert cells", "\x1b[@".to_owned()),
        (
            "insert before text",
            "\x1b[4h\x1b[999G\x1b[41mx\rx\rx\rx\rx\rx\rx\rx\rx\rx\rx\rx\rx\r".to_owned(),
        ),
        ("delete cells", "\x1b[41m\x1b[P\x1b[42m\x1b[P".to_owned()),
        ("insert lines", "\x1b[L".to_owned()),
        ("scroll", "\x1b[S".to_owned()),
        ("scroll by all", "\x1b[999T".to_owned()),
        ("new lines", "\n".to_owned()),
        (
            "new lines in a region",
            "\x1b[2r\x1b[999H\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r".to_owned(),
        ),
        ("reverse new lines", "\x1bM".to_owned()),
        ("repeat", "x\x1b[9999b".to_owned()),
        ("repeat others", "\u{2500}\x1b[9999b".to_owned()),
        ("repeat wide ones", "\u{6f22}\x1b[9999b".to_owned()),
        ("alignment", "\x1b#8".to_owned()),
        ("full reset", "\x1bc".to_owned()),
        ("soft reset", "\x1b[!p".to_owned()),
        ("screens", "\x1b[?1049h\x1b[?1049l".to_owned()),
        ("tabs", "\t\r".to_owned()),
        ("tab stops", "\x1b[?5W".to_owned()),
        ("back tabs", "\x1b[999I\x1b[999Z".to_owned()),
        ("palette", "\x1b]4;1;red\x07\x1b]104\x07".to_owned()),
        ("wide characters", "\u{6f22}".to_owned()),
        ("erasing", "\x1b#8x\x1b[?J\x1b[41m\x1b[?2J".to_owned()),
        ("links", distinct(|n| format!("\x1b]8;;{n}\x07x"))),
        ("underlines", distinct(|n| format!("\x1b[58;2;1;{};{}mx", n / 256, n % 256))),
        (
            "marks",
            distinct(|n| {
                format!(
                    "x\u{301}{}",
                    char::from_u32(0x300 + u32::try_from(n % 100).unwrap()).unwrap()
                )
            }),
        ),
        ("looks", distinct(|n| format!("\x1b[38;2;1;{};{}mx", n / 256, n % 256))),
    ];
    let mut slowest = (Duration::ZERO, String::new());
    for (name, input) in inputs {
        for (rows, cols) in [(24, 80), (131, 1000), (500, 262)] {
            let size = Size { rows, cols };
            let mut screen = Screen::new(size).keeping(limits::SCROLLBACK_LINES);
            // Cells of two looks, in all places.
            screen.process(
                "\x1b[1mx\x1b[m-".repeat(usize::from(rows) * usize::from(cols) / 2).as_bytes(),
            );
            let bytes = input.repeat(INPUT.div_ceil(input.len()));
            let began = processor_time();
            screen.process(black_box(&bytes.as_bytes()[..INPUT]));
            let took = processor_time().saturating_sub(began);
            if took > slowest.0 {
                slowest = (took, format!("{name} in {size}"));
            }
            if took > Duration::from_millis(10) {
                println!("{name} in {size}: {took:.1?} for 64 KiB");
            }
        }
    }
    println!("slowest: {}, {:.1?} for 64 KiB", slowest.1, slowest.0);
}

/// How long this thread has had a processor.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
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
    let [emulator, screen, modes] = times.map(|all| median(all).unwrap_or_default());
    println!(
        "{name}: vt100 {emulator:.0} MB/s, screen {screen:.0} MB/s ({:.2}x), modes alone {modes:.0} MB/s",
        median(ratios).unwrap_or_default()
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
    let mut screen = Screen::new(SIZE).keeping(limits::SCROLLBACK_LINES);
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
    black_box(modes.undo(80));
    began.elapsed()
}
