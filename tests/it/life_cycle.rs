//! The hooks of a unit report to the mux that its app ended or runs, and the mux reports it to clients.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use iottymux::core::wire::FrameKind;
use iottymux::types::stream::Stream;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use crate::at_terminal::at_prompt;
use crate::cri::cri;
use crate::pattern;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::session::{Frame, Session, told};

/// A hook of the app's unit, as systemd runs it.
fn hook(rig: &Rig, what: &str, variables: &[(&str, &str)]) -> Proc {
    let mut command = rig.command(["control", "--app", APP, what]);
    // These may be of a unit in which the tests run.
    command.env_remove("INVOCATION_ID").env_remove("SYSTEMD_EXEC_PID");
    command.envs(variables.iter().copied());
    Proc::spawn(command)
}

fn assert_told(mut hook: Proc) {
    assert_eq!(hook.ends(), 0, "{}", hook.stderr.text());
    assert_eq!((hook.stdout.text(), hook.stderr.text()), (String::new(), String::new()));
}

fn ended(rig: &Rig, code: &str, status: &str) {
    let variables = [("SERVICE_RESULT", "exit-code"), ("EXIT_CODE", code), ("EXIT_STATUS", status)];
    assert_told(hook(rig, "ended", &variables));
}

fn started(rig: &Rig, pid: &str) {
    assert_told(hook(rig, "started", &[("MAINPID", pid)]));
}

fn hello() -> Value {
    json!({"version": 1, "streams": [{"stream": "stdout"}, {"stream": "stderr"}]})
}

/// The end of a service, and that of its mux after it.
#[test]
fn one_end_is_one_event() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut events = rig.run(&["events", APP, "--no-data"]);
    eventually("it is there", || !rig.status()["clients"].as_array().unwrap().is_empty());
    started(&rig, "1");
    ended(&rig, "exited", "3");
    started(&rig, "1");
    ended(&rig, "exited", "4");
    mux.signal(Signal::SIGTERM);
    assert_eq!((mux.ends(), events.ends()), (0, 0));
    let lines = events.stdout.text();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<_> = lines.iter().filter(|line| line["event"] == "ended").collect();
    let ended: Vec<_> = ended.iter().map(|line| &line["status"]).collect();
    assert_eq!(ended, [3, 4]);
}

#[test]
fn sessions_receive_each_lifecycle_event_in_its_place() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut session = Session::new(&rig, &hello());
    session.wait_told(FrameKind::Welcome);
    let mut app = rig.writer("stdout");
    // Whether the mux has read it or not when it is told of the end.
    app.write_all(b"first life").unwrap();
    ended(&rig, "exited", "1");
    started(&rig, "4711");
    // At once: the mux may read that before it has announced the start.
    app.write_all(b"second life").unwrap();
    mux.stderr.wait_for("reports that the app has ended with status 1");
    mux.stderr.wait_for("reports that the app runs as pid=4711");
    ended(&rig, "killed", "TERM");
    // From now on it is known how the app has ended.
    let mut late = Session::new(&rig, &json!({"version": 1, "streams": [{"stream": "stdout"}]}));
    late.wait_told(FrameKind::Ended);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0, "the app's status is not the mux's");
    let stdout = |bytes: &[u8]| Frame::Bytes(Stream::Stdout, bytes.to_vec());
    let signal = json!({"signal": 15});
    assert_eq!(
        session.rest()[1..],
        [
            stdout(b"first life"),
            told(FrameKind::Ended, json!({"status": 1})),
            told(FrameKind::Started, json!({"pid": 4711})),
            stdout(b"second life"),
            told(FrameKind::Ended, signal.clone()),
            told(FrameKind::End, json!({"stream": "stdout"})),
            told(FrameKind::End, json!({"stream": "stderr"})),
            told(FrameKind::Exit, signal.clone()),
        ]
    );
    let frames = late.rest();
    assert_eq!(frames[1], told(FrameKind::Ended, signal.clone()));
    assert_eq!(frames.last(), Some(&told(FrameKind::Exit, signal)));
}

