//! The engine of a container as a client of the mux: the descriptors that it has made for the
//! container get the app's output, and their input is typed as everybody's.
//!
//! The app waits for the engine as if it wrote to the engine's pipes itself: without an end of
//! patience, from the first byte, and without a redraw. So the engine's own log has the same bytes
//! as without a mux. An end that the engine has closed is dropped, and nothing else is.
//!
//! Invariant: killed after any instruction, the mux leaves two numbers and a pipe for each output by
//! which the next one knows what the engine has. A FIFO gets its bytes from a [`Stage`], in one step
//! for every other process. A terminal, a socket and a file are written directly: there the bytes of
//! the last write may come twice, at most [`DIRECT_WRITE`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::core::hub::{ClientId, Hub};
use crate::mux::kept_memory::{ENGINE, KeptMemory};
use crate::mux::poll::{Interest, Poller, Registration, Token};
use crate::mux::source::pty;
use crate::mux::source::stage::Stage;
use crate::screen::query::Query;
use crate::screen::replies::Replies;
use crate::sys::files::{enlarge_pipe, is_fifo};
use crate::sys::ready;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;
use crate::types::record::{Word, clear};
use crate::types::size::Size;
use crate::types::stream::Stream;

/// Size asked for the pipe between the ring and a FIFO of the engine, bytes: what it gets without
/// asking, and what fits into the engine's at once.
const ENGINE_STAGE: usize = 64 * 1024;
/// The size of the engine's FIFO at the end, bytes. Each piece that was moved there takes a page, however
/// small; in the end there is room for what it would hold if the app had written to it.
const ENGINE_END: usize = 4 * ENGINE_STAGE;
/// Bytes of one write to a terminal, a socket or a file of the engine.
const DIRECT_WRITE: usize = 4096;
/// Words of the memory with the offsets: the epoch, and two for each stream.
const WORDS: usize = 1 + 2 * Stream::ALL.len();

/// The name in the keeper's store of the engine's end of a stream.
pub(crate) fn stored_name(stream: Stream) -> String {
    format!("engine-{stream}")
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Under this its input is queued, and its window counts.
    pub(crate) id: ClientId,
    /// By stream.
    outputs: [Option<EngineOutput>; Stream::ALL.len()],
    input: Option<EngineInput>,
    /// The size that its terminal is known to have: read last, or set last by us. Another one is a
    /// resize by the engine.
    pub(crate) known_window: Option<Size>,
    /// Separates the replies of its terminal to the app's queries from keys.
    replies: Option<Box<Replies>>,
}

/// What the engine reads of one stream.
#[derive(Debug)]
struct EngineOutput {
    stream: Stream,
    fd: OwnedFd,
    /// For a FIFO.
    stage: Option<Stage>,
    offsets: EngineOffsets,
    watch: Registration,
    is_full: bool,
    /// Nothing more comes: once it has everything it is closed.
    is_ending: bool,
}

/// What the engine types.
#[derive(Debug)]
struct EngineInput {
    fd: OwnedFd,
    stream: Stream,
    watch: Registration,
    has_ended: bool,
}

/// How far the engine has an output. Each store is one word, so both are right at any moment.
#[derive(Debug)]
struct EngineOffsets {
    /// Before this the engine has everything, if the stage is empty.
    given: Word,
    /// Behind the last byte that was put into the stage. The content of the stage counts only if
    /// this is higher than the other.
    put: Word,
}

impl EngineOffsets {
    /// Whether the stage has bytes that count.
    fn is_staged(&self) -> bool {
        self.put.get() > self.given.get()
    }

    /// The engine has all that was put.
    fn set_given(&self) {
        self.given.set(self.put.get());
    }
}

impl Engine {
    /// The engine, if the keeper has a descriptor of it; it goes on where it was with the mux before
    /// this one.
    pub(crate) fn open(
        hub: &mut Hub,
        memory: &mut KeptMemory,
        stored: &mut Stored,
        notify: &Notify,
    ) -> Result<Option<Self>> {
        if !Stream::ALL.into_iter().any(|stream| stored.has(&stored_name(stream))) {
            return Ok(None);
        }
        let memory = memory.piece(ENGINE, (WORDS, 0), [])?;
        let (epoch, offsets) = (Word::new(&memory.words[0]), memory.words[1..].as_chunks().0);
        if epoch.get() != hub.epoch().0 {
            clear(memory.words);
            epoch.set(hub.epoch().0);
        }
        let mut engine = Self {
            id: hub.join(Duration::ZERO),
            outputs: Default::default(),
            input: None,
            known_window: None,
            replies: None,
        };
        for (stream, [given, put]) in Stream::ALL.into_iter().zip(offsets) {
            let offsets = EngineOffsets { given: Word::new(given), put: Word::new(put) };
            let name = stored_name(stream);
            let Some(fd) = stored.remove(&name) else { continue };
            if stream.is_input() {
                let fd = fd.try_clone().context("cannot read from the engine")?;
                let watch = Registration::default();
                engine.input = Some(EngineInput { fd, stream, watch, has_ended: false });
            }
            if stream.is_output() {
                let output = EngineOutput::open(stream, fd, offsets, stored, notify);
                let output =
                    output.with_context(|| format!("cannot write to the engine's {stream}"))?;
                hub.set_engine(stream, Some(output.offsets.put.get()));
                engine.outputs[stream as usize] = Some(output);
            }
        }
        Ok(Some(engine))
    }

