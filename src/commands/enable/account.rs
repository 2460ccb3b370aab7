//! The user of the muxes: made where it is missing, and asked for what it may write.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::os::print::print;
use crate::systemd::manager::Manager;
use crate::types::name::AppName;
use crate::units::{AppUnits, MuxUnit, Setup};

/// The user in the templates.
const NAME: &str = "iottymux";
/// What makes it, for systemd-sysusers(8).
const SYSUSERS: &str = include_str!("../../../units/iottymux.sysusers");
/// Where systemd makes a directory for the logs of each mux: `LogsDirectory=` of the templates.
const LOGS: &str = "/var/log/iottymux";

/// Makes the user of the muxes, if there is none.
pub(crate) fn make(setup: &Setup) -> Result<()> {
    if !setup.has_account() || ids()?.is_some() {
        return Ok(());
    }
    let line = SYSUSERS.lines().find(|line| line.starts_with("u ")).unwrap_or_default();
    let mut sysusers = Command::new("systemd-sysusers");
    sysusers.args(["--inline", line]);
    let mut useradd = Command::new("useradd");
    useradd.args(["--system", "--user-group", "--no-create-home"]);
    useradd.args(["--shell", "/usr/sbin/nologin", NAME]);
    let runs = |command: &mut Command| {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    };
    if runs(&mut sysusers) || runs(&mut useradd) {
        return print(&format!("created user {NAME}\n"));
    }
    bail!(
        "cannot create the user {NAME}, as which the muxes run: systemd-sysusers and useradd fail. Try: \
         useradd --system {NAME}"
    )
}

/// Refuses logs where the user of the muxes can make no files, and those of other muxes.
pub(crate) fn check_logs(app: &AppUnits, setup: &Setup) -> Result<()> {
    let Some((uid, gid)) = ids()?.filter(|_| setup.has_account()) else { return Ok(()) };
    let muxes = app.muxes()?;
    let name = muxes.iter().find(|mux| mux.has_output()).map_or(&app.name, |mux| &mux.name);
    let own = Path::new(LOGS).join(name.as_str());
    for log in &app.logs {
        let dir = Path::new(log).parent().unwrap_or(Path::new("/"));
        let climbs = dir.components().any(|part| part == Component::ParentDir);
        let is_in = |mux: &MuxUnit| dir.starts_with(Path::new(LOGS).join(mux.name.as_str()));
        if !climbs && muxes.iter().any(is_in) {
            continue;
        }
        let dir_text = dir.display().to_string();
        let (dir_text, own) = (dir_text.escape_debug(), own.display());
        if dir.starts_with(LOGS) {
            bail!("the mux of app {} cannot write in {dir_text}. Try a log below {own}", app.name);
        }
        let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
        let mut test = Command::new("test");
        test.arg("-w").arg(there).arg("-a").arg("-x").arg(there).uid(uid).gid(gid);
        if test.status().context("checking the directory of a log")?.success() {
            continue;
        }
        // A directory that is there belongs to somebody, who is not to lose it by a command of ours.
        let or = if dir.exists() {
            String::new()
        } else {
            format!(", or: install -d -o {NAME} -g {NAME} {dir_text}")
        };
        bail!(
            "the user {NAME}, as which the mux runs, cannot create files in {dir_text}. Try a log below {own}{or}"
        );
    }
    Ok(())
}

/// Removes the directory that systemd made for the logs of a mux, if there is no log in it.
pub fn clear_logs(manager: Manager, name: &AppName) {
    if manager.user {
        return;
    }
    // One that has something in it stays, as does one that cannot be removed: nothing depends on it.
    let _ = fs::remove_dir(Path::new(LOGS).join(name.as_str())).and_then(|()| fs::remove_dir(LOGS));
}

/// The numbers of the user and its group. A static binary knows only the users of this machine's own file.
fn ids() -> Result<Option<(u32, u32)>> {
    let passwd = fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
    let ids = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == NAME).then_some(())?;
        let mut number = fields.skip(1).map(str::parse);
        Some((number.next()?.ok()?, number.next()?.ok()?))
    };
    Ok(passwd.lines().find_map(ids))
}
