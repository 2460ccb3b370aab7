//! Failures that are known today, each with its bounds. A finding that no entry allows fails the
//! test; one that an entry allows is printed. An entry goes away with the defect.

use std::collections::BTreeMap;

use crate::judge::{Finding, Verdict, What};
use crate::record::Source;
use crate::stage::{Event, Fault, Load, Sink};

/// One known failure.
struct Known {
    /// The point of the issue.
    point: &'static str,
    why: &'static str,
    loads: &'static [Load],
    sources: &'static [Source],
    sinks: &'static [Sink],
    what: &'static [What],
    /// The faults that cause it: one of them has to be near.
    faults: &'static [Fault],
    /// The most of each in one sink, bytes per such fault of the round.
    most: u64,
}

const BOTH: &[Load] = &[Load::Steady, Load::Flood];
const STREAMS: &[Source] = &[Source::Stdout, Source::Stderr];
const TERMINAL: &[Source] = &[Source::Terminal];
const ALL: &[Source] = &[Source::Stdout, Source::Stderr, Source::Terminal];
const ATTACH: &[Sink] = &[Sink::Attach];
const LOGS: &[Sink] = &[Sink::Cri, Sink::JsonFile, Sink::Raw];
const KILLS: &[Fault] =
    &[Fault::KillMux, Fault::KillMuxBehindClient, Fault::KillMuxAtEnd, Fault::KillMuxOnFullDisk];
const RESTARTS: &[Fault] =
    &[Fault::RestartMux, Fault::RestartMuxAtEnd, Fault::RestartMuxOnFullDisk];

/// The longest record with its line end, bytes: a part of it that is lost makes it torn and lost.
const RECORD: u64 = 20_100;
/// What a mux keeps of each stream, bytes.
const BACKLOG: u64 = 256 * 1024;
/// What a mux reads from a terminal at once, bytes.
const TERMINAL_READ: u64 = 4096;
/// The most that was seen to be lost at the end of an app, bytes: a pipe and a stage.
const AT_THE_END: u64 = 110_000;
/// The most that the app writes while a disk is full, bytes.
const ON_FULL_DISK: u64 = 2_000_000;
/// A finding is near a fault if the app was within so many records of it: what the mux keeps and
/// what is in pipes.
const NEAR: u64 = 2500;
/// The same in a flood, which writes on between the look at the app and the fault, and where a log
/// is behind because its disk was full: two bursts of a flood.
const NEAR_BEHIND: u64 = 15_000;

/// The first entry that allows a finding takes it.
const KNOWN: &[Known] = &[
    Known {
        point: "14.5",
        why: "what a mux had read from a terminal when it was killed is gone",
        loads: BOTH,
        sources: TERMINAL,
        sinks: ATTACH,
        what: &[What::Torn, What::Lost],
        faults: KILLS,
        most: TERMINAL_READ + RECORD,
    },
    Known {
        point: "14.4, 14.5",
        why: "a log has the place of what is encoded, not of what is written",
        loads: BOTH,
        sources: TERMINAL,
        sinks: LOGS,
        what: &[What::Repeated, What::Torn, What::Lost, What::Miscounted],
        faults: KILLS,
        most: BACKLOG + RECORD,
    },
    Known {
        point: "14.4",
        why: "a log has the place of what is encoded, not of what is written",
        loads: BOTH,
        sources: STREAMS,
        sinks: LOGS,
        what: &[What::Repeated, What::Miscounted],
        faults: KILLS,
        most: BACKLOG + 2 * RECORD,
    },
    Known {
        point: "14.4",
        why: "three chunks lie beyond what is kept for the next mux",
        loads: &[Load::Flood],
        sources: STREAMS,
        sinks: LOGS,
        what: &[What::Lost],
        faults: KILLS,
        most: BACKLOG + 2 * RECORD,
    },
    Known {
        point: "14.4",
        why: "an entry that a killed mux has begun stays torn",
        loads: BOTH,
        sources: ALL,
        sinks: LOGS,
        what: &[What::Torn, What::Lost],
        faults: KILLS,
        most: 2 * RECORD,
    },
    Known {
        point: "14.4",
        why: "what a killed mux knew to be lost is counted by what the next one keeps",
        loads: BOTH,
        sources: ALL,
        sinks: LOGS,
        what: &[What::Miscounted, What::Lost],
        faults: &[Fault::KillMuxOnFullDisk],
        most: ON_FULL_DISK,
    },
    Known {
        point: "14.1",
        why: "half a line of a mux that goes is finished by the next one",
        loads: BOTH,
        sources: ALL,
        sinks: LOGS,
        what: &[What::Torn, What::Lost],
        faults: RESTARTS,
        most: 2 * RECORD,
    },
    Known {
        point: "14.1",
        why: "a mux that is restarted while the app ends does not read what it writes meanwhile",
        loads: BOTH,
        sources: ALL,
        sinks: &[Sink::Attach, Sink::Cri, Sink::JsonFile, Sink::Raw],
        what: &[What::Torn, What::Lost],
        faults: &[Fault::RestartMuxAtEnd],
        most: AT_THE_END,
    },
];

