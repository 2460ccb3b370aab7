//! The pages of the book, done as they are written: the files of a page are written, and its commands
//! run in their order. The services that a page assumes are real programs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::installed::is_installed;
use crate::pod::{Plan, Pod, project_file};
use crate::proc::eventually;
use crate::skip::skip;

/// A server with commands on its stdin.
const SERVER: &str = r#"#!/bin/bash
echo server up
while read -r line; do
  case $line in
    say\ *) echo "[all] ${line#say }" ;;
    save-all) echo 'Saved the game' ;;
    stop) echo world saved; exit 0 ;;
    list) echo '2 players: ann bob' ;;
    *) echo "$line" ;;
  esac
done
"#;
/// A service that prints, and ends when it is asked to.
const WEB: &str = "[Service]\nExecStart=/bin/bash -c 'echo serving; exec sleep 1000'\n";

/// A fenced block: what is said before it, its kind, and its text.
pub(crate) type Block = (String, String, String);

/// The fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let text = project_file(&format!("docs/{page}.md"));
    let parts: Vec<&str> = text.split("\n```").collect();
    let block = |parts: &[&str]| {
        let (kind, text) = parts.get(1)?.split_once('\n')?;
        Some((parts[0].trim_end().to_owned(), kind.to_owned(), text.to_owned()))
    };
    parts.chunks(2).filter_map(block).collect()
}

/// The fenced blocks of one section of a page.
pub(crate) fn section(page: &str, heading: &str) -> Vec<Block> {
    let mut current = String::new();
    let mut blocks = blocks(page);
    blocks.retain(|(before, ..)| {
        let mut headings = before.lines().rev().filter_map(|line| line.strip_prefix("## "));
        current = headings.next().map_or_else(|| current.clone(), str::to_owned);
        current == heading
    });
    blocks
}

/// The path and the text of a block that is a file: the path is said just before it, or is in its
/// first line.
pub(crate) fn file_in<'a>(
    before: &'a str,
    kind: &str,
    text: &'a str,
) -> Option<(&'a str, &'a str)> {
    let path = |path: &&str| path.starts_with('/') && kind != "console";
    let said = before.strip_suffix("`:").and_then(|before| before.rsplit('`').next()).filter(path);
    if let Some(path) = said {
        return Some((path, text));
    }
    let (first, rest) = text.split_once('\n')?;
    Some((first.strip_prefix("# ").filter(path)?, rest))
}

/// Writes the files of a page, and runs its commands. Each command must succeed. What all have
/// printed.
fn follow(pod: &Pod, page: &str) -> String {
    follow_blocks(pod, &blocks(page))
}

/// The same for some blocks of a page.
pub(crate) fn follow_blocks(pod: &Pod, blocks: &[Block]) -> String {
    let (mut said, mut done) = (String::new(), 0);
    for (before, kind, text) in blocks {
        if let Some((path, text)) = file_in(before, kind, text) {
            let path = pod.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        } else if kind == "console" {
            for command in text.lines().filter_map(|line| line.strip_prefix("# ")) {
                said += &pod.run(&["sh", "-c", &format!("exec 2>&1; {command}")]);
                done += 1;
            }
        }
    }
    assert!(done > 0, "there are no commands");
    said
}

fn with_program(plan: Plan, path: &str) -> Plan {
    plan.root_program(path, SERVER).root_mode(path, 0o755)
}

#[test]
fn game_servers() {
    let Some(plan) = Plan::new() else { return };
    let pod = with_program(plan, "srv/minecraft/server").boot();
    fs::create_dir(pod.path("/srv/minecraft/world")).unwrap();
    let said = follow(&pod, "game-servers");
    assert!(said.contains("[all] hello"), "{said}");
    let saved = pod.run(&["sh", "-c", "ls /var/backups"]);
    assert!(saved.starts_with("minecraft-"), "{saved}");
    let logs = || pod.run(&["iottymux", "logs", "minecraft"]);
    eventually("saving is on again", || logs().lines().last() == Some("save-on"));
    // It stops by its own command.
    pod.systemctl(&["stop", "minecraft"]);
    assert!(logs().ends_with("world saved\n"), "{}", logs());
    // Its mux ends after it.
    eventually("its end is told", || {
        let ended = pod.run(&["iottymux", "status", "minecraft"]);
        ended.starts_with("app minecraft: ended with status 0")
    });
}

#[test]
fn screen_and_tmux() {
    let Some(plan) = Plan::new() else { return };
    let pod = with_program(plan, "srv/bot/bot").boot();
    let said = follow(&pod, "screen-and-tmux");
    assert!(said.contains("bot.service can be attached"), "{said}");
    let shown = || {
        pod.run(&["sh", "-c", "timeout 1 iottymux attach bot --mode tty-out --from start || true"])
    };
    eventually("the bot has the line", || shown().matches("reload").count() > 1);
    pod.systemctl(&["stop", "bot"]);
}

