//! How `attach` finds an app: its document, waiting for it, and what it says when there is none.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::users::{as_user, shared_rig};

#[test]
fn an_error_names_the_missing_stream_and_the_existing_ones() {
    let rig = Rig::new();
    let _mux = rig.mux(["stream", "--app", APP, "--streams", "stdin,stdout"]);
    for (mode, why) in [
        ("stderr", "cannot attach to app demo: it has no stderr, only stdin,stdout"),
        ("tty", "cannot attach to app demo: it has no tty, only stdin,stdout"),
        ("stdout,stderr", "cannot attach to app demo: it has no stderr, only stdin,stdout"),
    ] {
        assert_fails(&mut rig.attach(&["--mode", mode]), 1, why);
    }
    assert_fails(&mut rig.attach(&["--mode", "tty,stdin"]), 2, "incompatible endpoints");
    assert_fails(&mut rig.attach(&["--mode", "stdfoo"]), 2, "unknown mode \"stdfoo\"");
}

#[test]
fn an_app_has_the_name_of_its_service_too() {
    let rig = Rig::new();
    let _mux = rig.mux(["stream", "--app", "game@eu", "--streams", "stdout"]);
    let _other = rig.mux(["stream", "--app", "web", "--streams", "stdout"]);
    for words in [
        &["gam"][..],
        &["game@eu"],
        &["game@eu.service"],
        &["--app", "game@eu"],
        &["game@eu.service", "--app", "web"],
    ] {
        let mut status = rig.run(&[&["status"], words].concat());
        assert_eq!(status.ends(), 0, "{words:?}: {}", status.stderr.so_far());
        assert!(status.stdout.text().starts_with("app game@eu: "), "{words:?}");
        assert_eq!(rig.run(&[&["ls"], words].concat()).ends(), 0, "{words:?}");
    }
    for (words, code, why) in [
        (&["status", "Game"][..], 1, "there is no app Game in "),
        (&["status", "é"], 2, "invalid value 'é'"),
        (&["status", "gmae@eu"], 1, "/state; try iottymux list"),
        (&["attach", "game", "--wait=0.1"], 1, "app game did not start within 100ms"),
        (&["attach", "--app", "game"], 1, "/state; try iottymux list"),
        (&["stop", "game"], 1, "/state; try iottymux list"),
        (&["control", "game", "reopen-logs"], 1, "there is no app game in "),
        (&["attach", "nobody"], 1, "there is no app nobody in "),
        (&["status"], 2, "expected the name of an app: one of game@eu, web"),
        (&["control", "reopen-logs"], 2, "expected the name of an app"),
        (&["atach", "web"], 2, "a similar subcommand exists: 'attach'"),
        (&["attach", "web", "--form", "now"], 2, "a similar argument exists: '--from'"),
        (&["control", "web"], 2, "requires a subcommand but one was not provided; try "),
        (&["send", "web", "say", "-v"], 2, "unexpected argument '-v' found; try "),
        (&["enable", "web", "--stop-timeout", "0s"], 2, "expected more than 0"),
    ] {
        assert_fails(&mut rig.run(words), code, why);
    }
    // A variable is not typed.
    let mut status = rig.command(["status", "web"]);
    status.env("IOTTYMUX_APP", "game@eu");
    let mut status = Proc::spawn(status);
    assert_eq!(status.ends(), 0);
    assert!(status.stdout.text().starts_with("app web: "));
}

/// The beginning of one name is enough, and a whole name is never a beginning.
#[test]
fn a_name_may_be_shortened_or_chosen() {
    let rig = Rig::new();
    let names = ["game", "game-eu", "game-us", "web"];
    let _muxes = names.map(|name| rig.mux(["stream", "--app", name, "--streams", "stdout"]));
    let mut status = rig.run(&["status", "game"]);
    assert_eq!(status.ends(), 0);
    assert!(status.stdout.text().starts_with("app game: "));
    assert_fails(&mut rig.run(&["status", "ga"]), 2, "ga may be one of game, game-eu, game-us");
    // One that has ended is not offered.
    assert_eq!(rig.run(&["run", "--name", "aaa", "true"]).ends(), 0);
    for (answer, app) in [("3", "game-us"), ("web", "web"), ("w", "web")] {
        let local = Pty::open(24, 80);
        let mut attach = local.spawn(rig.command(["attach"]));
        local.shown.wait_for("  2  game-eu\r\n  3  game-us\r\n  4  web\r\nattach to: ");
        local.press(format!("{answer}\r").as_bytes());
        local.shown.wait_for(&format!("stdout of app {app}, read-only: ^C leaves"));
        local.press(b"\x03");
        assert_eq!(attach.ends(), -2);
    }
    let local = Pty::open(24, 80);
    let mut attach = local.spawn(rig.command(["attach"]));
    local.shown.wait_for("attach to: ");
    local.press(b"game-\r");
    local.shown.wait_for("expected one of these apps; try iottymux attach --help");
    assert_eq!(attach.ends(), 2);
}

