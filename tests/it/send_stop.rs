//! `send`, `stop`, `kill`, `rm`, and `--host`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use iottymux::core::wire::{AppStatus, ControlRequest, FrameKind, HEADER, InputTaken};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::proc::Proc;
use crate::rig::{APP, Rig};

/// It ends with this code and one line with this text on standard error.
fn fails(mut process: Proc, code: i32, why: &str) {
    assert_eq!(process.ends(), code, "{}", process.stderr.so_far());
    let said = process.stderr.text();
    assert!(said.contains(why), "{said:?} has no {why:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// It ends well, and has printed this.
fn prints(mut process: Proc, text: &str) {
    assert_eq!(process.ends(), 0, "{}", process.stderr.so_far());
    assert_eq!(process.stdout.text(), text);
    assert_eq!(process.stderr.text(), "");
}

fn run(rig: &Rig, options: &[&str], script: &str) -> Proc {
    let words = [&["run", "--foreground", "--name", APP][..], options, &["sh", "-c", script]];
    rig.mux(words.concat())
}

/// The session socket of an app with stdin, whose mux the test is.
fn session_of_no_mux(rig: &Rig) -> UnixListener {
    rig.make_app_dir();
    let socket = UnixListener::bind(rig.path("session")).unwrap();
    let stdin = json!({"name": "stdin", "domain": "unix", "address": rig.path("sock-stdin")});
    let session = json!({"version": 1, "domain": "unix", "address": rig.path("session")});
    let document = json!({"version": 1, "targets": [stdin], "session": session});
    fs::write(rig.path("endpoints"), document.to_string()).unwrap();
    socket
}

/// The next client of such a session, welcomed.
fn welcome(socket: &UnixListener) -> UnixStream {
    let (mut client, _) = socket.accept().unwrap();
    assert!(client.read(&mut [0; 4096]).unwrap() > 0);
    let welcome = json!({"version": 1, "streams": [], "others": 0});
    client.write_all(&FrameKind::Welcome.message(&welcome)).unwrap();
    client
}

#[test]
fn an_app_is_stopped_as_it_wants() {
    let rig = Rig::new();
    let script = "trap 'echo bye; exit 3' TERM; echo up; while :; do read x; done";
    for tty in [&[][..], &["-t"]] {
        let mut app = run(&rig, tty, script);
        let mut reader = rig.attach(&["--read-only"]);
        reader.stdout.wait_for("up");
        // A shell that reads from its terminal notices the signal with the next line.
        let mut stop = rig.run(&["stop", APP]);
        reader.stdout.wait_for("bye");
        assert_eq!(stop.ends(), 0, "{}", stop.stderr.so_far());
        assert_eq!(stop.stdout.text(), format!("app {APP} ended with status 3\n"));
        assert_eq!((app.ends(), reader.ends()), (3, 3));
    }
    fails(rig.run(&["stop", APP]), 1, "it ended with status 3");
}

#[test]
fn an_app_that_does_not_stop_is_killed() {
    let rig = Rig::new();
    let script = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let mut app = run(&rig, &[], script);
    rig.attach(&["--mode", "stdout"]).stdout.wait_for("up");
    prints(rig.run(&["stop", "--time", "0.1", APP]), "app demo ended by signal 9\n");
    assert_eq!(app.ends(), 137);
}

/// It ignores SIGTERM, and ends as when its terminal closes.
#[test]
fn an_interactive_shell_is_hung_up() {
    let rig = Rig::new();
    let mut app = rig.run(&["run", "-d", "-t", "--name", APP, "env", "PS1=ready>", "sh", "-i"]);
    assert_eq!(app.ends(), 0, "{}", app.stderr.so_far());
    rig.attach(&["--mode", "tty-out", "--from", "start"]).stdout.wait_for("ready>");
    // More than the watchdog's time, so it is not SIGKILL that ends it.
    prints(rig.run(&["stop", "--time", "1000", APP]), "app demo ended by signal 1\n");
}

/// The time until SIGKILL may be over while the mux is sending.
#[test]
fn an_end_after_half_a_message_is_an_end() {
    let rig = Rig::new();
    let socket = session_of_no_mux(&rig);
    let mut stop = rig.run(&["stop", "--time", "0.1", APP]);
    let mut watcher = welcome(&socket);
    let exit = FrameKind::Exit.message(&AppStatus::Signal(9));
    let (first, rest) = exit.split_at(HEADER);
    for number in [15, 9] {
        let mut asker = welcome(&socket);
        let mut buffer = [0; 4096];
        let len = asker.read(&mut buffer).unwrap();
        let request = ControlRequest::Signal { number };
        assert_eq!(buffer[..len], FrameKind::Request.message(&request));
        asker.write_all(&FrameKind::Answer.message(&json!({}))).unwrap();
        if number == 15 {
            watcher.write_all(first).unwrap();
        }
    }
    watcher.write_all(rest).unwrap();
    // As a mux leaves it that ends with its app.
    let last = json!({
        "version": 1, "app": APP, "ended_ms": 1, "status": AppStatus::Signal(9), "streams": [],
    });
    fs::write(rig.path("last.json"), last.to_string() + "\n").unwrap();
    drop(watcher);
    assert_eq!(stop.ends(), 0, "{}", stop.stderr.so_far());
    assert_eq!(stop.stdout.text(), "app demo ended by signal 9\n");
}

#[test]
fn a_signal_reaches_the_app() {
    let rig = Rig::new();
    let script = "trap 'echo got it' HUP; echo up; while :; do read x; done";
    let mut app = run(&rig, &[], script);
    let reader = rig.attach(&["--mode", "stdout"]);
    reader.stdout.wait_for("up");
    prints(rig.run(&["kill", "-s", "hup", APP]), "");
    reader.stdout.wait_for("got it");
    fails(rig.run(&["kill", "-s", "NO", APP]), 2, "expected a signal such as TERM");
    prints(rig.run(&["kill", APP]), "app demo ended by signal 9\n");
    assert_eq!(app.ends(), 137);
}

#[test]
fn only_apps_of_run_are_stopped() {
    let rig = Rig::new();
    let _mux = rig.stream();
    for (command, verb) in [("stop", "stop"), ("kill", "kill --kill-whom=main --signal=SIGKILL")] {
        let why = format!("it is a service; try systemctl {verb} demo.service");
        fails(rig.run(&[command, APP]), 1, &why);
        fails(rig.run(&[command]), 2, "<NAME>");
    }
    fails(rig.run(&["stop", "nobody"]), 1, "there is no app nobody in ");
    fails(rig.run(&["rm", APP]), 1, "app demo is running; try iottymux stop demo");
    fails(rig.run(&["rm", "nobody"]), 1, "there is no app nobody in ");
}

#[test]
fn what_an_app_has_left_is_removed() {
    let rig = Rig::new();
    let mut app = run(&rig, &[], "echo bye");
    assert_eq!(app.ends(), 0);
    assert!(rig.exists("last.json"));
    prints(rig.run(&["rm", APP]), "removed app demo\n");
    assert!(!rig.exists(""));
    // Each name is tried, and each failure reported.
    let mut app = run(&rig, &[], "sleep 1000");
    let mut stop = rig.run(&["stop", "one", APP, "two"]);
    assert_eq!(stop.ends(), 1);
    assert_eq!(stop.stdout.text(), "app demo ended by signal 15\n");
    let said = stop.stderr.text();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("app one") && lines[1].contains("app two"));
    assert_eq!(app.ends(), 143);
    let mut app = run(&rig, &[], "sleep 1000");
    prints(rig.run(&["rm", "-f", APP]), "app demo ended by signal 9\nremoved app demo\n");
    assert_eq!(app.ends(), 137);
    assert!(!rig.exists(""));
}

/// With Enter at a terminal, which a raw one needs, and with a line end elsewhere.
#[test]
fn a_line_is_typed_and_taken() {
    for (tty, script, shown) in [
        (&[][..], "read x; echo \"<$x>\"; exit 7", "<say  it's \"$1\">"),
        (&["-t"], "stty raw -echo; head -c 15 | od -An -c; exit 7", "\\r"),
    ] {
        let rig = Rig::new();
        let mut app = run(&rig, tty, script);
        let mut reader = rig.attach(&["--read-only"]);
        if !tty.is_empty() {
            // The terminal is raw before the line comes.
            crate::proc::eventually("it is raw", || {
                let modes = nix::sys::termios::tcgetattr(rig.slave_as_it_is()).unwrap();
                !modes.local_flags.contains(nix::sys::termios::LocalFlags::ICANON)
            });
        }
        prints(rig.run(&["send", APP, "say ", "it's", "\"$1\""]), "");
        assert_eq!((app.ends(), reader.ends()), (7, 7));
        assert!(reader.stdout.text().contains(shown), "{}", reader.stdout.text());
    }
    fails(Rig::new().run(&["send", "nobody", "x"]), 1, "there is no app nobody in ");
    // It has none of the options of attach.
    let rig = Rig::new();
    drop(rig.stream());
    fails(rig.run(&["send", APP, "x"]), 1, "app demo: its mux was killed");
}

/// The mux reads the line and its end together, so what it says of them comes before the app's end.
#[test]
fn a_line_and_its_end_are_sent_in_one_piece() {
    for (is_taken, code, said) in [
        (true, 0, ["", ""]),
        (false, 1, ["", "iottymux: app demo ended with status 7 before it took the line\n"]),
    ] {
        let rig = Rig::new();
        let socket = session_of_no_mux(&rig);
        let mut send = rig.run(&["send", APP, "bye"]);
        let mut client = welcome(&socket);
        let mut buffer = [0; 4096];
        let len = client.read(&mut buffer).unwrap();
        let line = [FrameKind::Stdin.frame(b"bye\n"), FrameKind::StdinEof.frame(b"")];
        assert_eq!(buffer[..len], line.concat());
        let taken = FrameKind::StdinDone.message(&InputTaken::default());
        let taken = if is_taken { taken } else { Vec::new() };
        // At once, since it may leave after the first one.
        client
            .write_all(&[taken, FrameKind::Exit.message(&AppStatus::Status(7))].concat())
            .unwrap();
        drop(client);
        assert_eq!(send.ends(), code);
        assert_eq!([send.stdout.text(), send.stderr.text()], said);
    }
}

/// An ssh that runs the line on this machine, as the other one would.
const SSH: &str = "#!/bin/sh\necho \"$*\" >\"$IOTTYMUX_STATE_DIR.ssh\"\n\
    while [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"$*\"\n";

#[test]
fn another_machine_is_reached_by_ssh() {
    let rig = Rig::new();
    let program = Path::new(env!("CARGO_BIN_EXE_iottymux")).parent().unwrap();
    fs::create_dir(rig.file("bin")).unwrap();
    fs::write(rig.file("bin/ssh"), SSH).unwrap();
    fs::set_permissions(rig.file("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", rig.file("bin").display(), program.display());
    let remote = |words: &[&str]| {
        let mut command = rig.command(words);
        command.env("PATH", &path);
        Proc::spawn(command)
    };
    let script = "read x; read y; echo \"got $y\"; read z; exit 6";
    let mut app = run(&rig, &[], script);
    let said = || fs::read_to_string(rig.file("state.ssh")).unwrap();
    let line = "it's  \"$x\" `id`";
    prints(remote(&["-H", "me@there", "send", APP, line]), "");
    assert_eq!(
        said(),
        format!(
            "-- me@there env IOTTYMUX_AT=me@there iottymux -H me@there send demo '{}'\n",
            line.replace('\'', "'\\''")
        )
    );
    prints(remote(&["-H", "there", "ask", APP, "hello", "--until", "^got .*"]), "got hello\n");
    prints(remote(&["-H", "there", "send", APP, "the end"]), "");
    let mut attach = remote(&["attach", "--host=there", APP, "--read-only", "--from", "start"]);
    let code = attach.ends();
    assert!(code == 6 || code == 1, "{code}: {}", attach.stderr.so_far());
    assert_eq!(app.ends(), 6);
    assert_eq!(
        said(),
        "-- there env IOTTYMUX_RECONNECT=0 IOTTYMUX_AT=there \
         iottymux attach --host=there demo --read-only --from start\n"
    );
    // At a terminal it asks for one there, without ssh's own escape character.
    let local = crate::pty::Pty::open(24, 80);
    let mut again = run(&rig, &[], "echo up; sleep 1000");
    let mut command = rig.command(["attach", APP, "-H", "there"]);
    command.env("PATH", &path);
    let mut attach = local.spawn(command);
    local.shown.wait_for("up");
    assert_eq!(
        said(),
        "-t -e none -- there env IOTTYMUX_RECONNECT=0 IOTTYMUX_AT=there \
         iottymux attach demo -H there\n"
    );
    attach.signal(Signal::SIGTERM);
    attach.ends();
    // A setting of this shell is one of that command there, too: it types nothing.
    let mut viewer = rig.command(["attach", APP, "--from=start", "-H", "there"]);
    viewer.env("PATH", &path).env("IOTTYMUX_READ_ONLY", "1").env("IOTTYMUX_TAIL", "1");
    let mut viewer = Proc::spawn(viewer);
    viewer.stdout.wait_for("up");
    assert!(said().contains(" IOTTYMUX_READ_ONLY=1 ") && !said().contains("TAIL"), "{}", said());
    viewer.signal(Signal::SIGTERM);
    viewer.ends();
    prints(remote(&["-Hthere", "kill", APP]), "app demo ended by signal 9\n");
    assert_eq!(again.ends(), 137);
    let mut missing = rig.command(["-H", "there", "list"]);
    missing.env("PATH", rig.file("nowhere"));
    fails(Proc::spawn(missing), 1, "cannot execute ssh");
}

/// The signal is ssh's, as it is the command that runs here, and so is the status.
#[test]
fn a_command_that_is_interrupted_ends_as_ssh_does() {
    let rig = Rig::new();
    let ssh = rig.file("ssh");
    let script = "#!/bin/sh\ntrap 'exit 255' INT\necho up\nwhile read x; do :; done\n";
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let local = crate::pty::Pty::open(24, 80);
    let mut command = rig.command(["-H", "there", "logs", "-f", APP]);
    command.env("PATH", format!("{}:/usr/bin:/bin", rig.file("").display()));
    let mut command = local.spawn(command);
    local.shown.wait_for("up");
    local.press(b"\x03");
    assert_eq!(command.ends(), 255);
}

/// Signals reach ssh also when it has closed its outputs; and when it ends, whoever else has them may write on.
#[test]
fn nothing_but_the_end_of_ssh_ends_a_command_there() {
    let rig = Rig::new();
    let ssh = rig.file("ssh");
    let silent = "trap 'exit 6' TERM; echo up; exec >&- 2>&-; while :; do sleep 0.1; done";
    let flood = "yes & echo $! >\"$0.pid\"; echo up; exit 6";
    for (script, is_ended) in [(silent, true), (flood, false)] {
        fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let local = crate::pty::Pty::open(24, 80);
        let mut command = rig.command(["attach", APP, "-H", "there"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", rig.file("").display()));
        let mut command = local.spawn(command);
        local.shown.wait_for("up");
        if is_ended {
            command.signal(Signal::SIGTERM);
        }
        assert_eq!(command.ends(), 6);
    }
    let pid = fs::read_to_string(rig.file("ssh.pid")).unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid.trim().parse().unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
}
