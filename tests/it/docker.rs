//! Containers by Docker's names, with a Docker that may say anything.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/// A Docker whose answer is whatever this writes. Counts its questions.
fn docker(rig: &Rig, answer: impl Fn(UnixStream) + Send + 'static) -> Arc<AtomicUsize> {
    let path = rig.file("docker.sock");
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(path).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        for mut client in listener.incoming().map(Result::unwrap) {
            count.fetch_add(1, Ordering::SeqCst);
            let mut question = Vec::new();
            let mut byte = [0];
            while !question.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) == 1 {
                question.push(byte[0]);
            }
            let question = String::from_utf8(question).unwrap();
            assert!(question.starts_with("GET /containers/json?all=1 HTTP/1.0\r\n"), "{question}");
            answer(client);
        }
    });
    asked
}

/// A Docker that accepts no connections, and those that wait for it.
fn full(rig: &Rig) -> (UnixListener, Vec<OwnedFd>) {
    let path = rig.file("docker.sock");
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    // The usual queue has room for more connections than a process may have by default.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let address = UnixAddr::new(&path).unwrap();
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let mut waiting = Vec::new();
    loop {
        let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        match connect(client.as_raw_fd(), &address) {
            Err(Errno::EAGAIN) => return (listener, waiting),
            connected => connected.unwrap(),
        }
        waiting.push(client);
    }
}

/// Writes these bytes to each client, which may leave early.
fn says(answer: Vec<u8>) -> impl Fn(UnixStream) + Send + 'static {
    move |mut client| drop(client.write_all(&answer))
}

fn containers(list: &Value) -> Vec<u8> {
    let head = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n";
    format!("{head}{list}\n").into_bytes()
}

/// The app is a container of Docker.
fn contained(rig: &Rig, namespace: &str) -> Proc {
    let mux = rig.stream();
    let container = json!({ "version": 1, "namespace": namespace, "id": ID });
    fs::write(rig.path("container.json"), container.to_string()).unwrap();
    mux
}

fn done(rig: &Rig, words: &[&str]) -> String {
    let mut command = rig.run(words);
    assert_eq!(command.ends(), 0, "{words:?}: {}", command.stderr.text());
    command.stdout.text()
}

fn fails(rig: &Rig, words: &[&str], why: &str) {
    let mut command = rig.run(words);
    assert_eq!(command.ends(), 1, "{words:?}");
    let said = command.stderr.text();
    assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
}

#[test]
fn a_container_has_dockers_name() {
    let rig = Rig::new();
    let _mux = contained(&rig, "moby");
    for (names, typed) in [
        (json!(["/mc"]), "mc"),
        // Other containers call it so.
        (json!(["/web/db", "/mc"]), "mc"),
        (json!(["/quirky_turing"]), "quirky_turing"),
        (json!(["/A.b"]), "A.b"),
    ] {
        let list = json!([
            { "Id": OTHER, "Names": ["/other"], "State": "running" },
            { "Id": ID, "Names": names, "State": "running", "Labels": {} },
        ]);
        docker(&rig, says(containers(&list)));
        let status = done(&rig, &["status", typed]);
        assert!(status.starts_with("app demo: "), "{status}");
        assert_eq!(status.lines().nth(1), Some(&*format!("container {typed}")), "{status}");
        let all = done(&rig, &["status", "--all"]);
        assert!(all.contains(&format!("\ncontainer {typed}\n")), "{all}");
        for words in [&["status", "--json", typed][..], &["status", "--json", "--app", typed]] {
            let status: Value = serde_json::from_str(&done(&rig, words)).unwrap();
            assert_eq!((&status["app"], &status["container_name"]), (&json!(APP), &json!(typed)));
        }
        let table = done(&rig, &["list"]);
        let titles: Vec<_> = table.lines().map(|line| line.split_whitespace().last()).collect();
        assert_eq!(titles, [Some("CONTAINER"), Some(typed)], "{table}");
        let json: Value = serde_json::from_str(&done(&rig, &["list", "--json"])).unwrap();
        assert_eq!(json[0]["container_name"], typed);
        assert_eq!(json[0]["container"], format!("moby/{ID}"));
        rig.writer("stdout").write_all(b"hello\n").unwrap();
        let attach = rig.run(&["attach", typed, "--mode", "stdout", "--from", "start"]);
        attach.stdout.wait_for("hello\n");
        assert!(done(&rig, &["logs", typed]).contains("hello\n"));
        // By its id, too, and by its own name.
        for typed in [ID, &ID[..12], APP] {
            assert_eq!(done(&rig, &["list", typed]), done(&rig, &["list", APP]));
        }
    }
}

