//! Any bytes at the codec of the session protocol: nothing panics, a split changes nothing, and what
//! a message says is what it says again when it is written and read once more.
#![no_main]

use iottymux::types::limits;
use iottymux::types::size::Size;
use iottymux::core::wire::{
    AppStatus, ClientEvent, ControlRequest, Decoder, End, FrameError, FrameKind, Gap,
    Hello, InputPosition, InputTaken, Item, Refusal, Report, RequestOutcome, Welcome,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte says where the rest is cut.
fn split(input: &[u8]) -> (usize, &[u8]) {
    let (at, bytes) = input.split_first().map_or((0, input), |(at, rest)| (usize::from(*at), rest));
    (at.min(bytes.len()), bytes)
}

type Items = Vec<(u8, Vec<u8>)>;

/// All items up to the end or the first error; neighbouring data of a stream is one item.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Items, Option<FrameError>) {
    let mut decoder = Decoder::default();
    let mut items: Items = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Item::Data(stream, bytes))) => match items.last_mut() {
                    Some((kind, data)) if *kind == FrameKind::of(stream) as u8 => {
                        data.extend(bytes)
                    }
                    _ => items.push((FrameKind::of(stream) as u8, bytes.to_vec())),
                },
                Ok(Some(Item::Screen(bytes))) => match items.last_mut() {
                    Some((kind, data)) if *kind == FrameKind::Screen as u8 => data.extend(bytes),
                    _ => items.push((FrameKind::Screen as u8, bytes.to_vec())),
                },
                Ok(Some(Item::Control(kind, body))) => {
                    assert!(body.len() <= limits::FRAME);
                    items.push((kind as u8, body));
                }
                Err(error) => return (items, Some(error)),
            }
        }
        assert!(piece.is_empty(), "bytes were left over");
        assert!(decoder.wants() > 0 && decoder.wants() <= limits::FRAME);
    }
    (items, None)
}

fn again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(body: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<T>(body) {
        let written = serde_json::to_vec(&message).expect("what was read can be written");
        let read = serde_json::from_slice::<T>(&written).expect("what was written can be read");
        assert_eq!(read, message);
    }
}

fn messages(body: &[u8]) {
    again::<Hello>(body);
    again::<InputPosition>(body);
    again::<InputTaken>(body);
    again::<ClientEvent>(body);
    again::<Size>(body);
    again::<ControlRequest>(body);
    again::<Welcome>(body);
    again::<Gap>(body);
    again::<End>(body);
    again::<AppStatus>(body);
    again::<Refusal>(body);
    again::<Report>(body);
    again::<RequestOutcome>(body);
}

fuzz_target!(|input: &[u8]| {
    let (at, bytes) = split(input);
    let whole = decode([bytes]);
    assert_eq!(decode([&bytes[..at], &bytes[at..]]), whole);
    assert_eq!(decode(bytes.chunks(1)), whole);
    for (_, body) in &whole.0 {
        messages(body);
    }
    messages(bytes);
});
