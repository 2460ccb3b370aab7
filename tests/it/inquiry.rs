//! Where no hook has told how the app ended, the mux of a unit asks systemd; here somebody else
//! answers in its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use iottymux::wire::FrameKind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};
use crate::session::{Session, told};

/// The mux of a unit, for which this script is systemctl; if there is one.
fn mux(rig: &Rig, systemctl: Option<&str>, change: impl FnOnce(&mut Command)) -> Proc {
    let bin = rig.file("bin");
    fs::create_dir(&bin).unwrap();
    if let Some(script) = systemctl {
        let path = bin.join("systemctl");
        fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = rig.command(["stream", "--app", APP]);
    command.env("PATH", &bin).env("INVOCATION_ID", "0123456789abcdef0123456789abcdef");
    change(&mut command);
    rig.start(command)
}

/// The last that a session is told when the mux is ended, and what the mux said on the way.
fn farewell(rig: &Rig, mut mux: Proc) -> (FrameKind, Value, String) {
    let mut session = Session::new(rig, &json!({"version": 1, "streams": [{"stream": "stdout"}]}));
    session.wait_told(FrameKind::Welcome);
    mux.signal(Signal::SIGTERM);
    let frames = session.rest();
    assert_eq!(mux.ends(), 0);
    let last: Value = serde_json::from_slice(&fs::read(rig.path("last.json")).unwrap()).unwrap();
    for kind in [FrameKind::Exit, FrameKind::Closing] {
        let body = last["status"].clone();
        if frames.last() == Some(&told(kind, body.clone())) {
            return (kind, body, mux.stderr.text());
        }
    }
    panic!("{frames:?} {last}");
}

fn shows(state: &str, code: &str, status: &str) -> String {
    format!("printf 'ActiveState={state}\\nExecMainCode={code}\\nExecMainStatus={status}\\n'")
}

fn warnings(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("iottymux: warn: app ")).collect()
}

#[test]
fn the_state_that_systemd_shows_is_reported() {
    for (script, status) in [
        (shows("inactive", "1", "0"), json!({"status": 0})),
        (shows("failed", "1", "3"), json!({"status": 3})),
        (shows("failed", "2", "9"), json!({"signal": 9})),
        (shows("active", "1", "3"), Value::Null),
        (shows("inactive", "0", "0"), Value::Null),
        // Somebody may still have the pipe when it has ended.
        (shows("failed", "1", "4") + "; sleep 60 2>/dev/null & exit 0", json!({"status": 4})),
    ] {
        let rig = Rig::new();
        let mux = mux(&rig, Some(&script), |_| {});
        let (kind, body, said) = farewell(&rig, mux);
        assert_eq!(
            (kind == FrameKind::Exit, &body),
            (!status.is_null(), &status),
            "{script}: {said}"
        );
        assert!(warnings(&said).is_empty(), "{said}");
    }
}

#[test]
fn an_unanswered_question_is_unknown_in_one_line() {
    for (systemctl, why) in [
        (Some("exit 1"), "systemctl: exit status: 1"),
        (Some("echo nonsense"), "no ActiveState in \"nonsense\\n\""),
        (Some("printf 'ActiveState=\\033[2J'"), "\\u{1b}[2J"),
        (Some("printf '\\377'"), "invalid utf-8"),
        (Some("head -c 60000 /dev/zero"), "no ActiveState in \"\\0\\0"),
        (Some("exec sleep 60"), "systemctl did not report in time how it ended"),
        (None, "cannot ask systemd how it ended: No such file"),
    ] {
        let rig = Rig::new();
        let mux = mux(&rig, systemctl, |_| {});
        let (kind, _, said) = farewell(&rig, mux);
        assert_eq!(kind, FrameKind::Closing, "{systemctl:?}");
        // No warning: while the system shuts down, nobody may be there to ask.
        let tells = |line: &&str| line.contains("app demo: ") && line.contains(why);
        assert_eq!(said.lines().filter(tells).count(), 1, "{systemctl:?}: {said}");
    }
}

#[test]
fn the_manager_that_started_the_mux_is_asked_and_no_other() {
    let asked = |change: &dyn Fn(&mut Command)| {
        let rig = Rig::new();
        let out = rig.file("asked");
        let script = format!("echo \"$NOTIFY_SOCKET$@\" >{}; exit 1", out.display());
        let mux = mux(&rig, Some(&script), change);
        farewell(&rig, mux);
        fs::read_to_string(out).unwrap_or_default()
    };
    let words = "show --property=ActiveState,ExecMainCode,ExecMainStatus -- demo.service\n";
    assert_eq!(asked(&|_| {}), words);
    let user = asked(&|command| {
        command.env("MANAGERPID", "1");
    });
    assert_eq!(user, format!("--user {words}"));
    // Started by hand, in a terminal that is a service: the variables are that one's.
    let inherited = asked(&|command| {
        command.env("SYSTEMD_EXEC_PID", "1");
    });
    assert_eq!(inherited, "");
    let none = asked(&|command| {
        command.env_remove("INVOCATION_ID");
    });
    assert_eq!(none, "");
}
