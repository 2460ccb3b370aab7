//! The arguments of the commands that type into an app, or end it.

use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;

use super::name::{ExactAppArg, ExactAppsArg};
use super::values;

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) app: ExactAppArg,
    /// The line; several words are joined by blanks.
    #[arg(required = true, trailing_var_arg = true, value_name = "LINE")]
    pub(crate) line: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Time until SIGKILL, in seconds.
    #[arg(short, long, value_name = "SECONDS", default_value = "10",
          value_parser = values::seconds)]
    pub(crate) time: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Signal: a name such as HUP, or a number.
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL",
          value_parser = values::signal)]
    pub(crate) signal: Signal,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) apps: ExactAppsArg,
    /// Kill an app first, if it is running.
    #[arg(short, long)]
    pub(crate) force: bool,
}
