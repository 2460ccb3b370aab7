//! `run`: the app's status, its signals, its children, and coming back to it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::Duration;

use iottymux::core::wire::FrameKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::pattern::volume;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::session::{Frame, Session};
use crate::skip::skip;

fn run<'a>(options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let how: &[&str] = if options.contains(&"--attach") { &[] } else { &["--foreground"] };
    [&["run", "--app", APP][..], how, options, &["--"], command].concat()
}

#[test]
fn it_ends_as_the_app_does() {
    for tty in [&[][..], &["--tty"]] {
        for (script, code) in [
            ("exit 0", 0),
            ("exit 3", 3),
            ("exit 255", 255),
            ("kill -TERM $$", 143),
            ("kill -KILL $$", 137),
        ] {
            let rig = Rig::new();
            let mut mux = rig.run(&run(tty, &["sh", "-c", script]));
            assert_eq!(mux.ends(), code, "{tty:?} {script}: {}", mux.stderr.so_far());
            let names: Vec<_> = fs::read_dir(rig.path("")).unwrap().flatten().collect();
            let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
            assert_eq!(names, ["last.json"], "{tty:?} {script}");
        }
    }
}

#[test]
fn with_rm_nothing_is_left_of_it() {
    let rig = Rig::new();
    for tty in [&[][..], &["--tty"]] {
        for front in ["--attach", "--foreground"] {
            let words = [&["run", "--rm", "--app", APP, front][..], tty, &["sh", "-c"]].concat();
            let mut ended = rig.run(&[&words[..], &["echo hello; exit 3"]].concat());
            assert_eq!(ended.ends(), 3, "{words:?}: {}", ended.stderr.so_far());
            eventually("its directory is gone", || !rig.path("").exists());
            if front == "--attach" {
                assert!(ended.stdout.text().contains("hello"), "{words:?}");
            }
        }
    }
    let mut detached = rig.run(&["run", "--rm", "-d", "--name", APP, "sleep", "1000"]);
    assert_eq!(detached.ends(), 0);
    assert_eq!(rig.run(&["stop", APP]).ends(), 0);
    eventually("its directory is gone", || !rig.path("").exists());
}

/// As tmux new -A does.
#[test]
fn it_attaches_to_an_app_that_runs_and_starts_it_otherwise() {
    let rig = Rig::new();
    let words =
        ["run", "-A", "-it", "--name", APP, "sh", "-c", "echo I am $IOTTYMUX_NAME; exec cat"];
    let terminals = [(); 2].map(|()| Pty::open(24, 80));
    let mut runs = Vec::new();
    for local in &terminals {
        runs.push(local.spawn(rig.command(words)));
        local.shown.wait_for("I am demo");
    }
    let pid = rig.status()["app_pid"].clone();
    terminals[1].press(b"typed\r");
    terminals[0].shown.wait_for("typed");
    // In the background it only makes sure.
    let ensure = |command: &str| {
        let mut run = rig.run(&["run", "-A", "-dt", "--name", APP, "sleep", command]);
        assert_eq!((run.ends(), run.stdout.text()), (0, "demo\n".to_owned()));
        assert_eq!(run.stderr.text(), "");
    };
    ensure("no number");
    assert_eq!(rig.status()["app_pid"], pid);
    for (local, run) in terminals.iter().zip(&mut runs) {
        local.press(b"\x10\x11");
        assert_eq!(run.ends(), 0);
    }
    assert_eq!(rig.run(&["stop", APP]).ends(), 0);
    ensure("1000");
    assert_ne!(rig.status()["app_pid"], pid);
    // Without a name it is that of the command, whether there is one or not.
    for _ in 0..2 {
        let mut run = rig.run(&["run", "-A", "-dt", "sleep", "1000"]);
        assert_eq!((run.ends(), run.stdout.text()), (0, "sleep\n".to_owned()));
    }
    assert_eq!(rig.run(&["stop", APP, "sleep"]).ends(), 0);
}

/// Whoever comes first starts it, for all.
#[test]
fn several_that_come_at_once_have_one_app() {
    for _ in 0..volume(3, 100) {
        let rig = Rig::new();
        let command = ["run", "-A", "-dt", "--name", APP, "--", "sleep", "1000"];
        let mut all: Vec<Proc> = (0..4).map(|_| rig.run(&command)).collect();
        for run in &mut all {
            assert_eq!((run.ends(), run.stdout.text()), (0, "demo\n".to_owned()));
            assert_eq!(run.stderr.text(), "");
        }
        assert_eq!(rig.run(&["stop", APP]).ends(), 0);
    }
}

/// A server saves when it is told to, and is ended if it does not.
#[test]
fn an_app_is_stopped_by_a_line_of_its_own() {
    for tty in [&[][..], &["--tty"]] {
        let rig = Rig::new();
        let server = "trap 'exit 9' TERM; echo up; while read line; do \
                      case $line in stop) echo saved; exit 3;; *) echo \"<$line>\";; esac; done";
        let start = || {
            let app = rig.mux(run(tty, &["sh", "-c", server]));
            let alone = rig.attach(&["--exclusive", "--from", "start"]);
            alone.stdout.wait_for("up");
            (app, alone)
        };
        let stop = |line: &str| {
            let mut stop = rig.run(&["stop", APP, "--line", line, "--time", "2"]);
            assert_eq!(stop.ends(), 0, "{}", stop.stderr.text());
            stop.stdout.text()
        };
        let (mut app, alone) = start();
        assert_eq!(stop("stop"), "app demo ended with status 3\n");
        alone.stdout.wait_for("saved");
        assert_eq!(app.ends(), 3);
        drop(alone);
        let (mut app, alone) = start();
        assert_eq!(stop("something else"), "app demo ended with status 9\n");
        alone.stdout.wait_for("<something else>");
        assert_eq!(app.ends(), 9);
    }
}