/// Each line that the page shows is printed.
#[test]
fn automation() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/srv/game\n";
    let pod = with_program(plan.unit("game.service", unit), "srv/game").boot();
    pod.systemctl(&["start", "game"]);
    let said = follow(&pod, "automation");
    let shown = blocks("automation").into_iter().filter(|(_, kind, _)| kind == "console");
    let shown: Vec<String> = shown.map(|(.., text)| text).collect();
    let answers: Vec<&str> =
        shown.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with("# ")).collect();
    assert!(said.ends_with(&(answers.join("\n") + "\n")), "{said}");
}

/// A full-screen program, seen by somebody who comes later.
#[test]
fn terminal_service() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    let said = follow(&pod, "terminal-service");
    assert!(said.ends_with("active\n"), "{said}");
    let screen = || pod.run(&["iottymux", "logs", "board"]);
    eventually("it draws", || screen().contains("load average"));
    let mut attach =
        pod.talk(&["timeout", "20", "script", "-qec", "iottymux attach board", "/dev/null"]);
    attach.stdout.wait_for("load average");
    let mut keys = attach.stdin();
    keys.write_all(b"\x10\x11").unwrap();
    attach.stdout.wait_for("detached from app board");
    assert_eq!(attach.ends(), 0);
    pod.run(&["systemctl", "is-active", "board"]);
    pod.run(&["iottymux", "disable", "--now", "board"]);
}

#[test]
fn logrotate() {
    if !is_installed("logrotate") {
        return skip("logrotate", "it is not installed");
    }
    let Some(plan) = Plan::new() else { return };
    let plan = plan.unit("web.service", WEB).root_file("var/lib/logrotate/README", "");
    let pod = plan.boot();
    let said = follow(&pod, "logrotate");
    assert!(said.contains("log.1"), "{said}");
    let exists = || pod.path("/var/log/iottymux/web/log").exists();
    eventually("the mux has made the new file", exists);
    assert!(pod.run(&["iottymux", "logs", "web"]).contains("serving"));
}

#[test]
fn collectors() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("web.service", WEB).boot();
    let said = follow(&pod, "collectors");
    assert!(said.ends_with(" stdout F serving\n"), "{said}");
}

#[test]
fn ansible() {
    if !is_installed("ansible-playbook") {
        return skip("ansible-playbook", "it is not installed");
    }
    let Some(plan) = Plan::new() else { return };
    let game = "[Service]\nExecStart=/bin/bash -c 'exec sleep 1000'\n";
    let pod = plan.unit("web.service", WEB).unit("game.service", game).boot();
    let said = follow(&pod, "ansible");
    let runs: Vec<&str> = said.lines().filter(|line| line.contains("unreachable=")).collect();
    let [first, second] = runs[..] else { panic!("{said}") };
    assert!(first.contains("changed=1") && second.contains("changed=0"), "{said}");
    assert!(said.contains("web.service has its own streams again"), "{said}");
}

#[test]
fn prometheus() {
    if !is_installed("jq") {
        return skip("jq", "it is not installed");
    }
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", WEB).boot();
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    let said = follow(&pod, "prometheus");
    assert!(said.contains("iottymux_app_state{app=\"game\",state=\"running\"} 1\n"), "{said}");
    assert!(said.contains("game\trunning\t"), "{said}");
    let written = pod.path("/var/lib/prometheus/node-exporter/iottymux.prom");
    let text = || fs::read_to_string(&written).unwrap_or_default();
    eventually("the timer has written the metrics", || text().contains("iottymux_app_state{"));
    assert_eq!(fs::metadata(&written).unwrap().permissions().mode() & 0o004, 0o004);
}

#[test]
fn troubleshooting() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("demo.service", WEB).boot();
    pod.run(&["iottymux", "enable", "demo", "--stdout", "stream", "--now"]);
    let said = follow(&pod, "troubleshooting");
    assert!(said.contains("app demo: running"), "{said}");
    assert!(said.contains("continuing where the previous mux was"), "{said}");
}

/// The command by which all services have their own streams again.
#[test]
fn removing() {
    let command = "iottymux disable --all --now";
    assert!(project_file("docs/install.md").contains(&format!("`{command}`")));
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("demo.service", WEB).boot();
    pod.run(&["iottymux", "enable", "demo", "--stdout", "stream", "--now"]);
    let said = pod.run(&["sh", "-c", &format!("exec 2>&1; {command}")]);
    assert!(said.contains("demo.service has its own streams again"), "{said}");
}

/// Each link of a page leads to a file.
#[test]
fn links() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut found = 0;
    for dir in ["", "docs", "docs/dev"] {
        for entry in fs::read_dir(format!("{root}/{dir}")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = link.split('#').next().unwrap();
                if file.is_empty() || link.contains("://") || link.contains(char::is_whitespace) {
                    continue;
                }
                assert!(path.parent().unwrap().join(file).exists(), "{}: {link}", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 50, "{found}");
}
