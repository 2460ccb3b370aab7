//! A service of this machine that is made attachable, and no longer: the files of the other modules,
//! and what systemd has to be told.

pub(crate) mod account;
pub(crate) mod guard;
pub(crate) mod switch;
pub(crate) mod trial;

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Uid;

use super::enable::switch::Switch;
use crate::os::print::print;
use crate::os::state::AppDir;
use crate::systemd::manager::{Fate, Manager, UnitStatus};
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::units::place::{self, Done, UnitDirectory, is_socket};
use crate::units::text::{UnitOwner, argument, is_program, program, with_checksum};
use crate::units::write::{all_files, clear_state, summary, template_of, warn_of_hooks};
use crate::units::{
    AppUnits, DROP_IN, HOOKS, MuxUnit, Setup, UnitFile, drop_ins, has_sockets, hooks as of_root,
    is_mux, journal,
};

/// Where systemd looks for a program by its bare name.
const PROGRAMS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// The apps that have units here, of the system for root and of the user for others; as far as can be
/// seen.
pub(crate) fn enabled() -> Vec<AppName> {
    let manager = Manager { user: !Uid::effective().is_root() };
    let Ok(place) = manager.units().map(UnitDirectory::new) else { return Vec::new() };
    place.names().unwrap_or_default()
}

/// How iottymux is started by units of this machine: by its bare name where systemd finds it so.
pub(crate) fn binary() -> Result<Option<String>> {
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

/// How a service is enabled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether it is started again at once.
    pub(crate) now: bool,
    /// Whether also where the machine needs it, or where it has streams of its own.
    pub(crate) force: bool,
}

/// Makes a service attachable from its next start on, or at once.
pub(crate) fn enable(manager: Manager, app: &AppUnits, setup: &Setup, how: How) -> Result<()> {
    let what = || format!("enabling {}", app.service);
    check_rights(manager).with_context(what)?;
    try_to_enable(manager, app, setup, how).with_context(what)
}

/// Refuses a user who can write nothing of the system's.
fn check_rights(manager: Manager) -> Result<()> {
    if !manager.user && !Uid::effective().is_root() {
        bail!("only root can change a service of the system; for one of your own services: --user");
    }
    Ok(())
}

/// Refuses a service that is not there, or that should not be enabled.
fn check_service(
    manager: Manager,
    service: &ServiceName,
    shown: &UnitStatus,
    force: bool,
) -> Result<()> {
    if shown.is_masked {
        bail!("it is masked (systemctl{} unmask {service})", manager.option());
    }
    if !shown.is_loaded {
        bail!("there is no such service");
    }
    let names = [service.as_str(), &shown.id].into_iter().chain(shown.names.split_whitespace());
    if let Some(name) = guard::protected(names).filter(|_| !force) {
        bail!(guard::protects(service, name));
    }
    if shown.id != service.as_str() {
        bail!("it is another name of {}, which can be enabled", shown.id.escape_debug());
    }
    Ok(())
}

