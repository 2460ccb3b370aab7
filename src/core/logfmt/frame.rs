//! Messages for the journal writer: frames in a FIFO, written by a mux and read by
//! [`crate::mux::logs::journal_writer`]. No I/O, no clock.
//!
//! A frame is six bytes and a piece of a message; a longer message has several frames. One write
//! has only whole frames, [`PACKET`] bytes at most. The kernel accepts it as a whole or not at all,
//! and the reader gets it as a whole (`O_DIRECT` of pipe(2)). So a killed mux or reader leaves no
//! incomplete frame.

use super::buffer::Buffer;
use super::syslog::{DEBUG, Message};
use crate::types::stream::Stream;

/// Bytes written and read at once, at most: `PIPE_BUF` of pipe(7).
pub(crate) const PACKET: usize = 4096;
/// Bytes before the text of a frame: magic, flags, priority, stream, length (little-endian).
const HEADER: usize = 6;
/// Bytes of a message in one frame, at most.
const PIECE: usize = PACKET - HEADER;
/// The first byte of a frame. Another form of frames would have another one.
const MAGIC: u8 = 0xf1;
/// The packet by which a mux ends the journal writer: it is too short for a frame.
pub(crate) const END: u8 = 0xf2;
/// It begins a message.
const FIRST: u8 = 1;
/// It ends a message.
const LAST: u8 = 2;

/// A frame, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Whether it begins a message.
    pub(crate) first: bool,
    /// Whether it ends a message.
    pub(crate) last: bool,
    /// The priority of the message, 0 to 7.
    pub(crate) priority: u8,
    /// Whether the message is of stderr.
    pub(crate) is_stderr: bool,
    /// Some bytes of the message.
    pub(crate) text: &'a [u8],
}

/// Bytes of the frames of a message of this length, at most.
pub(crate) const fn worst(text: usize) -> usize {
    text + HEADER * (text / PIECE + 1)
}

/// Appends the frames of a message.
pub(crate) fn encode(out: &mut Buffer<'_>, message: &Message<'_>) {
    let [mut a, mut b] = message.pieces;
    let mut left = message.len();
    let mut first = FIRST;
    while left > 0 {
        let len = left.min(PIECE);
        left -= len;
        let last = if left == 0 { LAST } else { 0 };
        let stream = u8::from(message.stream.logged_as() == Stream::Stderr.name());
        out.extend_from_slice(&[MAGIC, first | last, message.priority, stream]);
        // A frame's length fits 16 bits.
        out.extend_from_slice(&u16::try_from(len).unwrap_or(0).to_le_bytes());
        let of_a = len.min(a.len());
        out.extend_from_slice(&a[..of_a]);
        out.extend_from_slice(&b[..len - of_a]);
        (a, b) = (&a[of_a..], &b[len - of_a..]);
        first = 0;
    }
}

/// The number of bytes of these valid frames for one write.
pub(crate) fn packet(frames: &[u8]) -> usize {
    let mut rest = frames;
    let mut len = 0;
    while next(&mut rest).is_some() {
        let with_it = frames.len() - rest.len();
        if with_it > PACKET {
            break;
        }
        len = with_it;
    }
    len
}

/// Takes the next frame of a packet; `None` at the end, and for bytes that are not a frame, which no
/// mux writes: where the next one would begin is not known.
pub(crate) fn next<'a>(packet: &mut &'a [u8]) -> Option<Frame<'a>> {
    let frame = parse(packet)?;
    *packet = packet.get(HEADER + frame.text.len()..).unwrap_or_default();
    Some(frame)
}

fn parse(packet: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = packet.split_first_chunk::<HEADER>()?;
    let [MAGIC, flags, priority @ 0..=DEBUG, stream @ 0..=1, low, high] = *header else {
        return None;
    };
    let text = rest.get(..usize::from(u16::from_le_bytes([low, high])))?;
    let is_frame = flags & !(FIRST | LAST) == 0 && !text.is_empty();
    is_frame.then_some(Frame {
        first: flags & FIRST != 0,
        last: flags & LAST != 0,
        priority,
        is_stderr: stream == 1,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lens: &[usize]) -> Vec<u8> {
        let mut memory = vec![0; lens.iter().map(|len| worst(*len)).sum()];
        let mut out = Buffer::new(&mut memory);
        for len in lens {
            let text = vec![b'x'; *len];
            let (a, b) = text.split_at(len / 3);
            let before = out.len();
            let (stream, priority) = (Stream::Stderr, 3);
            encode(&mut out, &Message { stream, priority, pieces: [a, b] });
            assert!(out.len() - before <= worst(*len));
        }
        out.to_vec()
    }

    #[test]
    fn one_write_has_only_whole_frames() {
        for lens in [&[1][..], &[4090], &[4091], &[10000, 1, 1], &[100; 100], &[48 * 1024, 5]] {
            let all = frames(lens);
            let mut rest = &all[..];
            let mut messages = Vec::new();
            while !rest.is_empty() {
                let len = packet(rest);
                assert!((1..=PACKET).contains(&len), "{len}");
                let (mut one, behind) = rest.split_at(len);
                rest = behind;
                while let Some(frame) = next(&mut one) {
                    assert!(frame.is_stderr && frame.priority == 3);
                    if frame.first {
                        messages.push(0);
                    }
                    *messages.last_mut().unwrap() += frame.text.len();
                }
            }
            assert_eq!(messages, lens);
        }
    }

    #[test]
    fn other_bytes_are_no_frame() {
        let good = frames(&[3]);
        assert!(next(&mut &good[..]).is_some());
        for (at, byte) in [(0, 0), (1, 4), (2, 8), (3, 2), (4, 4), (4, 0), (5, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(next(&mut &bad[..]), None, "{at}: {byte}");
        }
        for len in 1..good.len() {
            assert_eq!(next(&mut &good[..len]), None, "{len}");
        }
    }
}
