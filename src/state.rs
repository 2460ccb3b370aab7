//! The state directory and all paths below it: built here, from a checked name, and nowhere else.
//!
//! Invariant: nothing outside the directory of the app is opened, bound or dialled through an
//! [`AppDir`]. It does not know what the files mean.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::unistd::Uid;

use crate::limits;
use crate::name::AppName;
use crate::stream::Stream;

/// Where rkt's stage1 keeps what it knows of its apps: a directory of that name alone is none of its.
const RKT: &str = "/rkt";
/// What it has there for the muxes.
const RKT_STATE: &str = "iottymux";
/// What it has there for its reapers, in each pod.
const RKT_STATUS: &str = "status";
/// Mode of what belongs to the mux alone.
pub const PRIVATE: u32 = 0o600;
/// Mode of a directory that only the mux's user may enter.
const CLOSED: u32 = 0o700;
/// Mode of a directory in which others find what they know the name of.
const PASSABLE: u32 = 0o711;
/// Where the app's ends are while others may enter the app's directory: who reaches a FIFO itself is
/// asked by nobody who he is.
const ENDS: &str = "ends";
/// Longest path of a unix socket, bytes without the closing zero (`sun_path` of unix(7)).
const SUN_PATH: usize = 107;
/// The version-independent names below the directory of an app.
pub const ENDPOINTS: &str = "endpoints";
/// The socket of the session protocol.
pub const SESSION: &str = "sock-session";
/// The logs that the mux writes.
pub const LOGS: &str = "logs";
/// How the app ended.
pub const LAST: &str = "last.json";
/// What the name of an end begins with that waits for the app's next start.
pub const KEPT: &str = "kept-";
const LOCK: &str = "lock";

