//! The session protocol, spoken by the test: what `docs/protocol.md` promises.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use iottymux::core::wire::{Decoder, FrameKind, Item};
use iottymux::types::stream::Stream;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::pattern;
use crate::peer::Account;
use crate::quiet::held_back;
use crate::rig::{APP, Rig, expect};

/// A frame as it came; neighbouring bytes of a stream are one.
#[derive(PartialEq)]
pub enum Frame {
    Bytes(Stream, Vec<u8>),
    /// What shows the screen.
    Screen(Vec<u8>),
    Told(FrameKind, Value),
}

/// Of many bytes the last are shown.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(stream, bytes) => {
                let last = bytes[bytes.len().saturating_sub(40)..].escape_ascii();
                write!(f, "{} bytes of {stream}: …\"{last}\"", bytes.len())
            }
            Self::Screen(bytes) => write!(f, "a screen: {}", bytes.escape_ascii()),
            Self::Told(kind, body) => write!(f, "{kind:?} {body}"),
        }
    }
}

pub struct Session {
    socket: UnixStream,
    decoder: Decoder,
    frames: Vec<Frame>,
}

impl Session {
    /// Connected, and greeted with this.
    pub fn new(rig: &Rig, hello: &Value) -> Self {
        let mut session =
            Self { socket: rig.client("session"), decoder: Decoder::default(), frames: vec![] };
        let hello = FrameKind::Hello.message(hello);
        session.socket.write_all(&hello).unwrap();
        session
    }

    pub fn send(&mut self, kind: FrameKind, body: &[u8]) {
        self.socket.write_all(&kind.frame(body)).unwrap();
    }

    /// Reads more; whether there was any.
    fn read(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        let len = match self.socket.read(&mut buffer) {
            Ok(len) => len,
            Err(e) if e.kind() == ErrorKind::Interrupted => return true,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            Err(e) => panic!("{e}; came: {:?}", self.frames),
        };
        let mut bytes = &buffer[..len];
        while let Some(item) = self.decoder.next(&mut bytes).unwrap() {
            match (item, self.frames.last_mut()) {
                (Item::Data(stream, more), Some(Frame::Bytes(last, data))) if *last == stream => {
                    data.extend(more);
                }
                (Item::Data(stream, data), _) => {
                    self.frames.push(Frame::Bytes(stream, data.to_vec()));
                }
                (Item::Screen(more), Some(Frame::Screen(data))) => data.extend(more),
                (Item::Screen(data), _) => self.frames.push(Frame::Screen(data.to_vec())),
                (Item::Control(kind, body), _) => {
                    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                    self.frames.push(Frame::Told(kind, body));
                }
            }
        }
        len > 0
    }

    /// The body of the first message of this kind, which comes or has come.
    pub fn wait_told(&mut self, kind: FrameKind) -> Value {
        loop {
            let told = |frame: &Frame| match frame {
                Frame::Told(this, body) if *this == kind => Some(body.clone()),
                _ => None,
            };
            if let Some(body) = self.frames.iter().find_map(told) {
                return body;
            }
            assert!(self.read(), "ended without {kind:?}: {:?}", self.frames);
        }
    }

    /// Reads up to where this holds.
    pub fn read_until(&mut self, holds: impl Fn(&[Frame]) -> bool) {
        while !holds(&self.frames) {
            assert!(self.read(), "ended too early: {:?}", self.frames);
        }
    }

    /// Everything to the end.
    pub fn rest(mut self) -> Vec<Frame> {
        while self.read() {}
        self.frames
    }

    /// Everything up to where this holds.
    pub fn rest_until(mut self, holds: impl Fn(&[Frame]) -> bool) -> Vec<Frame> {
        self.read_until(holds);
        self.frames
    }
}

pub fn told(kind: FrameKind, body: Value) -> Frame {
    Frame::Told(kind, body)
}

#[test]
fn a_whole_session_of_an_app_that_ends() {
    let rig = Rig::new();
    let mut mux = rig.mux([
        "run",
        "--foreground",
        "--app",
        APP,
        "--",
        "sh",
        "-c",
        "read x; echo \"$x\"; exit 3",
    ]);
    let mut session = Session::new(
        &rig,
        &json!({"version": 1, "streams": [{"stream": "stdout"}], "stdin": true}),
    );
    let epoch = session.wait_told(FrameKind::Welcome)["epoch"].clone();
    session.send(FrameKind::Stdin, b"half ");
    session.send(FrameKind::Stdin, b"line\n");
    assert_eq!(
        session.rest(),
        [
            told(
                FrameKind::Welcome,
                json!({"version": 1, "epoch": epoch, "streams": [{"stream": "stdout", "offset": 0}]})
            ),
            Frame::Bytes(Stream::Stdout, b"half line\n".to_vec()),
            told(FrameKind::End, json!({"stream": "stdout"})),
            told(FrameKind::Exit, json!({"status": 3})),
        ]
    );
    assert_eq!(mux.ends(), 3);
}

