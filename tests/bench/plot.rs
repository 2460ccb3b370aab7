//! The results as a plot (SVG): how many times better ours is in each case than conmon or, where
//! conmon does not take part, than the best other program.

use std::fmt::Write;

use super::cases::Case;
use super::sample::{Metric, Results};
use super::tools::Tool;

/// Pixels.
const WIDTH: f64 = 860.0;
const ROW: f64 = 22.0;
const TOP: f64 = 46.0;
/// Where the bars begin and may end, behind the names and in front of the figures.
const LEFT: f64 = 270.0;
const RIGHT: f64 = 640.0;
/// Times better that the axis shows, in both directions.
const MOST: f64 = 16.0;

/// Readable on light and on dark pages.
const STYLE: &str = "text{font:12px sans-serif;fill:#1f2328}.t{font-size:14px;font-weight:bold}\
.b{fill:#2f81d6}.w{fill:#d1702a}.g{stroke:#8b949e;stroke-width:.5}.o{stroke:#8b949e;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#58a6ff}.w{fill:#f0883e}}";

/// A bar: ours beside another program.
struct Bar {
    name: &'static str,
    /// How many times better.
    ratio: f64,
    text: String,
}

/// The whole plot.
pub fn draw(cases: &[&Case], results: &Results) -> String {
    let bars: Vec<Bar> = cases.iter().filter_map(|case| bar(case, results)).collect();
    let rows = f64::from(u32::try_from(bars.len()).unwrap());
    let height = TOP + ROW * rows + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>iottymux beside conmon or the best other program</title>\n<style>{STYLE}</style>\n\
         <text class=\"t\" x=\"10\" y=\"20\">How many times better than conmon, or than the program in \
         parentheses</text>\n"
    );
    for power in -4..=4 {
        let (x, bottom) = (place(2f64.powi(power)), TOP + ROW * rows);
        let class = if power == 0 { "o" } else { "g" };
        let times = 1 << power.abs();
        let label = if power < 0 { format!("1/{times}") } else { times.to_string() };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            TOP - 6.0,
            bottom + 16.0
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * f64::from(u32::try_from(at).unwrap());
        let (one, end) = (place(1.0), place(bar.ratio));
        let (x, width) = (one.min(end), (one - end).abs().max(1.0));
        let class = if bar.ratio >= 1.0 { "b" } else { "w" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            y + 15.0,
            bar.name,
            y + 4.0,
            ROW - 8.0,
            RIGHT + 14.0,
            y + 15.0,
            bar.text
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where a ratio is on the axis, which is logarithmic.
fn place(ratio: f64) -> f64 {
    let part = ratio.clamp(1.0 / MOST, MOST).log2() / MOST.log2();
    f64::midpoint(LEFT, RIGHT) + (RIGHT - LEFT) / 2.0 * part
}

fn bar(case: &Case, results: &Results) -> Option<Bar> {
    let ours = case.tools[0];
    let metric = Metric::ALL.into_iter().find(|m| results.median(case.name, ours, *m).is_some())?;
    let better = |tool: Tool| {
        let ratio = results.ratio(case.name, ours, tool, metric)?;
        Some(if metric == Metric::Speed { ratio } else { 1.0 / ratio })
    };
    let others = || case.tools.iter().copied().filter(|tool| !tool.is_ours());
    let programs = || others().filter(|tool| !tool.is_limit());
    let beside = if programs().any(|tool| tool == Tool::Conmon && better(tool).is_some()) {
        Tool::Conmon
    } else {
        // The best of them leaves the least.
        let least = |a: &Tool, b: &Tool| {
            better(*a).unwrap_or(f64::MAX).total_cmp(&better(*b).unwrap_or(f64::MAX))
        };
        programs().min_by(least).or_else(|| others().min_by(least))?
    };
    let ratio = better(beside)?;
    let of = if beside == Tool::Conmon { String::new() } else { format!(" ({})", beside.name()) };
    let median = results.median(case.name, ours, metric)?;
    let text = format!("{ratio:.2} x{of}, {median:.*} {}", metric.digits(), metric.unit());
    Some(Bar { name: case.name, ratio, text })
}