fn try_to_enable(manager: Manager, app: &AppUnits, setup: &Setup, how: How) -> Result<()> {
    let (owner, service) = (app.owner(), app.service.as_str());
    let shown = manager.show(service)?;
    check_service(manager, &app.service, &shown, how.force)?;
    let place = UnitDirectory::new(manager.units()?);
    let app = &settle(manager, app, &place, setup)?;
    let (before, muxes) = (place.muxes(owner)?, app.muxes()?);
    let files = all_files(app, setup, &place)?;
    let sockets: BTreeSet<PathBuf> =
        files.iter().map(|file| file.path.clone()).filter(|path| is_socket(path)).collect();
    let old_sockets = place.sockets(owner)?;
    // A mux that is there may all the same not have each of the streams that it had.
    let ends = files.last().map(|file| place::ends(&file.text)).unwrap_or_default();
    let changes = !before.is_empty() && place.ends(owner)? != ends;
    let hooks = || hooks(manager, service);
    // Those that it has still to run are given the new streams, with which systemd does not run them.
    let breaks = shown.runs() && has_sockets(&muxes, setup) && old_sockets.is_empty();
    let broken = if breaks { hooks()? } else { Vec::new() };
    let loses = shown.runs() && (changes || !broken.is_empty());
    if loses && !how.now {
        if changes {
            bail!(
                "it is running with other streams, another state directory or another layout: stop it first, \
                 or restart it by --now"
            );
        }
        bail!(
            "it runs, and systemd would from now on not run its {}= with the streams of socket units; stop \
             it first, or restart it (--now), or take --layout direct",
            broken.join("=, ")
        );
    }
    place.plan(&place.all()?, owner, files.clone())?;
    if let Some(mux) = foreign_mux(&shown, &before) {
        let mux = mux.escape_debug();
        bail!("lines that iottymux did not write make it want {mux}: remove these lines first");
    }
    refuse_mux_of_another(manager, service, &muxes)?;
    let own = own_streams(manager, app, &place)?;
    if !own.is_empty() && !how.force && before.is_empty() {
        bail!(
            "its own files lead its streams elsewhere: {}; --force overrides these lines",
            own.join(", ")
        );
    }
    account::make(setup)?;
    account::check_logs(app, setup)?;
    trial::run(manager, app, setup, &trials(setup, &place, (&muxes, &files))?)?;
    let state = place.state(owner)?;
    let later = DeferredDisable::new(manager, owner)?;
    let waited = later.is_there();
    // From here on a signal would leave half of it behind, or the service stopped.
    block_signals()?;
    // Which may take away what is here, if the service does not run.
    later.cancel()?;
    let plan = place.all().and_then(|all| place.plan(&all, owner, files.clone()));
    let written = plan.and_then(|plan| Ok((plan.carry_out()?, plan)));
    let now = how.now;
    let switched = written.and_then(|(written_files, plan)| {
        let (shown, app, manager) = (&shown, app, manager);
        let (before, muxes, old_sockets, sockets) = (&before, &muxes, &old_sockets, &sockets);
        let switch = Switch {
            manager,
            app,
            shown,
            before,
            muxes,
            old_sockets,
            sockets,
            changes,
            loses,
            now,
        };
        Ok((written_files, switch.carry_out(&plan, || place.state(owner))?))
    });
    let (written_files, fate) = switched.inspect_err(|_| {
        if waited {
            later.resume(&place);
        }
    })?;
    print(&summary(&written_files))?;
    for line in overridden(manager, service, &files)? {
        log::warn!("another drop-in of {service} overrides this: {line} (systemctl cat {service})");
    }
    for line in own.iter().filter(|_| !how.force) {
        log::warn!("{service} has a stream of its own, which does not hold any more: {line}");
    }
    if has_sockets(&muxes, setup) {
        warn_of_hooks(app, &hooks()?);
    }
    let waits = before.is_empty() || is_earlier(manager, service, &state);
    let is_left = |dir: &&AppDir| muxes.iter().all(|mux| mux.name != *dir.name());
    clear_state(&state.iter().filter(is_left).cloned().collect::<Vec<_>>())?;
    tell_enabled(manager, app, &muxes, (&shown, fate, waits))
}

/// Has this process take no signal any more that ends it.
fn block_signals() -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("blocking signals")
}

/// Whether a service runs on streams that it had before its muxes prepared theirs.
fn is_earlier(manager: Manager, service: &str, state: &[AppDir]) -> bool {
    manager.run_of(service).is_some_and(|run| state.iter().any(|dir| dir.is_earlier(&run)))
}

/// The lines of a service's own files about its streams.
fn own_streams(manager: Manager, app: &AppUnits, place: &UnitDirectory) -> Result<Vec<String>> {
    let service = app.service.as_str();
    let ours = place.path().join(drop_ins(service)).join(DROP_IN);
    Ok(guard::own_streams(&manager.systemctl(&["cat", "--no-pager", "--", service])?, &ours))
}

/// The muxes with the texts of their units, as they will be.
fn trials(
    setup: &Setup,
    place: &UnitDirectory,
    (muxes, files): (&[MuxUnit], &[UnitFile]),
) -> Result<Vec<(MuxUnit, String)>> {
    let unit = |mux: &MuxUnit| {
        let template = template_of(mux, setup, place)?;
        Ok((mux.clone(), trial::text(&template, mux, files)))
    };
    muxes.iter().map(unit).collect()
}

/// The app with what its service's own files say of the journal, and of hooks.
fn settle(
    manager: Manager,
    app: &AppUnits,
    place: &UnitDirectory,
    setup: &Setup,
) -> Result<AppUnits> {
    let service = app.service.as_str();
    let shown = manager.properties(service, journal::PROPERTIES)?;
    let commands = manager.systemctl(&["show", "--property=ExecStart", "--", service])?;
    let command = commands.lines().next().unwrap_or_default();
    let property = |name: &str| shown.get(name).cloned().unwrap_or_default();
    let mut app = app.clone();
    let drop_in = place.drop_in(app.owner())?;
    app.journal.settle(property, command, drop_in.as_deref());
    if !has_sockets(&app.muxes()?, setup)
        && let Some(line) = of_root::obstacle(manager, service, setup)?
    {
        log::warn!(
            "{service} does not tell its starts and ends to its mux: others than root may decide what a command \
             of root runs there, by {line}"
        );
        app.has_hooks = false;
    }
    Ok(app)
}

