//! The app's name of a container, and of whatever a user may type for an app. No I/O, no clock.
//!
//! The app of a container is called as its id in the usual namespace, and `NAMESPACE:ID` in another one.
//! An id that an engine has made up is enough in each, and counts by its beginning, so that it may be
//! written as the engine shows it.

use super::name::{AppName, NameError};
use super::service::ServiceName;

/// The namespace whose ids are names of apps.
const DEFAULT: &str = "default";
/// What the id of a container of Kubernetes begins with, as in the status of its pod.
const SCHEME: &str = "containerd://";
/// The namespace in which containerd has the containers of Kubernetes.
pub(crate) const KUBERNETES: &str = "k8s.io";
/// The name of an id without a letter or a digit.
const NAMELESS: &str = "container";

/// Digits of an id that an engine has made up, and of its beginning that engines show.
const GENERATED_ID: usize = 64;
const SHORT_ID: usize = 12;

/// The name of a container or of a process in one.
pub(crate) fn app_name(namespace: &str, id: &str) -> AppName {
    let short = short_id(id);
    match short.unwrap_or(id).parse() {
        Ok(name) if short.is_some() || namespace == DEFAULT => name,
        _ => AppName::derived(&format!("{namespace}:{id}"))
            .unwrap_or_else(|| AppName::made(NAMELESS.to_owned())),
    }
}

/// The name of a container as users write it: NAMESPACE/ID, or as Kubernetes writes its id.
pub(crate) fn parse(text: &str) -> Option<AppName> {
    let of_kubernetes = text.strip_prefix(SCHEME).map(|id| (KUBERNETES, id));
    let (namespace, id) = of_kubernetes.or_else(|| text.split_once('/'))?;
    (!namespace.is_empty() && !id.is_empty()).then(|| app_name(namespace, id))
}

/// Reads the name of an app, or that of its service, or `NAMESPACE/ID` of a container.
pub(crate) fn app(text: &str) -> Result<AppName, NameError> {
    if let Some(container) = parse(text) {
        return Ok(container);
    }
    text.parse().or_else(|e| text.parse::<ServiceName>().map_err(|_| e)?.app())
}

/// The beginning of an id that an engine has made up, such as that of a container of Docker, also if
/// that is all that was written.
fn short_id(id: &str) -> Option<&str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_generated = [GENERATED_ID, SHORT_ID].contains(&id.len()) && id.bytes().all(is_digit);
    is_generated.then(|| &id[..SHORT_ID])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_their_names() {
        let generated = "0123456789ab".to_owned() + &"cdef".repeat(13);
        let long = "a".repeat(76);
        for (namespace, id, want) in [
            ("default", "web", "web"),
            ("default", "Web_1", "Web_1"),
            ("default", &*long, &*long),
            ("default", &*generated, "0123456789ab"),
            ("moby", &*generated, "0123456789ab"),
            ("moby", "0123456789ab", "0123456789ab"),
            ("k8s.io", "web", "k8s.io:web"),
            (&*long, &*long, &*format!("{long}:{long}")),
            // No engine takes these.
            ("default", "id/../x", "default:id-..-x"),
            ("default", "-", "default"),
            ("default", "\u{1b}[2Jé\n", "default:--2J"),
            ("", "/", "container"),
            ("a", &*"b".repeat(400), &*format!("a:{}", "b".repeat(198))),
        ] {
            assert_eq!(app_name(namespace, id).to_string(), want, "{id:?}");
            assert_eq!(want.parse().as_ref(), Ok(&app_name(namespace, id)));
        }
    }

    #[test]
    fn names_as_users_write_them() {
        assert_eq!(parse("default/web"), Some(app_name("default", "web")));
        assert_eq!(parse("k8s.io/a/b"), Some(app_name("k8s.io", "a/b")));
        assert_eq!(parse("containerd://web"), Some(app_name("k8s.io", "web")));
        for text in ["web", "/web", "default/", "/", "", "containerd://"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
