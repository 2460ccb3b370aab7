//! One connection: bytes from the hub to its socket, without a copy, and from the socket inwards.
//!
//! Invariant: nothing here blocks, and what is kept per client is bounded and small: a frame's
//! header, waiting control messages, and, only when the client was passed over in the middle of a
//! frame, the rest of that frame.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use log::Level;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{self, PeerCredentials};
use nix::sys::socket::{MsgFlags, UnixAddr, getsockopt, recv, sendmsg, setsockopt};

use crate::core::hub::{ClientId, Hub, Next};
use crate::core::screen::replies::Replies;
use crate::mux::poll::Registration;
use crate::os::diagnostics::Limited;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::wire::{Decoder, FrameKind, Gap, HEADER, LifecycleEvent, Redrawn};

/// Control bytes kept allocated for a client that has none waiting.
const SMALL: usize = 512;

/// Raw clients are not told what they miss, the log is.
static SLOW: Limited = Limited::new("slow clients");

/// What a connection speaks.
#[derive(Debug)]
pub(crate) enum Role {
    /// The bytes of one stream and nothing else.
    Raw(Stream),
    /// The session protocol.
    Session(SessionSide),
}

/// A session's side of the protocol.
#[derive(Debug, Default)]
pub(crate) struct SessionSide {
    /// Takes the client's frames apart.
    pub(crate) decoder: Decoder,
    /// Whether its hello has come.
    pub(crate) greeted: bool,
    /// Whether the end of its input ends the app's.
    pub(crate) stdin_once: bool,
    /// The streams it reads.
    pub(crate) streams: Vec<Stream>,
    /// Its window, if it has told.
    pub(crate) window: Option<Size>,
    /// How it is shown the app's terminal, where it asked for the screen.
    pub(crate) view: Option<View>,
    /// When it was last shown a screen.
    pub(crate) shown: Option<Instant>,
    /// What happened to the app, each with its place: where the streams ended then.
    turns: VecDeque<(LifecycleEvent, Ends)>,
}

/// How a session that asked for the screen is shown the app's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// By the app's bytes, as they come.
    Bytes,
    /// By screens, for its window is not the terminal's; it has the last one.
    Screens,
    /// By a screen that it is still to get, and then in one of the other ways.
    Due,
    /// By a screen that is being drawn.
    Asked,
}

/// The ends of all streams at a time, by `Stream as usize`; 0 for one that the app has not.
pub(crate) type Ends = [u64; Stream::ALL.len()];

impl SessionSide {
    /// The next turn of the app, when everything before it has been given to the client.
    fn due(&mut self, id: ClientId, hub: &Hub) -> Option<LifecycleEvent> {
        let (_, ends) = self.turns.front()?;
        let given = |s: &Stream| hub.at(id, *s).is_none_or(|at| at >= ends[*s as usize]);
        self.streams.iter().all(given).then(|| self.turns.pop_front().map(|(turn, _)| turn))?
    }

    /// How far a stream may be given that stands at `at`: up to the place of the next turn.
    fn fence(&self, stream: Stream, at: u64) -> u64 {
        let ends = self.turns.front().map(|(_, ends)| ends[stream as usize]);
        ends.filter(|end| *end > at).unwrap_or(u64::MAX)
    }
}

/// Whether a client can type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputAccess {
    /// It never could.
    No,
    /// It can.
    Open,
    /// Its input has ended.
    Ended,
}

/// Whether anything can be written to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlet {
    /// As far as is known.
    Open,
    /// Its last write was not taken whole: wait until it can be written.
    Full,
    /// It has gone: nothing reaches it any more, though something may be read.
    Gone,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Its process; 0 when it is in a pid namespace that is not seen from here.
    pub(crate) pid: i32,
}

