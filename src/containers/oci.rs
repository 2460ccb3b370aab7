//! The command line of an OCI runtime and a container's config.json, as far as the wrapper of a
//! runtime has to know them.
//!
//! Only `create` is understood, and the options before any call. Options that this module does not
//! know are passed on unchanged, so any runtime can be wrapped whose `create` has the options of runc.
//! No I/O, no clock.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::types::kubernetes::KubernetesName;

/// Options of `create` whose value may be the next word.
const CREATE_VALUES: [&str; 6] =
    ["bundle", "config", "console-socket", "log-opt", "pid-file", "preserve-fds"];
/// The annotation by which a CRI says what a container is for, and its value for the one that holds
/// the namespaces of a pod and runs nothing.
const CONTAINER_TYPES: [&str; 2] =
    ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];
const SANDBOX: &str = "sandbox";
/// The annotations by which a CRI names the container and its pod.
const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";
const POD: &str = "io.kubernetes.cri.sandbox-name";
const CONTAINER: &str = "io.kubernetes.cri.container-name";
/// The name of its host in a container.
const HOSTNAME: &str = "/etc/hostname";
/// The annotation that leaves a container alone, with the value `false`.
const ENABLED: &str = "org.iottymux.enabled";

/// A call of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// All arguments behind the name of the program.
    arguments: Vec<OsString>,
    /// The index of the sub-command.
    command: usize,
    /// The directory of the state of all containers, if it is given.
    pub(crate) root: Option<PathBuf>,
    /// The file for the errors of the runtime.
    pub(crate) log: Option<PathBuf>,
}

/// A call of `create`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) call: Call,
    /// The index of the argument with the path of the console socket.
    console_at: Option<usize>,
    pub(crate) bundle: PathBuf,
    pub(crate) console_socket: Option<PathBuf>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) id: String,
}

/// A word that is an option: its name, and its value behind `=`.
fn option(word: &OsStr) -> Option<(&[u8], Option<&OsStr>)> {
    let bytes = word.as_bytes();
    let name = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"))?;
    let (name, value) = match name.iter().position(|b| *b == b'=') {
        Some(at) => (&name[..at], Some(OsStr::from_bytes(&name[at + 1..]))),
        None => (name, None),
    };
    (!name.is_empty()).then_some((name, value))
}

impl Call {
    /// The call, if these arguments have a sub-command.
    pub(crate) fn parse(arguments: &[OsString]) -> Option<Self> {
        let mut call = Self { arguments: arguments.to_vec(), ..Self::default() };
        call.command = call.read_global()?;
        Some(call)
    }

    /// Reads the options before the sub-command; returns the index of that.
    fn read_global(&mut self) -> Option<usize> {
        let words = self.arguments.clone();
        let mut at = 0;
        loop {
            let word = words.get(at)?;
            let Some((name, value)) = option(word) else { return Some(at) };
            at += 1;
            // Any other sub-command may be mistaken for a value: only `create` is understood.
            let is_value = |next: &&OsString| option(next).is_none() && *next != "create";
            let value = value.or_else(|| {
                let next = words.get(at).filter(is_value)?;
                at += 1;
                Some(next.as_os_str())
            });
            match (name, value) {
                (b"root", Some(path)) => self.root = Some(path.into()),
                (b"log", Some(path)) => self.log = Some(path.into()),
                _ => {}
            }
        }
    }

    /// The sub-command.
    pub(crate) fn name(&self) -> &OsStr {
        &self.arguments[self.command]
    }

    /// What is behind that.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.arguments[self.command + 1..]
    }

    /// The arguments of another call of the same runtime.
    pub(crate) fn other(&self, words: &[&str]) -> Vec<OsString> {
        let globals = self.arguments[..self.command].iter().cloned();
        globals.chain(words.iter().map(OsString::from)).collect()
    }

    /// What the engine calls a namespace: the last part of the directory of its containers.
    pub(crate) fn namespace(&self) -> &str {
        let last = self.root.as_ref().and_then(|root| root.file_name());
        last.and_then(OsStr::to_str).unwrap_or("default")
    }
}

impl Create {
    /// The call, if these arguments are one that is understood.
    pub(crate) fn parse(arguments: &[OsString]) -> Option<Self> {
        let mut create = Self {
            call: Call::parse(arguments).filter(|call| call.name() == "create")?,
            console_at: None,
            bundle: PathBuf::from("."),
            console_socket: None,
            pid_file: None,
            id: String::new(),
        };
        create.read_own()?;
        Some(create)
    }

