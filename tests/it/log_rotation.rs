//! Rotation, by ourselves and by others, at full speed: each line is in exactly one place.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::cri::{cri, joined};
use crate::numbered::{LINE, account, write_numbered};
use crate::pattern::volume;
use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};

fn logging(rig: &Rig, log: &Path, more: &[&str]) -> Proc {
    let spec = format!("cri:{}", log.display());
    rig.mux([&["stream", "--app", APP, "--log", &spec], more].concat())
}

fn end(mut mux: Proc) {
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

/// The files of a log that the mux has rotated, the oldest first.
fn rotated(log: &Path) -> Vec<PathBuf> {
    let name = log.file_name().unwrap().to_str().unwrap().to_owned();
    let number = |path: &PathBuf| {
        let file = path.file_name()?.to_str()?.strip_prefix(&name)?;
        file.strip_prefix('.').map_or(file.is_empty().then_some(0), |n| n.parse::<u32>().ok())
    };
    let entries = fs::read_dir(log.parent().unwrap()).unwrap();
    let mut files: Vec<_> =
        entries.map(|e| e.unwrap().path()).filter(|p| number(p).is_some()).collect();
    files.sort_by_key(|path| std::cmp::Reverse(number(path)));
    files
}

/// Bytes of a numbered line in a CRI log.
const ENTRY: u64 = LINE as u64 + 40;

/// `logs --follow` beside the writer: it prints the numbered lines, each once, in their order.
struct Follower {
    logs: Proc,
    /// How many it has printed.
    seen: Arc<AtomicU64>,
    reading: JoinHandle<()>,
}

impl Follower {
    fn start(rig: &Rig, log: &Path) -> Self {
        let mut command = rig.command(["logs", "--follow", "--file", log.to_str().unwrap()]);
        let (ours, theirs) = std::io::pipe().unwrap();
        command.stdout(theirs);
        let logs = Proc::spawn(command);
        logs.waits();
        let seen = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&seen);
        let reading = thread::spawn(move || {
            let (mut from, mut line) = (BufReader::with_capacity(1 << 16, ours), Vec::new());
            for number in 1.. {
                line.clear();
                if from.read_until(b'\n', &mut line).unwrap() == 0 {
                    return;
                }
                let want = format!("{:099}\n", number - 1);
                assert!(line == want.as_bytes(), "{} for {want}", line.escape_ascii());
                counter.store(number, Ordering::Relaxed);
            }
        });
        Self { logs, seen, reading }
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits until it has printed so many lines.
    fn wait(&self, lines: u64) {
        while self.seen() < lines {
            let before = self.seen();
            eventually("it prints more", || self.seen() > before || self.reading.is_finished());
            assert!(!self.reading.is_finished(), "{}", self.logs.stderr.so_far());
        }
    }

    /// Waits until it has opened a file, or read it.
    fn wait_has(&self, file: &Path) {
        let (last, id) = (last_number(file), fs::metadata(file).unwrap().ino());
        let is_it = |fd: fs::DirEntry| fs::metadata(fd.path()).is_ok_and(|fd| fd.ino() == id);
        let fds = format!("/proc/{}/fd", self.logs.pid());
        eventually("it has the file", || {
            self.seen() > last || fs::read_dir(&fds).unwrap().flatten().any(is_it)
        });
    }

    /// It prints so many lines and no more, and has nothing to say.
    fn end(mut self, lines: u64) {
        self.wait(lines);
        self.logs.rests();
        self.logs.signal(Signal::SIGTERM);
        self.logs.ends();
        self.reading.join().unwrap();
        assert_eq!(self.seen.load(Ordering::Relaxed), lines);
        assert_eq!(self.logs.stderr.text(), "");
    }
}

/// How many lines a log has that follow those before; each file of it is whole.
fn account_file(text: &[u8], from: u64) -> u64 {
    let entries = cri(text);
    assert!(entries.iter().all(|entry| entry.last));
    let until = from + entries.len() as u64;
    assert_eq!(account(entries.iter().map(|entry| entry.text), from, until), 0);
    until
}

/// 500 rotations: by megabytes for CI, by gigabytes when asked.
#[test]
fn five_hundred_own_rotations() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let size = volume(32 * 1024, 10 * 1024 * 1024);
    let more = ["--log-max-size", &size.to_string(), "--log-max-files", "1000"];
    let mux = logging(&rig, &log, &more);
    let follower = Follower::start(&rig, &log);
    let lines = 501 * size as u64 / ENTRY;
    let begun = Instant::now();
    write_numbered(rig.writer("stdout"), 0, lines);
    // A mux that ends reads for a few seconds only, and on a busy machine these rotations take longer.
    let size_of = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len());
    let logged = || rotated(&log).iter().map(size_of).sum::<u64>();
    eventually("all is logged", || logged() >= lines * ENTRY);
    end(mux);
    let (written, seen) = (begun.elapsed(), follower.seen());
    follower.end(lines);
    let files = rotated(&log);
    assert!(files.len() >= 500, "{}", files.len());
    let mut from = 0;
    for file in &files {
        let text = fs::read(file).unwrap();
        assert!(text.len() <= size, "{}", text.len());
        from = account_file(&text, from);
    }
    assert_eq!(from, lines);
    println!(
        "{lines} lines in {} files, written in {written:.1?}; followed by then: {seen}, all after {:.1?}",
        files.len(),
        begun.elapsed()
    );
}

