//! Runs of a client: what comes from its pipe goes to the app, or what comes from the app to its
//! pipe.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::process::{
    Bench, Killed, Mux, cpu, open_directory, release, until_it_ends, until_it_speaks, wait_for,
};
use super::sample::{Metric, Values};
use super::tools::Tool;

/// Bytes of each write(2) of the producer, and of its lines.
const PIECE: &str = "65536";
const LINE: &str = "100";
/// Until the client is connected and waits.
const SETTLING: Duration = Duration::from_millis(100);

/// One run. With `input`, the client's input goes to the app, else the app's output to the client.
/// In both cases the last process of the chain reads until the last line.
pub fn run(bench: &Bench, input: bool, tool: Tool) -> Values {
    let dir = open_directory();
    let (go, told) = (dir.path().join("go"), dir.path().join("told"));
    mkfifo(&go, Mode::S_IRWXU).unwrap();
    let mux = bench.mux(Tool::Iottymux, "stream", &[]);
    let producer = || {
        let mut producer = bench.role(&["app", PIECE, LINE]);
        producer.arg(bench.seconds.as_secs_f64().to_string()).arg(&go).arg(&told);
        producer
    };
    let mut client = command(bench, &mux, input, tool);
    client.stderr(Stdio::null());
    let (producer, client, mut reader) = if input {
        let fifo = mux.file("stage2-stdin");
        let reader = reader(bench, &["reader", "fifo", fifo.to_str().unwrap()], Stdio::null());
        let mut producer = Killed(producer().stdout(Stdio::piped()).spawn().unwrap());
        client.stdin(producer.stdout.take().unwrap()).stdout(Stdio::null());
        (producer, Killed(client.spawn().unwrap()), reader)
    } else {
        client.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut client = Killed(client.spawn().unwrap());
        let reader = reader(bench, &["reader", "stdin", "-"], client.stdout.take().unwrap());
        let end = File::options().write(true).open(mux.file("stage2-stdout")).unwrap();
        (Killed(producer().stdout(end).spawn().unwrap()), client, reader)
    };
    sleep(SETTLING);
    let pids = [mux.child.id(), client.id()];
    let before = pids.map(cpu);
    let since = Instant::now();
    release(&go);
    sleep(bench.seconds);
    wait_for("the producer has written all", || told.exists());
    until_it_ends("the reader", &mut reader);
    let took = since.elapsed().as_secs_f64();
    let [of_mux, of_client] =
        [0, 1].map(|at| cpu(pids[at]).saturating_sub(before[at]).as_secs_f64());
    let bytes: f64 = fs::read_to_string(&told).unwrap().parse().unwrap();
    drop(producer);
    let gib = bytes / f64::from(1 << 30);
    vec![
        (Metric::Speed, bytes / took / 1e6),
        (Metric::Cpu, of_mux / gib),
        (Metric::ClientCpu, of_client / gib),
    ]
}

fn reader(bench: &Bench, role: &[&str], from: impl Into<Stdio>) -> Killed {
    let mut reader = bench.role(role);
    let mut reader = Killed(reader.stdin(from).stdout(Stdio::piped()).spawn().unwrap());
    until_it_speaks(&mut reader);
    reader
}

fn command(bench: &Bench, mux: &Mux, input: bool, tool: Tool) -> Command {
    let socket = mux.file(if input { "sock-stdin" } else { "sock-stdout" });
    match tool {
        Tool::Iottymux => mux.client(bench, &["--mode", if input { "stdin" } else { "stdout" }]),
        Tool::Socat => {
            let address = format!("UNIX-CONNECT:{}", socket.display());
            let ends = if input { ["STDIN", &address] } else { [&*address, "STDOUT"] };
            let mut socat = Command::new("socat");
            socat.args(["-u", "-b65536"]).args(ends);
            socat
        }
        _ => limit(bench, &socket),
    }
}

fn limit(bench: &Bench, socket: &Path) -> Command {
    bench.role(&["pass", socket.to_str().unwrap()])
}
