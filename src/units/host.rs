//! A service of this machine that is made attachable, and no longer: the files of the other modules,
//! and what systemd has to be told.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::place::{Place, is_socket};
use super::text::{argument, is_program, program, seal};
use super::write::{all_files, clear_state, told};
use super::{App, Setup, UnitFile};
use crate::name::AppName;
use crate::print::print;
use crate::service::ServiceName;
use crate::state::StateDir;
use crate::systemd;

/// Where systemd looks for a program by its bare name.
const PROGRAMS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// A manager of services: the system's, or that of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Whether it is the user's.
    pub user: bool,
}

/// What the manager says of a service.
struct Service {
    /// Whether it is there, and not masked.
    is_loaded: bool,
    /// Whether it has processes, or will have without anybody's doing.
    runs: bool,
}

impl Manager {
    /// Where an administrator's units are.
    ///
    /// # Errors
    /// When a user has no home.
    pub fn units(self) -> Result<PathBuf> {
        if !self.user {
            return Ok("/etc/systemd/system".into());
        }
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        absolute("XDG_CONFIG_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".config")))
            .map(|dir| dir.join("systemd/user"))
            .context("finding the directory of the user's units: HOME is not set")
    }

    /// Where units are until the next boot.
    fn runtime_units(self) -> Result<PathBuf> {
        if !self.user {
            return Ok("/run/systemd/system".into());
        }
        let dir = env::var_os("XDG_RUNTIME_DIR").context("XDG_RUNTIME_DIR is not set")?;
        Ok(Path::new(&dir).join("systemd/user"))
    }

    fn systemctl(self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("systemctl");
        if self.user {
            command.arg("--user");
        }
        for name in systemd::PRIVATE_ENV {
            command.env_remove(name);
        }
        let what = || format!("systemctl {}", words.join(" "));
        let output = command.args(words).stdin(Stdio::null()).output().with_context(what)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: {}",
                what(),
                said.trim().lines().collect::<Vec<_>>().join("; ").escape_debug()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn show(self, service: &ServiceName) -> Result<Service> {
        let names = "--property=LoadState,ActiveState,SubState";
        let text = self.systemctl(&["show", names, "--", service.as_str()])?;
        let properties: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.split_once('=')).collect();
        let property = |name: &str| properties.get(name).copied().unwrap_or_default();
        let is_active = matches!(
            property("ActiveState"),
            "active" | "activating" | "reloading" | "deactivating"
        );
        Ok(Service {
            is_loaded: property("LoadState") == "loaded",
            // Between two starts of Restart= there is nothing that could be disturbed.
            runs: is_active && property("SubState") != "auto-restart",
        })
    }
}

/// The apps that have units here, of the system for root and of the user for others; as far as can be
/// seen.
#[must_use]
pub fn enabled() -> Vec<AppName> {
    let manager = Manager { user: !Uid::effective().is_root() };
    let Ok(place) = manager.units().map(Place::new) else { return Vec::new() };
    let owners = place.owners().unwrap_or_default();
    let muxes = owners.iter().flat_map(|(app, of)| place.muxes((app, of)).unwrap_or_default());
    muxes.map(|(_, name)| name).collect()
}

/// How iottymux is started by units of this machine: by its bare name where systemd finds it so.
///
/// # Errors
/// When the path of this program cannot be told.
pub fn binary() -> Result<Option<String>> {
    if PROGRAMS.iter().any(|dir| Path::new(dir).join("iottymux").is_file()) {
        return Ok(None);
    }
    this_program().map(Some)
}

fn this_program() -> Result<String> {
    let path = env::current_exe().context("finding this program")?;
    let path = path.into_os_string().into_string().ok().filter(|path| is_program(path));
    path.context("the path of this program cannot stand in a unit: install it elsewhere")
}

/// Makes a service attachable from its next start on, or at once.
///
/// # Errors
/// When there is no such service, its files cannot be written, or systemd refuses; or when it runs and
/// would lose the mux that it has.
pub fn enable(manager: Manager, app: &App, setup: &Setup, now: bool) -> Result<()> {
    let (name, service) = (&app.name, &app.service);
    let what = || format!("enabling {service}");
    let Service { is_loaded, runs } = manager.show(service).with_context(what)?;
    if !is_loaded {
        bail!("enabling {service}: there is no such service, or it is masked");
    }
    let place = Place::new(manager.units()?);
    let before = place.muxes(app.owner()).with_context(what)?;
    let files = all_files(app, setup, &place)?;
    let sockets: BTreeSet<PathBuf> =
        files.iter().map(|file| file.path.clone()).filter(|path| is_socket(path)).collect();
    let muxes = app.muxes()?;
    let leaves = |unit: &str| muxes.iter().all(|mux| mux.unit() != unit);
    // From one layout to the other its FIFOs would go, though its mux does not.
    let other = !before.is_empty() && place.sockets(app.owner()).with_context(what)? != sockets;
    let plan = place.plan(app.owner(), files).with_context(what)?;
    if runs && !now && (other || before.iter().any(|(unit, _)| leaves(unit))) {
        bail!("enabling {service}: it runs on other streams; stop it first, or restart it (--now)");
    }
    Later::new(manager, name, service)?.cancel().with_context(what)?;
    if now {
        // Its muxes, too: they begin with what is written now.
        let units = before.iter().map(|(unit, _)| unit.as_str());
        for unit in [service.as_str()].into_iter().chain(units) {
            manager.systemctl(&["stop", "--", unit]).with_context(what)?;
        }
    }
    print(&told(&plan.carry_out().with_context(what)?))?;
    manager.systemctl(&["daemon-reload"]).with_context(what)?;
    let attach = muxes.iter().map(|mux| format!("iottymux attach --app {}", mux.name));
    let attach = attach.collect::<Vec<_>>().join(", ");
    if now {
        manager.systemctl(&["start", "--", service.as_str()]).with_context(what)?;
        return print(&format!("{service} can be attached: {attach}\n"));
    }
    for mux in &muxes {
        // The app of a mux that runs already does not notice.
        manager.systemctl(&["try-restart", &mux.unit()]).with_context(what)?;
    }
    let (user, verb) =
        (if manager.user { "--user " } else { "" }, if runs { "restart" } else { "start" });
    print(&format!(
        "{service} can be attached after: systemctl {user}{verb} {service}\nthen: {attach}\n"
    ))
}

/// Gives a service back the streams that its own files say: when it is not running at once, else at
/// its next stop, or with `now` by stopping and starting it. `at_stop` is said by what waits for
/// that stop.
///
/// # Errors
/// When it was not enabled, one of its files was changed since, or systemd refuses.
pub fn disable(
    manager: Manager,
    service: &ServiceName,
    state: &StateDir,
    (now, at_stop): (bool, bool),
) -> Result<()> {
    let what = || format!("disabling {service}");
    let place = Place::new(manager.units()?);
    let owners = place.owners().with_context(what)?;
    let Some((app, _)) = owners.into_iter().find(|(_, of)| of == service) else {
        if at_stop {
            return Ok(());
        }
        bail!("disabling {service}: nothing of it was written to {}", place.path().display());
    };
    let runs = manager.show(service).with_context(what)?.runs;
    let later = Later::new(manager, &app, service)?;
    if runs && !now {
        if at_stop {
            return Ok(());
        }
        later.begin().with_context(what)?;
        return print(&format!(
            "{service} runs: it is disabled when it stops; `iottymux disable --now {service}` \
             restarts it at once\n"
        ));
    }
    if runs {
        manager.systemctl(&["stop", "--", service.as_str()]).with_context(what)?;
    }
    let muxes = place.muxes((&app, service)).with_context(what)?;
    for (unit, _) in &muxes {
        // It ends by itself, but what it leaves is removed behind it.
        manager.systemctl(&["stop", unit]).with_context(what)?;
    }
    let deeds = place.uninstall((&app, service)).with_context(what)?;
    print(&told(&deeds))?;
    if !at_stop {
        later.cancel().with_context(what)?;
    }
    later.remove().with_context(what)?;
    manager.systemctl(&["daemon-reload"]).with_context(what)?;
    for (_, name) in &muxes {
        clear_state(state, name)?;
    }
    if runs {
        manager.systemctl(&["start", "--", service.as_str()]).with_context(what)?;
    }
    print(&format!("{service} is as its own files say\n"))
}

/// The unit that disables a service when that stops: it is bound to it, and ends after it.
struct Later {
    manager: Manager,
    place: Place,
    app: AppName,
    service: ServiceName,
    unit: String,
}

impl Later {
    fn new(manager: Manager, app: &AppName, service: &ServiceName) -> Result<Self> {
        let place = Place::new(manager.runtime_units()?);
        let unit = format!("iottymux-disable-{app}.service");
        Ok(Self { manager, place, app: app.clone(), service: service.clone(), unit })
    }

    fn begin(&self) -> Result<()> {
        let user = if self.manager.user { " --user" } else { "" };
        let text = format!(
            "[Unit]\n\
             Description=Disables attaching to {service} when that stops\n\
             BindsTo={service}\n\
             Before={service}\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStop={program} disable{user} --at-stop {name}\n",
            service = self.service,
            name = argument(self.service.as_str()),
            program = program(&this_program()?),
        );
        let text = seal(Some((&self.app, &self.service)), &text);
        let file = UnitFile { path: PathBuf::from(&self.unit), text };
        self.place.plan((&self.app, &self.service), vec![file])?.carry_out()?;
        self.manager.systemctl(&["daemon-reload"])?;
        self.manager.systemctl(&["start", &self.unit]).map(drop)
    }

    /// Stops waiting.
    fn cancel(&self) -> Result<()> {
        if self.place.has(Path::new(&self.unit)) {
            self.manager.systemctl(&["stop", &self.unit])?;
            self.remove()?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        self.place.uninstall((&self.app, &self.service)).map(drop)
    }
}
