//! Recordings of terminals: what is in the files, where they go on, and what plays them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;

use iottymux::core::hub::memory::{Memory, WORDS, rings_len};
use iottymux::core::hub::{Hub, Room};
use iottymux::core::logfmt::encoder::{FormatOptions, Note};
use iottymux::core::logfmt::format::cast::Cast;
use iottymux::core::logfmt::format::find;
use iottymux::core::logfmt::path::LogPath;
use iottymux::mux::logs::file::LogFile;
use iottymux::mux::logs::pipeline::log_memory::LogMemory;
use iottymux::mux::logs::pipeline::{Log, LogOptions};
use iottymux::mux::logs::writer::{LogSink, LogWriter};
use iottymux::types::size::Size;
use iottymux::types::stream::{Epoch, Stream};
use iottymux::types::time::Now;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::getuid;
use serde_json::{Value, json};

use crate::pair::pair;
use crate::proc::{Proc, Said, WATCHDOG, eventually};
use crate::rig::{APP, Rig, expect};
use crate::skip::skip;

/// A mux that records its terminal, ready.
fn recording(rig: &Rig, path: &Path, more: &[&str]) -> Proc {
    let spec = format!("cast:{}", path.display());
    rig.mux([&["tty", "--app", APP, "--record", &spec], more].concat())
}

fn end(mut mux: Proc) {
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// The header of a recording, and its events, of which each must be one, and none before the last.
fn parse(text: &[u8]) -> (Value, Vec<(f64, char, String)>) {
    let text = str::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let mut lines = text.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let keys: Vec<_> = header.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["env", "height", "timestamp", "version", "width"]);
    assert!(header["version"] == 2 && header["timestamp"].is_u64(), "{header}");
    let event = |line| serde_json::from_str::<(f64, char, String)>(line);
    let events: Vec<_> = lines.map(|line| event(line).expect(line)).collect();
    assert!(events.iter().is_sorted_by(|a, b| a.0 <= b.0) && events.iter().all(|e| e.0 >= 0.0));
    (header, events)
}

fn read(path: &Path) -> (Value, Vec<(f64, char, String)>) {
    parse(&fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// What the events are, without their times and without clients.
fn said(events: &[(f64, char, String)]) -> Vec<(char, &str)> {
    let all = events.iter().map(|(_, kind, text)| (*kind, text.as_str()));
    all.filter(|(_, text)| !text.starts_with("iottymux: client ")).collect()
}

/// What there is of one kind, joined.
fn joined(events: &[(f64, char, String)], kind: char) -> String {
    events.iter().filter(|event| event.1 == kind).map(|event| event.2.as_str()).collect()
}

fn resize(rig: &Rig, size: &str) {
    let mut control = rig.run(&["control", "--app", APP, "resize", size]);
    assert_eq!(control.ends(), 0, "{}", control.stderr.text());
}

#[test]
fn the_recording_has_output_size_and_on_request_input() {
    for input in [false, true] {
        let rig = Rig::new();
        let path = rig.file("new/dir/app.cast");
        let more: &[&str] = if input { &["--record-input"] } else { &[] };
        let mux = recording(&rig, &path, &[more, &["--size", "10x40"]].concat());
        let (mut app, mut client) = (rig.slave(), rig.client("tty"));
        // A character in two reads is in one event; what is no text is told.
        app.write_all(b"\x1b[1m\"login\" \xe2\x82").unwrap();
        let mut seen = [0; 14];
        client.read_exact(&mut seen).unwrap();
        app.write_all(b"\xac: \xff\r\n").unwrap();
        client.read_exact(&mut seen[..6]).unwrap();
        client.write_all("geh\u{e9}im\r".as_bytes()).unwrap();
        expect(&mut app, "geh\u{e9}im\r");
        resize(&rig, "20x60");
        eventually("the size is there", || fs::read_to_string(&path).unwrap().contains("60x20"));
        app.write_all(b"bye").unwrap();
        end(mux);
        let (header, events) = read(&path);
        assert_eq!((&header["width"], &header["height"]), (&json!(40), &json!(10)));
        assert_eq!(header["env"], json!({"TERM": "xterm-256color"}));
        let typed = if input { &[('i', "geh\u{e9}im\r")][..] } else { &[] };
        let want = [
            &[('r', "40x10"), ('o', "\x1b[1m\"login\" "), ('o', "\u{20ac}: \u{fffd}\r\n")][..],
            typed,
            &[('r', "60x20"), ('o', "bye")],
        ];
        assert_eq!(said(&events), want.concat());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o640, 0o755));
    }
}

