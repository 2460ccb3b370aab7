//! Threads beside the event loop, and what they tell the loop: words in a queue, and a bell that can be
//! polled.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;

use crate::mux::poll::{Interest, Poller, Registration, Token};

/// Starts a thread that has no signals: those of the process are the event loop's, and would break off a
/// wait here.
pub(crate) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let quietly = move || {
        // It does not fail for a set of signals that there are.
        let _ = SigSet::all().thread_block();
        work();
    };
    thread::Builder::new().name(name).spawn(quietly).map(drop)
}

/// The thread's side.
#[derive(Debug)]
pub(crate) struct Notifier<T> {
    words: Sender<T>,
    bell: Arc<EventFd>,
}

/// The loop's side.
#[derive(Debug)]
pub struct Mailbox<T> {
    words: Receiver<T>,
    bell: Arc<EventFd>,
    /// Its place in the poller.
    watch: Registration,
}

/// What a thread does whose loop has gone: it ends.
#[derive(Debug)]
pub(crate) struct Over;

/// Both sides.
pub(crate) fn mailbox<T>() -> io::Result<(Notifier<T>, Mailbox<T>)> {
    let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    let (outbox, words) = channel();
    let mouth = Notifier { words: outbox, bell: Arc::clone(&bell) };
    Ok((mouth, Mailbox { words, bell, watch: Registration::default() }))
}

impl<T> Clone for Notifier<T> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<T> Notifier<T> {
    /// Tells the loop something.
    pub(crate) fn tell(&self, word: T) -> Result<(), Over> {
        self.words.send(word).map_err(|_| Over)?;
        // A bell that is full rings already.
        let _ = self.bell.write(1);
        Ok(())
    }
}

impl<T> Mailbox<T> {
    /// The next word, if there is one.
    pub(crate) fn word(&mut self) -> Option<T> {
        self.words.try_recv().ok()
    }

    /// Waits for a word, so long at most.
    pub fn await_word(&self, time: Duration) {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        // An interruption ends it early, and that is all.
        let _ = poll(&mut [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)], timeout);
    }

    /// Has it watched for words.
    pub(crate) fn listen(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        let interest = Some(Interest { read: true, write: false });
        poller.watch(&mut self.watch, &self.bell, token, interest)
    }

    /// Words are fetched now; the bell rings again for the next one.
    pub fn hear(&mut self) {
        let _ = self.bell.read();
    }
}
