//! Logs whose targets fail: the app and the clients do not notice, and what is lost is counted.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::O_NONBLOCK;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cri::cri;
use crate::numbered::{LINE, account, write_numbered};
use crate::peer::Asker;
use crate::proc::{Proc, Said, eventually};
use crate::rig::{APP, Rig};
use crate::run::change_mux;
use crate::skip::skip;

/// A mux with this log, and a client that sees everything.
struct App {
    rig: Rig,
    mux: Proc,
    client: Said,
    stdout: File,
    written: u64,
}

impl App {
    fn start(rig: Rig, spec: &str, more: &[&str]) -> Self {
        let mux = rig.mux([&["stream", "--app", APP, "--log", spec], more].concat());
        let client = Said::follow(rig.client("stdout"));
        let stdout = rig.writer("stdout");
        Self { rig, mux, client, stdout, written: 0 }
    }

    /// The app writes so many lines: all its writes return.
    fn write(&mut self, lines: u64) {
        write_numbered(&self.stdout, self.written, self.written + lines);
        self.written += lines;
    }

    /// Waits until the client has seen everything.
    fn wait_seen(&self) {
        self.client.wait_len(usize::try_from(self.written).unwrap() * LINE);
    }

    /// Waits until the first log fails, with this in the reason.
    fn wait_failing(&self, why: &str) {
        eventually(&format!("the log fails: {why}"), || {
            let failing = self.rig.status()["logs"][0]["failing"].clone();
            failing.as_str().is_some_and(|text| text.contains(why))
        });
    }

    fn wait_works(&self) {
        eventually("the log works", || self.rig.status()["logs"][0]["failing"].is_null());
    }

    fn end(mut self) -> (Rig, u64) {
        self.mux.signal(Signal::SIGTERM);
        assert_eq!(self.mux.ends(), 0);
        assert_eq!(self.client.bytes().len() as u64, self.written * LINE as u64);
        (self.rig, self.written)
    }
}

/// The markers of a CRI log of these files, of which all lines but the told ones are there.
fn account_cri(log: &[u8], written: u64) -> usize {
    let entries = cri(log);
    assert!(entries.iter().all(|entry| entry.last));
    account(entries.iter().map(|entry| entry.text), 0, written)
}

/// A small disk that only this test and what it starts can see; gone with it.
pub fn disk(at: &Path, options: &str) -> bool {
    let made = unshare(CloneFlags::CLONE_NEWNS).and_then(|()| {
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        fs::create_dir(at).unwrap();
        mount(Some("disk"), at, Some("tmpfs"), MsFlags::empty(), Some(options))
    });
    if let Err(e) = made {
        skip("mount", &format!("no disk can be made here: {e}"));
    }
    made.is_ok()
}

fn remount(at: &Path, flags: MsFlags) {
    let flags = flags | MsFlags::MS_REMOUNT;
    mount(None::<&str>, at, None::<&str>, flags, None::<&str>).unwrap();
}

fn spec(format: &str, path: &Path) -> String {
    format!("{format}:{}", path.display())
}

#[test]
fn a_full_disk() {
    for format in ["cri", "raw", "json-file"] {
        let rig = Rig::new();
        let at = rig.file("disk");
        if !disk(&at, "mode=755,size=2m") {
            return;
        }
        fs::write(at.join("ballast"), vec![0; 1024 * 1024]).unwrap();
        let (log, other) = (at.join("app.log"), rig.file("other.log"));
        let more = ["--log", &spec("cri", &other), "--log-buffer", "256K"];
        let mut app = App::start(rig, &spec(format, &log), &more);
        app.write(50_000);
        app.wait_failing("No space left");
        app.wait_seen();
        fs::remove_file(at.join("ballast")).unwrap();
        // What was kept meanwhile fits now.
        app.wait_works();
        app.write(1000);
        let (_rig, written) = app.end();
        let log = fs::read(log).unwrap();
        let markers = match format {
            "cri" => account_cri(&log, written),
            "raw" => account(log.strip_suffix(b"\n").unwrap().split(|b| *b == b'\n'), 0, written),
            _ => {
                let log = log.strip_suffix(b"\n").unwrap();
                let text = |line| {
                    let entry: serde_json::Value = serde_json::from_slice(line).unwrap();
                    entry["log"].as_str().unwrap().to_owned()
                };
                let lines: Vec<_> = log.split(|b| *b == b'\n').map(text).collect();
                account(lines.iter().map(|l| l.strip_suffix('\n').unwrap().as_bytes()), 0, written)
            }
        };
        assert_eq!(markers, 1, "{format}");
        assert_eq!(account_cri(&fs::read(other).unwrap(), written), 0, "{format}");
    }
}

