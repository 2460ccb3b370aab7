//! `logs`: the log files of an app's mux, for programs that read them.
//!
//! Format: one line of JSON, version 1: `{"version":1,"logs":[{"format":"cri","path":"/x.log"}]}`.
//! The mux writes it when it starts its logs. It stays after the mux has ended.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::document;
use crate::sys::files::PRIVATE;
use crate::sys::state::{AppDir, LOGS};

/// Bytes of a `logs` document that are read: a handful of paths.
const LOGGED: u64 = 64 * 1024;

/// The version of the format.
const VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logged {
    version: u32,
    logs: Vec<LoggedFile>,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoggedFile {
    /// The name of its format in `--log`, or [`UNREADABLE`].
    pub(crate) format: String,
    /// The file that is written, absolute; rotated ones are beside it.
    pub(crate) path: PathBuf,
}

/// The format of a log that `iottymux logs` cannot read.
pub(crate) const UNREADABLE: &str = "other";

impl Logged {
    /// The document for these logs.
    pub(crate) fn new(logs: Vec<LoggedFile>) -> Self {
        Self { version: VERSION, logs }
    }

    /// Writes the document, or removes an earlier one if there is no log in a file.
    pub(crate) fn publish(&self, dir: &AppDir) -> Result<()> {
        if self.logs.is_empty() {
            return dir.remove(LOGS);
        }
        document::publish(dir, LOGS, PRIVATE, self)
    }

    /// Reads the document of an app; `None` if it has none.
    pub(crate) fn read(dir: &AppDir) -> Result<Option<Self>> {
        let what = || format!("cannot read {}", dir.path(LOGS).display());
        match dir.read(LOGS, LOGGED) {
            Ok(text) => document::parse(&text, VERSION).map(Some).with_context(what),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(what),
        }
    }

    /// The first log that can be read, with what `reader` returns for the name of its format.
    pub(crate) fn readable<R>(&self, reader: impl Fn(&str) -> Option<R>) -> Option<(R, &Path)> {
        let log = self.logs.iter().find_map(|log| Some((reader(&log.format)?, log.path.as_path())));
        log.filter(|(_, path)| path.is_absolute())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Logged> {
        document::parse(text, VERSION)
    }

    #[test]
    fn only_known_versions_and_formats() {
        let json = r#"{"version":1,"logs":[{"format":"json-file","path":"/a"},{"format":"cri","path":"/b"}]}"#;
        let file = |format: &str, path: &str| LoggedFile {
            format: String::from(format),
            path: path.into(),
        };
        let logs = vec![file("json-file", "/a"), file("cri", "/b")];
        assert_eq!(serde_json::to_string(&Logged::new(logs)).unwrap(), json);
        for (json, want) in [
            (json, Some("/a")),
            (r#"{"version":1,"logs":[]}"#, None),
            (
                r#"{"version":1,"more":0,"logs":[{"format":"raw","path":"/a"},{"format":"cri","path":"/b","x":1}]}"#,
                Some("/b"),
            ),
            (r#"{"version":1,"logs":[{"format":"cri","path":"b"}]}"#, None),
        ] {
            let read = parse(json.as_bytes()).unwrap();
            let reader = |format: &str| ["cri", "json-file"].contains(&format).then_some(());
            assert_eq!(read.readable(reader).map(|((), path)| path), want.map(Path::new));
        }
        for (bad, why) in [
            (r#"{"version":2,"files":[]}"#, "version 2"),
            (r#"{"logs":[]}"#, "missing field"),
            ("", "EOF"),
        ] {
            let error = format!("{:#}", parse(bad.as_bytes()).unwrap_err());
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
