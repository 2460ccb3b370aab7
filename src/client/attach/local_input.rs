//! This process's input: keys and commands of a person, or the bytes of a program.

use std::io;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::attach_mode::AttachMode;
use super::key;
use super::key_guard::{CONFIRM, Guard, HeldKey, INTERRUPT};
use super::keys::{KeyCommand, Keys, Matcher};
use super::sent::SentInput;
use super::{Attached, Leave, banner, local_terminal};
use crate::core::wire::{Exclusive, InputId, InputIdentity, InputPosition};
use crate::sys::files::enlarge_pipe;
use crate::types::exit::Exit;
use crate::types::limits;

/// Bytes of a program's input that `attach` has read and the mux has not acknowledged. More than
/// the mux and the socket hold, so that a program waits for the app alone.
const UNACKNOWLEDGED: usize = 512 * 1024;
/// Size asked for a program's pipe, bytes: the program goes on while `attach` sends.
const INPUT_PIPE: usize = 256 * 1024;
/// Bytes typed or pasted at a terminal that may wait in `attach`: more than anybody pastes.
/// `attach` reads on, since it finds its own keys only in what it has read.
const TYPED: usize = 4 * 1024 * 1024;

/// Whether input is read and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// It is read as fast as the mux takes it.
    Open,
    /// The mux does not let us type now.
    Held,
    /// It has ended, and the mux knows.
    Ended,
    /// It is not wanted (any more): keys are dropped.
    Closed,
}

/// The state of that input, its keys, and our wish to type alone.
#[derive(Debug)]
pub(crate) struct LocalInput {
    state: InputState,
    /// Bytes that were typed while the terminal edited lines.
    pub(crate) before_raw: usize,
    keys: Matcher,
    guard: Guard,
    /// For reading; empty while it is in use.
    buffer: Vec<u8>,
    /// A program's input was sent, and the app may not have received it.
    pub(super) is_unconfirmed: bool,
    /// What the next mux may need of it, if this one tells the next what it has.
    sent: Option<SentInput>,
    /// Our wish to type alone: the next mux gets it, too.
    pub(super) exclusive: Option<Exclusive>,
}

impl LocalInput {
    /// Input of which nothing was read.
    pub(crate) fn new(
        types: bool,
        keys: Keys,
        (guard, exclusive): (Guard, Option<Exclusive>),
    ) -> Self {
        let kind = fstat(io::stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        if types && kind == Ok(FileType::Fifo) {
            enlarge_pipe(io::stdin(), INPUT_PIPE);
        }
        Self {
            state: if types { InputState::Open } else { InputState::Closed },
            before_raw: 0,
            keys: Matcher::new(keys),
            guard,
            buffer: Vec::new(),
            is_unconfirmed: false,
            sent: None,
            exclusive,
        }
    }

    /// Whether no more input will be sent.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, InputState::Ended | InputState::Closed)
    }

    /// How our input is named to the next mux, if it can go on there; `once` if its end ends the
    /// app's.
    pub(crate) fn identity(&self, once: bool) -> Option<InputIdentity> {
        let is_closed = self.state == InputState::Closed;
        self.sent.as_ref().map(|sent| sent.identity(once && !is_closed))
    }

    /// The first mux has welcomed us.
    pub(crate) fn begin(&mut self, kept: Option<(InputId, InputPosition)>) {
        self.sent = kept.map(|(id, position)| SentInput::new(id, position));
    }

    /// Another mux has welcomed us. Returns how many bytes may not have arrived, if it knows.
    pub(crate) fn resume(&mut self, kept: Option<(InputId, InputPosition)>) -> Option<u64> {
        let unknown = match (&mut self.sent, kept) {
            (Some(sent), Some((_, position))) => sent.resume(position),
            (Some(_), None) => None,
            (None, _) => Some(0),
        };
        if self.sent.is_none() || unknown.is_none() {
            self.begin(kept);
        }
        unknown
    }

