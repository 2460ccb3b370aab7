//! The loop and the terminal of a container, which a runtime sends to a socket.
//!
//! Clients are served before it comes: their input waits, and the terminal gets the size that they
//! have decided. There is one terminal at a time, and its end is that of the container. Then the mux
//! ends. Under systemd it waits for the terminal of the next container instead, until systemd stops
//! it. So there the socket stays: a runtime may send the next terminal before the end of this one is
//! read, and it waits in the queue of the socket.

use std::time::Instant;

use super::poll::{Interest, Token, log_watch};
use super::source::pty;
use super::{Mux, Phase};
use crate::containers::console::ConsoleSocket;
use crate::systemd::process;

/// How far the terminal of a container is.
#[derive(Debug, Default)]
pub(crate) enum Console {
    /// The app is not such a container.
    #[default]
    None,
    /// It is to be sent here.
    Awaited(ConsoleSocket),
    /// It has come. The next one is to be sent there, if it is awaited.
    Open(Option<ConsoleSocket>),
    /// No process of the container has it open any more, and no other one is awaited.
    Ended,
    /// It did not come before the mux began to end.
    Missing,
}

impl Console {
    /// Where it is awaited.
    pub(crate) fn socket(&self) -> Option<&ConsoleSocket> {
        if let Self::Awaited(socket) = self { Some(socket) } else { None }
    }

    /// The terminal has come.
    fn opened(self) -> Self {
        match self {
            Self::Awaited(socket) if process::is_of_unit() => Self::Open(Some(socket)),
            _ => Self::Open(None),
        }
    }

    /// From now on none is awaited.
    pub(crate) fn stop(&mut self) {
        if self.socket().is_some() {
            *self = Self::Missing;
        }
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.socket().and_then(ConsoleSocket::deadline)
    }
}

impl Mux {
    /// Waits for the terminal.
    pub(crate) fn watch_console(&mut self) {
        let Some(socket) = self.console.socket() else { return };
        let wanted = Some(Interest { read: true, write: false });
        log_watch(self.poller.watch(&mut self.console_watch, socket, Token::Console, wanted));
        let path = socket.path().to_string_lossy();
        log::info!("app {}: waiting for its console at {}", self.files.name(), path.escape_debug());
    }

    /// The socket may have something.
    pub(crate) fn on_console(&mut self, now: Instant) {
        let name = self.files.name();
        let Console::Awaited(socket) = &mut self.console else { return };
        let Some(terminal) = &self.terminal else { return };
        let size = terminal.sizes.size();
        let received = socket.receive(now).and_then(|master| {
            let adopt = |master| pty::adopt(master, size, &self.files.notify);
            Ok(master.map(adopt).transpose()?)
        });
        match received {
            Ok(None) => {}
            Err(e) => log::warn!("app {name}: a sender of a console is refused: {e:#}"),
            Ok(Some(master)) => {
                log_watch(self.poller.watch(
                    &mut self.console_watch,
                    &*socket,
                    Token::Console,
                    None,
                ));
                self.console = std::mem::take(&mut self.console).opened();
                self.input.begin(master.input);
                let index = self.sources.add(master.source);
                self.sources.watch(index, &self.poller);
                log::info!("app {name}: its console has come");
            }
        }
    }

    /// A source has ended: if that is the terminal of a container, the container has.
    pub(crate) fn on_source_end(&mut self) {
        let Console::Open(next) = &mut self.console else { return };
        let next = next.take().filter(|_| self.phase == Phase::Ready);
        log::info!("app {}: its console has ended", self.files.name());
        pty::forget_adopted(&self.files.notify);
        if let Some(socket) = next {
            self.console = Console::Awaited(socket);
            self.input.await_next(&self.poller);
            self.reset_terminal();
            self.watch_console();
        } else {
            self.console = Console::Ended;
            self.stop();
        }
    }
}