/// One that is behind gets everything from before the end before it learns of the end.
#[test]
fn a_slow_session_receives_each_lifecycle_event_in_its_place() {
    let rig = Rig::new();
    let mut mux = rig.mux(["stream", "--app", APP, "--backlog", "4M"]);
    let mut session = Session::new(&rig, &hello());
    session.wait_told(FrameKind::Welcome);
    // More than its socket takes, and it does not read.
    let len = 2 << 20;
    pattern::write(rig.writer("stdout"), len);
    ended(&rig, "exited", "5");
    started(&rig, "4711");
    rig.writer("stdout").write_all(b"again").unwrap();
    mux.rests();
    let frames = session.rest_until(
        |frames| matches!(frames.last(), Some(Frame::Bytes(_, bytes)) if bytes.ends_with(b"again")),
    );
    assert!(frames[1] == Frame::Bytes(Stream::Stdout, pattern::bytes(len)), "not all came before");
    assert_eq!(
        frames[2..],
        [
            told(FrameKind::Ended, json!({"status": 5})),
            told(FrameKind::Started, json!({"pid": 4711})),
            Frame::Bytes(Stream::Stdout, b"again".to_vec()),
        ]
    );
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// A client that does not read holds the app back when the hook runs: what is still in the pipe comes before the
/// end, for sessions and for the log.
#[test]
fn an_end_waits_for_what_a_client_holds_back() {
    let rig = Rig::new();
    let log = rig.file("log");
    let spec = format!("cri:{}", log.display());
    let options = ["--backlog", "4K", "--max-client-delay", "3600", "--log", &spec];
    let mut mux = rig.mux([&["stream", "--app", APP][..], &options].concat());
    let hello = json!({"version": 1, "streams": [{"stream": "stdout"}]});
    let mut session = Session::new(&rig, &hello);
    session.wait_told(FrameKind::Welcome);
    let mut app = rig.writer("stdout");
    fcntl(&app, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut wrote = 0;
    let mut fill = || {
        while let Ok(len) = app.write(&[b'x'; 4096]) {
            wrote += len;
        }
    };
    fill();
    mux.rests();
    fill();
    ended(&rig, "exited", "5");
    let is_end = |frame: &Frame| matches!(frame, Frame::Told(FrameKind::Ended, _));
    let frames = session.rest_until(|frames| frames.last().is_some_and(is_end));
    let len = |frame: &Frame| match frame {
        Frame::Bytes(_, bytes) => bytes.len(),
        _ => 0,
    };
    assert_eq!(frames.iter().map(len).sum::<usize>(), wrote);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    let log = std::fs::read(log).unwrap();
    let entries = cri(&log);
    assert_eq!(entries.iter().map(|entry| entry.text.len()).sum::<usize>(), wrote);
    let ends: Vec<_> = (1..).zip(&entries).filter(|(_, e)| e.last).map(|(at, _)| at).collect();
    assert_eq!(ends, [entries.len()], "the one line has one end");
}

/// What was in the pipe when the hook ran comes before the end, however much that is.
#[test]
fn the_pipes_are_read_empty_first() {
    let rig = Rig::new();
    let mut mux = rig.mux(["stream", "--app", APP, "--backlog", "4K"]);
    // It has no patience, so that it does not hold the app back.
    let hello = json!({"version": 1, "streams": [{"stream": "stdout"}], "patience_ms": 0});
    let mut session = Session::new(&rig, &hello);
    session.wait_told(FrameKind::Welcome);
    let mut unit = Session::new(&rig, &json!({"version": 1}));
    unit.wait_told(FrameKind::Welcome);
    mux.stop();
    let mut app = rig.writer("stdout");
    fcntl(&app, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut wrote = 0;
    while let Ok(len) = app.write(&[b'x'; 4096]) {
        wrote += len as u64;
    }
    unit.send(FrameKind::Request, br#"{"request":"ended","status":1}"#);
    mux.go_on();
    unit.wait_told(FrameKind::Answer);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    let mut before = 0;
    for frame in session.rest() {
        match frame {
            Frame::Bytes(_, bytes) => before += bytes.len() as u64,
            Frame::Told(FrameKind::Gap, gap) => before = gap["to"].as_u64().unwrap(),
            Frame::Told(FrameKind::Ended, _) => break,
            Frame::Told(..) | Frame::Screen(_) => {}
        }
    }
    assert_eq!(before, wrote);
}

#[test]
fn an_app_that_runs_again_is_not_taken_for_one_that_has_ended() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    let mut session = Session::new(&rig, &hello());
    session.wait_told(FrameKind::Welcome);
    ended(&rig, "exited", "1");
    started(&rig, "4711");
    let late = Session::new(&rig, &hello());
    mux.signal(Signal::SIGTERM);
    assert_eq!(session.rest().last(), Some(&told(FrameKind::Closing, Value::Null)));
    let late = late.rest();
    assert_eq!(late[1..], [told(FrameKind::Closing, Value::Null)]);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn attach_reports_a_restart_and_goes_on() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    // The first start is none.
    started(&rig, "4710");
    let mut attach = rig.attach(&["--mode", "stdout"]);
    mux.stderr.wait_for("attached to stdout");
    ended(&rig, "exited", "1");
    started(&rig, "4711");
    attach.stderr.wait_for("iottymux: app demo ended with status 1 and was started again\n");
    ended(&rig, "killed", "KILL");
    started(&rig, "4712");
    attach.stderr.wait_for("iottymux: app demo ended by signal 9 and was started again\n");
    rig.writer("stdout").write_all(b"on").unwrap();
    attach.stdout.wait_for("on");
    ended(&rig, "exited", "42");
    mux.signal(Signal::SIGTERM);
    assert_eq!((mux.ends(), attach.ends()), (0, 42));
    assert_eq!(attach.stderr.text().lines().count(), 2, "{}", attach.stderr.text());
}

#[test]
fn a_terminal_shows_a_restart_beside_the_apps_text() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let (local, attach, _) = at_prompt(&rig, 80, &[]);
    ended(&rig, "exited", "1");
    started(&rig, "4711");
    local.shown.wait_for("Hiottymux: app demo ended with status 1 and was started again\x1b");
    assert!(local.is_raw());
    drop(attach);
}

/// A line of ours is never inside of a sequence of the app: what has begun goes on behind it; but not
/// with what another app prints.
#[test]
fn a_line_comes_between_the_sequences_of_the_app() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let local = Pty::open(24, 80);
    let words = ["attach", "--app", APP, "--redraw", "none", "--pass", "title"];
    let attach = local.spawn(rig.command(words));
    let mut app = rig.slave();
    let shown = |count: usize, text: &str| {
        let what = format!("{text:?} is shown {count} times");
        eventually(&what, || local.shown.so_far().matches(text).count() == count);
    };
    for (count, (whole, cut)) in
        (1..).zip([("\x1b[31mred", 3), ("\u{20ac}", 2), ("\x1b]2;title\x07", 7)])
    {
        let (begun, rest) = whole.as_bytes().split_at(cut);
        app.write_all(&[b"<begun>", begun].concat()).unwrap();
        shown(count, "<begun>");
        let other = rig.attach(&["--take-over"]);
        shown(count, "you cannot type");
        app.write_all(&[rest, b"<ends>"].concat()).unwrap();
        shown(count, "<ends>");
        let so_far = local.shown.so_far();
        assert!(so_far.ends_with(&format!("\r\n{whole}<ends>")), "{so_far:?}");
        drop(other);
        shown(count, "you can type again");
    }
    app.write_all(b"<last>\x1b[3").unwrap();
    shown(1, "<last>");
    ended(&rig, "exited", "1");
    started(&rig, "4711");
    local.shown.wait_for("was started again\x1b[K\r\n");
    app.write_all(b"1mnew").unwrap();
    local.shown.wait_for("was started again\x1b[K\r\n1mnew");
    assert!(!local.shown.so_far().contains("<last>\x1b[3"), "{:?}", local.shown.so_far());
    drop(attach);
}

#[test]
fn the_status_shows_the_state_of_the_app() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let status = |arguments: &[&str]| {
        let mut asked = rig.run(&[&["status", "--app", APP], arguments].concat());
        assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());
        asked.stdout.text()
    };
    let fares = || {
        let report: Value = serde_json::from_str(&status(&["--json"])).unwrap();
        json!([report["app_pid"], report["app_ended"], report["restarts"]])
    };
    assert_eq!(fares(), json!([null, null, 0]));
    started(&rig, "4711");
    assert_eq!(fares(), json!([4711, null, 0]));
    assert!(status(&[]).contains(" s, app 4711\n"), "{}", status(&[]));
    ended(&rig, "dumped", "SEGV");
    assert_eq!(fares(), json!([null, {"signal": 11}, 0]));
    assert!(status(&[]).contains(" s, app ended by signal 11\n"), "{}", status(&[]));
    started(&rig, "4712");
    assert_eq!(fares(), json!([4712, {"signal": 11}, 1]));
    let again = " s, app 4712 started again after it ended by signal 11\nrestarts 1\n";
    assert!(status(&[]).contains(again), "{}", status(&[]));
}

