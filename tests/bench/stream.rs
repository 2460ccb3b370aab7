//! Runs of an app that writes to a FIFO: to logs, and to clients.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tempfile::TempDir;

use super::process::{
    Bench, Killed, Mux, conmon, conmon_serves, cpu, open_directory, quiet, release, until_it_ends,
    until_it_speaks, wait_for,
};
use super::roles;
use super::sample::{Metric, Values};
use super::tools::Tool;

/// What the app and the others do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes of each write(2) of the app; 0 for a line in each millisecond.
    pub piece: usize,
    /// Bytes of each line, with its end.
    pub line: usize,
    /// The format of the log, as `--log` takes it.
    pub log: Option<&'static str>,
    /// Clients that read it.
    pub clients: usize,
    /// Size of the send buffer of each client, bytes, if not the usual one.
    pub buffer: Option<usize>,
}

/// More than a log takes in a run, bytes.
const WARM: usize = 2 << 30;
/// Until all connections have been accepted: so long, and so much more for each.
const SETTLING: Duration = Duration::from_millis(50);
const SETTLING_EACH: Duration = Duration::from_micros(400);

/// One run.
pub fn run(bench: &Bench, work: &Work, tool: Tool) -> Values {
    let mut run = Run::prepare(bench, work, tool);
    if work.log.is_some() {
        warm(run.disk.path());
    }
    sleep(SETTLING + SETTLING_EACH * u32::try_from(work.clients).unwrap());
    if let (Some(size), true) = (work.buffer, tool.is_ours()) {
        widen(run.pid(), size, work.clients);
    }
    run.measure()
}

/// A run that has been prepared: the app waits, the clients are there.
struct Run<'a> {
    bench: &'a Bench,
    work: &'a Work,
    tool: Server,
    clients: Vec<Killed>,
    app: Option<Killed>,
    /// Where the last line appears.
    log: Option<PathBuf>,
    /// Logs, on a disk.
    disk: TempDir,
    /// FIFOs and sockets.
    dir: TempDir,
}

/// The program whose CPU time counts.
enum Server {
    Mux(Mux),
    Peer(Killed),
}

