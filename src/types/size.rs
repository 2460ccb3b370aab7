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

/// The size of a terminal or of a client's window, in characters and in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// See [`Size`].
    pub rows: u16,
    /// See [`Size`].
    pub cols: u16,
    /// Pixels; 0 if they are not known.
    #[serde(default)]
    pub width: u16,
    /// Pixels; 0 if they are not known.
    #[serde(default)]
    pub height: u16,
}

impl Window {
    /// Its size in characters.
    pub(crate) fn size(self) -> Size {
        Size { rows: self.rows, cols: self.cols }
    }

    /// Whether its size in pixels is known.
    pub(crate) fn has_pixels(self) -> bool {
        self.width > 0 && self.height > 0
    }

    /// Without pixels if a character would have none: programs divide by that.
    #[must_use]
    pub(crate) fn checked(self) -> Self {
        let has_enough = self.width >= self.cols && self.height >= self.rows;
        if has_enough { self } else { self.size().into() }
    }
}

impl From<Size> for Window {
    fn from(Size { rows, cols }: Size) -> Self {
        Self { rows, cols, width: 0, height: 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns() {
        assert_eq!("24x80".parse(), Ok(Size { rows: 24, cols: 80 }));
        for bad in ["", "24", "0x80", "24x0", "24x65536", "x", "-1x2", "24x80x1"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