#[test]
fn of_two_containers_that_are_spelt_alike_each_has_its_own_name() {
    let rig = Rig::new();
    let _mux = contained(&rig, "moby");
    let list = |own: &str, other: &str| {
        containers(&json!([
            { "Id": OTHER, "Names": [other], "State": "exited" },
            { "Id": ID, "Names": [own], "State": "running" },
        ]))
    };
    docker(&rig, says(list("/a-b", "/a_b")));
    done(&rig, &["status", "a-b"]);
    docker(&rig, says(list("/a_b", "/a-b")));
    fails(&rig, &["status", "a-b"], "there is no app a-b");
    docker(&rig, says(list("/a_b", "/a.b")));
    fails(&rig, &["status", "a_b"], "there is no app a-b");
}

#[test]
fn a_container_without_a_mux_is_told_from_a_wrong_name() {
    let rig = Rig::new();
    let list = json!([
        { "Id": OTHER, "Names": ["/mc"], "State": "running" },
        { "Id": ID, "Names": ["/old"], "State": "exited" },
    ]);
    docker(&rig, says(containers(&list)));
    let why = "(Docker's container mc has no mux: create it with docker run --runtime iottymux)";
    for words in [["attach", "mc"], ["logs", "mc"], ["status", "mc"]] {
        fails(&rig, &words, why);
    }
    let mut old = rig.run(&["status", "old"]);
    assert_eq!(old.ends(), 1);
    assert!(!old.stderr.text().contains("Docker"));
}

#[test]
fn docker_is_asked_only_about_its_own_containers() {
    let rig = Rig::new();
    let _mux = contained(&rig, "k8s.io");
    let list = json!([{ "Id": ID, "Names": ["/mc"], "State": "running" }]);
    let asked = docker(&rig, says(containers(&list)));
    for words in [&["list"][..], &["list", "--json"], &["list", "-q"], &["status", "--all"]] {
        done(&rig, words);
    }
    done(&rig, &["status", APP]);
    done(&rig, &["status", ID]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(done(&rig, &["list"]).contains(&format!("k8s.io/{ID}")));
}

#[test]
fn whatever_docker_says_the_apps_are_listed() {
    type Answer = Box<dyn Fn(UnixStream) + Send>;
    let named = |name: &str| containers(&json!([{ "Id": ID, "Names": [name] }]));
    let whole = named("/mc");
    let endless = |piece: &'static [u8]| -> Answer {
        Box::new(move |mut client| {
            let _ = client.write_all(b"HTTP/1.0 200 OK\r\n\r\n[");
            while client.write_all(piece).is_ok() {}
        })
    };
    let answers: Vec<(&str, Answer)> = vec![
        ("nothing", Box::new(drop)),
        ("silence", Box::new(|mut client| drop(client.read_to_end(&mut Vec::new())))),
        ("garbage", Box::new(says(vec![0xff; 100_000]))),
        ("an error", Box::new(says(b"HTTP/1.0 500 No\r\n\r\n[]".to_vec()))),
        ("half", Box::new(says(whole[..whole.len() - 4].to_vec()))),
        ("no list", Box::new(says(containers(&json!({ "message": "no" }))))),
        ("no names", Box::new(says(containers(&json!([{ "Id": ID, "Names": null }]))))),
        ("an empty name", Box::new(says(named("/")))),
        ("a long name", Box::new(says(named(&format!("/{}", "x".repeat(100_000)))))),
        ("a deep list", Box::new(says(containers(&json!("")).repeat(2)))),
        ("no end", endless(b"                                                                ")),
        ("depth", endless(b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[")),
        (
            "a slow end",
            Box::new(|mut client| {
                while client.write_all(b"x").is_ok() {
                    thread::yield_now();
                }
            }),
        ),
    ];
    let rig = Rig::new();
    let _mux = contained(&rig, "moby");
    for (what, answer) in answers {
        docker(&rig, answer);
        let table = done(&rig, &["list"]);
        assert!(table.contains(&format!("moby/{ID}")), "{what}: {table}");
        assert!(table.len() < 1000, "{what}");
        fails(&rig, &["status", "mc"], "there is no app mc");
    }
    let _docker = full(&rig);
    assert!(done(&rig, &["list"]).contains(&format!("moby/{ID}")));
    // A name is printed as other texts of a peer.
    docker(&rig, says(named("/a\u{1b}[2J\u{202e}\nb")));
    for words in [&["list"][..], &["list", "--json"], &["status", APP], &["status", "--all"]] {
        let said = done(&rig, words);
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        assert!(said.contains("[2J"), "{said:?}");
    }
}
