//! All rounds of a test together.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::judge::{self, Truth, Verdict, What};
use crate::schedule::Fault;
use crate::stage::{Event, Sink};

/// All rounds of a test together.
#[derive(Default)]
pub struct Tally {
    faults: BTreeMap<Fault, usize>,
    records: u64,
    bytes: u64,
    sinks: BTreeMap<Sink, Counts>,
    pub longest: Duration,
    pub most: MuxNeeds,
}

/// What a mux needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct MuxNeeds {
    /// Memory of its own, KiB: the backlog counts, too.
    pub memory: u64,
    pub descriptors: usize,
}

impl MuxNeeds {
    /// The most of both.
    pub fn max(self, other: Self) -> Self {
        let memory = self.memory.max(other.memory);
        Self { memory, descriptors: self.descriptors.max(other.descriptors) }
    }
}

/// Records of a sink.
#[derive(Default)]
struct Counts {
    all: u64,
    /// Lost ones of which messages tell.
    told: u64,
    found: BTreeMap<What, u64>,
}

impl Tally {
    pub fn count(&mut self, events: &[Event], truth: &Truth, verdicts: &[(Sink, Verdict)]) {
        for event in events {
            *self.faults.entry(event.fault).or_default() += 1;
        }
        for (source, runs) in truth {
            for (run, progress) in runs.iter().enumerate() {
                self.records += progress.done;
                self.bytes += judge::bytes(*source, run, 0..progress.done);
            }
        }
        for (sink, verdict) in verdicts {
            let counts = self.sinks.entry(*sink).or_default();
            counts.all += verdict.records;
            counts.told += verdict.told;
            for finding in &verdict.findings {
                // A torn part has no whole record.
                *counts.found.entry(finding.what).or_default() += finding.records.max(1);
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, records, bytes, sinks, longest, most } = self;
        writeln!(f, "faults: {} {faults:?}", faults.values().sum::<usize>())?;
        writeln!(f, "written: {records} records, {bytes} bytes; longest write: {longest:?}")?;
        let MuxNeeds { memory, descriptors } = most;
        writeln!(f, "a mux at most: {memory} KiB, {descriptors} descriptors")?;
        for (sink, Counts { all, told, found }) in sinks {
            let of = |what| found.get(&what).copied().unwrap_or_default();
            let [lost, repeated, late, torn] =
                [What::Lost, What::Repeated, What::Late, What::Torn].map(of);
            writeln!(
                f,
                "{sink:?}: {all} records; lost {lost}, repeated {repeated}, out of order {late}, \
                 torn {torn}, told {told}"
            )?;
        }
        Ok(())
    }
}

/// What is wrong in a sink, as text.
pub fn findings(sink: Sink, verdict: &Verdict) -> impl Iterator<Item = String> {
    let (told, lost) = verdict.sums;
    let line = move |finding| format!("{sink:?}: {finding}; {told} bytes told, {lost} lost");
    verdict.findings.iter().map(line)
}
