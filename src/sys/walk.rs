//! Opens directories step by step, so that a link of another user cannot redirect a path.
//!
//! A link is followed only if root or this process's user made it. In another root (behind
//! `/proc/PID/root`) none is followed, because its absolute links would lead into this root. Each
//! step is one openat(2) with `O_NOFOLLOW`. openat2(2) does the same for a whole path, but
//! systemd's `RestrictSUIDSGID=` and older kernels refuse it, so the steps would be needed anyway.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::Uid;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fchmod, fstat, fstatfs, mkdirat,
    openat, readlinkat, statat,
};
use rustix::io::Errno;

/// Links followed on one path at most: as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Mode of the directories that are made on the way.
const MADE: Mode = Mode::from_raw_mode(0o755);
/// The bit that lets every user write a directory.
const WORLD_WRITABLE: u32 = 0o002;
/// The bit that lets only the owner of a file rename or remove it.
const STICKY: u32 = 0o1000;
/// How a directory is opened to go on from it. This needs no right to read the directory.
const PASS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Which links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// None.
    None,
    /// Those of root and of this process's user.
    Trusted,
    /// Those of all users. For a path that the user of this process has typed.
    All,
}

/// A way through directories.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The directory that was reached, opened with `O_PATH`.
    fd: OwnedFd,
    /// Its path, without links.
    path: PathBuf,
    /// The path of another root that was entered on the way.
    root: Option<PathBuf>,
    owners: Owners,
    makes: bool,
    is_guarded: bool,
}

impl Walk {
    /// A way that begins at the root directory.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = openat(CWD, "/", PASS, Mode::empty())?;
        let owners = Owners::new(&fstat(&fd)?);
        let (path, root) = (PathBuf::from("/"), None);
        Ok(Self { fd, path, root, owners, makes: false, is_guarded: false })
    }

    /// Another way that begins where this one is.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let (fd, path, root) = (self.fd.try_clone()?, self.path.clone(), self.root.clone());
        Ok(Self { fd, path, root, ..*self })
    }

    /// Makes missing directories, with mode 0755 independent of the umask.
    pub(crate) fn making(self) -> Self {
        Self { makes: true, ..self }
    }

    /// Refuses directories in which another user could replace the next step: those of other users,
    /// and those that all users can write and that are not sticky. Group-writable ones are
    /// accepted: root gave them to that group.
    pub(crate) fn guarded(self) -> Self {
        Self { is_guarded: true, ..self }
    }

    /// The directory that was reached.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// As [`Walk::fd`], to keep.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Its path, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the other root in which this directory is.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Goes on through these directories.
    pub(crate) fn go(&mut self, path: &Path, links: Links) -> io::Result<()> {
        self.follow(components(path), links, false).map(drop)
    }

    /// Goes on into a directory of this one, unless there is none of this name.
    pub(crate) fn go_if_there(&mut self, name: &OsStr) -> io::Result<()> {
        match openat(&self.fd, name, PASS, Mode::empty()) {
            Ok(fd) => self.enter(fd, name),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Opens the directory of a file, and returns the file's name there. A link as the last part is
    /// followed like the others.
    pub(crate) fn find(&mut self, path: &Path, links: Links) -> io::Result<OsString> {
        let name = self.follow(components(path), links, true)?;
        name.ok_or_else(|| refusal("it is not the path of a file".into()))
    }

    /// Goes through the remaining names; with `stops`, up to the last name, and returns it.
    fn follow(
        &mut self,
        mut left: VecDeque<OsString>,
        links: Links,
        stops: bool,
    ) -> io::Result<Option<OsString>> {
        let mut followed = 0;
        while let Some(name) = left.pop_front() {
            let is_last = stops && left.is_empty() && name != "/" && name != "..";
            let target = if is_last {
                match statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if is_link(&stat) => self.link(&name, links)?,
                    _ => return Ok(Some(name)),
                }
            } else {
                self.step(&name, links)?
            };
            if let Some(target) = target {
                followed += 1;
                if followed > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                for name in components(&target).into_iter().rev() {
                    left.push_front(name);
                }
            }
        }
        Ok(None)
    }

    /// Goes into a directory of this one, or returns where the link of that name leads.
    fn step(&mut self, name: &OsStr, links: Links) -> io::Result<Option<PathBuf>> {
        if name == "/" {
            let is_there = self.root.is_none() && self.path == Path::new("/");
            if !is_there {
                self.fd = openat(CWD, "/", PASS, Mode::empty())?;
                self.path = PathBuf::from("/");
            }
            return Ok(None);
        }
        if name == ".." && (self.root.is_some() || links == Links::None) {
            return Err(refusal(format!("{}/.. leads out of its directory", self.path.display())));
        }
        if self.is_guarded {
            self.check(true)?;
        }
        let fd = match openat(&self.fd, name, PASS, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOTDIR | Errno::LOOP) => return self.link(name, links),
            Err(Errno::NOENT) if self.makes => match mkdirat(&self.fd, name, MADE) {
                // Somebody else was faster.
                Err(Errno::EXIST) => openat(&self.fd, name, PASS, Mode::empty())?,
                Err(e) => return Err(e.into()),
                Ok(()) => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    let made = openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty())?;
                    fchmod(&made, MADE)?;
                    made
                }
            },
            Err(e) => return Err(e.into()),
        };
        self.enter(fd, name);
        Ok(None)
    }

    fn enter(&mut self, fd: OwnedFd, name: &OsStr) {
        self.fd = fd;
        if name == ".." {
            self.path.pop();
        } else {
            self.path.push(name);
        }
    }

    /// The target of the link of this name, if it may be followed. Follows it if it is one of the
    /// kernel's.
    fn link(&mut self, name: &OsStr, links: Links) -> io::Result<Option<PathBuf>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = openat(&self.fd, name, flags, Mode::empty())?;
        let stat = fstat(&link)?;
        if !is_link(&stat) {
            return Err(Errno::NOTDIR.into());
        }
        let shown = self.path.join(name);
        let refuse =
            |why: String| Err(refusal(format!("{} is a symbolic link{why}", shown.display())));
        if self.root.is_some() {
            return refuse(" in another root".into());
        }
        let target =
            PathBuf::from(OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes()));
        if is_proc(&self.fd) && target.is_absolute() {
            // Not a path but an object of the kernel's: another root, or an open file.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(&self.fd, name, flags, Mode::empty())?;
            self.enter(fd, name);
            self.root = Some(self.path.clone());
            return Ok(None);
        }
        match links {
            Links::None => refuse(String::new()),
            Links::Trusted if !self.owners.trust(&stat) => {
                refuse(format!(" of user {}, who is not trusted", stat.st_uid))
            }
            _ => Ok(Some(target)),
        }
    }

    /// Refuses a directory whose files another user could replace; `is_sticky_fine` if the caller
    /// then checks the owner of its file.
    pub(crate) fn check(&self, is_sticky_fine: bool) -> io::Result<()> {
        let stat = fstat(&self.fd)?;
        self.owners.check(&stat, &self.path)?;
        let is_sticky = stat.st_mode & STICKY != 0;
        if stat.st_mode & WORLD_WRITABLE != 0 && !(is_sticky && is_sticky_fine) {
            return Err(writable(&self.path));
        }
        Ok(())
    }

    /// The users whose files are trusted.
    pub(crate) fn owners(&self) -> Owners {
        self.owners
    }
}