#[test]
fn the_only_app_needs_no_name() {
    let rig = Rig::new();
    assert_fails(&mut rig.run(&["status"]), 2, "expected the name of an app, and there is no app");
    let _mux = rig.mux(["stream", "--app", APP, "--streams", "stdout"]);
    let mut status = rig.run(&["status"]);
    assert_eq!(status.ends(), 0, "{}", status.stderr.so_far());
    assert!(status.stdout.text().starts_with("app demo: "));
    // What changes something does not guess.
    assert_fails(&mut rig.run(&["control", "reopen-logs"]), 2, "expected the name of an app");
}

/// It ends with this code and one line that has this text.
fn assert_fails(attach: &mut Proc, code: i32, why: &str) {
    assert_eq!(attach.ends(), code, "{}", attach.stderr.so_far());
    let said = attach.stderr.text();
    assert!(said.starts_with("iottymux: ") && said.contains(why), "{said:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(attach.stdout.text(), "");
}

#[test]
fn without_a_mux_it_says_so() {
    let rig = Rig::new();
    let unknown = format!("there is no app demo in {}; try iottymux list", rig.state().display());
    for command in ["attach", "status", "list", "logs", "stop", "kill", "rm"] {
        assert_fails(&mut rig.run(&[command, APP]), 1, &format!("{unknown}\n"));
    }
    assert_fails(&mut rig.run(&["send", APP, "x"]), 1, &format!("{unknown}\n"));
    let mut mux = rig.stream();
    mux.signal(Signal::SIGKILL);
    mux.ends();
    assert_fails(&mut rig.attach(&[]), 1, "app demo: its mux was killed\n");
}

#[test]
fn documents_that_cannot_be_read_are_refused() {
    for (document, why) in [
        (r#"{"version":2,"targets":[]}"#, "unknown version 2 of this document"),
        (r#"{"version":1,"targets":[]}"#, "it has no stream that can be attached"),
        ("garbage", "endpoints: expected value"),
        ("", "endpoints: EOF"),
    ] {
        let rig = Rig::new();
        rig.make_app_dir();
        fs::write(rig.path("endpoints"), document).unwrap();
        assert_fails(&mut rig.attach(&[]), 1, why);
    }
}

#[test]
fn a_document_that_is_no_plain_file_is_not_opened() {
    let rig = Rig::new();
    rig.make_app_dir();
    rig.make_fifo("endpoints");
    assert_fails(&mut rig.attach(&[]), 1, "endpoints: it is not a regular file");
    let mut nowhere = rig.run(&["--state-dir", "/nowhere", "list"]);
    assert_eq!(nowhere.ends(), 0);
    assert_eq!(nowhere.stderr.text(), "");
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    fs::remove_file(rig.path("endpoints")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", rig.path("endpoints")).unwrap();
    assert_fails(&mut rig.attach(&[]), 1, "it is a symbolic link");
}

#[test]
fn nothing_outside_the_apps_directory_is_dialled() {
    let rig = Rig::new();
    rig.make_app_dir();
    let outside = UnixListener::bind(rig.file("sock-session")).unwrap();
    let inside = UnixListener::bind(rig.path("sock-session")).unwrap();
    let address = rig.file("sock-session");
    for address in [address.to_str().unwrap(), "../../sock-session"] {
        let document = serde_json::json!({
            "version": 1,
            "targets": [{"name": "stdout", "domain": "unix", "address": "sock-stdout"}],
            "session": {"version": 1, "domain": "unix", "address": address},
        });
        fs::write(rig.path("endpoints"), document.to_string()).unwrap();
        let _attach = rig.attach(&[]);
        let (served, _) = inside.accept().unwrap();
        expect(served, "\x01\0\0\0");
    }
    outside.set_nonblocking(true).unwrap();
    assert!(outside.accept().is_err());
}

#[test]
fn waiting_sees_the_first_byte() {
    let rig = Rig::new();
    let attach = rig.attach(&["--wait", "--mode", "stdout"]);
    attach.waits();
    let _mux = rig.stream();
    rig.writer("stdout").write_all(b"first\n").unwrap();
    attach.stdout.wait_for("first\n");
    assert!(attach.stdout.so_far().starts_with("first"));
}

#[test]
fn waiting_ends_in_time() {
    let rig = Rig::new();
    let began = Instant::now();
    let mut attach = rig.attach(&["--wait=0.2"]);
    assert_fails(&mut attach, 1, "app demo did not start within 200ms");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(5), "{took:?}");
}

/// A job of cron has no session: its user may still attach to apps of the machine.
#[test]
fn without_a_session_the_machines_apps_are_meant() {
    let Some(rig) = shared_rig() else { return };
    let app = format!("nothing-{}", std::process::id());
    for command in ["status", "attach", "send"] {
        let mut client = as_user(&rig, 54321, "", &rig.file("iottymux"));
        client.env_remove("IOTTYMUX_STATE_DIR").env_remove("XDG_RUNTIME_DIR");
        client.args([command, &app]);
        client.args((command == "send").then_some("x")).stdin(Stdio::null());
        let mut client = Proc::spawn(client);
        assert_eq!(client.ends(), 1);
        let said = client.stderr.text();
        let want = format!(
            "iottymux: there is no app {app} in /run/iottymux or /tmp/iottymux-54321; try iottymux list"
        );
        assert!(said.starts_with(&want), "{said}");
    }
}

#[test]
fn a_pattern_stands_for_the_apps_that_it_fits() {
    let rig = Rig::new();
    let names = ["agent-1", "agent-2", "agent-3", "web"];
    for name in names {
        assert_eq!(rig.run(&["run", "-d", "--name", name, "sleep", "1000"]).ends(), 0);
    }
    let prints = |words: &[&str], code: i32, stdout: &str| {
        let mut command = rig.run(words);
        let (ended, said) = (command.ends(), command.stderr.text());
        assert_eq!((ended, command.stdout.text().as_str()), (code, stdout), "{words:?}: {said}");
        said
    };
    for (pattern, fits) in [
        ("*", &names[..]),
        ("agent-*", &names[..3]),
        ("agent-?", &names[..3]),
        ("*[!2-9]", &["agent-1", "web"]),
        ("[a]*-[12]", &names[..2]),
        ("web*", &["web"]),
        ("w*b", &["web"]),
    ] {
        prints(&["list", "-q", pattern], 0, &(fits.join("\n") + "\n"));
    }
    let mut status = rig.run(&["status", "agent-[12]", "--json"]);
    assert_eq!(status.ends(), 0);
    let status: serde_json::Value = serde_json::from_str(&status.stdout.text()).unwrap();
    let apps: Vec<_> = status.as_array().unwrap().iter().map(|of| of["app"].as_str()).collect();
    assert_eq!(apps, [Some("agent-1"), Some("agent-2")]);
    // The only one, or none.
    prints(&["logs", "we*"], 0, "");
    let exact = "expected one name, not a pattern";
    for (words, code, why) in [
        (&["logs", "agent-*"][..], 2, "agent-* may be one of agent-1, agent-2, agent-3"),
        (&["attach", "agent-[12]"], 2, "agent-[12] may be one of agent-1, agent-2"),
        (&["attach", "--app", "agent-[12]"], 2, "agent-[12] may be one of agent-1, agent-2"),
        (&["send", "we*", "x"], 2, exact),
        (&["ask", "we*", "x"], 2, exact),
        (&["control", "we*", "restart"], 2, exact),
        (&["attach", "we*", "--wait=1"], 2, exact),
        (&["list", "nobody*"], 1, "no app for this command fits nobody*; try iottymux list"),
        (&["status", "[\u{202e}"], 1, "no app for this command fits [\\u{202e}; try iottymux list"),
        (&["attach", "?"], 1, "no app for this command fits ?; try iottymux list"),
        (&["wait", "web", "nobody*"], 1, "no app for this command fits nobody*; try iottymux list"),
        (&["events", "nobody*"], 1, "no app for this command fits nobody*; try iottymux list"),
        (&["stop", "nobody*"], 1, "no app for this command fits nobody*; try iottymux list"),
        (&["rm", "nobody*"], 1, "no app for this command fits nobody*; try iottymux list"),
    ] {
        assert_fails(&mut rig.run(words), code, why);
    }
    let mut events = rig.run(&["events", "agent-[12]", "web", "--no-data"]);
    let mut waits = rig.run(&["wait", "agent-*"]);
    for client in [&events, &waits] {
        let pid = client.pid().as_raw();
        let is_it = |other: &serde_json::Value| other["pid"] == pid;
        eventually("it is a client", || {
            let mut status = rig.run(&["status", "agent-2", "--json"]);
            status.ends();
            let status: serde_json::Value = serde_json::from_str(&status.stdout.text()).unwrap();
            status["clients"].as_array().unwrap().iter().any(is_it)
        });
    }
    let ended = |names: &[&str], signal| -> String {
        let line = |name| format!("app {name} ended by signal {signal}\n");
        names.iter().fold(String::new(), |all, name| all + &line(name))
    };
    prints(&["stop", "agent-[12]"], 0, &ended(&names[..2], 15));
    // Those that have ended are not stopped again, and do not keep others from it.
    let said = prints(&["rm", "agent-*"], 1, "removed app agent-1\nremoved app agent-2\n");
    assert!(said.contains("app agent-3 is running"), "{said}");
    prints(&["kill", "nobody*", "agent-*", "w*"], 1, &ended(&names[2..], 9));
    assert_eq!((waits.ends(), waits.stdout.text().lines().count()), (0, 3));
    assert_eq!(events.ends(), 0);
    let told = events.stdout.text();
    assert_eq!(told.matches("\"event\":\"ended\"").count(), 3, "{told}");
    prints(&["rm", "*"], 0, "removed app agent-3\nremoved app web\n");
}
