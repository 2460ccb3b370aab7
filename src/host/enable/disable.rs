//! `disable`: removes the files of a service, so that it has its own streams again.

use anyhow::{Context, Result, bail};

use super::{EnabledService, account, block_signals, check_rights, enabled_by, is_earlier};
use crate::host::units::text::UnitOwner;
use crate::host::units::unit_dir::{Changes, UnitDirectory};
use crate::host::units::write::{clear_state, summary};
use crate::sys::print::print;
use crate::sys::systemd::manager::{Fate, Manager, UnitStatus, is_booted};
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// Restores the service's own streams. A service that runs is restarted with `now`, and refused
/// otherwise.
pub(crate) fn disable(manager: Manager, service: &ServiceName, now: bool) -> Result<()> {
    let what = || format!("cannot disable {service}");
    check_rights(manager).with_context(what)?;
    try_to_disable(manager, service, now).with_context(what)
}

/// Disables all enabled services. One that fails does not keep the others from it.
pub(crate) fn disable_all(manager: Manager, now: bool) -> Result<()> {
    let owners = enabled_by(manager.user)?;
    let mut failed = 0;
    for EnabledService { service, .. } in &owners {
        if let Err(e) = disable(manager, service, now) {
            log::error!("{e:#}");
            failed += 1;
        }
    }
    let mut swept = Changes::new();
    for place in UnitDirectory::of_enable(manager)? {
        swept.extend(place.sweep()?);
    }
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

fn try_to_disable(manager: Manager, service: &ServiceName, now: bool) -> Result<()> {
    let (place, app) = files_of(manager, service)?;
    let owner = (&app, service);
    if !is_booted() {
        return print(&summary(&place.uninstall(&[owner])?));
    }
    // A file that may not go is found before anything changes.
    place.going(&[owner])?;
    let name = service.as_str();
    // A stop or restart of another program goes on undisturbed.
    let shown = if now { manager.show_settled(name) } else { manager.show(name) }?;
    let (state, muxes) = (place.state(owner)?, place.muxes(owner)?);
    // One that was not restarted since it was enabled still has its own streams.
    let has_own = || is_earlier(manager, name, &state);
    if !has_own() {
        refuse_running(&shown, now)?;
    }
    let units: Vec<&str> =
        [name].into_iter().chain(muxes.iter().map(|(unit, _)| &**unit)).collect();
    let reload = || manager.reload(&units, false);
    let fate = release(manager, (&place, &reload, &has_own), owner, now)?;
    block_signals()?;
    let removed = place.uninstall(&[owner])?;
    reload()?;
    for (unit, name) in &muxes {
        manager.stop(unit)?;
        // systemd would list a failed mux for ever.
        manager.forget(unit)?;
        account::clear_logs(manager, name);
    }
    clear_state(&state)?;
    print(&summary(&removed))?;
    match fate {
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

/// The directory that has the files of a service, and its app.
fn files_of(manager: Manager, service: &ServiceName) -> Result<(UnitDirectory, AppName)> {
    let mut hint = String::new();
    let places = UnitDirectory::of_enable(manager)?;
    for place in &places {
        if let Some((app, _)) = place.app_of(service)? {
            return Ok((place.clone(), app));
        }
    }
    // A `disable` that was killed may have left files of a mux.
    for place in &places {
        for (app, of) in place.owners()? {
            if of == *service {
                return Ok((place.clone(), app));
            }
            if format!("{app}.service") == service.as_str() {
                hint = format!("; app {app} is {of}: iottymux disable{} {of}", manager.option());
            }
        }
    }
    let paths = places.iter().map(|place| place.path().display().to_string());
    bail!("it is not enabled (it has no files in {}){hint}", paths.collect::<Vec<_>>().join(" or "))
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

/// Makes systemd start the service with its own streams, and restarts it if it runs; returns its
/// state then. The drop-in still wants the muxes, since systemd would stop them under the app
/// otherwise. Whoever is killed behind this can begin again.
fn release(
    manager: Manager,
    (place, reload, has_own): (&UnitDirectory, &dyn Fn() -> Result<()>, &dyn Fn() -> bool),
    owner: UnitOwner,
    now: bool,
) -> Result<Option<Fate>> {
    let service = owner.1.as_str();
    let change = place.without_streams(owner)?;
    change.carry_out()?;
    let released = || {
        reload()?;
        if has_own() {
            return Ok(None);
        }
        // Somebody may have started it meanwhile.
        let shown = manager.show(service)?;
        refuse_running(&shown, now)?;
        if !shown.runs() {
            return Ok(None);
        }
        let restarted = manager.restart_soon(service, &shown);
        manager.fate(service, &shown, restarted).map(Some)
    };
    released().inspect_err(|_| {
        let back = change.take_back().and_then(|()| reload());
        if let Err(e) = back {
            log::warn!("cannot restore the streams of {service}: {e:#}");
        }
    })
}
