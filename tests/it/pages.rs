// SPDX-License-Identifier: Apache-2.0
//! The man pages, made from the command line: the texts are those of `--help`.

use std::collections::BTreeMap;

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The title of options without one.
const OPTIONS: &str = "Options";

/// What the page of the program says first.
const CONCEPTS: &str = "\
An app is a systemd service, a container or a command. Its mux, one process, holds the other ends of \
its standard streams, or of its terminal, for any number of clients, at any time. The app notices \
neither clients nor the death of its mux, which another one replaces.

`enable` makes a service attachable from its next start on; `run` starts a command; an engine starts \
containers with a runtime that wraps its own (docs/containers.md). Where a command takes a NAME, that is \
the name of the app, of its service or of its container. A container has its id, NAMESPACE/ID, and the \
name that Docker or Kubernetes gives it: POD, POD/CONTAINER, NAMESPACE/POD or NAMESPACE/POD/CONTAINER.

A NAME with *, ? or [...] is a pattern as in the shell, in which it needs quotes. It stands for each app \
that `list` shows with a name, a service or a container that it fits. For `stop`, `kill` and `events` these are \
the apps that run, and for `stop`, `kill` and `rm` those of `run`. It is an error if a pattern fits none, or for \
attach, logs and screen several.

A DURATION is written as in systemd.time(7), such as 300ms, 5s, 2min or 1h 30min. A number without a \
unit is seconds.

A client that attaches later gets the output that nobody has seen, or the terminal's screen. Logs get \
every line, whether or not somebody is attached. A client that does not read delays the app by at most \
a second.

Only root and the mux's user may attach, until IOTTYMUX_ALLOW_GID and similar variables of \
iottymux.env(5) admit users and groups, to type or only to watch. Whoever may type has the rights of \
the app.";
/// What it says of files.
const FILES: [(&str, &str); 6] = [
    ("/run/iottymux/NAME", "Sockets and documents of a service, or of an app of root."),
    (
        "$XDG_RUNTIME_DIR/iottymux/NAME",
        "The same for other users; /tmp/iottymux-UID without a session.",
    ),
    ("/etc/iottymux/NAME.env", "Options of a service's mux, as variables."),
    (
        "/etc/systemd/system/NAME.service.d/50-iottymux.conf",
        "What `enable` has written; `disable` removes it. With --user below ~/.config/systemd/user.",
    ),
    ("/var/log/iottymux/NAME", "Where a service's mux may always log."),
    ("/usr/share/doc/iottymux", "The book (packages only)."),
];

/// The name and the text of each page.
pub fn pages() -> Vec<(String, Vec<u8>)> {
    let mut program = iottymux::command_line().disable_help_subcommand(true);
    program.build();
    let mut pages = vec![("iottymux.env.5".to_owned(), variables(&program))];
    add_commands(&program, &program, &mut pages);
    pages
}

/// Adds the page of a command, and those of its commands.
fn add_commands(program: &Command, command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    pages.push((format!("{}.1", name(command)), page(program, command)));
    for below in documented(command) {
        add_commands(program, below, pages);
    }
}

/// The commands below this one that have a page: the help leaves out the hooks of units, too.
pub fn documented(command: &Command) -> impl Iterator<Item = &Command> {
    let has_hooks = command.get_name() == "control";
    command.get_subcommands().filter(move |below| has_hooks || !below.is_hide_set())
}

/// `iottymux-attach`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

fn page(program: &Command, command: &Command) -> Vec<u8> {
    let title = name(command);
    let man = Man::new(command.clone().name(title.clone()).subcommand_value_name("command"))
        .title(title.to_uppercase())
        .section("1");
    let man = man.manual("iottymux").source(source(program)).date("");
    let mut out = Vec::new();
    for part in [Man::render_title, Man::render_name_section] {
        write_part(&mut out, |out| part(&man, out));
    }
    let mut page = Roff::new();
    synopsis(&mut page, command);
    page.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or_else(|| command.get_about());
    paragraphs(&mut page, &about.map(StyledStr::to_string).unwrap_or_default());
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        page.control("PP", []);
        page.text([roman(format!("Aliases: {}", aliases.join(", ")))]);
    }
    let is_program = name(command) == name(program);
    if is_program {
        page.control("PP", []);
        paragraphs(&mut page, CONCEPTS);
    }
    options(&mut page, command, is_program);
    if command.has_subcommands() {
        page.control("SH", ["COMMANDS"]);
        for below in documented(command) {
            page.control("TP", []);
            page.text([bold(name(below)), roman("(1)")]);
            page.text([roman(below.get_about().map(StyledStr::to_string).unwrap_or_default())]);
        }
    }
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        notes(&mut page, &text.to_string());
    }
    if is_program {
        page.control("SH", ["FILES"]);
        for (file, text) in FILES {
            page.control("TP", []);
            page.text([italic(file)]);
            page.text([roman(text)]);
        }
        page.control("SH", ["ENVIRONMENT"]);
        page.text([roman("Each variable of "), bold("iottymux.env"), roman("(5) sets an option.")]);
    }
    page.control("SH", ["SEE ALSO"]);
    let below = format!("-{}", command.get_name());
    let parent = title.strip_suffix(&below).unwrap_or("systemd");
    page.text([bold(parent), roman("(1), "), bold("iottymux.env"), roman("(5)")]);
    write_part(&mut out, |out| page.to_writer(out));
    out
}

