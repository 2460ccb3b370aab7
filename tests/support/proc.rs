//! A child process of a test, and what it says. Neither outlives the test.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

pub use crate::wait::{WATCHDOG, eventually};

/// What came out of a pipe or terminal so far; a thread reads it.
#[derive(Clone, Default)]
pub struct Said(Arc<(Mutex<Heard>, Condvar)>);

#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    ended: bool,
}

impl Said {
    /// Reads on until the end.
    pub fn follow(mut from: impl Read + Send + 'static) -> Self {
        let said = Self::default();
        let to = said.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                // A terminal whose other side is gone ends with an error.
                let len = from.read(&mut buffer).unwrap_or(0);
                let mut heard = to.0.0.lock().unwrap();
                heard.bytes.extend_from_slice(&buffer[..len]);
                heard.ended = len == 0;
                to.0.1.notify_all();
                if len == 0 {
                    return;
                }
            }
        });
        said
    }

    /// Waits until this holds of what was said; `what` is for the failure.
    fn until(&self, what: &str, holds: impl Fn(&Heard) -> bool) -> Vec<u8> {
        let heard = self.0.0.lock().unwrap();
        let (heard, timeout) =
            self.0.1.wait_timeout_while(heard, WATCHDOG, |heard| !holds(heard)).unwrap();
        let text = heard.bytes.escape_ascii();
        assert!(!timeout.timed_out(), "waited in vain for {what}, heard: {text}");
        heard.bytes.clone()
    }

    /// Waits for these bytes anywhere.
    pub fn wait_for(&self, text: &str) {
        let found = |h: &Heard| String::from_utf8_lossy(&h.bytes).contains(text);
        let heard = self.until(text, |h| h.ended || found(h));
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains(text), "ended without {text:?}: {heard}");
    }

    /// Waits for this many bytes; returns all there are.
    pub fn wait_len(&self, len: usize) -> Vec<u8> {
        let heard = self.until(&format!("{len} bytes"), |h| h.ended || h.bytes.len() >= len);
        assert!(heard.len() >= len, "ended after {} bytes", heard.len());
        heard
    }

    /// Waits for the end; returns everything.
    pub fn bytes(&self) -> Vec<u8> {
        self.until("the end", |h| h.ended)
    }

    /// Waits for the end; returns everything as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// What has been said until now, as text.
    pub fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap().bytes).into_owned()
    }
}

/// A child process; killed when this is dropped.
pub struct Proc {
    pub child: Child,
    pub stdout: Said,
    pub stderr: Said,
}

impl Proc {
    /// Starts it. Those of its outputs that are pipes are read.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = child.stdout.take().map(Said::follow).unwrap_or_default();
        let stderr = child.stderr.take().map(Said::follow).unwrap_or_default();
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Its input, to be written; dropping it is the end of it.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for its end: its status, or minus the signal that ended it.
    pub fn ends(&mut self) -> i32 {
        self.ends_within(WATCHDOG)
    }

    /// As [`Proc::ends`], with a watchdog of its own.
    pub fn ends_within(&mut self, time: Duration) -> i32 {
        let pid = rustix::process::Pid::from_raw(self.pid().as_raw()).unwrap();
        if let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) {
            let timeout = PollTimeout::try_from(time).unwrap();
            let ended = poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout);
            assert_eq!(
                ended,
                Ok(1),
                "it does not end; it said: {}{}",
                self.stdout.so_far(),
                self.stderr.so_far()
            );
        }
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- pid {} said:\n{}", self.child.id(), self.stderr.so_far());
        }
    }
}