#[test]
fn no_more_files_than_asked_for_and_no_line_cut() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let more = ["--log-max-size", "20K", "--log-max-files", "3", "--log-line-limit", "1000"];
    let mux = logging(&rig, &log, &more);
    let line = |n: usize| format!("{n} {}\n", "x".repeat(n * 137 % 9000));
    let text: String = (0..1000).map(line).collect();
    let mut writer = rig.writer("stdout");
    writer.write_all(text.as_bytes()).unwrap();
    end(mux);
    let files = rotated(&log);
    assert_eq!(files.len(), 4);
    let mut all = Vec::new();
    for file in &files {
        let text = fs::read(file).unwrap();
        let entries = cri(&text);
        // Parts of a line are never in two files, and may make one larger.
        assert!(entries.last().unwrap().last, "{}", file.display());
        assert!(text.len() <= 20 * 1024 + 10_000, "{}", text.len());
        all.extend(joined(&entries, "stdout"));
    }
    assert!(text.as_bytes().ends_with(&all) && all.len() > 40_000);
    assert!(text.as_bytes()[..text.len() - all.len()].ends_with(b"\n"));
}

/// A line that alone is longer than a file may be goes on in the next one.
#[test]
fn a_line_without_an_end_in_many_files() {
    let numbers = volume(300_000, 30_000_000);
    let line = (0..numbers).fold(String::new(), |line, n| line + &format!("{n:09} "));
    let said = format!("before\n{line}\nafter\n");
    for format in ["cri", "json-file", "raw"] {
        let rig = Rig::new();
        let log = rig.file("app.log");
        let spec = format!("{format}:{}", log.display());
        let size = said.len() / 40;
        let more = ["--log-max-size", &size.to_string(), "--log-max-files", "1000"];
        let mux = rig.mux([&["stream", "--app", APP, "--log", &spec], &more[..]].concat());
        let mut out = rig.writer("stdout");
        out.write_all(said.as_bytes()).unwrap();
        end(mux);
        let files: Vec<_> = rotated(&log).iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(files.len() > 15 && files.iter().all(|file| file.len() <= 2 * size), "{format}");
        if format == "raw" {
            assert!(files.concat() == said.as_bytes());
            continue;
        }
        // Each begins with an entry and ends with one.
        let begin: &[u8] = if format == "cri" { b"20" } else { b"{\"log\":\"" };
        assert!(files.iter().all(|file| file.starts_with(begin) && file.ends_with(b"\n")));
        let mut logs = rig.run(&["logs", "--app", APP]);
        assert!(logs.stdout.bytes() == said.as_bytes(), "{format}");
        assert_eq!((logs.ends(), logs.stderr.text()), (0, String::new()));
        let mut logs = rig.run(&["logs", "--app", APP, "--tail", "1"]);
        assert_eq!((logs.stdout.text(), logs.ends()), ("after\n".into(), 0));
    }
}

/// Who keeps fewer files than before does not leave the others behind; those of others are not his.
#[test]
fn files_beyond_the_number_that_is_kept_go() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let name = |suffix: &str| rig.file(&format!("app.log.{suffix}"));
    let theirs = ["04", "5.gz", "x", "9x", "1001", "20261121", "20261121-010203"];
    let ours = ["1", "2", "3", "4", "5", "6", "8", "12", "1000"];
    for suffix in ours.iter().chain(&theirs) {
        fs::write(name(suffix), suffix).unwrap();
    }
    fs::create_dir(name("7")).unwrap();
    std::os::unix::fs::symlink(name("x"), name("9")).unwrap();
    // Who does not rotate removes nothing.
    end(logging(&rig, &log, &["--log-max-files", "3"]));
    assert!(ours.iter().all(|suffix| name(suffix).exists()));
    end(logging(&rig, &log, &["--log-max-files", "3", "--log-max-size", "4K"]));
    let kept: Vec<_> = ours.iter().filter(|suffix| name(suffix).exists()).collect();
    assert_eq!(kept, [&"1", &"2", &"3"]);
    assert!(theirs.iter().chain(&["7", "9"]).all(|suffix| name(suffix).exists()));
}

