//! What Kubernetes calls a container: the names that `kubectl` shows, checked once. No I/O, no
//! clock.
//!
//! Invariant: a [`KubernetesName`] has letters, digits, `-`, `.` and two slashes, and so needs no
//! escaping. It is never a path.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name of a namespace or a container, and of a pod, in bytes, as Kubernetes has them.
const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// NAMESPACE/POD/CONTAINER.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct KubernetesName(String);

impl KubernetesName {
    /// The three names.
    pub(crate) fn parts(&self) -> Option<[&str; 3]> {
        parts(&self.0)
    }

    /// Whether a user may call the container so: `NAMESPACE/POD/CONTAINER` without the first part, the
    /// last part, or both.
    pub(crate) fn is_called(&self, text: &str) -> bool {
        let Some((rest, container)) = self.0.rsplit_once('/') else { return false };
        let Some((_, pod)) = rest.split_once('/') else { return false };
        let inside = text.strip_prefix(pod).and_then(|text| text.strip_prefix('/'));
        text == self.0 || text == rest || text == pod || inside == Some(container)
    }
}

/// The three names in a text, if it is a valid one.
fn parts(text: &str) -> Option<[&str; 3]> {
    let (namespace, rest) = text.split_once('/')?;
    let (pod, container) = rest.split_once('/')?;
    let is_pod = pod.len() <= SUBDOMAIN_MAX && pod.split('.').all(is_label);
    let is_name = |name: &str| name.len() <= LABEL_MAX && is_label(name);
    (is_name(namespace) && is_pod && is_name(container)).then_some([namespace, pod, container])
}

/// Lower-case letters, digits and `-`, which is at neither end.
fn is_label(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !text.is_empty() && text.bytes().all(is_plain) && !text.starts_with('-') && !text.ends_with('-')
}

impl TryFrom<String> for KubernetesName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parts(&text).ok_or("expected NAMESPACE/POD/CONTAINER")?;
        Ok(Self(text))
    }
}

impl From<KubernetesName> for String {
    fn from(KubernetesName(text): KubernetesName) -> Self {
        text
    }
}

impl fmt::Display for KubernetesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_kubernetes_checks_them() {
        let (label, pod) = ("x".repeat(63), ["x".repeat(63), "y".repeat(63)].join(".") + "-0");
        for good in [
            "default/web/nginx".to_owned(),
            "kube-system/etcd-node.example.com/etcd".to_owned(),
            "0/1/2".to_owned(),
            format!("{label}/{pod}/{label}"),
        ] {
            let name = KubernetesName::try_from(good.clone()).unwrap();
            assert_eq!(name.to_string(), good);
            assert_eq!(name.parts().map(|parts| parts.join("/")), Some(good));
        }
        for bad in [
            "",
            "web",
            "default/web",
            "default/web/nginx/x",
            "/web/nginx",
            "default//nginx",
            "default/web/",
            "../web/nginx",
            "default/../nginx",
            "default/web/..",
            "default/web./nginx",
            "default/web..a/nginx",
            "default/-web/nginx",
            "default/web/nginx-",
            "k8s.io/web/nginx",
            "Default/web/nginx",
            "default/web/ng_inx",
            "default/web/nginx\n",
            "default/we\u{1b}[2Jb/nginx",
            &format!("{label}x/web/nginx"),
            &format!("default/web/{label}x"),
            &format!("default/{}/nginx", ["x"; 128].join(".")),
        ] {
            assert!(KubernetesName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_as_users_write_them() {
        let name = KubernetesName::try_from("default/web/nginx".to_owned()).unwrap();
        for called in ["default/web/nginx", "default/web", "web/nginx", "web"] {
            assert!(name.is_called(called), "{called}");
        }
        for other in ["", "default", "nginx", "default/nginx", "web/", "/web", "we", "webnginx"] {
            assert!(!name.is_called(other), "{other}");
        }
    }
}
