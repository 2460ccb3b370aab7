//! One connection: bytes from the hub to its socket, without a copy, and from the socket inwards.
//!
//! Nothing here blocks.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use log::Level;
use nix::poll::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::core::hub::{ClientId, Hub, Next};
use crate::core::wire::{FrameKind, Gap, HEADER, History, Redrawn, Who};
use crate::mux::clients::outbox::ClientOutbox;
use crate::mux::clients::session_side::{SessionSide, ShownAs};
use crate::mux::clients::state::{Inbound, Outbound};
use crate::mux::pages::{GIVEN_LEAST, Pages, SHARED_READ, SocketPages};
use crate::mux::peer::Peer;
use crate::mux::poll::Registration;
use crate::screen::replies::Replies;
use crate::sys::calls;
use crate::sys::diagnostics::Limited;
use crate::sys::ready;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// Send buffer requested for each client, bytes: the kernel doubles it, which gives the kernel's
/// default.
const SEND_BUFFER: usize = 104 * 1024;
/// Send buffer requested for a client that gets the app's pages, bytes: the mux reads larger pieces
/// then. Thousands of clients that do not read must fit into the memory of the mux.
const WIDE_BUFFER: usize = 256 * 1024;
/// Bytes that a socket accepts beyond its send buffer: the largest piece that the kernel makes.
const LAST_PIECE: usize = 64 * 1024;
/// Send buffer requested for a client that is cut off at the end, bytes: room for the rest of a
/// frame and for the last messages.
const LAST_BUFFER: usize = 256 * 1024;

/// The log reports the losses of raw clients, since the mux cannot report these to the clients.
static SLOW: Limited = Limited::new("slow clients");

/// The protocol of a connection.
#[derive(Debug)]
pub(crate) enum Role {
    /// The bytes of one stream and nothing else.
    Raw(Stream),
    /// The session protocol.
    Session(SessionSide),
}

/// What is sent to a client at once.
enum Unsent {
    /// What the outbox begins with.
    InOutbox,
    /// Bytes of a stream whose pages are shared, for a session.
    Piece(Stream, Range<u64>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    socket: UnixStream,
    pub(crate) watch: Registration,
    pub(crate) role: Role,
    pub(crate) peer: Peer,
    pub(crate) right: Right,
    /// When it connected.
    pub(crate) since: Instant,
    pub(crate) inbound: Inbound,
    /// Whether it has shut down its side, and sends nothing more.
    pub(crate) is_closed: bool,
    pub(crate) outbound: Outbound,
    /// Its socket has not taken all of the last write: wait until it is writable.
    pub(crate) is_full: bool,
    /// Nothing comes behind its farewell, which is queued.
    pub(crate) has_farewell: bool,
    /// Since when it takes nothing, though there is something for it.
    pub(crate) stalled: Option<Instant>,
    outbox: ClientOutbox,
    /// The app's pages in its socket.
    pub(crate) pages: SocketPages,
    /// Separates its terminal's replies to the app's queries from keys; made with the first query.
    pub(crate) replies: Option<Box<Replies>>,
}

impl Client {
    /// A connection that was just accepted.
    pub(crate) fn new(socket: UnixStream, role: Role, peer: Peer, right: Right) -> Self {
        buffer(&socket, SEND_BUFFER);
        let inbound = match role {
            Role::Raw(_) => Inbound::Watching,
            Role::Session(_) => Inbound::Greeting,
        };
        Self {
            socket,
            watch: Registration::default(),
            role,
            peer,
            right,
            since: Instant::now(),
            inbound,
            is_closed: false,
            outbound: Outbound::Everything,
            is_full: false,
            has_farewell: false,
            stalled: None,
            outbox: ClientOutbox::default(),
            pages: SocketPages::default(),
            replies: None,
        }
    }

    /// It, for others.
    pub(crate) fn who(&self, id: ClientId) -> Who {
        Who { client: id.0, uid: self.peer.uid, pid: self.peer.pid }
    }

