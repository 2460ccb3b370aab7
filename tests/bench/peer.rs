//! The tools that are compared, and one run of one of them.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::{TempDir, tempdir, tempdir_in};

use super::app;
use super::cases::Case;
use super::installed::is_installed;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Ours.
    Iottymux,
    /// Ours where a service manager keeps what is not read yet.
    Kept,
    /// The release that `IOTTYMUX_OTHER` names, as [`Tool::Iottymux`].
    Other,
    /// The same, as [`Tool::Kept`].
    OtherKept,
    /// conmon(8), which podman and CRI-O use.
    Conmon,
    /// s6-log with times, which is no CRI.
    S6Log,
    /// `cat fifo >file`, which adds nothing.
    Cat,
    /// socat with 64 KiB.
    Socat,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Bytes of the app per second.
    pub speed: f64,
    /// CPU seconds of the tool per GiB of the app.
    pub cpu: f64,
}

/// More than a log takes in a run, bytes.
const WARM: usize = 2 << 30;

/// What all runs share.
#[derive(Debug)]
pub struct Bench {
    seconds: Duration,
    program: PathBuf,
}

impl Tool {
    /// How it is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iottymux => "iottymux",
            Self::Kept => "iottymux, kept",
            Self::Other => "other",
            Self::OtherKept => "other, kept",
            Self::Conmon => "conmon",
            Self::S6Log => "s6-log T",
            Self::Cat => "cat",
            Self::Socat => "socat",
        }
    }

    /// Whether it is installed.
    pub fn is_there(self) -> bool {
        let program = match self {
            Self::Iottymux | Self::Kept => return true,
            Self::Other | Self::OtherKept => return other_release().is_some(),
            Self::Conmon => "conmon",
            Self::S6Log => "s6-log",
            Self::Cat => "cat",
            Self::Socat => "socat",
        };
        is_installed(program)
    }

    /// What its figures are compared with.
    pub fn ours(self) -> Self {
        if self == Self::OtherKept { Self::Kept } else { Self::Iottymux }
    }

    pub fn is_ours(self) -> bool {
        matches!(self, Self::Iottymux | Self::Kept)
    }
}

fn other_release() -> Option<OsString> {
    env::var_os("IOTTYMUX_OTHER")
}

/// A run that has been prepared: the app waits, the clients are there.
struct Run<'a> {
    bench: &'a Bench,
    case: &'a Case,
    /// FIFOs and sockets.
    dir: TempDir,
    /// Logs, on a disk.
    disk: TempDir,
    /// Whose CPU time counts.
    tool: Child,
    app: Option<Child>,
    clients: Vec<Child>,
    /// Where the last line appears.
    log: Option<PathBuf>,
    _manager: Option<UnixDatagram>,
}

impl Bench {
    /// Runs of at least so long.
    pub fn new(seconds: Duration) -> Self {
        Self { seconds, program: env::current_exe().unwrap() }
    }

    /// One run.
    pub fn run(&self, case: &Case, tool: Tool) -> Outcome {
        let run = Run::prepare(self, case, tool);
        if case.logs {
            warm(run.disk.path());
        }
        // Whoever has to accept a connection does so now.
        sleep(Duration::from_millis(50));
        run.measure()
    }

    /// The app, as a command without an output.
    fn app(&self, case: &Case, dir: &Path) -> Command {
        let mut app = Command::new(&self.program);
        app.arg("app").args([case.piece, case.line].map(|number| number.to_string()));
        app.arg(self.seconds.as_secs_f64().to_string());
        app.arg(dir.join("go")).arg(dir.join("told"));
        app
    }
}

impl<'a> Run<'a> {
    fn prepare(bench: &'a Bench, case: &'a Case, tool: Tool) -> Self {
        let dir = tempdir().unwrap();
        let disk = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = |name: &str| dir.path().join(name);
        let log = disk.path().join("log");
        let fifo = |name: &str| mkfifo(&file(name), Mode::S_IRWXU).unwrap();
        fifo("go");
        let mut manager = None;
        let (child, input, socket, log) = match tool {
            Tool::Iottymux | Tool::Kept | Tool::Other | Tool::OtherKept => {
                let ours = env!("CARGO_BIN_EXE_iottymux").into();
                let other = if tool.is_ours() { None } else { other_release() };
                let mut mux = Command::new(other.unwrap_or(ours));
                mux.arg("--state-dir").arg(dir.path()).args(["stream", "--app", "bench"]);
                if case.logs {
                    mux.arg("--log").arg(format!("cri:{}", log.display()));
                }
                mux.env_remove("NOTIFY_SOCKET");
                if matches!(tool, Tool::Kept | Tool::OtherKept) {
                    let socket = UnixDatagram::bind(file("notify")).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    mux.env("NOTIFY_SOCKET", file("notify"));
                    manager = Some(socket);
                }
                let child = quiet(mux, &dir);
                wait_for(|| {
                    // It would wait for a manager that does not listen.
                    while manager.as_ref().is_some_and(|socket| socket.recv(&mut [0; 512]).is_ok())
                    {
                    }
                    file("bench/endpoints").exists()
                });
                (child, Some(file("bench/stage2-stdout")), file("bench/sock-stdout"), log)
            }
            Tool::Conmon => {
                let child = quiet(conmon(bench, case, dir.path(), &log), &dir);
                wait_for(|| file("c/attach").exists() && file("pid").exists());
                (child, None, file("c/attach"), log)
            }
            Tool::S6Log => {
                fifo("fifo");
                let mut s6 = Command::new("s6-log");
                s6.args(["s268435455", "n20", "T"]).arg(&log);
                s6.stdin(reader(&file("fifo")));
                (quiet(s6, &dir), Some(file("fifo")), PathBuf::new(), log.join("current"))
            }
            Tool::Cat => {
                fifo("fifo");
                let mut cat = Command::new("cat");
                cat.stdin(reader(&file("fifo"))).stdout(File::create(&log).unwrap());
                (cat.spawn().unwrap(), Some(file("fifo")), PathBuf::new(), log)
            }
            Tool::Socat => {
                fifo("fifo");
                let mut socat = Command::new("socat");
                let socket = file("socket");
                socat.args(["-u", "-b65536"]).arg(format!("OPEN:{}", file("fifo").display()));
                socat.arg(format!("UNIX-LISTEN:{}", socket.display()));
                let child = quiet(socat, &dir);
                (child, Some(file("fifo")), socket, log)
            }
        };
        let app = input.map(|input| {
            let end = File::options().write(true).open(input).unwrap();
            bench.app(case, dir.path()).stdout(end).spawn().unwrap()
        });
        if case.clients > 0 {
            wait_for(|| socket.exists());
        }
        let kind = if tool == Tool::Conmon { "packets" } else { "stream" };
        let client = |_| {
            let mut client = Command::new(&bench.program);
            client.args(["reader", kind]).arg(&socket).stdout(Stdio::piped());
            let mut client = client.spawn().unwrap();
            client.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            client
        };
        Self {
            clients: (0..case.clients).map(client).collect(),
            log: case.logs.then_some(log),
            tool: child,
            _manager: manager,
            bench,
            case,
            dir,
            disk,
            app,
        }
    }