impl Peer {
    /// Whoever has made this connection.
    pub(crate) fn of(socket: &UnixStream) -> io::Result<Self> {
        let peer = getsockopt(socket, PeerCredentials)?;
        Ok(Self { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid={} pid={}", self.uid, self.pid)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    socket: UnixStream,
    /// What it speaks.
    pub(crate) role: Role,
    /// Who it is.
    pub(crate) peer: Peer,
    /// What it may do.
    pub(crate) right: Right,
    /// Its place in the poller.
    pub(crate) watch: Registration,
    /// Whether it can type.
    pub(crate) typing: InputAccess,
    /// Whether anything can be written to it.
    pub(crate) outlet: Outlet,
    /// It sends no more.
    pub(crate) mute: bool,
    /// It was given up at the end: it gets nothing more of what there is.
    pub(crate) cut_off: bool,
    /// Its farewell is among what is still to be sent.
    pub(crate) farewell: bool,
    /// What its terminal replies to queries of the app, once there was one.
    pub(crate) replies: Option<Box<Replies>>,
    /// Bytes of frames of a screen that were the end of `out`; none of them is sent twice.
    drawn: usize,
    /// What is to be sent first: a header, a control frame, or a rescued rest.
    out: Vec<u8>,
    /// The rest of a frame that has been begun; comes after `out`.
    body: Option<(Stream, usize)>,
    /// Control frames for when that frame is through.
    control: Vec<u8>,
}

impl Client {
    /// A connection that was just accepted.
    pub(crate) fn new(socket: UnixStream, role: Role, peer: Peer, right: Right) -> Self {
        buffer(&socket, limits::SEND_BUFFER);
        Self {
            socket,
            role,
            peer,
            right,
            watch: Registration::default(),
            typing: InputAccess::No,
            outlet: Outlet::Open,
            mute: false,
            cut_off: false,
            farewell: false,
            replies: None,
            drawn: 0,
            out: Vec::new(),
            body: None,
            control: Vec::new(),
        }
    }

    /// What it is attached to, for people; empty for one that only asks.
    pub(crate) fn does(&self) -> String {
        let streams = match &self.role {
            // For its name alone an input is typing.
            Role::Raw(stream) => std::slice::from_ref(stream),
            Role::Session(session) => &session.streams,
        };
        let outputs = streams.iter().filter(|stream| stream.is_output()).map(|s| s.name());
        let typing = (self.typing != InputAccess::No).then_some("typing");
        outputs.chain(typing).collect::<Vec<_>>().join(",")
    }

    /// Whether it reads or types, and does not only ask.
    pub(crate) fn is_attached(&self) -> bool {
        let reads = !matches!(&self.role, Role::Session(session) if session.streams.is_empty());
        !self.is_gone() && (reads || self.typing != InputAccess::No)
    }

    /// Whether it is known what it wants: a raw client does not need to say so.
    pub(crate) fn greeted(&self) -> bool {
        match &self.role {
            Role::Raw(_) => true,
            Role::Session(session) => session.greeted,
        }
    }

    /// Whether nothing reaches it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.outlet == Outlet::Gone
    }

    /// Queues a control frame; a raw client gets none.
    pub(crate) fn tell(&mut self, frame: &[u8]) -> io::Result<()> {
        if matches!(self.role, Role::Raw(_)) {
            return Ok(());
        }
        if self.control.len() + frame.len() > limits::CONTROL {
            return Err(io::Error::other("it does not read its control messages"));
        }
        self.control.extend_from_slice(frame);
        Ok(())
    }

    /// Tells a session of a turn in the app's life, behind what the app wrote before it.
    pub(crate) fn tell_turn(&mut self, turn: LifecycleEvent, ends: Ends) {
        if let Role::Session(session) = &mut self.role {
            if session.turns.len() == limits::TURNS {
                session.turns.pop_front();
            }
            session.turns.push_back((turn, ends));
        }
    }

    /// Whether nothing waits here; the hub may still have something.
    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.body.is_none() && self.control.is_empty()
    }

    /// Writes what the hub has for this client until it has everything or takes no more.
    pub(crate) fn flush(&mut self, id: ClientId, hub: &mut Hub) -> io::Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.outlet = Outlet::Open;
        while !self.out.is_empty() || self.body.is_some() || self.begin(id, hub) {
            let (stream, len) = self.body.unwrap_or((Stream::Stdout, 0));
            let at = hub.at(id, stream).unwrap_or(0);
            let [a, b] = hub.bytes(stream, at..at + len as u64);
            let sent = self.send(&[&self.out, a, b])?;
            let control = sent.min(self.out.len());
            let whole = self.out.len() + len;
            self.out.drain(..control);
            if self.out.is_empty() {
                self.drawn = 0;
            }
            // Half of it is copied at the most once for each half that was sent.
            if self.out.capacity() > SMALL.max(2 * self.out.len()) {
                self.out.shrink_to(SMALL);
            }
            if sent > control {
                hub.accepted(id, stream, sent - control);
            }
            self.body = match &self.role {
                Role::Session(_) if sent < whole && len > 0 => {
                    Some((stream, len - (sent - control)))
                }
                _ => None,
            };
            if sent < whole {
                self.outlet = Outlet::Full;
                break;
            }
        }
        Ok(())
    }

