//! How fast an app prints on a terminal, and the memory of its mux then.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::{self, sleep};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::process::{Bench, Killed, cpu, open_directory, release, until_it_speaks, wait_for};
use super::roles::ROLE;
use super::sample::{Metric, Values};
use super::tools::Tool;
use super::{idle, limit, terminal};

/// Until the client has what is there when it comes.
const SETTLING: Duration = Duration::from_millis(50);

/// One run, with a client or without.
pub fn run(bench: &Bench, coloured: bool, client: bool, tool: Tool) -> Values {
    let dir = open_directory();
    let (go, told) = (dir.path().join("go"), dir.path().join("told"));
    mkfifo(&go, Mode::S_IRWXU).unwrap();
    let kind = if coloured { "coloured" } else { "plain" };
    let seconds = bench.seconds.as_secs_f64().to_string();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let words = [
        path(&bench.program),
        ROLE.into(),
        "print".into(),
        kind.into(),
        seconds,
        path(&go),
        path(&told),
    ];
    let mut terminal = terminal::start(bench, tool, dir.path(), &words);
    let reads = terminal.master.take().map(|master| thread::spawn(move || limit::forget(&master)));
    let client = (client && reads.is_none()).then(|| {
        let kind = match tool {
            Tool::Conmon => "packets",
            Tool::Dtach => "dtach",
            Tool::Session => "terminal session",
            _ => "stream",
        };
        let mut client = bench.role(&["reader", kind, terminal.socket.to_str().unwrap()]);
        let client = client.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = Killed(client.spawn().unwrap());
        until_it_speaks(&mut client);
        client
    });
    sleep(SETTLING);
    release(&go);
    let before = cpu(terminal.pid);
    sleep(bench.seconds);
    wait_for("the app has printed all", || told.exists());
    let used = cpu(terminal.pid).saturating_sub(before).as_secs_f64();
    let text = fs::read_to_string(&told).unwrap();
    let (bytes, took) = text.split_once(' ').unwrap();
    let (bytes, took): (f64, f64) = (bytes.parse().unwrap(), took.parse().unwrap());
    let memory = idle::pss(terminal.pid);
    release(&go);
    let is_limit = reads.is_some();
    drop((client, terminal));
    let speed = (Metric::Speed, bytes / took / 1e6);
    // Without a mux, the process is the app.
    if is_limit {
        vec![speed]
    } else {
        vec![speed, (Metric::Cpu, used / bytes * f64::from(1 << 30)), (Metric::Pss, memory)]
    }
}