/// It has not ended because its mux has.
#[test]
fn an_app_is_stopped_though_its_mux_is_another_one_meanwhile() {
    for asks in [false, true] {
        let rig = Rig::new();
        let script = "trap '' TERM; echo up; while :; do sleep 1000; done";
        let mut app = rig.mux(run(&[], &["sh", "-c", script]));
        rig.attach(&["--from", "start"]).stdout.wait_for("up");
        let mut stop = rig.run(&["stop", APP, "--time", "2"]);
        app.stderr.wait_for("sends the app signal 15");
        change_mux(&rig, asks);
        assert_eq!(stop.ends(), 0, "{}", stop.stderr.text());
        assert_eq!(stop.stdout.text(), "app demo ended by signal 9\n");
        assert_eq!(app.ends(), 137);
    }
}

/// A session outlives the login that has started it, and with it that login's agent.
#[test]
fn the_agent_is_that_of_who_attached_last() {
    let rig = Rig::new();
    let agents = ["first", "second"].map(|name| {
        let path = rig.file(name);
        (std::os::unix::net::UnixListener::bind(&path).unwrap(), path)
    });
    let with = |agent: &std::path::Path, words: &[&str]| {
        let mut command = rig.command(words);
        command.env("SSH_AUTH_SOCK", agent).stdin(Stdio::null());
        Proc::spawn(command)
    };
    let script = "echo has $SSH_AUTH_SOCK; exec sleep 1000";
    let run = ["run", "-d", "--name", APP, "sh", "-c", script];
    assert_eq!(with(&agents[0].1, &run).ends(), 0);
    let link = rig.path("ssh-agent");
    let leads = || fs::read_link(&link).unwrap();
    rig.attach(&["--from", "start"]).stdout.wait_for(&format!("has {}", link.display()));
    assert_eq!(leads(), agents[0].1);
    // Not by one that only looks, or has none that is there. That of the app itself is the same.
    for (agent, options, led) in [
        (&agents[1].1, &["--read-only"][..], 0),
        (&rig.file("gone"), &[], 0),
        (&link, &[], 0),
        (&agents[1].1, &[], 1),
    ] {
        let attach = with(agent, &[&["attach", APP, "--from", "start"], options].concat());
        attach.stdout.wait_for("has ");
        assert_eq!(leads(), agents[led].1, "{options:?}");
    }
    assert_eq!(rig.run(&["stop", APP]).ends(), 0);
    assert!(fs::symlink_metadata(&link).is_err());
    let without = [&["run", "--no-ssh-agent"], &run[1..]].concat();
    assert_eq!(with(&agents[0].1, &without).ends(), 0);
    let own = format!("has {}", agents[0].1.display());
    rig.attach(&["--from", "start"]).stdout.wait_for(&own);
    assert_eq!(rig.run(&["stop", APP]).ends(), 0);
}

#[test]
fn who_typed_is_detached_from_within() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut app = rig.slave();
    let detach = |name: &[&str]| {
        let mut command = rig.command([&["control"], name, &["detach", "self"]].concat());
        command.env("IOTTYMUX_NAME", APP);
        Proc::spawn(command)
    };
    let mut nobody = detach(&[]);
    assert_eq!(nobody.ends(), 1);
    assert!(nobody.stderr.text().contains("nobody types at its terminal"));
    // A serial line has no size.
    let terminals = [(24, 80), (0, 0)].map(|(rows, cols)| Pty::open(rows, cols));
    let mut clients = terminals.each_ref().map(|local| {
        let client = local.spawn(rig.command(["attach", APP]));
        local.shown.wait_for("leaves");
        client
    });
    for (name, typist) in [(&[][..], 0), (&[APP], 1)] {
        terminals[typist].press(b"typed\r");
        app.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(detach(name).ends(), 0);
        assert_eq!(clients[typist].ends(), 0);
        terminals[typist].shown.wait_for("detached from app demo by request");
    }
}

/// As a shell does, but for what a person has caused.
#[test]
fn a_person_learns_of_a_signal() {
    for (signal, says) in [("SEGV", true), ("KILL", true), ("INT", false)] {
        for options in [&["-it"][..], &[]] {
            let rig = Rig::new();
            let local = Pty::open(24, 80);
            let script = format!("trap - {signal}; kill -{signal} $$");
            let words = [&["run", "--name", APP], options, &["--", "sh", "-c", &script]].concat();
            let mut run = local.spawn(rig.command(words));
            let code = run.ends();
            assert!(code > 128, "{signal} {options:?}: {code}");
            let shown = local.shown_before_mark();
            assert_eq!(
                shown.contains("app demo ended by signal"),
                says,
                "{signal} {options:?}: {shown}"
            );
        }
    }
}

