//! An attach and its mux: what comes from there, up to its end, and the next one.

use std::io;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use super::link::{Link, Progress};
use super::mode::AttachMode;
use super::page::Presence;
use super::pulse::Pulse;
use super::pump::News;
use super::{AttachRequest, Attached, Farewell, InputState, Step, UNSURE, link, pump, terminal};
use crate::commands::find;
use crate::os::sys;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::wire::Rights;

impl Attached<'_> {
    pub(crate) fn on_news(&mut self, news: News) -> Result<Step> {
        match news {
            News::Gap(gap) => {
                let len = gap.to.saturating_sub(gap.from);
                self.missing += len;
                // Told when it is over: gaps come in flocks.
                let so_far = self.gap.map_or(0, |(so_far, _)| so_far);
                self.gap = Some((so_far + len, Instant::now() + limits::GAP_QUIET));
            }
            News::Exit(status) => self.farewell = Some(Farewell::App(Exit::App(status.code()))),
            News::AppEnded(status) => self.ended = Some(status),
            News::AppStarted => {
                if let Some(status) = self.ended.take() {
                    let name = self.name();
                    self.say(&format!("app {name} ended {status} and was started again"));
                }
            }
            News::Closing => self.farewell = Some(Farewell::Mux),
            News::Rights(rights) => self.on_rights(&rights),
            News::Drawn => self.tell_on_screen(),
            News::Wiped => self.wiped = Some(Instant::now() + limits::NOTE_PAUSE),
            News::Pulse(answers) => self.on_pulse(answers),
            News::Answer(answer) => self.on_answer(&answer),
            News::Detached => {
                terminal::restore();
                self.say(&format!("detached from app {} by request", self.name()));
                return Ok(Step::Leave(self.complete(Exit::Done)));
            }
            News::StdinDone => {
                self.input = InputState::Closed;
                self.unconfirmed = false;
                if self.wanted.outputs.is_empty() && !self.request.stdin_once {
                    return Ok(Step::Leave(self.complete(Exit::Done)));
                }
            }
            News::Refused(why) => {
                terminal::restore();
                bail!("attached to app {}: {}", self.name(), why.escape_debug());
            }
            News::OutputClosed => return Ok(Step::Leave(Exit::Done)),
            News::OutputFailed(e) => {
                terminal::restore();
                return Err(e).context("writing standard output");
            }
            News::Presence(report) => {
                // Only a page that is shown wants to know.
                if self.page.is_some() {
                    let unknown = |e| Presence::Unknown(format!("{e:#}"));
                    self.page = Some(report.map_or_else(unknown, Presence::Known));
                    self.show_page();
                }
            }
            News::Signal(SIGWINCH) => {
                self.redraw();
                self.show_page();
            }
            News::Signal(SIGTSTP) => {
                self.let_go_for_now();
                terminal::suspend();
                sys::suspend().context("suspending")?;
                self.come_back()?;
            }
            News::Signal(SIGCONT) => self.come_back()?,
            News::Signal(signal) => {
                terminal::restore();
                self.tell_missing();
                // Ends this process as the signal would have done, so that a shell can tell.
                emulate_default_handler(signal).context("ending on a signal")?;
            }
            News::Broken => {
                terminal::restore();
                bail!("attached to app {}: an internal error, see above", self.name());
            }
            News::Ended(end, progress) => return self.on_end(end, progress),
            News::Dialled(Ok(link)) => self.go_on(link)?,
            News::Dialled(Err(e)) => return Ok(self.give_up(&e)),
        }
        Ok(Step::Continue)
    }

    /// Whether we type has changed, or a new mux has told.
    pub(crate) fn on_rights(&mut self, rights: &Rights) {
        let (name, why) = (self.name(), rights.why.escape_debug());
        match (self.input, rights.types) {
            (InputState::Held, true) => {
                self.input = InputState::Open;
                self.redraw();
                self.say(&format!("attached to app {name}: you type again"));
            }
            (InputState::Open, false) => {
                self.say(&format!("attached to app {name}: you only look: {why}"));
                self.input = InputState::Held;
                // Whoever has taken that over is not to lose it to us by a new mux.
                self.exclusive = None;
            }
            _ => {}
        }
    }

    /// A connection has ended; the attach ends with the last one, unless it can be made again.
    pub(crate) fn on_end(
        &mut self,
        end: io::Result<()>,
        progress: Option<Progress>,
    ) -> Result<Step> {
        self.open -= 1;
        if self.open > 0 {
            return Ok(Step::Continue);
        }
        self.uplink = None;
        self.pulse = Pulse::Well;
        self.tell_held();
        let reconnects = !self.request.reconnect.is_zero();
        match (self.farewell, progress, end) {
            (Some(Farewell::App(exit)), _, _) => Ok(Step::Leave(self.complete(exit))),
            (_, Some(progress), _) if reconnects => self.reconnect(progress),
            (Some(Farewell::Mux), _, _) => Ok(Step::Leave(self.complete(Exit::Done))),
            // The end of a raw socket is all that it has to tell.
            (None, None, Ok(())) => Ok(Step::Leave(self.complete(Exit::Done))),
            (None, _, Ok(())) => Ok(self.lost("")),
            (None, _, Err(e)) => Ok(self.lost(&format!(" ({e})"))),
        }
    }

    /// The mux is gone, for good as far as it matters here.
    pub(crate) fn lost(&mut self, more: &str) -> Step {
        terminal::restore();
        self.say(&format!("attached to app {}: the mux is gone{more}", self.name()));
        self.tell_missing();
        Step::Leave(Exit::Lost)
    }

    /// Looks for a new mux, in another thread.
    pub(crate) fn reconnect(&mut self, progress: Progress) -> Result<Step> {
        // What was sent may be with the app, or not: to go on could only hide that.
        let unsure = self.unconfirmed;
        let what = match self.farewell {
            None if unsure => return Ok(self.lost(UNSURE)),
            None => "is gone",
            Some(_) => "has ended",
        };
        let wait = self.request.reconnect;
        self.say(&format!("app {}: the mux {what}; trying again for {wait:?}", self.name()));
        let request = AttachRequest {
            mode: AttachMode::Only(self.wanted.clone()),
            wait: Some(wait),
            exclusive: self.exclusive,
            // Another app's input is not to be ended by the end of what this one was given.
            stdin_once: self.request.stdin_once
                && matches!(self.input, InputState::Open | InputState::Held),
            ..self.request.clone()
        };
        pump::dial(self.outbox.another()?, move || {
            find::retry(&request.dir, request.wait, "", |endpoints| {
                if unsure {
                    bail!("there is a new mux{UNSURE}");
                }
                link::dial(&request, endpoints, Some(&progress))
            })
        })?;
        Ok(Step::Continue)
    }

    /// There is a new mux, and it has welcomed us.
    pub(crate) fn go_on(&mut self, link: Link) -> Result<()> {
        let reads = !self.wanted.outputs.is_empty();
        let knows = self.epoch.is_some() && self.epoch == link.epoch || !reads;
        if !knows && self.is_drawn {
            // A screen comes, which would wipe that away.
            self.hold();
        }
        let but = if knows { "" } else { "; what it wrote meanwhile may be missing" };
        self.say(&format!("app {}: attached again{but}", self.name()));
        self.uncertain |= !knows;
        self.epoch = link.epoch;
        let told = link.size;
        self.begin(link)?;
        let over = matches!(self.input, InputState::Ended | InputState::Closed);
        if let Some(uplink) = self.uplink.as_mut().filter(|_| over) {
            uplink.end();
        }
        // The same again would be answered by a screen, which the terminal shows already.
        if terminal::size() != told {
            self.redraw();
        }
        Ok(())
    }

    /// There is no new mux, or it does not take us.
    pub(crate) fn give_up(&mut self, why: &anyhow::Error) -> Step {
        match self.farewell {
            Some(_) if find::is_absence(why) => Step::Leave(self.complete(Exit::Done)),
            None if find::is_absence(why) => self.lost(""),
            _ => self.lost(&format!("; {why:#}")),
        }
    }
}