/// The disk is full behind half a line of either stream: a reader shows it, the marker and the rest
/// as a line each.
#[test]
fn a_marker_is_no_part_of_an_unfinished_line() {
    for (format, stream) in [("cri", "stderr"), ("json-file", "stderr"), ("cri", "stdout")] {
        let rig = Rig::new();
        let at = rig.file("disk");
        if !disk(&at, "mode=755,size=2m") {
            return;
        }
        let log = at.join("app.log");
        let mut app = App::start(rig, &spec(format, &log), &["--log-buffer", "256K"]);
        let [mut half, mut other] = match stream {
            "stdout" => ["stdout", "stderr"],
            _ => ["stderr", "stdout"],
        }
        .map(|stream| app.rig.writer(stream));
        half.write_all(b"half").unwrap();
        let has_half = || fs::read_to_string(&log).is_ok_and(|log| log.contains("half"));
        eventually("a part of the line is logged", has_half);
        let mut ballast = File::create(at.join("ballast")).unwrap();
        while ballast.write_all(&[0; 4096]).is_ok() {}
        drop(ballast);
        write_numbered(&mut other, 0, 50_000);
        app.wait_failing("No space left");
        fs::remove_file(at.join("ballast")).unwrap();
        app.wait_works();
        half.write_all(b"rest\n").unwrap();
        app.mux.signal(Signal::SIGTERM);
        assert_eq!(app.mux.ends(), 0);
        let logs = |options: &[&str]| {
            let file = ["logs", "--file", log.to_str().unwrap()];
            let mut logs = app.rig.run(&[&file, options].concat());
            assert_eq!(logs.ends(), 0, "{}", logs.stderr.text());
            [logs.stdout.text(), logs.stderr.text()]
        };
        let [stdout, stderr] = logs(&[]);
        let lines = |text: &str| {
            text.lines().filter(|line| !line.starts_with('0')).map(str::to_owned).collect()
        };
        let [stdout, stderr]: [Vec<_>; 2] = [lines(&stdout), lines(&stderr)];
        let is_marker = |line: &String| {
            line.starts_with("iottymux: ") && line.ends_with(" bytes) were lost here")
        };
        let marker = stderr.iter().find(|line| is_marker(line));
        let marker = marker.unwrap_or_else(|| panic!("{format}, {stream}: {stderr:?}"));
        let want = match stream {
            "stdout" => [vec!["half", "rest"], vec![marker]],
            _ => [vec![], vec!["half", marker, "rest"]],
        };
        assert_eq!([&stdout[..], &stderr[..]], want, "{format}, {stream}");
    }
}

