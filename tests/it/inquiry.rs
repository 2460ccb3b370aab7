//! Where no hook has told how the app ended, the mux of a unit asks systemd on its private socket; here somebody else
//! answers in its place, as the manager of a user.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use iottymux::core::wire::FrameKind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::proc::Proc;
use crate::rig::{APP, Rig};
use crate::session::{Session, told};

/// What a manager does with a connection.
type Manager = Box<dyn Fn(UnixStream) + Send>;

/// The mux of a unit of a user, with this manager, if there is one.
fn mux(rig: &Rig, manager: Option<Manager>, change: impl FnOnce(&mut Command)) -> Proc {
    let session = rig.file("session");
    fs::create_dir_all(session.join("systemd")).unwrap();
    if let Some(manager) = manager {
        let listener = UnixListener::bind(session.join("systemd/private")).unwrap();
        thread::spawn(move || listener.incoming().for_each(|stream| manager(stream.unwrap())));
    }
    let mut command = rig.command(["stream", "--app", APP]);
    command.env("INVOCATION_ID", "0123456789abcdef0123456789abcdef");
    command.env("MANAGERPID", "1").env("XDG_RUNTIME_DIR", session);
    change(&mut command);
    rig.start(command)
}

/// The last that a session is told when the mux is ended, and what the mux said on the way.
fn farewell(rig: &Rig, mut mux: Proc) -> (FrameKind, Value, String) {
    let mut session = Session::new(rig, &json!({"version": 1, "streams": [{"stream": "stdout"}]}));
    session.wait_told(FrameKind::Welcome);
    mux.signal(Signal::SIGTERM);
    let frames = session.rest();
    assert_eq!(mux.ends(), 0);
    let last: Value = serde_json::from_slice(&fs::read(rig.path("last.json")).unwrap()).unwrap();
    for kind in [FrameKind::Exit, FrameKind::Closing] {
        let body = last["status"].clone();
        if frames.last() == Some(&told(kind, body.clone())) {
            return (kind, body, mux.stderr.text());
        }
    }
    panic!("{frames:?} {last}");
}

/// Authenticates a client as systemd does, and returns its calls: the serial, the object and the property of each.
fn calls(stream: &UnixStream) -> Vec<([u8; 4], String, String)> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    while !line.ends_with("BEGIN\r\n") {
        from.read_line(&mut line).unwrap();
    }
    (&*stream).write_all(b"DATA\r\nOK 0123456789abcdef\r\n").unwrap();
    let mut call = || {
        let mut head = [0; 16];
        from.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        let len = number(12).next_multiple_of(8) + number(4);
        let mut rest = vec![0; usize::try_from(len).unwrap()];
        from.read_exact(&mut rest).unwrap();
        let text = String::from_utf8_lossy(&rest).into_owned();
        let words: Vec<&str> = text.split('\0').filter(|word| word.len() > 3).collect();
        let object = words.iter().find(|word| word.starts_with('/')).unwrap();
        (head[8..12].try_into().unwrap(), (*object).to_owned(), words.last().unwrap().to_string())
    };
    (0..3).map(|_| call()).collect()
}

/// A reply to the call with this serial: a text or a number.
fn reply(serial: [u8; 4], text: Option<&str>, number: i32) -> Vec<u8> {
    let mut body = Vec::new();
    match text {
        Some(text) => {
            body.extend(b"\x01s\0\0");
            body.extend(u32::try_from(text.len()).unwrap().to_ne_bytes());
            body.extend([text.as_bytes(), b"\0"].concat());
        }
        None => body.extend([b"\x01i\0\0", &number.to_ne_bytes()[..]].concat()),
    }
    let order = if cfg!(target_endian = "little") { b'l' } else { b'B' };
    let len = u32::try_from(body.len()).unwrap().to_ne_bytes();
    let fields = [b"\x05\x01u\0", &serial[..], b"\x08\x01g\0\x01v\0\0"].concat();
    let head = [&[order, 2, 1, 1], &len[..], &7_u32.to_ne_bytes(), &15_u32.to_ne_bytes()].concat();
    [head, fields, body].concat()
}

