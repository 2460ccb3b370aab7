//! The real runtime, the settings of the administrator, and messages for the engine.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::containers::oci::{Call, ContainerState};
use crate::core::logfmt::stamp::StampText;
use crate::sys::state::StateDir;
use crate::sys::systemd::own_process;
use crate::types::escape::line;
use crate::types::exit::Exit;
use crate::types::time::Now;

/// The settings: `IOTTYMUX_OCI_RUNTIME`, and options of the muxes of containers.
const SETTINGS: &str = "/etc/iottymux/oci.env";
/// The path of the real runtime, there or in the environment.
const RUNTIME: &str = "IOTTYMUX_OCI_RUNTIME";
/// What all settings begin with.
const PREFIX: &str = "IOTTYMUX_";
/// The usual runtimes, the first that is there counts.
const RUNTIMES: [&str; 2] = ["runc", "crun"];
/// Where they are if the engine gives no PATH.
const DIRECTORIES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The bits of a file's mode by which others than its owner may write it.
const WRITABLE: u32 = 0o022;
/// Where journald takes the standard error of services.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// What it is to know of this one: identifier, unit, priority (info), whether lines may begin with
/// another one, and no forwarding.
const JOURNAL_HEAD: &[u8] = b"iottymux\n\n6\n1\n0\n0\n0\n";

/// See the module.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) program: PathBuf,
    /// The variables for muxes.
    pub(super) settings: Vec<(String, String)>,
    /// Why the settings of the administrator do not count.
    pub(super) complaint: Option<String>,
}

impl Runtime {
    /// The runtime that the settings name, else the first usual one.
    pub(super) fn find() -> Result<Self> {
        // Other variables of the engine may be anything.
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let mut settings: Vec<(String, String)> =
            env::vars_os().filter_map(text).filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let (found, complaint) = match of_administrator() {
            Ok(found) => (found, None),
            Err(e) => (Vec::new(), Some(format!("{e:#}"))),
        };
        for (name, value) in found {
            if !settings.iter().any(|(known, _)| *known == name) {
                settings.push((name, value));
            }
        }
        let named = settings.iter().find(|(name, _)| name == RUNTIME).map(|(_, path)| path.clone());
        settings
            .retain(|(name, _)| name != RUNTIME && !own_process::PRIVATE_ENV.contains(&&**name));
        let program = match named {
            Some(path) => named_runtime(&path)?,
            None => usual_runtime()?,
        };
        Ok(Self { program, settings, complaint })
    }

    /// What it says of a container.
    pub(super) fn container_state(&self, call: &Call, id: &str) -> Option<ContainerState> {
        let mut command = Command::new(&self.program);
        command.args(call.other(&["state", id])).stdin(Stdio::null()).stderr(Stdio::null());
        ContainerState::parse(&command.output().ok()?.stdout)
    }

    /// Where the apps of containers are.
    pub(super) fn state(&self) -> Result<StateDir> {
        let given = self.settings.iter().find(|(name, _)| name == "IOTTYMUX_STATE_DIR");
        StateDir::resolve(given.map(|(_, path)| PathBuf::from(path)))
    }
}

/// The settings of the administrator: a file that root alone can write.
fn of_administrator() -> Result<Vec<(String, String)>> {
    let Ok(file) = fs::metadata(SETTINGS) else { return Ok(Vec::new()) };
    if file.uid() != 0 || file.mode() & WRITABLE != 0 {
        bail!("{SETTINGS}: only root may own and write it");
    }
    let text = fs::read_to_string(SETTINGS).with_context(|| format!("cannot read {SETTINGS}"))?;
    let is_ours = |(name, value): &(&str, String)| {
        name.starts_with(PREFIX) && !name.contains('\0') && !value.contains('\0')
    };
    let settings = own_process::variables(&text).filter(is_ours);
    Ok(settings.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn named_runtime(path: &str) -> Result<PathBuf> {
    let path = PathBuf::from(path);
    match is_program(&path) {
        Some(true) => Ok(path),
        Some(false) => Err(anyhow!("{RUNTIME}={}: it is iottymux itself", path.display())),
        None => Err(anyhow!("{RUNTIME}={}: there is no such program", path.display())),
    }
}

fn usual_runtime() -> Result<PathBuf> {
    let given = env::var_os("PATH").unwrap_or_default();
    let usual = DIRECTORIES.into();
    let directories: Vec<PathBuf> =
        [&given, &usual].into_iter().flat_map(|path| env::split_paths(path)).collect();
    let paths = RUNTIMES.iter().flat_map(|name| directories.iter().map(move |d| d.join(name)));
    let found = paths.into_iter().find(|path| is_program(path) == Some(true));
    found.with_context(|| format!("there is no {}; set {RUNTIME}", RUNTIMES.join(" and no ")))
}

/// Whether a path leads to a program, other than this one.
fn is_program(path: &Path) -> Option<bool> {
    let file = fs::metadata(path).ok()?;
    if !path.is_absolute() || !file.is_file() || file.permissions().mode() & 0o111 == 0 {
        return None;
    }
    let own = fs::metadata("/proc/self/exe").ok();
    Some(own.is_none_or(|own| (own.dev(), own.ino()) != (file.dev(), file.ino())))
}

/// Ends a call with an error, where the engine looks for it.
pub(super) fn failed(call: Option<&Call>, why: &str) -> Exit {
    let _ = writeln!(io::stderr(), "iottymux: {}", line(why));
    if let Some(call) = call {
        log_for_engine(call, "error", why);
    }
    Exit::Failed
}

/// Reports to the administrator what did not make a call fail. Standard error may be the container's.
pub(super) fn warn(call: &Call, what: &str) {
    if let Some(mut journal) = journal() {
        let _ = writeln!(journal, "<4>{}", line(what));
    }
    log_for_engine(call, "warning", what);
}

/// Appends a line to the runtime's log, in the format that engines read.
fn log_for_engine(call: &Call, level: &str, message: &str) {
    let Some(path) = &call.log else { return };
    let time = StampText::new(Now::read().stamp);
    let time = String::from_utf8_lossy(time.as_bytes());
    let entry = serde_json::json!({ "level": level, "msg": message, "time": time });
    if let Ok(mut log) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = writeln!(log, "{entry}");
    }
}

/// A stream for lines in the journal.
pub(super) fn journal() -> Option<File> {
    let mut stream = UnixStream::connect(JOURNAL).ok()?;
    stream.write_all(JOURNAL_HEAD).ok()?;
    Some(File::from(OwnedFd::from(stream)))
}
