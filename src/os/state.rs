//! The state directory and all paths below it: built here, from a checked name, and nowhere else.
//!
//! Invariant: nothing outside the directory of the app is opened, bound or dialled through an
//! [`AppDir`], whatever links another user or a pod has put there. A mux keeps its files only where no
//! other user can reach or replace them. This module does not know what the files mean.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen,
    socket, sockopt,
};
use nix::unistd::{AccessFlags, Uid, access};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno as Failure;

use super::walk::{Links, Walk, is_link, refusal};
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// Where the muxes of the system have their directories.
const SYSTEM: &str = "/run/iottymux";
/// Where rkt's stage1 keeps what it knows of its apps: a directory of that name alone is none of its.
const RKT: &str = "/rkt";
/// What it has there for the muxes.
const RKT_STATE: &str = "iottymux";
/// What it has there for its reapers, in each pod.
const RKT_STATUS: &str = "status";
/// Mode of what belongs to the mux alone.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a directory that only the mux's user may enter.
const CLOSED: u32 = 0o700;
/// Mode of a directory in which others find what they know the name of.
const PASSABLE: u32 = 0o711;
/// The bits that let others write a directory.
const WRITABLE: u32 = 0o022;
/// Mode of a directory of root's that everybody may read.
const READABLE: u32 = 0o755;
/// Where the app's ends are while others may enter the app's directory: a FIFO itself asks nobody for
/// credentials.
const ENDS: &str = "ends";
/// The mux's own directory where root made the ends: the mux runs as another user then, and writes nowhere
/// else. Its presence tells the two layouts apart.
const MUX: &str = "mux";
/// A directory that the service manager makes when the mux's unit starts and removes when it stops
/// (`RuntimeDirectory=` of the templates). The names of the ends lead through it, so that without a mux they lead
/// nowhere: the start of the app fails, and neither waits for a reader nor writes a plain file.
const GATE: &str = "gate";
/// A directory in [`GATE`] from the moment on when the ends are prepared. Where it is missing the templates lead the
/// names of the ends nowhere, which an earlier mux has left.
const GATE_PREPARED: &str = "gate/prepared";
/// A directory that there never is, in which names lead nowhere.
const GONE: &str = "gone";
/// Below [`ENDS`], for the app's input: a mux that ends it puts another FIFO in its place, without being root.
/// The service manager opens what is there as root, so the directory is sticky and writable for all, which
/// has the kernel refuse to follow a link of anybody but root (`fs.protected_symlinks`, proc(5)); only the mux sees it.
const INPUT: &str = "input";
/// Mode of [`INPUT`] where the kernel protects it so.
const STICKY: u32 = 0o1777;
/// Whether it does: `1`.
const PROTECTED: &str = "/proc/sys/fs/protected_symlinks";
/// Longest path of a unix socket, bytes without the closing zero (`sun_path` of unix(7)).
const SUN_PATH: usize = 107;
/// The FIFO there that leads to the journal.
const JOURNAL: &str = "journal";
/// The run of the app's service that had begun before the ends were prepared, and so has others: a link to its
/// number.
const EARLIER: &str = "earlier";
/// The version-independent names below the directory of an app.
pub(crate) const ENDPOINTS: &str = "endpoints";
/// The socket of the session protocol.
pub(crate) const SESSION: &str = "sock-session";
/// The logs that the mux writes.
pub(crate) const LOGS: &str = "logs";
/// How the app ended.
pub(crate) const LAST: &str = "last.json";
/// What the name of an end begins with that waits for the app's next start.
pub(crate) const KEPT: &str = "kept-";
const LOCK: &str = "lock";

