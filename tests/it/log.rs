//! Logs: what is in the files, and when.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use iottymux::types::time::{Now, Stamp};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;

use crate::cri::{Entry, cri};
use crate::numbered::{account, write_numbered};
use crate::pattern::volume;
use crate::proc::{Proc, Said, eventually};
use crate::rig::{APP, Rig, expect};

/// A mux with this log, ready.
fn logging(rig: &Rig, spec: &str, more: &[&str]) -> Proc {
    rig.mux([&["stream", "--app", APP, "--log", spec], more].concat())
}

/// Ends a mux: its logs are whole then.
fn end(mut mux: Proc) {
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// The entries of a CRI log without their stamps, of which each must be one, none before the last.
fn entries(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut last = String::new();
    let without_stamp = |line: &str| {
        let (stamp, rest) = line.split_once(' ').unwrap();
        assert_eq!((stamp.len(), stamp.ends_with('Z')), (30, true), "{line}");
        assert!(*last <= *stamp, "{last} before {stamp}");
        stamp.clone_into(&mut last);
        rest.to_owned()
    };
    text.lines().map(without_stamp).collect()
}

#[test]
fn lines_of_both_streams_in_the_order_of_writing() {
    let rig = Rig::new();
    let log = rig.file("new/dir/app.log");
    let mux = logging(&rig, &format!("cri:{}", log.display()), &[]);
    let (mut out, mut err) = (rig.writer("stdout"), rig.writer("stderr"));
    out.write_all(b"one\n\ntwo words\r\n").unwrap();
    mux.rests();
    err.write_all(b"three\n").unwrap();
    mux.rests();
    // Short writes make one line; what has no end when all ends is a line.
    for piece in ["fo", "u", "r\nhalf"] {
        out.write_all(piece.as_bytes()).unwrap();
        mux.rests();
    }
    end(mux);
    assert_eq!(
        entries(&log),
        [
            "stdout F one",
            "stdout F ",
            "stdout F two words",
            "stderr F three",
            "stdout F four",
            "stdout F half"
        ]
    );
    // str::lines takes away a carriage return; the log has it.
    assert!(fs::read_to_string(&log).unwrap().contains("two words\r\n"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log), mode(log.parent().unwrap())), (0o640, 0o755));
}

/// An app that has ended writes no more, so what it has written last is a line.
#[test]
fn the_last_line_of_an_app_that_has_ended_is_whole() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let spec = format!("cri:{}", log.display());
    for tty in [&[][..], &["--tty"]] {
        let words = [&["run", "--name", APP, "--log", &spec], tty, &["--", "printf", "tail"]];
        assert_eq!(rig.run(&words.concat()).ends(), 0);
        eventually("the mux has ended", || !rig.exists("endpoints"));
        eventually("it is in the log", || log.exists() && !entries(&log).is_empty());
        assert_eq!(entries(&log), ["stdout F tail"]);
        fs::remove_file(&log).unwrap();
    }
}

/// Each becomes forty bytes: what is read at once is more than any buffer of the log.
#[test]
fn empty_lines_without_number_are_all_there() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &format!("cri:{}", log.display()), &["--log-buffer", "256K"]);
    let lines = 512 * 1024;
    rig.writer("stdout").write_all(&vec![b'\n'; lines]).unwrap();
    end(mux);
    let entries = entries(&log);
    assert_eq!(entries.len(), lines);
    assert!(entries.iter().all(|entry| entry == "stdout F "));
}

/// A person looks for the option that is named, and it is in a unit's environment.
#[test]
fn a_variable_is_named_where_it_was_not_an_option() {
    let rig = Rig::new();
    let (backlog, level) = ("IOTTYMUX_BACKLOG", "IOTTYMUX_LOG_LEVEL");
    for (words, variable, named) in [
        (&["stream", "--app", APP][..], backlog, "'lots' for IOTTYMUX_BACKLOG: expected"),
        (&["stream", "--app", APP, "--backlog=lots"], backlog, "for '--backlog <BYTES>': expected"),
        (&["list"], level, "'lots' for IOTTYMUX_LOG_LEVEL: expected"),
        (&["--log-level=lots", "list"], level, "for '--log-level <LEVEL>': expected"),
    ] {
        let mut command = rig.command(words);
        command.env(variable, "lots");
        let mut mux = Proc::spawn(command);
        assert_eq!(mux.ends(), 2);
        assert!(mux.stderr.text().contains(named), "{}", mux.stderr.text());
    }
}

