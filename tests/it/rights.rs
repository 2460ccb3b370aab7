//! The rights of clients: other users, viewers, and exclusive typists.
//!
//! Other users are real: where this process is root, clients run as another one through setpriv.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{self, Command, Stdio};
use std::thread;

use iottymux::core::wire::FrameKind;
use nix::sys::signal::Signal;
use rustix::process::{Gid, Uid};
use rustix::termios::tcgetwinsize;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};

use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect, rest};
use crate::session::Session;
use crate::skip::skip;
use crate::users::{as_user, shared_rig};

/// A user and a group that no system gives to anybody.
const OTHER: &str = "54321";
const GROUP: &str = "54322";

/// The binary run by another user, member of one further group.
fn as_other(rig: &Rig, group: &str, arguments: &[&str]) -> Command {
    let mut command = as_user(rig, OTHER, group, &rig.file("iottymux"));
    command.args(arguments);
    command
}

fn attach_as_other(rig: &Rig, group: &str, arguments: &[&str]) -> Proc {
    let words = [&["attach", "--app", APP], arguments].concat();
    Proc::spawn(as_other(rig, group, &words))
}

/// The number of the client that is this process.
fn number_of(rig: &Rig, client: &Proc) -> String {
    let status = rig.status();
    let clients = status["clients"].as_array().unwrap();
    let is_it = |c: &&Value| c["pid"] == client.pid().as_raw();
    clients.iter().find(is_it).unwrap()["client"].to_string()
}

/// A connection without a session of another user, who is a member of one group: a thread can be
/// somebody else.
fn raw_as_other(rig: &Rig, group: u32, stream: &str) -> UnixStream {
    let socket = rig.path(&format!("sock-{stream}"));
    let connect = move || {
        let (user, group) = (Uid::from_raw(54321), Gid::from_raw(group));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        UnixStream::connect(socket).unwrap()
    };
    thread::spawn(connect).join().unwrap()
}

#[test]
fn the_modes_let_others_come_to_the_sockets_and_to_nothing_else() {
    let rig = Rig::new();
    let mode = |name: &str| fs::metadata(rig.path(name)).unwrap().permissions().mode() & 0o777;
    let mut mux = rig.stream();
    for (name, want) in
        [("", 0o700), ("endpoints", 0o600), ("sock-session", 0o600), ("stage2-stdout", 0o666)]
    {
        assert_eq!(mode(name), want, "{name}");
    }
    let fifo = fs::metadata(rig.path("stage2-stdout")).unwrap().ino();
    let mut app = rig.writer("stdout");
    mux.signal(Signal::SIGKILL);
    mux.ends();
    // The same app, now for others: its FIFOs move out of their reach, and stay the same.
    let mut mux = rig.mux(["stream", "--app", APP, "--view-uid", OTHER]);
    assert_eq!(fs::metadata(rig.state()).unwrap().permissions().mode() & 0o111, 0o111);
    for (name, want) in [
        ("", 0o711),
        ("endpoints", 0o644),
        ("sock-session", 0o666),
        ("sock-stdin", 0o666),
        ("lock", 0o600),
        ("ends", 0o700),
        ("ends/stage2-stdout", 0o666),
    ] {
        assert_eq!(mode(name), want, "{name}");
    }
    assert_eq!(fs::metadata(rig.path("stage2-stdout")).unwrap().ino(), fifo);
    app.write_all(b"still\n").unwrap();
    expect(rig.client("stdout"), "still\n");
    mux.signal(Signal::SIGKILL);
    mux.ends();
    // And back.
    let mut mux = rig.stream();
    assert_eq!((mode(""), mode("sock-session")), (0o700, 0o600));
    let there = fs::symlink_metadata(rig.path("stage2-stdout")).unwrap();
    assert_eq!(there.ino(), fifo);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn a_terminal_moves_out_of_the_reach_of_others() {
    let rig = Rig::new();
    let mut mux = rig.mux(["tty", "--app", APP, "--allow-gid", GROUP]);
    let link = fs::read_link(rig.path("stage2-pts")).unwrap();
    assert_eq!(link.to_str(), Some("ends/stage2-pts"));
    rig.slave().write_all(b"here").unwrap();
    expect(rig.client("tty"), "here");
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!rig.exists("stage2-pts") && !rig.exists("ends/stage2-pts"));
    let mut mux = rig.tty();
    assert!(fs::read_link(rig.path("stage2-pts")).unwrap().starts_with("/dev/pts"));
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
}