/// The directory that has one directory per app.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory that was asked for, else rkt's in a pod of rkt, else that of the system for root,
    /// else that of the user's session.
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
        let named = |e| anyhow!("cannot find a state directory: {e}; try --state-dir DIR");
        Ok(Self(session().map_err(named)?.join("iottymux")))
    }

    /// The directory with an app for somebody who attaches to it: that of [`StateDir::resolve`], else that
    /// of the system where the app is, whose mux may let this user in.
    ///
    /// # Errors
    /// As of [`StateDir::resolve`], where the system has no such app either.
    pub fn with_app(given: Option<PathBuf>, name: &AppName) -> Result<Self> {
        let is_given = given.is_some();
        let own = Self::resolve(given);
        let has_app = |state: &Self| state.0.join(name.as_str()).is_dir();
        match Self::of_system() {
            Some(system) if !is_given && !own.as_ref().is_ok_and(has_app) && has_app(&system) => {
                Ok(system)
            }
            _ => own,
        }
    }

    /// All directories with apps that this user may attach to.
    ///
    /// # Errors
    /// As of [`StateDir::resolve`], where the system has none either.
    pub fn all(given: Option<PathBuf>) -> Result<Vec<Self>> {
        if given.is_some() {
            return Ok(vec![Self::resolve(given)?]);
        }
        let system = Self::of_system().filter(|system| system.0.is_dir());
        match Self::resolve(None) {
            Err(e) if system.is_none() => Err(e),
            own => Ok(own.into_iter().chain(system).collect()),
        }
    }

    /// The system's directory, for users that have one of their own.
    fn of_system() -> Option<Self> {
        let is_ordinary = !Uid::effective().is_root() && Self::of_rkt().is_none();
        is_ordinary.then(|| Self(SYSTEM.into()))
    }

    /// rkt's directory, if this is a pod of rkt: one where its reapers have a place to write to, whether
    /// an app has a mux or not, or where there is such a directory already.
    pub(crate) fn of_rkt() -> Option<Self> {
        let rkt = Path::new(RKT);
        let ours = rkt.join(RKT_STATE);
        (rkt.join(RKT_STATUS).is_dir() || ours.is_dir()).then_some(Self(ours))
    }

    /// The directory of one app; it need not exist.
    pub fn app(&self, name: &AppName) -> AppDir {
        AppDir { name: name.clone(), path: self.0.join(name.as_str()), shared: false }
    }

    /// The apps that have a directory, sorted; none when there is no state directory yet.
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
            apps.sort();
            Ok(apps)
        };
        match list() {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            apps => apps.with_context(|| format!("cannot read state directory {self}")),
        }
    }

    /// The path itself.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
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
pub struct Lock(#[allow(dead_code, reason = "kept for its drop")] Flock<File>);

impl AppDir {
    /// The app.
    pub(crate) fn name(&self) -> &AppName {
        &self.name
    }

    /// The directory that the mux writes to: the app's, or the mux's own below it.
    pub(crate) fn dir(&self) -> PathBuf {
        if self.is_split() { self.path.join(MUX) } else { self.path.clone() }
    }

    /// A file of the mux, for messages and for opening.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir().join(file)
    }

    /// Whether the ends are root's and the mux has a directory of its own.
    pub(crate) fn is_split(&self) -> bool {
        fs::symlink_metadata(self.path.join(MUX)).is_ok_and(|there| there.is_dir())
    }

    /// The same directory, for a mux that lets other users come to its sockets, or does not.
    pub(crate) fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// The mode of a file: `open` where other users may come, else that of what is the mux's alone.
    pub(crate) fn mode(&self, open: u32) -> u32 {
        if self.shared { open } else { PRIVATE }
    }

    /// Makes the directory if there is none, closed to others.
    pub(crate) fn create(&self) -> Result<()> {
        let make = || -> io::Result<()> {
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

    /// Arranges the directory for a mux of another user, as root: what the app's unit opens becomes root's
    /// alone, and the mux gets a directory of its own. What an earlier mux of root has left in the
    /// first place goes.
    pub(crate) fn split(&self) -> Result<()> {
        let gate = self.path.join(GATE);
        let owner = fs::symlink_metadata(&gate).with_context(|| {
            format!(
                "cannot find {}, which RuntimeDirectory= of the mux's unit makes",
                gate.display()
            )
        })?;
        if !self.is_split() {
            self.remove_leftovers()?;
            for file in [LOGS, LOCK] {
                self.remove(file)?;
            }
        }
        let make = || -> io::Result<()> {
            let (ends, mux) = (self.path.join(ENDS), self.path.join(MUX));
            close_dir(&self.path, READABLE)?;
            close_dir(&ends, CLOSED)?;
            // From here on nobody else can replace what is in either.
            make_dir(&mux)?;
            lchown(&mux, Some(owner.uid()), Some(owner.gid()))?;
            let input = ends.join(INPUT);
            make_dir(&input)?;
            let is_protected = fs::read_to_string(PROTECTED).is_ok_and(|is| is.trim() == "1");
            set_mode(&input, if is_protected { STICKY } else { CLOSED })?;
            // For programs that know the document's place from rkt.
            replace_link(&self.path.join(ENDPOINTS), &Path::new(MUX).join(ENDPOINTS))
        };
        make().with_context(|| format!("cannot set up directory {}", self.path.display()))
    }

    /// Whether the mux that has a directory of its own here is one of another user.
    fn is_anothers(&self) -> bool {
        let owner = fs::symlink_metadata(self.path.join(MUX)).map(|there| there.uid());
        owner.is_ok_and(|uid| uid != Uid::effective().as_raw())
    }

    /// Takes back what [`AppDir::split`] has done, for a mux that is root and has all in one place again.
    pub(crate) fn join(&self) -> Result<()> {
        if !self.is_split() || !self.is_anothers() {
            return Ok(());
        }
        if self.is_locked() {
            bail!("cannot start app {}: another mux of this app is running", self.name);
        }
        let join = || {
            self.take_input_back()?;
            remove(&self.path.join(ENDPOINTS))?;
            fs::remove_dir_all(self.path.join(MUX))
        };
        join().with_context(|| format!("cannot remove {}", self.path.join(MUX).display()))
    }

    /// Moves the FIFO of the app's input to the other ends. It was the other user's to replace, so what is no FIFO
    /// goes: outside of [`INPUT`] the kernel would follow a link.
    fn take_input_back(&self) -> io::Result<()> {
        let (file, ends) = (Stream::Stdin.stage2(), self.path.join(ENDS));
        let to = ends.join(file);
        match fs::rename(ends.join(INPUT).join(file), &to) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(e) => Err(e),
            Ok(()) if fs::symlink_metadata(&to)?.file_type().is_fifo() => {
                // What belongs to another user is removed from there.
                lchown(&to, Some(Uid::effective().as_raw()), None)
            }
            Ok(()) => remove(&to),
        }
    }

    /// Removes what a mux of another user has left: nobody has it open, and what it made may be anything.
    pub(crate) fn remove_own(&self) -> Result<()> {
        if !self.is_split() {
            return Ok(());
        }
        let own = self.path.join(MUX);
        // The directory stays: by it clients know where to look.
        let remove = || -> io::Result<()> {
            for entry in fs::read_dir(&own)? {
                let path = entry?.path();
                if fs::symlink_metadata(&path)?.is_dir() {
                    fs::remove_dir_all(path)?;
                } else {
                    remove(&path)?;
                }
            }
            Ok(())
        };
        remove().with_context(|| format!("cannot empty directory {}", own.display()))
    }

    /// Marks the ends as prepared, until the service manager removes [`GATE`]: names still lead nowhere only of streams
    /// that the app has not, and go. As a directory, for which no link
    /// is followed: the mux's user could put one there.
    pub(crate) fn mark_prepared(&self) -> Result<()> {
        let path = self.path.join(GATE_PREPARED);
        let mark = || self.remove_dead_names().and_then(|()| make_dir(&path));
        mark().with_context(|| format!("cannot make directory {}", path.display()))
    }

    /// Notes the run of the app's service that has none of these ends, if there is one. Among the ends, where a
    /// mux of another user cannot write.
    ///
    /// # Errors
    /// When the directory does not take it.
    pub fn note_earlier(&self, run: Option<&str>) -> Result<()> {
        let path = self.path.join(ENDS).join(EARLIER);
        let noted = match run {
            Some(run) => replace_link(&path, Path::new(run)),
            None => remove(&path),
        };
        noted.with_context(|| format!("writing {}", path.display()))
    }

    /// Whether a run of the app's service is the one that was noted.
    #[must_use]
    pub fn is_earlier(&self, run: &str) -> bool {
        fs::read_link(self.path.join(ENDS).join(EARLIER)).is_ok_and(|noted| noted == Path::new(run))
    }

    /// Leads the names of the app's ends nowhere, as the templates do before all: opening one fails then, also to
    /// write.
    pub(crate) fn lead_nowhere(&self) -> io::Result<()> {
        Stream::ALL
            .iter()
            .map(|stream| stream.stage2())
            .try_for_each(|file| replace_link(&self.path.join(file), &Path::new(GONE).join(file)))
    }

    /// Removes the names that lead nowhere.
    fn remove_dead_names(&self) -> io::Result<()> {
        for path in Stream::ALL.map(|stream| self.path.join(stream.stage2())) {
            if fs::read_link(&path).is_ok_and(|to| to.starts_with(GONE)) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The file of options in the app's directory, where root has made the directory.
    pub(crate) fn old_options(&self) -> Option<String> {
        let path = self.path.join("env");
        let read = || read_plain(&path, limits::OPTIONS).ok();
        let (_, text) = self.is_split().then(read)??;
        String::from_utf8(text).ok()
    }

    /// Whether the ends are in a directory of their own, behind links.
    fn sets_ends_apart(&self) -> bool {
        self.shared || self.is_split()
    }

    /// Closes the directory to others, or lets them pass, and removes what others have put there before.
    /// To be called with the lock: the directory may be another mux's.
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

    /// The way to the directory. The links on it are only those of root and of this user, and the directory is
    /// not a link: it may be that of a pod, seen from outside.
    fn walk(&self) -> io::Result<Walk> {
        let dir = self.path("");
        let state = self.path.parent().unwrap_or(Path::new("/"));
        let mut walk = Walk::new()?;
        walk.go(state, Links::Trusted)?;
        walk.go(dir.strip_prefix(state).unwrap_or(&dir), Links::None)?;
        Ok(walk)
    }

    /// Opens a file of the directory, and never by a link.
    fn open(&self, file: &str, flags: OFlags) -> io::Result<File> {
        open_in(&self.walk()?, file.as_ref(), flags)
    }

    /// The root directory in which the directory is, if that is another than this process has.
    pub(crate) fn root(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.walk()?.root().map(Path::to_owned))
    }

    /// Whether the directory has a file of this name.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.walk().is_ok_and(|walk| statat(walk.fd(), file, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Lets others pass through the state directory, which is ours; of those above it is only said
    /// when they stand in the way.
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

    /// Removes the FIFO of the app's input where a mux of root had it, which nobody has open any more.
    pub(crate) fn remove_old_input(&self) -> Result<()> {
        let path = self.path.join(ENDS).join(Stream::Stdin.stage2());
        remove(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Gives the mux the FIFO of the app's input, so that it may put another in its place.
    pub(crate) fn give_input(&self) -> io::Result<()> {
        let mux = fs::symlink_metadata(self.dir())?;
        lchown(self.end(Stream::Stdin.stage2()), Some(mux.uid()), Some(mux.gid()))
    }

    /// Whether this process may put another FIFO in the place of the app's input.
    pub(crate) fn may_renew_input(&self) -> bool {
        let end = self.end(Stream::Stdin.stage2());
        end.parent().is_some_and(|dir| access(dir, AccessFlags::W_OK).is_ok())
    }

    /// Where an end of the app is.
    pub(crate) fn end(&self, file: &str) -> PathBuf {
        if self.sets_ends_apart() { self.apart(file) } else { self.path.join(file) }
    }

    /// Where an end is that is not in the app's directory itself.
    fn apart(&self, file: &str) -> PathBuf {
        let ends = self.path.join(ENDS);
        let path = ends.join(file);
        // That of a socket unit is not ours to put another in its place.
        let is_renewed = self.is_split()
            && file.ends_with(Stream::Stdin.name())
            && fs::symlink_metadata(&path).is_err();
        if is_renewed { ends.join(INPUT).join(file) } else { path }
    }

    /// Where an end of the app's is to be. What a mux with other rules has left is moved there
    /// first: a running app may have it open.
    pub(crate) fn place_end(&self, file: &str) -> io::Result<PathBuf> {
        let (to, open) = (self.end(file), self.path.join(file));
        let leads = |path: &Path| fs::read_link(path).is_ok_and(|to| to.ends_with(file));
        let is_taken = to == open && !leads(&open) && fs::symlink_metadata(&open).is_ok();
        let ends = self.path.join(ENDS);
        // Never what is in INPUT, which may be a link of the mux's: it is followed nowhere but there.
        for from in [open, ends.join(file)] {
            if from != to
                && !is_taken
                && !leads(&from)
                && let Err(e) = fs::rename(from, &to)
                && !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            {
                return Err(e);
            }
        }
        Ok(to)
    }

    /// Whether there is an end of this name, in the one place or the other.
    pub(crate) fn has_end(&self, file: &str) -> bool {
        let is_there = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|m| !m.is_symlink());
        is_there(self.path.join(file)) || is_there(self.apart(file))
    }

    /// Leads to an end that is in its place from where the app's unit looks for it.
    pub(crate) fn lead_to_end(&self, file: &str) -> io::Result<()> {
        if !self.sets_ends_apart() {
            return Ok(());
        }
        let apart = self.apart(file);
        let way = apart.strip_prefix(&self.path).unwrap_or(&apart);
        let way = if self.is_split() { Path::new(GATE).join("..").join(way) } else { way.into() };
        replace_link(&self.path.join(file), &way)
    }

    /// The FIFO of `iojournal@NAME.service`, which is among the app's ends, in a directory that is made if there is none.
    pub(crate) fn journal(&self) -> io::Result<PathBuf> {
        make_dir(&self.path.join(ENDS))?;
        Ok(self.path.join(ENDS).join(JOURNAL))
    }

    /// Removes an end of the app's.
    pub(crate) fn remove_end(&self, file: &str) -> Result<()> {
        let ends = self.path.join(ENDS);
        for path in [ends.join(INPUT).join(file), ends.join(file), self.path.join(file)] {
            remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Takes the lock of the app.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path(LOCK);
        loop {
            let what = || format!("cannot open {}", path.display());
            let walk = self.walk().with_context(what)?;
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = open_in(&walk, LOCK.as_ref(), flags).with_context(what)?;
            let stat = fstat(&file).map_err(io::Error::from).with_context(what)?;
            if !FileType::from_raw_mode(stat.st_mode).is_file() {
                bail!("{}: it is not a regular file", what());
            }
            let owner = fstat(walk.fd()).map_err(io::Error::from).with_context(what)?.st_uid;
            if !walk.owners().trust(&stat) && stat.st_uid != owner {
                // Its owner could hold it for ever.
                log::warn!("{}: removed: it belonged to user {}", path.display(), stat.st_uid);
                self.remove(LOCK)?;
                continue;
            }
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // A `run` that ended in between has removed the file: then the lock is of no use.
                Ok(lock) if is_same(&lock, &path) => return Ok(Lock(lock)),
                Ok(_) => {}
                // Whoever looks whether it is held has it for that moment, and not for itself.
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

    /// Whether a mux has the lock; not, as far as one can tell who may not open it.
    pub fn is_locked(&self) -> bool {
        self.open(LOCK, OFlags::RDONLY).is_ok_and(|file| {
            let looked = Flock::lock(file, FlockArg::LockSharedNonblock);
            matches!(looked, Err((_, Errno::EWOULDBLOCK)))
        })
    }

    /// Replaces a file as a whole: readers see the old content or the new one, with the new mode.
    pub(crate) fn replace(&self, file: &str, content: &[u8], mode: u32) -> Result<()> {
        let what = || format!("cannot write {}", self.path(file).display());
        replace_in(&self.walk().with_context(what)?, file.as_ref(), content, mode)
            .with_context(what)
    }

    /// Reads a plain file of at most `limit` bytes, and nothing else: the directory may be that of a
    /// pod, read from outside, and must not lead elsewhere or make its reader wait.
    pub(crate) fn read(&self, file: &str, limit: u64) -> io::Result<Vec<u8>> {
        read_open(self.open(file, OFlags::RDONLY)?, limit).map(|(_, content)| content)
    }

    /// Where rkt's reaper writes how the app ended, if this is the directory of one in a pod of rkt.
    pub(crate) fn rkt_status(&self) -> Option<PathBuf> {
        let rkt = Path::new(RKT);
        let ours = self.path.parent() == Some(&rkt.join(RKT_STATE));
        ours.then(|| rkt.join(RKT_STATUS).join(self.name.as_str()))
    }

    /// Removes a file; that there is none is fine.
    pub(crate) fn remove(&self, file: &str) -> Result<()> {
        remove(&self.path(file))
            .with_context(|| format!("cannot remove {}", self.path(file).display()))
    }

    /// Removes the directory if it is empty but for the lock, which the caller holds.
    pub(crate) fn remove_dir(&self) {
        // Whoever waits for this lock finds a file that is gone and a directory that is made anew.
        let _ = fs::remove_file(self.path(LOCK));
        // The mux's own goes last: it tells where the others are.
        let input = Path::new(ENDS).join(INPUT);
        for dir in [&*input, ENDS.as_ref(), GATE_PREPARED.as_ref(), GATE.as_ref(), MUX.as_ref()] {
            let _ = fs::remove_dir(self.path.join(dir));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Removes what tells of a mux, and of how its app ended, the document first: nothing else is found then.
    pub(crate) fn remove_leftovers(&self) -> Result<()> {
        self.remove(ENDPOINTS)?;
        self.remove(LAST)?;
        for file in Stream::ALL.map(Stream::socket).into_iter().chain([SESSION]) {
            self.remove(file)?;
        }
        Ok(())
    }

    /// Waits until no mux has the lock; at once where there is none.
    pub(crate) fn await_unlocked(&self) -> Result<()> {
        let Ok(file) = self.open(LOCK, OFlags::RDONLY) else { return Ok(()) };
        let what = |(_, e)| anyhow!("cannot wait for {}: {e}", self.path(LOCK).display());
        Flock::lock(file, FlockArg::LockShared).map(drop).map_err(what)
    }

    /// Removes all that a mux has ever left, and the directory if nothing else is in it; whether there
    /// was no mux that runs.
    pub(crate) fn clear(&self) -> Result<bool> {
        if !self.path.is_dir() {
            return Ok(true);
        }
        if self.is_locked() {
            return Ok(false);
        }
        if self.is_anothers() {
            self.remove_own()?;
        }
        let _lock = self.lock()?;
        for stream in Stream::ALL {
            for end in [stream.stage2().to_owned(), format!("{KEPT}{stream}")] {
                self.remove_end(&end)?;
            }
        }
        self.remove_end(JOURNAL)?;
        self.remove_end(EARLIER)?;
        self.remove_leftovers()?;
        self.remove(LOGS)?;
        // The link to the document, where the mux has a directory of its own.
        let _ = remove(&self.path.join(ENDPOINTS));
        self.remove_dir();
        Ok(true)
    }

    /// A listening stream socket, non-blocking, that appears under its name when it accepts.
    pub(crate) fn listen(&self, file: &str) -> Result<OwnedFd> {
        let make = || -> io::Result<OwnedFd> {
            let temporary = temporary(file);
            remove(&self.path(&temporary))?;
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
            // The file that bind(2) makes has this mode, less the umask.
            nix::sys::stat::fchmod(&fd, nix::sys::stat::Mode::from_bits_truncate(PRIVATE))?;
            self.with_address(&temporary, |address| bind(fd.as_raw_fd(), address))?;
            set_mode(&self.path(&temporary), self.mode(0o666))?;
            listen(&fd, Backlog::new(i32::try_from(limits::LISTEN_QUEUE).unwrap_or(i32::MAX))?)?;
            fs::rename(self.path(&temporary), self.path(file))?;
            Ok(fd)
        };
        make().with_context(|| format!("cannot listen on {}", self.path(file).display()))
    }

    /// A blocking stream socket connected to a socket of this directory. What serves it is root, this
    /// process's user, or the owner of the directory.
    pub(crate) fn connect(&self, file: &str) -> io::Result<OwnedFd> {
        let walk = self.walk()?;
        let there = open_in(&walk, file.as_ref(), OFlags::PATH)?;
        if !FileType::from_raw_mode(fstat(&there)?.st_mode).is_socket() {
            return Err(refusal("it is not a socket".into()));
        }
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let fd = UnixStream::from(fd);
        // A mux that accepts nobody, with a full queue, is waited for no longer than this.
        fd.set_write_timeout(Some(limits::CONNECT))?;
        // The file that was looked at, and no other that has its name now.
        let opened = PathBuf::from(format!("/proc/self/fd/{}", there.as_raw_fd()));
        match connect(fd.as_raw_fd(), &UnixAddr::new(&opened)?) {
            Err(Errno::ENOENT) => self.with_address(file, |at| connect(fd.as_raw_fd(), at))?,
            Err(Errno::EAGAIN) => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "the mux does not accept connections",
                ));
            }
            connected => connected?,
        }
        fd.set_write_timeout(None)?;
        let peer = getsockopt(&fd, sockopt::PeerCredentials)?.uid();
        let owner = fstat(walk.fd())?.st_uid;
        if ![0, Uid::effective().as_raw(), owner].contains(&peer) {
            return Err(refusal(format!(
                "user {peer} serves it; expected root, user {owner} or your own user"
            )));
        }
        Ok(fd.into())
    }

    /// Calls with the address of a socket of this directory. Where the path is too long for an
    /// address it goes through a descriptor of the directory, which needs /proc.
    fn with_address(
        &self,
        file: &str,
        call: impl Fn(&UnixAddr) -> nix::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(file);
        if path.as_os_str().as_bytes().len() <= SUN_PATH {
            return Ok(call(&UnixAddr::new(&path)?)?);
        }
        let dir = File::open(self.dir())?;
        let short = PathBuf::from(format!("/proc/self/fd/{}/{file}", dir.as_raw_fd()));
        Ok(call(&UnixAddr::new(&short)?)?)
    }
}

/// Where the FIFO of a socket unit is below the app's directory, if the mux has a directory of its own.
pub(crate) fn split_end(stream: Stream) -> String {
    format!("{ENDS}/{}", stream.stage2())
}

/// The directory of the user's session.
pub(crate) fn session() -> Result<PathBuf> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    dir.filter(|dir| dir.is_absolute()).context("XDG_RUNTIME_DIR is not set")
}

/// Reads a plain file of at most `limit` bytes, and nothing else; also tells when it was written.
pub(crate) fn read_plain(path: &Path, limit: u64) -> io::Result<(SystemTime, Vec<u8>)> {
    let flags = O_NOFOLLOW | O_NONBLOCK;
    read_open(OpenOptions::new().read(true).custom_flags(flags).open(path)?, limit)
}

fn read_open(file: File, limit: u64) -> io::Result<(SystemTime, Vec<u8>)> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok((metadata.modified()?, content))
}

/// Replaces a file as a whole: readers see the old content or the new one, with the new mode.
pub(crate) fn replace_in(walk: &Walk, file: &OsStr, content: &[u8], mode: u32) -> io::Result<()> {
    let new = temporary(&file.to_string_lossy());
    let remove = || remove_in(walk, new.as_ref());
    let write = || -> io::Result<()> {
        remove()?;
        let mut out = open_in(walk, new.as_ref(), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        out.write_all(content)?;
        fchmod(&out, Mode::from_raw_mode(mode))?;
        Ok(renameat(walk.fd(), &new, walk.fd(), file)?)
    };
    write().inspect_err(|_| drop(remove()))
}

/// Removes a file of a directory; that there is none is fine.
pub(crate) fn remove_in(walk: &Walk, file: &OsStr) -> io::Result<()> {
    match unlinkat(walk.fd(), file, AtFlags::empty()) {
        Err(e) if e != Failure::NOENT => Err(e.into()),
        _ => Ok(()),
    }
}

/// Reads a plain file of a directory, of at most `limit` bytes; also tells when it was written.
pub(crate) fn read_in(walk: &Walk, file: &OsStr, limit: u64) -> io::Result<(SystemTime, Vec<u8>)> {
    read_open(open_in(walk, file, OFlags::RDONLY)?, limit)
}

/// Opens a file of a directory, without following a link and without waiting for anybody. One that is made has
/// mode 0600.
fn open_in(walk: &Walk, file: &OsStr, flags: OFlags) -> io::Result<File> {
    let always = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match openat(walk.fd(), file, flags | always, Mode::from_raw_mode(PRIVATE)) {
        Err(Failure::LOOP) => Err(refusal("it is a symbolic link".into())),
        opened => Ok(File::from(opened?)),
    }
}

/// The names in a directory, as far as they are text.
fn names(dir: &OwnedFd) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(openat(dir, ".", flags, Mode::empty())?)? {
        names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
    }
    Ok(names)
}

/// Makes a directory that is closed to others, if there is none; refuses one that is not this user's. For a user
/// it may be root's, if nobody else can write it.
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

/// Gives a directory of this user this mode, after making it if there is none, and removes from it those files of a
/// mux that belong to other users: they came while others could write it.
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
    [ENDPOINTS, LOGS, LAST, LOCK].contains(&stem)
        || ["sock-", "stage2-", KEPT].iter().any(|begin| stem.starts_with(begin))
}

/// Makes a directory of root's where no other user can put anything, if there is none.
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(CLOSED).create(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_dir = fs::symlink_metadata(path)?.is_dir();
            if is_dir { Ok(()) } else { Err(e) }
        }
        made => made,
    }
}

/// The name of a file before it is whole.
fn temporary(file: &str) -> String {
    format!(".{file}.new")
}

/// Whether a path still leads to an open file.
fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Makes a path lead to another, in one step whatever it was before.
pub(crate) fn replace_link(path: &Path, to: &Path) -> io::Result<()> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(temporary(&file));
    remove(&temporary)?;
    std::os::unix::fs::symlink(to, &temporary)?;
    fs::rename(&temporary, path)
}

/// Removes a file; that there is none is fine.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Gives a file a mode, whatever the umask was when it was made.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