/// It ends with 1 and says one line that has this.
fn assert_refused(mut hook: Proc, why: &str) {
    assert_eq!(hook.ends(), 1);
    let said = hook.stderr.text();
    assert!(said.starts_with("iottymux: ") && said.contains(why), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn calls_outside_a_hook_are_refused() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let result = ("SERVICE_RESULT", "success");
    for (what, variables, why) in [
        ("ended", &[][..], "not an ExecStopPost= command of systemd: SERVICE_RESULT"),
        ("ended", &[result, ("EXIT_CODE", "exited")], "EXIT_STATUS"),
        (
            "ended",
            &[result, ("EXIT_CODE", "exited"), ("EXIT_STATUS", "\u{1b}[2J")],
            "invalid EXIT_CODE=exited with EXIT_STATUS=\\u{1b}[2J",
        ),
        ("started", &[], "not an ExecStartPost= command of systemd: MAINPID"),
        ("started", &[("MAINPID", "0")], "invalid MAINPID=0"),
    ] {
        assert_refused(hook(&rig, what, variables), why);
    }
}

/// As with `Type=oneshot`, or after an `ExecStartPre=` that failed; what it printed would be the app's.
#[test]
fn a_hook_of_an_app_without_a_process_says_nothing() {
    let rig = Rig::new();
    let mut mux = rig.stream();
    assert_told(hook(&rig, "started", &[("INVOCATION_ID", "0123")]));
    assert_told(hook(&rig, "ended", &[("SERVICE_RESULT", "exit-code")]));
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!mux.stderr.text().contains("it has ended"), "{}", mux.stderr.text());
}

