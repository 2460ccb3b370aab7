//! Containers by the names that Docker gives them.

use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A mux for the container of Docker with this name.
fn container(rig: &Rig, app: &str, id: &str, name: &str) -> Proc {
    let mux = rig.mux(["stream", "--app", app]);
    let document = json!({ "version": 1, "namespace": "moby", "id": id, "docker": name });
    fs::write(rig.state().join(app).join("container.json"), document.to_string()).unwrap();
    mux
}

fn done(rig: &Rig, words: &[&str]) -> String {
    let mut command = rig.run(words);
    assert_eq!(command.ends(), 0, "{words:?}: {}", command.stderr.text());
    command.stdout.text()
}

#[test]
fn a_container_has_dockers_name() {
    for name in ["mc", "quirky_turing", "A.b", "Web"] {
        let rig = Rig::new();
        let _mux = container(&rig, APP, ID, name);
        let status = done(&rig, &["status", name]);
        assert!(status.starts_with("app demo: "), "{status}");
        assert_eq!(status.lines().nth(1), Some(&*format!("container {name}")), "{status}");
        let all = done(&rig, &["status", "--all"]);
        assert!(all.contains(&format!("\ncontainer {name}\n")), "{all}");
        for words in [&["status", "--json", name][..], &["status", "--json", "--app", name]] {
            let status: Value = serde_json::from_str(&done(&rig, words)).unwrap();
            assert_eq!((&status["app"], &status["container_name"]), (&json!(APP), &json!(name)));
        }
        let table = done(&rig, &["list"]);
        let titles: Vec<_> = table.lines().map(|line| line.split_whitespace().last()).collect();
        assert_eq!(titles, [Some("CONTAINER"), Some(name)], "{table}");
        let json: Value = serde_json::from_str(&done(&rig, &["list", "--json"])).unwrap();
        assert_eq!(json[0]["container_name"], name);
        assert_eq!(json[0]["container"], format!("moby/{ID}"));
        rig.writer("stdout").write_all(b"hello\n").unwrap();
        let attach = rig.run(&["attach", name, "--mode", "stdout", "--from", "start"]);
        attach.stdout.wait_for("hello\n");
        assert!(done(&rig, &["logs", name]).contains("hello\n"));
        // By its id, too, and by its own name.
        for typed in [ID, &ID[..12], &format!("moby/{ID}"), APP] {
            assert_eq!(done(&rig, &["list", typed]), done(&rig, &["list", APP]));
        }
    }
}

#[test]
fn of_two_containers_that_are_spelt_alike_each_has_its_own_name() {
    let rig = Rig::new();
    let (_one, _other) = (container(&rig, "one", "1", "a-b"), container(&rig, "other", "2", "a_b"));
    for (name, app) in [("a-b", "one"), ("a_b", "other")] {
        assert!(done(&rig, &["status", name]).starts_with(&format!("app {app}: ")));
    }
    let mut status = rig.run(&["status", "a.b"]);
    assert_eq!(status.ends(), 1);
    assert!(status.stderr.text().contains("there is no app a.b in "));
}

/// A mux may write any name into its document.
#[test]
fn a_name_is_printed_as_other_texts_of_a_peer() {
    let rig = Rig::new();
    let _mux = container(&rig, APP, ID, "a\u{1b}[2J\u{202e}\nb");
    for words in [&["list"][..], &["list", "--json"], &["status", APP], &["status", "--all"]] {
        let said = done(&rig, words);
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        assert!(said.contains("[2J"), "{said:?}");
    }
}
