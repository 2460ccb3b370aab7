//! The app's name of a container, and of whatever a user may type for an app. No I/O, no clock.
//!
//! An id that is a valid name of an app, in the usual namespace, is the name. Any other id is
//! changed to the characters of a name, and gets a hash of the namespace and the id, so that two
//! containers have two names. An id that an engine has made up counts by its beginning, so that it
//! may be written as the engine shows it.

use super::name::{AppName, NameError};
use super::service::ServiceName;

/// The namespace whose ids are names of apps.
const DEFAULT: &str = "default";
/// What the id of a container of Kubernetes begins with, as in the status of its pod.
const SCHEME: &str = "containerd://";
/// The namespace in which containerd has the containers of Kubernetes.
pub(crate) const KUBERNETES: &str = "k8s.io";
/// Longest part of an id in a name, characters: those of containerd have at most 76.
const ID_MAX: usize = 80;
/// The name of an id without a letter or a digit.
const NAMELESS: &str = "container";
/// The start value and the factor of FNV-1a with 32 bits. The hash must stay as it is: users know
/// the names.
const BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// Digits of an id that an engine has made up, and of its beginning that engines show.
const GENERATED_ID: usize = 64;
const SHORT_ID: usize = 12;

/// The name of a container or of a process in one.
pub(crate) fn app_name(namespace: &str, id: &str) -> AppName {
    let id = short_id(id).unwrap_or(id);
    let as_it_is = || id.parse::<AppName>().ok().filter(|_| namespace == DEFAULT);
    as_it_is().filter(|_| id.len() <= ID_MAX).unwrap_or_else(|| hashed(namespace, id))
}

/// The name that the container gets while another one has its own.
pub(crate) fn numbered(name: &AppName, number: u32) -> AppName {
    AppName::made(format!("{name}-{number}"))
}

/// The name of a container as users write it: NAMESPACE/ID, or as Kubernetes writes its id.
pub(crate) fn parse(text: &str) -> Option<AppName> {
    let of_kubernetes = text.strip_prefix(SCHEME).map(|id| (KUBERNETES, id));
    let (namespace, id) = of_kubernetes.or_else(|| text.split_once('/'))?;
    (!namespace.is_empty() && !id.is_empty()).then(|| app_name(namespace, id))
}

/// Reads the name of an app, or that of a service, whose app has the name that `enable` derives, or
/// `NAMESPACE/ID` of a container.
pub(crate) fn app(text: &str) -> Result<AppName, NameError> {
    if let Some(container) = parse(text) {
        return Ok(container);
    }
    text.parse().or_else(|e| match text.parse::<ServiceName>() {
        Ok(service) if !text.chars().all(char::is_alphanumeric) => service.app(),
        _ => Err(e),
    })
}

/// The beginning of an id that an engine has made up, such as that of a container of Docker.
pub(crate) fn short_id(id: &str) -> Option<&str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_generated = id.len() == GENERATED_ID && id.bytes().all(is_digit);
    is_generated.then(|| &id[..SHORT_ID])
}

/// Letters, digits and dashes with a digit at the end are a name, so it is always one.
fn hashed(namespace: &str, id: &str) -> AppName {
    let begin: String = id.chars().take(ID_MAX).collect();
    let name = AppName::derived(&begin);
    let text = name.as_ref().map_or(NAMELESS, AppName::as_str);
    let hash = fnv_1a(&[namespace, "/", id]);
    AppName::made(format!("{text}-{:06x}", (hash >> 24) ^ (hash & 0xff_ffff)))
}

fn fnv_1a(parts: &[&str]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    bytes.fold(BASIS, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_their_names() {
        let long = "a".repeat(76);
        let longer = "B.".repeat(200);
        for (namespace, id, want) in [
            ("default", "web", "web"),
            ("default", "web-1", "web-1"),
            ("default", &*long, &*long),
            ("k8s.io", "web", "web-"),
            ("moby", &*long, &*format!("{long}-")),
            ("default", "Web_1", "web-1-"),
            ("default", "id/../x", "id----x-"),
            ("default", "-", "container-"),
            ("default", "", "container-"),
            ("default", "\u{1b}[2Jé\n", "2j-"),
            ("default", &*longer, &*format!("{}b-", "b-".repeat(39))),
        ] {
            let name = app_name(namespace, id).to_string();
            if want.ends_with('-') {
                let hash = name.strip_prefix(want).unwrap_or_else(|| panic!("{id:?}: {name}"));
                assert!(hash.len() == 6 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
            } else {
                assert_eq!(name, want);
            }
            assert_eq!(name.parse::<AppName>().map(|name| name.to_string()), Ok(name));
        }
        let generated = "0123456789ab".to_owned() + &"cdef".repeat(13);
        for namespace in ["default", "moby"] {
            assert_eq!(app_name(namespace, &generated), app_name(namespace, "0123456789ab"));
        }
        assert_eq!(app_name("default", &generated).as_str(), "0123456789ab");
        assert_ne!(app_name("a", "x"), app_name("b", "x"));
        assert_ne!(app_name("default", "X"), app_name("default", "x"));
        // Users know it.
        assert_eq!(app_name("k8s.io", "web").to_string(), "web-4ccb98");
    }

    #[test]
    fn names_as_users_write_them() {
        assert_eq!(parse("default/web"), Some(app_name("default", "web")));
        assert_eq!(parse("k8s.io/a/b"), Some(app_name("k8s.io", "a/b")));
        assert_eq!(parse("containerd://web"), Some(app_name("k8s.io", "web")));
        for text in ["web", "/web", "default/", "/", "", "containerd://"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(numbered(&app_name("default", "web"), 2).to_string(), "web-2");
    }
}
