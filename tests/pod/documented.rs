//! Examples of README.md and docs/, done as they are written there.

use std::fs;
use std::io::Write;

use crate::book::{self, file_in};
use crate::installed::is_installed;
use crate::log::with_journald;
use crate::pod::{BINARY, Plan, Pod, project_file};
use crate::proc::eventually;
use crate::skip::skip;

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

/// A command, what is printed for it, and what it is said to print.
type Ran = (String, String, Vec<String>);

/// The prompts of a session: of the shell, and of the app that is attached.
type Prompts = (&'static str, &'static str);
/// At a service, as root.
const SERVICE: Prompts = ("# ", ">");
/// At a shell, as anybody.
const SHELL: Prompts = ("$ ", "bash-5.2$");

/// Types at the app that a command attaches to what a session types there. Returns the command's status.
fn type_at_app<'a>(
    pod: &Pod,
    command: &str,
    session: impl Iterator<Item = &'a str>,
    prompt: &str,
) -> i32 {
    let mut attach = pod.talk(&["timeout", "30", "script", "-qec", command, "/dev/null"]);
    let (said, mut keys) = (attach.stdout.clone(), attach.stdin());
    // What is typed before that is not for the app yet.
    said.wait_for("ctrl-p ctrl-q leaves");
    let (mut leaves, mut last) = (false, "");
    for line in session {
        match line.strip_prefix(prompt) {
            Some(typed) if typed.contains("ctrl-p ctrl-q") => {
                keys.write_all(b"\x10\x11").unwrap();
                leaves = true;
            }
            Some(typed) => keys.write_all(format!("{}\r", typed.trim()).as_bytes()).unwrap(),
            None => {
                // A number at the end is another one each time, and an echo has its words, too.
                let words = line.trim_end_matches(|c: char| c.is_ascii_digit());
                let is_own = words == line || line.starts_with("iottymux: ");
                said.wait_for(&if is_own { words.to_owned() } else { format!("\n{words}") });
            }
        }
        last = line;
    }
    if leaves {
        said.wait_for("iottymux: detached from app ");
    }
    let status = last.rsplit_once("ended with status ").map_or(0, |(_, of)| of.parse().unwrap());
    assert_eq!(attach.ends(), status, "{command}");
    status
}

/// Types a session in order.
fn type_in_order(pod: &Pod, session: &str, (shell, app): Prompts) -> Vec<Ran> {
    let mut lines = session.lines().peekable();
    let (mut ran, mut status) = (Vec::new(), 0);
    while let Some(line) = lines.next() {
        let command = line.strip_prefix(shell).unwrap_or_else(|| panic!("{line:?}"));
        let command = command.split("  #").next().unwrap().trim_end();
        let mut said = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with(shell)) {
            said.push(line.to_owned());
        }
        if command.starts_with("iottymux attach") || command.starts_with("iottymux run -it") {
            status = type_at_app(pod, command, said.iter().map(String::as_str), app);
            continue;
        }
        if command.contains("status") {
            // What nobody has seen keeps the mux for a moment: a person is slower. `list` already shows
            // that the app has exited while the mux still delivers.
            let ended = || pod.property("ttymux@game.service", "ActiveState") == "inactive";
            eventually("its mux has ended", ended);
        }
        let run = || {
            let script = format!("exec 2>&1; (exit {status}); {command}");
            let printed = pod.try_run(&["sh", "-c", &script]);
            (printed.status.success(), String::from_utf8(printed.stdout).unwrap())
        };
        let is_later = ["iottymux logs", "iottymux screen", "journalctl"];
        if is_later.iter().any(|later| command.starts_with(later)) {
            eventually(command, || missing(&run().1, &said).is_none());
        }
        let (is_success, printed) = run();
        assert!(is_success, "{command}: {printed}");
        ran.push((command.to_owned(), printed, said));
    }
    ran
}

/// Each line that a session shows is printed.
fn are_as_shown(ran: Vec<Ran>) {
    for (command, printed, said) in ran {
        assert_eq!(missing(&printed, &said), None, "{command}: {printed}");
    }
}

/// The first line that a session shows and that is not printed.
fn missing<'a>(printed: &str, said: &'a [String]) -> Option<&'a String> {
    let lines: Vec<String> = printed.lines().map(form).collect();
    let is_there = |line: &str| lines.iter().any(|printed| printed.contains(&form(line)));
    said.iter().find(|line| *line != "…" && !is_there(line))
}

