//! What only these tests do with a child process: they signal and stop it, and look how busy and how
//! large it is.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::proc::{Proc, eventually};

impl Proc {
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits until it has nothing to do. A client that connects then is accepted before anything
    /// that is written after; a mux in the middle of a turn might read that first.
    pub fn rests(&self) {
        let stat = format!("/proc/{}/stat", self.pid());
        let sleeps = || fs::read_to_string(&stat).unwrap().contains(") S ");
        eventually("it has nothing to do", sleeps);
    }

    /// Waits until it watches files for changes and does nothing else.
    pub fn waits(&self) {
        let fds = format!("/proc/{}/fd", self.pid());
        let watches = |fd: fs::DirEntry| {
            fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("inotify"))
        };
        eventually("it waits", || fs::read_dir(&fds).unwrap().flatten().any(watches));
        self.rests();
    }

    /// Waits until it has nothing to do, then stops it, and returns when it has stopped.
    pub fn stop(&self) {
        self.rests();
        self.signal(Signal::SIGSTOP);
        self.wait_stopped();
    }

    /// Waits until it has stopped.
    pub fn wait_stopped(&self) {
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// From now on it can open no descriptor with this number or a higher one.
    pub fn limit_descriptors(&self, most: u64) {
        let pid = rustix::process::Pid::from_raw(self.pid().as_raw());
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The memory that it keeps for itself now, KiB: pages of code come and go as they are needed.
    pub fn memory(&self) -> usize {
        self.kib("smaps_rollup", "Pss_Anon:")
    }

    /// The most memory it ever had, KiB.
    pub fn peak(&self) -> usize {
        self.kib("status", "VmHWM:")
    }

    fn kib(&self, file: &str, what: &str) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Whether it runs still.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}
