//! What the runs gave, for people.

use super::cases::Case;
use super::peer::{Outcome, Tool};

/// Prints a case: speed and CPU of each tool, and ours beside the others.
pub fn print(case: &Case, tools: &[Tool], outcomes: &[Vec<Outcome>]) {
    println!("\n{}", case.name);
    println!("  {:<16} {:>6} {:>13}  {:>9}", "", "MB/s", "(spread)", "CPU s/GiB");
    for (tool, theirs) in tools.iter().zip(outcomes) {
        let (low, speed, high) = spread(theirs.iter().map(|outcome| outcome.speed / 1e6));
        let (_, cpu, _) = spread(theirs.iter().map(|outcome| outcome.cpu));
        print!(
            "  {:<16} {speed:>6.0} {:>13}  {cpu:>9.2}",
            tool.name(),
            format!("({low:.0}-{high:.0})")
        );
        let at = tools.iter().position(|ours| *ours == tool.ours()).unwrap_or(0);
        let pairs = || outcomes[at].iter().zip(theirs);
        let (_, speed, _) = spread(pairs().map(|(ours, theirs)| ours.speed / theirs.speed));
        let (_, cpu, _) = spread(pairs().map(|(ours, theirs)| ours.cpu / theirs.cpu));
        if *tool != Tool::Iottymux {
            let ours = tool.ours().name();
            print!("   {ours}: {speed:.2} x its speed, {cpu:.2} x its CPU");
        }
        if let Some((_, least, most)) = case.asks.iter().find(|(asked, ..)| asked == tool) {
            let cpu_asked = if most.is_finite() { format!(", {most:.2}") } else { String::new() };
            let word = if speed >= *least && cpu <= *most { "met" } else { "MISSED" };
            print!("   (asked: {least:.1}{cpu_asked}: {word})");
        }
        println!();
    }
}

/// Least, median and greatest.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

/// The one in the middle.
pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
