//! The state of all apps: for Prometheus, and as JSON.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use crate::rig::Rig;

/// What a command prints; it must succeed.
fn said(rig: &Rig, arguments: &[&str]) -> String {
    let mut asked = rig.run(arguments);
    assert_eq!(asked.ends(), 0, "{arguments:?}: {}", asked.stderr.text());
    asked.stdout.text()
}

#[test]
fn metrics_of_all_apps() {
    let rig = Rig::new();
    let log = format!("raw:{}", rig.file("log").display());
    let mux = rig.mux(["stream", "--app", "demo", "--log", &log]);
    let _other = rig.mux(["tty", "--app", "other"]);
    let mut ended = rig.run(&["run", "--app", "gone", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ended.ends(), 3);
    rig.writer("stdout").write_all(b"12345").unwrap();
    mux.rests();
    let _client = rig.client("stdout");
    let text = said(&rig, &["metrics"]);
    for line in [
        "iottymux_app_state{app=\"demo\",state=\"running\"} 1",
        "iottymux_app_state{app=\"gone\",state=\"exited\"} 1",
        "iottymux_app_state{app=\"other\",state=\"prepared\"} 1",
        "iottymux_app_exit_code{app=\"gone\"} 3",
        "iottymux_stream_bytes_total{app=\"demo\",stream=\"stdout\"} 5",
        "iottymux_app_restarts_total{app=\"other\"} 0",
        "iottymux_clients{app=\"demo\"} 1",
        "iottymux_clients{app=\"other\"} 0",
        &format!("iottymux_log_failing{{app=\"demo\",log=\"{log}\"}} 0"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // Each metric stands in one place, below its type.
    let mut done = BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split(' ').next().unwrap();
            assert!(done.insert(current), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(rest == format!("{current} gauge") || rest == format!("{current} counter"));
        } else {
            let (name, value) = line.split_once('{').unwrap();
            assert_eq!(name, current, "{line}");
            assert!(value.split_once("} ").unwrap().1.parse::<u64>().is_ok(), "{line}");
        }
    }
    // Asking is no client of the app.
    assert_eq!(said(&rig, &["metrics"]).matches("iottymux_clients{app=\"demo\"} 1").count(), 1);
}

#[test]
fn the_status_of_all_apps() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let _other = rig.mux(["tty", "--app", "other"]);
    fs::create_dir(rig.state().join("unknown")).unwrap();
    let all: Value = serde_json::from_str(&said(&rig, &["status", "--all", "--json"])).unwrap();
    let field = |name: &str| all.as_array().unwrap().iter().map(|a| a[name].clone()).collect();
    let apps: Vec<Value> = field("app");
    assert_eq!(apps, ["demo", "other", "unknown"]);
    let states: Vec<Value> = field("app_state");
    assert_eq!(states, ["prepared", "prepared", "unknown"]);
    assert_eq!(all[2], json!({"app": "unknown", "app_state": "unknown"}));
    assert_eq!(all[0]["mux_pid"], rig.status()["mux_pid"]);
    let text = said(&rig, &["status", "--all"]);
    assert!(text.starts_with("app demo: prepared, mux "), "{text}");
    assert!(text.ends_with("\n\napp unknown: unknown\n"), "{text}");
}

#[test]
fn without_apps() {
    let rig = Rig::new();
    fs::create_dir(rig.state()).unwrap();
    assert_eq!(said(&rig, &["status", "--all", "--json"]), "[]\n");
    assert!(said(&rig, &["metrics"]).lines().all(|line| line.starts_with("# ")));
}
