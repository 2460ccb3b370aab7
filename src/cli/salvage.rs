//! The options of a mux that is given a running app: an option that cannot be read is left out, and
//! the others count. A mux that failed instead would let go of the app.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches, Id};

use super::{Cli, options};
use crate::core::logfmt::path::LogPath;
use crate::core::logfmt::spec::LogSpec;
use crate::sys::diagnostics;

/// The commands that run a mux of a unit or of a container.
const MUXES: [&str; 3] = ["stream", "tty", "container"];
/// The option that the keeper of a container needs as well.
const STATE_DIR: &str = "--state-dir";
/// The name for clap of the option that every mux needs.
const APP_ID: &str = "name";

/// Whether this command runs a mux of a unit or of a container.
pub(crate) fn is_mux(command: &OsString) -> bool {
    MUXES.iter().any(|mux| command == mux)
}

/// The state directory that options or the environment name.
pub(crate) fn state_dir(options: &[OsString]) -> Option<PathBuf> {
    let named = options_in(options).find(|words| name(words) == STATE_DIR);
    let value = named.and_then(|words| {
        let text = words.first()?.to_str()?.split_once('=')?.1;
        Some(PathBuf::from(text))
    });
    value.or_else(|| env::var_os("IOTTYMUX_STATE_DIR").map(PathBuf::from))
}

/// The files that the mux of a container with these arguments writes; `None` if they do not describe
/// one.
pub(crate) fn log_files(arguments: &[OsString]) -> Option<Vec<LogPath>> {
    let (cli, _) = read(&Cli::command(), arguments)?;
    let super::Command::Container(args) = cli.command else { return None };
    let specs = args.mux.logs.log.iter().chain(&args.terminal.record);
    Some(specs.filter_map(LogSpec::file).cloned().collect())
}

/// A part of the arguments that can be left out.
enum OptionPart {
    /// An option with its value.
    Words(Vec<OsString>),
    /// The variable of an option.
    Variable(Id),
}

/// The valid part of a command line and its variables, with the errors in the rest; `None` if it
/// does not describe a mux.
pub(crate) fn read(command: &Command, arguments: &[OsString]) -> Option<(Cli, Vec<String>)> {
    let at = arguments.iter().position(is_mux)?;
    let mux = command.find_subcommand(&arguments[at])?;
    let options = || options::of(command, Some(mux));
    let (before, after) = (&arguments[..at], &arguments[at + 1..]);
    let mut words = vec![command.get_name().into(), arguments[at].clone()];
    let mut variables = vec![Id::from(APP_ID)];
    let needed: Vec<String> =
        options().filter(|option| option.is_required_set()).filter_map(long).collect();
    let (given, others): (Vec<_>, Vec<_>) = options_in(before)
        .chain(options_in(after))
        .partition(|option| needed.contains(&name(option)));
    let first = |needed: &String| given.iter().find(|words| name(words) == *needed);
    words.extend(needed.iter().filter_map(first).flatten().cloned());
    let mut cli = parse(command, &words, &variables).ok()?;
    let mut wrong = Vec::new();
    let set = options().filter(|option| {
        let is_given = others.iter().any(|words| long(option).is_some_and(|l| l == name(words)));
        !is_given && options::set_here(option).is_some()
    });
    let parts = set.flat_map(variable_parts).chain(others.iter().flat_map(|words| {
        let option = options().find(|option| long(option).is_some_and(|l| l == name(words)));
        word_parts(option, words)
    }));
    for part in parts {
        let (words_before, variables_before) = (words.len(), variables.len());
        match part {
            OptionPart::Words(more) => words.extend(more),
            OptionPart::Variable(id) => variables.push(id),
        }
        match parse(command, &words, &variables) {
            Ok(more) => cli = more,
            Err(e) => {
                words.truncate(words_before);
                variables.truncate(variables_before);
                wrong.push(complaint(&e));
            }
        }
    }
    Some((cli, wrong))
}

/// What is wrong with a part.
fn complaint(error: &clap::Error) -> String {
    match error.kind() {
        // Its text is the help.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            "a mux that serves an app prints neither help nor a version".to_owned()
        }
        _ => diagnostics::one_line(error),
    }
}

