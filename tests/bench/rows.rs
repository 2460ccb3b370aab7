//! Each case beside its best rival: what the page and the plot show.

use super::cases::{Case, Kind};
use super::sample::{Metric, Results};
use super::tools::Tool;

/// Runs that a median should have.
const ENOUGH: usize = 5;

/// The figures of a case that have the same best rival.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub case: &'static str,
    pub panel: Panel,
    /// The units of the figures.
    pub units: Vec<&'static str>,
    pub ours: Vec<String>,
    pub rival: Option<Rival>,
    /// Whether a median has fewer runs than it should.
    pub few: bool,
}

/// The program that does best beside ours.
#[derive(Debug, PartialEq)]
pub struct Rival {
    pub name: &'static str,
    pub figures: Vec<String>,
    /// How many times better ours is, by each figure. Below 1 it is worse.
    pub better: Vec<f64>,
}

/// A part of the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Streams,
    Logs,
    Terminal,
    Idle,
}

impl Panel {
    pub const ALL: [Self; 4] = [Self::Streams, Self::Logs, Self::Terminal, Self::Idle];

    pub fn title(self) -> &'static str {
        match self {
            Self::Streams => "Fan-out and pipes: MB/s of the app, or µs until a line arrives",
            Self::Logs => "Logs: MB/s of the app",
            Self::Terminal => "Terminals: MB/s of the app, or µs until a key is echoed",
            Self::Idle => "Idle and start: MB of memory (PSS), ms until ready",
        }
    }

    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Stream(work) if work.log.is_none() => Self::Streams,
            Kind::Input | Kind::Output => Self::Streams,
            Kind::Stream(_) | Kind::Journal => Self::Logs,
            Kind::Printing { .. } | Kind::Echo => Self::Terminal,
            Kind::Idle { .. } | Kind::Ready | Kind::Size => Self::Idle,
        }
    }
}

/// The rows of all cases that were measured. Wake-ups have no ratio: nearly all programs have none.
pub fn rows(cases: &[&Case], results: &Results) -> Vec<Row> {
    let metrics = || Metric::ALL.into_iter().filter(|metric| *metric != Metric::WakeUps);
    let mut rows: Vec<Row> = Vec::new();
    for case in cases {
        for metric in metrics() {
            let Some(ours) = figure(case, case.tools[0], metric, results) else { continue };
            let rival = best(case, metric, results);
            let figures = rival.and_then(|(tool, better)| {
                Some((tool.name(), figure(case, tool, metric, results)?, better))
            });
            let is_same = |row: &Row| {
                let name = row.rival.as_ref().map(|rival| rival.name);
                row.case == case.name && name == figures.as_ref().map(|(name, ..)| *name)
            };
            if !rows.last().is_some_and(is_same) {
                let few = [Some(case.tools[0]), rival.map(|(tool, _)| tool)].into_iter().flatten();
                let few = few.map(|tool| results.kept(case.name, tool).count()).any(|n| n < ENOUGH);
                let (case, panel) = (case.name, Panel::of(&case.kind));
                let rival = figures.as_ref().map(|(name, ..)| Rival {
                    name,
                    figures: Vec::new(),
                    better: Vec::new(),
                });
                let (units, ours) = (Vec::new(), Vec::new());
                rows.push(Row { case, panel, units, ours, rival, few });
            }
            let row = rows.last_mut().unwrap();
            row.units.push(metric.unit());
            row.ours.push(ours);
            if let (Some(rival), Some((_, figure, better))) = (&mut row.rival, figures) {
                rival.figures.push(figure);
                rival.better.push(better);
            }
        }
    }
    rows
}

fn figure(case: &Case, tool: Tool, metric: Metric, results: &Results) -> Option<String> {
    let median = results.median(case.name, tool, metric)?;
    Some(format!("{median:.*}", metric.digits()))
}

/// The best other program, and how many times better ours is. A limit counts only if there is no
/// program.
fn best(case: &Case, metric: Metric, results: &Results) -> Option<(Tool, f64)> {
    let better = |tool: Tool| {
        let ratio = results.ratio(case.name, case.tools[0], tool, metric)?;
        let better = if metric == Metric::Speed { ratio } else { 1.0 / ratio };
        better.is_finite().then_some((tool, better))
    };
    let of = |is_limit: bool| {
        let all = case.tools.iter().copied();
        let others = all.filter(|tool| !tool.is_ours() && tool.is_limit() == is_limit);
        others.filter_map(better).min_by(|one, other| one.1.total_cmp(&other.1))
    };
    of(false).or_else(|| of(true))
}
