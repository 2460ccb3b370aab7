//! A session as its client reads it: the bytes of a mux go in, what it says comes out, and how far
//! each stream has come. No I/O, no clock.

use super::{
    AppStatus, Begin, ClientEvent, Decoder, FrameError, FrameKind, Gap, InputPosition, InputTaken,
    Item, Redrawn, Refusal, Report, RequestOutcome, Rights, Welcome,
};
use crate::types::stream::{Epoch, Position, Stream};

/// Declares the events, and how they are read.
macro_rules! mux_events {
    ($($kind:ident $(($body:ty))?,)*) => {
        /// What a mux says besides the bytes of streams. Each is what its [`FrameKind`] says.
        #[derive(Debug)]
        pub(crate) enum MuxEvent {
            $($kind $(($body))?,)*
        }

        impl MuxEvent {
            /// Reads one; `None` for what no mux says, or no client needs.
            fn read(kind: FrameKind, body: &[u8]) -> serde_json::Result<Option<Self>> {
                Ok(Some(match kind {
                    $(FrameKind::$kind => {
                        Self::$kind $((serde_json::from_slice::<$body>(body)?))?
                    })*
                    _ => return Ok(None),
                }))
            }
        }
    };
}

mux_events! {
    Welcome(Welcome),
    Gap(Gap),
    StdinDone(InputTaken),
    Exit(AppStatus),
    Closing,
    Error(Refusal),
    Report(Box<Report>),
    Answer(RequestOutcome),
    Detached,
    Ended(AppStatus),
    Started,
    Rights(Rights),
    Redraw(Redrawn),
    StdinQueued(InputPosition),
    Client(ClientEvent),
}

