//! `attach` against a mux that is not ours, as rkt's: raw sockets only, served by the test.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use crate::proc::{Proc, WATCHDOG};
use crate::rig::{APP, Rig, expect, rest};

/// The sockets of a mux, and its document without sessions.
struct Foreign {
    rig: Rig,
    sockets: Vec<(String, UnixListener)>,
}

impl Foreign {
    fn new(streams: &[&str]) -> Self {
        let rig = Rig::new();
        rig.make_app_dir();
        let listen = |s: &&str| {
            let socket = UnixListener::bind(rig.path(&format!("sock-{s}"))).unwrap();
            ((*s).to_owned(), socket)
        };
        let sockets = streams.iter().map(listen).collect();
        let targets: Vec<_> = streams
            .iter()
            .map(|s| {
                let address = rig.path(&format!("sock-{s}"));
                serde_json::json!({"name": s, "domain": "unix", "address": address})
            })
            .collect();
        let document = serde_json::json!({"version": 1, "targets": targets}).to_string();
        fs::write(rig.path("endpoints"), document).unwrap();
        Self { rig, sockets }
    }

    fn socket(&self, stream: &str) -> &UnixListener {
        &self.sockets.iter().find(|(name, _)| name == stream).unwrap().1
    }

    fn accept(&self, stream: &str) -> UnixStream {
        let (client, _) = self.socket(stream).accept().unwrap();
        client.set_read_timeout(Some(WATCHDOG)).unwrap();
        client
    }

    /// Nobody has come to this socket. To be asked when the client has ended.
    fn assert_lonely(&self, stream: &str) {
        let socket = self.socket(stream);
        socket.set_nonblocking(true).unwrap();
        let came = socket.accept().map(drop).map_err(|e| e.kind());
        assert_eq!(came, Err(ErrorKind::WouldBlock), "{stream} was dialled");
    }
}

#[test]
fn only_what_is_needed_is_dialled_and_only_input_is_sent() {
    for (mode, dialled) in [
        ("stdout", &["stdout"][..]),
        ("stderr", &["stderr"]),
        ("stdin", &["stdin"]),
        ("stdout,stderr", &["stdout", "stderr"]),
        ("auto", &["stdin", "stdout", "stderr"]),
    ] {
        let mux = Foreign::new(&["stdin", "stdout", "stderr"]);
        let mut attach = mux.rig.attach(&["--mode", mode]);
        let mut clients: Vec<_> = dialled.iter().map(|s| (*s, mux.accept(s))).collect();
        let mut stdin = attach.stdin();
        stdin.write_all(b"typed\n").unwrap();
        drop(stdin);
        for (name, client) in &mut clients {
            if *name == "stdin" {
                assert_eq!(rest(&mut *client), "typed\n");
            } else {
                client.write_all(name.as_bytes()).unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(attach.ends(), 0, "{mode}: {}", attach.stderr.so_far());
        for (name, client) in clients.iter().filter(|(name, _)| *name != "stdin") {
            assert_eq!(rest(client), "", "{mode}: something was sent on {name}");
        }
        for (name, _) in mux.sockets.iter().filter(|(n, _)| !dialled.contains(&n.as_str())) {
            mux.assert_lonely(name);
        }
        let has = |name| if dialled.contains(&name) { name } else { "" };
        assert_eq!(attach.stdout.text(), has("stdout"), "{mode}");
        assert_eq!(attach.stderr.text(), has("stderr"), "{mode}");
    }
}

#[test]
fn the_end_of_input_half_closes_and_the_rest_is_received() {
    let mux = Foreign::new(&["stdin", "stdout"]);
    let mut attach = mux.rig.attach(&[]);
    let (stdin, mut stdout) = (mux.accept("stdin"), mux.accept("stdout"));
    attach.stdin().write_all(b"exit\n").unwrap();
    assert_eq!(rest(&stdin), "exit\n");
    drop(stdin);
    stdout.write_all(b"goodbye").unwrap();
    drop(stdout);
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "goodbye");
}

#[test]
fn the_end_of_input_does_not_close_a_terminal_that_is_watched() {
    // rkt's mux ends the whole connection when its input ends.
    let mux = Foreign::new(&["tty"]);
    let mut attach = mux.rig.attach(&[]);
    let mut client = mux.accept("tty");
    attach.stdin().write_all(b"exit\n").unwrap();
    expect(&client, "exit\n");
    client.write_all(b"goodbye").unwrap();
    attach.stdout.wait_for("goodbye");
    attach.rests();
    client.set_nonblocking(true).unwrap();
    let closed = client.read(&mut [0]).map_err(|e| e.kind());
    assert_eq!(closed, Err(ErrorKind::WouldBlock), "its side was closed");
    drop(client);
    assert_eq!(attach.ends(), 0);
}

#[test]
fn waiting_notices_a_document_that_is_written_in_place() {
    // rkt's mux makes the file and then writes into it.
    let mux = Foreign::new(&["stdout"]);
    let path = mux.rig.path("endpoints");
    let document = fs::read(&path).unwrap();
    let mut file = fs::File::create(&path).unwrap();
    let mut attach = mux.rig.attach(&["--wait"]);
    attach.waits();
    file.write_all(&document).unwrap();
    drop(file);
    mux.accept("stdout").write_all(b"found").unwrap();
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "found");
}

