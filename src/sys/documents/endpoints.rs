//! The `endpoints` document: the attachable streams of an app, for rkt's readers and ours.
//!
//! Format: one line of JSON, version 1, as in rkt's design, plus the key `session`, which old
//! readers ignore. Written whole, read with a limit. Addresses are never trusted: only their last
//! component is used, below the directory of the app.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::document;
use crate::sys::state::{AppDir, ENDPOINTS, SESSION};
use crate::types::escape::ascii_json;
use crate::types::stream::Stream;

/// Bytes of an `endpoints` document that are read.
const MOST: u64 = 64 * 1024;

/// The version that is written and understood.
const VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    version: u32,
    /// rkt's mux writes `null` for an app without streams.
    targets: Option<Vec<SocketEndpoint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionEndpoint>,
}

/// One raw socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SocketEndpoint {
    name: String,
    domain: String,
    address: String,
}

/// The socket of the session protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionEndpoint {
    version: u32,
    domain: String,
    address: String,
}

impl Endpoints {
    /// The document of an app with these streams.
    pub(crate) fn new(dir: &AppDir, streams: &[Stream]) -> Self {
        let address = |file: &str| dir.path(file).to_string_lossy().into_owned();
        let targets = Stream::ALL
            .into_iter()
            .filter(|s| streams.contains(s))
            .map(|s| SocketEndpoint {
                name: s.name().into(),
                domain: "unix".into(),
                address: address(s.socket()),
            })
            .collect();
        let session =
            SessionEndpoint { version: VERSION, domain: "unix".into(), address: address(SESSION) };
        Self { version: VERSION, targets: Some(targets), session: Some(session) }
    }

    /// Writes the document, whole, where readers look for it.
    pub(crate) fn publish(&self, dir: &AppDir) -> Result<()> {
        document::publish(dir, ENDPOINTS, dir.mode(0o644), self)
    }

    /// Reads the document of an app.
    pub(crate) fn read(dir: &AppDir) -> Result<Self> {
        let what = || format!("cannot read {}", dir.path(ENDPOINTS).display());
        let text = dir.read(ENDPOINTS, MOST).with_context(what)?;
        document::parse(&text, VERSION).with_context(what)
    }

    /// The streams with a raw socket that this program knows, each with the name of its socket
    /// below the app's directory. Others are skipped with a warning.
    pub(crate) fn streams(&self) -> Vec<(Stream, &str)> {
        fn known(
            SocketEndpoint { name, domain, address }: &SocketEndpoint,
        ) -> Option<(Stream, &str)> {
            match (name.parse::<Stream>(), domain.as_str(), last_component(address)) {
                (Ok(stream), "unix", Some(file)) => Some((stream, file)),
                _ => {
                    log::warn!("skipping the unknown endpoint {name:?} ({domain:?} {address:?})");
                    None
                }
            }
        }
        self.targets.iter().flatten().filter_map(known).collect()
    }

    /// The name of the session socket, where there is one of a version that is known.
    pub(crate) fn session(&self) -> Option<&str> {
        let session = self.session.as_ref()?;
        (session.version == VERSION && session.domain == "unix")
            .then(|| last_component(&session.address))?
    }

    /// The document for people and for rkt: indented by four spaces, no newline at the end.
    pub(crate) fn pretty(&self) -> String {
        let mut out = Vec::new();
        let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut to = serde_json::Serializer::with_formatter(&mut out, indent);
        // Strings and numbers into memory: it cannot fail, and is valid UTF-8.
        let _ = self.serialize(&mut to);
        ascii_json(&String::from_utf8_lossy(&out))
    }
}

/// The last component of an address, if it is a plain file name.
fn last_component(address: &str) -> Option<&str> {
    let name = address.rsplit('/').next()?;
    (!name.is_empty() && name != "." && name != ".." && !name.contains('\0')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::state::StateDir;

    fn parse(text: &[u8]) -> Result<Endpoints> {
        document::parse(text, VERSION)
    }

    fn dir() -> AppDir {
        let state = StateDir::resolve(Some("/rkt/iottymux".into())).unwrap();
        state.app(&"demo".parse().unwrap())
    }

    const RKT: &str = r#"{"version":1,"targets":[{"name":"stdin","domain":"unix","address":"/rkt/iottymux/demo/sock-stdin"},{"name":"stdout","domain":"unix","address":"/rkt/iottymux/demo/sock-stdout"},{"name":"stderr","domain":"unix","address":"/rkt/iottymux/demo/sock-stderr"}]}"#;

    #[test]
    fn ours_begins_as_rkts_does() {
        let ours = serde_json::to_string(&Endpoints::new(&dir(), &Stream::PLAIN)).unwrap();
        let common = RKT.strip_suffix('}').unwrap();
        let rest = ours.strip_prefix(common).unwrap();
        assert_eq!(
            rest,
            r#","session":{"version":1,"domain":"unix","address":"/rkt/iottymux/demo/sock-session"}}"#
        );
    }

    #[test]
    fn rkts_is_read_and_printed_as_rkt_prints_it() {
        let read = parse(RKT.as_bytes()).unwrap();
        assert_eq!(read.session(), None);
        let files: Vec<_> = read.streams().into_iter().map(|(_, file)| file).collect();
        assert_eq!(files, ["sock-stdin", "sock-stdout", "sock-stderr"]);
        let pretty = read.pretty();
        assert!(pretty.starts_with("{\n    \"version\": 1,\n    \"targets\": [\n        {\n"));
        assert!(pretty.ends_with("    ]\n}"));
    }

    #[test]
    fn only_known_versions_targets_and_file_names() {
        for (bad, why) in [
            (r#"{"version":2,"targets":[]}"#, "version 2"),
            (r#"{"targets":[]}"#, "missing field"),
            ("", "EOF"),
        ] {
            let error = format!("{:#}", parse(bad.as_bytes()).unwrap_err());
            assert!(error.contains(why), "{bad}: {error}");
        }
        let none = parse(br#"{"version":1,"targets":null}"#).unwrap();
        assert_eq!(none.streams(), []);
        assert_eq!(none.pretty(), "{\n    \"version\": 1,\n    \"targets\": null\n}");
        let odd = r#"{"version":1,"more":0,"targets":[
            {"name":"tty","domain":"unix","address":"../../etc/sock-tty","x":1},
            {"name":"stdout","domain":"tcp4","address":"127.0.0.1:1"},
            {"name":"other","domain":"unix","address":"/x/y"},
            {"name":"stderr","domain":"unix","address":"/x/.."}],
            "session":{"version":9,"domain":"unix","address":"/x/sock-session"}}"#;
        let read = parse(odd.as_bytes()).unwrap();
        assert_eq!(read.streams(), [(Stream::Tty, "sock-tty")]);
        assert_eq!(read.session(), None);
    }
}
