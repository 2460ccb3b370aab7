//! Apps write as fast as they can while their muxes are killed, restarted and upgraded at random: each
//! sink has each line once, whole and in its order. The sinks are two logs of streams, a session that
//! reads at once, one that pauses within its patience, the session and the log of a terminal, and
//! what comes back from an app that gets its lines by `attach` and repeats them.
//!
//! The apps are this test binary. They write down how long their writes were blocked, which is
//! printed and never judged.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memchr::memmem;
use nix::sys::termios::{self, OutputFlags, SetArg};

use crate::pod::{BINARY, Pod, other_release, project_file, rounds};
use crate::random::{self, Random};
use crate::wait::eventually;

/// Bursts, in each of which a mux is killed; in the long form the streams are 2 GB.
const BURSTS: (usize, usize) = (10, 200);
/// Lines of each stream in a burst, and of a terminal and of a pipe, which are slower.
const LINES: (usize, usize) = (20_000, 50_000);
const SLOW_LINES: (usize, usize) = (5_000, 10_000);
/// Bytes of a line.
pub const LEN: usize = 100;
/// The latest moment of a kill in a burst, milliseconds: about when the burst has ended.
const LATEST: usize = 80;
/// The mux of the terminal is killed beside the other in one burst of so many.
const TERMINAL_KILLS: usize = 3;
/// The longest pause of the session that pauses, milliseconds: a part of the patience of a second.
const PAUSE: usize = 300;
/// It pauses after one line of so many.
const PAUSES: usize = 20_000;
/// A write of the app that takes longer was blocked, microseconds.
const BLOCKED: u64 = 1000;
/// About how long the next mux takes to read after a kill, microseconds. Writes that begin then are
/// blocked by the kill.
const MUX_STARTS: u64 = 50_000;
/// Lines that the app writes at once, at most.
const BATCH: usize = 600;
/// The service that the one with the pipe is made of.
const EXAMPLE: &str = "docs/examples/demo.service";
/// How long an attach looks for the next mux, seconds.
const RECONNECT: &str = "30";
/// Bytes at the end of a log in which the last lines of all streams are: more than the last burst of
/// one stream, which may come behind the end of the other.
const TAIL: u64 = 16 << 20;

/// Set for the app: the letters of its outputs.
const APP: &str = "IOTTYMUX_FLOOD";

// ---- the app ----

/// The `number`th line of a stream, without its end.
fn line(letter: char, number: usize) -> String {
    let head = format!("{letter}{number:010} ");
    let filler = "x".repeat(LEN - 1 - head.len());
    head + &filler
}

/// The service's lines by which this binary is the app.
fn unit(letters: &str) -> String {
    format!(
        "[Service]\nEnvironment={APP}={letters}\nExecStart=\nExecStart=/bin/sh -c 'exec 3>&1 4>&2 \
         </dev/null >/dev/null 2>&1; exec /shared/app --exact flood::the_app --nocapture'\n"
    )
}

/// Microseconds since 1970, here and in the pod.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// In a pod this is the app (see [`unit`]).
#[test]
fn the_app() {
    let letters = std::env::var(APP).unwrap_or_default();
    thread::scope(|scope| {
        for letter in letters.chars() {
            let output = if letter == 'e' { "/dev/fd/4" } else { "/dev/fd/3" };
            let output = OpenOptions::new().write(true).open(output).unwrap();
            if let Ok(mut modes) = termios::tcgetattr(&output) {
                modes.output_flags.remove(OutputFlags::OPOST);
                termios::tcsetattr(&output, SetArg::TCSANOW, &modes).unwrap();
            }
            scope.spawn(move || write_bursts(letter, Path::new("/shared"), output));
        }
    });
    if !letters.is_empty() {
        // Until systemd ends it.
        loop {
            thread::park();
        }
    }
}

