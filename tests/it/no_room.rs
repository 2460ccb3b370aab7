//! A mux that starts under a running app while the state directory has no room.

use std::fs::{self, File};
use std::io::Write;

use nix::sys::signal::{Signal, kill};

use crate::log_failure::disk;
use crate::proc::eventually;
use crate::rig::{APP, Rig, expect};
use crate::run::mux_pid;

/// The files of a mux that a client needs, and those that the commands read.
const FILES: [&str; 6] =
    ["sock-stdin", "sock-stdout", "sock-stderr", "sock-session", "endpoints", "logs"];
/// A line that `attach` waits for behind the restart.
const SCRIPT: &str = "echo before; read x; echo got $x; read x; exit 4";

#[test]
fn it_is_started_again_until_there_is_some() {
    let rig = Rig::new();
    if !disk(&rig.state(), "mode=755,size=256k,nr_inodes=100") {
        return;
    }
    let log = format!("cri:{}", rig.file("log").display());
    let mut keeper =
        rig.mux(["run", "--foreground", "--app", APP, "--log", &log, "--", "sh", "-c", SCRIPT]);
    let mut attach = rig.attach(&["--mode", "stdin,stdout", "--reconnect", "30"]);
    attach.stdout.wait_for("before");
    let mux = mux_pid(&rig);
    // The next mux starts when there is no room.
    keeper.stop();
    kill(mux, Signal::SIGKILL).unwrap();
    // With all of its threads: until then its sockets take up inodes.
    let (stat, threads) = (format!("/proc/{mux}/stat"), format!("/proc/{mux}/task"));
    eventually("the mux is dead", || {
        let is_dead = fs::read_to_string(&stat).unwrap().contains(") Z ");
        is_dead && fs::read_dir(&threads).unwrap().count() == 1
    });
    for file in FILES {
        fs::remove_file(rig.path(file)).unwrap();
    }
    let ballast = rig.state().join("ballast");
    fs::create_dir(&ballast).unwrap();
    fs::write(ballast.join("room"), vec![0; 1 << 20]).unwrap_err();
    let mut count = 0;
    while File::create(ballast.join(format!("{count}"))).is_ok() {
        count += 1;
    }
    keeper.go_on();
    let failures = || keeper.stderr.so_far().matches("No space left").count();
    eventually("more than one has failed", || failures() > 1);
    assert!(!rig.path("endpoints").exists());
    fs::remove_dir_all(&ballast).unwrap();
    attach.stdin().write_all(b"this\n").unwrap();
    attach.stdout.wait_for("got this");
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    let listed = list.stdout.text();
    assert!(listed.contains("stdin,stdout,stderr"), "{listed}");
    assert_eq!(rig.status()["state"], "ready");
    let mut logs = rig.run(&["logs", APP]);
    assert_eq!(logs.ends(), 0, "{}", logs.stderr.text());
    assert_eq!(logs.stdout.text(), "before\ngot this\n");
    expect(rig.client("stdout"), "");
    let mut stdin = rig.client("stdin");
    stdin.write_all(b"enough\n").unwrap();
    assert_eq!((attach.ends(), keeper.ends()), (4, 4), "{}", keeper.stderr.text());
}