#[test]
fn of_an_app_of_run_only_its_keeper_reports() {
    let rig = Rig::new();
    let mux = rig.mux(["run", "--foreground", "--app", APP, "--", "cat"]);
    assert_refused(
        hook(&rig, "started", &[("MAINPID", "1")]),
        "only the keeper of its app reports",
    );
    drop(mux);
}

/// A hook stands in the way of systemd: it ends though nobody answers.
#[test]
fn a_hook_ends_without_a_mux() {
    let rig = Rig::new();
    let started = || hook(&rig, "started", &[("MAINPID", "1")]);
    assert_refused(started(), "there is no app demo in ");
    let mux = rig.stream();
    mux.stop();
    assert_refused(started(), "the mux does not answer");
    mux.go_on();
    drop(mux);
    // A mux that was killed may come again, which is waited for.
    let waiting = started();
    waiting.waits();
    let _mux = rig.stream();
    assert_told(waiting);
}

/// Whether there is something to read for the app.
fn has_input(end: &File) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn the_next_run_reads_nothing_that_was_for_the_last_one() {
    for kind in ["stream", "tty"] {
        let rig = Rig::new();
        let _mux = rig.mux([kind, "--app", APP]);
        let (mut typist, mut end) = match kind {
            "tty" => (rig.client("tty"), rig.slave_as_it_is()),
            _ => (rig.client("stdin"), input_end(&rig)),
        };
        started(&rig, "4711");
        typist.write_all(b"rm everything\n").unwrap();
        eventually("it is there", || has_input(&end));
        if kind == "tty" {
            // Half a line, and the output stopped.
            typist.write_all(b"half\x13").unwrap();
            eventually("it is stopped", || !can_write(&end));
        }
        ended(&rig, "exited", "1");
        assert!(!has_input(&end));
        // What comes before the next start is for that.
        typist.write_all(b"next\n").unwrap();
        started(&rig, "4712");
        expect(&mut end, "next\n");
        assert!(kind != "tty" || can_write(&end));
    }
}