/// Writes the lines of each pair of numbers that it reads; at last a line without a number, and the
/// blocked writes into a file.
fn write_bursts(letter: char, shared: &Path, mut output: impl Write) {
    let mut blocked = Vec::new();
    let mut random = Random::new(u64::from(u32::from(letter)));
    let bursts = File::open(shared.join(format!("bursts-{letter}"))).unwrap();
    for burst in BufReader::new(bursts).lines() {
        let burst = burst.unwrap();
        let (first, end) = burst.split_once(' ').unwrap();
        let (mut at, end): (usize, usize) = (first.parse().unwrap(), end.parse().unwrap());
        while at < end {
            let next = end.min(at + 1 + random.below(BATCH));
            let batch: String = (at..next).map(|number| line(letter, number) + "\n").collect();
            let began = now();
            output.write_all(batch.as_bytes()).unwrap();
            let took = now().saturating_sub(began);
            if took >= BLOCKED {
                blocked.push(format!("{began} {took}"));
            }
            at = next;
        }
    }
    fs::write(shared.join(format!("blocked-{letter}")), blocked.join("\n")).unwrap();
    output.write_all(format!("{letter}end\n").as_bytes()).unwrap();
}

/// The app as the test sees it: it begins a burst with each line that it reads here.
struct Flood {
    letter: char,
    bursts: File,
    lines: usize,
}

impl Flood {
    fn new(pod: &Pod, letter: char) -> Self {
        let fifo = pod.shared_fifo(&format!("bursts-{letter}"));
        let bursts = OpenOptions::new().read(true).write(true).open(fifo).unwrap();
        Self { letter, bursts, lines: 0 }
    }

    fn burst(&mut self, lines: usize) {
        let first = self.lines;
        self.lines += lines;
        writeln!(self.bursts, "{first} {}", self.lines).unwrap();
        eventually("the burst begins", || rustix::io::ioctl_fionread(&self.bursts).unwrap() == 0);
    }

    /// The app reads the end of the bursts. Returns the lines that it has written.
    fn end(self, pod: &Pod) -> (char, usize) {
        let name = format!("bursts-{}", self.letter);
        // A FIFO that is opened for reading and writing has no end.
        drop(OpenOptions::new().write(true).open(pod.shared(&name)).unwrap());
        drop(self.bursts);
        (self.letter, self.lines)
    }
}

/// How long the app's writes were blocked around each kill: those that a kill met, and all until the
/// next kill, which wait for slow clients and logs as well.
struct Blocked {
    met: Spread,
    all: Spread,
}

/// The longest and the median of some times.
struct Spread {
    longest: Duration,
    median: Duration,
}

impl Blocked {
    /// Of the writes to these streams.
    fn around(kills: &[u64], letters: &str, pod: &Pod) -> Self {
        let mut writes: Vec<(u64, u64)> = Vec::new();
        for letter in letters.chars() {
            let text = fs::read_to_string(pod.shared(&format!("blocked-{letter}"))).unwrap();
            for line in text.lines() {
                let (began, took) = line.split_once(' ').unwrap();
                writes.push((began.parse().unwrap(), took.parse().unwrap()));
            }
        }
        let next = kills.iter().skip(1).copied().chain([u64::MAX]);
        // Before the next mux is there, another write can begin: its stage has room.
        let begins = |kill: u64| kill + MUX_STARTS;
        let longest = |kill: u64, until: u64| {
            let is_around = |(began, took): &&(u64, u64)| began + took >= kill && *began < until;
            writes.iter().filter(is_around).map(|(_, took)| *took).max().unwrap_or(0)
        };
        let met = kills.iter().map(|kill| longest(*kill, begins(*kill)));
        let all = kills.iter().zip(next).map(|(kill, next)| longest(*kill, next));
        Self { met: Spread::of(met), all: Spread::of(all) }
    }
}

impl Spread {
    /// Of times in microseconds.
    fn of(times: impl Iterator<Item = u64>) -> Self {
        let mut each: Vec<u64> = times.collect();
        each.sort_unstable();
        let at = |index: usize| Duration::from_micros(each.get(index).copied().unwrap_or(0));
        Self { longest: at(each.len().saturating_sub(1)), median: at(each.len() / 2) }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { met, all } = self;
        write!(
            f,
            "longest blocked write {:.1?}, median {:.1?}; at a kill {:.1?}, {:.1?}",
            all.longest, all.median, met.longest, met.median
        )
    }
}

// ---- what a sink has ----

/// The lines of one stream in one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    lines: usize,
    lost: usize,
    repeated: usize,
    torn: usize,
    /// The number after the last one.
    next: usize,
    pub has_end: bool,
}

impl Tally {
    pub fn whole(lines: usize) -> Self {
        Self { lines, next: lines, has_end: true, ..Self::default() }
    }

