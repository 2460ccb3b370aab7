//! Documents of muxes that are not ours, as rkt's.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};

/// Changes the document of a mux.
fn edit(rig: &Rig, change: impl Fn(&mut Value)) {
    let mut document = serde_json::from_slice(&fs::read(rig.path("endpoints")).unwrap()).unwrap();
    change(&mut document);
    fs::write(rig.path("endpoints"), document.to_string()).unwrap();
}

#[test]
fn a_mux_without_sessions_is_not_attached() {
    let rig = Rig::new();
    let _mux = rig.stream();
    edit(&rig, |document| drop(document.as_object_mut().unwrap().remove("session")));
    let mut attach = rig.attach(&[]);
    assert_eq!(attach.ends(), 1);
    let why = "app demo: its mux has no sessions (it is rkt's own)";
    assert!(attach.stderr.text().contains(why), "{}", attach.stderr.text());
}

#[test]
fn unknown_targets_are_skipped_with_a_warning() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let video = json!({"name": "video", "domain": "unix", "address": "/x/sock-video"});
    edit(&rig, |document| {
        document["later"] = json!({});
        document["targets"].as_array_mut().unwrap().insert(0, video.clone());
    });
    let mut command = rig.command(["attach", "--app", APP]);
    command.stdin(Stdio::null());
    let attach = Proc::spawn(command);
    std::io::Write::write_all(&mut rig.writer("stdout"), b"known").unwrap();
    attach.stdout.wait_for("known");
    assert!(attach.stderr.so_far().contains("skipping the unknown endpoint \"video\""));
}
