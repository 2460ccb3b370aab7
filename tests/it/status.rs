//! What a mux tells of itself, and what it can be asked to do.

use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use nix::sys::socket::Backlog;
use serde_json::Value;

use crate::proc::{Said, eventually};
use crate::pty::Pty;
use crate::rig::{Rig, expect};

/// The clients. The one that asks is not among them.
fn attached(status: &Value) -> &[Value] {
    status["clients"].as_array().unwrap()
}

#[test]
fn the_status_is_exact() {
    let rig = Rig::new();
    let mux = rig.stream();
    rig.writer("stdout").write_all(b"12345").unwrap();
    mux.rests();
    let before = rig.status();
    assert_eq!(before["app"], "demo");
    assert_eq!(before["state"], "ready");
    assert_eq!(before["mux_pid"], mux.pid().as_raw());
    assert_eq!(before["app_pid"], Value::Null);
    assert_eq!(
        before["streams"][0],
        serde_json::json!({"stream": "stdout", "bytes": 5, "unseen": 5})
    );
    assert_eq!(
        before["streams"][1],
        serde_json::json!({"stream": "stderr", "bytes": 0, "unseen": 0})
    );
    assert!(attached(&before).is_empty());
    let attach = rig.attach(&["--mode", "stdout"]);
    assert_eq!(attach.stdout.wait_len(5), b"12345");
    let after = rig.status();
    assert_eq!(after["streams"][0]["unseen"], 0);
    let clients = attached(&after);
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0]["pid"], attach.pid().as_raw());
    assert_eq!(clients[0]["types"], false);
    let place = serde_json::json!({"stream": "stdout", "position": 5, "lag": 0, "lost": 0});
    assert_eq!(clients[0]["streams"], serde_json::json!([place]));
    // Looking is not attaching: what nobody has seen stays unseen.
    rig.writer("stderr").write_all(b"!").unwrap();
    mux.rests();
    assert_eq!(rig.status()["streams"][1]["unseen"], 1);
    assert_eq!(rig.status()["streams"][1]["unseen"], 1);
}

#[test]
fn the_status_for_people_names_the_clients() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let attach = rig.attach(&["--mode", "stdin,stdout"]);
    rig.writer("stdout").write_all(b"x").unwrap();
    attach.stdout.wait_len(1);
    let mut asked = rig.run(&["status", "--app", "demo"]);
    assert_eq!(asked.ends(), 0);
    let said = asked.stdout.text();
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    let client = format!("client 0 {}, pid {}, attached ", user.trim(), attach.pid());
    assert!(said.starts_with("app demo: running, mux "), "{said}");
    assert!(said.contains("stdout   1 bytes\n"), "{said}");
    let line = said.lines().last().unwrap();
    assert!(line.starts_with(&client), "{said}");
    assert!(line.ends_with("s ago, types, stdout at 1 (0 behind, 0 lost)"), "{said}");
    // One at a terminal, which only watches.
    let local = Pty::open(24, 80);
    let viewer = local.spawn(rig.command(["attach", "--app", "demo", "--mode", "stdout"]));
    local.shown.wait_for("stdout of app demo");
    let mut asked = rig.run(&["status", "--app", "demo"]);
    assert_eq!(asked.ends(), 0);
    let said = asked.stdout.text();
    let want = format!(", pid {}, attached ", viewer.pid());
    let line = said.lines().find(|line| line.contains(&want)).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("s ago, watches, stdout at 1"), "{said}");
}

/// A client that is stopped, or behind a link that is dead, is told from one that is slow.
#[test]
fn a_client_that_takes_nothing_is_named() {
    let rig = Rig::new();
    let _mux = rig.mux(["stream", "--app", "demo", "--max-client-delay", "0"]);
    let client = rig.client("stdout");
    let mut app = rig.writer("stdout");
    let stalled = || attached(&rig.status())[0]["stalled_ms"].as_u64();
    assert_eq!(stalled(), None);
    app.write_all(&vec![b'x'; 4 << 20]).unwrap();
    eventually("it is stuck", || stalled().is_some_and(|time| time >= 1000));
    let mut asked = rig.run(&["status", "--app", "demo"]);
    assert_eq!(asked.ends(), 0);
    let said = asked.stdout.text();
    assert!(said.lines().last().unwrap().contains(" lost), takes nothing for "), "{said}");
    let reader = Said::follow(client);
    eventually("it takes all", || stalled().is_none());
    assert!(!reader.so_far().is_empty());
}

