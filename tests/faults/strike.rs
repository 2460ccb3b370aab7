//! How each fault is caused.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::logs::is_compressed;
use crate::podsd::PROGRAM;
use crate::random::Random;
use crate::schedule::Fault;
use crate::stage::{DESCRIPTORS, Stage};
use crate::wait::eventually;

/// How long a client is stopped before a kill of the mux and after it.
const STOPPED_BEFORE: Duration = Duration::from_millis(50);
const STOPPED_AFTER: Duration = Duration::from_millis(100);
/// More than a client's patience (`--max-client-delay`, 1 s).
const BEYOND_PATIENCE: Duration = Duration::from_millis(1500);
/// How long a hostile client waits for a mux that does not read.
const A_MOMENT: Duration = Duration::from_millis(20);
/// Connections of a crowd: more than `LimitNOFILE=` of a mux that may meet one.
const CROWD: usize = DESCRIPTORS + 10;
/// Hostile connections at a time, their frames at most, and bytes in one.
const HOSTILE: usize = 8;
const FRAMES: usize = 30;
const FRAME: usize = 2000;
/// Kinds of frames (docs/protocol.md), and a HELLO of a client that then does not read.
const HELLO_KIND: u8 = 1;
const STDIN_KIND: u8 = 2;
const HELLO: &[u8] = br#"{"version":1,"streams":[{"stream":"stdout","from":"start"}]}"#;
/// Bytes of a page, in which the kernel counts memory.
const PAGE: usize = 4096;
/// How long the mux is stopped, or gets no memory.
const STOPPED: Duration = Duration::from_millis(300);

