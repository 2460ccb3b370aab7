//! The app in the pods: this test binary, as systemd starts it there.
//!
//! Beside its records it keeps a file per source: how many records it has begun and written, and
//! its longest write. These do not go through a mux, so they are what sinks are judged by.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::termios::{self, InputFlags, LocalFlags, SetArg};
use serde::{Deserialize, Serialize};

use crate::record::{Id, Source};

/// Set for the app.
const VARIABLE: &str = "IOTTYMUX_FAULTS_APP";
/// The directory of a round, as the app sees it.
const ROUND: &str = "/shared/round";
/// The app's standard output and error, out of the way of what the test's harness prints.
const OUTPUTS: [&str; 2] = ["/dev/fd/3", "/dev/fd/4"];
/// The app's standard input.
const INPUT: &str = "/dev/fd/5";
/// How long the mux may take to hand over the last input, which it has by then.
const LAST: Duration = Duration::from_millis(5);

/// How fast the app writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// Records that are written at once, at most.
    pub batch: u64,
    /// Batches without a pause between them.
    pub batches: u64,
    /// The pause then, milliseconds.
    pub pause: u64,
}

/// How far one source is in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records of which some bytes may be written.
    pub begun: u64,
    /// Records that are written.
    pub done: u64,
    /// The longest write, microseconds.
    pub longest: u64,
}

/// The service's lines by which this binary is the app. What its hooks say goes to a file of the
/// round: on the app's standard error a log may lose it, and counts it, but the app does not.
pub fn unit(sources: &[Source]) -> String {
    let letters: String = sources.iter().map(|source| source.letter()).collect();
    let hook = |when, what| {
        format!(
            "{when}=\n{when}=-+/bin/sh -c 'exec iottymux --state-dir /run/iottymux control \
             --app %N {what} 2>>{ROUND}/muxes'\n"
        )
    };
    format!(
        "[Service]\nEnvironment={VARIABLE}={letters}\nRestart=on-failure\nRestartSec=20ms\n\
         ExecStart=\nExecStart=/bin/sh -c 'exec 3>&1 4>&2 5<&0 </dev/null >/dev/null 2>&1; \
         exec /shared/app --exact {} --nocapture'\n{}{}",
        concat!(module_path!(), "::the_app_writes_what_it_counts").split_once("::").unwrap().1,
        hook("ExecStartPost", "started"),
        hook("ExecStopPost", "ended"),
    )
}

/// How many runs the app has begun in a round.
pub fn runs(round: &Path) -> usize {
    let names = fs::read_dir(round).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(b"run-")).count()
}

/// The directory of one run of the app.
pub fn run_dir(round: &Path, run: usize) -> PathBuf {
    round.join(format!("run-{run}"))
}

impl Progress {
    pub fn read(run_dir: &Path, source: Source) -> Self {
        let mut words = [0; 24];
        if let Ok(file) = File::open(run_dir.join(source.letter().to_string())) {
            let _ = file.read_exact_at(&mut words, 0);
        }
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        Self { begun: word(0), done: word(8), longest: word(16) }
    }

    fn write(self, to: &File) {
        let words = [self.begun, self.done, self.longest].map(u64::to_le_bytes);
        to.write_all_at(words.as_flattened(), 0).unwrap();
    }
}

/// Reports new names in the directory of a round.
fn watch(round: &Path) -> Inotify {
    let watch = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
    watch.add_watch(round, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO).unwrap();
    watch
}

/// Waits until one of these files is in the directory of a round.
fn await_any(round: &Path, names: &[&str]) {
    let watch = watch(round);
    while !names.iter().any(|name| round.join(name).exists()) {
        watch.read_events().unwrap();
    }
}

/// Writes records until a file `stop` is there, or `enough` for the input.
fn write_records(mut output: impl Write, round: &Path, run: usize, source: Source, pace: Pace) {
    let dir = run_dir(round, run);
    let counts = File::create(dir.join(source.letter().to_string())).unwrap();
    let mut at = Progress::default();
    let mut batch = Vec::new();
    let stop = if source == Source::Input { "enough" } else { "stop" };
    await_any(round, &["go", stop]);
    let stop = round.join(stop);
    while !stop.exists() {
        for turn in 0..pace.batches {
            // Batches of all sizes: their ends fall anywhere into a pipe.
            let until = at.done + 1 + (at.done + turn) % pace.batch;
            batch.clear();
            for number in at.done..until {
                batch.extend_from_slice(Id { source, run, number }.text().as_bytes());
                batch.push(b'\n');
            }
            at.begun = until;
            at.write(&counts);
            let before = Instant::now();
            if let Err(e) = output.write_all(&batch) {
                fs::write(dir.join("error"), format!("{source:?}: {e}")).unwrap();
                return;
            }
            let took = u64::try_from(before.elapsed().as_micros()).unwrap();
            at = Progress { done: until, longest: at.longest.max(took), ..at };
            at.write(&counts);
        }
        thread::sleep(Duration::from_millis(pace.pause));
    }
}

