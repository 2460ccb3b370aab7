//! Reading a log: files made by the test stand for those of a mux, the kubelet, and docker.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::pattern::volume;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::random::{Random, seed};
use crate::rig::{APP, Rig};
use crate::users::reachable_program;

/// An entry as the kubelet has it, read at this second.
fn cri(second: usize, stream: &str, tag: &str, text: &str) -> String {
    let (hours, minutes, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("2020-01-01T{hours:02}:{minutes:02}:{second:02}.000000001Z {stream} {tag} {text}\n")
}

/// The line with this number, of stdout.
fn line(number: usize) -> String {
    cri(number, "stdout", "F", &format!("line {number}"))
}

fn lines(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().map(line).collect()
}

/// What is printed of these lines.
fn printed(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().fold(String::new(), |mut out, number| {
        let _ = writeln!(out, "line {number}");
        out
    })
}

fn append(path: &Path, text: impl AsRef<[u8]>) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_ref()).unwrap();
}

/// The log of a test, and its reader.
struct Log {
    rig: Rig,
    path: PathBuf,
}

impl Log {
    fn new() -> Self {
        let rig = Rig::new();
        fs::create_dir(rig.file("log")).unwrap();
        let path = rig.file("log/x.log");
        Self { rig, path }
    }

    /// The file that was rotated away under this name.
    fn rotated(&self, suffix: impl std::fmt::Display) -> PathBuf {
        self.rig.file(&format!("log/x.log.{suffix}"))
    }

    /// Renames as a mux does; the new file is made when something is written.
    fn rotate(&self, keep: usize) {
        let name = |number| if number == 0 { self.path.clone() } else { self.rotated(number) };
        for number in (0..keep).rev().filter(|number| name(*number).exists()) {
            fs::rename(name(number), name(number + 1)).unwrap();
        }
    }

    /// `logs` with the file by its name.
    fn read(&self, arguments: &[&str]) -> Proc {
        let file = ["logs", "--file", self.path.to_str().unwrap()];
        self.rig.run(&[&file, arguments].concat())
    }

    /// What it prints on each output; it must succeed.
    fn says(&self, arguments: &[&str]) -> (String, String) {
        let mut logs = self.read(arguments);
        assert_eq!(logs.ends(), 0, "{arguments:?}: {}", logs.stderr.text());
        (logs.stdout.text(), logs.stderr.text())
    }

    /// What it prints on standard output and nowhere else.
    fn prints(&self, arguments: &[&str]) -> String {
        let (stdout, stderr) = self.says(arguments);
        assert_eq!(stderr, "", "{arguments:?}");
        stdout
    }

    /// The document of a mux that writes this log.
    fn publish(&self, format: &str) {
        self.rig.make_app_dir();
        let logs = json!({"version": 1, "logs": [{"format": format, "path": self.path}]});
        fs::write(self.rig.path("logs"), logs.to_string()).unwrap();
    }

    /// What a mux leaves, long ago.
    fn leave(&self, status: &serde_json::Value) {
        let last = json!({
            "version": 1, "app": APP, "ended_ms": 0, "status": status, "streams": [],
        });
        fs::write(self.rig.path("last.new"), last.to_string()).unwrap();
        fs::rename(self.rig.path("last.new"), self.rig.path("last.json")).unwrap();
    }
}

#[test]
fn the_streams_of_an_app_come_out_as_it_wrote_them() {
    let log = Log::new();
    let entries = [
        cri(1, "stdout", "P", "a wo"),
        cri(2, "stderr", "F", "oh\r"),
        cri(3, "stdout", "P", ""),
        cri(4, "stdout", "F", "rd"),
        cri(5, "stdout", "F", ""),
        cri(6, "stderr", "P:x", "\x1b[31m\u{1}é"),
        cri(7, "stdout", "P", "$ "),
    ];
    append(&log.path, entries.concat());
    append(&log.path, "2020-01-01T00:00:08Z stderr F raw \u{0}");
    log.publish("cri");
    let mut logs = log.rig.run(&["logs", "--app", APP]);
    assert_eq!(logs.ends(), 0);
    assert_eq!(logs.stdout.text(), "a word\n\n$ ");
    assert_eq!(logs.stderr.text(), "oh\r\n\x1b[31m\u{1}éraw \u{0}");
    assert_eq!(log.says(&["--stream", "stdout"]), ("a word\n\n$ ".into(), String::new()));
    assert_eq!(log.says(&["--stream", "stderr"]).0, "");
    // The time is that of a line's beginning; the other stream's lines between change nothing.
    let stamp = |second| format!("2020-01-01T00:00:0{second}.000000001Z ");
    assert_eq!(
        log.prints(&["--stream", "stdout", "--timestamps"]),
        format!("{}a word\n{}\n{}$ ", stamp(1), stamp(5), stamp(7))
    );
    // A log that nobody can read by lines, and none at all.
    log.publish("raw");
    for app in [APP, "none"] {
        let mut logs = log.rig.run(&["logs", "--app", app]);
        assert_eq!(logs.ends(), 1);
        let why = match app {
            APP => "iottymux: app demo is not running".to_owned(),
            _ => format!("iottymux: there is no app {app} in "),
        };
        let said = logs.stderr.text();
        assert!(said.starts_with(&why), "{said}");
    }
}

