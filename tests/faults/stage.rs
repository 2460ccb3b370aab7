//! A pod with an app that writes records, its sinks, and the faults.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{self, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::app::{self, Pace, Progress};
use crate::dice::{self, Dice};
use crate::form::is_long;
use crate::judge::{self, Finding, Telling, Truth, Verdict, What};
use crate::known::{self, SeenAll};
use crate::podsd::{BINARY, MUX_USER, Plan, Pod};
use crate::record::{Id, Item, Source, items};
use crate::wait::eventually;

/// The disk of the logs, and its size: more than a round writes.
const DISK: &str = "/disk";
const DISK_SIZE: &str = "512m";
/// Rotation by size, where a round has it: several times in a round.
const LOG_MAX_SIZE: &str = "1M";
/// What is kept for a log that cannot be written: so little that some has to go.
const LOG_BUFFER: &str = "256K";
/// How long an attach looks for the next mux, seconds.
const RECONNECT: &str = "30";
/// The longest that an app may be held back by one write: beyond what a mux that is started again
/// takes on a loaded machine.
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// How attach ends when it has told that something is missing.
const INCOMPLETE: i32 = 124;
/// The longest pause between two faults, milliseconds.
const PAUSE: usize = 400;
/// One pause of so many is short: the next fault meets the recovery from the one before.
const SHORT_EVERY: usize = 4;
const SHORT_PAUSE: usize = 30;
/// How long a client is stopped before a kill of the mux and after it.
const STOPPED_BEFORE: Duration = Duration::from_millis(50);
const STOPPED_AFTER: Duration = Duration::from_millis(100);
/// Rounds of a test in the short form and in the long one.
const ROUNDS: u64 = 2;
const LONG_ROUNDS: u64 = 12;

/// What is done to the mux, the app, and the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillMux,
    RestartMux,
    /// SIGKILL; `Restart=` starts it again.
    KillApp,
    RestartApp,
    FillDisk,
    FreeDisk,
    KillMuxOnFullDisk,
    /// The next fault does not wait for its end, which waits for room on the disk.
    RestartMuxOnFullDisk,
    /// The logs are renamed, and the mux is told to open them again.
    RenameLogs,
    /// One client is stopped for a moment around a kill of the mux.
    KillMuxBehindClient,
    /// The last fault, while the app ends.
    KillMuxAtEnd,
    RestartMuxAtEnd,
    /// The app ends by itself.
    EndQuietly,
}

/// Where the records come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sink {
    Attach,
    Cri,
    JsonFile,
    Raw,
}

/// How much the app writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Always a little: less than the mux can keep while it is gone.
    Steady,
    /// More than the mux keeps, at full speed, then a pause.
    Flood,
}

impl Load {
    fn pace(self) -> Pace {
        match self {
            Self::Steady => Pace { batch: 30, batches: 1, pause: 2 },
            Self::Flood => Pace { batch: 300, batches: 30, pause: 200 },
        }
    }
}

/// What a test is about.
pub struct Setup {
    pub terminal: bool,
    pub faults: &'static [Fault],
    pub ends: &'static [Fault],
    pub load: Load,
    /// Faults of one round.
    pub faults_per_round: usize,
}

/// The run and the record that each source is at.
pub type Position = BTreeMap<Source, (usize, u64)>;

/// A fault, and how far the app was before and after it.
#[derive(Debug)]
pub struct Event {
    pub fault: Fault,
    pub from: Position,
    pub until: Position,
}

#[derive(Debug)]
struct Step {
    pause: Duration,
    fault: Fault,
}

/// What a round is to be, all of it by its seed.
#[derive(Debug)]
struct Schedule {
    /// The mux rotates its logs by size.
    rotates: bool,
    steps: Vec<Step>,
    end: Fault,
    /// Between the last fault and the end of the app.
    end_pause: Duration,
}

