//! `install`: copies this program and the files that it has within below a prefix, or removes them.
//! Documents come with packages only. `completion` prints one of these files.

use std::env;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::host::enable;
use crate::sys::files::replace_in;
use crate::sys::print::print;
use crate::sys::systemd::manager::{Manager, is_booted};
use crate::sys::walk::{Links, Walk};
use crate::types::service::ServiceName;

/// Mode of the program: a process that could read it could read the memory of a mux that starts.
const PROGRAM: u32 = 0o711;
/// Mode of the other files.
const READABLE: u32 = 0o644;
const BASH: &str = include_str!("../../packaging/completions/iottymux.bash");
const ZSH: &str = include_str!("../../packaging/completions/_iottymux");
const FISH: &str = include_str!("../../packaging/completions/iottymux.fish");
/// Where the program and its files are if nobody says where.
pub(crate) const PREFIX: &str = "/usr/local";
/// Where the program is below the prefix.
const BIN: &str = "bin";
/// The program there.
const NAME: &str = "iottymux";
/// Where the templates are below the prefix.
const UNITS: &str = "lib/systemd/system";
/// Where the man pages are below the prefix.
const MAN: &str = "share/man";
/// The files below the prefix, as `packaging/stage` lays them out.
const FILES: [(&str, &str); 6] = [
    ("lib/systemd/system/iomux@.service", include_str!("../../units/iomux@.service")),
    ("lib/systemd/system/ttymux@.service", include_str!("../../units/ttymux@.service")),
    ("lib/sysusers.d/iottymux.conf", include_str!("../../units/iottymux.sysusers")),
    ("share/bash-completion/completions/iottymux", BASH),
    ("share/zsh/site-functions/_iottymux", ZSH),
    ("share/fish/vendor_completions.d/iottymux.fish", FISH),
];

/// Man pages below the prefix, with their texts: those of a section by their names.
macro_rules! pages {
    ($section:literal: $($name:literal)+) => {
        [$((
            concat!("share/man/man", $section, "/", $name, ".", $section),
            include_str!(concat!("../../packaging/man/", $name, ".", $section)),
        )),+]
    };
}
const COMMANDS: [(&str, &str); 32] = pages! {
    "1":
    "iottymux-ask" "iottymux-attach" "iottymux-completion" "iottymux-control-ask-end"
    "iottymux-control-detach" "iottymux-control-ended" "iottymux-control-reopen-logs"
    "iottymux-control-resize" "iottymux-control-restart" "iottymux-control-started"
    "iottymux-control-stop-line" "iottymux-control-stopping" "iottymux-control"
    "iottymux-disable" "iottymux-enable" "iottymux-events" "iottymux-install" "iottymux-kill"
    "iottymux-list" "iottymux-logs" "iottymux-metrics" "iottymux-rm" "iottymux-run"
    "iottymux-screen" "iottymux-send" "iottymux-status" "iottymux-stop" "iottymux-stream"
    "iottymux-tty" "iottymux-units" "iottymux-wait" "iottymux"
};
const VARIABLES: [(&str, &str); 1] = pages! { "5": "iottymux.env" };

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

/// Installs the program and its files, and says what comes next. `restarts` the muxes of services that do not
/// run the program that is installed.
pub(crate) fn install(prefix: &Path, restarts: bool) -> Result<()> {
    let prefix = std::path::absolute(prefix)?;
    let is_found = enable::is_found_in(&prefix.join(BIN));
    if restarts && !is_found {
        bail!("services do not run a program below {}", prefix.display());
    }
    let changes_templates = copy(&prefix)?;
    if !is_found {
        return Ok(());
    }
    let others = muxes_of_others();
    if restarts {
        restart(&others)?;
        return print(&format!("restarted muxes: {}\n", others.len()));
    }
    if others.is_empty() {
        let reload = if changes_templates { "systemctl daemon-reload && " } else { "" };
        return print(&format!("next: {reload}iottymux enable SERVICE --now\n"));
    }
    let (count, is_usual) = (others.len(), prefix == Path::new(PREFIX));
    let place = if is_usual { String::new() } else { format!(" --prefix {}", prefix.display()) };
    print(&format!(
        "muxes that still run another program: {count}\nnext: iottymux install{place} --restart\n"
    ))
}

