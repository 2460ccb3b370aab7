//! `disable`: removes the files of services, so that they have their own streams again.

use std::collections::BTreeSet;

use anyhow::{Context, Error, Result, bail};

use super::{Outcomes, account, block_signals, enabled_by, is_earlier, is_interrupted};
use crate::host::units::unit_dir::{Changes, UnitChanges, UnitDirectory};
use crate::host::units::write::{clear_state, summary};
use crate::sys::print::print;
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::{Fate, Manager, UnitStatus, is_booted, surely};
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// Restores the own streams of services. One that runs is restarted with `now`, and refused otherwise.
///
/// The drop-ins first become such that still want the muxes, since systemd would stop them under the app
/// otherwise. Whoever is killed behind this can begin again. systemd reads the files of all at once. A
/// signal gives those whose turn has not come their streams back.
pub(crate) fn disable(
    manager: Manager,
    services: BTreeSet<ServiceName>,
    now: bool,
    outcomes: &mut Outcomes,
) {
    let mut all = Vec::new();
    for (at, service) in services.into_iter().enumerate() {
        outcomes.show(at, "planned");
        match Released::new(manager, service.clone(), now) {
            Ok(Some(one)) => all.push(one),
            Ok(None) => outcomes.add(Ok(Exit::Done)),
            Err(e) => outcomes.add(Err(cannot(&service, e))),
        }
    }
    let only_say = |failed: Vec<(Released, Error)>| {
        failed.into_iter().map(|(one, why)| cannot(&one.service, why)).collect()
    };
    let all = outcomes.step(all, &Released::change, only_say);
    let all = outcomes.step_of_all(all, &reload, take_back);
    let mut left = Vec::new();
    let mut all = all.into_iter();
    while let Some(one) = all.next() {
        outcomes.show(left.len(), "restarted");
        if is_interrupted() {
            let rest = [one].into_iter().chain(all).collect();
            outcomes.step_of_all(rest, &|_| bail!("interrupted"), take_back);
            break;
        }
        left.extend(outcomes.step(vec![one], &|one| one.restart(now), take_back));
    }
    let left = outcomes.step(left, &Released::remove, only_say);
    let left = outcomes.step_of_all(left, &reload, only_say);
    for one in left {
        outcomes.show(outcomes.done, "disabled");
        let finished = one.finish().with_context(|| format!("{} is disabled", one.service));
        outcomes.add(finished.map(|()| Exit::Done));
    }
}

/// Disables all enabled services. One that fails does not keep the others from it.
pub(crate) fn disable_all(manager: Manager, now: bool) -> Result<Exit> {
    let services: BTreeSet<_> =
        enabled_by(manager.user)?.into_iter().map(|one| one.service).collect();
    let mut outcomes = Outcomes::new("disable", services.len());
    let has_some = !services.is_empty();
    disable(manager, services, now, &mut outcomes);
    let mut swept = Changes::new();
    for place in UnitDirectory::of_enable(manager)? {
        swept.extend(place.sweep()?);
    }
    if !swept.is_empty() {
        if is_booted() {
            manager.systemctl(&["daemon-reload"])?;
        }
        print(&summary(&swept))?;
    } else if !has_some {
        print("no service is enabled\n")?;
    }
    outcomes.end()
}

fn cannot(service: &ServiceName, why: Error) -> Error {
    why.context(format!("cannot disable {service}"))
}

/// A service whose drop-in is to set no streams any more.
struct Released {
    manager: Manager,
    service: ServiceName,
    app: AppName,
    place: UnitDirectory,
    /// The state directories of its muxes.
    state: Vec<AppDir>,
    /// Their units and names.
    muxes: Vec<(String, AppName)>,
    change: UnitChanges,
    /// What it did when it was restarted.
    fate: Option<Fate>,
    removed: Changes,
}