#[test]
fn lists_have_names_or_numbers() {
    let rig = Rig::new();
    for (option, words, why) in [
        ("--allow-uid", "0,no-such-user", "there is no user 'no-such-user'"),
        ("--view-uid", "4294967295", "there is no user '4294967295'"),
        ("--allow-gid", "root,", "there is no group ''"),
    ] {
        let mut mux = rig.run(&["stream", "--app", APP, option, words]);
        assert_eq!(mux.ends(), 2);
        assert!(mux.stderr.text().contains(why), "{}", mux.stderr.text());
    }
    let Some(rig) = shared_rig() else { return };
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let is_ordinary = |user: &&str| (1..1000).contains(&field(user, 2).parse::<u32>().unwrap());
    let user = users.lines().find(is_ordinary).unwrap();
    let _mux = rig.mux(["stream", "--app", APP, "--allow-uid", field(user, 0)]);
    let app = rig.reader();
    let (uid, program) = (field(user, 2).parse::<u32>().unwrap(), rig.file("iottymux"));
    let mut attach = as_user(&rig, uid, "0", &program);
    attach.args(["attach", "--app", APP]).stdin(Stdio::piped());
    let mut attach = Proc::spawn(attach);
    attach.stdin().write_all(b"from a name\n").unwrap();
    app.wait_for("from a name\n");
}

/// A field of a line of passwd(5).
fn field(line: &str, at: usize) -> &str {
    line.split(':').nth(at).unwrap()
}

#[test]
fn a_user_in_no_list_gets_an_error() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["stream", "--app", APP, "--allow-uid", "1", "--view-gid", GROUP]);
    let mut attach = attach_as_other(&rig, "0", &[]);
    assert_eq!(attach.ends(), 1);
    let said = attach.stderr.text();
    assert!(
        said.contains(
            "user 54321 may not attach to app demo; try to start its mux with --allow-uid"
        ),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    mux.stderr.wait_for(&format!("uid=54321 pid={} refused at a session: ", attach.pid()));
    // A raw socket has no words: it just ends, before a byte of the app.
    rig.writer("stdout").write_all(b"secret").unwrap();
    for stream in ["stdin", "stdout"] {
        let mut raw = raw_as_other(&rig, 54323, stream);
        mux.stderr.wait_for(&format!("uid=54321 pid={} refused at {stream}: ", process::id()));
        let mut got = Vec::new();
        // The end may come as a reset.
        let _ = raw.read_to_end(&mut got);
        assert!(got.is_empty());
    }
    expect(rig.client("stdout"), "secret");
    // A name like that of those whom a namespace hides changes nothing outside of one.
    let nobody =
        as_user(&rig, 65534, "0", &rig.file("iottymux")).args(["attach", "--app", APP]).output();
    let said = String::from_utf8(nobody.unwrap().stderr).unwrap();
    assert!(said.contains("(65534) may not attach to app demo"), "{said}");
    // It does not even see the others.
    let mut asked = Proc::spawn(as_other(&rig, "0", &["status", "--app", APP]));
    assert_eq!(asked.ends(), 1);
    assert!(asked.stderr.text().contains("may not attach"));
    // It is no error of the mux.
    assert_eq!(rig.status()["errors"], Value::Array(Vec::new()));
}

#[test]
fn without_lists_others_do_not_even_reach_the_socket() {
    let Some(rig) = shared_rig() else { return };
    let _mux = rig.stream();
    let mut attach = attach_as_other(&rig, GROUP, &[]);
    assert_eq!(attach.ends(), 1);
    let why = "user 54321 may not attach to app demo; try to start its mux with --allow-uid 54321";
    assert_eq!(attach.stderr.text(), format!("iottymux: {why}\n"));
}

