//! The connection of an attach to its mux, while there is one.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::attach_mode::WantedStreams;
use crate::core::wire::FrameKind;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::size::Window;
use crate::types::stream::Epoch;

/// The connection, if there is one, and its state.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) wanted: WantedStreams,
    /// The sending direction, and what it has not taken.
    socket: Option<UnixStream>,
    unsent: Vec<u8>,
    /// The epoch of the session's offsets.
    epoch: Option<Epoch>,
    /// How the mux has announced its end.
    pub(crate) announced_end: Option<AnnouncedEnd>,
}

/// Why a mux ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnnouncedEnd {
    /// The app ended.
    App(Exit),
    /// The mux ends and does not know how the app does.
    Mux,
}

impl Connection {
    pub(crate) fn new(wanted: WantedStreams, socket: UnixStream, epoch: Option<Epoch>) -> Self {
        let socket = Some(socket);
        Self { wanted, socket, unsent: Vec::new(), epoch, announced_end: None }
    }

    /// Whether a new connection continues the streams of this one.
    pub(crate) fn is_continued_by(&self, new: &Self) -> bool {
        self.wanted.outputs.is_empty() || self.epoch.is_some() && self.epoch == new.epoch
    }

    /// The mux has ended it.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    pub(crate) fn is_up(&self) -> bool {
        self.socket.is_some()
    }

    /// Bytes that the socket has not taken; `None` without an uplink.
    pub(crate) fn unsent(&self) -> Option<usize> {
        self.socket.as_ref().map(|_| self.unsent.len())
    }

    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Sends as much as the socket accepts without waiting.
    pub(crate) fn flush(&mut self) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        while let Some(socket) = self.socket.as_ref().filter(|_| !self.unsent.is_empty()) {
            match send(socket.as_raw_fd(), &self.unsent, flags) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                // The mux's last messages still come by the other direction.
                Err(_) => self.socket = None,
            }
        }
    }

    /// Sends input for the app, or queues it; whether there is an uplink.
    pub(crate) fn send_input(&mut self, bytes: &[u8]) -> bool {
        let parts = bytes.chunks(limits::FRAME);
        let is_up = self.queue(parts.flat_map(|part| FrameKind::Stdin.frame(part)));
        self.flush();
        is_up
    }

    /// No more input will come.
    pub(crate) fn end_input(&mut self) {
        self.queue(FrameKind::StdinEof.frame(b""));
    }

    /// Reports the window. Whether there is an uplink.
    pub(crate) fn resize(&mut self, window: Window) -> bool {
        self.queue(FrameKind::Resize.message(&window))
    }

    fn queue(&mut self, frames: impl IntoIterator<Item = u8>) -> bool {
        if self.is_up() {
            self.unsent.extend(frames);
        }
        self.is_up()
    }
}
