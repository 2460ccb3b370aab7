//! What waits for work: its memory, its wake-ups, the time until it can work, and its size.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::{
    Bench, Killed, Mux, conmon, conmon_serves, open_directory, quiet, until_it_speaks, wait_for,
};
use super::sample::{Metric, Values};
use super::tools::Tool;

/// Until a start is over by far.
const SETTLING: Duration = Duration::from_millis(500);
/// How long wake-ups are counted.
const WATCHED: Duration = Duration::from_secs(1);

/// A program that waits for its app.
struct Waiting {
    child: Option<Killed>,
    mux: Option<Mux>,
    ready_after: Duration,
    client: (&'static str, String),
    dir: TempDir,
}

impl Waiting {
    fn start(bench: &Bench, tool: Tool) -> Self {
        let dir = open_directory();
        if tool.is_ours() {
            let mux = bench.mux(tool, "stream", &[]);
            let client = ("stream", mux.file("sock-stdout").display().to_string());
            return Self { ready_after: mux.ready_after, child: None, mux: Some(mux), client, dir };
        }
        let words = ["sleep", "1000"].map(str::to_owned);
        let began = Instant::now();
        let (child, kind, socket) = if tool == Tool::Conmon {
            let child = quiet(&mut conmon(bench, dir.path(), &words, "off:", false));
            (child, "packets", conmon_serves(dir.path()))
        } else {
            let socket = dir.path().join("socket");
            let mut dtach = std::process::Command::new("dtach");
            let child = quiet(dtach.arg("-N").arg(&socket).args(words));
            wait_for("dtach serves", || socket.exists());
            (child, "dtach", socket)
        };
        let ready_after = began.elapsed();
        let client = (kind, socket.display().to_string());
        Self { child: Some(child), mux: None, ready_after, client, dir }
    }

    fn pid(&self) -> u32 {
        let child = self.child.as_ref().or_else(|| self.mux.as_ref().map(|mux| &mux.child));
        child.unwrap().id()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // conmon's app would outlive it.
        if let Ok(pid) = fs::read_to_string(self.dir.path().join("pid")) {
            let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// So many of a tool at the same time, the first with so many clients.
pub fn wait(bench: &Bench, processes: usize, clients: usize, tool: Tool) -> Values {
    let all: Vec<Waiting> = (0..processes).map(|_| Waiting::start(bench, tool)).collect();
    let (kind, socket) = &all[0].client;
    let client = |_| {
        let mut client = bench.role(&["reader", kind, socket]);
        let mut client =
            Killed(client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        until_it_speaks(&mut client);
        client
    };
    let clients: Vec<Killed> = (0..clients).map(client).collect();
    sleep(SETTLING);
    let before: u64 = all.iter().map(|one| wake_ups(one.pid())).sum();
    sleep(WATCHED);
    let woken = all.iter().map(|one| wake_ups(one.pid())).sum::<u64>() - before;
    let count = f64::from(u32::try_from(processes).unwrap());
    let memory: f64 = all.iter().map(|one| pss(one.pid())).sum();
    drop(clients);
    let woken = f64::from(u32::try_from(woken).unwrap()) / count / WATCHED.as_secs_f64();
    vec![(Metric::Pss, memory / count), (Metric::WakeUps, woken)]
}

/// The time from the start until clients can connect.
pub fn ready(bench: &Bench, tool: Tool) -> Values {
    let waiting = Waiting::start(bench, tool);
    vec![(Metric::Ready, waiting.ready_after.as_secs_f64() * 1e3)]
}

/// The size of the program.
pub fn size(bench: &Bench, tool: Tool) -> Values {
    let bytes = fs::metadata(bench.release(tool)).unwrap().len();
    vec![(Metric::Size, f64::from(u32::try_from(bytes).unwrap()) / 1e6)]
}

fn wake_ups(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::path::PathBuf| -> u64 {
        let text = fs::read_to_string(task.join("status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    tasks.map(|task| of(task.unwrap().path())).sum()
}

/// Memory of a process where shared pages count in parts, MB.
pub fn pss(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024.0 / 1e6
}
