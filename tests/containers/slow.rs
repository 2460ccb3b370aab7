//! `iottymux-runc` with an engine that reads late or never, and one that types faster than the
//! container reads.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::bundle::{Container, Rig, be_a_shim};
use crate::oci::parent;
use crate::proc::{Said, eventually};

/// More than the pipes between the container and the engine hold, and less than the mux keeps.
const SOME: &str = "seq 1 50000; exit 3";

fn numbers(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Starts a container that ends while nobody reads; its first process and the holder of its end.
fn end_unread(rig: &Rig, container: &Container) -> (Pid, Pid) {
    let id = &container.bundle.id;
    let pid_file = container.bundle.dir().join("pid");
    let app: i32 = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    let holder = parent(app);
    let words = fs::read_to_string(format!("/proc/{holder}/cmdline")).unwrap();
    assert!(words.contains("oci-holder"), "{words}");
    container.start();
    eventually("the container has ended", || {
        fs::read_to_string(format!("/proc/{app}/stat")).unwrap().contains(") Z ")
    });
    assert!(rig.status(id).is_some());
    (Pid::from_raw(app), holder)
}

/// Whether the engine has learned how its container has ended.
fn has_learned(app: Pid) -> bool {
    let ended = waitpid(app, Some(WaitPidFlag::WNOHANG));
    assert!(!matches!(ended, Ok(WaitStatus::Exited(_, code)) if code != 3), "{ended:?}");
    matches!(ended, Ok(WaitStatus::Exited(..)))
}

/// It learns of the end before. From an engine that never reads the mux keeps the rest in the end.
#[test]
fn an_engine_that_reads_late_gets_everything() {
    let Some(rig) = Rig::new() else { return };
    prctl::set_child_subreaper(true).unwrap();
    be_a_shim();
    let [mut late, mut never] = ["late", "never"].map(|id| rig.bundle(id, SOME).engine());
    let [(app, holder), (other, _)] = [&late, &never].map(|it| end_unread(&rig, it));
    assert_eq!(parent(app.as_raw()), holder);
    eventually("the engine learns of the end", || has_learned(app));
    let want = numbers(50_000);
    let got = late.read()[0].bytes();
    assert!(got == want, "{} bytes of {}", got.len(), want.len());
    eventually("it learns of the other's, too", || has_learned(other));
    eventually("no mux waits any more", || rig.processes().is_empty());
    let got = never.read()[0].bytes();
    assert!(got.len() < want.len() && want.starts_with(&got), "{} bytes", got.len());
    let served = ["late", "never"].map(|id| rig.served(id, "stdout"));
    assert_eq!(served, [want.len() as u64; 2]);
}

/// Each piece that the mux moves takes a place in the engine's pipe, which has 16 of them.
#[test]
fn short_lines_fit_into_the_engines_pipe_in_the_end() {
    let Some(rig) = Rig::new() else { return };
    prctl::set_child_subreaper(true).unwrap();
    be_a_shim();
    let mut container = rig.bundle("lines", "while read x; do echo $x; done; exit 3").engine();
    let app = fs::read_to_string(container.bundle.dir().join("pid")).unwrap();
    let app = Pid::from_raw(app.trim().parse().unwrap());
    container.start();
    let input = container.stdin.take().unwrap();
    for line in 1..=400 {
        (&input).write_all(format!("{line:03}\n").as_bytes()).unwrap();
        let read = || rig.status("lines").unwrap()["streams"][0]["bytes"].as_u64().unwrap();
        eventually("the mux has it", || read() == 4 * line);
    }
    drop(input);
    eventually("the engine learns of the end", || has_learned(app));
    // What is there without a wait.
    let mut got = vec![0; 65536];
    let len = container.stdout.as_mut().unwrap().read(&mut got).unwrap();
    let want = (1..=400).map(|line| format!("{line:03}\n")).collect::<Vec<_>>().concat();
    assert_eq!(String::from_utf8_lossy(&got[..len]), want);
}

#[test]
fn without_the_holder_the_engine_is_the_parent() {
    let Some(rig) = Rig::new() else { return };
    prctl::set_child_subreaper(true).unwrap();
    be_a_shim();
    let mut container = rig.bundle("orphan", SOME).engine();
    let (app, holder) = end_unread(&rig, &container);
    kill(holder, Signal::SIGKILL).unwrap();
    eventually("the engine is the parent", || parent(app.as_raw()) == Pid::this());
    assert!(has_learned(app));
    let [stdout, _] = container.read();
    assert!(stdout.bytes() == numbers(50_000), "{}", stdout.bytes().len());
}

/// Whatever the patience with other clients is.
#[test]
fn the_app_waits_for_the_engine_without_an_end_of_patience() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("waits", "seq 1 300000; echo end >&2");
    bundle.variables = vec![("IOTTYMUX_MAX_CLIENT_DELAY".to_owned(), "0.05".to_owned())];
    let mut container = bundle.engine();
    let stderr = Said::follow(container.stderr.take().unwrap());
    container.start();
    let read = || rig.status("waits").unwrap()["streams"][0]["bytes"].as_u64().unwrap();
    eventually("the mux keeps what it can", || read() > 500_000);
    // What is waited for is that nothing happens: the patience ends many times.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(stderr.so_far(), "");
    let stdout = Said::follow(container.stdout.take().unwrap());
    assert!(stdout.bytes() == numbers(300_000), "{}", stdout.bytes().len());
    assert_eq!(stderr.text(), "end\n");
}

/// The container reads nothing until the muxes are killed, each with as much as it can have.
#[test]
fn a_killed_mux_costs_one_read_of_the_engines_input() {
    const READ: usize = 64 * 1024;
    const KILLS: usize = 5;
    let Some(rig) = Rig::new() else { return };
    let script = "while ! test -e /tmp/go; do sleep 0.02; done; cat";
    let mut container = rig.bundle("typed", script).engine();
    let [stdout, _] = container.read();
    container.start();
    let lines: Vec<u8> = (0..200_000).flat_map(|n| format!("{n:07}\n").into_bytes()).collect();
    let (mut input, to_type) = (container.stdin.take().unwrap(), lines.clone());
    let typed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&typed);
    let engine = thread::spawn(move || {
        for part in to_type.chunks(4096) {
            input.write_all(part).unwrap();
            count.fetch_add(part.len(), Ordering::Relaxed);
        }
    });
    // The pipes of the engine and of the container are full, and the mux has something.
    eventually("the mux has input", || typed.load(Ordering::Relaxed) >= 5 * READ / 2);
    for _ in 0..KILLS {
        let mux = rig.mux("typed");
        kill(Pid::from_raw(mux), Signal::SIGKILL).unwrap();
        eventually("there is another mux", || {
            let status = rig.status("typed");
            status.is_some_and(|s| s["mux_pid"].as_i64().is_some_and(|pid| pid != i64::from(mux)))
        });
    }
    fs::write(rig.path("root/tmp/go"), "").unwrap();
    engine.join().unwrap();
    let got = stdout.bytes();
    let missing = lines.len().checked_sub(got.len()).expect("nothing comes twice");
    println!("{missing} bytes are missing after {KILLS} kills");
    assert!(missing <= KILLS * READ, "{missing}");
    assert!(got.ends_with(&lines[lines.len() / 2..]));
}