    // ---- output ----

    /// Whether it reads nothing any more.
    pub(crate) fn has_no_output(&self) -> bool {
        self.outputs.iter().all(Option::is_none)
    }

    /// Its place on each stream that it reads.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Stream, u64)> {
        self.outputs.iter().flatten().map(|output| (output.stream, output.offsets.put.get()))
    }

    /// Whether it may take something of a stream now.
    pub(crate) fn takes(&self, stream: Stream) -> bool {
        self.outputs[stream as usize].as_ref().is_some_and(|output| !output.is_full)
    }

    /// Gives it of a stream what it takes now.
    pub(crate) fn flush(
        &mut self,
        stream: Stream,
        hub: &mut Hub,
        poller: &Poller,
        notify: &Notify,
    ) {
        let Some(output) = &mut self.outputs[stream as usize] else { return };
        if let Err(e) = output.flush(hub) {
            // EPIPE, or EIO of a terminal: the engine has closed it.
            log::info!("the engine reads {stream} no more: {e}");
            return self.close(stream, hub, poller, notify);
        }
        if output.is_ending && output.has_all(hub) {
            return self.close(stream, hub, poller, notify);
        }
        let wanted = output.is_full.then_some(Interest { read: false, write: true });
        poller.watch(&mut output.watch, &output.fd, Token::Engine(stream), wanted);
    }

    /// Nothing more comes of a stream, or of none.
    pub(crate) fn end(&mut self, stream: Option<Stream>) {
        let ends = |output: &&mut EngineOutput| stream.is_none_or(|stream| stream == output.stream);
        for output in self.outputs.iter_mut().flatten().filter(ends) {
            if !std::mem::replace(&mut output.is_ending, true) && output.stage.is_some() {
                enlarge_pipe(&output.fd, ENGINE_END);
                output.is_full = false;
            }
        }
    }

    /// Closes an output: once no process has it, the engine reads its end.
    fn close(&mut self, stream: Stream, hub: &mut Hub, poller: &Poller, notify: &Notify) {
        let Some(mut output) = self.outputs[stream as usize].take() else { return };
        poller.watch(&mut output.watch, &output.fd, Token::Engine(stream), None);
        hub.set_engine(stream, None);
        if stream == Stream::Tty {
            self.close_input(poller, notify);
        }
        notify.forget(&stored_name(stream));
    }

    // ---- input ----

    /// The kind of its input.
    pub(crate) fn input(&self) -> Option<Stream> {
        self.input.as_ref().filter(|input| !input.has_ended).map(|input| input.stream)
    }

    /// Watches its input if there is room for it.
    pub(crate) fn watch_input(&mut self, room: usize, poller: &Poller) {
        let Some(input) = &mut self.input else { return };
        let is_watched = room > 0 && !input.has_ended;
        let wanted = is_watched.then_some(Interest { read: true, write: false });
        poller.watch(&mut input.watch, &input.fd, Token::Engine(Stream::Stdin), wanted);
    }

    /// Reads some input; `None` if there is none now, 0 bytes at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(input) = self.input.as_mut().filter(|input| !input.has_ended) else {
            return Ok(None);
        };
        let read = ready::at_once(|| rustix::io::read(&input.fd, &mut *buffer));
        input.has_ended = matches!(read, Ok(Some(0)) | Err(_));
        Ok(read?)
    }

    /// Nothing reads its input any more.
    pub(crate) fn close_input(&mut self, poller: &Poller, notify: &Notify) {
        let Some(mut input) = self.input.take() else { return };
        poller.watch(&mut input.watch, &input.fd, Token::Engine(Stream::Stdin), None);
        if input.stream != Stream::Tty {
            notify.forget(&stored_name(input.stream));
        }
    }

    // ---- its terminal ----

    fn tty(&self) -> Option<&OwnedFd> {
        self.outputs[Stream::Tty as usize].as_ref().map(|output| &output.fd)
    }

    fn window(&self) -> Option<Size> {
        self.tty().and_then(|tty| pty::size(tty).ok())
    }

    /// The size that it has given its terminal, if that is new.
    pub(crate) fn new_window(&mut self) -> Option<Size> {
        let window = self.window().filter(|window| self.known_window != Some(*window))?;
        self.known_window = Some(window);
        Some(window)
    }

    /// Its terminal gets the size of the app's, unless the engine has resized it meanwhile: that is
    /// reported and followed next.
    pub(crate) fn resize(&mut self, size: Size) {
        if self.known_window == Some(size) || self.window() != self.known_window {
            return;
        }
        let Some(tty) = self.tty() else { return };
        match pty::resize(tty, size.into()) {
            Ok(()) => self.known_window = Some(size),
            Err(e) => log::debug!("the size of the engine's terminal: {e}"),
        }
    }

    /// Has the kernel report by SIGWINCH that the engine has resized its terminal. This process
    /// leads a session.
    pub(crate) fn report_resizes(&self) {
        if let Some(tty) = self.tty()
            && let Err(e) = rustix::process::ioctl_tiocsctty(tty)
            // The engine has closed it.
            && e != Errno::IO
        {
            log::warn!("the engine's resizes are not noticed: {e}");
        }
    }

    /// The app has printed queries, to which the engine's terminal may reply. Whether its replies
    /// go to the app.
    pub(crate) fn expect_replies(
        &mut self,
        queries: &[Query],
        decider: Option<ClientId>,
        now: Instant,
    ) -> bool {
        if self.tty().is_none() {
            return false;
        }
        let passes = decider == Some(self.id);
        for query in queries {
            self.replies.get_or_insert_default().expect(*query, passes, now);
        }
        passes
    }

    pub(crate) fn replies(&mut self) -> Option<&mut Replies> {
        self.replies.as_deref_mut()
    }
}

