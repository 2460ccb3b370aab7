//! The services that are enabled, and those that can be named to `enable`. Errors count as none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::unistd::Uid;

use super::guard;
use crate::core::wire::AppStatus;
use crate::host::units::unit_dir::UnitDirectory;
use crate::host::units::write::elsewhere;
use crate::host::units::{UnitKind, is_mux, words_in};
use crate::sys::state::AppDir;
use crate::sys::systemd::app_status;
use crate::sys::systemd::manager::Manager;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// The apps that have units here, with their services: those of the system for root, those of the user for others. Apps
/// that cannot be read are left out.
pub(crate) fn enabled() -> BTreeMap<AppName, String> {
    enabled_in(Manager { user: !Uid::effective().is_root() })
}

/// The same, with those of the system for all users: their muxes may let a user in.
pub(crate) fn enabled_for_all() -> BTreeMap<AppName, String> {
    let mut all = enabled_in(Manager { user: false });
    all.extend(enabled());
    all
}

fn enabled_in(manager: Manager) -> BTreeMap<AppName, String> {
    let places = UnitDirectory::of_enable(manager).unwrap_or_default().into_iter();
    places.flat_map(|place| place.names().unwrap_or_default()).collect()
}

/// A service that is enabled.
#[derive(Debug)]
pub(crate) struct EnabledService {
    pub(crate) app: AppName,
    pub(crate) service: ServiceName,
    /// The words of its `enable`.
    pub(crate) words: Vec<String>,
}

/// The services that are enabled.
pub(crate) fn enabled_by(user: bool) -> Result<Vec<EnabledService>> {
    let manager = Manager { user };
    let mut all = Vec::new();
    for place in UnitDirectory::of_enable(manager)? {
        for (app, service) in place.owners()? {
            let drop_in = place.drop_in((&app, &service))?.unwrap_or_default();
            all.push(EnabledService { words: words_in(&drop_in), app, service });
        }
    }
    Ok(all)
}

/// The users on this list of a service of the system (`IOTTYMUX_ALLOW_UID`), as `enable` was given
/// them.
pub(crate) fn admitted(service: &str, list: &str) -> Option<String> {
    let enabled = of_service(false, &service.parse().ok()?)?;
    let list = |word: &String| {
        let word = word.strip_prefix("--env=").unwrap_or(word);
        word.strip_prefix(list)?.strip_prefix('=').map(str::to_owned)
    };
    let lists: Vec<String> = enabled.words.iter().filter_map(list).collect();
    (!lists.is_empty()).then(|| lists.join(","))
}

/// The service of this name, if it is enabled.
pub(crate) fn of_service(user: bool, service: &ServiceName) -> Option<EnabledService> {
    let places = UnitDirectory::of_enable(Manager { user }).ok()?;
    let (app, drop_in) = places.iter().find_map(|place| place.app_of(service).ok().flatten())?;
    Some(EnabledService { words: words_in(&drop_in), app, service: service.clone() })
}

/// The manager of the service that is this app.
pub(crate) fn manager_of(app: &AppDir) -> Manager {
    // root has no way to ask the manager of another user.
    Manager { user: !Uid::effective().is_root() && app.user().is_some() }
}

/// The service that is this app, if it is enabled.
pub(crate) fn service_of(app: &AppDir) -> Option<String> {
    app.is_default().then(|| enabled_in(manager_of(app)).remove(app.name())).flatten()
}

/// How the service that is this app has ended, as systemd knows it. A mux is not told if the hook of
/// the service was killed, too.
pub(crate) fn status_of(app: &AppDir) -> Option<AppStatus> {
    app_status::of_service(manager_of(app), &service_of(app)?)
}

/// The service that is this app, if it still runs with the streams that it had before it was
/// enabled.
pub(crate) fn with_earlier_streams(app: &AppDir) -> Option<String> {
    let run = app.earlier_run()?;
    service_of(app).filter(|service| manager_of(app).run_of(service) == Some(run))
}

