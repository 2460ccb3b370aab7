//! What people type out of habit: each guess does what it says, or the error names the way in one line.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::proc::Proc;
use crate::pty::Pty;
use crate::rig::{APP, Rig};

/// The guesses.
const TABLE: &str = include_str!("../habits.txt");
/// What works, for people.
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
    ("iottymux logs -u demo --grep '^[uU]p$'", Not("old")),
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

/// The table's rows: the guess, what is typed here, and what becomes of it.
fn rows() -> Vec<[&'static str; 3]> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cells = |line: &'static str| line.split(" | ").collect::<Vec<_>>().try_into();
    lines.map(|line| cells(line).unwrap_or_else(|_| panic!("{line}"))).collect()
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
    let in_table: BTreeSet<_> =
        rows.iter().filter(|row| !names_way(&row[2])).map(|row| row[1]).collect();
    let in_test: BTreeSet<_> = DOES.iter().map(|(typed, _)| *typed).collect();
    assert_eq!(in_table, in_test, "the table and this test differ");
    for (line, shows) in DOES {
        does(line, shows);
    }
    let (rig, _app) = scene();
    for [_, line, result] in rows.iter().filter(|row| names_way(&row[2])) {
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

/// The page shows each guess that works, and nothing else.
#[test]
fn the_page_shows_what_works() {
    let in_rows = PAGE.lines().filter(|line| line.starts_with("| ")).flat_map(|row| {
        let spans = row.split('`').skip(1).step_by(2);
        spans.filter(|span| *span != "iottymux").map(|span| format!("iottymux {span}"))
    });
    let in_page: BTreeSet<String> = in_rows.collect();
    let works: BTreeSet<String> = DOES.iter().map(|(typed, _)| (*typed).to_owned()).collect();
    let differ: Vec<_> = in_page.symmetric_difference(&works).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn the_table_has_all_programs() {
    let rows = rows();
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
        let of_program = |row: &[&str; 3]| row[0].starts_with(&format!("{program} "));
        assert!(rows.iter().any(of_program), "{program}");
    }
}
