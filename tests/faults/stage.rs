//! A pod with an app that writes records, its sinks, and the faults.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::app::{self, Progress};
use crate::client::{Client, Typist};
use crate::form::is_long;
use crate::judge::{self, Telling, Truth};
use crate::podsd::{BINARY, MUX_USER, Plan, Pod};
use crate::random;
use crate::record::{Source, items};
use crate::schedule::{Fault, Schedule, Setup};
use crate::tally::{MuxNeeds, Tally, findings};
use crate::wait::{PAUSE, WATCHDOG, eventually};

/// The disk of the logs, and its size: more than a round writes.
const DISK: &str = "/disk";
const DISK_SIZE: &str = "512m";
/// As many inodes as no round needs.
const DISK_INODES: &str = "4096";
/// Where the files of all muxes are, and its size where it is to be full at times.
const RUN: &str = "/run/iottymux";
const RUN_SIZE: &str = "size=256k,nr_inodes=200,mode=0755";
/// Descriptors of a mux that is to have none left at times.
pub const DESCRIPTORS: usize = 100;
/// Rotation by size, where a round has it: several times in a round.
const LOG_MAX_SIZE: &str = "1M";
/// What is kept for a log that cannot be written: so little that some has to go.
const LOG_BUFFER: &str = "256K";
/// How long an attach looks for the next mux, seconds.
const RECONNECT: &str = "30";
/// The number of the client that types.
const TYPIST: usize = 9;
/// The longest that an app may be held back by one write: beyond what a mux that is started again
/// takes on a loaded machine.
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// Descriptors that a mux opens with the first flood, and keeps: three pipes and /dev/null.
const FLOOD_DESCRIPTORS: usize = 7;
/// Memory of a mux after the faults at most, KiB: its queues are bounded.
const MUX_MEMORY: u64 = 32 * 1024;
/// Rounds of a test in the short form, in the long one, and in each turn of the one by minutes.
const ROUNDS: u64 = 1;
const LONG_ROUNDS: u64 = 12;
const TURN: u64 = 2;

/// Where the records come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sink {
    Attach,
    Cri,
    JsonFile,
    Raw,
    /// What the app has read.
    Input,
}

/// The run and the record that each source is at.
pub type Position = BTreeMap<Source, (usize, u64)>;

/// A fault, and how far the app was before and after it.
#[derive(Debug)]
#[allow(dead_code, reason = "a failing test prints where the app was")]
pub struct Event {
    pub fault: Fault,
    pub from: Position,
    pub until: Position,
}

pub struct Stage<'a> {
    setup: &'a Setup,
    pub pod: Pod,
    pub app: &'static str,
    pub mux: &'static str,
    /// What the app writes.
    outputs: Vec<Source>,
    /// These, and what is typed.
    sources: Vec<Source>,
    /// Connections that nobody reads from.
    pub crowd: RefCell<Vec<UnixStream>>,
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

/// How many rounds each test has.
fn rounds() -> u64 {
    let given = std::env::var("IOTTYMUX_ROUNDS").ok();
    let usual = if is_long() { LONG_ROUNDS } else { ROUNDS };
    given.map_or(usual, |text| text.parse().expect("IOTTYMUX_ROUNDS is a number"))
}

/// Runs a test: its rounds, with a seed each.
pub fn run(setup: &Setup) {
    run_beside(setup, Path::new(BINARY));
}

/// Runs a test where upgrades alternate with another build of the program.
pub fn run_beside(setup: &Setup, other: &Path) {
    let mut tally = Tally::default();
    run_rounds(setup, other, random::seed(), rounds(), &mut tally);
    print!("{tally}");
}

/// Runs a test of one round whose faults are those of its setup, in their order.
pub fn run_steps(setup: &Setup) {
    let mut tally = Tally::default();
    let Some(stage) = Stage::boot(setup, Path::new(BINARY)) else { return };
    stage.round(&Schedule::script(setup), &mut tally);
    print!("{tally}");
}

/// Runs rounds of all these for so long, each with a seed of its own.
pub fn run_for_minutes(setups: &[&Setup], minutes: u64) {
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let mut tally = Tally::default();
    let seed = random::seed();
    for (turn, setup) in (0..).zip(setups.iter().cycle()) {
        let seed = seed.wrapping_add(turn * TURN);
        if Instant::now() >= end || !run_rounds(setup, Path::new(BINARY), seed, TURN, &mut tally) {
            break;
        }
        println!("seed {seed}: {:?}\n{tally}", setup.faults);
    }
}

/// What a round leaves.
#[derive(Debug)]
struct Traces {
    /// Files of muxes, and units.
    files: Vec<String>,
    /// Of systemd.
    descriptors: usize,
}

