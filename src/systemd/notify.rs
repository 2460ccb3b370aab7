//! What systemd and a service say to each other: readiness, and descriptors that it keeps.
//!
//! Formats: sd_notify(3) and sd_listen_fds(3). Nothing that an app or a client said is ever put
//! into a message. A stored descriptor survives the death of this process, so that the app does
//! not notice it; it is always stored with FDPOLL=0, without which systemd drops a descriptor as
//! soon as it polls a hangup, unread bytes and all.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::unistd::pipe2;

use crate::os::sys;
use crate::types::limits;

/// The number of the first descriptor that systemd passes.
const FIRST_FD: i32 = 3;
/// The variables by which systemd speaks to one process, and which are not for its children.
pub(crate) const PRIVATE_ENV: [&str; 4] =
    ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The way to ask the system's manager something, or a user's; without what that has told this process
/// alone.
pub(crate) fn systemctl(user: bool) -> Command {
    let mut command = Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    for name in PRIVATE_ENV {
        command.env_remove(name);
    }
    command
}

/// Descriptors that came from systemd's store, by name.
#[derive(Debug, Default)]
pub(crate) struct Stored(BTreeMap<String, OwnedFd>);

impl Stored {
    /// Takes over what was passed to this process. To be called once, first of all.
    pub(crate) fn take() -> Self {
        let fds = sys::adopt(FIRST_FD, passed());
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self(names.split(':').map(str::to_owned).zip(fds).collect())
    }

    /// Whether there is a descriptor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The descriptor of this name, if it was stored.
    pub(crate) fn remove(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }
}

/// Begins this program anew, in the same process, without the variables that begin with these, but for some:
/// where it has been given the ends of an app that runs, a mistake in its environment is no reason to
/// let them go, for the app would die of it. Returns when it has not, or when there is nothing to leave
/// out.
pub(crate) fn take_over_without(prefixes: &[&str], but: &[&str]) {
    let left_out = |name: &OsString| {
        let begins = |prefix: &&str| name.as_bytes().starts_with(prefix.as_bytes());
        prefixes.iter().any(begins) && !but.iter().any(|but| name == *but)
    };
    let names: Vec<OsString> = env::vars_os().map(|(name, _)| name).filter(left_out).collect();
    if passed() == 0 || names.is_empty() {
        return;
    }
    eprintln!(
        "iottymux: error: the app is running: ignoring all {} variables and using the defaults",
        prefixes.join(" and ")
    );
    begin_anew(|again| {
        for name in &names {
            again.env_remove(name);
        }
        // What a file says would come again.
        again.env(HAS_READ, "1");
    });
}

/// Set for a process that is begun anew with the variables of a file, or without any.
const HAS_READ: &str = "IOTTYMUX_HAS_READ_ENV";

/// Begins this program anew with the variables of a file that begin so and are not set, unless it has been.
/// Returns when there are none, or when it has not.
pub(crate) fn read_variables(text: &str, prefix: &str) {
    let is_new = |(name, _): &(&str, String)| {
        name.starts_with(prefix) && !name.contains('\0') && env::var_os(name).is_none()
    };
    let new: Vec<_> = variables(text).filter(is_new).collect();
    if env::var_os(HAS_READ).is_none() && !new.is_empty() {
        begin_anew(|again| {
            again.env(HAS_READ, "1").envs(new);
        });
    }
}

/// Begins this program anew in the same process. The descriptors stay open, and the process the one that they
/// were passed to. Comes back when that is not possible.
fn begin_anew(change: impl FnOnce(&mut Command)) {
    let Ok(program) = env::current_exe() else { return };
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1));
    change(&mut again);
    let _ = again.exec();
}

/// Whether it is a user's manager that has started this process: only such a one sets this.
pub(crate) fn is_users() -> bool {
    env::var_os("MANAGERPID").is_some()
}

/// The number of the run of a service, which the manager leaves for journald as long as the service runs.
/// `session` is the directory of the session, where the manager is a user's.
#[must_use]
pub fn run_of(service: &str, session: Option<&Path>) -> Option<String> {
    let units = session.unwrap_or(Path::new("/run")).join("systemd/units");
    let run = fs::read_link(units.join(format!("invocation:{service}"))).ok()?;
    run.into_os_string().into_string().ok()
}

/// Has this process see the files as the system's manager does: a `+` command of a unit runs as root, but with
/// the `TemporaryFileSystem=` and `BindPaths=` of that unit.
pub(crate) fn see_all_files() -> Result<()> {
    let what = "cannot enter the mount namespace of PID 1";
    let namespace = File::open("/proc/1/ns/mnt").context(what)?;
    setns(namespace, CloneFlags::CLONE_NEWNS).context(what)
}