#[test]
fn a_session_of_a_mux_that_ends() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    rig.writer("stdout").write_all(b"seen").unwrap();
    expect(rig.client("stdout"), "seen");
    let hello = json!({"version": 1, "streams": [{"stream": "stderr"}, {"stream": "stdout"}, {"stream": "tty"}], "later": {}});
    let mut session = Session::new(&rig, &hello);
    // Those that the app has, each from what nobody has seen.
    let welcome = session.wait_told(FrameKind::Welcome);
    let streams = json!([{"stream": "stderr", "offset": 0}, {"stream": "stdout", "offset": 4}]);
    assert_eq!(welcome["streams"], streams);
    rig.writer("stdout").write_all(b"last").unwrap();
    mux.signal(Signal::SIGTERM);
    let frames = session.rest();
    assert_eq!(
        frames[1..],
        [Frame::Bytes(Stream::Stdout, b"last".to_vec()), told(FrameKind::Closing, Value::Null)]
    );
    assert_eq!(mux.ends(), 0);
}

#[test]
fn the_end_of_input_is_acknowledged_when_the_app_has_it() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut session = Session::new(&rig, &json!({"version": 1, "stdin": true}));
    session.send(FrameKind::Stdin, b"no line end");
    session.send(FrameKind::StdinEof, b"");
    session.wait_told(FrameKind::StdinDone);
    // What comes after its end is nobody's.
    session.send(FrameKind::Stdin, b"too late");
    let app = rig.reader();
    app.wait_for("no line end");
    rig.client("stdin").write_all(b".\n").unwrap();
    app.wait_for(".\n");
    assert_eq!(app.so_far(), "no line end.\n");
}

#[test]
fn the_mux_says_what_the_app_had_written_before_it_took_the_input() {
    let rig = Rig::new();
    let mux = rig.mux(["stream", "--app", APP, "--max-client-delay", "3600"]);
    let mut app = rig.writer("stdout");
    app.write_all(b"read").unwrap();
    expect(rig.client("stdout"), "read");
    let reader = rig.reader();
    let taken = |line: &[u8]| {
        let mut session = Session::new(&rig, &json!({"version": 1, "stdin": true}));
        session.send(FrameKind::Stdin, line);
        session.send(FrameKind::StdinEof, b"");
        session.wait_told(FrameKind::StdinDone)["outputs"].clone()
    };
    let outputs = json!([{"stream": "stdout", "offset": 4}, {"stream": "stderr", "offset": 0}]);
    assert_eq!(taken(b"one\n"), outputs);
    reader.wait_for("one\n");
    // Also if the end of the input comes after the answer.
    let mut session = Session::new(&rig, &json!({"version": 1, "stdin": true}));
    session.send(FrameKind::Stdin, b"early\n");
    reader.wait_for("early\n");
    app.write_all(b"answer").unwrap();
    expect(rig.client("stdout"), "answer");
    session.send(FrameKind::StdinEof, b"");
    assert_eq!(session.wait_told(FrameKind::StdinDone)["outputs"], outputs);
    // What nobody has read yet was written before, too.
    let lazy = rig.client("stdout");
    let _full = held_back(&rig, &mux);
    let offset = taken(b"two\n")[0]["offset"].clone();
    drop(lazy);
    app.write_all(b"answer").unwrap();
    let streams = json!([{"stream": "stdout", "from": offset}]);
    let mut session = Session::new(&rig, &json!({"version": 1, "streams": streams}));
    // The mux may not have read as far as that, and then begins before it.
    let begin = session.wait_told(FrameKind::Welcome)["streams"][0]["offset"].as_u64().unwrap();
    mux.signal(Signal::SIGTERM);
    let rest = session.rest();
    let [_, Frame::Bytes(Stream::Stdout, bytes), Frame::Told(FrameKind::Closing, _)] = &rest[..]
    else {
        panic!("{rest:?}");
    };
    let before = usize::try_from(offset.as_u64().unwrap() - begin).unwrap();
    assert_eq!(bytes[before..], *b"answer");
}

