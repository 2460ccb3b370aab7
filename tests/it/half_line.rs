//! A line that a program types is one of its own, whatever somebody has begun to type and left.

use std::io::Write;

use crate::installed::is_installed;
use crate::proc::{Proc, Said, eventually};
use crate::rig::{APP, Rig, expect};
use crate::skip::skip;

fn run(rig: &Rig, options: &[&str], command: &[&str]) -> Proc {
    let words = [&["run", "--foreground", "--name", APP][..], options, &["--"], command];
    rig.mux(words.concat())
}

fn does(rig: &Rig, words: &[&str]) -> String {
    let mut process = rig.run(words);
    assert_eq!(process.ends(), 0, "{words:?}: {}", process.stderr.so_far());
    process.stdout.text()
}

fn screen(rig: &Rig) -> String {
    does(rig, &["screen", APP])
}

/// Somebody types this at the app's terminal, and leaves.
fn leaves(rig: &Rig, typed: &[u8]) {
    rig.client("tty").write_all(typed).unwrap();
}

/// What people leave behind: a text, one with the cursor in its middle, the last line again, a key that
/// takes the next one as text, the first one of two, and pastes: of two lines that has not ended, and of whole lines.
const LEFT: [&[u8]; 8] = [
    b"zzz",
    b"zz z\x1b[D\x1b[D",
    b"\x1b[A",
    b"zz\x16",
    b"zz\x18",
    b"\x1b[200~zz\nzz",
    b"\x1b[200~zz\rzz\r\rzz\r\x1b[201~",
    b"zz\x1b[200~zz\nzz\x1b[201~zz",
];

/// Line editors, what they print when they read, a line, and what that prints.
const EDITORS: [(&str, &[&str], &str, &str, &str); 5] = [
    ("bash", &["env", "PS1=ready> ", "bash", "--norc", "-i"], "ready>", "echo $((6*7))", "42"),
    ("zsh", &["env", "PS1=ready> ", "zsh", "-f", "-i"], "ready>", "echo $((6*7))", "42"),
    (
        "fish",
        &["fish", "--no-config", "-i", "-C", "function fish_prompt; echo 'ready> '; end"],
        "ready>",
        "math 6 x 7",
        "42",
    ),
    ("python3", &["python3", "-q"], ">>>", "print(6*7)", "42"),
    ("irb", &["irb", "-f"], "irb", "6*7", "=> 42"),
];

#[test]
fn a_line_editor_gets_a_line_of_its_own() {
    for (program, command, prompt, line, answer) in EDITORS {
        if !is_installed(program) {
            skip(program, "it is not installed");
            continue;
        }
        let rig = Rig::new();
        let _app = run(&rig, &["-t"], command);
        does(&rig, &["wait", APP, "--screen", prompt, "--timeout", "60"]);
        for (n, left) in LEFT.into_iter().enumerate() {
            // Only some editors know pastes: to others they are keys.
            let has = |keys: &[u8]| left.windows(keys.len()).any(|part| part == keys);
            let is_paste = has(b"\x1b[200~");
            if is_paste && ["python3", "irb"].contains(&program) {
                continue;
            }
            does(&rig, &["ask", APP, "--timeout", "60", line]);
            leaves(&rig, left);
            // To be seen, as people leave it: irb leaves the raw mode for a moment after each key.
            if left == b"\x1b[A" {
                eventually("the last line is there again", || {
                    screen(&rig).trim_end().ends_with(line)
                });
            }
            // A paste is shown when it ends.
            if has(b"z") && (!is_paste || has(b"\x1b[201~")) {
                does(&rig, &["wait", APP, "--screen", "z", "--timeout", "60"]);
            }
            if is_paste {
                let (line, answer) = (line.replace('7', &format!("7{n}")), 6 * (70 + n));
                does(&rig, &["send", APP, &line]);
                let answer = format!("^{answer}$");
                does(&rig, &["wait", APP, "--screen", &answer, "--timeout", "60"]);
                let shown = screen(&rig);
                assert!(!shown.contains('z'), "{program}, {left:?}: {shown}");
                continue;
            }
            let got = does(&rig, &["ask", APP, "--timeout", "60", line]);
            assert!(
                got.lines().any(|got| got.trim() == answer),
                "{program}, {left:?}: {got:?}\n{}",
                screen(&rig)
            );
            assert!(!got.contains("rror") && !got.contains("not found"), "{program}: {got}");
        }
    }
}