#[test]
fn half_a_line_is_a_part_after_a_pause() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &format!("cri:{}", log.display()), &["--log-flush", "0.05"]);
    let mut out = rig.writer("stdout");
    out.write_all(b"login: ").unwrap();
    eventually("the part is there", || {
        fs::read_to_string(&log).unwrap_or_default().ends_with('\n')
    });
    out.write_all(b"me\n").unwrap();
    end(mux);
    assert_eq!(entries(&log), ["stdout P login: ", "stdout F me"]);
}

#[test]
fn a_line_that_was_split_is_not_mixed_with_the_other_stream() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let more = ["--log-line-limit", "10", "--log-flush", "3600"];
    let mux = logging(&rig, &format!("cri:{}", log.display()), &more);
    let (mut out, mut err) = (rig.writer("stdout"), rig.writer("stderr"));
    out.write_all(b"0123456789012345678901").unwrap();
    mux.rests();
    err.write_all(b"error\n").unwrap();
    mux.rests();
    out.write_all(b"23\n").unwrap();
    end(mux);
    assert_eq!(
        entries(&log),
        ["stdout P 0123456789", "stdout P 0123456789", "stdout F 0123", "stderr F error"]
    );
}

#[test]
fn the_other_formats() {
    let rig = Rig::new();
    let (json, raw) = (rig.file("app.json"), rig.file("app.raw"));
    let json_spec = format!("json-file:{}", json.display());
    let mux = logging(&rig, &json_spec, &["--log", &format!("raw:{}", raw.display())]);
    rig.writer("stdout").write_all(b"a \"b\"\xff\n\x1b[1mno end").unwrap();
    mux.rests();
    rig.writer("stderr").write_all(b"err\n").unwrap();
    end(mux);
    assert_eq!(fs::read(raw).unwrap(), b"a \"b\"\xff\nerr\n\x1b[1mno end");
    let text = fs::read_to_string(json).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<_> = lines.iter().map(|l| (&l["stream"], l["log"].as_str().unwrap())).collect();
    assert_eq!(
        said,
        [
            (&Value::from("stdout"), "a \"b\"\u{fffd}\n"),
            (&Value::from("stderr"), "err\n"),
            (&Value::from("stdout"), "\u{1b}[1mno end\n"),
        ]
    );
}

/// The lines of a terminal's log in this format, each with what the terminal put before its end, and
/// whether it came from the app.
fn shown(format: &str, log: &[u8]) -> Vec<(bool, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match format {
        "cri" => {
            let entries = cri(log);
            assert!(entries.iter().all(|entry| entry.last));
            entries.iter().map(|entry| (entry.stream == "stdout", text(entry.text))).collect()
        }
        "json-file" => {
            let lines = log.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
            let entry = |line| {
                let entry: Value = serde_json::from_slice(line).unwrap();
                let line = entry["log"].as_str().unwrap().strip_suffix('\n').unwrap().to_owned();
                (entry["stream"] == "stdout", line)
            };
            lines.map(entry).collect()
        }
        _ => {
            let lines = log.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
            lines.map(|line| (!line.starts_with(b"iottymux: "), text(line))).collect()
        }
    }
}

/// A line as a terminal has it, of about fifty bytes.
fn terminal_line(n: usize) -> String {
    format!("{n} \x1b[31m\u{e9}{}\x1b[0m\tthe end\r", "x".repeat(n % 50))
}

