//! The app's input: the queue of the clients' input, and the FIFO or terminal that receives it.

use std::io;
use std::time::{Duration, Instant};

use crate::core::hub::ClientId;
use crate::core::hub::input::Input;
use crate::mux::poll::{Interest, Poller, Token};
use crate::mux::source::AppInput;
use crate::mux::source::stage::Stage;
use crate::sys::files::resize_pipe;
use crate::sys::systemd::notify::Notify;
use crate::types::stream::Stream;

/// Size asked for the FIFO of an input that admitted users share, bytes: the least. What root types
/// stands behind what it holds.
const SHARED_PIPE: usize = 4096;
/// How long input behind a [`Break`] waits for an app that does not read what is before it.
const READ_WAIT: Duration = Duration::from_secs(2);
/// How often is looked whether the app has read it.
const READ_LOOK: Duration = Duration::from_millis(20);

/// Since when input waits at a break, and when to look again; `None` if it may go. `is_read` tells
/// whether the app has read all before it, if the terminal is raw.
fn wait_at_break(
    waits: Option<(Instant, Instant)>,
    now: Instant,
    pause: Duration,
    is_read: impl Fn() -> Option<bool>,
) -> Option<(Instant, Instant)> {
    if waits.is_some_and(|(_, due)| now < due) {
        return waits;
    }
    let is_read = is_read()?;
    let since = waits.map_or(now, |(since, _)| since);
    let waited = now.saturating_duration_since(since);
    if waited < pause {
        return Some((since, since + pause));
    }
    (!is_read && waited < READ_WAIT).then_some((since, now + READ_LOOK))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InputFeed {
    /// The input of all clients, merged.
    pub(crate) queue: Input,
    writer: Option<AppInput>,
    /// Since when input waits at a break, and when to look again.
    at_break: Option<(Instant, Instant)>,
    /// Through this it goes to a FIFO.
    stage: Option<Stage>,
    ending: InputEnding,
    /// The client whose end of input ends the app's, once that has come.
    last_writer: Option<ClientId>,
}

/// What the end of a client's input can do to the app's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputEnding {
    /// Nothing: it has no end.
    Never,
    /// Nothing: a container has none.
    Missing,
    /// End it: this app has one start.
    Closes,
}

impl InputFeed {
    pub(crate) fn new(
        queue: Input,
        writer: Option<AppInput>,
        stage: Option<Stage>,
        ending: InputEnding,
        is_shared: bool,
    ) -> Self {
        if let Some(writer) = writer.as_ref().filter(|_| is_shared) {
            resize_pipe(&writer.fd, SHARED_PIPE);
        }
        let mut feed = Self { queue, writer, at_break: None, stage, ending, last_writer: None };
        if !feed.is_open() {
            // An earlier mux has ended it, and may have left something.
            feed.discard();
        }
        feed
    }

    pub(crate) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether the end of a client's input can end the app's.
    pub(crate) fn can_end(&self) -> bool {
        self.ending == InputEnding::Closes
    }

    /// Whether there never was one.
    pub(crate) fn is_missing(&self) -> bool {
        self.ending == InputEnding::Missing
    }

    /// Writes queued input until the app's side is full. Returns whether it accepted anything.
    /// `accepted` gets the queued bytes and the number of accepted ones. `is_read` tells whether a
    /// terminal's app has read all, if the terminal is raw.
    pub(crate) fn write(
        &mut self,
        poller: &Poller,
        now: Instant,
        is_read: impl Fn() -> Option<bool>,
        mut accepted: impl FnMut([&[u8]; 2], usize),
    ) -> io::Result<bool> {
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let (mut moved, mut full) = (false, false);
        while !full && self.queue.queue.len() > 0 {
            let queue = &mut self.queue.queue;
            let rest = queue.rest();
            let len = if let Some(stage) = &mut self.stage {
                if stage.len == 0 {
                    let len = stage.put(queue.bytes(rest.clone()))?;
                    accepted(queue.bytes(rest), len);
                    queue.announce(len);
                }
                let len = stage.give(&writer.fd)?;
                queue.deliver(len);
                len
            } else {
                if let Some(next) = self.queue.next_break(rest.start).filter(|b| b.at == rest.start)
                {
                    self.at_break = wait_at_break(self.at_break, now, next.pause, &is_read);
                    if self.at_break.is_some() {
                        break;
                    }
                    self.queue.pass_break();
                }
                let next = self.queue.next_break(rest.start).map_or(rest.end, |b| b.at);
                let most = rest.end.min(next).min(rest.start.saturating_add(writer.most as u64));
                let queue = &mut self.queue.queue;
                let bytes = rest.start..most;
                queue.announce(writer.most);
                let written = writer.write(queue.bytes(bytes.clone()));
                let len = *written.as_ref().unwrap_or(&0);
                queue.deliver_only(len);
                accepted(queue.bytes(bytes), written?);
                len
            };
            full = len == 0;
            moved |= !full;
            self.queue.advance(now);
        }
        let wanted = full.then_some(Interest { read: false, write: true });
        poller.watch(&mut writer.watch, &writer.fd, Token::Input, wanted);
        Ok(moved)
    }

    /// Bytes that the app has not read; without those in its terminal.
    pub(crate) fn unread(&self) -> u64 {
        let in_pipe = |writer: &AppInput| rustix::io::ioctl_fionread(&writer.fd).unwrap_or(0);
        let fifo = self.writer.as_ref().filter(|_| self.stage.is_some());
        self.queue.queue.len() as u64 + fifo.map_or(0, in_pipe)
    }

    /// When input that waits at a break is looked at again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at_break.filter(|_| self.writer.is_some()).map(|(_, due)| due)
    }

    /// Closes the input for all clients, and for later muxes if it can end.
    pub(crate) fn close(&mut self, poller: &Poller, notify: &Notify) {
        self.discard();
        let Some(mut writer) = self.writer.take() else { return };
        poller.watch(&mut writer.watch, &writer.fd, Token::Input, None);
        if self.can_end() {
            notify.forget(Stream::Stdin.name());
        }
    }

    fn discard(&mut self) {
        self.clear_stage();
        self.at_break = None;
        self.queue.close();
    }

    fn clear_stage(&mut self) {
        if let Some(Err(e)) = self.stage.as_mut().map(Stage::clear) {
            log::error!("cannot clear the pipe of the app's input: {e}");
        }
    }

    /// The app has ended: throws away what was queued for it. Returns the clients whose last input
    /// was among that.
    pub(crate) fn forget_queued(&mut self, now: Instant) -> Vec<ClientId> {
        self.clear_stage();
        self.at_break = None;
        self.queue.forget_queued(now)
    }

    /// Throws away what the app has not read of its FIFO.
    pub(crate) fn clear_fifo(&self) -> io::Result<()> {
        self.writer.as_ref().map_or(Ok(()), AppInput::clear)
    }

    /// Lets go of the app's end. Nothing is written any more; the queue stays.
    pub(crate) fn release(&mut self) {
        self.writer = None;
    }

    /// This client's input is the last one: once it has been delivered the app's input ends.
    pub(crate) fn end_with(&mut self, id: ClientId) {
        self.last_writer = Some(id);
    }

    pub(crate) fn ends_with(&self, id: ClientId) -> bool {
        self.last_writer == Some(id)
    }
}
