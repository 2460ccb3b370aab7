//! The directory of unit files: it writes the files of an app and removes them.
//!
//! Invariant: if a file has no checksum header of ours, or was changed since, neither that file nor
//! any other is overwritten or removed. Each file is replaced as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::render::{self, socket_name};
use super::unit_text::{self, ChecksumHeader, UnitOwner, with_checksum};
use super::{DROP_IN, ENV, UnitFile, UnitKind, drop_ins, names_of};
use crate::sys::files::{read_in, read_plain, remove_in, replace_safely, temporary};
use crate::sys::state::{AppDir, StateDir, session};
use crate::sys::systemd::manager::Manager;
use crate::sys::systemd::own_process::variables;
use crate::sys::walk::{Links, Walk};
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::types::stream::Stream;

/// Mode of unit files: everybody may read them, `systemctl cat` does.
const READABLE: u32 = 0o644;

/// What happened, file by file, in the words of the summary.
pub(crate) type Changes = Vec<(&'static str, PathBuf)>;

/// A directory of units.
#[derive(Clone, Debug)]
pub(crate) struct UnitDirectory(PathBuf);

/// The changes that give an app its files.
#[derive(Debug)]
pub(crate) struct UnitChanges {
    place: UnitDirectory,
    /// The files in the order of writing; `None` if a file stays as it is.
    steps: Vec<(PathBuf, Option<Change>)>,
    /// The files to remove, with their texts.
    stale: Vec<(PathBuf, String)>,
}

/// The new text of a file, and the old one if the file existed.
#[derive(Debug)]
struct Change {
    text: String,
    old: Option<String>,
}

impl UnitChanges {
    /// Makes the changes; a failure takes them back.
    pub(crate) fn carry_out(&self) -> Result<Changes> {
        let mut changes = Changes::new();
        let done = self.write(&mut changes);
        if done.is_err() {
            // The first failure is reported.
            let _ = self.take_back();
        }
        done.map(|()| changes)
    }

    fn write(&self, changes: &mut Changes) -> Result<()> {
        for (path, change) in &self.steps {
            if let Some(change) = change {
                self.place.put(path, &change.text)?;
            }
            changes.push((if change.is_some() { "wrote" } else { "kept" }, path.clone()));
        }
        for (path, _) in &self.stale {
            changes.push(("removed", self.place.take_away(path)?));
        }
        Ok(())
    }

    /// Whether all files are there already, and no others.
    pub(crate) fn is_empty(&self) -> bool {
        self.stale.is_empty() && self.steps.iter().all(|(_, change)| change.is_none())
    }

    /// Whether the file of a template changes, which other services have, too.
    pub(crate) fn changes_template(&self) -> bool {
        let changed = self.steps.iter().filter(|(_, change)| change.is_some());
        let mut paths =
            changed.map(|(path, _)| path).chain(self.stale.iter().map(|(path, _)| path));
        paths.any(|path| path.extension() == Some(OsStr::new("service")))
    }

    /// Restores all files.
    pub(crate) fn take_back(&self) -> Result<()> {
        let steps = self.steps.iter().rev().map(|(path, change)| match change {
            Some(Change { old: Some(old), .. }) => self.place.put(path, old),
            Some(Change { old: None, .. }) => self.place.take_away(path).map(drop),
            None => Ok(()),
        });
        let stale = self.stale.iter().map(|(path, old)| self.place.put(path, old));
        stale.chain(steps).fold(Ok(()), Result::and)
    }
}

/// An existing file that may be ours.
#[derive(Debug)]
pub(crate) struct FoundUnit {
    path: PathBuf,
    header: Option<ChecksumHeader>,
}

impl FoundUnit {
    pub(crate) fn owner(&self) -> Option<UnitOwner<'_>> {
        self.header.as_ref()?.owner.as_ref().map(|(app, service)| (app, service))
    }

    /// Refuses a file that is not as we wrote it.
    fn may_go(&self) -> Result<()> {
        let path = self.path.display();
        match &self.header {
            None => bail!("{path} was not written by iottymux; nothing was changed"),
            Some(ChecksumHeader { is_whole: false, .. }) => bail!(
                "{path} was changed after iottymux wrote it, so nothing was done; move your lines to \
                 another file beside it; then stop the service, delete this file, and try again"
            ),
            Some(_) => Ok(()),
        }
    }
}

