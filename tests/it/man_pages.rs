//! The man pages in `packaging/man`: they are those of the command line, render without a warning, and
//! have each option and variable.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Command as CommandLine;

use crate::installed::is_installed;
use crate::pages;
use crate::skip::skip;

/// The rendered pages, by the names of their files; `None` if there is no man(1).
fn rendered() -> Option<BTreeMap<String, String>> {
    if !is_installed("man") {
        skip("man", "it is not installed");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let render = |(name, text): (String, Vec<u8>)| {
        let path = dir.path().join(&name);
        fs::write(&path, text).unwrap();
        let mut man = Command::new("man");
        man.args(["--warnings", "--no-hyphenation", "--no-justification", "--local-file"]);
        man.arg(path).env("MANWIDTH", "100").env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8");
        let output = man.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        assert!(output.status.success(), "{name}");
        (name, String::from_utf8(output.stdout).unwrap())
    };
    Some(pages::pages().into_iter().map(render).collect())
}

/// Each command and those below it.
fn all(command: &CommandLine) -> Vec<&CommandLine> {
    let below = pages::documented(command);
    let below = below.filter(|below| below.get_name() != "help").flat_map(all);
    std::iter::once(command).chain(below).collect()
}

#[test]
fn each_command_has_a_page_with_its_options() {
    let Some(pages) = rendered() else { return };
    let mut program = iottymux::command_line();
    program.build();
    let commands = all(&program);
    assert_eq!(pages.len(), commands.len() + 1);
    let variables = &pages["iottymux.env.5"];
    for command in commands {
        let name = command.get_display_name().unwrap_or("iottymux");
        let page = &pages[&format!("{name}.1")];
        assert!(page.contains(&format!("{name} - ")), "{page}");
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            if let Some(long) = option.get_long() {
                assert!(page.contains(&format!("--{long}")), "{name}: {long}");
            }
            if let Some(variable) = option.get_env().and_then(|name| name.to_str()) {
                assert!(variables.contains(&format!("{variable}=")), "{variable}");
                assert!(page.contains(variable), "{name}: {variable}");
            }
        }
    }
}

/// With `IOTTYMUX_GOLDEN=1` they are written.
#[test]
fn the_pages_in_the_tree_are_those_of_this_program() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/man");
    let pages: BTreeMap<_, _> = pages::pages().into_iter().collect();
    let found = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut found: Vec<_> = found.map(|name| name.into_string().unwrap()).collect();
    found.sort();
    if std::env::var_os("IOTTYMUX_GOLDEN").is_some() {
        for name in found {
            fs::remove_file(dir.join(name)).unwrap();
        }
        for (name, text) in pages {
            fs::write(dir.join(name), text).unwrap();
        }
        return;
    }
    assert_eq!(found, pages.keys().cloned().collect::<Vec<_>>());
    for (name, text) in pages {
        let is_fresh = fs::read(dir.join(&name)).unwrap() == text;
        assert!(is_fresh, "{name} is of another version: set IOTTYMUX_GOLDEN=1 to write it");
    }
}

/// A command is found by each of its names, and its usage has what it takes.
#[test]
fn a_page_has_the_usage_and_the_aliases() {
    let Some(pages) = rendered() else { return };
    assert!(pages["iottymux-list.1"].contains("Aliases: ls, ps"), "{}", pages["iottymux-list.1"]);
    let run = &pages["iottymux-run.1"];
    assert!(run.contains("iottymux run [OPTIONS] "), "{run}");
    for (name, page) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
        let mut examples = page.lines().filter(|line| line.starts_with("  iottymux "));
        assert!(examples.all(|line| line.chars().count() <= 80), "{name}: {page}");
    }
}

/// An example is a line that can be copied.
#[test]
fn examples_are_as_in_the_help() {
    let Some(pages) = rendered() else { return };
    let program = iottymux::command_line();
    let help = program.get_after_long_help().unwrap().to_string();
    let examples: Vec<_> = help.lines().filter(|line| line.starts_with("  iottymux ")).collect();
    assert!(examples.len() > 2, "{help}");
    for example in examples {
        assert!(pages["iottymux.1"].contains(example.trim()), "{example}");
    }
}
