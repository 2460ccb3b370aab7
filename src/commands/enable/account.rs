//! The user of the muxes: made where it is missing, and asked for what it may write.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::units::{AppUnits, Setup};

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
        return Ok(());
    }
    bail!(
        "cannot make the user {NAME}, as which the muxes run: neither systemd-sysusers nor useradd does. Try: \
         useradd --system {NAME}"
    )
}

/// Refuses logs where the user of the muxes can make no files.
pub(crate) fn check_logs(app: &AppUnits, setup: &Setup) -> Result<()> {
    if !setup.has_account() {
        return Ok(());
    }
    let Some((uid, gid)) = ids()? else { return Ok(()) };
    let own = Path::new(LOGS).join(app.name.as_str());
    for log in &app.logs {
        let dir = Path::new(log).parent().unwrap_or(Path::new("/"));
        let climbs = dir.components().any(|part| part == Component::ParentDir);
        if dir.starts_with(&own) && !climbs {
            continue;
        }
        if dir.starts_with(LOGS) {
            bail!(
                "the mux sees nothing below {LOGS} but {own}; {log} is elsewhere",
                own = own.display(),
                log = log.escape_debug()
            );
        }
        let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
        let mut test = Command::new("test");
        test.arg("-w").arg(there).arg("-a").arg("-x").arg(there).uid(uid).gid(gid);
        if test.status().context("checking the directory of a log")?.success() {
            continue;
        }
        let dir = dir.display().to_string();
        bail!(
            "the user {NAME}, as which the mux runs, cannot make files in {dir}. Try: install -d -o {NAME} -g {NAME} \
             {dir}, or a log below {}",
            own.display(),
            dir = dir.escape_debug()
        );
    }
    Ok(())
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