/// What was found of one known failure.
#[derive(Default)]
pub struct Seen {
    pub findings: u64,
    pub records: u64,
    pub bytes: u64,
}

/// Known failures that were seen: by point and reason, sink, and what it was.
pub type SeenAll = BTreeMap<(&'static str, &'static str, Sink, What), Seen>;

impl Known {
    fn allows(&self, load: Load, sink: Sink, finding: &Finding, events: &[Event]) -> bool {
        let was_full = events.iter().any(|event| event.fault == Fault::FillDisk);
        let near = if was_full || load == Load::Flood { NEAR_BEHIND } else { NEAR };
        let Finding { what, at, records, .. } = finding;
        let is_near = |event: &&Event| {
            // A sum has no place.
            if *what == What::Miscounted {
                return true;
            }
            let ends = (event.from.get(&at.source), event.until.get(&at.source));
            let (Some((run, from)), Some((until_run, until))) = ends else { return false };
            if run == until_run && *run == at.run {
                return at.number <= until + near && *from <= at.number + records + near;
            }
            // A fault at the end of one run reaches into the next one.
            (run.saturating_sub(1)..=until_run + 1).contains(&at.run)
        };
        self.loads.contains(&load)
            && self.sources.contains(&at.source)
            && self.sinks.contains(&sink)
            && self.what.contains(what)
            && self.faults_of(events).any(|event| is_near(&event))
    }

    fn faults_of<'a>(&self, events: &'a [Event]) -> impl Iterator<Item = &'a Event> {
        events.iter().filter(|event| self.faults.contains(&event.fault))
    }
}

/// Takes what is known out of the findings; returns what is left, as text.
pub fn sort_out(
    load: Load,
    events: &[Event],
    verdicts: &[(Sink, Verdict)],
    seen: &mut SeenAll,
) -> Vec<String> {
    let mut left = Vec::new();
    for (sink, verdict) in verdicts {
        let mut used: BTreeMap<(usize, What), u64> = BTreeMap::new();
        for finding in &verdict.findings {
            let entry = KNOWN.iter().enumerate().find(|(at, known)| {
                let before = used.get(&(*at, finding.what)).copied().unwrap_or(0);
                let faults = known.faults_of(events).count() as u64;
                known.allows(load, *sink, finding, events)
                    && before + finding.bytes <= known.most * faults
            });
            let Some((at, known)) = entry else {
                let (told, lost) = verdict.sums;
                left.push(format!("{sink:?}: {finding}; {told} bytes told, {lost} lost"));
                continue;
            };
            *used.entry((at, finding.what)).or_default() += finding.bytes;
            let key = (known.point, known.why, *sink, finding.what);
            let seen = seen.entry(key).or_default();
            seen.findings += 1;
            seen.records += finding.records;
            seen.bytes += finding.bytes;
        }
    }
    left
}
