//! Real programs under a mux: what the oracle shows behind `attach`, beside the recording of the mux.
//!
//! `IOTTYMUX_LONG=1` runs all programs of the table. `IOTTYMUX_GOLDEN=1` also writes their recordings.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iottymux::types::size::Size;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cast::{self, Event};
use crate::form;
use crate::installed::is_installed;
use crate::oracle::Oracle;
use crate::proc::Proc;
use crate::programs::{Program, Step, programs};
use crate::pty::Pty;
use crate::recordings::RECORDINGS;
use crate::situations::{
    ALL, Changed, Detached, FIRST, LARGE, Larger, Live, SMALL, Same, Situation, Smaller, Table,
    Verdicts, left_wrong,
};
use crate::skip::skip;
use crate::wait::{PAUSE, WATCHDOG};

const APP: &str = "demo";
const ROOM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal/room");
const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
/// A program is idle when this many looks in a row show no work.
const LOOKS: usize = 4;
/// The time between two looks, more than a tick of the kernel's count of processor time.
const LOOK: Duration = Duration::from_millis(25);
/// How long the same is waited for: attach greets on the screen for five seconds, and what is wrong
/// stays so.
const PATIENCE: Duration = Duration::from_secs(15);
/// Programs that run at the same time: they wait for the greeting to go, most of the time.
const AT_ONCE: usize = 8;
/// Detaches: ctrl-p ctrl-q.
const DETACH: &[u8] = b"\x10\x11";

const SCRIPT: &str = "#!/bin/sh\n# Greets.\nfor name in a b c; do\n  echo \"hello $name\"\ndone\n";
const PAGE: &str = "<html><head><title>A page</title></head><body><h1>A page</h1><p>Some \
    <b>bold</b> text and <a href=\"two.html\">a link</a>.</p><ul><li>one</li></ul></body></html>\n";
const MANUAL: &str = ".TH TEST 1\n.SH NAME\ntest \\- of \\fBbold\\fP\n.SH LINES\n.nf\n";

/// A program, its mux, and what its recording shows.
struct Scene {
    dir: TempDir,
    mux: Proc,
    /// The events so far, and which of them are shown.
    events: RefCell<Vec<Event>>,
    shown: Cell<usize>,
    direct: RefCell<Oracle>,
    /// Marks, and the number of events before them.
    marks: RefCell<Vec<(usize, &'static str)>>,
}

/// A client at a terminal.
struct Client {
    pty: Pty,
    attach: RefCell<Proc>,
    oracle: RefCell<Oracle>,
    shown: Cell<usize>,
    size: Size,
}

impl Client {
    fn pump(&self) {
        let bytes = self.pty.shown.wait_len(0);
        let mut oracle = self.oracle.borrow_mut();
        oracle.process(&bytes[self.shown.replace(bytes.len())..]);
        let answers = oracle.answers();
        if !answers.is_empty() {
            self.pty.press(&answers);
        }
    }
}

fn binary(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iottymux"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("IOTTYMUX_STATE_DIR", state).env("IOTTYMUX_RECONNECT", "0");
    command
}

impl Scene {
    fn new(program: &Program) -> Self {
        let dir = form::directory("terminal");
        let files = dir.path().join("files");
        make_files(&files);
        let go = dir.path().join("go");
        nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut run = binary(&dir.path().join("state"));
        let record = format!("cast:{}", dir.path().join("cast").display());
        run.args(["run", "--foreground", "--name", APP, "--tty", "--size", "24x80"]);
        run.args(["--record", &record, "--", "sh", "-c"]);
        run.arg("read x <\"$1\"; shift; exec \"$@\"").arg("sh").arg(&go).arg(ROOM);
        run.arg(&files).arg(&program.run);
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mux = Proc::spawn(run);
        let scene = Self {
            dir,
            mux,
            events: RefCell::default(),
            shown: Cell::new(0),
            direct: RefCell::new(Oracle::new(FIRST)),
            marks: RefCell::default(),
        };
        // The last file that it makes.
        scene.wait("the mux is there", || scene.file("endpoints").exists());
        scene
    }

    /// A file of the app.
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("state").join(APP).join(name)
    }

    /// The program begins.
    fn go(&self) {
        fs::write(self.dir.path().join("go"), "go\n").unwrap();
    }

    fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let until = Instant::now() + WATCHDOG;
        while !holds() {
            assert!(
                Instant::now() < until,
                "waited in vain until {what}; it shows:\n{}",
                self.direct.borrow_mut().view().text()
            );
            thread::sleep(PAUSE);
        }
    }

    /// Shows what was recorded since.
    fn pump(&self) {
        let text = fs::read_to_string(self.dir.path().join("cast")).unwrap_or_default();
        let events = cast::parse(&text);
        let mut direct = self.direct.borrow_mut();
        for event in &events[self.shown.replace(events.len())..] {
            match event {
                Event::Output(bytes) => direct.process(bytes),
                Event::Size(size) => direct.resize(*size),
                Event::Mark(_) => {}
            }
        }
        direct.answers();
        drop(direct);
        self.events.replace(events);
    }

    fn attach(&self, size: Size) -> Client {
        let pty = Pty::open(size.rows, size.cols);
        let mut command = binary(&self.dir.path().join("state"));
        command.args(["attach", APP, "--no-history"]);
        let attach = pty.spawn(command);
        let client = Client {
            pty,
            attach: attach.into(),
            oracle: Oracle::new(size).into(),
            shown: Cell::new(0),
            size,
        };
        self.wait("the client is attached", || client.pty.is_raw());
        self.wait("the client has the screen", || {
            client.pump();
            client.shown.get() > 0
        });
        client
    }

    /// Waits until the program does nothing, and what it has printed is shown.
    fn settle(&self, client: Option<&Client>) {
        let work = || (work_of(self.mux.pid().as_raw()), self.shown.get());
        let (mut before, mut looks) = (None, 0);
        let until = Instant::now() + WATCHDOG;
        while looks < LOOKS && Instant::now() < until {
            if let Some(client) = client {
                client.pump();
            }
            self.pump();
            let now = work();
            let is_idle = now.0.is_some() && before.as_ref() == Some(&now);
            looks = if is_idle { looks + 1 } else { 0 };
            before = Some(now);
            thread::sleep(LOOK);
        }
    }

    /// Types, and waits for what the step shows.
    fn step(&self, step: &Step, client: Option<&Client>) {
        match client {
            Some(client) if !step.keys.is_empty() => client.pty.press(&step.keys),
            None if !step.keys.is_empty() => {
                UnixStream::connect(self.file("sock-tty")).unwrap().write_all(&step.keys).unwrap();
            }
            _ => {}
        }
        self.wait(&format!("{:?} is shown", step.shows), || {
            if let Some(client) = client {
                client.pump();
            }
            self.pump();
            self.direct.borrow_mut().view().text().contains(&step.shows)
        });
        self.settle(client);
    }

    fn mark(&self, name: &'static str) {
        self.marks.borrow_mut().push((self.shown.get(), name));
    }

    /// What differs between the client's terminal and the recording, after some patience.
    fn judge(&self, situation: Situation, client: &Client) -> Option<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            client.pump();
            self.pump();
            let want = self.direct.borrow_mut().view();
            let difference = situation.difference(&client.oracle.borrow_mut().view(), &want);
            if difference.is_none() || Instant::now() > until {
                return difference;
            }
            thread::sleep(LOOK);
        }
    }

    /// Detaches. Why the terminal is not as it was.
    fn leave(&self, client: &Client) -> Option<String> {
        client.pty.press(DETACH);
        self.wait("the client has left", || {
            // It asks the terminal whether all was shown.
            client.pump();
            client.attach.borrow_mut().child.try_wait().unwrap().is_some()
        });
        if !client.pty.is_as_before() {
            return Some("stty differs".to_owned());
        }
        (&client.pty.slave).write_all(b"\x1b[5n").unwrap();
        self.wait("all is shown", || client.pty.shown.so_far().contains("\x1b[5n"));
        client.pump();
        left_wrong(&mut client.oracle.borrow_mut(), client.size)
    }

    /// All six situations.
    fn play(&self, program: &Program, verdicts: &Mutex<Verdicts>) {
        let add = |situation, verdict| verdicts.lock().unwrap().push((situation, verdict));
        let client = self.attach(FIRST);
        self.go();
        self.step(&program.start, Some(&client));
        self.step(&program.live, Some(&client));
        self.mark("live");
        add(Live, self.judge(Live, &client));
        add(Detached, self.leave(&client));
        let client = self.attach(FIRST);
        self.settle(Some(&client));
        add(Same, self.judge(Same, &client));
        self.leave(&client);
        for (size, step, situation, name) in [
            (LARGE, &program.larger, Larger, "larger"),
            (SMALL, &program.smaller, Smaller, "smaller"),
        ] {
            let client = self.attach(size);
            self.settle(Some(&client));
            self.step(step, Some(&client));
            self.mark(name);
            add(situation, self.judge(situation, &client));
            self.leave(&client);
        }
        let client = self.attach(FIRST);
        self.settle(Some(&client));
        self.leave(&client);
        self.mark("away");
        self.step(&program.away, None);
        self.mark("changed");
        let client = self.attach(FIRST);
        add(Changed, self.judge(Changed, &client));
    }

    /// The events with the marks between them.
    fn recording(&self) -> Vec<Event> {
        let events = self.events.borrow();
        let marks = self.marks.borrow();
        let mut all = Vec::new();
        let mut from = 0;
        for (at, name) in marks.iter() {
            all.extend_from_slice(&events[from..*at]);
            all.push(Event::Mark((*name).to_owned()));
            from = *at;
        }
        // The first size is that of the header.
        let sized = all.iter().position(|event| matches!(event, Event::Output(_))).unwrap_or(0);
        all.drain(..sized);
        all
    }
}

