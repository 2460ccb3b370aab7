//! An attach and whoever sits at this side: what is typed, and what its keys ask for.

use std::io::{self, IsTerminal};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::keys::KeyCommand;
use super::link::Uplink;
use super::page::{Presence, TypingState};
use super::{Attached, InputState, Step, page, pump, terminal};
use crate::commands::status;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::wire::{Answer, ControlRequest as ForMux, Exclusive, Size};

impl Attached<'_> {
    /// This process's input has something, or its end.
    pub(crate) fn read_input(&mut self) -> Result<Step> {
        let mut buffer = vec![0; self.room()];
        let len = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(len) => len,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(Step::Continue),
            // The terminal is gone: that is the end of what is typed on it.
            Err(Errno::EIO) => 0,
            Err(e) => return Err(e).context("reading standard input"),
        };
        if len == 0 {
            let was = std::mem::replace(&mut self.input, InputState::Ended);
            if let Some(uplink) = self.uplink.as_mut().filter(|_| was != InputState::Closed) {
                uplink.end();
            }
            return Ok(Step::Continue);
        }
        self.await_pulse();
        let mut typed = &buffer[..len];
        while !typed.is_empty() {
            let mut out = Vec::new();
            let (taken, command) = self.keys.push(typed, Instant::now(), &mut out);
            typed = &typed[taken..];
            if let Step::Leave(exit) = self.typed(&out)? {
                return Ok(Step::Leave(exit));
            }
            if let Some(command) = command
                && let Step::Leave(exit) = self.obey(command)?
            {
                return Ok(Step::Leave(exit));
            }
        }
        Ok(Step::Continue)
    }

    /// Keys that are no sequence: for the app, or for our page.
    pub(crate) fn typed(&mut self, keys: &[u8]) -> Result<Step> {
        match (&self.page, keys) {
            (None, keys) => self.send(keys),
            (Some(_), []) => {}
            // One key at a time; what comes with it, as with an arrow's, belongs to it.
            (Some(_), [key, ..]) => match page::command(*key, self.typing()) {
                Some(command) => return self.obey(command),
                None => self.come_back()?,
            },
        }
        Ok(Step::Continue)
    }

    /// What a person asks of attach itself.
    pub(crate) fn obey(&mut self, command: KeyCommand) -> Result<Step> {
        match command {
            KeyCommand::Detach => {
                // What was typed before goes first, as far as it is taken.
                let _ = self.uplink.as_mut().map_or(Ok(()), Uplink::flush);
                let is_left = self.uplink.as_ref().is_some_and(|uplink| uplink.waiting() > 0);
                let but = if is_left { "; not all that was typed was taken" } else { "" };
                terminal::restore();
                self.say(&format!("detached from app {}{but}", self.name()));
                return Ok(Step::Leave(self.complete(Exit::Done)));
            }
            // All of the job, as the terminal would; it comes back to us as a signal, too.
            KeyCommand::Suspend => kill(Pid::from_raw(0), Signal::SIGTSTP).context("suspending")?,
            KeyCommand::TakeOver => self.ask_to_type(Some(Exclusive::Take))?,
            KeyCommand::LetGo => self.ask_to_type(None)?,
            KeyCommand::Page => {
                self.page = Some(Presence::Asked);
                let dir = self.request.dir.clone();
                pump::ask(self.outbox.another()?, move || status::report(&dir))?;
                self.show_page();
            }
        }
        Ok(Step::Continue)
    }

    /// Asks the mux that we type alone, or that all do.
    pub(crate) fn ask_to_type(&mut self, exclusive: Option<Exclusive>) -> Result<()> {
        self.come_back()?;
        let request = exclusive.map_or(ForMux::LetGo, |_| ForMux::TakeOver);
        if self.uplink.as_mut().is_some_and(|uplink| uplink.ask(request)) {
            self.asked.push_back(exclusive);
        } else {
            self.say(&format!("app {}: there is no session by which to ask that", self.name()));
        }
        Ok(())
    }

    /// The mux has answered the oldest request.
    pub(crate) fn on_answer(&mut self, answer: &Answer) {
        let (name, Some(exclusive)) = (self.name(), self.asked.pop_front()) else { return };
        let said = match (&answer.error, exclusive) {
            (Some(why), _) => format!("not so: {}", why.escape_debug()),
            (None, Some(_)) => "you type alone".to_owned(),
            (None, None) => "you type alone no more".to_owned(),
        };
        if answer.error.is_none() {
            self.exclusive = exclusive;
        }
        self.say(&format!("attached to app {name}: {said}"));
    }

    fn typing(&self) -> TypingState {
        match (self.input, self.exclusive) {
            (InputState::Ended | InputState::Closed, _) => TypingState::Never,
            (InputState::Open, Some(_)) => TypingState::Alone,
            _ => TypingState::Shared,
        }
    }

    /// Lets others type while we are suspended, for as long as that may take.
    pub(crate) fn let_go_for_now(&mut self) {
        if self.typing() == TypingState::Alone
            && let Some(uplink) = &mut self.uplink
            && uplink.ask(ForMux::LetGo)
        {
            self.asked.push_back(None);
            // What it does not take now goes when we are back.
            let _ = uplink.flush();
        }
    }

    /// Shows our page, if there is one and the terminal takes it.
    pub(crate) fn show_page(&mut self) {
        let Some(presence) = &self.page else { return };
        let (rows, cols) = limits::SIZE;
        let size = terminal::size().unwrap_or(Size { rows, cols });
        let keys = (self.keys.keys(), self.typing());
        let text = page::text(self.name(), keys, presence, size, std::process::id());
        if !terminal::page(&text) {
            self.page = None;
        }
    }

    /// The terminal is ours again, and the screen the app's.
    pub(crate) fn come_back(&mut self) -> Result<()> {
        self.page = None;
        terminal::resume().context("the local terminal")?;
        self.redraw();
        Ok(())
    }

    /// Input for the app, if there is a way to it.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Some(uplink) = self.uplink.as_mut().filter(|_| self.input == InputState::Open) {
            uplink.input(bytes);
            self.unconfirmed |= !bytes.is_empty() && !io::stdin().is_terminal();
        }
    }

    pub(crate) fn pass_on_held_keys(&mut self) -> Result<Step> {
        let mut out = Vec::new();
        self.keys.expire(Instant::now(), &mut out);
        self.typed(&out)
    }
}
