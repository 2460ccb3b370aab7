//! The change of a service's streams, after its files are written: systemd reads them, and the
//! muxes and the service start. A failure is rolled back, so that the service runs as before.

use anyhow::{Error, Result, anyhow, bail};

use super::{account, block_signals, cannot};
use crate::host::units::unit_dir::{Changes, UnitChanges, UnitDirectory};
use crate::host::units::write::clear_state;
use crate::host::units::{AppUnits, MuxUnit, UnitFile};
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::{Fate, Interrupted, Manager, UnitStatus, surely};
use crate::types::name::AppName;

/// A service that nothing keeps from being enabled, and its muxes, before and after.
pub(super) struct Switch {
    pub(super) manager: Manager,
    pub(super) app: AppUnits,
    /// The state of the service before.
    pub(super) shown: UnitStatus,
    /// The units and names of the muxes that it had.
    pub(super) before: Vec<(String, AppName)>,
    /// The muxes that it gets.
    pub(super) muxes: Vec<MuxUnit>,
    /// The state directories that it had.
    pub(super) state: Vec<AppDir>,
    pub(super) place: UnitDirectory,
    /// The files that it gets.
    pub(super) texts: Vec<UnitFile>,
    pub(super) files: UnitChanges,
    /// Whether it had streams from muxes, and gets different ones.
    pub(super) changes: bool,
    /// Whether to restart it.
    pub(super) now: bool,
    /// What a person is told when it is done.
    pub(super) told: String,
    /// The lines of its own files about streams that are to be warned of.
    pub(super) own: Vec<String>,
    /// What happened to the files.
    pub(super) written: Changes,
    /// Whether it was stopped or started.
    pub(super) is_touched: bool,
    /// The units that ran and stop whenever it stops.
    pub(super) with_it: Vec<String>,
    /// What it did when it was started.
    pub(super) fate: Option<Fate>,
}

/// Has systemd read the files of these services.
pub(super) fn reload(all: &[Switch]) -> Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    first.manager.systemctl(&["daemon-reload"]).map(drop)
}

/// Starts the muxes of running services, or restarts them with new options if these are new. The app of
/// a running mux does not notice the restart.
pub(super) fn start_muxes(all: &[Switch]) -> Result<()> {
    // The remaining hooks of a service that runs on other streams get the new streams. Without a
    // running service a mux does not run.
    let running = all.iter().filter(|one| one.shown.runs() && !one.loses());
    let (new, same): (Vec<&Switch>, _) = running.partition(|one| !one.files.is_empty());
    for (verb, all) in [("restart", new), ("start", same)] {
        let Some(first) = all.first() else { continue };
        let units = all.iter().flat_map(|one| one.muxes.iter().map(MuxUnit::unit));
        let units: Vec<String> = units.collect();
        let words = [verb, "--"].into_iter().chain(units.iter().map(String::as_str));
        if let Err(e) = first.manager.systemctl(&words.collect::<Vec<_>>()) {
            all.iter().try_for_each(|one| one.check())?;
            return Err(e);
        }
    }
    Ok(())
}

/// Restores the earlier state of those that have failed as far as possible; all steps run, even if one
/// fails. Returns what is to be said of each.
pub(super) fn roll_back(failed: Vec<(Switch, Error)>) -> Vec<Error> {
    let (all, reasons): (Vec<Switch>, Vec<Error>) = failed.into_iter().unzip();
    let taken_back: Vec<_> = all.iter().map(Switch::take_back).collect();
    let reloaded = reload(&all).map_err(|e| format!("{e:#}"));
    let restore = |((one, why), (done, state)): ((&Switch, Error), (Result<()>, _))| {
        let reloaded = reloaded.clone().map_err(Error::msg);
        let said = match one.restore(done.and(reloaded), state) {
            Ok(what) => anyhow!("{why:#}; rolled back: {what}"),
            Err(e) => anyhow!("{why:#}; and rolling back failed: {e:#}"),
        };
        cannot(&one.app.service, said)
    };
    all.iter().zip(reasons).zip(taken_back).map(restore).collect()
}

impl Switch {
    /// Whether it runs and must stop, since it would lose its streams otherwise.
    fn loses(&self) -> bool {
        self.changes && self.shown.runs()
    }

