//! Measures iottymux beside other programs: the same app writes to each of them in turn, in one
//! run. `tests/bench/run` builds and starts it.
//!
//! Absolute figures belong to a machine and its state, so what counts are medians over rounds in
//! which all programs take turns, and the medians of the ratios within each round. A run during
//! which others used the processors is dropped and tried again. Nothing here fails for being slow.
//!
//! | module | is |
//! |---|---|
//! | [`cases`] | what is measured, and what is asked of it: data |
//! | [`stream`], [`journal`], [`client`], [`printing`], [`echo`], [`idle`] | one kind of run each |
//! | [`terminal`] | an app on a terminal, for two of these |
//! | [`tools`] | the programs |
//! | [`process`] | what all runs share: the mux as its units run it, conmon, looks at processes |
//! | [`roles`], [`limit`], [`confined`] | this program as app, client, limit, or start of a mux |
//! | [`load`] | what other processes used |
//! | [`sample`] | what runs gave |
//! | [`rows`], [`table`], [`files`], [`plot`] | the results for people |
//! | [`screen`] | the model of a screen alone (`tests/bench/run screen FILE…`) |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench has no caller")]

mod cases;
mod client;
mod confined;
mod echo;
mod files;
mod idle;
#[path = "../support/installed.rs"]
mod installed;
mod journal;
mod limit;
mod load;
#[path = "../support/pair.rs"]
mod pair;
mod plot;
mod printing;
mod process;
mod roles;
mod rows;
mod sample;
mod screen;
mod stream;
mod table;
mod terminal;
mod tools;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../support/wait.rs"]
mod wait;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use self::cases::{CASES, Case};
use self::load::Load;
use self::process::Bench;
use self::roles::ROLE;
use self::sample::{Results, Sample};
use self::tools::Tool;

/// Rounds, and seconds of each run; `IOTTYMUX_ROUNDS` and `IOTTYMUX_SECONDS` replace them. Copy
/// loops are faster for the first tenth of a second, so a run takes some of them.
const ROUNDS: usize = 5;
const SECONDS: f64 = 0.6;
/// Runs of a case and tool that are tried again because of foreign load. More would not end on a
/// busy machine.
const RETRIES: usize = 2;
/// Writes the results into docs/dev/, instead of a directory of the build.
const WRITE_DOCS: &str = "--write-docs";

fn main() {
    // cargo bench passes `--bench`.
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let strs: Vec<&str> = words.iter().map(String::as_str).collect();
    match strs[..] {
        [ROLE, ref role @ ..] => play(role, &words[2..]),
        ["screen", ref recordings @ ..] => screen::bench(recordings),
        _ => bench(&strs),
    }
}

/// Is another process of a run. `rest` are the words behind its name.
fn play(role: &[&str], rest: &[String]) {
    let number = |text: &str| text.parse::<usize>().unwrap();
    let seconds = |text: &str| text.parse::<f64>().unwrap();
    match *role {
        ["app", piece, line, time, go, told] => {
            roles::write(number(piece), number(line), seconds(time), go, told);
        }
        ["tick", time, go, told] => roles::tick(seconds(time), go, told),
        ["print", kind, time, go, told] => {
            roles::print(kind == "coloured", seconds(time), go, told);
        }
        ["reader", kind, path] => roles::read(kind, path),
        ["limit", kind, fifo, socket, clients, buffer] => {
            limit::run(kind, fifo, socket, number(clients), number(buffer));
        }
        ["pass", socket] => limit::pass(socket),
        ["stamp", file, ..] => confined::stamp(file, &rest[1..]),
        ["terminal", console, pid, ..] => terminal::give(console, pid, &rest[2..]),
        _ => panic!("no such role: {role:?}"),
    }
}

/// Runs the cases whose names contain one of these words, or all.
fn bench(words: &[&str]) {
    let from_env = |name| env::var(name).ok();
    let rounds = from_env("IOTTYMUX_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let seconds = from_env("IOTTYMUX_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let chosen: Vec<&str> = words.iter().copied().filter(|word| *word != WRITE_DOCS).collect();
    let writes_docs = words.len() > chosen.len();
    assert!(!writes_docs || chosen.is_empty(), "{WRITE_DOCS} needs all cases");
    let is_chosen =
        |case: &&Case| chosen.is_empty() || chosen.iter().any(|w| case.name.contains(w));
    let cases: Vec<&Case> = CASES.iter().filter(is_chosen).collect();
    load::adopt_orphans();
    let bench = Bench::new(Duration::from_secs_f64(seconds));
    let mut results = Results::default();
    let began = Instant::now();
    for case in &cases {
        println!("\n{}", case.name);
        measure(&bench, case, rounds, &mut results);
    }
    let machine = machine(rounds, seconds, began.elapsed());
    println!("\n{machine}\n\n{}", table::medians(&cases, &results));
    println!("{}", table::targets(&cases, &results));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = if writes_docs { root.join("docs/dev") } else { env!("CARGO_TARGET_TMPDIR").into() };
    files::write(&dir, &machine, &cases, &results);
}

/// All rounds of a case.
fn measure(bench: &Bench, case: &Case, rounds: usize, results: &mut Results) {
    let is_there = |tool: &Tool| tool.is_there(bench.has_other());
    let tools: Vec<Tool> = case.tools.iter().copied().filter(is_there).collect();
    let mut retries = vec![RETRIES; tools.len()];
    for round in 0..rounds {
        for (tool, retries) in tools.iter().zip(&mut retries) {
            loop {
                let sample = sample(bench, case, *tool, round);
                println!("{}", table::run(&sample));
                let again = sample.is_disturbed() && *retries > 0;
                results.0.push(sample);
                if !again {
                    break;
                }
                *retries -= 1;
            }
        }
    }
}

/// One run, and whether it counts.
fn sample(bench: &Bench, case: &Case, tool: Tool, round: usize) -> Sample {
    let before = Load::now();
    let run = catch_unwind(AssertUnwindSafe(|| case.kind.run(bench, tool)));
    load::reap();
    let foreign = before.foreign();
    let (values, dropped) = match run {
        Err(cause) => {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
            (Vec::new(), Some(format!("failed: {}", text.unwrap_or("unknown"))))
        }
        Ok(values) if foreign > load::allowed() => (values, Some("foreign load".to_owned())),
        Ok(values) => (values, None),
    };
    Sample { case: case.name, tool, round, values, foreign, dropped }
}

/// The conditions of the run.
fn machine(rounds: usize, seconds: f64, took: Duration) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| text.trim_start_matches([' ', '\t', ':']));
    format!(
        "iottymux {}; {}. Linux {}, {} processors ({model}), net.core.wmem_max={}. {rounds} rounds of \
         {seconds} s; runs with a foreign load above {:.0} % are dropped. It took {:.1} minutes.",
        env!("CARGO_PKG_VERSION"),
        versions(),
        read("/proc/sys/kernel/osrelease"),
        thread::available_parallelism().map_or(1, usize::from),
        read("/proc/sys/net/core/wmem_max"),
        load::allowed() * 100.0,
        took.as_secs_f64() / 60.0
    )
}

/// The other programs, as Debian names them.
fn versions() -> String {
    const PACKAGES: [&str; 6] = ["conmon", "coreutils", "dtach", "s6", "socat", "tmux"];
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Package} ${Version}\n"]).args(PACKAGES);
    let told = query.output().map(|output| output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&told).lines().collect::<Vec<_>>().join(", ");
    if told.is_empty() { "other programs of unknown versions".to_owned() } else { told }
}