    /// The next line, without its end.
    fn count(&mut self, letter: char, text: &[u8]) {
        if text.strip_suffix(b"end") == Some(&[letter as u8]) {
            self.has_end = true;
            return;
        }
        let number = text.get(1..11).and_then(|number| str::from_utf8(number).ok()?.parse().ok());
        match number.filter(|number| line(letter, *number).as_bytes() == text) {
            None => self.torn += 1,
            Some(number) if number < self.next => self.repeated += 1,
            Some(number) => {
                self.lines += 1;
                self.lost += number - self.next;
                self.next = number + 1;
            }
        }
    }
}

/// What came out of one of the outputs of `attach`.
struct Output {
    letter: char,
    tally: Tally,
    bytes: usize,
    /// Messages of `attach` itself.
    said: Vec<String>,
}

/// All that a session has had, and what it was told.
#[derive(Debug, Default)]
struct Received {
    tallies: BTreeMap<char, Tally>,
    bytes: usize,
    /// Bytes that `attach` says are missing.
    told: usize,
    code: i32,
    said: Vec<String>,
}

/// An attach whose output is judged while it comes.
struct Session {
    child: Child,
    readers: Vec<JoinHandle<Output>>,
    /// The lines of all streams so far.
    lines: Arc<AtomicUsize>,
    ends: Arc<AtomicUsize>,
}

impl Session {
    /// `letters` are those of its standard output and error. With a seed it pauses.
    fn start(pod: &Pod, app: &str, letters: &str, seed: Option<u64>) -> Self {
        let mode = match letters {
            "t" => "tty-out",
            "p" => "stdin,stdout",
            _ => "stdout,stderr",
        };
        let mut child = Command::new(BINARY)
            .arg("--state-dir")
            .arg(pod.path("/run/iottymux"))
            .args(["attach", "--app", app, "--mode", mode, "--reconnect", RECONNECT])
            .args(["--from", "start"])
            .stdin(if letters == "p" { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(input) = child.stdin.take() {
            // It is the program in front of the pipe.
            let shared = pod.shared("");
            thread::spawn(move || write_bursts('p', &shared, input));
        }
        let (lines, ends) = (Arc::default(), Arc::default());
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        // Where the app has no standard error there are only messages.
        let letters = letters.chars().chain(['-']);
        let readers = outputs.into_iter().zip(letters).map(|(output, letter)| {
            let (lines, ends) = (Arc::clone(&lines), Arc::clone(&ends));
            let random = seed.filter(|_| letter != 'e').map(Random::new);
            thread::spawn(move || read_lines(output, letter, random, &lines, &ends))
        });
        Self { readers: readers.collect(), child, lines, ends }
    }

    fn has_begun(&self) -> bool {
        self.lines.load(Ordering::Relaxed) > 0
    }

    /// Waits for its end.
    fn end(mut self) -> Received {
        let mut received = Received::default();
        for reader in self.readers {
            let Output { letter, tally, bytes, said } = reader.join().unwrap();
            if letter != '-' {
                received.tallies.insert(letter, tally);
            }
            received.bytes += bytes;
            received.said.extend(said);
        }
        let told = |line: &String| {
            let (before, _) = line.split_once(" bytes were lost: ")?;
            before.rsplit(' ').next()?.parse::<usize>().ok()
        };
        received.told = received.said.iter().filter_map(told).sum();
        received.code = self.child.wait().unwrap().code().unwrap();
        received
    }
}

/// Judges lines as they come. Messages of `attach` are taken out of them.
fn read_lines(
    from: impl Read,
    letter: char,
    mut random: Option<Random>,
    lines: &AtomicUsize,
    ends: &AtomicUsize,
) -> Output {
    const MESSAGE: &[u8] = b"iottymux: ";
    let mut from = BufReader::with_capacity(64 << 10, from);
    let (mut tally, mut bytes, mut said) = (Tally::default(), 0, Vec::new());
    let (mut text, mut chunk) = (Vec::new(), Vec::new());
    loop {
        chunk.clear();
        if from.read_until(b'\n', &mut chunk).unwrap() == 0 {
            break;
        }
        if let Some(at) = memmem::find(&chunk, MESSAGE) {
            said.push(String::from_utf8_lossy(&chunk[at..]).trim_end().to_owned());
            chunk.truncate(at);
        }
        bytes += chunk.len();
        text.extend_from_slice(&chunk);
        if let Some(line) = text.strip_suffix(b"\n") {
            tally.count(letter, line);
            lines.fetch_add(1, Ordering::Relaxed);
            if line.ends_with(b"end") {
                ends.fetch_add(1, Ordering::Relaxed);
            }
            text.clear();
        }
        if let Some(random) = &mut random
            && random.one_in(PAUSES)
        {
            thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
        }
    }
    tally.torn += usize::from(!text.is_empty());
    Output { letter, tally, bytes, said }
}

/// Counts the lines of both streams in a log.
pub fn read_log(log: &Path, letters: &str) -> BTreeMap<char, Tally> {
    let text = if log.ends_with("json-file") { json_text } else { cri_text };
    let mut from = BufReader::with_capacity(1 << 20, File::open(log).unwrap());
    let mut tallies: BTreeMap<char, Tally> =
        letters.chars().map(|letter| (letter, Tally::default())).collect();
    let (mut parts, mut entry) = (BTreeMap::<char, Vec<u8>>::new(), Vec::new());
    loop {
        entry.clear();
        if from.read_until(b'\n', &mut entry).unwrap() == 0 {
            break;
        }
        let is_stderr = memmem::find(&entry, b"stderr").is_some();
        let letter = letters.chars().nth(usize::from(is_stderr)).unwrap();
        let tally = tallies.get_mut(&letter).unwrap();
        let Some((part, is_end)) = entry.strip_suffix(b"\n").and_then(text) else {
            tally.torn += 1;
            continue;
        };
        let line = parts.entry(letter).or_default();
        line.extend_from_slice(part);
        if is_end {
            tally.count(letter, line);
            line.clear();
        }
    }
    tallies
}

/// The text of an entry, and whether its line ends there.
fn cri_text(entry: &[u8]) -> Option<(&[u8], bool)> {
    let tag = "2016-10-06T00:17:09.669794202Z stdout ".len();
    Some((entry.get(tag + 2..)?, entry[tag] == b'F'))
}

fn json_text(entry: &[u8]) -> Option<(&[u8], bool)> {
    let text = entry.strip_prefix(b"{\"log\":\"")?;
    let text = &text[..memmem::find(text, b"\",\"stream\"")?];
    Some(text.strip_suffix(b"\\n").map_or((text, false), |text| (text, true)))
}

/// Whether a log has the last lines of all streams.
fn has_end(log: &Path, letters: &str) -> bool {
    use std::io::{Seek, SeekFrom};
    let Ok(mut file) = File::open(log) else { return false };
    let size = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL))).unwrap();
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    letters.chars().all(|letter| memmem::find(&end, format!("{letter}end").as_bytes()).is_some())
}