#[test]
fn bytes_that_are_no_text_are_bytes_of_the_app_all_the_same() {
    let log = Log::new();
    let all: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    append(&log.path, [b"2020-01-01T00:00:00Z stdout F ", &all[..], b"\n"].concat());
    let mut logs = log.read(&[]);
    assert_eq!(logs.ends(), 0);
    assert_eq!(logs.stdout.bytes(), [&all[..], b"\n"].concat());
}

#[test]
fn docker_s_own_format_is_read_as_well() {
    let log = Log::new();
    let time = "2020-01-01T00:00:01.5Z";
    for (text, stream) in [
        (r"one \u003ctwo\u003e \ud83d\ude00\n", "stdout"),
        (r"half a ", "stdout"),
        (r"oh\n", "stderr"),
        (r"line\n", "stdout"),
    ] {
        let entry = format!(r#"{{"log":"{text}","stream":"{stream}","time":"{time}"}}"#);
        append(&log.path, entry + "\n");
    }
    let want = "one <two> \u{1f600}\nhalf a line\n";
    assert_eq!(log.says(&[]), (want.into(), "oh\n".into()));
    assert_eq!(log.says(&["--tail", "2"]), ("half a line\n".into(), "oh\n".into()));
    log.publish("json-file");
    let mut logs = log.rig.run(&["logs", "--app", APP, "--follow", "--stream", "stdout"]);
    logs.stdout.wait_for("half a line\n");
    logs.signal(Signal::SIGTERM);
    assert_eq!(logs.ends(), -(Signal::SIGTERM as i32));
}

#[test]
fn broken_entries_are_reported_and_skipped() {
    let log = Log::new();
    append(&log.path, line(1) + "no \x1b[2J entry\n" + &line(2));
    append(&log.path, [b"\xff".as_slice(), &[b'x'; 100], b"\n{\n"].concat());
    append(&log.path, line(3) + "\n2020-01-01T00:00:03Z stdo");
    let path = log.path.display();
    let all = fs::read(&log.path).unwrap();
    let told = |begins: &[u8], why: &str, text: &str| {
        let at = all.windows(begins.len()).position(|there| there == begins).unwrap() + 1;
        format!("iottymux: warn: {path}: byte {at} is not an entry: {why}; skipped: \"{text}\"\n")
    };
    let long = "\u{fffd}".to_owned() + &"x".repeat(63) + "…";
    let want = told(b"\nno", "it has no time", "no \\u{1b}[2J entry")
        + &told(b"\n\xff", "it has no time", &long)
        + &told(b"\n{", "it is not docker's JSON", "{");
    let empty = told(b"\n\n", "it has no time", "");
    assert_eq!(log.says(&[]), (printed(1..=3), want + &empty));
    assert_eq!(log.says(&["--tail", "1"]), (printed(3..=3), empty));
    // What is torn off in a file that is complete, and a file that is no log.
    log.rotate(1);
    append(&log.path, "no\n".repeat(30) + &line(4));
    let (stdout, stderr) = log.says(&[]);
    assert_eq!(stdout, printed(1..=4));
    assert!(stderr.contains(" is not an entry: its stream is neither"), "{stderr}");
    assert_eq!(stderr.lines().count(), 9);
    assert!(stderr.ends_with("more broken entries are skipped without a message\n"));
}

#[test]
fn an_entry_without_an_end_is_not_kept_in_memory() {
    for begin in ["2020-01-01T00:00:01Z stdout F ", "{\"log\":\""] {
        let log = Log::new();
        append(&log.path, line(1));
        let mut file = File::options().append(true).open(&log.path).unwrap();
        file.write_all(begin.as_bytes()).unwrap();
        for _ in 0..volume(40, 1100) {
            file.write_all(&vec![b'x'; 1 << 20]).unwrap();
        }
        // Nothing comes behind it yet.
        let (stdout, stderr) = log.says(&[]);
        assert_eq!((stdout, stderr.matches("it is too long").count()), (printed([1]), 1));
        append(&log.path, "\n".to_owned() + &line(2));
        for arguments in [&[][..], &["--tail", "2"]] {
            let mut logs = log.read(&[arguments, &["--follow"]].concat());
            logs.stdout.wait_for(&printed([2]));
            assert!(logs.peak() < 80 * 1024, "{} KiB", logs.peak());
            logs.signal(Signal::SIGINT);
            logs.ends();
            assert_eq!(logs.stdout.text(), printed(1..=2));
            assert_eq!(logs.stderr.text().matches("it is too long").count(), 1);
        }
    }
}

/// A line that does not end is printed as it comes, and not collected.
#[test]
fn a_line_without_an_end_is_not_kept_in_memory() {
    const PART: usize = 16 * 1024;
    let parts = volume(40, 1100) * (1 << 20) / PART;
    let part = |number: usize| format!("{number:0PART$}");
    for docker in [false, true] {
        let log = Log::new();
        let mut file = std::io::BufWriter::new(File::create(&log.path).unwrap());
        for number in 0..=parts {
            let (text, last) = (part(number), number == parts);
            let entry = if docker {
                let end = if last { "\\n" } else { "" };
                let rest = r#""stream":"stdout","time":"2020-01-01T00:00:01Z"}"#;
                format!("{{\"log\":\"{text}{end}\",{rest}\n")
            } else {
                cri(1, "stdout", if last { "F" } else { "P" }, &text)
            };
            file.write_all(entry.as_bytes()).unwrap();
        }
        drop(file);
        for arguments in [&["--follow"][..], &["--follow", "--tail", "1"]] {
            let mut command = log.rig.command(["logs", "--file", log.path.to_str().unwrap()]);
            let (mut ours, theirs) = std::io::pipe().unwrap();
            command.args(arguments).stdout(theirs);
            let mut logs = Proc::spawn(command);
            let mut got = vec![0; PART];
            let mut number = None;
            while number != Some(parts) {
                ours.read_exact(&mut got).unwrap();
                let this = str::from_utf8(&got).unwrap().parse().unwrap();
                assert!(got == part(this).as_bytes());
                assert_eq!(number.map_or(this, |number: usize| number + 1), this);
                assert!(number.is_some() || this == 0);
                number = Some(this);
            }
            let mut end = [0];
            ours.read_exact(&mut end).unwrap();
            assert_eq!(end, *b"\n");
            assert!(logs.peak() < 32 * 1024, "{} KiB", logs.peak());
            logs.signal(Signal::SIGINT);
            logs.ends();
            assert_eq!((ours.read(&mut end).unwrap(), logs.stderr.text()), (0, String::new()));
        }
    }
}

#[test]
fn rotated_files_are_read_in_their_order() {
    let log = Log::new();
    for (suffix, number) in [("2", 2), ("10", 1), ("1", 3), ("1.bak", 9), ("", 4)] {
        let path = if suffix.is_empty() { log.path.clone() } else { log.rotated(suffix) };
        append(&path, line(number));
    }
    assert_eq!(log.prints(&[]), printed(1..=4));
    let log = Log::new();
    for (suffix, number) in [("20200101-000000", 1), ("20200102-000000", 2), ("20200102-000001", 3)]
    {
        append(&log.rotated(suffix), line(number));
    }
    append(&log.path, line(4));
    append(&log.rotated("20191231-000000.tmp"), line(9));
    assert_eq!(log.prints(&[]), printed(1..=4));
    append(&log.rotated("20191231-000000.gz"), "\x1f");
    append(&log.rotated("20191230-000000.gz"), "\x1f");
    let told = format!(
        "iottymux: warn: skipping {} and older files: they are compressed\n",
        log.rotated("20191231-000000.gz").display()
    );
    assert_eq!(log.says(&[]), (printed(1..=4), told));
    assert_eq!(log.prints(&["--tail", "4"]), printed(1..=4));
    // By a link, as the kubelet has it, and by the name of a rotated one.
    let link = log.rig.file("link");
    std::os::unix::fs::symlink(&log.path, &link).unwrap();
    let mut logs = log.rig.run(&["logs", "--tail", "2", "--file", link.to_str().unwrap()]);
    assert_eq!((logs.ends(), logs.stdout.text()), (0, printed(3..=4)));
    let one = log.rotated("20200102-000000");
    let mut logs = log.rig.run(&["logs", "--file", one.to_str().unwrap()]);
    assert_eq!((logs.ends(), logs.stdout.text()), (0, printed([2])));
    // As logrotate names them with dateext.
    let beside = |suffix: &str| {
        let mut name = log.path.clone().into_os_string();
        name.push(suffix);
        name
    };
    for (from, to) in [("20200101-000000", "-20200101"), ("20200102-000000", "-20200102")] {
        fs::rename(log.rotated(from), beside(to)).unwrap();
    }
    fs::rename(log.rotated("20191231-000000.gz"), beside("-20191231.zst")).unwrap();
    let (said, told) = log.says(&[]);
    assert_eq!(said, printed(1..=4));
    assert!(told.contains("-20191231.zst and older files: they are compressed"), "{told}");
}

#[test]
fn more_rotated_files_than_may_be_open_are_all_read() {
    let log = Log::new();
    for number in 1..1200 {
        append(
            &log.rotated(number),
            if number % 3 == 0 { String::new() } else { line(number % 3000) },
        );
    }
    let want = printed((1..1200).rev().filter(|number| number % 3 != 0));
    assert_eq!(log.prints(&[]), want);
    assert_eq!(log.prints(&["--tail", "2"]), printed([2, 1]));
    // Empty ones only.
    let log = Log::new();
    for number in 1..1200 {
        append(&log.rotated(number), if number == 1 { line(1) } else { String::new() });
    }
    assert_eq!(log.prints(&[]), printed([1]));
}

#[test]
fn a_long_line_of_the_tail_is_whole() {
    let log = Log::new();
    let part = "y".repeat(16384);
    let parts = 200;
    append(&log.path, lines(1..=3));
    for _ in 0..parts {
        append(&log.path, cri(4, "stdout", "P", &part));
    }
    append(&log.path, cri(5, "stdout", "F", "end"));
    assert_eq!(log.prints(&["--tail", "1"]).len(), parts * part.len() + "end\n".len());
}

#[test]
fn the_tail_is_counted_in_lines_of_what_is_wanted() {
    let log = Log::new();
    append(&log.rotated(2), lines(1..=3));
    append(&log.rotated(1), lines(4..=5));
    append(&log.path, lines(6..=6));
    for (count, from) in [("1", 6), ("2", 5), ("3", 4), ("4", 3), ("6", 1), ("7", 1), ("99999", 1)]
    {
        assert_eq!(log.prints(&["--tail", count]), printed(from..=6), "{count}");
    }
    assert_eq!(log.prints(&["--tail", "0"]), "");
    let log = Log::new();
    append(&log.path, cri(1, "stderr", "P", "e1"));
    append(&log.path, cri(2, "stdout", "F", "o1"));
    append(&log.path, cri(3, "stdout", "P", "o2"));
    append(&log.path, cri(4, "stderr", "P", "e1"));
    append(&log.path, cri(5, "stderr", "F", "e1"));
    append(&log.path, cri(6, "stdout", "F", "o2"));
    append(&log.path, cri(7, "stderr", "F", "e2"));
    append(&log.path, cri(8, "stdout", "P", "o3"));
    for (count, stdout, stderr) in [
        ("0", "", ""),
        ("1", "o3", ""),
        ("2", "o3", "e2\n"),
        ("3", "o2o2\no3", "e2\n"),
        ("4", "o2o2\no3", "e1e1e1\ne2\n"),
        ("5", "o1\no2o2\no3", "e1e1e1\ne2\n"),
        ("6", "o1\no2o2\no3", "e1e1e1\ne2\n"),
    ] {
        assert_eq!(log.says(&["--tail", count]), (stdout.into(), stderr.into()), "{count}");
    }
    assert_eq!(log.prints(&["--tail", "2", "--stream", "stdout"]), "o2o2\no3");
    assert_eq!(log.says(&["--tail", "2", "--stream", "stderr"]).1, "e1e1e1\ne2\n");
}

#[test]
fn the_tail_of_a_huge_file_is_found_without_reading_it() {
    let log = Log::new();
    // Nothing could read that to its end within the time of a test.
    File::create(&log.path).unwrap().set_len(1 << 42).unwrap();
    append(&log.path, "\n".to_owned() + &lines(1..=5000));
    assert_eq!(log.prints(&["--tail", "4999"]), printed(2..=5000));
    let mut logs = log.read(&["--tail", "2", "--follow"]);
    logs.stdout.wait_for(&printed(4999..=5000));
    logs.signal(Signal::SIGTERM);
    logs.ends();
}

#[test]
fn any_log_has_the_tail_that_its_lines_say() {
    let mut random = Random::new(seed());
    for _ in 0..volume(20, 2000) {
        let log = Log::new();
        // Of each stream the lines with the place of the last entry of each.
        let mut streams = [Vec::<(usize, String)>::new(), Vec::new()];
        let mut open = [false, false];
        for second in 0..random.below(60) {
            let (stream, part) = (random.below(2), random.below(3) == 0);
            let text = "x".repeat(random.below(5)) + &second.to_string();
            let name = ["stdout", "stderr"][stream];
            append(&log.path, cri(second, name, if part { "P" } else { "F" }, &text));
            if !open[stream] {
                streams[stream].push((second, String::new()));
            }
            let line = streams[stream].last_mut().unwrap();
            *line = (second, std::mem::take(&mut line.1) + &text + if part { "" } else { "\n" });
            open[stream] = part;
            if random.below(8) == 0 {
                log.rotate(20);
            }
        }
        append(&log.path, "");
        // A line without an end comes last: its end is still to come.
        for (stream, _) in open.iter().enumerate().filter(|(_, is_open)| **is_open) {
            streams[stream].last_mut().unwrap().0 = 60 + stream;
        }
        let tail = random.below(12);
        let mut ends: Vec<usize> = streams.iter().flatten().map(|(end, _)| *end).collect();
        ends.sort_unstable();
        let from = ends.len().checked_sub(tail).map_or(Some(&0), |from| ends.get(from)).copied();
        let want = |stream: usize| -> String {
            let lines = streams[stream].iter().filter(|(end, _)| Some(*end) >= from);
            lines.filter(|_| from.is_some()).map(|(_, text)| &**text).collect()
        };
        let got = log.says(&["--tail", &tail.to_string()]);
        assert_eq!(got, (want(0), want(1)), "{tail}");
    }
}

#[test]
fn since_takes_a_time_or_a_while() {
    let log = Log::new();
    append(&log.rotated(1), lines(1..=3));
    append(&log.path, lines(4..=9));
    append(&log.path, cri(10, "stdout", "P", "before "));
    append(&log.path, cri(11, "stdout", "F", "after"));
    for (since, want) in [
        ("2020-01-01T00:00:03.000000001Z", printed(3..=9) + "before after\n"),
        ("2020-01-01T01:00:03.000000002+01:00", printed(4..=9) + "before after\n"),
        ("2020-01-01T00:00:10.5Z", String::new()),
        ("10m", String::new()),
        ("100years", printed(1..=9) + "before after\n"),
    ] {
        assert_eq!(log.prints(&["--since", since]), want, "{since}");
    }
    let both = ["--since", "2020-01-01T00:00:09Z", "--tail", "5"];
    assert_eq!(log.prints(&both), printed([9]) + "before after\n");
    let now = humantime::format_rfc3339_nanos(std::time::SystemTime::now());
    append(&log.path, format!("{now} stdout F now\n"));
    assert_eq!(log.prints(&["--since", "1h30m"]), "now\n");
    // A file that was not written since then is not even opened.
    append(&log.rotated(2), "no log\n");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_577_836_800);
    File::options().write(true).open(log.rotated(2)).unwrap().set_modified(old).unwrap();
    assert_eq!(log.prints(&["--since", "1h30m"]), "now\n");
    assert!(log.says(&[]).1.contains("no log"));
}