/// What keeps a mux of the service that is this app from its start: it refused its options the last time,
/// or ends before it is ready, again and again.
pub(crate) fn mux_trouble(app: &AppDir) -> Option<String> {
    let manager = manager_of(app);
    let units = [UnitKind::Streams, UnitKind::Terminal].map(|kind| kind.unit(app.name()));
    units.into_iter().find_map(|unit| {
        let names = ["ExecMainStatus", "SubState", "Result"];
        let shown = manager.properties(&unit, &names).ok()?;
        let waits = shown.text("SubState").starts_with("auto-restart");
        let what = if shown.number("ExecMainStatus") == Some(Exit::Config.code().into()) {
            format!("at the last start {unit} refused its options")
        } else if waits && shown.text("Result") == "exit-code" {
            format!("{unit} fails at each start")
        } else {
            return None;
        };
        Some(format!("{what} (journalctl{} -u {unit} -t iottymux)", manager.option()))
    })
}

/// Starts the muxes of the service that is this app, though it is being stopped.
pub(crate) fn start_muxes(app: &AppDir) -> Result<()> {
    let Some(service) = service_of(app) else { return Ok(()) };
    let manager = manager_of(app);
    let mut words = vec!["start", "--job-mode=ignore-dependencies", "--"];
    let shown = manager.show(&service)?;
    words.extend(shown.wants.iter().map(String::as_str).filter(|unit| is_mux(unit)));
    manager.systemctl(&words).map(drop)
}

/// What a person is told of such a service.
pub(crate) fn waits_for_restart(app: &AppDir) -> Option<String> {
    let service = with_earlier_streams(app)?;
    let user = manager_of(app).option();
    Some(format!(
        "{service} runs, but can be attached only after: systemctl{user} restart {service}"
    ))
}

/// The service of this name on this machine, by its main name: one of the system, or of this user.
pub(crate) fn existing(service: &ServiceName) -> Option<(Manager, String)> {
    let managers = [false, true].map(|user| Manager { user }).into_iter();
    let mut shown =
        managers.filter_map(|manager| Some((manager, manager.show(service.as_str()).ok()?)));
    shown.find(|(_, shown)| shown.is_loaded()).map(|(manager, shown)| (manager, shown.id))
}

/// The services that `enable` accepts: those that have a file, and instances that systemd knows.
/// systemd is not asked for the files, since it takes longer to list them than a person waits.
pub(crate) fn services(manager: Manager) -> BTreeSet<ServiceName> {
    let own = UnitDirectory::of_enable(manager).unwrap_or_default().into_iter();
    let dirs = own
        .map(|place| place.path().to_owned())
        .chain(elsewhere(manager.user).iter().map(PathBuf::from));
    let mut names: Vec<String> = dirs.flat_map(|dir| names_in(&dir)).collect();
    let query = ["list-units", "--type=service", "--all", "--plain", "--no-legend"];
    let units = manager.systemctl(&query).unwrap_or_default();
    // Others name the units that are not there, and those that are masked.
    let loaded = units.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (words.next()? == "loaded").then(|| name.to_owned())
    });
    names.extend(loaded);
    let can_be = |name: &String| {
        name.ends_with(".service") && !is_mux(name) && guard::protected([name.as_str()]).is_none()
    };
    names.iter().filter(|name| can_be(name)).filter_map(|name| name.parse().ok()).collect()
}

/// The instances of a template, whose name ends with `@`, that systemd knows: they run, have run, or
/// are enabled for the next boot.
pub(crate) fn instances(manager: Manager, template: &str) -> BTreeSet<ServiceName> {
    let pattern = format!("{template}*.service");
    let names = [&["list-units", "--all"][..], &["list-unit-files"]].into_iter().map(|query| {
        let options = ["--plain", "--no-legend", "--full", "--", &pattern];
        manager.systemctl(&[query, &options].concat()).unwrap_or_default()
    });
    let names: Vec<String> = names.collect();
    let names = names.iter().flat_map(|text| text.lines());
    names.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    // A link to /dev/null masks a unit.
    let is_masked = |path: &Path| fs::read_link(path).is_ok_and(|to| to == Path::new("/dev/null"));
    let there = entries.filter(|entry| !is_masked(&entry.path()));
    there.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
