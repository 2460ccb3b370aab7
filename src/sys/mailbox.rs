//! Threads that work for an event loop, and their messages to it: a queue, and a waker that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;

use crate::sys::ready;

/// Starts a thread that blocks all signals: the event loop handles the signals of the process, and
/// in the thread they would interrupt a wait.
pub(crate) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let quietly = move || {
        // It does not fail for a valid set of signals.
        let _ = SigSet::all().thread_block();
        work();
    };
    thread::Builder::new().name(name).spawn(quietly).map(drop)
}

/// The thread's side of a mailbox.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    messages: Messages<T>,
    waker: Arc<EventFd>,
}

#[derive(Debug)]
enum Messages<T> {
    /// Of any number: the loop asks for each of them.
    Asked(mpsc::Sender<T>),
    /// A thread waits if so many are there.
    Bounded(SyncSender<T>),
}

/// The loop's side of a mailbox. Its descriptor is readable when a message has come since
/// [`Mailbox::clear`].
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Receiver<T>,
    waker: Arc<EventFd>,
}

/// The event loop does not receive messages any more: the thread has to end.
#[derive(Debug)]
pub(crate) struct Disconnected;

/// Makes both sides of a mailbox, for messages that the loop has asked for.
pub(crate) fn mailbox<T>() -> io::Result<(Sender<T>, Mailbox<T>)> {
    let (sender, messages) = channel();
    both(Messages::Asked(sender), messages)
}

/// The same for messages that come by themselves: a thread waits while there are so many.
pub(crate) fn bounded<T>(most: usize) -> io::Result<(Sender<T>, Mailbox<T>)> {
    let (sender, messages) = sync_channel(most);
    both(Messages::Bounded(sender), messages)
}

fn both<T>(sender: Messages<T>, messages: Receiver<T>) -> io::Result<(Sender<T>, Mailbox<T>)> {
    let waker = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    let sender = Sender { messages: sender, waker: Arc::clone(&waker) };
    Ok((sender, Mailbox { messages, waker }))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let messages = match &self.messages {
            Messages::Asked(sender) => Messages::Asked(sender.clone()),
            Messages::Bounded(sender) => Messages::Bounded(sender.clone()),
        };
        Self { messages, waker: Arc::clone(&self.waker) }
    }
}

impl<T> Sender<T> {
    /// Sends a message and wakes the loop.
    pub(crate) fn send(&self, message: T) -> Result<(), Disconnected> {
        match &self.messages {
            Messages::Asked(sender) => sender.send(message),
            Messages::Bounded(sender) => sender.send(message),
        }
        .map_err(|_| Disconnected)?;
        // It fails only if the waker is at its limit: then the loop wakes in any case.
        let _ = self.waker.write(1);
        Ok(())
    }
}

impl<T> Mailbox<T> {
    /// Takes the next message.
    pub(crate) fn receive(&mut self) -> Option<T> {
        self.messages.try_recv().ok()
    }

    /// Waits for a message, at most for this time.
    pub fn wait(&self, time: Duration) {
        // An interruption ends the wait early.
        let _ = ready::wait_for(&self.waker, PollFlags::POLLIN, Some(time));
    }

    /// Resets the waker. Call it before taking the messages.
    pub fn clear(&mut self) {
        let _ = self.waker.read();
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_message_wakes_the_loop_once() {
        let (sender, mut mailbox) = mailbox().unwrap();
        let is_ready = |mailbox: &Mailbox<u8>| ready::is(mailbox, PollFlags::POLLIN);
        assert!(!is_ready(&mailbox));
        sender.clone().send(1).unwrap();
        sender.send(2).unwrap();
        assert!(is_ready(&mailbox));
        mailbox.clear();
        assert!(!is_ready(&mailbox));
        assert_eq!(
            [mailbox.receive(), mailbox.receive(), mailbox.receive()],
            [Some(1), Some(2), None]
        );
        drop(mailbox);
        assert!(sender.send(3).is_err());
    }

    #[test]
    fn a_thread_waits_while_there_are_many() {
        let (sender, mut mailbox) = bounded(8).unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let thread = thread::spawn(move || {
            for number in 0..1000 {
                count.store(number, Ordering::SeqCst);
                sender.send(number).unwrap();
            }
        });
        let mut received = 0;
        while received < 1000 {
            mailbox.wait(Duration::from_secs(30));
            mailbox.clear();
            while let Some(number) = mailbox.receive() {
                assert_eq!(number, received);
                received += 1;
                assert!(sent.load(Ordering::SeqCst) <= received + 8);
            }
        }
        thread.join().unwrap();
    }
}