#[test]
fn lines_are_searched_and_counted_as_wholes() {
    let log = Log::new();
    append(&log.rotated(1), lines(1..=3));
    append(&log.path, lines(4..=6));
    append(&log.path, cri(7, "stdout", "P", "an er"));
    append(&log.path, cri(8, "stderr", "F", "error of \u{9b}stderr"));
    append(&log.path, cri(9, "stdout", "F", "ror of two parts"));
    append(&log.path, lines(10..=12));
    append(&log.path, cri(13, "stdout", "P", "an Error without end"));
    let says = |arguments: &[&str]| log.says(arguments);
    assert_eq!(
        says(&["--grep", "ERROR|er{2}or"]),
        ("an error of two parts\n".into(), "error of \u{9b}stderr\n".into())
    );
    let no_capitals = "an error of two parts\nan Error without end";
    assert_eq!(log.prints(&["--grep", "an error"]), no_capitals);
    assert_eq!(log.prints(&["-g", "^line [1-5]$", "-n", "2"]), printed([4, 5]));
    for nothing in [&["-g", "^no line"][..], &["-g", "^line", "-n", "0"]] {
        let mut logs = log.read(nothing);
        let code = logs.ends();
        assert_eq!(
            (code, logs.stdout.text(), logs.stderr.text()),
            (1, String::new(), String::new())
        );
    }
    assert_eq!(
        log.prints(&["--until", "2020-01-01T00:00:07.5Z", "--tail", "2"]),
        printed([6]) + "an error of two parts\n"
    );
    let json = log.prints(&["--json", "--tail", "6"]);
    let json: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json.len(), 6);
    assert_eq!(
        json[0],
        json!({"time": "2020-01-01T00:00:08.000000001Z", "stream": "stderr",
               "text": "error of \u{9b}stderr"})
    );
    // What came before is searched to its end, then each line as it comes.
    let follower = log.read(&["-f", "-n", "1", "--grep", "line"]);
    follower.stdout.wait_for("line 12\n");
    append(&log.path, cri(14, "stdout", "F", "; line 14"));
    follower.stdout.wait_for("an Error without end; line 14\n");
    assert_eq!(follower.stdout.so_far(), "line 12\nan Error without end; line 14\n");
}