/// A line with each number as one digit, and without columns: times and sizes differ.
fn form(line: &str) -> String {
    let mut form = String::new();
    for c in line.trim().chars() {
        match c {
            ' ' if form.ends_with(' ') => {}
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
    are_as_shown(type_in_order(&pod, session, SERVICE));
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
}

/// Types the tutorial in order: on a system without the program, which is built already, or with the program that is
/// there.
pub(crate) fn type_tutorial(pod: &Pod, is_new: bool) {
    for (before, kind, text) in book::blocks("tutorial") {
        if let Some((path, text)) = file_in(&before, &kind, &text) {
            let path = pod.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            continue;
        }
        let installs = text.strip_prefix("$ cargo build --release --locked\n");
        if installs.is_some() && !is_new {
            continue;
        }
        if installs.is_some() {
            let built = pod.path("/target/release");
            fs::create_dir_all(&built).unwrap();
            fs::copy(BINARY, built.join("iottymux")).unwrap();
        }
        are_as_shown(type_in_order(pod, installs.unwrap_or(&text), SERVICE));
    }
    let left = ["default.target", "game.service", "systemd-journald-audit.socket"];
    assert_eq!(pod.names("/etc/systemd/system"), left);
}

#[test]
fn the_tutorial() {
    let Some(plan) = Plan::new() else { return };
    type_tutorial(&with_journald(plan).boot(), false);
}

/// The commands of the page about enabling.
#[test]
fn enabling() {
    let (_, session) = blocks("docs/units.md", "# Making a service attachable\n").swap_remove(0);
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/srv/game/server\n";
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    pod.systemctl(&["start", "game"]);
    let ran = type_in_order(&pod, &session, SERVICE);
    let listed = ran.iter().find(|(command, ..)| command.contains("--list")).unwrap();
    assert!(
        listed.1.contains("enable game.service --tty") && !listed.1.contains("GID"),
        "{}",
        listed.1
    );
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
}

/// The console of a service every day, and who was there.
#[test]
fn attaching() {
    let blocks_of = |file, section| blocks(file, section).into_iter().map(|(_, text)| text);
    let session = blocks_of("docs/attach.md", "## Every day\n").next().unwrap();
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/srv/game/server\n";
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    pod.run(&["iottymux", "enable", "game", "--now"]);
    are_as_shown(type_in_order(&pod, &session, SERVICE));
    let mut logs = blocks_of("docs/logs.md", "## The journal of a service\n");
    let who = logs.find(|text| text.contains("IOTTYMUX_EVENT=attached")).unwrap();
    let command = who.split("\n# ").next().unwrap();
    are_as_shown(type_in_order(&pod, command, SERVICE));
}

/// A full-screen program that a script sees and drives.
#[test]
fn seeing() {
    if !is_installed("vim") {
        return skip("vim", "it is not installed");
    }
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    let sessions = blocks("docs/automation.md", "## See\n");
    let [(_, shows), (_, drives)] = &sessions[..] else { panic!("{sessions:?}") };
    let text = shows.lines().nth(1).unwrap();
    let start = format!("echo '{text}' >notes; iottymux run -dt --name vim vim notes");
    pod.run(&["sh", "-c", &format!("cd /tmp; {start}")]);
    for session in [shows, drives] {
        are_as_shown(type_in_order(&pod, session, SHELL));
    }
    pod.run(&["iottymux", "rm", "--force", "vim"]);
}

/// A shell, a REPL and an editor, driven by the page that an agent is handed.
#[test]
fn agents() {
    for program in ["vim", "python3"] {
        if !is_installed(program) {
            return skip(program, "it is not installed");
        }
    }
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    let mut sessions = book::blocks("agents");
    sessions.retain(|(.., text)| text.starts_with("$ "));
    assert_eq!(sessions.len(), 4);
    for (.., session) in sessions {
        are_as_shown(type_in_order(&pod, &session, SHELL));
    }
}

/// What clients do, as a script sees it.
#[test]
fn watching() {
    let (_, session) = blocks("docs/automation.md", "## Watch\n").swap_remove(0);
    let mut lines = session.lines();
    let command = lines.next().unwrap().strip_prefix("$ ").unwrap();
    let shown: Vec<String> = lines.filter(|line| *line != "^C").map(str::to_owned).collect();
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    pod.run(&["iottymux", "run", "-dt", "--name", "game", "cat"]);
    let events = pod.talk(&["timeout", "30", "sh", "-c", command]);
    eventually("a client is seen", || {
        // Nine bytes, as on the page.
        pod.run(&["sh", "-c", "echo save-all | iottymux attach game --mode tty-in"]);
        missing(&events.stdout.so_far(), &shown).is_none()
    });
    pod.run(&["iottymux", "rm", "--force", "game"]);
}

/// A command is left, attached again, and ends.
#[test]
fn commands() {
    let sections = [
        ("README.md", "## A command that outlives its terminal\n"),
        ("docs/run.md", "# Commands that outlive their terminal\n"),
    ];
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    for (file, section) in sections {
        let (_, session) = blocks(file, section).into_iter().next().unwrap();
        are_as_shown(type_in_order(&pod, &session, SHELL));
        pod.run(&["iottymux", "rm", "demo"]);
    }
}