    /// Reads the options and the id behind `create`.
    fn read_own(&mut self) -> Option<()> {
        let words = self.call.words().to_vec();
        let (id, options) = words.split_last()?;
        let first = self.call.command + 1;
        let mut at = 0;
        while let Some(word) = options.get(at) {
            let index = first + at;
            at += 1;
            let Some((name, value)) = option(word) else { continue };
            let name = if name == b"b" { b"bundle" } else { name };
            if !CREATE_VALUES.iter().any(|known| known.as_bytes() == name) {
                continue;
            }
            let (index, value) = match value {
                Some(value) => (index, value),
                None => {
                    at += 1;
                    (index + 1, options.get(at - 1)?.as_os_str())
                }
            };
            match name {
                b"bundle" => self.bundle = value.into(),
                b"pid-file" => self.pid_file = Some(value.into()),
                b"console-socket" => {
                    self.console_socket = Some(value.into());
                    self.console_at = Some(index);
                }
                _ => {}
            }
        }
        // runc's own rule; the runtime has words for all others.
        let id = id.to_str().filter(|id| !id.is_empty() && !id.starts_with('-'))?;
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
        if !id.chars().all(is_valid) || matches!(id, "." | "..") {
            return None;
        }
        id.clone_into(&mut self.id);
        Some(())
    }

    /// The arguments that delete this container.
    pub(crate) fn deletion(&self) -> Vec<OsString> {
        self.call.other(&["delete", "--force", &self.id])
    }

    /// The same call with another console socket, if it has one, and with a file for the PID, if it
    /// has none.
    pub(crate) fn with(&self, console_socket: Option<&OsStr>, pid_file: &OsStr) -> Vec<OsString> {
        let mut arguments = self.call.arguments.clone();
        if let (Some(at), Some(path)) = (self.console_at, console_socket) {
            let is_joined = arguments[at].as_bytes().starts_with(b"-")
                && option(&arguments[at]).is_some_and(|(_, value)| value.is_some());
            let mut value = OsString::from(if is_joined { "--console-socket=" } else { "" });
            value.push(path);
            arguments[at] = value;
        }
        if self.pid_file.is_none() {
            let own = [OsString::from("--pid-file"), pid_file.to_owned()];
            arguments.splice(self.call.command + 1..=self.call.command, own);
        }
        arguments
    }
}

/// What a runtime says of a container.
#[derive(Debug, Deserialize)]
pub(crate) struct ContainerState {
    pub(crate) pid: i32,
    status: String,
}

impl ContainerState {
    /// Reads the output of `state`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Whether it has a process.
    pub(crate) fn is_alive(&self) -> bool {
        self.pid > 0 && self.status != "stopped"
    }
}

