//! The options of a mux that is given a running app: an option that cannot be read is left out, and
//! the others count. A mux that failed instead would let go of the app.

use std::ffi::OsString;

use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use super::{Cli, options};
use crate::core::logfmt::path::LogPath;
use crate::core::logfmt::spec::LogSpec;
use crate::sys::diagnostics;

/// The commands that run a mux of a unit or of a container.
const MUXES: [&str; 3] = ["stream", "tty", "container"];
/// Whether this command runs a mux of a unit or of a container.
pub(crate) fn is_mux(command: &OsString) -> bool {
    MUXES.iter().any(|mux| command == mux)
}

/// The files that the mux of a container with these arguments writes; `None` if they do not describe
/// one.
pub(crate) fn log_files(arguments: &[OsString]) -> Option<Vec<LogPath>> {
    let (cli, _) = read(&Cli::command(), arguments)?;
    let super::Command::Container(args) = cli.command else { return None };
    let specs = args.mux.logs.log.iter().chain(&args.terminal.record);
    Some(specs.filter_map(LogSpec::file).cloned().collect())
}

/// The valid part of a command line and its variables, with the errors in the rest; `None` if it
/// does not describe a mux.
pub(crate) fn read(command: &Command, arguments: &[OsString]) -> Option<(Cli, Vec<String>)> {
    let at = arguments.iter().position(is_mux)?;
    let mux = command.find_subcommand(&arguments[at])?;
    let options = || options::of(command, Some(mux));
    let typed: Vec<_> =
        options_in(&arguments[..at]).chain(options_in(&arguments[at + 1..])).collect();
    let is = |option: &Arg, words: &[OsString]| long(option).is_some_and(|it| it == name(words));
    let set = options().filter(|option| !typed.iter().any(|words| is(option, words)));
    let set: Vec<_> = set.filter_map(words_of_variable).collect();
    let given = || set.iter().chain(&typed);
    // Without these it is no mux.
    let needed: Vec<&Arg> = options().filter(|option| option.is_required_set()).collect();
    let mut words = vec![command.get_name().into(), arguments[at].clone()];
    let first = |needed: &&Arg| given().find(|words| is(needed, words));
    words.extend(needed.iter().filter_map(first).flatten().cloned());
    let typed_only = without_variables(command.clone());
    let mut cli = parse(&typed_only, &words).ok()?;
    let mut wrong = Vec::new();
    let others = given().filter(|words| !needed.iter().any(|needed| is(needed, words)));
    for part in others.flat_map(|words| items(options().find(|option| is(option, words)), words)) {
        let before = words.len();
        words.extend(part);
        match parse(&typed_only, &words) {
            Ok(more) => cli = more,
            Err(e) => {
                words.truncate(before);
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

fn parse(command: &Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command.clone().try_get_matches_from(words)?)
}

fn without_variables(command: Command) -> Command {
    command.mut_args(|option| option.env(None::<&str>)).mut_subcommands(without_variables)
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

/// The words that say what the variable of an option does.
fn words_of_variable(option: &Arg) -> Option<Vec<OsString>> {
    let (_, value) = options::set_here(option)?;
    let mut word = OsString::from(long(option)?);
    if !option.get_action().takes_values() {
        match BoolishValueParser::new().parse_ref(&Command::new(""), Some(option), &value) {
            Ok(true) => return Some(vec![word]),
            Ok(false) => return None,
            Err(_) => {}
        }
    }
    word.push("=");
    word.push(value);
    Some(vec![word])
}

/// An option, or one for each item of the list behind it.
fn items(option: Option<&Arg>, words: &[OsString]) -> Vec<Vec<OsString>> {
    let list = || {
        let comma = option?.get_value_delimiter()?;
        let value = match words {
            [_, value] => value.to_str()?,
            [word] => word.to_str()?.split_once('=')?.1,
            _ => return None,
        };
        let item = |item| vec![format!("{}={item}", name(words)).into()];
        Some(value.split(comma).map(item).collect())
    };
    list().unwrap_or_else(|| vec![words.to_vec()])
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
        for line in [
            "stream",
            "stream --app",
            "stream --app -x",
            "control --app x",
            "container --app x",
            "",
        ] {
            assert!(salvaged(line).is_none(), "{line}");
        }
    }
}
