//! The results as a plot (SVG): how many times better ours is than its best rival, in a panel for each
//! kind of work.

use std::fmt::Write;

use super::rows::{Panel, Row};

/// Pixels.
const WIDTH: f64 = 860.0;
const ROW: f64 = 22.0;
/// Above the first panel: the title and the legend.
const TOP: f64 = 52.0;
/// The title of a panel, and the axis below it.
const HEAD: f64 = 30.0;
const AXIS: f64 = 34.0;
/// Where the bars begin and may end, behind the names and in front of the figures.
const LEFT: f64 = 270.0;
const RIGHT: f64 = 640.0;
/// Times better that the axis shows, in both directions.
const MOST: f64 = 16.0;

/// Readable on light and on dark pages.
const STYLE: &str = "text{font:12px sans-serif;fill:#1f2328}.t{font-size:14px;font-weight:bold}.p{font-weight:bold}\
.b{fill:#2f81d6}.w{fill:#d1702a}.g{stroke:#8b949e;stroke-width:.5}.o{stroke:#8b949e;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#58a6ff}.w{fill:#f0883e}}";

/// A bar: ours beside another program.
struct Bar {
    name: &'static str,
    /// How many times better.
    ratio: f64,
    text: String,
}

/// The whole plot: of each case its first figure.
pub fn draw(rows: &[Row]) -> String {
    let is_first = |row: &&Row| rows.iter().find(|other| other.case == row.case) == Some(row);
    let panels = Panel::ALL.map(|panel| {
        let rows = rows.iter().filter(|row| row.panel == panel).filter(is_first);
        (panel, rows.filter_map(bar).collect::<Vec<_>>())
    });
    let height = |bars: &[Bar]| HEAD + ROW * f64::from(u32::try_from(bars.len()).unwrap()) + AXIS;
    let total = TOP + panels.iter().map(|(_, bars)| height(bars)).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" role=\"img\">\n\
         <title>iottymux beside its best rival in each case</title>\n<style>{STYLE}</style>\n\
         <text class=\"t\" x=\"10\" y=\"20\">iottymux and its best rival: how many times better</text>\n\
         <rect class=\"b\" x=\"10\" y=\"32\" width=\"14\" height=\"10\"/>\
         <text x=\"30\" y=\"41\">iottymux is better</text>\
         <rect class=\"w\" x=\"160\" y=\"32\" width=\"14\" height=\"10\"/>\
         <text x=\"180\" y=\"41\">the rival is better</text>\
         <text x=\"310\" y=\"41\">at the right: times better than the rival, and iottymux in figures</text>\n"
    );
    let mut top = TOP;
    for (panel, bars) in &panels {
        add_panel(&mut svg, top, *panel, bars);
        top += height(bars);
    }
    svg.push_str("</svg>\n");
    svg
}

fn add_panel(svg: &mut String, top: f64, panel: Panel, bars: &[Bar]) {
    let first = top + HEAD;
    let bottom = first + ROW * f64::from(u32::try_from(bars.len()).unwrap());
    let title = panel.title();
    let _ = writeln!(svg, "<text class=\"p\" x=\"10\" y=\"{:.1}\">{title}</text>", top + 15.0);
    for power in -4..=4 {
        let x = place(2f64.powi(power));
        let class = if power == 0 { "o" } else { "g" };
        let times = 1 << power.abs();
        let label = if power < 0 { format!("1/{times}") } else { times.to_string() };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            first - 6.0,
            bottom + 16.0
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        let y = first + ROW * f64::from(u32::try_from(at).unwrap());
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
}

/// Where a ratio is on the axis, which is logarithmic.
fn place(ratio: f64) -> f64 {
    let part = ratio.clamp(1.0 / MOST, MOST).log2() / MOST.log2();
    f64::midpoint(LEFT, RIGHT) + (RIGHT - LEFT) / 2.0 * part
}

/// The bar of a row's first figure.
fn bar(row: &Row) -> Option<Bar> {
    let rival = row.rival.as_ref()?;
    let (ratio, ours, unit) = (*rival.better.first()?, row.ours.first()?, row.units.first()?);
    let text = format!("{ratio:.2} × {}, {ours} {unit}", rival.name);
    Some(Bar { name: row.case, ratio, text })
}