#[test]
fn the_recording_says_who_is_there_and_types() {
    let rig = Rig::new();
    let path = rig.file("app.cast");
    let mux = recording(&rig, &path, &[]);
    let mut app = rig.slave();
    let uid = getuid();
    let recorded = |did: &str, times: usize| {
        let is_there =
            || fs::read_to_string(&path).is_ok_and(|all| all.matches(did).count() == times);
        eventually(did, is_there);
    };
    let mut clients = [1, 2].map(|nth| {
        let client = rig.client("tty");
        recorded("attached", nth);
        client
    });
    for (at, text) in [(0, "a\r"), (0, "b\r"), (1, "secret\r")] {
        clients[at].write_all(text.as_bytes()).unwrap();
        expect(&mut app, text);
    }
    let [_one, two] = clients;
    drop(two);
    recorded("detached", 1);
    end(mux);
    let (_, events) = read(&path);
    assert_eq!(joined(&events, 'i'), "");
    let of_clients: Vec<_> = events
        .iter()
        .filter(|(_, kind, _)| *kind == 'm')
        .map(|(.., text)| text.strip_prefix("iottymux: client ").unwrap().split_once(' ').unwrap())
        .collect();
    let [one, two] = [of_clients[0].0, of_clients[1].0];
    let want = [(one, "attached"), (two, "attached"), (one, "types"), (two, "types")];
    let want = [&want[..], &[(two, "detached")]].concat();
    let want: Vec<_> =
        want.iter().map(|(who, did)| (*who, format!("of user {uid} {did}"))).collect();
    assert_eq!(of_clients, want.iter().map(|(who, did)| (*who, did.as_str())).collect::<Vec<_>>());
    assert_ne!(one, two);
}

#[test]
fn a_mux_that_comes_again_goes_on_in_the_same_file() {
    let rig = Rig::new();
    let path = rig.file("app.cast");
    let mux = recording(&rig, &path, &[]);
    rig.slave().write_all(b"one").unwrap();
    end(mux);
    let before = fs::read_to_string(&path).unwrap();
    // What a mux that is killed may leave, and a clock that was set back since.
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"[99999999.5, \"o\", \"two\"]\n[99999999.6, \"o\", \"thr").unwrap();
    let mux = recording(&rig, &path, &["--size", "50x100"]);
    rig.slave().write_all(b"three").unwrap();
    end(mux);
    assert!(fs::read_to_string(&path).unwrap().starts_with(&before));
    let (_, events) = read(&path);
    let want = [('r', "80x24"), ('o', "one"), ('o', "two"), ('r', "100x50"), ('o', "three")];
    assert_eq!(said(&events), want);
    assert!(events[0].0 < 2.0 && (events[4].0 - 99_999_999.5).abs() < 1e-6, "{events:?}");
}

#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    for other in
        ["hello", "hello\nyou\n", "{\"version\":2}\n", "{\"version\":2,\"timestamp\":5}\nx\n"]
    {
        let rig = Rig::new();
        let path = rig.file("app.cast");
        fs::write(&path, other).unwrap();
        let mux = recording(&rig, &path, &[]);
        rig.slave().write_all(b"shown").unwrap();
        eventually("it fails", || {
            let failing = rig.status()["logs"][0]["failing"].clone();
            failing.as_str().is_some_and(|why| why.contains("is not a recording"))
        });
        mux.stderr.wait_for("cannot open it: the file exists and is not a recording");
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
        // When it is out of the way, all is there that was to be.
        fs::remove_file(&path).unwrap();
        eventually("it works", || rig.status()["logs"][0]["failing"].is_null());
        assert_eq!(rig.status()["logs"][0]["log"], format!("cast:{}", path.display()));
        end(mux);
        assert_eq!(said(&read(&path).1), [('r', "80x24"), ('o', "shown")]);
    }
}

