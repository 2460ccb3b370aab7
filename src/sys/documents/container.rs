//! `container.json`: the container that an app is, for people who know that by its own name.
//!
//! Format: one line of JSON, version 1. Written whole when the mux begins, removed when the next
//! one of that name begins. Its texts come from an engine and are never trusted.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::document;
use crate::sys::state::{AppDir, CONTAINER};
use crate::types::container_id::app_name;
use crate::types::kubernetes::KubernetesName;
use crate::types::name::AppName;

/// The version that is written and understood.
const VERSION: u32 = 1;
/// Why the input of a container is closed, if it never was open.
pub(crate) const NO_INPUT: &str = "its engine gives it no input; try `docker run -i`, or the OCI runtime iottymux-runc in the place of containerd's logger";
/// Bytes of the document that are read.
const MOST: u64 = 64 * 1024;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    version: u32,
    pub(crate) namespace: String,
    pub(crate) id: String,
    /// The process in it, if that is not the container's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<String>,
    /// What Kubernetes calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kubernetes: Option<KubernetesName>,
    /// What Docker calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) docker: Option<String>,
}

impl Container {
    pub(crate) fn new((namespace, id): (String, String)) -> Self {
        Self { version: VERSION, namespace, id, exec: None, kubernetes: None, docker: None }
    }

    /// Writes the document, whole, with the rights of `endpoints`.
    pub(crate) fn publish(&self, dir: &AppDir) -> Result<()> {
        document::publish(dir, CONTAINER, dir.mode(0o644), self)
    }

    /// The container of an app; `None` if it is none, or that cannot be read. The mux of a service
    /// could write such a document, too.
    pub(crate) fn read(dir: &AppDir) -> Option<Self> {
        if dir.is_of_service() {
            return None;
        }
        document::parse(&dir.read(CONTAINER, MOST).ok()?, VERSION).ok()
    }

    /// What its engine calls it, for people. Not escaped.
    pub(crate) fn name(&self) -> Option<String> {
        let of_kubernetes = self.kubernetes.as_ref().map(KubernetesName::to_string);
        of_kubernetes.or_else(|| self.docker.clone())
    }

    /// The same of an app, if that is a container with a name.
    pub(crate) fn name_of(app: &AppDir) -> Option<String> {
        Self::read(app)?.name()
    }

    /// Whether its engine calls it so.
    pub(crate) fn is_called(&self, text: &str) -> bool {
        let of_kubernetes = self.kubernetes.as_ref().is_some_and(|name| name.is_called(text));
        of_kubernetes || self.docker.as_deref() == Some(text)
    }

    /// Whether a user who has typed its id, in any form, means this name.
    pub(crate) fn has_id(&self, name: &AppName) -> bool {
        let id = self.exec.as_ref().unwrap_or(&self.id);
        id == name.as_str() || app_name(&self.namespace, id) == *name
    }
}

/// `NAMESPACE/ID`, and the process in it. Not escaped.
impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)?;
        self.exec.iter().try_for_each(|exec| write!(f, " exec {exec}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sys::state::StateDir;

    #[test]
    fn a_service_is_no_container() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::resolve(Some(temp.path().into())).unwrap();
        let app = state.app(&"web".parse().unwrap());
        fs::create_dir_all(temp.path().join("web/mux")).unwrap();
        let container = Container::new(("k8s.io".into(), "0123".into()));
        container.publish(&app).unwrap();
        assert_eq!(Container::read(&app), Some(container));
        fs::create_dir(temp.path().join("web/ends")).unwrap();
        assert_eq!(Container::read(&app), None);
    }
}