impl Released {
    /// Refuses a service that may not be restarted. Where systemd does not run, this removes its files.
    fn new(manager: Manager, service: ServiceName, now: bool) -> Result<Option<Self>> {
        let (place, app) = files_of(manager, &service)?;
        let owner = (&app, &service);
        if !is_booted() {
            return print(&summary(&place.uninstall(&[owner])?)).map(|()| None);
        }
        // A file that may not go is found before anything changes.
        place.going(&[owner])?;
        let name = service.as_str();
        // A stop or restart of another program goes on undisturbed.
        let shown = if now { manager.show_settled(name) } else { manager.show(name) }?;
        let (state, muxes) = (place.state(owner)?, place.muxes(owner)?);
        // One that was not restarted since it was enabled still has its own streams.
        if !is_earlier(manager, name, &state) {
            refuse_running(&shown, now)?;
        }
        let change = place.without_streams(owner)?;
        let (fate, removed) = (None, Changes::new());
        Ok(Some(Self { manager, service, app, place, state, muxes, change, fate, removed }))
    }

    fn change(&mut self) -> Result<()> {
        // A signal from here on would leave half of the work behind.
        block_signals()?;
        self.change.carry_out().map(drop)
    }

    /// Restarts the service if it runs with its muxes.
    fn restart(&mut self, now: bool) -> Result<()> {
        let (manager, service) = (self.manager, self.service.as_str());
        if is_earlier(manager, service, &self.state) {
            return Ok(());
        }
        // Somebody may have started it meanwhile.
        let shown = manager.show(service)?;
        refuse_running(&shown, now)?;
        if shown.runs() {
            let restarted = manager.restart_soon(service, &shown);
            self.fate = Some(manager.fate(service, &shown, restarted)?);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        self.removed = self.place.uninstall(&[(&self.app, &self.service)])?;
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let (manager, service) = (self.manager, &self.service);
        for (unit, name) in &self.muxes {
            surely(|| manager.stop(unit))?;
            // systemd would list a failed mux for ever.
            surely(|| manager.forget(unit))?;
            account::clear_logs(manager, name);
        }
        clear_state(&self.state)?;
        print(&summary(&self.removed))?;
        match &self.fate {
            // The console is gone, as was wanted. Many a service ends without one.
            Some(fate @ (Fate::Failed(_) | Fate::Rests)) => {
                let user = manager.option();
                log::warn!(
                    "{service} has its own streams again, but it {fate}; see systemctl{user} status {service}"
                );
                Ok(())
            }
            None | Some(Fate::Runs) => print(&format!("{service} has its own streams again\n")),
            Some(fate) => print(&format!("{service} has its own streams again; it {fate}\n")),
        }
    }
}

/// Has systemd read the files of these services.
fn reload(all: &[Released]) -> Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    first.manager.systemctl(&["daemon-reload"]).map(drop)
}

/// Gives services that have failed the streams of their muxes again. Returns what is to be said of them.
fn take_back(failed: Vec<(Released, Error)>) -> Vec<Error> {
    let (failed, reasons): (Vec<Released>, Vec<Error>) = failed.into_iter().unzip();
    let restored = failed.iter().map(|one| one.change.take_back()).fold(Ok(()), Result::and);
    if let Err(e) = restored.and(reload(&failed)) {
        let names: Vec<&str> = failed.iter().map(|one| one.service.as_str()).collect();
        log::warn!("cannot restore the streams of {}: {e:#}", names.join(", "));
    }
    failed.iter().zip(reasons).map(|(one, why)| cannot(&one.service, why)).collect()
}

/// The directory that has the files of a service, and its app.
fn files_of(manager: Manager, service: &ServiceName) -> Result<(UnitDirectory, AppName)> {
    let places = UnitDirectory::of_enable(manager)?;
    for place in &places {
        if let Some((app, _)) = place.app_of(service)? {
            return Ok((place.clone(), app));
        }
    }
    // A `disable` that was killed may have left files of a mux.
    for place in &places {
        if let Some((app, _)) = place.owners()?.into_iter().find(|(_, of)| of == service) {
            return Ok((place.clone(), app));
        }
    }
    let paths = places.iter().map(|place| place.path().display().to_string());
    bail!("it is not enabled (it has no files in {})", paths.collect::<Vec<_>>().join(" or "))
}

/// Refuses a service that runs, unless it may and can be restarted `now`.
fn refuse_running(shown: &UnitStatus, now: bool) -> Result<()> {
    if !shown.runs() {
        return Ok(());
    }
    if !now {
        let how = if shown.lingers() { "has not stopped yet" } else { "is running" };
        bail!("it {how}; stop it first, or restart it with --now");
    }
    if shown.is_masked() {
        bail!("it is masked, and could not be started again; stop it first");
    }
    Ok(())
}
