//! Shows, writes and removes unit files, without asking systemd.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::render::{files, templates};
use super::unit_dir::{Changes, UnitDirectory};
use super::unit_text::UnitOwner;
use super::{AppUnits, HOOKS, MuxUnit, Setup, UnitFile, has_sockets};
use crate::sys::files::read_plain;
use crate::sys::print::print;
use crate::sys::state::AppDir;
use crate::sys::systemd::manager::Manager;
use crate::types::limits;

/// The other directories of units (systemd.unit(5)).
const SYSTEM: [&str; 3] =
    ["/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const USER: [&str; 4] = [
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
];

/// The directories of units besides those of `enable`, of the system or of its users.
pub(crate) fn elsewhere(user: bool) -> &'static [&'static str] {
    if user { &USER } else { &SYSTEM }
}

/// Prints the units of apps.
pub(crate) fn show(apps: &[AppUnits], setup: &Setup) -> Result<()> {
    let place = UnitDirectory::new(setup.seen_as.clone().into());
    let mut shown = BTreeSet::new();
    for app in apps {
        for file in all_files(app, setup, &place)? {
            if shown.insert(file.path.clone()) {
                print(&format!("# {}\n{}\n", place.path().join(&file.path).display(), file.text))?;
            }
        }
        warn_of_hooks(app, &hooks(app, setup, &place)?);
    }
    Ok(())
}

/// Writes the units of apps to a directory.
pub(crate) fn write(apps: &[AppUnits], setup: &Setup, dir: &Path) -> Result<()> {
    let place = UnitDirectory::new(dir.to_owned());
    let all = place.all()?;
    for app in apps {
        let what = || format!("cannot write the units of app {}", app.name);
        let files = all_files(app, setup, &place).with_context(what)?;
        let plan = place.plan(&all, app.owner(), files).with_context(what)?;
        print(&summary(&plan.carry_out().with_context(what)?))?;
        warn_of_hooks(app, &hooks(app, setup, &place)?);
    }
    Ok(())
}

/// Removes the units of apps from a directory and, unless the directory belongs to another root,
/// the files that their muxes left. Missing files are not an error.
pub(crate) fn remove(apps: &[AppUnits], dir: &Path, is_here: bool) -> Result<()> {
    let place = UnitDirectory::new(dir.to_owned());
    let owners: Vec<UnitOwner> = apps.iter().map(AppUnits::owner).collect();
    let mut state = Vec::new();
    for owner in &owners {
        state.extend(place.state(*owner)?);
    }
    print(&summary(&place.uninstall(&owners)?))?;
    if is_here { clear_state(&state) } else { Ok(()) }
}

/// The files of an app, and the templates that are missing.
pub(crate) fn all_files(
    app: &AppUnits,
    setup: &Setup,
    place: &UnitDirectory,
) -> Result<Vec<UnitFile>> {
    let mut all = Vec::new();
    let muxes = app.muxes()?;
    for file in templates(&muxes, setup.user) {
        match there(&file, setup, place) {
            Some(path) => check_template(&path)?,
            None => all.push(file),
        }
    }
    all.extend(files(app, setup)?);
    Ok(all)
}

/// The text of the template of a mux.
pub(crate) fn template_of(mux: &MuxUnit, setup: &Setup, place: &UnitDirectory) -> Result<String> {
    let ours = templates(std::slice::from_ref(mux), setup.user);
    let text = |file: UnitFile| match there(&file, setup, place) {
        Some(path) => read_template(&path),
        None => Ok(file.text),
    };
    ours.into_iter().map(text).collect()
}

/// A foreign template that takes the place of ours.
fn there(file: &UnitFile, setup: &Setup, place: &UnitDirectory) -> Option<PathBuf> {
    if place.has(&file.path) {
        return place.has_foreign(&file.path).then(|| place.path().join(&file.path));
    }
    // Units for another root use only templates in that root.
    if Path::new(&setup.seen_as) != place.path() {
        return None;
    }
    // Ours for good and ours until the next boot do not rely on each other.
    let of_enable = UnitDirectory::of_enable(Manager { user: setup.user }).unwrap_or_default();
    let of_enable = of_enable.into_iter().filter(|place| place.has_foreign(&file.path));
    let of_enable = of_enable.map(|place| place.path().join(&file.path));
    let elsewhere = elsewhere(setup.user).iter().map(|dir| Path::new(dir).join(&file.path));
    of_enable.chain(elsewhere).find(|path| path.exists())
}

fn read_template(path: &Path) -> Result<String> {
    let what = || format!("cannot read {}", path.display());
    let text = read_plain(&path.canonicalize().with_context(what)?, limits::UNIT_FILE)
        .with_context(what)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Refuses a template with which the app would never start: rkt's templates are bound to the app
/// and start after it.
fn check_template(path: &Path) -> Result<()> {
    let text = read_template(path)?;
    let is_bound = |line: &&str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        ["BindsTo", "Requires", "Requisite", "After"].contains(&key.trim()) && value.contains("%i.")
    };
    let notifies = |line: &str| line.starts_with("Type=notify");
    if text.lines().any(notifies) && !text.lines().any(|line| is_bound(&line)) {
        return Ok(());
    }
    bail!(
        "{} is not a template of iottymux (rkt has one of this name), and the app would not start \
         with it; nothing was changed. In a pod of rkt, set the streams with rkt \
         (rkt run --stdout=stream IMAGE); elsewhere, rename or remove that file",
        path.display()
    )
}

/// Warns of hooks of a service that do not work in its layout.
fn warn_of_hooks(app: &AppUnits, hooks: &[&str]) {
    if !hooks.is_empty() {
        log::warn!(
            "{} has {}: systemd does not run hooks with the streams of socket units \
             (--layout direct has no such limit)",
            app.service,
            hooks.join("=, ") + "="
        );
    }
}

/// The hooks in the files of a service in this directory.
fn hooks(app: &AppUnits, setup: &Setup, place: &UnitDirectory) -> Result<Vec<&'static str>> {
    if !has_sockets(&app.muxes()?, setup) {
        return Ok(Vec::new());
    }
    let text = place.text_of(&app.service);
    // A line without a value resets them.
    let set = text.lines().filter_map(|line| line.split_once('='));
    let set: Vec<_> = set.filter(|(_, value)| !value.trim().is_empty()).collect();
    let says = |hook: &&str| set.iter().any(|(key, _)| key.trim() == *hook);
    Ok(HOOKS.into_iter().filter(says).collect())
}

/// The lines that report the changes.
pub(crate) fn summary(changes: &Changes) -> String {
    let line = |(done, path): &(&str, PathBuf)| format!("{done:8}{}", path.display());
    changes.iter().map(line).chain([String::new()]).collect::<Vec<_>>().join("\n")
}

/// Removes the files that the muxes of an app left.
pub(crate) fn clear_state(state: &[AppDir]) -> Result<()> {
    for dir in state {
        if !dir.clear()? {
            log::warn!(
                "the mux of app {} still runs, so {} is not removed",
                dir.name(),
                dir.dir().display()
            );
        }
    }
    Ok(())
}