#[test]
fn another_file_has_a_header_of_its_own() {
    let rig = Rig::new();
    let path = rig.file("app.cast");
    let mux = recording(&rig, &path, &[]);
    let (mut app, client) = (rig.slave(), Said::follow(rig.client("tty")));
    let len = || fs::metadata(&path).map_or(0, |stat| stat.len());
    let mut write = |text: &str| {
        app.write_all(text.as_bytes()).unwrap();
        eventually("it is there", || fs::read_to_string(&path).unwrap().contains(text));
    };
    write("first");
    resize(&rig, "30x90");
    eventually("the size is there", || fs::read_to_string(&path).unwrap().contains("90x30"));
    // Renamed, copied and truncated, removed.
    fs::rename(&path, rig.file("old")).unwrap();
    let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 0, "{}", control.stderr.text());
    eventually("a header is there", || len() > 0);
    write("second");
    fs::copy(&path, rig.file("copy")).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    write("third");
    fs::rename(&path, rig.file("moved")).unwrap();
    fs::remove_file(rig.file("moved")).unwrap();
    app.write_all(b"fourth").unwrap();
    client.wait_for("fourth");
    end(mux);
    for (file, size, want) in [
        ("old", (80, 24), &[('r', "80x24"), ('o', "first"), ('r', "90x30")][..]),
        ("copy", (90, 30), &[('r', "90x30"), ('o', "second")]),
        ("app.cast", (90, 30), &[('o', "fourth")]),
    ] {
        let (header, events) = read(&rig.file(file));
        assert_eq!((&header["width"], &header["height"]), (&json!(size.0), &json!(size.1)));
        assert_eq!(said(&events), want, "{file}");
        // Nobody has to wait for the beginning, and the times are those of the header.
        assert!(events[0].0 < 1.0, "{file}: {events:?}");
    }
}

