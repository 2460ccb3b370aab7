//! The directory of unit files: writing an app's, and taking them away again.
//!
//! Invariant: a file without our seal, or that was changed since, is neither overwritten nor removed,
//! and then nothing else is. Each file appears whole.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::text::{self, Owner, Seal};
use super::{DROP_IN, ENV, UnitFile};
use crate::limits;
use crate::name::AppName;
use crate::service::ServiceName;
use crate::state::{read_plain, remove, replace};

/// Mode of unit files: everybody may read them, `systemctl cat` does.
const READABLE: u32 = 0o644;

/// What has been done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is new, or has changed.
    Wrote,
    /// It was so already.
    Kept,
    /// It is gone.
    Removed,
}

impl Done {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wrote => "wrote",
            Self::Kept => "kept",
            Self::Removed => "removed",
        }
    }
}

/// What was done, file by file.
pub type Deeds = Vec<(Done, PathBuf)>;

/// A directory of units.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

/// What has to be done so that the files of an app are as they should be.
#[derive(Debug)]
pub struct Plan {
    place: Place,
    /// The files in their order; with a text where they are not so already.
    steps: Vec<(PathBuf, Option<String>)>,
    stale: Vec<PathBuf>,
}

impl Plan {
    /// Does it.
    ///
    /// # Errors
    /// When the disk refuses: then what makes the service use the rest is as it was.
    pub fn carry_out(self) -> Result<Deeds> {
        let mut deeds = Deeds::new();
        for (path, text) in self.steps {
            if let Some(text) = &text {
                let dir = path.parent().unwrap_or(&self.place.0);
                fs::create_dir_all(dir)
                    .with_context(|| format!("making directory {}", dir.display()))?;
                replace(&path, text.as_bytes(), READABLE)?;
            }
            deeds.push((if text.is_some() { Done::Wrote } else { Done::Kept }, path));
        }
        for path in self.stale {
            deeds.push((Done::Removed, self.place.take_away(path)?));
        }
        Ok(deeds)
    }
}

/// A file that is there.
struct Found {
    path: PathBuf,
    seal: Option<Seal>,
}

impl Found {
    fn owner(&self) -> Option<Owner<'_>> {
        self.seal.as_ref()?.owner.as_ref().map(|(app, service)| (app, service))
    }

    /// Refuses what is not as we wrote it.
    fn may_go(&self) -> Result<()> {
        let path = self.path.display();
        match &self.seal {
            None => bail!("{path} was not written by iottymux; nothing was changed"),
            Some(Seal { is_whole: false, .. }) => bail!(
                "{path} was changed after iottymux had written it; keep what you need of it in a \
                 file of your own and remove it; nothing was changed"
            ),
            Some(_) => Ok(()),
        }
    }
}

