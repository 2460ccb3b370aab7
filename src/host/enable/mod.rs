//! `enable` and `disable`: make a service of this machine attachable, and undo that. They write the
//! files of `units` and ask systemd to use them.

pub(crate) mod account;
pub(crate) mod disable;
mod guard;
mod known_services;
mod outcomes;
mod program;
mod switch;

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use nix::sys::signal::{SigSet, Signal};

pub(crate) use self::known_services::{
    EnabledService, admitted, enabled, enabled_by, enabled_for_all, existing, instances,
    manager_of, mux_trouble, of_service, service_of, services, start_muxes, status_of,
    waits_for_restart, with_earlier_streams,
};
pub(crate) use self::outcomes::Outcomes;
use self::switch::{Switch, roll_back};
use crate::host::units::unit_dir::{self, Changes, FoundUnit, UnitDirectory};
use crate::host::units::unit_text::{UnitOwner, is_program};
use crate::host::units::write::{all_files, clear_state, elsewhere, summary, template_of};
use crate::host::units::{
    AppUnits, DROP_IN, MuxUnit, Setup, UnitFile, UnitKind, drop_ins, hooks as of_root, is_mux,
    journal_plan,
};
use crate::sys::print::print;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::bus::Properties;
use crate::sys::systemd::manager::{Fate, Manager, UnitStatus};
use crate::sys::{calls, process};
use crate::types::escape;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// Where systemd looks for a program by its bare name.
const PROGRAMS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// The path of iottymux for units of this machine; `None` if systemd finds it by its bare name.
pub(crate) fn binary() -> Result<Option<String>> {
    if found("iottymux").is_some() {
        return Ok(None);
    }
    this_program().map(Some)
}

/// The program that systemd finds by a bare name.
pub(crate) fn found(name: &str) -> Option<PathBuf> {
    PROGRAMS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

/// Whether systemd finds programs of this directory by a bare name.
pub(crate) fn is_found_in(dir: &Path) -> bool {
    PROGRAMS.iter().any(|known| dir == Path::new(known))
}

/// Whether services start without this program and the templates of this directory, since there
/// are others, such as those of a package.
pub(crate) fn has_others(program: &Path, templates: &Path) -> Result<bool> {
    let is_other = |path: &Path, than: &Path| path.canonicalize().ok() != than.canonicalize().ok();
    let places = UnitDirectory::of_enable(Manager { user: false })?;
    let system = elsewhere(false).iter().map(Path::new);
    let mut places = places.iter().map(UnitDirectory::path).chain(system);
    let has_templates = |dir: &Path| {
        ["iomux@.service", "ttymux@.service"].iter().all(|name| dir.join(name).is_file())
    };
    let mut programs = PROGRAMS.iter().map(|dir| Path::new(dir).join("iottymux"));
    Ok(places.any(|dir| is_other(dir, templates) && has_templates(dir))
        && programs.any(|path| is_other(&path, program) && path.is_file()))
}

fn this_program() -> Result<String> {
    let path = env::current_exe().context("cannot find the path of this program")?;
    let path = path.into_os_string().into_string().ok().filter(|path| is_program(path));
    path.context("cannot write the path of this program into a unit: install it elsewhere")
}

/// Options of `enable`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether the service is restarted at once.
    pub(crate) now: bool,
    /// Whether to enable also a service that the machine needs, or that sets its own streams.
    pub(crate) force: bool,
}

/// A service to enable, and what is printed of that when nothing refuses it any more.
pub(crate) type Asked = (AppUnits, Setup, String);

/// Makes services attachable from their next start on, or at once. All are planned before the first is
/// written, and systemd reads the files of all at once: it reads those of the whole machine then, and
/// lists them anew for the next question once one has changed. A service that changes what others have,
/// or must stop for its new streams, has its turn alone.
pub(crate) fn enable(
    manager: Manager,
    all: impl Iterator<Item = Result<Asked, Exit>>,
    how: How,
    outcomes: &mut Outcomes,
) {
    let mut planned = Vec::new();
    for (at, asked) in all.enumerate() {
        outcomes.show(at, "planned");
        let asked = match asked {
            Ok(asked) => asked,
            Err(exit) => {
                outcomes.add(Ok(exit));
                continue;
            }
        };
        let service = asked.0.service.clone();
        match plan(manager, asked, how) {
            Ok(one) if one.goes_alone() => carry_out(vec![one], outcomes),
            Ok(one) => planned.push(one),
            Err(e) => outcomes.add(Err(cannot(&service, e))),
        }
    }
    carry_out(planned, outcomes);
}

fn cannot(service: &ServiceName, why: Error) -> Error {
    why.context(format!("cannot enable {service}"))
}