/// A manager for which the service is in this state.
fn shows(state: &'static str, code: i32, status: i32) -> Manager {
    Box::new(move |stream| {
        for (serial, _, property) in calls(&stream) {
            let answer = match &*property {
                "ActiveState" => reply(serial, Some(state), 0),
                "ExecMainCode" => reply(serial, None, code),
                _ => reply(serial, None, status),
            };
            (&stream).write_all(&answer).unwrap();
        }
    })
}

fn warnings(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("iottymux: warn: app ")).collect()
}

#[test]
fn the_state_that_systemd_shows_is_reported() {
    for (state, code, number, status) in [
        ("inactive", 1, 0, json!({"status": 0})),
        ("failed", 1, 3, json!({"status": 3})),
        ("failed", 2, 9, json!({"signal": 9})),
        ("active", 1, 3, Value::Null),
        ("inactive", 0, 0, Value::Null),
    ] {
        let rig = Rig::new();
        let mux = mux(&rig, Some(shows(state, code, number)), |_| {});
        let (kind, body, said) = farewell(&rig, mux);
        let got = (kind == FrameKind::Exit, &body);
        assert_eq!(got, (!status.is_null(), &status), "{state} {code}: {said}");
        assert!(warnings(&said).is_empty(), "{said}");
    }
}

#[test]
fn an_unanswered_question_is_unknown_in_one_line() {
    let says = |text: &'static [u8]| -> Option<Manager> {
        Some(Box::new(move |mut stream| {
            let _ = stream.write_all(text);
        }))
    };
    let (held, waits) = channel();
    let hangs: Manager = Box::new(move |stream| held.send(stream).unwrap());
    for (manager, why) in [
        (says(b""), "its end is unknown: cannot ask systemd about demo.service: "),
        (says(b"REJECTED\r\n\xff\x1b[2J"), "its end is unknown: "),
        (
            Some(shows("failed", 1, 300)),
            "cannot parse Properties([(\"ActiveState\", Text(\"failed\")",
        ),
        (Some(shows("\x1b[2J", 9, 0)), "\\u{1b}[2J"),
        (Some(hangs), "systemd did not report in time how it ended"),
        (None, "No such file or directory"),
    ] {
        let rig = Rig::new();
        let mux = mux(&rig, manager, |_| {});
        let (kind, _, said) = farewell(&rig, mux);
        assert_eq!(kind, FrameKind::Closing, "{why}: {said}");
        // No warning: while the system shuts down, nobody may be there to ask.
        let tells = |line: &&str| line.contains("app demo: ") && line.contains(why);
        assert_eq!(said.lines().filter(tells).count(), 1, "{why}: {said}");
    }
    drop(waits);
}

#[test]
fn the_manager_that_started_the_mux_is_asked_and_no_other() {
    let asked = |change: &dyn Fn(&mut Command)| {
        let rig = Rig::new();
        let (tell, told) = channel();
        let manager: Manager = Box::new(move |stream| tell.send(calls(&stream)).unwrap());
        let mux = mux(&rig, Some(manager), change);
        farewell(&rig, mux);
        questions(&told)
    };
    let object = "/org/freedesktop/systemd1/unit/demo_2eservice";
    let all = ["ActiveState", "ExecMainCode", "ExecMainStatus"];
    assert_eq!(asked(&|_| {}), all.map(|property| (object.to_owned(), property.to_owned())));
    // Started by hand, in a terminal that is a service: the variables are that one's.
    let inherited = asked(&|command| {
        command.env("SYSTEMD_EXEC_PID", "1");
    });
    assert_eq!(inherited, []);
    let none = asked(&|command| {
        command.env_remove("INVOCATION_ID");
    });
    assert_eq!(none, []);
}

/// The objects and properties that were asked for.
fn questions(told: &Receiver<Vec<([u8; 4], String, String)>>) -> Vec<(String, String)> {
    let calls = told.try_iter().flatten();
    calls.map(|(_, object, property)| (object, property)).collect()
}
