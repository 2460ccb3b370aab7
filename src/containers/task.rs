//! A task of containerd, or a process in one, asked at its shim's own socket: how it ends.
//!
//! Nothing here blocks. The shim may not know the task yet, and its connection may break: then it
//! is asked again, after a pause.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::unistd::Pid;
use serde::Deserialize;

use super::protobuf::{self, FieldWriter, NoMessage};
use super::ttrpc::{NOT_FOUND, RefusedByShim, Response, ShimConnection};
use crate::core::wire::AppStatus;
use crate::sys::files::read_plain;

/// How long a shim has until it is asked again: a task is made in a fraction of a second. Twice as
/// long after each further time, up to [`RETRY_MOST`].
const RETRY: Duration = Duration::from_millis(50);
/// See [`RETRY`].
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Longest file that leads to a shim, or describes a container, bytes.
const FILE: u64 = 4 << 20;
/// The file of containerd 2, and the one before it.
const BOOTSTRAP: &str = "bootstrap.json";
const ADDRESS: &str = "address";
/// The description of the container.
const CONFIG: &str = "config.json";
/// The file with the PID of a container's first process, once that exists.
const INIT: &str = "init.pid";
/// The status of a process that is reported where the real one does not fit.
const STATUS_MAX: u8 = 255;

/// Names a task, or a process in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    /// The container.
    pub(crate) id: String,
    /// The process, if it is not the container's first one.
    pub(crate) exec: Option<String>,
}

impl TaskId {
    /// The task that a logger serves. `id` is of the container, or of a process that is started in
    /// it later; the directory has the container's name.
    pub(crate) fn of_logger(bundle: &Path, id: &str) -> Self {
        let container = bundle.file_name().map(|name| name.to_string_lossy().into_owned());
        match container {
            Some(container) if container != id && bundle.join(CONFIG).exists() => {
                Self { id: container, exec: Some(id.to_owned()) }
            }
            // A process with the name of its container.
            Some(container) if bundle.join(INIT).exists() => {
                Self { id: container, exec: Some(id.to_owned()) }
            }
            _ => Self { id: id.to_owned(), exec: None },
        }
    }
}

/// Whether a container has a terminal, by its description.
pub(crate) fn has_terminal(bundle: &Path) -> bool {
    #[derive(Deserialize)]
    struct Config {
        process: Process,
    }
    #[derive(Deserialize)]
    struct Process {
        #[serde(default)]
        terminal: bool,
    }
    let config = read_plain(&bundle.join(CONFIG), FILE).ok();
    let config = config.and_then(|text| serde_json::from_slice::<Config>(&text).ok());
    config.is_some_and(|config| config.process.terminal)
}

/// The socket of a shim, and what it understands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shim {
    socket: PathBuf,
    service: &'static str,
}