/// Has these services use their files. Those that fail, and with a signal those that are not done yet,
/// are rolled back.
fn carry_out(all: Vec<Switch>, outcomes: &mut Outcomes) {
    let only_say = |failed: Vec<(Switch, Error)>| {
        failed.into_iter().map(|(one, why)| cannot(&one.app.service, why)).collect()
    };
    let all = outcomes.step(all, &Switch::write, only_say);
    let all = outcomes.step(all, &Switch::release, roll_back);
    let mut all = outcomes.step_of_all(all, &switch::reload, roll_back);
    if all.len() == 1 || switch::start_muxes(&all).is_err() {
        all = outcomes.step(all, &|one| switch::start_muxes(slice::from_ref(one)), roll_back);
    }
    let mut all = all.into_iter();
    while let Some(one) = all.next() {
        outcomes.show(outcomes.done, "enabled");
        if is_interrupted() {
            let rest = [one].into_iter().chain(all).collect();
            outcomes.step_of_all(rest, &|_| bail!("interrupted"), roll_back);
            return;
        }
        for one in outcomes.step(vec![one], &Switch::start, roll_back) {
            outcomes.add(report(&one).map(|()| Exit::Done));
        }
    }
}

/// Waits until no other command changes services; two at once could remove what the other needs. Refuses users
/// other than root for services of the system. The turn ends with the file.
pub(crate) fn turn(manager: Manager) -> Result<File> {
    if !manager.may_be_changed() {
        bail!("only root can change a service of the system; try --user for a service of your own");
    }
    manager.turn()
}

/// Refuses a service that does not exist, or that should not be enabled.
fn check_service(
    manager: Manager,
    service: &ServiceName,
    shown: &UnitStatus,
    force: bool,
) -> Result<()> {
    if shown.is_masked() {
        bail!("it is masked (systemctl{} unmask {service})", manager.option());
    }
    if !shown.is_found() {
        bail!("there is no such service");
    }
    if !shown.is_loaded() {
        bail!("systemd cannot load it (systemctl{} status {service})", manager.option());
    }
    let names =
        [service.as_str(), &shown.id].into_iter().chain(shown.names.iter().map(String::as_str));
    if let Some(name) = guard::protected(names).filter(|_| !force) {
        bail!(guard::protects(service, name));
    }
    if shown.is_transient {
        bail!(
            "systemd-run made it, and systemd forgets it when it stops; give it a unit file, or start \
             its command with iottymux run"
        );
    }
    if shown.id != service.as_str() {
        bail!("it is another name of {}: enable that one", escape::line(&shown.id));
    }
    Ok(())
}

/// Refuses a directory that cannot be written, and a service that has its files in the other one.
fn check_place(manager: Manager, app: &AppUnits, place: &UnitDirectory) -> Result<()> {
    let all = UnitDirectory::of_enable(manager)?;
    let has_ours = |place: &UnitDirectory| -> Result<bool> {
        let is_ours = |(name, of): UnitOwner| *name == app.name || *of == app.service;
        Ok(place.near(app.owner())?.iter().filter_map(FoundUnit::owner).any(is_ours))
    };
    if place.is_read_only() {
        let path = place.path().display();
        bail!("{path} is read-only; with --runtime it is enabled until the next boot");
    }
    for other in all.iter().filter(|other| other.path() != place.path()) {
        if has_ours(other)? {
            let (service, other) = (&app.service, other.path().display());
            bail!("{service} or its app {} has files in {other}; disable it first", app.name);
        }
    }
    Ok(())
}

/// The change of streams of a service. Refuses what should not be enabled, and a change for which the service would have to stop, unless it may be restarted now.
fn plan(manager: Manager, (app, setup, told): Asked, how: How) -> Result<Switch> {
    if is_interrupted() {
        bail!("interrupted");
    }
    let shown = manager.show(app.service.as_str())?;
    check_service(manager, &app.service, &shown, how.force)?;
    let muxes = app.muxes()?;
    let has_terminal = muxes.iter().any(|mux| mux.kind == UnitKind::Terminal);
    if let Some(why) =
        guard::unread(&shown.kind, &shown.program, has_terminal).filter(|_| !how.force)
    {
        bail!(why);
    }
    let place = UnitDirectory::new(setup.seen_as.clone().into());
    check_place(manager, &app, &place)?;
    let own = own_files(manager, &app, &place)?;
    let app = settle(manager, &app, (&place, &own), &setup)?;
    let owner = app.owner();
    let texts = all_files(&app, &setup, &place)?;
    let (before, state) = (place.muxes(owner)?, place.state(owner)?);
    // The same muxes may have other streams than before.
    let ends = texts.last().map(|file| unit_dir::ends(&file.text)).unwrap_or_default();
    let changes = !before.is_empty() && place.ends(owner)? != ends;
    let loses = shown.runs() && changes;
    if loses && !how.now {
        bail!(
            "it is running with other streams or another state directory; stop it first, or \
             restart it with --now"
        );
    }
    // A service that has these streams already is not restarted for nothing.
    let has_streams = shown.is_active()
        && !before.is_empty()
        && !changes
        && !is_earlier(manager, app.service.as_str(), &state);
    let files = place.plan(&place.near(owner)?, owner, texts.clone())?;
    let mut switch = Switch {
        manager,
        app,
        shown,
        before,
        muxes,
        state,
        place,
        texts,
        files,
        changes,
        now: how.now && (loses || !has_streams),
        told,
        own: Vec::new(),
        written: Changes::new(),
        is_touched: false,
        with_it: Vec::new(),
        fate: None,
    };
    let overridden = check_streams(&switch, &own, how.force)?;
    if !how.force {
        switch.own = overridden;
    }
    let Switch { app, muxes, place, texts, .. } = &switch;
    of_root::check_options(manager, muxes)?;
    account::make(&setup)?;
    account::check_logs(app, &setup)?;
    program::check(&setup, &future_units(&setup, place, (muxes, texts))?)?;
    Ok(switch)
}

