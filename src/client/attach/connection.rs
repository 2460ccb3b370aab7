//! The connection of an attach to its mux, while there is one.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, UnixAddr, sendmsg};

use super::mode::WantedStreams;
use crate::core::wire::{FrameKind, HEADER};
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::size::Window;
use crate::types::stream::Epoch;

/// The connection, if there is one, and its state.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) wanted: WantedStreams,
    uplink: Option<Uplink>,
    /// Downlinks that have not ended.
    open: usize,
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
    /// A connection with this many downlinks.
    pub(crate) fn new(
        wanted: WantedStreams,
        uplink: Option<Uplink>,
        downlinks: usize,
        epoch: Option<Epoch>,
    ) -> Self {
        Self { wanted, uplink, open: downlinks, epoch, announced_end: None }
    }

    /// Whether a new connection continues the streams of this one.
    pub(crate) fn is_continued_by(&self, new: &Self) -> bool {
        self.wanted.outputs.is_empty() || self.epoch.is_some() && self.epoch == new.epoch
    }

    /// A downlink has ended. Whether it was the last one: then the connection is gone.
    pub(crate) fn end_downlink(&mut self) -> bool {
        self.open -= 1;
        if self.open == 0 {
            self.uplink = None;
        }
        self.open == 0
    }

    pub(crate) fn is_up(&self) -> bool {
        self.uplink.is_some()
    }

    pub(crate) fn is_session(&self) -> bool {
        self.uplink.as_ref().is_some_and(Uplink::is_session)
    }

    /// Bytes that the socket has not taken; `None` without an uplink.
    pub(crate) fn unsent(&self) -> Option<usize> {
        self.uplink.as_ref().map(|uplink| uplink.unsent.len())
    }

    /// Whether something waits until the socket takes it.
    pub(crate) fn has_unsent(&self) -> bool {
        self.uplink.as_ref().is_some_and(|uplink| !uplink.unsent.is_empty() || uplink.is_ending)
    }

    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.uplink.as_ref().map(|uplink| uplink.socket.as_fd())
    }

    /// Sends as much as the socket accepts without waiting.
    pub(crate) fn flush(&mut self) {
        if self.uplink.as_mut().is_some_and(|uplink| uplink.flush().is_err()) {
            // The mux's last messages still come by the other direction.
            self.uplink = None;
        }
    }

    /// Queues input for the app; whether there is an uplink.
    pub(crate) fn send_input(&mut self, bytes: &[u8]) -> bool {
        self.uplink.as_mut().map(|uplink| uplink.push_input(bytes)).is_some()
    }

    /// Queues the last input, and its end, to be sent in one piece: the app may end on that input.
    pub(crate) fn send_last_input(&mut self, bytes: &[u8]) -> bool {
        self.uplink.as_mut().map(|uplink| uplink.push_last_input(bytes)).is_some()
    }

    /// No more input will come.
    pub(crate) fn end_input(&mut self) {
        self.uplink.iter_mut().for_each(Uplink::end_input);
    }

    /// Reports the window. Whether there is an uplink; a raw socket reports nothing.
    pub(crate) fn resize(&mut self, window: Window) -> bool {
        if let Some(uplink) = self.uplink.as_mut().filter(|uplink| uplink.is_session()) {
            uplink.unsent.extend_from_slice(&FrameKind::Resize.message(&window));
        }
        self.is_up()
    }
}

/// The sending direction.
#[derive(Debug)]
pub(crate) struct Uplink {
    socket: UnixStream,
    end_of_input: EndOfInput,
    unsent: Vec<u8>,
    /// To be shut down when everything is sent.
    is_ending: bool,
}

/// How the mux learns that no more input comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    /// By a frame of the session.
    Frame,
    /// By the end of the raw socket.
    Shutdown,
    /// Not at all.
    Ignored,
}

impl Uplink {
    pub(crate) fn new(socket: UnixStream, end_of_input: EndOfInput) -> Self {
        Self { socket, end_of_input, unsent: Vec::new(), is_ending: false }
    }

    fn is_session(&self) -> bool {
        self.end_of_input == EndOfInput::Frame
    }

    fn push_input(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(limits::FRAME) {
            let header = self.header(part.len());
            self.push_parts([header.as_ref().map_or(&[][..], |header| header), part]);
        }
    }

    fn push_last_input(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(limits::FRAME) {
            self.unsent.extend(self.header(part.len()).iter().flatten());
            self.unsent.extend_from_slice(part);
        }
        self.end_input();
    }

    /// What goes before so much input.
    fn header(&self, len: usize) -> Option<[u8; HEADER]> {
        self.is_session().then(|| FrameKind::Stdin.header(len))
    }

    /// Sends what the socket takes at once, and keeps the rest. Errors will be met again.
    fn push_parts(&mut self, parts: [&[u8]; 2]) {
        let is_next = self.unsent.is_empty();
        let mut sent = if is_next { self.send(&parts).unwrap_or(0) } else { 0 };
        for part in parts {
            let skipped = sent.min(part.len());
            sent -= skipped;
            self.unsent.extend_from_slice(&part[skipped..]);
        }
    }

    fn send(&self, parts: &[&[u8]]) -> nix::Result<usize> {
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &parts, &[], flags, None)
    }

    fn end_input(&mut self) {
        match self.end_of_input {
            EndOfInput::Frame => self.unsent.extend_from_slice(&FrameKind::StdinEof.frame(b"")),
            EndOfInput::Shutdown => self.is_ending = true,
            EndOfInput::Ignored => {}
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.send(&[&self.unsent]) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        if std::mem::take(&mut self.is_ending) {
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}
