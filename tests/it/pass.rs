//! Only drawing sequences of an app reach a viewer's terminal, and those that `--pass` allows.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use nix::sys::signal::Signal;

use crate::at_terminal::at_prompt;
use crate::pty::Pty;
use crate::rig::{APP, Rig};

/// Strings that do more than draw, in pieces that are cut anywhere.
const HOSTILE: [&[u8]; 9] = [
    // Control characters within, which terminals execute apart.
    b"\x1b\0]52;c;ZXZpbA==\x07\x1b\n]2;title\x07\x1b\x7f_evil\x1b\\\x1b[\0>2t",
    b"<a>\x1b]52;c;ZXZpbA==\x07<b>\x1b]2;ti",
    b"tle\x1b\\<c>\x1b",
    b"]0;title\x07<d>\x1bPtmux;\x1b\x1b]52;c;ZXZpbA==\x07\x1b\\<e>\x1b]13",
    b"37;File=name=eA==:ZXZpbA==\x07<f>\x1b]777;notify;evil;evil\x1b\\<g>",
    b"\x1bkevil\x1b\\<h>\x1b_evil\x1b\\<i>\x1b^evil\x1b\\<j>\x1b[5i<k>\xc2",
    b"\x9d52;c;ZXZpbA==\x07<l>\x1b]9;",
    b"evil\x07\x1b[31mred\x1b[m\x1b]8;;http://x\x07link\x1b]8;;\x07",
    b"<end>",
];
/// What is left of them, the introducer of 8 bits aside.
const DRAWN: &str = "<a><b><c><d><e><f><g><h><i><j><k>";
const REST: &str = "52;c;ZXZpbA==\x07<l>\x1b[31mred\x1b[m\x1b]8;;http://x\x07link\x1b]8;;\x07<end>";

/// What `status` says of them.
const REFUSED: &str =
    "not shown without --pass: title 4, clipboard 3, notify 2, other 5, unknown 2\n";

fn assert_harmless(shown: &str) {
    assert!(shown.contains(DRAWN) && shown.contains(REST), "{shown:?}");
    for bad in [
        "]52",
        "]2;",
        ">2t",
        "\x1b]0",
        "\x1b]1337",
        "\x1b]777",
        "\x1bP",
        "\x1bk",
        "\x1b_",
        "\x1b[22",
        "\u{9d}",
    ] {
        assert!(!shown.contains(bad), "{bad:?} in {shown:?}");
    }
}

#[test]
fn a_terminal_gets_only_drawing_sequences() {
    for redraw in ["none", "screen"] {
        let rig = Rig::new();
        let _mux = rig.tty();
        let (local, _attach, mut app) = at_prompt(&rig, 200, &["--redraw", redraw]);
        // It would come between the pieces.
        local.shown.wait_for("iottymux: demo: ");
        for piece in HOSTILE {
            app.write_all(piece).unwrap();
        }
        local.shown.wait_for("<end>");
        assert_harmless(&local.shown.so_far());
        let mut status = rig.run(&["status", "--app", APP]);
        assert_eq!(status.ends(), 0);
        assert!(status.stdout.text().contains(REFUSED), "{}", status.stdout.text());
        // Its title comes with a screen, too.
        let other = Pty::open(24, 200);
        let _other = other.spawn(rig.command(["attach", "--app", APP, "--redraw", redraw]));
        other.shown.wait_for("1 other is attached");
        app.write_all(b"<again>").unwrap();
        other.shown.wait_for("<again>");
        // A hyperlink is drawn.
        let commands = other.shown.so_far().replace("\x1b]8;", "");
        assert!(!commands.contains("\x1b]"), "{commands:?}");
    }
}

/// Without a terminal of the app's. Both streams may cut one string.
#[test]
fn streams_on_a_terminal_are_filtered_as_well() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let local = Pty::open(24, 80);
    let _attach = local.spawn(rig.command(["attach", "--app", APP]));
    let (mut stdout, mut stderr) = (rig.writer("stdout"), rig.writer("stderr"));
    for piece in HOSTILE {
        stdout.write_all(piece).unwrap();
    }
    local.shown.wait_for("<end>");
    assert_harmless(&local.shown.so_far());
    stdout.write_all(b"<o>\x1b]5").unwrap();
    local.shown.wait_for("<o>");
    stderr.write_all(b"2;c;evil\x07<p>").unwrap();
    local.shown.wait_for("<p>");
    assert!(local.shown.so_far().ends_with("<o><p>"), "{:?}", local.shown.so_far());
}