    /// Begins with what waits, else with the next bytes of the hub; whether there was anything.
    fn begin(&mut self, id: ClientId, hub: &mut Hub) -> bool {
        if !self.control.is_empty() {
            std::mem::swap(&mut self.out, &mut self.control);
            return true;
        }
        if let Role::Session(SessionSide { view: Some(view), .. }) = &mut self.role {
            match view {
                View::Bytes if hub.missed(id, Stream::Tty) => *view = View::Due,
                View::Screens if !hub.is_caught_up(id) => *view = View::Due,
                _ => {}
            }
            match view {
                View::Bytes => {}
                // Where it stands is where its next bytes come from.
                View::Asked => return false,
                View::Screens | View::Due => hub.skip(id, Stream::Tty),
            }
        }
        let next = hub.next(id, limits::FRAME);
        // A gap may go beyond the place of a turn, so it comes first.
        if !matches!(next, Some(Next::Gap(..)))
            && let Role::Session(session) = &mut self.role
            && let Some(turn) = session.due(id, hub)
        {
            self.out.extend(turn.frame());
            return true;
        }
        match (next, &self.role) {
            (None, _) => false,
            (Some(Next::Gap(stream, range)), Role::Raw(_)) => {
                let lost = range.end - range.start;
                let peer = self.peer;
                let line = format_args!(
                    "{stream}: the client {peer} was too slow: {lost} bytes lost to it"
                );
                SLOW.log(Level::Warn, line);
                self.begin(id, hub)
            }
            (Some(Next::Gap(stream, range)), Role::Session(_)) => {
                let gap = Gap { stream, from: range.start, to: range.end };
                self.out.extend(FrameKind::Gap.message(&gap));
                true
            }
            (Some(Next::Bytes(stream, range)), role) => {
                let end = match role {
                    Role::Session(session) => range.end.min(session.fence(stream, range.start)),
                    Role::Raw(_) => range.end,
                };
                // At most what was asked for, which is a usize.
                let len = usize::try_from(end - range.start).unwrap_or(limits::FRAME);
                if matches!(role, Role::Session(_)) {
                    self.out.extend(FrameKind::of(stream).header(len));
                }
                self.body = Some((stream, len));
                true
            }
        }
    }

    /// Whether it waits for a screen, has got all that came before, and takes more as far as is known.
    pub(crate) fn wants_screen(&self) -> bool {
        let due = matches!(&self.role, Role::Session(SessionSide { view: Some(View::Due), .. }));
        due && self.is_flushed() && self.outlet == Outlet::Open
    }

    /// Whether it is still to be shown a screen.
    pub(crate) fn awaits_screen(&self) -> bool {
        use View::{Asked, Due};
        matches!(&self.role, Role::Session(SessionSide { view: Some(Due | Asked), .. }))
    }