/// The app's end of its input, which does not block.
fn input_end(rig: &Rig) -> File {
    let path = rig.path("stage2-stdin");
    File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap()
}

fn can_write(end: &File) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

/// A line that the app did not read and that its FIFO had no room for is not sent to the next run.
#[test]
fn a_line_that_came_too_late_is_reported() {
    const WAITS: &str = "iottymux: warn: app demo has not taken the line yet; waiting until it does (^C gives up)\n";
    let rig = Rig::new();
    let _mux = rig.stream();
    started(&rig, "4711");
    // The FIFO is full, and something waits in front of it.
    let len = fcntl(input_end(&rig), FcntlArg::F_GETPIPE_SZ).unwrap() + 1;
    rig.client("stdin").write_all(&vec![b'x'; len.try_into().unwrap()]).unwrap();
    let mut send = rig.run(&["send", APP, "late"]);
    send.stderr.wait_for(WAITS);
    ended(&rig, "exited", "1");
    assert_eq!(send.ends(), 1);
    assert_eq!(
        send.stderr.text(),
        WAITS.to_owned()
            + "iottymux: app demo did not take the line: the app ended before it read all of this input\n"
    );
    assert!(!has_input(&input_end(&rig)));
}

/// The next run may be another server than the sender means.
#[test]
fn a_line_for_an_app_that_has_ended_is_refused() {
    for is_terminal in [false, true] {
        let rig = Rig::new();
        let _mux = if is_terminal { rig.tty() } else { rig.stream() };
        started(&rig, "4711");
        ended(&rig, "exited", "0");
        let mut send = rig.run(&["send", APP, "late"]);
        assert_eq!(send.ends(), 1);
        let told = send.stderr.text();
        assert!(told.ends_with("it has ended, and does not run\n"), "{told}");
        started(&rig, "4712");
        assert_eq!(rig.run(&["send", APP, "next"]).ends(), 0);
        if is_terminal {
            expect(&mut rig.slave_as_it_is(), "next\n");
        } else {
            rig.reader().wait_for("next\n");
        }
    }
}

/// The kernel would cut it without a word. A terminal that edits no lines takes lines of any length.
#[test]
fn a_line_that_the_terminal_would_cut_is_refused() {
    const MOST: usize = 4096;
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave_as_it_is();
    let mut modes = tcgetattr(&app).unwrap();
    modes.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&app, SetArg::TCSANOW, &modes).unwrap();
    let send = |len: usize| rig.run(&["send", APP, &"x".repeat(len)]);
    let mut refused = send(MOST);
    assert_eq!(refused.ends(), 1);
    let why = "the app's terminal cuts lines of more than 4096 bytes\n";
    let told = refused.stderr.text();
    assert!(told.ends_with(why) && told.contains("did not take the line"), "{told}");
    let mut attach = rig.attach(&["--mode", "tty-in"]);
    attach.stdin().write_all(&[b'y'; MOST + 1]).unwrap();
    assert_eq!(attach.ends(), 125);
    assert!(attach.stderr.text().ends_with(why));
    assert_eq!(send(MOST - 1).ends(), 0);
    expect(&mut app, &("x".repeat(MOST - 1) + "\n"));
    let mut raw = rig.slave();
    assert_eq!(send(2 * MOST).ends(), 0);
    expect(&mut raw, &("x".repeat(2 * MOST) + "\r"));
}

