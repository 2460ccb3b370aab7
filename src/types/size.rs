//! The size of a terminal.

use std::fmt;
use std::str::FromStr;

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

/// The size of a window in pixels, as far as its terminal tells. Both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pixels {
    /// Of the whole window.
    pub width: u16,
    /// Of the whole window.
    pub height: u16,
}

/// The size of a terminal or of a client's window, in characters and in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// In characters.
    #[serde(flatten)]
    pub size: Size,
    /// In pixels, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Pixels>,
}

impl From<Size> for Window {
    fn from(size: Size) -> Self {
        Self { size, pixels: None }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (rows, cols) = text.split_once('x')?;
            let size = Self { rows: rows.parse().ok()?, cols: cols.parse().ok()? };
            (!size.is_none()).then_some(size)
        };
        parse().ok_or_else(|| "expected ROWSxCOLS, each from 1 to 65535".to_owned())
    }
}

/// `ROWSxCOLS`, as in options.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.cols)
    }
}
