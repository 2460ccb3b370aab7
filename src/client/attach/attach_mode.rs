//! `--mode`: which streams of an app to attach, in rkt's words. No I/O, no clock.

use std::str::FromStr;

use crate::types::stream::Stream;

/// The streams as typed, before the app's are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttachMode {
    /// All streams of the app.
    Auto,
    /// None: list the streams.
    List,
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

impl FromStr for AttachMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
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
                "" => return Err("nothing to attach".to_owned()),
                other => {
                    return Err(format!(
                        "unknown mode {other:?}: expected auto, list, tty, tty-in, tty-out, or any of \
                         stdin,stdout,stderr"
                    ));
                }
            }?;
        }
        Ok(Self::Only(wanted))
    }
}

impl AttachMode {
    /// The streams to attach of those that an app has, or why there are none.
    pub(crate) fn resolve(&self, has: &[Stream]) -> Result<WantedStreams, String> {
        let wanted = match self {
            Self::Only(wanted) => wanted.clone(),
            Self::Auto | Self::List => WantedStreams {
                input: has.iter().copied().find(|s| s.is_input()),
                outputs: has.iter().copied().filter(|s| s.is_output()).collect(),
            },
        };
        if let Some(missing) = wanted.all().find(|s| !has.contains(s)) {
            let hint = match has {
                [Stream::Tty] if missing.is_input() => "; try --mode tty-in",
                [Stream::Tty] => "; try --mode tty-out",
                _ => "",
            };
            let has: Vec<&str> = has.iter().map(|s| s.name()).collect();
            return Err(format!("it has no {missing}, only {}{hint}", has.join(",")));
        }
        if wanted.all().next().is_none() {
            return Err("it has no stream that can be attached".to_owned());
        }
        Ok(wanted)
    }
}

impl WantedStreams {
    /// Adds a stream in one direction or both.
    pub(crate) fn add(&mut self, input: bool, output: bool, stream: Stream) -> Result<(), String> {
        let is_tty = stream == Stream::Tty;
        if self.all().any(|other| (other == Stream::Tty) != is_tty) {
            return Err("incompatible endpoints: a terminal has no other streams".to_owned());
        }
        if input {
            self.input = Some(stream);
        }
        if output && !self.outputs.contains(&stream) {
            self.outputs.push(stream);
        }
        Ok(())
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
    fn streams_are_chosen_from_those_of_the_app() {
        let resolve = |mode: &str, has: &[Stream]| {
            let wanted = mode.parse::<AttachMode>().unwrap().resolve(has);
            wanted.map(|wanted| (wanted.input, wanted.outputs))
        };
        assert_eq!(resolve("auto", &[Tty]), Ok((Some(Tty), vec![Tty])));
        assert_eq!(resolve("auto", &[Stdin, Stderr]), Ok((Some(Stdin), vec![Stderr])));
        assert_eq!(resolve("stderr", &[Stdin, Stderr]), Ok((None, vec![Stderr])));
        let missing = Err("it has no tty, only stdin,stderr".to_owned());
        assert_eq!(resolve("tty-out", &[Stdin, Stderr]), missing);
        assert!(resolve("auto", &[]).is_err());
    }

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
        ] {
            assert_eq!(text.parse::<AttachMode>(), want, "{text:?}");
        }
        for (text, why) in [
            ("tty,stdout", "incompatible"),
            ("stdin,tty-out", "incompatible"),
            ("", "nothing"),
            ("stdout,", "nothing"),
            ("stdout,stdfoo", "unknown mode \"stdfoo\""),
            ("auto,stdout", "unknown mode \"auto\""),
        ] {
            assert!(text.parse::<AttachMode>().unwrap_err().starts_with(why), "{text:?}");
        }
    }
}
