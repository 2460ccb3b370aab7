//! The app's output streams: reading them, holding them back, watching them.

use std::io;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::core::hub::Hub;
use crate::mux::poll::{Interest, Poller, Token, log_watch};
use crate::mux::source::{Read, Source, pty};
use crate::types::stream::Stream;

/// See the module. A stream keeps its index; a source that is closed leaves its place empty.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Slot>);

#[derive(Debug)]
struct Slot {
    source: Option<Source>,
    /// Until when a client holds it back.
    held: Option<Instant>,
}

impl Sources {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let slot = |source| Slot { source: Some(source), held: None };
        Self(sources.into_iter().map(slot).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all of them are closed.
    pub(crate) fn are_closed(&self) -> bool {
        self.0.iter().all(|slot| slot.source.is_none())
    }

    /// Its stream, unless it is closed.
    pub(crate) fn stream(&self, index: usize) -> Option<Stream> {
        self.0[index].source.as_ref().map(|source| source.stream)
    }

    /// The master of the app's terminal, if that is open.
    pub(crate) fn tty(&self) -> Option<&Source> {
        let mut open = self.0.iter().filter_map(|slot| slot.source.as_ref());
        open.find(|source| source.stream == Stream::Tty)
    }

    /// The job in the foreground of the app's terminal.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        self.tty().and_then(|source| pty::foreground(&source.fd))
    }

    /// Reads once into the hub's free space.
    pub(crate) fn read(&mut self, index: usize, hub: &mut Hub, want: usize) -> io::Result<Read> {
        let Some(source) = &mut self.0[index].source else { return Ok(Read::End) };
        match source.prepare(want)? {
            None => {}
            Some(Read::Bytes(len)) => hub.announce(source.stream, len),
            Some(nothing) => return Ok(nothing),
        }
        source.read(hub.space(source.stream, want))
    }

    /// A read gave less than it asked for: whether that means that the source is empty, and how long
    /// to leave an app alone that writes small pieces without a break.
    pub(crate) fn rest(
        &mut self,
        index: usize,
        now: Instant,
        poller: &Poller,
    ) -> (bool, Option<Duration>) {
        let Some(source) = &mut self.0[index].source else { return (true, None) };
        let (gives_all, nap) = (source.gives_all(), source.nap(now));
        self.watch(index, poller);
        (gives_all, nap)
    }

    pub(crate) fn is_held(&self, index: usize) -> bool {
        self.0[index].held.is_some()
    }

    /// Holds a source back until this time, or lets it go on.
    pub(crate) fn hold(&mut self, index: usize, until: Option<Instant>, poller: &Poller) {
        self.0[index].held = until;
        self.watch(index, poller);
    }

    /// Whether a source is read without being watched.
    pub(crate) fn is_paced(&self, index: usize) -> bool {
        let Slot { source, held } = &self.0[index];
        held.is_none() && source.as_ref().is_some_and(|source| source.paced)
    }

    pub(crate) fn is_any_paced(&self) -> bool {
        (0..self.len()).any(|index| self.is_paced(index))
    }

    pub(crate) fn watch(&mut self, index: usize, poller: &Poller) {
        let Slot { source: Some(source), held } = &mut self.0[index] else { return };
        let is_watched = held.is_none() && !source.paced;
        let wanted = is_watched.then_some(Interest { read: true, write: false });
        log_watch(poller.watch(&mut source.watch, &source.fd, Token::Source(index), wanted));
    }

    pub(crate) fn close(&mut self, index: usize, poller: &Poller) {
        let slot = &mut self.0[index];
        if let Some(mut source) = slot.source.take() {
            slot.held = None;
            log_watch(poller.watch(&mut source.watch, &source.fd, Token::Source(index), None));
        }
    }

    /// Lets go of the app's ends, so that the end of their last writer can be seen.
    pub(crate) fn release(&mut self) {
        for source in self.0.iter_mut().filter_map(|slot| slot.source.as_mut()) {
            source.release();
        }
    }

    /// When a source that is held back is to be looked at.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|slot| slot.held).min()
    }
}