/// The kernel keeps 4095 bytes of it, and would keep no byte of the line behind it.
#[test]
fn a_half_line_of_another_takes_no_sent_line_with_it() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave_as_it_is();
    let mut other = rig.client("tty");
    other.write_all(&[b'A'; 5000]).unwrap();
    expect(&mut other, &"A".repeat(4000));
    assert_eq!(rig.run(&["send", APP, "a line"]).ends(), 0);
    expect(&mut app, "a line\n");
}

/// Programs that type for people take text and return in one read for a paste, and wait for a return.
#[test]
fn a_sent_line_and_its_return_come_apart_to_a_raw_terminal() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave();
    let mut buffer = [0; 100];
    let mut read = |app: &mut File| {
        let len = app.read(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    for line in ["two words", "x"] {
        let mut send = rig.run(&["send", APP, line]);
        // However late it reads.
        assert_eq!([read(&mut app), read(&mut app)], [line, "\r"]);
        assert_eq!(send.ends(), 0);
    }
    // So do keys, and Escape: with a text in one read it may be a key with Alt.
    for (keys, want) in [
        (&["Enter", "b", "Enter", "C-c"][..], &["\r", "b", "\r", "\x03"][..]),
        (&["a", "Escape", ":w", "Enter"], &["a\x1b", ":w", "\r"]),
    ] {
        let mut send = rig.run(&[&["send", APP, "--keys"], keys].concat());
        assert_eq!(want.iter().map(|_| read(&mut app)).collect::<Vec<_>>(), want);
        assert_eq!(send.ends(), 0);
    }
    // And lines of others.
    let mut sends = ["1", "2", "3", "4"].map(|line| rig.run(&["send", APP, line]));
    let mut got = [(); 4].map(|()| {
        let line = read(&mut app);
        assert_eq!(read(&mut app), "\r");
        line
    });
    got.sort();
    assert_eq!(got, ["1", "2", "3", "4"]);
    for send in &mut sends {
        assert_eq!(send.ends(), 0);
    }
    // A key by itself waits for nothing, and neither does a terminal that edits lines.
    let mut send = rig.run(&["send", APP, ""]);
    assert_eq!((read(&mut app), send.ends()), ("\r".to_owned(), 0));
    drop(app);
    let other = Rig::new();
    let _mux = other.tty();
    let mut app = other.slave_as_it_is();
    let mut send = other.run(&["send", APP, "line"]);
    assert_eq!((read(&mut app), send.ends()), ("line\n".to_owned(), 0));
}

/// A terminal whose attach is stopped, whose connection hangs, or that understands no sequences
/// answers nothing: the app is answered in its place, and what comes later is not typed into it.
#[test]
fn an_app_is_answered_where_the_clients_terminal_does_not() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let (local, attach, mut app) = at_prompt(&rig, 80, &[]);
    let mut read = |len: usize| {
        let mut bytes = vec![0; len];
        app.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let ask = |query: &[u8]| rig.slave().write_all(query).unwrap();
    ask(b"\x1b[?u\x1b[?2004$p\x1b[c");
    let answers = "\x1b[?0u\x1b[?2004;2$y\x1b[?62;22c";
    assert_eq!(read(answers.len()), answers);
    // The reply comes late.
    local.press(b"\x1b[?62;4cx");
    assert_eq!(read(1), "x");
    // Of a name alone some terminals know nothing, and no program waits for it.
    ask(b"\x1b[>q");
    local.shown.wait_for("\x1b[>q");
    local.press(b"\x1bP>|real\x1b\\y");
    assert_eq!(read(11), "\x1bP>|real\x1b\\y");
    // One that answers in time is the only one that does.
    ask(b"\x1b[6n");
    local.shown.wait_for("\x1b[6n");
    local.press(b"\x1b[9;9Rz");
    assert_eq!(read(7), "\x1b[9;9Rz");
    attach.signal(Signal::SIGSTOP);
    attach.wait_stopped();
    ask(b"\x1b[5n");
    assert_eq!(read(4), "\x1b[0n");
    attach.signal(Signal::SIGCONT);
}
