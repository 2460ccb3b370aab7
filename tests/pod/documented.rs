//! The example of docs/units.md, done as it is written there.

use std::io::Write;
use std::process::Stdio;

use crate::pod::{Plan, project_file};
use crate::proc::{Said, eventually};

/// A program as the example has it: commands on its console, and one that stops it.
const SERVER: &str = r#"#!/bin/bash
echo game server up
while read -r -e -p '> ' line; do
  case $line in
    say\ *) echo "[all] ${line#say }" ;;
    stop) echo world saved; exit 0 ;;
  esac
done
"#;

/// The fenced blocks of a section, with what each is said to be.
fn blocks(section: &str) -> Vec<(String, String)> {
    let text = project_file("docs/units.md");
    let from = text.find(section).unwrap();
    let section = &text[from + section.len()..];
    let section = section.split("\n## ").next().unwrap();
    let mut parts = section.split("```").skip(1).step_by(2);
    let block = |part: &str| {
        let (kind, text) = part.split_once('\n').unwrap();
        (kind.to_owned(), text.to_owned())
    };
    parts.by_ref().map(block).collect()
}

#[test]
fn the_console_of_a_game_server() {
    let blocks = blocks("## Example: the console of a game server\n");
    let [(ini, unit), (console, session)] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((ini.as_str(), console.as_str()), ("ini", "console"));
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    let mut lines = session.lines().peekable();
    let mut ran = Vec::new();
    while let Some(line) = lines.next() {
        let command = line.strip_prefix("# ").unwrap_or_else(|| panic!("{line:?}"));
        if command != "iottymux attach --app game" {
            if command.contains("status") {
                // What nobody has seen keeps the mux for a moment: a person is slower. `list` already shows
                // that the app has exited while the mux still delivers.
                let ended = || pod.property("ttymux@game.service", "ActiveState") == "inactive";
                eventually("its mux has ended", ended);
            }
            ran.push((command, pod.run(&["sh", "-c", command])));
            continue;
        }
        let mut attach = pod
            .command(&["timeout", "30", "script", "-qec", command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::follow(attach.stdout.take().unwrap());
        let mut keys = attach.stdin.take().unwrap();
        while let Some(line) = lines.next_if(|line| !line.starts_with("# ")) {
            match line.strip_prefix('>') {
                Some(typed) if typed.contains("ctrl-p ctrl-q") => {
                    keys.write_all(b"\x10\x11").unwrap();
                }
                Some(typed) => keys.write_all(format!("{}\r", typed.trim()).as_bytes()).unwrap(),
                None => said.wait_for(line),
            }
        }
        said.wait_for("detached from app game");
        assert!(attach.wait().unwrap().success());
    }
    let told = |word: &str| {
        let found = ran.iter().find(|(command, _)| command.contains(word));
        found.map_or_else(|| panic!("no {word}"), |(_, told)| told.as_str())
    };
    assert!(told("logs --app").contains("[all] good night"), "{}", told("logs --app"));
    // It was stopped by its own command, and not by a signal.
    assert!(
        told("status --app").starts_with("app game: ended with status 0"),
        "{}",
        told("status --app")
    );
    assert!(told("status --app").contains("world saved"));
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
}