/// What is no file is not renamed, whatever is asked for.
#[test]
fn a_fifo_is_not_rotated() {
    let rig = Rig::new();
    let path = rig.file("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&path);
    let mux = logging(&rig, &path, &["--log-max-size", "4K"]);
    write_numbered(rig.writer("stdout"), 0, 300);
    end(mux);
    let mut log = Vec::new();
    reader.unwrap().read_to_end(&mut log).unwrap();
    assert_eq!(account(cri(&log).iter().map(|entry| entry.text), 0, 300), 0);
    assert_eq!(rotated(&path), [path]);
}

/// What cannot be renamed is written on: a name that has become too long.
#[test]
fn a_log_that_cannot_be_rotated_is_written_on() {
    let rig = Rig::new();
    let log = rig.file(&"n".repeat(255));
    let mux = logging(&rig, &log, &["--log-max-size", "4K"]);
    write_numbered(rig.writer("stdout"), 0, 1000);
    mux.stderr.wait_for("cannot rotate it");
    end(mux);
    let text = fs::read(&log).unwrap();
    assert_eq!(account(cri(&text).iter().map(|entry| entry.text), 0, 1000), 0);
    assert_eq!(rotated(&log), [log]);
}

/// A link is neither followed nor rotated: the log waits until it is gone.
#[test]
fn a_link_is_no_log() {
    let rig = Rig::new();
    let (log, real) = (rig.file("link"), rig.file("real"));
    std::os::unix::fs::symlink("real", &log).unwrap();
    fs::write(&real, "").unwrap();
    let mux = logging(&rig, &log, &["--log-max-size", "4K"]);
    write_numbered(rig.writer("stdout"), 0, 10);
    mux.stderr.wait_for("link is a symbolic link to real, and a log does not follow links");
    mux.stderr.wait_for("trying again");
    fs::remove_file(&log).unwrap();
    mux.stderr.wait_for("works again");
    end(mux);
    let text = fs::read(&log).unwrap();
    assert_eq!(account(cri(&text).iter().map(|entry| entry.text), 0, 10), 0);
    assert_eq!(fs::read(&real).unwrap(), b"");
}

/// A mux before this one could not end its last entry.
#[test]
fn an_unfinished_rotation_is_finished_first() {
    const TORN: &str = "2020-01-01T00:00:00.000000001Z stdout F half";
    for format in ["cri", "json-file"] {
        let rig = Rig::new();
        let log = rig.file("log");
        fs::write(&log, TORN).unwrap();
        let spec = format!("{format}:{}", log.display());
        let mux = rig.mux(["stream", "--app", APP, "--log", &spec]);
        rig.writer("stdout").write_all(b"one\ntwo\n").unwrap();
        end(mux);
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, TORN), "{text}");
        assert!(lines[1].contains("one") && lines[2].contains("two"), "{text}");
    }
}

/// A mux that is killed anywhere in a rotation: what was in the files stays, once.
#[test]
fn killed_while_it_rotates() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let more = ["--log-max-size", "4K", "--log-max-files", "1000"];
    let mut from = 0;
    for _ in 0..volume(20, 300) {
        let mux = logging(&rig, &log, &more);
        let stdout = rig.writer("stdout");
        let writer = thread::spawn(move || {
            let mut number = from;
            // Until the mux is gone.
            while writeln!(&stdout, "{number:099}").is_ok() {
                number += 1;
            }
            number
        });
        let before = rotated(&log).len();
        eventually("it rotates", || rotated(&log).len() > before + 3);
        mux.signal(Signal::SIGKILL);
        drop(mux);
        let written = writer.join().unwrap();
        let files = rotated(&log);
        for (at, file) in files.iter().enumerate() {
            let text = fs::read(file).unwrap();
            let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            assert!(whole == text.len() || at + 1 == files.len(), "{}", file.display());
            let entries = cri(&text[..whole]);
            let until = from + entries.len() as u64;
            assert_eq!(account(entries.iter().map(|entry| entry.text), from, until), 0);
            from = until;
        }
        assert!(from <= written);
        from = written;
        for file in files {
            fs::remove_file(file).unwrap();
        }
    }
}