#[test]
fn a_terminal_that_edits_lines_gets_a_line_of_its_own() {
    for left in [&b"say hel"[..], b"a\x16", b"\x16"] {
        let rig = Rig::new();
        let _mux = rig.tty();
        let mut app = rig.slave_as_it_is();
        leaves(&rig, left);
        let mut send = rig.run(&["send", APP, "stop"]);
        expect(&mut app, "stop\n");
        assert_eq!(send.ends(), 0);
        // Nobody has begun one.
        assert_eq!(rig.run(&["send", APP, "again"]).ends(), 0);
        expect(&mut app, "again\n");
    }
}

/// It has it already.
#[test]
fn a_half_line_of_a_stream_is_ended() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut app = std::fs::File::open(rig.path("stage2-stdin")).unwrap();
    assert_eq!(rig.run(&["send", "-n", APP, "say hel"]).ends(), 0);
    assert_eq!(rig.run(&["send", APP, "stop"]).ends(), 0);
    expect(&mut app, "say hel\nstop\n");
    // Those who type themselves may go on with what they have begun.
    for part in ["say ", "hello\n"] {
        rig.client("stdin").write_all(part.as_bytes()).unwrap();
    }
    expect(&mut app, "say hello\n");
}

/// These were keys, and are not to be taken back; nobody has to have looked at the screen.
#[test]
fn a_program_with_a_screen_of_its_own_gets_no_keys_that_empty_a_line() {
    let rig = Rig::new();
    let script = "stty raw -echo; printf '\\033[?1049hMENU'; exec cat -v";
    let _app = run(&rig, &["-t"], &["sh", "-c", script]);
    Said::follow(rig.client("tty")).wait_for("MENU");
    for (left, line) in [("jj", ":wq"), ("kk", ":q")] {
        let raw = Said::follow(rig.client("tty"));
        leaves(&rig, left.as_bytes());
        raw.wait_for(left);
        does(&rig, &["send", APP, line]);
        // As the next mux knows, too.
        does(&rig, &["control", APP, "restart"]);
    }
    let shown = screen(&rig);
    assert!(shown.contains("MENUjj:wq^Mkk:q^M"), "{shown}");
}

/// An editor throws away what comes with ^C.
#[test]
fn keys_that_a_line_begins_with_come_by_themselves() {
    let rig = Rig::new();
    let _app = run(&rig, &["-t"], &["env", "PS1=ready> ", "bash", "--norc", "-i"]);
    does(&rig, &["wait", APP, "--screen", "ready>", "--timeout", "60"]);
    leaves(&rig, b"zzz");
    does(&rig, &["wait", APP, "--screen", "zzz", "--timeout", "60"]);
    does(&rig, &["send", APP, "\x03echo $((6*7))"]);
    does(&rig, &["wait", APP, "--screen", "^42$", "--timeout", "60"]);
}

/// The next run of the app knows nothing of it.
#[test]
fn a_half_line_ends_with_the_app() {
    let rig = Rig::new();
    let script = "echo up; read -r x; echo \"<$x>\"; exec sleep 1000";
    let _app = run(&rig, &["-t"], &["sh", "-c", script]);
    does(&rig, &["wait", APP, "--for", "up", "--from", "start"]);
    leaves(&rig, b"zz");
    eventually("it is shown", || screen(&rig).contains("zz"));
    // It stays known over the end of a mux.
    does(&rig, &["control", APP, "restart"]);
    does(&rig, &["send", APP, "stop"]);
    does(&rig, &["wait", APP, "--for", "^<stop>$", "--from", "start"]);
}
