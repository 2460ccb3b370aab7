//! The directories of rkt's stage1: where muxes have theirs in a pod of rkt, and how the pod shows
//! what has become of an app.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, statat};

use super::{AppDir, StateDir};
use crate::sys::walk::{Links, Walk};
use crate::types::name::AppName;

/// The directory of rkt's stage1. Its existence alone does not prove a rkt pod.
pub(super) const RKT: &str = "/rkt";
/// Its subdirectory for muxes.
pub(super) const STATE: &str = "iottymux";
/// Its subdirectory for reapers, present in each pod.
const STATUS: &str = "status";
/// The images of all apps, in the root of a pod. rkt removes that of an app with the app.
const IMAGES: &str = "opt/stage2";

impl StateDir {
    /// rkt's directory, if this is a pod of rkt: its reapers have a directory for their reports
    /// there, or rkt's state directory exists already.
    pub(crate) fn of_rkt() -> Option<Self> {
        let rkt = Path::new(RKT);
        let ours = rkt.join(STATE);
        (rkt.join(STATUS).is_dir() || ours.is_dir()).then_some(Self(ours))
    }

    /// Whether `rkt app rm` has removed this app from its pod: that leaves the app's directory.
    pub(super) fn is_removed_from_pod(&self, name: &AppName) -> bool {
        let rkt = Path::new(RKT).file_name().unwrap_or_default();
        let Some(root) = self.0.parent().filter(|rkts| rkts.file_name() == Some(rkt)) else {
            return false;
        };
        let has_no_image = || {
            let mut walk = Walk::new().ok()?;
            walk.go(&root.parent()?.join(IMAGES), Links::Trusted).ok()?;
            let image = statat(walk.fd(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            Some(image.is_err_and(|e| e.kind() == ErrorKind::NotFound))
        };
        self.0.ends_with(STATE) && has_no_image() == Some(true) && !self.app(name).is_locked()
    }
}

impl AppDir {
    /// The file in which rkt's reaper writes the app's exit, if this directory is in a pod of rkt.
    pub(crate) fn rkt_status(&self) -> Option<PathBuf> {
        let rkt = Path::new(RKT);
        let ours = self.path.parent() == Some(&rkt.join(STATE));
        ours.then(|| rkt.join(STATUS).join(self.name.as_str()))
    }
}
