//! The thread of a log's target: it alone touches the target, and may wait for it.
//!
//! It gets few chunks at a time, and has each until the target has it all. Between two attempts with a
//! target that fails it rests; an order to reopen it is obeyed meanwhile.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::fifo::Fifo;
use super::file::LogFile;
use super::journald::JournalSocket;
use super::pipeline::Chunk;
use crate::mux::sink::thread::{Mailbox, Notifier, Over, mailbox, spawn};
use crate::types::limits;

/// Where chunks go.
#[derive(Debug)]
pub enum LogSink {
    /// A file of ours, or a FIFO.
    File(Box<LogFile>),
    /// journald.
    Journal(JournalSocket),
    /// Whatever a test does with it.
    #[cfg(test)]
    Test(tests::Does),
    /// `iojournal@NAME.service`.
    Fifo(Fifo),
}

/// What the thread is to do.
#[derive(Debug)]
enum WriterCommand {
    Begin,
    Write(Chunk),
    Reopen,
    GiveUp,
}

/// What the thread has to tell.
#[derive(Debug)]
pub enum WriterEvent {
    /// The target has a chunk, which is given back for its memory.
    Written(Chunk),
    /// The target has only so much of a chunk as was done: the thread has panicked over the rest, twice.
    Lost(Chunk),
    /// The target does not work; it is tried again.
    Failing(String),
    /// It was opened anew, or why that failed: then the old file is still written.
    Reopened(Result<(), String>),
    /// It has given up, and these are what the target has not, or not all of: the first of them.
    Left(Vec<Chunk>),
}

/// The way to the thread. When this is dropped the thread ends, at the latest after its next attempt.
#[derive(Debug)]
pub struct LogWriter {
    orders: Sender<WriterCommand>,
    moved: Arc<Moved>,
    /// Whether its target is a file, which can be reopened.
    is_file: bool,
    /// It has been asked to open its target anew, and has not answered.
    reopening: bool,
    /// It is asked once more when it has.
    again: bool,
    /// What it tells; its words are told by [`LogWriter::word`].
    pub mailbox: Mailbox<WriterEvent>,
}

impl LogWriter {
    /// Starts the thread of a target.
    pub fn start(name: &str, target: LogSink) -> io::Result<Self> {
        let is_file = matches!(target, LogSink::File(_));
        let (orders, inbox) = channel();
        let (mouth, mailbox) = mailbox()?;
        let moved = Arc::new(Moved { start: Instant::now(), millis: AtomicU64::new(0) });
        let thread = WriterThread {
            target,
            next: VecDeque::new(),
            orders: inbox,
            mouth,
            moved: Arc::clone(&moved),
        };
        spawn(format!("log {name}"), move || thread.work())?;
        Ok(Self { orders, moved, is_file, reopening: false, again: false, mailbox })
    }

    /// Whether its target is a file, which can be reopened.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Nothing was written there by a mux that this one goes on for: to be told before the first chunk.
    pub(crate) fn begin(&self) {
        let _ = self.orders.send(WriterCommand::Begin);
    }

    /// Has a chunk written; its end is told by a word.
    pub(crate) fn write(&mut self, chunk: Chunk) {
        // The thread ends only after this.
        let _ = self.orders.send(WriterCommand::Write(chunk));
    }

    /// Has the target opened anew; the answer is a word: the next one that tells of it, or the one
    /// after that. However often this is asked of a target that hangs, no more than one order waits.
    pub(crate) fn reopen(&mut self) -> usize {
        if self.reopening {
            // That one may have been opened before this was asked.
            self.again = true;
            return 2;
        }
        self.reopening = true;
        let _ = self.orders.send(WriterCommand::Reopen);
        1
    }

    /// Has it end when a write has failed, or all is written, and tell what is left.
    pub(crate) fn give_up(&mut self) {
        let _ = self.orders.send(WriterCommand::GiveUp);
    }