#[test]
fn a_terminal_is_logged_as_stdout_whatever_the_format_and_rotated() {
    for format in ["cri", "json-file", "raw"] {
        let rig = Rig::new();
        let log = rig.file("app.log");
        let spec = format!("{format}:{}", log.display());
        let rotation = ["--log-max-size", "4K", "--log-max-files", "1000"];
        let mux = rig.mux([&["tty", "--app", APP, "--log", &spec], &rotation[..]].concat());
        let lines: Vec<_> = (0..2000).map(terminal_line).collect();
        rig.slave().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        end(mux);
        let numbered = (1..1000).map(|n| rig.file(&format!("app.log.{n}")));
        let mut files: Vec<_> = numbered.take_while(|file| file.exists()).collect();
        files.reverse();
        files.push(log);
        let files: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(files.len() > 20 && files.iter().all(|file| file.len() <= 8192), "{format}");
        let said: Vec<_> = files.iter().flat_map(|file| shown(format, file)).collect();
        assert!(said.iter().all(|(is_stdout, _)| *is_stdout), "{format}");
        assert!(said.iter().map(|(_, line)| line).eq(&lines), "{format}: {said:?}");
    }
}

#[test]
fn a_terminal_goes_on_without_its_log_and_lost_lines_are_counted() {
    for format in ["cri", "json-file", "raw"] {
        let rig = Rig::new();
        let path = rig.file("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let spec = format!("{format}:{}", path.display());
        let mux = rig.mux(["tty", "--app", APP, "--log", &spec, "--log-buffer", "256K"]);
        let (mut app, client) = (rig.slave(), Said::follow(rig.client("tty")));
        let lines: Vec<_> = (0..20_000).map(terminal_line).collect();
        let text = lines.join("\n") + "\n";
        app.write_all(text.as_bytes()).unwrap();
        client.wait_len(text.len());
        let failing = || rig.status()["logs"][0]["failing"].clone();
        eventually("it fails", || failing().is_string());
        let reader = Said::follow(File::open(&path).unwrap());
        eventually("it works", || failing().is_null());
        end(mux);
        let (mut next, mut markers) = (0, 0);
        for (is_stdout, line) in shown(format, &reader.bytes()) {
            if is_stdout {
                assert_eq!(line, lines[next], "{format}");
                next += 1;
                continue;
            }
            let (lost, rest) = line["iottymux: ".len()..].split_once(" lines (").unwrap();
            let lost: usize = lost.parse().unwrap();
            let bytes: usize = lines[next..next + lost].iter().map(String::len).sum();
            assert_eq!(rest, format!("{bytes} bytes) were lost here"), "{format}");
            next += lost;
            markers += 1;
        }
        assert_eq!((next, markers), (lines.len(), 1), "{format}");
    }
}

#[test]
fn a_log_that_is_there_is_appended_to() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    fs::write(&log, "before\n").unwrap();
    let mux = logging(&rig, &format!("raw:{}", log.display()), &[]);
    rig.writer("stdout").write_all(b"after\n").unwrap();
    end(mux);
    assert_eq!(fs::read_to_string(&log).unwrap(), "before\nafter\n");
}

/// A line has the time at which it was read, however long its target takes nothing.
#[test]
fn the_stamp_is_the_time_of_reading() {
    let rig = Rig::new();
    let path = rig.file("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mux = logging(&rig, &format!("cri:{}", path.display()), &[]);
    let client = Said::follow(rig.client("stdout"));
    let mut app = rig.writer("stdout");
    let before = Now::read().stamp;
    app.write_all(b"early\n").unwrap();
    client.wait_for("early\n");
    let after = Now::read().stamp;
    let log = Said::follow(File::open(&path).unwrap());
    end(mux);
    let log = log.bytes();
    let entries = cri(&log);
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    let stamp = Stamp::parse(entry.stamp).unwrap();
    assert!(entry.text == b"early" && before <= stamp && stamp <= after, "{before:?} {entry:?}");
}

#[test]
fn a_client_that_never_reads_does_not_stop_the_log() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &format!("cri:{}", log.display()), &[]);
    let _lazy = rig.client("stdout");
    let lines = 40_000;
    write_numbered(rig.writer("stdout"), 0, lines);
    let last = format!(" {:099}\n", lines - 1);
    // While it is still there.
    eventually("the last line is logged", || {
        fs::read(&log).is_ok_and(|text| text.ends_with(last.as_bytes()))
    });
    end(mux);
    let log = fs::read(&log).unwrap();
    assert_eq!(account(cri(&log).iter().map(|entry| entry.text), 0, lines), 0);
}

