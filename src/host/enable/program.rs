//! Checks whether systemd can run the program of a mux as the mux's unit would. What else keeps a mux
//! from starting shows when it starts, and `enable --now` rolls back then.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::fs::{Access, access};

use super::account;
use crate::host::units::{DROP_IN, MuxUnit, Setup, UnitFile, drop_ins};
use crate::types::escape;

/// Refuses muxes whose program systemd cannot run. Each comes with the future text of its unit.
pub(super) fn check(setup: &Setup, units: &[(MuxUnit, String)]) -> Result<()> {
    for (_, text) in units {
        let Some(program) = setting(text, "ExecStart=").and_then(program_of) else { continue };
        let user = setting(text, "User=").filter(|_| !setup.user);
        if let Some(None) = user.map(account::ids_of).transpose()? {
            bail!(
                "the mux could not start: its user does not exist (217/USER). Try: systemd-sysusers"
            );
        }
        // It begins as root, or as the user of the manager, and so as this one.
        if access(&program, Access::EXEC_OK).is_err() {
            bail!(
                "the mux could not start: {} cannot be executed (203/EXEC). Try: {}",
                escape::line(setup.binary.as_deref().unwrap_or("iottymux")),
                remedy(setup)
            );
        }
    }
    Ok(())
}

/// The text of a mux's unit: its template and its drop-in.
pub(super) fn text(template: &str, mux: &MuxUnit, files: &[UnitFile]) -> String {
    let path = drop_ins(&mux.unit()).join(DROP_IN);
    let drop_in = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    format!("{template}\n{drop_in}")
}

/// The last value of a setting, unless that is empty.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(key)).next_back().filter(|v| !v.is_empty())
}

/// The file that systemd runs for this command line; `None` if it finds none.
fn program_of(command: &str) -> Option<PathBuf> {
    let name = command.split_whitespace().next()?.trim_start_matches('!');
    let path = if name.starts_with('/') { PathBuf::from(name) } else { super::found(name)? };
    Some(fs::canonicalize(&path).unwrap_or(path))
}

/// The command that makes the program executable for the units.
fn remedy(setup: &Setup) -> String {
    let to = Path::new("/usr/local/bin/iottymux");
    match setup.binary.as_deref().filter(|from| Path::new(from) != to) {
        Some(from) => format!("install -m 711 {} {}", escape::line(from), to.display()),
        None => "chmod 711 $(command -v iottymux)".to_owned(),
    }
}
