//! What all runs share: the programs, the mux as its units run it, conmon, and looks at processes.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::Shutdown;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::libc::O_NONBLOCK;
use nix::time::clock_getcpuclockid;
use nix::unistd::{Gid, Pid, Uid, chown};
use tempfile::{TempDir, tempdir, tempdir_in};

use super::confined;
use super::roles::ROLE;
use super::tools::Tool;
use super::wait::{WATCHDOG, looking_each};

/// The user of a mux where there is no user `iottymux`: nobody.
const NOBODY: u32 = 65_534;
/// On a busy machine no client loses output, which would not be measured.
const PATIENT: &str = "--max-client-delay=60";
/// Between two looks; short beside all that is measured.
const PAUSE: Duration = Duration::from_micros(200);
/// The app of all muxes.
const APP: &str = "bench";

/// The programs, and how long a run takes.
#[derive(Debug)]
pub struct Bench {
    pub seconds: Duration,
    /// This program, where the user of the mux may run it.
    pub program: PathBuf,
    ours: PathBuf,
    other: Option<PathBuf>,
    user: Option<u32>,
    _dir: TempDir,
}

impl Bench {
    pub fn new(seconds: Duration) -> Self {
        let dir = open_directory();
        let shared = |from: PathBuf, name: &str| {
            if may_all_run(&from) {
                return from;
            }
            let to = dir.path().join(name);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
            to
        };
        let other = env::var_os("IOTTYMUX_OTHER");
        Self {
            seconds,
            program: shared(env::current_exe().unwrap(), "bench"),
            ours: shared(env!("CARGO_BIN_EXE_iottymux").into(), "iottymux"),
            other: other.map(|path| shared(path.into(), "other")),
            user: Uid::effective().is_root().then(|| user_of_muxes().unwrap_or(NOBODY)),
            _dir: dir,
        }
    }

    pub fn has_other(&self) -> bool {
        self.other.is_some()
    }

    /// The release that a tool stands for.
    pub fn release(&self, tool: Tool) -> &Path {
        self.other.as_deref().filter(|_| tool == Tool::Other).unwrap_or(&self.ours)
    }

    /// A command of this program.
    pub fn role(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(ROLE).args(words).stdin(Stdio::null());
        command
    }

    /// A directory on a disk that the mux may write.
    pub fn disk(&self) -> TempDir {
        let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        self.give(dir.path());
        dir
    }

    fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(Uid::from_raw(user)), Some(Gid::from_raw(user))).unwrap();
        }
    }

    /// A mux, ready, with these words behind the app's name.
    pub fn mux(&self, tool: Tool, kind: &str, options: &[&str]) -> Mux {
        let dir = open_directory();
        let (state, notify, stamp) =
            (dir.path().join("state"), dir.path().join("notify"), dir.path().join("state/stamp"));
        fs::create_dir(&state).unwrap();
        self.give(&state);
        let manager = UnixDatagram::bind(&notify).unwrap();
        fs::set_permissions(&notify, Permissions::from_mode(0o777)).unwrap();
        let mut command = confined::command(&self.program, self.user);
        command.args([ROLE, "stamp"]).arg(&stamp).arg(self.release(tool));
        command.arg("--state-dir").arg(&state).args([kind, "--app", APP, PATIENT]).args(options);
        command.env("NOTIFY_SOCKET", &notify);
        let said = File::create(dir.path().join("said")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = Killed(command.spawn().unwrap());
        let ready = follow(manager.try_clone().unwrap());
        let mut mux = Mux { child, ready_after: Duration::ZERO, manager, dir };
        let at = ready.recv_timeout(WATCHDOG).ok().unwrap_or_else(|| {
            panic!("the mux: {}", fs::read_to_string(mux.dir.path().join("said")).unwrap())
        });
        let began: u64 = fs::read_to_string(&stamp).unwrap().parse().unwrap();
        mux.ready_after = Duration::from_nanos(at.saturating_sub(began));
        mux
    }
}

/// Whether any user may run a program. Such a one is not copied: the pages of a fresh copy are
/// larger, so more of them counts as memory of a process.
fn may_all_run(program: &Path) -> bool {
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 1 == 1);
    program.is_absolute() && program.ancestors().all(is_open)
}

/// The user `iottymux`. The file, since a static program cannot ask the C library.
fn user_of_muxes() -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| line.strip_prefix("iottymux:x:")?.split(':').next()?.parse().ok())
}

