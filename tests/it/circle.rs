//! No attach in a terminal that the app itself shows: its output would go round for ever.

use std::fs;
use std::os::unix::fs::symlink;

use crate::installed::is_installed;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig};
use crate::skip::skip;

/// A shell that is an app with a terminal.
fn shell(rig: &Rig, name: &str) {
    let command = ["run", "--name", name, "--tty", "--detach", "--size", "20x150"];
    let mut keeper = rig.run(&[&command[..], &["--", "sh"]].concat());
    assert_eq!(keeper.ends(), 0, "{}", keeper.stderr.text());
}

/// Types a line at the app's terminal.
fn types(rig: &Rig, name: &str, line: &str) {
    assert_eq!(rig.run(&["send", name, line]).ends(), 0);
}

fn attach(name: &str) -> String {
    format!("{} attach {name}", env!("CARGO_BIN_EXE_iottymux"))
}

fn logs(rig: &Rig, name: &str) -> String {
    rig.run(&["logs", name]).stdout.text()
}

fn end(rig: &Rig, names: &[&str]) {
    for name in names {
        assert_eq!(rig.run(&["kill", name]).ends(), 0);
    }
}

#[test]
fn an_app_is_not_attached_in_its_own_terminal() {
    let rig = Rig::new();
    shell(&rig, "one");
    for option in ["", "--read-only", "--mode tty-in"] {
        types(&rig, "one", &format!("clear; {} {option}; echo code $?", attach("one")));
        eventually("it is refused", || {
            let shown = logs(&rig, "one");
            shown.contains("this terminal is its own") && shown.contains("\ncode 1\n")
        });
        types(&rig, "one", "clear; printf '\\033[3J'");
        eventually("all is cleared", || !logs(&rig, "one").contains("code"));
    }
    end(&rig, &["one"]);
}

/// What a pipe takes from the terminal comes back by another way, and nothing marks it.
#[test]
fn nor_with_its_output_elsewhere() {
    let rig = Rig::new();
    shell(&rig, "one");
    let file = rig.file("file");
    let one = attach("one");
    for line in [
        format!("({one}; echo code $? >&2) | cat"),
        format!("{one} >{}; echo code $?", file.display()),
        format!("({one} --mode tty-out; echo code $? >&2) | grep x"),
    ] {
        types(&rig, "one", &format!("clear; {line}; echo back"));
        eventually("it is refused", || {
            let shown = logs(&rig, "one");
            shown.contains("this terminal is its own")
                && shown.contains("\ncode 1\n")
                && shown.contains("\nback\n")
        });
        types(&rig, "one", "clear; printf '\\033[3J'");
        eventually("all is cleared", || !logs(&rig, "one").contains("code"));
    }
    // A file shows nothing here, and takes no key.
    types(&rig, "one", &format!("{one} --mode tty-out >{} & echo go", file.display()));
    eventually("it is attached", || fs::read_to_string(&file).is_ok_and(|it| it.contains("go")));
    end(&rig, &["one"]);
}

/// In a container the name of the app's terminal may be that of another one here.
#[test]
fn a_terminal_of_the_same_name_is_another_one() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let local = Pty::open(24, 80);
    let link = rig.path("stage2-pts");
    fs::remove_file(&link).unwrap();
    symlink(nix::unistd::ttyname(&local.slave).unwrap(), &link).unwrap();
    let mut attach = local.spawn(rig.command(["attach", "--app", APP]));
    local.shown.wait_for("ctrl-p ctrl-q leaves");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
}

#[test]
fn nor_through_another_app() {
    let rig = Rig::new();
    shell(&rig, "one");
    shell(&rig, "two");
    types(&rig, "one", &format!("{}; echo code $?", attach("two")));
    eventually("the one shows the other", || {
        rig.run(&["status", "two"]).stdout.text().contains("\nclient ")
    });
    types(&rig, "two", &format!("{}; echo code $?", attach("one")));
    // Whichever notices first ends, and then there is no circle for the other one.
    eventually("one of them is refused", || {
        ["one", "two"]
            .map(|app| logs(&rig, app))
            .iter()
            .any(|shown| shown.contains("its terminal shows this one") && shown.contains("code 1"))
    });
    // A client elsewhere shows both.
    let local = Pty::open(20, 150);
    let _attach: Proc = local.spawn(rig.command(["attach", "one"]));
    local.shown.wait_for("its terminal shows this one");
    end(&rig, &["one", "two"]);
}

/// Nothing tells which terminal such a program shows, as with ssh and sudo.
#[test]
fn nor_through_a_program_that_passes_bytes_on() {
    if !is_installed("script") {
        return skip("script", "it is not installed");
    }
    let rig = Rig::new();
    shell(&rig, "one");
    let (why, over) = (rig.file("why"), rig.file("over"));
    let inside = format!("{}; echo code $?", attach("one"));
    let line = format!("script -qc '{inside}' {}; echo >{}", why.display(), over.display());
    types(&rig, "one", &line);
    eventually("it is over", || over.exists());
    let why = fs::read_to_string(why).unwrap_or_default();
    let error = "iottymux: attached to app one: its terminal shows this one";
    assert!(why.contains(error) && why.contains("code 1"), "{why}");
    end(&rig, &["one"]);
}

/// tmux draws the screen anew, so the messages do not come back as they were.
#[test]
fn through_tmux_it_notices_nothing_and_its_keys_leave() {
    if !is_installed("tmux") {
        return skip("tmux", "it is not installed");
    }
    let rig = Rig::new();
    shell(&rig, APP);
    let (socket, over) = (rig.file("socket"), rig.file("over"));
    let inside = format!("{}; echo $? >{}", attach(APP), over.display());
    let tmux = format!("tmux -u -f /dev/null -S {} new-session", socket.display());
    types(&rig, APP, &format!("TERM=xterm-256color {tmux} '{inside}'"));
    eventually("it goes round", || rig.status()["streams"][0]["bytes"].as_u64() > Some(100_000));
    assert_eq!(rig.run(&["send", APP, "--keys", "C-p", "C-q"]).ends(), 0);
    eventually("it is over", || fs::read_to_string(&over).is_ok_and(|code| code == "0\n"));
    end(&rig, &[APP]);
}