    fn measure(mut self) -> Outcome {
        let (go, told) = (self.dir.path().join("go"), self.dir.path().join("told"));
        let pid = self.tool.id();
        let before = cpu(pid);
        let since = Instant::now();
        app::say(&go);
        sleep(self.bench.seconds);
        wait_for(|| told.exists());
        for client in &mut self.clients {
            assert!(client.wait().unwrap().success());
        }
        if let Some(log) = &self.log {
            wait_for(|| ends(log));
        }
        let took = since.elapsed();
        let used = cpu(pid).checked_sub(before).unwrap();
        let bytes: f64 = fs::read_to_string(told).unwrap().parse().unwrap();
        app::say(&go);
        if let Some(app) = &mut self.app {
            assert!(app.wait().unwrap().success());
        }
        // conmon ends with its app; the others without pity.
        if self.app.is_some() {
            self.tool.kill().unwrap();
        }
        self.tool.wait().unwrap();
        let (Self { dir, disk, case, .. }, gib) = (self, bytes / f64::from(1 << 30));
        assert!(disk.path().exists() && dir.path().exists(), "{}", case.name);
        Outcome { speed: bytes / took.as_secs_f64(), cpu: used.as_secs_f64() / gib }
    }
}

/// Takes as much memory for a file as a run may need, and gives it back. In a virtual machine whose host
/// takes free memory away a page may cost five times as much the first time, which would be measured.
fn warm(disk: &Path) {
    let path = disk.join("warm");
    let mut file = File::create(&path).unwrap();
    let piece = vec![0; 512 * 1024];
    for _ in 0..WARM / piece.len() {
        file.write_all(&piece).unwrap();
    }
    fs::remove_file(path).unwrap();
}

/// conmon, with a runtime that does no more than start the app.
fn conmon(bench: &Bench, case: &Case, dir: &Path, log: &Path) -> Command {
    let app = bench.app(case, dir);
    let words: Vec<_> =
        [app.get_program()].into_iter().chain(app.get_args()).map(|word| word.display()).collect();
    let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let (runtime, pid) = (dir.join("runtime"), dir.join("pid"));
    // conmon reads the number as soon as the runtime ends.
    let script = format!("#!/bin/sh\n{} &\necho $! >'{}'\n", words.join(" "), pid.display());
    fs::write(&runtime, script).unwrap();
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    let bundle = dir.join("bundle");
    fs::create_dir(&bundle).unwrap();
    let mut conmon = Command::new("conmon");
    conmon.args(["--sync", "--cid=c", "--cuuid=c", "--name=c", "--no-sync-log"]);
    conmon.arg("--runtime").arg(runtime).arg("--bundle").arg(bundle);
    conmon.arg("--container-pidfile").arg(pid).arg("--socket-dir-path").arg(dir);
    let driver = if case.logs { format!("k8s-file:{}", log.display()) } else { "off:".to_owned() };
    conmon.arg("--log-path").arg(driver);
    conmon
}

/// A tool that keeps what it says to itself.
fn quiet(mut command: Command, dir: &TempDir) -> Child {
    let said = File::create(dir.path().join("said")).unwrap();
    command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// The reading end of a FIFO that has no writer yet.
fn reader(fifo: &Path) -> File {
    // With both ends it needs nobody else; the tool never sees an end, and is killed.
    File::options().read(true).write(true).open(fifo).unwrap()
}

/// CPU time of a process so far, over all of its threads.
fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: PathBuf| -> u64 {
        let text = fs::read_to_string(task.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.map(|task| of(task.unwrap().path())).sum())
}

/// Whether the last line is at the end of a file.
fn ends(log: &Path) -> bool {
    let Ok(file) = File::open(log) else { return false };
    let mut tail = [0; app::LAST.len()];
    let at = file.metadata().unwrap().len().checked_sub(tail.len() as u64);
    at.is_some_and(|at| file.read_exact_at(&mut tail, at).is_ok() && tail == app::LAST)
}

/// Looks again and again.
pub fn wait_for(holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "nothing came of a run");
        sleep(Duration::from_millis(1));
    }
}
