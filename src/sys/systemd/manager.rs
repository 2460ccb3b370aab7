//! A service manager: shows the state of units over D-Bus, and starts and stops them with systemctl.

use std::env;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::bus::{self, Bus, Properties};
use super::own_process;
use crate::sys::calls;
use crate::sys::files::read_plain;
use crate::sys::state::session;
use crate::types::escape;
use crate::types::limits;

/// How long a started service must run before it counts as running: longer than a program takes to
/// read its options and fail, as `podman run` does after some 300 ms.
const LASTS: Duration = Duration::from_secs(1);

/// How long a command that takes a console away waits for the service to start again, which it does
/// without that command, too: some wait for their readiness for minutes.
const COMES_BACK: Duration = Duration::from_secs(5);

/// States of a unit that has processes, or will have some without another command.
const RUNNING: [&str; 5] = ["active", "activating", "reloading", "refreshing", "deactivating"];
/// Verbs of systemctl that wait for a service.
const VERBS: [&str; 4] = ["start", "stop", "restart", "try-restart"];
/// How long a person waits without being told for what.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Words of a command that a person is shown of: many services can be named.
const WORDS: usize = 8;

/// Whether systemd runs here as PID 1: not in a chroot or in the image of a machine.
pub(crate) fn is_booted() -> bool {
    fs::exists("/run/systemd/system").unwrap_or(false)
}

/// Waits. If that takes longer than a person expects, says on a terminal for what.
fn telling<T>(what: &str, wait: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return wait();
    }
    let text = format!("iottymux: waiting for {what}");
    let (done, is_done) = mpsc::channel::<()>();
    let teller = thread::spawn(move || {
        if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{text}");
        }
    });
    let waited = wait();
    drop(done);
    // It only prints.
    let _ = teller.join();
    waited
}

/// A manager of services: the system's, or that of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    /// Whether it is the user's.
    pub(crate) user: bool,
}

/// The status of a unit.
pub(crate) struct UnitStatus {
    /// `LoadState`.
    load_state: String,
    /// Its main name.
    pub(crate) id: String,
    /// All of its names.
    pub(crate) names: Vec<String>,
    /// The units that it wants or requires.
    pub(crate) wants: Vec<String>,
    /// Whether it has no file of its own: systemd-run made it, and forgets it when it stops.
    pub(crate) is_transient: bool,
    /// `Type`, of a service.
    pub(crate) kind: String,
    /// The path of the program of a service.
    pub(crate) program: String,
    /// `ActiveState`.
    state: String,
    /// `SubState`.
    sub_state: String,
    /// Whether a job of systemd is pending for it.
    has_job: bool,
    /// `Result` of its last run: `success` or a failure.
    result: String,
    /// Start time of its last process, only for comparison with another one.
    started: Option<i64>,
}

impl UnitStatus {
    /// Whether it exists and is not masked.
    pub(crate) fn is_loaded(&self) -> bool {
        self.load_state == "loaded"
    }

    /// Whether systemd has found a file of it.
    pub(crate) fn is_found(&self) -> bool {
        self.load_state != "not-found"
    }

    /// Whether it is masked: it may still run, but cannot be started.
    pub(crate) fn is_masked(&self) -> bool {
        self.load_state == "masked"
    }

    /// Whether it has processes, or will have some without another command.
    pub(crate) fn runs(&self) -> bool {
        RUNNING.contains(&&*self.state)
    }

    /// Whether it is started and not stopping.
    pub(crate) fn is_active(&self) -> bool {
        ["active", "reloading", "refreshing"].contains(&&*self.state)
    }

    /// Whether it counts as failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.state == "failed"
    }

    /// Whether its start failed, or systemd tries again. Only valid if this is not its first start.
    pub(crate) fn does_not_start(&self) -> bool {
        self.state == "activating" || self.result != "success"
    }

    /// Whether it is stopping, or systemd will restart it.
    pub(crate) fn lingers(&self) -> bool {
        self.stops() || self.sub_state.starts_with("auto-restart")
    }

    /// Whether it is being stopped.
    pub(crate) fn stops(&self) -> bool {
        self.state == "deactivating"
    }
}

/// A signal such as ^C has ended `systemctl`; the job in systemd continues.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Does this again if a signal has ended systemctl, which came to this process, too.
pub(crate) fn surely(does: impl Fn() -> Result<()>) -> Result<()> {
    loop {
        match does() {
            Err(e) if e.is::<Interrupted>() => {}
            done => return done,
        }
    }
}

/// The outcome of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It runs.
    Runs,
    /// It has ended with this result, and systemd restarts it.
    Repeats(String),
    /// It has finished successfully, or one of its conditions failed; systemd soon forgets which.
    Rests,
    /// It has failed with this result.
    Failed(String),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.write_str("runs"),
            Self::Repeats(result) => {
                write!(f, "has ended ({}) and is started again", escape::line(result))
            }
            Self::Rests => f.write_str("does not run (success)"),
            Self::Failed(result) => write!(f, "has failed ({})", escape::line(result)),
        }
    }
}