#[test]
fn a_renamed_log_is_reopened_on_request() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &format!("raw:{}", log.display()), &[]);
    let mut out = rig.writer("stdout");
    out.write_all(b"one\n").unwrap();
    eventually("it is written", || fs::read(&log).is_ok_and(|text| text == b"one\n"));
    fs::rename(&log, rig.file("app.log.1")).unwrap();
    out.write_all(b"two\n").unwrap();
    eventually("it is written", || fs::read(rig.file("app.log.1")).unwrap() == b"one\ntwo\n");
    let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 0, "{}", control.stderr.text());
    // When it has been answered the new file is there.
    assert_eq!(fs::read(&log).unwrap(), b"");
    out.write_all(b"three\n").unwrap();
    eventually("it is written", || fs::read(&log).unwrap() == b"three\n");
    // By a signal as well; and one that cannot be opened is told, while the old one is written.
    fs::rename(&log, rig.file("app.log.2")).unwrap();
    mux.signal(Signal::SIGHUP);
    eventually("it is there", || log.exists());
    fs::rename(&log, rig.file("app.log.3")).unwrap();
    fs::create_dir(&log).unwrap();
    let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 1);
    assert!(control.stderr.text().contains("Is a directory"), "{}", control.stderr.text());
    out.write_all(b"four\n").unwrap();
    end(mux);
    assert_eq!(fs::read(rig.file("app.log.3")).unwrap(), b"four\n");
}

#[test]
fn a_log_without_a_file_is_not_reopened() {
    for options in [&[][..], &["--log", "journald"]] {
        let rig = Rig::new();
        let _mux = rig.mux([&["stream", "--app", APP], options].concat());
        let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
        assert_eq!(control.ends(), 1);
        assert_eq!(control.stderr.text(), "iottymux: app demo: it has no log in a file\n");
    }
}

#[test]
fn own_rotation_keeps_lines_whole_and_so_many_files() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let spec = format!("raw:{}", log.display());
    let mux = logging(&rig, &spec, &["--log-max-size", "4K", "--log-max-files", "3"]);
    let mut out = rig.writer("stdout");
    let line = |n: u32| format!("{n:099}\n");
    for n in 0..500 {
        out.write_all(line(n).as_bytes()).unwrap();
        // The mux rests before its writer does, and then gives it all that has come.
        eventually("the line is there", || {
            fs::read_to_string(&log).is_ok_and(|text| text.ends_with(&line(n)))
        });
    }
    end(mux);
    let read = |name: &str| fs::read_to_string(rig.file(name)).unwrap();
    let all = [read("app.log.3"), read("app.log.2"), read("app.log.1"), read("app.log")];
    assert!(all.iter().all(|text| text.len() <= 4096), "{:?}", all.each_ref().map(String::len));
    let all = all.concat();
    let first: u32 = all[..99].parse().unwrap();
    assert_eq!(all, (first..500).map(line).collect::<String>());
    assert!(!rig.file("app.log.4").exists() && all.len() > 3 * 3900);
}

