//! What ends a command in the background: the unit of systemd in whose control group it starts. And a
//! scope of its own, which ends with nothing else.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use nix::unistd::Uid;

use crate::host::enable::account;
use crate::sys::state::{self, AppDir};
use crate::sys::systemd::bus;
use crate::sys::systemd::manager::{self, Manager};
use crate::sys::systemd::own_process::is_of_unit;
use crate::types::escape;

/// How long systemd may take for all that is asked of it. It takes milliseconds; one that hangs does not
/// hold `run`.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two looks whether this process is in it.
const LOOK: Duration = Duration::from_millis(2);
/// The users that systemd makes for `DynamicUser=`, see its page on users and groups.
const DYNAMIC_USERS: RangeInclusive<u32> = 61184..=65519;
/// Characters of the command in the description of a scope.
const DESCRIPTION: usize = 120;

/// The variable of [`ScopePolicy`].
pub(crate) const SCOPE: &str = "IOTTYMUX_SCOPE";

/// Which commands get a scope of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopePolicy {
    /// Those that a service or a login would end with it.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

/// A unit in whose control group processes are.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Its name.
    unit: String,
    /// The user whose manager has it; `None`: the system's.
    manager: Option<u32>,
    /// The user of a login.
    login: Option<u32>,
}

/// What ends with a unit.
struct Ending {
    /// How it is called.
    with: String,
    is_login: bool,
    /// Whether its /tmp is its own.
    has_private_tmp: bool,
    /// Its slice, if the manager that has it is the one that would have the scope.
    slice: Option<String>,
}

/// Gives this process, and what it starts, a scope of its own, if what its command is started in would
/// end it. Returns what whoever started it should know.
pub(crate) fn settle(
    policy: ScopePolicy,
    dir: &AppDir,
    command: &[OsString],
) -> Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    let ending = match policy {
        ScopePolicy::Never => return Ok(None),
        ScopePolicy::Auto => match ending(until) {
            None => return Ok(None),
            ending => ending,
        },
        ScopePolicy::Always => Place::of_this_process().and_then(|place| place.ending(until)),
    };
    let name = dir.name();
    let made = match ending.as_ref().and_then(|ending| ending.takes(dir.state())) {
        Some(gone) => Err(gone),
        None => make(dir, command, ending.as_ref(), until).map_err(|e| format!("{e:#}")),
    };
    Ok(Some(match (made, ending) {
        (Ok(scope), Some(Ending { with, is_login, has_private_tmp, .. })) => {
            let outlives = format!("{name} is in {scope} and outlives {with}");
            let logout = "the last logout";
            let told = match !Uid::effective().is_root() && !state::lingers() {
                true if is_login => {
                    format!("{name} is in {scope} and ends with {logout}: {}", linger())
                }
                true => format!("{outlives}, until {logout}: {}", linger()),
                false => outlives,
            };
            let but = if has_private_tmp {
                format!("; the private /tmp of {with} does not")
            } else {
                String::new()
            };
            told + &but
        }
        (Ok(scope), None) => format!("{name} is in {scope}"),
        (Err(why), Some(Ending { with, .. })) if policy == ScopePolicy::Auto => {
            format!("{name} ends with {with}: {why}")
        }
        (Err(why), _) => bail!("app {name} cannot have a scope: {why}"),
    }))
}

/// What whoever leaves an attached command should know: it has no scope.
pub(crate) fn on_leaving(dir: &AppDir) -> Option<String> {
    let Ending { with, .. } = ending(Instant::now() + PATIENCE)?;
    Some(format!("{} ends with {with}; what iottymux run -d starts there does not", dir.name()))
}

/// What would end a command of this process.
fn ending(until: Instant) -> Option<Ending> {
    // What a unit starts by itself is what the unit is for.
    if !manager::is_booted() || is_of_unit() {
        return None;
    }
    Place::of_this_process()?.ending(until)
}

/// How this user's systemd runs without a login.
fn linger() -> String {
    let uid = Uid::effective().as_raw();
    let user = account::name(uid).unwrap_or_else(|| uid.to_string());
    format!("try loginctl enable-linger {}", escape::line(&user))
}

/// The manager that would have a scope.
fn own_manager() -> Manager {
    Manager { user: !Uid::effective().is_root() }
}

/// The time until then.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Has this process moved to a new scope, and returns the name of that.
fn make(
    dir: &AppDir,
    command: &[OsString],
    ending: Option<&Ending>,
    until: Instant,
) -> Result<String> {
    // A scope has no template.
    let name = dir.name().as_str().replace('@', "-");
    let scope = format!("iottymux-{name}-{}.scope", process::id());
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let words = escape::line(&words.join(" ")).to_string();
    let description: String = format!("iottymux run: {words}").chars().take(DESCRIPTION).collect();
    let manager = own_manager();
    if DYNAMIC_USERS.contains(&Uid::effective().as_raw()) {
        bail!("a dynamic user has no systemd; try User= in the unit");
    }
    if !manager.is_there() {
        bail!("its user has no systemd that runs; {}", linger());
    }
    let slice = ending.and_then(|ending| ending.slice.as_deref());
    manager.door()?.start_scope(&scope, &description, slice, left(until))?;
    while Place::of_this_process().is_none_or(|place| place.unit != scope) {
        if left(until).is_zero() {
            bail!("systemd has not made {scope} within {} s", PATIENCE.as_secs());
        }
        thread::sleep(LOOK);
    }
    Ok(scope)
}

