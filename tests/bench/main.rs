//! Speed beside others: the same app writes to each of them in turn, in one run.
//!
//! `tests/bench/run` builds and starts this; words on its command line choose cases by their names, and
//! `screen FILE…` measures the screen's model with recordings of terminals instead.
//! Absolute figures belong to a machine and its mood, so what is told are medians over rounds in
//! which all take turns, and the medians of the ratios within each round. Nothing here can fail for
//! being slow. The app and the readers are this program as well, so that they are fast.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench has no caller")]

mod app;
mod cases;
mod peer;
mod screen;
mod table;

use std::env;
use std::time::Duration;

use self::cases::CASES;
use self::peer::{Bench, Outcome, Tool};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    // cargo bench passes `--bench`.
    let words = arguments.iter().map(String::as_str).filter(|word| *word != "--bench");
    let words: Vec<&str> = words.collect();
    match words[..] {
        ["app", piece, line, seconds, go, told] => {
            let number = |text: &str| text.parse().unwrap();
            app::write(number(piece), number(line), seconds.parse().unwrap(), go, told);
        }
        ["reader", kind, socket] => app::read(kind, socket),
        ["screen", ref recordings @ ..] => screen::bench(recordings),
        _ => bench(&words),
    }
}

/// Runs the cases whose names contain one of these words, or all.
fn bench(words: &[&str]) {
    let number = |name: &str, else_: f64| env::var(name).map_or(else_, |n| n.parse().unwrap());
    let rounds = number("IOTTYMUX_ROUNDS", 7.0);
    let seconds = Duration::from_secs_f64(number("IOTTYMUX_SECONDS", 0.7));
    let bench = Bench::new(seconds);
    for case in CASES {
        if !words.is_empty() && !words.iter().any(|word| case.name.contains(word)) {
            continue;
        }
        let tools: Vec<Tool> = case.tools.iter().copied().filter(|tool| tool.is_there()).collect();
        let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); tools.len()];
        let mut round = 0.0;
        while round < rounds {
            for (tool, outcomes) in tools.iter().zip(&mut outcomes) {
                outcomes.push(bench.run(case, *tool));
            }
            round += 1.0;
        }
        table::print(case, &tools, &outcomes);
    }
}
