//! The thread of a log's target: it alone touches the target, and may wait for it.
//!
//! It gets few chunks at a time, and has each until the target has it all. Between two attempts with a
//! target that fails it rests; an order to reopen it is obeyed meanwhile.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Chunk;
use super::file::LogFile;
use super::journal::Journal;
use crate::limits;
use crate::poll::Watch;

/// Where chunks go.
#[derive(Debug)]
pub enum Target {
    /// A file of ours, or a FIFO.
    File(LogFile),
    /// journald.
    Journal(Journal),
}

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Write(Chunk),
    Reopen,
}

/// What the thread has to tell.
#[derive(Debug)]
pub enum Word {
    /// The target has a chunk, which is given back for its memory.
    Written(Chunk),
    /// The target does not work; it is tried again.
    Failing(String),
    /// It was opened anew, or why that failed: then the old file is still written.
    Reopened(Result<(), String>),
}

/// The way to the thread. When this is dropped the thread ends, at the latest after its next attempt.
#[derive(Debug)]
pub struct Writer {
    orders: Sender<Order>,
    words: Receiver<Word>,
    bell: Arc<EventFd>,
    moved: Arc<Moved>,
    /// Its place in the poller.
    pub watch: Watch,
}

impl Writer {
    /// Starts the thread of a target.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn start(name: &str, target: Target) -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (orders, inbox) = channel();
        let (outbox, words) = channel();
        let moved = Arc::new(Moved { start: Instant::now(), millis: AtomicU64::new(0) });
        let thread = Thread {
            target,
            next: VecDeque::new(),
            orders: inbox,
            words: outbox,
            bell: Arc::clone(&bell),
            moved: Arc::clone(&moved),
        };
        thread::Builder::new().name(format!("log {name}")).spawn(move || thread.work())?;
        Ok(Self { orders, words, bell, moved, watch: Watch::default() })
    }

    /// Has a chunk written; its end is told by a word.
    pub fn write(&mut self, chunk: Chunk) {
        // The thread ends only after this.
        let _ = self.orders.send(Order::Write(chunk));
    }

    /// Has the target opened anew; the answer is a word.
    pub fn reopen(&mut self) {
        let _ = self.orders.send(Order::Reopen);
    }

    /// When the target last took something.
    #[must_use]
    pub fn moved(&self) -> Instant {
        self.moved.start + Duration::from_millis(self.moved.millis.load(Ordering::Relaxed))
    }

    /// The next word, if there is one.
    pub fn word(&mut self) -> Option<Word> {
        self.words.try_recv().ok()
    }

    /// Waits for a word, so long at most.
    pub fn await_word(&self, time: Duration) {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        // An interruption ends it early, and that is all.
        let _ = poll(&mut [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)], timeout);
    }

    /// Words are fetched now; the bell rings again for the next one.
    pub fn hear(&mut self) {
        let _ = self.bell.read();
    }
}

impl AsFd for Writer {
    /// Readable when there is a word.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The thread's side.
struct Thread {
    target: Target,
    /// Came while the one before was not written.
    next: VecDeque<Chunk>,
    orders: Receiver<Order>,
    words: Sender<Word>,
    bell: Arc<EventFd>,
    moved: Arc<Moved>,
}

/// When a target last took something: a slow one is not one that hangs.
#[derive(Debug)]
struct Moved {
    start: Instant,
    /// Since then.
    millis: AtomicU64,
}

/// What a thread that is asked to end does.
struct Over;

impl Thread {
    fn work(mut self) {
        while let Ok(order) = self.orders.recv() {
            let Ok(()) = self.obey(order) else { return };
            while let Some(chunk) = self.next.pop_front() {
                let Ok(()) = self.write(chunk) else { return };
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), Over> {
        match order {
            Order::Reopen => {
                let done = self.target.reopen().map_err(|e| e.to_string());
                self.tell(Word::Reopened(done))
            }
            Order::Write(chunk) => {
                self.next.push_back(chunk);
                Ok(())
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) -> Result<(), Over> {
        while chunk.done < chunk.bytes.len() {
            let Err(e) = self.target.write(&mut chunk) else {
                self.moved.now();
                continue;
            };
            self.tell(Word::Failing(e.to_string()))?;
            match self.orders.recv_timeout(limits::LOG_RETRY) {
                Ok(order) => self.obey(order)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Over),
            }
        }
        self.tell(Word::Written(chunk))
    }

    fn tell(&self, word: Word) -> Result<(), Over> {
        self.words.send(word).map_err(|_| Over)?;
        // A bell that is full rings already.
        let _ = self.bell.write(1);
        Ok(())
    }
}

impl Moved {
    fn now(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }
}

impl Target {
    /// Writes some of a chunk.
    fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(chunk),
            Self::Journal(journal) => journal.write(chunk),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Journal(_) => Ok(()),
        }
    }
}
