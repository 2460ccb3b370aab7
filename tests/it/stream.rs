//! `stream`: what a mux makes, uses and says of an app with FIFOs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::proc::Proc;
use crate::rig::{APP, Rig, abstract_ready, expect, wait_until_ready};

#[test]
fn all_is_made_with_its_mode_whatever_the_umask() {
    for umask in ["000", "077"] {
        let rig = Rig::new();
        let inner = rig.command(["stream", "--app", APP]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env("IOTTYMUX_STATE_DIR", rig.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let _mux = rig.start(command);
        for (name, fifo, mode) in [
            ("", false, 0o700),
            ("endpoints", false, 0o600),
            ("sock-stdin", false, 0o600),
            ("sock-stdout", false, 0o600),
            ("sock-stderr", false, 0o600),
            ("sock-session", false, 0o600),
            ("stage2-stdin", true, 0o666),
            ("stage2-stdout", true, 0o666),
            ("stage2-stderr", true, 0o666),
        ] {
            let made = fs::symlink_metadata(rig.path(name)).unwrap();
            assert_eq!(made.permissions().mode() & 0o7777, mode, "{name:?} under umask {umask}");
            assert_eq!(made.file_type().is_fifo(), fifo, "{name}");
        }
    }
}

#[test]
fn the_document_is_exact() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let dir = rig.path("");
    let dir = dir.to_str().unwrap().trim_end_matches('/');
    let target =
        |n: &str| format!(r#"{{"name":"{n}","domain":"unix","address":"{dir}/sock-{n}"}}"#);
    let want = format!(
        r#"{{"version":1,"targets":[{},{},{}],"session":{{"version":1,"domain":"unix","address":"{dir}/sock-session"}}}}"#,
        target("stdin"),
        target("stdout"),
        target("stderr"),
    ) + "\n";
    assert_eq!(fs::read_to_string(rig.path("endpoints")).unwrap(), want);
}

#[test]
fn ready_means_that_every_socket_accepts() {
    let rig = Rig::new();
    // Rig::stream speaks by a path; the sockets are dialled once, at the datagram.
    let mux = rig.stream();
    for stream in ["stdin", "stdout", "stderr", "session"] {
        rig.client(stream);
    }
    drop(mux);
    let (ready, name) = abstract_ready();
    for (kind, sockets) in
        [("stream", &["stdin", "stdout", "stderr", "session"][..]), ("tty", &["tty", "session"])]
    {
        let mut command = rig.command([kind, "--app", APP]);
        command.env("NOTIFY_SOCKET", &name);
        let mux = Proc::spawn(command);
        wait_until_ready(&ready, &mux);
        assert!(rig.exists("endpoints"));
        for socket in sockets {
            rig.client(socket);
        }
    }
}

#[test]
fn a_fifo_that_is_there_is_used_with_what_is_in_it() {
    let rig = Rig::new();
    rig.make_app_dir();
    rig.make_fifo("stage2-stdout");
    let inode = |name| fs::symlink_metadata(rig.path(name)).unwrap().ino();
    let before = inode("stage2-stdout");
    // Both ends are open, as in an app that runs on while its mux is started anew.
    let mut app =
        fs::File::options().read(true).write(true).open(rig.path("stage2-stdout")).unwrap();
    app.write_all(b"early\n").unwrap();
    let mut mux = rig.stream();
    assert_eq!(inode("stage2-stdout"), before);
    expect(rig.client("stdout"), "early\n");
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(rig.exists("stage2-stdout"), "a FIFO of others was taken away");
}

#[test]
fn its_own_fifos_go_with_it_unless_a_service_manager_keeps_their_ends() {
    let rig = Rig::new();
    // Rig::stream has a service manager, for which the app must find the same FIFOs again.
    let inode = |name: &str| fs::symlink_metadata(rig.path(name)).unwrap().ino();
    let mut first = None;
    for _ in 0..3 {
        let mut mux = rig.stream();
        let inodes = (inode("stage2-stdin"), inode("stage2-stdout"));
        assert_eq!(*first.get_or_insert(inodes), inodes);
        mux.signal(Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
        // Whoever opened them now would wait for ever.
        assert!(!rig.exists("stage2-stdin") && !rig.exists("stage2-stdout"));
    }
    let rig = Rig::new();
    let mut mux = rig.run(&["stream", "--app", APP]);
    mux.stderr.wait_for("ready at");
    assert!(rig.exists("stage2-stdout"));
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!rig.exists("stage2-stdin") && !rig.exists("stage2-stdout"));
}

#[test]
fn a_file_in_the_place_of_a_fifo_is_moved_aside() {
    let rig = Rig::new();
    rig.make_app_dir();
    for (name, content) in [("stage2-stdout.moved", "first"), ("stage2-stdout", "second")] {
        fs::write(rig.path(name), content).unwrap();
    }
    let mut mux = rig.stream();
    assert!(fs::symlink_metadata(rig.path("stage2-stdout")).unwrap().file_type().is_fifo());
    let read = |name| fs::read_to_string(rig.path(name)).unwrap();
    assert_eq!(read("stage2-stdout.moved"), "first");
    assert_eq!(read("stage2-stdout.moved.2"), "second");
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    let said = mux.stderr.text();
    assert!(said.contains("stage2-stdout was no FIFO") && said.contains("moved.2"), "{said}");
}

#[test]
fn the_app_comes_goes_and_comes_back() {
    let rig = Rig::new();
    let _mux = rig.stream();
    let mut client = rig.client("stdout");
    for round in 0..20 {
        let line = format!("round {round}\n");
        rig.writer("stdout").write_all(line.as_bytes()).unwrap();
        expect(&mut client, &line);
    }
}

#[test]
fn the_streams_that_were_asked_for_and_no_others() {
    let all = ["stdin", "stdout", "stderr"];
    let run = |streams: Option<&str>, env: &[(&str, &str)], want: &[&str]| {
        let rig = Rig::new();
        let mut command = rig.command(["stream", "--app", APP]);
        if let Some(streams) = streams {
            command.args(["--streams", streams]);
        }
        command.envs(env.iter().copied());
        let _mux = rig.start(command);
        let there: Vec<_> = all.into_iter().filter(|s| rig.exists(&format!("sock-{s}"))).collect();
        assert_eq!(there, want, "{streams:?} {env:?}");
        let there: Vec<_> =
            all.into_iter().filter(|s| rig.exists(&format!("stage2-{s}"))).collect();
        assert_eq!(there, want, "{streams:?} {env:?}");
        let document = fs::read(rig.path("endpoints")).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let names: Vec<_> =
            document["targets"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
        assert_eq!(names, want, "{streams:?} {env:?}");
    };
    run(None, &[], &all);
    run(Some("stderr,stdin"), &[], &["stdin", "stderr"]);
    run(None, &[("STAGE2_STDOUT", "true")], &["stdout"]);
    run(None, &[("STAGE2_STDIN", "T"), ("STAGE2_STDOUT", "yes")], &["stdin"]);
    run(None, &[("IOTTYMUX_STREAMS", "stderr"), ("STAGE2_STDIN", "1")], &["stderr"]);
    run(Some("stdout"), &[("IOTTYMUX_STREAMS", "stderr")], &["stdout"]);
}

#[test]
fn in_rkts_mixed_modes_a_missing_fifo_is_not_made() {
    let rig = Rig::new();
    rig.make_app_dir();
    rig.make_fifo("stage2-stdout");
    let mut command = rig.command(["--action=iomux", "--app=demo"]);
    command.envs([("STAGE2_TTY", "true"), ("STAGE2_STDIN", "true"), ("STAGE2_STDOUT", "true")]);
    let mux = rig.start(command);
    assert!(!rig.exists("stage2-stdin") && !rig.exists("sock-stdin"));
    mux.stderr.wait_for("stdin is not served");
    let mut client = rig.client("stdout");
    rig.writer("stdout").write_all(b"served\n").unwrap();
    expect(&mut client, "served\n");
}

#[test]
fn a_long_state_directory_works() {
    let rig = Rig::new();
    let long = rig.file(&"long".repeat(50));
    let mut command = rig.command(["stream", "--app", APP]);
    command.env("IOTTYMUX_STATE_DIR", &long);
    let _mux = rig.start(command);
    let fifo = long.join(APP).join("stage2-stdout");
    fs::File::options().write(true).open(fifo).unwrap().write_all(b"far\n").unwrap();
    let mut command = rig.command(["attach", "--app", APP, "--mode", "stdout"]);
    command.env("IOTTYMUX_STATE_DIR", &long);
    Proc::spawn(command).stdout.wait_for("far\n");
}

/// It ends on a signal that comes at any moment after its start, with a service manager or without.
#[test]
fn an_early_signal_is_not_lost() {
    for _ in 0..20 {
        let rig = Rig::new();
        rig.make_app_dir();
        rig.make_fifo("stage2-stdout");
        let mut mux = rig.run(&["stream", "--app", APP, "--foreign-fifos", "--streams", "stdout"]);
        mux.stderr.wait_for("ready at");
        mux.signal(Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
    }
}