impl UnitDirectory {
    /// The directory at this path; it need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Those of `enable`: the one for good, and the one until the next boot.
    pub(crate) fn of_enable(manager: Manager) -> Result<Vec<Self>> {
        let paths = [Some(manager.units()?), manager.runtime_units()];
        Ok(paths.into_iter().flatten().map(Self::new).collect())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether nobody can write it, as on systems whose units are part of an image.
    pub(crate) fn is_read_only(&self) -> bool {
        let dir = self.0.ancestors().find(|dir| dir.exists());
        dir.is_some_and(|dir| access(dir, Access::WRITE_OK) == Err(Errno::ROFS))
    }

    /// The changes that make `files` the files of an app. `all` comes from [`UnitDirectory::near`], or
    /// for many apps from [`UnitDirectory::all`].
    pub(crate) fn plan(
        &self,
        all: &[FoundUnit],
        owner: UnitOwner,
        files: Vec<UnitFile>,
    ) -> Result<UnitChanges> {
        let (app, service) = owner;
        let names: Vec<AppName> =
            files.iter().filter_map(|file| mux(&file.path)).map(|(_, name)| name).collect();
        let mut stale = Vec::new();
        for found in all {
            let its = mux(&found.path).map(|(_, name)| name);
            match found.owner() {
                Some(of) if of == owner => stale.push(found),
                Some((a, s)) if a == app => {
                    bail!("the name {app} is that of {s}; give {service} another name (--app)");
                }
                Some((a, s)) if s == service => {
                    bail!("{service} is app {a} already; disable it first");
                }
                Some((_, s)) if its.as_ref().is_some_and(|name| names.contains(name)) => {
                    let name = its.map(|name| name.to_string()).unwrap_or_default();
                    bail!("the name {name} is that of {s}; give {service} another name (--app)");
                }
                _ => {}
            }
        }
        stale.retain(|found| !files.iter().any(|file| self.0.join(&file.path) == found.path));
        for found in &stale {
            found.may_go()?;
        }
        let mut steps = Vec::new();
        for file in files {
            let path = self.0.join(&file.path);
            let dir = path.parent().unwrap_or(&self.0);
            if dir.symlink_metadata().is_ok() && !dir.is_dir() {
                bail!("{} is not a directory; nothing was changed", dir.display());
            }
            let change = match self.look(&path)? {
                None => Some(Change { text: file.text, old: None }),
                Some((_, text)) if text == file.text => None,
                Some((found, text)) => {
                    found.may_go()?;
                    if let Some((a, s)) = found.owner().filter(|of| *of != owner) {
                        bail!("{} belongs to app {a} ({s})", path.display());
                    }
                    Some(Change { text: file.text, old: Some(text) })
                }
            };
            steps.push((path, change));
        }
        let mut gone = Vec::new();
        for found in stale {
            gone.extend(self.look(&found.path)?.map(|(found, text)| (found.path, text)));
        }
        Ok(UnitChanges { place: self.clone(), steps, stale: gone })
    }

    /// The change of our drop-in that gives a service its own streams again and keeps its muxes.
    pub(crate) fn without_streams(&self, owner: UnitOwner) -> Result<UnitChanges> {
        let change = self.drop_in(owner)?.map(|old| {
            let path = self.0.join(drop_ins(owner.1.as_str())).join(DROP_IN);
            let text = with_checksum(Some(owner), &render::without_streams(&old));
            (path, Some(Change { text, old: Some(old) }))
        });
        Ok(UnitChanges {
            place: self.clone(),
            steps: change.into_iter().collect(),
            stale: Vec::new(),
        })
    }

    /// The lines of our drop-in of a service that set its streams.
    pub(crate) fn ends(&self, owner: UnitOwner) -> Result<BTreeSet<String>> {
        Ok(self.drop_in(owner)?.map(|text| ends(&text)).unwrap_or_default())
    }

    /// The app that a service is, and the text of our drop-in of it.
    pub(crate) fn app_of(&self, service: &ServiceName) -> Result<Option<(AppName, String)>> {
        let drop_in = self.look(&self.0.join(drop_ins(service.as_str())).join(DROP_IN))?;
        let app = |found: &FoundUnit| {
            let (app, of) = found.owner()?;
            (of == service).then(|| app.clone())
        };
        Ok(drop_in.and_then(|(found, text)| Some((app(&found)?, text))))
    }

    /// Our drop-in of a service, if it belongs to this app.
    pub(crate) fn drop_in(&self, (app, service): UnitOwner) -> Result<Option<String>> {
        let of = self.app_of(service)?;
        Ok(of.filter(|(other, _)| other == app).map(|(_, text)| text))
    }

    /// The state directories of the muxes of an app, which their drop-ins name.
    pub(crate) fn state(&self, owner: UnitOwner) -> Result<Vec<AppDir>> {
        let mut all = Vec::new();
        for (unit, name) in self.muxes(owner)? {
            let drop_in = self.look(&self.0.join(drop_ins(&unit)).join(DROP_IN))?;
            if let Some(state) = drop_in.and_then(|(_, text)| state_dir(&text)) {
                all.push(StateDir::resolve(Some(in_session(&state)?))?.app(&name));
            }
        }
        Ok(all)
    }

    /// Removes all files of these apps, and our templates if no other app remains.
    pub(crate) fn uninstall(&self, owners: &[UnitOwner]) -> Result<Changes> {
        let going = self.going(owners)?.into_iter();
        going.map(|path| Ok(("removed", self.take_away(&path)?))).collect()
    }

    /// The files that [`UnitDirectory::uninstall`] removes.
    pub(crate) fn going(&self, owners: &[UnitOwner]) -> Result<Vec<PathBuf>> {
        let owners: BTreeSet<UnitOwner> = owners.iter().copied().collect();
        let (mut going, mut own_drop_ins) = (Vec::new(), BTreeSet::new());
        for owner in &owners {
            let drop_in = self.0.join(drop_ins(owner.1.as_str())).join(DROP_IN);
            // A foreign file under this name would only seem to be removed.
            if let Some((found, _)) = self.look(&drop_in)? {
                found.may_go()?;
            }
            own_drop_ins.insert(drop_in);
            let ours = self.near(*owner)?.into_iter();
            going.extend(ours.filter(|found| found.owner() == Some(*owner)));
        }
        for found in &going {
            found.may_go()?;
        }
        // The drop-ins of the services go first, since they refer to the rest.
        going.sort_by_key(|found| !own_drop_ins.contains(&found.path));
        let is_other =
            |found: FoundUnit| found.owner().is_some_and(|owner| !owners.contains(&owner));
        if !going.is_empty() && !self.read(self.paths()?)?.any(is_other) {
            let templates = self.all()?.into_iter().filter(|found| found.owner().is_none());
            // A changed template is foreign.
            going.extend(templates.filter(|found| found.may_go().is_ok()));
        }
        let going: Vec<PathBuf> = going.into_iter().map(|found| found.path).collect();
        for dir in going.iter().filter_map(|path| path.parent()).collect::<BTreeSet<_>>() {
            access(dir, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(io::Error::from)
                .with_context(|| format!("cannot remove files from {}", dir.display()))?;
        }
        Ok(going)
    }

    /// Removes the files of a killed `enable` that no service uses: incomplete files, and templates
    /// without an app.
    pub(crate) fn sweep(&self) -> Result<Changes> {
        let all = self.all()?;
        let has_app = all.iter().any(|found| found.owner().is_some());
        let is_left =
            |found: &&FoundUnit| found.may_go().is_ok() && found.owner().is_none() && !has_app;
        let mut going: Vec<PathBuf> =
            all.iter().filter(is_left).map(|found| found.path.clone()).collect();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "d") {
                going.extend([DROP_IN, ENV].map(|file| path.join(temporary(file))));
            } else if is_temporary(&entry.file_name().to_string_lossy()) {
                going.push(path);
            }
        }
        going.retain(|path| path.symlink_metadata().is_ok());
        going.into_iter().map(|path| Ok(("removed", self.take_away(&path)?))).collect()
    }

