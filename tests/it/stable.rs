//! What docs/stability.md promises to keep: the names in `tests/stable.txt` are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Arg;
use serde_json::Value;

use crate::rig::{APP, Rig};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Answers one line, and ends at the next one.
const SCRIPT: &str = "stty -echo; echo up; read x; echo \"<$x>\"; read x; exit 3";

/// The words of each line that begins with one of these words.
fn promised() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(Path::new(ROOT).join("tests/stable.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    lines.map(words).map(|mut words| (words.remove(0), words)).collect()
}

/// All of a kind.
fn of(kind: &str) -> Vec<String> {
    let lines = promised().into_iter().filter(|(of, _)| of == kind);
    let words: Vec<String> = lines.flat_map(|(_, words)| words).collect();
    assert!(!words.is_empty(), "{kind}");
    words
}

fn name_of_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn each_variable_and_option_is_there() {
    let page = fs::read_to_string(Path::new(ROOT).join("packaging/man/iottymux.env.5")).unwrap();
    for name in of("variables") {
        assert!(page.contains(&format!("\\fBIOTTYMUX_{name}\\fR=")), "IOTTYMUX_{name} is gone");
    }
    let program = iottymux::command_line();
    for (_, mut options) in promised().into_iter().filter(|(of, _)| of == "options") {
        let name = options.remove(0);
        let command = program.find_subcommand(&name).unwrap_or_else(|| panic!("{name} is gone"));
        for option in options {
            let is_it = |arg: &Arg| arg.get_long() == Some(&option);
            assert!(command.get_arguments().any(is_it), "{name} --{option} is gone");
        }
    }
}

/// The documents are those of an app on a terminal, in the order of its life.
#[test]
fn each_field_is_there() {
    let rig = Rig::new();
    let mut app = rig.mux(["run", "--foreground", "--name", APP, "-t", "--", "sh", "-c", SCRIPT]);
    let documents = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let prints = |words: &[&str]| {
        let mut process = rig.run(words);
        assert_eq!(process.ends(), 0, "{words:?}: {}", process.stderr.text());
        documents(&process.stdout.text())
    };
    let has = |path: &str| documents(&fs::read_to_string(rig.path(path)).unwrap()).remove(0);
    let mut found = BTreeMap::new();
    let mut find = |kind: &str, document| found.insert(kind.to_owned(), document);
    find("wait", prints(&["wait", APP, "--for", "(u)p", "--from", "start", "--json"]).remove(0));
    let mut watcher = rig.run(&["events", APP, "--from", "start"]);
    watcher.stdout.wait_for("\"event\":\"data\"");
    find("endpoints", has("endpoints"));
    find("screen", prints(&["screen", APP, "--json"]).remove(0));
    find("list", prints(&["list", "--json"]).remove(0));
    find("status", prints(&["status", APP, "--json"]).remove(0));
    let mut answer = prints(&["ask", APP, "one", "--until", "<one>", "--json"]);
    find("ask-end", answer.remove(1));
    find("ask", answer.remove(0));
    find("send", prints(&["send", APP, "--json", "two"]).remove(0));
    assert_eq!(app.ends(), 3);
    find("wait-exit", prints(&["wait", APP, "--json"]).remove(0));
    find("ended", prints(&["status", APP, "--json"]).remove(0));
    find("last.json", has("last.json"));
    watcher.ends();
    for line in documents(&watcher.stdout.text()) {
        find(&format!("events-{}", line["event"].as_str().unwrap()), line);
    }
    fs::write(rig.file("log"), "2026-11-28T20:00:00.000000000Z stdout F up\n").unwrap();
    let log = rig.file("log");
    find("logs", prints(&["logs", "--file", log.to_str().unwrap(), "--json"]).remove(0));
    let mut missing = Vec::new();
    for (kind, fields) in promised() {
        if ["variables", "options"].contains(&kind.as_str()) {
            continue;
        }
        let Some(document) = found.get(&kind) else { panic!("there was no {kind}") };
        for field in fields {
            let (path, type_of_it) = field.split_once(':').unwrap_or((&field, "string"));
            let value = document.pointer(&format!("/{}", path.replace('.', "/")));
            let found = value.map(name_of_type);
            if found != Some(type_of_it) {
                missing.push(format!("{kind}: {field} is {found:?} in {document}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}