#[test]
fn a_pipe_is_given_everything() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let attach = rig.attach(&["--mode", "stdout"]);
    let mut stdout = rig.writer("stdout");
    for piece in HOSTILE {
        stdout.write_all(piece).unwrap();
    }
    let all = HOSTILE.concat();
    assert_eq!(attach.stdout.wait_len(all.len()), all);
}

/// And the title is put back on every way out.
#[test]
fn allowed_sequences_pass() {
    for (way, streams) in [("keys", false), ("SIGTERM", false), ("end", false), ("end", true)] {
        let rig = Rig::new();
        let mut mux = if streams { rig.stream() } else { rig.tty() };
        let local = Pty::open(24, 80);
        // A screen would leave out what the app has printed before it.
        let mut command = rig.command(["attach", "--app", APP, "--redraw", "none"]);
        command.env("IOTTYMUX_PASS", "title,clipboard");
        let mut attach = local.spawn(command);
        let mut app = if streams { rig.writer("stdout") } else { rig.slave() };
        app.write_all(b"\x1b]52;c;aGk=\x07\x1b]777;notify;a;b\x07<shown>").unwrap();
        local.shown.wait_for("\x1b]52;c;aGk=\x07<shown>");
        assert!(!local.shown.so_far().contains("\x1b[22;0t"));
        app.write_all(b"\x1b]2;one\x07\x1b]2;two\x07<titled>").unwrap();
        local.shown.wait_for("\x1b[22;0t\x1b]2;one\x07\x1b]2;two\x07<titled>");
        match way {
            "keys" => local.press(b"\x10\x11"),
            "SIGTERM" => attach.signal(Signal::SIGTERM),
            _ => {
                drop(app);
                mux.signal(Signal::SIGTERM);
                assert_eq!(mux.ends(), 0);
            }
        }
        attach.ends();
        let shown = local.shown_before_mark();
        assert_eq!(shown.matches("\x1b[23;0t").count(), 1, "{way}: {shown:?}");
    }
}

#[test]
fn unknown_words_are_refused() {
    let rig = Rig::new();
    let mut attach = rig.attach(&["--pass", "titles"]);
    assert_eq!(attach.ends(), 2);
    let said = attach.stderr.text();
    assert!(
        said.contains("expected none, all, title, clipboard, notify, other or unknown"),
        "{said}"
    );
}

/// Documents and errors of a peer are escaped on the terminal that shows them.
#[test]
fn documents_and_errors_of_peers_are_escaped() {
    let rig = Rig::new();
    rig.make_app_dir();
    let evil = "\u{9b}2J\u{7f}\u{202e}\u{2066}\u{61c}\u{2028}";
    let document = serde_json::json!({"version": 1, "targets": [
        {"name": "stdout", "domain": "unix", "address": format!("/x/{evil}/sock-stdout")}],
        "session": {"version": 1, "domain": "unix", "address": "/x/sock-session"}});
    fs::write(rig.path("endpoints"), document.to_string()).unwrap();
    let listener = UnixListener::bind(rig.path("sock-session")).unwrap();
    let refusal = serde_json::json!({"error": format!("no{evil}")});
    for words in [
        &["attach", "--app", APP, "--mode", "list"][..],
        &["list", "--app", APP],
        &["attach", "--app", APP],
        &["status", "--app", APP],
    ] {
        let local = Pty::open(24, 80);
        let mut command = local.spawn(rig.command(words));
        if !words.contains(&"--mode") {
            let (mut client, _) = listener.accept().unwrap();
            let mut hello = [0; 4096];
            assert!(client.read(&mut hello).unwrap() > 0);
            client.write_all(&iottymux::core::wire::FrameKind::Error.message(&refusal)).unwrap();
        }
        command.ends();
        let shown = local.shown_before_mark();
        assert!(!shown.contains(|c| evil.contains(c) && !"2J".contains(c)), "{shown:?}");
        assert!(shown.contains("9b"), "{shown:?}");
    }
}