/// Tells what has become of a service that is enabled, where it was started, and how it is attached to. One that
/// `waits` has its streams only from its next start on.
fn tell_enabled(
    manager: Manager,
    app: &AppUnits,
    muxes: &[MuxUnit],
    (shown, fate, waits): (&UnitStatus, Option<Fate>, bool),
) -> Result<()> {
    let service = app.service.as_str();
    let attach = muxes.iter().map(|mux| format!("iottymux attach --app {}", mux.name));
    let attach = attach.collect::<Vec<_>>().join(", ");
    let user = manager.option();
    print(&match fate {
        Some(fate @ Fate::Failed(_)) => {
            bail!(
                "it is enabled, but {fate}; iottymux status --app {} shows its last output",
                app.name
            )
        }
        Some(Fate::Runs) => format!("{service} can be attached: {attach}\n"),
        Some(fate @ Fate::Repeats(_)) => {
            format!("{service} {fate}; it can be attached: {attach}\n")
        }
        Some(fate) => {
            format!("{service} {fate}; it can be attached from its next start on: {attach}\n")
        }
        None if shown.runs() && !waits => format!("{service} can be attached: {attach}\n"),
        None => {
            let verb = if shown.runs() { "restart" } else { "start" };
            format!(
                "{service} can be attached after: systemctl{user} {verb} {service}\nthen: {attach}\n"
            )
        }
    })
}

/// A mux that the service has beside those that it has from us.
fn foreign_mux<'a>(shown: &'a UnitStatus, before: &[(String, AppName)]) -> Option<&'a str> {
    shown
        .wants
        .split_whitespace()
        .find(|unit| is_mux(unit) && before.iter().all(|(ours, _)| ours != unit))
}

/// Refuses muxes that another service has, by lines of another hand, as far as systemd knows it: it would lose streams.
fn refuse_mux_of_another(manager: Manager, service: &str, muxes: &[MuxUnit]) -> Result<()> {
    for mux in muxes {
        let users = manager.properties(&mux.unit(), "WantedBy,RequiredBy,BoundBy")?;
        let mut users = users.values().flat_map(|units| units.split_whitespace());
        if let Some(other) = users.find(|unit| *unit != service) {
            let (other, name) = (other.escape_debug(), &mux.name);
            bail!("{other} has the mux {name} already; give {service} another name (--app)");
        }
    }
    Ok(())
}

/// The hooks that a service has, as systemd has them now.
fn hooks(manager: Manager, service: &str) -> Result<Vec<&'static str>> {
    let all = manager.properties(service, &HOOKS.join(","))?;
    let has = |hook: &&str| all.get(*hook).is_some_and(|value| !value.is_empty());
    Ok(HOOKS.into_iter().filter(has).collect())
}

/// What of our drop-in is not what holds for a service, as it does there.
fn overridden(manager: Manager, service: &str, files: &[UnitFile]) -> Result<Vec<String>> {
    const STREAMS: &str = "StandardInput,StandardOutput,StandardError";
    let all = manager.properties(service, STREAMS)?;
    let Some(drop_in) = files.last() else { return Ok(Vec::new()) };
    let wanted = drop_in.text.lines().filter_map(|line| line.split_once('='));
    let differs = |(name, value): (&str, &str)| {
        let holds = all.get(name)?;
        // Without what is behind it: a path, or a name.
        let kind = |value: &str| value.split(':').next().unwrap_or_default().to_owned();
        (kind(holds) != kind(value)).then(|| format!("{name}={}", holds.escape_debug()))
    };
    Ok(wanted.filter_map(differs).collect())
}

/// When [`disable`] is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisableTime {
    /// When the service has stopped, which it has perhaps.
    Stopped,
    /// Now: a service that runs is restarted.
    Now,
    /// If it has stopped: it is looked again.
    AtStop,
    /// Never: this only waits until it has stopped.
    Await,
}

/// Gives a service back the streams that its own files say.
pub(crate) fn disable(manager: Manager, service: &ServiceName, when: DisableTime) -> Result<()> {
    let what = || format!("disabling {service}");
    check_rights(manager).with_context(what)?;
    try_to_disable(manager, service, when).with_context(what)
}

