//! `ask` and `wait`: what scripts use in place of a pause.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::installed::is_installed;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig};
use crate::skip::skip;

/// Its prompt stands in front of what is typed, and its answers have two streams.
const ECHOES: &str =
    "printf '> '; while read x; do echo \"<$x>\"; echo \"!$x\" >&2; printf '> '; done; exit 5";
/// It has the lines with which a shell marks its commands.
const PAGE: &str = include_str!("../../docs/automation.md");

/// The lines for a shell's own file.
fn marks(file: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("`{file}`:\n\n```\n")).unwrap();
    rest.split_once("```").unwrap().0
}

fn run(rig: &Rig, options: &[&str], command: &[&str]) -> Proc {
    let words = [&["run", "--foreground", "--name", APP][..], options, &["--"], command];
    rig.mux(words.concat())
}

/// Its exit code, and what it prints.
fn outcome(mut process: Proc) -> (i32, String, String) {
    (process.ends(), process.stdout.text(), process.stderr.text())
}

/// It ends with this code, and prints this.
#[track_caller]
fn answers(rig: &Rig, words: &[&str], code: i32, answer: &str) {
    let (ended, stdout, stderr) = outcome(rig.run(words));
    assert_eq!((ended, stdout.as_str()), (code, answer), "{words:?}: {stderr}");
}

/// It ends with this code, prints this answer, and says this.
#[track_caller]
fn says(rig: &Rig, words: &[&str], code: i32, answer: &str, said: &str) {
    let (ended, stdout, stderr) = outcome(rig.run(words));
    assert_eq!((ended, stdout.as_str()), (code, answer), "{words:?}: {stderr}");
    assert_eq!(stderr, format!("iottymux: {said}\n"), "{words:?}");
}

/// Waits until the mux knows this client.
fn await_client(rig: &Rig, client: &Proc) {
    let is_it = |other: &Value| other["pid"] == client.pid().as_raw();
    eventually("it is a client", || rig.status()["clients"].as_array().unwrap().iter().any(is_it));
}