    /// Shows a session what stands for all of its terminal's bytes before where it stands in the hub,
    /// behind what it was told before. No frame may have been begun.
    pub(crate) fn show(&mut self, id: ClientId, hub: &mut Hub, screen: &[u8]) {
        self.out.append(&mut self.control);
        let offset = hub.at(id, Stream::Tty).unwrap_or(0);
        let redrawn = Redrawn { stream: Stream::Tty, offset, bytes: screen.len() as u64 };
        self.out.extend(FrameKind::Redraw.message(&redrawn));
        // Others need not be given it.
        hub.accepted(id, Stream::Tty, 0);
        let before = self.out.len();
        let frames = screen.len().div_ceil(limits::SCREEN_FRAME);
        // It may stay for long, and doubling would take more.
        self.out.reserve_exact(screen.len() + frames * HEADER);
        for part in screen.chunks(limits::SCREEN_FRAME) {
            self.out.extend(FrameKind::Screen.header(part.len()));
            self.out.extend(part);
        }
        self.drawn = self.out.len() - before;
    }

    /// Bytes of its screen that it has not taken.
    pub(crate) fn undrawn(&self) -> usize {
        self.drawn.min(self.out.len())
    }

    /// Forgets what of its screen it has not taken, but for the frame that has begun: it is shown another when
    /// it takes that.
    pub(crate) fn forget_screen(&mut self) {
        let rest = self.undrawn();
        let begun = (self.drawn - rest) % (HEADER + limits::SCREEN_FRAME);
        let keeps = if begun == 0 { 0 } else { HEADER + limits::SCREEN_FRAME - begun };
        self.out.truncate(self.out.len() - rest + keeps.min(rest));
        self.out.shrink_to_fit();
        self.drawn = 0;
        if let Role::Session(SessionSide { view: Some(view), .. }) = &mut self.role {
            *view = View::Due;
        }
    }

    /// Whether its socket takes something now: most of what was sent before has been read.
    pub(crate) fn can_take(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Takes the rest of a frame out of the ring before it is overwritten.
    pub(crate) fn rescue(&mut self, id: ClientId, hub: &mut Hub) {
        if let Some((stream, len)) = self.body.take()
            && let Some(at) = hub.at(id, stream)
        {
            for part in hub.bytes(stream, at..at + len as u64) {
                self.out.extend_from_slice(part);
            }
            hub.accepted(id, stream, len);
        }
    }

    /// Sends pieces as one; how many bytes were taken.
    fn send(&self, pieces: &[&[u8]; 3]) -> io::Result<usize> {
        let pieces = pieces.map(IoSlice::new);
        loop {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            return match sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &pieces, &[], flags, None) {
                Ok(len) => Ok(len),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Ok(0),
                Err(e) => Err(e.into()),
            };
        }
    }

    /// Reads what the client sent; `None` when there is nothing now, 0 bytes at its end.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            return match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => Ok(Some(len)),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Ok(None),
                Err(e) => Err(e.into()),
            };
        }
    }

    /// Whether nothing that the client sent is still unread, though it has gone.
    pub(crate) fn is_drained(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        matches!(recv(self.socket.as_raw_fd(), &mut [0], flags), Ok(0) | Err(Errno::ECONNRESET))
    }

    /// Lets the kernel keep more for a client that is slower than the end of the mux.
    pub(crate) fn widen(&self) {
        buffer(&self.socket, limits::LAST_BUFFER);
    }

    /// Ends the connection so that the client reads everything that was sent and then an end: a
    /// unix socket that is closed with unread bytes would give it an error instead.
    pub(crate) fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        while matches!(self.receive(&mut [0; 4096]), Ok(Some(1..))) {}
    }
}

/// Has the kernel keep so much, in bytes, of what the peer has not read. A wish: the system's limit may
/// be met.
fn buffer(socket: &UnixStream, len: usize) {
    if let Err(e) = setsockopt(socket, sockopt::SndBuf, &len) {
        log::debug!("the buffer of a socket: {e}");
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