/// What a tool offers: the end for the app, if the tool has not started it, its clients' kind and
/// socket, and its log.
type Ends = (Server, Option<PathBuf>, (&'static str, PathBuf), PathBuf);

impl<'a> Run<'a> {
    fn prepare(bench: &'a Bench, work: &'a Work, tool: Tool) -> Self {
        let (dir, disk) = (open_directory(), bench.disk());
        mkfifo(&dir.path().join("go"), Mode::S_IRWXU).unwrap();
        let ends = match tool {
            Tool::Iottymux | Tool::Session | Tool::Other => ours(bench, work, tool, disk.path()),
            _ => peer(bench, work, tool, dir.path(), disk.path()),
        };
        let (tool, input, (kind, socket), log) = ends;
        let app = input.map(|input| {
            let end = File::options().write(true).open(input).unwrap();
            Killed(app(bench, work, dir.path()).stdout(end).spawn().unwrap())
        });
        if work.clients > 0 {
            wait_for("the socket is there", || socket.exists());
        }
        let client = |_| {
            let mut client = bench.role(&["reader", kind, socket.to_str().unwrap()]);
            let mut client = Killed(client.stdout(Stdio::piped()).spawn().unwrap());
            until_it_speaks(&mut client);
            client
        };
        let clients = (0..work.clients).map(client).collect();
        let log = work.log.is_some().then_some(log);
        Self { bench, work, tool, clients, app, log, disk, dir }
    }

    fn pid(&self) -> u32 {
        match &self.tool {
            Server::Mux(mux) => mux.child.id(),
            Server::Peer(child) => child.id(),
        }
    }

    fn measure(&mut self) -> Values {
        let (go, told) = (self.dir.path().join("go"), self.dir.path().join("told"));
        let before = cpu(self.pid());
        let since = Instant::now();
        release(&go);
        sleep(self.bench.seconds);
        wait_for("the app has written all", || told.exists());
        let mut said = String::new();
        for client in &mut self.clients {
            until_it_ends("a client", client);
            said.clear();
            client.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
        }
        if let Some(log) = &self.log {
            wait_for("the log has all", || ends(log));
        }
        let took = since.elapsed();
        let used = cpu(self.pid()).saturating_sub(before).as_secs_f64();
        let bytes: f64 = fs::read_to_string(told).unwrap().parse().unwrap();
        release(&go);
        if let Some(app) = &mut self.app {
            until_it_ends("the app", app);
        }
        if self.work.piece == 0 {
            let lines = bytes / f64::from(u32::try_from(roles::TIMED).unwrap());
            let mut tenths = said.split(' ').map(|word| word.parse::<f64>().unwrap() / 10.0);
            let (p50, p99) = (tenths.next().unwrap(), tenths.next().unwrap());
            let each = used / lines * 1e6;
            return vec![(Metric::P50, p50), (Metric::P99, p99), (Metric::EachCpu, each)];
        }
        let gib = bytes / f64::from(1 << 30);
        vec![(Metric::Speed, bytes / took.as_secs_f64() / 1e6), (Metric::Cpu, used / gib)]
    }
}

/// The app, as a command without an output.
fn app(bench: &Bench, work: &Work, dir: &Path) -> Command {
    let seconds = bench.seconds.as_secs_f64().to_string();
    let mut app = if work.piece == 0 {
        bench.role(&["tick"])
    } else {
        bench.role(&["app", &work.piece.to_string(), &work.line.to_string()])
    };
    app.arg(seconds).arg(dir.join("go")).arg(dir.join("told"));
    app
}

fn ours(bench: &Bench, work: &Work, tool: Tool, disk: &Path) -> Ends {
    let log = disk.join("log");
    let option = work.log.map(|format| format!("{format}:{}", log.display()));
    let options: Vec<&str> = option.iter().flat_map(|option| ["--log", option]).collect();
    let mux = bench.mux(tool, "stream", &options);
    let input = mux.file("stage2-stdout");
    let clients = if tool == Tool::Session {
        ("session", mux.file("sock-session"))
    } else {
        ("stream", mux.file("sock-stdout"))
    };
    (Server::Mux(mux), Some(input), clients, log)
}

fn peer(bench: &Bench, work: &Work, tool: Tool, dir: &Path, disk: &Path) -> Ends {
    let (fifo, socket, mut log) = (dir.join("fifo"), dir.join("socket"), disk.join("log"));
    if tool == Tool::Conmon {
        let app = app(bench, work, dir);
        let words = [app.get_program()].into_iter().chain(app.get_args());
        let words: Vec<String> = words.map(|word| word.display().to_string()).collect();
        let driver =
            if work.log.is_some() { format!("k8s-file:{}", log.display()) } else { "off:".into() };
        let child = quiet(&mut conmon(bench, dir, &words, &driver, false));
        let attach = conmon_serves(dir);
        return (Server::Peer(child), None, ("packets", attach), log);
    }
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // With both ends it needs no writer yet; the tool never sees an end, and is killed.
    let from_fifo = || File::options().read(true).write(true).open(&fifo).unwrap();
    let child = match tool {
        Tool::S6Log => {
            let mut s6 = Command::new("s6-log");
            s6.args(["s268435455", "n20", "T"]).arg(&log).stdin(from_fifo());
            s6.stdout(Stdio::null()).stderr(Stdio::null());
            log.push("current");
            Killed(s6.spawn().unwrap())
        }
        Tool::Cat => {
            let mut cat = Command::new("cat");
            cat.stdin(from_fifo()).stdout(File::create(&log).unwrap());
            Killed(cat.spawn().unwrap())
        }
        Tool::Socat => {
            let mut socat = Command::new("socat");
            socat.args(["-u", "-b65536"]).arg(format!("OPEN:{}", fifo.display()));
            quiet(socat.arg(format!("UNIX-LISTEN:{}", socket.display())))
        }
        _ => {
            let kind = if tool == Tool::TeeSplice { "tee" } else { "copy" };
            let numbers = [work.clients, work.buffer.unwrap_or(0)].map(|n| n.to_string());
            let mut limit = bench.role(&["limit", kind]);
            quiet(limit.arg(&fifo).arg(&socket).args(numbers))
        }
    };
    (Server::Peer(child), Some(fifo), ("stream", socket), log)
}

/// Gives the clients' sockets of a mux send buffers of this size, from outside: the mux asks for
/// less.
fn widen(pid: u32, size: usize, clients: usize) {
    let pid_fd = Pid::from_raw(pid.cast_signed()).unwrap();
    let process = pidfd_open(pid_fd, PidfdFlags::empty()).unwrap();
    let mut widened = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let entry = entry.unwrap();
        let is_socket = |target: PathBuf| target.to_string_lossy().starts_with("socket:");
        let number = entry.file_name().into_string().unwrap().parse().unwrap();
        if !fs::read_link(entry.path()).is_ok_and(is_socket) {
            continue;
        }
        let socket = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap();
        if getsockopt(&socket, sockopt::AcceptConn).unwrap_or(true) {
            continue;
        }
        // The kernel doubles it, up to twice net.core.wmem_max.
        setsockopt(&socket, sockopt::SndBuf, &(size / 2)).unwrap();
        let has = getsockopt(&socket, sockopt::SndBuf).unwrap();
        assert!(has >= size, "a send buffer of {size} bytes needs net.core.wmem_max={}", size / 2);
        widened += 1;
    }
    assert!(widened >= clients, "{widened} sockets of {clients} clients");
}

/// Takes as much memory for a file as a run may need, and gives it back. In a virtual machine whose
/// host takes free memory away a page may cost five times as much the first time, which would be
/// measured.
fn warm(disk: &Path) {
    let path = disk.join("warm");
    let mut file = File::create(&path).unwrap();
    let piece = vec![0; 512 * 1024];
    for _ in 0..WARM / piece.len() {
        std::io::Write::write_all(&mut file, &piece).unwrap();
    }
    fs::remove_file(path).unwrap();
}

/// Whether the last line is at the end of a file.
fn ends(log: &Path) -> bool {
    let Ok(file) = File::open(log) else { return false };
    // A format may close its entry behind the text.
    let mut tail = [0; 2 * roles::LAST.len() + 128];
    let size = file.metadata().unwrap().len();
    let from = size.saturating_sub(tail.len() as u64);
    let len = file.read_at(&mut tail, from).unwrap_or(0);
    let last = &roles::LAST[..roles::LAST.len() - 1];
    tail[..len].windows(last.len()).any(|part| part == last)
}