#[test]
fn it_begins_where_it_asks_to() {
    let rig = Rig::new();
    let mux = rig.stream();
    let mut app = rig.writer("stdout");
    app.write_all(b"0123456789").unwrap();
    expect(rig.client("stdout"), "0123456789");
    for (from, offset, begin) in [
        (json!("start"), 0, "0123456789"),
        (json!(4), 4, "456789"),
        (json!(99), 10, ""),
        (json!("now"), 10, ""),
        (json!("unseen"), 10, ""),
    ] {
        mux.rests();
        let hello = json!({"version": 1, "streams": [{"stream": "stdout", "from": from}]});
        let mut session = Session::new(&rig, &hello);
        let welcome = session.wait_told(FrameKind::Welcome);
        assert_eq!(welcome["streams"][0]["offset"], offset, "{from}");
        let text = |session: &Session| match session.frames.get(1) {
            Some(Frame::Bytes(_, bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        while text(&session).len() < begin.len() && session.read() {}
        assert_eq!(text(&session), begin, "{from}");
    }
    let attach = rig.attach(&["--mode", "stdout", "--from", "7"]);
    attach.stdout.wait_for("789");
    assert_eq!(attach.stdout.so_far(), "789");
}

#[test]
fn an_offset_of_another_epoch_is_the_oldest_byte_kept() {
    let rig = Rig::new();
    let mux = rig.stream();
    rig.writer("stdout").write_all(b"0123456789").unwrap();
    expect(rig.client("stdout"), "0123456789");
    mux.rests();
    let hello = |epoch: &Value, from: Value| {
        let wanted = json!([{"stream": "stdout", "from": from}]);
        let mut session =
            Session::new(&rig, &json!({"version": 1, "epoch": epoch, "streams": wanted}));
        session.wait_told(FrameKind::Welcome)
    };
    let other = json!("0123456789abcdef");
    let own = hello(&other, json!("now"))["epoch"].clone();
    assert_eq!(own.as_str().unwrap().len(), 16);
    for (epoch, from, offset) in
        [(&own, json!(4), 4), (&other, json!(4), 0), (&other, json!("unseen"), 10)]
    {
        let welcome = hello(epoch, from);
        assert_eq!((&welcome["epoch"], &welcome["streams"][0]["offset"]), (&own, &json!(offset)));
    }
}

#[test]
fn one_without_patience_never_holds_the_app_back() {
    let rig = Rig::new();
    let _mux = rig.mux(["stream", "--app", APP, "--max-client-delay", "3600"]);
    let hello = json!({"version": 1, "streams": [{"stream": "stdout"}], "patience_ms": 0});
    let mut session = Session::new(&rig, &hello);
    session.wait_told(FrameKind::Welcome);
    // That this returns is the test: nobody reads, and the mux would allow an hour.
    pattern::write(rig.writer("stdout"), 16 << 20);
}

#[test]
fn lost_bytes_are_counted_for_the_client() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut session = Session::new(&rig, &json!({"version": 1, "streams": [{"stream": "stdout"}]}));
    session.wait_told(FrameKind::Welcome);
    // It does not read while the app writes far more than is kept for it.
    let len = 8 << 20;
    pattern::write(rig.writer("stdout"), len);
    mux.signal(Signal::SIGTERM);
    let mut account = Account::new(Stream::Stdout, 0, false);
    account.read_to_end(&session.socket);
    assert_eq!(account.at, len, "every byte came or was told lost");
    assert!(account.lost > 0);
    assert_eq!(account.last, Some(FrameKind::Closing));
    assert_eq!(mux.ends(), 0);
}

#[test]
fn only_a_client_that_breaks_the_protocol_is_dropped() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut well = Session::new(&rig, &json!({"version": 1, "streams": [{"stream": "stdout"}]}));
    well.wait_told(FrameKind::Welcome);
    let hello = |body: Value| FrameKind::Hello.message(&body);
    let good = json!({"version": 1});
    for (bytes, why) in [
        (hello(json!({"version": 9})), "version 9"),
        (hello(json!({"version": 1, "streams": [{"stream": "stdfoo"}]})), "stdfoo"),
        (hello(json!({"version": 1, "exclusive": "ask"})), "only a client that types"),
        (hello(json!({"version": 1, "epoch": "1"})), "16 hexadecimal digits"),
        (FrameKind::Hello.frame(b"garbage"), "expected value"),
        (FrameKind::Stdin.frame(b"x"), "its first frame is not a hello"),
        (
            [hello(good.clone()), hello(good.clone())].concat(),
            "does not send frames of kind 1 here",
        ),
        (
            [hello(good.clone()), FrameKind::Stdout.frame(b"x")].concat(),
            "does not send data of stdout",
        ),
        (
            [hello(good.clone()), FrameKind::Exit.frame(b"{}")].concat(),
            "does not send frames of kind 20 here",
        ),
        (vec![1, 0, 0, 0, 0, 1, 0, 1], "exceeds the limit"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "reserved bytes"),
    ] {
        let mut socket = rig.client("session");
        socket.write_all(&bytes).unwrap();
        let mut bad = Session { socket, decoder: Decoder::default(), frames: vec![] };
        let error = bad.wait_told(FrameKind::Error)["error"].as_str().unwrap().to_owned();
        assert!(error.contains(why), "{error}");
        bad.rest();
    }
    rig.writer("stdout").write_all(b"unharmed").unwrap();
    while !well.frames.contains(&Frame::Bytes(Stream::Stdout, b"unharmed".to_vec())) {
        assert!(well.read(), "{:?}", well.frames);
    }
}

#[test]
fn a_refusal_quotes_no_more_than_a_line_holds() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let long = json!({"version": 1, "streams": [{"stream": "\u{7}".repeat(10_000)}]});
    let error = Session::new(&rig, &long).wait_told(FrameKind::Error)["error"].to_string();
    assert!(error.contains("unknown variant") && error.len() < 4096, "{error}");
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(mux.stderr.text().lines().all(|line| line.len() < 4096));
}