/// Runs rounds in one pod. Returns whether there can be one.
fn run_rounds(setup: &Setup, other: &Path, seed: u64, rounds: u64, tally: &mut Tally) -> bool {
    let Some(stage) = Stage::boot(setup, other) else { return false };
    let mut traces = None;
    for round in 0..rounds {
        let seed = seed.wrapping_add(round);
        let _repeat = Repeat(seed);
        stage.round(&Schedule::draw(setup, seed), tally);
        let first = traces.get_or_insert_with(|| stage.traces());
        let mut now = stage.traces();
        let until = Instant::now() + WATCHDOG;
        // The first round may have counted one that systemd had for a moment.
        while now.files != first.files || now.descriptors > first.descriptors {
            assert!(Instant::now() < until, "{now:#?} is left, not only {first:#?}");
            thread::sleep(PAUSE);
            now = stage.traces();
        }
    }
    true
}

impl<'a> Stage<'a> {
    fn boot(setup: &'a Setup, other: &Path) -> Option<Self> {
        let (app, mux, mut sources) = if setup.terminal {
            ("shell", "ttymux@shell.service", vec![Source::Terminal])
        } else {
            ("demo", "iomux@demo.service", vec![Source::Stdout, Source::Stderr])
        };
        let outputs = sources.clone();
        if setup.input {
            sources.push(Source::Input);
        }
        let plan = Plan::new()?.with_delivered_units();
        let pod = plan.unit(&format!("{app}.service.d/app.conf"), &app::unit(&sources)).boot();
        fs::copy(std::env::current_exe().unwrap(), pod.shared("app")).unwrap();
        pod.run(&["mkdir", DISK]);
        let options = format!(
            "size={DISK_SIZE},nr_inodes={DISK_INODES},mode=0755,uid={MUX_USER},gid={MUX_USER}"
        );
        pod.run(&["mount", "-t", "tmpfs", "-o", &options, "disk", DISK]);
        if setup.has(Fault::FillRun) {
            pod.run(&["mkdir", "-p", RUN]);
            pod.run(&["mount", "-t", "tmpfs", "-o", RUN_SIZE, "run", RUN]);
        }
        if setup.has(Fault::UpgradeMux) {
            pod.alternate_with(other);
        }
        Some(Self { setup, pod, app, mux, outputs, sources, crowd: RefCell::default() })
    }

    pub fn disk(&self, name: &str) -> PathBuf {
        self.pod.path(&format!("{DISK}/{name}"))
    }

    pub fn run_dir(&self, name: &str) -> PathBuf {
        self.pod.path(&format!("{RUN}/{name}"))
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
        let started = self.pod.try_run(&["systemctl", "start", self.app]);
        assert!(started.status.success(), "{}\n{}", self.pod.console(), self.muxes_said());
        eventually("the app runs", || self.runs() == 1);
        let clients = self.attach();
        let typist = self.setup.input.then(|| self.typist());
        let first = self.mux_needs();
        fs::write(self.round_dir().join("go"), "").unwrap();
        let mut events = vec![];
        for step in &schedule.steps {
            thread::sleep(step.pause);
            events.push(self.cause(step.fault, events.len(), &clients));
        }
        self.crowd.borrow_mut().clear();
        self.assert_nothing_leaked(first, tally);
        events.push(self.cause(schedule.end, events.len(), &clients));
        thread::sleep(schedule.end_pause);
        fs::write(self.round_dir().join("enough"), "").unwrap();
        let typist = typist.map(Typist::end);
        fs::write(self.round_dir().join("stop"), "").unwrap();
        eventually("the app has ended", || {
            self.pod.property(self.app, "ActiveState") == "inactive"
        });
        let mut clients: Vec<_> = clients.into_iter().map(Client::end).collect();
        self.pod.systemctl(&["stop", self.mux]);
        let starts = |event: &&Event| matches!(event.fault, Fault::KillApp | Fault::RestartApp);
        let runs = 1 + events.iter().filter(starts).count();
        assert_eq!(self.runs(), runs, "the app was disturbed\n{}", self.pod.console());
        let truth = self.truth();
        self.assert_undisturbed(&truth, tally);
        let mut verdicts: Vec<_> =
            clients.iter().map(|ended| ended.judge(Sink::Attach, &truth)).collect();
        if let Some(mut typist) = typist {
            typist.stdout = fs::read(app::received(&self.round_dir(), 0)).unwrap();
            verdicts.push(typist.judge(Sink::Input, &truth));
            clients.push(typist);
        }
        for sink in [Sink::Cri, Sink::JsonFile, Sink::Raw] {
            let lines = sink.lines(&self.disk(""));
            let items = lines.iter().flat_map(|line| items(line));
            verdicts.push((sink, judge::judge(&truth, &self.outputs, items, Telling::InPlace)));
        }
        tally.count(&events, &truth, &verdicts);
        let said: Vec<_> = clients.iter().map(|ended| (ended.status, &ended.said)).collect();
        let found: Vec<_> =
            verdicts.iter().flat_map(|(sink, verdict)| findings(*sink, verdict)).collect();
        let found = found.join("\n");
        let muxes = self.muxes_said();
        assert!(found.is_empty(), "{schedule:?}\n{events:?}\n{muxes}\n{said:?}\n{found}\n{tally}");
    }

