//! The app's ends (FIFOs, or the link to its terminal), and the names by which its unit opens them.
//!
//! In the split layout root makes the ends for a mux of another user; `docs/dev/architecture.md` has a
//! picture of it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid};

use super::{AppDir, ENDPOINTS, ENDS, LOCK, LOGS, MUX, READABLE, close_dir};
use crate::sys::files::{CLOSED, make_dir, remove, replace_link};
use crate::types::stream::Stream;

/// A directory that the service manager makes when the mux's unit starts and removes when it stops
/// (`RuntimeDirectory=` of the templates). The names of the ends lead through it, so they dangle
/// without a mux. Then the start of the app fails, instead of waiting for a reader or writing a
/// plain file.
pub(super) const GATE: &str = "gate";
/// A directory in [`GATE`] that exists when the ends are prepared: then the templates try the mux
/// even if its program is missing. No name leads through it, since a mux's user may replace it.
pub(super) const GATE_PREPARED: &str = "gate/prepared";
/// A directory that never exists, for dangling links.
const GONE: &str = "gone";
/// A link to the number of the service's run that began before the ends were prepared, and so has
/// other streams.
pub(super) const EARLIER: &str = "earlier";

impl AppDir {
    /// Whether a unit prepares the ends: systemd has made the gate.
    pub(crate) fn has_gate(&self) -> bool {
        fs::symlink_metadata(self.path.join(GATE)).is_ok_and(|it| it.is_dir())
    }

    /// The user and the group of the mux's unit, to whom systemd gives the gate.
    pub(crate) fn owner(&self) -> Result<(Uid, Gid)> {
        let gate = self.path.join(GATE);
        let it = fs::symlink_metadata(&gate).with_context(|| {
            format!(
                "cannot find {}, which RuntimeDirectory= of the mux's unit makes",
                gate.display()
            )
        })?;
        Ok((Uid::from_raw(it.uid()), Gid::from_raw(it.gid())))
    }

    /// The directory that a mux uses that is not root, in the split layout.
    pub(crate) fn of_mux(&self) -> PathBuf {
        self.path.join(MUX)
    }

    /// Sets up the split layout, as root: the files that the app's unit opens belong to root, and
    /// the mux gets a directory of its own. Removes the files of an earlier mux of root.
    pub(crate) fn split(&self) -> Result<()> {
        let (uid, gid) = self.owner()?;
        self.give_to(uid.as_raw(), gid.as_raw())?;
        let make = || -> io::Result<()> {
            close_dir(&self.path.join(ENDS), CLOSED)?;
            // For programs that know the document's place from rkt.
            replace_link(&self.path.join(ENDPOINTS), &Path::new(MUX).join(ENDPOINTS))
        };
        make().with_context(|| format!("cannot set up directory {}", self.path.display()))
    }

    /// Gives the mux a directory of its own, as root: all that an app has here whose ends are not
    /// files, as those of containers. Removes the files of an earlier mux of root.
    pub(crate) fn give_to(&self, uid: u32, gid: u32) -> Result<()> {
        if !self.is_split() {
            self.create()?;
            self.remove_leftovers()?;
            for file in [LOGS, LOCK] {
                self.remove(file)?;
            }
        }
        let make = || -> io::Result<()> {
            let mux = self.path.join(MUX);
            close_dir(&self.path, READABLE)?;
            // From here on no other user can replace the files in it.
            make_dir(&mux)?;
            lchown(&mux, Some(uid), Some(gid))
        };
        make().with_context(|| format!("cannot set up directory {}", self.path.display()))
    }

    /// Whether the app is a service with the split layout: those of containers have no ends.
    pub(crate) fn is_of_service(&self) -> bool {
        self.is_split() && fs::symlink_metadata(self.path.join(ENDS)).is_ok_and(|it| it.is_dir())
    }

    /// Whether the layout is split and the mux's directory belongs to another user.
    pub(super) fn is_anothers(&self) -> bool {
        let owner = fs::symlink_metadata(self.path.join(MUX)).map(|there| there.uid());
        owner.is_ok_and(|uid| uid != Uid::effective().as_raw())
    }

    /// Undoes [`AppDir::split`], for a mux that runs as root.
    pub(crate) fn join(&self) -> Result<()> {
        if !self.is_split() || !self.is_anothers() {
            return Ok(());
        }
        if self.is_locked() {
            bail!("cannot start app {}: another mux of this app is running", self.name);
        }
        let join = || {
            remove(&self.path.join(ENDPOINTS))?;
            fs::remove_dir_all(self.path.join(MUX))
        };
        join().with_context(|| format!("cannot remove {}", self.path.join(MUX).display()))
    }

