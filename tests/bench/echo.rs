//! How long a key takes to its echo: from a client by way of a mux to an app on a terminal, and back. And
//! how fast an app can print there.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use iottymux::core::screen::Screen;
use iottymux::types::size::Size;
use iottymux::types::stream::{Position, Stream};
use iottymux::wire::{FrameKind, Hello, Redraw, Want};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send,
    sendmsg, socket,
};
use tempfile::{TempDir, tempdir};

use super::installed::is_installed;
use super::pair::pair;
use super::peer::wait_for;
use super::table::median;

/// Keys of one round.
const KEYS: usize = 1000;
const SIZE: Size = Size { rows: 24, cols: 80 };
/// What the app is: it gives back what it reads, byte for byte, once the file is there that it is given.
const APP: &str = "stty raw -echo; : >\"$0\"; exec cat";
/// That file.
const READY: &str = "ready";
/// Bytes that are printed in one round: so many that neither the beginning of a mux counts, nor what waits for its
/// model at the end.
const PRINTED: usize = 256 << 20;

/// How the keys go.
enum Way {
    /// To the terminal itself, without a mux.
    Bare(File),
    /// To our raw socket, and conmon's, whose packets begin with a byte of its own.
    Raw(OwnedFd),
    /// In frames of a session.
    Session(UnixStream),
    /// In dtach's packets.
    Dtach(UnixStream),
}

impl Way {
    fn press(&mut self, key: u8) {
        match self {
            Self::Bare(master) => master.write_all(&[key]).unwrap(),
            Self::Raw(fd) => drop(send(fd.as_raw_fd(), &[key], MsgFlags::empty()).unwrap()),
            Self::Session(socket) => socket.write_all(&FrameKind::Stdin.frame(&[key])).unwrap(),
            // MSG_PUSH, one byte.
            Self::Dtach(socket) => socket.write_all(&[0, 1, key, 0, 0, 0, 0, 0, 0, 0]).unwrap(),
        }
    }

    /// Reads until this key has come back.
    fn await_echo(&mut self, key: u8, buffer: &mut [u8]) {
        loop {
            let len = match self {
                Self::Bare(master) => master.read(buffer).unwrap(),
                Self::Raw(fd) => recv(fd.as_raw_fd(), buffer, MsgFlags::empty()).unwrap(),
                Self::Session(socket) | Self::Dtach(socket) => socket.read(buffer).unwrap(),
            };
            assert!(len > 0, "it has ended");
            if buffer[..len].contains(&key) {
                return;
            }
        }
    }
}

/// A mux, or none, with one client.
struct Peer {
    name: &'static str,
    way: Way,
    children: Vec<Child>,
    _dir: TempDir,
}

