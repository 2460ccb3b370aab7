//! The size of a terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The size of a terminal or of a client's window, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

impl Size {
    /// The size of a terminal without a client.
    pub(crate) const DEFAULT: Self = Self { rows: 24, cols: 80 };

    /// Characters that fit.
    pub(crate) fn cells(self) -> usize {
        usize::from(self.rows) * usize::from(self.cols)
    }

    /// Whether it is unset: the kernel reports zeros for a terminal without a size.
    pub(crate) fn is_none(self) -> bool {
        self.rows == 0 || self.cols == 0
    }
}

/// `ROWSxCOLS`, as in options.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.cols)
    }
}
