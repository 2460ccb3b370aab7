//! Sessions of a test that keep an account of what they get, or only ask.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use iottymux::core::wire::{
    Begin, Decoder, FrameKind, Gap, Hello, Item, Report, RequestOutcome, Want, Welcome,
};
use iottymux::types::stream::{Position, Stream};

use crate::pattern::{ANY, Pattern};
use crate::rig::Rig;

/// A hello for one stream, as a frame.
pub fn hello(stream: Stream, from: Position, patience_ms: Option<u32>) -> Vec<u8> {
    let streams = vec![Want { stream, from }];
    FrameKind::Hello.message(&Hello { streams, patience_ms, ..Hello::default() })
}

/// What one client got of one stream, of which the app writes a pattern: each byte is the right one
/// at its offset, or is told missing. Anything else fails.
pub struct Account {
    stream: Stream,
    /// What the app writes.
    pub pattern: &'static Pattern,
    /// `None` of a raw client: all that comes is bytes.
    decoder: Option<Decoder>,
    /// Offset of the next byte.
    pub at: usize,
    /// Bytes told missing.
    pub lost: usize,
    /// The control message that came last.
    pub last: Option<FrameKind>,
}

impl Account {
    /// Nothing came yet, and the first byte will be that at this offset.
    pub fn new(stream: Stream, at: usize, raw: bool) -> Self {
        let decoder = (!raw).then(Decoder::default);
        Self { stream, pattern: &ANY, decoder, at, lost: 0, last: None }
    }

    pub fn is_session(&self) -> bool {
        self.decoder.is_some()
    }

    pub fn is_welcome(&self) -> bool {
        self.last.is_some()
    }

    /// Takes what came.
    pub fn take(&mut self, mut bytes: &[u8]) {
        let Some(mut decoder) = self.decoder.take() else {
            self.pattern.check(self.at, bytes);
            self.at += bytes.len();
            return;
        };
        while let Some(item) = decoder.next(&mut bytes).unwrap() {
            match item {
                Item::Data(stream, data) => {
                    assert_eq!(stream, self.stream);
                    self.pattern.check(self.at, data);
                    self.at += data.len();
                }
                Item::Screen(_) => panic!("a screen, which was not asked for"),
                Item::Control(kind, body) => {
                    self.last = Some(kind);
                    self.told(kind, &body);
                }
            }
        }
        self.decoder = Some(decoder);
    }

    fn told(&mut self, kind: FrameKind, body: &[u8]) {
        match kind {
            FrameKind::Welcome => {
                let Welcome { streams, .. } = serde_json::from_slice(body).unwrap();
                assert_eq!(streams, [Begin { stream: self.stream, offset: self.at as u64 }]);
            }
            FrameKind::Gap => {
                let gap: Gap = serde_json::from_slice(body).unwrap();
                assert_eq!(gap.stream, self.stream);
                assert_eq!(gap.from, self.at as u64, "a gap begins where the bytes ended");
                assert!(gap.to > gap.from, "{gap:?}");
                self.lost += usize::try_from(gap.to - gap.from).unwrap();
                self.at = usize::try_from(gap.to).unwrap();
            }
            FrameKind::End | FrameKind::Closing | FrameKind::Exit => {}
            other => panic!("{other:?}: {}", String::from_utf8_lossy(body)),
        }
    }

    /// Reads until this offset, or to the end.
    pub fn read_until(&mut self, mut from: impl Read, offset: usize) {
        let mut buffer = vec![0; 1 << 16];
        while self.at < offset {
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(len) => self.take(&buffer[..len]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("after {} bytes: {e}", self.at),
            }
        }
    }

    pub fn read_to_end(&mut self, from: impl Read) {
        self.read_until(from, usize::MAX);
    }
}

/// A session that reads no stream and asks how all is.
pub struct Asker(UnixStream);

impl Asker {
    pub fn new(rig: &Rig) -> Self {
        let asker = Self(rig.client("session"));
        (&asker.0).write_all(&FrameKind::Hello.message(&Hello::default())).unwrap();
        assert_eq!(asker.next().0, FrameKind::Welcome);
        asker
    }

    fn next(&self) -> (FrameKind, Vec<u8>) {
        let mut decoder = Decoder::default();
        loop {
            let mut buffer = vec![0; decoder.wants()];
            (&self.0).read_exact(&mut buffer).unwrap();
            if let Some(Item::Control(kind, body)) = decoder.next(&mut &buffer[..]).unwrap() {
                return (kind, body);
            }
        }
    }

    /// Asks for something, so many times at once.
    pub fn request(&self, body: &[u8], times: usize) {
        (&self.0).write_all(&FrameKind::Request.frame(body).repeat(times)).unwrap();
    }

    /// The next answer.
    pub fn answer(&self) -> RequestOutcome {
        let (kind, body) = self.next();
        assert_eq!(kind, FrameKind::Answer);
        serde_json::from_slice(&body).unwrap()
    }

    /// The state of everything, now.
    pub fn report(&self) -> Report {
        (&self.0).write_all(&FrameKind::Status.frame(b"")).unwrap();
        let (kind, body) = self.next();
        assert_eq!(kind, FrameKind::Report);
        serde_json::from_slice(&body).unwrap()
    }
}
