//! From the command line to the command, and from its outcome to the exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::named_app::{self, Fitting, MatchPolicy};
use super::parse::{self, invalid};
use super::{
    AttachArgs, Cli, Command, ControlArgs, DisableArgs, EnableArgs, ListArgs, NamedAppArg,
    NamedServices, RequestArgs, RunArgs, StatusArgs, UnitsArgs, complete, container_mux,
    containerd, enabled, options, remote, resolve, resolve_units, rkt,
};
use crate::client::containers::AmbiguousApp;
use crate::client::{attach, each, follow, list, logs, metrics, script, status};
use crate::containers::wrapper;
use crate::core::wire::ControlRequest;
use crate::host::enable::disable;
use crate::host::enable::{self, How, Outcomes};
use crate::host::engine_config;
use crate::host::install;
use crate::host::units::{AppUnits, Setup, write};
use crate::keeper::{self, run, stop};
use crate::mux::logs::journal_writer::{self, JOURNAL_WRITER};
use crate::sys::diagnostics::Speaker;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::bus;
use crate::sys::systemd::manager::Manager;
use crate::sys::systemd::own_process;
use crate::sys::{calls, diagnostics};
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use anyhow::{Result, anyhow, bail};

/// The program: reads the command line, does it, and returns the exit code.
pub fn main() -> i32 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words = arguments.get(1..).unwrap_or_default();
    let outcome = match arguments.first().and_then(|word| word.to_str()) {
        Some(JOURNAL_WRITER) => journal_writer::main(words),
        Some(complete::COMPLETE) => complete::main(words),
        _ if containerd::is_logger(&arguments) => containerd::main(&arguments),
        Some(wrapper::KEEPER) => container_mux::oci_keeper(words),
        Some(wrapper::HOLDER) => wrapper::hold(words),
        _ => match wrapper::arguments(std::env::args_os().next().as_deref(), &arguments) {
            Some(words) => wrapper::main(&words),
            None if rkt::is_spelling(&arguments) => rkt::main(&arguments),
            None => {
                parse::read(&arguments).map_or_else(|exit| exit, |(cli, wrong)| begin(cli, &wrong))
            }
        },
    };
    outcome.code()
}

/// Executes a command line from which these mistakes were left out.
fn begin(cli: Cli, wrong: &[String]) -> Exit {
    let speaker = match &cli.command {
        Command::Run(args) if args.keeps() || own_process::is_kept() => Speaker::Mux,
        Command::Stream(_) | Command::Tty(_) => Speaker::Mux,
        Command::Container(_) => Speaker::Container,
        _ => Speaker::Command,
    };
    if speaker != Speaker::Command {
        // What it keeps is not to lie between what the parser has left.
        calls::give_back_memory();
    }
    diagnostics::start(cli.global.log_level, speaker);
    for mistake in wrong {
        match &cli.command {
            Command::Container(args) => {
                log::error!("app {}: this option is left out: {mistake}", args.app.name);
            }
            _ => log::error!("the app may be running, so this option is left out: {mistake}"),
        }
    }
    if matches!(cli.command, Command::Stream(_) | Command::Tty(_)) && own_process::is_of_unit() {
        for name in options::unknown_variables() {
            log::warn!("there is no option for {}, see iottymux.env(5)", name.escape_debug());
        }
    }
    execute(cli).unwrap_or_else(|e| {
        if e.is::<AmbiguousApp>() { invalid(&e) } else { diagnostics::failed(&e, Exit::Failed) }
    })
}

