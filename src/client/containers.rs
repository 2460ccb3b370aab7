//! The app of a container that somebody names.

use std::fmt;

use crate::host::enable;
use crate::sys::documents::container::Container;
use crate::sys::documents::last::Last;
use crate::sys::state::{AppDir, StateDir};
use crate::types::name::AppName;

/// Why it is not clear which app is meant, in one line for a person: a usage error.
#[derive(Debug)]
pub(crate) struct AmbiguousApp(pub(crate) String);

impl fmt::Display for AmbiguousApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AmbiguousApp {}

/// The app of this name, or the one whose container has this id, or is called so by its engine: a
/// running one before those that have ended. `typed` is the name as it was typed. With a slash it is
/// first of all that of a pod. Without one, names that nobody can choose for another one's container
/// come first: those of apps, ids, and services.
pub(crate) fn app(state: &StateDir, name: &AppName, typed: &str) -> Result<AppName, AmbiguousApp> {
    let dir = state.app(name);
    let (is_app, is_path) = (dir.dir().is_dir(), typed.contains('/'));
    if is_app && !is_path {
        return Ok(name.clone());
    }
    let apps = state.apps().unwrap_or_default().into_iter();
    let read = |app: AppName| {
        let dir = state.app(&app);
        Container::read(&dir).map(|container| (dir, container))
    };
    let containers: Vec<(AppDir, Container)> = apps.filter_map(read).collect();
    let with_id = || {
        let found = || containers.iter().filter(|(_, it)| it.has_id(name)).map(|(dir, _)| dir);
        found().find(|dir| dir.is_locked()).or_else(|| found().next())
    };
    let other = if is_app { Some(&dir) } else { with_id() }.map(AppDir::name);
    if let Some(app) = other.filter(|_| !is_path) {
        return Ok(app.clone());
    }
    // One that was not started yet has no directory.
    let is_free = is_path || enable::service_of(&dir).is_none();
    let called = containers.iter().filter_map(|(dir, container)| {
        (is_free && container.is_called(typed)).then(|| Some((dir, container.name()?)))?
    });
    if let Some((app, called)) = one(called.collect(), typed)? {
        if let Some(other) = other.filter(|other| *other != app) {
            log::warn!(
                "{typed} is taken for {called} of Kubernetes; the other {typed} is app {other}"
            );
        }
        return Ok(app.clone());
    }
    Ok(other.unwrap_or(name).clone())
}

/// The one that is meant by what was typed: the only one that runs, else the last one that has ended,
/// unless they are of several names.
fn one<'a>(
    mut found: Vec<(&'a AppDir, String)>,
    typed: &str,
) -> Result<Option<(&'a AppName, String)>, AmbiguousApp> {
    let runs = found.iter().any(|(dir, _)| dir.is_locked());
    found.retain(|(dir, _)| dir.is_locked() || !runs);
    let mut names: Vec<&str> = found.iter().map(|(_, name)| &**name).collect();
    names.sort_unstable();
    names.dedup();
    if let [_, _, ..] = &names[..] {
        return Err(AmbiguousApp(format!("{typed} may be one of {}", names.join(", "))));
    }
    if runs && found.len() > 1 {
        let apps: Vec<&str> = found.iter().map(|(dir, _)| dir.name().as_str()).collect();
        return Err(AmbiguousApp(format!("{typed} may be one of the apps {}", apps.join(", "))));
    }
    let ended = |dir: &AppDir| Last::read(dir).ok().flatten().map_or(0, |last| last.ended_ms);
    let last = found.into_iter().max_by_key(|(dir, _)| ended(dir));
    Ok(last.map(|(dir, name)| (dir.name(), name)))
}