// ---- the flood ----

/// An app with its mux, its sinks, and its bursts.
struct Stage {
    service: String,
    mux: &'static str,
    app: &'static str,
    letters: &'static str,
    logs: &'static [&'static str],
    floods: Vec<Flood>,
    sessions: Vec<(&'static str, Session)>,
    /// When the mux was killed, as [`now`].
    kills: Vec<u64>,
    process: String,
}

impl Stage {
    fn streams(pod: &Pod) -> Self {
        let logs = &["cri", "json-file"];
        let mut stage = Self::new(pod, "demo", "iomux@demo.service", "oe", logs);
        stage.attach(pod, "fast session", None);
        stage.attach(pod, "session with pauses", Some(1));
        stage
    }

    fn terminal(pod: &Pod) -> Self {
        let mut stage = Self::new(pod, "shell", "ttymux@shell.service", "t", &["cri.tty"]);
        stage.attach(pod, "session", None);
        stage
    }

    /// An app that repeats what a program types by `attach`, which gets it back.
    fn piped(pod: &Pod) -> Self {
        pod.set_unit("echo.service", &project_file(EXAMPLE).replace("demo", "echo"));
        let mut stage = Self::new(pod, "echo", "iomux@echo.service", "p", &["cri.piped"]);
        stage.attach(pod, "pipe", None);
        stage
    }

