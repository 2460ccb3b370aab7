//! What a sink has, beside what the app wrote: which records are lost, repeated, torn or out of
//! order, and whether a message tells of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::app::Progress;
use crate::record::{Id, Item, Source};

/// What the app wrote: for each source, how far each run came.
pub type Truth = BTreeMap<Source, Vec<Progress>>;

/// Something that is wrong with a record or several in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: What,
    /// The first record.
    pub at: Id,
    pub records: u64,
    /// Bytes of these, or of the torn part.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Not there, and no message says so.
    Lost,
    /// There once more.
    Repeated,
    /// There, but behind a later one.
    Late,
    /// A part of a record that is not there as a whole.
    Torn,
    /// There, though the app has not written it.
    Invented,
    /// Messages tell of more, or of less, than what is lost: by so many bytes.
    Miscounted,
    /// The exit status of attach is not the right one.
    Status,
}

/// All about one sink.
#[derive(Debug, Default)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// Whole records, each counted as often as it is there.
    pub records: u64,
    /// Lost records of which a message tells.
    pub told: u64,
    /// Bytes of which messages tell, and bytes that are lost.
    pub sums: (u64, u64),
}

/// How a sink tells of losses.
#[derive(Clone, Copy, Debug)]
pub enum Telling {
    /// By messages in the place of lines.
    InPlace,
    /// By a sum at the end, bytes with line ends.
    AtTheEnd(u64),
}

/// The ends of what is lost, where a part of a record may be: of two streams.
const ENDS: u64 = 4;

/// How far a source is in a sink.
#[derive(Default)]
struct Cursor {
    /// The run and number that should come next.
    run: usize,
    number: u64,
    /// What has been jumped over: run, from, until.
    lost: Vec<(usize, u64, u64)>,
}

struct Judge<'a> {
    truth: &'a Truth,
    cursors: BTreeMap<Source, Cursor>,
    verdict: Verdict,
    last: Option<Id>,
    /// Messages in the sink, and the lines and bytes that they tell of.
    messages: u64,
    told: (u64, u64),
}

/// Bytes of some records of a run, with their line ends.
pub fn bytes(source: Source, run: usize, numbers: std::ops::Range<u64>) -> u64 {
    // A terminal makes two bytes of a line end.
    let end = if source == Source::Terminal { 2 } else { 1 };
    numbers.map(|number| Id { source, run, number }.text().len() as u64 + end).sum()
}

/// Judges a sink that should have these sources.
pub fn judge(
    truth: &Truth,
    sources: &[Source],
    items: impl IntoIterator<Item = Item>,
    telling: Telling,
) -> Verdict {
    let cursors = sources.iter().map(|source| (*source, Cursor::default())).collect();
    let verdict = Verdict::default();
    let mut judge = Judge { truth, cursors, verdict, last: None, messages: 0, told: (0, 0) };
    for item in items {
        match item {
            Item::Record(id) => judge.on_record(id),
            Item::Torn(part) => judge.on_torn(&part),
            Item::Told { lines, bytes } => {
                judge.messages += 1;
                judge.told.0 += lines;
                judge.told.1 += bytes;
            }
        }
    }
    judge.end(telling)
}

