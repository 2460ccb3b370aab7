//! The app that a person names: by its name, by its service or container, or not at all.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::slice;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::containers::{self, AmbiguousApp};
use crate::client::{each, follow, status};
use crate::host::enable;
use crate::keeper::OWN_NAME;
use crate::sys::calls;
use crate::sys::diagnostics;
use crate::sys::documents::container::Container;
use crate::sys::state::{AppDir, StateDir};
use crate::types::container_id;
use crate::types::escape;
use crate::types::exit::Exit;
use crate::types::name::{AppName, NameError};
use crate::types::service::ServiceName;

const PATTERN: NameError = NameError("expected one name, not a pattern");

/// The app of a command that people type.
#[derive(Debug, Args)]
pub(crate) struct NamedAppArg {
    /// App, or its service or container.
    ///
    /// The app game@eu may also be called game@eu.service, and a container by its id or by a name that
    /// `list` shows (see iottymux(1)). The beginning of an app's name suffices for list, logs, screen and
    /// status, and for attach at a terminal without --wait, if no other app begins so. A pattern such as
    /// 'game@*' stands for the apps that it fits: list and status show all of them, attach, logs and
    /// screen take the only one. Default: the only app; `attach` at a terminal lets you choose, `list`
    /// shows all, `control` needs a name.
    #[arg(value_name = "NAME", value_parser = NameOrPattern::parse)]
    name: Option<NameOrPattern>,
    /// Same as NAME, in full.
    #[arg(long, short_alias = 'u', alias = "unit", value_name = "NAME", env = "IOTTYMUX_APP",
          value_parser = NameOrPattern::parse)]
    app: Option<NameOrPattern>,
}

/// The app of a command that changes something.
#[derive(Debug, Args)]
pub(crate) struct ExactAppArg {
    /// App, or its service or container.
    #[arg(value_name = "NAME", value_parser = TypedName::parse)]
    name: TypedName,
}

impl ExactAppArg {
    /// The app with this name.
    pub(crate) fn resolve(&self, given: Option<PathBuf>, guess: MatchPolicy) -> Result<AppDir> {
        found(given, &self.name, guess)
    }
}

/// A name that may be that of an app, of its service, or of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypedName {
    text: String,
    app: AppName,
}

impl TypedName {
    fn parse(text: &str) -> Result<Self, NameError> {
        if is_pattern(text) {
            return Err(PATTERN);
        }
        container_id::app(text).map(|app| Self { text: text.to_owned(), app })
    }
}

/// A name, or a pattern of the shell for all names that it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameOrPattern {
    Name(TypedName),
    Pattern(String),
}

impl NameOrPattern {
    fn parse(text: &str) -> Result<Self, NameError> {
        if is_pattern(text) {
            return Ok(Self::Pattern(text.to_owned()));
        }
        TypedName::parse(text).map(Self::Name)
    }
}

/// No name of an app, a service or a container has these characters.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The app with this name, or the container that is called so.
fn named(given: Option<PathBuf>, name: &AppName, typed: &str) -> Result<AppDir> {
    let state = StateDir::with_app(given, name)?;
    Ok(state.app(&containers::app(&state, name, typed)?))
}

/// Waits until the app with this name runs, or a container that is called so.
pub(super) fn next(given: Option<PathBuf>, name: &str) -> Result<AppDir> {
    let typed = TypedName::parse(name)?;
    let state = StateDir::with_app(given, &typed.app)?;
    follow::next(&state, || containers::app(&state, &typed.app, name).ok())
}

impl NamedAppArg {
    /// The name, if one was given. NAME goes before the option and its variable.
    fn given(&self) -> Option<&NameOrPattern> {
        self.name.as_ref().or(self.app.as_ref())
    }

    /// Whether a name was given.
    pub(crate) fn is_given(&self) -> bool {
        self.given().is_some()
    }

    /// The app within which this process runs, if no other was given.
    pub(crate) fn own(&self, given: Option<PathBuf>) -> Result<Option<AppDir>> {
        let name = (!self.is_given()).then(|| env::var(OWN_NAME).ok()).flatten();
        name.map(|name| named(given, &name.parse()?, &name)).transpose()
    }

