//! The lines that scrolled off an app's screen: at attach, in `logs`, and over a restart of the mux.

use std::collections::HashSet;
use std::io::Write;

use iottymux::core::wire::FrameKind;
use iottymux::types::size::Size;
use serde_json::json;

use crate::proc::eventually;
use crate::pty::Pty;
use crate::rig::{APP, Rig};
use crate::run::change_mux;
use crate::session::{Frame, Session};
use crate::tmux::{Tmux, Window};

const SIZE: Size = Size { rows: 10, cols: 150 };

/// The first two words of each line that the terminal has, also above its screen. Messages of
/// `attach` are at the right.
fn lines(window: &Window) -> Vec<String> {
    let text = window.run(&["capture-pane", "-p", "-S", "-"], &[]);
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect()
}

/// A command on a terminal, in the background.
fn run_on_terminal(rig: &Rig, options: &[&str], script: &str) {
    let command = ["run", "--app", APP, "--tty", "--detach"];
    let mut keeper = rig.run(&[&command, options, &["--", "sh", "-c", script]].concat());
    assert_eq!(keeper.ends(), 0, "{}", keeper.stderr.text());
}

fn numbered(name: &str, numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| format!("{name} {number}")).collect()
}

/// A shell with text in a terminal, which then runs this.
fn shell(tmux: &Tmux, rig: &Rig, line: &str) -> Window {
    let attach = format!("{} attach --app {APP}", env!("CARGO_BIN_EXE_iottymux"));
    let command = format!(
        "export IOTTYMUX_STATE_DIR={} IOTTYMUX_RECONNECT=0; seq -f 'shell %g' 25; {}; exec cat",
        rig.state().display(),
        line.replace("ATTACH", &attach)
    );
    tmux.window(SIZE, "record", &command)
}

#[test]
fn the_lines_above_the_screen_come_first_and_nothing_is_wiped() {
    let Some(tmux) = Tmux::start() else { return };
    // In the last case there is text below the cursor.
    for (line, first) in
        [("ATTACH", 1), ("ATTACH --no-history", 52), ("printf '\\033[4A'; ATTACH", 1)]
    {
        let rig = Rig::new();
        let _mux = rig.mux(["tty", "--app", APP, "--size", "10x150"]);
        let mut app = rig.slave();
        for line in numbered("app", 1..=60) {
            app.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        }
        eventually("the mux has all", || rig.status()["streams"][0]["bytes"].as_u64() > Some(470));
        let window = shell(&tmux, &rig, line);
        window.wait_for("app 60");
        // The app goes on where it was.
        app.write_all(b"app 61\r\n").unwrap();
        window.wait_for("app 61");
        let want = [numbered("shell", 1..=25), numbered("app", first..=61)].concat();
        let shown: Vec<String> = lines(&window)
            .into_iter()
            .filter(|line| line.starts_with("app") || line.starts_with("shell"))
            .collect();
        assert_eq!(shown, want, "{line}");
    }
}

#[test]
fn a_terminal_without_a_log_has_lines_for_logs() {
    let rig = Rig::new();
    let script = "seq -f 'line %g' 100; printf '\\033[31mred\\033[m end'; exec sleep 1000";
    run_on_terminal(&rig, &["--scrollback", "5"], script);
    let logs = |options: &[&str]| {
        let mut logs = rig.run(&[&["logs", "--app", APP], options].concat());
        (logs.ends(), logs.stdout.text(), logs.stderr.text())
    };
    eventually("all is there", || logs(&[]).1.ends_with("end\n"));
    // Those on the screen count, too.
    let colours = "line 97\nline 98\nline 99\nline 100\n\x1b[0;31mred\x1b[0m end\n";
    assert_eq!(logs(&[]).1, colours);
    assert_eq!(logs(&["--tail", "2", "--grep", "9"]).1, "line 98\nline 99\n");
    assert_eq!(logs(&["--grep", "line 1$"]), (1, String::new(), String::new()));
    let (code, _, why) = logs(&["--since", "-1h"]);
    assert!(code == 1 && why.contains("--since needs the times of lines"), "{why}");
    // No output was seen by that.
    assert_ne!(rig.status()["streams"][0]["unseen"], 0);
    assert_eq!(rig.run(&["kill", APP]).ends(), 0);
    eventually("its mux has ended", || !rig.exists("endpoints"));
    let last = logs(&[]).1;
    assert!(last.contains("line 1\r\nline 2\r\n") && last.contains("red"), "{last}");
}

#[test]
fn the_lines_of_the_backlog_survive_another_mux() {
    let rig = Rig::new();
    let script = "seq -f 'line %g' 2000; exec sleep 1000";
    run_on_terminal(&rig, &[], script);
    let logs = || rig.run(&["logs", "--app", APP]).stdout.text();
    eventually("all is there", || logs().ends_with("line 2000\n"));
    let want = numbered("line", 1001..=2000).join("\n") + "\n";
    assert!(logs() == want, "{}", logs());
    for asks in [true, false] {
        change_mux(&rig, asks);
        assert!(logs() == want, "{}", logs());
    }
    assert_eq!(rig.run(&["kill", APP]).ends(), 0);
}