impl Place {
    fn of_this_process() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/cgroup").ok()?)
    }

    /// Of a text in the format of cgroups(7): its line of systemd's hierarchy, or that of the unified
    /// one.
    fn parse(text: &str) -> Option<Self> {
        let mut of_systemd =
            text.lines().filter_map(|line| Some(line.split_once(":name=systemd:")?.1));
        let mut unified = text.lines().filter_map(|line| line.strip_prefix("0::"));
        of_systemd.find_map(Self::of_path).or_else(|| unified.find_map(Self::of_path))
    }

    /// Of a control group. A unit with control groups of its own below it is the one.
    fn of_path(path: &str) -> Option<Self> {
        // systemd escapes a name that could be another file of the kernel.
        let units = path.split('/').map(|part| part.strip_prefix('_').unwrap_or(part));
        let units: Vec<&str> = units.collect();
        let is_own = |unit: &&str| {
            matches!(kind(unit), Some("service" | "scope")) && **unit != *"init.scope"
        };
        let at = units.iter().rposition(is_own)?;
        let (unit, above) = (units[at], &units[..at]);
        let number = |unit: &str, before, after| {
            unit.strip_prefix(before)?.strip_suffix(after)?.parse::<u32>().ok()
        };
        let is_login = unit.starts_with("session-") && kind(unit) == Some("scope");
        let user = above.last().and_then(|slice| number(slice, "user-", ".slice"));
        Some(Self {
            unit: unit.to_owned(),
            manager: above.iter().rev().find_map(|unit| number(unit, "user@", ".service")),
            login: user.filter(|_| is_login),
        })
    }

    /// What ends with it, as far as that can be known; `None` if its processes run on.
    fn ending(&self, until: Instant) -> Option<Ending> {
        if let Some(uid) = self.login {
            let with = "this login".to_owned();
            return kills_login(uid, until).then_some(Ending {
                with,
                is_login: true,
                has_private_tmp: false,
                slice: None,
            });
        }
        // Other scopes end with what is in them.
        let with = escape::line(&self.unit).to_string();
        if kind(&self.unit) != Some("service") {
            return None;
        }
        let manager = match self.manager {
            None => Some(Manager { user: false }),
            Some(uid) => (uid == Uid::effective().as_raw()).then_some(Manager { user: true }),
        };
        let names = ["KillMode", "PrivateTmp", "DynamicUser", "Slice"];
        let of_unit = manager.and_then(|manager| manager.door().ok());
        let of_unit =
            of_unit.and_then(|door| door.properties(&self.unit, &names, left(until)).ok());
        let of_unit = of_unit.unwrap_or_default();
        let runs_on = ["process", "none"].contains(&of_unit.text("KillMode"));
        let is_set = |name| of_unit.number(name) == Some(1);
        let has_private_tmp = is_set("PrivateTmp") || is_set("DynamicUser");
        let slice = Some(of_unit.text("Slice").to_owned());
        let slice = slice.filter(|name| manager == Some(own_manager()) && !name.is_empty());
        (!runs_on).then_some(Ending { with, is_login: false, has_private_tmp, slice })
    }
}

impl Ending {
    /// Why nobody could reach an app with this state directory any more.
    fn takes(&self, state: &Path) -> Option<String> {
        let state = real(state);
        let own = env::var_os("RUNTIME_DIRECTORY").filter(|_| !self.is_login).unwrap_or_default();
        let is_own = env::split_paths(&own).any(|dir| dir.is_absolute() && state.starts_with(dir));
        let is_in_tmp = ["/tmp", "/var/tmp"].iter().any(|tmp| state.starts_with(tmp));
        let state = escape::line(&state.display().to_string()).to_string();
        (is_own || is_in_tmp && self.has_private_tmp)
            .then(|| format!("its state directory {state} does; try export IOTTYMUX_STATE_DIR=DIR"))
    }
}

/// A path without links, as far as it exists: /var/run is another name of /run.
fn real(path: &Path) -> PathBuf {
    let mut above = path.ancestors();
    above
        .find_map(|dir| Some(fs::canonicalize(dir).ok()?.join(path.strip_prefix(dir).ok()?)))
        .unwrap_or_else(|| path.to_owned())
}

/// What kind of unit it is: what stands behind the last dot of its name.
fn kind(unit: &str) -> Option<&str> {
    unit.rsplit_once('.').map(|(_, kind)| kind)
}

/// Whether logind kills what a user leaves behind. What it does not say is as if it did not. Without
/// exceptions in its configuration, root is one.
fn kills_login(uid: u32, until: Instant) -> bool {
    let of_logind = bus::of_logind(&["KillUserProcesses"], left(until)).unwrap_or_default();
    uid != 0 && of_logind.number("KillUserProcesses") == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_control_group() {
        let place = |unit: &str, manager, login| Some(Place { unit: unit.into(), manager, login });
        for (text, want) in [
            ("0::/system.slice/agentd.service\n", place("agentd.service", None, None)),
            ("0::/system.slice/agentd.service/sub/x\n", place("agentd.service", None, None)),
            ("0::/system.slice/_cpu.service\n", place("cpu.service", None, None)),
            (
                "0::/user.slice/user-7.slice/session-3.scope\n",
                place("session-3.scope", None, Some(7)),
            ),
            (
                "0::/user.slice/user-7.slice/user@7.service/app.slice/a.service\n",
                place("a.service", Some(7), None),
            ),
            (
                "9:name=systemd:/system.slice/b.service\n4:memory:/x.service\n0::/\n",
                place("b.service", None, None),
            ),
            ("9:name=systemd:/\n0::/a.slice/c.service\n", place("c.service", None, None)),
            ("0::/system.slice/docker-4f.scope\n", place("docker-4f.scope", None, None)),
            ("0::/init.scope\n", None),
            ("0::/\n", None),
            ("0::/../../a.b\n", None),
            ("", None),
        ] {
            assert_eq!(Place::parse(text), want, "{text}");
        }
    }
}