/// The directory that has one directory per app.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory that was asked for, else rkt's in a pod of rkt, else that of the system for root,
    /// else that of the user's session.
    ///
    /// # Errors
    /// When the user has no session directory and named none.
    pub fn resolve(given: Option<PathBuf>) -> Result<Self> {
        if let Some(path) = given {
            return Ok(Self(std::path::absolute(&path).context("state directory")?));
        }
        if let Some(of_rkt) = Self::of_rkt() {
            return Ok(of_rkt);
        }
        if Uid::effective().is_root() {
            return Ok(Self("/run/iottymux".into()));
        }
        let named = |e| anyhow!("state directory: {e}; name one with --state-dir");
        Ok(Self(session().map_err(named)?.join("iottymux")))
    }

    /// rkt's directory, if this is a pod of rkt: one where its reapers have a place to write to, whether
    /// an app has a mux or not, or where there is such a directory already.
    #[must_use]
    pub fn of_rkt() -> Option<Self> {
        let rkt = Path::new(RKT);
        let ours = rkt.join(RKT_STATE);
        (rkt.join(RKT_STATUS).is_dir() || ours.is_dir()).then_some(Self(ours))
    }

    /// The directory of one app; it need not exist.
    #[must_use]
    pub fn app(&self, name: &AppName) -> AppDir {
        AppDir { name: name.clone(), path: self.0.join(name.as_str()), shared: false }
    }

    /// The apps that have a directory, sorted; none when there is no state directory yet.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn apps(&self) -> Result<Vec<AppName>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).with_context(|| format!("state directory {self}")),
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let mut apps: Vec<AppName> =
            entries.filter_map(Result::ok).filter(|e| e.path().is_dir()).filter_map(name).collect();
        apps.sort();
        Ok(apps)
    }

    /// The path itself.
    #[must_use]
    pub fn path(&self) -> &Path {
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
    #[must_use]
    pub fn name(&self) -> &AppName {
        &self.name
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.path
    }

    /// A file of the directory, for messages and for opening.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// The same directory, for a mux that lets other users come to its sockets, or does not.
    #[must_use]
    pub fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// The mode of a file: `open` where other users may come, else that of what is the mux's alone.
    #[must_use]
    pub fn mode(&self, open: u32) -> u32 {
        if self.shared { open } else { PRIVATE }
    }

    /// Makes the directory if there is none, closed to others.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("making directory {}", parent.display()))?;
        }
        make_dir(&self.path).with_context(|| format!("making directory {}", self.path.display()))
    }

    /// Closes the directory to others, or lets them pass. For who has the lock: the directory may be
    /// another mux's.
    ///
    /// # Errors
    /// When its mode cannot be changed.
    pub fn arrange(&self, _: &Lock) -> Result<()> {
        let what = || format!("arranging directory {}", self.path.display());
        if self.shared {
            make_dir(&self.path.join(ENDS)).with_context(what)?;
            set_mode(&self.path, PASSABLE).with_context(what)?;
            self.open_the_way();
        } else if fs::metadata(&self.path).with_context(what)?.mode() & 0o777 == PASSABLE {
            // An earlier mux has let others in.
            set_mode(&self.path, CLOSED).with_context(what)?;
        }
        Ok(())
    }

    /// Lets others pass through the state directory, which is ours; of those above it is only said
    /// when they stand in the way.
    fn open_the_way(&self) {
        for (above, dir) in self.path.ancestors().skip(1).enumerate() {
            let Ok(mode) = fs::metadata(dir).map(|there| there.mode()) else { continue };
            let passable = mode & 0o001 != 0;
            if !passable && (above > 0 || set_mode(dir, mode & 0o777 | 0o111).is_err()) {
                log::warn!("app {}: others cannot pass through {}", self.name, dir.display());
            }
        }
    }

    /// Where an end of the app's is to be. What a mux with other rules has left is moved there
    /// first: a running app may have it open.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn place_end(&self, file: &str) -> io::Result<PathBuf> {
        let (open, closed) = (self.path(file), self.path.join(ENDS).join(file));
        let leads = fs::read_link(&open).is_ok_and(|to| to == Path::new(ENDS).join(file));
        let free = leads || fs::symlink_metadata(&open).is_err();
        let (from, to, moves) =
            if self.shared { (&open, &closed, !leads) } else { (&closed, &open, free) };
        if moves
            && let Err(e) = fs::rename(from, to)
            && e.kind() != ErrorKind::NotFound
        {
            return Err(e);
        }
        Ok(to.clone())
    }

    /// Whether there is an end of this name, in the one place or the other.
    #[must_use]
    pub fn has_end(&self, file: &str) -> bool {
        let is_there = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|m| !m.is_symlink());
        is_there(self.path(file)) || is_there(self.path.join(ENDS).join(file))
    }

    /// Leads to an end that is in its place from where the app's unit looks for it.
    ///
    /// # Errors
    /// When the directory does not take it.
    pub fn lead_to_end(&self, file: &str) -> io::Result<()> {
        if !self.shared {
            return Ok(());
        }
        replace_link(&self.path(file), &Path::new(ENDS).join(file))
    }

    /// Removes an end of the app's.
    ///
    /// # Errors
    /// When it is there and stays.
    pub fn remove_end(&self, file: &str) -> Result<()> {
        if self.shared {
            self.remove(&format!("{ENDS}/{file}"))?;
        }
        self.remove(file)
    }

    /// Takes the lock of the app.
    ///
    /// # Errors
    /// When another mux of this app runs, or the lock file cannot be opened.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path(LOCK);
        loop {
            let what = || format!("opening {}", path.display());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(PRIVATE)
                .custom_flags(O_NOFOLLOW | O_NONBLOCK)
                .open(&path)
                .with_context(what)?;
            if !file.metadata().with_context(what)?.is_file() {
                bail!("{}: it is no plain file", what());
            }
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // A `run` that ended in between has removed the file: then the lock is of no use.
                Ok(lock) if is_same(&lock, &path) => return Ok(Lock(lock)),
                Ok(_) => {}
                // Whoever looks whether it is held has it for that moment, and not for itself.
                Err((file, Errno::EWOULDBLOCK)) => {
                    if Flock::lock(file, FlockArg::LockSharedNonblock).is_err() {
                        bail!(
                            "starting app {}: another mux of this app is running (it holds {})",
                            self.name,
                            path.display()
                        );
                    }
                }
                Err((_, e)) => {
                    return Err(e).with_context(|| format!("locking {}", path.display()));
                }
            }
        }
    }

    /// Whether a mux has the lock; not, as far as one can tell who may not open it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        File::open(self.path(LOCK)).is_ok_and(|file| {
            let looked = Flock::lock(file, FlockArg::LockSharedNonblock);
            matches!(looked, Err((_, Errno::EWOULDBLOCK)))
        })
    }

    /// Replaces a file as a whole: readers see the old content or the new one, with the new mode.
    ///
    /// # Errors
    /// When the directory or the disk does not take it.
    pub fn replace(&self, file: &str, content: &[u8], mode: u32) -> Result<()> {
        replace(&self.path(file), content, mode)
    }

    /// Reads a plain file of at most `limit` bytes, and nothing else: the directory may be that of a
    /// pod, read from outside, and must not lead elsewhere or make its reader wait.
    ///
    /// # Errors
    /// Those of reading, unchanged, for callers that tell them apart; others when it is no plain file
    /// or too large.
    pub fn read(&self, file: &str, limit: u64) -> io::Result<Vec<u8>> {
        read_plain(&self.path(file), limit).map(|(_, content)| content)
    }

    /// Where rkt's reaper writes how the app ended, if this is the directory of one in a pod of rkt.
    #[must_use]
    pub fn rkt_status(&self) -> Option<PathBuf> {
        let rkt = Path::new(RKT);
        let ours = self.path.parent() == Some(&rkt.join(RKT_STATE));
        ours.then(|| rkt.join(RKT_STATUS).join(self.name.as_str()))
    }

    /// Removes a file; that there is none is fine.
    ///
    /// # Errors
    /// When it is there and stays.
    pub fn remove(&self, file: &str) -> Result<()> {
        remove(&self.path(file)).with_context(|| format!("removing {}", self.path(file).display()))
    }

    /// Removes the directory if it is empty but for the lock, which the caller holds.
    pub fn remove_dir(&self) {
        // Whoever waits for this lock finds a file that is gone and a directory that is made anew.
        let _ = fs::remove_file(self.path(LOCK));
        let _ = fs::remove_dir(self.path.join(ENDS));
        let _ = fs::remove_dir(&self.path);
    }

    /// Removes what tells of a mux, and of how its app ended, the document first: nothing else is found then.
    ///
    /// # Errors
    /// When something is there and stays.
    pub fn remove_leftovers(&self) -> Result<()> {
        self.remove(ENDPOINTS)?;
        self.remove(LAST)?;
        for file in Stream::ALL.map(Stream::socket).into_iter().chain([SESSION]) {
            self.remove(file)?;
        }
        Ok(())
    }

    /// Waits until no mux has the lock; at once where there is none.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn await_unlocked(&self) -> Result<()> {
        let Ok(file) = File::open(self.path(LOCK)) else { return Ok(()) };
        let what = |(_, e)| anyhow!("waiting for {}: {e}", self.path(LOCK).display());
        Flock::lock(file, FlockArg::LockShared).map(drop).map_err(what)
    }

    /// Removes all that a mux has ever left, and the directory if nothing else is in it; whether there
    /// was no mux that runs.
    ///
    /// # Errors
    /// When something is there and stays.
    pub fn clear(&self) -> Result<bool> {
        if !self.path.is_dir() {
            return Ok(true);
        }
        if self.is_locked() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        for stream in Stream::ALL {
            for end in [stream.stage2().to_owned(), format!("{KEPT}{stream}")] {
                self.remove(&format!("{ENDS}/{end}"))?;
                self.remove(&end)?;
            }
        }
        self.remove_leftovers()?;
        self.remove(LOGS)?;
        self.remove_dir();
        Ok(true)
    }

    /// A listening stream socket, non-blocking, that appears under its name when it accepts.
    ///
    /// # Errors
    /// When it cannot be made there.
    pub fn listen(&self, file: &str) -> Result<OwnedFd> {
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
        make().with_context(|| format!("listening on {}", self.path(file).display()))
    }

    /// A blocking stream socket connected to a socket of this directory.
    ///
    /// # Errors
    /// Those of connect(2), unchanged, for callers that tell them apart.
    pub fn connect(&self, file: &str) -> io::Result<OwnedFd> {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        self.with_address(file, |address| connect(fd.as_raw_fd(), address))?;
        Ok(fd)
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
        let dir = File::open(&self.path)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}/{file}", dir.as_raw_fd()));
        Ok(call(&UnixAddr::new(&short)?)?)
    }
}