#[test]
fn it_ends_with_the_last_stream_not_the_first() {
    let mux = Foreign::new(&["stdin", "stdout", "stderr"]);
    let mut attach = mux.rig.attach(&[]);
    let (stdin, stdout) = (mux.accept("stdin"), mux.accept("stdout"));
    let mut stderr = mux.accept("stderr");
    (&stdout).write_all(b"out\n").unwrap();
    drop(stdout);
    attach.stdout.wait_for("out\n");
    drop(stdin);
    // Sent when the others have ended, and told to have come before the last ends.
    stderr.write_all(b"still there\n").unwrap();
    attach.stderr.wait_for("still there\n");
    assert!(attach.runs());
    drop(stderr);
    assert_eq!(attach.ends(), 0);
}

#[test]
fn output_for_an_input_only_client_is_read() {
    // rkt's mux stops its app when such a client does not read.
    let mux = Foreign::new(&["tty"]);
    let mut attach = mux.rig.attach(&["--mode", "tty-in"]);
    let mut client = mux.accept("tty");
    client.set_write_timeout(Some(WATCHDOG)).unwrap();
    crate::pattern::write(&mut client, 4 << 20);
    attach.stdin().write_all(b"typed").unwrap();
    expect(&mut client, "typed");
    drop(client);
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "");
}

#[test]
fn options_that_need_a_session_are_refused() {
    let mux = Foreign::new(&["stdin", "stdout"]);
    let mut attach = mux.rig.attach(&["--stdin-once"]);
    assert_eq!(attach.ends(), 1);
    assert!(attach.stderr.text().contains("its mux has no sessions"));
    mux.assert_lonely("stdin");
}

#[test]
fn unknown_targets_are_skipped_with_a_warning() {
    let mux = Foreign::new(&["stdout"]);
    let document = fs::read_to_string(mux.rig.path("endpoints")).unwrap();
    let document = document.replace(
        "\"targets\":[",
        r#""later":{},"targets":[{"name":"video","domain":"unix","address":"/x/sock-video"},"#,
    );
    fs::write(mux.rig.path("endpoints"), document).unwrap();
    let mut command = mux.rig.command(["attach", "--app", APP]);
    command.stdin(Stdio::null());
    let mut attach = Proc::spawn(command);
    mux.accept("stdout").write_all(b"known").unwrap();
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "known");
    assert!(attach.stderr.text().contains("skipping the unknown endpoint \"video\""));
}
