//! The names of the containers that apps are, and the app of a container that somebody names.
//!
//! Kubernetes' names are in the document of the app, and Docker's with its daemon.

use std::cell::OnceCell;
use std::fmt;

use super::docker;
use crate::host::enable;
use crate::sys::documents::container::Container;
use crate::sys::documents::last::Last;
use crate::sys::state::{AppDir, StateDir};
use crate::types::kubernetes::KubernetesName;
use crate::types::name::AppName;

/// The names of these apps, not escaped. Docker is asked only if one of them is its container.
pub(crate) fn names(apps: &mut dyn Iterator<Item = &AppDir>) -> Vec<Option<String>> {
    let of_docker = OnceCell::new();
    let name = |app: &AppDir| {
        let container = Container::read(app)?;
        if let Some(name) = container.kubernetes {
            return Some(name.to_string());
        }
        let container = Some(container).filter(Container::is_of_docker)?;
        let all: &Vec<docker::Listed> = of_docker.get_or_init(docker::listed);
        Some(all.iter().find(|listed| listed.id == container.id)?.name.clone())
    };
    apps.map(name).collect()
}

/// Why it is not clear which app is meant, in one line for a person: a usage error.
#[derive(Debug)]
pub(crate) struct AmbiguousApp(pub(crate) String);

impl fmt::Display for AmbiguousApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AmbiguousApp {}

/// The app of this name, or the one whose container has this id, or is called so by Kubernetes, or by
/// Docker: a running one before those that have ended. `typed` is the name as it was typed. With a
/// slash it is first of all that of a pod. Without one, names that nobody can choose for another
/// one's container come first: those of apps, ids, and services.
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
    let with_id = |id: &str| {
        let found = || containers.iter().filter(|(_, it)| it.has_id(id)).map(|(dir, _)| dir.name());
        found().find(|app| state.app(app).is_locked()).or_else(|| found().next()).cloned()
    };
    let other = if is_app { Some(name.clone()) } else { with_id(name.as_str()) };
    if let Some(app) = other.as_ref().filter(|_| !is_path) {
        return Ok(app.clone());
    }
    // One that was not started yet has no directory.
    let is_free = is_path || enable::service_of(&dir).is_none();
    let pods = containers.iter().filter_map(|(dir, container)| {
        let name = container.kubernetes.as_ref()?;
        (is_free && name.is_called(typed)).then_some((dir, name))
    });
    if let Some((app, pod)) = one(pods.collect(), typed)? {
        if let Some(other) = other.filter(|other| other != app) {
            log::warn!(
                "{typed} is taken for {pod} of Kubernetes; the other {typed} is app {other}"
            );
        }
        return Ok(app.clone());
    }
    let is_dockers = !is_path && is_free && containers.iter().any(|(_, it)| it.is_of_docker());
    let of_docker = is_dockers.then(|| docker::called(name)).flatten();
    let of_docker = of_docker.and_then(|listed| with_id(&listed.id));
    Ok(other.or(of_docker).unwrap_or_else(|| name.clone()))
}

/// The one that is meant by what was typed: the only one that runs, else the last one that has ended,
/// unless they are of several names.
fn one<'a>(
    mut found: Vec<(&'a AppDir, &'a KubernetesName)>,
    typed: &str,
) -> Result<Option<(&'a AppName, &'a KubernetesName)>, AmbiguousApp> {
    let runs = found.iter().any(|(dir, _)| dir.is_locked());
    found.retain(|(dir, _)| dir.is_locked() || !runs);
    let mut names: Vec<String> = found.iter().map(|(_, name)| name.to_string()).collect();
    names.sort();
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