/// Does so with all services that are enabled here, each for itself.
pub(crate) fn disable_all(manager: Manager, when: DisableTime) -> Result<()> {
    let owners = UnitDirectory::new(manager.units()?).owners()?;
    if owners.is_empty() {
        return print("no service is enabled\n");
    }
    let mut failed = 0;
    for (_, service) in &owners {
        if let Err(e) = disable(manager, service, when) {
            log::error!("{e:#}");
            failed += 1;
        }
    }
    if failed > 0 {
        bail!("{failed} of {} services could not be disabled", owners.len());
    }
    Ok(())
}

fn try_to_disable(manager: Manager, service: &ServiceName, when: DisableTime) -> Result<()> {
    let place = UnitDirectory::new(manager.units()?);
    let find = || Ok::<_, anyhow::Error>(place.owners()?.into_iter().find(|(_, of)| of == service));
    let Some((app, _)) = find()? else {
        if matches!(when, DisableTime::AtStop | DisableTime::Await) {
            return Ok(());
        }
        let is_app =
            |(name, _): &(AppName, ServiceName)| format!("{name}.service") == service.as_str();
        let hint =
            place.owners()?.into_iter().find(is_app).map_or_else(String::new, |(app, of)| {
                format!("; app {app} is {of}: iottymux disable{} {of}", manager.option())
            });
        bail!("it is not enabled (no file in {} is of it){hint}", place.path().display());
    };
    let owner = (&app, service);
    let later = DeferredDisable::new(manager, owner)?;
    match when {
        DisableTime::Await => return later.wait(&place),
        DisableTime::AtStop => return later.finish(&place),
        DisableTime::Stopped | DisableTime::Now => {}
    }
    let going = place.going(&[owner])?;
    let mut tries = 1..limits::DISABLE_TRIES;
    let (shown, restarted) = loop {
        let shown = match when {
            // Somebody stops it, or restarts it, and is not to be stopped in that.
            DisableTime::Now => manager.show_settled(service.as_str())?,
            _ => manager.show(service.as_str())?,
        };
        if when == DisableTime::Now && shown.is_masked && shown.runs() {
            bail!(
                "it is masked, and could not be started again; without --now it is disabled when it stops"
            );
        }
        let begun = later.begin(when, shown.stops());
        let shown = manager.show(service.as_str())?;
        if begun.is_ok() && when == DisableTime::Stopped && shown.runs() {
            let how = if shown.lingers() { "has not stopped yet" } else { "is running" };
            return print(&format!(
                "{service} {how}: it is disabled when it stops (a restart does not count)\n\
                 to restart and disable it now: iottymux disable{} --now {service}\n",
                manager.option()
            ));
        }
        // One job of systemd's, which goes on whatever becomes of this process.
        let restarted = (begun.is_ok() && shown.runs() && !shown.stops())
            .then(|| manager.systemctl(&["restart", "--", service.as_str()]).map(drop));
        // It has had its turn in the middle of that, or has it now.
        manager.stop(&later.unit)?;
        if find()?.is_none() {
            break (shown, restarted);
        }
        // Or the service was started just before, or the unit stopped with it before it was told to have begun.
        // A restart by us would not help a second time.
        if restarted.is_some() || tries.next().is_none() {
            later.cancel()?;
            begun.and(restarted.unwrap_or(Ok(())))?;
            bail!("its files are still there (journalctl -u {})", later.unit);
        }
    };
    // One that was between two tries may have done it before it was told to begin again.
    if later.is_there() {
        later.cancel()?;
        manager.systemctl(&["daemon-reload"])?;
    }
    print(&summary(&going.into_iter().map(|path| (Done::Removed, path)).collect()))?;
    let fate = restarted.map(|restarted| manager.fate(service.as_str(), &shown, restarted));
    print(&match fate.transpose()? {
        Some(fate @ Fate::Failed(_)) => bail!("it has its own streams again, but {fate}"),
        None | Some(Fate::Runs) => format!("{service} has its own streams again\n"),
        Some(fate) => format!("{service} has its own streams again; it {fate}\n"),
    })
}

/// The unit that disables a service when that has stopped, and the only one that does. It has no claim on
/// the service, which would be started for it, or kept from stopping: it waits for the end of its mux, which
/// is there as long as the service or its next start by Restart= is. Then it has itself stopped: for as long
/// as it is, the service is not started, since its start comes behind. The one that is to do it now is
/// stopped in the middle of the service's restart.
struct DeferredDisable<'a> {
    manager: Manager,
    place: UnitDirectory,
    owner: UnitOwner<'a>,
    unit: String,
}