impl Drop for Peer {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures all that are there, in turns.
pub fn bench(program: &Path, rounds: usize) {
    println!("\nkey echo");
    let mut peers = vec![ours("iottymux, raw", false), ours("iottymux, session", true), bare()];
    peers.extend(is_installed("dtach").then(dtach));
    peers.extend(is_installed("conmon").then(|| conmon(program)));
    let mut buffer = vec![0; 64 * 1024];
    let mut medians: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    let mut slow: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for round in 0..=rounds {
        for (at, peer) in peers.iter_mut().enumerate() {
            let mut times: Vec<f64> = (0..KEYS)
                .map(|n| {
                    let key = b'a' + u8::try_from(n % 26).unwrap();
                    let began = Instant::now();
                    peer.way.press(key);
                    peer.way.await_echo(key, &mut buffer);
                    began.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            // The first round warms up.
            if round > 0 {
                medians[at].push(times[KEYS / 2]);
                slow[at].push(times[KEYS * 99 / 100]);
            }
        }
    }
    println!("  {:<18} {:>9} {:>9}", "", "p50 µs", "p99 µs");
    let ours = medians[1].clone();
    for ((peer, medians), slow) in peers.iter().zip(medians).zip(slow) {
        let ratio = median(ours.iter().zip(&medians).map(|(ours, theirs)| ours / theirs).collect());
        let asked = if peer.name == "dtach" {
            if ratio <= 1.1 { "   (asked: 1.1: met)" } else { "   (asked: 1.1: MISSED)" }
        } else {
            ""
        };
        let (p50, p99) = (median(medians), median(slow));
        println!("  {:<18} {p50:>9.1} {p99:>9.1}   session: {ratio:.2} x{asked}", peer.name);
    }
}

fn stream(path: &Path) -> UnixStream {
    wait_for(|| path.exists());
    UnixStream::connect(path).unwrap()
}

/// Waits for the app: it is there when it gives a key back.
fn ready(name: &'static str, mut way: Way, children: Vec<Child>, dir: TempDir) -> Peer {
    // Before that the terminal's own echo is heard.
    wait_for(|| dir.path().join(READY).exists());
    way.press(b'!');
    way.await_echo(b'!', &mut [0; 4096]);
    Peer { name, way, children, _dir: dir }
}

fn ours(name: &'static str, session: bool) -> Peer {
    let dir = tempdir().unwrap();
    let mut mux = Command::new(env!("CARGO_BIN_EXE_iottymux"));
    mux.arg("--state-dir")
        .arg(dir.path())
        .args(["run", "--foreground", "--app", "bench", "--tty", "--", "sh", "-c", APP])
        .arg(dir.path().join(READY));
    let mux = mux.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let way = if session {
        let mut socket = stream(&dir.path().join("bench/sock-session"));
        let hello = Hello {
            streams: vec![Want { stream: Stream::Tty, from: Position::Now }],
            stdin: true,
            size: Some(SIZE),
            redraw: Some(Redraw::Screen),
            ..Hello::default()
        };
        socket.write_all(&FrameKind::Hello.message(&hello)).unwrap();
        Way::Session(socket)
    } else {
        Way::Raw(stream(&dir.path().join("bench/sock-tty")).into())
    };
    ready(name, way, vec![mux], dir)
}

fn dtach() -> Peer {
    let dir = tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut dtach = Command::new("dtach");
    // In front, so that it can be killed.
    dtach.arg("-N").arg(&socket).args(["sh", "-c", APP]).arg(dir.path().join(READY));
    let (_, slave) = pair();
    dtach.stdin(slave.try_clone().unwrap()).stdout(slave).stderr(Stdio::null());
    let child = dtach.spawn().unwrap();
    let mut socket = stream(&socket);
    // MSG_ATTACH.
    socket.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    ready("dtach", Way::Dtach(socket), vec![child], dir)
}

fn bare() -> Peer {
    let (master, slave) = pair();
    let (mut app, dir) = (Command::new("sh"), tempdir().unwrap());
    app.args(["-c", APP])
        .arg(dir.path().join(READY))
        .stdin(slave.try_clone().unwrap())
        .stdout(slave)
        .process_group(0);
    let app = app.spawn().unwrap();
    ready("no mux", Way::Bare(master), vec![app], dir)
}

/// conmon, with a runtime that gives it a terminal: this program, as `terminal`.
fn conmon(program: &Path) -> Peer {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (runtime, pid) = (file("runtime"), file("pid"));
    // The words: create, …, --console-socket PATH, …
    let script = format!(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --console-socket ] && console=$2; shift; done\nexec '{}' terminal \"$console\" '{}'\n",
        program.display(),
        pid.display()
    );
    fs::write(&runtime, script).unwrap();
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(file("bundle")).unwrap();
    let mut conmon = Command::new("conmon");
    conmon.args([
        "--sync",
        "-t",
        "--cid=c",
        "--cuuid=c",
        "--name=c",
        "--no-sync-log",
        "--log-path=off:",
    ]);
    conmon.arg("--runtime").arg(runtime).arg("--bundle").arg(file("bundle"));
    conmon.arg("--container-pidfile").arg(pid).arg("--socket-dir-path").arg(dir.path());
    let child =
        conmon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let attach = file("c/attach");
    wait_for(|| attach.exists() && file("pid").exists());
    let to = UnixAddr::new(&attach).unwrap();
    let fd =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(fd.as_raw_fd(), &to).unwrap();
    ready("conmon", Way::Raw(fd), vec![child], dir)
}

/// conmon's runtime: starts the app on a new terminal and hands that over.
#[expect(clippy::zombie_processes, reason = "conmon waits for the app")]
pub fn give_terminal(console: &str, pid: &str) {
    let (master, slave) = pair();
    let mut app = Command::new("setsid");
    app.args(["--ctty", "sh", "-c", APP])
        .arg(Path::new(pid).with_file_name(READY))
        .stdin(slave.try_clone().unwrap());
    let app = app.stdout(slave.try_clone().unwrap()).stderr(slave).spawn().unwrap();
    let to = UnixStream::connect(console).unwrap();
    let fds = [master.as_raw_fd()];
    sendmsg::<UnixAddr>(
        to.as_raw_fd(),
        &[IoSlice::new(b"/dev/pts/bench")],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::empty(),
        None,
    )
    .unwrap();
    fs::write(pid, app.id().to_string()).unwrap();
}

/// How fast an app prints with the model of the screen on, beside what the model takes for the same alone.
pub fn output(rounds: usize) {
    println!("\nprinting on a terminal");
    let mut text = Vec::new();
    for n in 0..1000 {
        let colour = 30 + n % 8;
        let rest = "the quick brown fox jumps over the lazy dog";
        write!(text, "\x1b[1;{colour}m{n:06}\x1b[0m {rest}\r\n").unwrap();
    }
    let repeats = PRINTED / text.len();
    let bytes = f64::from(u32::try_from(repeats * text.len()).unwrap());
    let (mut speeds, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    for _ in 0..rounds {
        let model = bytes / alone(&text, repeats).as_secs_f64() / 1e6;
        let nobody = bytes / printed(&text, repeats, false).as_secs_f64() / 1e6;
        let one = bytes / printed(&text, repeats, true).as_secs_f64() / 1e6;
        for (speeds, speed) in speeds.iter_mut().zip([model, nobody, one]) {
            speeds.push(speed);
        }
        for (ratios, speed) in ratios.iter_mut().zip([nobody, one]) {
            ratios.push(speed / model);
        }
    }
    let [model, nobody, one] = speeds.map(median);
    let [ratio, ratio_one] = ratios.map(median);
    let word = if ratio >= 0.9 { "met" } else { "MISSED" };
    println!("  the model alone        {model:>6.0} MB/s");
    println!("  a mux, nobody attached {nobody:>6.0} MB/s   {ratio:.2} x   (asked: 0.9: {word})");
    println!("  a mux, one client      {one:>6.0} MB/s   {ratio_one:.2} x");
}

fn alone(text: &[u8], repeats: usize) -> Duration {
    let mut screen = Screen::new(SIZE);
    let began = Instant::now();
    for _ in 0..repeats {
        for piece in text.chunks(4096) {
            screen.process(piece);
        }
    }
    began.elapsed()
}

/// Until the mux has read all; its model is at most a ring behind.
fn printed(text: &[u8], repeats: usize, client: bool) -> Duration {
    let dir = tempdir().unwrap();
    let mut mux = Command::new(env!("CARGO_BIN_EXE_iottymux"));
    mux.arg("--state-dir").arg(dir.path()).args(["tty", "--app", "bench"]);
    let mut mux = mux.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = dir.path().join("bench/sock-tty");
    wait_for(|| dir.path().join("bench/endpoints").exists());
    let reads = client.then(|| {
        let mut socket = stream(&socket);
        thread::spawn(move || io::copy(&mut socket, &mut io::sink()))
    });
    let mut slave = File::options().write(true).open(dir.path().join("bench/stage2-pts")).unwrap();
    let mut modes = rustix::termios::tcgetattr(slave.as_fd()).unwrap();
    modes.make_raw();
    rustix::termios::tcsetattr(slave.as_fd(), rustix::termios::OptionalActions::Now, &modes)
        .unwrap();
    let began = Instant::now();
    for _ in 0..repeats {
        slave.write_all(text).unwrap();
    }
    rustix::termios::tcdrain(slave.as_fd()).unwrap();
    let took = began.elapsed();
    mux.kill().unwrap();
    mux.wait().unwrap();
    if let Some(reads) = reads {
        let _ = reads.join().unwrap();
    }
    took
}