impl EngineOutput {
    fn open(
        stream: Stream,
        fd: OwnedFd,
        offsets: EngineOffsets,
        stored: &mut Stored,
        notify: &Notify,
    ) -> io::Result<Self> {
        let mut stage = None;
        if is_fifo(&fd)? {
            let name = stored_name(stream);
            stage = Stage::open(&name, ENGINE_STAGE, stored, notify)?;
        }
        if let Some(stage) = &mut stage
            && !offsets.is_staged()
        {
            // Put there by a mux that was killed before it counted them.
            stage.clear()?;
        }
        Ok(Self {
            stream,
            fd,
            stage,
            offsets,
            watch: Registration::default(),
            is_full: false,
            is_ending: false,
        })
    }

    /// Whether the engine has everything.
    fn has_all(&self, hub: &Hub) -> bool {
        let end = hub.extent(self.stream).map_or(0, |(end, _)| end);
        self.stage.as_ref().is_none_or(|stage| stage.len == 0) && self.offsets.put.get() >= end
    }

    fn flush(&mut self, hub: &mut Hub) -> io::Result<()> {
        self.is_full = false;
        let end = hub.extent(self.stream).map_or(0, |(end, _)| end);
        loop {
            let at = self.offsets.put.get();
            if let Some(stage) = &mut self.stage {
                if stage.len == 0 {
                    self.offsets.set_given();
                    if at >= end {
                        return Ok(());
                    }
                    let len = stage.put(hub.bytes(self.stream, at..end))?;
                    self.offsets.put.set(at + len as u64);
                    hub.set_engine(self.stream, Some(at + len as u64));
                }
                self.is_full = stage.give(&self.fd)? == 0;
            } else {
                if at >= end {
                    return Ok(());
                }
                let most = end.min(at + DIRECT_WRITE as u64);
                let len = write(&self.fd, hub.bytes(self.stream, at..most))?;
                self.offsets.put.set(at + len as u64);
                self.offsets.set_given();
                hub.set_engine(self.stream, Some(at + len as u64));
                self.is_full = len == 0;
            }
            if self.is_full {
                return Ok(());
            }
        }
    }
}

/// Writes as much as is taken at once; 0 if nothing is.
fn write(fd: &OwnedFd, [a, b]: [&[u8]; 2]) -> io::Result<usize> {
    let bytes = if a.is_empty() { b } else { a };
    // A socket cannot be opened again, and its flags belong to other processes as well.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = ready::at_once(|| match send(fd, bytes, flags) {
        Err(Errno::NOTSOCK) => rustix::io::write(fd, bytes),
        sent => sent,
    });
    Ok(sent?.unwrap_or(0))
}