#[test]
fn a_user_of_a_list_attaches_and_types() {
    for (option, id) in [("--allow-uid", OTHER), ("--allow-gid", GROUP), ("--allow-gid", "54323")] {
        let Some(rig) = shared_rig() else { return };
        let mux = rig.mux(["stream", "--app", APP, option, id]);
        let app = rig.reader();
        let mut attach = attach_as_other(&rig, GROUP, &[]);
        attach.stdin().write_all(b"from another\n").unwrap();
        app.wait_for("from another\n");
        rig.writer("stdout").write_all(b"to another").unwrap();
        attach.stdout.wait_for("to another");
        let pid = attach.pid();
        mux.stderr.wait_for(&format!("uid=54321 pid={pid} attached to stdout,stderr,typing\n"));
        // It may let go of its own clients, and of nobody else's.
        let own = number_of(&rig, &attach);
        let root = rig.attach(&[]);
        mux.stderr.wait_for(&format!("uid=0 pid={} attached", root.pid()));
        let words = ["control", "--app", APP, "detach"];
        let roots = number_of(&rig, &root);
        let mut control = Proc::spawn(as_other(&rig, GROUP, &[&words[..], &[&roots]].concat()));
        assert_eq!(control.ends(), 1);
        assert!(control.stderr.text().contains("its own clients"), "{}", control.stderr.text());
        let restart = ["control", "--app", APP, "restart"];
        let mut control = Proc::spawn(as_other(&rig, GROUP, &restart));
        assert_eq!(control.ends(), 1);
        let why = "app demo: only root and the mux's own user may do that";
        assert_eq!(control.stderr.text(), format!("iottymux: {why}\n"));
        let mut control = Proc::spawn(as_other(&rig, GROUP, &[&words[..], &[&own]].concat()));
        assert_eq!(control.ends(), 0, "{}", control.stderr.text());
        assert_eq!(attach.ends(), 0);
        mux.stderr.wait_for(&format!("uid=54321 pid={pid} detached from stdout,stderr,typing\n"));
    }
}

#[test]
fn a_viewer_cannot_type_resize_or_end_anything() {
    let Some(rig) = shared_rig() else { return };
    let mux = rig.mux(["tty", "--app", APP, "--view-gid", GROUP]);
    let mut slave = rig.slave();
    let before = tcgetwinsize(&slave).unwrap();
    let root = rig.attach(&["--mode", "tty-out"]);
    mux.stderr.wait_for(&format!("pid={} attached", root.pid()));
    let number = number_of(&rig, &root);

    // A person, with a window of another size and hands on the keys.
    let pty = Pty::open(10, 133);
    let mut viewer =
        pty.spawn(as_other(&rig, GROUP, &["attach", "--app", APP, "--detach-keys", "ctrl-x"]));
    pty.shown.wait_for("you cannot type: user 54321 may only look");
    pty.press(b"typed by a viewer\n");
    slave.write_all(b"shown").unwrap();
    pty.shown.wait_for("shown");
    // A pipe that asks for both is a viewer, too, and keeps its bytes.
    let mut piped = attach_as_other(&rig, GROUP, &[]);
    piped.stdin().write_all(b"piped by a viewer\n").unwrap();
    piped.stderr.wait_for("you cannot type");
    // One that asks for nothing else is refused.
    let mut only = attach_as_other(&rig, GROUP, &["--mode", "tty-in"]);
    assert_eq!(only.ends(), 1);
    assert!(only.stderr.text().contains("may only look"), "{}", only.stderr.text());
    let mut alone = attach_as_other(&rig, GROUP, &["--take-over"]);
    assert_eq!(alone.ends(), 1);
    assert!(alone.stderr.text().contains("take the input lock"), "{}", alone.stderr.text());
    // The raw socket shows, and takes nothing.
    let mut raw = raw_as_other(&rig, 54322, "tty");
    raw.write_all(b"raw by a viewer\n").unwrap();
    mux.stderr.wait_for(&format!("uid=54321 pid={} attached to tty\n", process::id()));
    for request in [&["detach", number.as_str()][..], &["resize", "5x5"]] {
        let words = [&["control", "--app", APP], request].concat();
        let mut control = Proc::spawn(as_other(&rig, GROUP, &words));
        assert_eq!(control.ends(), 1, "{request:?}");
        assert!(control.stderr.text().contains("may only look"), "{}", control.stderr.text());
    }
    // It may ask who is there.
    let mut asked = Proc::spawn(as_other(&rig, GROUP, &["status", "--app", APP]));
    assert_eq!(asked.ends(), 0, "{}", asked.stderr.text());

    // All that was tried before this has been dealt with when this arrives, and it arrives alone.
    slave.write_all(b"on").unwrap();
    expect(&raw, "on");
    mux.rests();
    rig.client("tty").write_all(b"root\n").unwrap();
    let mut typed = [0; 5];
    slave.read_exact(&mut typed).unwrap();
    assert_eq!(&typed, b"root\n");
    let after = tcgetwinsize(&slave).unwrap();
    assert_eq!((after.ws_row, after.ws_col), (before.ws_row, before.ws_col));
    let there = number_of(&rig, &root);
    assert_eq!(there, number);
    pty.press(b"\x18");
    assert_eq!(viewer.ends(), 0);
}

