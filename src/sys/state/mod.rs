//! The state directory and all paths below it. No other module builds such paths.
//!
//! Invariant: an [`AppDir`] never opens, binds or connects to anything outside the app's directory,
//! even through links of another user or a pod. A mux keeps its files only where no other user can
//! reach or replace them. This module does not know the contents of the files.

mod ends;
mod rkt;
mod sockets;
mod user_dir;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, chmodat, fstat, mkdirat, statat};
use rustix::io::Errno as Failure;

pub(crate) use self::ends::split_end;
pub(crate) use self::user_dir::{lingers, session};

use self::ends::{EARLIER, GATE, GATE_PREPARED};
use super::files::{
    CLOSED, PRIVATE, empty, is_same, names, open_in, open_plain, read_open, remove, remove_in,
    replace_in, set_mode,
};
use super::walk::{Links, Walk, is_link, refusal};
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// Where the muxes of the system have their directories.
const SYSTEM: &str = "/run/iottymux";
/// Mode of a directory whose files other users can open by name.
const PASSABLE: u32 = 0o711;
/// The bits that let other users write to a directory.
const WRITABLE: u32 = 0o022;
/// Mode of a directory that all users may read.
const READABLE: u32 = 0o755;
/// The directory of the app's ends while other users may enter the app's directory: a FIFO itself
/// does not check credentials.
const ENDS: &str = "ends";
/// The mux's own directory in the split layout, where root makes the ends and the mux runs as
/// another user. The layout is split if this directory exists.
const MUX: &str = "mux";
/// The document that lists the app's sockets.
pub(crate) const ENDPOINTS: &str = "endpoints";
/// The socket of the session protocol.
pub(crate) const SESSION: &str = "sock-session";
/// The document that lists the mux's logs.
pub(crate) const LOGS: &str = "logs";
/// How the app ended.
pub(crate) const LAST: &str = "last.json";
/// What was reported of the app's life, for the next mux.
pub(crate) const LIFE: &str = "life.json";
/// The link to the ssh agent of an app.
pub(crate) const AGENT: &str = "ssh-agent";
/// The container that the app is.
pub(crate) const CONTAINER: &str = "container.json";
/// Prefix of an end that is set aside until the app's next start.
pub(crate) const KEPT: &str = "kept-";
/// Prefix of the directory for files of one process; its PID follows.
const SCRATCH: &str = ".process-";
const LOCK: &str = "lock";

