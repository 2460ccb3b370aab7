//! The path of a log. Pure, but for the working directory that a relative path begins at.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Where the file of a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPath {
    /// The directory that the path cannot leave: `/` for a path of an administrator.
    pub(crate) root: PathBuf,
    /// Whether links to directories below the root are followed, if root or the mux's user made
    /// them.
    pub(crate) links: bool,
    /// The directories below the root.
    pub(crate) below: Vec<OsString>,
    pub(crate) name: OsString,
}

impl LogPath {
    /// A path of an administrator, made absolute.
    pub fn free(path: &Path) -> Result<Self, String> {
        let path = std::path::absolute(path).map_err(|e| e.to_string())?;
        Self::new("/".into(), true, path.strip_prefix("/").unwrap_or(&path))
    }

    /// A path below a directory that it cannot leave: no `..`, not absolute, no links.
    pub(crate) fn below(root: &Path, path: &Path) -> Result<Self, String> {
        Self::new(root.into(), false, path)
    }

    fn new(root: PathBuf, links: bool, path: &Path) -> Result<Self, String> {
        let mut below = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => below.push(name.to_owned()),
                Component::CurDir => {}
                Component::ParentDir if links => below.push("..".into()),
                _ => return Err("it leads out of its directory".into()),
            }
        }
        let name = below.pop().filter(|name| name != "..").ok_or("it does not name a file")?;
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err("it names a directory".into());
        }
        Ok(Self { root, links, below, name })
    }

    /// The path.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(&self.below);
        path.join(&self.name)
    }
}