/// The keeper of `run` keeps the lines for the next mux, and the app does not notice.
#[test]
fn a_full_disk_and_other_muxes() {
    const LINES: usize = 1000;
    let rig = Rig::new();
    let at = rig.file("disk");
    if !disk(&at, "mode=755,size=2m") {
        return;
    }
    let (log, bursts) = (at.join("app.log"), rig.file("bursts"));
    nix::unistd::mkfifo(&bursts, Mode::S_IRWXU).unwrap();
    let seq = "while read first last; do seq -f %099.0f $first $last; done";
    let script = format!("{seq} <{}", bursts.display());
    let spec = spec("cri", &log);
    let mut keeper =
        rig.mux(["run", "--foreground", "--app", APP, "--log", &spec, "--", "sh", "-c", &script]);
    let mut bursts = File::options().write(true).open(bursts).unwrap();
    fs::write(at.join("ballast"), vec![0; 3 << 20]).unwrap_err();
    for (number, asks) in [true, false, true].into_iter().enumerate() {
        writeln!(bursts, "{} {}", number * LINES, (number + 1) * LINES - 1).unwrap();
        eventually("the log fails", || rig.status()["logs"][0]["failing"].is_string());
        change_mux(&rig, asks);
    }
    fs::remove_file(at.join("ballast")).unwrap();
    drop(bursts);
    assert_eq!(keeper.ends(), 0);
    let said = keeper.stderr.text();
    assert!(said.contains(" wait for the next mux: ") && !said.contains("lost"), "{said}");
    assert_eq!(account_cri(&fs::read(log).unwrap(), 3 * LINES as u64), 0);
}

#[test]
fn a_full_disk_and_then_another_file() {
    let rig = Rig::new();
    let at = rig.file("disk");
    if !disk(&at, "mode=755,size=1m") {
        return;
    }
    let log = at.join("app.log");
    let mut app = App::start(rig, &spec("cri", &log), &["--log-buffer", "256K"]);
    let reopen = |app: &App| {
        let mut control = app.rig.run(&["control", "--app", APP, "reopen-logs"]);
        assert_eq!(control.ends(), 0, "{}", control.stderr.text());
    };
    app.write(20_000);
    app.wait_failing("No space left");
    // As a kubelet does: the new file begins with an entry, and is readable therefore.
    let old = at.join("app.log.20261121-010203");
    fs::rename(&log, &old).unwrap();
    reopen(&app);
    let before = fs::read(&old).unwrap();
    fs::remove_file(&old).unwrap();
    app.wait_works();
    // As logrotate does with copytruncate, in the middle of an entry.
    app.write(20_000);
    app.wait_failing("No space left");
    let middle = fs::read(&log).unwrap();
    File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    app.wait_works();
    let (_rig, written) = app.end();
    // What the old files have of an entry that did not fit is in the new ones again.
    let all = [whole(&before), whole(&middle), fs::read(log).unwrap()].concat();
    assert_eq!(account_cri(&all, written), 2);
}

#[test]
fn a_directory_that_is_gone() {
    let rig = Rig::new();
    let dir = rig.file("logs");
    let log = dir.join("app.log");
    let mut app = App::start(rig, &spec("cri", &log), &[]);
    app.write(10);
    eventually("it is written", || {
        fs::read(&log).is_ok_and(|l| l.split(|b| *b == b'\n').count() == 11)
    });
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way").unwrap();
    app.write(50_000);
    app.wait_failing("Not a directory");
    app.wait_seen();
    fs::remove_file(&dir).unwrap();
    app.wait_works();
    app.write(10);
    let (_rig, written) = app.end();
    let log = fs::read(log).unwrap();
    let entries = cri(&log);
    assert_eq!(account(entries.iter().map(|entry| entry.text), 10, written), 1);
}

#[test]
fn a_read_only_disk() {
    let rig = Rig::new();
    let at = rig.file("disk");
    if !disk(&at, "mode=755,size=8m,ro") {
        return;
    }
    let log = at.join("app.log");
    let mut app = App::start(rig, &spec("cri", &log), &[]);
    app.write(1000);
    app.wait_failing("Read-only");
    app.wait_seen();
    remount(&at, MsFlags::empty());
    app.wait_works();
    app.write(1000);
    let (_rig, written) = app.end();
    // There was room for it meanwhile.
    assert_eq!(account_cri(&fs::read(log).unwrap(), written), 0);
}