/// The user of a peer that the mux's user namespace does not know matches nothing.
#[test]
fn a_user_hidden_by_a_namespace_is_refused_as_such() {
    let Some(rig) = shared_rig() else { return };
    fs::create_dir(rig.state()).unwrap();
    std::os::unix::fs::chown(rig.state(), Some(54321), Some(54323)).unwrap();
    let mut probe = as_other(&rig, GROUP, &[]);
    let unshared = |command: &Command| {
        let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let at = words.iter().position(|w| w == "--").unwrap();
        let mut changed = Command::new("setpriv");
        changed.args(&words[..=at]).args(["unshare", "--user", "--map-root-user", "--"]);
        changed.args(&words[at + 1..]);
        changed
    };
    probe.args(["--version"]);
    if !unshared(&probe).output().is_ok_and(|output| output.status.success()) {
        return skip("user-namespace", "ordinary users may not make user namespaces");
    }
    let words = ["stream", "--app", APP, "--allow-uid", "65534", "--allow-gid", "65534"];
    let mut command = unshared(&as_other(&rig, GROUP, &words));
    command.env("IOTTYMUX_STATE_DIR", rig.state());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let _mux = rig.start(command);
    let mut attach = rig.attach(&[]);
    assert_eq!(attach.ends(), 1);
    let said = attach.stderr.text();
    assert!(said.contains("the user namespace of the mux does not map your user"), "{said}");
}

#[test]
fn one_types_alone_until_it_goes_or_is_overtaken() {
    let rig = Rig::new();
    let mux = rig.stream();
    let app = rig.reader();
    let mut everybody = rig.attach(&["--mode", "stdin,stdout"]);
    let mut everybody_types = everybody.stdin();
    everybody_types.write_all(b"all\n").unwrap();
    app.wait_for("all\n");

    let mut alone = rig.attach(&["--mode", "stdin,stdout", "--exclusive"]);
    let mut alone_types = alone.stdin();
    everybody.stderr.wait_for("you cannot type: client");
    // What others type waits, by raw socket, too.
    everybody_types.write_all(b"late\n").unwrap();
    let mut raw = rig.client("stdin");
    raw.write_all(b"raw\n").unwrap();
    let later = rig.attach(&["--mode", "stdin,stdout"]);
    later.stderr.wait_for("holds the input lock");
    alone_types.write_all(b"alone\n").unwrap();
    app.wait_for("alone\n");
    // A second one is refused, unless it takes over.
    let mut second = rig.attach(&["--exclusive"]);
    assert_eq!(second.ends(), 1);
    assert!(
        second.stderr.text().contains("holds the input lock; try --take-over"),
        "{}",
        second.stderr.text()
    );
    let clients = rig.status()["clients"].clone();
    let alone_now = |c: &&Value| c["exclusive"] == true;
    let holder = clients.as_array().unwrap().iter().find(alone_now).unwrap();
    assert_eq!(holder["pid"], alone.pid().as_raw());
    assert_eq!(holder["types"], true);

    let mut third = rig.attach(&["--mode", "stdin,stdout", "--take-over"]);
    alone.stderr.wait_for("you cannot type: client");
    third.stdin().write_all(b"taken\n").unwrap();
    app.wait_for("taken\n");
    assert_eq!(app.so_far(), "all\nalone\ntaken\n");
    // It goes, however: all type again, and nothing was lost.
    third.signal(Signal::SIGKILL);
    third.ends();
    alone.stderr.wait_for("you can type again");
    everybody.stderr.wait_for("you can type again");
    app.wait_for("late\n");
    app.wait_for("raw\n");
    alone_types.write_all(b"again\n").unwrap();
    app.wait_for("again\n");
    drop((raw, mux));
}

