//! What a hostile or broken client may send: frames that are valid, and frames that are nearly.

use iottymux::core::wire::{Decoder, FrameError, FrameKind, HEADER, Item};
use iottymux::types::limits;
use serde_json::json;

use crate::random::Random;

/// What one connection sends.
pub struct Script {
    pub bytes: Vec<u8>,
    /// Frames in it that the mux looks at for certain: up to the first that may end the session.
    pub frames: u64,
}

impl Script {
    /// A session of any length and any end. `detach` are numbers of clients that it may ask to be
    /// detached.
    pub fn session(random: &mut Random, detach: &[u64]) -> Self {
        let mut frames = Vec::new();
        if random.one_in(8) {
            frames.push(hostile(random));
        } else {
            frames.push(hello(random));
            frames.extend((0..random.below(120)).map(|_| valid(random, detach)));
            if random.one_in(2) {
                frames.push(hostile(random));
            }
        }
        let heard = frames.len() as u64;
        // Some send on, whatever is thought of them.
        for _ in 0..random.below(4).saturating_sub(1) {
            frames.push(if random.one_in(2) { hello(random) } else { hostile(random) });
        }
        if let Some(last) = frames.last_mut().filter(|_| random.one_in(8)) {
            last.truncate(random.below(last.len()));
        }
        Self { bytes: frames.concat(), frames: heard }
    }
}

/// A hello that is granted.
fn hello(random: &mut Random) -> Vec<u8> {
    let from = [json!("unseen"), json!("now"), json!("start"), json!(random.number() >> 40)];
    let mut streams = Vec::new();
    for stream in ["stdout", "stderr", "tty", "stdin"] {
        if random.one_in(2) {
            streams.push(json!({"stream": stream, "from": random.pick(&from)}));
        }
    }
    let mut hello = json!({"version": 1, "streams": streams, "stdin": random.one_in(2)});
    if random.one_in(2) {
        hello["patience_ms"] = random.pick(&[json!(0), json!(1), json!(u32::MAX)]);
    }
    if random.one_in(4) {
        hello["size"] = json!({"rows": random.byte(), "cols": random.byte()});
    }
    if random.one_in(4) {
        hello["later"] = json!([null, {"x": random.number()}]);
    }
    FrameKind::Hello.message(&hello)
}

/// A frame that ends no session that has said hello.
fn valid(random: &mut Random, detach: &[u64]) -> Vec<u8> {
    let size = json!({"rows": random.below(1 << 16), "cols": random.below(1 << 16)});
    match random.below(16) {
        0..4 => FrameKind::Stdin.frame(&typed(random)),
        4 => FrameKind::Stdin.frame(b""),
        // Of the numbers that no version has yet.
        5..9 => {
            let len = random.below(100);
            [
                &[64 + random.byte() / 2, 0, 0, 0, 0, 0, 0, u8::try_from(len).unwrap()],
                &*random.bytes(len),
            ]
            .concat()
        }
        9..12 => FrameKind::Resize.message(&size),
        12 => FrameKind::Status.frame(&typed(random)),
        13 => FrameKind::Request
            .message(&json!({"request": "resize", "rows": 1, "cols": random.byte()})),
        14 if !detach.is_empty() => {
            FrameKind::Request.message(&json!({"request": "detach", "client": random.pick(detach)}))
        }
        _ if random.one_in(8) => FrameKind::StdinEof.frame(&typed(random)),
        _ => FrameKind::Stdin.frame(&typed(random)),
    }
}

/// Bytes as they are typed: short mostly, and lines at times.
pub fn typed(random: &mut Random) -> Vec<u8> {
    let most = if random.one_in(200) { limits::FRAME } else { 100 };
    let len = random.below(most);
    let mut bytes = random.bytes(len);
    if random.one_in(2) {
        bytes.push(b'\n');
    }
    bytes.truncate(limits::FRAME);
    bytes
}

