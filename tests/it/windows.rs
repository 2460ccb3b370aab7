//! Three people at real terminals of different sizes, who type and resize while the app prints as fast as
//! it can.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iottymux::types::size::Size;

use crate::pattern::volume;
use crate::proc::eventually;
use crate::random::{Random, seed};
use crate::rig::{APP, Rig};
use crate::tmux::{Tmux, Window};

/// How long the app prints, seconds.
const SHORT: usize = 2;
const LONG: usize = 60;
/// What the three windows have at the end.
const SIZES: [Size; 3] =
    [Size { rows: 24, cols: 80 }, Size { rows: 30, cols: 100 }, Size { rows: 12, cols: 40 }];

fn size_of(slave: &File) -> Size {
    let (rows, cols) = crate::at_terminal::size_of(slave);
    Size { rows, cols }
}

/// The text of a row of the app's picture, as wide as its terminal.
fn row(number: u16, size: Size) -> String {
    let text = format!("row {number} of {} by {} ", size.rows, size.cols).repeat(size.cols.into());
    text[..size.cols.into()].to_owned()
}

/// What the app draws when its terminal has another size: everything, the cursor in the last row.
fn picture(size: Size) -> String {
    let mut drawn = "\x1b[m\x1b[r\x1b[2J".to_owned();
    for number in 1..=size.rows {
        let (colour, text) = (number % 8, row(number, size));
        write!(drawn, "\x1b[{number};1H\x1b[3{colour}m{text}").unwrap();
    }
    drawn + &format!("\x1b[m\x1b[{};5H", size.rows)
}

/// A burst of what programs print: text in places, in colours, and lines that scroll.
fn burst(random: &mut Random, size: Size) -> String {
    let mut printed = String::new();
    for _ in 0..100 {
        let (row, col) = (random.below(size.rows.into()) + 1, random.below(size.cols.into()) + 1);
        let number = random.number() % 100_000;
        match random.below(3) {
            0 => write!(printed, "\x1b[{row};{col}H\x1b[3{}m{number}\x1b[m", number % 8).unwrap(),
            1 => write!(printed, "{number} 漢字\x1b[K\r\n").unwrap(),
            _ => write!(printed, "\x1b[{row}H\x1b[L\x1b[7mstatus {number}\x1b[m").unwrap(),
        }
    }
    printed
}

/// What a window shows of the picture of a terminal of this size: the columns on the left, and of the rows
/// those down to the cursor's, the last one.
fn seen(of: Size, window: Size) -> String {
    let above = of.rows.saturating_sub(window.rows);
    let mut lines: Vec<String> = (above + 1..=of.rows)
        .map(|number| {
            row(number, of)[..usize::from(of.cols.min(window.cols))].trim_end().to_owned()
        })
        .collect();
    lines.resize(window.rows.into(), String::new());
    lines.join("\n") + "\n"
}

#[test]
fn three_windows_show_the_apps_screen_after_a_minute_of_load() {
    let Some(tmux) = Tmux::start() else { return };
    let rig = Rig::new();
    let _mux = rig.tty();
    let slave = rig.slave();
    let command = format!(
        "IOTTYMUX_STATE_DIR={} exec {} attach --app {APP} --reconnect 0",
        rig.state().display(),
        env!("CARGO_BIN_EXE_iottymux"),
    );
    let windows = SIZES.map(|size| tmux.window(size, "attached", &command));
    let three = || rig.status()["clients"].as_array().unwrap().len() == 3;
    eventually("three clients", three);
    let mut random = Random::new(seed());
    let (over, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (mut keys, typed) = (slave.try_clone().unwrap(), Cell::new(0));
    let counted = Arc::clone(&came);
    // Until the mux has gone.
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(len @ 1..) = keys.read(&mut buffer) {
            counted.fetch_add(len, Ordering::Relaxed);
        }
    });
    let (mut app, stop) = (slave.try_clone().unwrap(), Arc::clone(&over));
    let mut chance = Random::new(random.number());
    let printer = thread::spawn(move || {
        let (mut size, mut printed, mut sizes) = (size_of(&app), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let now = size_of(&app);
            let next = if now == size { burst(&mut chance, now) } else { picture(now) };
            app.write_all(next.as_bytes()).unwrap();
            sizes += usize::from(size != now);
            size = now;
            printed += next.len();
        }
        (printed, sizes)
    });
    let until = Instant::now() + Duration::from_secs(volume(SHORT, LONG) as u64);
    while Instant::now() < until {
        let at = &windows[random.below(3)];
        if random.one_in(2) {
            let mut side = |from, to| u16::try_from(from + random.below(to - from)).unwrap();
            at.resize(Size { rows: side(5, 50), cols: side(10, 150) });
        } else {
            at.type_in("k");
            typed.set(typed.get() + 1);
        }
    }
    over.store(true, Ordering::Relaxed);
    let (printed, sizes) = printer.join().unwrap();
    println!(
        "{} keys; the terminal had {sizes} sizes while {printed} bytes were printed",
        typed.get()
    );
    for (window, size) in windows.iter().zip(SIZES) {
        window.resize(size);
    }
    // Each one in turn becomes the one whose size the terminal has.
    for (decides, size) in windows.iter().zip(SIZES) {
        // What was told before may still give the terminal another size for a moment: apps draw again then,
        // and so does this one.
        let drawn = Cell::new(None);
        let path = tmux.file("picture");
        fs::write(&path, picture(size)).unwrap();
        let show = format!("stty raw -echo; cat {}; exec cat", path.display());
        let direct = tmux.window(size, "direct", &show);
        eventually("all show the app's screen", || {
            let now = size_of(&slave);
            if now != size {
                decides.type_in("k");
                typed.set(typed.get() + 1);
            }
            if drawn.replace(Some(now)) != Some(now) {
                (&slave).write_all(picture(now).as_bytes()).unwrap();
            }
            let is_seen = |(window, its): (&Window, Size)| window.text() == seen(size, its);
            let all_see = windows.iter().zip(SIZES).all(is_seen);
            let is_as_direct = now == size && all_see && decides.state() == direct.state();
            if !is_as_direct {
                // tmux may still have an earlier size of a window to set.
                windows.iter().zip(SIZES).for_each(|(window, its)| window.resize(its));
            }
            is_as_direct
        });
    }
    eventually("all keys have come", || came.load(Ordering::Relaxed) == typed.get());
    assert!(three(), "{}", rig.status());
}
