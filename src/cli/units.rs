//! The command line of `enable`, `disable` and `units`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values;
use crate::types::name::AppName;
use crate::types::service::ServiceName;
use crate::units::StreamMode;
use crate::units::manifest::Annotation;

/// What is behind the help of `enable`.
pub(crate) const ENABLE_EXAMPLES: &str = "\
Examples:
  iottymux enable game.service --tty --now         a terminal for its console, at once
  iottymux enable game@eu.service --tty            an instance; it is attached as game-eu
  iottymux enable bot --stdin stream --stdout stream --stderr log
  iottymux enable web --stdout stream --stderr stream --log cri:/var/log/iottymux/web/log
  iottymux disable game.service                    when it stops, or at once with --now
  iottymux disable --all --now                     before iottymux is removed";

/// What is behind the help of `units`.
pub(crate) const UNITS_EXAMPLES: &str = "\
Examples:
  iottymux units --app demo --stdin stream --stdout stream      shows what would be written
  iottymux units --app demo --tty --output /etc/systemd/system
  iottymux units --app demo --remove --output /etc/systemd/system
  iottymux units --pod-manifest pod --state-dir /rkt/iottymux --binary /iottymux \\
      --output rootfs/etc/systemd/system --seen-as /etc/systemd/system

Modes: stream and tty can be attached, log is the journal, null is nothing, and interactive is the
terminal that the machine or pod was started from. Without a mode stdin is null, the others log.";

/// What the streams of a service are to be.
#[derive(Debug, Args)]
pub(crate) struct ModeArgs {
    /// Give the service one terminal for stdin, stdout and stderr.
    #[arg(long, conflicts_with_all = ["stdin", "stdout", "stderr"])]
    pub(crate) tty: bool,
    /// Mode of stdin: tty, stream, null or interactive [default: null].
    #[arg(long, value_name = "MODE")]
    pub(crate) stdin: Option<StreamMode>,
    /// Mode of stdout: tty, stream, log, null or interactive [default: log].
    #[arg(long, value_name = "MODE")]
    pub(crate) stdout: Option<StreamMode>,
    /// Mode of stderr, as of stdout [default: log].
    #[arg(long, value_name = "MODE")]
    pub(crate) stderr: Option<StreamMode>,
    /// How the service gets its streams: direct, or sockets as rkt has it, where systemd itself loses
    /// output.
    #[arg(long, value_name = "LAYOUT", value_enum, default_value = "direct")]
    pub(crate) layout: LayoutArg,
    /// Log the output that can be attached: cri:PATH, json-file:PATH, raw:PATH, journal or journald; may be
    /// repeated. `enable` adds `journal` where the output went to the journal before; `none` turns that off.
    #[arg(long, value_name = "SPEC", value_parser = values::log_spec_text)]
    pub(crate) log: Vec<String>,
    /// Set another option of the mux by its variable, as IOTTYMUX_BACKLOG=1M; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::assignment)]
    pub(crate) env: Vec<(String, String)>,
    /// Use a service of `systemctl --user`.
    #[arg(long)]
    pub(crate) user: bool,
}

/// How a service gets its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// By path, from the mux.
    Direct,
    /// From socket units.
    Sockets,
}

/// Arguments of `enable`.
#[derive(Debug, Args)]
pub(crate) struct EnableArgs {
    /// The service, as systemctl takes it.
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// Name for `attach --app` [default: the service's name, with - for characters other than a-z, 0-9
    /// and -].
    #[arg(long, value_name = "NAME")]
    pub(crate) app: Option<AppName>,
    /// Restart the service now, or start it if it does not run; without --now it can be attached after its
    /// next start. If a running service fails with its new streams, everything is rolled back.
    #[arg(long)]
    pub(crate) now: bool,
    /// Enable even a service that the machine needs (D-Bus, logind, getty, systemd-*), and override
    /// lines of the service's own files that lead its streams elsewhere.
    #[arg(long)]
    pub(crate) force: bool,
    /// What its streams are to be.
    #[command(flatten)]
    pub(crate) modes: ModeArgs,
}

/// Arguments of `disable`.
#[derive(Debug, Args)]
pub(crate) struct DisableArgs {
    /// The service, as systemctl takes it.
    #[arg(value_name = "SERVICE", required_unless_present = "all")]
    pub(crate) service: Option<ServiceName>,
    /// Disable all enabled services, for example before you remove the program.
    #[arg(long, conflicts_with_all = ["service", "later"])]
    pub(crate) all: bool,
    /// Restart the service now if it runs; without --now it keeps its streams until it stops.
    #[arg(long)]
    pub(crate) now: bool,
    /// Use a service of `systemctl --user`.
    #[arg(long)]
    pub(crate) user: bool,
    /// What the unit does that waits until the service stops.
    #[arg(long, hide = true, conflicts_with = "now", value_enum)]
    pub(crate) later: Option<DeferredStep>,
}

/// The two commands of the unit that disables a service when that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeferredStep {
    /// Wait until it has stopped.
    Wait,
    /// Disable it if it has.
    Finish,
}

/// Arguments of `units`.
#[derive(Debug, Args)]
pub(crate) struct UnitsArgs {
    /// Name of the app.
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_APP", conflicts_with = "pod_manifest",
          required_unless_present_any = ["pod_manifest", "service"])]
    pub(crate) app: Option<AppName>,
    /// The service that is the app [default: NAME.service].
    #[arg(long, value_name = "SERVICE", conflicts_with = "pod_manifest")]
    pub(crate) service: Option<ServiceName>,
    /// All apps of this appc pod manifest, with the modes and the log that rkt's annotations say.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tty", "stdin", "stdout", "stderr", "annotation"])]
    pub(crate) pod_manifest: Option<PathBuf>,
    /// What rkt's annotation of this name says of the app, instead of --stdin and the like
    /// (coreos.com/rkt/stage2/stdout=stream); as often as you like.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["tty", "stdin", "stdout", "stderr"])]
    pub(crate) annotation: Vec<Annotation>,
    /// What the streams are to be.
    #[command(flatten)]
    pub(crate) modes: ModeArgs,
    /// Where units are written to; they are only shown unless given.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Where systemd will see that directory, if it is for another root [default: the same path].
    #[arg(long, value_name = "DIR")]
    pub(crate) seen_as: Option<String>,
    /// The program, if systemd does not find `iottymux` by its name.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<String>,
    /// Take away what was written for the app, or for all apps of the manifest, and what its mux has
    /// left.
    #[arg(long, requires = "output")]
    pub(crate) remove: bool,
}
