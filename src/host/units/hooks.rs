//! Whether a service can safely run hooks as root next to its own commands.
//!
//! systemd runs a command with `+` as root, but with the root directory, the mounts, the search
//! path and the environment of the unit. If a user can write to one of these, that user decides
//! what the command runs: a program of the same name, or a library by `LD_PRELOAD=`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use super::MuxUnit;
use super::render::OPTIONS;
use crate::sys::files::read_plain;
use crate::sys::systemd::bus::Properties;
use crate::sys::systemd::manager::Manager;
use crate::types::limits;

/// Settings that change the root or the search path of a command. A value of `/` changes nothing.
const ROOTS: [&str; 5] =
    ["RootDirectory", "RootImage", "ExtensionImages", "ExtensionDirectories", "ExecSearchPath"];
/// Settings that replace files of the machine.
const MOUNTS: [&str; 4] = ["BindPaths", "BindReadOnlyPaths", "MountImages", "TemporaryFileSystem"];
/// Settings of environment variables.
const VARIABLES: [&str; 2] = ["Environment", "PassEnvironment"];
/// Variables with this prefix make the dynamic loader find other libraries.
const LOADER: &str = "LD_";
/// Files with environment variables.
const FILES: &str = "EnvironmentFiles";
/// Directories with files that a program needs when it starts.
const SYSTEM: [&str; 5] = ["usr", "bin", "sbin", "etc", "opt"];
/// Links followed on one path at most: as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// The bits that let others write.
const WRITABLE: u32 = 0o022;

/// The settings of a service that may make commands of root unsafe.
pub(crate) fn settings() -> Vec<&'static str> {
    [&ROOTS[..], &MOUNTS, &VARIABLES, &[FILES]].concat()
}

/// The first of these [`settings`] that makes commands of root unsafe.
pub(crate) fn obstacle(manager: Manager, values: &Properties, program: &str) -> Option<String> {
    // The commands of a user's service have the rights of the service itself.
    let names = if manager.user { Vec::new() } else { settings() };
    let mut all = names.iter().map(|name| (name, values.texts(name)));
    let (name, texts) = all.find(|(name, texts)| is_obstacle(name, texts, program))?;
    Some(format!("{name}={}", texts.join(" ").escape_debug()))
}

/// Refuses muxes whose options users other than root can change: commands of root use them.
pub(crate) fn check_options(manager: Manager, muxes: &[MuxUnit]) -> Result<()> {
    for mux in muxes.iter().filter(|_| !manager.user) {
        let path = format!("{OPTIONS}/{}.env", mux.name);
        if !is_only_roots(Path::new(&path)) {
            bail!(
                "other users can change {path}, and commands of root read it. \
                 Try: chown root {OPTIONS} {path}; chmod go-w {OPTIONS} {path}"
            );
        }
    }
    Ok(())
}

/// Whether this setting of a service lets others decide what root runs.
fn is_obstacle(name: &str, texts: &[&str], program: &str) -> bool {
    let mut texts = texts.iter().filter(|text| !text.is_empty());
    if name == FILES {
        let mut paths = texts.map(|path| Path::new(*path));
        return paths.any(|path| !is_only_roots(path) || names_libraries(path));
    }
    if VARIABLES.contains(&name) {
        return texts.any(|variable| variable.starts_with(LOADER));
    }
    if MOUNTS.contains(&name) {
        // Sources and destinations are treated alike.
        return texts.any(|path| is_of_system(path) || is_above(path, program));
    }
    ROOTS.contains(&name) && texts.any(|path| *path != "/")
}

fn is_of_system(path: &str) -> bool {
    let Some(path) = path.strip_prefix('/') else { return false };
    let first = path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    first.is_empty() || first.starts_with("lib") || SYSTEM.contains(&first)
}

fn is_above(dir: &str, program: &str) -> bool {
    dir.starts_with('/') && Path::new(program).starts_with(dir)
}

/// Whether only root can decide the content of a file, also of one that does not exist yet.
fn is_only_roots(path: &Path) -> bool {
    let is_pattern = path.to_string_lossy().contains(['*', '?', '[']);
    !is_pattern && path.is_absolute() && leads_by_root(path, MOST_LINKS)
}

/// Whether a file of variables exists and sets one for the loader.
fn names_libraries(path: &Path) -> bool {
    match fs::canonicalize(path).and_then(|path| read_plain(&path, limits::UNIT_FILE)) {
        Ok(text) => String::from_utf8_lossy(&text).contains(LOADER),
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

fn leads_by_root(path: &Path, links: usize) -> bool {
    let mut here = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        match part {
            // No link is in `here`.
            Component::ParentDir => drop(here.pop()),
            part => here.push(part),
        }
        let there = match fs::symlink_metadata(&here) {
            Ok(there) => there,
            // All directories above belong to root, so no other user can create it.
            Err(e) => return e.kind() == ErrorKind::NotFound,
        };
        if there.uid() != 0 || !there.is_symlink() && there.mode() & WRITABLE != 0 {
            return false;
        }
        if there.is_symlink() {
            let Ok(target) = fs::read_link(&here) else { return false };
            let above = here.parent().unwrap_or(Path::new("/"));
            return links > 0 && leads_by_root(&above.join(target).join(parts), links - 1);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_let_others_decide_what_runs() {
        for (name, texts) in [
            ("RootDirectory", &["/srv/jail"][..]),
            ("RootImage", &["/srv/jail.img"]),
            ("ExecSearchPath", &["/srv/bin"]),
            ("ExtensionDirectories", &["/srv/more"]),
            ("BindPaths", &["/srv/a", "/b", "/srv/bin", "/usr/local/bin"]),
            ("BindReadOnlyPaths", &["/lib64", "/lib64"]),
            ("BindPaths", &["/srv/all", "/"]),
            ("TemporaryFileSystem", &["/etc", "mode=1777"]),
            ("BindPaths", &["/srv/bin", "/home/bin"]),
            ("Environment", &["TERM=xterm", "LD_LIBRARY_PATH=./linux64:/srv/my game"]),
            ("PassEnvironment", &["LD_PRELOAD"]),
            ("EnvironmentFiles", &["/tmp/game.env"]),
            ("EnvironmentFiles", &["/etc/*.env"]),
        ] {
            assert!(is_obstacle(name, texts, "/home/bin/x"), "{name}={texts:?}");
        }
        for (name, texts) in [
            ("RootDirectory", &[][..]),
            ("RootDirectory", &[""]),
            ("RootDirectory", &["/"]),
            ("Environment", &["TERM=xterm", "WORLD_NAME=x"]),
            ("ExecSearchPath", &[]),
            ("BindPaths", &["/srv/game", "/data", "/srv/x y", "/srv/z"]),
            ("TemporaryFileSystem", &["/var", "ro"]),
            ("EnvironmentFiles", &["/proc/none/game.env"]),
        ] {
            assert!(!is_obstacle(name, texts, "/home/bin/x"), "{name}={texts:?}");
        }
    }
}