/// However the app ends, and however slowly its log is taken: when the mux has ended all is there.
#[test]
fn everything_is_in_the_log_when_the_mux_has_ended() {
    for (tty, end) in [(&[][..], "exit 0"), (&["--tty"], "exit 0"), (&[], "kill -KILL $$")] {
        let rig = Rig::new();
        let path = rig.file("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let spec = format!("cri:{}", path.display());
        let lines = volume(30_000, 1_000_000) as u64;
        let script = format!("seq -f %099.0f 0 {}; {end}", lines - 1);
        let options = [&["run", "--foreground", "--app", APP, "--log", &spec][..], tty].concat();
        let mut mux = rig.run(&[&options[..], &["--", "sh", "-c", &script]].concat());
        let (mut fifo, mut log) = (File::open(path).unwrap(), Vec::new());
        let mut buffer = [0; 4096];
        loop {
            match fifo.read(&mut buffer).unwrap() {
                0 => break,
                len => log.extend_from_slice(&buffer[..len]),
            }
            // The app is faster than this.
            thread::sleep(Duration::from_micros(20));
        }
        assert_eq!(mux.ends(), if end == "exit 0" { 0 } else { 128 + 9 });
        let entries = cri(&log);
        let text = |entry: &Entry<'_>| entry.text.trim_ascii_end().to_vec();
        let texts: Vec<_> = entries.iter().map(text).collect();
        assert_eq!(account(texts.iter().map(Vec::as_slice), 0, lines), 0);
    }
}

#[test]
fn contradictory_options_are_refused() {
    let rig = Rig::new();
    for (arguments, why) in [
        (&["--log", "xml:/a"][..], "expected journal, cri:PATH"),
        (&["--log", "cri:"], "cri: expected the path of a file"),
        (&["--log", "raw:/a", "--log-line-limit", "2M"], "a number of bytes from 0 to 1M"),
        (&["--log", "raw:/a", "--log-max-size", "1"], "a number of bytes from 4K to 1024G"),
        (&["--log", "raw:/a", "--log-policy", "wait"], "hold or drop"),
    ] {
        let mut mux = rig.run(&[&["stream", "--app", APP], arguments].concat());
        assert_eq!(mux.ends(), 2, "{arguments:?}");
        assert!(mux.stderr.text().contains(why), "{}", mux.stderr.text());
    }
}

#[test]
fn of_two_logs_with_the_same_target_one_is_left_out() {
    let rig = Rig::new();
    let log = rig.file("log");
    let spec = format!("raw:{}", log.display());
    let mux = logging(&rig, &spec, &["--log", &spec]);
    mux.stderr.wait_for("error: one of two logs with the same target is left out: ");
    rig.writer("stdout").write_all(b"once\n").unwrap();
    end(mux);
    assert_eq!(fs::read_to_string(log).unwrap(), "once\n");
}

/// Its app would hang behind a full pipe if the mux ended because of its log.
#[test]
fn the_app_is_served_without_the_log_that_rkts_variables_ask_for_in_vain() {
    for (mode, path, why) in [
        ("k8s", "x/0.log", "expected k8s-plain"),
        ("k8s-plain", "../x.log", "leads out of its directory"),
        ("k8s-plain", "/etc/x.log", "leads out of its directory"),
        ("k8s-plain", "", "does not name a file"),
    ] {
        let rig = Rig::new();
        let mut command = rig.command(["stream", "--app", APP]);
        command.env("STAGE1_LOGMODE", mode).env("KUBERNETES_LOG_PATH", path);
        // What rkt sets for a pod without --debug, whose console is also that of this mux.
        command.env("STAGE1_DEBUG", "false");
        command.env("NOTIFY_SOCKET", rig.file("of-a-manager-that-is-gone"));
        let mux = Proc::spawn(command);
        eventually("it is there", || rig.exists("endpoints"));
        let client = rig.client("stdout");
        rig.writer("stdout").write_all(b"served").unwrap();
        expect(client, "served");
        mux.signal(Signal::SIGTERM);
        let mut mux = mux;
        mux.ends();
        let said = mux.stderr.text();
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert!(said.starts_with("iottymux: warn: the app has no Kubernetes log: "), "{said}");
    }
}

/// The mux says where its log is, and `logs --follow` ends when all of it is printed.
#[test]
fn the_log_of_an_app_is_found_and_followed_to_its_end() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(
        &rig,
        &format!("cri:{}", log.display()),
        &["--log-max-size", "4K", "--log-max-files", "100"],
    );
    let mut out = rig.writer("stdout");
    let mut follow = rig.run(&["logs", "--app", APP, "--follow"]);
    let lines: Vec<_> = (0..2000).map(|n| format!("{n} {}\n", "x".repeat(n % 100))).collect();
    let lines = lines.concat();
    for piece in lines.as_bytes().chunks(700) {
        out.write_all(piece).unwrap();
    }
    rig.writer("stderr").write_all(b"an error\n").unwrap();
    end(mux);
    assert_eq!(follow.stderr.text(), "an error\n");
    assert!(follow.stdout.text() == lines);
    follow.ends();
    let mut again = rig.run(&["logs", "--app", APP, "--tail", "1", "--stream", "stderr"]);
    assert_eq!((again.stderr.text().as_str(), again.ends()), ("an error\n", 0));
}