    /// When the target last took something.
    pub(crate) fn moved(&self) -> Instant {
        self.moved.start + Duration::from_millis(self.moved.millis.load(Ordering::Relaxed))
    }

    /// The next word, if there is one.
    pub fn word(&mut self) -> Option<WriterEvent> {
        let word = self.mailbox.word()?;
        if let WriterEvent::Reopened(_) = word {
            self.reopening = false;
            if std::mem::take(&mut self.again) {
                self.reopen();
            }
        }
        Some(word)
    }
}

/// The thread's side.
struct WriterThread {
    target: LogSink,
    /// Came while the one before was not written.
    next: VecDeque<Chunk>,
    orders: Receiver<WriterCommand>,
    mouth: Notifier<WriterEvent>,
    moved: Arc<Moved>,
}

/// When a target last took something: a slow one is not one that hangs.
#[derive(Debug)]
struct Moved {
    start: Instant,
    /// Since then.
    millis: AtomicU64,
}

impl WriterThread {
    fn work(mut self) {
        while let Ok(order) = self.orders.recv() {
            let Ok(()) = self.obey(order) else { return };
            while let Some(chunk) = self.next.pop_front() {
                let Ok(()) = self.write(chunk) else { return };
            }
        }
    }

    fn obey(&mut self, order: WriterCommand) -> Result<(), Over> {
        match order {
            WriterCommand::Begin => {
                if let LogSink::File(file) = &mut self.target
                    && let Err(panic) = contain(|| file.begin())
                {
                    return self.mouth.tell(WriterEvent::Failing(panic));
                }
                Ok(())
            }
            WriterCommand::Reopen => {
                let target = &mut self.target;
                let done = contain(|| target.reopen());
                let done = done.and_then(|done| done.map_err(|e| e.to_string()));
                self.mouth.tell(WriterEvent::Reopened(done))
            }
            WriterCommand::Write(chunk) => {
                self.next.push_back(chunk);
                Ok(())
            }
            WriterCommand::GiveUp => {
                self.mouth.tell(WriterEvent::Left(self.next.drain(..).collect()))?;
                Err(Over)
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) -> Result<(), Over> {
        let mut has_panicked = false;
        while chunk.done < chunk.bytes.len() {
            let done = chunk.done;
            let target = &mut self.target;
            let why = match contain(|| target.write(&mut chunk)) {
                Ok(Ok(())) => {
                    self.moved.now();
                    has_panicked = false;
                    continue;
                }
                Ok(Err(e)) => e.to_string(),
                Err(panic) => {
                    // What it left behind is not used again, as far as that can be.
                    chunk.done = done;
                    let _ = contain(|| target.reopen());
                    if has_panicked {
                        self.moved.now();
                        return self.mouth.tell(WriterEvent::Lost(chunk));
                    }
                    has_panicked = true;
                    panic
                }
            };
            self.mouth.tell(WriterEvent::Failing(why))?;
            match self.orders.recv_timeout(limits::LOG_RETRY) {
                Ok(WriterCommand::GiveUp) => {
                    self.next.push_front(chunk);
                    return self.obey(WriterCommand::GiveUp);
                }
                Ok(order) => self.obey(order)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Over),
            }
        }
        self.mouth.tell(WriterEvent::Written(chunk))
    }
}

/// Does something with a target; a panic ends nothing, and is told: the log goes on after it.
fn contain<T>(does: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(does)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!(
            "a defect of iottymux: its writer panicked: {}",
            text.unwrap_or("no reason is known")
        )
    })
}

impl Moved {
    fn now(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }
}

