//! What `enable` was asked for a service, as its drop-in has it: an earlier command, whose options
//! hold until they are named again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use super::{Cli, Command, EnableArgs, ModeArgs, NamedServices, remote};
use crate::host::enable::{self, EnabledService};
use crate::host::units::StreamMode;
use crate::sys::print::print;

/// The variable that `--log` sets.
pub(super) const LOG: &str = "IOTTYMUX_LOG";

/// The words of `enable` that make a service as it is asked now.
pub(super) fn words(args: &EnableArgs) -> Vec<String> {
    let modes = &args.modes;
    let mut words: Vec<String> = args.services.iter().map(ToString::to_string).collect();
    let mut option = |name: &str, value: Option<String>| {
        words.push(format!("--{name}"));
        words.extend(value);
    };
    args.app.iter().for_each(|app| option("app", Some(app.to_string())));
    if modes.tty {
        option("tty", None);
    }
    let streams = [("stdin", modes.stdin), ("stdout", modes.stdout), ("stderr", modes.stderr)];
    for (name, mode) in streams {
        if let Some(mode) = mode.and_then(|mode| mode.to_possible_value()) {
            option(name, Some(mode.get_name().to_owned()));
        }
    }
    modes.log.iter().for_each(|log| option("log", Some(log.clone())));
    modes.env.iter().for_each(|(name, value)| option("env", Some(format!("{name}={value}"))));
    if modes.user {
        option("user", None);
    }
    if args.runtime {
        option("runtime", None);
    }
    // In one word: the line may begin with a dash.
    words.extend(args.stop_line.iter().map(|line| format!("--stop-line={line}")));
    let seconds = |time: &Duration| format!("--stop-timeout={}", time.as_secs_f64());
    words.extend(args.stop_timeout.iter().map(seconds));
    words
}

/// Adds the options of an earlier command for this service, unless they are named now or all are
/// reset. Returns what a person is told of that.
pub(super) fn add_earlier(args: &mut EnableArgs) -> Vec<String> {
    let [NamedServices::Service(service)] = &args.services[..] else { return Vec::new() };
    let earlier = enable::of_service(args.modes.user, service).and_then(|found| parse(&found));
    let Some(earlier) = earlier else { return Vec::new() };
    let was = remote::line(&words(&earlier));
    if !args.reset {
        keep(args, earlier);
    }
    let now = remote::line(&words(args));
    vec![format!("before  iottymux enable {was}\nnow     iottymux enable {now}\n")]
}

/// The command that enabled a service, if this program can read it.
fn parse(found: &EnabledService) -> Option<EnableArgs> {
    let words = ["iottymux", "enable"].into_iter().chain(found.words.iter().map(String::as_str));
    match Cli::try_parse_from(words).ok()?.command {
        Command::Enable(mut args) => {
            // The name may also be that of the service.
            args.app =
                Some(found.app.clone()).filter(|app| found.service.app().as_ref() != Ok(app));
            Some(args)
        }
        _ => None,
    }
}

fn keep(args: &mut EnableArgs, earlier: EnableArgs) {
    let EnableArgs { app, runtime, stop_line, stop_timeout, modes: mut before, .. } = earlier;
    args.runtime |= runtime;
    args.app = args.app.take().or(app);
    args.stop_line = args.stop_line.take().or(stop_line).filter(|line| !line.is_empty());
    args.stop_timeout = args.stop_timeout.or(stop_timeout.filter(|_| args.stop_line.is_some()));
    let ModeArgs { tty, stdin, stdout, stderr, log, env, .. } = &mut args.modes;
    let names_stream = stdin.is_some() || stdout.is_some() || stderr.is_some();
    if names_stream && std::mem::take(&mut before.tty) {
        [before.stdin, before.stdout, before.stderr] = [Some(StreamMode::Tty); 3];
    }
    *tty |= before.tty;
    if !*tty {
        *stdin = stdin.or(before.stdin);
        *stdout = stdout.or(before.stdout);
        *stderr = stderr.or(before.stderr);
    }
    let mut all: BTreeMap<String, String> = before.env.into_iter().collect();
    if !log.is_empty() {
        all.remove(LOG);
    } else if env.iter().all(|(name, _)| name != LOG) {
        *log = before.log;
    }
    all.extend(std::mem::take(env));
    *env = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
}

/// Prints the commands that enabled the services, or those that are named.
pub(super) fn show(args: &EnableArgs) -> Result<()> {
    let mut found = enable::enabled_by(args.modes.user)?;
    for target in &args.services {
        if !found.iter().any(|found| target.includes(&found.service)) {
            bail!("{target} is not enabled");
        }
    }
    let is_asked = |found: &EnabledService| {
        args.services.is_empty() || args.services.iter().any(|one| one.includes(&found.service))
    };
    found.retain(is_asked);
    let line = |found: &EnabledService| match &found.words[..] {
        [] => format!("# {} is app {}, by iottymux units\n", found.service, found.app),
        words => format!("iottymux enable {}\n", remote::line(words)),
    };
    print(&found.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_is_enabled_keeps_the_name_of_its_app() {
        for (app, kept) in [("game-eu", Some("game-eu")), ("game@eu", None)] {
            let found = EnabledService {
                app: app.parse().unwrap(),
                service: "game@eu".parse().unwrap(),
                words: ["game@eu.service", "--tty"].map(String::from).to_vec(),
            };
            let name = parse(&found).unwrap().app.map(|name| name.to_string());
            assert_eq!(name.as_deref(), kept);
        }
    }

    fn args(line: &str) -> EnableArgs {
        let words = ["iottymux", "enable"].into_iter().chain(line.split(' '));
        match Cli::try_parse_from(words).unwrap().command {
            Command::Enable(args) => EnableArgs { modes: args.modes.clone().in_full(), ..args },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_hold_until_they_are_named_again() {
        for (earlier, now, all) in [
            ("a --tty --env X=1", "a --env Y=2", "a --tty --env X=1 --env Y=2"),
            ("a --env X=1 --env Y=2", "a --env X=", "a --env Y=2"),
            ("a --log raw:/a", "a", "a --log raw:/a"),
            ("a --log raw:/a", "a --log raw:/b", "a --log raw:/b"),
            // These are the same option.
            ("a --env IOTTYMUX_LOG=raw:/a", "a --log raw:/b", "a --log raw:/b"),
            ("a --log raw:/a", "a --env IOTTYMUX_LOG=raw:/b", "a --env IOTTYMUX_LOG=raw:/b"),
            ("a --stop-line=-s", "a --stop-timeout 5", "a --stop-line=-s --stop-timeout=5"),
            ("a --stop-line=s --stop-timeout=5", "a --stop-line=", "a"),
            ("a --runtime", "a", "a --runtime"),
            ("a --streams", "a --stdin null", "a --stdin null --stdout stream --stderr stream"),
            ("a --tty", "a --streams", "a --streams"),
            ("a --tty", "a --stdout log", "a --stdin tty --stdout log --stderr tty"),
            ("a --streams", "a --tty", "a --tty"),
        ] {
            let mut now = args(now);
            keep(&mut now, args(earlier));
            assert_eq!(words(&now), words(&args(all)), "{earlier}");
        }
    }
}