    /// Marks the ends as prepared until systemd removes [`GATE`], and removes the dangling names of
    /// streams that the app does not have. The mark is a directory, because making one does not
    /// follow a link of the mux's user.
    pub(crate) fn mark_prepared(&self) -> Result<()> {
        let path = self.path.join(GATE_PREPARED);
        let mark = || self.remove_dead_names().and_then(|()| make_dir(&path));
        mark().with_context(|| format!("cannot make directory {}", path.display()))
    }

    /// Records the run of the app's service that does not have these ends, if there is one. The
    /// record is where a mux of another user cannot write, and all users can read.
    pub(crate) fn note_earlier(&self, run: Option<&str>) -> Result<()> {
        let path = self.path.join(EARLIER);
        let noted = match run {
            Some(run) => replace_link(&path, Path::new(run)),
            None => remove(&path),
        };
        noted.with_context(|| format!("cannot write {}", path.display()))
    }

    /// The run that was recorded.
    pub(crate) fn earlier_run(&self) -> Option<String> {
        fs::read_link(self.path.join(EARLIER)).ok()?.into_os_string().into_string().ok()
    }

    /// Makes links and missing names of the app's ends dangling links: then opening one fails, and
    /// the service manager makes no plain file in its place. What else is there is not ours to lose.
    pub(crate) fn lead_nowhere(&self) -> Result<()> {
        let nowhere = |file: &str| {
            let (name, there) = (self.path.join(file), Path::new(GONE).join(file));
            let is_free = fs::symlink_metadata(&name).map_or(true, |it| it.is_symlink());
            if is_free { replace_link(&name, &there) } else { Ok(()) }
        };
        Stream::ALL
            .iter()
            .map(|stream| stream.stage2())
            .try_for_each(nowhere)
            .with_context(|| format!("cannot prepare the names in {}", self.path.display()))
    }

    /// Removes the dangling names.
    pub(super) fn remove_dead_names(&self) -> io::Result<()> {
        for path in Stream::ALL.map(|stream| self.path.join(stream.stage2())) {
            if fs::read_link(&path).is_ok_and(|to| to.starts_with(GONE)) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Whether the ends are in their own directory, behind links.
    pub(super) fn sets_ends_apart(&self) -> bool {
        self.shared || self.is_split()
    }

    /// Where an end of the app is.
    pub(crate) fn end(&self, file: &str) -> PathBuf {
        if self.sets_ends_apart() { self.apart(file) } else { self.path.join(file) }
    }

    /// Where an end is that is not in the app's directory itself.
    pub(super) fn apart(&self, file: &str) -> PathBuf {
        self.path.join(ENDS).join(file)
    }

    /// The path for an end of the app. An end that a mux with the other layout left is moved there
    /// first, since a running app may have it open.
    pub(crate) fn place_end(&self, file: &str) -> io::Result<PathBuf> {
        let (to, open) = (self.end(file), self.path.join(file));
        let leads = |path: &Path| fs::read_link(path).is_ok_and(|to| to.ends_with(file));
        let is_taken = to == open && !leads(&open) && fs::symlink_metadata(&open).is_ok();
        let ends = self.path.join(ENDS);
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

    /// Removes an end of the app's.
    pub(crate) fn remove_end(&self, file: &str) -> Result<()> {
        let ends = self.path.join(ENDS);
        for path in [ends.join(file), self.path.join(file)] {
            remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// The path of a socket unit's FIFO below the app's directory in the split layout.
pub(crate) fn split_end(stream: Stream) -> String {
    format!("{ENDS}/{}", stream.stage2())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::StateDir;
    use super::*;

    /// A reader may come while the layout changes: it finds the document or none, but never a link.
    #[test]
    fn a_document_is_read_while_the_layout_is_split() {
        /// In one of about ten the reader comes in the middle.
        const APPS: u32 = 500;
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::resolve(Some(temp.path().into())).unwrap();
        for app in 0..APPS {
            let dir = state.app(&format!("app-{app}").parse().unwrap());
            dir.create().unwrap();
            fs::create_dir(dir.path(GATE)).unwrap();
            thread::scope(|threads| {
                let reader = threads.spawn(|| {
                    loop {
                        match dir.read(ENDPOINTS, 100) {
                            Err(e) if e.kind() == ErrorKind::NotFound => {}
                            read => break read.unwrap(),
                        }
                    }
                });
                let split = dir.split();
                fs::write(dir.path(ENDPOINTS), "{}").unwrap();
                split.unwrap();
                // The mux writes it whole; here it may be seen empty.
                assert!(["", "{}"].contains(&&*String::from_utf8(reader.join().unwrap()).unwrap()));
            });
        }
    }
}