/// All rounds of a test together.
#[derive(Default)]
pub struct Tally {
    faults: BTreeMap<Fault, usize>,
    records: u64,
    bytes: u64,
    judged: u64,
    /// Lost records of which messages tell.
    told: BTreeMap<Sink, u64>,
    longest: Duration,
    known: SeenAll,
}

struct Stage<'a> {
    setup: &'a Setup,
    pod: Pod,
    app: &'static str,
    mux: &'static str,
    sources: &'static [Source],
}

/// An attach.
struct Client {
    child: Child,
    sources: Vec<Source>,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// Prints which seed repeats a round, if that fails.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("IOTTYMUX_SEED={} repeats this round first", self.0);
        }
    }
}

impl Schedule {
    fn draw(setup: &Setup, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let rotates = dice.one_in(2);
        let pause = |end| Duration::from_millis(u64::try_from(end).unwrap());
        let mut is_full = false;
        let mut steps = Vec::new();
        while steps.len() < setup.faults_per_round {
            let longest = if dice.one_in(SHORT_EVERY) { SHORT_PAUSE } else { PAUSE };
            let between = pause(dice.below(longest));
            let fault = match dice.pick(setup.faults) {
                // Whoever renames logs does not let the mux rotate as well.
                Fault::RenameLogs if rotates => continue,
                Fault::FillDisk if is_full => Fault::FreeDisk,
                Fault::FreeDisk if !is_full => Fault::FillDisk,
                Fault::KillMux if is_full => Fault::KillMuxOnFullDisk,
                Fault::RestartMux if is_full => Fault::RestartMuxOnFullDisk,
                fault => fault,
            };
            is_full = fault == Fault::FillDisk || is_full && fault != Fault::FreeDisk;
            steps.push(Step { pause: between, fault });
        }
        let end = dice.pick(setup.ends);
        Self { rotates, steps, end, end_pause: pause(dice.below(SHORT_PAUSE)) }
    }
}

/// How many rounds each test has.
fn rounds() -> u64 {
    let given = std::env::var("IOTTYMUX_ROUNDS").ok();
    let usual = if is_long() { LONG_ROUNDS } else { ROUNDS };
    given.map_or(usual, |text| text.parse().expect("IOTTYMUX_ROUNDS is a number"))
}

/// Runs a test: its rounds, with a seed each.
pub fn run(setup: &Setup) {
    let Some(stage) = Stage::boot(setup) else { return };
    let seed = dice::seed();
    let mut tally = Tally::default();
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round);
        let _repeat = Repeat(seed);
        stage.round(&Schedule::draw(setup, seed), &mut tally);
    }
    tally.print();
}

impl<'a> Stage<'a> {
    fn boot(setup: &'a Setup) -> Option<Self> {
        let (app, mux, sources): (_, _, &[Source]) = if setup.terminal {
            ("shell", "ttymux@shell.service", &[Source::Terminal])
        } else {
            ("demo", "iomux@demo.service", &[Source::Stdout, Source::Stderr])
        };
        let plan = Plan::new()?.with_delivered_units();
        let pod = plan.unit(&format!("{app}.service.d/app.conf"), &app::unit(sources)).boot();
        fs::copy(std::env::current_exe().unwrap(), pod.shared("app")).unwrap();
        pod.run(&["mkdir", DISK]);
        let options = format!("size={DISK_SIZE},mode=0755,uid={MUX_USER},gid={MUX_USER}");
        pod.run(&["mount", "-t", "tmpfs", "-o", &options, "disk", DISK]);
        Some(Self { setup, pod, app, mux, sources })
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.pod.path(&format!("{DISK}/{name}"))
    }

    fn round_dir(&self) -> PathBuf {
        self.pod.shared("round")
    }

    /// How many runs the app has begun.
    fn runs(&self) -> usize {
        app::runs(&self.round_dir())
    }

    fn truth(&self) -> Truth {
        let dir = |run| app::run_dir(&self.round_dir(), run);
        let runs = |source| (0..self.runs()).map(|run| Progress::read(&dir(run), source)).collect();
        self.sources.iter().map(|source| (*source, runs(*source))).collect()
    }

