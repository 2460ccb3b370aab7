//! The user of the muxes: `enable` creates it, and checks that it can write the logs.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::host::units::{AppUnits, Setup};
use crate::sys::print::print;
use crate::sys::systemd::manager::Manager;
use crate::types::escape;
use crate::types::name::AppName;
use crate::types::rights::NO_USER;
use crate::types::user::{LOGS, is_own_log, log_dir, refused_log};

/// The user in the templates.
const NAME: &str = "iottymux";
/// The line for systemd-sysusers(8) that creates it.
const SYSUSERS: &str = include_str!("../../../units/iottymux.sysusers");

/// Creates the user of the muxes if they have one and it is missing.
pub(crate) fn make(setup: &Setup) -> Result<()> {
    if setup.has_account() { create() } else { Ok(()) }
}

/// Creates the user of the muxes if it is missing.
pub(crate) fn create() -> Result<()> {
    if ids_of(NAME)?.is_some() {
        return Ok(());
    }
    let line = SYSUSERS.lines().find(|line| line.starts_with("u ")).unwrap_or_default();
    let mut sysusers = Command::new("systemd-sysusers");
    sysusers.args(["--inline", line]).stdin(Stdio::null());
    if !sysusers.output().is_ok_and(|output| output.status.success()) {
        bail!(
            "cannot create the user {NAME}, as which the muxes run: systemd-sysusers fails; try: \
             useradd --system --user-group {NAME}"
        );
    }
    print(&format!("created user {NAME}\n"))
}

/// Refuses logs in directories where the user of the muxes cannot create files, and in those of
/// other muxes.
pub(crate) fn check_logs(app: &AppUnits, setup: &Setup) -> Result<()> {
    if !setup.has_account() || app.logs.is_empty() {
        return Ok(());
    }
    let Some((uid, gid)) = ids_of(NAME)? else { return Ok(()) };
    let muxes = app.muxes()?;
    let name = muxes.iter().find(|mux| mux.has_output()).map_or(&app.name, |mux| &mux.name);
    let own = log_dir(name.as_str());
    for log in &app.logs {
        let log = Path::new(log);
        if muxes.iter().any(|mux| is_own_log(mux.name.as_str(), log)) {
            continue;
        }
        let dir = log.parent().unwrap_or(Path::new("/"));
        if dir.starts_with(LOGS) {
            bail!("{}", refused_log(app.name.as_str(), log, &own));
        }
        let dir_text = dir.display().to_string();
        let (dir_text, own) = (escape::line(&dir_text), own.display());
        if is_writable(dir, uid, gid)? {
            continue;
        }
        // An existing directory has an owner. This command would take it away from that owner.
        let or = if dir.exists() {
            String::new()
        } else {
            format!(", or: install -d -o {NAME} -g {NAME} {dir_text}")
        };
        bail!(
            "the user {NAME}, as which the mux runs, cannot create files in {dir_text}. \
             Try a log below {own}{or}"
        );
    }
    Ok(())
}

/// Whether the user with these IDs can create files in a directory, or in that in which it can be made.
fn is_writable(dir: &Path, uid: u32, gid: u32) -> Result<bool> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let mut test = Command::new("test");
    test.arg("-w").arg(there).arg("-a").arg("-x").arg(there).uid(uid).gid(gid);
    Ok(test.status().context("cannot check the directory of a log")?.success())
}

/// Removes the directory that systemd made for the logs of a mux, if there is no log in it.
pub(crate) fn clear_logs(manager: Manager, name: &AppName) {
    if manager.user {
        return;
    }
    // A directory that has files or cannot be removed stays. Nothing depends on it.
    let _ = fs::remove_dir(log_dir(name.as_str())).and_then(|()| fs::remove_dir(LOGS));
}

/// The number of a user or a group of this machine, which may be named by it.
pub(crate) fn number(word: &str, is_group: bool) -> Result<u32> {
    let (database, what) = if is_group { ("group", "group") } else { ("passwd", "user") };
    let number = match word.parse() {
        Ok(number) => Some(number),
        Err(_) => entry(database, word)?.split(':').nth(2).and_then(|number| number.parse().ok()),
    };
    let is_one = |number: &u32| *number != NO_USER;
    number.filter(is_one).with_context(|| format!("there is no {what} '{}'", escape::line(word)))
}

/// The name of a user, if it has one here.
pub(crate) fn name(uid: u32) -> Option<String> {
    let line = entry("passwd", &uid.to_string()).ok()?;
    line.split_once(':').map(|(name, _)| name.to_owned()).filter(|name| !name.is_empty())
}

/// The IDs of a user and its group, if there is one.
pub(crate) fn ids_of(name: &str) -> Result<Option<(u32, u32)>> {
    // Each of many services asks for that of the muxes.
    static FOUND: OnceLock<(u32, u32)> = OnceLock::new();
    if let Some(ids) = FOUND.get().filter(|_| name == NAME) {
        return Ok(Some(*ids));
    }
    let line = entry("passwd", name)?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    let ids = fields.next().and_then(Result::ok).zip(fields.next().and_then(Result::ok));
    if let Some(ids) = ids.filter(|_| name == NAME) {
        let _ = FOUND.set(ids);
    }
    Ok(ids)
}

/// The line of a user or a group, or nothing. getent(1) asks all name services; this static binary
/// could only read files.
fn entry(database: &str, key: &str) -> Result<String> {
    let mut getent = Command::new("getent");
    let output = getent.args([database, "--", key]).stderr(Stdio::null()).output();
    let text = String::from_utf8_lossy(&output.context("cannot run getent")?.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
