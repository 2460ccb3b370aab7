//! The bytes on their way to one client that are not in the hub: headers, control frames, a screen,
//! and the rest of a frame that was overtaken in the hub.
//!
//! The kept memory is small and bounded. A frame that has begun is finished before another one.

use std::io;

use crate::core::wire::{FrameKind, HEADER};
use crate::sys::calls;
use crate::types::limits;
use crate::types::stream::Stream;

/// Bytes of control messages that may wait for one client. The mux drops a client with more.
const CONTROL: usize = 64 * 1024;

/// Bytes that stay allocated for a client that has none waiting.
const SMALL: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ClientOutbox {
    /// Sent first: a header, control frames, a screen, or the rest of a frame.
    pub(crate) head: Vec<u8>,
    /// The rest of a frame that has begun. Its bytes are in the hub and follow `head`.
    pub(crate) body: Option<(Stream, usize)>,
    /// Control frames that wait until that frame is through.
    control: Vec<u8>,
    /// Bytes of a screen's frames at the end of `head`. None of them is sent twice.
    drawn: usize,
}

impl ClientOutbox {
    /// Whether nothing waits here. The hub may still have something.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_begun() && self.control.is_empty()
    }

    /// Whether a frame has begun.
    pub(crate) fn has_begun(&self) -> bool {
        !self.head.is_empty() || self.body.is_some()
    }

    /// Queues a control frame, as long as the client reads such frames.
    pub(crate) fn queue(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.control.len() + frame.len() > CONTROL {
            return Err(io::Error::other("it does not read its control messages"));
        }
        self.control.extend_from_slice(frame);
        Ok(())
    }

    /// Begins with the control frames; whether there are any. No frame may have begun.
    pub(crate) fn begin_control(&mut self) -> bool {
        let waits = !self.control.is_empty();
        if waits {
            std::mem::swap(&mut self.head, &mut self.control);
        }
        waits
    }

    /// Begins a frame with this many bytes of a stream.
    pub(crate) fn begin_frame(&mut self, stream: Stream, len: usize) {
        self.head.extend(FrameKind::of(stream).header(len));
        self.body = Some((stream, len));
    }

    /// The socket accepted `taken` bytes; returns how many of them were the body's. The rest of the
    /// body is kept only if frames have to be whole.
    pub(crate) fn sent(&mut self, taken: usize, keeps_frames: bool) -> usize {
        let head = taken.min(self.head.len());
        let whole = self.head.len() + self.body.map_or(0, |(_, len)| len);
        self.head.drain(..head);
        if self.head.is_empty() {
            self.drawn = 0;
        }
        // At most half of it is copied, once for each half that was sent.
        if self.head.capacity() > SMALL.max(2 * self.head.len()) {
            calls::give_back_unused(&mut self.head);
            self.head.shrink_to_fit();
        }
        let of_body = taken - head;
        self.body = self.body.filter(|_| keeps_frames && taken < whole);
        if let Some((_, len)) = &mut self.body {
            *len -= of_body;
        }
        of_body
    }

    /// Queues a control frame and the frames of a screen after the waiting bytes.
    pub(crate) fn show(&mut self, redraw: &[u8], screen: &[u8]) {
        self.head.append(&mut self.control);
        self.head.extend_from_slice(redraw);
        let before = self.head.len();
        let frames = screen.len().div_ceil(limits::SCREEN_FRAME);
        // It may stay for long, and doubling would take more.
        self.head.reserve_exact(screen.len() + frames * HEADER);
        for part in screen.chunks(limits::SCREEN_FRAME) {
            self.head.extend(FrameKind::Screen.header(part.len()));
            self.head.extend(part);
        }
        self.drawn = self.head.len() - before;
    }

    /// Bytes of a screen that wait here.
    pub(crate) fn undrawn(&self) -> usize {
        self.drawn.min(self.head.len())
    }

    /// Drops the bytes of a screen that wait here, except the frame that has begun.
    pub(crate) fn forget_screen(&mut self) {
        let rest = self.undrawn();
        let begun = (self.drawn - rest) % (HEADER + limits::SCREEN_FRAME);
        let keeps = if begun == 0 { 0 } else { HEADER + limits::SCREEN_FRAME - begun };
        self.head.truncate(self.head.len() - rest + keeps.min(rest));
        self.head.shrink_to_fit();
        self.drawn = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_the_rest_of_a_frame_and_a_raw_client_does_not() {
        for (keeps_frames, rest) in [(true, Some((Stream::Stdout, 6))), (false, None)] {
            let mut outbox = ClientOutbox::default();
            outbox.head.extend(b"head");
            outbox.body = Some((Stream::Stdout, 10));
            assert_eq!(outbox.sent(3, keeps_frames), 0);
            assert_eq!(outbox.head, b"d");
            if keeps_frames {
                assert_eq!(outbox.body, Some((Stream::Stdout, 10)));
            }
            outbox.body = Some((Stream::Stdout, 10));
            assert_eq!(outbox.sent(5, keeps_frames), 4);
            assert_eq!(outbox.body, rest);
        }
    }

    #[test]
    fn control_frames_are_bounded_and_wait_for_a_frame_that_has_begun() {
        let mut outbox = ClientOutbox::default();
        outbox.head.push(b'x');
        outbox.queue(b"control").unwrap();
        assert!(outbox.queue(&vec![0; CONTROL]).is_err());
        assert_eq!(outbox.sent(1, true), 0);
        assert!(!outbox.has_begun() && !outbox.is_empty());
        assert!(outbox.begin_control());
        assert_eq!(outbox.head, b"control");
        assert!(!outbox.begin_control());
    }
}
