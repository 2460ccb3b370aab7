//! Commands that end: when nobody reads them any more, and against a mux that welcomes and drops.

use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use iottymux::core::wire::{FrameKind, HEADER};
use serde_json::json;
use std::io::{Read, Write};

use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};

fn run(rig: &Rig, options: &[&str], script: &str) -> Proc {
    let words = [&["run", "--foreground", "--name", APP][..], options, &["sh", "-c", script]];
    rig.mux(words.concat())
}

/// As `| head -1` does: one line is read, and then nobody reads.
#[test]
fn those_that_go_on_printing_end_with_their_reader() {
    let rig = Rig::new();
    let _app = run(&rig, &["-t"], "while :; do echo line; sleep 0.05; done");
    for words in [
        &["events", APP][..],
        &["events", "--all"],
        &["screen", "--follow", APP],
        &["screen", "--follow", "--json", APP],
        &["logs", "--follow", APP],
    ] {
        let mut child = rig.command(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{words:?}: {status}");
    }
}

/// A spinner is never quiet.
#[test]
fn a_screen_that_changes_all_the_time_is_printed() {
    let rig = Rig::new();
    let script = "i=0; while :; do i=$((i + 1)); printf '\\rnumber %s ' $i; sleep 0.02; done";
    let _app = run(&rig, &["-t"], script);
    let follow = rig.run(&["screen", "--follow", APP]);
    let screens = || follow.stdout.so_far().matches('\u{c}').count();
    eventually("it is printed again and again", || screens() >= 3);
}

/// The app's directory, with a mux that welcomes each client and drops it; counts them.
fn dropping(rig: &Rig) -> Arc<AtomicUsize> {
    rig.make_app_dir();
    let socket = UnixListener::bind(rig.path("session")).unwrap();
    let stream = |name: &str| json!({"name": name, "domain": "unix", "address": rig.path(&format!("sock-{name}"))});
    let session = json!({"version": 1, "domain": "unix", "address": rig.path("session")});
    let targets = [stream("stdin"), stream("stdout")];
    let document = json!({"version": 1, "targets": targets, "session": session});
    fs::write(rig.path("endpoints"), document.to_string()).unwrap();
    let (clients, counted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&clients);
    thread::spawn(move || {
        for client in socket.incoming() {
            let mut client = client.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = client.read(&mut [0; 4096 + HEADER]);
            let begin = json!({"stream": "stdout", "offset": 0});
            let welcome =
                json!({"version": 1, "epoch": "0000000000000001", "streams": [begin], "others": 0});
            let _ = client.write_all(&FrameKind::Welcome.message(&welcome));
        }
    });
    clients
}

#[test]
fn a_mux_that_welcomes_and_drops_is_not_called_all_the_time() {
    let rig = Rig::new();
    let clients = dropping(&rig);
    for words in [&["events", APP][..], &["attach", APP, "--mode", "stdout", "--reconnect", "60"]] {
        let before = clients.load(Ordering::Relaxed);
        let mut command = rig.command(words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        // However fast the machine: a pause is counted, not a time.
        let since = Instant::now();
        eventually("it has tried again", || clients.load(Ordering::Relaxed) > before + 5);
        assert!(since.elapsed() >= Duration::from_millis(50 + 100 + 200), "{words:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_ends_an_app_ends_whatever_its_mux_does() {
    let rig = Rig::new();
    let _clients = dropping(&rig);
    for words in [&["kill", APP][..], &["stop", "--time", "0.1", APP]] {
        let mut ends = rig.run(words);
        assert_eq!(ends.ends(), 1, "{words:?}: {}", ends.stderr.so_far());
    }
}