    fn new(
        pod: &Pod,
        app: &'static str,
        mux: &'static str,
        letters: &'static str,
        logs: &'static [&'static str],
    ) -> Self {
        let service = format!("{app}.service");
        let log = |name: &&str| {
            format!("{}:/shared/log/{name}", name.split('.').next().unwrap_or_default())
        };
        let specs: Vec<String> = logs.iter().map(log).collect();
        let environment = format!("[Service]\nEnvironment=IOTTYMUX_LOG={}\n", specs.join(","));
        pod.set_unit(&format!("{mux}.d/log.conf"), &environment);
        let cat = "[Service]\nExecStart=\nExecStart=/bin/cat\n".to_owned();
        let drop_in = if letters == "p" { cat } else { unit(letters) };
        pod.set_unit(&format!("{service}.d/app.conf"), &drop_in);
        let floods = letters.chars().map(|letter| Flood::new(pod, letter)).collect();
        pod.systemctl(&["start", &service]);
        let process = pod.property(&service, "MainPID");
        let (sessions, kills) = (Vec::new(), Vec::new());
        Self { service, mux, app, letters, logs, floods, sessions, kills, process }
    }

    fn attach(&mut self, pod: &Pod, name: &'static str, random: Option<u64>) {
        self.sessions.push((name, Session::start(pod, self.app, self.letters, random)));
    }

    fn burst(&mut self, lines: usize) {
        for flood in &mut self.floods {
            flood.burst(lines);
        }
    }

    /// So that each kill meets a mux.
    fn await_mux(&self, pod: &Pod) {
        eventually("the mux runs", || pod.property(self.mux, "SubState") == "running");
    }

    fn kill(&mut self, pod: &Pod) {
        self.kills.push(now());
        pod.try_run(&["systemctl", "kill", "--signal=KILL", self.mux]);
    }

    /// Waits until each sink has the last line. Returns how many lines each stream had, and the
    /// sinks.
    fn end(self, pod: &Pod) -> Sinks {
        let mut written = BTreeMap::new();
        for flood in self.floods {
            let (letter, lines) = flood.end(pod);
            written.insert(letter, lines);
        }
        let logs: Vec<_> = self.logs.iter().map(|name| pod.shared("log").join(name)).collect();
        for log in &logs {
            let what = format!("{} has the end of all streams", log.display());
            eventually(&what, || has_end(log, self.letters));
        }
        for (name, session) in &self.sessions {
            let has_ended = || session.ends.load(Ordering::Relaxed) == self.letters.len();
            eventually(&format!("the {name} has the end of all streams"), has_ended);
        }
        let blocked = Blocked::around(&self.kills, self.letters, pod);
        let restarts = pod.property(self.mux, "NRestarts").parse().unwrap();
        assert_eq!(pod.property(&self.service, "MainPID"), self.process, "the app noticed");
        assert_eq!(pod.property(&self.service, "NRestarts"), "0");
        pod.systemctl(&["stop", &self.service, self.mux]);
        let logs = logs.iter().map(|log| (file_name(log), read_log(log, self.letters))).collect();
        let ended = |(name, session): (&'static str, Session)| (name.to_owned(), session.end());
        let sessions = self.sessions.into_iter().map(ended).collect();
        Sinks { mux: self.mux, written, logs, sessions, blocked, restarts, kills: self.kills.len() }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What all sinks of an app have.
struct Sinks {
    mux: &'static str,
    /// The lines of each stream.
    written: BTreeMap<char, usize>,
    logs: Vec<(String, BTreeMap<char, Tally>)>,
    sessions: Vec<(String, Received)>,
    blocked: Blocked,
    restarts: usize,
    kills: usize,
}

impl Sinks {
    fn bytes(&self) -> usize {
        self.written
            .iter()
            .map(|(letter, lines)| lines * LEN + format!("{letter}end\n").len())
            .sum()
    }

    /// Each log has each line once. Each session has each byte once, but for those of which it was
    /// told.
    fn assert_exact(&self) {
        let whole: BTreeMap<char, Tally> =
            self.written.iter().map(|(letter, lines)| (*letter, Tally::whole(*lines))).collect();
        for (name, tallies) in &self.logs {
            assert_eq!(*tallies, whole, "{name}");
        }
        for (name, received) in &self.sessions {
            let repeated: usize = received.tallies.values().map(|tally| tally.repeated).sum();
            assert_eq!(
                (received.bytes + received.told, repeated),
                (self.bytes(), 0),
                "{name}: {received:?}"
            );
            if received.told == 0 {
                assert_eq!(received.tallies, whole, "{name}: {received:?}");
            }
        }
    }
}

impl fmt::Display for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mux, kills, restarts, blocked, .. } = self;
        let bytes = self.bytes();
        writeln!(f, "{mux}: {kills} kills, {restarts} restarts, {bytes} bytes, {blocked}")?;
        let logs = self.logs.iter().map(|(name, tallies)| (name, tallies, 0));
        let sessions = self.sessions.iter().map(|(name, had)| (name, &had.tallies, had.told));
        for (name, tallies, told) in logs.chain(sessions) {
            let sum = |of: fn(&Tally) -> usize| -> usize { tallies.values().map(of).sum() };
            let (lines, lost) = (sum(|tally| tally.lines), sum(|tally| tally.lost));
            let (repeated, torn) = (sum(|tally| tally.repeated), sum(|tally| tally.torn));
            write!(f, "  {name}: {lines} lines, {lost} lost, {repeated} repeated, {torn} torn")?;
            writeln!(f, ", {told} bytes told as lost")?;
        }
        Ok(())
    }
}

