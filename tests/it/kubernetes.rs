//! Containers by the names that Kubernetes gives them.

use std::fs;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A mux for the container with this name of Kubernetes.
fn container(rig: &Rig, app: &str, name: &str) -> Proc {
    let mux = rig.mux(["stream", "--app", app]);
    write(rig, app, &json!({ "id": app, "kubernetes": name }));
    mux
}

fn write(rig: &Rig, app: &str, fields: &Value) {
    let mut document = json!({ "version": 1, "namespace": "k8s.io" });
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    fs::write(rig.state().join(app).join("container.json"), document.to_string()).unwrap();
}

/// A container that ended at this time.
fn ended(rig: &Rig, app: &str, name: &str, at: u64) {
    fs::create_dir_all(rig.state().join(app)).unwrap();
    write(rig, app, &json!({ "id": app, "kubernetes": name }));
    let status = json!({ "status": 3 });
    let last = json!({ "version": 1, "app": app, "ended_ms": at, "status": status, "streams": [] });
    fs::write(rig.state().join(app).join("last.json"), last.to_string()).unwrap();
}

fn done(rig: &Rig, words: &[&str]) -> String {
    let mut command = rig.run(words);
    assert_eq!(command.ends(), 0, "{words:?}: {}", command.stderr.text());
    assert_eq!(command.stderr.text(), "", "{words:?}");
    command.stdout.text()
}

fn fails(rig: &Rig, words: &[&str], code: i32, why: &str) {
    let mut command = rig.run(words);
    let ended = command.ends();
    let said = command.stderr.text();
    assert_eq!(ended, code, "{words:?}: {said}");
    assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
}

/// The app that has this name.
fn app(rig: &Rig, typed: &str) -> String {
    let status: Value = serde_json::from_str(&done(rig, &["status", "--json", typed])).unwrap();
    status["app"].as_str().unwrap().to_owned()
}

#[test]
fn a_container_has_the_names_of_kubernetes() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let name = "default/web-7d4b9.x/nginx";
    write(&rig, APP, &json!({ "id": ID, "kubernetes": name }));
    let _other = container(&rig, "other", "default/db/postgres");
    for typed in [name, "default/web-7d4b9.x", "web-7d4b9.x/nginx", "web-7d4b9.x", ID] {
        for words in [&["status", typed][..], &["status", "--app", typed]] {
            let status = done(&rig, words);
            assert!(status.starts_with("app demo: "), "{status}");
            assert_eq!(status.lines().nth(1), Some(&*format!("container {name}")), "{status}");
        }
        let status: Value =
            serde_json::from_str(&done(&rig, &["status", "--json", typed])).unwrap();
        assert_eq!((&status["app"], &status["container_name"]), (&json!(APP), &json!(name)));
        done(&rig, &["logs", typed]);
        done(&rig, &["send", typed, "hello"]);
    }
    rig.writer("stdout").write_all(b"hello\n").unwrap();
    let attach = rig.run(&["attach", "web-7d4b9.x/nginx", "--mode", "stdout", "--from", "start"]);
    attach.stdout.wait_for("hello\n");
    let table = done(&rig, &["list"]);
    let last: Vec<_> = table.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(last, ["CONTAINER", name, "default/db/postgres"], "{table}");
    let list: Value = serde_json::from_str(&done(&rig, &["list", "--json"])).unwrap();
    assert_eq!(list[0]["container_name"], name);
    assert_eq!(list[0]["container"], format!("k8s.io/{ID}"));
    let all: Value = serde_json::from_str(&done(&rig, &["status", "--all", "--json"])).unwrap();
    assert_eq!(all[0]["container_name"], name);
    let labels = "app=\"demo\",namespace=\"default\",pod=\"web-7d4b9.x\",container=\"nginx\"";
    let metrics = done(&rig, &["metrics"]);
    for line in [
        format!("iottymux_app_state{{{labels},state=\"running\"}} 1"),
        format!("iottymux_clients{{{labels}}} 1"),
        format!("iottymux_stream_bytes_total{{{labels},stream=\"stdout\"}} 6"),
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}\n{metrics}");
    }
    // Not a part of a name, and not the container alone.
    for typed in ["nginx", "default/nginx", "default/web", "web-7d4b9", "other/web-7d4b9.x/nginx"] {
        let mut command = rig.run(&["send", typed, "hello"]);
        assert_eq!(command.ends(), 1, "{typed}");
    }
    fails(&rig, &["status", "default/we"], 1, "there is no container default/we in ");
}