/// The usage as the help has it: an option is described once, with its value, below.
fn synopsis(page: &mut Roff, command: &Command) {
    page.control("SH", ["SYNOPSIS"]);
    page.control("nf", []);
    let usage = command.clone().render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        page.text([roman(line.trim())]);
    }
    page.control("fi", []);
}

/// A page of variables: those of all options.
fn variables(program: &Command) -> Vec<u8> {
    let mut all: BTreeMap<String, (Arg, Vec<String>)> = BTreeMap::new();
    collect(program, &mut all);
    let mut page = Roff::new();
    page.control("TH", ["IOTTYMUX.ENV", "5", "", &source(program), "iottymux"]);
    page.control("SH", ["NAME"]);
    page.text([roman("iottymux.env - environment variables of iottymux, and files that set them")]);
    page.control("SH", ["SYNOPSIS"]);
    page.control("nf", []);
    for file in ["/etc/iottymux/NAME.env", "/etc/systemd/system/iomux@NAME.service.d/*.conf"] {
        page.text([roman(file)]);
    }
    page.control("fi", []);
    page.control("SH", ["DESCRIPTION"]);
    paragraphs(
        &mut page,
        "Each variable sets an option of one or more commands. An option on the command line comes \
         first. The mux of NAME.service reads the variables of /etc/iottymux/NAME.env, whose lines \
         are NAME=VALUE as in EnvironmentFile= of systemd.exec(5). They take effect with \
         `systemctl restart iomux@NAME.service` (or ttymux@NAME.service), and the service runs on.\n\n\
         A DURATION is written as in systemd.time(7), such as 300ms, 5s, 2min or 1h 30min. A number \
         without a unit is seconds.",
    );
    page.control("SH", ["VARIABLES"]);
    for (variable, (option, commands)) in &all {
        page.control("TP", []);
        let value = values(option).unwrap_or_else(|| "true|false".to_owned());
        page.text([bold(variable.as_str()), roman("="), italic(value)]);
        details(&mut page, option, false);
        paragraph(&mut page);
        let long = option.get_long().unwrap_or_default();
        page.text([roman("Option "), bold(format!("--{long}")), roman(of(commands))]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("iottymux"), roman("(1), "), bold("systemd.exec"), roman("(5)")]);
    let mut out = Vec::new();
    write_part(&mut out, |out| page.to_writer(out));
    out
}

/// Adds the variables of a command's options, and of the commands below it.
fn collect(command: &Command, into: &mut BTreeMap<String, (Arg, Vec<String>)>) {
    for option in visible(command) {
        let Some(variable) = option.get_env() else { continue };
        let variable = variable.to_string_lossy().into_owned();
        let (_, commands) = into.entry(variable).or_insert_with(|| (option.clone(), Vec::new()));
        if !option.is_global_set() {
            commands.push(name(command));
        }
    }
    for below in documented(command) {
        collect(below, into);
    }
}

/// The commands that have an option, for the end of a sentence.
fn of(commands: &[String]) -> String {
    match commands {
        [] => " of all commands.".to_owned(),
        _ => format!(" of {}.", commands.join(", ")),
    }
}

fn source(program: &Command) -> String {
    format!("iottymux {}", program.get_version().unwrap_or_default())
}

fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !option.is_hide_set())
}

