//! Readiness: one epoll set for everything that a mux waits for.
//!
//! Level-triggered: an unhandled event is reported again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags as Flags, EpollTimeout};

use crate::core::hub::ClientId;
use crate::types::limits;
use crate::types::stream::Stream;

/// The role of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The source of this stream.
    Source(Stream),
    /// The app's input.
    Input,
    /// The listener with this index.
    Listener(usize),
    /// The writer of the log with this index.
    Log(usize),
    /// The thread that knows the screen.
    Screen,
    /// A signal has come.
    Signals,
    /// The FIFO of the journal writer, which is never watched for more than its end.
    JournalWriter,
    /// The engine of a container: its output of a stream, or for stdin its input.
    Engine(Stream),
    /// A client.
    Client(ClientId),
}

/// Rounds a time up to whole milliseconds: a wait that ended too early would be repeated in vain.
const ALMOST_MILLISECOND: Duration = Duration::from_nanos(999_999);

/// An event of a descriptor. If neither of the flags is set it can be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: Token,
    /// It can be read, or its end has come.
    pub(crate) readable: bool,
    /// The peer is gone altogether.
    pub(crate) hangup: bool,
}

impl Readiness {
    /// That a descriptor may be readable.
    pub(crate) fn readable(token: Token) -> Self {
        Self { token, readable: true, hangup: false }
    }
}

/// The events that a descriptor is watched for. That the peer is gone is always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A descriptor's place in the set.
#[derive(Debug, Default)]
pub(crate) struct Registration(Option<Interest>);

/// The set.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: Epoll,
    /// The roles of the descriptors, by their numbers: of those that are closed the last one.
    tokens: RefCell<BTreeMap<u64, Token>>,
}

impl Poller {
    /// An empty set.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, tokens: RefCell::default() })
    }

    /// Watches a descriptor for these events, or not at all (then not even for a hangup). The kernel
    /// refuses that only for want of memory; then the loop goes on without.
    pub(crate) fn watch(
        &self,
        watch: &mut Registration,
        fd: impl AsFd,
        token: Token,
        wanted: Option<Interest>,
    ) {
        let number = fd.as_fd().as_raw_fd().unsigned_abs().into();
        let done = match (watch.0, wanted) {
            (is, wanted) if is == wanted => return,
            (None, Some(interest)) => {
                self.tokens.borrow_mut().insert(number, token);
                self.epoll.add(fd, interest.event(number))
            }
            (Some(_), Some(interest)) => self.epoll.modify(fd, &mut interest.event(number)),
            (_, None) => self.epoll.delete(fd),
        };
        match done {
            Ok(()) => watch.0 = wanted,
            Err(e) => log::error!("cannot watch a descriptor: {e}"),
        }
    }

    /// Watches what is read for as long as it lives, such as the messages of a thread.
    pub(crate) fn listen(&self, fd: impl AsFd, token: Token) {
        let interest = Some(Interest { read: true, write: false });
        self.watch(&mut Registration::default(), fd, token, interest);
    }

    /// Waits until something is ready, at most until `until`, and takes it. It may be late by up to
    /// a millisecond, since the kernel counts whole ones.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Readiness>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let mut buffer = [EpollEvent::empty(); limits::EVENTS];
        let timeout = until.map_or(EpollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            EpollTimeout::try_from(left + ALMOST_MILLISECOND).unwrap_or(EpollTimeout::MAX)
        });
        let count = match self.epoll.wait(&mut buffer, timeout) {
            // A signal has come, and the next wait reports it.
            Err(Errno::EINTR) => 0,
            count => count?,
        };
        let tokens = self.tokens.borrow();
        events.clear();
        events.extend(buffer[..count].iter().filter_map(|event| {
            let flags = event.events();
            Some(Readiness {
                token: *tokens.get(&event.data())?,
                readable: flags.contains(Flags::EPOLLIN),
                hangup: flags.intersects(Flags::EPOLLHUP | Flags::EPOLLERR),
            })
        }));
        Ok(())
    }
}

impl Interest {
    fn event(self, number: u64) -> EpollEvent {
        let mut flags = Flags::empty();
        flags.set(Flags::EPOLLIN, self.read);
        flags.set(Flags::EPOLLOUT, self.write);
        EpollEvent::new(flags, number)
    }
}