impl Stage<'_> {
    pub fn strike(&self, fault: Fault, number: usize, clients: &[Client]) {
        match fault {
            Fault::KillMux | Fault::KillMuxAtEnd => self.signal_mux("KILL"),
            Fault::KillMuxTwice => {
                let before = self.mux_process();
                self.signal_mux("KILL");
                eventually("there is another mux", || {
                    let now = self.mux_process();
                    now != before && now != "0"
                });
                self.signal_mux("KILL");
            }
            Fault::CrashMux => {
                let before = self.mux_process();
                // The runtime of Rust looks at the first one and waits for the fault to come back. Two that
                // come at the same time are one.
                eventually("the mux has crashed", || {
                    self.signal_mux("SEGV");
                    self.mux_process() != before
                });
            }
            Fault::StopMux => {
                self.signal_mux("STOP");
                thread::sleep(STOPPED);
                self.signal_mux("CONT");
            }
            Fault::RestartMux => {
                self.pod.systemctl(&["restart", self.mux]);
            }
            Fault::UpgradeMux => {
                self.pod.upgrade(self.mux);
                let runs = format!("/proc/{}/exe", self.mux_process());
                self.pod.run(&["test", &runs, "-ef", PROGRAM]);
            }
            Fault::RestartMuxAtEnd | Fault::StartRestartOfMux => {
                self.pod.systemctl(&["restart", "--no-block", self.mux]);
            }
            Fault::ReexecManager => {
                self.pod.systemctl(&["daemon-reexec"]);
                let asks = || self.pod.try_run(&["systemctl", "show", "--property=Version"]);
                eventually("PID 1 answers", || asks().status.success());
            }
            Fault::KillMuxBehindClient => {
                let slow = clients.last().unwrap();
                slow.signal(Signal::SIGSTOP);
                thread::sleep(STOPPED_BEFORE);
                self.signal_mux("KILL");
                thread::sleep(STOPPED_AFTER);
                slow.signal(Signal::SIGCONT);
            }
            Fault::KillApp => {
                let words = ["kill", "--kill-who=main", "--signal=KILL", self.app];
                self.pod.systemctl(&words);
            }
            Fault::RestartApp => {
                self.pod.systemctl(&["restart", self.app]);
            }
            Fault::FillDisk => fill(&self.disk("ballast")),
            Fault::FreeDisk => free(&self.disk("ballast")),
            Fault::TakeInodes => take_inodes(&self.disk("inodes")),
            Fault::FreeInodes => free(&self.disk("inodes")),
            Fault::FillRun => {
                fill(&self.run_dir("ballast"));
                take_inodes(&self.run_dir("inodes"));
            }
            Fault::FreeRun => {
                free(&self.run_dir("ballast"));
                free(&self.run_dir("inodes"));
            }
            Fault::HideMux => self.rename_endpoints("endpoints", "hidden"),
            Fault::ShowMux => self.rename_endpoints("hidden", "endpoints"),
            Fault::LimitMemory => self.limit_memory(),
            Fault::Crowd => self.connect(CROWD, |_| {}),
            Fault::Disperse => self.crowd.borrow_mut().clear(),
            Fault::Hostile => {
                let random = &mut Random::new(number as u64);
                self.connect(HOSTILE, |mut client| {
                    // The mux may end it at any time.
                    let _ = client.write_all(&hostile(random));
                });
            }
            Fault::StopClient => {
                let slow = clients.last().unwrap();
                slow.signal(Signal::SIGSTOP);
                thread::sleep(BEYOND_PATIENCE);
                slow.signal(Signal::SIGCONT);
            }
            Fault::RenameLogs => {
                for log in ["cri", "json", "raw"] {
                    // It is not there when the mux could not make it.
                    let _ = fs::rename(self.disk(log), self.disk(&format!("{log}-{number:03}")));
                }
                self.signal_mux("HUP");
            }
            Fault::RotateAsKubelet => self.rotate_as_kubelet(number),
            Fault::EndQuietly => {}
        }
    }

    /// Opens connections that stay open.
    fn connect(&self, number: usize, mut each: impl FnMut(&UnixStream)) {
        let socket = self.run_dir(&format!("{}/mux/sock-session", self.app));
        for _ in 0..number {
            // There may be no mux.
            let Ok(client) = UnixStream::connect(&socket) else { return };
            client.set_write_timeout(Some(A_MOMENT)).unwrap();
            each(&client);
            self.crowd.borrow_mut().push(client);
        }
    }

    /// The document in which everybody looks for the sockets of a mux.
    fn rename_endpoints(&self, from: &str, to: &str) {
        let path = |name| self.run_dir(&format!("{}/mux/{name}", self.app));
        fs::rename(path(from), path(to)).unwrap();
    }

    fn rotate_as_kubelet(&self, number: usize) {
        let (log, renamed) = (self.disk("cri"), self.disk(&format!("cri-{number:03}")));
        if fs::rename(&log, &renamed).is_err() {
            // The mux could not make it.
            return;
        }
        let ask = ["iottymux", "control", "--app", self.app, "reopen-logs"];
        if !self.pod.try_run(&ask).status.success() {
            // Unless the mux has made another one nevertheless.
            if !log.exists() {
                fs::rename(&renamed, &log).unwrap();
            }
            return;
        }
        let names = fs::read_dir(self.disk("")).unwrap().map(|entry| entry.unwrap().path());
        for file in names.filter(|file| *file < renamed && !is_compressed(file)) {
            if file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cri-")) {
                // It fails where there is no room, and leaves the file.
                let _ = Command::new("gzip").arg("--quiet").arg(file).output().unwrap();
            }
        }
    }

    /// As a limit of the address space: a machine may lack the cgroups of `MemoryMax=`.
    fn limit_memory(&self) {
        let mux = self.mux_process();
        let status = self.pod.path(&format!("/proc/{mux}/statm"));
        // There may be no mux.
        let Ok(status) = fs::read_to_string(status) else { return };
        let pages: usize = status.split(' ').next().unwrap().parse().unwrap();
        let limit = |bytes: &str| {
            self.pod.try_run(&["prlimit", "--pid", &mux, &format!("--as={bytes}")]);
        };
        limit(&(pages * PAGE).to_string());
        self.connect(HOSTILE, |_| {});
        thread::sleep(STOPPED);
        limit("unlimited");
    }

    /// "0" while there is none.
    pub fn mux_process(&self) -> String {
        self.pod.property(self.mux, "MainPID")
    }

    /// Whether there is a mux or not; one that is being started gets the signal, too.
    fn signal_mux(&self, signal: &str) {
        self.pod.try_run(&["systemctl", "kill", &format!("--signal={signal}"), self.mux]);
    }
}

/// What a hostile client sends: frames of any kind but input, with anything in them.
fn hostile(random: &mut Random) -> Vec<u8> {
    let mut bytes = if random.one_in(4) { Vec::new() } else { frame(HELLO_KIND, HELLO) };
    for _ in 0..random.below(FRAMES) {
        let kind = u8::try_from(random.below(256)).unwrap();
        let body: Vec<u8> =
            (0..random.below(FRAME)).map(|_| random.number().to_le_bytes()[0]).collect();
        bytes.extend(frame(if kind == STDIN_KIND { HELLO_KIND } else { kind }, &body));
    }
    bytes
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, 0, 0, 0], &len[..], body].concat()
}

/// Takes all inodes that a disk has.
fn take_inodes(dir: &Path) {
    // It cannot be made if there is none left.
    let _ = fs::create_dir(dir);
    let mut number = 0;
    while File::create(dir.join(number.to_string())).is_ok() {
        number += 1;
    }
}

/// Takes all the room that a disk has.
fn fill(ballast: &Path) {
    // Without an inode it is full already.
    let Ok(mut file) = File::create(ballast) else { return };
    let zeros = vec![0; 1 << 20];
    while file.write_all(&zeros).is_ok() {}
}

/// Removes what one of these has made, if it could.
fn free(what: &Path) {
    if what.is_dir() {
        fs::remove_dir_all(what).unwrap();
    } else if what.exists() {
        fs::remove_file(what).unwrap();
    }
}