/// Refuses streams that other files decide. Returns the lines about streams in the service's own
/// files.
fn check_streams(switch: &Switch, own: &[OwnFile], force: bool) -> Result<Vec<String>> {
    let (manager, app) = (switch.manager, &switch.app);
    if let Some(mux) = foreign_mux(&switch.shown, &switch.before) {
        let mux = escape::line(mux);
        bail!("lines that iottymux did not write make it want {mux}: remove these lines first");
    }
    refuse_mux_of_another(manager, app.service.as_str(), &switch.muxes)?;
    if let Ok(state) = StateDir::resolve(None) {
        let mut apps = switch.muxes.iter().map(|mux| state.app(&mux.name));
        // Nothing else is named so while it is enabled.
        if let Some(taken) = apps.find(|dir| dir.is_locked() && !dir.is_of_service()) {
            let name = taken.name();
            bail!(
                "app {name} is a command of `run` or a container, and it runs; end it first, or give \
                 the service another name (--app)"
            );
        }
    }
    let own = guard::own_streams(own);
    if !own.is_empty() && !force && switch.before.is_empty() {
        let own = own.join(", ");
        bail!("its own files set its streams: {own}; --force overrides these lines");
    }
    Ok(own)
}

/// The signals that end this process.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Blocks the signals that end this process.
fn block_signals() -> Result<()> {
    SigSet::from_iter(ENDS).thread_block().context("cannot block signals")
}

/// Whether one has come since then.
fn is_interrupted() -> bool {
    ENDS.into_iter().any(|signal| process::awaits(signal) && !calls::is_ignored(signal))
}

/// Whether a service still runs on the streams that it had before its muxes prepared theirs.
fn is_earlier(manager: Manager, service: &str, state: &[AppDir]) -> bool {
    manager
        .run_of(service)
        .is_some_and(|run| state.iter().any(|dir| dir.earlier_run().as_ref() == Some(&run)))
}

/// A file of a service that is not ours: its path and its text.
type OwnFile = (PathBuf, String);

/// The files of a service, without ours.
fn own_files(manager: Manager, app: &AppUnits, place: &UnitDirectory) -> Result<Vec<OwnFile>> {
    let service = app.service.as_str();
    let ours = place.path().join(drop_ins(service)).join(DROP_IN);
    let mut files = manager.files(service)?;
    files.retain(|(path, _)| *path != ours);
    Ok(files)
}

/// The muxes with the future texts of their units.
fn future_units(
    setup: &Setup,
    place: &UnitDirectory,
    (muxes, files): (&[MuxUnit], &[UnitFile]),
) -> Result<Vec<(MuxUnit, String)>> {
    let unit = |mux: &MuxUnit| {
        let template = template_of(mux, setup, place)?;
        Ok((mux.clone(), program::text(&template, mux, files)))
    };
    muxes.iter().map(unit).collect()
}

/// The app with the settings of its service's own files for the journal and for hooks.
fn settle(
    manager: Manager,
    app: &AppUnits,
    (place, own): (&UnitDirectory, &[OwnFile]),
    setup: &Setup,
) -> Result<AppUnits> {
    let service = app.service.as_str();
    let names = [&journal_plan::PROPERTIES[..], &of_root::settings(), &["TimeoutStopUSec"]];
    let shown = manager.properties(service, &names.concat())?;
    let mut app = app.clone();
    let drop_in = place.drop_in(app.owner())?;
    app.journal.settle(&shown, drop_in.as_deref());
    if app.muxes()?.iter().any(|mux| mux.kind == UnitKind::Terminal) {
        app.sets_term = guard::sets_term(own);
    }
    if let Some(stop_line) = &app.stop_line {
        warn_of_short_stop(manager, (&app.service, &shown), stop_line.time);
    }
    let program = setup.binary.as_deref().unwrap_or_default();
    if let Some(line) = of_root::obstacle(manager, &shown, program) {
        if app.stop_line.is_some() {
            bail!(
                "cannot type a stop line into {service}: {line} could let other users decide what a \
                 command of root runs there"
            );
        }
        log::warn!(
            "{service} does not report its starts and ends to its mux: {line} could let other users \
             decide what a command of root runs there"
        );
        app.has_hooks = false;
    }
    Ok(app)
}