/// Reads these words, and of the variables only these.
fn parse(command: &Command, words: &[OsString], variables: &[Id]) -> Result<Cli, clap::Error> {
    fn with_variables(command: Command, variables: &[Id]) -> Command {
        let hide = |option: Arg| {
            let is_read = variables.contains(option.get_id());
            if is_read { option } else { option.env(None::<&str>) }
        };
        command.mut_args(hide).mut_subcommands(|command| with_variables(command, variables))
    }
    let command = with_variables(command.clone(), variables);
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The options of a command line, each with the word behind it that may be its value.
fn options_in(words: &[OsString]) -> impl Iterator<Item = Vec<OsString>> + '_ {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let has_value = |word: &OsString| word.as_encoded_bytes().contains(&b'=');
    let goes_on = move |word: &OsString, next: &OsString| {
        is_option(word) && !has_value(word) && !is_option(next)
    };
    words.chunk_by(goes_on).map(<[_]>::to_vec)
}

/// The name of an option, with its dashes.
fn name(words: &[OsString]) -> String {
    let word = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    word.split_once('=').map_or(&*word, |(name, _)| name).to_owned()
}

fn long(option: &Arg) -> Option<String> {
    option.get_long().map(|name| format!("--{name}"))
}

/// The variable of an option, or the items of the list in it.
fn variable_parts(option: &Arg) -> Vec<OptionPart> {
    let value = options::set_here(option).map(|(_, value)| value).unwrap_or_default();
    list(option, &value).unwrap_or_else(|| vec![OptionPart::Variable(option.get_id().clone())])
}

/// An option, or one for each item of the list behind it.
fn word_parts(option: Option<&Arg>, words: &[OsString]) -> Vec<OptionPart> {
    let value = match words {
        [_, value] => Some(value.clone()),
        [word] => word.to_str().and_then(|word| Some(word.split_once('=')?.1.into())),
        _ => None,
    };
    let items = option.zip(value).and_then(|(option, value)| list(option, &value));
    items.unwrap_or_else(|| vec![OptionPart::Words(words.to_vec())])
}

/// An option for each item of a list; `None` if the option takes no list.
fn list(option: &Arg, value: &OsString) -> Option<Vec<OptionPart>> {
    let (comma, name, value) = (option.get_value_delimiter()?, long(option)?, value.to_str()?);
    let item = |item| OptionPart::Words(vec![format!("{name}={item}").into()]);
    Some(value.split(comma).map(item).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::{Command as Asked, MuxArgs};
    use super::*;

    /// The options of a mux, and the parts that were left out.
    fn salvaged(line: &str) -> Option<(MuxArgs, Vec<String>)> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let (cli, wrong) = read(&Cli::command(), &words)?;
        match cli.command {
            Asked::Stream(args) => Some((args.mux, wrong)),
            Asked::Tty(args) => Some((args.mux, wrong)),
            Asked::Container(args) => Some((args.mux, wrong)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_option_that_cannot_be_read_is_left_out_and_the_others_count() {
        for (line, left_out, backlog, logs) in [
            ("stream --app x --backlog 8K", 0, 8192, 0),
            ("stream --app x --backlog lots --log raw:/a", 1, 512 * 1024, 1),
            ("stream --app x --new-option --backlog 8K", 1, 8192, 0),
            ("stream --app x --new-option=1 --backlog=8K", 1, 8192, 0),
            ("stream --new-option 1 2 --app x -q --backlog=8K", 3, 8192, 0),
            ("stream --app x --log raw:/a,new:/b,cri:/c --backlog 8K", 1, 8192, 2),
            ("stream --app x --log=new:/b --log raw:/a", 1, 512 * 1024, 1),
            ("stream --app x --backlog 8K --backlog 4K", 1, 8192, 0),
            ("stream --app x --backlog", 1, 512 * 1024, 0),
            ("--log-level loud stream --app x word --backlog 8K", 2, 8192, 0),
            ("tty --app x --size 0x0 --backlog 8K", 1, 8192, 0),
            ("container --app=x --streams=tty --x=y --log=raw:/a,y:/b --backlog=8K", 2, 8192, 1),
            ("container --streams=tty --app=x --backlog=8K --app=y --help", 1, 8192, 0),
        ] {
            let (mux, wrong) = salvaged(line).unwrap();
            assert_eq!(
                (wrong.len(), mux.backlog, mux.logs.log.len()),
                (left_out, backlog, logs),
                "{line}: {wrong:?}"
            );
        }
        for line in
            ["stream", "stream --app", "stream --app X", "control --app x", "container --app x", ""]
        {
            assert!(salvaged(line).is_none(), "{line}");
        }
    }
}
