//! The memory of an app under a limit, as by `MemoryMax=`: sockets of clients that do not read hold
//! pages of the app, and there are few of them.

use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iottymux::types::stream::{Position, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::peer::{Asker, hello};
use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};
use crate::skip::skip;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// What the app may have.
const LIMIT: usize = 64 * MIB;
/// What the app's pages in sockets may take, docs/dev/architecture.md.
const HELD: usize = 4 * MIB;
/// What else may differ between two looks: the pages in the app's FIFO, which is full or empty, and
/// what a kernel with two processors charges in advance.
const SWAY: usize = MIB + MIB / 2;
/// Clients that read the same output and stop, each somewhere else: after so many bytes more than
/// the one before. All of them read more than the unread socket of a client holds first.
const CLIENTS: usize = 100;
const FIRST: usize = 512 * KIB;
const APART: usize = 128 * KIB;
/// How long each of them may delay the app.
const PATIENCE_MS: u32 = 10;

/// A group of processes with little memory. Its processes have to end before it is dropped.
struct SmallGroup {
    path: PathBuf,
    usage: &'static str,
}

impl SmallGroup {
    /// Of the first or the second version of cgroups; `None` if this machine has neither, or lets
    /// nobody make one.
    fn new() -> Option<Self> {
        let limit = LIMIT.to_string();
        let made = |root: &str, limit_file: &str, usage| {
            let path = Path::new(root).join(format!("iottymux-it-{}", std::process::id()));
            fs::create_dir(&path)?;
            let group = Self { path, usage };
            fs::write(group.path.join(limit_file), &limit)?;
            Ok::<_, std::io::Error>(group)
        };
        let first =
            || made("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
        let second = || made("/sys/fs/cgroup", "memory.max", "memory.current");
        first().or_else(|_| second()).map_err(|e| skip("memory cgroup", &e.to_string())).ok()
    }

    fn usage(&self) -> usize {
        fs::read_to_string(self.path.join(self.usage)).unwrap().trim().parse().unwrap()
    }

    /// Starts an app in it, which writes zeros in pieces of this size.
    fn app(&self, rig: &Rig, piece: usize) -> Proc {
        let script = "echo $$ >\"$0\" && exec dd if=/dev/zero bs=\"$1\" >\"$2\" 2>/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(self.path.join("cgroup.procs")).arg(piece.to_string());
        command.arg(rig.path("stage2-stdout")).stdin(Stdio::null());
        Proc::spawn(command)
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        eventually("its processes have gone", || fs::remove_dir(&self.path).is_ok());
    }
}

/// Clients that have read different amounts, and read no more.
fn stalled(rig: &Rig) -> Vec<UnixStream> {
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = rig.client("session");
            client.write_all(&hello(Stream::Stdout, Position::Now, Some(PATIENCE_MS))).unwrap();
            client.set_nonblocking(true).unwrap();
            (client, FIRST + number * APART)
        })
        .collect();
    let mut buffer = vec![0; 64 * KIB];
    loop {
        let mut fds: Vec<_> = clients
            .iter()
            .filter(|(_, left)| *left > 0)
            .map(|(client, _)| PollFd::new(client.as_fd(), PollFlags::POLLIN))
            .collect();
        if fds.is_empty() {
            return clients.into_iter().map(|(client, _)| client).collect();
        }
        assert!(poll(&mut fds, PollTimeout::try_from(30_000).unwrap()).unwrap() > 0, "no output");
        for (client, left) in clients.iter_mut().filter(|(_, left)| *left > 0) {
            match client.read(&mut buffer) {
                Ok(0) => panic!("the mux has let go of a client"),
                Ok(len) => *left = left.saturating_sub(len),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

/// Bytes of the app that the mux has read.
fn written(asker: &Asker) -> u64 {
    asker.report().streams[0].bytes
}

#[test]
fn stalled_clients_hold_little_of_an_apps_memory() {
    // Full pages, and pages that are hardly more than half full.
    for piece in [64 * KIB, 2100] {
        let Some(group) = SmallGroup::new() else { return };
        let rig = Rig::new();
        let _mux = rig.mux(["stream", "--app", APP]);
        let asker = Asker::new(&rig);
        let mut app = group.app(&rig, piece);
        eventually("it writes", || written(&asker) > LIMIT as u64);
        let before = group.usage();
        let most = Cell::new(before);
        let mut all = Vec::new();
        // The sockets of the first ones are the mux's no more, and still hold what they hold.
        for is_detached in [true, false] {
            all.extend(stalled(&rig));
            let from = written(&asker);
            eventually("it goes on", || {
                most.set(most.get().max(group.usage()));
                written(&asker) > from + LIMIT as u64
            });
            let clients = asker.report().clients;
            for client in clients.iter().filter(|client| is_detached && !client.streams.is_empty())
            {
                let body = format!(r#"{{"request":"detach","client":{}}}"#, client.client);
                asker.request(body.as_bytes(), 1);
                assert!(asker.answer().error.is_none());
            }
        }
        let most = most.get();
        println!("pieces of {piece}: {before} bytes before, {most} with clients");
        assert!(app.runs(), "it was killed");
        assert!(most < before + HELD + SWAY, "sockets hold {} bytes of the app", most - before);
        drop(app);
    }
}