    pub(crate) fn session(&self) -> Option<&SessionSide> {
        match &self.role {
            Role::Raw(_) => None,
            Role::Session(session) => Some(session),
        }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut SessionSide> {
        match &mut self.role {
            Role::Raw(_) => None,
            Role::Session(session) => Some(session),
        }
    }

    fn view(&self) -> Option<ShownAs> {
        self.session().and_then(|session| session.view)
    }

    /// The streams of the client, for people; empty for one that only sends requests.
    pub(crate) fn attachment(&self) -> String {
        let streams = match &self.role {
            // A raw client of an input is attached by typing alone.
            Role::Raw(stream) => std::slice::from_ref(stream),
            Role::Session(session) => &session.streams,
        };
        let outputs = streams.iter().filter(|stream| stream.is_output()).map(|s| s.name());
        let typing = self.inbound.is_writer().then_some("typing");
        outputs.chain(typing).collect::<Vec<_>>().join(",")
    }

    /// Whether it reads or types, and does not only send requests.
    pub(crate) fn is_attached(&self) -> bool {
        let reads = self.session().is_none_or(|session| !session.streams.is_empty());
        !self.is_gone() && (reads || self.inbound.is_writer())
    }

    /// Whether nothing reaches it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.outbound == Outbound::Gone
    }

    /// Whether it is a client that has gone and whose input may not be read to the end.
    pub(crate) fn is_gone_writer(&self) -> bool {
        self.is_gone() && self.inbound == Inbound::Typing
    }

    /// Whether its terminal gets the app's next output unchanged, queries included: at once, or
    /// behind a screen that is being drawn.
    pub(crate) fn sees_bytes(&self) -> bool {
        match &self.role {
            Role::Session(SessionSide { view: Some(view), .. }) => {
                matches!(view, ShownAs::Bytes | ShownAs::Asked)
            }
            Role::Session(session) => session.streams.contains(&Stream::Tty),
            Role::Raw(stream) => *stream == Stream::Tty,
        }
    }

    /// Whether its terminal shows the app's, has the focus, and is typed at.
    pub(crate) fn has_focus(&self) -> bool {
        let shows = |session: &SessionSide| session.view.is_some() && !session.is_unfocused;
        self.inbound == Inbound::Typing && !self.is_gone() && self.session().is_some_and(shows)
    }

    /// Whether replies of its terminal come in its input.
    pub(crate) fn can_reply(&self) -> bool {
        self.inbound == Inbound::Typing && self.sees_bytes()
    }

    /// Its input has ended; if it `is_closed`, it sends nothing more.
    pub(crate) fn end_input(&mut self, is_closed: bool) {
        if self.inbound == Inbound::Typing {
            self.inbound = Inbound::Typed;
        }
        self.is_closed |= is_closed;
    }

    // ---- to the client ----

    /// It gets the rest of a frame, and no more output but the gap that stands for that, as far as
    /// the kernel keeps it for a client that is slower than the end of the mux.
    pub(crate) fn cut_off(&mut self, id: ClientId, hub: &mut Hub) {
        if !self.is_gone() {
            self.outbound = Outbound::CutOff;
        }
        self.rescue(id, hub);
        buffer(&self.socket, LAST_BUFFER);
    }

    /// Queues a control frame for a session; a raw client gets none.
    pub(crate) fn notify(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.role {
            Role::Raw(_) => Ok(()),
            Role::Session(_) => self.outbox.queue(frame),
        }
    }

    /// Whether nothing waits here; the hub may still have something.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Writes the hub's output for this client until it has everything or accepts no more.
    pub(crate) fn flush(
        &mut self,
        id: ClientId,
        hub: &mut Hub,
        pages: &mut Pages,
    ) -> io::Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.is_full = false;
        while let Some(part) = self.next(id, hub, pages) {
            let is_sent = match part {
                Unsent::InOutbox => self.send_outbox(id, hub, pages)?,
                Unsent::Piece(stream, range) => self.send_piece(id, hub, pages, (stream, range))?,
            };
            if !is_sent {
                self.wait_until_writable();
                break;
            }
        }
        Ok(())
    }

    /// It takes nothing more now.
    pub(crate) fn wait_until_writable(&mut self) {
        self.is_full = true;
        self.stalled.get_or_insert_with(Instant::now);
    }

    /// It has taken so many bytes.
    fn took(&mut self, len: usize) {
        if len > 0 {
            self.stalled = None;
        }
    }