impl Manager {
    /// The manager that started this process.
    pub(crate) fn of_this_process() -> Self {
        Self { user: own_process::is_of_user() }
    }

    /// The option of systemctl for this manager, after a space, or nothing.
    pub(crate) fn option(self) -> &'static str {
        if self.user { " --user" } else { "" }
    }

    /// The directory of the administrator's units.
    pub(crate) fn units(self) -> Result<PathBuf> {
        if !self.user {
            return Ok("/etc/systemd/system".into());
        }
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        absolute("XDG_CONFIG_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".config")))
            .map(|dir| dir.join("systemd/user"))
            .context("cannot find the directory of the user's units: HOME is not set")
    }

    /// The directory of units that are gone at the next boot, or with the user's session.
    pub(crate) fn runtime_units(self) -> Option<PathBuf> {
        if !self.user {
            return Some("/run/systemd/system".into());
        }
        Some(session().ok()?.join("systemd/user"))
    }

    /// The directory of what ends with it.
    fn run_dir(self) -> Result<PathBuf> {
        if self.user { session() } else { Ok("/run".into()) }
    }

    /// Waits until no other command changes services. The file is its turn, until it is closed.
    pub(crate) fn turn(self) -> Result<File> {
        let path = self.run_dir()?.join("iottymux-enable.lock");
        let what = || format!("cannot lock {}", path.display());
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&path).with_context(what)?;
        let lock = || flock(&file, FlockOperation::LockExclusive);
        telling("another enable or disable", lock).with_context(what)?;
        Ok(file)
    }

    /// Whether this process may change its services.
    pub(crate) fn may_be_changed(self) -> bool {
        self.user || Uid::effective().is_root()
    }

    /// The invocation id of a service that runs: systemd keeps it in a link for journald.
    pub(crate) fn run_of(self, service: &str) -> Option<String> {
        let link = self.run_dir().ok()?.join("systemd/units").join(format!("invocation:{service}"));
        fs::read_link(link).ok()?.into_os_string().into_string().ok()
    }

    /// Where this user can ask it.
    pub(crate) fn door(self) -> Result<Bus> {
        Ok(if self.user {
            Bus::Private(session()?.join("systemd/private"))
        } else if Uid::effective().is_root() {
            Bus::Private("/run/systemd/private".into())
        } else {
            Bus::System
        })
    }

    /// Whether it runs, as far as this user can see: the system's always does.
    pub(crate) fn is_there(self) -> bool {
        self.door().is_ok_and(|door| door.path().exists())
    }

    /// The values of these properties of a unit.
    pub(crate) fn properties(self, unit: &str, names: &[&'static str]) -> Result<Properties> {
        self.door()?.properties(unit, names, bus::PATIENCE)
    }

    /// `systemctl`, for this manager.
    fn command(self) -> Command {
        let mut command = Command::new("systemctl");
        if self.user {
            command.arg("--user");
            if let Ok(session) = session() {
                command.env("XDG_RUNTIME_DIR", session);
            }
        }
        for name in own_process::PRIVATE_ENV {
            command.env_remove(name);
        }
        command
    }

    /// Runs systemctl with these arguments and returns its output.
    pub(crate) fn systemctl(self, words: &[&str]) -> Result<String> {
        bus::end_connection();
        // As a person would type it.
        let is_typed = |word: &&str| *word != "--";
        let what = || {
            let typed: Vec<&str> = words.iter().copied().filter(is_typed).collect();
            let shown = typed[..typed.len().min(WORDS)].join(" ");
            format!("systemctl {shown}{}", if typed.len() > WORDS { " …" } else { "" })
        };
        let mut systemctl = self.command();
        systemctl.args(words).stdin(Stdio::null());
        // ^C ends it, also where this process waits with its own end.
        calls::taking_signals(&mut systemctl);
        let waits = words.first().is_some_and(|verb| VERBS.contains(verb));
        let mut run = || systemctl.output().with_context(what);
        let output = if waits { telling(&what(), run) } else { run() }?;
        if output.status.signal().is_some() {
            return Err(anyhow::Error::new(Interrupted).context(what()));
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: {}",
                what(),
                escape::line(&said.trim().lines().collect::<Vec<_>>().join("; "))
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The current status of a unit.
    pub(crate) fn show(self, unit: &str) -> Result<UnitStatus> {
        const NAMES: [&str; 14] = [
            "Id",
            "Names",
            "LoadState",
            "ActiveState",
            "SubState",
            "Job",
            "Result",
            "ExecMainStartTimestampMonotonic",
            "Wants",
            "Requires",
            "BindsTo",
            "Transient",
            "Type",
            "ExecStart",
        ];
        let all = self.properties(unit, &NAMES)?;
        let text = |name| all.text(name).to_owned();
        let texts = |name| all.texts(name).into_iter().map(str::to_owned);
        Ok(UnitStatus {
            load_state: text("LoadState"),
            id: text("Id"),
            names: texts("Names").collect(),
            wants: ["Wants", "Requires", "BindsTo"].into_iter().flat_map(texts).collect(),
            is_transient: all.number("Transient") == Some(1),
            kind: text("Type"),
            program: all.program("ExecStart").to_owned(),
            state: text("ActiveState"),
            sub_state: text("SubState"),
            has_job: all.texts("Job").first().is_some_and(|job| *job != "/"),
            result: text("Result"),
            started: all.number("ExecMainStartTimestampMonotonic"),
        })
    }

    /// The texts of the files of a unit, with their paths, in the order of systemd.
    pub(crate) fn files(self, unit: &str) -> Result<Vec<(PathBuf, String)>> {
        let all = self.properties(unit, &["FragmentPath", "DropInPaths"])?;
        let paths = [all.texts("FragmentPath"), all.texts("DropInPaths")].concat().into_iter();
        let read = |path: &str| {
            let text = fs::canonicalize(path).and_then(|path| read_plain(&path, limits::UNIT_FILE));
            match text {
                Ok(text) => Some(Ok((path.into(), String::from_utf8_lossy(&text).into_owned()))),
                // It is gone, and systemd has not been told.
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => {
                    Some(Err(e).with_context(|| format!("cannot read {}", escape::line(path))))
                }
            }
        };
        paths.filter(|path| !path.is_empty()).filter_map(read).collect()
    }

    /// The status of a unit once it is not stopping any more, alone or for a restart.
    pub(crate) fn show_settled(self, unit: &str) -> Result<UnitStatus> {
        telling(&format!("{} to start or stop", escape::line(unit)), || {
            loop {
                let shown = self.show(unit)?;
                if !shown.stops() && (shown.runs() || !shown.has_job) {
                    return Ok(shown);
                }
                thread::sleep(limits::LOOK_AGAIN);
            }
        })
    }

    /// The same, once it has run for [`LASTS`] or does not run: many a service fails a moment after
    /// its start.
    fn show_lasting(self, unit: &str) -> Result<UnitStatus> {
        let mut now = self.show_settled(unit)?;
        let (started, until) = (now.started, Instant::now() + LASTS);
        while now.sub_state == "running" && now.started == started && Instant::now() < until {
            thread::sleep(limits::LOOK_AGAIN);
            now = self.show_settled(unit)?;
        }
        Ok(now)
    }

    /// The outcome of a start; `before` is the status before it, `started` the result of systemctl.
    /// An error if systemd has refused the start, and nothing has changed.
    pub(crate) fn fate(self, unit: &str, before: &UnitStatus, started: Result<()>) -> Result<Fate> {
        let now = self.show_lasting(unit)?;
        // systemd reports a failure if a service ends before its hook, whatever its status.
        let has_run = started.is_ok() || now.started != before.started;
        if now.runs() && !has_run {
            return started.map(|()| Fate::Runs);
        }
        Ok(match (&*now.state, &*now.sub_state) {
            (_, "auto-restart") => Fate::Repeats(now.result),
            ("failed", _) => Fate::Failed(now.result),
            _ if now.runs() => Fate::Runs,
            _ if has_run => Fate::Rests,
            _ => return started.map(|()| Fate::Rests),
        })
    }

    /// Restarts a service that runs, and returns when it has stopped and then started, or has not
    /// within [`COMES_BACK`].
    pub(crate) fn restart_soon(self, unit: &str, before: &UnitStatus) -> Result<()> {
        self.systemctl(&["restart", "--no-block", "--", unit])?;
        telling(&format!("systemctl restart {}", escape::line(unit)), || {
            let mut until = None;
            loop {
                let now = self.show(unit)?;
                let has_stopped = now.started != before.started || !now.runs();
                if !now.has_job {
                    return Ok(());
                }
                if has_stopped || now.state == "activating" {
                    let until = *until.get_or_insert_with(|| Instant::now() + COMES_BACK);
                    if Instant::now() > until {
                        return Ok(());
                    }
                }
                thread::sleep(limits::LOOK_AGAIN);
            }
        })
    }

    /// Stops a unit, if there is something to stop.
    pub(crate) fn stop(self, unit: &str) -> Result<()> {
        if !self.is_in(unit, &RUNNING)? {
            return Ok(());
        }
        match self.systemctl(&["stop", "--", unit]) {
            // Unless it has ended meanwhile, and is forgotten.
            Err(e) if self.is_in(unit, &RUNNING)? => Err(e),
            _ => Ok(()),
        }
    }

    /// Makes systemd forget that a unit has failed, if it has.
    pub(crate) fn forget(self, unit: &str) -> Result<()> {
        if !self.is_in(unit, &["failed"])? {
            return Ok(());
        }
        match self.systemctl(&["reset-failed", "--", unit]) {
            // Unless it is forgotten meanwhile.
            Err(e) if self.is_in(unit, &["failed"])? => Err(e),
            _ => Ok(()),
        }
    }

    /// Whether the state of a unit is one of these.
    fn is_in(self, unit: &str, states: &[&str]) -> Result<bool> {
        Ok(states.contains(&self.properties(unit, &["ActiveState"])?.text("ActiveState")))
    }
}