    /// The apps that have files here, with their services.
    pub(crate) fn owners(&self) -> Result<BTreeSet<(AppName, ServiceName)>> {
        let all = self.all()?.into_iter();
        Ok(all.filter_map(|found| found.header?.owner).collect())
    }

    /// The names of the muxes of all apps that have files here, with their services.
    pub(crate) fn names(&self) -> Result<BTreeMap<AppName, String>> {
        let mut paths = self.paths()?;
        paths.retain(|path| mux(path).is_some());
        let name = |found: FoundUnit| {
            let (_, service) = found.owner()?;
            Some((mux(&found.path)?.1, service.to_string()))
        };
        Ok(self.read(paths)?.filter_map(name).collect())
    }

    /// The units and names of the muxes of an app that have files here.
    pub(crate) fn muxes(&self, owner: UnitOwner) -> Result<Vec<(String, AppName)>> {
        let all = self.near(owner)?;
        let ours = all.iter().filter(|found| found.owner() == Some(owner));
        Ok(ours.filter_map(|found| mux(&found.path)).collect())
    }

    /// The text of all files of a service here that can be read, with those of its template and its
    /// drop-ins, but without ours.
    pub(crate) fn text_of(&self, service: &ServiceName) -> String {
        let name = service.as_str();
        let template = name.split_once('@').map(|(name, _)| format!("{name}@.service"));
        let mut paths = Vec::new();
        for unit in [Some(name.to_owned()), template].into_iter().flatten() {
            let drop_ins = fs::read_dir(self.0.join(drop_ins(&unit))).into_iter().flatten();
            paths.extend(drop_ins.filter_map(|entry| Some(entry.ok()?.path())));
            paths.push(self.0.join(unit));
        }
        paths.retain(|path| !path.ends_with(DROP_IN));
        let read = |path: &PathBuf| read_plain(path, limits::UNIT_FILE).ok();
        let texts = paths.iter().filter_map(read);
        texts.map(|text| String::from_utf8_lossy(&text).into_owned() + "\n").collect()
    }

