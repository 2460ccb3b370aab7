//! The session protocol: frames and their control messages. `docs/protocol.md` is the reference.
//!
//! Pure: bytes in, items out. Invariant: any split of the bytes gives the same control messages
//! and the same data; unknown kinds are skipped; a frame that breaks a limit ends the connection.
//!
//! | module | is |
//! |---|---|
//! | [`session_reader`] | a session as its client reads it |
//! | [`messages`] | the bodies of control messages |

mod messages;
pub(crate) mod session_reader;

use std::fmt;

use serde::Serialize;

pub use self::messages::*;

use crate::types::limits;
use crate::types::stream::Stream;

/// The version spoken.
pub(crate) const VERSION: u32 = 1;
/// Bytes before each payload: kind, three zeros, length as u32 big-endian.
pub const HEADER: usize = 8;

/// Declares the kinds of frames, and the list of them.
macro_rules! frame_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)*) => {
        /// The kind of a frame. Kinds below 16 go from client to mux, the others from mux to
        /// client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FrameKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl FrameKind {
            const ALL: &[Self] = &[$(Self::$kind,)*];
        }
    };
}

frame_kinds! {
    /// [`Hello`]: the first frame of a client.
    Hello = 1,
    /// Bytes for the app's input.
    Stdin = 2,
    /// The client's input has ended.
    StdinEof = 3,
    /// [`Size`](crate::types::size::Size): the client's window; the mux sends a new screen if the
    /// client asked for screens.
    Resize = 4,
    /// A request for a [`Report`].
    Status = 5,
    /// [`ControlRequest`]: something to be done, which is answered.
    Request = 6,
    /// [`Welcome`]: the answer to the hello.
    Welcome = 16,
    /// [`Gap`]: bytes of a stream that this client lost.
    Gap = 17,
    /// [`End`]: a stream has ended after its last byte.
    End = 18,
    /// [`InputTaken`]: the app has received all input of the client up to its end.
    StdinDone = 19,
    /// [`AppStatus`]: how the app ended.
    Exit = 20,
    /// The mux ends, and the status of the app is unknown.
    Closing = 21,
    /// [`Refusal`]: why this connection ends now.
    Error = 22,
    /// [`Report`]: the answer to a request for the status.
    Report = 23,
    /// [`Answer`]: to a request.
    Answer = 24,
    /// Another client has detached this one.
    Detached = 25,
    /// [`AppStatus`]: how the app ended; it may be started again, the session goes on.
    Ended = 26,
    /// [`Started`]: the app was started, or started again.
    Started = 27,
    /// [`Rights`]: whether the client may type has changed.
    Rights = 28,
    /// [`Redrawn`]: a screen follows, which stands for what came before it.
    Redraw = 29,
    /// [`InputPosition`]: more of the client's input is queued.
    StdinQueued = 30,
    /// [`ClientEvent`]: what another client did.
    Client = 31,
    /// Bytes of the app's stdout.
    Stdout = 32,
    /// Bytes of the app's stderr.
    Stderr = 33,
    /// Bytes of the app's terminal.
    Tty = 34,
    /// Bytes that draw the terminal's screen. They are not output of the app and have no offsets.
    Screen = 35,
}

impl FrameKind {
    fn known(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as u8 == number)
    }

    /// The kind that carries the bytes of an output stream.
    pub fn of(stream: Stream) -> Self {
        match stream {
            Stream::Stdin => Self::Stdin,
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
            Stream::Tty => Self::Tty,
        }
    }

    /// The stream whose bytes it carries; `None` for control messages.
    pub(crate) fn stream(self) -> Option<Stream> {
        Stream::ALL.into_iter().find(|stream| Self::of(*stream) == self)
    }

    /// The header of a frame of this kind with `len` bytes of payload.
    pub fn header(self, len: usize) -> [u8; HEADER] {
        let [a, b, c, d] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        [self as u8, 0, 0, 0, a, b, c, d]
    }

    /// A whole control frame.
    pub fn message(self, body: &impl Serialize) -> Vec<u8> {
        // Plain structs of numbers and strings: it cannot fail.
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.frame(&body)
    }

    /// A whole frame.
    pub fn frame(self, body: &[u8]) -> Vec<u8> {
        [&self.header(body.len())[..], body].concat()
    }
}

/// Why the bytes of a peer are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A payload longer than [`limits::FRAME`].
    TooLong(u32),
    /// The reserved bytes are not zero.
    Reserved,
    /// The body of a message cannot be read.
    Message(FrameKind),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(f, "a frame of {len} bytes exceeds the limit of {}", limits::FRAME)
            }
            Self::Reserved => write!(f, "the reserved bytes of a frame are not zero"),
            Self::Message(kind) => write!(f, "the message {kind:?} cannot be read"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A decoded part of the bytes of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Some bytes of a stream: data needs no whole frame.
    Data(Stream, &'a [u8]),
    /// Some bytes that show the screen.
    Screen(&'a [u8]),
    /// A whole control message.
    Control(FrameKind, Vec<u8>),
}

/// Takes frames apart. Keeps at most one control message.
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER],
    have: usize,
    left: usize,
    control: Vec<u8>,
}

impl Decoder {
    /// Bytes that complete the current header or frame: a reader that reads no more than these
    /// leaves the next frame alone.
    pub fn wants(&self) -> usize {
        if self.have < HEADER { HEADER - self.have } else { self.left }
    }