    /// Sends what the outbox begins with; whether all of that was taken.
    fn send_outbox(&mut self, id: ClientId, hub: &mut Hub, pages: &mut Pages) -> io::Result<bool> {
        let (stream, len) = self.outbox.body.unwrap_or((Stream::Stdout, 0));
        let at = hub.at(id, stream).unwrap_or(0);
        let whole = self.outbox.head.len() + len;
        let taken = if self.takes_pages(id, hub, pages, (stream, at, len)) {
            self.send_pages(hub, pages, (stream, at, len))?
        } else {
            self.send_copy(hub, (stream, at, len))?
        };
        self.took(taken);
        let of_body = self.outbox.sent(taken, matches!(self.role, Role::Session(_)));
        if of_body > 0 {
            hub.accepted(id, stream, of_body);
        }
        Ok(taken == whole)
    }

    /// Sends a piece of the app's pages as frames; whether all of it was taken. The rest of a frame
    /// is in the outbox then.
    fn send_piece(
        &mut self,
        id: ClientId,
        hub: &mut Hub,
        pages: &mut Pages,
        (stream, range): (Stream, Range<u64>),
    ) -> io::Result<bool> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let Some(taken) = pages.give_frames(stream, &range, &self.socket)? else {
            self.outbox.begin_frame(stream, len.min(limits::FRAME));
            return Ok(true);
        };
        self.took(taken);
        let (frames, rest) = (taken / (HEADER + limits::FRAME), taken % (HEADER + limits::FRAME));
        let mut of_body = frames * limits::FRAME;
        if rest > 0 {
            self.outbox.begin_frame(stream, (len - of_body).min(limits::FRAME));
            of_body += self.outbox.sent(rest, true);
        }
        self.pages.took(stream, range.start, of_body);
        hub.accepted(id, stream, of_body);
        Ok(of_body == len)
    }

    /// Sends the head and a copy of this many bytes of a stream; how many bytes were taken.
    fn send_copy(
        &mut self,
        hub: &Hub,
        (stream, at, len): (Stream, u64, usize),
    ) -> io::Result<usize> {
        let [a, b] = hub.bytes(stream, at..at + len as u64);
        let taken = self.send(&[&self.outbox.head, a, b])?;
        self.pages.copied(stream, at, taken.saturating_sub(self.outbox.head.len()));
        Ok(taken)
    }

    /// The same with the app's pages instead of a copy.
    fn send_pages(
        &mut self,
        hub: &Hub,
        pages: &mut Pages,
        (stream, at, len): (Stream, u64, usize),
    ) -> io::Result<usize> {
        let head = self.outbox.head.len();
        let taken = if head > 0 { self.send(&[&self.outbox.head, &[], &[]])? } else { 0 };
        if taken < head {
            return Ok(taken);
        }
        let range = at..at + len as u64;
        if let Some(given) = pages.give(stream, &range, &self.socket)? {
            self.pages.took(stream, at, given);
            return Ok(head + given);
        }
        let [a, b] = hub.bytes(stream, range);
        let taken = self.send(&[&[], a, b])?;
        self.pages.copied(stream, at, taken);
        Ok(head + taken)
    }

    /// Whether these bytes go to the client as pages. Its socket is made ready for that first.
    fn takes_pages(
        &mut self,
        id: ClientId,
        hub: &Hub,
        pages: &Pages,
        (stream, at, len): (Stream, u64, usize),
    ) -> bool {
        let end = at + len as u64;
        if len < GIVEN_LEAST || pages.end_of_piece(stream, at).is_none_or(|of| of < end) {
            return false;
        }
        let is_ready = self.pages.is_ready() || hub.is_proven(id) && self.prepare();
        is_ready && self.pages.may_take(stream, at)
    }

    /// Prepares the socket for pages: with one that blocks, splice(2) would wait and hold a lock of
    /// the pipe.
    fn prepare(&mut self) -> bool {
        if self.socket.set_nonblocking(true).is_err() {
            return false;
        }
        buffer(&self.socket, WIDE_BUFFER);
        let Ok(room) = socket_send_buffer_size(&self.socket) else { return false };
        self.pages.begin((room + LAST_PIECE) as u64);
        true
    }

    /// How many bytes of the app's pages the peer has still to read, at most.
    pub(crate) fn unread_pages(&self) -> u64 {
        let Some((_, held)) = self.pages.held() else { return 0 };
        let unread = calls::unread_by_peer(&self.socket).map_or(u64::MAX, |unread| unread as u64);
        unread.min(held.end - held.start)
    }

    /// What is to be sent next: what has begun, waiting messages, or else the next bytes of the hub.
    fn next(&mut self, id: ClientId, hub: &mut Hub, pages: &Pages) -> Option<Unsent> {
        if self.outbox.has_begun() || self.outbox.begin_control() {
            return Some(Unsent::InOutbox);
        }
        if self.session_mut().is_some_and(|session| !session.view_bytes(id, hub)) {
            return None;
        }
        let next = hub.next(id, SHARED_READ);
        // A gap may go beyond the place of an event, so it comes first.
        if !matches!(next, Some(Next::Gap(..)))
            && let Some(event) = self.session_mut().and_then(|session| session.due_event(id, hub))
        {
            self.outbox.head.extend(event.frame());
            return Some(Unsent::InOutbox);
        }
        match (next?, &self.role) {
            (Next::Gap(stream, range), Role::Raw(_)) => {
                let (peer, lost) = (self.peer, range.end - range.start);
                let line = format_args!(
                    "{stream}: the client {peer} was too slow: {lost} bytes lost to it"
                );
                SLOW.log(Level::Warn, peer.did("slow"), line);
                return self.next(id, hub, pages);
            }
            (Next::Gap(stream, range), Role::Session(_)) => {
                let gap = Gap { stream, from: range.start, to: range.end };
                self.outbox.head.extend(FrameKind::Gap.message(&gap));
            }
            (Next::Bytes(stream, mut range), role) => {
                if let Role::Session(session) = role {
                    range.end = range.end.min(session.fence(stream, range.start));
                }
                if let Some(end) = pages.end_of_piece(stream, range.start) {
                    range.end = range.end.min(end);
                }
                // At most the requested length, which is a usize.
                let len = usize::try_from(range.end - range.start).unwrap_or(SHARED_READ);
                if matches!(role, Role::Raw(_)) {
                    self.outbox.body = Some((stream, len));
                } else if pages.is_piece(stream, &range)
                    // Frames in a pipe cost more than to send a single client each of them.
                    && hub.clients(stream).nth(1).is_some()
                    && self.takes_pages(id, hub, pages, (stream, range.start, len))
                {
                    return Some(Unsent::Piece(stream, range));
                } else {
                    self.outbox.begin_frame(stream, len.min(limits::FRAME));
                }
            }
        }
        Some(Unsent::InOutbox)
    }

    /// Takes the rest of a frame out of the ring before it is overwritten.
    pub(crate) fn rescue(&mut self, id: ClientId, hub: &mut Hub) {
        if let Some((stream, len)) = self.outbox.body.take()
            && let Some(at) = hub.at(id, stream)
        {
            self.outbox.head.reserve(len);
            for part in hub.bytes(stream, at..at + len as u64) {
                self.outbox.head.extend_from_slice(part);
            }
            hub.accepted(id, stream, len);
        }
    }

    // ---- screens ----

    /// The screen becomes due, if it asked for screens at all; whether it did.
    pub(crate) fn owe_screen(&mut self) -> bool {
        let view = self.session_mut().and_then(|session| session.view.as_mut());
        view.map(|view| *view = ShownAs::Due).is_some()
    }

    /// Whether it waits for a screen, has everything that came before, and takes more as far as is
    /// known.
    pub(crate) fn wants_screen(&self) -> bool {
        let takes = !self.is_gone() && !self.is_full;
        self.view() == Some(ShownAs::Due) && self.is_flushed() && takes
    }

    /// Whether it is still to be shown a screen.
    pub(crate) fn awaits_screen(&self) -> bool {
        matches!(self.view(), Some(ShownAs::Due | ShownAs::Asked))
    }

    /// Shows a session a screen that stands for all of its terminal's bytes before its place in the
    /// hub. No frame may have begun.
    pub(crate) fn show(
        &mut self,
        id: ClientId,
        hub: &mut Hub,
        (screen, size): (&[u8], Option<Size>),
    ) {
        let offset = hub.at(id, Stream::Tty).unwrap_or(0);
        let redrawn = Redrawn { stream: Stream::Tty, offset, bytes: screen.len() as u64, size };
        if self.session().is_none_or(|session| session.history != Some(History::Only)) {
            // Other clients need not be given those bytes.
            hub.accepted(id, Stream::Tty, 0);
        }
        self.outbox.show(&FrameKind::Redraw.message(&redrawn), screen);
    }

    /// Bytes of its screen that it has not taken.
    pub(crate) fn undrawn(&self) -> usize {
        self.outbox.undrawn()
    }

    /// The bytes of a screen that it has not taken, if any, and when that was drawn.
    pub(crate) fn waiting_screen(&self) -> Option<(usize, Instant)> {
        let session = self.session().filter(|session| session.view.is_some())?;
        Some((self.undrawn(), session.shown?)).filter(|(len, _)| *len > 0)
    }

    /// Drops the part of its screen that it has not taken, except the frame that has begun. Another
    /// screen is due.
    pub(crate) fn forget_screen(&mut self) {
        self.outbox.forget_screen();
        self.owe_screen();
    }

    // ---- the socket ----

    /// Whether its socket accepts bytes now: most of the earlier ones have been read.
    pub(crate) fn can_take(&self) -> bool {
        ready::is(&self.socket, PollFlags::POLLOUT)
    }

    /// Sends pieces as one; how many bytes were taken.
    fn send(&self, pieces: &[&[u8]; 3]) -> io::Result<usize> {
        let pieces = pieces.map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let no_descriptors = &mut SendAncillaryBuffer::default();
        let sent = ready::at_once(|| sendmsg(&self.socket, &pieces, no_descriptors, flags))?;
        Ok(sent.unwrap_or(0))
    }

    /// Reads from the client; `None` if nothing has come, 0 bytes at the end.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = RecvFlags::DONTWAIT;
        let received = ready::at_once(|| recv(&self.socket, &mut *buffer, flags))?;
        Ok(received.map(|(len, _)| len))
    }

    /// Whether nothing that the client sent is still unread, though it has gone.
    pub(crate) fn is_drained(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(recv(&self.socket, &mut [0][..], flags), Ok((0, _)) | Err(Errno::CONNRESET))
    }

    /// Ends the connection so that the client reads all bytes and then an end: if a unix socket is
    /// closed with unread bytes, its peer gets an error instead.
    pub(crate) fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        while matches!(self.receive(&mut [0; 4096]), Ok(Some(1..))) {}
    }
}

