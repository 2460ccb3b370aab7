//! docs/habits.md: each guess does what it says, or the error names the way in one line.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::proc::Proc;
use crate::pty::Pty;
use crate::rig::{APP, Rig};

/// The table.
const PAGE: &str = include_str!("../../docs/habits.md");
/// What the app of the table says, and then of each line that it reads.
const SCRIPT: &str = "echo old; echo up; while read x; do echo \"got $x\"; done";

/// How a command of the table is known to have done it.
enum Shows {
    /// It ends, and has shown this.
    AtEnd(&'static str),
    /// It shows this and goes on.
    ThenStays(&'static str),
    /// It ends without this.
    Not(&'static str),
}
use Shows::{AtEnd, Not, ThenStays};

const DOES: &[(&str, Shows)] = &[
    ("iottymux attach demo", ThenStays("up")),
    ("iottymux attach --detach-keys ctrl-x,x demo", ThenStays("up")),
    ("iottymux attach -r demo", ThenStays("up")),
    ("iottymux attach --read-only demo", ThenStays("up")),
    ("iottymux attach", ThenStays("up")),
    ("iottymux logs demo", AtEnd("up")),
    ("iottymux logs -f demo", ThenStays("up")),
    ("iottymux logs -n 1 demo", Not("old")),
    ("iottymux logs --tail=1 demo", Not("old")),
    ("iottymux logs --lines 1 demo", Not("old")),
    ("iottymux logs --tail all demo", AtEnd("old")),
    ("iottymux logs -t demo", AtEnd("Z up")),
    ("iottymux logs --timestamps demo", AtEnd("Z up")),
    ("iottymux logs --since 10m demo", AtEnd("up")),
    ("iottymux logs --since=2020-01-01T00:00:00Z demo", AtEnd("up")),
    ("iottymux logs --until 10m demo", Not("up")),
    ("iottymux logs -u demo -f", ThenStays("up")),
    ("iottymux logs --unit=demo -n 20", AtEnd("up")),
    ("iottymux logs -u demo --since yesterday", AtEnd("up")),
    ("iottymux logs -u demo -S '2020-11-21 21:00' -U now", AtEnd("up")),
    ("iottymux logs -u demo --since -1h", AtEnd("up")),
    ("iottymux logs -u demo --grep '^U[pP]$'", Not("up")),
    ("iottymux logs -u demo -g '^u.$' -n 5", Not("old")),
    ("iottymux logs -u demo --json", AtEnd("\"text\":\"up\"")),
    ("iottymux run -d --name web true", AtEnd("web")),
    ("iottymux run -it echo up", AtEnd("up")),
    ("iottymux run --rm true", AtEnd("")),
    ("iottymux run echo up", AtEnd("up")),
    ("iottymux wait demo", ThenStays("")),
    ("iottymux stop demo", AtEnd("demo ended by signal 15")),
    ("iottymux stop -t 1 demo", AtEnd("demo ended by signal 15")),
    ("iottymux kill demo", AtEnd("demo ended by signal 9")),
    ("iottymux kill -s TERM demo", Not("demo")),
    ("iottymux kill --signal=SIGTERM demo", Not("demo")),
    ("iottymux rm -f demo", AtEnd("demo")),
    ("iottymux rm -f $(iottymux ps -q)", AtEnd("removed app demo")),
    ("iottymux send demo reload", AtEnd("")),
    ("iottymux completion bash", AtEnd("complete -")),
    ("iottymux list", AtEnd("demo")),
    ("iottymux ls", AtEnd("demo")),
    ("iottymux ps", AtEnd("demo")),
    ("iottymux ps -a", AtEnd("demo")),
    ("iottymux ps -q", AtEnd("demo")),
    ("iottymux list --json", AtEnd("\"app\":\"demo\"")),
    ("iottymux attach dem", ThenStays("up")),
    ("iottymux status demo", AtEnd("app demo: running")),
];

/// The table's rows: what is typed, and what becomes of it.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cells = |line: &'static str| -> Option<(&str, &str)> {
        let cells: Vec<_> = line.split(" | ").collect();
        let [_, typed, result] = cells[..] else { return None };
        Some((typed.strip_prefix('`')?.strip_suffix('`')?, result.trim_end_matches(" |")))
    };
    PAGE.lines().filter_map(cells).collect()
}

/// An app with a log.
fn scene() -> (Rig, Proc) {
    let rig = Rig::new();
    let log = format!("--log=cri:{}", rig.file("log").display());
    let app = rig.mux(["run", "--foreground", "--app", APP, &log, "--", "sh", "-c", SCRIPT]);
    let mut logs = rig.command(["logs", APP, "-f"]);
    logs.stdin(Stdio::null());
    Proc::spawn(logs).stdout.wait_for("up");
    (rig, app)
}

/// The line as a shell runs it.
fn typed(rig: &Rig, line: &str) -> Command {
    let inner = rig.command(["list"]);
    let dir = Path::new(env!("CARGO_BIN_EXE_iottymux")).parent().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {line}")]).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", format!("{}:/usr/bin:/bin", dir.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn each_guess_does_it_or_names_the_way() {
    let rows = rows();
    let names_way = |result: &&str| result.starts_with("names `");
    let in_page: BTreeSet<_> =
        rows.iter().filter(|(_, result)| !names_way(result)).map(|(typed, _)| *typed).collect();
    let in_test: BTreeSet<_> = DOES.iter().map(|(typed, _)| *typed).collect();
    assert_eq!(in_page, in_test, "the page and this test differ");
    for (line, shows) in DOES {
        does(line, shows);
    }
    let (rig, _app) = scene();
    for (line, result) in rows.iter().filter(|(_, result)| names_way(result)) {
        let mut said = Proc::spawn(typed(&rig, line));
        let code = said.ends();
        assert!(code == 1 || code == 2, "{line}: {}", said.stdout.so_far());
        let text = said.stderr.text();
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
        for way in result.split('`').skip(1).step_by(2) {
            assert!(text.contains(way), "{line}: {text}");
        }
        let help = text.trim_end().rsplit_once("try ").unwrap_or_default().1;
        assert!(
            (code == 1 || help.ends_with("--help")) && !help.contains('\u{1b}'),
            "{line}: {text}"
        );
    }
}

/// Runs a line at a terminal, as a person does.
fn does(line: &str, shows: &Shows) {
    let (rig, _app) = scene();
    let local = Pty::open(24, 80);
    let mut process = local.spawn(typed(&rig, line));
    match shows {
        ThenStays(text) => return local.shown.wait_for(text),
        AtEnd(text) => local.shown.wait_for(text),
        Not(_) => {}
    }
    assert_eq!(process.ends(), 0, "{line}: {}", local.shown.so_far());
    if let Not(text) = shows {
        // Everything that it has written is read before this.
        let mut end = Command::new("echo");
        end.arg("the end");
        let mut end = local.spawn(end);
        local.shown.wait_for("the end");
        assert_eq!(end.ends(), 0);
        let shown = local.shown.so_far();
        assert!(!shown.lines().any(|shown| shown == *text), "{line}: {shown}");
    }
}

/// A page is found, and its table is not empty.
#[test]
fn the_table_has_all_programs() {
    let there: Vec<_> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(there.len(), rows().len(), "a row has another form");
    for program in [
        "docker",
        "kubectl",
        "podman",
        "tmux",
        "screen",
        "shpool",
        "systemctl",
        "journalctl",
        "machinectl",
    ] {
        assert!(there.iter().any(|row| row.contains(&format!("`{program} "))), "{program}");
    }
}
