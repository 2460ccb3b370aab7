//! The CPU time that neither the bench nor what it started has used.

use std::env;
use std::fs;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Foreign load above which a run does not count, percent of all processors.
const ALLOWED_PERCENT: f64 = 12.0;
/// Ticks per second in /proc/stat; a constant of the interface.
const TICKS: f64 = 100.0;
/// How long descendants may take to end once their terminals and pipes are gone.
const ENDING: Duration = Duration::from_secs(2);

/// The part of all processors that may be used by others.
pub fn allowed() -> f64 {
    env::var("IOTTYMUX_FOREIGN_LOAD").map_or(ALLOWED_PERCENT, |text| text.parse().unwrap()) / 100.0
}

/// Descendants whose parents have ended become children, so that their CPU time is known.
pub fn adopt_orphans() {
    prctl::set_child_subreaper(true).unwrap();
}

/// Waits for the descendants that are left of a run.
pub fn reap() {
    let until = Instant::now() + ENDING;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if Instant::now() < until => {
                sleep(Duration::from_millis(1));
            }
            Ok(WaitStatus::StillAlive) => kill_children(),
            Err(Errno::ECHILD) => return,
            Ok(_) => {}
            Err(e) => panic!("waitpid: {e}"),
        }
    }
}

/// Ends what a run that failed has left.
fn kill_children() {
    let process = std::process::id();
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    for pid in children.split_whitespace() {
        let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
    }
}

/// The CPU times so far, seconds.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    all: f64,
    busy: f64,
    own: f64,
}

impl Load {
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let first = text.lines().next().unwrap();
        let ticks: Vec<f64> =
            first.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
        // user nice system idle iowait irq softirq steal; guests are in user and nice.
        let all: f64 = ticks[..8].iter().sum();
        let idle = ticks[3] + ticks[4];
        let own = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| {
            let used = getrusage(who).unwrap();
            let micros = (used.user_time() + used.system_time()).num_microseconds();
            Duration::from_micros(micros.cast_unsigned()).as_secs_f64()
        });
        let own = own.iter().sum::<f64>() + kernel_threads();
        Self { all: all / TICKS, busy: (all - idle) / TICKS, own }
    }

    /// The part of all processors that others have used since then. All children have been waited
    /// for.
    pub fn foreign(self) -> f64 {
        let now = Self::now();
        // Each processor's count may be off by a tick.
        let processors = available_parallelism().map_or(1, usize::from);
        let error = f64::from(u32::try_from(processors).unwrap()) / TICKS;
        let foreign = (now.busy - self.busy) - (now.own - self.own) - error;
        (foreign / (now.all - self.all).max(error)).max(0.0)
    }
}

/// CPU time of the kernel's threads. They pass on what a program writes to a terminal, so most of
/// it is the bench's.
fn kernel_threads() -> f64 {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // The name is in parentheses. Behind it: state, parent, …
        let (_, rest) = text.rsplit_once(')')?;
        let words: Vec<f64> =
            rest.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // The parent of the kernel's threads is kthreadd; then user and system time.
        (words.first() == Some(&2.0)).then(|| words[10] + words[11])
    });
    processes.sum::<f64>() / TICKS
}
