//! `logs` of an app that has no log file: from the journal, by a journalctl that the test makes, or
//! from what the mux keeps of the output.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::proc::Proc;
use crate::rig::{APP, Rig};
use crate::users::{as_user, shared_rig};

/// Runs it, and returns what it prints on both outputs; it must succeed.
fn says(rig: &Rig, options: &[&str]) -> (String, String) {
    let mut logs = rig.run(&[&["logs", APP], options].concat());
    assert_eq!(logs.ends(), 0, "{options:?}: {}", logs.stderr.so_far());
    (logs.stdout.text(), logs.stderr.text())
}

/// As with grep, no line that matches is a failure that nothing is said of.
#[track_caller]
fn has_no_match(logs: &mut Proc) {
    let code = logs.ends();
    assert_eq!((code, logs.stdout.text(), logs.stderr.text()), (1, String::new(), String::new()));
}

#[test]
fn the_mux_has_the_output_of_an_app_without_a_log() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let (mut stdout, mut stderr) = (rig.writer("stdout"), rig.writer("stderr"));
    let seen = rig.attach(&["--mode", "stdout,stderr"]);
    stdout.write_all(b"one\ntwo\nTwo\nthr").unwrap();
    stderr.write_all(b"oh\n").unwrap();
    seen.stdout.wait_for("thr");
    seen.stderr.wait_for("oh\n");
    assert_eq!(says(&rig, &[]), ("one\ntwo\nTwo\nthr".into(), "oh\n".into()));
    assert_eq!(says(&rig, &["--stream", "stdout", "-n", "2"]), ("Two\nthr".into(), String::new()));
    assert_eq!(says(&rig, &["--grep", "^two"]).0, "two\nTwo\n");
    has_no_match(&mut rig.run(&["logs", APP, "--grep", "^wo"]));
    for option in [&["--since", "1h"][..], &["-t"], &["--until", "1h"]] {
        let mut logs = rig.run(&[&["logs", APP], option].concat());
        assert_eq!(logs.ends(), 1);
        let said = logs.stderr.text();
        assert!(said.contains("needs the times of lines: the mux of app demo does not"), "{said}");
    }

    let json = says(&rig, &["--json", "-n", "2", "--stream", "stdout"]).0;
    let line = |text: &str| format!("{{\"stream\":\"stdout\",\"text\":\"{text}\"}}\n");
    assert_eq!(json, line("Two") + &line("thr"));

    let mut following = rig.run(&["logs", APP, "-f", "-n", "1", "--stream", "stdout"]);
    following.stdout.wait_for("Two\n");
    stdout.write_all(b"ee\nfour\n").unwrap();
    following.stdout.wait_for("four\n");
    drop((stdout, stderr));
    mux.signal(Signal::SIGTERM);
    mux.ends();
    assert_eq!((following.ends(), following.stdout.text()), (0, "Two\nthree\nfour\n".into()));
    // What it has left.
    assert_eq!(says(&rig, &["-n", "1", "--stream", "stdout"]).0, "four\n");
    has_no_match(&mut rig.run(&["logs", APP, "--grep", "five"]));
    assert_eq!(says(&rig, &[]).1, "oh\n");
}

#[test]
fn a_terminal_without_a_log() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let seen = rig.attach(&["--mode", "tty-out"]);
    rig.slave().write_all(b"one\r\n\x1b[1mup\x1b[m\r\nready\r\n").unwrap();
    seen.stdout.wait_for("ready\r\n");
    // It prints the lines that the terminal shows, with their colours.
    let lines = "\x1b[0;1mup\x1b[0m\nready\n";
    assert_eq!(says(&rig, &["-n", "2"]), (lines.into(), String::new()));
}

/// A journalctl that has these entries after any cursor but the last one, and keeps its arguments.
/// It begins with the last lines, or with --since at that time, as the real one.
const JOURNALCTL: &str = r#"#!/bin/sh
echo "$*" >>"$0.calls"
entries() {
  echo '{"__CURSOR":"c1","__REALTIME_TIMESTAMP":"1577836801000000","MESSAGE":"up"}'
  echo '{"__CURSOR":"c2","__REALTIME_TIMESTAMP":"1577836802500000","MESSAGE":[111,104,255],"IOTTYMUX_STREAM":"stderr"}'
  echo '{"__CURSOR":"c3","__REALTIME_TIMESTAMP":"1577836803000000","MESSAGE":"ready","IOTTYMUX_STREAM":"stdout"}'
}
case $* in
*--sync*) ;;
*--after-cursor=c3*--follow* | *--follow*--after-cursor=c3*)
  echo '{"__CURSOR":"c4","__REALTIME_TIMESTAMP":"1577836804000000","MESSAGE":"new"}'
  exec sleep 1000 ;;
*--after-cursor=c4*)
  echo '{"__CURSOR":"c5","__REALTIME_TIMESTAMP":"1577836805000000","MESSAGE":"bye"}' ;;
*--lines=2*--since=*) entries | head -n 2 ;;
*--lines=2*) entries | tail -n 2 ;;
*)
  entries
  echo '-- No entries --' ;;
esac
"#;