/// Gives these muxes the program that is installed. Their services run on.
fn restart(muxes: &[ServiceName]) -> Result<()> {
    let manager = Manager { user: false };
    manager.systemctl(&["daemon-reload"])?;
    if muxes.is_empty() {
        return Ok(());
    }
    let names = muxes.iter().map(ServiceName::as_str);
    let words: Vec<&str> = ["try-restart", "--"].into_iter().chain(names).collect();
    manager.systemctl(&words).map(drop)
}

/// The muxes of the system's services that run another program than their next start would.
fn muxes_of_others() -> Vec<ServiceName> {
    if !is_booted() {
        return Vec::new();
    }
    let manager = Manager { user: false };
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    let runs_another = |mux: &ServiceName| {
        let shown = manager.properties(mux.as_str(), &["MainPID", "ExecStart"]).ok()?;
        let runs = file(Path::new(&format!("/proc/{}/exe", shown.number("MainPID")?)))?;
        let next = Path::new(shown.program("ExecStart"));
        // Older versions of systemd look for a bare name when they read the unit.
        let is_bare = next.parent().is_none_or(|dir| dir == "" || enable::is_found_in(dir));
        let found = enable::found(NAME).filter(|_| is_bare);
        Some(Some(runs) != file(found.as_deref().unwrap_or(next)))
    };
    let muxes = ["iomux@", "ttymux@"].map(|template| enable::instances(manager, template));
    muxes.into_iter().flatten().filter(|mux| runs_another(mux) == Some(true)).collect()
}

/// Writes the program and its files. Whether it has changed a template.
pub(crate) fn copy(prefix: &Path) -> Result<bool> {
    let program = env::current_exe().context("cannot find the path of this program")?;
    let content = fs::read(&program);
    let content = content.with_context(|| format!("cannot read {}", program.display()))?;
    let (mut new_pages, mut changes_templates) = (0, false);
    for (path, text) in files() {
        let target = prefix.join(path);
        let put = put(&target, text.as_bytes(), READABLE)?;
        changes_templates |= put == Put::Replaced && path.starts_with(UNITS);
        if path.starts_with(MAN) {
            new_pages += usize::from(put != Put::Kept);
        } else {
            tell(put, &target)?;
        }
    }
    if new_pages > 0 {
        print(&format!("wrote   {} ({new_pages} pages)\n", prefix.join(MAN).display()))?;
    }
    // Last: a shell finds no program whose other files are missing.
    let target = prefix.join(BIN).join(NAME);
    tell(put(&target, &content, PROGRAM)?, &target)?;
    Ok(changes_templates)
}

/// The files below the prefix, without the program.
fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.into_iter().chain(COMMANDS).chain(VARIABLES)
}

/// Removes the files that [`install`] writes there, and this program.
pub(crate) fn remove(prefix: &Path) -> Result<()> {
    let prefix = std::path::absolute(prefix)?;
    let program = prefix.join(BIN).join(NAME);
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
    let (mut is_any, mut pages) = (false, 0);
    for path in files().map(|(path, _)| prefix.join(path)).chain([program]) {
        let what = || format!("cannot remove {}", path.display());
        // A read-only file system refuses to remove even what is not there.
        if path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            continue;
        }
        fs::remove_file(&path).with_context(what)?;
        is_any = true;
        if path.starts_with(prefix.join(MAN)) {
            pages += 1;
        } else {
            print(&format!("removed {}\n", path.display()))?;
        }
    }
    if pages > 0 {
        print(&format!("removed {pages} pages of {}\n", prefix.join(MAN).display()))?;
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

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    New,
    Replaced,
    /// It was as it should be. A mux that runs this program counts as one of this program.
    Kept,
}

fn tell(put: Put, path: &Path) -> Result<()> {
    let done = if put == Put::Kept { "kept " } else { "wrote" };
    print(&format!("{done}   {}\n", path.display()))
}

/// Writes a file as a whole: a program that runs keeps its old content.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<Put> {
    let there = path.symlink_metadata().ok();
    let is_as_it_should = |there: &Metadata| {
        there.is_file()
            && there.permissions().mode() & 0o7777 == mode
            && fs::read(path).is_ok_and(|there| there == content)
    };
    if there.as_ref().is_some_and(is_as_it_should) {
        return Ok(Put::Kept);
    }
    let write = || {
        let mut walk = Walk::new()?.making();
        walk.go(path.parent().unwrap_or(Path::new("/")), Links::Trusted)?;
        replace_in(&walk, path.file_name().unwrap_or_default(), content, mode)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(if there.is_some() { Put::Replaced } else { Put::New })
}
