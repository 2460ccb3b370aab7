//! Skipped tests. Each skip is reported, and fails where the machine is said to have what it needs.
//!
//! `IOTTYMUX_REQUIRE=pod,tmux` makes a skip for want of one of these fail, `all` each skip.
//! `IOTTYMUX_SKIPPED=FILE` appends a line to this file for each skip: `TEST: WHAT: WHY`.

use std::env;
use std::fs::File;
use std::io::Write;
use std::thread;

/// Reports that this test, or a part of it, is skipped: `what` is the short name of what is missing.
pub fn skip(what: &str, why: &str) {
    let required = env::var("IOTTYMUX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == what || name == "all");
    assert!(!is_required, "IOTTYMUX_REQUIRE={required} forbids to skip for want of {what}: {why}");
    println!("skipped: {what}: {why}");
    let Some(list) = env::var_os("IOTTYMUX_SKIPPED") else { return };
    let mut list = File::options().append(true).create(true).open(list).unwrap();
    // One write, so that lines of tests that run at the same time do not mix.
    let line = format!("{}: {what}: {why}\n", test_name());
    list.write_all(line.as_bytes()).unwrap();
}

/// The name of the test that runs. A thread has it, except where the test runs in the main thread:
/// there it is the only test, and the first word of the command line.
fn test_name() -> String {
    let thread = thread::current();
    let word = || env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let name = thread.name().filter(|name| *name != "main").map_or_else(word, str::to_owned);
    format!("{}::{name}", env!("CARGO_CRATE_NAME"))
}
