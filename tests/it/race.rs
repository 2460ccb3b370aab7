//! How fast a FIFO is emptied that systemd has open as well: what the app writes last is lost when PID 1
//! is faster (docs/rkt.md). The long form tells times; nothing fails for being slow.
//!
//! `IOTTYMUX_LONG=1 IOTTYMUX_RACE=OTHER:ANOTHER cargo nextest run race --no-capture` measures beside other binaries, in turns.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::O_NONBLOCK;

use crate::proc::{Proc, WATCHDOG, eventually};
use crate::rig::{APP, Rig, rest};
use crate::skip::skip;

const BINARY: &str = env!("CARGO_BIN_EXE_iottymux");
const LINE: &[u8] = b"the last that it says\n";
/// What the mux takes there, where it may.
const NICE: i32 = -15;

/// A mux in a pod of rkt: the FIFOs are there, and somebody else has them open both ways.
struct Foreign {
    rig: Rig,
    mux: Proc,
    stdout: File,
    _others: Vec<File>,
}

impl Foreign {
    fn new(binary: &str) -> Self {
        let rig = Rig::new();
        rig.make_app_dir();
        let open = |stream: &str| {
            let name = format!("stage2-{stream}");
            rig.make_fifo(&name);
            let mut how = File::options();
            how.read(true).write(true).custom_flags(O_NONBLOCK).open(rig.path(&name)).unwrap()
        };
        let [stdin, stdout, stderr] = ["stdin", "stdout", "stderr"].map(open);
        let mut command = Command::new(binary);
        command.args(["--action=iomux", &format!("--app={APP}")]).env_clear();
        command.env("IOTTYMUX_STATE_DIR", rig.state());
        for stream in ["STDIN", "STDOUT", "STDERR"] {
            command.env(format!("STAGE2_{stream}"), "true");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mux = rig.start(command);
        Self { rig, mux, stdout, _others: vec![stdin, stderr] }
    }

    /// How long a line is in the FIFO.
    fn empties(&mut self) -> Duration {
        let since = Instant::now();
        self.stdout.write_all(LINE).unwrap();
        while rustix::io::ioctl_fionread(&self.stdout).unwrap() > 0 {
            assert!(since.elapsed() < WATCHDOG, "nobody reads");
            std::hint::spin_loop();
        }
        since.elapsed()
    }
}

/// The priority of a process as the kernel has it (field 18 of proc_pid_stat(5)): that of a usual one is its niceness
/// and 20, that of one of real time is below zero.
fn priority(process: &str) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(15).unwrap().parse().unwrap()
}

/// Whether this process may raise priorities.
fn may_raise() -> bool {
    // What it adds to ours is more than it takes to be there.
    let output = Command::new("nice").args(["-n", "-40", "nice"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim() == "-20"
}

#[test]
fn foreign_fifos_are_read_with_a_higher_priority() {
    let foreign = Foreign::new(BINARY).mux;
    let rig = Rig::new();
    let own = rig.stream();
    let usual = priority("self");
    let own = priority(&own.pid().to_string());
    assert_eq!(own, usual, "one with FIFOs of its own has no hurry");
    if !may_raise() {
        return skip("priority", "this user may not raise priorities");
    }
    // It comes right behind READY: real time where the kernel gives that to this cgroup, else a niceness.
    let foreign = foreign.pid().to_string();
    eventually("it has its priority", || priority(&foreign) <= NICE + 20);
}

#[test]
fn a_line_does_not_stay_in_a_foreign_fifo() {
    let is_long = env::var_os("IOTTYMUX_LONG").is_some();
    let other = env::var("IOTTYMUX_RACE").ok();
    let others = other.iter().flat_map(|others| others.split(':'));
    let binaries: Vec<&str> = others.chain([BINARY]).collect();
    let (rounds, blocks) = if is_long { (200, 10) } else { (20, 1) };
    // Right behind something else, and after a rest.
    for gap in [Duration::from_micros(500), Duration::from_millis(5)] {
        let mut times = vec![Vec::new(); binaries.len()];
        for _ in 0..blocks {
            for (binary, times) in binaries.iter().zip(&mut times) {
                let mut mux = Foreign::new(binary);
                let mut client = mux.rig.client("stdout");
                let reader = thread::spawn(move || rest(&mut client as &mut dyn Read));
                for _ in 0..rounds {
                    thread::sleep(gap);
                    times.push(mux.empties());
                }
                mux.mux.signal(nix::sys::signal::Signal::SIGTERM);
                assert_eq!(mux.mux.ends(), 0);
                let want = String::from_utf8(LINE.repeat(rounds)).unwrap();
                assert_eq!(reader.join().unwrap(), want);
            }
        }
        for (binary, times) in binaries.iter().zip(&mut times) {
            times.sort_unstable();
            let [p50, p90, p99] = [50, 90, 99].map(|percent| times[times.len() * percent / 100]);
            println!("{binary}: gap {gap:?}: p50 {p50:?} p90 {p90:?} p99 {p99:?}");
        }
    }
}
