//! From the words to the command, or to what is wrong with them.

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::thread::{self, Builder};

use anyhow::anyhow;
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches};

use super::{
    Cli, Command, ContainerArgs, ControlArgs, GLOBAL, GlobalArgs, StreamArgs, TtyArgs, containerd,
    examples, habits, options, resolve_units, salvage,
};
use crate::mux;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::own_process;
use crate::sys::{calls, diagnostics};
use crate::types::exit::Exit;

/// What was typed as we spell it, and the mistakes that were left out of it, or the exit code of what
/// cannot be read.
pub(super) fn read(arguments: &[OsString]) -> Result<(Cli, Vec<String>), Exit> {
    if arguments.is_empty() {
        // Clap would take a variable for an argument.
        eprint!("{}", command(&["-h".into()]).render_help());
        return Err(Exit::Usage);
    }
    let error = match parse(arguments) {
        Ok(cli) => return Ok((cli, Vec::new())),
        Err(_) if containerd::is_started_by_containerd() => {
            return Err(containerd::main(arguments));
        }
        Err(e) => e,
    };
    if !command_in(arguments).is_some_and(|name| salvage::is_mux(&name.into())) {
        return Err(usage(&error, arguments));
    }
    match salvage::read(&command(arguments), arguments) {
        Some(valid) if own_process::has_descriptors() => Ok(valid),
        valid => {
            let app = valid.and_then(|(cli, _)| app_of(&cli));
            Err(of_mux(usage(&error, arguments), app.as_ref()))
        }
    }
}

/// Parses in a thread. The allocator keeps thousands of free pieces for each thread until its end,
/// and those of parsing would scatter the memory of a mux over many pages.
fn parse(arguments: &[OsString]) -> clap::error::Result<Cli> {
    let read = |command: clap::Command| {
        Cli::from_arg_matches(&command.try_get_matches_from(std::env::args_os())?)
    };
    let parse = || {
        // An error is told by the whole command line.
        let read_soon = command_of_unit(arguments).and_then(|command| read(command).ok());
        read_soon.map_or_else(|| read(command(arguments)), Ok)
    };
    calls::share_heap();
    thread::scope(|scope| match Builder::new().spawn_scoped(scope, parse) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        // A service may have as many as it is allowed, and its hooks have to work.
        Err(_) => parse(),
    })
}

/// The exit code of a usage error of the mux of an app. A mux that was given a running app is always
/// started again; without one the app gets no ends, so that it fails, too.
fn of_mux(exit: Exit, app: Option<&AppDir>) -> Exit {
    match exit {
        Exit::Usage if own_process::has_descriptors() => Exit::Failed,
        Exit::Usage if own_process::is_of_unit() => {
            app.inspect(|dir| mux::give_up(dir));
            Exit::Config
        }
        exit => exit,
    }
}

/// The app of a mux of a unit.
fn app_of(cli: &Cli) -> Option<AppDir> {
    let name = match &cli.command {
        Command::Stream(args) => &args.app.name,
        Command::Tty(args) => &args.app.name,
        _ => return None,
    };
    Some(StateDir::resolve(cli.global.state_dir.clone()).ok()?.app(name))
}

/// Reports an invalid command line, what to try instead, and the help of the typed command.
fn usage(error: &clap::Error, arguments: &[OsString]) -> Exit {
    let is_command = error.kind() != ErrorKind::InvalidSubcommand;
    let command = command_in(arguments).filter(|_| is_command);
    let word = habits::word(error);
    let typed: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let way = word.and_then(|word| habits::way(word, &typed, command.as_deref()));
    let way = way.map(str::to_owned);
    let way = way.or_else(|| resolve_units::variable_of(word?, command.as_deref()?));
    let variable = word
        .and_then(|option| Some((option.to_owned(), variable_behind(option, arguments, &typed)?)));
    diagnostics::usage(error, variable, way.as_deref(), &help_of(command.as_deref()))
}

/// The variable that set an option which was not typed.
fn variable_behind(option: &str, arguments: &[OsString], typed: &[&str]) -> Option<String> {
    let cli = Cli::command();
    let long = option.strip_prefix("--")?.split([' ', '=', '[']).next()?;
    let mut options = options::of(&cli, options::command_in(&cli, arguments));
    let arg = options.find(|arg| arg.get_long() == Some(long))?;
    let is_typed = |word: &&str| {
        let short = arg.get_short().is_some_and(|short| word.starts_with(&format!("-{short}")));
        short || word.strip_prefix("--").is_some_and(|word| word.starts_with(long))
    };
    let (variable, _) = options::set_here(arg).filter(|_| !typed.iter().any(is_typed))?;
    variable.to_str().map(str::to_owned)
}

/// Reports arguments that do not fit together, or do not fit this machine.
pub(super) fn invalid(error: &anyhow::Error) -> Exit {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let help = help_of(command_in(&arguments).as_deref());
    diagnostics::failed(&anyhow!("{error:#}; try {help}"), Exit::Usage)
}

/// The help command for a command, or for the program.
fn help_of(command: Option<&str>) -> String {
    command.map_or("iottymux --help".to_owned(), |name| format!("iottymux {name} --help"))
}

/// The name of the command that was typed, also for an alias.
fn command_in(arguments: &[OsString]) -> Option<String> {
    options::command_in(&Cli::command(), arguments).map(|command| command.get_name().to_owned())
}

/// The commands and options. `-h` fits a screen: it has one line for each option, without its
/// variable, and leaves out the options of groups that few need.
fn command(arguments: &[OsString]) -> clap::Command {
    fn short(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|option| {
            let is_rare = option.get_help_heading().is_some_and(|title| title != GLOBAL);
            let is_rare = is_rare || option.is_hide_short_help_set();
            option.hide_env(true).hide_short_help(is_rare)
        });
        command.mut_subcommands(short)
    }
    let cli = Cli::command();
    let has_command = options::command_in(&cli, arguments).is_some();
    // Each start comes here, and only the program's own help needs the groups.
    let command = if has_command { brief(cli) } else { examples::grouped(cli) };
    if arguments.iter().any(|word| word == "-h") { short(command) } else { command }
}

/// Explains the options of all commands in a line each, since the help of the program has the rest, and those
/// of groups in the help of `run`: iottymux.env(5) has the rest.
fn brief(command: clap::Command) -> clap::Command {
    let in_a_line = |option: clap::Arg, is_it: bool| {
        if is_it { option.long_help(Resettable::Reset).hide_env(true) } else { option }
    };
    let command = command.mut_args(|option| {
        let is_global = option.get_help_heading() == Some(GLOBAL);
        in_a_line(option, is_global)
    });
    command.mut_subcommand("run", |run| {
        run.mut_args(|option| {
            let is_in_group = option.get_help_heading().is_some() && option.get_id() != "log";
            in_a_line(option, is_in_group)
        })
    })
}

/// Only the command of this command line, if units or keepers start it: most of the time of such a
/// process would go into the others.
fn command_of_unit(arguments: &[OsString]) -> Option<clap::Command> {
    let options_of = |name: &str| -> Option<fn(clap::Command) -> clap::Command> {
        match name {
            "stream" => Some(StreamArgs::augment_args),
            "tty" => Some(TtyArgs::augment_args),
            "container" => Some(ContainerArgs::augment_args),
            "control" => Some(ControlArgs::augment_args),
            _ => None,
        }
    };
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let (name, add_options) = words.find_map(|word| Some((word, options_of(word)?)))?;
    let program = GlobalArgs::augment_args(clap::Command::new("iottymux"));
    Some(program.subcommand(add_options(clap::Command::new(name.to_owned()))))
}
