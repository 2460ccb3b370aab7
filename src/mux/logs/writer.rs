//! The thread that writes a log: only it touches the target, and it may wait for it.
//!
//! It has few chunks at a time, and keeps each until the target has all of it. It rests between two
//! attempts with a failing target; a request to reopen the target interrupts the rest.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::file::LogFile;
use super::journal_fifo::Fifo;
use super::journal_socket::JournalSocket;
use crate::core::logfmt::chunk::Chunk;
use crate::sys::mailbox::{Disconnected, Mailbox, Sender, mailbox, spawn};
use crate::types::limits;

/// Where chunks go.
#[derive(Debug)]
pub enum LogSink {
    /// A file, a FIFO or a device.
    File(Box<LogFile>),
    /// journald.
    Journal(JournalSocket),
    /// The journal writer.
    Fifo(Fifo),
    /// A function of a test.
    #[cfg(test)]
    Test(tests::Does),
}

/// A command for the thread.
#[derive(Debug)]
enum WriterCommand {
    Write(Chunk),
    /// Reopen the target, as this generation.
    Reopen(u64),
}

/// An event of the thread.
#[derive(Debug)]
pub enum WriterEvent {
    /// The target has a chunk, whose memory can be reused.
    Written(Chunk),
    /// The target fails; the thread tries again.
    Failing(String),
    /// The target was reopened, or why not: then the old file is still written.
    Reopened(Reopened),
}

/// The result of reopening a target.
#[derive(Clone, Debug)]
pub struct Reopened {
    /// It includes all requests up to this generation.
    pub(crate) generation: u64,
    pub(crate) result: Result<(), String>,
}

/// The loop's side of the thread. When it is dropped, the thread ends, at the latest after its next
/// attempt.
#[derive(Debug)]
pub struct LogWriter {
    commands: mpsc::Sender<WriterCommand>,
    moved: Arc<Moved>,
    /// Whether its target is a file, which can be reopened.
    pub(crate) is_file: bool,
    /// The generation of the last request to reopen the target.
    requested: u64,
    /// The last result; a request of a higher generation is on its way or waits.
    pub(crate) reopened: Reopened,
    /// The events of the thread; [`LogWriter::receive`] takes them.
    pub mailbox: Mailbox<WriterEvent>,
}

impl LogWriter {
    /// Starts the thread of a target.
    pub fn start(name: &str, target: LogSink) -> io::Result<Self> {
        let is_file = matches!(target, LogSink::File(_));
        let (commands, inbox) = channel();
        let (events, mailbox) = mailbox()?;
        let moved = Arc::new(Moved { start: Instant::now(), millis: AtomicU64::new(0) });
        let (chunks, seen) = (VecDeque::new(), Arc::clone(&moved));
        let thread = WriterThread { target, chunks, commands: inbox, events, moved: seen };
        spawn(format!("log {name}"), move || thread.work())?;
        let reopened = Reopened { generation: 0, result: Ok(()) };
        Ok(Self { commands, moved, is_file, requested: 0, reopened, mailbox })
    }

    /// Writes a chunk; an event reports the end.
    pub(crate) fn write(&mut self, chunk: Chunk) {
        self.send(WriterCommand::Write(chunk));
    }

    /// Requests that the target is reopened. Returns the generation of the request. If a target
    /// hangs, at most one command waits for it.
    pub(crate) fn reopen(&mut self) -> u64 {
        let is_idle = self.requested == self.reopened.generation;
        self.requested += 1;
        if is_idle {
            self.send(WriterCommand::Reopen(self.requested));
        }
        self.requested
    }

    /// When the target last took something.
    pub(crate) fn moved(&self) -> Instant {
        self.moved.start + Duration::from_millis(self.moved.millis.load(Ordering::Relaxed))
    }

    /// Takes the next event.
    pub fn receive(&mut self) -> Option<WriterEvent> {
        let event = self.mailbox.receive()?;
        if let WriterEvent::Reopened(reopened) = &event {
            if reopened.generation < self.requested {
                self.send(WriterCommand::Reopen(self.requested));
            }
            self.reopened = reopened.clone();
        }
        Some(event)
    }

    fn send(&self, command: WriterCommand) {
        // The thread ends only after this is dropped.
        let _ = self.commands.send(command);
    }
}

/// The thread.
struct WriterThread {
    target: LogSink,
    /// Chunks to be written, the oldest first.
    chunks: VecDeque<Chunk>,
    commands: Receiver<WriterCommand>,
    events: Sender<WriterEvent>,
    moved: Arc<Moved>,
}

/// When a target last took something: a slow target does not count as one that hangs.
#[derive(Debug)]
struct Moved {
    start: Instant,
    /// Milliseconds after the start.
    millis: AtomicU64,
}

impl WriterThread {
    fn work(mut self) {
        while let Ok(command) = self.commands.recv() {
            let Ok(()) = self.obey(command) else { return };
            while let Some(chunk) = self.chunks.pop_front() {
                let Ok(()) = self.write(chunk) else { return };
            }
        }
    }

    fn obey(&mut self, command: WriterCommand) -> Result<(), Disconnected> {
        match command {
            WriterCommand::Reopen(generation) => {
                let target = &mut self.target;
                let result = contain(|| target.reopen());
                self.events.send(WriterEvent::Reopened(Reopened { generation, result }))
            }
            WriterCommand::Write(chunk) => {
                self.chunks.push_back(chunk);
                Ok(())
            }
        }
    }