/// A mux without output streams: then the service has them in the journal.
struct Journal {
    rig: Rig,
    mux: Proc,
}

impl Journal {
    fn new() -> Self {
        let rig = Rig::new();
        fs::create_dir(rig.file("bin")).unwrap();
        let journalctl = rig.file("bin/journalctl");
        fs::write(&journalctl, JOURNALCTL).unwrap();
        fs::set_permissions(&journalctl, Permissions::from_mode(0o755)).unwrap();
        let mux = rig.mux(["stream", "--app", APP, "--streams", "stdin"]);
        Self { rig, mux }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.rig.command([&["logs", APP], options].concat());
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.rig.file("bin").display()));
        command
    }

    fn says(&self, options: &[&str]) -> (Vec<u8>, Vec<u8>) {
        let mut logs = Proc::spawn(self.command(options));
        assert_eq!(logs.ends(), 0, "{options:?}: {}", logs.stderr.so_far());
        (logs.stdout.bytes(), logs.stderr.bytes())
    }

    /// The arguments of journalctl in the last run.
    fn asked(&self) -> String {
        let calls = fs::read_to_string(self.rig.file("bin/journalctl.calls")).unwrap();
        calls.lines().last().unwrap().to_owned()
    }
}

#[test]
fn the_journal_has_the_lines_of_a_service() {
    let journal = Journal::new();
    assert_eq!(journal.says(&[]), (b"up\nready\n".to_vec(), b"oh\xff\n".to_vec()));
    let asked = journal.asked();
    let entries = "_SYSTEMD_UNIT=demo.service + _UID=0 OBJECT_SYSTEMD_UNIT=demo.service";
    if nix::unistd::Uid::effective().is_root() {
        assert!(asked.ends_with(entries), "{asked}");
    }
    assert_eq!(journal.says(&["-n", "2"]), (b"ready\n".to_vec(), b"oh\xff\n".to_vec()));
    assert!(journal.asked().contains(" --lines=2 "));
    // Some options are not journalctl's, or mean another thing there.
    let since = &["-n", "2", "--since", "2020-01-01T00:00:00.25Z"];
    assert_eq!(journal.says(since), (b"ready\n".to_vec(), b"oh\xff\n".to_vec()));
    assert!(journal.asked().contains(" --since=@1577836800.250000 "));
    assert_eq!(journal.says(&["-n", "1", "--stream", "stdout"]).0, b"ready\n");
    assert!(!journal.asked().contains("--lines"));
    has_no_match(&mut Proc::spawn(journal.command(&["--grep", "^UP$"])));
    assert_eq!(journal.says(&["--grep", "^u"]).0, b"up\n");
    let stamped = journal.says(&["-t", "--stream", "stderr"]).1;
    assert_eq!(stamped, b"2020-01-01T00:00:02.500000Z oh\xff\n");
    let json = journal.says(&["--json", "-n", "1", "--stream", "stdout"]).0;
    let want =
        "{\"time\":\"2020-01-01T00:00:03.000000Z\",\"stream\":\"stdout\",\"text\":\"ready\"}\n";
    assert_eq!(json, want.as_bytes());
}

#[test]
fn new_lines_in_the_journal_until_the_app_ends() {
    let mut journal = Journal::new();
    let mut logs = Proc::spawn(journal.command(&["-f", "-n", "1", "--stream", "stdout"]));
    logs.stdout.wait_for("ready\nnew\n");
    let ended = Command::new(env!("CARGO_BIN_EXE_iottymux"))
        .args(["control", "--app", APP, "ended"])
        .env("IOTTYMUX_STATE_DIR", journal.rig.state())
        .envs([("SERVICE_RESULT", "success"), ("EXIT_CODE", "exited"), ("EXIT_STATUS", "0")])
        .status();
    assert!(ended.unwrap().success());
    journal.mux.signal(Signal::SIGTERM);
    journal.mux.ends();
    assert_eq!((logs.ends(), logs.stdout.text()), (0, "ready\nnew\nbye\n".into()));
}

/// The mux lets this user in, so the output is no secret.
#[test]
fn a_user_who_may_not_read_the_log_gets_the_backlog() {
    let Some(rig) = shared_rig() else { return };
    let log = format!("cri:{}", rig.file("closed/log").display());
    fs::create_dir(rig.file("closed")).unwrap();
    fs::set_permissions(rig.file("closed"), Permissions::from_mode(0o700)).unwrap();
    let _mux = rig.mux(["stream", "--app", APP, "--log", &log, "--allow-uid", "54321"]);
    rig.writer("stdout").write_all(b"up\nready\n").unwrap();
    // The document that names the log may be readable, unlike the log.
    for mode in [0o600, 0o644] {
        fs::set_permissions(rig.path("logs"), Permissions::from_mode(mode)).unwrap();
        let mut command = as_user(&rig, 54321, "", &rig.file("iottymux"));
        command.args(["logs", APP]);
        let mut logs = Proc::spawn(command);
        assert_eq!(logs.ends(), 0, "{}", logs.stderr.so_far());
        assert_eq!(logs.stdout.text(), "up\nready\n");
        let said = logs.stderr.text();
        let why = "user 54321 may not read the log of app demo; these lines are what the mux keeps";
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
}
