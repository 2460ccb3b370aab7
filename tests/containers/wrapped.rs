//! `iottymux-runc` under containerd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use iottymux::sys::call_filter::{SeccompCmpOp::Eq, refuse};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bundle::Rig;
use crate::engine::{Engine, NO_SHARES, USER, assert_user};
use crate::proc::{Proc, eventually};
use crate::pty::Pty;

/// A containerd that ends before the wrapper is removed, which its shims still call then.
fn start() -> Option<(Rig, Engine)> {
    let mut rig = Rig::new()?;
    let engine = Engine::start()?;
    rig.state = engine.state();
    Some((rig, engine))
}

/// The same with the user of the muxes, and a log of the container `user`.
fn start_with_user() -> Option<(Rig, Engine)> {
    let mut rig = Rig::new()?;
    let engine = Engine::start_with_user(&[("IOTTYMUX_LOG", "raw:/var/log/iottymux/user/log")])?;
    rig.state = engine.state();
    Some((rig, engine))
}

/// `ctr run` of a script, with the wrapper as the runtime.
fn run(engine: &Engine, rig: &Rig, options: &[&str], id: &str, script: &str) -> Command {
    let (wrapper, root) = (rig.wrapper(), rig.path("root"));
    let mut words = vec!["run", NO_SHARES, "--runc-binary", wrapper.to_str().unwrap()];
    words.extend(options);
    words.extend(["--rootfs", root.to_str().unwrap(), id, "/bin/sh", "-c", script]);
    let mut command = Command::new("ctr");
    command.args(engine.ctr_words(&words));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_foreground_client_of_containerd_gets_output_and_status() {
    let Some((rig, engine)) = start() else { return };
    let script = "echo begins; sleep 1; echo ends; sleep 1; exit 6";
    let mut run = Proc::spawn(run(&engine, &rig, &["--rm"], "front", script));
    run.stdout.wait_for("begins\n");
    let mut client = rig.client(&["attach", "--app", "front", "--from", "start"]);
    client.stdout.wait_for("begins\n");
    assert_eq!(client.ends(), 6, "{}", client.stderr.text());
    assert_eq!(client.stdout.text(), "begins\nends\n");
    assert_eq!(run.ends(), 6, "{}", run.stderr.text());
    assert_eq!(run.stdout.text(), "begins\nends\n");
    assert_eq!(rig.served("front", "stdout"), 12);
}

#[test]
fn containerd_runs_a_container_in_the_background_beside_two_clients() {
    let Some((rig, engine)) = start() else { return };
    let log = rig.path("out.log");
    let uri = format!("file://{}", log.display());
    let script = "while ! test -e /tmp/go; do sleep 0.1; done; seq 1 300000; exit 9";
    let output = run(&engine, &rig, &["-d", "--log-uri", &uri], "back", script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let attach =
        || rig.client(&["attach", "--app", "back", "--mode", "stdout", "--reconnect", "30"]);
    let mut clients = [attach(), attach()];
    eventually("both have attached", || {
        rig.status("back").is_some_and(|status| status["clients"].as_array().unwrap().len() >= 3)
    });
    fs::write(rig.path("root/tmp/go"), "").unwrap();
    clients[0].stdout.wait_for("\n1000\n");
    // The container is unaware.
    let _ = kill(Pid::from_raw(rig.mux("back")), Signal::SIGKILL);
    let want: Vec<String> = (1..=300_000).map(|n| format!("{n}\n")).collect();
    let want = want.concat();
    for client in &mut clients {
        assert_eq!(client.ends(), 9, "{}", client.stderr.text());
        assert!(client.stdout.text() == want);
    }
    assert_eq!(rig.served("back", "stdout"), want.len() as u64);
    eventually("the engine has everything", || {
        fs::metadata(&log).unwrap().len() == want.len() as u64
    });
    assert!(fs::read_to_string(&log).unwrap() == want);
    let deleted = engine.ctr(&["task", "delete", "back"]);
    let said = String::from_utf8_lossy(&deleted.stderr).into_owned();
    assert!(said.contains("exit code 9"), "{said}");
}

#[test]
fn a_terminal_of_containerd_is_shared_and_follows_its_size() {
    let Some((rig, engine)) = start() else { return };
    let window = Pty::open(31, 97);
    let script = "while read x && ! test \"$x\"; do stty size; done; echo \"got $x\"; read y; echo \"got $y\"; sleep 1; exit 5";
    let mut run = run(&engine, &rig, &["--rm", "-t"], "term", script);
    run.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut run = window.spawn(run);
    eventually("it has a mux", || rig.status("term").is_some_and(|s| s.get("mux_pid").is_some()));
    eventually("the app has the engine's size", || {
        window.press(b"\r");
        window.shown.so_far().contains("31 97\r")
    });
    window.press(b"by the engine\r");
    window.shown.wait_for("got by the engine\r");
    let person = Pty::open(20, 60);
    let mut attach = rig.client_command(&["attach", "--app", "term"]);
    attach.stdin(Stdio::inherit());
    let mut attach = person.spawn(attach);
    person.shown.wait_for("got by the engine");
    person.press(b"by a person\r");
    assert_eq!(attach.ends(), 5);
    assert_eq!(run.ends(), 5);
    window.shown.wait_for("got by a person");
    assert!(rig.served("term", "tty") > 0);
}

#[test]
fn processes_and_calls_of_containerd_go_on_as_before() {
    let Some((rig, engine)) = start() else { return };
    let log = rig.path("out.log");
    let uri = format!("file://{}", log.display());
    let output = run(
        &engine,
        &rig,
        &["-d", "--log-uri", &uri],
        "calls",
        "trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done",
    )
    .output()
    .unwrap();
    assert!(output.status.success(), "{output:?}");
    eventually("it is up", || fs::read_to_string(&log).is_ok_and(|text| text == "up\n"));
    let words = ["task", "exec", "--exec-id", "e", "calls", "/bin/echo", "inside"];
    assert_eq!(engine.do_ctr(&words), "inside\n");
    engine.do_ctr(&["task", "pause", "calls"]);
    engine.do_ctr(&["task", "resume", "calls"]);
    engine.do_ctr(&["task", "kill", "calls"]);
    assert_eq!(rig.served("calls", "stdout"), 3);
    let status = rig.status("calls").unwrap();
    assert_eq!(status["app_ended"]["status"], 3, "{status}");
}

#[test]
fn the_mux_of_a_wrapped_container_is_the_user_of_the_muxes() {
    let Some((rig, engine)) = start_with_user() else { return };
    let log = rig.path("out.log");
    let uri = format!("file://{}", log.display());
    let script = "echo up; while ! test -e /tmp/go; do sleep 0.1; done; seq 1 20000; exit 9";
    let output = run(&engine, &rig, &["-d", "--log-uri", &uri], "user", script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut client = engine.attach("user");
    client.stdout.wait_for("up\n");
    assert_user(Pid::from_raw(rig.mux("user")));
    kill(Pid::from_raw(rig.mux("user")), Signal::SIGKILL).unwrap();
    client.stderr.wait_for("attached again");
    assert_user(Pid::from_raw(rig.mux("user")));
    fs::write(rig.path("root/tmp/go"), "").unwrap();
    assert_eq!(client.ends(), 9, "{}", client.stderr.so_far());
    let want = (1..=20_000).fold("up\n".to_owned(), |text, n| text + &n.to_string() + "\n");
    assert_eq!(rig.served("user", "stdout"), want.len() as u64);
    assert!(client.stdout.text() == want);
    eventually("the engine has everything", || fs::read_to_string(&log).unwrap() == want);
    let own = engine.path("logs/iottymux/user/log");
    assert_eq!(fs::read_to_string(&own).unwrap(), want);
    assert_eq!(fs::metadata(&own).unwrap().uid(), USER);
}

#[test]
fn that_user_serves_a_terminal() {
    let Some((rig, engine)) = start_with_user() else { return };
    let window = Pty::open(31, 97);
    // The size of a client that comes soon after a resize is set a moment later.
    let script = "while read x && ! test \"$x\"; do stty size; done; read x; \
                  until test \"$(stty size)\" = '20 60'; do sleep 0.02; done; stty size; exit 5";
    // Where both sides see it.
    let fifos = rig.path("fifos").display().to_string();
    let options = ["--rm", "-t", "--fifo-dir", &fifos];
    let mut run = run(&engine, &rig, &options, "term", script);
    run.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut run = window.spawn(run);
    eventually("it has a mux", || rig.status("term").is_some_and(|s| s.get("mux_pid").is_some()));
    assert_user(Pid::from_raw(rig.mux("term")));
    // The log of another container is left out.
    let why = "cannot write in /var/log/iottymux/user. Try a log below /var/log/iottymux/term";
    assert!(engine.ask(&["status", "term"]).contains(why));
    eventually("the app has the engine's size", || {
        window.press(b"\r");
        window.shown.so_far().contains("31 97\r")
    });
    window.press(b"end\r");
    let person = Pty::open(20, 60);
    let mut attach = rig.client_command(&["attach", "--app", "term"]);
    attach.stdin(Stdio::inherit());
    let mut attach = person.spawn(attach);
    person.shown.wait_for("end");
    person.press(b"\r");
    person.shown.wait_for("20 60");
    assert_eq!((attach.ends(), run.ends()), (5, 5));
}

/// Before Linux 6.15 nobody knows the status once a process was collected: the holder does not.
#[test]
fn the_status_is_known_where_the_kernel_keeps_none() {
    refuse_pidfd_info();
    let Some((rig, engine)) = start() else { return };
    let uri = format!("file://{}", rig.path("out.log").display());
    for code in 3..9 {
        let (id, script) = (format!("old-{code}"), format!("echo out; read x; exit {code}"));
        let output = run(&engine, &rig, &["-d", "--log-uri", &uri], &id, &script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(rig.served(&id, "stdout"), 4);
        let status = rig.status(&id).unwrap();
        assert_eq!(status["app_ended"]["status"], code, "{status}");
    }
}

/// Makes `PIDFD_GET_INFO` unknown to what this thread starts, as to an older kernel.
fn refuse_pidfd_info() {
    const REQUEST: u32 = 0xc040_ff0b;
    refuse(&[(libc::SYS_ioctl, &[&[(1, Eq, REQUEST)]])], libc::ENOTTY).unwrap();
}