/// The kubelet's way: it renames the file when that has become large, has it opened anew, and
/// compresses the one before.
#[test]
fn a_kubelets_rotation_at_full_speed() {
    let rig = Rig::new();
    let log = rig.file("0.log");
    let mux = logging(&rig, &log, &[]);
    let follower = Follower::start(&rig, &log);
    let rotations = volume(100, 500) as u64;
    let size = volume(64 * 1024, 10 * 1024 * 1024) as u64;
    let (stdout, rotated) = (rig.writer("stdout"), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&rotated);
    let begun = Instant::now();
    let writer = thread::spawn(move || {
        let mut lines = 0;
        loop {
            // At full speed, until the file is three times as large as one that is rotated.
            while lines * ENTRY > counter.load(Ordering::Relaxed).saturating_add(3 * size) {
                thread::yield_now();
            }
            if counter.load(Ordering::Relaxed) == u64::MAX {
                return lines;
            }
            write_numbered(&stdout, lines, lines + 300);
            lines += 300;
        }
    });
    let gzipped = |file: &Path| {
        assert!(Command::new("gzip").arg(file).status().unwrap().success());
        PathBuf::from(format!("{}.gz", file.display()))
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for number in 0..rotations {
        eventually("it is large", || fs::metadata(&log).is_ok_and(|log| log.len() >= size));
        let renamed = rig.file(&format!("0.log.20060102-{number:06}"));
        fs::rename(&log, &renamed).unwrap();
        let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
        assert_eq!(control.ends(), 0, "{}", control.stderr.text());
        assert!(log.exists());
        if let Some(before) = files.last_mut() {
            // Who has not opened a file before it is compressed cannot read it, and who has not opened the
            // next one then, either, does not know whether there was another in between.
            follower.wait_has(&renamed);
            *before = gzipped(before);
        }
        rotated.fetch_add(fs::metadata(&renamed).unwrap().len(), Ordering::Relaxed);
        files.push(renamed);
    }
    rotated.store(u64::MAX, Ordering::Relaxed);
    let lines = writer.join().unwrap();
    end(mux);
    let (written, seen) = (begun.elapsed(), follower.seen());
    follower.end(lines);
    let mut from = 0;
    for file in files.iter().chain([&log]) {
        let read = if file.extension().is_some_and(|e| e == "gz") { "zcat" } else { "cat" };
        let text = Command::new(read).arg(file).stderr(Stdio::inherit()).output().unwrap().stdout;
        from = account_file(&text, from);
    }
    assert_eq!(from, lines);
    let others = fs::read_dir(log.parent().unwrap()).unwrap();
    let ours = |e: &fs::DirEntry| e.file_name().to_str().unwrap().starts_with("0.log");
    assert_eq!(others.flatten().filter(ours).count(), files.len() + 1);
    println!(
        "{lines} lines in {} files, written in {written:.1?}; followed by then: {seen}, all after {:.1?}",
        files.len() + 1,
        begun.elapsed()
    );
}

/// The number of the last line of a log that is not written any more.
fn last_number(log: &Path) -> u64 {
    let text = fs::read(log).unwrap();
    let digits = text.len() - LINE;
    str::from_utf8(&text[digits..]).unwrap().trim_end().parse().unwrap()
}

/// logrotate's copytruncate: what the copy has not is lost by that, and nothing else is.
#[test]
fn a_log_that_is_copied_and_truncated() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &log, &[]);
    let stdout = rig.writer("stdout");
    let writer = thread::spawn(move || write_numbered(stdout, 0, 300_000));
    let mut copies = Vec::new();
    while !writer.is_finished() {
        copies.push(fs::read(&log).unwrap());
        File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    }
    writer.join().unwrap();
    // Behind the last time that it is truncated.
    write_numbered(rig.writer("stdout"), 300_000, 300_010);
    end(mux);
    copies.push(fs::read(&log).unwrap());
    let mut last = None;
    for copy in &copies {
        // A copy may end in the middle of a write; no file begins there.
        let whole = copy.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for entry in cri(&copy[..whole]) {
            let number: u64 = str::from_utf8(entry.text).unwrap().parse().unwrap();
            assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
            last = Some(number);
        }
    }
    assert_eq!(last, Some(300_009));
}

/// Somebody else has moved the file away: the mux does not insist on renaming it.
#[test]
fn a_log_that_was_moved_before_it_is_rotated() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mux = logging(&rig, &log, &["--log-max-size", "4K"]);
    let mut out = rig.writer("stdout");
    write_numbered(&mut out, 0, 1);
    eventually("it is written", || fs::read(&log).is_ok_and(|log| !log.is_empty()));
    fs::rename(&log, rig.file("moved")).unwrap();
    write_numbered(&mut out, 1, 60);
    end(mux);
    let mut all = fs::read(rig.file("moved")).unwrap();
    for file in rotated(&log) {
        all.extend(fs::read(file).unwrap());
    }
    assert_eq!(account(cri(&all).iter().map(|entry| entry.text), 0, 60), 0);
}