    fn position(&self) -> Position {
        let at = |runs: &Vec<Progress>| (runs.len() - 1, runs.last().unwrap().done);
        self.truth().iter().map(|(source, runs)| (*source, at(runs))).collect()
    }

    /// Causes a fault; for a kill or restart of the app it returns when that runs again.
    fn cause(&self, fault: Fault, number: usize, clients: &[Client]) -> Event {
        let (from, runs) = (self.position(), self.runs());
        self.strike(fault, number, clients);
        if matches!(fault, Fault::KillApp | Fault::RestartApp) {
            eventually("the app is started again", || self.runs() > runs);
        }
        Event { fault, from, until: self.position() }
    }

    /// One life of the mux's unit, with an app and clients from the first byte to the last.
    fn round(&self, schedule: &Schedule, tally: &mut Tally) {
        self.prepare(schedule);
        self.pod.systemctl(&["start", self.app]);
        eventually("the app runs", || self.runs() == 1);
        let clients = self.attach();
        fs::write(self.round_dir().join("go"), "").unwrap();
        let mut events = vec![];
        for step in &schedule.steps {
            thread::sleep(step.pause);
            events.push(self.cause(step.fault, events.len(), &clients));
        }
        let _ = fs::remove_file(self.disk("ballast"));
        events.push(self.cause(schedule.end, events.len(), &clients));
        thread::sleep(schedule.end_pause);
        fs::write(self.round_dir().join("stop"), "").unwrap();
        eventually("the app has ended", || {
            self.pod.property(self.app, "ActiveState") == "inactive"
        });
        let clients: Vec<_> = clients.into_iter().map(Client::end).collect();
        self.pod.systemctl(&["stop", self.mux]);
        let starts = |event: &&Event| matches!(event.fault, Fault::KillApp | Fault::RestartApp);
        let runs = 1 + events.iter().filter(starts).count();
        assert_eq!(self.runs(), runs, "the app was disturbed\n{}", self.pod.console());
        let truth = self.truth();
        self.assert_undisturbed(&truth, tally);
        let mut verdicts: Vec<_> = clients.iter().map(|ended| ended.judge(&truth)).collect();
        for (sink, name) in [(Sink::Cri, "cri"), (Sink::JsonFile, "json"), (Sink::Raw, "raw")] {
            let log = self.log(name);
            let lines = match sink {
                Sink::Cri => lines_of(log.split(|byte| *byte == b'\n').map(cri)),
                Sink::JsonFile => lines_of(log.split(|byte| *byte == b'\n').map(json_file)),
                _ => log.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
            };
            let items = lines.iter().flat_map(|line| items(line));
            verdicts.push((sink, judge::judge(&truth, self.sources, items, Telling::InPlace)));
        }
        tally.count(&events, &truth, &verdicts);
        let unknown = known::sort_out(self.setup.load, &events, &verdicts, &mut tally.known);
        let said: Vec<_> = clients.iter().map(|ended| (ended.status, &ended.said)).collect();
        let unknown = unknown.join("\n");
        assert!(unknown.is_empty(), "{schedule:?}\n{events:?}\n{said:?}\n{unknown}");
    }

    fn prepare(&self, schedule: &Schedule) {
        let _ = fs::remove_dir_all(self.round_dir());
        fs::create_dir(self.round_dir()).unwrap();
        let pace = serde_json::to_vec(&self.setup.load.pace()).unwrap();
        fs::write(self.round_dir().join("pace"), pace).unwrap();
        for file in fs::read_dir(self.disk("")).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        let size = if schedule.rotates { LOG_MAX_SIZE } else { "1G" };
        let unit = format!(
            "[Service]\nEnvironment=IOTTYMUX_LOG=cri:{DISK}/cri,json-file:{DISK}/json,raw:{DISK}/raw \
             IOTTYMUX_LOG_MAX_SIZE={size} IOTTYMUX_LOG_MAX_FILES=1000 \
             IOTTYMUX_LOG_BUFFER={LOG_BUFFER}\n"
        );
        self.pod.set_unit(&format!("{}.d/log.conf", self.mux), &unit);
        // The limit of starts counts over all rounds.
        self.pod.systemctl(&["reset-failed"]);
    }

