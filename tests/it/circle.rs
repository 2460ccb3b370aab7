//! No attach in a terminal that the app itself shows: its output would go round for ever.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use iottymux::types::size::Size;

use nix::unistd::geteuid;

use crate::installed::is_installed;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig};
use crate::skip::skip;
use crate::tmux::Tmux;

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
    types(&rig, "one", &attach("two"));
    eventually("the one shows the other", || {
        rig.run(&["status", "two"]).stdout.text().contains("client")
    });
    types(&rig, "two", &format!("{}; echo code $?", attach("one")));
    eventually("it is refused", || {
        let shown = logs(&rig, "two");
        shown.contains("its terminal shows this one") && shown.contains("code 1")
    });
    // A client elsewhere shows both.
    let local = Pty::open(20, 150);
    let _attach: Proc = local.spawn(rig.command(["attach", "one"]));
    local.shown.wait_for("its terminal shows this one");
    end(&rig, &["one", "two"]);
}

#[test]
fn nor_through_screen() {
    if !is_installed("screen") {
        return skip("screen", "it is not installed");
    }
    if !geteuid().is_root() {
        return skip("root", "only root sees what screen has open");
    }
    let rig = Rig::new();
    shell(&rig, "one");
    let dir = tempfile::Builder::new()
        .prefix("screen")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .unwrap();
    // screen has a screen of its own, so its output is not in the logs.
    let (why, over) = (rig.file("why"), rig.file("over"));
    let inside = format!("{} 2>{}", attach("one"), why.display());
    types(
        &rig,
        "one",
        &format!(
            "TERM=xterm SCREENDIR={} screen -c /dev/null sh -c '{inside}'; echo over >{}",
            dir.path().display(),
            over.display()
        ),
    );
    eventually("screen has ended", || over.exists());
    let why = fs::read_to_string(why).unwrap_or_default();
    assert!(why.contains("its terminal shows this one"), "{why} {}", logs(&rig, "one"));
    end(&rig, &["one"]);
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

/// The circle is closed by tmux, after `attach` has begun.
#[test]
fn a_circle_that_another_program_closes_is_broken() {
    let Some(tmux) = Tmux::start() else { return };
    let rig = Rig::new();
    shell(&rig, "one");
    let state = rig.state();
    let export = format!("export IOTTYMUX_STATE_DIR={} TERM=xterm-256color", state.display());
    let command = format!("{export}; {}; exec cat", attach("one"));
    let window = tmux.window(Size { rows: 20, cols: 150 }, "record", &command);
    window.wait_for("leaves");
    let socket = window.run(&["display-message", "-p"], &["#{socket_path}"]);
    let target = window.run(&["display-message", "-p"], &["#{window_id}"]);
    let line = format!(
        "TERM=xterm tmux -S {} attach ';' select-window -t {}",
        socket.trim(),
        target.trim()
    );
    types(&rig, "one", &line);
    eventually("tmux shows the window", || !window.run(&["list-clients"], &[]).trim().is_empty());
    // Sparks that go round: tmux draws its window anew.
    let cols = Cell::new(150);
    eventually("the circle is seen", || {
        cols.set(299 - cols.get());
        window.resize(Size { rows: 20, cols: cols.get() });
        window.text().contains("its terminal shows this one")
    });
    end(&rig, &["one"]);
}
