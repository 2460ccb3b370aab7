//! The main loop of an attach.
//!
//! The loop polls this process's input, the connection and the events of the I/O threads, because
//! it must not block on any of them. Inherited descriptors are shared with the shell and keep their
//! flags.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};
use signal_hook::consts::SIGHUP;

use super::dial::NewConnection;
use super::event::AttachEvent;
use super::io_threads;
use super::local_terminal;
use super::{Attached, Leave};
use crate::core::wire::Rights;
use crate::sys::mailbox::Mailbox;
use crate::sys::ready;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::stream::Stream;

impl<'a> Attached<'a> {
    /// Serves a new connection, and those that follow it, until the attach ends.
    pub(crate) fn run(
        mut self,
        new: NewConnection,
        events: &mut Mailbox<AttachEvent>,
    ) -> Result<Exit> {
        let Err(leave) = self.turns(new, events);
        local_terminal::restore();
        self.say_pending();
        match leave {
            Leave::With(exit) => Ok(exit),
            Leave::Failed(error) => Err(error),
        }
    }

    fn turns(
        &mut self,
        new: NewConnection,
        events: &mut Mailbox<AttachEvent>,
    ) -> Result<Infallible, Leave> {
        self.input.begin(new.input);
        self.begin(new)?;
        loop {
            self.turn(events)?;
        }
    }

    /// Takes over a new connection.
    pub(crate) fn begin(&mut self, new: NewConnection) -> Result<()> {
        self.connection = new.connection;
        let shown = self.connection.wanted.outputs.clone();
        io_threads::forward_output(self.sender.clone(), new.downlink, shown)?;
        self.on_rights(&new.welcome.rights.unwrap_or(Rights {
            types: true,
            why: String::new(),
            brief: false,
        }));
        Ok(())
    }

    fn turn(&mut self, events: &mut Mailbox<AttachEvent>) -> Result<(), Leave> {
        let ready = self.wait(events)?;
        if ready.mux_takes {
            self.connection.flush();
        }
        if ready.events {
            events.clear();
            while let Some(event) = events.receive() {
                self.on_event(event)?;
            }
        }
        if ready.output_closed {
            return Err(self.output_closed());
        }
        if ready.input {
            self.read_input()?;
        }
        self.release_held_keys()?;
        local_terminal::read_keys(self.input.deadline().is_some())
            .context("cannot set up the local terminal")?;
        self.on_time(Instant::now());
        Ok(())
    }

    /// Nobody reads our output any more: not an error. If that is because our terminal is gone, this
    /// process ends as by SIGHUP, though the signal may come later, or not at all.
    pub(crate) fn output_closed(&mut self) -> Leave {
        if local_terminal::is_gone()
            && let Err(error) = self.end_by(SIGHUP)
        {
            return Leave::Failed(error);
        }
        Leave::With(Exit::Unread)
    }

    /// Handles everything that is due.
    fn on_time(&mut self, now: Instant) {
        if self.notices.needs_redraw(now, io_threads::pieces(), self.connection.is_up()) {
            self.redraw();
        }
        if self.notices.is_overdue(now) {
            self.say_pending();
        }
        if let Some((_, rights)) = self.locked.take_if(|(due, _)| *due <= now) {
            self.on_rights(&Rights { brief: false, ..rights });
        }
        if let Some(len) = self.losses.take_due(Instant::now()) {
            let name = self.name();
            self.say(&format!("app {name}: {len} bytes were lost here: this output is slow"));
        }
    }

    /// Waits until something is ready or due.
    fn wait(&self, events: &Mailbox<AttachEvent>) -> Result<Ready> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut fds = vec![PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        let mut add = |fd, flags| {
            fds.push(PollFd::new(fd, flags));
            fds.len() - 1
        };
        let input = (self.input_room() > 0 || self.has_no_taker())
            .then(|| add(stdin.as_fd(), PollFlags::POLLIN));
        // No event is asked for: poll reports an output without a reader as an error.
        let writes = self.connection.wanted.outputs.iter().any(|s| *s != Stream::Stderr);
        let output = writes.then(|| add(stdout.as_fd(), PollFlags::empty()));
        let has_unsent = self.connection.unsent().is_some_and(|unsent| unsent > 0);
        let mux = self.connection.poll_fd().filter(|_| has_unsent);
        let mux = mux.map(|fd| add(fd, PollFlags::POLLOUT));
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        ready::wait(&mut fds, left).context("cannot wait for events")?;
        let events =
            |at: Option<usize>| at.and_then(|at| fds[at].revents()).unwrap_or(PollFlags::empty());
        Ok(Ready {
            events: events(Some(0)).contains(PollFlags::POLLIN),
            output_closed: events(output).contains(PollFlags::POLLERR),
            input: !events(input).is_empty(),
            mux_takes: !events(mux).is_empty(),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        let parts = [
            self.input.deadline(),
            self.notices.deadline(self.connection.is_up()),
            self.losses.deadline(),
            self.locked.as_ref().map(|(due, _)| *due),
        ];
        parts.into_iter().flatten().min()
    }

    pub(crate) fn name(&self) -> &'a AppName {
        self.request.dir.name()
    }

    /// Reports the window to the mux. Its answer is a screen, so this also redraws a terminal on
    /// which the app's screen was hidden.
    pub(crate) fn redraw(&mut self) {
        if let Some(window) = local_terminal::window()
            && self.connection.resize(window)
        {
            self.notices.expect_screen();
        }
    }

    /// Shows a line about what is as it should be.
    pub(crate) fn tell(&mut self, text: &str) {
        if !self.request.quiet {
            self.say(text);
        }
    }

    /// Shows a line to the user.
    pub(crate) fn say(&mut self, text: &str) {
        self.notices.say(text);
    }

    /// Shows the lines that waited for a screen which does not come.
    pub(crate) fn say_pending(&mut self) {
        self.notices.take_pending().iter().for_each(|line| self.say(line));
    }

    /// Ends with this code, or with the one for incomplete output.
    pub(crate) fn finish(&mut self, exit: Exit) -> Leave {
        local_terminal::restore();
        self.say_losses();
        Leave::With(if self.losses.is_none() { exit } else { Exit::Incomplete })
    }

    pub(crate) fn say_losses(&mut self) {
        let name = self.name();
        self.losses.lines().iter().for_each(|line| {
            self.say(&format!("attached to app {name}: {line}"));
        });
    }
}

/// The result of [`Attached::wait`].
#[allow(clippy::struct_excessive_bools, reason = "any of them may come with any other")]
struct Ready {
    events: bool,
    output_closed: bool,
    input: bool,
    /// The mux takes what was not sent, or has gone.
    mux_takes: bool,
}
