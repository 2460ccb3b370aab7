//! The app's input: what clients typed, and the FIFO or terminal that it is written to.

use std::io;
use std::time::Instant;

use anyhow::Result;

use crate::core::hub::ClientId;
use crate::core::hub::input::Input;
use crate::mux::poll::{Interest, Poller, Token, log_watch};
use crate::mux::source::{AppInput, fifo};
use crate::os::state::AppDir;
use crate::systemd::notify::Notify;

/// See the module.
#[derive(Debug)]
pub(crate) struct InputFeed {
    /// The input of all clients, merged.
    pub(crate) queue: Input,
    writer: Option<AppInput>,
    /// The input of the app's next start, if this one's was ended.
    next_writer: Option<AppInput>,
    /// Whether the end of a client's input can end the app's.
    pub(crate) can_end: bool,
    /// The client whose end of input ends the app's, once that has come.
    last_writer: Option<ClientId>,
}

impl InputFeed {
    pub(crate) fn new(
        writer: Option<AppInput>,
        next_writer: Option<AppInput>,
        can_end: bool,
    ) -> Self {
        Self { queue: Input::default(), writer, next_writer, can_end, last_writer: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes what is queued until the app's side is full; whether it took anything. `accepted` is
    /// given what was queued and how many bytes of that were taken.
    pub(crate) fn write(
        &mut self,
        poller: &Poller,
        now: Instant,
        mut accepted: impl FnMut([&[u8]; 2], usize),
    ) -> io::Result<bool> {
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let (mut moved, mut full) = (false, false);
        while !full && self.queue.next().iter().any(|part| !part.is_empty()) {
            let len = writer.write(self.queue.next())?;
            full = len == 0;
            if !full {
                accepted(self.queue.next(), len);
                self.queue.written(len, now);
                moved = true;
            }
        }
        let wanted = full.then_some(Interest { read: false, write: true });
        log_watch(poller.watch(&mut writer.watch, &writer.fd, Token::Input, wanted));
        Ok(moved)
    }

    /// Closes the input, for everybody. Returns the open end: the app sees its end once that is dropped,
    /// which comes after the next one has taken its place.
    pub(crate) fn close(&mut self, poller: &Poller) -> Option<AppInput> {
        self.queue.close();
        let mut writer = self.writer.take()?;
        log_watch(poller.watch(&mut writer.watch, &writer.fd, Token::Input, None));
        Some(writer)
    }

    /// Lets go of the app's end. Nothing is written any more; the queue stays.
    pub(crate) fn release(&mut self) {
        self.writer = None;
    }

    /// Makes the input for the app's next start.
    pub(crate) fn prepare_next(&mut self, dir: &AppDir, notify: &Notify) -> Result<()> {
        self.next_writer = Some(fifo::renew_input(dir, notify)?);
        Ok(())
    }

    /// The app was started again: if its input had been ended, it has a new one.
    pub(crate) fn begin_next(&mut self, notify: &Notify) {
        if let Some(writer) = self.next_writer.take() {
            fifo::begin_renewed(&writer, notify);
            self.writer = Some(writer);
        }
    }

    /// This client's input is the last one: once it has been delivered the app's input ends.
    pub(crate) fn end_with(&mut self, id: ClientId) {
        self.last_writer = Some(id);
    }

    pub(crate) fn ends_with(&self, id: ClientId) -> bool {
        self.last_writer == Some(id)
    }
}
