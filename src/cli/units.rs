//! The command line of `enable`, `disable` and `units`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;
use crate::host::units::manifest::Annotation;
use crate::host::units::{Layout, StreamMode};
use crate::types::name::AppName;
use crate::types::name::NameError;
use crate::types::service::{self, ServiceName};

/// What `enable` and `disable` name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedServices {
    Service(ServiceName),
    /// The instances of a template, whose name ends with this `@`.
    Instances(String),
}

impl NamedServices {
    fn parse(text: &str) -> Result<Self, NameError> {
        if text.contains(['*', '?', '[']) {
            return Err(service::PATTERN);
        }
        match text.parse() {
            Err(service::TEMPLATE) => {
                let stem = text.strip_suffix(".service").unwrap_or(text);
                let instance: ServiceName = format!("{stem}0").parse()?;
                let template = instance.as_str().split_inclusive('@').next();
                Ok(Self::Instances(template.unwrap_or_default().to_owned()))
            }
            service => service.map(Self::Service),
        }
    }

    /// Whether it names this service.
    pub(crate) fn includes(&self, service: &ServiceName) -> bool {
        match self {
            Self::Service(one) => one == service,
            Self::Instances(template) => service.as_str().starts_with(template),
        }
    }
}

impl fmt::Display for NamedServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => service.fmt(f),
            Self::Instances(template) => f.write_str(template),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ModeArgs {
    /// Use one terminal for stdin, stdout and stderr; `enable`: default.
    #[arg(long, conflicts_with_all = ["streams", "stdin", "stdout", "stderr"])]
    pub(crate) tty: bool,
    /// Use a FIFO each for stdin, stdout and stderr.
    ///
    /// The same as --stdin stream --stdout stream --stderr stream.
    #[arg(long, conflicts_with_all = ["stdin", "stdout", "stderr"])]
    pub(crate) streams: bool,
    /// Mode of stdin: tty, stream, null, interactive [default: null].
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub(crate) stdin: Option<StreamMode>,
    /// Mode of stdout: tty, stream, log, null, interactive [default: log].
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub(crate) stdout: Option<StreamMode>,
    /// Mode of stderr, as of stdout [default: log].
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub(crate) stderr: Option<StreamMode>,
    /// Log of the mux, as in `stream --log`; or none.
    ///
    /// It gets the output of the streams in mode stream or tty. Repeat the option for several logs.
    /// `enable` adds `journal` if the output went to the journal before; `none` prevents that.
    #[arg(long, value_name = "SPEC", value_parser = values::log_spec_text)]
    pub(crate) log: Vec<String>,
    /// Option of the mux; IOTTYMUX_ALLOW_GID=games admits a group.
    ///
    /// Options are named by their variables, see iottymux.env(5). Repeat --env for several options; a
    /// list may also be repeated. `enable` keeps the option until an empty value (NAME=) removes it. To
    /// admit others, name users (IOTTYMUX_ALLOW_UID=anna,bob) or groups (IOTTYMUX_ALLOW_GID=games),
    /// or viewers (IOTTYMUX_VIEW_UID=, IOTTYMUX_VIEW_GID=). They are kept as numbers.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::assignment)]
    pub(crate) env: Vec<(String, String)>,
    /// Use your own service manager (systemctl --user).
    #[arg(long)]
    pub(crate) user: bool,
}

impl ModeArgs {
    /// With the modes that its abbreviation stands for.
    pub(super) fn in_full(mut self) -> Self {
        if std::mem::take(&mut self.streams) {
            [self.stdin, self.stdout, self.stderr] = [Some(StreamMode::Stream); 3];
        }
        self
    }
}