    fn muxes_said(&self) -> String {
        fs::read_to_string(self.round_dir().join("muxes")).unwrap_or_default()
    }

    /// What a round could leave behind: files of the muxes, units in memory, failed ones, and
    /// descriptors of PID 1.
    fn traces(&self) -> Traces {
        let state = || self.pod.property(self.mux, "ActiveState");
        eventually("the mux ends or fails", || ["inactive", "failed"].contains(&state().as_str()));
        let status = || self.pod.try_run(&["systemctl", "status", "--full", self.mux]);
        assert_eq!(state(), "inactive", "{:?}\n{}", status(), self.pod.console());
        let script = "find /run/iottymux | sort; systemctl list-units --all --plain --no-legend \
             'io*' 'tty*' 'demo*' 'shell*'; systemctl --failed --plain --no-legend";
        let descriptors = self.pod.run(&["sh", "-c", "ls /proc/1/fd | wc -l"]);
        Traces {
            files: self.pod.run(&["sh", "-c", script]).lines().map(str::to_owned).collect(),
            descriptors: descriptors.trim().parse().unwrap(),
        }
    }

    /// After the faults the mux has the descriptors that it had before them, and little memory.
    fn assert_nothing_leaked(&self, first: Option<MuxNeeds>, tally: &mut Tally) {
        let Some(first) = first else { return };
        // The typist may not have been there yet.
        let most = first.descriptors + FLOOD_DESCRIPTORS + usize::from(self.setup.input);
        eventually(&format!("the mux has {most} descriptors at most"), || {
            self.mux_needs().is_none_or(|needs| needs.descriptors <= most)
        });
        let needs = self.mux_needs().unwrap_or_default();
        assert!(needs.memory <= MUX_MEMORY, "a mux has too much memory: {needs:?}");
        tally.most = tally.most.max(needs);
    }

    /// What the mux needs, if there is one and it can be known.
    fn mux_needs(&self) -> Option<MuxNeeds> {
        let process = self.pod.path(&format!("/proc/{}", self.mux_process()));
        let descriptors = fs::read_dir(process.join("fd")).ok()?.count();
        let text = fs::read_to_string(process.join("smaps_rollup")).ok()?;
        let kinds = ["Pss_Anon:", "Pss_Shmem:"];
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let sizes = lines.filter(|(kind, _)| kinds.contains(kind));
        let sizes = sizes.map(|(_, size)| size.trim().trim_end_matches(" kB").parse::<u64>());
        Some(MuxNeeds { memory: sizes.sum::<Result<_, _>>().unwrap(), descriptors })
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
        // A client may hold the app back in the middle of a line. Then the raw log, which cannot
        // mark a part of a line, has lines of the other stream in it after this time.
        let flush = if self.setup.has(Fault::StopClient) { 10 } else { 1 };
        let descriptors = if self.setup.has(Fault::Crowd) { DESCRIPTORS } else { 8192 };
        let unit = format!(
            "[Service]\nEnvironment=IOTTYMUX_LOG=cri:{DISK}/cri,json-file:{DISK}/json,raw:{DISK}/raw \
             IOTTYMUX_LOG_MAX_SIZE={size} IOTTYMUX_LOG_MAX_FILES=1000 \
             IOTTYMUX_LOG_BUFFER={LOG_BUFFER} IOTTYMUX_LOG_FLUSH={flush}\n\
             LimitNOFILE={descriptors}\nStandardError=append:/shared/round/muxes\n"
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
            // Those that only type have no streams.
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
        let types = sources == [Source::Input];
        let child = Command::new(BINARY)
            .arg("--state-dir")
            .arg(self.run_dir(""))
            .args(["attach", "--app", self.app, "--mode", mode, "--reconnect", RECONNECT])
            .stdin(if types { Stdio::piped() } else { Stdio::null() })
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Client { child, sources: sources.to_vec(), stdout, stderr }
    }

    fn typist(&self) -> Typist {
        let mode = if self.setup.terminal { "tty-in" } else { "stdin" };
        Typist::start(self.client(TYPIST, mode, &[Source::Input]), self.round_dir())
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