#[test]
fn those_who_wait_for_the_lock_get_it_one_after_the_other() {
    let rig = Rig::new();
    let _mux = rig.stream();
    // The mux reads those who come at once in any order: each is in the queue before the next comes.
    let waits = || {
        let mut waits =
            Session::new(&rig, &json!({"version": 1, "stdin": true, "exclusive": "wait"}));
        assert_eq!(waits.wait_told(FrameKind::Welcome)["rights"]["types"], false);
        waits
    };
    let mut alone = Session::new(&rig, &json!({"version": 1, "stdin": true, "exclusive": "ask"}));
    assert_eq!(alone.wait_told(FrameKind::Welcome)["rights"], Value::Null);
    let [mut first, gone, mut last] = [waits(), waits(), waits()];
    drop((gone, alone));
    assert_eq!(first.wait_told(FrameKind::Rights)["types"], true);
    let mut late = rig.attach(&["--exclusive"]);
    assert_eq!(late.ends(), 1);
    drop(first);
    assert_eq!(last.wait_told(FrameKind::Rights)["types"], true);
}

/// Whoever starts it: filters of the kernel refuse each thread what no mux does. The app has none.
#[test]
fn a_mux_of_any_kind_is_confined() {
    let run = ["run", "-d", "--app", APP, "--", "sleep", "1000"];
    for words in [&["stream", "--app", APP][..], &["tty", "--app", APP], &run] {
        let rig = Rig::new();
        let is_run = words[0] == "run";
        let _mux = if is_run { rig.run(words) } else { rig.mux(words) };
        // With its app, which starts a moment later.
        let runs = |status: Value| !is_run || status["app_pid"].is_number();
        eventually("there is a mux", || rig.try_status().is_some_and(runs));
        let status = rig.status();
        let threads = |pid: &Value| fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        for thread in threads(&status["mux_pid"]) {
            let text = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
                assert!(text.lines().any(|l| l == line), "{words:?} {line}: {text}");
            }
        }
        if is_run {
            let app = &status["app_pid"];
            let text = fs::read_to_string(format!("/proc/{app}/status")).unwrap();
            let own = fs::read_to_string("/proc/self/status").unwrap();
            let mode =
                |text: &str| text.lines().find(|l| l.starts_with("Seccomp:")).map(str::to_owned);
            assert_eq!(mode(&text), mode(&own));
            assert_eq!(rig.run(&["stop", APP]).ends(), 0);
        }
    }
}

#[test]
fn no_lock_of_an_admitted_user_binds_root() {
    let Some(rig) = shared_rig() else { return };
    let _mux = rig.mux(["stream", "--app", APP, "--allow-uid", OTHER]);
    let app = rig.reader();
    let mut alone = attach_as_other(&rig, GROUP, &["--mode", "stdin,stdout", "--exclusive"]);
    let mut alone_types = alone.stdin();
    alone_types.write_all(b"alone\n").unwrap();
    app.wait_for("alone\n");
    // As a stop command of a service types.
    let mut stop = rig.attach(&["--mode", "stdin"]);
    stop.stdin().write_all(b"stop\n").unwrap();
    app.wait_for("stop\n");
    // Root takes the lock without force, and an admitted user does not get it back by force.
    let _root = rig.attach(&["--mode", "stdin,stdout", "--exclusive"]);
    alone.stderr.wait_for("you cannot type: client");
    let mut again = attach_as_other(&rig, GROUP, &["--mode", "stdin,stdout", "--take-over"]);
    assert_eq!(again.ends(), 1);
    let why = again.stderr.text();
    assert!(why.contains("only root may take it over"), "{why}");
}

