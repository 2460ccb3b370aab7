//! The names of logs on the command line: `FORMAT:PATH`, `journal` or `container-journal`. No I/O, no clock.

use super::encoder::{LogFormat, LogTarget};
use super::format::{FORMATS, journald};
use super::path::LogPath;

/// The name that [`journald::FORMAT`] had before, which was too easily taken for `journal`.
const OLD: &str = "journald";

/// A log: its format, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSpec {
    pub(crate) format: &'static LogFormat,
    pub(crate) target: LogTarget,
}

impl LogSpec {
    /// Parses what `--log` takes.
    pub(crate) fn log(text: &str) -> Result<Self, String> {
        Self::parse(text, false)
    }

    /// Parses what `--record` takes.
    pub(crate) fn recording(text: &str) -> Result<Self, String> {
        Self::parse(text, true)
    }

    fn parse(text: &str, is_recording: bool) -> Result<Self, String> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let name = if name == OLD { journald::FORMAT.name } else { name };
        let format = formats(is_recording).find(|format| format.name == name);
        let format = format.ok_or_else(|| format!("expected {}", forms(is_recording)))?;
        let target = (format.target)(argument).map_err(|why| format!("{}: {why}", format.name))?;
        Ok(Self { format, target })
    }

    /// The file that it writes, if it writes one.
    pub(crate) fn file(&self) -> Option<&LogPath> {
        match &self.target {
            LogTarget::File(path) => Some(path),
            LogTarget::Journal(_) | LogTarget::Journald => None,
        }
    }

    /// Whether it writes to the target of another log: they would spoil each other's entries.
    pub(crate) fn shares_target(&self, other: &Self) -> bool {
        match (&self.target, &other.target) {
            (LogTarget::File(one), LogTarget::File(other)) => one.path() == other.path(),
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// The target, for people.
    pub(crate) fn target(&self) -> String {
        let file = self.file().map(|path| path.path().display().to_string());
        file.unwrap_or_else(|| self.format.name.to_owned())
    }

    /// The name, for people: the format and the path.
    pub(crate) fn name(&self) -> String {
        let name = self.format.name;
        let file = self.file().map(|path| format!("{name}:{}", path.path().display()));
        file.unwrap_or_else(|| name.to_owned())
    }
}

fn formats(are_recordings: bool) -> impl Iterator<Item = &'static LogFormat> {
    FORMATS.into_iter().filter(move |format| format.records_terminal == are_recordings)
}

/// The values of the option, as a list for people.
fn forms(are_recordings: bool) -> String {
    let forms: Vec<_> = formats(are_recordings).map(LogFormat::form).collect();
    match &forms[..] {
        [one] => one.clone(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
        [] => String::new(),
    }
}

/// The short help of `--log` or `--record`.
pub(crate) fn help(are_recordings: bool) -> String {
    let does = if are_recordings { "Record the terminal" } else { "Log" };
    format!("{does} to {}", forms(are_recordings))
}

/// The long help of `--log` or `--record`.
pub(crate) fn long_help(are_recordings: bool) -> String {
    let mut text = help(are_recordings) + "\n\n";
    for format in formats(are_recordings) {
        text.extend([&format.form(), ": ", format.help, ".\n"]);
    }
    let name = if are_recordings { "recordings. They are never rotated" } else { "logs" };
    text + "\nRepeat the option for several " + name + ". In the variable, separate them by commas."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::logfmt::path::LogPath;
    use crate::types::stream::Stream;

    #[test]
    fn logs_as_users_name_them() {
        let file = || LogTarget::File(LogPath::free("/a:b".as_ref()).unwrap());
        for (text, name, target) in [
            ("cri:/a:b", "cri", file()),
            ("json-file:/a:b", "json-file", file()),
            ("raw:/a:b", "raw", file()),
            ("container-journal", "container-journal", LogTarget::Journald),
            ("journald", "container-journal", LogTarget::Journald),
            ("journal", "journal", LogTarget::Journal(None)),
            ("journal:stderr", "journal", LogTarget::Journal(Some(Stream::Stderr))),
        ] {
            let spec = LogSpec::log(text).unwrap();
            assert_eq!((spec.format.name, spec.target), (name, target), "{text}");
        }
        let bad =
            ["", "cri", "cri:", "raw:/a/", "journald:x", "journal:x", "xml:/a", "/a", "cast:/a"];
        for bad in bad {
            assert!(LogSpec::log(bad).is_err(), "{bad}");
        }
        assert_eq!(LogSpec::recording("cast:/a:b").unwrap().target, file());
        for bad in ["", "cast", "cast:", "cast:/a/", "raw:/a", "/a"] {
            assert!(LogSpec::recording(bad).is_err(), "{bad}");
        }
        let unknown = LogSpec::log("xml:/a").unwrap_err();
        assert!(unknown.starts_with("expected journal, cri:PATH, "), "{unknown}");
        assert!(unknown.ends_with(" or container-journal"), "{unknown}");
    }

    #[test]
    fn two_logs_with_one_target() {
        let shares =
            |one, other| LogSpec::log(one).unwrap().shares_target(&LogSpec::log(other).unwrap());
        assert!(shares("cri:/a", "raw:/./a") && shares("journal", "journal:stderr"));
        assert!(!shares("cri:/a", "cri:/b") && !shares("journal", "journald"));
    }

    #[test]
    fn every_format_is_documented() {
        let docs = include_str!("../../../docs/logs.md");
        for form in FORMATS.map(LogFormat::form) {
            assert!(docs.contains(&form), "docs/logs.md does not name {form}");
        }
    }
}