/// The users whose files are trusted: root, the user of this process, and the owner of the root
/// directory. The last one is root by another number, for a process in a user namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners([u32; 3]);

impl Owners {
    fn new(root: &Stat) -> Self {
        Self([0, Uid::effective().as_raw(), root.st_uid])
    }

    /// Whether one of them owns this file.
    pub(crate) fn trust(&self, stat: &Stat) -> bool {
        self.0.contains(&stat.st_uid)
    }

    fn check(self, stat: &Stat, path: &Path) -> io::Result<()> {
        if self.trust(stat) {
            return Ok(());
        }
        let (path, uid) = (path.display(), stat.st_uid);
        Err(refusal(format!(
            "directory {path} belongs to user {uid}, who can replace its files; try another one"
        )))
    }
}

fn writable(path: &Path) -> io::Error {
    let path = path.display();
    refusal(format!(
        "directory {path} is writable by all users, who can replace its files; try another one"
    ))
}

/// An error that says why a path is refused.
pub(crate) fn refusal(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Whether it is a symbolic link.
pub(crate) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_symlink()
}

/// Whether a directory is one of procfs, where only the kernel makes links.
pub(crate) fn is_proc(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC)
}

/// The parts of a path; `/` is the first one of an absolute path.
fn components(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component| match component {
        Component::CurDir | Component::Prefix(_) => None,
        Component::RootDir => Some("/".into()),
        Component::ParentDir => Some("..".into()),
        Component::Normal(name) => Some(name.to_owned()),
    };
    path.components().filter_map(part).collect()
}