/// Tells of a service that systemd does not give the time for its stop line.
fn warn_of_short_stop(
    manager: Manager,
    (service, shown): (&ServiceName, &Properties),
    time: Duration,
) {
    // A negative number stands for a time without an end.
    let granted = shown.number("TimeoutStopUSec").and_then(|usec| u64::try_from(usec).ok());
    let granted = granted.map(Duration::from_micros);
    if let Some(granted) = granted.filter(|granted| *granted < time) {
        let user = manager.option();
        log::warn!(
            "{service} is cut off while it saves: its TimeoutStopSec={}s is shorter than --stop-timeout \
             {}; raise it with systemctl{user} edit {service}",
            granted.as_secs_f64(),
            time.as_secs_f64()
        );
    }
}

/// Tells what was done, the state of the enabled service, and the command that attaches to it. Fails if
/// the service does not run though it should.
fn report(one: &Switch) -> Result<()> {
    let Switch { manager, app, muxes, shown, fate, .. } = one;
    let service = app.service.as_str();
    // It gets its streams at its next start.
    let waits = one.before.is_empty() || is_earlier(*manager, service, &one.state);
    tell(one).with_context(|| format!("{service} is enabled"))?;
    let attach = muxes.iter().map(|mux| format!("iottymux attach {}", mux.name));
    let attach = attach.collect::<Vec<_>>().join(", ");
    let user = manager.option();
    print(&match fate {
        Some(fate @ Fate::Failed(_)) => {
            bail!(
                "{service} is enabled, but {fate}; iottymux status {} shows its last output, and \
                 iottymux disable{user} {service} undoes this",
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

/// Removes what muxes have left that are gone. Tells what was written, and which lines have no effect.
fn tell(one: &Switch) -> Result<()> {
    let service = one.app.service.as_str();
    let is_left = |dir: &&AppDir| one.muxes.iter().all(|mux| mux.name != *dir.name());
    clear_state(&one.state.iter().filter(is_left).cloned().collect::<Vec<_>>())?;
    print(&format!("{}{}", one.told, summary(&one.written)))?;
    for line in overridden(one.manager, service, &one.texts)? {
        log::warn!("another drop-in of {service} overrides this: {line} (systemctl cat {service})");
    }
    for line in &one.own {
        log::warn!("iottymux overrides a stream that {service} sets itself: {line}");
    }
    Ok(())
}

/// A mux of the service that iottymux did not add.
fn foreign_mux<'a>(shown: &'a UnitStatus, before: &[(String, AppName)]) -> Option<&'a str> {
    let mut wants = shown.wants.iter().map(String::as_str);
    wants.find(|unit| is_mux(unit) && before.iter().all(|(ours, _)| ours != unit))
}

/// Refuses muxes that another service wants by lines that iottymux did not write: that service
/// would lose its streams.
fn refuse_mux_of_another(manager: Manager, service: &str, muxes: &[MuxUnit]) -> Result<()> {
    for mux in muxes {
        let names = ["WantedBy", "RequiredBy", "BoundBy"];
        let shown = manager.properties(&mux.unit(), &names)?;
        let mut users = names.iter().flat_map(|name| shown.texts(name));
        if let Some(other) = users.find(|unit| *unit != service) {
            let (other, name) = (escape::line(other), &mux.name);
            bail!("{other} has the mux {name} already; give {service} another name (--app)");
        }
    }
    Ok(())
}

/// The settings of a service's streams that differ from those in our drop-in.
fn overridden(manager: Manager, service: &str, files: &[UnitFile]) -> Result<Vec<String>> {
    const STREAMS: [&str; 3] = ["StandardInput", "StandardOutput", "StandardError"];
    let all = manager.properties(service, &STREAMS)?;
    let Some(drop_in) = files.last() else { return Ok(Vec::new()) };
    let wanted = drop_in.text.lines().filter_map(|line| line.split_once('='));
    let differs = |(name, value): (&str, &str)| {
        let holds = STREAMS.contains(&name).then(|| all.text(name))?;
        // The part before the path or name.
        let kind = |value: &str| value.split(':').next().unwrap_or_default().to_owned();
        (kind(holds) != kind(value)).then(|| format!("{name}={}", escape::line(holds)))
    };
    Ok(wanted.filter_map(differs).collect())
}