impl Judge<'_> {
    fn find(&mut self, what: What, at: Id, records: u64, bytes: u64) {
        if let Some(last) = self.verdict.findings.last_mut() {
            let next = Id { number: last.at.number + last.records, ..last.at };
            if last.what == what && next == at && records > 0 && last.records > 0 {
                last.records += records;
                last.bytes += bytes;
                return;
            }
        }
        self.verdict.findings.push(Finding { what, at, records, bytes });
    }

    fn progress(&self, source: Source, run: usize) -> Progress {
        self.truth[&source].get(run).copied().unwrap_or_default()
    }

    /// What has to be there before this record, and is not, is lost.
    fn advance(&mut self, to: Id) {
        let truth = &self.truth[&to.source];
        let cursor = self.cursors.get_mut(&to.source).unwrap();
        while cursor.run < to.run {
            let done = truth[cursor.run].done;
            if cursor.number < done {
                cursor.lost.push((cursor.run, cursor.number, done));
            }
            (cursor.run, cursor.number) = (cursor.run + 1, 0);
        }
        if cursor.number < to.number {
            cursor.lost.push((to.run, cursor.number, to.number));
            cursor.number = to.number;
        }
    }

    fn on_record(&mut self, id: Id) {
        self.verdict.records += 1;
        self.last = Some(id);
        let len = bytes(id.source, id.run, id.number..id.number + 1);
        let Some(cursor) = self.cursors.get_mut(&id.source) else {
            return self.find(What::Invented, id, 1, len);
        };
        if id.number >= self.truth[&id.source].get(id.run).map_or(0, |run| run.begun) {
            return self.find(What::Invented, id, 1, len);
        }
        if (id.run, id.number) >= (cursor.run, cursor.number) {
            self.advance(id);
            self.cursors.get_mut(&id.source).unwrap().number += 1;
            return;
        }
        let is_of =
            |lost: &(usize, u64, u64)| lost.0 == id.run && (lost.1..lost.2).contains(&id.number);
        let Some(at) = cursor.lost.iter().position(is_of) else {
            return self.find(What::Repeated, id, 1, len);
        };
        let (run, from, until) = cursor.lost.swap_remove(at);
        let parts = [(run, from, id.number), (run, id.number + 1, until)];
        cursor.lost.extend(parts.into_iter().filter(|part| part.1 < part.2));
        self.find(What::Late, id, 1, len);
    }

    fn on_torn(&mut self, part: &[u8]) {
        // An app that was killed leaves the beginning of what it was writing.
        let is_cut_off = |(source, cursor): (&Source, &Cursor)| {
            let id = Id { source: *source, run: cursor.run, number: cursor.number };
            let runs = &self.truth[source];
            let last = runs.len() - 1;
            id.run < last
                && id.number >= runs[id.run].done
                && id.text().as_bytes().starts_with(part)
        };
        if part.is_empty() || self.cursors.iter().any(is_cut_off) {
            return;
        }
        let source = *self.cursors.keys().next().unwrap();
        let at = self.last.unwrap_or(Id { source, run: 0, number: 0 });
        self.find(What::Torn, at, 0, part.len() as u64);
    }

    fn end(mut self, telling: Telling) -> Verdict {
        let sources: Vec<_> = self.cursors.keys().copied().collect();
        let mut lost = Vec::new();
        // Records and bytes that an app that was killed may have written, and that are lost, too.
        let mut cut = (0, 0);
        for source in sources {
            let run = self.truth[&source].len() - 1;
            self.advance(Id { source, run, number: self.progress(source, run).done });
            let cursor = self.cursors.get_mut(&source).unwrap();
            for (run, from, until) in std::mem::take(&mut cursor.lost) {
                let Progress { begun, done, .. } = self.truth[&source][run];
                if until == done {
                    cut.0 += begun - done;
                    cut.1 += bytes(source, run, done..begun);
                }
                let at = Id { source, run, number: from };
                let bytes = bytes(source, run, from..until);
                lost.push(Finding { what: What::Lost, at, records: until - from, bytes });
            }
        }
        let records: u64 = lost.iter().map(|lost| lost.records).sum();
        let bytes: u64 = lost.iter().map(|lost| lost.bytes).sum();
        let torn = self.verdict.findings.iter().filter(|finding| finding.what == What::Torn);
        let (pieces, torn) = torn.fold((0, 0), |(n, len), torn| (n + 1, len + torn.bytes));
        // A part of a lost record may be there, at each end of what is lost.
        let is_told = match telling {
            Telling::InPlace => {
                let (lines, text) = self.told;
                // Messages count no line ends.
                (bytes - records..=bytes - records + cut.1).contains(&(text + torn))
                    && lines.abs_diff(records) <= pieces + cut.0
                    && pieces <= ENDS * self.messages
            }
            Telling::AtTheEnd(told) => {
                (bytes.saturating_sub(torn + records)..=bytes + cut.1).contains(&told)
            }
        };
        let told = match telling {
            Telling::InPlace => self.told.0 + self.told.1,
            Telling::AtTheEnd(told) => told,
        };
        self.verdict.sums = (told, bytes);
        if told > 0 && is_told {
            self.verdict.told = records;
            self.verdict.findings.retain(|finding| finding.what != What::Torn);
        } else if told > 0 {
            let source = *self.cursors.keys().next().unwrap();
            let at = lost.first().map_or(Id { source, run: 0, number: 0 }, |lost| lost.at);
            self.find(What::Miscounted, at, 0, told.abs_diff(bytes));
        } else {
            self.verdict.findings.extend(lost);
        }
        self.verdict
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, at, records, bytes } = self;
        let Id { source, run, number } = at;
        write!(f, "{what:?}: {records} records, {bytes} bytes at {source:?} {run} {number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run 0 was killed while it wrote record 3, run 1 wrote three.
    fn truth() -> Truth {
        let run = |begun, done| Progress { begun, done, longest: 0 };
        Truth::from([(Source::Stdout, vec![run(5, 3), run(3, 3)])])
    }

    fn of(run: usize, number: u64) -> Item {
        Item::Record(Id { source: Source::Stdout, run, number })
    }

    fn whats(items: Vec<Item>, telling: Telling) -> Vec<(What, u64)> {
        let verdict = judge(&truth(), &[Source::Stdout], items, telling);
        verdict.findings.iter().map(|finding| (finding.what, finding.records)).collect()
    }

    /// Which items there are, and what is found.
    type Case<'a> = (&'a [usize], &'a [(What, u64)]);

    #[test]
    fn the_judge_finds_what_is_wrong() {
        let part = Item::Torn(b"[o 0 3 ".to_vec());
        let all = [of(0, 0), of(0, 1), of(0, 2), part, of(1, 0), of(1, 1), of(1, 2)];
        let cases: [Case<'_>; 9] = [
            (&[0, 1, 2, 3, 4, 5, 6], &[]),
            (&[0, 1, 2, 4, 5, 6], &[]),
            (&[0, 2, 4, 5, 6], &[(What::Lost, 1)]),
            (&[0, 1, 2, 6], &[(What::Lost, 2)]),
            (&[0, 4, 5], &[(What::Lost, 2), (What::Lost, 1)]),
            (&[0, 1, 0, 1, 2, 4, 5, 6], &[(What::Repeated, 2)]),
            (&[0, 2, 1, 4, 5, 6], &[(What::Late, 1)]),
            (&[0, 1, 2, 4, 3, 5, 6], &[(What::Torn, 0)]),
            (&[], &[(What::Lost, 3), (What::Lost, 3)]),
        ];
        for (which, want) in cases {
            let items = || which.iter().map(|at| all[*at].clone()).collect();
            assert_eq!(whats(items(), Telling::InPlace), want, "{which:?}");
            assert_eq!(whats(items(), Telling::AtTheEnd(0)), want, "{which:?}");
        }
        let more = [&all[..], &[of(1, 3), of(2, 0)]].concat();
        assert_eq!(whats(more, Telling::InPlace), [(What::Invented, 1), (What::Invented, 1)]);
    }

    #[test]
    fn the_judge_believes_a_message_that_is_right() {
        let len = bytes(Source::Stdout, 0, 1..3);
        let items = |lines, bytes| {
            let told = Item::Told { lines, bytes };
            vec![of(0, 0), told, of(1, 0), of(1, 1), of(1, 2)]
        };
        assert_eq!(whats(items(2, len - 2), Telling::InPlace), []);
        let wrong = [(What::Miscounted, 0)];
        assert_eq!(whats(items(2, len - 3), Telling::InPlace), wrong);
        // Two more records may have been written when the app was killed.
        let cut = bytes(Source::Stdout, 0, 3..5);
        assert_eq!(whats(items(4, len - 2 + cut), Telling::InPlace), []);
        assert_eq!(whats(items(4, len - 1 + cut), Telling::InPlace), wrong);
        assert_eq!(whats(items(5, len - 2), Telling::InPlace), wrong);
        let without = |told| whats(vec![of(0, 0), of(1, 0), of(1, 1), of(1, 2)], told);
        assert_eq!(without(Telling::AtTheEnd(len)), []);
        assert_eq!(without(Telling::AtTheEnd(len + cut + 1)), wrong);
    }
}