#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "these are independent options")]
pub(crate) struct EnableArgs {
    /// Names of services, as in systemctl.
    ///
    /// NAME@ names all instances of a template that systemd knows.
    #[arg(value_name = "SERVICE", required_unless_present = "list",
          value_parser = NamedServices::parse)]
    pub(crate) services: Vec<NamedServices>,
    /// App name [default: the service's name, without .service].
    ///
    /// A service that is enabled keeps the name of its app until `disable`.
    #[arg(long, value_name = "NAME")]
    pub(crate) app: Option<AppName>,
    /// Restart or start the service now; roll back if a restart fails.
    ///
    /// Without --now, clients can attach after the next start of the service. A service that has
    /// these streams already is not restarted; only its mux is, with the new options.
    #[arg(long)]
    pub(crate) now: bool,
    /// Enable even a service that the machine needs.
    ///
    /// Such as D-Bus, logind, getty and systemd-*. Also override streams that the service's own
    /// files redirect, and enable a service that seems not to read its console.
    #[arg(long)]
    pub(crate) force: bool,
    /// Enable until the next boot: write the units below /run.
    ///
    /// For systems whose /etc/systemd/system is read-only, such as NixOS. With --user, until your
    /// session ends.
    #[arg(long)]
    pub(crate) runtime: bool,
    /// Forget the options of an earlier `enable` of this service.
    ///
    /// Without --reset, options that are not named stay as they are.
    #[arg(long)]
    pub(crate) reset: bool,
    /// Line that makes the service save and end, typed at each stop.
    ///
    /// It is typed before everybody else's input, even if another client holds the input lock. A
    /// half-typed line is emptied first, unless LINE begins with a key, such as $'\x03stop'. systemd
    /// ends the service only after --stop-timeout. An empty LINE removes the option.
    #[arg(long, value_name = "LINE", value_parser = values::stop_line,
          allow_hyphen_values = true)]
    pub(crate) stop_line: Option<String>,
    /// Time to end after that line [default: 60s].
    ///
    /// systemd waits no longer than TimeoutStopSec= of the service, which is 90 s by default.
    #[arg(long, value_name = "DURATION", value_parser = values::some_duration)]
    pub(crate) stop_timeout: Option<Duration>,
    /// Show what is enabled, as `enable` commands.
    #[arg(long, conflicts_with_all = ["now", "reset"])]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) modes: ModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DisableArgs {
    /// Names of services, as in systemctl.
    ///
    /// NAME@ names all instances of a template that are enabled.
    #[arg(value_name = "SERVICE", required_unless_present = "all", value_parser = NamedServices::parse)]
    pub(crate) services: Vec<NamedServices>,
    /// Disable all enabled services.
    ///
    /// Do this before you remove iottymux.
    #[arg(long, conflicts_with = "services")]
    pub(crate) all: bool,
    /// Restart a running service now.
    ///
    /// Without --now, a running service is refused, and nothing changes.
    #[arg(long)]
    pub(crate) now: bool,
    /// Use your own service manager (systemctl --user).
    #[arg(long)]
    pub(crate) user: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsArgs {
    /// App name: letters, digits and :-_.\@.
    #[arg(long, value_name = "NAME", env = "IOTTYMUX_APP", conflicts_with = "pod_manifest",
          required_unless_present_any = ["pod_manifest", "service"])]
    pub(crate) app: Option<AppName>,
    /// Service of the app [default: NAME.service].
    #[arg(long, value_name = "SERVICE", conflicts_with = "pod_manifest")]
    pub(crate) service: Option<ServiceName>,
    /// Take apps, modes and logs from an appc pod manifest.
    ///
    /// Modes and logs come from rkt's annotations in the manifest.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tty", "streams", "stdin", "stdout", "stderr", "annotation"])]
    pub(crate) pod_manifest: Option<PathBuf>,
    /// A rkt annotation of the app, instead of mode options.
    ///
    /// For example coreos.com/rkt/stage2/stdout=stream. Repeat the option for several.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["tty", "streams", "stdin", "stdout", "stderr"])]
    pub(crate) annotation: Vec<Annotation>,
    #[command(flatten)]
    pub(crate) modes: ModeArgs,
    /// Stream layout.
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    pub(crate) layout: Layout,
    /// Directory to write the units to [default: print them].
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Path of that directory as systemd sees it [default: the same].
    ///
    /// For units of another root.
    #[arg(long, value_name = "DIR")]
    pub(crate) seen_as: Option<String>,
    /// Path of iottymux, if it is not in systemd's search path.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<String>,
    /// Remove the units, and the files that the mux left.
    ///
    /// For the app of --app, or for all apps of the manifest.
    #[arg(long, requires = "output")]
    pub(crate) remove: bool,
}