impl<'a> DeferredDisable<'a> {
    fn new(manager: Manager, owner: UnitOwner<'a>) -> Result<Self> {
        let place = UnitDirectory::new(manager.runtime_units()?);
        let unit = format!("iottymux-disable-{}.service", owner.0);
        Ok(Self { manager, place, owner, unit })
    }

    /// Begins to wait; not before the service has stopped, if it does.
    fn begin(&self, when: DisableTime, stops: bool) -> Result<()> {
        let program = program(&this_program()?);
        let command = format!("{program} disable{}", self.manager.option());
        let (service, name) = (self.owner.1, argument(self.owner.1.as_str()));
        let part =
            if when == DisableTime::Now { format!("PartOf={service}\n") } else { String::new() };
        let text = format!(
            "[Unit]\n\
             Description=Disables attaching to {service} when that stops\n\
             DefaultDependencies=no\n\
             Conflicts=shutdown.target\n\
             {part}Before=shutdown.target {service}\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=exec\n\
             ExecStart={command} --later wait {name}\n\
             ExecStopPost={command} --later finish {name}\n\
             Restart=on-failure\n\
             RestartSec=1s\n"
        );
        let file = UnitFile {
            path: PathBuf::from(&self.unit),
            text: with_checksum(Some(self.owner), &text),
        };
        self.place.plan(&self.place.all()?, self.owner, vec![file])?.carry_out()?;
        self.manager.systemctl(&["daemon-reload"])?;
        let wait = if stops { &["--no-block"][..] } else { &[] };
        self.manager.systemctl(&[&["start"], wait, &[&self.unit]].concat()).map(drop)
    }

    /// Waits until the service has stopped; then it is its turn, and again if it was started since.
    fn wait(&self, place: &UnitDirectory) -> Result<()> {
        let state = place.state(self.owner)?;
        let mut why = String::new();
        loop {
            while self.manager.show(self.owner.1.as_str())?.runs() {
                for dir in &state {
                    dir.await_unlocked()?;
                }
                // Its mux is only started again, or ends a moment before it.
                thread::sleep(limits::LOOK_AGAIN);
            }
            let Err(e) = place.going(&[self.owner]) else { break };
            let now = format!("{e:#}");
            if now != why {
                log::warn!("{} is disabled when that is possible: {now}", self.owner.1);
                why = now;
            }
            thread::sleep(limits::DISABLE_AGAIN);
        }
        // Not in the place of a stop that somebody else, or the machine's shutdown, has asked for: systemd
        // calls such a restart destructive. Then it is its turn when it is stopped.
        let restart = ["restart", "--no-block", "--job-mode=fail", "--", &self.unit];
        match self.manager.systemctl(&restart) {
            Err(_) if self.is_stopped()? => Ok(()),
            done => done.map(drop),
        }
    }

    /// Whether it is being stopped, or is about to be.
    fn is_stopped(&self) -> Result<bool> {
        let shown = self.manager.show(&self.unit)?;
        Ok(shown.stops() || shown.has_job())
    }

    /// Disables the service, unless it runs.
    fn finish(&self, place: &UnitDirectory) -> Result<()> {
        if self.manager.show(self.owner.1.as_str())?.runs() {
            return Ok(());
        }
        let (state, muxes) = (place.state(self.owner)?, place.muxes(self.owner)?);
        print(&summary(&place.uninstall(&[self.owner])?))?;
        self.remove()?;
        self.manager.systemctl(&["daemon-reload"])?;
        for (unit, name) in muxes {
            // It ends by itself, but what it leaves is removed behind it.
            self.manager.stop(&unit)?;
            // One that could not start would be listed for ever.
            self.manager.forget(&unit)?;
            journal::end(self.manager, &name)?;
            account::clear_logs(self.manager, &name);
        }
        clear_state(&state)
    }

    /// Whether it was told to wait.
    fn is_there(&self) -> bool {
        self.place.has(Path::new(&self.unit))
    }

    /// Waits again, for what was to be done instead has failed; unless there is nothing left to wait for.
    fn resume(&self, place: &UnitDirectory) {
        let begin = || {
            if !place.owners()?.iter().any(|(app, of)| (app, of) == self.owner) {
                return Ok(());
            }
            self.begin(DisableTime::Stopped, self.manager.show(self.owner.1.as_str())?.stops())
        };
        if let Err(e) = begin() {
            log::warn!("{} is not disabled any more when it stops: {e:#}", self.owner.1);
        }
    }

    /// Stops waiting.
    fn cancel(&self) -> Result<()> {
        self.remove()?;
        self.manager.stop(&self.unit)
    }

    fn remove(&self) -> Result<()> {
        self.place.uninstall(&[self.owner]).map(drop)
    }
}
