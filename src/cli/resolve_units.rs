//! The arguments of `enable`, `disable` and `units`, checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgAction, Parser};

use super::enabled::LOG;
use super::options::{self, TAKEN};
use super::rkt_variables::KUBERNETES_LOGS;
use super::values::STOP_TIMEOUT;
use super::{Cli, EnableArgs, ModeArgs, NamedServices, UnitsArgs, enabled};
use crate::core::logfmt::path::LogPath;
use crate::host::enable::{self, account};
use crate::host::units::journal_plan::{JournalChoice, JournalPlan};
use crate::host::units::manifest::{self, ManifestOptions};
use crate::host::units::unit_text::{is_path, is_program};
use crate::host::units::{
    AppUnits, Layout, MuxUnit, Setup, StopLine, StreamMode, StreamModes, UnitKind, Variable, is_mux,
};
use crate::sys::diagnostics;
use crate::sys::files::read_plain;
use crate::sys::state::StateDir;
use crate::sys::systemd::manager::Manager;
use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// Bytes of a pod manifest that are read: hundreds of apps.
const MANIFEST: u64 = 16 << 20;

/// The variable with the recordings of a mux.
const RECORD: &str = "IOTTYMUX_RECORD";

/// The lists of those who may type, and of those who may only view.
const PEERS: [(&str, [&str; 2]); 2] = [
    ("group", ["IOTTYMUX_ALLOW_GID", "IOTTYMUX_VIEW_GID"]),
    ("user", ["IOTTYMUX_ALLOW_UID", "IOTTYMUX_VIEW_UID"]),
];

/// Why a variable is refused.
const UNKNOWN: &str = "unknown option of a mux";

/// The app that `enable` is to make of a service, and what a person is told of its options.
pub(crate) fn enable(
    mut args: EnableArgs,
    state: Option<&Path>,
) -> Result<(AppUnits, Setup, String)> {
    args.modes = args.modes.in_full();
    args.modes.env = joined(&args.modes.env)?;
    let mut told = enabled::add_earlier(&mut args);
    args.modes.env.retain(|(_, value)| !value.is_empty());
    args.stop_line = args.stop_line.filter(|line| !line.is_empty());
    let [NamedServices::Service(service)] = &args.services[..] else { bail!("expected a service") };
    let service = service.clone();
    if is_mux(service.as_str()) {
        bail!("{service} is a mux, not an app");
    }
    if asked(&args.modes) == [None; 3] {
        args.modes.tty = true;
        told.push(format!(
            "{service} gets a terminal (--tty); for FIFOs instead, pass --streams\n"
        ));
    }
    let words = enabled::words(&args);
    let asked = asked(&args.modes);
    let modes = StreamModes::new(asked).map_err(|why| anyhow!(why))?;
    let name = match &args.app {
        Some(name) => name.clone(),
        None => derived_name(&service)?,
    };
    let app = app(name, service, (modes, None), &args.modes)?;
    let time = args.stop_timeout.unwrap_or(STOP_TIMEOUT);
    let stop_line = args.stop_line.map(|line| StopLine { line, time });
    let app = AppUnits { words, stop_line, ..app };
    let muxes = app.muxes()?;
    if app.stop_line.is_none() && args.stop_timeout.is_some() {
        bail!("--stop-timeout is the time for --stop-line, and {} has none", app.service);
    }
    if app.stop_line.is_some() && !muxes.iter().any(MuxUnit::has_input) {
        bail!("--stop-line requires an input of {} with mode stream or tty", app.service);
    }
    if asked[0] == Some(StreamMode::Tty) {
        told.push(format!(
            "ctrl-p ctrl-q leaves its terminal; ^C and ^D may end {}\n",
            app.service
        ));
    }
    if muxes.is_empty() {
        bail!("nothing to attach in {}: no stream has the mode stream or tty", app.service);
    }
    if args.modes.log.iter().any(|log| log != "none") && !muxes.iter().any(MuxUnit::has_output) {
        bail!("--log requires an output of {} with mode stream or tty", app.service);
    }
    let manager = Manager { user: args.modes.user };
    let seen_as = if args.runtime {
        manager.runtime_units().context("you have no session")?
    } else {
        manager.units()?
    };
    // Where `attach` and the others look.
    let of_rkt = StateDir::of_rkt().filter(|_| !args.modes.user);
    let state = state.or(of_rkt.as_ref().map(StateDir::path));
    Ok((app, setup(&args.modes, state, (enable::binary()?, &seen_as))?, told.concat()))
}