#[test]
fn lost_output_has_a_marker_in_its_place() {
    let rig = Rig::new();
    let path = rig.file("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mux = recording(&rig, &path, &["--log-buffer", "256K"]);
    let (mut app, client) = (rig.slave(), Said::follow(rig.client("tty")));
    resize(&rig, "7x70");
    let lines = 40_000;
    let text = (0..lines).map(|n| format!("{n:050}\r\n")).collect::<Vec<_>>().concat();
    app.write_all(text.as_bytes()).unwrap();
    client.wait_len(text.len());
    eventually("it fails", || rig.status()["logs"][0]["failing"].is_string());
    let reader = Said::follow(File::open(&path).unwrap());
    eventually("it works", || rig.status()["logs"][0]["failing"].is_null());
    app.write_all(b"the end").unwrap();
    end(mux);
    let (_, events) = parse(&reader.bytes());
    let marker = events.iter().position(|event| event.1 == 'm').unwrap();
    let lost = events[marker].2.strip_prefix("iottymux: ").unwrap();
    let lost: usize = lost.strip_suffix(" bytes were lost here").unwrap().parse().unwrap();
    let before = joined(&events[..marker], 'o');
    let after = joined(&events[marker..], 'o');
    assert!(text.starts_with(&before) && lost > 0);
    assert_eq!(after, text[before.len() + lost..].to_owned() + "the end");
    // The size that was lost with it, or was there before.
    let sizes: Vec<_> = said(&events).into_iter().filter(|(kind, _)| *kind == 'r').collect();
    assert_eq!(sizes.last(), Some(&('r', "70x7")));
}

/// The app printed, was resized and given input while the recording was behind: it has all of that.
#[test]
fn events_during_a_slow_target_are_recorded() {
    let rig = Rig::new();
    let path = rig.file("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    let (backlog, streams) = (256 * 1024, [Stream::Tty]);
    let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let rings = vec![0; rings_len(&streams, backlog)].leak();
    let mut hub = Hub::new(&streams, backlog, Memory { words, rings }, Epoch(1));
    let options = LogOptions { line_limit: 10, chunk: 128 * 1024, ..LogOptions::default() };
    let size = |cols| Size { rows: 24, cols };
    let cast = Cast::new("xterm".into(), size(80));
    let format = find("cast").unwrap();
    let path = LogPath::free(&path).unwrap();
    let file = LogFile::new(path, format, None, Some(cast));
    let writer = LogWriter::start("x", LogSink::File(Box::new(file))).unwrap();
    let encoder = format.encoder(&FormatOptions { record_input: true, ..FormatOptions::default() });
    let parts = (writer, LogMemory::unkept(&*encoder, &options));
    let mut log = Log::new("x".into(), encoder, options, parts, &mut hub);
    let print = |hub: &mut Hub, log: &mut Log| {
        let mut printed = 0;
        while let Room::Free(room) = hub.make_room(Stream::Tty, Now::read().at) {
            let len = room.min(4096);
            hub.space(Stream::Tty, len).into_iter().for_each(|space| space.fill(b'x'));
            hub.commit(Stream::Tty, len, Now::read());
            log.advance(hub, Now::read().at);
            printed += len;
        }
        printed
    };
    let printed = print(&mut hub, &mut log);
    log.note(Note::Typed(b"ab"), &mut hub, Now::read());
    log.note(Note::Size(size(90)), &mut hub, Now::read());
    let typed = "\u{e9}".repeat(15_000);
    for bytes in typed.as_bytes().chunks(Note::TYPED - 1) {
        log.note(Note::Typed(bytes), &mut hub, Now::read());
    }
    // Who reads before anybody writes finds the end. From now on reading waits for bytes.
    poll(&mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let heard = Said::follow(reader);
    let mut more = 0;
    while !log.finish(&mut hub, false, Now::read().at) {
        let due = log.deadline().map(|at| at.saturating_duration_since(Now::read().at));
        log.writer().mailbox.wait(due.unwrap_or(WATCHDOG));
        log.writer().mailbox.clear();
        while let Some(event) = log.writer().receive() {
            log.on_event(event, Now::read().at);
        }
        if more == 0 {
            more = print(&mut hub, &mut log);
        }
    }
    drop(log);
    let (_, events) = parse(&heard.bytes());
    let resized = events.iter().position(|event| event.1 == 'r').unwrap();
    assert_eq!(joined(&events[..resized], 'i'), "ab");
    assert_eq!(joined(&events[resized..], 'i'), typed);
    assert!(more > 0 && joined(&events, 'o').len() == printed + more);
}

#[test]
fn contradictory_options_are_refused() {
    let rig = Rig::new();
    for (arguments, status, why) in [
        (&["tty", "--app", APP, "--record", "raw:/a"][..], 2, "expected cast:PATH"),
        (&["stream", "--app", APP, "--record", "cast:/a"], 2, "unexpected argument"),
        (
            &["run", "--foreground", "--app", APP, "--record", "cast:/a", "--", "true"],
            2,
            "--record requires --tty: only a terminal can be recorded",
        ),
    ] {
        let mut mux = rig.run(arguments);
        assert_eq!(mux.ends(), status, "{arguments:?}");
        assert!(mux.stderr.text().contains(why), "{}", mux.stderr.text());
    }
}

/// `asciinema` at a terminal, as it wants to be; what it printed. `None` where it is not installed.
fn asciinema(rig: &Rig, arguments: &[&str]) -> Option<Vec<u8>> {
    let (_master, slave) = pair();
    let mut command = Command::new("asciinema");
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", rig.file("")).env("LANG", "C.UTF-8").env("TERM", "xterm");
    command.stdin(slave).stdout(Stdio::piped()).stderr(Stdio::piped());
    iottymux::sys::calls::in_own_session(&mut command, true);
    if let Err(e) = Command::new("asciinema").arg("--version").output() {
        skip("asciinema", &format!("it does not run: {e}"));
        return None;
    }
    let mut asciinema = Proc::spawn(command);
    assert_eq!(asciinema.ends(), 0, "{}", asciinema.stderr.text());
    Some(asciinema.stdout.bytes())
}

#[test]
fn asciinema_plays_it() {
    let rig = Rig::new();
    let path = rig.file("app.cast");
    let spec = format!("cast:{}", path.display());
    let script = "printf 'h\\303\\251llo \\033[31m<red> & \"\\\\\\342\\200\\250\\033[0m\\a\\n'; \
        i=0; while [ $i -lt 3000 ]; do echo \"$i \\360\\237\\246\\200\"; i=$((i+1)); done; \
        stty rows 5 cols 20; echo resized";
    let mut command =
        rig.command(["run", "--foreground", "--app", APP, "--tty", "--record", &spec]);
    command.args(["--record-input", "--", "sh", "-c", script]);
    let mut mux = rig.start(command);
    assert_eq!(mux.ends(), 0, "{}", mux.stderr.text());
    let (_, events) = read(&path);
    let shown = joined(&events, 'o');
    assert!(
        shown.starts_with("h\u{e9}llo \x1b[31m<red> & \"\\\u{2028}\x1b[0m\x07\r\n0 "),
        "{shown}"
    );
    assert!(shown.ends_with("2999 \u{1f980}\r\nresized\r\n"), "{shown}");
    for arguments in [&["cat"][..], &["play", "--speed", "1000"]] {
        let path = path.to_str().unwrap();
        let Some(printed) = asciinema(&rig, &[arguments, &[path]].concat()) else { return };
        assert_eq!(String::from_utf8(printed).unwrap(), shown, "{arguments:?}");
    }
}