#[test]
fn a_terminal_shows_text_and_colours_and_obeys_nothing_else() {
    let log = Log::new();
    append(&log.path, cri(1, "stdout", "F", "\x1b[1;31mred\x1b[0m\t\x1b]0;title\x07\x1b[2J"));
    let pty = Pty::open(24, 80);
    let mut logs = pty.spawn(log.rig.command(["logs", "--file", log.path.to_str().unwrap()]));
    assert_eq!(logs.ends(), 0);
    let want = "\x1b[1;31mred\x1b[0m\t\\u{1b}]0;title\\u{7}\\u{1b}[2J\r\n";
    assert_eq!(pty.shown_before_mark(), want);
}

#[test]
fn colours_that_the_app_has_left_on_are_off_at_the_end_of_a_line() {
    let log = Log::new();
    append(
        &log.path,
        cri(1, "stdout", "F", "\x1b[31mred\x1b[K") + &cri(2, "stderr", "F", "\x1b[1mbold"),
    );
    let pty = Pty::open(24, 80);
    let command = |more: &[&str]| {
        log.rig.command([&["logs", "--file", log.path.to_str().unwrap()], more].concat())
    };
    let mut logs = pty.spawn(command(&[]));
    assert_eq!(logs.ends(), 0);
    let want = "\x1b[31mred\\u{1b}[K\x1b[m\r\n\x1b[1mbold\x1b[m\r\n";
    assert_eq!(pty.shown_before_mark(), want);
    // Also while it waits in a line, for it ends by a signal then.
    append(&log.path, cri(3, "stdout", "P", "\x1b[31mha"));
    let pty = Pty::open(24, 80);
    let mut logs = pty.spawn(command(&["--follow", "--tail", "1", "--stream", "stdout"]));
    pty.shown.wait_for("\x1b[31mha\x1b[m");
    append(&log.path, cri(4, "stdout", "F", "lf\x1b[39m"));
    append(&log.path, cri(5, "stdout", "F", "not"));
    pty.shown.wait_for("not\r\n");
    logs.signal(Signal::SIGINT);
    assert_eq!(logs.ends(), -(Signal::SIGINT as i32));
    assert_eq!(pty.shown_before_mark(), "\x1b[31mha\x1b[mlf\x1b[39m\x1b[m\r\nnot\r\n");
    // Where there is no terminal everything is as it was written.
    assert_eq!(log.prints(&["--tail", "3", "--stream", "stdout"]).matches("\x1b[m").count(), 0);
}