/// A part of what a mux sends.
#[derive(Debug)]
pub(crate) enum FromMux<'a> {
    /// Bytes of an output, and the offset behind them.
    Output(Stream, &'a [u8], u64),
    /// Bytes that show the screen, and whether that is whole with them.
    Screen(&'a [u8], bool),
    Event(MuxEvent),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SessionReader {
    decoder: Decoder,
    epoch: Option<Epoch>,
    /// The next byte of each stream.
    next: Vec<Begin>,
    /// Bytes of a screen that are still to come.
    screen_left: u64,
}

impl SessionReader {
    /// Bytes that complete what has begun, see [`Decoder::wants`].
    pub(crate) fn wants(&self) -> usize {
        self.decoder.wants()
    }

    /// What offsets belong to.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// The streams that are read.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Stream> {
        self.next.iter().map(|begin| begin.stream)
    }

    /// The next byte of a stream, if that is read.
    pub(crate) fn offset(&self, stream: Stream) -> Option<u64> {
        Some(self.next.iter().find(|begin| begin.stream == stream)?.offset)
    }

    /// Where a session with the next mux begins. Without an epoch no other mux understands the
    /// offsets.
    pub(crate) fn position(&self, stream: Stream) -> Position {
        let offset = self.offset(stream).filter(|_| self.epoch.is_some());
        offset.map_or(Position::Start, Position::Offset)
    }

    /// A session with the next mux begins so many bytes earlier.
    pub(crate) fn rewind(&mut self, bytes: u64) {
        for begin in &mut self.next {
            begin.offset = begin.offset.saturating_sub(bytes);
        }
    }

    /// The next part of `bytes`, which is moved behind it; `None` when more bytes are needed.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<FromMux<'a>>, FrameError> {
        while let Some(item) = self.decoder.next(bytes)? {
            let part = match item {
                Item::Data(stream, bytes) => self
                    .advance(stream, |next| next.saturating_add(bytes.len() as u64))
                    .map(|end| FromMux::Output(stream, bytes, end)),
                Item::Screen(bytes) => {
                    self.screen_left = self.screen_left.saturating_sub(bytes.len() as u64);
                    Some(FromMux::Screen(bytes, self.screen_left == 0))
                }
                Item::Control(kind, body) => {
                    let event = MuxEvent::read(kind, &body);
                    let event = event.map_err(|_| FrameError::Message(kind))?;
                    event.map(|event| FromMux::Event(self.note(event)))
                }
            };
            if part.is_some() {
                return Ok(part);
            }
        }
        Ok(None)
    }

    /// Notes what an event says of the streams.
    fn note(&mut self, event: MuxEvent) -> MuxEvent {
        match &event {
            MuxEvent::Welcome(Welcome { epoch, streams, .. }) => {
                (self.epoch, self.next) = (*epoch, streams.clone());
            }
            MuxEvent::Gap(Gap { stream, to, .. }) => {
                self.advance(*stream, |next| next.max(*to));
            }
            MuxEvent::Redraw(Redrawn { stream, offset, bytes, .. }) => {
                self.advance(*stream, |_| *offset);
                self.screen_left = *bytes;
            }
            _ => {}
        }
        event
    }

    /// Changes where a stream is, if that is read, and returns it.
    fn advance(&mut self, stream: Stream, to: impl Fn(u64) -> u64) -> Option<u64> {
        let begin = self.next.iter_mut().find(|begin| begin.stream == stream)?;
        begin.offset = to(begin.offset);
        Some(begin.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all of these bytes, and returns what came of the last part.
    fn read(reader: &mut SessionReader, bytes: &[u8]) -> Result<String, FrameError> {
        let (mut rest, mut last) = (bytes, String::new());
        while let Some(part) = reader.next(&mut rest)? {
            last = format!("{part:?}");
        }
        Ok(last)
    }

    #[test]
    fn it_knows_where_the_next_session_begins() {
        let mut reader = SessionReader::default();
        assert_eq!(reader.position(Stream::Tty), Position::Start);
        let begin = Begin { stream: Stream::Tty, offset: 7 };
        let welcome = Welcome { streams: vec![begin], ..Welcome::default() };
        read(&mut reader, &FrameKind::Welcome.message(&welcome)).unwrap();
        assert_eq!(reader.offset(Stream::Tty), Some(7));
        // No other mux knows what these offsets are of.
        assert_eq!(reader.position(Stream::Tty), Position::Start);
        let welcome = Welcome { epoch: Some(Epoch(1)), ..welcome };
        read(&mut reader, &FrameKind::Welcome.message(&welcome)).unwrap();
        let frames = [
            (FrameKind::Tty.frame(b"abc"), 10),
            (FrameKind::Stdout.frame(b"of no stream that was wanted"), 10),
            (FrameKind::Gap.message(&Gap { stream: Stream::Tty, from: 10, to: 20 }), 20),
            (FrameKind::Gap.message(&Gap { stream: Stream::Tty, from: 10, to: 20 }), 20),
            (
                FrameKind::Redraw.message(&Redrawn {
                    stream: Stream::Tty,
                    offset: 30,
                    bytes: 4,
                    size: None,
                }),
                30,
            ),
            (FrameKind::Screen.frame(b"ab"), 30),
            (FrameKind::Screen.frame(b"cd"), 30),
            (FrameKind::Tty.frame(b"efg"), 33),
        ];
        let mut said = Vec::new();
        for (frame, next) in frames {
            said.push(read(&mut reader, &frame).unwrap());
            assert_eq!(reader.position(Stream::Tty), Position::Offset(next), "{said:?}");
        }
        assert!(said[0].starts_with("Output(") && said[0].ends_with(", 10)"), "{said:?}");
        assert_eq!(said[1], "");
        assert!(said[5].ends_with("false)") && said[6].ends_with("true)"), "{said:?}");
        reader.rewind(40);
        assert_eq!(reader.position(Stream::Tty), Position::Offset(0));
    }

    #[test]
    fn what_no_mux_says_is_skipped_and_what_cannot_be_read_is_an_error() {
        let mut reader = SessionReader::default();
        assert_eq!(read(&mut reader, &FrameKind::Status.frame(b"")).unwrap(), "");
        let broken = read(&mut reader, &FrameKind::Exit.frame(b"{"));
        assert_eq!(broken, Err(FrameError::Message(FrameKind::Exit)));
    }
}