    /// Whether a file of this name exists.
    pub(crate) fn has(&self, file: &Path) -> bool {
        self.0.join(file).symlink_metadata().is_ok()
    }

    /// Whether a file of this name exists that we must not overwrite.
    pub(crate) fn has_foreign(&self, file: &Path) -> bool {
        match self.look(&self.0.join(file)) {
            Ok(found) => found.is_some_and(|(found, _)| found.may_go().is_err()),
            Err(_) => true,
        }
    }

    /// All files that could be ours by their names.
    pub(crate) fn all(&self) -> Result<Vec<FoundUnit>> {
        Ok(self.read(self.paths()?)?.collect())
    }

    /// Those that may be of this app or in its way: others are not looked at, however many there are.
    pub(crate) fn near(&self, (app, service): UnitOwner) -> Result<Vec<FoundUnit>> {
        let mut paths = vec![drop_ins(service.as_str()).join(DROP_IN)];
        for name in names_of(app) {
            for unit in UnitKind::ALL.map(|kind| kind.unit(&name)) {
                paths.extend([DROP_IN, ENV].map(|file| drop_ins(&unit).join(file)));
            }
            paths.extend(Stream::ALL.map(|stream| socket_name(&name, stream).into()));
        }
        Ok(self.read(paths.into_iter().map(|path| self.0.join(path)).collect())?.collect())
    }