#[test]
fn contradictory_options_are_refused() {
    let log = Log::new();
    let path = log.path.to_str().unwrap();
    for (arguments, why) in [
        (&["logs"][..], "expected the name of an app"),
        (&["logs", "--app", "a/"], "a/"),
        (&["logs", "--file", path, "--since", "soon"], "expected a time such as"),
        (&["logs", "--file", path, "--grep", "("], "expected a regular expression"),
        (&["logs", "--file", path, "--until", "now", "-f"], "cannot be used with"),
        (&["logs", "--file", path, "--stream", "stdin"], "expected stdout or stderr"),
        (&["logs", "--file", path, "--tail", "-1"], "-1"),
    ] {
        let mut logs = log.rig.run(arguments);
        assert_eq!(logs.ends(), 2, "{arguments:?}");
        let said = logs.stderr.text();
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    let mut logs = log.read(&[]);
    assert_eq!(logs.ends(), 1);
    let said = format!("iottymux: cannot open {path}: No such file or directory\n");
    assert_eq!(logs.stderr.text(), said);
    fs::create_dir(&log.path).unwrap();
    let mut logs = log.read(&["--follow"]);
    assert_eq!(logs.ends(), 1);
    assert_eq!(
        logs.stderr.text(),
        format!("iottymux: cannot read {path}: it is not a regular file\n")
    );
    fs::remove_dir(&log.path).unwrap();
    nix::unistd::mkfifo(&log.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(log.read(&[]).ends(), 1);
}

#[test]
fn following_goes_on_over_rotations_and_truncations() {
    let log = Log::new();
    append(&log.path, lines(1..=3));
    let logs = log.read(&["--follow", "--tail", "2"]);
    logs.stdout.wait_for(&printed(2..=3));
    // An entry in pieces is one when it has its end.
    let entry = line(4);
    append(&log.path, &entry[..entry.len() - 3]);
    append(&log.path, entry[entry.len() - 3..].to_owned() + &cri(5, "stdout", "P", "prompt$ "));
    logs.stdout.wait_for(&(printed(2..=4) + "prompt$ "));
    append(&log.path, cri(6, "stdout", "F", ""));
    // Renamed and made anew.
    log.rotate(5);
    append(&log.path, lines(7..=7));
    logs.stdout.wait_for(&printed([7]));
    // Renamed, while it is still written to, as long as the new file is empty.
    let late = File::options().append(true).open(&log.path).unwrap();
    fs::rename(&log.path, log.rotated("20200101-000000")).unwrap();
    append(&log.path, "");
    (&late).write_all(line(8).as_bytes()).unwrap();
    logs.stdout.wait_for(&printed(7..=8));
    (&late).write_all(line(9).as_bytes()).unwrap();
    append(&log.path, lines(10..=10));
    logs.stdout.wait_for(&printed(7..=10));
    // Copied and truncated; where it began in that file counts no more.
    fs::copy(&log.path, log.rotated("20200101-000001")).unwrap();
    File::options().write(true).open(&log.path).unwrap().set_len(0).unwrap();
    append(&log.path, &lines(11..=11)[..10]);
    logs.rests();
    append(&log.path, &lines(11..=11)[10..]);
    logs.stdout.wait_for(&printed(7..=11));
    // Removed and made anew, then with its directory.
    fs::remove_file(&log.path).unwrap();
    append(&log.path, lines(12..=12));
    logs.stdout.wait_for(&printed(7..=12));
    fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    logs.rests();
    fs::create_dir(log.path.parent().unwrap()).unwrap();
    append(&log.path, lines(13..=13));
    logs.stdout.wait_for(&printed(7..=13));
    let want = printed(2..=4) + "prompt$ \n" + &printed(7..=13);
    assert_eq!(logs.stdout.so_far(), want);
}

/// Where it begins in a file is nothing to the file that is begun anew in its place.
#[test]
fn a_tail_is_followed_over_a_truncation() {
    for tail in ["0", "1", "3", "all"] {
        let log = Log::new();
        append(&log.path, lines(1..=10));
        let logs = log.read(&["--follow", "--tail", tail]);
        logs.waits();
        append(&log.path, lines(11..=11));
        logs.stdout.wait_for(&printed([11]));
        logs.rests();
        File::options().write(true).open(&log.path).unwrap().set_len(0).unwrap();
        logs.rests();
        for number in 12..=14 {
            append(&log.path, lines([number]));
        }
        logs.stdout.wait_for(&printed(11..=14));
    }
}

/// And its end does not come without its beginning.
#[test]
fn an_unfinished_line_is_the_last_one() {
    let log = Log::new();
    append(
        &log.path,
        line(1) + &cri(2, "stdout", "P", "prompt> ") + &cri(3, "stderr", "F", "error"),
    );
    assert_eq!(log.prints(&["--tail", "1"]), "prompt> ");
    assert_eq!(log.says(&["--tail", "2"]), ("prompt> ".into(), "error\n".into()));
    let logs = log.read(&["--follow", "--tail", "1"]);
    logs.stdout.wait_for("prompt> ");
    append(&log.path, cri(4, "stdout", "F", "answer"));
    logs.stdout.wait_for("prompt> answer\n");
}

/// Times need not be in order: the last lines are those of all that match.
#[test]
fn the_tail_is_one_of_the_lines_since_a_time() {
    let log = Log::new();
    append(&log.path, line(5) + &line(6) + &line(1));
    let since = ["--since", "2020-01-01T00:00:05Z", "--tail"];
    for (tail, want) in [("1", printed([6])), ("2", printed([5, 6]))] {
        assert_eq!(log.prints(&[&since[..], &[tail]].concat()), want);
    }
}

/// Whatever takes the log's place for a while: it is told once, and the log goes on.
#[test]
fn following_waits_for_what_hides_the_log() {
    let log = Log::new();
    let (path, aside) = (log.path.clone(), log.rig.file("log/aside"));
    append(&path, lines(1..=1));
    // One that root's rights do not help, where the tests are root's.
    fs::set_permissions(log.rig.file(""), fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["logs", "--follow", "--file", path.to_str().unwrap()];
    let mut command = log.rig.command_of(&reachable_program(&log.rig), words);
    if nix::unistd::Uid::effective().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let logs = Proc::spawn(command);
    logs.stdout.wait_for(&printed([1]));
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let told = |times: usize, why: &str| {
        let said = || logs.stderr.so_far();
        eventually("it is told", || said().lines().count() >= times);
        let said = said();
        let last = said.lines().last().unwrap();
        assert_eq!(said.lines().count(), times, "{said}");
        assert!(last.starts_with("iottymux: warn: ") && last.contains(why), "{said}");
    };
    for (number, kind) in (2..).zip(["directory", "FIFO"]) {
        fs::rename(&path, &aside).unwrap();
        match kind {
            "directory" => fs::create_dir(&path).unwrap(),
            _ => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        }
        told(number - 1, "it is not a regular file; waiting");
        // What it has open is read on.
        append(&aside, line(10 * number));
        logs.stdout.wait_for(&printed([10 * number]));
        match kind {
            "directory" => fs::remove_dir(&path).unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
        fs::rename(&aside, &path).unwrap();
        append(&path, lines(number..=number));
        logs.stdout.wait_for(&printed([number]));
    }
    // Another file, which may not be read before its mode is changed, and a directory likewise.
    fs::rename(&path, log.rotated(1)).unwrap();
    File::options().create_new(true).write(true).mode(0o0).open(&path).unwrap();
    told(3, "Permission denied; waiting");
    mode(&path, 0o644);
    append(&path, lines(4..=4));
    logs.stdout.wait_for(&printed([4]));
    let dir = path.parent().unwrap();
    mode(dir, 0o0);
    told(4, "Permission denied; waiting");
    mode(dir, 0o755);
    log.rotate(5);
    append(&path, lines(5..=5));
    logs.stdout.wait_for(&printed([5]));
    assert_eq!(logs.stdout.so_far(), printed([1, 20, 2, 30, 3, 4, 5]));
    told(4, "waiting");
}

#[test]
fn following_may_begin_before_there_is_a_file_or_its_directory() {
    let log = Log::new();
    fs::remove_dir(log.path.parent().unwrap()).unwrap();
    let logs = log.read(&["--follow", "--tail", "0"]);
    logs.waits();
    fs::create_dir(log.path.parent().unwrap()).unwrap();
    append(&log.path, lines(1..=2));
    logs.stdout.wait_for(&printed(1..=2));
    assert_eq!(logs.stderr.so_far(), "");
}

#[test]
fn a_tail_of_nothing_begins_with_the_next_entry() {
    let log = Log::new();
    append(&log.path, lines(1..=2) + &line(3)[..20]);
    let logs = log.read(&["--follow", "--tail", "0"]);
    logs.waits();
    append(&log.path, line(3)[20..].to_owned() + &line(4));
    logs.stdout.wait_for(&printed([4]));
    assert_eq!(logs.stdout.so_far(), printed(3..=4));
}

#[test]
fn a_slow_follower_misses_no_existing_file() {
    let log = Log::new();
    append(&log.path, lines(1..=2));
    let logs = log.read(&["--follow"]);
    logs.stdout.wait_for(&printed(1..=2));
    logs.stop();
    append(&log.path, lines(3..=3));
    for number in 4..30 {
        log.rotate(50);
        append(&log.path, lines([number]));
    }
    // The one that it has open goes, too.
    fs::remove_file(log.rotated(26)).unwrap();
    logs.go_on();
    logs.stdout.wait_for(&printed([29]));
    assert_eq!(logs.stdout.so_far(), printed(1..30));
    // The kubelet compresses what is older.
    let told = format!("iottymux: warn: {} is gone: entries between", log.path.display());
    assert!(logs.stderr.so_far().starts_with(&told), "{}", logs.stderr.so_far());
}

#[test]
fn each_line_comes_once_over_hundreds_of_rotations() {
    let log = Log::new();
    let rotations = volume(200, 1000);
    let mut logs = log.rig.command(["logs", "--follow", "--file", log.path.to_str().unwrap()]);
    logs.stderr(Stdio::inherit());
    let mut logs = Proc::spawn(logs);
    logs.waits();
    let lines = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random::new(seed());
            let mut number = 0;
            for rotation in 0..rotations {
                let mut text = String::new();
                for _ in 0..=random.below(400) {
                    let _ = writeln!(text, "2020-01-01T00:00:00Z stdout F {number}");
                    number += 1;
                }
                // In pieces that end anywhere.
                let cut = random.below(text.len());
                append(&log.path, &text[..cut]);
                append(&log.path, &text[cut..]);
                // By turns as a mux does and as the kubelet does.
                log.rotate(rotations + 1);
                if rotation % 2 == 0 {
                    append(&log.path, "");
                }
            }
            append(&log.path, "2020-01-01T00:00:00Z stdout F end\n");
            number
        });
        writer.join().unwrap()
    });
    logs.stdout.wait_for("end\n");
    logs.signal(Signal::SIGTERM);
    logs.ends();
    let text = logs.stdout.text();
    let numbers = (0..lines).map(|number| number.to_string());
    assert!(text.lines().eq(numbers.chain(["end".to_owned()])), "lines are missing, or came twice");
}