    fn attach(&self) -> Vec<Client> {
        let clients: Vec<_> = if self.setup.terminal {
            vec![self.client(0, "tty-out", &[Source::Terminal])]
        } else {
            let both = self.client(0, "stdout,stderr", &[Source::Stdout, Source::Stderr]);
            vec![both, self.client(1, "stdout", &[Source::Stdout])]
        };
        eventually("the clients are attached", || {
            let status = self.pod.try_run(&["iottymux", "status", "--json", "--app", self.app]);
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            // The asker itself has no streams.
            let reads =
                |client: &&Value| client["streams"].as_array().is_some_and(|s| !s.is_empty());
            let listed = status["clients"].as_array();
            listed.is_some_and(|listed| listed.iter().filter(reads).count() == clients.len())
        });
        clients
    }

    fn client(&self, number: usize, mode: &str, sources: &[Source]) -> Client {
        let file = |what| self.round_dir().join(format!("client-{number}-{what}"));
        let (stdout, stderr) = (file("stdout"), file("stderr"));
        let child = Command::new(BINARY)
            .arg("--state-dir")
            .arg(self.pod.path("/run/iottymux"))
            .args(["attach", "--app", self.app, "--mode", mode, "--reconnect", RECONNECT])
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Client { child, sources: sources.to_vec(), stdout, stderr }
    }

    fn strike(&self, fault: Fault, number: usize, clients: &[Client]) {
        // A mux that is being started has no main process: then it is killed all the same.
        let kill_mux = || {
            self.pod.try_run(&["systemctl", "kill", "--signal=KILL", self.mux]);
        };
        match fault {
            Fault::KillMux | Fault::KillMuxAtEnd | Fault::KillMuxOnFullDisk => kill_mux(),
            Fault::RestartMux => {
                self.pod.systemctl(&["restart", self.mux]);
            }
            Fault::RestartMuxAtEnd | Fault::RestartMuxOnFullDisk => {
                self.pod.systemctl(&["restart", "--no-block", self.mux]);
            }
            Fault::KillMuxBehindClient => {
                let slow = clients.last().unwrap();
                slow.signal(Signal::SIGSTOP);
                thread::sleep(STOPPED_BEFORE);
                kill_mux();
                thread::sleep(STOPPED_AFTER);
                slow.signal(Signal::SIGCONT);
            }
            Fault::KillApp => {
                let words = ["kill", "--kill-who=main", "--signal=KILL", self.app];
                self.pod.systemctl(&words);
            }
            Fault::RestartApp => {
                self.pod.systemctl(&["restart", self.app]);
            }
            Fault::FillDisk => fill(&self.disk("ballast")),
            Fault::FreeDisk => fs::remove_file(self.disk("ballast")).unwrap(),
            Fault::RenameLogs => {
                for log in ["cri", "json", "raw"] {
                    // It is not there when the mux could not make it.
                    let _ = fs::rename(self.disk(log), self.disk(&format!("{log}-{number:03}")));
                }
                self.pod.try_run(&["iottymux", "control", "--app", self.app, "reopen-logs"]);
            }
            Fault::EndQuietly => {}
        }
    }