#[test]
fn a_file_that_may_not_grow() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let mut app = App::start(rig, &spec("cri", &log), &["--log-buffer", "256K"]);
    let limit = Rlimit { current: Some(1024 * 1024), maximum: None };
    let pid = rustix::process::Pid::from_raw(app.mux.pid().as_raw());
    rustix::process::prlimit(pid, Resource::Fsize, limit).unwrap();
    app.write(60_000);
    app.wait_failing("File too large");
    app.wait_seen();
    let old = app.rig.file("app.log.1");
    fs::rename(&log, &old).unwrap();
    let mut control = app.rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 0, "{}", control.stderr.text());
    app.wait_works();
    let (_rig, written) = app.end();
    let mut all = fs::read(old).unwrap();
    all.truncate(all.iter().rposition(|b| *b == b'\n').unwrap() + 1);
    all.extend(fs::read(log).unwrap());
    assert_eq!(account_cri(&all, written), 1);
}

/// A limit that is below the size for rotation: a file begins for what the full one cannot take.
#[test]
fn a_file_that_may_not_grow_is_rotated() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let app = App::start(rig, &spec("cri", &log), &["--log-max-size", "8M"]);
    let mut app = limited(app);
    app.write(20_000);
    app.wait_seen();
    let (_rig, written) = app.end();
    let files = [2, 1].map(|number| fs::read(numbered(&log, number)).unwrap());
    let all = [whole(&files[0]), whole(&files[1]), fs::read(&log).unwrap()].concat();
    assert_eq!(account_cri(&all, written), 0);
}

/// Nobody tells the mux that the full file was moved.
#[test]
fn a_file_that_may_not_grow_is_moved() {
    let rig = Rig::new();
    let log = rig.file("app.log");
    let app = App::start(rig, &spec("cri", &log), &[]);
    let mut app = limited(app);
    app.write(10_000);
    app.wait_failing("File too large");
    fs::rename(&log, numbered(&log, 1)).unwrap();
    app.wait_works();
    let (_rig, written) = app.end();
    let all = [whole(&fs::read(numbered(&log, 1)).unwrap()), fs::read(&log).unwrap()].concat();
    assert_eq!(account_cri(&all, written), 0);
}

/// An app whose mux may write files of 1 MiB.
fn limited(app: App) -> App {
    let limit = Rlimit { current: Some(1024 * 1024), maximum: None };
    let pid = rustix::process::Pid::from_raw(app.mux.pid().as_raw());
    rustix::process::prlimit(pid, Resource::Fsize, limit).unwrap();
    app
}

fn numbered(log: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", log.display()))
}

/// What is renamed when there is no inode for another file is written on, until there is one.
#[test]
fn a_log_that_was_moved_goes_on_when_it_can() {
    let rig = Rig::new();
    let at = rig.file("disk");
    if !disk(&at, "mode=755,size=8m,nr_inodes=3") {
        return;
    }
    let (log, old, ballast) = (at.join("app.log"), at.join("old"), at.join("ballast"));
    fs::write(&ballast, "").unwrap();
    let mut app = App::start(rig, &spec("cri", &log), &[]);
    fs::rename(&log, &old).unwrap();
    let mut control = app.rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 1);
    assert!(control.stderr.text().contains("No space left"), "{}", control.stderr.text());
    app.write(1000);
    // It may be read in the middle of an entry.
    let ends = || fs::read(&old).unwrap().split(|byte| *byte == b'\n').count() - 1;
    eventually("the old file is written on", || ends() == 1000);
    fs::remove_file(&ballast).unwrap();
    let app = RefCell::new(app);
    eventually("there is a new file", || {
        app.borrow_mut().write(1);
        log.exists()
    });
    let (_rig, written) = app.into_inner().end();
    let all = [fs::read(old).unwrap(), fs::read(log).unwrap()].concat();
    assert_eq!(account_cri(&all, written), 0);
}