    /// The mux has queued this much.
    pub(crate) fn on_queued(&mut self, offset: u64) {
        self.sent.iter_mut().for_each(|sent| sent.on_queued(offset));
    }

    /// These bytes are on their way to the mux.
    fn on_sent(&mut self, bytes: &[u8]) {
        self.is_unconfirmed = self.is_unconfirmed || !local_terminal::terminals().stdin;
        self.sent.iter_mut().for_each(|sent| sent.push(bytes));
    }

    /// Until when the beginning of a key sequence is held back.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.keys.deadline()
    }

    /// The app has received all input.
    pub(crate) fn on_all_taken(&mut self) {
        self.state = InputState::Closed;
        self.is_unconfirmed = false;
    }

    /// The mux lets us type, or forbids it. Returns the new state if it differs.
    pub(crate) fn set_allowed(&mut self, types: bool) -> Option<bool> {
        match (self.state, types) {
            (InputState::Held, true) => self.state = InputState::Open,
            (InputState::Open, false) => {
                self.state = InputState::Held;
                // A new mux must not take the right back from the client that has taken it over.
                self.exclusive = None;
            }
            _ => return None,
        }
        Some(types)
    }

    /// The number of bytes that may be read now, when `unsent` wait for the mux. Without a mux, or
    /// while we may not type, a person's keys are still searched for commands; a program's input
    /// waits.
    fn room(&self, is_raw: bool, unsent: Option<usize>) -> usize {
        let most = if is_raw { TYPED } else { limits::INPUT };
        match (self.state, unsent) {
            (InputState::Open, Some(unsent)) => {
                let sent = self.sent.as_ref().filter(|_| !is_raw).map_or(0, SentInput::len);
                let room = UNACKNOWLEDGED.saturating_sub(sent);
                most.saturating_sub(unsent).min(room).min(limits::READ)
            }
            (InputState::Ended, _) => 0,
            _ if is_raw => limits::READ,
            _ => 0,
        }
    }
}

