//! The results as text: all figures, what was asked, and the table of the page.

use std::fmt::Write;

use super::cases::{Bound, Case, Target};
use super::rows::Row;
use super::sample::{Metric, Results, Sample};

/// Runs that a median should have.
const ENOUGH: usize = 5;

/// One run, in a line.
pub fn run(sample: &Sample) -> String {
    let mut line = format!("  {:<18} run {}:", sample.tool.name(), sample.round + 1);
    for (metric, value) in &sample.values {
        let _ = write!(line, " {value:.*} {},", metric.digits(), metric.unit());
    }
    let _ = write!(line, " foreign load {:.0} %", sample.foreign * 100.0);
    if let Some(reason) = &sample.dropped {
        let _ = write!(line, ", dropped: {reason}");
    }
    line
}

/// A Markdown table of the medians, with the ratios of each tool to ours.
pub fn medians(cases: &[&Case], results: &Results) -> String {
    let mut text =
        "| case | program | median | ours beside it | runs |\n|---|---|---|---|---|\n".to_owned();
    for case in cases {
        for tool in case.tools {
            let all = results.runs(case.name, *tool).count();
            if all == 0 {
                continue;
            }
            let mut figures = Vec::new();
            let mut ratios = Vec::new();
            for metric in Metric::ALL {
                let Some(median) = results.median(case.name, *tool, metric) else { continue };
                figures.push(format!("{median:.*} {}", metric.digits(), metric.unit()));
                let ours = case.tools[0];
                if *tool != ours
                    && let Some(ratio) = results.ratio(case.name, ours, *tool, metric)
                    && ratio.is_finite()
                {
                    ratios.push(format!("{ratio:.2}"));
                }
            }
            let kept = results.kept(case.name, *tool).count();
            let few = if kept < ENOUGH { " (few)" } else { "" };
            let (figures, ratios) = (figures.join(", "), ratios.join(", "));
            let (case, tool) = (case.name, tool.name());
            let _ =
                writeln!(text, "| {case} | {tool} | {figures} | {ratios} | {kept} of {all}{few} |");
        }
    }
    text
}

/// A Markdown table of each case beside its best rival. What is worse than there is bold.
pub fn rivals(rows: &[Row]) -> String {
    let mut text =
        "| case | iottymux | best rival | times better |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let few = if row.few { " (few runs)" } else { "" };
        let (rival, better) = row.rival.as_ref().map_or_else(Default::default, |rival| {
            let better: Vec<String> = rival.better.iter().map(|better| times(*better)).collect();
            (format!("{} {}", rival.name, rival.figures.join(", ")), better.join(", "))
        });
        let (case, units, ours) = (row.case, row.units.join(", "), row.ours.join(", "));
        let _ = writeln!(text, "| {case}{few}: {units} | {ours} | {rival} | {better} |");
    }
    text
}

/// How many times better, with the digits that mean something.
fn times(better: f64) -> String {
    match better {
        worse if worse < 1.0 => format!("**{worse:.2}**"),
        little if little < 2.0 => format!("{little:.2}"),
        more if more < 10.0 => format!("{more:.1}"),
        much => format!("{much:.0}"),
    }
}

/// A Markdown table of what is asked of the tools, and whether it is met.
pub fn targets(cases: &[&Case], results: &Results) -> String {
    let mut text = "| case | asked | measured | |\n|---|---|---|---|\n".to_owned();
    for case in cases {
        for target in case.targets {
            let figure = measured(case, target, results);
            let (shown, word) = match figure {
                None => ("–".to_owned(), "not measured"),
                Some(figure) if target.bound.is_met_by(figure) => (format!("{figure:.2}"), "met"),
                Some(figure) => (format!("{figure:.2}"), "**not met**"),
            };
            let _ = writeln!(text, "| {} | {} | {shown} | {word} |", case.name, asked(target));
        }
    }
    text
}

fn measured(case: &Case, target: &Target, results: &Results) -> Option<f64> {
    match target.beside {
        Some(beside) => results.ratio(case.name, target.tool, beside, target.metric),
        None => results.median(case.name, target.tool, target.metric),
    }
}

fn asked(target: &Target) -> String {
    let bound = match target.bound {
        Bound::Least(least) => format!("at least {least}"),
        Bound::Most(most) => format!("at most {most}"),
    };
    let (tool, unit) = (target.tool.name(), target.metric.unit());
    match target.beside {
        Some(beside) => format!("{tool}, {unit}: {bound} x {}", beside.name()),
        None => format!("{tool}: {bound} {unit}"),
    }
}
