//! Real programs are driven by the scripts of `tests/scripts`, which have no pause.
//!
//! `IOTTYMUX_ROUNDS=200 IOTTYMUX_LOAD=8` runs each of them as often, beside so many busy processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::installed::is_installed;
use crate::proc::Proc;
use crate::rig::Rig;
use crate::skip::skip;

/// What the scripts have.
const HEAD: &str = r#"set -eu
fail() { echo "FAILED: $*" >&2; exit 1; }
is() { [ "$1" = "$2" ] || fail "expected: $1, got: $2"; }
contains() { case $2 in *"$1"*) ;; *) fail "expected: $1, in: $2" ;; esac; }
trap 'for app in $(iottymux list -q); do iottymux kill "$app" >&2 || true; done' EXIT
"#;

fn number(variable: &str, usual: u32) -> u32 {
    env::var(variable).ok().map_or(usual, |text| text.parse().expect("it is a number"))
}

/// Busy processes, until it is dropped.
struct Load(Vec<std::process::Child>);

impl Load {
    fn new(processes: u32) -> Self {
        let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..processes).map(busy).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a script once.
fn run(script: &Path) {
    let rig = Rig::new();
    let home = rig.file("home");
    fs::create_dir(&home).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_iottymux")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &(HEAD.to_owned() + &fs::read_to_string(script).unwrap())]);
    shell.env("PATH", path).env("IOTTYMUX_STATE_DIR", rig.state()).env("TERM", "xterm-256color");
    shell.env("HOME", &home).env("LANG", "C.UTF-8").env("PYTHONUTF8", "1").env_remove("TMUX");
    shell.current_dir(&home).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = Proc::spawn(shell);
    let code = shell.ends_within(std::time::Duration::from_secs(120));
    let (stdout, stderr) = (shell.stdout.text(), shell.stderr.text());
    assert_eq!(code, 0, "{}: {stdout}\n{stderr}", script.display());
}

#[test]
fn programs_are_driven_without_a_pause() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = fs::read_dir(scripts).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> = scripts.collect();
    scripts.sort();
    let only = env::var("IOTTYMUX_SCRIPT").ok();
    let _load = Load::new(number("IOTTYMUX_LOAD", 0));
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap();
        assert!(!text.contains("\nsleep"), "{} has a pause", script.display());
        let needs = text.lines().next().unwrap().strip_prefix("# needs: ").unwrap();
        let name = script.file_stem().unwrap().to_str().unwrap();
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        if !is_installed(needs) {
            skip(needs, "it is not installed");
            continue;
        }
        for _ in 0..number("IOTTYMUX_ROUNDS", 1) {
            run(&script);
        }
        println!("{name}: {} times", number("IOTTYMUX_ROUNDS", 1));
    }
}
