//! The streams of an app and the file names that belong to them.
//!
//! The names are rkt's and therefore fixed. This module reads and writes nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One of the streams of an app. In terminal mode an app has only [`Stream::Tty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Input of the app through a FIFO.
    Stdin,
    /// Output of the app through a FIFO.
    Stdout,
    /// Error output of the app through a FIFO.
    Stderr,
    /// The app's terminal, both directions.
    Tty,
}

impl Stream {
    /// Every stream, in the order in which `endpoints` names them.
    pub(crate) const ALL: [Self; 4] = [Self::Stdin, Self::Stdout, Self::Stderr, Self::Tty];
    /// The streams of an app without a terminal.
    pub const PLAIN: [Self; 3] = [Self::Stdin, Self::Stdout, Self::Stderr];

    /// The name in `endpoints`, on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Tty => "tty",
        }
    }

    /// The FIFO below the app's directory; for the terminal the link to its slave.
    pub(crate) fn stage2(self) -> &'static str {
        match self {
            Self::Stdin => "stage2-stdin",
            Self::Stdout => "stage2-stdout",
            Self::Stderr => "stage2-stderr",
            Self::Tty => "stage2-pts",
        }
    }

    /// The socket for raw clients below the app's directory.
    pub(crate) fn socket(self) -> &'static str {
        match self {
            Self::Stdin => "sock-stdin",
            Self::Stdout => "sock-stdout",
            Self::Stderr => "sock-stderr",
            Self::Tty => "sock-tty",
        }
    }

    /// The name under which its bytes are logged: readers know two, and a terminal is one stream.
    pub(crate) fn logged_as(self) -> &'static str {
        if self == Self::Stderr { "stderr" } else { "stdout" }
    }

    /// Whether the app writes to it.
    pub fn is_output(self) -> bool {
        self != Self::Stdin
    }

    /// Whether the app reads from it.
    pub(crate) fn is_input(self) -> bool {
        matches!(self, Self::Stdin | Self::Tty)
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stream {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|s| s.name() == text).ok_or(())
    }
}

/// Where in a stream a client begins. In JSON a word or a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    /// With the next byte of the app.
    Now,
    /// With the first byte that no output client has been given yet.
    #[default]
    Unseen,
    /// With the oldest byte kept.
    Start,
    /// With this byte; if the mux does not keep it any more, it reports a gap.
    #[serde(untagged)]
    Offset(u64),
}

/// An offset in each stream, by `Stream as usize`; 0 for a stream that the app lacks.
pub(crate) type Offsets = [u64; Stream::ALL.len()];

/// Identifies the count that an offset belongs to: a mux takes a random number when it begins to
/// count, and its successor keeps the number. In JSON a string of hexadecimal digits, since some
/// readers of JSON lose digits of large numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Epoch(pub u64);

impl From<Epoch> for String {
    fn from(Epoch(number): Epoch) -> Self {
        format!("{number:016x}")
    }
}

impl TryFrom<String> for Epoch {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // One spelling only: from_str_radix takes a sign, too.
        let number = u64::from_str_radix(&text, 16).map(Epoch);
        number.ok().filter(|e| String::from(*e) == text).ok_or("expected 16 hexadecimal digits")
    }
}

impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "now" => Ok(Self::Now),
            "unseen" => Ok(Self::Unseen),
            "start" => Ok(Self::Start),
            number => number
                .parse()
                .map(Self::Offset)
                .map_err(|_| "expected now, unseen, start, or the offset of a byte"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_as_typed_and_as_sent() {
        for (text, json, position) in [
            ("now", "\"now\"", Position::Now),
            ("unseen", "\"unseen\"", Position::Unseen),
            ("start", "\"start\"", Position::Start),
            ("123", "123", Position::Offset(123)),
        ] {
            assert_eq!(text.parse(), Ok(position));
            assert_eq!(serde_json::to_string(&position).unwrap(), json);
            assert_eq!(serde_json::from_str::<Position>(json).unwrap(), position);
        }
        for bad in ["", "-1", "Now", "1.5", "18446744073709551616"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_epoch_has_one_spelling() {
        let json = "\"00c0ffee00000001\"";
        assert_eq!(serde_json::to_string(&Epoch(0x00c0_ffee_0000_0001)).unwrap(), json);
        assert_eq!(serde_json::from_str::<Epoch>(json).unwrap(), Epoch(0x00c0_ffee_0000_0001));
        for bad in ["\"\"", "1", "\"+0c0ffee00000001\"", "\"00C0FFEE00000001\"", "\"1\""] {
            assert!(serde_json::from_str::<Epoch>(bad).is_err(), "{bad}");
        }
    }
}
