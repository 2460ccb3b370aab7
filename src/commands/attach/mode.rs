//! What of an app is to be attached: rkt's words for it.

use std::fmt;
use std::str::FromStr;

use crate::types::stream::Stream;

/// A wish, before it is known what the app has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttachMode {
    /// Everything that the app has.
    Auto,
    /// Nothing: show what there is.
    List,
    /// Just these.
    Only(WantedStreams),
}

/// Streams in each direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedStreams {
    /// The stream that gets this process's input.
    pub(crate) input: Option<Stream>,
    /// The streams that come out of this process.
    pub(crate) outputs: Vec<Stream>,
}

/// Why a text is no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeError {
    /// An unknown word.
    Unknown(String),
    /// The terminal together with streams.
    Incompatible,
    /// No word at all.
    Nothing,
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(
                f,
                "unknown mode {word:?}; there are auto, list, tty, tty-in, tty-out, and any of \
                 stdin,stdout,stderr"
            ),
            Self::Incompatible => {
                write!(f, "incompatible endpoints: a terminal has no other streams")
            }
            Self::Nothing => write!(f, "nothing to attach"),
        }
    }
}

impl std::error::Error for ModeError {}

impl FromStr for AttachMode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "auto" => return Ok(Self::Auto),
            "list" => return Ok(Self::List),
            _ => {}
        }
        let mut wanted = WantedStreams::default();
        for word in text.split(',') {
            match word {
                "tty" => wanted.add(true, true, Stream::Tty),
                "tty-in" => wanted.add(true, false, Stream::Tty),
                "tty-out" => wanted.add(false, true, Stream::Tty),
                "stdin" => wanted.add(true, false, Stream::Stdin),
                "stdout" => wanted.add(false, true, Stream::Stdout),
                "stderr" => wanted.add(false, true, Stream::Stderr),
                "" => return Err(ModeError::Nothing),
                other => return Err(ModeError::Unknown(other.to_owned())),
            }?;
        }
        Ok(Self::Only(wanted))
    }
}

impl WantedStreams {
    /// Adds a stream in one direction or both.
    pub(crate) fn add(
        &mut self,
        input: bool,
        output: bool,
        stream: Stream,
    ) -> Result<(), ModeError> {
        let is_tty = stream == Stream::Tty;
        if self.all().any(|other| (other == Stream::Tty) != is_tty) {
            return Err(ModeError::Incompatible);
        }
        if input {
            self.input = Some(stream);
        }
        if output && !self.outputs.contains(&stream) {
            self.outputs.push(stream);
        }
        Ok(())
    }

    /// Everything that an app has.
    pub(crate) fn everything(streams: &[Stream]) -> Self {
        Self {
            input: streams.iter().copied().find(|s| s.is_input()),
            outputs: streams.iter().copied().filter(|s| s.is_output()).collect(),
        }
    }

    /// Each stream once.
    pub(crate) fn all(&self) -> impl Iterator<Item = Stream> + '_ {
        let input = self.input.filter(|s| !self.outputs.contains(s));
        input.into_iter().chain(self.outputs.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdin, Stdout, Tty};

    #[test]
    fn modes_as_rkt_has_them() {
        let only = |input: Option<Stream>, outputs: &[Stream]| {
            Ok(AttachMode::Only(WantedStreams { input, outputs: outputs.to_vec() }))
        };
        for (text, want) in [
            ("auto", Ok(AttachMode::Auto)),
            ("list", Ok(AttachMode::List)),
            ("tty", only(Some(Tty), &[Tty])),
            ("tty-in", only(Some(Tty), &[])),
            ("tty-out", only(None, &[Tty])),
            ("stdin", only(Some(Stdin), &[])),
            ("stdout,stderr", only(None, &[Stdout, Stderr])),
            ("stdin,stdout,stderr", only(Some(Stdin), &[Stdout, Stderr])),
            ("stdout,stdout", only(None, &[Stdout])),
            ("tty,stdout", Err(ModeError::Incompatible)),
            ("stdin,tty-out", Err(ModeError::Incompatible)),
            ("", Err(ModeError::Nothing)),
            ("stdout,", Err(ModeError::Nothing)),
            ("stdout,stdfoo", Err(ModeError::Unknown("stdfoo".into()))),
            ("auto,stdout", Err(ModeError::Unknown("auto".into()))),
        ] {
            assert_eq!(text.parse::<AttachMode>(), want, "{text:?}");
        }
    }
}