impl Place {
    /// The directory at this path; it need not exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What has to be done so that these are the files of an app.
    ///
    /// # Errors
    /// When a file that is not ours is in the way, or the app or the service belongs to another.
    pub fn plan(&self, owner: Owner, files: Vec<UnitFile>) -> Result<Plan> {
        let (app, service) = owner;
        let mut stale = Vec::new();
        for found in self.all()? {
            match found.owner() {
                Some(of) if of == owner => stale.push(found),
                Some((a, s)) if a == app => {
                    bail!("the name {app} is that of {s}; give {service} another (--app)");
                }
                Some((a, s)) if s == service => {
                    bail!("{service} is app {a} already; take that away first");
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
            let is_new = match look(&path)? {
                None => true,
                Some((_, text)) if text == file.text => false,
                Some((found, _)) => {
                    found.may_go()?;
                    if let Some((a, s)) = found.owner().filter(|of| *of != owner) {
                        bail!("{} is that of app {a} ({s})", path.display());
                    }
                    true
                }
            };
            steps.push((path, is_new.then_some(file.text)));
        }
        let stale = stale.into_iter().map(|found| found.path).collect();
        Ok(Plan { place: self.clone(), steps, stale })
    }

    /// Removes all files of an app, and the templates that we wrote when it was the last one.
    ///
    /// # Errors
    /// When one of them was changed, a file of the same name is not ours, or the disk refuses.
    pub fn uninstall(&self, owner: Owner) -> Result<Deeds> {
        let own_drop_ins = self.0.join(format!("{}.d", owner.1));
        // One in the place of ours would seem to be taken away when it is not.
        if let Some((found, _)) = look(&own_drop_ins.join(DROP_IN))? {
            found.may_go()?;
        }
        let (ours, others): (Vec<Found>, Vec<Found>) = self
            .all()?
            .into_iter()
            .filter(|found| found.seal.is_some())
            .partition(|found| found.owner() == Some(owner));
        for found in &ours {
            found.may_go()?;
        }
        let is_last = !ours.is_empty() && others.iter().all(|found| found.owner().is_none());
        let mut going = ours;
        // What makes the service use the rest goes first.
        going.sort_by_key(|found| !found.path.starts_with(&own_drop_ins));
        // A template that was changed is somebody else's by now.
        going.extend(others.into_iter().filter(|found| is_last && found.may_go().is_ok()));
        going.into_iter().map(|f| Ok((Done::Removed, self.take_away(f.path)?))).collect()
    }

    /// The apps that have files here, with their services.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn owners(&self) -> Result<BTreeSet<(AppName, ServiceName)>> {
        let all = self.all()?.into_iter();
        Ok(all.filter_map(|found| found.seal?.owner).collect())
    }

    /// The muxes that have files of an app here: their units, and the names by which they are
    /// attached to.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn muxes(&self, owner: Owner) -> Result<Vec<(String, AppName)>> {
        let all = self.all()?;
        let ours = all.iter().filter(|found| found.owner() == Some(owner));
        let envs = ours.filter(|found| found.path.ends_with(ENV));
        let mux = |found: &Found| {
            let unit = found.path.parent()?.file_name()?.to_str()?.strip_suffix(".d")?;
            let name = unit.split_once('@')?.1.strip_suffix(".service")?.parse().ok()?;
            Some((unit.to_owned(), name))
        };
        Ok(envs.filter_map(mux).collect())
    }

    /// The socket units that an app has here, by their names.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn sockets(&self, owner: Owner) -> Result<BTreeSet<PathBuf>> {
        let all = self.all()?;
        let ours = all.iter().filter(|found| found.owner() == Some(owner));
        let names = ours.filter_map(|found| found.path.file_name().map(PathBuf::from));
        Ok(names.filter(|name| is_socket(name)).collect())
    }

    /// Whether there is a file of this name.
    #[must_use]
    pub fn has(&self, file: &Path) -> bool {
        self.0.join(file).symlink_metadata().is_ok()
    }

    /// Whether there is a file of this name that is not, or no longer, ours to write.
    #[must_use]
    pub fn has_foreign(&self, file: &Path) -> bool {
        match look(&self.0.join(file)) {
            Ok(found) => found.is_some_and(|(found, _)| found.may_go().is_err()),
            Err(_) => true,
        }
    }

    /// All files that could be ours, by their names.
    fn all(&self) -> Result<Vec<Found>> {
        let what = || format!("reading {}", self.0.display());
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).with_context(what),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.with_context(what)?.path();
            let paths = match path.extension().and_then(|e| e.to_str()) {
                Some("d") => vec![path.join(DROP_IN), path.join(ENV)],
                Some("socket" | "service") => vec![path],
                _ => continue,
            };
            for path in paths {
                // What cannot be read is none of ours.
                found.extend(look(&path).ok().flatten().map(|(found, _)| found));
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Removes a file, and its directory if that is empty then.
    fn take_away(&self, path: PathBuf) -> Result<PathBuf> {
        remove(&path).with_context(|| format!("removing {}", path.display()))?;
        if let Some(dir) = path.parent().filter(|dir| *dir != self.0) {
            let _ = fs::remove_dir(dir);
        }
        Ok(path)
    }
}

/// Whether a file is a socket unit, by its name.
#[must_use]
pub fn is_socket(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "socket")
}

/// What is at a path, if anything is.
fn look(path: &Path) -> Result<Option<(Found, String)>> {
    match read_plain(path, limits::UNIT_FILE) {
        Ok((_, bytes)) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Some((Found { path: path.to_owned(), seal: text::read_seal(&text) }, text)))
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("reading {}", path.display())),
    }
}
