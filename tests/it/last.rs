//! What a mux leaves of its app, and who reads it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::proc::eventually;
use crate::rig::{APP, Rig};

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn read(rig: &Rig) -> Value {
    serde_json::from_slice(&fs::read(rig.path("last.json")).unwrap()).unwrap()
}

/// What a command prints; it must succeed.
fn said(rig: &Rig, arguments: &[&str]) -> String {
    let mut asked = rig.run(arguments);
    assert_eq!(asked.ends(), 0, "{arguments:?}: {}", asked.stderr.text());
    assert_eq!(asked.stderr.text(), "", "{arguments:?}");
    asked.stdout.text()
}

/// The one line with which an attach fails.
fn refusal(rig: &Rig, arguments: &[&str]) -> String {
    let mut attach = rig.attach(arguments);
    assert_eq!(attach.ends(), 1);
    let said = attach.stderr.text();
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}

/// A text with `N` in the place of a number of seconds and ` s ago`.
fn timeless(text: &str) -> String {
    let (before, after) = text.split_once(" s ago").unwrap_or_else(|| panic!("{text}"));
    let age: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(age < 60, "{text}");
    format!("{}N{after}", before.trim_end_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn a_mux_leaves_how_its_app_ended_and_its_last_words() {
    let rig = Rig::new();
    let before = unix_ms();
    let script = "head -c 5000 /dev/zero | tr '\\0' x; printf 'last\\377\\n'; echo oh >&2; exit 3";
    let mut run = rig.run(&["run", "--foreground", "--app", APP, "--", "sh", "-c", script]);
    assert_eq!(run.ends(), 3);
    let mut last = read(&rig);
    let ended = last["ended_ms"].take().as_u64().unwrap();
    assert!(before <= ended && ended <= unix_ms());
    let tail = "x".repeat(4096 - 6) + "last\u{fffd}\n";
    assert_eq!(
        last,
        json!({
            "version": 1, "app": "demo", "ended_ms": null, "status": {"status": 3},
            "streams": [
                {"stream": "stdout", "bytes": 5006, "tail": tail},
                {"stream": "stderr", "bytes": 3, "tail": "oh\n"},
            ],
        })
    );
    let mode = fs::metadata(rig.path("last.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The next start is not the last end.
    let _mux = rig.stream();
    assert!(!rig.exists("last.json"));
}

#[test]
fn it_is_there_before_the_app_can_no_longer_be_found() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    // It keeps the mux from ending, but not its doors open.
    let _lazy = rig.client("stdout");
    crate::pattern::write(rig.writer("stdout"), 1 << 20);
    mux.signal(Signal::SIGTERM);
    eventually("the document is gone", || {
        let gone = !rig.exists("endpoints");
        assert!(!gone || rig.exists("last.json"), "neither is there");
        gone
    });
    assert_eq!(mux.ends(), 0);
}

#[test]
fn a_later_client_learns_how_the_app_ended() {
    for (script, how) in [("exit 3", "with status 3"), ("kill -9 $$", "by signal 9")] {
        let rig = Rig::new();
        let mut run = rig.run(&["run", "--foreground", "--app", APP, "--", "sh", "-c", script]);
        run.ends();
        let line = format!("iottymux: app demo is not running: it ended {how}, N");
        assert_eq!(timeless(&refusal(&rig, &[])), line);
        let waited = refusal(&rig, &["--wait=0.1"]);
        assert!(
            waited.contains(&format!("did not start within 100ms: it ended {how}, ")),
            "{waited}"
        );
        let list = said(&rig, &["list"]);
        assert_eq!(list.lines().nth(1), Some("demo  exited"), "{list}");
    }
}

#[test]
fn a_mux_that_does_not_know_says_so() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    mux.signal(Signal::SIGTERM);
    mux.ends();
    assert_eq!(read(&rig)["status"], Value::Null);
    let told = refusal(&rig, &[]);
    assert!(told.contains("it ended or lost its mux, with an unknown exit status, "), "{told}");
}

#[test]
fn the_status_shows_the_last_ten_lines() {
    let rig = Rig::new();
    let mut run = rig.run(&["run", "--foreground", "--app", APP, "--", "seq", "1", "200"]);
    run.ends();
    let text = said(&rig, &["status", APP]);
    let last = (191..=200).fold(String::new(), |lines, line| format!("{lines}  {line}\n"));
    assert!(text.contains(&format!("\n  (more: iottymux logs demo)\n{last}stderr")), "{text}");
}

#[test]
fn the_status_of_an_app_that_has_ended_shows_its_last_words_escaped() {
    let rig = Rig::new();
    let script = "printf 'one\\n\\033[2J\\b\"two\"\\r\\n\\nthree'; exit 4";
    let mut run = rig.run(&["run", "--foreground", "--app", APP, "--", "sh", "-c", script]);
    run.ends();
    let text = said(&rig, &["status", "--app", APP]);
    let want = "app demo: ended with status 4, N\nstdout   22 bytes\n  one\n  \"two\"\n  \n  three\nstderr   0 bytes\n";
    assert_eq!(timeless(&text), want);
    let report: Value =
        serde_json::from_str(&said(&rig, &["status", "--app", APP, "--json"])).unwrap();
    assert_eq!(report["state"], "ended");
    assert_eq!(report["app_ended"], json!({"status": 4}));
    assert_eq!(report["ended_ms"], read(&rig)["ended_ms"]);
    assert_eq!(report["streams"][0]["tail"], "one\n\u{1b}[2J\u{8}\"two\"\r\n\nthree");
}

/// `rkt app rm` removes the image of an app, and leaves the directory of its mux.
#[test]
fn an_app_that_was_removed_from_a_pod_is_not_listed() {
    let rig = Rig::new();
    let state = rig.file("pod/rkt/iottymux");
    let image = rig.file("pod/opt/stage2/demo");
    fs::create_dir_all(image.join("rootfs")).unwrap();
    let in_pod =
        |words: &[&str]| said(&rig, &[&["--state-dir", state.to_str().unwrap()], words].concat());
    let list = || in_pod(&["list", "-q"]);
    in_pod(&["run", "--detach", "--name", "demo", "sh", "-c", "read x"]);
    assert_eq!(list(), "demo\n");
    // It runs: something else than rkt has removed the image.
    fs::remove_dir_all(&image).unwrap();
    assert_eq!(list(), "demo\n");
    in_pod(&["send", "demo", "x"]);
    eventually("its mux has ended", || list() != "demo\n");
    assert!(state.join("demo/last.json").exists());
    assert_eq!(list(), "");
    fs::create_dir_all(&image).unwrap();
    assert_eq!(list(), "demo\n");
}

#[test]
fn other_documents_are_ignored() {
    let good = json!({"version": 1, "app": "demo", "ended_ms": 1, "status": null, "streams": []});
    let changed = |key: &str, value: Value| {
        let mut document = good.clone();
        document[key] = value;
        document.to_string()
    };
    let large = changed("app", "x".repeat(1 << 16).into());
    for (document, why) in [
        ("garbage".to_owned(), "last.json: expected value"),
        (String::new(), "last.json: EOF"),
        (changed("version", json!(2)), "unknown version 2 of this document"),
        (changed("ended_ms", json!(-1)), "last.json: invalid value"),
        (changed("status", json!({"status": 999})), "last.json: invalid value"),
        (changed("streams", json!([{"stream": "etc"}])), "last.json: unknown variant"),
        (large, "last.json: it is larger than 65536 bytes"),
    ] {
        let rig = Rig::new();
        rig.make_app_dir();
        fs::write(rig.path("last.json"), document).unwrap();
        assert_not_believed(&rig, why);
    }
    let rig = Rig::new();
    rig.make_app_dir();
    rig.make_fifo("last.json");
    assert_not_believed(&rig, "last.json: it is not a regular file");
    fs::remove_file(rig.path("last.json")).unwrap();
    std::os::unix::fs::symlink(Path::new("/dev/zero"), rig.path("last.json")).unwrap();
    assert_not_believed(&rig, "it is a symbolic link");
}

/// Every reader says one line, or nothing, and the next mux begins as ever.
fn assert_not_believed(rig: &Rig, why: &str) {
    for said in [refusal(rig, &[]), {
        let mut status = rig.run(&["status", "--app", APP]);
        assert_eq!(status.ends(), 1);
        assert_eq!(status.stdout.text(), "");
        status.stderr.text().trim_end().to_owned()
    }] {
        assert!(said.starts_with("iottymux: app demo is not running: "), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(said(rig, &["list"]).lines().nth(1), Some("demo  unknown"));
}

#[test]
fn one_that_is_in_the_way_is_replaced() {
    let rig = Rig::new();
    rig.make_app_dir();
    std::os::unix::fs::symlink(rig.file("outside"), rig.path("last.json")).unwrap();
    fs::write(rig.file("outside"), "untouched").unwrap();
    let mut mux = rig.stream();
    std::os::unix::fs::symlink(rig.file("outside"), rig.path("last.json")).unwrap();
    rig.writer("stdout").write_all(b"word").unwrap();
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert_eq!(fs::read_to_string(rig.file("outside")).unwrap(), "untouched");
    assert_eq!(read(&rig)["streams"][0]["tail"], "word");
}