    fn write(&mut self, mut chunk: Chunk) -> Result<(), Disconnected> {
        while chunk.done < chunk.bytes.len() {
            let target = &mut self.target;
            let Err(why) = contain(|| target.write(&mut chunk)) else {
                self.moved.now();
                continue;
            };
            self.events.send(WriterEvent::Failing(why))?;
            match self.commands.recv_timeout(limits::LOG_RETRY) {
                Ok(command) => self.obey(command)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Disconnected),
            }
        }
        self.events.send(WriterEvent::Written(chunk))
    }
}

/// Does something with a target. A panic becomes an error: the log tries again after it.
fn contain(does: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
    let done = catch_unwind(AssertUnwindSafe(does)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!("a bug in iottymux: its writer panicked: {}", text.unwrap_or("for unknown reasons"))
    });
    done?.map_err(|e| e.to_string())
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

/// The thread of a log in a test, which does what the test says.
#[cfg(test)]
pub(crate) struct ByHand {
    commands: Receiver<WriterCommand>,
    events: Sender<WriterEvent>,
    file: LogFile,
}

#[cfg(test)]
impl ByHand {
    /// The writer of a file that nobody writes before [`ByHand::step`].
    pub(crate) fn new(file: LogFile) -> (LogWriter, Self) {
        let (commands, inbox) = channel();
        let (events, mailbox) = mailbox().unwrap();
        let moved = Arc::new(Moved { start: Instant::now(), millis: AtomicU64::new(0) });
        let reopened = Reopened { generation: 0, result: Ok(()) };
        let writer = LogWriter { commands, moved, is_file: true, requested: 0, reopened, mailbox };
        (writer, Self { commands: inbox, events, file })
    }

    /// Obeys the next command. Returns whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        match self.commands.try_recv() {
            Ok(WriterCommand::Write(mut chunk)) => {
                while chunk.done < chunk.bytes.len() {
                    self.file.write(&mut chunk).unwrap();
                }
                let _ = self.events.send(WriterEvent::Written(chunk));
            }
            Ok(WriterCommand::Reopen(_)) => unreachable!(),
            Err(_) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Mutex;

    use super::*;
    use crate::core::hub::Hub;
    use crate::core::hub::memory::Memory;
    use crate::core::logfmt::chunk::Lost;
    use crate::core::logfmt::encoder::FormatOptions;
    use crate::core::logfmt::format::find;
    use crate::mux::logs::pipeline::log_memory::LogMemory;
    use crate::mux::logs::pipeline::{Log, LogOptions};
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

    /// A raw log to a target that panics over the first chunk with the word "bad", once.
    struct WriterRig {
        hub: Hub,
        log: Log,
        has: Arc<Mutex<String>>,
    }

    impl WriterRig {
        fn new() -> Self {
            let streams = [Stream::Stdout];
            let memory = Memory::new(&streams, 1 << 16);
            let mut hub = Hub::new(&streams, 1 << 16, memory, Epoch(1));
            let has = Arc::<Mutex<String>>::default();
            let (to, mut has_panicked) = (Arc::clone(&has), false);
            let write = move |chunk: &mut Chunk| {
                let text = String::from_utf8(chunk.bytes.to_vec()).unwrap();
                if text.contains("bad") && !has_panicked {
                    has_panicked = true;
                    panic!("it has met something bad");
                }
                to.lock().unwrap().push_str(&text[chunk.done..]);
                chunk.done = text.len();
                Ok(())
            };
            let target = LogSink::Test(Does(Box::new(write)));
            let writer = LogWriter::start("test", target).unwrap();
            let encoder = find("raw").unwrap().encoder(&FormatOptions::default());
            let options = LogOptions::default();
            let parts = (writer, LogMemory::unkept(&*encoder, &options));
            let log = Log::new("test".into(), encoder, options, parts, &mut hub);
            Self { hub, log, has }
        }

        /// The app writes this, and the log writes it to the target.
        fn write(&mut self, text: &str) {
            let [space, _] = self.hub.space(Stream::Stdout, text.len());
            space.copy_from_slice(text.as_bytes());
            self.hub.commit(Stream::Stdout, text.len(), Now::read());
            let until = Instant::now() + 3 * limits::LOG_STUCK;
            loop {
                self.log.advance(&mut self.hub, Instant::now());
                if self.log.finish(&mut self.hub, false, Instant::now()) {
                    return;
                }
                assert!(Instant::now() < until, "{:?}", self.log.failing());
                self.log.writer().mailbox.wait(limits::LOG_STUCK);
                self.log.writer().mailbox.clear();
                while let Some(event) = self.log.writer().receive() {
                    self.log.on_event(event, Instant::now());
                }
            }
        }
    }

    #[test]
    fn a_target_that_panics_once_loses_nothing() {
        let mut rig = WriterRig::new();
        for text in ["one\n", "bad\n", "two\n"] {
            rig.write(text);
        }
        assert_eq!(*rig.has.lock().unwrap(), "one\nbad\ntwo\n");
        assert_eq!((rig.log.lost(), rig.log.failing()), (Lost::default(), None));
    }
}