/// Takes all that a mux says to its manager, as systemd does, and returns when it is ready.
fn follow(manager: UnixDatagram) -> Receiver<u64> {
    let (told, ready) = channel();
    thread::spawn(move || {
        let mut message = [0; 4096];
        // Descriptors are closed, since nothing receives them.
        while let Ok(len @ 1..) = manager.recv(&mut message) {
            if message[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                let _ = told.send(confined::now());
            }
        }
    });
    ready
}

/// A mux that runs.
#[derive(Debug)]
pub struct Mux {
    pub child: Killed,
    /// From its first instruction until it was ready.
    pub ready_after: Duration,
    manager: UnixDatagram,
    dir: TempDir,
}

impl Mux {
    /// A file of its app.
    pub fn file(&self, name: &str) -> PathBuf {
        self.state().join(APP).join(name)
    }

    /// A command of a client.
    pub fn client(&self, bench: &Bench, options: &[&str]) -> Command {
        let mut command = Command::new(bench.release(Tool::Iottymux));
        command.arg("--state-dir").arg(self.state()).args(["attach", APP]).args(options);
        command
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        let _ = self.manager.shutdown(Shutdown::Both);
    }
}

/// A directory that all users may enter.
pub fn open_directory() -> TempDir {
    let dir = tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    dir
}

/// A process that does not outlive its run.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program whose messages nobody reads.
pub fn quiet(command: &mut Command) -> Killed {
    Killed(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    )
}

/// Waits until a process has written something to its piped output, which says that it is ready.
pub fn until_it_speaks(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

/// conmon, with a runtime that only starts the app: these words, on a terminal or not.
pub fn conmon(bench: &Bench, dir: &Path, words: &[String], log: &str, tty: bool) -> Command {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (quoted, runtime, pid) = (quoted.join(" "), dir.join("runtime"), dir.join("pid"));
    let script = if tty {
        // The words: create, …, --console-socket PATH, …
        let program = bench.program.display();
        format!(
            "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --console-socket ] && console=$2; shift; done\n\
             exec '{program}' {ROLE} terminal \"$console\" '{}' {quoted}\n",
            pid.display()
        )
    } else {
        // conmon reads the number as soon as the runtime ends.
        format!("#!/bin/sh\n{quoted} &\necho $! >'{}'\n", pid.display())
    };
    fs::write(&runtime, script).unwrap();
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    let bundle = dir.join("bundle");
    fs::create_dir(&bundle).unwrap();
    let mut conmon = Command::new("conmon");
    conmon.args(["--sync", "--cid=c", "--cuuid=c", "--name=c", "--no-sync-log"]);
    conmon.args(tty.then_some("-t")).arg("--runtime").arg(runtime).arg("--bundle").arg(bundle);
    conmon.arg("--container-pidfile").arg(pid).arg("--socket-dir-path").arg(dir);
    conmon.arg("--log-path").arg(log);
    conmon
}

/// Waits until conmon serves clients, and returns their socket.
pub fn conmon_serves(dir: &Path) -> PathBuf {
    let attach = dir.join("c/attach");
    wait_for("conmon serves", || attach.exists() && dir.join("pid").exists());
    attach
}

/// CPU time of a child so far, over all of its threads, also if it has ended.
pub fn cpu(pid: u32) -> Duration {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).unwrap();
    clock.now().unwrap().into()
}

/// CPU time of the threads that a process has, by its directory in a procfs.
pub fn cpu_of(process: &Path) -> Duration {
    let tasks = fs::read_dir(process.join("task")).unwrap();
    let of = |task: PathBuf| -> u64 {
        let text = fs::read_to_string(task.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.map(|task| of(task.unwrap().path())).sum())
}

/// Waits until a process has ended well.
pub fn until_it_ends(what: &str, child: &mut Child) {
    let until = Instant::now() + WATCHDOG;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => sleep(PAUSE),
        }
        assert!(Instant::now() < until, "{what} does not end");
    };
    assert!(status.success(), "{what} failed: {status}");
}

/// Lets the process go on that waits at this FIFO.
pub fn release(go: &Path) {
    let open = || File::options().write(true).custom_flags(O_NONBLOCK).open(go);
    wait_for("the app waits", || open().is_ok());
}

/// Looks again and again.
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    looking_each(PAUSE, what, holds);
}