    /// The next item of `bytes`, which is moved behind it; `None` when more bytes are needed.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Item<'a>>, FrameError> {
        loop {
            if self.have < HEADER {
                let part = take(bytes, HEADER - self.have);
                self.header[self.have..self.have + part.len()].copy_from_slice(part);
                self.have += part.len();
                if self.have < HEADER {
                    return Ok(None);
                }
                self.begin()?;
            }
            let part = take(bytes, self.left);
            self.left -= part.len();
            let whole = self.left == 0;
            if whole {
                self.have = 0;
            }
            match FrameKind::known(self.header[0]) {
                None => {}
                Some(FrameKind::Screen) if part.is_empty() => {}
                Some(FrameKind::Screen) => return Ok(Some(Item::Screen(part))),
                Some(kind) => match kind.stream() {
                    Some(stream) if !part.is_empty() => return Ok(Some(Item::Data(stream, part))),
                    Some(_) => {}
                    None => {
                        self.control.extend_from_slice(part);
                        if whole {
                            let body = std::mem::take(&mut self.control);
                            return Ok(Some(Item::Control(kind, body)));
                        }
                    }
                },
            }
            if !whole {
                return Ok(None);
            }
        }
    }

    /// Checks a header that is complete.
    fn begin(&mut self) -> Result<(), FrameError> {
        let [_, r0, r1, r2, a, b, c, d] = self.header;
        if (r0, r1, r2) != (0, 0, 0) {
            return Err(FrameError::Reserved);
        }
        let len = u32::from_be_bytes([a, b, c, d]);
        match usize::try_from(len) {
            Ok(left) if left <= limits::FRAME => self.left = left,
            _ => return Err(FrameError::TooLong(len)),
        }
        Ok(())
    }
}

/// Splits at most `max` bytes off.
fn take<'a>(bytes: &mut &'a [u8], max: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(max.min(bytes.len()));
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::size::Size;
    use crate::types::stream::{Epoch, Position};
    use proptest::prelude::*;

    /// All items, with the data of neighbouring pieces joined.
    fn decode(pieces: &[&[u8]]) -> Result<Vec<(u8, Vec<u8>)>, FrameError> {
        let mut decoder = Decoder::default();
        let mut out: Vec<(u8, Vec<u8>)> = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while let Some(item) = decoder.next(&mut rest)? {
                match item {
                    Item::Data(stream, bytes) => match out.last_mut() {
                        Some((kind, data)) if *kind == FrameKind::of(stream) as u8 => {
                            data.extend(bytes);
                        }
                        _ => out.push((FrameKind::of(stream) as u8, bytes.to_vec())),
                    },
                    Item::Screen(bytes) => match out.last_mut() {
                        Some((kind, data)) if *kind == FrameKind::Screen as u8 => {
                            data.extend(bytes);
                        }
                        _ => out.push((FrameKind::Screen as u8, bytes.to_vec())),
                    },
                    Item::Control(kind, body) => out.push((kind as u8, body)),
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn a_hello_in_bytes() {
        let hello = Hello {
            streams: vec![Want { stream: Stream::Tty, from: Position::Unseen }],
            stdin: true,
            size: Some(Size { rows: 24, cols: 80 }.into()),
            patience_ms: Some(0),
            epoch: Some(Epoch(255)),
            ..Hello::default()
        };
        let json = br#"{"version":1,"streams":[{"stream":"tty","from":"unseen"}],"stdin":true,"stdin_once":false,"lines":false,"enter":null,"exclusive":null,"events":false,"size":{"rows":24,"cols":80,"width":0,"height":0},"redraw":null,"history":null,"patience_ms":0,"epoch":"00000000000000ff","input":null}"#;
        let frame = FrameKind::Hello.message(&hello);
        let [high, low] = u16::try_from(json.len()).unwrap().to_be_bytes();
        assert_eq!(frame[..8], [1, 0, 0, 0, 0, 0, high, low]);
        assert_eq!(&frame[8..], json);
        assert_eq!(serde_json::from_slice::<Hello>(br#"{"version":1}"#).unwrap().streams, []);
        let status = serde_json::to_string(&AppStatus::Signal(9)).unwrap();
        assert_eq!(status, r#"{"signal":9}"#);
    }

    #[test]
    fn unknown_kinds_are_skipped_and_broken_frames_refused() {
        let bytes =
            [&[99, 0, 0, 0, 0, 0, 0, 2, b'x', b'y'][..], &FrameKind::StdinEof.frame(b"")].concat();
        assert_eq!(decode(&[&bytes]), Ok(vec![(3, vec![])]));
        assert_eq!(decode(&[&[1, 0, 0, 0, 0, 1, 0, 1]]), Err(FrameError::TooLong(65537)));
        assert_eq!(decode(&[&[1, 0, 1, 0, 0, 0, 0, 0]]), Err(FrameError::Reserved));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            frames in prop::collection::vec((0u8..40, prop::collection::vec(any::<u8>(), 0..40)), 0..10),
            cuts in prop::collection::vec(0usize..400, 0..12),
        ) {
            let mut bytes = Vec::new();
            for (kind, body) in &frames {
                bytes.extend([*kind, 0, 0, 0, 0, 0, 0, u8::try_from(body.len()).unwrap()]);
                bytes.extend(body);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[&bytes]));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }
    }
}