    /// Whether no other service may change with it: they would wait while it is stopped, or have
    /// files that are rolled back with it.
    pub(super) fn goes_alone(&self) -> bool {
        self.changes || self.files.changes_template()
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

    /// Writes its files.
    pub(super) fn write(&mut self) -> Result<()> {
        // A signal from here on would leave half of the work behind, or the service stopped.
        block_signals()?;
        // Another service of the same command may have one of its names now.
        let owner = self.app.owner();
        self.files = self.place.plan(&self.place.near(owner)?, owner, self.texts.clone())?;
        self.written = self.files.carry_out()?;
        Ok(())
    }

    /// Stops what would lose its streams when systemd reads the files.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.now || self.loses() {
            self.with_it = self.stop_with_it()?;
        }
        if self.loses() {
            self.is_touched = true;
            self.manager.stop(self.app.service.as_str())?;
        }
        if self.changes {
            // The muxes of the old streams.
            self.before.iter().try_for_each(|(unit, _)| self.manager.stop(unit))?;
        }
        Ok(())
    }

    /// Starts the service with its new streams, if it is to be started now.
    pub(super) fn start(&mut self) -> Result<()> {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let loses = self.loses();
        let verb = match (loses, self.now) {
            (true, _) => "start",
            (false, true) => "restart",
            (false, false) => return Ok(()),
        };
        if !loses {
            // Others may have had their turn before.
            self.shown = manager.show(service)?;
        }
        self.is_touched = true;
        // A service that has failed again and again for want of a console may start once more. The
        // start itself fails if this matters.
        let _ = manager.systemctl(&["reset-failed", "--", service]);
        let started = manager.systemctl(&[verb, "--", service]).map(drop);
        if let Err(e) = &started
            && e.is::<Interrupted>()
        {
            bail!("{e:#}");
        }
        self.check()?;
        // Where systemd refuses the restart, the service runs on and must not be touched.
        let fate = manager.fate(service, &self.shown, started);
        self.is_touched = fate.is_ok() || loses;
        let fate = fate?;
        match &fate {
            // The service was active with its former streams, so these streams are the cause.
            Fate::Failed(_) | Fate::Repeats(_) | Fate::Rests if self.shown.is_active() => {
                let user = manager.option();
                bail!("with these streams it {fate}, see journalctl{user} -u {service}")
            }
            _ => {}
        }
        self.fate = Some(fate);
        Ok(())
    }

    /// Fails with the name of a mux that does not start. systemd's error for the service says less.
    fn check(&self) -> Result<()> {
        for mux in self.muxes.iter().map(MuxUnit::unit) {
            if self.manager.show(&mux)?.does_not_start() {
                let user = self.manager.option();
                bail!("{mux} does not start (journalctl{user} -u {mux})");
            }
        }
        Ok(())
    }

    /// Stops what has the new streams, and restores the files. Also returns the state directories of
    /// the new streams.
    fn take_back(&self) -> (Result<()>, Result<Vec<AppDir>>) {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let had = |unit: &str| self.before.iter().any(|(before, _)| before == unit);
        let state = self.place.state(self.app.owner());
        let mut done = Vec::new();
        if self.is_touched {
            done.push(surely(|| manager.stop(service)));
        }
        for mux in self.muxes.iter().filter(|mux| self.is_touched || !had(&mux.unit())) {
            let unit = mux.unit();
            done.extend([surely(|| manager.stop(&unit)), surely(|| manager.forget(&unit))]);
        }
        done.push(self.files.take_back());
        (done.into_iter().collect(), state)
    }

    /// Runs what ran before, once systemd has read the restored files. Returns what is restored.
    fn restore(&self, taken_back: Result<()>, state: Result<Vec<AppDir>>) -> Result<String> {
        let (manager, service) = (self.manager, self.app.service.as_str());
        let had_name = |name: &AppName| self.before.iter().any(|(_, before)| before == name);
        for mux in self.muxes.iter().filter(|mux| !had_name(&mux.name)) {
            account::clear_logs(manager, &mux.name);
        }
        let is_new = |dir: &AppDir| !had_name(dir.name());
        let cleared = state
            .and_then(|dirs| clear_state(&dirs.into_iter().filter(is_new).collect::<Vec<_>>()));
        let ran = self.shown.runs() && !self.shown.stops();
        let restored = match (ran, self.is_touched) {
            (true, true) => self.start_again(),
            (true, false) => self
                .before
                .iter()
                .try_for_each(|(unit, _)| manager.systemctl(&["restart", unit]).map(drop)),
            (false, true) if !self.shown.has_failed() => manager.forget(service),
            (false, _) => Ok(()),
        };
        taken_back.and(cleared).and(restored)?;
        if self.is_touched && !self.with_it.is_empty() {
            // They were stopped with it, and its start does not start them.
            let units = self.with_it.iter().map(String::as_str);
            manager.systemctl(&["start", "--"].into_iter().chain(units).collect::<Vec<_>>())?;
        }
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
