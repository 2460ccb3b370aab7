//! The results as files: all runs as CSV, the plot, and the tables in a page of the documentation.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::cases::Case;
use super::sample::{Metric, Results};
use super::{plot, table};

const CSV: &str = "measurements.csv";
const PLOT: &str = "measurements.svg";
const PAGE: &str = "measurements.md";
/// Between these lines the page has the tables.
const BEGIN: &str = "<!-- tests/bench/run writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Writes all files into a directory. The page is changed if it is there.
pub fn write(dir: &Path, machine: &str, cases: &[&Case], results: &Results) {
    fs::write(dir.join(CSV), csv(results)).unwrap();
    fs::write(dir.join(PLOT), plot::draw(cases, results)).unwrap();
    let page = dir.join(PAGE);
    if let Ok(text) = fs::read_to_string(&page) {
        let (targets, medians) = (table::targets(cases, results), table::medians(cases, results));
        fs::write(page, replaced(&text, &format!("\n{machine}\n\n{targets}\n{medians}\n")))
            .unwrap();
    }
    println!("\nwritten to {}: {CSV}, {PLOT}", dir.display());
}

/// Puts a text between the two lines.
fn replaced(page: &str, text: &str) -> String {
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    [head, BEGIN, text, END, tail].concat()
}

/// One line for each run. A run that was dropped has its reason in the last column.
fn csv(results: &Results) -> String {
    let mut text = "case,program,run".to_owned();
    text.extend(Metric::ALL.into_iter().flat_map(|metric| [",", metric.column()]));
    text.push_str(",foreign_load_percent,dropped\n");
    for run in &results.0 {
        let _ = write!(text, "\"{}\",{},{}", run.case, run.tool.name(), run.round + 1);
        for metric in Metric::ALL {
            text.push(',');
            if let Some(value) = run.value(metric) {
                let _ = write!(text, "{value:.3}");
            }
        }
        let dropped = run.dropped.as_deref().unwrap_or_default().replace('"', "'");
        let _ = writeln!(text, ",{:.1},\"{dropped}\"", run.foreign * 100.0);
    }
    text
}
