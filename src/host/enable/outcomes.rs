//! A command for several services: how it went with each, and how far it is.

use std::io::{self, IsTerminal};
use std::time::Instant;

use anyhow::{Error, Result, anyhow, bail};

use crate::sys::systemd::manager::PATIENCE;
use crate::types::exit::Exit;

/// How a command went with each of its services. One that fails keeps no other from it.
pub(crate) struct Outcomes {
    verb: &'static str,
    /// Number of services.
    all: usize,
    pub(super) done: usize,
    failed: usize,
    /// Of the only one: its error is that of the command.
    only: Option<Result<Exit>>,
    begun: Instant,
}

impl Outcomes {
    pub(crate) fn new(verb: &'static str, all: usize) -> Self {
        Self { verb, all, done: 0, failed: 0, only: None, begun: Instant::now() }
    }

    /// Counts a service that is done. Tells of one that has failed.
    pub(crate) fn add(&mut self, outcome: Result<Exit>) {
        self.done += 1;
        if self.all == 1 {
            self.only = Some(outcome);
            return;
        }
        match outcome {
            Ok(Exit::Done) => return,
            Ok(_) => {}
            Err(e) => log::error!("{e:#}"),
        }
        self.failed += 1;
    }

    /// Does a step of all of these at once, which fails for each of them or for none.
    pub(super) fn step_of_all<T>(
        &mut self,
        all: Vec<T>,
        does: &dyn Fn(&[T]) -> Result<()>,
        back: fn(Vec<(T, Error)>) -> Vec<Error>,
    ) -> Vec<T> {
        match does(&all) {
            Ok(()) => all,
            Err(why) => self.step(all, &|_| Err(anyhow!("{why:#}")), back),
        }
    }

    /// Does a step of each of these. Of those that fail `back` undoes what was done, and says how they
    /// have failed. Returns the others.
    pub(super) fn step<T>(
        &mut self,
        all: Vec<T>,
        does: &dyn Fn(&mut T) -> Result<()>,
        back: fn(Vec<(T, Error)>) -> Vec<Error>,
    ) -> Vec<T> {
        let (mut good, mut failed) = (Vec::new(), Vec::new());
        for mut one in all {
            match does(&mut one) {
                Ok(()) => good.push(one),
                Err(why) => failed.push((one, why)),
            }
        }
        for why in back(failed) {
            self.add(Err(why));
        }
        good
    }

    /// Shows on a terminal how far a command is that takes longer than a person expects. Whatever is
    /// printed next is longer than this line and takes its place.
    pub(super) fn show(&self, done: usize, what: &str) {
        if self.all > 1 && self.begun.elapsed() > PATIENCE && io::stderr().is_terminal() {
            eprint!("iottymux: {done}/{} {what}\r", self.all);
        }
    }

    /// The outcome of the command.
    pub(crate) fn end(self) -> Result<Exit> {
        if self.failed > 0 {
            bail!("{} failed for {} of {} services", self.verb, self.failed, self.all);
        }
        self.only.unwrap_or(Ok(Exit::Done))
    }
}
