//! Any bytes at a terminal's screen: nothing panics, a cut changes nothing, what is redrawn asks nothing and
//! is the same when it is drawn again, and without a query outstanding all input is keys.
#![no_main]

use std::time::Instant;

use iottymux::screen::Screen;
use iottymux::screen::query::{Query, Strip};
use iottymux::screen::replies::Replies;
use iottymux::types::size::Size;
use libfuzzer_sys::fuzz_target;

fn shown(size: Size, pieces: &[&[u8]]) -> Screen {
    let mut screen = Screen::new(size);
    for piece in pieces {
        screen.process(piece);
    }
    screen
}

fn stripped(pieces: &[&[u8]]) -> Vec<u8> {
    let (mut strip, mut out) = (Strip::default(), Vec::new());
    pieces.iter().for_each(|piece| strip.push(piece, &mut out));
    out.extend_from_slice(strip.held());
    out
}

fn typed(queries: &[Query], pieces: &[&[u8]]) -> Vec<u8> {
    let (mut replies, mut out, now) = (Replies::default(), Vec::new(), Instant::now());
    queries.iter().for_each(|query| replies.expect(*query, false, now));
    pieces.iter().for_each(|piece| replies.filter(piece, now, &mut out));
    out
}

// The first three bytes say how large the screen is and where the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [rows, cols, at, bytes @ ..] = input else { return };
    let size = Size { rows: u16::from(*rows), cols: u16::from(*cols) };
    let at = usize::from(*at).min(bytes.len());
    let cut = [&bytes[..at], &bytes[at..]];

    let mut whole = shown(size, &[bytes]);
    let mut pieces = shown(size, &cut);
    let window = Size { rows: 24, cols: 80 };
    let redraw = whole.redraw(window);
    assert_eq!(pieces.redraw(window), redraw);
    let asked: Vec<_> = whole.queries().collect();
    assert_eq!(pieces.queries().collect::<Vec<_>>(), asked);
    asked.iter().for_each(|asked| drop(whole.answer(asked)));
    assert_eq!(stripped(&[&redraw]), redraw);
    assert_eq!(pieces.modes().undo(80), whole.modes().undo(80));

    pieces.resize(window);
    pieces.process(bytes);

    assert_eq!(stripped(&cut), stripped(&[bytes]));
    assert_eq!(typed(&[], &cut), bytes);
    let queries: Vec<_> = asked.iter().map(|asked| asked.query).take(8).collect();
    assert_eq!(typed(&queries, &cut), typed(&queries, &[bytes]));
});