/// The directory that has one directory per app.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The given directory, else rkt's in a rkt pod, else the system's for root, else that of the
    /// user's session.
    pub fn resolve(given: Option<PathBuf>) -> Result<Self> {
        if let Some(path) = given {
            return Ok(Self(
                std::path::absolute(&path).context("cannot resolve the state directory")?,
            ));
        }
        if let Some(of_rkt) = Self::of_rkt() {
            return Ok(of_rkt);
        }
        if Uid::effective().is_root() {
            return Ok(Self(SYSTEM.into()));
        }
        let named =
            |e| anyhow!("cannot find a state directory: {e}; try export IOTTYMUX_STATE_DIR=DIR");
        Ok(Self(user_dir::state().map_err(named)?))
    }

    /// The directories of an ordinary user that exist: what was started in a session has another one
    /// than what was started without.
    fn of_user() -> Vec<Self> {
        let own = Uid::effective();
        if own.is_root() || Self::of_rkt().is_some() {
            return Vec::new();
        }
        let is_own = |path: &PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|it| it.is_dir() && it.uid() == own.as_raw())
        };
        user_dir::places().filter(is_own).map(Self).collect()
    }

    /// The directory that has the app of a client: that of [`StateDir::resolve`], else another one of
    /// this user, else that of the system where the app is, whose mux may let this user in. One where it
    /// runs comes before one where it has ended.
    pub(crate) fn with_app(given: Option<PathBuf>, name: &AppName) -> Result<Self> {
        let is_given = given.is_some();
        let own = Self::resolve(given);
        if is_given {
            return own;
        }
        let all: Vec<Self> = own.iter().cloned().chain(Self::of_user()).collect();
        let has_app = |state: &&Self| state.0.join(name.as_str()).is_dir();
        let has_running = |state: &&Self| has_app(state) && state.app(name).is_locked();
        let found = all.iter().find(has_running).or_else(|| all.iter().find(has_app));
        if let Some(found) = found {
            return Ok(found.clone());
        }
        match Self::of_system() {
            Some(system) if has_app(&&system) || !user_dir::is_named() => Ok(system),
            _ => own,
        }
    }

    /// All directories with apps that this user may attach to.
    pub(crate) fn all(given: Option<PathBuf>) -> Result<Vec<Self>> {
        if given.is_some() {
            return Ok(vec![Self::resolve(given)?]);
        }
        let system = Self::of_system().filter(|system| system.0.is_dir());
        match Self::resolve(None) {
            Err(e) if system.is_none() && user_dir::is_named() => Err(e),
            own => {
                let of_own = own.as_ref().ok().map(|own| own.0.clone());
                let of_user = Self::of_user().into_iter();
                let others = of_user.filter(|other| Some(&other.0) != of_own.as_ref());
                Ok(own.into_iter().chain(others).chain(system).collect())
            }
        }
    }

    /// The app of this name of this user, where it runs: one that was started without a session may be
    /// in another directory than those with one.
    pub(crate) fn own_app(&self, name: &AppName) -> AppDir {
        let here = self.app(name);
        if here.is_locked() || !here.is_default() {
            return here;
        }
        let others = Self::all(None).unwrap_or_default().into_iter();
        let mut others = others.filter(|other| !other.is_of_system()).map(|other| other.app(name));
        others.find(AppDir::is_locked).unwrap_or(here)
    }

    /// The directories of other users, and of pods and containers, as far as they can be seen.
    pub(crate) fn of_others() -> Vec<Self> {
        let entries = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten();
        let users = entries(user_dir::USERS).map(|user| user.path().join(user_dir::NAME));
        let in_tmp = entries(user_dir::TMP).filter_map(|entry| {
            let path = entry.path();
            let there = fs::symlink_metadata(&path).ok()?;
            let is_its = path == user_dir::in_tmp(Uid::from_raw(there.uid()));
            // Only root can see those of others.
            (there.is_dir() && is_its && fs::read_dir(&path).is_ok()).then_some(path)
        });
        let is_process = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let processes = entries("/proc").filter(|entry| is_process(&entry.file_name()));
        let roots = processes.map(|process| process.path().join("root"));
        let in_roots = roots.flat_map(|root| {
            [SYSTEM, rkt::RKT].map(|dir| {
                let dir = Path::new(dir).strip_prefix("/").unwrap_or(Path::new(dir));
                let of_rkt = Path::new(rkt::RKT).ends_with(dir);
                let dir = root.join(dir);
                if of_rkt { dir.join(rkt::STATE) } else { dir }
            })
        });
        let own = Self::all(None).unwrap_or_default();
        let mut seen: Vec<_> = own.iter().filter_map(|state| id(&state.0)).collect();
        let mut is_new = |path: &PathBuf| {
            id(path).is_some_and(|id| !seen.contains(&id) && (seen.push(id), true).1)
        };
        users.chain(in_tmp).chain(in_roots).filter(&mut is_new).map(Self).collect()
    }

    /// The system's directory, for users that have one of their own.
    fn of_system() -> Option<Self> {
        let is_ordinary = !Uid::effective().is_root() && Self::of_rkt().is_none();
        is_ordinary.then(|| Self(SYSTEM.into()))
    }

    /// The directory of one app; it need not exist.
    pub fn app(&self, name: &AppName) -> AppDir {
        AppDir { name: name.clone(), path: self.0.join(name.as_str()), shared: false }
    }

    /// The apps that have a directory, sorted; empty without a state directory. What rkt has removed
    /// is left out.
    pub(crate) fn apps(&self) -> Result<Vec<AppName>> {
        let list = || -> io::Result<Vec<AppName>> {
            let mut walk = Walk::new()?;
            walk.go(&self.0, Links::Trusted)?;
            let is_app = |name: &AppName| {
                let stat = statat(walk.fd(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
                stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
            };
            let names = names(walk.fd())?.into_iter();
            let mut apps: Vec<AppName> =
                names.filter_map(|name| name.parse().ok()).filter(is_app).collect();
            apps.retain(|name| !self.is_removed_from_pod(name));
            apps.sort();
            Ok(apps)
        };
        match list() {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            apps => apps.with_context(|| format!("cannot read state directory {self}")),
        }
    }

    /// Whether it is that of the system's muxes, where those of another user than root can be.
    pub(crate) fn is_of_system(&self) -> bool {
        self.0 == Path::new(SYSTEM)
    }

    /// A new directory for files of one process, which only its user can enter; no app has such a
    /// name.
    pub(crate) fn scratch(&self, pid: u32) -> Result<PathBuf> {
        let path = self.0.join(format!("{SCRATCH}{pid}"));
        let make = || -> io::Result<()> {
            let mut walk = Walk::new()?.making().guarded();
            walk.go(&self.0, Links::Trusted)?;
            walk.check(true)?;
            for name in names(walk.fd())? {
                let of = name.strip_prefix(SCRATCH).and_then(|pid| pid.parse::<u32>().ok());
                // A process that was killed has left it. Another one may remove it, too.
                if of.is_some_and(|of| of == pid || !Path::new(&format!("/proc/{of}")).exists()) {
                    let _ = fs::remove_dir_all(self.0.join(name));
                }
            }
            Ok(mkdirat(walk.fd(), path.file_name().unwrap_or_default(), Mode::RWXU)?)
        };
        make().with_context(|| format!("cannot make directory {}", path.display()))?;
        Ok(path)
    }

    /// The path itself.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

impl std::fmt::Display for StateDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// The directory of one app.
#[derive(Clone, Debug)]
pub struct AppDir {
    name: AppName,
    path: PathBuf,
    shared: bool,
}

/// The lock of an app, held as long as this lives.
#[derive(Debug)]
pub struct Lock(
    #[allow(dead_code, reason = "kept for its drop")] Flock<File>,
    #[allow(dead_code, reason = "kept for its drop")] Option<Flock<File>>,
);

impl AppDir {
    /// The app.
    pub(crate) fn name(&self) -> &AppName {
        &self.name
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Whether its mux is one of the system.
    pub(crate) fn is_of_system(&self) -> bool {
        self.state() == Path::new(SYSTEM)
    }

    /// The user whose manager has the service that is this app; `None`: the system's.
    pub(crate) fn user(&self) -> Option<u32> {
        let session = self.state().strip_prefix(user_dir::USERS).ok();
        let named = session.and_then(|rest| rest.iter().next()?.to_str()?.parse().ok());
        let own = Uid::effective();
        named.or_else(|| (!own.is_root() && !self.is_of_system()).then(|| own.as_raw()))
    }

    /// Whether it is in the directory of the system or of this user, and not in a given one.
    pub(crate) fn is_default(&self) -> bool {
        let is_its = |state: &StateDir| state.0 == self.state();
        self.is_of_system()
            || StateDir::resolve(None).is_ok_and(|own| is_its(&own))
            || StateDir::of_user().iter().any(is_its)
    }

    /// The directory that the mux writes to: the app's, or the mux's own below it.
    pub(crate) fn dir(&self) -> PathBuf {
        if self.is_split() { self.path.join(MUX) } else { self.path.clone() }
    }

    /// Device and number of that directory, which is the same by any path.
    pub(crate) fn id(&self) -> Option<(u64, u64)> {
        id(&self.dir())
    }

    /// A file of the mux, for messages and for opening.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir().join(file)
    }

    /// Whether the ends are root's and the mux has a directory of its own.
    pub(crate) fn is_split(&self) -> bool {
        fs::symlink_metadata(self.path.join(MUX)).is_ok_and(|there| there.is_dir())
    }

    /// The same directory; `shared` if other users may reach its sockets.
    pub(crate) fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// The mode of a file: `open` if other users have access, else [`PRIVATE`].
    pub(crate) fn mode(&self, open: u32) -> u32 {
        if self.shared { open } else { PRIVATE }
    }

    /// Makes the directory, closed to other users, if it does not exist.
    pub(crate) fn create(&self) -> Result<()> {
        let make = || -> io::Result<()> {
            if user_dir::is_in_tmp(self.state()) {
                user_dir::make_in_tmp(self.state())?;
            }
            let dir = self.path("");
            let mut walk = Walk::new()?.making().guarded();
            walk.go(dir.parent().unwrap_or(&dir), Links::Trusted)?;
            // The app's own directory is looked at below.
            walk.check(true)?;
            let name = dir.file_name().unwrap_or_default();
            own_dir(&walk, name)?;
            Ok(())
        };
        make().with_context(|| format!("cannot make directory {}", self.dir().display()))
    }

    /// Removes everything that a mux of another user has left; its files may have any type.
    pub(crate) fn remove_own(&self) -> Result<()> {
        if !self.is_split() {
            return Ok(());
        }
        let own = self.path.join(MUX);
        // The directory stays: by it clients know where to look.
        empty(&own).with_context(|| format!("cannot empty directory {}", own.display()))
    }

    /// Closes the directory to other users, or lets them pass, and removes files that other users
    /// put there before. Call it with the lock: the directory may belong to another mux.
    pub(crate) fn arrange(&self, _: &Lock) -> Result<()> {
        let (dir, ends) = (self.path(""), self.path(ENDS));
        let arrange = || -> io::Result<()> {
            close_dir(&dir, if self.shared { PASSABLE } else { CLOSED })?;
            let has_ends = self.shared || fs::symlink_metadata(&ends).is_ok();
            if has_ends && !self.is_split() {
                close_dir(&ends, CLOSED)?;
            }
            Ok(())
        };
        arrange().with_context(|| format!("cannot set up directory {}", self.dir().display()))?;
        if self.shared {
            self.open_the_way();
        }
        Ok(())
    }

    /// Opens the directory that the mux writes to, as [`AppDir::dir`] has it. Only links of root and of
    /// this user may be on its path, and the directory itself must not be a link: it may be that of a
    /// pod, seen from outside.
    fn walk(&self) -> io::Result<Walk> {
        let state = self.state();
        let mut walk = Walk::new()?;
        walk.go(state, Links::Trusted)?;
        // It may have been made after it was chosen.
        user_dir::check(state, &fstat(walk.fd())?)?;
        walk.go(Path::new(self.name.as_str()), Links::None)?;
        walk.go_if_there(MUX.as_ref())?;
        Ok(walk)
    }

    /// Opens a plain file of the directory, and nothing else.
    fn open(&self, file: &str) -> io::Result<File> {
        let walk = self.walk()?;
        let opened = open_plain(&walk, file.as_ref());
        if opened.is_err() && walk.path().ends_with(self.name.as_str()) && self.is_split() {
            // The layout was split in between: what was found is of no mux, or the link that leads
            // to the new document.
            return open_plain(&self.walk()?, file.as_ref());
        }
        opened
    }

    /// The root directory in which the directory is, if that is another than this process has.
    pub(crate) fn root(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.walk()?.root().map(Path::to_owned))
    }

    /// Whether the directory has a file of this name.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.walk().is_ok_and(|walk| statat(walk.fd(), file, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Lets other users pass through the state directory. Only warns about the directories above
    /// it.
    fn open_the_way(&self) {
        for (above, dir) in self.path.ancestors().skip(1).enumerate() {
            let Ok(mode) = fs::metadata(dir).map(|there| there.mode()) else { continue };
            let passable = mode & 0o001 != 0;
            if !passable && (above > 0 || set_mode(dir, mode & 0o777 | 0o111).is_err()) {
                log::warn!(
                    "app {}: other users cannot reach its sockets through {}",
                    self.name,
                    dir.display()
                );
            }
        }
    }

    /// Has systemd-tmpfiles(8) leave a directory below /tmp alone: it does not clean what is locked.
    fn hold_in_tmp(&self) -> Option<Flock<File>> {
        let state = user_dir::is_in_tmp(self.state()).then(|| File::open(self.state()).ok());
        Flock::lock(state??, FlockArg::LockSharedNonblock).ok()
    }

    /// Takes the lock of the app.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path(LOCK);
        loop {
            let what = || format!("cannot open {}", path.display());
            let walk = self.walk().with_context(what)?;
            let is_other = |stat: Stat| !FileType::from_raw_mode(stat.st_mode).is_file();
            if statat(walk.fd(), LOCK, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_other) {
                log::warn!("{}: removed: it was not a regular file", path.display());
                remove_in(&walk, LOCK.as_ref()).with_context(what)?;
            }
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = open_in(&walk, LOCK.as_ref(), flags).with_context(what)?;
            let stat = fstat(&file).map_err(io::Error::from).with_context(what)?;
            let owner = fstat(walk.fd()).map_err(io::Error::from).with_context(what)?.st_uid;
            if !walk.owners().trust(&stat) && stat.st_uid != owner {
                // Its owner could hold it for ever.
                log::warn!("{}: removed: it belonged to user {}", path.display(), stat.st_uid);
                self.remove(LOCK)?;
                continue;
            }
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // A `run` that ended in between has removed the file: then the lock is of no use.
                Ok(lock) if is_same(&lock, &path) => return Ok(Lock(lock, self.hold_in_tmp())),
                Ok(_) => {}
                // A process that checks the lock holds it for that moment.
                Err((file, Errno::EWOULDBLOCK)) => {
                    if Flock::lock(file, FlockArg::LockSharedNonblock).is_err() {
                        bail!(
                            "cannot start app {}: another mux of this app is running (it holds {})",
                            self.name,
                            path.display()
                        );
                    }
                }
                Err((_, e)) => {
                    return Err(e).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
    }

    /// Whether a mux has the lock; `false` if this user may not open it.
    pub fn is_locked(&self) -> bool {
        self.open(LOCK).is_ok_and(|file| {
            let looked = Flock::lock(file, FlockArg::LockSharedNonblock);
            matches!(looked, Err((_, Errno::EWOULDBLOCK)))
        })
    }

    /// Replaces a file atomically: readers see the old content or the new one, with the new mode.
    pub(crate) fn replace(&self, file: &str, content: &[u8], mode: u32) -> Result<()> {
        let what = || format!("cannot write {}", self.path(file).display());
        replace_in(&self.walk().with_context(what)?, file.as_ref(), content, mode)
            .with_context(what)
    }

    /// Reads a plain file of at most `limit` bytes, and nothing else: the directory may be that of
    /// a pod, read from outside, and must not lead elsewhere or make its reader wait.
    pub(crate) fn read(&self, file: &str, limit: u64) -> io::Result<Vec<u8>> {
        read_open(self.open(file)?, limit)
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, file: &str) -> Result<()> {
        remove(&self.path(file))
            .with_context(|| format!("cannot remove {}", self.path(file).display()))
    }

    /// Removes the directory if it is empty but for the lock, which the caller holds.
    pub(crate) fn remove_dir(&self) {
        let _ = fs::remove_file(self.path(AGENT));
        // A process that waits for this lock then finds the file removed, and makes the directory
        // again.
        let _ = fs::remove_file(self.path(LOCK));
        // The mux's own directory goes last: its presence marks the layout.
        for dir in [ENDS, GATE_PREPARED, GATE, MUX] {
            let _ = fs::remove_dir(self.path.join(dir));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Removes the documents and sockets of a mux, but not what it knew of a running app. `endpoints`
    /// goes first, so that clients find nothing.
    pub(crate) fn remove_leftovers(&self) -> Result<()> {
        self.remove(ENDPOINTS)?;
        self.remove(LAST)?;
        self.remove(CONTAINER)?;
        for file in Stream::ALL.map(Stream::socket).into_iter().chain([SESSION]) {
            self.remove(file)?;
        }
        Ok(())
    }

    /// Waits until no mux has the lock.
    pub(crate) fn await_unlocked(&self) -> Result<()> {
        let Ok(file) = self.open(LOCK) else { return Ok(()) };
        let what = |(_, e)| anyhow!("cannot wait for {}: {e}", self.path(LOCK).display());
        Flock::lock(file, FlockArg::LockShared).map(drop).map_err(what)
    }

    /// Refuses a directory whose owner could lead a removal elsewhere by links.
    fn refuse_foreign(&self) -> Result<()> {
        let look = || -> io::Result<()> {
            let mut walk = Walk::new()?.guarded();
            walk.go(&self.path, Links::Trusted)?;
            if let Some(root) = walk.root() {
                return Err(refusal(format!("{} is another root directory", root.display())));
            }
            walk.check(false)
        };
        look().with_context(|| format!("cannot remove app {} as this user", self.name))
    }

    /// Removes all files that any mux has left, and the directory if it is empty then. Returns
    /// whether no mux was running.
    pub(crate) fn clear(&self) -> Result<bool> {
        if !self.path.is_dir() {
            return Ok(true);
        }
        self.refuse_foreign()?;
        if self.is_locked() {
            return Ok(false);
        }
        if self.is_anothers() {
            self.remove_own()?;
        }
        let lock = self.lock()?;
        self.clear_locked(&lock).map(|()| true)
    }

    /// The same for who has the lock.
    pub(crate) fn clear_locked(&self, _: &Lock) -> Result<()> {
        for stream in Stream::ALL {
            for end in [stream.stage2().to_owned(), format!("{KEPT}{stream}")] {
                self.remove_end(&end)?;
            }
        }
        self.remove_end(EARLIER)?;
        self.remove_leftovers()?;
        self.remove(LIFE)?;
        self.remove(AGENT)?;
        self.remove(LOGS)?;
        // The link to the document, where the mux has a directory of its own.
        let _ = remove(&self.path.join(ENDPOINTS));
        self.remove_dir();
        Ok(())
    }
}

/// Makes a directory that is closed to other users, or checks that an existing one belongs to this
/// user. It may also belong to root, if no other user can write to it.
fn own_dir(walk: &Walk, name: &OsStr) -> io::Result<()> {
    match mkdirat(walk.fd(), name, Mode::from_raw_mode(CLOSED)) {
        Err(Failure::EXIST) => {}
        made => return Ok(made?),
    }
    let stat = statat(walk.fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    if is_link(&stat) {
        return Err(refusal("it is a symbolic link; try to remove it".into()));
    }
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(Failure::NOTDIR.into());
    }
    let uid = stat.st_uid;
    if !walk.owners().trust(&stat) {
        return Err(refusal(format!("it belongs to user {uid}; try to remove it")));
    }
    if !is_own(&stat) && stat.st_mode & WRITABLE != 0 {
        return Err(refusal(format!(
            "other users can write to it, and only its owner (user {uid}) can change that"
        )));
    }
    Ok(())
}

/// Makes a directory with this mode, and removes a mux's files of other users from it: those date
/// from when other users could write to it.
fn close_dir(path: &Path, mode: u32) -> io::Result<()> {
    let mut walk = Walk::new()?;
    walk.go(path.parent().unwrap_or(path), Links::Trusted)?;
    let name = path.file_name().unwrap_or_default();
    own_dir(&walk, name)?;
    walk.go(name.as_ref(), Links::None)?;
    let stat = fstat(walk.fd())?;
    if stat.st_mode & 0o7777 != mode {
        let chmod = chmodat(walk.fd(), ".", Mode::from_raw_mode(mode), AtFlags::empty());
        if let Err(e) = chmod {
            // Root's, and closed enough.
            if is_own(&stat) || stat.st_mode & 0o077 & !mode != 0 {
                return Err(e.into());
            }
        }
    }
    for name in names(walk.fd())? {
        let Ok(stat) = statat(walk.fd(), &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let goes = kind.is_fifo() || kind.is_socket() || kind.is_symlink() || kind.is_file();
        if goes && is_of_a_mux(&name) && !walk.owners().trust(&stat) {
            let (path, uid) = (walk.path().join(&name), stat.st_uid);
            remove_in(&walk, name.as_ref())?;
            log::warn!("{}: removed: it belonged to user {uid}", path.display());
        }
    }
    Ok(())
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == Uid::effective().as_raw()
}

/// Whether a mux makes files of this name.
fn is_of_a_mux(name: &str) -> bool {
    let stem = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new")).unwrap_or(name);
    [ENDPOINTS, LOGS, LAST, LIFE, CONTAINER, LOCK, AGENT].contains(&stem)
        || ["sock-", "stage2-", KEPT].iter().any(|begin| stem.starts_with(begin))
}