/// How many descriptors the manager keeps for a unit.
pub(crate) fn kept_for(unit: &str, user: bool) -> Result<usize> {
    let what = || format!("cannot ask systemd for the descriptors of {}", unit.escape_debug());
    let mut command = systemctl(user);
    command.args(["show", "--value", "--property=NFileDescriptorStore", "--", unit]);
    let output = command.stdin(Stdio::null()).output().with_context(what)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", what(), said.trim().escape_debug());
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().with_context(what)
}

/// The variables of a file as `EnvironmentFile=` of systemd.exec(5) takes it; lines that are none are left out.
fn variables(text: &str) -> impl Iterator<Item = (&str, String)> {
    let variable = |line| {
        let (name, value) = str::split_once(line, '=')?;
        let (name, value) = (name.trim(), value.trim());
        let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = match (quoted('\''), quoted('"')) {
            (Some(literal), _) => literal.to_owned(),
            (None, within) => unescape(within.unwrap_or(value)),
        };
        (!name.starts_with(['#', ';'])).then_some((name, value))
    };
    text.lines().filter_map(variable)
}

/// A value without the backslashes before what means something elsewhere.
fn unescape(value: &str) -> String {
    let mut escaped = false;
    let keep = |c: &char| {
        escaped = *c == '\\' && !escaped;
        !escaped
    };
    value.chars().filter(keep).collect()
}

/// How many descriptors were passed to this process.
fn passed() -> usize {
    let number = |name| env::var(name).ok()?.parse::<usize>().ok();
    let is_ours = number("LISTEN_PID") == Some(std::process::id() as usize);
    number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0)
}

/// The way to the service manager, where there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<(OwnedFd, UnixAddr)>,
    keeps: bool,
}

impl Notify {
    /// A notifier for `$NOTIFY_SOCKET`, a path or `@` and an abstract name; silent when the
    /// variable is unset or empty. `keeps` tells whether the unit is one that keeps descriptors;
    /// under another systemd would complain of each.
    pub(crate) fn from_env(keeps: bool) -> Result<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let what = |name: &OsString| format!("NOTIFY_SOCKET={}", name.display());
        let open = |name: OsString| Self::open(&name).with_context(|| what(&name));
        Ok(Self { socket: name.map(open).transpose()?, keeps })
    }

    fn open(name: &OsString) -> Result<(OwnedFd, UnixAddr)> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => UnixAddr::new_abstract(rest)?,
            path => UnixAddr::new(OsStr::from_bytes(path))?,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok((fd, address))
    }

    /// Whether descriptors that are stored are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.socket.is_some()
    }

    /// The app can be started and attached now.
    pub(crate) fn ready(&self) {
        self.tell("READY=1", None);
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1", None);
    }

    /// Gives systemd a copy of a descriptor to keep for the next process. `name` is ours: letters,
    /// digits and `-`.
    pub(crate) fn store(&self, name: &str, fd: impl AsFd) {
        if !self.keeps {
            return;
        }
        self.tell(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(fd.as_fd().as_raw_fd()));
    }

    /// As [`Notify::store`], in place of what it keeps under this name: names in the store are not unique.
    pub(crate) fn store_anew(&self, name: &str, fd: impl AsFd) {
        self.forget(name);
        self.store(name, fd);
    }

    /// Has systemd close the copies that it keeps under this name.
    pub(crate) fn forget(&self, name: &str) {
        if self.keeps {
            self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
        }
    }

    /// Waits until all that was sent has been dealt with: a message of a process that has ended is one of nobody.
    pub(crate) fn barrier(&self) -> Result<()> {
        let what = "cannot wait for systemd";
        let (done, token) = pipe2(OFlag::O_CLOEXEC).context(what)?;
        self.tell("BARRIER=1", Some(token.as_raw_fd()));
        drop(token);
        let time = PollTimeout::try_from(limits::BARRIER).unwrap_or(PollTimeout::MAX);
        // Its copy is closed then.
        match poll(&mut [PollFd::new(done.as_fd(), PollFlags::POLLIN)], time).context(what)? {
            0 => bail!("{what}: it does not answer"),
            _ => Ok(()),
        }
    }

    /// A manager that is gone or slow is no reason to fail the app: what cannot be told is logged.
    fn tell(&self, message: &str, fd: Option<i32>) {
        let Some((socket, address)) = &self.socket else { return };
        let fds = fd.as_slice();
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let body = [IoSlice::new(message.as_bytes())];
        let sent =
            sendmsg(socket.as_raw_fd(), &body, control, MsgFlags::MSG_NOSIGNAL, Some(address));
        if let Err(e) = sent.map_err(io::Error::from) {
            let what = message.lines().next().unwrap_or_default();
            log::warn!("cannot report to systemd {what}: {e}");
        }
    }
}