/// What an app has left of a line is not the beginning of the next one's first line.
/// A hook of the app's unit reports, with these variables of systemd.
fn report(rig: &Rig, event: &str, variables: &[(&str, &str)]) {
    let mut hook = rig.command(["control", "--app", APP, event]);
    hook.env_remove("INVOCATION_ID").env_remove("SYSTEMD_EXEC_PID");
    hook.envs(variables.iter().copied());
    let mut hook = Proc::spawn(hook);
    assert_eq!(hook.ends(), 0, "{}", hook.stderr.text());
}

const ENDED: [(&str, &str); 3] =
    [("SERVICE_RESULT", "success"), ("EXIT_CODE", "exited"), ("EXIT_STATUS", "0")];

/// The app ended and was started again while a client held its output back: what it had written before
/// is still in the FIFO.
#[test]
fn an_end_ends_no_line_before_the_last_one() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let more = ["--backlog", "4K", "--max-client-delay", "60"];
    let mut mux = logging(&rig, &format!("cri:{}", log.display()), &more);
    let mut client = rig.client("stdout");
    let mut out = rig.writer("stdout");
    // More than the client's socket takes, and less than that and the FIFO.
    let lines: Vec<String> = (0..6000).map(|n| format!("{n:099}")).collect();
    out.write_all((lines.join("\n") + "\nhal").as_bytes()).unwrap();
    eventually("the client is a backlog behind", || {
        rig.status()["clients"][0]["streams"][0]["lag"].as_u64() == Some(4096)
    });
    report(&rig, "ended", &ENDED);
    report(&rig, "started", &[("MAINPID", "1")]);
    out.write_all(b"next\n").unwrap();
    drop(out);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all.len())
    });
    eventually("all is in the log", || fs::read_to_string(&log).unwrap().ends_with(" next\n"));
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert_eq!(reader.join().unwrap().unwrap(), 6000 * 100 + "halnext\n".len());
    let text = fs::read_to_string(&log).unwrap();
    let logged: Vec<&str> = text.lines().map(|line| line.split_once(" F ").unwrap().1).collect();
    assert_eq!(logged[..6000], lines);
    assert_eq!(logged[6000..], ["hal", "next"]);
}

/// A return that waits for the app to read the line before it.
#[test]
fn a_return_that_waits_is_forgotten_with_its_app() {
    let rig = Rig::new();
    let mut mux = rig.tty();
    let mut app = rig.slave();
    let mut send = rig.run(&["send", APP, "x"]);
    let mut byte = [0];
    app.read_exact(&mut byte).unwrap();
    report(&rig, "ended", &ENDED);
    assert_eq!(send.ends(), 1);
    // Longer than the return would have waited.
    let mut nobody = rig.run(&["attach", "--app", "nobody", "--wait=0.5"]);
    assert_eq!(nobody.ends(), 1);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0, "{}", mux.stderr.text());
}

#[test]
fn half_a_line_ends_with_its_app() {
    for word in ["cri", "json-file"] {
        let rig = Rig::new();
        let log = rig.file("app.log");
        let mut mux = logging(&rig, &format!("{word}:{}", log.display()), &[]);
        let mut out = rig.writer("stdout");
        out.write_all(b"one\nhal").unwrap();
        report(&rig, "ended", &ENDED);
        out.write_all(b"two\nthe end").unwrap();
        mux.signal(Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
        let text = fs::read_to_string(&log).unwrap();
        let mut logs = rig.run(&["logs", "--app", APP, "--stream", "stdout"]);
        assert_eq!((logs.ends(), logs.stdout.text()), (0, "one\nhal\ntwo\nthe end\n".into()));
        // Nothing is ended twice.
        end(logging(&rig, &format!("{word}:{}", log.display()), &[]));
        assert_eq!(fs::read_to_string(&log).unwrap(), text);
    }
}
