//! The app's output streams: reading them, holding them back, watching them.

use std::io;
use std::time::{Duration, Instant};

use crate::core::hub::Hub;
use crate::mux::pages::{Pages, SHARED_LEAST};
use crate::mux::poll::{Interest, Poller, Token};
use crate::mux::source::{Read, Source};
use crate::sys::systemd::notify::Notify;
use crate::types::stream::Stream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The open ones, by stream.
    open: [Option<Source>; Stream::ALL.len()],
    /// Sources that are open and not read any more: they show whether the app has written since.
    finished: Vec<Source>,
}

impl Sources {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let mut open = <[Option<Source>; Stream::ALL.len()]>::default();
        for source in sources {
            let stream = source.stream;
            open[stream as usize] = Some(source);
        }
        Self { open, finished: Vec::new() }
    }

    fn of(&self, stream: Stream) -> Option<&Source> {
        self.open[stream as usize].as_ref()
    }

    pub(crate) fn is_open(&self, stream: Stream) -> bool {
        self.of(stream).is_some()
    }

    /// Whether all of them are closed.
    pub(crate) fn are_closed(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    /// Whether there is nothing to read in any of them.
    pub(crate) fn are_empty(&self) -> bool {
        self.open.iter().flatten().chain(&self.finished).all(Source::is_empty)
    }

    /// Bytes of a stream that are to be read now; `None` if that is not known.
    pub(crate) fn pending(&self, stream: Stream) -> Option<u64> {
        self.of(stream)?.pending()
    }

    /// Whether there is nothing to read of this stream.
    pub(crate) fn is_empty(&self, stream: Stream) -> bool {
        self.of(stream).is_none_or(Source::is_empty)
    }

    /// What was written to each open source and not read.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Stream, u64)> {
        self.open.iter().flatten().map(|source| (source.stream, source.written()))
    }

    /// The master of the app's terminal, if that is open.
    pub(crate) fn tty(&self) -> Option<&Source> {
        self.of(Stream::Tty)
    }

    /// Whether the pages of the next read are worth sharing.
    pub(crate) fn gives_pages(&self, stream: Stream) -> bool {
        self.of(stream).is_some_and(|source| source.gave(SHARED_LEAST))
    }

    /// Whether so much is to be read that its pages are worth sharing.
    pub(crate) fn has_pages(&self, stream: Stream) -> bool {
        self.pending(stream).is_some_and(|len| len >= SHARED_LEAST as u64)
    }

    /// Reads once into the hub's free space. Pages that are read are shared, if given something to
    /// keep them.
    pub(crate) fn read(
        &mut self,
        stream: Stream,
        hub: &mut Hub,
        want: usize,
        pages: Option<&mut Pages>,
    ) -> io::Result<Read> {
        let Some(source) = &mut self.open[stream as usize] else { return Ok(Read::End) };
        match source.prepare(want)? {
            None => {}
            Some(Read::Bytes(len)) => hub.announce(stream, len),
            Some(nothing) => return Ok(nothing),
        }
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
        stream: Stream,
        now: Instant,
        poller: &Poller,
    ) -> (bool, Option<Duration>) {
        let Some(source) = &mut self.open[stream as usize] else { return (true, None) };
        let (gives_all, nap) = (source.gives_all(), source.nap(now));
        watch(source, poller);
        (gives_all, nap)
    }

    pub(crate) fn is_held(&self, stream: Stream) -> bool {
        self.of(stream).is_some_and(|source| source.held_until.is_some())
    }

    /// Holds a source back until this time, or lets it go on.
    pub(crate) fn hold(&mut self, stream: Stream, until: Option<Instant>, poller: &Poller) {
        if let Some(source) = &mut self.open[stream as usize] {
            source.held_until = until;
            watch(source, poller);
        }
    }

    /// Whether a source is read without being watched.
    pub(crate) fn is_paced(&self, stream: Stream) -> bool {
        self.of(stream).is_some_and(|source| source.held_until.is_none() && source.paced)
    }

    pub(crate) fn is_any_paced(&self) -> bool {
        Stream::ALL.into_iter().any(|stream| self.is_paced(stream))
    }

    pub(crate) fn watch(&mut self, poller: &Poller) {
        self.open.iter_mut().flatten().for_each(|source| watch(source, poller));
    }

    pub(crate) fn close(&mut self, stream: Stream, poller: &Poller) {
        drop(self.take(stream, poller));
    }

    /// From now on none is read. They stay open, so that [`Sources::are_empty`] still tells.
    pub(crate) fn finish(&mut self, poller: &Poller) {
        self.finished = Stream::ALL.into_iter().filter_map(|of| self.take(of, poller)).collect();
    }

    /// Takes a source away, which is not watched any more.
    fn take(&mut self, stream: Stream, poller: &Poller) -> Option<Source> {
        let mut source = self.open[stream as usize].take()?;
        poller.watch(&mut source.watch, &source.fd, Token::Source(stream), None);
        Some(source)
    }

    /// Lets go of the app's ends, so that the end of their last writer can be seen.
    pub(crate) fn release(&mut self, notify: &Notify) {
        self.open.iter_mut().flatten().for_each(|source| source.release(notify));
    }

    /// When a source that is held back is to be looked at.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.open.iter().flatten().filter_map(|source| source.held_until).min()
    }
}

fn watch(source: &mut Source, poller: &Poller) {
    let is_watched = source.held_until.is_none() && !source.paced;
    let wanted = is_watched.then_some(Interest { read: true, write: false });
    poller.watch(&mut source.watch, &source.fd, Token::Source(source.stream), wanted);
}