/// The first process of a container gets its orphans.
#[test]
fn as_the_first_process_it_collects_orphans() {
    let rig = Rig::new();
    let unshared = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let try_it = Command::new("unshare").args(unshared).arg("true").output();
    if !try_it.is_ok_and(|output| output.status.success()) {
        return skip("unshare", "this user may not make a PID namespace");
    }
    let script = "pid=$( (sleep 0.05 >&2 & echo $!) ); \
        while test -e /proc/$pid; do sleep 0.01; done; exit 3";
    let attached = vec!["run", "--name", APP, "--", "sh", "-c", script];
    for words in [run(&[], &["sh", "-c", script]), attached] {
        let mut command = Command::new("unshare");
        command.args(unshared).arg(env!("CARGO_BIN_EXE_iottymux")).args(words);
        command.env("IOTTYMUX_STATE_DIR", rig.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut first = Proc::spawn(command);
        assert_eq!(first.ends(), 3, "{}", first.stderr.so_far());
    }
}

#[test]
fn an_attach_ends_as_the_app_does() {
    for (tty, script, code) in [
        (&[][..], "read x; echo out; echo err >&2; exit 3", 3),
        (&[], "read x; echo out; echo err >&2; kill -9 $$", 137),
        (&["--tty"], "read x; echo out; exit 4", 4),
    ] {
        let rig = Rig::new();
        let mut mux = rig.mux(run(tty, &["sh", "-c", script]));
        let mut attach = rig.attach(&[]);
        attach.stdin().write_all(b"go\n").unwrap();
        assert_eq!(attach.ends(), code, "{script}");
        assert!(attach.stdout.text().contains("out"), "{script}");
        assert_eq!(attach.stderr.text(), if tty.is_empty() { "err\n" } else { "" }, "{script}");
        assert_eq!(mux.ends(), code, "{script}");
    }
}

#[test]
fn its_signals_are_the_apps() {
    for (tty, mode, end) in [(&[][..], "stdout", "\n"), (&["--tty"], "tty-out", "\r\n")] {
        for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT")] {
            let rig = Rig::new();
            // The background process lets the shell hear the signal at once. With a terminal nothing
            // else comes with it: a hangup would end the shell.
            let script =
                format!("sleep 60 & trap 'kill $!; echo got; exit 7' {name}; echo up; wait");
            let mut mux = rig.mux(run(tty, &["sh", "-c", &script]));
            let mut attach = rig.attach(&["--mode", mode]);
            attach.stdout.wait_for("up");
            mux.signal(signal);
            assert_eq!(attach.ends(), 7);
            assert_eq!(attach.stdout.text(), format!("up{end}got{end}"));
            assert_eq!(mux.ends(), 7);
        }
    }
}

/// At a terminal ^C is for the job in its foreground, as there: a shell that waits for one ends only so.
#[test]
fn an_interrupt_is_for_the_job_in_the_foreground() {
    let rig = Rig::new();
    let script = "(echo up; exec sleep 1000); exit 9";
    let mut mux = rig.mux(run(&["--tty"], &["bash", "-c", script]));
    let mut attach = rig.attach(&["--mode", "tty-out"]);
    attach.stdout.wait_for("up");
    mux.signal(Signal::SIGINT);
    assert_eq!(attach.ends(), 128 + 2);
    assert_eq!(mux.ends(), 128 + 2);
}

#[test]
fn a_child_that_is_left_over_does_not_keep_it() {
    let rig = Rig::new();
    let mut mux = rig.mux(run(&[], &["sh", "-c", "read x; sleep 60 & echo $!; exit 5"]));
    let mut attach = rig.attach(&[]);
    attach.stdin().write_all(b"go\n").unwrap();
    let code = attach.ends();
    let child: i32 = attach.stdout.text().trim().parse().unwrap();
    let ended = mux.ends();
    kill(Pid::from_raw(child), Signal::SIGKILL).expect("the child was to be left over");
    assert_eq!((code, ended), (5, 5));
}

#[test]
fn output_of_a_left_over_child_is_delivered() {
    let rig = Rig::new();
    // The child says its word when the shell, which it waits for, is gone.
    let script = "read x; (while kill -0 $$ 2>/dev/null; do :; done; echo late) & exit 0";
    let mut mux = rig.mux(run(&[], &["sh", "-c", script]));
    let mut attach = rig.attach(&[]);
    attach.stdin().write_all(b"go\n").unwrap();
    assert_eq!(attach.ends(), 0);
    assert_eq!(attach.stdout.text(), "late\n");
    assert_eq!(mux.ends(), 0);
}

#[test]
fn a_slow_client_does_not_keep_the_name_of_an_app_that_has_ended() {
    let rig = Rig::new();
    let script = "read x; head -c 400000 /dev/zero; exit 5";
    // The next one may take long to start.
    let mut mux = rig.mux(run(&["--max-client-delay", "60"], &["sh", "-c", script]));
    let mut slow = rig.client("stdout");
    rig.client("stdin").write_all(b"go\n").unwrap();
    // It reads on, so it is waited for, and it comes to no end before this says so.
    let (goes_on, told) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let (mut piece, mut count) = ([0; 4096], 0);
        loop {
            if told.try_recv() == Err(TryRecvError::Empty) {
                thread::sleep(Duration::from_millis(50));
            }
            match slow.read(&mut piece).unwrap() {
                0 => return count,
                len => count += len,
            }
        }
    });
    eventually("the name is free", || rig.try_status().is_none_or(|s| s.get("mux_pid").is_none()));
    assert!(mux.child.try_wait().unwrap().is_none(), "all of it is in the kernel");
    let mut next = rig.mux(run(&[], &["sh", "-c", "read x; echo \"next $x\"; exit 6"]));
    let mut attach = rig.attach(&[]);
    attach.stdin().write_all(b"go\n").unwrap();
    assert_eq!((attach.ends(), attach.stdout.text()), (6, "next go\n".to_owned()));
    assert_eq!(next.ends(), 6);
    goes_on.send(()).unwrap();
    drop(goes_on);
    assert_eq!(reader.join().unwrap(), 400_000);
    assert_eq!(mux.ends(), 5);
    // What the next one has left is untouched.
    let last = rig.command(["status", "--app", APP]).output().unwrap();
    assert!(String::from_utf8_lossy(&last.stdout).contains("ended with status 6"), "{last:?}");
}

