//! The loop and the engine of a container: it gets the app's output, types, and sizes the terminal.

use std::time::Instant;

use nix::unistd::Uid;

use super::{Mux, Phase};
use crate::mux::engine::Engine;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::stream::Stream;

impl Mux {
    /// The engine joins the clients, and gets what it does not have.
    pub(super) fn begin_engine(&mut self) {
        let Some(engine) = &self.engine else { return };
        let id = engine.id;
        if engine.input().is_some() && self.input.is_open() {
            let merge = self.merge(false);
            self.input.queue.join(id, merge, Uid::effective().as_raw(), Right::Own);
        }
        engine.report_resizes();
        if let (Some(engine), Some(terminal)) = (&mut self.engine, &self.terminal) {
            engine.known_window = Some(terminal.sizes.size());
        }
        self.follow_engine_window();
        for stream in Stream::ALL {
            self.flush_engine(stream);
        }
        self.watch_engine();
    }

    /// Something happened at a descriptor of the engine.
    pub(super) fn on_engine(&mut self, stream: Stream, now: Instant) {
        match stream {
            Stream::Stdin => self.read_engine(now),
            output => self.flush_engine(output),
        }
    }

    fn flush_engine(&mut self, stream: Stream) {
        if let Some(engine) = &mut self.engine {
            engine.flush(stream, &mut self.hub, &self.poller, &self.files.notify);
        }
    }

    /// Hands new bytes of a stream to the engine.
    pub(super) fn serve_engine(&mut self, stream: Stream) {
        if self.engine.as_ref().is_some_and(|engine| engine.takes(stream)) {
            self.flush_engine(stream);
        }
    }

    // ---- its input ----

    /// How much of the engine's input may be read now.
    fn engine_room(&self) -> usize {
        let Some(engine) = &self.engine else { return 0 };
        let reads = self.input.is_open() && !matches!(self.phase, Phase::Delivering { .. });
        if reads { self.input.queue.room(engine.id).min(limits::READ) } else { 0 }
    }

    /// Watches the engine's input if there is room for it.
    pub(super) fn watch_engine(&mut self) {
        let room = self.engine_room();
        if let Some(engine) = &mut self.engine {
            engine.watch_input(room, &self.poller);
        }
    }

    fn read_engine(&mut self, now: Instant) {
        for _ in 0..limits::READS_PER_TURN {
            let room = self.engine_room();
            let Some(engine) = self.engine.as_mut().filter(|_| room > 0) else { break };
            let mut buffer = self.clients.lend_buffer();
            let read = engine.read(&mut buffer[..room]);
            let len = *read.as_ref().ok().and_then(Option::as_ref).unwrap_or(&0);
            self.type_for_engine(&buffer[..len], now);
            self.clients.return_buffer(buffer);
            match read {
                Ok(Some(0)) => self.end_engine_input(now),
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(e) => log::info!("the engine types no more: {e}"),
            }
            break;
        }
        self.watch_engine();
    }

    /// The engine has typed.
    fn type_for_engine(&mut self, bytes: &[u8], now: Instant) {
        let Some(engine) = self.engine.as_mut().filter(|_| !bytes.is_empty()) else { return };
        let id = engine.id;
        let may_type = self.input.queue.is_free_for(id, Right::Own);
        let typed = match (&mut self.terminal, engine.replies()) {
            (Some(terminal), Some(replies)) => {
                terminal.separate((Some(replies), false), bytes, now).0
            }
            _ => bytes,
        };
        self.input.queue.push(id, typed, now);
        let has_typed = may_type && !typed.is_empty();
        // It may have been resized before it typed.
        self.follow_engine_window();
        if let Some(terminal) = self.terminal.as_mut().filter(|_| has_typed) {
            terminal.sizes.typed(id);
        }
    }

    /// The end of the engine's input is the end of the app's.
    fn end_engine_input(&mut self, now: Instant) {
        let Some(engine) = &self.engine else { return };
        if self.input.can_end() {
            self.input.end_with(engine.id);
        }
        self.input.queue.end(engine.id, now);
    }

    // ---- its terminal ----

    /// The engine has resized its terminal: the app's gets that size.
    pub(super) fn follow_engine_window(&mut self) {
        if let (Some(engine), Some(terminal)) = (&mut self.engine, &mut self.terminal)
            && let Some(window) = engine.new_window()
        {
            terminal.sizes.resized(engine.id, window.into());
        }
    }

    // ---- the end ----

    /// Nothing more is read from the app. An output is closed when it has everything, so that the
    /// engine reads the end behind the last byte.
    pub(super) fn finish_engine(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        engine.close_input(&self.poller, &self.files.notify);
        engine.end(None);
        for stream in Stream::ALL {
            self.flush_engine(stream);
        }
    }

    /// No process of the container has a stream open any more: nor has the engine, as soon as it
    /// has everything.
    pub(super) fn end_engine_stream(&mut self, stream: Stream) {
        if let Some(engine) = &mut self.engine {
            engine.end(Some(stream));
        }
        self.serve_engine(stream);
    }

    /// Whether the engine has everything, or the next mux gives it that.
    pub(super) fn is_engine_finished(&mut self, now: Instant, until: Instant) -> bool {
        if !self.is_last() {
            return true;
        }
        self.finish_engine();
        let is_finished = self.engine.as_ref().is_none_or(Engine::has_no_output);
        if !is_finished && now >= until {
            log::warn!("app {}: its engine has not read all of its output", self.files.name());
            return true;
        }
        is_finished
    }
}
