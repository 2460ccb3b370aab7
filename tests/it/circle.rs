//! No attach in a terminal that the app itself shows: its output would go round for ever.

use iottymux::types::size::Size;

use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::Rig;
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
    // A spark that goes round.
    types(&rig, "one", "x");
    window.wait_for("its terminal shows this one");
    end(&rig, &["one"]);
}
