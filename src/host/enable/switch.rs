//! The change of a service's streams, after its files are written: systemd reads them, and the
//! muxes and the service start. A failure is rolled back, so that the service runs as before.

use anyhow::{Result, anyhow, bail};

use super::account;
use crate::host::units::unit_dir::UnitChanges;
use crate::host::units::write::clear_state;
use crate::host::units::{AppUnits, MuxUnit};
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::{Fate, Interrupted, Manager, UnitStatus};
use crate::types::name::AppName;

/// A service and its muxes, before and after.
pub(crate) struct Switch<'a> {
    pub(crate) manager: Manager,
    pub(crate) app: &'a AppUnits,
    /// The state of the service before.
    pub(crate) shown: &'a UnitStatus,
    /// The units and names of the muxes that it had.
    pub(crate) before: Vec<(String, AppName)>,
    /// The muxes that it gets.
    pub(crate) muxes: Vec<MuxUnit>,
    /// Whether it had streams from muxes, and gets different ones.
    pub(crate) changes: bool,
    /// Whether it runs and must stop, since it would lose its streams otherwise.
    pub(crate) loses: bool,
    /// Whether to restart it.
    pub(crate) now: bool,
}

impl Switch<'_> {
    /// Returns the state of the service if it was started. Signals are blocked meanwhile: one that
    /// ends a `systemctl` makes this fail and roll back.
    pub(crate) fn carry_out(
        &self,
        files: &UnitChanges,
        state: impl FnOnce() -> Result<Vec<AppDir>>,
    ) -> Result<Option<Fate>> {
        let mut is_touched = false;
        let with_it = if self.now || self.loses { self.stop_with_it()? } else { Vec::new() };
        let done = self.switch(files, &mut is_touched);
        let Err(why) = done else { return done };
        let back = self.roll_back(files, is_touched, state).and_then(|back| {
            // They were stopped with it, and its start does not start them.
            if is_touched && !with_it.is_empty() {
                let units = with_it.iter().map(String::as_str);
                let words: Vec<&str> = ["start", "--"].into_iter().chain(units).collect();
                self.manager.systemctl(&words)?;
            }
            Ok(back)
        });
        Err(match back {
            Ok(what) => anyhow!("{why:#}; rolled back: {what}"),
            Err(e) => anyhow!("{why:#}; and rolling back failed: {e:#}"),
        })
    }

    /// The units that run and stop whenever the service stops.
    fn stop_with_it(&self) -> Result<Vec<String>> {
        const NAMES: [&str; 3] = ["RequiredBy", "BoundBy", "ConsistsOf"];
        let mut all = vec![self.app.service.to_string()];
        let mut looked = 0;
        while let Some(unit) = all.get(looked) {
            let shown = self.manager.properties(unit, &NAMES)?;
            for unit in NAMES.iter().flat_map(|name| shown.texts(name)) {
                if !all.iter().any(|other| other == unit) && self.manager.show(unit)?.runs() {
                    all.push(unit.to_owned());
                }
            }
            looked += 1;
        }
        all.remove(0);
        Ok(all)
    }

    /// Sets `is_touched` before it stops or starts the service.
    fn switch(&self, files: &UnitChanges, is_touched: &mut bool) -> Result<Option<Fate>> {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let mut started = None;
        if self.loses {
            *is_touched = true;
            manager.stop(service)?;
            self.leave()?;
            self.reload(files)?;
            self.forget_starts();
            started = Some(manager.systemctl(&["start", "--", service]).map(drop));
        } else {
            if self.changes {
                self.leave()?;
            }
            self.reload(files)?;
            self.start_muxes(!files.is_empty())?;
            if self.now {
                *is_touched = true;
                self.forget_starts();
                started = Some(manager.systemctl(&["restart", "--", service]).map(drop));
            }
        }
        let Some(started) = started else { return Ok(None) };
        if let Err(e) = &started
            && e.is::<Interrupted>()
        {
            bail!("{e:#}");
        }
        self.muxes.iter().try_for_each(|mux| self.check(&mux.unit()))?;
        // Where systemd refuses the restart, the service runs on and must not be touched.
        let fate = manager.fate(service, self.shown, started).inspect_err(|_| {
            *is_touched = self.loses;
        })?;
        match &fate {
            // The service was active with its former streams, so these streams are the cause.
            Fate::Failed(_) | Fate::Repeats(_) | Fate::Rests if self.shown.is_active() => {
                let user = manager.option();
                bail!("with these streams it {fate}, see journalctl{user} -u {service}")
            }
            _ => Ok(Some(fate)),
        }
    }

    /// A service that has failed again and again for want of a console may start once more.
    fn forget_starts(&self) {
        // The start itself fails if this matters.
        let _ = self.manager.systemctl(&["reset-failed", "--", self.app.service.as_str()]);
    }

    /// Starts the muxes of a running service, or restarts them with new options if these are new.
    fn start_muxes(&self, is_new: bool) -> Result<()> {
        // The remaining hooks of a service that runs on other streams get the new streams. The app
        // of a running mux does not notice the restart.
        let verb = match (self.shown.runs(), is_new) {
            (true, true) => "restart",
            (true, false) => "start",
            // Its muxes do not run without it.
            (false, _) => return Ok(()),
        };
        for unit in self.muxes.iter().map(MuxUnit::unit) {
            if let Err(e) = self.manager.systemctl(&[verb, &unit]) {
                self.check(&unit)?;
                return Err(e);
            }
        }
        Ok(())
    }

    /// Fails with the name of a mux that does not start. systemd's error for the service says less.
    fn check(&self, mux: &str) -> Result<()> {
        if self.manager.show(mux)?.does_not_start() {
            let user = self.manager.option();
            bail!("{mux} does not start (journalctl{user} -u {mux})");
        }
        Ok(())
    }

    fn reload(&self, files: &UnitChanges) -> Result<()> {
        let muxes: Vec<String> = self.muxes.iter().map(MuxUnit::unit).collect();
        let mut units: Vec<&str> = muxes.iter().map(String::as_str).collect();
        units.extend(self.before.iter().map(|(unit, _)| unit.as_str()));
        units.push(self.app.service.as_str());
        self.manager.reload(&units, files.changes_template())
    }

    /// Stops the muxes of the old streams.
    fn leave(&self) -> Result<()> {
        self.before.iter().try_for_each(|(unit, _)| self.manager.stop(unit))
    }

    /// Restores the earlier state as far as possible; all steps run, even if one fails. Returns
    /// what is restored.
    fn roll_back(
        &self,
        files: &UnitChanges,
        is_touched: bool,
        state: impl FnOnce() -> Result<Vec<AppDir>>,
    ) -> Result<String> {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let had = |unit: &str| self.before.iter().any(|(before, _)| before == unit);
        let had_name = |name: &AppName| self.before.iter().any(|(_, before)| before == name);
        let mut done = Vec::new();
        let state = state();
        if is_touched {
            done.push(manager.stop(service));
        }
        for mux in self.muxes.iter().filter(|mux| is_touched || !had(&mux.unit())) {
            let unit = mux.unit();
            done.extend([manager.stop(&unit), manager.forget(&unit)]);
        }
        done.extend([files.take_back(), self.reload(files)]);
        for mux in self.muxes.iter().filter(|mux| !had_name(&mux.name)) {
            account::clear_logs(manager, &mux.name);
        }
        let is_new = |dir: &AppDir| !had_name(dir.name());
        done.push(
            state
                .and_then(|dirs| clear_state(&dirs.into_iter().filter(is_new).collect::<Vec<_>>())),
        );
        let ran = self.shown.runs() && !self.shown.stops();
        done.push(match (ran, is_touched) {
            (true, true) => self.start_again(),
            (true, false) => self
                .before
                .iter()
                .try_for_each(|(unit, _)| manager.systemctl(&["restart", unit]).map(drop)),
            (false, true) if !self.shown.has_failed() => manager.forget(service),
            (false, _) => Ok(()),
        });
        done.into_iter().collect::<Result<()>>()?;
        Ok(if ran { format!("{service} runs as before") } else { "nothing has changed".to_owned() })
    }

    /// Starts the service on its own streams.
    fn start_again(&self) -> Result<()> {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let before = manager.show(service)?;
        let started = manager.systemctl(&["start", "--", service]).map(drop);
        match manager.fate(service, &before, started)? {
            Fate::Runs | Fate::Rests => Ok(()),
            fate => bail!("{service} {fate}"),
        }
    }
}