fn boot() -> Option<Pod> {
    let pod = Pod::delivered()?;
    fs::copy(std::env::current_exe().unwrap(), pod.shared("app")).unwrap();
    // On the disk of the machine: the pod's own root is in memory.
    pod.make_log_dir();
    Some(pod)
}

/// Runs all bursts, with faults of the muxes in each, and looks at all sinks.
fn flood<const N: usize>(
    pod: &Pod,
    mut stages: [Stage; N],
    mut strike: impl FnMut(&mut [Stage; N], &mut Random),
) -> [Sinks; N] {
    let mut random = Random::new(random::seed());
    for stage in &mut stages {
        stage.burst(1);
        for (_, session) in &stage.sessions {
            eventually("the session has begun", || session.has_begun());
        }
    }
    for _ in 0..rounds(BURSTS.0, BURSTS.1) {
        for stage in &mut stages {
            let (short, long) = if stage.letters == "oe" { LINES } else { SLOW_LINES };
            stage.burst(rounds(short, long));
            stage.await_mux(pod);
        }
        thread::sleep(Duration::from_millis(random.below(LATEST) as u64));
        strike(&mut stages, &mut random);
    }
    stages.map(|stage| {
        stage.await_mux(pod);
        let sinks = stage.end(pod);
        print!("{sinks}");
        sinks
    })
}

#[test]
fn each_sink_has_each_line_once_though_the_muxes_are_killed_in_a_flood() {
    let Some(pod) = boot() else { return };
    let stages = [Stage::streams(&pod), Stage::terminal(&pod)];
    let all = flood(&pod, stages, |[streams, terminal], random| {
        streams.kill(&pod);
        if random.one_in(TERMINAL_KILLS) {
            terminal.kill(&pod);
        }
    });
    for sinks in all {
        sinks.assert_exact();
        assert_eq!(sinks.restarts, sinks.kills);
    }
}

/// The faults of one burst: each mux has one.
fn strike_any(pod: &Pod, stages: &mut [Stage], random: &mut Random) {
    for stage in stages {
        match random.below(4) {
            0 => pod.upgrade(stage.mux),
            1 => drop(pod.systemctl(&["restart", stage.mux])),
            _ => stage.kill(pod),
        }
    }
}

#[test]
fn each_sink_has_each_line_once_though_the_muxes_are_upgraded_in_a_flood() {
    let Some(pod) = boot() else { return };
    pod.alternate_with(Path::new(BINARY));
    let stages = [Stage::streams(&pod), Stage::terminal(&pod), Stage::piped(&pod)];
    for sinks in flood(&pod, stages, |stages, random| strike_any(&pod, stages, random)) {
        sinks.assert_exact();
    }
}

/// An older release may lose what is in a mux that is killed. The app runs on all the same, and each
/// session and log goes on to the last line.
#[test]
fn apps_run_on_though_their_muxes_are_of_two_releases_in_a_flood() {
    let Some(other) = other_release() else { return };
    let Some(pod) = boot() else { return };
    pod.alternate_with(&other);
    let stages = [Stage::streams(&pod), Stage::terminal(&pod)];
    for sinks in flood(&pod, stages, |stages, random| strike_any(&pod, stages, random)) {
        for (name, received) in &sinks.sessions {
            let is_usual = |line: &&String| {
                ["trying again", "attached again"].iter().any(|w| line.contains(w))
            };
            let told: Vec<_> = received.said.iter().filter(|line| !is_usual(line)).collect();
            println!("{name}: {told:?}");
        }
    }
}