impl LogSink {
    /// Writes some of a chunk.
    fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(chunk),
            Self::Journal(journal) => journal.write(chunk),
            #[cfg(test)]
            Self::Test(does) => does.write(chunk),
            Self::Fifo(fifo) => fifo.write(chunk),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Journal(_) | Self::Fifo(_) => Ok(()),
            #[cfg(test)]
            Self::Test(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Mutex;

    use super::*;
    use crate::core::hub::Hub;
    use crate::core::hub::memory::Memory;
    use crate::logfmt::encoder::FormatOptions;
    use crate::logfmt::format::find;
    use crate::mux::logs::pipeline::{Log, LogOptions, Lost};
    use crate::types::stream::{Epoch, Stream};
    use crate::types::time::Now;

    type Write = Box<dyn FnMut(&mut Chunk) -> io::Result<()> + Send>;

    /// A target of a test.
    pub struct Does(Write);

    impl Does {
        pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
            (self.0)(chunk)
        }
    }

    impl fmt::Debug for Does {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Does")
        }
    }

    /// A raw log of what an app writes, to a target that panics over all that has this word in it.
    struct Rig {
        hub: Hub,
        log: Log,
        has: Arc<Mutex<String>>,
        panics: Arc<AtomicU64>,
    }

    impl Rig {
        /// After so many panics the target works.
        fn new(most: u64) -> Self {
            let streams = [Stream::Stdout];
            let mut hub = Hub::new(&streams, 1 << 16, Memory::new(&streams, 1 << 16), Epoch(1));
            let (has, panics) = (Arc::<Mutex<String>>::default(), Arc::<AtomicU64>::default());
            let (to, count) = (Arc::clone(&has), Arc::clone(&panics));
            let write = move |chunk: &mut Chunk| {
                let text = String::from_utf8(chunk.bytes.clone()).unwrap();
                if text.contains("bad") && count.load(Ordering::Relaxed) < most {
                    count.fetch_add(1, Ordering::Relaxed);
                    panic!("it has met something bad");
                }
                to.lock().unwrap().push_str(&text[chunk.done..]);
                chunk.done = text.len();
                Ok(())
            };
            let target = LogSink::Test(Does(Box::new(write)));
            let writer = LogWriter::start("test", target).unwrap();
            let encoder = find("raw").unwrap().encoder(&FormatOptions::default());
            let log = Log::new("test".into(), encoder, LogOptions::default(), writer, &mut hub);
            Self { hub, log, has, panics }
        }

        /// The app writes this, and the target has all that it takes.
        fn write(&mut self, text: &str) {
            let [space, _] = self.hub.space(Stream::Stdout, text.len());
            space.copy_from_slice(text.as_bytes());
            self.hub.commit(Stream::Stdout, text.len(), Now::read());
            let until = Instant::now() + 3 * limits::LOG_STUCK;
            loop {
                self.log.advance(&mut self.hub, Instant::now());
                if self.log.finish(&mut self.hub, Instant::now()) {
                    return;
                }
                assert!(Instant::now() < until, "{:?}", self.log.failing());
                self.log.writer().mailbox.await_word(limits::LOG_STUCK);
                self.log.writer().mailbox.hear();
                while let Some(word) = self.log.writer().word() {
                    self.log.on_word(word, &mut self.hub, Instant::now());
                }
            }
        }
    }

    #[test]
    fn a_target_that_panics_once_loses_nothing() {
        let mut rig = Rig::new(1);
        for text in ["one\n", "bad\n", "two\n"] {
            rig.write(text);
        }
        assert_eq!(*rig.has.lock().unwrap(), "one\nbad\ntwo\n");
        assert_eq!((rig.log.lost(), rig.log.failing()), (Lost::default(), None));
    }

    #[test]
    fn what_a_target_panics_over_twice_is_counted_as_lost_and_the_log_goes_on() {
        let mut rig = Rig::new(u64::MAX);
        for text in ["one\n", "bad 1\nbad 2\n", "two\n"] {
            rig.write(text);
        }
        assert_eq!(rig.panics.load(Ordering::Relaxed), 2);
        assert_eq!(rig.log.lost(), Lost { lines: 2, bytes: 10 });
        assert_eq!(
            *rig.has.lock().unwrap(),
            "one\niottymux: 2 lines (10 bytes) were lost here\ntwo\n"
        );
        assert_eq!(rig.log.failing(), None);
    }
}
