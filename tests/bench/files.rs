//! The results as files: the plot, and the table in a page of the documentation.

use std::fs;
use std::path::Path;

use super::cases::Case;
use super::sample::Results;
use super::{plot, rows, table};

const PLOT: &str = "measurements.svg";
const PAGE: &str = "measurements.md";
/// Between these lines the page has the table.
const BEGIN: &str = "<!-- tests/bench/run writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Writes all files into a directory. The page is changed if it is there.
pub fn write(dir: &Path, machine: &str, cases: &[&Case], results: &Results) {
    let rows = rows::rows(cases, results);
    fs::write(dir.join(PLOT), plot::draw(&rows)).unwrap();
    let page = dir.join(PAGE);
    if let Ok(text) = fs::read_to_string(&page) {
        let table = table::rivals(&rows);
        fs::write(page, replaced(&text, &format!("\n{machine}\n\n{table}\n"))).unwrap();
    }
    println!("\nwritten to {}: {PLOT}", dir.display());
}

/// Puts a text between the two lines.
fn replaced(page: &str, text: &str) -> String {
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    [head, BEGIN, text, END, tail].concat()
}