/// The arguments, then the options by their titles.
/// Those of all commands are explained in full on the page of the program only, `is_program`.
fn options(page: &mut Roff, command: &Command, is_program: bool) {
    let (arguments, options): (Vec<&Arg>, Vec<&Arg>) =
        visible(command).partition(|option| option.is_positional());
    let mut sections: Vec<(&str, Vec<&Arg>)> =
        vec![("Arguments", arguments), (OPTIONS, Vec::new())];
    for option in options {
        let title = option.get_help_heading().unwrap_or(OPTIONS);
        match sections.iter_mut().find(|(of, _)| *of == title) {
            Some((_, options)) => options.push(option),
            None => sections.push((title, vec![option])),
        }
    }
    for (title, options) in sections.iter().filter(|(_, options)| !options.is_empty()) {
        page.control("SH", [title.to_uppercase().as_str()]);
        for option in options {
            page.control("TP", []);
            page.text(head(option));
            let short = (*option).clone().long_help(Resettable::Reset);
            let is_brief = option.is_global_set() && !is_program;
            details(page, if is_brief { &short } else { option }, true);
        }
    }
}

/// `-n, --tail N`.
fn head(option: &Arg) -> Vec<Inline> {
    let mut head = Vec::new();
    if let Some(short) = option.get_short() {
        head.push(bold(format!("-{short}")));
    }
    if let Some(long) = option.get_long() {
        if !head.is_empty() {
            head.push(roman(", "));
        }
        head.push(bold(format!("--{long}")));
    }
    let Some(value) = values(option) else { return head };
    let is_optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
    let (before, after) = match (option.is_positional(), is_optional) {
        (true, _) => ("", ""),
        (false, true) => ("[=", "]"),
        (false, false) => (" ", ""),
    };
    head.extend([roman(before), italic(value), roman(after)]);
    head
}

/// The name of an option's value.
fn values(option: &Arg) -> Option<String> {
    let takes = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    takes.then(|| option.get_value_names().unwrap_or_default().join(" "))
}

/// The help of an option, its values, its default and its variable.
fn details(page: &mut Roff, option: &Arg, has_variable: bool) {
    let help = option.get_long_help().or_else(|| option.get_help());
    lines(page, &help.map(StyledStr::to_string).unwrap_or_default(), paragraph);
    let shown = !option.is_hide_possible_values_set();
    for value in option.get_possible_values().iter().filter(|value| shown && !value.is_hide_set()) {
        paragraph(page);
        page.text([bold(value.get_name())]);
        if let Some(help) = value.get_help() {
            page.text([roman(format!("\u{2013} {help}"))]);
        }
    }
    let defaults: Vec<_> =
        option.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    if !defaults.is_empty() && !option.is_hide_default_value_set() && values(option).is_some() {
        paragraph(page);
        page.text([roman(format!("Default: {}", defaults.join(",")))]);
    }
    if let Some(variable) = option.get_env().filter(|_| has_variable) {
        paragraph(page);
        page.text([roman("Variable: "), bold(variable.to_string_lossy().into_owned())]);
    }
}

/// A paragraph within an indented one.
fn paragraph(page: &mut Roff) {
    page.control("sp", []);
}

/// Text with empty lines between its paragraphs.
fn paragraphs(page: &mut Roff, text: &str) {
    lines(page, text, |page| {
        page.control("PP", []);
    });
}

/// Text whose lines stay lines: in the help a paragraph is one line.
fn lines(page: &mut Roff, text: &str, paragraph: impl Fn(&mut Roff)) {
    let mut before = "";
    for line in text.trim_end().lines() {
        match (before.is_empty(), line.is_empty()) {
            (_, true) => paragraph(page),
            (false, false) => {
                page.control("br", []);
            }
            (true, false) => {}
        }
        if !line.is_empty() {
            page.text([roman(line.trim_start())]);
        }
        before = line;
    }
}

/// The text below the options. A title ends with a colon: on a line of its own it begins examples
/// or a table, which stay as they are.
fn notes(page: &mut Roff, text: &str) {
    for block in text.split("\n\n") {
        if let Some((title, rest)) = block.split_once(":\n") {
            if is_title(title) {
                page.control("SH", [title.to_uppercase().as_str()]);
            } else {
                page.control("PP", []);
                page.text([roman(format!("{title}:"))]);
            }
            // As far to the left as in the help, which fits a terminal.
            page.control("in", ["2n"]);
            page.control("nf", []);
            for line in rest.lines() {
                page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            page.control("fi", []);
            page.control("in", []);
            continue;
        }
        match block.split_once(": ").filter(|(title, _)| is_title(title)) {
            Some((title, rest)) => {
                page.control("SH", [title.to_uppercase().as_str()]);
                page.text([roman(rest)]);
            }
            None => {
                page.control("PP", []);
                page.text([roman(block)]);
            }
        }
    }
}

/// Whether this is one word or two.
fn is_title(text: &str) -> bool {
    text.split_whitespace().count() <= 2
}

fn write_part(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
) {
    write(out).expect("memory takes everything");
}