#[test]
fn input_that_the_app_does_not_read_is_counted() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let app = fs::File::open(rig.path("stage2-stdin")).unwrap();
    let mut client = rig.client("stdin");
    client.write_all(&vec![b'x'; 300_000]).unwrap();
    eventually("it is there", || rig.status()["unread"] == 300_000);
    let mut asked = rig.run(&["status", "--app", "demo"]);
    assert_eq!(asked.ends(), 0);
    let said = asked.stdout.text();
    assert!(said.contains("\ninput    300000 bytes that the app has not read\n"), "{said}");
    drop(app);
}

#[test]
fn a_client_is_detached_by_its_number_and_nobody_else_notices() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut leaves = rig.attach(&["--mode", "stdout"]);
    mux.stderr.wait_for("attached to stdout");
    let stays = rig.client("stdout");
    let mut app = rig.writer("stdout");
    app.write_all(b"both ").unwrap();
    leaves.stdout.wait_len(5);
    let status = rig.status();
    let number = |pid: i32| {
        let of = attached(&status).iter().find(|c| c["pid"] == pid).unwrap()["client"].clone();
        of.to_string()
    };
    let leaving = number(leaves.pid().as_raw());
    let mut asked = rig.run(&["control", "--app", "demo", "detach", &leaving]);
    assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());
    assert_eq!(leaves.ends(), 0);
    assert_eq!(leaves.stderr.text(), "iottymux: detached from app demo by request\n");
    app.write_all(b"one").unwrap();
    expect(&stays, "both one");
    let mut again = rig.run(&["control", "--app", "demo", "detach", &leaving]);
    assert_eq!(again.ends(), 1);
    assert_eq!(again.stderr.text(), format!("iottymux: app demo: there is no client {leaving}\n"));
}

#[test]
fn the_terminal_is_resized_where_there_is_one() {
    let rig = Rig::new();
    let mux = rig.tty();
    let mut asked = rig.run(&["control", "--app", "demo", "resize", "31x97"]);
    assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());
    let size = rustix::termios::tcgetwinsize(rig.slave()).unwrap();
    assert_eq!((size.ws_row, size.ws_col), (31, 97));
    // However soon one follows another, each is answered when it is done; the same again, too.
    for rows in [32, 33, 34, 34] {
        let mut asked = rig.run(&["control", "--app", "demo", "resize", &format!("{rows}x97")]);
        assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());
        assert_eq!(rustix::termios::tcgetwinsize(rig.slave()).unwrap().ws_row, rows);
    }
    drop(mux);
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut asked = rig.run(&["control", "--app", "demo", "resize", "31x97"]);
    assert_eq!(asked.ends(), 1);
    assert_eq!(asked.stderr.text(), "iottymux: app demo: the app has no terminal\n");
}

#[test]
fn a_typist_that_is_detached_reads_an_end_and_no_error() {
    let rig = Rig::new();
    let _mux = rig.stream();
    // The app reads nothing, so not all that is typed can have been read.
    let mut typist = rig.client("stdin");
    typist.set_nonblocking(true).unwrap();
    while typist.write(&[b'x'; 1 << 12]).is_ok() {}
    typist.set_nonblocking(false).unwrap();
    let number = rig.status()["clients"][0]["client"].to_string();
    let mut asked = rig.run(&["control", "--app", "demo", "detach", &number]);
    assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());
    assert_eq!(std::io::Read::read(&mut typist, &mut [0]).unwrap(), 0);
}

/// Muxes that hang, and whose listen queues are full. They come before it in the list.
#[test]
fn what_accepts_nobody_hides_no_other_app() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let full = ["a", "b", "c"].map(|name| {
        let dir = rig.state().join(name);
        fs::create_dir(&dir).unwrap();
        fs::copy(rig.path("endpoints"), dir.join("endpoints")).unwrap();
        let socket = dir.join("sock-session");
        let listener = UnixListener::bind(&socket).unwrap();
        nix::sys::socket::listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let waiting = UnixStream::connect(&socket).unwrap();
        (listener, waiting)
    });
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    let states: Vec<String> = list
        .stdout
        .text()
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(states, ["a unknown", "b unknown", "c unknown", "demo prepared"]);
    drop(full);
}