/// The apps that `units` is to write or take away.
pub(crate) fn units(args: &UnitsArgs, state: Option<&Path>) -> Result<(Vec<AppUnits>, Setup)> {
    let apps = match &args.pod_manifest {
        Some(path) => {
            let what = || format!("cannot use pod manifest {}", path.display());
            let asked = manifest::parse(&read(path).with_context(what)?);
            let asked = asked.map_err(|why| anyhow!(why)).with_context(what)?;
            let app = |(name, modes, log)| {
                let service = ServiceName::of(&name);
                // Each app of a pod has a root directory of its own. systemd would look for the
                // program of the hooks there.
                let app = app(name, service, (modes, log), &args.modes)?;
                Ok(AppUnits { has_hooks: false, ..app })
            };
            asked.into_iter().map(app).collect::<Result<Vec<_>>>()?
        }
        None => vec![single(args)?],
    };
    let seen_as = match (&args.seen_as, &args.output) {
        (Some(dir), _) => PathBuf::from(dir),
        (None, Some(dir)) => std::path::absolute(dir)?,
        (None, None) => Manager { user: args.modes.user }.units()?,
    };
    if let Some(binary) = &args.binary
        && !is_program(binary)
    {
        bail!(
            "--binary {}: expected an absolute path without quotes or backslashes",
            binary.escape_debug()
        );
    }
    let of_pod = args.pod_manifest.is_some() || !args.annotation.is_empty();
    let setup = setup(&args.modes, state, (args.binary.clone(), &seen_as))?;
    Ok((apps, Setup { layout: args.layout, of_pod, ..setup }))
}

fn single(args: &UnitsArgs) -> Result<AppUnits> {
    let (name, service) = match (&args.app, &args.service) {
        (Some(name), Some(service)) => (name.clone(), service.clone()),
        (Some(name), None) => (name.clone(), ServiceName::of(name)),
        (None, Some(service)) => (derived_name(service)?, service.clone()),
        (None, None) => bail!("--app is missing"),
    };
    let mut options = ManifestOptions::new(asked(&args.modes.clone().in_full()));
    for annotation in &args.annotation {
        if !options.take(annotation).map_err(|why| anyhow!(why))? {
            bail!("unknown annotation {}", annotation.name.escape_debug());
        }
    }
    app(name, service, options.settle().map_err(|why| anyhow!(why))?, &args.modes)
}

fn derived_name(service: &ServiceName) -> Result<AppName> {
    let why = || format!("cannot derive an app name from {service}: pass --app");
    service.app().with_context(why)
}

fn asked(args: &ModeArgs) -> [Option<StreamMode>; 3] {
    if args.tty { [Some(StreamMode::Tty); 3] } else { [args.stdin, args.stdout, args.stderr] }
}

