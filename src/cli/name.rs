//! The app that a person names: by its name, by its service or container, or not at all.

use std::env;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::values;
use crate::commands::find;
use crate::os::state::{AppDir, StateDir};
use crate::types::name::AppName;

/// The variable with the name of the app.
const VARIABLE: &str = "IOTTYMUX_APP";

/// Why it is not clear which app is meant: a usage error.
#[derive(Debug)]
pub(crate) struct WhichApp(String);

impl fmt::Display for WhichApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WhichApp {}

/// The app of a command that people type.
#[derive(Debug, Args)]
pub(crate) struct NamedAppArg {
    /// App, or its service or container.
    ///
    /// The app game-eu may also be called game@eu or game@eu.service. A container may be called by
    /// its id, or by NAMESPACE/ID, as `list` shows it. Default: the only app; for
    /// `list` all apps; for `control` none.
    #[arg(value_name = "NAME", value_parser = values::app)]
    name: Option<AppName>,
    /// Same as NAME.
    #[arg(long, value_name = "NAME", env = VARIABLE, value_parser = values::app)]
    app: Option<AppName>,
}

impl NamedAppArg {
    /// The name, if one was given. What is typed goes before the variable.
    pub(crate) fn given(&self) -> Result<Option<&AppName>, WhichApp> {
        if let (Some(name), Some(app)) = (&self.name, &self.app)
            && name != app
            && env::var(VARIABLE).ok().and_then(|text| values::app(&text).ok()).as_ref()
                != Some(app)
        {
            return Err(WhichApp(format!("expected one app, got {name} and --app {app}")));
        }
        Ok(self.name.as_ref().or(self.app.as_ref()))
    }

    /// Fails if no name was given: what changes something does not guess.
    pub(crate) fn require(&self) -> Result<(), WhichApp> {
        let missing = || WhichApp("expected the name of an app".to_owned());
        self.given()?.map(drop).ok_or_else(missing)
    }

    /// The app with this name, or the only one that this user can see.
    pub(crate) fn resolve(&self, given: Option<PathBuf>) -> Result<AppDir> {
        if let Some(name) = self.given()? {
            let state = StateDir::with_app(given, name)?;
            return Ok(state.app(&find::container(&state, name)));
        }
        let mut apps = Vec::new();
        for state in StateDir::all(given)? {
            apps.extend(state.apps()?.iter().map(|name| state.app(name)));
        }
        apps.dedup_by(|later, app| later.name() == app.name());
        let names: Vec<&str> = apps.iter().map(|app| app.name().as_str()).collect();
        let why = match &apps[..] {
            [app] => return Ok(app.clone()),
            [] => "expected the name of an app, and there is no app".to_owned(),
            _ => format!("expected the name of an app: one of {}", names.join(", ")),
        };
        Err(WhichApp(why).into())
    }
}
