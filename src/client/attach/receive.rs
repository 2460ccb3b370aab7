//! Handles events: the mux's messages, the end of a connection and the next one, signals.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use signal_hook::consts::{SIGCONT, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use super::attach_mode::AttachMode;
use super::connection::AnnouncedEnd;
use super::dial::{self, Earlier, NewConnection};
use super::event::AttachEvent;
use super::{AttachRequest, Attached, Leave, io_threads, local_terminal};
use crate::client::find::{self, Hint};
use crate::core::wire::session_reader::{MuxEvent, SessionReader};
use crate::core::wire::{AppStatus, Gap, Refusal, Rights};
use crate::host::enable;
use crate::types::escape;
use crate::types::exit::Exit;

/// How long the lock of a script is not worth a word: what is typed meanwhile waits in the mux.
const BRIEF: Duration = Duration::from_secs(1);
/// Why a program's input does not go on with another mux.
const INPUT_UNCONFIRMED: &str = ", and the app may not have received all of the input";
/// A mux was killed while it wrote to the app's terminal.
const INPUT_UNKNOWN: &str = " bytes of input may not have arrived";

impl Attached<'_> {
    pub(crate) fn on_event(&mut self, event: AttachEvent) -> Result<(), Leave> {
        match event {
            AttachEvent::Mux(message) => self.on_message(message)?,
            AttachEvent::ScreenDrawn => self.notices.on_screen_drawn(),
            AttachEvent::LinesWiped => self.notices.on_wiped(),
            AttachEvent::Circle => return Err(self.fail("its terminal shows this one")),
            AttachEvent::OutputClosed => return Err(self.output_closed()),
            AttachEvent::OutputFailed(_) if local_terminal::is_gone() => {
                return Err(self.output_closed());
            }
            AttachEvent::OutputFailed(e) => {
                local_terminal::restore();
                return Err(anyhow!(e).context("cannot write standard output").into());
            }
            AttachEvent::Signal(signal) => self.on_signal(signal)?,
            AttachEvent::SessionEnded(end, reader) => self.on_session_ended(end, reader)?,
            AttachEvent::Reconnected(Ok(new)) => self.continue_with(*new)?,
            AttachEvent::Reconnected(Err(e)) => return Err(self.give_up(&e)),
        }
        Ok(())
    }

    fn on_message(&mut self, message: MuxEvent) -> Result<(), Leave> {
        match message {
            MuxEvent::Gap(Gap { from, to, .. }) => {
                self.losses.add(to.saturating_sub(from), Instant::now());
            }
            MuxEvent::Exit(status) => self.announce_app(status),
            MuxEvent::Closing => match enable::status_of(&self.request.dir) {
                Some(status) => self.announce_app(status),
                None => self.connection.announced_end = Some(AnnouncedEnd::Mux),
            },
            MuxEvent::Ended(status) => self.app_ended = Some(status),
            MuxEvent::Started => {
                if let Some(status) = self.app_ended.take() {
                    let name = self.name();
                    self.tell(&format!("app {name} ended {status} and was started again"));
                }
            }
            MuxEvent::Rights(rights) => self.on_rights(&rights),
            MuxEvent::StdinQueued(position) => self.input.on_queued(position.offset),
            MuxEvent::StdinDone(_) => {
                self.input.on_all_taken();
                if self.connection.wanted.outputs.is_empty() && !self.request.stdin_once {
                    return Err(self.finish(Exit::Done));
                }
            }
            MuxEvent::Detached => {
                local_terminal::restore();
                self.tell(&format!("detached from app {} by request", self.name()));
                return Err(self.finish(Exit::Done));
            }
            MuxEvent::Error(Refusal { error, .. }) => {
                return Err(self.fail(&escape::line(&error)));
            }
            _ => {}
        }
        Ok(())
    }

    fn announce_app(&mut self, status: AppStatus) {
        self.app_ended = Some(status);
        self.connection.announced_end = Some(AnnouncedEnd::App(Exit::App(status.code())));
    }

    fn fail(&mut self, why: &str) -> Leave {
        local_terminal::restore();
        anyhow!("attached to app {}: {why}", self.name()).into()
    }

    fn on_signal(&mut self, signal: i32) -> Result<()> {
        match signal {
            SIGWINCH => self.redraw(),
            // The shell may have had the terminal meanwhile.
            SIGCONT => {
                local_terminal::set_up_again().context("cannot set up the local terminal")?;
                self.redraw();
            }
            SIGINT | SIGTERM | SIGQUIT if self.pass_on(signal) => {}
            _ => self.end_by(signal)?,
        }
        Ok(())
    }

    /// Ends this process as the signal would have done, so that a shell can see it.
    pub(crate) fn end_by(&mut self, signal: i32) -> Result<()> {
        local_terminal::restore();
        self.say_losses();
        emulate_default_handler(signal).context("cannot end by a signal")
    }

    /// Has the keeper of the app pass a signal on. Returns false if signals are for this process.
    fn pass_on(&self, signal: i32) -> bool {
        let keeper = self.request.keeper.filter(|_| self.request.passes_signals);
        let signal = Signal::try_from(signal).ok();
        // It is our child, and nothing has waited for it: the number is its own.
        keeper.zip(signal).is_some_and(|(keeper, signal)| kill(keeper, signal).is_ok())
    }

    /// A message of the mux about our right to type, or the state of a new session.
    pub(crate) fn on_rights(&mut self, rights: &Rights) {
        self.locked = rights.brief.then(|| (Instant::now() + BRIEF, rights.clone()));
        if self.locked.is_some() {
            return;
        }
        match self.input.set_allowed(rights.types) {
            None => {}
            Some(true) => {
                self.redraw();
                self.tell("you can type again");
            }
            Some(false) => {
                // A window of 80 columns shows all of it.
                self.say(&format!("you cannot type: {}", escape::line(&rights.why)));
            }
        }
    }

    /// The attach ends with its session, unless the mux can be dialled again.
    fn on_session_ended(
        &mut self,
        end: io::Result<()>,
        reader: Option<SessionReader>,
    ) -> Result<(), Leave> {
        self.connection.close();
        self.say_pending();
        let reconnects = !self.request.reconnect.is_zero();
        Err(match (self.connection.announced_end, reader, end) {
            (Some(AnnouncedEnd::App(exit)), _, _) => {
                // As a shell, `run` says only what its user has not caused.
                let is_told = |status: &AppStatus| match status {
                    AppStatus::Signal(signal) if self.request.keeper.is_some() => {
                        ![SIGINT, SIGPIPE].contains(&i32::from(*signal))
                    }
                    _ => self.request.keeper.is_none(),
                };
                if let Some(status) =
                    self.app_ended.filter(|status| self.by_person && is_told(status))
                {
                    local_terminal::restore();
                    self.tell(&format!("app {} ended {status}", self.name()));
                }
                self.finish(exit)
            }
            (_, Some(reader), _) if reconnects => return self.reconnect(reader),
            (Some(AnnouncedEnd::Mux), _, _) => self.finish(Exit::Done),
            (None, _, Ok(())) => self.lost(""),
            (None, _, Err(e)) => self.lost(&format!(" ({e})")),
        })
    }

    /// The connection is lost for good.
    fn lost(&mut self, more: &str) -> Leave {
        local_terminal::restore();
        self.say(&format!("attached to app {}: the mux is gone{more}", self.name()));
        self.say_losses();
        Leave::With(Exit::Lost)
    }

    /// Looks for a new mux, in another thread.
    fn reconnect(&mut self, reader: SessionReader) -> Result<(), Leave> {
        let is_unconfirmed = self.input.is_unconfirmed;
        let input = self.input.identity(self.request.stdin_once);
        // The app may have received the input or not: sending more would only hide that.
        let is_lost = is_unconfirmed && input.is_none();
        let what = match self.connection.announced_end {
            None if is_lost => return Err(self.lost(INPUT_UNCONFIRMED)),
            None => "is gone",
            Some(_) => "has ended",
        };
        let wait = self.request.reconnect;
        self.tell(&format!("app {}: the mux {what}; trying again for {wait:?}", self.name()));
        let request = AttachRequest {
            mode: AttachMode::Only(self.connection.wanted.clone()),
            wait,
            exclusive: self.input.exclusive,
            // Input that has ended was for the app of then; it does not end the next one's. Whether
            // it is the same app knows a mux that knows our input.
            stdin_once: self.request.stdin_once && !self.input.is_over() && !is_unconfirmed,
            ..self.request.clone()
        };
        let earlier = Earlier { reader, input };
        let pause = self.backoff.after_end(Instant::now());
        let sender = self.sender.clone();
        io_threads::spawn("dial", move || {
            thread::sleep(pause);
            let dial = |endpoints: &_| {
                if is_lost {
                    bail!("there is a new mux{INPUT_UNCONFIRMED}");
                }
                dial::dial(&request, endpoints, Some(&earlier)).map(Box::new)
            };
            let dialled = find::retry(&request.dir, request.wait, Hint::Nothing, dial);
            let _ = sender.send(AttachEvent::Reconnected(dialled));
        })?;
        Ok(())
    }

    /// A new mux has welcomed us.
    fn continue_with(&mut self, new: NewConnection) -> Result<(), Leave> {
        let unknown = self.input.resume(new.input);
        if self.input.is_unconfirmed {
            match unknown {
                Some(0) => {}
                Some(len) => return Err(self.lost(&format!("; {len}{INPUT_UNKNOWN}"))),
                None => {
                    return Err(self.lost(&format!("; there is a new mux{INPUT_UNCONFIRMED}")));
                }
            }
        }
        let is_continued = self.connection.is_continued_by(&new.connection);
        let but = if is_continued {
            ""
        } else {
            self.losses.add_uncounted();
            // A screen follows.
            self.notices.expect_screen();
            "; output written meanwhile may be missing"
        };
        let line = format!("app {}: attached again{but}", self.name());
        if is_continued {
            self.tell(&line);
        } else {
            self.say(&line);
        }
        if let Some(len @ 1..) = unknown {
            self.say(&format!("app {}: {len}{INPUT_UNKNOWN}", self.name()));
        }
        let sent = new.window;
        self.begin(new)?;
        self.send_again();
        // For an unchanged window the mux would send a screen that the terminal shows already.
        if local_terminal::window() != sent {
            self.redraw();
        }
        Ok(())
    }

    /// No new mux appears, or it refuses us.
    fn give_up(&mut self, why: &anyhow::Error) -> Leave {
        match self.connection.announced_end {
            Some(_) if find::is_absence(why) => self.finish(Exit::Done),
            None if find::is_absence(why) && self.input.is_unconfirmed => {
                self.lost(INPUT_UNCONFIRMED)
            }
            None if find::is_absence(why) => self.lost(""),
            _ => self.lost(&format!("; {why:#}")),
        }
    }
}