/// The directory of the user's session.
///
/// # Errors
/// When the user has none.
pub fn session() -> Result<PathBuf> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    dir.filter(|dir| dir.is_absolute()).context("XDG_RUNTIME_DIR is not set")
}

/// Reads a plain file of at most `limit` bytes, and nothing else; also tells when it was written.
///
/// # Errors
/// As of [`AppDir::read`].
pub fn read_plain(path: &Path, limit: u64) -> io::Result<(SystemTime, Vec<u8>)> {
    let flags = O_NOFOLLOW | O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("it has more than {limit} bytes")));
    }
    Ok((metadata.modified()?, content))
}

/// Replaces a file as a whole: readers see the old content or the new one, with the new mode.
///
/// # Errors
/// When the directory or the disk does not take it.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(temporary(&file));
    let write = || -> io::Result<()> {
        remove(&temporary)?;
        let mut out =
            OpenOptions::new().create_new(true).write(true).mode(PRIVATE).open(&temporary)?;
        out.write_all(content)?;
        set_mode(&temporary, mode)?;
        fs::rename(&temporary, path)
    };
    write()
        .inspect_err(|_| drop(remove(&temporary)))
        .with_context(|| format!("writing {}", path.display()))
}

/// The name of a file before it is whole.
fn temporary(file: &str) -> String {
    format!(".{file}.new")
}

/// Makes a directory that is closed to others, if there is none.
fn make_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(CLOSED).create(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        done => done,
    }
}

/// Whether a path still leads to an open file.
fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Makes a path lead to another, in one step whatever it was before.
///
/// # Errors
/// When the directory does not take it.
pub fn replace_link(path: &Path, to: &Path) -> io::Result<()> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(temporary(&file));
    remove(&temporary)?;
    std::os::unix::fs::symlink(to, &temporary)?;
    fs::rename(&temporary, path)
}

/// Removes a file; that there is none is fine.
///
/// # Errors
/// When it is there and stays.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Gives a file a mode, whatever the umask was when it was made.
///
/// # Errors
/// Those of chmod(2).
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
