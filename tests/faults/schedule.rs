//! What a round is to be: which faults come when.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::app::Pace;
use crate::random::Random;

/// The longest pause between two faults, milliseconds.
const PAUSE: usize = 400;
/// One pause of so many is short: the next fault meets the recovery from the one before.
const SHORT_EVERY: usize = 4;
const SHORT_PAUSE: usize = 30;

/// What is done to the mux, the app, and the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillMux,
    /// SIGKILL again as soon as the next mux runs.
    KillMuxTwice,
    /// SIGSEGV.
    CrashMux,
    /// SIGSTOP, and SIGCONT a moment later.
    StopMux,
    RestartMux,
    /// The next fault does not wait for its end, which waits for room on a disk.
    StartRestartOfMux,
    /// The other build takes the place of the program, and the mux is restarted.
    UpgradeMux,
    /// PID 1 executes itself again, as in an upgrade of systemd.
    ReexecManager,
    /// SIGKILL; `Restart=` starts it again.
    KillApp,
    RestartApp,
    FillDisk,
    FreeDisk,
    /// All inodes of the disk of the logs are taken.
    TakeInodes,
    FreeInodes,
    /// No room and no inodes for the files of muxes.
    FillRun,
    FreeRun,
    /// Whoever looks for the mux does not find it.
    HideMux,
    ShowMux,
    /// For a moment the mux gets no more memory than it has, while clients connect.
    LimitMemory,
    /// So many idle connections that the mux has no descriptor left.
    Crowd,
    Disperse,
    /// Connections that send random frames, and do not read.
    Hostile,
    /// One client is stopped for longer than its patience.
    StopClient,
    /// The logs are renamed, and the mux is told by SIGHUP to open them again, as by logrotate.
    RenameLogs,
    /// The CRI log is renamed, the mux is asked to open it again, and older files are compressed:
    /// as by a kubelet, which takes the name back if the mux refuses.
    RotateAsKubelet,
    /// One client is stopped for a moment around a kill of the mux.
    KillMuxBehindClient,
    /// The last fault, while the app ends.
    KillMuxAtEnd,
    RestartMuxAtEnd,
    /// The app ends by itself.
    EndQuietly,
}

/// Faults that last until another one ends them.
const LASTING: &[(Fault, Fault)] = &[
    (Fault::FillDisk, Fault::FreeDisk),
    (Fault::TakeInodes, Fault::FreeInodes),
    (Fault::FillRun, Fault::FreeRun),
    (Fault::Crowd, Fault::Disperse),
];

/// How much the app writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Always a little: less than the mux can keep while it is gone.
    Steady,
    /// More than the mux keeps, at full speed, then a pause.
    Flood,
}

/// What a test is about.
pub struct Setup {
    pub terminal: bool,
    /// A program types records.
    pub input: bool,
    pub faults: &'static [Fault],
    pub ends: &'static [Fault],
    pub load: Load,
    /// Faults of one round, without those that end others.
    pub faults_per_round: usize,
}

#[derive(Debug)]
pub struct Step {
    pub pause: Duration,
    pub fault: Fault,
}

/// What a round is to be, all of it by its seed.
#[derive(Debug)]
pub struct Schedule {
    /// The mux rotates its logs by size.
    pub rotates: bool,
    pub steps: Vec<Step>,
    pub end: Fault,
    /// Between the last fault and the end of the app.
    pub end_pause: Duration,
}

impl Load {
    pub fn pace(self) -> Pace {
        match self {
            Self::Steady => Pace { batch: 30, batches: 1, pause: 2 },
            Self::Flood => Pace { batch: 300, batches: 30, pause: 200 },
        }
    }
}

impl Setup {
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

impl Schedule {
    pub fn draw(setup: &Setup, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let rotates = random.one_in(2);
        let mut lasting = BTreeSet::new();
        let mut steps: Vec<Step> = Vec::new();
        while steps.len() < setup.faults_per_round {
            let longest = if random.one_in(SHORT_EVERY) { SHORT_PAUSE } else { PAUSE };
            let pause = milliseconds(random.below(longest));
            let mut fault = random.pick(setup.faults);
            if rotates && matches!(fault, Fault::RenameLogs | Fault::RotateAsKubelet) {
                // Whoever renames logs does not let the mux rotate as well.
                continue;
            }
            if fault == Fault::UpgradeMux && !lasting.is_empty() {
                // The old mux would wait for room, and after 10 s its lines are lost.
                continue;
            }
            let restarts = |step: &Step| step.fault == Fault::StartRestartOfMux;
            let app_goes = matches!(fault, Fault::KillApp | Fault::RestartApp);
            if app_goes && steps.iter().any(restarts) {
                // Clients of a mux that is stopped while the app does not run end with the app.
                continue;
            }
            if let Some((_, end)) = LASTING.iter().find(|(begin, _)| *begin == fault) {
                if !lasting.insert(*end) {
                    lasting.remove(end);
                    fault = *end;
                }
            } else if fault == Fault::RestartMux && !lasting.is_empty() {
                fault = Fault::StartRestartOfMux;
            }
            steps.push(Step { pause, fault });
        }
        steps.extend(lasting.into_iter().map(|fault| Step { pause: Duration::ZERO, fault }));
        let end = random.pick(setup.ends);
        Self { rotates, steps, end, end_pause: milliseconds(random.below(SHORT_PAUSE)) }
    }

    /// All faults of a setup, in their order, with the longest pause before each.
    pub fn script(setup: &Setup) -> Self {
        let pause = milliseconds(PAUSE);
        let steps = setup.faults.iter().map(|fault| Step { pause, fault: *fault }).collect();
        Self { rotates: false, steps, end: setup.ends[0], end_pause: pause }
    }
}

fn milliseconds(number: usize) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap())
}

#[test]
fn a_seed_draws_the_same_faults() {
    let faults = &[Fault::FillDisk, Fault::KillMux, Fault::RestartMux];
    let ends = &[Fault::EndQuietly, Fault::KillMuxAtEnd];
    let setup = Setup {
        terminal: false,
        input: false,
        faults,
        ends,
        load: Load::Steady,
        faults_per_round: 20,
    };
    let draw = |seed| Schedule::draw(&setup, seed);
    for seed in 0..100 {
        let steps = draw(seed).steps;
        assert_eq!(format!("{:?}", draw(seed)), format!("{:?}", draw(seed)));
        assert_ne!(format!("{steps:?}"), format!("{:?}", draw(seed + 1).steps));
        let disk: Vec<_> = steps.iter().map(|step| step.fault).collect();
        let fills = disk.iter().filter(|fault| matches!(fault, Fault::FillDisk | Fault::FreeDisk));
        for (at, fault) in fills.clone().enumerate() {
            assert_eq!(*fault == Fault::FillDisk, at % 2 == 0, "{disk:?}");
        }
        assert_eq!(fills.count() % 2, 0, "the disk stays full: {disk:?}");
    }
}
