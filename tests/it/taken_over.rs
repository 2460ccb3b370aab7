//! A mux that somebody has taken over: its keeper holds the app, and may be another user.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::proc::{Proc, WATCHDOG, eventually};
use crate::rig::{APP, Rig};

/// Descriptors for the mux of a keeper begin there, as those of sd_listen_fds(3).
const FIRST_FD: i32 = 3;
/// The app ends with it on SIGTERM.
const STATUS: &str = "7";

/// A mux that runs no code of ours any more, and what speaks for it.
struct TakenOver {
    rig: Rig,
    keeper: Proc,
    mux: Pid,
    app: Pid,
    channel: Arc<OwnedFd>,
}

impl TakenOver {
    fn new() -> Self {
        let rig = Rig::new();
        let up = rig.file("up");
        let wait = "sleep 1000 & trap \"kill $!; exit $0\" TERM";
        let script = format!("{wait}; : >{}; wait", up.display());
        let command = ["run", "--foreground", "--app", APP, "--", "sh", "-c", &script, STATUS];
        let keeper = rig.mux(command);
        eventually("the app runs", || up.exists() && rig.status()["app_pid"].is_number());
        let status = rig.status();
        let [mux, app] = ["mux_pid", "app_pid"].map(|name| pid(&status[name]));
        let channel = Arc::new(channel(mux));
        // Whoever connects to it now waits for an answer.
        kill(mux, Signal::SIGSTOP).unwrap();
        Self { rig, keeper, mux, app, channel }
    }

    fn send(&self, message: &[u8], fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        send(&self.channel, message, &fds).unwrap();
    }

    /// Sends this again and again, until the keeper has another mux or has ended. Some of them are there.
    fn flood(&self, message: &'static [u8]) {
        for message in [message, message, message, b"X_IOTTYMUX_SIGNAL=18"] {
            self.send(message, &[]);
        }
        self.keeper.stderr.wait_for("passed SIGCONT on to it");
        let channel = Arc::clone(&self.channel);
        thread::spawn(move || while send(&channel, message, &[]).is_ok() {});
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        let _ = kill(self.mux, Signal::SIGKILL);
    }
}

fn pid(number: &serde_json::Value) -> Pid {
    Pid::from_raw(number.as_i64().unwrap().try_into().unwrap())
}

/// The mux's end of the channel to its keeper.
fn channel(mux: Pid) -> OwnedFd {
    let environment = fs::read(format!("/proc/{mux}/environ")).unwrap();
    let names = environment.split(|byte| *byte == 0).find_map(|variable| {
        variable.strip_prefix(b"LISTEN_FDNAMES=").map(|names| String::from_utf8_lossy(names))
    });
    let at = names.unwrap().split(':').position(|name| name == "keeper").unwrap();
    let process = rustix::process::Pid::from_raw(mux.as_raw()).unwrap();
    let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let number = FIRST_FD + i32::try_from(at).unwrap();
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap()
}

fn send(channel: &OwnedFd, message: &[u8], fds: &[i32]) -> nix::Result<usize> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(channel.as_raw_fd(), &[IoSlice::new(message)], control, flags, None)
}

/// Whatever it says without end.
#[test]
fn it_keeps_no_signal_from_the_app() {
    for flood in ["READY=1", "X_IOTTYMUX_SIGNALLED=1", "FDSTOREREMOVE=1\nFDNAME=x", "?"] {
        let mut taken = TakenOver::new();
        taken.flood(flood.as_bytes());
        taken.keeper.signal(Signal::SIGTERM);
        let app = format!("/proc/{}", taken.app);
        eventually("the app has ended", || !fs::exists(&app).unwrap());
        kill(taken.mux, Signal::SIGKILL).unwrap();
        assert_eq!(taken.keeper.ends().to_string(), STATUS, "{flood}");
    }
}

/// The next mux gets the names in a variable, between colons.
#[test]
fn the_next_one_starts_whatever_it_has_stored() {
    let mut taken = TakenOver::new();
    let file = File::open("/dev/null").unwrap().into();
    for name in ["a\0b", "a:b", "a\nb", "", "x=y", "keeper", "\u{1b}"] {
        taken.send(format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0").as_bytes(), &[&file]);
    }
    kill(taken.mux, Signal::SIGKILL).unwrap();
    let is_other = |status: serde_json::Value| pid(&status["mux_pid"]) != taken.mux;
    eventually("there is another one", || taken.rig.try_status().is_some_and(is_other));
    taken.keeper.signal(Signal::SIGTERM);
    assert_eq!(taken.keeper.ends().to_string(), STATUS);
}

/// It is killed then.
#[test]
fn the_keeper_ends_though_it_does_not() {
    let mut taken = TakenOver::new();
    taken.keeper.signal(Signal::SIGTERM);
    assert_eq!(taken.keeper.ends_within(2 * WATCHDOG).to_string(), STATUS);
}
