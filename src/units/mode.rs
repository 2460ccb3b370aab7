//! What an app's streams are: rkt's five modes, and which of them go together. Pure.

use std::fmt;
use std::str::FromStr;

use crate::types::stream::Stream;

/// What a stream of an app is (design document of rkt's logging and attaching).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMode {
    /// The terminal of whoever started the machine or the pod: nothing can be attached.
    Interactive,
    /// A terminal of its own, which can be attached.
    Tty,
    /// A stream of its own, which can be attached.
    Stream,
    /// The journal, or the log that the pod asks for.
    Log,
    /// Nothing.
    Null,
}

impl StreamMode {
    const ALL: [(&'static str, Self); 5] = [
        ("interactive", Self::Interactive),
        ("tty", Self::Tty),
        ("stream", Self::Stream),
        ("log", Self::Log),
        ("null", Self::Null),
    ];
}

impl fmt::Display for StreamMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for StreamMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode);
        found.ok_or_else(|| "a mode is interactive, tty, stream, log or null".to_owned())
    }
}

/// The modes of an app's three streams, which go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamModes([StreamMode; 3]);

impl StreamModes {
    /// The modes that were asked for, and rkt's own where none was: nothing to read, and the journal.
    pub(crate) fn new(asked: [Option<StreamMode>; 3]) -> Result<Self, String> {
        let one_is = |mode| asked.contains(&Some(mode));
        if asked[0] == Some(StreamMode::Log) {
            return Err("stdin cannot be log: nothing is written there".to_owned());
        }
        if one_is(StreamMode::Interactive)
            && asked.iter().any(|mode| *mode != Some(StreamMode::Interactive))
        {
            return Err("interactive goes with nothing else: all three streams are the terminal \
                        that the machine was started from"
                .to_owned());
        }
        let [stdin, stdout, stderr] = asked;
        Ok(Self([
            stdin.unwrap_or(StreamMode::Null),
            stdout.unwrap_or(StreamMode::Log),
            stderr.unwrap_or(StreamMode::Log),
        ]))
    }

    /// The streams with their modes, in the order of `endpoints`.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Stream, StreamMode)> {
        Stream::PLAIN.into_iter().zip(self.0)
    }

    /// Whether some stream has this mode.
    pub(crate) fn has(self, mode: StreamMode) -> bool {
        self.0.contains(&mode)
    }
}

#[cfg(test)]
mod tests {
    use super::StreamMode::{Interactive, Log, Null, Stream, Tty};
    use super::*;

    #[test]
    fn modes_that_go_together() {
        for (asked, want) in [
            ([None, None, None], Some([Null, Log, Log])),
            ([Some(Stream), None, None], Some([Stream, Log, Log])),
            ([Some(Tty), Some(Stream), Some(Null)], Some([Tty, Stream, Null])),
            ([Some(Interactive); 3], Some([Interactive; 3])),
            ([Some(Log), None, None], None),
            ([Some(Interactive), None, None], None),
            ([Some(Tty), Some(Interactive), Some(Tty)], None),
        ] {
            assert_eq!(StreamModes::new(asked).ok(), want.map(StreamModes), "{asked:?}");
        }
        for (name, mode) in StreamMode::ALL {
            assert_eq!((name.parse(), mode.to_string()), (Ok(mode), name.to_owned()));
        }
        assert!("Stream".parse::<StreamMode>().is_err());
    }
}