/// Asks the kernel to keep up to `len` bytes that the peer has not read. The system's limit may be
/// lower.
fn buffer(socket: &UnixStream, len: usize) {
    let _ = set_socket_send_buffer_size(socket, len);
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::hub::memory::Memory;
    use crate::types::stream::Epoch;

    fn client() -> Client {
        let (socket, _) = UnixStream::pair().unwrap();
        let role = Role::Session(SessionSide::default());
        Client::new(socket, role, Peer { uid: 0, gid: 0, pid: 1 }, Right::Own)
    }

    #[test]
    fn the_end_of_input_leaves_requests_and_a_closed_side_leaves_nothing() {
        let mut client = client();
        client.inbound = Inbound::Typing;
        client.end_input(false);
        assert!(client.inbound == Inbound::Typed && !client.is_closed);
        client.end_input(true);
        client.end_input(false);
        assert!(client.inbound.is_writer() && client.is_closed);
        for never_typed in [Inbound::Greeting, Inbound::Watching] {
            client.inbound = never_typed;
            client.end_input(true);
            assert_eq!(client.inbound, never_typed);
        }
    }

    #[test]
    fn a_client_is_cut_off_before_or_after_its_farewell_and_is_gone_for_good() {
        let mut client = client();
        let memory = Memory::new(&Stream::PLAIN, 4096);
        let mut hub = Hub::new(&Stream::PLAIN, 4096, memory, Epoch(1));
        client.has_farewell = true;
        client.cut_off(ClientId(1), &mut hub);
        assert!(client.outbound == Outbound::CutOff && client.has_farewell);
        client.outbound = Outbound::Gone;
        client.cut_off(ClientId(1), &mut hub);
        assert!(client.is_gone());
    }
}