/// Types records as the app's input, from outside of the pod, until a file `enough` is there.
pub fn type_records(output: impl Write, round: &Path) {
    write_records(output, round, 0, Source::Input, read_pace(round));
}

/// The file with the input that a run of the app has received.
pub fn received(round: &Path, run: usize) -> PathBuf {
    run_dir(round, run).join("received")
}

/// Keeps what it reads, until a file `stop` is there and nothing is left.
fn read_input(round: &Path, run: usize) {
    let mut input = File::open(INPUT).unwrap();
    let mut kept = File::create(received(round, run)).unwrap();
    if input.is_terminal() {
        // A terminal that passes on each byte at once, and echoes none. What it prints is as usual.
        let mut modes = termios::tcgetattr(&input).unwrap();
        modes.local_flags = LocalFlags::empty();
        modes.input_flags = InputFlags::empty();
        termios::tcsetattr(&input, SetArg::TCSANOW, &modes).unwrap();
    }
    let mut buffer = vec![0; 64 << 10];
    let names = watch(round);
    loop {
        let is_over = round.join("stop").exists();
        let time = if is_over { PollTimeout::try_from(LAST).unwrap() } else { PollTimeout::NONE };
        let mut fds = [input.as_fd(), names.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, time).unwrap();
        let [has_input, has_names] = fds.map(|fd| fd.any() == Some(true));
        if has_input {
            let len = input.read(&mut buffer).unwrap();
            assert!(len > 0, "the input has ended");
            kept.write_all(&buffer[..len]).unwrap();
        } else if has_names {
            names.read_events().unwrap();
        } else if is_over {
            return;
        }
    }
}

fn read_pace(round: &Path) -> Pace {
    serde_json::from_slice(&fs::read(round.join("pace")).unwrap()).unwrap()
}

/// The app, from its start to its end.
fn run(letters: &str) {
    let round = Path::new(ROUND);
    let pace = read_pace(round);
    let mut run = 0;
    while let Err(e) = fs::create_dir(run_dir(round, run)) {
        assert_eq!(e.kind(), ErrorKind::AlreadyExists, "{e}");
        run += 1;
    }
    let has = |source: &Source| letters.contains(source.letter());
    thread::scope(|scope| {
        for source in Source::ALL.into_iter().filter(has) {
            if source == Source::Input {
                scope.spawn(move || read_input(round, run));
                continue;
            }
            let path = OUTPUTS[usize::from(source == Source::Stderr)];
            let output = OpenOptions::new().write(true).open(path).unwrap();
            scope.spawn(move || write_records(output, round, run, source, pace));
        }
    });
    await_any(round, &["stop"]);
}

/// In a pod this is the app itself (see [`unit`]).
#[test]
fn the_app_writes_what_it_counts() {
    if let Ok(letters) = std::env::var(VARIABLE) {
        return run(&letters);
    }
    let round = tempfile::tempdir().unwrap();
    let dir = run_dir(round.path(), 0);
    fs::create_dir(&dir).unwrap();
    fs::write(round.path().join("stop"), "").unwrap();
    let pace = Pace { batch: 10, batches: 200, pause: 0 };
    let source = Source::Stdout;
    let mut written = Vec::new();
    write_records(&mut written, round.path(), 0, source, pace);
    assert!(written.is_empty(), "it was to stop at once");
    fs::rename(round.path().join("stop"), round.path().join("go")).unwrap();
    let stopper = Stopper { to: &mut written, round: round.path() };
    write_records(stopper, round.path(), 0, source, pace);
    let lines: Vec<_> = written.split_inclusive(|byte| *byte == b'\n').collect();
    let at = Progress::read(&dir, source);
    assert_eq!((at.begun, at.done), (lines.len() as u64, lines.len() as u64));
    for (number, line) in (0..).zip(lines) {
        let id = Id::parse(line.strip_suffix(b"\n").unwrap());
        assert_eq!(id, Some(Id { source, run: 0, number }));
    }
}

/// An output that ends the app as soon as it has written.
struct Stopper<'a> {
    to: &'a mut Vec<u8>,
    round: &'a Path,
}

impl Write for Stopper<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        fs::write(self.round.join("stop"), "")?;
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
