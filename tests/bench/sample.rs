//! What runs gave: the one type that the table, the CSV file and the plot read.

use super::tools::Tool;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes of the app per second, in MB.
    Speed,
    /// CPU seconds of the tool per GiB of the app.
    Cpu,
    /// CPU seconds of the client per GiB of the app.
    ClientCpu,
    /// Median time of a line or key, microseconds.
    P50,
    /// The time that one in a hundred exceeds, microseconds.
    P99,
    /// CPU time of the tool for each line or key, microseconds.
    EachCpu,
    /// Memory of a process, MB, where shared pages count in parts (proportional set size).
    Pss,
    /// Wake-ups of a process per second.
    WakeUps,
    /// Time from the start of the program until clients can connect, milliseconds.
    Ready,
    /// Size of a file, MB.
    Size,
}

impl Metric {
    pub const ALL: [Self; 10] = [
        Self::Speed,
        Self::Cpu,
        Self::ClientCpu,
        Self::P50,
        Self::P99,
        Self::EachCpu,
        Self::Pss,
        Self::WakeUps,
        Self::Ready,
        Self::Size,
    ];

    /// Its unit, for people.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Speed => "MB/s",
            Self::Cpu => "s/GiB",
            Self::ClientCpu => "s/GiB client",
            Self::P50 => "µs p50",
            Self::P99 => "µs p99",
            Self::EachCpu => "µs CPU each",
            Self::Pss => "MB PSS",
            Self::WakeUps => "wake-ups/s",
            Self::Ready => "ms to ready",
            Self::Size => "MB",
        }
    }

    /// Digits behind the point that mean something.
    pub fn digits(self) -> usize {
        match self {
            Self::Speed => 0,
            Self::P50 | Self::P99 | Self::EachCpu | Self::WakeUps => 1,
            Self::Cpu | Self::ClientCpu | Self::Ready | Self::Size => 2,
            Self::Pss => 3,
        }
    }
}

/// The figures of a run.
pub type Values = Vec<(Metric, f64)>;

/// One run.
#[derive(Clone, Debug)]
pub struct Sample {
    pub case: &'static str,
    pub tool: Tool,
    /// Runs of one round followed each other; only they are compared.
    pub round: usize,
    pub values: Values,
    /// CPU time that other processes took meanwhile, as a part of what all processors have.
    pub foreign: f64,
    /// Why it does not count.
    pub dropped: Option<String>,
}

impl Sample {
    /// Whether it has figures that do not count, so that another run may give better ones.
    pub fn is_disturbed(&self) -> bool {
        self.dropped.is_some() && !self.values.is_empty()
    }

    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values.iter().find(|(has, _)| *has == metric).map(|(_, value)| *value)
    }
}

/// All runs.
#[derive(Debug, Default)]
pub struct Results(pub Vec<Sample>);

impl Results {
    /// The runs of a tool in a case.
    pub fn runs(&self, case: &str, tool: Tool) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.case == case && sample.tool == tool)
    }

    /// Those of them that count.
    pub fn kept(&self, case: &str, tool: Tool) -> impl Iterator<Item = &Sample> {
        self.runs(case, tool).filter(|sample| sample.dropped.is_none())
    }

    /// The median over the runs that count.
    pub fn median(&self, case: &str, tool: Tool, metric: Metric) -> Option<f64> {
        median(self.kept(case, tool).filter_map(|run| run.value(metric)).collect())
    }

    /// The median of the ratios within each round; `None` without a round in which both runs count.
    pub fn ratio(&self, case: &str, tool: Tool, beside: Tool, metric: Metric) -> Option<f64> {
        let in_round = |round| self.kept(case, beside).find(|run| run.round == round);
        let ratio = |run: &Sample| Some(run.value(metric)? / in_round(run.round)?.value(metric)?);
        median(self.kept(case, tool).filter_map(ratio).collect())
    }
}

/// The one in the middle, or the mean of the two there.
pub fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    match all.len() {
        0 => None,
        len if len % 2 == 1 => Some(all[middle]),
        _ => Some(f64::midpoint(all[middle - 1], all[middle])),
    }
}