/// Nothing waits for the mux. With `--rm` it leaves nothing of its own, and what the next one has left.
#[test]
fn a_slow_client_of_a_detached_command_gets_the_rest() {
    let rig = Rig::new();
    let start = |options: &[&str], script: &str| {
        let words = [&["run", "-d", "--name", APP][..], options, &["sh", "-c", script]].concat();
        assert_eq!(rig.run(&words).ends(), 0);
    };
    start(&["--rm"], "read x; head -c 400000 /dev/zero");
    let mut slow = rig.client("stdout");
    let stat = fs::read_to_string(format!("/proc/{}/stat", mux_pid(&rig))).unwrap();
    let keeper = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap();
    let is_kept = || fs::exists(format!("/proc/{keeper}")).unwrap();
    rig.client("stdin").write_all(b"go\n").unwrap();
    let reader = thread::spawn(move || {
        let (mut piece, mut count) = ([0; 4096], 0);
        loop {
            thread::sleep(Duration::from_millis(50));
            match slow.read(&mut piece).unwrap() {
                0 => return count,
                len => count += len,
            }
        }
    });
    eventually("the name is free", || rig.try_status().is_none());
    assert_eq!(rig.run(&["list", "-q"]).stdout.text(), "");
    start(&[], "exit 3");
    let status = || rig.command(["status", "--app", APP]).output().unwrap();
    let has_ended = || String::from_utf8_lossy(&status().stdout).contains("ended with status 3");
    eventually("the next one has ended", has_ended);
    assert!(is_kept(), "all of it is in the kernel");
    assert_eq!(reader.join().unwrap(), 400_000);
    eventually("its keeper has ended", || !is_kept());
    assert!(has_ended(), "{:?}", status());
}

/// With the status that a shell has for it, and before anything is started.
#[test]
fn a_command_that_cannot_be_executed_is_an_error_of_one_line() {
    let rig = Rig::new();
    let plain = rig.file("plain").display().to_string();
    let missing = rig.file("missing").display().to_string();
    fs::write(&plain, "").unwrap();
    for options in [&["--foreground"][..], &["--foreground", "-t"], &[], &["-it"], &["-d"]] {
        for (command, why, code) in [
            ("no-such-command", "command not found", 127),
            (&*missing, "there is no such file", 127),
            (&*plain, "it is not an executable file", 126),
            ("/", "it is not an executable file", 126),
        ] {
            let mut run = rig.run(&[&["run", "--name", APP], options, &[command]].concat());
            assert_eq!(run.ends(), code, "{options:?} {command}");
            let said = format!("iottymux: cannot start {command}: {why}\n");
            assert_eq!(run.stderr.text(), said);
            assert!(!rig.exists(""), "the directory is still there");
        }
    }
}