impl Attached<'_> {
    pub(crate) fn input_room(&self) -> usize {
        self.input.room(self.notices.is_raw(), self.connection.unsent())
    }

    /// Whether what comes from a pipe or a file would be for nobody: the app has no input.
    pub(crate) fn has_no_taker(&self) -> bool {
        self.request.mode == AttachMode::Auto
            && !self.request.read_only
            && self.connection.wanted.input.is_none()
            && self.input.state == InputState::Closed
            && !local_terminal::terminals().stdin
    }

    /// The input is readable, or has ended.
    pub(crate) fn read_input(&mut self) -> Result<(), Leave> {
        if self.has_no_taker() {
            match rustix::io::read(io::stdin(), &mut [0]) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(1..) => {
                    let name = self.name();
                    let only = "--read-only reads without";
                    self.say(&format!(
                        "app {name} has no input, and got nothing of this one; {only}"
                    ));
                    return Err(self.finish(Exit::Failed));
                }
                Ok(0) | Err(_) => self.input.state = InputState::Ended,
            }
            return Ok(());
        }
        let room = self.input_room();
        if room == 0 {
            // An event has taken the room since it was found readable; reading nothing is not its
            // end.
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.input.buffer);
        buffer.resize(buffer.len().max(room), 0);
        let read = rustix::io::read(io::stdin(), &mut buffer[..room]);
        let early = read.unwrap_or(0).min(self.input.before_raw);
        self.input.before_raw -= early;
        local_terminal::restore_keys(&mut buffer[..early]);
        let taken = self.take_input(read, &buffer);
        self.input.buffer = buffer;
        taken
    }

    /// The beginning of the buffer was read.
    fn take_input(&mut self, read: rustix::io::Result<usize>, buffer: &[u8]) -> Result<(), Leave> {
        let len = match read {
            Ok(len) => len,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            // What cannot be read is an input that has ended: of nohup(1), which opens it for writing
            // only, a directory, a terminal in the background that no shell resumes.
            Err(_) => 0,
        };
        if len == 0 && local_terminal::is_gone() {
            return Err(self.output_closed());
        }
        if len == 0 {
            let was = std::mem::replace(&mut self.input.state, InputState::Ended);
            if was != InputState::Closed {
                self.connection.end_input();
            }
            // Keys are not read any more, so those that leave are not either.
            if local_terminal::terminals().stdin && !self.connection.wanted.outputs.is_empty() {
                self.tell(&format!(
                    "attached to app {}: your input has ended; ^C leaves",
                    self.name()
                ));
            }
            return Ok(());
        }
        let mut typed = &buffer[..len];
        if self.notices.edits_lines() && !typed.ends_with(b"\n") {
            local_terminal::begin_line();
        }
        if self.input.keys.is_idle() {
            return self.on_typed(typed);
        }
        while !typed.is_empty() {
            let mut out = Vec::new();
            let (taken, command) = self.input.keys.push(typed, Instant::now(), &mut out);
            typed = &typed[taken..];
            self.on_typed(&out)?;
            command.map_or(Ok(()), |command| self.on_command(command))?;
        }
        Ok(())
    }

    pub(crate) fn release_held_keys(&mut self) -> Result<(), Leave> {
        let mut out = Vec::new();
        self.input.keys.expire(Instant::now(), &mut out);
        self.on_typed(&out)
    }

    /// Sends what the new mux does not have.
    pub(crate) fn send_again(&mut self) {
        let rest = self.input.sent.as_mut().map(SentInput::rest).unwrap_or_default();
        self.connection.send_input(rest);
        if self.input.is_over() {
            self.connection.end_input();
        }
    }

    /// Input without our key sequences.
    fn on_typed(&mut self, keys: &[u8]) -> Result<(), Leave> {
        if self.input.state == InputState::Closed {
            // The terminal makes a signal only of the byte.
            if key::has_sequence(keys, INTERRUPT) {
                kill(Pid::this(), Signal::SIGINT).context("cannot leave")?;
            }
        } else if !keys.is_empty() {
            self.notices.on_typed(Instant::now());
            self.send_guarded(keys);
        }
        Ok(())
    }

    /// Sends keys to the app, except those that the guard holds.
    fn send_guarded(&mut self, mut keys: &[u8]) {
        while self.input.state == InputState::Open && !keys.is_empty() {
            let (passed, held, rest) = self.input.guard.pass(keys, Instant::now());
            if self.connection.send_input(passed) {
                self.input.on_sent(passed);
            }
            if let Some(key) = held {
                self.say_held(key);
            }
            keys = rest;
        }
    }

    fn say_held(&mut self, key: HeldKey) {
        let leave = self.input.keys.keys().of(KeyCommand::Detach);
        let leave = leave.map_or(String::new(), |keys| format!("{keys} leaves; "));
        let (key, time, name) = (key.name(), CONFIRM.as_secs(), self.name());
        // The name comes last: the line is cut to the window.
        self.say(&format!("{leave}{key} again within {time} s goes to app {name}"));
    }

    fn on_command(&mut self, command: KeyCommand) -> Result<(), Leave> {
        match command {
            KeyCommand::Detach => {
                self.connection.flush();
                let is_left = self.connection.unsent().is_some_and(|unsent| unsent > 0);
                let but = if is_left { "; some input was not sent" } else { "" };
                local_terminal::restore();
                let line = format!("detached from app {}{but}", self.name());
                if is_left {
                    self.say(&line);
                } else {
                    self.tell(&line);
                }
                return Err(self.finish(Exit::Done));
            }
            KeyCommand::Help => {
                let help = banner::help(self.name(), self.input.keys.keys());
                self.say(&help);
            }
        }
        Ok(())
    }
}