fn app(
    name: AppName,
    service: ServiceName,
    (modes, kubernetes): (StreamModes, Option<String>),
    args: &ModeArgs,
) -> Result<AppUnits> {
    let mut variables = Vec::new();
    let mut logs: Vec<String> = Vec::new();
    let mut journal_choice = JournalChoice::default();
    let mut specs: Vec<&str> = args.log.iter().map(String::as_str).collect();
    if !specs.is_empty() && args.env.iter().any(|(name, value)| name == LOG && !value.is_empty()) {
        bail!("--log and --env {LOG} exclude each other");
    }
    for (spec, meaning) in [("none", JournalChoice::Never), ("journal", JournalChoice::Always)] {
        if specs.contains(&spec) {
            if journal_choice != JournalChoice::default() {
                bail!("--log none and --log journal exclude each other");
            }
            journal_choice = meaning;
            specs.retain(|other| *other != spec);
        }
    }
    if !specs.is_empty() {
        variables.push(variable(LOG, &specs.join(","))?);
    }
    for (name, value) in &joined(&args.env)? {
        if !value.is_empty() {
            variables.push(variable(name, &with_numbers(name, value)?)?);
        }
    }
    let files = variables.iter().filter(|variable| [LOG, RECORD].contains(&&*variable.name));
    let specs = files.flat_map(|variable| variable.value.split(','));
    logs.extend(specs.filter_map(|spec| Some(spec.split_once(':')?.1.to_owned())));
    refuse_both_rights(&variables)?;
    if args.user {
        refuse_others(&variables)?;
    }
    if let Some(path) = &kubernetes {
        let refuse =
            |why| anyhow!("cannot use {} as the kubelet's log: {why}", path.escape_debug());
        let log = LogPath::below(Path::new(KUBERNETES_LOGS), Path::new(path)).map_err(refuse)?;
        let log = log.path().into_os_string().into_string().ok().filter(|path| is_path(path));
        logs.push(log.ok_or_else(|| refuse("a unit cannot contain this path".to_owned()))?);
        let set = |(name, value): (&str, &str)| Variable {
            name: name.to_owned(),
            value: value.to_owned(),
            kinds: vec![UnitKind::Streams, UnitKind::Terminal],
            is_log: true,
        };
        variables.extend([("STAGE1_LOGMODE", "k8s-plain"), ("KUBERNETES_LOG_PATH", path)].map(set));
    }
    let (logs_to_file, journal) = (kubernetes.is_some(), JournalPlan::new(journal_choice));
    let (has_hooks, stop_line) = (true, None);
    let words = Vec::new();
    let app = AppUnits {
        name,
        service,
        words,
        modes,
        logs_to_file,
        variables,
        logs,
        journal,
        has_hooks,
        stop_line,
        sets_term: false,
    };
    app.muxes().with_context(|| format!("app {}: invalid name of its terminal", app.name))?;
    Ok(app)
}

fn setup(
    args: &ModeArgs,
    state: Option<&Path>,
    (binary, seen_as): (Option<String>, &Path),
) -> Result<Setup> {
    let text = |path: &Path| {
        let text = path.to_str().filter(|text| is_path(text)).map(str::to_owned);
        text.with_context(|| {
            format!(
                "\"{}\" cannot be used in a unit: expected an absolute path in UTF-8 without control \
                     characters",
                path.display().to_string().escape_debug()
            )
        })
    };
    Ok(Setup {
        layout: Layout::default(),
        state: state.map(text).transpose()?,
        binary,
        seen_as: text(seen_as)?,
        user: args.user,
        of_pod: false,
    })
}

/// Each option once: the values of a list together, and an empty one if that was the last. An empty
/// value removes the option of an earlier `enable`.
fn joined(env: &[(String, String)]) -> Result<Vec<(String, String)>> {
    let (mut all, options): (Vec<(String, String)>, _) = (Vec::new(), options::of_muxes());
    for (name, value) in env {
        let refuse = |why: &str| anyhow!("--env {}: {why}", name.escape_debug());
        let option = options.iter().find(|(its, ..)| its == name);
        if value.is_empty() && option.is_none() && !TAKEN.contains(&name.as_str()) {
            return Err(refuse(UNKNOWN));
        }
        let is_list = PEERS.iter().any(|(_, lists)| lists.contains(&name.as_str()))
            || option.is_some_and(|(.., option)| option.get_value_delimiter().is_some());
        match all.iter_mut().find(|(other, _)| other == name) {
            None => all.push((name.clone(), value.clone())),
            Some((_, values)) if is_list && !value.is_empty() && !values.is_empty() => {
                values.push(',');
                values.push_str(value);
            }
            Some(_) => return Err(refuse("it is given twice")),
        }
    }
    Ok(all)
}

