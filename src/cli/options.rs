//! The options, as the commands have them: which there are, and by which variables they are set.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::host::units::UnitKind;

/// Variables that `units` sets itself, so that `--env` cannot.
pub(super) const TAKEN: [&str; 5] = [
    "IOTTYMUX_APP",
    "IOTTYMUX_SERVICE",
    "IOTTYMUX_STREAMS",
    "IOTTYMUX_STATE_DIR",
    "IOTTYMUX_FOREIGN_FIFOS",
];

/// The command that these words name, also by an alias.
pub(super) fn command_in<'a>(program: &'a Command, words: &[OsString]) -> Option<&'a Command> {
    words.iter().find_map(|word| program.find_subcommand(word))
}

/// The options of all commands, and those of this one.
pub(super) fn of<'a>(
    program: &'a Command,
    command: Option<&'a Command>,
) -> impl Iterator<Item = &'a Arg> {
    program.get_arguments().chain(command.into_iter().flat_map(Command::get_arguments))
}

/// The variable that an option has, and its value, if it is set here.
pub(super) fn set_here(option: &Arg) -> Option<(&OsStr, OsString)> {
    let name = option.get_env()?;
    Some((name, env::var_os(name)?))
}

/// The options of muxes that `--env` sets, by their variables; those of both kinds twice.
pub(super) fn of_muxes() -> Vec<(String, UnitKind, Arg)> {
    let mut program = Cli::command();
    program.build();
    let of_kind = |kind: UnitKind| {
        let options = program.find_subcommand(kind.command()).map(Command::get_arguments);
        options.into_iter().flatten().filter_map(move |option| {
            let name = option.get_env()?.to_str().filter(|name| !TAKEN.contains(name))?;
            Some((name.to_owned(), kind, option.clone()))
        })
    };
    [UnitKind::Streams, UnitKind::Terminal].into_iter().flat_map(of_kind).collect()
}

/// The variables of this process that look like ours, but set no option of any command.
pub(super) fn unknown_variables() -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_rare = |name: &String| name.starts_with("IOTTYMUX_") && !USUAL.contains(&name.as_str());
    let mut names: Vec<String> = names.filter(is_rare).collect();
    // The commands are not built for nothing.
    if !names.is_empty() {
        let program = Cli::command();
        let options = program.get_subcommands().chain([&program]).flat_map(Command::get_arguments);
        let known: Vec<_> = options.filter_map(Arg::get_env).collect();
        names.retain(|name| !known.contains(&OsStr::new(name)));
    }
    names
}

/// Variables that most muxes of services have.
const USUAL: [&str; 5] = [
    "IOTTYMUX_SERVICE",
    "IOTTYMUX_STREAMS",
    "IOTTYMUX_STATE_DIR",
    "IOTTYMUX_LOG",
    "IOTTYMUX_SYSLOG_IDENTIFIER",
];