    /// The apps that a pattern fits, if one was given.
    pub(crate) fn fitting(&self, given: Option<&PathBuf>) -> Result<Option<Vec<AppDir>>> {
        match self.given() {
            Some(NameOrPattern::Pattern(pattern)) => {
                fitting(given, pattern, Fitting::default()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Fails if no name was given: what changes something does not guess.
    pub(crate) fn require(&self) -> Result<(), AmbiguousApp> {
        let missing = || AmbiguousApp("expected the name of an app".to_owned());
        self.given().map(drop).ok_or_else(missing)
    }

    /// The app with this name, or the only one that this user can see.
    pub(crate) fn resolve(&self, given: Option<PathBuf>, guess: MatchPolicy) -> Result<AppDir> {
        match self.given() {
            // A unit gives the whole name.
            Some(NameOrPattern::Name(name)) => {
                let guess = if self.name.is_some() { guess } else { MatchPolicy::Nothing };
                return found(given, name, guess);
            }
            Some(NameOrPattern::Pattern(pattern)) => return only(given.as_ref(), pattern, guess),
            None => {}
        }
        let apps = guess.among(all(given)?);
        if apps.len() > 1 && guess == MatchPolicy::PrefixOrPick && by_person() {
            return pick(&apps);
        }
        let none = || AmbiguousApp("expected the name of an app, and there is no app".to_owned());
        Ok(only_of(apps, "expected the name of an app:")?.ok_or_else(none)?)
    }
}

/// The apps of a command.
#[derive(Debug, Args)]
pub(crate) struct ExactAppsArg {
    /// Apps, their services or containers, or patterns such as 'game@*'.
    #[arg(value_name = "NAME", required = true, value_parser = NameOrPattern::parse)]
    names: Vec<NameOrPattern>,
}

impl ExactAppsArg {
    /// The apps with these names.
    pub(crate) fn resolve(
        &self,
        given: Option<&PathBuf>,
        guess: MatchPolicy,
    ) -> Result<Vec<AppDir>> {
        all_found(given, &self.names, (guess, Fitting::default()))
    }

    /// Does the same to each of these apps, also after one has failed. Returns the last failure.
    pub(crate) fn each(
        &self,
        given: Option<&PathBuf>,
        fitting: Fitting,
        does: impl Fn(&AppDir) -> Result<()>,
    ) -> Result<Exit> {
        let mut failure = None;
        let mut fails = |e| {
            if let Some(earlier) = failure.replace(e) {
                diagnostics::failed(&earlier, Exit::Failed);
            }
        };
        for name in &self.names {
            match all_found(given, slice::from_ref(name), (MatchPolicy::OfRun, fitting)) {
                Ok(apps) => apps.iter().filter_map(|app| does(app).err()).for_each(&mut fails),
                Err(e) => fails(e),
            }
        }
        failure.map_or(Ok(Exit::Done), Err)
    }
}

/// The apps of a command that only looks.
#[derive(Debug, Args)]
pub(crate) struct SomeAppsArg {
    /// Apps, their services or containers, or patterns such as 'game@*'.
    #[arg(value_name = "NAME", required_unless_present = "all", value_parser = NameOrPattern::parse)]
    names: Vec<NameOrPattern>,
    /// All apps that you may see.
    #[arg(short, long, conflicts_with = "names")]
    all: bool,
}

impl SomeAppsArg {
    /// The apps with these names, or all that run.
    pub(crate) fn resolve(
        &self,
        given: Option<&PathBuf>,
        guess: MatchPolicy,
    ) -> Result<Vec<AppDir>> {
        if self.all {
            let apps = all(given.cloned())?;
            return Ok(apps.into_iter().filter(AppDir::is_locked).collect());
        }
        all_found(given, &self.names, (guess, Fitting { running: true, of_run: false }))
    }
}

/// Which of the apps that a pattern fits are meant: all that `list` shows, or of these only some.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fitting {
    /// Those that run.
    pub(crate) running: bool,
    /// Those of `run`.
    pub(crate) of_run: bool,
}

impl Fitting {
    fn includes(self, app: &AppDir, is_service: bool) -> bool {
        (!self.running || app.is_locked()) && !(self.of_run && is_service)
    }
}

/// What may stand for the name of an app, besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatchPolicy {
    /// Nothing.
    Nothing,
    /// Nothing. A service that is not an app has another command.
    OfRun,
    /// A name of its service.
    Service,
    /// The same, or its beginning, if no other app begins so.
    Prefix,
    /// The same, or a person's choice.
    PrefixOrPick,
}

impl MatchPolicy {
    /// Those of these apps that are meant: whoever attaches wants none that has ended, if there are others.
    fn among(self, mut apps: Vec<AppDir>) -> Vec<AppDir> {
        if self == Self::PrefixOrPick && apps.iter().any(AppDir::is_locked) {
            apps.retain(AppDir::is_locked);
        }
        apps
    }
}

/// The apps that this user can see; of those with the same name the first one.
fn all(given: Option<PathBuf>) -> Result<Vec<AppDir>> {
    each::dirs(&StateDir::all(given)?, false)
}

/// The app that is meant by a name. Fails if that is a service which is not enabled.
fn found(given: Option<PathBuf>, typed: &TypedName, guess: MatchPolicy) -> Result<AppDir> {
    let dir = named(given.clone(), &typed.app, &typed.text)?;
    if guess == MatchPolicy::Nothing {
        return Ok(dir);
    }
    // Whoever types the whole name of a service means no command of `run` that is called so.
    let is_other = given.is_none()
        && typed.text.ends_with(".service")
        && status::report(&dir).is_ok_and(|report| report.service.is_none());
    if dir.dir().is_dir() && !is_other {
        return Ok(dir);
    }
    let is_default = given.is_none();
    let enabled = if is_default { enable::enabled_for_all() } else { BTreeMap::new() };
    let is_enabled = enabled.contains_key(&typed.app);
    if is_other {
        // The command may be this user's, and the service the system's.
        let of_system = StateDir::all(None)?.pop().map(|state| state.app(&typed.app));
        let is_it = |app: &AppDir| app.state() != dir.state() && (is_enabled || app.dir().is_dir());
        if let Some(app) = of_system.filter(is_it) {
            return Ok(app);
        }
    } else if is_enabled {
        return Ok(dir);
    }
    let service: Option<ServiceName> = typed.text.parse().ok().filter(|_| is_default);
    let has = |name: &str| enabled.iter().find(|(_, service)| service.as_str() == name);
    if let Some((app, _)) = service.as_ref().and_then(|service| has(service.as_str())) {
        return named(given, app, app.as_str());
    }
    // systemd also knows the other names of a service.
    if let Some((manager, id)) = service.as_ref().and_then(enable::existing) {
        if let Some((app, _)) = has(&id) {
            return named(given, app, app.as_str());
        }
        let name = escape::line(id.strip_suffix(".service").unwrap_or(&id));
        if guess == MatchPolicy::OfRun {
            bail!("{name}.service is not an app of iottymux; try systemctl{}", manager.option());
        }
        let sudo = if manager.may_be_changed() { "" } else { "sudo " };
        let user = manager.option();
        bail!("{name}.service is not attachable; try {sudo}iottymux enable{user} {name}");
    }
    if is_other {
        let name = &typed.app;
        bail!(
            "there is no service {name}.service; app {name} is a command: iottymux attach {name}"
        );
    }
    // Input of a script must not reach an app that it has not named.
    let may_complete =
        guess == MatchPolicy::Prefix || guess == MatchPolicy::PrefixOrPick && by_person();
    let nearest = if may_complete { nearest(given, &typed.app)? } else { None };
    if nearest.is_none() && typed.text.contains('/') {
        let (text, state) = (escape::line(&typed.text), dir.state().display());
        bail!("there is no container {text} in {state}; try iottymux list");
    }
    Ok(nearest.unwrap_or(dir))
}

/// The apps that are meant by these names and patterns, each once.
fn all_found(
    given: Option<&PathBuf>,
    typed: &[NameOrPattern],
    (guess, which): (MatchPolicy, Fitting),
) -> Result<Vec<AppDir>> {
    let mut apps = Vec::new();
    for typed in typed {
        match typed {
            NameOrPattern::Name(name) => apps.push(found(given.cloned(), name, guess)?),
            NameOrPattern::Pattern(pattern) => apps.extend(fitting(given, pattern, which)?),
        }
    }
    let mut seen = HashSet::new();
    apps.retain(|app| seen.insert(app.dir()));
    Ok(apps)
}

/// The apps that a pattern fits, by a name that `list` shows: theirs, or that of their service or
/// container. Fails if there is none.
fn fitting(given: Option<&PathBuf>, pattern: &str, which: Fitting) -> Result<Vec<AppDir>> {
    let enabled = if given.is_none() { enable::enabled_for_all() } else { BTreeMap::new() };
    let mut apps = all(given.cloned())?;
    for name in enabled.keys() {
        if let Err(at) = apps.binary_search_by(|app| app.name().cmp(name)) {
            apps.insert(at, StateDir::with_app(None, name)?.app(name));
        }
    }
    let is_meant = |app: &AppDir| {
        let container = Container::name_of(app);
        let service = enabled.get(app.name()).map(String::as_str);
        let short = service.and_then(|service| service.strip_suffix(".service"));
        let names = [Some(app.name().as_str()), service, short, container.as_deref()];
        names.into_iter().flatten().any(|name| calls::fits(pattern, name))
            && which.includes(app, service.is_some())
    };
    apps.retain(is_meant);
    if apps.is_empty() {
        bail!("no app for this command fits {}; try iottymux list", escape::line(pattern));
    }
    Ok(apps)
}

/// The only app that a pattern fits.
fn only(given: Option<&PathBuf>, pattern: &str, guess: MatchPolicy) -> Result<AppDir> {
    // Input of a script must not reach an app that it has not named.
    if guess < MatchPolicy::Prefix {
        return Err(AmbiguousApp(PATTERN.to_string()).into());
    }
    let apps = guess.among(fitting(given, pattern, Fitting::default())?);
    let only = only_of(apps, &format!("{} may be", escape::line(pattern)))?;
    only.context("an app that fits is there")
}

/// The only app that begins with this name.
fn nearest(given: Option<PathBuf>, name: &AppName) -> Result<Option<AppDir>> {
    let mut apps = all(given)?;
    apps.retain(|app| app.name().as_str().starts_with(name.as_str()));
    Ok(only_of(apps, &format!("{name} may be"))?)
}

/// The app, if there is one. `what` may be any of several.
fn only_of(mut apps: Vec<AppDir>, what: &str) -> Result<Option<AppDir>, AmbiguousApp> {
    if apps.len() > 1 {
        let names: Vec<&str> = apps.iter().map(|app| app.name().as_str()).collect();
        return Err(AmbiguousApp(format!("{what} one of {}", names.join(", "))));
    }
    Ok(apps.pop())
}

/// Whether somebody can be asked.
fn by_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks which of these apps is meant: by its number, or the beginning of its name.
fn pick(apps: &[AppDir]) -> Result<AppDir> {
    for (number, app) in (1..).zip(apps) {
        eprintln!("{number:3}  {}", app.name());
    }
    eprint!("attach to: ");
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read standard input")?;
    let answer = line.trim();
    let by_number =
        answer.parse::<usize>().ok().and_then(|number| apps.get(number.wrapping_sub(1)));
    let by_name = || {
        let mut found = apps.iter().filter(|app| app.name().as_str().starts_with(answer));
        let exact = apps.iter().find(|app| app.name().as_str() == answer);
        exact.or(found.next().filter(|_| found.next().is_none() && !answer.is_empty()))
    };
    let app = by_number.or_else(by_name);
    app.cloned().ok_or_else(|| AmbiguousApp("expected one of these apps".to_owned()).into())
}