impl Drop for Scene {
    /// Ends the program. Its mux ends with it, and leaves nothing behind.
    fn drop(&mut self) {
        let is_ours = |pid: &i32| {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|path| path == Path::new(env!("CARGO_BIN_EXE_iottymux")))
        };
        let below = descendants(self.mux.pid().as_raw());
        for pid in below.into_iter().filter(|pid| !is_ours(pid)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !matches!(self.mux.child.try_wait(), Ok(Some(_))) {
            thread::sleep(PAUSE);
        }
    }
}

/// Parents and states of all processes: pid, parent, state, ticks.
fn processes() -> BTreeMap<i32, (i32, char, u64)> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        Some((pid, (fields[1].parse().ok()?, fields[0].chars().next()?, ticks)))
    })
    .collect()
}

/// The processes below this one.
fn descendants(of: i32) -> Vec<i32> {
    let all = processes();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        while let Some((parent, ..)) = all.get(&at) {
            if *parent == of {
                return true;
            }
            at = *parent;
        }
        false
    };
    all.keys().copied().filter(is_below).collect()
}

/// The processor time of the processes below this one; none while one of them runs.
fn work_of(pid: i32) -> Option<Vec<(i32, u64)>> {
    let all = processes();
    descendants(pid)
        .into_iter()
        .filter_map(|pid| Some((pid, *all.get(&pid)?)))
        .map(|(pid, (_, state, ticks))| (!matches!(state, 'R' | 'D')).then_some((pid, ticks)))
        .collect()
}

/// What the programs show: files of the project, and of nobody else.
fn make_files(dir: &Path) {
    fs::create_dir_all(dir.join("notes")).unwrap();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    fs::copy(Path::new(PROJECT).join("README.md"), dir.join("README.md")).unwrap();
    let lines = (1..=300).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "{n} line number {n} of many");
        lines
    });
    write("lines", &lines);
    write("notes/one.txt", "first note\nsecond line\n");
    write("notes/two.txt", "another note\n");
    write("script.sh", SCRIPT);
    write("page.html", PAGE);
    let mut manual = MANUAL.to_owned();
    for n in 1..=200 {
        let _ = writeln!(manual, "\\fB{n}\\fP \\fIth\\fP line");
    }
    write("page.1", &manual);
}

/// Whether programs can have a room of their own here.
fn has_rooms() -> bool {
    let dir = form::directory("room");
    let mut command = Command::new(ROOM);
    command.arg(dir.path()).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Judges a program in each situation. What panics is wrong in the next one.
fn play(program: &Program) -> Verdicts {
    let verdicts = Mutex::new(Vec::new());
    let played = panic::catch_unwind(AssertUnwindSafe(|| {
        let scene = Scene::new(program);
        scene.play(program, &verdicts);
        if std::env::var("IOTTYMUX_GOLDEN").is_ok_and(|value| value == "1") {
            let path = Path::new(RECORDINGS).join(program.name.clone() + ".cast");
            cast::write(&path, FIRST, &scene.recording()).unwrap();
        }
    }));
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = played {
        let why = why.downcast_ref::<String>().map_or("it panicked", String::as_str).to_owned();
        verdicts.push((ALL[verdicts.len()], Some(why)));
    }
    verdicts
}

/// The programs that this run is about.
fn wanted() -> Vec<Program> {
    let only = std::env::var("IOTTYMUX_PROGRAMS").unwrap_or_default();
    let is_wanted = |program: &Program| {
        if only.is_empty() {
            form::is_long() || program.is_short
        } else {
            only.split(',').any(|name| name == program.name)
        }
    };
    let is_here = |program: &Program| {
        let missing = program.needs.iter().find(|name| !is_installed(name));
        if let Some(name) = missing {
            skip(name, "it is not installed");
        }
        missing.is_none()
    };
    programs().into_iter().filter(|program| is_wanted(program) && is_here(program)).collect()
}

#[test]
fn programs_are_redrawn() {
    if !has_rooms() {
        return skip("mount", "programs need a room of their own");
    }
    let programs = wanted();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, program)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    programs.get(at).map(|program| (at, program))
                } {
                    let verdicts = play(program);
                    done.lock().unwrap().insert(at, verdicts);
                }
            });
        }
    });
    let mut table = Table::default();
    for (at, verdicts) in done.into_inner().unwrap() {
        table.add(&programs[at].name, verdicts);
    }
    let wrong = table.sum_up("programs");
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
}