/// A client that does not ask for them gets no such lines.
#[test]
fn lines_above_the_screen_are_for_those_who_ask() {
    let rig = Rig::new();
    let _mux = rig.mux(["tty", "--app", APP, "--size", "3x20"]);
    rig.slave().write_all(b"1\r\n2\r\n3\r\n4\r\n5").unwrap();
    eventually("the mux has all", || rig.status()["streams"][0]["bytes"] == 13);
    let mut hello =
        json!({"version": 1, "streams": [{"stream": "tty", "from": "now"}], "redraw": "screen"});
    for asks in [false, true] {
        if asks {
            hello["history"] = json!("before");
        }
        let mut session = Session::new(&rig, &hello);
        assert_eq!(session.wait_told(FrameKind::Welcome)["history"] == true, asks);
        let frames =
            session.rest_until(|frames| frames.iter().any(|f| matches!(f, Frame::Screen(_))));
        let Some(Frame::Screen(screen)) = frames.last() else { panic!("{frames:?}") };
        let screen = String::from_utf8_lossy(screen);
        assert_eq!(screen.contains("1\r\n2\r\n\n\n\x18"), asks, "{screen:?}");
        assert!(screen.contains('5'), "{screen:?}");
    }
}

/// A terminal that keeps reading gets each line. Its patience is a part of the mux's.
#[test]
fn a_terminal_that_reads_gets_all_of_a_flood() {
    const COUNT: u32 = 200_000;
    let rig = Rig::new();
    let local = Pty::open(24, 80);
    let count = COUNT.to_string();
    let command = ["run", "--name", APP, "--tty", "--attach", "--max-client-delay", "60"];
    let command = rig.command([&command[..], &["--", "seq", "1", &count]].concat());
    let mut attach = local.spawn(command);
    assert_eq!(attach.ends(), 0);
    // The terminal may still have to show what attach has written.
    local.shown.wait_for(&format!("\r\n{COUNT}\r\n"));
    // A notice of attach lies over the output, between a saved and a restored cursor; it may come in
    // the middle of a number.
    let all = local.shown.so_far();
    let output = |part| str::split_once(part, "\x1b8").map_or(part, |(_, output)| output);
    let shown: String = all.split("\x1b7").map(output).collect();
    let shown: HashSet<&str> = shown.split(|c: char| !c.is_ascii_digit()).collect();
    let missing = (1..=COUNT).filter(|number| !shown.contains(&*number.to_string()));
    assert_eq!(missing.collect::<Vec<_>>(), [0; 0]);
}

/// One that does not read delays the app for a moment only, and it is counted what it did not get.
#[test]
fn what_a_terminal_does_not_read_is_counted() {
    let rig = Rig::new();
    let _mux = rig.mux(["tty", "--app", APP, "--max-client-delay", "0.1"]);
    let mut app = rig.slave();
    let hello = json!({"version": 1, "streams": [{"stream": "tty"}], "redraw": "screen"});
    let mut session = Session::new(&rig, &hello);
    session.wait_told(FrameKind::Redraw);
    let skipped = || rig.status()["clients"][0]["streams"][0]["skipped"].as_u64().unwrap_or(0);
    assert_eq!(skipped(), 0);
    app.write_all(&b"a line of the app\r\n".repeat(100_000)).unwrap();
    app.write_all(b"the end").unwrap();
    session.read_until(|frames| {
        let ends = |bytes: &[u8]| bytes.windows(7).any(|part| part == b"the end");
        frames.iter().any(
            |frame| matches!(frame, Frame::Screen(bytes) | Frame::Bytes(_, bytes) if ends(bytes)),
        )
    });
    assert!(skipped() > 500_000, "{}", skipped());
    assert!(rig.run(&["status", APP]).stdout.text().contains(" skipped)"));
}

/// So a client that asks for lines gets those of the screen alone.
#[test]
fn with_a_scrollback_of_no_lines_none_is_kept() {
    for (lines, is_kept) in [("0", false), ("5", true)] {
        let rig = Rig::new();
        let _mux = rig.mux(["tty", "--app", APP, "--size", "3x20", "--scrollback", lines]);
        rig.slave().write_all(b"1\r\n2\r\n3\r\n4\r\n5").unwrap();
        eventually("the mux has all", || rig.status()["streams"][0]["bytes"] == 13);
        let hello = json!({
            "version": 1,
            "streams": [{"stream": "tty", "from": "now"}],
            "redraw": "screen",
            "history": "before",
        });
        let frames = Session::new(&rig, &hello)
            .rest_until(|frames| frames.iter().any(|f| matches!(f, Frame::Screen(_))));
        let Some(Frame::Screen(screen)) = frames.last() else { panic!("{frames:?}") };
        let screen = String::from_utf8_lossy(screen);
        assert_eq!(screen.contains("1\r\n2\r\n"), is_kept, "{screen:?}");
        assert!(screen.contains('5'), "{screen:?}");
    }
}