#[test]
fn a_closed_output_ends_it_quietly() {
    let log = Log::new();
    append(&log.path, lines(1..=50_000));
    for arguments in [&[][..], &["--follow"]] {
        let mut command = log.rig.command(["logs", "--file", log.path.to_str().unwrap()]);
        command.args(arguments);
        let mut logs = command.spawn().unwrap();
        let mut first = [0; 7];
        logs.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = logs.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
    }
    // Also when there is nothing to be written.
    let mut command = log.rig.command(["logs", "--follow", "--tail", "1", "--file"]);
    command.arg(&log.path);
    let (mut ours, theirs) = std::io::pipe().unwrap();
    command.stdout(theirs);
    let mut logs = Proc::spawn(command);
    let mut last = [0; "line 50000\n".len()];
    ours.read_exact(&mut last).unwrap();
    logs.waits();
    drop(ours);
    assert_eq!((logs.ends(), logs.stderr.text()), (0, String::new()));
}

#[test]
fn following_ends_with_the_app_and_not_before() {
    let log = Log::new();
    log.publish("cri");
    append(&log.path, lines(1..=1));
    fs::write(log.rig.path("endpoints"), "{}").unwrap();
    let lock = File::create(log.rig.path("lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
    let mut logs = log.rig.run(&["logs", "--app", APP, "--follow"]);
    logs.stdout.wait_for(&printed(1..=1));
    log.leave(&json!({"status": 3}));
    fs::remove_file(log.rig.path("endpoints")).unwrap();
    // It still writes what it has read.
    append(&log.path, lines(2..=2));
    logs.stdout.wait_for(&printed(1..=2));
    logs.rests();
    assert!(logs.runs());
    append(&log.path, cri(3, "stdout", "P", "the end"));
    drop(lock);
    assert_eq!(logs.ends(), 0);
    assert_eq!(
        (logs.stdout.text(), logs.stderr.text()),
        (printed(1..=2) + "the end", String::new())
    );
    // Who comes later reads all the same; also of one whose mux did not know how it ended.
    log.leave(&json!(null));
    let mut logs = log.rig.run(&["logs", "--app", APP, "--follow", "--tail", "1"]);
    assert_eq!((logs.ends(), logs.stdout.text()), (0, "the end".into()));
}

#[test]
fn a_mux_may_start_while_others_look_whether_one_runs() {
    let log = Log::new();
    log.publish("cri");
    append(&log.path, lines(1..=1));
    log.leave(&json!(null));
    let state = iottymux::sys::state::StateDir::resolve(Some(log.rig.state())).unwrap();
    let app = state.app(&APP.parse().unwrap());
    File::create(log.rig.path("lock")).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = app.is_locked();
                }
            });
        }
        let failed = (0..1000).find_map(|_| app.lock().err());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
    let _lock = app.lock().unwrap();
    assert!(app.is_locked() && app.lock().is_err());
}

#[test]
fn the_log_of_a_real_app_is_followed_to_its_end() {
    let log = Log::new();
    append(&log.path, "");
    let entry = line(1).trim_end().to_owned();
    let script = format!("read x; echo '{entry}' >>'{}'; exit 3", log.path.display());
    let mut run = log.rig.command(["run", "--foreground", "--app", APP, "--", "sh", "-c", &script]);
    run.stdin(Stdio::null());
    let mut run = log.rig.start(run);
    let mut logs = log.read(&["--app", APP, "--follow"]);
    logs.waits();
    log.rig.client("stdin").write_all(b"go\n").unwrap();
    assert_eq!(logs.ends(), 0);
    assert_eq!((logs.stdout.text(), logs.stderr.text()), (printed([1]), String::new()));
    assert_eq!(run.ends(), 3);
}