/// A frame that may well end the session, or what is no frame at all.
fn hostile(random: &mut Random) -> Vec<u8> {
    let kind = random.pick(&[FrameKind::Hello, FrameKind::Resize, FrameKind::Request]);
    match random.below(10) {
        // Of the right form nearly.
        0..4 => {
            // A number that no change of a few digits turns into another client's.
            let other = valid(random, &[u64::MAX]);
            let like = if random.one_in(2) { hello(random) } else { other };
            mutated(random, like)
        }
        4 => [&kind.header(random.below(1 << 20)), &*typed(random)].concat(),
        5 => [&[random.byte(), 0, 0, 0][..], &random.bytes(4), &typed(random)].concat(),
        // What a mux sends.
        6 => {
            let sent = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 32, 33, 34];
            let mut frame = FrameKind::Hello.message(&json!({"stream": "stdout", "from": 1, "to": 2}));
            frame[0] = random.pick(&sent);
            frame
        }
        7 => kind.frame(&json_bomb(random)),
        8 => kind.message(&json!({
            "version": random.pick(&[json!(1), json!(0), json!(-1), json!(1.5), json!("1"), json!(null)]),
            "streams": random.pick(&[json!({}), json!([{"stream": "stdout"}, {"stream": "stdout"}]), json!([1])]),
            "request": random.pick(&["detach", "resize", "end", ""]),
            "client": random.pick(&[json!(-1), json!(u64::MAX), json!(1e300), json!([])]),
            "rows": random.pick(&[json!(65_536), json!(-1), json!("\u{1b}]0;x\u{7}")]),
        })),
        _ => {
            let len = random.below(300);
            random.bytes(len)
        }
    }
}

/// JSON that is as large or as deep as a frame can hold, or beyond.
fn json_bomb(random: &mut Random) -> Vec<u8> {
    let len = random.below(limits::FRAME - 100);
    match random.below(5) {
        0 => vec![b'['; len],
        1 => [&br#"{"version":1,"later":"#[..], &b"{\"a\":".repeat(len / 5)].concat(),
        2 => [br#"{"version":1,"later":""#, &*b"x".repeat(len), b"\"}"].concat(),
        3 => [&br#"{"version":1,"streams":["#[..], &br#"{"stream":"tty"},"#.repeat(len / 17)]
            .concat(),
        _ => [&br#"{"version":"#[..], &b"9".repeat(len), b"}"].concat(),
    }
}

/// A few bytes of it are others, more or fewer; at times its length is made to fit again.
fn mutated(random: &mut Random, mut frame: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        let at = random.below(frame.len());
        match random.below(4) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.byte(),
            2 => frame.insert(at, random.byte()),
            _ => drop(frame.remove(at)),
        }
    }
    if frame.len() >= HEADER && random.one_in(2) {
        let len = u32::try_from(frame.len() - HEADER).unwrap();
        frame[4..HEADER].copy_from_slice(&len.to_be_bytes());
    }
    frame
}

/// What a decoder made of bytes: its items, neighbouring data of a stream as one; and the error that
/// ended it.
pub type Decoded = (Vec<(FrameKind, Vec<u8>)>, Result<(), FrameError>);

/// Decodes all pieces, one after the other.
pub fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::default();
    let mut items: Vec<(FrameKind, Vec<u8>)> = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Err(error) => return (items, Err(error)),
                Ok(None) => break,
                Ok(Some(Item::Control(kind, body))) => {
                    assert!(body.len() <= limits::FRAME);
                    items.push((kind, body));
                }
                Ok(Some(Item::Data(stream, bytes))) => match items.last_mut() {
                    Some((kind, data)) if *kind == FrameKind::of(stream) => data.extend(bytes),
                    _ => items.push((FrameKind::of(stream), bytes.to_vec())),
                },
                Ok(Some(Item::Screen(bytes))) => match items.last_mut() {
                    Some((FrameKind::Screen, data)) => data.extend(bytes),
                    _ => items.push((FrameKind::Screen, bytes.to_vec())),
                },
            }
        }
        assert!(piece.is_empty(), "{} bytes were left over", piece.len());
    }
    (items, Ok(()))
}