    /// The paths that files of ours could have, in their order.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let what = || format!("cannot read {}", self.0.display());
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).with_context(what),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.with_context(what)?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some("d") => paths.extend([DROP_IN, ENV].map(|file| path.join(file))),
                Some("socket" | "service") => paths.push(path),
                _ => {}
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// The files at these paths, one after the other. One that cannot be read is not ours.
    fn read(&self, paths: Vec<PathBuf>) -> Result<impl Iterator<Item = FoundUnit>> {
        let walk = match self.open(Walk::new()?) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            walk => Some(walk.with_context(|| format!("cannot read {}", self.0.display()))?),
        };
        let look = move |path: PathBuf| {
            let at = self.walk_on(walk.as_ref()?.try_clone().ok()?, &path);
            Some(found_at(&path, at).ok()??.0)
        };
        Ok(paths.into_iter().filter_map(look))
    }

    /// Writes a file, and its directory if needed.
    fn put(&self, path: &Path, text: &str) -> Result<()> {
        let write = || {
            let (walk, file) = self.walk(path, Walk::new()?.making())?;
            replace_safely(&walk, file, text.as_bytes(), READABLE)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    fn open(&self, mut walk: Walk) -> io::Result<Walk> {
        walk.go(&std::path::absolute(&self.0)?, Links::Trusted)?;
        Ok(walk)
    }

    /// Opens the directory of a file.
    fn walk<'a>(&self, path: &'a Path, walk: Walk) -> io::Result<(Walk, &'a OsStr)> {
        self.walk_on(self.open(walk)?, path)
    }

    /// Goes on from the directory of units to that of a file. It follows no links: the directory may
    /// belong to another root, whose users must not choose which files we write.
    fn walk_on<'a>(&self, mut walk: Walk, path: &'a Path) -> io::Result<(Walk, &'a OsStr)> {
        let below = path.parent().and_then(|dir| dir.strip_prefix(&self.0).ok());
        walk.go(below.unwrap_or(Path::new("")), Links::None)?;
        Ok((walk, path.file_name().unwrap_or_default()))
    }

    /// The file at a path, if it exists.
    fn look(&self, path: &Path) -> Result<Option<(FoundUnit, String)>> {
        found_at(path, Walk::new().and_then(|walk| self.walk(path, walk)))
    }

    /// Removes a file, and its directory if it is empty then.
    pub(crate) fn take_away(&self, path: &Path) -> Result<PathBuf> {
        let remove = || match self.walk(path, Walk::new()?) {
            Ok((walk, file)) => remove_in(&walk, file),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        };
        remove().with_context(|| format!("cannot remove {}", path.display()))?;
        if let Some(dir) = path.parent().filter(|dir| *dir != self.0) {
            let _ = fs::remove_dir(dir);
        }
        Ok(path.to_owned())
    }
}

/// The file at a path, if it exists. `at` is its directory and its name.
fn found_at(path: &Path, at: io::Result<(Walk, &OsStr)>) -> Result<Option<(FoundUnit, String)>> {
    match at.and_then(|(walk, file)| read_in(&walk, file, limits::UNIT_FILE)) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let header = unit_text::read_checksum(&text);
            Ok(Some((FoundUnit { path: path.to_owned(), header }, text)))
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(_) if path.is_symlink() => {
            bail!("{}: a symbolic link is in the way; nothing was changed", path.display())
        }
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Whether this is the temporary name of a unit of ours.
fn is_temporary(name: &str) -> bool {
    const BEGINS: [&str; 3] = [".iomux@", ".ttymux@", ".iottymux-"];
    BEGINS.iter().any(|begin| name.starts_with(begin)) && name.ends_with(".service.new")
}

/// The unit and the name of the mux whose options are in this file.
fn mux(path: &Path) -> Option<(String, AppName)> {
    let dir = path.parent().filter(|_| path.ends_with(ENV))?;
    let unit = dir.file_name()?.to_str()?.strip_suffix(".d")?;
    let name = unit.split_once('@')?.1.strip_suffix(".service")?.parse().ok()?;
    Some((unit.to_owned(), name))
}

/// The lines of a unit that connect a stream to an end, not to the journal or /dev/null.
pub(crate) fn ends(text: &str) -> BTreeSet<String> {
    const KEYS: [&str; 5] =
        ["StandardInput", "StandardOutput", "StandardError", "TTYPath", "Sockets"];
    let is_end = |line: &&str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        KEYS.contains(&key) && !["null", "journal", "journal+console"].contains(&value)
    };
    text.lines().filter(is_end).map(str::to_owned).collect()
}

/// The state directory in the drop-in of a mux.
fn state_dir(text: &str) -> Option<String> {
    variables(text)
        .find_map(|(_, value)| Some(value.strip_prefix("IOTTYMUX_STATE_DIR=")?.to_owned()))
}

/// The path that systemd makes of one in a unit.
fn in_session(path: &str) -> Result<PathBuf> {
    Ok(match path.strip_prefix("%t/") {
        Some(rest) => session()?.join(rest.replace("%%", "%")),
        None => PathBuf::from(path.replace("%%", "%")),
    })
}
