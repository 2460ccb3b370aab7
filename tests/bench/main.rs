//! Speed beside others: the same app writes to each of them in turn, in one run.
//!
//! `tests/bench/run` builds and starts this; words on its command line choose cases by their names, `echo`
//! and `printing` the terminal, and `screen FILE…` measures the screen's model with recordings of terminals
//! instead.
//! Absolute figures belong to a machine and its mood, so what is told are medians over rounds in
//! which all take turns, and the medians of the ratios within each round. Nothing here can fail for
//! being slow. The app and the readers are this program as well, so that they are fast.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench has no caller")]

mod app;
mod cases;
mod echo;
#[path = "../support/installed.rs"]
mod installed;
#[path = "../support/pair.rs"]
mod pair;
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
        ["terminal", console, pid] => echo::give_terminal(console, pid),
        ["screen", ref recordings @ ..] => screen::bench(recordings),
        _ => bench(&words),
    }
}

/// Runs the cases whose names contain one of these words, or all.
fn bench(words: &[&str]) {
    let rounds = env::var("IOTTYMUX_ROUNDS").map_or(7, |n| n.parse().unwrap());
    let seconds =
        Duration::from_secs_f64(env::var("IOTTYMUX_SECONDS").map_or(0.7, |n| n.parse().unwrap()));
    let bench = Bench::new(seconds);
    for case in CASES {
        if !words.is_empty() && !words.iter().any(|word| case.name.contains(word)) {
            continue;
        }
        let tools: Vec<Tool> = case.tools.iter().copied().filter(|tool| tool.is_there()).collect();
        let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); tools.len()];
        for _ in 0..rounds {
            for (tool, outcomes) in tools.iter().zip(&mut outcomes) {
                outcomes.push(bench.run(case, *tool));
            }
        }
        table::print(case, &tools, &outcomes);
    }
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let program = env::current_exe().unwrap();
    if chosen("echo") {
        echo::bench(&program, 4 * rounds);
    }
    if chosen("printing") {
        echo::output(rounds);
    }
}
