//! The modes of an app's streams: rkt's five modes and their valid combinations. No I/O, no clock.

use clap::ValueEnum;

use crate::types::stream::Stream;

/// The mode of a stream (design document of rkt's logging and attaching).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamMode {
    /// The terminal from which the machine or the pod was started. Clients cannot attach.
    Interactive,
    /// An attachable terminal.
    Tty,
    /// An attachable FIFO.
    Stream,
    /// The journal, or the pod's log.
    Log,
    /// /dev/null.
    Null,
}

/// A valid combination of modes for an app's three streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamModes([StreamMode; 3]);

impl StreamModes {
    /// Checks these modes. The defaults are rkt's: null for stdin, log for the outputs.
    pub(crate) fn new(asked: [Option<StreamMode>; 3]) -> Result<Self, String> {
        let one_is = |mode| asked.contains(&Some(mode));
        if asked[0] == Some(StreamMode::Log) {
            return Err("stdin cannot be log: it is an input".to_owned());
        }
        if one_is(StreamMode::Interactive)
            && asked.iter().any(|mode| *mode != Some(StreamMode::Interactive))
        {
            return Err("interactive cannot be combined with other modes: all three streams are \
                        the terminal from which the machine was started"
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
    }
}
