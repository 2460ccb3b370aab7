//! Attached clients.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{self, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::app;
use crate::judge::{self, Finding, Telling, Truth, Verdict, What};
use crate::record::{Id, Item, Source, items};
use crate::stage::Sink;
use crate::wait::eventually;

/// How attach ends when it has told that something is missing.
const INCOMPLETE: i32 = 124;

/// An attach.
pub struct Client {
    pub child: Child,
    pub sources: Vec<Source>,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

/// An attach that passes on what a program types.
pub struct Typist {
    attach: Client,
    program: JoinHandle<()>,
}

/// An attach that has ended.
pub struct Ended {
    pub status: i32,
    sources: Vec<Source>,
    pub stdout: Vec<u8>,
    stderr: Vec<u8>,
    pub said: Vec<String>,
}

impl Client {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        eventually("attach ends", || {
            waitid(wait::Id::Pid(self.pid()), flags).unwrap() != WaitStatus::StillAlive
        });
        let status = self.child.wait().unwrap();
        let status = status.code().unwrap_or_else(|| -status.signal().unwrap());
        let (stderr, said) = without_messages(&fs::read(&self.stderr).unwrap());
        let stdout = fs::read(&self.stdout).unwrap();
        Ended { status, sources: self.sources.clone(), stdout, stderr, said }
    }
}

impl Typist {
    pub fn start(mut attach: Client, round: PathBuf) -> Self {
        let stdin = attach.child.stdin.take().unwrap();
        let program = thread::spawn(move || app::type_records(stdin, &round));
        Self { attach, program }
    }

    /// Waits until the program has typed enough, and the mux says that the app has all of it.
    pub fn end(self) -> Ended {
        self.program.join().unwrap();
        self.attach.end()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the app wrote to a client's standard error, and what attach itself said in between.
fn without_messages(bytes: &[u8]) -> (Vec<u8>, Vec<String>) {
    const BEGIN: &[u8] = b"iottymux: ";
    let (mut rest, mut text, mut said) = (bytes, Vec::new(), Vec::new());
    while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
        text.extend_from_slice(&rest[..at]);
        let end = rest[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |len| at + len + 1);
        said.push(String::from_utf8_lossy(&rest[at..end]).trim_end().to_owned());
        rest = &rest[end..];
    }
    text.extend_from_slice(rest);
    (text, said)
}

impl Ended {
    pub fn judge(&self, sink: Sink, truth: &Truth) -> (Sink, Verdict) {
        let told = self.said.iter().find_map(|line| {
            let (before, _) = line.split_once(" bytes were lost: ")?;
            before.rsplit(' ').next()?.parse().ok()
        });
        let told: u64 = told.unwrap_or(0);
        let lines = |bytes: &[u8]| -> Vec<Item> {
            bytes.split(|byte| *byte == b'\n').flat_map(items).collect()
        };
        let all = [lines(&self.stdout), lines(&self.stderr)].concat();
        let mut verdict = judge::judge(truth, &self.sources, all, Telling::AtTheEnd(told));
        let is_uncertain = self.said.iter().any(|line| line.ends_with("two muxes may be missing"));
        let due = if told > 0 || is_uncertain { INCOMPLETE } else { 0 };
        if self.status != due {
            let at = Id { source: self.sources[0], run: 0, number: 0 };
            verdict.findings.push(Finding { what: What::Status, at, records: 0, bytes: 0 });
        }
        (sink, verdict)
    }
}
