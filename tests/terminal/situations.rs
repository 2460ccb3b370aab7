//! The situations in which a redraw is judged, and the table of programs.

use std::fmt::Write as _;

use iottymux::types::size::Size;

use crate::oracle::Oracle;
use crate::view::View;

/// A person watches the program, detaches, comes back, with a larger and a smaller window, and once
/// more after the program has printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    Live,
    Detached,
    Same,
    Larger,
    Smaller,
    Changed,
}

pub use Situation::{Changed, Detached, Larger, Live, Same, Smaller};

pub const ALL: [Situation; 6] = [Live, Detached, Same, Larger, Smaller, Changed];
pub const FIRST: Size = Size { rows: 24, cols: 80 };
pub const LARGE: Size = Size { rows: 30, cols: 100 };
pub const SMALL: Size = Size { rows: 16, cols: 60 };

/// What is printed on a terminal that a client has left, and shown there on a row of its own.
pub const LEFT: (&[u8], &str) = (b"\r\n\x1b[Kqx\ty\r\n", "|qx      y");

/// Why a terminal that was left is not as it was.
pub fn left_wrong(oracle: &mut Oracle, size: Size) -> Option<String> {
    let modes = |view: View| -> Vec<String> {
        view.0.into_iter().skip(usize::from(size.rows) + 1).collect()
    };
    let (got, want) = (modes(oracle.view()), modes(Oracle::new(size).view()));
    oracle.process(LEFT.0);
    let has_line = oracle.view().0.iter().any(|line| line == LEFT.1);
    match (got == want, has_line) {
        (true, true) => None,
        (true, false) => Some("what is printed then looks different".to_owned()),
        (false, _) => Some(format!("modes {got:?}, want {want:?}")),
    }
}

/// What is wrong in each situation: nothing where it is right.
pub type Verdicts = Vec<(Situation, Option<String>)>;

impl Situation {
    /// What differs in this situation between a client's terminal and the program's own.
    pub fn difference(self, got: &View, want: &View) -> Option<String> {
        match self {
            // Both have had windows of other sizes.
            Larger | Smaller | Changed => got.difference_of_lines(want),
            _ => got.difference(want),
        }
    }
}

/// The verdicts on programs.
#[derive(Default)]
pub struct Table {
    rows: Vec<(String, Verdicts)>,
}

impl Table {
    pub fn add(&mut self, program: &str, verdicts: Verdicts) {
        let mut line = format!("{program:<16}");
        for (situation, verdict) in &verdicts {
            let word = if verdict.is_some() { "WRONG" } else { "right" };
            let _ = write!(line, " {situation:?}:{word}");
        }
        println!("{line}");
        for (situation, why) in &verdicts {
            if let Some(why) = why {
                println!("    {situation:?}: {why}");
            }
        }
        self.rows.push((program.to_owned(), verdicts));
    }

    /// Prints how many are right. The names of the others.
    pub fn sum_up(&self, what: &str) -> Vec<String> {
        let is_right = |verdict: &&(Situation, Option<String>)| verdict.1.is_none();
        let pairs = self.rows.iter().flat_map(|(_, verdicts)| verdicts);
        let wrong: Vec<String> = self
            .rows
            .iter()
            .filter(|(_, verdicts)| verdicts.iter().any(|verdict| verdict.1.is_some()))
            .map(|(program, _)| program.clone())
            .collect();
        let all = self.rows.len();
        println!("{what}: {} of {all} right in all situations", all - wrong.len());
        println!(
            "{what}: {} of {} pairs right",
            pairs.clone().filter(is_right).count(),
            pairs.count()
        );
        wrong
    }
}
