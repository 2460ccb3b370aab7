//! Tries whether systemd can run the program of a mux as the mux's unit would: with `--help`, in a
//! temporary unit in systemd's runtime directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::systemd::manager::Manager;
use crate::types::escape;
use crate::units::place::{TRIAL, UnitDirectory};
use crate::units::text::with_checksum;
use crate::units::{AppUnits, DROP_IN, MuxUnit, Setup, UnitFile, drop_ins};

/// How long the program of a mux may take for `--help` when `enable` tries it: it takes
/// milliseconds.
const TRIAL_TIME: Duration = Duration::from_secs(10);
/// Bytes of an app's name from which on systemd may fail because of it: 180 were seen to be too many.
const LONG_NAME: usize = 170;

/// The settings of a mux's unit that decide whether its program can run: the user, the rights, the
/// visible files. Settings that need directories or descriptors of a real start are left out.
const RIGHTS: [&str; 21] = [
    "User=",
    "Group=",
    "SupplementaryGroups=",
    "NoNewPrivileges=",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "Restrict",
    "Protect",
    "Private",
    "ProcSubset=",
    "NoExecPaths=",
    "ExecPaths=",
    "Keyring",
    "Device",
    "IPAddress",
    "LockPersonality=",
    "MemoryDenyWriteExecute=",
    "SystemCall",
    "UMask=",
    "Limit",
    "RootDirectory=",
];
/// A setting that matches one of these prefixes, but is about restarts.
const NO_RIGHTS: &str = "RestartPrevent";

/// Refuses muxes whose program systemd cannot run.
pub(crate) fn run(
    manager: Manager,
    app: &AppUnits,
    setup: &Setup,
    units: &[(MuxUnit, String)],
) -> Result<()> {
    for (mux, text) in units {
        let Some(command) = command(text, mux) else { continue };
        try_one(manager, app, setup, &unit(mux, text, &command), &command)?;
    }
    Ok(())
}

/// The text of a mux's unit: its template and its drop-in.
pub(crate) fn text(template: &str, mux: &MuxUnit, files: &[UnitFile]) -> String {
    let path = drop_ins(&mux.unit()).join(DROP_IN);
    let drop_in = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    format!("{template}\n{drop_in}")
}

/// The command line of a mux, as in its unit.
fn command(text: &str, mux: &MuxUnit) -> Option<String> {
    let line = text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).next_back();
    let name = mux.name.to_string();
    line.filter(|line| !line.is_empty()).map(|line| line.replace("%i", &name))
}

fn unit(mux: &MuxUnit, text: &str, command: &str) -> String {
    let has_part = |line: &&str| {
        RIGHTS.iter().any(|key| line.starts_with(key)) && !line.starts_with(NO_RIGHTS)
    };
    let rights: Vec<String> = text
        .lines()
        .filter(has_part)
        .map(|line| line.replace("%i", &mux.name.to_string()))
        .collect();
    format!(
        "[Unit]\n\
         Description=Whether the mux {} can be started\n\
         DefaultDependencies=no\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={command} --help\n\
         StandardInput=null\n\
         StandardOutput=null\n\
         StandardError=null\n\
         TimeoutStartSec={}s\n\
         {}\n",
        mux.name,
        TRIAL_TIME.as_secs(),
        rights.join("\n")
    )
}

fn try_one(
    manager: Manager,
    app: &AppUnits,
    setup: &Setup,
    text: &str,
    command: &str,
) -> Result<()> {
    let place = UnitDirectory::new(manager.runtime_units()?);
    let name = format!("{TRIAL}{}.service", app.name);
    // A killed `enable` may have left the unit.
    manager.forget(&name)?;
    let file =
        UnitFile { path: PathBuf::from(&name), text: with_checksum(Some(app.owner()), text) };
    place.plan(&[], app.owner(), vec![file])?.carry_out()?;
    let tried = try_unit(manager, &name, setup, command);
    let forgotten = manager.forget(&name);
    place.take_away(&place.path().join(&name))?;
    let is_long = app.name.as_str().len() > LONG_NAME;
    let hint = "such a long name may be too much for systemd; try --app with a shorter one";
    let tried = if is_long { tried.context(hint) } else { tried };
    tried.and(forgotten)
}

fn try_unit(manager: Manager, name: &str, setup: &Setup, command: &str) -> Result<()> {
    // systemd finds a new file without a reload, unless the directory is new, too.
    if !manager.show(name)?.is_loaded() {
        manager.systemctl(&["daemon-reload"])?;
    }
    let Err(refused) = manager.systemctl(&["start", "--", name]) else { return Ok(()) };
    let all = manager.properties(name, "ExecMainStatus,Result")?;
    let property = |name: &str| all.get(name).map(String::as_str).unwrap_or_default();
    let program = command.split_whitespace().next().unwrap_or_default();
    let program = setup.binary.as_deref().unwrap_or(program);
    match property("ExecMainStatus") {
        "0" | "" if property("Result") != "timeout" => Err(refused),
        "203" => bail!(
            "the mux could not start: its unit cannot run {} (203/EXEC). The unit hides /home, /root \
             and /tmp, and its user must be able to run the program and to pass each directory above \
             it. Try: {}",
            escape::line(program),
            remedy(setup)
        ),
        "217" => bail!(
            "the mux could not start: its user does not exist (217/USER). Try: systemd-sysusers"
        ),
        status => bail!(
            "the mux could not start: with the rights of its unit {} --help ends with {} ({})",
            escape::line(program),
            escape::line(property("Result")),
            escape::line(status)
        ),
    }
}

/// The command that makes the program executable for the units.
fn remedy(setup: &Setup) -> String {
    let to = Path::new("/usr/local/bin/iottymux");
    match setup.binary.as_deref().filter(|from| Path::new(from) != to) {
        Some(from) => format!("install -m 711 {} {}", escape::line(from), to.display()),
        None => "chmod 711 $(command -v iottymux)".to_owned(),
    }
}