fn execute(cli: Cli) -> Result<Exit> {
    if let Some(host) = cli.global.host.as_ref().filter(|host| !remote::is_here(host)) {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        return remote::exec(host, &cli.command, &arguments);
    }
    let given = cli.global.state_dir;
    let state = || StateDir::resolve(given.clone());
    let named = |app: &NamedAppArg| app.resolve(given.clone(), MatchPolicy::Prefix);
    match cli.command {
        Command::Stream(args) => run::mux(resolve::stream(&args, &state()?)),
        Command::Tty(args) => run::mux(resolve::tty(&args, &state()?)),
        Command::Container(args) => {
            run::mux(container_mux::leave_out_foreign(resolve::container(&args, &state()?)))
        }
        Command::Run(args) if own_process::is_kept() => {
            if_valid(resolve::run(&args, &state()?), run::mux)
        }
        Command::Run(args) if args.keeps() => {
            if_valid(resolve::keep(&args, &state()?), |request| {
                refusal(&args, &request.dir).map_or_else(|| keeper::keep(request), Ok)
            })
        }
        Command::Run(args) => if_valid(resolve::run_attached(&args, &state()?), |request| {
            let dir = request.dir.clone();
            let is_there = || args.or_attach && run::is_running(&dir);
            if is_there() {
                return run::joined(request, args.detach);
            }
            let started = match refusal(&args, &dir) {
                Some(exit) => Ok(exit),
                None if args.detach => run::detached(&dir, &args.command, args.scope),
                None => run::attached(request.clone()),
            };
            // Somebody else has started it meanwhile.
            if started.is_err() && is_there() { run::joined(request, args.detach) } else { started }
        }),
        Command::Attach(args) => attach_app(&args, given),
        Command::Status(args) => show_status(&args, given).map(|()| Exit::Done),
        Command::Metrics => {
            let (states, enabled) = all(given)?;
            metrics::show(&states, &enabled).map(|()| Exit::Done)
        }
        Command::Logs(args) => {
            let has_app = args.file.is_none() || args.app.is_given();
            let app = has_app.then(|| named(&args.app)).transpose()?;
            if_valid(resolve::logs(&args, app), |request| logs::show(&request))
        }
        Command::Control(args) => control(&args, given),
        Command::Send(args) => {
            let dir = args.app.resolve(given, MatchPolicy::Service)?;
            script::send::send(&args.request(dir))
        }
        Command::Ask(args) => {
            let dir = args.app.resolve(given, MatchPolicy::Service)?;
            if_valid(args.request(dir), |request| script::ask::ask(&request))
        }
        Command::Wait(args) => script::wait::wait(&args.request(given.as_ref())?),
        Command::Events(args) => script::events::events(&args.request(given.as_ref())?),
        Command::Screen(args) => script::screen::screen(&args.request(named(&args.app)?)),
        Command::Stop(args) => {
            let line = args.line.as_deref();
            let which = Fitting { running: true, of_run: true };
            args.apps.each(given.as_ref(), which, |dir| stop::stop(dir, line, args.time()))
        }
        Command::Kill(args) => {
            let which = Fitting { running: true, of_run: true };
            args.apps.each(given.as_ref(), which, |dir| stop::kill(dir, args.signal))
        }
        Command::Rm(args) => {
            let which = Fitting { running: false, of_run: true };
            args.apps.each(given.as_ref(), which, |dir| stop::remove(dir, args.force))
        }
        Command::Enable(args) => {
            if args.list {
                return enabled::show(&args).map(|()| Exit::Done);
            }
            enable(&args, given.as_deref())
        }
        Command::Disable(args) => disable(&args),
        Command::Units(args) => {
            if_valid(resolve_units::units(&args, given.as_deref()), |(apps, setup)| {
                write_units(&args, &apps, &setup).map(|()| Exit::Done)
            })
        }
        Command::Install { prefix, restart, remove, runtime } => match (runtime, remove) {
            (None, false) => install::install(&prefix, restart),
            (None, true) => {
                engine_config::refuse_used(&prefix).and_then(|()| install::remove(&prefix))
            }
            (Some(engine), false) => engine_config::add(engine, &prefix),
            (Some(engine), true) => engine_config::remove(engine, &prefix),
        }
        .map(|()| Exit::Done),
        Command::Completion { shell } => install::completion(shell).map(|()| Exit::Done),
        Command::List(args) if args.app.is_given() => list_some(&args, given).map(|()| Exit::Done),
        Command::List(args) => list_all(&args, given).map(|()| Exit::Done),
    }
}

/// Refuses a `run` that cannot work.
fn refusal(args: &RunArgs, dir: &AppDir) -> Option<Exit> {
    run::refusal(dir, args.command.first()?)
}

/// Has a mux do something, or the service of this command's unit.
fn control(args: &ControlArgs, given: Option<PathBuf>) -> Result<Exit> {
    if args.all {
        return match args.request {
            RequestArgs::Restart => stop::restart_all(&StateDir::all(given)?).map(|()| Exit::Done),
            _ => Ok(invalid(&anyhow!("--all is only for control --all restart"))),
        };
    }
    let dir = args.dir(given)?;
    match &args.request {
        RequestArgs::StopLine { time, line } => stop::service_by_line(&dir, line, *time),
        _ => match resolve::request(args, &dir)? {
            Some(ControlRequest::Restart) => stop::restart(&dir),
            Some(request) => status::control(&dir, &request),
            None => Ok(()),
        },
    }
    .map(|()| Exit::Done)
}

/// Prints the status of all apps, of those that a pattern fits, or of one.
fn show_status(args: &StatusArgs, given: Option<PathBuf>) -> Result<()> {
    let asked = if args.all {
        let (states, enabled) = all(given)?;
        each::app(&states, &enabled, false)
    } else if let Some(apps) = args.app.fitting(given.as_ref())? {
        each::these(apps, &enabled(given.as_ref()))
    } else {
        return status::show(&args.app.resolve(given, MatchPolicy::Prefix)?, args.json);
    };
    status::show_all(asked?, args.json)
}

/// Prints the apps that a pattern fits, or one.
fn list_some(args: &ListArgs, given: Option<PathBuf>) -> Result<()> {
    let (enabled, form) = (enabled(given.as_ref()), (args.form(), args.extent()));
    match args.app.fitting(given.as_ref())? {
        Some(apps) => list::all(each::these(apps, &enabled)?, &enabled, form),
        None => list::one(&args.app.resolve(given, MatchPolicy::Prefix)?, &enabled, form),
    }
}

