//! The thread of a log's target: it alone touches the target, and may wait for it.
//!
//! It gets few chunks at a time, and has each until the target has it all. Between two attempts with a
//! target that fails it rests; an order to reopen it is obeyed meanwhile.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::Chunk;
use super::file::LogFile;
use super::journal::Journal;
use crate::limits;
use crate::sink::thread::{Ear, Mouth, Over, mailbox, spawn};

/// Where chunks go.
#[derive(Debug)]
pub enum Target {
    /// A file of ours, or a FIFO.
    File(Box<LogFile>),
    /// journald.
    Journal(Journal),
}

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Begin,
    Write(Chunk),
    Reopen,
    GiveUp,
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
    /// It has given up, and these are what the target has not, or not all of: the first of them.
    Left(Vec<Chunk>),
}

/// The way to the thread. When this is dropped the thread ends, at the latest after its next attempt.
#[derive(Debug)]
pub struct Writer {
    orders: Sender<Order>,
    moved: Arc<Moved>,
    /// It has been asked to open its target anew, and has not answered.
    reopening: bool,
    /// It is asked once more when it has.
    again: bool,
    /// What it tells; its words are told by [`Writer::word`].
    pub ear: Ear<Word>,
}

impl Writer {
    /// Starts the thread of a target.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn start(name: &str, target: Target) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (mouth, ear) = mailbox()?;
        let moved = Arc::new(Moved { start: Instant::now(), millis: AtomicU64::new(0) });
        let thread = Thread {
            target,
            next: VecDeque::new(),
            orders: inbox,
            mouth,
            moved: Arc::clone(&moved),
        };
        spawn(format!("log {name}"), move || thread.work())?;
        Ok(Self { orders, moved, reopening: false, again: false, ear })
    }

    /// Nothing was written there by a mux that this one goes on for: to be told before the first chunk.
    pub fn begin(&self) {
        let _ = self.orders.send(Order::Begin);
    }

    /// Has a chunk written; its end is told by a word.
    pub fn write(&mut self, chunk: Chunk) {
        // The thread ends only after this.
        let _ = self.orders.send(Order::Write(chunk));
    }

    /// Has the target opened anew; the answer is a word: the next one that tells of it, or the one
    /// after that. However often this is asked of a target that hangs, no more than one order waits.
    pub fn reopen(&mut self) -> usize {
        if self.reopening {
            // That one may have been opened before this was asked.
            self.again = true;
            return 2;
        }
        self.reopening = true;
        let _ = self.orders.send(Order::Reopen);
        1
    }

    /// Has it end when a write has failed, or all is written, and tell what is left.
    pub fn give_up(&mut self) {
        let _ = self.orders.send(Order::GiveUp);
    }

    /// When the target last took something.
    #[must_use]
    pub fn moved(&self) -> Instant {
        self.moved.start + Duration::from_millis(self.moved.millis.load(Ordering::Relaxed))
    }

    /// The next word, if there is one.
    pub fn word(&mut self) -> Option<Word> {
        let word = self.ear.word()?;
        if let Word::Reopened(_) = word {
            self.reopening = false;
            if std::mem::take(&mut self.again) {
                self.reopen();
            }
        }
        Some(word)
    }
}

/// The thread's side.
struct Thread {
    target: Target,
    /// Came while the one before was not written.
    next: VecDeque<Chunk>,
    orders: Receiver<Order>,
    mouth: Mouth<Word>,
    moved: Arc<Moved>,
}

/// When a target last took something: a slow one is not one that hangs.
#[derive(Debug)]
struct Moved {
    start: Instant,
    /// Since then.
    millis: AtomicU64,
}

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
            Order::Begin => {
                if let Target::File(file) = &mut self.target {
                    file.begin();
                }
                Ok(())
            }
            Order::Reopen => {
                let done = self.target.reopen().map_err(|e| e.to_string());
                self.mouth.tell(Word::Reopened(done))
            }
            Order::Write(chunk) => {
                self.next.push_back(chunk);
                Ok(())
            }
            Order::GiveUp => {
                self.mouth.tell(Word::Left(self.next.drain(..).collect()))?;
                Err(Over)
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) -> Result<(), Over> {
        while chunk.done < chunk.bytes.len() {
            let Err(e) = self.target.write(&mut chunk) else {
                self.moved.now();
                continue;
            };
            self.mouth.tell(Word::Failing(e.to_string()))?;
            match self.orders.recv_timeout(limits::LOG_RETRY) {
                Ok(Order::GiveUp) => {
                    self.next.push_front(chunk);
                    return self.obey(Order::GiveUp);
                }
                Ok(order) => self.obey(order)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Over),
            }
        }
        self.mouth.tell(Word::Written(chunk))
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