#[test]
fn of_several_containers_the_one_that_runs_is_meant() {
    let rig = Rig::new();
    ended(&rig, "first", "default/web/nginx", 1000);
    ended(&rig, "last", "default/web/nginx", 3000);
    ended(&rig, "middle", "default/web/nginx", 2000);
    for typed in ["web", "web/nginx", "default/web", "default/web/nginx"] {
        assert_eq!(app(&rig, typed), "last", "{typed}");
    }
    ended(&rig, "side", "default/web/sidecar", 4000);
    let both = "web may be one of default/web/nginx, default/web/sidecar";
    fails(&rig, &["status", "web"], 2, both);
    fails(&rig, &["status", "default/web"], 2, &format!("default/{both}"));
    let _mux = container(&rig, "runs", "default/web/nginx");
    for typed in ["web", "web/nginx", "default/web", "default/web/nginx"] {
        assert_eq!(app(&rig, typed), "runs", "{typed}");
    }
    assert_eq!(app(&rig, "web/sidecar"), "side");
    let _other = container(&rig, "other", "prod/web/nginx");
    for command in ["attach", "logs", "status", "screen"] {
        let why = "web may be one of default/web/nginx, prod/web/nginx";
        fails(&rig, &[command, "web"], 2, why);
        fails(&rig, &[command, "web/nginx"], 2, "may be one of default/web/nginx, prod/web/nginx");
    }
    fails(&rig, &["send", "web", "x"], 2, "web may be one of default/web/nginx, prod/web/nginx");
    assert_eq!(app(&rig, "default/web"), "runs");
    assert_eq!(app(&rig, "prod/web"), "other");
    let _twin = container(&rig, "twin", "prod/web/nginx");
    fails(&rig, &["status", "prod/web"], 2, "prod/web may be one of the apps other, twin");
}

#[test]
fn a_pod_goes_before_a_container_that_is_spelt_alike_and_an_app_before_a_pod() {
    let rig = Rig::new();
    let _own = rig.mux(["stream", "--app", "web"]);
    write(&rig, "web", &json!({ "namespace": "default", "id": "web" }));
    assert_eq!(app(&rig, "default/web"), "web");
    let _pod = container(&rig, "pod", "default/web/nginx");
    let mut status = rig.run(&["status", "--json", "default/web"]);
    assert_eq!(status.ends(), 0);
    assert!(status.stdout.text().contains("\"app\":\"pod\""));
    let line = "iottymux: warn: default/web is taken for default/web/nginx of Kubernetes; the other \
                default/web is app web\n";
    assert_eq!(status.stderr.text(), line);
    assert_eq!(app(&rig, "web"), "web");
    assert_eq!(app(&rig, "web/nginx"), "pod");
    // An id is nobody's choice.
    let _id = rig.stream();
    write(&rig, APP, &json!({ "id": ID }));
    let _false = container(&rig, "false", &format!("default/{}/nginx", &ID[..12]));
    assert_eq!(app(&rig, &ID[..12]), APP);
}

#[test]
fn a_name_that_kubernetes_does_not_allow_is_none() {
    let rig = Rig::new();
    let _mux = rig.stream();
    for name in ["../../etc/x", "default/web/..", "default/we\u{1b}[2Jb/nginx", "", "a/b/c/d"] {
        write(&rig, APP, &json!({ "id": ID, "kubernetes": name }));
        for words in [&["list"][..], &["list", "--json"], &["status", APP], &["metrics"]] {
            let said = done(&rig, words);
            assert!(!said.contains("etc") && !said.contains("[2J"), "{said:?}");
        }
    }
}

#[test]
fn containers_that_have_ended_are_listed_when_they_are_asked_for() {
    let rig = Rig::new();
    let mut gone = rig.run(&["run", "--app", "gone", "--", "sh", "-c", "exit 5"]);
    assert_eq!(gone.ends(), 5);
    let _mux = container(&rig, "runs", "default/web/nginx");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ago = |minutes: u64| u64::try_from(now.as_millis()).unwrap() - 60_000 * minutes;
    ended(&rig, "old", "default/web/nginx", ago(600));
    ended(&rig, "new", "default/web/nginx", ago(5));
    // It may run on: its mux and its keeper were killed.
    fs::create_dir(rig.state().join("lost")).unwrap();
    write(&rig, "lost", &json!({ "id": ID }));
    let names = |words: &[&str]| done(&rig, &[&["list", "-q"], words].concat());
    assert_eq!(names(&[]), "gone\nlost\nruns\n");
    assert_eq!(names(&["--ended"]), "gone\nlost\nruns\nnew\nold\n");
    assert_eq!(names(&["--all"]), names(&["--ended"]));
    let table = done(&rig, &["list"]);
    assert!(!table.contains("STATUS") && !table.contains("ENDED"), "{table}");
    let table = done(&rig, &["list", "--ended"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["APP", "STATE", "ENDPOINTS", "STATUS", "ENDED"], "{table}");
    assert_eq!(
        (rows[1][..3].join(" "), rows[1][4]),
        ("gone exited 5".to_owned(), "ago"),
        "{table}"
    );
    for (row, app, age) in [(4, "new", "5m"), (5, "old", "10h")] {
        assert_eq!(rows[row], [app, "exited", "3", age, "ago", "default/web/nginx"], "{table}");
    }
    let list: Value = serde_json::from_str(&done(&rig, &["list", "--ended", "--json"])).unwrap();
    assert_eq!((&list[3]["app"], &list[3]["ended_ms"]), (&json!("new"), &json!(ago(5))));
    assert_eq!(list[3]["app_ended"], json!({ "status": 3 }));
    assert_eq!(list[2]["ended_ms"], Value::Null);
    let metrics = done(&rig, &["metrics"]);
    for (app, is_there) in [("gone", true), ("lost", true), ("runs", true), ("new", false)] {
        assert_eq!(metrics.contains(&format!("{{app=\"{app}\"")), is_there, "{metrics}");
    }
    // They are found all the same.
    assert_eq!(app(&rig, "new"), "new");
}
