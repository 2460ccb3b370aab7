//! The loop and the terminal of a container, which a runtime sends to a socket.
//!
//! Clients are served before it comes: their input waits, and the terminal gets the size that they
//! have decided. There is one terminal at a time: while it is open, there is no socket. The end of
//! the terminal is that of the container. Under systemd the service may start another one, so the
//! mux waits for that until systemd stops it. Otherwise the mux ends.

use std::path::PathBuf;
use std::time::Instant;

use super::poll::{Interest, Registration, Token, log_watch};
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
    /// It has come. The next one is to be sent there, if that is known.
    Open(Option<PathBuf>),
    /// No process of the container has it open any more, and no other one is awaited.
    Ended,
}

impl Console {
    /// Where it is awaited.
    pub(crate) fn socket(&self) -> Option<&ConsoleSocket> {
        match self {
            Self::Awaited(socket) => Some(socket),
            Self::None | Self::Open(_) | Self::Ended => None,
        }
    }

    /// When something is due though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.socket().and_then(ConsoleSocket::deadline)
    }
}

impl Mux {
    pub(crate) fn watch_console(&mut self) {
        let Some(socket) = self.console.socket() else { return };
        let wanted = Some(Interest { read: true, write: false });
        // It stays in the set for as long as the socket lives.
        let watch = &mut Registration::default();
        log_watch(self.poller.watch(watch, socket, Token::Console, wanted));
        let path = socket.path().to_string_lossy();
        log::info!("app {}: waiting for its console at {}", self.files.name(), path.escape_debug());
    }

    /// The socket may have something.
    pub(crate) fn on_console(&mut self, now: Instant) {
        let name = self.files.name();
        let Console::Awaited(socket) = &mut self.console else { return };
        if self.phase != Phase::Ready {
            return;
        }
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
                self.console = Console::Open(Some(socket.path().to_owned()));
                self.input.begin(master.input);
                let index = self.sources.add(master.source);
                self.sources.watch(index, &self.poller);
                log::info!("app {name}: its console has come");
            }
        }
    }

    /// A source has ended: if that is the terminal of a container, the container has.
    pub(crate) fn on_source_end(&mut self) {
        let Console::Open(path) = &mut self.console else { return };
        let path = path.take().filter(|_| self.phase == Phase::Ready && process::is_of_unit());
        log::info!("app {}: its console has ended", self.files.name());
        self.console = Console::Ended;
        pty::forget_adopted(&self.files.notify);
        match path.map(|path| ConsoleSocket::bind(&path)) {
            Some(Ok(socket)) => {
                self.console = Console::Awaited(socket);
                self.input.await_next(&self.poller);
                self.reset_terminal();
                self.watch_console();
            }
            Some(Err(e)) => {
                log::error!("app {}: {e:#}", self.files.name());
                self.stop();
            }
            None => self.stop(),
        }
    }
}
