//! Other users: real ones, as which root runs programs through setpriv.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::Uid;

use crate::installed::is_installed;
use crate::rig::Rig;
use crate::skip::skip;

/// The group of all of them; no system gives it to anybody.
const THEIR_GROUP: u32 = 54323;

/// A rig with the binary in it, which other users can reach as far as the mux lets them. `None` where
/// there are no other users.
pub fn shared_rig() -> Option<Rig> {
    if !Uid::effective().is_root() || !is_installed("setpriv") {
        skip("users", "only root, with setpriv, can be another user");
        return None;
    }
    let rig = Rig::new();
    fs::set_permissions(rig.file(""), Permissions::from_mode(0o711)).unwrap();
    reachable_program(&rig);
    Some(rig)
}

/// The binary in the directory of the rig: the build's own directory may be closed to others.
pub fn reachable_program(rig: &Rig) -> PathBuf {
    let copy = rig.file("iottymux");
    fs::copy(env!("CARGO_BIN_EXE_iottymux"), &copy).unwrap();
    copy
}

/// A program of another user, who is in these further groups, separated by commas.
pub fn as_user(rig: &Rig, uid: impl Display, groups: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={THEIR_GROUP}")]);
    command.arg(match groups {
        "" => "--clear-groups".to_owned(),
        groups => format!("--groups={groups}"),
    });
    command.arg("--").arg(program).env("IOTTYMUX_STATE_DIR", rig.state());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