/// A program that only the system call finds out to be none.
fn broken_program(rig: &Rig) -> String {
    let broken = rig.file("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    broken.display().to_string()
}

#[test]
fn a_command_that_does_not_start_is_an_error_of_one_line() {
    for options in [&[][..], &["--tty"]] {
        let rig = Rig::new();
        let broken = broken_program(&rig);
        let mut mux = rig.run(&run(options, &[&broken]));
        let code = mux.ends();
        assert!(code == 1 || code == 125, "{code}");
        let said = mux.stderr.text();
        let told = said.lines().filter(|line| line.contains(&broken)).count();
        assert_eq!(told, 1, "{said}");
        assert!(!rig.exists(""), "the directory is still there");
    }
}

#[test]
fn detached_it_goes_on_and_can_be_attached_again() {
    let rig = Rig::new();
    let local = Pty::open(33, 99);
    let script = "stty size; while read x; do echo \"got $x\"; done; exit 6";
    let mut first = local.spawn(rig.command(run(&["--tty", "--attach"], &["sh", "-c", script])));
    // The size of the window is there before the app looks.
    local.shown.wait_for("33 99");
    local.press(b"one\r");
    local.shown.wait_for("got one");
    local.press(b"\x10\x11");
    assert_eq!(first.ends(), 0);
    assert!(local.is_as_before());
    // It goes on with nobody there to see what comes of this.
    let mut typist = rig.attach(&["--mode", "tty-in"]);
    typist.stdin().write_all(b"two\r").unwrap();
    assert_eq!(typist.ends(), 0);
    let mut again = local.spawn(rig.command(["attach", "--app", APP]));
    local.shown.wait_for("got two");
    // The app's end of input, on its terminal.
    local.press(b"\x04");
    assert_eq!(again.ends(), 6);
    assert!(local.is_as_before());
}

#[test]
fn attached_at_once_nothing_is_missed_and_the_status_is_known() {
    for options in [&["--attach"][..], &["--attach", "--tty"]] {
        let rig = Rig::new();
        let mut run = rig.run(&run(options, &["sh", "-c", "echo all there is; exit 9"]));
        assert_eq!(run.ends(), 9, "{}", run.stderr.so_far());
        assert_eq!(run.stdout.text().trim_end(), "all there is");
    }
}

#[test]
fn attached_the_end_of_input_is_the_apps() {
    let rig = Rig::new();
    fs::write(rig.file("in"), "through\n").unwrap();
    let mut command = rig.command(run(&["--attach"], &["cat"]));
    command.stdin(fs::File::open(rig.file("in")).unwrap());
    let mut run = Proc::spawn(command);
    assert_eq!(run.ends(), 0, "{}", run.stderr.so_far());
    assert_eq!(run.stdout.text(), "through\n");
}

/// As in a pipeline of a shell, also if nothing is logged or shown of it.
#[test]
fn attached_a_closed_output_ends_the_command() {
    for options in [&["--attach"][..], &["--attach", "--tty"]] {
        let rig = Rig::new();
        let mut command = rig.command(run(options, &["sh", "-c", "echo first; exec yes"]));
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        command.stdout(write);
        let mut run = Proc::spawn(command);
        expect(fs::File::from(read), "first");
        assert_eq!(run.ends(), 141, "{options:?}: {}", run.stderr.so_far());
        eventually("the mux has ended", || rig.exists("last.json"));
        let last = fs::read_to_string(rig.path("last.json")).unwrap();
        assert!(last.contains(r#"{"signal":13}"#), "{options:?}: {last}");
    }
}

/// The app has the name of the command, with a number while there is another one.
#[test]
fn in_the_background_it_prints_the_name() {
    let rig = Rig::new();
    let start = |words: &[&str]| {
        let mut run = rig.run(&[&["run", "-d"][..], words].concat());
        assert_eq!(run.ends(), 0, "{}", run.stderr.so_far());
        run.stdout.text()
    };
    let script = "read x; exit 4";
    assert_eq!(start(&["/bin/sh", "-c", script]), "sh\n");
    assert_eq!(start(&["-i", "-t", "sh", "-c", script]), "sh-2\n");
    assert_eq!(start(&["--name", "mine", "sh", "-c", script]), "mine\n");
    let mut taken = rig.run(&["run", "-d", "--name", "mine", "true"]);
    assert_eq!(taken.ends(), 1);
    let said = taken.stderr.text();
    let ways = "iottymux attach mine, run -A, iottymux stop mine, or iottymux rm --force mine";
    assert_eq!(said, format!("iottymux: app mine is running already; try {ways}\n"));
    assert_eq!(said.lines().count(), 1, "{said}");
    for name in ["sh", "sh-2", "mine"] {
        let mut attach = rig.command(["attach", name]);
        attach.stdin(Stdio::piped());
        let mut attach = Proc::spawn(attach);
        attach.stdin().write_all(b"go\n").unwrap();
        assert_eq!(attach.ends(), 4, "{name}: {}", attach.stderr.so_far());
    }
    // The name of an app that has ended is free.
    assert_eq!(start(&["sh", "-c", "exit 5"]), "sh\n");
    let mut missing = rig.run(&["run", "-d", "no-such-command"]);
    assert_eq!(missing.ends(), 127);
    let said = missing.stderr.text();
    assert_eq!(said, "iottymux: cannot start no-such-command: command not found\n");
    let mut nameless = rig.run(&["run", "--", "./-"]);
    assert_eq!(nameless.ends(), 2);
    assert!(nameless.stderr.text().contains("cannot derive an app name from -: pass --name"));
}

/// Without a terminal, signals are for the command, and `run` ends with it.
#[test]
fn attached_its_signals_are_the_commands() {
    for (signal, name) in
        [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT"), (Signal::SIGQUIT, "QUIT")]
    {
        let rig = Rig::new();
        let script = format!("sleep 60 & trap 'kill $!; echo got; exit 7' {name}; echo up; wait");
        let mut run = rig.run(&["run", "--", "sh", "-c", &script]);
        run.stdout.wait_for("up");
        run.signal(signal);
        assert_eq!(run.ends(), 7, "{}", run.stderr.so_far());
        assert_eq!(run.stdout.text(), "up\ngot\n");
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    for (options, why) in [
        (&["--size", "10x20"][..], "--size requires --tty: only a terminal has a size"),
        (&["--record", "cast:x"], "--record requires --tty: only a terminal can be recorded"),
    ] {
        for attach in [&[][..], &["--attach"]] {
            let rig = Rig::new();
            let mut refused = rig.run(&run(&[options, attach].concat(), &["true"]));
            assert_eq!(refused.ends(), 2, "{options:?}");
            let said = refused.stderr.text();
            assert!(said.ends_with(&format!("{why}; try iottymux run --help\n")), "{said}");
        }
    }
}

#[test]
fn attached_to_a_command_that_does_not_start() {
    let rig = Rig::new();
    let broken = broken_program(&rig);
    let mut run = rig.run(&run(&["--attach"], &[&broken]));
    let code = run.ends();
    assert!(code == 1 || code == 125, "{code}");
    let said = run.stderr.text();
    assert!(said.contains(&broken), "{said}");
}

/// Interactive shells ignore SIGTERM: at a terminal it is followed by what a closing one sends. A
/// command that does something at SIGTERM has as long as it takes, unless that comes again.
#[test]
fn a_shell_at_a_terminal_ends_too() {
    for trap in ["trap '' TERM", "trap 'echo asked' TERM"] {
        let rig = Rig::new();
        let script = format!("{trap}; trap 'exit 9' HUP; echo up; while :; do sleep 0.1; done");
        let mut run = rig.mux(run(&["--tty"], &["sh", "-c", &script]));
        let mut shown = rig.client("tty");
        expect(&mut shown, "up\r\n");
        run.signal(Signal::SIGTERM);
        if trap.contains("asked") {
            expect(&mut shown, "asked\r\n");
            run.signal(Signal::SIGTERM);
        }
        assert_eq!(run.ends(), 9);
    }
}

/// A shell that waits for a job in its foreground ends when that does.
#[test]
fn the_job_in_front_is_hung_up_with_its_shell() {
    let rig = Rig::new();
    let script = "set -m; trap '' TERM; trap 'exit 9' HUP; \
                  sh -c 'trap \"\" TERM; trap \"exit 1\" HUP; echo up; while :; do read x; done'; \
                  while :; do read x; done";
    let mut run = rig.mux(run(&["--tty"], &["sh", "-c", script]));
    expect(rig.client("tty"), "up\r\n");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.ends(), 9);
}

/// What the keeper shows as the mux's process.
pub fn mux_pid(rig: &Rig) -> Pid {
    let pid = rig.status()["mux_pid"].as_i64().unwrap();
    Pid::from_raw(pid.try_into().unwrap())
}

/// Has the mux started again on request, or kills it; waits for the next one.
pub fn change_mux(rig: &Rig, asks: bool) {
    let before = mux_pid(rig);
    if asks {
        assert_eq!(rig.run(&["control", "--app", APP, "restart"]).ends(), 0);
        assert_ne!(mux_pid(rig), before, "the answer follows the restart");
        return;
    }
    kill(before, Signal::SIGKILL).unwrap();
    eventually("there is another mux", || {
        rig.try_status().is_some_and(|status| status["mux_pid"] != before.as_raw())
    });
}

/// Lines that a shell writes one by one, and how many.
const COUNT: u64 = 300_000;

fn count() -> String {
    format!("read x; i=0; while [ $i -lt {COUNT} ]; do echo $i; i=$((i+1)); done; read x; exit 4")
}

/// A mux that dies or is restarted costs neither the app nor an attached client anything.
#[test]
fn a_mux_may_die_at_any_moment() {
    for asks in [false, true] {
        let rig = Rig::new();
        let log = format!("--log=raw:{}", rig.file("log").display());
        let mut keeper = rig.mux(run(&[&log], &["sh", "-c", &count()]));
        eventually("the app runs", || rig.status()["app_pid"].is_number());
        let app = rig.status()["app_pid"].clone();
        let mut attach = rig.attach(&["--mode", "stdout", "--reconnect=20"]);
        let type_line = || {
            let mut typist = rig.attach(&["--mode", "stdin"]);
            typist.stdin().write_all(b"go\n").unwrap();
            typist.ends()
        };
        assert_eq!(type_line(), 0);
        for round in 1..=4 {
            attach.stdout.wait_len(round * 200_000);
            change_mux(&rig, asks);
        }
        // The keeper tells a new mux of its app when that is ready.
        eventually("it is the same app", || rig.status()["app_pid"] == app);
        // It ends the app, maybe before the mux has read that this is all of the input.
        assert!([0, 4].contains(&type_line()));
        assert_eq!((attach.ends(), keeper.ends()), (4, 4), "{}", attach.stderr.text());
        let want = (0..COUNT).fold(String::new(), |text, n| text + &format!("{n}\n"));
        assert!(attach.stdout.text() == want, "the output differs, restarted: {asks}");
        assert!(fs::read_to_string(rig.file("log")).unwrap().len() >= want.len());
        let names: Vec<_> = fs::read_dir(rig.path("")).unwrap().flatten().collect();
        let mut names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
        names.sort();
        assert_eq!(names, ["last.json", "logs"]);
    }
}

/// The next mux is the program that has the name then.
#[test]
fn an_upgrade_takes_effect_with_the_next_mux() {
    let rig = Rig::new();
    let program = rig.file("iottymux");
    fs::copy(env!("CARGO_BIN_EXE_iottymux"), &program).unwrap();
    let mut command = rig.command(run(&[], &["sh", "-c", "read x; echo got $x; exit 6"]));
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let variables: Vec<_> =
        command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    command = Command::new(&program);
    command.args(arguments).envs(variables);
    let mut keeper = rig.start(command);
    fs::copy(env!("CARGO_BIN_EXE_iottymux"), rig.file("new")).unwrap();
    fs::rename(rig.file("new"), &program).unwrap();
    change_mux(&rig, true);
    let image = fs::read_link(format!("/proc/{}/exe", mux_pid(&rig))).unwrap();
    assert_eq!(image, program, "the old file is shown as deleted");
    let mut attach = rig.attach(&[]);
    attach.stdin().write_all(b"it\n").unwrap();
    assert_eq!((attach.ends(), keeper.ends()), (6, 6));
    assert_eq!(attach.stdout.text(), "got it\n");
}

#[test]
fn attach_goes_on_with_the_next_run() {
    let rig = Rig::new();
    let mut first = rig.mux(run(&[], &["sh", "-c", "echo one; read x; exit 3"]));
    let mut attach = rig.attach(&["--follow", "--from", "start"]);
    attach.stdout.wait_for("one\n");
    let mut input = attach.stdin();
    input.write_all(b"\n").unwrap();
    assert_eq!(first.ends(), 3);
    attach.stderr.wait_for(&format!("{APP} ended with status 3; waiting until it runs again"));
    let mut second = rig.mux(run(&[], &["sh", "-c", "echo two; read x; exit 4"]));
    attach.stdout.wait_for("two\n");
    input.write_all(b"\n").unwrap();
    assert_eq!(second.ends(), 4);
    attach.stderr.wait_for(&format!("{APP} ended with status 4; waiting until it runs again"));
    attach.signal(Signal::SIGTERM);
    attach.ends();
}

/// Nothing is left over when the keeper itself is killed.
#[test]
fn a_killed_keeper_takes_its_app_and_its_mux_with_it() {
    for tty in [&[][..], &["--tty"]] {
        let rig = Rig::new();
        let mut keeper = rig.mux(run(tty, &["sleep", "1000"]));
        let status = rig.status();
        let pids = ["mux_pid", "app_pid"].map(|name| status[name].as_i64().unwrap());
        keeper.signal(Signal::SIGKILL);
        keeper.ends();
        for pid in pids {
            let pid = Pid::from_raw(pid.try_into().unwrap());
            eventually("it has ended", || {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
                // A zombie belongs to the reaper of this system.
                stat.map_or(true, |stat| stat.contains(") Z "))
            });
        }
        assert!(!rig.exists(""), "the directory is still there");
    }
}

/// The end of input that a client has caused is still there after a change of mux.
#[test]
fn the_end_of_input_survives_the_mux() {
    let rig = Rig::new();
    let go = rig.file("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("read x; echo got $x; read y <{}; cat; exit 8", go.display());
    let mut keeper = rig.mux(run(&[], &["sh", "-c", &script]));
    let mut typist = rig.attach(&["--mode", "stdin", "--stdin-once"]);
    typist.stdin().write_all(b"one\n").unwrap();
    let mut reader = rig.attach(&["--mode", "stdout", "--reconnect=20"]);
    reader.stdout.wait_for("got one");
    change_mux(&rig, false);
    fs::write(go, "go\n").unwrap();
    assert_eq!((reader.ends(), keeper.ends()), (8, 8), "{}", reader.stderr.text());
    drop(typist);
}

/// A signal to reopen logs comes at any time, also to a mux that has not caught it yet.
#[test]
fn a_hangup_ends_no_mux_that_starts() {
    let rig = Rig::new();
    let mut keeper = rig.run(&run(&[], &["sh", "-c", "exit 3"]));
    let children = format!("/proc/{0}/task/{0}/children", keeper.pid());
    eventually("the mux starts", || !fs::read_to_string(&children).unwrap().is_empty());
    keeper.signal(Signal::SIGHUP);
    assert_eq!(keeper.ends(), 3, "{}", keeper.stderr.text());
}

/// A client that is told this does not tell the next mux, should this one be killed just then.
#[test]
fn the_end_of_input_is_acknowledged_when_it_is_the_apps() {
    for _ in 0..volume(10, 100) {
        let rig = Rig::new();
        let mut keeper = rig.mux(run(&[], &["cat"]));
        let hello = json!({"version": 1, "stdin": true, "stdin_once": true});
        let mut session = Session::new(&rig, &hello);
        session.send(FrameKind::StdinEof, b"");
        session.wait_told(FrameKind::StdinDone);
        if let Some(mux) = rig.try_status().and_then(|status| status["mux_pid"].as_i64()) {
            let _ = kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL);
        }
        assert_eq!(keeper.ends(), 0);
    }
}

/// Their input is dropped. They would wait for ever.
#[test]
fn clients_behind_the_end_of_the_apps_input_learn_of_it() {
    const PIECE: usize = 1 << 16;
    const PIECES: usize = 4;
    let rig = Rig::new();
    let go = rig.file("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("read x <{}; cat >/dev/null; read x <{0}", go.display());
    let mut keeper = rig.mux(run(&[], &["sh", "-c", &script]));
    let mut sessions = [true, false, false]
        .map(|once| Session::new(&rig, &json!({"version": 1, "stdin": true, "stdin_once": once})));
    for session in &mut sessions {
        session.wait_told(FrameKind::Welcome);
    }
    // The pipe is full, and each waits for its turn.
    for _ in 0..PIECES {
        sessions[0].send(FrameKind::Stdin, &vec![b'x'; PIECE]);
    }
    for (at, session) in sessions.iter_mut().enumerate() {
        session.send(FrameKind::Stdin, b"the end\n");
        session.send(FrameKind::StdinEof, b"");
        session.send(FrameKind::Status, b"");
        let report = session.wait_told(FrameKind::Report);
        assert_eq!(report["clients"].as_array().unwrap().len(), 3, "{at}");
    }
    fs::write(&go, "go\n").unwrap();
    for session in &mut sessions {
        session.wait_told(FrameKind::StdinDone);
    }
    fs::write(&go, "go\n").unwrap();
    assert_eq!(keeper.ends(), 0);
}

/// The app gets each byte of a program's input once, and its end, whichever mux has it.
#[test]
fn a_programs_input_goes_on_over_muxes() {
    let want = (0..COUNT).fold(String::new(), |text, n| text + &format!("{n}\n"));
    for asks in [false, true] {
        let rig = Rig::new();
        let got = rig.file("got");
        let script = format!("cat >{}; exit 5", got.display());
        let mut keeper = rig.mux(run(&[], &["sh", "-c", &script]));
        let mut typist = rig.attach(&["--mode", "stdin", "--stdin-once", "--reconnect=20"]);
        let (mut input, bytes) = (typist.stdin(), want.clone());
        // A part of it, and the rest when the muxes have changed.
        let part = bytes.len() / 2;
        let (go, waits) = std::sync::mpsc::channel();
        let program = thread::spawn(move || {
            input.write_all(&bytes.as_bytes()[..part]).unwrap();
            waits.recv().unwrap();
            input.write_all(&bytes.as_bytes()[part..]).unwrap();
        });
        for round in 1..=4 {
            eventually("the app reads on", || {
                fs::metadata(&got).is_ok_and(|file| file.len() >= (round * part / 5) as u64)
            });
            change_mux(&rig, asks);
        }
        go.send(()).unwrap();
        program.join().unwrap();
        assert_eq!((typist.ends(), keeper.ends()), (5, 5), "{}", typist.stderr.text());
        assert!(fs::read_to_string(&got).unwrap() == want, "it differs, restarted: {asks}");
    }
}

/// Before the first client has come, a signal ends `run`, and its mux cannot be restarted. A session
/// that only asks is not a client.
#[test]
fn an_app_that_waits_for_its_first_client() {
    let rig = Rig::new();
    let start = |script: &str| {
        let mut command = rig.command(run(&[], &["sh", "-c", script]));
        command.env("IOTTYMUX_AWAIT_CLIENT", "1");
        rig.start(command)
    };
    let mut keeper = start("echo up; exit 3");
    let mut restart = rig.run(&["control", "--app", APP, "restart"]);
    assert_eq!(restart.ends(), 1);
    assert!(restart.stderr.text().contains("the app does not run"));
    assert!(rig.status()["app_pid"].is_null());
    let mut attach = rig.attach(&[]);
    assert_eq!((attach.ends(), keeper.ends()), (3, 3), "{}", keeper.stderr.so_far());
    assert_eq!(attach.stdout.text(), "up\n");

    let mut keeper = start("echo up");
    keeper.signal(Signal::SIGTERM);
    assert_eq!(keeper.ends(), 125);
    assert!(!rig.exists("endpoints"));
}

/// What the mux had given to a client and not noted yet. All that is left of a burst then is kept.
#[test]
fn unseen_output_begins_a_write_before_what_a_killed_mux_has_sent_at_most() {
    const BURST: u64 = 1 << 20;
    let rig = Rig::new();
    let script = format!("while read x; do yes | head -c {BURST}; done");
    let mut keeper = rig.mux(run(&["--max-client-delay", "60"], &["sh", "-c", &script]));
    let hello = json!({"version": 1, "streams": [{"stream": "stdout", "from": "unseen"}]});
    let len = |frames: &[Frame]| {
        let len = |frame: &Frame| if let Frame::Bytes(_, bytes) = frame { bytes.len() } else { 0 };
        frames.iter().map(len).sum::<usize>() as u64
    };
    let mut end = 0;
    for bursts in 1..=4 {
        let mut session = Session::new(&rig, &hello);
        let welcome = session.wait_told(FrameKind::Welcome);
        let began = welcome["streams"][0]["offset"].as_u64().unwrap();
        assert!(began <= end && end - began <= 64 << 10, "{began} behind {end}");
        let mux = mux_pid(&rig);
        assert_eq!(rig.run(&["send", APP, "x"]).ends(), 0);
        session.read_until(|frames| began + len(frames) > bursts * BURST - (256 << 10));
        kill(mux, Signal::SIGKILL).unwrap();
        end = began + len(&session.rest());
        eventually("there is another mux", || {
            rig.try_status().is_some_and(|status| status["mux_pid"] != mux.as_raw())
        });
    }
    assert_eq!(rig.run(&["kill", APP]).ends(), 0);
    assert_eq!(keeper.ends(), 137);
}

/// Of the six, ^Z is what people meet: a supervisor that ignores it would have given that to the shell.
#[test]
fn what_its_starter_ignores_the_command_does_not() {
    let rig = Rig::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let notes = format!("grep SigIgn /proc/self/status >{}", file.path().display());
    let words = run(&[], &["sh", "-c", &notes]);
    let mut sh = Command::new("sh");
    sh.args(["-c", "trap '' TSTP TTIN TTOU ALRM USR1 USR2; exec \"$@\"", "sh"]);
    sh.arg(env!("CARGO_BIN_EXE_iottymux")).arg("--state-dir").arg(rig.path("..")).args(words);
    assert!(sh.status().unwrap().success());
    let text = fs::read_to_string(file.path()).unwrap();
    let ignored = u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap();
    for signal in [10, 12, 14, 20, 21, 22] {
        assert_eq!(ignored >> (signal - 1) & 1, 0, "signal {signal}: {text}");
    }
}
