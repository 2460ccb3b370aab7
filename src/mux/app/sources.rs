//! The app's output streams: reading them, holding them back, watching them.

use std::io;
use std::time::{Duration, Instant};

use crate::core::hub::Hub;
use crate::mux::pages::{Pages, SHARED_LEAST};
use crate::mux::poll::{Interest, Poller, Token};
use crate::mux::source::{Read, Source};
use crate::sys::systemd::notify::Notify;
use crate::types::stream::Stream;

/// See the module. A stream keeps its index; a source that is closed leaves its place empty.
#[derive(Debug)]
pub(crate) struct Sources {
    slots: Vec<Slot>,
    /// Sources that are open and not read any more: they show whether the app has written since.
    finished: Vec<Source>,
}

#[derive(Debug)]
struct Slot {
    source: Option<Source>,
    /// Until when a client holds it back.
    held: Option<Instant>,
}

impl Sources {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let slot = |source| Slot { source: Some(source), held: None };
        Self { slots: sources.into_iter().map(slot).collect(), finished: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether all of them are closed.
    pub(crate) fn are_closed(&self) -> bool {
        self.slots.iter().all(|slot| slot.source.is_none())
    }

    /// Whether there is nothing to read in any of them.
    pub(crate) fn are_empty(&self) -> bool {
        let open = self.slots.iter().filter_map(|slot| slot.source.as_ref());
        open.chain(&self.finished).all(Source::is_empty)
    }

    /// Bytes of a stream that are to be read now; `None` if that is not known.
    pub(crate) fn pending(&self, stream: Stream) -> Option<u64> {
        let mut open = self.slots.iter().filter_map(|slot| slot.source.as_ref());
        open.find(|source| source.stream == stream)?.pending()
    }

    /// Whether there is nothing to read in this one.
    pub(crate) fn is_empty(&self, index: usize) -> bool {
        self.slots[index].source.as_ref().is_none_or(Source::is_empty)
    }

    /// What was written to each open source and not read.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Stream, u64)> {
        let open = self.slots.iter().filter_map(|slot| slot.source.as_ref());
        open.map(|source| (source.stream, source.written()))
    }

    /// Its stream, unless it is closed.
    pub(crate) fn stream(&self, index: usize) -> Option<Stream> {
        self.slots[index].source.as_ref().map(|source| source.stream)
    }

    /// The master of the app's terminal, if that is open.
    pub(crate) fn tty(&self) -> Option<&Source> {
        let mut open = self.slots.iter().filter_map(|slot| slot.source.as_ref());
        open.find(|source| source.stream == Stream::Tty)
    }

    /// Whether the pages of the next read are worth sharing.
    pub(crate) fn gives_pages(&self, index: usize) -> bool {
        self.slots[index].source.as_ref().is_some_and(|source| source.gave(SHARED_LEAST))
    }

    /// Whether so much is to be read that its pages are worth sharing.
    pub(crate) fn has_pages(&self, index: usize) -> bool {
        let pending = self.slots[index].source.as_ref().and_then(Source::pending);
        pending.is_some_and(|len| len >= SHARED_LEAST as u64)
    }

    /// Reads once into the hub's free space. Pages that are read are shared, if given something to
    /// keep them.
    pub(crate) fn read(
        &mut self,
        index: usize,
        hub: &mut Hub,
        want: usize,
        pages: Option<&mut Pages>,
    ) -> io::Result<Read> {
        let Some(source) = &mut self.slots[index].source else { return Ok(Read::End) };
        match source.prepare(want)? {
            None => {}
            Some(Read::Bytes(len)) => hub.announce(source.stream, len),
            Some(nothing) => return Ok(nothing),
        }
        let stream = source.stream;
        let Some((pages, taken)) = pages.and_then(|pages| {
            let taken = pages.take(source.end(), want)?;
            Some((pages, taken))
        }) else {
            return source.read(hub.space(stream, want));
        };
        let read = source.read(hub.space(stream, taken.len()));
        let len = if let Ok(Read::Bytes(len)) = read { len } else { 0 };
        let at = hub.extent(stream).map_or(0, |(end, _)| end);
        pages.keep(taken, stream, at, len);
        read
    }

    /// Handles a read that returned less than requested. Returns whether the source is empty, and
    /// how long to leave an app alone that writes small pieces without a break.
    pub(crate) fn rest(
        &mut self,
        index: usize,
        now: Instant,
        poller: &Poller,
    ) -> (bool, Option<Duration>) {
        let Some(source) = &mut self.slots[index].source else { return (true, None) };
        let (gives_all, nap) = (source.gives_all(), source.nap(now));
        self.watch(index, poller);
        (gives_all, nap)
    }

    pub(crate) fn is_held(&self, index: usize) -> bool {
        self.slots[index].held.is_some()
    }

    /// Holds a source back until this time, or lets it go on.
    pub(crate) fn hold(&mut self, index: usize, until: Option<Instant>, poller: &Poller) {
        self.slots[index].held = until;
        self.watch(index, poller);
    }

    /// Whether a source is read without being watched.
    pub(crate) fn is_paced(&self, index: usize) -> bool {
        let Slot { source, held } = &self.slots[index];
        held.is_none() && source.as_ref().is_some_and(|source| source.paced)
    }

    pub(crate) fn is_any_paced(&self) -> bool {
        (0..self.len()).any(|index| self.is_paced(index))
    }

    pub(crate) fn watch(&mut self, index: usize, poller: &Poller) {
        let Slot { source: Some(source), held } = &mut self.slots[index] else { return };
        let is_watched = held.is_none() && !source.paced;
        let wanted = is_watched.then_some(Interest { read: true, write: false });
        poller.watch(&mut source.watch, &source.fd, Token::Source(index), wanted);
    }

    pub(crate) fn close(&mut self, index: usize, poller: &Poller) {
        drop(self.take(index, poller));
    }

    pub(crate) fn close_all(&mut self, poller: &Poller) {
        (0..self.len()).for_each(|index| self.close(index, poller));
    }

    /// From now on none is read. They stay open, so that [`Sources::are_empty`] still tells.
    pub(crate) fn finish(&mut self, poller: &Poller) {
        self.finished = (0..self.len()).filter_map(|index| self.take(index, poller)).collect();
    }

    /// Takes a source away, which is not watched any more.
    fn take(&mut self, index: usize, poller: &Poller) -> Option<Source> {
        let slot = &mut self.slots[index];
        let mut source = slot.source.take()?;
        slot.held = None;
        poller.watch(&mut source.watch, &source.fd, Token::Source(index), None);
        Some(source)
    }

    /// Lets go of the app's ends, so that the end of their last writer can be seen.
    pub(crate) fn release(&mut self, notify: &Notify) {
        for source in self.slots.iter_mut().filter_map(|slot| slot.source.as_mut()) {
            source.release(notify);
        }
    }

    /// When a source that is held back is to be looked at.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.held).min()
    }
}