fn documents(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_app_without_a_terminal_is_asked() {
    let rig = Rig::new();
    let _app = run(&rig, &[], &["sh", "-c", ECHOES]);
    let (code, stdout, _) = outcome(rig.run(&["ask", APP, "one", "line", "--json"]));
    let mut lines = documents(&stdout);
    assert_eq!((code, lines.pop().unwrap()["end"].as_str()), (0, Some("idle")));
    lines.sort_by_key(|line| line["stream"].to_string());
    let told = |at: usize| [lines[at]["stream"].as_str(), lines[at]["text"].as_str()];
    assert_eq!(
        [told(0), told(1)],
        [[Some("stderr"), Some("!one line")], [Some("stdout"), Some("<one line>")]]
    );
    answers(&rig, &["ask", APP, "--until", "^<(a|b)", "b"], 0, "<b\n");
    answers(&rig, &["ask", APP, "--until", "b>", "--omit-match", "ab"], 0, "<a\n");
    says(
        &rig,
        &["ask", APP, "c", "--until", "nothing like it", "--timeout", "0.5"],
        124,
        "<c>\n!c\n",
        "app demo: the answer did not end within 500ms",
    );
    // One line, typed whole or not at all.
    assert_eq!(outcome(rig.run(&["ask", APP, "a\nb"])).0, 2);
    assert_eq!(outcome(rig.run(&["ask", APP, "x", "--until", "("])).0, 2);
    assert_eq!(outcome(rig.run(&["ask", APP, "x", "--until", ""])).0, 2);
    // A shell would complete a name there.
    assert_eq!(outcome(rig.run(&["ask", APP, "echo 'a\tb'", "--command"])).0, 2);
    let why = "app demo has no terminal, so it is no shell that marks commands";
    says(&rig, &["ask", APP, "x", "--command"], 1, "", why);
    answers(&rig, &["ask", APP, "--until", ">", "-5"], 0, "<-5>\n");
    assert_eq!(outcome(rig.run(&["ask", "nobody", "x"])).0, 1);
}

#[test]
fn the_end_of_the_app_ends_the_answer() {
    for options in [&[][..], &["-t"]] {
        let rig = Rig::new();
        let mut app = run(&rig, options, &["sh", "-c", "read x; printf 'bye %s' $x; exit 6"]);
        let words = ["ask", APP, "now", "--until", "never"];
        says(&rig, &words, 6, "bye now\n", "app demo ended with status 6");
        assert_eq!(app.ends(), 6);
        assert_eq!(outcome(rig.run(&words)).0, 1);
        // No script takes it for an answer.
        let rig = Rig::new();
        let mut app = run(&rig, options, &["sh", "-c", "read x; printf 'bye %s' $x"]);
        says(&rig, &words, 124, "bye now\n", "app demo ended with status 0");
        assert_eq!(app.ends(), 0);
    }
}

#[test]
fn keys_of_an_app_without_a_terminal_are_lines() {
    let rig = Rig::new();
    let mut app = run(&rig, &[], &["sh", "-c", "read -r x; echo \"<$x>\"; exit 3"]);
    for key in ["Up", "C-d", "Escape"] {
        let why =
            format!("app demo has no terminal, and so no key {key}; try iottymux send demo LINE");
        says(&rig, &["send", APP, "--keys", "lost", key], 1, "", &why);
    }
    let output = rig.attach(&["--mode", "stdout", "--from", "start"]);
    answers(&rig, &["send", APP, "--keys", "a", "Space", "b", "Enter"], 0, "");
    output.stdout.wait_for("<a b>\n");
    assert_eq!(app.ends(), 3);
}

/// Neither the echo nor the prompts belong to an answer, of whatever shows the line: the terminal, or
/// a line editor.
#[test]
fn an_app_at_a_terminal_is_asked() {
    let long = format!("echo {} | tail -c 4", "x".repeat(200));
    for (options, command) in [
        (
            &["-t"][..],
            &["sh", "-c", "printf '> '; while read x; do eval \"$x\"; printf '> '; done"][..],
        ),
        (&["-t"], &["bash", "--norc"]),
        (&["-t", "--size", "10x40"], &["bash", "--norc"]),
    ] {
        let rig = Rig::new();
        let _app = run(&rig, options, command);
        answers(&rig, &["ask", APP, "echo one; echo two"], 0, "one\ntwo\n");
        answers(&rig, &["ask", APP, "printf 'no end'"], 0, "no end\n");
        // A line editor may break the line.
        answers(&rig, &["ask", APP, &long], 0, "xxx\n");
        answers(&rig, &["ask", APP, "echo grün", "--until", "gr.n"], 0, "grün\n");
        answers(&rig, &["ask", APP, ":"], 0, "");
    }
    // A terminal that does not show what is typed.
    let rig = Rig::new();
    let script = "stty -echo; while read x; do printf \"<%s\" $x; done";
    let _app = run(&rig, &["-t"], &["sh", "-c", script]);
    eventually("it hides input", || {
        !tcgetattr(rig.slave_as_it_is()).unwrap().local_flags.contains(LocalFlags::ECHO)
    });
    answers(&rig, &["ask", APP, "a"], 0, "<a\n");
    answers(&rig, &["ask", APP, "b", "--until", "<b"], 0, "<b\n");
}

#[test]
fn a_shell_that_marks_its_commands_says_how_they_end() {
    let ask = |command| ["ask", APP, "--command", command];
    let mut shells = 0;
    for (shell, file) in [("bash", ".bashrc"), ("zsh", ".zshrc")] {
        if !is_installed(shell) {
            skip(shell, "it is not installed");
            continue;
        }
        shells += 1;
        let rig = Rig::new();
        let settings =
            format!("HISTSIZE=100 SAVEHIST=0\nunset HISTFILE\n{}", marks(&format!("~/{file}")));
        fs::write(rig.file(file), settings).unwrap();
        let mut app = rig.command(["run", "--foreground", "--name", APP, "-t", "--", shell]);
        app.env("HOME", rig.file(""));
        let _app = rig.start(app);
        answers(&rig, &ask("seq 3"), 0, "1\n2\n3\n");
        answers(&rig, &ask("printf 'no end'; (exit 7)"), 7, "no end\n");
        answers(&rig, &ask("true"), 0, "");
        answers(&rig, &ask("nothing-of-that-name 2>/dev/null"), 127, "");
        // One that the shell cannot read has no begin; zsh tells the status of the command before.
        let (code, stdout, _) = outcome(rig.run(&ask("echo )")));
        assert_eq!(code, if shell == "bash" { 2 } else { 127 }, "{stdout}");
        let is_told = stdout.starts_with(shell) && stdout.contains(" error near ");
        assert!(is_told && stdout.lines().count() < 3, "{shell}: {stdout}");
        // Nothing but the commands is typed.
        let typed = "seq3\nprintf'noend';(exit7)\ntrue\nnothing-of-that-name2>/dev/null\n";
        answers(&rig, &ask("fc -ln 1 | tr -d ' \\t' | head -n 4"), 0, typed);
    }
    assert!(shells > 0);
    let rig = Rig::new();
    let _app = run(&rig, &["-t"], &["sh"]);
    let why = "app demo has the line, but no command began: the shell is busy, waits for more, or \
               marks no commands (iottymux ask --help)";
    says(&rig, &ask("echo hi"), 124, "", why);
}

#[test]
fn those_who_ask_at_once_get_their_own_answers() {
    for options in [&[][..], &["-t"]] {
        let rig = Rig::new();
        let _app = run(&rig, options, &["sh", "-c", ECHOES]);
        thread::scope(|scope| {
            for asker in 0..4 {
                let rig = &rig;
                scope.spawn(move || {
                    for number in 0..5 {
                        let question = format!("{asker}.{number}");
                        let until = format!("!{question}");
                        let (code, stdout, stderr) =
                            outcome(rig.run(&["ask", APP, &question, "--until", &until]));
                        let mut lines: Vec<&str> = stdout.lines().collect();
                        lines.sort_unstable();
                        let told = format!("<{question}>");
                        // The line on stdout may come after that on stderr.
                        assert_eq!(code, 0, "{stderr}");
                        let want = [until.as_str(), told.as_str()];
                        assert!(
                            lines == want || options.is_empty() && lines == want[..1],
                            "{lines:?}"
                        );
                    }
                });
            }
        });
    }
}

/// One who types alone keeps a script waiting, which says so.
#[test]
fn a_line_that_may_not_be_typed_is_not_typed() {
    let rig = Rig::new();
    let _app = run(&rig, &[], &["sh", "-c", ECHOES]);
    let alone = rig.attach(&["--exclusive"]);
    alone.stdout.wait_for("> ");
    let (code, stdout, stderr) = outcome(rig.run(&["ask", APP, "x", "--timeout", "0.3"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    let said = "iottymux: app demo has not taken the line in time: client ";
    assert!(stderr.starts_with(said), "{stderr}");
    assert!(stderr.ends_with("holds the input lock, and it is not typed\n"), "{stderr}");
    let waits = rig.run(&["ask", APP, "y", "--until", "<y>"]);
    await_client(&rig, &waits);
    drop(alone);
    assert_eq!(outcome(waits).0, 0);
}

#[test]
fn an_answer_goes_on_under_the_next_mux() {
    for options in [&[][..], &["-t"]] {
        let rig = Rig::new();
        let go = rig.file("go");
        let script = format!(
            "while read x; do echo \"begin $x\"; while [ ! -e {go} ]; do sleep 0.01; done; \
             seq 3; echo end $x; done",
            go = go.display()
        );
        let _app = run(&rig, options, &["sh", "-c", &script]);
        let ask = rig.run(&["ask", APP, "x", "--until", "end x"]);
        ask.stdout.wait_for("begin x\n");
        let mux = rig.status()["mux_pid"].as_i64().unwrap();
        kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL).unwrap();
        let other = || rig.try_status().is_some_and(|it| it["mux_pid"].as_i64() != Some(mux));
        eventually("there is another mux", other);
        fs::write(&go, "").unwrap();
        assert_eq!(outcome(ask), (0, "begin x\n1\n2\n3\nend x\n".to_owned(), String::new()));
    }
}

/// What others print meanwhile on the same output comes between, and on another one it does not.
#[test]
fn an_answer_beside_a_flood() {
    let flood = "while seq 300; do sleep 0.01; done";
    let answers = "while read x; do echo \"<$x>\"; done; kill $!";
    for (options, to) in [(&["-t"][..], ""), (&[], ""), (&[], " >&2")] {
        let rig = Rig::new();
        let script = format!("{{ {flood}; }}{to} & {answers}");
        let _app = run(&rig, options, &["sh", "-c", &script]);
        for number in 0..20 {
            let until = format!("^<q{number}>");
            let question = format!("q{number}");
            let (code, stdout, stderr) =
                outcome(rig.run(&["ask", APP, &question, "--until", &until, "--json"]));
            assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
            let of_answer: Vec<Value> = documents(&stdout)
                .into_iter()
                .filter(|document| document["text"].as_str().is_some_and(|text| text.contains('<')))
                .collect();
            assert_eq!(of_answer.len(), 1, "{of_answer:?}");
            assert_eq!(of_answer[0]["text"], json!(format!("<q{number}>")));
        }
    }
}

#[test]
fn output_is_waited_for() {
    let rig = Rig::new();
    let app = run(&rig, &[], &["sh", "-c", ECHOES]);
    let ask = |line| assert_eq!(rig.run(&["send", APP, line]).ends(), 0);
    let wait = rig.run(&["wait", APP, "--for", "<(\\w+) (\\w)?", "--json"]);
    await_client(&rig, &wait);
    ask("one");
    ask("two three");
    let (code, stdout, _) = outcome(wait);
    let met = &documents(&stdout)[0];
    assert_eq!(code, 0);
    assert_eq!((&met["condition"], &met["stream"]), (&"for".into(), &"stdout".into()));
    assert_eq!((&met["text"], &met["groups"]), (&"<two t".into(), &json!(["two", "t"])));
    // What the offset is good for: the output from there on.
    let offset = met["offset"].to_string();
    answers(&rig, &["wait", APP, "--for", "<.*>", "--from", "start"], 0, "<one>\n");
    ask("four");
    answers(&rig, &["wait", APP, "--for", "<.*>", "--from", &offset], 0, "<four>\n");
    answers(&rig, &["wait", APP, "--idle", "0.2"], 0, "");
    answers(&rig, &["wait", APP, "--idle", "0.2", "--for", "no such thing"], 0, "demo idle\n");
    for (timeout, told) in [("0.2", "within 200ms"), ("0", "at once")] {
        let words = ["wait", APP, "--for", "no such thing", "--timeout", timeout];
        says(&rig, &words, 124, "", &format!("app demo: no such output {told}"));
    }
    let words = ["wait", "demos", "--ready", "--timeout", "0.2"];
    let (code, _, stderr) = outcome(rig.run(&words));
    let why = "iottymux: app demos: no start within 200ms\n";
    assert_eq!((code, stderr.as_str()), (124, why));
    assert_eq!(outcome(rig.run(&["wait", APP, "--from", "start", "--idle", "1"])).0, 2);
    drop(app);
}

#[test]
fn apps_are_waited_for_from_before_their_start_to_their_end() {
    let rig = Rig::new();
    let ready = rig.run(&["wait", APP, "other", "--ready"]);
    let mut other =
        rig.command(["run", "-d", "-i", "--name", "other", "--", "cat"]).spawn().unwrap();
    assert!(other.wait().unwrap().success());
    ready.stdout.wait_for("other ready\n");
    let mut app = run(&rig, &[], &["sh", "-c", ECHOES]);
    let (code, stdout, _) = outcome(ready);
    assert_eq!((code, stdout.as_str()), (0, "other ready\ndemo ready\n"));
    let end = rig.run(&["wait", APP, "--exit"]);
    await_client(&rig, &end);
    let mut last = rig.attach(&["--stdin-once"]);
    drop(last.stdin());
    assert_eq!(outcome(end), (0, "ended with status 5\n".to_owned(), String::new()));
    assert_eq!(app.ends(), 5);
    // The name is free.
    assert_eq!(outcome(rig.run(&["wait", APP])).1, "ended with status 5\n");
    // It has ended before, and what it said last is known.
    answers(&rig, &["wait", APP, "--for", "^> ", "--from", "start"], 0, "> \n");
    answers(&rig, &["wait", APP, "--ready", "--exit"], 0, "demo exit ended with status 5\n");
    assert_eq!(outcome(rig.run(&["wait", APP, "--idle", "1"])).0, 1);
    assert_eq!(outcome(rig.run(&["kill", "other"])).0, 0);
    assert_eq!(outcome(rig.run(&["wait", "nobody", "--exit"])).0, 1);
}

/// Says seven lines, the last in colour, and waits.
const LINES: &str = "stty -echo; for n in 1 2 3 4 5 6; do echo \"line $n\"; done; \
    printf '\\033[1;32ma < b & c\\033[m'; read x";

#[test]
fn what_scrolled_off_is_seen_and_a_picture_is_drawn() {
    let rig = Rig::new();
    let _app = run(&rig, &["-t", "--size", "3x20"], &["sh", "-c", LINES]);
    answers(&rig, &["wait", APP, "--screen", "^a < b"], 0, "a < b\n");
    answers(&rig, &["screen", APP], 0, "line 5\nline 6\na < b & c\n");
    let two = "line 3\nline 4\nline 5\nline 6\na < b & c\n";
    answers(&rig, &["screen", APP, "--history", "2"], 0, two);
    let all = format!("line 1\nline 2\n{two}");
    answers(&rig, &["screen", APP, "--history", "all"], 0, &all);
    let (_, stdout, _) = outcome(rig.run(&["screen", APP, "--json", "--history", "1"]));
    let shown = &documents(&stdout)[0];
    assert_eq!(shown["above"], json!([{"text": "line 4"}]));
    assert_eq!(shown["rows"].as_array().unwrap().len(), 3);
    let (code, svg, _) = outcome(rig.run(&["screen", APP, "--svg", "--history", "1"]));
    assert_eq!(code, 0);
    assert!(svg.contains("viewBox=\"0 0 196 100\""), "{svg}");
    let green = "fill=\"#00ff00\" font-weight=\"bold\">a &lt; b &amp; c</text>";
    assert!(svg.contains(">line 4</text>") && svg.contains(green), "{svg}");
    assert!(!svg.contains(">line 3</text>"), "{svg}");
}

/// A prompt is matched with the blank at its end, which nobody sees.
#[test]
fn a_row_is_told_without_blanks_at_its_end() {
    let rig = Rig::new();
    let _app = run(&rig, &["-t"], &["sh", "-c", "printf 'name:  '; read x"]);
    for screen in ["^name:  $", ".*"] {
        answers(&rig, &["wait", APP, "--screen", screen], 0, "name:\n");
    }
}

/// Draws on the alternate screen, with a title, a colour and a cursor, and then what is typed.
const DRAWS: &str = "stty -echo; printf '\\033[?1049h\\033[?1h\\033[?2004h\\033[?1002h\\033]2;the title\\007'; \
    printf '\\033[2;3H\\033[1;31mred\\033[m plain\\033[4;1H'; \
    while read x; do printf '\\033[3;1H%s\\033[K' \"$x\"; done; printf '\\033[?1049lbye'";

#[test]
fn a_terminal_is_seen_without_an_attach() {
    let rig = Rig::new();
    let mut app = run(&rig, &["-t", "--size", "5x20"], &["sh", "-c", DRAWS]);
    answers(&rig, &["wait", APP, "--screen", "^  (red) p"], 0, "  red p\n");
    answers(&rig, &["screen", APP], 0, "\n  red plain\n");
    let red = "\n  \x1b[0;1;31mred\x1b[m plain\n";
    answers(&rig, &["screen", APP, "--ansi"], 0, red);
    let local = Pty::open(24, 80);
    local.spawn(rig.command(["screen", APP, "--ansi"])).ends();
    assert_eq!(local.shown_before_mark().replace('\r', ""), red);
    let (code, stdout, _) = outcome(rig.run(&["screen", APP, "--json"]));
    let shown = &documents(&stdout)[0];
    assert_eq!(code, 0);
    assert_eq!(shown["size"], json!({"rows": 5, "cols": 20}));
    assert_eq!(shown["cursor"], json!({"row": 4, "col": 1, "shown": true}));
    assert_eq!((&shown["title"], &shown["alternate"]), (&json!("the title"), &json!(true)));
    let keys =
        json!({"application_cursor": true, "bracketed_paste": true, "mouse": true, "kitty": 0});
    assert_eq!(shown["keys"], keys);
    let row = json!({"text": "  red plain", "runs": [
        {"text": "  "}, {"text": "red", "style": "1;31"}, {"text": " plain"}
    ]});
    assert_eq!(shown["rows"][1], row);
    assert_eq!(shown["rows"].as_array().unwrap().len(), 5);
    // As it changes, also its size, and to its end.
    let follower = rig.run(&["screen", APP, "-f", "--json"]);
    follower.stdout.wait_for("plain");
    assert_eq!(rig.run(&["send", APP, "typed"]).ends(), 0);
    follower.stdout.wait_for("\"text\":\"typed\"");
    // Other characters that terminals obey are told.
    assert_eq!(rig.run(&["send", APP, "a\u{202e}b"]).ends(), 0);
    answers(&rig, &["wait", APP, "--screen", "^a"], 0, "a\n");
    let red = red.to_owned() + "a\\u{202e}b\n";
    answers(&rig, &["screen", APP, "--ansi"], 0, &red);
    assert_eq!(rig.run(&["control", APP, "resize", "6x30"]).ends(), 0);
    follower.stdout.wait_for("\"size\":{\"cols\":30,\"rows\":6}");
    assert_eq!(outcome(rig.run(&["wait", APP, "--screen", "no", "--timeout", "0.2"])).0, 124);
    let mut end = rig.attach(&["--mode", "tty-in"]);
    end.stdin().write_all(b"\x04").unwrap();
    assert_eq!(app.ends(), 0);
    let (code, _, stderr) = outcome(follower);
    assert_eq!((code, stderr.as_str()), (0, "iottymux: app demo ended with status 0\n"));
    let (code, stdout, stderr) = outcome(rig.run(&["screen", APP]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("it ended with status 0"), "{stderr}");
    // Without a terminal there is none.
    let rig = Rig::new();
    let _app = run(&rig, &[], &["sh", "-c", ECHOES]);
    let why = "app demo has no terminal; try iottymux logs demo";
    says(&rig, &["screen", APP], 1, "", why);
    says(&rig, &["wait", APP, "--screen", "x"], 1, "", why);
}

/// In raw mode, with the modes of a program that wants to know all about keys.
#[test]
fn keys_and_pastes_are_sent_as_the_app_asks() {
    let rig = Rig::new();
    let script = "stty raw -echo; printf '\\033[?1h\\033[?2004h\\033[>1u'; cat -v";
    let _app = run(&rig, &["-t"], &["sh", "-c", script]);
    let output = rig.attach(&["--mode", "tty-out", "--from", "start"]);
    output.stdout.wait_for("\x1b[>1u");
    let send = |words: &[&str]| {
        assert_eq!(
            outcome(rig.run(&[&["send", APP][..], words].concat())),
            (0, String::new(), String::new())
        );
    };
    send(&["--keys", "Up", "C-c", "text", "F5"]);
    output.stdout.wait_for("^[OA^[[99;5utext^[[15~");
    send(&["-n", "no return"]);
    output.stdout.wait_for("no return");
    let file = rig.file("text");
    fs::write(&file, "one\ntwo\t").unwrap();
    send(&["--paste", file.to_str().unwrap()]);
    output.stdout.wait_for("^[[200~one^Mtwo\t^[[201~");
    fs::write(&file, "a\x1bb").unwrap();
    let why = "byte 1 of it is a control character; try --raw";
    says(&rig, &["send", APP, "--paste", file.to_str().unwrap()], 1, "", why);
    send(&["--paste", file.to_str().unwrap(), "--raw"]);
    output.stdout.wait_for("^[[200~a^[b^[[201~");
    says(&rig, &["send", APP, "--keys", "C-Entr"], 1, "", "Entr in C-Entr is no key");
}

#[test]
fn lines_of_standard_input_are_typed_and_their_place_is_told() {
    let rig = Rig::new();
    let _app = run(&rig, &[], &["sh", "-c", ECHOES]);
    answers(&rig, &["wait", APP, "--for", "^> $", "--from", "start"], 0, "> \n");
    let mut command = rig.command(["send", APP, "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut send = Proc::spawn(command);
    send.stdin().write_all(b"one\n\nlast").unwrap();
    assert_eq!(outcome(send).0, 0);
    answers(&rig, &["wait", APP, "--for", "<last>", "--from", "start"], 0, "<last>\n");
    let (code, stdout, _) = outcome(rig.run(&["send", "--json", APP, "again"]));
    let taken = &documents(&stdout)[0]["outputs"];
    assert_eq!((code, &taken[0]["stream"]), (0, &json!("stdout")));
    let offset = taken[0]["offset"].to_string();
    answers(&rig, &["wait", APP, "--for", "<.*>", "--from", &offset], 0, "<again>\n");
    // A paste is as it is, where there is no terminal.
    let file = rig.file("text");
    fs::write(&file, "a\nb\n").unwrap();
    answers(&rig, &["send", APP, "--paste", file.to_str().unwrap()], 0, "");
    answers(&rig, &["wait", APP, "--for", "<b>", "--from", &offset], 0, "<b>\n");
}

/// The ends of lines that Windows writes are one Enter.
#[test]
fn lines_may_end_as_windows_ends_them() {
    let rig = Rig::new();
    let reads = "stty -echo; echo up; while read x; do echo \"<$x>\"; done";
    let _app = run(&rig, &["-t"], &["sh", "-c", reads]);
    answers(&rig, &["wait", APP, "--for", "up", "--from", "start"], 0, "up\n");
    let file = rig.file("text");
    fs::write(&file, "a\r\nb\r\n").unwrap();
    answers(&rig, &["send", APP, "--paste", file.to_str().unwrap()], 0, "");
    let mut command = rig.command(["send", APP, "-"]);
    command.stdin(fs::File::open(&file).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(outcome(Proc::spawn(command)).0, 0);
    answers(&rig, &["ask", APP, "end", "--until", "<end>"], 0, "<end>\n");
    let (_, shown, _) = outcome(rig.run(&["screen", APP]));
    let told: Vec<&str> = shown.lines().filter(|line| line.starts_with('<')).collect();
    assert_eq!(told, ["<a>", "<b>", "<a>", "<b>", "<end>"]);
}

/// A person who types beside scripts notices nothing of them, and loses no key.
#[test]
fn a_person_types_on_while_scripts_ask() {
    let rig = Rig::new();
    let go = |line: &str| rig.file(&format!("go-{line}"));
    let wait = format!("while [ ! -e {}$x ]; do sleep 0.01; done", go("").display());
    let script = format!("stty -echo; while read x; do echo begin $x; {wait}; echo \"<$x>\"; done");
    let _app = run(&rig, &["-t"], &["sh", "-c", &script]);
    let local = Pty::open(24, 80);
    let _person = local.spawn(rig.command(["attach", APP]));
    local.shown.wait_for("leaves");
    let ask = |line: &str| {
        let ask = rig.run(&["ask", APP, "--until", &format!("<{line}>"), "--timeout", "30", line]);
        ask.stdout.wait_for(&format!("begin {line}"));
        ask
    };
    for number in 0..10 {
        let (line, typed) = (format!("s{number}"), format!("p{number}"));
        let asks = ask(&line);
        local.press(format!("{typed}\r").as_bytes());
        fs::write(go(&line), "").unwrap();
        assert_eq!(outcome(asks).0, 0);
        local.shown.wait_for(&format!("begin {typed}"));
        fs::write(go(&typed), "").unwrap();
        local.shown.wait_for(&format!("<{typed}>"));
    }
    assert!(!local.shown.so_far().contains("type"), "{}", local.shown.so_far());
    // If it takes longer, the person is told.
    let slow = ask("slow");
    local.shown.wait_for("you cannot type: client");
    fs::write(go("slow"), "").unwrap();
    assert_eq!(outcome(slow).0, 0);
    local.shown.wait_for("you can type again");
}

/// The rules of docs/protocol.md that any mux must follow.
#[test]
fn the_mux_conforms_to_the_protocol() {
    if !is_installed("python3") {
        return skip("python3", "it is not installed");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/conformance.py");
    // At once: a mux lets go of a client that says nothing only after a while.
    let check = |kind: &[&str]| {
        let rig = Rig::new();
        let _app = run(&rig, kind, &["cat"]);
        let mut python = Command::new("python3");
        python.args(["-B", script, APP]).env("IOTTYMUX_STATE_DIR", rig.state());
        python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (code, stdout, stderr) = outcome(Proc::spawn(python));
        let is_followed = |line: &str| line.ends_with(": ok");
        assert!(stdout.lines().count() > 10 && stdout.lines().all(is_followed), "{stdout}{stderr}");
        assert_eq!(code, 0);
    };
    thread::scope(|scope| {
        for kind in [&[][..], &["-t"]] {
            scope.spawn(move || check(kind));
        }
    });
}

/// The client of docs/examples, in another language: it speaks what docs/protocol.md says.
#[test]
fn a_client_in_python_reads_types_and_sees() {
    if !is_installed("python3") {
        return skip("python3", "it is not installed");
    }
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/client.py");
    assert!(fs::read_to_string(client).unwrap().lines().count() <= 200);
    let python = |rig: &Rig, words: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(client).args(words).env("IOTTYMUX_STATE_DIR", rig.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Proc::spawn(command)
    };
    let rig = Rig::new();
    let script = "seq 1000; while read x; do echo \"<$x>\"; done; seq 1000; exit 3";
    let _app = run(&rig, &[], &["sh", "-c", script]);
    let reader = python(&rig, &["read", APP]);
    reader.stdout.wait_for("\n1000\n");
    let mux = rig.status()["mux_pid"].as_i64().unwrap();
    kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL).unwrap();
    let (code, stdout, stderr) = outcome(python(&rig, &["type", APP, "a line"]));
    assert_eq!(
        (code, &documents(&stdout)[0]["outputs"][0]["stream"]),
        (0, &json!("stdout")),
        "{stderr}"
    );
    reader.stdout.wait_for("<a line>\n");
    let mut end = rig.attach(&["--stdin-once"]);
    drop(end.stdin());
    let numbers: Vec<String> = (1..=1000).map(|number: u32| number.to_string()).collect();
    let numbers = numbers.join("\n") + "\n";
    assert_eq!(outcome(reader), (3, format!("{numbers}<a line>\n{numbers}"), String::new()));
    let rig = Rig::new();
    let _app = run(&rig, &["-t"], &["sh", "-c", "echo shown; cat"]);
    answers(&rig, &["wait", APP, "--screen", "shown"], 0, "shown\n");
    let (code, stdout, _) = outcome(python(&rig, &["screen", APP]));
    assert!(code == 0 && stdout.contains("shown"), "{stdout}");
    assert_eq!(outcome(python(&rig, &["read", "nobody"])).0, 1);
}

#[test]
fn what_happens_to_apps_is_told() {
    let rig = Rig::new();
    let script =
        "stty -echo; printf 'a\\303'; read x; printf '\\274'; read x; printf '\\377'; exit 4";
    let _app = run(&rig, &["-t", "--size", "10x40"], &["sh", "-c", script]);
    let events = rig.run(&["events", APP, "--from", "start"]);
    let told = |text: &str| events.stdout.wait_for(text);
    told("\"event\":\"data\"");
    await_client(&rig, &events);
    assert_eq!(rig.run(&["send", APP, "one"]).ends(), 0);
    told("\"event\":\"detached\"");
    assert_eq!(rig.run(&["control", APP, "resize", "12x50"]).ends(), 0);
    told("\"event\":\"resized\",\"rows\":12,\"cols\":50");
    let mux = rig.status()["mux_pid"].as_i64().unwrap();
    kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL).unwrap();
    told("\"event\":\"restarted\"");
    assert_eq!(rig.run(&["send", APP, "two"]).ends(), 0);
    let (code, stdout, stderr) = outcome(events);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines = documents(&stdout);
    assert!(lines.iter().all(|line| line["app"] == APP && line["time"].is_string()));
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert!(of("attached").len() >= 2, "{stdout}");
    assert_eq!(of("typed")[0]["bytes"], 4, "{stdout}");
    let end = lines.last().unwrap();
    assert_eq!((&end["event"], &end["status"]), (&json!("ended"), &json!(4)));
    // Each byte once, characters whole, and offsets that fit.
    let mut at = 0;
    let mut text = String::new();
    for data in of("data") {
        assert_eq!(data["offset"], at, "{stdout}");
        match data["text"].as_str() {
            Some(part) => {
                at += part.len();
                text += part;
            }
            None => {
                assert_eq!(data["base64"], "/w==", "{stdout}");
                at += 1;
                text += "?";
            }
        }
    }
    assert_eq!(text, "aü?");
    // Several, without their output.
    assert_eq!(outcome(rig.run(&["events"])).0, 2);
    assert_eq!(outcome(rig.run(&["events", "nobody"])).0, 1);
    let other = Rig::new();
    let mut app = run(&other, &[], &["sh", "-c", "read x; echo out"]);
    let events = other.run(&["events", "--all", "--no-data"]);
    await_client(&other, &events);
    assert_eq!(other.run(&["send", APP, "x"]).ends(), 0);
    assert_eq!(app.ends(), 0);
    let (code, stdout, _) = outcome(events);
    assert!(code == 0 && stdout.contains("\"ended\"") && !stdout.contains("\"data\""), "{stdout}");
}

/// What a terminal obeys, in UTF-8: C1 controls, and characters that reorder text.
const EVIL: &str = "\u{9d}52;c;\u{9b}2J\u{85}\u{202e}\u{2066}\u{61c}\u{7f}\u{1f600}";

/// Whether JSON has none of them as they are, and some in a string.
#[track_caller]
fn is_ascii_json(words: &[&str], text: &str) {
    let is_plain = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
    assert!(text.contains("\\u202e") && text.chars().all(is_plain), "{words:?}: {text:?}");
    let has_it = |document: &Value| document.to_string().contains("\u{202e}\u{2066}\u{61c}");
    assert!(documents(text).iter().any(has_it), "{words:?}: {text}");
}

#[test]
fn json_is_ascii_at_a_terminal_and_in_a_pipe() {
    for options in [&[][..], &["-t"]] {
        let rig = Rig::new();
        let title = format!("\u{1b}]2;t{EVIL}\u{7}{EVIL}\nready\n");
        let script = format!("printf %s '{title}'; while read x; do echo \"$x {EVIL} .\"; done");
        let log = format!("--log=cri:{}", rig.file("log").display());
        let mut app = run(&rig, &[options, &[&log]].concat(), &["sh", "-c", &script]);
        answers(&rig, &["wait", APP, "--for", "^ready", "--from", "start"], 0, "ready\n");
        let all = [
            &["ask", APP, "--json", "--until", "x.* [.]", "x"][..],
            &["wait", APP, "--json", "--for", ".*52.*", "--from", "start"],
            &["logs", APP, "--json"],
            &["screen", APP, "--json"],
        ];
        let has_screen = |words: &&[&str]| words[0] != "screen" || !options.is_empty();
        for words in all.into_iter().filter(has_screen) {
            is_ascii_json(words, &outcome(rig.run(words)).1);
            let local = Pty::open(24, 80);
            local.spawn(rig.command(words)).ends();
            is_ascii_json(words, &local.shown_before_mark().replace('\r', ""));
        }
        let words = ["events", APP, "--from", "start"];
        let (piped, local) = (rig.run(&words), Pty::open(24, 80));
        let mut shown = local.spawn(rig.command(words));
        await_client(&rig, &piped);
        await_client(&rig, &shown);
        kill(app.pid(), Signal::SIGTERM).unwrap();
        kill(app.pid(), Signal::SIGTERM).unwrap();
        app.ends();
        is_ascii_json(&words, &outcome(piped).1);
        shown.ends();
        is_ascii_json(&words, &local.shown_before_mark().replace('\r', ""));
    }
}

/// Expressions that would take minutes.
#[test]
fn a_timeout_holds_while_text_is_searched() {
    let rig = Rig::new();
    let flood = "while read x; do head -c 3000000 /dev/zero | tr '\\0' a; done";
    let _app = run(&rig, &[], &["sh", "-c", flood]);
    let all =
        [&["ask", APP, "x", "--until"][..], &["wait", APP, "--for"], &["logs", APP, "--grep"]];
    for large in ["((a{0,50}){0,50}){0,50}b", "a{0,1000}b", &"(a?)".repeat(1000)] {
        for words in all.into_iter().chain([&["wait", APP, "--screen"][..]]) {
            let (code, _, said) = outcome(rig.run(&[words, &[large]].concat()));
            assert_eq!((code, said.lines().count()), (2, 1), "{words:?}: {said}");
            assert!(said.contains("compiled regex exceeded size limit"), "{words:?}: {said}");
        }
    }
    // Much smaller ones take a minute for this text, and seconds for a part of it.
    let waits = rig.run(&["wait", APP, "--for", "a{0,40}b", "--timeout", "500ms"]);
    await_client(&rig, &waits);
    let asks = rig.run(&["ask", APP, "x", "--until", "a{0,40}b", "--timeout", "500ms"]);
    for mut slow in [waits, asks] {
        assert_eq!(slow.ends_within(Duration::from_secs(20)), 124, "{}", slow.stderr.so_far());
    }
}

/// A shell or REPL that edits its lines; what it asks for `TEXT`, and how its prompt begins to look.
const EDITORS: [(&str, &[&str], &str, &str); 4] = [
    ("zsh", &["env", "PS1=z> ", "zsh", "-f", "-i"], "echo TEXT", "z>"),
    ("fish", &["fish", "--no-config"], "echo TEXT", "[>#] $"),
    ("bash", &["bash", "--norc"], "echo TEXT", "bash.*[$#]"),
    ("python3", &["python3", "-q"], "print('TEXT')", ">>>"),
];

/// Runs one of them, on a terminal of 80 columns as people have it, and waits for its prompt.
fn edits(rig: &Rig, command: &[&str], prompt: &str) -> Proc {
    let words = [&["run", "--foreground", "--name", APP, "-t", "--size", "24x80", "--"], command];
    let mut words = rig.command(words.concat());
    words.env("TERM", "xterm-256color");
    let app = rig.start(words);
    let (code, _, said) = outcome(rig.run(&["wait", APP, "--screen", prompt, "--timeout", "30"]));
    assert_eq!(code, 0, "{command:?}: {said}");
    app
}

/// Wherever the line wraps that is typed, also at the very end of a row.
#[test]
fn a_question_may_be_wider_than_the_terminal() {
    for (program, command, ask, prompt) in EDITORS {
        if !is_installed(program) {
            skip(program, "it is not installed");
            continue;
        }
        let rig = Rig::new();
        let _app = edits(&rig, command, prompt);
        for len in [10, 60, 66, 70, 72, 73, 74, 75, 76, 77, 78, 80, 90, 150, 200] {
            let text = "T".repeat(len - 1) + "E";
            answers(&rig, &["ask", APP, &ask.replace("TEXT", &text)], 0, &(text + "\n"));
        }
    }
}

/// zsh and fish mark such output, and fill the row.
#[test]
fn an_answer_may_have_no_line_end() {
    for (program, command, _, prompt) in &EDITORS[..3] {
        if !is_installed(program) {
            skip(program, "it is not installed");
            continue;
        }
        let rig = Rig::new();
        let _app = edits(&rig, command, prompt);
        answers(&rig, &["ask", APP, "printf abc"], 0, "abc\n");
        answers(&rig, &["ask", APP, "echo next"], 0, "next\n");
    }
}

#[test]
fn the_next_prompt_may_count_or_name_a_place() {
    let shell = ["env", "PS1=\\w$ ", "bash", "--norc"];
    let perl = ["perl", "-de", "1"];
    for (command, prompt, asks) in [
        (
            &shell[..],
            "[$] $",
            &[("cd /usr", ""), ("cd /; echo here", "here\n"), ("pwd", "/\n")][..],
        ),
        (&perl, "DB<1>", &[("p 6*7", "42\n"), ("p 6*7+1", "43\n"), ("p 'DB<9>'", "DB<9>\n")]),
    ] {
        if !is_installed(command[0]) {
            skip(command[0], "it is not installed");
            continue;
        }
        let rig = Rig::new();
        let _app = edits(&rig, command, prompt);
        for (ask, answer) in asks {
            answers(&rig, &["ask", APP, ask], 0, answer);
        }
    }
}

/// Editors as node, gforth, irb (whose line the kernel shows as well while it leaves the raw mode), and a
/// console with a menu have them, by the bytes that they write.
const EDITOR: &str = r#"
system "stty raw -echo"; $| = 1; my $line = ""; my $mode = shift; print "calc> ";
while (sysread(STDIN, my $key, 1)) {
    if ($key eq "\r" && $mode eq "preview") { print "\e[J\r\n<$line>\r\ncalc> "; $line = "" }
    elsif ($key eq "\r" && $mode eq "behind") { print " <$line>  ok\r\n"; $line = "" }
    elsif ($key eq "\r" && $mode eq "return") { print "\r\ncalc> $line\r\n<$line>\r\ncalc> "; $line = "" }
    elsif ($key eq "\r" && $mode eq "over") { print "\r$line\r\ncalc> $line\r\n<$line>\r\ncalc> "; $line = "" }
    elsif ($key eq "\r" && $mode eq "alone") { print "\r\e[Jcalc> \r\ncalc> $line\r\n<$line>\r\ncalc> "; $line = "" }
    elsif ($key eq "\r" && $mode eq "echo") { print "\r\nyou said $line\r\ncalc> "; $line = "" }
    elsif ($key eq "\x15") { $line = ""; print "\r\e[Jcalc> " }
    else {
        $line .= $key; print $key if $mode ne "over";
        my $col = length($line) + 7;
        print "\r\nmenu of $line\e[A\e[${col}G" if $mode eq "preview";
    }
}
"#;

#[test]
fn what_an_editor_shows_of_a_question_is_no_answer() {
    if !is_installed("perl") {
        return skip("perl", "it is not installed");
    }
    for (mode, options, want) in [
        ("preview", &[][..], "<6*7>\n"),
        ("behind", &[], "<6*7>  ok\n"),
        ("behind", &["--until", "ok"], "<6*7>  ok\n"),
        ("return", &[], "<6*7>\n"),
        ("over", &[], "<6*7>\n"),
        ("alone", &[], "<6*7>\n"),
        ("echo", &[], "you said 6*7\n"),
    ] {
        let rig = Rig::new();
        let _app = edits(&rig, &["perl", "-e", EDITOR, mode], "^calc> ");
        for _ in 0..2 {
            answers(&rig, &[&["ask", APP, "6*7"], options].concat(), 0, want);
        }
    }
}

/// A progress bar is no pause, and what looks like the prompt may be the answer.
#[test]
fn an_answer_goes_on_while_there_is_output() {
    let bar = "x=0; echo starting; while [ $x -lt 12 ]; do x=$((x+1)); printf '%s%%\\r' $x; sleep 0.1; done; echo done";
    let rig = Rig::new();
    let shell = ["env", "PS1=[root@h /]# ", "bash", "--norc"];
    let _app = edits(&rig, &shell, "# $");
    answers(&rig, &["ask", APP, "--idle", "1s", bar], 0, "starting\ndone\n");
    answers(&rig, &["ask", APP, "printf '[1,2,3]'"], 0, "[1,2,3]\n");
}

#[test]
fn no_answer_is_told_from_one_that_does_not_end() {
    let rig = Rig::new();
    let _app =
        run(&rig, &["-t"], &["sh", "-c", "while read x; do [ $x = quiet ] || echo $x; done"]);
    let why = "app demo: no answer within 500ms";
    says(&rig, &["ask", APP, "quiet", "--timeout", "0.5"], 124, "", why);
    answers(&rig, &["ask", APP, "hi"], 0, "hi\n");
}

#[test]
fn the_window_may_change_while_an_answer_comes() {
    let rig = Rig::new();
    let _app = edits(&rig, &["bash", "--norc"], "bash.*[$#]");
    let (begun, go) = (rig.file("begun"), rig.file("go"));
    let text = "T".repeat(70);
    let line = format!(
        "echo {text}; touch {}; until [ -e {} ]; do sleep 0.05; done; echo {text}",
        begun.display(),
        go.display()
    );
    let mut ask = rig.run(&["ask", APP, &line, "--idle", "2s"]);
    eventually("it runs", || begun.exists());
    for size in ["30x50", "10x200", "24x80"] {
        assert_eq!(rig.run(&["control", APP, "resize", size]).ends(), 0);
    }
    fs::write(go, "").unwrap();
    assert_eq!(ask.ends(), 0, "{}", ask.stderr.text());
    assert_eq!(ask.stdout.text(), format!("{text}\n{text}\n"));
}

/// Each byte of the app could cost thousands of the client's.
#[test]
fn an_app_cannot_make_an_answer_grow() {
    for sequence in ["\\033[16384@", "\\033[16384C", "x\\033[9999b", "\\033[2J\\033[H"] {
        let rig = Rig::new();
        let script = format!(
            "read x; i=0; while [ $i -lt 2000 ]; do printf '{sequence}{sequence}{sequence}'; i=$((i+1)); done; read x"
        );
        let _app = run(&rig, &["-t"], &["sh", "-c", &script]);
        // In KiB; far less than each of these would take.
        let limited =
            ["-c", "ulimit -v 262144; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_iottymux")];
        let ask = ["ask", APP, "go", "--until", "never", "--timeout", "2"];
        let ask = rig.command_of(Path::new("/bin/sh"), [&limited[..], &ask].concat());
        let (code, _, said) = outcome(Proc::spawn(ask));
        assert_eq!(code, 124, "{sequence}: {said}");
    }
}

/// Each of these sequences has a large screen looked at again.
#[test]
fn an_app_cannot_hold_up_an_answer() {
    let row = "x".repeat(999);
    for (screen, sequence) in [
        (row.repeat(119), "\\033]133;D\\033\\\\x"),
        (format!("{row}\\r\\n").repeat(119), "\\033[120H\\033[H"),
    ] {
        let rig = Rig::new();
        let script = format!(
            "read x; printf '{screen}'; while :; do printf '{}'; done",
            sequence.repeat(500)
        );
        let _app = run(&rig, &["-t", "--size", "120x1000"], &["sh", "-c", &script]);
        let ask = ["ask", APP, "go", "--until", "never", "--timeout", "1"];
        assert_eq!(outcome(rig.run(&ask)).0, 124, "{sequence}");
    }
}
