//! `disable`: removes the files of a service, so that it has its own streams again.

use anyhow::{Context, Result, bail};

use super::check_rights;
use super::deferred::DeferredDisable;
use crate::os::print::print;
use crate::systemd::manager::{Fate, Manager, is_booted};
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::units::place::{Done, UnitDirectory};
use crate::units::write::summary;

/// Tries of `disable` if somebody starts the service at the same moment.
const DISABLE_TRIES: u32 = 4;

/// When [`disable`] removes the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisableTime {
    /// When the service has stopped, or at once if it does not run.
    Stopped,
    /// Now: a running service is restarted.
    Now,
    /// Now if the service has stopped, else not at all.
    AtStop,
    /// Not at all: wait until the service has stopped.
    Await,
}

/// Restores the service's own streams.
pub(crate) fn disable(manager: Manager, service: &ServiceName, when: DisableTime) -> Result<()> {
    let what = || format!("cannot disable {service}");
    check_rights(manager).with_context(what)?;
    try_to_disable(manager, service, when).with_context(what)
}

/// Disables all enabled services. One that fails does not keep the others from it.
pub(crate) fn disable_all(manager: Manager, when: DisableTime) -> Result<()> {
    let place = UnitDirectory::new(manager.units()?);
    let owners = place.owners()?;
    let mut failed = 0;
    for (_, service) in &owners {
        if let Err(e) = disable(manager, service, when) {
            log::error!("{e:#}");
            failed += 1;
        }
    }
    let swept = place.sweep()?;
    if !swept.is_empty() {
        if is_booted() {
            manager.systemctl(&["daemon-reload"])?;
        }
        print(&summary(&swept))?;
    } else if owners.is_empty() {
        print("no service is enabled\n")?;
    }
    if failed > 0 {
        bail!("cannot disable {failed} of {} services", owners.len());
    }
    Ok(())
}

fn try_to_disable(manager: Manager, service: &ServiceName, when: DisableTime) -> Result<()> {
    let place = UnitDirectory::new(manager.units()?);
    let find = || Ok::<_, anyhow::Error>(place.owners()?.into_iter().find(|(_, of)| of == service));
    let Some((app, _)) = find()? else {
        if matches!(when, DisableTime::AtStop | DisableTime::Await) {
            return Ok(());
        }
        let is_app =
            |(name, _): &(AppName, ServiceName)| format!("{name}.service") == service.as_str();
        let hint =
            place.owners()?.into_iter().find(is_app).map_or_else(String::new, |(app, of)| {
                format!("; app {app} is {of}: iottymux disable{} {of}", manager.option())
            });
        bail!("it is not enabled (it has no files in {}){hint}", place.path().display());
    };
    let owner = (&app, service);
    if !is_booted() {
        return print(&summary(&place.uninstall(&[owner])?));
    }
    let later = DeferredDisable::new(manager, owner)?;
    match when {
        DisableTime::Await => return later.wait(&place),
        DisableTime::AtStop => return later.finish(&place),
        DisableTime::Stopped | DisableTime::Now => {}
    }
    let going = place.going(&[owner])?;
    let mut tries = 1..DISABLE_TRIES;
    let (shown, restarted) = loop {
        let shown = match when {
            // A stop or restart of another program goes on undisturbed.
            DisableTime::Now => manager.show_settled(service.as_str())?,
            _ => manager.show(service.as_str())?,
        };
        if when == DisableTime::Now && shown.is_masked() && shown.runs() {
            bail!(
                "it is masked, and could not be started again; without --now it is disabled when it stops"
            );
        }
        let begun = later.begin(when, shown.stops());
        let shown = manager.show(service.as_str())?;
        if begun.is_ok() && when == DisableTime::Stopped && shown.runs() {
            let how = if shown.lingers() { "has not stopped yet" } else { "is running" };
            return print(&format!(
                "{service} {how}: it is disabled when it stops (a restart does not count)\n\
                 to restart and disable it now: iottymux disable{} --now {service}\n",
                manager.option()
            ));
        }
        // A restart is one job of systemd, which goes on even if this process ends.
        let restarted = (begun.is_ok() && shown.runs() && !shown.stops())
            .then(|| manager.restart_soon(service.as_str(), &shown));
        // The unit has done its work in the middle of the restart, or does it now.
        manager.stop(&later.unit)?;
        if find()?.is_none() {
            break (shown, restarted);
        }
        // Somebody started the service just before, or the unit stopped before it had begun. A
        // second restart of ours would not help.
        if restarted.is_some() || tries.next().is_none() {
            later.cancel()?;
            begun.and(restarted.unwrap_or(Ok(())))?;
            bail!("its files are still there (journalctl -u {})", later.unit);
        }
    };
    // The unit may have done its work between two tries, and then have begun again.
    if later.is_there() {
        later.cancel()?;
        manager.systemctl(&["daemon-reload"])?;
    }
    print(&summary(&going.into_iter().map(|path| (Done::Removed, path)).collect()))?;
    let fate = restarted.map(|restarted| manager.fate(service.as_str(), &shown, restarted));
    match fate.transpose()? {
        // The console is gone, as was wanted. Many a service ends without one.
        Some(fate @ Fate::Failed(_)) => {
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