/// Prints all apps.
fn list_all(args: &ListArgs, given: Option<PathBuf>) -> Result<()> {
    let is_default = given.is_none();
    let (mut states, enabled) = all(given)?;
    if args.all && is_default {
        states.extend(StateDir::of_others());
    }
    let asked = each::app(&states, &enabled, args.all)?;
    list::all(asked, &enabled, (args.form(), args.extent()))
}

/// The directories with all apps of this user, and the apps that are enabled.
fn all(given: Option<PathBuf>) -> Result<(Vec<StateDir>, BTreeMap<AppName, String>)> {
    let enabled = enabled(given.as_ref());
    Ok((StateDir::all(given)?, enabled))
}

/// The apps that are enabled. A state directory of elsewhere has nothing to do with the units here.
fn enabled(given: Option<&PathBuf>) -> BTreeMap<AppName, String> {
    if given.is_none() { enable::enabled() } else { BTreeMap::new() }
}

/// Enables the named services.
fn enable(args: &EnableArgs, given: Option<&Path>) -> Result<Exit> {
    let manager = Manager { user: args.modes.user };
    let how = How { now: args.now, force: args.force };
    let instances = |template: &str| {
        let instances = enable::instances(manager, template);
        if instances.is_empty() {
            bail!("systemd knows no instance of {template}; try iottymux enable {template}NAME");
        }
        Ok(instances)
    };
    let is_one = matches!(args.services[..], [NamedServices::Service(_)]);
    if let Some(app) = args.app.as_ref().filter(|_| !is_one) {
        return Ok(invalid(&anyhow!("--app {app} can name only one service")));
    }
    let _turn = enable::turn(manager)?;
    bus::keep_connection();
    let services = named(&args.services, instances)?;
    let mut outcomes = Outcomes::new("enable", services.len());
    let asked = services.into_iter().map(|service| {
        let services = vec![NamedServices::Service(service)];
        let args = EnableArgs { services, ..args.clone() };
        resolve_units::enable(args, given).map_err(|e| invalid(&e))
    });
    enable::enable(manager, asked, how, &mut outcomes);
    outcomes.end()
}

/// The services that are named, or instances of templates that are.
fn named(
    named: &[NamedServices],
    instances: impl Fn(&str) -> Result<BTreeSet<ServiceName>>,
) -> Result<BTreeSet<ServiceName>> {
    let mut services = BTreeSet::new();
    for one in named {
        match one {
            NamedServices::Service(service) => services.extend([service.clone()]),
            NamedServices::Instances(template) => services.extend(instances(template)?),
        }
    }
    Ok(services)
}

/// Disables the named services, or all.
fn disable(args: &DisableArgs) -> Result<Exit> {
    let manager = Manager { user: args.user };
    let instances = |template: &str| {
        let enabled = enable::enabled_by(args.user)?.into_iter().map(|one| one.service);
        let instances: BTreeSet<_> =
            enabled.filter(|service| service.as_str().starts_with(template)).collect();
        if instances.is_empty() {
            bail!("no instance of {template} is enabled");
        }
        Ok(instances)
    };
    let _turn = enable::turn(manager)?;
    bus::keep_connection();
    if args.services.is_empty() {
        return disable::disable_all(manager, args.now);
    }
    let services = named(&args.services, instances)?;
    let mut outcomes = Outcomes::new("disable", services.len());
    disable::disable(manager, services, args.now, &mut outcomes);
    outcomes.end()
}

/// Runs a command, if its arguments are valid.
fn if_valid<T>(asked: Result<T>, does: impl FnOnce(T) -> Result<Exit>) -> Result<Exit> {
    match asked {
        Ok(asked) => does(asked),
        Err(e) => Ok(invalid(&e)),
    }
}

/// Writes, shows or removes units.
fn write_units(args: &UnitsArgs, apps: &[AppUnits], setup: &Setup) -> Result<()> {
    match &args.output {
        None => write::show(apps, setup),
        // The state of another root is not here.
        Some(dir) if args.remove => write::remove(apps, dir, args.seen_as.is_none()),
        Some(dir) => write::write(apps, setup, dir),
    }
}

/// `attach`, the first one or one of those that follow.
fn attach_app(args: &AttachArgs, given: Option<PathBuf>) -> Result<Exit> {
    let followed = follow::followed().filter(|_| args.follow);
    let dir = if let Some(name) = &followed {
        named_app::next(given, name)?
    } else {
        // An app that is awaited has its own name.
        let guess =
            if args.wait.is_some() { MatchPolicy::Nothing } else { MatchPolicy::PrefixOrPick };
        args.app.resolve(given, guess)?
    };
    if_valid(resolve::attach(args, dir), |request| {
        if args.follow {
            return follow::attach_on(request, followed.is_none());
        }
        attach::attach(&request)
    })
}