/// Also from the beginning: the mux says why it cannot begin, and the app has the signal as it is usual.
#[test]
fn a_limit_of_files_is_no_silent_end() {
    // Tests run in processes of their own.
    let limited = |limit: u64, rig: &Rig, script: &str| {
        let limit = Rlimit { current: Some(limit), ..getrlimit(Resource::Fsize) };
        setrlimit(Resource::Fsize, limit).unwrap();
        rig.run(&["run", "--foreground", "--app", APP, "--", "sh", "-c", script])
    };
    let rig = Rig::new();
    let script = format!("ulimit -c 0; exec head -c 4M /dev/zero >{}", rig.file("large").display());
    let mut mux = limited(2 * 1024 * 1024, &rig, &script);
    assert_eq!(mux.ends(), 128 + Signal::SIGXFSZ as i32, "{}", mux.stderr.text());
    let mut mux = limited(0, &rig, "true");
    assert_eq!(mux.ends(), 1);
    let said = mux.stderr.text();
    assert!(said.starts_with("iottymux: ") && said.contains("File too large"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

/// A FIFO as target, its path, its size at the least there is.
fn fifo(rig: &Rig) -> PathBuf {
    let path = rig.file("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

#[test]
fn a_fifo_that_nobody_reads() {
    let rig = Rig::new();
    let path = fifo(&rig);
    let mut app = App::start(rig, &spec("cri", &path), &[]);
    app.write(50_000);
    app.wait_failing("No such device");
    app.wait_seen();
    let reader = Said::follow(File::open(&path).unwrap());
    app.wait_works();
    app.write(1000);
    let (_rig, written) = app.end();
    assert_eq!(account_cri(&reader.bytes(), written), 1);
}

#[test]
fn a_fifo_whose_reader_stops() {
    let rig = Rig::new();
    let path = fifo(&rig);
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    let mut app = App::start(rig, &spec("cri", &path), &[]);
    // More than the FIFO, the chunks and the backlog take: the app waits, but not for ever.
    app.write(50_000);
    app.wait_failing("");
    app.wait_seen();
    may_wait(&reader);
    let reader = Said::follow(reader);
    app.wait_works();
    app.write(1000);
    let (_rig, written) = app.end();
    assert_eq!(account_cri(&reader.bytes(), written), 1);
}

/// An app whose log is a FIFO that is full: what is written now waits for the reader.
fn hanging(rig: Rig, more: &[&str]) -> (App, File) {
    let path = fifo(&rig);
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let mut app = App::start(rig, &spec("cri", &path), more);
    app.write(1000);
    app.wait_seen();
    eventually("the FIFO is full", || rustix::io::ioctl_fionread(&reader).unwrap() == 4096);
    (app, reader)
}

/// Whoever asks for it again and again fills nothing while a target hangs; all are answered.
#[test]
fn a_hanging_target_is_reopened() {
    let rig = Rig::new();
    let other = rig.file("other.log");
    let (app, reader) = hanging(rig, &["--log", &spec("cri", &other)]);
    let asker = Asker::new(&app.rig);
    asker.request(br#"{"request":"reopen-logs"}"#, 70);
    for _ in 64..70 {
        let error = asker.answer().error.unwrap();
        assert!(error.contains("64 requests wait"), "{error}");
    }
    // The other log is opened anew all the same, as often as that is asked.
    for _ in 0..2 {
        fs::rename(&other, app.rig.file("moved")).unwrap();
        app.mux.signal(Signal::SIGHUP);
        eventually("it is there", || other.exists());
    }
    for _ in 0..64 {
        let error = asker.answer().error.unwrap();
        assert!(error.starts_with("log cri:/") && error.contains("fifo: it hangs"), "{error}");
        assert_eq!(error.matches("log ").count(), 1, "{error}");
    }
    may_wait(&reader);
    let reader = Said::follow(reader);
    asker.request(br#"{"request":"reopen-logs"}"#, 2);
    assert_eq!((asker.answer().error, asker.answer().error), (None, None));
    let (_rig, written) = app.end();
    assert_eq!(account_cri(&reader.bytes(), written), 0);
}

/// The waits of a log's thread are its own.
#[test]
fn signals_are_no_failures_of_a_log() {
    let (app, reader) = hanging(Rig::new(), &[]);
    // Signals to a process are any of its threads' that has not blocked them, mostly the first one's.
    let tasks = fs::read_dir(format!("/proc/{}/task", app.mux.pid())).unwrap();
    let log = tasks
        .map(|task| task.unwrap().path())
        .find(|task| fs::read_to_string(task.join("comm")).unwrap().starts_with("log "))
        .expect("a log has a thread");
    let status = fs::read_to_string(log.join("status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGWINCH] {
        assert_ne!(blocked & 1 << (signal as u64 - 1), 0, "{signal}: {status}");
    }
    for _ in 0..10_000 {
        app.mux.signal(Signal::SIGHUP);
    }
    may_wait(&reader);
    let reader = Said::follow(reader);
    let (_rig, written) = app.end();
    assert_eq!(account_cri(&reader.bytes(), written), 0);
}

/// From now on reading waits for bytes.
fn may_wait(reader: &File) {
    fcntl(reader, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

/// Reads slowly, until this many bytes have come.
fn read_slowly(mut from: &File, pause: Duration, piece: usize, until: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
    while all.len() < until {
        match from.read(&mut buffer) {
            // Before the mux has opened it.
            Ok(0) => {}
            Ok(len) => all.extend_from_slice(&buffer[..len]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        // This is what is being tested: a target that takes its time.
        std::thread::sleep(pause);
    }
    all
}

#[test]
fn a_slow_target_holds_the_app_back() {
    let rig = Rig::new();
    let path = fifo(&rig);
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    let mut app = App::start(rig, &spec("cri", &path), &[]);
    let stdout = app.stdout.try_clone().unwrap();
    let lines = 50_000;
    let writer = std::thread::spawn(move || write_numbered(stdout, 0, lines));
    app.written = lines;
    // 256 KiB, which are handed over at once, take longer than a write that hangs may.
    let mut all = read_slowly(&reader, Duration::from_millis(25), 1024, 240_000);
    assert!(app.rig.status()["logs"][0]["failing"].is_null());
    assert!(!writer.is_finished(), "the app was not held back");
    may_wait(&reader);
    let rest = Said::follow(reader);
    writer.join().unwrap();
    let (_rig, written) = app.end();
    all.extend(rest.bytes());
    assert_eq!(account_cri(&all, written), 0);
}

#[test]
fn a_slow_target_loses_lines_if_that_was_asked_for() {
    let rig = Rig::new();
    let path = fifo(&rig);
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&path).unwrap();
    let mut app = App::start(rig, &spec("cri", &path), &["--log-policy", "drop"]);
    let mut all = Vec::new();
    for _ in 0..3 {
        app.write(50_000);
        app.wait_seen();
        all.extend(read_slowly(&reader, Duration::ZERO, 4096, 100_000));
    }
    may_wait(&reader);
    let rest = Said::follow(reader);
    let lost = app.rig.status()["logs"][0]["lost_lines"].as_u64().unwrap();
    let (_rig, written) = app.end();
    all.extend(rest.bytes());
    assert!(account_cri(&all, written) > 0 && lost > 0);
}

/// What a log may lack is told to the line. The target may have a part of the last write.
#[test]
fn a_log_that_cannot_be_finished_is_reported() {
    const TEXT: u64 = LINE as u64 - 1;
    let rig = Rig::new();
    let fifos = ["unread", "stopped"].map(|name| {
        nix::unistd::mkfifo(&rig.file(name), Mode::S_IRWXU).unwrap();
        spec("cri", &rig.file(name))
    });
    let stopped = rig.file("stopped");
    let reader = File::options().read(true).custom_flags(O_NONBLOCK).open(stopped).unwrap();
    let files = ["cri", "raw", "json-file"].map(|format| spec(format, &rig.file(format)));
    let more: Vec<&str> = files.iter().chain([&fifos[1]]).flat_map(|log| ["--log", log]).collect();
    let mut app = App::start(rig, &fifos[0], &[&more[..], &["--log-buffer", "256K"]].concat());
    let limit = Rlimit { current: Some(1_000_000), maximum: None };
    let pid = rustix::process::Pid::from_raw(app.mux.pid().as_raw());
    rustix::process::prlimit(pid, Resource::Fsize, limit).unwrap();
    app.write(50_000);
    app.wait_seen();
    app.mux.signal(Signal::SIGTERM);
    assert_eq!(app.mux.ends(), 0);
    let stderr = app.mux.stderr.text();
    let told = |log: &str| -> [u64; 2] {
        let begin = format!("iottymux: error: log {log}: up to ");
        let told = stderr.lines().filter_map(|line| line.strip_prefix(&begin)).next_back();
        let (told, _) = told.unwrap().split_once(" bytes) are lost: ").unwrap();
        let (lines, bytes) = told.split_once(" lines (").unwrap();
        [lines, bytes].map(|number| number.parse().unwrap())
    };
    assert_eq!(told(&fifos[0]), [app.written, app.written * TEXT]);
    let read = |format| fs::read(app.rig.file(format)).unwrap();
    // The app waits in the middle of a line for the target that hangs: it may be a part of its own.
    let in_cri = |log: &[u8]| cri(&whole(log)).iter().filter(|entry| entry.last).count();
    may_wait(&reader);
    let json = String::from_utf8(read("json-file")).unwrap().matches("\\n\",\"stream\"").count();
    for (log, logged) in [
        (&files[0], in_cri(&read("cri"))),
        (&files[1], read("raw").split(|b| *b == b'\n').count() - 1),
        (&files[2], json),
        (&fifos[1], in_cri(&Said::follow(reader).bytes())),
    ] {
        let ([told, _], lost) = (told(log), app.written - logged as u64);
        assert!(lost <= told && told <= app.written, "{log}: {lost}, not {told}");
    }
}

/// Without an entry at the end that is not whole.
fn whole(log: &[u8]) -> Vec<u8> {
    log[..=log.iter().rposition(|b| *b == b'\n').unwrap()].to_vec()
}

/// Nobody knows how much of the last write is in there.
#[test]
fn a_fifo_has_the_last_write_of_a_killed_mux_twice_at_most() {
    let all: Vec<u8> = (0..50_000).flat_map(|n| format!("{n:099}\n").into_bytes()).collect();
    let rig = Rig::new();
    let path = fifo(&rig);
    // With a writer of its own it does not end with the mux.
    let mut both = File::options().read(true).write(true).open(&path).unwrap();
    let log = spec("raw", &path);
    let words = ["run", "--foreground", "--app", APP, "--log", &log, "--"];
    let script = "seq -f %099.0f 0 49999; read x";
    let mut keeper = rig.mux([&words[..], &["sh", "-c", script]].concat());
    let mut logged = vec![0; 1 << 20];
    both.read_exact(&mut logged).unwrap();
    change_mux(&rig, false);
    let reader = Said::follow(both.try_clone().unwrap());
    assert_eq!(rig.run(&["send", APP, "x"]).ends(), 0);
    assert_eq!(keeper.ends(), 0);
    both.write_all(b"the end").unwrap();
    reader.wait_for("the end");
    logged.extend(reader.so_far().into_bytes());
    let logged = logged.strip_suffix(b"the end").unwrap();
    let again = logged.len().checked_sub(all.len()).expect("bytes are missing");
    println!("{again} bytes are there twice");
    assert!(again <= 256 << 10, "{again} bytes are there twice");
    let same = logged.iter().zip(&all).take_while(|(a, b)| a == b).count();
    assert!(same >= again && logged[same..] == all[same - again..], "not once behind {same}");
}
