//! The services that can be named to `enable` and `disable`. Errors count as none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::guard;
use crate::host::units::is_mux;
use crate::host::units::unit_dir::UnitDirectory;
use crate::host::units::write::elsewhere;
use crate::sys::systemd::manager::Manager;
use crate::types::service::ServiceName;

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