#[test]
fn questions_that_come_together_are_all_answered() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let _crowd = [(); 100].map(|()| rig.client("stdout"));
    let mut session = Session::new(&rig, &json!({"version": 1}));
    session.wait_told(FrameKind::Welcome);
    session.socket.write_all(&FrameKind::Status.frame(b"").repeat(12)).unwrap();
    let answers = |session: &Session| {
        session.frames.iter().filter(|f| matches!(f, Frame::Told(FrameKind::Report, _))).count()
    };
    while answers(&session) < 12 {
        assert!(session.read(), "ended after {} answers", answers(&session));
    }
}

#[test]
fn kinds_of_later_versions_are_skipped() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut session = Session::new(&rig, &json!({"version": 1, "stdin": true}));
    session.socket.write_all(&[9, 0, 0, 0, 0, 0, 0, 3, b'x', b'y', b'z']).unwrap();
    session.send(FrameKind::Stdin, b"on\n");
    rig.reader().wait_for("on\n");
}

#[test]
fn an_attach_that_asks_for_too_much_learns_why() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        let _mux = rig.mux([kind, "--app", APP]);
        let mut attach = rig.attach(&["--stdin-once"]);
        assert_eq!(attach.ends(), 1);
        let said = attach.stderr.text();
        assert!(said.starts_with("iottymux: app demo: the mux refused: "), "{said}");
        assert!(said.contains("the input of this app cannot be ended"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// It takes the ten seconds that a session may be silent, and waits them out in a read.
#[test]
fn only_a_client_without_hello_is_dropped() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let streams = json!({"version": 1, "streams": [{"stream": "stdout"}]});
    let mut well = Session::new(&rig, &streams);
    well.wait_told(FrameKind::Welcome);
    let raw = rig.client("stdout");
    let quiet = || Session {
        socket: rig.client("session"),
        decoder: Decoder::default(),
        frames: Vec::new(),
    };
    let (mut silent, mut half, mut late) = (quiet(), quiet(), quiet());
    let hello = FrameKind::Hello.message(&streams);
    half.socket.write_all(&hello[..hello.len() - 1]).unwrap();
    for byte in hello.chunks(1) {
        late.socket.write_all(byte).unwrap();
    }
    for session in [&mut silent, &mut half] {
        let why = session.wait_told(FrameKind::Error);
        assert_eq!(why, json!({"error": "it has not said hello in time"}));
        assert!(!session.read(), "{:?}", session.frames);
    }
    // The others are as they were.
    rig.writer("stdout").write_all(b"still here").unwrap();
    expect(raw, "still here");
    for session in [&mut well, &mut late] {
        while !session.frames.contains(&Frame::Bytes(Stream::Stdout, b"still here".to_vec())) {
            assert!(session.read(), "{:?}", session.frames);
        }
    }
}

/// A request that is not known, or none, is answered, and the session goes on.
#[test]
fn every_request_is_answered() {
    let rig = Rig::new();
    let spec = format!("raw:{}", rig.file("app.log").display());
    let _mux = rig.mux(["stream", "--app", APP, "--log", &spec]);
    let mut session = Session::new(&rig, &json!({"version": 1}));
    session.wait_told(FrameKind::Welcome);
    for (body, why) in [
        (&br#"{"request":"dance"}"#[..], "unknown variant"),
        (b"garbage", "expected value"),
        (br#"{"request":"ended","status":99999}"#, "no such request"),
        (br#"{"request":"detach","client":99}"#, "there is no client 99"),
        (br#"{"request":"resize","rows":1,"cols":1}"#, "no terminal"),
    ] {
        session.send(FrameKind::Request, body);
        let answer = session.wait_told(FrameKind::Answer);
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
        session.frames.clear();
    }
    session.send(FrameKind::Request, br#"{"request":"reopen-logs"}"#);
    assert_eq!(session.wait_told(FrameKind::Answer), json!({}));
}