/// What has become of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEvent {
    /// It exists, with this process.
    Started(Pid),
    /// It has ended, if it is known how.
    Ended(Option<AppStatus>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Task {
    bundle: PathBuf,
    id: TaskId,
    link: Link,
    pause: Duration,
    pid: Option<Pid>,
    /// The last error that was logged.
    complaint: String,
}

#[derive(Debug)]
enum Link {
    /// It is asked at this time.
    Pause(Instant),
    Open {
        client: ShimConnection,
        /// The numbers of the requests.
        state: u32,
        wait: u32,
    },
    /// There is nothing to be learnt any more.
    Over,
}

impl Task {
    /// The task of a bundle, which is asked at once.
    pub(crate) fn new(bundle: PathBuf, id: TaskId, now: Instant) -> Self {
        let link = Link::Pause(now);
        Self { bundle, id, link, pause: RETRY, pid: None, complaint: String::new() }
    }

    /// What is to be polled for it.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Open { client, .. } => Some(client.as_fd()),
            Link::Pause(_) | Link::Over => None,
        }
    }

    /// When it is to be looked at though nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.link {
            Link::Pause(at) => Some(at),
            Link::Open { .. } | Link::Over => None,
        }
    }

    /// Its process, while that is known.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Asks, or reads what has come. To be called until there is nothing.
    pub(crate) fn look(&mut self, now: Instant) -> Option<TaskEvent> {
        if let Link::Pause(at) = self.link
            && at <= now
        {
            if !self.bundle.exists() {
                // It is made before the task is.
                self.pause(now);
                return None;
            }
            match self.connect() {
                Ok(link) => self.link = link,
                Err(e) => self.fail(&e, now),
            }
        }
        while let Link::Open { client, state, wait } = &mut self.link {
            let (state, wait) = (*state, *wait);
            match client.receive() {
                Ok(None) => return None,
                Ok(Some(Response { request, result })) if request == wait => {
                    return self.end(result, now);
                }
                Ok(Some(Response { request, result: Ok(body) })) if request == state => {
                    if let Ok(Some(pid)) = process(&body) {
                        self.pid = Some(pid);
                        return Some(TaskEvent::Started(pid));
                    }
                }
                Ok(Some(_)) => {}
                Err(e) => self.fail(&anyhow!(e).context("cannot read from the shim"), now),
            }
        }
        None
    }

    fn connect(&self) -> Result<Link> {
        let Shim { socket, service } = shim(&self.bundle)?;
        let message = self.id.message().done();
        let ask = || -> io::Result<Link> {
            let mut client = ShimConnection::connect(&socket)?;
            let state = client.ask(service, "State", &message)?;
            let wait = client.ask(service, "Wait", &message)?;
            Ok(Link::Open { client, state, wait })
        };
        ask().with_context(|| format!("cannot ask the shim at {}", socket.display()))
    }

    /// The shim has answered the request to wait.
    fn end(&mut self, result: Result<Vec<u8>, RefusedByShim>, now: Instant) -> Option<TaskEvent> {
        match result {
            Ok(body) => {
                self.link = Link::Over;
                Some(TaskEvent::Ended(status(&body).ok()))
            }
            Err(RefusedByShim { code: NOT_FOUND, .. }) if self.pid.is_some() => {
                self.link = Link::Over;
                Some(TaskEvent::Ended(None))
            }
            Err(RefusedByShim { code: NOT_FOUND, .. }) => {
                // It does not exist yet.
                self.pause(now);
                None
            }
            Err(RefusedByShim { code, message }) => {
                self.fail(&anyhow!("the shim refuses to wait: {message} (code {code})"), now);
                None
            }
        }
    }

    fn fail(&mut self, error: &anyhow::Error, now: Instant) {
        let complaint = format!("{error:#}");
        if self.complaint != complaint {
            let id = self.id.id.escape_debug();
            log::warn!("how container {id} ends is not known now: {complaint}");
            self.complaint = complaint;
        }
        self.pause(now);
    }

    fn pause(&mut self, now: Instant) {
        self.link = Link::Pause(now + self.pause);
        self.pause = (self.pause * 2).min(RETRY_MOST);
    }
}

impl TaskId {
    /// The fields that all requests begin with.
    fn message(&self) -> FieldWriter {
        FieldWriter::default().text(1, &self.id).text(2, self.exec.as_deref().unwrap_or_default())
    }
}

/// The way to the shim of a bundle.
fn shim(bundle: &Path) -> Result<Shim> {
    let read = |file: &str| match fs::metadata(bundle.join(file)) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        _ => {
            let path = bundle.join(file);
            let read = read_plain(&path, FILE).map(Some);
            read.with_context(|| format!("cannot read {}", path.display()))
        }
    };
    match (read(BOOTSTRAP)?, read(ADDRESS)?) {
        (Some(text), _) => bootstrap(&text).with_context(|| format!("file {BOOTSTRAP}")),
        (None, Some(text)) => address(&text).with_context(|| format!("file {ADDRESS}")),
        (None, None) => bail!("{} has neither {BOOTSTRAP} nor {ADDRESS}", bundle.display()),
    }
}

/// The way to a shim, as containerd 2 writes it.
fn bootstrap(text: &[u8]) -> Result<Shim> {
    #[derive(Deserialize)]
    struct Bootstrap {
        version: u32,
        address: String,
        protocol: String,
    }
    let Bootstrap { version, address, protocol } = serde_json::from_slice(text)?;
    if protocol != "ttrpc" {
        let protocol = protocol.escape_debug();
        bail!("the shim speaks {protocol}, and iottymux speaks ttrpc only");
    }
    let service = match version {
        2 => "containerd.task.v2.Task",
        3 => "containerd.task.v3.Task",
        _ => bail!("the shim speaks version {version}, and iottymux speaks versions 2 and 3"),
    };
    Ok(Shim { socket: socket(&address)?, service })
}

/// The way to a shim, as containerd 1 writes it.
fn address(text: &[u8]) -> Result<Shim> {
    let text = std::str::from_utf8(text)?;
    Ok(Shim { socket: socket(text.trim())?, service: "containerd.task.v2.Task" })
}

fn socket(address: &str) -> Result<PathBuf> {
    let path = address.strip_prefix("unix://").map(Path::new).filter(|path| path.is_absolute());
    let wrong = || anyhow!("expected unix:// and a path, got {address:?}");
    path.map(Path::to_owned).ok_or_else(wrong)
}