#[test]
fn the_end_of_one_clients_input_is_the_apps() {
    let rig = Rig::new();
    let go = rig.file("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("cat; echo end; read x <{}; echo after", go.display());
    let mux = rig.mux(["run", "--foreground", "--app", APP, "--", "sh", "-c", &script]);
    let mut other = rig.attach(&["--mode", "stdin"]);
    mux.stderr.wait_for(&format!("pid={} attached to typing\n", other.pid()));
    let mut once = rig.attach(&["--stdin-once"]);
    once.stdin().write_all(b"all there is\n").unwrap();
    once.stdout.wait_for("all there is\nend\n");
    // The output goes on, and nobody types any more.
    assert_eq!(other.ends(), 0);
    let mut late = rig.attach(&["--mode", "stdin"]);
    assert_eq!(late.ends(), 1);
    assert!(late.stderr.text().contains("input has ended"), "{}", late.stderr.text());
    let reader = rig.attach(&[]);
    reader.stderr.wait_for("you cannot type: its input has ended");
    assert_eq!(rest(rig.client("stdin")), "");
    fs::write(go, "go\n").unwrap();
    once.stdout.wait_for("after\n");
}

/// Who does not become the mux changes nothing of the one that runs.
#[test]
fn a_second_mux_does_not_change_who_may_come() {
    for (first, second) in [(&[][..], &["--view-uid", OTHER][..]), (&["--view-uid", OTHER], &[])] {
        let rig = Rig::new();
        let _mux = rig.mux([&["stream", "--app", APP], first].concat());
        let mode = || fs::metadata(rig.path("")).unwrap().permissions().mode();
        let before = (mode(), rig.exists("ends"));
        let mut refused = rig.run(&[&["stream", "--app", APP], second].concat());
        assert_eq!(refused.ends(), 1);
        assert!(refused.stderr.text().contains("another mux"), "{}", refused.stderr.text());
        assert_eq!((mode(), rig.exists("ends")), before);
    }
}

/// However long the mux would wait for others, it does not for those who only look.
#[test]
fn nobody_waits_for_a_viewer() {
    let Some(rig) = shared_rig() else { return };
    let arguments = ["stream", "--app", APP, "--view-uid", OTHER, "--max-client-delay", "3600"];
    let mux = rig.mux(arguments);
    let viewer = attach_as_other(&rig, GROUP, &["--mode", "stdout"]);
    mux.stderr.wait_for(&format!("pid={} attached to stdout", viewer.pid()));
    viewer.stop();
    crate::pattern::write(rig.writer("stdout"), 8 << 20);
}

#[test]
fn a_holder_that_is_stopped_keeps_the_lock_until_another_takes_it() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let app = rig.reader();
    let mut alone = rig.attach(&["--mode", "stdin,stdout", "--exclusive"]);
    let mut alone_types = alone.stdin();
    alone_types.write_all(b"alone\n").unwrap();
    app.wait_for("alone\n");
    alone.stop();
    let mut second = rig.attach(&["--exclusive"]);
    assert_eq!(second.ends(), 1);
    assert!(
        second.stderr.text().contains("holds the input lock; try --take-over"),
        "{}",
        second.stderr.text()
    );
    let others = rig.attach(&["--mode", "stdin,stdout"]);
    others.stderr.wait_for("holds the input lock");
    let mut third = rig.attach(&["--mode", "stdin,stdout", "--take-over"]);
    third.stdin().write_all(b"taken\n").unwrap();
    app.wait_for("taken\n");
    alone.go_on();
    alone.stderr.wait_for("you cannot type: client");
}