    /// The files of a log, the oldest first.
    fn log(&self, name: &str) -> Vec<u8> {
        let names = fs::read_dir(self.disk("")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // NAME-001 is older than NAME-002, NAME.2 than NAME.1, and both than NAME.
        let age = |file: &str| {
            let rest = file.strip_prefix(name)?;
            let number = |rest: &str| rest[1..].parse::<i64>().unwrap();
            Some(match rest.chars().next() {
                Some('-') => number(rest) - 1_000_000,
                Some('.') => -number(rest),
                _ => 0,
            })
        };
        let mut files: Vec<_> = names.filter_map(|file| Some((age(&file)?, file))).collect();
        files.sort();
        let mut all = Vec::new();
        for (at, (_, file)) in files.iter().enumerate() {
            let text = fs::read(self.disk(file)).unwrap();
            let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            // An entry that did not fit into a file is whole in the next one; bytes go on there.
            let is_whole = name == "raw" || at + 1 == files.len();
            all.extend_from_slice(if is_whole { &text } else { &text[..end] });
        }
        all
    }

    fn assert_undisturbed(&self, truth: &Truth, tally: &mut Tally) {
        for run in 0..self.runs() {
            let error = app::run_dir(&self.round_dir(), run).join("error");
            assert!(!error.exists(), "{}", fs::read_to_string(error).unwrap());
        }
        let longest = truth.values().flatten().map(|run| run.longest).max().unwrap();
        let longest = Duration::from_micros(longest);
        assert!(longest < LONGEST_WRITE, "the app was held back for {longest:?}");
        tally.longest = tally.longest.max(longest);
    }
}

/// Takes all the room that a disk has.
fn fill(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    let zeros = vec![0; 1 << 20];
    while file.write_all(&zeros).is_ok() {}
}

/// An entry of a log: its stream, its text, and whether it ends a line; nothing of what is no entry.
type Entry = Option<(String, Vec<u8>, bool)>;

fn cri(line: &[u8]) -> Result<Entry, Vec<u8>> {
    if line.is_empty() {
        return Ok(None);
    }
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut word = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let (stamp, stream, tag) = (word(), word(), word());
    let is_entry = stamp.len() == 30 && stamp.ends_with('Z') && (tag == "P" || tag == "F");
    match fields.next() {
        Some(text) if is_entry => Ok(Some((stream, text.to_vec(), tag == "F"))),
        _ => Err(line.to_vec()),
    }
}

fn json_file(line: &[u8]) -> Result<Entry, Vec<u8>> {
    if line.is_empty() {
        return Ok(None);
    }
    let Ok(entry) = serde_json::from_slice::<Value>(line) else { return Err(line.to_vec()) };
    let (Some(text), Some(stream)) = (entry["log"].as_str(), entry["stream"].as_str()) else {
        return Err(line.to_vec());
    };
    let whole = text.strip_suffix('\n');
    let bytes = whole.unwrap_or(text).as_bytes().to_vec();
    Ok(Some((stream.to_owned(), bytes, whole.is_some())))
}

/// The lines of a log, their parts put together.
fn lines_of(entries: impl Iterator<Item = Result<Entry, Vec<u8>>>) -> Vec<Vec<u8>> {
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut lines = Vec::new();
    for entry in entries {
        match entry {
            Ok(Some((stream, text, is_end))) => {
                let part = parts.entry(stream).or_default();
                part.extend_from_slice(&text);
                if is_end {
                    lines.push(std::mem::take(part));
                }
            }
            Ok(None) => {}
            Err(torn) => lines.push(torn),
        }
    }
    lines.extend(parts.into_values());
    lines
}

/// An attach that has ended.
struct Ended {
    status: i32,
    sources: Vec<Source>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    said: Vec<String>,
}

impl Client {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    fn end(mut self) -> Ended {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        eventually("attach ends", || {
            waitid(wait::Id::Pid(self.pid()), flags).unwrap() != WaitStatus::StillAlive
        });
        let status = self.child.wait().unwrap();
        let status = status.code().unwrap_or_else(|| -status.signal().unwrap());
        let (stderr, said) = without_messages(&fs::read(&self.stderr).unwrap());
        let stdout = fs::read(&self.stdout).unwrap();
        Ended { status, sources: self.sources.clone(), stdout, stderr, said }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the app wrote to a client's standard error, and what attach itself said in between.
fn without_messages(bytes: &[u8]) -> (Vec<u8>, Vec<String>) {
    const BEGIN: &[u8] = b"iottymux: ";
    let (mut rest, mut text, mut said) = (bytes, Vec::new(), Vec::new());
    while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
        text.extend_from_slice(&rest[..at]);
        let end = rest[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |len| at + len + 1);
        said.push(String::from_utf8_lossy(&rest[at..end]).trim_end().to_owned());
        rest = &rest[end..];
    }
    text.extend_from_slice(rest);
    (text, said)
}

impl Ended {
    fn judge(&self, truth: &Truth) -> (Sink, Verdict) {
        let told = self.said.iter().find_map(|line| {
            let (before, _) = line.split_once(" bytes were lost: ")?;
            before.rsplit(' ').next()?.parse().ok()
        });
        let told: u64 = told.unwrap_or(0);
        let lines = |bytes: &[u8]| -> Vec<Item> {
            bytes.split(|byte| *byte == b'\n').flat_map(items).collect()
        };
        let all = [lines(&self.stdout), lines(&self.stderr)].concat();
        let mut verdict = judge::judge(truth, &self.sources, all, Telling::AtTheEnd(told));
        let is_uncertain = self.said.iter().any(|line| line.ends_with("two muxes may be missing"));
        let due = if told > 0 || is_uncertain { INCOMPLETE } else { 0 };
        if self.status != due {
            let at = Id { source: self.sources[0], run: 0, number: 0 };
            verdict.findings.push(Finding { what: What::Status, at, records: 0, bytes: 0 });
        }
        (Sink::Attach, verdict)
    }
}

impl Tally {
    fn count(&mut self, events: &[Event], truth: &Truth, verdicts: &[(Sink, Verdict)]) {
        for event in events {
            *self.faults.entry(event.fault).or_default() += 1;
        }
        for (source, runs) in truth {
            for (run, progress) in runs.iter().enumerate() {
                self.records += progress.done;
                self.bytes += judge::bytes(*source, run, 0..progress.done);
            }
        }
        for (sink, verdict) in verdicts {
            self.judged += verdict.records;
            *self.told.entry(*sink).or_default() += verdict.told;
        }
    }

