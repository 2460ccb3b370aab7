//! Readiness: one epoll set for all descriptors of a mux, itself watched by the runtime.
//!
//! Reasons against one runtime object per descriptor: an event costs the same with one client as
//! with a thousand, FIFOs, terminals and sockets are watched alike, and the events of the mux are
//! one closed enum. Level-triggered: an unhandled event is reported again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags as Flags, EpollTimeout};
use tokio::io::unix::AsyncFd;

use crate::core::hub::ClientId;
use crate::os::mailbox::Mailbox;
use crate::os::sys;
use crate::types::limits;

/// The role of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The source with this index.
    Source(usize),
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
    /// The socket to which a container's terminal is sent.
    Console,
    /// The engine of a container: its input, or from 1 on its outputs.
    Engine(usize),
    /// A client.
    Client(ClientId),
}

const KIND_SHIFT: u32 = 60;

impl Token {
    fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Source(index) => (0, index as u64),
            Self::Input => (1, 0),
            Self::Listener(index) => (2, index as u64),
            Self::Log(index) => (3, index as u64),
            Self::Client(ClientId(id)) => (4, id),
            Self::Screen => (5, 0),
            Self::Signals => (6, 0),
            Self::Console => (7, 0),
            Self::Engine(index) => (8, index as u64),
        };
        kind << KIND_SHIFT | number
    }

    fn unpack(packed: u64) -> Self {
        let number = packed & ((1 << KIND_SHIFT) - 1);
        // Indices were a usize when they were packed.
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        match packed >> KIND_SHIFT {
            0 => Self::Source(index),
            1 => Self::Input,
            2 => Self::Listener(index),
            3 => Self::Log(index),
            5 => Self::Screen,
            6 => Self::Signals,
            7 => Self::Console,
            8 => Self::Engine(index),
            _ => Self::Client(ClientId(number)),
        }
    }
}

/// An event of a descriptor. If neither of the flags is set it can be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) token: Token,
    /// It can be read, or its end has come.
    pub(crate) readable: bool,
    /// The peer is gone altogether.
    pub(crate) hangup: bool,
}

impl Event {
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
    ready: AsyncFd<OwnedFd>,
}

impl Poller {
    /// An empty set. Needs a runtime with I/O.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let ready = sys::watch(epoll.0.try_clone()?)?;
        Ok(Self { epoll, ready })
    }

    /// Watches a descriptor for these events, or not at all (then not even for a hangup).
    pub(crate) fn watch(
        &self,
        watch: &mut Registration,
        fd: impl AsFd,
        token: Token,
        wanted: Option<Interest>,
    ) -> io::Result<()> {
        if watch.0 == wanted {
            return Ok(());
        }
        match (watch.0, wanted) {
            (None, Some(interest)) => self.epoll.add(fd, interest.event(token))?,
            (Some(_), Some(interest)) => self.epoll.modify(fd, &mut interest.event(token))?,
            (_, None) => self.epoll.delete(fd)?,
        }
        watch.0 = wanted;
        Ok(())
    }

    /// Watches for the messages of a thread.
    pub(crate) fn listen<T>(&self, mailbox: &Mailbox<T>, token: Token) -> io::Result<()> {
        let interest = Some(Interest { read: true, write: false });
        // It stays in the set for as long as the mailbox lives.
        self.watch(&mut Registration::default(), mailbox, token, interest)
    }

    /// Waits until something is ready, and takes it.
    pub(crate) async fn wait(&self, events: &mut Vec<Event>) -> io::Result<()> {
        loop {
            let mut guard = self.ready.readable().await?;
            if self.take(events, Some(Duration::ZERO))? {
                return Ok(());
            }
            guard.clear_ready();
        }
    }

    /// Takes the ready descriptors within `time`, of which whole milliseconds count. Without a
    /// time, it waits until something is ready. Returns whether there was anything. Meanwhile the
    /// runtime does nothing.
    pub(crate) fn take(&self, events: &mut Vec<Event>, time: Option<Duration>) -> io::Result<bool> {
        let mut buffer = [EpollEvent::empty(); limits::EVENTS];
        let timeout = time.map_or(EpollTimeout::NONE, |time| {
            EpollTimeout::try_from(time).unwrap_or(EpollTimeout::ZERO)
        });
        let count = match self.epoll.wait(&mut buffer, timeout) {
            Err(Errno::EINTR) => 0,
            count => count?,
        };
        events.clear();
        events.extend(buffer[..count].iter().map(Event::from));
        Ok(count > 0)
    }
}

/// The kernel refuses to watch a descriptor only for want of memory; then the loop goes on without.
pub(crate) fn log_watch(done: io::Result<()>) {
    if let Err(e) = done {
        log::error!("cannot watch a descriptor: {e}");
    }
}

impl Interest {
    fn event(self, token: Token) -> EpollEvent {
        let mut flags = Flags::empty();
        flags.set(Flags::EPOLLIN, self.read);
        flags.set(Flags::EPOLLOUT, self.write);
        EpollEvent::new(flags, token.pack())
    }
}

impl From<&EpollEvent> for Event {
    fn from(event: &EpollEvent) -> Self {
        let flags = event.events();
        Self {
            token: Token::unpack(event.data()),
            readable: flags.contains(Flags::EPOLLIN),
            hangup: flags.intersects(Flags::EPOLLHUP | Flags::EPOLLERR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let client = ClientId((1 << KIND_SHIFT) - 1);
        let log = Token::Log(3);
        for token in [
            Token::Source(2),
            Token::Input,
            Token::Listener(7),
            log,
            Token::Screen,
            Token::Signals,
            Token::Console,
            Token::Engine(2),
            Token::Client(client),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