/// The part of a bundle's config.json that matters here. As for the runtimes, null is the same as a
/// missing value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    process: Option<Process>,
    linux: Option<Linux>,
    mounts: Option<Vec<Mount>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    terminal: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Mount {
    destination: String,
    source: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Linux {
    namespaces: Option<Vec<Namespace>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    r#type: String,
    path: Option<String>,
}

impl Config {
    /// Reads a config.json; the runtime has the words for one that is wrong.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.process.as_ref().and_then(|process| process.terminal).unwrap_or(false)
    }

    /// Whether all processes of the container end with its first one: they do if it has a new PID namespace.
    pub(crate) fn has_own_processes(&self) -> bool {
        let namespaces = self.linux.iter().filter_map(|linux| linux.namespaces.as_ref()).flatten();
        let mut of_pids = namespaces.filter(|namespace| namespace.r#type == "pid");
        of_pids.any(|namespace| namespace.path.as_ref().is_none_or(String::is_empty))
    }

    /// Whether the container is left to the real runtime: one that holds the namespaces of a pod, or
    /// one whose annotation says so.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.annotations.iter().flatten().any(|(name, value)| match value.as_str() {
            SANDBOX => CONTAINER_TYPES.contains(&name.as_str()),
            "false" => name == ENABLED,
            _ => false,
        })
    }

    /// The file of its engine with the name of its host.
    pub(crate) fn hostname_file(&self) -> Option<&Path> {
        let mut mounts = self.mounts.iter().flatten();
        mounts.find(|mount| mount.destination == HOSTNAME)?.source.as_deref()
    }

    /// What Kubernetes calls the container, if its annotations say that and the names are valid.
    pub(crate) fn kubernetes(&self) -> Option<KubernetesName> {
        let value = |name| Some(self.annotations.as_ref()?.get(name)?.as_str());
        [value(NAMESPACE)?, value(POD)?, value(CONTAINER)?].join("/").try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Create> {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        Create::parse(&words)
    }

    fn line(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_create_is_found_behind_any_options() {
        for globals in [
            "",
            "--root /r/moby --log /l --log-format json --systemd-cgroup",
            "--root=/r/moby --log=/l --log-format=json",
            "-root /r/moby --debug --log /l --log-format json",
            "--unknown --root /r/moby --log /l --log-format json",
            "--unknown value --root /r/moby --log /l --log-format json",
            "--unknown=create --root /r/moby --log /l --log-format json",
        ] {
            for own in
                ["--bundle /b --pid-file /p", "--bundle=/b --pid-file=/p", "-b /b --pid-file /p"]
            {
                let create = parse(&format!("{globals} create {own} --no-pivot web.1")).unwrap();
                assert_eq!(create.id, "web.1", "{globals} {own}");
                assert_eq!(create.bundle, PathBuf::from("/b"));
                assert_eq!(create.pid_file, Some("/p".into()));
                let (namespace, log) = if globals.is_empty() {
                    ("default", None)
                } else {
                    ("moby", Some("/l".into()))
                };
                assert_eq!((create.call.namespace(), create.call.log.clone()), (namespace, log));
                assert_eq!(line(&create.with(None, "/q".as_ref())), line(&create.call.arguments));
            }
        }
    }

    #[test]
    fn everything_else_is_the_runtimes() {
        for other in [
            "",
            "--version",
            "--root /r state create",
            "--unknown state create",
            "--root create",
            "start create",
            "--root /r delete --force x",
            "create",
            "create --bundle",
            "create --bundle /b --help",
            "create --bundle /b a/../b",
            "create --bundle /b ..",
            "exec --console-socket /s x",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_console_socket_is_replaced_and_a_missing_pid_file_added() {
        for (given, want) in [
            ("create --console-socket /s x", "create --pid-file /q --console-socket /ours x"),
            ("create --console-socket=/s x", "create --pid-file /q --console-socket=/ours x"),
            (
                "--root=/r create -console-socket /s --pid-file /p --preserve-fds 2 x",
                "--root=/r create -console-socket /ours --pid-file /p --preserve-fds 2 x",
            ),
        ] {
            let create = parse(given).unwrap();
            assert_eq!(create.console_socket, Some("/s".into()));
            assert_eq!(line(&create.with(Some("/ours".as_ref()), "/q".as_ref())), want);
        }
    }

    #[test]
    fn a_config_says_what_is_to_be_done() {
        let config = |text: &str| Config::parse(text.as_bytes()).unwrap();
        for empty in
            ["{}", r#"{"process":null,"annotations":null}"#, r#"{"process":{"terminal":null}}"#]
        {
            assert!(!config(empty).has_terminal() && !config(empty).is_left_alone());
        }
        assert!(config(r#"{"process":{"terminal":true,"args":["sh"]}}"#).has_terminal());
        for (namespaces, is_own) in [
            (r#"[{"type":"mount"},{"type":"pid"}]"#, true),
            (r#"[{"type":"pid","path":"/proc/7/ns/pid"}]"#, false),
            (r#"[{"type":"mount"}]"#, false),
            ("null", false),
        ] {
            let config = config(&format!(r#"{{"linux":{{"namespaces":{namespaces}}}}}"#));
            assert_eq!(config.has_own_processes(), is_own, "{namespaces}");
        }
        for alone in [
            r#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}"#,
            r#"{"annotations":{"org.iottymux.enabled":"false"}}"#,
        ] {
            assert!(config(alone).is_left_alone());
        }
        let with =
            config(r#"{"annotations":{"io.kubernetes.cri.container-type":"container","a":"b"}}"#);
        assert!(!with.is_left_alone());
        assert_eq!(with.kubernetes(), None);
        assert!(Config::parse(b"{").is_none() && Config::parse(br#"{"process":3}"#).is_none());
    }

    #[test]
    fn a_container_of_a_pod_has_the_names_of_kubernetes() {
        let named = |namespace: &str, pod: &str, container: &str| {
            let annotations = [(NAMESPACE, namespace), (POD, pod), (CONTAINER, container)];
            let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Config { annotations: Some(annotations.into()), ..Config::default() }.kubernetes()
        };
        let name = named("default", "web-0", "nginx").unwrap();
        assert_eq!(name.to_string(), "default/web-0/nginx");
        for (namespace, pod, container) in [
            ("default", "web", ""),
            ("default", "../web", "nginx"),
            ("default", "we\u{1b}b", "nginx"),
            // No name can make another one of two names.
            ("default", "web/nginx", ""),
            ("default/web", "nginx", "x"),
        ] {
            assert_eq!(named(namespace, pod, container), None);
        }
        assert_eq!(Config::default().kubernetes(), None);
    }
}