/// Refuses other users for a service of one's own: the session's directory is closed to them.
fn refuse_others(variables: &[Variable]) -> Result<()> {
    let mut lists = PEERS.iter().flat_map(|(_, lists)| lists);
    if let Some(list) = lists.find(|list| variables.iter().any(|variable| variable.name == **list))
    {
        bail!(
            "{list} does not go with --user: no other user can enter the directory of your session, \
             where the mux is"
        );
    }
    Ok(())
}

/// Refuses users and groups that are to type and only to view: they could type.
fn refuse_both_rights(variables: &[Variable]) -> Result<()> {
    for (what, [types, views]) in PEERS {
        let list = |name: &str| {
            let value = variables.iter().find(|variable| variable.name == name)?.value.split(',');
            Some(value.collect::<BTreeSet<_>>())
        };
        let (Some(typists), Some(viewers)) = (list(types), list(views)) else { continue };
        if let Some(both) = typists.intersection(&viewers).next() {
            bail!(
                "{what} {both} is in {types} and in {views}, and could type; leave it out of one of \
                 them (an empty value removes an option)"
            );
        }
    }
    Ok(())
}

/// The value with the numbers of users or groups instead of their names, each once, where it is a
/// list of them.
fn with_numbers(name: &str, value: &str) -> Result<String> {
    let Some((what, _)) = PEERS.iter().find(|(_, lists)| lists.contains(&name)) else {
        return Ok(value.to_owned());
    };
    let number = |word| account::number(word, *what == "group").map(|number| number.to_string());
    let numbers: Result<Vec<String>> = value.split(',').map(number).collect();
    let mut numbers = numbers.with_context(|| format!("{name}={}", value.escape_debug()))?;
    let mut seen = BTreeSet::new();
    numbers.retain(|number| seen.insert(number.clone()));
    Ok(numbers.join(","))
}

/// How `enable` and `units` take an option of a mux that is typed as of the mux.
pub(super) fn variable_of(option: &str, command: &str) -> Option<String> {
    let long = option.strip_prefix("--").filter(|_| ["enable", "units"].contains(&command))?;
    let mut options = options::of_muxes().into_iter();
    let (variable, ..) = options.find(|(.., option)| option.get_long() == Some(long))?;
    Some(format!("--env {variable}=VALUE"))
}

/// An option of a mux, which its own command line has to take.
fn variable(name: &str, value: &str) -> Result<Variable> {
    let refuse = |why: &str| anyhow!("{}={}: {why}", name.escape_debug(), value.escape_debug());
    if TAKEN.contains(&name) {
        return Err(refuse("another option sets this variable"));
    }
    let mut kinds = Vec::new();
    for (_, kind, option) in options::of_muxes().into_iter().filter(|(its, ..)| its == name) {
        let Some(long) = option.get_long() else { continue };
        if matches!(option.get_action(), ArgAction::SetTrue) {
            if !["true", "false", "1", "0", "yes", "no", "on", "off"].contains(&value) {
                return Err(refuse("expected true or false"));
            }
        } else {
            let words = ["iottymux", kind.command(), "--app", "x", &format!("--{long}={value}")];
            let why = |e: clap::Error| {
                let line = diagnostics::one_line(&e);
                // The person has named the variable, and not the option.
                refuse(line.split_once(">': ").map_or(&*line, |(_, why)| why))
            };
            Cli::try_parse_from(words).map_err(why)?;
        }
        kinds.push(kind);
    }
    if kinds.is_empty() {
        return Err(refuse(UNKNOWN));
    }
    let is_log = name.starts_with("IOTTYMUX_LOG") && name != "IOTTYMUX_LOG_LEVEL";
    Ok(Variable { name: name.to_owned(), value: value.to_owned(), kinds, is_log })
}

/// Reads a manifest of at most [`MANIFEST`] bytes. Follows links.
fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(read_plain(&path.canonicalize()?, MANIFEST)?)
}