    fn print(&self) {
        let Self { faults, records, bytes, judged, told, longest, known } = self;
        println!("faults: {} {faults:?}", faults.values().sum::<usize>());
        println!(
            "the app wrote {records} records, {bytes} bytes; its longest write took {longest:?}"
        );
        println!("{judged} records in all sinks; lost with a message: {told:?} records");
        for ((point, why, sink, what), seen) in known {
            let known::Seen { findings, records, bytes } = seen;
            println!(
                "KNOWN {point}: {sink:?}: {what:?} {findings} times, {records} records, \
                 {bytes} bytes: {why}"
            );
        }
    }
}

#[test]
fn a_seed_draws_the_same_faults() {
    let faults = &[Fault::FillDisk, Fault::FreeDisk, Fault::KillMux, Fault::RestartMux];
    let ends = &[Fault::EndQuietly, Fault::KillMuxAtEnd];
    let setup = Setup { terminal: false, faults, ends, load: Load::Steady, faults_per_round: 20 };
    let draw = |seed| Schedule::draw(&setup, seed);
    for seed in 0..100 {
        let steps = draw(seed).steps;
        assert_eq!(format!("{:?}", draw(seed)), format!("{:?}", draw(seed)));
        assert_ne!(format!("{steps:?}"), format!("{:?}", draw(seed + 1).steps));
        let disk: Vec<_> = steps.iter().map(|step| step.fault).collect();
        let fills = disk.iter().filter(|fault| matches!(fault, Fault::FillDisk | Fault::FreeDisk));
        for (at, fault) in fills.enumerate() {
            assert_eq!(*fault == Fault::FillDisk, at % 2 == 0, "{disk:?}");
        }
    }
}
