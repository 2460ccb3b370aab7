//! `install`: copies this program and the files that it has within below a prefix, or removes them.
//! Man pages and documents come with packages only. `completion` prints one of these files.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::host::enable;
use crate::sys::files::replace_in;
use crate::sys::print::print;
use crate::sys::walk::{Links, Walk};

/// Mode of the program: a process that could read it could read the memory of a mux that starts.
const PROGRAM: u32 = 0o711;
/// Mode of the other files.
const READABLE: u32 = 0o644;
const BASH: &str = include_str!("../../packaging/completions/iottymux.bash");
const ZSH: &str = include_str!("../../packaging/completions/_iottymux");
const FISH: &str = include_str!("../../packaging/completions/iottymux.fish");
/// Where the program is below the prefix.
const BIN: &str = "bin";
/// Where the templates are below the prefix.
const UNITS: &str = "lib/systemd/system";
/// The files below the prefix, as `packaging/stage` lays them out.
const FILES: [(&str, &str); 6] = [
    ("lib/systemd/system/iomux@.service", include_str!("../../units/iomux@.service")),
    ("lib/systemd/system/ttymux@.service", include_str!("../../units/ttymux@.service")),
    ("lib/sysusers.d/iottymux.conf", include_str!("../../units/iottymux.sysusers")),
    ("share/bash-completion/completions/iottymux", BASH),
    ("share/zsh/site-functions/_iottymux", ZSH),
    ("share/fish/vendor_completions.d/iottymux.fish", FISH),
];

/// A shell with a completion script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `completion`: prints the script of a shell.
pub(crate) fn completion(shell: Shell) -> Result<()> {
    print(match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    })
}

/// Installs the program and its files.
pub(crate) fn install(prefix: &Path) -> Result<()> {
    let program = env::current_exe().context("cannot find the path of this program")?;
    let target = prefix.join(BIN).join("iottymux");
    // A program that was started from there stays as it is.
    let is_other = program.canonicalize().ok() != target.canonicalize().ok();
    let read = || fs::read(&program).with_context(|| format!("cannot read {}", program.display()));
    let content = is_other.then(read).transpose()?;
    for (path, text) in FILES {
        put(&prefix.join(path), text.as_bytes(), READABLE)?;
    }
    // Last: a shell finds no program whose other files are missing.
    if let Some(content) = content {
        put(&target, &content, PROGRAM)?;
    }
    if !enable::is_found_in(&std::path::absolute(prefix)?.join(BIN)) {
        return Ok(());
    }
    print("next: systemd-sysusers && systemctl daemon-reload\n")
}

/// Removes the files that [`install`] writes there, and this program.
pub(crate) fn remove(prefix: &Path) -> Result<()> {
    let prefix = std::path::absolute(prefix)?;
    let program = prefix.join(BIN).join("iottymux");
    let is_in_use = enable::is_found_in(&prefix.join(BIN));
    let is_replaced = is_in_use && enable::has_others(&program, &prefix.join(UNITS))?;
    if is_in_use
        && !is_replaced
        && let Some(enabled) = enable::enabled_by(false)?.first()
    {
        bail!(
            "{} would not start without it; first: iottymux disable --all --now",
            enabled.service
        );
    }
    let mut is_any = false;
    for path in FILES.iter().map(|(path, _)| prefix.join(path)).chain([program]) {
        let what = || format!("cannot remove {}", path.display());
        // A read-only file system refuses to remove even what is not there.
        if path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            continue;
        }
        fs::remove_file(&path).with_context(what)?;
        print(&format!("removed {}\n", path.display()))?;
        is_any = true;
    }
    match (is_any, is_in_use) {
        (false, _) => print(&format!("nothing to remove below {}\n", prefix.display())),
        (true, false) => Ok(()),
        (true, true) if is_replaced => {
            print("next: systemctl daemon-reload && systemctl restart 'iomux@*' 'ttymux@*'\n")
        }
        (true, true) => print(
            "next: systemctl daemon-reload, and userdel iottymux once its logs are not needed\n",
        ),
    }
}

/// Writes a file as a whole: a program that runs keeps its old content.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let write = || {
        let path = std::path::absolute(path)?;
        let mut walk = Walk::new()?.making();
        walk.go(path.parent().unwrap_or(Path::new("/")), Links::Trusted)?;
        replace_in(&walk, path.file_name().unwrap_or_default(), content, mode)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    print(&format!("wrote   {}\n", path.display()))
}
