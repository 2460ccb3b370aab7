//! Examples of README.md and docs/, done as they are written there.

use std::io::Write;

use crate::pod::{Plan, Pod, project_file};
use crate::proc::eventually;

/// A program as the example has it: commands on its console, and one that stops it.
pub(crate) const SERVER: &str = r#"#!/bin/bash
echo game server up
while read -r -e -p '> ' line; do
  case $line in
    say\ *) echo "[all] ${line#say }" ;;
    stop) echo world saved; exit 0 ;;
  esac
done
"#;

/// The fenced blocks of a section, with what each is said to be.
fn blocks(file: &str, section: &str) -> Vec<(String, String)> {
    let text = project_file(file);
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

/// The user of the muxes is made as the page says.
#[test]
fn the_user_of_the_muxes() {
    let page = project_file("docs/install.md");
    let command = page.lines().find(|line| line.starts_with("# systemd-sysusers")).unwrap();
    let Some(plan) = Plan::new() else { return };
    let sysusers = project_file("units/iottymux.sysusers");
    let pod = plan.root_file("etc/sysusers.d/iottymux.conf", &sysusers).boot();
    pod.run(&["sed", "-i", "/^iottymux:/d", "/etc/passwd", "/etc/group"]);
    pod.run(&["sh", "-c", command.trim_start_matches("# ")]);
    assert!(pod.run(&["cat", "/etc/passwd"]).contains("\niottymux:"));
}

/// The log of each example of `enable --help` is one that the mux can write.
#[test]
fn the_examples_of_enable() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("web.service", "[Service]\nExecStart=/bin/sleep 1000\n").boot();
    let help = pod.run(&["iottymux", "enable", "--help"]);
    let is_example = |line: &&str| line.starts_with("iottymux enable") && line.contains("--log");
    let example = help.lines().map(str::trim).find(is_example).unwrap();
    pod.run(&example.split_whitespace().collect::<Vec<_>>());
}

/// Types a session at the console of app `game` in order. Returns the commands, what is printed for each,
/// and what it is said to print.
fn type_in_order(pod: &Pod, session: &str) -> Vec<(String, String, Vec<String>)> {
    let mut lines = session.lines().peekable();
    let mut ran = Vec::new();
    while let Some(line) = lines.next() {
        let command = line.strip_prefix("# ").unwrap_or_else(|| panic!("{line:?}"));
        let command = command.split("  #").next().unwrap().trim_end();
        if command != "iottymux attach game" {
            if command.contains("status") {
                // What nobody has seen keeps the mux for a moment: a person is slower. `list` already shows
                // that the app has exited while the mux still delivers.
                let ended = || pod.property("ttymux@game.service", "ActiveState") == "inactive";
                eventually("its mux has ended", ended);
            }
            let mut said = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("# ")) {
                said.push(line.to_owned());
            }
            let run = || {
                let printed = pod.try_run(&["sh", "-c", &format!("{command} 2>&1")]);
                (printed.status.success(), String::from_utf8(printed.stdout).unwrap())
            };
            if command.starts_with("iottymux logs") {
                eventually(command, || said.iter().all(|line| run().1.contains(line)));
            }
            let (is_success, printed) = run();
            assert!(is_success, "{command}: {printed}");
            ran.push((command.to_owned(), printed, said));
            continue;
        }
        let mut attach = pod.talk(&["timeout", "30", "script", "-qec", command, "/dev/null"]);
        let (said, mut keys) = (attach.stdout.clone(), attach.stdin());
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
        assert_eq!(attach.ends(), 0);
    }
    ran
}

/// A line with each number as one digit: times and sizes differ.
fn form(line: &str) -> String {
    let mut form = String::new();
    for c in line.trim().chars() {
        match c {
            '0'..='9' if form.ends_with('0') => {}
            '0'..='9' => form.push('0'),
            c => form.push(c),
        }
    }
    form
}

/// The first session of the README, typed in order.
#[test]
fn the_readme() {
    let blocks = blocks("README.md", "## The console of a service\n");
    let [(console, session)] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!(console, "console");
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/srv/game/server\n[Install]\nWantedBy=multi-user.target\n";
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    pod.systemctl(&["start", "game.service"]);
    for (command, printed, said) in type_in_order(&pod, session) {
        let lines: Vec<String> = printed.lines().map(form).collect();
        for line in said.iter().filter(|line| *line != "…") {
            let is_there = lines.iter().any(|printed| printed.contains(&form(line)));
            assert!(is_there, "{command}: no {line:?} in {printed}");
        }
    }
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
}

#[test]
fn the_console_of_a_game_server() {
    let blocks = blocks("docs/units.md", "## From `enable` to `disable`\n");
    let [(ini, unit), (console, session)] = &blocks[..] else { panic!("{blocks:?}") };
    assert_eq!((ini.as_str(), console.as_str()), ("ini", "console"));
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    let ran = type_in_order(&pod, session);
    let told = |word: &str| {
        let found = ran.iter().find(|(command, ..)| command.contains(word));
        found.map_or_else(|| panic!("no {word}"), |(_, told, _)| told.as_str())
    };
    assert!(told("iottymux logs").contains("[all] good night"), "{}", told("iottymux logs"));
    // It was stopped by its own command, and not by a signal.
    assert!(
        told("iottymux status").starts_with("app game: ended with status 0"),
        "{}",
        told("iottymux status")
    );
    assert!(told("iottymux status").contains("world saved"));
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
}
