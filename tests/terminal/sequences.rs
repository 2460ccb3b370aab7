//! The table of control sequences (`sequences.txt`), and how many are redrawn right.
//!
//! A sequence is judged where two other emulators agree on it. It is right if each of them shows the
//! same of a redraw. The oracle also sees a redraw of some of the bytes, and then the others. What two
//! judges show and a third one does not is counted apart if ours is as that one (`~` in the table).

use iottymux::screen::Screen;
use iottymux::types::size::Size;

use crate::installed::is_installed;
use crate::oracle::Oracle;
use crate::panes::Pane;
use crate::skip::skip;
use crate::unescape::unescape;
use crate::view::View;
use crate::xterm::Xterm;

const TABLE: &str = include_str!("sequences.txt");
/// Small, so that its edges are near.
pub const SIZE: Size = Size { rows: 6, cols: 16 };
/// What is printed behind each sequence, to see what else it has changed: the character set, the
/// look, insert mode, tab stops and the saved cursor; then the scroll region and the main screen.
const PROBES: [&[u8]; 3] =
    [b"", b"qx\ty\tz\x1b8s\r\nt", b"\x1b[H\x1bMa\x1b[6;1Hb\n\n\nc\x1b[?1049lm"];
/// Of 100 sequences on which other emulators agree, so many are right.
const RIGHT_OF_100: usize = 98;

/// The same bytes with a redraw in place of the first ones.
fn redrawn(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut screen = Screen::new(SIZE);
    screen.process(&bytes[..at]);
    [&screen.redraw(SIZE), &bytes[at..]].concat()
}

/// What the oracle shows.
fn oracle(bytes: &[u8]) -> Oracle {
    let mut oracle = Oracle::new(SIZE);
    oracle.process(bytes);
    oracle
}

enum Verdict {
    Right,
    /// No two judges show the same.
    Open,
    /// Two judges show the same, and ours what the third one shows.
    Contested,
    Wrong(String),
}

/// The emulators that judge.
struct Judges {
    pane: Option<Pane>,
    xterm: Option<Xterm>,
}

impl Judges {
    fn count(&self) -> usize {
        1 + usize::from(self.pane.is_some()) + usize::from(self.xterm.is_some())
    }

    /// What each of them shows of these bytes; always in the same order.
    fn views(&mut self, bytes: &[u8]) -> Vec<(&'static str, View)> {
        let mut views = vec![("alacritty", oracle(bytes).common_view())];
        views.extend(self.pane.as_mut().map(|pane| ("tmux", pane.view(bytes))));
        views.extend(self.xterm.as_mut().map(|xterm| ("xterm.js", xterm.view(bytes))));
        views
    }

    /// Judges a sequence with this behind it.
    fn judge(&mut self, bytes: &[u8], probe: &[u8]) -> Verdict {
        let direct = [bytes, probe].concat();
        let views = self.views(&direct);
        let agree = |view: &View| views.iter().filter(|(_, other)| other == view).count() > 1;
        let Some((_, agreed)) = views.iter().find(|(_, view)| agree(view)) else {
            return Verdict::Open;
        };
        let report = |name: &str, at: usize, difference: String, redrawn: &[u8]| {
            let (probe, redrawn) = (probe.escape_ascii(), redrawn.escape_ascii());
            let pair: Vec<_> = views.iter().filter(|v| v.1 == *agreed).map(|v| v.0).collect();
            Verdict::Wrong(format!(
                "{pair:?} agree: {name}, redrawn at {at}, then {probe}: {difference}\n    of   {redrawn}"
            ))
        };
        let last = [&redrawn(bytes, bytes.len()), probe].concat();
        let shown = self.views(&last);
        let is_same = |((_, got), (_, direct)): (&(_, View), &(_, View))| got == direct;
        let dissent = views.iter().position(|(_, view)| view != agreed);
        let all_same = shown.iter().zip(&views).filter(|pair| pair.1.1 == *agreed).all(is_same);
        if !all_same && dissent.is_some_and(|at| shown[at].1 == views[at].1) {
            return Verdict::Contested;
        }
        for ((name, got), _) in shown.iter().zip(&views).filter(|pair| pair.1.1 == *agreed) {
            if let Some(difference) = got.difference(agreed) {
                return report(name, bytes.len(), difference, &last);
            }
        }
        if views[0].1 != *agreed {
            return Verdict::Right;
        }
        let want = oracle(&direct).view();
        // In the middle once for each sequence.
        let first = if probe == PROBES[1] { 0 } else { bytes.len() };
        for at in first..=bytes.len() {
            let redrawn = [&redrawn(bytes, at), probe].concat();
            if let Some(difference) = oracle(&redrawn).view().difference(&want) {
                return report("alacritty", at, difference, &redrawn);
            }
        }
        Verdict::Right
    }
}

/// The sequences: a name, white space, and bytes with escapes.
fn table() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (name, text) = line.split_once("  ").unwrap_or_else(|| panic!("no bytes: {line}"));
        (name, unescape(text.trim()))
    })
}

#[test]
fn sequences_are_redrawn() {
    let mut judges =
        Judges { pane: is_installed("tmux").then(|| Pane::new(SIZE)), xterm: Xterm::new(SIZE) };
    if judges.pane.is_none() && judges.xterm.is_none() {
        return skip("tmux", "there is no second judge");
    }
    let mut count = [0; 4];
    for (name, bytes) in table() {
        let (name, is_marked) = (name.trim_start_matches('~'), name.starts_with('~'));
        let verdicts: Vec<Verdict> =
            PROBES.iter().map(|probe| judges.judge(&bytes, probe)).collect();
        let wrong = verdicts.iter().find_map(|verdict| match verdict {
            Verdict::Wrong(why) => Some(why),
            _ => None,
        });
        let has = |wanted: fn(&Verdict) -> bool| verdicts.iter().any(wanted);
        let is_contested = has(|verdict| matches!(verdict, Verdict::Contested));
        // Where there are but two judges, the mark stands for the third.
        let (at, word) = match wrong {
            _ if is_contested || is_marked && judges.count() < 3 => (2, "other"),
            Some(_) => (1, "wrong"),
            None if has(|verdict| matches!(verdict, Verdict::Right)) => (0, "right"),
            None => (3, "open"),
        };
        count[at] += 1;
        println!("{word:6} {name}");
        if let Some(why) = wrong.filter(|_| word == "wrong") {
            println!("    {why}");
        }
        let is_true = judges.count() < 3 || is_marked == (word == "other");
        assert!(is_true, "{name}: is it marked with ~, and should it be?");
    }
    let [right, wrong, other, open] = count;
    let judged = right + wrong;
    println!("sequences: {right} of {judged} right");
    println!(
        "beside them {other} as one judge shows and two do not, {open} that each shows differently"
    );
    assert!(right * 100 >= judged * RIGHT_OF_100, "{right} of {judged} sequences are right");
}
