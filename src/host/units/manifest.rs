//! The streams that a pod manifest or annotations ask for. No I/O, no clock.
//!
//! The manifest is that of appc (`schema/pod.md` of its specification). Only names and annotations
//! matter here. The annotations are rkt's.

use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer};

use super::mode::{StreamMode, StreamModes};
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// The prefix of each annotation of a stream.
const STREAM: &str = "coreos.com/rkt/stage2/";
/// The log mode of the pod.
const LOG_MODE: &str = "coreos.com/rkt/experiment/logmode";
/// The path of the log, in the kubelet's directory for the pod.
const LOG_PATH: &str = "coreos.com/rkt/experiment/kubernetes-log-path";
/// That directory. Only rkt uses it.
const LOG_DIR: &str = "coreos.com/rkt/experiment/kubernetes-log-dir";

/// An annotation of a manifest or of the command line (`NAME=VALUE`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Annotation {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for Annotation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The options in annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestOptions {
    /// For stdin, stdout and stderr.
    modes: [Option<StreamMode>; 3],
    /// Whether the kubelet reads the pod's logs.
    kubernetes: bool,
    /// The path of the app's log for the kubelet.
    log_path: Option<String>,
}

impl ManifestOptions {
    /// The options of a command line without annotations.
    pub(crate) fn new(modes: [Option<StreamMode>; 3]) -> Self {
        Self { modes, ..Self::default() }
    }

    /// Reads an annotation of an app or of its pod. Returns whether it is about streams or logs.
    pub(crate) fn take(&mut self, annotation: &Annotation) -> Result<bool, String> {
        let Annotation { name, value } = annotation;
        let refuse = |why| format!("annotation {name}={}: {why}", value.escape_debug());
        let stream = name.strip_prefix(STREAM);
        let stream = stream.and_then(|name| Stream::PLAIN.iter().position(|s| s.name() == name));
        match (name.as_str(), stream) {
            (_, Some(stream)) => {
                let mode = StreamMode::from_str(value, false);
                let expected = "expected interactive, tty, stream, log or null";
                self.modes[stream] = Some(mode.map_err(|_| refuse(expected.to_owned()))?);
            }
            (LOG_MODE, _) if value == "k8s-plain" => self.kubernetes = true,
            (LOG_MODE, _) => return Err(refuse("expected k8s-plain".to_owned())),
            (LOG_PATH, _) => self.log_path = Some(value.clone()),
            (LOG_DIR, _) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The modes, and the path of the kubelet's log, if there is one.
    pub(crate) fn settle(self) -> Result<(StreamModes, Option<String>), String> {
        let modes = StreamModes::new(self.modes)?;
        match (self.kubernetes, self.log_path) {
            (true, None) => Err(format!("{LOG_MODE}=k8s-plain needs {LOG_PATH}")),
            (true, path) => Ok((modes, path)),
            (false, _) => Ok((modes, None)),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    ac_kind: String,
    #[serde(default, deserialize_with = "nothing_is_none")]
    apps: Vec<ManifestApp>,
    #[serde(default, deserialize_with = "nothing_is_none")]
    annotations: Vec<Annotation>,
}

#[derive(Deserialize)]
struct ManifestApp {
    name: String,
    #[serde(default, deserialize_with = "nothing_is_none")]
    annotations: Vec<Annotation>,
}

/// A list for which Go writes `null` when it is empty.
fn nothing_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The apps of a pod with their modes and logs, in the manifest's order.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<(AppName, StreamModes, Option<String>)>, String> {
    let pod: Pod = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if pod.ac_kind != "PodManifest" {
        return Err(format!("it is a \"{}\", not a PodManifest", pod.ac_kind.escape_debug()));
    }
    let mut apps: Vec<(AppName, StreamModes, Option<String>)> = Vec::new();
    for ManifestApp { name, annotations } in &pod.apps {
        let refuse = |why: String| format!("app \"{}\": {why}", name.escape_debug());
        let app: AppName = name.parse().map_err(|e| refuse(format!("{e}")))?;
        let mut options = ManifestOptions::default();
        for annotation in pod.annotations.iter().chain(annotations) {
            options.take(annotation).map_err(refuse)?;
        }
        let (modes, log) = options.settle().map_err(refuse)?;
        if modes.has(StreamMode::Interactive) && pod.apps.len() > 1 {
            return Err(refuse("an interactive app must be the only app of its pod".to_owned()));
        }
        if apps.iter().any(|(other, ..)| *other == app) {
            return Err(refuse("it is listed twice".to_owned()));
        }
        apps.push((app, modes, log));
    }
    Ok(apps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(apps: &str) -> String {
        format!(
            r#"{{"acKind":"PodManifest","annotations":[{{"name":"{LOG_MODE}","value":"k8s-plain"}}],
                "volumes":null,"apps":[{apps}]}}"#
        )
    }

    #[test]
    fn what_a_pod_asks_for() {
        let text = pod(r#"{"name":"a","annotations":[
                {"name":"coreos.com/rkt/stage2/stdout","value":"stream"},
                {"name":"coreos.com/rkt/stage2/other","value":"?"},
                {"name":"coreos.com/rkt/experiment/kubernetes-log-path","value":"a/0.log"}]}"#);
        let modes = StreamModes::new([None, Some(StreamMode::Stream), None]).unwrap();
        let want = vec![("a".parse().unwrap(), modes, Some("a/0.log".to_owned()))];
        assert_eq!(parse(text.as_bytes()), Ok(want));
        let plain = br#"{"acKind":"PodManifest","apps":[{"name":"a","annotations":null}],"annotations":null}"#;
        let modes = StreamModes::new([None; 3]).unwrap();
        assert_eq!(parse(plain), Ok(vec![("a".parse().unwrap(), modes, None)]));
        assert_eq!(parse(br#"{"acKind":"PodManifest","apps":null}"#), Ok(vec![]));
    }

    #[test]
    fn what_there_cannot_be() {
        let app = |name: &str, stream: &str, mode: &str| {
            format!(
                r#"{{"name":"{name}","annotations":[{{"name":"{STREAM}{stream}","value":"{mode}"}},
                    {{"name":"{LOG_PATH}","value":"x"}}]}}"#
            )
        };
        let both = format!("{},{}", app("a", "stdin", "null"), app("a", "stdin", "null"));
        for (text, why) in [
            (String::new(), "EOF"),
            ("{}".to_owned(), "acKind"),
            (r#"{"acKind":"ImageManifest\u001b"}"#.to_owned(), r#"it is a "ImageManifest\u{1b}""#),
            (pod(&app("a b", "stdin", "null")), r#"app "a b": an app name can only have"#),
            (pod(&app("a", "stdin", "log")), r#"app "a": stdin cannot be log"#),
            (pod(&app("a", "stdout", "tyt")), "stdout=tyt: expected interactive"),
            (pod(&app("a", "stdout", "interactive")), "interactive cannot be combined"),
            (pod(r#"{"name":"a"}"#), "needs coreos.com/rkt/experiment/kubernetes-log-path"),
            (pod(&both), "it is listed twice"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