/// The process in an answer to State.
fn process(body: &[u8]) -> Result<Option<Pid>, NoMessage> {
    let pid = i32::try_from(protobuf::number(&protobuf::fields(body)?, 3));
    Ok(pid.ok().filter(|pid| *pid > 0).map(Pid::from_raw))
}

/// The status in an answer to Wait: as of a shell, 128 and more is a signal.
fn status(body: &[u8]) -> Result<AppStatus, NoMessage> {
    let status = protobuf::number(&protobuf::fields(body)?, 1);
    Ok(AppStatus::Status(u8::try_from(status).unwrap_or(STATUS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_shim() {
        let shim = |service| Ok(Shim { socket: "/run/s/1".into(), service });
        let (v2, v3) = ("containerd.task.v2.Task", "containerd.task.v3.Task");
        let text = |shim: Result<Shim>| shim.map_err(|e| format!("{e:#}"));
        for (file, want) in [
            (r#"{"version":3,"address":"unix:///run/s/1","protocol":"ttrpc"}"#, shim(v3)),
            (r#"{"version":2,"address":"unix:///run/s/1","protocol":"ttrpc","x":1}"#, shim(v2)),
            (r#"{"version":3,"address":"unix:///run/s/1","protocol":"grpc"}"#, Err("speaks grpc")),
            (r#"{"version":4,"address":"unix:///run/s/1","protocol":"ttrpc"}"#, Err("version 4")),
            (r#"{"version":3,"address":"tcp://h","protocol":"ttrpc"}"#, Err("expected unix://")),
            (r#"{"version":3,"address":"unix://a","protocol":"ttrpc"}"#, Err("expected unix://")),
            ("{}", Err("missing field")),
            ("", Err("EOF")),
        ] {
            match (text(bootstrap(file.as_bytes())), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want),
                (Err(got), Err(want)) => assert!(got.contains(want), "{file}: {got}"),
                (got, want) => panic!("{file}: {got:?}, not {want:?}"),
            }
        }
        assert_eq!(text(address(b"unix:///run/s/1\n")).ok(), shim(v2).ok());
        for bad in [&b""[..], b"\xff", b"/run/s/1", b"unix://"] {
            assert!(address(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_bundle_without_a_way_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", shim(dir.path()).unwrap_err());
        assert!(error.contains("neither bootstrap.json nor address"), "{error}");
        fs::write(dir.path().join(ADDRESS), "unix:///a").unwrap();
        assert_eq!(shim(dir.path()).unwrap().socket, Path::new("/a"));
        let newer = r#"{"version":3,"address":"unix:///b","protocol":"ttrpc"}"#;
        fs::write(dir.path().join(BOOTSTRAP), newer).unwrap();
        assert_eq!(shim(dir.path()).unwrap().socket, Path::new("/b"));
    }

    #[test]
    fn a_process_in_a_container_is_told_from_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("web");
        let task = |id: &str| TaskId::of_logger(&bundle, id);
        let first = TaskId { id: "web".into(), exec: None };
        let exec = |exec: &str| TaskId { id: "web".into(), exec: Some(exec.into()) };
        // nerdctl starts a logger elsewhere.
        assert_eq!(task("other"), TaskId { id: "other".into(), exec: None });
        fs::create_dir(&bundle).unwrap();
        fs::write(bundle.join(CONFIG), r#"{"process":{"terminal":true}}"#).unwrap();
        assert_eq!((task("web"), task("sh")), (first, exec("sh")));
        fs::write(bundle.join(INIT), "7").unwrap();
        assert_eq!((task("web"), task("sh")), (exec("web"), exec("sh")));
        assert!(has_terminal(&bundle));
        for config in ["{}", "", r#"{"process":{}}"#, r#"{"process":{"terminal":1}}"#] {
            fs::write(bundle.join(CONFIG), config).unwrap();
            assert!(!has_terminal(&bundle), "{config}");
        }
    }

    #[test]
    fn answers() {
        let wait = |status| FieldWriter::default().number(1, status).bytes(2, b"\x08\x01").done();
        for (number, want) in [(0, 0), (3, 3), (255, 255), (256, 255), (u64::MAX, 255)] {
            assert_eq!(status(&wait(number)), Ok(AppStatus::Status(want)));
        }
        let state = |pid| FieldWriter::default().text(1, "web").number(3, pid).done();
        for (number, want) in [(7, Some(7)), (0, None), (u64::MAX, None)] {
            assert_eq!(process(&state(number)), Ok(want.map(Pid::from_raw)));
        }
        assert_eq!(status(&[0x0a, 9]), Err(NoMessage));
    }
}
