//! Escape sequences that no viewer's terminal gets by default, counted.

use serde::{Deserialize, Serialize};

/// Escape sequences that reach a viewer's terminal only if `--pass` has the word, by that word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the words are documented with --pass")]
pub struct RefusedReport {
    pub title: u64,
    pub clipboard: u64,
    pub notify: u64,
    pub other: u64,
    pub unknown: u64,
}

impl RefusedReport {
    /// Whether there were none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The words and their numbers.
    pub(crate) fn words(&self) -> [(&'static str, u64); 5] {
        let Self { title, clipboard, notify, other, unknown } = *self;
        [
            ("title", title),
            ("clipboard", clipboard),
            ("notify", notify),
            ("other", other),
            ("unknown", unknown),
        ]
    }
}
